/* References of zoo_math.cu. What is exact is computed in integers, or in a float type wide enough to hold the exact
 * result, which is then compared with its two neighbours. */
#include "tests/zoo/zoo_reference.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef __float128 quad; /* 113 bits */
typedef __int128 wide;
typedef unsigned __int128 uwide;

REF(int64_arith) {
    for (int i = 0; i < INT(3); i++) {
        int64_t x = I64P(0)[i], y = I64P(1)[i], *o = I64P(2) + 8 * i;
        uint64_t u = (uint64_t)x, v = (uint64_t)y;
        o[0] = (int64_t)(u + v);
        o[1] = (int64_t)(u * v);
        o[2] = (int64_t)((wide)x * y >> 64);
        o[3] = (int64_t)((uwide)u * v >> 64);
        o[4] = (int64_t)(u << (v & 63)) ^ (x >> (v & 31));
        o[5] = (int64_t)(u >> (v & 63));
        o[6] = x < y ? x & y : x | y;
        o[7] = llabs(x) + (u < v) + 2 * (x <= 0);
    }
}

REF(divisions) {
    for (int i = 0; i < INT(3); i++) {
        int x = I32P(0)[i], y = I32P(1)[i];
        uint32_t u = (uint32_t)x, v = (uint32_t)y;
        int64_t *o = I64P(2) + 8 * i, p = (int64_t)x * 1000003, q = (int64_t)y * 7919;
        uint64_t r = u * UINT64_C(4000000007), s = (uint64_t)v * 31 + 1;
        o[0] = x / y;
        o[1] = x % y;
        o[2] = u / v;
        o[3] = u % v;
        o[4] = p / q;
        o[5] = p % q;
        o[6] = (int64_t)(r / s);
        o[7] = (int64_t)(r % s);
    }
}

REF(double_arith) {
    for (int i = 0; i < INT(3); i++) {
        double x = F64P(0)[i], y = F64P(1)[i], *o = F64P(2) + 8 * i;
        o[0] = x + y;
        o[1] = x * y;
        o[2] = x / y;
        o[3] = sqrt(fabs(x));
        o[4] = fma(x, y, x);
        o[5] = (x < y ? x : y) + (x > -y ? x : -y) * 2;
        o[6] = floor(x) + ceil(y) + rint(x * 3) + trunc(y * 5);
        o[7] = x > y ? (double)(float)x : copysign(y, x);
    }
}

/* ---- a value of 113 bits in a mode ---- */
static double double_in(quad v, enum zoo_round mode) {
    double d = (double)v;
    if (mode == ZOO_RN || (quad)d == v) return d;
    bool down = mode == ZOO_RD || (mode == ZOO_RZ && v > 0);
    if (down) return (quad)d > v ? nextafter(d, -INFINITY) : d;
    return (quad)d < v ? nextafter(d, INFINITY) : d;
}

static float float_in(quad v, enum zoo_round mode) {
    float f = (float)v;
    if (mode == ZOO_RN || (quad)f == v) return f;
    bool down = mode == ZOO_RD || (mode == ZOO_RZ && v > 0);
    if (down) return (quad)f > v ? nextafterf(f, -INFINITY) : f;
    return (quad)f < v ? nextafterf(f, INFINITY) : f;
}

/* The root rounded up: the nearest one, or its successor if that is below. */
static double root_up(double x) {
    double s = sqrt(x);
    return (quad)s * s < (quad)x ? nextafter(s, INFINITY) : s;
}

static float root_down(float x) {
    float s = (float)sqrt(x);
    return (double)s * s > x ? nextafterf(s, 0) : s;
}

REF(double_rounding) {
    for (int i = 0; i < INT(3); i++) {
        double xd = F64P(0)[i], yd = F64P(1)[i], *o = F64P(2) + 8 * i;
        quad x = xd, y = yd;
        o[0] = double_in(x + y, ZOO_RZ);
        o[1] = double_in(x * y, ZOO_RU);
        o[2] = double_in(x / y, ZOO_RD);
        o[3] = root_up(fabs(xd));
        o[4] = double_in(x * y + x, ZOO_RD);
        o[5] = double_in(1 / y, ZOO_RZ);
        o[6] = double_in(x - y, ZOO_RU);
        o[7] = -0.0; /* what IEEE 754 makes of x - x when rounding down */
    }
}

