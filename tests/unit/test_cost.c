/* FLOPs, bytes and extents of library calls. Expected values are worked out from the formulas of LAPACK working note 41
 * and the definition of each operand, by hand, with small numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "tests/unit/cost_testing.h"

#define A 0x10000u
#define B 0x20000u
#define C 0x30000u

static struct cost_gemm gemm(int64_t m, int64_t n, int64_t k) {
    return (struct cost_gemm){.trans_a = ACCT_trans_N,
                              .trans_b = ACCT_trans_N,
                              .m = m,
                              .n = n,
                              .k = k,
                              .batch = 1,
                              .a = A,
                              .b = B,
                              .c = C,
                              .lda = m,
                              .ldb = k,
                              .ldc = m,
                              .stride_a = ACCT_NULL_I64,
                              .stride_b = ACCT_NULL_I64,
                              .stride_c = ACCT_NULL_I64,
                              .a_type = ACCT_dtype_FP32,
                              .b_type = ACCT_dtype_FP32,
                              .c_type = ACCT_dtype_FP32,
                              .compute = ACCT_compute_FP32,
                              .alpha = ACCT_scalar_ONE,
                              .beta = ACCT_scalar_ZERO,
                              .math_mode = 0};
}

static struct cost cost_gemm(struct cost_gemm g) {
    struct cost c;
    cost_of_gemm(&g, &c);
    return c;
}

static struct cost_blas blas(const char *routine, int64_t m, int64_t n, int64_t k) {
    return (struct cost_blas){.routine = routine,
                              .type = ACCT_dtype_FP32,
                              .m = m,
                              .n = n,
                              .k = k,
                              .kl = ACCT_NULL_I64,
                              .ku = ACCT_NULL_I64,
                              .batch = 1,
                              .a = A,
                              .b = B,
                              .c = C,
                              .lda = ACCT_NULL_I64,
                              .ldb = ACCT_NULL_I64,
                              .ldc = ACCT_NULL_I64,
                              .stride_a = ACCT_NULL_I64,
                              .stride_b = ACCT_NULL_I64,
                              .stride_c = ACCT_NULL_I64,
                              .side = ACCT_side_LEFT,
                              .uplo = ACCT_uplo_LOWER,
                              .trans_a = ACCT_trans_N,
                              .trans_b = ACCT_trans_N,
                              .alpha = ACCT_scalar_ONE,
                              .beta = ACCT_scalar_ZERO};
}

static struct cost cost_blas(struct cost_blas b) {
    struct cost c;
    cost_of_blas(&b, &c);
    return c;
}

/* ---- GEMM -----------------------------------------------------------------------------------------------------------
 */
static void gemm_counts_a_multiply_add_as_two(void **state) {
    (void)state;
    struct cost c = cost_gemm(gemm(2, 3, 5));
    check(c, 2 * 2 * 3 * 5, 4 * (10 + 15), 4 * 6);
    assert_int_equal(c.grade, COST_EXACT);
    assert_int_equal(c.matmul, 1);
    check_operand(&c, "A", A, 40, COST_R);
    check_operand(&c, "B", B, 60, COST_R);
    check_operand(&c, "C", C, 24, COST_W);
}

static void gemm_leading_dimension_is_extent_not_traffic(void **state) {
    (void)state;
    struct cost_gemm g = gemm(2, 3, 5);
    g.lda = 10; /* 5 columns: (5 - 1) * 10 + 2 = 42 elements */
    g.ldc = 7;  /* 3 columns: 2 * 7 + 2 = 16 */
    struct cost c = cost_gemm(g);
    check(c, 60, 100, 24);
    check_operand(&c, "A", A, 42 * 4, COST_R);
    check_operand(&c, "C", C, 16 * 4, COST_W);
}

