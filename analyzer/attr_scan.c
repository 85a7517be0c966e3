#include "analyzer/attr_scan.h"

#include <stdio.h>
#include <string.h>
#include "analyzer/attr_sql.h"

#define FUNCTION "acct_scan"

struct scan {
    struct pool *pool;
    scan_row *row;
    void *context;
    int failed; /* the pool has no memory */
};

/* A longjmp must not cross SQLite's frames: the pool's leads here, and the statement ends with an error. */
static void take_row(sqlite3_context *c, int columns, sqlite3_value **column) {
    struct scan *s = sqlite3_user_data(c);
    (void)columns;
    if (s->failed) return;
    if (!setjmp(s->pool->failed)) {
        s->row(s->context, column);
        return;
    }
    s->failed = 1;
    sqlite3_result_error_nomem(c);
}

static void no_result(sqlite3_context *c) {
    sqlite3_result_null(c);
}

static int run_scan(sqlite3 *db, const char *columns, const char *rest, char *err, size_t err_len) {
    sqlite3_stmt *st;
    char *sql = sqlite3_mprintf("SELECT " FUNCTION "(%s) FROM %s", columns, rest);
    int rc = sql_prepare(db, &st, sql ? sql : "", err, err_len);
    sqlite3_free(sql);
    if (rc) return -1;
    rc = sql_row(db, st, err, err_len);
    sqlite3_finalize(st);
    return rc < 0 ? -1 : 0;
}

int scan_rows(struct pool *pool, sqlite3 *db, const char *columns, const char *rest, scan_row *row, void *context,
              char *err, size_t err_len) {
    struct scan s = {pool, row, context, 0};
    jmp_buf outer;
    if (sqlite3_create_function(db, FUNCTION, -1, SQLITE_UTF8, &s, NULL, take_row, no_result)) {
        snprintf(err, err_len, "%s", sqlite3_errmsg(db));
        return -1;
    }
    memcpy(&outer, &pool->failed, sizeof outer);
    int rc = run_scan(db, columns, rest, err, err_len);
    memcpy(&pool->failed, &outer, sizeof outer);
    sqlite3_create_function(db, FUNCTION, -1, SQLITE_UTF8, NULL, NULL, NULL, NULL);
    if (s.failed) longjmp(pool->failed, 1);
    return rc;
}

int64_t scan_i64(sqlite3_value *v) {
    return sqlite3_value_type(v) == SQLITE_NULL ? ACCT_NULL_I64 : sqlite3_value_int64(v);
}

int32_t scan_i32(sqlite3_value *v) {
    int64_t n = scan_i64(v);
    return n < INT32_MIN || n > INT32_MAX ? ACCT_NULL_I32 : (int32_t)n;
}

uint32_t scan_enum(sqlite3_value *v, enum cost_enum of) {
    return cost_enum_value(of, scan_text(v));
}

uint32_t scan_enum_again(struct scan_memo *m, sqlite3_value *v, enum cost_enum of) {
    const char *text = scan_text(v);
    if (!text) return 0;
    if (*text && !strcmp(m->text, text)) return m->value;
    uint32_t value = cost_enum_value(of, text);
    if (strlen(text) < sizeof m->text) {
        strcpy(m->text, text);
        m->value = value;
    }
    return value;
}
