#include "vgpu/vgpu_heap.h"

#include <stdlib.h>
#include <string.h>

/* ---- lists ---- */

static void append(struct vgpu_block **first, struct vgpu_block **last, struct vgpu_block *b) {
    b->list_previous = *last;
    b->list_next = NULL;
    *(*last ? &(*last)->list_next : first) = b;
    *last = b;
}

static void insert_after(struct vgpu_block **last, struct vgpu_block *at, struct vgpu_block *b) {
    b->list_previous = at;
    b->list_next = at->list_next;
    *(at->list_next ? &at->list_next->list_previous : last) = b;
    at->list_next = b;
}

static void unlist(struct vgpu_block **first, struct vgpu_block **last, struct vgpu_block *b) {
    *(b->list_previous ? &b->list_previous->list_next : first) = b->list_next;
    *(b->list_next ? &b->list_next->list_previous : last) = b->list_previous;
    b->list_next = b->list_previous = NULL;
}

/* ---- free blocks: of all, or of a lane ---- */

static struct vgpu_lane *lane_of(const struct vgpu_heap *h, const void *stream) {
    struct vgpu_lane *l = stream ? h->lanes : NULL;
    while (l && l->stream != stream) l = l->next;
    return l;
}

static struct vgpu_lane *make_lane(struct vgpu_heap *h, void *stream) {
    struct vgpu_lane *l = lane_of(h, stream);
    if (l) return l;
    l = calloc(1, sizeof *l);
    if (!l) return NULL;
    l->stream = stream;
    l->next = h->lanes;
    h->lanes = l;
    return l;
}

static bool is_idle(const struct vgpu_block *b) {
    return b->bytes == b->chunk->bytes;
}

static void key_by_size(struct vgpu_block *b) {
    b->used = false;
    b->node.key[0] = b->bytes;
    b->node.key[1] = b->address;
}

static void put_space(struct vgpu_heap *h, struct vgpu_block *b) {
    key_by_size(b);
    b->lane = NULL;
    vgpu_tree_insert(&h->space, &b->node);
    if (!is_idle(b)) return;
    h->idle += b->bytes;
    append(&h->idle_first, &h->idle_last, b);
}

static void drop_space(struct vgpu_heap *h, struct vgpu_block *b) {
    vgpu_tree_remove(&h->space, &b->node);
    if (!is_idle(b)) return;
    h->idle -= b->bytes;
    unlist(&h->idle_first, &h->idle_last, b);
}

static void put_lane(struct vgpu_lane *l, struct vgpu_block *b, struct vgpu_block *after) {
    key_by_size(b);
    b->lane = l;
    vgpu_tree_insert(&l->space, &b->node);
    if (after)
        insert_after(&l->last, after, b);
    else
        append(&l->first, &l->last, b);
}

static void drop_lane(struct vgpu_block *b) {
    vgpu_tree_remove(&b->lane->space, &b->node);
    unlist(&b->lane->first, &b->lane->last, b);
}

static void drop_free(struct vgpu_heap *h, struct vgpu_block *b) {
    if (b->lane)
        drop_lane(b);
    else
        drop_space(h, b);
}

/* ---- blocks ---- */

static void join_next(struct vgpu_block *b) {
    struct vgpu_block *gone = b->next;
    b->bytes += gone->bytes;
    b->next = gone->next;
    if (b->next) b->next->previous = b;
    free(gone);
}

/* May a block that is becoming free for `lane` (NULL: for all) be joined to that neighbour? */
static bool joins(const struct vgpu_block *b, const struct vgpu_lane *lane) {
    return b && !b->used && (!b->lane || b->lane == lane);
}

/* Joins b, which is in no set, to its free neighbours, and returns what has become of it, in no set either. */
static struct vgpu_block *join(struct vgpu_heap *h, struct vgpu_block *b, const struct vgpu_lane *lane) {
    if (joins(b->next, lane)) {
        drop_free(h, b->next);
        join_next(b);
    }
    if (joins(b->previous, lane)) {
        b = b->previous;
        drop_free(h, b);
        join_next(b);
    }
    return b;
}

/* The remainder of a free block, behind it; -1: no memory for its description. */
static int cut(struct vgpu_heap *h, struct vgpu_block *b, uint64_t bytes, struct vgpu_block *before_it) {
    if (b->bytes == bytes) return 0;
    struct vgpu_block *rest = calloc(1, sizeof *rest);
    if (!rest) return -1;
    rest->heap = h;
    rest->chunk = b->chunk;
    rest->address = b->address + bytes;
    rest->bytes = b->bytes - bytes;
    rest->previous = b;
    rest->next = b->next;
    if (rest->next) rest->next->previous = rest;
    b->next = rest;
    b->bytes = bytes;
    rest->stream = b->stream;
    rest->sequence = b->sequence;
    if (!b->lane)
        put_space(h, rest);
    else if (before_it)
        put_lane(b->lane, rest, before_it);
    else { /* the lane's first: tickets keep their order */
        struct vgpu_lane *l = b->lane;
        key_by_size(rest);
        rest->lane = l;
        vgpu_tree_insert(&l->space, &rest->node);
        rest->list_next = l->first;
        *(l->first ? &l->first->list_previous : &l->last) = rest;
        l->first = rest;
    }
    return 0;
}

