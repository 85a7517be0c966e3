/* What each routine costs, and how its operands lie in memory. */
#include "vgpu/vgpu_blas_table.h"

/* ---- FLOPs: LAPACK working note 41, and what the accounts of acct count ---- */

static double none(const struct vgpu_call *c) {
    (void)c;
    return 0;
}
static double of_n(const struct vgpu_call *c) {
    return (double)c->n;
}
static double of_2n(const struct vgpu_call *c) {
    return 2.0 * (double)c->n;
}
static double of_6n(const struct vgpu_call *c) {
    return 6.0 * (double)c->n;
}
static double of_mn(const struct vgpu_call *c) {
    return (double)c->m * (double)c->n;
}
static double of_2mn(const struct vgpu_call *c) {
    return 2 * of_mn(c);
}
static double of_nn(const struct vgpu_call *c) {
    return (double)c->n * (double)c->n;
}
static double of_2nn(const struct vgpu_call *c) {
    return 2 * of_nn(c);
}
static double of_triangle(const struct vgpu_call *c) {
    return (double)c->n * ((double)c->n + 1);
}
static double of_2triangle(const struct vgpu_call *c) {
    return 2 * of_triangle(c);
}
static double of_2mnk(const struct vgpu_call *c) {
    return 2 * of_mn(c) * (double)c->k;
}
static int64_t vgpu_order_of(const struct vgpu_call *c) {
    return c->side == CUBLAS_SIDE_LEFT ? c->m : c->n;
}
static double of_sided(const struct vgpu_call *c) {
    return of_mn(c) * (double)vgpu_order_of(c);
}
static double of_2sided(const struct vgpu_call *c) {
    return 2 * of_sided(c);
}
static double of_rank_k(const struct vgpu_call *c) {
    return (double)c->k * of_triangle(c);
}
static double of_rank_2k(const struct vgpu_call *c) {
    return c->k ? 2 * (double)c->k * of_nn(c) + (double)c->n : 0;
}

/* Elements of an m×n matrix that lie on its diagonal, kl below and ku above: column j has rows j - ku … j + kl. */
static double in_band(int64_t m, int64_t n, int64_t kl, int64_t ku) {
    double sum = 0;
    for (int64_t j = 0; j < n; j++) {
        int64_t first = j > ku ? j - ku : 0, last = j + kl < m - 1 ? j + kl : m - 1;
        if (last >= first) sum += (double)(last - first + 1);
    }
    return sum;
}
static double of_band(const struct vgpu_call *c) {
    return 2 * in_band(c->m, c->n, c->kl, c->ku);
}
static double of_symmetric_band(const struct vgpu_call *c) {
    return 2 * in_band(c->n, c->n, c->k, c->k);
}
static double of_triangular_band(const struct vgpu_call *c) {
    return 2 * in_band(c->n, c->n, c->k, 0) - (double)c->n;
}

/* Factorisations have no place in the accounts; these estimates serve the times of the model alone. */
static double of_lu(const struct vgpu_call *c) {
    return of_nn(c) * (double)c->n * 2 / 3;
}
static double of_inverse(const struct vgpu_call *c) {
    return of_nn(c) * (double)c->n * 4 / 3;
}
static double of_lu_solution(const struct vgpu_call *c) {
    return of_2nn(c) * (double)c->k;
}
static double of_qr(const struct vgpu_call *c) {
    double m = (double)(c->m > c->n ? c->m : c->n), n = (double)(c->m > c->n ? c->n : c->m);
    return 2 * n * n * (m - n / 3);
}
static double of_least_squares(const struct vgpu_call *c) {
    return of_qr(c) + (4 * of_mn(c) + of_nn(c)) * (double)c->k;
}