REF(float_rounding) {
    for (int i = 0; i < INT(3); i++) {
        float xf = F32P(0)[i], yf = F32P(1)[i], *o = F32P(2) + 16 * i;
        quad x = xf, y = yf;
        o[0] = float_in(x + y, ZOO_RN);
        o[1] = float_in(x + y, ZOO_RZ);
        o[2] = float_in(x + y, ZOO_RD);
        o[3] = float_in(x + y, ZOO_RU);
        o[4] = float_in(x * y, ZOO_RZ);
        o[5] = float_in(x * y, ZOO_RU);
        o[6] = float_in(x / y, ZOO_RN);
        o[7] = float_in(x / y, ZOO_RD);
        o[8] = sqrtf(fabsf(xf));
        o[9] = root_down(fabsf(xf));
        o[10] = float_in(x * y + x, ZOO_RN);
        o[11] = float_in(x * y - x, ZOO_RD);
        o[12] = float_in(1 / y, ZOO_RN);
        o[13] = float_in(1 / y, ZOO_RU);
        o[14] = xf < yf ? xf : yf;
        o[15] = xf > yf ? xf : yf;
    }
}

/* ---- bits ---- */
static uint64_t reversed(uint64_t x, int bits) {
    uint64_t r = 0;
    for (int k = 0; k < bits; k++) r = r << 1 | (x >> k & 1);
    return r;
}
static uint32_t count(uint64_t x) {
    uint32_t n = 0;
    for (; x; x &= x - 1) n++;
    return n;
}
static uint32_t leading(uint64_t x, int bits) {
    int k = bits;
    while (k > 0 && !(x >> (k - 1) & 1)) k--;
    return (uint32_t)(bits - k);
}
static uint32_t first_set(uint64_t x) {
    for (uint32_t k = 0; k < 64; k++)
        if (x >> k & 1) return k + 1;
    return 0;
}

static uint32_t permuted(uint32_t x, uint32_t y, uint32_t selector) {
    uint8_t bytes[8], r[4];
    memcpy(bytes, &x, 4);
    memcpy(bytes + 4, &y, 4);
    for (int k = 0; k < 4; k++) {
        uint32_t s = selector >> 4 * k & 15;
        r[k] = s < 8 ? bytes[s] : bytes[s - 8] >= 128 ? 255 : 0;
    }
    uint32_t v;
    memcpy(&v, r, 4);
    return v;
}

/* Bits pos … pos + len - 1; past the end, and above, the sign (of the last bit taken) or zero. */
static uint32_t extracted(uint32_t x, uint32_t pos, uint32_t len, bool is_signed) {
    if (!len) return 0;
    uint64_t v = is_signed ? (uint64_t)(int64_t)(int32_t)x : x;
    if (pos + len > 32) len = 32 - pos;
    v = v >> pos & ((UINT64_C(1) << len) - 1);
    if (is_signed && v >> (len - 1) & 1) v |= ~UINT64_C(0) << len;
    return (uint32_t)v;
}

static uint32_t dot(uint32_t x, uint32_t y, uint32_t start, bool is_signed) {
    for (int k = 0; k < 32; k += 8)
        start += is_signed ? (uint32_t)((int8_t)(x >> k) * (int8_t)(y >> k)) : (x >> k & 255) * (y >> k & 255);
    return start;
}

static uint32_t low24(uint32_t x, uint32_t y, bool is_signed) {
    if (!is_signed) return (x & 0xffffff) * (y & 0xffffff);
    return (uint32_t)((int64_t)((int32_t)(x << 8) >> 8) * ((int32_t)(y << 8) >> 8));
}

