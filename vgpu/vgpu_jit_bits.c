/* Opcodes on bits: logic, shifts, fields, counts, permutes. The formulas are the PTX manual's. */
#include "vgpu/vgpu_jit.h"

static bool is_signed(const struct ptx_instr *i) {
    return ptx_type_kind(i->type) == PTX_KIND_S;
}
static LLVMValueRef both(struct jit_gen *g, LLVMValueRef a, LLVMValueRef b) {
    return LLVMBuildAnd(g->b, a, b, "");
}
static LLVMValueRef either(struct jit_gen *g, LLVMValueRef a, LLVMValueRef b) {
    return LLVMBuildOr(g->b, a, b, "");
}
static LLVMValueRef no(struct jit_gen *g, LLVMValueRef a) {
    return LLVMBuildNot(g->b, a, "");
}
static LLVMValueRef right(struct jit_gen *g, LLVMValueRef a, LLVMValueRef n) {
    return LLVMBuildLShr(g->b, a, n, "");
}
static LLVMValueRef left(struct jit_gen *g, LLVMValueRef a, LLVMValueRef n) {
    return LLVMBuildShl(g->b, a, n, "");
}
static LLVMValueRef below(struct jit_gen *g, LLVMValueRef a, unsigned bits, uint64_t limit) {
    return LLVMBuildICmp(g->b, LLVMIntULT, a, jit_const(g, bits, limit), "");
}

/* LLVM has no value for a shift by the width or more: zero, as PTX has it. */
static LLVMValueRef shift(struct jit_gen *g, LLVMValueRef a, LLVMValueRef n, unsigned bits, bool to_left) {
    LLVMValueRef fits = below(g, n, bits, bits), zero = jit_const(g, bits, 0);
    n = jit_select(g, fits, n, zero);
    return jit_select(g, fits, to_left ? left(g, a, n) : right(g, a, n), zero);
}

static LLVMValueRef logic(struct jit_gen *g, const struct ptx_instr *i) {
    unsigned bits = ptx_type_bits(i->type);
    LLVMValueRef v[2] = {0};
    for (int k = 0; k < i->srcs; k++)
        v[k] = i->type == PTX_PRED ? jit_read_pred(g, &i->src[k]) : jit_read_int(g, &i->src[k], bits);
    switch (i->op) {
    case PTX_OP_AND:
        return both(g, v[0], v[1]);
    case PTX_OP_OR:
        return either(g, v[0], v[1]);
    case PTX_OP_XOR:
        return LLVMBuildXor(g->b, v[0], v[1], "");
    case PTX_OP_CNOT:
        return jit_resize(g, LLVMBuildICmp(g->b, LLVMIntEQ, v[0], jit_const(g, bits, 0), ""), bits, false);
    default:
        return no(g, v[0]);
    }
}

static void lop3(struct jit_gen *g, const struct ptx_instr *i) {
    LLVMValueRef v[3], r = jit_const(g, 32, 0);
    for (int k = 0; k < 3; k++) v[k] = jit_read_int(g, &i->src[k], 32);
    for (unsigned row = 0; row < 8; row++) {
        if (!(i->lut >> row & 1)) continue;
        LLVMValueRef t = both(g, row & 4 ? v[0] : no(g, v[0]), row & 2 ? v[1] : no(g, v[1]));
        r = either(g, r, both(g, t, row & 1 ? v[2] : no(g, v[2])));
    }
    jit_write(g, &i->dst[0], r);
    if (i->dsts < 2) return;
    LLVMValueRef p = LLVMBuildICmp(g->b, LLVMIntNE, r, jit_const(g, 32, 0), "");
    LLVMValueRef q = i->srcs > 3 ? jit_read_pred(g, &i->src[3]) : jit_const(g, 1, 0);
    jit_write(g, &i->dst[1], i->combine == PTX_SUB_AND ? both(g, p, q) : either(g, p, q));
}

static void shifts(struct jit_gen *g, const struct ptx_instr *i) {
    unsigned bits = ptx_type_bits(i->type);
    LLVMValueRef a = jit_read_int(g, &i->src[0], bits), n = jit_read_int(g, &i->src[1], 32);
    LLVMValueRef fits = below(g, n, 32, bits);
    n = jit_resize(g, jit_select(g, fits, n, jit_const(g, 32, bits - 1)), bits, false);
    if (i->op == PTX_OP_SHR && is_signed(i))
        a = LLVMBuildAShr(g->b, a, n, "");
    else {
        a = i->op == PTX_OP_SHL ? left(g, a, n) : right(g, a, n);
        a = jit_select(g, fits, a, jit_const(g, bits, 0));
    }
    jit_write_ext(g, &i->dst[0], a, is_signed(i));
}

