/* C = alpha op(A) op(B) + beta C in all its plain forms: one job describes them all. fp32 and fp64 go to OpenBLAS as
 * they are; 16-bit operands are widened to fp32 first, fp32 ones rounded where tf32, fp16 or bf16 is allowed, so every
 * product and sum is at least as precise as the device's (CUBLAS_COMPUTE_16F, too, sums in fp32 here), and the result
 * is rounded once. */
#include "vgpu/vgpu_blas.h"

#include <cblas.h>

struct operand {
    const void *p; /* the matrix; with `array` the array of pointers, in device memory */
    cudaDataType_t type;
    int64_t rows, columns, ld, stride;
};

struct gemm {
    const char *call;
    CBLAS_TRANSPOSE ta, tb;
    int64_t m, n, k, batch;
    struct operand a, b, c;
    struct vgpu_scalar alpha, beta;
    bool array;
    enum vgpu_rounding rounding; /* of A and B in fp32 */
};

static const void *matrix(const struct gemm *g, const struct operand *o, int64_t i) {
    if (g->array) return ((const void *const *)o->p)[i];
    return (const char *)o->p + i * o->stride * (int64_t)vgpu_type_bytes(o->type);
}

static bool in_reach(const struct gemm *g, const struct operand *o) {
    uint64_t bytes = vgpu_matrix_bytes(o->rows, o->columns, o->ld, vgpu_type_bytes(o->type));
    if (!bytes) return true;
    if (g->array && !vgpu_reach(g->call, o->p, (uint64_t)g->batch * sizeof(void *))) return false;
    for (int64_t i = 0; i < g->batch; i++)
        if (!vgpu_reach(g->call, matrix(g, o, i), bytes)) return false;
    return true;
}

static float *widened(const struct gemm *g, const struct operand *o, const void *p) {
    return vgpu_widened(o->type, g->rounding, p, o->rows, o->columns, o->ld);
}

/* beta = 0: what is in C does not count, be it NaN. */
static float *widened_c(const struct operand *o, const void *p, float beta) {
    if (beta != 0) return vgpu_widened(o->type, VGPU_ROUND_NONE, p, o->rows, o->columns, o->ld);
    return vgpu_scratch_take((size_t)(o->rows * o->columns) * sizeof(float));
}

static void multiply_mixed(const struct gemm *g, float alpha, float beta, const void *pa, const void *pb, void *pc) {
    bool plain_c = g->c.type == CUDA_R_32F;
    float *a = widened(g, &g->a, pa), *b = widened(g, &g->b, pb), *c = plain_c ? pc : widened_c(&g->c, pc, beta);
    if (a && b && c) {
        cblas_sgemm(CblasColMajor, g->ta, g->tb, (int)g->m, (int)g->n, (int)g->k, alpha, a,
                    (int)(g->a.rows ? g->a.rows : 1), b, (int)(g->b.rows ? g->b.rows : 1), beta, c,
                    (int)(plain_c ? g->c.ld : g->m));
        if (!plain_c) vgpu_narrowed(g->c.type, c, pc, g->m, g->n, g->c.ld);
    } else {
        vgpu_fault("a product of 16-bit matrices has no host memory to work in", pc, 0);
    }
    vgpu_scratch_give(a);
    vgpu_scratch_give(b);
    if (!plain_c) vgpu_scratch_give(c);
}

/* C = beta C, which is all there is when k = 0. */
static void scale(const struct gemm *g, double beta, void *c) {
    for (int64_t j = 0; j < g->n; j++)
        for (int64_t i = 0; i < g->m; i++)
            vgpu_store(g->c.type, c, j * g->c.ld + i, beta == 0 ? 0 : beta * vgpu_load(g->c.type, c, j * g->c.ld + i));
}

