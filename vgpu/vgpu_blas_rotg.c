/* The numbers of a Givens rotation: rotg and rotmg. Their operands are four or five single numbers, all on the host or
 * all on the device by pointer mode. */
#include "vgpu/vgpu_blas_call.h"

enum { NUMBERS = 5 };

struct rotation {
    const char *call;
    cudaDataType_t type, cosine_type; /* cosine: of rotg; real beside complex numbers */
    bool modified;                    /* rotmg */
    void *p[NUMBERS];                 /* a, b, c, s; rotmg: d1, d2, x1, y1, five parameters */
};

static void rotate(const struct rotation *r) {
    void *const *p = r->p;
    if (r->modified && r->type == CUDA_R_32F)
        cblas_srotmg(p[0], p[1], p[2], *(float *)p[3], p[4]);
    else if (r->modified)
        cblas_drotmg(p[0], p[1], p[2], *(double *)p[3], p[4]);
    else if (r->type == CUDA_R_32F)
        cblas_srotg(p[0], p[1], p[2], p[3]);
    else if (r->type == CUDA_R_64F)
        cblas_drotg(p[0], p[1], p[2], p[3]);
    else if (r->type == CUDA_C_32F)
        cblas_crotg(p[0], p[1], p[2], p[3]);
    else
        cblas_zrotg(p[0], p[1], p[2], p[3]);
}

static uint64_t bytes_of(const struct rotation *r, int i) {
    if (r->modified) return (i == 4 ? 5 : 1) * vgpu_scalar_bytes(r->type);
    return vgpu_scalar_bytes(i == 2 ? r->cosine_type : r->type);
}

static bool in_reach(const struct rotation *r) {
    for (int i = 0; i < (r->modified ? 5 : 4); i++)
        if (!vgpu_reach(r->call, r->p[i], bytes_of(r, i))) return false;
    return true;
}

static void run_rotate(void *args) {
    struct rotation *r = args;
    if (in_reach(r)) rotate(r);
}

static void dry_rotate(void *args) {
    in_reach(args);
}

/* On the host it is the caller's thread that computes; the numbers are ready at return. */
static cublasStatus_t rotation(cublasHandle_t handle, struct rotation r) {
    struct vgpu_blas h;
    struct vgpu_work w = {.run = run_rotate, .dry = dry_rotate, .args = &r, .bytes = sizeof r};
    cublasStatus_t e = vgpu_blas_open(handle, &h);
    if (e) return e;
    for (int i = 0; i < (r.modified ? 5 : 4); i++) {
        if (!r.p[i]) return CUBLAS_STATUS_INVALID_VALUE;
        w.amount.bytes += (double)bytes_of(&r, i);
    }
    if (h.mode == CUBLAS_POINTER_MODE_DEVICE) return vgpu_blas_run(&h, r.call, "", &w, false);
    vgpu_blas_enter();
    rotate(&r);
    vgpu_blas_leave();
    return CUBLAS_STATUS_SUCCESS;
}

#define ROTG(S, T, code, R, rcode)                                                                   \
    cublasStatus_t cublas##S##rotg_v2(cublasHandle_t h, T *a, T *b, R *c, T *s) {                    \
        return rotation(h, (struct rotation){"cublas" #S "rotg", code, rcode, false, {a, b, c, s}}); \
    }
ROTG(S, float, CUDA_R_32F, float, CUDA_R_32F)
ROTG(D, double, CUDA_R_64F, double, CUDA_R_64F)
ROTG(C, cuComplex, CUDA_C_32F, float, CUDA_R_32F)
ROTG(Z, cuDoubleComplex, CUDA_C_64F, double, CUDA_R_64F)

#define ROTMG(S, T, code)                                                                                             \
    cublasStatus_t cublas##S##rotmg_v2(cublasHandle_t h, T *d1, T *d2, T *x1, const T *y1, T *numbers) {              \
        return rotation(h,                                                                                            \
                        (struct rotation){"cublas" #S "rotmg", code, code, true, {d1, d2, x1, (void *)y1, numbers}}); \
    }
ROTMG(S, float, CUDA_R_32F)
ROTMG(D, double, CUDA_R_64F)

/* Of real numbers alone: what c of a complex type would be is not documented. */
cublasStatus_t cublasRotgEx(cublasHandle_t h, void *a, void *b, cudaDataType ab, void *c, void *s, cudaDataType cs,
                            cudaDataType et) {
    if ((ab != CUDA_R_32F && ab != CUDA_R_64F) || cs != ab || et != ab) return CUBLAS_STATUS_NOT_SUPPORTED;
    return rotation(h, (struct rotation){"cublasRotgEx", ab, cs, false, {a, b, c, s}});
}

cublasStatus_t cublasRotmgEx(cublasHandle_t h, void *d1, cudaDataType d1t, void *d2, cudaDataType d2t, void *x1,
                             cudaDataType x1t, const void *y1, cudaDataType y1t, void *numbers, cudaDataType nt,
                             cudaDataType et) {
    if ((d1t != CUDA_R_32F && d1t != CUDA_R_64F) || d2t != d1t || x1t != d1t || y1t != d1t || nt != d1t || et != d1t)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    return rotation(h, (struct rotation){"cublasRotmgEx", d1t, d1t, true, {d1, d2, x1, (void *)y1, numbers}});
}