const struct vgpu_routine_row vgpu_routines[VGPU_ROUTINES] = {
    [VGPU_ASUM] = {of_n, VGPU_S_VECTOR, VGPU_S_FULL, {VGPU_READ}, .result = true},
    [VGPU_AXPY] = {of_2n, VGPU_S_VECTORS, VGPU_S_FULL, {VGPU_READ, VGPU_UPDATED}, .alpha = true},
    [VGPU_COPY] = {none, VGPU_S_VECTORS, VGPU_S_FULL, {VGPU_READ, VGPU_WRITTEN}},
    [VGPU_DOT] = {of_2n, VGPU_S_VECTORS, VGPU_S_FULL, {VGPU_READ, VGPU_READ}, .result = true},
    [VGPU_IAMAX] = {none, VGPU_S_VECTOR, VGPU_S_FULL, {VGPU_READ}, .result = true},
    [VGPU_NRM2] = {of_2n, VGPU_S_VECTOR, VGPU_S_FULL, {VGPU_READ}, .result = true},
    [VGPU_ROT] = {of_6n, VGPU_S_VECTORS, VGPU_S_FULL, {VGPU_UPDATED, VGPU_UPDATED}},
    [VGPU_SCAL] = {of_n, VGPU_S_VECTOR, VGPU_S_FULL, {VGPU_UPDATED}, .alpha = true},
    [VGPU_SWAP] = {none, VGPU_S_VECTORS, VGPU_S_FULL, {VGPU_UPDATED, VGPU_UPDATED}},
    [VGPU_GEMV] =
        {of_2mn, VGPU_S_MATRIX_VECTOR, VGPU_S_FULL, {VGPU_READ, VGPU_READ, VGPU_UPDATED}, .alpha = true, .beta = true},
    [VGPU_GBMV] =
        {of_band, VGPU_S_MATRIX_VECTOR, VGPU_S_BAND, {VGPU_READ, VGPU_READ, VGPU_UPDATED}, .alpha = true, .beta = true},
    [VGPU_SYMV] = {of_2nn,
                   VGPU_S_SQUARE_VECTOR,
                   VGPU_S_TRIANGLE,
                   {VGPU_READ, VGPU_READ, VGPU_UPDATED},
                   .alpha = true,
                   .beta = true},
    [VGPU_SPMV] = {of_2nn,
                   VGPU_S_SQUARE_VECTOR,
                   VGPU_S_PACKED,
                   {VGPU_READ, VGPU_READ, VGPU_UPDATED},
                   .alpha = true,
                   .beta = true},
    [VGPU_SBMV] = {of_symmetric_band,
                   VGPU_S_SQUARE_VECTOR,
                   VGPU_S_BAND,
                   {VGPU_READ, VGPU_READ, VGPU_UPDATED},
                   .alpha = true,
                   .beta = true},
    [VGPU_TRMV] = {of_nn, VGPU_S_IN_PLACE, VGPU_S_TRIANGLE, {VGPU_READ, VGPU_UPDATED}},
    [VGPU_TPMV] = {of_nn, VGPU_S_IN_PLACE, VGPU_S_PACKED, {VGPU_READ, VGPU_UPDATED}},
    [VGPU_TBMV] = {of_triangular_band, VGPU_S_IN_PLACE, VGPU_S_BAND, {VGPU_READ, VGPU_UPDATED}},
    [VGPU_GER] = {of_2mn, VGPU_S_RANK_ONE, VGPU_S_FULL, {VGPU_UPDATED, VGPU_READ, VGPU_READ}, .alpha = true},
    [VGPU_SYR] = {of_triangle, VGPU_S_RANK_X, VGPU_S_TRIANGLE, {VGPU_UPDATED, VGPU_READ}, .alpha = true},
    [VGPU_SPR] = {of_triangle, VGPU_S_RANK_X, VGPU_S_PACKED, {VGPU_UPDATED, VGPU_READ}, .alpha = true},
    [VGPU_SYR2] = {of_2triangle, VGPU_S_RANK_XY, VGPU_S_TRIANGLE, {VGPU_UPDATED, VGPU_READ, VGPU_READ}, .alpha = true},
    [VGPU_SPR2] = {of_2triangle, VGPU_S_RANK_XY, VGPU_S_PACKED, {VGPU_UPDATED, VGPU_READ, VGPU_READ}, .alpha = true},
    [VGPU_GEMM] = {of_2mnk,
                   VGPU_S_PRODUCT,
                   VGPU_S_FULL,
                   {VGPU_READ, VGPU_READ, VGPU_UPDATED},
                   .alpha = true,
                   .beta = true,
                   .matrix_unit = true},
    [VGPU_SYMM] = {of_2sided,
                   VGPU_S_SIDED,
                   VGPU_S_TRIANGLE,
                   {VGPU_READ, VGPU_READ, VGPU_UPDATED},
                   .alpha = true,
                   .beta = true,
                   .matrix_unit = true},
    [VGPU_TRMM] = {of_sided,
                   VGPU_S_SIDED,
                   VGPU_S_TRIANGLE,
                   {VGPU_READ, VGPU_READ, VGPU_WRITTEN},
                   .alpha = true,
                   .matrix_unit = true},
    [VGPU_TRSM] =
        {of_sided, VGPU_S_SOLVED, VGPU_S_TRIANGLE, {VGPU_READ, VGPU_UPDATED}, .alpha = true, .matrix_unit = true},
    [VGPU_SYRK] = {of_rank_k,
                   VGPU_S_RANK_K,
                   VGPU_S_FULL,
                   {VGPU_READ, VGPU_UNUSED, VGPU_UPDATED},
                   .alpha = true,
                   .beta = true,
                   .matrix_unit = true},
    [VGPU_SYRKX] = {of_rank_k,
                    VGPU_S_RANK_2K,
                    VGPU_S_FULL,
                    {VGPU_READ, VGPU_READ, VGPU_UPDATED},
                    .alpha = true,
                    .beta = true,
                    .matrix_unit = true},
    [VGPU_SYR2K] = {of_rank_2k,
                    VGPU_S_RANK_2K,
                    VGPU_S_FULL,
                    {VGPU_READ, VGPU_READ, VGPU_UPDATED},
                    .alpha = true,
                    .beta = true,
                    .matrix_unit = true},
    [VGPU_GEAM] = {of_mn, VGPU_S_SUM, VGPU_S_FULL, {VGPU_READ, VGPU_READ, VGPU_WRITTEN}, .alpha = true, .beta = true},
    [VGPU_DGMM] = {of_mn, VGPU_S_DIAGONAL, VGPU_S_FULL, {VGPU_READ, VGPU_READ, VGPU_WRITTEN}},
    [VGPU_TPTTR] = {none, VGPU_S_UNPACK, VGPU_S_PACKED, {VGPU_READ, VGPU_UNUSED, VGPU_WRITTEN}},
    [VGPU_TRTTP] = {none, VGPU_S_PACK, VGPU_S_TRIANGLE, {VGPU_READ, VGPU_UNUSED, VGPU_WRITTEN}},
    [VGPU_GETRF] = {of_lu, VGPU_S_FACTOR, VGPU_S_FULL, {VGPU_UPDATED}},
    [VGPU_GETRI] = {of_inverse, VGPU_S_INVERSE, VGPU_S_FULL, {VGPU_READ, VGPU_UNUSED, VGPU_WRITTEN}},
    [VGPU_GETRS] = {of_lu_solution, VGPU_S_SOLUTION, VGPU_S_FULL, {VGPU_READ, VGPU_UPDATED}},
    [VGPU_GEQRF] = {of_qr, VGPU_S_FACTOR, VGPU_S_FULL, {VGPU_UPDATED}},
    [VGPU_GELS] = {of_least_squares, VGPU_S_SOLUTION, VGPU_S_FULL, {VGPU_UPDATED, VGPU_UPDATED}},
};

