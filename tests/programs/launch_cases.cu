// How kernels are launched, what they are given and how they fail, as a program sees it: launch_cases CASE.
// tests/test_launch.py says which exit code and output each must have. Expected values are formulas on the host.
#include <cassert>
#include <cooperative_groups.h>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <csignal>
#include <dlfcn.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>
#include "tests/programs/program_check.h"

namespace cg = cooperative_groups;

#define EXPECT(condition)                                                    \
    do {                                                                     \
        if (!(condition)) {                                                  \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                         \
        }                                                                    \
    } while (0)

// ---- of C++ and the device's own library ----

struct Figure {
    __device__ virtual int area(int k) const = 0;
    __device__ virtual ~Figure() {}
};
struct Square : Figure {
    int side;
    __device__ explicit Square(int s) : side(s) {}
    __device__ int area(int k) const override { return side * side * k; }
};
struct Triangle : Figure {
    int base, height;
    __device__ Triangle(int b, int h) : base(b), height(h) {}
    __device__ int area(int k) const override { return base * height / 2 + k; }
};

__global__ void virtual_calls(int *x) {
    Figure *f = threadIdx.x % 2 ? (Figure *)new Square(threadIdx.x) : (Figure *)new Triangle(threadIdx.x, 4);
    x[threadIdx.x] = f->area(3);
    delete f;
}

typedef int function(int);
__device__ int increment(int a) { return a + 1; }
__device__ int twice(int a) { return a * 2; }
__device__ function *const functions[2] = {increment, twice};
__global__ void through_pointers(int *x) {
    x[threadIdx.x] = functions[threadIdx.x & 1](threadIdx.x);
}

__device__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
__global__ void recursion(int *x) {
    x[threadIdx.x] = fibonacci(threadIdx.x % 12);
}

// Each tile of 16 threads sums its threads' numbers.
__global__ void groups(int *x) {
    auto block = cg::this_thread_block();
    auto tile = cg::tiled_partition<16>(block);
    int v = threadIdx.x;
    for (int k = 8; k; k /= 2) v += tile.shfl_down(v, k);
    block.sync();
    if (!tile.thread_rank()) x[threadIdx.x / 16] = v;
    if (threadIdx.x == 3 || threadIdx.x == 9) x[8 + threadIdx.x] = cg::coalesced_threads().size();
}

struct Shape {
    const int *in;
    int *out;
    short add;
    char mul;
};

__global__ void fill(int *x, int n, int value) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = value + i;
}

__global__ void apply(Shape s, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) s.out[i] = s.in[i] * s.mul + s.add;
}

__global__ void where(int *out) {
    int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    out[block * (blockDim.x * blockDim.y * blockDim.z) + thread] = block * 10000 + thread;
}

__global__ void __launch_bounds__(128) bounded(int *x) {
    x[threadIdx.x] = 1;
}

extern __shared__ int dynamic[];

// Each block reverses its part, through dynamic shared memory; then sums with barriers.
__global__ void reverse_and_sum(const int *in, int *out, int *sums) {
    __shared__ int total[256];
    int t = threadIdx.x, n = blockDim.x;
    dynamic[t] = in[blockIdx.x * n + t];
    __syncthreads();
    out[blockIdx.x * n + t] = dynamic[n - 1 - t];
    total[t] = dynamic[t];
    for (int half = n / 2; half; half /= 2) {
        __syncthreads();
        if (t < half) total[t] += total[t + half];
    }
    if (!t) sums[blockIdx.x] = total[0];
}

__global__ void last_of_shared(int *x, int n) {
    dynamic[n - 1] = 7;
    x[0] = dynamic[n - 1];
}

__global__ void count(unsigned *counter, float *sum) {
    atomicAdd(counter, 1u);
    atomicAdd(sum, 1.0f);
}

__global__ void early_exit(int *x) {
    int t = threadIdx.x;
    if (t >= 64) return;
    __syncthreads();
    x[t] = t;
}

__device__ int counter = 5;
__device__ int *to_counter = &counter;
__constant__ float factor = 2.5f;
__constant__ int table[4] = {1, 2, 3, 4};
__managed__ int shared_with_host = 3;

