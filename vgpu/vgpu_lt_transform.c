/* cublasLtMatrixTransform: C = alpha op(A) + beta op(B), each matrix of its own type and memory order. */
#include "vgpu/vgpu_lt.h"

static const char *const call = "cublasLtMatrixTransform";

struct side {
    const void *p; /* NULL: there is none */
    cudaDataType_t type;
    int32_t order, batch;
    bool t;
    int64_t rows, columns, ld, stride;
};

struct job {
    struct side a, b, c;
    struct vgpu_scalar alpha, beta;
};

/* Where element (i, j) lies. COL32: groups of 32 columns, `ld` apart, row after row in each. */
static int64_t place(const struct side *s, int64_t i, int64_t j) {
    if (s->order == CUBLASLT_ORDER_ROW) return i * s->ld + j;
    return s->order == CUBLASLT_ORDER_COL ? j * s->ld + i : j / 32 * s->ld + i * 32 + j % 32;
}

static bool in_reach(const struct side *s) {
    size_t e = vgpu_element_bytes(s->type);
    uint64_t elements = (uint64_t)place(s, s->rows - 1, s->columns - 1) + 1;
    for (int32_t i = 0; i < s->batch; i++)
        if (!vgpu_reach(call, (const char *)s->p + i * s->stride * (int64_t)e, elements * e)) return false;
    return true;
}

static double value(const struct side *s, int32_t batch, int64_t i, int64_t j) {
    return vgpu_load(s->type, s->p, batch * s->stride + (s->t ? place(s, j, i) : place(s, i, j)));
}

static bool reach_scalar(const struct vgpu_scalar *s) {
    return !s->device || vgpu_reach(call, s->device, vgpu_element_bytes(s->type));
}

/* A scalar on the device is not known: it could be 0, and then its matrix would not be read. */
static bool counts(const struct side *s, const struct vgpu_scalar *factor) {
    return s->p && !factor->device && factor->value != 0;
}

static void run_dry_transform(void *args) {
    const struct job *w = args;
    if (!reach_scalar(&w->alpha) || !reach_scalar(&w->beta)) return;
    if (counts(&w->a, &w->alpha) && !in_reach(&w->a)) return;
    if (!counts(&w->b, &w->beta) || in_reach(&w->b)) in_reach(&w->c);
}

static double bytes_of(const struct side *s) {
    int32_t count = s->stride ? s->batch : 1;
    return (double)s->rows * (double)s->columns * count * (double)vgpu_element_bytes(s->type);
}

/* A multiplication for each matrix and the addition of both, in fp32 or what is slower there. */
static struct vgpu_amount amount_of(const struct job *w) {
    struct vgpu_amount a = {.bytes = bytes_of(&w->c)};
    double elements = (double)w->c.rows * (double)w->c.columns * w->c.batch;
    if (w->a.p && (w->alpha.device || w->alpha.value != 0)) a.bytes += bytes_of(&w->a);
    if (w->b.p && (w->beta.device || w->beta.value != 0)) a.bytes += bytes_of(&w->b);
    a.flops[w->c.type == CUDA_R_64F ? VGPU_FP64 : VGPU_FP32] = elements * (w->b.p ? 3 : 1);
    return a;
}

static void run_transform(void *args) {
    const struct job *w = args;
    double alpha, beta;
    if (!vgpu_scalar_get(&w->alpha, call, &alpha) || !vgpu_scalar_get(&w->beta, call, &beta)) return;
    bool a = w->a.p && alpha != 0, b = w->b.p && beta != 0; /* 0: what is in the matrix does not count */
    if ((a && !in_reach(&w->a)) || (b && !in_reach(&w->b)) || !in_reach(&w->c)) return;
    for (int32_t s = 0; s < w->c.batch; s++)
        for (int64_t j = 0; j < w->c.columns; j++)
            for (int64_t i = 0; i < w->c.rows; i++) {
                double v = (a ? alpha * value(&w->a, s, i, j) : 0) + (b ? beta * value(&w->b, s, i, j) : 0);
                vgpu_store(w->c.type, (void *)w->c.p, s * w->c.stride + place(&w->c, i, j), v);
            }
}

