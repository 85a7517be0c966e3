/* The launches of the zoo. */
#include "tests/zoo/zoo.h"

#define IN(t, n, how) \
    { .kind = 'b', .type = ZOO_##t, .count = (n), .init = ZOO_##how }
#define OUT(t, n) \
    { .kind = 'b', .type = ZOO_##t, .count = (n), .out = true }
#define NEAR(t, n, e) \
    { .kind = 'b', .type = ZOO_##t, .count = (n), .out = true, .tolerance = e }
#define INOUT(t, n, how, e) \
    { .kind = 'b', .type = ZOO_##t, .count = (n), .init = ZOO_##how, .out = true, .tolerance = (e) }
#define STARTS(n, limit) \
    { .kind = 'b', .type = ZOO_I32, .count = (n), .init = ZOO_STARTS, .i = (limit) }
#define I(v) \
    { .kind = 'i', .i = (v) }
#define U(v) \
    { .kind = 'u', .i = (v) }
#define L(v) \
    { .kind = 'l', .i = (v) }
#define F(v) \
    { .kind = 'f', .f = (v) }
#define ARGS(...) .arg = {__VA_ARGS__}, .args = sizeof((struct zoo_arg[]){__VA_ARGS__}) / sizeof(struct zoo_arg)
#define CASE(n, gx, bx, bytes, ...)                                                                                   \
    {                                                                                                                 \
        .name = #n, .kernel = #n, .grid = {gx, 1, 1}, .block = {bx, 1, 1}, .shared = bytes, .reference = zoo_ref_##n, \
        ARGS(__VA_ARGS__)                                                                                             \
    }
#define CASE3(n, k, r, gx, gy, gz, bx, by, bz, ...)                                                      \
    {                                                                                                    \
        .name = #n, .kernel = #k, .grid = {gx, gy, gz}, .block = {bx, by, bz}, .reference = zoo_ref_##r, \
        ARGS(__VA_ARGS__)                                                                                \
    }

/* clang-format off */
const struct zoo_case zoo_cases[] = {
    CASE(reduce_tree, 4, 256, 0, IN(F32, 1024, UNIFORM), NEAR(F32, 4, 1e-5)),
    CASE(reduce_bfly, 2, 96, 0, IN(I32, 192, INTS), OUT(I32, 192)),
    CASE(reduce_down, 3, 256, 0, IN(F32, 3000, UNIFORM), NEAR(F32, 3, 1e-5), I(1000)),
    CASE(reduce_atomic, 7, 64, 0, IN(I32, 1000, INTS), INOUT(I32, 1, INTS, 0), I(1000)),
    CASE(reduce_redux, 2, 64, 0, IN(U32, 128, UNIFORM), OUT(U32, 128)),
    CASE(argmax, 5, 32, 0, IN(F32, 500, SMALL), OUT(I32, 5), OUT(F32, 5), I(100)),
    CASE(scan_block, 3, 256, 0, IN(I32, 768, INTS), OUT(I32, 768)),
    CASE(scan_warp, 2, 128, 0, IN(I32, 256, INTS), OUT(I32, 256)),
    CASE(scan_exclusive, 1, 128, 1024, IN(U32, 256, UNIFORM), OUT(U32, 256)),
    CASE(votes, 3, 64, 0, IN(I32, 192, SMALL), OUT(U32, 192)),
    CASE(shuffles, 1, 32, 0, IN(I32, 32, INTS), OUT(I32, 32)),
    CASE(masked_shuffle, 1, 32, 0, IN(I32, 32, INTS), OUT(I32, 32)),
    CASE(filter, 4, 96, 0, IN(I32, 350, INTS), INOUT(I32, 1, ZERO, 0), INOUT(I32, 1, ZERO, 0), I(350)),
    CASE(groups, 2, 128, 0, IN(I32, 256, SMALL), OUT(I32, 256)),
    CASE(block_votes, 6, 80, 0, IN(I32, 480, SMALL), OUT(I32, 480)),
    CASE3(lanes, lanes, lanes, 1, 1, 1, 8, 4, 3, OUT(U32, 96)),

    CASE(collatz, 3, 128, 0, IN(U32, 300, UNIFORM), OUT(I32, 300), I(300)),
    CASE(early_exit, 4, 96, 0, IN(I32, 370, SMALL), INOUT(I32, 370, INTS, 0), I(370)),
    CASE(nested, 4, 64, 0, IN(I32, 250, SMALL), OUT(I32, 250), I(250)),
    CASE(switches, 4, 64, 0, IN(I32, 250, SMALL), OUT(I32, 250), I(250)),
    CASE(loops, 4, 64, 0, IN(I32, 250, SMALL), OUT(I32, 250), I(250)),
    CASE(stencil, 2, 128, 0, IN(F32, 256, UNIFORM), NEAR(F32, 256, 1e-6), I(9)),
    CASE(bitonic_sort, 2, 256, 0, IN(I32, 512, UNIFORM), OUT(I32, 512)),
    CASE(producer_consumer, 1, 128, 0, IN(I32, 320, SMALL), OUT(I32, 320), I(5)),
    CASE(leave_early, 1, 128, 0, IN(I32, 64, SMALL), OUT(I32, 64)),
    CASE(dynamic_views, 1, 64, 576, IN(F32, 64, UNIFORM), IN(I32, 64, SMALL), NEAR(F32, 64, 1e-6), I(64)),
    CASE(vector_shared, 1, 64, 0, IN(F32, 256, SMALL), OUT(F32, 256)),
    CASE(local_index, 3, 96, 0, IN(I32, 280, UNIFORM), OUT(I32, 280), I(280)),
    CASE(generic_pointers, 1, 64, 0, INOUT(I32, 64, SMALL, 0), OUT(I32, 64)),
    CASE(noinline_calls, 2, 64, 0, IN(I32, 120, SMALL), OUT(I64, 120), OUT(F32, 120), I(120)),
    CASE(recursion, 1, 64, 0, OUT(I32, 64)),
    CASE(indirect_calls, 1, 64, 0, IN(I32, 64, INTS), OUT(I32, 64)),
    {.name = "struct_by_value", .kernel = "struct_by_value", .grid = {2, 1, 1}, .block = {64, 1, 1}, .reference = zoo_ref_struct_by_value,
     ARGS(IN(F32, 100, UNIFORM), {.kind = 'f', .field = true, .f = 3}, {.kind = 'i', .field = true, .i = 100},
          {.kind = 'b', .field = true, .type = ZOO_F32, .count = 100, .out = true, .tolerance = 1e-6},
          {.kind = 'b', .field = true, .type = ZOO_I32, .count = 100, .init = ZOO_PERMUTED}, F(0.5f))},
    CASE(selected_pointer, 2, 64, 0, INOUT(F32, 100, SMALL, 0), INOUT(F32, 100, SMALL, 0), IN(F32, 100, SMALL), I(0), I(100)),
    CASE(offset_pointer, 1, 64, 0, INOUT(F32, 128, SMALL, 0), I(64)),
    CASE(constant_table, 1, 64, 0, IN(I32, 64, SMALL), OUT(I32, 64)),
    CASE(device_globals, 1, 64, 0, IN(I32, 64, SMALL), OUT(I32, 64)),
    CASE(inline_asm, 1, 64, 0, IN(I32, 64, SMALL), OUT(I32, 64)),
    CASE(prints, 1, 32, 0, IN(I32, 32, SMALL), OUT(I32, 32)),

    CASE(histogram_global, 5, 128, 0, IN(U8, 600, UNIFORM), INOUT(U32, 32, SMALL, 0), I(600)),
    CASE(histogram_shared, 3, 96, 0, IN(U8, 1500, UNIFORM), INOUT(U32, 64, SMALL, 0), I(1500)),
    CASE(atomic_cas, 3, 64, 0, IN(F64, 150, INTS), INOUT(F64, 1, ZERO, 0), INOUT(I32, 1, ZERO, 0), I(150)),
    CASE(atomic_wrap, 3, 64, 0, INOUT(U32, 1, ZERO, 0), INOUT(U32, 1, ZERO, 0), I(157)),
    CASE(atomic_all, 2, 96, 0, IN(I32, 192, INTS), INOUT(I32, 4, ZERO, 0), INOUT(U32, 6, ZERO, 0), INOUT(I64, 2, ZERO, 0), INOUT(U64, 3, ZERO, 0)),
    CASE(atomic_float, 3, 64, 0, IN(I32, 192, INTS), INOUT(F32, 2, ZERO, 0), INOUT(F64, 1, ZERO, 0)),
    CASE(last_block, 5, 64, 0, IN(I32, 300, SMALL), OUT(I32, 5), OUT(I32, 1), I(300)),
    CASE(grid_stride, 3, 64, 0, IN(F32, 1000, UNIFORM), INOUT(F32, 1000, UNIFORM, 1e-6), F(0.75f), L(1000)),
    CASE3(grid_2d, grid_2d, grid_2d, 3, 4, 1, 16, 8, 1, OUT(I32, 40 * 30), I(40), I(30)),
    CASE3(grid_3d, grid_3d, grid_3d, 2, 3, 2, 4, 2, 8, OUT(I32, 8 * 6 * 16)),

    CASE(saxpy, 4, 128, 0, IN(F32, 500, UNIFORM), INOUT(F32, 500, UNIFORM, 1e-6), F(1.25f), I(500)),
    CASE3(transpose_naive, transpose_naive, transpose, 4, 5, 1, 16, 16, 1, IN(F32, 60 * 70, UNIFORM), OUT(F32, 60 * 70), I(60), I(70)),
    CASE3(transpose_tile, transpose_tile, transpose, 2, 3, 1, 32, 8, 1, IN(F32, 60 * 70, UNIFORM), OUT(F32, 60 * 70), I(60), I(70)),
    CASE(copy_v4, 2, 64, 0, IN(F32, 400, SMALL), OUT(F32, 400), I(100)),
    CASE(axpy_v2, 2, 64, 0, IN(F64, 200, UNIFORM), INOUT(F64, 200, UNIFORM, 0), {.kind = 'd', .f = 0.3f}, I(100)),
    CASE(bytes_v4, 2, 64, 0, IN(U8, 400, UNIFORM), OUT(U16, 200), I(100)),
    CASE3(matmul_tiled, matmul_tiled, matmul_tiled, 2, 2, 1, 16, 16, 1, IN(F32, 1024, UNIFORM), IN(F32, 1024, UNIFORM), NEAR(F32, 1024, 1e-5), I(32)),
    CASE(softmax, 3, 96, 0, IN(F32, 300, UNIFORM), NEAR(F32, 300, 2e-6), I(100)),
    CASE(softmax_causal, 11, 128, 0, IN(F32, 41 * 41, UNIFORM), NEAR(F32, 41 * 41, 2e-6), I(41)),
    CASE(layernorm, 4, 32, 0, IN(F32, 400, UNIFORM), IN(F32, 100, UNIFORM), IN(F32, 100, UNIFORM), NEAR(F32, 400, 1e-5), NEAR(F32, 4, 1e-5), NEAR(F32, 4, 1e-5), I(100)),
    CASE(rmsnorm_inplace, 4, 32, 0, INOUT(F32, 400, UNIFORM, 1e-5), IN(F32, 100, UNIFORM), I(100)),
    CASE(gelu, 4, 64, 0, IN(F32, 250, UNIFORM), NEAR(F32, 250, 2e-6), I(250)),
    CASE3(rope, rope, rope, 10, 3, 1, 8, 1, 1, INOUT(F32, 10 * 3 * 16, UNIFORM, 1e-5), I(3), I(16), F(10000)),
    CASE(dropout, 4, 64, 0, IN(F32, 250, SMALL), OUT(F32, 250), OUT(U8, 250), U(1234), U(1000000000), F(1.5f), I(250)),
    CASE(gather, 8, 32, 0, IN(F32, 8 * 50, UNIFORM), IN(I32, 8, PERMUTED), OUT(F32, 8 * 50), I(50)),
    CASE(scatter, 2, 64, 0, IN(F32, 100, UNIFORM), IN(I32, 100, PERMUTED), OUT(F32, 100), I(100)),
    CASE(segmented_sum, 1, 64, 0, IN(F32, 300, SMALL), STARTS(51, 300), OUT(F32, 50), I(50)),
    CASE3(momentum_plain, momentum, momentum, 4, 1, 1, 64, 1, 1, INOUT(F32, 250, UNIFORM, 1e-6), INOUT(F32, 250, UNIFORM, 1e-6), IN(F32, 250, UNIFORM), L(0), F(0.1f), F(0.9f), I(250)),
    CASE3(momentum_decay, momentum, momentum, 4, 1, 1, 64, 1, 1, INOUT(F32, 250, UNIFORM, 1e-6), INOUT(F32, 250, UNIFORM, 1e-6), IN(F32, 250, UNIFORM), IN(F32, 250, UNIFORM), F(0.1f), F(0.9f), I(250)),
    CASE(cross_entropy, 8, 32, 0, IN(F32, 8 * 60, UNIFORM), IN(I32, 8, PERMUTED), NEAR(F32, 8, 1e-5), NEAR(F32, 8 * 60, 2e-6), I(60)),

    CASE(int64_arith, 2, 64, 0, IN(I64, 100, UNIFORM), IN(I64, 100, UNIFORM), OUT(I64, 800), I(100)),
    CASE(divisions, 2, 64, 0, IN(I32, 100, UNIFORM), IN(I32, 100, NONZERO), OUT(I64, 800), I(100)),
    CASE(double_arith, 2, 64, 0, IN(F64, 100, WIDE), IN(F64, 100, WIDE), OUT(F64, 800), I(100)),
    CASE(double_rounding, 2, 64, 0, IN(F64, 100, WIDE), IN(F64, 100, WIDE), OUT(F64, 800), I(100)),
    CASE(float_rounding, 2, 64, 0, IN(F32, 100, WIDE), IN(F32, 100, WIDE), OUT(F32, 1600), I(100)),
    CASE(bit_tricks, 2, 64, 0, IN(U32, 100, UNIFORM), IN(U32, 100, UNIFORM), OUT(U32, 1600), I(100)),
    CASE(carries, 1, 64, 0, IN(U32, 256, UNIFORM), IN(U32, 256, UNIFORM), OUT(U32, 512)),
    CASE(conversions, 2, 64, 0, IN(F32, 100, WIDE), IN(F64, 100, WIDE), IN(I64, 100, UNIFORM), OUT(U32, 1600), I(100)),
    CASE(half_conversions, 8, 128, 0, IN(F32, 1000, WIDE), OUT(U16, 8000), OUT(F32, 2000), I(1000)),
    CASE(half_ints, 2, 64, 0, IN(I32, 100, UNIFORM), OUT(U16, 400), OUT(I32, 200), I(100)),
    CASE(half2_arith, 2, 64, 0, IN(F16, 200, WIDE), IN(F16, 200, WIDE), OUT(F16, 2400), I(100)),
    CASE(bf162_arith, 2, 64, 0, IN(BF16, 200, WIDE), IN(BF16, 200, WIDE), OUT(BF16, 1600), I(100)),
    CASE(half_scalar, 2, 64, 0, IN(F16, 100, WIDE), IN(F16, 100, WIDE), OUT(F16, 800), I(100)),
    CASE(fast_math, 2, 64, 0, IN(F32, 100, UNIFORM), NEAR(F32, 800, 2e-6), I(100)),
    CASE(fast_tanh, 2, 64, 0, IN(F32, 100, UNIFORM), NEAR(F32, 100, 1.0 / 2048), I(100)),
    CASE(libm_float, 2, 64, 0, IN(F32, 100, UNIFORM), NEAR(F32, 1200, 1e-6), I(100)),
    CASE(libm_double, 2, 64, 0, IN(F64, 100, UNIFORM), NEAR(F64, 800, 1e-14), I(100)),
};
/* clang-format on */
const int zoo_case_count = sizeof zoo_cases / sizeof zoo_cases[0];
