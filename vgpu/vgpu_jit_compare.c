/* Comparison and selection: setp, set, selp, slct. */
#include "vgpu/vgpu_jit_float.h"

static LLVMValueRef int_compare(struct jit_gen *g, unsigned compare, bool s, LLVMValueRef a, LLVMValueRef b) {
    LLVMIntPredicate p;
    switch (compare) {
    case PTX_EQ:
        p = LLVMIntEQ;
        break;
    case PTX_NE:
        p = LLVMIntNE;
        break;
    case PTX_LT:
        p = s ? LLVMIntSLT : LLVMIntULT;
        break;
    case PTX_LE:
        p = s ? LLVMIntSLE : LLVMIntULE;
        break;
    case PTX_GT:
        p = s ? LLVMIntSGT : LLVMIntUGT;
        break;
    case PTX_GE:
        p = s ? LLVMIntSGE : LLVMIntUGE;
        break;
    case PTX_LO:
        p = LLVMIntULT;
        break;
    case PTX_LS:
        p = LLVMIntULE;
        break;
    case PTX_HI_CMP:
        p = LLVMIntUGT;
        break;
    case PTX_HS:
        p = LLVMIntUGE;
        break;
    default:
        jit_fail(g, "this comparison is not one of integers");
        p = LLVMIntEQ;
    }
    return LLVMBuildICmp(g->b, p, a, b, "");
}

LLVMValueRef jit_float_compare(struct jit_gen *g, unsigned compare, LLVMValueRef a, LLVMValueRef b) {
    static const uint8_t predicate[] = {
        [PTX_EQ] = LLVMRealOEQ,  [PTX_NE] = LLVMRealONE,  [PTX_LT] = LLVMRealOLT,  [PTX_LE] = LLVMRealOLE,
        [PTX_GT] = LLVMRealOGT,  [PTX_GE] = LLVMRealOGE,  [PTX_EQU] = LLVMRealUEQ, [PTX_NEU] = LLVMRealUNE,
        [PTX_LTU] = LLVMRealULT, [PTX_LEU] = LLVMRealULE, [PTX_GTU] = LLVMRealUGT, [PTX_GEU] = LLVMRealUGE,
        [PTX_NUM] = LLVMRealORD, [PTX_NAN] = LLVMRealUNO};
    if (compare >= sizeof predicate || !predicate[compare]) {
        jit_fail(g, "this comparison is not one of floats");
        compare = PTX_EQ;
    }
    return LLVMBuildFCmp(g->b, (LLVMRealPredicate)predicate[compare], a, b, "");
}

static LLVMValueRef half(struct jit_gen *g, LLVMValueRef v, unsigned k) {
    if (k) v = LLVMBuildLShr(g->b, v, jit_const(g, 32, 16), "");
    return jit_resize(g, v, 16, false);
}

/* Of a packed type the results of the low and the high half; else the result and its opposite. */
static void results(struct jit_gen *g, const struct ptx_instr *i, unsigned type, LLVMValueRef r[2]) {
    unsigned bits = ptx_type_bits(type), kind = ptx_type_kind(type);
    bool bf16 = type == PTX_BF16 || type == PTX_BF16X2, ftz = i->modifiers & PTX_M_FTZ;
    LLVMValueRef a, b;
    if (type == PTX_F32 || type == PTX_F64) {
        a = jit_read_float(g, &i->src[0], bits), b = jit_read_float(g, &i->src[1], bits);
        if (ftz && bits == 32) a = jit_flush(g, a), b = jit_flush(g, b);
        r[0] = jit_float_compare(g, i->compare, a, b);
    } else if (kind == PTX_KIND_F || kind == PTX_KIND_X2) {
        a = jit_read_int(g, &i->src[0], bits), b = jit_read_int(g, &i->src[1], bits);
        for (unsigned k = 0; k < (kind == PTX_KIND_X2 ? 2u : 1u); k++) {
            LLVMValueRef x = jit_from_half(g, kind == PTX_KIND_X2 ? half(g, a, k) : a, bf16);
            LLVMValueRef y = jit_from_half(g, kind == PTX_KIND_X2 ? half(g, b, k) : b, bf16);
            if (ftz && !bf16) { /* in f32 the least normal f16 is 2^-14 */
                LLVMValueRef least = jit_const_float(g, 32, 0x1p-14), zero = jit_const_float(g, 32, 0);
                x = jit_select(g, jit_ordered(g, LLVMRealOLT, jit_abs(g, x), least), zero, x);
                y = jit_select(g, jit_ordered(g, LLVMRealOLT, jit_abs(g, y), least), zero, y);
            }
            r[k] = jit_float_compare(g, i->compare, x, y);
        }
    } else {
        a = jit_read_int(g, &i->src[0], bits), b = jit_read_int(g, &i->src[1], bits);
        r[0] = int_compare(g, i->compare, kind == PTX_KIND_S, a, b);
    }
    if (kind != PTX_KIND_X2) r[1] = LLVMBuildNot(g->b, r[0], "");
}

