/* f32 and f64 arithmetic.
 *
 * Rounding to nearest is the machine's own; nothing is reassociated or contracted. f32 in other modes is computed in
 * double, rounded to odd, and once more in the mode.
 * .ftz is done by selects, so the machine's own mode is left alone. A NaN result is some quiet NaN. */
#include "vgpu/vgpu_jit_float.h"

LLVMValueRef jit_ordered(struct jit_gen *g, LLVMRealPredicate p, LLVMValueRef a, LLVMValueRef b) {
    return LLVMBuildFCmp(g->b, p, a, b, "");
}
LLVMValueRef jit_abs(struct jit_gen *g, LLVMValueRef v) {
    return jit_call1(g, "llvm.fabs", v);
}

static LLVMValueRef plus(struct jit_gen *g, LLVMValueRef a, LLVMValueRef b) {
    return LLVMBuildFAdd(g->b, a, b, "");
}
static LLVMValueRef minus(struct jit_gen *g, LLVMValueRef a, LLVMValueRef b) {
    return LLVMBuildFSub(g->b, a, b, "");
}
static LLVMValueRef times(struct jit_gen *g, LLVMValueRef a, LLVMValueRef b) {
    return LLVMBuildFMul(g->b, a, b, "");
}
static LLVMValueRef negative(struct jit_gen *g, LLVMValueRef v) {
    return LLVMBuildFNeg(g->b, v, "");
}
static LLVMValueRef zero_like(struct jit_gen *g, LLVMValueRef v) {
    return jit_const_float(g, jit_bits(v), 0);
}
static LLVMValueRef below_zero(struct jit_gen *g, LLVMValueRef v) {
    return jit_ordered(g, LLVMRealOLT, v, zero_like(g, v));
}
static LLVMValueRef above_zero(struct jit_gen *g, LLVMValueRef v) {
    return jit_ordered(g, LLVMRealOGT, v, zero_like(g, v));
}
static LLVMValueRef sign_set(struct jit_gen *g, LLVMValueRef v) {
    LLVMValueRef n = jit_to_int(g, v);
    return LLVMBuildICmp(g->b, LLVMIntSLT, n, jit_const(g, jit_bits(n), 0), "");
}

LLVMValueRef jit_flush(struct jit_gen *g, LLVMValueRef v) {
    LLVMValueRef n = jit_to_int(g, v), sign = LLVMBuildAnd(g->b, n, jit_const(g, 32, 0x80000000), "");
    LLVMValueRef small = jit_ordered(g, LLVMRealOLT, jit_abs(g, v), jit_to_float(g, jit_const(g, 32, 0x00800000)));
    return jit_select(g, small, jit_to_float(g, sign), v);
}

LLVMValueRef jit_nan(struct jit_gen *g, LLVMValueRef v) {
    unsigned bits = jit_bits(v);
    LLVMValueRef nan = jit_to_float(g, jit_const(g, bits, bits == 32 ? 0x7fffffff : UINT64_C(0x7fffffffffffffff)));
    return jit_select(g, jit_ordered(g, LLVMRealUNO, v, v), nan, v);
}

LLVMValueRef jit_saturate(struct jit_gen *g, LLVMValueRef v) {
    LLVMValueRef one = jit_const_float(g, jit_bits(v), 1);
    v = jit_select(g, above_zero(g, v), v, zero_like(g, v));
    return jit_select(g, jit_ordered(g, LLVMRealOLT, v, one), v, one);
}

/* ---- rounding ---- */
LLVMValueRef jit_step(struct jit_gen *g, LLVMValueRef t, unsigned round, LLVMValueRef low, LLVMValueRef high) {
    unsigned bits = jit_bits(t);
    LLVMValueRef n = jit_to_int(g, t), one = jit_const(g, bits, 1), sign = sign_set(g, t);
    LLVMValueRef grown = LLVMBuildAdd(g->b, n, one, ""), shrunk = LLVMBuildSub(g->b, n, one, "");
    if (round == PTX_RZ) { /* too large in magnitude: above the exact value if positive, below if negative */
        LLVMValueRef wrong = jit_select(g, sign, low, high);
        return jit_to_float(g, jit_select(g, wrong, shrunk, n));
    }
    if (round == PTX_RM) return jit_to_float(g, jit_select(g, high, jit_select(g, sign, grown, shrunk), n));
    if (round == PTX_RP) return jit_to_float(g, jit_select(g, low, jit_select(g, sign, shrunk, grown), n));
    return t;
}

