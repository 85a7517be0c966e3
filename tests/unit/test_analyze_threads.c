/* The analysis with its threads (a trace in a file), and without the one that reads products: a database in memory has
 * no second connection, and a file of an older version has columns that only the analysis' own connection sees. All
 * find the same; what products cost is known beforehand. Under ThreadSanitizer: `make tsan`. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "analyzer/analyze.h"
#include "trace/store.h"

enum { STEPS = 400, CALLS = 5, SIZE = 32 }; /* calls of a step: copy, three products, clearing */

#define ROWS "WITH RECURSIVE s(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM s WHERE i < 399) "
#define PRODUCT(at, x, y, z)                                                                                           \
    ROWS "INSERT INTO gemm(id, op, trans_a, trans_b, m, n, k, batch, a, b, c, lda, ldb, ldc, a_type, b_type, c_type, " \
         "compute, alpha, beta, pointer_array, math_mode) SELECT 10 + 5 * i + " at ", 10 + 5 * i + " at                \
         ", 'N', 'N', 32, 32, 32, 1, " x ", " y ", " z                                                                 \
         ", 32, 32, 32, 'fp32', 'fp32', 'fp32', 'fp32', 'one', 'zero', 0, 0 "                                          \
         "FROM s;"
#define CALL(at, kind, api)                                                                                         \
    ROWS "INSERT INTO op(id, process, thread, api, kind, device, start_ns, end_ns, status) SELECT 10 + 5 * i + " at \
         ", 1, 1, " api ", '" kind "', 0, 100000 + 1000 * (5 * i + " at "), 100500 + 1000 * (5 * i + " at           \
         "), 0 FROM s;"

static const char program[] =
    "INSERT INTO process(id, pid, start_ns, environment) VALUES(1, 100, 0, '{}');"
    "INSERT INTO thread(id, process, tid) VALUES(1, 1, 100);"
    "INSERT INTO device(id, process, ordinal, name, cc_major) VALUES(1, 1, 0, 'test', 8);"
    "INSERT INTO api VALUES(1, 'cudaMalloc', 'cudart'), (2, 'cublasSgemm_v2', 'cublas'), (3, 'cudaMemcpy', 'cudart'), "
    "(4, 'cudaMemset', 'cudart');"
    "WITH RECURSIVE a(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM a WHERE i < 6) INSERT INTO op(id, process, thread, "
    "api, "
    "kind, device, start_ns, end_ns, status) SELECT i, 1, 1, 1, 'alloc', 0, 1000 * i, 1000 * i + 500, 0 FROM a;"
    "INSERT INTO alloc(id, process, address, bytes, memory, device, alloc_ns) SELECT id, 1, id << 16, 4096, 'device', "
    "0, "
    "end_ns FROM op;" CALL("0", "copy", "3") CALL("1", "gemm", "2") CALL("2", "gemm", "2") CALL("3", "memset", "4")
        CALL("4", "gemm", "2") PRODUCT("1", "1 << 16", "2 << 16", "3 << 16")
            PRODUCT("2", "3 << 16", "4 << 16", "5 << 16") PRODUCT("4", "5 << 16", "2 << 16", "6 << 16") ROWS
    "INSERT INTO copy(op, dst, src, bytes, direction) SELECT 10 + 5 * i, 2 << 16, 1, 4096, 'h2d' FROM s;" ROWS
    "INSERT INTO memset(op, dst, bytes) SELECT 13 + 5 * i, 6 << 16, 4096 FROM s;";

static char path[64];

static void run(sqlite3 *db, const char *sql) {
    char *err = NULL;
    sqlite3_exec(db, sql, NULL, NULL, &err);
    if (err) fail_msg("%s", err);
}

static sqlite3 *trace_in_a_file(void) {
    sqlite3 *db;
    char err[512] = "";
    snprintf(path, sizeof path, "/tmp/test_analyze_threads-%d.db", (int)getpid());
    if (store_create(&db, path, 1, err, sizeof err)) fail_msg("%s", err);
    run(db, "PRAGMA journal_mode=DELETE; BEGIN");
    run(db, program);
    run(db, "INSERT OR REPLACE INTO meta VALUES('state', 'complete'); COMMIT");
    return db;
}

static void finish(sqlite3 *db) {
    sqlite3_close(db);
    unlink(path);
}

static void analyze(sqlite3 *db) {
    char err[512] = "";
    if (analyze_trace(db, err, sizeof err)) fail_msg("%s", err);
}

