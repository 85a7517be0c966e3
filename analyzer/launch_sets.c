#include "analyzer/launch_sets.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/attr_sql.h"
#include "analyzer/launch_kernels.h"
#include "ptx/ptx_cost.h"

enum { SLOTS = 4096 }; /* of the hash table of cached results, a chain each */

struct result { /* of one (kernel, grid, block, scalars) */
    struct result *next;
    const struct launch_kernel *kernel;
    uint32_t grid[3], block[3];
    struct ptx_accesses sets;
    size_t arg_bytes;
    unsigned char args[]; /* pointers replaced by 0 or 1 */
};

struct launch_sets {
    struct launch_kernels kernels;
    struct result *cache[SLOTS];
    const struct result *last; /* of the launch last asked for; NULL: none could be had */
    struct launch_buffer *out;
    int n, room, failed;
};

struct launch_sets *launch_sets_open(sqlite3 *db) {
    struct launch_sets *s = calloc(1, sizeof *s);
    if (s) s->kernels.db = db;
    return s;
}

void launch_sets_close(struct launch_sets *s) {
    if (!s) return;
    for (int i = 0; i < SLOTS; i++)
        for (struct result *r = s->cache[i], *next; r; r = next) {
            next = r->next;
            ptx_access_free(&r->sets);
            free(r);
        }
    launch_kernels_free(&s->kernels);
    free(s->out);
    free(s);
}

static void add(struct launch_sets *s, struct launch_buffer b) {
    if (s->n == s->room) {
        int room = s->room ? 2 * s->room : 32;
        struct launch_buffer *more = realloc(s->out, (size_t)room * sizeof *more);
        if (!more) {
            s->failed = 1;
            return;
        }
        s->out = more;
        s->room = room;
    }
    s->out[s->n++] = b;
}

static uint64_t word_at(const struct launch_call *c, uint64_t offset) {
    uint64_t v = 0;
    if (c->args && offset + sizeof v <= c->arg_bytes) memcpy(&v, (const char *)c->args + offset, sizeof v);
    return v;
}

/* ---- cached analysis of a launch ---- */

/* Is the pointer compared with others, as the end of a range is, or how it is aligned asked for? */
static int is_compared(const struct launch_kernel *k, uint64_t at) {
    int yes = 0;
    for (uint64_t b = at; k->cost_uses && b < at + 8 && b < k->entry->param_bytes; b++)
        yes |= k->cost_uses[b] == PTX_COST_BY_VALUE;
    return yes;
}

/* Whether a pointer is null may decide what a kernel does; its value mostly does not. */
void launch_mask_pointers(const struct launch_kernel *k, const struct launch_call *c, unsigned char *args) {
    memcpy(args, c->args, c->arg_bytes);
    for (uint32_t i = 0; k->matters && c->arg_bytes >= k->entry->param_bytes && i < k->entry->param_bytes; i++)
        args[i] &= k->matters[i];
    for (int i = 0; i < k->fixed.slots; i++) {
        uint64_t at = k->fixed.slot[i].offset, set = word_at(c, at) != 0;
        if (k->fixed.slot[i].param >= 0 && at + 8 <= c->arg_bytes && !is_compared(k, at)) memcpy(args + at, &set, 8);
    }
}

static uint32_t hash_of(const void *data, size_t bytes, uint32_t h) {
    for (size_t i = 0; i < bytes; i++) h = (h ^ ((const unsigned char *)data)[i]) * 16777619u;
    return h;
}

