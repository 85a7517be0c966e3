/* The best order of an einsum: for each subset of the operands the cheapest way to make it from two smaller ones.
 * 3^n pairs of subsets; those that cannot be cheaper are not priced. */
#include "plan/plan_einsum_steps.h"
#include "plan/plan_number.h"

#include <stdlib.h>
#include <string.h>

struct subset {
    __int128 flops;        /* -1: no way within 128 bit */
    struct plan_part part; /* what is left of it when it is one tensor */
    uint32_t half;         /* made of this subset and the rest */
};

struct search {
    const struct plan_pattern *p;
    uint32_t all;
    struct subset *of; /* by bits of operands */
};

/* Axes of single operands without those that are summed first, and what each subset must keep: what the result or the
 * operands outside have. */
static void lay_out(struct search *s, const struct plan_tensors *t, const int *tensor) {
    int n = s->p->operands;
    for (int o = 0; o < n; o++) s->of[1u << o].part = t->part[tensor[o]];
    for (uint32_t set = 1; set <= s->all; set++) {
        plan_set axes = 0, outside = s->p->result.axes, wide = 0;
        if (!(set & (set - 1))) continue;
        for (int o = 0; o < n; o++) {
            const struct plan_part *one = &s->of[1u << o].part;
            if (!(set >> o & 1)) {
                outside |= one->axes;
                continue;
            }
            axes |= one->axes;
            wide |= one->axes & ~one->narrow;
        }
        s->of[set].part = (struct plan_part){axes & outside, axes & outside & ~wide};
    }
}

static int pair_cost(const struct search *s, uint32_t a, uint32_t b, __int128 *flops) {
    const struct plan_part *x = &s->of[a].part, *y = &s->of[b].part;
    int contracts = ((x->axes | y->axes) & ~s->of[a | b].part.axes) != 0;
    if (plan_pattern_product(s->p, (x->axes & ~x->narrow) | (y->axes & ~y->narrow), flops)) return -1;
    return contracts ? plan_multiply(*flops, 2, flops) : 0;
}

static void find_cheapest(struct search *s, uint32_t set) {
    struct subset *best = &s->of[set];
    uint32_t low = set & -set;
    best->flops = -1;
    for (uint32_t a = (set - 1) & set; a; a = (a - 1) & set) {
        __int128 sum, pair;
        if (!(a & low) || s->of[a].flops < 0 || s->of[set ^ a].flops < 0) continue; /* each pair once */
        if (plan_add(s->of[a].flops, s->of[set ^ a].flops, &sum)) continue;
        if (best->flops >= 0 && sum >= best->flops) continue;
        if (pair_cost(s, a, set ^ a, &pair) || plan_add(sum, pair, &sum)) continue;
        if (best->flops >= 0 && sum >= best->flops) continue;
        best->flops = sum;
        best->half = a;
    }
}

/* Contracts what the search found; returns the tensor's number, -1 beyond 128 bit. At most PLAN_SEARCH_ALL deep. */
static int contract(const struct search *s, struct plan_tensors *t, uint32_t set) {
    if (!(set & (set - 1))) return __builtin_ctz(set);
    int left = contract(s, t, s->of[set].half), right = contract(s, t, set ^ s->of[set].half);
    if (left < 0 || right < 0 || plan_tensors_contract(t, left, right)) return -1;
    return t->n - 1;
}

static int search_all(const struct plan_pattern *p, struct plan_tensors *t, struct plan_order *out) {
    struct search s = {p, (1u << p->operands) - 1, NULL};
    int tensor[PLAN_SEARCH_ALL], rc = -1;
    s.of = calloc((size_t)s.all + 1, sizeof *s.of);
    if (!s.of) return -1;
    plan_tensors_begin(t, p, out);
    for (int o = 0; o < p->operands; o++) {
        tensor[o] = o;
        if (plan_tensors_sum(t, &tensor[o])) goto out;
    }
    lay_out(&s, t, tensor);
    for (uint32_t set = 1; set <= s.all; set++)
        if (set & (set - 1)) find_cheapest(&s, set);
    if (s.of[s.all].flops < 0) goto out;
    plan_tensors_begin(t, p, out);
    rc = contract(&s, t, s.all) < 0 || plan_tensors_end(t) ? -1 : 0;
    out->searched_all = 1;
out:
    free(s.of);
    return rc;
}

int plan_einsum_best(const struct plan_pattern *p, const struct plan_order *given, struct plan_order *out) {
    struct plan_tensors *t = malloc(sizeof *t);
    int rc = 0, all = p->operands <= PLAN_SEARCH_ALL;
    if (!t) return -1;
    if (p->operands < 3)
        memcpy(out, given, sizeof *out);
    else
        rc = all ? search_all(p, t, out) : plan_einsum_greedy(p, out, t);
    free(t);
    if (rc) return rc;
    if (given->flops <= out->flops) memcpy(out, given, sizeof *out);
    out->searched_all = all;
    return 0;
}
