/* C = alpha op(A) op(B) + beta C in all its forms. fp32, fp64 and complex go to OpenBLAS as they are; 16-bit operands
 * are widened to fp32 first, fp32 ones rounded where tf32, fp16 or bf16 is allowed, so every product and sum is at
 * least as precise as the device's (CUBLAS_COMPUTE_16F, too, sums in fp32 here), and the result is rounded once. 8-bit
 * integers are multiplied and summed in fp64, which is exact. gemm3m is gemm: fewer products would be less precise. */
#include "vgpu/vgpu_blas_gemm.h"

#include <stdlib.h>
#include <string.h>

static int64_t rows_of(const struct vgpu_call *c, int i) {
    return !i ? (c->ta == CUBLAS_OP_N ? c->m : c->k) : (c->tb == CUBLAS_OP_N ? c->k : c->n);
}

static int64_t columns_of(const struct vgpu_call *c, int i) {
    return !i ? (c->ta == CUBLAS_OP_N ? c->k : c->m) : (c->tb == CUBLAS_OP_N ? c->n : c->k);
}

static bool is_byte(cudaDataType_t t) {
    return t == CUDA_R_8I || t == CUDA_C_8I;
}

/* ---- what one problem computes ---- */

#define PRODUCT(l, al, be) \
    cblas_##l##gemm(CblasColMajor, ta, tb, (int)c->m, (int)c->n, (int)c->k, al, a, lda, b, ldb, be, to, ldc)

/* OpenBLAS's operands, of the call's type. */
static void multiply(const struct vgpu_call *c, const struct vgpu_value *alpha, const void *a, int64_t a_ld,
                     const void *b, int64_t b_ld, const struct vgpu_value *beta, void *to, int64_t c_ld) {
    CBLAS_TRANSPOSE ta = vgpu_trans(c, c->ta), tb = vgpu_trans(c, c->tb);
    int lda = (int)vgpu_at_least_one(a_ld), ldb = (int)vgpu_at_least_one(b_ld), ldc = (int)c_ld;
    if (c->type == CUDA_R_64F)
        PRODUCT(d, alpha->d, beta->d);
    else if (vgpu_is_complex(c->type))
        VGPU_FOR_COMPLEX(c, PRODUCT);
    else
        PRODUCT(s, alpha->s, beta->s);
}

/* Operand i as fp32, or complex fp32, without gaps. */
static float *widened(const struct vgpu_call *c, void *const *p, int i) {
    cudaDataType_t type = vgpu_call_type(c, i);
    int64_t parts = type == CUDA_C_32F || type == CUDA_C_8I ? 2 : 1;
    cudaDataType_t part = type == CUDA_C_32F ? CUDA_R_32F : type == CUDA_C_8I ? CUDA_R_8I : type;
    return vgpu_widened(part, c->rounding, p[i], parts * rows_of(c, i), columns_of(c, i), parts * c->ld[i]);
}

/* beta = 0: what is in C does not count, be it NaN. */
static float *widened_c(const struct vgpu_call *c, void *p, bool read) {
    if (read) return vgpu_widened(vgpu_call_type(c, 2), VGPU_ROUND_NONE, p, c->m, c->n, c->ld[2]);
    return vgpu_scratch_take((size_t)(c->m * c->n) * sizeof(float));
}

static void without_memory(void *to) {
    vgpu_fault("a product of matrices has no host memory to work in", to, 0);
}

static void multiply_mixed(const struct vgpu_call *c, void *const *p, const struct vgpu_value *alpha,
                           const struct vgpu_value *beta) {
    cudaDataType_t ct = vgpu_call_type(c, 2);
    bool plain_c = ct == CUDA_R_32F || ct == CUDA_C_32F;
    float *a = widened(c, p, 0), *b = widened(c, p, 1), *to = plain_c ? p[2] : widened_c(c, p[2], beta->d != 0);
    if (a && b && to) {
        multiply(c, alpha, a, rows_of(c, 0), b, rows_of(c, 1), beta, to, plain_c ? c->ld[2] : c->m);
        if (!plain_c) vgpu_narrowed(ct, to, p[2], c->m, c->n, c->ld[2]);
    } else {
        without_memory(p[2]);
    }
    vgpu_scratch_give(a);
    vgpu_scratch_give(b);
    if (!plain_c) vgpu_scratch_give(to);
}