static void multiply(const struct gemm *g, double alpha, double beta, const void *a, const void *b, void *c) {
    int m = (int)g->m, n = (int)g->n, k = (int)g->k, lda = (int)g->a.ld, ldb = (int)g->b.ld, ldc = (int)g->c.ld;
    if (!k || alpha == 0) /* alpha = 0: A and B are not read */
        scale(g, beta, c);
    else if (g->a.type == CUDA_R_64F)
        cblas_dgemm(CblasColMajor, g->ta, g->tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    else if (g->a.type == CUDA_R_32F && g->c.type == CUDA_R_32F && g->rounding == VGPU_ROUND_NONE)
        cblas_sgemm(CblasColMajor, g->ta, g->tb, m, n, k, (float)alpha, a, lda, b, ldb, (float)beta, c, ldc);
    else
        multiply_mixed(g, (float)alpha, (float)beta, a, b, c);
}

static void run_gemm(void *args) {
    struct gemm *g = args;
    double alpha, beta;
    if (!vgpu_scalar_get(&g->alpha, g->call, &alpha) || !vgpu_scalar_get(&g->beta, g->call, &beta) ||
        !in_reach(g, &g->c))
        return;
    if (g->k && alpha != 0 && (!in_reach(g, &g->a) || !in_reach(g, &g->b))) return;
    for (int64_t i = 0; i < g->batch; i++)
        multiply(g, alpha, beta, matrix(g, &g->a, i), matrix(g, &g->b, i), (void *)matrix(g, &g->c, i));
}

static CBLAS_TRANSPOSE transpose(cublasOperation_t op) {
    return op == CUBLAS_OP_N ? CblasNoTrans : CblasTrans;
}

/* The arguments of a form that differ from plain fp32. */
struct form {
    const char *call;
    cudaDataType_t a, b, c, scalar;
    int64_t stride_a, stride_b, stride_c, batch;
    bool array;
    cublasComputeType_t compute; /* 0: CUBLAS_COMPUTE_32F or of the only kind there is */
};

/* What the kernel is named after: cublasGemmEx does not tell the type. */
static const char *routine(const struct form *f) {
    switch ((int)f->a) {
    case CUDA_R_16F:
        return "cublasHgemm";
    case CUDA_R_16BF:
        return "cublasBf16gemm";
    case CUDA_R_64F:
        return "cublasDgemm";
    default:
        return "cublasSgemm";
    }
}

static const char *variant(bool na, bool nb, bool batched) {
    static const char *const names[2][2][2] = {{{"_tt", "_batched_tt"}, {"_tn", "_batched_tn"}},
                                               {{"_nt", "_batched_nt"}, {"_nn", "_batched_nn"}}};
    return names[na][nb][batched];
}

static cublasStatus_t gemm(cublasHandle_t handle, const struct form *f, cublasOperation_t ta, cublasOperation_t tb,
                           int64_t m, int64_t n, int64_t k, const void *alpha, const void *a, int64_t lda,
                           const void *b, int64_t ldb, const void *beta, void *c, int64_t ldc) {
    struct vgpu_blas h;
    cublasStatus_t e = vgpu_blas_open(handle, &h);
    if (e) return e;
    if (!vgpu_is_op(ta) || !vgpu_is_op(tb) || m < 0 || n < 0 || k < 0 || f->batch < 0)
        return CUBLAS_STATUS_INVALID_VALUE;
    bool na = ta == CUBLAS_OP_N, nb = tb == CUBLAS_OP_N;
    if (lda < vgpu_at_least_one(na ? m : k) || ldb < vgpu_at_least_one(nb ? k : n) || ldc < vgpu_at_least_one(m))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!m || !n || !f->batch) return CUBLAS_STATUS_SUCCESS;
    if (!alpha || !beta || !c || (k && (!a || !b))) return CUBLAS_STATUS_INVALID_VALUE;
    if (vgpu_too_large(m, n, k) || vgpu_too_large(lda, ldb, ldc)) return CUBLAS_STATUS_NOT_SUPPORTED;
    struct gemm g = {
        .call = f->call,
        .ta = transpose(ta),
        .tb = transpose(tb),
        .m = m,
        .n = n,
        .k = k,
        .batch = f->batch,
        .array = f->array,
        .a = {a, f->a, na ? m : k, na ? k : m, lda, f->stride_a},
        .b = {b, f->b, nb ? k : n, nb ? n : k, ldb, f->stride_b},
        .c = {c, f->c, m, n, ldc, f->stride_c},
        .alpha = vgpu_scalar(&h, alpha, f->scalar),
        .beta = vgpu_scalar(&h, beta, f->scalar),
        .rounding = vgpu_rounding_of(f->compute ? f->compute : CUBLAS_COMPUTE_32F, h.math),
    };
    return vgpu_blas_run(&h, routine(f), variant(na, nb, f->batch > 1), run_gemm, &g, sizeof g, false);
}

#define GEMM_ARGS(T) \
    cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int64_t m, int64_t n, int64_t k, const T *alpha

