/* N: how many parameters there are, what products and lookups do with them; and the shape of the model. */
#include "analyzer/attr_products.h"

#define MOST_PARAMETERS ((int64_t)1 << 50) /* more is a damaged trace's */

static int has_class_param(const struct at_trace *t, int32_t range) {
    const struct at_block *b = &t->block[t->range[range].block];
    if (b->home != AT_DEVICE) return 0;
    for (int32_t v = t->verdict0[range]; v < t->verdict0[range + 1]; v++)
        if (t->verdict[v].cls == AT_PARAM) return 1;
    return 0;
}

/* ---- lookups: forward picks rows of a table by numbers that the host wrote, and writes more than it was given ---- */

static int64_t range_bytes(const struct at_trace *t, int32_t range) {
    return t->range[range].hi - t->range[range].lo;
}

static void note_lookups(struct products *p, int32_t e) {
    const struct at_trace *t = p->t;
    int64_t numbers = 0, written = 0;
    if (t->event[e].m || t->event[e].n) return; /* a library's call: ger adds a bias by ones from the host */
    AT_EACH_ACCESS(t, e, a) {
        const struct at_value *v = &t->value[a->value];
        if (a->mode == AT_R && v->only_host_writes && !p->use[a->range].param) numbers += range_bytes(t, a->range);
        if (at_writes(a->mode)) written += range_bytes(t, a->range);
    }
    if (!numbers || 2 * numbers > written) return;
    AT_EACH_ACCESS(t, e, a)
    if (at_reads(a->mode) && p->use[a->range].param) p->use[a->range].lookup = 1;
}

/* ---- weights that only kernels read ---- */

/* The value is the result of a product of two matrices. */
static int is_product_of_matrices(const struct at_trace *t, int32_t value) {
    AT_EACH_TOUCH(t, &t->value[value], a) {
        const struct at_event *e = &t->event[a->event];
        if (e->kind != AT_GEMM || !at_is_result(t, a)) continue;
        return e->cost >= 0 && t->cost[e->cost].matmul && e->m > 1 && e->n > 1;
    }
    return 0;
}

/* A product made the gradient by which an update changes it: it is a factor of products, though of those of forward,
 * which the program's own kernels compute, nothing is seen. Looks at its first update. */
static int has_product_gradient(const struct at_trace *t, int32_t range) {
    AT_EACH_TOUCH(t, &t->range[range], a) {
        if (!t->in_cluster[a->event] || !at_writes(a->mode)) continue;
        AT_EACH_ACCESS(t, a->event, b)
        if (b->range != range && at_reads(b->mode) && t->value[b->value].grad &&
            at_same_count(range_bytes(t, b->range), range_bytes(t, range)) && is_product_of_matrices(t, b->value))
            return 1;
        return 0;
    }
    return 0;
}

static void find_kernel_weights(struct products *p) {
    for (int32_t r = 0; r < p->t->ranges; r++) {
        struct weight_use *u = &p->use[r];
        if (u->param && !u->elements && !u->lookup) u->by_kernels |= has_product_gradient(p->t, r) != 0;
    }
}

/* ---- elements ---- */

/* Bits of an element of the weights that products read; 0: none, or they differ. *irregular: products disagree on the
 * elements of one. */
static int64_t weight_bits(const struct products *p, int *irregular) {
    int64_t bits = 0;
    int differ = 0;
    for (int32_t r = 0; r < p->t->ranges; r++) {
        const struct weight_use *u = &p->use[r];
        if (!u->param || !u->elements) continue;
        int64_t here = range_bytes(p->t, r) * 8 / u->elements;
        *irregular |= u->irregular;
        differ |= bits && bits != here;
        bits = here;
    }
    return differ || *irregular ? 0 : bits;
}

int at_is_trained(const struct at_range *r) {
    return r->weight || r->cluster_writes || r->overwritten_by_optimizer || (r->copied && r->carried);
}

