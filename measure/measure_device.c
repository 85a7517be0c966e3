/* The device: opening it, what is told of it, and small helps that all measurements share. */
#include "measure/measure_bench.h"

#include "acct/vgpu.h"

#include <stdarg.h>

enum { VGPU_CLOCK_CPU = 2, NAME_BYTES = 256, PROPERTIES_BYTES = 1 << 14 };

__attribute__((format(printf, 2, 3))) static void say(const char *key, const char *format, ...) {
    va_list ap;
    printf("device %s ", key);
    va_start(ap, format);
    vprintf(format, ap);
    va_end(ap);
    putchar('\n');
}

const char *bench_error(const struct bench *b, cudaError_t rc) {
    b->cuda.cudaGetLastError();
    return b->cuda.cudaGetErrorString(rc);
}

/* ---- what it is ---- */

static int attribute(const struct bench *b, enum cudaDeviceAttr which) {
    int value = 0;
    if (b->cuda.cudaDeviceGetAttribute(&value, which, 0)) bench_error(b, cudaSuccess);
    return value;
}

static void say_attribute(const struct bench *b, const char *key, enum cudaDeviceAttr which) {
    int value = attribute(b, which);
    if (value > 0) say(key, "%d", value);
}

static void say_name(const struct bench *b) {
    static union {
        char name[NAME_BYTES];
        char room[PROPERTIES_BYTES]; /* the struct has another length in each version */
        double aligned;
    } p;
    if (b->cuda.cudaGetDeviceProperties(&p, 0)) return;
    p.name[NAME_BYTES - 1] = 0;
    for (char *c = p.name; *c; c++)
        if ((unsigned char)*c < ' ') *c = ' ';
    say(MEASURED_NAME, "%s", p.name);
}

static void say_versions(const struct bench *b) {
    int v;
    if (!b->cuda.cudaRuntimeGetVersion(&v)) say(MEASURED_RUNTIME, "%d", v);
    if (!b->cuda.cudaDriverGetVersion(&v)) say(MEASURED_DRIVER, "%d", v);
    if (!b->cuda.cublasGetVersion_v2(b->blas, &v)) say(MEASURED_CUBLAS, "%d", v);
}

/* The virtual GPU's figures of this machine. -1: its times are a model's, so nothing can be measured. */
static int say_virtual(const struct bench *b) {
    struct acct_vgpu_device d = {.struct_bytes = sizeof d};
    if (!b->cuda.acctVgpuDevice) return 0;
    if (b->cuda.acctVgpuDevice(0, &d) || d.clock != VGPU_CLOCK_CPU) {
        say(MEASURED_REFUSED,
            "the virtual GPU's times are a model's here (a profile other than cpu, or a dry run): there "
            "is nothing to measure");
        return -1;
    }
    const struct {
        const char *format;
        double peak;
    } peaks[] = {{"fp64", d.peak_fp64}, {"fp32", d.peak_fp32}, {"tf32", d.peak_tf32},
                 {"bf16", d.peak_bf16}, {"fp16", d.peak_fp16}, {"fp8", d.peak_fp8}};
    say(MEASURED_VIRTUAL, "%s", d.profile);
    for (size_t i = 0; i < sizeof peaks / sizeof *peaks; i++)
        if (peaks[i].peak > 0) printf("device " MEASURED_PEAK "%s %.9g\n", peaks[i].format, peaks[i].peak);
    if (d.bytes_per_s > 0) say(MEASURED_BANDWIDTH, "%.9g", d.bytes_per_s);
    if (*d.peak_source) say(MEASURED_PEAK_SOURCE, "%s", d.peak_source);
    return 0;
}

