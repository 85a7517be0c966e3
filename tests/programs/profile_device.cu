// What a device says of itself and what it refuses, as JSON on standard output: every device's properties and attributes
// (`properties`), launches at the limits (`limits`), one launch (`launch`); and occupancy against the vendor's own
// calculator, cuda_occupancy.h (`occupancy`), for kernels, blocks, shared memory and preferences of many sizes.
#include <cuda_runtime.h>
#include <cuda_occupancy.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(call)                                                                          \
    do {                                                                                     \
        cudaError_t e_ = (call);                                                             \
        if (e_ != cudaSuccess) {                                                             \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorName(e_));        \
            exit(3);                                                                         \
        }                                                                                    \
    } while (0)

__global__ void plain(float *x) {
    x[blockIdx.x * blockDim.x + threadIdx.x] = 1;
}

__global__ void small_shared(float *x) {
    __shared__ float s[700];
    s[threadIdx.x % 700] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = s[(threadIdx.x + 1) % 700];
}

__global__ void large_shared(float *x) {
    __shared__ float s[10 * 1024 + 3];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = s[threadIdx.x ^ 1];
}

__global__ void dynamic_shared(float *x) {
    extern __shared__ float s[];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = s[threadIdx.x ^ 1];
}

// Many values alive at once.
template <int N> __global__ void wide(float *x) {
    float v[N];
#pragma unroll
    for (int i = 0; i < N; i++) v[i] = x[threadIdx.x + i * blockDim.x];
#pragma unroll
    for (int i = 0; i < N; i++) {
#pragma unroll
        for (int j = 0; j < N; j++) v[i] += v[j] * v[(i + j) % N];
    }
#pragma unroll
    for (int i = 0; i < N; i++) x[threadIdx.x + i * blockDim.x] = v[i];
}

static void number(const char *name, long long value) {
    printf(", \"%s\": %lld", name, value);
}

static void describe(int device) {
    cudaDeviceProp p;
    char bus[32];
    CHECK(cudaGetDeviceProperties(&p, device));
    CHECK(cudaDeviceGetPCIBusId(bus, sizeof bus, device));
    int found = -1, v;
    CHECK(cudaDeviceGetByPCIBusId(&found, bus));
    printf("{\"name\": \"%s\", \"bus\": \"%s\", \"by_bus\": %d, \"uuid\": \"", p.name, bus, found);
    for (size_t i = 0; i < sizeof p.uuid.bytes; i++) printf("%02x", (unsigned char)p.uuid.bytes[i]);
    printf("\"");
    number("total", (long long)p.totalGlobalMem);
    number("sm", p.major * 10 + p.minor);
    number("sms", p.multiProcessorCount);
    number("threads_sm", p.maxThreadsPerMultiProcessor);
    number("blocks_sm", p.maxBlocksPerMultiProcessor);
    number("shared_block", (long long)p.sharedMemPerBlock);
    number("shared_optin", (long long)p.sharedMemPerBlockOptin);
    number("shared_sm", (long long)p.sharedMemPerMultiprocessor);
    number("shared_reserved", (long long)p.reservedSharedMemPerBlock);
    number("registers_block", p.regsPerBlock);
    number("registers_sm", p.regsPerMultiprocessor);
    number("bus_bits", p.memoryBusWidth);
    number("l2", p.l2CacheSize);
    static const struct {
        const char *name;
        cudaDeviceAttr attribute;
    } attributes[] = {{"a_major", cudaDevAttrComputeCapabilityMajor},
                      {"a_minor", cudaDevAttrComputeCapabilityMinor},
                      {"a_sms", cudaDevAttrMultiProcessorCount},
                      {"a_clock", cudaDevAttrClockRate},
                      {"a_memory_clock", cudaDevAttrMemoryClockRate},
                      {"a_bus_bits", cudaDevAttrGlobalMemoryBusWidth},
                      {"a_shared_optin", cudaDevAttrMaxSharedMemoryPerBlockOptin},
                      {"a_threads_sm", cudaDevAttrMaxThreadsPerMultiProcessor},
                      {"a_blocks_sm", cudaDevAttrMaxBlocksPerMultiprocessor},
                      {"a_l2", cudaDevAttrL2CacheSize},
                      {"a_ratio", cudaDevAttrSingleToDoublePrecisionPerfRatio}};
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++) {
        CHECK(cudaDeviceGetAttribute(&v, attributes[i].attribute, device));
        number(attributes[i].name, v);
    }
    printf("}");
}

static int properties() {
    int n, v;
    cudaDeviceProp p;
    CHECK(cudaGetDeviceCount(&n));
    printf("{\"count\": %d, \"beyond\": [\"%s\", \"%s\", \"%s\", \"%s\"], \"devices\": [", n,
           cudaGetErrorName(cudaGetDeviceProperties(&p, n)), cudaGetErrorName(cudaDeviceGetAttribute(&v, cudaDevAttrWarpSize, n)),
           cudaGetErrorName(cudaSetDevice(n)), cudaGetErrorName(cudaGetDeviceProperties(&p, -1)));
    for (int i = 0; i < n; i++) {
        if (i) printf(", ");
        describe(i);
    }
    printf("]}\n");
    return 0;
}

