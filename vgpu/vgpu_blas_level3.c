/* Level 3 but for gemm, in four types. A triangle's other half is neither read nor written. */
#include "vgpu/vgpu_blas_call.h"

#include <string.h>

#define RUN(name)                                                                                     \
    static void run_##name(const struct vgpu_call *c, void *const *p, const struct vgpu_value *alpha, \
                           const struct vgpu_value *beta)
#define M (int)c->m
#define N (int)c->n
#define K (int)c->k
#define OP_A p[0], (int)c->ld[0]
#define OP_B p[1], (int)c->ld[1]
#define OP_C p[2], (int)c->ld[2]
#define RANK CblasColMajor, vgpu_uplo(c), vgpu_trans(c, c->ta), N, K
#define SIDE CblasColMajor, vgpu_side(c), vgpu_uplo(c)
#define TRIANGULAR SIDE, vgpu_trans(c, c->ta), vgpu_diag(c), M, N

/* ---- what one problem computes ---- */

RUN(symm) {
#define SYMM(l, al, be) cblas_##l##symm(SIDE, M, N, al, OP_A, OP_B, be, OP_C)
    VGPU_FOR_ALL(c, SYMM);
}

RUN(hemm) {
#define HEMM(l, al, be) cblas_##l##hemm(SIDE, M, N, al, OP_A, OP_B, be, OP_C)
    VGPU_FOR_COMPLEX(c, HEMM);
}

/* cuBLAS multiplies out of place, BLAS in place. */
static void copy_b(const struct vgpu_call *c, void *const *p) {
    size_t e = vgpu_scalar_bytes(c->type);
    for (int64_t j = 0; p[1] != p[2] && j < c->n; j++)
        memmove((char *)p[2] + (size_t)(j * c->ld[2]) * e, (const char *)p[1] + (size_t)(j * c->ld[1]) * e,
                (size_t)c->m * e);
}

RUN(trmm) {
#define TRMM(l, al, be) cblas_##l##trmm(TRIANGULAR, al, OP_A, OP_C)
    (void)beta;
    copy_b(c, p);
    VGPU_FOR_ALL(c, TRMM);
}

RUN(trsm) {
#define TRSM(l, al, be) cblas_##l##trsm(TRIANGULAR, al, OP_A, OP_B)
    (void)beta;
    VGPU_FOR_ALL(c, TRSM);
}

/* A as complex fp32, be it of 8-bit integers. NULL: no memory. */
static void *complex_a(const struct vgpu_call *c, void *const *p, int64_t *ld) {
    bool t = c->ta != CUBLAS_OP_N;
    int64_t rows = t ? c->k : c->n, columns = t ? c->n : c->k;
    *ld = rows;
    return vgpu_widened(CUDA_R_8I, VGPU_ROUND_NONE, p[0], 2 * rows, columns, 2 * c->ld[0]);
}

/* The rest of a call whose A is of 8-bit integers, with A as fp32. */
static void with_complex_a(const struct vgpu_call *c, void *const *p, const struct vgpu_value *alpha,
                           const struct vgpu_value *beta,
                           void (*run)(const struct vgpu_call *, void *const *, const struct vgpu_value *,
                                       const struct vgpu_value *)) {
    struct vgpu_call plain = *c;
    void *q[VGPU_OPERANDS] = {complex_a(c, p, &plain.ld[0]), p[1], p[2]};
    plain.a_type = 0;
    if (q[0])
        run(&plain, q, alpha, beta);
    else
        vgpu_fault("a product of integers has no host memory to work in", p[2], 0);
    vgpu_scratch_give(q[0]);
}

RUN(syrk) {
#define SYRK(l, al, be) cblas_##l##syrk(RANK, al, OP_A, be, OP_C)
    if (vgpu_call_type(c, 0) == CUDA_C_8I)
        with_complex_a(c, p, alpha, beta, run_syrk);
    else
        VGPU_FOR_ALL(c, SYRK);
}

RUN(herk) {
    if (vgpu_call_type(c, 0) == CUDA_C_8I)
        with_complex_a(c, p, alpha, beta, run_herk);
    else if (c->type == CUDA_C_32F)
        cblas_cherk(RANK, alpha->s, OP_A, beta->s, OP_C);
    else
        cblas_zherk(RANK, alpha->d, OP_A, beta->d, OP_C);
}

RUN(syr2k) {
#define SYR2K(l, al, be) cblas_##l##syr2k(RANK, al, OP_A, OP_B, be, OP_C)
    VGPU_FOR_ALL(c, SYR2K);
}

