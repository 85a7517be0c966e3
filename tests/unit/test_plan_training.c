/* The solver of `acct plan train`, conventions and number formats: what the tests of the command line do at length,
 * here once each, so that the sanitizers see it. Expected values are written out. */
#include "plan/plan_convention.h"
#include "plan/plan_formats.h"
#include "plan/plan_training.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static const struct {
    enum plan_quantity q;
    double value;
} run[] = {{PLAN_PARAMETERS, 70e9}, {PLAN_TOKENS, 15e12}, {PLAN_GPUS, 1024},
           {PLAN_PEAK, 989.5e12},   {PLAN_MFU, 0.5},      {PLAN_TIME, 6.3e24 / (1024 * 989.5e12 * 0.5)}};
enum { RUN = sizeof run / sizeof *run };

/* Each of six quantities from the other five. */
static void test_any_one(void **state) {
    char err[600] = "";
    (void)state;
    for (int open = 0; open < RUN; open++) {
        struct plan_training t;
        plan_training_begin(&t);
        for (int i = 0; i < RUN; i++)
            if (i != open) plan_training_give(&t, run[i].q, run[i].value);
        assert_int_equal(plan_training_solve(&t, err, sizeof err), 0);
        assert_true(fabs(t.value[run[open].q] / run[open].value - 1) < 1e-13 && t.by[run[open].q] >= 0);
        assert_true(fabs(t.value[PLAN_TOTAL] / 6.3e24 - 1) < 1e-13);
        assert_true(isnan(t.value[PLAN_COST]) && t.by[PLAN_COST] == PLAN_OPEN);
    }
}

static void test_formula(void **state) {
    struct plan_training t;
    char text[1100], tight[12];
    (void)state;
    plan_training_begin(&t);
    for (int i = 0; i < RUN - 1; i++) plan_training_give(&t, run[i].q, run[i].value);
    assert_int_equal(plan_training_solve(&t, text, sizeof text), 0);
    plan_training_formula(&t, PLAN_TIME, text, sizeof text);
    assert_string_equal(text, "FLOPs / (gpus x peak x MFU) = 6.3e24 / (1024 x 9.895e14 x 0.5)");
    plan_training_formula(&t, PLAN_GPU_HOURS, text, sizeof text);
    assert_non_null(strstr(text, "gpus x time / 3600 = 1024 x "));
    plan_training_formula(&t, PLAN_GPUS, text, sizeof text);
    assert_string_equal(text, ""); /* it was given */
    plan_training_formula(&t, PLAN_TIME, tight, sizeof tight);
    assert_string_equal(tight, "FLOPs / (gp");
}

static void test_contradictions(void **state) {
    static const struct {
        double factor;
        int code;
    } off[] = {{1, 0}, {1.0005, 0}, {0.9995, 0}, {1.002, -1}, {0.5, -1}};
    char err[600];
    (void)state;
    for (size_t k = 0; k < sizeof off / sizeof *off; k++) {
        struct plan_training t;
        plan_training_begin(&t);
        for (int i = 0; i < RUN; i++) plan_training_give(&t, run[i].q, run[i].value * (i == 2 ? off[k].factor : 1));
        *err = 0;
        assert_int_equal(plan_training_solve(&t, err, sizeof err), off[k].code);
        assert_int_equal(strstr(err, "contradiction") != NULL, off[k].code < 0);
    }
    struct plan_training t;
    plan_training_begin(&t);
    plan_training_give(&t, PLAN_PARAMETERS, 1e200);
    plan_training_give(&t, PLAN_TOKENS, 1e200);
    assert_int_equal(plan_training_solve(&t, err, sizeof err), -1);
    assert_non_null(strstr(err, "beyond"));
}

/* 6e15 FLOPs at 1979 TFLOP/s and 2e15 at 989.5 take 5.053 s. */
static void test_mix(void **state) {
    (void)state;
    assert_true(fabs(8e15 / plan_mixed_peak(2, (double[]){6e15, 2e15}, (double[]){1979e12, 989.5e12}) - 5.0530570) <
                1e-6);
}

static void test_conventions(void **state) {
    static const int64_t per_token[PLAN_COUNTS] = {746638848, 741192192, 797815296, 803261952,
                                                   854438400, 855166464, 859885056, 873312768};
    struct plan_model m;
    struct plan_parameters p;
    __int128 a, flops;
    char err[200];
    (void)state;
    assert_int_equal(plan_model_read("layers=12,dim=768,heads=12,seq=1024,vocab=50257", &m, err, sizeof err), 0);
    assert_int_equal(plan_model_parameters(&m, &p, err, sizeof err), 0);
    assert_int_equal(plan_attention_flops(&m, &a), 0);
    for (int c = 0; c < PLAN_COUNTS; c++) {
        enum plan_convention way = (enum plan_convention)c;
        int64_t n = plan_convention_parameters(way, &p);
        assert_int_equal(plan_convention_flops(way, n, 1, a, &flops), 0);
        assert_int_equal((int64_t)flops, per_token[c]);
        assert_int_equal(plan_convention_find(plan_convention_row(way)->name), c < PLAN_CONVENTIONS ? c : -1);
    }
    assert_int_equal(plan_convention_flops(PLAN_6N, INT64_MAX, INT64_MAX, 0, &flops), -1);
}

static void test_formats(void **state) {
    static const struct {
        const char *text, *format;
        double value;
        enum plan_outcome outcome;
        uint64_t bits;
    } known[] = {{"1e-8", "fp16", 0, PLAN_UNDERFLOW, 0},
                 {"1e-8", "bf16", 0x1.58p-27, PLAN_ROUNDED, 0x322c},
                 {"65519.999999999999999999999999", "fp16", 65504, PLAN_ROUNDED, 0x7bff},
                 {"65520", "fp16", INFINITY, PLAN_TO_INFINITY, 0x7c00},
                 {"-464", "e4m3", -448, PLAN_ROUNDED, 0xfe},
                 {"465", "e4m3", 448, PLAN_SATURATED, 0x7e},
                 {"1e-400", "fp64", 0, PLAN_UNDERFLOW, 0},
                 {"5e-324", "fp64", 0x1p-1074, PLAN_SUBNORMAL, 1},
                 {"0.1", "fp64", 0.1, PLAN_ROUNDED, 0x3fb999999999999a},
                 {"-200", "int8", -128, PLAN_SATURATED, 0x80},
                 {"2.5", "int8", 2, PLAN_ROUNDED, 2},
                 {"5", "e2m1", 4, PLAN_ROUNDED, 6}};
    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        struct plan_format f;
        struct plan_value v;
        double value;
        plan_format_get(plan_format_find(known[i].format), &f);
        assert_int_equal(plan_value_read(known[i].text, &v), 0);
        assert_int_equal(plan_format_round(&f, &v, 1, &value), known[i].outcome);
        assert_true(value == known[i].value);
        assert_true(plan_format_bits(&f, value) == known[i].bits);
    }
    struct plan_value v;
    assert_int_equal(plan_value_read("1e", &v), -1);
    assert_int_equal(plan_format_find("fp17"), -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_one), cmocka_unit_test(test_formula),     cmocka_unit_test(test_contradictions),
        cmocka_unit_test(test_mix),     cmocka_unit_test(test_conventions), cmocka_unit_test(test_formats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
