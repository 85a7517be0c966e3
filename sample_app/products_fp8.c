#include "sample_app/products_fp8.h"

#include <cublasLt.h>
#include <stdio.h>
#include <stdlib.h>

#include "sample_app/checked_call.h"
#include "sample_app/device_tensors.h"
#include "sample_app/fp8_kernels.h"

enum { MULTIPLE = 16 };

/* One of the two matrices of a product. */
struct factor {
    enum number_format format;
    void *at;     /* room for the largest of its kind */
    size_t n;     /* elements of that room */
    float *scale; /* (2) of what lies there: fp8_kernels.h */
};

/* What cuBLASLt is told of a product, kept for the next one of its shape. */
struct plan {
    const struct factor *A, *B;
    int M, N, K;
    enum number_format c_format;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algorithm;
    struct plan *next;
};

struct fp8_buffers {
    cublasLtHandle_t lt;
    struct factor x, w, dout;
    float *parts; /* (FP8_PARTS) */
    struct plan *plans;
};

/* ---- memory ---------------------------------------------------------------------------------------------- */

static void require_device(void) {
    struct cudaDeviceProp device;
    int current;
    CHECK(cudaGetDevice(&current));
    CHECK(cudaGetDeviceProperties(&device, current));
    if (device.major * 10 + device.minor < 89)
        die(EXIT_RUN_TIME, "--dtype fp8 needs compute capability 8.9; this device, %s, has %d.%d", device.name,
            device.major, device.minor);
}

struct fp8_buffers *fp8_create(void) {
    require_device();
    struct fp8_buffers *f = calloc(1, sizeof *f);
    if (!f) die(EXIT_RUN_TIME, "out of host memory");
    f->x.format = f->w.format = FORMAT_E4M3;
    f->dout.format = FORMAT_E5M2;
    CHECK(cublasLtCreate(&f->lt));
    return f;
}

/* The hardware wants every row of a factor, in bytes, and every size of the product to be such a multiple. */
static void require_multiples(const char *what, int64_t a, int64_t b) {
    if (a % MULTIPLE || b % MULTIPLE)
        die(EXIT_USAGE, "--dtype fp8 needs matrices whose sizes are multiples of %d; %s has %lld x %lld", MULTIPLE,
            what, (long long)a, (long long)b);
}

static void allocate(struct factor *m, const char *name, const char *class, size_t n) {
    char scale_name[24];
    snprintf(scale_name, sizeof scale_name, "%s_scale", name);
    m->at = device_alloc(name, class, n);
    m->scale = device_alloc(scale_name, class, 2 * sizeof(float));
    m->n = n;
}

void fp8_reserve(struct fp8_buffers *f, int N, int widest, size_t weight_elements) {
    require_multiples("the widest layer", N, widest);
    require_multiples("the largest weight", widest, (int64_t)weight_elements / widest);
    size_t rows = (size_t)N * (size_t)widest;
    allocate(&f->x, "fp8.x", "activation", rows);
    allocate(&f->w, "fp8.w", "activation", weight_elements);
    allocate(&f->dout, "fp8.dout", "activation_grad", rows);
    f->parts = device_alloc("fp8.parts", "activation", FP8_PARTS * sizeof(float));
}

void fp8_destroy(struct fp8_buffers *f) {
    void *all[] = {f->parts, f->x.at, f->x.scale, f->w.at, f->w.scale, f->dout.at, f->dout.scale};
    for (struct plan *s = f->plans, *next; s; s = next) {
        next = s->next;
        CHECK(cublasLtMatrixLayoutDestroy(s->a));
        CHECK(cublasLtMatrixLayoutDestroy(s->b));
        CHECK(cublasLtMatrixLayoutDestroy(s->c));
        CHECK(cublasLtMatmulDescDestroy(s->product));
        free(s);
    }
    CHECK(cublasLtDestroy(f->lt));
    for (size_t i = 0; f->parts && i < sizeof all / sizeof *all; i++) device_free(all[i]);
    free(f);
}

/* ---- casts ----------------------------------------------------------------------------------------------- */

enum cast { STRAIGHT, TRANSPOSED };

/* m = x (R, C), or xᵀ (C, R), in fp8 */
static void cast(struct products *p, struct factor *m, const real *x, int R, int C, enum cast how) {
    size_t n = (size_t)R * (size_t)C;
    require_multiples("this one", R, C);
    if (n > m->n) die(EXIT_RUN_TIME, "a matrix of %zu elements in fp8 has room for %zu", n, m->n);
    LAUNCH(fp8_amax(p->fp8->parts, x, n, p->stream));
    LAUNCH(fp8_scale(m->format, m->scale, p->fp8->parts, n, p->stream));
    if (how == STRAIGHT)
        LAUNCH(fp8_cast(m->format, m->at, x, n, m->scale, p->stream));
    else
        LAUNCH(fp8_cast_transposed(m->format, m->at, x, R, C, m->scale, p->stream));
}

/* ---- products -------------------------------------------------------------------------------------------- */

static cudaDataType_t cuda_type(enum number_format format) {
    return format == FORMAT_E4M3   ? CUDA_R_8F_E4M3
           : format == FORMAT_E5M2 ? CUDA_R_8F_E5M2
           : format == FORMAT_BF16 ? CUDA_R_16BF
                                   : CUDA_R_32F;
}

