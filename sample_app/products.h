/* Matrix products of row-major matrices, in the number format of the run: cuBLAS, and cuBLASLt for fp8. All enqueue on
 * the stream and return; pointers are device memory that the caller owns; a failure ends the program. Sums are made in
 * fp32. Each product adds its FLOPs to the account (truth.h). */
#ifndef TRAIN_PRODUCTS_H
#define TRAIN_PRODUCTS_H

#include <cublas_v2.h>
#include <stdbool.h>

#include "sample_app/number_format.h"

struct fp8_buffers; /* operands in fp8, their scales; products_fp8.c */

struct products {
    cublasHandle_t cublas;
    cudaStream_t stream;
    enum number_format format; /* of `real` */
    bool tf32;
    struct fp8_buffers *fp8; /* NULL: linear layers in `format` */
    void *workspace;         /* of cuBLAS and cuBLASLt, so that they take no memory of their own; NULL: theirs */
    size_t workspace_bytes;
};

/* `dtype`: of train_options.h. fp8 needs compute capability 8.9: ends the program with a message where the device has
 * less. workspace_bytes 0: none is allocated. */
void products_create(struct products *p, int64_t dtype, cudaStream_t stream, size_t workspace_bytes);
/* The largest linear layer that is to come in fp8: N rows, OC outputs, IC inputs, each the largest of any layer, and
 * the most elements of a weight. Allocates what fp8 needs, and nothing for other formats. All must be multiples of 16.
 */
void products_fp8_reserve(struct products *p, int N, int widest, size_t weight_elements);
void products_destroy(struct products *p);

/* A linear layer: w (OC, IC), x (N, IC). In fp8 where that is the dtype: x and w as E4M3, dout as E5M2, each with one
 * scale for the tensor, computed from its largest magnitude at each use. */
/* out (N, OC) = x · wᵀ */
void products_forward(struct products *p, real *out, const real *x, const real *w, int N, int OC, int IC);
/* dx (N, IC) = dout (N, OC) · w */
void products_input_gradient(struct products *p, real *dx, const real *dout, const real *w, int N, int OC, int IC);
/* dw (OC, IC) += doutᵀ · x */
void products_weight_gradient(struct products *p, float *dw, const real *dout, const real *x, int N, int OC, int IC);

/* C (M, N) = op(A) (M, K) · op(B) (K, N) + beta · C, C in `c_format` (that of the run, or fp32). Never in fp8. */
void products_plain(struct products *p, cublasOperation_t opA, cublasOperation_t opB, int M, int N, int K,
                    const real *A, const real *B, float beta, void *C, enum number_format c_format);
/* `batch` products C (M, N) = op(A) · op(B) of matrices that follow one another. Never in fp8. */
void products_batched(struct products *p, cublasOperation_t opA, cublasOperation_t opB, int M, int N, int K,
                      const real *A, const real *B, real *C, int batch);

#endif
