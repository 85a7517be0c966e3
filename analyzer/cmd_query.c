/* acct query [--format F] TRACE SQL: one statement, reading only. */
#include "analyzer/command.h"
#include "analyzer/emitter.h"
#include "trace/store.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPT_FORMAT };
static const struct option_spec options[] = {
    [OPT_FORMAT] = {"format", 'f', OPTION_VALUE, "FORMAT", "table (default), csv or json"},
    {0},
};

/* Pragmas that only tell something; with an argument that is a name, not a new value. */
static int harmless_pragma(const char *name) {
    static const char *const names[] = {"table_info",     "table_xinfo",       "table_list",       "index_list",
                                        "index_info",     "index_xinfo",       "foreign_key_list", "integrity_check",
                                        "quick_check",    "foreign_key_check", "database_list",    "function_list",
                                        "compile_options"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(names[i], name)) return 1;
    return 0;
}

static int authorize(void *none, int action, const char *a, const char *b, const char *c, const char *d) {
    (void)none, (void)c, (void)d;
    switch (action) {
    case SQLITE_SELECT:
    case SQLITE_READ:
    case SQLITE_RECURSIVE:
    case SQLITE_FUNCTION:
        return SQLITE_OK;
    case SQLITE_PRAGMA:
        return !b || harmless_pragma(a) ? SQLITE_OK : SQLITE_DENY;
    default:
        return SQLITE_DENY;
    }
}

static int fail_sql(const struct arguments *args, sqlite3 *db, const char *path, const char *sql) {
    int at = sqlite3_error_offset(db);
    const char *what = sqlite3_errmsg(db);
    if (sqlite3_errcode(db) == SQLITE_AUTH)
        return cmd_fail(args->command, CMD_EXIT_FAILED, "%s: only reading is allowed here; change a copy with sqlite3",
                        path);
    if (at >= 0 && (size_t)at <= strlen(sql))
        return cmd_fail(args->command, CMD_EXIT_FAILED, "%s: %s, at character %d of the SQL: %.40s", path, what, at + 1,
                        sql + at);
    return cmd_fail(args->command, CMD_EXIT_FAILED,
                    "%s: %s; `acct query TRACE 'select sql from sqlite_schema'` lists tables and columns", path, what);
}

static void print_blob(struct emitter *e, const char *name, const unsigned char *bytes, int n) {
    char *hex = emit_alloc(NULL, (size_t)n * 2 + 4);
    size_t k = 0;
    hex[k++] = 'x', hex[k++] = '\'';
    for (int i = 0; i < n; i++, k += 2) snprintf(hex + k, 3, "%02x", bytes[i]);
    hex[k++] = '\'', hex[k] = 0;
    emit_text(e, name, name, hex);
    free(hex);
}

static void print_column(struct emitter *e, sqlite3_stmt *st, int i) {
    const char *name = sqlite3_column_name(st, i);
    switch (sqlite3_column_type(st, i)) {
    case SQLITE_INTEGER:
        emit_int(e, name, name, UNIT_NONE, sqlite3_column_int64(st, i));
        break;
    case SQLITE_FLOAT:
        emit_real(e, name, name, UNIT_NONE, sqlite3_column_double(st, i));
        break;
    case SQLITE_TEXT:
        emit_text(e, name, name, (const char *)sqlite3_column_text(st, i));
        break;
    case SQLITE_BLOB:
        print_blob(e, name, sqlite3_column_blob(st, i), sqlite3_column_bytes(st, i));
        break;
    default:
        emit_null(e, name, name);
    }
}

static void print_header(struct emitter *e, sqlite3_stmt *st) {
    int n = sqlite3_column_count(st);
    const char **names = emit_alloc(NULL, (size_t)(n + 1) * sizeof *names);
    for (int i = 0; i < n; i++) names[i] = sqlite3_column_name(st, i);
    emit_columns(e, n, names);
    free(names);
}

static int print_rows(const struct arguments *args, sqlite3 *db, sqlite3_stmt *st, const char *sql,
                      enum emit_format format) {
    struct emitter e;
    int rc;
    emit_begin(&e, stdout, format);
    e.null_word = "NULL";
    emit_list(&e, "", NULL, LOOK_TABLE);
    print_header(&e, st);
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        emit_object(&e, "", NULL, LOOK_FIELDS);
        for (int i = 0; i < sqlite3_column_count(st); i++) print_column(&e, st, i);
        emit_end(&e);
    }
    emit_finish(&e);
    return rc == SQLITE_DONE ? 0 : fail_sql(args, db, args->operands[0], sql);
}

static int query_open(const struct arguments *args, sqlite3 *db, enum emit_format format) {
    const char *sql = args->operands[1], *rest;
    sqlite3_stmt *st;
    int code;
    sqlite3_exec(db, "PRAGMA query_only = 1", NULL, NULL, NULL);
    sqlite3_set_authorizer(db, authorize, NULL);
    if (sqlite3_prepare_v2(db, sql, -1, &st, &rest) != SQLITE_OK) return fail_sql(args, db, args->operands[0], sql);
    while (isspace((unsigned char)*rest) || *rest == ';') rest++;
    if (!st)
        code = cmd_fail(args->command, CMD_EXIT_USAGE, "the SQL is empty; give a SELECT statement");
    else if (*rest)
        code = cmd_fail(args->command, CMD_EXIT_USAGE, "one statement at a time; left over: %.40s", rest);
    else
        code = print_rows(args, db, st, sql, format);
    sqlite3_finalize(st);
    return code;
}

static int query(const struct arguments *args) {
    const char *wanted = args->given[OPT_FORMAT] ? args->value[OPT_FORMAT] : "table";
    enum emit_format format = EMIT_TEXT;
    char err[1024] = "";
    sqlite3 *db;
    int code;
    if (!strcmp(wanted, "csv"))
        format = EMIT_CSV;
    else if (!strcmp(wanted, "json"))
        format = EMIT_JSON;
    else if (strcmp(wanted, "table"))
        return cmd_fail(args->command, CMD_EXIT_USAGE, "--format %s: no such format; there are table, csv, json",
                        wanted);
    if (args->n_operands != 2)
        return cmd_fail(
            args->command, CMD_EXIT_USAGE,
            "a trace and one SQL statement are needed; type: acct query TRACE 'SELECT ...' (SQL in quotes)");
    if (store_open(&db, args->operands[0], 0, err, sizeof err) < 0)
        return cmd_fail(args->command, CMD_EXIT_FAILED, "%s", err);
    sqlite3_busy_timeout(db, 10000);
    code = query_open(args, db, format);
    sqlite3_close(db);
    return code;
}

const struct command cmd_query = {
    .name = "query",
    .synopsis = "run one SQL statement on a trace, reading only",
    .usage = "[--format table|csv|json] TRACE SQL",
    .details = "Tables and columns: docs/FORMAT.md, or acct query TRACE 'SELECT name, sql FROM sqlite_schema'.\n",
    .options = options,
    .usage_exit = CMD_EXIT_USAGE,
    .function = query,
};
