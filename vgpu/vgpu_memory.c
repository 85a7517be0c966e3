/* Device memory: allocation, release, and what an address is. */
#include "vgpu/vgpu_memory.h"
#include "vgpu/vgpu_graph.h"

#include <stdlib.h>
#include <string.h>

static const uint64_t PAGE = 2 << 20;        /* what a device gives memory out in */
static const uint64_t SMALL = 1 << 20;       /* requests up to this share pages */
static const uint64_t POOL_GRAIN = 32 << 20; /* what a pool takes from its device at a time */
enum { RANGES = 4 };                         /* addresses are that many times as plentiful as memory */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct vgpu_memory memories[VGPU_MAX_DEVICES];
static int devices;

static bool is_on(const char *name) {
    const char *value = getenv(name);
    return value && (!strcmp(value, "1") || !strcmp(value, "on"));
}

/* This machine as a device counts its memory in the arena's own unit, so that what is used is what was asked for. */
static void open_memory(struct vgpu_memory *m, const struct vgpu_profile *p) {
    uint64_t limit = p->total_bytes - p->reserved_bytes, unit = p->cpu ? VGPU_ALIGN : PAGE;
    int ranges = RANGES;
    uint64_t least = limit < unit ? unit : limit; /* a range of addresses is never empty */
    if (limit < unit)
        vgpu_say(
            "%llu bytes of device memory are less than the least allocation takes (%llu): set ACCT_VGPU_MEMORY higher",
            (unsigned long long)limit, (unsigned long long)unit);
    while (ranges &&
           vgpu_arena_create(&m->arena, least > UINT64_MAX / RANGES ? least : least * (unsigned)ranges, limit, unit))
        ranges /= 2;
    if (!ranges) {
        vgpu_say("cannot reserve %llu bytes of addresses for device memory (ulimit -v?): set ACCT_VGPU_MEMORY lower",
                 (unsigned long long)limit);
        m->arena.limit = 0;
    }
    m->arena.poison = is_on("ACCT_VGPU_POISON");
    m->arena.untouched = p->dry;
    m->small = (struct vgpu_heap){.arena = &m->arena, .grain = PAGE};
    m->small_most = p->cpu ? 0 : SMALL;
    m->pool = (struct vgpu_pool){.heap = {.arena = &m->arena, .grain = p->cpu ? VGPU_ALIGN : POOL_GRAIN},
                                 .device = vgpu_memory_device(m),
                                 .reuse = {1, 1, 1}};
    m->pool.access = 1u << m->pool.device;
    m->current_pool = &m->pool;
}

static void start(void) {
    const struct vgpu_profile *p = vgpu_profile();
    devices = p->devices;
    for (int i = 0; i < devices; i++) open_memory(&memories[i], p);
}

void vgpu_memory_enter(void) {
    pthread_once(&once, start);
    pthread_mutex_lock(&lock);
}

void vgpu_memory_leave(void) {
    pthread_mutex_unlock(&lock);
}

struct vgpu_memory *vgpu_memory_of(int device) {
    pthread_once(&once, start);
    return &memories[device];
}

struct vgpu_memory *vgpu_memory_over(const void *address) {
    pthread_once(&once, start);
    for (int i = 0; i < devices; i++)
        if ((uint64_t)(uintptr_t)address - memories[i].arena.base < memories[i].arena.range) return &memories[i];
    return NULL;
}

int vgpu_memory_device(const struct vgpu_memory *m) {
    return (int)(m - memories);
}

uint64_t vgpu_capacity(void) {
    return vgpu_profile()->total_bytes;
}

/* ---- what an address is ---- */

/* The memory of one piece around an address that the device may touch: a block; of a pool the whole chunk, since a
 * device has its pages mapped whatever lies on them. exact: the block, up to where the program asked. */
static bool piece_at(const struct vgpu_memory *m, uint64_t at, bool exact, uint64_t *first, uint64_t *length) {
    struct vgpu_block *b = vgpu_arena_find(&m->arena, at);
    if (b && b->heap && (exact || b->heap == &m->small)) b = vgpu_heap_find(b, at);
    if (!b) return false;
    *first = b->address;
    *length = exact ? b->asked : b->bytes;
    return true;
}

