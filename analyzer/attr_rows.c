/* Reads the recorded tables: calls with their operands and costs, and allocations. */
#include "analyzer/attr_rows.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/attr_sql.h"

/* ---- calls
 * ----------------------------------------------------------------------------------------------------------- */
/* -1: a call that moves and computes nothing. */
static int kind_of(const char *text) {
    if (!strcmp(text, "launch") || !strcmp(text, "blas") || !strcmp(text, "collective")) return AT_KERNEL;
    if (!strcmp(text, "gemm")) return AT_GEMM;
    if (!strcmp(text, "copy")) return AT_D2D; /* settled when the addresses are known */
    if (!strcmp(text, "memset")) return AT_MEMSET;
    return strcmp(text, "workspace") ? -1 : AT_HANDED;
}

static int call_of(const char *text) {
    static const char *const names[] = {[AT_CALL_LAUNCH] = "launch",
                                        [AT_CALL_GEMM] = "gemm",
                                        [AT_CALL_BLAS] = "blas",
                                        [AT_CALL_COPY] = "copy",
                                        [AT_CALL_MEMSET] = "memset"};
    for (int i = 0; i < AT_CALL_OTHER; i++)
        if (!strcmp(text, names[i])) return i;
    return AT_CALL_OTHER;
}

static int read_calls(struct rows *r, sqlite3 *db, char *err, size_t err_len) {
    sqlite3_stmt *st;
    if (sql_prepare(db, &st,
                    "SELECT id, process, thread, api, kind, device, start_ns, end_ns, status FROM op ORDER BY id", err,
                    err_len))
        return -1;
    int rc;
    while ((rc = sql_row(db, st, err, err_len)) > 0) {
        int status = sqlite3_column_int(st, 8);
        const char *text = (const char *)sqlite3_column_text(st, 4);
        int kind = text && !status ? kind_of(text) : -1;
        r->no_memory_calls += status == 2 || status == 3;
        if (kind < 0) continue;
        POOL_ROOM(r->pool, r->row, r->rows, r->row_room);
        r->row[r->rows++] = (struct row){.library = kind == AT_GEMM || text[0] == 'b',
                                         .kind = (int8_t)kind,
                                         .call = (int8_t)call_of(text),
                                         .op = sqlite3_column_int64(st, 0),
                                         .process = sqlite3_column_int64(st, 1),
                                         .thread = sqlite3_column_int64(st, 2),
                                         .name = sqlite3_column_int(st, 3),
                                         .device = sql_i32(st, 5),
                                         .start_ns = sqlite3_column_int64(st, 6),
                                         .end_ns = sqlite3_column_int64(st, 7),
                                         .shape = -1};
    }
    sqlite3_finalize(st);
    return rc;
}

/* Rows of the tables of details come in the same order: the row is the one behind the last found, or near it. */
static struct row *row_find(const struct rows *r, int64_t op, int32_t *last) {
    int32_t lo = 0, hi = r->rows;
    for (int32_t i = *last, n = 0; i < r->rows && n < 64; i++, n++)
        if (r->row[i].op == op) return &r->row[*last = i];
    while (lo < hi) {
        int32_t mid = lo + (hi - lo) / 2;
        if (r->row[mid].op < op)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo == r->rows || r->row[lo].op != op) return NULL;
    return &r->row[*last = lo];
}

/* ---- what decides number formats
 * -------------------------------------------------------------------------------------- */
struct machines {
    sqlite3_stmt *st;
    sqlite3_stmt *beside; /* GEMM_BESIDE; NULL until there is a product */
    int64_t process;
    int32_t device;
    struct cost_machine machine;
    struct { /* the last text of a column, and what it means */
        char text[16];
        uint32_t value;
    } memo[32];
};

/* As sql_enum; most rows have what the row before had. */
static uint32_t enum_of(struct machines *m, sqlite3_stmt *st, int column, enum cost_enum of) {
    const char *text = (const char *)sqlite3_column_text(st, column);
    if (!text) return 0;
    if (*text && !strcmp(m->memo[column].text, text)) return m->memo[column].value;
    uint32_t value = cost_enum_value(of, text);
    if (strlen(text) < sizeof m->memo[column].text) {
        strcpy(m->memo[column].text, text);
        m->memo[column].value = value;
    }
    return value;
}

