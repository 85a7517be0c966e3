/* cuBLAS on OpenBLAS: what its files share. All sizes are int64 (the _64 functions); matrices are column-major.
 * A routine fills a job, which runs in the order of the handle's stream; scalars by pointer mode: host scalars are read
 * at the call, device scalars when the job runs. */
#ifndef VGPU_BLAS_H
#define VGPU_BLAS_H

#include "vgpu/vgpu_engine.h"
#include "vgpu/vgpu_number.h"

#include <cublas_api.h>

/* What a program says of fp32 and fp64 products by narrower ones. Kept and told; products here are as precise as those
 * that the device would do without. */
struct vgpu_blas_emulation {
    cublasEmulationStrategy_t strategy;
    cudaEmulationSpecialValuesSupport special;
    cudaEmulationMantissaControl control;
    int most_bits, bit_offset;
    int *bits; /* on the device: where the number of bits used is to be put */
};

struct vgpu_blas {
    struct vgpu_item item;
    cudaStream_t stream;
    int device; /* that was current when the handle was made */
    cublasPointerMode_t mode;
    cublasMath_t math;
    cublasAtomicsMode_t atomics;
    int sm_target;
    struct vgpu_blas_emulation emulation;
};

/* Copies the handle's settings to *out; NOT_INITIALIZED if it is no handle. */
cublasStatus_t vgpu_blas_open(cublasHandle_t handle, struct vgpu_blas *out);
/* Queues work->run(copy of work->args) as one kernel of the device; of *work run, dry, args, bytes and amount are the
 * caller's. `wait`: returns when it is done (a result for the host). `routine`: cublasSaxpy, …; with `variant` (as _nt)
 * it names the kernel: vgpu_saxpy, vgpu_sgemm_nt. */
cublasStatus_t vgpu_blas_run(const struct vgpu_blas *handle, const char *routine, const char *variant,
                             const struct vgpu_work *work, bool wait);
cublasStatus_t vgpu_blas_status(cudaError_t error);

/* A scalar argument. Half types are held as the float they stand for. */
struct vgpu_scalar {
    const void *device; /* NULL: value */
    double value, imaginary;
    cudaDataType_t type;
};
struct vgpu_scalar vgpu_scalar(const struct vgpu_blas *handle, const void *pointer, cudaDataType_t type);
/* Its value while a job runs. false: a device scalar out of the device's reach, which has been reported. */
bool vgpu_scalar_get(const struct vgpu_scalar *s, const char *call, double *value);
bool vgpu_scalar_get_complex(const struct vgpu_scalar *s, const char *call, double value[2]);
size_t vgpu_scalar_bytes(cudaDataType_t type); /* of complex types too; 0: none */

/* May the device touch these operands? If not it is reported under the routine's name and the job must not run. */
bool vgpu_reach(const char *call, const void *p, uint64_t bytes);
uint64_t vgpu_matrix_bytes(int64_t rows, int64_t columns, int64_t ld, size_t element); /* UINT64_MAX: too large */
uint64_t vgpu_vector_bytes(int64_t n, int64_t stride, size_t element);

/* ---- elements of the real types (vgpu_number.h, vgpu_convert.c) ---- */

/* 0: none of fp64, fp32, fp16, bf16. */
size_t vgpu_type_bytes(cudaDataType_t type);
/* Those of cuBLASLt too: fp8 (E4M3, E5M2), int8, int32. 0: none. */
size_t vgpu_element_bytes(cudaDataType_t type);
double vgpu_load(cudaDataType_t type, const void *p, int64_t i);
/* To nearest, ties to even; fp16 and bf16 overflow to infinity; fp8 and integers stay at their largest value, as the
 * device's only conversion to fp8 does. */
void vgpu_store(cudaDataType_t type, void *p, int64_t i, double value);

/* What a product makes of its fp32 operands first. */
enum vgpu_rounding {
    VGPU_ROUND_NONE,
    VGPU_ROUND_TF32, /* 10 bits after the point; to nearest, ties away from 0: cvt.rna.tf32.f32 */
    VGPU_ROUND_FP16,
    VGPU_ROUND_BF16,
};
void vgpu_round(enum vgpu_rounding rounding, const float *from, float *to, int64_t n);

/* n elements of any type but fp64, from and to fp32, rounded as by vgpu_store. fp32 is copied. */
void vgpu_widen(cudaDataType_t type, const void *from, float *to, int64_t n);
void vgpu_narrow(cudaDataType_t type, const float *from, void *to, int64_t n);

/* A matrix of `outer` columns (or rows) of `inner` elements, `ld` apart, as fp32 without gaps, in scratch memory; NULL:
 * none left. fp32 is rounded. And back. */
float *vgpu_widened(cudaDataType_t type, enum vgpu_rounding rounding, const void *p, int64_t inner, int64_t outer,
                    int64_t ld);
void vgpu_narrowed(cudaDataType_t type, const float *from, void *p, int64_t inner, int64_t outer, int64_t ld);
/* What a product of fp32 matrices makes of them, by compute type, the handle's math mode and NVIDIA_TF32_OVERRIDE. */
enum vgpu_rounding vgpu_rounding_of(cublasComputeType_t compute, cublasMath_t math);

/* Working memory on the host, kept for the next product: fresh pages cost as much as converting what goes into them.
 * NULL: none left. Any thread. */
void *vgpu_scratch_take(size_t bytes);
void vgpu_scratch_give(void *scratch); /* NULL: nothing */

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
