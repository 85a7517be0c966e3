/* P1: micro-batches, and P7: the end of a trace. Where each backward of an interval begins and ends. */
#include "analyzer/attr_model.h"

/* A set of ranges that is emptied often. */
struct range_set {
    int32_t *epoch; /* per range: member if equal to `now` */
    int32_t now, count;
};

static struct range_set set_new(struct at_trace *t) {
    return (struct range_set){.epoch = POOL_NEW(t->pool, int32_t, t->ranges), .now = 1};
}
static void set_clear(struct range_set *s) {
    s->now++, s->count = 0;
}
static int set_has(const struct range_set *s, int32_t r) {
    return s->epoch[r] == s->now;
}
static int set_add(struct range_set *s, int32_t r) { /* 1: new */
    if (set_has(s, r)) return 0;
    s->epoch[r] = s->now;
    s->count++;
    return 1;
}

/* What an op says about where the interval stands. */
enum mark {
    MARK_NONE,
    MARK_GRAD,    /* writes a gradient */
    MARK_FORWARD, /* reads a weight along its forward axis */
    MARK_FROZEN,  /* reads a frozen weight along the other axis: backward */
    MARK_OTHER    /* reads a trained weight along the other axis: backward, or a tied transpose */
};

/* Does the op write a gradient while it reads something that is neither one, nor derived, nor, products aside, written
 * by the host alone? */
int at_is_grad_op(const struct at_trace *t, int32_t e) {
    int writes = 0, reads = 0, product = t->event[e].kind == AT_GEMM;
    if (t->in_cluster[e] || !at_is_work(&t->event[e])) return 0;
    AT_EACH_ACCESS(t, e, a) {
        const struct at_value *v = &t->value[a->value];
        int gradient = v->grad || at_grad_like(t, a->value);
        if (gradient && at_writes(a->mode))
            writes = 1;
        else if (!gradient && at_reads(a->mode) && !v->derived && (!v->only_host_writes || product))
            reads = 1;
    }
    return writes && reads;
}

/* Another operand of the product was multiplied for a gradient before anything else: it depends on the gradient of the
 * loss. So a tied weight's input gradient is told from its forward product. */
static int follows_gradient(const struct at_trace *t, int32_t e) {
    AT_EACH_ACCESS(t, e, a) {
        if (t->event[e].kind != AT_GEMM || !at_is_factor(at_slot_of(t, a)) || t->range[a->range].any_weight) continue;
        AT_EACH_TOUCH(t, &t->value[a->value], b) {
            if (b->event >= e) break;
            if (t->event[b->event].kind != AT_GEMM || !at_is_factor(at_slot_of(t, b))) continue;
            if (at_is_grad_op(t, b->event)) return 1;
            break;
        }
    }
    return 0;
}

static enum mark mark_of(const struct at_trace *t, int32_t e) {
    if (t->in_cluster[e] || !at_is_work(&t->event[e])) return MARK_NONE;
    if (at_is_grad_op(t, e)) return MARK_GRAD;
    int32_t w = t->weight_read[e];
    if (w < 0) return MARK_NONE;
    if (t->weight_forward[e]) return follows_gradient(t, e) ? MARK_OTHER : MARK_FORWARD;
    return t->range[w].frozen ? MARK_FROZEN : MARK_OTHER;
}

/* The state of P1's walk over an interval. */
struct grouping {
    struct range_set gap;  /* weights read forward since the group's last op */
    struct range_set done; /* weights whose backward the group has done */
    struct range_set all;  /* read forward anywhere in the interval */
    struct range_set once; /* scratch of P7 */
    int32_t *pending;      /* weights read along the other axis since the last op of a group */
    int32_t pendings, pending_room;
    int32_t both; /* members of gap and done */
    int open;     /* a group has begun */
    int32_t span_room;
};

static void gap_clear(struct grouping *g) {
    set_clear(&g->gap);
    g->both = 0;
}

static void gap_add(struct grouping *g, int32_t w) {
    if (set_add(&g->gap, w)) g->both += set_has(&g->done, w);
}

static void done_add(struct grouping *g, int32_t w) {
    if (set_add(&g->done, w)) g->both += set_has(&g->gap, w);
}