RUN(her2k) {
    if (c->type == CUDA_C_32F)
        cblas_cher2k(RANK, alpha->c, OP_A, OP_B, beta->s, OP_C);
    else
        cblas_zher2k(RANK, alpha->z, OP_A, OP_B, beta->d, OP_C);
}

/* ---- syrkx, herkx: half of a product, by columns ---- */

enum { COLUMNS = 64 };

/* Rows first … of op(x), which is of n×k. */
static const void *rows_from(const struct vgpu_call *c, const void *x, int64_t ld, int64_t first) {
    return (const char *)x + (size_t)(first * (c->ta == CUBLAS_OP_N ? 1 : ld)) * vgpu_scalar_bytes(c->type);
}

/* out = alpha op(A)(rows) op(B)(columns)', without gaps. */
static void block(const struct vgpu_call *c, void *const *p, const struct vgpu_value *alpha, int64_t row, int64_t rows,
                  int64_t column, int64_t columns, void *out) {
#define BLOCK(l, al, be) \
    cblas_##l##gemm(CblasColMajor, ta, tb, (int)rows, (int)columns, K, al, a, lda, b, ldb, be, out, (int)rows)
    static const struct vgpu_value zero;
    const struct vgpu_value *beta = &zero;
    const void *a = rows_from(c, p[0], c->ld[0], row), *b = rows_from(c, p[1], c->ld[1], column);
    int lda = (int)c->ld[0], ldb = (int)c->ld[1];
    CBLAS_TRANSPOSE flip = c->hermitian ? CblasConjTrans : CblasTrans;
    CBLAS_TRANSPOSE ta = c->ta == CUBLAS_OP_N ? CblasNoTrans : flip, tb = c->ta == CUBLAS_OP_N ? flip : CblasNoTrans;
    VGPU_FOR_ALL(c, BLOCK);
}

#define ADD_BLOCK(T, value)                                                                                         \
    static void add_##T(const struct vgpu_call *c, T *to, const T *from, int64_t row, int64_t rows, int64_t column, \
                        int64_t columns, const struct vgpu_value *beta) {                                           \
        bool lower = c->uplo == CUBLAS_FILL_MODE_LOWER;                                                             \
        T b = value;                                                                                                \
        for (int64_t j = column; j < column + columns; j++)                                                         \
            for (int64_t i = lower ? j : row; i < (lower ? row + rows : j + 1); i++) {                              \
                T *at = &to[j * c->ld[2] + i];                                                                      \
                *at = from[(j - column) * rows + i - row] + (b == 0 ? 0 : b * *at);                                 \
            }                                                                                                       \
    }
ADD_BLOCK(float, beta->s)
ADD_BLOCK(double, beta->d)
ADD_BLOCK(cfloat, beta->c[0] + beta->c[1] * _Complex_I)
ADD_BLOCK(cdouble, beta->z[0] + beta->z[1] * _Complex_I)

RUN(syrkx) {
#define ADD(T) add_##T(c, p[2], out, row, rows, j, columns, beta)
    void *out = vgpu_scratch_take((size_t)(c->n * COLUMNS) * vgpu_scalar_bytes(c->type));
    if (!out) {
        vgpu_fault("a product of matrices has no host memory to work in", p[2], 0);
        return;
    }
    for (int64_t j = 0; j < c->n; j += COLUMNS) {
        int64_t columns = c->n - j < COLUMNS ? c->n - j : COLUMNS;
        int64_t row = c->uplo == CUBLAS_FILL_MODE_LOWER ? j : 0;
        int64_t rows = c->uplo == CUBLAS_FILL_MODE_LOWER ? c->n - j : j + columns;
        block(c, p, alpha, row, rows, j, columns, out);
        VGPU_FOR_TYPES(c, ADD)
    }
    vgpu_scratch_give(out);
    for (int64_t j = 0; c->hermitian && j < c->n; j++) vgpu_make_real(c->type, p[2], j * (c->ld[2] + 1));
}

/* ---- the functions ---- */

#define CALL(name, which, lower, code) .call = "cublas" #name, .routine = which, .run = run_##lower, .type = code

/* Rank k with A alone; scalars of type ST. Conjugated if Hermitian: op is N or C, where the others take N or T. */
static cublasStatus_t rank_k(cublasHandle_t h, struct vgpu_call *c, const void *alpha, const void *beta) {
    if (vgpu_is_complex(c->type) && c->ta == (c->hermitian ? CUBLAS_OP_T : CUBLAS_OP_C))
        return CUBLAS_STATUS_INVALID_VALUE;
    return vgpu_call(h, c, alpha, beta);
}

