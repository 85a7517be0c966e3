/* Out of memory where arithmetic says, on a device's profile, dry: capacity less reserve, in pages of 2 MiB, small
 * requests sharing pages, pools in chunks of 32 MiB. The figures come from the table of devices and from the rule in
 * docs/INTERNALS.md. */
#include "acct/device_table.h"
#include "tests/unit/vgpu_testing.h"

#include <stdio.h>
#include <unistd.h>

static const size_t PAGE = 2 << 20, SMALL = 1 << 20, CHUNK = 32 << 20, MB = 1 << 20;

static size_t at_first; /* what a device has for the program */

static size_t available(void) {
    size_t left, total;
    OK(cudaMemGetInfo(&left, &total));
    return left;
}

static void whole_capacity(void **state) {
    (void)state;
    struct acct_device d = {0};
    size_t left, total;
    for (int i = 0; strcmp(d.alias, "h100-sxm"); i++) assert_int_equal(acct_device_get(i, &d), 0);
    OK(cudaMemGetInfo(&left, &total));
    assert_int_equal(total, 85520809984); /* what a real one reported */
    assert_int_equal(left, 85520809984 - d.reserved_bytes);
    at_first = left;
    void *p, *untouched = (void *)7;
    size_t most = left / PAGE * PAGE;
    assert_int_equal(cudaMalloc(&untouched, most + 1), cudaErrorMemoryAllocation);
    assert_ptr_equal(untouched, (void *)7);
    assert_int_equal(cudaGetLastError(), cudaErrorMemoryAllocation);
    OK(cudaGetLastError());
    OK(cudaMalloc(&p, most));
    assert_int_equal(available(), left - most);
    assert_int_equal(cudaMalloc(&untouched, 1), cudaErrorMemoryAllocation);
    OK(cudaFree(p));
    assert_int_equal(available(), left);
    (void)cudaGetLastError();
}

/* n requests of b bytes each: those above 1 MiB take whole pages. */
static void first_that_fails(size_t bytes) {
    size_t each = (bytes + PAGE - 1) / PAGE * PAGE, n = at_first / each, i = 0;
    void **p = calloc(n + 1, sizeof *p);
    assert_non_null(p);
    while (i <= n && !cudaMalloc(&p[i], bytes)) i++;
    assert_int_equal(i, n);
    while (i) OK(cudaFree(p[--i]));
    assert_int_equal(available(), at_first);
    free(p);
    (void)cudaGetLastError();
}

static void rounding(void **state) {
    (void)state;
    first_that_fails(SMALL + 1);
    first_that_fails(PAGE);
    first_that_fails(PAGE + 1);
    first_that_fails(100 * MB);
    first_that_fails(1000000007);
}

/* Requests of up to 1 MiB, in multiples of 512 bytes, share pages. */
static void small_requests_share(void **state) {
    (void)state;
    enum { N = 4096 };
    void *p[N + 1];
    for (int i = 0; i < N; i++) {
        OK(cudaMalloc(&p[i], 500)); /* 4096 of 512 bytes are one page */
        assert_int_equal(available(), at_first - PAGE);
    }
    OK(cudaMalloc(&p[N], 1));
    assert_int_equal(available(), at_first - 2 * PAGE);
    OK(cudaFree(p[N]));
    assert_int_equal(available(), at_first - PAGE);
    OK(cudaFree(p[17]));
    OK(cudaMalloc(&p[N], 512)); /* in its place */
    assert_ptr_equal(p[N], p[17]);
    for (int i = 0; i <= N; i++)
        if (i != 17) OK(cudaFree(p[i]));
    assert_int_equal(available(), at_first);
    OK(cudaMalloc(&p[0], SMALL));
    OK(cudaMalloc(&p[1], SMALL));
    assert_int_equal(available(), at_first - PAGE);
    OK(cudaFree(p[0]));
    OK(cudaFree(p[1]));
}

/* A device maps pages, so free memory in pieces is as good as in one. */
static void pieces_do_not_matter(void **state) {
    (void)state;
    size_t n = at_first / (4 * MB), i;
    void **p = calloc(n, sizeof *p), *large;
    for (i = 0; i < n; i++) OK(cudaMalloc(&p[i], 4 * MB));
    for (i = 0; i < n; i += 2) OK(cudaFree(p[i]));
    size_t left = available();
    assert_int_equal(left, at_first - n / 2 * 4 * MB);
    OK(cudaMalloc(&large, left / PAGE * PAGE));
    OK(cudaFree(large));
    for (i = 1; i < n; i += 2) OK(cudaFree(p[i]));
    assert_int_equal(available(), at_first);
    free(p);
}

static uint64_t pool_bytes(enum cudaMemPoolAttr attribute) {
    cudaMemPool_t pool;
    uint64_t v;
    OK(cudaDeviceGetDefaultMemPool(&pool, 0));
    OK(cudaMemPoolGetAttribute(pool, attribute, &v));
    return v;
}

