/* One number of a small format to fp32 and back, by bits: no processor or compiler support is needed, without branches
 * so that compilers vectorise loops over them. Rounding is to nearest, ties to even, but for tf32. */
#ifndef VGPU_NUMBER_H
#define VGPU_NUMBER_H

#include <stdint.h>
#include <string.h>

static inline uint32_t vgpu_bits_of(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float vgpu_float_of(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* Multiplying by 2^112 moves the exponent from a bias of 15 to 127 and makes subnormals right by itself. */
static inline float vgpu_half_to_float(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = (uint32_t)(h & 0x7fff) << 13;
    uint32_t finite = vgpu_bits_of(vgpu_float_of(rest) * 0x1p112f);
    uint32_t special = rest | 0x7f800000;
    return vgpu_float_of(sign | (rest >= 0x0f800000 ? special : finite));
}

/* 65520 and up round to infinity. Below 2^-14, adding 0.5 leaves the subnormal, rounded by the addition, in the low
 * bits. */
static inline uint16_t vgpu_float_to_half(float f) {
    uint32_t u = vgpu_bits_of(f), sign = u >> 16 & 0x8000, a = u & 0x7fffffff;
    uint32_t subnormal = vgpu_bits_of(vgpu_float_of(a) + 0.5f) - vgpu_bits_of(0.5f);
    uint32_t normal = ((a + 0xfff + (a >> 13 & 1)) >> 13) - (112 << 10);
    uint32_t finite = a < 0x38800000 ? subnormal : a >= 0x477ff000 ? 0x7c00 : normal;
    return (uint16_t)(sign | (a > 0x7f800000 ? 0x7e00 | (a >> 13 & 0x3ff) : finite));
}

static inline float vgpu_bf16_to_float(uint16_t b) {
    return vgpu_float_of((uint32_t)b << 16);
}

static inline uint16_t vgpu_float_to_bf16(float f) {
    uint32_t u = vgpu_bits_of(f), rounded = (u + 0x7fff + (u >> 16 & 1)) >> 16;
    return (uint16_t)((u & 0x7fffffff) > 0x7f800000 ? u >> 16 | 0x40 : rounded);
}

/* To 10 bits after the point, ties away from 0, as cvt.rna.tf32.f32 does. NaN is left alone: a carry could make it
 * infinity. */
static inline float vgpu_float_to_tf32(float f) {
    uint32_t u = vgpu_bits_of(f), rounded = (u + 0x1000) & ~0x1fffu;
    return vgpu_float_of((u & 0x7fffffff) > 0x7f800000 ? u : rounded);
}

/* E4M3's exponent has a bias of 7: 2^120 makes it fp32's. There is no infinity. */
static inline float vgpu_e4m3_to_float(uint8_t v) {
    uint32_t sign = (uint32_t)(v & 0x80) << 24, rest = v & 0x7f;
    uint32_t finite = vgpu_bits_of(vgpu_float_of(rest << 20) * 0x1p120f);
    return vgpu_float_of(sign | (rest == 0x7f ? 0x7fc00000 : finite));
}

/* E5M2 is the upper half of fp16. */
static inline float vgpu_e5m2_to_float(uint8_t v) {
    return vgpu_half_to_float((uint16_t)(v << 8));
}

/* To fp8 the device has one conversion, which saturates: what is too large, infinity too, becomes the largest value;
 * NaN stays NaN. Arguments: bits of the mantissa; the smallest normal and the largest number as fp32; 2^23 steps of the
 * subnormal numbers, which makes an addition round to one. */
static inline uint8_t vgpu_float_to_fp8(float f, unsigned bits, float smallest, float largest, float steps) {
    uint32_t u = vgpu_bits_of(f), sign = u >> 24 & 0x80, a = u & 0x7fffffff, cut = 23 - bits;
    uint32_t capped = a > vgpu_bits_of(largest) ? vgpu_bits_of(largest) : a;
    uint32_t normal =
        (capped + (1u << (cut - 1)) - 1 + (capped >> cut & 1) - vgpu_bits_of(smallest) + (1u << 23)) >> cut;
    uint32_t subnormal = vgpu_bits_of(vgpu_float_of(capped) + steps) - vgpu_bits_of(steps);
    uint32_t finite = capped < vgpu_bits_of(smallest) ? subnormal : normal;
    return (uint8_t)(sign | (a > 0x7f800000 ? 0x7f : finite));
}

static inline uint8_t vgpu_float_to_e4m3(float f) {
    return vgpu_float_to_fp8(f, 3, 0x1p-6f, 448, 0x1p14f);
}

static inline uint8_t vgpu_float_to_e5m2(float f) {
    return vgpu_float_to_fp8(f, 2, 0x1p-14f, 57344, 0x1p7f);
}

#endif
