/* The shape of attention, from the products of a forward pass that have no weight: per layer q·kᵀ (scores) and
 * scores·v, batched over sequences and heads or one after another. */
#include "analyzer/attr_products.h"

#define FLOPS_PER_BYTE_OF_A_PRODUCT 8 /* more than any elementwise kernel or reduction does, a tanh included */

struct product_shape {
    int64_t m, n, k, sum; /* sum: of batches */
};

/* Products between two products with weights: one layer's attention. */
struct attention_group {
    struct product_shape shape[2]; /* scores, values; of square ones the same */
    int shapes;
    int64_t products;
};

static int same_shape(const struct product_shape *s, const struct at_event *e) {
    return s->m == e->m && s->n == e->n && s->k == e->k;
}

/* Sizes of damaged records would not fit when they are multiplied. */
static int is_sane(int64_t size) {
    return size > 0 && size < (int64_t)1 << 40;
}

static int add_product(struct attention_group *g, const struct at_event *e) {
    int i = 0;
    while (i < g->shapes && !same_shape(&g->shape[i], e)) i++;
    if (i == 2 || !is_sane(e->m) || !is_sane(e->n) || !is_sane(e->k) || !is_sane(e->batch)) return -1;
    if (i == g->shapes) g->shape[g->shapes++] = (struct product_shape){e->m, e->n, e->k, 0};
    g->shape[i].sum += e->batch;
    g->products++;
    return is_sane(g->shape[i].sum) ? 0 : -1;
}

/* Scores are queries × keys, contracted over the head; values contract the keys. 0, or -1: something else. */
static int read_group(const struct attention_group *g, struct model_shape *out, int64_t *cores) {
    const struct product_shape *s = &g->shape[0], *v = &g->shape[g->shapes - 1];
    if (!g->shapes || (g->shapes == 1 && (s->sum % 2 || s->m != s->n || s->m != s->k)) || s->sum != v->sum) return -1;
    int64_t keys = v->k;
    if (keys != s->m && keys != s->n) return -1;
    int64_t queries = keys == s->m ? s->n : s->m;
    if (queries != v->m && queries != v->n) return -1;
    out->context = keys;
    out->queries = queries;
    out->head_size = s->k;
    out->value_size = queries == v->m ? v->n : v->m;
    *cores = g->shapes == 1 ? s->sum / 2 : s->sum;
    return 0;
}

/* One more layer; all must be alike. */
static int take_group(const struct attention_group *g, struct model_shape *shape, int64_t *cores) {
    struct model_shape one = {0};
    int64_t n;
    if (read_group(g, &one, &n)) return -1;
    if (shape->layers && (one.context != shape->context || one.queries != shape->queries ||
                          one.head_size != shape->head_size || one.value_size != shape->value_size || n != *cores))
        return -1;
    shape->context = one.context;
    shape->queries = one.queries;
    shape->head_size = one.head_size;
    shape->value_size = one.value_size;
    *cores = n;
    shape->layers++;
    return 0;
}

/* Attention by kernels of the program's own would be seen by much computation for the bytes that it moves. Where rows
 * of a table are looked up, the model may be one over sequences: then small kernels do not tell enough. */
static int has_no_attention(const struct products *p, int32_t from, int32_t to) {
    const struct at_trace *t = p->t;
    if (p->shape.lookup || p->shape.position || p->shape.tied) return 0;
    for (int32_t e = from; e < to; e++) {
        const struct at_event *ev = &t->event[e];
        if (ev->step != p->shape.step || ev->kind != AT_KERNEL || (ev->phase != AT_FORWARD && ev->phase != AT_BACKWARD))
            continue;
        const struct at_cost *c = ev->cost >= 0 ? &t->cost[ev->cost] : NULL;
        if (!c || c->flops_most == COST_UNKNOWN || c->bytes_read == COST_UNKNOWN || c->bytes_written == COST_UNKNOWN)
            return 0;
        __int128 bytes = (__int128)c->bytes_read + c->bytes_written;
        if (c->matmul || c->flops_most > FLOPS_PER_BYTE_OF_A_PRODUCT * bytes) return 0;
    }
    return 1;
}

/* Heads and sequences, from the cores of a layer and the tokens of a micro-batch. */
static void split_cores(struct model_shape *shape, int64_t cores, int64_t tokens) {
    shape->sequences = shape->heads = AT_UNKNOWN_FACT;
    if (tokens == ACCT_NULL_I64 || tokens % shape->queries) return;
    int64_t sequences = tokens / shape->queries;
    if (!sequences || cores % sequences) return;
    shape->sequences = sequences;
    shape->heads = cores / sequences;
}

void at_find_attention(struct products *p, int32_t from, int32_t to) {
    const struct at_trace *t = p->t;
    struct model_shape *shape = &p->shape;
    const struct step_row *step = &p->step[shape->step];
    struct attention_group group = {0};
    int64_t cores = 0;
    int odd = 0;
    shape->layers = 0;
    for (int32_t e = from; e < to && !odd; e++) {
        const struct at_event *ev = &t->event[e];
        if (ev->step != shape->step || ev->micro_batch) continue;
        int part = at_product_part(p, e);
        if (part == PART_ATTENTION_FORWARD) odd |= add_product(&group, ev);
        if (part != PART_FORWARD || !group.products) continue;
        odd |= take_group(&group, shape, &cores);
        group = (struct attention_group){0};
    }
    if (group.products) odd |= take_group(&group, shape, &cores);
    if (!odd && shape->layers) {
        int64_t k = step->micro_batches;
        shape->attention = ATTENTION_FOUND;
        split_cores(shape, cores, step->tokens == ACCT_NULL_I64 || step->tokens % k ? ACCT_NULL_I64 : step->tokens / k);
    } else {
        shape->attention = !odd && has_no_attention(p, from, to) ? ATTENTION_NONE : ATTENTION_UNKNOWN;
        shape->layers = 0;
    }
}
