/* Float arithmetic of the interpreter.
 *
 * add, sub, mul, fma, mad, div, rcp and sqrt without .approx are exact by IEEE 754 in every rounding mode and format:
 * up to 32 bits they are computed in double, rounded to odd, and rounded once more; double by the machine in that mode.
 * What PTX leaves to the device (.approx, div.full, sin, cos, ex2, lg2, rsqrt, tanh) is the double result of the C
 * library rounded to nearest: at most one unit in the last place of an f32 off, less than any device's own error.
 * A NaN result is the canonical one. */
#include "ptx/ptx_machine.h"
#include <math.h>

static uint64_t clamp01(enum ptx_type type, uint64_t v) {
    double d = ptx_to_double(type, v);
    if (isnan(d) || !(d > 0)) return 0;
    return d > 1 ? ptx_from_double(type, 1, PTX_RN) : v;
}

static uint64_t sign_bit(enum ptx_type type) {
    return UINT64_C(1) << (ptx_type_bits(type) - 1);
}

uint64_t ptx_float_minmax(bool max, enum ptx_type type, uint32_t modifiers, uint64_t a, uint64_t b) {
    uint64_t sign = sign_bit(type), flip = (a ^ b) & sign;
    if (modifiers & PTX_M_ABS) {
        a &= ~sign;
        b &= ~sign;
    }
    bool an = ptx_is_nan(type, a), bn = ptx_is_nan(type, b);
    uint64_t r;
    if (an || bn) {
        if ((an && bn) || modifiers & PTX_M_NAN) return ptx_nan(type);
        r = an ? b : a;
    } else {
        double x = ptx_to_double(type, a), y = ptx_to_double(type, b);
        bool a_less = x < y || (x == y && signbit(x) && !signbit(y)); /* -0 is below +0 */
        r = a_less != max ? a : b;
    }
    return modifiers & PTX_M_XORSIGN ? (r & ~sign) | flip : r;
}

/* rcp.approx.ftz.f64 and its kin give the upper half of a double only. */
static uint64_t double_approx(double v) {
    uint64_t bits = ptx_flush(PTX_F64, ptx_from_double(PTX_F64, v, PTX_RN));
    return ptx_is_nan(PTX_F64, bits) ? bits : bits & ~UINT64_C(0xffffffff);
}

static uint64_t double_arith(const struct ptx_instr *i, uint64_t ab, uint64_t bb, uint64_t cb) {
    double a = ptx_to_double(PTX_F64, ab), b = ptx_to_double(PTX_F64, bb), c = ptx_to_double(PTX_F64, cb), r = NAN;
    enum ptx_round mode = i->round;
    bool approx = i->modifiers & PTX_M_APPROX;
    switch (i->op) {
    case PTX_OP_ADD:
        r = ptx_double_op('+', a, b, 0, mode);
        break;
    case PTX_OP_SUB:
        r = ptx_double_op('-', a, b, 0, mode);
        break;
    case PTX_OP_MUL:
        r = ptx_double_op('*', a, b, 0, mode);
        break;
    case PTX_OP_DIV:
        r = ptx_double_op('/', a, b, 0, mode);
        break;
    case PTX_OP_RCP:
        if (approx) return double_approx(1 / ptx_to_double(PTX_F64, ptx_flush(PTX_F64, ab)));
        r = ptx_double_op('/', 1, a, 0, mode);
        break;
    case PTX_OP_SQRT:
        r = ptx_double_op('s', a, 0, 0, mode);
        break;
    case PTX_OP_RSQRT:
        if (i->modifiers & PTX_M_FTZ) return double_approx(1 / sqrt(ptx_to_double(PTX_F64, ptx_flush(PTX_F64, ab))));
        r = 1 / sqrt(a);
        break;
    case PTX_OP_FMA:
    case PTX_OP_MAD:
        r = ptx_double_op('f', a, b, c, mode);
        break;
    }
    return ptx_from_double(PTX_F64, r, PTX_RN);
}