static void gemm_transposed_operands_are_stored_the_other_way(void **state) {
    (void)state;
    struct cost_gemm g = gemm(2, 3, 5);
    g.trans_a = ACCT_trans_T; /* stored 5 x 2 */
    g.lda = 6;                /* 1 * 6 + 5 = 11 */
    g.trans_b = ACCT_trans_C; /* stored 3 x 5 */
    g.ldb = 4;                /* 4 * 4 + 3 = 19 */
    struct cost c = cost_gemm(g);
    check_operand(&c, "A", A, 44, COST_R);
    check_operand(&c, "B", B, 76, COST_R);
}

/* op(A) contracts its columns, op(B) its rows: which stored axis that is depends on the transpose. */
static void gemm_contracted_axis_is_of_the_stored_matrix(void **state) {
    (void)state;
    struct cost_gemm g = gemm(2, 2, 2);
    struct cost c = cost_gemm(g);
    assert_int_equal(operand(&c, "A")->axis, 1);
    assert_int_equal(operand(&c, "B")->axis, 0);
    g.trans_a = g.trans_b = ACCT_trans_T;
    c = cost_gemm(g);
    assert_int_equal(operand(&c, "A")->axis, 0);
    assert_int_equal(operand(&c, "B")->axis, 1);
}

static void gemm_beta_decides_whether_c_is_read(void **state) {
    (void)state;
    struct cost_gemm g = gemm(2, 3, 5);
    g.beta = ACCT_scalar_ONE;
    struct cost c = cost_gemm(g);
    check(c, 60, 100 + 24, 24);
    check_operand(&c, "C", C, 24, COST_RW);
    g.beta = ACCT_scalar_DEVICE;
    c = cost_gemm(g);
    check(c, 60, 124, 24);
    assert_int_equal(c.grade, COST_BOUND);
    check_operand(&c, "C", C, 24, COST_EITHER);
}

static void gemm_alpha_zero_reads_no_factor(void **state) {
    (void)state;
    struct cost_gemm g = gemm(2, 3, 5);
    g.alpha = ACCT_scalar_ZERO;
    check(cost_gemm(g), 60, 0, 24); /* alpha never changes the FLOPs */
    g.beta = ACCT_scalar_VALUE;
    check(cost_gemm(g), 60, 24, 24);
    g.beta = ACCT_scalar_ONE;
    struct cost c = cost_gemm(g);
    check(c, 60, 0, 0);
    assert_int_equal(c.operands, 0);
    g = gemm(2, 3, 5);
    g.alpha = ACCT_scalar_DEVICE;
    c = cost_gemm(g);
    check(c, 60, 100, 24);
    assert_int_equal(c.grade, COST_BOUND);
}

static void gemm_of_nothing_is_nothing(void **state) {
    (void)state;
    check(cost_gemm(gemm(0, 3, 5)), 0, 0, 0);
    check(cost_gemm(gemm(2, 0, 5)), 0, 0, 0);
    struct cost_gemm g = gemm(2, 3, 5);
    g.batch = 0;
    check(cost_gemm(g), 0, 0, 0);
    check(cost_gemm(gemm(2, 3, 0)), 0, 0, 24); /* k = 0: C is cleared */
    g = gemm(2, 3, 0);
    g.beta = ACCT_scalar_ONE;
    check(cost_gemm(g), 0, 0, 0);
    g.beta = ACCT_scalar_VALUE;
    check(cost_gemm(g), 0, 24, 24);
}

static void gemm_batch_stride_zero_is_one_matrix(void **state) {
    (void)state;
    struct cost_gemm g = gemm(2, 3, 5);
    g.batch = 4;
    g.stride_a = 10;
    g.stride_b = 0;
    g.stride_c = 8;
    struct cost c = cost_gemm(g);
    check(c, 4 * 60, 4 * 40 + 60, 4 * 24);
    check_operand(&c, "A", A, 160, COST_R);
    check_operand(&c, "B", B, 60, COST_R);
    check_operand(&c, "C", C, (3 * 8 + 6) * 4, COST_W);
}