LLVMValueRef jit_narrow(struct jit_gen *g, LLVMValueRef v, unsigned round) {
    LLVMValueRef t = LLVMBuildFPTrunc(g->b, v, jit_float(g, 32), "");
    if (round != PTX_RZ && round != PTX_RM && round != PTX_RP) return t;
    LLVMValueRef back = LLVMBuildFPExt(g->b, t, jit_float(g, 64), "");
    return jit_step(g, t, round, jit_ordered(g, LLVMRealOLT, back, v), jit_ordered(g, LLVMRealOGT, back, v));
}

/* t, and whether the exact value is above or below it: the neighbour there if t is even. */
static LLVMValueRef to_odd(struct jit_gen *g, LLVMValueRef t, LLVMValueRef above, LLVMValueRef below) {
    unsigned bits = jit_bits(t);
    LLVMValueRef n = jit_to_int(g, t), one = jit_const(g, bits, 1), sign = sign_set(g, t);
    LLVMValueRef even = LLVMBuildNot(g->b, jit_resize(g, n, 1, false), "");
    LLVMValueRef grown = LLVMBuildAdd(g->b, n, one, ""), shrunk = LLVMBuildSub(g->b, n, one, "");
    LLVMValueRef up = jit_select(g, sign, shrunk, grown), down = jit_select(g, sign, grown, shrunk);
    LLVMValueRef r = jit_select(g, LLVMBuildAnd(g->b, even, above, ""), up, n);
    return jit_to_float(g, jit_select(g, LLVMBuildAnd(g->b, even, below, ""), down, r));
}

/* Infinite t of a finite v stays: it is over every shorter format's range too. */
LLVMValueRef jit_narrow_odd(struct jit_gen *g, LLVMValueRef v) {
    LLVMValueRef t = LLVMBuildFPTrunc(g->b, v, jit_float(g, 32), "");
    LLVMValueRef back = LLVMBuildFPExt(g->b, t, jit_float(g, 64), "");
    return to_odd(g, t, jit_ordered(g, LLVMRealOLT, back, v), jit_ordered(g, LLVMRealOGT, back, v));
}

/* a + b - fl(a + b), exact; NaN if the sum is not finite. */
static LLVMValueRef sum_error(struct jit_gen *g, LLVMValueRef a, LLVMValueRef b, LLVMValueRef s) {
    LLVMValueRef from_b = minus(g, s, a);
    return plus(g, minus(g, a, minus(g, s, from_b)), minus(g, b, from_b));
}

LLVMValueRef jit_add_odd(struct jit_gen *g, LLVMValueRef a, LLVMValueRef b) {
    LLVMValueRef s = plus(g, a, b), e = sum_error(g, a, b, s);
    return to_odd(g, s, above_zero(g, e), below_zero(g, e));
}

/* With -1: rounding towards it, an exact zero sum is -0 unless both operands are +0. */
static LLVMValueRef zero_sign(struct jit_gen *g, LLVMValueRef s, LLVMValueRef a, LLVMValueRef b, unsigned round) {
    if (round != PTX_RM) return s;
    LLVMValueRef both = LLVMBuildOr(g->b, sign_set(g, a), sign_set(g, b), "");
    LLVMValueRef zero = jit_ordered(g, LLVMRealOEQ, s, zero_like(g, s));
    return jit_select(g, LLVMBuildAnd(g->b, zero, both, ""), jit_const_float(g, jit_bits(s), -0.0), s);
}

/* The error of a quotient has the sign of its remainder times that of the divisor. */
static LLVMValueRef divide_error(struct jit_gen *g, LLVMValueRef a, LLVMValueRef b, LLVMValueRef q) {
    LLVMValueRef rest = jit_call3(g, "llvm.fma", negative(g, q), b, a);
    return jit_select(g, sign_set(g, b), negative(g, rest), rest);
}

/* f64 in a mode other than to nearest, which is rare: by the machine in that mode, in C, a lane at a time. `op` as
 * ptx_double_op has it. */
static LLVMValueRef double_once(struct jit_gen *g, char op, LLVMValueRef v[3], unsigned round) {
    LLVMTypeRef d = LLVMDoubleTypeInContext(g->u->context), types[] = {jit_int1(g, 32), d, d, d, jit_int1(g, 32)};
    LLVMTypeRef t = LLVMFunctionType(d, types, 5, false);
    LLVMValueRef f = LLVMGetNamedFunction(g->u->llvm, "ptx_double_op"), none = LLVMConstReal(d, 0);
    if (!f) f = LLVMAddFunction(g->u->llvm, "ptx_double_op", t);
    LLVMValueRef args[] = {jit_scalar(g, 32, (uint64_t)op), v[0], v[1] ? v[1] : none, v[2] ? v[2] : none,
                           jit_scalar(g, 32, round)};
    return LLVMBuildCall2(g->b, t, f, args, 5, "");
}

