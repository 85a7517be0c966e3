#include "sample_app/memory_pool.h"

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct memory_pool memory_pool_create(size_t bytes) {
    return (struct memory_pool){.bytes = bytes};
}

void memory_pool_destroy(struct memory_pool *p) {
    free(p->pieces);
    *p = (struct memory_pool){0};
}

static bool make_room(struct memory_pool *p) {
    if (p->count < p->capacity) return true;
    size_t capacity = p->capacity ? 2 * p->capacity : 64;
    struct piece *larger = realloc(p->pieces, capacity * sizeof *larger);
    if (!larger) return false;
    p->pieces = larger;
    p->capacity = capacity;
    return true;
}

/* A gap is what lies between the end of one piece and the beginning of the next, so gaps join by themselves. */
size_t memory_pool_take(struct memory_pool *p, size_t bytes) {
    size_t i, at = 0;
    bytes = (bytes + POOL_ALIGNMENT - 1) / POOL_ALIGNMENT * POOL_ALIGNMENT;
    for (i = 0; i < p->count && p->pieces[i].offset - at < bytes; i++) at = p->pieces[i].offset + p->pieces[i].bytes;
    if (i == p->count && p->bytes - at < bytes) return SIZE_MAX;
    if (!make_room(p)) return SIZE_MAX;
    memmove(&p->pieces[i + 1], &p->pieces[i], (p->count - i) * sizeof *p->pieces);
    p->pieces[i] = (struct piece){at, bytes};
    p->count++;
    if (at + bytes > p->most) p->most = at + bytes;
    return at;
}

void memory_pool_give(struct memory_pool *p, size_t offset) {
    size_t i = 0;
    while (i < p->count && p->pieces[i].offset != offset) i++;
    assert(i < p->count);
    p->count--;
    memmove(&p->pieces[i], &p->pieces[i + 1], (p->count - i) * sizeof *p->pieces);
}
