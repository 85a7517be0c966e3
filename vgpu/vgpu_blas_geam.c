/* geam, C = alpha op(A) + beta op(B), and dgmm, C = A diag(x) or diag(x) A: what OpenBLAS has not, or not in this form.
 */
#include "vgpu/vgpu_blas.h"

struct geam {
    const char *call;
    cudaDataType_t type;
    bool ta, tb;
    int64_t m, n, lda, ldb, ldc;
    struct vgpu_scalar alpha, beta;
    const void *a, *b;
    void *c;
};

/* Blocks of BLOCK × BLOCK keep both the straight and the transposed operand in cache. */
enum { BLOCK = 32 };

#define GEAM_BLOCK(T)                                                                                   \
    static void geam_block_##T(const struct geam *g, T alpha, T beta, int64_t i0, int64_t j0) {         \
        const T *a = g->a, *b = g->b;                                                                   \
        T *c = g->c;                                                                                    \
        int64_t i1 = i0 + BLOCK < g->m ? i0 + BLOCK : g->m, j1 = j0 + BLOCK < g->n ? j0 + BLOCK : g->n; \
        for (int64_t j = j0; j < j1; j++)                                                               \
            for (int64_t i = i0; i < i1; i++) {                                                         \
                T v = 0;                                                                                \
                if (alpha != 0) v += alpha * a[g->ta ? i * g->lda + j : j * g->lda + i];                \
                if (beta != 0) v += beta * b[g->tb ? i * g->ldb + j : j * g->ldb + i];                  \
                c[j * g->ldc + i] = v;                                                                  \
            }                                                                                           \
    }

GEAM_BLOCK(float)
GEAM_BLOCK(double)

static void run_geam(void *args) {
    struct geam *g = args;
    size_t e = vgpu_type_bytes(g->type);
    double alpha, beta;
    if (!vgpu_scalar_get(&g->alpha, g->call, &alpha) || !vgpu_scalar_get(&g->beta, g->call, &beta)) return;
    if ((alpha != 0 &&
         !vgpu_reach(g->call, g->a, vgpu_matrix_bytes(g->ta ? g->n : g->m, g->ta ? g->m : g->n, g->lda, e))) ||
        (beta != 0 &&
         !vgpu_reach(g->call, g->b, vgpu_matrix_bytes(g->tb ? g->n : g->m, g->tb ? g->m : g->n, g->ldb, e))) ||
        !vgpu_reach(g->call, g->c, vgpu_matrix_bytes(g->m, g->n, g->ldc, e)))
        return;
    for (int64_t j = 0; j < g->n; j += BLOCK)
        for (int64_t i = 0; i < g->m; i += BLOCK)
            if (g->type == CUDA_R_32F)
                geam_block_float(g, (float)alpha, (float)beta, i, j);
            else
                geam_block_double(g, alpha, beta, i, j);
}

static int64_t rows(bool transposed, int64_t m, int64_t n) {
    return vgpu_at_least_one(transposed ? n : m);
}

static cublasStatus_t geam(cublasHandle_t handle, struct geam *g, cublasOperation_t ta, cublasOperation_t tb,
                           const void *alpha, const void *beta) {
    struct vgpu_blas h;
    cublasStatus_t e = vgpu_blas_open(handle, &h);
    if (e) return e;
    if (!vgpu_is_op(ta) || !vgpu_is_op(tb) || g->m < 0 || g->n < 0 || !alpha || !beta)
        return CUBLAS_STATUS_INVALID_VALUE;
    g->ta = ta != CUBLAS_OP_N;
    g->tb = tb != CUBLAS_OP_N;
    if (g->lda < rows(g->ta, g->m, g->n) || g->ldb < rows(g->tb, g->m, g->n) || g->ldc < rows(false, g->m, g->n))
        return CUBLAS_STATUS_INVALID_VALUE;
    /* In place only where every element is read where it is written. */
    if ((g->c == g->a && (g->ta || g->lda != g->ldc)) || (g->c == g->b && (g->tb || g->ldb != g->ldc)))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!g->m || !g->n) return CUBLAS_STATUS_SUCCESS;
    if (!g->c) return CUBLAS_STATUS_INVALID_VALUE;
    g->alpha = vgpu_scalar(&h, alpha, g->type);
    g->beta = vgpu_scalar(&h, beta, g->type);
    return vgpu_blas_run(&h, g->call, "", run_geam, g, sizeof *g, false);
}

