/* Bytes and operands of products of cuBLASLt, and its transformations. Expected values are worked out by hand from the
 * definition of each operand: D = epilogue(alpha op(A) op(B) + beta C + bias). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "tests/unit/cost_testing.h"

#define N64 ACCT_NULL_I64
enum { A = 0x10000, B = 0x20000, C = 0x30000, D = 0x40000, BIAS = 0x50000, AUX = 0x60000, SCALE = 0x70000 };

/* D (24×16, bf16) = A (24×8, bf16) · B (8×16, bf16), without any addition. */
static struct cost_gemm product(void) {
    return (struct cost_gemm){.trans_a = ACCT_trans_N,
                              .trans_b = ACCT_trans_N,
                              .m = 24,
                              .n = 16,
                              .k = 8,
                              .batch = 1,
                              .a = A,
                              .b = B,
                              .c = C,
                              .d = D,
                              .lda = 24,
                              .ldb = 8,
                              .ldc = 24,
                              .ldd = 24,
                              .stride_a = N64,
                              .stride_b = N64,
                              .stride_c = N64,
                              .stride_d = N64,
                              .bias_length = N64,
                              .stride_bias = N64,
                              .ldaux = N64,
                              .stride_aux = N64,
                              .a_type = ACCT_dtype_BF16,
                              .b_type = ACCT_dtype_BF16,
                              .c_type = ACCT_dtype_BF16,
                              .d_type = ACCT_dtype_BF16,
                              .compute = ACCT_compute_FP32,
                              .alpha = ACCT_scalar_ONE,
                              .beta = ACCT_scalar_ZERO};
}
enum { FLOPS = 2 * 24 * 16 * 8, READ = 2 * (24 * 8 + 8 * 16), RESULT = 2 * 24 * 16 };

static struct cost_gemm with_bias(uint32_t epilogue, int64_t length) {
    struct cost_gemm g = product();
    g.epilogue = epilogue;
    g.bias = BIAS;
    g.bias_length = length;
    g.bias_type = ACCT_dtype_BF16;
    return g;
}

static struct cost_gemm with_aux(uint32_t epilogue, int64_t ld, uint32_t type) {
    struct cost_gemm g = product();
    g.epilogue = epilogue;
    g.aux = AUX;
    g.ldaux = ld;
    g.aux_type = type;
    return g;
}

static struct cost cost(struct cost_gemm g) {
    struct cost c;
    cost_of_gemm(&g, &c);
    return c;
}

static void result_beside_the_addend(void **state) {
    (void)state;
    struct cost_gemm g = product();
    struct cost c = cost(g);
    check(c, FLOPS, READ, RESULT);
    assert_int_equal(c.operands, 3);
    assert_null(operand(&c, "C")); /* beta = 0: not touched */
    check_operand(&c, "D", D, RESULT, COST_W);
    g.beta = ACCT_scalar_VALUE;
    g.c_type = ACCT_dtype_FP32;
    g.ldd = 30;
    c = cost(g);
    check(c, FLOPS, READ + 4 * 24 * 16, RESULT);
    check_operand(&c, "C", C, 4 * 24 * 16, COST_R);
    check_operand(&c, "D", D, 2 * (15 * 30 + 24), COST_W);
    assert_int_equal(c.grade, COST_EXACT);
    g.beta = ACCT_scalar_DEVICE; /* nobody knows whether C is read; it is not written */
    c = cost(g);
    assert_int_equal(c.grade, COST_BOUND);
    check_operand(&c, "C", C, 4 * 24 * 16, COST_R);
}

/* A beside-result is written whatever becomes of the product. */
static void result_without_a_product(void **state) {
    (void)state;
    struct cost_gemm g = product();
    g.k = 0;
    g.beta = ACCT_scalar_ONE;
    struct cost c = cost(g);
    check(c, 0, RESULT, RESULT);
    check_operand(&c, "D", D, RESULT, COST_W);
    g.d = 0; /* in place, nothing is added, no epilogue: nothing happens */
    check(cost(g), 0, 0, 0);
    g.epilogue = ACCT_epilogue_RELU;
    check(cost(g), 0, RESULT, RESULT);
}

static void bias_is_read_and_its_gradient_written(void **state) {
    static const uint32_t reads[] = {ACCT_epilogue_BIAS, ACCT_epilogue_RELU_BIAS, ACCT_epilogue_GELU_BIAS};
    static const uint32_t writes[] = {ACCT_epilogue_DRELU_BGRAD, ACCT_epilogue_DGELU_BGRAD, ACCT_epilogue_BGRADA};
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct cost c = cost(with_bias(reads[i], 24));
        check(c, FLOPS, READ + 48, RESULT);
        check_operand(&c, "bias", BIAS, 48, COST_R);
        c = cost(with_bias(writes[i], 24));
        check(c, FLOPS, READ, RESULT + 48);
        check_operand(&c, "bias", BIAS, 48, COST_W);
    }
    struct cost c = cost(with_bias(ACCT_epilogue_BGRADB, 16)); /* one element a column */
    check(c, FLOPS, READ, RESULT + 32);
}

