/* Level 2: matrices and vectors, in four types. OpenBLAS has all but the symmetric complex ones and products of 16-bit
 * matrices. */
#include "vgpu/vgpu_blas_call.h"

#include <string.h>

#define RUN(name)                                                                                     \
    static void run_##name(const struct vgpu_call *c, void *const *p, const struct vgpu_value *alpha, \
                           const struct vgpu_value *beta)
#define M (int)c->m
#define N (int)c->n
#define K (int)c->k
#define A p[0], (int)c->ld[0]
#define X p[1], (int)c->ld[1]
#define Y p[2], (int)c->ld[2]
#define UPLO CblasColMajor, vgpu_uplo(c)
#define TRIANGLE CblasColMajor, vgpu_uplo(c), vgpu_trans(c, c->ta), vgpu_diag(c)

/* ---- what one problem computes ---- */

/* 16-bit matrices and vectors, y of 16 bits or fp32; sums in fp32. */
static void gemv16(const struct vgpu_call *c, void *const *p, float alpha, float beta) {
    bool t = c->ta != CUBLAS_OP_N;
    int64_t nx = t ? c->m : c->n, ny = t ? c->n : c->m;
    cudaDataType_t yt = vgpu_call_type(c, 2);
    float *a = vgpu_widened(c->type, VGPU_ROUND_NONE, p[0], c->m, c->n, c->ld[0]);
    float *x = vgpu_scratch_take((size_t)nx * sizeof *x), *y = vgpu_scratch_take((size_t)ny * sizeof *y);
    if (a && x && y) {
        for (int64_t i = 0; i < nx; i++) x[i] = (float)vgpu_load(c->type, p[1], vgpu_place(i, nx, c->ld[1]));
        for (int64_t i = 0; i < ny; i++) y[i] = (float)vgpu_load(yt, p[2], vgpu_place(i, ny, c->ld[2]));
        cblas_sgemv(CblasColMajor, t ? CblasTrans : CblasNoTrans, M, N, alpha, a, M, x, 1, beta, y, 1);
        for (int64_t i = 0; i < ny; i++) vgpu_store(yt, p[2], vgpu_place(i, ny, c->ld[2]), (double)y[i]);
    } else {
        vgpu_fault("a product of 16-bit matrices has no host memory to work in", p[2], 0);
    }
    vgpu_scratch_give(a);
    vgpu_scratch_give(x);
    vgpu_scratch_give(y);
}

RUN(gemv) {
#define GEMV(l, al, be) cblas_##l##gemv(CblasColMajor, vgpu_trans(c, c->ta), M, N, al, A, X, be, Y)
    if (c->type == CUDA_R_16F || c->type == CUDA_R_16BF)
        gemv16(c, p, alpha->s, beta->s);
    else
        VGPU_FOR_ALL(c, GEMV);
}

RUN(gbmv) {
#define GBMV(l, al, be) \
    cblas_##l##gbmv(CblasColMajor, vgpu_trans(c, c->ta), M, N, (int)c->kl, (int)c->ku, al, A, X, be, Y)
    VGPU_FOR_ALL(c, GBMV);
}

/* y += alpha A x, A symmetric. The other half of A is not read. */
#define SYMV_LOOP(T)                                                                                \
    static void symv_##T(const struct vgpu_call *c, const T *a, const T *x, T *y, T alpha) {        \
        bool lower = c->uplo == CUBLAS_FILL_MODE_LOWER;                                             \
        for (int64_t j = 0; j < c->n; j++)                                                          \
            for (int64_t i = 0; i < c->n; i++) {                                                    \
                T v = (i >= j) == lower || i == j ? a[j * c->ld[0] + i] : a[i * c->ld[0] + j];      \
                y[vgpu_place(i, c->n, c->ld[2])] += alpha * v * x[vgpu_place(j, c->n, c->ld[1])];   \
            }                                                                                       \
    }                                                                                               \
    /* A += alpha (x y' + y x'), or alpha x x' */                                                   \
    static void syr_##T(const struct vgpu_call *c, T *a, const T *x, const T *y, T alpha) {         \
        bool lower = c->uplo == CUBLAS_FILL_MODE_LOWER;                                             \
        for (int64_t j = 0; j < c->n; j++)                                                          \
            for (int64_t i = lower ? j : 0; i < (lower ? c->n : j + 1); i++) {                      \
                int64_t ix = vgpu_place(i, c->n, c->ld[1]), jx = vgpu_place(j, c->n, c->ld[1]);     \
                int64_t iy = vgpu_place(i, c->n, c->ld[2]), jy = vgpu_place(j, c->n, c->ld[2]);     \
                a[j * c->ld[0] + i] += alpha * (y ? x[ix] * y[jy] + y[iy] * x[jx] : x[ix] * x[jx]); \
            }                                                                                       \
    }
