/* K1: skipped steps. P5: evaluation belongs to no step. P7: a step cut off in forward. N1: inference. */
#include "analyzer/attr_model.h"

static void mark_step(struct at_trace *t, int32_t from, int32_t to) {
    for (int32_t e = from; e < to; e++)
        if (at_is_op(&t->event[e]) && t->event[e].phase != AT_EVALUATION) t->event[e].step = t->steps;
}

/* K1: more than half of the gradient bytes that this backward writes were begun anew after the one before it ended. */
static int begins_step(const struct at_trace *t, const struct at_span *before, const struct at_span *span,
                       int32_t *seen) {
    int64_t anew = 0, kept = 0;
    int32_t mark = span->first + 1;
    for (int32_t e = span->first; e <= span->last; e++) {
        if (!at_is_work(&t->event[e])) continue;
        AT_EACH_ACCESS(t, e, a) {
            const struct at_value *v = &t->value[a->value];
            const struct at_range *r = &t->range[a->range];
            if (a->mode == AT_R || seen[a->range] == mark || (!v->grad && !at_grad_like(t, a->value))) continue;
            seen[a->range] = mark;
            if (v->birth > before->last)
                anew += r->hi - r->lo;
            else
                kept += r->hi - r->lo;
        }
    }
    return anew > kept;
}

/* After a skipped step: kernels that work on gradients (and scalars) only were its optimizer's. Returns the event
 * behind them, and behind a copy to the host that follows (of an overflow flag). */
static int32_t label_skipped_optimizer(struct at_trace *t, int32_t from, int32_t to) {
    int32_t end = from;
    for (int32_t e = from; e < to; e++) {
        struct at_event *ev = &t->event[e];
        int only = 1;
        if (ev->kind == AT_D2H && end > from) end = e + 1;
        if (!at_is_work(ev)) continue;
        if (ev->phase != AT_EVALUATION || ev->kind != AT_KERNEL) break;
        AT_EACH_ACCESS(t, e, a)
        only &= t->value[a->value].grad || at_grad_like(t, a->value) ||
                t->range[a->range].hi - t->range[a->range].lo <= 4096;
        if (!only) break;
        ev->phase = AT_OPTIMIZER;
        end = e + 1;
    }
    return end;
}

static void number_micro_batches(struct at_trace *t, const struct at_interval *iv, int32_t first, int32_t end) {
    const struct at_span *span = t->span + iv->span0;
    for (int32_t m = first; m < end; m++)
        for (int32_t e = m ? span[m - 1].last + 1 : iv->from; e <= span[m].last; e++)
            t->event[e].micro_batch = m - first;
}

/* Spans [first, end) of the interval are one step, which begins at `from`. Returns where the next one does. */
static int32_t take_step(struct at_trace *t, const struct at_interval *iv, int32_t first, int32_t end, int32_t from) {
    const struct at_span *span = t->span + iv->span0;
    int last = end == iv->spans;
    int32_t to = last ? iv->to : label_skipped_optimizer(t, span[end - 1].last + 1, span[end].first);
    mark_step(t, from, to);
    number_micro_batches(t, iv, first, end);
    if (last && t->cut_forward >= 0 && iv->cluster < 0) /* the forward that was cut off: one more micro-batch */
        for (int32_t e = t->cut_forward; e < iv->to; e++) t->event[e].micro_batch = end - first;
    t->step[t->steps++] = (struct at_step){.complete = (uint8_t)(!last || iv->cluster >= 0)};
    return to;
}

/* How often a forward pass reads each weight, in the last step that does (models may take turns): step << 32 | reads.
 */
static struct at_map reads_of_a_pass(struct at_trace *t) {
    struct at_map reads = {0};
    for (int32_t e = 0; e < t->events; e++) {
        const struct at_event *ev = &t->event[e];
        int32_t w = t->weight_read[e];
        if (w < 0 || ev->step < 0 || ev->micro_batch || ev->phase != AT_FORWARD) continue;
        int64_t *n = at_map_put(&reads, t->pool, (uint32_t)w, NULL);
        if (*n >> 32 != ev->step) *n = (int64_t)ev->step << 32;
        ++*n;
    }
    return reads;
}

