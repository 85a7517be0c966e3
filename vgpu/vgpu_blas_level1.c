/* Level 1: vectors. One job for all of them; fp32 and fp64 by OpenBLAS, 16-bit types in fp32 element by element. */
#include "vgpu/vgpu_blas.h"

#include <cblas.h>
#include <math.h>

enum routine { AMAX, AMIN, ASUM, AXPY, COPY, DOT, NRM2, ROT, SCAL, SWAP };

struct level1 {
    const char *call;
    enum routine routine;
    cudaDataType_t type;
    int64_t n;
    struct vgpu_scalar alpha, beta; /* rot: c and s */
    void *x, *y;                    /* y NULL: the routine has none */
    int64_t incx, incy;
    void *result; /* NULL: the routine has none */
    cudaDataType_t result_type;
    int index_bytes; /* amax, amin: 4 or 8 */
    bool result_on_device;
};

/* Index of element i of a vector by the rules of BLAS: a negative stride begins at the far end. */
static int64_t at(int64_t i, int64_t n, int64_t inc) {
    return inc < 0 ? (i - n + 1) * inc : i * inc;
}

static void set_result(const struct level1 *l, double value) {
    if (l->routine != AMAX && l->routine != AMIN)
        vgpu_store(l->result_type, l->result, 0, value);
    else if (l->index_bytes == 8)
        *(int64_t *)l->result = (int64_t)value;
    else
        *(int *)l->result = (int)value;
}

/* 1-based place of the first element of largest or least magnitude. */
static double extreme(const struct level1 *l) {
    int64_t best = 0;
    double value = 0;
    for (int64_t i = 0; i < l->n; i++) {
        double v = fabs(vgpu_load(l->type, l->x, i * l->incx));
        if (!i || (l->routine == AMAX ? v > value : v < value)) {
            best = i;
            value = v;
        }
    }
    return (double)(best + 1);
}

static void run_float(const struct level1 *l, float a, float b) {
    int n = (int)l->n, ix = (int)l->incx, iy = (int)l->incy;
    switch (l->routine) {
    case ASUM:
        set_result(l, cblas_sasum(n, l->x, ix));
        break;
    case DOT:
        set_result(l, cblas_sdot(n, l->x, ix, l->y, iy));
        break;
    case NRM2:
        set_result(l, cblas_snrm2(n, l->x, ix));
        break;
    case AXPY:
        cblas_saxpy(n, a, l->x, ix, l->y, iy);
        break;
    case COPY:
        cblas_scopy(n, l->x, ix, l->y, iy);
        break;
    case ROT:
        cblas_srot(n, l->x, ix, l->y, iy, a, b);
        break;
    case SCAL:
        cblas_sscal(n, a, l->x, ix);
        break;
    case SWAP:
        cblas_sswap(n, l->x, ix, l->y, iy);
        break;
    default:
        set_result(l, extreme(l));
    }
}

static void run_double(const struct level1 *l, double a, double b) {
    int n = (int)l->n, ix = (int)l->incx, iy = (int)l->incy;
    switch (l->routine) {
    case ASUM:
        set_result(l, cblas_dasum(n, l->x, ix));
        break;
    case DOT:
        set_result(l, cblas_ddot(n, l->x, ix, l->y, iy));
        break;
    case NRM2:
        set_result(l, cblas_dnrm2(n, l->x, ix));
        break;
    case AXPY:
        cblas_daxpy(n, a, l->x, ix, l->y, iy);
        break;
    case COPY:
        cblas_dcopy(n, l->x, ix, l->y, iy);
        break;
    case ROT:
        cblas_drot(n, l->x, ix, l->y, iy, a, b);
        break;
    case SCAL:
        cblas_dscal(n, a, l->x, ix);
        break;
    case SWAP:
        cblas_dswap(n, l->x, ix, l->y, iy);
        break;
    default:
        set_result(l, extreme(l));
    }
}

static void element16(const struct level1 *l, int64_t i, double a, double b, double *sum) {
    int64_t ix = at(i, l->n, l->incx), iy = at(i, l->n, l->incy);
    double x = vgpu_load(l->type, l->x, ix), y = l->y ? vgpu_load(l->type, l->y, iy) : 0;
    switch (l->routine) {
    case ASUM:
        *sum += fabs(x);
        break;
    case DOT:
        *sum += x * y;
        break;
    case NRM2:
        *sum += x * x;
        break;
    case AXPY:
        vgpu_store(l->type, l->y, iy, a * x + y);
        break;
    case COPY:
        vgpu_store(l->type, l->y, iy, x);
        break;
    case SCAL:
        vgpu_store(l->type, l->x, ix, a * x);
        break;
    case ROT:
        vgpu_store(l->type, l->x, ix, a * x + b * y);
        vgpu_store(l->type, l->y, iy, a * y - b * x);
        break;
    case SWAP:
        vgpu_store(l->type, l->x, ix, y);
        vgpu_store(l->type, l->y, iy, x);
        break;
    default:
        break;
    }
}

