// Less common parts of the runtime, as a program sees them: runtime_cases CASE [FILE]. tests/test_runtime.py runs each.
#include <cooperative_groups.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>
#include <cuda_runtime.h>
#include "tests/programs/program_check.h"

namespace cg = cooperative_groups;

#define EXPECT(condition)                                                           \
    do {                                                                            \
        if (!(condition)) {                                                         \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                                \
        }                                                                           \
    } while (0)

#define GIVES(error, call)                                                                                  \
    do {                                                                                                    \
        cudaError_t e_ = (call);                                                                            \
        if (e_ != (error)) {                                                                                \
            fprintf(stderr, "%s:%d: %s gave %s, not %s\n", __FILE__, __LINE__, #call, cudaGetErrorName(e_), \
                    cudaGetErrorName(error));                                                               \
            exit(1);                                                                                        \
        }                                                                                                   \
        cudaGetLastError();                                                                                 \
    } while (0)

static const char *file;

// ---- device code loaded at run time ----

static const char text[] = R"(.version 7.0
.target sm_80
.address_size 64
.visible .global .align 4 .u32 total = 5;
.visible .entry scale(.param .u64 out, .param .u32 factor)
{
    .reg .u64 %rd<4>;
    .reg .u32 %r<5>;
    ld.param.u64 %rd1, [out];
    cvta.to.global.u64 %rd1, %rd1;
    ld.param.u32 %r1, [factor];
    mov.u32 %r2, %tid.x;
    mul.lo.u32 %r3, %r2, %r1;
    mul.wide.u32 %rd2, %r2, 4;
    add.u64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r3;
    ret;
}
.visible .entry count()
{
    .reg .u64 %rd<2>;
    .reg .u32 %r<2>;
    mov.u64 %rd1, total;
    atom.global.add.u32 %r1, [%rd1], 1;
    ret;
}
)";

static void check_scale(cudaKernel_t k) {
    unsigned *out, factor = 7, got[64];
    CHECK(cudaMalloc(&out, sizeof got));
    void *args[] = {&out, &factor};
    CHECK(cudaLaunchKernel((const void *)k, dim3(1), dim3(64), args, 0, 0));
    CHECK(cudaMemcpy(got, out, sizeof got, cudaMemcpyDeviceToHost));
    for (unsigned i = 0; i < 64; i++) EXPECT(got[i] == 7 * i);
    CHECK(cudaFree(out));
}

