/* The BLAS routines but GEMM: one row each says what it counts and how it uses its operands; the families say what
 * shape the operands have. */
#include "analyzer/cost_model.h"

#include <string.h>

typedef __int128 wide;

/* FLOPs of one real problem. */
static wide f_zero(const struct cost_blas *b) {
    (void)b;
    return 0;
}
static wide f_n(const struct cost_blas *b) {
    return b->n;
}
static wide f_2n(const struct cost_blas *b) {
    return (wide)2 * b->n;
}
static wide f_6n(const struct cost_blas *b) {
    return (wide)6 * b->n;
}
static wide f_mn(const struct cost_blas *b) {
    return (wide)b->m * b->n;
}
static wide f_2mn(const struct cost_blas *b) {
    return (wide)2 * b->m * b->n;
}
static wide f_nn(const struct cost_blas *b) {
    return (wide)b->n * b->n;
}
static wide f_2nn(const struct cost_blas *b) {
    return (wide)2 * b->n * b->n;
}
static wide f_tri(const struct cost_blas *b) {
    return (wide)b->n * (b->n + 1);
}
static wide f_2tri(const struct cost_blas *b) {
    return (wide)2 * b->n * (b->n + 1);
}
static wide f_syrk(const struct cost_blas *b) {
    return (wide)b->k * b->n * (b->n + 1);
}
static wide f_syr2k(const struct cost_blas *b) {
    return b->k ? (wide)2 * b->k * b->n * b->n + b->n : 0;
}

static wide f_symm(const struct cost_blas *b) {
    return b->side == ACCT_side_RIGHT ? (wide)2 * b->m * b->n * b->n : (wide)2 * b->m * b->m * b->n;
}
static wide f_trmm(const struct cost_blas *b) {
    return b->side == ACCT_side_RIGHT ? (wide)b->m * b->n * b->n : (wide)b->m * b->m * b->n;
}

/* cublasLtMatrixTransform: geam, whose matrices may differ in type; that which changes layout or type alone is a copy,
 * and computes nothing. */
static int only_moves(const struct cost_blas *b) {
    return b->alpha == ACCT_scalar_ONE && b->beta == ACCT_scalar_ZERO;
}
static wide f_transform(const struct cost_blas *b) {
    return only_moves(b) ? 0 : (wide)b->m * b->n;
}

/* Elements of a corner that a band leaves out: diagonals of 1, 2, … t elements, none longer than `longest`. */
static wide corner(int64_t t, int64_t longest) {
    if (t <= 0) return 0;
    if (t <= longest) return (wide)t * (t + 1) / 2;
    return (wide)longest * (longest + 1) / 2 + (wide)(t - longest) * longest;
}

/* Elements of the band of an m×n matrix; negative if the band is not known. */
static wide band(int64_t m, int64_t n, int64_t kl, int64_t ku) {
    if (kl < 0 || ku < 0) return -1;
    return (wide)m * n - corner(n - 1 - ku, m) - corner(m - 1 - kl, n);
}
static wide f_gbmv(const struct cost_blas *b) {
    return 2 * band(b->m, b->n, b->kl, b->ku);
}
static wide f_sbmv(const struct cost_blas *b) {
    return 2 * band(b->n, b->n, b->k, b->k);
}
/* A triangular band: the diagonal multiplies (divides), all else is a multiply-add. */
static wide f_tbmv(const struct cost_blas *b) {
    return 2 * band(b->n, b->n, b->k, 0) - b->n;
}

/* Shapes: what the operands a, b, c are. */
enum shape {
    V_X, /* a = x                     V_XY: a = x, b = y                */
    V_XY,
    V_X_RES, /* a = x, c = scalar         V_XY_RES: a = x, b = y, c = scalar */
    V_XY_RES,
    MV,       /* A m×n, b = x, c = y by trans_a */
    MV_SQ,    /* A n×n special, b = x, c = y */
    MV_IN,    /* A n×n triangle, b = x in place */
    RANK1,    /* A m×n, b = x (m), c = y (n) */
    RANK_X,   /* A n×n triangle, b = x */
    RANK_XY,  /* A n×n triangle, b = x, c = y */
    MM_SIDE,  /* A special (side), B m×n, C m×n */
    MM_SOLVE, /* A triangle (side), B m×n in place */
    MM_RK,    /* A n×k, C n×n triangle */
    MM_R2K,   /* A, B n×k, C n×n triangle */
    MM_ADD,   /* A, B, C m×n */
    MM_DIAG   /* A m×n, b = x, C m×n */
};

