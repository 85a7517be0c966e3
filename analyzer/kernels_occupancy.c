/* How many warps of a kernel a multiprocessor holds at once. */
#include "analyzer/kernels_rows.h"

#include <math.h>

#include "acct/device_table.h"

enum {
    WARP = 32,
    WARP_REGISTERS = 256, /* what a warp's registers are given out in */
    THREAD_REGISTERS = 255
};

static int64_t up(int64_t n, int64_t granule) {
    return (n + granule - 1) / granule * granule;
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

double kernels_occupancy(int64_t capability, int64_t threads, int64_t registers, int64_t static_shared,
                         int64_t dynamic_shared) {
    const struct acct_sm *sm = capability > 0 ? acct_sm_find((unsigned)capability) : NULL;
    if (!sm || threads <= 0 || threads > ACCT_BLOCK_THREADS || registers < 0 || registers > THREAD_REGISTERS ||
        static_shared < 0 || static_shared > sm->shared_bytes || dynamic_shared < 0 ||
        dynamic_shared > sm->shared_bytes)
        return NAN;
    int64_t warps = up(threads, WARP) / WARP;
    int64_t shared = up(static_shared + dynamic_shared + sm->shared_reserved_bytes, sm->shared_granule);
    int64_t blocks = least(sm->blocks, sm->threads / WARP / warps);
    if (registers > 0) /* a quarter of them in each part of the multiprocessor */
        blocks =
            least(blocks, sm->registers / ACCT_SM_PARTS / up(registers * WARP, WARP_REGISTERS) * ACCT_SM_PARTS / warps);
    if (shared > 0) blocks = least(blocks, (int64_t)sm->shared_bytes / shared);
    return (double)(blocks * warps) / (double)(sm->threads / WARP);
}