__global__ void use_symbols(float *out) {
    out[0] = factor * shared_with_host + *to_counter;
    for (int i = 0; i < 4; i++) out[1 + i] = table[i];
    counter++;
    shared_with_host *= 2;
}

__global__ void chase(int *x) {
    while (*x < 100) *x += 1;
}

__global__ void print_all(const char *where, int n) {
    if (threadIdx.x == 1) {
        printf("%s: %d %5.2f %c %x %lld %llu %e %%\n", "values", -n, 2.5, 'q', 255u, -5000000000ll, 1ull << 63, 1.5);
        printf("[%6d][%-6d][%06.2f][%*d][%.3s][%s]\n", 42, 42, 3.14159, 5, 7, "abcdef", (const char *)0);
    }
}

__global__ void return_of_printf(int *x) {
    x[0] = printf("");
    x[1] = printf("%d %s\n", 1, "two");
}

__global__ void asserts(int n) {
    assert(threadIdx.x + n < 40);
}

__global__ void traps(void) {
    if (threadIdx.x == 3) __trap();
}

__global__ void misaligned(char *x) {
    *(int *)(x + 1) = 5;
}

__global__ void store(int *x, long long at) {
    if (threadIdx.x == 5 && blockIdx.x == 2) x[at] = 1;
}

__global__ void barrier_in_branch(int *x) {
    if (threadIdx.x < 32)
        asm volatile("barrier.sync 1, 64;");
    x[threadIdx.x] = 1;
}

static int *device_ints(int n) {
    int *p;
    CHECK(cudaMalloc(&p, n * sizeof *p));
    CHECK(cudaMemset(p, 0, n * sizeof *p));
    return p;
}

static void expect_ints(const int *device, int n, int (*value)(int)) {
    int *host = (int *)malloc(n * sizeof *host);
    CHECK(cudaMemcpy(host, device, n * sizeof *host, cudaMemcpyDeviceToHost));
    for (int i = 0; i < n; i++)
        if (host[i] != value(i)) {
            fprintf(stderr, "element %d is %d, not %d\n", i, host[i], value(i));
            exit(1);
        }
    free(host);
}

static int plus_3(int i) { return i + 3; }
static int plus_3_2_minus_5(int i) { return (i + 3) * 2 - 5; }

static int routes() {
    const int n = 1000;
    int *x = device_ints(n), *y = device_ints(n), value = 3, count = n;
    void *args[] = {&x, &count, &value};
    fill<<<4, 256>>>(x, n, 3);
    CHECK(cudaGetLastError());
    expect_ints(x, n, plus_3);
    CHECK(cudaMemset(x, 0, n * sizeof *x));
    CHECK(cudaLaunchKernel((const void *)fill, dim3(4), dim3(256), args, 0, 0));
    expect_ints(x, n, plus_3);
    CHECK(cudaMemset(x, 0, n * sizeof *x));
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attributes[2] = {};
    config.gridDim = dim3(4);
    config.blockDim = dim3(256);
    attributes[0].id = cudaLaunchAttributeClusterDimension;
    attributes[0].val.clusterDim = {1, 1, 1};
    attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[1].val.programmaticStreamSerializationAllowed = 1;
    config.attrs = attributes;
    config.numAttrs = 2;
    CHECK(cudaLaunchKernelEx(&config, fill, x, n, 3));
    expect_ints(x, n, plus_3);
    CHECK(cudaMemset(x, 0, n * sizeof *x));
    CHECK(cudaLaunchCooperativeKernel((const void *)fill, dim3(4), dim3(256), args, 0, 0));
    expect_ints(x, n, plus_3);
    cudaFunction_t f;
    cudaKernel_t k;
    CHECK(cudaGetFuncBySymbol(&f, (const void *)fill));
    CHECK(cudaGetKernel(&k, fill));
    CHECK(cudaMemset(x, 0, n * sizeof *x));
    CHECK(cudaLaunchKernel((const void *)f, dim3(4), dim3(256), args, 0, 0));
    expect_ints(x, n, plus_3);
    CHECK(cudaMemset(x, 0, n * sizeof *x));
    CHECK(cudaLaunchKernel((const void *)k, dim3(4), dim3(256), args, 0, 0));
    expect_ints(x, n, plus_3);
    apply<<<(n + 99) / 100, 100>>>(Shape{x, y, -5, 2}, n);
    expect_ints(y, n, plus_3_2_minus_5);
    CHECK(cudaDeviceSynchronize());
    return 7;
}