REF(bit_tricks) {
    for (uint32_t i = 0; i < (uint32_t)INT(3); i++) {
        uint32_t x = U32P(0)[i], y = U32P(1)[i], *o = U32P(2) + 16 * i, n = i % 32, m = i < 32 ? i : 32, z = ~x >> 3;
        uint64_t w = (uint64_t)x << 32 | y, yx = (uint64_t)y << 32 | x;
        o[0] = count(x) + 100 * count(w);
        o[1] = leading(x & 0xffff, 32) + 100 * leading(y & 7, 64);
        o[2] = (uint32_t)reversed(x, 32);
        o[3] = (uint32_t)(reversed(w, 64) >> 16);
        o[4] = first_set(x & 0xf0) + 100 * first_set(w);
        o[5] = (uint32_t)(yx << n >> 32);
        o[6] = (uint32_t)(yx >> m);
        o[7] = permuted(x, y, 0x3715 + i);
        o[8] = extracted(x, n, y % 32, false);
        o[9] = extracted(x, n, y % 32, true);
        uint32_t mask = (uint32_t)(UINT64_C(0x7f) << n);
        o[10] = (y & ~mask) | ((x << n) & mask);
        /* 0xd4: rows abc = 010, 100, 110, 111 */
        o[11] = (~x & y & ~z) | (x & ~y & ~z) | (x & y);
        o[12] = (uint32_t)((uint64_t)x * y >> 32) ^ (uint32_t)((int64_t)(int32_t)x * (int32_t)y >> 32);
        o[13] = ((x > y ? x - y : y - x) + 7) ^ low24(x, y, true) ^ low24(x, y, false);
        o[14] = dot(x, y, 5, true) ^ dot(x, y, 9, false);
        o[15] = (uint32_t)(((uint64_t)x + y) >> 1) ^ (uint32_t)(((int64_t)(int32_t)x + (int32_t)y) >> 1);
    }
}

REF(carries) {
    for (int i = 0; i < zoo_threads(c); i++) {
        const uint32_t *x = U32P(0) + 4 * i, *y = U32P(1) + 4 * i;
        uint32_t *o = U32P(2) + 8 * i;
        uwide s, t;
        memcpy(&s, x, 16);
        memcpy(&t, y, 16);
        s += t;
        memcpy(o, &s, 16);
        uint64_t pair = (uint64_t)y[1] << 32 | x[1], sum = (uint64_t)x[0] * y[0] + pair,
                 difference = pair - ((uint64_t)y[0] << 32 | x[0]);
        memcpy(o + 4, &sum, 8);
        memcpy(o + 6, &difference, 8);
    }
}

/* ---- conversions ---- */
static int64_t clamped(quad v, int64_t low, int64_t high) {
    return v <= low ? low : v >= high ? high : (int64_t)v;
}
static uint32_t to_int(double v) {
    return (uint32_t)clamped(v, INT32_MIN, INT32_MAX);
}
static uint32_t to_uint(double v) {
    return (uint32_t)clamped(v, 0, UINT32_MAX);
}
static uint64_t to_ull(double v) {
    return v <= 0 ? 0 : v >= 18446744073709551616.0 ? UINT64_MAX : (uint64_t)v;
}
static uint32_t bits_of(float f) {
    uint32_t v;
    memcpy(&v, &f, 4);
    return v;
}
static uint64_t bits_of_double(double d) {
    uint64_t v;
    memcpy(&v, &d, 8);
    return v;
}

REF(conversions) {
    for (int i = 0; i < INT(4); i++) {
        float v = F32P(0)[i];
        double d = F64P(1)[i];
        int64_t k = I64P(2)[i];
        uint32_t *o = U32P(3) + 16 * i;
        o[0] = to_int(rint(v)) ^ to_int(trunc(v)) * 3;
        o[1] = to_int(floor(v)) ^ to_int(ceil(v)) * 3;
        o[2] = to_uint(rint(v)) ^ to_uint(trunc(v)) * 3;
        o[3] = (uint32_t)(clamped(rint(v), INT64_MIN, INT64_MAX) >> 8);
        o[4] = (uint32_t)(clamped(floor(d), INT64_MIN, INT64_MAX) >> 16) ^ to_int(ceil(d));
        o[5] = (uint32_t)(to_ull(trunc(d)) >> 16);
        o[6] = bits_of((float)d);
        o[7] = bits_of(float_in(d, ZOO_RD)) ^ bits_of(float_in(d, ZOO_RU)) * 3;
        o[8] = bits_of(float_in(k, ZOO_RN)) ^ bits_of(float_in(k, ZOO_RZ)) * 3;
        o[9] = bits_of(float_in((uint64_t)k, ZOO_RU));
        uint64_t r = bits_of_double(double_in(k, ZOO_RD));
        o[10] = (uint32_t)(r >> 32) ^ (uint32_t)r;
        o[11] = bits_of((float)(int32_t)k) ^ bits_of(float_in((uint32_t)k, ZOO_RD));
        o[12] = (uint32_t)clamped((int32_t)(k >> 40), -128, 127);
        o[13] = (uint32_t)clamped((int32_t)(k >> 42), 0, 65535);
        o[14] = (uint32_t)clamped(k >> 28, 0, UINT32_MAX);
        o[15] = bits_of(v > 0 ? fminf(v, 1) : 0);
    }
}

