/* The analysis as its callers see it: passes until nothing changes, then slots by pointer. */
#include "ptx/ptx_access.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ptx/ptx_access_model.h"

/* ---- slots ---- */
static int32_t param_at(const struct ptx_function *f, int32_t offset) {
    for (int32_t n = 0; n < f->params; n++)
        if ((uint64_t)offset >= f->vars[n].offset && (uint64_t)offset < f->vars[n].offset + f->vars[n].bytes) return n;
    return -1;
}

static struct ptx_access *slot_of(struct analysis *a, struct ptx_accesses *out, const struct record *r) {
    bool param = r->base.kind == BASE_PARAM;
    for (int32_t n = 0; n < out->slots; n++) {
        struct ptx_access *s = &out->slot[n];
        if (param ? s->param >= 0 && s->offset == (uint32_t)r->base.a : s->var == r->base.a) return s;
    }
    void *grown = realloc(out->slot, (size_t)(out->slots + 1) * sizeof *out->slot);
    if (!grown) return NULL;
    out->slot = grown;
    struct ptx_access *s = &out->slot[out->slots++];
    *s = (struct ptx_access){.param = param ? param_at(a->entry, r->base.a) : -1,
                             .var = param ? -1 : r->base.a,
                             .offset = param ? (uint32_t)r->base.a : 0,
                             .may_be = 1,
                             .extent_known = a->launch};
    return s;
}

static void widen(int64_t *lo, int64_t *hi, int64_t from, int64_t to) {
    bool empty = *lo == *hi;
    if (empty || from < *lo) *lo = from;
    if (empty || to > *hi) *hi = to;
}

static void add_extent(struct analysis *a, struct ptx_access *s, const struct record *r) {
    int64_t lo = ptx_sum_lower(&a->s, r->sum, &a->facts, r->facts),
            hi = ptx_sum_upper(&a->s, r->sum, &a->facts, r->facts);
    if (!r->sum || lo == -PTX_INF || hi >= PTX_INF - (int64_t)r->bytes || a->s.work > ACCESS_MAX_WORK) {
        s->extent_known = 0;
        return;
    }
    if (hi < lo) return; /* not executed */
    hi += r->bytes;
    if (r->mode & PTX_ACCESS_R) widen(&s->read_lo, &s->read_hi, lo, hi);
    if (r->mode & PTX_ACCESS_W) widen(&s->write_lo, &s->write_hi, lo, hi);
    widen(&s->lo, &s->hi, lo, hi);
}

static bool belongs(const struct ptx_access *s, const struct record *r) {
    return r->base.kind == BASE_PARAM ? s->param >= 0 && s->offset == (uint32_t)r->base.a : s->var == r->base.a;
}

static void find_density(struct analysis *a, struct ptx_access *s, const struct record **own) {
    int32_t count = 0;
    for (int32_t n = 0; n < a->record_count; n++)
        if (belongs(s, &a->records[n]) && a->records[n].exact) own[count++] = &a->records[n];
    s->dense = s->extent_known && s->hi > s->lo && access_dense(a, own, count, s->lo, s->hi);
}

static int by_offset(const void *x, const void *y) {
    const struct ptx_access *a = x, *b = y;
    int32_t va = a->param < 0 ? a->var : -1, vb = b->param < 0 ? b->var : -1;
    if (va != vb) return va < vb ? -1 : 1;
    return a->offset < b->offset ? -1 : a->offset > b->offset;
}

int access_results(struct analysis *a, struct ptx_accesses *out) {
    a->s.no_types = true; /* an index from memory is bounded by what the program says, not by its type */
    for (int32_t n = 0; n < a->record_count; n++) {
        const struct record *r = &a->records[n];
        struct ptx_access *s = slot_of(a, out, r);
        if (!s) return -1;
        s->mode |= r->mode;
        s->atomic |= r->atomic;
        s->may_be &= r->may_be;
        if (s->extent_known) add_extent(a, s, r);
    }
    const struct record **own = malloc(((size_t)a->record_count + 1) * sizeof(struct record *));
    if (!own) return -1;
    for (int32_t n = 0; n < out->slots; n++) {
        struct ptx_access *s = &out->slot[n];
        if (s->extent_known)
            find_density(a, s, own);
        else
            s->lo = s->hi = s->read_lo = s->read_hi = s->write_lo = s->write_hi = 0;
    }
    free(own);
    if (out->slots) qsort(out->slot, (size_t)out->slots, sizeof *out->slot, by_offset);
    out->unknown = a->unknown;
    out->unknown_writes = a->unknown_writes;
    memcpy(out->why, a->why, sizeof out->why);
    return 0;
}

