/* Reads all rows of a query through an aggregate function of ours: SQLite hands the columns of each row to it from
 * within its loop, which takes two thirds of the time of stepping out of the statement for each row. */
#ifndef ACCT_ANALYZER_ATTR_SCAN_H
#define ACCT_ANALYZER_ATTR_SCAN_H

#include <sqlite3.h>
#include "analyzer/attr_pool.h"
#include "analyzer/cost_model.h"

/* Called once a row. Columns are valid during the call. It may take memory of the pool and run other statements of the
 * same connection, no further scan. */
typedef void scan_row(void *context, sqlite3_value **column);

/* SELECT columns FROM rest, in the order in which SQLite finds them (a table alone: by rowid). At most 100 columns. 0,
 * or negative with one line in err. When the pool has no memory it leaves by the pool's longjmp, with the statement
 * finalized. */
int scan_rows(struct pool *pool, sqlite3 *db, const char *columns, const char *rest, scan_row *row, void *context,
              char *err, size_t err_len);

int64_t scan_i64(sqlite3_value *v);                     /* ACCT_NULL_I64 for NULL */
int32_t scan_i32(sqlite3_value *v);                     /* ACCT_NULL_I32 for NULL or beyond */
static inline uint64_t scan_address(sqlite3_value *v) { /* 0 for NULL */
    return (uint64_t)sqlite3_value_int64(v);
}
static inline uint32_t scan_u32(sqlite3_value *v) {
    return (uint32_t)sqlite3_value_int64(v);
}
static inline const char *scan_text(sqlite3_value *v) { /* NULL for NULL */
    return (const char *)sqlite3_value_text(v);
}
uint32_t scan_enum(sqlite3_value *v, enum cost_enum of); /* 0 for NULL or an unknown text */

/* The last text of a column, and what it means: most rows have what the row before had. Zeroed: none. */
struct scan_memo {
    char text[16];
    uint32_t value;
};
uint32_t scan_enum_again(struct scan_memo *m, sqlite3_value *v, enum cost_enum of);

#endif
