/* GEMM with what cuBLASLt adds to it, copy, memset. */
#include "analyzer/cost_model.h"

#include <stddef.h>

static void start(struct cost *out, enum cost_role role) {
    *out =
        (struct cost){.integer_ops = COST_UNKNOWN, .grade = COST_EXACT, .role = role, .matmul = role == COST_PRODUCT};
}

/* Integer products: operations of their own kind, never FLOPs. */
static int is_integer(const struct cost_gemm *g) {
    return g->compute == ACCT_compute_INT32 || g->compute == ACCT_compute_INT32_PEDANTIC;
}

static int64_t matrix_bytes(int64_t rows, int64_t columns, int64_t batch, int64_t stride, uint32_t type) {
    if (stride == 0) batch = 1; /* the same matrix for every product */
    return cost_bytes(cost_amount((__int128)cost_amount((__int128)rows * columns) * batch), type);
}

struct factor {
    const char *slot;
    uint64_t address;
    int64_t rows, columns; /* as multiplied */
    uint32_t trans, type;
    int64_t ld, stride;
    int inner_is_columns; /* of op(X): A contracts its columns, B its rows */
};

static void add_factor(const struct cost_gemm *g, const struct factor *f, struct cost *out) {
    int t = f->trans == ACCT_trans_T || f->trans == ACCT_trans_C;
    int64_t rows = t ? f->columns : f->rows, columns = t ? f->rows : f->columns;
    cost_book(out, COST_R, matrix_bytes(rows, columns, g->batch, f->stride, f->type));
    if (g->pointer_array) return; /* where the matrices are is in device memory: not known */
    struct cost_operand *o = cost_operand_add(out, f->slot, f->address,
                                              cost_extent(rows, columns, f->ld, g->batch, f->stride, f->type), COST_R);
    if (o) o->axis = f->trans ? f->inner_is_columns != t : -1;
}

/* cuBLASLt with a result beside C: C is an addend. */
static void add_beside(const struct cost_gemm *g, struct cost *out) {
    if (g->beta != ACCT_scalar_ZERO) {
        cost_book(out, COST_R, matrix_bytes(g->m, g->n, g->batch, g->stride_c, g->c_type));
        if ((!g->beta || g->beta == ACCT_scalar_DEVICE) && out->grade == COST_EXACT) out->grade = COST_BOUND;
    }
    cost_book(out, COST_W, matrix_bytes(g->m, g->n, g->batch, g->stride_d, g->d_type));
    if (g->pointer_array) return;
    if (g->beta != ACCT_scalar_ZERO)
        cost_operand_add(out, "C", g->c, cost_extent(g->m, g->n, g->ldc, g->batch, g->stride_c, g->c_type), COST_R);
    cost_operand_add(out, "D", g->d, cost_extent(g->m, g->n, g->ldd, g->batch, g->stride_d, g->d_type), COST_W);
}

static void add_result(const struct cost_gemm *g, struct cost *out) {
    enum cost_mode mode = cost_result_mode(g->beta ? g->beta : ACCT_scalar_DEVICE);
    int empty = g->k == 0 || g->alpha == ACCT_scalar_ZERO;
    if (g->d) {
        add_beside(g, out);
        return;
    }
    if (empty && g->beta == ACCT_scalar_ONE && !g->epilogue) return; /* C stays as it is */
    cost_book(out, mode, matrix_bytes(g->m, g->n, g->batch, g->stride_c, g->c_type));
    if (g->pointer_array) return;
    cost_operand_add(out, "C", g->c, cost_extent(g->m, g->n, g->ldc, g->batch, g->stride_c, g->c_type), mode);
}

/* ---- what cuBLASLt adds --------------------------------------------------------------------------------------- */

static void add_extra(struct cost *out, const char *slot, uint64_t address, int64_t bytes, int64_t extent,
                      enum cost_mode mode) {
    if (!address) return;
    cost_book(out, mode, bytes);
    cost_operand_add(out, slot, address, extent, mode);
}

