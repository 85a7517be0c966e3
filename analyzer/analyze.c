/* The analysis of a trace, in one transaction. */
#include "analyzer/analyze.h"

#include <stdio.h>
#include "analyzer/attr_model.h"
#include "analyzer/attr_sql.h"

#define SQL_NUMBER(x) SQL_TEXT(x)
#define SQL_TEXT(x) #x

/* Rows of op_buffer that the recorded tables tell are made anew; the sets of launches, and operands that no event's
 * field tells (a bias), stay. */
static const char clear_tables[] =
    "DELETE FROM op_buffer WHERE slot NOT IN ('bias') AND op NOT IN (SELECT id FROM op WHERE kind = 'launch');"
    "DELETE FROM step; DELETE FROM phase; DELETE FROM alloc_class; DELETE FROM op_cost;";

static void apply_rules(struct at_trace *t) {
    at_directions(t);
    at_values(t);
    at_carried(t);
    at_copies(t);
    at_updates(t);
    at_gradients(t);
    at_weights(t);
    at_intervals(t);
    at_phases(t);
    at_begun_update(t);
    at_steps(t);
    at_classes(t);
}

static int analyze(struct pool *pool, sqlite3 *db, char *err, size_t err_len) {
    struct at_trace t = {.pool = pool};
    if (setjmp(pool->failed)) {
        snprintf(err, err_len, "not enough memory for the analysis of this trace; analyse it on a larger machine");
        return -1;
    }
    if (sql_run(db, clear_tables, err, err_len)) return -1;
    if (at_load(&t, db, err, err_len) || at_ranges(&t, err, err_len)) return -1;
    apply_rules(&t);
    if (at_write(&t, db, err, err_len)) return -1;
    return sql_run(
        db, "INSERT OR REPLACE INTO meta(key, value) VALUES('analysis_version', " SQL_NUMBER(ANALYSIS_VERSION) ")", err,
        err_len);
}

int analyze_trace(sqlite3 *db, char *err, size_t err_len) {
    struct pool pool = {0};
    if (sql_run(db, "BEGIN IMMEDIATE", err, err_len)) return -1;
    int rc = analyze(&pool, db, err, err_len);
    if (!rc) rc = sql_run(db, "COMMIT", err, err_len);
    if (rc) sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
    pool_free(&pool);
    return rc;
}