static LLVMValueRef double_in_mode(struct jit_gen *g, char op, LLVMValueRef v[3], unsigned round) {
    if (g->width == 1) return double_once(g, op, v, round);
    LLVMTypeRef d = LLVMDoubleTypeInContext(g->u->context), t = LLVMVectorType(d, JIT_LANES);
    LLVMValueRef place[3] = {0}, one[3] = {0}, room = jit_room(g, d);
    struct jit_each e;
    for (int k = 0; k < 3; k++)
        if (v[k]) place[k] = jit_spill(g, v[k]);
    jit_each_begin(g, &e);
    for (int k = 0; k < 3; k++)
        if (v[k]) one[k] = jit_load(g, d, jit_lane_place(g, d, place[k], e.lane));
    LLVMBuildStore(g->b, double_once(g, op, one, round), jit_lane_place(g, d, room, e.lane));
    jit_each_end(g, &e);
    return jit_load(g, t, LLVMBuildBitCast(g->b, room, jit_pointer(g, t), ""));
}

LLVMValueRef jit_add_in_mode(struct jit_gen *g, LLVMValueRef a, LLVMValueRef b, unsigned round) {
    return double_in_mode(g, '+', (LLVMValueRef[3]){a, b, NULL}, round);
}

static char double_op(unsigned op) {
    switch (op) {
    case PTX_OP_ADD:
        return '+';
    case PTX_OP_SUB:
        return '-';
    case PTX_OP_MUL:
        return '*';
    case PTX_OP_DIV:
        return '/';
    case PTX_OP_SQRT:
        return 's';
    default:
        return 'f';
    }
}

/* f32 in a mode other than to nearest: in double, to odd, and then that mode. */
static LLVMValueRef single_in_mode(struct jit_gen *g, unsigned op, LLVMValueRef v[3], unsigned round) {
    LLVMValueRef w[3] = {0}, r, e, a, b;
    for (int k = 0; k < 3; k++)
        if (v[k]) w[k] = LLVMBuildFPExt(g->b, v[k], jit_float(g, 64), "");
    switch (op) {
    case PTX_OP_MUL:
        return jit_narrow(g, times(g, w[0], w[1]), round);
    case PTX_OP_DIV:
        r = LLVMBuildFDiv(g->b, w[0], w[1], "");
        e = divide_error(g, w[0], w[1], r);
        return jit_narrow(g, to_odd(g, r, above_zero(g, e), below_zero(g, e)), round);
    case PTX_OP_SQRT:
        r = jit_call1(g, "llvm.sqrt", w[0]);
        e = jit_call3(g, "llvm.fma", negative(g, r), r, w[0]);
        return jit_narrow(g, to_odd(g, r, above_zero(g, e), below_zero(g, e)), round);
    default:
        a = op == PTX_OP_ADD || op == PTX_OP_SUB ? w[0] : times(g, w[0], w[1]);
        b = op == PTX_OP_ADD ? w[1] : op == PTX_OP_SUB ? negative(g, w[1]) : w[2];
        return zero_sign(g, jit_narrow(g, jit_add_odd(g, a, b), round), a, b, round);
    }
}

