/* The 16-bit formats by their definition: sign · mantissa · 2^exponent, and rounding to the nearest neighbour. */
#include "tests/unit/vgpu_testing.h"

#include "vgpu/vgpu_blas.h"

#include <math.h>

struct format {
    int bits, bias, largest; /* bits of the mantissa; biased exponent of infinity */
    float (*widen)(uint16_t);
    uint16_t (*narrow)(float);
};

static const struct format half = {10, 15, 31, vgpu_half_to_float, vgpu_float_to_half};
static const struct format bf16 = {7, 127, 255, vgpu_bf16_to_float, vgpu_float_to_bf16};

static double meaning(const struct format *f, unsigned u) {
    int e = (int)(u >> f->bits) & f->largest;
    double m = u & ((1u << f->bits) - 1), s = u & 0x8000 ? -1 : 1;
    if (e == f->largest) return m != 0 ? NAN : s * INFINITY;
    return s * ldexp(e ? m + (1 << f->bits) : m, (e ? e : 1) - f->bias - f->bits);
}

static void check_all(const struct format *f) {
    for (unsigned u = 0; u < 65536; u++) {
        double want = meaning(f, u);
        float got = f->widen((uint16_t)u);
        if (isnan(want)) {
            assert_true(isnan(got));
            assert_true(isnan(f->widen(f->narrow(got))));
        } else {
            assert_true(got == want && !signbit(got) == !signbit(want));
            assert_int_equal(f->narrow(got), u); /* what fits exactly comes back */
        }
    }
}

/* Between two neighbours the nearer one, and in the middle the even one. */
static void check_rounding(const struct format *f) {
    unsigned infinity = (unsigned)f->largest << f->bits;
    for (unsigned u = 0; u < infinity; u++) {
        double low = meaning(f, u), high = u + 1 < infinity ? meaning(f, u + 1) : ldexp(1, f->largest - f->bias);
        float middle = (float)((low + high) / 2);
        if (isinf(middle) || (double)middle != (low + high) / 2)
            continue; /* not a float: beyond fp32's own range or resolution */
        assert_int_equal(f->narrow(middle), u % 2 ? u + 1 : u);
        assert_int_equal(f->narrow(nextafterf(middle, 0)), u);
        assert_int_equal(f->narrow(nextafterf(middle, INFINITY)), u + 1);
        assert_int_equal(f->narrow(-nextafterf(middle, INFINITY)), (u + 1) | 0x8000);
    }
}

static void halves(void **state) {
    (void)state;
    check_all(&half);
    check_rounding(&half);
    assert_int_equal(vgpu_float_to_half(65504), 0x7bff);
    assert_int_equal(vgpu_float_to_half(1e6f), 0x7c00);
    assert_int_equal(vgpu_float_to_half(1e-8f), 0); /* ACCOUNTING section 2: why loss scaling is needed */
}

static void bfloats(void **state) {
    (void)state;
    check_all(&bf16);
    check_rounding(&bf16);
    assert_true(vgpu_bf16_to_float(vgpu_float_to_bf16(1e-8f)) > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(halves),
        cmocka_unit_test(bfloats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
