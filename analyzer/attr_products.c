/* What each matrix product of a step is for, and how many rows each weight is multiplied with. */
#include "analyzer/attr_products.h"

#define MOST_OF_A_CAST 64 /* accesses; a launch over whole blocks is none */
#define SCALES 16         /* times smaller than what they scale, or more */

static int64_t buffer_bytes(const struct at_trace *t, const struct at_access *a) {
    return a ? t->buffer[a->buffer].bytes : AT_UNKNOWN_BYTES;
}

/* The parameter that a kernel casts into the range: all that it reads but for scales. -1: none. Rule U6 takes only a
 * buffer of its own for a copy; here one through which the casts of many weights go, made anew for each product, does.
 */
static int32_t cast_of(const struct products *p, int32_t kernel, int32_t range) {
    const struct at_trace *t = p->t;
    const struct at_access *from = NULL, *to = NULL;
    int64_t largest = 0;
    if (t->event[kernel].accesses > MOST_OF_A_CAST) return -1;
    AT_EACH_ACCESS(t, kernel, a) {
        if (a->range == range && a->mode != AT_W) return -1;
        if (a->range == range) to = a;
        if (!at_reads(a->mode)) continue;
        if (p->use[a->range].param && from && from->range != a->range) return -1;
        if (p->use[a->range].param)
            from = a;
        else if (buffer_bytes(t, a) > largest)
            largest = buffer_bytes(t, a);
    }
    int64_t read = buffer_bytes(t, from), written = buffer_bytes(t, to);
    if (read <= 0 || written <= 0) return -1;
    return at_same_count(read, written) && largest * SCALES <= read ? from->range : -1;
}

int32_t at_weight_of(const struct products *p, const struct at_access *a) {
    const struct at_trace *t = p->t;
    if (!at_is_factor(at_slot_of(t, a))) return -1;
    if (t->value[a->value].copy_of >= 0) return t->value[a->value].copy_of;
    if (t->range[a->range].any_weight) return a->range;
    return a->writer >= 0 && t->event[a->writer].kind == AT_KERNEL ? cast_of(p, a->writer, a->range) : -1;
}

static int reads_weight(const struct products *p, int32_t e) {
    AT_EACH_ACCESS(p->t, e, a) if (at_weight_of(p, a) >= 0) return 1;
    return 0;
}

/* What a range is for at an event; NULL: nothing is known of that time. */
static const struct at_verdict *verdict_at(const struct at_trace *t, int32_t range, int32_t e) {
    int32_t lo = t->verdict0[range], hi = t->verdict0[range + 1];
    while (lo < hi) {
        int32_t mid = lo + (hi - lo) / 2;
        if (t->verdict[mid].from <= e)
            lo = mid + 1;
        else
            hi = mid;
    }
    const struct at_verdict *v = lo > t->verdict0[range] ? &t->verdict[lo - 1] : NULL;
    return v && e < v->until ? v : NULL;
}

/* The result is a gradient of a weight, or is added to one. */
static int makes_gradient(const struct at_trace *t, int32_t e) {
    AT_EACH_ACCESS(t, e, a) {
        if (!at_is_result(t, a)) continue;
        if (t->value[a->value].grad || at_grad_like(t, a->value)) return 1;
        const struct at_verdict *v = verdict_at(t, a->range, e);
        if (v && (v->cls == AT_GRAD || v->rule == AT_RULE_GRAD_RELEASED)) return 1;
    }
    return 0;
}

static int64_t product_flops(const struct at_trace *t, int32_t e) {
    const struct at_event *ev = &t->event[e];
    return ev->cost < 0 ? 0 : t->cost[ev->cost].matmul_flops;
}

int at_product_part(const struct products *p, int32_t e) {
    const struct at_trace *t = p->t;
    const struct at_event *ev = &t->event[e];
    if (ev->step < 0 || !at_is_work(ev) || ev->cost < 0 || ev->phase == AT_EVALUATION) return -1;
    if (!t->cost[ev->cost].matmul || !product_flops(t, e)) return -1;
    if (ev->kind == AT_KERNEL) return PART_KERNELS;
    int weight = reads_weight(p, e);
    switch (ev->phase) {
    case AT_FORWARD:
        return weight ? PART_FORWARD : PART_ATTENTION_FORWARD;
    case AT_BACKWARD:
        return makes_gradient(t, e) ? PART_WEIGHT_GRADIENT : weight ? PART_INPUT_GRADIENT : PART_ATTENTION_BACKWARD;
    case AT_RECOMPUTE:
        return weight ? PART_RECOMPUTE : PART_RECOMPUTE_ATTENTION;
    case AT_OPTIMIZER:
        return PART_OPTIMIZER;
    default:
        return PART_OTHER;
    }
}

