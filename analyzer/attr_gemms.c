/* Reads gemm, the widest of the tables. Most products of a training run come again in each step: the table becomes a
 * list of different products and, for each row, which of them it is. That needs nothing of the other tables, and a
 * thread with a connection of its own does it meanwhile; where there can be none, it is done when it is asked for. */
#include "analyzer/attr_gemms.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/attr_scan.h"
#include "analyzer/attr_sql.h"

/* A product as its row tells it. */
struct gemm_call {
    struct cost_gemm gemm;
    uint64_t workspace;
    int64_t workspace_bytes;
};

struct gemm_row {
    int64_t op;
    int32_t call, group; /* group: of the rows of an op, in the order of their ids */
};

enum { CACHE = 1 << 16 }; /* more than a step has different products; the newer of two at one place stays */
struct gemms {
    struct pool pool;
    sqlite3 *db;
    sqlite3_stmt *beside;
    struct gemm_call *call;
    int32_t calls, call_room;
    struct gemm_row *row;
    int32_t rows, row_room;
    struct known {
        uint64_t hash;
        int32_t call; /* + 1 */
    } * known;
    struct scan_memo memo[22]; /* by column, of those of take_call */
    int unordered, no_beside, failed;
    char err[512];
    /* the thread */
    pthread_t thread;
    int started;
};

/* ---- one row ----------------------------------------------------------------------------------------------------- */
/* What only cuBLASLt has. */
static const char beside_sql[] =
    "SELECT d, ldd, stride_d, d_type, epilogue, bias, bias_length, stride_bias, bias_type, aux, ldaux, stride_aux, "
    "aux_type, a_scale, b_scale, c_scale, d_scale, aux_scale, d_out_scale, amax_d, amax_aux, a_scale_mode, "
    "b_scale_mode, d_out_scale_mode FROM gemm WHERE id = ?";

static uint64_t sql_address(sqlite3_stmt *st, int column) {
    return (uint64_t)sqlite3_column_int64(st, column);
}

static void take_beside(sqlite3_stmt *st, struct cost_gemm *g) {
    g->d = sql_address(st, 0);
    g->ldd = sql_i64(st, 1);
    g->stride_d = sql_i64(st, 2);
    g->d_type = sql_enum(st, 3, COST_OF_dtype);
    g->epilogue = sql_enum(st, 4, COST_OF_epilogue);
    g->bias = sql_address(st, 5);
    g->bias_length = sql_i64(st, 6);
    g->stride_bias = sql_i64(st, 7);
    g->bias_type = sql_enum(st, 8, COST_OF_dtype);
    g->aux = sql_address(st, 9);
    g->ldaux = sql_i64(st, 10);
    g->stride_aux = sql_i64(st, 11);
    g->aux_type = sql_enum(st, 12, COST_OF_dtype);
    g->a_scale = sql_address(st, 13);
    g->b_scale = sql_address(st, 14);
    g->c_scale = sql_address(st, 15);
    g->d_scale = sql_address(st, 16);
    g->aux_scale = sql_address(st, 17);
    g->d_out_scale = sql_address(st, 18);
    g->amax_d = sql_address(st, 19);
    g->amax_aux = sql_address(st, 20);
    g->a_scale_mode = sql_enum(st, 21, COST_OF_scale_mode);
    g->b_scale_mode = sql_enum(st, 22, COST_OF_scale_mode);
    g->d_out_scale_mode = sql_enum(st, 23, COST_OF_scale_mode);
}

static void read_beside(struct gemms *s, int64_t id, struct cost_gemm *g) {
    sqlite3_bind_int64(s->beside, 1, id);
    if (sqlite3_step(s->beside) == SQLITE_ROW)
        take_beside(s->beside, g);
    else
        s->no_beside = 1;
    sqlite3_reset(s->beside);
}

/* A row that has none of the last columns has nothing beside, which is then not read. */
enum { FIRST_BESIDE = 27, LAST_BESIDE = 38 };
static const char columns[] =
    "op, trans_a, trans_b, m, n, k, batch, a, b, c, lda, ldb, ldc, stride_a, stride_b, stride_c, a_type, b_type, "
    "c_type, compute, alpha, beta, pointer_array, math_mode, workspace, workspace_bytes, id, "
    "epilogue, d, bias, aux, a_scale, b_scale, c_scale, d_scale, aux_scale, d_out_scale, amax_d, amax_aux";

