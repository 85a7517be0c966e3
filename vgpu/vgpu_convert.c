/* Elements of all real types, one at a time and many. The loops over many are compiled a second time for processors
 * with AVX2 and F16C, and which one runs is asked of the processor. */
#include "vgpu/vgpu_blas.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#define WIDE __attribute__((target("avx2,f16c")))
#endif

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

size_t vgpu_element_bytes(cudaDataType_t type) {
    switch ((int)type) {
    case CUDA_R_8F_E4M3:
    case CUDA_R_8F_E5M2:
    case CUDA_R_8I:
        return 1;
    case CUDA_R_32I:
        return 4;
    default:
        return vgpu_type_bytes(type);
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
    case CUDA_R_16BF:
        return vgpu_bf16_to_float(((const uint16_t *)p)[i]);
    case CUDA_R_8F_E4M3:
        return vgpu_e4m3_to_float(((const uint8_t *)p)[i]);
    case CUDA_R_8F_E5M2:
        return vgpu_e5m2_to_float(((const uint8_t *)p)[i]);
    case CUDA_R_8I:
        return ((const int8_t *)p)[i];
    default:
        return ((const int32_t *)p)[i];
    }
}

static double within(double v, double low, double high) {
    return v != v ? 0 : v < low ? low : v > high ? high : rint(v);
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
    case CUDA_R_16BF:
        ((uint16_t *)p)[i] = vgpu_float_to_bf16((float)value);
        break;
    case CUDA_R_8F_E4M3:
        ((uint8_t *)p)[i] = vgpu_float_to_e4m3((float)value);
        break;
    case CUDA_R_8F_E5M2:
        ((uint8_t *)p)[i] = vgpu_float_to_e5m2((float)value);
        break;
    case CUDA_R_8I:
        ((int8_t *)p)[i] = (int8_t)within(value, INT8_MIN, INT8_MAX);
        break;
    default:
        ((int32_t *)p)[i] = (int32_t)within(value, INT32_MIN, INT32_MAX);
        break;
    }
}

/* ---- fp8 by a table of what its 256 values stand for ---- */

static float e4m3[256], e5m2[256];
static pthread_once_t tables_made = PTHREAD_ONCE_INIT;

static void make_tables(void) {
    for (int i = 0; i < 256; i++) {
        e4m3[i] = vgpu_e4m3_to_float((uint8_t)i);
        e5m2[i] = vgpu_e5m2_to_float((uint8_t)i);
    }
}

static void widen_fp8(cudaDataType_t type, const uint8_t *from, float *to, int64_t n) {
    pthread_once(&tables_made, make_tables);
    const float *table = type == CUDA_R_8F_E4M3 ? e4m3 : e5m2;
    for (int64_t i = 0; i < n; i++) to[i] = table[from[i]];
}

/* ---- many ---- */

#define LOOP(statement) \
    for (int64_t i = 0; i < n; i++) statement
#define ALWAYS static inline __attribute__((always_inline))

ALWAYS void round_all(enum vgpu_rounding r, const float *from, float *to, int64_t n) {
    if (r == VGPU_ROUND_TF32)
        LOOP(to[i] = vgpu_float_to_tf32(from[i]));
    else if (r == VGPU_ROUND_FP16)
        LOOP(to[i] = vgpu_half_to_float(vgpu_float_to_half(from[i])));
    else if (r == VGPU_ROUND_BF16)
        LOOP(to[i] = vgpu_bf16_to_float(vgpu_float_to_bf16(from[i])));
    else if (to != from)
        memcpy(to, from, (size_t)n * sizeof *to);
}

ALWAYS void widen_all(cudaDataType_t type, const void *from, float *to, int64_t n) {
    const uint16_t *h = from;
    const uint8_t *b = from;
    if (type == CUDA_R_16F)
        LOOP(to[i] = vgpu_half_to_float(h[i]));
    else if (type == CUDA_R_16BF)
        LOOP(to[i] = vgpu_bf16_to_float(h[i]));
    else if (type == CUDA_R_8I)
        LOOP(to[i] = ((const int8_t *)b)[i]);
    else if (type == CUDA_R_32I)
        LOOP(to[i] = (float)((const int32_t *)from)[i]);
    else
        memcpy(to, from, (size_t)n * sizeof *to);
}

