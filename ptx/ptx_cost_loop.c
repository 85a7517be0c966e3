/* Loops: many iterations at once. Two arrivals at a header suggest that each value grows by a constant. Whether it does
 * is proved by walking one iteration with the number of the iteration, 0 ≤ k < N, for a coordinate: if that is decided
 * for all k, always the same way, and ends with just the values of iteration k + 1, then N iterations do the same.
 * Values that do not grow so are poisoned for that walk: it must write them before it reads them. The last of the N is
 * walked as usual and makes them. N is first without end; where a branch is not decided for all k, it is cut. If the
 * comparison that ends the loop gives N as an affine function of the coordinates, threads with different N stay
 * together: then the iterations are summed over the box. */
#include <stdlib.h>
#include <string.h>
#include "ptx/ptx_cost_model.h"

enum { MAX_ROUNDS = 48, MAX_TRIES = 8 };

void cost_history_cut(struct cost_run *x, int32_t to) {
    while (x->histories > to) cost_state_free(x->history[--x->histories].before);
}

/* The record of this loop, made if there is none; those of loops inside it go. NULL: no memory. */
static struct history *history_of(struct cost_run *x, int32_t depth, int32_t header) {
    for (int32_t n = x->histories - 1; n >= x->history_base; n--)
        if (x->history[n].depth == depth && x->history[n].header == header) {
            cost_history_cut(x, n + 1);
            return &x->history[n];
        }
    if (x->histories == x->history_room) {
        int32_t room = 2 * x->history_room + 16;
        struct history *grown = realloc(x->history, (size_t)room * sizeof *grown);
        if (!grown) {
            x->failed = true;
            return NULL;
        }
        x->history = grown;
        x->history_room = room;
    }
    x->history[x->histories] = (struct history){.depth = depth, .header = header};
    return &x->history[x->histories++];
}

/* ---- how values grow ---- */
enum grows { SAME, BY_CONSTANT, OTHERWISE };
struct growth { /* of the registers of the frame, then of the cells */
    uint8_t how;
    int64_t by;
};

static struct growth compare(const struct val *before, const struct val *now) {
    struct val d = *now;
    if (cost_same(before, now) || now->kind == VAL_DATA || before->kind == VAL_DATA) return (struct growth){SAME, 0};
    if (before->kind != VAL_NUM || now->kind != VAL_NUM) return (struct growth){OTHERWISE, 0};
    d.c = before->c;
    if (!cost_same(&d, before)) return (struct growth){OTHERWISE, 0};
    return (struct growth){BY_CONSTANT, (int64_t)((uint64_t)now->c - (uint64_t)before->c)};
}

static struct growth *growths(struct cost_run *x, const struct state *before, const struct state *now, int32_t base,
                              int32_t slots) {
    struct growth *g = calloc((size_t)slots + (size_t)now->cells + 1, sizeof *g);
    if (!g) {
        x->failed = true;
        return NULL;
    }
    for (int32_t n = 0; n < slots; n++) g[n] = compare(&before->regs[base + n], &now->regs[base + n]);
    for (int32_t n = 0; n < now->cells; n++)
        for (int32_t k = 0; k < before->cells; k++)
            if (before->cell[k].at == now->cell[n].at && before->cell[k].bytes == now->cell[n].bytes)
                g[slots + n] = compare(&before->cell[k].v, &now->cell[n].v);
    return g;
}

/* The value in iteration k + ahead. */
static struct val in_iteration(const struct val *now, const struct growth *g, int dim, int64_t ahead) {
    struct val v = *now;
    if (g->how == OTHERWISE) return (struct val){.kind = VAL_POISON};
    if (g->how == SAME || now->kind != VAL_NUM) return v;
    v.c = (int64_t)((uint64_t)v.c + (uint64_t)g->by * (uint64_t)ahead);
    if (dim >= 0) {
        v.f[dim] = g->by;
        v.dims |= (uint16_t)(1u << dim);
    }
    return v;
}

/* ---- the proof ---- */
struct attempt {
    struct cost_run *x;
    struct state *now;
    const struct loop *loop;
    struct growth *growth;
    int32_t base, slots;
    int dim;
    int tries;         /* whether the number of iterations is a function of the coordinates */
    struct state *end; /* of the iteration that was walked for all */
};

static enum walk walk_iteration(struct attempt *a) {
    struct cost_run *x = a->x;
    struct state *s = cost_state_copy(x, a->now);
    if (!s) return WALK_LIMIT;
    memset(&s->lo, 0, sizeof s->lo);
    memset(&s->hi, 0, sizeof s->hi);
    s->carry = (struct val){.kind = VAL_POISON};
    for (int32_t n = 0; n < a->slots; n++)
        s->regs[a->base + n] = in_iteration(&a->now->regs[a->base + n], &a->growth[n], a->dim, 0);
    for (int32_t n = 0; n < s->cells; n++)
        s->cell[n].v = in_iteration(&a->now->cell[n].v, &a->growth[a->slots + n], a->dim, 0);
    struct stop stop = {.depth = s->depth, .within = a->loop->body, .at_return = true};
    for (size_t k = 0; k < sizeof stop.block / sizeof *stop.block; k++) stop.block[k] = a->loop->header;
    int32_t base = x->history_base, assumed = x->assumed;
    x->history_base = x->histories;
    enum walk r = cost_walk(x, s, &stop);
    cost_history_cut(x, x->history_base);
    x->history_base = base;
    x->assumed = assumed;
    cost_state_free(a->end);
    a->end = s;
    return r;
}

