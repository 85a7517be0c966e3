#include "plan/plan_formats.h"

#include <fenv.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static const struct plan_format formats[PLAN_FORMATS] = {
    {"fp64", "double", "references", 64, 64, 11, 52, PLAN_BEYOND_INFINITY, 0, 0, 0, 0},
    {"fp32", "single", "master weights, optimizer state", 32, 32, 8, 23, PLAN_BEYOND_INFINITY, 0, 0, 0, 0},
    {"tf32", "fp32 as the matrix unit reads it", "products of fp32 matrices", 32, 19, 8, 10, PLAN_BEYOND_INFINITY, 0, 0,
     0, 0},
    {"fp16", "half", "weights, activations; gradients with loss scaling", 16, 16, 5, 10, PLAN_BEYOND_INFINITY, 0, 0, 0,
     0},
    {"bf16", "bfloat16", "weights, activations, gradients", 16, 16, 8, 7, PLAN_BEYOND_INFINITY, 0, 0, 0, 0},
    {"e4m3", "fp8 E4M3", "weights and activations of fp8 products", 8, 8, 4, 3, PLAN_BEYOND_LARGEST_OR_NAN, 0, 0, 0, 0},
    {"e5m2", "fp8 E5M2", "gradients of fp8 products", 8, 8, 5, 2, PLAN_BEYOND_LARGEST_OR_INF, 0, 0, 0, 0},
    {"int8", "integer", "inference; operations, not FLOPs", 8, 8, 0, 0, PLAN_BEYOND_LARGEST, 0, 0, 0, 0},
    {"e2m1", "fp4 E2M1", "blocks with a scale each", 4, 4, 2, 1, PLAN_BEYOND_LARGEST, 0, 0, 0, 0},
};

static int bias(const struct plan_format *f) {
    return (1 << (f->exponent - 1)) - 1;
}

void plan_format_get(int i, struct plan_format *out) {
    *out = formats[i];
    if (!out->exponent) {
        out->max = 127;
        out->smallest_normal = out->smallest = out->epsilon = 1;
        return;
    }
    /* The largest exponent's codes are infinity and NaN; E4M3 gives one code up, E2M1 none. */
    int whole = out->beyond == PLAN_BEYOND_LARGEST || out->beyond == PLAN_BEYOND_LARGEST_OR_NAN;
    int top = (1 << out->exponent) - 1 - bias(out) - !whole;
    double ulps = out->beyond == PLAN_BEYOND_LARGEST_OR_NAN ? 2 : 1; /* below the power of two above */
    out->epsilon = ldexp(1, -out->mantissa);
    out->max = ldexp(2 - ulps * out->epsilon, top);
    out->smallest_normal = ldexp(1, 1 - bias(out));
    out->smallest = ldexp(out->epsilon, 1 - bias(out));
}

int plan_format_find(const char *name) {
    for (int i = 0; i < PLAN_FORMATS; i++)
        if (!strcmp(formats[i].name, name)) return i;
    return -1;
}

/* strtod in a rounding mode, which is put back. */
static double read_in(const char *text, int mode, char **end) {
    int was = fegetround();
    fesetround(mode);
    double v = strtod(text, end);
    fesetround(was);
    return v;
}

int plan_value_read(const char *text, struct plan_value *out) {
    char *end;
    uint64_t bits;
    double down, up;
    if (!*text || strchr(" \t\n\v\f\r", *text)) return -1;
    out->nearest = read_in(text, FE_TONEAREST, &end);
    if (end == text || *end) return -1;
    down = read_in(text, FE_DOWNWARD, &end);
    up = read_in(text, FE_UPWARD, &end);
    memcpy(&bits, &down, sizeof bits);
    out->odd = bits & 1 ? down : up; /* neighbours, or the same */
    out->inexact = down < up;
    return 0;
}

/* To a multiple of the format's last place there, ties to even; not bounded above. */
static double to_places(const struct plan_format *f, double x) {
    int e = 0;
    if (!f->exponent) return nearbyint(x) + 0.0; /* no -0 */
    frexp(x, &e);                                /* |x| in [2^(e-1), 2^e) */
    int place = (e - 1 > 1 - bias(f) ? e - 1 : 1 - bias(f)) - f->mantissa;
    return ldexp(nearbyint(ldexp(x, -place)), place); /* exact but for nearbyint: at most 53 bits */
}

