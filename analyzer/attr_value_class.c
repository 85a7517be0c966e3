/* C4–C8: the class of one value. */
#include "analyzer/attr_model.h"

#define BIT(x) (1u << (x))
#define SLOTS 8 /* values of a range to look back over for the last batch */
#define TRAINING (BIT(AT_FORWARD) | BIT(AT_BACKWARD) | BIT(AT_RECOMPUTE) | BIT(AT_EVALUATION))

int at_class_of_rule(int rule) {
    static const int8_t class_of[] = {
#define RULE(name, cls, text, known, blind, pool) cls,
#include "analyzer/attr_rules.h"
#undef RULE
    };
    return class_of[rule];
}

/* ---- prepared once
 * ----------------------------------------------------------------------------------------------------- */
static void number_stretches(struct at_trace *t) {
    int32_t n = 0, phase = -1;
    t->stretch = POOL_NEW(t->pool, int32_t, t->events);
    for (int32_t e = 0; e < t->events; e++) {
        if (at_is_work(&t->event[e]) && t->event[e].phase != phase) {
            phase = t->event[e].phase;
            n++;
        }
        t->stretch[e] = n ? n : 1;
    }
}

/* A hash of block and offset; equal for two places with a chance of 2^-64. */
static uint64_t place_of(const struct at_buffer *u) {
    return at_mix((uint64_t)u->block) ^ (uint64_t)u->offset;
}

/* Which gradient is the memory at an address added to? */
static void note_fed(struct at_trace *t) {
    for (int32_t e = 0; e < t->events; e++) {
        const struct at_event *ev = &t->event[e];
        int32_t into = -1;
        if (ev->kind != AT_KERNEL || t->in_cluster[e] || ev->buffers > 3) continue;
        AT_EACH_ACCESS(t, e, a)
        if (into < 0 && at_writes(a->mode) && t->value[a->value].grad) into = a->range;
        if (into < 0) continue;
        for (int32_t i = ev->buffer0; i < ev->buffer0 + ev->buffers; i++) {
            int fresh;
            if (t->buffer[i].mode != AT_R && t->buffer[i].mode != AT_MAYBE) continue;
            int64_t *fed = at_map_put(&t->fed, t->pool, place_of(&t->buffer[i]), &fresh);
            if (fresh)
                *fed = into + 1;
            else if (*fed != into + 1)
                *fed = -1;
        }
    }
}

void at_value_class_prepare(struct at_trace *t) {
    number_stretches(t);
    if (t->gemms) note_fed(t);
}

/* ---- questions
 * ----------------------------------------------------------------------------------------------------------- */
/* Values that begin at this address are added to more than one gradient. */
static int is_shared_addend(const struct at_trace *t, const struct at_value *v) {
    AT_EACH_TOUCH(t, v, a) {
        const int64_t *fed = at_map_get(&t->fed, place_of(&t->buffer[a->buffer]));
        if (fed && *fed < 0) return 1;
    }
    return 0;
}

static int writes_range(const struct at_trace *t, int32_t e, int32_t range) {
    AT_EACH_ACCESS(t, e, a) if (a->range == range && at_writes(a->mode)) return 1;
    return 0;
}

/* An addition reads the addend, what it adds to (perhaps as another operand than the one it writes), and scalars; a
 * scatter or a product reads more. */
static int reads_more(const struct at_trace *t, const struct at_access *from) {
    AT_EACH_ACCESS(t, from->event, a)
    if (a->mode == AT_R && a->buffer != from->buffer && at_access_bytes(t, a) > 8 &&
        !writes_range(t, from->event, a->range))
        return 1;
    return 0;
}

static int adds_to_gradient(const struct at_trace *t, const struct at_access *from) {
    int64_t bytes = at_access_bytes(t, from), one;
    int share = at_shares(t, &t->event[from->event], &one) == -1; /* summed over processes, and scattered */
    if (reads_more(t, from)) return 0;
    AT_EACH_ACCESS(t, from->event, a)
    if ((a->range != from->range || share) && at_writes(a->mode) && t->value[a->value].grad &&
        (share || at_same_count(at_access_bytes(t, a), bytes)))
        return 1;
    return 0;
}