static bool as_expected(const struct val *end, const struct val *now, struct growth *g, int dim, bool *changed) {
    if (end->kind == VAL_POISON) return now->kind == VAL_POISON;   /* of a loop around this one */
    if (g->how == OTHERWISE || now->kind == VAL_DATA) return true; /* written anew in each iteration */
    struct val want = in_iteration(now, g, dim, 1);
    if (!cost_same(end, &want)) {
        g->how = OTHERWISE;
        *changed = true;
    }
    return true;
}

/* Does the iteration end with the values of the next? *changed: not all, try without these. */
static bool holds(struct attempt *a, bool *changed) {
    for (int32_t n = 0; n < a->slots; n++)
        if (!as_expected(&a->end->regs[a->base + n], &a->now->regs[a->base + n], &a->growth[n], a->dim, changed))
            return false;
    for (int32_t n = 0; n < a->now->cells; n++) {
        const struct cell *c = &a->now->cell[n];
        struct val v = cost_data(BASE_ANY);
        bool there = false;
        for (int32_t k = 0; k < a->end->cells; k++)
            if (a->end->cell[k].at == c->at && a->end->cell[k].bytes == c->bytes) {
                v = a->end->cell[k].v;
                there = true;
            }
        if (!there && a->growth[a->slots + n].how == OTHERWISE) return false;
        if (!as_expected(&v, &c->v, &a->growth[a->slots + n], a->dim, changed)) return false;
    }
    if (a->end->escaped && !a->now->escaped) a->now->escaped = *changed = true;
    return a->end->frozen == a->now->frozen;
}

/* ---- what it is worth ---- */
static int64_t many(int64_t n, int64_t times, uint32_t bit, uint32_t *endless) {
    wide v = (wide)n * times;
    if (v <= COST_MANY) return (int64_t)v;
    *endless |= bit;
    return COST_MANY;
}

static void add_times(struct state *s, const struct state *one, int64_t times) {
    uint32_t lost = 0;
    for (int k = 0; k < PTX_T_FIELDS; k++) {
        int64_t lo = s->lo.n[k] + many(one->lo.n[k], times, 0, &lost),
                hi = s->hi.n[k] + many(one->hi.n[k], times, 1u << k, &s->endless);
        if (hi > COST_MANY) s->endless |= 1u << k;
        if (!s->frozen) s->lo.n[k] = lo > COST_MANY ? COST_MANY : lo;
        s->hi.n[k] = hi > COST_MANY ? COST_MANY : hi;
    }
    s->endless |= one->endless;
}

static void skip(struct attempt *a, int64_t iterations) {
    struct state *s = a->now;
    s->carry = cost_data(BASE_NUMBER);
    add_times(s, a->end, iterations);
    for (int32_t n = 0; n < a->slots; n++)
        s->regs[a->base + n] = in_iteration(&s->regs[a->base + n], &a->growth[n], -1, iterations);
    for (int32_t n = 0; n < s->cells; n++)
        s->cell[n].v = in_iteration(&s->cell[n].v, &a->growth[a->slots + n], -1, iterations);
}

/* Threads of one box with different numbers of iterations: Σ over the box of the sum. */
static wide over_box(const struct cost_run *x, const struct sum *s) {
    wide twice;
    cost_points(x, s, &twice);
    return twice / 2;
}

static struct val after_last(const struct cost_run *x, const struct val *now, const struct growth *g) {
    struct val times = cost_from_sum(&x->last);
    if (g->how != BY_CONSTANT || now->kind != VAL_NUM) return in_iteration(now, g, -1, 0);
    return ptx_cost_add(x, now, &times, g->by);
}

static void skip_varying(struct attempt *a) {
    struct state *s = a->now;
    struct cost_run *x = a->x;
    wide times = over_box(x, &x->last);
    s->carry = cost_data(BASE_NUMBER);
    for (int k = 0; k < PTX_T_FIELDS; k++) {
        s->box_lo[k] += times * a->end->lo.n[k];
        s->box_hi[k] += times * a->end->hi.n[k];
    }
    s->endless |= a->end->endless;
    for (int32_t n = 0; n < a->slots; n++) s->regs[a->base + n] = after_last(x, &s->regs[a->base + n], &a->growth[n]);
    for (int32_t n = 0; n < s->cells; n++) s->cell[n].v = after_last(x, &s->cell[n].v, &a->growth[a->slots + n]);
}

/* The number of iterations as a function of the coordinates, if the comparison that the split is for gives one.
 * WALK_AT: it does not, WALK_EXIT: it does; WALK_SPLIT: it would, for parts of the box. */
