/* cuBLAS on OpenBLAS: what its files share. All sizes are int64 (the _64 functions); matrices are column-major.
 * A routine fills a job, which runs in the order of the handle's stream; scalars by pointer mode: host scalars are read
 * at the call, device scalars when the job runs. */
#ifndef VGPU_BLAS_H
#define VGPU_BLAS_H

#include "vgpu/vgpu_engine.h"

#include <cublas_api.h>

struct vgpu_blas {
    struct vgpu_item item;
    cudaStream_t stream;
    cublasPointerMode_t mode;
    cublasMath_t math;
    cublasAtomicsMode_t atomics;
    int sm_target;
};

/* Copies the handle's settings to *out; NOT_INITIALIZED if it is no handle. */
cublasStatus_t vgpu_blas_open(cublasHandle_t handle, struct vgpu_blas *out);
/* Queues run(copy of args) as one kernel of the device. `wait`: returns when it is done (a result for the host).
 * `routine`: cublasSaxpy, …, a constant; with `variant` (as _nt) it names the kernel: vgpu_saxpy, vgpu_sgemm_nt. */
cublasStatus_t vgpu_blas_run(const struct vgpu_blas *handle, const char *routine, const char *variant,
                             void (*run)(void *), const void *args, size_t bytes, bool wait);
cublasStatus_t vgpu_blas_status(cudaError_t error);

/* A scalar argument. Half types are held as the float they stand for. */
struct vgpu_scalar {
    const void *device; /* NULL: value */
    double value;
    cudaDataType_t type;
};
struct vgpu_scalar vgpu_scalar(const struct vgpu_blas *handle, const void *pointer, cudaDataType_t type);
/* Its value while a job runs. false: a device scalar out of the device's reach, which has been reported. */
bool vgpu_scalar_get(const struct vgpu_scalar *s, const char *call, double *value);

/* May the device touch these operands? If not it is reported under the routine's name and the job must not run. */
bool vgpu_reach(const char *call, const void *p, uint64_t bytes);
uint64_t vgpu_matrix_bytes(int64_t rows, int64_t columns, int64_t ld, size_t element); /* UINT64_MAX: too large */
uint64_t vgpu_vector_bytes(int64_t n, int64_t stride, size_t element);

/* Elements of the real types. 0: none of fp64, fp32, fp16, bf16. */
size_t vgpu_type_bytes(cudaDataType_t type);
double vgpu_load(cudaDataType_t type, const void *p, int64_t i);
void vgpu_store(cudaDataType_t type, void *p, int64_t i, double value);
float vgpu_half_to_float(uint16_t h);
uint16_t vgpu_float_to_half(float f); /* to nearest, ties to even */
float vgpu_bf16_to_float(uint16_t b);
uint16_t vgpu_float_to_bf16(float f); /* to nearest, ties to even */
void vgpu_widen(cudaDataType_t type, const void *from, float *to, int64_t n);
void vgpu_narrow(cudaDataType_t type, const float *from, void *to, int64_t n);

static inline bool vgpu_is_op(cublasOperation_t op) {
    return op == CUBLAS_OP_N || op == CUBLAS_OP_T || op == CUBLAS_OP_C;
}

static inline bool vgpu_is_uplo(cublasFillMode_t uplo) {
    return uplo == CUBLAS_FILL_MODE_LOWER || uplo == CUBLAS_FILL_MODE_UPPER;
}

static inline int64_t vgpu_at_least_one(int64_t n) {
    return n > 1 ? n : 1;
}

/* OpenBLAS takes 32-bit sizes. */
static inline bool vgpu_too_large(int64_t a, int64_t b, int64_t c) {
    return a > INT32_MAX || b > INT32_MAX || c > INT32_MAX || a < INT32_MIN || b < INT32_MIN || c < INT32_MIN;
}

#endif