static void gemm_pointer_arrays_have_no_known_operands(void **state) {
    (void)state;
    struct cost_gemm g = gemm(2, 3, 5);
    g.batch = 4;
    g.pointer_array = 1;
    struct cost c = cost_gemm(g);
    check(c, 240, 400, 96);
    assert_int_equal(c.operands, 0);
}

static void gemm_complex_is_four_times(void **state) {
    (void)state;
    struct cost_gemm g = gemm(2, 3, 5);
    g.a_type = g.b_type = g.c_type = ACCT_dtype_COMPLEX64;
    check(cost_gemm(g), 8 * 2 * 3 * 5, 8 * 25, 8 * 6);
}

static void gemm_of_mixed_types_has_each_size(void **state) {
    (void)state;
    struct cost_gemm g = gemm(2, 3, 5);
    g.a_type = ACCT_dtype_BF16;
    g.b_type = ACCT_dtype_FP8_E4M3;
    check(cost_gemm(g), 60, 20 + 15, 24);
}

static void integer_gemm_has_no_flops(void **state) {
    (void)state;
    struct cost_gemm g = gemm(2, 3, 5);
    assert_int_equal(cost_gemm(g).integer_ops, COST_UNKNOWN);
    g.a_type = g.b_type = ACCT_dtype_INT8;
    g.c_type = ACCT_dtype_INT32;
    g.compute = ACCT_compute_INT32;
    struct cost c = cost_gemm(g);
    check(c, 0, 25, 24);
    assert_int_equal(c.integer_ops, 60);
}

static void gemm_too_large_for_64_bit_is_unknown(void **state) {
    (void)state;
    struct cost c = cost_gemm(gemm(INT64_MAX, INT64_MAX, INT64_MAX));
    assert_int_equal(c.flops, COST_UNKNOWN);
    assert_int_equal(c.grade, COST_UNCOUNTED);
    c = cost_gemm(gemm(1 << 20, 1 << 20, 1 << 20));
    assert_int_equal(c.flops, (int64_t)1 << 61);
}

/* ---- number formats
 * ------------------------------------------------------------------------------------------------------ */
static const char *dtype(uint32_t type, uint32_t compute, int32_t math_mode, int off, int32_t major) {
    struct cost_gemm g = {.a_type = type, .compute = compute, .math_mode = math_mode};
    struct cost_machine m = {off, major};
    return cost_gemm_dtype(&g, &m);
}

static void product_format_follows_handle_and_environment(void **state) {
    (void)state;
    uint32_t f32 = ACCT_dtype_FP32, c32 = ACCT_compute_FP32;
    assert_string_equal(dtype(f32, c32, 0, 0, 9), "fp32");
    assert_string_equal(dtype(f32, c32, 3, 0, 9), "tf32");
    assert_string_equal(dtype(f32, c32, 3 | 16, 0, 9), "tf32");
    assert_string_equal(dtype(f32, c32, 3, 1, 9), "fp32");
    assert_string_equal(dtype(f32, c32, 3, 0, 7), "fp32"); /* no tf32 unit before Ampere */
    assert_string_equal(dtype(f32, ACCT_compute_FP32_PEDANTIC, 3, 0, 9), "fp32");
    assert_string_equal(dtype(f32, ACCT_compute_FP32_FAST_TF32, 0, 0, 9), "tf32");
    assert_string_equal(dtype(f32, ACCT_compute_FP32_FAST_BF16, 0, 0, 9), "bf16");
    assert_string_equal(dtype(ACCT_dtype_BF16, c32, 0, 0, 9), "bf16");
    assert_string_equal(dtype(ACCT_dtype_FP16, ACCT_compute_FP16, 0, 0, 9), "fp16_acc16");
    assert_string_equal(dtype(ACCT_dtype_FP64, ACCT_compute_FP64, 0, 0, 9), "fp64");
    assert_string_equal(dtype(ACCT_dtype_COMPLEX64, c32, 0, 0, 9), "complex64");
    assert_string_equal(dtype(ACCT_dtype_COMPLEX64, c32, 3, 0, 9), "complex64_tf32");
    assert_null(dtype(f32, c32, ACCT_NULL_I32, 0, 9));     /* the handle could not be asked */
    assert_string_equal(dtype(f32, c32, 1, 0, 9), "fp16"); /* CUBLAS_TENSOR_OP_MATH: CUBLAS_COMPUTE_32F_FAST_16F */
    assert_string_equal(dtype(f32, c32, 1, 0, 6), "fp32"); /* no tensor unit before Volta */
    struct cost_gemm g = {.a_type = f32, .compute = c32};
    struct cost_machine forced = {.cc_major = 9, .tf32_override_on = 1};
    assert_string_equal(cost_gemm_dtype(&g, &forced), "tf32");
    g.math_mode = 2; /* CUBLAS_PEDANTIC_MATH */
    assert_string_equal(cost_gemm_dtype(&g, &forced), "fp32");
}

