/* What all cuBLAS routines have in common. */
#include "vgpu/vgpu_blas_call.h"

#include <math.h>
#include <string.h>

enum access { NONE, IN, OUT, INOUT };

/* What the operands are. */
enum shape {
    VECTOR,        /* x */
    VECTORS,       /* x, y */
    MATRIX_VECTOR, /* A m×n, x, y */
    SQUARE_VECTOR, /* A n×n, x, y */
    IN_PLACE,      /* A n×n, x */
    RANK_ONE,      /* A m×n, x of m, y of n */
    RANK_X,        /* A n×n, x */
    RANK_XY,       /* A n×n, x, y */
    PRODUCT,       /* op(A) m×k, op(B) k×n, C m×n */
    SIDED,         /* A square, on one side of B m×n; C m×n */
    SOLVED,        /* … without C */
    RANK_K,        /* op(A) n×k, C n×n */
    RANK_2K,       /* op(A), op(B) n×k, C n×n */
    SUM,           /* op(A), op(B), C m×n */
    DIAGONAL,      /* A m×n, x, C m×n */
    UNPACK,        /* packed A, full C */
    PACK,
    FACTOR,  /* A n×n or m×n */
    INVERSE, /* A n×n, C n×n */
    SOLUTION /* A m×n, right sides B of k columns */
};

/* Of a square A, or of a rank-k result, what counts. */
enum form { FULL, TRIANGLE, PACKED, BAND };

