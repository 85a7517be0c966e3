/* f16 and bf16: in registers of 16 bits, or two in 32. Sums and products are computed in f32 or f64 such that rounding
 * once more is right: f16 (11 bits) in f32's 24 (a product is exact; a sum may be rounded twice, by 24 >= 2 * 11 + 2),
 * bf16 products and every fma rounded to odd in the wider type. */
#include "vgpu/vgpu_jit_float.h"

static LLVMValueRef both(struct jit_gen *g, LLVMValueRef a, uint64_t mask) {
    return LLVMBuildAnd(g->b, a, jit_const(g, jit_bits(a), mask), "");
}
static LLVMValueRef left(struct jit_gen *g, LLVMValueRef a, unsigned n) {
    return LLVMBuildShl(g->b, a, jit_const(g, jit_bits(a), n), "");
}
static LLVMValueRef right(struct jit_gen *g, LLVMValueRef a, unsigned n) {
    return LLVMBuildLShr(g->b, a, jit_const(g, jit_bits(a), n), "");
}

LLVMValueRef jit_from_half(struct jit_gen *g, LLVMValueRef v, bool bf16) {
    v = jit_resize(g, v, 32, false);
    if (bf16) return jit_to_float(g, left(g, v, 16));
    /* Exponent and mantissa where f32 has them, then up by the difference of the biases; exact for subnormals too. */
    LLVMValueRef f = jit_to_float(g, left(g, both(g, v, 0x7fff), 13));
    f = LLVMBuildFMul(g->b, f, jit_const_float(g, 32, 0x1p112), "");
    LLVMValueRef over = jit_ordered(g, LLVMRealOGE, f, jit_const_float(g, 32, 65536.0)), n = jit_to_int(g, f);
    n = jit_select(g, over, LLVMBuildOr(g->b, n, jit_const(g, 32, 0x7f800000), ""), n);
    return jit_to_float(g, LLVMBuildOr(g->b, n, left(g, both(g, v, 0x8000), 16), ""));
}

static LLVMValueRef nearest_bf16(struct jit_gen *g, LLVMValueRef n) {
    LLVMValueRef odd = both(g, right(g, n, 16), 1);
    LLVMValueRef r = right(g, LLVMBuildAdd(g->b, LLVMBuildAdd(g->b, n, odd, ""), jit_const(g, 32, 0x7fff), ""), 16);
    LLVMValueRef nan = LLVMBuildICmp(g->b, LLVMIntUGT, both(g, n, 0x7fffffff), jit_const(g, 32, 0x7f800000), "");
    return jit_select(g, nan, jit_const(g, 32, 0x7fff), r);
}

/* Subnormal results fall out of a float sum whose last bit is theirs. */
static LLVMValueRef nearest_f16(struct jit_gen *g, LLVMValueRef n) {
    LLVMValueRef a = both(g, n, 0x7fffffff), sign = right(g, both(g, n, 0x80000000), 16);
    LLVMValueRef odd = both(g, right(g, a, 13), 1), magic = jit_const(g, 32, (127u - 15 + 23 - 10 + 1) << 23);
    LLVMValueRef normal = LLVMBuildAdd(g->b, LLVMBuildAdd(g->b, a, odd, ""), jit_const(g, 32, 0xc8000fff), "");
    normal = right(g, normal, 13);
    LLVMValueRef small = LLVMBuildFAdd(g->b, jit_to_float(g, a), jit_to_float(g, magic), "");
    small = LLVMBuildSub(g->b, jit_to_int(g, small), magic, "");
    LLVMValueRef r = jit_select(g, LLVMBuildICmp(g->b, LLVMIntULT, a, jit_const(g, 32, 113u << 23), ""), small, normal);
    LLVMValueRef large = LLVMBuildICmp(g->b, LLVMIntUGE, a, jit_const(g, 32, 143u << 23), "");
    r = LLVMBuildOr(g->b, jit_select(g, large, jit_const(g, 32, 0x7c00), r), sign, "");
    LLVMValueRef nan = LLVMBuildICmp(g->b, LLVMIntUGT, a, jit_const(g, 32, 0x7f800000), "");
    return jit_select(g, nan, jit_const(g, 32, 0x7fff), r);
}

