/* Stream-ordered memory: pools, their allocations and releases. What a stream has released is of use to the same
 * stream at once; to others when the stream has got there. Chunks that are idle go back to the device at the next
 * synchronisation, down to the pool's threshold. */
#include "vgpu/vgpu_graph.h"
#include "vgpu/vgpu_memory.h"
#include "vgpu/vgpu_run.h"
#include "vgpu/vgpu_stream.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_POOLS = 256 };

static struct vgpu_pool *made[MAX_POOLS]; /* by the program; under the memory's lock */
static _Atomic int unsettled;             /* something was released since the last settling */

/* Both locks, in their order: a ticket is asked for under the one, pools change under the other. */
static void enter(void) {
    pthread_mutex_lock(&vgpu_lock);
    vgpu_memory_enter();
}

static void leave(void) {
    vgpu_memory_leave();
    pthread_mutex_unlock(&vgpu_lock);
}

static bool reached(void *stream, uint64_t sequence) {
    return vgpu_reached((struct vgpu_ticket){.stream = stream, .sequence = sequence});
}

/* The i-th pool: those of the devices come first. NULL: there is none. */
static struct vgpu_pool *pool_at(int i) {
    int devices = vgpu_profile()->devices;
    return i < devices ? &vgpu_memory_of(i)->pool : made[i - devices];
}

static int pool_slots(void) {
    return vgpu_profile()->devices + MAX_POOLS;
}

static bool is_pool(const struct vgpu_pool *p) {
    for (int i = 0; p && i < pool_slots(); i++)
        if (pool_at(i) == p) return !p->destroyed;
    return false;
}

static struct vgpu_pool *known(cudaMemPool_t handle) {
    return is_pool((struct vgpu_pool *)handle) ? (struct vgpu_pool *)handle : NULL;
}

/* A destroyed pool goes when the last of its blocks is back. */
static void bury(int slot) {
    struct vgpu_pool *p = made[slot];
    if (!p || !p->destroyed || p->heap.reserved != p->heap.idle) return;
    vgpu_heap_clear(&p->heap);
    free(p);
    made[slot] = NULL;
}

/* Idle chunks go back: all of them, or down to each pool's threshold. device -1: of all. Under both locks. */
static void trim_pools(int device, bool all) {
    for (int i = 0; i < pool_slots(); i++) {
        struct vgpu_pool *p = pool_at(i);
        if (!p || (device >= 0 && p->device != device)) continue;
        vgpu_heap_collect(&p->heap, reached);
        vgpu_heap_trim(&p->heap, all || p->destroyed ? 0 : p->threshold);
        if (i >= vgpu_profile()->devices) bury(i - vgpu_profile()->devices);
    }
}

void vgpu_pools_reclaim(int device, bool all) {
    if (all) vgpu_wait_device(device);
    enter();
    trim_pools(device, true);
    leave();
}

void vgpu_pools_settle(void) {
    if (!atomic_exchange(&unsettled, 0)) return;
    enter();
    trim_pools(-1, false);
    leave();
}

/* ---- allocation ---- */

/* Fresh memory must be written, or each access is asked about: then a block is not used again before its release. */
static bool reuses_early(const struct vgpu_memory *m) {
    return m->arena.untouched || (!m->arena.poison && vgpu_execute_way() != VGPU_CHECKED);
}

static struct vgpu_block *take(struct vgpu_pool *p, size_t bytes, struct vgpu_stream *s) {
    vgpu_heap_collect(&p->heap, reached);
    struct vgpu_block *b = vgpu_heap_take(&p->heap, bytes, s);
    if (!b && !vgpu_heap_grow(&p->heap, bytes)) b = vgpu_heap_take(&p->heap, bytes, s);
    if (!b) return NULL;
    b->owner = p;
    if (p->heap.arena->poison && !p->heap.arena->untouched) memset((void *)(uintptr_t)b->address, 0xff, b->bytes);
    return b;
}

/* Under no lock: *out, or an error. */
static cudaError_t try(cudaMemPool_t pool, size_t bytes, cudaStream_t stream, void **out) {
    enter();
    struct vgpu_pool *p = known(pool);
    struct vgpu_stream *s = vgpu_stream_find(stream);
    struct vgpu_block *b = p && s ? take(p, bytes, s) : NULL;
    if (b) *out = (void *)(uintptr_t)b->address;
    leave();
    if (!p) return cudaErrorInvalidValue;
    return b ? cudaSuccess : s ? cudaErrorMemoryAllocation : cudaErrorInvalidResourceHandle;
}

