/* Algorithms of cuBLASLt: one that needs no memory, and three that would split the sum over k and keep the parts in a
 * workspace. On the virtual device all of them compute alike and touch no workspace; what they ask for is what a device
 * would need, so that a program's own bookkeeping is put to the test. */
#include "vgpu/vgpu_lt.h"

#include <string.h>

enum { ALGOS = 4, TILE = 128 };

static const int32_t splits_of[ALGOS] = {1, 2, 4, 8};

static uint64_t numerics(const struct vgpu_lt_product *p) {
    switch ((int)p->a.type) {
    case CUDA_R_64F:
        return CUBLASLT_NUMERICAL_IMPL_FLAGS_DMMA | CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_64F |
               CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_64F;
    case CUDA_R_8I:
        return CUBLASLT_NUMERICAL_IMPL_FLAGS_IMMA | CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_32I |
               CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_8I;
    case CUDA_R_32F:
        break;
    case CUDA_R_16F:
        return CUBLASLT_NUMERICAL_IMPL_FLAGS_HMMA | CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_32F |
               CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_16F;
    case CUDA_R_16BF:
        return CUBLASLT_NUMERICAL_IMPL_FLAGS_HMMA | CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_32F |
               CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_16BF;
    default:
        return CUBLASLT_NUMERICAL_IMPL_FLAGS_HMMA | CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_32F |
               (p->a.type == CUDA_R_8F_E5M2 ? CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_8F_E5M2
                                            : CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_8F_E4M3);
    }
    static const uint64_t inputs[] = {
        [VGPU_ROUND_NONE] = CUBLASLT_NUMERICAL_IMPL_FLAGS_FMA | CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_32F,
        [VGPU_ROUND_TF32] = CUBLASLT_NUMERICAL_IMPL_FLAGS_HMMA | CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_TF32,
        [VGPU_ROUND_FP16] = CUBLASLT_NUMERICAL_IMPL_FLAGS_HMMA | CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_16F,
        [VGPU_ROUND_BF16] = CUBLASLT_NUMERICAL_IMPL_FLAGS_HMMA | CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_16BF,
    };
    return inputs[p->rounding] | CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_32F;
}

/* ---- making one ---- */

static const cudaDataType_t *types_of(const struct vgpu_lt_product *p, cudaDataType_t out[6]) {
    out[0] = (cudaDataType_t)p->desc.compute;
    out[1] = (cudaDataType_t)p->desc.scale;
    out[2] = p->a.type;
    out[3] = p->b.type;
    out[4] = p->c.type;
    out[5] = p->d.type;
    return out;
}

static void make(int id, const cudaDataType_t types[6], struct vgpu_lt_algo *a) {
    *a = (struct vgpu_lt_algo){
        .id = id,
        .tile = CUBLASLT_MATMUL_TILE_128x128,
        .splits = splits_of[id],
        .reduction = splits_of[id] > 1 ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE : CUBLASLT_REDUCTION_SCHEME_NONE,
        .made = VGPU_LT_MADE,
    };
    for (int i = 0; i < 6; i++) a->types[i] = (uint8_t)types[i];
}

int64_t vgpu_lt_workspace(const struct vgpu_lt_algo *a, const struct vgpu_lt_product *p) {
    cudaDataType_t types[6];
    if (a->made != VGPU_LT_MADE || a->id < 0 || a->id >= ALGOS || a->splits < 1) return -1;
    types_of(p, types);
    for (int i = 0; i < 6; i++)
        if (a->types[i] != (uint8_t)types[i]) return -1;
    if (a->splits == 1) return 0;
    return (int64_t)a->splits * p->m * p->n * p->batch * (p->wide ? 8 : 4);
}

static float waves(const struct vgpu_lt_product *p, int splits) {
    int device = 0, processors = 1;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    int64_t tiles = ((p->m + TILE - 1) / TILE) * ((p->n + TILE - 1) / TILE) * p->batch * splits;
    return (float)tiles / (float)processors;
}

/* Is `a` what is asked for? Fills the rest of the result. */
static bool suits(const struct vgpu_lt_algo *a, const struct vgpu_lt_product *p, const struct vgpu_lt_preference *want,
                  cublasLtMatmulHeuristicResult_t *r) {
    int64_t workspace = vgpu_lt_workspace(a, p);
    uint64_t flags = numerics(p);
    *r = (cublasLtMatmulHeuristicResult_t){
        .state = CUBLAS_STATUS_SUCCESS, .workspaceSize = (size_t)workspace, .wavesCount = waves(p, a->splits)};
    memcpy(&r->algo, a, sizeof *a);
    if (workspace < 0) return false;
    if (!want) return true;
    return (uint64_t)workspace <= want->workspace && (a->splits == 1 || a->reduction & want->reductions) &&
           (flags & want->numerics) == flags && (want->waves <= 0 || r->wavesCount <= want->waves);
}

