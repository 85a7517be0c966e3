/* One matrix product in column-major terms, C (m x n) = op(A) op(B), as acct-bench runs it: by cublasGemmEx, fp8 by
 * cublasLtMatmul. One thread. */
#ifndef ACCT_MEASURE_GEMM_H
#define ACCT_MEASURE_GEMM_H

#include "measure/measure_bench.h"

struct gemm_format {
    const char *name;
    cudaDataType_t operand, result; /* of A and B; of C */
    cublasComputeType_t compute;
    enum fill_format fill;
    int operand_bytes, result_bytes;
    int least_sm; /* has units for it */
    int only_tn;  /* A is transposed, B is not: the form that the units take */
    int training; /* its training-shaped products are measured unless formats were named */
};

struct gemm_shape {
    int64_t m, n, k;
    int ta, tb; /* 1: transposed; lda, ldb follow: matrices are dense */
};

struct gemm {
    const struct gemm_format *format;
    void *a, *b, *c;
    /* fp8: what cuBLASLt is told, of the shape prepared last */
    void *workspace;
    float *scale;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t la, lb, lc;
    cublasLtMatmulAlgo_t algorithm;
};

/* fp8: chooses an algorithm for that shape. Both: 0, or -1 with the reason in why. */
int gemm_prepare(struct bench *b, struct gemm *g, const struct gemm_shape *s, char *why, size_t room);
int gemm_run(struct bench *b, struct gemm *g, const struct gemm_shape *s, char *why, size_t room);
void gemm_forget(struct bench *b, struct gemm *g); /* what gemm_prepare made */

#endif
