/* Batches of small factorisations, inverses and solutions, by the LAPACK in OpenBLAS: matrices, and the numbers of
 * their errors, are on the device; pointers to matrices in arrays there. Without pivots LU is done here: LAPACK has
 * none. */
#include "vgpu/vgpu_blas_call.h"

#include <string.h>

/* No header of Debian's OpenBLAS declares these. Complex numbers are pairs. */
#define DECLARE(l)                                                                                                \
    extern void l##getrf_(const int *, const int *, void *, const int *, int *, int *);                           \
    extern void l##getri_(const int *, void *, const int *, const int *, void *, const int *, int *);             \
    extern void l##getrs_(const char *, const int *, const int *, const void *, const int *, const int *, void *, \
                          const int *, int *, size_t);                                                            \
    extern void l##geqrf_(const int *, const int *, void *, const int *, void *, void *, const int *, int *);     \
    extern void l##gels_(const char *, const int *, const int *, const int *, void *, const int *, void *,        \
                         const int *, void *, const int *, int *, size_t);
DECLARE(s)
DECLARE(d)
DECLARE(c)
DECLARE(z)

#define RUN(name)                                                                                     \
    static void run_##name(const struct vgpu_call *c, void *const *p, const struct vgpu_value *alpha, \
                           const struct vgpu_value *beta)
#define LAPACK(c, name, ...)      \
    do {                          \
        switch ((int)(c)->type) { \
        case CUDA_R_32F:          \
            s##name(__VA_ARGS__); \
            break;                \
        case CUDA_R_64F:          \
            d##name(__VA_ARGS__); \
            break;                \
        case CUDA_C_32F:          \
            c##name(__VA_ARGS__); \
            break;                \
        default:                  \
            z##name(__VA_ARGS__); \
        }                         \
    } while (0)

static void *scratch(const struct vgpu_call *c, int64_t elements) {
    void *memory = vgpu_scratch_take((size_t)vgpu_at_least_one(elements) * vgpu_scalar_bytes(c->type));
    if (!memory) vgpu_fault("a factorisation has no host memory to work in", c->p[0], 0);
    return memory;
}

#define LU(T)                                                                                       \
    /* 0, or the place, from 1, of the first pivot that is 0. */                                    \
    static int lu_##T(T *a, int64_t n, int64_t ld) {                                                \
        int info = 0;                                                                               \
        for (int64_t k = 0; k < n; k++) {                                                           \
            if (a[k * ld + k] == 0) {                                                               \
                if (!info) info = (int)k + 1;                                                       \
                continue;                                                                           \
            }                                                                                       \
            for (int64_t i = k + 1; i < n; i++) a[k * ld + i] /= a[k * ld + k];                     \
            for (int64_t j = k + 1; j < n; j++)                                                     \
                for (int64_t i = k + 1; i < n; i++) a[j * ld + i] -= a[k * ld + i] * a[j * ld + k]; \
        }                                                                                           \
        return info;                                                                                \
    }
LU(float)
LU(double)
LU(cfloat)
LU(cdouble)

static int factor(const struct vgpu_call *c, void *a, int64_t lda, int *pivots) {
    int n = (int)c->n, ld = (int)lda, info = 0;
#define WITHOUT_PIVOTS(T) info = lu_##T(a, n, ld)
    if (pivots)
        LAPACK(c, getrf_, &n, &n, a, &ld, pivots, &info);
    else
        VGPU_FOR_TYPES(c, WITHOUT_PIVOTS)
    return info;
}

static void identity_pivots(int *pivots, int64_t n) {
    for (int64_t i = 0; i < n; i++) pivots[i] = (int)i + 1;
}

/* The inverse of what factor() made, in its place. */
static int invert(const struct vgpu_call *c, void *a, int64_t lda, const int *pivots) {
    int n = (int)c->n, ld = (int)lda, work_size = 64 * n, info = 0;
    void *work = scratch(c, work_size);
    if (work) LAPACK(c, getri_, &n, a, &ld, pivots, work, &work_size, &info);
    vgpu_scratch_give(work);
    return info;
}

