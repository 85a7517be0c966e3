/* Graphs on a modelled device: a launch's time by the formula of docs/INTERNALS.md. And many nodes. */
#include "tests/unit/vgpu_testing.h"

#include <math.h>

static const double BYTES_PER_S = 3350e9; /* h100-sxm, ACCOUNTING section 9 */
enum { NODES = 20, BYTES = 64 << 20 };

static void memsets(void *p, cudaStream_t s) {
    for (int i = 0; i < NODES; i++) OK(cudaMemsetAsync(p, i, BYTES, s));
}

static double timed(cudaGraphExec_t exec, void *p, cudaStream_t s) {
    cudaEvent_t before, after;
    float ms;
    OK(cudaEventCreate(&before));
    OK(cudaEventCreate(&after));
    OK(cudaEventRecord(before, s));
    if (exec)
        OK(cudaGraphLaunch(exec, s));
    else
        memsets(p, s);
    OK(cudaEventRecord(after, s));
    OK(cudaEventSynchronize(after));
    OK(cudaEventElapsedTime(&ms, before, after));
    return ms * 1e-3;
}

/* Of the cost of a launch, half is left between two nodes of a graph. */
static void time_of_a_launch(void **state) {
    (void)state;
    void *p = device_new(BYTES);
    cudaStream_t s;
    cudaGraph_t g;
    cudaGraphExec_t exec;
    OK(cudaStreamCreate(&s));
    OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    memsets(p, s);
    OK(cudaStreamEndCapture(s, &g));
    OK(cudaGraphInstantiate(&exec, g, 0));
    double plain = timed(NULL, p, s), graph = timed(exec, p, s), work = BYTES / BYTES_PER_S;
    double launch = plain / NODES - work;
    assert_true(launch > 0.2e-6 && launch < 20e-6);
    assert_true(fabs(graph - (NODES * work + launch * (1 + (NODES - 1) * 0.5))) < 1e-7);
}

/* Chains, and a wide graph, of a size that training has: capture and launch stay linear. */
static void many_nodes(void **state) {
    (void)state;
    enum { MANY = 20000, SIDES = 8 };
    char *p = device_new(1 << 20);
    cudaStream_t s, side[SIDES];
    cudaEvent_t e;
    cudaGraph_t g;
    cudaGraphExec_t exec;
    size_t n = 0, edges = 0;
    OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    OK(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
    OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    OK(cudaEventRecord(e, s));
    for (int k = 0; k < SIDES; k++) {
        OK(cudaStreamCreateWithFlags(&side[k], cudaStreamNonBlocking));
        OK(cudaStreamWaitEvent(side[k], e, 0));
    }
    for (int i = 0; i < MANY; i++) OK(cudaMemsetAsync(p + i, i % 100, 1, side[i % SIDES]));
    for (int k = 0; k < SIDES; k++) {
        OK(cudaEventRecord(e, side[k]));
        OK(cudaStreamWaitEvent(s, e, 0));
    }
    OK(cudaMemsetAsync(p + MANY, 7, 1, s));
    OK(cudaStreamEndCapture(s, &g));
    OK(cudaGraphGetNodes(g, NULL, &n));
    OK(cudaGraphGetEdges(g, NULL, NULL, NULL, &edges));
    assert_int_equal(n, MANY + 1);
    assert_int_equal(edges, MANY - SIDES + SIDES); /* each but the first of a side on one; the last on all sides */
    OK(cudaGraphInstantiate(&exec, g, 0));
    OK(cudaGraphLaunch(exec, s));
    OK(cudaStreamSynchronize(s));
    unsigned char *back = device_back(p, MANY + 1);
    for (int i = 0; i < MANY; i++) assert_int_equal(back[i], i % 100);
    assert_int_equal(back[MANY], 7);
    test_free(back);
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(g));
}

int main(void) {
    setenv("ACCT_VGPU", "h100-sxm", 1);
    const struct CMUnitTest tests[] = {cmocka_unit_test(time_of_a_launch), cmocka_unit_test(many_nodes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
