/* What the rows of preload/api.table call: each writes the record of one call. Arguments are the program's own; outputs
 * and memory behind pointers are looked at after success only. Addresses are passed as integers. */
#ifndef ACCT_PRELOAD_FILL_H
#define ACCT_PRELOAD_FILL_H

#include <cublasLt.h>
#include <cublas_api.h>
#include <cuda_runtime_api.h>
#include "preload/hook.h"
#include "preload/real.h"

#define ADDRESS(p) ((uint64_t)(uintptr_t)(p))
#define STREAM(s) ADDRESS(s)
/* In a _ptsz function the null stream is the thread's own (cudaStreamPerThread). */
#define STREAM_PER_THREAD(s) ((s) ? ADDRESS(s) : ADDRESS(cudaStreamPerThread))
#define NO_STREAM ACCT_NO_STREAM

/* ---- runtime (fill_runtime.c) -------------------------------------------------------------------------------- */

/* `at`: where the function stores the address, or NULL where the call gets none (size 0). */
void fill_alloc(struct hook_call *k, void *const *at, size_t bytes, uint32_t memory, uint64_t stream);
void fill_alloc_from_pool(struct hook_call *k, void *const *at, size_t bytes, cudaMemPool_t pool, uint64_t stream);
void fill_alloc_pitch(struct hook_call *k, void *const *at, const size_t *pitch, size_t width, size_t height);
void fill_alloc_3d(struct hook_call *k, const struct cudaPitchedPtr *p, struct cudaExtent extent);
void fill_alloc_array(struct hook_call *k, void *const *at, const struct cudaChannelFormatDesc *desc, size_t width,
                      size_t height, size_t depth, unsigned levels);
void fill_register(struct hook_call *k, void *at, size_t bytes);
void fill_free(struct hook_call *k, const void *at, uint32_t memory, uint64_t stream);

void fill_copy(struct hook_call *k, const void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind,
               uint64_t stream);
void fill_copy_2d(struct hook_call *k, const void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                  size_t width, size_t height, enum cudaMemcpyKind kind, uint64_t stream);
void fill_copy_3d(struct hook_call *k, const struct cudaMemcpy3DParms *p, uint64_t stream);
void fill_copy_3d_peer(struct hook_call *k, const struct cudaMemcpy3DPeerParms *p, uint64_t stream);
void fill_copy_peer(struct hook_call *k, const void *dst, int dst_device, const void *src, int src_device, size_t bytes,
                    uint64_t stream);
void fill_copy_to_symbol(struct hook_call *k, const void *symbol, const void *src, size_t bytes, size_t offset,
                         enum cudaMemcpyKind kind, uint64_t stream);
void fill_copy_from_symbol(struct hook_call *k, const void *dst, const void *symbol, size_t bytes, size_t offset,
                           enum cudaMemcpyKind kind, uint64_t stream);
/* cublasSetVector, …: rows of `width` bytes, `pitch` bytes apart; width == pitch on both sides is one piece. */
void fill_copy_rows(struct hook_call *k, const void *dst, int64_t dst_pitch, const void *src, int64_t src_pitch,
                    int64_t width, int64_t rows, enum cudaMemcpyKind kind, uint64_t stream);

void fill_memset(struct hook_call *k, const void *dst, int value, size_t bytes, uint64_t stream);
void fill_memset_2d(struct hook_call *k, const void *dst, size_t pitch, int value, size_t width, size_t height,
                    uint64_t stream);
void fill_memset_3d(struct hook_call *k, struct cudaPitchedPtr p, int value, struct cudaExtent extent, uint64_t stream);

void fill_stream_create(struct hook_call *k, const cudaStream_t *s, unsigned flags, int priority);
void fill_stream(struct hook_call *k, uint32_t act, uint64_t stream, cudaEvent_t event);
void fill_event_create(struct hook_call *k, const cudaEvent_t *event);
void fill_event(struct hook_call *k, uint32_t act, cudaEvent_t event, uint64_t stream);
void fill_sync(struct hook_call *k, uint32_t scope, uint64_t stream, cudaEvent_t event);

/* ---- launches (fill_launch.c) ---------------------------------------------------------------------------------- */

/* `function`: a host function or a kernel handle. */
void fill_launch(struct hook_call *k, const void *function, dim3 grid, dim3 block, void *const *args, size_t shared,
                 uint64_t stream, uint32_t cooperative);
