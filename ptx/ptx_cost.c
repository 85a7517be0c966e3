/* Prices a launch: the box of all its threads, split until each part is walked to the end; of parts whose threads must
 * be looked at one by one, and are too many, threads chosen at random; blocks chosen over the grid where there are too
 * many parts; the text alone where even that takes too long. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ptx/ptx_cost_box.h"

enum { MAX_BOXES = 1 << 20 };
#define USUAL_STEPS UINT64_C(10000000)

/* ---- boxes ---- */
int cost_push(struct boxes *b, const struct box *box) {
    if (b->count == b->room) {
        int32_t room = 2 * b->room + 16;
        struct box *grown = realloc(b->box, (size_t)room * sizeof *grown);
        if (!grown) return -1;
        b->box = grown;
        b->room = room;
    }
    b->box[b->count++] = *box;
    return 0;
}

static void add_coordinate(struct box *box, int which, int64_t n, int64_t from) {
    struct val *v = &box->sreg[which];
    *v = cost_number(from);
    if (n == 1) return;
    for (int k = 0; k < COST_DIMS; k++) {
        if (box->used >> k & 1) continue;
        box->used |= (uint16_t)(1u << k);
        box->n[k] = n;
        v->dims = (uint16_t)(1u << k);
        v->f[k] = 1;
        return;
    }
}

/* The threads of the whole grid, or of one block of it. */
struct box cost_box(const struct cost_run *x, const uint32_t *ctaid) {
    struct box box = {.used = 0};
    for (int k = 0; k < COST_DIMS; k++) box.n[k] = 1;
    for (int k = 0; k < 3; k++) {
        add_coordinate(&box, k, x->block[k], 0);
        add_coordinate(&box, 3 + k, ctaid ? 1 : x->grid[k], ctaid ? ctaid[k] : 0);
    }
    return box;
}

/* Its values fit into 64 bits, as the limits of boxes must. */
static bool is_small(const struct sum *e) {
    wide most = (wide)1 << 40;
    bool small = e->c < most && -e->c < most;
    for (int k = 0; k < COST_DIMS; k++) small &= !(e->dims >> k & 1) || (e->f[k] < most && -e->f[k] < most);
    return small;
}

/* Both sides of a border. False: it cannot be one of this box. */
static bool divide(struct boxes *b, const struct box *box, const struct sum *e, int *result) {
    struct box low = *box, high = *box;
    struct sum one = {.c = 1}, beyond = cost_sum_add(&one, e, -1);
    if (box->limits == COST_LIMITS || !e->dims || e->dims & ~box->used || !is_small(e)) return false;
    low.bound[low.limits++] = cost_from_sum(e);
    high.bound[high.limits++] = cost_from_sum(&beyond);
    *result = cost_push(b, &high) || cost_push(b, &low) ? -1 : 0;
    return true;
}

static int split(struct boxes *b, const struct box *box, struct wish w) {
    struct box low = *box, high = *box;
    if (w.dim < 0 || w.dim >= COST_DIMS || !(box->used >> w.dim & 1) || w.at < 1 || w.at >= box->n[w.dim]) return -1;
    if (w.radix) {
        int q = 0;
        while (q < COST_DIMS && low.used >> q & 1) q++;
        if (q == COST_DIMS) return -1;
        low.used |= (uint16_t)(1u << q);
        low.n[q] = box->n[w.dim] / w.at;
        low.n[w.dim] = w.at;
        for (int k = 0; k < 6; k++) cost_radix(&low.sreg[k], w.dim, q, w.at);
        for (int k = 0; k < low.limits; k++) cost_radix(&low.bound[k], w.dim, q, w.at);
        return cost_push(b, &low);
    }
    low.n[w.dim] = w.at;
    high.n[w.dim] = box->n[w.dim] - w.at;
    for (int k = 0; k < 6; k++) {
        cost_cut(&low.sreg[k], w.dim, 0, low.n[w.dim]);
        cost_cut(&high.sreg[k], w.dim, w.at, high.n[w.dim]);
    }
    for (int k = 0; k < box->limits; k++) {
        cost_cut(&low.bound[k], w.dim, 0, low.n[w.dim]);
        cost_cut(&high.bound[k], w.dim, w.at, high.n[w.dim]);
    }
    if (low.n[w.dim] == 1) low.used &= (uint16_t) ~(1u << w.dim);
    if (high.n[w.dim] == 1) high.used &= (uint16_t) ~(1u << w.dim);
    return cost_push(b, &high) || cost_push(b, &low) ? -1 : 0;
}