static void funnel(struct jit_gen *g, const struct ptx_instr *i) {
    bool to_left = i->sub == PTX_SUB_L_CLAMP || i->sub == PTX_SUB_L_WRAP;
    LLVMValueRef a = jit_read_int(g, &i->src[0], 32), b = jit_read_int(g, &i->src[1], 32);
    LLVMValueRef n = jit_read_int(g, &i->src[2], 32), v;
    if (i->sub == PTX_SUB_L_CLAMP || i->sub == PTX_SUB_R_CLAMP)
        n = jit_select(g, below(g, n, 32, 32), n, jit_const(g, 32, 32));
    else
        n = both(g, n, jit_const(g, 32, 31));
    n = jit_resize(g, n, 64, false);
    v = either(g, left(g, jit_resize(g, b, 64, false), jit_const(g, 64, 32)), jit_resize(g, a, 64, false));
    v = to_left ? right(g, left(g, v, n), jit_const(g, 64, 32)) : right(g, v, n);
    jit_write(g, &i->dst[0], jit_resize(g, v, 32, false));
}

/* ---- fields ---- */
static LLVMValueRef byte_of(struct jit_gen *g, const struct ptx_operand *o, unsigned bits) {
    return jit_resize(g, both(g, jit_read_int(g, o, 32), jit_const(g, 32, 0xff)), bits, false);
}

/* The lowest n bits set; n of `bits` or more: all. */
static LLVMValueRef ones(struct jit_gen *g, LLVMValueRef n, unsigned bits) {
    LLVMValueRef one = shift(g, jit_const(g, bits, 1), n, bits, true);
    return LLVMBuildSub(g->b, one, jit_const(g, bits, 1), "");
}

static void extract_field(struct jit_gen *g, const struct ptx_instr *i, unsigned bits) {
    LLVMValueRef a = jit_read_int(g, &i->src[0], bits), pos = byte_of(g, &i->src[1], bits);
    LLVMValueRef len = byte_of(g, &i->src[2], bits), mask = ones(g, len, bits);
    LLVMValueRef r = both(g, shift(g, a, pos, bits, false), mask);
    if (is_signed(i)) { /* the field's last bit, or the last there is */
        LLVMValueRef top = jit_const(g, bits, bits - 1), zero = jit_const(g, bits, 0), last;
        last = LLVMBuildSub(g->b, LLVMBuildAdd(g->b, pos, len, ""), jit_const(g, bits, 1), "");
        last = jit_select(g, below(g, last, bits, bits), last, top);
        LLVMValueRef sign = both(g, right(g, a, last), jit_const(g, bits, 1));
        sign = jit_select(g, LLVMBuildICmp(g->b, LLVMIntEQ, len, zero, ""), zero, sign);
        /* above the field, and above what the register had of it */
        LLVMValueRef room = LLVMBuildSub(g->b, jit_const(g, bits, bits), pos, "");
        room = jit_select(g, below(g, pos, bits, bits), room, zero);
        LLVMValueRef high = no(g, both(g, mask, ones(g, room, bits)));
        r = either(g, r, both(g, high, LLVMBuildNeg(g->b, sign, "")));
    }
    jit_write_ext(g, &i->dst[0], r, is_signed(i));
}

static void insert_field(struct jit_gen *g, const struct ptx_instr *i, unsigned bits) {
    LLVMValueRef a = jit_read_int(g, &i->src[0], bits), b = jit_read_int(g, &i->src[1], bits);
    LLVMValueRef pos = byte_of(g, &i->src[2], bits), len = byte_of(g, &i->src[3], bits);
    LLVMValueRef mask = shift(g, ones(g, len, bits), pos, bits, true);
    a = both(g, shift(g, a, pos, bits, true), mask);
    jit_write(g, &i->dst[0], either(g, a, both(g, b, no(g, mask))));
}

static LLVMValueRef leading_zeros(struct jit_gen *g, LLVMValueRef a) {
    return jit_intrinsic(g, "llvm.ctlz", (LLVMTypeRef[]){LLVMTypeOf(a)}, 1, (LLVMValueRef[]){a, jit_scalar(g, 1, 0)},
                         2);
}

