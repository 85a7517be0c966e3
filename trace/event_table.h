/* trace/events.def as data: what the collector needs to check a record and to make the columns and rows of its table.
 * Everything is constant; any thread. */
#ifndef ACCT_TRACE_EVENT_TABLE_H
#define ACCT_TRACE_EVENT_TABLE_H

#include <stddef.h>
#include <stdint.h>
#include "trace/wire.h"

/* The types of events.def. An enum that is missing here does not compile. */
enum event_type {
    EVENT_T_u64,
    EVENT_T_i64,
    EVENT_T_u32,
    EVENT_T_i32,
    EVENT_T_f64,
    EVENT_T_text,
    EVENT_T_bytes,
    EVENT_T_e_memory,
    EVENT_T_e_direction,
    EVENT_T_e_dtype,
    EVENT_T_e_compute,
    EVENT_T_e_trans,
    EVENT_T_e_scalar,
    EVENT_T_e_side,
    EVENT_T_e_uplo,
    EVENT_T_e_stream_act,
    EVENT_T_e_event_act,
    EVENT_T_e_sync_scope,
    EVENT_T_e_clock,
    EVENT_T_e_activity,
    EVENT_T_e_epilogue,
    EVENT_T_e_scale_mode,
    EVENT_T_e_meminfo_why,
    EVENT_TYPES
};
#define EVENT_T_FIRST_ENUM EVENT_T_e_memory
#define EVENT_T_IN_BLOB(t) ((t) == EVENT_T_text || (t) == EVENT_T_bytes) /* a struct acct_text on the wire */

enum event_class { EVENT_CLASS_INFO, EVENT_CLASS_OP };

struct event_field {
    const char *name;
    enum event_type type;
    uint32_t offset; /* in the record, bytes */
    const char *doc;
};

struct event_info {
    const char *name;
    enum event_class class;
    uint32_t bytes; /* of the record as this version knows it */
    uint32_t field_count;
    const struct event_field *fields; /* in the order of the record */
    const char *doc;
};

extern const struct event_info event_table[ACCT_EV_COUNT];

/* 1: the event's fields are a table of their own in the database (schema.sql, at the top); 0: they are columns of `op`
 * or rows of a table of schema.sql. */
int event_has_table(enum acct_event event);

/* The database's text for a value of an enum type; NULL for 0 ("not known") and for values that do not exist. */
const char *event_enum_text(enum event_type type, uint32_t value);

/* 1 if the value is 0 or one that events.def names. */
int event_enum_known(enum event_type type, uint32_t value);

#endif
