/* N, T and the model's shape as the analysis found them; the conventions by which people count a step's FLOPs; and what
 * lies between 6·N·T and what ran. FLOPs; REPORT_UNKNOWN where something is not known. One thread. */
#ifndef ACCT_ANALYZER_REPORT_CONVENTION_H
#define ACCT_ANALYZER_REPORT_CONVENTION_H

#include "analyzer/emitter.h"
#include "analyzer/report_model.h"

/* As the table model has them. */
enum model_fact {
    FACT_PARAMETERS,
    FACT_IN_PRODUCTS,
    FACT_LOOKUP,
    FACT_POSITION,
    FACT_OTHER,
    FACT_TIED,
    FACT_FROZEN,
    FACT_TOKENS,
    FACT_ATTENTION, /* 1, 0: there is none */
    FACT_LAYERS,
    FACT_HEADS,
    FACT_HEAD_SIZE,
    FACT_CONTEXT,
    FACT_SEQUENCES,
    MODEL_FACTS
};
extern const char *const report_fact_names[MODEL_FACTS];

struct report_term {
    int64_t flops;
    char name[32];
};

struct report_conventions {
    int64_t fact[MODEL_FACTS];
    char *how[MODEL_FACTS];
    int64_t *attention; /* by place in r->steps: FLOPs of attention's forward products */
    int64_t step;       /* place of the step that stands for all: the last one with terms; -1 */
    struct report_term *terms;
    int64_t n_terms; /* of that step */
};

/* A way to count, for a step: enum plan_convention's of model FLOPs, in its order, and what ran. */
enum way {
    WAY_6N,
    WAY_6N_MATMUL,
    WAY_6N_MATMUL_CAUSAL,
    WAY_CAUSAL,
    WAY_6N_MATMUL_ATTENTION,
    WAY_PALM_LESS_POSITION,
    WAY_PALM,
    WAY_EXECUTED,
    REPORT_WAYS
};
struct report_way {
    const char *name, *seen_in;
    char formula[160]; /* filled in; empty: not known */
    const char *lacks; /* what is not known for it; NULL */
    __int128 flops;    /* of the step; valid if !lacks */
};

/* Loaded by report_load_parameters, after the steps. */
void report_free_conventions(struct report *r);

/* How step number `place` of r->steps counts. */
void report_way_of(const struct report *r, int64_t place, enum way way, struct report_way *out);

/* What a term of the table flops_term says, in words. */
const char *report_term_words(const char *term);

/* A short section of conventions, one of 6·N·T against executed. */
void report_print_conventions(struct emitter *e, const struct report *r);
void report_print_difference(struct emitter *e, const struct report *r);
/* N, T and the shape, each with how it is known. */
void report_print_model(struct emitter *e, const struct report *r);

#endif