#define GEAM(S, code, T)                                                                                             \
    cublasStatus_t cublas##S##geam_64(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int64_t m,       \
                                      int64_t n, const T *alpha, const T *a, int64_t lda, const T *beta, const T *b, \
                                      int64_t ldb, T *c, int64_t ldc) {                                              \
        struct geam g = {.call = "cublas" #S "geam",                                                                 \
                         .type = code,                                                                               \
                         .m = m,                                                                                     \
                         .n = n,                                                                                     \
                         .a = a,                                                                                     \
                         .lda = lda,                                                                                 \
                         .b = b,                                                                                     \
                         .ldb = ldb,                                                                                 \
                         .c = c,                                                                                     \
                         .ldc = ldc};                                                                                \
        return geam(h, &g, ta, tb, alpha, beta);                                                                     \
    }

GEAM(S, CUDA_R_32F, float)
GEAM(D, CUDA_R_64F, double)

struct dgmm {
    const char *call;
    cudaDataType_t type;
    bool left;
    int64_t m, n, lda, incx, ldc;
    const void *a, *x;
    void *c;
};

static void run_dgmm(void *args) {
    struct dgmm *d = args;
    size_t e = vgpu_type_bytes(d->type);
    int64_t length = d->left ? d->m : d->n;
    if (!vgpu_reach(d->call, d->a, vgpu_matrix_bytes(d->m, d->n, d->lda, e)) ||
        !vgpu_reach(d->call, d->x, vgpu_vector_bytes(length, d->incx, e)) ||
        !vgpu_reach(d->call, d->c, vgpu_matrix_bytes(d->m, d->n, d->ldc, e)))
        return;
    int64_t first = d->incx < 0 ? (1 - length) * d->incx : 0;
    for (int64_t j = 0; j < d->n; j++)
        for (int64_t i = 0; i < d->m; i++) {
            int64_t x = first + (d->left ? i : j) * d->incx;
            if (d->type == CUDA_R_32F)
                ((float *)d->c)[j * d->ldc + i] = ((const float *)d->a)[j * d->lda + i] * ((const float *)d->x)[x];
            else
                ((double *)d->c)[j * d->ldc + i] = ((const double *)d->a)[j * d->lda + i] * ((const double *)d->x)[x];
        }
}

static cublasStatus_t dgmm(cublasHandle_t handle, const struct dgmm *d, cublasSideMode_t side) {
    struct vgpu_blas h;
    cublasStatus_t e = vgpu_blas_open(handle, &h);
    if (e) return e;
    if ((side != CUBLAS_SIDE_LEFT && side != CUBLAS_SIDE_RIGHT) || d->m < 0 || d->n < 0 ||
        d->lda < rows(false, d->m, d->n) || d->ldc < rows(false, d->m, d->n))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!d->m || !d->n) return CUBLAS_STATUS_SUCCESS;
    if (!d->a || !d->x || !d->c) return CUBLAS_STATUS_INVALID_VALUE;
    return vgpu_blas_run(&h, d->call, "", run_dgmm, d, sizeof *d, false);
}

#define DGMM(S, code, T)                                                                                         \
    cublasStatus_t cublas##S##dgmm_64(cublasHandle_t h, cublasSideMode_t side, int64_t m, int64_t n, const T *a, \
                                      int64_t lda, const T *x, int64_t incx, T *c, int64_t ldc) {                \
        struct dgmm d = {.call = "cublas" #S "dgmm",                                                             \
                         .type = code,                                                                           \
                         .left = side == CUBLAS_SIDE_LEFT,                                                       \
                         .m = m,                                                                                 \
                         .n = n,                                                                                 \
                         .a = a,                                                                                 \
                         .lda = lda,                                                                             \
                         .x = x,                                                                                 \
                         .incx = incx,                                                                           \
                         .c = c,                                                                                 \
                         .ldc = ldc};                                                                            \
        return dgmm(h, &d, side);                                                                                \
    }

DGMM(S, CUDA_R_32F, float)
DGMM(D, CUDA_R_64F, double)