static void add_bias(const struct cost_gemm *g, struct cost *out) {
    int gradient = g->epilogue == ACCT_epilogue_DRELU_BGRAD || g->epilogue == ACCT_epilogue_DGELU_BGRAD ||
                   g->epilogue == ACCT_epilogue_BGRADA || g->epilogue == ACCT_epilogue_BGRADB;
    add_extra(out, "bias", g->bias, matrix_bytes(g->bias_length, 1, g->batch, g->stride_bias, g->bias_type),
              cost_extent(g->bias_length, 1, g->bias_length, g->batch, g->stride_bias, g->bias_type),
              gradient ? COST_W : COST_R);
}

static void add_aux(const struct cost_gemm *g, struct cost *out) {
    int read = g->epilogue == ACCT_epilogue_DRELU || g->epilogue == ACCT_epilogue_DRELU_BGRAD ||
               g->epilogue == ACCT_epilogue_DGELU || g->epilogue == ACCT_epilogue_DGELU_BGRAD;
    int bits = g->epilogue == ACCT_epilogue_RELU_AUX || g->epilogue == ACCT_epilogue_RELU_AUX_BIAS ||
               g->epilogue == ACCT_epilogue_DRELU || g->epilogue == ACCT_epilogue_DRELU_BGRAD;
    int64_t rows = g->m, ld = g->ldaux, stride = g->stride_aux;
    uint32_t type = g->aux_type;
    if (bits) {
        rows = (rows + 7) / 8;
        if (ld != ACCT_NULL_I64) ld /= 8;
        if (stride != ACCT_NULL_I64) stride /= 8;
        type = ACCT_dtype_UINT8;
    }
    add_extra(out, "aux", g->aux, matrix_bytes(rows, g->n, g->batch, stride, type),
              cost_extent(rows, g->n, ld, g->batch, stride, type), read ? COST_R : COST_W);
}

static int64_t pieces(int64_t length, int64_t of) {
    return length / of + (length % of != 0);
}

/* Bytes of the factors of a matrix with `inner` elements along the dimension that a product contracts (of a result:
 * its rows) and `outer` along the other. */
static int64_t scale_bytes(uint32_t mode, int64_t outer, int64_t inner, int64_t batch) {
    __int128 n;
    switch (mode) {
    case ACCT_scale_mode_SCALAR:
        return 4;
    case ACCT_scale_mode_OUTER_VEC:
        n = (__int128)4 * outer;
        break;
    case ACCT_scale_mode_VEC16:
        n = (__int128)outer * pieces(inner, 16);
        break;
    case ACCT_scale_mode_VEC32:
        n = (__int128)outer * pieces(inner, 32);
        break;
    case ACCT_scale_mode_VEC128:
        n = (__int128)4 * outer * pieces(inner, 128);
        break;
    case ACCT_scale_mode_BLK128X128:
        n = (__int128)4 * pieces(outer, 128) * pieces(inner, 128);
        break;
    default:
        return COST_UNKNOWN;
    }
    int64_t one = cost_amount(n);
    return one == COST_UNKNOWN ? one : cost_amount((__int128)one * batch);
}

/* A factor whose matrix is not read is not, either. */
static void add_scales(const struct cost_gemm *g, int reads_factors, struct cost *out) {
    int64_t a = scale_bytes(g->a_scale_mode, g->m, g->k, g->batch),
            b = scale_bytes(g->b_scale_mode, g->n, g->k, g->batch),
            d = scale_bytes(g->d_out_scale_mode, g->n, g->m, g->batch);
    if (reads_factors) {
        add_extra(out, "a_scale", g->a_scale, a, a, COST_R);
        add_extra(out, "b_scale", g->b_scale, b, b, COST_R);
    }
    if (g->beta != ACCT_scalar_ZERO) add_extra(out, "c_scale", g->c_scale, 4, 4, COST_R);
    add_extra(out, "d_scale", g->d_scale, 4, 4, COST_R);
    add_extra(out, "aux_scale", g->aux_scale, 4, 4, COST_R);
    add_extra(out, "d_out_scale", g->d_out_scale, d, d, COST_W);
    add_extra(out, "amax_d", g->amax_d, 4, 4, COST_W);
    add_extra(out, "amax_aux", g->amax_aux, 4, 4, COST_W);
}

