/* The device's times of each op: op_time and op_piece, from CUPTI's activities by way of correlation and external ids.
 */
#include "analyzer/attr_model.h"

#include <stdlib.h>
#include "analyzer/attr_sql.h"

/* An op knows the external id that was pushed round it; CUPTI tied that to the calls of driver and runtime made inside,
 * and those to what they submitted. Both kinds of ids are a process' own. */
#define TIED                                                                                       \
    " FROM activity a LEFT JOIN correlation c ON c.id = a.correlation LEFT JOIN external_op e ON " \
    "e.external = c.external AND e.process = a.process "

/* CUPTI writes 0 where it could not collect a time stamp, and an end that was never written lies before the beginning:
 * such records tell no time. */
#define USABLE " a.start_ns > 0 AND a.end_ns >= a.start_ns "

#define WITH_EXTERNAL                                                                                              \
    "(SELECT external, op FROM launch UNION ALL SELECT external, op FROM gemm UNION ALL SELECT external, op FROM " \
    "blas UNION ALL SELECT external, op FROM copy UNION ALL SELECT external, op FROM memset) x "

static const char one_process[] = "INSERT OR IGNORE INTO external_op SELECT external, (SELECT id FROM process), op "
                                  "FROM " WITH_EXTERNAL "WHERE external <> 0";
static const char several_processes[] = "INSERT OR IGNORE INTO external_op SELECT external, process, op "
                                        "FROM " WITH_EXTERNAL "JOIN op ON op.id = x.op WHERE external <> 0";

static const char write_times[] =
    "INSERT INTO op_time(op, start_ns, end_ns, busy_ns, activities) "
    "SELECT e.op, min(a.start_ns), max(a.end_ns), sum(a.end_ns - a.start_ns), count(*)" TIED "WHERE" USABLE
    "AND e.op IS NOT NULL GROUP BY e.op";

/* Where each op has one activity and each activity an op, op_time says it all. */
static const char is_plain[] =
    "SELECT (SELECT count(*) FROM activity a WHERE" USABLE ") = (SELECT count(*) FROM op_time)";

static const char write_pieces[] = "INSERT INTO op_piece(activity, op) SELECT a.id, e.op" TIED "WHERE" USABLE
                                   "AND (e.op IS NULL OR (SELECT activities FROM op_time WHERE op = e.op) > 1)";

static int truth_of(sqlite3 *db, const char *sql) {
    sqlite3_stmt *st;
    if (sqlite3_prepare_v2(db, sql, -1, &st, NULL) != SQLITE_OK) return 0;
    int yes = sqlite3_step(st) == SQLITE_ROW && sqlite3_column_int(st, 0);
    sqlite3_finalize(st);
    return yes;
}

static int write_all(sqlite3 *db, char *err, size_t err_len) {
    if (!truth_of(db, "SELECT EXISTS(SELECT 1 FROM activity)")) return 0;
    int several = truth_of(db, "SELECT count(*) <> 1 FROM process");
    if (sql_run(db,
                "CREATE TEMP TABLE external_op(external INTEGER, process INTEGER, op INTEGER, PRIMARY KEY(external, "
                "process)) WITHOUT ROWID",
                err, err_len) ||
        sql_run(db, several ? several_processes : one_process, err, err_len) || sql_run(db, write_times, err, err_len))
        return -1;
    if (!truth_of(db, is_plain) && sql_run(db, write_pieces, err, err_len)) return -1;
    return sql_run(db, "DROP TABLE external_op", err, err_len);
}

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
    if (sql_prepare(db, &st, "SELECT op, start_ns, end_ns, busy_ns FROM op_time ORDER BY op", err, err_len)) return -1;
    int rc;
    int32_t i = 0;
    while ((rc = sql_row(db, st, err, err_len)) > 0) {
        int64_t op = sqlite3_column_int64(st, 0);
        while (i < n && place[i].op < op) i++;
        if (i == n || place[i].op != op) continue;
        t->device[place[i].event] = (struct at_device_time){sqlite3_column_int64(st, 1), sqlite3_column_int64(st, 2),
                                                            sqlite3_column_int64(st, 3)};
    }
    sqlite3_finalize(st);
    return rc;
}

static int has_times(sqlite3 *db) {
    sqlite3_stmt *st;
    if (sqlite3_prepare_v2(db, "SELECT 1 FROM op_time LIMIT 1", -1, &st, NULL)) return 0;
    int any = sqlite3_step(st) == SQLITE_ROW;
    sqlite3_finalize(st);
    return any;
}

int at_times(struct at_trace *t, sqlite3 *db, char *err, size_t err_len) {
    if (write_all(db, err, err_len)) return -1;
    if (!has_times(db)) return 0;
    t->device = POOL_NEW(t->pool, struct at_device_time, t->events);
    for (int32_t i = 0; i < t->events; i++) t->device[i].busy_ns = -1;
    struct place *place = POOL_NEW(t->pool, struct place, t->events);
    int32_t n = 0;
    for (int32_t i = 0; i < t->events; i++)
        if (at_is_op(&t->event[i])) place[n++] = (struct place){t->event[i].op, i};
    if (n) qsort(place, (size_t)n, sizeof *place, by_op);
    int rc = give_times(t, db, place, n, err, err_len);
    pool_give(t->pool, place);
    return rc;
}
