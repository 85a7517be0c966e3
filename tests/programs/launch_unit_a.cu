// Two translation units of one program (nvcc -rdc=true): functions and variables of the other, names that both have.
#include <cstdio>
#include "tests/programs/program_check.h"

extern __device__ int of_b;
extern __constant__ float const_of_b;
__device__ int call_b(int x);
__device__ int of_a = 11;
static __device__ int mine = 100;

__device__ __noinline__ static int local(int x) {
    return x * 3 + mine;
}

__device__ __noinline__ int call_a(int x) {
    return x + of_a;
}

__global__ void from_a(int *x) {
    x[threadIdx.x] = call_b(threadIdx.x) + local(2) + of_b + (int)const_of_b;
    if (!threadIdx.x) printf("unit a\n");
}

void run_b(int *x);

int main() {
    int *x, host[33], value = 1000;
    CHECK(cudaMalloc(&x, sizeof host));
    from_a<<<1, 32>>>(x);
    run_b(x + 32);
    CHECK(cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 32; i++) // call_b(i) = i + 11 + 5 i + 200; local(2) = 106; of_b = 4; const_of_b = 2
        if (host[i] != i + 11 + 5 * i + 200 + 106 + 4 + 2) return 1;
    if (host[32] != 3 + 11 + 5 * 3 + 200) return 1;
    CHECK(cudaMemcpyToSymbol(mine, &value, sizeof value)); // this unit's
    from_a<<<1, 32>>>(x);
    CHECK(cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost));
    return host[0] == 11 + 200 + 1006 + 4 + 2 ? 7 : 1;
}