/* The alignment that the program promises must be what the product needs. */
static bool aligned(const struct vgpu_lt_product *p, const struct vgpu_lt_preference *want) {
    uint32_t need = p->fp8 ? 16 : p->a.type == CUDA_R_8I ? 4 : 1;
    return want->align_a >= need && want->align_b >= need && want->align_c >= need && want->align_d >= need;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[], int *found) {
    const struct vgpu_lt_preference *want = (const void *)preference;
    struct vgpu_lt_product p;
    struct vgpu_lt_algo algo;
    struct vgpu_blas h;
    cudaDataType_t types[6];
    cublasStatus_t e = vgpu_lt_open(handle, &h);
    if (found) *found = 0;
    if (e) return e;
    if (wanted <= 0 || !results || !found || !want) return CUBLAS_STATUS_INVALID_VALUE;
    e = vgpu_lt_check((const void *)desc, (const void *)a, (const void *)b, (const void *)c, (const void *)d, &p);
    if (e) return e;
    if (!aligned(&p, want)) return CUBLAS_STATUS_NOT_SUPPORTED;
    types_of(&p, types);
    int only = -1;
    if (want->search == CUBLASLT_SEARCH_LIMITED_BY_ALGO_ID) {
        memcpy(&algo, &results[0].algo, sizeof algo);
        only = algo.id;
    }
    for (int id = 0; id < ALGOS && *found < wanted; id++) {
        make(id, types, &algo);
        if ((only < 0 || only == id) && p.k >= algo.splits && suits(&algo, &p, want, &results[*found])) ++*found;
    }
    return *found ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

/* ---- without heuristics ---- */

static bool open_types(cublasLtHandle_t handle, cublasComputeType_t compute, cudaDataType_t scale, cudaDataType_t a,
                       cudaDataType_t b, cudaDataType_t c, cudaDataType_t d, cublasStatus_t *e) {
    struct vgpu_blas h;
    *e = vgpu_lt_open(handle, &h);
    if (!*e && !vgpu_lt_types(compute, scale, a, b, c, d, NULL)) *e = CUBLAS_STATUS_NOT_SUPPORTED;
    return !*e;
}

cublasStatus_t cublasLtMatmulAlgoGetIds(cublasLtHandle_t handle, cublasComputeType_t compute, cudaDataType_t scale,
                                        cudaDataType_t a, cudaDataType_t b, cudaDataType_t c, cudaDataType_t d,
                                        int wanted, int ids[], int *found) {
    cublasStatus_t e;
    if (!open_types(handle, compute, scale, a, b, c, d, &e)) return e;
    if (wanted <= 0 || !ids || !found) return CUBLAS_STATUS_INVALID_VALUE;
    *found = wanted < ALGOS ? wanted : ALGOS;
    for (int i = 0; i < *found; i++) ids[i] = i;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoInit(cublasLtHandle_t handle, cublasComputeType_t compute, cudaDataType_t scale,
                                      cudaDataType_t a, cudaDataType_t b, cudaDataType_t c, cudaDataType_t d, int id,
                                      cublasLtMatmulAlgo_t *algo) {
    const cudaDataType_t types[6] = {(cudaDataType_t)compute, scale, a, b, c, d};
    cublasStatus_t e;
    if (!open_types(handle, compute, scale, a, b, c, d, &e)) return e;
    if (!algo || id < 0 || id >= ALGOS) return CUBLAS_STATUS_INVALID_VALUE;
    make(id, types, (void *)algo);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                       cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t *algo, cublasLtMatmulHeuristicResult_t *result) {
    struct vgpu_lt_product p;
    struct vgpu_blas h;
    cublasLtMatmulHeuristicResult_t r;
    cublasStatus_t e = vgpu_lt_open(handle, &h);
    if (e) return e;
    if (!algo || !result) return CUBLAS_STATUS_INVALID_VALUE;
    e = vgpu_lt_check((const void *)desc, (const void *)a, (const void *)b, (const void *)c, (const void *)d, &p);
    if (e) return e;
    if (!suits((const void *)algo, &p, NULL, &r)) return CUBLAS_STATUS_INVALID_VALUE;
    r.algo = result->algo;
    *result = r;
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- what one can do ---- */

static cublasStatus_t answer(const void *value, size_t length, void *out, size_t bytes, size_t *written) {
    if (bytes ? !out || bytes < length : !written) return CUBLAS_STATUS_INVALID_VALUE;
    if (bytes) memcpy(out, value, length);
    if (written) *written = length;
    return CUBLAS_STATUS_SUCCESS;
}

static uint32_t alignment(const struct vgpu_lt_algo *a) {
    return vgpu_lt_is_fp8((cudaDataType_t)a->types[2]) ? 16 : a->types[2] == CUDA_R_8I ? 4 : 1;
}

/* Of 4 bytes all but one; false: there is no such capability. */
static bool capability(const struct vgpu_lt_algo *a, cublasLtMatmulAlgoCapAttributes_t number, uint32_t *v) {
    switch ((int)number) {
    case CUBLASLT_ALGO_CAP_SPLITK_SUPPORT:
        *v = a->id > 0;
        return true;
    case CUBLASLT_ALGO_CAP_REDUCTION_SCHEME_MASK:
        *v = a->id > 0 ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE : CUBLASLT_REDUCTION_SCHEME_NONE;
        return true;
    case CUBLASLT_ALGO_CAP_STRIDED_BATCH_SUPPORT:
    case CUBLASLT_ALGO_CAP_OUT_OF_PLACE_RESULT_SUPPORT:
    case CUBLASLT_ALGO_CAP_POINTER_ARRAY_BATCH_SUPPORT:
        *v = 1;
        return true;
    case CUBLASLT_ALGO_CAP_CTA_SWIZZLING_SUPPORT:
    case CUBLASLT_ALGO_CAP_UPLO_SUPPORT:
    case CUBLASLT_ALGO_CAP_CUSTOM_OPTION_MAX:
    case CUBLASLT_ALGO_CAP_CUSTOM_MEMORY_ORDER:
    case CUBLASLT_ALGO_CAP_LD_NEGATIVE:
    case CUBLASLT_ALGO_CAP_FLOATING_POINT_EMULATION_SUPPORT:
        *v = 0;
        return true;
    case CUBLASLT_ALGO_CAP_TILE_IDS:
        *v = CUBLASLT_MATMUL_TILE_128x128;
        return true;
    case CUBLASLT_ALGO_CAP_STAGES_IDS:
        *v = CUBLASLT_MATMUL_STAGES_UNDEFINED;
        return true;
    case CUBLASLT_ALGO_CAP_POINTER_MODE_MASK:
        *v = CUBLASLT_POINTER_MODE_MASK_HOST | CUBLASLT_POINTER_MODE_MASK_DEVICE |
             CUBLASLT_POINTER_MODE_MASK_ALPHA_DEVICE_VECTOR_BETA_ZERO |
             CUBLASLT_POINTER_MODE_MASK_ALPHA_DEVICE_VECTOR_BETA_HOST;
        return true;
    case CUBLASLT_ALGO_CAP_EPILOGUE_MASK: /* the bits of all the epilogues */
        *v = 0x3ff;
        return true;
    case CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_D_BYTES:
        *v = alignment(a);
        return true;
    default:
        return false;
    }
}

cublasStatus_t cublasLtMatmulAlgoCapGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                                 cublasLtMatmulAlgoCapAttributes_t number, void *out, size_t bytes,
                                                 size_t *written) {
    const struct vgpu_lt_algo *a = (const void *)algo;
    uint32_t v;
    if (!a || a->made != VGPU_LT_MADE) return CUBLAS_STATUS_INVALID_VALUE;
    if (number == CUBLASLT_ALGO_CAP_NUMERICAL_IMPL_FLAGS) {
        struct vgpu_lt_product p = {.a.type = (cudaDataType_t)a->types[2]};
        if (p.a.type == CUDA_R_32F)
            p.rounding = vgpu_rounding_of((cublasComputeType_t)a->types[0], CUBLAS_PEDANTIC_MATH);
        uint64_t flags = numerics(&p);
        return answer(&flags, sizeof flags, out, bytes, written);
    }
    return capability(a, number, &v) ? answer(&v, sizeof v, out, bytes, written) : CUBLAS_STATUS_INVALID_VALUE;
}
