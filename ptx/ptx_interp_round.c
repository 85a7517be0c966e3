/* Numbers of the interpreter: IEEE formats of 8 to 64 bits, one rounding routine for all of them, and double arithmetic
 * whose result can be rounded a second time without harm. No floating-point environment is needed but for double's own
 * operations in a directed mode. */
#include "ptx/ptx_machine.h"
#include <fenv.h>
#include <math.h>
#include <string.h>

const struct ptx_format *ptx_format_of(enum ptx_type type) {
    static const struct ptx_format f16 = {10, 5}, bf16 = {7, 8}, f32 = {23, 8}, f64 = {52, 11};
    switch (type) {
    case PTX_F16:
        return &f16;
    case PTX_BF16:
        return &bf16;
    case PTX_F32:
        return &f32;
    case PTX_F64:
        return &f64;
    default:
        return NULL;
    }
}

enum ptx_type ptx_half_type(enum ptx_type packed) {
    switch (packed) {
    case PTX_F16X2:
        return PTX_F16;
    case PTX_BF16X2:
        return PTX_BF16;
    case PTX_F32X2:
        return PTX_F32;
    case PTX_U16X2:
        return PTX_U16;
    case PTX_S16X2:
        return PTX_S16;
    default:
        return PTX_NONE;
    }
}

/* Whether the kept part goes up by one in magnitude. half: the first bit dropped; rest: any after it. */
static bool rounds_up(enum ptx_round mode, bool negative, bool odd, bool half, bool rest) {
    switch (mode) {
    case PTX_RZ:
        return false;
    case PTX_RM:
        return negative && (half || rest);
    case PTX_RP:
        return !negative && (half || rest);
    case PTX_RNA:
        return half;
    default:
        return half && (rest || odd);
    }
}

static uint64_t overflow(const struct ptx_format *f, bool negative, enum ptx_round mode) {
    uint64_t infinity = ((UINT64_C(1) << f->exponent) - 1) << f->mantissa;
    bool finite = mode == PTX_RZ || (mode == PTX_RM && !negative) || (mode == PTX_RP && negative);
    return finite ? infinity - 1 : infinity;
}

uint64_t ptx_round_bits(const struct ptx_format *f, bool negative, uint64_t m, int e, bool sticky,
                        enum ptx_round mode) {
    uint64_t sign = (uint64_t)negative << (f->mantissa + f->exponent);
    int bias = (1 << (f->exponent - 1)) - 1, lowest = 1 - bias;
    if (!m) return sign;
    int shift = __builtin_clzll(m);
    m <<= shift;
    int top = e - shift + 63; /* the value is 1.xxx × 2^top */
    int drop = 64 - (f->mantissa + 1) + (top < lowest ? lowest - top : 0);
    uint64_t kept = 0;
    bool half = false, rest = sticky;
    if (drop < 64) {
        kept = m >> drop;
        half = m >> (drop - 1) & 1;
        rest |= (m & ((UINT64_C(1) << (drop - 1)) - 1)) != 0;
    } else if (drop == 64) {
        half = m >> 63;
        rest |= m << 1 != 0;
    } else {
        rest = true;
    }
    kept += rounds_up(mode, negative, kept & 1, half, rest);
    if (top < lowest) /* subnormal; a carry makes it the smallest normal number */
        return sign | kept;
    if (kept >> (f->mantissa + 1)) {
        kept >>= 1;
        top++;
    }
    if (top > bias) return sign | overflow(f, negative, mode);
    return sign | (uint64_t)(top + bias) << f->mantissa | (kept & ((UINT64_C(1) << f->mantissa) - 1));
}

uint64_t ptx_nan(enum ptx_type type) {
    return type == PTX_F64 ? UINT64_C(0x7ff8000000000000) : type == PTX_F32 ? 0x7fffffff : 0x7fff;
}

static uint64_t exponent_mask(const struct ptx_format *f) {
    return ((UINT64_C(1) << f->exponent) - 1) << f->mantissa;
}

bool ptx_is_nan(enum ptx_type type, uint64_t bits) {
    const struct ptx_format *f = ptx_format_of(type);
    uint64_t e = exponent_mask(f);
    return (bits & e) == e && (bits & ((UINT64_C(1) << f->mantissa) - 1));
}

