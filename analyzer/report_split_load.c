/* What the sweep of report_split.c goes over: the device's activities with their roofs, the host's calls. */
#include "analyzer/report_split.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analyzer/attr_sql.h"

/* ---- sorting: what comes by time already is left as it is ---- */

static int item_order(const void *a, const void *b) {
    const struct split_item *x = a, *y = b;
    return (x->start_ns > y->start_ns) - (x->start_ns < y->start_ns);
}

static int call_order(const void *a, const void *b) {
    const struct split_call *x = a, *y = b;
    if (x->thread != y->thread) return x->thread < y->thread ? -1 : 1;
    return (x->start_ns > y->start_ns) - (x->start_ns < y->start_ns);
}

static void sort(void *array, int64_t n, size_t size, int (*order)(const void *, const void *)) {
    char *at = array;
    for (int64_t i = 1; i < n; i++)
        if (order(at + (size_t)(i - 1) * size, at + (size_t)i * size) > 0) {
            qsort(array, (size_t)n, size, order);
            return;
        }
}

/* ---- the device ---- */

/* Columns of both queries: the stretch, its op's time and cost. */
enum {
    C_START,
    C_END,
    C_KIND, /* of the op; of no op: of the activity */
    C_OP,
    C_BUSY,
    C_BYTES_MOVED,
    C_ACT,
    C_THREAD,
    C_HOST_START,
    C_HOST_END,
    C_COST, /* the op has a row in op_cost */
    C_STEP,
    C_PHASE,
    C_MATMUL,
    C_DTYPE,
    C_FLOPS,
    C_MATMUL_FLOPS,
    C_BYTES,
    C_INTEGER,
    C_KERNEL,
    C_COPY_KIND,
    C_GRAPH,
    C_NAME
};

#define OP_COLUMNS                                                                                                \
    "op.bytes, op.act, op.thread, op.start_ns, op.end_ns, c.op IS NOT NULL, c.step, c.phase, c.matmul, c.dtype, " \
    "c.flops, c.matmul_flops, c.bytes_read + c.bytes_written, c.integer_ops, "

/* Kernels of NCCL (and of its stand-in) by their names; the device's records have them mangled. */
#define COMMUNICATES(name) "(" name " LIKE '%nccl%')"
/* A copy between devices, as activity.copy_kind has it. */
#define PEER \
    "CASE WHEN op.kind = 'copy' THEN (SELECT 10 FROM copy x WHERE x.op = t.op AND x.dst_device <> x.src_device) END"

static const char whole_ops[] = "SELECT t.start_ns, t.end_ns, op.kind, t.op, t.busy_ns, " OP_COLUMNS "%s, " PEER
                                ", 0, NULL FROM op_time t JOIN op ON op.id = t.op LEFT JOIN op_cost c ON c.op "
                                "= t.op %s WHERE t.end_ns > ?1 "
                                "AND t.start_ns < ?2%s";
#define WITHOUT_PIECES " AND t.op NOT IN (SELECT op FROM op_piece WHERE op IS NOT NULL)"
static const char pieces[] =
    "SELECT a.start_ns, a.end_ns, coalesce(op.kind, a.kind), p.op, t.busy_ns, " OP_COLUMNS COMMUNICATES(
        "a.name") ", a.copy_kind, a.graph_node > 0, a.name FROM op_piece p CROSS JOIN activity a ON a.id = p.activity "
                  "LEFT JOIN op ON "
                  "op.id = p.op LEFT JOIN op_time t ON t.op = p.op LEFT JOIN op_cost c ON c.op = p.op WHERE a.end_ns > "
                  "?1 AND "
                  "a.start_ns < ?2";

struct loader {
    struct report *r;
    struct split_load *out;
    int tiny;           /* kernels can be shorter than a launch: not in a model, nor on processors */
    int64_t last_piece; /* op of the piece before */
};

static double real_or_nan(sqlite3_stmt *st, int column) {
    return sqlite3_column_type(st, column) == SQLITE_NULL ? NAN : sqlite3_column_double(st, column);
}

static int text_is(sqlite3_stmt *st, int column, const char *text) {
    const char *value = (const char *)sqlite3_column_text(st, column);
    return value && !strcmp(value, text);
}

/* CUpti_ActivityMemcpyKind. */
static enum split_detail_id copy_of_kind(int64_t kind) {
    static const enum split_detail_id of[] = {[1] = SPLIT_H2D, [2] = SPLIT_D2H, [8] = SPLIT_D2D, [10] = SPLIT_PEER};
    return kind > 0 && kind < (int64_t)(sizeof of / sizeof *of) && of[kind] ? of[kind] : SPLIT_OTHER_COPY;
}

static enum split_detail_id copy_detail(sqlite3_stmt *st) {
    if (sqlite3_column_type(st, C_COPY_KIND) != SQLITE_NULL) return copy_of_kind(sqlite3_column_int64(st, C_COPY_KIND));
    return text_is(st, C_ACT, "h2d")    ? SPLIT_H2D
           : text_is(st, C_ACT, "d2h")  ? SPLIT_D2H
           : text_is(st, C_ACT, "d2d")  ? SPLIT_D2D
           : text_is(st, C_ACT, "peer") ? SPLIT_PEER
                                        : SPLIT_OTHER_COPY;
}