static const struct result *result_of(struct launch_sets *s, const struct launch_kernel *k,
                                      const struct launch_call *c) {
    struct result *r = calloc(1, sizeof *r + c->arg_bytes);
    if (!r) return s->failed = 1, NULL;
    r->kernel = k;
    memcpy(r->grid, c->grid, sizeof r->grid);
    memcpy(r->block, c->block, sizeof r->block);
    r->arg_bytes = c->arg_bytes;
    if (c->args) launch_mask_pointers(k, c, r->args);
    uint32_t h = hash_of(r->grid, sizeof r->grid, hash_of(r->block, sizeof r->block, 2166136261u));
    h = hash_of(r->args, r->arg_bytes, hash_of(&k->id, sizeof k->id, h)) % SLOTS;
    for (struct result *old = s->cache[h]; old; old = old->next)
        if (old->kernel == k && !memcmp(old->grid, r->grid, sizeof r->grid) &&
            !memcmp(old->block, r->block, sizeof r->block) && old->arg_bytes == r->arg_bytes &&
            !memcmp(old->args, r->args, r->arg_bytes)) {
            free(r);
            return old;
        }
    const void *params = c->args && c->arg_bytes >= k->entry->param_bytes ? c->args : NULL;
    if (ptx_access_launch(k->module, k->entry, c->grid, c->block, params, &r->sets)) s->failed = 1;
    r->next = s->cache[h];
    s->cache[h] = r;
    return r;
}

void launch_sets_mask(struct launch_sets *s, const struct launch_call *c, unsigned char *out) {
    const struct launch_kernel *k = launch_kernels_get(&s->kernels, c->kernel, &s->failed);
    memcpy(out, c->args, c->arg_bytes);
    if (!k || !k->matters || c->arg_bytes < k->entry->param_bytes) return;
    for (uint32_t i = 0; i < k->entry->param_bytes; i++) out[i] &= k->matters[i];
}

/* ---- buffers ---- */

static int overlaps(int64_t a_lo, int64_t a_hi, int64_t b_lo, int64_t b_hi) {
    return a_lo < b_hi && b_lo < a_hi;
}

static void add_extent(struct launch_sets *s, struct launch_buffer b, int64_t lo, int64_t hi, int mode) {
    if (lo >= hi) return;
    b.address = b.pointer + (uint64_t)lo;
    b.bytes = hi - lo;
    b.mode = mode;
    for (int i = 0; i < s->n; i++)
        if (s->out[i].param == b.param && s->out[i].offset == b.offset) b.piece = s->out[i].piece + 1;
    add(s, b);
}

/* What is only read, what is both, what is only written. */
static void add_pieces(struct launch_sets *s, struct launch_buffer b, const struct ptx_access *a) {
    int64_t r_lo = a->read_lo, r_hi = a->read_hi, w_lo = a->write_lo, w_hi = a->write_hi;
    if (!overlaps(r_lo, r_hi, w_lo, w_hi)) {
        add_extent(s, b, r_lo, r_hi, LAUNCH_R);
        add_extent(s, b, w_lo, w_hi, LAUNCH_W);
        return;
    }
    int64_t lo = r_lo > w_lo ? r_lo : w_lo, hi = r_hi < w_hi ? r_hi : w_hi;
    add_extent(s, b, r_lo, lo, LAUNCH_R);
    add_extent(s, b, w_lo, lo, LAUNCH_W);
    add_extent(s, b, lo, hi, LAUNCH_RW);
    add_extent(s, b, hi, r_hi, LAUNCH_R);
    add_extent(s, b, hi, w_hi, LAUNCH_W);
}

static void add_access(struct launch_sets *s, const struct launch_kernel *k, const struct launch_call *c,
                       const struct ptx_access *a) {
    if (a->param < 0 || a->param >= k->param_count) return; /* a variable of the module: no allocation of the program */
    struct launch_buffer b = {.pointer = word_at(c, a->offset),
                              .bytes = LAUNCH_UNKNOWN_BYTES,
                              .mode = a->mode & LAUNCH_RW,
                              .param = a->param,
                              .offset = (int)(a->offset - k->params[a->param].offset)};
    if (!b.pointer || !b.mode) return;
    b.address = b.pointer;
    b.partial = b.mode == LAUNCH_W && !a->dense;
    if (!a->extent_known)
        add(s, b);
    else if (b.mode == LAUNCH_RW)
        add_pieces(s, b, a);
    else
        add_extent(s, b, a->lo, a->hi, b.mode);
}

