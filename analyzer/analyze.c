/* The analysis of a trace, in one transaction. */
#include "analyzer/analyze.h"

#include <stdio.h>
#include "analyzer/attr_gemms.h"
#include "analyzer/attr_marks.h"
#include "analyzer/attr_model.h"
#include "analyzer/attr_products.h"
#include "analyzer/attr_sql.h"
#include "analyzer/launch_price.h"
#include "trace/store.h"

#define SQL_NUMBER(x) SQL_TEXT(x)
#define SQL_TEXT(x) #x

/* Rows of op_buffer that the recorded tables tell are made anew; the sets of launches that have no argument bytes, and
 * operands that no event's field tells (a bias), stay. Shared sets are the analysis'. A table is emptied at once where
 * nothing stays. */
static const char clear_shared[] = "DELETE FROM op_set; DELETE FROM buffer_set; DELETE FROM cost_set;";
static const char clear_buffers[] =
    "DELETE FROM buffer_set WHERE buffers > 0 OR ((slot <> 'bias' OR -buffers IN (SELECT op FROM gemm WHERE bias <> 0))"
    " AND -buffers NOT IN (SELECT id FROM op WHERE kind = 'launch' AND id NOT IN "
    "(SELECT op FROM launch WHERE args IS NOT NULL)));"
    "DELETE FROM op_set WHERE buffers >= 0 OR buffers NOT IN (SELECT buffers FROM buffer_set);"
    "UPDATE op_set SET cost = NULL, step = NULL; DELETE FROM cost_set;";
static const char clear_tables[] =
    "DELETE FROM op_sum; DELETE FROM step_sum; DELETE FROM call_sum; DELETE FROM step; DELETE FROM phase; "
    "DELETE FROM alloc_class; DELETE FROM op_time; DELETE "
    "FROM "
    "op_piece;"
    "DELETE FROM price; DELETE FROM price_count;";

/* Its tables are there now, and empty: not since the program launched nothing. */
static const char no_launches[] =
    "INSERT OR REPLACE INTO meta(key, value) VALUES('launches', 'not recorded by the version that wrote this trace')";

/* Of a trace whose values are known. */
static void apply_rules(struct at_trace *t) {
    at_own_products(t);
    at_carried(t);
    at_copies(t);
    at_updates(t);
    at_cut(t);
    at_gradients(t);
    at_weights(t);
    at_cut_forget(t);
    at_intervals(t);
    at_phases(t);
    at_begun_update(t);
    at_steps(t);
}

static int clear(sqlite3 *db, char *err, size_t err_len) {
    sqlite3_stmt *st;
    if (sql_prepare(db, &st, "SELECT EXISTS(SELECT 1 FROM op_set WHERE buffers < 0)", err, err_len)) return -1;
    int told = sqlite3_step(st) == SQLITE_ROW && sqlite3_column_int(st, 0);
    sqlite3_finalize(st);
    return sql_run(db, told ? clear_buffers : clear_shared, err, err_len) || sql_run(db, clear_tables, err, err_len);
}

/* Did a thread do no more work on the device after a call that found no memory? (Statuses of the runtime and of
 * cuBLAS.)
 */
static const char ended_without_memory[] =
    "SELECT EXISTS(SELECT 1 FROM op WHERE status IN (2, 3)) AND EXISTS(SELECT 1 FROM op LEFT JOIN api ON api.id = "
    "op.api LEFT JOIN (SELECT thread, max(id) AS last FROM op WHERE status = 0 AND (kind IN ('launch', 'gemm', 'blas') "
    "OR (kind = 'alloc' AND id IN (SELECT id FROM alloc))) GROUP BY thread) w ON w.thread = op.thread WHERE op.status "
    "= "
    "CASE WHEN api.library LIKE 'cublas%' THEN 3 ELSE 2 END AND op.id > coalesce(w.last, 0))";

