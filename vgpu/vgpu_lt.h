/* cuBLASLt on OpenBLAS: what its files share. A descriptor of the vendor's is the caller's memory of a fixed size
 * (cublasLt.h: …Opaque_t), in which the attributes lie as the structs below say; all 0 is no descriptor. */
#ifndef VGPU_LT_H
#define VGPU_LT_H

#include "vgpu/vgpu_blas.h"

#include <cublasLt.h>

struct vgpu_lt_desc { /* cublasLtMatmulDescOpaque_t */
    int32_t compute, scale, pointer_mode, trans_a, trans_b, trans_c, fill;
    uint32_t epilogue;
    void *bias;
    int64_t bias_stride;
    void *aux;
    int64_t aux_ld, aux_stride, alpha_stride;
    int32_t sm_target, reserved; /* reserved: attribute 16, which the vendor keeps without naming it */
    const float *a_scale, *b_scale, *c_scale, *d_scale;
    float *amax;
    const float *aux_scale;
    float *aux_amax;
    void *d_out_scale;
    void *emulation;
    int32_t aux_type, bias_type; /* -1: by the rules of the operands' types */
    int32_t a_mode, b_mode, c_mode, d_mode, aux_mode, d_out_mode;
    int8_t fast;
};

struct vgpu_lt_layout { /* cublasLtMatrixLayoutOpaque_t */
    uint32_t type;
    int32_t order;
    uint64_t rows, columns;
    int64_t ld;
    int32_t batch;
    uint32_t batch_mode;
    int64_t stride, plane;
};

struct vgpu_lt_preference { /* cublasLtMatmulPreferenceOpaque_t */
    uint32_t search, reductions;
    uint64_t workspace, numerics;
    uint32_t align_a, align_b, align_c, align_d;
    float waves;
};

struct vgpu_lt_algo { /* cublasLtMatmulAlgo_t */
    int32_t id;
    uint32_t tile;
    int32_t splits;
    uint32_t reduction, swizzle, custom, stages;
    uint16_t inner, cluster, reserved;
    uint8_t made;        /* MADE: by this library */
    uint8_t types[6];    /* what it was made for: compute, scale, A, B, C, D */
    uint8_t padding[23]; /* the vendor's struct ends with it */
};
enum { VGPU_LT_MADE = 0xac };

struct vgpu_lt_transform { /* cublasLtMatrixTransformDescOpaque_t */
    int32_t scale, pointer_mode, trans_a, trans_b;
};

struct vgpu_lt_emulation { /* cublasLtEmulationDescOpaque_t: kept, and without effect: nothing is emulated here */
    int32_t strategy, special_values, control, most_bits, bit_offset;
    int32_t *bit_count;
};

/* One matrix of a product: `outer` lines of `inner` elements, `ld` apart; column-major unless `row`. */
struct vgpu_lt_matrix {
    cudaDataType_t type;
    bool row, array; /* array: the pointer is to pointers in device memory, one for each of the batch */
    int64_t rows, columns, ld, stride;
};

/* A product as it will be computed: checked, and independent of the descriptors. */
struct vgpu_lt_product {
    struct vgpu_lt_desc desc;
    int64_t m, n, k, batch;
    bool ta, tb;
    struct vgpu_lt_matrix a, b, c, d;
    bool wide; /* sums in fp64 (fp64, and exactly for int8), else in fp32 */
    bool fp8;  /* A and B are */
    cudaDataType_t bias_type, aux_type;
    enum vgpu_rounding rounding;
};

static inline bool vgpu_lt_is_fp8(cudaDataType_t type) {
    return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2;
}

static inline int64_t vgpu_lt_inner(const struct vgpu_lt_matrix *m) {
    return m->row ? m->columns : m->rows;
}

static inline int64_t vgpu_lt_outer(const struct vgpu_lt_matrix *m) {
    return m->row ? m->rows : m->columns;
}

/* *out: a matrix as its layout describes it. */
cublasStatus_t vgpu_lt_matrix(const struct vgpu_lt_layout *layout, struct vgpu_lt_matrix *out);
/* Are such a product's types, shapes and epilogue possible at all, and on this device? Pointers are not looked at. */
cublasStatus_t vgpu_lt_check(const struct vgpu_lt_desc *desc, const struct vgpu_lt_layout *a,
                             const struct vgpu_lt_layout *b, const struct vgpu_lt_layout *c,
                             const struct vgpu_lt_layout *d, struct vgpu_lt_product *out);
/* Types alone: is there such a product? bias may be NULL. */
bool vgpu_lt_types(cublasComputeType_t compute, cudaDataType_t scale, cudaDataType_t a, cudaDataType_t b,
                   cudaDataType_t c, cudaDataType_t d, cudaDataType_t *bias);

/* What its epilogue has beside the matrices. */
static inline bool vgpu_lt_has_bias(const struct vgpu_lt_product *p) {
    return p->desc.epilogue & (CUBLASLT_EPILOGUE_BIAS | 16 | CUBLASLT_EPILOGUE_BGRADA | CUBLASLT_EPILOGUE_BGRADB);
}

static inline bool vgpu_lt_has_aux(const struct vgpu_lt_product *p) {
    return p->desc.epilogue & 128;
}

static inline bool vgpu_lt_aux_is_bits(const struct vgpu_lt_product *p) {
    return p->desc.epilogue & (CUBLASLT_EPILOGUE_RELU | 8);
}

static inline int64_t vgpu_lt_bias_length(const struct vgpu_lt_product *p) {
    return p->desc.epilogue & CUBLASLT_EPILOGUE_BGRADB ? p->n : p->m;
}

/* FLOPs and bytes (vgpu_lt_amount.c). reads_c: beta is not 0; a beta on the device, not known, is taken to be. */
void vgpu_lt_amount(const struct vgpu_lt_product *product, bool reads_c, struct vgpu_amount *out);
/* Host memory that `algo` would use on a device, in bytes; -1: it was not made for such a product. */
int64_t vgpu_lt_workspace(const struct vgpu_lt_algo *algo, const struct vgpu_lt_product *product);

/* Handles: those of cublasLtCreate and of cublasCreate. NOT_INITIALIZED if it is none. */
cublasStatus_t vgpu_lt_open(cublasLtHandle_t handle, struct vgpu_blas *out);

/* n elements of a line of a matrix, `step` apart, from and to float, or double if `wide`. */
void vgpu_lt_load(bool wide, cudaDataType_t type, const void *p, int64_t first, int64_t step, int64_t n, void *out);
void vgpu_lt_store(bool wide, cudaDataType_t type, void *p, int64_t first, int64_t step, int64_t n, const void *from);

/* What becomes of the sums of one matrix of the batch: sums: m × n, column-major, without gaps; float, or double if the
 * product is `wide`. Overwritten. All pointers are within the device's reach. */
struct vgpu_lt_epilogue {
    const struct vgpu_lt_product *product;
    void *sums;
    double alpha, beta;                      /* alpha: with the scales of A and B in it */
    const void *alphas;                      /* m of them, of the scale type, to be multiplied by alpha; NULL: 1 */
    const float *row_scales, *column_scales; /* of op(A)'s rows, op(B)'s columns; NULL: 1 */
    const void *c;
    void *d, *bias, *aux;
};
/* false: no memory on the host. */
bool vgpu_lt_epilogue_run(const struct vgpu_lt_epilogue *e);

#endif
