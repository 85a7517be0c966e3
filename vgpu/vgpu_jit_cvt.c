/* cvt: between integers and floats of all widths, pairs, tf32, the 8-bit floats. */
#include "vgpu/vgpu_jit_float.h"

static bool is_signed(unsigned type) {
    return ptx_type_kind(type) == PTX_KIND_S;
}
static bool is_float(unsigned type) {
    return ptx_type_kind(type) == PTX_KIND_F;
}
static LLVMValueRef both(struct jit_gen *g, LLVMValueRef a, uint64_t mask) {
    return LLVMBuildAnd(g->b, a, jit_const(g, jit_bits(a), mask), "");
}

/* ---- sources: f32 or f64 ---- */
static LLVMValueRef source(struct jit_gen *g, const struct ptx_instr *i, int k) {
    const struct ptx_operand *o = &i->src[k];
    LLVMValueRef v;
    switch (i->type2) {
    case PTX_F16:
    case PTX_BF16:
        return jit_from_half(g, jit_read_int(g, o, 16), i->type2 == PTX_BF16);
    case PTX_F64:
        return jit_read_float(g, o, 64);
    default:
        v = jit_read_float(g, o, 32);
        return i->modifiers & PTX_M_FTZ ? jit_flush(g, v) : v;
    }
}

/* ---- to integers ---- */
static LLVMValueRef integral(struct jit_gen *g, LLVMValueRef v, unsigned round) {
    switch (round) {
    case PTX_RZI:
    case PTX_RZ:
        return jit_call1(g, "llvm.trunc", v);
    case PTX_RMI:
    case PTX_RM:
        return jit_call1(g, "llvm.floor", v);
    case PTX_RPI:
    case PTX_RP:
        return jit_call1(g, "llvm.ceil", v);
    default:
        return jit_call1(g, "llvm.rint", v);
    }
}

/* Out of range: the nearest number there is. NaN: 0 in up to 32 bits, the highest bit in 64 and of f64. */
static LLVMValueRef to_int(struct jit_gen *g, const struct ptx_instr *i, LLVMValueRef v) {
    unsigned bits = ptx_type_bits(i->type), wide = bits < 32 ? 32 : bits, from = jit_bits(v);
    bool s = is_signed(i->type);
    double high = s ? (double)(UINT64_C(1) << (bits - 1)) : 2.0 * (double)(UINT64_C(1) << (bits - 1));
    uint64_t top = s ? (UINT64_C(1) << (bits - 1)) - 1 : bits == 64 ? UINT64_MAX : (UINT64_C(1) << bits) - 1;
    uint64_t bottom = s ? ~top : 0, nan = i->type2 != PTX_F64 && bits < 64 ? 0 : UINT64_C(1) << (bits - 1);
    v = integral(g, v, i->round);
    LLVMValueRef over = jit_ordered(g, LLVMRealOGE, v, jit_const_float(g, from, high));
    LLVMValueRef under = jit_ordered(g, LLVMRealOLT, v, jit_const_float(g, from, s ? -high : 0));
    LLVMValueRef none = jit_ordered(g, LLVMRealUNO, v, v),
                 out = LLVMBuildOr(g->b, LLVMBuildOr(g->b, over, under, ""), none, "");
    LLVMValueRef safe = jit_select(g, out, jit_const_float(g, from, 0), v);
    LLVMValueRef n =
        s ? LLVMBuildFPToSI(g->b, safe, jit_int(g, wide), "") : LLVMBuildFPToUI(g->b, safe, jit_int(g, wide), "");
    n = jit_select(g, over, jit_const(g, wide, top), n);
    n = jit_select(g, under, jit_const(g, wide, bottom), n);
    n = jit_select(g, none, jit_const(g, wide, nan), n);
    return jit_resize(g, n, bits, false);
}

static LLVMValueRef int_to_int(struct jit_gen *g, const struct ptx_instr *i) {
    unsigned from = ptx_type_bits(i->type2), to = ptx_type_bits(i->type);
    bool from_signed = is_signed(i->type2), to_signed = is_signed(i->type);
    LLVMValueRef v = jit_read_int(g, &i->src[0], from);
    if (!(i->modifiers & PTX_M_SAT)) return jit_resize(g, v, to, from_signed);
    unsigned wide = (from > to ? from : to) + 1; /* holds both ranges as signed numbers */
    v = jit_resize(g, v, wide, from_signed);
    uint64_t top = to_signed ? (UINT64_C(1) << (to - 1)) - 1 : to == 64 ? UINT64_MAX : (UINT64_C(1) << to) - 1;
    LLVMValueRef high = jit_resize(g, jit_const(g, 64, top), wide, false);
    LLVMValueRef low = jit_resize(g, jit_const(g, 64, to_signed ? ~top : 0), wide, true);
    v = jit_select(g, LLVMBuildICmp(g->b, LLVMIntSLT, v, low, ""), low, v);
    v = jit_select(g, LLVMBuildICmp(g->b, LLVMIntSGT, v, high, ""), high, v);
    return jit_resize(g, v, to, false);
}