/* ---- operands ---- */

static struct vgpu_extent matrix(int64_t rows, int64_t columns, int64_t ld) {
    return (struct vgpu_extent){rows, columns, ld, (double)rows * (double)columns, false, false};
}

static struct vgpu_extent vector(int64_t n, int64_t inc) {
    return (struct vgpu_extent){1, n, inc < 0 ? -inc : inc, (double)n, true, false};
}

static struct vgpu_extent triangle(int64_t n, int64_t ld) {
    return (struct vgpu_extent){n, n, ld, (double)n * ((double)n + 1) / 2, false, true};
}

static struct vgpu_extent packed(int64_t n) {
    int64_t elements = n * (n + 1) / 2;
    return (struct vgpu_extent){elements, 1, vgpu_at_least_one(elements), (double)elements, false, false};
}

/* A matrix that is n×n, as its form has it. A band of m×n likewise. */
static struct vgpu_extent square(const struct vgpu_call *c, enum vgpu_form form, int64_t n, int64_t ld) {
    if (form == VGPU_S_PACKED) return packed(n);
    if (form == VGPU_S_TRIANGLE) return triangle(n, ld);
    if (form == VGPU_S_FULL) return matrix(n, n, ld);
    struct vgpu_extent band = matrix(c->k + 1, n, ld);
    band.elements = in_band(n, n, c->k, 0);
    return band;
}

static struct vgpu_extent general(const struct vgpu_call *c, enum vgpu_form form) {
    if (form != VGPU_S_BAND) return matrix(c->m, c->n, c->ld[0]);
    struct vgpu_extent band = matrix(c->kl + c->ku + 1, c->n, c->ld[0]);
    band.elements = in_band(c->m, c->n, c->kl, c->ku);
    return band;
}

static struct vgpu_extent transposable(bool t, int64_t rows, int64_t columns, int64_t ld) {
    return t ? matrix(columns, rows, ld) : matrix(rows, columns, ld);
}