/* Read only by kernels that add it to a gradient of its size. */
static int feeds_gradient(const struct at_trace *t, const struct at_value *v) {
    int n = 0;
    AT_EACH_TOUCH(t, v, a) {
        const struct at_event *e = &t->event[a->event];
        if (a->mode == AT_W || a->event == v->birth || (e->kind == AT_GEMM && at_is_result(t, a))) continue;
        if (a->mode == AT_RW || e->kind != AT_KERNEL || e->buffers > 3 || !adds_to_gradient(t, a)) return 0;
        n++;
    }
    return n > 0;
}

/* Everything from birth to release (pool: to the last access) lies within one stretch of one phase. */
static int dies_in_phase(const struct at_trace *t, const struct at_value *v) {
    const struct at_block *b = &t->block[t->range[v->range].block];
    int32_t first = t->access[t->touch[v->touch0]].event, last = t->access[t->touch[v->touch0 + v->touches - 1]].event;
    if (!b->pool) {
        if (b->dead == AT_END) return 0;
        last = b->dead - 1;
    }
    return t->stretch[first] == t->stretch[last];
}

/* Another part of what the same copy filled is read in training. */
static int part_of_input(const struct at_trace *t, const struct at_value *v) {
    int n = 0;
    AT_EACH_ACCESS(t, v->birth, a) {
        if (n++ == 64) return 0;
        AT_EACH_TOUCH(t, &t->value[a->value], b)
        if (at_is_work(&t->event[b->event]) && BIT(t->event[b->event].phase) & TRAINING) return 1;
    }
    return 0;
}

static const struct at_buffer *filled_by(const struct at_trace *t, const struct at_value *v) {
    return &t->buffer[t->access[t->touch[v->touch0]].buffer];
}

static int reads_in_training(const struct at_trace *t, const struct at_value *v) {
    AT_EACH_TOUCH(t, v, a)
    if (at_reads(a->mode) && at_is_work(&t->event[a->event]) && BIT(t->event[a->event].phase) & TRAINING) return 1;
    return 0;
}

/* Nobody reads it, and the copy filled the very bytes that the last one from the host did, which training read: the
 * next batch, sent ahead of a step that did not come. */
static int is_next_batch(const struct at_trace *t, const struct at_value *v) {
    int32_t first = t->range[v->range].value0, x = (int32_t)(v - t->value) - 1;
    if (v->touches > 1) return 0;
    for (int i = 0; i < SLOTS && x >= first; i++, x--) {
        const struct at_value *before = &t->value[x];
        if (before->birth < 0 || t->event[before->birth].kind != AT_H2D) continue;
        const struct at_buffer *now = filled_by(t, v), *then = filled_by(t, before);
        return now->offset == then->offset && now->bytes == then->bytes && reads_in_training(t, before);
    }
    return 0;
}

/* Kernels and copies made it, after the last product of forward, and products read it in backward only. */
static int made_by_loss(const struct at_trace *t, const struct at_value *v) {
    if (v->birth < 0 || v->gemm_result || t->weight_read[v->birth] >= 0) return 0; /* the logits themselves */
    AT_EACH_TOUCH(t, v, a) {
        const struct at_event *e = &t->event[a->event];
        if (e->kind == AT_GEMM && e->phase != AT_BACKWARD) return 0;
    }
    return 1;
}

/* ---- the decision
 * ----------------------------------------------------------------------------------------------------------- */
struct facts {
    unsigned read, written; /* phases of products and kernels that do so */
    unsigned kinds;         /* of all writers */
};

static struct facts facts_of(const struct at_trace *t, const struct at_value *v) {
    struct facts f = {0};
    AT_EACH_TOUCH(t, v, a) {
        const struct at_event *e = &t->event[a->event];
        if (at_reads(a->mode) && at_is_work(e)) f.read |= BIT(e->phase);
        if (at_writes(a->mode) && at_is_work(e)) f.written |= BIT(e->phase);
        if (at_writes(a->mode)) f.kinds |= BIT(e->kind);
    }
    return f;
}