static int device_of(cudaMemPool_t pool) {
    enter();
    struct vgpu_pool *p = known(pool);
    int device = p ? p->device : -1;
    leave();
    return device;
}

static cudaError_t allocate(void **out, size_t bytes, cudaMemPool_t pool, cudaStream_t stream) {
    void *p = NULL;
    cudaError_t e = try(pool, bytes, stream, &p);
    for (int all = 0; e == cudaErrorMemoryAllocation && all < 2; all++) { /* what others hold without need; then what is
                                                                             on its way back in some stream */
        vgpu_pools_reclaim(device_of(pool), all);
        e = try(pool, bytes, stream, &p);
    }
    if (!e) *out = p;
    return e;
}

static cudaError_t check_stream(cudaStream_t stream, int *device) {
    pthread_mutex_lock(&vgpu_lock);
    struct vgpu_stream *s = vgpu_stream_find(stream);
    if (s && device) *device = s->device;
    pthread_mutex_unlock(&vgpu_lock);
    return s ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

cudaError_t cudaMallocFromPoolAsync(void **out, size_t bytes, cudaMemPool_t pool, cudaStream_t stream) {
    cudaError_t e;
    int device = device_of(pool);
    if (!out || device < 0) return cudaErrorInvalidValue;
    if (bytes && vgpu_graph_memory_alloc_captured(out, bytes, device, stream, &e)) return e;
    if (bytes) return allocate(out, bytes, pool, stream);
    e = check_stream(stream, NULL);
    if (!e) *out = NULL;
    return e;
}

/* From the current pool of the stream's device. */
cudaError_t cudaMallocAsync(void **out, size_t bytes, cudaStream_t stream) {
    int device = 0;
    if (!out) return cudaErrorInvalidValue;
    cudaError_t e = check_stream(stream, &device);
    if (e) return e;
    enter();
    cudaMemPool_t pool = (cudaMemPool_t)vgpu_memory_of(device)->current_pool;
    leave();
    return cudaMallocFromPoolAsync(out, bytes, pool, stream);
}

/* ---- release ---- */

static void give(struct vgpu_block *b, struct vgpu_ticket at) {
    struct vgpu_pool *p = vgpu_pool_of(b);
    vgpu_heap_give(&p->heap, b, at.stream, at.sequence);
    unsettled = 1;
}

cudaError_t vgpu_pool_free(void *address) {
    enter();
    struct vgpu_block *b = vgpu_memory_block(vgpu_memory_over(address), address);
    if (b) {
        vgpu_heap_collect(&vgpu_pool_of(b)->heap, reached);
        give(b, (struct vgpu_ticket){0});
        trim_pools(-1, false);
    }
    leave();
    return b ? cudaSuccess : cudaErrorInvalidValue;
}

static void run_release(void *args) {
    vgpu_memory_enter();
    give(*(struct vgpu_block **)args, (struct vgpu_ticket){0});
    vgpu_memory_leave();
}

/* Under vgpu_lock. An empty operation stands in the stream for the release: its ticket waits for what it must. */
static cudaError_t release(struct vgpu_memory *m, struct vgpu_block *b, struct vgpu_stream *s) {
    struct vgpu_ticket at = {0};
    bool early = reuses_early(m);
    struct vgpu_work w = {.kind = VGPU_WORK_NOTE};
    if (!early) w = (struct vgpu_work){.run = run_release, .args = &b, .bytes = sizeof b, .kind = VGPU_WORK_NOTE};
    cudaError_t e = vgpu_enqueue(s, &w, &at);
    vgpu_memory_enter();
    if (e)
        b->releasing = false;
    else if (early)
        give(b, at);
    vgpu_memory_leave();
    return e;
}

cudaError_t cudaFreeAsync(void *address, cudaStream_t stream) {
    if (!address) return check_stream(stream, NULL);
    struct vgpu_memory *m = vgpu_memory_over(address);
    cudaError_t e;
    if (!m) return cudaErrorInvalidValue;
    if (vgpu_graph_memory_free_captured(address, stream, &e) || vgpu_graph_memory_free(address, &e)) return e;
    enter();
    struct vgpu_block *b = vgpu_memory_block(m, address);
    struct vgpu_stream *s = vgpu_stream_find(stream);
    bool pooled = b && vgpu_pool_of(b);
    e = !b ? cudaErrorInvalidValue : !s ? cudaErrorInvalidResourceHandle : cudaSuccess;
    if (!e && pooled) b->releasing = true;
    vgpu_memory_leave();
    if (!e && pooled) e = release(m, b, s);
    pthread_mutex_unlock(&vgpu_lock);
    return e || pooled ? e : vgpu_release_ordered(address, stream);
}

/* ---- pools ---- */

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *out, int device) {
    if (!vgpu_is_device(device)) return cudaErrorInvalidDevice;
    if (!out) return cudaErrorInvalidValue;
    *out = (cudaMemPool_t)&vgpu_memory_of(device)->pool;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetMemPool(cudaMemPool_t *out, int device) {
    if (!vgpu_is_device(device)) return cudaErrorInvalidDevice;
    if (!out) return cudaErrorInvalidValue;
    enter();
    *out = (cudaMemPool_t)vgpu_memory_of(device)->current_pool;
    leave();
    return cudaSuccess;
}

cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t pool) {
    if (!vgpu_is_device(device)) return cudaErrorInvalidDevice;
    enter();
    struct vgpu_pool *p = known(pool);
    if (p && p->device == device) vgpu_memory_of(device)->current_pool = p;
    leave();
    return p && p->device == device ? cudaSuccess : cudaErrorInvalidValue;
}

