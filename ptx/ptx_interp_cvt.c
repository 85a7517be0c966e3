/* cvt of the interpreter: between integers and floats of all widths, packed pairs, tf32 and the two 8-bit floats. */
#include "ptx/ptx_machine.h"
#include <math.h>

typedef __int128 wide_int;

static bool is_float(enum ptx_type type) {
    return ptx_type_kind(type) == PTX_KIND_F;
}
static bool is_signed(enum ptx_type type) {
    return ptx_type_kind(type) == PTX_KIND_S;
}

static wide_int lowest(enum ptx_type type) {
    return is_signed(type) ? -((wide_int)1 << (ptx_type_bits(type) - 1)) : 0;
}
static wide_int highest(enum ptx_type type) {
    return ((wide_int)1 << (ptx_type_bits(type) - is_signed(type))) - 1;
}

/* The value of an integer operand as a number of 65 bits. */
static wide_int number(enum ptx_type type, uint64_t v) {
    return is_signed(type) ? (wide_int)(int64_t)v : (wide_int)v;
}

static double integral(double d, enum ptx_round mode) {
    switch (mode) {
    case PTX_RZI:
    case PTX_RZ:
        return trunc(d);
    case PTX_RMI:
    case PTX_RM:
        return floor(d);
    case PTX_RPI:
    case PTX_RP:
        return ceil(d);
    default:
        return rint(d);
    }
}

/* Out of range: the nearest number there is, whether .sat is written or not. NaN: as the manual has it. */
static uint64_t float_to_int(const struct ptx_instr *i, double d) {
    unsigned bits = ptx_type_bits(i->type);
    if (isnan(d)) return i->type2 != PTX_F64 && bits < 64 ? 0 : UINT64_C(1) << (bits - 1);
    d = integral(d, i->round);
    wide_int low = lowest(i->type), high = highest(i->type);
    if (d <= (double)low) return (uint64_t)low;
    if (d >= (double)high) /* as a double the highest of 64 bits is one more */
        return (uint64_t)high;
    return (uint64_t)(wide_int)d;
}

static uint64_t int_to_int(const struct ptx_instr *i, wide_int v) {
    if (i->modifiers & PTX_M_SAT) {
        wide_int low = lowest(i->type), high = highest(i->type);
        v = v < low ? low : v > high ? high : v;
    }
    return (uint64_t)v;
}

/* ---- to floats ---- */
static uint64_t to_e4m3(double d) {
    if (isnan(d)) return 0x7f;
    uint64_t sign = signbit(d) ? 0x80 : 0;
    double a = fabs(d);
    if (a > 448) return sign | 0x7e;
    if (a >= 256) /* the highest exponent has no infinity: 256, 288 … 448 */
        return sign | (0x70 + (uint64_t)rint(a / 32));
    static const struct ptx_format f = {3, 4};
    int e;
    double m = frexp(a, &e);
    return sign | ptx_round_bits(&f, false, (uint64_t)ldexp(m, 53), e - 53, false, PTX_RN);
}

static uint64_t to_e5m2(double d) {
    if (isnan(d)) return 0x7f;
    static const struct ptx_format f = {2, 5};
    int e;
    double m = frexp(fabs(d), &e);
    uint64_t r = isinf(d) ? 0x7b : ptx_round_bits(&f, false, (uint64_t)ldexp(m, 53), e - 53, false, PTX_RN);
    return (signbit(d) ? 0x80 : 0) | (r > 0x7b ? 0x7b : r);
}

static double from_fp8(enum ptx_type type, uint64_t v) {
    if (type == PTX_E5M2X2) return ptx_to_double(PTX_F16, v << 8);
    unsigned e = v >> 3 & 15, m = v & 7;
    double d = e == 15 && m == 7 ? NAN : e ? ldexp(8 + m, (int)e - 10) : ldexp(m, -9);
    return v & 0x80 ? -d : d;
}

static uint64_t to_tf32(double d, enum ptx_round mode) {
    static const struct ptx_format f = {10, 8};
    if (isnan(d) || isinf(d)) return ptx_from_double(PTX_F32, d, PTX_RN);
    int e;
    double m = frexp(fabs(d), &e);
    return ptx_round_bits(&f, signbit(d), (uint64_t)ldexp(m, 53), e - 53, false, mode) << 13;
}

static uint64_t clamp_finite(enum ptx_type type, uint64_t v) {
    uint64_t infinity = ptx_from_double(type, INFINITY, PTX_RN), sign = UINT64_C(1) << (ptx_type_bits(type) - 1);
    return (v & ~sign) == infinity ? (v & sign) | (infinity - 1) : v;
}

