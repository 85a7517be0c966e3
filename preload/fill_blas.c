/* Records of cuBLAS calls. What the handle says (stream, math mode, pointer mode) is asked of the real library, after a
 * successful call: then the handle is known to be good. */
#include "preload/fill.h"

#include <cuComplex.h>

/* ---- the vendor's types -------------------------------------------------------------------------------------- */

uint32_t blas_dtype(int t) {
    switch (t) {
    case CUDA_R_64F:
        return ACCT_dtype_FP64;
    case CUDA_R_32F:
        return ACCT_dtype_FP32;
    case CUDA_R_16F:
        return ACCT_dtype_FP16;
    case CUDA_R_16BF:
        return ACCT_dtype_BF16;
    case CUDA_R_8F_E4M3:
        return ACCT_dtype_FP8_E4M3;
    case CUDA_R_8F_E5M2:
        return ACCT_dtype_FP8_E5M2;
    case CUDA_R_4F_E2M1:
        return ACCT_dtype_FP4_E2M1;
    case CUDA_R_8I:
        return ACCT_dtype_INT8;
    case CUDA_R_8U:
        return ACCT_dtype_UINT8;
    case CUDA_R_32I:
        return ACCT_dtype_INT32;
    case CUDA_C_32F:
        return ACCT_dtype_COMPLEX64;
    case CUDA_C_64F:
        return ACCT_dtype_COMPLEX128;
    case CUDA_C_16F:
        return ACCT_dtype_COMPLEX32;
    default:
        return ACCT_dtype_OTHER;
    }
}

uint32_t blas_compute(int t) {
    switch (t) {
    case CUBLAS_COMPUTE_16F:
        return ACCT_compute_FP16;
    case CUBLAS_COMPUTE_16F_PEDANTIC:
        return ACCT_compute_FP16_PEDANTIC;
    case CUBLAS_COMPUTE_32F:
        return ACCT_compute_FP32;
    case CUBLAS_COMPUTE_32F_PEDANTIC:
        return ACCT_compute_FP32_PEDANTIC;
    case CUBLAS_COMPUTE_32F_FAST_16F:
        return ACCT_compute_FP32_FAST_FP16;
    case CUBLAS_COMPUTE_32F_FAST_16BF:
        return ACCT_compute_FP32_FAST_BF16;
    case CUBLAS_COMPUTE_32F_FAST_TF32:
        return ACCT_compute_FP32_FAST_TF32;
    case CUBLAS_COMPUTE_32F_EMULATED_16BFX9:
        return ACCT_compute_FP32_EMULATED_BF16X9;
    case CUBLAS_COMPUTE_64F:
        return ACCT_compute_FP64;
    case CUBLAS_COMPUTE_64F_PEDANTIC:
        return ACCT_compute_FP64_PEDANTIC;
    case CUBLAS_COMPUTE_64F_EMULATED_FIXEDPOINT:
        return ACCT_compute_FP64_EMULATED_FIXEDPOINT;
    case CUBLAS_COMPUTE_32I:
        return ACCT_compute_INT32;
    case CUBLAS_COMPUTE_32I_PEDANTIC:
        return ACCT_compute_INT32_PEDANTIC;
    default:
        return ACCT_compute_OTHER;
    }
}

uint32_t blas_scalar_type(int compute_type, int c_type) {
    int complex = c_type == CUDA_C_32F || c_type == CUDA_C_64F;
    switch (blas_compute(compute_type)) {
    case ACCT_compute_FP16:
    case ACCT_compute_FP16_PEDANTIC:
        return ACCT_dtype_FP16;
    case ACCT_compute_INT32:
    case ACCT_compute_INT32_PEDANTIC:
        return c_type == CUDA_R_32F ? ACCT_dtype_FP32 : ACCT_dtype_INT32;
    case ACCT_compute_FP64:
    case ACCT_compute_FP64_PEDANTIC:
    case ACCT_compute_FP64_EMULATED_FIXEDPOINT:
        return complex ? ACCT_dtype_COMPLEX128 : ACCT_dtype_FP64;
    case ACCT_compute_OTHER:
        return ACCT_dtype_OTHER;
    default:
        return complex ? ACCT_dtype_COMPLEX64 : ACCT_dtype_FP32;
    }
}