static LLVMValueRef combined(struct jit_gen *g, const struct ptx_instr *i, LLVMValueRef v) {
    if (!i->combine || i->srcs < 3) return v;
    LLVMValueRef c = jit_read_pred(g, &i->src[2]);
    return i->combine == PTX_SUB_AND  ? LLVMBuildAnd(g->b, v, c, "")
           : i->combine == PTX_SUB_OR ? LLVMBuildOr(g->b, v, c, "")
                                      : LLVMBuildXor(g->b, v, c, "");
}

static void setp(struct jit_gen *g, const struct ptx_instr *i) {
    LLVMValueRef r[2];
    results(g, i, i->type, r);
    r[0] = combined(g, i, r[0]);
    if (i->dsts > 1) r[1] = combined(g, i, r[1]);
    jit_write(g, &i->dst[0], r[0]);
    if (i->dsts > 1) jit_write(g, &i->dst[1], r[1]);
}

static uint64_t truth(unsigned type) {
    switch (type) {
    case PTX_F32:
        return 0x3f800000;
    case PTX_F64:
        return UINT64_C(0x3ff0000000000000);
    case PTX_F16:
    case PTX_F16X2:
        return 0x3c00;
    case PTX_BF16:
    case PTX_BF16X2:
        return 0x3f80;
    default:
        return UINT64_MAX;
    }
}

static void set(struct jit_gen *g, const struct ptx_instr *i) {
    unsigned from = i->type2 ? i->type2 : i->type, bits = ptx_type_bits(i->type);
    bool pair = ptx_type_kind(from) == PTX_KIND_X2;
    LLVMValueRef r[2], one = jit_const(g, bits, pair ? truth(i->type) & 0xffff : truth(i->type)), v;
    LLVMValueRef zero = jit_const(g, bits, 0);
    results(g, i, from, r);
    v = jit_select(g, combined(g, i, r[0]), one, zero);
    if (pair) {
        LLVMValueRef high = LLVMBuildShl(g->b, one, jit_const(g, bits, 16), "");
        v = LLVMBuildOr(g->b, v, jit_select(g, combined(g, i, r[1]), high, zero), "");
    }
    jit_write(g, &i->dst[0], v);
}

static LLVMValueRef value(struct jit_gen *g, const struct ptx_instr *i, int k) {
    unsigned bits = ptx_type_bits(i->type);
    return i->type == PTX_F32 || i->type == PTX_F64 ? jit_read_float(g, &i->src[k], bits)
                                                    : jit_read_int(g, &i->src[k], bits);
}

/* By the sign of the third operand; NaN selects the second. */
static void slct(struct jit_gen *g, const struct ptx_instr *i) {
    LLVMValueRef first;
    if (i->type2 == PTX_F32) {
        LLVMValueRef c = jit_read_float(g, &i->src[2], 32);
        if (i->modifiers & PTX_M_FTZ) c = jit_flush(g, c);
        first = jit_ordered(g, LLVMRealOGE, c, jit_const_float(g, 32, 0));
    } else
        first = LLVMBuildICmp(g->b, LLVMIntSGE, jit_read_int(g, &i->src[2], 32), jit_const(g, 32, 0), "");
    jit_write(g, &i->dst[0], jit_select(g, first, value(g, i, 0), value(g, i, 1)));
}

bool jit_instr_compare(struct jit_gen *g, const struct ptx_instr *i) {
    switch (i->op) {
    case PTX_OP_SETP:
        setp(g, i);
        return true;
    case PTX_OP_SET:
        set(g, i);
        return true;
    case PTX_OP_SELP:
        jit_write(g, &i->dst[0], jit_select(g, jit_read_pred(g, &i->src[2]), value(g, i, 0), value(g, i, 1)));
        return true;
    case PTX_OP_SLCT:
        slct(g, i);
        return true;
    default:
        return false;
    }
}
