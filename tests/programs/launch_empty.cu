// What a launch costs: launches of an empty kernel, in ns each; queued, and one at a time with a wait.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include "tests/programs/program_check.h"

__global__ void empty(int *, int) {}

static double now() {
    return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int main(int argc, char **argv) {
    int n = argc > 1 ? atoi(argv[1]) : 20000, *x;
    CHECK(cudaMalloc(&x, 4));
    empty<<<1, 32>>>(x, 1);
    CHECK(cudaDeviceSynchronize());
    double t = now();
    for (int i = 0; i < n; i++) empty<<<1, 32>>>(x, i);
    double issued = now() - t;
    CHECK(cudaDeviceSynchronize());
    double done = now() - t;
    t = now();
    for (int i = 0; i < n; i++) {
        empty<<<1, 32>>>(x, i);
        CHECK(cudaDeviceSynchronize());
    }
    double waited = now() - t;
    printf("issue %.0f ns, queued %.0f ns, waited for %.0f ns a launch\n", issued / n, done / n, waited / n);
    return 7;
}