/* ---- level 1
 * -------------------------------------------------------------------------------------------------------------- */
static void level1_counts(void **state) {
    (void)state;
    int64_t u = ACCT_NULL_I64;
    check(cost_blas(blas("axpy", u, 10, u)), 20, 80, 40);
    check(cost_blas(blas("scal", u, 10, u)), 10, 40, 40);
    check(cost_blas(blas("dot", u, 10, u)), 20, 80, 4);
    check(cost_blas(blas("nrm2", u, 10, u)), 20, 40, 4);
    check(cost_blas(blas("asum", u, 10, u)), 10, 40, 4);
    check(cost_blas(blas("rot", u, 10, u)), 60, 80, 80);
    check(cost_blas(blas("swap", u, 10, u)), 0, 80, 80);
    check(cost_blas(blas("copy", u, 10, u)), 0, 40, 40);
    check(cost_blas(blas("axpy", u, 0, u)), 0, 0, 0);
    assert_int_equal(cost_blas(blas("copy", u, 10, u)).role, COST_COPY);
    assert_int_equal(cost_blas(blas("axpy", u, 10, u)).role, COST_KERNEL);
}

static void results_have_their_own_type(void **state) {
    (void)state;
    struct cost_blas b = blas("iamax", ACCT_NULL_I64, 10, ACCT_NULL_I64);
    b.type = ACCT_dtype_FP64;
    check(cost_blas(b), 0, 80, 4); /* an int */
    b.routine = "nrm2";
    check(cost_blas(b), 20, 80, 8);
    b.type = ACCT_dtype_COMPLEX64;
    struct cost c = cost_blas(b);
    assert_int_equal(c.bytes_written, 4); /* a norm is real */
    check_operand(&c, "result", C, 4, COST_W);
    b.routine = "dot";
    assert_int_equal(cost_blas(b).bytes_written, 8);
}

static void scal_by_zero_only_writes(void **state) {
    (void)state;
    struct cost_blas b = blas("scal", ACCT_NULL_I64, 10, ACCT_NULL_I64);
    b.alpha = ACCT_scalar_ZERO;
    struct cost c = cost_blas(b);
    check(c, 10, 0, 40);
    check_operand(&c, "x", A, 40, COST_W);
    b.alpha = ACCT_scalar_DEVICE;
    check(cost_blas(b), 10, 40, 40);
}

static void level1_increments_are_extent_not_traffic(void **state) {
    (void)state;
    struct cost_blas b = blas("axpy", ACCT_NULL_I64, 10, ACCT_NULL_I64);
    b.lda = 3;
    b.ldb = -2;
    struct cost c = cost_blas(b);
    check(c, 20, 80, 40);
    check_operand(&c, "x", A, (9 * 3 + 1) * 4, COST_R);
    check_operand(&c, "y", B, (9 * 2 + 1) * 4, COST_RW);
}

