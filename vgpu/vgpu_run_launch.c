/* Launches: every route by which the runtime takes one, and the checks that it makes before it queues it. */
#include "vgpu/vgpu_crt.h"
#include "vgpu/vgpu_profile.h"
#include "vgpu/vgpu_run.h"

#include <stdlib.h>
#include <string.h>

/* Limits of every compute capability, as cudaGetDeviceProperties tells them. */
enum {
    MAX_THREADS = ACCT_BLOCK_THREADS,
    MAX_Z = 64,
    MAX_GRID_YZ = 65535,
    MAX_GRID_X = 2147483647,
    MAX_PARAM_BYTES = 32764,
    SMALL_LAUNCH = 1024
};
enum { SHARED_BYTES = ACCT_BLOCK_SHARED_BYTES };

struct request {
    const void *function;
    dim3 grid, block;
    void **args;
    size_t shared;
    cudaStream_t stream;
    bool cooperative;
};

static bool fits(dim3 grid, dim3 block) {
    if (!grid.x || !grid.y || !grid.z || !block.x || !block.y || !block.z) return false;
    if (grid.x > MAX_GRID_X || grid.y > MAX_GRID_YZ || grid.z > MAX_GRID_YZ) return false;
    if (block.x > MAX_THREADS || block.y > MAX_THREADS || block.z > MAX_Z) return false;
    return (uint64_t)block.x * block.y * block.z <= MAX_THREADS;
}

static uint32_t product(const uint32_t n[3]) {
    return n[0] * (n[1] ? n[1] : 1) * (n[2] ? n[2] : 1);
}

/* .reqntid asks for exactly that block, .maxntid for no more threads. */
static cudaError_t check_bounds(const struct ptx_function *f, dim3 block) {
    const uint32_t *r = f->required_threads;
    uint32_t threads = block.x * block.y * block.z;
    if (r[0] && (block.x != r[0] || block.y != (r[1] ? r[1] : 1) || block.z != (r[2] ? r[2] : 1)))
        return cudaErrorInvalidValue;
    if (f->max_threads[0] && threads > product(f->max_threads)) return cudaErrorInvalidValue;
    return cudaSuccess;
}

static cudaError_t check_shared(const struct vgpu_kernel *k, size_t dynamic) {
    size_t fixed = k->f->shared_bytes;
    size_t most = fixed > SHARED_BYTES ? 0 : SHARED_BYTES - fixed;
    if (k->max_dynamic_shared >= 0) most = (size_t)k->max_dynamic_shared;
    return fixed > SHARED_BYTES || dynamic > most || fixed + dynamic > vgpu_profile()->limits.shared_optin_bytes
               ? cudaErrorInvalidValue
               : cudaSuccess;
}

static cudaError_t check(const struct vgpu_kernel *k, const struct request *r) {
    if (!fits(r->grid, r->block)) return cudaErrorInvalidValue; /* as the vendor's runtime 13 says */
    cudaError_t e = check_bounds(k->f, r->block);
    if (!e) e = check_shared(k, r->shared);
    if (!e && k->f->params && !r->args) e = cudaErrorInvalidValue;
    if (!e && k->f->param_bytes > MAX_PARAM_BYTES) e = cudaErrorInvalidValue;
    return e;
}

static void pack(const struct ptx_function *f, void **args, unsigned char *params) {
    for (int32_t i = 0; i < f->params; i++)
        if (args[i]) memcpy(params + f->vars[i].offset, args[i], f->vars[i].bytes);
}

static struct vgpu_activity activity_of(const struct vgpu_kernel *k, const struct request *r) {
    struct vgpu_activity a = {.kind = VGPU_ACTIVITY_KERNEL,
                              .registers = (uint16_t)k->registers,
                              .grid = {r->grid.x, r->grid.y, r->grid.z},
                              .block = {r->block.x, r->block.y, r->block.z},
                              .static_shared = k->f->shared_bytes,
                              .dynamic_shared = (uint32_t)r->shared,
                              .local_bytes = k->local_bytes,
                              .name = k->name};
    return a;
}

/* Blocks can wait for each other with atomics alone; compiled code has them take turns, the interpreter has not. */
static bool can_wait(const struct vgpu_launch *l) {
    bool many = (uint64_t)l->grid[0] * l->grid[1] * l->grid[2] > 1;
    if (!l->cooperative || vgpu_profile()->dry || !many || !(l->kernel->f->properties & PTX_P_ATOMIC)) return true;
    if (l->way == VGPU_COMPILED && vgpu_grid_can()) return true;
    vgpu_say("kernel %s: a cooperative launch whose blocks may wait for each other is not implemented %s",
             l->kernel->name, l->way == VGPU_COMPILED ? "in this process" : "by the interpreter");
    return false;
}

