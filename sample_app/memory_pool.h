/* A sub-allocator of ours (--alloc pool): which bytes of one block are whose. It knows offsets alone; the block itself
 * is device_tensors.c's. First fit: a piece takes the lowest gap that it fits in, and pieces that are given back join
 * the gaps beside them. The same requests give the same offsets, always. */
#ifndef TRAIN_MEMORY_POOL_H
#define TRAIN_MEMORY_POOL_H

#include <stddef.h>

enum { POOL_ALIGNMENT = 256 }; /* bytes: what cudaMalloc gives, and more than any load needs */

struct memory_pool {
    struct piece {
        size_t offset, bytes; /* multiples of POOL_ALIGNMENT; in the order of their offsets */
    } * pieces;
    size_t count, capacity; /* of the array */
    size_t bytes;           /* of the block */
    size_t most;            /* the end of the highest piece that there ever was: what the block must have */
};

/* An empty pool over a block of so many bytes; SIZE_MAX where the requests are to tell how many they need. */
struct memory_pool memory_pool_create(size_t bytes);
void memory_pool_destroy(struct memory_pool *p);

/* The offset of a new piece, or SIZE_MAX if no gap is large enough, or the host has no memory for one entry more. */
size_t memory_pool_take(struct memory_pool *p, size_t bytes);
/* The piece at `offset` is free again. */
void memory_pool_give(struct memory_pool *p, size_t offset);

#endif