/* The program has evaluated before: between its steps, or ahead of the first. */
static int has_evaluated(const struct at_trace *t, int32_t before) {
    for (int32_t e = 0; e < before; e++)
        if (t->event[e].phase == AT_EVALUATION && t->weight_read[e] >= 0) return 1;
    return 0;
}

/* The program came to its end: it released a weight after its last product. */
static int has_ended(const struct at_trace *t) {
    for (int32_t r = 0; r < t->ranges; r++)
        if (t->range[r].any_weight && t->block[t->range[r].block].dead < AT_END &&
            t->block[t->range[r].block].dead > t->gemm[t->gemms - 1])
            return 1;
    return 0;
}

/* A forward pass after the last update: cut off in mid-step if it reads no weight more often than a pass does, and the
 * program evaluates nowhere else and did not come to its end; else evaluation. */
static void trailing_forward(struct at_trace *t, const struct at_interval *iv) {
    struct at_map seen = {0}, usual = reads_of_a_pass(t);
    if (has_evaluated(t, iv->from) || has_ended(t)) return;
    for (int32_t e = iv->from; e < t->events; e++) {
        int32_t w = t->weight_read[e];
        if (w < 0) continue;
        const int64_t *most = at_map_get(&usual, (uint32_t)w);
        if (++*at_map_put(&seen, t->pool, (uint32_t)w, NULL) > (most ? *most & INT32_MAX : 1)) return;
    }
    if (!seen.count) return;
    for (int32_t e = iv->from; e < t->events; e++)
        if (at_is_work(&t->event[e])) t->event[e].phase = AT_FORWARD;
    mark_step(t, iv->from, iv->to);
    t->step[t->steps++] = (struct at_step){.complete = 0};
}

static void split_interval(struct at_trace *t, const struct at_interval *iv, int32_t *seen) {
    const struct at_span *span = t->span + iv->span0;
    int32_t first = 0, from = iv->from;
    if (!iv->spans) {
        if (iv->cluster < 0) trailing_forward(t, iv);
        return;
    }
    for (int32_t m = 1; m < iv->spans; m++) {
        if (!begins_step(t, &span[m - 1], &span[m], seen)) continue;
        from = take_step(t, iv, first, m, from);
        first = m;
    }
    take_step(t, iv, first, iv->spans, from);
}

/* ---- N1
 * --------------------------------------------------------------------------------------------------------------------
 */
static int reads_host_input(const struct at_trace *t, int32_t e) {
    AT_EACH_ACCESS(t, e, a) {
        int32_t birth = t->value[a->value].birth;
        if (at_reads(a->mode) && birth >= 0 && t->event[birth].kind == AT_H2D) return 1;
    }
    return 0;
}

static int32_t frozen_read(const struct at_trace *t, int32_t e) {
    AT_EACH_ACCESS(t, e, a) if (at_is_factor(at_slot_of(t, a)) && t->range[a->range].frozen) return a->range;
    return -1;
}

static uint64_t shape_of_product(const struct at_event *e) {
    uint64_t h = at_mix((uint64_t)e->m) + 3 * (uint64_t)e->axis_a + 5 * (uint64_t)e->axis_b;
    return at_mix(at_mix(at_mix(h) ^ (uint64_t)e->n) ^ (uint64_t)e->k) ^ (uint64_t)e->batch;
}

