/* Random numbers as acct-bench fills matrices with: COUNT of each format from the same seed, raw, to stdout; and a copy
 * of the last by its copying kernel. */
#include "measure/measure_cuda.h"

#include <stdio.h>
#include <stdlib.h>

enum { COUNT = 4096, FORMATS = FILL_INT8 + 1 };

static struct cuda c;
static struct cuda_kernels k;

static void check(cudaError_t rc, const char *what) {
    if (!rc) return;
    fprintf(stderr, "%s: %s\n", what, c.cudaGetErrorString(rc));
    exit(1);
}

static void launch(cudaKernel_t kernel, void **args) {
    dim3 grid = {3, 1, 1}, block = {64, 1, 1}; /* fewer threads than numbers: each makes several */
    check(c.cudaLaunchKernel((const void *)kernel, grid, block, args, 0, NULL), "launch");
}

static void print(const void *from, size_t bytes) {
    static char host[COUNT * sizeof(double)];
    check(c.cudaMemcpy(host, from, bytes, cudaMemcpyDeviceToHost), "copy");
    fwrite(host, 1, bytes, stdout);
}

int main(void) {
    static const size_t bytes[FORMATS] = {8, 4, 2, 2, 1, 1};
    char err[300];
    void *device, *copy;
    if (cuda_open(&c, err, sizeof err)) {
        fprintf(stderr, "%s\n", err);
        return 1;
    }
    check(cuda_load_kernels(&c, &k), "kernels");
    check(c.cudaMalloc(&device, COUNT * sizeof(double)), "memory");
    check(c.cudaMalloc(&copy, COUNT * sizeof(double)), "memory");
    for (int f = 0; f < FORMATS; f++) {
        unsigned long long n = COUNT, seed = 12345;
        void *args[] = {&device, &n, &f, &seed};
        launch(k.fill, args);
        print(device, COUNT * bytes[f]);
    }
    unsigned long long n = COUNT / 16;
    void *args[] = {&copy, &device, &n};
    launch(k.copy, args);
    print(copy, COUNT);
    return 0;
}