/* Formats of up to 32 bits; the result may be rounded to one of them in `mode`. */
static double narrow_arith(const struct ptx_instr *i, double a, double b, double c, enum ptx_round mode) {
    switch (i->op) {
    case PTX_OP_ADD:
        return ptx_add_odd(a, b, mode);
    case PTX_OP_SUB:
        return ptx_add_odd(a, -b, mode);
    case PTX_OP_MUL:
        return a * b; /* exact: 48 bits */
    case PTX_OP_FMA:
    case PTX_OP_MAD:
        return ptx_add_odd(a * b, c, mode);
    case PTX_OP_DIV:
        return ptx_div_odd(a, b);
    case PTX_OP_RCP:
        return ptx_div_odd(1, a);
    case PTX_OP_SQRT:
        return ptx_sqrt_odd(a);
    case PTX_OP_RSQRT:
        return 1 / sqrt(a);
    case PTX_OP_SIN:
        return sin(a);
    case PTX_OP_COS:
        return cos(a);
    case PTX_OP_EX2:
        return exp2(a);
    case PTX_OP_LG2:
        return log2(a);
    case PTX_OP_TANH:
        return tanh(a);
    default:
        return NAN;
    }
}

static uint64_t signs(const struct ptx_instr *i, enum ptx_type type, uint64_t a) {
    return i->op == PTX_OP_ABS ? a & ~sign_bit(type) : a ^ sign_bit(type);
}

uint64_t ptx_float(const struct ptx_instr *i, enum ptx_type type, uint64_t a, uint64_t b, uint64_t c) {
    bool flush = i->modifiers & PTX_M_FTZ;
    if (flush && type != PTX_F64) {
        a = ptx_flush(type, a);
        b = ptx_flush(type, b);
        c = ptx_flush(type, c);
    }
    uint64_t r;
    if (i->op == PTX_OP_ABS || i->op == PTX_OP_NEG) {
        r = signs(i, type, a);
    } else if (i->op == PTX_OP_MIN || i->op == PTX_OP_MAX) {
        r = ptx_float_minmax(i->op == PTX_OP_MAX, type, i->modifiers, a, b);
        if (i->srcs == 3) r = ptx_float_minmax(i->op == PTX_OP_MAX, type, i->modifiers, r, c);
    } else if (type == PTX_F64) {
        r = double_arith(i, a, b, c);
    } else {
        enum ptx_round mode = i->round ? (enum ptx_round)i->round : PTX_RN;
        double d = narrow_arith(i, ptx_to_double(type, a), ptx_to_double(type, b), ptx_to_double(type, c), mode);
        r = ptx_from_double(type, d, mode);
    }
    if (i->modifiers & PTX_M_SAT) r = clamp01(type, r);
    if (i->modifiers & PTX_M_RELU && !ptx_is_nan(type, r) && r & sign_bit(type)) r = 0;
    return flush && type != PTX_F64 ? ptx_flush(type, r) : r;
}

enum ptx_step ptx_x_testp(struct ptx_thread *t, const struct ptx_instr *i) {
    if (!ptx_format_of(i->type)) return ptx_fail_here(t, i);
    uint64_t v = ptx_get(t, &i->src[0], i->type);
    double d = ptx_to_double(i->type, v);
    bool subnormal = ptx_is_subnormal(i->type, v), r = false;
    switch (i->sub) {
    case PTX_SUB_FINITE:
        r = isfinite(d);
        break;
    case PTX_SUB_INFINITE:
        r = isinf(d);
        break;
    case PTX_SUB_NUMBER:
        r = !isnan(d);
        break;
    case PTX_SUB_NOTANUMBER:
        r = isnan(d);
        break;
    case PTX_SUB_NORMAL:
        r = isfinite(d) && d != 0 && !subnormal;
        break;
    case PTX_SUB_SUBNORMAL:
        r = subnormal;
        break;
    default:
        return ptx_fail_here(t, i);
    }
    ptx_put(t, &i->dst[0], PTX_PRED, r);
    return PTX_STEP_NEXT;
}

/* copysign d, a, b: the sign of a, the magnitude of b. */
enum ptx_step ptx_x_copysign(struct ptx_thread *t, const struct ptx_instr *i) {
    uint64_t sign = sign_bit(i->type);
    uint64_t a = ptx_get(t, &i->src[0], i->type), b = ptx_get(t, &i->src[1], i->type);
    ptx_put(t, &i->dst[0], i->type, (a & sign) | (b & ~sign));
    return PTX_STEP_NEXT;
}
