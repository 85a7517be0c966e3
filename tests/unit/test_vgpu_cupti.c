/* Activity records of the stand-in for libcupti: copies, memsets, products, API calls, external correlation. What must
 * be in them is known from the calls that this test makes. */
#include "tests/unit/vgpu_cupti_client.h"

#include <unistd.h>

static void enable(int kind) {
    OK(cuptiActivityEnable((CUpti_ActivityKind)kind));
}

static uint32_t stream_id(cudaStream_t s) {
    uint32_t id = 0;
    OK(cuptiGetStreamIdEx(NULL, s, 0, &id));
    return id;
}

static void copies(void **state) {
    (void)state;
    enum { BYTES = 4096 };
    char pageable[BYTES], *pinned, *managed, *a = device_new(BYTES), *b = device_new(BYTES);
    cudaStream_t s;
    OK(cudaStreamCreate(&s));
    OK(cudaMallocHost((void **)&pinned, BYTES));
    OK(cudaMallocManaged((void **)&managed, BYTES, cudaMemAttachGlobal));
    enable(CUPTI_ACTIVITY_KIND_MEMCPY);
    uint64_t before, after;
    OK(cuptiGetTimestamp(&before));
    OK(cudaMemcpy(a, pageable, BYTES, cudaMemcpyHostToDevice));
    OK(cudaMemcpyAsync(b, pageable, 100, cudaMemcpyHostToDevice, s));
    OK(cudaMemcpyAsync(b, a, 200, cudaMemcpyDeviceToDevice, s));
    OK(cudaMemcpyAsync(pinned, b, 300, cudaMemcpyDeviceToHost, s));
    OK(cudaMemcpy(managed, pinned, 400, cudaMemcpyDefault));
    OK(cudaMemcpy2D(a, 64, pageable, 32, 16, 10, cudaMemcpyHostToDevice));
    OK(cudaMemcpy(pageable, pinned, 500, cudaMemcpyHostToHost));
    client_collect();
    OK(cuptiGetTimestamp(&after));
    const struct {
        unsigned kind, from, to, flags, bytes;
        cudaStream_t stream;
    } expected[] = {
        {CUPTI_ACTIVITY_MEMCPY_KIND_HTOD, CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE, CUPTI_ACTIVITY_MEMORY_KIND_DEVICE, 0,
         BYTES, 0},
        {CUPTI_ACTIVITY_MEMCPY_KIND_HTOD, CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE, CUPTI_ACTIVITY_MEMORY_KIND_DEVICE, 1,
         100, s},
        {CUPTI_ACTIVITY_MEMCPY_KIND_DTOD, CUPTI_ACTIVITY_MEMORY_KIND_DEVICE, CUPTI_ACTIVITY_MEMORY_KIND_DEVICE, 1, 200,
         s},
        {CUPTI_ACTIVITY_MEMCPY_KIND_DTOH, CUPTI_ACTIVITY_MEMORY_KIND_DEVICE, CUPTI_ACTIVITY_MEMORY_KIND_PINNED, 1, 300,
         s},
        {CUPTI_ACTIVITY_MEMCPY_KIND_HTOD, CUPTI_ACTIVITY_MEMORY_KIND_PINNED, CUPTI_ACTIVITY_MEMORY_KIND_MANAGED, 0, 400,
         0},
        {CUPTI_ACTIVITY_MEMCPY_KIND_HTOD, CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE, CUPTI_ACTIVITY_MEMORY_KIND_DEVICE, 0,
         160, 0},
        {CUPTI_ACTIVITY_MEMCPY_KIND_HTOH, CUPTI_ACTIVITY_MEMORY_KIND_PINNED, CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE, 0,
         500, 0},
    };
    size_t n = sizeof expected / sizeof *expected;
    assert_int_equal(client.n, n);
    uint32_t last_correlation = 0;
    for (size_t i = 0; i < n; i++) {
        const CUpti_ActivityMemcpy6 *r = &client_record(CUPTI_ACTIVITY_KIND_MEMCPY, i)->copy;
        assert_int_equal(r->copyKind, expected[i].kind);
        assert_int_equal(r->srcKind, expected[i].from);
        assert_int_equal(r->dstKind, expected[i].to);
        assert_int_equal(r->flags, expected[i].flags);
        assert_int_equal(r->bytes, expected[i].bytes);
        assert_int_equal(r->streamId, stream_id(expected[i].stream));
        assert_true(before <= r->start && r->start < r->end && r->end <= after);
        assert_true(r->correlationId > last_correlation); /* one thread made the calls in this order */
        assert_int_equal(r->runtimeCorrelationId, r->correlationId);
        assert_int_equal(r->deviceId, 0);
        assert_int_equal(r->contextId, 1);
        assert_int_equal(r->copyCount, 1);
        last_correlation = r->correlationId;
    }
    OK(cudaFree(a)), OK(cudaFree(b)), OK(cudaFree(managed)), OK(cudaFreeHost(pinned)), OK(cudaStreamDestroy(s));
}

