#include "analyzer/report_flops_rows.h"

#include <stdlib.h>
#include <string.h>

/* clang-format off */
#define INTEGERS "iif(op.kind <> 'launch', integer_ops, NULL)"
#define COLUMNS                                                                                                        \
    "SELECT c.phase, c.dtype, op.kind, c.micro_batch, count(*), sum(t.busy_ns), " FLOPS_GEMM_SUM ", " FLOPS_OTHER_SUM \
    ", " REPORT_SUM_COLUMNS(INTEGERS, INTEGERS, "0", "0")
#define FROM                                                                                                           \
    " FROM op_cost c JOIN op ON op.id = c.op LEFT JOIN op_time t ON t.op = c.op"                                       \
    " WHERE op.kind IN ('launch', 'gemm', 'blas') AND "
#define QUERY(where) COLUMNS FROM where " GROUP BY 1, 2, 3, 4 ORDER BY c.micro_batch, min(c.op)"
#define QUERY_ALL                                                                                                      \
    COLUMNS ", c.step" FROM                                                                                            \
    "c.step IS NOT NULL GROUP BY c.step, 1, 2, 3, 4 ORDER BY c.step, c.micro_batch, min(c.op)"
enum { COLUMN_STEP = 6 + 3 * REPORT_SUM_WIDTH };
/* clang-format on */

static const char *kind_of(const char *kind) {
    return !strcmp(kind, "launch") ? "kernel" : !strcmp(kind, "gemm") ? "gemm" : "blas";
}

static void add_row(struct flops_rows *out, sqlite3_stmt *st) {
    out->row = report_grow(out->row, out->n, sizeof *out->row);
    out->row[out->n++] = (struct flops_row){.phase = report_column_text(st, 0),
                                            .dtype = report_column_text(st, 1),
                                            .kind = kind_of((const char *)sqlite3_column_text(st, 2)),
                                            .micro_batch = report_column(st, 3),
                                            .calls = sqlite3_column_int64(st, 4),
                                            .time_ns = report_column(st, 5),
                                            .gemm = report_column_sum(st, 6),
                                            .other = report_column_sum(st, 6 + REPORT_SUM_WIDTH),
                                            .integer_ops = report_column_sum(st, 6 + 2 * REPORT_SUM_WIDTH)};
}

int flops_rows_of_step(struct report *r, int64_t step, struct flops_rows *out, char *err, size_t err_len) {
    int none = step == REPORT_UNKNOWN, rc;
    sqlite3_stmt *st = report_prepare(r, none ? QUERY("c.step IS NULL") : QUERY("c.step = ?"), err, err_len);
    *out = (struct flops_rows){0};
    if (!st) return -1;
    if (!none) sqlite3_bind_int64(st, 1, step);
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) add_row(out, st);
    rc = report_rows_end(r, st, rc, err, err_len);
    if (rc) flops_rows_free(out);
    return rc;
}

int flops_walk_begin(struct report *r, struct flops_walk *w, char *err, size_t err_len) {
    w->state = SQLITE_ROW;
    w->rows = report_prepare(r, QUERY_ALL, err, err_len);
    if (!w->rows) return -1;
    w->state = sqlite3_step(w->rows);
    return 0;
}

void flops_walk_step(struct flops_walk *w, int64_t step, struct flops_rows *out) {
    *out = (struct flops_rows){0};
    for (; w->state == SQLITE_ROW && sqlite3_column_int64(w->rows, COLUMN_STEP) <= step;
         w->state = sqlite3_step(w->rows))
        if (sqlite3_column_int64(w->rows, COLUMN_STEP) == step) add_row(out, w->rows);
}

int flops_walk_end(struct report *r, struct flops_walk *w, char *err, size_t err_len) {
    return report_rows_end(r, w->rows, w->state == SQLITE_ROW ? SQLITE_DONE : w->state, err, err_len);
}

void flops_rows_free(struct flops_rows *rows) {
    for (int64_t i = 0; i < rows->n; i++) {
        free(rows->row[i].phase);
        free(rows->row[i].dtype);
    }
    free(rows->row);
    *rows = (struct flops_rows){0};
}