static int has_beside(sqlite3_value **v) {
    if (sqlite3_value_type(v[FIRST_BESIDE]) != SQLITE_NULL) return 1;
    for (int i = FIRST_BESIDE + 1; i <= LAST_BESIDE; i++)
        if (sqlite3_value_int64(v[i])) return 1;
    return 0;
}

static int64_t or_one(int64_t v) {
    return v == ACCT_NULL_I64 ? 1 : v;
}

static void take_call(struct gemms *s, sqlite3_value **v, struct gemm_call *c) {
    struct cost_gemm *g = &c->gemm;
    struct scan_memo *m = s->memo;
    memset(c, 0, sizeof *c); /* gaps too: they are compared as bytes */
    g->trans_a = scan_enum_again(&m[1], v[1], COST_OF_trans);
    g->trans_b = scan_enum_again(&m[2], v[2], COST_OF_trans);
    g->m = scan_i64(v[3]);
    g->n = scan_i64(v[4]);
    g->k = scan_i64(v[5]);
    g->batch = or_one(scan_i64(v[6]));
    g->a = scan_address(v[7]);
    g->b = scan_address(v[8]);
    g->c = scan_address(v[9]);
    g->lda = scan_i64(v[10]);
    g->ldb = scan_i64(v[11]);
    g->ldc = scan_i64(v[12]);
    g->stride_a = scan_i64(v[13]);
    g->stride_b = scan_i64(v[14]);
    g->stride_c = scan_i64(v[15]);
    g->a_type = scan_enum_again(&m[16], v[16], COST_OF_dtype);
    g->b_type = scan_enum_again(&m[17], v[17], COST_OF_dtype);
    g->c_type = scan_enum_again(&m[18], v[18], COST_OF_dtype);
    g->compute = scan_enum_again(&m[19], v[19], COST_OF_compute);
    g->alpha = scan_enum_again(&m[20], v[20], COST_OF_scalar);
    g->beta = scan_enum_again(&m[21], v[21], COST_OF_scalar);
    g->pointer_array = (uint32_t)sqlite3_value_int(v[22]);
    g->math_mode = scan_i32(v[23]);
    c->workspace = scan_address(v[24]);
    c->workspace_bytes = scan_i64(v[25]);
    g->ldd = g->stride_d = g->bias_length = g->stride_bias = g->ldaux = g->stride_aux = ACCT_NULL_I64;
    if (has_beside(v)) read_beside(s, sqlite3_value_int64(v[26]), g);
}

/* Its number among those seen. */
static int32_t number_of(struct gemms *s, const struct gemm_call *c) {
    uint64_t hash = at_hash_bytes(c, sizeof *c);
    struct known *k = &s->known[hash % CACHE];
    if (k->call && k->hash == hash && !memcmp(&s->call[k->call - 1], c, sizeof *c)) return k->call - 1;
    POOL_ROOM(&s->pool, s->call, s->calls, s->call_room);
    memcpy(&s->call[s->calls++], c, sizeof *c); /* gaps too */
    *k = (struct known){hash, s->calls};
    return s->calls - 1;
}

