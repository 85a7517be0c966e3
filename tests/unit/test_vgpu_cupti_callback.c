/* Callbacks of the stand-in for libcupti: who may subscribe, what comes, in which order, and what comes no more. */
#include "tests/unit/vgpu_cupti_client.h"

#include <stdio.h>

struct event {
    CUpti_CallbackDomain domain;
    CUpti_CallbackId cbid;
    CUpti_ApiCallbackSite site;
    uint32_t correlation;
    char function[64], symbol[64];
    int result;
    uint64_t data;
};

static struct {
    CUpti_SubscriberHandle subscriber;
    struct event events[1000];
    size_t n;
    _Atomic size_t calls;
    cudaMemsetAsync_v3020_params memset;
    CUcontext context;
    bool calls_cuda, finalizes;
} heard;

static void note(CUpti_CallbackDomain domain, CUpti_CallbackId cbid, const CUpti_CallbackData *d) {
    bool exit = d->callbackSite == CUPTI_API_EXIT;
    struct event *e = &heard.events[heard.n++];
    const char *name; /* with the version at which the function came: cudaMemset_v3020 */
    if (cuptiGetCallbackName(domain, cbid, &name) || strncmp(name, d->functionName, strlen(d->functionName))) abort();
    *e = (struct event){.domain = domain, .cbid = cbid, .site = d->callbackSite, .correlation = d->correlationId};
    snprintf(e->function, sizeof e->function, "%s", d->functionName);
    snprintf(e->symbol, sizeof e->symbol, "%s", d->symbolName ? d->symbolName : "");
    if (exit) e->result = *(int *)d->functionReturnValue;
    if (!exit) *d->correlationData = 1000 + d->correlationId;
    e->data = *d->correlationData;
    heard.context = d->context;
    if (domain == CUPTI_CB_DOMAIN_RUNTIME_API && cbid == CUPTI_RUNTIME_TRACE_CBID_cudaMemsetAsync_v3020)
        heard.memset = *(const cudaMemsetAsync_v3020_params *)d->functionParams;
}

static void CUPTIAPI callback(void *user, CUpti_CallbackDomain domain, CUpti_CallbackId cbid, const void *info) {
    const CUpti_CallbackData *d = info;
    int device;
    if (user != &heard) abort();
    heard.calls++;
    if (heard.n < sizeof heard.events / sizeof *heard.events) note(domain, cbid, d);
    if (heard.calls_cuda) (void)cudaGetDevice(&device);
    if (heard.finalizes && d->callbackSite == CUPTI_API_EXIT) (void)cuptiFinalize();
}

static int subscribe(void **state) {
    client_reset(state);
    memset(&heard, 0, sizeof heard);
    OK(cuptiSubscribe(&heard.subscriber, callback, &heard));
    return 0;
}

static int unsubscribe(void **state) {
    (void)state;
    if (heard.subscriber) OK(cuptiUnsubscribe(heard.subscriber));
    return 0;
}