static void find_highest(struct jit_gen *g, const struct ptx_instr *i, unsigned bits) {
    LLVMValueRef a = jit_read_int(g, &i->src[0], bits), r, zero = jit_const(g, bits, 0);
    if (is_signed(i)) a = jit_select(g, LLVMBuildICmp(g->b, LLVMIntSLT, a, zero, ""), no(g, a), a);
    r = leading_zeros(g, a);
    if (!(i->modifiers & PTX_M_SHIFTAMT)) r = LLVMBuildSub(g->b, jit_const(g, bits, bits - 1), r, "");
    r = jit_select(g, LLVMBuildICmp(g->b, LLVMIntEQ, a, zero, ""), jit_const(g, bits, UINT64_MAX), r);
    jit_write(g, &i->dst[0], jit_resize(g, r, 32, false));
}

static void bmsk(struct jit_gen *g, const struct ptx_instr *i) {
    LLVMValueRef a = jit_read_int(g, &i->src[0], 32), b = jit_read_int(g, &i->src[1], 32);
    if (i->modifiers & PTX_M_WRAP) a = both(g, a, jit_const(g, 32, 31)), b = both(g, b, jit_const(g, 32, 31));
    jit_write(g, &i->dst[0], shift(g, ones(g, b, 32), a, 32, true));
}

static void szext(struct jit_gen *g, const struct ptx_instr *i) {
    LLVMValueRef a = jit_read_int(g, &i->src[0], 32), b = jit_read_int(g, &i->src[1], 32);
    LLVMValueRef width = both(g, b, jit_const(g, 32, 31)), zero = jit_const(g, 32, 0), mask = ones(g, width, 32), r;
    r = both(g, a, mask);
    if (is_signed(i)) {
        LLVMValueRef last = LLVMBuildSub(g->b, width, jit_const(g, 32, 1), "");
        LLVMValueRef sign = both(g, shift(g, a, last, 32, false), jit_const(g, 32, 1));
        r = either(g, r, both(g, no(g, mask), LLVMBuildNeg(g->b, sign, "")));
    }
    r = jit_select(g, LLVMBuildICmp(g->b, LLVMIntEQ, width, zero, ""), zero, r);
    if (!(i->modifiers & PTX_M_WRAP)) r = jit_select(g, below(g, b, 32, 32), r, a);
    jit_write_ext(g, &i->dst[0], r, is_signed(i));
}

/* The bytes of a and b by four selectors; bit 3 of one asks for its byte's sign. */
static LLVMValueRef pick(struct jit_gen *g, LLVMValueRef bytes, LLVMValueRef selector) {
    LLVMValueRef at = left(g, both(g, selector, jit_const(g, 32, 7)), jit_const(g, 32, 3));
    LLVMValueRef v = jit_resize(g, right(g, bytes, jit_resize(g, at, 64, false)), 8, false);
    LLVMValueRef sign = LLVMBuildAShr(g->b, v, jit_const(g, 8, 7), "");
    LLVMValueRef wants = both(g, selector, jit_const(g, 32, 8));
    v = jit_select(g, LLVMBuildICmp(g->b, LLVMIntNE, wants, jit_const(g, 32, 0), ""), sign, v);
    return jit_resize(g, v, 32, false);
}

static LLVMValueRef mode_selectors(struct jit_gen *g, unsigned mode, LLVMValueRef c) {
    static const uint16_t table[][4] = {{0x3210, 0x4321, 0x5432, 0x6543}, {0x5670, 0x6701, 0x7012, 0x0123},
                                        {0x0000, 0x1111, 0x2222, 0x3333}, {0x3210, 0x3211, 0x3222, 0x3333},
                                        {0x0000, 0x1110, 0x2210, 0x3210}, {0x1010, 0x3232, 0x1010, 0x3232}};
    LLVMValueRef low = both(g, c, jit_const(g, 32, 3)), r = jit_const(g, 32, table[mode - PTX_SUB_F4E][0]);
    for (unsigned k = 1; k < 4; k++)
        r = jit_select(g, LLVMBuildICmp(g->b, LLVMIntEQ, low, jit_const(g, 32, k), ""),
                       jit_const(g, 32, table[mode - PTX_SUB_F4E][k]), r);
    return r;
}

static void prmt(struct jit_gen *g, const struct ptx_instr *i) {
    LLVMValueRef a = jit_read_int(g, &i->src[0], 32), b = jit_read_int(g, &i->src[1], 32);
    LLVMValueRef c = jit_read_int(g, &i->src[2], 32), r = jit_const(g, 32, 0), bytes;
    if (i->sub) c = mode_selectors(g, i->sub, c);
    bytes = either(g, left(g, jit_resize(g, b, 64, false), jit_const(g, 64, 32)), jit_resize(g, a, 64, false));
    for (unsigned k = 0; k < 4; k++) {
        LLVMValueRef byte = pick(g, bytes, right(g, c, jit_const(g, 32, 4 * k)));
        r = either(g, r, left(g, byte, jit_const(g, 32, 8 * k)));
    }
    jit_write(g, &i->dst[0], r);
}