/* null_stream: what the null stream means to this function. */
void fill_launch_config(struct hook_call *k, const cudaLaunchConfig_t *c, const void *function, void *const *args,
                        uint64_t null_stream);

/* ---- cuBLAS (fill_blas.c) ------------------------------------------------------------------------------------ */

void fill_workspace(struct hook_call *k, const void *handle, const void *at, size_t bytes);

#define BLAS_NONE ACCT_NULL_I64 /* a number that the routine does not have */

struct gemm_args {
    cublasHandle_t handle;
    int trans_a, trans_b; /* cublasOperation_t */
    int64_t m, n, k, batch, lda, ldb, ldc, stride_a, stride_b, stride_c;
    uint64_t a, b, c;
    uint32_t a_type, b_type, c_type, compute; /* ACCT_dtype_*, ACCT_compute_* */
    const void *alpha, *beta;
    uint32_t scalar_type; /* ACCT_dtype_* of alpha and beta */
    uint32_t pointer_array;
    int32_t algo;
};
void fill_gemm(struct hook_call *k, const struct gemm_args *g);

/* One record a group. Arrays are the program's, on the host; elements of 4 or 8 bytes (`wide`). */
struct grouped_args {
    cublasHandle_t handle;
    const cublasOperation_t *trans_a, *trans_b;
    const void *m, *n, *k, *lda, *ldb, *ldc, *group_size;
    int64_t group_count;
    int wide;
    uint64_t a, b, c; /* arrays of pointers of all groups, one after the other */
    uint32_t a_type, b_type, c_type, compute, scalar_type;
    const void *alpha, *beta;
};
void fill_grouped(struct hook_call *k, const struct grouped_args *g);

struct blas_args {
    cublasHandle_t handle;
    const char *routine;
    uint32_t type;
    int64_t m, n, k, kl, ku, batch, lda, ldb, ldc, stride_a, stride_b, stride_c;
    uint64_t a, b, c;
    int side, uplo, trans_a, trans_b; /* the vendor's values, -1 none */
    const void *alpha, *beta;         /* NULL none */
    uint32_t alpha_type, beta_type;
    uint32_t a_type, b_type; /* 0: as type */
    uint32_t pointer_array;
};
void fill_blas(struct hook_call *k, const struct blas_args *b);

/* ---- cuBLASLt (fill_lt.c) ------------------------------------------------------------------------------------ */

/* The parameters of cublasLtMatmul and cublasLtMatrixTransform, by the vendor's names. */
struct lt_matmul {
    cublasLtHandle_t lightHandle;
    cublasLtMatmulDesc_t computeDesc;
    const void *alpha, *A;
    cublasLtMatrixLayout_t Adesc;
    const void *B;
    cublasLtMatrixLayout_t Bdesc;
    const void *beta, *C;
    cublasLtMatrixLayout_t Cdesc;
    void *D;
    cublasLtMatrixLayout_t Ddesc;
    const cublasLtMatmulAlgo_t *algo;
    void *workspace;
    size_t workspaceSizeInBytes;
    cudaStream_t stream;
};
void fill_lt_matmul(struct hook_call *k, const struct lt_matmul *g);

struct lt_transform {
    cublasLtHandle_t lightHandle;
    cublasLtMatrixTransformDesc_t transformDesc;
    const void *alpha, *A;
    cublasLtMatrixLayout_t Adesc;
    const void *beta, *B;
    cublasLtMatrixLayout_t Bdesc;
    void *C;
    cublasLtMatrixLayout_t Cdesc;
    cudaStream_t stream;
};
void fill_lt_transform(struct hook_call *k, const struct lt_transform *g);

/* ---- shared by both -------------------------------------------------------------------------------------------- */

/* The fields of a product that only cuBLASLt has: none of it. */
void fill_gemm_alone(struct acct_ev_gemm *r);
/* What alpha or beta in host memory is (ACCT_scalar_*); 0 for NULL and types that are not known. */
uint32_t blas_scalar(const void *p, uint32_t type);
/* cublasOperation_t as ACCT_trans_*. */
uint32_t blas_trans(int op);

/* The vendor's types as the trace's. */
uint32_t blas_dtype(int cuda_data_type);
uint32_t blas_compute(int compute_type);
/* Type of alpha and beta of the Ex functions, which follows from the compute type and the type of C. */
uint32_t blas_scalar_type(int compute_type, int c_type);

#endif