LLVMValueRef jit_to_half(struct jit_gen *g, LLVMValueRef v, bool bf16, unsigned round) {
    LLVMValueRef n = jit_to_int(g, v);
    LLVMValueRef r = jit_resize(g, bf16 ? nearest_bf16(g, n) : nearest_f16(g, n), 16, false);
    if (round != PTX_RZ && round != PTX_RM && round != PTX_RP) return r;
    LLVMValueRef back = jit_from_half(g, r, bf16), low = jit_ordered(g, LLVMRealOLT, back, v);
    LLVMValueRef high = jit_ordered(g, LLVMRealOGT, back, v), one = jit_const(g, 16, 1);
    LLVMValueRef sign = LLVMBuildICmp(g->b, LLVMIntSLT, r, jit_const(g, 16, 0), "");
    LLVMValueRef grown = LLVMBuildAdd(g->b, r, one, ""), shrunk = LLVMBuildSub(g->b, r, one, "");
    if (round == PTX_RZ) return jit_select(g, jit_select(g, sign, low, high), shrunk, r);
    if (round == PTX_RM) return jit_select(g, high, jit_select(g, sign, grown, shrunk), r);
    return jit_select(g, low, jit_select(g, sign, shrunk, grown), r);
}

static LLVMValueRef flush(struct jit_gen *g, LLVMValueRef h) {
    LLVMValueRef small = LLVMBuildICmp(g->b, LLVMIntEQ, both(g, h, 0x7c00), jit_const(g, 16, 0), "");
    return jit_select(g, small, both(g, h, 0x8000), h);
}

static LLVMValueRef wide(struct jit_gen *g, LLVMValueRef f) {
    return LLVMBuildFPExt(g->b, f, jit_float(g, 64), "");
}

static LLVMValueRef fma_half(struct jit_gen *g, LLVMValueRef v[3], bool bf16) {
    if (!bf16) return jit_add_odd(g, LLVMBuildFMul(g->b, v[0], v[1], ""), v[2]);
    LLVMValueRef p = LLVMBuildFMul(g->b, wide(g, v[0]), wide(g, v[1]), "");
    return jit_narrow_odd(g, jit_add_odd(g, p, wide(g, v[2])));
}

/* The operation in f32; NULL: none of halves. */
static LLVMValueRef compute(struct jit_gen *g, const struct ptx_instr *i, LLVMValueRef v[3], bool bf16) {
    switch (i->op) {
    case PTX_OP_ADD:
        return LLVMBuildFAdd(g->b, v[0], v[1], "");
    case PTX_OP_SUB:
        return LLVMBuildFSub(g->b, v[0], v[1], "");
    case PTX_OP_MUL:
        if (!bf16) return LLVMBuildFMul(g->b, v[0], v[1], "");
        return jit_narrow_odd(g, LLVMBuildFMul(g->b, wide(g, v[0]), wide(g, v[1]), ""));
    case PTX_OP_FMA:
    case PTX_OP_MAD:
        return fma_half(g, v, bf16);
    case PTX_OP_MIN:
    case PTX_OP_MAX:
        v[0] = jit_min_max(g, i, v[0], v[1]);
        return i->srcs == 3 ? jit_min_max(g, i, v[0], v[2]) : v[0];
    case PTX_OP_EX2:
        return jit_ex2(g, v[0]);
    case PTX_OP_TANH:
        return jit_tanh(g, v[0]);
    default:
        return NULL;
    }
}

static LLVMValueRef one_half(struct jit_gen *g, const struct ptx_instr *i, LLVMValueRef h[3], bool bf16) {
    bool ftz = i->modifiers & PTX_M_FTZ && !bf16;
    LLVMValueRef v[3] = {0}, r;
    for (int k = 0; k < 3; k++) {
        if (!h[k]) continue;
        if (ftz) h[k] = flush(g, h[k]);
        v[k] = jit_from_half(g, h[k], bf16);
    }
    if (i->op == PTX_OP_ABS)
        r = both(g, h[0], 0x7fff);
    else if (i->op == PTX_OP_NEG)
        r = LLVMBuildXor(g->b, h[0], jit_const(g, 16, 0x8000), "");
    else {
        r = compute(g, i, v, bf16);
        if (!r) return NULL;
        if (i->modifiers & PTX_M_SAT) r = jit_saturate(g, r);
        r = jit_to_half(g, r, bf16, PTX_RN);
    }
    if (i->modifiers & PTX_M_RELU) {
        LLVMValueRef nan =
            LLVMBuildICmp(g->b, LLVMIntUGT, both(g, r, 0x7fff), jit_const(g, 16, bf16 ? 0x7f80 : 0x7c00), "");
        LLVMValueRef minus = LLVMBuildICmp(g->b, LLVMIntSLT, r, jit_const(g, 16, 0), "");
        minus = LLVMBuildAnd(g->b, minus, LLVMBuildNot(g->b, nan, ""), "");
        r = jit_select(g, minus, jit_const(g, 16, 0), r);
    }
    return ftz ? flush(g, r) : r;
}

