/* What formulas say the training should take, beside what it took: the lecture's 4 bytes x (parameters + activations +
 * gradients + optimizer states), and the recipe of number formats that the program follows, with activations by the
 * transformer formula where the model's shape is known. Estimates are never measured figures: each says by what. Bytes,
 * elements; REPORT_UNKNOWN where it is not known. One thread. Errors: -1 with one line in err. */
#ifndef ACCT_ANALYZER_MEMORY_ESTIMATE_H
#define ACCT_ANALYZER_MEMORY_ESTIMATE_H

#include "analyzer/emitter.h"
#include "analyzer/report_model.h"
#include "plan/plan_memory_recipes.h"

enum { ESTIMATE_PARAM, ESTIMATE_GRAD, ESTIMATE_OPTIMIZER, ESTIMATE_ACTIVATION, ESTIMATE_LINES };

/* What is live at the run's peak by class and rule: kept buffers, gradients of the loss … */
struct memory_part {
    int class;
    char *rule;
    int64_t blocks, bytes;
};

struct memory_estimate {
    int64_t parameters;
    char why_not[160]; /* of parameters or recipe that are not known; "": both are */
    struct plan_recipe_seen recipe;
    /* activations */
    int64_t outputs;       /* elements of what the forward products of a micro-batch write, each kept; of the last
                            * complete step */
    int64_t element_bytes; /* of them; REPORT_UNKNOWN: they differ */
    int64_t layers, hidden, heads, context, sequences; /* of a transformer */
    int64_t transformer_bytes;                         /* by its formula, no recomputation */
    int recomputes;                                    /* the program computes activations again: it keeps less */
    /* by line */
    int64_t lecture[ESTIMATE_LINES], expected[ESTIMATE_LINES];
    struct memory_part *part; /* by class, the largest first */
    int64_t n_parts;
    int64_t most[REPORT_CLASSES]; /* bytes of each class live together at most, over the run */
};

int memory_estimate_load(struct report *r, struct memory_estimate *out, char *err, size_t err_len);
void memory_estimate_free(struct memory_estimate *m);
/* The object `estimate`. brief: people see only the lines. */
void memory_estimate_print(struct emitter *e, const struct report *r, const struct memory_estimate *m, int brief);

/* Why a line's measured bytes differ from its formula's; "": they do not, or nothing is known of it. In out, or a
 * constant. */
const char *memory_estimate_note(const struct memory_estimate *m, int line, char *out, size_t room);
/* What a class is that no formula has; "": a formula has it. */
const char *memory_estimate_left_out(int class);
/* The list `parts`. show 0: people do not see it. */
void memory_estimate_print_parts(struct emitter *e, const struct memory_estimate *m, int show);

#endif
