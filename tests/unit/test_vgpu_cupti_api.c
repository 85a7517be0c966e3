/* What the stand-in for libcupti answers: beside the vendor's own library where that needs no driver, and by the
 * vendor's headers elsewhere. */
#include "tests/unit/vgpu_cupti_client.h"

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

static void *vendor; /* NULL: not on this machine */

#define VENDOR(f) ((__typeof__(&f))dlsym(vendor, #f))

static int open_vendor(void **state) {
    (void)state;
    vendor = dlopen(VENDOR_CUPTI, RTLD_NOW | RTLD_LOCAL);
    if (vendor && VENDOR(cuptiGetVersion) == cuptiGetVersion) fail_msg("%s is the stand-in", VENDOR_CUPTI);
    return 0;
}

static void need_vendor(void) {
    if (!vendor) skip();
}

static void version(void **state) {
    (void)state;
    uint32_t ours = 0, theirs = 0;
    OK(cuptiGetVersion(&ours));
    assert_int_equal(ours, CUPTI_API_VERSION);
    assert_int_equal(cuptiGetVersion(NULL), CUPTI_ERROR_INVALID_PARAMETER);
    need_vendor();
    OK(VENDOR(cuptiGetVersion)(&theirs));
    assert_int_equal(ours, theirs);
}

static void result_strings(void **state) {
    (void)state;
    const char *ours, *theirs;
    int known = 0;
    assert_int_equal(cuptiGetResultString(CUPTI_SUCCESS, NULL), CUPTI_ERROR_INVALID_PARAMETER);
    assert_int_equal(cuptiGetErrorMessage(CUPTI_SUCCESS, NULL), CUPTI_ERROR_INVALID_PARAMETER);
    for (int code = 0; code < 1000; code++) { /* where they have a name, ours is that; 36 and 37 they forgot */
        if (!vendor || VENDOR(cuptiGetResultString)((CUptiResult)code, &theirs)) continue;
        if (cuptiGetResultString((CUptiResult)code, &ours)) fail_msg("%d is %s", code, theirs);
        assert_string_equal(ours, theirs);
        OK(cuptiGetErrorMessage((CUptiResult)code, &ours));
        known++;
    }
    assert_int_equal(cuptiGetResultString((CUptiResult)500, &ours), CUPTI_ERROR_INVALID_PARAMETER);
    assert_int_equal(cuptiGetErrorMessage((CUptiResult)500, &ours), CUPTI_ERROR_INVALID_PARAMETER);
    need_vendor();
    assert_in_range(known, 40, 50);
}

static void callback_names(void **state) {
    (void)state;
    const char *ours = NULL, *theirs = NULL;
    OK(cuptiGetCallbackName(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, &ours));
    assert_string_equal(ours, "cuLaunchKernel");
    assert_int_equal(cuptiGetCallbackName(CUPTI_CB_DOMAIN_RUNTIME_API, 13, NULL), CUPTI_ERROR_INVALID_PARAMETER);
    need_vendor();
    for (int domain = CUPTI_CB_DOMAIN_INVALID; domain <= CUPTI_CB_DOMAIN_SIZE; domain++)
        for (uint32_t cbid = 0; cbid < 1000; cbid++) {
            int a = cuptiGetCallbackName((CUpti_CallbackDomain)domain, cbid, &ours);
            int b = VENDOR(cuptiGetCallbackName)((CUpti_CallbackDomain)domain, cbid, &theirs);
            assert_int_equal(a, b);
            if (!a) assert_string_equal(ours, theirs);
        }
}

/* Every kind of record, alone in a buffer that is too short, just long enough, and followed by another. */
static void walk(void **state) {
    (void)state;
    static _Alignas(8) uint8_t buffer[1024];
    CUpti_Activity *ours = NULL, *theirs = NULL;
    assert_int_equal(cuptiActivityGetNextRecord(NULL, 100, &ours), CUPTI_ERROR_INVALID_PARAMETER);
    need_vendor();
    for (int kind = 0; kind < 64; kind++)
        for (size_t valid = 0; valid <= 300; valid += 4) {
            for (size_t i = 0; i < sizeof buffer; i += 8)
                *(CUpti_ActivityKind *)(buffer + i) = CUPTI_ACTIVITY_KIND_RUNTIME;
            *(CUpti_ActivityKind *)buffer = (CUpti_ActivityKind)kind;
            ours = theirs = NULL;
            for (int step = 0; step < 10; step++) {
                int a = cuptiActivityGetNextRecord(buffer, valid, &ours);
                int b = VENDOR(cuptiActivityGetNextRecord)(buffer, valid, &theirs);
                if (a != b || ours != theirs)
                    fail_msg("kind %d, %zu valid bytes, step %d: %d at %td, the vendor's %d at %td", kind, valid, step,
                             a, (uint8_t *)ours - buffer, b, (uint8_t *)theirs - buffer);
                if (a) break;
            }
        }
}

