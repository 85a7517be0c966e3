/* The kernels of optimizer.c, each behind a C function that launches it on a stream. optimizer_kernels.cu has the code.
 *
 * n: elements of a tensor. All pointers are device memory, which the caller owns. A launch returns at once; whether it
 * was accepted is what cudaGetLastError says. Sums are made in a fixed order: the same input gives the same bits. */
#ifndef TRAIN_OPTIMIZER_KERNELS_H
#define TRAIN_OPTIMIZER_KERNELS_H

#include <cuda_runtime_api.h>
#include <stddef.h>

#include "sample_app/number_format.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One tensor of parameters. In fp32 `w` is the tensor itself, and `rounded` is not looked at. Otherwise `w` is its
 * master weight, and `rounded` the parameter in the format `f`, which gets the rounding of the new w. */
struct updated {
    enum number_format f;
    float *w;       /* (n) */
    real *rounded;  /* (n) */
    const float *g; /* (n) gradient, to be multiplied by gradient_factor */
    size_t n;
};

/* Of one update. Each rule looks at those that it names. */
struct update_rates {
    float gradient_factor, lr;
    float beta1, beta2;       /* how much of the old first and second moment is kept */
    float correct1, correct2; /* what the moments are multiplied by, since they began as 0 */
    float epsilon, decay;
};

/* With g the gradient, multiplied: */

/* w −= lr·g */
void optimizer_sgd(struct updated p, struct update_rates r, cudaStream_t);
/* v = beta1·v + g;  w −= lr·v */
void optimizer_momentum(struct updated p, float *v, struct update_rates r, cudaStream_t);
/* s = beta2·s + (1 − beta2)·g²;  w −= lr·g / (√s + epsilon) */
void optimizer_rmsprop(struct updated p, float *s, struct update_rates r, cudaStream_t);
/* s += g²;  w −= lr·g / (√s + epsilon) */
void optimizer_adagrad(struct updated p, float *s, struct update_rates r, cudaStream_t);
/* m = beta1·m + (1 − beta1)·g;  v = beta2·v + (1 − beta2)·g²;
 * w −= lr·(m·correct1 / (√(v·correct2) + epsilon) + decay·w) */
void optimizer_adamw(struct updated p, float *m, float *v, struct update_rates r, cudaStream_t);

/* Sums of squares, in double: no square of a float is too large or too small for it. A tensor of n gives
 * optimizer_partials(n) numbers; total (1) is the sum of `count` such. Not finite exactly if an element is not. */
int optimizer_partials(size_t n);
void optimizer_sum_squares(double *partial, const float *g, size_t n, cudaStream_t);
void optimizer_sum(double *total, const double *partial, int count, cudaStream_t);

#ifdef __cplusplus
}
#endif
#endif