/* ---- operations ---- */
/* a, unless b is further to the right (max) or left; -0 is below +0; a NaN loses, or wins with .NaN. */
LLVMValueRef jit_min_max(struct jit_gen *g, const struct ptx_instr *i, LLVMValueRef a, LLVMValueRef b) {
    bool max = i->op == PTX_OP_MAX || (i->op != PTX_OP_MIN && i->sub == PTX_SUB_MAX);
    LLVMValueRef flip = NULL;
    unsigned bits = jit_bits(a);
    if (i->modifiers & PTX_M_XORSIGN) {
        flip = LLVMBuildXor(g->b, jit_to_int(g, a), jit_to_int(g, b), "");
        flip = LLVMBuildAnd(g->b, flip, jit_const(g, bits, UINT64_C(1) << (bits - 1)), "");
    }
    if (i->modifiers & PTX_M_ABS) a = jit_abs(g, a), b = jit_abs(g, b);
    LLVMValueRef na = jit_to_int(g, a), nb = jit_to_int(g, b);
    LLVMValueRef equal = max ? LLVMBuildAnd(g->b, na, nb, "") : LLVMBuildOr(g->b, na, nb, "");
    LLVMValueRef r = jit_select(g, jit_ordered(g, max ? LLVMRealOGT : LLVMRealOLT, a, b), a, b);
    r = jit_select(g, jit_ordered(g, LLVMRealOEQ, a, b), jit_to_float(g, equal), r);
    LLVMValueRef nan_a = jit_ordered(g, LLVMRealUNO, a, a), nan_b = jit_ordered(g, LLVMRealUNO, b, b);
    if (i->modifiers & PTX_M_NAN) {
        r = jit_select(g, LLVMBuildOr(g->b, nan_a, nan_b, ""), plus(g, a, b), r);
        r = jit_nan(g, r);
    } else
        r = jit_select(g, nan_b, a, r); /* a NaN in a has lost by the comparisons */
    if (!flip) return r;
    LLVMValueRef n = LLVMBuildAnd(g->b, jit_to_int(g, r), jit_const(g, bits, ~(UINT64_C(1) << (bits - 1))), "");
    return jit_to_float(g, LLVMBuildOr(g->b, n, flip, ""));
}

/* .approx.ftz.f64 gives the upper half of a double only. */
static LLVMValueRef upper_half(struct jit_gen *g, LLVMValueRef v) {
    LLVMValueRef tiny = jit_const_float(g, 64, 2.2250738585072014e-308);
    LLVMValueRef n = LLVMBuildAnd(g->b, jit_to_int(g, v), jit_const(g, 64, UINT64_C(0xffffffff00000000)), "");
    LLVMValueRef sign = LLVMBuildAnd(g->b, n, jit_const(g, 64, UINT64_C(1) << 63), "");
    n = jit_select(g, jit_ordered(g, LLVMRealOLT, jit_abs(g, v), tiny), sign, n);
    return jit_select(g, jit_ordered(g, LLVMRealUNO, v, v), v, jit_to_float(g, n));
}

static LLVMValueRef flush_double(struct jit_gen *g, LLVMValueRef v) {
    LLVMValueRef tiny = jit_const_float(g, 64, 2.2250738585072014e-308);
    LLVMValueRef sign = LLVMBuildAnd(g->b, jit_to_int(g, v), jit_const(g, 64, UINT64_C(1) << 63), "");
    return jit_select(g, jit_ordered(g, LLVMRealOLT, jit_abs(g, v), tiny), jit_to_float(g, sign), v);
}

static LLVMValueRef reciprocal(struct jit_gen *g, const struct ptx_instr *i, unsigned bits, LLVMValueRef v) {
    LLVMValueRef one = jit_const_float(g, bits, 1);
    bool half = bits == 64 && i->modifiers & PTX_M_FTZ;
    if (half) v = flush_double(g, v);
    if (i->op == PTX_OP_RSQRT) v = jit_call1(g, "llvm.sqrt", v);
    v = LLVMBuildFDiv(g->b, one, v, "");
    return half ? upper_half(g, v) : v;
}

static LLVMValueRef nearest(struct jit_gen *g, unsigned op, LLVMValueRef v[3]) {
    switch (op) {
    case PTX_OP_ADD:
        return plus(g, v[0], v[1]);
    case PTX_OP_SUB:
        return minus(g, v[0], v[1]);
    case PTX_OP_MUL:
        return times(g, v[0], v[1]);
    case PTX_OP_DIV:
        return LLVMBuildFDiv(g->b, v[0], v[1], "");
    case PTX_OP_SQRT:
        return jit_call1(g, "llvm.sqrt", v[0]);
    default:
        return jit_call3(g, "llvm.fma", v[0], v[1], v[2]);
    }
}

