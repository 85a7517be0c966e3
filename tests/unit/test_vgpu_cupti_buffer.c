/* The client's buffers: when they are asked for, how they are filled, when they come back, what happens without. */
#include "tests/unit/vgpu_cupti_client.h"

enum { RECORD = sizeof(CUpti_ActivityMemset4) };

static void memsets(int n) {
    static char *d;
    if (!d) d = device_new(64);
    for (int i = 0; i < n; i++) OK(cudaMemsetAsync(d, i, 64, 0));
    OK(cudaDeviceSynchronize());
}

static size_t dropped(void) {
    size_t n = 12345;
    OK(cuptiActivityGetNumDroppedRecords(NULL, 0, &n));
    return n;
}

static void check_order(size_t n) {
    assert_int_equal(client.n, n);
    for (size_t i = 0; i < n; i++) assert_int_equal(client.records[i].fill.value, i);
}

static void none_before_a_record(void **state) {
    (void)state;
    OK(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMSET));
    OK(cudaDeviceSynchronize());
    OK(cuptiActivityFlushAll(1));
    assert_int_equal(client.buffers_out, 0);
    memsets(2);
    assert_int_equal(client.buffers_out, 1);
    assert_int_equal(client.buffers_back, 0); /* it has room, and nobody flushed */
    OK(cuptiActivityFlushAll(0));
    assert_int_equal(client.buffers_back, 1);
    OK(cuptiActivityFlushAll(0)); /* nothing to give */
    assert_int_equal(client.buffers_out, 1);
    assert_int_equal(client.buffers_back, 1);
    check_order(2);
    assert_int_equal(dropped(), 0);
}

static void full(void **state) {
    (void)state;
    client.bytes = 3 * RECORD + RECORD - 1;
    OK(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMSET));
    memsets(10);
    assert_true(client_waits(9)); /* full ones come by themselves … */
    assert_false(pthread_equal(client.gave_back_on, pthread_self()));
    assert_int_equal(client.buffers_out, 4);
    OK(cuptiActivityFlushAll(0)); /* … the rest when it is asked for */
    assert_int_equal(client.buffers_back, 4);
    check_order(10);
    for (size_t i = 0; i < 4; i++) assert_int_equal(client.first[i], 3 * i);
}

static void limited(void **state) {
    (void)state;
    client.limit = 4;
    OK(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMSET));
    memsets(8);
    assert_true(client_waits(8)); /* both at their limit: no flush is needed */
    assert_int_equal(client.buffers_out, 2);
    check_order(8);
}

static void no_buffer(void **state) {
    (void)state;
    client.refuse = true;
    OK(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMSET));
    memsets(7);
    OK(cuptiActivityFlushAll(0));
    assert_int_equal(client.n, 0);
    assert_int_equal(dropped(), 7);
    assert_int_equal(dropped(), 0); /* counted since the last time that it was asked */
    client.refuse = false;
    memsets(3); /* it is asked again */
    OK(cuptiActivityFlushAll(0));
    check_order(3);
    assert_int_equal(dropped(), 0);
}

static void too_small(void **state) {
    (void)state;
    client.bytes = RECORD - 1;
    OK(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMSET));
    memsets(2);
    OK(cuptiActivityFlushAll(0));
    assert_int_equal(client.n, 0);
    assert_int_equal(client.buffers_back, client.buffers_out); /* they are given back, empty */
    assert_int_equal(dropped(), 2);
}

/* An external id is never in another buffer than the call it belongs to, if one buffer holds both. */
static void groups_stay_together(void **state) {
    (void)state;
    enum { GROUP = sizeof(CUpti_ActivityExternalCorrelation) + sizeof(CUpti_ActivityAPI) };
    client.bytes = 2 * GROUP + sizeof(CUpti_ActivityExternalCorrelation) + 8;
    OK(cuptiActivityEnableRuntimeApi(CUPTI_RUNTIME_TRACE_CBID_cudaMemsetAsync_v3020, 1));
    OK(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION));
    OK(cuptiActivityPushExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, 9));
    memsets(9);
    OK(cuptiActivityFlushAll(0));
    OK(cuptiActivityPopExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, NULL));
    OK(cuptiActivityEnableRuntimeApi(CUPTI_RUNTIME_TRACE_CBID_cudaMemsetAsync_v3020, 0));
    assert_int_equal(client.n, 18);
    assert_int_equal(client.buffers_back, 5);
    for (size_t i = 0; i < 18; i++)
        assert_int_equal(client.records[i].base.kind,
                         i % 2 ? CUPTI_ACTIVITY_KIND_RUNTIME : CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION);
    for (size_t i = 0; i < 5; i++) assert_int_equal(client.first[i], 4 * i);
}

