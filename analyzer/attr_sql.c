/* Small helpers over SQLite. */
#include "analyzer/attr_sql.h"

#include <stdio.h>

static int fail(sqlite3 *db, char *err, size_t err_len) {
    const char *file = sqlite3_db_filename(db, "main");
    snprintf(err, err_len, "%s: %s", file && *file ? file : "trace", sqlite3_errmsg(db));
    return -1;
}

int sql_prepare(sqlite3 *db, sqlite3_stmt **st, const char *sql, char *err, size_t err_len) {
    return sqlite3_prepare_v2(db, sql, -1, st, NULL) == SQLITE_OK ? 0 : fail(db, err, err_len);
}

int sql_run(sqlite3 *db, const char *sql, char *err, size_t err_len) {
    return sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : fail(db, err, err_len);
}

int sql_row(sqlite3 *db, sqlite3_stmt *st, char *err, size_t err_len) {
    int rc = sqlite3_step(st);
    if (rc == SQLITE_ROW) return 1;
    return rc == SQLITE_DONE ? 0 : fail(db, err, err_len);
}

int sql_insert(sqlite3 *db, sqlite3_stmt *st, char *err, size_t err_len) {
    int rc = sqlite3_step(st) == SQLITE_DONE ? 0 : fail(db, err, err_len);
    sqlite3_reset(st);
    return rc;
}

/* ---- many rows ---- */

static int prepare_rows(struct sql_many *m, sqlite3_stmt **st, const char *insert, int rows) {
    char sql[512 + SQL_MANY_ROWS * (2 * SQL_MANY_COLUMNS + 2)];
    int n = snprintf(sql, 512, "%s VALUES", insert);
    for (int r = 0; r < rows; r++) {
        for (int c = 0; c < m->columns; c++) n += sprintf(sql + n, c ? ",?" : r ? ",(?" : "(?");
        n += sprintf(sql + n, ")");
    }
    return sql_prepare(m->db, st, sql, m->err, m->err_len);
}

int sql_many_open(struct sql_many *m, sqlite3 *db, const char *insert, int columns, char *err, size_t err_len) {
    m->db = db;
    m->many = m->one = NULL;
    m->err = err;
    m->err_len = err_len;
    m->columns = columns;
    m->values = 0;
    return prepare_rows(m, &m->many, insert, SQL_MANY_ROWS) || prepare_rows(m, &m->one, insert, 1) ? -1 : 0;
}

void sql_many_number(struct sql_many *m, int64_t number) {
    m->value[m->values].text = NULL;
    m->value[m->values++].number = number;
}

void sql_many_text(struct sql_many *m, const char *text) {
    m->value[m->values].text = text;
    m->value[m->values++].number = ACCT_NULL_I64;
}

static int insert_values(struct sql_many *m, sqlite3_stmt *st, int from, int values) {
    for (int i = 0; i < values; i++) {
        if (m->value[from + i].text)
            sqlite3_bind_text(st, i + 1, m->value[from + i].text, -1, SQLITE_STATIC);
        else
            sql_bind(st, i + 1, m->value[from + i].number);
    }
    return sql_insert(m->db, st, m->err, m->err_len);
}

int sql_many_row(struct sql_many *m) {
    if (m->values < SQL_MANY_ROWS * m->columns) return 0;
    int rc = insert_values(m, m->many, 0, m->values);
    m->values = 0;
    return rc;
}

int sql_many_close(struct sql_many *m, int rc) {
    for (int i = 0; i < m->values && !rc; i += m->columns) rc = insert_values(m, m->one, i, m->columns);
    sqlite3_finalize(m->many);
    sqlite3_finalize(m->one);
    m->many = m->one = NULL;
    m->values = 0;
    return rc;
}

int sql_has_table(sqlite3 *db, const char *name) {
    sqlite3_stmt *st;
    if (sqlite3_prepare_v2(db, "SELECT 1 FROM sqlite_master WHERE type IN ('table', 'view') AND name = ?", -1, &st,
                           NULL))
        return 0;
    sqlite3_bind_text(st, 1, name, -1, SQLITE_STATIC);
    int found = sqlite3_step(st) == SQLITE_ROW;
    sqlite3_finalize(st);
    return found;
}

int64_t sql_i64(sqlite3_stmt *st, int column) {
    return sqlite3_column_type(st, column) == SQLITE_NULL ? ACCT_NULL_I64 : sqlite3_column_int64(st, column);
}

int32_t sql_i32(sqlite3_stmt *st, int column) {
    int64_t v = sql_i64(st, column);
    return v < INT32_MIN || v > INT32_MAX ? ACCT_NULL_I32 : (int32_t)v;
}

uint32_t sql_enum(sqlite3_stmt *st, int column, enum cost_enum of) {
    return cost_enum_value(of, (const char *)sqlite3_column_text(st, column));
}

void sql_bind(sqlite3_stmt *st, int place, int64_t value) {
    if (value == ACCT_NULL_I64)
        sqlite3_bind_null(st, place);
    else
        sqlite3_bind_int64(st, place, value);
}
