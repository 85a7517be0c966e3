/* The memory of each device, from the inside (vgpu_memory.c, vgpu_pool.c). How it is counted: docs/INTERNALS.md. One
 * lock over all of it; vgpu_lock may be held when it is taken, never the other way round. */
#ifndef VGPU_MEMORY_H
#define VGPU_MEMORY_H

#include "vgpu/vgpu_engine.h"
#include "vgpu/vgpu_heap.h"
#include "vgpu/vgpu_profile.h"

struct vgpu_pool { /* a cudaMemPool_t */
    struct vgpu_heap heap;
    int device;
    uint64_t threshold; /* bytes that stay reserved at a synchronisation */
    uint32_t access;    /* a bit for each device that may touch it */
    bool destroyed;     /* by the program, while blocks of it were in use or on their way back */
    int reuse[3];
};

struct vgpu_memory { /* of one device */
    struct vgpu_arena arena;
    struct vgpu_heap small; /* of requests that are not worth pages of their own */
    uint64_t small_most;    /* bytes of such a request; 0: none is */
    struct vgpu_pool pool, *current_pool;
};

void vgpu_memory_enter(void);
void vgpu_memory_leave(void);
struct vgpu_memory *vgpu_memory_of(int device);
struct vgpu_memory *vgpu_memory_over(const void *address); /* NULL: not in any device's range */
int vgpu_memory_device(const struct vgpu_memory *memory);
/* The block in use that begins exactly at `address` and is not being released; NULL: none. Under the lock. */
struct vgpu_block *vgpu_memory_block(const struct vgpu_memory *memory, const void *address);

/* The pool that a block is of; NULL: none. */
static inline struct vgpu_pool *vgpu_pool_of(const struct vgpu_block *block) {
    return block->owner;
}
/* Idle chunks of a device's pools go back to it; all: also what streams are still to release, waited for. No lock held.
 * Not on a thread that runs work, if all. */
void vgpu_pools_reclaim(int device, bool all);
/* A block of a pool, whose device has been waited for, is released. Under no lock. */
cudaError_t vgpu_pool_free(void *address);
void vgpu_pools_reset(int device);

#endif
