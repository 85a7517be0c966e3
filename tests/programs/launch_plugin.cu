// A library with device code that a program opens and closes: launch_plugin(n) is 40 + n if its kernel ran and its
// variable began anew.
__device__ int calls = 39;

__global__ void add(int *x, int n) {
    *x = ++calls + n;
}

extern "C" int launch_plugin(int n) {
    int *x, host = -1;
    if (cudaMalloc(&x, 4)) return -2;
    add<<<1, 1>>>(x, n);
    if (cudaMemcpy(&host, x, 4, cudaMemcpyDeviceToHost)) return -3;
    return cudaFree(x) ? -4 : host;
}
