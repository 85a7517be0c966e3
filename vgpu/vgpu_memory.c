/* Device memory: allocation, release, stream-ordered release, pools, and what an address is. */
#include "vgpu/vgpu_arena.h"
#include "vgpu/vgpu_engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct pool {
    uint64_t used, used_high; /* bytes, as rounded by the arena */
    uint64_t threshold;
    bool destroyed; /* by the program, while blocks of it were in use */
    int reuse[3];
};

enum { MAX_POOLS = 256 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct vgpu_arena arena;
static struct pool default_pool = {.reuse = {1, 1, 1}};
static struct pool *pools[MAX_POOLS] = {&default_pool};
static struct pool *current_pool = &default_pool;

/* Bytes of memory that this process may use at most: of the machine, or of its control group. */
static uint64_t machine_bytes(void) {
    uint64_t all = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    const char *const limits[] = {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"};
    for (int i = 0; i < 2; i++) {
        unsigned long long limit;
        FILE *f = fopen(limits[i], "re");
        if (!f) continue;
        if (fscanf(f, "%llu", &limit) == 1 && limit && limit < all) all = limit;
        fclose(f);
    }
    return all;
}

static void start(void) {
    uint64_t capacity;
    if (!vgpu_env_bytes("ACCT_VGPU_MEMORY", &capacity))
        capacity = machine_bytes() / 4 * 3 >> 20 << 20; /* a quarter is the host's; whole MiB */
    if (vgpu_arena_create(&arena, capacity))
        vgpu_say("cannot reserve %llu bytes of addresses for device memory: set ACCT_VGPU_MEMORY lower",
                 (unsigned long long)capacity);
    const char *poison = getenv("ACCT_VGPU_POISON");
    arena.poison = poison && (!strcmp(poison, "1") || !strcmp(poison, "on"));
}

static void enter(void) {
    pthread_once(&once, start);
    pthread_mutex_lock(&lock);
}

static void leave(void) {
    pthread_mutex_unlock(&lock);
}

uint64_t vgpu_capacity(void) {
    pthread_once(&once, start);
    return arena.capacity;
}

static bool in_range(const void *address) {
    return (uint64_t)(uintptr_t)address - arena.base < arena.capacity;
}

enum vgpu_side vgpu_side_of(const void *address, size_t bytes) {
    pthread_once(&once, start);
    if (!in_range(address)) return vgpu_host_side(address, bytes, NULL);
    uint64_t at = (uint64_t)(uintptr_t)address;
    enter();
    struct vgpu_block *b = vgpu_arena_find(&arena, at);
    bool whole = b && bytes <= b->address + b->bytes - at;
    leave();
    return whole ? VGPU_DEVICE : VGPU_BAD;
}

bool vgpu_device_can(const void *address, size_t bytes) {
    if (!bytes) return true;
    enum vgpu_side side = vgpu_side_of(address, bytes);
    return side == VGPU_DEVICE || side == VGPU_PINNED || side == VGPU_MANAGED;
}

bool vgpu_device_range(const void *address, size_t bytes, bool exact, uint64_t *first, uint64_t *length) {
    pthread_once(&once, start);
    if (!in_range(address)) return vgpu_host_range(address, bytes, first, length);
    uint64_t at = (uint64_t)(uintptr_t)address, end = 0;
    enter();
    struct vgpu_block *b = vgpu_arena_find(&arena, at);
    if (b) {
        *first = b->address;
        *length = exact ? b->asked : b->bytes;
        end = *first + *length;
    }
    leave();
    return b && at < end && bytes <= end - at;
}

/* NULL: no room. `owner` NULL: not of a pool. */
static void *take(size_t bytes, struct pool *owner) {
    enter();
    struct vgpu_block *b = vgpu_arena_take(&arena, bytes);
    if (b && owner) {
        b->owner = owner;
        owner->used += b->bytes;
        if (owner->used > owner->used_high) owner->used_high = owner->used;
    }
    leave();
    return b ? (void *)(uintptr_t)b->address : NULL;
}

static void give(struct vgpu_block *b) {
    struct pool *p = b->owner;
    if (p) {
        p->used -= b->bytes;
        if (p->destroyed && !p->used) free(p);
    }
    vgpu_arena_give(&arena, b);
}

/* The block that begins exactly at `address`, marked so that it cannot be released twice; NULL: none. Under the lock.
 */
static struct vgpu_block *claim(const void *address) {
    struct vgpu_block *b = vgpu_arena_find(&arena, (uint64_t)(uintptr_t)address);
    if (!b || b->address != (uint64_t)(uintptr_t)address || b->releasing) return NULL;
    b->releasing = true;
    return b;
}

cudaError_t cudaMalloc(void **out, size_t bytes) {
    if (!out) return cudaErrorInvalidValue;
    if (!bytes) {
        *out = NULL;
        return cudaSuccess;
    }
    void *p = take(bytes, NULL);
    if (!p) return cudaErrorMemoryAllocation;
    *out = p;
    return cudaSuccess;
}

void vgpu_device_release(void *address) {
    enter();
    struct vgpu_block *b = claim(address);
    if (b) give(b);
    leave();
}

/* Like the device's, it waits for the work under way, which may use the memory. Managed memory is released here too. */
cudaError_t cudaFree(void *address) {
    if (!address) return cudaSuccess;
    enum vgpu_side side = vgpu_side_of(address, 1);
    if (side == VGPU_MANAGED) return cudaFreeHost(address);
    if (side != VGPU_DEVICE) return cudaErrorInvalidValue;
    enter();
    struct vgpu_block *b = claim(address);
    leave();
    if (!b) return cudaErrorInvalidValue;
    cudaError_t e = vgpu_wait_all();
    enter();
    give(b);
    leave();
    return e;
}

cudaError_t cudaMallocPitch(void **out, size_t *pitch, size_t width, size_t height) {
    if (!out || !pitch) return cudaErrorInvalidValue;
    size_t row = (width + VGPU_ALIGN - 1) / VGPU_ALIGN * VGPU_ALIGN, bytes;
    if (row < width || __builtin_mul_overflow(row, height, &bytes)) return cudaErrorMemoryAllocation;
    cudaError_t e = cudaMalloc(out, bytes);
    if (!e) *pitch = row;
    return e;
}

cudaError_t cudaMalloc3D(struct cudaPitchedPtr *out, struct cudaExtent extent) {
    size_t rows;
    if (!out) return cudaErrorInvalidValue;
    if (__builtin_mul_overflow(extent.height, extent.depth, &rows)) return cudaErrorMemoryAllocation;
    struct cudaPitchedPtr p = {.xsize = extent.width, .ysize = extent.height};
    cudaError_t e = cudaMallocPitch(&p.ptr, &p.pitch, extent.width, rows);
    if (!e) *out = p;
    return e;
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *total) {
    if (!available || !total) return cudaErrorInvalidValue;
    enter();
    *available = arena.capacity - arena.in_use;
    *total = arena.capacity;
    leave();
    return cudaSuccess;
}

/* ---- stream-ordered memory ---- */

static bool is_pool(const struct pool *p) {
    for (int i = 0; p && i < MAX_POOLS; i++)
        if (pools[i] == p) return true;
    return false;
}

static bool is_stream(cudaStream_t stream) {
    pthread_mutex_lock(&vgpu_lock);
    bool found = vgpu_stream_find(stream) != NULL;
    pthread_mutex_unlock(&vgpu_lock);
    return found;
}

cudaError_t cudaMallocFromPoolAsync(void **out, size_t bytes, cudaMemPool_t pool, cudaStream_t stream) {
    struct pool *p = (struct pool *)pool;
    enter();
    bool known = is_pool(p);
    leave();
    if (!out || !known) return cudaErrorInvalidValue;
    if (!is_stream(stream)) return cudaErrorInvalidResourceHandle;
    if (!bytes) {
        *out = NULL;
        return cudaSuccess;
    }
    void *address = take(bytes, p);
    if (!address) { /* releases may be on their way in some stream */
        vgpu_wait_all();
        address = take(bytes, p);
    }
    if (!address) return cudaErrorMemoryAllocation;
    *out = address;
    return cudaSuccess;
}

cudaError_t cudaMallocAsync(void **out, size_t bytes, cudaStream_t stream) {
    return cudaMallocFromPoolAsync(out, bytes, (cudaMemPool_t)current_pool, stream);
}

static void run_release(void *args) {
    enter();
    give(*(struct vgpu_block **)args);
    leave();
}

cudaError_t cudaFreeAsync(void *address, cudaStream_t stream) {
    if (!address) return is_stream(stream) ? cudaSuccess : cudaErrorInvalidResourceHandle;
    if (vgpu_side_of(address, 1) != VGPU_DEVICE) return cudaErrorInvalidValue;
    enter();
    struct vgpu_block *b = claim(address);
    leave();
    if (!b) return cudaErrorInvalidValue;
    cudaError_t e = vgpu_submit(
        stream, &(struct vgpu_work){.run = run_release, .args = &b, .bytes = sizeof b, .kind = VGPU_WORK_NOTE}, NULL);
    if (e) {
        enter();
        b->releasing = false;
        leave();
    }
    return e;
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *out, int device) {
    if (device) return cudaErrorInvalidDevice;
    if (!out) return cudaErrorInvalidValue;
    *out = (cudaMemPool_t)&default_pool;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetMemPool(cudaMemPool_t *out, int device) {
    if (device) return cudaErrorInvalidDevice;
    if (!out) return cudaErrorInvalidValue;
    *out = (cudaMemPool_t)current_pool;
    return cudaSuccess;
}

cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t pool) {
    if (device) return cudaErrorInvalidDevice;
    enter();
    bool known = is_pool((struct pool *)pool);
    if (known) current_pool = (struct pool *)pool;
    leave();
    return known ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t *out, const struct cudaMemPoolProps *props) {
    if (!out || !props || props->allocType != cudaMemAllocationTypePinned ||
        props->location.type != cudaMemLocationTypeDevice)
        return cudaErrorInvalidValue;
    if (props->location.id) return cudaErrorInvalidDevice;
    struct pool *p = calloc(1, sizeof *p);
    if (!p) return cudaErrorMemoryAllocation;
    memcpy(p->reuse, (int[]){1, 1, 1}, sizeof p->reuse);
    enter();
    int slot = 0;
    while (slot < MAX_POOLS && pools[slot]) slot++;
    if (slot < MAX_POOLS) pools[slot] = p;
    leave();
    if (slot == MAX_POOLS) {
        free(p);
        return cudaErrorMemoryAllocation;
    }
    *out = (cudaMemPool_t)p;
    return cudaSuccess;
}

/* The pool's blocks live on until they are released; its description goes with the last of them. */
cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
    struct pool *p = (struct pool *)pool;
    bool found = false;
    enter();
    for (int i = 1; i < MAX_POOLS && p; i++)
        if (pools[i] == p) {
            pools[i] = NULL;
            found = true;
        }
    if (found && current_pool == p) current_pool = &default_pool;
    if (found) {
        p->destroyed = true;
        if (!p->used) free(p);
    }
    leave();
    return found ? cudaSuccess : cudaErrorInvalidValue;
}

/* Memory goes back to the device as soon as a stream reaches its release, so what is reserved is what is used. */
static cudaError_t read_attribute(struct pool *p, enum cudaMemPoolAttr attribute, void *value) {
    uint64_t *bytes = value;
    switch (attribute) {
    case cudaMemPoolReuseFollowEventDependencies:
    case cudaMemPoolReuseAllowOpportunistic:
    case cudaMemPoolReuseAllowInternalDependencies:
        *(int *)value = p->reuse[attribute - cudaMemPoolReuseFollowEventDependencies];
        return cudaSuccess;
    case cudaMemPoolAttrReleaseThreshold:
        *bytes = p->threshold;
        return cudaSuccess;
    case cudaMemPoolAttrReservedMemCurrent:
    case cudaMemPoolAttrUsedMemCurrent:
        *bytes = p->used;
        return cudaSuccess;
    case cudaMemPoolAttrReservedMemHigh:
    case cudaMemPoolAttrUsedMemHigh:
        *bytes = p->used_high;
        return cudaSuccess;
    default:
        return cudaErrorInvalidValue;
    }
}

static cudaError_t write_attribute(struct pool *p, enum cudaMemPoolAttr attribute, const void *value) {
    switch (attribute) {
    case cudaMemPoolReuseFollowEventDependencies:
    case cudaMemPoolReuseAllowOpportunistic:
    case cudaMemPoolReuseAllowInternalDependencies:
        p->reuse[attribute - cudaMemPoolReuseFollowEventDependencies] = *(const int *)value;
        return cudaSuccess;
    case cudaMemPoolAttrReleaseThreshold:
        p->threshold = *(const uint64_t *)value;
        return cudaSuccess;
    case cudaMemPoolAttrReservedMemHigh:
    case cudaMemPoolAttrUsedMemHigh:
        if (*(const uint64_t *)value) return cudaErrorInvalidValue; /* a high-water mark can only be reset */
        p->used_high = p->used;
        return cudaSuccess;
    default:
        return cudaErrorInvalidValue;
    }
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value) {
    enter();
    cudaError_t e = value && is_pool((struct pool *)pool) ? read_attribute((struct pool *)pool, attribute, value)
                                                          : cudaErrorInvalidValue;
    leave();
    return e;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value) {
    enter();
    cudaError_t e = value && is_pool((struct pool *)pool) ? write_attribute((struct pool *)pool, attribute, value)
                                                          : cudaErrorInvalidValue;
    leave();
    return e;
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep) {
    (void)keep; /* nothing is held back */
    enter();
    bool known = is_pool((struct pool *)pool);
    leave();
    return known ? cudaSuccess : cudaErrorInvalidValue;
}

static bool is_this_device(const struct cudaMemLocation *l) {
    return l->type == cudaMemLocationTypeDevice && !l->id;
}

/* The one device always has access. */
cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const struct cudaMemAccessDesc *list, size_t count) {
    enter();
    bool known = is_pool((struct pool *)pool);
    leave();
    if (!known || (count && !list)) return cudaErrorInvalidValue;
    for (size_t i = 0; i < count; i++)
        if (!is_this_device(&list[i].location) || list[i].flags != cudaMemAccessFlagsProtReadWrite)
            return cudaErrorInvalidValue;
    return cudaSuccess;
}

cudaError_t cudaMemPoolGetAccess(enum cudaMemAccessFlags *flags, cudaMemPool_t pool, struct cudaMemLocation *location) {
    enter();
    bool known = is_pool((struct pool *)pool);
    leave();
    if (!known || !flags || !location || !is_this_device(location)) return cudaErrorInvalidValue;
    *flags = cudaMemAccessFlagsProtReadWrite;
    return cudaSuccess;
}

/* ---- what an address is ---- */

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *out, const void *address) {
    if (!out) return cudaErrorInvalidValue;
    memset(out, 0, sizeof *out);
    enum vgpu_side side = vgpu_side_of(address, 1);
    if (side == VGPU_DEVICE) {
        out->type = cudaMemoryTypeDevice;
        out->devicePointer = (void *)(uintptr_t)address;
    } else if (side == VGPU_BAD) {
        return cudaErrorInvalidValue;
    } else {
        vgpu_host_side(address, 1, out);
    }
    return cudaSuccess;
}

void vgpu_memory_reset(void) {
    enter();
    while (arena.used) give((struct vgpu_block *)arena.used);
    arena.in_use_high = 0;
    leave();
}
