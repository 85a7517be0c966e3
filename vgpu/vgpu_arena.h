/* The device's memory: one reserved range of addresses with a fixed capacity, handed out best-fit in multiples of 512
 * bytes, neighbours joined when they are free, O(log n) a call. A page is accessible only while some block on it is in
 * use; a released page goes back to the machine. Not locked: the caller's lock. Blocks belong to the arena. */
#ifndef VGPU_ARENA_H
#define VGPU_ARENA_H

#include "vgpu/vgpu_tree.h"

#include <stdbool.h>

enum { VGPU_ALIGN = 512 };

struct vgpu_block {
    struct vgpu_node node;              /* free: by (bytes, address) in `space`; used: by address in `used` */
    struct vgpu_block *previous, *next; /* neighbours by address */
    uint64_t address;
    uint64_t bytes; /* multiple of VGPU_ALIGN */
    uint64_t asked; /* what the program asked for */
    void *owner;    /* the caller's; NULL for plain cudaMalloc */
    bool used;
    bool releasing; /* the caller's: its stream-ordered release is under way */
};

struct vgpu_arena {
    uint64_t base, capacity; /* bytes */
    uint64_t in_use, in_use_high;
    uint64_t page; /* of the machine */
    struct vgpu_node *space, *used;
    bool poison; /* fill fresh memory with a pattern that is NaN in every format */
};

int vgpu_arena_create(struct vgpu_arena *arena, uint64_t capacity); /* 0, or -1: the range cannot be reserved */
void vgpu_arena_destroy(struct vgpu_arena *arena);                  /* blocks in use go with it */
struct vgpu_block *vgpu_arena_take(struct vgpu_arena *arena, uint64_t bytes); /* NULL: no room; bytes > 0 */
void vgpu_arena_give(struct vgpu_arena *arena, struct vgpu_block *block);
struct vgpu_block *vgpu_arena_find(const struct vgpu_arena *arena,
                                   uint64_t address); /* block in use over it, or NULL */

#endif
