/* cuBLASLt's descriptors: their attributes, in tables. The sizes are those that the vendor's library answers. */
#include "vgpu/vgpu_lt.h"

#include <stdlib.h>
#include <string.h>

struct attribute {
    uint8_t number, offset, bytes;
};

#define FIELD(number, type, member) \
    { number, offsetof(struct type, member), sizeof(((struct type *)0)->member) }

#define DESC(name, member) FIELD(CUBLASLT_MATMUL_DESC_##name, vgpu_lt_desc, member)
static const struct attribute desc_attributes[] = {
    DESC(COMPUTE_TYPE, compute),
    DESC(SCALE_TYPE, scale),
    DESC(POINTER_MODE, pointer_mode),
    DESC(TRANSA, trans_a),
    DESC(TRANSB, trans_b),
    DESC(TRANSC, trans_c),
    DESC(FILL_MODE, fill),
    DESC(EPILOGUE, epilogue),
    DESC(BIAS_POINTER, bias),
    DESC(BIAS_BATCH_STRIDE, bias_stride),
    DESC(EPILOGUE_AUX_POINTER, aux),
    DESC(EPILOGUE_AUX_LD, aux_ld),
    DESC(EPILOGUE_AUX_BATCH_STRIDE, aux_stride),
    DESC(ALPHA_VECTOR_BATCH_STRIDE, alpha_stride),
    DESC(SM_COUNT_TARGET, sm_target),
    FIELD(16, vgpu_lt_desc, reserved),
    DESC(A_SCALE_POINTER, a_scale),
    DESC(B_SCALE_POINTER, b_scale),
    DESC(C_SCALE_POINTER, c_scale),
    DESC(D_SCALE_POINTER, d_scale),
    DESC(AMAX_D_POINTER, amax),
    DESC(EPILOGUE_AUX_DATA_TYPE, aux_type),
    DESC(EPILOGUE_AUX_SCALE_POINTER, aux_scale),
    DESC(EPILOGUE_AUX_AMAX_POINTER, aux_amax),
    DESC(FAST_ACCUM, fast),
    DESC(BIAS_DATA_TYPE, bias_type),
    DESC(A_SCALE_MODE, a_mode),
    DESC(B_SCALE_MODE, b_mode),
    DESC(C_SCALE_MODE, c_mode),
    DESC(D_SCALE_MODE, d_mode),
    DESC(EPILOGUE_AUX_SCALE_MODE, aux_mode),
    DESC(D_OUT_SCALE_POINTER, d_out_scale),
    DESC(D_OUT_SCALE_MODE, d_out_mode),
    DESC(EMULATION_DESCRIPTOR, emulation),
};

#define LAYOUT(name, member) FIELD(CUBLASLT_MATRIX_LAYOUT_##name, vgpu_lt_layout, member)
static const struct attribute layout_attributes[] = {
    LAYOUT(TYPE, type),
    LAYOUT(ORDER, order),
    LAYOUT(ROWS, rows),
    LAYOUT(COLS, columns),
    LAYOUT(LD, ld),
    LAYOUT(BATCH_COUNT, batch),
    LAYOUT(STRIDED_BATCH_OFFSET, stride),
    LAYOUT(PLANE_OFFSET, plane),
    LAYOUT(BATCH_MODE, batch_mode),
};

#define PREFERENCE(name, member) FIELD(CUBLASLT_MATMUL_PREF_##name, vgpu_lt_preference, member)
static const struct attribute preference_attributes[] = {
    PREFERENCE(SEARCH_MODE, search),
    PREFERENCE(MAX_WORKSPACE_BYTES, workspace),
    PREFERENCE(REDUCTION_SCHEME_MASK, reductions),
    PREFERENCE(MIN_ALIGNMENT_A_BYTES, align_a),
    PREFERENCE(MIN_ALIGNMENT_B_BYTES, align_b),
    PREFERENCE(MIN_ALIGNMENT_C_BYTES, align_c),
    PREFERENCE(MIN_ALIGNMENT_D_BYTES, align_d),
    PREFERENCE(MAX_WAVES_COUNT, waves),
    PREFERENCE(IMPL_MASK, numerics),
};

#define ALGO(name, member) FIELD(CUBLASLT_ALGO_CONFIG_##name, vgpu_lt_algo, member)
static const struct attribute algo_attributes[] = {
    ALGO(ID, id),
    ALGO(TILE_ID, tile),
    ALGO(SPLITK_NUM, splits),
    ALGO(REDUCTION_SCHEME, reduction),
    ALGO(CTA_SWIZZLING, swizzle),
    ALGO(CUSTOM_OPTION, custom),
    ALGO(STAGES_ID, stages),
    ALGO(INNER_SHAPE_ID, inner),
    ALGO(CLUSTER_SHAPE_ID, cluster),
    FIELD(10, vgpu_lt_algo, reserved),
};

