/* P4: forward is what backward needs. P5: the rest is evaluation. P6: the optimizer. */
#include "analyzer/attr_model.h"

static int in_span(const struct at_span *s, int32_t e) {
    return e >= s->first && e <= s->last;
}

/* Written by an update as a whole, and read by the passes after it, if there are any. */
static int is_updated_whole(const struct at_trace *t, const struct at_value *v) {
    int reads = 0;
    if (v->birth < 0 || !t->in_cluster[v->birth] || t->event[v->birth].kind != AT_KERNEL) return 0;
    AT_EACH_TOUCH(t, v, a) {
        if (!at_reads(a->mode) || !at_is_work(&t->event[a->event])) continue;
        if (!t->in_cluster[a->event]) return 1;
        reads = 1;
    }
    return !reads;
}

/* In a pool: a parameter before its first update, or between two. */
static int is_param_value(const struct at_trace *t, int32_t value) {
    const struct at_value *v = &t->value[value];
    const struct at_range *r = &t->range[v->range];
    if (!at_is_pool(t, v->range)) return 0;
    if (is_updated_whole(t, v)) return 1;
    return v->birth < t->first_gemm && value + 1 < r->value0 + r->values && is_updated_whole(t, v + 1);
}

/* Through what need does not pass: weights, state, constants, and parameters that the optimizer overwrites. */
static int is_source(struct at_trace *t, const struct at_access *a) {
    const struct at_range *r = &t->range[a->range];
    return at_is_carried(t, a->range, a->event) || r->any_weight || r->overwritten_by_optimizer ||
           at_lasting(t, a->range) || is_param_value(t, a->value);
}

static void need_operands(struct at_trace *t, int32_t interval, int32_t e) {
    AT_EACH_ACCESS(t, e, a)
    if (at_reads(a->mode) && !is_source(t, a)) t->value[a->value].needed_in = interval;
}

static int makes_needed(const struct at_trace *t, int32_t interval, int32_t e) {
    AT_EACH_ACCESS(t, e, a) {
        const struct at_value *v = &t->value[a->value];
        if (at_writes(a->mode) && v->needed_in == interval && !v->grad) return 1;
    }
    return 0;
}

/* The host read e's result and made the gradient of the loss from it: the last such read before the upload. */
static int read_for_loss(const struct at_trace *t, const struct at_span *s, int32_t e, int32_t *at) {
    if (t->event[e].kind != AT_D2H || s->turn < 0 || t->event[s->turn].kind != AT_H2D || *at == s->turn) return 0;
    *at = s->turn;
    return 1;
}

/* Backwards through the interval: begin[j] becomes the first op before span j (and after span j - 1) that backward
 * needs. */
static void sweep_need(struct at_trace *t, int32_t interval, int32_t *begin) {
    const struct at_interval *iv = &t->interval[interval];
    const struct at_span *span = t->span + iv->span0;
    int32_t j = iv->spans - 1, read_before = -1;
    for (int32_t e = iv->to - 1; e >= iv->from; e--) {
        if (!at_is_op(&t->event[e])) continue;
        while (j >= 0 && e < span[j].first) j--;
        if (j >= 0 && in_span(&span[j], e)) {
            need_operands(t, interval, e);
            continue;
        }
        if (j + 1 < iv->spans && read_for_loss(t, &span[j + 1], e, &read_before)) need_operands(t, interval, e);
        int kind = t->event[e].kind;
        if (t->in_cluster[e] || (!at_is_work(&t->event[e]) && kind != AT_D2D) || !makes_needed(t, interval, e))
            continue;
        if (j + 1 < iv->spans) begin[j + 1] = e;
        need_operands(t, interval, e);
    }
}

/* How many products of the backward make gradients: as many products of weights its forward had, at least. */
static int32_t gradient_products(const struct at_trace *t, const struct at_span *s) {
    int32_t n = 0;
    for (int32_t i = at_first_gemm_from(t, s->first); i < t->gemms && t->gemm[i] <= s->last; i++)
        n += at_is_grad_op(t, t->gemm[i]);
    return n;
}

/* P4b, blind: not earlier than the last pass over the weights before backward. (A weight may be used twice; where fewer
 * than half of the products that a pass has are seen to read weights, the others' go through casts, and the pass is not
 * known.) */
