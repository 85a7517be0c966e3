/* What the virtual GPU does at the edges of a program's life. One case a run: vgpu_cases CASE; test_vgpu.py says which
 * exit code and output it must have. */
#include <acct/vgpu.h>
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "tests/programs/program_check.h"

enum { N = 1024 };

static cublasHandle_t handle;
static float *matrix;

static void begin(void) {
    CHECK(cublasCreate(&handle));
    CHECK(cudaMalloc((void **)&matrix, N * N * sizeof *matrix));
    CHECK(cudaMemset(matrix, 0, N * N * sizeof *matrix));
}

static void product(void) {
    const float one = 1, zero = 0;
    CHECK(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, N, N, N, &one, matrix, N, matrix, N, &zero, matrix, N));
}

static void sleeps_for_ever(void *arg) {
    (void)arg;
    for (;;) pause();
}

static void *waits(void *arg) {
    (void)arg;
    cudaDeviceSynchronize();
    return NULL;
}

static int exit_with_queue(void) {
    begin();
    for (int i = 0; i < 1000; i++) product();
    return 7;
}

static int exit_with_stuck_stream(void) {
    cudaStream_t s;
    begin();
    CHECK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    CHECK(cudaLaunchHostFunc(s, sleeps_for_ever, NULL));
    for (int i = 0; i < 100; i++) product();
    return 7;
}

static int exit_while_waiting(void) {
    pthread_t t;
    begin();
    for (int i = 0; i < 1000; i++) product();
    pthread_create(&t, NULL, waits, NULL);
    usleep(20000);
    return 7;
}

static void free_late(void) {
    cudaFree(matrix);
    cublasDestroy(handle);
    cudaStreamSynchronize(0);
}

static int calls_in_atexit(void) {
    atexit(free_late);
    begin();
    product();
    return 7;
}

static int child(void) {
    void *p;
    int e = (int)cudaMalloc(&p, 4), s = (int)cudaDeviceSynchronize(), last = (int)cudaGetLastError();
    int b = (int)cublasSetStream(handle, 0);
    return e == cudaErrorInitializationError && s == e && last == e && b == CUBLAS_STATUS_NOT_INITIALIZED ? 0 : 1;
}

/* The child has no device and ends; the parent's goes on. */
static int fork_amid_work(void) {
    begin();
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < 5; i++) product();
        pid_t pid = fork();
        if (!pid) exit(child());
        int status;
        if (waitpid(pid, &status, 0) != pid || status) return 1;
        CHECK(cudaDeviceSynchronize());
    }
    return 7;
}

/* A daemon's second fork, a child's system(): the child of a program that has worked forks too. */
static int fork_in_child(void) {
    begin();
    product();
    pid_t pid = fork();
    int status;
    if (!pid) {
        pid = fork();
        if (!pid) _exit(5);
        _exit(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 5 ? 6 : 1);
    }
    return waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 6 ? 7 : 1;
}

static int fork_first(void) {
    pid_t pid = fork();
    int status = 0;
    begin();
    product();
    CHECK(cudaDeviceSynchronize());
    if (pid && (waitpid(pid, &status, 0) != pid || WEXITSTATUS(status) != 7)) return 1;
    return 7;
}

static int missing(void) {
    cudaTextureObject_t t;
    int a = (int)cudaCreateTextureObject(&t, NULL, NULL, NULL), b = (int)cudaCreateTextureObject(&t, NULL, NULL, NULL);
    int last = (int)cudaGetLastError();
    int c = (int)cublasLoggerConfigure(1, 0, 1, NULL);
    return a == cudaErrorNotSupported && b == a && last == a && c == CUBLAS_STATUS_NOT_SUPPORTED ? 7 : 1;
}

/* The device touches what it cannot reach: an error that stays, no crash. */
static int fault(void) {
    static float host[N * N];
    const float one = 1, zero = 0;
    begin();
    cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, N, N, N, &one, host, N, matrix, N, &zero, matrix, N);
    int first = (int)cudaDeviceSynchronize(), second = (int)cudaDeviceSynchronize(), last = (int)cudaGetLastError();
    return first == cudaErrorIllegalAddress && second == first && last == first && (int)cudaPeekAtLastError() == first
               ? 7
               : 1;
}

