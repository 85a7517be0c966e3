/* Integer arithmetic of the interpreter, and the opcodes that exist for integers and floats alike. */
#include "ptx/ptx_machine.h"

typedef __int128 wide_int;
typedef unsigned __int128 wide_uint;

static bool is_signed(enum ptx_type type) {
    return ptx_type_kind(type) == PTX_KIND_S;
}

/* Numbers as ptx_get_int gives them. The quotient by zero has all bits set, the remainder is the dividend: PTX leaves
 * both open, and this is what devices do. */
static uint64_t divide(enum ptx_type type, bool rem, uint64_t a, uint64_t b) {
    if (!b) return rem ? a : UINT64_MAX;
    if (!is_signed(type)) return rem ? a % b : a / b;
    if (b == UINT64_MAX) /* -1: the lowest number's quotient wraps */
        return rem ? 0 : -a;
    return (uint64_t)(rem ? (int64_t)a % (int64_t)b : (int64_t)a / (int64_t)b);
}

static bool less(enum ptx_type type, uint64_t a, uint64_t b) {
    return is_signed(type) ? (int64_t)a < (int64_t)b : a < b;
}

/* The part of the product that .lo, .hi, .wide (or nothing: lo) name. */
static uint64_t product(enum ptx_type type, uint32_t modifiers, uint64_t a, uint64_t b) {
    wide_uint p = is_signed(type) ? (wide_uint)((wide_int)(int64_t)a * (int64_t)b) : (wide_uint)a * b;
    return (uint64_t)(modifiers & PTX_M_HI ? p >> ptx_type_bits(type) : p);
}

static uint64_t product24(const struct ptx_instr *i, uint64_t a, uint64_t b) {
    bool s = is_signed(i->type);
    uint64_t x = s ? ptx_sign(ptx_bits(a, 24), 24) : ptx_bits(a, 24),
             y = s ? ptx_sign(ptx_bits(b, 24), 24) : ptx_bits(b, 24), p = x * y;
    p = i->modifiers & PTX_M_HI ? p >> 16 : p;
    return s ? ptx_sign(ptx_bits(p, 32), 32) : ptx_bits(p, 32);
}

static uint64_t saturate32(uint64_t v) {
    int64_t s = (int64_t)v;
    return (uint64_t)(s > INT32_MAX ? INT32_MAX : s < INT32_MIN ? INT32_MIN : s);
}

static uint64_t int_arith(const struct ptx_instr *i, enum ptx_type type, uint64_t a, uint64_t b, uint64_t c) {
    uint64_t r;
    switch (i->op) {
    case PTX_OP_ADD:
        r = a + b;
        return i->modifiers & PTX_M_SAT ? saturate32(r) : r;
    case PTX_OP_SUB:
        r = a - b;
        return i->modifiers & PTX_M_SAT ? saturate32(r) : r;
    case PTX_OP_MUL:
        return product(type, i->modifiers, a, b);
    case PTX_OP_MAD: /* .hi of 32 bits is a number with its sign still, for .sat */
        r = product(type, i->modifiers, a, b);
        r = i->modifiers & PTX_M_HI && is_signed(type) ? ptx_sign(r, ptx_type_bits(type)) + c : r + c;
        return i->modifiers & PTX_M_SAT ? saturate32(r) : r;
    case PTX_OP_MUL24:
        return product24(i, a, b);
    case PTX_OP_MAD24:
        r = product24(i, a, b) + c;
        return i->modifiers & PTX_M_SAT ? saturate32(r) : r;
    case PTX_OP_DIV:
        return divide(type, false, a, b);
    case PTX_OP_REM:
        return divide(type, true, a, b);
    case PTX_OP_SAD:
        return c + (less(type, a, b) ? b - a : a - b);
    case PTX_OP_NEG:
        return -a;
    case PTX_OP_ABS:
        return is_signed(type) && (int64_t)a < 0 ? -a : a;
    case PTX_OP_MIN:
    case PTX_OP_MAX:
        r = less(type, a, b) == (i->op == PTX_OP_MIN) ? a : b;
        if (i->srcs == 3) r = less(type, r, c) == (i->op == PTX_OP_MIN) ? r : c;
        return i->modifiers & PTX_M_RELU && (int64_t)r < 0 ? 0 : r;
    }
    return 0;
}

static uint64_t number(enum ptx_type type, uint64_t bits) {
    return is_signed(type) ? ptx_sign(bits, ptx_type_bits(type)) : bits;
}

static uint64_t scalar(const struct ptx_instr *i, enum ptx_type type, const uint64_t v[3]) {
    if (ptx_type_kind(type) == PTX_KIND_F) return ptx_float(i, type, v[0], v[1], v[2]);
    return int_arith(i, type, number(type, v[0]), number(type, v[1]), number(type, v[2]));
}