enum form { FULL, TRIANGLE, PACKED, BAND };

struct routine {
    const char *name;
    wide (*flops)(const struct cost_blas *);
    enum shape shape;
    enum form form; /* of A */
    enum cost_role role;
    enum cost_mode x, y; /* at level 1; at other levels beta decides */
};

static const struct routine routines[] = {
    {"axpy", f_2n, V_XY, FULL, COST_KERNEL, COST_R, COST_RW},
    {"scal", f_n, V_X, FULL, COST_KERNEL, COST_RW, 0},
    {"copy", f_zero, V_XY, FULL, COST_COPY, COST_R, COST_W},
    {"swap", f_zero, V_XY, FULL, COST_KERNEL, COST_RW, COST_RW},
    {"dot", f_2n, V_XY_RES, FULL, COST_KERNEL, COST_R, COST_R},
    {"dotu", f_2n, V_XY_RES, FULL, COST_KERNEL, COST_R, COST_R},
    {"dotc", f_2n, V_XY_RES, FULL, COST_KERNEL, COST_R, COST_R},
    {"nrm2", f_2n, V_X_RES, FULL, COST_KERNEL, COST_R, 0},
    {"asum", f_n, V_X_RES, FULL, COST_KERNEL, COST_R, 0},
    {"amax", f_zero, V_X_RES, FULL, COST_KERNEL, COST_R, 0},
    {"amin", f_zero, V_X_RES, FULL, COST_KERNEL, COST_R, 0},
    {"iamax", f_zero, V_X_RES, FULL, COST_KERNEL, COST_R, 0},
    {"iamin", f_zero, V_X_RES, FULL, COST_KERNEL, COST_R, 0},
    {"rot", f_6n, V_XY, FULL, COST_KERNEL, COST_RW, COST_RW},
    {"rotm", f_6n, V_XY, FULL, COST_KERNEL, COST_RW, COST_RW},
    {"gemv", f_2mn, MV, FULL, COST_KERNEL, 0, 0},
    {"gbmv", f_gbmv, MV, BAND, COST_KERNEL, 0, 0},
    {"symv", f_2nn, MV_SQ, TRIANGLE, COST_KERNEL, 0, 0},
    {"hemv", f_2nn, MV_SQ, TRIANGLE, COST_KERNEL, 0, 0},
    {"spmv", f_2nn, MV_SQ, PACKED, COST_KERNEL, 0, 0},
    {"hpmv", f_2nn, MV_SQ, PACKED, COST_KERNEL, 0, 0},
    {"sbmv", f_sbmv, MV_SQ, BAND, COST_KERNEL, 0, 0},
    {"hbmv", f_sbmv, MV_SQ, BAND, COST_KERNEL, 0, 0},
    {"trmv", f_nn, MV_IN, TRIANGLE, COST_KERNEL, 0, 0},
    {"trsv", f_nn, MV_IN, TRIANGLE, COST_KERNEL, 0, 0},
    {"tpmv", f_nn, MV_IN, PACKED, COST_KERNEL, 0, 0},
    {"tpsv", f_nn, MV_IN, PACKED, COST_KERNEL, 0, 0},
    {"tbmv", f_tbmv, MV_IN, BAND, COST_KERNEL, 0, 0},
    {"tbsv", f_tbmv, MV_IN, BAND, COST_KERNEL, 0, 0},
    {"ger", f_2mn, RANK1, FULL, COST_KERNEL, 0, 0},
    {"geru", f_2mn, RANK1, FULL, COST_KERNEL, 0, 0},
    {"gerc", f_2mn, RANK1, FULL, COST_KERNEL, 0, 0},
    {"syr", f_tri, RANK_X, TRIANGLE, COST_KERNEL, 0, 0},
    {"her", f_tri, RANK_X, TRIANGLE, COST_KERNEL, 0, 0},
    {"spr", f_tri, RANK_X, PACKED, COST_KERNEL, 0, 0},
    {"hpr", f_tri, RANK_X, PACKED, COST_KERNEL, 0, 0},
    {"syr2", f_2tri, RANK_XY, TRIANGLE, COST_KERNEL, 0, 0},
    {"her2", f_2tri, RANK_XY, TRIANGLE, COST_KERNEL, 0, 0},
    {"spr2", f_2tri, RANK_XY, PACKED, COST_KERNEL, 0, 0},
    {"hpr2", f_2tri, RANK_XY, PACKED, COST_KERNEL, 0, 0},
    {"symm", f_symm, MM_SIDE, TRIANGLE, COST_PRODUCT, 0, 0},
    {"hemm", f_symm, MM_SIDE, TRIANGLE, COST_PRODUCT, 0, 0},
    {"trmm", f_trmm, MM_SIDE, TRIANGLE, COST_PRODUCT, 0, 0},
    {"trsm", f_trmm, MM_SOLVE, TRIANGLE, COST_PRODUCT, 0, 0},
    {"syrk", f_syrk, MM_RK, TRIANGLE, COST_PRODUCT, 0, 0},
    {"herk", f_syrk, MM_RK, TRIANGLE, COST_PRODUCT, 0, 0},
    {"syrkx", f_syrk, MM_R2K, TRIANGLE, COST_PRODUCT, 0, 0},
    {"herkx", f_syrk, MM_R2K, TRIANGLE, COST_PRODUCT, 0, 0},
    {"syr2k", f_syr2k, MM_R2K, TRIANGLE, COST_PRODUCT, 0, 0},
    {"her2k", f_syr2k, MM_R2K, TRIANGLE, COST_PRODUCT, 0, 0},
    {"geam", f_mn, MM_ADD, FULL, COST_KERNEL, 0, 0},
    {"transform", f_transform, MM_ADD, FULL, COST_KERNEL, 0, 0},
    {"dgmm", f_mn, MM_DIAG, FULL, COST_KERNEL, 0, 0},
};