#define RANK_K(S, lower, T, code, ST, scode, is_hermitian)                                                    \
    cublasStatus_t cublas##S##lower##_v2_64(cublasHandle_t h, cublasFillMode_t uplo, cublasOperation_t trans, \
                                            int64_t n, int64_t k, const ST *alpha, const T *a, int64_t lda,   \
                                            const ST *beta, T *c_, int64_t ldc) {                             \
        struct vgpu_call c = {CALL(S##lower, VGPU_SYRK, lower, code),                                         \
                              .alpha_type = VGPU_AS(scode),                                                   \
                              .hermitian = is_hermitian,                                                      \
                              .uplo = uplo,                                                                   \
                              .ta = trans,                                                                    \
                              .n = n,                                                                         \
                              .k = k,                                                                         \
                              .p = {(void *)a, NULL, c_},                                                     \
                              .ld = {lda, 1, ldc}};                                                           \
        return rank_k(h, &c, alpha, beta);                                                                    \
    }

#define RANK_2K(suffix, S, lower, which, T, code, BT, bcode, is_hermitian)                                             \
    cublasStatus_t cublas##S##lower##suffix(cublasHandle_t h, cublasFillMode_t uplo, cublasOperation_t trans,          \
                                            int64_t n, int64_t k, const T *alpha, const T *a, int64_t lda, const T *b, \
                                            int64_t ldb, const BT *beta, T *c_, int64_t ldc) {                         \
        struct vgpu_call c = {.call = "cublas" #S #lower,                                                              \
                              .routine = which,                                                                        \
                              .run = which == VGPU_SYRKX ? run_syrkx                                                   \
                                     : is_hermitian      ? run_her2k                                                   \
                                                         : run_syr2k,                                                       \
                              .type = code,                                                                            \
                              .beta_type = VGPU_AS(bcode),                                                             \
                              .hermitian = is_hermitian,                                                               \
                              .uplo = uplo,                                                                            \
                              .ta = trans,                                                                             \
                              .n = n,                                                                                  \
                              .k = k,                                                                                  \
                              .p = {(void *)a, (void *)b, c_},                                                         \
                              .ld = {lda, ldb, ldc}};                                                                  \
        return rank_k(h, &c, alpha, beta);                                                                             \
    }