/* fns: bit by bit, from the base upwards or downwards. */
static void nth_set(struct jit_gen *g, const struct ptx_instr *i) {
    LLVMValueRef m = jit_read_int(g, &i->src[0], 32), base = jit_read_int(g, &i->src[1], 32);
    LLVMValueRef n = jit_read_int(g, &i->src[2], 32), zero = jit_const(g, 32, 0), r = jit_const(g, 32, UINT32_MAX);
    LLVMValueRef up = LLVMBuildICmp(g->b, LLVMIntSGT, n, zero, ""), none = LLVMBuildICmp(g->b, LLVMIntEQ, n, zero, "");
    LLVMValueRef want = jit_select(g, up, n, LLVMBuildNeg(g->b, n, ""));
    want = jit_select(g, none, jit_const(g, 32, 1), want);
    LLVMValueRef from_base = shift(g, jit_const(g, 32, UINT32_MAX), base, 32, true);
    LLVMValueRef at_base = shift(g, jit_const(g, 32, 1), base, 32, true);
    LLVMValueRef to_base = no(g, both(g, from_base, no(g, at_base)));
    to_base = jit_select(g, below(g, base, 32, 32), to_base, zero);
    LLVMValueRef range = jit_select(g, none, at_base, jit_select(g, up, from_base, to_base));
    m = both(g, m, range);
    LLVMValueRef total = jit_call1(g, "llvm.ctpop", m);
    for (unsigned k = 0; k < 32; k++) {
        LLVMValueRef seen = jit_call1(g, "llvm.ctpop", both(g, m, jit_const(g, 32, (2u << k) - 1)));
        LLVMValueRef down = LLVMBuildAdd(g->b, LLVMBuildSub(g->b, total, seen, ""), jit_const(g, 32, 1), "");
        LLVMValueRef here = jit_resize(g, right(g, m, jit_const(g, 32, k)), 1, false);
        LLVMValueRef place = jit_select(g, either(g, up, none), seen, down);
        LLVMValueRef hit = both(g, here, LLVMBuildICmp(g->b, LLVMIntEQ, place, want, ""));
        r = jit_select(g, hit, jit_const(g, 32, k), r);
    }
    jit_write(g, &i->dst[0], r);
}

bool jit_instr_bits(struct jit_gen *g, const struct ptx_instr *i) {
    unsigned bits = ptx_type_bits(i->type);
    LLVMValueRef a;
    switch (i->op) {
    case PTX_OP_AND:
    case PTX_OP_OR:
    case PTX_OP_XOR:
    case PTX_OP_NOT:
    case PTX_OP_CNOT:
        jit_write(g, &i->dst[0], logic(g, i));
        return true;
    case PTX_OP_LOP3:
        lop3(g, i);
        return true;
    case PTX_OP_SHL:
    case PTX_OP_SHR:
        shifts(g, i);
        return true;
    case PTX_OP_SHF:
        funnel(g, i);
        return true;
    case PTX_OP_BFE:
        extract_field(g, i, bits);
        return true;
    case PTX_OP_BFI:
        insert_field(g, i, bits);
        return true;
    case PTX_OP_BFIND:
        find_highest(g, i, bits);
        return true;
    case PTX_OP_BMSK:
        bmsk(g, i);
        return true;
    case PTX_OP_SZEXT:
        szext(g, i);
        return true;
    case PTX_OP_PRMT:
        prmt(g, i);
        return true;
    case PTX_OP_FNS:
        nth_set(g, i);
        return true;
    case PTX_OP_BREV:
        jit_write(g, &i->dst[0], jit_call1(g, "llvm.bitreverse", jit_read_int(g, &i->src[0], bits)));
        return true;
    case PTX_OP_POPC:
        a = jit_call1(g, "llvm.ctpop", jit_read_int(g, &i->src[0], bits));
        jit_write(g, &i->dst[0], jit_resize(g, a, 32, false));
        return true;
    case PTX_OP_CLZ:
        a = leading_zeros(g, jit_read_int(g, &i->src[0], bits));
        jit_write(g, &i->dst[0], jit_resize(g, a, 32, false));
        return true;
    default:
        return false;
    }
}