/* ---- level 2
 * --------------------------------------------------------------------------------------------------------------- */
static void level2_counts(void **state) {
    (void)state;
    int64_t u = ACCT_NULL_I64;
    check(cost_blas(blas("gemv", 4, 6, u)), 48, 4 * (24 + 6), 4 * 4);
    struct cost_blas b = blas("gemv", 4, 6, u);
    b.trans_a = ACCT_trans_T;
    b.beta = ACCT_scalar_VALUE;
    check(cost_blas(b), 48, 4 * (24 + 4 + 6), 4 * 6);
    check(cost_blas(blas("symv", u, 6, u)), 72, 4 * (21 + 6), 24); /* a triangle of 6 has 21 elements */
    check(cost_blas(blas("trmv", u, 6, u)), 36, 4 * (21 + 6), 24);
    check(cost_blas(blas("trsv", u, 6, u)), 36, 4 * (21 + 6), 24);
    check(cost_blas(blas("ger", 4, 6, u)), 48, 4 * (24 + 4 + 6), 96);
    check(cost_blas(blas("syr", u, 6, u)), 42, 4 * (21 + 6), 84);
    check(cost_blas(blas("syr2", u, 6, u)), 84, 4 * (21 + 12), 84);
}

/* A 4 x 5 matrix with one sub- and two super-diagonals: rows hold 3, 4, 4 and 3 elements. */
static void level2_band_counts_elements_inside_the_matrix(void **state) {
    (void)state;
    struct cost_blas b = blas("gbmv", 4, 5, ACCT_NULL_I64);
    b.kl = 1;
    b.ku = 2;
    check(cost_blas(b), 2 * 14, 4 * (14 + 5), 16);
    /* 5 x 5, symmetric, one off-diagonal: 5 + 2 * 4 elements act, 5 + 4 are stored */
    check(cost_blas(blas("sbmv", ACCT_NULL_I64, 5, 1)), 2 * 13, 4 * (9 + 5), 20);
    /* triangular: 5 on the diagonal (1 each) and 4 below (2 each) */
    check(cost_blas(blas("tbmv", ACCT_NULL_I64, 5, 1)), 13, 4 * (9 + 5), 20);
}

/* ---- level 3
 * --------------------------------------------------------------------------------------------------------------- */
static void level3_counts(void **state) {
    (void)state;
    int64_t u = ACCT_NULL_I64;
    struct cost_blas b = blas("symm", 3, 5, u);
    check(cost_blas(b), 2 * 9 * 5, 4 * (6 + 15), 60);
    b.side = ACCT_side_RIGHT;
    check(cost_blas(b), 2 * 3 * 25, 4 * (15 + 15), 60);
    b = blas("trmm", 3, 5, u);
    check(cost_blas(b), 9 * 5, 4 * (6 + 15), 60);
    b = blas("trsm", 3, 5, u);
    b.side = ACCT_side_RIGHT;
    check(cost_blas(b), 3 * 25, 4 * (15 + 15), 60);
    check(cost_blas(blas("syrk", u, 3, 5)), 5 * 3 * 4, 4 * 15, 4 * 6);
    check(cost_blas(blas("syrkx", u, 3, 5)), 5 * 3 * 4, 4 * 30, 4 * 6);
    check(cost_blas(blas("syr2k", u, 3, 5)), 2 * 5 * 9 + 3, 4 * 30, 4 * 6);
    check(cost_blas(blas("syr2k", u, 3, 0)), 0, 0, 4 * 6);
    assert_int_equal(cost_blas(blas("syrk", u, 3, 5)).matmul, 1);
    assert_int_equal(cost_blas(blas("gemv", 3, 5, u)).matmul, 0);
}

static void level3_complex_is_four_times(void **state) {
    (void)state;
    struct cost_blas b = blas("hemm", 3, 5, ACCT_NULL_I64);
    b.type = ACCT_dtype_COMPLEX128;
    check(cost_blas(b), 4 * 90, 16 * 21, 16 * 15);
}