static enum at_rule forward_rule(const struct at_trace *t, const struct at_value *v, const struct facts *f) {
    if (v->taint && !(f->written & (BIT(AT_BACKWARD) | BIT(AT_RECOMPUTE))) && made_by_loss(t, v))
        return AT_RULE_LOSS_GRAD;
    if (f->read & BIT(AT_BACKWARD) || (f->written & BIT(AT_FORWARD) && f->read & BIT(AT_RECOMPUTE)))
        return AT_RULE_ACTIVATION;
    return dies_in_phase(t, v) ? AT_RULE_WITHIN_PHASE : AT_RULE_OUTLIVES;
}

static enum at_rule backward_rule(const struct at_value *v, const struct facts *f) {
    if (!(f->read & BIT(AT_BACKWARD))) return AT_RULE_BACKWARD_WRITTEN;
    return v->taint ? AT_RULE_BACKWARD_READ : AT_RULE_BACKWARD_OTHER;
}

static enum at_rule cleared_rule(const struct at_value *v, const struct facts *f) {
    if (f->read & BIT(AT_BACKWARD)) return AT_RULE_CLEARED_BACKWARD;
    if (v->taint) return AT_RULE_BACKWARD_WRITTEN; /* a copy of a gradient, in a program that was cut off */
    return f->read & BIT(AT_FORWARD) ? AT_RULE_CLEARED_FORWARD : AT_RULE_CLEARED;
}

static int outside_training(const struct at_trace *t, const struct at_range *r) {
    AT_EACH_TOUCH(t, r, a)
    if (a->event >= t->first_gemm && t->event[a->event].kind != AT_GEMM) return 0;
    return 1;
}

static enum at_rule rule_of(const struct at_trace *t, const struct at_value *v) {
    const struct at_range *r = &t->range[v->range];
    int pool = t->block[r->block].pool;
    if (v->grad) return AT_RULE_GRAD;
    if (v->grad_like) return AT_RULE_GRAD_LIKE;
    if (r->holds_grad && !pool) return AT_RULE_GRAD_RANGE;
    struct facts f = facts_of(t, v);
    if (v->birth >= 0 && t->event[v->birth].kind == AT_H2D) {
        if (f.read & TRAINING) return AT_RULE_INPUT;
        return part_of_input(t, v) ? AT_RULE_INPUT_PART : is_next_batch(t, v) ? AT_RULE_INPUT_NEXT : AT_RULE_HOST_OTHER;
    }
    if (v->taint && !(f.written & ~BIT(AT_BACKWARD)) && feeds_gradient(t, v))
        return r->alive && !pool && !is_shared_addend(t, v) ? AT_RULE_GRAD_KEPT : AT_RULE_GRAD_RELEASED;
    int forward = f.written & (BIT(AT_FORWARD) | BIT(AT_RECOMPUTE)) ||
                  (f.written & BIT(AT_EVALUATION) && !(f.written & (BIT(AT_BACKWARD) | BIT(AT_OPTIMIZER))));
    if (forward) return forward_rule(t, v, &f);
    if (f.written & BIT(AT_BACKWARD)) return backward_rule(v, &f);
    if (f.written & BIT(AT_OPTIMIZER)) return AT_RULE_OPTIMIZER_SCRATCH;
    if (f.kinds & (BIT(AT_MEMSET) | BIT(AT_D2D))) return cleared_rule(v, &f);
    return outside_training(t, r) ? AT_RULE_OUTSIDE : AT_RULE_NONE;
}

struct at_verdict at_value_class(struct at_trace *t, int32_t value) {
    enum at_rule rule = rule_of(t, &t->value[value]);
    int vague =
        rule == AT_RULE_NONE || rule == AT_RULE_CLEARED || rule == AT_RULE_OUTSIDE || rule == AT_RULE_HOST_OTHER;
    if ((!t->steps || t->cut) && vague) rule = AT_RULE_NO_STEP;
    return (struct at_verdict){.from = 0, .until = AT_END, .cls = (int8_t)at_class_of_rule(rule), .rule = (int8_t)rule};
}
