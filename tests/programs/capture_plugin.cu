// A library with a kernel of its own: opened by capture_kernels, or linked with it (-rdc=true).
#include <cstdio>

__global__ void of_the_plugin(int *x, int by) {
    atomicAdd(x, by);
}

// n launches, each adding 3. 0: the sum is right.
extern "C" int plugin_launch(int n) {
    int *x, sum = 0;
    if (cudaMalloc(&x, sizeof *x) != cudaSuccess || cudaMemset(x, 0, sizeof *x) != cudaSuccess) return 1;
    for (int i = 0; i < n; i++) of_the_plugin<<<1, 1>>>(x, 3);
    if (cudaMemcpy(&sum, x, sizeof sum, cudaMemcpyDeviceToHost) != cudaSuccess) return 2;
    cudaFree(x);
    if (sum != 3 * n) std::printf("sum %d\n", sum);
    return sum != 3 * n;
}
