/* What a product of cublasLtMatmul does, for the model of times: FLOPs by the unit that multiplies, each operand's
 * bytes once. */
#include "vgpu/vgpu_lt.h"

static enum vgpu_format format_of(const struct vgpu_lt_product *p) {
    static const uint8_t rounded[] = {[VGPU_ROUND_NONE] = VGPU_FP32,
                                      [VGPU_ROUND_TF32] = VGPU_TF32,
                                      [VGPU_ROUND_FP16] = VGPU_FP16,
                                      [VGPU_ROUND_BF16] = VGPU_BF16};
    bool sums_16 = p->desc.compute == CUBLAS_COMPUTE_16F || p->desc.compute == CUBLAS_COMPUTE_16F_PEDANTIC;
    switch ((int)p->a.type) {
    case CUDA_R_64F:
        return VGPU_FP64_MATRIX;
    case CUDA_R_16F:
        return sums_16 ? VGPU_FP16_ACC16 : VGPU_FP16;
    case CUDA_R_16BF:
        return VGPU_BF16;
    case CUDA_R_8I:
        return VGPU_INT8;
    case CUDA_R_8F_E4M3:
    case CUDA_R_8F_E5M2:
        return VGPU_FP8;
    default:
        return (enum vgpu_format)rounded[p->rounding];
    }
}

/* A batch stride of 0: one matrix for all. */
static double bytes_of(const struct vgpu_lt_matrix *m, int64_t batch) {
    int64_t count = m->array || m->stride ? batch : 1;
    return (double)m->rows * (double)m->columns * (double)count * (double)vgpu_element_bytes(m->type);
}

static double epilogue_bytes(const struct vgpu_lt_product *p) {
    double bytes = 0, batch = (double)p->batch;
    if (vgpu_lt_has_bias(p))
        bytes += (double)vgpu_lt_bias_length(p) * (double)vgpu_element_bytes(p->bias_type) *
                 (p->desc.bias_stride ? batch : 1);
    if (vgpu_lt_has_aux(p))
        bytes += (double)p->m * (double)p->n * batch *
                 (vgpu_lt_aux_is_bits(p) ? 1. / 8 : (double)vgpu_element_bytes(p->aux_type));
    return bytes;
}

void vgpu_lt_amount(const struct vgpu_lt_product *p, bool reads_c, struct vgpu_amount *out) {
    *out = (struct vgpu_amount){0};
    out->flops[format_of(p)] = 2.0 * (double)p->m * (double)p->n * (double)p->k * (double)p->batch;
    out->bytes = bytes_of(&p->a, p->batch) + bytes_of(&p->b, p->batch) + bytes_of(&p->d, p->batch) + epilogue_bytes(p);
    if (reads_c) out->bytes += bytes_of(&p->c, p->batch);
}
