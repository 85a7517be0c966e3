/* Prices a launch: the box of all its threads, split until each part is walked to the end; blocks chosen over the grid
 * where that takes too long; the text alone where even that does. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ptx/ptx_cost_model.h"

enum { MAX_BOXES = 1 << 20, SAMPLES = 512, LEAST_SAMPLES = 8 };
#define USUAL_STEPS UINT64_C(10000000)

struct box {
    int64_t n[COST_DIMS];
    uint16_t used;
    struct val sreg[6];
    struct val bound[COST_LIMITS];
    int32_t limits;
};
struct boxes { /* to be walked */
    struct box *box;
    int32_t count, room;
    int64_t done;
    double opaque; /* steps of walks that ended where nothing better is known than to look at each x alone */
};
struct totals {
    wide lo[PTX_T_FIELDS], hi[PTX_T_FIELDS];
    uint32_t endless;
    bool never_ends;
};

/* ---- boxes ---- */
static int push(struct boxes *b, const struct box *box) {
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
static struct box whole(const struct cost_run *x, const uint32_t *ctaid) {
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
    *result = push(b, &high) || push(b, &low) ? -1 : 0;
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
        return push(b, &low);
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
    return push(b, &high) || push(b, &low) ? -1 : 0;
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

/* 0, 1: too much work; -1: an error. */
static int walk_box(struct cost_run *x, struct boxes *b, const struct box *box, struct totals *t) {
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
        /* Each x alone, and too many of them: rather give up at once. */
        double walk = (double)(x->steps - steps),
               alone = x->split.opaque && x->split.dim >= 0 ? (double)x->n[x->split.dim] : 0;
        b->opaque += alone > 0 ? walk : 0;
        const struct sum *border = x->split.limit ? &x->borders->sum[x->split.limit - 1] : NULL;
        if (border && cost_may_limit(x, border) && divide(b, box, border, &result)) {
            cost_state_free(s);
            return result;
        }
        bool hopeless = alone * walk > (double)x->most / 16 || b->opaque > (double)x->most / 16;
        result = hopeless || split(b, box, x->split) ? 1 : 0;
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

static int walk_all(struct cost_run *x, const struct box *first, uint64_t limit, struct totals *t) {
    struct boxes b = {0};
    memset(t, 0, sizeof *t);
    x->limit = x->steps + limit;
    int r = push(&b, first) ? -1 : 0;
    while (!r && b.count) {
        struct box box = b.box[--b.count];
        r = b.done + b.count > MAX_BOXES ? 1 : walk_box(x, &b, &box, t);
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

static int64_t blocks_of(const struct cost_run *x) {
    wide n = (wide)x->grid[0] * x->grid[1] * x->grid[2];
    return n > INT64_MAX ? INT64_MAX : (int64_t)n;
}

/* ---- samples ---- */
struct samples { /* of the blocks between the first and the last */
    int64_t count;
    double lo[PTX_T_FIELDS], hi[PTX_T_FIELDS], squares[PTX_T_FIELDS]; /* squares of lo + hi */
};

static void add_sample(struct samples *to, const struct totals *t) {
    to->count++;
    for (int k = 0; k < PTX_T_FIELDS; k++) {
        double lo = (double)t->lo[k], hi = (double)t->hi[k];
        to->lo[k] += lo;
        to->hi[k] += hi;
        to->squares[k] += (lo + hi) * (lo + hi);
    }
}

/* Blocks so alike that more of them would not tell more: three standard errors of the mean are within 0.5 %. */
static bool is_enough(const struct samples *s) {
    if (s->count < LEAST_SAMPLES - 2) return false;
    for (int k = 0; k < PTX_T_FIELDS; k++) {
        double n = (double)s->count, mean = (s->lo[k] + s->hi[k]) / n, variance = s->squares[k] / n - mean * mean;
        if (9 * variance / (n - 1) > 25e-6 * mean * mean + 1e-9) return false;
    }
    return true;
}

/* The n-th block of a sample: the first, the last, and the others in steps of the golden section, each once. */
static int64_t sampled_block(int64_t n, int64_t blocks) {
    int64_t inner = blocks - 2, step, a, b;
    if (n < 2 || inner < 1) return n == 0 ? 0 : blocks - 1;
    for (step = (int64_t)((double)inner * 0.6180339887498949) | 1;; step += 2) {
        for (a = inner, b = step; b;) {
            int64_t r = a % b;
            a = b;
            b = r;
        }
        if (a == 1) break;
    }
    return 1 + (int64_t)((wide)(n - 2) * step % inner);
}

static void scale_up(const struct samples *ends, const struct samples *inner, int64_t blocks, struct totals *t) {
    double by = inner->count ? (double)(blocks - ends->count) / (double)inner->count : 0;
    for (int k = 0; k < PTX_T_FIELDS; k++) {
        t->lo[k] = (wide)(ends->lo[k] + by * inner->lo[k] + 0.5);
        t->hi[k] = (wide)(ends->hi[k] + by * inner->hi[k] + 0.5);
    }
}

/* 0, 1: not enough blocks could be walked; -1. */
static int sample(struct cost_run *x, struct totals *t, int64_t *counted) {
    int64_t blocks = blocks_of(x), want = blocks < SAMPLES ? blocks : SAMPLES;
    struct samples ends = {0}, inner = {0};
    uint64_t limit = x->steps + x->most / 5, hurry = x->steps + x->most / 100;
    memset(t, 0, sizeof *t);
    for (*counted = 0; *counted < want; ++*counted) {
        int64_t number = sampled_block(*counted, blocks);
        uint32_t ctaid[3] = {(uint32_t)(number % x->grid[0]), (uint32_t)(number / x->grid[0] % x->grid[1]),
                             (uint32_t)(number / x->grid[0] / x->grid[1])};
        struct box box = whole(x, ctaid);
        struct totals one;
        if (*counted >= LEAST_SAMPLES && (x->steps > limit || (x->steps > hurry && is_enough(&inner)))) break;
        int r = walk_all(x, &box, x->most / 5 / LEAST_SAMPLES, &one);
        if (r) return r;
        add_sample(*counted < 2 ? &ends : &inner, &one);
        t->endless |= one.endless;
        t->never_ends |= one.never_ends;
    }
    scale_up(&ends, &inner, blocks, t);
    return 0;
}

static void by_text(struct cost_run *x, struct ptx_cost *out) {
    struct ptx_tally hi = {{0}};
    struct totals t = {.endless = 0};
    cost_worst(x, x->entry, &hi, &t.endless);
    wide threads = (wide)blocks_of(x) * x->block[0] * x->block[1] * x->block[2];
    for (int k = 0; k < PTX_T_FIELDS; k++) t.hi[k] = hi.n[k] * threads;
    give(&t, out);
    out->grade = PTX_COST_BOUND;
    if (!*x->why) snprintf(x->why, sizeof x->why, "%.80s takes too many steps to follow", x->entry->name);
}

static int price(struct cost_run *x, struct ptx_cost *out) {
    struct totals t;
    struct box box = whole(x, NULL);
    out->blocks_counted = blocks_of(x);
    int r = walk_all(x, &box, x->most, &t);
    out->grade = PTX_COST_EXACT;
    if (r == 1) {
        out->grade = PTX_COST_SAMPLED;
        x->data = false;
        x->why[0] = 0;
        r = sample(x, &t, &out->blocks_counted);
        if (!r && out->blocks_counted == blocks_of(x)) out->grade = PTX_COST_EXACT;
        if (!r && out->grade == PTX_COST_SAMPLED && !*x->why)
            snprintf(x->why, sizeof x->why, "counted on %lld of %lld blocks", (long long)out->blocks_counted,
                     (long long)blocks_of(x));
    }
    if (r < 0) return -1;
    if (r == 1) {
        by_text(x, out);
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
