/* Several devices in one process: what belongs to a device, what all share, how one reaches another's memory. */
#include "tests/unit/vgpu_testing.h"

#include <pthread.h>

static const size_t MB = 1 << 20;
enum { DEVICES = 3, CAPACITY_MB = 64 };

static size_t left_on(int device) {
    size_t left, total;
    int before;
    OK(cudaGetDevice(&before));
    OK(cudaSetDevice(device));
    OK(cudaMemGetInfo(&left, &total));
    assert_int_equal(total, CAPACITY_MB * MB);
    OK(cudaSetDevice(before));
    return left;
}

static void *new_on(int device, size_t bytes) {
    void *p;
    OK(cudaSetDevice(device));
    OK(cudaMalloc(&p, bytes));
    return p;
}

static void *current_of_new_thread(void *arg) {
    int device = -1;
    (void)arg;
    OK(cudaGetDevice(&device));
    return (void *)(intptr_t)device;
}

static void current_is_the_threads(void **state) {
    (void)state;
    int n, d;
    pthread_t t;
    void *seen;
    OK(cudaGetDeviceCount(&n));
    assert_int_equal(n, DEVICES);
    OK(cudaSetDevice(2));
    assert_int_equal(cudaSetDevice(DEVICES), cudaErrorInvalidDevice);
    assert_int_equal(cudaSetDevice(-1), cudaErrorInvalidDevice);
    OK(cudaGetDevice(&d));
    assert_int_equal(d, 2);
    pthread_create(&t, NULL, current_of_new_thread, NULL);
    pthread_join(t, &seen);
    assert_null(seen);
    OK(cudaInitDevice(1, 0, 0)); /* chooses nothing */
    OK(cudaGetDevice(&d));
    assert_int_equal(d, 2);
    OK(cudaSetDevice(0));
    (void)cudaGetLastError();
}

static void memory_is_a_devices(void **state) {
    (void)state;
    struct cudaPointerAttributes a;
    void *p[DEVICES];
    for (int d = 0; d < DEVICES; d++) p[d] = new_on(d, (size_t)(d + 1) * 10 * MB);
    for (int d = 0; d < DEVICES; d++) {
        assert_int_equal(left_on(d), CAPACITY_MB * MB - (size_t)(d + 1) * 10 * MB);
        OK(cudaPointerGetAttributes(&a, (char *)p[d] + 5));
        assert_int_equal(a.type, cudaMemoryTypeDevice);
        assert_int_equal(a.device, d);
    }
    OK(cudaSetDevice(0));
    for (int d = 0; d < DEVICES; d++) OK(cudaFree(p[d])); /* from any device */
    for (int d = 0; d < DEVICES; d++) assert_int_equal(left_on(d), CAPACITY_MB * MB);
    void *all = new_on(1, CAPACITY_MB * MB), *more = NULL;
    assert_int_equal(cudaMalloc(&more, 1), cudaErrorMemoryAllocation);
    more = new_on(2, MB); /* the others have theirs */
    OK(cudaFree(more));
    OK(cudaFree(all));
    (void)cudaGetLastError();
}

static void host_memory_is_everybodys(void **state) {
    (void)state;
    struct cudaPointerAttributes a;
    char *pinned, *managed, *d;
    OK(cudaSetDevice(1));
    OK(cudaMallocHost((void **)&pinned, 100));
    OK(cudaMallocManaged((void **)&managed, 100, cudaMemAttachGlobal));
    OK(cudaPointerGetAttributes(&a, pinned));
    assert_int_equal(a.device, 1);
    d = new_on(2, 100);
    memset(pinned, 7, 100);
    OK(cudaMemcpy(d, pinned, 100, cudaMemcpyHostToDevice));
    OK(cudaMemcpy(managed, d, 100, cudaMemcpyDefault));
    OK(cudaDeviceSynchronize());
    assert_int_equal(managed[99], 7);
    OK(cudaFree(d));
    OK(cudaFree(managed));
    OK(cudaFreeHost(pinned));
}

static void wait_for(void *flag) {
    while (!__atomic_load_n((int *)flag, __ATOMIC_ACQUIRE))
        ;
}

