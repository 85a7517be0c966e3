/* Shared by the files of plan_einsum: tensors that are contracted one pair after another, each step booked in an order.
 * Functions return 0, or -1 beyond 128 bit. */
#ifndef ACCT_PLAN_EINSUM_STEPS_H
#define ACCT_PLAN_EINSUM_STEPS_H

#include "plan/plan_einsum.h"

struct plan_tensors {
    const struct plan_pattern *p;
    struct plan_order *out;
    int n;                  /* tensors so far */
    int holders[PLAN_AXES]; /* how many of those that are still to be contracted have the axis */
    struct plan_part part[3 * PLAN_OPERANDS];
};

void plan_tensors_begin(struct plan_tensors *t, const struct plan_pattern *p, struct plan_order *out);

/* Sums over the axes that no other tensor and not the result has; *tensor becomes what is left, if there are any. */
int plan_tensors_sum(struct plan_tensors *t, int *tensor);

int plan_tensors_contract(struct plan_tensors *t, int left, int right);
int plan_tensors_end(struct plan_tensors *t);

/* Of two tensors after plan_tensors_sum. */
int plan_pair_cost(const struct plan_tensors *t, struct plan_part a, struct plan_part b, struct plan_part *result,
                   __int128 *flops);

int plan_einsum_greedy(const struct plan_pattern *p, struct plan_order *out, struct plan_tensors *t);

#endif