/* At least half of the weights whose backward is done are read forward again: a new micro-batch. Where none is known to
 * be done, at least half of the weights of the group's forward. */
static int begins_anew(const struct at_trace *t, const struct grouping *g) {
    if (!g->gap.count) return 0;
    return g->done.count ? 2 * g->both >= g->done.count : 2 * g->gap.count >= t->last_forward_weights;
}

static void group_op(struct at_trace *t, struct grouping *g, struct at_interval *iv, int32_t e, enum mark m) {
    if (g->open && begins_anew(t, g)) {
        g->open = 0;
        set_clear(&g->done);
    }
    if (!g->open) {
        POOL_ROOM(t->pool, t->span, t->spans, g->span_room);
        t->span[t->spans++] = (struct at_span){.first = e, .last = e, .turn = -1};
        iv->spans++;
        g->open = 1;
        t->last_forward_weights = g->gap.count ? g->gap.count : g->all.count;
    }
    t->span[t->spans - 1].last = e;
    gap_clear(g);
    for (int32_t i = 0; i < g->pendings; i++) done_add(g, g->pending[i]);
    g->pendings = 0;
    if (m == MARK_FROZEN) done_add(g, t->weight_read[e]);
}

static void find_groups(struct at_trace *t, struct grouping *g, struct at_interval *iv) {
    g->open = 0;
    g->pendings = 0;
    gap_clear(g);
    set_clear(&g->done);
    set_clear(&g->all);
    for (int32_t e = iv->from; e < iv->to; e++)
        if (mark_of(t, e) == MARK_FORWARD) set_add(&g->all, t->weight_read[e]);
    for (int32_t e = iv->from; e < iv->to; e++) {
        enum mark m = mark_of(t, e);
        if (m == MARK_GRAD || m == MARK_FROZEN) {
            group_op(t, g, iv, e, m);
        } else if (m == MARK_FORWARD) {
            gap_add(g, t->weight_read[e]);
        } else if (m == MARK_OTHER) {
            POOL_ROOM(t->pool, g->pending, g->pendings, g->pending_room);
            g->pending[g->pendings++] = t->weight_read[e];
            if (g->open && !g->gap.count) t->span[t->spans - 1].last = e;
        }
    }
}

static int32_t first_op_of(const struct at_trace *t, const struct at_interval *iv) {
    for (int32_t e = iv->from; e < iv->to; e++)
        if (at_is_op(&t->event[e])) return e;
    return iv->from;
}

static int32_t last_op_of(const struct at_trace *t, const struct at_interval *iv) {
    for (int32_t e = iv->to - 1; e >= iv->from; e--)
        if (at_is_op(&t->event[e])) return e;
    return iv->from;
}

/* Kernels up to backward's first product that touch no weight work on the gradient of the loss. */
static void note_turns(struct at_trace *t, const struct at_span *s) {
    if (s->turn >= 0) t->turn[s->turn] = 1;
    int32_t i = at_first_gemm_from(t, s->first);
    int32_t to = t->gemm[i < t->gemms ? i : t->gemms - 1];
    if (s->last < to) to = s->last;
    for (int32_t e = s->first; e < to; e++) {
        int weight = 0;
        if (t->event[e].kind != AT_KERNEL) continue;
        AT_EACH_ACCESS(t, e, a) weight |= t->range[a->range].any_weight;
        if (!weight) t->turn[e] = 1;
    }
}

/* Reads what the turn wrote, and makes nothing that another product or kernel reads: a figure for the host. */
static int reports_loss(const struct at_trace *t, int32_t e, int32_t turn) {
    int of_turn = 0;
    if (t->event[e].kind != AT_KERNEL) return 0;
    AT_EACH_ACCESS(t, e, a) {
        of_turn |= at_reads(a->mode) && a->writer == turn;
        if (!at_writes(a->mode)) continue;
        AT_EACH_TOUCH(t, &t->value[a->value], b)
        if (b->event != e && at_reads(b->mode) && at_is_work(&t->event[b->event])) return 0;
    }
    return of_turn;
}

/* A copy to the host of what the turn, or a report after it, wrote. */
static int copies_loss(const struct at_trace *t, int32_t e, int32_t turn) {
    if (t->event[e].kind != AT_D2H) return 0;
    AT_EACH_ACCESS(t, e, a) if (at_reads(a->mode) && a->writer >= turn) return 1;
    return 0;
}

