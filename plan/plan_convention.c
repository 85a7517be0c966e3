#include "plan/plan_convention.h"

#include "plan/plan_number.h"

#include <string.h>

static const struct plan_convention_row rows[PLAN_COUNTS] = {
    [PLAN_6N] = {"6n", "on a napkin", PLAN_ALL, 0},
    [PLAN_6N_MATMUL] = {"6n-matmul", "parameters in matrix products alone", PLAN_IN_PRODUCTS, 0},
    [PLAN_6N_MATMUL_CAUSAL] = {"6n-matmul+causal", "with half of attention, as a causal mask leaves", PLAN_IN_PRODUCTS,
                               3},
    [PLAN_CAUSAL] = {"causal", "llm.c", PLAN_ALL, 3},
    [PLAN_6N_MATMUL_ATTENTION] = {"6n-matmul+attention", "with all of attention", PLAN_IN_PRODUCTS, 6},
    [PLAN_PALM_LESS_POSITION] = {"palm-position", "nanoGPT", PLAN_LESS_POSITION, 6},
    [PLAN_PALM] = {"palm", "PaLM, appendix B", PLAN_ALL, 6},
    [PLAN_FLASH] = {"executed-flash", "what runs where attention's backward computes the scores again",
                    PLAN_IN_PRODUCTS, 7},
};

const struct plan_convention_row *plan_convention_row(enum plan_convention c) {
    return &rows[c];
}

int plan_convention_find(const char *name) {
    for (int c = 0; c < PLAN_CONVENTIONS; c++)
        if (!strcmp(rows[c].name, name)) return c;
    return -1;
}

int plan_convention_flops(enum plan_convention c, int64_t n, int64_t tokens, __int128 attention, __int128 *out) {
    __int128 weights, scores;
    return plan_multiply(6 * (__int128)n, tokens, &weights) || plan_multiply(rows[c].halves, attention, &scores) ||
                   plan_add(weights, scores / 2, out)
               ? -1
               : 0;
}

int64_t plan_convention_parameters(enum plan_convention c, const struct plan_parameters *p) {
    switch (rows[c].counted) {
    case PLAN_IN_PRODUCTS:
        return p->of[PLAN_MULTIPLIES];
    case PLAN_LESS_POSITION:
        return p->all - p->of[PLAN_BY_POSITION];
    default:
        return p->all;
    }
}

int plan_attention_flops(const struct plan_model *m, __int128 *out) {
    const int64_t factors[] = {m->layers, m->heads, m->head, m->seq};
    *out = m->kind == PLAN_LINEAR ? 0 : 4;
    for (int i = 0; i < 4; i++)
        if (plan_multiply(*out, factors[i], out)) return -1;
    return 0;
}
