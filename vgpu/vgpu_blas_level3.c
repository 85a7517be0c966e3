/* Level 3 but for gemm: syrk, syr2k, symm, trmm, trsm. A triangle's other half is neither read nor written. */
#include "vgpu/vgpu_blas.h"

#include <cblas.h>
#include <string.h>

enum routine { SYRK, SYR2K, SYMM, TRMM, TRSM };

struct shape {
    const void *p;
    int64_t rows, columns, ld;
};

struct level3 {
    const char *call;
    enum routine routine;
    cudaDataType_t type;
    CBLAS_SIDE side;
    CBLAS_UPLO uplo;
    CBLAS_TRANSPOSE trans;
    CBLAS_DIAG diag;
    int64_t m, n, k;      /* syrk, syr2k: n and k; the others: m and n */
    struct shape a, b, c; /* c is written; b.p NULL: the routine has none */
    struct vgpu_scalar alpha, beta;
};

static void run_float(const struct level3 *l, float alpha, float beta) {
    int m = (int)l->m, n = (int)l->n, k = (int)l->k, lda = (int)l->a.ld, ldb = (int)l->b.ld, ldc = (int)l->c.ld;
    void *c = (void *)l->c.p;
    switch (l->routine) {
    case SYRK:
        cblas_ssyrk(CblasColMajor, l->uplo, l->trans, n, k, alpha, l->a.p, lda, beta, c, ldc);
        break;
    case SYR2K:
        cblas_ssyr2k(CblasColMajor, l->uplo, l->trans, n, k, alpha, l->a.p, lda, l->b.p, ldb, beta, c, ldc);
        break;
    case SYMM:
        cblas_ssymm(CblasColMajor, l->side, l->uplo, m, n, alpha, l->a.p, lda, l->b.p, ldb, beta, c, ldc);
        break;
    case TRMM:
        cblas_strmm(CblasColMajor, l->side, l->uplo, l->trans, l->diag, m, n, alpha, l->a.p, lda, c, ldc);
        break;
    case TRSM:
        cblas_strsm(CblasColMajor, l->side, l->uplo, l->trans, l->diag, m, n, alpha, l->a.p, lda, c, ldc);
        break;
    }
}

static void run_double(const struct level3 *l, double alpha, double beta) {
    int m = (int)l->m, n = (int)l->n, k = (int)l->k, lda = (int)l->a.ld, ldb = (int)l->b.ld, ldc = (int)l->c.ld;
    void *c = (void *)l->c.p;
    switch (l->routine) {
    case SYRK:
        cblas_dsyrk(CblasColMajor, l->uplo, l->trans, n, k, alpha, l->a.p, lda, beta, c, ldc);
        break;
    case SYR2K:
        cblas_dsyr2k(CblasColMajor, l->uplo, l->trans, n, k, alpha, l->a.p, lda, l->b.p, ldb, beta, c, ldc);
        break;
    case SYMM:
        cblas_dsymm(CblasColMajor, l->side, l->uplo, m, n, alpha, l->a.p, lda, l->b.p, ldb, beta, c, ldc);
        break;
    case TRMM:
        cblas_dtrmm(CblasColMajor, l->side, l->uplo, l->trans, l->diag, m, n, alpha, l->a.p, lda, c, ldc);
        break;
    case TRSM:
        cblas_dtrsm(CblasColMajor, l->side, l->uplo, l->trans, l->diag, m, n, alpha, l->a.p, lda, c, ldc);
        break;
    }
}

/* beta = 0: what is in C, NaN included, does not count. Only the part that the routine writes is touched. */
static void clear(const struct level3 *l) {
    for (int64_t j = 0; j < l->c.columns; j++) {
        bool triangle = l->routine == SYRK || l->routine == SYR2K;
        int64_t from = triangle && l->uplo == CblasLower ? j : 0,
                to = triangle && l->uplo == CblasUpper ? j + 1 : l->c.rows;
        size_t e = vgpu_type_bytes(l->type);
        memset((char *)l->c.p + (size_t)(j * l->c.ld + from) * e, 0, (size_t)(to - from) * e);
    }
}

/* cuBLAS multiplies out of place, BLAS in place. */
static void copy_b(const struct level3 *l) {
    size_t e = vgpu_type_bytes(l->type);
    for (int64_t j = 0; j < l->c.columns; j++)
        memmove((char *)l->c.p + (size_t)(j * l->c.ld) * e, (const char *)l->b.p + (size_t)(j * l->b.ld) * e,
                (size_t)l->c.rows * e);
}