static void run_16bit(const struct level1 *l, double a, double b) {
    double sum = 0;
    if (l->routine == AMAX || l->routine == AMIN) {
        set_result(l, extreme(l));
        return;
    }
    for (int64_t i = 0; i < l->n; i++) element16(l, i, a, b, &sum);
    if (l->result) set_result(l, l->routine == NRM2 ? sqrt(sum) : sum);
}

static void run_level1(void *args) {
    struct level1 *l = args;
    double a = 0, b = 0;
    size_t e = vgpu_type_bytes(l->type), r = l->index_bytes ? (size_t)l->index_bytes : vgpu_type_bytes(l->result_type);
    bool scalars = l->routine == AXPY || l->routine == SCAL || l->routine == ROT;
    if (scalars &&
        (!vgpu_scalar_get(&l->alpha, l->call, &a) || (l->routine == ROT && !vgpu_scalar_get(&l->beta, l->call, &b))))
        return;
    if (l->result_on_device && !vgpu_reach(l->call, l->result, r)) return;
    /* Reductions of nothing, and of a stride that is not positive where there is one vector, are zero. */
    if (l->n <= 0 || (!l->y && l->incx <= 0)) {
        if (l->result) set_result(l, 0);
        return;
    }
    if (!vgpu_reach(l->call, l->x, vgpu_vector_bytes(l->n, l->incx, e)) ||
        (l->y && !vgpu_reach(l->call, l->y, vgpu_vector_bytes(l->n, l->incy, e))))
        return;
    if (l->type == CUDA_R_32F)
        run_float(l, (float)a, (float)b);
    else if (l->type == CUDA_R_64F)
        run_double(l, a, b);
    else
        run_16bit(l, a, b);
}

/* alpha and beta: host or device pointers of type `scalar`, NULL where the routine has none. */
static cublasStatus_t level1(cublasHandle_t handle, struct level1 *l, const void *alpha, const void *beta,
                             cudaDataType_t scalar) {
    struct vgpu_blas h;
    cublasStatus_t e = vgpu_blas_open(handle, &h);
    bool two = l->routine == AXPY || l->routine == COPY || l->routine == DOT || l->routine == ROT || l->routine == SWAP;
    bool scalars = l->routine == AXPY || l->routine == SCAL || l->routine == ROT;
    bool reduces =
        l->routine == AMAX || l->routine == AMIN || l->routine == ASUM || l->routine == DOT || l->routine == NRM2;
    if (e) return e;
    if ((scalars && !alpha) || (l->routine == ROT && !beta) || (reduces && !l->result))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (l->n > 0 && (!l->x || (two && !l->y))) return CUBLAS_STATUS_INVALID_VALUE;
    if (vgpu_too_large(l->n, l->incx, l->incy)) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (l->n <= 0 && !reduces) return CUBLAS_STATUS_SUCCESS;
    if (scalars) l->alpha = vgpu_scalar(&h, alpha, scalar);
    if (l->routine == ROT) l->beta = vgpu_scalar(&h, beta, scalar);
    l->result_on_device = reduces && h.mode == CUBLAS_POINTER_MODE_DEVICE;
    return vgpu_blas_run(&h, l->call, "", run_level1, l, sizeof *l, reduces && !l->result_on_device);
}

#define REDUCE(name, letter, code, T, which)                                                                \
    cublasStatus_t cublas##name##_v2_64(cublasHandle_t h, int64_t n, const T *x, int64_t incx, T *result) { \
        struct level1 l = {.call = "cublas" #name,                                                          \
                           .routine = which,                                                                \
                           .type = code,                                                                    \
                           .n = n,                                                                          \
                           .x = (void *)x,                                                                  \
                           .incx = incx,                                                                    \
                           .result = result,                                                                \
                           .result_type = code};                                                            \
        return level1(h, &l, NULL, NULL, code);                                                             \
    }

#define EXTREME(name, code, T, which)                                                                             \
    cublasStatus_t cublas##name##_v2_64(cublasHandle_t h, int64_t n, const T *x, int64_t incx, int64_t *result) { \
        struct level1 l = {.call = "cublas" #name,                                                                \
                           .routine = which,                                                                      \
                           .type = code,                                                                          \
                           .n = n,                                                                                \
                           .x = (void *)x,                                                                        \
                           .incx = incx,                                                                          \
                           .result = result,                                                                      \
                           .index_bytes = 8};                                                                     \
        return level1(h, &l, NULL, NULL, code);                                                                   \
    }                                                                                                             \
    cublasStatus_t cublas##name##_v2(cublasHandle_t h, int n, const T *x, int incx, int *result) {                \
        struct level1 l = {.call = "cublas" #name,                                                                \
                           .routine = which,                                                                      \
                           .type = code,                                                                          \
                           .n = n,                                                                                \
                           .x = (void *)x,                                                                        \
                           .incx = incx,                                                                          \
                           .result = result,                                                                      \
                           .index_bytes = 4};                                                                     \
        return level1(h, &l, NULL, NULL, code);                                                                   \
    }