static int area_of(int i) { return i % 2 ? i * i * 3 : i * 4 / 2 + 3; }
static int of_two(int i) { return i % 2 ? i * 2 : i + 1; }
static int fibonacci_number(int i) {
    int a = 0, b = 1;
    for (i %= 12; i; i--) b += a, a = b - a;
    return a;
}
static int tile_sum(int i) { return 16 * 16 * i + 15 * 16 / 2; }
static int features() {
    int *x = device_ints(32), pair[12];
    virtual_calls<<<1, 32>>>(x);
    expect_ints(x, 32, area_of);
    through_pointers<<<1, 32>>>(x);
    expect_ints(x, 32, of_two);
    recursion<<<1, 32>>>(x);
    expect_ints(x, 32, fibonacci_number);
    groups<<<1, 64>>>(x);
    expect_ints(x, 4, tile_sum);
    CHECK(cudaMemcpy(pair, x + 8, sizeof pair, cudaMemcpyDeviceToHost));
    EXPECT(pair[3] == 2 && pair[9] == 2);
    return 7;
}

static int block_of_24(int i) { return i / 24 * 10000 + i % 24; }

static int geometry() {
    dim3 grid(3, 2, 4), block(4, 3, 2);
    int n = 24 * 24, *x = device_ints(n);
    where<<<grid, block>>>(x);
    expect_ints(x, n, block_of_24);
    unsigned *c;
    float *sum, host_sum;
    unsigned host;
    CHECK(cudaMalloc(&c, 4));
    CHECK(cudaMalloc(&sum, 4));
    CHECK(cudaMemset(c, 0, 4));
    CHECK(cudaMemset(sum, 0, 4));
    count<<<dim3(7, 5, 3), dim3(8, 4, 2)>>>(c, sum);
    CHECK(cudaMemcpy(&host, c, 4, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(&host_sum, sum, 4, cudaMemcpyDeviceToHost));
    EXPECT(host == 7 * 5 * 3 * 64 && host_sum == (float)host);
    return 7;
}

static int reversed(int i) { return i / 256 * 256 + 255 - i % 256 + 3; }
static int block_sum(int b) { return 256 * (3 + 256 * b) + 255 * 256 / 2; }
static int identity_to_64(int i) { return i < 64 ? i : 0; }

static int shared() {
    int n = 256 * 20, *x = device_ints(n), *y = device_ints(n), *sums = device_ints(20);
    fill<<<20, 256>>>(x, n, 3);
    reverse_and_sum<<<20, 256, 256 * sizeof(int)>>>(x, y, sums);
    expect_ints(y, n, reversed);
    expect_ints(sums, 20, block_sum);
    early_exit<<<3, 200>>>(x = device_ints(200));
    expect_ints(x, 200, identity_to_64);
    int bytes = 100 << 10, words = bytes / 4, value;
    last_of_shared<<<1, 1, bytes>>>(x, words);
    EXPECT(cudaGetLastError() == cudaErrorInvalidValue);
    CHECK(cudaFuncSetAttribute(last_of_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    last_of_shared<<<1, 1, bytes>>>(x, words);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(&value, x, 4, cudaMemcpyDeviceToHost));
    EXPECT(value == 7);
    EXPECT(cudaFuncSetAttribute(last_of_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, 228 << 10) ==
           cudaErrorInvalidValue);
    cudaGetLastError();
    return 7;
}

static void not_a_kernel() {}

static int limits() {
    int *x = device_ints(2048);
    struct {
        dim3 grid, block;
        int error;
    } cases[] = {{dim3(1), dim3(1025), cudaErrorInvalidValue},
                 {dim3(1), dim3(32, 33), cudaErrorInvalidValue},
                 {dim3(1), dim3(1, 1, 65), cudaErrorInvalidValue},
                 {dim3(1, 65536), dim3(1), cudaErrorInvalidValue},
                 {dim3(0), dim3(1), cudaErrorInvalidValue},
                 {dim3(1), dim3(0), cudaErrorInvalidValue},
                 {dim3(1, 65535), dim3(1), cudaSuccess},
                 {dim3(1), dim3(1024), cudaSuccess}};
    for (auto &c : cases) {
        fill<<<c.grid, c.block>>>(x, 2048, 0);
        EXPECT(cudaGetLastError() == c.error);
    }
    bounded<<<1, 128>>>(x);
    CHECK(cudaGetLastError());
    bounded<<<1, 129>>>(x);
    EXPECT(cudaGetLastError() == cudaErrorInvalidValue);
    void *none[] = {nullptr};
    EXPECT(cudaLaunchKernel((const void *)not_a_kernel, dim3(1), dim3(1), none, 0, 0) == cudaErrorInvalidDeviceFunction);
    EXPECT(cudaLaunchKernel((const void *)nullptr, dim3(1), dim3(1), none, 0, 0) == cudaErrorInvalidDeviceFunction);
    EXPECT(cudaGetLastError() == cudaErrorInvalidDeviceFunction);
    cudaStream_t s;
    CHECK(cudaStreamCreate(&s));
    CHECK(cudaStreamDestroy(s));
    fill<<<1, 1, 0, s>>>(x, 1, 0);
    EXPECT(cudaGetLastError() == cudaErrorInvalidResourceHandle);
    CHECK(cudaDeviceSynchronize());
    return 7;
}

static int refused() {
    int *x = device_ints(16);
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute a = {};
    config.gridDim = config.blockDim = dim3(2);
    config.attrs = &a;
    config.numAttrs = 1;
    a.id = cudaLaunchAttributeClusterDimension;
    a.val.clusterDim = {2, 1, 1};
    EXPECT(cudaLaunchKernelEx(&config, fill, x, 4, 0) == cudaErrorNotSupported);
    unsigned *c = (unsigned *)x;
    float *f = (float *)x + 1;
    void *args[] = {&c, &f};
    bool interpreted = getenv("ACCT_VGPU_EXECUTE") || getenv("ACCT_VGPU_CHECK"); // there blocks run one after the other
    EXPECT(cudaLaunchCooperativeKernel((const void *)count, dim3(2), dim3(2), args, 0, 0) ==
           (interpreted ? cudaErrorNotSupported : cudaSuccess));
    cudaGetLastError();
    CHECK(cudaDeviceSynchronize());
    return 7;
}

static int symbols() {
    float *out, host[5], f = 4;
    size_t bytes;
    int *address, value, two[2] = {20, 30};
    CHECK(cudaMalloc(&out, sizeof host));
    EXPECT(shared_with_host == 3);
    shared_with_host = 10;
    use_symbols<<<1, 1>>>(out);
    CHECK(cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost));
    EXPECT(host[0] == 2.5f * 10 + 5 && host[1] == 1 && host[4] == 4 && shared_with_host == 20);
    CHECK(cudaMemcpyToSymbol(factor, &f, sizeof f));
    CHECK(cudaMemcpyToSymbolAsync(table, two, sizeof two, 4, cudaMemcpyHostToDevice, 0));
    CHECK(cudaGetSymbolAddress((void **)&address, counter));
    CHECK(cudaMemcpy(&value, address, 4, cudaMemcpyDeviceToHost));
    EXPECT(value == 6);
    value = 100;
    CHECK(cudaMemcpy(address, &value, 4, cudaMemcpyHostToDevice));
    CHECK(cudaGetSymbolSize(&bytes, table));
    EXPECT(bytes == 16);
    use_symbols<<<1, 1>>>(out);
    CHECK(cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost));
    EXPECT(host[0] == 4.0f * 20 + 100 && host[1] == 1 && host[2] == 20 && host[3] == 30 && host[4] == 4);
    CHECK(cudaMemcpyFromSymbol(&value, counter, 4));
    EXPECT(value == 101);
    CHECK(cudaGetSymbolAddress((void **)&address, shared_with_host));
    EXPECT(address == &shared_with_host && *address == 40);
    EXPECT(cudaMemcpyToSymbol(table, two, 8, 12) == cudaErrorInvalidValue);
    EXPECT(cudaMemcpyToSymbol(two, two, 8) == cudaErrorInvalidSymbol);
    EXPECT(cudaMemcpyToSymbol(table, two, 8, 0, cudaMemcpyDeviceToHost) == cudaErrorInvalidMemcpyDirection);
    EXPECT(cudaGetLastError() == cudaErrorInvalidMemcpyDirection);
    CHECK(cudaDeviceReset());
    CHECK(cudaMemcpyFromSymbol(&value, counter, 4));
    EXPECT(value == 5);
    return 7;
}