static bool within(const struct vgpu_memory *m, const void *address, size_t bytes, bool exact, uint64_t *first,
                   uint64_t *length) {
    uint64_t at = (uint64_t)(uintptr_t)address;
    vgpu_memory_enter();
    bool found = piece_at(m, at, exact, first, length);
    vgpu_memory_leave();
    return found && at - *first < *length && bytes <= *length - (at - *first);
}

enum vgpu_side vgpu_side_of(const void *address, size_t bytes) {
    uint64_t first, length;
    const struct vgpu_memory *m = vgpu_memory_over(address);
    if (!m) return vgpu_host_side(address, bytes, NULL);
    return within(m, address, bytes, false, &first, &length) ? VGPU_DEVICE : VGPU_BAD;
}

int vgpu_device_of(const void *address) {
    const struct vgpu_memory *m = vgpu_memory_over(address);
    return m ? vgpu_memory_device(m) : -1;
}

bool vgpu_device_can(const void *address, size_t bytes) {
    if (!bytes) return true;
    enum vgpu_side side = vgpu_side_of(address, bytes);
    return side == VGPU_PINNED || side == VGPU_MANAGED ||
           (side == VGPU_DEVICE && vgpu_peer_reaches(vgpu_current(), address));
}

bool vgpu_device_range(const void *address, size_t bytes, bool exact, uint64_t *first, uint64_t *length) {
    const struct vgpu_memory *m = vgpu_memory_over(address);
    if (!m) return vgpu_host_range(address, bytes, first, length);
    return within(m, address, bytes, exact, first, length) && vgpu_peer_reaches(vgpu_current(), address);
}

struct vgpu_block *vgpu_memory_block(const struct vgpu_memory *m, const void *address) {
    uint64_t at = (uint64_t)(uintptr_t)address;
    struct vgpu_block *b = vgpu_arena_find(&m->arena, at);
    if (b && b->heap) b = vgpu_heap_find(b, at);
    return b && b->address == at && !b->releasing ? b : NULL;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *out, const void *address) {
    if (!out) return cudaErrorInvalidValue;
    memset(out, 0, sizeof *out);
    enum vgpu_side side = vgpu_side_of(address, 1);
    if (side == VGPU_DEVICE) {
        out->type = cudaMemoryTypeDevice;
        out->device = vgpu_device_of(address);
        out->devicePointer = (void *)(uintptr_t)address;
    } else if (side == VGPU_BAD) {
        return cudaErrorInvalidValue;
    } else {
        vgpu_host_side(address, 1, out);
    }
    return cudaSuccess;
}

/* ---- allocation ---- */

/* Whole pages, or a piece of one that is shared. Under the lock. */
static struct vgpu_block *take(struct vgpu_memory *m, size_t bytes) {
    if (bytes > m->small_most) return vgpu_arena_take(&m->arena, bytes);
    struct vgpu_block *b = vgpu_heap_take(&m->small, bytes, NULL);
    if (!b && !vgpu_heap_grow(&m->small, bytes)) b = vgpu_heap_take(&m->small, bytes, NULL);
    if (b && m->arena.poison && !m->arena.untouched) memset((void *)(uintptr_t)b->address, 0xff, b->bytes);
    return b;
}

static void *try(struct vgpu_memory *m, size_t bytes) {
    vgpu_memory_enter();
    struct vgpu_block *b = take(m, bytes);
    void *p = b ? (void *)(uintptr_t)b->address : NULL;
    vgpu_memory_leave();
    return p;
}

/* Memory that pools hold without need is taken back before an allocation fails. */
static void *allocate(int device, size_t bytes, bool may_wait) {
    struct vgpu_memory *m = vgpu_memory_of(device);
    void *p = try(m, bytes);
    if (p || bytes > m->arena.limit) return p;
    vgpu_pools_reclaim(device, false);
    p = try(m, bytes);
    if (p || !may_wait) return p;
    vgpu_pools_reclaim(device, true);
    return try(m, bytes);
}

