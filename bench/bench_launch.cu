/* What a recorded kernel launch costs over the same launch by the runtime library itself: an empty kernel without and
 * one with eight arguments. In one process under libacct.so, batches through the wrapper and batches straight to the
 * runtime's function take turns, so that what else the machine does hits both alike; the device is idle at the start of
 * each. Once as it is without device times (ACCT_CUPTI=off), once with: then the runtime has the additional work of
 * tying what the device does to the call. On the virtual GPU (BUILD/vgpu), or whatever CUDA runtime LD_LIBRARY_PATH
 * names. Goal: below 300 ns more. */
#include <dlfcn.h>
#include "bench/bench_preloaded.h"

#define BATCHES 201
#define LAUNCHES 200
#define WARM 70000 /* the thread's ring has been round once: its pages are there, a price that is paid once */

__global__ void empty() {}
__global__ void eight(float *a, float *b, float *c, float *d, long n, long m, double x, double y) {
    if (a && n < 0) *a = *b + *c + *d + m + x + y;
}

typedef cudaError_t launch_fn(cudaKernel_t, dim3, dim3, void **, size_t, cudaStream_t);
extern "C" cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void **, size_t, cudaStream_t);

static double batch(launch_fn *launch, cudaKernel_t kernel, void **args) {
    double start = bench_seconds();
    for (int i = 0; i < LAUNCHES; i++)
        if (launch(kernel, dim3(1), dim3(1), args, 0, 0) != cudaSuccess) {
            printf("the launch failed: %s\n", cudaGetErrorString(cudaGetLastError()));
            exit(1);
        }
    double ns = (bench_seconds() - start) * 1e9 / LAUNCHES;
    if (cudaDeviceSynchronize() != cudaSuccess) exit(1);
    return ns;
}

static void compare(const char *what, launch_fn *direct, const void *function, void **args) {
    static double bare[BATCHES], recorded[BATCHES];
    cudaKernel_t kernel;
    if (cudaGetKernel(&kernel, function) != cudaSuccess) exit(1);
    for (int n = 0; n < WARM; n += LAUNCHES) {
        batch(__cudaLaunchKernel, kernel, args);
        if (n % (LAUNCHES * 20) == 0) usleep(5000);
    }
    for (int b = 0; b < BATCHES; b++) {
        if (b % 2) bare[b] = batch(direct, kernel, args);
        recorded[b] = batch(__cudaLaunchKernel, kernel, args);
        if (!(b % 2)) bare[b] = batch(direct, kernel, args);
        usleep(getenv("BENCH_SHORT") ? 1000 : 5000); /* the collector gets even */
    }
    double a = bench_median(bare, BATCHES), b = bench_median(recorded, BATCHES);
    printf("%s: %.0f ns, recorded %.0f ns: %.0f ns more a launch\n", what, a, b, b - a);
    printf("%s, recorded / the runtime's own: ratio %.2f\n", what, b / a);
}

static int measure(const char *how) {
    static long n = 1;
    static double x = 2;
    static void *nothing;
    void *args[] = {&nothing, &nothing, &nothing, &nothing, &n, &n, &x, &x};
    void *runtime = dlopen("libcudart.so.13", RTLD_NOLOAD | RTLD_NOW);
    launch_fn *direct = runtime ? (launch_fn *)dlsym(runtime, "__cudaLaunchKernel") : NULL;
    if (!direct || direct == __cudaLaunchKernel) {
        printf("libacct.so does not stand before the runtime here\n");
        return 1;
    }
    char what[2][64];
    snprintf(what[0], sizeof what[0], "empty kernel%s", how);
    snprintf(what[1], sizeof what[1], "8 arguments%s", how);
    compare(what[0], direct, (const void *)empty, NULL);
    compare(what[1], direct, (const void *)eight, args);
    return 0;
}

int main(int argc, char **argv) {
    char build[2048], trace[] = "/tmp/acct-bench-XXXXXX", command[8192];
    if (argc > 1 && !strcmp(argv[1], "measure")) return measure(argc > 2 ? argv[2] : "");
    if (!bench_find_build(build, sizeof build) || !mkdtemp(trace)) return 1;
    int status = 0;
    for (int times = 0; times < 2; times++) {
        const char *cupti = times ? "auto" : "off";
        printf("%s\n", times ? "with device times:" : "without device times:");
        fflush(stdout);
        snprintf(command, sizeof command, "LD_PRELOAD='%s/libacct.so' ACCT_CUPTI=%s ACCT_OUTPUT=%s/%s.db '%s' measure '%s'",
                 build, cupti, trace, cupti, argv[0], times ? ", device times" : "");
        status |= system(command);
    }
    snprintf(command, sizeof command, "rm -rf '%s'", trace);
    return system(command) || status ? 1 : 0;
}