/* The default stream of a device waits for that device's streams, and for no others. */
static void streams_are_a_devices(void **state) {
    (void)state;
    cudaStream_t s0, s1;
    int go = 0, device;
    OK(cudaSetDevice(0));
    OK(cudaStreamCreate(&s0));
    OK(cudaSetDevice(1));
    OK(cudaStreamCreate(&s1));
    OK(cudaStreamGetDevice(s0, &device));
    assert_int_equal(device, 0);
    OK(cudaStreamGetDevice(s1, &device));
    assert_int_equal(device, 1);
    OK(cudaStreamGetDevice(NULL, &device));
    assert_int_equal(device, 1);
    void *d = new_on(1, 64);
    OK(cudaLaunchHostFunc(s0, wait_for, &go)); /* device 0 is busy */
    OK(cudaMemset(d, 1, 64));
    OK(cudaDeviceSynchronize()); /* of device 1 */
    OK(cudaStreamSynchronize(s1));
    assert_int_equal(cudaStreamQuery(s0), cudaErrorNotReady);
    OK(cudaFree(d));
    OK(cudaSetDevice(0));
    assert_int_equal(cudaStreamQuery(NULL), cudaErrorNotReady); /* its default stream would wait */
    __atomic_store_n(&go, 1, __ATOMIC_RELEASE);
    OK(cudaDeviceSynchronize());
    OK(cudaStreamQuery(s0));
    OK(cudaStreamDestroy(s0));
    OK(cudaStreamDestroy(s1)); /* of another device */
    (void)cudaGetLastError();
}

static void events_are_a_devices(void **state) {
    (void)state;
    cudaEvent_t e0, e1;
    cudaStream_t s1;
    float ms;
    OK(cudaSetDevice(0));
    OK(cudaEventCreate(&e0));
    OK(cudaSetDevice(1));
    OK(cudaEventCreate(&e1));
    OK(cudaStreamCreate(&s1));
    assert_int_equal(cudaEventRecord(e0, s1), cudaErrorInvalidResourceHandle);
    OK(cudaEventRecord(e1, s1));
    OK(cudaEventSynchronize(e1));
    OK(cudaSetDevice(0));
    OK(cudaEventRecord(e0, NULL));
    OK(cudaStreamWaitEvent(s1, e0, 0)); /* across devices */
    OK(cudaEventSynchronize(e0));
    OK(cudaEventQuery(e1)); /* of another device */
    assert_int_equal(cudaEventElapsedTime(&ms, e0, e1), cudaErrorInvalidResourceHandle);
    OK(cudaEventDestroy(e0));
    OK(cudaEventDestroy(e1));
    OK(cudaStreamDestroy(s1));
    (void)cudaGetLastError();
}

static void copies_between_devices(void **state) {
    (void)state;
    enum { N = 1000 };
    unsigned char from[N], to[N] = {0};
    char *a = new_on(0, N), *b = new_on(1, N), *c = new_on(2, N);
    for (int i = 0; i < N; i++) from[i] = (unsigned char)(i * 11);
    OK(cudaMemcpy(a, from, N, cudaMemcpyHostToDevice));
    OK(cudaMemcpyPeer(b, 1, a, 0, N));
    OK(cudaMemcpy(c, b, N, cudaMemcpyDefault)); /* current device 2, no access enabled: copies need none */
    OK(cudaMemcpy(to, c, N, cudaMemcpyDeviceToHost));
    assert_memory_equal(from, to, N);
    assert_int_equal(cudaMemcpyPeer(b, 0, a, 0, N), cudaErrorInvalidValue); /* b is not there */
    assert_int_equal(cudaMemcpyPeer(b, DEVICES, a, 0, N), cudaErrorInvalidDevice);
    OK(cudaMemset(a, 0x5a, N)); /* of another device than the current one */
    OK(cudaSetDevice(0));
    OK(cudaDeviceSynchronize());
    struct cudaMemcpy3DPeerParms p = {
        .srcPtr = {a, 100, 100, 5}, .srcDevice = 0, .dstPtr = {c, 100, 100, 5}, .dstDevice = 2, .extent = {50, 5, 2}};
    OK(cudaMemcpy3DPeer(&p));
    OK(cudaMemcpy(to, c, N, cudaMemcpyDefault));
    assert_int_equal(to[49], 0x5a);
    assert_int_equal(to[50], from[50]);
    OK(cudaFree(a));
    OK(cudaFree(b));
    OK(cudaFree(c));
    (void)cudaGetLastError();
}

