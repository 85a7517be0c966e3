/* What train.c needs of a model: linear_model.c and gpt_model.c each fill one table. Calls enqueue work on the model's
 * stream and return unless said; a failure ends the program. */
#ifndef TRAIN_MODEL_KIND_H
#define TRAIN_MODEL_KIND_H

#include <cuda_runtime_api.h>
#include <stdint.h>
#include <stdio.h>

#include "sample_app/optimizer.h"
#include "sample_app/products.h"
#include "sample_app/text_batches.h"
#include "sample_app/train_options.h"

/* The head of every model. */
struct model {
    cudaStream_t stream;
    struct products products;
    struct trained trained;
    float loss; /* of the last forward pass; there when kind->finish returns */
};

struct model_kind {
    const char *name;
    const char *unit;          /* what a speed counts */
    const char *window_option; /* the option that a window of text grows with */

    struct batch_form (*batch_form)(const struct train_options *o);
    int64_t (*units)(const struct train_options *o); /* in a micro-batch */
    struct model *(*create)(const struct train_options *o);
    void (*destroy)(struct model *m);

    /* Its sizes, as words of a line: "layers 4, dim 128, …". */
    void (*describe)(const struct model *m, FILE *to, const char *comma);
    int64_t (*micro_batch_flops)(const struct model *m); /* of its matrix products, recomputation left out */

    /* A step begins: gradients count from zero. */
    void (*begin)(struct model *m);
    /* The loss of a batch (a slot of the form, on the device), and all that backward needs. `gradient_scale`: what the
     * gradient of the loss is multiplied by (1 / micro-batches, and the loss scale); 0: no backward pass follows. */
    void (*forward)(struct model *m, const void *batch, float gradient_scale);
    void (*backward)(struct model *m, const void *batch); /* gradients are added to */
    /* An update without kernels of ours, where the model has one for these options. Where it has none it returns false,
     * and optimizer_update (optimizer.h) is called. */
    bool (*update)(struct model *m, const struct train_options *o);
    /* The loss is in m->loss when this returns: waits for the stream. */
    void (*finish)(struct model *m);
    /* What follows a text of `length` tokens (device memory, (1, T), the first `length` count): the logits of the token
     * after it, float (V), on the host; waits. NULL: a model without tokens. */
    void (*predict)(struct model *m, const int *tokens, int length, float *logits);
};

extern const struct model_kind linear_kind, gpt_kind;

#endif
