/* An einsum step by step: the cost of a pair, of an order, and the greedy order. The search is in
 * plan_einsum_search.c. */
#include "plan/plan_einsum_steps.h"
#include "plan/plan_number.h"

#include <string.h>

int plan_part_elements(const struct plan_pattern *p, struct plan_part part, __int128 *out) {
    return plan_pattern_product(p, part.axes & ~part.narrow, out);
}

/* ---- the tensors that are there at a moment ---- */

static void count_axes(struct plan_tensors *t, plan_set axes, int by) {
    for (; axes; axes &= axes - 1) t->holders[plan_set_first(axes)] += by;
}

void plan_tensors_begin(struct plan_tensors *t, const struct plan_pattern *p, struct plan_order *out) {
    memset(t, 0, sizeof *t);
    memset(out, 0, sizeof *out);
    t->p = p;
    t->out = out;
    t->n = p->operands;
    for (int o = 0; o < p->operands; o++) {
        t->part[o] = (struct plan_part){p->operand[o].axes, p->operand[o].narrow};
        count_axes(t, t->part[o].axes, 1);
    }
}

/* Axes of a set that at most `most` tensors have and the result lacks. */
static plan_set only_here(const struct plan_tensors *t, plan_set axes, int most) {
    plan_set found = 0;
    for (plan_set rest = axes & ~t->p->result.axes; rest; rest &= rest - 1) {
        int axis = plan_set_first(rest);
        if (t->holders[axis] <= most) found |= plan_set_of(axis);
    }
    return found;
}

/* Books a step whose result becomes tensor t->n. */
static int book(struct plan_tensors *t, struct plan_step s) {
    struct plan_order *o = t->out;
    t->part[t->n++] = s.result;
    if (plan_part_elements(t->p, s.result, &s.elements)) return -1;
    o->step[o->n++] = s;
    return plan_add(o->flops, s.flops, &o->flops);
}

int plan_tensors_sum(struct plan_tensors *t, int *tensor) {
    struct plan_step s = {.left = *tensor, .right = -1, .from_left = t->part[*tensor]};
    plan_set private = only_here(t, s.from_left.axes, 1);
    if (!private) return 0;
    s.result = (struct plan_part){s.from_left.axes & ~private, s.from_left.narrow & ~private};
    if (plan_part_elements(t->p, s.from_left, &s.flops)) return -1;
    count_axes(t, private, -1);
    *tensor = t->n;
    return book(t, s);
}

int plan_pair_cost(const struct plan_tensors *t, struct plan_part a, struct plan_part b, struct plan_part *result,
                   __int128 *flops) {
    plan_set axes = a.axes | b.axes, wide = (a.axes & ~a.narrow) | (b.axes & ~b.narrow);
    plan_set contracted = only_here(t, a.axes & b.axes, 2);
    *result = (struct plan_part){axes & ~contracted, axes & ~contracted & ~wide};
    if (plan_pattern_product(t->p, wide, flops)) return -1;
    return contracted ? plan_multiply(*flops, 2, flops) : 0;
}

int plan_tensors_contract(struct plan_tensors *t, int left, int right) {
    struct plan_step s;
    memset(&s, 0, sizeof s);
    if (plan_tensors_sum(t, &left) || plan_tensors_sum(t, &right)) return -1;
    s.left = left;
    s.right = right;
    s.from_left = t->part[left];
    s.from_right = t->part[right];
    if (plan_pair_cost(t, s.from_left, s.from_right, &s.result, &s.flops)) return -1;
    count_axes(t, s.from_left.axes, -1);
    count_axes(t, s.from_right.axes, -1);
    count_axes(t, s.result.axes, 1);
    return book(t, s);
}

/* All is done: what lies between operands and result. */
int plan_tensors_end(struct plan_tensors *t) {
    struct plan_order *o = t->out;
    for (int i = 0; i + 1 < o->n; i++) {
        if (o->step[i].elements > o->largest) o->largest = o->step[i].elements;
        if (plan_add(o->intermediates, o->step[i].elements, &o->intermediates)) return -1;
    }
    return 0;
}

/* ---- orders ---- */

int plan_einsum_given(const struct plan_pattern *p, struct plan_order *out) {
    struct plan_tensors t;
    plan_tensors_begin(&t, p, out);
    int all = 0;
    if (p->operands == 1) {
        if (plan_tensors_sum(&t, &all)) return -1;
    }
    for (int o = 1; o < p->operands; o++) {
        if (plan_tensors_contract(&t, all, o)) return -1;
        all = t.n - 1;
    }
    return plan_tensors_end(&t);
}

/* Costs of the pairs of what is there; a pair's cost does not change while others are contracted, since an axis that
 * both have stays with them. Cost 1 above the largest: beyond 128 bit. */
struct pairs {
    int n, tensor[PLAN_OPERANDS];
    unsigned __int128 cost[PLAN_OPERANDS][PLAN_OPERANDS]; /* [i][j] with j < i */
};

static void price_row(const struct plan_tensors *t, struct pairs *w, int i) {
    for (int j = 0; j < w->n; j++) {
        struct plan_part result;
        __int128 flops;
        int over = plan_pair_cost(t, t->part[w->tensor[i]], t->part[w->tensor[j]], &result, &flops);
        unsigned __int128 cost = over ? (unsigned __int128)1 << 127 : (unsigned __int128)flops;
        if (j < i) w->cost[i][j] = cost;
        if (j > i) w->cost[j][i] = cost;
    }
}

/* The last row takes the place of row i. */
static void drop_row(struct pairs *w, int i) {
    int last = --w->n;
    w->tensor[i] = w->tensor[last];
    for (int j = 0; j < last; j++) {
        if (j < i) w->cost[i][j] = w->cost[last][j];
        if (j > i) w->cost[j][i] = w->cost[last][j];
    }
}

int plan_einsum_greedy(const struct plan_pattern *p, struct plan_order *out, struct plan_tensors *t) {
    static _Thread_local struct pairs w;
    plan_tensors_begin(t, p, out);
    w.n = p->operands;
    for (int i = 0; i < w.n; i++) {
        w.tensor[i] = i;
        if (plan_tensors_sum(t, &w.tensor[i])) return -1;
    }
    for (int i = 0; i < w.n; i++) price_row(t, &w, i);
    while (w.n > 1) {
        int a = 1, b = 0;
        for (int i = 1; i < w.n; i++)
            for (int j = 0; j < i; j++)
                if (w.cost[i][j] < w.cost[a][b]) a = i, b = j;
        if (plan_tensors_contract(t, w.tensor[b], w.tensor[a])) return -1;
        w.tensor[b] = t->n - 1;
        drop_row(&w, a);
        price_row(t, &w, b);
    }
    return plan_tensors_end(t);
}
