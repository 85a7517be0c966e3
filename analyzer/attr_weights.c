/* W1–W3: weights, trained and frozen, and the axis along which forward contracts them. */
#include "analyzer/attr_model.h"

#include <stdlib.h>

/* Clusters that end before the event. */
static int32_t clusters_before(const struct at_trace *t, int32_t event) {
    int32_t lo = 0, hi = t->clusters;
    while (lo < hi) {
        int32_t mid = lo + (hi - lo) / 2;
        if (t->cluster[mid].last <= event)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Operands of a product whose result is a gradient: no frozen weights. */
static uint8_t *gradient_factors(const struct at_trace *t) {
    uint8_t *factor = POOL_NEW(t->pool, uint8_t, t->ranges);
    for (int32_t i = 0; i < t->gemms; i++) {
        int gradient = 0;
        AT_EACH_ACCESS(t, t->gemm[i], a) gradient |= at_is_result(t, a) && t->value[a->value].grad;
        if (!gradient) continue;
        AT_EACH_ACCESS(t, t->gemm[i], a) if (at_is_factor(at_slot_of(t, a))) factor[a->range] = 1;
    }
    return factor;
}

/* W2: products read it in at least two steps, and nothing writes it after the first such read. */
static int is_frozen(const struct at_trace *t, const struct at_range *r) {
    int32_t reads = 0, first = -1, step = -1, steps = 0;
    if (!r->gemm_reads || r->weight || r->gemm_writes || !r->alive || (r->carried && !t->dark)) return 0;
    AT_EACH_TOUCH(t, r, a) {
        int kind = t->event[a->event].kind;
        if (at_warms_up(t, a->event)) continue;
        if (kind == AT_GEMM) {
            int32_t s = clusters_before(t, a->event);
            if (!reads++) first = a->event;
            steps += s != step;
            step = s;
        } else if (first >= 0 && (a->mode == AT_W || a->mode == AT_RW) && kind != AT_D2D && kind != AT_D2H) {
            return 0;
        }
    }
    return reads >= 2 && (!t->clusters || steps >= 2);
}

static void find_frozen(struct at_trace *t) {
    uint8_t *factor = gradient_factors(t);
    for (int32_t i = 0; i < t->ranges; i++) {
        struct at_range *r = &t->range[i];
        r->frozen = (!factor[i] && is_frozen(t, r)) || (r->copied && !r->weight && !r->carried);
        r->any_weight = r->weight || r->frozen || r->copied;
    }
    pool_give(t->pool, factor);
}

/* ---- W3
 * ---------------------------------------------------------------------------------------------------------------------
 */
struct use { /* a product reads the weight or a copy of it */
    int32_t range, event;
    int8_t axis;
};

static int use_order(const void *a, const void *b) {
    const struct use *x = a, *y = b;
    if (x->range != y->range) return x->range < y->range ? -1 : 1;
    if (x->event != y->event) return x->event < y->event ? -1 : 1;
    return x->axis - y->axis;
}

static struct use *list_uses(struct at_trace *t, int32_t *count) {
    struct use *use = NULL;
    int32_t n = 0, room = 0;
    for (int32_t i = 0; i < t->gemms; i++) {
        const struct at_event *e = &t->event[t->gemm[i]];
        AT_EACH_ACCESS(t, t->gemm[i], a) {
            int slot = at_slot_of(t, a);
            if (!at_is_factor(slot)) continue;
            int32_t of[2] = {t->range[a->range].any_weight ? a->range : -1, t->value[a->value].copy_of};
            for (int j = 0; j < 2; j++) {
                if (of[j] < 0) continue;
                POOL_ROOM(t->pool, use, n, room);
                use[n++] = (struct use){of[j], t->gemm[i], slot == AT_SLOT_A ? e->axis_a : e->axis_b};
            }
        }
    }
    if (n) qsort(use, (size_t)n, sizeof *use, use_order);
    *count = n;
    return use;
}

/* ---- products that the program's own kernels compute ---- */
/* Made by work that reads something beside what the host brought: no batch, no list of numbers, no fill. */
static int is_computed(const struct at_trace *t, const struct at_access *operand) {
    if (operand->writer < 0 || !at_is_work(&t->event[operand->writer]) || t->in_cluster[operand->writer]) return 0;
    AT_EACH_ACCESS(t, operand->writer, a) {
        if (!at_reads(a->mode)) continue;
        if (t->range[a->range].any_weight || (a->writer >= 0 && at_is_work(&t->event[a->writer]))) return 1;
    }
    return 0;
}

/* The kernel reads the weight and a computed value, and makes a new one: a product, by what can be seen of it. (An
 * embedding reads its weight and tokens; an update, a cast, a norm of weights read no computed value but gradients.) */
static int is_kernel_product(const struct at_trace *t, int32_t e, int32_t weight) {
    int operand = 0, result = 0, reads = 0;
    if (t->event[e].kind != AT_KERNEL || t->in_cluster[e]) return 0;
    AT_EACH_ACCESS(t, e, a) {
        const struct at_value *v = &t->value[a->value];
        const struct at_range *r = &t->range[a->range];
        if (a->range == weight) reads |= a->mode == AT_R;
        if (r->any_weight || at_is_carried(t, a->range, e) || v->grad || v->derived) continue;
        if (a->mode == AT_R) operand |= is_computed(t, a);
        if (a->mode == AT_W) result = 1;
    }
    return reads && operand && result;
}

/* Between two events a kernel computes a product with the weight. */
static int has_kernel_product(const struct at_trace *t, int32_t range, int32_t from, int32_t to) {
    const struct at_range *r = &t->range[range];
    int32_t end = r->touch0 + r->touches;
    for (int32_t i = at_touch_from(t, r->touch0, r->touches, from); i < end; i++) {
        int32_t e = t->access[t->touch[i]].event;
        if (e >= to) break;
        if (is_kernel_product(t, e, range)) return 1;
    }
    return 0;
}

struct ballot {
    int32_t range;
    const struct use *use;
    int32_t uses;
    int32_t votes[2], by_kernels;
    int8_t first; /* axis of the first vote: decides a tie */
};

/* The first use at or after the event votes; where a kernel multiplied by the weight before it, that was forward, and
 * the use is backward's: along the other axis. */
static void vote(const struct at_trace *t, struct ballot *b, int32_t event) {
    int32_t lo = 0, hi = b->uses;
    while (lo < hi) {
        int32_t mid = lo + (hi - lo) / 2;
        if (b->use[mid].event < event)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo == b->uses || b->use[lo].axis < 0) return;
    int8_t axis = b->use[lo].axis;
    if (has_kernel_product(t, b->range, event, b->use[lo].event)) {
        axis = !axis;
        b->by_kernels++;
    }
    if (b->first < 0) b->first = axis;
    b->votes[axis]++;
}

static void find_axis(struct at_trace *t, int32_t range, const struct use *use, int32_t uses) {
    struct ballot b = {.range = range, .use = use, .uses = uses, .first = -1};
    struct at_range *r = &t->range[range];
    vote(t, &b, r->weight ? 0 : t->first_gemm);
    if (r->weight) {
        AT_EACH_TOUCH(t, r, a)
        if (t->event[a->event].kind == AT_KERNEL && at_writes(a->mode) && t->in_cluster[a->event])
            vote(t, &b, a->event);
    } else {
        for (int32_t k = 0; k < t->clusters; k++) vote(t, &b, t->cluster[k].last);
    }
    r->forward_axis = b.votes[0] == b.votes[1] ? b.first > 0 : b.votes[1] > b.votes[0];
    r->kernel_forward = r->weight && 2 * b.by_kernels > b.votes[0] + b.votes[1];
}

static void find_axes(struct at_trace *t) {
    int32_t n;
    struct use *use = list_uses(t, &n);
    for (int32_t i = 0; i < n;) {
        int32_t j = i;
        while (j < n && use[j].range == use[i].range) j++;
        find_axis(t, use[i].range, use + i, j - i);
        i = j;
    }
    pool_give(t->pool, use);
}

/* ---- which weight a product reads: a copied one first, then a trained one, then a frozen one
 * ----------------------------------- */
static void read_of_gemm(struct at_trace *t, int32_t e) {
    const struct at_access *best = NULL;
    int32_t weight = -1;
    int rank = 0;
    AT_EACH_ACCESS(t, e, a) {
        if (!at_is_factor(at_slot_of(t, a))) continue;
        int32_t copied = t->value[a->value].copy_of;
        const struct at_range *r = &t->range[a->range];
        int here = copied >= 0 ? 3 : r->weight ? 2 : r->frozen ? 1 : 0;
        if (here <= rank) continue;
        rank = here;
        best = a;
        weight = copied >= 0 ? copied : a->range;
    }
    t->weight_read[e] = weight;
    if (!best) return;
    int axis = at_slot_of(t, best) == AT_SLOT_A ? t->event[e].axis_a : t->event[e].axis_b;
    t->weight_forward[e] = axis == t->range[weight].forward_axis;
}

/* Kernels that are forward products of weights. */
static void read_of_kernels(struct at_trace *t) {
    for (int32_t r = 0; r < t->ranges; r++) {
        if (!t->range[r].kernel_forward) continue;
        AT_EACH_TOUCH(t, &t->range[r], a) {
            if (!is_kernel_product(t, a->event, r)) continue;
            t->weight_read[a->event] = r;
            t->weight_forward[a->event] = 1;
            if (a->event < t->first_weight_read) t->first_weight_read = a->event;
        }
    }
}

void at_weights(struct at_trace *t) {
    t->weight_read = POOL_NEW(t->pool, int32_t, t->events);
    t->weight_forward = POOL_NEW(t->pool, uint8_t, t->events);
    for (int32_t e = 0; e < t->events; e++) t->weight_read[e] = -1;
    t->first_weight_read = t->first_gemm;
    if (!t->gemms) return;
    find_frozen(t);
    find_axes(t);
    for (int32_t i = t->gemms - 1; i >= 0 && t->gemm[i] >= t->first_gemm; i--) {
        read_of_gemm(t, t->gemm[i]);
        if (t->weight_read[t->gemm[i]] >= 0) t->first_weight_read = t->gemm[i];
    }
    read_of_kernels(t);
    for (int32_t r = 0; r < t->ranges; r++)
        t->range[r].constant = -1; /* now that the first read of a weight is known */
}