static void kinds(void **state) {
    (void)state;
    const int written[] = {CUPTI_ACTIVITY_KIND_MEMCPY,
                           CUPTI_ACTIVITY_KIND_MEMSET,
                           CUPTI_ACTIVITY_KIND_KERNEL,
                           CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                           CUPTI_ACTIVITY_KIND_DRIVER,
                           CUPTI_ACTIVITY_KIND_RUNTIME,
                           CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
                           CUPTI_ACTIVITY_KIND_MEMCPY2};
    for (size_t i = 0; i < sizeof written / sizeof *written; i++) {
        OK(cuptiActivityEnable((CUpti_ActivityKind)written[i]));
        OK(cuptiActivityDisable((CUpti_ActivityKind)written[i]));
    }
    assert_int_equal(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_INVALID), CUPTI_ERROR_INVALID_KIND);
    assert_int_equal(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_COUNT), CUPTI_ERROR_INVALID_KIND);
    assert_int_equal(cuptiActivityDisable((CUpti_ActivityKind)99), CUPTI_ERROR_INVALID_KIND);
    assert_int_equal(cuptiGetLastError(), CUPTI_ERROR_INVALID_KIND);
    OK(cuptiGetLastError());
    assert_int_equal(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_PC_SAMPLING), CUPTI_ERROR_LEGACY_PROFILER_NOT_SUPPORTED);
    assert_int_equal(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CDP_KERNEL), CUPTI_ERROR_NOT_COMPATIBLE);
    assert_int_equal(cuptiActivityEnableContext(NULL, CUPTI_ACTIVITY_KIND_MEMSET), CUPTI_ERROR_INVALID_CONTEXT);
    assert_int_equal(cuptiActivityEnableRuntimeApi(CUPTI_RUNTIME_TRACE_CBID_SIZE, 1), CUPTI_ERROR_INVALID_PARAMETER);
    assert_int_equal(cuptiActivityEnableDriverApi(CUPTI_DRIVER_TRACE_CBID_INVALID, 1), CUPTI_ERROR_INVALID_PARAMETER);
}

/* The old profiler's functions are gone from CUPTI 13, and say so, whatever their arguments. */
static void removed(void **state) {
    (void)state;
    uint32_t n = 0;
    int answers[] = {cuptiGetNumEventDomains(&n), cuptiGetNumMetrics(&n), cuptiActivityConfigurePCSampling(NULL, NULL),
                     cuptiEnableKernelReplayMode(NULL)};
    for (size_t i = 0; i < 4; i++) assert_int_equal(answers[i], CUPTI_ERROR_LEGACY_PROFILER_NOT_SUPPORTED);
    assert_int_equal(cuptiGetLastError(), CUPTI_ERROR_LEGACY_PROFILER_NOT_SUPPORTED);
    need_vendor();
    assert_int_equal(VENDOR(cuptiGetNumEventDomains)(&n), answers[0]);
    assert_int_equal(VENDOR(cuptiGetNumMetrics)(&n), answers[1]);
    assert_int_equal(VENDOR(cuptiActivityConfigurePCSampling)(NULL, NULL), answers[2]);
    assert_int_equal(VENDOR(cuptiEnableKernelReplayMode)(NULL), answers[3]);
}

static void attributes(void **state) {
    (void)state;
    size_t value = 0, bytes = sizeof value;
    uint8_t flag = 7;
    OK(cuptiActivityGetAttribute(CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE, &bytes, &value));
    assert_int_equal(value, 3200000); /* the header's default */
    assert_int_equal(bytes, sizeof(size_t));
    value = 1 << 20;
    OK(cuptiActivitySetAttribute(CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE, &bytes, &value));
    value = 0;
    OK(cuptiActivityGetAttribute(CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE, &bytes, &value));
    assert_int_equal(value, 1 << 20);
    OK(cuptiActivityGetAttribute(CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_POOL_LIMIT, &bytes, &value));
    assert_int_equal(value, 250);
    bytes = 4;
    assert_int_equal(cuptiActivityGetAttribute(CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE, &bytes, &value),
                     CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT);
    OK(cuptiActivityGetAttribute(CUPTI_ACTIVITY_ATTR_MEM_ALLOCATION_TYPE_HOST_PINNED, &bytes, &flag));
    assert_int_equal(flag, 0);
    assert_int_equal(bytes, 1);
    flag = 1;
    OK(cuptiActivitySetAttribute(CUPTI_ACTIVITY_ATTR_MEM_ALLOCATION_TYPE_HOST_PINNED, &bytes, &flag));
    OK(cuptiActivityGetAttribute(CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER, &bytes, &flag));
    assert_int_equal(flag, 1);
    bytes = 8;
    assert_int_equal(cuptiActivityGetAttribute((CUpti_ActivityAttribute)11, &bytes, &value),
                     CUPTI_ERROR_INVALID_PARAMETER);
    assert_int_equal(cuptiActivityGetAttribute(CUPTI_ACTIVITY_ATTR_PROFILING_SEMAPHORE_POOL_SIZE, &bytes, &value),
                     CUPTI_ERROR_NOT_SUPPORTED);
    assert_int_equal(cuptiActivitySetAttribute(CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE, NULL, &value),
                     CUPTI_ERROR_INVALID_PARAMETER);
}

