/* Memory as a program sees it: capacity to the byte, errors, reuse, pools, pinned and managed memory, threads. */
#include "tests/unit/vgpu_testing.h"

#include <pthread.h>

static const size_t MB = 1 << 20;
enum { CAPACITY_MB = 64 };

static size_t available(void) {
    size_t left, total;
    OK(cudaMemGetInfo(&left, &total));
    assert_int_equal(total, CAPACITY_MB * MB);
    return left;
}

static void out_of_memory_where_it_should(void **state) {
    (void)state;
    void *p[CAPACITY_MB], *untouched = (void *)0x77;
    for (int i = 0; i < CAPACITY_MB; i++) {
        assert_int_equal(available(), (size_t)(CAPACITY_MB - i) * MB);
        OK(cudaMalloc(&p[i], MB));
    }
    assert_int_equal(cudaMalloc(&untouched, 1), cudaErrorMemoryAllocation);
    assert_ptr_equal(untouched, (void *)0x77);
    assert_int_equal(cudaPeekAtLastError(), cudaErrorMemoryAllocation);
    assert_int_equal(cudaGetLastError(), cudaErrorMemoryAllocation);
    assert_int_equal(cudaGetLastError(), cudaSuccess); /* not sticky */
    OK(cudaFree(p[10]));
    assert_int_equal(cudaMalloc(&untouched, MB + 1), cudaErrorMemoryAllocation);
    OK(cudaMalloc(&p[10], MB));
    for (int i = 0; i < CAPACITY_MB; i++) OK(cudaFree(p[i]));
    OK(cudaMalloc(&p[0], CAPACITY_MB * MB)); /* nothing is left in pieces */
    OK(cudaFree(p[0]));
    (void)cudaGetLastError();
}

static void wrong_arguments(void **state) {
    (void)state;
    void *p, *q = (void *)1;
    int on_stack;
    assert_int_equal(cudaMalloc(NULL, 4), cudaErrorInvalidValue);
    OK(cudaMalloc(&q, 0));
    assert_null(q);
    OK(cudaFree(NULL));
    OK(cudaMalloc(&p, 1000));
    assert_int_equal((uintptr_t)p % 256, 0);
    assert_int_equal(cudaFree((char *)p + 8), cudaErrorInvalidValue);
    assert_int_equal(cudaFree(&on_stack), cudaErrorInvalidValue);
    OK(cudaFree(p));
    assert_int_equal(cudaFree(p), cudaErrorInvalidValue);
    assert_int_equal(cudaMalloc(&p, (size_t)-1), cudaErrorMemoryAllocation);
    (void)cudaGetLastError();
}