#define TRANSFORM(name, member) FIELD(CUBLASLT_MATRIX_TRANSFORM_DESC_##name, vgpu_lt_transform, member)
static const struct attribute transform_attributes[] = {
    TRANSFORM(SCALE_TYPE, scale),
    TRANSFORM(POINTER_MODE, pointer_mode),
    TRANSFORM(TRANSA, trans_a),
    TRANSFORM(TRANSB, trans_b),
};

#define EMULATION(name, member) FIELD(CUBLASLT_EMULATION_DESC_##name, vgpu_lt_emulation, member)
static const struct attribute emulation_attributes[] = {
    EMULATION(STRATEGY, strategy),
    EMULATION(SPECIAL_VALUES_SUPPORT, special_values),
    EMULATION(FIXEDPOINT_MANTISSA_CONTROL, control),
    EMULATION(FIXEDPOINT_MAX_MANTISSA_BIT_COUNT, most_bits),
    EMULATION(FIXEDPOINT_MANTISSA_BIT_OFFSET, bit_offset),
    EMULATION(FIXEDPOINT_MANTISSA_BIT_COUNT_POINTER, bit_count),
};

_Static_assert(sizeof(struct vgpu_lt_desc) <= sizeof(cublasLtMatmulDescOpaque_t), "fits");
_Static_assert(sizeof(struct vgpu_lt_layout) <= sizeof(cublasLtMatrixLayoutOpaque_t), "fits");
_Static_assert(sizeof(struct vgpu_lt_preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t), "fits");
_Static_assert(sizeof(struct vgpu_lt_algo) == sizeof(cublasLtMatmulAlgo_t), "is");
_Static_assert(sizeof(struct vgpu_lt_transform) <= sizeof(cublasLtMatrixTransformDescOpaque_t), "fits");
_Static_assert(sizeof(struct vgpu_lt_emulation) <= sizeof(cublasLtEmulationDescOpaque_t), "fits");
_Static_assert(sizeof(struct vgpu_lt_desc) <= UINT8_MAX, "offsets fit");

#define COUNT(table) (sizeof table / sizeof *table)

static const struct attribute *find(const struct attribute *table, size_t count, int number) {
    for (size_t i = 0; i < count; i++)
        if (table[i].number == number) return &table[i];
    return NULL;
}

static cublasStatus_t set(const struct attribute *table, size_t count, void *descriptor, int number, const void *value,
                          size_t bytes) {
    const struct attribute *a = find(table, count, number);
    if (!a || !descriptor || !value || bytes != a->bytes) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy((char *)descriptor + a->offset, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

/* bytes 0: only *written is wanted, the attribute's size. */
static cublasStatus_t get(const struct attribute *table, size_t count, const void *descriptor, int number, void *value,
                          size_t bytes, size_t *written) {
    const struct attribute *a = find(table, count, number);
    if (!a || !descriptor || (bytes ? !value || bytes != a->bytes : !written)) return CUBLAS_STATUS_INVALID_VALUE;
    if (bytes) memcpy(value, (const char *)descriptor + a->offset, bytes);
    if (written) *written = a->bytes;
    return CUBLAS_STATUS_SUCCESS;
}

/* A descriptor in memory of `bytes` bytes of the caller's. */
static cublasStatus_t fill(void *descriptor, size_t bytes, size_t opaque, const void *from, size_t length) {
    if (!descriptor) return CUBLAS_STATUS_INVALID_VALUE;
    if (bytes < opaque) return CUBLAS_STATUS_ALLOC_FAILED;
    memset(descriptor, 0, opaque);
    memcpy(descriptor, from, length);
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- the product ---- */

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t desc, size_t bytes, cublasComputeType_t compute,
                                               cudaDataType_t scale) {
    struct vgpu_lt_desc d = {.compute = (int32_t)compute,
                             .scale = (int32_t)scale,
                             .fill = CUBLAS_FILL_MODE_FULL,
                             .epilogue = CUBLASLT_EPILOGUE_DEFAULT,
                             .aux_type = -1,
                             .bias_type = -1};
    return fill(desc, bytes, sizeof *desc, &d, sizeof d);
}

#define CREATE(out, ...)                                \
    do {                                                \
        if (!(out)) return CUBLAS_STATUS_INVALID_VALUE; \
        *(out) = malloc(sizeof **(out));                \
        if (!*(out)) return CUBLAS_STATUS_ALLOC_FAILED; \
        return __VA_ARGS__;                             \
    } while (0)

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute, cudaDataType_t scale) {
    CREATE(out, cublasLtMatmulDescInit_internal(*out, sizeof **out, compute, scale));
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
    free(desc);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t number,
                                              const void *value, size_t bytes) {
    return set(desc_attributes, COUNT(desc_attributes), desc, (int)number, value, bytes);
}

cublasStatus_t cublasLtMatmulDescGetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t number,
                                              void *value, size_t bytes, size_t *written) {
    return get(desc_attributes, COUNT(desc_attributes), desc, (int)number, value, bytes, written);
}

