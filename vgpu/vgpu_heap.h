/* Small blocks of device memory in larger ones: a heap takes chunks from the device's arena, in multiples of its grain,
 * and hands out blocks of them, best-fit, in multiples of 512 bytes. A chunk that has become idle stays with the heap
 * until it is trimmed. Blocks of different chunks are never joined.
 *
 * A release may be ordered by a stream: what a stream has released is of use to that stream at once, since it gets to
 * the next use after the release, and to others when the stream has got there (its ticket is reached). For one stream
 * it makes no difference to what fits whether it is already there. Not locked: the caller's lock. */
#ifndef VGPU_HEAP_H
#define VGPU_HEAP_H

#include "vgpu/vgpu_arena.h"

struct vgpu_lane { /* of one stream */
    struct vgpu_lane *next;
    void *stream;
    struct vgpu_node *space;
    struct vgpu_block *first, *last; /* in the order of their tickets */
};

struct vgpu_heap {
    struct vgpu_arena *arena;
    uint64_t grain;                         /* bytes; a multiple of the arena's unit */
    uint64_t most;                          /* bytes of chunks at most; 0: no limit */
    uint64_t used, used_high;               /* bytes of blocks in use */
    uint64_t reserved, reserved_high, idle; /* bytes of chunks; of those with no block in use and none pending */
    struct vgpu_node *space;
    struct vgpu_block *idle_first, *idle_last; /* the free block of each idle chunk */
    struct vgpu_lane *lanes;
};

typedef bool vgpu_reached_fn(void *stream, uint64_t sequence);

/* A block of what is free, or what `stream` has released (NULL: no stream). NULL: no gap is large enough. */
struct vgpu_block *vgpu_heap_take(struct vgpu_heap *heap, uint64_t bytes, void *stream);
/* One more chunk, for a block of `bytes`: of the heap's grain, or if the device has not got that much, just as large as
 * the arena's unit allows. -1: no room. */
int vgpu_heap_grow(struct vgpu_heap *heap, uint64_t bytes);
/* stream NULL: at once; else free to others when that stream's `sequence` is reached. */
void vgpu_heap_give(struct vgpu_heap *heap, struct vgpu_block *block, void *stream, uint64_t sequence);
void vgpu_heap_collect(struct vgpu_heap *heap, vgpu_reached_fn *reached); /* what has been reached is free to all */
void vgpu_heap_trim(struct vgpu_heap *heap, uint64_t keep); /* idle chunks go back while more than `keep` is reserved */
void vgpu_heap_clear(struct vgpu_heap *heap);               /* all chunks go back, with whatever is in them */
/* The block in use over an address in that chunk, or NULL. */
struct vgpu_block *vgpu_heap_find(const struct vgpu_block *chunk, uint64_t address);

#endif