uint32_t blas_trans(int op) {
    switch (op) {
    case CUBLAS_OP_N:
        return ACCT_trans_N;
    case CUBLAS_OP_T:
        return ACCT_trans_T;
    case CUBLAS_OP_C:
        return ACCT_trans_C;
    default:
        return 0;
    }
}

static uint32_t side_of(int side) {
    return side == CUBLAS_SIDE_LEFT ? ACCT_side_LEFT : side == CUBLAS_SIDE_RIGHT ? ACCT_side_RIGHT : 0;
}

static uint32_t uplo_of(int uplo) {
    return uplo == CUBLAS_FILL_MODE_LOWER   ? ACCT_uplo_LOWER
           : uplo == CUBLAS_FILL_MODE_UPPER ? ACCT_uplo_UPPER
           : uplo == CUBLAS_FILL_MODE_FULL  ? ACCT_uplo_FULL
                                            : 0;
}

/* ---- the handle ---------------------------------------------------------------------------------------------- */

struct handle_state {
    uint64_t stream;
    int32_t math_mode;
    int host_scalars; /* alpha and beta may be read: pointer mode host */
};

enum { GET_STREAM, GET_MATH_MODE, GET_POINTER_MODE, GETTERS };

static void *getter(int which) {
    static const char *const names[GETTERS] = {"cublasGetStream_v2", "cublasGetMathMode", "cublasGetPointerMode_v2"};
    static void *found[GETTERS];
    void *f = __atomic_load_n(&found[which], __ATOMIC_RELAXED);
    if (!f) {
        f = real_find_quietly(names[which], "cublas");
        __atomic_store_n(&found[which], f, __ATOMIC_RELAXED);
    }
    return f;
}

static struct handle_state ask_handle(const struct hook_call *k, cublasHandle_t h) {
    struct handle_state s = {NO_STREAM, ACCT_NULL_I32, 0};
    cudaStream_t stream;
    cublasMath_t math;
    cublasPointerMode_t pointers;
    if (k->status) return s;
    cublasStatus_t (*get_stream)(cublasHandle_t, cudaStream_t *) = getter(GET_STREAM);
    cublasStatus_t (*get_math)(cublasHandle_t, cublasMath_t *) = getter(GET_MATH_MODE);
    cublasStatus_t (*get_pointers)(cublasHandle_t, cublasPointerMode_t *) = getter(GET_POINTER_MODE);
    if (get_stream && get_stream(h, &stream) == CUBLAS_STATUS_SUCCESS) s.stream = ADDRESS(stream);
    if (get_math && get_math(h, &math) == CUBLAS_STATUS_SUCCESS) s.math_mode = (int32_t)math;
    if (get_pointers && get_pointers(h, &pointers) == CUBLAS_STATUS_SUCCESS)
        s.host_scalars = pointers == CUBLAS_POINTER_MODE_HOST ? 1 : -1;
    return s;
}

static uint32_t of_parts(double re, double im) {
    return im != 0 || (re != 0 && re != 1) ? ACCT_scalar_VALUE : re == 0 ? ACCT_scalar_ZERO : ACCT_scalar_ONE;
}

static uint32_t of_half(const uint16_t *h) {
    return (*h & 0x7fff) == 0 ? ACCT_scalar_ZERO : *h == 0x3c00 ? ACCT_scalar_ONE : ACCT_scalar_VALUE;
}