static void memsets(void **state) {
    (void)state;
    char *d = device_new(1000), *pinned;
    OK(cudaMallocHost((void **)&pinned, 64));
    enable(CUPTI_ACTIVITY_KIND_MEMSET);
    OK(cudaMemset(d, 0x1a5, 1000)); /* a byte: the rest of the value does not count */
    OK(cudaMemsetAsync(d, 7, 10, cudaStreamPerThread));
    OK(cudaMemset2D(d, 100, 1, 30, 5));
    OK(cudaMemset(pinned, 0, 64));
    OK(cudaMemset(d, 0, 0)); /* nothing to do: nothing done */
    assert_int_equal(cudaMemset(d, 0, 1 << 20), cudaErrorInvalidValue);
    client_collect();
    assert_int_equal(client.n, 4);
    const unsigned bytes[] = {1000, 10, 150, 64}, values[] = {0xa5, 7, 1, 0}, flags[] = {0, 1, 0, 0};
    for (size_t i = 0; i < 4; i++) {
        bool found = false; /* of two streams: in any order */
        for (size_t k = 0; k < 4; k++) {
            const CUpti_ActivityMemset4 *r = &client_record(CUPTI_ACTIVITY_KIND_MEMSET, k)->fill;
            if (r->bytes != bytes[i]) continue;
            found = true;
            assert_int_equal(r->value, values[i]);
            assert_int_equal(r->flags, flags[i]);
            assert_int_equal(r->memoryKind,
                             i == 3 ? CUPTI_ACTIVITY_MEMORY_KIND_PINNED : CUPTI_ACTIVITY_MEMORY_KIND_DEVICE);
            assert_int_equal(r->streamId, stream_id(i == 1 ? cudaStreamPerThread : 0));
            assert_true(r->start < r->end && r->correlationId);
        }
        assert_true(found);
    }
    (void)cudaGetLastError();
    OK(cudaFree(d)), OK(cudaFreeHost(pinned));
}

/* Of each cuBLAS call: a driver's launch, with the pushed id in front, and one kernel with the launch's number. */
static void products(void **state) {
    (void)state;
    enum { N = 64, CALLS = 20 };
    float one = 1, zero = 0, *d = device_new(N * N * 4);
    cublasHandle_t h;
    uint64_t last;
    OK(cublasCreate(&h));
    enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), enable(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION);
    OK(cuptiActivityEnableDriverApi(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, 1));
    for (unsigned i = 0; i < CALLS; i++) {
        OK(cuptiActivityPushExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, 1000 + i));
        OK(i % 2 ? cublasSgemm(h, CUBLAS_OP_N, CUBLAS_OP_T, N, N, N, &one, d, N, d, N, &zero, d, N)
                 : cublasSscal(h, N, &one, d, 1));
        OK(cuptiActivityPopExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, &last));
        assert_int_equal(last, 1000 + i);
    }
    client_collect();
    OK(cuptiActivityEnableDriverApi(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, 0));
    assert_int_equal(client_count(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), CALLS);
    assert_int_equal(client_count(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION), CALLS);
    assert_int_equal(client_count(CUPTI_ACTIVITY_KIND_DRIVER), CALLS);
    assert_int_equal(client.n, 3 * CALLS);
    for (unsigned i = 0; i < CALLS; i++) {
        const union record *e = client_record(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION, i);
        const CUpti_ActivityKernel10 *k = &client_record(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, i)->kernel;
        assert_int_equal(e->external.externalKind, CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0);
        assert_int_equal(e->external.externalId, 1000 + i);
        assert_int_equal(e[1].base.kind, CUPTI_ACTIVITY_KIND_DRIVER); /* at once behind it */
        assert_int_equal(e[1].api.correlationId, e->external.correlationId);
        assert_int_equal(e[1].api.returnValue, 0);
        assert_int_equal(e[1].api.processId, getpid());
        assert_int_equal(k->correlationId, e->external.correlationId);
        assert_string_equal(k->name, i % 2 ? "vgpu_sgemm_nt" : "vgpu_sscal");
        assert_true(k->start >= e[1].api.start && k->start < k->end && k->completed == k->end);
    }
    OK(cublasDestroy(h)), OK(cudaFree(d));
}

