#include "vgpu/vgpu_arena.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void put_space(struct vgpu_arena *a, struct vgpu_block *b) {
    b->used = false;
    b->node.key[0] = b->bytes;
    b->node.key[1] = b->address;
    vgpu_tree_insert(&a->space, &b->node);
}

static void put_used(struct vgpu_arena *a, struct vgpu_block *b) {
    b->used = true;
    b->node.key[0] = b->address;
    b->node.key[1] = 0;
    vgpu_tree_insert(&a->used, &b->node);
}

int vgpu_arena_create(struct vgpu_arena *a, uint64_t range, uint64_t limit, uint64_t unit) {
    memset(a, 0, sizeof *a);
    a->page = (uint64_t)sysconf(_SC_PAGESIZE);
    a->unit = unit;
    a->limit = limit;
    a->range = range / unit * unit;
    if (!a->range || a->range + unit < range) return -1;
    uint64_t mapped = a->range + (unit > a->page ? unit : 0); /* room to begin at a multiple of the unit */
    void *map = mmap(NULL, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) return -1;
    /* A forked child has no device: it gets no copy of the device's memory either. */
    madvise(map, mapped, MADV_DONTFORK);
    struct vgpu_block *all = calloc(1, sizeof *all);
    if (!all) {
        munmap(map, mapped);
        return -1;
    }
    a->map = map;
    a->map_bytes = mapped;
    a->base = all->address = ((uint64_t)(uintptr_t)map + unit - 1) / unit * unit;
    all->bytes = a->range;
    put_space(a, all);
    return 0;
}

static int open_pages(const struct vgpu_arena *a, uint64_t from, uint64_t to) {
    if (a->untouched) return 0;
    from = from / a->page * a->page;
    to = (to + a->page - 1) / a->page * a->page;
    return mprotect((void *)(uintptr_t)from, to - from, PROT_READ | PROT_WRITE);
}

/* Cuts `b` down to `bytes`; what is left over becomes a free block after it. -1: no memory for its description. */
static int cut(struct vgpu_arena *a, struct vgpu_block *b, uint64_t bytes) {
    if (b->bytes == bytes) return 0;
    struct vgpu_block *rest = calloc(1, sizeof *rest);
    if (!rest) return -1;
    rest->address = b->address + bytes;
    rest->bytes = b->bytes - bytes;
    rest->previous = b;
    rest->next = b->next;
    if (rest->next) rest->next->previous = rest;
    b->next = rest;
    b->bytes = bytes;
    put_space(a, rest);
    return 0;
}

struct vgpu_block *vgpu_arena_take(struct vgpu_arena *a, uint64_t bytes) {
    if (!bytes || bytes > a->limit) return NULL;
    uint64_t whole = (bytes + a->unit - 1) / a->unit * a->unit;
    if (whole > vgpu_arena_left(a)) return NULL;
    struct vgpu_block *b = (struct vgpu_block *)vgpu_tree_ceiling(a->space, whole, 0);
    if (!b || open_pages(a, b->address, b->address + whole)) return NULL;
    vgpu_tree_remove(&a->space, &b->node);
    if (cut(a, b, whole)) {
        put_space(a, b);
        return NULL;
    }
    b->asked = bytes;
    b->owner = NULL;
    b->heap = NULL;
    b->releasing = false;
    put_used(a, b);
    a->in_use += whole;
    if (a->in_use > a->in_use_high) a->in_use_high = a->in_use;
    if (a->poison && !a->untouched) memset((void *)(uintptr_t)b->address, 0xff, whole);
    return b;
}

/* Of the pages that touch [from, to), those that lie in the free block `b` alone. */
static void close_pages(const struct vgpu_arena *a, const struct vgpu_block *b, uint64_t from, uint64_t to) {
    if (a->untouched) return;
    uint64_t low = from / a->page * a->page, high = (to + a->page - 1) / a->page * a->page;
    if (low < b->address) low += a->page;
    if (high > b->address + b->bytes && b->next) /* past the arena's end nobody has a block */
        high -= a->page;
    if (low >= high) return;
    void *page = (void *)(uintptr_t)low;
    madvise(page, high - low, MADV_DONTNEED);
    mprotect(page, high - low, PROT_NONE); /* fails only where the kernel has no mapping left: then it stays open */
}

static struct vgpu_block *join_next(struct vgpu_block *b) {
    struct vgpu_block *gone = b->next;
    b->bytes += gone->bytes;
    b->next = gone->next;
    if (b->next) b->next->previous = b;
    free(gone);
    return b;
}

void vgpu_arena_give(struct vgpu_arena *a, struct vgpu_block *b) {
    uint64_t from = b->address, to = from + b->bytes;
    a->in_use -= b->bytes;
    vgpu_tree_remove(&a->used, &b->node);
    if (b->next && !b->next->used) {
        vgpu_tree_remove(&a->space, &b->next->node);
        join_next(b);
    }
    if (b->previous && !b->previous->used) {
        b = b->previous;
        vgpu_tree_remove(&a->space, &b->node);
        join_next(b);
    }
    close_pages(a, b, from, to);
    put_space(a, b);
}

struct vgpu_block *vgpu_arena_find(const struct vgpu_arena *a, uint64_t address) {
    struct vgpu_block *b = (struct vgpu_block *)vgpu_tree_floor(a->used, address, 0);
    return b && address < b->address + b->bytes ? b : NULL;
}

void vgpu_arena_destroy(struct vgpu_arena *a) {
    while (a->used) vgpu_arena_give(a, (struct vgpu_block *)a->used);
    free(a->space); /* joined to one block, whose node comes first */
    munmap(a->map, a->map_bytes);
}
