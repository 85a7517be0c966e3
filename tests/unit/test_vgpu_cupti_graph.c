/* Graphs as CUPTI's client sees them: records of what a launch runs, tied to the calls that were captured by the ids of
 * nodes and the callbacks that tell of copies, as the vendor's sample cuda_graphs_trace ties them. */
#include "tests/unit/vgpu_cupti_client.h"

enum { N = 24, NODES = 64 };

static struct tie { /* a node, and the call inside which it came to be */
    uint64_t node;
    uint32_t call;
} ties[NODES];
static size_t tied;
static unsigned counts[CUPTI_CBID_RESOURCE_SIZE];
static uint32_t call_under_way; /* of the runtime */
static bool bad;                /* a callback told something that is not so */

static uint32_t call_of(uint64_t node) {
    for (size_t i = 0; i < tied; i++)
        if (ties[i].node == node) return ties[i].call;
    return 0;
}

static void tie(uint64_t node, uint32_t call) {
    if (tied < NODES) ties[tied++] = (struct tie){node, call};
}

static void resource(CUpti_CallbackId cbid, const CUpti_ResourceData *data) {
    const CUpti_GraphData *g = data->resourceDescriptor;
    uint64_t node = 0, original = 0;
    counts[cbid]++;
    if (cbid == CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED) {
        bad |= cuptiGetGraphNodeId(g->node, &node) || !node;
        tie(node, call_under_way);
    } else if (cbid == CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED) {
        bad |= cuptiGetGraphNodeId(g->node, &node) || cuptiGetGraphNodeId(g->originalNode, &original);
        tie(node, call_of(original));
    }
}

static void CUPTIAPI callback(void *user, CUpti_CallbackDomain domain, CUpti_CallbackId cbid, const void *info) {
    const CUpti_CallbackData *d = info;
    (void)user;
    if (domain == CUPTI_CB_DOMAIN_RESOURCE)
        resource(cbid, info);
    else if (domain == CUPTI_CB_DOMAIN_RUNTIME_API)
        call_under_way = d->callbackSite == CUPTI_API_ENTER ? d->correlationId : 0;
}

static cudaGraph_t capture(cudaStream_t s, cublasHandle_t h, float *a, float *b, float *c) {
    const float one = 1, zero = 0;
    cudaGraph_t g;
    OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    OK(cudaMemsetAsync(a, 0, N * N * 4, s));
    OK(cudaMemcpyAsync(b, a, N * N * 4, cudaMemcpyDeviceToDevice, s));
    OK(cublasSgemm(h, CUBLAS_OP_N, CUBLAS_OP_N, N, N, N, &one, a, N, b, N, &zero, c, N));
    OK(cublasSgemm(h, CUBLAS_OP_T, CUBLAS_OP_N, N, N, N, &one, b, N, a, N, &zero, c, N));
    OK(cudaStreamEndCapture(s, &g));
    return g;
}