/* ---- the run ---- */
static void thread_symbols(struct analysis *a) {
    for (int n = 0; n < 6; n++) {
        int64_t count = a->launch ? (n < 3 ? a->block[n] : a->grid[n - 3])
                        : n < 2   ? 1024
                        : n < 3   ? 64
                        : n < 4   ? INT32_MAX
                                  : 65535;
        int32_t symbol = ptx_symbol_new(&a->s, 0, count > 0 ? count - 1 : 0), sum = 0;
        if (a->s.no_memory) return;
        a->s.symbol[symbol].free = true;
        sum = count <= 1 ? ptx_sum_constant(&a->s, 0) : ptx_sum_symbol(&a->s, symbol);
        *(n < 3 ? &a->tid[n] : &a->ctaid[n - 3]) = sum;
    }
}

static void forget_records(struct analysis *a) {
    a->record_count = 0;
    a->unknown = a->unknown_writes = false;
    a->why[0] = 0;
}

/* false: it does not come to rest, or is out of bounds or memory. */
static bool run(struct analysis *a) {
    bool stable = false;
    a->optimistic = true;
    for (a->pass = 1; a->pass <= ACCESS_MAX_PASSES && !a->failed && !a->s.no_memory; a->pass++) {
        forget_records(a);
        a->recording = stable;
        if (stable) a->optimistic = false; /* what was taken for granted is proved in this pass, or given up */
        a->changed = false;
        a->facts.count = 0;
        a->now_facts = a->now_when = -1;
        a->now_exact = true;
        a->now.cell_count = 0;
        access_run_frame(a, 0);
        if (stable && !a->changed && !a->failed && !a->s.no_memory) return true;
        stable = !a->changed;
    }
    return false;
}

static void release(struct analysis *a) {
    for (int32_t n = 0; n < a->frame_count; n++) {
        struct frame *f = a->frames[n];
        for (int32_t b = 0; f->block && b < f->f->block_count; b++) {
            free(f->block[b].out.regs);
            free(f->block[b].out.cells);
            free(f->block[b].loop_facts);
            free(f->block[b].body);
        }
        free(f->order);
        free(f->block);
        free(f->single);
        free(f->multi);
        free(f->exit_cells);
        free(f);
    }
    ptx_intern_free(&a->values);
    ptx_intern_free(&a->sets);
    ptx_intern_free(&a->conds);
    ptx_intern_free(&a->memo);
    ptx_intern_free(&a->cell_names);
    ptx_symbolic_free(&a->s);
    free(a->facts.fact);
    free(a->memo_symbol);
    free(a->phi);
    free(a->frames);
    free(a->cells);
    free(a->wilds);
    free(a->records);
    free(a->now.cells);
    free(a);
}

static int refuse(struct ptx_accesses *out, const char *why) {
    out->unknown = out->unknown_writes = true;
    snprintf(out->why, sizeof out->why, "%s", why);
    return -1;
}

static int analyse(struct analysis *a, struct ptx_accesses *out) {
    a->frames = calloc(ACCESS_MAX_FRAMES, sizeof(struct frame *));
    if (!a->frames) return refuse(out, "no memory");
    a->s.depth = a->launch ? 4 : 1;
    thread_symbols(a);
    bool done = !a->s.no_memory && access_frame(a, a->entry, -1, NULL) == 0 && run(a);
    if (a->s.no_memory) return refuse(out, "no memory");
    if (done) return access_results(a, out) ? refuse(out, "no memory") : 0;
    out->unknown = out->unknown_writes = true; /* an answer, if one without content */
    snprintf(out->why, sizeof out->why, "line %d: the kernel is too large to be followed", a->entry->line);
    return 0;
}

static int begin(const struct ptx_module *module, const struct ptx_function *entry, struct ptx_accesses *out,
                 struct analysis **made) {
    *out = (struct ptx_accesses){0};
    if (entry->error || !entry->instr_count)
        return refuse(out, entry->error ? entry->error : "a function without a body");
    struct analysis *a = calloc(1, sizeof *a);
    if (!a) return refuse(out, "no memory");
    a->module = module;
    a->entry = entry;
    *made = a;
    return 0;
}

int ptx_access_static(const struct ptx_module *module, const struct ptx_function *entry, struct ptx_accesses *out) {
    struct analysis *a;
    if (begin(module, entry, out, &a)) return -1;
    int rc = analyse(a, out);
    release(a);
    return rc;
}

int ptx_access_launch(const struct ptx_module *module, const struct ptx_function *entry, const uint32_t grid[3],
                      const uint32_t block[3], const void *params, struct ptx_accesses *out) {
    struct analysis *a;
    if (begin(module, entry, out, &a)) return -1;
    a->launch = true;
    a->params = params;
    memcpy(a->grid, grid, sizeof a->grid);
    memcpy(a->block, block, sizeof a->block);
    int rc = analyse(a, out);
    release(a);
    return rc;
}

void ptx_access_free(struct ptx_accesses *a) {
    free(a->slot);
    *a = (struct ptx_accesses){0};
}