ALWAYS void narrow_all(cudaDataType_t type, const float *from, void *to, int64_t n) {
    uint16_t *h = to;
    uint8_t *b = to;
    if (type == CUDA_R_16F)
        LOOP(h[i] = vgpu_float_to_half(from[i]));
    else if (type == CUDA_R_16BF)
        LOOP(h[i] = vgpu_float_to_bf16(from[i]));
    else if (type == CUDA_R_8F_E4M3)
        LOOP(b[i] = vgpu_float_to_e4m3(from[i]));
    else if (type == CUDA_R_8F_E5M2)
        LOOP(b[i] = vgpu_float_to_e5m2(from[i]));
    else if (type == CUDA_R_8I || type == CUDA_R_32I)
        LOOP(vgpu_store(type, to, i, (double)from[i]));
    else
        memcpy(to, from, (size_t)n * sizeof *from);
}

#if defined(__x86_64__)

/* fp16 by the processor's own conversions, the rest by the same loops with wider registers. */
WIDE static void widen_wide(cudaDataType_t type, const void *from, float *to, int64_t n) {
    const uint16_t *h = from;
    int64_t i = 0;
    if (type != CUDA_R_16F) {
        widen_all(type, from, to, n);
        return;
    }
    for (; i + 8 <= n; i += 8) _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const void *)(h + i))));
    for (; i < n; i++) to[i] = vgpu_half_to_float(h[i]);
}

WIDE static void narrow_wide(cudaDataType_t type, const float *from, void *to, int64_t n) {
    uint16_t *h = to;
    int64_t i = 0;
    if (type != CUDA_R_16F) {
        narrow_all(type, from, to, n);
        return;
    }
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((void *)(h + i), _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
    for (; i < n; i++) h[i] = vgpu_float_to_half(from[i]);
}

WIDE static void round_wide(enum vgpu_rounding r, const float *from, float *to, int64_t n) {
    round_all(r, from, to, n);
}

/* Whatever has AVX2 has F16C, which clang 14 cannot ask for. */
static bool is_wide(void) {
    return __builtin_cpu_supports("avx2");
}

#else

#define widen_wide widen_all
#define narrow_wide narrow_all
#define round_wide round_all
static bool is_wide(void) {
    return false;
}

#endif

void vgpu_round(enum vgpu_rounding rounding, const float *from, float *to, int64_t n) {
    if (is_wide())
        round_wide(rounding, from, to, n);
    else
        round_all(rounding, from, to, n);
}

void vgpu_widen(cudaDataType_t type, const void *from, float *to, int64_t n) {
    if (type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2)
        widen_fp8(type, from, to, n);
    else if (is_wide())
        widen_wide(type, from, to, n);
    else
        widen_all(type, from, to, n);
}

void vgpu_narrow(cudaDataType_t type, const float *from, void *to, int64_t n) {
    if (is_wide())
        narrow_wide(type, from, to, n);
    else
        narrow_all(type, from, to, n);
}

/* ---- matrices ---- */

float *vgpu_widened(cudaDataType_t type, enum vgpu_rounding rounding, const void *p, int64_t inner, int64_t outer,
                    int64_t ld) {
    float *out = vgpu_scratch_take((size_t)(inner * outer) * sizeof *out);
    int64_t step = ld * (int64_t)vgpu_element_bytes(type);
    if (inner == ld) inner *= outer, outer = 1;
    for (int64_t j = 0; out && j < outer; j++) {
        const void *from = (const char *)p + j * step;
        if (type == CUDA_R_32F)
            vgpu_round(rounding, from, out + j * inner, inner);
        else
            vgpu_widen(type, from, out + j * inner, inner);
    }
    return out;
}

void vgpu_narrowed(cudaDataType_t type, const float *from, void *p, int64_t inner, int64_t outer, int64_t ld) {
    int64_t step = ld * (int64_t)vgpu_element_bytes(type);
    if (inner == ld) inner *= outer, outer = 1;
    for (int64_t j = 0; j < outer; j++) vgpu_narrow(type, from + j * inner, (char *)p + j * step, inner);
}
