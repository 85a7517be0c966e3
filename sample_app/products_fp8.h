/* Linear layers whose factors are in fp8: what products.c calls under --dtype fp8. The letters and the signs are those
 * of products.h.
 *
 * Both factors are cast just before each product, each with one scale for the whole tensor, chosen by its largest
 * magnitude at that moment ("current scaling"), so that the largest becomes the format's largest number. cuBLASLt
 * multiplies by the inverse scales. Activations and weights are E4M3, gradients E5M2, which has the wider range.
 *
 * What the hardware wants: compute capability 8.9; both factors stored with K contiguous ("TN"; so backward casts
 * transposed copies); sizes and addresses that are multiples of 16 (bytes). Sums are made in fp32: fast accumulation,
 * which would keep fewer bits on some devices, stays off. */
#ifndef TRAIN_PRODUCTS_FP8_H
#define TRAIN_PRODUCTS_FP8_H

#include "sample_app/products.h"

/* Ends the program with a message where the device's compute capability is below 8.9. Allocates nothing on the device.
 */
struct fp8_buffers *fp8_create(void);
void fp8_reserve(struct fp8_buffers *f, int N, int widest, size_t weight_elements);
void fp8_destroy(struct fp8_buffers *f);

void fp8_forward(struct products *p, real *out, const real *x, const real *w, int N, int OC, int IC);
void fp8_input_gradient(struct products *p, real *dx, const real *dout, const real *w, int N, int OC, int IC);
void fp8_weight_gradient(struct products *p, float *dw, const real *dout, const real *x, int N, int OC, int IC);

#endif