static void records_of_a_launch(void **state) {
    (void)state;
    float *a = device_new(N * N * 4), *b = device_new(N * N * 4), *c = device_new(N * N * 4);
    cudaStream_t s;
    cublasHandle_t h;
    cudaGraphExec_t exec;
    CUpti_SubscriberHandle subscriber;
    uint32_t stream, id;
    OK(cudaStreamCreate(&s));
    OK(cublasCreate(&h));
    OK(cublasSetStream(h, s));
    OK(cuptiGetStreamId(NULL, s, &stream));
    OK(cuptiSubscribe(&subscriber, callback, NULL));
    OK(cuptiEnableDomain(1, subscriber, CUPTI_CB_DOMAIN_RESOURCE));
    OK(cuptiEnableDomain(1, subscriber, CUPTI_CB_DOMAIN_RUNTIME_API));
    OK(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL));
    OK(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMCPY));
    OK(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMSET));
    OK(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_RUNTIME));
    cudaGraph_t g = capture(s, h, a, b, c);
    client_collect();
    assert_int_equal(client_count(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), 0); /* nothing has run */
    assert_int_equal(client_count(CUPTI_ACTIVITY_KIND_MEMSET), 0);
    OK(cudaGraphInstantiate(&exec, g, 0));
    OK(cuptiGetGraphExecId(exec, &id));
    OK(cudaGraphLaunch(exec, s));
    OK(cudaGraphLaunch(exec, s));
    client_collect();
    assert_false(bad);
    assert_int_equal(counts[CUPTI_CBID_RESOURCE_GRAPH_CREATED], 1);
    assert_int_equal(counts[CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED], 4);
    assert_int_equal(counts[CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED], 4);
    assert_int_equal(counts[CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATED], 1);
    assert_int_equal(client_count(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), 4);
    assert_int_equal(client_count(CUPTI_ACTIVITY_KIND_MEMCPY), 2);
    assert_int_equal(client_count(CUPTI_ACTIVITY_KIND_MEMSET), 2);

    uint32_t launch[2], calls[2], n = 0, m = 0; /* correlations of the launches, of the captured calls by kind */
    for (size_t i = 0; i < client_count(CUPTI_ACTIVITY_KIND_RUNTIME); i++) {
        const CUpti_ActivityAPI *r = &client_record(CUPTI_ACTIVITY_KIND_RUNTIME, i)->api;
        if (r->cbid == CUPTI_RUNTIME_TRACE_CBID_cudaGraphLaunch_v10000 && n < 2) launch[n++] = r->correlationId;
        if ((r->cbid == CUPTI_RUNTIME_TRACE_CBID_cudaMemsetAsync_v3020 ||
             r->cbid == CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyAsync_v3020) &&
            m < 2)
            calls[m++] = r->correlationId;
    }
    assert_true(n == 2 && m == 2);
    uint64_t before = 0, first = 0;
    for (size_t i = 0; i < 4; i++) {
        const CUpti_ActivityKernel10 *k = &client_record(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, i)->kernel;
        assert_int_equal(k->correlationId, launch[i / 2]);
        assert_int_equal(k->graphId, id);
        assert_int_equal(k->streamId, stream);
        assert_true(k->graphNodeId && k->start >= before && k->end > k->start);
        if (i < 2) assert_true(k->graphNodeId != first);
        if (!i) first = k->graphNodeId;
        if (i == 2) assert_true(k->graphNodeId == first); /* the same node at the next launch */
        before = k->end;
    }
    for (size_t i = 0; i < 2; i++) {
        const CUpti_ActivityMemset4 *f = &client_record(CUPTI_ACTIVITY_KIND_MEMSET, i)->fill;
        const CUpti_ActivityMemcpy6 *p = &client_record(CUPTI_ACTIVITY_KIND_MEMCPY, i)->copy;
        assert_true(f->correlationId == launch[i] && p->correlationId == launch[i] && f->bytes == N * N * 4);
        assert_true(f->graphId == id && p->graphId == id && f->end <= p->start);
        assert_int_equal(call_of(f->graphNodeId), calls[0]); /* tied to the call that was captured */
        assert_int_equal(call_of(p->graphNodeId), calls[1]);
    }
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(g));
    assert_int_equal(counts[CUPTI_CBID_RESOURCE_GRAPHEXEC_DESTROY_STARTING], 1);
    assert_int_equal(counts[CUPTI_CBID_RESOURCE_GRAPH_DESTROY_STARTING], 1);
    assert_int_equal(counts[CUPTI_CBID_RESOURCE_GRAPHNODE_DESTROY_STARTING], 4);
    OK(cuptiUnsubscribe(subscriber));
}

static void outside_of_graphs(void **state) {
    (void)state;
    float *a = device_new(256);
    uint64_t id;
    OK(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMSET));
    OK(cudaMemset(a, 1, 256));
    client_collect();
    const CUpti_ActivityMemset4 *f = &client_record(CUPTI_ACTIVITY_KIND_MEMSET, 0)->fill;
    assert_true(!f->graphId && !f->graphNodeId);
    assert_int_equal(cuptiGetGraphNodeId(NULL, &id), CUPTI_ERROR_INVALID_PARAMETER);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup(records_of_a_launch, client_reset),
                                       cmocka_unit_test_setup(outside_of_graphs, client_reset)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