cudaError_t cudaMalloc(void **out, size_t bytes) {
    if (!out) return cudaErrorInvalidValue;
    if (!bytes) {
        *out = NULL;
        return cudaSuccess;
    }
    cudaError_t e = vgpu_capture_unsafe();
    if (e) return e;
    void *p = allocate(vgpu_current(), bytes, true);
    if (!p) return cudaErrorMemoryAllocation;
    *out = p;
    return cudaSuccess;
}

void *vgpu_device_allocate(int device, size_t bytes) {
    return allocate(device, bytes, true);
}

void *vgpu_device_take(size_t bytes) {
    return bytes ? allocate(vgpu_current(), bytes, false) : NULL;
}

/* Under the lock; not of a pool. */
static void give(struct vgpu_memory *m, struct vgpu_block *b) {
    if (!b->chunk) {
        vgpu_arena_give(&m->arena, b);
        return;
    }
    vgpu_heap_give(&m->small, b, NULL, 0);
    vgpu_heap_trim(&m->small, 0);
}

void vgpu_device_release(void *address) {
    struct vgpu_memory *m = vgpu_memory_over(address);
    if (!m) return;
    vgpu_memory_enter();
    struct vgpu_block *b = vgpu_memory_block(m, address);
    if (b && !vgpu_pool_of(b)) give(m, b);
    vgpu_memory_leave();
}

/* Like the device's, it waits for the work under way, which may use the memory. Managed memory is released here too. */
cudaError_t cudaFree(void *address) {
    if (!address) return cudaSuccess;
    struct vgpu_memory *m = vgpu_memory_over(address);
    cudaError_t e = m ? vgpu_capture_unsafe() : cudaSuccess;
    if (e || vgpu_graph_memory_free(address, &e)) return e;
    if (!m) return vgpu_host_side(address, 1, NULL) == VGPU_MANAGED ? cudaFreeHost(address) : cudaErrorInvalidValue;
    vgpu_memory_enter();
    struct vgpu_block *b = vgpu_memory_block(m, address);
    bool pooled = b && vgpu_pool_of(b);
    if (b && !pooled) b->releasing = true;
    vgpu_memory_leave();
    if (!b) return cudaErrorInvalidValue;
    e = vgpu_wait_device(vgpu_memory_device(m));
    if (pooled) {
        cudaError_t freed = vgpu_pool_free(address);
        return freed ? freed : e;
    }
    vgpu_memory_enter();
    give(m, b);
    vgpu_memory_leave();
    return e;
}

static void run_release(void *args) {
    struct vgpu_block *b = *(struct vgpu_block **)args;
    struct vgpu_memory *m = vgpu_memory_over((void *)(uintptr_t)b->address);
    vgpu_memory_enter();
    give(m, b);
    vgpu_memory_leave();
}

cudaError_t vgpu_release_ordered(void *address, cudaStream_t stream) {
    struct vgpu_memory *m = vgpu_memory_over(address);
    vgpu_memory_enter();
    struct vgpu_block *b = vgpu_memory_block(m, address);
    if (b) b->releasing = true;
    vgpu_memory_leave();
    if (!b) return cudaErrorInvalidValue;
    struct vgpu_work w = {.run = run_release, .args = &b, .bytes = sizeof b, .kind = VGPU_WORK_NOTE};
    cudaError_t e = vgpu_submit(stream, &w, NULL);
    if (e) {
        vgpu_memory_enter();
        b->releasing = false;
        vgpu_memory_leave();
    }
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
    struct vgpu_memory *m = vgpu_memory_of(vgpu_current());
    vgpu_memory_enter();
    *available = vgpu_arena_left(&m->arena);
    *total = vgpu_profile()->total_bytes;
    vgpu_memory_leave();
    return cudaSuccess;
}

void vgpu_memory_reset(int device) {
    struct vgpu_memory *m = vgpu_memory_of(device);
    vgpu_pools_reset(device);
    vgpu_memory_enter();
    vgpu_heap_clear(&m->small);
    while (m->arena.used) vgpu_arena_give(&m->arena, (struct vgpu_block *)m->arena.used);
    m->arena.in_use_high = 0;
    vgpu_memory_leave();
}