static const struct cost_machine *machine_of(struct machines *m, int64_t process, int32_t device) {
    if (process == m->process && device == m->device) return &m->machine;
    m->process = process;
    m->device = device;
    m->machine = (struct cost_machine){.cc_major = ACCT_NULL_I32};
    sqlite3_bind_int64(m->st, 1, process);
    sqlite3_bind_int(m->st, 2, device);
    if (sqlite3_step(m->st) == SQLITE_ROW) {
        m->machine.tf32_override_off = sqlite3_column_int(m->st, 0);
        m->machine.cc_major = sql_i32(m->st, 1);
        m->machine.tf32_override_on = sqlite3_column_int(m->st, 2);
    }
    sqlite3_reset(m->st);
    return &m->machine;
}

static int machines_open(struct machines *m, sqlite3 *db, char *err, size_t err_len) {
    *m = (struct machines){.process = -1, .device = -1};
    return sql_prepare(
        db, &m->st,
        "SELECT CASE WHEN json_valid(p.environment) THEN "
        "CAST(json_extract(p.environment, '$.NVIDIA_TF32_OVERRIDE') AS TEXT) = '0' ELSE 0 END, d.cc_major, "
        "CASE WHEN json_valid(p.environment) THEN "
        "CAST(json_extract(p.environment, '$.NVIDIA_TF32_OVERRIDE') AS TEXT) = '1' ELSE 0 END "
        "FROM process p LEFT JOIN device d ON d.process = p.id AND d.ordinal = ?2 WHERE p.id = ?1",
        err, err_len);
}

/* ---- detail tables
 * --------------------------------------------------------------------------------------------------- */
typedef void read_detail(struct rows *r, struct row *row, sqlite3_stmt *st, struct machines *m);

static uint32_t sql_u32(sqlite3_stmt *st, int column) {
    return (uint32_t)sqlite3_column_int64(st, column);
}

static int64_t or_one(int64_t v) {
    return v == ACCT_NULL_I64 ? 1 : v;
}

static uint64_t sql_address(sqlite3_stmt *st, int column) {
    return (uint64_t)sqlite3_column_int64(st, column);
}

/* What makes a call's shape; the first word tells whose the rest is. */
enum { DETAIL_GEMM, DETAIL_COPY, DETAIL_MEMSET, DETAIL_LAUNCH };
struct gemm_key {
    int64_t what;
    struct cost_gemm gemm;
    struct cost_machine machine;
    uint64_t workspace;
    int64_t workspace_bytes;
};