static cudaError_t check_location(const struct cudaMemLocation *l, enum cudaMemAllocationType type) {
    if (!l || l->type != cudaMemLocationTypeDevice || type != cudaMemAllocationTypePinned) return cudaErrorInvalidValue;
    return vgpu_is_device(l->id) ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t cudaMemGetDefaultMemPool(cudaMemPool_t *out, struct cudaMemLocation *l, enum cudaMemAllocationType type) {
    cudaError_t e = check_location(l, type);
    return e ? e : cudaDeviceGetDefaultMemPool(out, l->id);
}

cudaError_t cudaMemGetMemPool(cudaMemPool_t *out, struct cudaMemLocation *l, enum cudaMemAllocationType type) {
    cudaError_t e = check_location(l, type);
    return e ? e : cudaDeviceGetMemPool(out, l->id);
}

cudaError_t cudaMemSetMemPool(struct cudaMemLocation *l, enum cudaMemAllocationType type, cudaMemPool_t pool) {
    cudaError_t e = check_location(l, type);
    return e ? e : cudaDeviceSetMemPool(l->id, pool);
}

static int free_slot(void) {
    int slot = 0;
    while (slot < MAX_POOLS && made[slot]) slot++;
    return slot;
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t *out, const struct cudaMemPoolProps *props) {
    if (!out || !props || props->allocType != cudaMemAllocationTypePinned ||
        props->location.type != cudaMemLocationTypeDevice)
        return cudaErrorInvalidValue;
    if (!vgpu_is_device(props->location.id)) return cudaErrorInvalidDevice;
    struct vgpu_pool *p = malloc(sizeof *p);
    if (!p) return cudaErrorMemoryAllocation;
    struct vgpu_memory *m = vgpu_memory_of(props->location.id);
    *p = (struct vgpu_pool){.heap = {.arena = &m->arena, .grain = m->pool.heap.grain, .most = props->maxSize},
                            .device = props->location.id,
                            .access = 1u << props->location.id,
                            .reuse = {1, 1, 1}};
    enter();
    int slot = free_slot();
    if (slot < MAX_POOLS) made[slot] = p;
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
    enter();
    struct vgpu_pool *p = known(pool);
    struct vgpu_memory *m = p ? vgpu_memory_of(p->device) : NULL;
    if (p == (m ? &m->pool : NULL)) p = NULL;
    if (p) {
        if (m->current_pool == p) m->current_pool = &m->pool;
        p->destroyed = true;
        trim_pools(-1, false);
        unsettled = 1;
    }
    leave();
    return p ? cudaSuccess : cudaErrorInvalidValue;
}

static cudaError_t read_attribute(struct vgpu_pool *p, enum cudaMemPoolAttr attribute, void *value) {
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
        *bytes = p->heap.reserved;
        return cudaSuccess;
    case cudaMemPoolAttrUsedMemCurrent:
        *bytes = p->heap.used;
        return cudaSuccess;
    case cudaMemPoolAttrReservedMemHigh:
        *bytes = p->heap.reserved_high;
        return cudaSuccess;
    case cudaMemPoolAttrUsedMemHigh:
        *bytes = p->heap.used_high;
        return cudaSuccess;
    default:
        return cudaErrorInvalidValue;
    }
}

