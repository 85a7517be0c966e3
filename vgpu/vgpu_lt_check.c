/* Which products there are: types, shapes, scales and epilogues by the vendor's documentation of cublasLtMatmul. What
 * it does not list is refused, also where the virtual device could compute it: a program that runs here is to run on a
 * device. */
#include "vgpu/vgpu_lt.h"
#include "vgpu/vgpu_profile.h"

enum { BF16 = CUDA_R_16BF, FP16 = CUDA_R_16F, FP32 = CUDA_R_32F, FP64 = CUDA_R_64F, INT8 = CUDA_R_8I };
enum { INT32 = CUDA_R_32I, E4M3 = CUDA_R_8F_E4M3, E5M2 = CUDA_R_8F_E5M2, NO_EPILOGUE = -1 };

struct row {
    int scale, a, b, c, d, bias;
};

static const struct row rows_16f[] = {{FP16, FP16, FP16, FP16, FP16, FP16}};
static const struct row rows_32i[] = {
    {INT32, INT8, INT8, INT32, INT32, NO_EPILOGUE},
    {FP32, INT8, INT8, INT8, INT8, FP32},
};
static const struct row rows_32f_fast[] = {{FP32, FP32, FP32, FP32, FP32, FP32}};
static const struct row rows_64f[] = {{FP64, FP64, FP64, FP64, FP64, FP64}};
static const struct row rows_32f[] = {
    {FP32, FP32, FP32, FP32, FP32, FP32},
    {FP32, BF16, BF16, BF16, BF16, BF16},
    {FP32, BF16, BF16, FP32, FP32, FP32},
    {FP32, FP16, FP16, FP16, FP16, FP16},
    {FP32, FP16, FP16, FP32, FP32, FP32},
    {FP32, INT8, INT8, FP32, FP32, NO_EPILOGUE},
    /* fp8: E4M3 with either; E5M2 with E5M2 there is not */
    {FP32, E4M3, E4M3, BF16, BF16, BF16},
    {FP32, E4M3, E4M3, BF16, E4M3, BF16},
    {FP32, E4M3, E4M3, FP16, E4M3, FP16},
    {FP32, E4M3, E4M3, FP16, FP16, FP16},
    {FP32, E4M3, E4M3, FP32, FP32, BF16},
    {FP32, E4M3, E5M2, BF16, BF16, BF16},
    {FP32, E4M3, E5M2, BF16, E4M3, BF16},
    {FP32, E4M3, E5M2, BF16, E5M2, BF16},
    {FP32, E4M3, E5M2, FP16, E4M3, FP16},
    {FP32, E4M3, E5M2, FP16, E5M2, FP16},
    {FP32, E4M3, E5M2, FP16, FP16, FP16},
    {FP32, E4M3, E5M2, FP32, FP32, BF16},
    {FP32, E5M2, E4M3, BF16, BF16, BF16},
    {FP32, E5M2, E4M3, BF16, E4M3, BF16},
    {FP32, E5M2, E4M3, BF16, E5M2, BF16},
    {FP32, E5M2, E4M3, FP16, E4M3, FP16},
    {FP32, E5M2, E4M3, FP16, E5M2, FP16},
    {FP32, E5M2, E4M3, FP16, FP16, FP16},
    {FP32, E5M2, E4M3, FP32, FP32, BF16},
};

#define ROWS(table, n) (*(n) = sizeof table / sizeof *table, table)

static const struct row *rows_of(cublasComputeType_t compute, size_t *n) {
    switch ((int)compute) {
    case CUBLAS_COMPUTE_16F:
    case CUBLAS_COMPUTE_16F_PEDANTIC:
        return ROWS(rows_16f, n);
    case CUBLAS_COMPUTE_32I:
    case CUBLAS_COMPUTE_32I_PEDANTIC:
        return ROWS(rows_32i, n);
    case CUBLAS_COMPUTE_32F:
    case CUBLAS_COMPUTE_32F_PEDANTIC:
        return ROWS(rows_32f, n);
    case CUBLAS_COMPUTE_32F_FAST_16F:
    case CUBLAS_COMPUTE_32F_FAST_16BF:
    case CUBLAS_COMPUTE_32F_FAST_TF32:
    case CUBLAS_COMPUTE_32F_EMULATED_16BFX9:
        return ROWS(rows_32f_fast, n);
    case CUBLAS_COMPUTE_64F:
    case CUBLAS_COMPUTE_64F_PEDANTIC:
    case CUBLAS_COMPUTE_64F_EMULATED_FIXEDPOINT:
        return ROWS(rows_64f, n);
    default:
        *n = 0;
        return NULL;
    }
}

