/* Which release ends which allocation: the same answer in every order of arrival, checked against a plain stack that
 * sees the events in order of time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "trace/collect_life.h"

#define MOST 4096
static int64_t death_of[MOST]; /* by birth id, as the table told last */
static uint64_t death_ns_of[MOST];

static void note(void *context, int64_t birth, int64_t death, uint64_t ns) {
    (void)context;
    death_of[birth] = death;
    death_ns_of[birth] = ns;
}

struct event {
    uint64_t ns;
    int64_t id;
    int death;
};

static void give(struct life *l, const struct event *e) {
    int rc = e->death ? life_death(l, 0x1000, e->ns, e->id) : life_birth(l, 0x1000, e->ns, e->id);
    assert_int_equal(rc, 0);
}

/* The rule, said plainly: walking in order of time, whatever comes next ends what is live. */
static void reference(const struct event *by_time, int n, int64_t *death, uint64_t *end) {
    int64_t live = 0;
    for (int i = 0; i < n; i++) {
        if (live) {
            death[live] = by_time[i].death ? by_time[i].id : 0;
            end[live] = by_time[i].ns;
        }
        live = by_time[i].death ? 0 : by_time[i].id;
    }
}

static void check(const struct event *events, int n, const int *order) {
    int64_t death[MOST] = {0};
    uint64_t end[MOST] = {0};
    memset(death_of, 0, sizeof death_of);
    memset(death_ns_of, 0, sizeof death_ns_of);
    struct life *l = life_new(note, NULL);
    for (int i = 0; i < n; i++) give(l, &events[order[i]]);
    reference(events, n, death, end);
    for (int i = 0; i < n; i++) {
        if (events[i].death) continue;
        assert_int_equal(death_of[events[i].id], death[events[i].id]);
        assert_int_equal(death_ns_of[events[i].id], end[events[i].id]);
    }
    life_delete(l);
}

static void permute(const struct event *events, int n, int *order, int k) {
    if (k == n) {
        check(events, n, order);
        return;
    }
    for (int i = k; i < n; i++) {
        int t = order[k];
        order[k] = order[i];
        order[i] = t;
        permute(events, n, order, k + 1);
        order[i] = order[k];
        order[k] = t;
    }
}

/* Every sequence of six allocations and releases (lost ones included: AA, FF), in all 720 orders of arrival. */
static void any_order_of_arrival(void **state) {
    (void)state;
    for (int pattern = 0; pattern < 64; pattern++) {
        struct event events[6];
        int order[6];
        for (int i = 0; i < 6; i++) {
            events[i] = (struct event){.ns = 10 + (uint64_t)i, .id = i + 1, .death = pattern >> i & 1};
            order[i] = i;
        }
        permute(events, 6, order, 0);
    }
}

static void long_random_runs(void **state) {
    (void)state;
    static struct event events[1000];
    static int order[1000];
    srand(12345);
    for (int run = 0; run < 20; run++) {
        for (int i = 0; i < 1000; i++) {
            events[i] = (struct event){.ns = 10 + (uint64_t)i, .id = i + 1, .death = rand() % 2};
            order[i] = i;
        }
        for (int i = 999; i > 0; i--) {
            int j = rand() % (i + 1), t = order[i];
            order[i] = order[j];
            order[j] = t;
        }
        check(events, 1000, order);
    }
}

/* One thread allocates, another releases; a pass brings all of the first before all of the second. Addresses come
 * again, so without forgetting the table would grow for ever. */
static void memory_is_bounded(void **state) {
    (void)state;
    struct life *l = life_new(note, NULL);
    uint64_t ns = 0, most = 0;
    for (int pass = 0; pass < 1000; pass++) {
        life_next_pass(l);
        for (int i = 0; i < 50; i++) assert_int_equal(life_birth(l, 0x1000, ns + 10 * (uint64_t)i, 1 + i), 0);
        memset(death_of, 0, sizeof death_of);
        for (int i = 0; i < 50; i++) assert_int_equal(life_death(l, 0x1000, ns + 10 * (uint64_t)i + 5, 100 + i), 0);
        for (int i = 0; i < 50; i++) assert_int_equal(death_of[1 + i], 100 + i);
        ns += 500;
        most = life_held(l) > most ? life_held(l) : most;
    }
    assert_in_range(most, 100, 400);
    life_delete(l);
}

static void many_addresses(void **state) {
    (void)state;
    struct life *l = life_new(note, NULL);
    memset(death_of, 0, sizeof death_of);
    for (uint64_t i = 1; i < MOST; i++) assert_int_equal(life_birth(l, i << 21, i, (int64_t)i), 0);
    for (uint64_t i = 1; i < MOST; i += 2) assert_int_equal(life_death(l, i << 21, 10000 + i, (int64_t)(10000 + i)), 0);
    for (uint64_t i = 1; i < MOST; i++) assert_int_equal(death_of[i], i % 2 ? 10000 + i : 0);
    for (int pass = 0; pass < 3; pass++) life_next_pass(l);
    for (uint64_t i = 1; i < 3 * MOST; i++) life_birth(l, i << 30, i, 1); /* growing sweeps what has settled */
    assert_in_range(life_held(l), 3 * MOST, 3 * MOST + MOST / 2 + 8);
    life_delete(l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_order_of_arrival),
        cmocka_unit_test(long_random_runs),
        cmocka_unit_test(memory_is_bounded),
        cmocka_unit_test(many_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
