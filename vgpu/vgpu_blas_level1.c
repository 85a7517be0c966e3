/* Level 1: vectors. fp32, fp64 and complex by OpenBLAS, 16-bit types element by element in double. */
#include "vgpu/vgpu_blas_level1.h"

#include <math.h>
#include <string.h>

#define RUN(name)                                                                                      \
    void vgpu_level1_##name(const struct vgpu_call *c, void *const *p, const struct vgpu_value *alpha, \
                            const struct vgpu_value *beta)
#define N (int)c->n
#define X p[0], (int)c->ld[0]
#define Y p[1], (int)c->ld[1]

static bool is_small(const struct vgpu_call *c) {
    return c->type == CUDA_R_16F || c->type == CUDA_R_16BF;
}

/* ---- 16 bits ---- */

static double get(const struct vgpu_call *c, void *const *p, int operand, int64_t i) {
    return vgpu_load(c->type, p[operand], vgpu_place(i, c->n, c->ld[operand]));
}

static void put(const struct vgpu_call *c, void *const *p, int operand, int64_t i, double v) {
    vgpu_store(c->type, p[operand], vgpu_place(i, c->n, c->ld[operand]), v);
}

static void elementwise16(const struct vgpu_call *c, void *const *p, double a, double b) {
    for (int64_t i = 0; i < c->n; i++) {
        double x = get(c, p, 0, i), y = c->p[1] ? get(c, p, 1, i) : 0;
        switch ((int)c->routine) {
        case VGPU_AXPY:
            put(c, p, 1, i, a * x + y);
            break;
        case VGPU_COPY:
            put(c, p, 1, i, x);
            break;
        case VGPU_SCAL:
            put(c, p, 0, i, a * x);
            break;
        case VGPU_SWAP:
            put(c, p, 0, i, y);
            put(c, p, 1, i, x);
            break;
        default: /* VGPU_ROT */
            put(c, p, 0, i, a * x + b * y);
            put(c, p, 1, i, a * y - b * x);
        }
    }
}

static void reduce16(const struct vgpu_call *c, void *const *p) {
    double sum = 0;
    for (int64_t i = 0; i < c->n; i++) {
        double x = get(c, p, 0, i);
        sum += c->routine == VGPU_ASUM ? fabs(x) : c->routine == VGPU_NRM2 ? x * x : x * get(c, p, 1, i);
    }
    vgpu_store(c->type, p[2], 0, c->routine == VGPU_NRM2 ? sqrt(sum) : sum);
}

/* ---- the routines ---- */

RUN(asum) {
    (void)alpha, (void)beta;
    if (is_small(c))
        reduce16(c, p);
    else if (c->type == CUDA_R_32F)
        *(float *)p[2] = cblas_sasum(N, X);
    else if (c->type == CUDA_R_64F)
        *(double *)p[2] = cblas_dasum(N, X);
    else if (c->type == CUDA_C_32F)
        *(float *)p[2] = cblas_scasum(N, X);
    else
        *(double *)p[2] = cblas_dzasum(N, X);
}

RUN(nrm2) {
    (void)alpha, (void)beta;
    if (is_small(c))
        reduce16(c, p);
    else if (c->type == CUDA_R_32F)
        *(float *)p[2] = cblas_snrm2(N, X);
    else if (c->type == CUDA_R_64F)
        *(double *)p[2] = cblas_dnrm2(N, X);
    else if (c->type == CUDA_C_32F)
        *(float *)p[2] = cblas_scnrm2(N, X);
    else
        *(double *)p[2] = cblas_dznrm2(N, X);
}

RUN(dot) {
    (void)alpha, (void)beta;
    if (is_small(c))
        reduce16(c, p);
    else if (c->type == CUDA_R_32F)
        *(float *)p[2] = cblas_sdot(N, X, Y);
    else if (c->type == CUDA_R_64F)
        *(double *)p[2] = cblas_ddot(N, X, Y);
    else if (c->type == CUDA_C_32F && c->conjugated)
        cblas_cdotc_sub(N, X, Y, p[2]);
    else if (c->type == CUDA_C_32F)
        cblas_cdotu_sub(N, X, Y, p[2]);
    else if (c->conjugated)
        cblas_zdotc_sub(N, X, Y, p[2]);
    else
        cblas_zdotu_sub(N, X, Y, p[2]);
}

/* Of a complex number the sum of its parts' magnitudes. */
static double magnitude(const struct vgpu_call *c, const void *x, int64_t i) {
    cudaDataType_t part = c->type == CUDA_C_32F ? CUDA_R_32F : CUDA_R_64F;
    if (!vgpu_is_complex(c->type)) return fabs(vgpu_load(c->type, x, i));
    return fabs(vgpu_load(part, x, 2 * i)) + fabs(vgpu_load(part, x, 2 * i + 1));
}

