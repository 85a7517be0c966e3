/* What a launch costs, of a kernel that does nothing: back to back, so that the slower of host and device counts; the
 * call alone; and launch plus synchronisation, from the host's view. By the host's clock. */
#include "measure/measure_bench.h"

enum { BACK_TO_BACK, CALL, LATENCY, WAYS };
static const char *const names[WAYS] = {"back-to-back", "call", "latency"};
/* In a batch; calls alone: fewer than a device queues, or they would wait for it. */
static const int batches[WAYS] = {1000, 100, 1};

static cudaError_t batch_seconds(const struct bench *b, int way, double *one) {
    cudaError_t rc = b->cuda.cudaStreamSynchronize(b->stream);
    double start = times_now(), called;
    for (int i = 0; i < batches[way] && !rc; i++) rc = bench_launch(b, b->kernels.nothing, 1, 32, NULL);
    called = times_now();
    if (!rc) rc = b->cuda.cudaStreamSynchronize(b->stream);
    *one = ((way == CALL ? called : times_now()) - start) / batches[way];
    return rc;
}

static void run(struct bench *b, const struct item *it, double until) {
    struct measured x = {.kind = "launch", .part = "empty-kernel"};
    double one;
    snprintf(x.what, sizeof x.what, "%s", names[it->a]);
    cudaError_t rc = batch_seconds(b, it->a, &one); /* of no interest: it loads the kernel */
    for (b->times.n = 0; !rc && times_go_on(&b->times, until);) {
        rc = batch_seconds(b, it->a, &one);
        if (!rc) times_add(&b->times, one);
    }
    if (rc)
        times_skip(&x, "%s", bench_error(b, rc));
    else
        times_tell(&b->times, &x);
}

int launch_plan(const struct bench *b, struct item *items, int n) {
    (void)b;
    for (int way = 0; way < WAYS; way++) items[n++] = (struct item){run, 0.5, way, 0};
    return n;
}