static int attributes() {
    cudaFuncAttributes a;
    const char *name;
    size_t offset, bytes;
    CHECK(cudaFuncGetAttributes(&a, reverse_and_sum));
    EXPECT(a.sharedSizeBytes == 1024 && a.maxThreadsPerBlock == 1024 && a.ptxVersion == 80 && a.binaryVersion == 90);
    EXPECT(a.numRegs >= 8 && a.numRegs <= 64 && a.localSizeBytes == 0 && a.constSizeBytes == 20);
    EXPECT(a.maxDynamicSharedSizeBytes == (48 << 10) - 1024);
    CHECK(cudaFuncGetAttributes(&a, bounded));
    EXPECT(a.maxThreadsPerBlock == 128 && a.sharedSizeBytes == 0);
    CHECK(cudaFuncSetAttribute(last_of_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, 64 << 10));
    CHECK(cudaFuncGetAttributes(&a, last_of_shared));
    EXPECT(a.maxDynamicSharedSizeBytes == 64 << 10);
    CHECK(cudaFuncSetCacheConfig(fill, cudaFuncCachePreferL1));
    CHECK(cudaFuncGetName(&name, (const void *)apply));
    EXPECT(!strcmp(name, "_Z5apply5Shapei"));
    CHECK(cudaFuncGetParamInfo((const void *)apply, 0, &offset, &bytes));
    EXPECT(offset == 0 && bytes == sizeof(Shape));
    CHECK(cudaFuncGetParamInfo((const void *)apply, 1, &offset, &bytes));
    EXPECT(offset == sizeof(Shape) && bytes == 4);
    EXPECT(cudaFuncGetParamInfo((const void *)apply, 2, &offset, &bytes) == cudaErrorInvalidValue);
    EXPECT(cudaFuncGetAttributes(&a, (const void *)not_a_kernel) == cudaErrorInvalidDeviceFunction);
    cudaGetLastError();
    return 7;
}