static void copy_matrix(const struct vgpu_call *c, const void *from, int64_t from_ld, void *to, int64_t to_ld) {
    size_t e = vgpu_scalar_bytes(c->type);
    for (int64_t j = 0; j < c->n; j++)
        memcpy((char *)to + (size_t)(j * to_ld) * e, (const char *)from + (size_t)(j * from_ld) * e, (size_t)c->n * e);
}

RUN(getrf) {
    (void)alpha, (void)beta;
    int64_t i = c->problem;
    c->info[i] = factor(c, p[0], c->ld[0], c->pivots ? c->pivots + i * c->n : NULL);
}

RUN(getri) {
    (void)alpha, (void)beta;
    int64_t i = c->problem;
    int *pivots = vgpu_scratch_take((size_t)c->n * sizeof *pivots);
    if (!pivots) return;
    if (c->pivots)
        memcpy(pivots, c->pivots + i * c->n, (size_t)c->n * sizeof *pivots);
    else
        identity_pivots(pivots, c->n);
    copy_matrix(c, p[0], c->ld[0], p[2], c->ld[2]);
    c->info[i] = invert(c, p[2], c->ld[2], pivots);
    vgpu_scratch_give(pivots);
}

RUN(matinv) {
    (void)alpha, (void)beta;
    int pivots[32];
    int64_t i = c->problem;
    copy_matrix(c, p[0], c->ld[0], p[2], c->ld[2]);
    c->info[i] = factor(c, p[2], c->ld[2], pivots);
    if (!c->info[i]) c->info[i] = invert(c, p[2], c->ld[2], pivots);
}

RUN(getrs) {
    (void)alpha, (void)beta;
    int n = (int)c->n, k = (int)c->k, lda = (int)c->ld[0], ldb = (int)c->ld[1], info;
    const char op = c->ta == CUBLAS_OP_N ? 'N' : c->ta == CUBLAS_OP_T ? 'T' : 'C';
    int64_t i = c->problem;
    int *pivots = vgpu_scratch_take((size_t)c->n * sizeof *pivots);
    if (!pivots) return;
    if (c->pivots)
        memcpy(pivots, c->pivots + i * c->n, (size_t)c->n * sizeof *pivots);
    else
        identity_pivots(pivots, c->n);
    LAPACK(c, getrs_, &op, &n, &k, p[0], &lda, pivots, p[1], &ldb, &info, 1);
    vgpu_scratch_give(pivots);
}

/* Operand 2: the scalars of the reflectors. */
RUN(geqrf) {
    (void)alpha, (void)beta;
    int m = (int)c->m, n = (int)c->n, lda = (int)c->ld[0], work_size = 64 * n, info;
    void *work = scratch(c, work_size);
    void *tau = ((void *const *)c->p[2])[c->problem];
    uint64_t bytes = (uint64_t)(m < n ? m : n) * vgpu_scalar_bytes(c->type);
    if (work && vgpu_reach(c->call, tau, bytes)) LAPACK(c, geqrf_, &m, &n, p[0], &lda, tau, work, &work_size, &info);
    vgpu_scratch_give(work);
}

RUN(gels) {
    (void)alpha, (void)beta;
    int m = (int)c->m, n = (int)c->n, k = (int)c->k, lda = (int)c->ld[0], ldb = (int)c->ld[1], info = 0;
    int work_size = 64 * (n + (k > m ? k : m));
    void *work = scratch(c, work_size);
    if (work) LAPACK(c, gels_, "N", &m, &n, &k, p[0], &lda, p[1], &ldb, work, &work_size, &info, 1);
    if (c->info) c->info[c->problem] = info;
    vgpu_scratch_give(work);
}

/* ---- the functions ---- */

/* Their arrays beside the matrices are looked at on the stream's thread, before anything is done. */
static bool side_arrays_in_reach(const struct vgpu_call *c) {
    uint64_t batch = (uint64_t)c->batch;
    return (!c->pivots || vgpu_reach(c->call, c->pivots, batch * (uint64_t)c->n * sizeof(int))) &&
           (!c->info || vgpu_reach(c->call, c->info, batch * sizeof(int))) &&
           (c->routine != VGPU_GEQRF || vgpu_reach(c->call, c->p[2], batch * sizeof(void *)));
}

