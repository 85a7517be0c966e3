// What nvcc makes of a program with a kernel and device variables, on the shared runtime.
#include <cstdio>

__constant__ float factor = 3;
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
    float *x, host[250];
    int count;
    for (int i = 0; i < 250; i++)
        host[i] = i;
    if (cudaMalloc(&x, sizeof host) != cudaSuccess || cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice) != cudaSuccess)
        return 1;
    scale<<<4, 64>>>(x, 250);
    scale<<<4, 64>>>(x, 200);
    if (cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost) != cudaSuccess ||
        cudaMemcpyFromSymbol(&count, counter, sizeof count) != cudaSuccess || count != 2)
        return 1;
    for (int i = 0; i < 250; i++)
        if (host[i] != i * (i < 200 ? 9.0f : 3.0f))
            return 1;
    return cudaDeviceSynchronize() == cudaSuccess ? 7 : 1;
}
