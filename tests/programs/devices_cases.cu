// Kernels on several devices, as a program sees them: devices_cases CASE; 7 says that all was as expected.
// tests/test_devices.py says which profile each case needs.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>
#include "tests/programs/program_check.h"
#include "vgpu/vgpu_nccl.h"

#define EXPECT(condition)                                                           \
    do {                                                                            \
        if (!(condition)) {                                                         \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                                \
        }                                                                           \
    } while (0)

__device__ int counter = 5;
__constant__ int step;
__managed__ int shared_by_all = 1;

__global__ void count(int *out) {
    counter += step;
    *out = counter;
    shared_by_all += 1;
}

__global__ void add(float *x, const float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += y[i];
}

// Each device has variables of its own; a managed one is the same for all.
static int variables() {
    for (int round = 1; round <= 2; round++)
        for (int d = 0; d < 3; d++) {
            int *out, value, by = 10 * (d + 1);
            CHECK(cudaSetDevice(d));
            CHECK(cudaMalloc(&out, sizeof *out));
            CHECK(cudaMemcpyToSymbol(step, &by, sizeof by));
            count<<<1, 1>>>(out);
            CHECK(cudaMemcpy(&value, out, sizeof value, cudaMemcpyDeviceToHost));
            EXPECT(value == 5 + round * by);
            CHECK(cudaMemcpyFromSymbol(&value, counter, sizeof value));
            EXPECT(value == 5 + round * by);
            CHECK(cudaFree(out));
        }
    void *a, *b;
    CHECK(cudaGetSymbolAddress(&a, counter));
    CHECK(cudaSetDevice(0));
    CHECK(cudaGetSymbolAddress(&b, counter));
    EXPECT(a != b);
    EXPECT(shared_by_all == 7);
    return 7;
}

// A kernel runs on the current device: a stream of another one is no place for it.
static int foreign_stream() {
    cudaStream_t s;
    float *x;
    CHECK(cudaSetDevice(1));
    CHECK(cudaStreamCreate(&s));
    CHECK(cudaSetDevice(0));
    CHECK(cudaMalloc(&x, 4));
    add<<<1, 1, 0, s>>>(x, x, 1);
    EXPECT(cudaGetLastError() == cudaErrorInvalidResourceHandle);
    CHECK(cudaMemsetAsync(x, 0, 4, s));  // copies and memsets are free to
    CHECK(cudaStreamSynchronize(s));
    return 7;
}

static float *filled(int device, float value, int n) {
    std::vector<float> host(n, value);
    float *p;
    CHECK(cudaSetDevice(device));
    CHECK(cudaMalloc(&p, n * sizeof *p));
    CHECK(cudaMemcpy(p, host.data(), n * sizeof *p, cudaMemcpyHostToDevice));
    return p;
}

// With access a kernel reads another device's memory.
static int peer_access() {
    const int n = 1000;
    float *x = filled(0, 1, n), *y = filled(1, 2, n), back;
    CHECK(cudaSetDevice(0));
    CHECK(cudaDeviceEnablePeerAccess(1, 0));
    add<<<4, 256>>>(x, y, n);
    CHECK(cudaMemcpy(&back, x + n - 1, sizeof back, cudaMemcpyDeviceToHost));
    EXPECT(back == 3);
    return 7;
}

