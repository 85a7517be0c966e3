/* gemm as data, for its plain, batched and grouped forms. */
#ifndef VGPU_BLAS_GEMM_H
#define VGPU_BLAS_GEMM_H

#include "vgpu/vgpu_blas_call.h"

struct vgpu_gemm {
    const char *call;
    cudaDataType_t a, b, c, scalar;
    cublasComputeType_t compute; /* 0: CUBLAS_COMPUTE_32F or of the only kind there is */
    cublasOperation_t ta, tb;
    int64_t m, n, k, lda, ldb, ldc, sa, sb, sc, batch;
    bool batched, array; /* array: pa, pb, pc are arrays of pointers on the device */
    const void *pa, *pb;
    const void *pc; /* written */
};

struct vgpu_call vgpu_gemm_call(const struct vgpu_gemm *g, cublasMath_t math);
cublasStatus_t vgpu_gemm(cublasHandle_t handle, const struct vgpu_gemm *g, const void *alpha, const void *beta);
/* Is there such a product? *scalar: the type of its alpha and beta. */
bool vgpu_gemm_types(cudaDataType_t a, cudaDataType_t b, cudaDataType_t c, cublasComputeType_t compute,
                     cudaDataType_t *scalar);

#endif