/* Words of the arguments that no access is known of, and that may be pointers. */
static void add_words(struct launch_sets *s, const struct launch_kernel *k, const struct launch_call *c) {
    int known = s->n;
    for (int p = 0; p < k->param_count; p++) {
        char letter = k->is_const ? k->is_const[p] : '?';
        if (letter == '-') continue;
        for (uint32_t at = 0; at + 8 <= k->params[p].bytes; at += 8) {
            struct launch_buffer b = {.pointer = word_at(c, (uint64_t)k->params[p].offset + at),
                                      .bytes = LAUNCH_UNKNOWN_BYTES,
                                      .mode = letter == 'c' ? LAUNCH_R : LAUNCH_EITHER,
                                      .param = p,
                                      .offset = (int)at,
                                      .maybe = 1};
            b.address = b.pointer;
            int told = !b.pointer;
            for (int i = 0; i < known; i++) told |= s->out[i].param == p && s->out[i].offset == (int)at;
            if (!told) add(s, b);
        }
    }
}

int launch_sets_of(struct launch_sets *s, const struct launch_call *call, const struct launch_buffer **out, int *n) {
    s->n = 0;
    s->last = NULL;
    const struct launch_kernel *k = launch_kernels_get(&s->kernels, call->kernel, &s->failed);
    if (k && call->args) {
        const struct result *r = s->last = k->entry ? result_of(s, k, call) : NULL;
        for (int i = 0; r && i < r->sets.slots; i++) add_access(s, k, call, &r->sets.slot[i]);
        if (!r || r->sets.unknown) add_words(s, k, call);
        if (r && r->sets.unknown)
            add(s, (struct launch_buffer){.bytes = LAUNCH_UNKNOWN_BYTES,
                                          .mode = r->sets.unknown_writes ? LAUNCH_EITHER : LAUNCH_R,
                                          .param = -1});
    }
    *out = s->out;
    *n = s->n;
    return s->failed ? -1 : 0;
}

static void add_bytes(int64_t *sum, int64_t lo, int64_t hi, int known) {
    if (*sum == LAUNCH_UNKNOWN_BYTES || !known || hi < lo || __builtin_add_overflow(*sum, hi - lo, sum))
        *sum = LAUNCH_UNKNOWN_BYTES;
}

void launch_sets_bytes(const struct launch_sets *s, int64_t *read, int64_t *written) {
    const struct ptx_accesses *a = s->last ? &s->last->sets : NULL;
    *read = a && !a->unknown ? 0 : LAUNCH_UNKNOWN_BYTES;
    *written = a && !(a->unknown && a->unknown_writes) ? 0 : LAUNCH_UNKNOWN_BYTES;
    for (int i = 0; a && i < a->slots; i++) {
        const struct ptx_access *x = &a->slot[i];
        int both = x->mode == PTX_ACCESS_RW;
        if (x->mode & PTX_ACCESS_R)
            add_bytes(read, both ? x->read_lo : x->lo, both ? x->read_hi : x->hi, x->extent_known);
        if (x->mode & PTX_ACCESS_W)
            add_bytes(written, both ? x->write_lo : x->lo, both ? x->write_hi : x->hi, x->extent_known);
    }
}

const struct launch_kernel *launch_sets_kernel(struct launch_sets *s, int64_t id) {
    return launch_kernels_get(&s->kernels, id, &s->failed);
}

/* ---- names ---- */

static void demangle_function(sqlite3_context *context, int argc, sqlite3_value **argv) {
    (void)argc;
    char *text = launch_demangle((const char *)sqlite3_value_text(argv[0]));
    if (text)
        sqlite3_result_text(context, text, -1, SQLITE_TRANSIENT);
    else
        sqlite3_result_value(context, argv[0]);
    free(text);
}

int launch_name_kernels(sqlite3 *db, char *err, size_t err_len) {
    if (sqlite3_create_function(db, "acct_demangle", 1, SQLITE_UTF8 | SQLITE_DETERMINISTIC, NULL, demangle_function,
                                NULL, NULL)) {
        snprintf(err, err_len, "%s", sqlite3_errmsg(db));
        return -1;
    }
    return sql_run(db, "UPDATE kernel SET demangled = acct_demangle(name) WHERE demangled IS NULL", err, err_len);
}
