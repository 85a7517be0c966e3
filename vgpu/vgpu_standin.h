/* What the stand-in libraries share: the engine is loaded at the first call that needs it, from the folder that the
 * stand-in itself came from. Any thread. */
#ifndef VGPU_STANDIN_H
#define VGPU_STANDIN_H

#include "vgpu/vgpu_link.h"

struct vgpu_cudart_api;
struct vgpu_cublas_api;
struct vgpu_cublasLt_api;
struct vgpu_cupti_api;
struct vgpu_nccl_api;

/* The engine, or NULL if it cannot be loaded: one line on stderr says why, once. */
const struct vgpu_engine *vgpu_engine_get(void);

/* Called once with the engine, before any other call of it. Only libcudart's stand-in defines it. */
void vgpu_standin_opened(const struct vgpu_engine *engine) __attribute__((weak));

/* Says, at the first call only, that `name` is not implemented; returns `error`, which becomes the thread's last error
 * where the library keeps one. */
int vgpu_missing(int *said, const char *name, int error);

/* What CUPTI answers since 13.0 for the functions of its old profiler. */
int vgpu_removed(void);

static inline const struct vgpu_cudart_api *vgpu_cudart(void) {
    const struct vgpu_engine *e = vgpu_engine_get();
    return e ? e->cudart : 0;
}

static inline const struct vgpu_cublas_api *vgpu_cublas(void) {
    const struct vgpu_engine *e = vgpu_engine_get();
    return e ? e->cublas : 0;
}

static inline const struct vgpu_cublasLt_api *vgpu_cublasLt(void) {
    const struct vgpu_engine *e = vgpu_engine_get();
    return e ? e->cublasLt : 0;
}

static inline const struct vgpu_cupti_api *vgpu_cupti(void) {
    const struct vgpu_engine *e = vgpu_engine_get();
    return e ? e->cupti : 0;
}

static inline const struct vgpu_nccl_api *vgpu_nccl(void) {
    const struct vgpu_engine *e = vgpu_engine_get();
    return e ? e->nccl : 0;
}

#define vgpu_unavailable_cudart() cudaErrorInitializationError
#define vgpu_unavailable_cublas() CUBLAS_STATUS_NOT_INITIALIZED
#define vgpu_unavailable_cublasLt() CUBLAS_STATUS_NOT_INITIALIZED
#define vgpu_unavailable_cupti() CUPTI_ERROR_NOT_INITIALIZED
#define vgpu_unavailable_nccl() ncclSystemError

#endif
