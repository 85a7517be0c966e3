/* cublasLtMatmul: D = epilogue(alpha op(A) op(B) + beta C). Operands are made fp32 (fp64 and int8: fp64, in which sums
 * of int8 are exact) and multiplied by OpenBLAS: straight into D where D is of that type and has no epilogue, else into
 * memory of the host, from which the epilogue fills D. A row-major matrix is the transpose of a column-major one. */
#include "vgpu/vgpu_lt.h"

#include <cblas.h>
#include <stdio.h>
#include <string.h>

static const char *const call = "cublasLtMatmul";

struct job {
    struct vgpu_lt_product product;
    struct vgpu_scalar alpha, beta;
    const void *alphas; /* on the device; NULL: alpha */
    const void *a, *b, *c;
    void *d, *workspace;
    int64_t workspace_bytes;
};

/* ---- may the device touch it all? ---- */

static const void *matrix(const struct vgpu_lt_matrix *m, const void *p, int64_t i) {
    if (m->array) return ((const void *const *)p)[i];
    return (const char *)p + i * m->stride * (int64_t)vgpu_element_bytes(m->type);
}

static bool reach_matrix(const struct vgpu_lt_matrix *m, const void *p, int64_t batch) {
    uint64_t bytes = vgpu_matrix_bytes(vgpu_lt_inner(m), vgpu_lt_outer(m), m->ld, vgpu_element_bytes(m->type));
    if (m->array && !vgpu_reach(call, p, (uint64_t)batch * sizeof(void *))) return false;
    if (m->array && vgpu_profile()->dry) return true; /* the pointers are not there */
    for (int64_t i = 0; i < batch; i++)
        if (!vgpu_reach(call, matrix(m, p, i), bytes)) return false;
    return true;
}

static void *bias_of(const struct vgpu_lt_product *p, int64_t i) {
    return (char *)p->desc.bias + i * p->desc.bias_stride * (int64_t)vgpu_element_bytes(p->bias_type);
}

static void *aux_of(const struct vgpu_lt_product *p, int64_t i) {
    int64_t elements = i * p->desc.aux_stride;
    return (char *)p->desc.aux +
           (vgpu_lt_aux_is_bits(p) ? elements / 8 : elements * (int64_t)vgpu_element_bytes(p->aux_type));
}

static bool reach_epilogue(const struct vgpu_lt_product *p) {
    uint64_t aux = vgpu_lt_aux_is_bits(p)
                       ? (uint64_t)((p->n - 1) * p->desc.aux_ld + p->m + 7) / 8
                       : vgpu_matrix_bytes(p->m, p->n, p->desc.aux_ld, vgpu_element_bytes(p->aux_type));
    for (int64_t i = 0; i < p->batch; i++) {
        uint64_t bias = (uint64_t)vgpu_lt_bias_length(p) * vgpu_element_bytes(p->bias_type);
        if (vgpu_lt_has_bias(p) && !vgpu_reach(call, bias_of(p, i), bias)) return false;
        if (vgpu_lt_has_aux(p) && !vgpu_reach(call, aux_of(p, i), aux)) return false;
    }
    return true;
}

static bool reach_scales(const struct job *j) {
    const struct vgpu_lt_product *p = &j->product;
    const struct vgpu_lt_desc *d = &p->desc;
    const uint64_t one = sizeof(float);
    return (!d->a_scale || vgpu_reach(call, d->a_scale, d->a_mode ? (uint64_t)p->m * one : one)) &&
           (!d->b_scale || vgpu_reach(call, d->b_scale, d->b_mode ? (uint64_t)p->n * one : one)) &&
           (!d->d_scale || vgpu_reach(call, d->d_scale, one)) && (!d->amax || vgpu_reach(call, d->amax, one)) &&
           (!d->aux_scale || vgpu_reach(call, d->aux_scale, one)) &&
           (!d->aux_amax || vgpu_reach(call, d->aux_amax, one)) &&
           (!j->alphas || vgpu_reach(call, j->alphas, (uint64_t)p->m * vgpu_element_bytes((cudaDataType_t)d->scale))) &&
           (!j->workspace_bytes || vgpu_reach(call, j->workspace, (uint64_t)j->workspace_bytes));
}

/* ---- operands ---- */

/* One as OpenBLAS gets it: column-major, float or double. */
struct operand {
    const void *p;
    void *scratch;
    int64_t ld;
    bool t;
};

static void *as_double(const struct vgpu_lt_matrix *m, const void *p) {
    int64_t inner = vgpu_lt_inner(m), outer = vgpu_lt_outer(m);
    double *out = vgpu_scratch_take((size_t)(inner * outer) * sizeof *out);
    for (int64_t j = 0; out && j < outer; j++) vgpu_lt_load(true, m->type, p, j * m->ld, 1, inner, out + j * inner);
    return out;
}