static const struct routine *routine_find(const char *name) {
    for (size_t i = 0; name && i < sizeof routines / sizeof *routines; i++)
        if (!strcmp(routines[i].name, name)) return &routines[i];
    return NULL;
}

/* One operand of a batch. elements: of one problem; the rest says where it lies. */
struct place {
    const char *slot;
    uint64_t address;
    wide elements;
    int64_t rows, columns, ld, stride;
};

static uint32_t type_of(const struct cost_blas *b, const char *slot) {
    uint32_t own = !strcmp(slot, "A") ? b->a_type : !strcmp(slot, "B") || !strcmp(slot, "x") ? b->b_type : 0;
    return own ? own : b->type;
}

static struct cost_operand *put(const struct cost_blas *b, struct cost *c, const struct place *p, enum cost_mode mode) {
    int64_t copies = b->batch > 1 && p->stride == 0 ? 1 : b->batch;
    uint32_t type = type_of(b, p->slot);
    cost_book(c, mode, cost_bytes(cost_amount(p->elements * copies), type));
    if (b->pointer_array) return NULL;
    return cost_operand_add(c, p->slot, p->address, cost_extent(p->rows, p->columns, p->ld, b->batch, p->stride, type),
                            mode);
}

static void put_vector(const struct cost_blas *b, struct cost *c, int operand, const char *slot, int64_t n,
                       enum cost_mode mode) {
    struct place p = {slot,
                      operand ? operand == 1 ? b->b : b->c : b->a,
                      n,
                      1,
                      n,
                      operand ? operand == 1 ? b->ldb : b->ldc : b->lda,
                      operand ? operand == 1 ? b->stride_b : b->stride_c : b->stride_a};
    if (p.ld == ACCT_NULL_I64) p.ld = 1;
    put(b, c, &p, mode);
}