// The vendor's rules for compute capability 9.0: 2048 threads, 32 blocks, 228 KiB of shared memory a multiprocessor,
// of which each block takes 1 KiB besides its own.
static int occupancy() {
    int blocks, block, grid;
    size_t dynamic_bytes;
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, fill, 256, 0));
    EXPECT(blocks == 8);
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, fill, 32, 0));
    EXPECT(blocks == 32);
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, fill, 1024, 0));
    EXPECT(blocks == 2);
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, last_of_shared, 128, 40 << 10));
    EXPECT(blocks == 228 / 41);
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, fill, 33, 0));
    EXPECT(blocks == 32);
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, bounded, 256, 0));
    EXPECT(blocks == 0);
    CHECK(cudaOccupancyMaxPotentialBlockSize(&grid, &block, fill, 0, 0));
    int sms;
    CHECK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
    EXPECT(block == 1024 && grid == 2 * sms);
    CHECK(cudaOccupancyAvailableDynamicSMemPerBlock(&dynamic_bytes, fill, 4, 128));
    EXPECT(dynamic_bytes == (228 / 4 - 1) * 1024);
    return 7;
}

// A kernel works behind the call; work of other streams goes on; the default stream's rules hold.
static int streams() {
    const int n = 1 << 14;
    int *x = device_ints(n);
    cudaStream_t a, b;
    cudaEvent_t event;
    CHECK(cudaStreamCreate(&a));
    CHECK(cudaStreamCreate(&b));
    CHECK(cudaEventCreate(&event));
    for (int i = 0; i < 50; i++) {
        fill<<<n / 256, 256, 0, a>>>(x, n, i);
        CHECK(cudaEventRecord(event, a));
        CHECK(cudaStreamWaitEvent(b, event, 0));
        apply<<<n / 256, 256, 0, b>>>(Shape{x, x, 1, 1}, n);
        CHECK(cudaEventRecord(event, b));
        CHECK(cudaStreamWaitEvent(a, event, 0));
    }
    fill<<<1, 1>>>(x, 0, 0);
    CHECK(cudaStreamSynchronize(0));
    int host[2];
    CHECK(cudaMemcpyAsync(host, x, sizeof host, cudaMemcpyDeviceToHost, cudaStreamLegacy));
    CHECK(cudaDeviceSynchronize());
    EXPECT(host[0] == 50 && host[1] == 51);
    return 7;
}