/* 8-bit integers as fp64, without gaps. */
static double *as_double(const struct vgpu_call *c, void *const *p, int i) {
    int64_t rows = rows_of(c, i), columns = columns_of(c, i);
    double *out = vgpu_scratch_take((size_t)(rows * columns) * sizeof *out);
    for (int64_t j = 0; out && j < columns; j++)
        for (int64_t k = 0; k < rows; k++) out[j * rows + k] = ((const int8_t *)p[i])[j * c->ld[i] + k];
    return out;
}

static void multiply_bytes(const struct vgpu_call *c, void *const *p, const struct vgpu_value *alpha,
                           const struct vgpu_value *beta) {
    struct vgpu_call wide = *c;
    struct vgpu_value one = vgpu_value(1, 0), zero = vgpu_value(0, 0);
    cudaDataType_t ct = vgpu_call_type(c, 2);
    double *a = as_double(c, p, 0), *b = as_double(c, p, 1);
    double *sums = vgpu_scratch_take((size_t)(c->m * c->n) * sizeof *sums);
    wide.type = CUDA_R_64F;
    if (a && b && sums) {
        multiply(&wide, &one, a, rows_of(c, 0), b, rows_of(c, 1), &zero, sums, c->m);
        for (int64_t j = 0; j < c->n; j++)
            for (int64_t i = 0; i < c->m; i++) {
                double old = beta->d == 0 ? 0 : beta->d * vgpu_load(ct, p[2], j * c->ld[2] + i);
                vgpu_store(ct, p[2], j * c->ld[2] + i, alpha->d * sums[j * c->m + i] + old);
            }
    } else {
        without_memory(p[2]);
    }
    vgpu_scratch_give(a);
    vgpu_scratch_give(b);
    vgpu_scratch_give(sums);
}

static void run_gemm(const struct vgpu_call *c, void *const *p, const struct vgpu_value *alpha,
                     const struct vgpu_value *beta) {
    cudaDataType_t at = vgpu_call_type(c, 0), ct = vgpu_call_type(c, 2);
    bool single = (at == CUDA_R_32F && ct == CUDA_R_32F) || at == CUDA_C_32F;
    if (at == CUDA_R_8I)
        multiply_bytes(c, p, alpha, beta);
    else if (at == CUDA_R_64F || at == CUDA_C_64F || (single && c->rounding == VGPU_ROUND_NONE))
        multiply(c, alpha, p[0], c->ld[0], p[1], c->ld[1], beta, p[2], c->ld[2]);
    else
        multiply_mixed(c, p, alpha, beta);
}

/* ---- the call ---- */

/* What the kernel is named after: cublasGemmEx does not tell the type. */
static const char *kernel(cudaDataType_t type) {
    switch ((int)type) {
    case CUDA_R_16F:
        return "cublasHgemm";
    case CUDA_R_16BF:
        return "cublasBf16gemm";
    case CUDA_R_64F:
        return "cublasDgemm";
    case CUDA_C_32F:
        return "cublasCgemm";
    case CUDA_C_64F:
        return "cublasZgemm";
    case CUDA_R_8I:
    case CUDA_C_8I:
        return "cublasInt8gemm";
    default:
        return "cublasSgemm";
    }
}

static const char *variant(bool na, bool nb, bool batched) {
    static const char *const names[2][2][2] = {{{"_tt", "_batched_tt"}, {"_tn", "_batched_tn"}},
                                               {{"_nt", "_batched_nt"}, {"_nn", "_batched_nn"}}};
    return names[na][nb][batched];
}