static void say_what_it_is(struct bench *b) {
    say_name(b);
    say(MEASURED_SM, "%d", b->sm);
    say_attribute(b, MEASURED_SMS, cudaDevAttrMultiProcessorCount);
    say_attribute(b, MEASURED_L2, cudaDevAttrL2CacheSize);
    say_attribute(b, MEASURED_CLOCK, cudaDevAttrClockRate);
    say_attribute(b, MEASURED_MEMORY_CLOCK, cudaDevAttrMemoryClockRate);
    say_attribute(b, MEASURED_BUS, cudaDevAttrGlobalMemoryBusWidth);
    say(MEASURED_DEVICES, "%d", b->devices);
    if (b->devices > 1) say(MEASURED_PEER, "%d", b->peer);
    say_versions(b);
}

/* ---- opening ---- */

static cudaError_t make_objects(struct bench *b) {
    const struct cuda *c = &b->cuda;
    cudaError_t rc = c->cudaStreamCreateWithFlags(&b->stream, cudaStreamNonBlocking);
    if (!rc) rc = c->cudaEventCreate(&b->start);
    if (!rc) rc = c->cudaEventCreate(&b->stop);
    if (!rc) rc = cuda_load_kernels(c, &b->kernels);
    return rc;
}

static void say_memory(struct bench *b) {
    size_t left, total;
    if (b->cuda.cudaMemGetInfo(&left, &total)) return;
    b->free_bytes = (int64_t)left;
    say(MEASURED_TOTAL, "%zu", total);
    say(MEASURED_FREE, "%zu", left);
}

int device_open(struct bench *b) {
    const struct cuda *c = &b->cuda;
    cudaError_t rc = c->cudaGetDeviceCount(&b->devices);
    if (rc || b->devices < 1) {
        say(MEASURED_NO_DEVICE, "%s", rc ? bench_error(b, rc) : "the runtime counts 0 devices");
        return -1;
    }
    if (say_virtual(b)) return -1;
    rc = c->cudaSetDevice(0);
    if (!rc) rc = c->cudaFree(NULL); /* makes the context */
    if (!rc) {
        b->sm = 10 * attribute(b, cudaDevAttrComputeCapabilityMajor) + attribute(b, cudaDevAttrComputeCapabilityMinor);
        if (b->devices > 1 && c->cudaDeviceCanAccessPeer(&b->peer, 0, 1)) b->peer = 0;
        say_memory(b);
        rc = make_objects(b);
    }
    if (rc) {
        say(MEASURED_REFUSED, "the device cannot be used: %s", bench_error(b, rc));
        return -1;
    }
    cublasStatus_t status = c->cublasCreate_v2(&b->blas);
    if (!status) status = c->cublasSetStream_v2(b->blas, b->stream);
    if (status) {
        say(MEASURED_REFUSED, "cuBLAS cannot be used: %s", c->cublasGetStatusString(status));
        return -1;
    }
    if (!c->lt || c->cublasLtCreate(&b->lt)) b->lt = NULL;
    say_what_it_is(b);
    return 0;
}

/* ---- helps ---- */

cudaError_t bench_launch(const struct bench *b, cudaKernel_t kernel, unsigned blocks, unsigned threads, void **args) {
    dim3 grid = {blocks, 1, 1}, block = {threads, 1, 1};
    return b->cuda.cudaLaunchKernel((const void *)kernel, grid, block, args, 0, b->stream);
}

cudaError_t bench_fill(const struct bench *b, void *at, uint64_t n, enum fill_format format) {
    static unsigned long long seed = 1; /* no two matrices alike */
    unsigned long long count = n;
    int which = format;
    void *args[] = {&at, &count, &which, &seed};
    uint64_t blocks = (n + 255) / 256;
    cudaError_t rc = bench_launch(b, b->kernels.fill, (unsigned)(blocks < 4096 ? blocks : 4096), 256, args);
    seed += n;
    return rc;
}

cudaError_t bench_elapsed(const struct bench *b, double *seconds) {
    float ms = 0;
    cudaError_t rc = b->cuda.cudaEventSynchronize(b->stop);
    if (!rc) rc = b->cuda.cudaEventElapsedTime(&ms, b->start, b->stop);
    *seconds = 1e-3 * (double)ms;
    return rc;
}
