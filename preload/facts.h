/* The INFO records: what the process and its devices are; and rings made safe to touch. Called with the hook's depth
 * raised. */
#ifndef ACCT_PRELOAD_FACTS_H
#define ACCT_PRELOAD_FACTS_H

#include "trace/ring.h"

/* Writes PROCESS, the first record of a trace. */
void facts_tell_process(struct ring_writer *w);

/* The runtime's current device, or -1. */
int facts_current_device(void);
/* Asks the runtime about the device, and writes what it knows. */
void facts_tell_device(struct ring_writer *w, int ordinal);

/* Makes pages present, so that a machine out of memory is an error here and no SIGBUS later. 0: out of memory. */
int facts_make_present(void *start, size_t bytes);

/* ring_claim, with the page of the ring's header present. Ring number, or -1. */
int facts_claim_ring(struct acct_control *c);

#endif
