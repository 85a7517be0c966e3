/* Products of row-major fp32 matrices by cuBLAS, entered in the account with their FLOPs. A failure ends the program.
 */
#ifndef TRAIN_ROW_MAJOR_H
#define TRAIN_ROW_MAJOR_H

#include <cublas_v2.h>

/* C (M, N) = op(A) (M, K) · op(B) (K, N) + beta · C. beta = 0: C is overwritten, never read. CUBLAS_OP_T: the matrix is
 * stored as the transpose of what is multiplied. */
void matmul(cublasHandle_t cublas, cublasOperation_t opA, cublasOperation_t opB, int M, int N, int K, const float *A,
            const float *B, float beta, float *C);

/* `batch` such products with beta = 0, each matrix right after the one before. */
void matmul_batched(cublasHandle_t cublas, cublasOperation_t opA, cublasOperation_t opB, int M, int N, int K,
                    const float *A, const float *B, float *C, int batch);

#endif