/* The solution overwrites the right-hand side. */
static void trsm_works_in_place(void **state) {
    (void)state;
    struct cost_blas b = blas("trsm", 3, 5, ACCT_NULL_I64);
    b.beta = 0;
    struct cost c = cost_blas(b);
    check_operand(&c, "A", A, 36, COST_R);
    check_operand(&c, "C", B, 60, COST_RW);
}

static void elementwise_routines_count_one_each(void **state) {
    (void)state;
    struct cost_blas b = blas("geam", 3, 5, ACCT_NULL_I64);
    b.beta = ACCT_scalar_ONE;
    struct cost c = cost_blas(b);
    check(c, 15, 120, 60);
    assert_int_equal(c.matmul, 0);
    b.beta = ACCT_scalar_ZERO; /* a copy, perhaps transposed: B is not read */
    c = cost_blas(b);
    check(c, 15, 60, 60);
    assert_int_equal(c.operands, 2);
    b = blas("dgmm", 3, 5, ACCT_NULL_I64);
    check(cost_blas(b), 15, 4 * (15 + 3), 60);
    b.side = ACCT_side_RIGHT;
    check(cost_blas(b), 15, 4 * (15 + 5), 60);
}

static void unlisted_routines_are_uncounted(void **state) {
    (void)state;
    struct cost c = cost_blas(blas("getrfBatched", 3, 5, ACCT_NULL_I64));
    check(c, COST_UNKNOWN, COST_UNKNOWN, COST_UNKNOWN);
    assert_int_equal(c.grade, COST_UNCOUNTED);
    assert_int_equal(c.operands, 0);
}

/* As for GEMM: k = 0 reads no factor; C stays if beta = 1, else it is written, and read unless beta = 0. */
static void rank_zero_touches_only_the_result(void **state) {
    (void)state;
    static const char *const names[] = {"syrk", "syr2k", "syrkx"};
    for (int i = 0; i < 3; i++) {
        struct cost_blas b = blas(names[i], ACCT_NULL_I64, 4, 0);
        struct cost c = cost_blas(b);
        check(c, 0, 0, 4 * 10);
        assert_int_equal(c.operands, 1);
        check_operand(&c, "C", C, 4 * 16, COST_W);
        b.beta = ACCT_scalar_VALUE;
        check(cost_blas(b), 0, 40, 40);
        b.beta = ACCT_scalar_ONE;
        c = cost_blas(b);
        check(c, 0, 0, 0);
        assert_int_equal(c.operands, 0);
    }
}

/* C (or B, solved in place) becomes 0: neither the triangle nor the other factor is read. */
static void triangular_alpha_zero_only_writes(void **state) {
    (void)state;
    struct cost_blas b = blas("trmm", 3, 2, ACCT_NULL_I64);
    b.beta = 0;
    b.alpha = ACCT_scalar_ZERO;
    struct cost c = cost_blas(b);
    check(c, 9 * 2, 0, 4 * 6);
    assert_int_equal(c.operands, 1);
    check_operand(&c, "C", C, 24, COST_W);
    b.routine = "trsm";
    c = cost_blas(b);
    check(c, 9 * 2, 0, 4 * 6);
    assert_int_equal(c.operands, 1);
    check_operand(&c, "C", B, 24, COST_W);
}

/* As for GEMM: alpha never changes the FLOPs, but with alpha = 0 only the result under beta is touched. */
static void alpha_zero_reads_no_factor(void **state) {
    (void)state;
    struct cost_blas b = blas("symm", 3, 5, ACCT_NULL_I64);
    b.alpha = ACCT_scalar_ZERO;
    struct cost c = cost_blas(b);
    check(c, 90, 0, 60);
    assert_int_equal(c.operands, 1);
    check_operand(&c, "C", C, 60, COST_W);
    b = blas("gemv", 4, 6, ACCT_NULL_I64);
    b.alpha = ACCT_scalar_ZERO;
    b.beta = ACCT_scalar_VALUE;
    check(cost_blas(b), 48, 16, 16);
    b.beta = ACCT_scalar_ONE;
    c = cost_blas(b);
    check(c, 48, 0, 0);
    assert_int_equal(c.operands, 0);
}

