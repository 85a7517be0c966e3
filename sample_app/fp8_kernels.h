/* Kernels that cast bf16 tensors to fp8, each behind a C function that launches it on a stream. All pointers are device
 * memory, which the caller owns; a launch returns at once, and whether it was accepted is what cudaGetLastError says.
 * Formats are FORMAT_E4M3 (largest number 448) and FORMAT_E5M2 (57344). */
#ifndef TRAIN_FP8_KERNELS_H
#define TRAIN_FP8_KERNELS_H

#include <cuda_runtime_api.h>

#include "sample_app/number_format.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A tensor's largest magnitude is found in slices first: as many as there are at 4096 elements each, at most FP8_PARTS.
 */
enum { FP8_PARTS = 256 };

/* parts (slices of n): the largest magnitude of each slice of x (n), n even. NaNs are passed over: they stay NaNs when
 * they are cast. */
void fp8_amax(float *parts, const real *x, size_t n, cudaStream_t stream);
/* scale (2) from the parts of a tensor of n elements: what it is multiplied by before the cast (largest number of the
 * format / largest magnitude), and the inverse of that. All zeros: 1 and 1. An infinity: 0 and infinity, so that
 * products become NaN. */
void fp8_scale(enum number_format format, float *scale, const float *parts, size_t n, cudaStream_t stream);
/* out (n) = x (n) · scale[0], n even; to nearest, ties to even, beyond the largest number: the largest. */
void fp8_cast(enum number_format format, void *out, const real *x, size_t n, const float *scale, cudaStream_t stream);
/* out (C, R) = the same of xᵀ, x (R, C) */
void fp8_cast_transposed(enum number_format format, void *out, const real *x, int R, int C, const float *scale,
                         cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