static cublasStatus_t open_side(const struct vgpu_lt_layout *l, const void *p, int32_t op, struct side *s) {
    if (!l || !l->rows || !l->columns || l->batch < 1 || !vgpu_is_op((cublasOperation_t)op))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (l->rows > INT32_MAX || l->columns > INT32_MAX || l->ld > INT32_MAX || l->ld < 0 || l->plane || l->batch_mode ||
        !vgpu_element_bytes((cudaDataType_t)l->type) || l->order < CUBLASLT_ORDER_COL ||
        l->order > CUBLASLT_ORDER_COL32)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    *s = (struct side){p,
                       (cudaDataType_t)l->type,
                       l->order,
                       l->batch,
                       op != CUBLAS_OP_N,
                       (int64_t)l->rows,
                       (int64_t)l->columns,
                       l->ld,
                       l->stride};
    int64_t least = l->order == CUBLASLT_ORDER_ROW   ? s->columns
                    : l->order == CUBLASLT_ORDER_COL ? s->rows
                                                     : 32 * s->rows;
    return s->ld < least ? CUBLAS_STATUS_INVALID_VALUE : CUBLAS_STATUS_SUCCESS;
}

/* Types that are scaled in fp32 unless the scale type is int32 or fp64, which go with their own kind alone. */
static bool types_fit(cudaDataType_t scale, const struct side *s) {
    bool whole = s->type == CUDA_R_8I || s->type == CUDA_R_32I;
    switch ((int)scale) {
    case CUDA_R_64F:
        return s->type == CUDA_R_64F;
    case CUDA_R_32I:
        return whole;
    case CUDA_R_32F:
        return s->type != CUDA_R_64F;
    default:
        return scale == CUDA_R_16F && s->type == CUDA_R_16F;
    }
}

static bool shapes_fit(const struct side *s, const struct side *c) {
    return (s->t ? s->columns : s->rows) == c->rows && (s->t ? s->rows : s->columns) == c->columns &&
           s->batch == c->batch;
}

cublasStatus_t cublasLtMatrixTransform(cublasLtHandle_t handle, cublasLtMatrixTransformDesc_t desc, const void *alpha,
                                       const void *a, cublasLtMatrixLayout_t a_layout, const void *beta, const void *b,
                                       cublasLtMatrixLayout_t b_layout, void *c, cublasLtMatrixLayout_t c_layout,
                                       cudaStream_t stream) {
    const struct vgpu_lt_transform *t = (const void *)desc;
    struct vgpu_blas h;
    struct job w = {0};
    cublasStatus_t e = vgpu_lt_open(handle, &h);
    if (e) return e;
    if (!t || !alpha || !a || !c || (b && !beta)) return CUBLAS_STATUS_INVALID_VALUE;
    if (t->pointer_mode != CUBLASLT_POINTER_MODE_HOST && t->pointer_mode != CUBLASLT_POINTER_MODE_DEVICE)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    e = open_side((const void *)a_layout, a, t->trans_a, &w.a);
    if (!e && b) e = open_side((const void *)b_layout, b, t->trans_b, &w.b);
    if (!e) e = open_side((const void *)c_layout, c, CUBLAS_OP_N, &w.c);
    if (e) return e;
    cudaDataType_t scale = (cudaDataType_t)t->scale;
    if (!types_fit(scale, &w.a) || (b && !types_fit(scale, &w.b)) || !types_fit(scale, &w.c))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (!shapes_fit(&w.a, &w.c) || (b && !shapes_fit(&w.b, &w.c))) return CUBLAS_STATUS_INVALID_VALUE;
    h.mode = (cublasPointerMode_t)t->pointer_mode;
    h.stream = stream;
    w.alpha = vgpu_scalar(&h, alpha, scale);
    w.beta = b ? vgpu_scalar(&h, beta, scale) : (struct vgpu_scalar){.type = scale};
    struct vgpu_work work = {
        .run = run_transform, .dry = run_dry_transform, .args = &w, .bytes = sizeof w, .amount = amount_of(&w)};
    return vgpu_blas_run(&h, "cublasLtTransform", "", &work, false);
}