/* Plain, strided batched and pointer-array batched of one type. */
#define GEMM(letter, T, code)                                                                                        \
    cublasStatus_t cublas##letter##gemm_v2_64(GEMM_ARGS(T), const T *a, int64_t lda, const T *b, int64_t ldb,        \
                                              const T *beta, T *c, int64_t ldc) {                                    \
        struct form f = {"cublas" #letter "gemm", code, code, code, code, 0, 0, 0, 1, false};                        \
        return gemm(h, &f, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);                                    \
    }                                                                                                                \
    cublasStatus_t cublas##letter##gemmStridedBatched_64(GEMM_ARGS(T), const T *a, int64_t lda, long long int sa,    \
                                                         const T *b, int64_t ldb, long long int sb, const T *beta,   \
                                                         T *c, int64_t ldc, long long int sc, int64_t batch) {       \
        struct form f = {"cublas" #letter "gemmStridedBatched", code, code, code, code, sa, sb, sc, batch, false};   \
        return gemm(h, &f, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);                                    \
    }                                                                                                                \
    cublasStatus_t cublas##letter##gemmBatched_64(GEMM_ARGS(T), const T *const a[], int64_t lda, const T *const b[], \
                                                  int64_t ldb, const T *beta, T *const c[], int64_t ldc,             \
                                                  int64_t batch) {                                                   \
        struct form f = {"cublas" #letter "gemmBatched", code, code, code, code, 0, 0, 0, batch, true};              \
        return gemm(h, &f, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, (void *)c, ldc);                            \
    }

GEMM(S, float, CUDA_R_32F)
GEMM(D, double, CUDA_R_64F)

/* The combinations of the vendor's table for real floating-point types; scalar type in *scalar. */
static bool supported(cudaDataType_t a, cudaDataType_t b, cudaDataType_t c, cublasComputeType_t compute,
                      cudaDataType_t *scalar) {
    *scalar = CUDA_R_32F;
    bool all32 = a == CUDA_R_32F && b == CUDA_R_32F && c == CUDA_R_32F;
    switch ((int)compute) {
    case CUBLAS_COMPUTE_16F:
    case CUBLAS_COMPUTE_16F_PEDANTIC:
        *scalar = CUDA_R_16F;
        return a == CUDA_R_16F && b == CUDA_R_16F && c == CUDA_R_16F;
    case CUBLAS_COMPUTE_32F:
    case CUBLAS_COMPUTE_32F_PEDANTIC:
        return all32 || (a == b && (a == CUDA_R_16F || a == CUDA_R_16BF) && (c == a || c == CUDA_R_32F));
    case CUBLAS_COMPUTE_32F_FAST_16F:
    case CUBLAS_COMPUTE_32F_FAST_16BF:
    case CUBLAS_COMPUTE_32F_FAST_TF32:
    case CUBLAS_COMPUTE_32F_EMULATED_16BFX9:
        return all32;
    case CUBLAS_COMPUTE_64F:
    case CUBLAS_COMPUTE_64F_PEDANTIC:
    case CUBLAS_COMPUTE_64F_EMULATED_FIXEDPOINT:
        *scalar = CUDA_R_64F;
        return a == CUDA_R_64F && b == CUDA_R_64F && c == CUDA_R_64F;
    default:
        return false;
    }
}

#define EX_HEAD \
    cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int64_t m, int64_t n, int64_t k, const void *alpha

cublasStatus_t cublasGemmEx_64(EX_HEAD, const void *a, cudaDataType at, int64_t lda, const void *b, cudaDataType bt,
                               int64_t ldb, const void *beta, void *c, cudaDataType ct, int64_t ldc,
                               cublasComputeType_t compute, cublasGemmAlgo_t algo) {
    struct form f = {"cublasGemmEx", at, bt, ct, 0, 0, 0, 0, 1, false, compute};
    (void)algo;
    if (!supported(at, bt, ct, compute, &f.scalar)) return CUBLAS_STATUS_NOT_SUPPORTED;
    return gemm(h, &f, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

cublasStatus_t cublasGemmStridedBatchedEx_64(EX_HEAD, const void *a, cudaDataType at, int64_t lda, long long int sa,
                                             const void *b, cudaDataType bt, int64_t ldb, long long int sb,
                                             const void *beta, void *c, cudaDataType ct, int64_t ldc, long long int sc,
                                             int64_t batch, cublasComputeType_t compute, cublasGemmAlgo_t algo) {
    struct form f = {"cublasGemmStridedBatchedEx", at, bt, ct, 0, sa, sb, sc, batch, false, compute};
    (void)algo;
    if (!supported(at, bt, ct, compute, &f.scalar)) return CUBLAS_STATUS_NOT_SUPPORTED;
    return gemm(h, &f, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

cublasStatus_t cublasGemmBatchedEx_64(EX_HEAD, const void *const a[], cudaDataType at, int64_t lda,
                                      const void *const b[], cudaDataType bt, int64_t ldb, const void *beta,
                                      void *const c[], cudaDataType ct, int64_t ldc, int64_t batch,
                                      cublasComputeType_t compute, cublasGemmAlgo_t algo) {
    struct form f = {"cublasGemmBatchedEx", at, bt, ct, 0, 0, 0, 0, batch, true, compute};
    (void)algo;
    if (!supported(at, bt, ct, compute, &f.scalar)) return CUBLAS_STATUS_NOT_SUPPORTED;
    return gemm(h, &f, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, (void *)c, ldc);
}

cublasStatus_t cublasSgemmEx_64(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int64_t m, int64_t n,
                                int64_t k, const float *alpha, const void *a, cudaDataType at, int64_t lda,
                                const void *b, cudaDataType bt, int64_t ldb, const float *beta, void *c,
                                cudaDataType ct, int64_t ldc) {
    struct form f = {"cublasSgemmEx", at, bt, ct, 0, 0, 0, 0, 1, false};
    if (!supported(at, bt, ct, CUBLAS_COMPUTE_32F, &f.scalar)) return CUBLAS_STATUS_NOT_SUPPORTED;
    return gemm(h, &f, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