/* ---- a matrix ---- */

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout, size_t bytes, cudaDataType type,
                                                 uint64_t rows, uint64_t columns, int64_t ld) {
    struct vgpu_lt_layout l = {.type = (uint32_t)type, .rows = rows, .columns = columns, .ld = ld, .batch = 1};
    return fill(layout, bytes, sizeof *layout, &l, sizeof l);
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t ld) {
    CREATE(out, cublasLtMatrixLayoutInit_internal(*out, sizeof **out, type, rows, columns, ld));
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
    free(layout);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t number,
                                                const void *value, size_t bytes) {
    return set(layout_attributes, COUNT(layout_attributes), layout, (int)number, value, bytes);
}

cublasStatus_t cublasLtMatrixLayoutGetAttribute(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t number,
                                                void *value, size_t bytes, size_t *written) {
    return get(layout_attributes, COUNT(layout_attributes), layout, (int)number, value, bytes, written);
}

/* ---- what is wanted of an algorithm ---- */

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t preference, size_t bytes) {
    struct vgpu_lt_preference p = {.reductions = CUBLASLT_REDUCTION_SCHEME_MASK,
                                   .numerics = UINT64_MAX,
                                   .align_a = 256,
                                   .align_b = 256,
                                   .align_c = 256,
                                   .align_d = 256};
    return fill(preference, bytes, sizeof *preference, &p, sizeof p);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out) {
    CREATE(out, cublasLtMatmulPreferenceInit_internal(*out, sizeof **out));
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
    free(preference);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t number, const void *value,
                                                    size_t bytes) {
    return set(preference_attributes, COUNT(preference_attributes), preference, (int)number, value, bytes);
}

cublasStatus_t cublasLtMatmulPreferenceGetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t number, void *value,
                                                    size_t bytes, size_t *written) {
    return get(preference_attributes, COUNT(preference_attributes), preference, (int)number, value, bytes, written);
}

/* ---- an algorithm ---- */

cublasStatus_t cublasLtMatmulAlgoConfigSetAttribute(cublasLtMatmulAlgo_t *algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t number, const void *value,
                                                    size_t bytes) {
    if (number == CUBLASLT_ALGO_CONFIG_ID) return CUBLAS_STATUS_INVALID_VALUE; /* cublasLtMatmulAlgoInit sets it */
    return set(algo_attributes, COUNT(algo_attributes), algo, (int)number, value, bytes);
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t number, void *value,
                                                    size_t bytes, size_t *written) {
    return get(algo_attributes, COUNT(algo_attributes), algo, (int)number, value, bytes, written);
}

/* ---- a change of layout ---- */

cublasStatus_t cublasLtMatrixTransformDescInit_internal(cublasLtMatrixTransformDesc_t desc, size_t bytes,
                                                        cudaDataType scale) {
    struct vgpu_lt_transform t = {.scale = (int32_t)scale};
    return fill(desc, bytes, sizeof *desc, &t, sizeof t);
}

cublasStatus_t cublasLtMatrixTransformDescCreate(cublasLtMatrixTransformDesc_t *out, cudaDataType scale) {
    CREATE(out, cublasLtMatrixTransformDescInit_internal(*out, sizeof **out, scale));
}

cublasStatus_t cublasLtMatrixTransformDescDestroy(cublasLtMatrixTransformDesc_t desc) {
    free(desc);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixTransformDescSetAttribute(cublasLtMatrixTransformDesc_t desc,
                                                       cublasLtMatrixTransformDescAttributes_t number,
                                                       const void *value, size_t bytes) {
    return set(transform_attributes, COUNT(transform_attributes), desc, (int)number, value, bytes);
}

cublasStatus_t cublasLtMatrixTransformDescGetAttribute(cublasLtMatrixTransformDesc_t desc,
                                                       cublasLtMatrixTransformDescAttributes_t number, void *value,
                                                       size_t bytes, size_t *written) {
    return get(transform_attributes, COUNT(transform_attributes), desc, (int)number, value, bytes, written);
}

/* ---- emulation of fp32 and fp64 by smaller formats ---- */

cublasStatus_t cublasLtEmulationDescInit_internal(cublasLtEmulationDesc_t desc, size_t bytes) {
    struct vgpu_lt_emulation e = {.special_values = 0xffff};
    return fill(desc, bytes, sizeof *desc, &e, sizeof e);
}

cublasStatus_t cublasLtEmulationDescCreate(cublasLtEmulationDesc_t *out) {
    CREATE(out, cublasLtEmulationDescInit_internal(*out, sizeof **out));
}

cublasStatus_t cublasLtEmulationDescDestroy(cublasLtEmulationDesc_t desc) {
    free(desc);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtEmulationDescSetAttribute(cublasLtEmulationDesc_t desc, cublasLtEmulationDescAttributes_t number,
                                                 const void *value, size_t bytes) {
    return set(emulation_attributes, COUNT(emulation_attributes), desc, (int)number, value, bytes);
}

cublasStatus_t cublasLtEmulationDescGetAttribute(cublasLtEmulationDesc_t desc, cublasLtEmulationDescAttributes_t number,
                                                 void *value, size_t bytes, size_t *written) {
    return get(emulation_attributes, COUNT(emulation_attributes), desc, (int)number, value, bytes, written);
}
