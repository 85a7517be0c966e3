/* What train.c needs of a model: linear_model.c and gpt_model.c each fill one table. Calls enqueue work on the model's
 * stream and return unless said; a failure ends the program. */
#ifndef TRAIN_MODEL_KIND_H
#define TRAIN_MODEL_KIND_H

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <stdint.h>
#include <stdio.h>

#include "sample_app/text_batches.h"
#include "sample_app/train_options.h"

/* The head of every model. */
struct model {
    cudaStream_t stream;
    cublasHandle_t cublas;
    float loss; /* of the last forward pass; there when the stream is idle */
};

struct model_kind {
    const char *unit;          /* what a speed counts */
    const char *window_option; /* the option that a window of text grows with */

    struct batch_form (*batch_form)(const struct train_options *o);
    int64_t (*units)(const struct train_options *o); /* in a step */
    struct model *(*create)(const struct train_options *o);
    void (*destroy)(struct model *m);

    void (*print_shape)(const struct model *m); /* one line: sizes, parameters, FLOPs */
    int64_t (*parameters)(const struct model *m);
    int64_t (*flops)(const struct model *m); /* of the matrix products of one step */

    void (*begin)(struct model *m, const void *batch); /* the batch goes to the device, gradients are cleared */
    void (*forward)(struct model *m);                  /* the loss too */
    void (*backward)(struct model *m);
    void (*update)(struct model *m, const struct train_options *o, int64_t step);
    /* The loss is in m->loss when this returns: waits for the stream. */
    void (*finish)(struct model *m);
    /* Write the batch, the parameters and their gradients: a line of text, then raw numbers. 0, or -1 with errno. */
    int (*dump)(struct model *m, int64_t step, FILE *file);
};

extern const struct model_kind linear_kind, gpt_kind;

#endif
