/* What nvcc's launch stubs call beside the documented runtime. The vendor declares these for its own compiler only
 * (crt/device_functions.h), so vgpu/generate.py reads them here. */
#ifndef VGPU_CRT_H
#define VGPU_CRT_H

#include <cuda_runtime_api.h>

cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args, size_t shared,
                               cudaStream_t stream);

#endif