static enum plan_outcome go_beyond(const struct plan_format *f, double sign, int saturate, double *out) {
    double largest = !f->exponent && sign < 0 ? 128 : f->max;
    if (f->beyond == PLAN_BEYOND_LARGEST || (saturate && f->beyond != PLAN_BEYOND_INFINITY)) {
        *out = copysign(largest, sign);
        return PLAN_SATURATED;
    }
    *out = f->beyond == PLAN_BEYOND_LARGEST_OR_NAN ? NAN : copysign(INFINITY, sign);
    return f->beyond == PLAN_BEYOND_LARGEST_OR_NAN ? PLAN_TO_NAN : PLAN_TO_INFINITY;
}

/* NaN where there is none: PTX's cvt makes 0 of it in integers, the largest number in E2M1. */
static enum plan_outcome of_nan(const struct plan_format *f, double *out) {
    *out = f->beyond != PLAN_BEYOND_LARGEST ? NAN : f->exponent ? f->max : 0;
    return f->beyond != PLAN_BEYOND_LARGEST ? PLAN_IS_NAN : PLAN_SATURATED;
}

enum plan_outcome plan_format_round(const struct plan_format *f, const struct plan_value *v, int saturate,
                                    double *out) {
    double x = f->mantissa == 52 ? v->nearest : v->odd;
    int low = !f->exponent && x < 0; /* int8 has one more below */
    if (isnan(x)) return of_nan(f, out);
    if (isinf(x)) {
        enum plan_outcome o = go_beyond(f, x, saturate, out);
        return o == PLAN_TO_INFINITY && isinf(v->odd) ? PLAN_EXACT : o;
    }
    *out = f->mantissa == 52 ? x : to_places(f, x);
    if (fabs(*out) > f->max + low) return go_beyond(f, x, saturate, out);
    if (*out == 0 && v->odd != 0) return f->exponent ? PLAN_UNDERFLOW : PLAN_ROUNDED;
    if (f->exponent && *out != 0 && fabs(*out) < f->smallest_normal) return PLAN_SUBNORMAL;
    return *out == v->odd && !(f->mantissa == 52 && v->inexact) ? PLAN_EXACT : PLAN_ROUNDED;
}

uint64_t plan_format_bits(const struct plan_format *f, double x) {
    uint64_t sign = (uint64_t) !!signbit(x) << (f->exponent + f->mantissa), ones = (UINT64_C(1) << f->exponent) - 1,
             code;
    double size = fabs(x);
    if (!f->exponent) return (uint64_t)(int64_t)x & 0xff;
    if (isnan(x)) /* quiet: the mantissa's first bit; E4M3 has all of them */
        code = ones << f->mantissa | (f->mantissa == 3 ? 7 : UINT64_C(1) << (f->mantissa - 1)), sign = 0;
    else if (isinf(x))
        code = ones << f->mantissa;
    else if (size < f->smallest_normal)
        code = (uint64_t)(size / f->smallest);
    else
        code = ((uint64_t)(ilogb(size) + bias(f)) << f->mantissa) +
               (uint64_t)ldexp(ldexp(size, -ilogb(size)) - 1, f->mantissa);
    return (sign | code) << (f->bits - f->bits_used);
}

const char *plan_outcome_words(enum plan_outcome o) {
    static const char *const words[PLAN_OUTCOMES] = {
        [PLAN_EXACT] = "exact",
        [PLAN_ROUNDED] = "rounded",
        [PLAN_SUBNORMAL] = "subnormal",
        [PLAN_UNDERFLOW] = "underflow to 0",
        [PLAN_TO_INFINITY] = "overflow to infinity",
        [PLAN_SATURATED] = "saturated",
        [PLAN_TO_NAN] = "overflow to NaN",
        [PLAN_IS_NAN] = "NaN",
    };
    return words[o];
}
