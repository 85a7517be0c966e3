/* Groups of products: each group has its own sizes and scalars, which are on the host; the pointers of all its matrices
 * are in arrays on the device. One kernel does them all. */
#include "vgpu/vgpu_blas_gemm.h"

#include <stdlib.h>

/* The arrays of one call, with 32- or 64-bit sizes. */
struct arrays {
    const char *call;
    const cublasOperation_t *ta, *tb;
    const void *m, *n, *k, *lda, *ldb, *ldc, *sizes;
    const char *alpha, *beta;
    const void *const *a, *const *b;
    void *const *c;
    cudaDataType_t at, bt, ct, scalar;
    cublasComputeType_t compute;
    int64_t groups;
    bool wide;
};

struct job {
    int64_t groups;
    struct vgpu_call group[];
};

static int64_t size_at(const struct arrays *g, const void *array, int64_t i) {
    return g->wide ? ((const int64_t *)array)[i] : ((const int *)array)[i];
}

static void run_groups(void *args) {
    struct job *j = args;
    for (int64_t i = 0; i < j->groups; i++) vgpu_call_run(&j->group[i]);
}

/* `first`: the problems of the groups before. */
static struct vgpu_call group(const struct arrays *g, const struct vgpu_blas *h, int64_t i, int64_t first) {
    struct vgpu_gemm one = {
        .call = g->call,
        .a = g->at,
        .b = g->bt,
        .c = g->ct,
        .scalar = g->scalar,
        .compute = g->compute,
        .ta = g->ta[i],
        .tb = g->tb[i],
        .m = size_at(g, g->m, i),
        .n = size_at(g, g->n, i),
        .k = size_at(g, g->k, i),
        .lda = size_at(g, g->lda, i),
        .ldb = size_at(g, g->ldb, i),
        .ldc = size_at(g, g->ldc, i),
        .batch = size_at(g, g->sizes, i),
        .batched = true,
        .array = true,
        .pa = g->a + first,
        .pb = g->b + first,
        .pc = g->c + first,
    };
    return vgpu_gemm_call(&one, h->math);
}

static cublasStatus_t fill(const struct arrays *g, const struct vgpu_blas *h, struct job *j,
                           struct vgpu_amount *amount) {
    size_t scalar = vgpu_scalar_bytes(g->scalar);
    int64_t first = 0;
    for (int64_t i = 0; i < g->groups; i++) {
        struct vgpu_call *c = &j->group[j->groups];
        const void *alpha = g->alpha + (size_t)i * scalar, *beta = g->beta + (size_t)i * scalar;
        bool nothing;
        *c = group(g, h, i, first);
        cublasStatus_t e = vgpu_call_check(c, alpha, beta, &nothing);
        if (e) return e;
        first += c->batch;
        if (nothing) continue;
        c->alpha = vgpu_scalar(h, alpha, g->scalar);
        c->beta = vgpu_scalar(h, beta, g->scalar);
        vgpu_call_amount(c, amount);
        j->groups++;
    }
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t grouped(cublasHandle_t handle, const struct arrays *g) {
    struct vgpu_blas h;
    struct vgpu_work w = {.run = run_groups};
    cublasStatus_t e = vgpu_blas_open(handle, &h);
    if (e) return e;
    if (h.mode != CUBLAS_POINTER_MODE_HOST) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (g->groups < 0) return CUBLAS_STATUS_INVALID_VALUE;
    if (!g->groups) return CUBLAS_STATUS_SUCCESS;
    if (!g->ta || !g->tb || !g->m || !g->n || !g->k || !g->lda || !g->ldb || !g->ldc || !g->sizes || !g->alpha ||
        !g->beta || !g->a || !g->b || !g->c)
        return CUBLAS_STATUS_INVALID_VALUE;
    size_t bytes = sizeof(struct job) + (size_t)g->groups * sizeof(struct vgpu_call);
    struct job *j = calloc(1, bytes);
    if (!j) return CUBLAS_STATUS_ALLOC_FAILED;
    e = fill(g, &h, j, &w.amount);
    w.args = j;
    w.bytes = bytes;
    if (!e && j->groups) e = vgpu_blas_run(&h, j->group[0].kernel, "_grouped", &w, false);
    free(j);
    return e;
}

#define SIZES(I) \
    cublasHandle_t h, const cublasOperation_t ta[], const cublasOperation_t tb[], const I m[], const I n[], const I k[]
#define ARRAYS                                                                                      \
    .ta = ta, .tb = tb, .m = m, .n = n, .k = k, .lda = lda, .ldb = ldb, .ldc = ldc, .sizes = sizes, \
    .alpha = (const void *)alpha, .beta = (const void *)beta, .a = (const void *const *)a,          \
    .b = (const void *const *)b, .c = (void *const *)c, .groups = groups

#define GROUPED(S, suffix, I, T, code)                                                                                 \
    cublasStatus_t cublas##S##gemmGroupedBatched##suffix(SIZES(I), const T alpha[], const T *const a[], const I lda[], \
                                                         const T *const b[], const I ldb[], const T beta[],            \
                                                         T *const c[], const I ldc[], I groups, const I sizes[]) {     \
        struct arrays g = {.call = "cublas" #S "gemmGroupedBatched",                                                   \
                           ARRAYS,                                                                                     \
                           .at = code,                                                                                 \
                           .bt = code,                                                                                 \
                           .ct = code,                                                                                 \
                           .scalar = code,                                                                             \
                           .wide = sizeof(I) == 8};                                                                    \
        return grouped(h, &g);                                                                                         \
    }
GROUPED(S, , int, float, CUDA_R_32F)
GROUPED(S, _64, int64_t, float, CUDA_R_32F)
GROUPED(D, , int, double, CUDA_R_64F)
GROUPED(D, _64, int64_t, double, CUDA_R_64F)

#define GROUPED_EX(suffix, I)                                                                                        \
    cublasStatus_t cublasGemmGroupedBatchedEx##suffix(                                                               \
        SIZES(I), const void *alpha, const void *const a[], cudaDataType_t at, const I lda[], const void *const b[], \
        cudaDataType_t bt, const I ldb[], const void *beta, void *const c[], cudaDataType_t ct, const I ldc[],       \
        I groups, const I sizes[], cublasComputeType_t compute) {                                                    \
        struct arrays g = {.call = "cublasGemmGroupedBatchedEx",                                                     \
                           ARRAYS,                                                                                   \
                           .at = at,                                                                                 \
                           .bt = bt,                                                                                 \
                           .ct = ct,                                                                                 \
                           .compute = compute,                                                                       \
                           .wide = sizeof(I) == 8};                                                                  \
        if (!vgpu_gemm_types(at, bt, ct, compute, &g.scalar)) return CUBLAS_STATUS_NOT_SUPPORTED;                    \
        return grouped(h, &g);                                                                                       \
    }
GROUPED_EX(, int)
GROUPED_EX(_64, int64_t)
