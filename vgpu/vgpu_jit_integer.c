/* Integer arithmetic. Where PTX leaves a result open (division by zero), it is what devices give: all bits set. */
#include "vgpu/vgpu_jit.h"

static bool is_signed(const struct ptx_instr *i) {
    return ptx_type_kind(i->type) == PTX_KIND_S;
}

static LLVMValueRef compare(struct jit_gen *g, LLVMIntPredicate p, LLVMValueRef a, LLVMValueRef b) {
    return LLVMBuildICmp(g->b, p, a, b, "");
}

static LLVMValueRef clamp32(struct jit_gen *g, LLVMValueRef v) { /* i64 → i32 */
    LLVMValueRef low = jit_const(g, 64, (uint64_t)INT32_MIN), high = jit_const(g, 64, INT32_MAX);
    v = jit_call2(g, "llvm.smax", v, low);
    return jit_resize(g, jit_call2(g, "llvm.smin", v, high), 32, true);
}

static void sum(struct jit_gen *g, const struct ptx_instr *i, unsigned bits) {
    LLVMValueRef a = jit_read_int(g, &i->src[0], bits), b = jit_read_int(g, &i->src[1], bits);
    if (i->modifiers & PTX_M_SAT)
        a = jit_call2(g, i->op == PTX_OP_ADD ? "llvm.sadd.sat" : "llvm.ssub.sat", a, b);
    else
        a = i->op == PTX_OP_ADD ? LLVMBuildAdd(g->b, a, b, "") : LLVMBuildSub(g->b, a, b, "");
    jit_write_ext(g, &i->dst[0], a, is_signed(i));
}

/* Both factors in twice the width, or in their own. */
static LLVMValueRef product(struct jit_gen *g, const struct ptx_instr *i, unsigned bits) {
    bool s = is_signed(i);
    LLVMValueRef a = jit_read_int(g, &i->src[0], bits), b = jit_read_int(g, &i->src[1], bits);
    if (!(i->modifiers & (PTX_M_WIDE | PTX_M_HI))) return LLVMBuildMul(g->b, a, b, "");
    a = jit_resize(g, a, 2 * bits, s), b = jit_resize(g, b, 2 * bits, s);
    LLVMValueRef p = LLVMBuildMul(g->b, a, b, "");
    if (i->modifiers & PTX_M_WIDE) return p;
    return jit_resize(g, LLVMBuildLShr(g->b, p, jit_const(g, 2 * bits, bits), ""), bits, false);
}

/* The low 24 bits of both. */
static LLVMValueRef product24(struct jit_gen *g, const struct ptx_instr *i) {
    LLVMValueRef v[2];
    bool s = is_signed(i), hi = i->modifiers & PTX_M_HI;
    for (int k = 0; k < 2; k++) {
        v[k] = jit_resize(g, jit_resize(g, jit_read_int(g, &i->src[k], 32), 24, false), 64, s);
    }
    LLVMValueRef p = LLVMBuildMul(g->b, v[0], v[1], "");
    if (hi) p = LLVMBuildLShr(g->b, p, jit_const(g, 64, 16), "");
    return jit_resize(g, p, 32, false);
}

static void mad(struct jit_gen *g, const struct ptx_instr *i, unsigned bits) {
    bool s = is_signed(i), sat = i->modifiers & PTX_M_SAT;
    LLVMValueRef p = i->op == PTX_OP_MAD24 ? product24(g, i) : product(g, i, bits);
    unsigned wide = i->modifiers & PTX_M_WIDE ? 2 * bits : bits;
    LLVMValueRef c = jit_read_int(g, &i->src[2], wide);
    if (sat) {
        p = LLVMBuildAdd(g->b, jit_resize(g, p, 64, true), jit_resize(g, c, 64, true), "");
        p = clamp32(g, p);
    } else
        p = LLVMBuildAdd(g->b, p, c, "");
    jit_write_ext(g, &i->dst[0], p, s);
}

/* The machine's own division traps on a divisor of zero, and on the lowest number by -1. */
static void divide(struct jit_gen *g, const struct ptx_instr *i, unsigned bits) {
    bool s = is_signed(i), rem = i->op == PTX_OP_REM;
    LLVMValueRef a = jit_read_int(g, &i->src[0], bits), b = jit_read_int(g, &i->src[1], bits), q;
    LLVMValueRef zero = jit_const(g, bits, 0), one = jit_const(g, bits, 1), all = jit_const(g, bits, UINT64_MAX);
    LLVMValueRef by_zero = compare(g, LLVMIntEQ, b, zero), by_minus = s ? compare(g, LLVMIntEQ, b, all) : NULL;
    LLVMValueRef safe = jit_select(g, by_zero, one, b);
    if (s) {
        safe = jit_select(g, by_minus, one, safe);
        q = rem ? LLVMBuildSRem(g->b, a, safe, "") : LLVMBuildSDiv(g->b, a, safe, "");
        q = jit_select(g, by_minus, rem ? zero : LLVMBuildNeg(g->b, a, ""), q);
    } else
        q = rem ? LLVMBuildURem(g->b, a, safe, "") : LLVMBuildUDiv(g->b, a, safe, "");
    jit_write_ext(g, &i->dst[0], jit_select(g, by_zero, rem ? a : all, q), s);
}

