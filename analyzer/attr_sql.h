/* Small helpers over SQLite for the files that load and write. */
#ifndef ACCT_ANALYZER_ATTR_SQL_H
#define ACCT_ANALYZER_ATTR_SQL_H

#include <stddef.h>
#include <stdint.h>
#include <sqlite3.h>
#include "analyzer/cost_model.h"

/* All: 0, or negative with one line in err. */
int sql_prepare(sqlite3 *db, sqlite3_stmt **st, const char *sql, char *err, size_t err_len);
int sql_run(sqlite3 *db, const char *sql, char *err, size_t err_len);
/* 1: a row; 0: the end; negative: an error. */
int sql_row(sqlite3 *db, sqlite3_stmt *st, char *err, size_t err_len);
/* Executes a prepared insert and makes it ready for the next. */
int sql_insert(sqlite3 *db, sqlite3_stmt *st, char *err, size_t err_len);

/* Inserts many rows, a few dozen a statement: of a row of two numbers half the time is the statement's. The values of a
 * row are given in the order of the columns, then sql_many_row. Texts must live until sql_many_close, which writes what
 * is left and frees; after an error of _open too. */
enum { SQL_MANY_ROWS = 32, SQL_MANY_COLUMNS = 16 };
struct sql_many {
    sqlite3 *db;
    sqlite3_stmt *many, *one;
    char *err;
    size_t err_len;
    int columns, values; /* values: kept */
    struct {
        const char *text; /* NULL: a number */
        int64_t number;   /* ACCT_NULL_I64: NULL */
    } value[SQL_MANY_ROWS * SQL_MANY_COLUMNS];
};
/* insert: `INSERT INTO table(columns)`. */
int sql_many_open(struct sql_many *m, sqlite3 *db, const char *insert, int columns, char *err, size_t err_len);
void sql_many_number(struct sql_many *m, int64_t number);
void sql_many_text(struct sql_many *m, const char *text); /* NULL: NULL */
int sql_many_row(struct sql_many *m);
int sql_many_close(struct sql_many *m, int rc); /* rc: that of the rows; returned if it is not 0 */

int sql_has_table(sqlite3 *db, const char *name);

int64_t sql_i64(sqlite3_stmt *st, int column);                      /* ACCT_NULL_I64 for NULL */
int32_t sql_i32(sqlite3_stmt *st, int column);                      /* ACCT_NULL_I32 for NULL or beyond */
uint32_t sql_enum(sqlite3_stmt *st, int column, enum cost_enum of); /* 0 for NULL or an unknown text */
void sql_bind(sqlite3_stmt *st, int place, int64_t value);          /* NULL for ACCT_NULL_I64 */

#endif