/* ---- one box ---- */
static void add_box(const struct cost_run *x, const struct state *s, struct totals *t) {
    wide threads = cost_points(x, NULL, NULL);
    for (int k = 0; k < PTX_T_FIELDS; k++) {
        t->lo[k] += s->lo.n[k] * threads + s->box_lo[k];
        t->hi[k] += s->hi.n[k] * threads + s->box_hi[k];
    }
    t->endless |= s->endless;
}

/* A box whose walk, of so many steps, was not decided for all of it. */
static int take_apart(struct cost_run *x, struct boxes *b, const struct box *box, double walk) {
    /* Each x alone, and too many of them: rather give up at once. */
    double alone = x->split.opaque && x->split.dim >= 0 ? (double)x->n[x->split.dim] : 0, each = walk;
    const struct sum *border = x->split.limit ? &x->borders->sum[x->split.limit - 1] : NULL;
    bool hopeless = alone * walk > (double)x->most / 16;
    int result = 1;
    if (border && cost_may_limit(x, border) && divide(b, box, border, &result)) {
        b->opaque += alone > 0 ? walk : 0;
        return result;
    }
    if (alone > 0 && b->wait) {
        for (int k = 0; k < COST_DIMS; k++) each *= box->used >> k & 1 ? (double)box->n[k] : 1;
        b->wait->points += each;
        b->wait->hopeless |= hopeless;
        return cost_push(b->wait, box);
    }
    b->opaque += alone > 0 ? walk : 0;
    return hopeless || b->opaque > (double)x->most / 16 || split(b, box, x->split) ? 1 : 0;
}

int cost_walk_box(struct cost_run *x, struct boxes *b, const struct box *box, struct totals *t) {
    static const struct stop nowhere = {.depth = 0};
    memcpy(x->n, box->n, sizeof x->n);
    memcpy(x->sreg, box->sreg, sizeof x->sreg);
    x->used = box->used;
    x->counters = x->varying = 0;
    x->limits = box->limits;
    for (int32_t k = 0; k < box->limits; k++) x->bound[k] = cost_sum(&box->bound[k]);
    if (x->limits && !cost_points(x, NULL, NULL)) return 0; /* nobody is there */
    x->nest = x->assumed = x->writes = 0;
    x->logging = false;
    struct state *s = cost_state_new(x);
    if (!s) return -1;
    uint64_t steps = x->steps;
    enum walk r = cost_enter(x, s, x->entry);
    if (r == WALK_AT) {
        cost_go(s, 0);
        r = cost_walk(x, s, &nowhere);
    }
    cost_history_cut(x, 0);
    x->history_base = 0;
    int result = 1;
    if (r == WALK_EXIT || r == WALK_RETURN) {
        add_box(x, s, t);
        b->done++;
        result = 0;
    } else if (r == WALK_SPLIT) {
        result = take_apart(x, b, box, (double)(x->steps - steps));
    } else if (r == WALK_ENDLESS) {
        for (int k = 0; k < PTX_T_FIELDS; k++)
            if (s->hi.n[k]) s->endless |= 1u << k;
        add_box(x, s, t);
        t->never_ends = true;
        result = 0;
    } else if (r == WALK_ERROR || x->failed) {
        result = -1;
    }
    cost_state_free(s);
    return result;
}

/* All that is left waits. */
static int put_off(struct boxes *b) {
    int r = 0;
    while (!r && b->count) r = cost_push(b->wait, &b->box[--b->count]);
    return r;
}

/* After some steps, if boxes wait: is it all too much? Then that is all; else it goes on with them, as far as it comes.
 */
static int consider(struct cost_run *x, struct boxes *b) {
    struct boxes *wait = b->wait;
    uint64_t limit = x->limit;
    if (put_off(b)) return -1;
    wait->hopeless = wait->hopeless || cost_is_hopeless(x);
    x->limit = limit;
    if (wait->hopeless) return 0;
    b->wait = NULL;
    while (wait->count)
        if (cost_push(b, &wait->box[--wait->count])) return -1;
    return 0;
}

int cost_walk_boxes(struct cost_run *x, struct boxes *b, uint64_t limit, struct totals *t) {
    uint64_t enough = x->steps + x->most / COST_LOOK;
    x->limit = x->steps + limit;
    int r = 0;
    while (!r && b->count) {
        struct box box = b->box[--b->count];
        r = b->done + b->count > MAX_BOXES ? 1 : cost_walk_box(x, b, &box, t);
        if (!r && b->wait && b->wait->count && x->steps > enough) r = consider(x, b);
    }
    free(b->box);
    b->box = NULL;
    b->count = b->room = 0;
    return r;
}