static void pools_grow_in_chunks(void **state) {
    (void)state;
    void *p, *q, *r;
    OK(cudaMallocAsync(&p, 1000, 0));
    assert_int_equal(available(), at_first - CHUNK);
    assert_int_equal(pool_bytes(cudaMemPoolAttrReservedMemCurrent), CHUNK);
    assert_int_equal(pool_bytes(cudaMemPoolAttrUsedMemCurrent), 1024);
    OK(cudaMallocAsync(&q, CHUNK - 1024, 0)); /* fits beside it */
    assert_int_equal(available(), at_first - CHUNK);
    OK(cudaMallocAsync(&r, CHUNK + 1, 0));
    assert_int_equal(available(), at_first - 3 * CHUNK);
    OK(cudaFreeAsync(q, 0));
    OK(cudaFreeAsync(r, 0));
    assert_int_equal(available(), at_first - 3 * CHUNK); /* held back until there is a synchronisation */
    OK(cudaMallocAsync(&q, CHUNK + 2, 0));               /* and used again */
    assert_ptr_equal(q, r);
    OK(cudaFreeAsync(q, 0));
    OK(cudaStreamSynchronize(0));
    assert_int_equal(available(), at_first - CHUNK); /* p's chunk is not idle */
    OK(cudaFreeAsync(p, 0));
    OK(cudaDeviceSynchronize());
    assert_int_equal(available(), at_first);
    assert_int_equal(pool_bytes(cudaMemPoolAttrReservedMemHigh), 3 * CHUNK);
}

static void threshold(void **state) {
    (void)state;
    cudaMemPool_t pool;
    uint64_t keep = 2 * CHUNK, none = 0;
    void *p[4];
    OK(cudaDeviceGetDefaultMemPool(&pool, 0));
    OK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
    for (int i = 0; i < 4; i++) OK(cudaMallocAsync(&p[i], CHUNK, 0));
    for (int i = 0; i < 4; i++) OK(cudaFreeAsync(p[i], 0));
    OK(cudaDeviceSynchronize());
    assert_int_equal(available(), at_first - keep);
    OK(cudaMemPoolTrimTo(pool, CHUNK));
    assert_int_equal(available(), at_first - CHUNK);
    /* cudaMalloc takes what a pool holds without need. */
    OK(cudaMalloc(&p[0], at_first / PAGE * PAGE));
    OK(cudaFree(p[0]));
    assert_int_equal(pool_bytes(cudaMemPoolAttrReservedMemCurrent), 0);
    OK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &none));
}

/* Where there is no room for whole chunks, pages do: a pool fails where cudaMalloc would. */
static void pool_uses_it_all(void **state) {
    (void)state;
    size_t most = at_first / PAGE * PAGE;
    void *p = NULL, *q;
    assert_int_equal(cudaMallocAsync(&p, most + 1, 0), cudaErrorMemoryAllocation);
    assert_null(p);
    OK(cudaMallocAsync(&p, most, 0));
    assert_int_equal(cudaMallocAsync(&q, 1, 0), cudaErrorMemoryAllocation);
    OK(cudaFreeAsync(p, 0));
    OK(cudaMalloc(&q, most)); /* without a synchronisation */
    OK(cudaFree(q));
    (void)cudaGetLastError();
}

/* Of a pool with a limit of its own. */
static void limited_pool(void **state) {
    (void)state;
    struct cudaMemPoolProps props = {.allocType = cudaMemAllocationTypePinned,
                                     .location = {cudaMemLocationTypeDevice, .id = 0},
                                     .maxSize = 3 * CHUNK};
    cudaMemPool_t pool;
    void *p, *q;
    OK(cudaMemPoolCreate(&pool, &props));
    OK(cudaMallocFromPoolAsync(&p, 2 * CHUNK + 1, pool, 0));
    assert_int_equal(cudaMallocFromPoolAsync(&q, 2 * CHUNK, pool, 0), cudaErrorMemoryAllocation);
    OK(cudaFreeAsync(p, 0));
    OK(cudaMemPoolDestroy(pool));
    OK(cudaDeviceSynchronize());
    assert_int_equal(available(), at_first);
    (void)cudaGetLastError();
}

static uint64_t resident_bytes(void) {
    unsigned long long all, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%llu %llu", &all, &resident), 2);
    fclose(f);
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Dry: nothing of the device's memory is touched, whatever is done with it. */
static void nothing_is_touched(void **state) {
    (void)state;
    char *p, host[16];
    uint64_t before = resident_bytes();
    OK(cudaMalloc((void **)&p, at_first / PAGE * PAGE));
    OK(cudaMemset(p, 1, at_first / PAGE * PAGE));
    memset(host, 7, sizeof host);
    OK(cudaMemcpy(host, p, sizeof host, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < sizeof host; i++) assert_int_equal(host[i], 0);
    OK(cudaMemcpy(p, host, sizeof host, cudaMemcpyHostToDevice));
    OK(cudaFree(p));
    assert_in_range(resident_bytes(), 0, before + 16 * MB);
}

/* Eight devices of that size, all of their memory. */
static void all_devices(void **state) {
    (void)state;
    void *p[8];
    for (int d = 0; d < 8; d++) {
        OK(cudaSetDevice(d));
        OK(cudaMalloc(&p[d], at_first / PAGE * PAGE));
    }
    for (int d = 0; d < 8; d++) OK(cudaFree(p[d]));
    OK(cudaSetDevice(0));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_capacity),       cmocka_unit_test(rounding),
        cmocka_unit_test(small_requests_share), cmocka_unit_test(pieces_do_not_matter),
        cmocka_unit_test(pools_grow_in_chunks), cmocka_unit_test(threshold),
        cmocka_unit_test(pool_uses_it_all),     cmocka_unit_test(limited_pool),
        cmocka_unit_test(nothing_is_touched),   cmocka_unit_test(all_devices),
    };
    setenv("ACCT_VGPU", "h100-sxm:8", 1);
    setenv("ACCT_VGPU_DRY", "1", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