SYMV_LOOP(cfloat)
SYMV_LOOP(cdouble)

static cfloat single(const struct vgpu_value *v) {
    return v->c[0] + v->c[1] * _Complex_I;
}

static cdouble twice(const struct vgpu_value *v) {
    return v->z[0] + v->z[1] * _Complex_I;
}

/* Complex: y has been multiplied by beta only where that is 0. */
RUN(symv) {
#define SYMV(l, al, be) cblas_##l##symv(UPLO, N, al, A, X, be, Y)
    int64_t inc = c->ld[2] < 0 ? -c->ld[2] : c->ld[2];
    if (c->type == CUDA_C_32F) {
        cblas_cscal(N, beta->c, p[2], (int)inc);
        symv_cfloat(c, p[0], p[1], p[2], single(alpha));
    } else if (c->type == CUDA_C_64F) {
        cblas_zscal(N, beta->z, p[2], (int)inc);
        symv_cdouble(c, p[0], p[1], p[2], twice(alpha));
    } else {
        VGPU_FOR_REAL(c, SYMV);
    }
}

RUN(hemv) {
#define HEMV(l, al, be) cblas_##l##hemv(UPLO, N, al, A, X, be, Y)
    VGPU_FOR_COMPLEX(c, HEMV);
}

RUN(sbmv) {
#define SBMV(l, al, be) cblas_##l##sbmv(UPLO, N, K, al, A, X, be, Y)
    VGPU_FOR_REAL(c, SBMV);
}

RUN(hbmv) {
#define HBMV(l, al, be) cblas_##l##hbmv(UPLO, N, K, al, A, X, be, Y)
    VGPU_FOR_COMPLEX(c, HBMV);
}

RUN(spmv) {
#define SPMV(l, al, be) cblas_##l##spmv(UPLO, N, al, p[0], X, be, Y)
    VGPU_FOR_REAL(c, SPMV);
}

RUN(hpmv) {
#define HPMV(l, al, be) cblas_##l##hpmv(UPLO, N, al, p[0], X, be, Y)
    VGPU_FOR_COMPLEX(c, HPMV);
}

#define IN_PLACE(name, ...)                          \
    RUN(name) {                                      \
        (void)alpha, (void)beta;                     \
        if (c->type == CUDA_R_32F)                   \
            cblas_s##name(TRIANGLE, N, __VA_ARGS__); \
        else if (c->type == CUDA_R_64F)              \
            cblas_d##name(TRIANGLE, N, __VA_ARGS__); \
        else if (c->type == CUDA_C_32F)              \
            cblas_c##name(TRIANGLE, N, __VA_ARGS__); \
        else                                         \
            cblas_z##name(TRIANGLE, N, __VA_ARGS__); \
    }
IN_PLACE(trmv, A, X)
IN_PLACE(trsv, A, X)
IN_PLACE(tpmv, p[0], X)
IN_PLACE(tpsv, p[0], X)
IN_PLACE(tbmv, K, A, X)
IN_PLACE(tbsv, K, A, X)

RUN(ger) {
#define GER(l, al, be) cblas_##l##ger(CblasColMajor, M, N, al, X, Y, A)
#define GERU(l, al, be) cblas_##l##geru(CblasColMajor, M, N, al, X, Y, A)
#define GERC(l, al, be) cblas_##l##gerc(CblasColMajor, M, N, al, X, Y, A)
    (void)beta;
    if (!vgpu_is_complex(c->type))
        VGPU_FOR_REAL(c, GER);
    else if (c->conjugated)
        VGPU_FOR_COMPLEX(c, GERC);
    else
        VGPU_FOR_COMPLEX(c, GERU);
}

