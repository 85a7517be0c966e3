/* cublasLtMatmul by its definition, in double precision: numbers of every format by their fields, the product by three
 * loops, the epilogues by their formulas. Shares no code with the library. */
#ifndef VGPU_LT_REFERENCE_H
#define VGPU_LT_REFERENCE_H

#include "tests/unit/vgpu_testing.h"

#include <cublasLt.h>
#include <math.h>
#include <stdbool.h>

struct number_fields {
    int bytes, mantissa, exponent, bias;
    double largest;
};

static inline struct number_fields fields_of(cudaDataType_t t) {
    switch ((int)t) {
    case CUDA_R_16F:
        return (struct number_fields){2, 10, 5, 15, 65504};
    case CUDA_R_16BF:
        return (struct number_fields){2, 7, 8, 127, 0x1.fep127};
    case CUDA_R_8F_E4M3:
        return (struct number_fields){1, 3, 4, 7, 448};
    case CUDA_R_8F_E5M2:
        return (struct number_fields){1, 2, 5, 15, 57344};
    case CUDA_R_32F:
        return (struct number_fields){4, 23, 8, 127, 0x1.fffffep127};
    case CUDA_R_64F:
        return (struct number_fields){8, 52, 11, 1023, 0x1.fffffffffffffp1023};
    default:
        return (struct number_fields){t == CUDA_R_8I ? 1 : 4, -1, 0, 0, t == CUDA_R_8I ? 127 : 2147483647};
    }
}

static inline size_t bytes_of(cudaDataType_t t) {
    return (size_t)fields_of(t).bytes;
}

/* Half a unit in the last place, relative; and the absolute error among subnormal numbers. 0 for integers. */
static inline double epsilon_of(cudaDataType_t t) {
    struct number_fields f = fields_of(t);
    return f.mantissa < 0 ? 0 : ldexp(1, -f.mantissa - 1);
}

static inline double smallest_of(cudaDataType_t t) {
    struct number_fields f = fields_of(t);
    return f.mantissa < 0 ? 0.5 : ldexp(1, -f.bias - f.mantissa);
}

static inline double decode(cudaDataType_t t, const void *p, int64_t i) {
    struct number_fields f = fields_of(t);
    uint64_t u = 0;
    if (f.mantissa < 0) return t == CUDA_R_8I ? ((const int8_t *)p)[i] : ((const int32_t *)p)[i];
    memcpy(&u, (const char *)p + i * f.bytes, (size_t)f.bytes);
    int sign = (int)(u >> (8 * f.bytes - 1)) & 1, e = (int)(u >> f.mantissa & ((1u << f.exponent) - 1));
    uint64_t m = u & ((UINT64_C(1) << f.mantissa) - 1), full = (UINT64_C(1) << f.mantissa) - 1;
    int top = (1 << f.exponent) - 1;
    if (t == CUDA_R_8F_E4M3 ? e == top && m == full : e == top)
        return m || t == CUDA_R_8F_E4M3 ? NAN : sign ? -INFINITY : INFINITY;
    double v = ldexp((double)(e ? m + full + 1 : m), (e ? e : 1) - f.bias - f.mantissa);
    return sign ? -v : v;
}

/* The nearest number towards 0: any input near `v` will do. */
static inline void encode(cudaDataType_t t, void *p, int64_t i, double v) {
    struct number_fields f = fields_of(t);
    uint64_t u;
    int e;
    if (f.mantissa < 0) {
        if (t == CUDA_R_8I)
            ((int8_t *)p)[i] = (int8_t)v;
        else
            ((int32_t *)p)[i] = (int32_t)v;
        return;
    }
    double x = frexp(fabs(v) > f.largest ? f.largest : fabs(v), &e); /* x · 2^e, x in [0.5, 1) */
    if (v == 0 || e - 1 < 1 - f.bias)                                /* subnormal */
        u = (uint64_t)ldexp(x, e + f.bias + f.mantissa - 1);
    else
        u = (uint64_t)(e - 1 + f.bias) << f.mantissa |
            ((uint64_t)ldexp(x, f.mantissa + 1) & ((UINT64_C(1) << f.mantissa) - 1));
    if (v < 0) u |= UINT64_C(1) << (8 * f.bytes - 1);
    memcpy((char *)p + i * f.bytes, &u, (size_t)f.bytes);
}

