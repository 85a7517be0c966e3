/* Writes buffer_set: operands of ops, as the view op_buffer shows them by way of op_set. Ops of different steps mostly
 * have the same operands in the same memory: these share one set of rows. One thread; errors: negative, one line in the
 * caller's err. */
#ifndef ACCT_ANALYZER_ATTR_SETS_H
#define ACCT_ANALYZER_ATTR_SETS_H

#include <sqlite3.h>
#include "analyzer/attr_rows.h"

struct sets_row {
    int64_t alloc, address, bytes; /* ACCT_NULL_I64: NULL */
    int64_t released; /* 1: the allocation ends in the trace, so the next step may have another one there */
    int16_t slot;
    int8_t mode;
};

struct sets;
int sets_open(struct sets **out, struct pool *pool, const struct rows *rows, sqlite3 *db, char *err, size_t err_len);
void sets_add(struct sets *s, const struct sets_row *row);
/* The rows added since the last call are those of `op`; *set: op_set.buffers, as at_event.set has it. with_told: the
 * trace has told others of it, which stay. */
int sets_end(struct sets *s, int64_t op, int with_told, int32_t *set);
void sets_close(struct sets *s);

#endif