static void count_elements(struct products *p) {
    const struct at_trace *t = p->t;
    struct model_shape *s = &p->shape;
    int64_t bits = weight_bits(p, &s->irregular), of_step = 0;
    for (int32_t r = 0; r < t->ranges; r++) {
        struct weight_use *u = &p->use[r];
        if (!u->param) continue;
        if (!u->elements && !bits) {
            s->unsized = 1; /* nothing tells how large its elements are */
            continue;
        }
        int64_t elements = u->elements ? u->elements : range_bytes(t, r) * 8 / bits;
        if (u->by_kernels) u->elements = elements;
        s->parameters += elements;
        if (s->parameters > MOST_PARAMETERS) break;
        if (!u->elements) {
            *(u->lookup ? &s->lookup : &s->other) += elements;
            continue;
        }
        POOL_ROOM(t->pool, p->weight, p->weights, p->weight_room);
        p->weight[p->weights++] = r;
        s->in_products += elements;
        if (u->step == s->step || u->by_kernels) of_step += elements;
        if (u->lookup) s->tied += elements;
        if (!at_is_trained(&t->range[r])) s->frozen += elements;
    }
    s->turns = of_step < s->in_products;
    if (s->parameters > MOST_PARAMETERS) s->irregular = 1;
    if (s->irregular || !s->in_products) s->in_products = AT_UNKNOWN_FACT;
    if (s->irregular || s->unsized || s->parameters <= 0) s->parameters = AT_UNKNOWN_FACT;
}

/* Of the lookup tables, the one with a row for each place of a sequence. */
static void find_positions(struct products *p) {
    const struct at_trace *t = p->t;
    struct model_shape *s = &p->shape;
    int irregular = 0;
    int64_t bits = weight_bits(p, &irregular);
    if (s->attention != ATTENTION_FOUND || s->heads <= 0 || !bits) return;
    int64_t rows = cost_amount((__int128)s->context * s->heads * s->head_size);
    for (int32_t r = 0; r < t->ranges; r++) {
        const struct weight_use *u = &p->use[r];
        if (!u->param || u->elements || !u->lookup || range_bytes(t, r) * 8 / bits != rows) continue;
        s->position += rows;
        s->lookup -= rows;
    }
}

/* The last complete step whose tokens are known, else the last complete one. */
static int32_t find_step(const struct products *p) {
    int32_t found = -1;
    for (int32_t i = p->t->steps - 1; i >= 0; i--) {
        if (!p->step[i].complete) continue;
        if (p->step[i].tokens != ACCT_NULL_I64) return i;
        if (found < 0) found = i;
    }
    return found;
}

static int32_t first_product(const struct products *p, int32_t step, int32_t from, int32_t to) {
    const struct at_trace *t = p->t;
    for (int32_t e = from; e < to; e++)
        if (t->event[e].step == step && at_product_part(p, e) == PART_FORWARD) return e;
    return -1;
}

void at_find_shape(struct products *p) {
    struct at_trace *t = p->t;
    int32_t from = 0, to = 0, first = 0, last = 0;
    p->shape = (struct model_shape){.step = find_step(p), .first_product = -1, .attention = ATTENTION_UNKNOWN};
    for (int32_t r = 0; r < t->ranges; r++) {
        p->use[r].step = -1;
        p->use[r].param = (uint8_t)has_class_param(t, r);
    }
    if (p->shape.step < 0) return;
    for (int32_t i = 0; i < t->steps; i++) {
        from = to;
        at_step_extent(t, i, &from, &to);
        if (i == p->shape.step) first = from, last = to;
        if (p->step[i].complete) at_products_of_step(p, i, from, to);
    }
    at_products_of_step(p, p->shape.step, first, last); /* once more: use.step tells what this step reads */
    for (int32_t e = first; e < last; e++)
        if (t->event[e].step == p->shape.step && t->event[e].kind == AT_KERNEL && t->event[e].phase == AT_FORWARD)
            note_lookups(p, e);
    p->shape.first_product = first_product(p, p->shape.step, first, last);
    find_kernel_weights(p);
    count_elements(p);
    at_find_attention(p, first, last);
    find_positions(p);
}
