/* Attributes of functions, and how many blocks of one a multiprocessor holds. */
#include "vgpu/vgpu_profile.h"
#include "vgpu/vgpu_run.h"

#include <string.h>

/* The same for every compute capability; what differs is in vgpu_profile()->limits. */
enum { WARP_REGISTER_GRANULE = 256, SHARED_BYTES = ACCT_BLOCK_SHARED_BYTES };

static const struct acct_sm *limits(void) {
    return &vgpu_profile()->limits;
}

static cudaError_t ready(const void *function, struct vgpu_kernel **k) {
    cudaError_t e = vgpu_kernel_find(function, k);
    return e ? e : vgpu_kernel_ready(*k);
}

static int max_threads(const struct ptx_function *f) {
    const uint32_t *n = f->required_threads[0] ? f->required_threads : f->max_threads;
    uint32_t threads = n[0] * (n[1] ? n[1] : 1) * (n[2] ? n[2] : 1);
    return threads && threads < ACCT_BLOCK_THREADS ? (int)threads : ACCT_BLOCK_THREADS;
}

static int max_dynamic(const struct vgpu_kernel *k) {
    if (k->max_dynamic_shared >= 0) return k->max_dynamic_shared;
    return k->f->shared_bytes > SHARED_BYTES ? 0 : SHARED_BYTES - (int)k->f->shared_bytes;
}

static size_t const_bytes(const struct ptx_module *m) {
    size_t bytes = 0;
    for (int32_t i = 0; i < m->var_count; i++)
        if (m->vars[i].space == PTX_CONST && !m->vars[i].external) bytes += m->vars[i].bytes;
    return bytes;
}

/* numRegs is an estimate (vgpu_run_registers.c): PTX does not tell. */
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *out, const void *function) {
    struct vgpu_kernel *k;
    if (!out) return cudaErrorInvalidValue;
    cudaError_t e = ready(function, &k);
    if (e) return e;
    const struct ptx_module *m = vgpu_kernel_module(k);
    *out = (struct cudaFuncAttributes){.sharedSizeBytes = k->f->shared_bytes,
                                       .constSizeBytes = const_bytes(m),
                                       .localSizeBytes = k->local_bytes,
                                       .maxThreadsPerBlock = max_threads(k->f),
                                       .numRegs = (int)k->registers,
                                       .ptxVersion = (int)m->sm,
                                       .binaryVersion = (int)vgpu_run_sm(),
                                       .maxDynamicSharedSizeBytes = max_dynamic(k),
                                       .preferredShmemCarveout = k->carveout};
    return cudaSuccess;
}

static cudaError_t set_dynamic(struct vgpu_kernel *k, int value) {
    if (value < 0 || (uint32_t)value + k->f->shared_bytes > limits()->shared_optin_bytes) return cudaErrorInvalidValue;
    k->max_dynamic_shared = value;
    return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute, int value) {
    struct vgpu_kernel *k;
    cudaError_t e = ready(function, &k);
    if (e) return e;
    switch (attribute) {
    case cudaFuncAttributeMaxDynamicSharedMemorySize:
        return set_dynamic(k, value);
    case cudaFuncAttributePreferredSharedMemoryCarveout:
        if (value < cudaSharedmemCarveoutDefault || value > cudaSharedmemCarveoutMaxShared)
            return cudaErrorInvalidValue;
        k->carveout = value;
        return cudaSuccess;
    case cudaFuncAttributeNonPortableClusterSizeAllowed: /* clusters are not launched anyway */
    case cudaFuncAttributeClusterSchedulingPolicyPreference:
        return cudaSuccess;
    default:
        vgpu_say("cudaFuncSetAttribute: attribute %d of %s is not implemented", (int)attribute, k->name);
        return cudaErrorNotSupported;
    }
}

cudaError_t cudaFuncSetCacheConfig(const void *function, enum cudaFuncCache config) {
    struct vgpu_kernel *k;
    if ((unsigned)config > cudaFuncCachePreferEqual) return cudaErrorInvalidValue;
    cudaError_t e = vgpu_kernel_find(function, &k);
    if (!e) k->cache_config = config; /* a hint */
    return e;
}

static int device_cache_config;

