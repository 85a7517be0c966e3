/* Records and callbacks of kernel launches, by every route that a program takes. */
#include "tests/unit/vgpu_cupti_client.h"

#include <sched.h>

void launch_add_one(float *x, int n, cudaStream_t s);
void launch_rotate(float *x);
const void *function_add_one(void);

enum { N = 256 };
static const char *const ADD_ONE = "_Z7add_onePfi", *const ROTATE = "_Z6rotatePf";

static char symbol[64], function[64];
static uint32_t correlation;
static unsigned entered;

static void CUPTIAPI callback(void *user, CUpti_CallbackDomain domain, CUpti_CallbackId cbid, const void *info) {
    const CUpti_CallbackData *d = info;
    (void)user, (void)domain, (void)cbid;
    if (d->callbackSite != CUPTI_API_ENTER) return;
    strncpy(symbol, d->symbolName ? d->symbolName : "", sizeof symbol - 1);
    strncpy(function, d->functionName, sizeof function - 1);
    correlation = d->correlationId;
    entered++;
}

static void check(const CUpti_ActivityKernel10 *k, const char *name, const int shape[6], int fixed, int dynamic) {
    assert_string_equal(k->name, name);
    const int of_record[] = {k->gridX, k->gridY, k->gridZ, k->blockX, k->blockY, k->blockZ};
    for (int i = 0; i < 6; i++) assert_int_equal(of_record[i], shape[i]);
    assert_int_equal(k->staticSharedMemory, fixed);
    assert_int_equal(k->dynamicSharedMemory, dynamic);
    assert_int_equal(k->launchType, CUPTI_ACTIVITY_LAUNCH_TYPE_REGULAR);
    assert_true(k->registersPerThread > 0 && k->start < k->end && k->correlationId);
    assert_int_equal(k->queued, CUPTI_TIMESTAMP_UNKNOWN);
}

/* nvcc's launch calls __cudaLaunchKernel, which has a number of its own. */
static void by_nvcc(void **state) {
    (void)state;
    float *x = device_new(N * sizeof *x);
    cudaStream_t s;
    uint32_t stream;
    OK(cudaStreamCreate(&s));
    OK(cudaMemset(x, 0, N * sizeof *x));
    OK(cuptiGetStreamId(NULL, s, &stream));
    OK(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL));
    OK(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION));
    OK(cuptiActivityEnableRuntimeApi(CUPTI_RUNTIME_TRACE_CBID___cudaLaunchKernel_v13000, 1));
    OK(cuptiActivityPushExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, 77));
    launch_add_one(x, N, s);
    launch_rotate(x);
    OK(cuptiActivityPopExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, NULL));
    client_collect();
    float *back = device_back(x, N * sizeof *x);
    assert_true(back[0] == 1 && back[N - 1] == 1); /* they did run */
    test_free(back);
    assert_int_equal(client_count(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), 2);
    assert_int_equal(client_count(CUPTI_ACTIVITY_KIND_RUNTIME), 2);
    assert_int_equal(client_count(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION), 2);
    const CUpti_ActivityKernel10 *a = &client_record(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, 0)->kernel;
    const CUpti_ActivityKernel10 *b = &client_record(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, 1)->kernel;
    check(a, ADD_ONE, (int[]){4, 2, 1, 32, 2, 1}, 0, 0);
    check(b, ROTATE, (int[]){1, 1, 1, 64, 1, 1}, 64 * 4, 64 * 4);
    assert_int_equal(a->streamId, stream);
    assert_int_not_equal(a->gridId, b->gridId);
    assert_true(b->start >= a->end); /* the default stream waits for the other */
    assert_int_equal(client_record(CUPTI_ACTIVITY_KIND_RUNTIME, 0)->api.cbid,
                     CUPTI_RUNTIME_TRACE_CBID___cudaLaunchKernel_v13000);
    assert_int_equal(client_record(CUPTI_ACTIVITY_KIND_RUNTIME, 1)->api.correlationId, b->correlationId);
    assert_int_equal(client_record(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION, 1)->external.correlationId,
                     b->correlationId);
    OK(cuptiActivityEnableRuntimeApi(CUPTI_RUNTIME_TRACE_CBID___cudaLaunchKernel_v13000, 0));
    OK(cudaStreamDestroy(s)), OK(cudaFree(x));
}

