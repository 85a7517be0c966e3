/* Prints a report through the emitter: one sequence of calls for all formats. */
#ifndef ACCT_ANALYZER_REPORT_PRINT_H
#define ACCT_ANALYZER_REPORT_PRINT_H

#include "analyzer/emitter.h"
#include "analyzer/report_model.h"

/* One trace as an object (JSON schema 1). 0, or -1 with one line in err when the blocks cannot be read. */
int report_print(struct emitter *e, struct report *r, char *err, size_t err_len);

/* Memory at the run's peak by class. */
void report_print_memory(struct emitter *e, const struct report_memory *m, const char *key, const char *label,
                         enum emit_look look);

/* The lines of a run's figures, medians with their spread. */
void report_print_run(struct emitter *e, const struct report *r);

/* REPORT_UNKNOWN: null. */
void report_print_int(struct emitter *e, const char *key, const char *label, enum emit_unit unit, int64_t value);
/* An amount with its bounds: `key` (the least) and `key`_most, both null where something is uncounted. */
void report_print_sum(struct emitter *e, const char *key, const char *label, const struct report_sum *s);
/* Of a step. */
void report_print_flops(struct emitter *e, const struct report *r, const struct report_flops *f);
void report_print_functions(struct emitter *e, const struct report *r);
void report_print_coverage(struct emitter *e, const struct report *r);

void report_print_device_peaks(struct emitter *e, const struct report *r); /* report_devices.c */

#endif