/* ---- to floats ---- */
static LLVMValueRef below_zero(struct jit_gen *g, LLVMValueRef v) {
    return jit_ordered(g, LLVMRealOLT, v, jit_const_float(g, jit_bits(v), 0));
}

static LLVMValueRef to_tf32(struct jit_gen *g, const struct ptx_instr *i, LLVMValueRef v) {
    if (i->modifiers & PTX_M_RELU) v = jit_select(g, below_zero(g, v), jit_const_float(g, 32, 0), v);
    LLVMValueRef n = jit_to_int(g, v), a = both(g, n, 0x7fffffff), r;
    LLVMValueRef special = LLVMBuildICmp(g->b, LLVMIntUGE, a, jit_const(g, 32, 0x7f800000), "");
    if (i->round == PTX_RZ)
        r = n;
    else if (i->round == PTX_RN) {
        LLVMValueRef odd = both(g, LLVMBuildLShr(g->b, n, jit_const(g, 32, 13), ""), 1);
        r = LLVMBuildAdd(g->b, LLVMBuildAdd(g->b, n, odd, ""), jit_const(g, 32, 0xfff), "");
    } else
        r = LLVMBuildAdd(g->b, n, jit_const(g, 32, 0x1000), "");
    r = both(g, r, 0xffffe000);
    r = jit_select(g, special, jit_to_int(g, jit_nan(g, v)), r);
    if (i->modifiers & PTX_M_SATFINITE) {
        LLVMValueRef inf = LLVMBuildICmp(g->b, LLVMIntEQ, both(g, r, 0x7fffffff), jit_const(g, 32, 0x7f800000), "");
        LLVMValueRef most = LLVMBuildOr(g->b, both(g, r, 0x80000000), jit_const(g, 32, 0x7f7fe000), "");
        r = jit_select(g, inf, most, r);
    }
    return r;
}

/* f32 → 8 bits: m of mantissa; overflow and infinity: the largest finite number, with the sign. */
static LLVMValueRef to_small(struct jit_gen *g, LLVMValueRef v, unsigned m, unsigned bias, uint64_t most,
                             double limit) {
    LLVMValueRef n = jit_to_int(g, v), a = both(g, n, 0x7fffffff), f = jit_to_float(g, a);
    LLVMValueRef sign = LLVMBuildLShr(g->b, both(g, n, 0x80000000), jit_const(g, 32, 24), "");
    LLVMValueRef odd = both(g, LLVMBuildLShr(g->b, a, jit_const(g, 32, 23 - m), ""), 1);
    LLVMValueRef normal = LLVMBuildAdd(g->b, LLVMBuildAdd(g->b, a, odd, ""),
                                       jit_const(g, 32, ((bias - 127u) << 23) + (1u << (22 - m)) - 1), "");
    normal = LLVMBuildLShr(g->b, normal, jit_const(g, 32, 23 - m), "");
    LLVMValueRef magic = jit_const(g, 32, (127 - bias + 23 - m + 1) << 23);
    LLVMValueRef small =
        LLVMBuildSub(g->b, jit_to_int(g, LLVMBuildFAdd(g->b, f, jit_to_float(g, magic), "")), magic, "");
    LLVMValueRef r =
        jit_select(g, LLVMBuildICmp(g->b, LLVMIntULT, a, jit_const(g, 32, (128 - bias) << 23), ""), small, normal);
    r = jit_select(g, jit_ordered(g, LLVMRealOGT, f, jit_const_float(g, 32, limit)), jit_const(g, 32, most), r);
    r = LLVMBuildOr(g->b, r, sign, "");
    return jit_select(g, jit_ordered(g, LLVMRealUNO, v, v), jit_const(g, 32, 0x7f), r);
}

