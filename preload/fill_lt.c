/* Records of cuBLASLt calls. Its descriptors are opaque: the real library is asked what they say, after a successful
 * call, by functions that change nothing. */
#include "preload/fill.h"

/* ---- questions ----------------------------------------------------------------------------------------------- */

typedef cublasStatus_t get_attribute(const void *object, int attribute, void *to, size_t bytes, size_t *written);

enum { OF_PRODUCT, OF_LAYOUT, OF_TRANSFORM, OF_ALGO, GETTERS };

static get_attribute *getter(int which) {
    static const char *const names[GETTERS] = {"cublasLtMatmulDescGetAttribute", "cublasLtMatrixLayoutGetAttribute",
                                               "cublasLtMatrixTransformDescGetAttribute",
                                               "cublasLtMatmulAlgoConfigGetAttribute"};
    static void *found[GETTERS];
    void *f = __atomic_load_n(&found[which], __ATOMIC_RELAXED);
    if (!f) {
        f = real_find_quietly(names[which], "cublasLt");
        __atomic_store_n(&found[which], f, __ATOMIC_RELAXED);
    }
    return (get_attribute *)f;
}

/* 1: *to is filled. An older library does not know every attribute. */
static int ask(int which, const void *object, int attribute, void *to, size_t bytes) {
    size_t written = 0;
    get_attribute *f = object ? getter(which) : NULL;
    return f && f(object, attribute, to, bytes, &written) == CUBLAS_STATUS_SUCCESS;
}

static int32_t ask_i32(int which, const void *object, int attribute, int32_t otherwise) {
    int32_t v;
    return ask(which, object, attribute, &v, sizeof v) ? v : otherwise;
}

static int64_t ask_i64(int which, const void *object, int attribute) {
    int64_t v;
    return ask(which, object, attribute, &v, sizeof v) ? v : BLAS_NONE;
}

static uint64_t ask_pointer(const void *product, int attribute) {
    void *p;
    return ask(OF_PRODUCT, product, attribute, &p, sizeof p) ? ADDRESS(p) : 0;
}

/* ---- layouts ------------------------------------------------------------------------------------------------- */

/* A matrix in column-major terms: one that lies row by row is its transpose, column by column. */
struct matrix {
    int type;              /* cudaDataType_t; -1 not known */
    int64_t rows, columns; /* as the call means it, not as it lies */
    int64_t ld;            /* BLAS_NONE: tiles, or not known */
    int64_t batch, stride; /* stride: BLAS_NONE where there is no batch */
    int by_rows;           /* lies row by row */
    int pointers;          /* the address is that of an array of pointers */
};

