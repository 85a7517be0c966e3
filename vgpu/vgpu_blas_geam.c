/* geam, C = alpha op(A) + beta op(B), dgmm, C = A diag(x) or diag(x) A, and the packed form of a triangle: what
 * OpenBLAS has not, or not in this form. */
#include "vgpu/vgpu_blas_call.h"

#include <string.h>

#define RUN(name)                                                                                     \
    static void run_##name(const struct vgpu_call *c, void *const *p, const struct vgpu_value *alpha, \
                           const struct vgpu_value *beta)

/* Blocks of BLOCK × BLOCK keep both the straight and the transposed operand in cache; without one, whole columns. */
enum { BLOCK = 32 };

static bool transposed(cublasOperation_t op) {
    return op != CUBLAS_OP_N;
}

static float plain_float(float v) {
    return v;
}
static double plain_double(double v) {
    return v;
}
static cfloat conj_float(cfloat v) {
    return __builtin_conjf(v);
}
static cdouble conj_double(cdouble v) {
    return __builtin_conj(v);
}

#define GEAM_BLOCK(T, conj)                                                                                    \
    static T taken_##T(const T *x, int64_t ld, cublasOperation_t op, int64_t i, int64_t j) {                   \
        T v = transposed(op) ? x[i * ld + j] : x[j * ld + i];                                                  \
        return op == CUBLAS_OP_C ? conj(v) : v;                                                                \
    }                                                                                                          \
    static void geam_##T(const struct vgpu_call *g, void *const *p, T alpha, T beta) {                         \
        int64_t tall = transposed(g->ta) || transposed(g->tb) ? BLOCK : g->m;                                  \
        for (int64_t j0 = 0; j0 < g->n; j0 += BLOCK)                                                           \
            for (int64_t i0 = 0; i0 < g->m; i0 += tall) {                                                      \
                int64_t i1 = i0 + tall < g->m ? i0 + tall : g->m, j1 = j0 + BLOCK < g->n ? j0 + BLOCK : g->n;  \
                for (int64_t j = j0; j < j1; j++)                                                              \
                    for (int64_t i = i0; i < i1; i++) {                                                        \
                        T v = 0;                                                                               \
                        if (alpha != 0) v += alpha * taken_##T(p[0], g->ld[0], g->ta, i, j);                   \
                        if (beta != 0) v += beta * taken_##T(p[1], g->ld[1], g->tb, i, j);                     \
                        ((T *)p[2])[j * g->ld[2] + i] = v;                                                     \
                    }                                                                                          \
            }                                                                                                  \
    }                                                                                                          \
    static void dgmm_##T(const struct vgpu_call *d, void *const *p) {                                          \
        bool left = d->side == CUBLAS_SIDE_LEFT;                                                               \
        int64_t length = left ? d->m : d->n;                                                                   \
        for (int64_t j = 0; j < d->n; j++)                                                                     \
            for (int64_t i = 0; i < d->m; i++)                                                                 \
                ((T *)p[2])[j * d->ld[2] + i] = ((const T *)p[0])[j * d->ld[0] + i] *                          \
                                                ((const T *)p[1])[vgpu_place(left ? i : j, length, d->ld[1])]; \
    }
GEAM_BLOCK(float, plain_float)
GEAM_BLOCK(double, plain_double)
GEAM_BLOCK(cfloat, conj_float)
GEAM_BLOCK(cdouble, conj_double)

RUN(geam) {
    if (c->type == CUDA_R_32F)
        geam_float(c, p, alpha->s, beta->s);
    else if (c->type == CUDA_R_64F)
        geam_double(c, p, alpha->d, beta->d);
    else if (c->type == CUDA_C_32F)
        geam_cfloat(c, p, alpha->c[0] + alpha->c[1] * _Complex_I, beta->c[0] + beta->c[1] * _Complex_I);
    else
        geam_cdouble(c, p, alpha->z[0] + alpha->z[1] * _Complex_I, beta->z[0] + beta->z[1] * _Complex_I);
}

RUN(dgmm) {
#define DIAGONAL(T) dgmm_##T(c, p)
    (void)alpha, (void)beta;
    VGPU_FOR_TYPES(c, DIAGONAL)
}