RUN(syr) {
#define SYR(l, al, be) cblas_##l##syr(UPLO, N, al, X, A)
    (void)beta;
    if (c->type == CUDA_C_32F)
        syr_cfloat(c, p[0], p[1], NULL, single(alpha));
    else if (c->type == CUDA_C_64F)
        syr_cdouble(c, p[0], p[1], NULL, twice(alpha));
    else
        VGPU_FOR_REAL(c, SYR);
}

RUN(syr2) {
#define SYR2(l, al, be) cblas_##l##syr2(UPLO, N, al, X, Y, A)
    (void)beta;
    if (c->type == CUDA_C_32F)
        syr_cfloat(c, p[0], p[1], p[2], single(alpha));
    else if (c->type == CUDA_C_64F)
        syr_cdouble(c, p[0], p[1], p[2], twice(alpha));
    else
        VGPU_FOR_REAL(c, SYR2);
}

/* alpha of her and hpr is real. */
RUN(her) {
    (void)beta;
    if (c->type == CUDA_C_32F)
        cblas_cher(UPLO, N, alpha->s, X, A);
    else
        cblas_zher(UPLO, N, alpha->d, X, A);
}

RUN(hpr) {
    (void)beta;
    if (c->type == CUDA_C_32F)
        cblas_chpr(UPLO, N, alpha->s, X, p[0]);
    else
        cblas_zhpr(UPLO, N, alpha->d, X, p[0]);
}

RUN(her2) {
#define HER2(l, al, be) cblas_##l##her2(UPLO, N, al, X, Y, A)
    (void)beta;
    VGPU_FOR_COMPLEX(c, HER2);
}

RUN(hpr2) {
#define HPR2(l, al, be) cblas_##l##hpr2(UPLO, N, al, X, Y, p[0])
    (void)beta;
    VGPU_FOR_COMPLEX(c, HPR2);
}

RUN(spr) {
#define SPR(l, al, be) cblas_##l##spr(UPLO, N, al, X, p[0])
    (void)beta;
    VGPU_FOR_REAL(c, SPR);
}

RUN(spr2) {
#define SPR2(l, al, be) cblas_##l##spr2(UPLO, N, al, X, Y, p[0])
    (void)beta;
    VGPU_FOR_REAL(c, SPR2);
}

/* ---- the functions ---- */