/* false: no memory on the host. */
static bool prepare(const struct vgpu_lt_product *p, const struct vgpu_lt_matrix *m, bool t, const void *from,
                    struct operand *out) {
    *out = (struct operand){.p = from, .ld = m->ld, .t = t != m->row};
    if (m->type == CUDA_R_64F || (m->type == CUDA_R_32F && p->rounding == VGPU_ROUND_NONE)) return true;
    out->scratch = p->wide ? as_double(m, from)
                           : vgpu_widened(m->type, p->rounding, from, vgpu_lt_inner(m), vgpu_lt_outer(m), m->ld);
    out->p = out->scratch;
    out->ld = vgpu_lt_inner(m);
    return out->scratch;
}

static CBLAS_TRANSPOSE transposed(bool t) {
    return t ? CblasTrans : CblasNoTrans;
}

/* `row`: C is row-major, and its transpose is computed. */
static void multiply(const struct vgpu_lt_product *p, const struct operand *a, const struct operand *b, double alpha,
                     double beta, void *c, int64_t ldc, bool row) {
    const struct operand *first = row ? b : a, *second = row ? a : b;
    CBLAS_TRANSPOSE t1 = transposed(first->t != row), t2 = transposed(second->t != row);
    int m = (int)(row ? p->n : p->m), n = (int)(row ? p->m : p->n), k = (int)p->k, ld1 = (int)first->ld;
    if (p->wide)
        cblas_dgemm(CblasColMajor, t1, t2, m, n, k, alpha, first->p, ld1, second->p, (int)second->ld, beta, c,
                    (int)ldc);
    else
        cblas_sgemm(CblasColMajor, t1, t2, m, n, k, (float)alpha, first->p, ld1, second->p, (int)second->ld,
                    (float)beta, c, (int)ldc);
}

/* bias[i] = sum over k of op(A)(i, k), or of op(B)(k, i): each line of x is one of the sums, or a term of all. */
static bool sum_over_k(const struct vgpu_lt_product *p, const struct operand *x, bool lines, void *bias) {
    int64_t length = vgpu_lt_bias_length(p);
    double *sums = vgpu_scratch_take((size_t)length * sizeof *sums);
    if (!sums) return false;
    memset(sums, 0, (size_t)length * sizeof *sums);
    for (int64_t l = 0; l < (lines ? length : p->k); l++)
        for (int64_t i = 0; i < (lines ? p->k : length); i++) {
            int64_t at = l * x->ld + i;
            sums[lines ? l : i] += p->wide ? ((const double *)x->p)[at] : (double)((const float *)x->p)[at];
        }
    vgpu_lt_store(true, p->bias_type, bias, 0, 1, length, sums);
    vgpu_scratch_give(sums);
    return true;
}

/* ---- one matrix of the batch ---- */

struct one {
    const void *a, *b, *c;
    void *d, *bias, *aux;
    double alpha, beta;
};

/* D is what OpenBLAS writes. */
static bool straight(const struct job *j) {
    const struct vgpu_lt_product *p = &j->product;
    uint32_t kind = p->desc.epilogue;
    return (p->d.type == CUDA_R_64F || (p->d.type == CUDA_R_32F && !p->wide)) && !j->alphas && !p->desc.a_mode &&
           (kind == CUBLASLT_EPILOGUE_DEFAULT || kind == CUBLASLT_EPILOGUE_BGRADA || kind == CUBLASLT_EPILOGUE_BGRADB);
}

/* D = C, of one type, maybe of another order. */
static void copy_c(const struct vgpu_lt_product *p, const void *c, void *d) {
    const struct vgpu_lt_matrix *from = &p->c, *to = &p->d;
    size_t e = vgpu_element_bytes(to->type);
    int64_t inner = vgpu_lt_inner(to), outer = vgpu_lt_outer(to);
    bool alike = from->row == to->row;
    for (int64_t j = 0; j < outer; j++)
        for (int64_t i = 0; i < (alike ? 1 : inner); i++)
            memcpy((char *)d + (size_t)(j * to->ld + i) * e,
                   (const char *)c + (size_t)(alike ? j * from->ld : i * from->ld + j) * e,
                   alike ? (size_t)inner * e : e);
}

static bool compute_straight(const struct job *j, const struct one *o, const struct operand *a,
                             const struct operand *b) {
    const struct vgpu_lt_product *p = &j->product;
    if (o->beta != 0 && o->c != o->d) copy_c(p, o->c, o->d);
    multiply(p, a, b, o->alpha, o->beta, o->d, p->d.ld, p->d.row);
    return true;
}