/* 1-based place of the first element of largest or least magnitude. */
RUN(iamax) {
    (void)alpha, (void)beta;
    int64_t best = 0;
    double value = 0;
    for (int64_t i = 0; i < c->n; i++) {
        double v = magnitude(c, p[0], i * c->ld[0]);
        if (!i || (c->magnitude_least ? v < value : v > value)) {
            best = i;
            value = v;
        }
    }
    if (c->index_bytes == 8)
        *(int64_t *)p[2] = best + 1;
    else
        *(int *)p[2] = (int)(best + 1);
}

RUN(axpy) {
#define AXPY(l, al, be) cblas_##l##axpy(N, al, X, Y)
    if (is_small(c))
        elementwise16(c, p, alpha->d, 0);
    else
        VGPU_FOR_ALL(c, AXPY);
    (void)beta;
}

RUN(copy) {
#define COPY(l, al, be) cblas_##l##copy(N, X, Y)
    if (is_small(c))
        elementwise16(c, p, 0, 0);
    else
        VGPU_FOR_ALL(c, COPY);
    (void)alpha, (void)beta;
}

RUN(swap) {
#define SWAP(l, al, be) cblas_##l##swap(N, X, Y)
    if (is_small(c))
        elementwise16(c, p, 0, 0);
    else
        VGPU_FOR_ALL(c, SWAP);
    (void)alpha, (void)beta;
}

RUN(scal) {
#define SCAL(l, al, be) cblas_##l##scal(N, al, X)
    (void)beta;
    if (is_small(c))
        elementwise16(c, p, alpha->d, 0);
    else if (c->type == CUDA_C_32F && vgpu_alpha_type(c) == CUDA_R_32F)
        cblas_csscal(N, alpha->s, X);
    else if (c->type == CUDA_C_64F && vgpu_alpha_type(c) == CUDA_R_64F)
        cblas_zdscal(N, alpha->d, X);
    else
        VGPU_FOR_ALL(c, SCAL);
}

/* c is real, s may be complex. */
#define ROT(T, part, conj)                                                                  \
    static void rot_##T(const struct vgpu_call *c, T *x, T *y, part cosine, T sine) {       \
        for (int64_t i = 0; i < c->n; i++) {                                                \
            int64_t ix = vgpu_place(i, c->n, c->ld[0]), iy = vgpu_place(i, c->n, c->ld[1]); \
            T a = x[ix], b = y[iy];                                                         \
            x[ix] = cosine * a + sine * b;                                                  \
            y[iy] = cosine * b - conj(sine) * a;                                            \
        }                                                                                   \
    }

static cfloat conj_float(cfloat v) {
    return __builtin_conjf(v);
}
static cdouble conj_double(cdouble v) {
    return __builtin_conj(v);
}
ROT(cfloat, float, conj_float)
ROT(cdouble, double, conj_double)

/* alpha is c, beta is s. */
RUN(rot) {
#define ROTATE(l, al, be) cblas_##l##rot(N, X, Y, al, be)
    if (is_small(c))
        elementwise16(c, p, alpha->d, beta->d);
    else if (c->type == CUDA_C_32F)
        rot_cfloat(c, p[0], p[1], alpha->s, beta->c[0] + beta->c[1] * _Complex_I);
    else if (c->type == CUDA_C_64F)
        rot_cdouble(c, p[0], p[1], alpha->d, beta->z[0] + beta->z[1] * _Complex_I);
    else
        VGPU_FOR_REAL(c, ROTATE);
}

static void rotm16(const struct vgpu_call *c, void *const *p, const double *h) {
    double m[4] = {h[1], h[2], h[3], h[4]}; /* h11, h21, h12, h22 */
    if (h[0] == -2) return;
    if (h[0] == 0) m[0] = m[3] = 1;
    if (h[0] == 1) m[1] = -1, m[2] = 1;
    for (int64_t i = 0; i < c->n; i++) {
        double x = get(c, p, 0, i), y = get(c, p, 1, i);
        put(c, p, 0, i, m[0] * x + m[2] * y);
        put(c, p, 1, i, m[1] * x + m[3] * y);
    }
}

