/* What libcudart's stand-in answers without the engine: the registration calls that nvcc puts into constructors, so
 * that a program that links CUDA code but makes no CUDA call starts as fast as without, and the device's own account.
 */
#include "vgpu/vgpu_standin.h"

#include <cuda_runtime_api.h>

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

int acctVgpuDevice(int ordinal, struct acct_vgpu_device *out) {
    const struct vgpu_engine *e = vgpu_engine_get();
    return e && out ? e->device(ordinal, out) : -1;
}

/* The handle of a fat binary is only handed back to us. */
void **__cudaRegisterFatBinary(void *fat) {
    static void *handle;
    (void)fat;
    return &handle;
}

void __cudaRegisterFatBinaryEnd(void **handle) {
    (void)handle;
}

void __cudaUnregisterFatBinary(void **handle) {
    (void)handle;
}

char __cudaInitModule(void **handle) {
    (void)handle;
    return 1;
}

void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int limit, uint3 *tid,
                            uint3 *bid, dim3 *block, dim3 *grid, int *warp) {
    (void)handle, (void)host, (void)device, (void)name, (void)limit, (void)tid, (void)bid, (void)block, (void)grid,
        (void)warp;
}

void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int ext, size_t bytes, int constant,
                       int global) {
    (void)handle, (void)host, (void)device, (void)name, (void)ext, (void)bytes, (void)constant, (void)global;
}

void __cudaRegisterManagedVar(void **handle, void **host, char *device, const char *name, int ext, size_t bytes,
                              int constant, int global) {
    (void)handle, (void)host, (void)device, (void)name, (void)ext, (void)bytes, (void)constant, (void)global;
}

void __cudaRegisterHostVar(void **handle, const char *name, char *host, size_t bytes) {
    (void)handle, (void)name, (void)host, (void)bytes;
}

/* A launch `f<<<grid, block, shared, stream>>>(…)` pushes its configuration and pops it in the launch stub. */
struct configuration {
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
};
enum { DEPTH = 16 };
static __thread struct configuration pushed[DEPTH];
static __thread unsigned depth;

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, struct CUstream_st *stream) {
    if (depth == DEPTH) return cudaErrorInvalidConfiguration;
    pushed[depth++] = (struct configuration){grid, block, shared, stream};
    return cudaSuccess;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
    if (!depth) return cudaErrorMissingConfiguration;
    struct configuration *c = &pushed[--depth];
    *grid = c->grid;
    *block = c->block;
    *shared = c->shared;
    *(cudaStream_t *)stream = c->stream;
    return cudaSuccess;
}

/* A kernel's handle is its host function: the launch, which is not implemented, says so by name. */
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *function) {
    *kernel = (cudaKernel_t)function;
    return cudaSuccess;
}