/* All that was found, as one text; malloc'ed by SQLite. */
static char *found(sqlite3 *db) {
    static const char sql[] = "SELECT group_concat(row, '\n') FROM (SELECT * FROM (SELECT 'cost ' || op || ' ' || "
                              "coalesce(step, '-') || ' ' || "
                              "coalesce(phase, '-') || ' ' || flops || ' ' || coalesce(dtype, '-') || ' ' || "
                              "bytes_read || ' ' || bytes_written "
                              "AS row FROM op_cost ORDER BY op) UNION ALL SELECT * FROM (SELECT 'buffer ' || op || ' ' "
                              "|| slot || ' ' || alloc || "
                              "' ' || mode FROM op_buffer ORDER BY op, slot) UNION ALL SELECT * FROM (SELECT 'class ' "
                              "|| alloc || ' ' || offset "
                              "|| ' ' || bytes || ' ' || class || ' ' || rule FROM alloc_class ORDER BY alloc, offset, "
                              "from_ns) UNION ALL SELECT "
                              "* FROM (SELECT 'step ' || id || ' ' || first_op || ' ' || last_op FROM step ORDER BY "
                              "id) UNION ALL SELECT 'calls ' "
                              "|| kind || ' ' || calls || ' ' || failed FROM call_sum)";
    sqlite3_stmt *st;
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &st, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(st), SQLITE_ROW);
    char *text = sqlite3_mprintf("%s", sqlite3_column_text(st, 0));
    sqlite3_finalize(st);
    return text;
}

static int64_t number(sqlite3 *db, const char *sql) {
    sqlite3_stmt *st;
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &st, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(st), SQLITE_ROW);
    int64_t n = sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    return n;
}

static void costs_are_those_of_the_products(void **state) {
    (void)state;
    sqlite3 *db = trace_in_a_file();
    analyze(db);
    assert_int_equal(number(db, "SELECT count(*) FROM op_cost"), STEPS * CALLS);
    assert_int_equal(number(db, "SELECT sum(flops) FROM op_cost"), (int64_t)STEPS * 3 * 2 * SIZE * SIZE * SIZE);
    assert_int_equal(number(db, "SELECT count(*) FROM op_buffer WHERE slot IN ('A', 'B', 'C') AND alloc IS NOT NULL"),
                     STEPS * 3 * 3);
    assert_true(number(db, "SELECT count(*) FROM cost_set") < 20);
    assert_int_equal(number(db, "SELECT calls FROM call_sum WHERE kind = 'gemm'"), STEPS * 3);
    finish(db);
}

static void a_database_in_memory_gives_the_same(void **state) {
    (void)state;
    sqlite3 *db = trace_in_a_file(), *copy;
    assert_int_equal(sqlite3_open(":memory:", &copy), SQLITE_OK);
    sqlite3_backup *backup = sqlite3_backup_init(copy, "main", db, "main");
    assert_int_equal(sqlite3_backup_step(backup, -1), SQLITE_DONE);
    sqlite3_backup_finish(backup);
    analyze(db);
    analyze(copy);
    char *a = found(db), *b = found(copy);
    assert_true(strlen(a) > 10000);
    assert_string_equal(a, b);
    sqlite3_free(a);
    sqlite3_free(b);
    sqlite3_close(copy);
    finish(db);
}

static void columns_that_are_added_are_read(void **state) {
    (void)state;
    sqlite3 *db = trace_in_a_file();
    analyze(db);
    char *a = found(db);
    run(db, "ALTER TABLE gemm DROP COLUMN amax_aux");
    analyze(db);
    char *b = found(db);
    assert_string_equal(a, b);
    assert_int_equal(number(db, "SELECT count(*) FROM pragma_table_info('gemm') WHERE name = 'amax_aux'"), 1);
    sqlite3_free(a);
    sqlite3_free(b);
    finish(db);
}

/* What is changed by hand counts, and shared rows stay those of the others. */
static void a_cost_that_is_changed_is_of_that_op_alone(void **state) {
    (void)state;
    sqlite3 *db = trace_in_a_file();
    analyze(db);
    int64_t sum = number(db, "SELECT sum(flops) FROM op_cost"), one = 2 * SIZE * SIZE * SIZE;
    run(db, "UPDATE op_cost SET flops = 5 WHERE op = 16");
    assert_int_equal(number(db, "SELECT sum(flops) FROM op_cost"), sum - one + 5);
    run(db, "DELETE FROM op_cost WHERE op = 16");
    assert_int_equal(number(db, "SELECT sum(flops) FROM op_cost"), sum - one);
    assert_int_equal(number(db, "SELECT count(*) FROM op_cost"), STEPS * CALLS - 1);
    run(db, "INSERT INTO op_cost(op, flops, matmul, grade) VALUES(16, 7, 1, 'exact')");
    assert_int_equal(number(db, "SELECT sum(flops) FROM op_cost"), sum - one + 7);
    assert_int_equal(number(db, "SELECT count(*) FROM op_buffer WHERE op = 16"), 3);
    assert_int_equal(number(db, "SELECT count(*) FROM op_sum"), 0);
    finish(db);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(costs_are_those_of_the_products),
        cmocka_unit_test(a_database_in_memory_gives_the_same),
        cmocka_unit_test(columns_that_are_added_are_read),
        cmocka_unit_test(a_cost_that_is_changed_is_of_that_op_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
