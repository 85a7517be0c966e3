// Kernels for test_vgpu_cupti_kernel.c, launched as nvcc makes it and by the runtime's functions.
#include <cuda_runtime.h>

__global__ void add_one(float *x, int n) {
    int block = blockIdx.y * gridDim.x + blockIdx.x;
    int i = (block * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    if (i < n) x[i] += 1;
}

__global__ void rotate(float *x) {
    __shared__ float fixed[64];
    extern __shared__ float dynamic[];
    dynamic[threadIdx.x] = fixed[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = dynamic[(threadIdx.x + 1) % blockDim.x] + 0 * fixed[0];
}

extern "C" {

void launch_add_one(float *x, int n, cudaStream_t s) {
    add_one<<<dim3(4, 2, 1), dim3(32, 2, 1), 0, s>>>(x, n);
}
void launch_rotate(float *x) {
    rotate<<<1, 64, 64 * sizeof(float)>>>(x);
}
const void *function_add_one(void) {
    return reinterpret_cast<const void *>(add_one);
}
}
