/* Streams and events: order, independence, the default stream's rules, waiting, times. Host functions that wait for a
 * flag stand for long work, so nothing here depends on how fast the machine is. */
#include "tests/unit/vgpu_testing.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

static void wait_for(void *flag) {
    while (!__atomic_load_n((int *)flag, __ATOMIC_ACQUIRE)) sched_yield();
}

static void release(int *flag) {
    __atomic_store_n(flag, 1, __ATOMIC_RELEASE);
}

struct log {
    int entries[1000], n;
};

struct entry {
    struct log *log;
    int value;
};

static void note(void *arg) {
    struct entry *e = arg;
    e->log->entries[e->log->n++] = e->value;
}

static void in_order(void **state) {
    (void)state;
    static struct log log;
    static struct entry e[1000];
    cudaStream_t s;
    OK(cudaStreamCreate(&s));
    for (int i = 0; i < 1000; i++) {
        e[i] = (struct entry){&log, i};
        OK(cudaLaunchHostFunc(s, note, &e[i]));
    }
    OK(cudaStreamSynchronize(s));
    assert_int_equal(log.n, 1000);
    for (int i = 0; i < 1000; i++) assert_int_equal(log.entries[i], i);
    OK(cudaStreamDestroy(s));
}

static void host_goes_on(void **state) {
    (void)state;
    cudaStream_t s;
    int go = 0;
    OK(cudaStreamCreate(&s));
    OK(cudaLaunchHostFunc(s, wait_for, &go));
    assert_int_equal(cudaStreamQuery(s), cudaErrorNotReady);
    release(&go);
    OK(cudaStreamSynchronize(s));
    OK(cudaStreamQuery(s));
    OK(cudaStreamDestroy(s));
    (void)cudaGetLastError();
}

/* A blocked non-blocking stream holds up nobody; a blocked blocking one holds up the default stream, and so on. */
static void legacy_default_stream(void **state) {
    (void)state;
    cudaStream_t blocking, other, independent;
    int go = 0;
    char *d = device_new(100);
    OK(cudaStreamCreate(&blocking));
    OK(cudaStreamCreate(&other));
    OK(cudaStreamCreateWithFlags(&independent, cudaStreamNonBlocking));
    OK(cudaLaunchHostFunc(independent, wait_for, &go));
    OK(cudaMemset(d, 1, 100));
    OK(cudaStreamSynchronize(cudaStreamLegacy)); /* does not wait for the independent one */
    release(&go);
    OK(cudaDeviceSynchronize());

    go = 0;
    OK(cudaLaunchHostFunc(blocking, wait_for, &go));
    OK(cudaMemset(d, 2, 100));             /* the default stream waits for `blocking` */
    OK(cudaMemsetAsync(d, 3, 100, other)); /* `other` waits for the default stream */
    assert_int_equal(cudaStreamQuery(0), cudaErrorNotReady);
    assert_int_equal(cudaStreamQuery(other), cudaErrorNotReady);
    OK(cudaMemsetAsync(d, 4, 1, independent));
    OK(cudaStreamSynchronize(independent)); /* neither waits nor is waited for */
    release(&go);
    OK(cudaStreamSynchronize(other));
    OK(cudaStreamQuery(0));
    OK(cudaStreamQuery(blocking));
    char *back = device_back(d, 100);
    assert_int_equal(back[0], 3); /* written last, in this order */
    assert_int_equal(back[99], 3);
    test_free(back);
    OK(cudaStreamDestroy(blocking)), OK(cudaStreamDestroy(other)), OK(cudaStreamDestroy(independent));
    OK(cudaFree(d));
    (void)cudaGetLastError();
}

static void *own_stream(void *arg) {
    int *go = arg;
    uintptr_t failures = 0;
    failures += cudaLaunchHostFunc(cudaStreamPerThread, wait_for, go) != cudaSuccess;
    failures += cudaStreamSynchronize(cudaStreamPerThread) != cudaSuccess;
    return (void *)failures;
}

static void stream_per_thread(void **state) {
    (void)state;
    pthread_t t;
    int go = 0;
    void *failures;
    pthread_create(&t, NULL, own_stream, &go);
    OK(cudaLaunchHostFunc(cudaStreamPerThread, wait_for, &(int){1}));
    OK(cudaStreamSynchronize(cudaStreamPerThread)); /* ours is not the other thread's */
    release(&go);
    pthread_join(t, &failures);
    assert_null(failures);
}