static void ids(void **state) {
    (void)state;
    uint32_t id = 99, other = 99;
    int support = 0;
    cudaStream_t s;
    CUpti_ActivityThreadIdType type = CUPTI_ACTIVITY_THREAD_ID_TYPE_SIZE;
    OK(cuptiGetDeviceId(NULL, &id));
    assert_int_equal(id, 0);
    assert_int_equal(cuptiGetContextId(NULL, &id), CUPTI_ERROR_INVALID_CONTEXT);
    OK(cudaStreamCreate(&s));
    OK(cuptiGetStreamIdEx(NULL, NULL, 0, &id));
    OK(cuptiGetStreamId(NULL, s, &other));
    assert_int_not_equal(id, other);
    OK(cuptiGetStreamId(NULL, cudaStreamLegacy, &other));
    assert_int_equal(id, other);
    OK(cuptiGetStreamIdEx(NULL, NULL, 1, &id));
    OK(cuptiGetStreamId(NULL, cudaStreamPerThread, &other));
    assert_int_equal(id, other);
    OK(cudaStreamDestroy(s));
    assert_int_equal(cuptiGetStreamId(NULL, s, &id), CUPTI_ERROR_INVALID_STREAM);
    OK(cuptiDeviceSupported(0, &support));
    assert_int_equal(support, 1);
    assert_int_equal(cuptiDeviceSupported(1, &support), CUPTI_ERROR_INVALID_DEVICE);
    OK(cuptiGetThreadIdType(&type));
    assert_int_equal(type, CUPTI_ACTIVITY_THREAD_ID_TYPE_DEFAULT);
    assert_int_equal(cuptiSetThreadIdType(CUPTI_ACTIVITY_THREAD_ID_TYPE_SIZE), CUPTI_ERROR_NOT_SUPPORTED);
    assert_int_equal(cuptiActivityRegisterTimestampCallback(NULL), CUPTI_ERROR_INVALID_PARAMETER);
    assert_int_equal(cuptiGetTimestamp(NULL), CUPTI_ERROR_INVALID_PARAMETER);
}

/* By default times are CLOCK_REALTIME's. */
static void default_clock(void **state) {
    (void)state;
    struct timespec a, b;
    uint64_t stamp;
    clock_gettime(CLOCK_REALTIME, &a);
    OK(cuptiGetTimestamp(&stamp));
    clock_gettime(CLOCK_REALTIME, &b);
    assert_true(stamp >= (uint64_t)a.tv_sec * 1000000000 + (uint64_t)a.tv_nsec);
    assert_true(stamp <= (uint64_t)b.tv_sec * 1000000000 + (uint64_t)b.tv_nsec);
}

static int in_child(void) {
    CUpti_SubscriberHandle s;
    if (cuptiSubscribe(&s, NULL, NULL) != CUPTI_ERROR_NOT_INITIALIZED) return 1;
    if (cuptiActivityFlushAll(1) != CUPTI_ERROR_NOT_INITIALIZED) return 2;
    if (cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMSET) != CUPTI_ERROR_NOT_INITIALIZED) return 3;
    if (cuptiGetLastError() != CUPTI_ERROR_NOT_INITIALIZED) return 4;
    return 0;
}

/* A forked child has no device, and what its parent's buffers hold is not its own. */
static void forked_child(void **state) {
    (void)state;
    int status;
    void *d = device_new(8);
    client_reset(NULL);
    OK(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMSET));
    OK(cudaMemset(d, 0, 8));
    OK(cudaDeviceSynchronize());
    pid_t pid = fork();
    if (!pid) _exit(in_child());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    OK(cuptiActivityFlushAll(0));
    assert_int_equal(client.n, 1);
    OK(cudaFree(d));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(version),        cmocka_unit_test(result_strings),
        cmocka_unit_test(callback_names), cmocka_unit_test(walk),
        cmocka_unit_test(kinds),          cmocka_unit_test(removed),
        cmocka_unit_test(attributes),     cmocka_unit_test(ids),
        cmocka_unit_test(default_clock),  cmocka_unit_test(forked_child),
    };
    return cmocka_run_group_tests(tests, open_vendor, NULL);
}