/* A copy in a default stream waits for both devices: also for work in streams that do not block. */
static void copy_waits_for_both(void **state) {
    (void)state;
    cudaStream_t s;
    char *a = new_on(0, MB), *b = new_on(1, MB), back = 0;
    OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    for (int i = 0; i < 50; i++) OK(cudaMemsetAsync(b, i, MB, s));
    OK(cudaSetDevice(0));
    OK(cudaMemcpyPeer(a, 0, b, 1, MB));
    OK(cudaMemcpy(&back, a + MB - 1, 1, cudaMemcpyDeviceToHost));
    assert_int_equal(back, 49);
    OK(cudaStreamDestroy(s));
    OK(cudaFree(a));
    OK(cudaFree(b));
}

static void peer_access(void **state) {
    (void)state;
    int can, rank;
    OK(cudaDeviceCanAccessPeer(&can, 0, 1));
    assert_true(can);
    OK(cudaDeviceCanAccessPeer(&can, 1, 1));
    assert_false(can);
    assert_int_equal(cudaDeviceCanAccessPeer(&can, 0, DEVICES), cudaErrorInvalidDevice);
    OK(cudaDeviceGetP2PAttribute(&rank, cudaDevP2PAttrAccessSupported, 0, 2));
    assert_int_equal(rank, 1);
    OK(cudaSetDevice(0));
    OK(cudaDeviceEnablePeerAccess(1, 0));
    assert_int_equal(cudaDeviceEnablePeerAccess(1, 0), cudaErrorPeerAccessAlreadyEnabled);
    assert_int_equal(cudaDeviceEnablePeerAccess(1, 1), cudaErrorInvalidValue);
    assert_int_equal(cudaDeviceEnablePeerAccess(0, 0), cudaErrorInvalidDevice);
    assert_int_equal(cudaDeviceDisablePeerAccess(2), cudaErrorPeerAccessNotEnabled);
    OK(cudaSetDevice(1)); /* one way only */
    assert_int_equal(cudaDeviceDisablePeerAccess(0), cudaErrorPeerAccessNotEnabled);
    OK(cudaSetDevice(0));
    OK(cudaDeviceDisablePeerAccess(1));
    (void)cudaGetLastError();
}

static void pools_are_a_devices(void **state) {
    (void)state;
    cudaMemPool_t pool, other;
    cudaStream_t s;
    struct cudaPointerAttributes a;
    void *p;
    OK(cudaSetDevice(1));
    OK(cudaStreamCreate(&s));
    OK(cudaSetDevice(0));
    OK(cudaMallocAsync(&p, MB, s)); /* on the stream's device */
    OK(cudaPointerGetAttributes(&a, p));
    assert_int_equal(a.device, 1);
    OK(cudaDeviceGetDefaultMemPool(&pool, 1));
    OK(cudaDeviceGetDefaultMemPool(&other, 0));
    assert_ptr_not_equal(pool, other);
    assert_int_equal(cudaDeviceSetMemPool(0, pool), cudaErrorInvalidValue);
    enum cudaMemAccessFlags flags;
    struct cudaMemLocation here = {cudaMemLocationTypeDevice, .id = 0};
    OK(cudaMemPoolGetAccess(&flags, pool, &here));
    assert_int_equal(flags, cudaMemAccessFlagsProtNone);
    OK(cudaMemPoolSetAccess(pool, &(struct cudaMemAccessDesc){here, cudaMemAccessFlagsProtReadWrite}, 1));
    OK(cudaMemPoolGetAccess(&flags, pool, &here));
    assert_int_equal(flags, cudaMemAccessFlagsProtReadWrite);
    OK(cudaFreeAsync(p, s));
    OK(cudaStreamSynchronize(s));
    assert_int_equal(left_on(1), CAPACITY_MB * MB);
    OK(cudaStreamDestroy(s));
    (void)cudaGetLastError();
}

/* Its products run on the device on which the handle was made: the others cannot reach their operands. */
static void handles_are_a_devices(void **state) {
    (void)state;
    cublasHandle_t h;
    float x[4] = {1, 2, 3, 4}, three = 3, *d = new_on(1, sizeof x);
    OK(cublasCreate(&h));
    OK(cudaMemcpy(d, x, sizeof x, cudaMemcpyHostToDevice));
    OK(cudaSetDevice(0));
    OK(cublasSscal(h, 4, &three, d, 1));
    OK(cudaSetDevice(1));
    OK(cudaDeviceSynchronize());
    OK(cudaMemcpy(x, d, sizeof x, cudaMemcpyDeviceToHost));
    assert_true(x[3] == 12);
    OK(cublasDestroy(h));
    OK(cudaFree(d));
}

