/* The device's times of each op: op_time, from CUPTI's activities by way of correlation and external ids. */
#include "analyzer/attr_model.h"

#include <stdlib.h>
#include "analyzer/attr_sql.h"

/* An op knows the external id that was pushed round it; CUPTI tied that to the calls of driver and runtime made inside,
 * and those to what they submitted. */
static const char write_times[] =
    "CREATE TEMP TABLE external_op(external INTEGER PRIMARY KEY, op INTEGER);"
    "INSERT OR IGNORE INTO external_op SELECT external, op FROM launch WHERE external <> 0;"
    "INSERT OR IGNORE INTO external_op SELECT external, op FROM gemm WHERE external <> 0;"
    "INSERT OR IGNORE INTO external_op SELECT external, op FROM blas WHERE external <> 0;"
    "INSERT OR IGNORE INTO external_op SELECT external, op FROM copy WHERE external <> 0;"
    "INSERT OR IGNORE INTO external_op SELECT external, op FROM memset WHERE external <> 0;"
    "INSERT INTO op_time(op, start_ns, end_ns, busy_ns, activities) "
    "SELECT e.op, min(a.start_ns), max(a.end_ns), sum(a.end_ns - a.start_ns), count(*) "
    "FROM activity a JOIN correlation c ON c.id = a.correlation JOIN external_op e ON e.external = c.external "
    "WHERE a.start_ns IS NOT NULL AND a.end_ns IS NOT NULL GROUP BY e.op;"
    "DROP TABLE external_op;";

struct place {
    int64_t op;
    int32_t event;
};

static int by_op(const void *a, const void *b) {
    const struct place *x = a, *y = b;
    return (x->op > y->op) - (x->op < y->op);
}

/* Both lists ascend by op. */
static int give_times(struct at_trace *t, sqlite3 *db, const struct place *place, int32_t n, char *err,
                      size_t err_len) {
    sqlite3_stmt *st;
    if (sql_prepare(db, &st, "SELECT op, start_ns, end_ns FROM op_time ORDER BY op", err, err_len)) return -1;
    int rc;
    int32_t i = 0;
    while ((rc = sql_row(db, st, err, err_len)) > 0) {
        int64_t op = sqlite3_column_int64(st, 0);
        while (i < n && place[i].op < op) i++;
        if (i == n || place[i].op != op) continue;
        t->event[place[i].event].device_start_ns = sqlite3_column_int64(st, 1);
        t->event[place[i].event].device_end_ns = sqlite3_column_int64(st, 2);
    }
    sqlite3_finalize(st);
    return rc;
}

int at_times(struct at_trace *t, sqlite3 *db, char *err, size_t err_len) {
    if (sql_run(db, write_times, err, err_len)) return -1;
    struct place *place = POOL_NEW(t->pool, struct place, t->events);
    int32_t n = 0;
    for (int32_t i = 0; i < t->events; i++)
        if (at_is_op(&t->event[i])) place[n++] = (struct place){t->event[i].op, i};
    if (n) qsort(place, (size_t)n, sizeof *place, by_op);
    int rc = give_times(t, db, place, n, err, err_len);
    pool_give(t->pool, place);
    return rc;
}
