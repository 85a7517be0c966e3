/* Values of the wire bound to the parameters of a statement: what is "not known" there becomes NULL here. Parameters
 * count from 1. Texts must live until the statement is stepped. */
#ifndef ACCT_TRACE_COLLECT_BIND_H
#define ACCT_TRACE_COLLECT_BIND_H

#include <stdint.h>
#include <sqlite3.h>
#include "trace/ring_read.h"

void bind_id(sqlite3_stmt *s, int i, int64_t id); /* 0: NULL */
void bind_i64(sqlite3_stmt *s, int i, int64_t v);
void bind_i32(sqlite3_stmt *s, int i, int32_t v);
void bind_constant(sqlite3_stmt *s, int i, const char *text); /* NULL: NULL */
void bind_enum(sqlite3_stmt *s, int i, enum event_type type, uint32_t v);
void bind_text(sqlite3_stmt *s, int i, const struct ring_text *t); /* made valid UTF-8 */
void bind_blob(sqlite3_stmt *s, int i, const struct ring_text *t); /* as it is */
void bind_json(sqlite3_stmt *s, int i, const struct ring_text *t, char *(*json)(const char *, size_t));

/* All fields of the record, from parameter `first` on. */
void bind_fields(sqlite3_stmt *s, int first, const struct ring_record *rec);

#endif
