/* Host memory that the device may touch: pinned, registered and managed. The virtual device shares the host's
 * addresses, so a device pointer to it is the host pointer. Managed memory is not charged to the device's capacity: a
 * real device pages it in and out. */
#include "vgpu/vgpu_graph.h"
#include "vgpu/vgpu_tree.h"

#include <stdlib.h>
#include <sys/mman.h>

enum origin { ALLOCATED, REGISTERED, MANAGED };

struct range {
    struct vgpu_node node; /* by address */
    uint64_t bytes;
    enum origin origin;
    unsigned flags;
    int device; /* that was current */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct vgpu_node *ranges;

static struct range *find(const void *address) {
    struct range *r = (struct range *)vgpu_tree_floor(ranges, (uint64_t)(uintptr_t)address, 0);
    return r && (uint64_t)(uintptr_t)address < r->node.key[0] + r->bytes ? r : NULL;
}

static bool free_of_others(uint64_t address, uint64_t bytes) {
    struct vgpu_node *next = vgpu_tree_ceiling(ranges, address, 0);
    return !find((void *)(uintptr_t)address) && (!next || next->key[0] >= address + bytes);
}

static cudaError_t add(void *address, size_t bytes, enum origin origin, unsigned flags) {
    struct range *r = calloc(1, sizeof *r);
    if (!r) return cudaErrorMemoryAllocation;
    r->node.key[0] = (uint64_t)(uintptr_t)address;
    r->bytes = bytes;
    r->origin = origin;
    r->flags = flags;
    r->device = vgpu_current();
    pthread_mutex_lock(&lock);
    bool fits = free_of_others(r->node.key[0], bytes);
    if (fits) vgpu_tree_insert(&ranges, &r->node);
    pthread_mutex_unlock(&lock);
    if (!fits) free(r);
    return fits ? cudaSuccess : cudaErrorHostMemoryAlreadyRegistered;
}

/* Takes the range that begins at `address` and has (or has not) the origin REGISTERED out of the set. */
static struct range *drop(const void *address, bool registered) {
    pthread_mutex_lock(&lock);
    struct range *r = find(address);
    if (r && (r->node.key[0] != (uint64_t)(uintptr_t)address || (r->origin == REGISTERED) != registered)) r = NULL;
    if (r) vgpu_tree_remove(&ranges, &r->node);
    pthread_mutex_unlock(&lock);
    return r;
}

enum vgpu_side vgpu_host_side(const void *address, size_t bytes, struct cudaPointerAttributes *out) {
    enum vgpu_side side = VGPU_PAGEABLE;
    pthread_mutex_lock(&lock);
    struct range *r = find(address);
    int device = r ? r->device : 0;
    if (r && bytes <= r->node.key[0] + r->bytes - (uint64_t)(uintptr_t)address)
        side = r->origin == MANAGED ? VGPU_MANAGED : VGPU_PINNED;
    pthread_mutex_unlock(&lock);
    if (!out) return side;
    out->type = side == VGPU_MANAGED  ? cudaMemoryTypeManaged
                : side == VGPU_PINNED ? cudaMemoryTypeHost
                                      : cudaMemoryTypeUnregistered;
    out->device = side == VGPU_PAGEABLE ? cudaInvalidDeviceId : device;
    out->hostPointer = (void *)(uintptr_t)address;
    out->devicePointer = side == VGPU_PAGEABLE ? NULL : (void *)(uintptr_t)address;
    return side;
}

bool vgpu_host_range(const void *address, size_t bytes, uint64_t *first, uint64_t *length) {
    pthread_mutex_lock(&lock);
    struct range *r = find(address);
    if (r) {
        *first = r->node.key[0];
        *length = r->bytes;
    }
    pthread_mutex_unlock(&lock);
    return r && bytes <= *first + *length - (uint64_t)(uintptr_t)address;
}

static cudaError_t allocate(void **out, size_t bytes, enum origin origin, unsigned flags) {
    if (!out) return cudaErrorInvalidValue;
    if (!bytes) {
        *out = NULL;
        return cudaSuccess;
    }
    cudaError_t e = vgpu_capture_unsafe();
    if (e) return e;
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return cudaErrorMemoryAllocation;
    e = add(p, bytes, origin, flags);
    if (e) {
        munmap(p, bytes);
        return e;
    }
    *out = p;
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned int flags) {
    const unsigned known = cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined;
    if (flags & ~known) return cudaErrorInvalidValue;
    return allocate(out, bytes, ALLOCATED, flags);
}

cudaError_t cudaMallocHost(void **out, size_t bytes) {
    return allocate(out, bytes, ALLOCATED, cudaHostAllocDefault);
}

cudaError_t cudaMallocManaged(void **out, size_t bytes, unsigned int flags) {
    if (!bytes || (flags != cudaMemAttachGlobal && flags != cudaMemAttachHost)) return cudaErrorInvalidValue;
    return allocate(out, bytes, MANAGED, flags);
}

/* cudaFree comes here for managed memory. */
cudaError_t cudaFreeHost(void *address) {
    if (!address) return cudaSuccess;
    cudaError_t e = vgpu_capture_unsafe();
    if (e) return e;
    struct range *r = drop(address, false);
    if (!r) return cudaErrorInvalidValue;
    e = vgpu_wait_all();
    munmap(address, r->bytes);
    free(r);
    return e;
}

cudaError_t cudaHostRegister(void *address, size_t bytes, unsigned int flags) {
    const unsigned known =
        cudaHostRegisterPortable | cudaHostRegisterMapped | cudaHostRegisterIoMemory | cudaHostRegisterReadOnly;
    if (!address || !bytes || (flags & ~known)) return cudaErrorInvalidValue;
    cudaError_t e = vgpu_capture_unsafe();
    return e ? e : add(address, bytes, REGISTERED, flags);
}

cudaError_t cudaHostUnregister(void *address) {
    if (!address) return cudaErrorInvalidValue;
    cudaError_t e = vgpu_capture_unsafe();
    if (e) return e;
    struct range *r = drop(address, true);
    if (!r) return cudaErrorHostMemoryNotRegistered;
    e = vgpu_wait_all();
    free(r);
    return e;
}

cudaError_t cudaHostGetDevicePointer(void **out, void *host, unsigned int flags) {
    if (!out || flags) return cudaErrorInvalidValue;
    if (vgpu_host_side(host, 1, NULL) == VGPU_PAGEABLE) return cudaErrorInvalidValue;
    *out = host;
    return cudaSuccess;
}

cudaError_t cudaHostGetFlags(unsigned int *flags, void *host) {
    cudaError_t e = cudaErrorInvalidValue;
    pthread_mutex_lock(&lock);
    struct range *r = find(host);
    if (flags && r && r->origin != MANAGED) {
        *flags = r->flags | cudaHostAllocMapped;
        e = cudaSuccess;
    }
    pthread_mutex_unlock(&lock);
    return e;
}

static cudaError_t check_managed(const void *address, size_t bytes) {
    return bytes && vgpu_side_of(address, bytes) == VGPU_MANAGED ? cudaSuccess : cudaErrorInvalidValue;
}

/* Hints about where managed memory should be: host and device are one place here. */
cudaError_t cudaMemAdvise(const void *address, size_t bytes, enum cudaMemoryAdvise advice,
                          struct cudaMemLocation location) {
    (void)advice, (void)location;
    return check_managed(address, bytes);
}

cudaError_t cudaMemPrefetchAsync(const void *address, size_t bytes, struct cudaMemLocation location, unsigned int flags,
                                 cudaStream_t stream) {
    (void)location;
    if (flags) return cudaErrorInvalidValue;
    pthread_mutex_lock(&vgpu_lock);
    bool found = vgpu_stream_find(stream) != NULL;
    pthread_mutex_unlock(&vgpu_lock);
    return found ? check_managed(address, bytes) : cudaErrorInvalidResourceHandle;
}

void vgpu_host_reset(int device) {
    uint64_t from = 0;
    pthread_mutex_lock(&lock);
    for (struct range *r; (r = (struct range *)vgpu_tree_ceiling(ranges, from, 0));) {
        from = r->node.key[0] + 1;
        if (r->device != device) continue;
        vgpu_tree_remove(&ranges, &r->node);
        if (r->origin != REGISTERED) munmap((void *)(uintptr_t)r->node.key[0], r->bytes);
        free(r);
    }
    pthread_mutex_unlock(&lock);
}
