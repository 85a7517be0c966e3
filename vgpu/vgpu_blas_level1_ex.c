/* Level 1 by type arguments (the Ex forms), and rotm: all operands of one type, work in that type, or in fp32 for those
 * of 16 bits. */
#include "vgpu/vgpu_blas_level1.h"

static bool is_vector_type(cudaDataType_t t) {
    return vgpu_type_bytes(t) || vgpu_is_complex(t);
}

static bool plain(cudaDataType_t x, cudaDataType_t y, cudaDataType_t execution) {
    bool small = x == CUDA_R_16F || x == CUDA_R_16BF;
    return is_vector_type(x) && x == y && execution == (small ? CUDA_R_32F : x);
}

/* A scalar beside vectors of a type: of the same, or of fp32 beside 16 bits. */
static bool fits(cudaDataType_t scalar, cudaDataType_t x) {
    return scalar == x || ((x == CUDA_R_16F || x == CUDA_R_16BF) && scalar == CUDA_R_32F);
}

static cudaDataType_t real_of(cudaDataType_t t) {
    return t == CUDA_C_32F ? CUDA_R_32F : t == CUDA_C_64F ? CUDA_R_64F : t;
}

cublasStatus_t cublasAxpyEx_64(cublasHandle_t h, int64_t n, const void *alpha, cudaDataType at_, const void *x,
                               cudaDataType xt, int64_t incx, void *y, cudaDataType yt, int64_t incy, cudaDataType et) {
    struct vgpu_call c = {.call = "cublasAxpyEx",
                          .routine = VGPU_AXPY,
                          .run = vgpu_level1_axpy,
                          .type = xt,
                          .alpha_type = VGPU_AS(at_),
                          .n = n,
                          TWO_VECTORS};
    return plain(xt, yt, et) && fits(at_, xt) ? vgpu_call(h, &c, alpha, NULL) : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasScalEx_64(cublasHandle_t h, int64_t n, const void *alpha, cudaDataType at_, void *x,
                               cudaDataType xt, int64_t incx, cudaDataType et) {
    struct vgpu_call c = {.call = "cublasScalEx",
                          .routine = VGPU_SCAL,
                          .run = vgpu_level1_scal,
                          .type = xt,
                          .alpha_type = VGPU_AS(at_),
                          .n = n,
                          ONE_VECTOR};
    return plain(xt, xt, et) && fits(at_, xt) ? vgpu_call(h, &c, alpha, NULL) : CUBLAS_STATUS_NOT_SUPPORTED;
}

static cublasStatus_t dot_ex(cublasHandle_t h, const char *call, bool conjugated, int64_t n, const void *x,
                             cudaDataType xt, int64_t incx, const void *y, cudaDataType yt, int64_t incy, void *result,
                             cudaDataType rt, cudaDataType et) {
    struct vgpu_call c = {.call = call,
                          .routine = VGPU_DOT,
                          .run = vgpu_level1_dot,
                          .type = xt,
                          .conjugated = conjugated,
                          .n = n,
                          .p = {(void *)x, (void *)y, result},
                          .ld = {incx, incy}};
    return plain(xt, yt, et) && rt == xt ? vgpu_call(h, &c, NULL, NULL) : CUBLAS_STATUS_NOT_SUPPORTED;
}

#define DOT_EX(name, conjugated)                                                                                       \
    cublasStatus_t name##_64(cublasHandle_t h, int64_t n, const void *x, cudaDataType xt, int64_t incx, const void *y, \
                             cudaDataType yt, int64_t incy, void *result, cudaDataType rt, cudaDataType et) {          \
        return dot_ex(h, #name, conjugated, n, x, xt, incx, y, yt, incy, result, rt, et);                              \
    }
DOT_EX(cublasDotEx, false)
DOT_EX(cublasDotcEx, true)

#define NORM_EX(name, which, lower)                                                                                   \
    cublasStatus_t name##_64(cublasHandle_t h, int64_t n, const void *x, cudaDataType xt, int64_t incx, void *result, \
                             cudaDataType rt, cudaDataType et) {                                                      \
        struct vgpu_call c = {.call = #name,                                                                          \
                              .routine = which,                                                                       \
                              .run = vgpu_level1_##lower,                                                             \
                              .type = xt,                                                                             \
                              .c_type = VGPU_AS(rt),                                                                  \
                              .n = n,                                                                                 \
                              .p = {(void *)x, NULL, result},                                                         \
                              .ld = {incx}};                                                                          \
        bool good = (plain(xt, xt, et) || (vgpu_is_complex(xt) && et == real_of(xt))) && rt == real_of(xt);           \
        return good ? vgpu_call(h, &c, NULL, NULL) : CUBLAS_STATUS_NOT_SUPPORTED;                                     \
    }
NORM_EX(cublasNrm2Ex, VGPU_NRM2, nrm2)
NORM_EX(cublasAsumEx, VGPU_ASUM, asum)