struct vgpu_extent vgpu_extent_of(const struct vgpu_call *c, int i) {
    const struct vgpu_routine_row *r = &vgpu_routines[c->routine];
    bool ta = c->ta != CUBLAS_OP_N, tb = c->tb != CUBLAS_OP_N;
    int64_t m = c->m, n = c->n, k = c->k, ld = c->ld[i];
    switch (r->shape) {
    case VGPU_S_VECTOR:
    case VGPU_S_VECTORS:
        return vector(n, ld);
    case VGPU_S_MATRIX_VECTOR:
        return i ? vector((i == 1) == ta ? m : n, ld) : general(c, r->form);
    case VGPU_S_SQUARE_VECTOR:
    case VGPU_S_IN_PLACE:
    case VGPU_S_RANK_X:
    case VGPU_S_RANK_XY:
        return i ? vector(n, ld) : square(c, r->form, n, ld);
    case VGPU_S_RANK_ONE:
        return i ? vector(i == 1 ? m : n, ld) : matrix(m, n, ld);
    case VGPU_S_PRODUCT:
        return !i ? transposable(ta, m, k, ld) : i == 1 ? transposable(tb, k, n, ld) : matrix(m, n, ld);
    case VGPU_S_SIDED:
    case VGPU_S_SOLVED:
        return i ? matrix(m, n, ld) : square(c, r->form, vgpu_order_of(c), ld);
    case VGPU_S_RANK_K:
    case VGPU_S_RANK_2K:
        return i == 2 ? triangle(n, ld) : transposable(ta, n, k, ld);
    case VGPU_S_SUM:
        return i == 2 ? matrix(m, n, ld) : transposable(i ? tb : ta, m, n, ld);
    case VGPU_S_DIAGONAL:
        return i == 1 ? vector(vgpu_order_of(c), ld) : matrix(m, n, ld);
    case VGPU_S_UNPACK:
        return i ? triangle(n, ld) : packed(n);
    case VGPU_S_PACK:
        return i ? packed(n) : triangle(n, ld);
    case VGPU_S_FACTOR:
        return matrix(m, n, ld);
    case VGPU_S_INVERSE:
        return matrix(n, n, ld);
    default:
        return i ? matrix(m, k, ld) : matrix(m, n, ld);
    }
}

size_t vgpu_result_bytes(const struct vgpu_call *c) {
    return c->index_bytes ? (size_t)c->index_bytes : vgpu_scalar_bytes(vgpu_call_type(c, VGPU_OPERANDS - 1));
}

/* ---- the amount of work ---- */

static enum vgpu_format format_of(const struct vgpu_call *c) {
    if (c->routine == VGPU_GEMM) return c->format;
    switch ((int)c->type) {
    case CUDA_R_64F:
    case CUDA_C_64F:
        return vgpu_routines[c->routine].matrix_unit ? VGPU_FP64_MATRIX : VGPU_FP64;
    default:
        return VGPU_FP32;
    }
}

static bool is_zero(const struct vgpu_scalar *s) {
    return !s->device && s->value == 0 && s->imaginary == 0;
}

static bool is_one(const struct vgpu_scalar *s) {
    return !s->device && s->value == 1 && s->imaginary == 0;
}

bool vgpu_only_scales(const struct vgpu_call *c, bool alpha_zero) {
    const struct vgpu_routine_row *r = &vgpu_routines[c->routine];
    bool empty = (r->shape == VGPU_S_PRODUCT || r->shape == VGPU_S_RANK_K || r->shape == VGPU_S_RANK_2K) && !c->k;
    return r->beta && r->shape != VGPU_S_SUM && (alpha_zero || empty);
}

static enum vgpu_access access_of(const struct vgpu_call *c, const struct vgpu_routine_row *r, int i) {
    enum vgpu_access a = r->access[i];
    bool result = i == VGPU_OPERANDS - 1;
    if (r->shape == VGPU_S_SUM && ((i == 0 && is_zero(&c->alpha)) || (i == 1 && is_zero(&c->beta)))) return VGPU_UNUSED;
    if (vgpu_only_scales(c, is_zero(&c->alpha)) && (!result || is_one(&c->beta))) return VGPU_UNUSED;
    if (r->beta && r->shape != VGPU_S_SUM && result && is_zero(&c->beta)) return VGPU_WRITTEN;
    return a;
}

void vgpu_call_amount(const struct vgpu_call *c, struct vgpu_amount *amount) {
    const struct vgpu_routine_row *r = &vgpu_routines[c->routine];
    double flops = r->flops(c) * (double)c->batch * (vgpu_is_complex(c->type) ? 4 : 1);
    amount->flops[format_of(c)] += flops;
    for (int i = 0; i < VGPU_OPERANDS; i++) {
        enum vgpu_access a = access_of(c, r, i);
        if (a == VGPU_UNUSED) continue;
        double once = vgpu_extent_of(c, i).elements * (double)vgpu_scalar_bytes(vgpu_call_type(c, i));
        double copies = !c->array && c->batch > 1 && !c->stride[i] ? 1 : (double)c->batch;
        amount->bytes += once * copies * (a == VGPU_UPDATED ? 2 : 1);
    }
    if (r->result) amount->bytes += (double)vgpu_result_bytes(c);
}