static void by_function(void **state) {
    (void)state;
    float *x = device_new(N * sizeof *x);
    int n = N;
    void *args[] = {&x, &n};
    cudaLaunchConfig_t config = {.gridDim = {3, 1, 1}, .blockDim = {8, 1, 1}};
    CUpti_SubscriberHandle subscriber;
    OK(cuptiSubscribe(&subscriber, callback, NULL));
    OK(cuptiEnableDomain(1, subscriber, CUPTI_CB_DOMAIN_RUNTIME_API));
    OK(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_KERNEL)); /* the same record, of this kind */
    entered = 0;
    OK(cudaLaunchKernel(function_add_one(), (dim3){2, 1, 1}, (dim3){16, 1, 1}, args, 0, 0));
    assert_string_equal(symbol, ADD_ONE);
    assert_string_equal(function, "cudaLaunchKernel");
    uint32_t first = correlation;
    OK(cudaLaunchKernelExC(&config, function_add_one(), args));
    assert_string_equal(symbol, ADD_ONE);
    assert_string_equal(function, "cudaLaunchKernelExC");
    uint32_t second = correlation;
    launch_add_one(x, N, 0);
    assert_string_equal(symbol, ADD_ONE);
    assert_string_equal(function, "__cudaLaunchKernel");
    assert_int_not_equal(cudaLaunchKernel(&n, (dim3){1, 1, 1}, (dim3){1, 1, 1}, args, 0, 0), 0); /* no kernel */
    assert_string_equal(symbol, "");
    assert_true(entered >= 4);
    OK(cuptiUnsubscribe(subscriber));
    (void)cudaGetLastError();
    client_collect();
    assert_int_equal(client.n, 3);
    check(&client_record(CUPTI_ACTIVITY_KIND_KERNEL, 0)->kernel, ADD_ONE, (int[]){2, 1, 1, 16, 1, 1}, 0, 0);
    check(&client_record(CUPTI_ACTIVITY_KIND_KERNEL, 1)->kernel, ADD_ONE, (int[]){3, 1, 1, 8, 1, 1}, 0, 0);
    assert_int_equal(client_record(CUPTI_ACTIVITY_KIND_KERNEL, 0)->kernel.correlationId, first);
    assert_int_equal(client_record(CUPTI_ACTIVITY_KIND_KERNEL, 1)->kernel.correlationId, second);
    OK(cudaFree(x));
}

/* Behind work that holds the stream up, a kernel is queued long before it starts. */
static void held_up(void *go) {
    while (!__atomic_load_n((int *)go, __ATOMIC_ACQUIRE)) sched_yield();
}

static void latency(void **state) {
    (void)state;
    float *x = device_new(N * sizeof *x);
    int go = 0;
    uint64_t before, after;
    OK(cuptiActivityEnableLatencyTimestamps(1));
    OK(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL));
    OK(cudaLaunchHostFunc(0, held_up, &go));
    OK(cuptiGetTimestamp(&before));
    launch_add_one(x, N, 0);
    OK(cuptiGetTimestamp(&after));
    __atomic_store_n(&go, 1, __ATOMIC_RELEASE);
    client_collect();
    OK(cuptiActivityEnableLatencyTimestamps(0));
    const CUpti_ActivityKernel10 *k = &client_record(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, 0)->kernel;
    assert_true(before <= k->queued && k->queued <= after && k->submitted >= k->queued && k->submitted <= after);
    assert_true(k->start >= after);
    OK(cudaFree(x));
}

/* A program compiled for a default stream per thread calls functions with numbers of their own. */
cudaError_t cudaMemsetAsync_ptsz(void *to, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaMemset_ptds(void *to, int value, size_t bytes);
cudaError_t __cudaLaunchKernel_ptsz(cudaKernel_t kernel, dim3 grid, dim3 block, void **args, size_t shared,
                                    cudaStream_t stream);

static void per_thread_stream(void **state) {
    (void)state;
    float *x = device_new(N * sizeof *x);
    int n = N;
    void *args[] = {&x, &n};
    cudaKernel_t kernel;
    uint32_t stream;
    OK(cudaGetKernel(&kernel, function_add_one()));
    OK(cuptiGetStreamIdEx(NULL, NULL, 1, &stream));
    OK(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL));
    OK(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMSET));
    OK(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_RUNTIME));
    OK(cudaMemsetAsync_ptsz(x, 0, 4, 0));
    OK(cudaMemset_ptds(x, 0, 4));
    OK(__cudaLaunchKernel_ptsz(kernel, (dim3){1, 1, 1}, (dim3){4, 1, 1}, args, 0, 0));
    OK(cuptiActivityDisable(CUPTI_ACTIVITY_KIND_RUNTIME));
    client_collect();
    const unsigned cbids[] = {CUPTI_RUNTIME_TRACE_CBID_cudaMemsetAsync_ptsz_v7000,
                              CUPTI_RUNTIME_TRACE_CBID_cudaMemset_ptds_v7000,
                              CUPTI_RUNTIME_TRACE_CBID___cudaLaunchKernel_ptsz_v13000};
    assert_int_equal(client_count(CUPTI_ACTIVITY_KIND_RUNTIME), 3);
    for (size_t i = 0; i < 3; i++) assert_int_equal(client_record(CUPTI_ACTIVITY_KIND_RUNTIME, i)->api.cbid, cbids[i]);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(client_record(CUPTI_ACTIVITY_KIND_MEMSET, i)->fill.streamId, stream);
    assert_int_equal(client_record(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, 0)->kernel.streamId, stream);
    OK(cudaFree(x));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(by_nvcc, client_reset),
        cmocka_unit_test_setup(by_function, client_reset),
        cmocka_unit_test_setup(latency, client_reset),
        cmocka_unit_test_setup(per_thread_stream, client_reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
