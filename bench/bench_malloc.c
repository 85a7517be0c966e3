/* What a recorded cudaMalloc + cudaFree pair costs over the same pair of the runtime library itself: in one process
 * under libacct.so, batches through the wrappers and batches straight to the runtime's functions take turns, so that
 * what else the machine does hits both alike. On the virtual GPU (BUILD/vgpu), or whatever CUDA runtime LD_LIBRARY_PATH
 * names. */
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include "bench/bench_preloaded.h"

#define BATCHES 201
#define PAIRS 500

typedef cudaError_t malloc_fn(void **, size_t);
typedef cudaError_t free_fn(void *);

static double batch(malloc_fn *allocate, free_fn *release) {
    void *p;
    double start = bench_seconds();
    for (int i = 0; i < PAIRS; i++)
        if (allocate(&p, 4096) || release(p)) exit(1);
    return (bench_seconds() - start) * 1e9 / PAIRS;
}

/* Pauses between the batches let the collector get even: a training program does not allocate without end either, and
 * the price of a full ring is another one. */
static int measure(void) {
    static double bare[BATCHES], recorded[BATCHES];
    void *runtime = dlopen("libcudart.so.13", RTLD_NOLOAD | RTLD_NOW);
    malloc_fn *allocate = runtime ? (malloc_fn *)dlsym(runtime, "cudaMalloc") : NULL;
    free_fn *release = runtime ? (free_fn *)dlsym(runtime, "cudaFree") : NULL;
    if (!allocate || !release || allocate == cudaMalloc) {
        printf("libacct.so does not stand before the runtime here\n");
        return 1;
    }
    batch(cudaMalloc, cudaFree);
    batch(allocate, release);
    for (int b = 0; b < BATCHES; b++) {
        if (b % 2) bare[b] = batch(allocate, release);
        recorded[b] = batch(cudaMalloc, cudaFree);
        if (!(b % 2)) bare[b] = batch(allocate, release);
        usleep(getenv("BENCH_SHORT") ? 1000 : 10000);
    }
    double a = bench_median(bare, BATCHES), b = bench_median(recorded, BATCHES);
    printf("cudaMalloc + cudaFree: %.0f ns, recorded %.0f ns: %.0f ns more a pair\n", a, b, b - a);
    printf("recorded pair / the runtime's own: ratio %.2f\n", b / a);
    return 0;
}

int main(int argc, char **argv) {
    char build[2048], trace[] = "/tmp/acct-bench-XXXXXX", command[4096];
    if (argc > 1 && !strcmp(argv[1], "measure")) return measure();
    if (!bench_find_build(build, sizeof build) || !mkdtemp(trace)) return 1;
    snprintf(command, sizeof command, "LD_PRELOAD='%s/libacct.so' ACCT_OUTPUT=%s/t.db '%s' measure", build, trace,
             argv[0]);
    int status = system(command);
    snprintf(command, sizeof command, "rm -rf '%s'", trace);
    return system(command) || status ? 1 : 0;
}
