/* The 16-bit formats, by bits: no processor or compiler support is needed, and compilers vectorise the loops. */
#include "vgpu/vgpu_blas.h"

#include <string.h>

static uint32_t bits_of(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static float float_of(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* Multiplying by 2^112 moves the exponent from a bias of 15 to 127 and makes subnormals right by itself. */
float vgpu_half_to_float(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = (uint32_t)(h & 0x7fff) << 13;
    uint32_t finite = bits_of(float_of(rest) * 0x1p112f);
    uint32_t special = rest | 0x7f800000;
    return float_of(sign | (rest >= 0x0f800000 ? special : finite));
}

uint16_t vgpu_float_to_half(float f) {
    uint32_t u = bits_of(f), sign = u >> 16 & 0x8000, a = u & 0x7fffffff;
    if (a > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (a >> 13 & 0x3ff));
    if (a >= 0x477ff000) /* 65520 and up round to infinity */
        return (uint16_t)(sign | 0x7c00);
    if (a < 0x38800000) { /* below 2^-14: adding 0.5 leaves the subnormal, rounded to even by the addition, in the low
                             bits */
        uint32_t low = bits_of(float_of(a) + 0.5f) - bits_of(0.5f);
        return (uint16_t)(sign | low);
    }
    uint32_t rounded = a + 0xfff + (a >> 13 & 1);
    return (uint16_t)(sign | ((rounded >> 13) - (112 << 10)));
}

float vgpu_bf16_to_float(uint16_t b) {
    return float_of((uint32_t)b << 16);
}

uint16_t vgpu_float_to_bf16(float f) {
    uint32_t u = bits_of(f);
    if ((u & 0x7fffffff) > 0x7f800000) return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

size_t vgpu_type_bytes(cudaDataType_t type) {
    switch ((int)type) {
    case CUDA_R_64F:
        return 8;
    case CUDA_R_32F:
        return 4;
    case CUDA_R_16F:
    case CUDA_R_16BF:
        return 2;
    default:
        return 0;
    }
}

double vgpu_load(cudaDataType_t type, const void *p, int64_t i) {
    switch ((int)type) {
    case CUDA_R_64F:
        return ((const double *)p)[i];
    case CUDA_R_32F:
        return ((const float *)p)[i];
    case CUDA_R_16F:
        return vgpu_half_to_float(((const uint16_t *)p)[i]);
    default:
        return vgpu_bf16_to_float(((const uint16_t *)p)[i]);
    }
}

void vgpu_store(cudaDataType_t type, void *p, int64_t i, double value) {
    switch ((int)type) {
    case CUDA_R_64F:
        ((double *)p)[i] = value;
        break;
    case CUDA_R_32F:
        ((float *)p)[i] = (float)value;
        break;
    case CUDA_R_16F:
        ((uint16_t *)p)[i] = vgpu_float_to_half((float)value);
        break;
    default:
        ((uint16_t *)p)[i] = vgpu_float_to_bf16((float)value);
        break;
    }
}

void vgpu_widen(cudaDataType_t type, const void *from, float *to, int64_t n) {
    const uint16_t *h = from;
    if (type == CUDA_R_16F)
        for (int64_t i = 0; i < n; i++) to[i] = vgpu_half_to_float(h[i]);
    else if (type == CUDA_R_16BF)
        for (int64_t i = 0; i < n; i++) to[i] = vgpu_bf16_to_float(h[i]);
    else
        memcpy(to, from, (size_t)n * sizeof *to);
}

void vgpu_narrow(cudaDataType_t type, const float *from, void *to, int64_t n) {
    uint16_t *h = to;
    if (type == CUDA_R_16F)
        for (int64_t i = 0; i < n; i++) h[i] = vgpu_float_to_half(from[i]);
    else if (type == CUDA_R_16BF)
        for (int64_t i = 0; i < n; i++) h[i] = vgpu_float_to_bf16(from[i]);
    else
        memcpy(to, from, (size_t)n * sizeof *from);
}
