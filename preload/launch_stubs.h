/* What nvcc's registration and launch stubs call in the runtime. The vendor declares these for its own compiler only
 * (crt/host_runtime.h, crt/device_functions.h); preload/gen_wrappers.py reads them here. */
#ifndef ACCT_PRELOAD_LAUNCH_STUBS_H
#define ACCT_PRELOAD_LAUNCH_STUBS_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

void **__cudaRegisterFatBinary(void *wrapper);
void __cudaUnregisterFatBinary(void **handle);
void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int thread_limit,
                            uint3 *tid, uint3 *bid, dim3 *block, dim3 *grid, int *warp_size);
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args, size_t shared,
                               cudaStream_t stream);
cudaError_t __cudaLaunchKernel_ptsz(cudaKernel_t kernel, dim3 grid, dim3 block, void **args, size_t shared,
                                    cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