/* ---- rows ---- */

static struct weight_use *use_of(struct products *p, int32_t range, int32_t step) {
    struct weight_use *u = &p->use[range];
    if (u->step != step) {
        POOL_ROOM(p->t->pool, p->touched, p->touches, p->touch_room);
        p->touched[p->touches++] = range;
        u->step = step;
        u->rows_forward = u->rows_dx = 0;
        u->rows_unknown = 0;
    }
    return u;
}

static int64_t elements_of(const struct at_trace *t, const struct at_access *a) {
    const struct at_event *e = &t->event[a->event];
    const struct at_range *r = &t->range[a->range];
    int bits = at_slot_of(t, a) == AT_SLOT_A ? e->bits_a : e->bits_b;
    return bits > 0 ? (r->hi - r->lo) * 8 / bits : 0;
}

/* The slot whose memory is the weight that the product is known to read. */
static int weight_slot(const struct products *p, int32_t e) {
    const struct at_trace *t = p->t;
    int found = 0;
    AT_EACH_ACCESS(t, e, a) {
        int32_t weight = at_weight_of(p, a);
        if (weight < 0) continue;
        if (!found || weight == t->weight_read[e]) found = at_slot_of(t, a);
    }
    return found;
}

/* Elements of a weight, as one product sees it: those of all pieces of a copy together. */
static void note_elements(struct products *p, const struct at_access *a, int32_t weight, int64_t step_elements) {
    struct weight_use *u = &p->use[weight];
    if (!step_elements) u->irregular = 1;
    if (!u->elements) u->elements = step_elements;
    if (u->elements != step_elements && a->range == weight) u->irregular = 1;
}

/* A product with a weight: its rows are FLOPs / (2 · elements of the factor). */
static void note_rows(struct products *p, int32_t e, int dx) {
    const struct at_trace *t = p->t;
    int slot = weight_slot(p, e);
    __int128 all = 0, flops = product_flops(t, e);
    AT_EACH_ACCESS(t, e, a) if (at_slot_of(t, a) == slot) all += elements_of(t, a);
    int64_t rows = all && flops % (2 * all) == 0 ? cost_amount(flops / (2 * all)) : COST_UNKNOWN;
    int32_t last = -1;
    AT_EACH_ACCESS(t, e, a) {
        int32_t weight = at_slot_of(t, a) == slot ? at_weight_of(p, a) : -1;
        if (weight < 0 || weight == last) continue;
        last = weight;
        int64_t elements = 0;
        AT_EACH_ACCESS(t, e, b)
        if (at_slot_of(t, b) == slot && at_weight_of(p, b) == weight) elements += elements_of(t, b);
        note_elements(p, a, weight, elements);
        struct weight_use *u = use_of(p, weight, t->event[e].step);
        int64_t *sum = dx ? &u->rows_dx : &u->rows_forward;
        if (rows == COST_UNKNOWN || __builtin_add_overflow(*sum, rows, sum)) u->rows_unknown = 1;
    }
}

void at_step_extent(const struct at_trace *t, int32_t step, int32_t *from, int32_t *to) {
    int32_t end = *from;
    while (*from < t->events && t->event[*from].step < step) ++*from;
    end = *from;
    for (int32_t e = *from; e < t->events && t->event[e].step <= step; e++)
        if (t->event[e].step == step) end = e + 1;
    *to = end;
}

void at_products_of_step(struct products *p, int32_t step, int32_t from, int32_t to) {
    const struct at_trace *t = p->t;
    for (int32_t i = 0; i < p->touches; i++) p->use[p->touched[i]].step = -1; /* a step may be asked for again */
    p->touches = p->uncounted = 0;
    for (int i = 0; i < PRODUCT_PARTS; i++) p->flops[i] = p->count[i] = 0;
    for (int32_t e = from; e < to; e++) {
        int here = t->event[e].step == step, part = here ? at_product_part(p, e) : -1;
        if (here && t->event[e].kind == AT_KERNEL && t->event[e].phase == AT_FORWARD && t->weight_read[e] >= 0)
            p->use[t->weight_read[e]].by_kernels = 1;
        if (part < 0) continue;
        int64_t flops = product_flops(t, e);
        p->count[part]++;
        if (flops == COST_UNKNOWN) {
            p->uncounted++;
            continue;
        }
        p->flops[part] += flops;
        if (part == PART_FORWARD || part == PART_INPUT_GRADIENT) note_rows(p, e, part == PART_INPUT_GRADIENT);
    }
}