static int describe(void) {
    struct acct_vgpu_device device = {.struct_bytes = sizeof device};
    struct cudaDeviceProp p;
    int (*get)(int, struct acct_vgpu_device *) =
        (int (*)(int, struct acct_vgpu_device *))dlsym(RTLD_DEFAULT, "acctVgpuDevice");
    size_t available, total;
    int count, major;
    if (!get || get(0, &device) || get(1, &device) != -1) return 1;
    CHECK(cudaGetDeviceProperties(&p, 0));
    CHECK(cudaGetDeviceCount(&count));
    CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
    CHECK(cudaMemGetInfo(&available, &total));
    if (p.totalGlobalMem != total || available != total || p.major != major ||
        cudaSetDevice(1) != cudaErrorInvalidDevice)
        return 1;
    printf("{\"name\":\"%s\",\"profile\":\"%s\",\"clock\":%u,\"fp32\":%.6e,\"fp64\":%.6e,\"tf32\":%.6e,\"bf16\":%.6e,"
           "\"fp16\":%.6e,\"fp8\":%.6e,\"source\":\"%s\",\"total\":%"
           "zu,\"count\":%d,"
           "\"major\":%d,\"sms\":%d,\"error\":\"%s\",\"text\":\"%s\",\"visible\":%d}\n",
           p.name, device.profile, device.clock, device.peak_fp32, device.peak_fp64, device.peak_tf32, device.peak_bf16,
           device.peak_fp16, device.peak_fp8, device.peak_source, total, count, major, p.multiProcessorCount,
           cudaGetErrorName(cudaErrorMemoryAllocation), cudaGetErrorString(cudaErrorMemoryAllocation),
           dlsym(RTLD_DEFAULT, "cblas_sgemm") != NULL);
    return 7;
}

static void product_bf16(void) {
    const float one = 1, zero = 0;
    CHECK(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, N, N, N, &one, matrix, CUDA_R_16BF, N, matrix, CUDA_R_16BF, N,
                       &zero, matrix, CUDA_R_16BF, N, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
}

/* FLOP/s of the best of some products, for comparison with the peak. */
static int rate_of(void (*multiply)(void)) {
    double best = 0;
    cudaEvent_t a, b;
    begin();
    CHECK(cudaEventCreate(&a));
    CHECK(cudaEventCreate(&b));
    for (int i = 0; i < 30; i++) {
        float ms;
        CHECK(cudaEventRecord(a, 0));
        multiply();
        CHECK(cudaEventRecord(b, 0));
        CHECK(cudaEventSynchronize(b));
        CHECK(cudaEventElapsedTime(&ms, a, b));
        double r = 2.0 * N * N * N / (1e-3 * ms);
        best = r > best ? r : best;
    }
    printf("%.6e\n", best);
    return 7;
}

static int rate(void) {
    return rate_of(product);
}

static int rate_bf16(void) {
    return rate_of(product_bf16);
}

static const struct {
    const char *name;
    int (*run)(void);
} cases[] = {
    {"exit-with-queue", exit_with_queue},
    {"exit-with-stuck-stream", exit_with_stuck_stream},
    {"exit-while-waiting", exit_while_waiting},
    {"calls-in-atexit", calls_in_atexit},
    {"fork-amid-work", fork_amid_work},
    {"fork-first", fork_first},
    {"fork-in-child", fork_in_child},
    {"missing", missing},
    {"fault", fault},
    {"describe", describe},
    {"rate", rate},
    {"rate-bf16", rate_bf16},
};

int main(int argc, char **argv) {
    for (size_t i = 0; argc == 2 && i < sizeof cases / sizeof *cases; i++)
        if (!strcmp(cases[i].name, argv[1])) return cases[i].run();
    fprintf(stderr, "usage: vgpu_cases CASE\n");
    return 2;
}
