#include <cstdio>
#include "tests/programs/program_check.h"

__device__ int of_b = 4;
__constant__ float const_of_b = 2;
__device__ int call_a(int x);
static __device__ int mine = 200;

__device__ __noinline__ static int local(int x) {
    return x * 5 + mine;
}

__device__ __noinline__ int call_b(int x) {
    return call_a(x) + local(x);
}

__global__ void from_b(int *x) {
    *x = call_b(3);
    printf("unit b\n");
}

void run_b(int *x) {
    from_b<<<1, 1>>>(x);
    CHECK(cudaGetLastError());
}
