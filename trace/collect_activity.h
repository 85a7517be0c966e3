/* What the device did: CUPTI, NAME, CORRELATION and ACTIVITY records become rows of `activity` and `correlation` and
 * keys of `meta`. Names are numbers on the wire and texts in the trace. A name may come after an activity that has it
 * (from another thread's ring): such rows get it then. One thread. */
#ifndef ACCT_TRACE_COLLECT_ACTIVITY_H
#define ACCT_TRACE_COLLECT_ACTIVITY_H

#include "trace/ring_read.h"

struct rows;
struct activities;

struct activities *activities_new(void); /* NULL: no memory */
void activities_delete(struct activities *a);

/* A record of one of the four events, into the open transaction. */
void activities_record(struct rows *r, const struct ring_record *rec);

#endif