// Threads of the host, each with its stream, meet the same kernels for the first time together.
static void *thread_main(void *) {
    const int n = 256 * 40;
    int *x = device_ints(n), *y = device_ints(n), *sums = device_ints(40);
    cudaStream_t s;
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    for (int i = 0; i < 10; i++) {
        fill<<<40, 256, 0, s>>>(x, n, 3);
        reverse_and_sum<<<40, 256, 256 * sizeof(int), s>>>(x, y, sums);
        CHECK(cudaStreamSynchronize(s));
        expect_ints(y, n, reversed);
        expect_ints(sums, 40, block_sum);
    }
    CHECK(cudaStreamDestroy(s));
    return nullptr;
}
static int threads() {
    pthread_t t[6];
    for (auto &p : t) EXPECT(!pthread_create(&p, nullptr, thread_main, nullptr));
    for (auto &p : t) pthread_join(p, nullptr);
    return 7;
}

static int print() {
    printf("host before\n");
    print_all<<<1, 32>>>(nullptr, 17);
    CHECK(cudaDeviceSynchronize());
    printf("host after\n");
    int *x = device_ints(2), host[2];
    return_of_printf<<<1, 1>>>(x);
    CHECK(cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost));
    EXPECT(host[0] == 0 && host[1] == 2);
    return 7;
}

// After a failure every call gives the same error, also cudaGetLastError, until the device is reset.
static int ends_with(cudaError_t expected) {
    cudaError_t e = cudaDeviceSynchronize();
    void *p;
    if (e != expected) {
        fprintf(stderr, "%s\n", cudaGetErrorName(e));
        return 1;
    }
    EXPECT(cudaMalloc(&p, 4) == expected && cudaGetLastError() == expected && cudaGetLastError() == expected);
    fill<<<1, 1>>>(nullptr, 0, 0);
    EXPECT(cudaGetLastError() == expected);
    CHECK(cudaDeviceReset());
    int *x = device_ints(8);
    fill<<<1, 8>>>(x, 8, 3);
    expect_ints(x, 8, plus_3);
    return 7;
}

static int fault_far() {
    store<<<4, 32>>>(device_ints(100), 1ll << 30);
    return ends_with(cudaErrorIllegalAddress);
}
static int fault_freed() {
    int *x = device_ints(1 << 20);
    CHECK(cudaFree(x));
    store<<<4, 32>>>(x, 5000);
    return ends_with(cudaErrorIllegalAddress);
}
static int fault_null() {
    store<<<4, 32>>>(nullptr, 1);
    return ends_with(cudaErrorIllegalAddress);
}
static int fault_host() {
    static int host[64];
    store<<<4, 32>>>(host, 7);
    int code = ends_with(cudaErrorIllegalAddress);
    EXPECT(host[7] == 0);
    return code;
}
static int host_unused() {
    static int host[64];
    store<<<1, 1>>>(host, 7); // no thread gets there
    CHECK(cudaDeviceSynchronize());
    int *pinned, *managed;
    CHECK(cudaMallocHost(&pinned, 100));
    CHECK(cudaMallocManaged(&managed, 100));
    store<<<4, 32>>>(pinned, 3);
    store<<<4, 32>>>(managed, 4);
    CHECK(cudaDeviceSynchronize());
    EXPECT(pinned[3] == 1 && managed[4] == 1);
    return 7;
}
static int fault_shared() {
    last_of_shared<<<1, 1, 64>>>(device_ints(1), 5000);
    return ends_with(cudaErrorIllegalAddress);
}
static int fault_past() { // one element behind the end: a device does not see it, ACCT_VGPU_CHECK does
    store<<<4, 32>>>(device_ints(100), 100);
    return ends_with(cudaErrorIllegalAddress);
}
static int no_fault_past() {
    store<<<4, 32>>>(device_ints(100), 100);
    CHECK(cudaDeviceSynchronize());
    return 7;
}
static int fault_misaligned() {
    misaligned<<<1, 1>>>((char *)device_ints(4));
    return ends_with(cudaErrorMisalignedAddress);
}
static int assertion() {
    asserts<<<1, 32>>>(8);
    CHECK(cudaDeviceSynchronize());
    asserts<<<dim3(1, 2), 32>>>(9);
    return ends_with(cudaErrorAssert);
}
static int trap() {
    traps<<<2, 32>>>();
    return ends_with(cudaErrorLaunchFailure);
}
static int deadlock() {
    barrier_in_branch<<<1, 64>>>(device_ints(64));
    return ends_with(cudaErrorLaunchFailure);
}

