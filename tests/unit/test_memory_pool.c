/* The sub-allocator of train --alloc pool: where pieces lie, by hand, and against a map of all bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "sample_app/memory_pool.h"

static void first_fit_by_hand(void **state) {
    (void)state;
    struct memory_pool p = memory_pool_create(SIZE_MAX);
    assert_int_equal(memory_pool_take(&p, 1), 0);
    assert_int_equal(memory_pool_take(&p, 257), 256);
    assert_int_equal(memory_pool_take(&p, 256), 768);
    assert_int_equal(p.most, 1024);
    memory_pool_give(&p, 256);
    assert_int_equal(memory_pool_take(&p, 513), 1024); /* too large for the gap of 512 */
    assert_int_equal(memory_pool_take(&p, 256), 256);
    assert_int_equal(memory_pool_take(&p, 256), 512);
    assert_int_equal(p.most, 1024 + 768);
    memory_pool_give(&p, 0);
    memory_pool_give(&p, 512);
    memory_pool_give(&p, 256);
    assert_int_equal(memory_pool_take(&p, 768), 0); /* three gaps are one */
    assert_int_equal(p.most, 1024 + 768);
    memory_pool_destroy(&p);
}

static void a_block_ends(void **state) {
    (void)state;
    struct memory_pool p = memory_pool_create(1024);
    assert_int_equal(memory_pool_take(&p, 1025), SIZE_MAX);
    assert_int_equal(memory_pool_take(&p, 1024), 0);
    assert_int_equal(memory_pool_take(&p, 1), SIZE_MAX);
    memory_pool_give(&p, 0);
    assert_int_equal(memory_pool_take(&p, 700), 0);
    assert_int_equal(memory_pool_take(&p, 256), 768);
    assert_int_equal(memory_pool_take(&p, 1), SIZE_MAX);
    memory_pool_destroy(&p);
}

/* A map of units of POOL_ALIGNMENT says where the first gap is. */
enum { UNITS = 512, LIVE = 64 };

static size_t first_gap(const unsigned char *used, size_t units) {
    for (size_t at = 0, run = 0; at < UNITS; at++) {
        run = used[at] ? 0 : run + 1;
        if (run == units) return at + 1 - units;
    }
    return SIZE_MAX;
}

static void as_a_map_says(void **state) {
    (void)state;
    unsigned char used[UNITS] = {0};
    size_t at[LIVE], units[LIVE] = {0}, refused = 0;
    struct memory_pool p = memory_pool_create((size_t)UNITS * POOL_ALIGNMENT);
    srand(4);
    for (int round = 0; round < 20000; round++) {
        int i = rand() % LIVE;
        if (units[i]) {
            memory_pool_give(&p, at[i] * POOL_ALIGNMENT);
            memset(used + at[i], 0, units[i]);
            units[i] = 0;
            continue;
        }
        size_t bytes = 1 + (size_t)rand() % (24 * POOL_ALIGNMENT);
        size_t wanted = (bytes + POOL_ALIGNMENT - 1) / POOL_ALIGNMENT, gap = first_gap(used, wanted);
        size_t got = memory_pool_take(&p, bytes);
        assert_int_equal(got, gap == SIZE_MAX ? SIZE_MAX : gap * POOL_ALIGNMENT);
        refused += gap == SIZE_MAX;
        if (gap == SIZE_MAX) continue;
        at[i] = gap, units[i] = wanted;
        memset(used + gap, 1, wanted);
    }
    assert_true(refused > 100); /* the pool was full now and then */
    memory_pool_destroy(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(first_fit_by_hand), cmocka_unit_test(a_block_ends),
                                       cmocka_unit_test(as_a_map_says)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
