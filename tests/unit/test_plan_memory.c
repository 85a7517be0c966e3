/* Memory by formula against the figures of the books: ACCOUNTING sections 5 (recipes, a transformer's activations) and
 * 6 (the largest model), and where the arithmetic ends. */
#include "plan/plan_memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

/* 2-byte elements with dropout masks: s·b·h·(34 + 5·a·s/h) a layer; without dropout 16 and 1 elements are left. */
static void test_transformer(void **state) {
    static const struct { int64_t s, b, h, a; } of[] = {{1024, 8, 768, 12}, {2048, 1, 12288, 96}, {64, 8, 128, 4}};
    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        int64_t s = of[i].s, b = of[i].b, h = of[i].h, a = of[i].a, square = a * s * s * b;
        assert_int_equal(plan_transformer_bytes(1, s, b, h, a, 2, 1), 34 * s * b * h + 5 * square);
        assert_int_equal(plan_transformer_bytes(3, s, b, h, a, 2, 1), 3 * (34 * s * b * h + 5 * square));
        assert_int_equal(plan_transformer_bytes(1, s, b, h, a, 4, 0), 64 * s * b * h + 4 * square);
    }
    assert_int_equal(plan_transformer_bytes(1000000, 1000000, 1000000, 1000000, 1, 4, 0), -1);
}

/* weights, gradients, master, moments: bytes a parameter */
static const int64_t seen[][4] = {{4, 4, 0, 0}, {4, 4, 0, 4}, {4, 4, 0, 8}, {2, 2, 4, 8}, {2, 4, 4, 8}};
static const int64_t total[] = {8, 12, 16, 16, 18};

static void test_recipes_seen(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof seen / sizeof *seen; i++) {
        struct plan_recipe_seen r = plan_recipe_of(seen[i][0], seen[i][1], seen[i][2] + seen[i][3]);
        assert_true(r.known && r.name);
        assert_int_equal(r.master, seen[i][2]);
        assert_int_equal(r.moments, seen[i][3]);
        assert_int_equal(r.weights + r.grads + r.master + r.moments, total[i]);
    }
    assert_false(plan_recipe_of(4, 4, 3).known); /* no master and moments of 4 bytes give 3 */
    assert_null(plan_recipe_of(2, 2, 0).name);   /* known, but no recipe of the table */
}

static struct plan_memory_question question(const char *recipe, int64_t parameters, int64_t gpus, int zero) {
    char err[1024];
    return (struct plan_memory_question){.recipe = plan_recipe_find(recipe, err, sizeof err),
                                         .parameters = parameters,
                                         .spread = {.gpus = gpus, .tensor = 1, .pipeline = 1, .zero = zero}};
}

static void test_recipes_by_name(void **state) {
    static const char *const names[] = {"fp32-sgd", "fp32-adagrad", "adamw-fp32", "adamw-bf16-master", "megatron"};
    char err[1024];
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct plan_memory_question q = question(names[i], 1000, 1, 0);
        struct plan_memory m;
        assert_int_equal(plan_memory(&q, &m, err, sizeof err), 0);
        for (int p = 0; p < PLAN_PARTS; p++) assert_int_equal(m.term[p].bytes, 1000 * seen[i][p]);
        assert_true(m.total == 1000 * total[i] && m.n == PLAN_PARTS);
    }
    assert_null(plan_recipe_find("adamw-fp33", err, sizeof err));
    assert_non_null(strstr(err, "'adamw-fp33'"));
    for (int i = 0; plan_recipe_at(i); i++) assert_non_null(strstr(err, plan_recipe_at(i)->name));
}

/* 8 GPUs of 80e9 bytes, AdamW in fp32, all divided: 640e9 / 16. */
static void test_largest(void **state) {
    struct plan_memory_question q = question("adamw-fp32", 1, 8, 3);
    char err[256];
    int64_t n;
    (void)state;
    assert_int_equal(plan_memory_fit(&q, &q.parameters, INT64_MAX - 1, 80000000000, &n, err, sizeof err), 0);
    assert_int_equal(n, 40000000000);
    assert_int_equal(q.parameters, 1);
    assert_int_equal(plan_memory_fit(&q, &q.parameters, 1000, 80000000000, &n, err, sizeof err), 0);
    assert_int_equal(n, 1000);
    assert_int_equal(plan_memory_fit(&q, &q.parameters, 1000, 15, &n, err, sizeof err), 0);
    assert_int_equal(n, 0);
}

static void test_beyond_what_can_be_counted(void **state) {
    const int64_t T = 1000000000000;
    struct plan_model model = {.layers = T,
                               .dim = T,
                               .heads = 1,
                               .head = T,
                               .kv_heads = 1,
                               .ff = T,
                               .seq = T,
                               .batch = T,
                               .vocab = 1,
                               .tied = 1};
    struct plan_memory_question q = question("adamw-fp32", 1, 1, 0);
    struct plan_memory m;
    char err[256] = "";
    (void)state;
    q.model = &model;
    assert_int_equal(plan_memory(&q, &m, err, sizeof err), -1);
    assert_string_equal(err, "the bytes are more than 1.7e38");
    q.parameters = 0;
    assert_int_equal(plan_memory(&q, &m, err, sizeof err), -1);
    assert_non_null(strstr(err, "9.2e18"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_transformer), cmocka_unit_test(test_recipes_seen),
                                       cmocka_unit_test(test_recipes_by_name), cmocka_unit_test(test_largest),
                                       cmocka_unit_test(test_beyond_what_can_be_counted)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