static int find_death(struct at_trace *t, sqlite3 *db, char *err, size_t err_len) {
    sqlite3_stmt *st;
    if (sql_prepare(db, &st, ended_without_memory, err, err_len)) return -1;
    t->died = sqlite3_step(st) == SQLITE_ROW && sqlite3_column_int(st, 0);
    sqlite3_finalize(st);
    return 0;
}

/* meta.prices_cut_short: see launch_prices_hurried. */
static int note_prices(const struct launch_prices *prices, sqlite3 *db, char *err, size_t err_len) {
    if (sql_run(db, "DELETE FROM meta WHERE key = 'prices_cut_short'", err, err_len)) return -1;
    int64_t n = launch_prices_hurried(prices);
    if (!n || !store_meta_set_int(db, "prices_cut_short", n)) return 0;
    snprintf(err, err_len, "%s", sqlite3_errmsg(db));
    return -1;
}

/* Kept where a lack of memory, which leaves analyze() by longjmp, finds it to be freed. */
struct session {
    struct pool pool;
    struct launch_sets *sets;
    struct launch_prices *prices;
    struct gemms *gemms;
    struct op_writer *ops;
};

static int analyze(struct session *s, sqlite3 *db, char *err, size_t err_len) {
    struct at_trace t = {.pool = &s->pool, .sets = s->sets, .prices = s->prices};
    if (!s->sets || !s->prices || !s->gemms || setjmp(s->pool.failed)) {
        snprintf(err, err_len, "not enough memory for the analysis of this trace; analyse it on a larger machine");
        return -1;
    }
    int older = !sql_has_table(db, "kernel");
    if (store_upgrade(db)) {
        snprintf(err, err_len, "its tables cannot be brought up to date: %s", sqlite3_errmsg(db));
        return -1;
    }
    if (older && sql_run(db, no_launches, err, err_len)) return -1;
    if (clear(db, err, err_len) || launch_name_kernels(db, err, err_len)) return -1;
    if (at_load(&t, db, s->gemms, err, err_len) || (t.no_memory && find_death(&t, db, err, err_len)) ||
        at_times(&t, db, err, err_len))
        return -1;
    at_extents(&t);
    at_whole_blocks(&t);
    if (at_ranges(&t, err, err_len)) return -1;
    at_directions(&t);
    at_values(&t);
    int in_parts = at_segments(&t, apply_rules);
    if (!in_parts) apply_rules(&t);
    if (at_marks(&t, db, err, err_len)) return -1;
    s->ops = op_writer_begin(&t, db);
    if (!in_parts) at_classes(&t);
    at_trim_first_step(&t);
    const struct at_sums *sums = at_sums_make(&t);
    op_writer_wait(s->ops);
    at_own_products_forget(&t);
    if (at_write(&t, db, s->ops, sums, err, err_len) || at_tags(&t, db, err, err_len) ||
        at_write_products(&t, db, err, err_len) || note_prices(s->prices, db, err, err_len))
        return -1;
    return sql_run(
        db, "INSERT OR REPLACE INTO meta(key, value) VALUES('analysis_version', " SQL_NUMBER(ANALYSIS_VERSION) ")", err,
        err_len);
}

int analyze_trace(sqlite3 *db, char *err, size_t err_len) {
    struct session s = {{0}};
    if (sql_run(db, "BEGIN IMMEDIATE", err, err_len)) return -1;
    s.gemms = gemms_begin(db);
    s.sets = launch_sets_open(db);
    s.prices = launch_prices_open(s.sets, db);
    int rc = analyze(&s, db, err, err_len);
    gemms_free(s.gemms);
    op_writer_free(s.ops);
    launch_prices_close(s.prices); /* with its statements, before the transaction ends */
    if (!rc) rc = sql_run(db, "COMMIT", err, err_len);
    if (rc) sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
    launch_sets_close(s.sets);
    pool_free(&s.pool);
    return rc;
}