static struct vgpu_block *smaller(struct vgpu_block *a, struct vgpu_block *b) {
    if (!a || !b) return a ? a : b;
    return a->bytes < b->bytes || (a->bytes == b->bytes && a->address < b->address) ? a : b;
}

struct vgpu_block *vgpu_heap_take(struct vgpu_heap *h, uint64_t bytes, void *stream) {
    if (!bytes || bytes > UINT64_MAX - VGPU_ALIGN) return NULL;
    uint64_t whole = (bytes + VGPU_ALIGN - 1) / VGPU_ALIGN * VGPU_ALIGN;
    struct vgpu_lane *l = lane_of(h, stream);
    struct vgpu_block *b = smaller((struct vgpu_block *)vgpu_tree_ceiling(h->space, whole, 0),
                                   l ? (struct vgpu_block *)vgpu_tree_ceiling(l->space, whole, 0) : NULL);
    if (!b) return NULL;
    struct vgpu_block *before = b->lane ? b->list_previous : NULL;
    drop_free(h, b);
    if (cut(h, b, whole, before)) {
        if (b->lane)
            put_lane(b->lane, b, before);
        else
            put_space(h, b);
        return NULL;
    }
    b->lane = NULL;
    b->used = true;
    b->releasing = false;
    b->asked = bytes;
    b->owner = NULL;
    b->node.key[0] = b->address;
    b->node.key[1] = 0;
    vgpu_tree_insert(&b->chunk->inside, &b->node);
    h->used += b->bytes;
    if (h->used > h->used_high) h->used_high = h->used;
    return b;
}

static uint64_t up(uint64_t bytes, uint64_t unit) {
    return bytes > UINT64_MAX - unit ? UINT64_MAX : (bytes + unit - 1) / unit * unit;
}

int vgpu_heap_grow(struct vgpu_heap *h, uint64_t bytes) {
    uint64_t left = h->most ? h->most - h->reserved : UINT64_MAX, whole = up(bytes, h->grain);
    if (whole > left) whole = up(bytes, h->arena->unit);
    if (whole > left) return -1;
    struct vgpu_block *inner = calloc(1, sizeof *inner);
    if (!inner) return -1;
    struct vgpu_block *chunk = vgpu_arena_take(h->arena, whole);
    if (!chunk) chunk = vgpu_arena_take(h->arena, bytes);
    if (!chunk) {
        free(inner);
        return -1;
    }
    chunk->heap = h;
    chunk->inside = NULL;
    chunk->first = inner;
    *inner = (struct vgpu_block){.heap = h, .chunk = chunk, .address = chunk->address, .bytes = chunk->bytes};
    h->reserved += chunk->bytes;
    if (h->reserved > h->reserved_high) h->reserved_high = h->reserved;
    put_space(h, inner);
    return 0;
}

void vgpu_heap_give(struct vgpu_heap *h, struct vgpu_block *b, void *stream, uint64_t sequence) {
    struct vgpu_lane *l = stream ? make_lane(h, stream) : NULL;
    vgpu_tree_remove(&b->chunk->inside, &b->node);
    h->used -= b->bytes;
    b = join(h, b, l);
    b->stream = stream;
    b->sequence = sequence;
    if (l)
        put_lane(l, b, NULL);
    else
        put_space(h, b);
}

void vgpu_heap_collect(struct vgpu_heap *h, vgpu_reached_fn *reached) {
    for (struct vgpu_lane *l = h->lanes; l; l = l->next)
        while (l->first && reached(l->first->stream, l->first->sequence)) {
            struct vgpu_block *b = l->first;
            drop_lane(b);
            put_space(h, join(h, b, NULL));
        }
}

static void release_chunk(struct vgpu_heap *h, struct vgpu_block *chunk) {
    h->reserved -= chunk->bytes;
    chunk->heap = NULL;
    vgpu_arena_give(h->arena, chunk);
}

void vgpu_heap_trim(struct vgpu_heap *h, uint64_t keep) {
    while (h->reserved > keep && h->idle_first) {
        struct vgpu_block *b = h->idle_first, *chunk = b->chunk;
        drop_space(h, b);
        free(b);
        release_chunk(h, chunk);
    }
}

/* The arena's blocks in use, in no order: any that is a chunk of this heap. */
static struct vgpu_block *some_chunk(const struct vgpu_heap *h, uint64_t *from) {
    for (;;) {
        struct vgpu_block *b = (struct vgpu_block *)vgpu_tree_ceiling(h->arena->used, *from, 0);
        if (!b) return NULL;
        *from = b->address + 1;
        if (b->heap == h) return b;
    }
}

void vgpu_heap_clear(struct vgpu_heap *h) {
    uint64_t from = 0;
    for (struct vgpu_block *chunk; (chunk = some_chunk(h, &from));) {
        for (struct vgpu_block *b = chunk->first, *next; b; b = next) {
            next = b->next;
            free(b);
        }
        release_chunk(h, chunk);
    }
    for (struct vgpu_lane *l = h->lanes, *next; l; l = next) {
        next = l->next;
        free(l);
    }
    h->lanes = NULL;
    h->space = NULL;
    h->idle_first = h->idle_last = NULL;
    h->used = h->idle = 0;
}

struct vgpu_block *vgpu_heap_find(const struct vgpu_block *chunk, uint64_t address) {
    struct vgpu_block *b = (struct vgpu_block *)vgpu_tree_floor(chunk->inside, address, 0);
    return b && address < b->address + b->bytes ? b : NULL;
}
