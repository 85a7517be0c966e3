/* Rounding to bf16 and fp16 on the host: every number of the formats, and the halves between two neighbours. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "sample_app/host_formats.h"

/* The value of a bit pattern, from the layout alone: `m` bits of mantissa, exponent of bias `bias`. */
static double value_of(uint16_t bits, int m, int bias) {
    int exponent = (bits & 0x7fff) >> m, mantissa = bits & ((1 << m) - 1);
    double size = exponent ? ldexp(mantissa + (1 << m), exponent - bias - m) : ldexp(mantissa, 1 - bias - m);
    return bits & 0x8000 ? -size : size;
}

static void check_format(enum number_format format, int m, int bias) {
    int infinity = 0x7fff >> m << m;
    for (int bits = 0; bits < infinity; bits++) {
        for (int sign = 0; sign <= 0x8000; sign += 0x8000) {
            uint16_t pattern = (uint16_t)(bits | sign), next = (uint16_t)(pattern + 1), got;
            double next_value = value_of(next, m, bias); /* after the largest: what would come if it were no infinity */
            float x = (float)value_of(pattern, m, bias), up = (float)next_value;
            host_put(format, &got, 0, x);
            assert_int_equal(got, pattern);
            assert_true(host_get(format, &pattern, 0) == x);
            /* Half way to the next: to the even one; a little less or more: to the nearer. */
            float half = (float)((x + next_value) / 2);
            host_put(format, &got, 0, half);
            assert_int_equal(got, pattern & 1 ? next : pattern);
            host_put(format, &got, 0, nextafterf(half, x));
            assert_int_equal(got, pattern);
            host_put(format, &got, 0, nextafterf(half, up));
            assert_int_equal(got, next);
        }
    }
    uint16_t got;
    host_put(format, &got, 0, INFINITY);
    assert_int_equal(got, infinity);
    assert_true(isinf(host_get(format, &got, 0)));
    host_put(format, &got, 0, NAN);
    assert_true((got & 0x7fff) > infinity && isnan(host_get(format, &got, 0)));
}

static void fp16(void **state) {
    (void)state;
    check_format(FORMAT_FP16, 10, 15);
}

static void bf16(void **state) {
    (void)state;
    check_format(FORMAT_BF16, 7, 127);
}

static void fp32_is_itself(void **state) {
    (void)state;
    float to;
    host_put(FORMAT_FP32, &to, 0, 1e-42f);
    assert_true(to == 1e-42f && host_get(FORMAT_FP32, &to, 0) == 1e-42f);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(fp16), cmocka_unit_test(bf16),
                                       cmocka_unit_test(fp32_is_itself)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