/* The parameters are a flag and four numbers, of alpha's type. */
RUN(rotm) {
    (void)alpha, (void)beta;
    double h[5];
    float f[5];
    if (c->device_numbers && !vgpu_reach(c->call, c->device_numbers, 5 * vgpu_scalar_bytes(vgpu_alpha_type(c)))) return;
    for (int i = 0; i < 5; i++) {
        h[i] = c->device_numbers ? vgpu_load(vgpu_alpha_type(c), c->device_numbers, i) : c->numbers[i];
        f[i] = (float)h[i];
    }
    if (is_small(c))
        rotm16(c, p, h);
    else if (c->type == CUDA_R_32F)
        cblas_srotm(N, X, Y, f);
    else
        cblas_drotm(N, X, Y, h);
}

/* ---- functions of one type ---- */

#define REDUCE(name, which, lower, T, code, R, rcode)                                                       \
    cublasStatus_t cublas##name##_v2_64(cublasHandle_t h, int64_t n, const T *x, int64_t incx, R *result) { \
        struct vgpu_call c = {.call = "cublas" #name,                                                       \
                              .routine = which,                                                             \
                              .run = vgpu_level1_##lower,                                                   \
                              .type = code,                                                                 \
                              .c_type = VGPU_AS(rcode),                                                     \
                              .n = n,                                                                       \
                              .p = {(void *)x, NULL, result},                                               \
                              .ld = {incx}};                                                                \
        return vgpu_call(h, &c, NULL, NULL);                                                                \
    }

#define EXTREME_OF(suffix, I, name, least, T, code, bytes)                                      \
    cublasStatus_t cublas##name##suffix(cublasHandle_t h, I n, const T *x, I incx, I *result) { \
        struct vgpu_call c = {.call = "cublas" #name,                                           \
                              .routine = VGPU_IAMAX,                                            \
                              .run = vgpu_level1_iamax,                                         \
                              .type = code,                                                     \
                              .magnitude_least = least,                                         \
                              .index_bytes = bytes,                                             \
                              .n = n,                                                           \
                              .p = {(void *)x, NULL, result},                                   \
                              .ld = {incx}};                                                    \
        return vgpu_call(h, &c, NULL, NULL);                                                    \
    }
#define EXTREME(name, least, T, code)                    \
    EXTREME_OF(_v2_64, int64_t, name, least, T, code, 8) \
    EXTREME_OF(_v2, int, name, least, T, code, 4)

#define DOT(name, conjugate, T, code)                                                                      \
    cublasStatus_t cublas##name##_v2_64(cublasHandle_t h, int64_t n, const T *x, int64_t incx, const T *y, \
                                        int64_t incy, T *result) {                                         \
        struct vgpu_call c = {.call = "cublas" #name,                                                      \
                              .routine = VGPU_DOT,                                                         \
                              .run = vgpu_level1_dot,                                                      \
                              .type = code,                                                                \
                              .conjugated = conjugate,                                                     \
                              .n = n,                                                                      \
                              .p = {(void *)x, (void *)y, result},                                         \
                              .ld = {incx, incy}};                                                         \
        return vgpu_call(h, &c, NULL, NULL);                                                               \
    }

#define SCALE(name, T, code, A, acode)                                                                     \
    cublasStatus_t cublas##name##_v2_64(cublasHandle_t h, int64_t n, const A *alpha, T *x, int64_t incx) { \
        struct vgpu_call c = {.call = "cublas" #name,                                                      \
                              .routine = VGPU_SCAL,                                                        \
                              .run = vgpu_level1_scal,                                                     \
                              .type = code,                                                                \
                              .alpha_type = VGPU_AS(acode),                                                \
                              .n = n,                                                                      \
                              ONE_VECTOR};                                                                 \
        return vgpu_call(h, &c, alpha, NULL);                                                              \
    }

#define TURN(name, T, code, C, ccode, S, scode)                                                              \
    cublasStatus_t cublas##name##_v2_64(cublasHandle_t h, int64_t n, T *x, int64_t incx, T *y, int64_t incy, \
                                        const C *cosine, const S *sine) {                                    \
        struct vgpu_call c = {.call = "cublas" #name,                                                        \
                              .routine = VGPU_ROT,                                                           \
                              .run = vgpu_level1_rot,                                                        \
                              .type = code,                                                                  \
                              .alpha_type = VGPU_AS(ccode),                                                  \
                              .beta_type = VGPU_AS(scode),                                                   \
                              .n = n,                                                                        \
                              TWO_VECTORS};                                                                  \
        return cosine && sine ? vgpu_call(h, &c, cosine, sine) : CUBLAS_STATUS_INVALID_VALUE;                \
    }