static struct cost_operand *put_matrix(const struct cost_blas *b, struct cost *c, int operand, int64_t rows,
                                       int64_t columns, enum form form, enum cost_mode mode) {
    static const char *const slots[] = {"A", "B", "C"};
    struct place p = {slots[operand],
                      operand ? operand == 1 ? b->b : b->c : b->a,
                      (wide)rows * columns,
                      rows,
                      columns,
                      operand ? operand == 1 ? b->ldb : b->ldc : b->lda,
                      operand ? operand == 1 ? b->stride_b : b->stride_c : b->stride_a};
    if (form == TRIANGLE || form == PACKED) p.elements = (wide)rows * (rows + 1) / 2;
    if (form == PACKED) {
        p.columns = 1;
        p.rows = cost_amount(p.elements) == COST_UNKNOWN ? 0 : (int64_t)p.elements;
    }
    return put(b, c, &p, mode);
}

/* A band is stored as (kl + ku + 1) rows; only the elements inside the matrix count. */
static void put_band(const struct cost_blas *b, struct cost *c, int64_t m, int64_t n, int64_t kl, int64_t ku) {
    struct place p = {"A", b->a, band(m, n, kl, ku), kl + ku + 1, n, b->lda, b->stride_a};
    put(b, c, &p, COST_R);
}

/* An index is an int (an int64_t of the _64 functions: four bytes at least), a norm is real. */
static uint32_t result_type(const struct cost_blas *b, const struct routine *r) {
    if (!strncmp(r->name, "iam", 3)) return ACCT_dtype_INT32;
    if (r->shape != V_X_RES) return b->type;
    return b->type == ACCT_dtype_COMPLEX64    ? ACCT_dtype_FP32
           : b->type == ACCT_dtype_COMPLEX128 ? ACCT_dtype_FP64
                                              : b->type;
}

static void level1(const struct cost_blas *b, const struct routine *r, struct cost *c) {
    int clears = r->shape == V_X && b->alpha == ACCT_scalar_ZERO; /* scal by 0: what was there does not matter */
    put_vector(b, c, 0, "x", b->n, clears ? COST_W : r->x);
    if (r->shape == V_XY || r->shape == V_XY_RES) put_vector(b, c, 1, "y", b->n, r->y);
    if (r->shape == V_X_RES || r->shape == V_XY_RES) {
        struct cost_blas scalar = *b;
        struct place p = {"result", b->c, 1, 1, 1, 1, 1};
        scalar.type = result_type(b, r);
        put(&scalar, c, &p, COST_W);
    }
}

static enum cost_mode result_mode(const struct cost_blas *b) {
    return cost_result_mode(b->beta ? b->beta : ACCT_scalar_DEVICE);
}

static int transposed(uint32_t trans) {
    return trans == ACCT_trans_T || trans == ACCT_trans_C;
}

static void level2(const struct cost_blas *b, const struct routine *r, struct cost *c) {
    int64_t rows = r->shape == MV || r->shape == RANK1 ? b->m : b->n;
    enum cost_mode a = r->shape == RANK1 || r->shape == RANK_X || r->shape == RANK_XY ? COST_RW : COST_R;
    if (r->form != BAND)
        put_matrix(b, c, 0, rows, b->n, r->form, a);
    else if (r->shape == MV)
        put_band(b, c, b->m, b->n, b->kl, b->ku);
    else
        put_band(b, c, b->n, b->n, b->k, 0);
    int t = transposed(b->trans_a);
    switch (r->shape) {
    case MV:
        put_vector(b, c, 1, "x", t ? b->m : b->n, COST_R);
        put_vector(b, c, 2, "y", t ? b->n : b->m, result_mode(b));
        break;
    case MV_SQ:
        put_vector(b, c, 1, "x", b->n, COST_R);
        put_vector(b, c, 2, "y", b->n, result_mode(b));
        break;
    case MV_IN:
        put_vector(b, c, 1, "x", b->n, COST_RW);
        break;
    case RANK1:
        put_vector(b, c, 1, "x", b->m, COST_R);
        put_vector(b, c, 2, "y", b->n, COST_R);
        break;
    default:
        put_vector(b, c, 1, "x", b->n, COST_R);
        if (r->shape == RANK_XY) put_vector(b, c, 2, "y", b->n, COST_R);
    }
}

