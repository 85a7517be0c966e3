/* Numbers of the napkin. Expected values are written out, or computed by the compiler. */
#include "plan/plan_number.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void test_whole(void **state) {
    static const struct {
        const char *text;
        enum plan_kind kind;
        int64_t value;
    } good[] = {
        {"70e9", PLAN_COUNT, 70000000000},
        {"70B", PLAN_COUNT, 70000000000},
        {"70b", PLAN_COUNT, 70000000000},
        {"15T", PLAN_COUNT, 15000000000000},
        {"124M", PLAN_COUNT, 124000000},
        {"70.5e9", PLAN_COUNT, 70500000000},
        {"0.1e3", PLAN_COUNT, 100},
        {"1_000", PLAN_COUNT, 1000},
        {"1.50", PLAN_COUNT, -1},
        {"80GB", PLAN_BYTES, 80000000000},
        {"80GiB", PLAN_BYTES, 85899345920},
        {"80 GiB", PLAN_BYTES, 85899345920},
        {"0.5KiB", PLAN_BYTES, 512},
        {"0.3KiB", PLAN_BYTES, -1}, /* 307.2 */
        {"640e9", PLAN_BYTES, 640000000000},
        {"7EiB", PLAN_BYTES, 8070450532247928832},
        {"9223372036854775807", PLAN_COUNT, INT64_MAX},
        {"9223372036854775808", PLAN_COUNT, -1},
        {"1e30", PLAN_COUNT, -1},
        {"1e99999999999999999999", PLAN_COUNT, -1},
        {"0e999999999", PLAN_COUNT, 0},
        {"", PLAN_COUNT, -1},
        {"B", PLAN_BYTES, -1},
        {"12Q", PLAN_COUNT, -1},
        {"80GB", PLAN_COUNT, -1},
        {"1.2.3", PLAN_COUNT, -1},
        {"1e", PLAN_COUNT, -1},
        {"1e+", PLAN_COUNT, -1},
        {"nan", PLAN_COUNT, -1},
        {"inf", PLAN_COUNT, -1},
        {"0x10", PLAN_COUNT, -1},
        {"-3", PLAN_COUNT, -1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        char err[256] = "";
        int64_t v = -7;
        int rc = plan_whole(good[i].text, good[i].kind, PLAN_NOT_NEGATIVE, INT64_MAX, &v, err, sizeof err);
        if (rc != (good[i].value < 0 ? -1 : 0) || (!rc && v != good[i].value))
            fail_msg("'%s' gave %d, %lld: %s", good[i].text, rc, (long long)v, err);
        if (rc && (!strstr(err, good[i].text) || strchr(err, '\n') || v != -7)) fail_msg("'%s': %s", good[i].text, err);
    }
}

static void test_signs(void **state) {
    char err[256];
    int64_t v;
    double x;
    (void)state;
    assert_int_equal(plan_whole("0", PLAN_COUNT, PLAN_POSITIVE, 9, &v, err, sizeof err), -1);
    assert_non_null(strstr(err, "zero"));
    assert_int_equal(plan_whole("-1", PLAN_COUNT, PLAN_POSITIVE, 9, &v, err, sizeof err), -1);
    assert_non_null(strstr(err, "negative"));
    assert_int_equal(plan_whole("-4", PLAN_COUNT, PLAN_ANY, 9, &v, err, sizeof err), 0);
    assert_int_equal(v, -4);
    assert_int_equal(plan_real("-0.5", PLAN_SHARE, PLAN_NOT_NEGATIVE, &x, err, sizeof err), -1);
    assert_int_equal(plan_whole("10", PLAN_COUNT, PLAN_ANY, 9, &v, err, sizeof err), -1);
    assert_non_null(strstr(err, "at most 9"));
}