static void one_subscriber(void **state) {
    (void)state;
    CUpti_SubscriberHandle second = NULL, named = NULL;
    char name[CUPTI_OLD_SUBSCRIBER_NAME_MIN_LEN] = "";
    CUpti_SubscriberParams p = {
        .structSize = CUpti_SubscriberParams_STRUCT_SIZE, .oldSubscriberName = name, .oldSubscriberSize = sizeof name};
    assert_int_equal(cuptiSubscribe(&second, callback, NULL), 39);
    assert_int_equal(cuptiSubscribe_v2(&second, callback, NULL, &p), CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
    assert_null(second);
    assert_int_equal(cuptiSubscribe(NULL, callback, NULL), CUPTI_ERROR_INVALID_PARAMETER);
    assert_int_equal(cuptiUnsubscribe(NULL), CUPTI_ERROR_INVALID_PARAMETER);
    assert_int_equal(cuptiUnsubscribe((CUpti_SubscriberHandle)&second), CUPTI_ERROR_INVALID_PARAMETER);
    OK(cuptiUnsubscribe(heard.subscriber));
    assert_int_equal(cuptiUnsubscribe(heard.subscriber), CUPTI_ERROR_INVALID_PARAMETER);
    p.subscriberName = "test";
    OK(cuptiSubscribe_v2(&named, callback, &heard, &p));
    assert_ptr_not_equal(named, heard.subscriber);
    assert_int_equal(cuptiSubscribe_v2(&second, callback, NULL, &p), 39);
    assert_string_equal(name, "CUPTI for test");
    p.structSize = 8;
    assert_int_equal(cuptiSubscribe_v2(&second, callback, NULL, &p), CUPTI_ERROR_INVALID_PARAMETER);
    OK(cuptiUnsubscribe(named));
    heard.subscriber = NULL;
}

static void pairs(void **state) {
    (void)state;
    char *d = device_new(100);
    cudaStream_t s;
    OK(cudaStreamCreate(&s));
    OK(cuptiEnableDomain(1, heard.subscriber, CUPTI_CB_DOMAIN_RUNTIME_API));
    OK(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_RUNTIME));
    OK(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMSET));
    OK(cudaMemsetAsync(d, 5, 100, s));
    assert_int_equal(cudaMemset(d, 0, 1 << 20), cudaErrorInvalidValue);
    OK(cudaStreamSynchronize(s));
    OK(cuptiActivityFlushAll(0));
    const struct {
        unsigned cbid;
        const char *name;
        int result;
    } expected[] = {{CUPTI_RUNTIME_TRACE_CBID_cudaMemsetAsync_v3020, "cudaMemsetAsync", 0},
                    {CUPTI_RUNTIME_TRACE_CBID_cudaMemset_v3020, "cudaMemset", cudaErrorInvalidValue},
                    {CUPTI_RUNTIME_TRACE_CBID_cudaStreamSynchronize_v3020, "cudaStreamSynchronize", 0}};
    assert_int_equal(heard.n, 6);
    for (size_t i = 0; i < 3; i++) {
        const struct event *in = &heard.events[2 * i], *out = in + 1;
        const CUpti_ActivityAPI *r = &client_record(CUPTI_ACTIVITY_KIND_RUNTIME, i)->api;
        assert_int_equal(in->domain, CUPTI_CB_DOMAIN_RUNTIME_API);
        assert_int_equal(in->site, CUPTI_API_ENTER), assert_int_equal(out->site, CUPTI_API_EXIT);
        assert_int_equal(in->cbid, expected[i].cbid), assert_int_equal(out->cbid, expected[i].cbid);
        assert_string_equal(in->function, expected[i].name);
        assert_int_equal(out->result, expected[i].result);
        assert_int_equal(in->correlation, out->correlation);
        assert_int_equal(r->correlationId, in->correlation); /* one number: callback, API record, … */
        assert_int_equal(r->cbid, expected[i].cbid);
        assert_int_equal(out->data, 1000 + in->correlation);
        assert_string_equal(in->symbol, "");
    }
    assert_int_equal(client_record(CUPTI_ACTIVITY_KIND_MEMSET, 0)->fill.correlationId, heard.events[0].correlation);
    assert_ptr_equal(heard.memset.devPtr, d);
    assert_int_equal(heard.memset.value, 5);
    assert_int_equal(heard.memset.count, 100);
    assert_ptr_equal(heard.memset.stream, s);
    uint32_t id = 0;
    OK(cuptiGetContextId(heard.context, &id));
    assert_int_equal(id, 1);
    (void)cudaGetLastError();
    OK(cudaStreamDestroy(s)), OK(cudaFree(d));
}

/* Inside the program's cuBLAS call a launch by the driver: its callbacks tell the kernel. */
static void cublas_launches(void **state) {
    (void)state;
    float one = 1, *d = device_new(64 * 64 * 4);
    cublasHandle_t h;
    OK(cublasCreate(&h));
    OK(cuptiEnableCallback(1, heard.subscriber, CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel));
    OK(cublasSgemmStridedBatched(h, CUBLAS_OP_T, CUBLAS_OP_N, 8, 8, 8, &one, d, 8, 64, d, 8, 64, &one, d, 8, 64, 4));
    OK(cudaDeviceSynchronize());
    assert_int_equal(heard.n, 2);
    assert_int_equal(heard.events[0].domain, CUPTI_CB_DOMAIN_DRIVER_API);
    assert_string_equal(heard.events[0].function, "cuLaunchKernel");
    assert_string_equal(heard.events[0].symbol, "vgpu_sgemm_batched_tn");
    OK(cublasDestroy(h)), OK(cudaFree(d));
}

static void single_callbacks(void **state) {
    (void)state;
    uint32_t on = 9;
    char *d = device_new(8);
    CUpti_SubscriberHandle s = heard.subscriber;
    OK(cuptiEnableCallback(1, s, CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_cudaMemset_v3020));
    OK(cudaMemset(d, 0, 8));
    OK(cudaMemsetAsync(d, 0, 8, 0));
    assert_int_equal(heard.n, 2);
    OK(cuptiGetCallbackState(&on, s, CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_cudaMemset_v3020));
    assert_int_equal(on, 1);
    OK(cuptiGetCallbackState(&on, s, CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_cudaMemsetAsync_v3020));
    assert_int_equal(on, 0);
    OK(cuptiEnableAllDomains(1, s));
    OK(cuptiEnableCallback(0, s, CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_cudaMemset_v3020));
    OK(cudaMemset(d, 0, 8));
    assert_int_equal(heard.n, 2);
    OK(cuptiEnableAllDomains(0, s));
    OK(cudaMemsetAsync(d, 0, 8, 0));
    assert_int_equal(heard.n, 2);
    const int bad = CUPTI_ERROR_INVALID_PARAMETER;
    assert_int_equal(cuptiEnableCallback(1, s, CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_SIZE), bad);
    assert_int_equal(cuptiEnableCallback(1, NULL, CUPTI_CB_DOMAIN_RUNTIME_API, 13), bad);
    assert_int_equal(cuptiEnableCallback(1, s, CUPTI_CB_DOMAIN_INVALID, 1), bad);
    assert_int_equal(cuptiEnableDomain(1, s, CUPTI_CB_DOMAIN_SIZE), bad);
    assert_int_equal(cuptiGetCallbackState(NULL, s, CUPTI_CB_DOMAIN_RUNTIME_API, 13), bad);
    OK(cudaFree(d));
}

