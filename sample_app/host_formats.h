/* Numbers in the formats of `real` on the host: weights that are drawn there, samples, logits. */
#ifndef TRAIN_HOST_FORMATS_H
#define TRAIN_HOST_FORMATS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "sample_app/number_format.h"

static inline uint32_t float_bits(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}
static inline float bits_float(uint32_t u) {
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* Both round to the nearest, to the even one of two. bf16 is the upper half of a float. */
static inline uint16_t bf16_of(float x) {
    uint32_t u = float_bits(x);
    if (isnan(x)) return 0x7fff;
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* fp16: 5 bits of exponent (bias 15), 10 of mantissa; multiples of 2^-24 below 2^-14; infinity from 65520 on. */
static inline uint16_t fp16_of(float x) {
    uint32_t u = float_bits(x), sign = u >> 16 & 0x8000;
    float size = fabsf(x);
    u &= 0x7fffffff;
    if (isnan(x)) return 0x7fff;
    if (size >= 65520) return (uint16_t)(sign | 0x7c00);
    if (size < 0x1p-14f) return (uint16_t)(sign | (uint32_t)rintf(size * 0x1p24f));
    return (uint16_t)(sign | ((u - ((127u - 15) << 23) + 0xfff + (u >> 13 & 1)) >> 13));
}

static inline float float_of_fp16(uint16_t h) {
    int exponent = h >> 10 & 31, mantissa = h & 1023;
    float size = exponent == 31 ? (mantissa ? NAN : INFINITY)
                 : exponent     ? ldexpf((float)(mantissa + 1024), exponent - 25)
                                : ldexpf((float)mantissa, -24);
    return h & 0x8000 ? -size : size;
}

/* Element i of an array of fp32, bf16 or fp16. */
static inline void host_put(enum number_format format, void *array, size_t i, float x) {
    if (format == FORMAT_FP32)
        ((float *)array)[i] = x;
    else
        ((uint16_t *)array)[i] = format == FORMAT_BF16 ? bf16_of(x) : fp16_of(x);
}
static inline float host_get(enum number_format format, const void *array, size_t i) {
    if (format == FORMAT_FP32) return ((const float *)array)[i];
    uint16_t half = ((const uint16_t *)array)[i];
    return format == FORMAT_BF16 ? bits_float((uint32_t)half << 16) : float_of_fp16(half);
}

#endif
