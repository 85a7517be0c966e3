/* Reads the tables with the details of calls, but gemm: operands and costs, shared by calls that are alike. */
#include "analyzer/attr_rows.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/attr_gemms.h"
#include "analyzer/attr_scan.h"
#include "analyzer/attr_sql.h"

static int64_t or_one(int64_t v) {
    return v == ACCT_NULL_I64 ? 1 : v;
}

/* What makes a call's shape; the first word tells whose the rest is. */
enum { DETAIL_COPY, DETAIL_MEMSET, DETAIL_LAUNCH };

/* Writes and reads nothing: scal by 0, geam with two factors 0. */
static int only_clears(const struct cost *c) {
    for (int i = 0; i < c->operands; i++)
        if (c->operand[i].mode != COST_W) return 0;
    return c->operands > 0;
}

static void read_blas(struct rows *r, struct row *row, sqlite3_value **v) {
    struct cost_blas b = {.routine = scan_text(v[1]),
                          .type = scan_enum(v[2], COST_OF_dtype),
                          .m = scan_i64(v[3]),
                          .n = scan_i64(v[4]),
                          .k = scan_i64(v[5]),
                          .kl = scan_i64(v[6]),
                          .ku = scan_i64(v[7]),
                          .batch = or_one(scan_i64(v[8])),
                          .a = scan_address(v[9]),
                          .b = scan_address(v[10]),
                          .c = scan_address(v[11]),
                          .lda = scan_i64(v[12]),
                          .ldb = scan_i64(v[13]),
                          .ldc = scan_i64(v[14]),
                          .stride_a = scan_i64(v[15]),
                          .stride_b = scan_i64(v[16]),
                          .stride_c = scan_i64(v[17]),
                          .side = scan_enum(v[18], COST_OF_side),
                          .uplo = scan_enum(v[19], COST_OF_uplo),
                          .trans_a = scan_enum(v[20], COST_OF_trans),
                          .trans_b = scan_enum(v[21], COST_OF_trans),
                          .alpha = scan_enum(v[22], COST_OF_scalar),
                          .beta = scan_enum(v[23], COST_OF_scalar),
                          .pointer_array = scan_u32(v[24]),
                          .a_type = scan_enum(v[25], COST_OF_dtype),
                          .b_type = scan_enum(v[26], COST_OF_dtype)};
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

static void read_copy(struct rows *r, struct row *row, sqlite3_value **v) {
    uint32_t direction = scan_enum(v[4], COST_OF_direction);
    struct copy_key key = {DETAIL_COPY,
                           direction ? direction : ACCT_direction_DEFAULT,
                           {.dst = scan_address(v[1]),
                            .src = scan_address(v[2]),
                            .bytes = scan_i64(v[3]),
                            .width_bytes = scan_i64(v[5]),
                            .height = scan_i64(v[6]),
                            .dst_pitch_bytes = scan_i64(v[7]),
                            .src_pitch_bytes = scan_i64(v[8])}};
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

static void read_memset(struct rows *r, struct row *row, sqlite3_value **v) {
    struct memset_key key = {DETAIL_MEMSET,
                             {.dst = scan_address(v[1]),
                              .bytes = scan_i64(v[2]),
                              .width_bytes = scan_i64(v[3]),
                              .height = scan_i64(v[4]),
                              .pitch_bytes = scan_i64(v[5])}};
    struct cost c;
    if (shape_give_known(r, row, &key, sizeof key)) return;
    cost_of_memset(&key.set, &c);
    shape_begin(r);
    shape_add_call(r, &c, NULL);
    shape_keep(r);
    shape_give(r, row);
}

static void read_workspace(struct rows *r, struct row *row, sqlite3_value **v) {
    shape_begin(r);
    shape_add_workspace(r, scan_address(v[1]), scan_i64(v[2]));
    shape_give(r, row);
}

/* A collective reads what it sends and writes what it receives. Where both lie in one place: the part that the rank
 * keeps as it is is read only (all_gather), what is summed up is modified (all_reduce). */
static void read_collective(struct rows *r, struct row *row, sqlite3_value **v) {
    struct cost_collective y = {.operation = scan_text(v[1]),
                                .type = scan_text(v[3]),
                                .count = scan_i64(v[2]),
                                .send = scan_address(v[4]),
                                .receive = scan_address(v[5]),
                                .ranks = scan_i64(v[6]),
                                .rank = scan_i64(v[7]),
                                .root = scan_i64(v[8])};
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

static void read_launch(struct rows *r, struct row *row, sqlite3_value **v) {
    struct launch_call call = {.kernel = sqlite3_value_int64(v[1]),
                               .grid = {scan_u32(v[2]), scan_u32(v[3]), scan_u32(v[4])},
                               .block = {scan_u32(v[5]), scan_u32(v[6]), scan_u32(v[7])},
                               .dynamic_shared = scan_u32(v[9]),
                               .args = sqlite3_value_blob(v[8]),
                               .arg_bytes = (size_t)sqlite3_value_bytes(v[8])};
    struct launch_key key;
    size_t bytes = key_of_launch(r, &call, &key);
    if (call.kernel) row->name = ROW_KERNEL_NAME + (int32_t)(call.kernel & (ROW_KERNEL_NAME - 1));
    if (bytes && shape_give_known(r, row, &key, bytes)) return;
    make_launch(r, &call);
    if (bytes) shape_keep(r);
    shape_give(r, row);
}

/* ---- the tables ---------------------------------------------------------------------------------------------------
 */
typedef void read_detail(struct rows *r, struct row *row, sqlite3_value **v);

static const struct detail {
    const char *table, *columns; /* the first: op */
    read_detail *read;
} details[] = {
    {"blas",
     "op, routine, type, m, n, k, kl, ku, batch, a, b, c, lda, ldb, ldc, stride_a, stride_b, stride_c, side, uplo, "
     "trans_a, trans_b, alpha, beta, pointer_array, a_type, b_type",
     read_blas},
    {"copy", "op, dst, src, bytes, direction, width_bytes, height, dst_pitch_bytes, src_pitch_bytes", read_copy},
    {"memset", "op, dst, bytes, width_bytes, height, pitch_bytes", read_memset},
    {"workspace", "op, address, bytes", read_workspace},
    {"launch", "op, kernel, grid_x, grid_y, grid_z, block_x, block_y, block_z, args, dynamic_shared_bytes",
     read_launch},
    {"collective", "op, operation, count, type, send, receive, ranks, rank, root", read_collective},
};

struct detail_scan {
    struct rows *r;
    read_detail *read;
    int32_t last;
};

static void take_detail(void *context, sqlite3_value **v) {
    struct detail_scan *s = context;
    struct row *row = row_find(s->r, sqlite3_value_int64(v[0]), &s->last);
    if (row) s->read(s->r, row, v);
}

static int read_table(struct rows *r, sqlite3 *db, const struct detail *d, char *err, size_t err_len) {
    struct detail_scan s = {.r = r, .read = d->read};
    char from[64];
    if (!sql_has_table(db, d->table)) return 0; /* a trace in which no such call occurs may lack it */
    snprintf(from, sizeof from, "%s NOT INDEXED", d->table);
    return scan_rows(r->pool, db, d->columns, from, take_detail, &s, err, err_len) || r->failed ? -1 : 0;
}

/* Sets of a launch that the recorded tables already tell, and operands that an event's fields do not (a bias). */
static void take_buffer(struct rows *r, struct row *row, sqlite3_stmt *st) {
    const char *mode = (const char *)sqlite3_column_text(st, 4);
    int code = !mode || *mode == '?' ? AT_MAYBE : !strcmp(mode, "rw") ? AT_RW : *mode == 'w' ? AT_W : AT_R;
    int64_t bytes = sql_i64(st, 3);
    shape_begin(r);
    shape_add_operand(r, (struct row_operand){.address = (uint64_t)sqlite3_column_int64(st, 2),
                                              .bytes = bytes < 0 ? AT_UNKNOWN_BYTES : bytes,
                                              .slot = rows_slot(r, (const char *)sqlite3_column_text(st, 1)),
                                              .mode = (int8_t)code,
                                              .kept = ROW_TOLD});
    shape_give(r, row);
}

/* Numbered slots in the order of their numbers. */
static int read_buffers(struct rows *r, sqlite3 *db, char *err, size_t err_len) {
    sqlite3_stmt *st;
    int rc;
    int32_t last = 0;
    if (sql_prepare(db, &st,
                    "SELECT op, slot, address, bytes, mode FROM op_buffer WHERE address IS NOT NULL "
                    "ORDER BY op, length(slot), slot",
                    err, err_len))
        return -1;
    while ((rc = sql_row(db, st, err, err_len)) > 0) {
        struct row *row = row_find(r, sqlite3_column_int64(st, 0), &last);
        if (row) take_buffer(r, row, st);
    }
    sqlite3_finalize(st);
    return rc;
}

/* Products come from their thread, and what the trace's writer told of an op behind what its event tells. */
int rows_read_details(struct rows *r, sqlite3 *db, struct gemms *gemms, char *err, size_t err_len) {
    struct machines m;
    for (size_t i = 0; i < sizeof details / sizeof *details; i++)
        if (read_table(r, db, &details[i], err, err_len)) return -1;
    if (machines_open(&m, r->pool, db, err, err_len)) return -1;
    int rc = sql_has_table(db, "gemm") ? gemms_give(gemms, r, db, &m, err, err_len) : 0;
    machines_close(&m);
    return rc || read_buffers(r, db, err, err_len) ? -1 : 0;
}
