/* Addresses of a device's memory, and how much of it is in use: a reserved range of addresses, several times as large
 * as the memory, so that what runs out is memory and not a gap of addresses; a device maps pages as it needs them.
 * Handed out best-fit in multiples of `unit`, neighbours joined when they are free, O(log n) a call. A page of the
 * machine is accessible only while some block on it is in use; a released page goes back to the machine. Not locked:
 * the caller's lock. Blocks belong to the arena. */
#ifndef VGPU_ARENA_H
#define VGPU_ARENA_H

#include "vgpu/vgpu_tree.h"

#include <stdbool.h>
#include <stddef.h>

enum { VGPU_ALIGN = 512 };

struct vgpu_heap; /* vgpu_heap.h: small blocks inside larger ones, the heap's chunks */
struct vgpu_lane;

struct vgpu_block {
    struct vgpu_node node;              /* free: by (bytes, address); used: by address */
    struct vgpu_block *previous, *next; /* neighbours by address; of a block in a chunk: within the chunk */
    uint64_t address;
    uint64_t bytes; /* multiple of the arena's unit, in a chunk of VGPU_ALIGN */
    uint64_t asked; /* what the program asked for */
    void *owner;    /* the caller's; NULL for plain cudaMalloc */
    bool used;
    bool releasing; /* the caller's: its stream-ordered release is under way */

    /* Of heaps (vgpu_heap.c). */
    struct vgpu_heap *heap;   /* a chunk, or a block in one */
    struct vgpu_block *chunk; /* in which it lies; NULL: it is the arena's own */
    struct vgpu_node *inside; /* a chunk: its blocks in use, by address */
    struct vgpu_block *first; /* a chunk: its first block */
    struct vgpu_lane *lane;   /* released, of use to that stream alone until its ticket is reached */
    struct vgpu_block *list_next, *list_previous; /* in a lane, by time of release; or among the idle chunks */
    void *stream;                                 /* the ticket: … */
    uint64_t sequence;
};

struct vgpu_arena {
    uint64_t base, range; /* bytes of addresses */
    uint64_t limit;       /* bytes that can be in use at once */
    uint64_t unit;
    uint64_t in_use, in_use_high;
    uint64_t page; /* of the machine */
    void *map;     /* all that is reserved */
    uint64_t map_bytes;
    struct vgpu_node *space, *used;
    bool poison;    /* fill fresh memory with a pattern that is NaN in every format */
    bool untouched; /* nobody accesses the memory: its pages stay closed */
};

/* 0, or -1: the range cannot be reserved. range, limit: bytes; base is a multiple of unit. */
int vgpu_arena_create(struct vgpu_arena *arena, uint64_t range, uint64_t limit, uint64_t unit);
void vgpu_arena_destroy(struct vgpu_arena *arena); /* blocks in use go with it; heaps must have been cleared */
struct vgpu_block *vgpu_arena_take(struct vgpu_arena *arena, uint64_t bytes); /* NULL: no room; bytes > 0 */
void vgpu_arena_give(struct vgpu_arena *arena, struct vgpu_block *block);
/* Block in use over an address, or NULL. A chunk for one: it has the blocks. */
struct vgpu_block *vgpu_arena_find(const struct vgpu_arena *arena, uint64_t address);
static inline uint64_t vgpu_arena_left(const struct vgpu_arena *a) {
    return a->limit - a->in_use;
}

#endif