static LLVMValueRef from_e4m3(struct jit_gen *g, LLVMValueRef n) { /* i32 with 8 bits */
    LLVMValueRef f = jit_to_float(g, LLVMBuildShl(g->b, both(g, n, 0x7f), jit_const(g, 32, 20), ""));
    f = LLVMBuildFMul(g->b, f, jit_const_float(g, 32, 0x1p120), "");
    LLVMValueRef sign = LLVMBuildShl(g->b, both(g, n, 0x80), jit_const(g, 32, 24), "");
    LLVMValueRef r = LLVMBuildOr(g->b, jit_to_int(g, f), sign, "");
    LLVMValueRef nan = LLVMBuildICmp(g->b, LLVMIntEQ, both(g, n, 0x7f), jit_const(g, 32, 0x7f), "");
    return jit_to_float(g, jit_select(g, nan, jit_const(g, 32, 0x7fffffff), r));
}

static LLVMValueRef clamp_finite(struct jit_gen *g, LLVMValueRef n, uint64_t infinity) {
    unsigned bits = jit_bits(n);
    uint64_t sign = UINT64_C(1) << (bits - 1);
    LLVMValueRef inf = LLVMBuildICmp(g->b, LLVMIntEQ, both(g, n, sign - 1), jit_const(g, bits, infinity), "");
    return jit_select(g, inf, LLVMBuildSub(g->b, n, jit_const(g, bits, 1), ""), n);
}

/* v: f32 or f64 → the bits of f16, bf16, f32, f64. */
static LLVMValueRef to_float(struct jit_gen *g, const struct ptx_instr *i, unsigned type, LLVMValueRef v) {
    unsigned bits = ptx_type_bits(type);
    bool half = bits == 16, bf16 = type == PTX_BF16;
    if (i->round >= PTX_RNI && i->round <= PTX_RPI) v = integral(g, v, i->round);
    if (i->modifiers & PTX_M_RELU) { /* -0 too becomes +0 */
        LLVMValueRef zero = jit_const_float(g, jit_bits(v), 0);
        v = jit_select(g, jit_ordered(g, LLVMRealOLE, v, zero), zero, v);
    }
    if (i->modifiers & PTX_M_SAT) v = jit_saturate(g, v);
    if (half) {
        if (jit_bits(v) == 64) v = jit_narrow_odd(g, v);
        v = jit_to_half(g, v, bf16, i->round);
        return i->modifiers & PTX_M_SATFINITE ? clamp_finite(g, v, bf16 ? 0x7f80 : 0x7c00) : v;
    }
    if (bits == 32 && jit_bits(v) == 64) v = jit_narrow(g, v, i->round);
    if (bits == 64 && jit_bits(v) == 32) v = LLVMBuildFPExt(g->b, v, jit_float(g, 64), "");
    if (bits == 32 && i->modifiers & PTX_M_FTZ) v = jit_flush(g, v);
    return v;
}

/* An integer as f64, its last bit set where inexact. */
static LLVMValueRef int_odd(struct jit_gen *g, LLVMValueRef n, bool s) {
    if (jit_bits(n) < 64)
        return s ? LLVMBuildSIToFP(g->b, n, jit_float(g, 64), "") : LLVMBuildUIToFP(g->b, n, jit_float(g, 64), "");
    LLVMValueRef minus = LLVMBuildICmp(g->b, LLVMIntSLT, n, jit_const(g, 64, 0), ""), m = n;
    if (s) m = jit_select(g, minus, LLVMBuildNeg(g->b, n, ""), n);
    LLVMValueRef rest = LLVMBuildICmp(g->b, LLVMIntNE, both(g, m, 0x7ff), jit_const(g, 64, 0), "");
    LLVMValueRef large = LLVMBuildICmp(g->b, LLVMIntUGE, m, jit_const(g, 64, UINT64_C(1) << 53), "");
    LLVMValueRef sticky = LLVMBuildShl(g->b, jit_resize(g, rest, 64, false), jit_const(g, 64, 11), "");
    sticky = LLVMBuildOr(g->b, both(g, m, ~UINT64_C(0x7ff)), sticky, "");
    LLVMValueRef f = LLVMBuildUIToFP(g->b, jit_select(g, large, sticky, m), jit_float(g, 64), "");
    return s ? jit_select(g, minus, LLVMBuildFNeg(g->b, f, ""), f) : f;
}