/* The columns of a triangle lie one behind the other. */
RUN(pack) {
    (void)alpha, (void)beta;
    bool lower = c->uplo == CUBLAS_FILL_MODE_LOWER, unpacks = c->routine == VGPU_TPTTR;
    size_t e = vgpu_scalar_bytes(c->type);
    char *packed = p[unpacks ? 0 : 2], *full = p[unpacks ? 2 : 0];
    int64_t ld = c->ld[unpacks ? 2 : 0];
    for (int64_t j = 0; j < c->n; j++) {
        size_t bytes = (size_t)(lower ? c->n - j : j + 1) * e;
        char *column = full + (size_t)(j * ld + (lower ? j : 0)) * e;
        memcpy(unpacks ? column : packed, unpacks ? packed : column, bytes);
        packed += bytes;
    }
}

/* In place only what each element reads is where it is written. */
static cublasStatus_t geam(cublasHandle_t h, struct vgpu_call *c, const void *alpha, const void *beta) {
    bool spoils_a = c->p[2] == c->p[0] && (c->ta != CUBLAS_OP_N || c->ld[0] != c->ld[2]);
    bool spoils_b = c->p[2] == c->p[1] && (c->tb != CUBLAS_OP_N || c->ld[1] != c->ld[2]);
    if (c->p[2] && (spoils_a || spoils_b)) return CUBLAS_STATUS_INVALID_VALUE;
    return vgpu_call(h, c, alpha, beta);
}

#define SUMS(S, T, code)                                                                                             \
    cublasStatus_t cublas##S##geam_64(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int64_t m,       \
                                      int64_t n, const T *alpha, const T *a, int64_t lda, const T *beta, const T *b, \
                                      int64_t ldb, T *c_, int64_t ldc) {                                             \
        struct vgpu_call c = {.call = "cublas" #S "geam",                                                            \
                              .routine = VGPU_GEAM,                                                                  \
                              .run = run_geam,                                                                       \
                              .type = code,                                                                          \
                              .ta = ta,                                                                              \
                              .tb = tb,                                                                              \
                              .m = m,                                                                                \
                              .n = n,                                                                                \
                              .p = {(void *)a, (void *)b, c_},                                                       \
                              .ld = {lda, ldb, ldc}};                                                                \
        return geam(h, &c, alpha, beta);                                                                             \
    }                                                                                                                \
    cublasStatus_t cublas##S##dgmm_64(cublasHandle_t h, cublasSideMode_t side, int64_t m, int64_t n, const T *a,     \
                                      int64_t lda, const T *x, int64_t incx, T *c_, int64_t ldc) {                   \
        struct vgpu_call c = {.call = "cublas" #S "dgmm",                                                            \
                              .routine = VGPU_DGMM,                                                                  \
                              .run = run_dgmm,                                                                       \
                              .type = code,                                                                          \
                              .side = side,                                                                          \
                              .m = m,                                                                                \
                              .n = n,                                                                                \
                              .p = {(void *)a, (void *)x, c_},                                                       \
                              .ld = {lda, incx, ldc}};                                                               \
        return vgpu_call(h, &c, NULL, NULL);                                                                         \
    }                                                                                                                \
    cublasStatus_t cublas##S##tpttr(cublasHandle_t h, cublasFillMode_t uplo, int n, const T *ap, T *a, int lda) {    \
        struct vgpu_call c = {.call = "cublas" #S "tpttr",                                                           \
                              .routine = VGPU_TPTTR,                                                                 \
                              .run = run_pack,                                                                       \
                              .type = code,                                                                          \
                              .uplo = uplo,                                                                          \
                              .n = n,                                                                                \
                              .p = {(void *)ap, NULL, a},                                                            \
                              .ld = {1, 1, lda}};                                                                    \
        return vgpu_call(h, &c, NULL, NULL);                                                                         \
    }                                                                                                                \
    cublasStatus_t cublas##S##trttp(cublasHandle_t h, cublasFillMode_t uplo, int n, const T *a, int lda, T *ap) {    \
        struct vgpu_call c = {.call = "cublas" #S "trttp",                                                           \
                              .routine = VGPU_TRTTP,                                                                 \
                              .run = run_pack,                                                                       \
                              .type = code,                                                                          \
                              .uplo = uplo,                                                                          \
                              .n = n,                                                                                \
                              .p = {(void *)a, NULL, ap},                                                            \
                              .ld = {lda, 1, 1}};                                                                    \
        return vgpu_call(h, &c, NULL, NULL);                                                                         \
    }

SUMS(S, float, CUDA_R_32F)
SUMS(D, double, CUDA_R_64F)
SUMS(C, cuComplex, CUDA_C_32F)
SUMS(Z, cuDoubleComplex, CUDA_C_64F)