static cudaError_t write_attribute(struct vgpu_pool *p, enum cudaMemPoolAttr attribute, const void *value) {
    const uint64_t *bytes = value;
    switch (attribute) {
    case cudaMemPoolReuseFollowEventDependencies:
    case cudaMemPoolReuseAllowOpportunistic:
    case cudaMemPoolReuseAllowInternalDependencies:
        p->reuse[attribute - cudaMemPoolReuseFollowEventDependencies] = *(const int *)value;
        return cudaSuccess;
    case cudaMemPoolAttrReleaseThreshold:
        p->threshold = *bytes;
        return cudaSuccess;
    case cudaMemPoolAttrReservedMemHigh:
    case cudaMemPoolAttrUsedMemHigh:
        if (*bytes) return cudaErrorInvalidValue; /* a high-water mark can only be reset */
        if (attribute == cudaMemPoolAttrUsedMemHigh)
            p->heap.used_high = p->heap.used;
        else
            p->heap.reserved_high = p->heap.reserved;
        return cudaSuccess;
    default:
        return cudaErrorInvalidValue;
    }
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value) {
    enter();
    struct vgpu_pool *p = known(pool);
    cudaError_t e = value && p ? read_attribute(p, attribute, value) : cudaErrorInvalidValue;
    leave();
    return e;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value) {
    enter();
    struct vgpu_pool *p = known(pool);
    cudaError_t e = value && p ? write_attribute(p, attribute, value) : cudaErrorInvalidValue;
    leave();
    return e;
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep) {
    enter();
    struct vgpu_pool *p = known(pool);
    if (p) {
        vgpu_heap_collect(&p->heap, reached);
        vgpu_heap_trim(&p->heap, keep);
    }
    leave();
    return p ? cudaSuccess : cudaErrorInvalidValue;
}

/* ---- who may touch it ---- */

static cudaError_t set_access(struct vgpu_pool *p, const struct cudaMemAccessDesc *d) {
    if (d->location.type != cudaMemLocationTypeDevice) return cudaErrorInvalidValue;
    int can = d->location.id == p->device;
    if (!vgpu_is_device(d->location.id)) return cudaErrorInvalidDevice;
    if (!can) cudaDeviceCanAccessPeer(&can, d->location.id, p->device);
    if (!can) return cudaErrorInvalidDevice;
    if (d->flags != cudaMemAccessFlagsProtNone && d->flags != cudaMemAccessFlagsProtReadWrite)
        return cudaErrorInvalidValue; /* a device has no read-only mapping of it either */
    if (d->flags == cudaMemAccessFlagsProtReadWrite)
        p->access |= 1u << d->location.id;
    else if (d->location.id != p->device)
        p->access &= ~(1u << d->location.id);
    else
        return cudaErrorInvalidValue; /* a pool's own device keeps its access */
    return cudaSuccess;
}

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const struct cudaMemAccessDesc *list, size_t count) {
    enter();
    struct vgpu_pool *p = known(pool);
    cudaError_t e = !p || (count && !list) ? cudaErrorInvalidValue : cudaSuccess;
    for (size_t i = 0; i < count && !e; i++) e = set_access(p, &list[i]);
    leave();
    return e;
}

cudaError_t cudaMemPoolGetAccess(enum cudaMemAccessFlags *flags, cudaMemPool_t pool, struct cudaMemLocation *location) {
    enter();
    struct vgpu_pool *p = known(pool);
    bool good = p && flags && location && location->type == cudaMemLocationTypeDevice && vgpu_is_device(location->id);
    if (good) *flags = p->access >> location->id & 1 ? cudaMemAccessFlagsProtReadWrite : cudaMemAccessFlagsProtNone;
    leave();
    return good ? cudaSuccess : cudaErrorInvalidValue;
}

void vgpu_pools_reset(int device) {
    struct vgpu_memory *m = vgpu_memory_of(device);
    enter();
    for (int i = 0; i < MAX_POOLS; i++) {
        if (!made[i] || made[i]->device != device) continue;
        vgpu_heap_clear(&made[i]->heap);
        free(made[i]);
        made[i] = NULL;
    }
    vgpu_heap_clear(&m->pool.heap);
    m->pool.heap.used_high = m->pool.heap.reserved_high = 0;
    m->pool.threshold = 0;
    m->current_pool = &m->pool;
    leave();
}
