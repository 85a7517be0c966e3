/* Comparison and selection of the interpreter: setp, set, selp, slct. */
#include "ptx/ptx_machine.h"
#include <math.h>

static bool compare_floats(enum ptx_compare c, double a, double b) {
    bool nan = isnan(a) || isnan(b);
    switch (c) {
    case PTX_EQ:
        return a == b;
    case PTX_NE:
        return !nan && a != b;
    case PTX_LT:
        return a < b;
    case PTX_LE:
        return a <= b;
    case PTX_GT:
        return a > b;
    case PTX_GE:
        return a >= b;
    case PTX_EQU:
        return nan || a == b;
    case PTX_NEU:
        return nan || a != b;
    case PTX_LTU:
        return nan || a < b;
    case PTX_LEU:
        return nan || a <= b;
    case PTX_GTU:
        return nan || a > b;
    case PTX_GEU:
        return nan || a >= b;
    case PTX_NUM:
        return !nan;
    default: /* PTX_NAN */
        return nan;
    }
}

static bool compare_ints(enum ptx_type type, enum ptx_compare c, uint64_t a, uint64_t b) {
    bool s = ptx_type_kind(type) == PTX_KIND_S, less = s ? (int64_t)a < (int64_t)b : a < b;
    switch (c) {
    case PTX_EQ:
        return a == b;
    case PTX_NE:
        return a != b;
    case PTX_LT:
        return less;
    case PTX_LE:
        return less || a == b;
    case PTX_GT:
        return !less && a != b;
    case PTX_GE:
        return !less;
    case PTX_LO:
        return a < b;
    case PTX_LS:
        return a <= b;
    case PTX_HI_CMP:
        return a > b;
    default: /* PTX_HS */
        return a >= b;
    }
}

static bool compare(const struct ptx_instr *i, enum ptx_type type, uint64_t a, uint64_t b) {
    if (!ptx_format_of(type)) {
        unsigned bits = ptx_type_bits(type);
        bool s = ptx_type_kind(type) == PTX_KIND_S;
        return compare_ints(type, i->compare, s ? ptx_sign(a, bits) : a, s ? ptx_sign(b, bits) : b);
    }
    if (i->modifiers & PTX_M_FTZ && type != PTX_F64) {
        a = ptx_flush(type, a);
        b = ptx_flush(type, b);
    }
    return compare_floats(i->compare, ptx_to_double(type, a), ptx_to_double(type, b));
}

static bool combined(struct ptx_thread *t, const struct ptx_instr *i, bool v) {
    if (!i->combine || i->srcs < 3) return v;
    bool c = ptx_get_pred(t, &i->src[2]);
    return i->combine == PTX_SUB_AND ? v && c : i->combine == PTX_SUB_OR ? v || c : v != c;
}

/* Of a packed type, the results of the low and the high half; else the result and its opposite. */
static void both(struct ptx_thread *t, const struct ptx_instr *i, enum ptx_type type, bool r[2]) {
    uint64_t a = ptx_get(t, &i->src[0], type), b = ptx_get(t, &i->src[1], type);
    enum ptx_type half = ptx_half_type(type);
    if (half != PTX_NONE) {
        unsigned bits = ptx_type_bits(half);
        r[0] = compare(i, half, ptx_bits(a, bits), ptx_bits(b, bits));
        r[1] = compare(i, half, a >> bits, b >> bits);
    } else {
        r[0] = compare(i, type, a, b);
        r[1] = !r[0];
    }
}

enum ptx_step ptx_x_setp(struct ptx_thread *t, const struct ptx_instr *i) {
    bool r[2];
    both(t, i, i->type, r);
    bool p = combined(t, i, r[0]), q = combined(t, i, r[1]);
    ptx_put(t, &i->dst[0], PTX_PRED, p);
    if (i->dsts > 1) ptx_put(t, &i->dst[1], PTX_PRED, q);
    return PTX_STEP_NEXT;
}

/* What "true" is in the destination's type. */
static uint64_t truth(enum ptx_type type, unsigned bits) {
    return ptx_format_of(type) ? ptx_from_double(type, 1, PTX_RN) : ptx_bits(UINT64_MAX, bits);
}

enum ptx_step ptx_x_set(struct ptx_thread *t, const struct ptx_instr *i) {
    enum ptx_type from = i->type2 ? i->type2 : i->type, half = ptx_half_type(from);
    bool r[2];
    both(t, i, from, r);
    bool p = combined(t, i, r[0]), q = combined(t, i, r[1]);
    uint64_t v;
    if (half != PTX_NONE) {
        enum ptx_type to = ptx_half_type(i->type);
        uint64_t one = truth(to, 16);
        v = (q ? one << 16 : 0) | (p ? one : 0);
    } else {
        v = p ? truth(i->type, ptx_type_bits(i->type)) : 0;
    }
    ptx_put(t, &i->dst[0], i->type, v);
    return PTX_STEP_NEXT;
}

enum ptx_step ptx_x_selp(struct ptx_thread *t, const struct ptx_instr *i) {
    const struct ptx_operand *o = ptx_get_pred(t, &i->src[2]) ? &i->src[0] : &i->src[1];
    ptx_put(t, &i->dst[0], i->type, ptx_get(t, o, i->type));
    return PTX_STEP_NEXT;
}

/* slct: by the sign of the third operand; NaN selects the second. */
enum ptx_step ptx_x_slct(struct ptx_thread *t, const struct ptx_instr *i) {
    bool first;
    if (i->type2 == PTX_F32)
        first = ptx_to_double(PTX_F32, ptx_get(t, &i->src[2], PTX_F32)) >= 0 ||
                (i->modifiers & PTX_M_FTZ && ptx_is_subnormal(PTX_F32, ptx_get(t, &i->src[2], PTX_F32)));
    else
        first = (int64_t)ptx_get_int(t, &i->src[2], PTX_S32) >= 0;
    ptx_put(t, &i->dst[0], i->type, ptx_get(t, first ? &i->src[0] : &i->src[1], i->type));
    return PTX_STEP_NEXT;
}