#define LEVEL1(S, s, T, code)                                                                                         \
    EXTREME(I##s##amax, false, T, code)                                                                               \
    EXTREME(I##s##amin, true, T, code)                                                                                \
    SCALE(S##scal, T, code, T, code)                                                                                  \
    cublasStatus_t cublas##S##axpy_v2_64(cublasHandle_t h, int64_t n, const T *alpha, const T *x, int64_t incx, T *y, \
                                         int64_t incy) {                                                              \
        struct vgpu_call c = {.call = "cublas" #S "axpy",                                                             \
                              .routine = VGPU_AXPY,                                                                   \
                              .run = vgpu_level1_axpy,                                                                \
                              .type = code,                                                                           \
                              .n = n,                                                                                 \
                              TWO_VECTORS};                                                                           \
        return vgpu_call(h, &c, alpha, NULL);                                                                         \
    }                                                                                                                 \
    cublasStatus_t cublas##S##copy_v2_64(cublasHandle_t h, int64_t n, const T *x, int64_t incx, T *y, int64_t incy) { \
        struct vgpu_call c = {.call = "cublas" #S "copy",                                                             \
                              .routine = VGPU_COPY,                                                                   \
                              .run = vgpu_level1_copy,                                                                \
                              .type = code,                                                                           \
                              .n = n,                                                                                 \
                              TWO_VECTORS};                                                                           \
        return vgpu_call(h, &c, NULL, NULL);                                                                          \
    }                                                                                                                 \
    cublasStatus_t cublas##S##swap_v2_64(cublasHandle_t h, int64_t n, T *x, int64_t incx, T *y, int64_t incy) {       \
        struct vgpu_call c = {.call = "cublas" #S "swap",                                                             \
                              .routine = VGPU_SWAP,                                                                   \
                              .run = vgpu_level1_swap,                                                                \
                              .type = code,                                                                           \
                              .n = n,                                                                                 \
                              TWO_VECTORS};                                                                           \
        return vgpu_call(h, &c, NULL, NULL);                                                                          \
    }

LEVEL1(S, s, float, CUDA_R_32F)
LEVEL1(D, d, double, CUDA_R_64F)
LEVEL1(C, c, cuComplex, CUDA_C_32F)
LEVEL1(Z, z, cuDoubleComplex, CUDA_C_64F)
SCALE(Csscal, cuComplex, CUDA_C_32F, float, CUDA_R_32F)
SCALE(Zdscal, cuDoubleComplex, CUDA_C_64F, double, CUDA_R_64F)
DOT(Sdot, false, float, CUDA_R_32F)
DOT(Ddot, false, double, CUDA_R_64F)
DOT(Cdotu, false, cuComplex, CUDA_C_32F)
DOT(Cdotc, true, cuComplex, CUDA_C_32F)
DOT(Zdotu, false, cuDoubleComplex, CUDA_C_64F)
DOT(Zdotc, true, cuDoubleComplex, CUDA_C_64F)
REDUCE(Sasum, VGPU_ASUM, asum, float, CUDA_R_32F, float, CUDA_R_32F)
REDUCE(Dasum, VGPU_ASUM, asum, double, CUDA_R_64F, double, CUDA_R_64F)
REDUCE(Scasum, VGPU_ASUM, asum, cuComplex, CUDA_C_32F, float, CUDA_R_32F)
REDUCE(Dzasum, VGPU_ASUM, asum, cuDoubleComplex, CUDA_C_64F, double, CUDA_R_64F)
REDUCE(Snrm2, VGPU_NRM2, nrm2, float, CUDA_R_32F, float, CUDA_R_32F)
REDUCE(Dnrm2, VGPU_NRM2, nrm2, double, CUDA_R_64F, double, CUDA_R_64F)
REDUCE(Scnrm2, VGPU_NRM2, nrm2, cuComplex, CUDA_C_32F, float, CUDA_R_32F)
REDUCE(Dznrm2, VGPU_NRM2, nrm2, cuDoubleComplex, CUDA_C_64F, double, CUDA_R_64F)
TURN(Srot, float, CUDA_R_32F, float, CUDA_R_32F, float, CUDA_R_32F)
TURN(Drot, double, CUDA_R_64F, double, CUDA_R_64F, double, CUDA_R_64F)
TURN(Crot, cuComplex, CUDA_C_32F, float, CUDA_R_32F, cuComplex, CUDA_C_32F)
TURN(Csrot, cuComplex, CUDA_C_32F, float, CUDA_R_32F, float, CUDA_R_32F)
TURN(Zrot, cuDoubleComplex, CUDA_C_64F, double, CUDA_R_64F, cuDoubleComplex, CUDA_C_64F)
TURN(Zdrot, cuDoubleComplex, CUDA_C_64F, double, CUDA_R_64F, double, CUDA_R_64F)
