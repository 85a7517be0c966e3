/* Prices a launch: the box of all its threads, split until each part is walked to the end; blocks chosen over the grid
 * where that takes too long; the text alone where even that does. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ptx/ptx_cost_model.h"

enum { MAX_BOXES = 1 << 20, SAMPLES = 512, LEAST_SAMPLES = 8 };
#define USUAL_STEPS UINT64_C(20000000)

struct box {
    int64_t n[COST_DIMS];
    uint16_t used;
    struct val sreg[6];
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
        return push(b, &low);
    }
    low.n[w.dim] = w.at;
    high.n[w.dim] = box->n[w.dim] - w.at;
    for (int k = 0; k < 6; k++) {
        cost_cut(&low.sreg[k], w.dim, 0, low.n[w.dim]);
        cost_cut(&high.sreg[k], w.dim, w.at, high.n[w.dim]);
    }
    if (low.n[w.dim] == 1) low.used &= (uint16_t) ~(1u << w.dim);
    if (high.n[w.dim] == 1) high.used &= (uint16_t) ~(1u << w.dim);
    return push(b, &high) || push(b, &low) ? -1 : 0;
}

/* ---- one box ---- */
static void add_box(const struct cost_run *x, const struct state *s, struct totals *t) {
    wide threads = 1;
    for (int k = 0; k < COST_DIMS; k++)
        if (x->used >> k & 1) threads *= x->n[k];
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

static void add_scaled(struct totals *to, const struct totals *t, double by, double *lo, double *hi) {
    for (int k = 0; k < PTX_T_FIELDS; k++) {
        lo[k] += by * (double)t->lo[k];
        hi[k] += by * (double)t->hi[k];
    }
    to->endless |= t->endless;
    to->never_ends |= t->never_ends;
}

/* The first and the last block, and others spread evenly (by the golden section, which has no period in common with
 * anything). 0, 1: not enough of them could be walked; -1. */
static int sample(struct cost_run *x, struct totals *t, int64_t *counted) {
    int64_t blocks = blocks_of(x), want = blocks < SAMPLES ? blocks : SAMPLES;
    double lo[PTX_T_FIELDS] = {0}, hi[PTX_T_FIELDS] = {0}, end_lo[PTX_T_FIELDS] = {0}, end_hi[PTX_T_FIELDS] = {0};
    uint64_t limit = x->steps + x->most / 10;
    memset(t, 0, sizeof *t);
    for (*counted = 0; *counted < want; ++*counted) {
        int64_t n = *counted, inner = n - 2;
        double phase = (double)(inner + 1) * 0.6180339887498949;
        int64_t number = n == 0   ? 0
                         : n == 1 ? blocks - 1
                                  : 1 + (int64_t)((phase - (double)(int64_t)phase) * (double)(blocks - 2));
        if (blocks == want) number = n;
        uint32_t ctaid[3] = {(uint32_t)(number % x->grid[0]), (uint32_t)(number / x->grid[0] % x->grid[1]),
                             (uint32_t)(number / x->grid[0] / x->grid[1])};
        struct box box = whole(x, ctaid);
        struct totals one;
        if (x->steps > limit && *counted >= LEAST_SAMPLES) break;
        int r = walk_all(x, &box, x->most / 10 / LEAST_SAMPLES, &one);
        if (r) return r;
        bool end = n < 2 || blocks == want;
        add_scaled(t, &one, 1, end ? end_lo : lo, end ? end_hi : hi);
    }
    double by = *counted > 2 && blocks != want ? (double)(blocks - 2) / (double)(*counted - 2) : 0;
    for (int k = 0; k < PTX_T_FIELDS; k++) {
        t->lo[k] = (wide)(end_lo[k] + by * lo[k] + 0.5);
        t->hi[k] = (wide)(end_hi[k] + by * hi[k] + 0.5);
    }
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
    if (!x->fold_thread.regs) return -1;
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
    free(x->fold_thread.regs);
    free(x);
    return r;
}
