/* The model of times: the roofline formula by hand, and the time line of streams, events and waits of the host, in
 * units of operations that take exactly a millisecond each. Dry, on an h100-sxm, whose figures are those of the data
 * sheet. */
#include "vgpu/vgpu_stream.h"

#include <math.h>
#include <sched.h>
#include "tests/unit/vgpu_testing.h"

/* Before the engine reads its environment. */
static __attribute__((constructor(101))) void choose(void) {
    setenv("ACCT_VGPU", "h100-sxm", 1);
    setenv("ACCT_VGPU_DRY", "on", 1);
}

static const double GB_S = 3350e9, LINK_GB_S = 63.015e9, MS = 1e-3;

#define NEAR(a, b, by) assert_true(fabs((a) - (double)(b)) <= (by)*fabs((double)(b)))

/* ---- the formula ---- */

static struct vgpu_profile made(void) {
    struct vgpu_profile p = {.bytes_per_s = 1e12, .host_bytes_per_s = 2e10, .peer_bytes_per_s = 1e11, .launch_s = 1e-6};
    for (int f = 0; f < VGPU_FORMATS; f++) p.peak[f] = NAN;
    p.peak[VGPU_FP32] = 1e13;
    p.peak[VGPU_TF32] = 1e14;
    p.peak[VGPU_FP16] = 2e14;
    return p;
}

static void formula(void **state) {
    (void)state;
    struct vgpu_profile p = made();
    struct vgpu_amount a = {.bytes = 4e9};
    NEAR(vgpu_model_seconds(&p, &a), 4e-3, 1e-12);
    a.flops[VGPU_FP32] = 3e10; /* 3 ms: less than its bytes take */
    NEAR(vgpu_model_seconds(&p, &a), 4e-3, 1e-12);
    a.flops[VGPU_TF32] = 2e11; /* and 2 ms on another unit: one after the other */
    NEAR(vgpu_model_seconds(&p, &a), 5e-3, 1e-12);
    NEAR(vgpu_model_seconds(&p, &(struct vgpu_amount){.host_bytes = 2e9}), 0.1, 1e-12);
    NEAR(vgpu_model_seconds(&p, &(struct vgpu_amount){.peer_bytes = 2e9}), 0.02, 1e-12);
    assert_true(vgpu_model_seconds(&p, &(struct vgpu_amount){0}) == 0);
}

/* What has no unit runs on the next wider one; what is not known at all takes no time. */
static void units_that_are_not_there(void **state) {
    (void)state;
    struct vgpu_profile p = made();
    struct vgpu_amount a = {0};
    a.flops[VGPU_FP8] = 2e14;
    NEAR(vgpu_model_seconds(&p, &a), 1, 1e-12); /* as fp16 */
    a = (struct vgpu_amount){0};
    a.flops[VGPU_BF16] = 1e14;
    NEAR(vgpu_model_seconds(&p, &a), 1, 1e-12); /* as tf32 */
    p.peak[VGPU_TF32] = NAN;
    NEAR(vgpu_model_seconds(&p, &a), 10, 1e-12); /* as fp32 */
    a = (struct vgpu_amount){0};
    a.flops[VGPU_FP64_MATRIX] = 1e14;
    assert_true(vgpu_model_seconds(&p, &a) == 0);
    p.peak[VGPU_FP64] = 1e12;
    NEAR(vgpu_model_seconds(&p, &a), 100, 1e-12);
}

/* ---- the time line ---- */

/* `ms` of work that the device's memory limits. */
static void work(cudaStream_t s, double ms) {
    struct vgpu_work w = {.kind = VGPU_WORK_DEVICE, .amount = {.bytes = ms * MS * GB_S}};
    OK(vgpu_submit(s, &w, NULL));
}

static cudaEvent_t record(cudaStream_t s) {
    cudaEvent_t e;
    OK(cudaEventCreate(&e));
    OK(cudaEventRecord(e, s));
    return e;
}