/* The largest boxes first, for a short time: *wait is what is left. */
static int walk_large(struct cost_run *x, struct boxes *wait, struct totals *t) {
    struct boxes b = {.wait = wait};
    struct box box = cost_box(x, NULL);
    uint64_t enough = x->steps + x->most / COST_LOOK;
    int r = cost_push(&b, &box) ? -1 : 0;
    x->limit = x->steps + x->most / 16;
    for (int32_t k = 0; !r && k < b.count; k++) {
        box = b.box[k];
        r = x->steps > enough ? cost_push(wait, &box) : cost_walk_box(x, &b, &box, t);
    }
    free(b.box);
    return r;
}

/* ---- results ---- */
static int64_t clamp(wide v) {
    return v >= INT64_MAX ? INT64_MAX - 1 : (int64_t)v;
}

static void give(const struct totals *t, struct ptx_cost *out) {
    for (unsigned k = 0; k < PTX_T_FIELDS; k++) {
        struct ptx_count *c = ptx_cost_field(out, k);
        c->lo = clamp(t->lo[k]);
        c->hi = t->endless >> k & 1 ? INT64_MAX : clamp(t->hi[k]);
    }
}

int64_t cost_blocks(const struct cost_run *x) {
    wide n = (wide)x->grid[0] * x->grid[1] * x->grid[2];
    return n > INT64_MAX ? INT64_MAX : (int64_t)n;
}

/* ---- the launch ---- */
static void by_text(struct cost_run *x, const struct totals *found, struct ptx_cost *out) {
    struct ptx_tally hi = {{0}};
    struct totals t = {.endless = 0};
    memcpy(t.lo, found->lo, sizeof t.lo);
    out->blocks_counted = cost_blocks(x);
    cost_worst(x, x->entry, &hi, &t.endless);
    wide threads = (wide)cost_blocks(x) * x->block[0] * x->block[1] * x->block[2];
    for (int k = 0; k < PTX_T_FIELDS; k++) t.hi[k] = hi.n[k] * threads;
    give(&t, out);
    out->grade = PTX_COST_BOUND;
    if (!*x->why) snprintf(x->why, sizeof x->why, "%.80s takes too many steps to follow", x->entry->name);
}

static int price_threads(struct cost_run *x, struct totals *t, struct ptx_cost *out) {
    struct totals some = {.endless = 0};
    struct boxes wait = {0};
    int64_t threads = 0, in_block = (int64_t)x->block[0] * x->block[1] * x->block[2];
    x->data = false;
    x->why[0] = 0;
    int r = walk_large(x, &wait, &some);
    if (!r) r = wait.count ? cost_sample_threads(x, &wait, &some, &threads) : 1;
    free(wait.box);
    if (r) return r;
    *t = some;
    out->grade = PTX_COST_SAMPLED;
    out->blocks_counted = (threads + in_block - 1) / in_block;
    if (!*x->why)
        snprintf(x->why, sizeof x->why, "counted on %lld of %.0f threads", (long long)threads,
                 (double)cost_blocks(x) * (double)in_block);
    return 0;
}

/* What had to wait: taken apart to the last thread, where that is not too much. 0, 1: it is; -1. */
static int walk_waiting(struct cost_run *x, const struct boxes *wait, struct totals *t) {
    struct boxes b = {0};
    int r = wait->hopeless || (wait->points > (double)x->most / 16 && cost_is_hopeless(x));
    for (int32_t k = wait->count - 1; !r && k >= 0; k--) r = cost_push(&b, &wait->box[k]);
    if (!r) r = cost_walk_boxes(x, &b, x->most, t);
    free(b.box);
    return r;
}

static int price_blocks(struct cost_run *x, struct totals *t, struct ptx_cost *out) {
    out->grade = PTX_COST_SAMPLED;
    x->data = false;
    x->why[0] = 0;
    int r = cost_sample_blocks(x, t, &out->blocks_counted); /* 1: t has the least that these blocks did */
    if (!r && out->blocks_counted == cost_blocks(x)) out->grade = PTX_COST_EXACT;
    if (!r && out->grade == PTX_COST_SAMPLED && !*x->why)
        snprintf(x->why, sizeof x->why, "counted on %lld of %lld blocks", (long long)out->blocks_counted,
                 (long long)cost_blocks(x));
    return r;
}