static bool in_reach(const struct level3 *l, const struct shape *s) {
    return !s->p || vgpu_reach(l->call, s->p, vgpu_matrix_bytes(s->rows, s->columns, s->ld, vgpu_type_bytes(l->type)));
}

static void run_level3(void *args) {
    struct level3 *l = args;
    bool has_beta = l->routine <= SYMM;
    double alpha, beta = 1;
    if (!vgpu_scalar_get(&l->alpha, l->call, &alpha) || (has_beta && !vgpu_scalar_get(&l->beta, l->call, &beta)))
        return;
    if (!in_reach(l, &l->a) || !in_reach(l, &l->b) || !in_reach(l, &l->c)) return;
    if (has_beta && beta == 0) clear(l);
    if (l->routine == TRMM && l->b.p != l->c.p) copy_b(l);
    if (l->type == CUDA_R_32F)
        run_float(l, (float)alpha, (float)beta);
    else
        run_double(l, alpha, beta);
}

static bool short_ld(const struct shape *s) {
    return s->ld < vgpu_at_least_one(s->rows);
}

static cublasStatus_t level3(cublasHandle_t handle, struct level3 *l, const void *alpha, const void *beta) {
    struct vgpu_blas h;
    cublasStatus_t e = vgpu_blas_open(handle, &h);
    bool has_beta = l->routine <= SYMM, has_b = l->routine != SYRK && l->routine != TRSM;
    if (e) return e;
    if (l->m < 0 || l->n < 0 || l->k < 0 || short_ld(&l->a) || (has_b && short_ld(&l->b)) || short_ld(&l->c) ||
        !alpha || (has_beta && !beta))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!l->c.rows || !l->c.columns) return CUBLAS_STATUS_SUCCESS;
    bool reads = l->a.rows && l->a.columns;
    if (!l->c.p || (reads && (!l->a.p || (has_b && !l->b.p)))) return CUBLAS_STATUS_INVALID_VALUE;
    if (vgpu_too_large(l->m, l->n, l->k) || vgpu_too_large(l->a.ld, l->b.ld, l->c.ld))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    l->alpha = vgpu_scalar(&h, alpha, l->type);
    if (has_beta) l->beta = vgpu_scalar(&h, beta, l->type);
    return vgpu_blas_run(&h, l->call, "", run_level3, l, sizeof *l, false);
}

static CBLAS_UPLO uplo_of(cublasFillMode_t u) {
    return u == CUBLAS_FILL_MODE_LOWER ? CblasLower : CblasUpper;
}

static CBLAS_SIDE side_of(cublasSideMode_t s) {
    return s == CUBLAS_SIDE_LEFT ? CblasLeft : CblasRight;
}

static CBLAS_TRANSPOSE trans_of(cublasOperation_t t) {
    return t == CUBLAS_OP_N ? CblasNoTrans : CblasTrans;
}

static bool good(cublasSideMode_t side, cublasFillMode_t uplo, cublasOperation_t trans, cublasDiagType_t diag) {
    return (side == CUBLAS_SIDE_LEFT || side == CUBLAS_SIDE_RIGHT) && vgpu_is_uplo(uplo) && vgpu_is_op(trans) &&
           (diag == CUBLAS_DIAG_UNIT || diag == CUBLAS_DIAG_NON_UNIT);
}

static cublasStatus_t rank_k(cublasHandle_t h, struct level3 l, cublasFillMode_t uplo, cublasOperation_t trans,
                             const void *a, int64_t lda, const void *b, int64_t ldb, void *c, int64_t ldc,
                             const void *alpha, const void *beta) {
    if (!good(CUBLAS_SIDE_LEFT, uplo, trans, CUBLAS_DIAG_UNIT)) return CUBLAS_STATUS_INVALID_VALUE;
    int64_t rows = trans == CUBLAS_OP_N ? l.n : l.k, columns = trans == CUBLAS_OP_N ? l.k : l.n;
    l.uplo = uplo_of(uplo);
    l.trans = trans_of(trans);
    l.a = (struct shape){a, rows, columns, lda};
    l.b = (struct shape){b, rows, columns, ldb};
    l.c = (struct shape){c, l.n, l.n, ldc};
    return level3(h, &l, alpha, beta);
}