/* The unit of a device that would multiply. */
static enum vgpu_format format(const struct vgpu_gemm *g, enum vgpu_rounding rounding) {
    static const enum vgpu_format rounded[] = {[VGPU_ROUND_NONE] = VGPU_FP32,
                                               [VGPU_ROUND_TF32] = VGPU_TF32,
                                               [VGPU_ROUND_FP16] = VGPU_FP16,
                                               [VGPU_ROUND_BF16] = VGPU_BF16};
    switch ((int)g->a) {
    case CUDA_R_64F:
    case CUDA_C_64F:
        return VGPU_FP64_MATRIX;
    case CUDA_R_16F:
        return g->scalar == CUDA_R_16F ? VGPU_FP16_ACC16 : VGPU_FP16;
    case CUDA_R_16BF:
        return VGPU_BF16;
    case CUDA_R_8I:
    case CUDA_C_8I:
        return VGPU_INT8;
    default:
        return rounded[rounding];
    }
}

struct vgpu_call vgpu_gemm_call(const struct vgpu_gemm *g, cublasMath_t math) {
    enum vgpu_rounding rounding = vgpu_rounding_of(g->compute ? g->compute : CUBLAS_COMPUTE_32F, math);
    bool is_complex = g->a == CUDA_C_8I || vgpu_is_complex(g->a);
    bool wide = is_byte(g->a) || (g->a != CUDA_R_32F && g->a != CUDA_C_32F);
    return (struct vgpu_call){
        .call = g->call,
        .kernel = kernel(g->a),
        .variant = variant(g->ta == CUBLAS_OP_N, g->tb == CUBLAS_OP_N, g->batched && g->batch > 1),
        .routine = VGPU_GEMM,
        .run = run_gemm,
        .type = is_complex ? g->c : g->a,
        .a_type = VGPU_AS(g->a),
        .b_type = VGPU_AS(g->b),
        .c_type = VGPU_AS(g->c),
        .alpha_type = VGPU_AS(g->scalar),
        .rounding = wide ? VGPU_ROUND_NONE : rounding,
        .format = format(g, rounding),
        .ta = g->ta,
        .tb = g->tb,
        .m = g->m,
        .n = g->n,
        .k = g->k,
        .batched = g->batched,
        .array = g->array,
        .batch = g->batch,
        .p = {(void *)g->pa, (void *)g->pb, (void *)g->pc},
        .ld = {g->lda, g->ldb, g->ldc},
        .stride = {g->sa, g->sb, g->sc},
    };
}

cublasStatus_t vgpu_gemm(cublasHandle_t handle, const struct vgpu_gemm *g, const void *alpha, const void *beta) {
    struct vgpu_blas h;
    cublasStatus_t e = vgpu_blas_open(handle, &h);
    if (e) return e;
    struct vgpu_call c = vgpu_gemm_call(g, h.math);
    return vgpu_call(handle, &c, alpha, beta);
}

/* The combinations of the vendor's table; scalar type in *scalar. */
bool vgpu_gemm_types(cudaDataType_t a, cudaDataType_t b, cudaDataType_t c, cublasComputeType_t compute,
                     cudaDataType_t *scalar) {
    bool all32 = a == CUDA_R_32F && b == CUDA_R_32F && c == CUDA_R_32F;
    bool complex32 = a == b && (a == CUDA_C_32F || a == CUDA_C_8I) && c == CUDA_C_32F;
    *scalar = complex32 ? CUDA_C_32F : CUDA_R_32F;
    switch ((int)compute) {
    case CUBLAS_COMPUTE_16F:
    case CUBLAS_COMPUTE_16F_PEDANTIC:
        *scalar = CUDA_R_16F;
        return a == CUDA_R_16F && b == CUDA_R_16F && c == CUDA_R_16F;
    case CUBLAS_COMPUTE_32I:
    case CUBLAS_COMPUTE_32I_PEDANTIC:
        *scalar = CUDA_R_32I;
        return a == CUDA_R_8I && b == CUDA_R_8I && c == CUDA_R_32I;
    case CUBLAS_COMPUTE_32F:
    case CUBLAS_COMPUTE_32F_PEDANTIC:
        return all32 || complex32 || (a == b && a == CUDA_R_8I && c == CUDA_R_32F) ||
               (a == b && (a == CUDA_R_16F || a == CUDA_R_16BF) && (c == a || c == CUDA_R_32F));
    case CUBLAS_COMPUTE_32F_FAST_16F:
    case CUBLAS_COMPUTE_32F_FAST_16BF:
    case CUBLAS_COMPUTE_32F_FAST_TF32:
    case CUBLAS_COMPUTE_32F_EMULATED_16BFX9:
        return all32 || (complex32 && a == CUDA_C_32F);
    case CUBLAS_COMPUTE_64F:
    case CUBLAS_COMPUTE_64F_PEDANTIC:
    case CUBLAS_COMPUTE_64F_EMULATED_FIXEDPOINT:
        *scalar = a == CUDA_C_64F ? CUDA_C_64F : CUDA_R_64F;
        return (a == CUDA_R_64F || a == CUDA_C_64F) && b == a && c == a;
    default:
        return false;
    }
}