REF(half_conversions) {
    static const enum zoo_round modes[] = {ZOO_RN, ZOO_RZ, ZOO_RD, ZOO_RU};
    for (int i = 0; i < INT(3); i++) {
        uint16_t *o = U16P(1) + 8 * i;
        for (int k = 0; k < 4; k++) {
            o[k] = zoo_to_half(ZOO_F16, F32P(0)[i], modes[k]);
            o[4 + k] = zoo_to_half(ZOO_BF16, F32P(0)[i], modes[k]);
        }
        F32P(2)[2 * i] = (float)zoo_half(ZOO_F16, o[0]);
        F32P(2)[2 * i + 1] = (float)zoo_half(ZOO_BF16, o[4]);
    }
}

REF(half_ints) {
    for (int i = 0; i < INT(3); i++) {
        int v = I32P(0)[i];
        uint16_t *o = U16P(1) + 4 * i;
        o[0] = zoo_to_half(ZOO_F16, v, ZOO_RN);
        o[1] = zoo_to_half(ZOO_F16, (uint32_t)v, ZOO_RZ);
        o[2] = zoo_to_half(ZOO_F16, (double)((int64_t)v * 3), ZOO_RU);
        o[3] = zoo_to_half(ZOO_F16, (int16_t)v, ZOO_RD);
        double h = zoo_half(ZOO_F16, zoo_to_half(ZOO_F16, v / 64, ZOO_RN));
        I32P(2)[2 * i] = (int32_t)(to_int(rint(h)) * 3 + to_int(trunc(h)));
        I32P(2)[2 * i + 1] = (int32_t)(to_uint(ceil(h)) + (uint32_t)clamped(floor(h), INT16_MIN, INT16_MAX));
    }
}

/* ---- arithmetic of halves: exact in 113 bits, rounded once ---- */
static uint16_t rounded(enum zoo_type type, quad v) {
    double d = (double)v;
    if ((quad)d != v && !(bits_of_double(d) & 1)) /* keep the inexactness: an odd last bit is no tie of a half */
        d = nextafter(d, (quad)d < v ? INFINITY : -INFINITY);
    return zoo_to_half(type, d, ZOO_RN);
}
static uint16_t clamp01(enum zoo_type type, uint16_t v) {
    double d = zoo_half(type, v);
    return d > 1 ? zoo_to_half(type, 1, ZOO_RN) : d > 0 ? v : 0;
}

REF(half2_arith) {
    enum zoo_type t = ZOO_F16;
    for (int i = 0; i < 2 * INT(3); i++) {
        uint16_t xb = U16P(0)[i], yb = U16P(1)[i], *o = U16P(2) + 24 * (i / 2) + i % 2;
        quad x = zoo_half(t, xb), y = zoo_half(t, yb);
        o[0] = rounded(t, x + y);
        o[2] = rounded(t, x - y);
        o[4] = rounded(t, x * y);
        o[6] = rounded(t, x * y + x);
        o[8] = x < y ? xb : yb;
        o[10] = x > y ? xb : yb;
        o[12] = xb | 0x8000;
        o[14] = clamp01(t, rounded(t, x + y));
        o[16] = x * y + y < 0 ? 0 : rounded(t, x * y + y);
        o[18] = x < y ? 0x3c00 : 0;
        o[20] = U16P(0)[i ^ 1];
        const uint16_t *a = U16P(0) + (i & ~1), *v = U16P(1) + (i & ~1);
        bool both = zoo_half(t, a[0]) >= zoo_half(t, v[0]) && zoo_half(t, a[1]) >= zoo_half(t, v[1]);
        o[22] = both ? a[0] : v[1];
    }
}