#define EXTREME_EX(name, suffix, I, least)                                                                  \
    cublasStatus_t name##suffix(cublasHandle_t h, I n, const void *x, cudaDataType xt, I incx, I *result) { \
        struct vgpu_call c = {.call = #name,                                                                \
                              .routine = VGPU_IAMAX,                                                        \
                              .run = vgpu_level1_iamax,                                                     \
                              .type = xt,                                                                   \
                              .magnitude_least = least,                                                     \
                              .index_bytes = sizeof(I),                                                     \
                              .n = n,                                                                       \
                              .p = {(void *)x, NULL, result},                                               \
                              .ld = {incx}};                                                                \
        return is_vector_type(xt) ? vgpu_call(h, &c, NULL, NULL) : CUBLAS_STATUS_NOT_SUPPORTED;             \
    }
EXTREME_EX(cublasIamaxEx, _64, int64_t, false)
EXTREME_EX(cublasIamaxEx, , int, false)
EXTREME_EX(cublasIaminEx, _64, int64_t, true)
EXTREME_EX(cublasIaminEx, , int, true)

cublasStatus_t cublasCopyEx_64(cublasHandle_t h, int64_t n, const void *x, cudaDataType xt, int64_t incx, void *y,
                               cudaDataType yt, int64_t incy) {
    struct vgpu_call c = {
        .call = "cublasCopyEx", .routine = VGPU_COPY, .run = vgpu_level1_copy, .type = xt, .n = n, TWO_VECTORS};
    return is_vector_type(xt) && xt == yt ? vgpu_call(h, &c, NULL, NULL) : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasSwapEx_64(cublasHandle_t h, int64_t n, void *x, cudaDataType xt, int64_t incx, void *y,
                               cudaDataType yt, int64_t incy) {
    struct vgpu_call c = {
        .call = "cublasSwapEx", .routine = VGPU_SWAP, .run = vgpu_level1_swap, .type = xt, .n = n, TWO_VECTORS};
    return is_vector_type(xt) && xt == yt ? vgpu_call(h, &c, NULL, NULL) : CUBLAS_STATUS_NOT_SUPPORTED;
}

/* c and s have one type; beside complex vectors it may be real. c of a complex type is taken to be real. */
cublasStatus_t cublasRotEx_64(cublasHandle_t h, int64_t n, void *x, cudaDataType xt, int64_t incx, void *y,
                              cudaDataType yt, int64_t incy, const void *cosine, const void *sine, cudaDataType cst,
                              cudaDataType et) {
    struct vgpu_call c = {.call = "cublasRotEx",
                          .routine = VGPU_ROT,
                          .run = vgpu_level1_rot,
                          .type = xt,
                          .alpha_type = VGPU_AS(cst),
                          .beta_type = VGPU_AS(cst),
                          .n = n,
                          TWO_VECTORS};
    if (!plain(xt, yt, et) || (!fits(cst, xt) && cst != real_of(xt))) return CUBLAS_STATUS_NOT_SUPPORTED;
    return cosine && sine ? vgpu_call(h, &c, cosine, sine) : CUBLAS_STATUS_INVALID_VALUE;
}

static cublasStatus_t rotm(cublasHandle_t handle, const char *call, cudaDataType_t type, int64_t n, void *x,
                           int64_t incx, void *y, int64_t incy, const void *numbers, cudaDataType_t numbers_type) {
    struct vgpu_blas h;
    cublasStatus_t e = vgpu_blas_open(handle, &h);
    struct vgpu_call c = {.call = call,
                          .routine = VGPU_ROT,
                          .run = vgpu_level1_rotm,
                          .type = type,
                          .alpha_type = VGPU_AS(numbers_type),
                          .n = n,
                          TWO_VECTORS};
    if (e) return e;
    if (!numbers) return CUBLAS_STATUS_INVALID_VALUE;
    if (h.mode == CUBLAS_POINTER_MODE_DEVICE)
        c.device_numbers = numbers;
    else
        for (int i = 0; i < 5; i++) c.numbers[i] = vgpu_load(numbers_type, numbers, i);
    return vgpu_call(handle, &c, NULL, NULL);
}

cublasStatus_t cublasSrotm_v2_64(cublasHandle_t h, int64_t n, float *x, int64_t incx, float *y, int64_t incy,
                                 const float *numbers) {
    return rotm(h, "cublasSrotm", CUDA_R_32F, n, x, incx, y, incy, numbers, CUDA_R_32F);
}

cublasStatus_t cublasDrotm_v2_64(cublasHandle_t h, int64_t n, double *x, int64_t incx, double *y, int64_t incy,
                                 const double *numbers) {
    return rotm(h, "cublasDrotm", CUDA_R_64F, n, x, incx, y, incy, numbers, CUDA_R_64F);
}

cublasStatus_t cublasRotmEx_64(cublasHandle_t h, int64_t n, void *x, cudaDataType xt, int64_t incx, void *y,
                               cudaDataType yt, int64_t incy, const void *numbers, cudaDataType nt, cudaDataType et) {
    if (!plain(xt, yt, et) || vgpu_is_complex(xt) || !fits(nt, xt)) return CUBLAS_STATUS_NOT_SUPPORTED;
    return rotm(h, "cublasRotmEx", xt, n, x, incx, y, incy, numbers, nt);
}
