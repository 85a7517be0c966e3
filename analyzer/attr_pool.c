/* Memory of one analysis, and the hash map. */
#include "analyzer/attr_pool.h"

#include <stdlib.h>
#include <string.h>

struct pool_block {
    struct pool_block *next, *prev;
    char gap[32]; /* large blocks, which malloc maps 16 bytes behind a page's begin, then begin at a cache line */
    _Alignas(16) char memory[];
};

static void link_in(struct pool *p, struct pool_block *b) {
    b->prev = NULL;
    b->next = p->blocks;
    if (b->next) b->next->prev = b;
    p->blocks = b;
}

static void unlink_from(struct pool *p, struct pool_block *b) {
    if (b->prev)
        b->prev->next = b->next;
    else
        p->blocks = b->next;
    if (b->next) b->next->prev = b->prev;
}

static struct pool_block *block_of(void *memory) {
    return (struct pool_block *)((char *)memory - offsetof(struct pool_block, memory));
}

void *pool_take(struct pool *p, size_t count, size_t size) {
    if (size && count > (SIZE_MAX - sizeof(struct pool_block)) / size) longjmp(p->failed, 1);
    struct pool_block *b = calloc(1, sizeof *b + count * size);
    if (!b) longjmp(p->failed, 1);
    link_in(p, b);
    return b->memory;
}

void *pool_grow(struct pool *p, void *old, size_t count, size_t size) {
    if (!old) return pool_take(p, count, size);
    if (size && count > (SIZE_MAX - sizeof(struct pool_block)) / size) longjmp(p->failed, 1);
    struct pool_block *b = block_of(old);
    unlink_from(p, b);
    struct pool_block *n = realloc(b, sizeof *n + count * size);
    link_in(p, n ? n : b);
    if (!n) longjmp(p->failed, 1);
    return n->memory;
}

void pool_give(struct pool *p, void *memory) {
    if (!memory) return;
    struct pool_block *b = block_of(memory);
    unlink_from(p, b);
    free(b);
}

void pool_free(struct pool *p) {
    while (p->blocks) pool_give(p, p->blocks->memory);
}

uint64_t at_mix(uint64_t x) { /* the finaliser of splitmix64 */
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

uint64_t at_hash_bytes(const void *bytes_at, size_t bytes) {
    const unsigned char *p = bytes_at;
    uint64_t h = bytes, w;
    for (; bytes >= 8; p += 8, bytes -= 8) {
        memcpy(&w, p, 8);
        h = (h ^ w) * 0x9e3779b97f4a7c15u;
        h ^= h >> 32;
    }
    w = 0;
    memcpy(&w, p, bytes);
    return at_mix(h ^ w);
}

static size_t place_of(const struct at_map *m, uint64_t key) {
    size_t i = at_mix(key) & (m->capacity - 1);
    while (m->used[i] && m->key[i] != key) i = (i + 1) & (m->capacity - 1);
    return i;
}

static void map_rehash(struct at_map *m, struct pool *p) {
    struct at_map old = *m;
    m->capacity = old.capacity ? 2 * old.capacity : 64;
    m->key = POOL_NEW(p, uint64_t, m->capacity);
    m->value = POOL_NEW(p, int64_t, m->capacity);
    m->used = POOL_NEW(p, uint8_t, m->capacity);
    for (size_t i = 0; i < old.capacity; i++) {
        if (!old.used[i]) continue;
        size_t j = place_of(m, old.key[i]);
        m->used[j] = 1;
        m->key[j] = old.key[i];
        m->value[j] = old.value[i];
    }
    pool_give(p, old.key);
    pool_give(p, old.value);
    pool_give(p, old.used);
}

int64_t *at_map_put(struct at_map *m, struct pool *p, uint64_t key, int *fresh) {
    if (2 * (m->count + 1) > m->capacity) map_rehash(m, p);
    size_t i = place_of(m, key);
    int isnew = !m->used[i];
    if (fresh) *fresh = isnew;
    if (isnew) {
        m->used[i] = 1;
        m->key[i] = key;
        m->value[i] = 0;
        m->count++;
    }
    return &m->value[i];
}

int64_t *at_map_get(const struct at_map *m, uint64_t key) {
    if (!m->capacity) return NULL;
    size_t i = place_of(m, key);
    return m->used[i] ? &m->value[i] : NULL;
}

void at_map_free(struct at_map *m, struct pool *p) {
    pool_give(p, m->key);
    pool_give(p, m->value);
    pool_give(p, m->used);
    *m = (struct at_map){0};
}
