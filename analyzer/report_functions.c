/* What each kernel and library function took and did: calls, time, FLOPs, bytes, and its place under the roofline. */
#include "analyzer/report_roof.h"
#include "analyzer/report_sums.h"

#include <math.h>
#include <stdio.h>

/* acct_roofline_ns(matmul, dtype, matmul_flops, flops, bytes): the least time that the device's peaks and its memory
 * allow; NULL where one that matters is not known. */
static void roofline_function(sqlite3_context *context, int argc, sqlite3_value **v) {
    for (int i = 2; i < argc; i++)
        if (sqlite3_value_type(v[i]) == SQLITE_NULL) return;
    struct roof roof = roof_of(sqlite3_user_data(context), &(struct roof_work){
                                                               .matmul = sqlite3_value_int(v[0]),
                                                               .dtype = (const char *)sqlite3_value_text(v[1]),
                                                               .matmul_flops = sqlite3_value_double(v[2]),
                                                               .flops = sqlite3_value_double(v[3]),
                                                               .bytes = sqlite3_value_double(v[4]),
                                                           });
    if (isfinite(roof.ns)) sqlite3_result_double(context, roof.ns);
}

/* clang-format off */
#define ROOF "acct_roofline_ns(c.matmul, c.dtype, c.matmul_flops, c.flops, c.bytes_read + c.bytes_written)"
static const char query[] =
    "SELECT " REPORT_FUNCTION_NAME ", count(*), sum(t.busy_ns), count(t.op), sum(op.kind = 'launch' AND t.op IS NULL),"
    " sum(op.kind = 'launch'), sum(op.kind IN ('launch', 'gemm', 'blas')), "
    REPORT_SUM_COLUMNS("c.flops", "c.flops_most", "c.flops IS NULL AND c.integer_ops IS NULL", "c.grade = 'sampled'")
    ", "
    REPORT_SUM_COLUMNS("c.bytes_read", "c.bytes_read", "c.bytes_read IS NULL", "c.grade = 'sampled'") ", "
    REPORT_SUM_COLUMNS("c.bytes_written", "c.bytes_written", "c.bytes_written IS NULL", "c.grade = 'sampled'")
    ", sum(iif(t.op IS NULL, NULL, " ROOF ")), sum(t.op IS NOT NULL AND " ROOF " IS NULL)"
    " FROM op LEFT JOIN op_cost c ON c.op = op.id LEFT JOIN op_time t ON t.op = op.id " REPORT_FUNCTION_JOIN
    " WHERE op.status = 0 AND op.kind IN ('launch', 'gemm', 'blas', 'copy', 'memset')"
    " GROUP BY 1 ORDER BY 3 DESC, 2 DESC, 1";
static const char query_of_sums[] =
    "SELECT " SUMS_FUNCTION_NAME ", sum(c.ops), sum(c.busy_ns), sum(c.timed), sum((c.kind = 'launch') * (c.ops - c.timed)),"
    " sum((c.kind = 'launch') * c.ops), sum((c.kind IN ('launch', 'gemm', 'blas')) * c.ops), "
    SUMS_COLUMNS("c.flops", "c.flops_most", "c.flops IS NULL AND c.integer_ops IS NULL", "c.grade = 'sampled'") ", "
    SUMS_COLUMNS("c.bytes_read", "c.bytes_read", "c.bytes_read IS NULL", "c.grade = 'sampled'") ", "
    SUMS_COLUMNS("c.bytes_written", "c.bytes_written", "c.bytes_written IS NULL", "c.grade = 'sampled'")
    ", sum(iif(c.timed, c.timed * " ROOF ", NULL)), sum(c.timed AND " ROOF " IS NULL)"
    SUMS_FROM "WHERE c.kind IN ('launch', 'gemm', 'blas', 'copy', 'memset') GROUP BY 1 ORDER BY 3 DESC, 2 DESC, 1";
/* clang-format on */

static struct report_function function_of(sqlite3_stmt *st) {
    enum { SUMS = 7, SHARE = SUMS + 3 * REPORT_SUM_WIDTH };
    struct report_function f = {.name = report_column_text(st, 0),
                                .calls = sqlite3_column_int64(st, 1),
                                .time_ns = report_column(st, 2),
                                .timed = sqlite3_column_int64(st, 3),
                                .launches = sqlite3_column_int64(st, 5),
                                .costed = sqlite3_column_int64(st, 6),
                                .flops = report_column_sum(st, SUMS),
                                .read = report_column_sum(st, SUMS + REPORT_SUM_WIDTH),
                                .written = report_column_sum(st, SUMS + 2 * REPORT_SUM_WIDTH),
                                .roofline_share = NAN};
    if (f.costed && f.time_ns > 0 && sqlite3_column_type(st, SHARE) != SQLITE_NULL &&
        !sqlite3_column_int64(st, SHARE + 1))
        f.roofline_share = sqlite3_column_double(st, SHARE) / (double)f.time_ns;
    return f;
}

int report_load_functions(struct report *r, char *err, size_t err_len) {
    int rc = sqlite3_create_function(r->db, "acct_roofline_ns", 5, SQLITE_UTF8, r, roofline_function, NULL, NULL);
    sqlite3_stmt *st = rc ? NULL : report_prepare(r, report_has_sums(r) ? query_of_sums : query, err, err_len);
    if (rc) snprintf(err, err_len, "%s: %s", r->path, sqlite3_errmsg(r->db));
    if (!st) return -1;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        r->functions = report_grow(r->functions, r->n_functions, sizeof *r->functions);
        r->functions[r->n_functions++] = function_of(st);
        r->launches_untimed += sqlite3_column_int64(st, 4);
    }
    return report_rows_end(r, st, rc, err, err_len);
}