uint32_t blas_scalar(const void *p, uint32_t type) {
    if (!p) return 0;
    switch (type) {
    case ACCT_dtype_FP64:
        return of_parts(*(const double *)p, 0);
    case ACCT_dtype_FP32:
        return of_parts((double)*(const float *)p, 0);
    case ACCT_dtype_FP16:
        return of_half(p);
    case ACCT_dtype_BF16:
        return (*(const uint16_t *)p & 0x7fff) == 0 ? ACCT_scalar_ZERO
               : *(const uint16_t *)p == 0x3f80     ? ACCT_scalar_ONE
                                                    : ACCT_scalar_VALUE;
    case ACCT_dtype_INT32:
        return of_parts(*(const int32_t *)p, 0);
    case ACCT_dtype_COMPLEX64:
        return of_parts((double)((const cuComplex *)p)->x, (double)((const cuComplex *)p)->y);
    case ACCT_dtype_COMPLEX128:
        return of_parts(((const cuDoubleComplex *)p)->x, ((const cuDoubleComplex *)p)->y);
    default:
        return 0;
    }
}

static uint32_t scalar(const struct handle_state *s, const void *p, uint32_t type) {
    if (!p || !s->host_scalars) return 0;
    return s->host_scalars < 0 ? ACCT_scalar_DEVICE : blas_scalar(p, type);
}

/* ---- records ------------------------------------------------------------------------------------------------- */

void fill_workspace(struct hook_call *k, const void *handle, const void *at, size_t bytes) {
    struct acct_ev_workspace *r = hook_record(k, ACCT_EV_WORKSPACE, sizeof *r, NO_STREAM);
    if (!r) return;
    r->handle = ADDRESS(handle);
    r->address = ADDRESS(at);
    r->bytes = bytes > INT64_MAX ? ACCT_NULL_I64 : (int64_t)bytes;
    hook_commit(k);
}

void fill_gemm_alone(struct acct_ev_gemm *r) {
    memset(&r->d, 0, sizeof *r - offsetof(struct acct_ev_gemm, d));
    r->ldd = r->stride_d = r->bias_length = r->stride_bias = r->ldaux = r->stride_aux = BLAS_NONE;
    r->workspace_bytes = BLAS_NONE;
}

static struct acct_ev_gemm *gemm(struct hook_call *k, const struct gemm_args *g, const struct handle_state *s) {
    struct acct_ev_gemm *r = hook_record(k, ACCT_EV_GEMM, sizeof *r, s->stream);
    if (!r) return NULL;
    r->trans_a = blas_trans(g->trans_a);
    r->trans_b = blas_trans(g->trans_b);
    r->m = g->m, r->n = g->n, r->k = g->k;
    r->batch = g->batch;
    r->a = g->a, r->b = g->b, r->c = g->c;
    r->lda = g->lda, r->ldb = g->ldb, r->ldc = g->ldc;
    r->stride_a = g->stride_a, r->stride_b = g->stride_b, r->stride_c = g->stride_c;
    r->a_type = g->a_type, r->b_type = g->b_type, r->c_type = g->c_type;
    r->compute = g->compute;
    r->alpha = scalar(s, g->alpha, g->scalar_type);
    r->beta = scalar(s, g->beta, g->scalar_type);
    r->pointer_array = g->pointer_array;
    r->math_mode = s->math_mode;
    r->algo = g->algo;
    r->external = k->external;
    fill_gemm_alone(r);
    return r;
}

void fill_gemm(struct hook_call *k, const struct gemm_args *g) {
    struct handle_state s = ask_handle(k, g->handle);
    if (gemm(k, g, &s)) hook_commit(k);
}

static int64_t element(const void *array, int64_t i, int wide) {
    return wide ? ((const int64_t *)array)[i] : ((const int32_t *)array)[i];
}

static size_t scalar_bytes(uint32_t type) {
    switch (type) {
    case ACCT_dtype_FP16:
    case ACCT_dtype_BF16:
        return 2;
    case ACCT_dtype_FP64:
    case ACCT_dtype_COMPLEX64:
        return 8;
    case ACCT_dtype_COMPLEX128:
        return 16;
    default:
        return 4;
    }
}