static void min_max(struct jit_gen *g, const struct ptx_instr *i, unsigned bits) {
    bool s = is_signed(i);
    const char *name = i->op == PTX_OP_MIN ? s ? "llvm.smin" : "llvm.umin" : s ? "llvm.smax" : "llvm.umax";
    LLVMValueRef v = jit_read_int(g, &i->src[0], bits);
    for (int k = 1; k < i->srcs; k++) v = jit_call2(g, name, v, jit_read_int(g, &i->src[k], bits));
    if (i->modifiers & PTX_M_RELU) v = jit_call2(g, "llvm.smax", v, jit_const(g, bits, 0));
    jit_write_ext(g, &i->dst[0], v, s);
}

/* u16x2, s16x2: each half. */
static void packed(struct jit_gen *g, const struct ptx_instr *i) {
    bool s = i->type == PTX_S16X2;
    LLVMValueRef r = NULL;
    for (unsigned h = 0; h < 2; h++) {
        LLVMValueRef v[3] = {0};
        for (int k = 0; k < i->srcs && k < 3; k++) {
            v[k] = jit_read_int(g, &i->src[k], 32);
            if (h) v[k] = LLVMBuildLShr(g->b, v[k], jit_const(g, 32, 16), "");
            v[k] = jit_resize(g, v[k], 16, false);
        }
        const char *name = i->op == PTX_OP_MIN ? s ? "llvm.smin" : "llvm.umin" : s ? "llvm.smax" : "llvm.umax";
        switch (i->op) {
        case PTX_OP_ADD:
            v[0] = LLVMBuildAdd(g->b, v[0], v[1], "");
            break;
        case PTX_OP_SUB:
            v[0] = LLVMBuildSub(g->b, v[0], v[1], "");
            break;
        case PTX_OP_NEG:
            v[0] = LLVMBuildNeg(g->b, v[0], "");
            break;
        case PTX_OP_MIN:
        case PTX_OP_MAX:
            v[0] = jit_call2(g, name, v[0], v[1]);
            if (i->modifiers & PTX_M_RELU) v[0] = jit_call2(g, "llvm.smax", v[0], jit_const(g, 16, 0));
            break;
        default:
            jit_fail(g, "not implemented for packed integers");
        }
        v[0] = jit_resize(g, v[0], 32, false);
        r = h ? LLVMBuildOr(g->b, r, LLVMBuildShl(g->b, v[0], jit_const(g, 32, 16), ""), "") : v[0];
    }
    jit_write(g, &i->dst[0], r);
}

/* ---- with carry ---- */
static void put_carry(struct jit_gen *g, LLVMValueRef c) {
    if (g->u->lanes > 1) {
        c = jit_splat(g, c);
        c = jit_select(g, jit_mask(g), c, jit_load(g, LLVMTypeOf(c), g->carry));
    }
    LLVMBuildStore(g->b, c, g->carry);
}

static void carry(struct jit_gen *g, const struct ptx_instr *i, unsigned bits) {
    unsigned one_more = bits + 1;
    bool in = i->op == PTX_OP_ADDC || i->op == PTX_OP_SUBC || i->op == PTX_OP_MADC;
    bool minus = i->op == PTX_OP_SUB || i->op == PTX_OP_SUBC, mul = i->op == PTX_OP_MAD || i->op == PTX_OP_MADC;
    g->width = g->u->lanes;
    LLVMValueRef a = mul ? product(g, i, bits) : jit_read_int(g, &i->src[0], bits);
    LLVMValueRef b = jit_read_int(g, &i->src[mul ? 2 : 1], bits), r;
    a = jit_resize(g, a, one_more, false), b = jit_resize(g, b, one_more, false);
    r = minus ? LLVMBuildSub(g->b, a, b, "") : LLVMBuildAdd(g->b, a, b, "");
    if (in) {
        LLVMValueRef c = jit_resize(g, jit_load(g, jit_int(g, 1), g->carry), one_more, false);
        r = minus ? LLVMBuildSub(g->b, r, c, "") : LLVMBuildAdd(g->b, r, c, "");
    }
    if (i->modifiers & PTX_M_CC)
        put_carry(g, jit_resize(g, LLVMBuildLShr(g->b, r, jit_const(g, one_more, bits), ""), 1, false));
    jit_write_ext(g, &i->dst[0], jit_resize(g, r, bits, false), is_signed(i));
}

