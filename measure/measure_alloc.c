/* What an allocation and a release cost, by size: cudaMalloc and cudaFree, cudaMallocAsync and cudaFreeAsync (the
 * device's default pool, whose memory is warm and on the same stream). The calls, by the host's clock; nothing is
 * touched. */
#include "measure/measure_bench.h"

enum { SYNCHRONOUS, ASYNCHRONOUS };
static const char *const names[2][2] = {{"cudaMalloc", "cudaFree"}, {"cudaMallocAsync", "cudaFreeAsync"}};
static const int64_t sizes[] = {512, 1 << 20, 64 << 20, 1 << 30};

static struct times released; /* beside b->times, which are those of the allocations */

static cudaError_t pair(struct bench *b, int way, size_t bytes, double *took, double *gave) {
    const struct cuda *c = &b->cuda;
    void *p;
    double start = times_now(), between;
    cudaError_t rc = way == SYNCHRONOUS ? c->cudaMalloc(&p, bytes) : c->cudaMallocAsync(&p, bytes, b->stream);
    between = times_now();
    if (rc) return rc;
    rc = way == SYNCHRONOUS ? c->cudaFree(p) : c->cudaFreeAsync(p, b->stream);
    *gave = times_now() - between;
    *took = between - start;
    return rc;
}

static void run(struct bench *b, const struct item *it, double until) {
    struct measured x[2] = {{.kind = "alloc", .bytes = sizes[it->b]}, {.kind = "alloc", .bytes = sizes[it->b]}};
    double took, gave;
    for (int i = 0; i < 2; i++) snprintf(x[i].what, sizeof x[i].what, "%s", names[it->a][i]);
    cudaError_t rc = pair(b, it->a, (size_t)sizes[it->b], &took, &gave); /* of no interest: it makes the pool grow */
    for (b->times.n = released.n = 0; !rc && times_go_on(&b->times, until);) {
        rc = pair(b, it->a, (size_t)sizes[it->b], &took, &gave);
        times_add(&b->times, took);
        times_add(&released, gave);
    }
    b->cuda.cudaStreamSynchronize(b->stream);
    if (rc) {
        times_skip(&x[0], "%s", bench_error(b, rc));
        return;
    }
    times_tell(&b->times, &x[0]);
    times_tell(&released, &x[1]);
}

/* The largest is left out where it is much of the device. */
int alloc_plan(const struct bench *b, struct item *items, int n) {
    for (int way = 0; way < 2; way++)
        for (int i = 0; i < (int)(sizeof sizes / sizeof *sizes); i++)
            if (sizes[i] <= b->free_bytes / 4) items[n++] = (struct item){run, 0.25, way, i};
    return n;
}