struct routine {
    double (*flops)(const struct vgpu_call *c); /* of one real problem */
    enum shape shape;
    enum form form;
    enum access access[VGPU_OPERANDS];
    bool alpha, beta;
    bool result; /* one number beside the vectors */
    bool matrix_unit;
};

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
static int64_t order_of(const struct vgpu_call *c) {
    return c->side == CUBLAS_SIDE_LEFT ? c->m : c->n;
}
static double of_sided(const struct vgpu_call *c) {
    return of_mn(c) * (double)order_of(c);
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

static const struct routine routines[VGPU_ROUTINES] = {
    [VGPU_ASUM] = {of_n, VECTOR, FULL, {IN}, .result = true},
    [VGPU_AXPY] = {of_2n, VECTORS, FULL, {IN, INOUT}, .alpha = true},
    [VGPU_COPY] = {none, VECTORS, FULL, {IN, OUT}},
    [VGPU_DOT] = {of_2n, VECTORS, FULL, {IN, IN}, .result = true},
    [VGPU_IAMAX] = {none, VECTOR, FULL, {IN}, .result = true},
    [VGPU_NRM2] = {of_2n, VECTOR, FULL, {IN}, .result = true},
    [VGPU_ROT] = {of_6n, VECTORS, FULL, {INOUT, INOUT}},
    [VGPU_SCAL] = {of_n, VECTOR, FULL, {INOUT}, .alpha = true},
    [VGPU_SWAP] = {none, VECTORS, FULL, {INOUT, INOUT}},
    [VGPU_GEMV] = {of_2mn, MATRIX_VECTOR, FULL, {IN, IN, INOUT}, .alpha = true, .beta = true},
    [VGPU_GBMV] = {of_band, MATRIX_VECTOR, BAND, {IN, IN, INOUT}, .alpha = true, .beta = true},
    [VGPU_SYMV] = {of_2nn, SQUARE_VECTOR, TRIANGLE, {IN, IN, INOUT}, .alpha = true, .beta = true},
    [VGPU_SPMV] = {of_2nn, SQUARE_VECTOR, PACKED, {IN, IN, INOUT}, .alpha = true, .beta = true},
    [VGPU_SBMV] = {of_symmetric_band, SQUARE_VECTOR, BAND, {IN, IN, INOUT}, .alpha = true, .beta = true},
    [VGPU_TRMV] = {of_nn, IN_PLACE, TRIANGLE, {IN, INOUT}},
    [VGPU_TPMV] = {of_nn, IN_PLACE, PACKED, {IN, INOUT}},
    [VGPU_TBMV] = {of_triangular_band, IN_PLACE, BAND, {IN, INOUT}},
    [VGPU_GER] = {of_2mn, RANK_ONE, FULL, {INOUT, IN, IN}, .alpha = true},
    [VGPU_SYR] = {of_triangle, RANK_X, TRIANGLE, {INOUT, IN}, .alpha = true},
    [VGPU_SPR] = {of_triangle, RANK_X, PACKED, {INOUT, IN}, .alpha = true},
    [VGPU_SYR2] = {of_2triangle, RANK_XY, TRIANGLE, {INOUT, IN, IN}, .alpha = true},
    [VGPU_SPR2] = {of_2triangle, RANK_XY, PACKED, {INOUT, IN, IN}, .alpha = true},
    [VGPU_GEMM] = {of_2mnk, PRODUCT, FULL, {IN, IN, INOUT}, .alpha = true, .beta = true, .matrix_unit = true},
    [VGPU_SYMM] = {of_2sided, SIDED, TRIANGLE, {IN, IN, INOUT}, .alpha = true, .beta = true, .matrix_unit = true},
    [VGPU_TRMM] = {of_sided, SIDED, TRIANGLE, {IN, IN, OUT}, .alpha = true, .matrix_unit = true},
    [VGPU_TRSM] = {of_sided, SOLVED, TRIANGLE, {IN, INOUT}, .alpha = true, .matrix_unit = true},
    [VGPU_SYRK] = {of_rank_k, RANK_K, FULL, {IN, NONE, INOUT}, .alpha = true, .beta = true, .matrix_unit = true},
    [VGPU_SYRKX] = {of_rank_k, RANK_2K, FULL, {IN, IN, INOUT}, .alpha = true, .beta = true, .matrix_unit = true},
    [VGPU_SYR2K] = {of_rank_2k, RANK_2K, FULL, {IN, IN, INOUT}, .alpha = true, .beta = true, .matrix_unit = true},
    [VGPU_GEAM] = {of_mn, SUM, FULL, {IN, IN, OUT}, .alpha = true, .beta = true},
    [VGPU_DGMM] = {of_mn, DIAGONAL, FULL, {IN, IN, OUT}},
    [VGPU_TPTTR] = {none, UNPACK, PACKED, {IN, NONE, OUT}},
    [VGPU_TRTTP] = {none, PACK, TRIANGLE, {IN, NONE, OUT}},
    [VGPU_GETRF] = {of_lu, FACTOR, FULL, {INOUT}},
    [VGPU_GETRI] = {of_inverse, INVERSE, FULL, {IN, NONE, OUT}},
    [VGPU_GETRS] = {of_lu_solution, SOLUTION, FULL, {IN, INOUT}},
    [VGPU_GEQRF] = {of_qr, FACTOR, FULL, {INOUT}},
    [VGPU_GELS] = {of_least_squares, SOLUTION, FULL, {INOUT, INOUT}},
};

/* ---- operands ---- */

cudaDataType_t vgpu_call_type(const struct vgpu_call *c, int operand) {
    int own = !operand ? c->a_type : operand == 1 ? c->b_type : c->c_type;
    return own ? (cudaDataType_t)(own - 1) : c->type;
}

cudaDataType_t vgpu_alpha_type(const struct vgpu_call *c) {
    return c->alpha_type ? (cudaDataType_t)(c->alpha_type - 1) : c->type;
}

static cudaDataType_t beta_type(const struct vgpu_call *c) {
    return c->beta_type ? (cudaDataType_t)(c->beta_type - 1) : vgpu_alpha_type(c);
}

/* How one operand lies in memory. */
struct extent {
    int64_t rows, columns; /* a vector: 1 and its length */
    int64_t ld;            /* a vector: the size of its stride */
    double elements;       /* that count */
    bool vector, triangle; /* triangle: of the result, the half that is written */
};

static struct extent matrix(int64_t rows, int64_t columns, int64_t ld) {
    return (struct extent){rows, columns, ld, (double)rows * (double)columns, false, false};
}

static struct extent vector(int64_t n, int64_t inc) {
    return (struct extent){1, n, inc < 0 ? -inc : inc, (double)n, true, false};
}

static struct extent triangle(int64_t n, int64_t ld) {
    return (struct extent){n, n, ld, (double)n * ((double)n + 1) / 2, false, true};
}

static struct extent packed(int64_t n) {
    int64_t elements = n * (n + 1) / 2;
    return (struct extent){elements, 1, vgpu_at_least_one(elements), (double)elements, false, false};
}

/* A matrix that is n×n, as its form has it. A band of m×n likewise. */
static struct extent square(const struct vgpu_call *c, enum form form, int64_t n, int64_t ld) {
    if (form == PACKED) return packed(n);
    if (form == TRIANGLE) return triangle(n, ld);
    if (form == FULL) return matrix(n, n, ld);
    struct extent band = matrix(c->k + 1, n, ld);
    band.elements = in_band(n, n, c->k, 0);
    return band;
}

static struct extent general(const struct vgpu_call *c, enum form form) {
    if (form != BAND) return matrix(c->m, c->n, c->ld[0]);
    struct extent band = matrix(c->kl + c->ku + 1, c->n, c->ld[0]);
    band.elements = in_band(c->m, c->n, c->kl, c->ku);
    return band;
}

static struct extent transposable(bool t, int64_t rows, int64_t columns, int64_t ld) {
    return t ? matrix(columns, rows, ld) : matrix(rows, columns, ld);
}

static struct extent extent_of(const struct vgpu_call *c, int i) {
    const struct routine *r = &routines[c->routine];
    bool ta = c->ta != CUBLAS_OP_N, tb = c->tb != CUBLAS_OP_N;
    int64_t m = c->m, n = c->n, k = c->k, ld = c->ld[i];
    switch (r->shape) {
    case VECTOR:
    case VECTORS:
        return vector(n, ld);
    case MATRIX_VECTOR:
        return i ? vector((i == 1) == ta ? m : n, ld) : general(c, r->form);
    case SQUARE_VECTOR:
    case IN_PLACE:
    case RANK_X:
    case RANK_XY:
        return i ? vector(n, ld) : square(c, r->form, n, ld);
    case RANK_ONE:
        return i ? vector(i == 1 ? m : n, ld) : matrix(m, n, ld);
    case PRODUCT:
        return !i ? transposable(ta, m, k, ld) : i == 1 ? transposable(tb, k, n, ld) : matrix(m, n, ld);
    case SIDED:
    case SOLVED:
        return i ? matrix(m, n, ld) : square(c, r->form, order_of(c), ld);
    case RANK_K:
    case RANK_2K:
        return i == 2 ? triangle(n, ld) : transposable(ta, n, k, ld);
    case SUM:
        return i == 2 ? matrix(m, n, ld) : transposable(i ? tb : ta, m, n, ld);
    case DIAGONAL:
        return i == 1 ? vector(order_of(c), ld) : matrix(m, n, ld);
    case UNPACK:
        return i ? triangle(n, ld) : packed(n);
    case PACK:
        return i ? packed(n) : triangle(n, ld);
    case FACTOR:
        return matrix(m, n, ld);
    case INVERSE:
        return matrix(n, n, ld);
    default:
        return i ? matrix(m, k, ld) : matrix(m, n, ld);
    }
}

/* Of a reduction: one number, or a place. */
static size_t result_bytes(const struct vgpu_call *c) {
    return c->index_bytes ? (size_t)c->index_bytes : vgpu_scalar_bytes(vgpu_call_type(c, VGPU_OPERANDS - 1));
}

/* ---- the amount of work ---- */

static enum vgpu_format format_of(const struct vgpu_call *c) {
    if (c->routine == VGPU_GEMM) return c->format;
    switch ((int)c->type) {
    case CUDA_R_64F:
    case CUDA_C_64F:
        return routines[c->routine].matrix_unit ? VGPU_FP64_MATRIX : VGPU_FP64;
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

/* The factors of a product count for nothing: alpha is 0, or they are empty. */
static bool only_scales(const struct vgpu_call *c, const struct routine *r, bool alpha_zero) {
    bool empty = (r->shape == PRODUCT || r->shape == RANK_K || r->shape == RANK_2K) && !c->k;
    return r->beta && r->shape != SUM && (alpha_zero || empty);
}

static enum access access_of(const struct vgpu_call *c, const struct routine *r, int i) {
    enum access a = r->access[i];
    bool result = i == VGPU_OPERANDS - 1;
    if (r->shape == SUM && ((i == 0 && is_zero(&c->alpha)) || (i == 1 && is_zero(&c->beta)))) return NONE;
    if (only_scales(c, r, is_zero(&c->alpha)) && (!result || is_one(&c->beta))) return NONE;
    if (r->beta && r->shape != SUM && result && is_zero(&c->beta)) return OUT;
    return a;
}

void vgpu_call_amount(const struct vgpu_call *c, struct vgpu_amount *amount) {
    const struct routine *r = &routines[c->routine];
    double flops = r->flops(c) * (double)c->batch * (vgpu_is_complex(c->type) ? 4 : 1);
    amount->flops[format_of(c)] += flops;
    for (int i = 0; i < VGPU_OPERANDS; i++) {
        enum access a = access_of(c, r, i);
        if (a == NONE) continue;
        double once = extent_of(c, i).elements * (double)vgpu_scalar_bytes(vgpu_call_type(c, i));
        double copies = !c->array && c->batch > 1 && !c->stride[i] ? 1 : (double)c->batch;
        amount->bytes += once * copies * (a == INOUT ? 2 : 1);
    }
    if (r->result) amount->bytes += (double)result_bytes(c);
}

/* ---- checks ---- */

static bool good_flags(const struct vgpu_call *c) {
    return (c->side == CUBLAS_SIDE_LEFT || c->side == CUBLAS_SIDE_RIGHT) && vgpu_is_uplo(c->uplo) &&
           vgpu_is_op(c->ta) && vgpu_is_op(c->tb) && (c->diag == CUBLAS_DIAG_UNIT || c->diag == CUBLAS_DIAG_NON_UNIT);
}

static bool good_ld(const struct vgpu_call *c, const struct routine *r, int i) {
    struct extent e = extent_of(c, i);
    if (e.vector) return r->shape == VECTOR || r->shape == VECTORS || r->shape == DIAGONAL || c->ld[i];
    bool is_packed = r->form == PACKED && (r->shape == UNPACK ? !i : r->shape != PACK && !i);
    if (is_packed || (r->shape == PACK && i)) return true;
    return c->ld[i] >= vgpu_at_least_one(e.rows);
}

cublasStatus_t vgpu_call_check(struct vgpu_call *c, const void *alpha, const void *beta, bool *nothing) {
    const struct routine *r = &routines[c->routine];
    *nothing = false;
    if (!c->batched) c->batch = 1;
    if (!good_flags(c) || c->m < 0 || c->k < 0 || c->kl < 0 || c->ku < 0 || c->batch < 0)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (c->n < 0 && r->shape != VECTOR && r->shape != VECTORS) return CUBLAS_STATUS_INVALID_VALUE;
    for (int i = 0; i < VGPU_OPERANDS; i++)
        if (r->access[i] != NONE && !good_ld(c, r, i)) return CUBLAS_STATUS_INVALID_VALUE;
    if ((r->alpha && !alpha) || (r->beta && !beta) || (r->result && !c->p[2])) return CUBLAS_STATUS_INVALID_VALUE;
    bool uses_m = r->shape == MATRIX_VECTOR || r->shape == RANK_ONE || r->shape == PRODUCT || r->shape == SIDED ||
                  r->shape == SOLVED || r->shape == SUM || r->shape == DIAGONAL || r->shape == FACTOR;
    *nothing = (c->n <= 0 && !r->result) || (uses_m && !c->m) || !c->batch;
    if (*nothing) return CUBLAS_STATUS_SUCCESS;
    for (int i = 0; i < VGPU_OPERANDS; i++) {
        struct extent e = extent_of(c, i);
        if (r->access[i] != NONE && !c->p[i] && e.rows > 0 && e.columns > 0) return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (vgpu_too_large(c->m, c->n, c->k) || vgpu_too_large(c->ld[0], c->ld[1], c->ld[2]) ||
        vgpu_too_large(c->kl, c->ku, 0))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- on the stream's thread ---- */

struct vgpu_value vgpu_value(double real, double imaginary) {
    return (struct vgpu_value){real, {real, imaginary}, (float)real, {(float)real, (float)imaginary}};
}

static void *operand(const struct vgpu_call *c, int i, int64_t problem) {
    if (!c->p[i] || !c->batched) return c->p[i];
    if (c->array) return ((void *const *)c->p[i])[problem];
    return (char *)c->p[i] + problem * c->stride[i] * (int64_t)vgpu_scalar_bytes(vgpu_call_type(c, i));
}

static bool in_reach(const struct vgpu_call *c, int i) {
    struct extent e = extent_of(c, i);
    uint64_t bytes = vgpu_matrix_bytes(e.rows, e.columns, e.ld, vgpu_scalar_bytes(vgpu_call_type(c, i)));
    if (!bytes) return true;
    if (c->array && !vgpu_reach(c->call, c->p[i], (uint64_t)c->batch * sizeof(void *))) return false;
    for (int64_t b = 0; b < c->batch; b++)
        if (!vgpu_reach(c->call, operand(c, i, b), bytes)) return false;
    return true;
}

#define SCALE(T)                                                                        \
    static void scale_##T(T *x, int64_t n, int64_t inc, T beta) {                       \
        for (int64_t i = 0; i < n; i++) x[i * inc] = beta == 0 ? 0 : beta * x[i * inc]; \
    }
SCALE(float)
SCALE(double)
SCALE(cfloat)
SCALE(cdouble)

static void scale_line(cudaDataType_t type, void *x, int64_t n, int64_t inc, const struct vgpu_value *beta) {
    switch ((int)type) {
    case CUDA_R_32F:
        scale_float(x, n, inc, beta->s);
        break;
    case CUDA_R_64F:
        scale_double(x, n, inc, beta->d);
        break;
    case CUDA_C_32F:
        scale_cfloat(x, n, inc, beta->c[0] + beta->c[1] * _Complex_I);
        break;
    case CUDA_C_64F:
        scale_cdouble(x, n, inc, beta->z[0] + beta->z[1] * _Complex_I);
        break;
    default:
        for (int64_t i = 0; i < n; i++)
            vgpu_store(type, x, i * inc, beta->d == 0 ? 0 : beta->d * vgpu_load(type, x, i * inc));
    }
}

/* The result times beta; with beta = 0 what is there does not count, be it NaN. Only the part that the routine writes
 * is touched. */
static void scale_result(const struct vgpu_call *c, void *p, const struct vgpu_value *beta) {
    struct extent e = extent_of(c, VGPU_OPERANDS - 1);
    cudaDataType_t type = vgpu_call_type(c, VGPU_OPERANDS - 1);
    size_t bytes = vgpu_scalar_bytes(type);
    if (e.vector) {
        scale_line(type, p, e.columns, e.ld, beta);
        return;
    }
    for (int64_t j = 0; j < e.columns; j++) {
        int64_t from = e.triangle && c->uplo == CUBLAS_FILL_MODE_LOWER ? j : 0;
        int64_t to = e.triangle && c->uplo == CUBLAS_FILL_MODE_UPPER ? j + 1 : e.rows;
        scale_line(type, (char *)p + (size_t)(j * e.ld + from) * bytes, to - from, 1, beta);
    }
}

void vgpu_make_real(cudaDataType_t type, void *p, int64_t i) {
    if (type == CUDA_C_32F)
        ((float *)p)[2 * i + 1] = 0;
    else
        ((double *)p)[2 * i + 1] = 0;
}

static bool get_scalar(const struct vgpu_scalar *s, const char *call, struct vgpu_value *out) {
    double v[2];
    if (!vgpu_scalar_get_complex(s, call, v)) return false;
    *out = vgpu_value(v[0], v[1]);
    return true;
}

static bool value_is(const struct vgpu_value *v, double real) {
    return v->z[0] == real && v->z[1] == 0;
}

static void run_one(const struct vgpu_call *c, const struct routine *r, bool scales, const struct vgpu_value *alpha,
                    const struct vgpu_value *beta) {
    void *p[VGPU_OPERANDS];
    for (int i = 0; i < VGPU_OPERANDS; i++) p[i] = r->access[i] == NONE ? c->p[i] : operand(c, i, c->problem);
    bool has_beta = r->beta && r->shape != SUM;
    bool clears = value_is(beta, 0) && c->routine != VGPU_GEMM; /* whose beta = 0 can be relied on */
    if (has_beta && (clears || (scales && !value_is(beta, 1)))) {
        scale_result(c, p[2], beta);
        for (int64_t j = 0; scales && c->hermitian && j < c->n; j++) vgpu_make_real(c->type, p[2], j * (c->ld[2] + 1));
    }
    if (!scales) c->run(c, p, alpha, beta);
}

static bool all_in_reach(const struct vgpu_call *c, const struct routine *r, bool scales,
                         const struct vgpu_value *alpha, const struct vgpu_value *beta) {
    for (int i = 0; i < VGPU_OPERANDS; i++) {
        bool unread = (scales && i < VGPU_OPERANDS - 1) ||
                      (r->shape == SUM && ((i == 0 && value_is(alpha, 0)) || (i == 1 && value_is(beta, 0))));
        if (r->access[i] != NONE && !unread && !in_reach(c, i)) return false;
    }
    return true;
}

void vgpu_call_run(void *args) {
    struct vgpu_call *c = args;
    const struct routine *r = &routines[c->routine];
    struct vgpu_value alpha = {0}, beta = {0};
    size_t result = result_bytes(c);
    if (!get_scalar(&c->alpha, c->call, &alpha) || !get_scalar(&c->beta, c->call, &beta)) return;
    if (r->result && !c->result_waits && !vgpu_reach(c->call, c->p[2], result)) return;
    /* Reductions of nothing, and of a stride that is not positive where there is one vector, are zero; so scal is
     * nothing. */
    if (c->n <= 0 || (r->shape == VECTOR && c->ld[0] <= 0)) {
        if (r->result) memset(c->p[2], 0, result);
        return;
    }
    bool scales = only_scales(c, r, value_is(&alpha, 0));
    if (!all_in_reach(c, r, scales, &alpha, &beta)) return;
    for (c->problem = 0; c->problem < c->batch; c->problem++) run_one(c, r, scales, &alpha, &beta);
}

/* Nothing is computed: a result for the host is 0. What the device only could tell (pointers in arrays) is not asked.
 */
static void dry_run(void *args) {
    struct vgpu_call *c = args;
    const struct routine *r = &routines[c->routine];
    size_t result = result_bytes(c);
    if (r->result && c->result_waits) memset(c->p[2], 0, result);
    for (int i = 0; i < VGPU_OPERANDS && !c->array && c->n > 0; i++)
        if (r->access[i] != NONE && c->p[i] && !in_reach(c, i)) return;
}

cublasStatus_t vgpu_call(cublasHandle_t handle, struct vgpu_call *c, const void *alpha, const void *beta) {
    const struct routine *r = &routines[c->routine];
    struct vgpu_blas h;
    struct vgpu_work w = {.run = vgpu_call_run, .dry = dry_run, .args = c, .bytes = sizeof *c};
    bool nothing;
    cublasStatus_t e = vgpu_blas_open(handle, &h);
    if (!e) e = vgpu_call_check(c, alpha, beta, &nothing);
    if (e || nothing) return e;
    if (r->alpha || (c->routine == VGPU_ROT && alpha)) c->alpha = vgpu_scalar(&h, alpha, vgpu_alpha_type(c));
    if (r->beta || (c->routine == VGPU_ROT && beta)) c->beta = vgpu_scalar(&h, beta, beta_type(c));
    c->result_waits = r->result && h.mode == CUBLAS_POINTER_MODE_HOST;
    vgpu_call_amount(c, &w.amount);
    return vgpu_blas_run(&h, c->kernel ? c->kernel : c->call, c->variant ? c->variant : "", &w, c->result_waits);
}