static double between(cudaEvent_t a, cudaEvent_t b) {
    float ms;
    OK(cudaEventElapsedTime(&ms, a, b));
    return (double)ms;
}

/* `operations` one after another of `ms` in all; the host's clock is not in it. */
static void assert_took(double measured, double ms, int operations) {
    assert_true(fabs(measured - (ms + operations * vgpu_profile()->launch_s * 1e3)) < 1e-3);
}

static cudaStream_t stream(unsigned flags) {
    cudaStream_t s;
    OK(cudaStreamCreateWithFlags(&s, flags));
    return s;
}

static void one_after_another(void **state) {
    (void)state;
    cudaStream_t s = stream(cudaStreamNonBlocking);
    cudaEvent_t a = record(s);
    for (int i = 0; i < 10; i++) work(s, 3);
    cudaEvent_t b = record(s);
    assert_took(between(a, b), 30, 10);
    assert_took(between(b, a), -30, -10);
    OK(cudaStreamDestroy(s));
}

static void side_by_side(void **state) {
    (void)state;
    cudaStream_t s = stream(cudaStreamNonBlocking), t = stream(cudaStreamNonBlocking);
    OK(cudaDeviceSynchronize());
    cudaEvent_t a = record(s), b = record(t);
    assert_took(between(a, b), 0, 0);
    work(s, 20);
    work(t, 5);
    assert_took(between(a, record(t)), 5, 1);
    cudaEvent_t done = record(s);
    OK(cudaStreamWaitEvent(t, done, 0));
    work(t, 1);
    assert_took(between(a, record(t)), 21, 2);
    OK(cudaStreamDestroy(s));
    OK(cudaStreamDestroy(t));
}

/* The default stream waits for blocking streams and they for it; a stream that does not block does neither. */
static void default_stream(void **state) {
    (void)state;
    cudaStream_t s = stream(cudaStreamDefault), free_one = stream(cudaStreamNonBlocking);
    OK(cudaDeviceSynchronize());
    cudaEvent_t a = record(s), f = record(free_one);
    work(s, 7);
    work(0, 2);
    assert_took(between(a, record(0)), 9, 2);
    work(s, 1);
    assert_took(between(a, record(s)), 10, 3);
    work(free_one, 3);
    assert_took(between(f, record(free_one)), 3, 1);
    OK(cudaStreamDestroy(s)); /* what it still does counts for those who wait for it */
    work(0, 1);
    assert_took(between(a, record(0)), 11, 4);
    OK(cudaStreamDestroy(free_one));
}

/* The host is ahead but where it waits. */
static void waits_of_the_host(void **state) {
    (void)state;
    cudaStream_t s = stream(cudaStreamNonBlocking), t = stream(cudaStreamNonBlocking);
    OK(cudaDeviceSynchronize());
    cudaEvent_t a = record(s);
    work(s, 8);
    work(t, 1);
    assert_took(between(a, record(t)), 1, 1);
    OK(cudaStreamSynchronize(s));
    work(t, 1);
    assert_took(between(a, record(t)), 9, 2);
    work(s, 4);
    cudaEvent_t done = record(s);
    OK(cudaEventSynchronize(done));
    work(t, 1);
    assert_took(between(a, record(t)), 13, 3);
    OK(cudaStreamDestroy(s));
    OK(cudaStreamDestroy(t));
}