#define LEVEL1(S, s, code, T)                                                                                         \
    REDUCE(S##asum, S, code, T, ASUM)                                                                                 \
    REDUCE(S##nrm2, S, code, T, NRM2)                                                                                 \
    EXTREME(I##s##amax, code, T, AMAX)                                                                                \
    EXTREME(I##s##amin, code, T, AMIN)                                                                                \
    cublasStatus_t cublas##S##axpy_v2_64(cublasHandle_t h, int64_t n, const T *alpha, const T *x, int64_t incx, T *y, \
                                         int64_t incy) {                                                              \
        struct level1 l = {.call = "cublas" #S "axpy",                                                                \
                           .routine = AXPY,                                                                           \
                           .type = code,                                                                              \
                           .n = n,                                                                                    \
                           .x = (void *)x,                                                                            \
                           .incx = incx,                                                                              \
                           .y = y,                                                                                    \
                           .incy = incy};                                                                             \
        return level1(h, &l, alpha, NULL, code);                                                                      \
    }                                                                                                                 \
    cublasStatus_t cublas##S##copy_v2_64(cublasHandle_t h, int64_t n, const T *x, int64_t incx, T *y, int64_t incy) { \
        struct level1 l = {.call = "cublas" #S "copy",                                                                \
                           .routine = COPY,                                                                           \
                           .type = code,                                                                              \
                           .n = n,                                                                                    \
                           .x = (void *)x,                                                                            \
                           .incx = incx,                                                                              \
                           .y = y,                                                                                    \
                           .incy = incy};                                                                             \
        return level1(h, &l, NULL, NULL, code);                                                                       \
    }                                                                                                                 \
    cublasStatus_t cublas##S##swap_v2_64(cublasHandle_t h, int64_t n, T *x, int64_t incx, T *y, int64_t incy) {       \
        struct level1 l = {.call = "cublas" #S "swap",                                                                \
                           .routine = SWAP,                                                                           \
                           .type = code,                                                                              \
                           .n = n,                                                                                    \
                           .x = x,                                                                                    \
                           .incx = incx,                                                                              \
                           .y = y,                                                                                    \
                           .incy = incy};                                                                             \
        return level1(h, &l, NULL, NULL, code);                                                                       \
    }                                                                                                                 \
    cublasStatus_t cublas##S##dot_v2_64(cublasHandle_t h, int64_t n, const T *x, int64_t incx, const T *y,            \
                                        int64_t incy, T *result) {                                                    \
        struct level1 l = {.call = "cublas" #S "dot",                                                                 \
                           .routine = DOT,                                                                            \
                           .type = code,                                                                              \
                           .n = n,                                                                                    \
                           .x = (void *)x,                                                                            \
                           .incx = incx,                                                                              \
                           .y = (void *)y,                                                                            \
                           .incy = incy,                                                                              \
                           .result = result,                                                                          \
                           .result_type = code};                                                                      \
        return level1(h, &l, NULL, NULL, code);                                                                       \
    }                                                                                                                 \
    cublasStatus_t cublas##S##scal_v2_64(cublasHandle_t h, int64_t n, const T *alpha, T *x, int64_t incx) {           \
        struct level1 l = {.call = "cublas" #S "scal", .routine = SCAL, .type = code, .n = n, .x = x, .incx = incx};  \
        return level1(h, &l, alpha, NULL, code);                                                                      \
    }                                                                                                                 \
    cublasStatus_t cublas##S##rot_v2_64(cublasHandle_t h, int64_t n, T *x, int64_t incx, T *y, int64_t incy,          \
                                        const T *c, const T *s) {                                                     \
        struct level1 l = {.call = "cublas" #S "rot",                                                                 \
                           .routine = ROT,                                                                            \
                           .type = code,                                                                              \
                           .n = n,                                                                                    \
                           .x = x,                                                                                    \
                           .incx = incx,                                                                              \
                           .y = y,                                                                                    \
                           .incy = incy};                                                                             \
        return level1(h, &l, c, s, code);                                                                             \
    }

LEVEL1(S, s, CUDA_R_32F, float)
LEVEL1(D, d, CUDA_R_64F, double)