// Without, it faults.
static int no_access() {
    const int n = 1000;
    float *x = filled(0, 1, n), *y = filled(1, 2, n);
    CHECK(cudaSetDevice(0));
    add<<<4, 256>>>(x, y, n);
    EXPECT(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
    return 7;
}

// Access to a pool's memory is the pool's to give.
static int pool_access() {
    const int n = 1000;
    float *x = filled(0, 1, n), *y, back;
    std::vector<float> host(n, 2.f);
    cudaMemPool_t pool;
    CHECK(cudaSetDevice(1));
    CHECK(cudaMallocAsync(&y, n * sizeof *y, 0));
    CHECK(cudaMemcpy(y, host.data(), n * sizeof *y, cudaMemcpyHostToDevice));
    CHECK(cudaDeviceGetDefaultMemPool(&pool, 1));
    cudaMemAccessDesc d = {};
    d.location.type = cudaMemLocationTypeDevice;
    d.location.id = 0;
    d.flags = cudaMemAccessFlagsProtReadWrite;
    CHECK(cudaMemPoolSetAccess(pool, &d, 1));
    CHECK(cudaSetDevice(0));
    add<<<4, 256>>>(x, y, n);
    CHECK(cudaMemcpy(&back, x + n - 1, sizeof back, cudaMemcpyDeviceToHost));
    EXPECT(back == 3);
    d.flags = cudaMemAccessFlagsProtNone;
    CHECK(cudaMemPoolSetAccess(pool, &d, 1));
    add<<<4, 256>>>(x, y, n);
    EXPECT(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
    return 7;
}

// From the pool of the stream's device, whatever the current one.
static int pool_stream() {
    cudaStream_t s;
    void *p;
    CHECK(cudaSetDevice(1));
    CHECK(cudaStreamCreate(&s));
    CHECK(cudaSetDevice(0));
    CHECK(cudaMallocAsync(&p, 4096, s));
    cudaPointerAttributes a;
    CHECK(cudaPointerGetAttributes(&a, p));
    EXPECT(a.device == 1);
    CHECK(cudaFreeAsync(p, s));
    return 7;
}

// How long a group of collectives takes by the model: milliseconds on stdout, and the bytes of each rank.
static int collective_times() {
    const int ranks = 4;
    const size_t n = 64 << 20;
    ncclComm_t comms[ranks];
    cudaEvent_t begin[ranks], end[ranks];
    float *x[ranks], ms;
    CHECK(ncclCommInitAll(comms, ranks, nullptr));
    for (int r = 0; r < ranks; r++) {
        CHECK(cudaSetDevice(r));
        CHECK(cudaMalloc(&x[r], n * sizeof *x[r]));
        CHECK(cudaEventCreate(&begin[r]));
        CHECK(cudaEventCreate(&end[r]));
    }
    CHECK(cudaSetDevice(2));  // one rank comes late: all wait for it
    CHECK(cudaEventRecord(begin[2]));
    CHECK(cudaMemset(x[2], 0, n * sizeof *x[2]));
    CHECK(cudaEventRecord(end[2]));
    CHECK(cudaEventSynchronize(end[2]));
    CHECK(cudaEventElapsedTime(&ms, begin[2], end[2]));
    printf("%.6f\n", ms);
    for (int r = 0; r < ranks; r++) {
        CHECK(cudaSetDevice(r));
        CHECK(cudaEventRecord(begin[r]));
    }
    CHECK(cudaSetDevice(2));
    CHECK(cudaMemsetAsync(x[2], 0, n * sizeof *x[2]));
    CHECK(ncclGroupStart());
    for (int r = 0; r < ranks; r++) CHECK(ncclAllReduce(x[r], x[r], n, ncclFloat, ncclSum, comms[r], nullptr));
    CHECK(ncclGroupEnd());
    for (int r = 0; r < ranks; r++) {
        CHECK(cudaSetDevice(r));
        CHECK(cudaEventRecord(end[r]));
        CHECK(cudaEventSynchronize(end[r]));
        CHECK(cudaEventElapsedTime(&ms, begin[r], end[r]));
        printf("%.6f\n", ms);
    }
    return 7;
}

// Two devices train the same weights on different data: gradients are summed by NCCL. What the recorder is to see:
// device 0 holds 3 MiB, device 1 holds 5 MiB, at the same time.
static int train() {
    const int n = 1 << 18, ranks = 2;
    ncclComm_t comms[ranks];
    float *w[ranks], *g[ranks], *x[ranks];
    CHECK(ncclCommInitAll(comms, ranks, nullptr));
    for (int r = 0; r < ranks; r++) {
        w[r] = filled(r, 0, n);
        g[r] = filled(r, 0, n);
        x[r] = filled(r, r + 1.f, n * (1 + 2 * r));
    }
    for (int step = 0; step < 3; step++) {
        for (int r = 0; r < ranks; r++) {
            CHECK(cudaSetDevice(r));
            CHECK(cudaMemsetAsync(g[r], 0, n * sizeof *g[r]));
            add<<<n / 256, 256>>>(g[r], x[r], n);
        }
        CHECK(ncclGroupStart());
        for (int r = 0; r < ranks; r++) CHECK(ncclAllReduce(g[r], g[r], n, ncclFloat, ncclSum, comms[r], nullptr));
        CHECK(ncclGroupEnd());
        for (int r = 0; r < ranks; r++) {
            CHECK(cudaSetDevice(r));
            add<<<n / 256, 256>>>(w[r], g[r], n);
        }
    }
    for (int r = 0; r < ranks; r++) {
        float back;
        CHECK(cudaSetDevice(r));
        CHECK(cudaMemcpy(&back, w[r] + n - 1, sizeof back, cudaMemcpyDeviceToHost));
        EXPECT(back == 9);
    }
    for (int r = 0; r < ranks; r++) {
        CHECK(ncclCommDestroy(comms[r]));
        CHECK(cudaFree(w[r]));
        CHECK(cudaFree(g[r]));
        CHECK(cudaFree(x[r]));
    }
    return 7;
}

static const struct {
    const char *name;
    int (*run)();
} cases[] = {{"variables", variables},     {"foreign-stream", foreign_stream},
             {"peer-access", peer_access}, {"no-access", no_access},
             {"pool-access", pool_access}, {"pool-stream", pool_stream},
             {"collective-times", collective_times},
             {"train", train}};

int main(int argc, char **argv) {
    for (auto &c : cases)
        if (argc == 2 && !strcmp(c.name, argv[1])) return c.run();
    fprintf(stderr, "usage: devices_cases CASE\n");
    return 2;
}
