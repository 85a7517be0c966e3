/* cuBLAS is column-major and so sees every matrix transposed; it is asked for Cᵀ = op(B)ᵀ · op(A)ᵀ, which needs no
 * transposition at all. */
#include "sample_app/row_major.h"

#include "sample_app/checked_call.h"

static int stride(cublasOperation_t op, int rows, int columns) {
    return op == CUBLAS_OP_N ? columns : rows;
}

void matmul(cublasHandle_t cublas, cublasOperation_t opA, cublasOperation_t opB, int M, int N, int K, const float *A,
            const float *B, float beta, float *C) {
    const float one = 1;
    int lda = stride(opA, M, K), ldb = stride(opB, K, N);
    CALL(cublasSgemm(cublas, opB, opA, N, M, K, &one, B, ldb, A, lda, &beta, C, N));
    truth_flops(2 * (int64_t)M * N * K);
}

void matmul_batched(cublasHandle_t cublas, cublasOperation_t opA, cublasOperation_t opB, int M, int N, int K,
                    const float *A, const float *B, float *C, int batch) {
    const float one = 1, zero = 0;
    int lda = stride(opA, M, K), ldb = stride(opB, K, N);
    long long MK = (long long)M * K, KN = (long long)K * N, MN = (long long)M * N;
    CALL(cublasSgemmStridedBatched(cublas, opB, opA, N, M, K, &one, B, ldb, KN, A, lda, MK, &zero, C, N, MN, batch));
    truth_flops(2 * MN * K * batch);
}