static int32_t last_pass(struct at_trace *t, int32_t from, const struct at_span *s) {
    struct at_map all = {0}, seen = {0};
    int32_t start = -1, to = s->first, reads = 0, uses = gradient_products(t, s);
    for (int32_t e = from; e < to; e++)
        if (t->weight_read[e] >= 0 && t->weight_forward[e] && !t->in_cluster[e] && !at_is_grad_op(t, e))
            at_map_put(&all, t->pool, (uint32_t)t->weight_read[e], NULL);
    for (int32_t e = to - 1; e >= from; e--) {
        if (t->weight_read[e] < 0 || !t->weight_forward[e] || t->in_cluster[e] || at_is_grad_op(t, e)) continue;
        uint64_t w = (uint32_t)t->weight_read[e];
        if (at_map_has(&seen, w) && 2 * seen.count >= all.count && reads >= uses) break;
        reads++;
        at_map_put(&seen, t->pool, w, NULL);
        start = e;
    }
    if (start < 0 || 2 * reads < uses) return from;
    int32_t k = at_first_gemm_from(t, start); /* kernels just before that pass belong to it */
    int32_t after = k ? t->gemm[k - 1] + 1 : 0;
    return after > from ? after : from;
}

static void label_forward(struct at_trace *t, const struct at_interval *iv, const int32_t *begin) {
    int32_t from = iv->from;
    for (int32_t j = 0; j < iv->spans; j++) {
        const struct at_span *s = &t->span[iv->span0 + j];
        int32_t f0 = begin[j];
        if (t->dark) {
            int32_t pass = last_pass(t, from, s);
            if (pass > f0) f0 = pass;
        }
        for (int32_t e = f0; e < s->first; e++) {
            if (t->in_cluster[e]) continue;
            t->event[e].phase = AT_FORWARD;
            t->event[e].micro_batch = j;
        }
        for (int32_t e = s->first; e <= s->last; e++) t->event[e].micro_batch = j;
        from = s->last + 1;
    }
}

static void label_evaluation(struct at_trace *t, const struct at_interval *iv) {
    for (int32_t e = iv->from; e < iv->to; e++) {
        struct at_event *ev = &t->event[e];
        if (at_is_work(ev) && ev->phase == AT_OTHER && !t->in_cluster[e] && e >= t->first_weight_read)
            ev->phase = AT_EVALUATION;
    }
}

static void label_cut_forward(struct at_trace *t, const struct at_interval *iv) {
    for (int32_t e = t->cut_forward; e < t->events; e++) {
        if (at_is_work(&t->event[e])) t->event[e].phase = AT_FORWARD;
        t->event[e].micro_batch = iv->spans;
    }
}

static int makes_derived(const struct at_trace *t, int32_t e) {
    AT_EACH_ACCESS(t, e, a) if (at_writes(a->mode) && t->value[a->value].derived) return 1;
    return 0;
}

static void label_optimizer(struct at_trace *t, const struct at_interval *iv) {
    int32_t x = t->step_end_first[iv->cluster], y = t->step_end_last[iv->cluster];
    int32_t after = iv->spans ? t->span[iv->span0 + iv->spans - 1].last + 1 : x;
    for (int32_t e = after; e < x; e++)
        if (t->event[e].kind == AT_KERNEL) t->event[e].phase = AT_OPTIMIZER;
    for (int32_t e = x; e <= y; e++) {
        int kernel = t->event[e].kind == AT_KERNEL;
        if ((kernel && t->in_cluster[e]) || (at_is_work(&t->event[e]) && makes_derived(t, e)))
            t->event[e].phase = AT_OPTIMIZER;
    }
}

void at_forward(struct at_trace *t, int32_t interval) {
    const struct at_interval *iv = &t->interval[interval];
    int32_t *begin = POOL_NEW(t->pool, int32_t, iv->spans);
    for (int32_t j = 0; j < iv->spans; j++) begin[j] = t->span[iv->span0 + j].first;
    sweep_need(t, interval, begin);
    label_forward(t, iv, begin);
    label_evaluation(t, iv);
    if (t->cut_forward >= 0 && iv->cluster < 0) label_cut_forward(t, iv);
    if (iv->cluster >= 0) label_optimizer(t, iv);
    pool_give(t->pool, begin);
}
