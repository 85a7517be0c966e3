/* Memory of one analysis: everything is freed together. Out of memory leaves by longjmp to pool.failed. And the small
 * containers that the rules need. One thread. */
#ifndef ACCT_ANALYZER_ATTR_POOL_H
#define ACCT_ANALYZER_ATTR_POOL_H

#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>

struct pool_block;
struct pool {
    struct pool_block *blocks;
    jmp_buf failed;
};

void *pool_take(struct pool *p, size_t count, size_t size);            /* zeroed; never NULL */
void *pool_grow(struct pool *p, void *old, size_t count, size_t size); /* contents kept, the rest is not set */
void pool_give(struct pool *p, void *memory);
void pool_free(struct pool *p);

#define POOL_NEW(p, type, count) ((type *)pool_take(p, (size_t)(count), sizeof(type)))
/* Room for one more element in an array that doubles. */
#define POOL_ROOM(p, array, count, capacity)                                    \
    do {                                                                        \
        if ((count) == (capacity)) {                                            \
            (capacity) = (capacity) ? 2 * (capacity) : 64;                      \
            (array) = pool_grow(p, array, (size_t)(capacity), sizeof *(array)); \
        }                                                                       \
    } while (0)

/* A hash map from 64 bit to 64 bit, or a set. Zeroed memory is an empty map. */
struct at_map {
    uint64_t *key;
    int64_t *value;
    uint8_t *used;
    size_t capacity, count;
};

static inline uint64_t at_pair(int32_t a, int32_t b) {
    return (uint64_t)(uint32_t)a << 32 | (uint32_t)b;
}
uint64_t at_mix(uint64_t x);
uint64_t at_hash_bytes(const void *bytes_at, size_t bytes);
/* The value's place; *fresh (may be NULL) tells whether the key was new (then the value is 0). Valid until the next
 * put. */
int64_t *at_map_put(struct at_map *m, struct pool *p, uint64_t key, int *fresh);
int64_t *at_map_get(const struct at_map *m, uint64_t key); /* NULL: not there */
void at_map_free(struct at_map *m, struct pool *p);        /* it is empty then */
static inline int at_map_has(const struct at_map *m, uint64_t key) {
    return at_map_get(m, key) != NULL;
}

#endif
