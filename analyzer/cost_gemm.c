/* GEMM, copy, memset. */
#include "analyzer/cost_model.h"

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
    return cost_bytes(cost_count((__int128)cost_count((__int128)rows * columns) * batch), type);
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

static void add_result(const struct cost_gemm *g, struct cost *out) {
    enum cost_mode mode = cost_result_mode(g->beta ? g->beta : ACCT_scalar_DEVICE);
    int empty = g->k == 0 || g->alpha == ACCT_scalar_ZERO;
    if (empty && g->beta == ACCT_scalar_ONE) return; /* C stays as it is */
    cost_book(out, mode, matrix_bytes(g->m, g->n, g->batch, g->stride_c, g->c_type));
    if (g->pointer_array) return;
    cost_operand_add(out, "C", g->c, cost_extent(g->m, g->n, g->ldc, g->batch, g->stride_c, g->c_type), mode);
}

/* Multiplies what may be unknown; a product beyond int64 (damaged sizes) is unknown. */
static int64_t times(int64_t a, int64_t b) {
    return a == COST_UNKNOWN || b == COST_UNKNOWN ? COST_UNKNOWN : cost_count((__int128)a * b);
}

static void count_product(const struct cost_gemm *g, struct cost *out) {
    int64_t count = times(times(times(2, g->m), g->n), times(g->k > 0 ? g->k : 0, g->batch));
    if (cost_is_complex(g->a_type)) count = times(count, 4);
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
    if (g->k > 0 && g->alpha != ACCT_scalar_ZERO) {
        struct factor a = {"A", g->a, g->m, g->k, g->trans_a, g->a_type, g->lda, g->stride_a, 1};
        struct factor b = {"B", g->b, g->k, g->n, g->trans_b, g->b_type, g->ldb, g->stride_b, 0};
        add_factor(g, &a, out);
        add_factor(g, &b, out);
        if ((!g->alpha || g->alpha == ACCT_scalar_DEVICE) && out->grade == COST_EXACT) out->grade = COST_BOUND;
    }
    add_result(g, out);
}

/* First to last byte of `height` rows of `width` bytes, `pitch` apart. */
static int64_t pitched_extent(int64_t bytes, int64_t width, int64_t height, int64_t pitch) {
    if (width == ACCT_NULL_I64 || height == ACCT_NULL_I64 || pitch == ACCT_NULL_I64) return bytes;
    if (width <= 0 || height <= 0) return 0;
    return cost_count((__int128)(height - 1) * pitch + width);
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
