/* Live bytes by class over time, as a table: every moment at which something changes, or some of them. One thread. */
#ifndef ACCT_ANALYZER_MEMORY_TIMELINE_H
#define ACCT_ANALYZER_MEMORY_TIMELINE_H

#include "analyzer/emitter.h"
#include "analyzer/memory_sweep.h"

/* samples 0: every moment. Otherwise the time from the first moment to the last is cut into that many equal pieces, and
 * of each piece in which something changes the moment of its greatest total is printed, so that no peak is left out: at
 * most `samples` rows. In CSV, where nothing else has been printed, a table of its own; else the list `timeline`. */
void memory_timeline_print(struct emitter *e, const struct report *r, const struct memory_sweep *s, int64_t samples);

#endif