static LLVMValueRef operation(struct jit_gen *g, const struct ptx_instr *i, unsigned bits, LLVMValueRef v[3]) {
    bool directed = i->round == PTX_RZ || i->round == PTX_RM || i->round == PTX_RP;
    switch (i->op) {
    case PTX_OP_RCP:
        if (directed) {
            LLVMValueRef q[3] = {jit_const_float(g, bits, 1), v[0], NULL};
            return bits == 64 ? double_in_mode(g, '/', q, i->round) : single_in_mode(g, PTX_OP_DIV, q, i->round);
        }
        return reciprocal(g, i, bits, v[0]);
    case PTX_OP_RSQRT:
        return reciprocal(g, i, bits, v[0]);
    case PTX_OP_ADD:
    case PTX_OP_SUB:
    case PTX_OP_MUL:
    case PTX_OP_DIV:
    case PTX_OP_SQRT:
    case PTX_OP_FMA:
    case PTX_OP_MAD:
        if (!directed) return nearest(g, i->op, v);
        if (i->op == PTX_OP_FMA) {
            LLVMValueRef r = jit_fma_down(g, i, v);
            if (r) return r;
        }
        return bits == 64 ? double_in_mode(g, double_op(i->op), v, i->round) : single_in_mode(g, i->op, v, i->round);
    case PTX_OP_MIN:
    case PTX_OP_MAX:
        v[0] = jit_min_max(g, i, v[0], v[1]);
        return i->srcs == 3 ? jit_min_max(g, i, v[0], v[2]) : v[0];
    case PTX_OP_ABS:
        return jit_abs(g, v[0]);
    case PTX_OP_NEG:
        return negative(g, v[0]);
    case PTX_OP_COPYSIGN:
        return jit_call2(g, "llvm.copysign", v[1], v[0]);
    case PTX_OP_EX2:
        return jit_ex2(g, v[0]);
    case PTX_OP_LG2:
        return jit_lg2(g, v[0]);
    case PTX_OP_SIN:
        return jit_sin(g, v[0], false);
    case PTX_OP_COS:
        return jit_sin(g, v[0], true);
    case PTX_OP_TANH:
        return jit_tanh(g, v[0]);
    default:
        return NULL;
    }
}

LLVMValueRef jit_float_op(struct jit_gen *g, const struct ptx_instr *i, unsigned bits, LLVMValueRef v[3]) {
    bool flush = bits == 32 && i->modifiers & PTX_M_FTZ;
    for (int k = 0; flush && k < 3; k++)
        if (v[k]) v[k] = jit_flush(g, v[k]);
    LLVMValueRef r = operation(g, i, bits, v);
    if (!r) return NULL;
    if (i->modifiers & PTX_M_SAT) r = jit_saturate(g, r);
    if (i->modifiers & PTX_M_RELU)
        r = jit_select(g, jit_ordered(g, LLVMRealOLE, r, zero_like(g, r)), zero_like(g, r), r);
    return flush ? jit_flush(g, r) : r;
}

static LLVMValueRef testp(struct jit_gen *g, const struct ptx_instr *i, unsigned bits) {
    LLVMValueRef v = jit_read_float(g, &i->src[0], bits), a = jit_abs(g, v);
    LLVMValueRef inf = jit_to_float(g, jit_const(g, bits, bits == 32 ? 0x7f800000 : UINT64_C(0x7ff0000000000000)));
    LLVMValueRef least = jit_to_float(g, jit_const(g, bits, bits == 32 ? 0x00800000 : UINT64_C(0x0010000000000000)));
    LLVMValueRef finite = jit_ordered(g, LLVMRealOLT, a, inf);
    switch (i->sub) {
    case PTX_SUB_FINITE:
        return finite;
    case PTX_SUB_INFINITE:
        return jit_ordered(g, LLVMRealOEQ, a, inf);
    case PTX_SUB_NUMBER:
        return jit_ordered(g, LLVMRealORD, v, v);
    case PTX_SUB_NOTANUMBER:
        return jit_ordered(g, LLVMRealUNO, v, v);
    case PTX_SUB_NORMAL:
        return LLVMBuildAnd(g->b, finite, jit_ordered(g, LLVMRealOGE, a, least), "");
    default:
        return LLVMBuildAnd(g->b, above_zero(g, a), jit_ordered(g, LLVMRealOLT, a, least), "");
    }
}

bool jit_instr_float(struct jit_gen *g, const struct ptx_instr *i) {
    unsigned bits = ptx_type_bits(i->type);
    LLVMValueRef v[3] = {0};
    if (i->type != PTX_F32 && i->type != PTX_F64) return false;
    if (i->op == PTX_OP_TESTP) {
        jit_write(g, &i->dst[0], testp(g, i, bits));
        return true;
    }
    for (int k = 0; k < i->srcs && k < 3; k++) v[k] = jit_read_float(g, &i->src[k], bits);
    LLVMValueRef r = jit_float_op(g, i, bits, v);
    if (r) jit_write(g, &i->dst[0], r);
    return r;
}
