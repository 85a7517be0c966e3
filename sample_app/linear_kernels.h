/* The one kernel of the linear model, which it needs in bf16 and fp16 alone: what cuBLAS does in fp32. */
#ifndef TRAIN_LINEAR_KERNELS_H
#define TRAIN_LINEAR_KERNELS_H

#include <cuda_runtime_api.h>

#include "sample_app/number_format.h"

#ifdef __cplusplus
extern "C" {
#endif

/* d (B, D) = scale · (y − x); losses (B) = mean over each row of (y − x)². Device memory; `f`: bf16 or fp16. */
void linear_loss(enum number_format f, float *losses, real *d, const real *y, const real *x, int B, int D, float scale,
                 cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