static void sad(struct jit_gen *g, const struct ptx_instr *i, unsigned bits) {
    LLVMValueRef a = jit_read_int(g, &i->src[0], bits), b = jit_read_int(g, &i->src[1], bits);
    LLVMValueRef less = compare(g, is_signed(i) ? LLVMIntSLT : LLVMIntULT, a, b);
    LLVMValueRef d = jit_select(g, less, LLVMBuildSub(g->b, b, a, ""), LLVMBuildSub(g->b, a, b, ""));
    jit_write_ext(g, &i->dst[0], LLVMBuildAdd(g->b, jit_read_int(g, &i->src[2], bits), d, ""), is_signed(i));
}

static void dot(struct jit_gen *g, const struct ptx_instr *i) {
    bool a_signed = is_signed(i), b_signed = ptx_type_kind(i->type2 ? i->type2 : i->type) == PTX_KIND_S;
    bool four = i->op == PTX_OP_DP4A;
    unsigned bits = four ? 8 : 16, n = four ? 4 : 2, first = !four && i->modifiers & PTX_M_HI ? 2 : 0;
    LLVMValueRef a = jit_read_int(g, &i->src[0], 32), b = jit_read_int(g, &i->src[1], 32);
    LLVMValueRef r = jit_read_int(g, &i->src[2], 32);
    for (unsigned k = 0; k < n; k++) {
        LLVMValueRef x = jit_resize(g, LLVMBuildLShr(g->b, a, jit_const(g, 32, k * bits), ""), bits, false);
        LLVMValueRef y = jit_resize(g, LLVMBuildLShr(g->b, b, jit_const(g, 32, (first + k) * 8), ""), 8, false);
        x = LLVMBuildMul(g->b, jit_resize(g, x, 32, a_signed), jit_resize(g, y, 32, b_signed), "");
        r = LLVMBuildAdd(g->b, r, x, "");
    }
    jit_write(g, &i->dst[0], r);
}

bool jit_instr_integer(struct jit_gen *g, const struct ptx_instr *i) {
    unsigned bits = ptx_type_bits(i->type);
    bool s = is_signed(i);
    LLVMValueRef a;
    if (i->type == PTX_U16X2 || i->type == PTX_S16X2) {
        packed(g, i);
        return true;
    }
    switch (i->op) {
    case PTX_OP_ADD:
    case PTX_OP_SUB:
        if (i->modifiers & PTX_M_CC)
            carry(g, i, bits);
        else
            sum(g, i, bits);
        return true;
    case PTX_OP_ADDC:
    case PTX_OP_SUBC:
    case PTX_OP_MADC:
        carry(g, i, bits);
        return true;
    case PTX_OP_MUL:
        jit_write_ext(g, &i->dst[0], product(g, i, bits), s);
        return true;
    case PTX_OP_MAD:
        if (i->modifiers & PTX_M_CC)
            carry(g, i, bits);
        else
            mad(g, i, bits);
        return true;
    case PTX_OP_MUL24:
        jit_write_ext(g, &i->dst[0], product24(g, i), s);
        return true;
    case PTX_OP_MAD24:
        mad(g, i, bits);
        return true;
    case PTX_OP_DIV:
    case PTX_OP_REM:
        divide(g, i, bits);
        return true;
    case PTX_OP_MIN:
    case PTX_OP_MAX:
        min_max(g, i, bits);
        return true;
    case PTX_OP_SAD:
        sad(g, i, bits);
        return true;
    case PTX_OP_NEG:
        jit_write_ext(g, &i->dst[0], LLVMBuildNeg(g->b, jit_read_int(g, &i->src[0], bits), ""), s);
        return true;
    case PTX_OP_ABS:
        a = jit_read_int(g, &i->src[0], bits);
        if (s)
            a = jit_intrinsic(g, "llvm.abs", (LLVMTypeRef[]){LLVMTypeOf(a)}, 1,
                              (LLVMValueRef[]){a, jit_scalar(g, 1, 0)}, 2);
        jit_write_ext(g, &i->dst[0], a, s);
        return true;
    case PTX_OP_DP4A:
    case PTX_OP_DP2A:
        dot(g, i);
        return true;
    default:
        return false;
    }
}