static cudaError_t submit(struct vgpu_kernel *k, const struct request *r) {
    _Alignas(16) unsigned char small[SMALL_LAUNCH]; /* the caller's stack may be small too */
    size_t bytes = (sizeof(struct vgpu_launch) + k->f->param_bytes + 15) / 16 * 16;
    void *large = bytes > sizeof small ? aligned_alloc(16, bytes) : NULL;
    if (bytes > sizeof small && !large) return cudaErrorMemoryAllocation;
    struct vgpu_launch *l = large ? large : (void *)small;
    memset(l, 0, bytes);
    *l = (struct vgpu_launch){.kernel = k,
                              .symbols = vgpu_kernel_symbols(k),
                              .grid = {r->grid.x, r->grid.y, r->grid.z},
                              .block = {r->block.x, r->block.y, r->block.z},
                              .dynamic_shared = (uint32_t)r->shared,
                              .cooperative = r->cooperative,
                              .device = vgpu_current()};
    pack(k->f, r->args, l->params);
    if (!vgpu_profile()->dry) l->way = vgpu_launch_way(l);
    if (!can_wait(l)) {
        free(large);
        return cudaErrorNotSupported;
    }
    vgpu_print_flush();
    struct vgpu_work work = {
        .run = vgpu_execute, .args = l, .bytes = bytes, .kind = VGPU_WORK_DEVICE, .activity = activity_of(k, r)};
    if (vgpu_profile()->model) vgpu_price_launch(l, &work.amount);
    cudaError_t e = vgpu_submit(r->stream, &work, NULL);
    free(large);
    return e;
}

static cudaError_t launch(const struct request *r) {
    struct vgpu_kernel *k;
    cudaError_t e = vgpu_kernel_find(r->function, &k);
    if (!e) e = vgpu_kernel_ready(k);
    if (!e) e = check(k, r);
    if (!e && vgpu_device_of_stream(r->stream) != vgpu_current()) e = cudaErrorInvalidResourceHandle;
    return e ? e : submit(k, r);
}

cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **args, size_t shared,
                             cudaStream_t stream) {
    return launch(&(struct request){function, grid, block, args, shared, stream, false});
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args, size_t shared,
                               cudaStream_t stream) {
    return cudaLaunchKernel(kernel, grid, block, args, shared, stream);
}

/* All blocks must be on the device at once. */
static cudaError_t launch_cooperative(struct request *r) {
    int blocks = 0, processors = 0;
    uint64_t threads = (uint64_t)r->block.x * r->block.y * r->block.z;
    if (!fits(r->grid, r->block)) return cudaErrorInvalidValue;
    cudaError_t e = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, r->function, (int)threads, r->shared);
    if (!e) e = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, vgpu_current());
    if (!e && (uint64_t)r->grid.x * r->grid.y * r->grid.z > (uint64_t)blocks * (unsigned)processors)
        e = cudaErrorCooperativeLaunchTooLarge;
    r->cooperative = true;
    return e ? e : launch(r);
}

cudaError_t cudaLaunchCooperativeKernel(const void *function, dim3 grid, dim3 block, void **args, size_t shared,
                                        cudaStream_t stream) {
    return launch_cooperative(&(struct request){function, grid, block, args, shared, stream, true});
}

/* Attributes that ask for what a launch does anyway, or only hint. */
static const char *refused_attribute(const cudaLaunchAttribute *a, bool *cooperative) {
    const char *name = NULL;
    switch (a->id) {
    case cudaLaunchAttributeIgnore:
    case cudaLaunchAttributePriority:
    case cudaLaunchAttributeAccessPolicyWindow:
    case cudaLaunchAttributeSynchronizationPolicy:
    case cudaLaunchAttributeMemSyncDomain:
    case cudaLaunchAttributeMemSyncDomainMap:
    case cudaLaunchAttributePreferredSharedMemoryCarveout:
    case cudaLaunchAttributeClusterSchedulingPolicyPreference:
    case cudaLaunchAttributeProgrammaticStreamSerialization: /* a launch may begin early, not must */
        break;
    case cudaLaunchAttributeCooperative:
        *cooperative = a->val.cooperative != 0;
        break;
    case cudaLaunchAttributeClusterDimension:
        if (a->val.clusterDim.x > 1 || a->val.clusterDim.y > 1 || a->val.clusterDim.z > 1)
            name = "cudaLaunchAttributeClusterDimension above 1";
        break;
    case cudaLaunchAttributeProgrammaticEvent:
        name = "cudaLaunchAttributeProgrammaticEvent";
        break;
    case cudaLaunchAttributeLaunchCompletionEvent:
        name = "cudaLaunchAttributeLaunchCompletionEvent";
        break;
    case cudaLaunchAttributeDeviceUpdatableKernelNode:
        name = "cudaLaunchAttributeDeviceUpdatableKernelNode";
        break;
    default:
        name = "an attribute that is not known here";
    }
    return name;
}

static cudaError_t launch_extended(const cudaLaunchConfig_t *c, const void *function, void **args,
                                   cudaStream_t stream) {
    bool cooperative = false;
    for (unsigned i = 0; i < c->numAttrs; i++) {
        const char *name = refused_attribute(&c->attrs[i], &cooperative);
        if (!name) continue;
        vgpu_say("cudaLaunchKernelExC: %s (%d) is not implemented", name, (int)c->attrs[i].id);
        return cudaErrorNotSupported;
    }
    struct request r = {function, c->gridDim, c->blockDim, args, c->dynamicSmemBytes, stream, cooperative};
    return cooperative ? launch_cooperative(&r) : launch(&r);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *c, const void *function, void **args) {
    if (!c || (c->numAttrs && !c->attrs)) return cudaErrorInvalidValue;
    return launch_extended(c, function, args, c->stream);
}

__typeof__(cudaLaunchKernelExC) cudaLaunchKernelExC_ptsz;

cudaError_t cudaLaunchKernelExC_ptsz(const cudaLaunchConfig_t *c, const void *function, void **args) {
    if (!c || (c->numAttrs && !c->attrs)) return cudaErrorInvalidValue;
    return launch_extended(c, function, args, c->stream ? c->stream : cudaStreamPerThread);
}