static bool single_pair(struct jit_gen *g, const struct ptx_instr *i) { /* f32x2 */
    LLVMValueRef r = NULL;
    for (unsigned h = 0; h < 2; h++) {
        LLVMValueRef v[3] = {0};
        for (int k = 0; k < i->srcs && k < 3; k++) {
            LLVMValueRef x = jit_read_int(g, &i->src[k], 64);
            v[k] = jit_to_float(g, jit_resize(g, h ? right(g, x, 32) : x, 32, false));
        }
        v[0] = jit_float_op(g, i, 32, v);
        if (!v[0]) return false;
        v[0] = jit_resize(g, v[0], 64, false);
        r = h ? LLVMBuildOr(g->b, r, left(g, v[0], 32), "") : v[0];
    }
    jit_write(g, &i->dst[0], r);
    return true;
}

static LLVMValueRef testp(struct jit_gen *g, const struct ptx_instr *i, LLVMValueRef h) {
    bool bf16 = i->type == PTX_BF16;
    uint64_t inf = bf16 ? 0x7f80 : 0x7c00, least = bf16 ? 0x80 : 0x400;
    LLVMValueRef a = both(g, h, 0x7fff), top = jit_const(g, 16, inf);
    LLVMValueRef finite = LLVMBuildICmp(g->b, LLVMIntULT, a, top, "");
    LLVMValueRef small = LLVMBuildICmp(g->b, LLVMIntULT, a, jit_const(g, 16, least), "");
    switch (i->sub) {
    case PTX_SUB_FINITE:
        return finite;
    case PTX_SUB_INFINITE:
        return LLVMBuildICmp(g->b, LLVMIntEQ, a, top, "");
    case PTX_SUB_NUMBER:
        return LLVMBuildICmp(g->b, LLVMIntULE, a, top, "");
    case PTX_SUB_NOTANUMBER:
        return LLVMBuildICmp(g->b, LLVMIntUGT, a, top, "");
    case PTX_SUB_NORMAL:
        return LLVMBuildAnd(g->b, finite, LLVMBuildNot(g->b, small, ""), "");
    default:
        return LLVMBuildAnd(g->b, small, LLVMBuildICmp(g->b, LLVMIntNE, a, jit_const(g, 16, 0), ""), "");
    }
}

bool jit_instr_half(struct jit_gen *g, const struct ptx_instr *i) {
    bool bf16 = i->type == PTX_BF16 || i->type == PTX_BF16X2;
    bool pair = i->type == PTX_F16X2 || i->type == PTX_BF16X2;
    LLVMValueRef r = NULL;
    if (i->type == PTX_F32X2) return single_pair(g, i);
    if (i->op == PTX_OP_TESTP) {
        jit_write(g, &i->dst[0], testp(g, i, jit_read_int(g, &i->src[0], 16)));
        return true;
    }
    for (unsigned half = 0; half < (pair ? 2u : 1u); half++) {
        LLVMValueRef h[3] = {0};
        for (int k = 0; k < i->srcs && k < 3; k++) {
            h[k] = jit_read_int(g, &i->src[k], pair ? 32 : 16);
            if (half) h[k] = right(g, h[k], 16);
            h[k] = jit_resize(g, h[k], 16, false);
        }
        h[0] = one_half(g, i, h, bf16);
        if (!h[0]) return false;
        if (!pair) {
            jit_write(g, &i->dst[0], h[0]);
            return true;
        }
        h[0] = jit_resize(g, h[0], 32, false);
        r = half ? LLVMBuildOr(g->b, r, left(g, h[0], 16), "") : h[0];
    }
    jit_write(g, &i->dst[0], r);
    return true;
}
