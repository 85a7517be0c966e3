/* Preloaded into train: the device is an A100, which has no fp8. */
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdio.h>

typedef cudaError_t properties_fn(struct cudaDeviceProp *, int);

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *out, int device) {
    properties_fn *next = (properties_fn *)dlsym(RTLD_NEXT, "cudaGetDeviceProperties");
    cudaError_t e = next ? next(out, device) : cudaErrorNotSupported;
    snprintf(out->name, sizeof out->name, "NVIDIA A100-SXM4-80GB");
    out->major = 8;
    out->minor = 0;
    return e;
}