static void take_row(void *context, sqlite3_value **v) {
    struct gemms *s = context;
    struct gemm_call c;
    int64_t op = sqlite3_value_int64(v[0]);
    take_call(s, v, &c);
    POOL_ROOM(&s->pool, s->row, s->rows, s->row_room);
    s->unordered |= s->rows && op < s->row[s->rows - 1].op;
    s->row[s->rows] = (struct gemm_row){op, number_of(s, &c), s->rows};
    s->rows++;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */
static int row_order(const void *a, const void *b) {
    const struct gemm_row *x = a, *y = b;
    if (x->op != y->op) return x->op < y->op ? -1 : 1;
    return x->group - y->group;
}

/* The further groups of a grouped product have ids of their own: then rows do not come in the order of ops. */
static int read_table(struct gemms *s) {
    s->known = POOL_NEW(&s->pool, struct known, CACHE);
    if (sql_prepare(s->db, &s->beside, beside_sql, s->err, sizeof s->err)) return -1;
    int rc = scan_rows(&s->pool, s->db, columns, "gemm NOT INDEXED", take_row, s, s->err, sizeof s->err);
    if (!rc && s->no_beside) {
        snprintf(s->err, sizeof s->err, "a row of table gemm cannot be read again");
        rc = -1;
    }
    if (s->unordered) qsort(s->row, (size_t)s->rows, sizeof *s->row, row_order);
    return rc;
}

static void read_or_fail(struct gemms *s) {
    if (setjmp(s->pool.failed))
        s->failed = -1;
    else
        s->failed = read_table(s);
    sqlite3_finalize(s->beside);
    s->beside = NULL;
}

static void *run_thread(void *argument) {
    read_or_fail(argument);
    return NULL;
}

/* ---- beside the caller ------------------------------------------------------------------------------------------- */
/* The same file once more: what the caller's transaction has not changed is what it sees itself. NULL: a database
 * without a file. */
static sqlite3 *second_connection(sqlite3 *db) {
    const char *path = sqlite3_db_filename(db, "main");
    sqlite3 *second = NULL;
    if (!path || !*path) return NULL;
    if (sqlite3_open_v2(path, &second, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, NULL) ||
        sqlite3_exec(second, "PRAGMA cache_size=-2048", NULL, NULL, NULL)) {
        sqlite3_close(second);
        return NULL;
    }
    return second;
}

struct gemms *gemms_begin(sqlite3 *db) {
    struct gemms *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->db = second_connection(db);
    if (s->db) s->started = !pthread_create(&s->thread, NULL, run_thread, s);
    return s;
}

/* What the thread has read; or it is read now, where there was none or it failed: columns that the caller's transaction
 * has added to an older trace are seen by no other connection. */
static int finish(struct gemms *s, sqlite3 *db) {
    if (s->started) pthread_join(s->thread, NULL);
    sqlite3_close(s->db);
    s->db = NULL;
    if (s->started && !s->failed) return s->started = 0;
    pool_free(&s->pool);
    *s = (struct gemms){.db = db};
    read_or_fail(s);
    s->db = NULL;
    return s->failed;
}

static void make_shape(struct rows *r, const struct gemm_call *k, const struct cost_machine *machine) {
    struct row_shape *s = shape_begin(r);
    const struct cost_gemm *g = &k->gemm;
    struct cost c;
    cost_of_gemm(g, &c);
    s->m = g->m;
    s->n = g->n;
    s->k = g->k;
    s->batch = g->batch;
    s->bits_a = (int8_t)cost_type_bits(g->a_type);
    s->bits_b = (int8_t)cost_type_bits(g->b_type);
    s->idle = g->m <= 0 || g->n <= 0 || g->batch <= 0;
    shape_add_call(r, &c, cost_gemm_dtype(g, machine));
    shape_add_workspace(r, k->workspace, k->workspace_bytes);
}

/* The shape of a product, for the machine that it was asked for last. */
struct made {
    int32_t shape, machine; /* machine: number + 1 */
};

static void give_all(struct gemms *s, struct rows *r, struct machines *m) {
    struct made *made = POOL_NEW(r->pool, struct made, s->calls);
    int32_t last = 0;
    for (const struct gemm_row *g = s->row; g < s->row + s->rows; g++) {
        struct row *row = row_find(r, g->op, &last);
        if (!row) continue;
        int32_t machine = machine_of(m, row->process, row->device);
        struct made *x = &made[g->call];
        if (x->machine != machine + 1) {
            make_shape(r, &s->call[g->call], machine_at(m, machine));
            *x = (struct made){r->shapes - 1, machine + 1};
        }
        shape_give_again(r, row, x->shape);
    }
    pool_give(r->pool, made);
}

int gemms_give(struct gemms *s, struct rows *r, sqlite3 *db, struct machines *m, char *err, size_t err_len) {
    if (finish(s, db)) {
        snprintf(err, err_len, "%s", *s->err ? s->err : "not enough memory to read the trace's products");
        return -1;
    }
    give_all(s, r, m);
    return 0;
}

void gemms_free(struct gemms *s) {
    if (!s) return;
    if (s->started) pthread_join(s->thread, NULL);
    sqlite3_close(s->db);
    pool_free(&s->pool);
    free(s);
}
