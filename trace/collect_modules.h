/* Modules and kernels of the traced program: MODULE, MODULE_PART and KERNEL records become rows of `module`, `ptx` and
 * `kernel`. A module's text is read from the file that it names, or put together from its pieces; either way it is kept
 * only if it has the size and the hash that the program told. Until then the row says why it has none. One thread. */
#ifndef ACCT_TRACE_COLLECT_MODULES_H
#define ACCT_TRACE_COLLECT_MODULES_H

#include "trace/ring_read.h"

struct rows;
struct modules;

struct modules *modules_new(void); /* NULL: no memory */
void modules_delete(struct modules *m);

/* A record of one of the three events, into the open transaction. */
void modules_record(struct rows *r, const struct ring_record *rec);

#endif