static enum split_detail_id compute_detail(const char *dtype, int matmul) {
    int format = devices_format_of(dtype);
    return matmul && format >= 0 ? (enum split_detail_id)(SPLIT_PRODUCTS + format) : SPLIT_VECTOR;
}

/* A kernel, or a library's product, by its roof. */
static enum split_detail_id kernel_detail(const struct loader *l, sqlite3_stmt *st, struct split_item *it) {
    struct roof_work w = {.dtype = (const char *)sqlite3_column_text(st, C_DTYPE),
                          .matmul = sqlite3_column_int(st, C_MATMUL),
                          .matmul_flops = real_or_nan(st, C_MATMUL_FLOPS),
                          .flops = real_or_nan(st, C_FLOPS),
                          .bytes = real_or_nan(st, C_BYTES)};
    struct roof roof = roof_of(l->r, &w);
    it->flops = isnan(w.flops) ? 0 : w.flops;
    it->bytes = isnan(w.bytes) ? 0 : w.bytes;
    it->roof_ns = roof.ns;
    if (isnan(w.flops)) {
        int integers = w.matmul && sqlite3_column_type(st, C_INTEGER) != SQLITE_NULL;
        return integers ? SPLIT_NO_ROOF_PRODUCTS : SPLIT_UNCOUNTED;
    }
    if (l->tiny && sqlite3_column_int64(st, C_BUSY) < SPLIT_TINY_NS) return SPLIT_TINY;
    if (roof.bound == ROOF_COMPUTE) return compute_detail(w.dtype, w.matmul);
    if (roof.bound == ROOF_MEMORY) return w.matmul ? SPLIT_MEMORY_PRODUCTS : SPLIT_MEMORY_KERNELS;
    if (w.matmul) it->roof_ns = roof.compute_ns; /* what is known of it */
    return w.matmul ? SPLIT_NO_ROOF_PRODUCTS : isnan(w.bytes) ? SPLIT_UNCOUNTED : SPLIT_NO_ROOF;
}

/* What moves within the device's memory has the bandwidth as its roof. */
static void move(const struct loader *l, struct split_item *it, double bytes, int passes) {
    it->bytes = isnan(bytes) ? 0 : bytes;
    it->roof_ns = passes ? 1e9 * passes * bytes / l->r->bytes_per_s : NAN;
}

static enum split_detail_id detail_of(const struct loader *l, sqlite3_stmt *st, struct split_item *it) {
    int known = sqlite3_column_type(st, C_OP) != SQLITE_NULL;
    enum split_detail_id d;
    it->roof_ns = NAN;
    if (text_is(st, C_KIND, "memset")) {
        move(l, it, real_or_nan(st, C_BYTES_MOVED), 1);
        d = SPLIT_MEMSET;
    } else if (text_is(st, C_KIND, "copy")) {
        d = copy_detail(st);
        move(l, it, real_or_nan(st, C_BYTES_MOVED), d == SPLIT_D2D ? 2 : 0);
    } else if (sqlite3_column_int(st, C_KERNEL) || text_is(st, C_KIND, "collective")) {
        d = SPLIT_COLLECTIVE;
    } else if (!known) {
        d = sqlite3_column_int(st, C_GRAPH) ? SPLIT_GRAPH : SPLIT_UNATTRIBUTED;
    } else {
        d = kernel_detail(l, st, it);
    }
    int in_step = !known || !sqlite3_column_int(st, C_COST) ||
                  (sqlite3_column_type(st, C_STEP) != SQLITE_NULL && it->phase != PHASE_EVALUATION);
    return in_step ? d : SPLIT_OTHER_STEPS;
}

/* The op's amounts, by this stretch's share of the op's time. */
static void share_out(struct split_item *it, int64_t busy_ns) {
    double share = busy_ns > 0 ? (double)(it->end_ns - it->start_ns) / (double)busy_ns : 1;
    it->flops *= share;
    it->bytes *= share;
    it->roof_ns *= share;
}

static void add_item(struct loader *l, sqlite3_stmt *st) {
    struct split_load *out = l->out;
    struct split_item it = {.start_ns = sqlite3_column_int64(st, C_START),
                            .end_ns = sqlite3_column_int64(st, C_END),
                            .host_start_ns = report_column(st, C_HOST_START),
                            .host_end_ns = report_column(st, C_HOST_END),
                            .thread = sqlite3_column_int(st, C_THREAD)};
    int64_t op = report_column(st, C_OP);
    if (!split_usable(it.start_ns, it.end_ns)) return;
    it.first = op == REPORT_UNKNOWN || op != l->last_piece;
    l->last_piece = op;
    it.phase = (uint8_t)report_phase_of((const char *)sqlite3_column_text(st, C_PHASE));
    it.detail = (uint8_t)detail_of(l, st, &it);
    if (op != REPORT_UNKNOWN) share_out(&it, sqlite3_column_int64(st, C_BUSY));
    out->item = report_grow(out->item, out->n_items, sizeof *out->item);
    out->item[out->n_items++] = it;
}