#define CALL(name, which, lower, code) .call = "cublas" #name, .routine = which, .run = run_##lower, .type = code
#define PLAIN_GEMV(S, T, code)                                                                                        \
    cublasStatus_t cublas##S##gemv_v2_64(cublasHandle_t h, cublasOperation_t trans, int64_t m, int64_t n,             \
                                         const T *alpha, const T *a, int64_t lda, const T *x, int64_t incx,           \
                                         const T *beta, T *y, int64_t incy) {                                         \
        struct vgpu_call c = {CALL(S##gemv, VGPU_GEMV, gemv, code),                                                   \
                              .ta = trans,                                                                            \
                              .m = m,                                                                                 \
                              .n = n,                                                                                 \
                              .p = {(void *)a, (void *)x, y},                                                         \
                              .ld = {lda, incx, incy}};                                                               \
        return vgpu_call(h, &c, alpha, beta);                                                                         \
    }                                                                                                                 \
    cublasStatus_t cublas##S##gbmv_v2_64(cublasHandle_t h, cublasOperation_t trans, int64_t m, int64_t n, int64_t kl, \
                                         int64_t ku, const T *alpha, const T *a, int64_t lda, const T *x,             \
                                         int64_t incx, const T *beta, T *y, int64_t incy) {                           \
        struct vgpu_call c = {CALL(S##gbmv, VGPU_GBMV, gbmv, code),                                                   \
                              .ta = trans,                                                                            \
                              .m = m,                                                                                 \
                              .n = n,                                                                                 \
                              .kl = kl,                                                                               \
                              .ku = ku,                                                                               \
                              .p = {(void *)a, (void *)x, y},                                                         \
                              .ld = {lda, incx, incy}};                                                               \
        return vgpu_call(h, &c, alpha, beta);                                                                         \
    }

/* Batches of gemv; y may be of another type, alpha and beta are of A's or fp32. */
#define GEMV_BATCHED(S, T, code, YT, ycode, ST, scode)                                                                 \
    cublasStatus_t cublas##S##gemvBatched_64(                                                                          \
        cublasHandle_t h, cublasOperation_t trans, int64_t m, int64_t n, const ST *alpha, const T *const a[],          \
        int64_t lda, const T *const x[], int64_t incx, const ST *beta, YT *const y[], int64_t incy, int64_t batch) {   \
        struct vgpu_call c = {CALL(S##gemvBatched, VGPU_GEMV, gemv, code),                                             \
                              .c_type = VGPU_AS(ycode),                                                                \
                              .alpha_type = VGPU_AS(scode),                                                            \
                              .ta = trans,                                                                             \
                              .m = m,                                                                                  \
                              .n = n,                                                                                  \
                              .batched = true,                                                                         \
                              .array = true,                                                                           \
                              .batch = batch,                                                                          \
                              .p = {(void *)a, (void *)x, (void *)y},                                                  \
                              .ld = {lda, incx, incy}};                                                                \
        return vgpu_call(h, &c, alpha, beta);                                                                          \
    }                                                                                                                  \
    cublasStatus_t cublas##S##gemvStridedBatched_64(cublasHandle_t h, cublasOperation_t trans, int64_t m, int64_t n,   \
                                                    const ST *alpha, const T *a, int64_t lda, long long int sa,        \
                                                    const T *x, int64_t incx, long long int sx, const ST *beta, YT *y, \
                                                    int64_t incy, long long int sy, int64_t batch) {                   \
        struct vgpu_call c = {CALL(S##gemvStridedBatched, VGPU_GEMV, gemv, code),                                      \
                              .c_type = VGPU_AS(ycode),                                                                \
                              .alpha_type = VGPU_AS(scode),                                                            \
                              .ta = trans,                                                                             \
                              .m = m,                                                                                  \
                              .n = n,                                                                                  \
                              .batched = true,                                                                         \
                              .batch = batch,                                                                          \
                              .p = {(void *)a, (void *)x, y},                                                          \
                              .ld = {lda, incx, incy},                                                                 \
                              .stride = {sa, sx, sy}};                                                                 \
        return vgpu_call(h, &c, alpha, beta);                                                                          \
    }

#define SQUARE(S, lower, T, code, which)                                                                            \
    cublasStatus_t cublas##S##lower##_v2_64(cublasHandle_t h, cublasFillMode_t uplo, int64_t n, const T *alpha,     \
                                            const T *a, int64_t lda, const T *x, int64_t incx, const T *beta, T *y, \
                                            int64_t incy) {                                                         \
        struct vgpu_call c = {CALL(S##lower, which, lower, code), .uplo = uplo, .n = n,                             \
                              .p = {(void *)a, (void *)x, y}, .ld = {lda, incx, incy}};                             \
        return vgpu_call(h, &c, alpha, beta);                                                                       \
    }

#define SQUARE_BAND(S, lower, T, code)                                                                         \
    cublasStatus_t cublas##S##lower##_v2_64(cublasHandle_t h, cublasFillMode_t uplo, int64_t n, int64_t k,     \
                                            const T *alpha, const T *a, int64_t lda, const T *x, int64_t incx, \
                                            const T *beta, T *y, int64_t incy) {                               \
        struct vgpu_call c = {CALL(S##lower, VGPU_SBMV, lower, code), .uplo = uplo,           .n = n, .k = k,  \
                              .p = {(void *)a, (void *)x, y},         .ld = {lda, incx, incy}};                \
        return vgpu_call(h, &c, alpha, beta);                                                                  \
    }

#define SQUARE_PACKED(S, lower, T, code)                                                                               \
    cublasStatus_t cublas##S##lower##_v2_64(cublasHandle_t h, cublasFillMode_t uplo, int64_t n, const T *alpha,        \
                                            const T *a, const T *x, int64_t incx, const T *beta, T *y, int64_t incy) { \
        struct vgpu_call c = {CALL(S##lower, VGPU_SPMV, lower, code), .uplo = uplo, .n = n,                            \
                              .p = {(void *)a, (void *)x, y}, .ld = {1, incx, incy}};                                  \
        return vgpu_call(h, &c, alpha, beta);                                                                          \
    }

#define TRIANGULAR(S, lower, T, code)                                                                         \
    cublasStatus_t cublas##S##lower##_v2_64(cublasHandle_t h, cublasFillMode_t uplo, cublasOperation_t trans, \
                                            cublasDiagType_t diag, int64_t n, const T *a, int64_t lda, T *x,  \
                                            int64_t incx) {                                                   \
        struct vgpu_call c = {CALL(S##lower, VGPU_TRMV, lower, code),                                         \
                              .uplo = uplo,                                                                   \
                              .ta = trans,                                                                    \
                              .diag = diag,                                                                   \
                              .n = n,                                                                         \
                              .p = {(void *)a, x},                                                            \
                              .ld = {lda, incx}};                                                             \
        return vgpu_call(h, &c, NULL, NULL);                                                                  \
    }

#define TRIANGULAR_BAND(S, lower, T, code)                                                                        \
    cublasStatus_t cublas##S##lower##_v2_64(cublasHandle_t h, cublasFillMode_t uplo, cublasOperation_t trans,     \
                                            cublasDiagType_t diag, int64_t n, int64_t k, const T *a, int64_t lda, \
                                            T *x, int64_t incx) {                                                 \
        struct vgpu_call c = {CALL(S##lower, VGPU_TBMV, lower, code),                                             \
                              .uplo = uplo,                                                                       \
                              .ta = trans,                                                                        \
                              .diag = diag,                                                                       \
                              .n = n,                                                                             \
                              .k = k,                                                                             \
                              .p = {(void *)a, x},                                                                \
                              .ld = {lda, incx}};                                                                 \
        return vgpu_call(h, &c, NULL, NULL);                                                                      \
    }

#define TRIANGULAR_PACKED(S, lower, T, code)                                                                    \
    cublasStatus_t cublas##S##lower##_v2_64(cublasHandle_t h, cublasFillMode_t uplo, cublasOperation_t trans,   \
                                            cublasDiagType_t diag, int64_t n, const T *a, T *x, int64_t incx) { \
        struct vgpu_call c = {CALL(S##lower, VGPU_TPMV, lower, code),                                           \
                              .uplo = uplo,                                                                     \
                              .ta = trans,                                                                      \
                              .diag = diag,                                                                     \
                              .n = n,                                                                           \
                              .p = {(void *)a, x},                                                              \
                              .ld = {1, incx}};                                                                 \
        return vgpu_call(h, &c, NULL, NULL);                                                                    \
    }

#define RANK_ONE(name, T, code, conjugate)                                                                  \
    cublasStatus_t cublas##name##_v2_64(cublasHandle_t h, int64_t m, int64_t n, const T *alpha, const T *x, \
                                        int64_t incx, const T *y, int64_t incy, T *a, int64_t lda) {        \
        struct vgpu_call c = {CALL(name, VGPU_GER, ger, code), .conjugated = conjugate, .m = m, .n = n,     \
                              .p = {a, (void *)x, (void *)y},  .ld = {lda, incx, incy}};                    \
        return vgpu_call(h, &c, alpha, NULL);                                                               \
    }