static int price(struct cost_run *x, struct ptx_cost *out) {
    struct totals t = {.endless = 0};
    struct box box = cost_box(x, NULL);
    struct boxes wait = {0}, b = {.wait = &wait};
    out->blocks_counted = cost_blocks(x);
    out->grade = PTX_COST_EXACT;
    int r = cost_push(&b, &box) ? -1 : cost_walk_boxes(x, &b, x->most, &t);
    bool alone = wait.count || b.opaque > (double)x->most / 16; /* it failed since threads differ */
    if (!r && wait.count) r = walk_waiting(x, &wait, &t);
    free(wait.box);
    if (r == 1 && alone && cost_blocks(x) > COST_LEAST_BLOCKS) r = price_threads(x, &t, out);
    if (r == 1) r = price_blocks(x, &t, out);
    if (r < 0) return -1;
    if (r == 1) {
        by_text(x, &t, out);
        return 0;
    }
    give(&t, out);
    if (t.never_ends && !*x->why) snprintf(x->why, sizeof x->why, "a loop that nothing ends");
    if ((x->data || t.never_ends) && out->grade == PTX_COST_EXACT) out->grade = PTX_COST_BOUND;
    return 0;
}

/* ---- launches ---- */
static int refused(const struct ptx_function *f, const uint32_t grid[3], const uint32_t block[3],
                   struct ptx_cost *out) {
    uint64_t threads = (uint64_t)block[0] * block[1] * block[2];
    const char *why = f->error                                               ? f->error
                      : f->declared_only || !f->block_count                  ? "no body"
                      : !f->entry                                            ? "no entry"
                      : !grid[0] || !grid[1] || !grid[2] || !threads         ? "an empty grid or block"
                      : block[0] > 1024 || block[1] > 1024 || threads > 1024 ? "a block of over 1,024 threads"
                                                                             : NULL;
    if (why) snprintf(out->why, sizeof out->why, "%.60s: %.90s", f->name, why);
    return why ? -1 : 0;
}

static int prepare(struct cost_run *x) {
    int32_t regs = 1;
    for (int32_t n = 0; n < x->module->function_count; n++)
        if (x->module->functions[n].reg_count > regs) regs = x->module->functions[n].reg_count;
    x->fold_run = (struct ptx_run){.module = x->module, .entry = x->entry};
    x->fold_machine = (struct ptx_machine){.run = &x->fold_run, .fault = &x->fold_fault};
    x->fold_thread = (struct ptx_thread){.m = &x->fold_machine, .frames = &x->fold_frame, .depth = 1};
    x->fold_thread.regs = calloc((size_t)regs, sizeof *x->fold_thread.regs);
    x->borders = calloc(1, sizeof *x->borders);
    if (!x->fold_thread.regs || !x->borders) return -1;
    return cost_slice(x);
}

int ptx_cost_launch(const struct ptx_module *module, const struct ptx_function *entry, const uint32_t grid[3],
                    const uint32_t block[3], uint32_t dynamic_shared, const void *params, struct ptx_cost *out) {
    return ptx_cost_launch_within(0, module, entry, grid, block, dynamic_shared, params, out);
}

int ptx_cost_launch_within(uint64_t steps, const struct ptx_module *module, const struct ptx_function *entry,
                           const uint32_t grid[3], const uint32_t block[3], uint32_t dynamic_shared, const void *params,
                           struct ptx_cost *out) {
    memset(out, 0, sizeof *out);
    if (refused(entry, grid, block, out)) return -1;
    struct cost_run *x = calloc(1, sizeof *x);
    if (!x) {
        snprintf(out->why, sizeof out->why, "no memory");
        return -1;
    }
    x->most = steps ? steps : USUAL_STEPS;
    x->module = module;
    x->entry = entry;
    x->params = params;
    x->dynamic_shared = dynamic_shared;
    for (int k = 0; k < 3; k++) {
        x->grid[k] = grid[k];
        x->block[k] = block[k];
    }
    int r = prepare(x);
    if (!r) r = price(x, out);
    if (r) snprintf(out->why, sizeof out->why, "%s", *x->error ? x->error : "no memory");
    out->steps = x->steps;
    if (!r && out->grade != PTX_COST_EXACT) memcpy(out->why, x->why, sizeof out->why);
    cost_functions_free(x);
    cost_history_cut(x, 0);
    free(x->history);
    free(x->written);
    free(x->borders);
    free(x->fold_thread.regs);
    free(x);
    return r;
}