/* Without API records there are no external ones, whatever was pushed. */
static void external_needs_api(void **state) {
    (void)state;
    char *d = device_new(8);
    uint64_t last = 0;
    enable(CUPTI_ACTIVITY_KIND_MEMSET), enable(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION);
    for (int kind = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0; kind <= CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM1; kind++)
        for (unsigned id = 1; id <= 40; id++)
            OK(cuptiActivityPushExternalCorrelationId((CUpti_ExternalCorrelationKind)kind, id));
    OK(cudaMemset(d, 0, 8));
    client_collect();
    assert_int_equal(client.n, 1);
    /* One function's records: its own ids come, the other function's do not; the top id of each kind. */
    OK(cuptiActivityEnableRuntimeApi(CUPTI_RUNTIME_TRACE_CBID_cudaMemsetAsync_v3020, 1));
    OK(cudaMemset(d, 0, 8));
    OK(cudaMemsetAsync(d, 0, 8, 0));
    client_collect();
    assert_int_equal(client.n, 1 + 2 + 3);
    assert_int_equal(client_count(CUPTI_ACTIVITY_KIND_RUNTIME), 1);
    const CUpti_ActivityAPI *api = &client_record(CUPTI_ACTIVITY_KIND_RUNTIME, 0)->api;
    assert_int_equal(api->cbid, CUPTI_RUNTIME_TRACE_CBID_cudaMemsetAsync_v3020);
    assert_int_equal(client_record(CUPTI_ACTIVITY_KIND_MEMSET, 2)->fill.correlationId, api->correlationId);
    for (unsigned i = 0; i < 2; i++) {
        const CUpti_ActivityExternalCorrelation *e =
            &client_record(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION, i)->external;
        assert_int_equal(e->externalKind, CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0 + i);
        assert_int_equal(e->externalId, 40);
        assert_int_equal(e->correlationId, api->correlationId);
    }
    for (int kind = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0; kind <= CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM1; kind++)
        for (unsigned id = 40; id >= 1; id--) {
            OK(cuptiActivityPopExternalCorrelationId((CUpti_ExternalCorrelationKind)kind, &last));
            assert_int_equal(last, id);
        }
    last = 77;
    assert_int_equal(cuptiActivityPopExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, &last),
                     CUPTI_ERROR_QUEUE_EMPTY);
    assert_int_equal(last, 77);
    assert_int_equal(cuptiActivityPushExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_INVALID, 1),
                     CUPTI_ERROR_INVALID_PARAMETER);
    assert_int_equal(cuptiActivityPopExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_SIZE, NULL),
                     CUPTI_ERROR_INVALID_PARAMETER);
    OK(cuptiActivityEnableRuntimeApi(CUPTI_RUNTIME_TRACE_CBID_cudaMemsetAsync_v3020, 0));
    OK(cudaFree(d));
}

static void *push_and_call(void *d) {
    OK(cuptiActivityPushExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM2, 5));
    OK(cudaMemset(d, 0, 8));
    return NULL; /* the id is left; it goes with the thread */
}

static void external_ids_are_a_threads_own(void **state) {
    (void)state;
    pthread_t t;
    char *d = device_new(8);
    enable(CUPTI_ACTIVITY_KIND_RUNTIME), enable(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION);
    OK(cuptiSetThreadIdType(CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM));
    OK(cuptiActivityPushExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM2, 4));
    pthread_create(&t, NULL, push_and_call, d);
    pthread_join(t, NULL);
    OK(cudaMemset(d, 0, 8));
    OK(cuptiActivityFlushAll(0));
    OK(cuptiActivityPopExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM2, NULL));
    OK(cuptiSetThreadIdType(CUPTI_ACTIVITY_THREAD_ID_TYPE_DEFAULT));
    assert_int_equal(client.n, 4);
    assert_int_equal(client.records[0].external.externalId, 5);
    assert_int_equal(client.records[2].external.externalId, 4);
    assert_int_equal(client.records[3].api.threadId, gettid());
    assert_int_not_equal(client.records[1].api.threadId, client.records[3].api.threadId);
    OK(cudaFree(d));
}

/* Many products and memsets: work of one stream does not overlap, nothing has no duration, and the times of all add up
 * to no more than what has passed. */
