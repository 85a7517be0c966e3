/* What a recorded cudaMalloc + cudaFree pair costs over the same pair of the runtime library itself: in one process
 * under libacct.so, batches through the wrappers and batches straight to the runtime's functions take turns, so that
 * what else the machine does hits both alike. On the virtual GPU (BUILD/vgpu), or whatever CUDA runtime LD_LIBRARY_PATH
 * names. */
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BATCHES 201
#define PAIRS 500

typedef cudaError_t malloc_fn(void **, size_t);
typedef cudaError_t free_fn(void *);

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double batch(malloc_fn *allocate, free_fn *release) {
    void *p;
    double start = seconds();
    for (int i = 0; i < PAIRS; i++)
        if (allocate(&p, 4096) || release(p)) exit(1);
    return (seconds() - start) * 1e9 / PAIRS;
}

static double median(double *v) {
    qsort(v, BATCHES, sizeof *v, ascending);
    return v[BATCHES / 2];
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
    double a = median(bare), b = median(recorded);
    printf("cudaMalloc + cudaFree: %.0f ns, recorded %.0f ns: %.0f ns more a pair\n", a, b, b - a);
    printf("recorded pair / the runtime's own: ratio %.2f\n", b / a);
    return 0;
}

/* BUILD, from BUILD/bench/bench_malloc; 0: not found. */
static int build_folder(char *out, size_t size) {
    ssize_t n = readlink("/proc/self/exe", out, size - 1);
    if (n <= 0) return 0;
    out[n] = 0;
    for (int i = 0; i < 2; i++) {
        char *slash = strrchr(out, '/');
        if (!slash) return 0;
        *slash = 0;
    }
    return 1;
}

int main(int argc, char **argv) {
    char build[2048], path[8192], trace[] = "/tmp/acct-bench-XXXXXX", command[4096];
    const char *given = getenv("LD_LIBRARY_PATH");
    if (argc > 1 && !strcmp(argv[1], "measure")) return measure();
    if (!build_folder(build, sizeof build) || !mkdtemp(trace)) return 1;
    snprintf(path, sizeof path, "%s%s%s/vgpu", given ? given : "", given ? ":" : "", build);
    setenv("LD_LIBRARY_PATH", path, 1);
    snprintf(command, sizeof command, "LD_PRELOAD='%s/libacct.so' ACCT_OUTPUT=%s/t.db '%s' measure", build, trace,
             argv[0]);
    int status = system(command);
    snprintf(command, sizeof command, "rm -rf '%s'", trace);
    return system(command) || status ? 1 : 0;
}