static void aux_is_kept_forward_and_read_backward(void **state) {
    (void)state;
    struct cost c = cost(with_aux(ACCT_epilogue_GELU_AUX, 32, ACCT_dtype_BF16));
    check(c, FLOPS, READ, RESULT + 2 * 24 * 16);
    check_operand(&c, "aux", AUX, 2 * (15 * 32 + 24), COST_W);
    c = cost(with_aux(ACCT_epilogue_DGELU, 32, ACCT_dtype_FP16));
    check(c, FLOPS, READ + 2 * 24 * 16, RESULT);
    check_operand(&c, "aux", AUX, 2 * (15 * 32 + 24), COST_R);
    c = cost(with_aux(ACCT_epilogue_RELU_AUX, 128, 0)); /* a bit an element: 3 bytes a column, 16 bytes apart */
    check(c, FLOPS, READ, RESULT + 3 * 16);
    check_operand(&c, "aux", AUX, 15 * 16 + 3, COST_W);
    c = cost(with_aux(ACCT_epilogue_DRELU, 128, 0));
    check(c, FLOPS, READ + 3 * 16, RESULT);
    check_operand(&c, "aux", AUX, 15 * 16 + 3, COST_R);
}

static void batches_have_each_their_own(void **state) {
    (void)state;
    struct cost_gemm g = with_bias(ACCT_epilogue_GELU_AUX_BIAS, 24);
    g.batch = 5;
    g.stride_a = 0; /* one A for all */
    g.stride_b = 1000, g.stride_c = g.stride_d = 2000;
    g.stride_bias = 24;
    g.aux = AUX, g.ldaux = 24, g.stride_aux = 640, g.aux_type = ACCT_dtype_BF16;
    struct cost c = cost(g);
    check(c, 5 * FLOPS, 2 * (24 * 8 + 5 * 8 * 16) + 5 * 48, 5 * RESULT + 5 * 2 * 24 * 16);
    check_operand(&c, "D", D, 2 * (4 * 2000 + 24 * 16), COST_W);
    check_operand(&c, "bias", BIAS, 2 * (4 * 24 + 24), COST_R);
    check_operand(&c, "aux", AUX, 2 * (4 * 640 + 24 * 16), COST_W);
    g.stride_bias = 0; /* one bias for all */
    c = cost(g);
    check_operand(&c, "bias", BIAS, 48, COST_R);
    assert_int_equal(c.bytes_read, 2 * (24 * 8 + 5 * 8 * 16) + 48);
    g.pointer_array = 1; /* where the matrices are is in device memory; the bias is where it says */
    c = cost(g);
    assert_int_equal(c.operands, 2);
    check_operand(&c, "bias", BIAS, 48, COST_R);
}

static struct cost_gemm fp8(void) {
    struct cost_gemm g = product();
    g.m = 256, g.n = 384, g.k = 160;
    g.trans_a = ACCT_trans_T;
    g.lda = g.ldb = 160;
    g.ldc = g.ldd = 256;
    g.a_type = ACCT_dtype_FP8_E4M3, g.b_type = ACCT_dtype_FP8_E5M2;
    g.a_scale = SCALE, g.b_scale = SCALE + 0x1000;
    g.a_scale_mode = g.b_scale_mode = ACCT_scale_mode_SCALAR;
    return g;
}

static void scales_are_operands(void **state) {
    const int64_t factors = 256 * 160 + 384 * 160, result = 2 * 256 * 384;
    (void)state;
    struct cost_gemm g = fp8();
    struct cost c = cost(g);
    check(c, 2ll * 256 * 384 * 160, factors + 8, result);
    check_operand(&c, "A", A, 256 * 160, COST_R);
    check_operand(&c, "a_scale", SCALE, 4, COST_R);
    check_operand(&c, "b_scale", SCALE + 0x1000, 4, COST_R);
    assert_string_equal(cost_gemm_dtype(&g, &(struct cost_machine){.cc_major = 9}), "fp8");
    g.d_type = ACCT_dtype_FP8_E4M3;
    g.beta = ACCT_scalar_ONE;
    g.c_scale = SCALE + 8, g.d_scale = SCALE + 12, g.amax_d = SCALE + 16;
    c = cost(g);
    check(c, 2ll * 256 * 384 * 160, factors + result + 16, 256 * 384 + 4);
    check_operand(&c, "d_scale", SCALE + 12, 4, COST_R);
    check_operand(&c, "amax_d", SCALE + 16, 4, COST_W);
    g.alpha = ACCT_scalar_ZERO; /* no factor is read, nor what scales it */
    c = cost(g);
    assert_null(operand(&c, "a_scale"));
}