static enum ptx_type widened(enum ptx_type type) {
    switch (type) {
    case PTX_U16:
        return PTX_U32;
    case PTX_S16:
        return PTX_S32;
    case PTX_U32:
        return PTX_U64;
    default:
        return PTX_S64;
    }
}

/* Opcodes that work on a scalar of any type, or on each half of a packed one. */
enum ptx_step ptx_x_arith(struct ptx_thread *t, const struct ptx_instr *i) {
    enum ptx_type type = i->type, half = ptx_half_type(type), result = type;
    if (i->modifiers & PTX_M_CC) return ptx_x_carry(t, i);
    if (i->type2 || (half == PTX_NONE && ptx_type_kind(type) == PTX_KIND_X2) ||
        (ptx_type_kind(type) == PTX_KIND_F && !ptx_format_of(type)))
        return ptx_fail_here(t, i);
    uint64_t v[3] = {0};
    for (int k = 0; k < i->srcs && k < 3; k++) {
        bool sum = k == 2 && i->modifiers & PTX_M_WIDE;
        v[k] = ptx_get(t, &i->src[k], sum ? widened(type) : type);
    }
    uint64_t r;
    if (half != PTX_NONE) {
        unsigned bits = ptx_type_bits(half);
        r = 0;
        for (unsigned k = 0; k < 2; k++) {
            uint64_t h[3] = {ptx_bits(v[0] >> k * bits, bits), ptx_bits(v[1] >> k * bits, bits),
                             ptx_bits(v[2] >> k * bits, bits)};
            r |= ptx_bits(scalar(i, half, h), bits) << k * bits;
        }
    } else if (i->modifiers & PTX_M_WIDE) {
        result = widened(type);
        r = product(type, PTX_M_WIDE, number(type, v[0]), number(type, v[1])) + (i->op == PTX_OP_MAD ? v[2] : 0);
    } else {
        r = scalar(i, type, v);
    }
    ptx_put(t, &i->dst[0], result, r);
    return PTX_STEP_NEXT;
}

/* add.cc, addc, sub.cc, subc, mad.cc, madc: the carry (or borrow) is a bit of the thread. */
enum ptx_step ptx_x_carry(struct ptx_thread *t, const struct ptx_instr *i) {
    unsigned bits = ptx_type_bits(i->type);
    uint64_t a = ptx_get_int(t, &i->src[0], i->type), b = ptx_get_int(t, &i->src[1], i->type);
    bool in = t->carry && (i->op == PTX_OP_ADDC || i->op == PTX_OP_SUBC || i->op == PTX_OP_MADC);
    wide_uint sum;
    if (i->op == PTX_OP_SUB || i->op == PTX_OP_SUBC) {
        sum = (wide_uint)ptx_bits(a, bits) - ptx_bits(b, bits) - in;
    } else {
        if (i->op == PTX_OP_MAD || i->op == PTX_OP_MADC) {
            a = product(i->type, i->modifiers, a, b);
            b = ptx_get(t, &i->src[2], i->type);
        }
        sum = (wide_uint)ptx_bits(a, bits) + ptx_bits(b, bits) + in;
    }
    if (i->modifiers & PTX_M_CC) t->carry = (uint64_t)(sum >> bits) & 1;
    ptx_put(t, &i->dst[0], i->type, ptx_bits((uint64_t)sum, bits));
    return PTX_STEP_NEXT;
}

/* dp4a, dp2a: each of the two operand types is signed or not. */
enum ptx_step ptx_x_dot(struct ptx_thread *t, const struct ptx_instr *i) {
    bool a_signed = is_signed(i->type), b_signed = is_signed(i->type2 ? i->type2 : i->type),
         four = i->op == PTX_OP_DP4A;
    uint64_t a = ptx_get(t, &i->src[0], PTX_B32), b = ptx_get(t, &i->src[1], PTX_B32);
    uint32_t sum = (uint32_t)ptx_get(t, &i->src[2], PTX_B32);
    unsigned bits = four ? 8 : 16, n = four ? 4 : 2, first = !four && i->modifiers & PTX_M_HI ? 2 : 0;
    for (unsigned k = 0; k < n; k++) {
        uint64_t x = ptx_bits(a >> k * bits, bits), y = ptx_bits(b >> (first + k) * 8, 8);
        sum += (uint32_t)((a_signed ? ptx_sign(x, bits) : x) * (b_signed ? ptx_sign(y, 8) : y));
    }
    ptx_put(t, &i->dst[0], a_signed || b_signed ? PTX_S32 : PTX_U32, sum);
    return PTX_STEP_NEXT;
}
