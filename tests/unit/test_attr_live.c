/* Live allocations by address, and the hash map, against a plain list. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include "analyzer/attr_live.h"

#define PLACES 9000 /* three levels of the tree */

static int32_t naive_find(const int32_t *at, int32_t place) {
    for (; place >= 0; place--)
        if (at[place] >= 0) return at[place];
    return -1;
}

static void live_agrees_with_a_list(void **state) {
    (void)state;
    struct pool pool = {0};
    struct live l;
    static int32_t at[PLACES];
    struct live_place *place = POOL_NEW(&pool, struct live_place, 2 * PLACES);
    for (int32_t i = 0; i < PLACES; i++) /* duplicates, unsorted */
        place[i] = place[2 * PLACES - 1 - i] = (struct live_place){1, 0x1000 + 256 * (int64_t)i};
    live_start(&l, &pool, place, 2 * PLACES);
    assert_int_equal(l.places, PLACES);
    for (int32_t i = 0; i < PLACES; i++) at[i] = -1;
    srand(7);
    for (int n = 0; n < 60000; n++) {
        int32_t i = n % 5 ? rand() % PLACES : (rand() % 4) * (PLACES / 4); /* dense and nearly empty stretches */
        int64_t address = 0x1000 + 256 * (int64_t)i;
        if (at[i] >= 0) {
            live_dies(&l, 1, address, at[i]);
            at[i] = -1;
        } else if (n % 3) {
            assert_int_equal(live_born(&l, 1, address, n), -1);
            at[i] = n;
        }
        int32_t q = rand() % PLACES;
        assert_int_equal(live_find(&l, 1, 0x1000 + 256 * (int64_t)q + rand() % 256), naive_find(at, q));
    }
    pool_free(&pool);
}

static void live_keeps_processes_apart(void **state) {
    (void)state;
    struct pool pool = {0};
    struct live l;
    struct live_place *place = POOL_NEW(&pool, struct live_place, 3);
    place[0] = (struct live_place){2, 4096};
    place[1] = (struct live_place){1, 8192};
    place[2] = (struct live_place){1, 4096};
    live_start(&l, &pool, place, 3);
    live_born(&l, 1, 8192, 7);
    assert_int_equal(live_find(&l, 1, 9000), 7);
    assert_int_equal(live_find(&l, 2, 9000), -1);
    assert_int_equal(live_find(&l, 1, 8191), -1);
    live_born(&l, 2, 4096, 8);
    assert_int_equal(live_find(&l, 2, 1 << 20), 8);
    assert_int_equal(live_born(&l, 2, 4096, 9), 8); /* its release was not seen */
    live_dies(&l, 2, 4096, 8);                      /* comes late: names the old one */
    assert_int_equal(live_find(&l, 2, 4096), 9);
    pool_free(&pool);
}

static void live_without_allocations_finds_nothing(void **state) {
    (void)state;
    struct pool pool = {0};
    struct live l;
    live_start(&l, &pool, NULL, 0);
    assert_int_equal(live_find(&l, 1, 4096), -1);
    pool_free(&pool);
}

static void map_keeps_what_was_put(void **state) {
    (void)state;
    struct pool pool = {0};
    struct at_map m = {0};
    assert_null(at_map_get(&m, 0));
    for (uint64_t i = 0; i < 50000; i++) {
        int fresh;
        *at_map_put(&m, &pool, i * 0x100000001u, &fresh) = (int64_t)i;
        assert_int_equal(fresh, 1);
    }
    assert_int_equal(m.count, 50000);
    for (uint64_t i = 0; i < 50000; i++) assert_int_equal(*at_map_get(&m, i * 0x100000001u), i);
    assert_false(at_map_has(&m, 5));
    int fresh;
    assert_int_equal(*at_map_put(&m, &pool, 0, &fresh), 0);
    assert_int_equal(fresh, 0);
    pool_free(&pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(live_agrees_with_a_list),
        cmocka_unit_test(live_keeps_processes_apart),
        cmocka_unit_test(live_without_allocations_finds_nothing),
        cmocka_unit_test(map_keeps_what_was_put),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
