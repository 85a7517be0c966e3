/* What a launch does, for the model of times: FLOPs and bytes by the cost model of ptx/, kept by all that they depend
 * on. Of bounds the least counts, as befits a model of the best case. */
#include "ptx/ptx_access.h"
#include "ptx/ptx_cost.h"
#include "vgpu/vgpu_run.h"

#include <stdlib.h>
#include <string.h>

/* Instructions evaluated, some 10 million a second. A price gets MOST_STEPS; a kernel that has taken KERNEL_STEPS for
 * prices that are not exact (each with other scalars, such as a seed) is no more worth it: what it did before stands
 * for it, by the number of threads. */
#define MOST_STEPS UINT64_C(2000000)
#define KERNEL_STEPS UINT64_C(2000000)
enum { BUCKETS = 1 << 14, MOST_ENTRIES = 1 << 16 };

struct key { /* params follow, pointers replaced by what control may depend on */
    const struct vgpu_kernel *kernel;
    uint32_t grid[3], block[3], dynamic_shared, param_bytes;
};

struct entry {
    struct entry *next;
    uint64_t hash;
    struct vgpu_amount amount;
    struct key key;
    unsigned char params[];
};

/* Of a kernel whose prices are costly. */
struct costly {
    struct costly *next;
    const struct vgpu_kernel *kernel;
    uint64_t steps;
    double threads;
    struct vgpu_amount amount; /* of that many threads: its last price */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct entry *bucket[BUCKETS];
static size_t entries;
static struct costly *all_costly;

/* ---- keys ---- */

/* Null or not, and how it is aligned. */
static void hide_pointer(unsigned char *at) {
    uint64_t p;
    memcpy(&p, at, sizeof p);
    p = p ? 16 + p % 16 : 0;
    memcpy(at, &p, sizeof p);
}

/* Compared with something, as the end of a range is with where it begins. */
static bool is_compared(const struct vgpu_kernel *k, uint32_t pointer) {
    for (uint32_t b = pointer; k->uses && b < pointer + 8 && b < k->f->param_bytes; b++)
        if (k->uses[b] == PTX_COST_BY_VALUE) return true;
    return false;
}

/* Where pointers could not be followed, every word may be one: those that point into the device's memory are. */
static void hide_pointers(const struct vgpu_kernel *k, unsigned char *params) {
    for (uint32_t i = 0; i < k->pointer_count; i++) {
        uint64_t p;
        if (is_compared(k, k->pointers[i])) continue;
        memcpy(&p, params + k->pointers[i], sizeof p);
        if (k->followed || vgpu_side_of((void *)(uintptr_t)p, 1) == VGPU_DEVICE) hide_pointer(params + k->pointers[i]);
    }
}

static struct key key_of(const struct vgpu_launch *l) {
    struct key k = {.kernel = l->kernel, .dynamic_shared = l->dynamic_shared, .param_bytes = l->kernel->f->param_bytes};
    memcpy(k.grid, l->grid, sizeof k.grid);
    memcpy(k.block, l->block, sizeof k.block);
    return k;
}

static uint64_t hash_bytes(uint64_t h, const void *p, size_t n) {
    const unsigned char *b = p;
    for (; n >= 8; n -= 8, b += 8) {
        uint64_t word;
        memcpy(&word, b, sizeof word);
        h = (h ^ word) * UINT64_C(0x9E3779B97F4A7C15);
        h ^= h >> 29;
    }
    for (; n; n--) h = (h ^ *b++) * UINT64_C(0x100000001B3);
    return h;
}

static const struct entry *find(const struct key *k, const unsigned char *params, uint64_t hash) {
    for (const struct entry *e = bucket[hash % BUCKETS]; e; e = e->next)
        if (e->hash == hash && !memcmp(&e->key, k, sizeof *k) && !memcmp(e->params, params, k->param_bytes)) return e;
    return NULL;
}

static void forget_all(void) {
    for (size_t i = 0; i < BUCKETS; i++)
        for (struct entry *e = bucket[i], *next; e; e = next) {
            next = e->next;
            free(e);
        }
    memset(bucket, 0, sizeof bucket);
    entries = 0;
}

/* Without memory it is computed again the next time. */
static void keep(const struct key *k, const unsigned char *params, uint64_t hash, const struct vgpu_amount *amount) {
    struct entry *e = malloc(sizeof *e + k->param_bytes);
    if (!e) return;
    *e = (struct entry){.hash = hash, .amount = *amount, .key = *k};
    memcpy(e->params, params, k->param_bytes);
    if (entries == MOST_ENTRIES) forget_all();
    e->next = bucket[hash % BUCKETS];
    bucket[hash % BUCKETS] = e;
    entries++;
}

/* ---- one price ---- */

static void add_flops(const struct ptx_cost *c, struct vgpu_amount *a) {
    /* Vector units do halves at the rate of fp32 at least; no rate of their own is in the table. */
    static const uint8_t vector[PTX_COST_TYPES] = {
        [PTX_COST_FP64] = VGPU_FP64, [PTX_COST_FP32] = VGPU_FP32,  [PTX_COST_FP16] = VGPU_FP32,
        [PTX_COST_BF16] = VGPU_FP32, [PTX_COST_OTHER] = VGPU_FP32, [PTX_COST_TF32] = VGPU_FP32,
        [PTX_COST_FP8] = VGPU_FP32};
    /* Factors in fp32 go to matrix units as tf32; those of 6 and 4 bits are as fast as fp8 at least. */
    static const uint8_t matrix[PTX_COST_TYPES] = {
        [PTX_COST_FP64] = VGPU_FP64_MATRIX, [PTX_COST_FP32] = VGPU_TF32, [PTX_COST_FP16] = VGPU_FP16,
        [PTX_COST_BF16] = VGPU_BF16,        [PTX_COST_OTHER] = VGPU_FP8, [PTX_COST_TF32] = VGPU_TF32,
        [PTX_COST_FP8] = VGPU_FP8};
    for (int t = 0; t < PTX_COST_TYPES; t++) {
        a->flops[vector[t]] += (double)c->flops[t].lo;
        a->flops[matrix[t]] += (double)c->matrix[t].lo;
    }
}

struct extents {
    double read, written;
    bool read_known, written_known;
};

static struct extents extents_of(const struct vgpu_launch *l) {
    struct ptx_accesses a;
    if (ptx_access_launch(vgpu_kernel_module(l->kernel), l->kernel->f, l->grid, l->block, l->params, &a))
        return (struct extents){0};
    struct extents e = {.read_known = !a.unknown, .written_known = !a.unknown || !a.unknown_writes};
    for (int32_t i = 0; i < a.slots; i++) {
        const struct ptx_access *s = &a.slot[i];
        bool both = s->mode == PTX_ACCESS_RW;
        if (s->mode & PTX_ACCESS_R) {
            e.read += (double)(both ? s->read_hi - s->read_lo : s->hi - s->lo);
            e.read_known = e.read_known && s->extent_known;
        }
        if (s->mode & PTX_ACCESS_W) {
            e.written += (double)(both ? s->write_hi - s->write_lo : s->hi - s->lo);
            e.written_known = e.written_known && s->extent_known;
        }
    }
    ptx_access_free(&a);
    return e;
}

/* Caches save what is accessed twice: of each pointer no more than its extent comes from memory, where extents are
 * known. The report's bytes follow the same rule (analyzer/launch_price.c). */
static double at_most(const struct ptx_count *accessed, double extent, bool known) {
    double bytes = (double)accessed[PTX_COST_GLOBAL].lo;
    return known && extent < bytes ? extent : bytes;
}

static void add_bytes(const struct vgpu_launch *l, const struct ptx_cost *c, struct vgpu_amount *a) {
    struct extents e = extents_of(l);
    a->bytes += at_most(c->loaded, e.read, e.read_known) + at_most(c->stored, e.written, e.written_known);
}

static double threads_of(const struct vgpu_launch *l) {
    return (double)l->grid[0] * l->grid[1] * l->grid[2] * l->block[0] * l->block[1] * l->block[2];
}

/* Under the lock. NULL: none yet, and no memory. */
static struct costly *costly_of(const struct vgpu_kernel *k, bool make) {
    struct costly *c = all_costly;
    while (c && c->kernel != k) c = c->next;
    if (c || !make) return c;
    c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->kernel = k;
    c->next = all_costly;
    return all_costly = c;
}

static void scale(const struct vgpu_amount *from, double by, struct vgpu_amount *to) {
    *to = *from;
    for (int f = 0; f < VGPU_FORMATS; f++) to->flops[f] *= by;
    to->bytes *= by;
}

/* A kernel that has no price takes no more time than a launch. */
static void price(const struct vgpu_launch *l, struct vgpu_amount *out, bool *exact, uint64_t *steps) {
    struct ptx_cost cost;
    *out = (struct vgpu_amount){0};
    *steps = 0;
    *exact = true;
    if (ptx_cost_launch_within(MOST_STEPS, vgpu_kernel_module(l->kernel), l->kernel->f, l->grid, l->block,
                               l->dynamic_shared, l->params, &cost))
        return;
    *exact = cost.grade == PTX_COST_EXACT;
    *steps = cost.steps;
    add_flops(&cost, out);
    add_bytes(l, &cost, out);
}

/* True: known without work. */
static bool look_up(const struct vgpu_launch *l, const struct key *k, const unsigned char *params, uint64_t hash,
                    struct vgpu_amount *out) {
    pthread_mutex_lock(&lock);
    const struct entry *e = find(k, params, hash);
    const struct costly *c = e || !all_costly ? NULL : costly_of(k->kernel, false);
    if (e) *out = e->amount;
    bool enough = c && c->steps >= KERNEL_STEPS;
    if (enough) scale(&c->amount, threads_of(l) / c->threads, out);
    pthread_mutex_unlock(&lock);
    return e || enough;
}

static void remember(const struct vgpu_launch *l, const struct key *k, const unsigned char *params, uint64_t hash,
                     const struct vgpu_amount *amount, bool exact, uint64_t steps) {
    pthread_mutex_lock(&lock);
    if (!find(k, params, hash)) keep(k, params, hash, amount);
    struct costly *c = exact ? NULL : costly_of(k->kernel, true);
    if (c) {
        c->steps += steps;
        c->threads = threads_of(l);
        c->amount = *amount;
    }
    pthread_mutex_unlock(&lock);
}

void vgpu_price_launch(const struct vgpu_launch *l, struct vgpu_amount *out) {
    unsigned char small[512], *params = small;
    struct key k = key_of(l);
    bool exact;
    uint64_t steps;
    if (k.param_bytes > sizeof small) params = malloc(k.param_bytes);
    if (!params) {
        price(l, out, &exact, &steps);
        return;
    }
    memcpy(params, l->params, k.param_bytes);
    hide_pointers(l->kernel, params);
    uint64_t hash = hash_bytes(hash_bytes(0, &k, sizeof k), params, k.param_bytes);
    if (!look_up(l, &k, params, hash, out)) {
        price(l, out, &exact, &steps);
        remember(l, &k, params, hash, out, exact, steps);
    }
    if (params != small) free(params);
}