static void library() {
    cudaLibrary_t lib, other;
    cudaKernel_t scale, count, both[3] = {};
    unsigned n = 0, value = 0, *total;
    size_t bytes = 0, before, after, all;
    CHECK(cudaMemGetInfo(&before, &all));
    std::vector<char> copy(text, text + sizeof text); // it may go once it is loaded
    CHECK(cudaLibraryLoadData(&lib, copy.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
    memset(copy.data(), 'x', copy.size());
    CHECK(cudaLibraryGetKernelCount(&n, lib));
    EXPECT(n == 2);
    CHECK(cudaLibraryGetKernel(&scale, lib, "scale"));
    CHECK(cudaLibraryGetKernel(&count, lib, "count"));
    GIVES(cudaErrorSymbolNotFound, cudaLibraryGetKernel(&both[0], lib, "nothing"));
    CHECK(cudaLibraryEnumerateKernels(both, 3, lib));
    EXPECT(both[0] == scale && both[1] == count && !both[2]);
    check_scale(scale);
    CHECK(cudaLibraryGetGlobal((void **)&total, &bytes, lib, "total"));
    EXPECT(bytes == 4);
    CHECK(cudaLaunchKernel((const void *)count, dim3(10), dim3(32), nullptr, 0, 0));
    CHECK(cudaMemcpy(&value, total, 4, cudaMemcpyDeviceToHost));
    EXPECT(value == 5 + 320);
    cudaFuncAttributes a;
    CHECK(cudaFuncGetAttributes(&a, (const void *)scale));
    EXPECT(a.maxThreadsPerBlock == 1024 && a.ptxVersion == 80);
    CHECK(cudaKernelSetAttributeForDevice(scale, cudaFuncAttributeMaxDynamicSharedMemorySize, 64 << 10, 0));
    CHECK(cudaFuncGetAttributes(&a, (const void *)scale));
    EXPECT(a.maxDynamicSharedSizeBytes == 64 << 10);
    // a second one of the same code has variables of its own
    unsigned *theirs;
    CHECK(cudaLibraryLoadData(&other, text, nullptr, nullptr, 0, nullptr, nullptr, 0));
    CHECK(cudaLibraryGetGlobal((void **)&theirs, nullptr, other, "total"));
    EXPECT(theirs != total);
    CHECK(cudaLibraryUnload(lib));
    CHECK(cudaLibraryUnload(other));
    GIVES(cudaErrorInvalidResourceHandle, cudaLibraryGetKernel(&scale, lib, "scale"));
    GIVES(cudaErrorInvalidResourceHandle, cudaLibraryUnload(lib));
    CHECK(cudaMemGetInfo(&after, &all));
    EXPECT(after == before);

    GIVES(cudaErrorFileNotFound, cudaLibraryLoadFromFile(&lib, "/nowhere", nullptr, nullptr, 0, nullptr, nullptr, 0));
    CHECK(cudaLibraryLoadFromFile(&lib, file, nullptr, nullptr, 0, nullptr, nullptr, 0));
    CHECK(cudaLibraryGetKernel(&scale, lib, "scale"));
    check_scale(scale);
}

static void bad_code() {
    cudaLibrary_t lib;
    GIVES(cudaErrorInvalidPtx, cudaLibraryLoadData(&lib, ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry f( {", nullptr, nullptr, 0,
                                                   nullptr, nullptr, 0));
    GIVES(cudaErrorNoKernelImageForDevice, cudaLibraryLoadData(&lib, "\177ELF machine code", nullptr, nullptr, 0, nullptr, nullptr, 0));
    GIVES(cudaErrorNoKernelImageForDevice,
          cudaLibraryLoadData(&lib, ".version 9.0\n.target sm_999\n.address_size 64\n", nullptr, nullptr, 0, nullptr, nullptr, 0));
}

// ---- attributes, occupancy, hints ----

__global__ void nothing() {}

static void attributes() {
    cudaStream_t s, t;
    cudaStreamAttrValue v = {}, got = {};
    CHECK(cudaStreamCreateWithPriority(&s, cudaStreamNonBlocking, -3));
    CHECK(cudaStreamCreate(&t));
    CHECK(cudaStreamGetAttribute(s, cudaStreamAttributePriority, &got));
    EXPECT(got.priority == -3);
    CHECK(cudaStreamGetAttribute(s, cudaStreamAttributeSynchronizationPolicy, &got));
    EXPECT(got.syncPolicy == cudaSyncPolicyAuto);
    v.accessPolicyWindow.num_bytes = 4096;
    v.accessPolicyWindow.hitRatio = 0.5f;
    CHECK(cudaStreamSetAttribute(s, cudaStreamAttributeAccessPolicyWindow, &v));
    CHECK(cudaStreamCopyAttributes(t, s));
    CHECK(cudaStreamGetAttribute(t, cudaStreamAttributeAccessPolicyWindow, &got));
    EXPECT(got.accessPolicyWindow.num_bytes == 4096 && got.accessPolicyWindow.hitRatio == 0.5f);
    GIVES(cudaErrorInvalidValue, cudaStreamGetAttribute(s, cudaLaunchAttributeCooperative, &got));
    CHECK(cudaCtxResetPersistingL2Cache());
    cudaLaunchConfig_t c = {};
    c.gridDim = dim3(8);
    c.blockDim = dim3(1024);
    int clusters = 0, blocks = 0, sms = 0;
    CHECK(cudaOccupancyMaxActiveClusters(&clusters, nothing, &c));
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, nothing, 1024, 0));
    CHECK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
    EXPECT(clusters == blocks * sms && clusters > 0);
    int least = 0, best = 0;
    CHECK(cudaOccupancyMaxPotentialBlockSize(&least, &best, nothing));
    EXPECT(best == 1024 && least == blocks * sms);
    char *m;
    CHECK(cudaMallocManaged(&m, 1 << 16));
    CHECK(cudaStreamAttachMemAsync(s, m, 0, cudaMemAttachSingle));
    GIVES(cudaErrorInvalidValue, cudaStreamAttachMemAsync(s, &clusters, 4, cudaMemAttachSingle));
}

static void batch() {
    const size_t n = 3;
    char *device, host[3][100], back[3][100];
    cudaStream_t s;
    CHECK(cudaStreamCreate(&s));
    CHECK(cudaMalloc(&device, 1024));
    for (size_t i = 0; i < n; i++) memset(host[i], (int)(i + 1), 100);
    const void *from[3] = {host[0], host[1], host[2]};
    void *to[3] = {device, device + 200, device + 400}, *again[3] = {back[0], back[1], back[2]};
    size_t bytes[3] = {100, 50, 75}, index = 0;
    cudaMemcpyAttributes a = {};
    a.srcAccessOrder = cudaMemcpySrcAccessOrderDuringApiCall;
    CHECK(cudaMemcpyBatchAsync((void *const *)to, from, bytes, n, &a, &index, 1, s));
    memset(host, 0, sizeof host); // the sources were read during the call
    const void *there[3] = {device, device + 200, device + 400};
    a.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    memset(back, 0, sizeof back);
    CHECK(cudaMemcpyBatchAsync((void *const *)again, there, bytes, n, &a, &index, 1, s));
    CHECK(cudaStreamSynchronize(s));
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < 100; k++) EXPECT(back[i][k] == (k < bytes[i] ? (char)(i + 1) : 0));
    GIVES(cudaErrorInvalidValue, cudaMemcpyBatchAsync((void *const *)again, there, bytes, n, &a, &index, 1, nullptr));
    index = 1;
    GIVES(cudaErrorInvalidValue, cudaMemcpyBatchAsync((void *const *)again, there, bytes, n, &a, &index, 1, s));
}

// ---- kernels whose blocks wait for each other ----

// Each round every block reads what all blocks wrote in the last: wrong if one went on before the others.
__global__ void rounds(unsigned *sum, unsigned *slots, int count) {
    cg::grid_group grid = cg::this_grid();
    unsigned block = blockIdx.x, blocks = gridDim.x;
    __shared__ unsigned mine;
    for (int r = 0; r < count; r++) {
        if (threadIdx.x == 0) slots[block] = block + 1 + (unsigned)r;
        grid.sync();
        if (threadIdx.x == 0) mine = 0;
        __syncthreads();
        for (unsigned i = threadIdx.x; i < blocks; i += blockDim.x) atomicAdd(&mine, slots[i]);
        __syncthreads();
        if (threadIdx.x == 0) sum[block] += mine;
        grid.sync();
    }
}

static void cooperative_with(int blocks, int threads) {
    const int count = 5;
    unsigned *sum, *slots;
    CHECK(cudaMalloc(&sum, blocks * 4));
    CHECK(cudaMalloc(&slots, blocks * 4));
    CHECK(cudaMemset(sum, 0, blocks * 4));
    int n = count;
    void *args[] = {&sum, &slots, &n};
    CHECK(cudaLaunchCooperativeKernel((const void *)rounds, dim3(blocks), dim3(threads), args, 0, 0));
    CHECK(cudaDeviceSynchronize());
    std::vector<unsigned> got(blocks);
    CHECK(cudaMemcpy(got.data(), sum, blocks * 4, cudaMemcpyDeviceToHost));
    unsigned want = 0;
    for (int r = 0; r < count; r++)
        for (int b = 0; b < blocks; b++) want += (unsigned)(b + 1 + r);
    for (unsigned g : got) EXPECT(g == want);
}

static void cooperative() {
    int can = 0, sms = 0, each = 0;
    CHECK(cudaDeviceGetAttribute(&can, cudaDevAttrCooperativeLaunch, 0));
    EXPECT(can == 1);
    cooperative_with(1, 32);
    cooperative_with(2, 64);
    CHECK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, rounds, 128, 0));
    int most = sms * each < 40 ? sms * each : 40;
    cooperative_with(most, 128);
    cooperative_with(3, 96);
    // more blocks than the device holds at once
    unsigned *p;
    int n = 1;
    CHECK(cudaMalloc(&p, 4));
    void *args[] = {&p, &p, &n};
    GIVES(cudaErrorCooperativeLaunchTooLarge,
          cudaLaunchCooperativeKernel((const void *)rounds, dim3(sms * each + 1), dim3(128), args, 0, 0));
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)();
    } cases[] = {{"library", library}, {"bad-code", bad_code}, {"attributes", attributes}, {"batch", batch}, {"cooperative", cooperative}};
    file = argc > 2 ? argv[2] : nullptr;
    for (auto &c : cases)
        if (argc > 1 && !strcmp(argv[1], c.name)) {
            c.run();
            printf("%s: ok\n", c.name);
            return 0;
        }
    return 2;
}
