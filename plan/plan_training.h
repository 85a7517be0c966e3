/* What training takes: FLOPs, GPUs, time and money, tied to each other by products alone,
 *
 *   FLOPs = c · N · T        FLOPs = GPUs · peak · MFU · time        money = GPU hours · price      …
 *
 * so that whatever one equation leaves open follows from the others. Sources: ACCOUNTING sections 4 and 6 (c = 6; MFU:
 * model FLOPs over what the dense peaks allow; HFU with recomputation in the numerator). A table of equations and one
 * solver: no equation is turned round by hand. Numbers are doubles, exact to 1e-13; who needs exact FLOPs multiplies
 * integers (plan_convention.h). Pure functions, any thread. */
#ifndef ACCT_PLAN_TRAINING_H
#define ACCT_PLAN_TRAINING_H

#include <stddef.h>

enum plan_quantity {
    PLAN_PARAMETERS,      /* N */
    PLAN_COEFFICIENT,     /* c: FLOPs per parameter and token */
    PLAN_FLOPS_PER_TOKEN, /* c N */
    PLAN_TOKENS,          /* T */
    PLAN_TOTAL,           /* FLOPs of the run: the model's, without recomputation */
    PLAN_GPUS,
    PLAN_PEAK,          /* FLOP/s of one GPU, dense */
    PLAN_MFU,           /* of 1 */
    PLAN_TIME,          /* s */
    PLAN_GPU_HOURS,     /* h */
    PLAN_PRICE,         /* of a GPU hour */
    PLAN_COST,          /* in the price's currency */
    PLAN_TOKEN_RATE,    /* tokens/s, of all GPUs */
    PLAN_STEP_TOKENS,   /* of a step, all micro-batches and ranks */
    PLAN_STEPS,         /* of the run */
    PLAN_STEP_FLOPS,    /* FLOPs */
    PLAN_STEP_TIME,     /* s */
    PLAN_PER_DAY,       /* FLOPs a day */
    PLAN_RATE_EACH,     /* tokens/s of one GPU */
    PLAN_TOKENS_A_DAY,  /* tokens */
    PLAN_ACHIEVED,      /* FLOP/s of all GPUs */
    PLAN_ACHIEVED_EACH, /* FLOP/s of one */
    PLAN_PEAK_TIME,     /* s: at MFU 1 */
    PLAN_STEP_PEAK_TIME,
    PLAN_OVERHEAD, /* executed over model FLOPs: 1 without recomputation, 8/6 where all of forward runs again */
    PLAN_EXECUTED, /* FLOPs, recomputation in */
    PLAN_HFU,      /* of 1 */
    PLAN_QUANTITIES
};

enum { PLAN_GIVEN = -1, PLAN_OPEN = -2 };
struct plan_training {
    double value[PLAN_QUANTITIES]; /* NaN: not known */
    int by[PLAN_QUANTITIES];       /* PLAN_GIVEN, PLAN_OPEN, or the equation from which it follows */
};

/* Nothing known but c = 6. */
void plan_training_begin(struct plan_training *t);
void plan_training_give(struct plan_training *t, enum plan_quantity q, double value);

/* Finds all that follows. Given figures that agree within 0.1 % are rounded ones; else -1 and a line that names the
 * contradiction. -1 likewise for what is beyond a double. May be called again when more is given. */
int plan_training_solve(struct plan_training *t, char *err, size_t err_len);

/* As people call it in formulas: `gpus`, `tokens`. A constant. */
const char *plan_quantity_name(enum plan_quantity q);

/* `FLOPs / (gpus x peak x MFU) = 6.3e24 / (1024 x 9.894e14 x 0.5)` of what an equation gave; else "". */
void plan_training_formula(const struct plan_training *t, enum plan_quantity q, char *out, size_t room);

/* Peak of a mix of n formats: all FLOPs over the sum of flops[i] / peak[i], which is the time that they take at their
 * peaks. */
double plan_mixed_peak(int n, const double *flops, const double *peak);

#endif