static void event_wait(void **state) {
    (void)state;
    cudaStream_t a, b;
    cudaEvent_t e;
    static struct log log;
    struct entry first = {&log, 1}, second = {&log, 2};
    int go = 0;
    OK(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
    OK(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
    OK(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
    OK(cudaEventQuery(e)); /* never recorded: nothing to wait for */
    OK(cudaStreamWaitEvent(b, e, 0));
    OK(cudaLaunchHostFunc(a, wait_for, &go));
    OK(cudaLaunchHostFunc(a, note, &first));
    OK(cudaEventRecord(e, a));
    OK(cudaStreamWaitEvent(b, e, 0));
    OK(cudaLaunchHostFunc(b, note, &second));
    OK(cudaEventDestroy(e)); /* the wait was made and stays */
    assert_int_equal(cudaEventQuery(e), cudaErrorInvalidResourceHandle);
    assert_int_equal(cudaStreamQuery(b), cudaErrorNotReady);
    release(&go);
    OK(cudaStreamSynchronize(b));
    assert_int_equal(log.n, 2);
    assert_int_equal(log.entries[0], 1);
    assert_int_equal(log.entries[1], 2);
    OK(cudaStreamDestroy(a)), OK(cudaStreamDestroy(b));
    (void)cudaGetLastError();
}

static void sleep_ms(void *ms) {
    struct timespec t = {0, *(int *)ms * 1000000L};
    nanosleep(&t, NULL);
}

static void elapsed_time(void **state) {
    (void)state;
    cudaEvent_t e[3];
    int ms = 20;
    float a, b, both;
    for (int i = 0; i < 3; i++) OK(cudaEventCreate(&e[i]));
    assert_int_equal(cudaEventElapsedTime(&a, e[0], e[1]), cudaErrorInvalidResourceHandle); /* not recorded */
    OK(cudaEventRecord(e[0], 0));
    OK(cudaLaunchHostFunc(0, sleep_ms, &ms));
    OK(cudaEventRecord(e[1], 0));
    assert_int_equal(cudaEventElapsedTime(&a, e[0], e[1]), cudaErrorNotReady);
    OK(cudaLaunchHostFunc(0, sleep_ms, &ms));
    OK(cudaEventRecord(e[2], 0));
    OK(cudaEventSynchronize(e[2]));
    OK(cudaEventElapsedTime(&a, e[0], e[1]));
    OK(cudaEventElapsedTime(&b, e[1], e[2]));
    OK(cudaEventElapsedTime(&both, e[0], e[2]));
    assert_true(a >= 20 && b >= 20 && a < 10000);
    assert_float_equal(both, a + b, 0.01);
    for (int i = 0; i < 3; i++) OK(cudaEventDestroy(e[i]));
    (void)cudaGetLastError();
}

/* From pageable memory the bytes are taken before the call returns; from pinned memory when the stream gets there. */
static void pageable_and_pinned(void **state) {
    (void)state;
    char pageable[256], *pinned, *da = device_new(256), *db = device_new(256);
    cudaStream_t s;
    int go = 0;
    OK(cudaMallocHost((void **)&pinned, 256));
    OK(cudaStreamCreate(&s));
    memset(pageable, 1, 256), memset(pinned, 1, 256);
    OK(cudaLaunchHostFunc(s, wait_for, &go));
    OK(cudaMemcpyAsync(da, pageable, 256, cudaMemcpyHostToDevice, s));
    OK(cudaMemcpyAsync(db, pinned, 256, cudaMemcpyHostToDevice, s));
    memset(pageable, 2, 256), memset(pinned, 2, 256);
    release(&go);
    OK(cudaStreamSynchronize(s));
    char *a = device_back(da, 256), *b = device_back(db, 256);
    assert_int_equal(a[255], 1);
    assert_int_equal(b[255], 2);
    OK(cudaMemcpyAsync(pageable, db, 256, cudaMemcpyDeviceToHost, s)); /* to pageable memory: done when it returns */
    assert_int_equal(pageable[0], 2);
    test_free(a), test_free(b);
    OK(cudaFree(da)), OK(cudaFree(db)), OK(cudaFreeHost(pinned)), OK(cudaStreamDestroy(s));
}

static void destroyed_stream_finishes(void **state) {
    (void)state;
    cudaStream_t s;
    int go = 0;
    static struct log log;
    struct entry e = {&log, 5};
    OK(cudaStreamCreate(&s));
    OK(cudaLaunchHostFunc(s, wait_for, &go));
    OK(cudaLaunchHostFunc(s, note, &e));
    OK(cudaStreamDestroy(s));
    assert_int_equal(cudaStreamSynchronize(s), cudaErrorInvalidResourceHandle);
    assert_int_equal(cudaLaunchHostFunc(s, note, &e), cudaErrorInvalidResourceHandle);
    release(&go);
    OK(cudaDeviceSynchronize());
    assert_int_equal(log.n, 1);
    (void)cudaGetLastError();
}

static void calls_in_host_function(void *result) {
    void *p;
    *(cudaError_t *)result = cudaStreamSynchronize(0);
    if (*(cudaError_t *)result == cudaErrorNotPermitted) *(cudaError_t *)result = cudaMemset(&p, 0, 0);
}

static void bad_handles(void **state) {
    (void)state;
    unsigned flags;
    int priority;
    cudaStream_t bad = (cudaStream_t)(uintptr_t)0xdead0, s;
    cudaError_t seen = cudaErrorUnknown;
    assert_int_equal(cudaStreamCreate(NULL), cudaErrorInvalidValue);
    assert_int_equal(cudaStreamDestroy(0), cudaErrorInvalidResourceHandle);
    assert_int_equal(cudaStreamSynchronize(bad), cudaErrorInvalidResourceHandle);
    assert_int_equal(cudaMemsetAsync(device_new(8), 0, 8, bad), cudaErrorInvalidResourceHandle);
    assert_int_equal(cudaEventRecord(NULL, 0), cudaErrorInvalidResourceHandle);
    assert_int_equal(cudaEventDestroy((cudaEvent_t)(uintptr_t)0x10), cudaErrorInvalidResourceHandle);
    OK(cudaStreamCreateWithPriority(&s, cudaStreamNonBlocking, -100));
    OK(cudaStreamGetFlags(s, &flags));
    OK(cudaStreamGetPriority(s, &priority));
    assert_int_equal(flags, cudaStreamNonBlocking);
    assert_int_equal(priority, -5);
    OK(cudaLaunchHostFunc(s, calls_in_host_function, &seen));
    OK(cudaStreamSynchronize(s));
    assert_int_not_equal(seen, cudaErrorUnknown); /* it came back, and did not wait for itself */
    OK(cudaStreamDestroy(s));
    (void)cudaGetLastError();
}

static volatile sig_atomic_t signalled_elsewhere;
static pthread_t main_thread;

static void on_signal(int number) {
    (void)number;
    signalled_elsewhere |= !pthread_equal(pthread_self(), main_thread);
}

/* The program's signals never land on one of our threads. */
static void signals(void **state) {
    (void)state;
    struct sigaction action = {.sa_handler = on_signal}, old;
    float one = 1, zero = 0, *d = device_new(400 * 400 * 4);
    cublasHandle_t handle;
    main_thread = pthread_self();
    OK(cublasCreate(&handle));
    sigaction(SIGUSR1, &action, &old);
    for (int i = 0; i < 50; i++) {
        OK(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 400, 400, 400, &one, d, 400, d, 400, &zero, d, 400));
        kill(getpid(), SIGUSR1);
    }
    sigset_t block, before; /* with the signal blocked here, it must stay pending for us */
    sigemptyset(&block);
    sigaddset(&block, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &block, &before);
    kill(getpid(), SIGUSR1);
    OK(cudaDeviceSynchronize());
    sigset_t pending;
    sigpending(&pending);
    assert_true(sigismember(&pending, SIGUSR1));
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    assert_false(signalled_elsewhere);
    sigaction(SIGUSR1, &old, NULL);
    OK(cublasDestroy(handle));
    OK(cudaFree(d));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_order),
        cmocka_unit_test(host_goes_on),
        cmocka_unit_test(legacy_default_stream),
        cmocka_unit_test(stream_per_thread),
        cmocka_unit_test(event_wait),
        cmocka_unit_test(elapsed_time),
        cmocka_unit_test(pageable_and_pinned),
        cmocka_unit_test(destroyed_stream_finishes),
        cmocka_unit_test(bad_handles),
        cmocka_unit_test(signals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
