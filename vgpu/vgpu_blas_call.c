/* What all cuBLAS routines have in common. */
#include "vgpu/vgpu_blas_table.h"

#include <string.h>

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

/* ---- checks ---- */

static bool good_flags(const struct vgpu_call *c) {
    return (c->side == CUBLAS_SIDE_LEFT || c->side == CUBLAS_SIDE_RIGHT) && vgpu_is_uplo(c->uplo) &&
           vgpu_is_op(c->ta) && vgpu_is_op(c->tb) && (c->diag == CUBLAS_DIAG_UNIT || c->diag == CUBLAS_DIAG_NON_UNIT);
}

static bool good_ld(const struct vgpu_call *c, const struct vgpu_routine_row *r, int i) {
    struct vgpu_extent e = vgpu_extent_of(c, i);
    if (e.vector)
        return r->shape == VGPU_S_VECTOR || r->shape == VGPU_S_VECTORS || r->shape == VGPU_S_DIAGONAL || c->ld[i];
    bool is_packed = r->form == VGPU_S_PACKED && (r->shape == VGPU_S_UNPACK ? !i : r->shape != VGPU_S_PACK && !i);
    if (is_packed || (r->shape == VGPU_S_PACK && i)) return true;
    return c->ld[i] >= vgpu_at_least_one(e.rows);
}

cublasStatus_t vgpu_call_check(struct vgpu_call *c, const void *alpha, const void *beta, bool *nothing) {
    const struct vgpu_routine_row *r = &vgpu_routines[c->routine];
    *nothing = false;
    if (!c->batched) c->batch = 1;
    if (!good_flags(c) || c->m < 0 || c->k < 0 || c->kl < 0 || c->ku < 0 || c->batch < 0)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (c->n < 0 && r->shape != VGPU_S_VECTOR && r->shape != VGPU_S_VECTORS) return CUBLAS_STATUS_INVALID_VALUE;
    for (int i = 0; i < VGPU_OPERANDS; i++)
        if (r->access[i] != VGPU_UNUSED && !good_ld(c, r, i)) return CUBLAS_STATUS_INVALID_VALUE;
    if ((r->alpha && !alpha) || (r->beta && !beta) || (r->result && !c->p[2])) return CUBLAS_STATUS_INVALID_VALUE;
    bool uses_m = r->shape == VGPU_S_MATRIX_VECTOR || r->shape == VGPU_S_RANK_ONE || r->shape == VGPU_S_PRODUCT ||
                  r->shape == VGPU_S_SIDED || r->shape == VGPU_S_SOLVED || r->shape == VGPU_S_SUM ||
                  r->shape == VGPU_S_DIAGONAL || r->shape == VGPU_S_FACTOR;
    *nothing = (c->n <= 0 && !r->result) || (uses_m && !c->m) || !c->batch;
    if (*nothing) return CUBLAS_STATUS_SUCCESS;
    for (int i = 0; i < VGPU_OPERANDS; i++) {
        struct vgpu_extent e = vgpu_extent_of(c, i);
        if (r->shape == VGPU_S_SUM && i < 2) continue; /* geam reads none whose factor is 0, and that may be NULL */
        if (r->access[i] != VGPU_UNUSED && !c->p[i] && e.rows > 0 && e.columns > 0) return CUBLAS_STATUS_INVALID_VALUE;
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
    struct vgpu_extent e = vgpu_extent_of(c, i);
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
    struct vgpu_extent e = vgpu_extent_of(c, VGPU_OPERANDS - 1);
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

static void run_one(const struct vgpu_call *c, const struct vgpu_routine_row *r, bool scales,
                    const struct vgpu_value *alpha, const struct vgpu_value *beta) {
    void *p[VGPU_OPERANDS];
    for (int i = 0; i < VGPU_OPERANDS; i++) p[i] = r->access[i] == VGPU_UNUSED ? c->p[i] : operand(c, i, c->problem);
    bool has_beta = r->beta && r->shape != VGPU_S_SUM;
    bool clears = value_is(beta, 0) && c->routine != VGPU_GEMM; /* whose beta = 0 can be relied on */
    if (has_beta && (clears || (scales && !value_is(beta, 1)))) {
        scale_result(c, p[2], beta);
        for (int64_t j = 0; scales && c->hermitian && j < c->n; j++) vgpu_make_real(c->type, p[2], j * (c->ld[2] + 1));
    }
    if (!scales) c->run(c, p, alpha, beta);
}

static bool all_in_reach(const struct vgpu_call *c, const struct vgpu_routine_row *r, bool scales,
                         const struct vgpu_value *alpha, const struct vgpu_value *beta) {
    for (int i = 0; i < VGPU_OPERANDS; i++) {
        bool unread = (scales && i < VGPU_OPERANDS - 1) ||
                      (r->shape == VGPU_S_SUM && ((i == 0 && value_is(alpha, 0)) || (i == 1 && value_is(beta, 0))));
        if (r->access[i] != VGPU_UNUSED && !unread && !in_reach(c, i)) return false;
    }
    return true;
}

void vgpu_call_run(void *args) {
    struct vgpu_call *c = args;
    const struct vgpu_routine_row *r = &vgpu_routines[c->routine];
    struct vgpu_value alpha = {0}, beta = {0};
    size_t result = vgpu_result_bytes(c);
    if (!get_scalar(&c->alpha, c->call, &alpha) || !get_scalar(&c->beta, c->call, &beta)) return;
    if (r->result && !c->result_waits && !vgpu_reach(c->call, c->p[2], result)) return;
    /* Reductions of nothing, and of a stride that is not positive where there is one vector, are zero; so scal is
     * nothing. */
    if (c->n <= 0 || (r->shape == VGPU_S_VECTOR && c->ld[0] <= 0)) {
        if (r->result) memset(c->p[2], 0, result);
        return;
    }
    bool scales = vgpu_only_scales(c, value_is(&alpha, 0));
    if (!all_in_reach(c, r, scales, &alpha, &beta)) return;
    for (c->problem = 0; c->problem < c->batch; c->problem++) run_one(c, r, scales, &alpha, &beta);
}

/* Nothing is computed: a result for the host is 0. What the device only could tell (pointers in arrays) is not asked.
 */
static void dry_run(void *args) {
    struct vgpu_call *c = args;
    const struct vgpu_routine_row *r = &vgpu_routines[c->routine];
    size_t result = vgpu_result_bytes(c);
    if (r->result && c->result_waits) memset(c->p[2], 0, result);
    for (int i = 0; i < VGPU_OPERANDS && !c->array && c->n > 0; i++)
        if (r->access[i] != VGPU_UNUSED && c->p[i] && !in_reach(c, i)) return;
}

cublasStatus_t vgpu_call(cublasHandle_t handle, struct vgpu_call *c, const void *alpha, const void *beta) {
    const struct vgpu_routine_row *r = &vgpu_routines[c->routine];
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