static void reset_is_of_one(void **state) {
    (void)state;
    struct cudaPointerAttributes a;
    cudaStream_t s0, s1;
    OK(cudaSetDevice(0));
    OK(cudaStreamCreate(&s0));
    char *p0 = new_on(0, MB), *p1 = new_on(1, MB), *pinned;
    OK(cudaStreamCreate(&s1));
    OK(cudaMallocHost((void **)&pinned, 100));
    OK(cudaDeviceReset()); /* device 1 */
    assert_int_equal(left_on(1), CAPACITY_MB * MB);
    assert_int_equal(cudaStreamQuery(s1), cudaErrorInvalidResourceHandle);
    assert_int_equal(cudaPointerGetAttributes(&a, p1), cudaErrorInvalidValue);
    OK(cudaStreamQuery(s0));
    OK(cudaPointerGetAttributes(&a, p0));
    assert_int_equal(a.device, 0);
    OK(cudaFree(p0));
    OK(cudaStreamDestroy(s0));
    (void)cudaGetLastError();
}

static uint64_t graph_memory(int device) {
    uint64_t bytes = 0;
    assert_int_equal(cudaDeviceGetGraphMemAttribute(device, cudaGraphMemAttrReservedMemCurrent, &bytes), 0);
    return bytes;
}

static void of_device_1(void *address) {
    struct cudaPointerAttributes a;
    assert_int_equal(cudaPointerGetAttributes(&a, address), 0);
    assert_int_equal(a.device, 1);
    assert_true(graph_memory(1) >= 1 << 20);
    assert_int_equal(graph_memory(0), 0);
}

/* Memory nodes take theirs where they say, captured ones on their stream's device, whichever is the current one. */
static void memory_of_graphs(void **state) {
    (void)state;
    cudaGraph_t g;
    cudaGraphNode_t n;
    cudaStream_t s;
    void *p;
    struct cudaMemAllocNodeParams a = {.bytesize = 1 << 20,
                                       .poolProps = {.allocType = cudaMemAllocationTypePinned,
                                                     .location = {.type = cudaMemLocationTypeDevice, .id = 1}}};
    assert_int_equal(cudaSetDevice(0), 0);
    assert_int_equal(cudaGraphCreate(&g, 0), 0);
    assert_int_equal(cudaGraphAddMemAllocNode(&n, g, NULL, 0, &a), 0);
    of_device_1(a.dptr);
    a.poolProps.location.id = 99;
    assert_int_equal(cudaGraphAddMemAllocNode(&n, g, NULL, 0, &a), cudaErrorInvalidValue);
    assert_int_equal(cudaGraphDestroy(g), 0);
    assert_int_equal(graph_memory(1), 0);

    assert_int_equal(cudaSetDevice(1), 0);
    assert_int_equal(cudaStreamCreate(&s), 0);
    assert_int_equal(cudaSetDevice(0), 0);
    assert_int_equal(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal), 0);
    assert_int_equal(cudaMallocAsync(&p, 1 << 20, s), 0);
    of_device_1(p);
    assert_int_equal(cudaFreeAsync(p, s), 0);
    assert_int_equal(cudaStreamEndCapture(s, &g), 0);
    assert_int_equal(cudaGraphDestroy(g), 0);
    assert_int_equal(cudaStreamDestroy(s), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(current_is_the_threads),    cmocka_unit_test(memory_is_a_devices),
        cmocka_unit_test(host_memory_is_everybodys), cmocka_unit_test(streams_are_a_devices),
        cmocka_unit_test(events_are_a_devices),      cmocka_unit_test(copies_between_devices),
        cmocka_unit_test(copy_waits_for_both),       cmocka_unit_test(peer_access),
        cmocka_unit_test(pools_are_a_devices),       cmocka_unit_test(handles_are_a_devices),
        cmocka_unit_test(reset_is_of_one),           cmocka_unit_test(memory_of_graphs),
    };
    setenv("ACCT_VGPU", "cpu:3", 1);
    setenv("ACCT_VGPU_MEMORY", "64M", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
