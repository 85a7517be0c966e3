/* The small formats by their definition: sign · mantissa · 2^exponent, and rounding to the nearest neighbour. */
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

/* ---- fp8: no infinity in E4M3, and whatever is too large stays at the largest number ---- */

struct small {
    int bits, bias;
    unsigned largest, nans; /* the largest number; from here up to 0x7f: no numbers */
    float (*widen)(uint8_t);
    uint8_t (*narrow)(float);
};

static const struct small e4m3 = {3, 7, 0x7e, 0x7f, vgpu_e4m3_to_float, vgpu_float_to_e4m3};
static const struct small e5m2 = {2, 15, 0x7b, 0x7d, vgpu_e5m2_to_float, vgpu_float_to_e5m2};

static double small_meaning(const struct small *f, unsigned u) {
    unsigned a = u & 0x7f, e = a >> f->bits;
    double m = a & ((1u << f->bits) - 1), s = u & 0x80 ? -1 : 1;
    if (a >= f->nans) return NAN;
    if (a > f->largest) return s * INFINITY;
    return s * ldexp(e ? m + (1 << f->bits) : m, (int)(e ? e : 1) - f->bias - f->bits);
}

static void check_small(const struct small *f) {
    float largest = (float)small_meaning(f, f->largest);
    for (unsigned u = 0; u < 256; u++) {
        double want = small_meaning(f, u);
        float got = f->widen((uint8_t)u);
        if (isnan(want)) {
            assert_true(isnan(got) && isnan(f->widen(f->narrow(got))));
            continue;
        }
        assert_true(got == want && !signbit(got) == !signbit(want));
        assert_int_equal(f->narrow(got), isinf(want) ? f->largest | (u & 0x80) : u);
    }
    for (unsigned u = 0; u < f->largest; u++) {
        float middle = (float)((small_meaning(f, u) + small_meaning(f, u + 1)) / 2);
        assert_int_equal(f->narrow(middle), u % 2 ? u + 1 : u);
        assert_int_equal(f->narrow(nextafterf(middle, 0)), u);
        assert_int_equal(f->narrow(nextafterf(middle, INFINITY)), u + 1);
        assert_int_equal(f->narrow(-middle), (u % 2 ? u + 1 : u) | 0x80);
    }
    assert_int_equal(f->narrow(largest * 1.01f), f->largest);
    assert_int_equal(f->narrow(INFINITY), f->largest);
    assert_int_equal(f->narrow(-1e30f), f->largest | 0x80);
    assert_int_equal(f->narrow(1e-30f), 0);
}

static void fp8(void **state) {
    (void)state;
    check_small(&e4m3);
    check_small(&e5m2);
    assert_true(vgpu_e4m3_to_float(0x7e) == 448 && vgpu_e5m2_to_float(0x7b) == 57344);
}

/* To 10 bits after the point: half a step goes away from 0. */
static void tf32(void **state) {
    static const float rows[][2] = {
        {1, 1},
        {1 + 0x1p-10f, 1 + 0x1p-10f},
        {1 + 0x1p-11f, 1 + 0x1p-10f},
        {0x1.001ffep0f, 1},
        {-1 - 0x1p-11f, -1 - 0x1p-10f},
        {0x1.fffffep127f, INFINITY},
        {INFINITY, INFINITY},
        {0, 0},
        {0x1p-137f, 0x1p-136f}, /* among subnormal numbers too */
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (vgpu_float_to_tf32(rows[i][0]) != rows[i][1])
            fail_msg("%a is %a", (double)rows[i][0], (double)vgpu_float_to_tf32(rows[i][0]));
    assert_true(isnan(vgpu_float_to_tf32(NAN)));
}

/* The loops over many, whatever the processor, do what is done to one: all 16-bit patterns, all high halves of fp32,
 * and every length up to that of several registers. */
static void many_as_one(void **state) {
    enum { N = 1 << 18 };
    static const cudaDataType_t types[] = {CUDA_R_16F, CUDA_R_16BF, CUDA_R_8F_E4M3, CUDA_R_8F_E5M2, CUDA_R_8I};
    (void)state;
    float *wide = test_malloc(N * sizeof *wide), *back = test_malloc(N * sizeof *back);
    uint8_t *narrow = test_malloc(2 * N), *one = test_malloc(2 * N);
    for (uint32_t i = 0; i < N; i++) wide[i] = vgpu_float_of(i << 14 | (i * 2654435761u >> 18));
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        size_t bytes = vgpu_element_bytes(types[t]);
        for (int64_t n = 0; n < 40; n++) { /* odd beginnings and lengths */
            memset(narrow, 0xaa, 64 * bytes);
            vgpu_narrow(types[t], wide + n, narrow, n);
            for (int64_t i = 0; i < n; i++) vgpu_store(types[t], one, i, (double)wide[n + i]);
            assert_memory_equal(narrow, one, (size_t)n * bytes);
            assert_int_equal(narrow[(size_t)n * bytes], 0xaa);
        }
        vgpu_narrow(types[t], wide, narrow, N);
        for (int64_t i = 0; i < N; i++) vgpu_store(types[t], one, i, (double)wide[i]);
        for (int64_t i = 0; i < N; i++)
            if (!isnan(wide[i]) && memcmp(narrow + (size_t)i * bytes, one + (size_t)i * bytes, bytes))
                fail_msg("type %d: %a", types[t], (double)wide[i]);
        vgpu_widen(types[t], narrow, back, N);
        for (int64_t i = 0; i < N; i++) {
            float single = (float)vgpu_load(types[t], narrow, i);
            assert_true(back[i] == single || (isnan(back[i]) && isnan(single)));
        }
    }
    vgpu_round(VGPU_ROUND_TF32, wide, back, N);
    for (int64_t i = 0; i < N; i++)
        assert_true(back[i] == vgpu_float_to_tf32(wide[i]) || (isnan(back[i]) && isnan(wide[i])));
    test_free(wide), test_free(back), test_free(narrow), test_free(one);
}

/* Memory comes back, not too large for what is asked, and a few blocks at most are kept. */
static void scratch(void **state) {
    (void)state;
    void *all[20], *first = vgpu_scratch_take(1000);
    vgpu_scratch_give(first);
    assert_ptr_equal(vgpu_scratch_take(900), first);
    void *other = vgpu_scratch_take(900);
    assert_true(other && other != first && (uintptr_t)other % 64 == 0);
    vgpu_scratch_give(first);
    void *tiny = vgpu_scratch_take(10);
    assert_ptr_not_equal(tiny, first);
    vgpu_scratch_give(tiny);
    vgpu_scratch_give(other);
    for (int i = 0; i < 20; i++) memset(all[i] = vgpu_scratch_take((size_t)i * 5000), i, (size_t)i * 5000);
    for (int i = 0; i < 20; i++) vgpu_scratch_give(all[i]);
    assert_null(vgpu_scratch_take(SIZE_MAX - 5));
    vgpu_scratch_give(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(halves), cmocka_unit_test(bfloats),     cmocka_unit_test(fp8),
        cmocka_unit_test(tf32),   cmocka_unit_test(many_as_one), cmocka_unit_test(scratch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