// The program's own handler gets what is the program's own.
static void handler(int) { _exit(9); }
static int own_fault() {
    int *x = device_ints(8);
    signal(SIGSEGV, handler);
    fill<<<1, 8>>>(x, 8, 0);
    CHECK(cudaDeviceSynchronize());
    *(volatile int *)8 = 1;
    return 1;
}
// One that hands on what it does not know, to the handler that it found.
static struct sigaction found;
static int handed_on;
static void chaining(int sig, siginfo_t *info, void *context) {
    if (++handed_on > 3) _exit(5);
    if (found.sa_flags & SA_SIGINFO) found.sa_sigaction(sig, info, context);
    _exit(handed_on == 1 ? 9 : 6);
}
static int own_fault_chained() {
    int *x = device_ints(8);
    fill<<<1, 8>>>(x, 8, 0);
    CHECK(cudaDeviceSynchronize());
    struct sigaction mine = {};
    mine.sa_sigaction = chaining;
    mine.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &mine, &found);
    fill<<<1, 8>>>(x, 8, 0); // goes over it again
    CHECK(cudaDeviceSynchronize());
    *(volatile int *)8 = 1;
    return 1;
}
static int own_fault_plain() {
    int *x = device_ints(8);
    fill<<<1, 8>>>(x, 8, 0);
    CHECK(cudaDeviceSynchronize());
    *(volatile int *)8 = 1;
    return 1;
}

__global__ void endless(volatile int *x) {
    while (!x[threadIdx.x]) {
    }
}

// The program ends while kernels run and wait: they are abandoned.
static int exit_amid_kernels() {
    const int n = 1 << 20;
    int *x = device_ints(n);
    for (int i = 0; i < 100; i++) apply<<<n / 256, 256>>>(Shape{x, x, 1, 1}, n);
    return 7;
}
static int exit_amid_endless() {
    endless<<<1, 32>>>(device_ints(32));
    usleep(20000);
    return 7;
}
static int fork_amid_kernels() {
    const int n = 1 << 14;
    int *x = device_ints(n), status;
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 20; i++) apply<<<n / 256, 256>>>(Shape{x, x, 1, 1}, n);
        pid_t pid = fork();
        if (!pid) {
            fill<<<1, 1>>>(x, 1, 1);
            exit(cudaGetLastError() == cudaErrorInitializationError ? 0 : 1);
        }
        EXPECT(waitpid(pid, &status, 0) == pid && !status);
    }
    CHECK(cudaDeviceSynchronize());
    int host;
    CHECK(cudaMemcpy(&host, x, 4, cudaMemcpyDeviceToHost));
    EXPECT(host == 100);
    return 7;
}

// Device code that comes and goes with a library; the next copy of it may lie at the same addresses.
static int plugin() {
    for (int i = 0; i < 20; i++) {
        void *library = dlopen(getenv("LAUNCH_PLUGIN"), RTLD_NOW | RTLD_LOCAL);
        EXPECT(library);
        int (*run)(int) = (int (*)(int))dlsym(library, "launch_plugin");
        EXPECT(run && run(i) == 40 + i);
        EXPECT(!dlclose(library));
    }
    CHECK(cudaDeviceSynchronize());
    return 7;
}