static void copies(void **state) {
    (void)state;
    const size_t bytes = 63015000; /* 1 ms by the link: 16 lanes of 32 GT/s, 128 of 130 bits */
    cudaStream_t s = stream(cudaStreamNonBlocking);
    char *d = device_new(bytes), *e = device_new(bytes), *pinned, *pageable = test_malloc(bytes);
    OK(cudaMallocHost((void **)&pinned, bytes));
    cudaEvent_t a = record(s);
    OK(cudaMemcpyAsync(d, pinned, bytes, cudaMemcpyHostToDevice, s));
    cudaEvent_t b = record(s);
    assert_took(between(a, b), 1e3 * (double)bytes / LINK_GB_S, 1);
    OK(cudaMemcpyAsync(e, d, bytes, cudaMemcpyDeviceToDevice, s));
    cudaEvent_t c = record(s);
    assert_took(between(b, c), 1e3 * 2 * (double)bytes / GB_S, 1); /* read and written */
    OK(cudaMemsetAsync(e, 1, bytes, s));
    assert_took(between(c, record(s)), 1e3 * (double)bytes / GB_S, 1);
    memset(pinned, 7, bytes);
    memset(pageable, 7, bytes);
    OK(cudaMemcpyAsync(pinned, d, bytes, cudaMemcpyDeviceToHost, s));
    OK(cudaMemcpy(pageable, d, bytes, cudaMemcpyDeviceToHost));
    OK(cudaStreamSynchronize(s));
    for (size_t i = 0; i < bytes; i++) assert_true(!pinned[i] && !pageable[i]);
    memset(pinned, 9, bytes); /* what the host wrote stays what it is */
    OK(cudaMemcpy(pageable, pinned, bytes, cudaMemcpyHostToHost));
    assert_memory_equal(pageable, pinned, bytes);
    test_free(pageable);
    OK(cudaFreeHost(pinned));
    OK(cudaFree(d));
    OK(cudaFree(e));
    OK(cudaStreamDestroy(s));
}