static void copies_are_checked(void **state) {
    (void)state;
    char host[2048] = {0}, *d = device_new(1000);
    assert_int_equal(cudaMemcpy(d, host, 2048, cudaMemcpyHostToDevice), cudaErrorInvalidValue); /* over the end */
    assert_int_equal(cudaMemcpy(host, host + 8, 8, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    assert_int_equal(cudaMemcpy(d, d + 8, 8, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    assert_int_equal(cudaMemcpy(d, NULL, 8, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    assert_int_equal(cudaMemcpy(d, host, 8, (enum cudaMemcpyKind)9), cudaErrorInvalidMemcpyDirection);
    assert_int_equal(cudaMemset(host, 0, 8), cudaErrorInvalidValue);
    assert_int_equal(cudaMemset2D(d, 4, 0, 8, 2), cudaErrorInvalidPitchValue);
    OK(cudaMemcpy(NULL, NULL, 0, cudaMemcpyDefault));
    OK(cudaFree(d));
    assert_int_equal(cudaMemcpy(d, host, 8, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    (void)cudaGetLastError();
}

static void two_dimensions(void **state) {
    (void)state;
    enum { W = 100, H = 7, HP = 130 };
    unsigned char from[HP * H], to[HP * H];
    void *d;
    size_t pitch;
    OK(cudaMallocPitch(&d, &pitch, W, H));
    assert_true(pitch >= W && pitch % 32 == 0);
    for (int i = 0; i < HP * H; i++) from[i] = (unsigned char)(i * 7);
    memset(to, 0xaa, sizeof to);
    OK(cudaMemset2D(d, pitch, 0x11, W, H));
    OK(cudaMemcpy2D(d, pitch, from, HP, W / 2, H, cudaMemcpyHostToDevice));
    OK(cudaMemcpy2D(to, HP, d, pitch, W, H, cudaMemcpyDefault));
    for (int y = 0; y < H; y++)
        for (int x = 0; x < HP; x++)
            assert_int_equal(to[y * HP + x], x < W / 2 ? from[y * HP + x] : x < W ? 0x11 : 0xaa);
    OK(cudaFree(d));
}

static void three_dimensions(void **state) {
    (void)state;
    enum { W = 20, H = 5, D = 4, HP = 32 };
    static unsigned char from[HP * H * D], to[HP * H * D];
    struct cudaPitchedPtr d;
    struct cudaExtent all = {W, H, D}, part = {W - 3, H - 1, D - 2};
    for (size_t i = 0; i < sizeof from; i++) from[i] = (unsigned char)(i * 5 + 1);
    OK(cudaMalloc3D(&d, all));
    OK(cudaMemset3D(d, 0xee, all));
    struct cudaMemcpy3DParms up = {.srcPtr = {from, HP, W, H},
                                   .srcPos = {2, 1, 0},
                                   .dstPtr = d,
                                   .dstPos = {3, 1, 2},
                                   .extent = part,
                                   .kind = cudaMemcpyHostToDevice};
    struct cudaMemcpy3DParms down = {
        .srcPtr = d, .dstPtr = {to, HP, W, H}, .extent = all, .kind = cudaMemcpyDeviceToHost};
    OK(cudaMemcpy3DAsync(&up, 0)); /* pageable: packed before it returns */
    memset(from + HP, 0, 8);
    from[HP + 2] = 0;
    OK(cudaMemcpy3D(&down));
    for (size_t z = 0; z < D; z++)
        for (size_t y = 0; y < H; y++)
            for (size_t x = 0; x < W; x++) {
                size_t i = ((z - 2) * H + y) * HP + x - 1; /* the source of a copied byte */
                unsigned char want = z >= 2 && y >= 1 && x >= 3 ? (unsigned char)(i * 5 + 1) : 0xee;
                assert_int_equal(to[(z * H + y) * HP + x], want);
            }
    OK(cudaFree(d.ptr));
}

static void attributes(void **state) {
    (void)state;
    struct cudaPointerAttributes a;
    char *d = device_new(100), *pinned, *managed, pageable[64];
    OK(cudaHostAlloc((void **)&pinned, 100, cudaHostAllocMapped));
    OK(cudaMallocManaged((void **)&managed, 100, cudaMemAttachGlobal));
    OK(cudaPointerGetAttributes(&a, d + 50));
    assert_int_equal(a.type, cudaMemoryTypeDevice);
    assert_ptr_equal(a.devicePointer, d + 50);
    assert_null(a.hostPointer);
    OK(cudaPointerGetAttributes(&a, pinned));
    assert_int_equal(a.type, cudaMemoryTypeHost);
    OK(cudaPointerGetAttributes(&a, managed));
    assert_int_equal(a.type, cudaMemoryTypeManaged);
    OK(cudaPointerGetAttributes(&a, pageable));
    assert_int_equal(a.type, cudaMemoryTypeUnregistered);
    OK(cudaHostRegister(pageable, sizeof pageable, 0));
    assert_int_equal(cudaHostRegister(pageable + 8, 8, 0), cudaErrorHostMemoryAlreadyRegistered);
    OK(cudaPointerGetAttributes(&a, pageable + 63));
    assert_int_equal(a.type, cudaMemoryTypeHost);
    void *seen;
    OK(cudaHostGetDevicePointer(&seen, pageable, 0));
    OK(cudaHostUnregister(pageable));
    assert_int_equal(cudaHostUnregister(pageable), cudaErrorHostMemoryNotRegistered);
    OK(cudaMemset(managed, 3, 100)); /* the device and the host see the same bytes */
    OK(cudaDeviceSynchronize());
    assert_int_equal(managed[99], 3);
    assert_int_equal(cudaFreeHost(d), cudaErrorInvalidValue);
    OK(cudaFree(managed));
    OK(cudaFreeHost(pinned));
    OK(cudaFree(d));
    (void)cudaGetLastError();
}

static void wait_for(void *flag) {
    while (!__atomic_load_n((int *)flag, __ATOMIC_ACQUIRE))
        ;
}

static uint64_t pool_bytes(enum cudaMemPoolAttr attribute) {
    cudaMemPool_t pool;
    uint64_t v;
    OK(cudaDeviceGetDefaultMemPool(&pool, 0));
    OK(cudaMemPoolGetAttribute(pool, attribute, &v));
    return v;
}

/* Memory is released when the stream gets to it, not when the program asks. */
static void stream_ordered(void **state) {
    (void)state;
    cudaStream_t s;
    void *p, *q;
    int go = 0;
    size_t before = available();
    OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    OK(cudaMallocAsync(&p, 5 * MB, s));
    assert_int_equal(available(), before - 5 * MB);
    assert_int_equal(pool_bytes(cudaMemPoolAttrUsedMemCurrent), 5 * MB);
    OK(cudaLaunchHostFunc(s, wait_for, &go));
    OK(cudaFreeAsync(p, s));
    assert_int_equal(cudaFreeAsync(p, s), cudaErrorInvalidValue);
    assert_int_equal(available(), before - 5 * MB);
    __atomic_store_n(&go, 1, __ATOMIC_RELEASE);
    OK(cudaStreamSynchronize(s));
    assert_int_equal(available(), before);
    assert_int_equal(pool_bytes(cudaMemPoolAttrUsedMemCurrent), 0);
    assert_int_equal(pool_bytes(cudaMemPoolAttrUsedMemHigh), 5 * MB);
    /* What a stream is still to release may be asked for again at once. */
    OK(cudaMallocAsync(&p, 40 * MB, s));
    OK(cudaFreeAsync(p, s));
    OK(cudaMallocAsync(&q, 40 * MB, s));
    OK(cudaFree(q));
    assert_int_equal(available(), before);
    OK(cudaStreamDestroy(s));
    (void)cudaGetLastError();
}

static void own_pool(void **state) {
    (void)state;
    struct cudaMemPoolProps props = {.allocType = cudaMemAllocationTypePinned,
                                     .location = {cudaMemLocationTypeDevice, .id = 0}};
    cudaMemPool_t pool;
    void *p;
    uint64_t used;
    OK(cudaMemPoolCreate(&pool, &props));
    OK(cudaMallocFromPoolAsync(&p, 1000, pool, 0));
    OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
    assert_int_equal(used, 1024);
    OK(cudaFreeAsync(p, 0));
    OK(cudaMemPoolDestroy(pool));
    assert_int_equal(cudaMemPoolDestroy(pool), cudaErrorInvalidValue);
    (void)cudaGetLastError();
}

enum { THREADS = 8, ROUNDS = 300 };

static void *churn(void *arg) {
    uintptr_t failures = 0;
    for (int i = 0; i < ROUNDS; i++) {
        unsigned char *p, back[64], mine = (unsigned char)((uintptr_t)arg * 31 + (uintptr_t)i);
        size_t bytes = 64 + (size_t)(i * 977 % 50000);
        failures += cudaMalloc((void **)&p, bytes) != cudaSuccess || cudaMemset(p, mine, bytes) != cudaSuccess ||
                    cudaMemcpy(back, p + bytes - 64, 64, cudaMemcpyDeviceToHost) != cudaSuccess;
        for (int k = 0; k < 64; k++) failures += back[k] != mine;
        failures += cudaFree(p) != cudaSuccess;
    }
    return (void *)failures;
}

static void threads(void **state) {
    (void)state;
    pthread_t t[THREADS];
    OK(cudaDeviceSynchronize());
    size_t before = available();
    for (uintptr_t i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&t[i], NULL, churn, (void *)i), 0);
    for (int i = 0; i < THREADS; i++) {
        void *failures;
        pthread_join(t[i], &failures);
        assert_null(failures);
    }
    assert_int_equal(available(), before);
}

static void *last_error_of_new_thread(void *arg) {
    (void)arg;
    return (void *)(uintptr_t)cudaGetLastError();
}

static void last_error_is_the_threads(void **state) {
    (void)state;
    pthread_t t;
    void *seen;
    assert_int_equal(cudaMalloc(NULL, 1), cudaErrorInvalidValue);
    pthread_create(&t, NULL, last_error_of_new_thread, NULL);
    pthread_join(t, &seen);
    assert_null(seen);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidValue);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(out_of_memory_where_it_should),
        cmocka_unit_test(wrong_arguments),
        cmocka_unit_test(copies_are_checked),
        cmocka_unit_test(two_dimensions),
        cmocka_unit_test(three_dimensions),
        cmocka_unit_test(attributes),
        cmocka_unit_test(stream_ordered),
        cmocka_unit_test(own_pool),
        cmocka_unit_test(threads),
        cmocka_unit_test(last_error_is_the_threads),
    };
    setenv("ACCT_VGPU_MEMORY", "64M", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
