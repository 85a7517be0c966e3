/* What training or inference takes of a device's memory, by formula: terms in bytes, each with its formula filled in.
 * Estimates: nothing here is measured. Pure functions, any thread; the caller owns everything. Exact in 128 bits.
 * Errors: -1 with one line in err.
 *
 * How the work is spread (Megatron-LM; Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer
 * Models"): gpus = data × tensor × pipeline ranks, figures are those of the GPU that holds most.
 *   - tensor: matrices of the layers, biases of the matrices that are split by rows, and the vocabulary's tables (by
 *     tokens) are divided; norms, the other biases and the position table are whole on every rank. Without a model all
 *     parameters are divided.
 *   - pipeline: layers, rounded up; the first stage has the embeddings, the last the head (tied: a copy of the
 *     embedding). One-forward-one-backward: the first stage keeps the activations of as many micro-batches as there are
 *     stages, the last of one. Without a model all parameters are divided evenly.
 *   - ZeRO over the data-parallel ranks: stage 1 divides the optimizer's states (master copy, moments), 2 gradients
 * too, 3 weights too. */
#ifndef ACCT_PLAN_MEMORY_H
#define ACCT_PLAN_MEMORY_H

#include "plan/plan_memory_recipes.h"
#include "plan/plan_model.h"

struct plan_spread {
    int64_t gpus, tensor, pipeline; /* 1 or more; gpus is a multiple of the others' product */
    int zero;                       /* stage, 0 to 3 */
    int sequence;                   /* sequence parallel: what tensor parallel leaves whole is divided as well */
};

enum plan_recompute { PLAN_RECOMPUTE_NONE, PLAN_RECOMPUTE_SELECTIVE, PLAN_RECOMPUTE_FULL };

struct plan_memory_question {
    const struct plan_recipe *recipe;
    struct plan_spread spread;
    const struct plan_model *model; /* NULL: parameters alone. batch is of a replica (training: a
                                     * micro-batch; inference: sequences in the cache); 0: no activations, no cache */
    int64_t parameters;             /* 0: the model's */
    enum plan_recompute recompute;
    int no_dropout;
    int64_t context; /* inference: tokens in the cache of each sequence; 0: the model's seq */
    int cache_bits;  /* of an element of the cache; 0: the recipe's */
};

struct plan_memory_term {
    const char *key, *label; /* constants */
    __int128 bytes;
    char formula[240];
};
enum { PLAN_MEMORY_TERMS = 12 };
struct plan_memory {
    struct plan_memory_term term[PLAN_MEMORY_TERMS];
    int n;
    __int128 total;          /* their sum, bytes */
    int64_t parameters;      /* of the model */
    int64_t rank_parameters; /* of the GPU that holds most, before ZeRO */
    char rank_formula[160];  /* of rank_parameters */
    int64_t data;            /* data-parallel ranks */
    double per_parameter;    /* bytes of weights … moments, on a GPU, by rank_parameters */
    char per_formula[80];    /* 6 + 12/8 */
    int last_stage;          /* the GPU that holds most is of the last stage of the pipeline, not of the first */
};
int plan_memory(const struct plan_memory_question *q, struct plan_memory *out, char *err, size_t err_len);

/* The whole range of a count that fits: the largest value of *count (a field of the question or of its model, which the
 * search changes and leaves as it was) with a total of at most `capacity` bytes; 0: not even 1 fits. Never above
 * `most`. The total must not fall as the count grows. */
int plan_memory_fit(const struct plan_memory_question *q, int64_t *count, int64_t most, __int128 capacity,
                    int64_t *largest, char *err, size_t err_len);

/* Of all layers of a transformer, elements of `bytes` each, with dropout (masks of 1 byte) or without (`dropout` 0), no
 * recomputation: a layer keeps 16 values and 2 masks for each of s*b*h (inputs of the two norms, of the products for q,
 * k and v, q, k, v themselves, the core's output, the two products of the feed-forward and what lies between, masks
 * behind both), and 2 values and 1 mask for each of a*s*s*b (scores after the softmax, and after dropout; without it
 * 1 value and no masks). In 2 bytes with dropout s*b*h*(34 + 5*a*s/h): Korthikanti et al. 2022, equation 2. h is a
 * multiple of a. -1: more than 2^63 - 1.
 */
int64_t plan_transformer_bytes(int64_t layers, int64_t s, int64_t b, int64_t h, int64_t a, int64_t bytes, int dropout);

#endif
