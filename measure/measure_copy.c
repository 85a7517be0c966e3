/* Copies: between host and device, from pageable and from pinned memory; within the device by cudaMemcpy and by a
 * kernel; between two devices. By the host's clock, a batch of copies with one synchronisation. */
#include "measure/measure_bench.h"

enum { SMALL = 1 << 20, LARGE = 64 << 20, BATCH = 256, LAST = 2 /* large, and gives the memory back */ };
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

/* What copies go between; each is made at its first use, or anew where a copy is larger, and serves all that follow. */
enum place { DEVICE, DEVICE_TOO, OTHER_DEVICE, HOST_PAGEABLE, HOST_PINNED, PLACES };
static struct {
    void *at;
    int64_t bytes;
} places[PLACES];

static void give(const struct bench *b, enum place p) {
    void *at = places[p].at;
    places[p].at = NULL;
    places[p].bytes = 0;
    if (!at) return;
    if (p == HOST_PAGEABLE)
        free(at);
    else if (p == HOST_PINNED)
        b->cuda.cudaFreeHost(at);
    else
        b->cuda.cudaFree(at);
}

static cudaError_t other_device_memory(const struct bench *b, int64_t bytes, void **out) {
    cudaError_t rc = b->cuda.cudaSetDevice(1);
    if (rc) return rc;
    rc = b->cuda.cudaMalloc(out, (size_t)bytes);
    cudaError_t back = b->cuda.cudaSetDevice(0);
    if (!rc && b->peer && b->cuda.cudaDeviceEnablePeerAccess(1, 0)) b->cuda.cudaGetLastError(); /* it was already */
    return rc ? rc : back;
}

/* Random numbers at the beginning, then the same over and over. */
static cudaError_t fill_device(const struct bench *b, char *at, int64_t bytes) {
    cudaError_t rc = bench_fill(b, at, SMALL / 4, FILL_FP32);
    for (int64_t done = SMALL; done < bytes && !rc; done *= 2) {
        int64_t n = done < bytes - done ? done : bytes - done;
        rc = b->cuda.cudaMemcpyAsync(at + done, at, (size_t)n, cudaMemcpyDeviceToDevice, b->stream);
    }
    return rc ? rc : b->cuda.cudaStreamSynchronize(b->stream);
}

static cudaError_t take(const struct bench *b, enum place p, int64_t bytes, void **out) {
    void *at = NULL;
    cudaError_t rc = cudaSuccess;
    if (places[p].bytes < bytes) {
        give(b, p);
        if (p == HOST_PAGEABLE)
            rc = (at = malloc((size_t)bytes)) ? cudaSuccess : cudaErrorMemoryAllocation;
        else if (p == HOST_PINNED)
            rc = b->cuda.cudaMallocHost(&at, (size_t)bytes);
        else
            rc = p == OTHER_DEVICE ? other_device_memory(b, bytes, &at) : b->cuda.cudaMalloc(&at, (size_t)bytes);
        if (rc) return rc;
        places[p].at = at;
        places[p].bytes = bytes;
        if (p == HOST_PAGEABLE || p == HOST_PINNED) memset(at, 0x5a, (size_t)bytes); /* not the kernel's zero page */
        if (p == DEVICE || p == DEVICE_TOO) rc = fill_device(b, at, bytes);
    }
    *out = places[p].at;
    return rc;
}

/* room: of the places, at least. */
static cudaError_t get_memory(const struct bench *b, struct copy *c, int64_t room) {
    const enum place host = c->part == PINNED ? HOST_PINNED : HOST_PAGEABLE;
    const enum place to[] = {[H2D] = DEVICE, [D2H] = host, [D2D] = DEVICE_TOO, [PEER] = OTHER_DEVICE};
    cudaError_t rc = take(b, c->way == H2D ? host : DEVICE, room, &c->from);
    return rc ? rc : take(b, to[c->way], room, &c->to);
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

/* What is asked for, less where the device is small. */
static int64_t fitting(const struct bench *b, int64_t bytes) {
    while (bytes > SMALL && bytes > b->free_bytes / 8) bytes /= 2;
    return bytes;
}

static void run_one(struct bench *b, const struct item *it, double until) {
    struct copy c = {.way = (enum way)(it->a >> 4), .part = (enum part)(it->a & 15)};
    struct measured x = {.kind = "copy"};
    c.bytes = fitting(b, it->b == 0 ? SMALL : c.way == D2D ? device_bytes(b) : LARGE);
    if (it->b && c.bytes == SMALL) return; /* a small device: that is the small one again */
    x.bytes = c.bytes;
    snprintf(x.what, sizeof x.what, "%s", way_names[c.way]);
    snprintf(x.part, sizeof x.part, "%s", part_names[c.part]);
    cudaError_t rc = get_memory(b, &c, c.bytes > SMALL ? c.bytes : fitting(b, LARGE));
    if (!rc) rc = measure(b, &c, until);
    if (rc)
        times_skip(&x, "%s", bench_error(b, rc));
    else
        times_tell(&b->times, &x);
}

static void run(struct bench *b, const struct item *it, double until) {
    run_one(b, it, until);
    for (int p = 0; p < PLACES && it->b == LAST; p++) give(b, (enum place)p);
}

int copy_plan(const struct bench *b, struct item *items, int n) {
    static const int kinds[] = {H2D << 4 | PAGEABLE, H2D << 4 | PINNED, D2H << 4 | PAGEABLE, D2H << 4 | PINNED,
                                D2D << 4 | MEMCPY,   D2D << 4 | KERNEL, PEER << 4 | MEMCPY};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (kinds[i] >> 4 == PEER && b->devices < 2) continue;
        for (int large = 0; large < 2; large++) items[n++] = (struct item){run, large ? 1.5 : 0.5, kinds[i], large};
    }
    items[n - 1].b = LAST;
    return n;
}