/* ---- the Ex forms where all operands have one type and the work is in that type or in fp32 ---- */

static bool plain(cudaDataType_t x, cudaDataType_t y, cudaDataType_t execution) {
    return vgpu_type_bytes(x) && x == y && execution == (x == CUDA_R_64F ? CUDA_R_64F : CUDA_R_32F);
}

cublasStatus_t cublasAxpyEx_64(cublasHandle_t h, int64_t n, const void *alpha, cudaDataType at_, const void *x,
                               cudaDataType xt, int64_t incx, void *y, cudaDataType yt, int64_t incy, cudaDataType et) {
    if (!plain(xt, yt, et) || !vgpu_type_bytes(at_)) return CUBLAS_STATUS_NOT_SUPPORTED;
    struct level1 l = {.call = "cublasAxpyEx",
                       .routine = AXPY,
                       .type = xt,
                       .n = n,
                       .x = (void *)x,
                       .incx = incx,
                       .y = y,
                       .incy = incy};
    return level1(h, &l, alpha, NULL, at_);
}

cublasStatus_t cublasScalEx_64(cublasHandle_t h, int64_t n, const void *alpha, cudaDataType at_, void *x,
                               cudaDataType xt, int64_t incx, cudaDataType et) {
    if (!plain(xt, xt, et) || !vgpu_type_bytes(at_)) return CUBLAS_STATUS_NOT_SUPPORTED;
    struct level1 l = {.call = "cublasScalEx", .routine = SCAL, .type = xt, .n = n, .x = x, .incx = incx};
    return level1(h, &l, alpha, NULL, at_);
}

cublasStatus_t cublasDotEx_64(cublasHandle_t h, int64_t n, const void *x, cudaDataType xt, int64_t incx, const void *y,
                              cudaDataType yt, int64_t incy, void *result, cudaDataType rt, cudaDataType et) {
    if (!plain(xt, yt, et) || rt != xt) return CUBLAS_STATUS_NOT_SUPPORTED;
    struct level1 l = {.call = "cublasDotEx",
                       .routine = DOT,
                       .type = xt,
                       .n = n,
                       .x = (void *)x,
                       .incx = incx,
                       .y = (void *)y,
                       .incy = incy,
                       .result = result,
                       .result_type = rt};
    return level1(h, &l, NULL, NULL, xt);
}

cublasStatus_t cublasNrm2Ex_64(cublasHandle_t h, int64_t n, const void *x, cudaDataType xt, int64_t incx, void *result,
                               cudaDataType rt, cudaDataType et) {
    if (!plain(xt, xt, et) || rt != xt) return CUBLAS_STATUS_NOT_SUPPORTED;
    struct level1 l = {.call = "cublasNrm2Ex",
                       .routine = NRM2,
                       .type = xt,
                       .n = n,
                       .x = (void *)x,
                       .incx = incx,
                       .result = result,
                       .result_type = rt};
    return level1(h, &l, NULL, NULL, xt);
}

cublasStatus_t cublasAsumEx_64(cublasHandle_t h, int64_t n, const void *x, cudaDataType xt, int64_t incx, void *result,
                               cudaDataType rt, cudaDataType et) {
    if (!plain(xt, xt, et) || rt != xt) return CUBLAS_STATUS_NOT_SUPPORTED;
    struct level1 l = {.call = "cublasAsumEx",
                       .routine = ASUM,
                       .type = xt,
                       .n = n,
                       .x = (void *)x,
                       .incx = incx,
                       .result = result,
                       .result_type = rt};
    return level1(h, &l, NULL, NULL, xt);
}

cublasStatus_t cublasCopyEx_64(cublasHandle_t h, int64_t n, const void *x, cudaDataType xt, int64_t incx, void *y,
                               cudaDataType yt, int64_t incy) {
    if (!vgpu_type_bytes(xt) || xt != yt) return CUBLAS_STATUS_NOT_SUPPORTED;
    struct level1 l = {.call = "cublasCopyEx",
                       .routine = COPY,
                       .type = xt,
                       .n = n,
                       .x = (void *)x,
                       .incx = incx,
                       .y = y,
                       .incy = incy};
    return level1(h, &l, NULL, NULL, xt);
}

cublasStatus_t cublasSwapEx_64(cublasHandle_t h, int64_t n, void *x, cudaDataType xt, int64_t incx, void *y,
                               cudaDataType yt, int64_t incy) {
    if (!vgpu_type_bytes(xt) || xt != yt) return CUBLAS_STATUS_NOT_SUPPORTED;
    struct level1 l = {
        .call = "cublasSwapEx", .routine = SWAP, .type = xt, .n = n, .x = x, .incx = incx, .y = y, .incy = incy};
    return level1(h, &l, NULL, NULL, xt);
}
