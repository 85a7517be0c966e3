/* How well pools and blocks that hold smaller pieces are used. Stream-ordered pools: what the driver told of them when
 * it was asked, and what the trace's allocations alone say. Blocks that the program cuts up itself (a sub-allocator):
 * by the lives of the contents that the analysis found in them. Bytes. One thread. Errors: -1 with one line in err. */
#ifndef ACCT_ANALYZER_MEMORY_POOLS_H
#define ACCT_ANALYZER_MEMORY_POOLS_H

#include "analyzer/emitter.h"
#include "analyzer/report_model.h"

/* One answer of the driver. */
struct pool_answer {
    int64_t ns, device, pool; /* handle */
    char why[32];
    int64_t reserved_bytes, used_bytes; /* REPORT_UNKNOWN */
    int64_t live_bytes;                 /* stream-ordered allocations of that device live by the trace; REPORT_UNKNOWN:
                                         * only for the last answers */
    int64_t largest_gap_bytes;          /* between live ones, by their addresses: what of the pool is known to lie there
                                         * unused in one piece, at least; REPORT_UNKNOWN: fewer than two are live */
};

/* A block whose contents change their class over time. */
struct pool_block {
    int64_t alloc, bytes;
    int64_t peak_used_bytes, peak_ns; /* the most of it that held something at a time */
    int64_t used_bytes;               /* at the run's peak */
    int64_t largest_free_bytes;       /* at the run's peak: in one piece */
};

struct memory_pools {
    struct pool_answer *answer;
    int64_t n_answers;
    int64_t ordered_peak_bytes, ordered_peak_ns; /* stream-ordered allocations live together, at most */
    struct pool_block *block;
    int64_t n_blocks;
};

int memory_pools_load(struct report *r, struct memory_pools *out, char *err, size_t err_len);
void memory_pools_free(struct memory_pools *p);
/* Lists `pools` and `sub_allocators`. */
void memory_pools_print(struct emitter *e, const struct memory_pools *p);

#endif