int cost_gemm_count(const struct cost_gemm *g, __int128 *out) {
    const int64_t factors[] = {g->m, g->n, g->k, g->batch};
    *out = cost_is_complex(g->a_type) ? 8 : 2;
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++)
        if (factors[i] <= 0) *out = 0;
    for (size_t i = 0; *out && i < sizeof factors / sizeof *factors; i++)
        if (__builtin_mul_overflow(*out, factors[i], out)) return -1;
    return 0;
}

static void count_product(const struct cost_gemm *g, struct cost *out) {
    __int128 exact; /* beyond int64 (damaged sizes) is unknown */
    int64_t count = cost_gemm_count(g, &exact) ? COST_UNKNOWN : cost_amount(exact);
    if (is_integer(g))
        out->integer_ops = count;
    else
        out->flops = count;
    if (count != COST_UNKNOWN) return;
    out->flops = COST_UNKNOWN;
    out->grade = COST_UNCOUNTED;
}

void cost_of_gemm(const struct cost_gemm *g, struct cost *out) {
    start(out, COST_PRODUCT);
    if (is_integer(g)) out->integer_ops = 0;
    if (g->m <= 0 || g->n <= 0 || g->batch <= 0) return;
    count_product(g, out);
    int reads_factors = g->k > 0 && g->alpha != ACCT_scalar_ZERO;
    if (reads_factors) {
        struct factor a = {"A", g->a, g->m, g->k, g->trans_a, g->a_type, g->lda, g->stride_a, 1};
        struct factor b = {"B", g->b, g->k, g->n, g->trans_b, g->b_type, g->ldb, g->stride_b, 0};
        add_factor(g, &a, out);
        add_factor(g, &b, out);
        if ((!g->alpha || g->alpha == ACCT_scalar_DEVICE) && out->grade == COST_EXACT) out->grade = COST_BOUND;
    }
    add_result(g, out);
    add_bias(g, out);
    add_aux(g, out);
    add_scales(g, reads_factors, out);
}

/* First to last byte of `height` rows of `width` bytes, `pitch` apart. */
static int64_t pitched_extent(int64_t bytes, int64_t width, int64_t height, int64_t pitch) {
    if (width == ACCT_NULL_I64 || height == ACCT_NULL_I64 || pitch == ACCT_NULL_I64) return bytes;
    if (width <= 0 || height <= 0) return 0;
    return cost_amount((__int128)(height - 1) * pitch + width);
}

void cost_of_copy(const struct cost_copy *c, struct cost *out) {
    start(out, COST_COPY);
    if (c->bytes == 0) return;
    cost_book(out, COST_R, c->bytes);
    cost_book(out, COST_W, c->bytes);
    cost_operand_add(out, "src", c->src, pitched_extent(c->bytes, c->width_bytes, c->height, c->src_pitch_bytes),
                     COST_R);
    cost_operand_add(out, "dst", c->dst, pitched_extent(c->bytes, c->width_bytes, c->height, c->dst_pitch_bytes),
                     COST_W);
}

void cost_of_memset(const struct cost_memset *m, struct cost *out) {
    start(out, COST_COPY);
    if (m->bytes == 0) return;
    cost_book(out, COST_W, m->bytes);
    cost_operand_add(out, "dst", m->dst, pitched_extent(m->bytes, m->width_bytes, m->height, m->pitch_bytes), COST_W);
}
