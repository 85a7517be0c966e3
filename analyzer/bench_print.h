#ifndef ACCT_ANALYZER_BENCH_PRINT_H
#define ACCT_ANALYZER_BENCH_PRINT_H

#include "analyzer/bench_results.h"
#include "analyzer/emitter.h"

/* The whole document: device, tables, notes. saved: the profile that was written, under the name saved_path; NULL:
 * none. Keys: docs/JSON.md. */
void bench_print(struct emitter *e, const struct bench_results *r, double wanted_seconds,
                 const struct acct_device *saved, const char *saved_path);

#endif