#define SET(desc, attribute, value) \
    CHECK(cublasLtMatmulDescSetAttribute((desc), CUBLASLT_MATMUL_DESC_##attribute, &(value), sizeof(value)))

/* cuBLASLt is column-major: it is asked for Cᵀ = B · Aᵀ, and sees the rows of B and A, which are stored one after the
 * other, as columns. So its first matrix is B (K, N), to be transposed, and its second A (K, M): the form "TN". */
static void describe(struct plan *s) {
    const cublasOperation_t transposed = CUBLAS_OP_T;
    CHECK(cublasLtMatmulDescCreate(&s->product, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    SET(s->product, TRANSA, transposed);
    float *first_scale = s->B->scale + 1, *second_scale = s->A->scale + 1; /* the inverses */
    SET(s->product, A_SCALE_POINTER, first_scale);
    SET(s->product, B_SCALE_POINTER, second_scale);
    CHECK(cublasLtMatrixLayoutCreate(&s->b, cuda_type(s->B->format), (uint64_t)s->K, (uint64_t)s->N, s->K));
    CHECK(cublasLtMatrixLayoutCreate(&s->a, cuda_type(s->A->format), (uint64_t)s->K, (uint64_t)s->M, s->K));
    CHECK(cublasLtMatrixLayoutCreate(&s->c, cuda_type(s->c_format), (uint64_t)s->N, (uint64_t)s->M, s->N));
}

/* The best algorithm that the workspace suffices for. A gradient may lie anywhere in its class's block, at a multiple
 * of 16 elements; the factors lie at the beginning of an allocation. */
static void choose_algorithm(struct products *p, struct plan *s) {
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t best;
    uint64_t workspace = p->workspace_bytes;
    uint32_t aligned = MULTIPLE;
    int found = 0;
    CHECK(cublasLtMatmulPreferenceCreate(&preference));
    CHECK(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                               sizeof workspace));
    CHECK(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &aligned,
                                               sizeof aligned));
    CHECK(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &aligned,
                                               sizeof aligned));
    CHECK(cublasLtMatmulAlgoGetHeuristic(p->fp8->lt, s->product, s->b, s->a, s->c, s->c, preference, 1, &best, &found));
    CHECK(cublasLtMatmulPreferenceDestroy(preference));
    if (!found) die(EXIT_RUN_TIME, "cuBLASLt has no algorithm for fp8 products of %d x %d x %d", s->M, s->N, s->K);
    s->algorithm = best.algo;
}

static struct plan *plan_for(struct products *p, const struct plan *wanted) {
    for (struct plan *s = p->fp8->plans; s; s = s->next)
        if (s->A == wanted->A && s->B == wanted->B && s->M == wanted->M && s->N == wanted->N && s->K == wanted->K &&
            s->c_format == wanted->c_format)
            return s;
    struct plan *s = malloc(sizeof *s);
    if (!s) die(EXIT_RUN_TIME, "out of host memory");
    *s = *wanted;
    s->next = p->fp8->plans;
    p->fp8->plans = s;
    describe(s);
    choose_algorithm(p, s);
    return s;
}

/* C (M, N) = A (M, K) · Bᵀ + beta · C, B (N, K) */
static void multiply(struct products *p, const struct factor *A, const struct factor *B, int M, int N, int K,
                     float beta, void *C, enum number_format c_format) {
    const float one = 1;
    struct plan *s = plan_for(p, &(struct plan){.A = A, .B = B, .M = M, .N = N, .K = K, .c_format = c_format});
    CALL(cublasLtMatmul(p->fp8->lt, s->product, &one, B->at, s->b, A->at, s->a, &beta, C, s->c, C, s->c, &s->algorithm,
                        p->workspace, p->workspace_bytes, p->stream));
    truth_flops(2 * (int64_t)M * N * K);
}

void fp8_forward(struct products *p, real *out, const real *x, const real *w, int N, int OC, int IC) {
    struct fp8_buffers *f = p->fp8;
    cast(p, &f->x, x, N, IC, STRAIGHT);
    cast(p, &f->w, w, OC, IC, STRAIGHT);
    multiply(p, &f->x, &f->w, N, OC, IC, 0, out, FORMAT_BF16);
}

void fp8_input_gradient(struct products *p, real *dx, const real *dout, const real *w, int N, int OC, int IC) {
    struct fp8_buffers *f = p->fp8;
    cast(p, &f->dout, dout, N, OC, STRAIGHT);
    cast(p, &f->w, w, OC, IC, TRANSPOSED);
    multiply(p, &f->dout, &f->w, N, IC, OC, 0, dx, FORMAT_BF16);
}

void fp8_weight_gradient(struct products *p, float *dw, const real *dout, const real *x, int N, int OC, int IC) {
    struct fp8_buffers *f = p->fp8;
    cast(p, &f->dout, dout, N, OC, TRANSPOSED);
    cast(p, &f->x, x, N, IC, TRANSPOSED);
    multiply(p, &f->dout, &f->x, OC, IC, N, 1, dw, FORMAT_FP32);
}
