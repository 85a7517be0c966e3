/* The shared memory of a trace, and handing it to the collector. */
#ifndef ACCT_PRELOAD_RENDEZVOUS_H
#define ACCT_PRELOAD_RENDEZVOUS_H

#include <stddef.h>
#include "preload/life.h"

/* Makes the memory, finds or starts a collector, waits (ACCT_START_TIMEOUT) until it has mapped the memory. 0, with *t
 * filled; or -1 with one line in why. All signals must be blocked. Nothing is left behind on failure. */
int rendezvous(struct life_trace *t, char *why, size_t why_len);

#endif
