/* The conventions by which people count the FLOPs of training, ACCOUNTING section 4: each is
 *
 *   6 · parameters · tokens + (halves / 2) · A
 *
 * with A the FLOPs of attention's two products in forward: 4 · L · H · Q · T a token (L layers, H heads of Q, context
 * T; of grouped queries the query heads count). Backward of a product costs twice its forward, so all of attention is 3
 * · A; a causal mask leaves half of it; a flash kernel's backward computes the scores once more, 2.5 · A. The only
 * place where names, parameters and halves stand. Pure functions and constants, any thread. */
#ifndef ACCT_PLAN_CONVENTION_H
#define ACCT_PLAN_CONVENTION_H

#include "plan/plan_model.h"

enum plan_convention {
    PLAN_6N,
    PLAN_6N_MATMUL,
    PLAN_6N_MATMUL_CAUSAL,
    PLAN_CAUSAL,
    PLAN_6N_MATMUL_ATTENTION,
    PLAN_PALM_LESS_POSITION,
    PLAN_PALM,
    PLAN_CONVENTIONS,              /* those of model FLOPs end here */
    PLAN_FLASH = PLAN_CONVENTIONS, /* executed */
    PLAN_COUNTS
};

enum plan_counted { PLAN_ALL, PLAN_IN_PRODUCTS, PLAN_LESS_POSITION };

struct plan_convention_row {
    const char *name, *seen_in;
    enum plan_counted counted; /* which parameters */
    int halves;                /* of A */
};
const struct plan_convention_row *plan_convention_row(enum plan_convention c);

/* By name; -1: none of model FLOPs is called so. */
int plan_convention_find(const char *name);

/* FLOPs, exact. n: parameters that the convention counts; attention: A over all tokens, even (0: none). -1: overflow.
 */
int plan_convention_flops(enum plan_convention c, int64_t n, int64_t tokens, __int128 attention, __int128 *out);

/* The same of a model, a token: its counted parameters and A. -1: overflow. */
int64_t plan_convention_parameters(enum plan_convention c, const struct plan_parameters *p);
int plan_attention_flops(const struct plan_model *m, __int128 *out); /* 0 of a linear model */

#endif
