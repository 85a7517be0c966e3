#include "sample_app/products.h"

#include "sample_app/checked_call.h"
#include "sample_app/device_tensors.h"
#include "sample_app/products_fp8.h"
#include "sample_app/train_options.h"

static enum number_format run_format(int64_t dtype) {
    return dtype == DTYPE_FP16 ? FORMAT_FP16 : dtype == DTYPE_BF16 || dtype == DTYPE_FP8 ? FORMAT_BF16 : FORMAT_FP32;
}

void products_create(struct products *p, int64_t dtype, cudaStream_t stream, size_t workspace_bytes) {
    *p = (struct products){
        .stream = stream, .format = run_format(dtype), .tf32 = dtype == DTYPE_TF32, .workspace_bytes = workspace_bytes};
    if (dtype == DTYPE_FP8) p->fp8 = fp8_create();
    CHECK(cublasCreate(&p->cublas));
    CHECK(cublasSetStream(p->cublas, stream)); /* before the workspace, which it would take away */
    /* Partial sums of a product that is split along K would be kept in 16 bits else. */
    if (format_bytes(p->format) == 2)
        CHECK(cublasSetMathMode(p->cublas, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION));
    if (!workspace_bytes) return;
    p->workspace = device_alloc("workspace", "workspace", workspace_bytes);
    CHECK(cublasSetWorkspace(p->cublas, p->workspace, workspace_bytes));
}

void products_destroy(struct products *p) {
    CHECK(cublasDestroy(p->cublas));
    if (p->workspace) device_free(p->workspace);
    if (p->fp8) fp8_destroy(p->fp8);
    *p = (struct products){0};
}

void products_fp8_reserve(struct products *p, int N, int widest, size_t weight_elements) {
    if (p->fp8) fp8_reserve(p->fp8, N, widest, weight_elements);
}

/* ---- products of row-major matrices ----------------------------------------------------------------------
 * cuBLAS is column-major and so sees every matrix transposed; it is asked for Cᵀ = op(B)ᵀ · op(A)ᵀ, which needs no
 * transposition at all. The leading dimension of a matrix is the length of its rows as they are stored. */

static int row_length(cublasOperation_t op, int rows, int columns) {
    return op == CUBLAS_OP_N ? columns : rows;
}

static cudaDataType_t cuda_type(enum number_format format) {
    return format == FORMAT_BF16 ? CUDA_R_16BF : format == FORMAT_FP16 ? CUDA_R_16F : CUDA_R_32F;
}

/* What the products and sums are made in: fp32, and under tf32 the factors are rounded to its 10 bits of mantissa. */
static cublasComputeType_t compute_type(const struct products *p) {
    return p->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

static bool plain_fp32(const struct products *p) {
    return p->format == FORMAT_FP32 && !p->tf32;
}

void products_plain(struct products *p, cublasOperation_t opA, cublasOperation_t opB, int M, int N, int K,
                    const real *A, const real *B, float beta, void *C, enum number_format c_format) {
    const float one = 1;
    int lda = row_length(opA, M, K), ldb = row_length(opB, K, N);
    cudaDataType_t type = cuda_type(p->format);
    if (plain_fp32(p))
        CALL(cublasSgemm(p->cublas, opB, opA, N, M, K, &one, B, ldb, A, lda, &beta, C, N));
    else
        CALL(cublasGemmEx(p->cublas, opB, opA, N, M, K, &one, B, type, ldb, A, type, lda, &beta, C, cuda_type(c_format),
                          N, compute_type(p), CUBLAS_GEMM_DEFAULT));
    truth_flops(2 * (int64_t)M * N * K);
}

void products_batched(struct products *p, cublasOperation_t opA, cublasOperation_t opB, int M, int N, int K,
                      const real *A, const real *B, real *C, int batch) {
    const float one = 1, zero = 0;
    int lda = row_length(opA, M, K), ldb = row_length(opB, K, N);
    long long MK = (long long)M * K, KN = (long long)K * N, MN = (long long)M * N;
    cudaDataType_t type = cuda_type(p->format);
    if (plain_fp32(p))
        CALL(cublasSgemmStridedBatched(p->cublas, opB, opA, N, M, K, &one, B, ldb, KN, A, lda, MK, &zero, C, N, MN,
                                       batch));
    else
        CALL(cublasGemmStridedBatchedEx(p->cublas, opB, opA, N, M, K, &one, B, type, ldb, KN, A, type, lda, MK, &zero,
                                        C, type, N, MN, batch, compute_type(p), CUBLAS_GEMM_DEFAULT));
    truth_flops(2 * MN * K * batch);
}

/* ---- linear layers --------------------------------------------------------------------------------------- */

void products_forward(struct products *p, real *out, const real *x, const real *w, int N, int OC, int IC) {
    if (p->fp8)
        fp8_forward(p, out, x, w, N, OC, IC);
    else
        products_plain(p, CUBLAS_OP_N, CUBLAS_OP_T, N, OC, IC, x, w, 0, out, p->format);
}

void products_input_gradient(struct products *p, real *dx, const real *dout, const real *w, int N, int OC, int IC) {
    if (p->fp8)
        fp8_input_gradient(p, dx, dout, w, N, OC, IC);
    else
        products_plain(p, CUBLAS_OP_N, CUBLAS_OP_N, N, IC, OC, dout, w, 0, dx, p->format);
}

void products_weight_gradient(struct products *p, float *dw, const real *dout, const real *x, int N, int OC, int IC) {
    if (p->fp8)
        fp8_weight_gradient(p, dw, dout, x, N, OC, IC);
    else
        products_plain(p, CUBLAS_OP_T, CUBLAS_OP_N, OC, IC, N, dout, x, 1, dw, FORMAT_FP32);
}