static void zeroed(void **state) {
    (void)state;
    uint8_t no = 0, yes = 1;
    size_t bytes = 1;
    OK(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMSET));
    memsets(1);
    OK(cuptiActivityFlushAll(0));
    assert_false(client.untouched); /* CUPTI zeroes buffers, unless the client says that they are */
    OK(cuptiActivitySetAttribute(CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER, &bytes, &yes));
    memsets(1);
    OK(cuptiActivityFlushAll(0));
    assert_true(client.untouched);
    OK(cuptiActivitySetAttribute(CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER, &bytes, &no));
}

/* With a period full buffers come when it has passed, others still only by a flush. */
static void period(void **state) {
    (void)state;
    client.limit = 2;
    OK(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMSET));
    OK(cuptiActivityFlushPeriod(60 * 60 * 1000));
    memsets(5);
    nanosleep(&(struct timespec){0, 50000000}, NULL);
    assert_int_equal(client.buffers_back, 0);
    OK(cuptiActivityFlushAll(0)); /* does not wait for it */
    check_order(5);
    client.n = client.buffers_back = 0;
    OK(cuptiActivityFlushPeriod(20));
    memsets(5);
    assert_true(client_waits(4));
    nanosleep(&(struct timespec){0, 50000000}, NULL);
    assert_int_equal(client.n, 4);
    OK(cuptiActivityFlushPeriod(0));
    OK(cuptiActivityFlushAll(0));
    check_order(5);
}

static void flush_from_a_buffers_return(void **state) {
    (void)state;
    client.limit = 2, client.flush = true;
    OK(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMSET));
    memsets(100);
    OK(cuptiActivityFlushAll(0));
    check_order(100);
}

static void *busy(void *mine) {
    for (int i = 0; i < 500; i++)
        if (cudaMemsetAsync(mine, i & 0xff, 64, cudaStreamPerThread)) return mine;
    return cudaStreamSynchronize(cudaStreamPerThread) ? mine : NULL;
}

/* Threads with streams of their own, small buffers, flushes in between: every record comes exactly once. */
static void many_threads(void **state) {
    (void)state;
    enum { THREADS = 4, CALLS = 500 };
    pthread_t t[THREADS];
    char *d = device_new(THREADS * 64);
    void *failed;
    bool *seen = test_calloc(1 << 20, 1);
    client.bytes = 7 * RECORD;
    OK(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMSET));
    for (int i = 0; i < THREADS; i++) pthread_create(&t[i], NULL, busy, d + 64 * i);
    for (int i = 0; i < 20; i++) OK(cuptiActivityFlushAll(0));
    for (int i = 0; i < THREADS; i++) {
        pthread_join(t[i], &failed);
        assert_null(failed);
    }
    client_collect();
    assert_int_equal(client.n, THREADS * CALLS);
    for (size_t i = 0; i < client.n; i++) {
        uint32_t id = client.records[i].fill.correlationId;
        assert_true(id && id < 1 << 20 && !seen[id]);
        seen[id] = true;
    }
    assert_int_equal(client.buffers_back, client.buffers_out);
    assert_int_equal(dropped(), 0);
    test_free(seen);
    OK(cudaFree(d));
}

/* After it nothing is told, and buffers come back. */
static void finalize(void **state) {
    (void)state;
    OK(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMSET));
    memsets(3);
    OK(cuptiFinalize());
    check_order(3);
    memsets(3);
    assert_int_equal(cuptiActivityFlushAll(0), CUPTI_ERROR_INVALID_OPERATION); /* no callbacks are registered */
    assert_int_equal(client.n, 3);
    OK(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMSET)); /* records for nobody */
    memsets(2);
    assert_int_equal(dropped(), 2);
    assert_int_equal(cuptiActivityRegisterCallbacks(NULL, client_complete), CUPTI_ERROR_INVALID_PARAMETER);
    assert_int_equal(cuptiActivityRegisterCallbacks(client_request, NULL), CUPTI_ERROR_INVALID_PARAMETER);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(none_before_a_record, client_reset),
        cmocka_unit_test_setup(full, client_reset),
        cmocka_unit_test_setup(limited, client_reset),
        cmocka_unit_test_setup(no_buffer, client_reset),
        cmocka_unit_test_setup(too_small, client_reset),
        cmocka_unit_test_setup(groups_stay_together, client_reset),
        cmocka_unit_test_setup(zeroed, client_reset),
        cmocka_unit_test_setup(period, client_reset),
        cmocka_unit_test_setup(flush_from_a_buffers_return, client_reset),
        cmocka_unit_test_setup(many_threads, client_reset),
        cmocka_unit_test_setup(finalize, client_reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
