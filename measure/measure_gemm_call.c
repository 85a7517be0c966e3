/* The calls of one matrix product. */
#include "measure/measure_gemm.h"

enum { WORKSPACE_BYTES = 32 << 20 };

static int status_failed(const struct bench *b, cublasStatus_t rc, const char *call, char *why, size_t room) {
    if (!rc) return 0;
    snprintf(why, room, "%s: %s", call, b->cuda.cublasGetStatusString(rc));
    b->cuda.cudaGetLastError();
    return -1;
}

/* ---- cublasGemmEx ---- */

/* alpha = 1, beta = 0, in the type that the compute type asks for. */
static void scalars(cublasComputeType_t compute, const void **one, const void **zero) {
    static const double one64 = 1, zero64 = 0;
    static const float one32 = 1, zero32 = 0;
    static const int one_int = 1, zero_int = 0;
    static const uint16_t one16 = 0x3c00, zero16 = 0;
    *one = compute == CUBLAS_COMPUTE_64F   ? (const void *)&one64
           : compute == CUBLAS_COMPUTE_32I ? (const void *)&one_int
           : compute == CUBLAS_COMPUTE_16F ? (const void *)&one16
                                           : (const void *)&one32;
    *zero = compute == CUBLAS_COMPUTE_64F   ? (const void *)&zero64
            : compute == CUBLAS_COMPUTE_32I ? (const void *)&zero_int
            : compute == CUBLAS_COMPUTE_16F ? (const void *)&zero16
                                            : (const void *)&zero32;
}

static int run_ex(struct bench *b, struct gemm *g, const struct gemm_shape *s, char *why, size_t room) {
    const struct gemm_format *f = g->format;
    const void *one, *zero;
    scalars(f->compute, &one, &zero);
    cublasStatus_t rc = b->cuda.cublasGemmEx(
        b->blas, s->ta ? CUBLAS_OP_T : CUBLAS_OP_N, s->tb ? CUBLAS_OP_T : CUBLAS_OP_N, (int)s->m, (int)s->n, (int)s->k,
        one, g->a, f->operand, (int)(s->ta ? s->k : s->m), g->b, f->operand, (int)(s->tb ? s->n : s->k), zero, g->c,
        f->result, (int)s->m, f->compute, CUBLAS_GEMM_DEFAULT);
    return status_failed(b, rc, "cublasGemmEx", why, room);
}

/* ---- cublasLtMatmul ---- */

static cublasStatus_t describe(struct bench *b, struct gemm *g, const struct gemm_shape *s) {
    const struct cuda *c = &b->cuda;
    const struct gemm_format *f = g->format;
    const cublasOperation_t transposed = CUBLAS_OP_T;
    const float *scale = g->scale;
    const int8_t fast = 1; /* sums as the data sheet's figure has them */
    cublasStatus_t rc = c->cublasLtMatmulDescCreate(&g->desc, f->compute, CUDA_R_32F);
    if (!rc)
        rc = c->cublasLtMatmulDescSetAttribute(g->desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed);
    if (!rc) rc = c->cublasLtMatmulDescSetAttribute(g->desc, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast, sizeof fast);
    if (!rc)
        rc = c->cublasLtMatmulDescSetAttribute(g->desc, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &scale, sizeof scale);
    if (!rc)
        rc = c->cublasLtMatmulDescSetAttribute(g->desc, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &scale, sizeof scale);
    if (!rc) rc = c->cublasLtMatrixLayoutCreate(&g->la, f->operand, (uint64_t)s->k, (uint64_t)s->m, s->k);
    if (!rc) rc = c->cublasLtMatrixLayoutCreate(&g->lb, f->operand, (uint64_t)s->k, (uint64_t)s->n, s->k);
    if (!rc) rc = c->cublasLtMatrixLayoutCreate(&g->lc, f->result, (uint64_t)s->m, (uint64_t)s->n, s->m);
    return rc;
}

static cublasStatus_t choose(struct bench *b, struct gemm *g) {
    const struct cuda *c = &b->cuda;
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t best;
    uint64_t workspace = WORKSPACE_BYTES;
    int found = 0;
    cublasStatus_t rc = c->cublasLtMatmulPreferenceCreate(&preference);
    if (rc) return rc;
    rc = c->cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                                 sizeof workspace);
    if (!rc)
        rc =
            c->cublasLtMatmulAlgoGetHeuristic(b->lt, g->desc, g->la, g->lb, g->lc, g->lc, preference, 1, &best, &found);
    c->cublasLtMatmulPreferenceDestroy(preference);
    if (!rc && !found) rc = CUBLAS_STATUS_NOT_SUPPORTED;
    if (!rc) g->algorithm = best.algo;
    return rc;
}

static int prepare_lt(struct bench *b, struct gemm *g, const struct gemm_shape *s, char *why, size_t room) {
    const float one = 1;
    cudaError_t rc = cudaSuccess;
    if (!b->lt) {
        snprintf(why, room, "there is no usable libcublasLt");
        return -1;
    }
    if (!g->workspace) rc = b->cuda.cudaMalloc(&g->workspace, WORKSPACE_BYTES);
    if (!rc && !g->scale) rc = b->cuda.cudaMalloc((void **)&g->scale, sizeof one);
    if (!rc) rc = b->cuda.cudaMemcpy(g->scale, &one, sizeof one, cudaMemcpyHostToDevice);
    if (rc) {
        snprintf(why, room, "workspace: %s", bench_error(b, rc));
        return -1;
    }
    if (status_failed(b, describe(b, g, s), "cuBLASLt's descriptors", why, room)) return -1;
    return status_failed(b, choose(b, g), "cublasLtMatmulAlgoGetHeuristic", why, room);
}

static int run_lt(struct bench *b, struct gemm *g, char *why, size_t room) {
    const float one = 1, zero = 0;
    cublasStatus_t rc = b->cuda.cublasLtMatmul(b->lt, g->desc, &one, g->a, g->la, g->b, g->lb, &zero, g->c, g->lc, g->c,
                                               g->lc, &g->algorithm, g->workspace, WORKSPACE_BYTES, b->stream);
    return status_failed(b, rc, "cublasLtMatmul", why, room);
}

/* ---- both ---- */

static int by_lt(const struct gemm *g) {
    return g->format->operand == CUDA_R_8F_E4M3;
}

int gemm_prepare(struct bench *b, struct gemm *g, const struct gemm_shape *s, char *why, size_t room) {
    gemm_forget(b, g);
    return by_lt(g) ? prepare_lt(b, g, s, why, room) : 0;
}

int gemm_run(struct bench *b, struct gemm *g, const struct gemm_shape *s, char *why, size_t room) {
    return by_lt(g) ? run_lt(b, g, why, room) : run_ex(b, g, s, why, room);
}

void gemm_forget(struct bench *b, struct gemm *g) {
    if (g->la) b->cuda.cublasLtMatrixLayoutDestroy(g->la);
    if (g->lb) b->cuda.cublasLtMatrixLayoutDestroy(g->lb);
    if (g->lc) b->cuda.cublasLtMatrixLayoutDestroy(g->lc);
    if (g->desc) b->cuda.cublasLtMatmulDescDestroy(g->desc);
    g->la = g->lb = g->lc = NULL;
    g->desc = NULL;
}