static enum walk vary(struct attempt *a) {
    struct cost_run *x = a->x;
    struct wish w = x->split;
    bool alone = x->counters == 1u << a->dim && !x->nest && !x->assumed && !a->now->frozen;
    if (!alone || !w.end || a->tries == MAX_TRIES) return WALK_AT;
    struct sum e = x->ends[w.end - 1], zero = {0}, last;
    wide f = e.dims >> a->dim & 1 ? e.f[a->dim] : 0, lo, hi;
    e.dims &= (uint16_t) ~(1u << a->dim);
    e = cost_sum_add(&zero, &e, -1);
    if (f <= 0 || !e.dims || e.dims & (x->counters | ~x->used)) return WALK_AT;
    a->tries++;
    if (!cost_floor(x, &e, f, &last, &w)) {
        if (!w.opaque) x->split = w;
        return w.opaque ? WALK_AT : WALK_SPLIT;
    }
    cost_range(x, &last, &lo, &hi); /* of several comparisons the last to be looked at is the one */
    if (lo < 0 && hi >= 0) {        /* some threads do not even begin the first */
        struct sum begins = cost_sum_add(&zero, &e, -1);
        if (cost_at_most_zero(x, &begins, &x->split) < 0) return WALK_SPLIT;
    }
    if (lo < 0 || lo == hi || hi >= COST_FOREVER) return WALK_AT;
    x->last = last;
    x->varying = (uint16_t)(1u << a->dim);
    x->n[a->dim] = (int64_t)hi + 1;
    return WALK_EXIT;
}

static enum walk prove(struct attempt *a) {
    struct cost_run *x = a->x;
    for (int round = 0; round < MAX_ROUNDS; round++) {
        bool changed = false;
        enum walk r = walk_iteration(a);
        if (r == WALK_LIMIT || r == WALK_ERROR || r == WALK_ENDLESS) return r;
        if (r == WALK_SPLIT && x->split.dim == a->dim) {
            r = vary(a);
            if (r == WALK_SPLIT) return r;
            if (r == WALK_EXIT) continue;
            if (x->varying >> a->dim & 1) { /* to no avail */
                x->varying = 0;
                x->n[a->dim] = COST_FOREVER;
                continue;
            }
            if (x->split.at < 2) return WALK_AT;
            x->n[a->dim] = x->split.at;
            continue;
        }
        if (r == WALK_SPLIT) return r;
        bool back = r == WALK_AT && a->end->depth == a->now->depth && cost_top(a->end)->block == a->loop->header;
        if (!back || !holds(a, &changed)) return WALK_AT;
        if (changed) continue;
        if (x->n[a->dim] == COST_FOREVER) {
            add_times(a->now, a->end, 1);
            return WALK_ENDLESS;
        }
        if (x->varying >> a->dim & 1)
            skip_varying(a);
        else
            skip(a, x->n[a->dim] - 1);
        return WALK_EXIT; /* done */
    }
    return WALK_AT;
}

/* WALK_EXIT: iterations were done. */
static enum walk attempt(struct cost_run *x, struct state *s, const struct loop *loop, const struct state *before) {
    const struct cost_frame *frame = cost_top(s);
    struct attempt a = {.x = x, .now = s, .loop = loop, .base = frame->regs, .slots = frame->info->slots, .dim = -1};
    for (int k = 0; k < COST_DIMS && a.dim < 0; k++)
        if (!(x->used >> k & 1)) a.dim = k;
    if (a.dim < 0) return WALK_AT;
    a.growth = growths(x, before, s, a.base, a.slots);
    if (!a.growth) return WALK_LIMIT;
    x->used |= (uint16_t)(1u << a.dim);
    x->counters |= (uint16_t)(1u << a.dim);
    x->n[a.dim] = COST_FOREVER;
    enum walk r = prove(&a);
    x->used &= (uint16_t) ~(1u << a.dim);
    x->counters &= (uint16_t) ~(1u << a.dim);
    x->varying &= x->counters;
    free(a.growth);
    cost_state_free(a.end);
    return r;
}

/* At arrivals 4, 8, 16 …, short loops being cheaper to walk; again from the start when it was worth it. */
enum walk cost_arrive(struct cost_run *x, struct state *s, const struct loop *loop, bool again) {
    struct history *h = history_of(x, s->depth, loop->header);
    if (!h) return WALK_LIMIT;
    if (!again) h->arrivals = 0;
    h->arrivals++;
    bool tries = h->arrivals > 1 && !(h->arrivals & (h->arrivals - 1)) && h->before;
    if (tries) {
        int32_t place = (int32_t)(h - x->history);
        enum walk r = attempt(x, s, loop, h->before);
        h = &x->history[place];
        if (r == WALK_EXIT) h->arrivals = 0;
        if (r != WALK_AT && r != WALK_EXIT) return r;
    }
    cost_state_free(h->before);
    h->before = NULL;
    if (!(h->arrivals & (h->arrivals + 1))) {
        h->before = cost_state_copy(x, s);
        if (!h->before) return WALK_LIMIT;
    }
    return WALK_AT;
}