// The blocks' results do not depend on how many threads run them.
static int spread() {
    const int n = 256 * 1000;
    int *x = device_ints(n), *y = device_ints(n), *sums = device_ints(1000);
    fill<<<1000, 256>>>(x, n, 3);
    reverse_and_sum<<<1000, 256, 256 * sizeof(int)>>>(x, y, sums);
    expect_ints(y, n, reversed);
    expect_ints(sums, 1000, block_sum);
    return 7;
}

// Two warps take turns, and each waits for the other by looking.
__global__ void turns(unsigned *out, int rounds) {
    __shared__ volatile int turn;
    __shared__ volatile unsigned sum;
    int warp = threadIdx.x / 32;
    if (!threadIdx.x) turn = 0, sum = 1;
    __syncthreads();
    for (int r = 0; r < rounds; r++) {
        while (turn != 2 * r + warp) {
        }
        __syncwarp();
        if (threadIdx.x % 32 == 0) {
            sum = sum * 3 + warp;
            __threadfence_block();
            turn = turn + 1;
        }
        __syncwarp();
    }
    if (threadIdx.x == 32) *out = sum;
}

static int waiting() {
    unsigned *x = (unsigned *)device_ints(1), got, want = 1;
    for (int k = 0; k < 200; k++) want = want * 3 + k % 2;
    turns<<<1, 64>>>(x, 100);
    CHECK(cudaMemcpy(&got, x, sizeof got, cudaMemcpyDeviceToHost));
    EXPECT(got == want);
    return 7;
}

/* Behind a barrier the first thread reads what the others overwrite after it: a race, and programs in use have it. On a
 * device all warps go on together, and the first is long done; so it must be here. */
__global__ void reads_first(int *x, int *seen) {
    __shared__ int sum;
    if (threadIdx.x == blockDim.x - 1) sum = 0;
    __syncthreads();
    atomicAdd(&sum, x[threadIdx.x]);
    __syncthreads();
    if (threadIdx.x == 0) seen[blockIdx.x] = x[blockDim.x - 1] + sum;
    x[threadIdx.x] = -1;
}

static int order() {
    for (int threads = 32; threads <= 1024; threads *= 2) {
        int *x = device_ints(threads), *seen = device_ints(1), host[1024], got;
        for (int i = 0; i < threads; i++) host[i] = i;
        CHECK(cudaMemcpy(x, host, threads * sizeof(int), cudaMemcpyHostToDevice));
        reads_first<<<1, threads>>>(x, seen);
        CHECK(cudaMemcpy(&got, seen, sizeof got, cudaMemcpyDeviceToHost));
        EXPECT(got == threads - 1 + threads * (threads - 1) / 2);
    }
    return 7;
}

static const struct {
    const char *name;
    int (*run)();
} cases[] = {{"routes", routes},
             {"features", features},
             {"geometry", geometry},
             {"shared", shared},
             {"limits", limits},
             {"refused", refused},
             {"symbols", symbols},
             {"attributes", attributes},
             {"occupancy", occupancy},
             {"streams", streams},
             {"threads", threads},
             {"print", print},
             {"fault-far", fault_far},
             {"fault-freed", fault_freed},
             {"fault-null", fault_null},
             {"fault-host", fault_host},
             {"host-unused", host_unused},
             {"fault-shared", fault_shared},
             {"fault-past", fault_past},
             {"no-fault-past", no_fault_past},
             {"fault-misaligned", fault_misaligned},
             {"assertion", assertion},
             {"trap", trap},
             {"deadlock", deadlock},
             {"own-fault", own_fault},
             {"own-fault-chained", own_fault_chained},
             {"own-fault-plain", own_fault_plain},
             {"exit-amid-kernels", exit_amid_kernels},
             {"exit-amid-endless", exit_amid_endless},
             {"fork-amid-kernels", fork_amid_kernels},
             {"plugin", plugin},
             {"spread", spread},
             {"order", order},
             {"waiting", waiting}};

int main(int argc, char **argv) {
    for (auto &c : cases)
        if (argc == 2 && !strcmp(c.name, argv[1])) return c.run();
    fprintf(stderr, "usage: launch_cases CASE\n");
    return 2;
}
