/* P3: inside backward, an op that reads forward values but nothing that depends on the loss gradient is recompute. */
#include "analyzer/attr_model.h"

struct taint {
    struct at_trace *t;
    const struct at_span *span;
    int32_t number; /* of the span: marks values */
    int8_t label;   /* blind: what the last GEMM with a weight was */
};

static int is_tainted(const struct taint *x, int32_t value) {
    return x->t->value[value].tainted_in == x->number;
}

static void set_tainted(const struct taint *x, int32_t value) {
    x->t->value[value].tainted_in = x->number;
    x->t->value[value].taint = 1;
}

/* Backward reads the value after the turn. */
static int read_in_span(const struct taint *x, int32_t value) {
    const struct at_value *v = &x->t->value[value];
    int32_t end = v->touch0 + v->touches;
    for (int32_t i = at_touch_from(x->t, v->touch0, v->touches, x->span->first); i < end; i++) {
        const struct at_access *a = &x->t->access[x->t->touch[i]];
        if (a->event > x->span->last) return 0;
        if (at_reads(a->mode) && a->event > x->span->turn) return 1;
    }
    return 0;
}

/* What the loss kernel wrote for backward is the first gradient. */
static void taint_turn(const struct taint *x) {
    const struct at_trace *t = x->t;
    if (x->span->turn < 0) return;
    AT_EACH_ACCESS(t, x->span->turn, a) {
        if (!at_writes(a->mode) && !t->value[a->value].forced) continue;
        if (!at_is_carried(t, a->range, x->span->turn) && read_in_span(x, a->value)) set_tainted(x, a->value);
    }
}

static void pass_copy(const struct taint *x, int32_t e) {
    struct at_event *ev = &x->t->event[e];
    if (ev->phase == AT_OTHER) ev->phase = AT_BACKWARD;
    int tainted = 0; /* what it copies */
    AT_EACH_ACCESS(x->t, e, a) tainted |= a->mode == AT_R && is_tainted(x, a->value);
    AT_EACH_ACCESS(x->t, e, a) {
        if (a->mode != AT_W) continue;
        if (tainted)
            set_tainted(x, a->value);
        else
            x->t->value[a->value].taint = 0;
    }
}

struct reads {
    int any, tainted, gradient, forward; /* operands of each sort, weights aside */
};

static struct reads look_at(const struct taint *x, int32_t e) {
    const struct at_trace *t = x->t;
    struct reads r = {0};
    AT_EACH_ACCESS(t, e, a) {
        if (!at_reads(a->mode) || t->range[a->range].any_weight) continue;
        int tainted = is_tainted(x, a->value), gradient = t->value[a->value].grad;
        r.any = 1;
        r.tainted |= tainted;
        r.gradient |= gradient;
        r.forward |= !tainted && !gradient && !at_is_carried(t, a->range, e);
    }
    return r;
}

static void spread(const struct taint *x, int32_t e, int tainted) {
    const struct at_trace *t = x->t;
    AT_EACH_ACCESS(t, e, a) {
        const struct at_range *r = &t->range[a->range];
        struct at_value *v = &t->value[a->value];
        if (a->mode == AT_R || r->any_weight || (at_is_carried(t, a->range, e) && !r->maybe_carried)) continue;
        if (a->mode == AT_MAYBE && v->birth >= 0 && v->birth < x->span->first && !v->grad &&
            t->event[e].kind == AT_KERNEL && !is_tainted(x, a->value))
            continue; /* direction not known: a forward value stays one */
        if (tainted)
            set_tainted(x, a->value);
        else if (a->mode == AT_W && is_tainted(x, a->value))
            v->tainted_in = -1;
    }
}

/* A factor is what the loss made for backward: whichever way round a tied weight is read, this is its input gradient.
 */
static int multiplies_gradient(const struct taint *x, int32_t e) {
    const struct at_trace *t = x->t;
    AT_EACH_ACCESS(t, e, a) {
        const struct at_value *v = &t->value[a->value];
        if (!at_is_factor(at_slot_of(t, a)) || t->range[a->range].any_weight || v->birth < 0) continue;
        if (is_tainted(x, a->value) && v->birth == x->span->turn) return 1;
    }
    return 0;
}

/* The next op that touches what `gemm` made is a kernel that adds it to a gradient of its size, and there is no other.
 */
static int makes_addend(const struct at_trace *t, int32_t gemm) {
    AT_EACH_ACCESS(t, gemm, a) {
        const struct at_value *v = &t->value[a->value];
        if (!at_is_result(t, a) || v->birth != gemm || v->touches != 2) continue;
        const struct at_access *by = &t->access[t->touch[v->touch0 + 1]];
        if (t->event[by->event].kind != AT_KERNEL || t->event[by->event].buffers > 3) continue;
        AT_EACH_ACCESS(t, by->event, b)
        if (b->range != by->range && at_writes(b->mode) && t->value[b->value].grad &&
            at_same_count(at_access_bytes(t, b), at_access_bytes(t, by)))
            return 1;
    }
    return 0;
}

static void pass_op(struct taint *x, int32_t e) {
    const struct at_trace *t = x->t;
    struct reads r = look_at(x, e);
    int source = !r.any, tainted = r.tainted;       /* a fill reads nothing */
    int backward = tainted || source || !r.forward; /* casts and transposes of weights are no recompute */
    int other_axis = t->weight_read[e] >= 0 && !t->weight_forward[e];
    if (t->event[e].kind == AT_GEMM && !backward && (at_is_grad_op(t, e) || other_axis))
        backward = tainted = 1;                   /* P3b */
    if (t->event[e].kind == AT_GEMM && t->dark) { /* P3d */
        if (at_is_grad_op(t, e) || other_axis || multiplies_gradient(x, e) || makes_addend(t, e))
            x->label = AT_BACKWARD;
        else if (t->weight_read[e] >= 0)
            x->label = AT_RECOMPUTE;
        backward = x->label == AT_BACKWARD;
    }
    t->event[e].phase = backward ? AT_BACKWARD : AT_RECOMPUTE;
    spread(x, e, tainted || source);
}

void at_taint(struct at_trace *t, const struct at_interval *iv) {
    for (int32_t i = iv->span0; i < iv->span0 + iv->spans; i++) {
        struct taint x = {t, &t->span[i], i, AT_BACKWARD};
        taint_turn(&x);
        for (int32_t e = x.span->first; e <= x.span->last; e++) {
            if (!at_is_op(&t->event[e])) continue;
            if (at_is_work(&t->event[e]))
                pass_op(&x, e);
            else
                pass_copy(&x, e);
        }
    }
}