static void scales_of_blocks_have_the_size_of_their_matrix(void **state) {
    static const struct {
        uint32_t mode;
        int64_t a, b; /* A: 256 rows of 160, B: 384 columns of 160 */
    } modes[] = {{ACCT_scale_mode_OUTER_VEC, 4 * 256, 4 * 384},
                 {ACCT_scale_mode_VEC16, 256 * 10, 384 * 10},
                 {ACCT_scale_mode_VEC32, 256 * 5, 384 * 5},
                 {ACCT_scale_mode_VEC128, 4 * 256 * 2, 4 * 384 * 2},
                 {ACCT_scale_mode_BLK128X128, 4 * 2 * 2, 4 * 3 * 2}};
    (void)state;
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        struct cost_gemm g = fp8();
        g.a_scale_mode = g.b_scale_mode = modes[i].mode;
        struct cost c = cost(g);
        check_operand(&c, "a_scale", SCALE, modes[i].a, COST_R);
        check_operand(&c, "b_scale", SCALE + 0x1000, modes[i].b, COST_R);
        assert_int_equal(c.bytes_read, 256 * 160 + 384 * 160 + modes[i].a + modes[i].b);
    }
    struct cost_gemm g = fp8();
    g.d_out_scale = SCALE + 0x2000; /* D: 384 columns of 256 */
    g.d_out_scale_mode = ACCT_scale_mode_VEC32;
    struct cost c = cost(g);
    check_operand(&c, "d_out_scale", SCALE + 0x2000, 384 * 8, COST_W);
    g.a_scale_mode = ACCT_scale_mode_OTHER; /* not known: nor are the bytes */
    c = cost(g);
    check_operand(&c, "a_scale", SCALE, COST_UNKNOWN, COST_R);
    assert_int_equal(c.bytes_read, COST_UNKNOWN);
}

static struct cost_blas transform(void) {
    return (struct cost_blas){.routine = "transform",
                              .type = ACCT_dtype_FP32,
                              .a_type = ACCT_dtype_FP32,
                              .m = 20,
                              .n = 30,
                              .k = N64,
                              .kl = N64,
                              .ku = N64,
                              .batch = 1,
                              .a = A,
                              .c = C,
                              .lda = 22,
                              .ldb = N64,
                              .ldc = 20,
                              .stride_a = N64,
                              .stride_b = N64,
                              .stride_c = N64,
                              .trans_a = ACCT_trans_N,
                              .alpha = ACCT_scalar_ONE,
                              .beta = ACCT_scalar_ZERO};
}

static struct cost transformed(struct cost_blas b) {
    struct cost c;
    cost_of_blas(&b, &c);
    return c;
}

static void transform_moves_or_computes(void **state) {
    (void)state;
    struct cost_blas b = transform();
    struct cost c = transformed(b);
    check(c, 0, 4 * 600, 4 * 600);
    assert_int_equal(c.role, COST_COPY);
    check_operand(&c, "A", A, 4 * (29 * 22 + 20), COST_R);
    check_operand(&c, "C", C, 4 * 600, COST_W);
    b.type = ACCT_dtype_INT8; /* another type: no copy, though nothing is computed */
    c = transformed(b);
    check(c, 0, 4 * 600, 600);
    assert_int_equal(c.role, COST_KERNEL);
    b = transform();
    b.trans_a = ACCT_trans_T;
    b.lda = 31;
    c = transformed(b);
    assert_int_equal(c.role, COST_KERNEL);
    check_operand(&c, "A", A, 4 * (19 * 31 + 30), COST_R);
    b = transform();
    b.alpha = ACCT_scalar_VALUE; /* an operation an element, as geam */
    check(transformed(b), 600, 4 * 600, 4 * 600);
    b.b = B, b.b_type = ACCT_dtype_FP16, b.ldb = 20, b.beta = ACCT_scalar_ONE;
    c = transformed(b);
    check(c, 600, 4 * 600 + 2 * 600, 4 * 600);
    check_operand(&c, "B", B, 2 * 600, COST_R);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(result_beside_the_addend),
        cmocka_unit_test(result_without_a_product),
        cmocka_unit_test(bias_is_read_and_its_gradient_written),
        cmocka_unit_test(aux_is_kept_forward_and_read_backward),
        cmocka_unit_test(batches_have_each_their_own),
        cmocka_unit_test(scales_are_operands),
        cmocka_unit_test(scales_of_blocks_have_the_size_of_their_matrix),
        cmocka_unit_test(transform_moves_or_computes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
