/* Conversions between bit patterns, numbers and number formats, done by the device. All pointers are device memory, of
 * n elements, that the caller owns. A launch returns at once; whether it was accepted is what cudaGetLastError says. */
#ifndef TRAIN_DTYPE_KERNELS_H
#define TRAIN_DTYPE_KERNELS_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum dtype { SHOWN_FP64, SHOWN_FP32, SHOWN_TF32, SHOWN_FP16, SHOWN_BF16, SHOWN_E4M3, SHOWN_E5M2 };

/* out[i] = the number whose pattern in the format is bits[i]: sign, exponent, mantissa, without padding (tf32: 19 bits)
 */
void dtype_decode(enum dtype f, double *out, const uint64_t *bits, int n, cudaStream_t stream);
/* out[i] = what is read after x[i] was stored in the format, rounded to nearest (all but fp64 from fp32). saturate: fp8
 * stores what is too large as its largest finite number, otherwise as infinity, or NaN where it has none (E4M3). */
void dtype_round(enum dtype f, bool saturate, double *out, const double *x, int n, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
