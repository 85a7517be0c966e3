/* Functions of cuBLAS that the vendor's header declares for C++ alone, whose __half and __nv_bfloat16 have no C type.
 */
#ifndef VGPU_BLAS_HALF_H
#define VGPU_BLAS_HALF_H

#include <cublas_api.h>
#include <stdint.h>

typedef struct vgpu_half vgpu_half;
typedef struct vgpu_bfloat16 vgpu_bfloat16;

#define VGPU_PRODUCTS(suffix, I)                                                                                       \
    cublasStatus_t cublasHgemm##suffix(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, I m, \
                                       I n, I k, const vgpu_half *alpha, const vgpu_half *A, I lda,                    \
                                       const vgpu_half *B, I ldb, const vgpu_half *beta, vgpu_half *C, I ldc);         \
    cublasStatus_t cublasHgemmBatched##suffix(                                                                         \
        cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, I m, I n, I k,                      \
        const vgpu_half *alpha, const vgpu_half *const Aarray[], I lda, const vgpu_half *const Barray[], I ldb,        \
        const vgpu_half *beta, vgpu_half *const Carray[], I ldc, I batchCount);                                        \
    cublasStatus_t cublasHgemmStridedBatched##suffix(                                                                  \
        cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, I m, I n, I k,                      \
        const vgpu_half *alpha, const vgpu_half *A, I lda, long long int strideA, const vgpu_half *B, I ldb,           \
        long long int strideB, const vgpu_half *beta, vgpu_half *C, I ldc, long long int strideC, I batchCount);
VGPU_PRODUCTS(, int)
VGPU_PRODUCTS(_64, int64_t)

#define VGPU_VECTOR_PRODUCTS(name, suffix, I, T, Y)                                                                   \
    cublasStatus_t cublas##name##gemvBatched##suffix(                                                                 \
        cublasHandle_t handle, cublasOperation_t trans, I m, I n, const float *alpha, const T *const Aarray[], I lda, \
        const T *const xarray[], I incx, const float *beta, Y *const yarray[], I incy, I batchCount);                 \
    cublasStatus_t cublas##name##gemvStridedBatched##suffix(                                                          \
        cublasHandle_t handle, cublasOperation_t trans, I m, I n, const float *alpha, const T *A, I lda,              \
        long long int strideA, const T *x, I incx, long long int stridex, const float *beta, Y *y, I incy,            \
        long long int stridey, I batchCount);
#define VGPU_VECTOR_PRODUCTS_BOTH(name, T, Y) \
    VGPU_VECTOR_PRODUCTS(name, , int, T, Y)   \
    VGPU_VECTOR_PRODUCTS(name, _64, int64_t, T, Y)
VGPU_VECTOR_PRODUCTS_BOTH(HSH, vgpu_half, vgpu_half)
VGPU_VECTOR_PRODUCTS_BOTH(HSS, vgpu_half, float)
VGPU_VECTOR_PRODUCTS_BOTH(TST, vgpu_bfloat16, vgpu_bfloat16)
VGPU_VECTOR_PRODUCTS_BOTH(TSS, vgpu_bfloat16, float)

#endif