static const char *launched() {
    cudaError_t e = cudaGetLastError(), after = cudaDeviceSynchronize();
    return cudaGetErrorName(e ? e : after);
}

static int launch() {
    float *x;
    CHECK(cudaMalloc(&x, 1 << 20));
    plain<<<1, 32>>>(x);
    printf("{\"launch\": \"%s\"}\n", launched());
    return 0;
}

// The most dynamic shared memory that a block may have, and a byte more; a block of the most threads, and one more.
static int limits() {
    float *x;
    int most;
    CHECK(cudaMalloc(&x, 1 << 20));
    CHECK(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
    printf("{\"not_opted\": ");
    dynamic_shared<<<1, 32, 48 * 1024 + 4>>>(x);
    printf("\"%s\", ", launched());
    printf("\"set\": \"%s\", ", cudaGetErrorName(cudaFuncSetAttribute(dynamic_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, most)));
    printf("\"set_more\": \"%s\", ",
           cudaGetErrorName(cudaFuncSetAttribute(dynamic_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, most + 1)));
    cudaGetLastError();
    dynamic_shared<<<1, 32, most>>>(x);
    printf("\"most\": \"%s\", ", launched());
    dynamic_shared<<<1, 32, most + 1>>>(x);
    printf("\"more\": \"%s\", ", launched());
    plain<<<1, 1024>>>(x);
    printf("\"threads\": \"%s\", ", launched());
    plain<<<1, 1025>>>(x);
    printf("\"more_threads\": \"%s\"}\n", launched());
    return 0;
}

struct sweep {
    cudaOccDeviceProp device;
    long compared, wrong, none;
};

static void compare(struct sweep *s, const char *name, const void *f, int block, size_t dynamic, int carveout) {
    cudaFuncAttributes a;
    CHECK(cudaFuncGetAttributes(&a, f));
    if (block > a.maxThreadsPerBlock) return;
    cudaOccFuncAttributes attributes = a;
    cudaOccDeviceState state;
    state.carveoutConfig = carveout;
    cudaOccResult want;
    int blocks = -1;
    if (cudaOccMaxActiveBlocksPerMultiprocessor(&want, &s->device, &attributes, &state, block, dynamic) != CUDA_OCC_SUCCESS) {
        fprintf(stderr, "the vendor's calculator does not know this device\n");
        exit(3);
    }
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, block, dynamic));
    s->compared++;
    s->none += !blocks;
    if (blocks == want.activeBlocksPerMultiprocessor) return;
    if (s->wrong++ < 10)
        fprintf(stderr, "%s, block %d, %zu bytes, preference %d, %d registers: %d blocks, the vendor's calculator says %d\n", name,
                block, dynamic, carveout, a.numRegs, blocks, want.activeBlocksPerMultiprocessor);
}

static int occupancy() {
    static const int preferences[] = {-1, 0, 10, 25, 50, 75, 100};
    cudaDeviceProp p;
    CHECK(cudaGetDeviceProperties(&p, 0));
    struct sweep s = {p, 0, 0, 0};
    struct {
        const char *name;
        const void *f;
    } kernels[] = {{"plain", (const void *)plain},
                   {"small_shared", (const void *)small_shared},
                   {"large_shared", (const void *)large_shared},
                   {"dynamic_shared", (const void *)dynamic_shared},
                   {"wide<16>", (const void *)wide<16>},
                   {"wide<40>", (const void *)wide<40>},
                   {"wide<80>", (const void *)wide<80>}};
    for (auto &k : kernels) {
        cudaFuncAttributes a;
        CHECK(cudaFuncGetAttributes(&a, k.f));
        int room = (int)(p.sharedMemPerBlockOptin - a.sharedSizeBytes);
        for (int opted = 0; opted < 2; opted++) {
            if (opted) CHECK(cudaFuncSetAttribute(k.f, cudaFuncAttributeMaxDynamicSharedMemorySize, room));
            for (int preference : preferences) {
                CHECK(cudaFuncSetAttribute(k.f, cudaFuncAttributePreferredSharedMemoryCarveout, preference));
                for (int block = 1; block <= 1024; block += block < 64 ? 31 : 96)
                    for (int dynamic = 0; dynamic <= room; dynamic += 3000 + dynamic / 3)
                        compare(&s, k.name, k.f, block, (size_t)dynamic, preference);
                // Around the sizes of which n blocks just fit: what shared memory is given out in shows there.
                for (int n = 1; n <= 12; n++)
                    for (int off : {-384, -256, -255, -129, -128, -1, 0, 1, 128}) {
                        int each = (int)(p.sharedMemPerMultiprocessor / n - p.reservedSharedMemPerBlock);
                        int dynamic = each - (int)a.sharedSizeBytes + off;
                        if (dynamic >= 0 && dynamic <= room) compare(&s, k.name, k.f, 32, (size_t)dynamic, preference);
                    }
            }
        }
    }
    printf("{\"compared\": %ld, \"wrong\": %ld, \"none\": %ld}\n", s.compared, s.wrong, s.none);
    return s.wrong != 0;
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "properties")) return properties();
    if (!strcmp(what, "launch")) return launch();
    if (!strcmp(what, "limits")) return limits();
    if (!strcmp(what, "occupancy")) return occupancy();
    fprintf(stderr, "usage: profile_device properties|launch|limits|occupancy\n");
    return 2;
}