static bool compute_with_epilogue(const struct job *j, const struct one *o, const struct operand *a,
                                  const struct operand *b) {
    const struct vgpu_lt_product *p = &j->product;
    void *sums = vgpu_scratch_take((size_t)(p->m * p->n) * (p->wide ? sizeof(double) : sizeof(float)));
    struct vgpu_lt_epilogue e = {
        .product = p,
        .sums = sums,
        .alpha = o->alpha,
        .beta = o->beta,
        .alphas = j->alphas,
        .row_scales = p->desc.a_mode ? p->desc.a_scale : NULL,
        .column_scales = p->desc.b_mode ? p->desc.b_scale : NULL,
        .c = o->c,
        .d = o->d,
        .bias = o->bias,
        .aux = o->aux,
    };
    if (!sums) return false;
    if (o->alpha != 0)
        multiply(p, a, b, 1, 0, sums, p->m, false);
    else /* A and B do not count, be there NaN in them */
        memset(sums, 0, (size_t)(p->m * p->n) * (p->wide ? sizeof(double) : sizeof(float)));
    bool good = vgpu_lt_epilogue_run(&e);
    vgpu_scratch_give(sums);
    return good;
}

static bool compute(const struct job *j, const struct one *o) {
    const struct vgpu_lt_product *p = &j->product;
    struct operand a, b = {0};
    bool good = prepare(p, &p->a, p->ta, o->a, &a) && prepare(p, &p->b, p->tb, o->b, &b);
    if (good) good = straight(j) ? compute_straight(j, o, &a, &b) : compute_with_epilogue(j, o, &a, &b);
    if (good && p->desc.epilogue == CUBLASLT_EPILOGUE_BGRADA) good = sum_over_k(p, &a, a.t, o->bias);
    if (good && p->desc.epilogue == CUBLASLT_EPILOGUE_BGRADB) good = sum_over_k(p, &b, !b.t, o->bias);
    vgpu_scratch_give(a.scratch);
    vgpu_scratch_give(b.scratch);
    return good;
}

/* ---- the job ---- */

static bool reach_all(const struct job *j, bool reads_c) {
    const struct vgpu_lt_product *p = &j->product;
    return reach_scales(j) && reach_matrix(&p->a, j->a, p->batch) && reach_matrix(&p->b, j->b, p->batch) &&
           reach_matrix(&p->d, j->d, p->batch) && (!reads_c || reach_matrix(&p->c, j->c, p->batch)) &&
           reach_epilogue(p);
}

static bool reach_scalar(const struct vgpu_scalar *s) {
    return !s->device || vgpu_reach(call, s->device, vgpu_element_bytes(s->type));
}

static void run_dry_matmul(void *args) {
    const struct job *j = args;
    if (reach_scalar(&j->alpha) && reach_scalar(&j->beta)) reach_all(j, !j->beta.device && j->beta.value != 0);
}

static void run_matmul(void *args) {
    struct job *j = args;
    struct vgpu_lt_product *p = &j->product;
    double alpha = 1, beta;
    bool good = true;
    if ((!j->alphas && !vgpu_scalar_get(&j->alpha, call, &alpha)) || !vgpu_scalar_get(&j->beta, call, &beta) ||
        !reach_all(j, beta != 0))
        return;
    if (p->desc.a_scale && !p->desc.a_mode) alpha *= (double)*p->desc.a_scale;
    if (p->desc.b_scale && !p->desc.b_mode) alpha *= (double)*p->desc.b_scale;
    if (p->desc.amax) *p->desc.amax = 0;
    if (p->desc.aux_amax) *p->desc.aux_amax = 0;
    for (int64_t i = 0; good && i < p->batch; i++) {
        struct one o = {
            .a = matrix(&p->a, j->a, i),
            .b = matrix(&p->b, j->b, i),
            .c = beta != 0 ? matrix(&p->c, j->c, i) : NULL,
            .d = (void *)matrix(&p->d, j->d, i),
            .bias = vgpu_lt_has_bias(p) ? bias_of(p, i) : NULL,
            .aux = vgpu_lt_has_aux(p) ? aux_of(p, i) : NULL,
            .alpha = alpha,
            .beta = beta,
        };
        good = compute(j, &o);
    }
    if (!good) vgpu_fault("cublasLtMatmul has no host memory to work in", j->d, 0);
}

/* ---- the call ---- */