#define RANK_X(S, lower, T, code, AT, acode)                                                                     \
    cublasStatus_t cublas##S##lower##_v2_64(cublasHandle_t h, cublasFillMode_t uplo, int64_t n, const AT *alpha, \
                                            const T *x, int64_t incx, T *a, int64_t lda) {                       \
        struct vgpu_call c = {CALL(S##lower, VGPU_SYR, lower, code),                                             \
                              .alpha_type = VGPU_AS(acode),                                                      \
                              .uplo = uplo,                                                                      \
                              .n = n,                                                                            \
                              .p = {a, (void *)x},                                                               \
                              .ld = {lda, incx}};                                                                \
        return vgpu_call(h, &c, alpha, NULL);                                                                    \
    }

#define RANK_X_PACKED(S, lower, T, code, AT, acode)                                                              \
    cublasStatus_t cublas##S##lower##_v2_64(cublasHandle_t h, cublasFillMode_t uplo, int64_t n, const AT *alpha, \
                                            const T *x, int64_t incx, T *a) {                                    \
        struct vgpu_call c = {CALL(S##lower, VGPU_SPR, lower, code),                                             \
                              .alpha_type = VGPU_AS(acode),                                                      \
                              .uplo = uplo,                                                                      \
                              .n = n,                                                                            \
                              .p = {a, (void *)x},                                                               \
                              .ld = {1, incx}};                                                                  \
        return vgpu_call(h, &c, alpha, NULL);                                                                    \
    }

#define RANK_XY(S, lower, T, code)                                                                                   \
    cublasStatus_t cublas##S##lower##_v2_64(cublasHandle_t h, cublasFillMode_t uplo, int64_t n, const T *alpha,      \
                                            const T *x, int64_t incx, const T *y, int64_t incy, T *a, int64_t lda) { \
        struct vgpu_call c = {CALL(S##lower, VGPU_SYR2, lower, code), .uplo = uplo, .n = n,                          \
                              .p = {a, (void *)x, (void *)y}, .ld = {lda, incx, incy}};                              \
        return vgpu_call(h, &c, alpha, NULL);                                                                        \
    }

#define RANK_XY_PACKED(S, lower, T, code)                                                                       \
    cublasStatus_t cublas##S##lower##_v2_64(cublasHandle_t h, cublasFillMode_t uplo, int64_t n, const T *alpha, \
                                            const T *x, int64_t incx, const T *y, int64_t incy, T *a) {         \
        struct vgpu_call c = {CALL(S##lower, VGPU_SPR2, lower, code), .uplo = uplo, .n = n,                     \
                              .p = {a, (void *)x, (void *)y}, .ld = {1, incx, incy}};                           \
        return vgpu_call(h, &c, alpha, NULL);                                                                   \
    }

#define LEVEL2(S, T, code)                     \
    PLAIN_GEMV(S, T, code)                     \
    GEMV_BATCHED(S, T, code, T, code, T, code) \
    SQUARE(S, symv, T, code, VGPU_SYMV)        \
    TRIANGULAR(S, trmv, T, code)               \
    TRIANGULAR(S, trsv, T, code)               \
    TRIANGULAR_BAND(S, tbmv, T, code)          \
    TRIANGULAR_BAND(S, tbsv, T, code)          \
    TRIANGULAR_PACKED(S, tpmv, T, code)        \
    TRIANGULAR_PACKED(S, tpsv, T, code)        \
    RANK_X(S, syr, T, code, T, code)           \
    RANK_XY(S, syr2, T, code)

#define LEVEL2_REAL(S, T, code)             \
    RANK_ONE(S##ger, T, code, false)        \
    SQUARE_BAND(S, sbmv, T, code)           \
    SQUARE_PACKED(S, spmv, T, code)         \
    RANK_X_PACKED(S, spr, T, code, T, code) \
    RANK_XY_PACKED(S, spr2, T, code)

#define LEVEL2_COMPLEX(S, T, code, R, rcode) \
    RANK_ONE(S##geru, T, code, false)        \
    RANK_ONE(S##gerc, T, code, true)         \
    SQUARE(S, hemv, T, code, VGPU_SYMV)      \
    SQUARE_BAND(S, hbmv, T, code)            \
    SQUARE_PACKED(S, hpmv, T, code)          \
    RANK_X(S, her, T, code, R, rcode)        \
    RANK_X_PACKED(S, hpr, T, code, R, rcode) \
    RANK_XY(S, her2, T, code)                \
    RANK_XY_PACKED(S, hpr2, T, code)

LEVEL2(S, float, CUDA_R_32F)
LEVEL2(D, double, CUDA_R_64F)
LEVEL2(C, cuComplex, CUDA_C_32F)
LEVEL2(Z, cuDoubleComplex, CUDA_C_64F)
LEVEL2_REAL(S, float, CUDA_R_32F)
LEVEL2_REAL(D, double, CUDA_R_64F)
LEVEL2_COMPLEX(C, cuComplex, CUDA_C_32F, float, CUDA_R_32F)
LEVEL2_COMPLEX(Z, cuDoubleComplex, CUDA_C_64F, double, CUDA_R_64F)
GEMV_BATCHED(HSH, vgpu_half, CUDA_R_16F, vgpu_half, CUDA_R_16F, float, CUDA_R_32F)
GEMV_BATCHED(HSS, vgpu_half, CUDA_R_16F, float, CUDA_R_32F, float, CUDA_R_32F)
GEMV_BATCHED(TST, vgpu_bfloat16, CUDA_R_16BF, vgpu_bfloat16, CUDA_R_16BF, float, CUDA_R_32F)
GEMV_BATCHED(TSS, vgpu_bfloat16, CUDA_R_16BF, float, CUDA_R_32F, float, CUDA_R_32F)