static int add_items(struct loader *l, const char *sql, int64_t from, int64_t to, char *err, size_t err_len) {
    sqlite3_stmt *st = report_prepare(l->r, sql, err, err_len);
    int rc;
    if (!st) return -1;
    sqlite3_bind_int64(st, 1, from);
    sqlite3_bind_int64(st, 2, to);
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) add_item(l, st);
    return report_rows_end(l->r, st, rc, err, err_len);
}

static int exists(sqlite3 *db, const char *sql) {
    sqlite3_stmt *st;
    if (sqlite3_prepare_v2(db, sql, -1, &st, NULL) != SQLITE_OK) return 0;
    int found = sqlite3_step(st) == SQLITE_ROW;
    sqlite3_finalize(st);
    return found;
}

/* ---- the host ---- */

static enum split_host host_of(const char *kind) {
    static const struct {
        const char *kind;
        enum split_host host;
    } of[] = {{"launch", HOST_LAUNCHING}, {"gemm", HOST_LAUNCHING},   {"blas", HOST_LAUNCHING},
              {"memset", HOST_LAUNCHING}, {"event", HOST_LAUNCHING},  {"collective", HOST_LAUNCHING},
              {"copy", HOST_COPYING},     {"alloc", HOST_ALLOCATING}, {"free", HOST_ALLOCATING},
              {"sync", HOST_WAITING}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (!strcmp(of[i].kind, kind)) return of[i].host;
    return HOST_OTHER;
}

static const char calls[] = "SELECT start_ns, end_ns, thread, kind FROM op WHERE end_ns > ?1 AND start_ns < ?2";

/* Into calls, or into items. */
static int load_calls(struct report *r, int64_t from, int64_t to, int items, struct split_load *out, char *err,
                      size_t err_len) {
    sqlite3_stmt *st = report_prepare(r, calls, err, err_len);
    int rc;
    if (!st) return -1;
    sqlite3_bind_int64(st, 1, from);
    sqlite3_bind_int64(st, 2, to);
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        struct split_call c = {sqlite3_column_int64(st, 0), sqlite3_column_int64(st, 1), sqlite3_column_int(st, 2),
                               (uint8_t)host_of((const char *)sqlite3_column_text(st, 3))};
        if (!split_usable(c.start_ns, c.end_ns)) continue;
        if (items) {
            out->item = report_grow(out->item, out->n_items, sizeof *out->item);
            out->item[out->n_items++] =
                (struct split_item){.start_ns = c.start_ns, .end_ns = c.end_ns, .detail = c.host};
        } else {
            out->call = report_grow(out->call, out->n_calls, sizeof *out->call);
            out->call[out->n_calls++] = c;
        }
    }
    return report_rows_end(r, st, rc, err, err_len);
}

int split_load_host(struct report *r, int64_t from_ns, int64_t to_ns, struct split_load *out, char *err,
                    size_t err_len) {
    if (load_calls(r, from_ns, to_ns, 1, out, err, err_len)) return -1;
    sort(out->item, out->n_items, sizeof *out->item, item_order);
    return 0;
}

/* ---- both ---- */

int split_load_device(struct report *r, int64_t from_ns, int64_t to_ns, struct split_load *out, char *err,
                      size_t err_len) {
    struct loader l = {r, out, r->device_clock && !strcmp(r->device_clock, "gpu"), REPORT_UNKNOWN};
    char sql[1536];
    int communicates = exists(r->db, "SELECT 1 FROM kernel WHERE " COMMUNICATES("name") " LIMIT 1"),
        some_pieces = exists(r->db, "SELECT 1 FROM op_piece LIMIT 1"); /* an older analysis has no such table */
    snprintf(sql, sizeof sql, whole_ops, communicates ? COMMUNICATES("k.name") : "0",
             communicates ? "LEFT JOIN launch l ON l.op = t.op LEFT JOIN kernel k ON k.id = l.kernel" : "",
             some_pieces ? WITHOUT_PIECES : "");
    if (add_items(&l, sql, from_ns, to_ns, err, err_len)) return -1;
    l.last_piece = REPORT_UNKNOWN;
    if (some_pieces && add_items(&l, pieces, from_ns, to_ns, err, err_len)) return -1;
    sort(out->item, out->n_items, sizeof *out->item, item_order);
    if (r->modelled) return 0; /* its host is always ahead: what it did explains nothing */
    int64_t early = from_ns > INT64_MIN + 1000000000 ? from_ns - 1000000000 : from_ns;
    if (load_calls(r, early, to_ns, 0, out, err, err_len)) return -1;
    sort(out->call, out->n_calls, sizeof *out->call, call_order);
    return 0;
}

void split_free(struct split_load *l) {
    free(l->item);
    free(l->call);
}