bool ptx_is_subnormal(enum ptx_type type, uint64_t bits) {
    const struct ptx_format *f = ptx_format_of(type);
    return !(bits & exponent_mask(f)) && (bits & ((UINT64_C(1) << f->mantissa) - 1));
}

uint64_t ptx_flush(enum ptx_type type, uint64_t bits) {
    const struct ptx_format *f = ptx_format_of(type);
    return ptx_is_subnormal(type, bits) ? bits & UINT64_C(1) << (f->mantissa + f->exponent) : bits;
}

double ptx_to_double(enum ptx_type type, uint64_t bits) {
    double d;
    if (type == PTX_F64) {
        memcpy(&d, &bits, 8);
        return d;
    }
    const struct ptx_format *f = ptx_format_of(type);
    int bias = (1 << (f->exponent - 1)) - 1, e = (int)((bits & exponent_mask(f)) >> f->mantissa);
    uint64_t m = bits & ((UINT64_C(1) << f->mantissa) - 1);
    bool negative = bits >> (f->mantissa + f->exponent) & 1;
    if (e == (1 << f->exponent) - 1)
        d = m ? NAN : INFINITY;
    else if (e)
        d = ldexp((double)(m | UINT64_C(1) << f->mantissa), e - bias - f->mantissa);
    else
        d = ldexp((double)m, 1 - bias - f->mantissa);
    return negative ? -d : d;
}

uint64_t ptx_from_double(enum ptx_type type, double value, enum ptx_round mode) {
    uint64_t bits;
    memcpy(&bits, &value, 8);
    if (isnan(value)) return ptx_nan(type);
    if (type == PTX_F64) return bits;
    const struct ptx_format *f = ptx_format_of(type);
    if (isinf(value)) return (bits >> 63) << (f->mantissa + f->exponent) | exponent_mask(f);
    uint64_t m = bits & ((UINT64_C(1) << 52) - 1);
    int e = (int)(bits >> 52 & 0x7ff);
    if (e)
        m |= UINT64_C(1) << 52;
    else
        e = 1;
    return ptx_round_bits(f, bits >> 63, m, e - 1075, false, mode);
}

/* ---- round to odd ---- */
static double next_odd(double value, double error) {
    uint64_t bits;
    memcpy(&bits, &value, 8);
    if (error == 0 || bits & 1) return value;
    bits += (error > 0) == (value > 0) ? 1 : UINT64_MAX; /* towards the exact result */
    memcpy(&value, &bits, 8);
    return value;
}

double ptx_add_odd(double a, double b, enum ptx_round mode) {
    volatile double s = a + b;
    if (!isfinite(s)) return s;
    volatile double bb = s - a, ra = s - bb;
    double error = (a - ra) + (b - bb);
    if (s == 0 && error == 0 && mode == PTX_RM && !(signbit(a) == 0 && signbit(b) == 0)) return -0.0;
    return next_odd(s, error);
}

double ptx_div_odd(double a, double b) {
    double q = a / b;
    if (!isfinite(q) || q == 0 || !isfinite(b)) return q;
    double rest = fma(-q, b, a);
    return next_odd(q, b > 0 ? rest : -rest);
}

double ptx_sqrt_odd(double a) {
    double s = sqrt(a);
    return isfinite(s) && s > 0 ? next_odd(s, fma(-s, s, a)) : s;
}

/* Not inlined, and through volatile: a compiler must not move the operation out of the mode. */
__attribute__((noinline)) double ptx_double_op(char op, double x, double y, double z, enum ptx_round mode) {
    volatile double a = x, b = y, c = z, r = 0;
    int before = fegetround();
    fesetround(mode == PTX_RZ   ? FE_TOWARDZERO
               : mode == PTX_RM ? FE_DOWNWARD
               : mode == PTX_RP ? FE_UPWARD
                                : FE_TONEAREST);
    switch (op) {
    case '+':
        r = a + b;
        break;
    case '-':
        r = a - b;
        break;
    case '*':
        r = a * b;
        break;
    case '/':
        r = a / b;
        break;
    case 's':
        r = sqrt(a);
        break;
    case 'f':
        r = fma(a, b, c);
        break;
    }
    fesetround(before);
    return r;
}