static LLVMValueRef int_to_float(struct jit_gen *g, const struct ptx_instr *i) {
    bool s = is_signed(i->type2), nearest = i->round == PTX_RN || i->round == PTX_ROUND_NONE;
    unsigned from = ptx_type_bits(i->type2), bits = ptx_type_bits(i->type);
    LLVMValueRef n = jit_read_int(g, &i->src[0], from), v;
    if (bits >= 32 && (nearest || from <= 16 || (bits == 64 && from <= 32))) {
        v = s ? LLVMBuildSIToFP(g->b, n, jit_float(g, bits), "") : LLVMBuildUIToFP(g->b, n, jit_float(g, bits), "");
    } else if (bits == 64) { /* 64 bits in a directed mode: both halves are exact */
        LLVMValueRef high = LLVMBuildAnd(g->b, n, jit_const(g, 64, ~UINT64_C(0xffffffff)), "");
        LLVMValueRef low = LLVMBuildUIToFP(g->b, both(g, n, 0xffffffff), jit_float(g, 64), "");
        high =
            s ? LLVMBuildSIToFP(g->b, high, jit_float(g, 64), "") : LLVMBuildUIToFP(g->b, high, jit_float(g, 64), "");
        v = jit_add_in_mode(g, high, low, i->round);
    } else {
        v = int_odd(g, n, s);
        if (bits == 32) v = jit_narrow(g, v, i->round);
    }
    if (bits == 16) return to_float(g, i, i->type, v);
    return i->modifiers & PTX_M_SAT ? jit_saturate(g, v) : v;
}

/* ---- pairs: of two sources the first is the upper half ---- */
static LLVMValueRef half_of(struct jit_gen *g, const struct ptx_instr *i, LLVMValueRef v, bool bf16) {
    if (i->type == PTX_E4M3X2 || i->type == PTX_E5M2X2) {
        if (i->modifiers & PTX_M_RELU) {
            LLVMValueRef zero = jit_const_float(g, 32, 0);
            v = jit_select(g, jit_ordered(g, LLVMRealOLE, v, zero), zero, v);
        }
        return i->type == PTX_E4M3X2 ? to_small(g, v, 3, 7, 0x7e, 448) : to_small(g, v, 2, 15, 0x7b, 57344);
    }
    return jit_resize(g, to_float(g, i, bf16 ? PTX_BF16 : PTX_F16, v), 32, false);
}

static void pair(struct jit_gen *g, const struct ptx_instr *i) {
    LLVMValueRef v[2], n;
    unsigned bits = ptx_type_bits(i->type) / 2;
    if (i->type == PTX_F32X2) jit_fail(g, "this form is not implemented");
    if (i->srcs == 2) {
        v[0] = source(g, i, 0), v[1] = source(g, i, 1);
    } else {
        bool small = i->type2 == PTX_E4M3X2 || i->type2 == PTX_E5M2X2;
        unsigned each = small ? 8 : 16;
        n = jit_resize(g, jit_read_int(g, &i->src[0], 2 * each), 32, false);
        for (unsigned k = 0; k < 2; k++) {
            LLVMValueRef h = LLVMBuildLShr(g->b, n, jit_const(g, 32, k ? 0 : each), "");
            h = both(g, h, (1u << each) - 1);
            if (i->type2 == PTX_E4M3X2)
                v[k] = from_e4m3(g, h);
            else if (small)
                v[k] = jit_from_half(g, LLVMBuildShl(g->b, h, jit_const(g, 32, 8), ""), false);
            else
                v[k] = jit_from_half(g, h, i->type2 == PTX_BF16X2);
        }
    }
    for (int k = 0; k < 2; k++) v[k] = half_of(g, i, v[k], i->type == PTX_BF16X2);
    n = LLVMBuildOr(g->b, LLVMBuildShl(g->b, v[0], jit_const(g, 32, bits), ""), v[1], "");
    jit_write(g, &i->dst[0], jit_resize(g, n, 2 * bits, false));
}

void jit_cvt(struct jit_gen *g, const struct ptx_instr *i) {
    bool s = is_signed(i->type);
    if (i->round == PTX_RS || i->type2 == PTX_TF32)
        jit_fail(g, "this form is not implemented");
    else if (ptx_type_kind(i->type) == PTX_KIND_X2)
        pair(g, i);
    else if (i->type == PTX_TF32)
        jit_write(g, &i->dst[0], to_tf32(g, i, source(g, i, 0)));
    else if (is_float(i->type2) && is_float(i->type))
        jit_write(g, &i->dst[0], to_float(g, i, i->type, source(g, i, 0)));
    else if (is_float(i->type2))
        jit_write_ext(g, &i->dst[0], to_int(g, i, source(g, i, 0)), s);
    else if (is_float(i->type))
        jit_write(g, &i->dst[0], int_to_float(g, i));
    else
        jit_write_ext(g, &i->dst[0], int_to_int(g, i), s);
}