static void strided_batches_count_each_problem(void **state) {
    (void)state;
    struct cost_blas b = blas("gemv", 4, 6, ACCT_NULL_I64);
    b.batch = 3;
    b.stride_a = 0; /* one matrix for all */
    b.stride_b = 6;
    b.stride_c = 10;
    struct cost c = cost_blas(b);
    check(c, 3 * 48, 4 * (24 + 3 * 6), 4 * 3 * 4);
    check_operand(&c, "y", C, (2 * 10 + 4) * 4, COST_W);
}

/* ---- copies
 * ------------------------------------------------------------------------------------------------------------------ */
static void copies_of_rows_span_the_pitch(void **state) {
    (void)state;
    struct cost c;
    struct cost_copy y = {C, A, 300, 100, 3, 256, 128};
    cost_of_copy(&y, &c);
    check(c, 0, 300, 300);
    check_operand(&c, "dst", C, 2 * 256 + 100, COST_W);
    check_operand(&c, "src", A, 2 * 128 + 100, COST_R);
    struct cost_memset s = {C, 300, 100, 3, 256};
    cost_of_memset(&s, &c);
    check(c, 0, 0, 300);
    check_operand(&c, "dst", C, 612, COST_W);
    struct cost_copy plain = {C, A, 300, ACCT_NULL_I64, ACCT_NULL_I64, ACCT_NULL_I64, ACCT_NULL_I64};
    cost_of_copy(&plain, &c);
    check_operand(&c, "src", A, 300, COST_R);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gemm_counts_a_multiply_add_as_two),
        cmocka_unit_test(gemm_leading_dimension_is_extent_not_traffic),
        cmocka_unit_test(gemm_transposed_operands_are_stored_the_other_way),
        cmocka_unit_test(gemm_contracted_axis_is_of_the_stored_matrix),
        cmocka_unit_test(gemm_beta_decides_whether_c_is_read),
        cmocka_unit_test(gemm_alpha_zero_reads_no_factor),
        cmocka_unit_test(gemm_of_nothing_is_nothing),
        cmocka_unit_test(gemm_batch_stride_zero_is_one_matrix),
        cmocka_unit_test(gemm_pointer_arrays_have_no_known_operands),
        cmocka_unit_test(gemm_complex_is_four_times),
        cmocka_unit_test(gemm_of_mixed_types_has_each_size),
        cmocka_unit_test(integer_gemm_has_no_flops),
        cmocka_unit_test(gemm_too_large_for_64_bit_is_unknown),
        cmocka_unit_test(product_format_follows_handle_and_environment),
        cmocka_unit_test(level1_counts),
        cmocka_unit_test(level1_increments_are_extent_not_traffic),
        cmocka_unit_test(level2_counts),
        cmocka_unit_test(level2_band_counts_elements_inside_the_matrix),
        cmocka_unit_test(level3_counts),
        cmocka_unit_test(level3_complex_is_four_times),
        cmocka_unit_test(trsm_works_in_place),
        cmocka_unit_test(elementwise_routines_count_one_each),
        cmocka_unit_test(unlisted_routines_are_uncounted),
        cmocka_unit_test(alpha_zero_reads_no_factor),
        cmocka_unit_test(rank_zero_touches_only_the_result),
        cmocka_unit_test(triangular_alpha_zero_only_writes),
        cmocka_unit_test(results_have_their_own_type),
        cmocka_unit_test(scal_by_zero_only_writes),
        cmocka_unit_test(strided_batches_count_each_problem),
        cmocka_unit_test(copies_of_rows_span_the_pitch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
