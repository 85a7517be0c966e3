/* What the driver says is used of a device, split into what the trace knows of it. Bytes; REPORT_UNKNOWN where it is
 * not known. One thread. Errors: -1 with one line in err. */
#ifndef ACCT_ANALYZER_MEMORY_RECONCILE_H
#define ACCT_ANALYZER_MEMORY_RECONCILE_H

#include "analyzer/emitter.h"
#include "analyzer/report_model.h"

struct memory_reconciliation {
    int known; /* 0: not possible, and `why_not` says why; all below is empty then */
    char why_not[160];
    char when[32]; /* meminfo.why of the question */
    int64_t ns, device;
    int64_t device_total_bytes, device_used_bytes; /* by the driver */
    int64_t ours;                                  /* live in the trace: device, async and array allocations */
    int64_t classes[REPORT_CLASSES];               /* of it */
    int64_t managed_bytes;                         /* live, not in `ours`: where its pages lie is not known */
    int64_t pool_slack;                            /* what pools hold and is in no allocation, and `rounding` */
    int64_t rounding;    /* the device gives memory in pieces of 2 MiB: an estimate, never more than what is left */
    int64_t tool;        /* acct's own, of CUPTI; REPORT_UNKNOWN: in `context`, not told apart */
    int64_t context;     /* used when the program first used the device, less what it had then: its context, with
                          * whatever other processes had; REPORT_UNKNOWN: in `unexplained` */
    int64_t unexplained; /* the rest, never < 0 */
};

int memory_reconcile(struct report *r, struct memory_reconciliation *out, char *err, size_t err_len);
/* The object `reconciliation`, or null. */
void memory_print_reconciliation(struct emitter *e, const struct memory_reconciliation *m);

/* What cudaMalloc takes from a device beyond what was asked for: n allocations of `bytes` each (sizes given in turn). A
 * model: more than 1 MiB takes whole pieces of 2 MiB; smaller ones share such pieces, in units of 512 bytes. */
struct memory_rounding {
    int64_t large, small, asked;
};
void memory_rounding_add(struct memory_rounding *m, int64_t bytes);
int64_t memory_rounding_bytes(const struct memory_rounding *m);

#endif