static void times(void **state) {
    (void)state;
    enum { N = 96, CALLS = 200 };
    float one = 1, zero = 0, *d = device_new(N * N * 4);
    cublasHandle_t h;
    OK(cublasCreate(&h));
    OK(cuptiActivityRegisterTimestampCallback(client_clock));
    enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), enable(CUPTI_ACTIVITY_KIND_MEMSET);
    uint64_t before = client_clock(), sum = 0, last_end = 0, stamp;
    OK(cuptiGetTimestamp(&stamp));
    assert_true(stamp >= before && stamp <= client_clock());
    for (int i = 0; i < CALLS; i++) {
        OK(cublasSgemm(h, CUBLAS_OP_N, CUBLAS_OP_N, N, N, N, &one, d, N, d, N, &zero, d, N));
        OK(cudaMemsetAsync(d, 0, 64, 0));
    }
    client_collect();
    uint64_t after = client_clock();
    assert_int_equal(client.n, 2 * CALLS);
    for (int i = 0; i < 2 * CALLS; i++) {
        const union record *r = &client.records[i];
        bool product = i % 2 == 0;
        assert_int_equal(r->base.kind, product ? CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL : CUPTI_ACTIVITY_KIND_MEMSET);
        uint64_t start = product ? r->kernel.start : r->fill.start, end = product ? r->kernel.end : r->fill.end;
        assert_true(start >= before && start >= last_end && start < end && end <= after);
        sum += end - start;
        last_end = end;
    }
    assert_true(sum <= after - before);
    OK(cublasDestroy(h)), OK(cudaFree(d));
}

/* Work that began before its kind was enabled, or ended after it was disabled, is not reported. */
static void only_while_enabled(void **state) {
    (void)state;
    char *d = device_new(8);
    OK(cudaMemset(d, 0, 8));
    enable(CUPTI_ACTIVITY_KIND_MEMSET);
    OK(cudaMemset(d, 0, 8));
    OK(cudaDeviceSynchronize());
    OK(cuptiActivityDisable(CUPTI_ACTIVITY_KIND_MEMSET));
    for (int i = 0; i < 100; i++) OK(cudaMemset(d, 0, 8));
    client_collect();
    assert_int_equal(client.n, 1);
    OK(cudaFree(d));
}

static void api_records(void **state) {
    (void)state;
    char *d;
    int device;
    enable(CUPTI_ACTIVITY_KIND_RUNTIME);
    OK(cudaMalloc((void **)&d, 100));
    assert_int_equal(cudaMemset(d, 0, 1 << 20), cudaErrorInvalidValue);
    OK(cuptiActivityEnableRuntimeApi(CUPTI_RUNTIME_TRACE_CBID_cudaGetDevice_v3020, 0)); /* all but this */
    OK(cudaGetDevice(&device));
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidValue);
    OK(cudaFree(d));
    OK(cudaDeviceSynchronize());
    OK(cuptiActivityFlushAll(0));
    const struct {
        unsigned cbid;
        int result;
    } expected[] = {
        {CUPTI_RUNTIME_TRACE_CBID_cudaMalloc_v3020, 0},
        {CUPTI_RUNTIME_TRACE_CBID_cudaMemset_v3020, cudaErrorInvalidValue},
        {CUPTI_RUNTIME_TRACE_CBID_cudaGetLastError_v3020, cudaErrorInvalidValue},
        {CUPTI_RUNTIME_TRACE_CBID_cudaFree_v3020, 0},
        {CUPTI_RUNTIME_TRACE_CBID_cudaDeviceSynchronize_v3020, 0},
    };
    size_t n = sizeof expected / sizeof *expected;
    assert_int_equal(client.n, n);
    for (size_t i = 0; i < n; i++) {
        const CUpti_ActivityAPI *r = &client.records[i].api;
        assert_int_equal(r->kind, CUPTI_ACTIVITY_KIND_RUNTIME);
        assert_int_equal(r->cbid, expected[i].cbid);
        assert_int_equal(r->returnValue, expected[i].result);
        assert_int_equal(r->threadId, (uint32_t)pthread_self());
        assert_true(r->start < r->end && (!i || r->start >= client.records[i - 1].api.end));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(copies, client_reset),
        cmocka_unit_test_setup(memsets, client_reset),
        cmocka_unit_test_setup(products, client_reset),
        cmocka_unit_test_setup(external_needs_api, client_reset),
        cmocka_unit_test_setup(external_ids_are_a_threads_own, client_reset),
        cmocka_unit_test_setup(only_while_enabled, client_reset),
        cmocka_unit_test_setup(api_records, client_reset),
        cmocka_unit_test_setup(times, client_reset), /* last: it sets the clock */
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