static void none_after_unsubscribe(void **state) {
    (void)state;
    char *d = device_new(8);
    OK(cuptiEnableDomain(1, heard.subscriber, CUPTI_CB_DOMAIN_RUNTIME_API));
    OK(cudaMemset(d, 0, 8));
    assert_int_equal(heard.n, 2);
    OK(cuptiUnsubscribe(heard.subscriber));
    heard.subscriber = NULL;
    OK(cudaMemset(d, 0, 8));
    assert_int_equal(heard.n, 2);
    CUpti_SubscriberHandle again;
    OK(cuptiSubscribe(&again, callback, &heard)); /* with nothing enabled */
    OK(cudaFree(d));
    assert_int_equal(heard.n, 2);
    OK(cuptiUnsubscribe(again));
}

static void *call_on(void *stop) {
    int device;
    while (!__atomic_load_n((int *)stop, __ATOMIC_ACQUIRE)) (void)cudaGetDevice(&device);
    return NULL;
}

/* While other threads call: when cuptiUnsubscribe has returned, none of its callbacks is under way. */
static void none_after_unsubscribe_in_other_threads(void **state) {
    (void)state;
    pthread_t t[2];
    for (int round = 0; round < 20; round++) {
        int stop = 0;
        if (!heard.subscriber) OK(cuptiSubscribe(&heard.subscriber, callback, &heard));
        OK(cuptiEnableDomain(1, heard.subscriber, CUPTI_CB_DOMAIN_RUNTIME_API));
        heard.n = 1000; /* threads would race for the list */
        heard.calls = 0;
        for (int i = 0; i < 2; i++) pthread_create(&t[i], NULL, call_on, &stop);
        while (heard.calls < 100) sched_yield();
        OK(cuptiUnsubscribe(heard.subscriber));
        size_t then = heard.calls;
        heard.subscriber = NULL;
        nanosleep(&(struct timespec){0, 2000000}, NULL);
        assert_int_equal(heard.calls, then);
        __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
        for (int i = 0; i < 2; i++) pthread_join(t[i], NULL);
    }
}

/* A callback's own calls of CUDA are not told: it would be called for ever. */
static void calls_in_a_callback(void **state) {
    (void)state;
    char *d = device_new(8);
    heard.calls_cuda = true;
    OK(cuptiEnableDomain(1, heard.subscriber, CUPTI_CB_DOMAIN_RUNTIME_API));
    OK(cudaMemset(d, 0, 8));
    assert_int_equal(heard.n, 2);
    heard.calls_cuda = false;
    OK(cudaFree(d));
}

static void finalize_from_a_callback(void **state) {
    (void)state;
    char *d = device_new(8);
    heard.finalizes = true;
    OK(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMSET));
    OK(cudaMemset(d, 0, 8));
    OK(cudaDeviceSynchronize());
    OK(cuptiEnableDomain(1, heard.subscriber, CUPTI_CB_DOMAIN_RUNTIME_API));
    OK(cudaMemset(d, 0, 8)); /* its end finalizes */
    OK(cudaMemset(d, 0, 8));
    OK(cudaDeviceSynchronize());
    assert_int_equal(heard.n, 2);
    assert_in_range(client.n, 1, 2);
    heard.subscriber = NULL;
    OK(cudaFree(d));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_subscriber, subscribe, unsubscribe),
        cmocka_unit_test_setup_teardown(pairs, subscribe, unsubscribe),
        cmocka_unit_test_setup_teardown(cublas_launches, subscribe, unsubscribe),
        cmocka_unit_test_setup_teardown(single_callbacks, subscribe, unsubscribe),
        cmocka_unit_test_setup_teardown(none_after_unsubscribe, subscribe, unsubscribe),
        cmocka_unit_test_setup_teardown(none_after_unsubscribe_in_other_threads, subscribe, unsubscribe),
        cmocka_unit_test_setup_teardown(calls_in_a_callback, subscribe, unsubscribe),
        cmocka_unit_test_setup_teardown(finalize_from_a_callback, subscribe, unsubscribe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