/* The loss may be summed up after its gradient is written (d = y - x, then dot(d, d)), and copied to the host: still
 * part of the loss, so forward. */
static void skip_loss_report(const struct at_trace *t, struct at_span *s) {
    if (s->turn < 0 || t->dark) return;
    for (int32_t e = s->first; e < s->last; e++) {
        int work = at_is_work(&t->event[e]);
        if (work && !reports_loss(t, e, s->turn)) return;
        if (work || copies_loss(t, e, s->turn)) s->first = e + 1;
    }
}

static void find_starts(struct at_trace *t, struct at_interval *iv) {
    int32_t lo = first_op_of(t, iv);
    for (int32_t i = iv->span0; i < iv->span0 + iv->spans; i++) {
        struct at_span *s = &t->span[i];
        int32_t last = s->last;
        at_backward_start(t, s->first, lo, iv->cluster, s);
        s->last = last;
        skip_loss_report(t, s);
        note_turns(t, s);
        lo = last + 1;
    }
}

/* ---- P7
 * --------------------------------------------------------------------------------------------------------------------
 */
/* First forward read of a weight after the event, or -1; *repeats: some weight is read so twice. */
static int32_t forward_after(const struct at_trace *t, struct grouping *g, const struct at_interval *iv, int32_t after,
                             int *repeats) {
    int32_t first = -1;
    *repeats = 0;
    set_clear(&g->once);
    for (int32_t e = after + 1; e < iv->to; e++) {
        if (mark_of(t, e) != MARK_FORWARD) continue;
        if (first < 0) first = e;
        if (!set_add(&g->once, t->weight_read[e])) *repeats = 1;
    }
    return first;
}

/* Cut off in mid-step: what follows the last gradient write is backward until a new forward pass begins, which is
 * forward. */
static void cut_off(struct at_trace *t, struct grouping *g, const struct at_interval *iv) {
    struct at_span *s = &t->span[iv->span0 + iv->spans - 1];
    int repeats;
    int32_t next = forward_after(t, g, iv, s->last, &repeats);
    if (repeats && g->gap.count) return; /* several passes without backward: evaluation */
    int passes = g->done.count ? 2 * g->both >= g->done.count : g->gap.count > 0;
    if (next < 0 || !passes) {
        s->last = last_op_of(t, iv);
        return;
    }
    int32_t k = at_first_gemm_from(t, next);
    if (k && t->gemm[k - 1] > s->last) s->last = t->gemm[k - 1];
    t->cut_forward = s->last + 1;
}

static void note_optimizer_ranges(struct at_trace *t) {
    for (int32_t i = 0; i < t->ranges; i++) {
        struct at_range *r = &t->range[i];
        if (!r->alive || at_is_pool(t, i)) continue;
        AT_EACH_TOUCH(t, r, a)
        if (a->mode == AT_W && t->in_cluster[a->event] && t->event[a->event].kind == AT_KERNEL) {
            r->overwritten_by_optimizer = 1;
            break;
        }
    }
}

static void note_grad_writes(struct at_trace *t) {
    for (int32_t e = 0; e < t->events; e++) {
        if (!at_is_work(&t->event[e])) continue;
        AT_EACH_ACCESS(t, e, a) t->writes_grad[e] |= at_writes(a->mode) && t->value[a->value].grad;
    }
}

void at_phases(struct at_trace *t) {
    t->cut_forward = -1;
    t->turn = POOL_NEW(t->pool, uint8_t, t->events);
    t->writes_grad = POOL_NEW(t->pool, uint8_t, t->events);
    if (!t->gemms) return;
    note_optimizer_ranges(t);
    note_grad_writes(t);
    struct grouping g = {.gap = set_new(t), .done = set_new(t), .all = set_new(t), .once = set_new(t)};
    for (int32_t k = 0; k < t->intervals; k++) {
        struct at_interval *iv = &t->interval[k];
        iv->span0 = t->spans;
        find_groups(t, &g, iv);
        find_starts(t, iv);
        if (iv->cluster < 0 && iv->spans && (t->step_ends || t->cut)) cut_off(t, &g, iv);
        at_taint(t, iv);
        at_forward(t, k);
    }
}
