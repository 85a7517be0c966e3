/* Level 2: gemv, ger, symv. */
#include "vgpu/vgpu_blas.h"

#include <cblas.h>

enum routine { GEMV, GER, SYMV };

struct level2 {
    const char *call;
    enum routine routine;
    cudaDataType_t type;
    CBLAS_TRANSPOSE trans;
    CBLAS_UPLO uplo;
    int64_t m, n, lda, incx, incy;
    struct vgpu_scalar alpha, beta;
    void *a, *x, *y;
};

/* With beta = 0 y is not read, be it NaN; not every version of OpenBLAS keeps to that. */
static void clear(const struct level2 *l, int64_t n) {
    int64_t step = l->incy < 0 ? -l->incy : l->incy;
    for (int64_t i = 0; i < n; i++) vgpu_store(l->type, l->y, i * step, 0);
}

static void run_float(const struct level2 *l, float alpha, float beta) {
    int m = (int)l->m, n = (int)l->n, lda = (int)l->lda, ix = (int)l->incx, iy = (int)l->incy;
    if (l->routine == GEMV)
        cblas_sgemv(CblasColMajor, l->trans, m, n, alpha, l->a, lda, l->x, ix, beta, l->y, iy);
    else if (l->routine == SYMV)
        cblas_ssymv(CblasColMajor, l->uplo, n, alpha, l->a, lda, l->x, ix, beta, l->y, iy);
    else
        cblas_sger(CblasColMajor, m, n, alpha, l->x, ix, l->y, iy, l->a, lda);
}

static void run_double(const struct level2 *l, double alpha, double beta) {
    int m = (int)l->m, n = (int)l->n, lda = (int)l->lda, ix = (int)l->incx, iy = (int)l->incy;
    if (l->routine == GEMV)
        cblas_dgemv(CblasColMajor, l->trans, m, n, alpha, l->a, lda, l->x, ix, beta, l->y, iy);
    else if (l->routine == SYMV)
        cblas_dsymv(CblasColMajor, l->uplo, n, alpha, l->a, lda, l->x, ix, beta, l->y, iy);
    else
        cblas_dger(CblasColMajor, m, n, alpha, l->x, ix, l->y, iy, l->a, lda);
}

static void run_level2(void *args) {
    struct level2 *l = args;
    size_t e = vgpu_type_bytes(l->type);
    bool flipped = l->routine == GEMV && l->trans != CblasNoTrans;
    int64_t nx = l->routine == GER || flipped ? l->m : l->n, ny = l->routine == GER || flipped ? l->n : l->m;
    double alpha, beta = 0;
    if (!vgpu_scalar_get(&l->alpha, l->call, &alpha) ||
        (l->routine != GER && !vgpu_scalar_get(&l->beta, l->call, &beta)))
        return;
    if (!vgpu_reach(l->call, l->a, vgpu_matrix_bytes(l->m, l->n, l->lda, e)) ||
        !vgpu_reach(l->call, l->x, vgpu_vector_bytes(nx, l->incx, e)) ||
        !vgpu_reach(l->call, l->y, vgpu_vector_bytes(ny, l->incy, e)))
        return;
    if (l->routine != GER && beta == 0) clear(l, ny);
    if (l->type == CUDA_R_32F)
        run_float(l, (float)alpha, (float)beta);
    else
        run_double(l, alpha, beta);
}

static cublasStatus_t level2(cublasHandle_t handle, struct level2 *l, const void *alpha, const void *beta) {
    struct vgpu_blas h;
    cublasStatus_t e = vgpu_blas_open(handle, &h);
    if (e) return e;
    if (l->m < 0 || l->n < 0 || l->lda < vgpu_at_least_one(l->m) || !l->incx || !l->incy || !alpha ||
        (l->routine != GER && !beta))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!l->m || !l->n) return CUBLAS_STATUS_SUCCESS;
    if (!l->a || !l->x || !l->y) return CUBLAS_STATUS_INVALID_VALUE;
    if (vgpu_too_large(l->m, l->n, l->lda) || vgpu_too_large(l->incx, l->incy, 0)) return CUBLAS_STATUS_NOT_SUPPORTED;
    l->alpha = vgpu_scalar(&h, alpha, l->type);
    if (l->routine != GER) l->beta = vgpu_scalar(&h, beta, l->type);
    return vgpu_blas_run(&h, l->call, "", run_level2, l, sizeof *l, false);
}

#define LEVEL2(S, code, T)                                                                                       \
    cublasStatus_t cublas##S##gemv_v2_64(cublasHandle_t h, cublasOperation_t trans, int64_t m, int64_t n,        \
                                         const T *alpha, const T *a, int64_t lda, const T *x, int64_t incx,      \
                                         const T *beta, T *y, int64_t incy) {                                    \
        struct level2 l = {.call = "cublas" #S "gemv",                                                           \
                           .routine = GEMV,                                                                      \
                           .type = code,                                                                         \
                           .m = m,                                                                               \
                           .n = n,                                                                               \
                           .a = (void *)a,                                                                       \
                           .lda = lda,                                                                           \
                           .x = (void *)x,                                                                       \
                           .incx = incx,                                                                         \
                           .y = y,                                                                               \
                           .incy = incy,                                                                         \
                           .trans = trans == CUBLAS_OP_N ? CblasNoTrans : CblasTrans};                           \
        return vgpu_is_op(trans) ? level2(h, &l, alpha, beta) : CUBLAS_STATUS_INVALID_VALUE;                     \
    }                                                                                                            \
    cublasStatus_t cublas##S##ger_v2_64(cublasHandle_t h, int64_t m, int64_t n, const T *alpha, const T *x,      \
                                        int64_t incx, const T *y, int64_t incy, T *a, int64_t lda) {             \
        struct level2 l = {.call = "cublas" #S "ger",                                                            \
                           .routine = GER,                                                                       \
                           .type = code,                                                                         \
                           .m = m,                                                                               \
                           .n = n,                                                                               \
                           .a = a,                                                                               \
                           .lda = lda,                                                                           \
                           .x = (void *)x,                                                                       \
                           .incx = incx,                                                                         \
                           .y = (void *)y,                                                                       \
                           .incy = incy};                                                                        \
        return level2(h, &l, alpha, NULL);                                                                       \
    }                                                                                                            \
    cublasStatus_t cublas##S##symv_v2_64(cublasHandle_t h, cublasFillMode_t uplo, int64_t n, const T *alpha,     \
                                         const T *a, int64_t lda, const T *x, int64_t incx, const T *beta, T *y, \
                                         int64_t incy) {                                                         \
        struct level2 l = {.call = "cublas" #S "symv",                                                           \
                           .routine = SYMV,                                                                      \
                           .type = code,                                                                         \
                           .m = n,                                                                               \
                           .n = n,                                                                               \
                           .a = (void *)a,                                                                       \
                           .lda = lda,                                                                           \
                           .x = (void *)x,                                                                       \
                           .incx = incx,                                                                         \
                           .y = y,                                                                               \
                           .incy = incy,                                                                         \
                           .uplo = uplo == CUBLAS_FILL_MODE_LOWER ? CblasLower : CblasUpper};                    \
        return vgpu_is_uplo(uplo) ? level2(h, &l, alpha, beta) : CUBLAS_STATUS_INVALID_VALUE;                    \
    }

LEVEL2(S, CUDA_R_32F, float)
LEVEL2(D, CUDA_R_64F, double)
