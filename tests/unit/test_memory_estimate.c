/* The formulas behind "estimate against measured" and the rounding of the driver's account, against the figures of the
 * books: ACCOUNTING section 5 (recipes, a transformer's activations), and pieces of 2 MiB. */
#include "analyzer/memory_estimate.h"
#include "analyzer/memory_reconcile.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

/* 2-byte elements with dropout masks: s·b·h·(34 + 5·a·s/h) a layer; without masks 16 and 2 elements are left. */
static void test_transformer(void **state) {
    static const struct { int64_t s, b, h, a; } of[] = {{1024, 8, 768, 12}, {2048, 1, 12288, 96}, {64, 8, 128, 4}};
    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        int64_t s = of[i].s, b = of[i].b, h = of[i].h, a = of[i].a, square = a * s * s * b;
        assert_int_equal(memory_transformer_bytes(1, s, b, h, a, 2, 1), 34 * s * b * h + 5 * square);
        assert_int_equal(memory_transformer_bytes(3, s, b, h, a, 2, 1), 3 * (34 * s * b * h + 5 * square));
        assert_int_equal(memory_transformer_bytes(1, s, b, h, a, 4, 0), 64 * s * b * h + 8 * square);
    }
}

/* weights, gradients, master, moments: bytes a parameter */
static void test_recipes(void **state) {
    static const int64_t table[][4] = {{4, 4, 0, 0}, {4, 4, 0, 4}, {4, 4, 0, 8}, {2, 2, 4, 8}, {2, 4, 4, 8}};
    static const int64_t total[] = {8, 12, 16, 16, 18};
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct memory_recipe r = memory_recipe_of(table[i][0], table[i][1], table[i][2] + table[i][3]);
        assert_true(r.known && r.name);
        assert_int_equal(r.master, table[i][2]);
        assert_int_equal(r.moments, table[i][3]);
        assert_int_equal(r.weights + r.grads + r.master + r.moments, total[i]);
    }
    assert_false(memory_recipe_of(4, 4, 3).known); /* no master and moments of 4 bytes give 3 */
    assert_null(memory_recipe_of(2, 2, 0).name);   /* known, but no recipe of the table */
}

static void test_rounding(void **state) {
    const int64_t M = 1 << 20;
    struct memory_rounding m = {0};
    (void)state;
    memory_rounding_add(&m, 3 * M); /* two pieces */
    assert_int_equal(memory_rounding_bytes(&m), M);
    memory_rounding_add(&m, 1); /* 512 bytes of a third */
    assert_int_equal(memory_rounding_bytes(&m), M + 2 * M - 1);
    for (int i = 0; i < 4095; i++) memory_rounding_add(&m, 512); /* that piece is full now */
    assert_int_equal(memory_rounding_bytes(&m), M + 511);
    memory_rounding_add(&m, 512);
    assert_int_equal(memory_rounding_bytes(&m), M + 511 + 2 * M - 512);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_transformer), cmocka_unit_test(test_recipes),
                                       cmocka_unit_test(test_rounding)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
