/* cuBLAS calls in all forms that the recorder tells apart, each with numbers of its own. Operands are made-up
 * addresses: the test's library does not touch them. */
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <stdint.h>

#define P(n) ((void *)(uintptr_t)(n))
enum { A = 0x1000, B = 0x2000, C = 0x3000 };
static const float one = 1, zero = 0, half = 0.5f;
static const double done = 1, dzero = 0;
static const cuComplex cone = {1, 0}, ci = {0, 1};
static const cuDoubleComplex zone = {1, 0}, zzero = {0, 0};
static const int32_t ione = 1, izero = 0;

static void gemms(cublasHandle_t h) {
    unsigned short hone = 0x3c00, hzero = 0x8000; /* 1.0 and -0.0 */
    cublasSgemm(h, CUBLAS_OP_N, CUBLAS_OP_T, 2, 3, 4, &one, P(A), 5, P(B), 6, &zero, P(C), 7);
    cublasDgemm(h, CUBLAS_OP_T, CUBLAS_OP_N, 12, 13, 14, &done, P(A), 15, P(B), 16, &done, P(C), 17);
    cublasCgemm(h, CUBLAS_OP_C, CUBLAS_OP_N, 2, 3, 4, &ci, P(A), 5, P(B), 6, &cone, P(C), 7);
    cublasZgemm3m(h, CUBLAS_OP_N, CUBLAS_OP_N, 2, 3, 4, &zone, P(A), 5, P(B), 6, &zzero, P(C), 7);
    cublasSgemm_64(h, CUBLAS_OP_N, CUBLAS_OP_N, 1ll << 33, 3, 4, &half, P(A), 1ll << 33, P(B), 6, &zero, P(C),
                   1ll << 33);
    cublasGemmEx(h, CUBLAS_OP_N, CUBLAS_OP_N, 2, 3, 4, &one, P(A), CUDA_R_16BF, 5, P(B), CUDA_R_16F, 6, &zero, P(C),
                 CUDA_R_32F, 7, CUBLAS_COMPUTE_32F_FAST_TF32, CUBLAS_GEMM_DEFAULT_TENSOR_OP);
    cublasGemmEx(h, CUBLAS_OP_N, CUBLAS_OP_N, 2, 3, 4, &hone, P(A), CUDA_R_16F, 5, P(B), CUDA_R_16F, 6, &hzero, P(C),
                 CUDA_R_16F, 7, CUBLAS_COMPUTE_16F, CUBLAS_GEMM_DEFAULT);
    cublasGemmEx(h, CUBLAS_OP_N, CUBLAS_OP_N, 2, 3, 4, &ione, P(A), CUDA_R_8I, 5, P(B), CUDA_R_8I, 6, &izero, P(C),
                 CUDA_R_32I, 7, CUBLAS_COMPUTE_32I, CUBLAS_GEMM_DEFAULT);
    cublasSgemmStridedBatched(h, CUBLAS_OP_N, CUBLAS_OP_N, 2, 3, 4, &one, P(A), 5, 100, P(B), 6, 0, &one, P(C), 7, 300,
                              9);
    cublasGemmStridedBatchedEx(h, CUBLAS_OP_N, CUBLAS_OP_N, 2, 3, 4, &done, P(A), CUDA_R_64F, 5, 100, P(B), CUDA_R_64F,
                               6, 200, &dzero, P(C), CUDA_R_64F, 7, 300, 8, CUBLAS_COMPUTE_64F, CUBLAS_GEMM_DEFAULT);
    cublasDgemmBatched(h, CUBLAS_OP_N, CUBLAS_OP_N, 2, 3, 4, &done, P(A), 5, P(B), 6, &dzero, P(C), 7, 10);
    cublasGemmBatchedEx(h, CUBLAS_OP_N, CUBLAS_OP_N, 2, 3, 4, &one, P(A), CUDA_R_8F_E4M3, 5, P(B), CUDA_R_8F_E5M2, 6,
                        &zero, P(C), CUDA_R_16BF, 7, 11, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
}

static void grouped(cublasHandle_t h) {
    cublasOperation_t ta[] = {CUBLAS_OP_N, CUBLAS_OP_T, CUBLAS_OP_N}, tb[] = {CUBLAS_OP_T, CUBLAS_OP_N, CUBLAS_OP_N};
    int m[] = {2, 3, 4}, n[] = {5, 6, 7}, k[] = {8, 9, 10}, lda[] = {11, 12, 13}, ldb[] = {14, 15, 16},
        ldc[] = {17, 18, 19}, size[] = {3, 1, 2};
    float alpha[] = {1, 0, 2}, beta[] = {0, 1, 2};
    cublasSgemmGroupedBatched(h, ta, tb, m, n, k, alpha, P(A), lda, P(B), ldb, beta, P(C), ldc, 3, size);
}

static void level_1(cublasHandle_t h) {
    static float result; /* host */
    cublasSaxpy(h, 100, &half, P(A), 2, P(B), 3);
    cublasAxpyEx(h, 101, &one, CUDA_R_32F, P(A), CUDA_R_16BF, 1, P(B), CUDA_R_16F, 1, CUDA_R_32F);
    cublasSdot(h, 102, P(A), 1, P(B), 2, &result);
    cublasCdotu(h, 103, P(A), 1, P(B), 1, P(C));
    cublasSscal(h, 104, &zero, P(A), 1);
    cublasCsscal(h, 105, &one, P(A), 1);
    cublasDnrm2(h, 106, P(A), 1, P(C));
    cublasScasum(h, 107, P(A), 1, P(C));
    cublasSrot(h, 108, P(A), 1, P(B), 1, &one, &zero);
    cublasScopy(h, 109, P(A), 4, P(B), 5);
    cublasDswap(h, 110, P(A), 1, P(B), 1);
    cublasIsamax(h, 111, P(A), 1, P(C));
    cublasScopy_64(h, 1ll << 34, P(A), 1, P(B), 1);
}

static void level_2(cublasHandle_t h) {
    cublasSgemv(h, CUBLAS_OP_T, 20, 21, &one, P(A), 22, P(B), 1, &zero, P(C), 2);
    cublasSgemvStridedBatched(h, CUBLAS_OP_N, 20, 21, &one, P(A), 22, 1000, P(B), 1, 2000, &one, P(C), 2, 3000, 6);
    cublasDgemvBatched(h, CUBLAS_OP_N, 20, 21, &done, P(A), 22, P(B), 1, &dzero, P(C), 2, 7);
    cublasSgbmv(h, CUBLAS_OP_N, 20, 21, 2, 3, &one, P(A), 22, P(B), 1, &zero, P(C), 2);
    cublasSsymv(h, CUBLAS_FILL_MODE_LOWER, 23, &one, P(A), 24, P(B), 1, &zero, P(C), 1);
    cublasStrmv(h, CUBLAS_FILL_MODE_UPPER, CUBLAS_OP_T, CUBLAS_DIAG_UNIT, 25, P(A), 26, P(B), 1);
    cublasStrsv(h, CUBLAS_FILL_MODE_UPPER, CUBLAS_OP_N, CUBLAS_DIAG_UNIT, 25, P(A), 26, P(B), 1);
    cublasSger(h, 27, 28, &half, P(B), 1, P(C), 2, P(A), 29);
    cublasSsyr(h, CUBLAS_FILL_MODE_LOWER, 30, &half, P(B), 1, P(A), 31);
    cublasCher2(h, CUBLAS_FILL_MODE_LOWER, 32, &cone, P(B), 1, P(C), 2, P(A), 33);
}

static void level_3(cublasHandle_t h) {
    cublasSsymm(h, CUBLAS_SIDE_LEFT, CUBLAS_FILL_MODE_LOWER, 40, 41, &one, P(A), 42, P(B), 43, &zero, P(C), 44);
    cublasCherk(h, CUBLAS_FILL_MODE_UPPER, CUBLAS_OP_C, 45, 46, &one, P(A), 47, &zero, P(C), 48);
    cublasDsyr2k(h, CUBLAS_FILL_MODE_UPPER, CUBLAS_OP_N, 45, 46, &done, P(A), 47, P(B), 48, &dzero, P(C), 49);
    cublasSsyrkx(h, CUBLAS_FILL_MODE_UPPER, CUBLAS_OP_N, 45, 46, &one, P(A), 47, P(B), 48, &zero, P(C), 49);
    cublasStrmm(h, CUBLAS_SIDE_RIGHT, CUBLAS_FILL_MODE_LOWER, CUBLAS_OP_N, CUBLAS_DIAG_UNIT, 50, 51, &one, P(A), 52,
                P(B), 53, P(C), 54);
    cublasStrsm(h, CUBLAS_SIDE_LEFT, CUBLAS_FILL_MODE_LOWER, CUBLAS_OP_N, CUBLAS_DIAG_UNIT, 50, 51, &one, P(A), 52,
                P(B), 53);
    cublasStrsmBatched(h, CUBLAS_SIDE_LEFT, CUBLAS_FILL_MODE_LOWER, CUBLAS_OP_N, CUBLAS_DIAG_UNIT, 50, 51, &one, P(A),
                       52, P(B), 53, 4);
    cublasSgeam(h, CUBLAS_OP_N, CUBLAS_OP_T, 55, 56, &one, P(A), 57, &zero, P(B), 58, P(C), 59);
    cublasSdgmm(h, CUBLAS_SIDE_LEFT, 55, 56, P(A), 57, P(B), 1, P(C), 59);
    cublasSgetrfBatched(h, 60, P(A), 61, P(B), P(C), 5);
    cublasDgeqrfBatched(h, 62, 63, P(A), 64, P(C), NULL, 6);
}

int main(void) {
    cublasHandle_t h;
    cudaSetDevice(0); /* so that the runtime is linked at all */
    cublasCreate(&h); /* allocates inside */
    cublasSetStream(h, P(0x55));
    cublasSetWorkspace(h, P(0x9000), 12345);
    cublasSetMathMode(h, CUBLAS_TF32_TENSOR_OP_MATH);
    gemms(h);
    grouped(h);
    level_1(h);
    level_2(h);
    level_3(h);
    cublasSetVector(10, 4, P(A), 1, P(B), 1);
    cublasGetMatrix(11, 12, 4, P(A), 20, P(B), 30);
    cublasSetPointerMode(h, CUBLAS_POINTER_MODE_DEVICE);
    cublasSgemm(h, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, P(0x10), P(A), 1, P(B), 1, P(0x20), P(C), 1);
    return 0;
}
