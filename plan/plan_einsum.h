/* What an einsum of any number of operands costs, in the order in which it is written and in the best one.
 *
 * Two operands: 2 × the product of the sizes of all axes that they have if an axis is contracted (a multiply-add), else
 * 1 ×. An axis that one operand alone has and the result lacks is summed first, 1 per element of that operand; an axis
 * twice in one operand is its diagonal, which costs nothing. Three and more operands are contracted in pairs.
 * FLOPs are of real elements. Pure, any thread; large structs: not for small stacks. */
#ifndef ACCT_PLAN_EINSUM_H
#define ACCT_PLAN_EINSUM_H

#include "plan/plan_pattern.h"

/* Up to this many operands the best order is searched among all; beyond, the cheapest pair is taken each time. */
enum { PLAN_SEARCH_ALL = 14, PLAN_STEPS = 2 * PLAN_OPERANDS };

/* A tensor as its axes; narrow: those of size 1 in it and larger elsewhere. */
struct plan_part {
    plan_set axes, narrow;
};

/* One contraction of two tensors, or one sum over axes of one. Tensors are numbered: operands from 0, then the results
 * of the steps in their order. */
struct plan_step {
    int left, right; /* right -1: a sum */
    struct plan_part from_left, from_right, result;
    __int128 flops, elements; /* elements: of the result */
};

struct plan_order {
    int n, searched_all; /* steps; 1: no order is cheaper */
    struct plan_step step[PLAN_STEPS];
    __int128 flops;
    __int128 largest;       /* elements of the largest tensor that is neither operand nor result; 0: there is none */
    __int128 intermediates; /* elements of all such tensors */
};

/* Elements of a tensor; 0, or -1 beyond 128 bit. */
int plan_part_elements(const struct plan_pattern *p, struct plan_part part, __int128 *out);

/* In the order as written: the first operand with the second, the result with the third … 0, or -1 beyond 128 bit. */
int plan_einsum_given(const struct plan_pattern *p, struct plan_order *out);

/* The cheapest order (of equal ones, the given one if it is among them). 0, or -1: beyond 128 bit, or no memory. */
int plan_einsum_best(const struct plan_pattern *p, const struct plan_order *given, struct plan_order *out);

#endif
