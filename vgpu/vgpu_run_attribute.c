/* Attributes of functions, and how many blocks of one a multiprocessor holds. */
#include "vgpu/vgpu_run.h"

#include <string.h>

/* Of compute capability 9.0. The part of shared memory that a block may have is cudaGetDeviceProperties's. */
enum { MAX_THREADS = 1024, SM_THREADS = 2048, SM_BLOCKS = 32, SM_REGISTERS = 65536, WARP_REGISTER_GRANULE = 256 };
enum { SM_SHARED = 228 << 10, BLOCK_SHARED_RESERVED = 1 << 10, SHARED_GRANULE = 128, SHARED_BYTES = 48 << 10 };
enum { SHARED_OPTIN = 227 << 10, SM_PARTITIONS = 4 };

static cudaError_t ready(const void *function, struct vgpu_kernel **k) {
    cudaError_t e = vgpu_kernel_find(function, k);
    return e ? e : vgpu_kernel_ready(*k);
}

static int max_threads(const struct ptx_function *f) {
    const uint32_t *n = f->required_threads[0] ? f->required_threads : f->max_threads;
    uint32_t threads = n[0] * (n[1] ? n[1] : 1) * (n[2] ? n[2] : 1);
    return threads && threads < MAX_THREADS ? (int)threads : MAX_THREADS;
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
    if (value < 0 || (uint32_t)value + k->f->shared_bytes > SHARED_OPTIN) return cudaErrorInvalidValue;
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

/* ---- occupancy ---- */

static int up(int n, int granule) {
    return (n + granule - 1) / granule * granule;
}

static int block_shared(const struct vgpu_kernel *k, size_t dynamic) {
    return up((int)(k->f->shared_bytes + dynamic), SHARED_GRANULE) + BLOCK_SHARED_RESERVED;
}

/* Warps are spread over four partitions, each with a quarter of the registers, which a warp gets in granules. */
static int blocks_by_registers(const struct vgpu_kernel *k, int warps) {
    int each = up((int)k->registers * VGPU_WARP, WARP_REGISTER_GRANULE);
    return SM_REGISTERS / SM_PARTITIONS / each * SM_PARTITIONS / warps;
}

static int least(int a, int b) {
    return a < b ? a : b;
}

static cudaError_t check_block(const struct vgpu_kernel *k, int block, size_t dynamic) {
    return block < 1 || block > max_threads(k->f) || dynamic > SHARED_OPTIN ? cudaErrorInvalidValue : cudaSuccess;
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
    int n = least(SM_BLOCKS, SM_THREADS / VGPU_WARP / warps);
    n = least(n, SM_SHARED / block_shared(k, dynamic));
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
    if (blocks > least(SM_BLOCKS, SM_THREADS / VGPU_WARP / warps)) return cudaErrorInvalidValue;
    int each = SM_SHARED / blocks / SHARED_GRANULE * SHARED_GRANULE - BLOCK_SHARED_RESERVED;
    int rest = least(each, SHARED_OPTIN) - (int)k->f->shared_bytes;
    *dynamic = rest > 0 ? (size_t)rest : 0;
    return cudaSuccess;
}