static void test_real(void **state) {
    static const struct {
        const char *text;
        enum plan_kind kind;
        double value;
    } good[] = {
        {"6.3e24", PLAN_FLOPS, 6.3e24},
        {"1.5TFLOP", PLAN_FLOPS, 1.5e12},
        {"989.4TFLOP/s", PLAN_RATE, 989.4e12},
        {"50%", PLAN_SHARE, 0.5},
        {"0.5", PLAN_SHARE, 0.5},
        {"30d", PLAN_SECONDS, 2592000},
        {"250ms", PLAN_SECONDS, 0.25},
        {"1us", PLAN_SECONDS, 1e-6},
        {"3350GB/s", PLAN_BYTE_RATE, 3.35e12},
        {"2.5", PLAN_MONEY, 2.5},
        {"1M", PLAN_MONEY, 1e6},
        {"0.1", PLAN_COUNT, 0.1},
        {"123456789012345678901234567890123456789012345", PLAN_COUNT, 123456789012345678901234567890123456789012345.0},
        {"4.9e-324", PLAN_COUNT, 4.9e-324},
        {"1e308", PLAN_COUNT, 1e308},
        {"1.7976931348623157e308", PLAN_COUNT, 1.7976931348623157e308}};
    static const char *const bad[] = {"1e309", "1e-400", "1e308k", "", "e5", "5 5", "50%%", "--5"};
    char err[256];
    double v;
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        if (plan_real(good[i].text, good[i].kind, PLAN_POSITIVE, &v, err, sizeof err) || v != good[i].value)
            fail_msg("'%s' gave %.17g: %s", good[i].text, v, err);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (!plan_real(bad[i], PLAN_COUNT, PLAN_ANY, &v, err, sizeof err)) fail_msg("'%s' gave %g", bad[i], v);
}

/* Every double of many reads back as itself from what plan_show writes. */
static void test_show(void **state) {
    static const struct {
        double v;
        const char *text;
    } known[] = {{7e10, "7e10"}, {1.5e13, "1.5e13"}, {1024, "1024"}, {0.5, "0.5"}, {989400000000000, "9.894e14"},
                 {1e-6, "1e-6"}};
    char text[64], err[256];
    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        plan_show(text, sizeof text, known[i].v);
        if (strtod(text, NULL) != known[i].v) fail_msg("%s", text);
        if (known[i].v != 1024 && known[i].v != 7e10) assert_string_equal(text, known[i].text);
    }
    srand(7);
    for (int i = 0; i < 20000; i++) {
        double v = ldexp(1 + (double)rand() / RAND_MAX, rand() % 1000 - 500), back;
        plan_show(text, sizeof text, v);
        assert_int_equal(plan_real(text, PLAN_COUNT, PLAN_ANY, &back, err, sizeof err), 0);
        if (back != v) fail_msg("%s: %.17g %.17g", text, v, back);
    }
}

static void test_lists(void **state) {
    int64_t v[4];
    char err[256];
    (void)state;
    assert_int_equal(plan_list("2,3,4", PLAN_POSITIVE, 1000, 4, v, err, sizeof err), 3);
    assert_true(v[0] == 2 && v[1] == 3 && v[2] == 4);
    assert_int_equal(plan_list("", PLAN_POSITIVE, 1000, 4, v, err, sizeof err), 0);
    assert_int_equal(plan_list("1,2,3,4,5", PLAN_POSITIVE, 1000, 4, v, err, sizeof err), -1);
    assert_int_equal(plan_list("2,,3", PLAN_POSITIVE, 1000, 4, v, err, sizeof err), -1);
    assert_int_equal(plan_list("2,", PLAN_POSITIVE, 1000, 4, v, err, sizeof err), -1);
    assert_int_equal(plan_list("-1,0", PLAN_ANY, 1000, 4, v, err, sizeof err), 2);
}

static int take(const char *name, const char *value, void *context, char *err, size_t err_len) {
    char *all = context;
    (void)err;
    (void)err_len;
    strcat(strcat(strcat(strcat(all, name), ":"), value), ";");
    return 0;
}

static void test_pairs(void **state) {
    char all[64] = "", err[256];
    (void)state;
    assert_int_equal(plan_pairs("a=4,b=1e3", take, all, err, sizeof err), 0);
    assert_string_equal(all, "a:4;b:1e3;");
    assert_int_equal(plan_pairs("a", take, all, err, sizeof err), -1);
    assert_int_equal(plan_pairs("=3", take, all, err, sizeof err), -1);
    assert_int_equal(plan_pairs("a=", take, all, err, sizeof err), -1);
    assert_int_equal(plan_pairs("a=1,", take, all, err, sizeof err), -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_whole), cmocka_unit_test(test_signs),
                                       cmocka_unit_test(test_real),  cmocka_unit_test(test_show),
                                       cmocka_unit_test(test_lists), cmocka_unit_test(test_pairs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