REF(bf162_arith) {
    enum zoo_type t = ZOO_BF16;
    for (int i = 0; i < 2 * INT(3); i++) {
        uint16_t xb = U16P(0)[i], yb = U16P(1)[i], *o = U16P(2) + 16 * (i / 2) + i % 2;
        quad x = zoo_half(t, xb), y = zoo_half(t, yb);
        o[0] = rounded(t, x + y);
        o[2] = rounded(t, x * y);
        o[4] = rounded(t, x * y + x);
        o[6] = x < y ? xb : yb;
        o[8] = x > y ? xb : yb;
        o[10] = xb ^ 0x8000;
        o[12] = i % 2 ? yb : zoo_to_half(t, (float)(x * 3), ZOO_RN);
        o[14] = x * y + y < 0 ? 0 : rounded(t, x * y + y);
    }
}

REF(half_scalar) {
    enum zoo_type t = ZOO_F16;
    for (int i = 0; i < INT(3); i++) {
        uint16_t xb = U16P(0)[i], yb = U16P(1)[i], *o = U16P(2) + 8 * i;
        double x = zoo_half(t, xb), y = zoo_half(t, yb);
        o[0] = rounded(t, (quad)x + y);
        o[1] = rounded(t, (quad)x * y);
        o[2] = rounded(t, (quad)x * y + x);
        o[3] = x > y ? xb : yb;
        o[4] = x < y ? xb : rounded(t, (quad)y - x);
        o[5] = zoo_to_half(t, (float)x * 0.3f, ZOO_RN);
        o[6] = clamp01(t, o[0]);
        o[7] = rounded(t, (quad)rint(x) + floor(y));
    }
}

/* ---- within an error ---- */
REF(fast_math) {
    for (int i = 0; i < INT(2); i++) {
        double v = F32P(0)[i], p = fabsf(F32P(0)[i]) + 0.01f;
        float *o = F32P(1) + 8 * i;
        o[0] = (float)exp(v);
        o[1] = (float)log(p);
        o[2] = (float)sin(v);
        o[3] = (float)cos(v);
        o[4] = (float)(v / (p + 1));
        o[5] = (float)(1 / sqrt(p));
        o[6] = (float)pow(p, 0.7);
        o[7] = (float)exp2(v);
    }
}

REF(fast_tanh) {
    for (int i = 0; i < INT(2); i++) F32P(1)[i] = (float)tanh((double)F32P(0)[i]);
}

REF(libm_float) {
    for (int i = 0; i < INT(2); i++) {
        float vf = F32P(0)[i];
        double v = vf, p = fabsf(vf) + 0.01f;
        float *o = F32P(1) + 12 * i;
        o[0] = (float)exp(v);
        o[1] = (float)log(p);
        o[2] = (float)sin(vf * 1000.0f);
        o[3] = (float)cos(vf * 1e6f);
        o[4] = (float)pow(p, 1.7f);
        o[5] = (float)tanh(v);
        o[6] = (float)erf(v);
        o[7] = (float)cbrt(v);
        o[8] = (float)fmod(v, 0.37f);
        o[9] = (float)log1p(p);
        o[10] = (float)atan2(v, p);
        o[11] = (float)(exp2(v) + log2(p) + log10(p));
    }
}

REF(libm_double) {
    for (int i = 0; i < INT(2); i++) {
        double v = F64P(0)[i], p = fabs(v) + 0.01, *o = F64P(1) + 8 * i;
        o[0] = exp(v);
        o[1] = log(p);
        o[2] = sin(v * 1000);
        o[3] = pow(p, 1.7);
        o[4] = tanh(v);
        o[5] = erf(v);
        o[6] = 1 / sqrt(p);
        o[7] = atan(v);
    }
}