/* To `bits` bits after the point; ties away from 0, or to even. */
static inline double rounded(double v, int bits, bool away) {
    int e;
    double x = ldexp(frexp(v, &e), bits + 1);
    x = away ? round(x) : nearbyint(x);
    return ldexp(x, e - bits - 1);
}

struct lt_matrix {
    cudaDataType_t type;
    int64_t rows, columns, ld, stride;
    bool row;
    void *host, *device;
    size_t elements;
};

static inline int64_t lt_at(const struct lt_matrix *x, int64_t batch, int64_t i, int64_t j) {
    return batch * x->stride + (x->row ? i * x->ld + j : j * x->ld + i);
}

/* gap: elements between the lines; shared: one matrix for the whole batch. */
static inline struct lt_matrix lt_new(cudaDataType_t type, int64_t rows, int64_t columns, bool row, int64_t gap,
                                      int64_t batch, bool shared, double size, uint64_t *seed) {
    struct lt_matrix x = {.type = type, .rows = rows, .columns = columns, .row = row};
    x.ld = (row ? columns : rows) + gap;
    int64_t all = x.ld * (row ? rows : columns);
    x.stride = shared || batch == 1 ? 0 : all + 8 * gap;
    x.elements = (size_t)(all + (batch - 1) * x.stride);
    x.host = test_malloc(x.elements * bytes_of(type) + 16);
    if (type == CUDA_R_8I) size *= 100;
    for (size_t i = 0; i < x.elements; i++) encode(type, x.host, (int64_t)i, size * random_value(seed));
    x.device = device_from(x.host, x.elements * bytes_of(type));
    return x;
}

static inline void lt_free(struct lt_matrix *x) {
    test_free(x->host);
    OK(cudaFree(x->device));
}

static inline cublasLtMatrixLayout_t lt_layout(const struct lt_matrix *x, int32_t batch) {
    cublasLtMatrixLayout_t l;
    int32_t order = x->row ? CUBLASLT_ORDER_ROW : CUBLASLT_ORDER_COL;
    OK(cublasLtMatrixLayoutCreate(&l, x->type, (uint64_t)x->rows, (uint64_t)x->columns, x->ld));
    OK(cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_ORDER, &order, sizeof order));
    OK(cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch));
    OK(cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &x->stride, sizeof x->stride));
    return l;
}

#define LT_SET(desc, name, value) \
    OK(cublasLtMatmulDescSetAttribute((desc), CUBLASLT_MATMUL_DESC_##name, &(value), sizeof(value)))

/* One product to be computed and compared. */
struct lt_case {
    cublasComputeType_t compute;
    cudaDataType_t scale, a, b, c, d;
    int64_t m, n, k, batch, gap;
    bool ta, tb, row_a, row_b, row_c, row_d, shared_b, in_place, device_scalars;
    double alpha, beta;
    uint32_t epilogue;               /* 0: default */
    cudaDataType_t bias;             /* with an epilogue that has one */
    cudaDataType_t aux;              /* 0: not told, D's */
    float a_scale, b_scale, d_scale; /* 0: none */
    bool amax;
    int round_bits; /* of operands in fp32; 0: none */
    bool round_away;
    double sum_epsilon; /* of the sums' arithmetic */
};

static inline double lt_gelu(double x) {
    return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

/* By its definition, not by the derivative's formula. */
static inline double lt_gelu_slope(double x) {
    const double h = 1e-5;
    return (lt_gelu(x + h) - lt_gelu(x - h)) / (2 * h);
}

#endif