#define SIDED(S, lower, T, code)                                                                                       \
    cublasStatus_t cublas##S##lower##_v2_64(cublasHandle_t h, cublasSideMode_t side, cublasFillMode_t uplo, int64_t m, \
                                            int64_t n, const T *alpha, const T *a, int64_t lda, const T *b,            \
                                            int64_t ldb, const T *beta, T *c_, int64_t ldc) {                          \
        struct vgpu_call c = {                                                                                         \
            CALL(S##lower, VGPU_SYMM, lower, code), .side = side,         .uplo = uplo, .m = m, .n = n,                \
            .p = {(void *)a, (void *)b, c_},        .ld = {lda, ldb, ldc}};                                            \
        return vgpu_call(h, &c, alpha, beta);                                                                          \
    }

#define TRIANGLES(S, T, code)                                                                                      \
    cublasStatus_t cublas##S##trmm_v2_64(cublasHandle_t h, cublasSideMode_t side, cublasFillMode_t uplo,           \
                                         cublasOperation_t trans, cublasDiagType_t diag, int64_t m, int64_t n,     \
                                         const T *alpha, const T *a, int64_t lda, const T *b, int64_t ldb, T *c_,  \
                                         int64_t ldc) {                                                            \
        struct vgpu_call c = {CALL(S##trmm, VGPU_TRMM, trmm, code),                                                \
                              .side = side,                                                                        \
                              .uplo = uplo,                                                                        \
                              .ta = trans,                                                                         \
                              .diag = diag,                                                                        \
                              .m = m,                                                                              \
                              .n = n,                                                                              \
                              .p = {(void *)a, (void *)b, c_},                                                     \
                              .ld = {lda, ldb, ldc}};                                                              \
        return vgpu_call(h, &c, alpha, NULL);                                                                      \
    }                                                                                                              \
    cublasStatus_t cublas##S##trsm_v2_64(cublasHandle_t h, cublasSideMode_t side, cublasFillMode_t uplo,           \
                                         cublasOperation_t trans, cublasDiagType_t diag, int64_t m, int64_t n,     \
                                         const T *alpha, const T *a, int64_t lda, T *b, int64_t ldb) {             \
        struct vgpu_call c = {CALL(S##trsm, VGPU_TRSM, trsm, code),                                                \
                              .side = side,                                                                        \
                              .uplo = uplo,                                                                        \
                              .ta = trans,                                                                         \
                              .diag = diag,                                                                        \
                              .m = m,                                                                              \
                              .n = n,                                                                              \
                              .p = {(void *)a, b},                                                                 \
                              .ld = {lda, ldb}};                                                                   \
        return vgpu_call(h, &c, alpha, NULL);                                                                      \
    }                                                                                                              \
    cublasStatus_t cublas##S##trsmBatched_64(cublasHandle_t h, cublasSideMode_t side, cublasFillMode_t uplo,       \
                                             cublasOperation_t trans, cublasDiagType_t diag, int64_t m, int64_t n, \
                                             const T *alpha, const T *const a[], int64_t lda, T *const b[],        \
                                             int64_t ldb, int64_t batch) {                                         \
        struct vgpu_call c = {CALL(S##trsmBatched, VGPU_TRSM, trsm, code),                                         \
                              .side = side,                                                                        \
                              .uplo = uplo,                                                                        \
                              .ta = trans,                                                                         \
                              .diag = diag,                                                                        \
                              .m = m,                                                                              \
                              .n = n,                                                                              \
                              .batched = true,                                                                     \
                              .array = true,                                                                       \
                              .batch = batch,                                                                      \
                              .p = {(void *)a, (void *)b},                                                         \
                              .ld = {lda, ldb}};                                                                   \
        return vgpu_call(h, &c, alpha, NULL);                                                                      \
    }

#define LEVEL3(S, T, code)                                         \
    SIDED(S, symm, T, code)                                        \
    TRIANGLES(S, T, code)                                          \
    RANK_K(S, syrk, T, code, T, code, false)                       \
    RANK_2K(_v2_64, S, syr2k, VGPU_SYR2K, T, code, T, code, false) \
    RANK_2K(_64, S, syrkx, VGPU_SYRKX, T, code, T, code, false)

#define LEVEL3_COMPLEX(S, T, code, R, rcode)                       \
    SIDED(S, hemm, T, code)                                        \
    RANK_K(S, herk, T, code, R, rcode, true)                       \
    RANK_2K(_v2_64, S, her2k, VGPU_SYR2K, T, code, R, rcode, true) \
    RANK_2K(_64, S, herkx, VGPU_SYRKX, T, code, R, rcode, true)

LEVEL3(S, float, CUDA_R_32F)
LEVEL3(D, double, CUDA_R_64F)
LEVEL3(C, cuComplex, CUDA_C_32F)
LEVEL3(Z, cuDoubleComplex, CUDA_C_64F)
LEVEL3_COMPLEX(C, cuComplex, CUDA_C_32F, float, CUDA_R_32F)
LEVEL3_COMPLEX(Z, cuDoubleComplex, CUDA_C_64F, double, CUDA_R_64F)

/* A of complex fp32 or of pairs of 8-bit integers; by three real products on a device (3m), which changes rounding. */
#define RANK_K_EX(name, lower, ST, scode, is_hermitian)                                                           \
    cublasStatus_t cublas##name##_64(cublasHandle_t h, cublasFillMode_t uplo, cublasOperation_t trans, int64_t n, \
                                     int64_t k, const ST *alpha, const void *a, cudaDataType at, int64_t lda,     \
                                     const ST *beta, void *c_, cudaDataType ct, int64_t ldc) {                    \
        struct vgpu_call c = {CALL(name, VGPU_SYRK, lower, CUDA_C_32F),                                           \
                              .a_type = VGPU_AS(at),                                                              \
                              .alpha_type = VGPU_AS(scode),                                                       \
                              .hermitian = is_hermitian,                                                          \
                              .uplo = uplo,                                                                       \
                              .ta = trans,                                                                        \
                              .n = n,                                                                             \
                              .k = k,                                                                             \
                              .p = {(void *)a, NULL, c_},                                                         \
                              .ld = {lda, 1, ldc}};                                                               \
        if (ct != CUDA_C_32F || (at != CUDA_C_32F && at != CUDA_C_8I)) return CUBLAS_STATUS_NOT_SUPPORTED;        \
        return rank_k(h, &c, alpha, beta);                                                                        \
    }
RANK_K_EX(CsyrkEx, syrk, cuComplex, CUDA_C_32F, false)
RANK_K_EX(Csyrk3mEx, syrk, cuComplex, CUDA_C_32F, false)
RANK_K_EX(CherkEx, herk, float, CUDA_R_32F, true)
RANK_K_EX(Cherk3mEx, herk, float, CUDA_R_32F, true)
