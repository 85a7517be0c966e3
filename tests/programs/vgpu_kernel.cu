// What nvcc makes of a program with a kernel and device variables, on the shared runtime: it must start and allocate; a
// launch says that kernels are not there, and the error reaches the program.
#include <cstdio>

__constant__ float factor;
__device__ int counter;

__global__ void scale(float *x, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        x[i] *= factor;
    if (i == 0)
        counter++;
}

int main()
{
    float *x;
    if (cudaMalloc(&x, 1000) != cudaSuccess || cudaMemset(x, 0, 1000) != cudaSuccess)
        return 1;
    scale<<<4, 64>>>(x, 250);
    cudaError_t launch = cudaGetLastError();
    std::printf("%s\n", cudaGetErrorName(launch));
    if (cudaGetLastError() != cudaSuccess || cudaFree(x) != cudaSuccess || cudaDeviceSynchronize() != cudaSuccess)
        return 1;
    return launch == cudaErrorNotSupported ? 7 : 1;
}