/* ---- one type ---- */

#define ARGUMENTS(I, T) cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, I m, I n, I k, const T *alpha
#define SHAPE .ta = ta, .tb = tb, .m = m, .n = n, .k = k, .lda = lda, .ldb = ldb, .ldc = ldc
#define TYPES(code) .a = code, .b = code, .c = code, .scalar = code

#define GEMM(name, suffix, T, code)                                                                              \
    cublasStatus_t cublas##name##suffix(ARGUMENTS(int64_t, T), const T *a, int64_t lda, const T *b, int64_t ldb, \
                                        const T *beta, T *c, int64_t ldc) {                                      \
        struct vgpu_gemm g = {.call = "cublas" #name, TYPES(code), SHAPE, .pa = a, .pb = b, .pc = c};            \
        return vgpu_gemm(h, &g, alpha, beta);                                                                    \
    }

#define GEMM_BATCHED(name, T, code)                                                                                    \
    cublasStatus_t cublas##name##StridedBatched_64(ARGUMENTS(int64_t, T), const T *a, int64_t lda, long long int sa,   \
                                                   const T *b, int64_t ldb, long long int sb, const T *beta, T *c,     \
                                                   int64_t ldc, long long int sc, int64_t batch) {                     \
        struct vgpu_gemm g = {.call = "cublas" #name "StridedBatched",                                                 \
                              TYPES(code),                                                                             \
                              SHAPE,                                                                                   \
                              .pa = a,                                                                                 \
                              .pb = b,                                                                                 \
                              .pc = c,                                                                                 \
                              .sa = sa,                                                                                \
                              .sb = sb,                                                                                \
                              .sc = sc,                                                                                \
                              .batched = true,                                                                         \
                              .batch = batch};                                                                         \
        return vgpu_gemm(h, &g, alpha, beta);                                                                          \
    }                                                                                                                  \
    cublasStatus_t cublas##name##Batched_64(ARGUMENTS(int64_t, T), const T *const a[], int64_t lda,                    \
                                            const T *const b[], int64_t ldb, const T *beta, T *const c[], int64_t ldc, \
                                            int64_t batch) {                                                           \
        struct vgpu_gemm g = {.call = "cublas" #name "Batched",                                                        \
                              TYPES(code),                                                                             \
                              SHAPE,                                                                                   \
                              .pa = a,                                                                                 \
                              .pb = b,                                                                                 \
                              .pc = c,                                                                                 \
                              .batched = true,                                                                         \
                              .array = true,                                                                           \
                              .batch = batch};                                                                         \
        return vgpu_gemm(h, &g, alpha, beta);                                                                          \
    }

GEMM(Sgemm, _v2_64, float, CUDA_R_32F)
GEMM(Dgemm, _v2_64, double, CUDA_R_64F)
GEMM(Cgemm, _v2_64, cuComplex, CUDA_C_32F)
GEMM(Zgemm, _v2_64, cuDoubleComplex, CUDA_C_64F)
GEMM(Hgemm, _64, vgpu_half, CUDA_R_16F)
GEMM(Cgemm3m, _64, cuComplex, CUDA_C_32F)
GEMM(Zgemm3m, _64, cuDoubleComplex, CUDA_C_64F)
GEMM_BATCHED(Sgemm, float, CUDA_R_32F)
GEMM_BATCHED(Dgemm, double, CUDA_R_64F)
GEMM_BATCHED(Cgemm, cuComplex, CUDA_C_32F)
GEMM_BATCHED(Zgemm, cuDoubleComplex, CUDA_C_64F)
GEMM_BATCHED(Hgemm, vgpu_half, CUDA_R_16F)
GEMM_BATCHED(Cgemm3m, cuComplex, CUDA_C_32F)