static struct matrix ask_layout(cublasLtMatrixLayout_t layout) {
    struct matrix x = {.type = ask_i32(OF_LAYOUT, layout, CUBLASLT_MATRIX_LAYOUT_TYPE, -1),
                       .rows = ask_i64(OF_LAYOUT, layout, CUBLASLT_MATRIX_LAYOUT_ROWS),
                       .columns = ask_i64(OF_LAYOUT, layout, CUBLASLT_MATRIX_LAYOUT_COLS),
                       .ld = ask_i64(OF_LAYOUT, layout, CUBLASLT_MATRIX_LAYOUT_LD),
                       .batch = ask_i32(OF_LAYOUT, layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 1),
                       .stride = BLAS_NONE};
    int order = ask_i32(OF_LAYOUT, layout, CUBLASLT_MATRIX_LAYOUT_ORDER, CUBLASLT_ORDER_COL);
    int mode = ask_i32(OF_LAYOUT, layout, CUBLASLT_MATRIX_LAYOUT_BATCH_MODE, CUBLASLT_BATCH_MODE_STRIDED);
    x.by_rows = order == CUBLASLT_ORDER_ROW;
    x.pointers = mode == CUBLASLT_BATCH_MODE_POINTER_ARRAY;
    if (order != CUBLASLT_ORDER_COL && order != CUBLASLT_ORDER_ROW) x.ld = BLAS_NONE;
    if (x.batch > 1 && !x.pointers) x.stride = ask_i64(OF_LAYOUT, layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
    return x;
}

static int same_layout(const struct matrix *x, const struct matrix *y) {
    return x->type == y->type && x->ld == y->ld && x->stride == y->stride && x->by_rows == y->by_rows;
}

static uint32_t type_of(const struct matrix *x) {
    return x->type < 0 ? 0 : blas_dtype(x->type);
}

/* The op of one that lies by rows, said of its transpose. (A conjugate that is no transpose has no name here.) */
static int op_turned(int op, int turn) {
    if (!turn) return op;
    return op == CUBLAS_OP_N ? CUBLAS_OP_T : CUBLAS_OP_N;
}

/* ---- scalars ------------------------------------------------------------------------------------------------- */

struct scalars {
    uint32_t alpha, beta;
};

static struct scalars ask_scalars(int which, const void *object, int type_attribute, int mode_attribute,
                                  const void *alpha, const void *beta) {
    int type = ask_i32(which, object, type_attribute, -1), mode = ask_i32(which, object, mode_attribute, -1);
    uint32_t as = type < 0 ? 0 : blas_dtype(type);
    switch (mode) {
    case CUBLASLT_POINTER_MODE_HOST:
        return (struct scalars){blas_scalar(alpha, as), blas_scalar(beta, as)};
    case CUBLASLT_POINTER_MODE_DEVICE:
    case CUBLASLT_POINTER_MODE_DEVICE_VECTOR:
        return (struct scalars){ACCT_scalar_DEVICE, ACCT_scalar_DEVICE};
    case CUBLASLT_POINTER_MODE_ALPHA_DEVICE_VECTOR_BETA_ZERO:
        return (struct scalars){ACCT_scalar_DEVICE, ACCT_scalar_ZERO};
    case CUBLASLT_POINTER_MODE_ALPHA_DEVICE_VECTOR_BETA_HOST:
        return (struct scalars){ACCT_scalar_DEVICE, blas_scalar(beta, as)};
    default:
        return (struct scalars){0, 0};
    }
}

/* ---- a product ----------------------------------------------------------------------------------------------- */

struct product {
    const struct lt_matmul *call;
    struct matrix a, b, c, d;
    int32_t epilogue; /* cublasLtEpilogue_t */
    int transposed;   /* the result lies by rows: written down as the product of the transposes */
};

static uint32_t epilogue_of(const struct product *p) {
    switch (p->epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT:
        return 0;
    case CUBLASLT_EPILOGUE_RELU:
        return ACCT_epilogue_RELU;
    case CUBLASLT_EPILOGUE_RELU_AUX:
        return ACCT_epilogue_RELU_AUX;
    case CUBLASLT_EPILOGUE_BIAS:
        return ACCT_epilogue_BIAS;
    case CUBLASLT_EPILOGUE_RELU_BIAS:
        return ACCT_epilogue_RELU_BIAS;
    case CUBLASLT_EPILOGUE_RELU_AUX_BIAS:
        return ACCT_epilogue_RELU_AUX_BIAS;
    case CUBLASLT_EPILOGUE_DRELU:
        return ACCT_epilogue_DRELU;
    case CUBLASLT_EPILOGUE_DRELU_BGRAD:
        return ACCT_epilogue_DRELU_BGRAD;
    case CUBLASLT_EPILOGUE_GELU:
        return ACCT_epilogue_GELU;
    case CUBLASLT_EPILOGUE_GELU_AUX:
        return ACCT_epilogue_GELU_AUX;
    case CUBLASLT_EPILOGUE_GELU_BIAS:
        return ACCT_epilogue_GELU_BIAS;
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
        return ACCT_epilogue_GELU_AUX_BIAS;
    case CUBLASLT_EPILOGUE_DGELU:
        return ACCT_epilogue_DGELU;
    case CUBLASLT_EPILOGUE_DGELU_BGRAD:
        return ACCT_epilogue_DGELU_BGRAD;
    case CUBLASLT_EPILOGUE_BGRADA:
        return p->transposed ? ACCT_epilogue_BGRADB : ACCT_epilogue_BGRADA;
    case CUBLASLT_EPILOGUE_BGRADB:
        return p->transposed ? ACCT_epilogue_BGRADA : ACCT_epilogue_BGRADB;
    default:
        return ACCT_epilogue_OTHER;
    }
}

/* Bits of cublasLtEpilogue_t, by which its values are made. */
enum { EPILOGUE_BIAS = 4, EPILOGUE_BGRAD = 16, EPILOGUE_AUX = 128, EPILOGUE_BGRADA = 256, EPILOGUE_BGRADB = 512 };

static int is_fp8(const struct matrix *x) {
    return x->type == CUDA_R_8F_E4M3 || x->type == CUDA_R_8F_E5M2;
}

/* Where the program does not say (-1): the result's type, with the exceptions of the vendor's documentation. */
static uint32_t bias_type(const struct product *p) {
    int type = ask_i32(OF_PRODUCT, p->call->computeDesc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, -1);
    if (type >= 0) return blas_dtype(type);
    if (is_fp8(&p->a) && is_fp8(&p->d)) return p->c.type == CUDA_R_16F ? ACCT_dtype_FP16 : ACCT_dtype_BF16;
    if (is_fp8(&p->a) && p->d.type == CUDA_R_32F) return ACCT_dtype_BF16;
    if (p->a.type == CUDA_R_8I && p->d.type == CUDA_R_8I) return ACCT_dtype_FP32;
    return type_of(&p->d);
}

static void fill_bias(const struct product *p, struct acct_ev_gemm *r) {
    const void *desc = p->call->computeDesc;
    if (!(p->epilogue & (EPILOGUE_BIAS | EPILOGUE_BGRAD | EPILOGUE_BGRADA | EPILOGUE_BGRADB))) return;
    r->bias = ask_pointer(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER);
    if (!r->bias) return;
    r->bias_type = bias_type(p);
    r->bias_length = p->epilogue & EPILOGUE_BGRADB ? p->d.columns : p->d.rows;
    if (p->d.batch > 1) r->stride_bias = ask_i64(OF_PRODUCT, desc, CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE);
}

static void fill_aux(const struct product *p, struct acct_ev_gemm *r) {
    const void *desc = p->call->computeDesc;
    if (!(p->epilogue & EPILOGUE_AUX)) return;
    r->aux = ask_pointer(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER);
    if (!r->aux) return;
    r->ldaux = ask_i64(OF_PRODUCT, desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD);
    if (p->d.batch > 1) r->stride_aux = ask_i64(OF_PRODUCT, desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE);
    r->aux_scale = ask_pointer(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_SCALE_POINTER);
    r->amax_aux = ask_pointer(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_AMAX_POINTER);
    int relu = p->epilogue & (CUBLASLT_EPILOGUE_RELU | (CUBLASLT_EPILOGUE_DRELU & ~EPILOGUE_AUX));
    int type = ask_i32(OF_PRODUCT, desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, -1);
    if (!relu) r->aux_type = type >= 0 ? blas_dtype(type) : type_of(&p->d);
}

static uint32_t scale_mode(const struct product *p, uint64_t scale, int attribute) {
    if (!scale) return 0;
    switch (ask_i32(OF_PRODUCT, p->call->computeDesc, attribute, CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F)) {
    case CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F:
        return ACCT_scale_mode_SCALAR;
    case CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3:
        return ACCT_scale_mode_VEC16;
    case CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0:
        return ACCT_scale_mode_VEC32;
    case CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F:
        return ACCT_scale_mode_OUTER_VEC;
    case CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F:
        return ACCT_scale_mode_VEC128;
    case CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F:
        return ACCT_scale_mode_BLK128X128;
    default:
        return ACCT_scale_mode_OTHER;
    }
}

static int has_scales(const struct matrix *x) {
    switch (x->type) {
    case CUDA_R_8F_E4M3:
    case CUDA_R_8F_E5M2:
    case CUDA_R_4F_E2M1:
    case CUDA_R_8I:
        return 1;
    default:
        return 0;
    }
}

/* Only products of narrow types have scales; the others are not asked. */
static void fill_scales(const struct product *p, struct acct_ev_gemm *r) {
    const void *desc = p->call->computeDesc;
    int turn = p->transposed;
    if (!has_scales(&p->a) && !has_scales(&p->b) && !has_scales(&p->c) && !has_scales(&p->d)) return;
    uint64_t a = ask_pointer(desc, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER),
             b = ask_pointer(desc, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER);
    uint32_t a_mode = scale_mode(p, a, CUBLASLT_MATMUL_DESC_A_SCALE_MODE),
             b_mode = scale_mode(p, b, CUBLASLT_MATMUL_DESC_B_SCALE_MODE);
    r->a_scale = turn ? b : a;
    r->b_scale = turn ? a : b;
    r->a_scale_mode = turn ? b_mode : a_mode;
    r->b_scale_mode = turn ? a_mode : b_mode;
    r->c_scale = ask_pointer(desc, CUBLASLT_MATMUL_DESC_C_SCALE_POINTER);
    r->d_scale = ask_pointer(desc, CUBLASLT_MATMUL_DESC_D_SCALE_POINTER);
    r->amax_d = ask_pointer(desc, CUBLASLT_MATMUL_DESC_AMAX_D_POINTER);
    r->d_out_scale = ask_pointer(desc, CUBLASLT_MATMUL_DESC_D_OUT_SCALE_POINTER);
    r->d_out_scale_mode = scale_mode(p, r->d_out_scale, CUBLASLT_MATMUL_DESC_D_OUT_SCALE_MODE);
}

static void fill_factors(const struct product *p, struct acct_ev_gemm *r) {
    const struct lt_matmul *g = p->call;
    int op_a = ask_i32(OF_PRODUCT, g->computeDesc, CUBLASLT_MATMUL_DESC_TRANSA, -1),
        op_b = ask_i32(OF_PRODUCT, g->computeDesc, CUBLASLT_MATMUL_DESC_TRANSB, -1);
    const struct matrix *a = p->transposed ? &p->b : &p->a, *b = p->transposed ? &p->a : &p->b;
    int op_first = p->transposed ? op_b : op_a, op_second = p->transposed ? op_a : op_b;
    r->k = op_a < 0 ? BLAS_NONE : op_a == CUBLAS_OP_N ? p->a.columns : p->a.rows;
    r->m = p->transposed ? p->d.columns : p->d.rows;
    r->n = p->transposed ? p->d.rows : p->d.columns;
    r->trans_a = op_first < 0 ? 0 : blas_trans(op_turned(op_first, a->by_rows != p->transposed));
    r->trans_b = op_second < 0 ? 0 : blas_trans(op_turned(op_second, b->by_rows != p->transposed));
    r->a = ADDRESS(p->transposed ? g->B : g->A);
    r->b = ADDRESS(p->transposed ? g->A : g->B);
    r->a_type = type_of(a), r->b_type = type_of(b);
    r->lda = a->ld, r->ldb = b->ld;
    r->stride_a = a->stride, r->stride_b = b->stride;
}

static void fill_results(const struct product *p, struct acct_ev_gemm *r) {
    r->c_type = type_of(&p->c);
    r->ldc = p->c.by_rows == p->d.by_rows ? p->c.ld : BLAS_NONE;
    r->stride_c = p->c.stride;
    if (p->call->D == p->call->C && same_layout(&p->c, &p->d)) return;
    r->d = ADDRESS(p->call->D);
    r->d_type = type_of(&p->d);
    r->ldd = p->d.ld;
    r->stride_d = p->d.stride;
}

/* What the descriptors say. */
static void fill_described(const struct lt_matmul *g, struct acct_ev_gemm *r) {
    struct product p = {.call = g, .a = ask_layout(g->Adesc), .b = ask_layout(g->Bdesc), .c = ask_layout(g->Cdesc)};
    p.d = g->Ddesc == g->Cdesc ? p.c : ask_layout(g->Ddesc);
    p.transposed = p.d.by_rows;
    p.epilogue = ask_i32(OF_PRODUCT, g->computeDesc, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DEFAULT);
    struct scalars s = ask_scalars(OF_PRODUCT, g->computeDesc, CUBLASLT_MATMUL_DESC_SCALE_TYPE,
                                   CUBLASLT_MATMUL_DESC_POINTER_MODE, g->alpha, g->beta);
    int compute = ask_i32(OF_PRODUCT, g->computeDesc, CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, -1);
    fill_factors(&p, r);
    fill_results(&p, r);
    r->batch = p.d.batch;
    r->pointer_array = (uint32_t)p.d.pointers;
    r->compute = compute < 0 ? 0 : blas_compute(compute);
    r->alpha = s.alpha, r->beta = s.beta;
    r->epilogue = epilogue_of(&p);
    r->algo = ask_i32(OF_ALGO, g->algo, CUBLASLT_ALGO_CONFIG_ID, ACCT_NULL_I32);
    fill_bias(&p, r);
    fill_aux(&p, r);
    fill_scales(&p, r);
}

void fill_lt_matmul(struct hook_call *k, const struct lt_matmul *g) {
    struct acct_ev_gemm *r = hook_record(k, ACCT_EV_GEMM, sizeof *r, ADDRESS(g->stream));
    if (!r) return;
    r->trans_a = r->trans_b = r->a_type = r->b_type = r->c_type = r->compute = r->alpha = r->beta = r->pointer_array =
        0;
    r->m = r->n = r->k = r->batch = r->lda = r->ldb = r->ldc = BLAS_NONE;
    r->stride_a = r->stride_b = r->stride_c = BLAS_NONE;
    r->a = ADDRESS(g->A), r->b = ADDRESS(g->B), r->c = ADDRESS(g->C);
    r->math_mode = CUBLAS_DEFAULT_MATH;
    r->algo = ACCT_NULL_I32;
    r->external = k->external;
    fill_gemm_alone(r);
    if (g->workspace && g->workspaceSizeInBytes <= INT64_MAX) {
        r->workspace = ADDRESS(g->workspace);
        r->workspace_bytes = (int64_t)g->workspaceSizeInBytes;
    }
    if (k->status)
        r->d = g->D == g->C ? 0 : ADDRESS(g->D);
    else
        fill_described(g, r);
    hook_commit(k);
}

/* ---- a transformation ------------------------------------------------------------------------------------------ */

/* Of matrices that all lie by rows, the transposes: m and n change places. One that lies otherwise than the result
 * keeps its size but not its leading dimension, which is not that of columns. */
static void fill_transformed(const struct lt_transform *g, struct acct_ev_blas *r) {
    const void *desc = g->transformDesc;
    struct matrix a = ask_layout(g->Adesc), b = ask_layout(g->Bdesc), c = ask_layout(g->Cdesc);
    struct scalars s = ask_scalars(OF_TRANSFORM, desc, CUBLASLT_MATRIX_TRANSFORM_DESC_SCALE_TYPE,
                                   CUBLASLT_MATRIX_TRANSFORM_DESC_POINTER_MODE, g->alpha, g->beta);
    int op_a = ask_i32(OF_TRANSFORM, desc, CUBLASLT_MATRIX_TRANSFORM_DESC_TRANSA, -1),
        op_b = ask_i32(OF_TRANSFORM, desc, CUBLASLT_MATRIX_TRANSFORM_DESC_TRANSB, -1);
    r->type = type_of(&c), r->a_type = type_of(&a), r->b_type = g->B ? type_of(&b) : 0;
    r->m = c.by_rows ? c.columns : c.rows;
    r->n = c.by_rows ? c.rows : c.columns;
    r->batch = c.batch;
    r->lda = a.ld, r->ldb = g->B ? b.ld : BLAS_NONE, r->ldc = c.ld;
    r->stride_a = a.stride, r->stride_b = g->B ? b.stride : BLAS_NONE, r->stride_c = c.stride;
    r->trans_a = op_a < 0 ? 0 : blas_trans(op_turned(op_a, a.by_rows != c.by_rows));
    r->trans_b = op_b < 0 || !g->B ? 0 : blas_trans(op_turned(op_b, b.by_rows != c.by_rows));
    r->alpha = s.alpha;
    r->beta = g->B ? s.beta : ACCT_scalar_ZERO;
    r->pointer_array = (uint32_t)c.pointers;
}

void fill_lt_transform(struct hook_call *k, const struct lt_transform *g) {
    static const char routine[] = "transform";
    struct acct_ev_blas *r = hook_record(k, ACCT_EV_BLAS, sizeof *r, ADDRESS(g->stream));
    if (!r) return;
    r->routine = ring_text(&k->thread->writer, routine, sizeof routine - 1);
    r->type = r->a_type = r->b_type = r->side = r->uplo = r->trans_a = r->trans_b = r->alpha = r->beta = 0;
    r->m = r->n = r->k = r->kl = r->ku = r->batch = BLAS_NONE;
    r->lda = r->ldb = r->ldc = r->stride_a = r->stride_b = r->stride_c = BLAS_NONE;
    r->a = ADDRESS(g->A), r->b = ADDRESS(g->B), r->c = ADDRESS(g->C);
    r->pointer_array = 0;
    r->external = k->external;
    if (!k->status) fill_transformed(g, r);
    hook_commit(k);
}