static cublasStatus_t sided(cublasHandle_t h, struct level3 l, cublasSideMode_t side, cublasFillMode_t uplo,
                            cublasOperation_t trans, cublasDiagType_t diag, const void *a, int64_t lda, const void *b,
                            int64_t ldb, void *c, int64_t ldc, const void *alpha, const void *beta) {
    if (!good(side, uplo, trans, diag)) return CUBLAS_STATUS_INVALID_VALUE;
    int64_t order = side == CUBLAS_SIDE_LEFT ? l.m : l.n;
    l.side = side_of(side);
    l.uplo = uplo_of(uplo);
    l.trans = trans_of(trans);
    l.diag = diag == CUBLAS_DIAG_UNIT ? CblasUnit : CblasNonUnit;
    l.a = (struct shape){a, order, order, lda};
    l.b = (struct shape){b, l.m, l.n, ldb};
    l.c = (struct shape){c, l.m, l.n, ldc};
    return level3(h, &l, alpha, beta);
}

#define LEVEL3(S, code, T)                                                                                             \
    cublasStatus_t cublas##S##syrk_v2_64(cublasHandle_t h, cublasFillMode_t uplo, cublasOperation_t trans, int64_t n,  \
                                         int64_t k, const T *alpha, const T *a, int64_t lda, const T *beta, T *c,      \
                                         int64_t ldc) {                                                                \
        struct level3 l = {.call = "cublas" #S "syrk", .routine = SYRK, .type = code, .n = n, .k = k};                 \
        return rank_k(h, l, uplo, trans, a, lda, NULL, 1, c, ldc, alpha, beta);                                        \
    }                                                                                                                  \
    cublasStatus_t cublas##S##syr2k_v2_64(cublasHandle_t h, cublasFillMode_t uplo, cublasOperation_t trans, int64_t n, \
                                          int64_t k, const T *alpha, const T *a, int64_t lda, const T *b, int64_t ldb, \
                                          const T *beta, T *c, int64_t ldc) {                                          \
        struct level3 l = {.call = "cublas" #S "syr2k", .routine = SYR2K, .type = code, .n = n, .k = k};               \
        return rank_k(h, l, uplo, trans, a, lda, b, ldb, c, ldc, alpha, beta);                                         \
    }                                                                                                                  \
    cublasStatus_t cublas##S##symm_v2_64(cublasHandle_t h, cublasSideMode_t side, cublasFillMode_t uplo, int64_t m,    \
                                         int64_t n, const T *alpha, const T *a, int64_t lda, const T *b, int64_t ldb,  \
                                         const T *beta, T *c, int64_t ldc) {                                           \
        struct level3 l = {.call = "cublas" #S "symm", .routine = SYMM, .type = code, .m = m, .n = n};                 \
        return sided(h, l, side, uplo, CUBLAS_OP_N, CUBLAS_DIAG_UNIT, a, lda, b, ldb, c, ldc, alpha, beta);            \
    }                                                                                                                  \
    cublasStatus_t cublas##S##trmm_v2_64(cublasHandle_t h, cublasSideMode_t side, cublasFillMode_t uplo,               \
                                         cublasOperation_t trans, cublasDiagType_t diag, int64_t m, int64_t n,         \
                                         const T *alpha, const T *a, int64_t lda, const T *b, int64_t ldb, T *c,       \
                                         int64_t ldc) {                                                                \
        struct level3 l = {.call = "cublas" #S "trmm", .routine = TRMM, .type = code, .m = m, .n = n};                 \
        return sided(h, l, side, uplo, trans, diag, a, lda, b, ldb, c, ldc, alpha, NULL);                              \
    }                                                                                                                  \
    cublasStatus_t cublas##S##trsm_v2_64(cublasHandle_t h, cublasSideMode_t side, cublasFillMode_t uplo,               \
                                         cublasOperation_t trans, cublasDiagType_t diag, int64_t m, int64_t n,         \
                                         const T *alpha, const T *a, int64_t lda, T *b, int64_t ldb) {                 \
        struct level3 l = {.call = "cublas" #S "trsm", .routine = TRSM, .type = code, .m = m, .n = n};                 \
        return sided(h, l, side, uplo, trans, diag, a, lda, NULL, 1, b, ldb, alpha, NULL);                             \
    }

LEVEL3(S, CUDA_R_32F, float)
LEVEL3(D, CUDA_R_64F, double)
