/* C9: ranges without evidence of their own, in a block that has some. */
#include "analyzer/attr_model.h"

static struct at_verdict *verdict_of(const struct at_trace *t, int32_t range) {
    return &t->verdict[t->verdict0[range]];
}

/* Rules that say little. */
static int is_weak(int rule) {
    return rule == AT_RULE_UNTOUCHED || rule == AT_RULE_NONE || rule == AT_RULE_OUTSIDE || rule == AT_RULE_CLEARED ||
           rule == AT_RULE_LOADED_PARAM || rule == AT_RULE_AS_BLOCK;
}

/* Known sets: what is never accessed, in a block whose rest is of one class, is padding of that class. */
static void fill_untouched(struct at_trace *t, const struct at_block *b) {
    unsigned classes = 0;
    int8_t cls = AT_UNKNOWN;
    for (int32_t r = b->range0; r < b->range0 + b->ranges; r++) {
        if (!t->range[r].touches) continue;
        cls = verdict_of(t, r)->cls;
        classes |= 1u << cls;
    }
    if (!classes || classes & (classes - 1)) return;
    for (int32_t r = b->range0; r < b->range0 + b->ranges; r++)
        if (!t->range[r].touches && verdict_of(t, r)->rule == AT_RULE_UNTOUCHED) {
            verdict_of(t, r)->cls = cls;
            verdict_of(t, r)->rule = AT_RULE_REST_OF_BLOCK;
        }
}

/* The same pointer reaches from the range into the one at `beside`. */
static int reaches(const struct at_trace *t, const struct at_access *a, int32_t beside) {
    const struct at_event *e = &t->event[a->event];
    const struct at_access *first = t->access + e->access0, *last = first + e->accesses - 1;
    return (a > first && a[-1].range == beside && a[-1].buffer == a->buffer) ||
           (a < last && a[1].range == beside && a[1].buffer == a->buffer);
}

/* Cleared, and read only together with what the host filled before it: the part of a list of tokens that is not used
 * yet. */
static int is_end_of_input(const struct at_trace *t, int32_t range) {
    int n = 0;
    AT_EACH_TOUCH(t, &t->range[range], a) {
        if (!at_is_work(&t->event[a->event])) continue;
        if (a->mode != AT_R || !reaches(t, a, range - 1)) return 0;
        n++;
    }
    return n > 0;
}

static void lengthen_inputs(struct at_trace *t, const struct at_block *b) {
    for (int32_t r = b->range0 + 1; r < b->range0 + b->ranges; r++) {
        struct at_verdict *v = verdict_of(t, r);
        if (v->rule != AT_RULE_CLEARED || verdict_of(t, r - 1)->cls != AT_INPUT || !is_end_of_input(t, r)) continue;
        v->cls = AT_INPUT;
        v->rule = AT_RULE_INPUT_END;
    }
}

/* A result of products that nobody reads further. */
static int is_unread_result(const struct at_trace *t, const struct at_range *r) {
    int result = 0;
    AT_EACH_TOUCH(t, r, a) {
        const struct at_event *e = &t->event[a->event];
        int c = e->kind == AT_GEMM && at_is_result(t, a);
        result |= c;
        if (at_reads(a->mode) && at_is_work(e) && !c) return 0;
    }
    return result;
}

/* C9b: the optimizer's pointer reaches further than is known. */
static void find_more_gradients(struct at_trace *t, const struct at_block *b) {
    int gradient = 0;
    for (int32_t r = b->range0; r < b->range0 + b->ranges; r++) gradient |= verdict_of(t, r)->cls == AT_GRAD;
    if (!gradient) return;
    for (int32_t r = b->range0; r < b->range0 + b->ranges; r++) {
        struct at_verdict *v = verdict_of(t, r);
        if (v->cls != AT_ACTIVATION_GRAD || !is_unread_result(t, &t->range[r])) continue;
        v->cls = AT_GRAD;
        v->rule = AT_RULE_BESIDE_GRAD;
    }
}

/* Whatever touches the range touches the one before it with the same pointer, products among others: both are of one
 * tensor, and pointers of unknown extent show at its beginning only. */
static int goes_on_from(const struct at_trace *t, int32_t range) {
    int products = 0;
    AT_EACH_TOUCH(t, &t->range[range], a) {
        int with = 0;
        for (const struct at_access *b = a; b >= t->access + t->event[a->event].access0 && b->buffer == a->buffer; b--)
            with |= b->range == range - 1;
        if (!with) return 0;
        products |= t->event[a->event].kind == AT_GEMM;
    }
    return products;
}

/* More touches the part before it, so its evidence is the better. */
static void follow_tensor(struct at_trace *t, const struct at_block *b) {
    for (int32_t r = b->range0 + 1; r < b->range0 + b->ranges; r++) {
        struct at_verdict *v = verdict_of(t, r), *before = verdict_of(t, r - 1);
        if (v->cls == before->cls || t->range[r - 1].touches == t->range[r].touches || !goes_on_from(t, r)) continue;
        v->cls = before->cls;
        v->rule = AT_RULE_SAME_TENSOR;
    }
}

/* Only ever cleared, and the range before it is state that the optimizer reaches through a pointer of unknown extent:
 * the pointer reaches further (a launch over all tensors of a kind). */
static void follow_state(struct at_trace *t, const struct at_block *b) {
    for (int32_t r = b->range0 + 1; r < b->range0 + b->ranges; r++) {
        struct at_verdict *v = verdict_of(t, r), *before = verdict_of(t, r - 1);
        int state = before->rule == AT_RULE_STATE || before->rule == AT_RULE_REACHED_STATE;
        if (v->rule != AT_RULE_CLEARED || !state) continue;
        v->cls = before->cls;
        v->rule = AT_RULE_REACHED_STATE;
    }
}

static void follow_majority(struct at_trace *t, const struct at_block *b) {
    int64_t bytes[AT_CLASSES] = {0}, all = 0;
    int top = 0;
    for (int32_t r = b->range0; r < b->range0 + b->ranges; r++) {
        const struct at_verdict *v = verdict_of(t, r);
        if (!t->range[r].touches || is_weak(v->rule)) continue;
        bytes[v->cls] += t->range[r].hi - t->range[r].lo;
        all += t->range[r].hi - t->range[r].lo;
    }
    for (int k = 1; k < AT_CLASSES; k++)
        if (bytes[k] > bytes[top]) top = k;
    if (!all || (double)bytes[top] < 0.8 * (double)all || (double)bytes[top] < 0.3 * (double)b->bytes) return;
    for (int32_t r = b->range0; r < b->range0 + b->ranges; r++) {
        struct at_verdict *v = verdict_of(t, r);
        if (!is_weak(v->rule)) continue;
        v->cls = (int8_t)top;
        v->rule = AT_RULE_AS_BLOCK;
    }
}

void at_neighbours(struct at_trace *t) {
    for (int32_t i = 0; i < t->blocks; i++) {
        const struct at_block *b = &t->block[i];
        if (b->ranges < 2 || b->pool || b->home != AT_DEVICE) continue;
        if (!t->blind) {
            lengthen_inputs(t, b);
            fill_untouched(t, b);
            continue;
        }
        find_more_gradients(t, b);
        follow_tensor(t, b);
        follow_state(t, b);
        follow_majority(t, b);
    }
}