/* After how many products the same shapes come again, from the first product to the last; all of them: never. */
static int32_t period_of_products(const struct at_trace *t) {
    int32_t *border = POOL_NEW(t->pool, int32_t, t->gemms), n = 0;
    uint64_t *shape = POOL_NEW(t->pool, uint64_t, t->gemms);
    for (int32_t i = 0; i < t->gemms; i++) {
        shape[i] = shape_of_product(&t->event[t->gemm[i]]);
        while (i && n && shape[i] != shape[n]) n = border[n - 1];
        if (i && shape[i] == shape[n]) n++;
        border[i] = n; /* the longest beginning of the sequence that also ends at i */
    }
    pool_give(t->pool, shape);
    pool_give(t->pool, border);
    return 2 * (int64_t)(t->gemms - n) <= t->gemms ? t->gemms - n : t->gemms;
}

/* No weight that stays as it is: a step is what comes again, else everything. */
static void repetition(struct at_trace *t) {
    int32_t period = period_of_products(t);
    for (int32_t i = 0; i < t->gemms; i++) {
        t->event[t->gemm[i]].step = i / period;
        t->event[t->gemm[i]].phase = AT_FORWARD;
    }
    t->steps = (t->gemms + period - 1) / period;
}

/* A step is a pass: it begins when a weight is read again and half of the weights have been. */
static void inference(struct at_trace *t) {
    int32_t *seen = POOL_NEW(t->pool, int32_t, t->ranges); /* pass in which a range was last read, from 1 */
    int32_t *by = POOL_NEW(t->pool, int32_t, t->ranges);   /* the function that read it first in that pass */
    int32_t frozen = 0, step = -1, read = 0;
    for (int32_t r = 0; r < t->ranges; r++) frozen += t->range[r].frozen;
    for (int32_t i = 0; i < t->gemms; i++) {
        struct at_event *ev = &t->event[t->gemm[i]];
        int32_t w = frozen_read(t, t->gemm[i]);
        if (w >= 0) {
            int again = seen[w] == step + 1 && (!ev->own || by[w] == ev->name);        /* (a table, then a head) */
            again &= t->weight_read[t->gemm[i]] != w || t->weight_forward[t->gemm[i]]; /* (a gradient's way back) */
            if (step < 0 || (again && 2 * (int64_t)read >= frozen)) {
                step++;
                read = 0;
            }
            if (seen[w] != step + 1) {
                read++;
                by[w] = ev->name;
            }
            seen[w] = step + 1;
        }
        ev->step = step;
        if (step >= 0) ev->phase = AT_FORWARD;
    }
    t->steps = step + 1;
    int repeats = !t->steps;
    if (repeats) repetition(t);
    step = -1;
    for (int32_t e = 0; e < t->events; e++) { /* what is between two products of a pass belongs to it */
        struct at_event *ev = &t->event[e];
        ev->micro_batch = 0; /* rule P1 took passes for them, before it was known that none is trained */
        if (ev->kind == AT_GEMM)
            step = ev->step;
        else if (at_is_op(ev))
            ev->step = step;
        if (ev->kind == AT_KERNEL && (e > t->first_gemm || reads_host_input(t, e))) ev->phase = AT_FORWARD;
    }
    t->step = POOL_NEW(t->pool, struct at_step, t->steps);
    int found = repeats ? (t->steps > 1 ? AT_BY_REPEATS : AT_BY_ONE) : AT_BY_PASSES;
    for (int32_t i = 0; i < t->steps; i++) t->step[i] = (struct at_step){.complete = 1, .by = (uint8_t)found};
}

void at_steps(struct at_trace *t) {
    if (!t->gemms) return;
    if (t->cut == AT_CUT_IN_FORWARD || (t->cut && !t->spans)) {
        at_cut_forward(t);
        return;
    }
    if (!t->step_ends && !t->cut) {
        inference(t);
        return;
    }
    int32_t *seen = POOL_NEW(t->pool, int32_t, t->ranges);
    t->step = POOL_NEW(t->pool, struct at_step, (size_t)t->spans + (size_t)t->intervals);
    for (int32_t k = 0; k < t->intervals; k++) split_interval(t, &t->interval[k], seen);
    pool_give(t->pool, seen);
    if (!t->steps && !t->cut) inference(t); /* updates without gradients, and nothing else: passes all the same */
}
