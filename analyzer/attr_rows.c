/* Reads the recorded tables: calls with their operands and costs, and allocations. */
#include "analyzer/attr_rows.h"

#include <stdlib.h>
#include <string.h>
#include "analyzer/attr_gemms.h"
#include "analyzer/attr_sql.h"

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
    for (int32_t i = 1; i < n; i++) {
        if (call_order(&call[i - 1], &call[i]) <= 0) continue; /* in order already, but where threads take turns */
        qsort(call, (size_t)n, sizeof *call, call_order);
        break;
    }
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

int rows_read(struct rows *r, sqlite3 *db, struct gemms *gemms, char *err, size_t err_len) {
    r->err = err;
    r->err_len = err_len;
    if (rows_read_calls(r, db, err, err_len) || read_allocs(r, db, err, err_len)) return -1;
    find_library_allocs(r);
    return rows_read_details(r, db, gemms, err, err_len);
}