static void with_gaps(void **state) {
    (void)state;
    char rows[4][8], *d = device_new(sizeof rows);
    memset(rows, 5, sizeof rows);
    OK(cudaMemcpy2D(rows, 8, d, 8, 3, 4, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 8; k++) assert_int_equal(rows[i][k], k < 3 ? 0 : 5);
    OK(cudaFree(d));
}

/* Managed memory is the host's too. */
static void managed(void **state) {
    (void)state;
    char *m, *d = device_new(100), host[100];
    OK(cudaMallocManaged((void **)&m, 100, cudaMemAttachGlobal));
    memset(host, 3, sizeof host);
    OK(cudaMemcpy(m, host, 100, cudaMemcpyHostToDevice));
    assert_memory_equal(m, host, 100);
    OK(cudaMemset(m, 4, 50));
    OK(cudaDeviceSynchronize());
    assert_int_equal(m[49], 4);
    assert_int_equal(m[50], 3);
    OK(cudaMemcpy(m, d, 100, cudaMemcpyDeviceToDevice)); /* nobody knows */
    OK(cudaDeviceSynchronize());
    assert_int_equal(m[0], 0);
    OK(cudaFree(m));
    OK(cudaFree(d));
}

/* ---- order ---- */

static void wait_for(void *flag) {
    while (!__atomic_load_n((int *)flag, __ATOMIC_ACQUIRE)) sched_yield();
}

/* Host functions run, on the stream's thread, and what comes behind them waits. */
static void host_functions(void **state) {
    (void)state;
    cudaStream_t s = stream(cudaStreamNonBlocking);
    char *d = device_new(10), *pinned;
    int go = 0;
    OK(cudaMallocHost((void **)&pinned, 10));
    pinned[0] = 1;
    OK(cudaLaunchHostFunc(s, wait_for, &go));
    OK(cudaMemcpyAsync(pinned, d, 10, cudaMemcpyDeviceToHost, s));
    cudaEvent_t e = record(s);
    assert_int_equal(cudaEventQuery(e), cudaErrorNotReady);
    assert_int_equal(cudaStreamQuery(s), cudaErrorNotReady);
    assert_int_equal(*(volatile char *)pinned, 1);
    __atomic_store_n(&go, 1, __ATOMIC_RELEASE);
    OK(cudaEventSynchronize(e));
    assert_int_equal(pinned[0], 0);
    OK(cudaFreeHost(pinned));
    OK(cudaFree(d));
    OK(cudaStreamDestroy(s));
    (void)cudaGetLastError();
}

/* Freed in the order of the stream, though nothing is executed. */
static void released_in_order(void **state) {
    (void)state;
    cudaStream_t s = stream(cudaStreamNonBlocking);
    int go = 0;
    void *p;
    OK(cudaMallocAsync(&p, 1 << 20, s));
    OK(cudaLaunchHostFunc(s, wait_for, &go));
    OK(cudaMemsetAsync(p, 0, 1 << 20, s));
    OK(cudaFreeAsync(p, s));
    __atomic_store_n(&go, 1, __ATOMIC_RELEASE);
    OK(cudaStreamSynchronize(s));
    assert_int_equal(cudaFree(p), cudaErrorInvalidValue);
    (void)cudaGetLastError();
    OK(cudaStreamDestroy(s));
}

/* ---- products ---- */

static void products(void **state) {
    (void)state;
    enum { N = 4096 };
    const double flops = 2. * N * N * N;
    cublasHandle_t h;
    float one = 1, zero = 0, *a = device_new(sizeof(float) * N * N);
    OK(cublasCreate(&h));
    cudaEvent_t start = record(0);
    OK(cublasSgemm_v2_64(h, CUBLAS_OP_N, CUBLAS_OP_N, N, N, N, &one, a, N, a, N, &zero, a, N));
    cudaEvent_t fp32 = record(0);
    assert_took(between(start, fp32), 1e3 * flops / 66.9e12, 1);
    OK(cublasSetMathMode(h, CUBLAS_TF32_TENSOR_OP_MATH));
    OK(cublasSgemm_v2_64(h, CUBLAS_OP_N, CUBLAS_OP_N, N, N, N, &one, a, N, a, N, &zero, a, N));
    cudaEvent_t tf32 = record(0);
    assert_took(between(fp32, tf32), 1e3 * flops / 494.7e12, 1);
    OK(cublasGemmEx_64(h, CUBLAS_OP_N, CUBLAS_OP_N, N, N, N, &one, a, CUDA_R_16BF, N, a, CUDA_R_16BF, N, &zero, a,
                       CUDA_R_16BF, N, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
    assert_took(between(tf32, record(0)), 1e3 * flops / 989.4e12, 1);
    /* A thin one is as slow as its bytes: A once, x, y. */
    cudaEvent_t before = record(0);
    OK(cublasSgemm_v2_64(h, CUBLAS_OP_N, CUBLAS_OP_N, N, 1, N, &one, a, N, a, N, &zero, a, N));
    assert_took(between(before, record(0)), 1e3 * sizeof(float) * ((double)N * N + 2 * N) / GB_S, 1);
    float norm = 5;
    OK(cublasSnrm2_v2_64(h, N, a, 1, &norm)); /* a result for the host is 0 */
    assert_true(norm == 0);
    OK(cublasDestroy(h));
    OK(cudaFree(a));
}

static void wild_pointers(void **state) {
    (void)state;
    cublasHandle_t h;
    float one = 1, zero = 0, *a = device_new(sizeof(float) * 16);
    OK(cublasCreate(&h));
    OK(cublasSgemm_v2_64(h, CUBLAS_OP_N, CUBLAS_OP_N, 4, 4, 4, &one, a, 4, (float *)16, 4, &zero, a, 4));
    assert_int_equal(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
    vgpu_refused = 0;
    (void)cudaGetLastError();
    OK(cublasDestroy(h));
    OK(cudaFree(a));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(formula),
        cmocka_unit_test(units_that_are_not_there),
        cmocka_unit_test(one_after_another),
        cmocka_unit_test(side_by_side),
        cmocka_unit_test(default_stream),
        cmocka_unit_test(waits_of_the_host),
        cmocka_unit_test(copies),
        cmocka_unit_test(with_gaps),
        cmocka_unit_test(managed),
        cmocka_unit_test(host_functions),
        cmocka_unit_test(released_in_order),
        cmocka_unit_test(products),
        cmocka_unit_test(wild_pointers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