bool vgpu_lt_types(cublasComputeType_t compute, cudaDataType_t scale, cudaDataType_t a, cudaDataType_t b,
                   cudaDataType_t c, cudaDataType_t d, cudaDataType_t *bias) {
    size_t n;
    const struct row *r = rows_of(compute, &n);
    for (; n; n--, r++)
        if (r->scale == (int)scale && r->a == (int)a && r->b == (int)b && r->c == (int)c && r->d == (int)d) {
            if (bias) *bias = (cudaDataType_t)r->bias;
            return true;
        }
    return false;
}

/* ---- shapes ---- */

/* The sizes of the type that ld, stride and rows are counted in must not overflow OpenBLAS's. */
cublasStatus_t vgpu_lt_matrix(const struct vgpu_lt_layout *l, struct vgpu_lt_matrix *out) {
    if (!l || !l->rows || !l->columns || l->batch < 1 || l->ld < 0) return CUBLAS_STATUS_INVALID_VALUE;
    if (l->rows > INT32_MAX || l->columns > INT32_MAX || l->ld > INT32_MAX) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (l->order != CUBLASLT_ORDER_COL && l->order != CUBLASLT_ORDER_ROW) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (l->plane || !vgpu_element_bytes((cudaDataType_t)l->type)) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (l->batch_mode > CUBLASLT_BATCH_MODE_POINTER_ARRAY) return CUBLAS_STATUS_INVALID_VALUE;
    *out = (struct vgpu_lt_matrix){.type = (cudaDataType_t)l->type,
                                   .row = l->order == CUBLASLT_ORDER_ROW,
                                   .array = l->batch_mode == CUBLASLT_BATCH_MODE_POINTER_ARRAY,
                                   .rows = (int64_t)l->rows,
                                   .columns = (int64_t)l->columns,
                                   .ld = l->ld,
                                   .stride = l->stride};
    return l->ld < vgpu_lt_inner(out) ? CUBLAS_STATUS_INVALID_VALUE : CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t read_matrices(const struct vgpu_lt_layout *const l[4], struct vgpu_lt_product *p) {
    struct vgpu_lt_matrix *const m[4] = {&p->a, &p->b, &p->c, &p->d};
    for (int i = 0; i < 4; i++) {
        cublasStatus_t e = vgpu_lt_matrix(l[i], m[i]);
        if (e) return e;
        if (l[i]->batch != l[3]->batch || l[i]->batch_mode != l[3]->batch_mode) return CUBLAS_STATUS_INVALID_VALUE;
    }
    p->batch = l[3]->batch;
    return CUBLAS_STATUS_SUCCESS;
}

static bool is_op(int32_t op) {
    return vgpu_is_op((cublasOperation_t)op);
}

static cublasStatus_t check_shapes(struct vgpu_lt_product *p) {
    const struct vgpu_lt_desc *d = &p->desc;
    if (!is_op(d->trans_a) || !is_op(d->trans_b) || !is_op(d->trans_c)) return CUBLAS_STATUS_INVALID_VALUE;
    if (d->trans_c != CUBLAS_OP_N || d->fill != CUBLAS_FILL_MODE_FULL) return CUBLAS_STATUS_NOT_SUPPORTED;
    p->ta = d->trans_a != CUBLAS_OP_N;
    p->tb = d->trans_b != CUBLAS_OP_N;
    p->m = p->d.rows;
    p->n = p->d.columns;
    p->k = p->ta ? p->a.rows : p->a.columns;
    bool fit = (p->ta ? p->a.columns : p->a.rows) == p->m && (p->tb ? p->b.columns : p->b.rows) == p->k &&
               (p->tb ? p->b.rows : p->b.columns) == p->n && p->c.rows == p->m && p->c.columns == p->n;
    return fit ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

/* ---- what fp8 and int8 ask for ---- */

enum { FIRST_WITH_FP8 = 89 };

/* Every line of a matrix must begin at such a multiple of bytes. */
static bool lines_at(const struct vgpu_lt_matrix *m, int64_t bytes) {
    int64_t e = (int64_t)vgpu_element_bytes(m->type);
    return vgpu_lt_inner(m) * e % bytes == 0 && m->ld * e % bytes == 0 && m->stride * e % bytes == 0;
}

static bool aligned(const struct vgpu_lt_product *p, int64_t bytes) {
    return lines_at(&p->a, bytes) && lines_at(&p->b, bytes) && lines_at(&p->c, bytes) && lines_at(&p->d, bytes);
}

/* Tensor cores take 8-bit operands only with k contiguous in both. */
static cublasStatus_t check_8_bit(const struct vgpu_lt_product *p) {
    if (p->fp8 && vgpu_profile()->sm < FIRST_WITH_FP8) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (!p->ta || p->tb || p->a.row || p->b.row || p->c.row || p->d.row) return CUBLAS_STATUS_NOT_SUPPORTED;
    return aligned(p, p->fp8 ? 16 : 4) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

/* Scales are for matrices in fp8 only. Per-row and per-column ones of A and B (OUTER_VEC_32F) go together, and with an
 * output that is not fp8. */
static cublasStatus_t check_scales(const struct vgpu_lt_product *p) {
    const struct vgpu_lt_desc *d = &p->desc;
    bool to_fp8 = vgpu_lt_is_fp8(p->d.type), aux_fp8 = vgpu_lt_is_fp8(p->aux_type);
    if (!p->fp8 && (d->a_scale || d->b_scale)) return CUBLAS_STATUS_INVALID_VALUE;
    if (d->c_scale || (!to_fp8 && (d->d_scale || d->amax))) return CUBLAS_STATUS_INVALID_VALUE;
    if (!aux_fp8 && (d->aux_scale || d->aux_amax)) return CUBLAS_STATUS_INVALID_VALUE;
    if (d->c_mode || d->d_mode || d->aux_mode || d->d_out_mode || d->d_out_scale) return CUBLAS_STATUS_NOT_SUPPORTED;
    const int scalar = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F, outer = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    if (d->a_mode == scalar && d->b_mode == scalar) return CUBLAS_STATUS_SUCCESS;
    bool vectors = d->a_mode == outer && d->b_mode == outer && p->fp8 && !to_fp8 && d->a_scale && d->b_scale;
    return vectors ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

/* ---- epilogues ---- */

static bool known_epilogue(uint32_t e) {
    static const uint32_t known[] = {
        CUBLASLT_EPILOGUE_DEFAULT,  CUBLASLT_EPILOGUE_RELU,        CUBLASLT_EPILOGUE_RELU_AUX,
        CUBLASLT_EPILOGUE_BIAS,     CUBLASLT_EPILOGUE_RELU_BIAS,   CUBLASLT_EPILOGUE_RELU_AUX_BIAS,
        CUBLASLT_EPILOGUE_DRELU,    CUBLASLT_EPILOGUE_DRELU_BGRAD, CUBLASLT_EPILOGUE_GELU,
        CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_GELU_BIAS,   CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
        CUBLASLT_EPILOGUE_DGELU,    CUBLASLT_EPILOGUE_DGELU_BGRAD, CUBLASLT_EPILOGUE_BGRADA,
        CUBLASLT_EPILOGUE_BGRADB,
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i] == e) return true;
    return false;
}

/* The second matrix that an epilogue writes or reads: bits for ReLU, elements for GELU. */
static cublasStatus_t check_aux(struct vgpu_lt_product *p) {
    const struct vgpu_lt_desc *d = &p->desc;
    bool bits = d->epilogue & (CUBLASLT_EPILOGUE_RELU | 8);
    int64_t multiple = bits ? 128 : 8;
    if (p->d.row || d->aux_ld > INT32_MAX) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (d->aux_ld < p->m || d->aux_ld % multiple || d->aux_stride % multiple) return CUBLAS_STATUS_INVALID_VALUE;
    p->aux_type = d->aux_type < 0 || bits ? p->d.type : (cudaDataType_t)d->aux_type;
    bool allowed = p->aux_type == p->d.type ||
                   (vgpu_lt_is_fp8(p->d.type) &&
                    (vgpu_lt_is_fp8(p->aux_type) || p->aux_type == CUDA_R_16F || p->aux_type == CUDA_R_16BF));
    return allowed ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

/* `usual`: the bias's type by the table. That of D, and of operands of 16 bits, are taken as well. */
static cublasStatus_t check_epilogue(struct vgpu_lt_product *p, cudaDataType_t usual) {
    const struct vgpu_lt_desc *d = &p->desc;
    uint32_t e = d->epilogue;
    p->aux_type = p->bias_type = (cudaDataType_t)-1;
    if (!known_epilogue(e)) return CUBLAS_STATUS_INVALID_VALUE;
    if (e == CUBLASLT_EPILOGUE_DEFAULT) return CUBLAS_STATUS_SUCCESS;
    if ((int)usual == NO_EPILOGUE) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (p->fp8 && e & (CUBLASLT_EPILOGUE_BGRADA | CUBLASLT_EPILOGUE_BGRADB)) return CUBLAS_STATUS_NOT_SUPPORTED;
    p->bias_type = d->bias_type < 0 ? usual : (cudaDataType_t)d->bias_type;
    bool allowed = p->bias_type == usual || (p->bias_type == p->d.type && !vgpu_lt_is_fp8(p->d.type)) ||
                   (p->bias_type == p->a.type && vgpu_element_bytes(p->a.type) == 2);
    if (!allowed) return CUBLAS_STATUS_INVALID_VALUE;
    return e & 128 ? check_aux(p) : CUBLAS_STATUS_SUCCESS;
}

/* Alpha (and beta) may be vectors on the device, of D's rows. */
static cublasStatus_t check_pointer_mode(const struct vgpu_lt_product *p) {
    int32_t mode = p->desc.pointer_mode;
    if (mode < 0 || mode > CUBLASLT_POINTER_MODE_ALPHA_DEVICE_VECTOR_BETA_HOST) return CUBLAS_STATUS_INVALID_VALUE;
    if (mode == CUBLASLT_POINTER_MODE_DEVICE_VECTOR) return CUBLAS_STATUS_NOT_SUPPORTED;
    return p->desc.alpha_stride ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t vgpu_lt_check(const struct vgpu_lt_desc *desc, const struct vgpu_lt_layout *a,
                             const struct vgpu_lt_layout *b, const struct vgpu_lt_layout *c,
                             const struct vgpu_lt_layout *d, struct vgpu_lt_product *p) {
    const struct vgpu_lt_layout *const layouts[4] = {a, b, c, d};
    cudaDataType_t bias;
    if (!desc || !a || !b || !c || !d) return CUBLAS_STATUS_INVALID_VALUE;
    *p = (struct vgpu_lt_product){.desc = *desc};
    cublasStatus_t e = read_matrices(layouts, p);
    if (!e) e = check_shapes(p);
    if (e) return e;
    cublasComputeType_t compute = (cublasComputeType_t)desc->compute;
    if (!vgpu_lt_types(compute, (cudaDataType_t)desc->scale, p->a.type, p->b.type, p->c.type, p->d.type, &bias))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    p->fp8 = vgpu_lt_is_fp8(p->a.type);
    p->wide = p->a.type == CUDA_R_64F || p->a.type == CUDA_R_8I;
    p->rounding = p->a.type == CUDA_R_32F ? vgpu_rounding_of(compute, CUBLAS_PEDANTIC_MATH) : VGPU_ROUND_NONE;
    if (vgpu_element_bytes(p->a.type) == 1) e = check_8_bit(p);
    if (!e) e = check_epilogue(p, bias);
    if (!e) e = check_scales(p);
    return e ? e : check_pointer_mode(p);
}