static uint64_t finish(const struct ptx_instr *i, enum ptx_type type, uint64_t v) {
    uint64_t sign = UINT64_C(1) << (ptx_type_bits(type) - 1);
    if (i->modifiers & PTX_M_SATFINITE) v = clamp_finite(type, v);
    if (i->modifiers & PTX_M_RELU && !ptx_is_nan(type, v) && v & sign) v = 0;
    if (i->modifiers & PTX_M_SAT) {
        double d = ptx_to_double(type, v);
        v = !(d > 0) ? 0 : d > 1 ? ptx_from_double(type, 1, PTX_RN) : v;
    }
    return i->modifiers & PTX_M_FTZ && type == PTX_F32 ? ptx_flush(type, v) : v;
}

static uint64_t to_float(const struct ptx_instr *i, enum ptx_type type, double d) {
    enum ptx_round mode = i->round;
    if (mode >= PTX_RNI && mode <= PTX_RPI) d = integral(d, mode);
    if (type == PTX_TF32) {
        uint64_t v = to_tf32(i->modifiers & PTX_M_RELU && d < 0 ? 0 : d, mode);
        return i->modifiers & PTX_M_SATFINITE && (v & 0x7fffffff) == 0x7f800000 ? (v & 0x80000000) | 0x7f7fe000 : v;
    }
    return finish(i, type, ptx_from_double(type, d, mode));
}

static uint64_t int_to_float(const struct ptx_instr *i, wide_int v) {
    bool negative = v < 0;
    uint64_t m = (uint64_t)(negative ? -v : v);
    return finish(i, i->type, ptx_round_bits(ptx_format_of(i->type), negative, m, 0, false, i->round));
}

static double source(struct ptx_thread *t, const struct ptx_instr *i, int k) {
    uint64_t v = ptx_get(t, &i->src[k], i->type2);
    if (i->modifiers & PTX_M_FTZ && i->type2 == PTX_F32) v = ptx_flush(PTX_F32, v);
    return ptx_to_double(i->type2, v);
}

/* Pairs. Of two sources the first is the upper half. */
static uint64_t half_of(const struct ptx_instr *i, double d) {
    if (i->modifiers & PTX_M_RELU && !isnan(d) && signbit(d)) d = 0;
    if (i->type == PTX_E4M3X2) return to_e4m3(d);
    if (i->type == PTX_E5M2X2) return to_e5m2(d);
    return to_float(i, ptx_half_type(i->type), d);
}

static enum ptx_step convert_pair(struct ptx_thread *t, const struct ptx_instr *i) {
    unsigned bits = ptx_type_bits(i->type) / 2;
    double high, low;
    if (i->srcs == 2 && i->type2 == PTX_F32) {
        high = source(t, i, 0);
        low = source(t, i, 1);
    } else if (i->srcs == 1 && (i->type2 == PTX_E4M3X2 || i->type2 == PTX_E5M2X2)) {
        uint64_t v = ptx_get(t, &i->src[0], i->type2);
        high = from_fp8(i->type2, v >> 8);
        low = from_fp8(i->type2, v & 0xff);
    } else if (i->srcs == 1 && ptx_half_type(i->type2) != PTX_NONE) {
        uint64_t v = ptx_get(t, &i->src[0], i->type2);
        high = ptx_to_double(ptx_half_type(i->type2), v >> 16);
        low = ptx_to_double(ptx_half_type(i->type2), v & 0xffff);
    } else {
        return ptx_fail_here(t, i);
    }
    ptx_put(t, &i->dst[0], i->type, half_of(i, high) << bits | half_of(i, low));
    return PTX_STEP_NEXT;
}

enum ptx_step ptx_x_cvt(struct ptx_thread *t, const struct ptx_instr *i) {
    if (i->round == PTX_RS) return ptx_fail_here(t, i);
    if (ptx_type_kind(i->type) == PTX_KIND_X2) return convert_pair(t, i);
    if (is_float(i->type2) ? !ptx_format_of(i->type2) : i->type == PTX_TF32) return ptx_fail_here(t, i);
    uint64_t r;
    if (is_float(i->type2)) {
        double d = source(t, i, 0);
        r = is_float(i->type) ? to_float(i, i->type, d) : float_to_int(i, d);
    } else {
        wide_int v = number(i->type2, ptx_get_int(t, &i->src[0], i->type2));
        r = is_float(i->type) ? int_to_float(i, v) : int_to_int(i, v);
    }
    ptx_put(t, &i->dst[0], i->type, r);
    return PTX_STEP_NEXT;
}
