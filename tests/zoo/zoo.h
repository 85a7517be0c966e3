/* The kernel zoo: a table of launches, their data, and what each must give, by plain C. The program that launches the
 * kernels on a device (zoo_main.cu) and the test that interprets their PTX (test_ptx_zoo.c) share it. */
#ifndef TESTS_ZOO_H
#define TESTS_ZOO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum zoo_type { ZOO_F32, ZOO_F64, ZOO_F16, ZOO_BF16, ZOO_I32, ZOO_U32, ZOO_I64, ZOO_U64, ZOO_U16, ZOO_U8 };
enum zoo_init {
    ZOO_ZERO,
    ZOO_UNIFORM, /* floats in [-1, 1); integers: random bits */
    ZOO_WIDE,    /* floats over many magnitudes, exact halves of units in the last place of a half among them */
    ZOO_SMALL,   /* 0 … 99 */
    ZOO_INTS,    /* -50 … 49 */
    ZOO_NONZERO, /* -50 … 50 without 0 */
    ZOO_PERMUTED,
    ZOO_STARTS /* rising, from 0; the last is `limit` */
};
enum { ZOO_ARGS = 10 };
struct zoo_arg {
    char kind;  /* 'b' buffer, 'i' int32, 'u' uint32, 'l' int64, 'f' float, 'd' double */
    bool field; /* of the same struct parameter as the argument before */
    uint8_t type, init;
    bool out;         /* compared */
    double tolerance; /* of |got - want| / max(1, |want|); 0: the same bits (any NaN is any other) */
    uint32_t count;   /* elements */
    int64_t i;        /* value of a scalar; limit of STARTS */
    float f;
};
struct zoo_case {
    const char *name, *kernel;
    uint32_t grid[3], block[3], shared;
    struct zoo_arg arg[ZOO_ARGS];
    int args;
    /* Turns the buffers (by argument; NULL: a scalar) from what they are before the launch into what they must be. */
    void (*reference)(const struct zoo_case *c, void **b);
};
extern const struct zoo_case zoo_cases[];
extern const int zoo_case_count;

unsigned zoo_bytes(const struct zoo_arg *a); /* of a buffer */
void zoo_fill(const struct zoo_case *c, int arg, void *to);
/* The kernel's parameters as the ABI lays them out; offset[k]: of argument k. Answers how many bytes. */
size_t zoo_pack(const struct zoo_case *c, const uint64_t *addresses, unsigned char *to, size_t *offset);
/* Compares buffer `arg`; where it differs, one line in err. */
bool zoo_equal(const struct zoo_case *c, int arg, const void *got, const void *want, char *err, size_t err_len);

/* Of the references: halves by search in the table of all their values, not by bits. */
enum zoo_round { ZOO_RN, ZOO_RZ, ZOO_RD, ZOO_RU };
double zoo_half(enum zoo_type type, uint16_t bits);
uint16_t zoo_to_half(enum zoo_type type, double v, enum zoo_round mode); /* v exact */
uint32_t zoo_hash(uint32_t x);

#define ZOO_REFERENCES(X)                                                                                             \
    X(reduce_tree)                                                                                                    \
    X(reduce_bfly)                                                                                                    \
    X(reduce_down)                                                                                                    \
    X(reduce_atomic)                                                                                                  \
    X(reduce_redux)                                                                                                   \
    X(argmax)                                                                                                         \
    X(scan_block) X(scan_warp) X(scan_exclusive) X(votes) X(shuffles) X(masked_shuffle) X(filter) X(groups)           \
        X(block_votes) X(lanes) X(collatz) X(early_exit) X(nested) X(switches) X(loops) X(stencil) X(bitonic_sort)    \
            X(producer_consumer) X(leave_early) X(dynamic_views) X(vector_shared) X(local_index) X(generic_pointers)  \
                X(noinline_calls) X(recursion) X(indirect_calls) X(struct_by_value) X(selected_pointer)               \
                    X(offset_pointer) X(constant_table) X(device_globals) X(inline_asm) X(prints) X(histogram_global) \
                        X(histogram_shared) X(atomic_cas) X(atomic_wrap) X(atomic_all) X(atomic_float) X(last_block)  \
                            X(grid_stride) X(grid_2d) X(grid_3d) X(saxpy) X(transpose) X(copy_v4) X(axpy_v2)          \
                                X(bytes_v4) X(matmul_tiled) X(softmax) X(softmax_causal) X(layernorm)                 \
                                    X(rmsnorm_inplace) X(gelu) X(rope) X(dropout) X(gather) X(scatter)                \
                                        X(segmented_sum) X(momentum) X(cross_entropy) X(int64_arith) X(divisions)     \
                                            X(double_arith) X(double_rounding) X(float_rounding) X(bit_tricks)        \
                                                X(carries) X(conversions) X(half_conversions) X(half_ints)            \
                                                    X(half2_arith) X(bf162_arith) X(half_scalar) X(fast_math)         \
                                                        X(fast_tanh) X(libm_float) X(libm_double)
#define ZOO_DECLARE(name) void zoo_ref_##name(const struct zoo_case *c, void **b);
ZOO_REFERENCES(ZOO_DECLARE)

#ifdef __cplusplus
}
#endif
#endif
