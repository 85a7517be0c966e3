/* Operations a second that a dry run takes: kernel launches, products, copies, and those of a training step in turn; by
 * the virtual GPU alone, and recorded by libacct.so (without and with device times). The program runs itself anew for
 * each, as an h100-sxm. Goal: 200,000 a second bare. Recorded, it is as fast as the collector stores once a ring is
 * full: a dry run waits. */
#include <cublas_v2.h>
#include <cuda_runtime.h>
#include "bench/bench_preloaded.h"

#define GOAL 200000.0
#define CHECK(call)                                         \
    do {                                                    \
        int error = (int)(call);                            \
        if (error) {                                        \
            printf("line %d: error %d\n", __LINE__, error); \
            exit(1);                                        \
        }                                                   \
    } while (0)

enum { N = 1 << 20, D = 1024, ROUNDS = 7 };

__global__ void add(float *out, const float *a, const float *b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = a[i] + b[i];
}

static float *x, *y, *pinned;
static cublasHandle_t handle;
static cudaStream_t stream;

static void launch(int) {
    add<<<N / 256, 256, 0, stream>>>(x, x, y, N);
    CHECK(cudaGetLastError());
}

static void product(int) {
    float one = 1, zero = 0;
    CHECK(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, D, D, D, &one, x, D, y, D, &zero, x, D));
}

static void copy(int i) {
    if (i % 2)
        CHECK(cudaMemcpyAsync(pinned, x, 64, cudaMemcpyDeviceToHost, stream));
    else
        CHECK(cudaMemcpyAsync(x, pinned, sizeof(float) * N, cudaMemcpyHostToDevice, stream));
}

static void step(int i) {
    if (i % 4 < 2)
        launch(i);
    else if (i % 4 == 2)
        product(i);
    else
        CHECK(cudaMemsetAsync(x, 0, 4096, stream));
}

static double rate(void (*operation)(int), int count) {
    double rates[ROUNDS];
    for (int r = 0; r < ROUNDS; r++) {
        double start = bench_seconds();
        for (int i = 0; i < count; i++) operation(i);
        rates[r] = count / (bench_seconds() - start);
        CHECK(cudaDeviceSynchronize());
    }
    return bench_median(rates, ROUNDS);
}

static int measure(const char *how) {
    static const struct {
        const char *name;
        void (*operation)(int);
    } all[] = {{"launches", launch}, {"products", product}, {"copies", copy}, {"operations of a step", step}};
    int count = getenv("BENCH_SHORT") ? 5000 : 20000;
    CHECK(cudaMalloc(&x, sizeof(float) * N));
    CHECK(cudaMalloc(&y, sizeof(float) * N));
    CHECK(cudaMallocHost(&pinned, sizeof(float) * N));
    CHECK(cudaStreamCreate(&stream));
    CHECK(cublasCreate(&handle));
    CHECK(cublasSetStream(handle, stream));
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        all[i].operation(0); /* its price */
        double r = rate(all[i].operation, count);
        if (*how)
            printf("%s%s: %.0f a second\n", all[i].name, how, r);
        else
            printf("%s: %.0f a second, goal / measured: ratio %.2f\n", all[i].name, r, GOAL / r);
        fflush(stdout);
    }
    return 0;
}

int main(int argc, char **argv) {
    char build[2048], trace[] = "/tmp/acct-bench-XXXXXX", command[8192];
    static const char *const how[] = {"", ", recorded", ", recorded with device times"};
    if (argc > 1 && !strcmp(argv[1], "measure")) return measure(argc > 2 ? argv[2] : "");
    if (!bench_find_build(build, sizeof build) || !mkdtemp(trace)) return 1;
    setenv("ACCT_VGPU", "h100-sxm", 1);
    setenv("ACCT_VGPU_DRY", "on", 1);
    int status = 0;
    for (int k = 0; k < 3; k++) {
        char preload[4096] = "";
        if (k)
            snprintf(preload, sizeof preload, "LD_PRELOAD='%s/libacct.so' ACCT_CUPTI=%s ACCT_OUTPUT=%s/%d.db", build,
                     k == 2 ? "auto" : "off", trace, k);
        snprintf(command, sizeof command, "%s '%s' measure '%s'", preload, argv[0], how[k]);
        fflush(stdout);
        status |= system(command);
    }
    snprintf(command, sizeof command, "rm -rf '%s'", trace);
    return system(command) || status ? 1 : 0;
}