static void set_axis(struct cost_operand *o, int axis) {
    if (o) o->axis = axis;
}

/* symm, trmm, trsm: A is the square factor on the left or right of B. */
static void level3_side(const struct cost_blas *b, const struct routine *r, struct cost *c) {
    int right = b->side == ACCT_side_RIGHT;
    int64_t order = right ? b->n : b->m;
    set_axis(put_matrix(b, c, 0, order, order, TRIANGLE, COST_R), right == transposed(b->trans_a));
    if (r->shape == MM_SOLVE) {
        struct cost_operand *o = put_matrix(b, c, 1, b->m, b->n, FULL, COST_RW);
        if (o) o->slot = "C"; /* the solution overwrites the right-hand side */
        return;
    }
    set_axis(put_matrix(b, c, 1, b->m, b->n, FULL, COST_R), right);
    put_matrix(b, c, 2, b->m, b->n, FULL, strcmp(r->name, "trmm") ? result_mode(b) : COST_W);
}

static void level3_rank(const struct cost_blas *b, const struct routine *r, struct cost *c) {
    int t = transposed(b->trans_a);
    set_axis(put_matrix(b, c, 0, t ? b->k : b->n, t ? b->n : b->k, FULL, COST_R), !t);
    if (r->shape == MM_R2K) set_axis(put_matrix(b, c, 1, t ? b->k : b->n, t ? b->n : b->k, FULL, COST_R), !t);
    put_matrix(b, c, 2, b->n, b->n, TRIANGLE, result_mode(b));
}

static void elementwise(const struct cost_blas *b, const struct routine *r, struct cost *c) {
    if (r->shape == MM_DIAG) {
        put_matrix(b, c, 0, b->m, b->n, FULL, COST_R);
        put_vector(b, c, 1, "x", b->side == ACCT_side_RIGHT ? b->n : b->m, COST_R);
    } else {
        int ta = transposed(b->trans_a), tb = transposed(b->trans_b);
        if (b->alpha != ACCT_scalar_ZERO) put_matrix(b, c, 0, ta ? b->n : b->m, ta ? b->m : b->n, FULL, COST_R);
        if (b->beta != ACCT_scalar_ZERO) put_matrix(b, c, 1, tb ? b->n : b->m, tb ? b->m : b->n, FULL, COST_R);
        if (b->alpha == ACCT_scalar_DEVICE || b->beta == ACCT_scalar_DEVICE) c->grade = COST_BOUND;
    }
    put_matrix(b, c, 2, b->m, b->n, FULL, COST_W);
}

/* Beyond what any device holds: a damaged record. Products of three such sizes would not fit in 128 bit. */
static int is_absurd(const struct cost_blas *b) {
    const int64_t most = (int64_t)1 << 40;
    return b->m > most || b->n > most || b->k > most || b->kl > most || b->ku > most || b->batch > most;
}

static int is_empty(const struct cost_blas *b, enum shape s) {
    int uses_m = s == MV || s == RANK1 || s == MM_SIDE || s == MM_SOLVE || s == MM_ADD || s == MM_DIAG;
    return b->n <= 0 || b->batch <= 0 || (uses_m && b->m <= 0);
}

/* At least as much as any formula makes of these sizes on its way. */
static double upper_bound(const struct cost_blas *b, enum shape s) {
    double m = (double)b->m + 1, n = (double)b->n + 1, k = (double)b->k + 1;
    double of = s < MV                                                 ? n
                : s == MV || s == RANK1 || s == MM_ADD || s == MM_DIAG ? m * n
                : s == MM_SIDE || s == MM_SOLVE                        ? m * n * (m > n ? m : n)
                : s == MM_RK || s == MM_R2K                            ? k * n * n
                                                                       : n * n;
    return of * (double)(b->batch > 1 ? b->batch : 1) * 8;
}

int cost_blas_count(const struct cost_blas *b, __int128 *out) {
    const struct routine *r = routine_find(b->routine);
    *out = 0;
    if (!r || upper_bound(b, r->shape) > 1e38) return -1;
    if (is_empty(b, r->shape)) return 0;
    wide f = r->flops(b);
    if (f < 0) return -1;
    *out = f * b->batch * (cost_is_complex(b->type) ? 4 : 1);
    return 0;
}

