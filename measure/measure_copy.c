/* Copies: between host and device, from pageable and from pinned memory; within the device by cudaMemcpy and by a
 * kernel; between two devices. By the host's clock, a batch of copies with one synchronisation. */
#include "measure/measure_bench.h"

enum { SMALL = 1 << 20, LARGE = 64 << 20, BATCH = 256 };
static const int64_t DEVICE_MOST = INT64_C(1) << 30;

enum way { H2D, D2H, D2D, PEER };
enum part { PAGEABLE, PINNED, MEMCPY, KERNEL };
static const char *const way_names[] = {"h2d", "d2h", "d2d", "peer"};
static const char *const part_names[] = {"pageable", "pinned", "memcpy", "kernel"};

struct copy {
    enum way way;
    enum part part;
    int64_t bytes;
    void *to, *from;
};

/* ---- memory ---- */

/* Random on the device; on the host whatever the device's was, so that no page is the kernel's zero page. */
static cudaError_t host_memory(const struct bench *b, enum part part, int64_t bytes, void **out) {
    cudaError_t rc = cudaSuccess;
    if (part == PINNED)
        rc = b->cuda.cudaMallocHost(out, (size_t)bytes);
    else if (!(*out = malloc((size_t)bytes)))
        rc = cudaErrorMemoryAllocation;
    if (!rc) memset(*out, 0x5a, (size_t)bytes);
    return rc;
}

static cudaError_t device_memory(const struct bench *b, int64_t bytes, void **out) {
    cudaError_t rc = b->cuda.cudaMalloc(out, (size_t)bytes);
    return rc ? rc : bench_fill(b, *out, (uint64_t)bytes / 4, FILL_FP32);
}

static cudaError_t other_device_memory(const struct bench *b, int64_t bytes, void **out) {
    cudaError_t rc = b->cuda.cudaSetDevice(1);
    if (rc) return rc;
    rc = b->cuda.cudaMalloc(out, (size_t)bytes);
    cudaError_t back = b->cuda.cudaSetDevice(0);
    if (!rc && b->peer && b->cuda.cudaDeviceEnablePeerAccess(1, 0)) b->cuda.cudaGetLastError(); /* it was already */
    return rc ? rc : back;
}

static cudaError_t get_memory(const struct bench *b, struct copy *c) {
    cudaError_t rc = device_memory(b, c->bytes, c->way == H2D ? &c->to : &c->from);
    if (rc) return rc;
    if (c->way == H2D || c->way == D2H)
        rc = host_memory(b, c->part, c->bytes, c->way == H2D ? &c->from : &c->to);
    else
        rc = c->way == D2D ? device_memory(b, c->bytes, &c->to) : other_device_memory(b, c->bytes, &c->to);
    return rc ? rc : b->cuda.cudaStreamSynchronize(b->stream);
}

static void give_memory(const struct bench *b, struct copy *c) {
    void **host = c->way == H2D ? &c->from : c->way == D2H ? &c->to : NULL;
    if (host) {
        if (c->part == PAGEABLE)
            free(*host);
        else if (*host)
            b->cuda.cudaFreeHost(*host);
        *host = NULL;
    }
    if (c->from) b->cuda.cudaFree(c->from);
    if (c->to) b->cuda.cudaFree(c->to);
    c->from = c->to = NULL;
}

/* ---- one copy ---- */

static cudaError_t copy_by_kernel(const struct bench *b, const struct copy *c) {
    unsigned long long n = (unsigned long long)c->bytes / 16;
    void *to = c->to, *from = c->from, *args[] = {&to, &from, &n};
    unsigned long long blocks = (n + 255) / 256;
    return bench_launch(b, b->kernels.copy, (unsigned)(blocks < 16384 ? blocks : 16384), 256, args);
}

static cudaError_t enqueue(const struct bench *b, const struct copy *c) {
    static const enum cudaMemcpyKind kinds[] = {cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost,
                                                cudaMemcpyDeviceToDevice};
    const size_t n = (size_t)c->bytes;
    if (c->part == KERNEL) return copy_by_kernel(b, c);
    if (c->part == PAGEABLE) return b->cuda.cudaMemcpy(c->to, c->from, n, kinds[c->way]); /* as programs copy it */
    if (c->way == PEER) return b->cuda.cudaMemcpyPeerAsync(c->to, 1, c->from, 0, n, b->stream);
    return b->cuda.cudaMemcpyAsync(c->to, c->from, n, kinds[c->way], b->stream);
}

static cudaError_t batch_seconds(const struct bench *b, const struct copy *c, int batch, double *one) {
    double start = times_now();
    cudaError_t rc = cudaSuccess;
    for (int i = 0; i < batch && !rc; i++) rc = enqueue(b, c);
    if (!rc) rc = b->cuda.cudaStreamSynchronize(b->stream);
    *one = (times_now() - start) / batch;
    return rc;
}

static cudaError_t measure(struct bench *b, const struct copy *c, double until) {
    double one;
    cudaError_t rc = batch_seconds(b, c, 1, &one); /* of no interest: pages, buffers of the driver */
    if (!rc) rc = batch_seconds(b, c, 1, &one);
    int batch = times_batch(one, BATCH);
    for (b->times.n = 0; !rc && times_go_on(&b->times, until);) {
        rc = batch_seconds(b, c, batch, &one);
        if (!rc) times_add(&b->times, one);
    }
    return rc;
}

/* Copies within a device are larger where it is fast: caches must not hold them. */
static int64_t device_bytes(const struct bench *b) {
    int64_t n = LARGE;
    if (b->cuda.acctVgpuDevice) return n;
    while (n < DEVICE_MOST && n < b->free_bytes / 8) n *= 2;
    return n;
}

static void run(struct bench *b, const struct item *it, double until) {
    struct copy c = {.way = (enum way)(it->a >> 4), .part = (enum part)(it->a & 15)};
    struct measured x = {.kind = "copy"};
    c.bytes = it->b == 0 ? SMALL : c.way == D2D ? device_bytes(b) : LARGE;
    while (c.bytes > SMALL && c.bytes > b->free_bytes / 8) c.bytes /= 2;
    x.bytes = c.bytes;
    snprintf(x.what, sizeof x.what, "%s", way_names[c.way]);
    snprintf(x.part, sizeof x.part, "%s", part_names[c.part]);
    cudaError_t rc = get_memory(b, &c);
    if (!rc) rc = measure(b, &c, until);
    if (rc)
        times_skip(&x, "%s", bench_error(b, rc));
    else
        times_tell(&b->times, &x);
    give_memory(b, &c);
}

int copy_plan(const struct bench *b, struct item *items, int n) {
    static const int kinds[] = {H2D << 4 | PAGEABLE, H2D << 4 | PINNED, D2H << 4 | PAGEABLE, D2H << 4 | PINNED,
                                D2D << 4 | MEMCPY,   D2D << 4 | KERNEL, PEER << 4 | MEMCPY};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (kinds[i] >> 4 == PEER && b->devices < 2) continue;
        for (int large = 0; large < 2; large++) items[n++] = (struct item){run, large ? 1.5 : 0.5, kinds[i], large};
    }
    return n;
}