/* What only cuBLASLt has. */
static void take_gemm_beside(sqlite3_stmt *st, struct cost_gemm *g) {
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

#define GEMM_BESIDE                                                                                                  \
    "SELECT d, ldd, stride_d, d_type, epilogue, bias, bias_length, stride_bias, bias_type, aux, ldaux, stride_aux, " \
    "aux_type, a_scale, b_scale, c_scale, d_scale, aux_scale, d_out_scale, amax_d, amax_aux, a_scale_mode, "         \
    "b_scale_mode, d_out_scale_mode FROM gemm WHERE id = ?"
/* 0: a product has nothing of it, which is then not read. */
#define GEMM_HAS_BESIDE                                                                                            \
    "epilogue IS NOT NULL OR (d + bias + aux + a_scale + b_scale + c_scale + d_scale + aux_scale + d_out_scale + " \
    "amax_d + amax_aux) IS NOT 0"

static void read_gemm_beside(struct rows *r, struct machines *m, int64_t id, struct cost_gemm *g) {
    sqlite3_bind_int64(m->beside, 1, id);
    if (sqlite3_step(m->beside) == SQLITE_ROW)
        take_gemm_beside(m->beside, g);
    else
        r->failed = 1;
    sqlite3_reset(m->beside);
}

static void make_gemm(struct rows *r, const struct gemm_key *k) {
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
    shape_add_call(r, &c, cost_gemm_dtype(g, &k->machine));
    shape_add_workspace(r, k->workspace, k->workspace_bytes);
}

static void read_gemm(struct rows *r, struct row *row, sqlite3_stmt *st, struct machines *m) {
    struct gemm_key key;
    struct cost_gemm *g = &key.gemm;
    memset(&key, 0, sizeof key); /* gaps too */
    key.what = DETAIL_GEMM;
    key.machine = *machine_of(m, row->process, row->device);
    g->trans_a = enum_of(m, st, 1, COST_OF_trans);
    g->trans_b = enum_of(m, st, 2, COST_OF_trans);
    g->m = sql_i64(st, 3);
    g->n = sql_i64(st, 4);
    g->k = sql_i64(st, 5);
    g->batch = or_one(sql_i64(st, 6));
    g->a = sql_address(st, 7);
    g->b = sql_address(st, 8);
    g->c = sql_address(st, 9);
    g->lda = sql_i64(st, 10);
    g->ldb = sql_i64(st, 11);
    g->ldc = sql_i64(st, 12);
    g->stride_a = sql_i64(st, 13);
    g->stride_b = sql_i64(st, 14);
    g->stride_c = sql_i64(st, 15);
    g->a_type = enum_of(m, st, 16, COST_OF_dtype);
    g->b_type = enum_of(m, st, 17, COST_OF_dtype);
    g->c_type = enum_of(m, st, 18, COST_OF_dtype);
    g->compute = enum_of(m, st, 19, COST_OF_compute);
    g->alpha = enum_of(m, st, 20, COST_OF_scalar);
    g->beta = enum_of(m, st, 21, COST_OF_scalar);
    g->pointer_array = (uint32_t)sqlite3_column_int(st, 22);
    g->math_mode = sql_i32(st, 23);
    key.workspace = sql_address(st, 24);
    key.workspace_bytes = sql_i64(st, 25);
    g->ldd = g->stride_d = g->bias_length = g->stride_bias = g->ldaux = g->stride_aux = ACCT_NULL_I64;
    if (sqlite3_column_int(st, 26)) read_gemm_beside(r, m, sqlite3_column_int64(st, 27), g);
    if (shape_give_known(r, row, &key, sizeof key)) return;
    make_gemm(r, &key);
    shape_keep(r);
    shape_give(r, row);
}

/* Writes and reads nothing: scal by 0, geam with two factors 0. */
static int only_clears(const struct cost *c) {
    for (int i = 0; i < c->operands; i++)
        if (c->operand[i].mode != COST_W) return 0;
    return c->operands > 0;
}

static void read_blas(struct rows *r, struct row *row, sqlite3_stmt *st, struct machines *m) {
    (void)m;
    struct cost_blas b = {.routine = (const char *)sqlite3_column_text(st, 1),
                          .type = sql_enum(st, 2, COST_OF_dtype),
                          .m = sql_i64(st, 3),
                          .n = sql_i64(st, 4),
                          .k = sql_i64(st, 5),
                          .kl = sql_i64(st, 6),
                          .ku = sql_i64(st, 7),
                          .batch = or_one(sql_i64(st, 8)),
                          .a = (uint64_t)sqlite3_column_int64(st, 9),
                          .b = (uint64_t)sqlite3_column_int64(st, 10),
                          .c = (uint64_t)sqlite3_column_int64(st, 11),
                          .lda = sql_i64(st, 12),
                          .ldb = sql_i64(st, 13),
                          .ldc = sql_i64(st, 14),
                          .stride_a = sql_i64(st, 15),
                          .stride_b = sql_i64(st, 16),
                          .stride_c = sql_i64(st, 17),
                          .side = sql_enum(st, 18, COST_OF_side),
                          .uplo = sql_enum(st, 19, COST_OF_uplo),
                          .trans_a = sql_enum(st, 20, COST_OF_trans),
                          .trans_b = sql_enum(st, 21, COST_OF_trans),
                          .alpha = sql_enum(st, 22, COST_OF_scalar),
                          .beta = sql_enum(st, 23, COST_OF_scalar),
                          .pointer_array = (uint32_t)sqlite3_column_int(st, 24),
                          .a_type = sql_enum(st, 25, COST_OF_dtype),
                          .b_type = sql_enum(st, 26, COST_OF_dtype)};
    struct cost c;
    cost_of_blas(&b, &c);
    struct row_shape *s = shape_begin(r);
    if (c.role == COST_PRODUCT) s->kind = AT_GEMM;
    if (c.role == COST_COPY) s->kind = AT_D2D;
    if (c.role == COST_KERNEL && only_clears(&c)) s->kind = AT_MEMSET;
    s->m = b.m;
    s->n = b.n;
    s->k = b.k;
    s->batch = b.batch;
    s->bits_a = s->bits_b = (int8_t)cost_type_bits(b.type);
    s->idle = c.role == COST_PRODUCT && c.flops == 0;
    shape_add_call(r, &c, cost_type_name(b.type));
    shape_give(r, row);
}

struct copy_key {
    int64_t what, direction;
    struct cost_copy copy;
};

static void read_copy(struct rows *r, struct row *row, sqlite3_stmt *st, struct machines *m) {
    (void)m;
    uint32_t direction = sql_enum(st, 4, COST_OF_direction);
    struct copy_key key = {DETAIL_COPY,
                           direction ? direction : ACCT_direction_DEFAULT,
                           {.dst = sql_address(st, 1),
                            .src = sql_address(st, 2),
                            .bytes = sql_i64(st, 3),
                            .width_bytes = sql_i64(st, 5),
                            .height = sql_i64(st, 6),
                            .dst_pitch_bytes = sql_i64(st, 7),
                            .src_pitch_bytes = sql_i64(st, 8)}};
    struct cost c;
    if (shape_give_known(r, row, &key, sizeof key)) return;
    cost_of_copy(&key.copy, &c);
    shape_begin(r)->direction = (uint8_t)key.direction;
    shape_add_call(r, &c, NULL);
    shape_keep(r);
    shape_give(r, row);
}

struct memset_key {
    int64_t what;
    struct cost_memset set;
};

static void read_memset(struct rows *r, struct row *row, sqlite3_stmt *st, struct machines *m) {
    (void)m;
    struct memset_key key = {DETAIL_MEMSET,
                             {.dst = sql_address(st, 1),
                              .bytes = sql_i64(st, 2),
                              .width_bytes = sql_i64(st, 3),
                              .height = sql_i64(st, 4),
                              .pitch_bytes = sql_i64(st, 5)}};
    struct cost c;
    if (shape_give_known(r, row, &key, sizeof key)) return;
    cost_of_memset(&key.set, &c);
    shape_begin(r);
    shape_add_call(r, &c, NULL);
    shape_keep(r);
    shape_give(r, row);
}

static void read_workspace(struct rows *r, struct row *row, sqlite3_stmt *st, struct machines *m) {
    (void)m;
    shape_begin(r);
    shape_add_workspace(r, sql_address(st, 1), sql_i64(st, 2));
    shape_give(r, row);
}

/* A collective reads what it sends and writes what it receives. Where both lie in one place: the part that the rank
 * keeps as it is is read only (all_gather), what is summed up is modified (all_reduce). */
static void read_collective(struct rows *r, struct row *row, sqlite3_stmt *st, struct machines *m) {
    (void)m;
    struct cost_collective y = {.operation = (const char *)sqlite3_column_text(st, 1),
                                .type = (const char *)sqlite3_column_text(st, 3),
                                .count = sql_i64(st, 2),
                                .send = sql_address(st, 4),
                                .receive = sql_address(st, 5),
                                .ranks = sql_i64(st, 6),
                                .rank = sql_i64(st, 7),
                                .root = sql_i64(st, 8)};
    struct cost c;
    cost_of_collective(&y, &c);
    shape_begin(r);
    shape_add_call(r, &c, NULL);
    shape_give(r, row);
}

/* A pointer of its own is slot "2"; one inside a struct "2+16"; a further piece of what it reaches "2/1"; what
 * lies behind pointers in memory "*". */
static int16_t launch_slot(struct rows *r, const struct launch_buffer *b) {
    char text[64];
    if (b->param < 0) return rows_slot(r, "*");
    if (!b->offset && !b->piece) return (int16_t)(b->param & 0x7fff);
    int n = snprintf(text, sizeof text, "%d", b->param);
    if (b->offset) n += snprintf(text + n, sizeof text - (size_t)n, "+%d", b->offset);
    if (b->piece) snprintf(text + n, sizeof text - (size_t)n, "/%d", b->piece);
    return rows_slot(r, text);
}

/* Launches that share a price share its row in rows.cost. */
static void add_price(struct rows *r, struct row_shape *s, const struct launch_call *call) {
    struct launch_price *p = launch_price_of(r->prices, call, r->err, r->err_len);
    if (!p) {
        r->failed = 1;
        return;
    }
    if (p->cost < 0) {
        POOL_ROOM(r->pool, r->cost, r->costs, r->cost_room);
        r->cost[r->costs] = (struct at_cost){.flops = p->flops,
                                             .flops_most = p->flops_most,
                                             .matmul_flops = p->matmul_flops,
                                             .matmul_flops_most = p->matmul_flops_most,
                                             .integer_ops = p->integer_ops,
                                             .bytes_read = p->bytes_read,
                                             .bytes_written = p->bytes_written,
                                             .price = p->id,
                                             .dtype = p->dtype,
                                             .grade = (int8_t)p->grade,
                                             .matmul = p->matmul_flops_most != 0 && p->matmul_flops != COST_UNKNOWN};
        p->cost = r->costs++;
    }
    s->cost = p->cost;
}

static void make_launch(struct rows *r, const struct launch_call *call) {
    const struct launch_buffer *b;
    int n;
    if (launch_sets_of(r->sets, call, &b, &n)) longjmp(r->pool->failed, 1);
    add_price(r, shape_begin(r), call);
    for (int i = 0; i < n; i++)
        shape_add_operand(r, (struct row_operand){.address = b[i].address,
                                                  .pointer = b[i].pointer,
                                                  .bytes = b[i].bytes,
                                                  .slot = launch_slot(r, &b[i]),
                                                  .mode = (int8_t)b[i].mode,
                                                  .partial = (uint8_t)b[i].partial,
                                                  .maybe = (uint8_t)b[i].maybe});
}

struct launch_key {
    int64_t what, kernel;
    uint32_t grid[3], block[3], dynamic_shared, arg_bytes;
    unsigned char args[4096]; /* without what nothing depends on */
};

/* Bytes of the key; 0: too many. */
static size_t key_of_launch(struct rows *r, const struct launch_call *call, struct launch_key *key) {
    if (call->arg_bytes > sizeof key->args) return 0;
    key->what = DETAIL_LAUNCH;
    key->kernel = call->kernel;
    memcpy(key->grid, call->grid, sizeof key->grid);
    memcpy(key->block, call->block, sizeof key->block);
    key->dynamic_shared = call->dynamic_shared;
    key->arg_bytes = call->args ? (uint32_t)call->arg_bytes : UINT32_MAX;
    if (call->args) launch_sets_mask(r->sets, call, key->args);
    return offsetof(struct launch_key, args) + (call->args ? call->arg_bytes : 0);
}

static void read_launch(struct rows *r, struct row *row, sqlite3_stmt *st, struct machines *m) {
    (void)m;
    struct launch_call call = {.kernel = sqlite3_column_int64(st, 1),
                               .grid = {sql_u32(st, 2), sql_u32(st, 3), sql_u32(st, 4)},
                               .block = {sql_u32(st, 5), sql_u32(st, 6), sql_u32(st, 7)},
                               .dynamic_shared = sql_u32(st, 9),
                               .args = sqlite3_column_blob(st, 8),
                               .arg_bytes = (size_t)sqlite3_column_bytes(st, 8)};
    struct launch_key key;
    size_t bytes = key_of_launch(r, &call, &key);
    if (call.kernel) row->name = ROW_KERNEL_NAME + (int32_t)(call.kernel & (ROW_KERNEL_NAME - 1));
    if (bytes && shape_give_known(r, row, &key, bytes)) return;
    make_launch(r, &call);
    if (bytes) shape_keep(r);
    shape_give(r, row);
}

/* Sets of a launch that the recorded tables already tell, and operands that an event's fields do not (a bias). */
static void read_buffer(struct rows *r, struct row *row, sqlite3_stmt *st, struct machines *m) {
    (void)m;
    const char *mode = (const char *)sqlite3_column_text(st, 4);
    int code = !mode || *mode == '?' ? AT_MAYBE : !strcmp(mode, "rw") ? AT_RW : *mode == 'w' ? AT_W : AT_R;
    int64_t bytes = sql_i64(st, 3);
    shape_begin(r);
    shape_add_operand(r, (struct row_operand){.address = sql_address(st, 2),
                                              .bytes = bytes < 0 ? AT_UNKNOWN_BYTES : bytes,
                                              .slot = rows_slot(r, (const char *)sqlite3_column_text(st, 1)),
                                              .mode = (int8_t)code,
                                              .kept = ROW_TOLD});
    shape_give(r, row);
}

#define GEMM_COLUMNS                                                                                               \
    "SELECT op, trans_a, trans_b, m, n, k, batch, a, b, c, lda, ldb, ldc, stride_a, stride_b, stride_c, a_type, "  \
    "b_type, c_type, compute, alpha, beta, pointer_array, math_mode, workspace, workspace_bytes, " GEMM_HAS_BESIDE \
    ", id FROM gemm ORDER BY "
static const char gemm_by_op[] = GEMM_COLUMNS "op, id";

static const struct detail {
    const char *table, *sql;
    read_detail *read;
} details[] = {
    {"gemm", GEMM_COLUMNS "id", read_gemm},
    {"blas",
     "SELECT op, routine, type, m, n, k, kl, ku, batch, a, b, c, lda, ldb, ldc, stride_a, stride_b, stride_c, side, "
     "uplo, "
     "trans_a, trans_b, alpha, beta, pointer_array, a_type, b_type FROM blas ORDER BY op",
     read_blas},
    {"copy",
     "SELECT op, dst, src, bytes, direction, width_bytes, height, dst_pitch_bytes, src_pitch_bytes FROM copy ORDER BY "
     "op",
     read_copy},
    {"memset", "SELECT op, dst, bytes, width_bytes, height, pitch_bytes FROM memset ORDER BY op", read_memset},
    {"workspace", "SELECT op, address, bytes FROM workspace ORDER BY op", read_workspace},
    {"launch",
     "SELECT op, kernel, grid_x, grid_y, grid_z, block_x, block_y, block_z, args, "
     "dynamic_shared_bytes FROM launch ORDER BY op",
     read_launch},
    {"collective", "SELECT op, operation, count, type, send, receive, ranks, rank, root FROM collective ORDER BY op",
     read_collective},
    /* numbered slots in the order of their numbers */
    {"op_buffer",
     "SELECT op, slot, address, bytes, mode FROM op_buffer WHERE address IS NOT NULL "
     "ORDER BY op, length(slot), slot",
     read_buffer},
};

/* The further groups of a grouped product have ids of their own: then rows do not come in the order of ops. */
static int is_grouped(sqlite3 *db) {
    sqlite3_stmt *st;
    if (sqlite3_prepare_v2(db, "SELECT EXISTS(SELECT 1 FROM gemm WHERE id <> op)", -1, &st, NULL)) return 0;
    int yes = sqlite3_step(st) == SQLITE_ROW && sqlite3_column_int(st, 0);
    sqlite3_finalize(st);
    return yes;
}

static int read_details(struct rows *r, sqlite3 *db, struct machines *m, char *err, size_t err_len) {
    for (size_t i = 0; i < sizeof details / sizeof *details; i++) {
        sqlite3_stmt *st;
        if (!sql_has_table(db, details[i].table)) continue; /* a trace in which no such call occurs may lack it */
        int grouped = details[i].read == read_gemm && is_grouped(db);
        if (sql_prepare(db, &st, grouped ? gemm_by_op : details[i].sql, err, err_len)) return -1;
        if (details[i].read == read_gemm && sql_prepare(db, &m->beside, GEMM_BESIDE, err, err_len)) {
            sqlite3_finalize(st);
            return -1;
        }
        memset(m->memo, 0, sizeof m->memo);
        int rc;
        int32_t last = 0;
        while ((rc = sql_row(db, st, err, err_len)) > 0) {
            struct row *row = row_find(r, sqlite3_column_int64(st, 0), &last);
            if (row) details[i].read(r, row, st, m);
        }
        sqlite3_finalize(st);
        if (rc || r->failed) return -1;
    }
    return 0;
}

/* ---- allocations
 * --------------------------------------------------------------------------------------------------------- */
static int home_of(const char *memory) {
    if (!memory || !strcmp(memory, "device") || !strcmp(memory, "async") || !strcmp(memory, "managed"))
        return AT_DEVICE;
    return strcmp(memory, "array") ? AT_HOST : AT_OPAQUE;
}

static int read_allocs(struct rows *r, sqlite3 *db, char *err, size_t err_len) {
    sqlite3_stmt *st;
    if (sql_prepare(db, &st,
                    "SELECT a.id, a.process, a.address, a.bytes, a.memory, a.alloc_ns, a.free_ns, a.free_op, "
                    "coalesce(api.library LIKE '%cublas%', 0), op.thread, op.start_ns "
                    "FROM alloc a LEFT JOIN op ON op.id = a.id LEFT JOIN api ON api.id = op.api ORDER BY a.id",
                    err, err_len))
        return -1;
    int rc;
    while ((rc = sql_row(db, st, err, err_len)) > 0) {
        POOL_ROOM(r->pool, r->alloc, r->allocs, r->alloc_room);
        r->alloc[r->allocs++] = (struct row_alloc){.id = sqlite3_column_int64(st, 0),
                                                   .process = sqlite3_column_int64(st, 1),
                                                   .address = sqlite3_column_int64(st, 2),
                                                   .bytes = sqlite3_column_int64(st, 3),
                                                   .home = (int8_t)home_of((const char *)sqlite3_column_text(st, 4)),
                                                   .alloc_ns = sqlite3_column_int64(st, 5),
                                                   .free_ns = sql_i64(st, 6),
                                                   .free_op = sql_i64(st, 7),
                                                   .of_library = (int8_t)sqlite3_column_int(st, 8),
                                                   .thread = sql_i64(st, 9),
                                                   .start_ns = sql_i64(st, 10)};
    }
    sqlite3_finalize(st);
    return rc;
}

struct library_call {
    int64_t thread, start_ns, end_ns;
};

static int call_order(const void *a, const void *b) {
    const struct library_call *x = a, *y = b;
    if (x->thread != y->thread) return x->thread < y->thread ? -1 : 1;
    return (x->start_ns > y->start_ns) - (x->start_ns < y->start_ns);
}

/* An allocation that a thread made while it was inside a BLAS call belongs to the library. */
static void find_library_allocs(struct rows *r) {
    int32_t n = 0;
    struct library_call *call = POOL_NEW(r->pool, struct library_call, r->rows);
    for (const struct row *w = r->row; w < r->row + r->rows; w++)
        if (w->library) call[n++] = (struct library_call){w->thread, w->start_ns, w->end_ns};
    if (n) qsort(call, (size_t)n, sizeof *call, call_order);
    for (struct row_alloc *a = r->alloc; a < r->alloc + r->allocs; a++) {
        struct library_call want = {a->thread, a->start_ns, 0};
        int32_t lo = 0, hi = n;
        while (lo < hi) {
            int32_t mid = lo + (hi - lo) / 2;
            if (call_order(&call[mid], &want) <= 0)
                lo = mid + 1;
            else
                hi = mid;
        }
        if (lo && call[lo - 1].thread == a->thread && a->alloc_ns <= call[lo - 1].end_ns) a->of_library = 1;
    }
    pool_give(r->pool, call);
}

int rows_read(struct rows *r, sqlite3 *db, char *err, size_t err_len) {
    struct machines m;
    r->err = err;
    r->err_len = err_len;
    if (read_calls(r, db, err, err_len) || read_allocs(r, db, err, err_len) || machines_open(&m, db, err, err_len))
        return -1;
    find_library_allocs(r);
    int rc = read_details(r, db, &m, err, err_len);
    sqlite3_finalize(m.st);
    sqlite3_finalize(m.beside);
    return rc;
}
