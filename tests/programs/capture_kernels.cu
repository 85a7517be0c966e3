// Kernels as nvcc makes them, launched so that the test knows from the arguments how often and with what:
//   values          each kernel once, the results checked
//   loop N          N launches of a kernel with eight arguments
//   threads T N     T threads with N launches each
//   plugin FILE N   three times: open the library, N launches in it, close it
//   delete FILE     deletes its own file, then as `values`
//   fork            one launch, one in the child, one more
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(call)                                                                                \
    do {                                                                                           \
        cudaError_t e_ = (call);                                                                   \
        if (e_ != cudaSuccess) {                                                                   \
            std::printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(e_));     \
            std::exit(1);                                                                          \
        }                                                                                          \
    } while (0)

struct pair {
    float *to;
    short step;
    double by;
};

__global__ void scale(float *x, float by, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= by;
}

__global__ void add_pair(struct pair p, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i * p.step < n) p.to[i * p.step] += (float)p.by;
}

template <typename T> __global__ void fill(T *x, T value) {
    extern __shared__ char unused[];
    x[threadIdx.x] = value;
}

__global__ void eight(float *a, float *b, float *c, float *d, long n, long m, double x, double y) {
    if (a && n < 0) *a = *b + *c + *d + (float)(m + x + y);
}

static void values() {
    float *x, host[64];
    double *wide;
    CHECK(cudaMalloc(&x, sizeof host));
    CHECK(cudaMalloc(&wide, 32 * sizeof *wide));
    fill<float><<<1, 64, 1000>>>(x, 2.0f);
    fill<double><<<1, dim3(32, 1, 1)>>>(wide, 3.0);
    scale<<<dim3(2, 1, 1), 32>>>(x, 1.5f, 64);
    add_pair<<<1, 64>>>(pair{x, 2, 0.25}, 64);
    float by = 2, *p = x;
    int n = 10;
    void *args[] = {&p, &by, &n};
    CHECK(cudaLaunchKernel((const void *)scale, dim3(1), dim3(32), args, 0, 0));
    CHECK(cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 64; i++)
        if (host[i] != (3.0f + (i % 2 ? 0.0f : 0.25f)) * (i < 10 ? 2 : 1)) {
            std::printf("wrong at %d: %g\n", i, host[i]);
            std::exit(1);
        }
    std::printf("x=%llu\nwide=%llu\n", (unsigned long long)(uintptr_t)x, (unsigned long long)(uintptr_t)wide);
}

static void launch(long n, long m) {
    eight<<<1, 1>>>(0, 0, 0, 0, n, m, 1.0, 2.0);
    CHECK(cudaGetLastError());
}

static long per_thread;
static void *launch_many(void *number) {
    for (long i = 0; i < per_thread; i++) launch(i, (long)(intptr_t)number);
    return nullptr;
}

static void threads(int n) {
    pthread_t t[64];
    for (int i = 0; i < n; i++) pthread_create(&t[i], nullptr, launch_many, (void *)(intptr_t)i);
    for (int i = 0; i < n; i++) pthread_join(t[i], nullptr);
    CHECK(cudaDeviceSynchronize());
}

static void plugin(const char *file, int n) {
    for (int round = 0; round < 3; round++) {
        void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
        int (*run)(int) = library ? (int (*)(int))dlsym(library, "plugin_launch") : nullptr;
        if (!run || run(n)) {
            std::printf("the plug-in: %s\n", library ? "failed" : dlerror());
            std::exit(1);
        }
        dlclose(library);
    }
}

static void in_a_child() {
    launch(1, 0);
    CHECK(cudaDeviceSynchronize());
    std::fflush(stdout);
    if (fork() == 0) {
        eight<<<1, 1>>>(0, 0, 0, 0, 2, 0, 1.0, 2.0); // on a GPU this fails, for the parent used CUDA: either is recorded
        std::exit(0);
    }
    wait(nullptr);
    launch(3, 0);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "values";
    int (*linked)(int) = (int (*)(int))dlsym(RTLD_DEFAULT, "plugin_launch");
    if (!std::strcmp(what, "values")) values();
    if (!std::strcmp(what, "delete")) {
        unlink(argv[2]);
        values();
    }
    if (!std::strcmp(what, "loop"))
        for (long i = 0; i < std::atol(argv[2]); i++) launch(i, 0);
    if (!std::strcmp(what, "threads")) {
        per_thread = std::atol(argv[3]);
        threads(std::atoi(argv[2]));
    }
    if (!std::strcmp(what, "plugin")) plugin(argv[2], std::atoi(argv[3]));
    if (!std::strcmp(what, "fork")) in_a_child();
    if (linked && linked(1)) return 1; // where the plug-in is linked in
    CHECK(cudaDeviceSynchronize());
    return 0;
}
