/* How figures of memory are printed: helpers of the commands memory and peak. */
#ifndef ACCT_ANALYZER_MEMORY_PRINT_H
#define ACCT_ANALYZER_MEMORY_PRINT_H

#include "analyzer/memory_peak.h"
#include "analyzer/report_print.h"

/* The index of a step by its place in r->steps; -1: null. */
void memory_print_step(struct emitter *e, const char *key, const char *label, const struct report *r, int64_t step);

/* An object of bytes by class under `key`; for people, values of an open table or of no table (LOOK_HIDDEN, LOOK_BARS).
 */
void memory_print_classes(struct emitter *e, const char *key, const char *label, enum emit_look look,
                          const int64_t *classes);

/* One piece: an object, a row of a table. at_ns: the moment to which ages refer. */
void memory_print_piece(struct emitter *e, const struct report *r, const struct memory_piece *p, int64_t at_ns);

#endif