static void run_checked(void *args) {
    if (side_arrays_in_reach(args)) vgpu_call_run(args);
}

static void dry_checked(void *args) {
    side_arrays_in_reach(args);
}

static cublasStatus_t batched(cublasHandle_t handle, struct vgpu_call *c) {
    struct vgpu_blas h;
    struct vgpu_work w = {.run = run_checked, .dry = dry_checked, .args = c, .bytes = sizeof *c};
    bool nothing;
    cublasStatus_t e = vgpu_blas_open(handle, &h);
    c->batched = c->array = true;
    if (!e) e = vgpu_call_check(c, NULL, NULL, &nothing);
    if (e || nothing) return e;
    vgpu_call_amount(c, &w.amount);
    return vgpu_blas_run(&h, c->call, "", &w, false);
}

/* *info, on the host: 0, or -i where argument i is wrong. Only what these functions document as such is looked at. */
static cublasStatus_t with_host_info(cublasHandle_t h, struct vgpu_call *c, int *info, int wrong) {
    if (!info) return CUBLAS_STATUS_INVALID_VALUE;
    *info = -wrong;
    return wrong ? CUBLAS_STATUS_INVALID_VALUE : batched(h, c);
}

enum { LARGEST_INVERSE = 32 };

#define BATCHED(S, T, code)                                                                                           \
    cublasStatus_t cublas##S##getrfBatched(cublasHandle_t h, int n, T *const a[], int lda, int *pivots, int *info,    \
                                           int batch) {                                                               \
        struct vgpu_call c = {.call = "cublas" #S "getrfBatched",                                                     \
                              .routine = VGPU_GETRF,                                                                  \
                              .run = run_getrf,                                                                       \
                              .type = code,                                                                           \
                              .m = n,                                                                                 \
                              .n = n,                                                                                 \
                              .batch = batch,                                                                         \
                              .p = {(void *)a},                                                                       \
                              .ld = {lda},                                                                            \
                              .pivots = pivots,                                                                       \
                              .info = info};                                                                          \
        return info ? batched(h, &c) : CUBLAS_STATUS_INVALID_VALUE;                                                   \
    }                                                                                                                 \
    cublasStatus_t cublas##S##getriBatched(cublasHandle_t h, int n, const T *const a[], int lda, const int *pivots,   \
                                           T *const c_[], int ldc, int *info, int batch) {                            \
        struct vgpu_call c = {.call = "cublas" #S "getriBatched",                                                     \
                              .routine = VGPU_GETRI,                                                                  \
                              .run = run_getri,                                                                       \
                              .type = code,                                                                           \
                              .n = n,                                                                                 \
                              .batch = batch,                                                                         \
                              .p = {(void *)a, NULL, (void *)c_},                                                     \
                              .ld = {lda, 1, ldc},                                                                    \
                              .pivots = (int *)pivots,                                                                \
                              .info = info};                                                                          \
        return info ? batched(h, &c) : CUBLAS_STATUS_INVALID_VALUE;                                                   \
    }                                                                                                                 \
    cublasStatus_t cublas##S##matinvBatched(cublasHandle_t h, int n, const T *const a[], int lda, T *const inverse[], \
                                            int ldi, int *info, int batch) {                                          \
        struct vgpu_call c = {.call = "cublas" #S "matinvBatched",                                                    \
                              .routine = VGPU_GETRI,                                                                  \
                              .run = run_matinv,                                                                      \
                              .type = code,                                                                           \
                              .n = n,                                                                                 \
                              .batch = batch,                                                                         \
                              .p = {(void *)a, NULL, (void *)inverse},                                                \
                              .ld = {lda, 1, ldi},                                                                    \
                              .info = info};                                                                          \
        return info && n <= LARGEST_INVERSE ? batched(h, &c) : CUBLAS_STATUS_INVALID_VALUE;                           \
    }                                                                                                                 \
    cublasStatus_t cublas##S##getrsBatched(cublasHandle_t h, cublasOperation_t trans, int n, int nrhs,                \
                                           const T *const a[], int lda, const int *pivots, T *const b[], int ldb,     \
                                           int *info, int batch) {                                                    \
        struct vgpu_call c = {.call = "cublas" #S "getrsBatched",                                                     \
                              .routine = VGPU_GETRS,                                                                  \
                              .run = run_getrs,                                                                       \
                              .type = code,                                                                           \
                              .ta = trans,                                                                            \
                              .m = n,                                                                                 \
                              .n = n,                                                                                 \
                              .k = nrhs,                                                                              \
                              .batch = batch,                                                                         \
                              .p = {(void *)a, (void *)b},                                                            \
                              .ld = {lda, ldb},                                                                       \
                              .pivots = (int *)pivots};                                                               \
        int wrong = !vgpu_is_op(trans)      ? 1                                                                       \
                    : n < 0                 ? 2                                                                       \
                    : nrhs < 0              ? 3                                                                       \
                    : !a                    ? 4                                                                       \
                    : lda < (n > 1 ? n : 1) ? 5                                                                       \
                    : !b                    ? 7                                                                       \
                    : ldb < (n > 1 ? n : 1) ? 8                                                                       \
                    : batch < 0             ? 10                                                                      \
                                            : 0;                                                                                  \
        return with_host_info(h, &c, info, wrong);                                                                    \
    }                                                                                                                 \
    cublasStatus_t cublas##S##geqrfBatched(cublasHandle_t h, int m, int n, T *const a[], int lda, T *const tau[],     \
                                           int *info, int batch) {                                                    \
        struct vgpu_call c = {.call = "cublas" #S "geqrfBatched",                                                     \
                              .routine = VGPU_GEQRF,                                                                  \
                              .run = run_geqrf,                                                                       \
                              .type = code,                                                                           \
                              .m = m,                                                                                 \
                              .n = n,                                                                                 \
                              .batch = batch,                                                                         \
                              .p = {(void *)a, NULL, (void *)tau},                                                    \
                              .ld = {lda}};                                                                           \
        int wrong = m < 0 ? 1 : n < 0 ? 2 : !a ? 3 : lda < (m > 1 ? m : 1) ? 4 : !tau ? 5 : batch < 0 ? 7 : 0;        \
        return with_host_info(h, &c, info, wrong);                                                                    \
    }                                                                                                                 \
    cublasStatus_t cublas##S##gelsBatched(cublasHandle_t h, cublasOperation_t trans, int m, int n, int nrhs,          \
                                          T *const a[], int lda, T *const c_[], int ldc, int *info, int *dev_info,    \
                                          int batch) {                                                                \
        struct vgpu_call c = {.call = "cublas" #S "gelsBatched",                                                      \
                              .routine = VGPU_GELS,                                                                   \
                              .run = run_gels,                                                                        \
                              .type = code,                                                                           \
                              .m = m,                                                                                 \
                              .n = n,                                                                                 \
                              .k = nrhs,                                                                              \
                              .batch = batch,                                                                         \
                              .p = {(void *)a, (void *)c_},                                                           \
                              .ld = {lda, ldc},                                                                       \
                              .info = dev_info};                                                                      \
        int wrong = m < 0 ? 2 : n < 0 ? 3 : nrhs < 0 ? 4 : lda < (m > 1 ? m : 1) ? 6 : ldc < (m > 1 ? m : 1) ? 8 : 0; \
        if (trans != CUBLAS_OP_N || (!wrong && m < n)) return CUBLAS_STATUS_NOT_SUPPORTED;                            \
        return with_host_info(h, &c, info, wrong);                                                                    \
    }

BATCHED(S, float, CUDA_R_32F)
BATCHED(D, double, CUDA_R_64F)
BATCHED(C, cuComplex, CUDA_C_32F)
BATCHED(Z, cuDoubleComplex, CUDA_C_64F)
