/* The update of a model's parameters: the rule, gradient clipping, loss scaling, master weights. */
#ifndef TRAIN_OPTIMIZER_H
#define TRAIN_OPTIMIZER_H

#include <stdbool.h>

#include "sample_app/device_tensors.h"
#include "sample_app/train_options.h"

/* What is updated. All lists have the same tensors in the same order; `state` has them once for each moment. */
struct trained {
    struct tensors parameters; /* in the format of the run */
    struct tensors gradients;  /* fp32; not there between steps with --zero-grad none */
    struct tensors master;     /* fp32; none (count 0) where the parameters are fp32 themselves */
    struct tensors state;      /* fp32 */
    const bool *decays;        /* [parameters.count]: a matrix, to which --weight-decay applies */
};

/* What survives in a checkpoint beside the tensors. */
struct optimizer_progress {
    int64_t updates;  /* done: the t of Adam's corrections */
    int64_t skipped;  /* steps whose gradients were not finite */
    int64_t good;     /* updates since the scale last changed or a step was skipped */
    float loss_scale; /* of the next step's loss gradient; 1 without loss scaling */
};

struct optimizer {
    const struct train_options *options;
    cudaStream_t stream;
    struct optimizer_progress progress;
    double gradient_norm;    /* of the last step, before clipping; NAN where it was not needed */
    double *partial, *total; /* scratch on the device; NULL: neither clipping nor loss scaling */
    double *host_total;      /* page-locked */
    int partials;            /* numbers in `partial` */
};

/* Moments that the rule keeps: sgd 0; momentum, rmsprop, adagrad 1; adam, adamw 2; and what each is called ("m", "v").
 */
int optimizer_moments(int64_t rule);
const char *optimizer_moment_name(int64_t rule, int i);

void optimizer_create(struct optimizer *p, const struct train_options *o, const struct trained *t, cudaStream_t stream);
void optimizer_destroy(struct optimizer *p);

/* One update by the gradients, which hold loss_scale times the true ones. With loss scaling or clipping it waits for
 * the norm of the gradients; if that is not finite, nothing is launched, and the step counts as skipped: false. Under
 * dynamic loss scaling the scale is then halved (never below 1), and after 2000 updates in a row doubled (never above
 * 2^24). A scale that --loss-scale gives stays as it is. */
bool optimizer_update(struct optimizer *p, const struct trained *t);

#endif
