/* The wrappers that record nothing but note which kernels there are. Registration runs in constructors: it is no call
 * of the program that would start a trace, nor is what the runtime calls inside. */
#include <dlfcn.h>
#include "acct/env.h"
#include "preload/fill.h"
#include "preload/kernels.h"
#include "preload/launch_stubs.h"

/* ACCT=off: nothing is noted. The environment is looked at once, since this may come before our own constructor. */
static int wanted(void) {
    static _Atomic int known; /* 1 no, 2 yes */
    int k = atomic_load_explicit(&known, memory_order_relaxed);
    if (!k) {
        uint64_t on;
        acct_env_number(ENV_ACCT, &on);
        atomic_store_explicit(&known, k = on ? 2 : 1, memory_order_relaxed);
    }
    return k == 2;
}

#define REAL(name) (__typeof__(&name))real_get(API_##name)

void **__cudaRegisterFatBinary(void *wrapper) {
    __typeof__(&__cudaRegisterFatBinary) real = REAL(__cudaRegisterFatBinary);
    if (!real) return NULL;
    hook_nest(1);
    void **handle = real(wrapper);
    if (handle && wanted()) kernels_note_binary(handle, wrapper);
    hook_nest(-1);
    return handle;
}

void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int thread_limit,
                            uint3 *tid, uint3 *bid, dim3 *block, dim3 *grid, int *warp_size) {
    __typeof__(&__cudaRegisterFunction) real = REAL(__cudaRegisterFunction);
    if (!real) return;
    hook_nest(1);
    real(handle, host, device, name, thread_limit, tid, bid, block, grid, warp_size);
    if (wanted()) kernels_note_function(handle, host, name);
    hook_nest(-1);
}

void __cudaUnregisterFatBinary(void **handle) {
    __typeof__(&__cudaUnregisterFatBinary) real = REAL(__cudaUnregisterFatBinary);
    hook_nest(1);
    if (wanted()) kernels_forget_binary(handle); /* before: afterwards its addresses may be others' already */
    if (real) real(handle);
    hook_nest(-1);
}

/* The handle that the runtime gives out for a host function: a launch may name either. */
static cudaError_t get_kernel(__typeof__(&cudaGetKernel) real, cudaKernel_t *kernel, const void *host) {
    if (!real) return cudaErrorSharedObjectSymbolNotFound;
    hook_nest(1);
    cudaError_t r = real(kernel, host);
    if (r == cudaSuccess && wanted()) kernels_note_handle(*kernel, host);
    hook_nest(-1);
    return r;
}

cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host) {
    return get_kernel(REAL(__cudaGetKernel), kernel, host);
}

cudaError_t cudaGetKernel(cudaKernel_t *kernel, const void *host) {
    return get_kernel(REAL(cudaGetKernel), kernel, host);
}

cudaError_t cudaLibraryUnload(cudaLibrary_t library) {
    __typeof__(&cudaLibraryUnload) real = REAL(cudaLibraryUnload);
    if (!real) return cudaErrorSharedObjectSymbolNotFound;
    hook_nest(1);
    cudaError_t r = real(library);
    if (r == cudaSuccess && wanted()) kernels_forget_handles();
    hook_nest(-1);
    return r;
}
