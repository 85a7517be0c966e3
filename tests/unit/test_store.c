/* The store: what a fresh trace contains, and that each kind of bad file is refused with its own code and a usable
 * line. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "trace/event_table.h"
#include "trace/store.h"

static char folder[64], path[128], err[512];

static int setup(void **state) {
    (void)state;
    strcpy(folder, "/tmp/acct-store-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/t.db", folder);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

static void create(void) {
    sqlite3 *db;
    assert_int_equal(store_create(&db, path, 0, err, sizeof err), 0);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

static void run_sql(const char *sql) {
    sqlite3 *db;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

static void write_file(const char *bytes, size_t n) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

static void refused(int write, int code, const char *what) {
    sqlite3 *db = (sqlite3 *)1;
    err[0] = 0;
    assert_int_equal(store_open(&db, path, write, err, sizeof err), code);
    assert_null(db);
    assert_non_null(strstr(err, path));
    assert_non_null(strstr(err, what));
    assert_null(strchr(err, '\n'));
}

static void fresh_trace_is_running(void **state) {
    (void)state;
    sqlite3 *db;
    sqlite3_int64 version = 0;
    create();
    assert_int_equal(store_open(&db, path, 0, err, sizeof err), 0);
    assert_int_equal(store_meta_int(db, "schema_version", &version), 0);
    assert_int_equal(version, STORE_SCHEMA_VERSION);
    char *running = store_meta_text(db, "state");
    assert_string_equal(running, "running");
    free(running);
    assert_null(store_meta_text(db, "nothing of this name"));
    assert_int_equal(store_meta_int(db, "nothing of this name", &version), 1);
    sqlite3_close(db);
}

/* A column for each field, in order, after the key: that is what the collector's INSERT relies on. */
static void detail_tables_have_the_events_fields(void **state) {
    (void)state;
    sqlite3 *db;
    create();
    assert_int_equal(store_open(&db, path, 0, err, sizeof err), 0);
    int tables = 0;
    for (int e = 0; e < ACCT_EV_COUNT; e++) {
        if (!event_has_table(e)) continue;
        sqlite3_stmt *stmt;
        char sql[64];
        snprintf(sql, sizeof sql, "SELECT * FROM %s", event_table[e].name);
        assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &stmt, NULL), SQLITE_OK);
        int keys = e == ACCT_EV_GEMM ? 2 : 1;
        assert_int_equal(sqlite3_column_count(stmt), keys + (int)event_table[e].field_count);
        for (uint32_t i = 0; i < event_table[e].field_count; i++)
            assert_string_equal(sqlite3_column_name(stmt, keys + (int)i), event_table[e].fields[i].name);
        sqlite3_finalize(stmt);
        tables++;
    }
    assert_int_equal(tables, 6); /* copy, memset, gemm, blas, workspace, launch */
    sqlite3_close(db);
}

static void existing_file_is_kept(void **state) {
    (void)state;
    sqlite3 *db;
    write_file("precious", 8);
    assert_int_equal(store_create(&db, path, 0, err, sizeof err), STORE_EEXISTS);
    assert_null(db);
    assert_non_null(strstr(err, "--force"));
    char back[16] = "";
    FILE *f = fopen(path, "r");
    assert_non_null(fgets(back, sizeof back, f));
    fclose(f);
    assert_string_equal(back, "precious");
    assert_int_equal(store_create(&db, path, 1, err, sizeof err), 0);
    sqlite3_close(db);
}

static void force_replaces_files_only(void **state) {
    (void)state;
    sqlite3 *db;
    assert_int_equal(store_create(&db, folder, 1, err, sizeof err), STORE_EEXISTS);
    assert_int_equal(access(folder, F_OK), 0);
}

static void bad_files_are_refused(void **state) {
    (void)state;
    refused(0, STORE_EIO, "No such file");
    refused(1, STORE_EIO, "No such file");
    write_file("", 0);
    refused(0, STORE_ENOTRACE, "empty");
    write_file("hello, world\n", 13);
    refused(0, STORE_ENOTRACE, "not a trace");
    unlink(path);
    run_sql("CREATE TABLE other(x)");
    refused(0, STORE_ENOTRACE, "not a trace of acct");
    unlink(path);
    create();
    run_sql("UPDATE meta SET value = value + 1 WHERE key = 'schema_version'");
    refused(0, STORE_ENEWER, "newer");
}

static void truncated_file_is_refused(void **state) {
    (void)state;
    create();
    run_sql("PRAGMA journal_mode=DELETE");
    assert_int_equal(truncate(path, 8192), 0);
    refused(0, STORE_ENOTRACE, "truncated");
    refused(1, STORE_ENOTRACE, "truncated");
    assert_int_equal(truncate(path, 50), 0);
    refused(0, STORE_ENOTRACE, "not a trace");
}

static void folder_is_no_trace(void **state) {
    (void)state;
    strcpy(path, folder);
    refused(0, STORE_ENOTRACE, "folder");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(fresh_trace_is_running, setup, teardown),
        cmocka_unit_test_setup_teardown(detail_tables_have_the_events_fields, setup, teardown),
        cmocka_unit_test_setup_teardown(existing_file_is_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(force_replaces_files_only, setup, teardown),
        cmocka_unit_test_setup_teardown(bad_files_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(truncated_file_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(folder_is_no_trace, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