cudaError_t cudaDeviceSetCacheConfig(enum cudaFuncCache config) {
    if ((unsigned)config > cudaFuncCachePreferEqual) return cudaErrorInvalidValue;
    device_cache_config = config;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetCacheConfig(enum cudaFuncCache *config) {
    if (!config) return cudaErrorInvalidValue;
    *config = (enum cudaFuncCache)device_cache_config;
    return cudaSuccess;
}

/* ---- occupancy: the formulas of the vendor's cuda_occupancy.h ---- */

static int up(int n, int granule) {
    return (n + granule - 1) / granule * granule;
}

static int block_shared(const struct vgpu_kernel *k, size_t dynamic) {
    size_t bytes = k->f->shared_bytes + limits()->shared_reserved_bytes + dynamic;
    return up((int)bytes, (int)limits()->shared_granule);
}

/* Shared memory comes out of one storage with the L1 cache, in steps: the smallest that holds `bytes`. */
static int shared_step(int bytes) {
    static const int steps_kib[] = {0, 8, 16, 32, 64, 100, 132, 164, 196, 228};
    int most = (int)limits()->shared_bytes, least = limits()->sm == 75 ? 32 << 10 : 0;
    for (size_t i = 0; i < sizeof steps_kib / sizeof *steps_kib; i++) {
        int step = steps_kib[i] << 10;
        if (step >= bytes && step >= least && step < most) return step;
    }
    return most;
}

/* Of a multiprocessor, as the function prefers it (a percentage, or the older preference of a cache); never so little
 * that one block would not fit. */
static int sm_shared(const struct vgpu_kernel *k, int block) {
    static const int by_config[] = {[cudaFuncCachePreferNone] = -1,
                                    [cudaFuncCachePreferShared] = 100,
                                    [cudaFuncCachePreferL1] = 0,
                                    [cudaFuncCachePreferEqual] = 50};
    int percent = k->carveout >= 0 ? k->carveout : by_config[k->cache_config];
    int most = (int)limits()->shared_bytes;
    int wanted = percent < 0 ? most : shared_step((int)((int64_t)most * percent / 100));
    return wanted >= block ? wanted : shared_step(block);
}

/* Warps are spread over four partitions, each with a quarter of the registers, which a warp gets in granules. */
static int blocks_by_registers(const struct vgpu_kernel *k, int warps) {
    int each = up((int)k->registers * VGPU_WARP, WARP_REGISTER_GRANULE);
    return limits()->registers / ACCT_SM_PARTS / each * ACCT_SM_PARTS / warps;
}

static int least(int a, int b) {
    return a < b ? a : b;
}

static cudaError_t check_block(const struct vgpu_kernel *k, int block, size_t dynamic) {
    return block < 1 || block > max_threads(k->f) || dynamic > limits()->shared_optin_bytes ? cudaErrorInvalidValue
                                                                                            : cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *function, int block_size,
                                                                   size_t dynamic, unsigned int flags) {
    struct vgpu_kernel *k;
    if (!blocks || (flags & ~(unsigned)cudaOccupancyDisableCachingOverride)) return cudaErrorInvalidValue;
    cudaError_t e = ready(function, &k);
    if (e) return e;
    if (block_size < 1) return cudaErrorInvalidValue;
    *blocks = 0;
    if (check_block(k, block_size, dynamic) || (int)dynamic > max_dynamic(k)) return cudaSuccess; /* none fits */
    int warps = up(block_size, VGPU_WARP) / VGPU_WARP;
    int n = least(limits()->blocks, limits()->threads / VGPU_WARP / warps), shared = block_shared(k, dynamic);
    if (shared) n = least(n, sm_shared(k, shared) / shared);
    *blocks = least(n, blocks_by_registers(k, warps));
    return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function, int block_size,
                                                          size_t dynamic) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, block_size, dynamic,
                                                                  cudaOccupancyDefault);
}

/* The most dynamic shared memory with which `blocks` blocks still fit. */
cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t *dynamic, const void *function, int blocks,
                                                      int block_size) {
    struct vgpu_kernel *k;
    if (!dynamic || blocks < 1) return cudaErrorInvalidValue;
    cudaError_t e = ready(function, &k);
    if (e) return e;
    if (check_block(k, block_size, 0)) return cudaErrorInvalidValue;
    int warps = up(block_size, VGPU_WARP) / VGPU_WARP;
    const struct acct_sm *sm = limits();
    if (blocks > least(sm->blocks, sm->threads / VGPU_WARP / warps)) return cudaErrorInvalidValue;
    int granule = (int)sm->shared_granule;
    int each = (int)sm->shared_bytes / blocks / granule * granule - (int)sm->shared_reserved_bytes;
    int rest = least(each, (int)sm->shared_optin_bytes) - (int)k->f->shared_bytes;
    *dynamic = rest > 0 ? (size_t)rest : 0;
    return cudaSuccess;
}