/* ---- any types ---- */

#define EX_TYPES .a = at, .b = bt, .c = ct

cublasStatus_t cublasGemmEx_64(ARGUMENTS(int64_t, void), const void *a, cudaDataType at, int64_t lda, const void *b,
                               cudaDataType bt, int64_t ldb, const void *beta, void *c, cudaDataType ct, int64_t ldc,
                               cublasComputeType_t compute, cublasGemmAlgo_t algo) {
    struct vgpu_gemm g = {.call = "cublasGemmEx", EX_TYPES, SHAPE, .pa = a, .pb = b, .pc = c, .compute = compute};
    (void)algo;
    if (!vgpu_gemm_types(at, bt, ct, compute, &g.scalar)) return CUBLAS_STATUS_NOT_SUPPORTED;
    return vgpu_gemm(h, &g, alpha, beta);
}

cublasStatus_t cublasGemmStridedBatchedEx_64(ARGUMENTS(int64_t, void), const void *a, cudaDataType at, int64_t lda,
                                             long long int sa, const void *b, cudaDataType bt, int64_t ldb,
                                             long long int sb, const void *beta, void *c, cudaDataType ct, int64_t ldc,
                                             long long int sc, int64_t batch, cublasComputeType_t compute,
                                             cublasGemmAlgo_t algo) {
    struct vgpu_gemm g = {.call = "cublasGemmStridedBatchedEx",
                          EX_TYPES,
                          SHAPE,
                          .pa = a,
                          .pb = b,
                          .pc = c,
                          .sa = sa,
                          .sb = sb,
                          .sc = sc,
                          .batched = true,
                          .batch = batch,
                          .compute = compute};
    (void)algo;
    if (!vgpu_gemm_types(at, bt, ct, compute, &g.scalar)) return CUBLAS_STATUS_NOT_SUPPORTED;
    return vgpu_gemm(h, &g, alpha, beta);
}

cublasStatus_t cublasGemmBatchedEx_64(ARGUMENTS(int64_t, void), const void *const a[], cudaDataType at, int64_t lda,
                                      const void *const b[], cudaDataType bt, int64_t ldb, const void *beta,
                                      void *const c[], cudaDataType ct, int64_t ldc, int64_t batch,
                                      cublasComputeType_t compute, cublasGemmAlgo_t algo) {
    struct vgpu_gemm g = {.call = "cublasGemmBatchedEx",
                          EX_TYPES,
                          SHAPE,
                          .pa = a,
                          .pb = b,
                          .pc = c,
                          .batched = true,
                          .array = true,
                          .batch = batch,
                          .compute = compute};
    (void)algo;
    if (!vgpu_gemm_types(at, bt, ct, compute, &g.scalar)) return CUBLAS_STATUS_NOT_SUPPORTED;
    return vgpu_gemm(h, &g, alpha, beta);
}

#define EX_OF_ONE(name, suffix, I, T, code)                                                                       \
    cublasStatus_t cublas##name##suffix(ARGUMENTS(I, T), const void *a, cudaDataType at, I lda, const void *b,    \
                                        cudaDataType bt, I ldb, const T *beta, void *c, cudaDataType ct, I ldc) { \
        struct vgpu_gemm g = {.call = "cublas" #name, EX_TYPES, SHAPE, .pa = a, .pb = b, .pc = c};                \
        if (!vgpu_gemm_types(at, bt, ct, CUBLAS_COMPUTE_32F, &g.scalar) || g.scalar != code)                      \
            return CUBLAS_STATUS_NOT_SUPPORTED;                                                                   \
        return vgpu_gemm(h, &g, alpha, beta);                                                                     \
    }
EX_OF_ONE(SgemmEx, _64, int64_t, float, CUDA_R_32F)
EX_OF_ONE(CgemmEx, _64, int64_t, cuComplex, CUDA_C_32F)
EX_OF_ONE(Cgemm3mEx, _64, int64_t, cuComplex, CUDA_C_32F)