const char *cost_blas_sizes(const char *routine) {
    const struct routine *r = routine_find(routine);
    if (!r) return NULL;
    switch (r->shape) {
    case MV:
        return r->form == BAND ? "mnlu" : "mn";
    case RANK1:
    case MM_SIDE:
    case MM_SOLVE:
    case MM_ADD:
    case MM_DIAG:
        return "mn";
    case MM_RK:
    case MM_R2K:
        return "nk";
    default:
        return r->form == BAND ? "nk" : "n";
    }
}

const char *cost_blas_name(int index) {
    return index >= 0 && index < (int)(sizeof routines / sizeof *routines) ? routines[index].name : NULL;
}

/* With alpha = 0 or k = 0 the factors of a product are not read; what stays is the result under beta. */
static void drop_factors(const struct cost_blas *b, struct cost *c) {
    struct cost only = {
        .flops = c->flops, .integer_ops = c->integer_ops, .grade = c->grade, .role = c->role, .matmul = c->matmul};
    const struct cost_operand *result = c->operands ? &c->operand[c->operands - 1] : NULL;
    only.bytes_written = c->bytes_written;
    only.bytes_read = result_mode(b) == COST_W ? 0 : c->bytes_written;
    if (b->beta == ACCT_scalar_ONE)
        only.bytes_read = only.bytes_written = 0;
    else if (result)
        only.operand[only.operands++] = *result;
    if (only.operands && result_mode(b) == COST_W) only.operand[0].mode = COST_W;
    *c = only;
}

/* Neither factor is read: drop_factors. A triangular product or solution has no beta, it overwrites. */
static void drop_unread(const struct cost_blas *b, const struct routine *r, struct cost *c) {
    struct cost_blas as = *b;
    int rank = r->shape == MM_RK || r->shape == MM_R2K;
    int triangular = r->shape == MM_SOLVE || !strcmp(r->name, "trmm");
    int product = r->shape == MV || r->shape == MV_SQ || rank || r->shape == MM_SIDE || r->shape == MM_SOLVE;
    if (triangular) as.beta = ACCT_scalar_ZERO;
    if (product && (b->alpha == ACCT_scalar_ZERO || (rank && b->k == 0))) drop_factors(&as, c);
}

void cost_of_blas(const struct cost_blas *b, struct cost *out) {
    *out = (struct cost){.integer_ops = COST_UNKNOWN, .grade = COST_EXACT, .role = COST_KERNEL};
    const struct routine *r = routine_find(b->routine);
    if (!r || is_absurd(b)) {
        out->flops = out->bytes_read = out->bytes_written = COST_UNKNOWN;
        out->grade = COST_UNCOUNTED;
        return;
    }
    out->role = r->role;
    if (r->flops == f_transform && only_moves(b) && type_of(b, "A") == b->type && b->trans_a == ACCT_trans_N)
        out->role = COST_COPY; /* byte for byte, but for paddings */
    out->matmul = r->role == COST_PRODUCT;
    if (is_empty(b, r->shape)) return;
    wide count;
    out->flops = cost_blas_count(b, &count) ? COST_UNKNOWN : cost_amount(count);
    if (out->flops == COST_UNKNOWN) out->grade = COST_UNCOUNTED;
    int scales = (b->alpha == ACCT_scalar_DEVICE) && r->shape > V_XY_RES && r->shape < MM_ADD;
    if (scales && out->grade == COST_EXACT) out->grade = COST_BOUND;
    switch (r->shape) {
    case V_X:
    case V_XY:
    case V_X_RES:
    case V_XY_RES:
        level1(b, r, out);
        break;
    case MM_SIDE:
    case MM_SOLVE:
        level3_side(b, r, out);
        break;
    case MM_RK:
    case MM_R2K:
        level3_rank(b, r, out);
        break;
    case MM_ADD:
    case MM_DIAG:
        elementwise(b, r, out);
        break;
    default:
        level2(b, r, out);
    }
    drop_unread(b, r, out);
}