static const char *type_name(const struct vgpu_lt_product *p) {
    static const char *const rounded[] = {
        [VGPU_ROUND_NONE] = "fp32", [VGPU_ROUND_TF32] = "tf32", [VGPU_ROUND_FP16] = "fp16", [VGPU_ROUND_BF16] = "bf16"};
    switch ((int)p->a.type) {
    case CUDA_R_64F:
        return "fp64";
    case CUDA_R_16F:
        return "fp16";
    case CUDA_R_16BF:
        return "bf16";
    case CUDA_R_8F_E4M3:
        return "e4m3";
    case CUDA_R_8F_E5M2:
        return "e5m2";
    case CUDA_R_8I:
        return "int8";
    default:
        return rounded[p->rounding];
    }
}

/* alpha and beta by the descriptor's pointer mode. */
static void read_scalars(struct vgpu_blas *h, const void *alpha, const void *beta, struct job *j) {
    const cudaDataType_t type = (cudaDataType_t)j->product.desc.scale;
    int32_t mode = j->product.desc.pointer_mode;
    h->mode = mode == CUBLASLT_POINTER_MODE_DEVICE ? CUBLAS_POINTER_MODE_DEVICE : CUBLAS_POINTER_MODE_HOST;
    if (mode >= CUBLASLT_POINTER_MODE_DEVICE_VECTOR)
        j->alphas = alpha;
    else
        j->alpha = vgpu_scalar(h, alpha, type);
    if (mode != CUBLASLT_POINTER_MODE_ALPHA_DEVICE_VECTOR_BETA_ZERO)
        j->beta = vgpu_scalar(h, beta, type);
    else
        j->beta = (struct vgpu_scalar){.type = type};
}

static bool beta_is_zero(const struct job *j) {
    return !j->beta.device && j->beta.value == 0;
}

/* D in the place of C must lie there as C does. */
static bool in_place_fits(const struct job *j) {
    const struct vgpu_lt_matrix *c = &j->product.c, *d = &j->product.d;
    return beta_is_zero(j) || j->c != j->d ||
           (c->type == d->type && c->row == d->row && c->ld == d->ld && c->stride == d->stride);
}

static bool aligned(const struct job *j, uintptr_t bytes) {
    const void *all[] = {j->a, j->b, beta_is_zero(j) ? NULL : j->c, j->d};
    for (int i = 0; i < 4; i++)
        if ((uintptr_t)all[i] % bytes) return false;
    return true;
}

static cublasStatus_t check_pointers(const struct job *j, const struct vgpu_lt_algo *algo, size_t workspace_bytes) {
    const struct vgpu_lt_product *p = &j->product;
    if (!j->a || !j->b || !j->d || (!j->c && !beta_is_zero(j))) return CUBLAS_STATUS_INVALID_VALUE;
    if ((vgpu_lt_has_bias(p) && !p->desc.bias) || (vgpu_lt_has_aux(p) && !p->desc.aux))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!in_place_fits(j) || (uintptr_t)j->workspace % 16) return CUBLAS_STATUS_INVALID_VALUE;
    int64_t need = algo ? vgpu_lt_workspace(algo, p) : 0;
    if (need < 0 || (need && (!j->workspace || (uint64_t)need > workspace_bytes))) return CUBLAS_STATUS_INVALID_VALUE;
    if (vgpu_element_bytes(p->a.type) == 1 && !p->a.array && !aligned(j, p->fp8 ? 16 : 4))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout,
                              const void *beta, const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo, void *workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
    struct job j = {.a = a, .b = b, .c = c, .d = d, .workspace = workspace};
    struct vgpu_lt_product *p = &j.product;
    struct vgpu_blas h;
    char variant[32];
    cublasStatus_t e = vgpu_lt_open(handle, &h);
    if (e) return e;
    e = vgpu_lt_check((const void *)desc, (const void *)a_layout, (const void *)b_layout, (const void *)c_layout,
                      (const void *)d_layout, p);
    if (e) return e;
    if (!alpha || (!beta && p->desc.pointer_mode != CUBLASLT_POINTER_MODE_ALPHA_DEVICE_VECTOR_BETA_ZERO))
        return CUBLAS_STATUS_INVALID_VALUE;
    read_scalars(&h, alpha, beta, &j);
    e = check_pointers(&j, (const void *)algo, workspace_bytes);
    if (e) return e;
    if (algo) j.workspace_bytes = vgpu_lt_workspace((const void *)algo, p);
    h.stream = stream;
    snprintf(variant, sizeof variant, "_%s%s_%c%c", type_name(p), p->batch > 1 ? "_batched" : "", p->ta ? 't' : 'n',
             p->tb ? 't' : 'n');
    struct vgpu_work w = {.run = run_matmul, .dry = run_dry_matmul, .args = &j, .bytes = sizeof j};
    vgpu_lt_amount(p, !beta_is_zero(&j), &w.amount);
    return vgpu_blas_run(&h, "cublasLtgemm", variant, &w, false);
}