static struct gemm_args group(const struct grouped_args *g, int64_t i, int64_t before) {
    size_t scalar_at = (size_t)i * scalar_bytes(g->scalar_type), pointers_at = (size_t)before * sizeof(void *);
    return (struct gemm_args){
        .handle = g->handle,
        .trans_a = g->trans_a[i],
        .trans_b = g->trans_b[i],
        .m = element(g->m, i, g->wide),
        .n = element(g->n, i, g->wide),
        .k = element(g->k, i, g->wide),
        .batch = element(g->group_size, i, g->wide),
        .a = g->a + pointers_at,
        .b = g->b + pointers_at,
        .c = g->c + pointers_at,
        .lda = element(g->lda, i, g->wide),
        .ldb = element(g->ldb, i, g->wide),
        .ldc = element(g->ldc, i, g->wide),
        .stride_a = BLAS_NONE,
        .stride_b = BLAS_NONE,
        .stride_c = BLAS_NONE,
        .a_type = g->a_type,
        .b_type = g->b_type,
        .c_type = g->c_type,
        .compute = g->compute,
        .alpha = (const char *)g->alpha + scalar_at,
        .beta = (const char *)g->beta + scalar_at,
        .scalar_type = g->scalar_type,
        .pointer_array = 1,
        .algo = ACCT_NULL_I32,
    };
}

/* A call whose arrays may not be looked at: what is known by value. */
static void fill_grouped_blind(struct hook_call *k, const struct grouped_args *g, const struct handle_state *s) {
    struct gemm_args a = {.trans_a = -1,
                          .trans_b = -1,
                          .m = BLAS_NONE,
                          .n = BLAS_NONE,
                          .k = BLAS_NONE,
                          .batch = BLAS_NONE,
                          .lda = BLAS_NONE,
                          .ldb = BLAS_NONE,
                          .ldc = BLAS_NONE,
                          .stride_a = BLAS_NONE,
                          .stride_b = BLAS_NONE,
                          .stride_c = BLAS_NONE,
                          .a = g->a,
                          .b = g->b,
                          .c = g->c,
                          .a_type = g->a_type,
                          .b_type = g->b_type,
                          .c_type = g->c_type,
                          .compute = g->compute,
                          .pointer_array = 1,
                          .algo = ACCT_NULL_I32};
    if (gemm(k, &a, s)) hook_commit(k);
}

void fill_grouped(struct hook_call *k, const struct grouped_args *g) {
    struct handle_state s = ask_handle(k, g->handle);
    int64_t before = 0;
    int first = 1;
    if (k->status || g->group_count <= 0) {
        fill_grouped_blind(k, g, &s);
        return;
    }
    for (int64_t i = 0; i < g->group_count; i++) {
        struct gemm_args a = group(g, i, before);
        struct acct_ev_gemm *r = gemm(k, &a, &s);
        before += a.batch;
        if (!r) continue;
        if (!first) /* a continuation belongs to the record before it: the first that was not lost opens the op */
            r->hdr.flags |= ACCT_REC_CONTINUES;
        first = 0;
        hook_commit(k);
    }
}

void fill_blas(struct hook_call *k, const struct blas_args *b) {
    struct handle_state s = ask_handle(k, b->handle);
    struct acct_ev_blas *r = hook_record(k, ACCT_EV_BLAS, sizeof *r, s.stream);
    if (!r) return;
    r->routine = ring_text(&k->thread->writer, b->routine, strlen(b->routine));
    r->type = b->type;
    r->m = b->m, r->n = b->n, r->k = b->k;
    r->kl = b->kl, r->ku = b->ku;
    r->batch = b->batch;
    r->a = b->a, r->b = b->b, r->c = b->c;
    r->lda = b->lda, r->ldb = b->ldb, r->ldc = b->ldc;
    r->stride_a = b->stride_a, r->stride_b = b->stride_b, r->stride_c = b->stride_c;
    r->side = side_of(b->side);
    r->uplo = uplo_of(b->uplo);
    r->trans_a = blas_trans(b->trans_a);
    r->trans_b = blas_trans(b->trans_b);
    r->alpha = b->alpha ? scalar(&s, b->alpha, b->alpha_type) : 0;
    r->beta = b->beta ? scalar(&s, b->beta, b->beta_type) : 0;
    r->pointer_array = b->pointer_array;
    r->external = k->external;
    r->a_type = b->a_type, r->b_type = b->b_type;
    hook_commit(k);
}
