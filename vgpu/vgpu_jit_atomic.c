/* atom and red. A block's threads run on one host thread, so atomics on shared memory are plain reads and writes; on
 * global memory they are the machine's own, relaxed. In warp mode the lanes go one after the other, lowest first. */
#include "vgpu/vgpu_jit_float.h"

struct atomic {
    const struct ptx_instr *i;
    LLVMTypeRef type; /* of memory: an integer, or a float for the machine's own addition */
    unsigned bits;
    bool plain; /* no other host thread sees the place */
};

/* The new value, of one lane. */
static LLVMValueRef half_new(struct jit_gen *g, const struct ptx_instr *i, LLVMValueRef old, LLVMValueRef b) {
    bool bf16 = i->type == PTX_BF16 || i->type == PTX_BF16X2, pair = ptx_type_kind(i->type) == PTX_KIND_X2;
    LLVMValueRef r = NULL;
    for (unsigned k = 0; k < (pair ? 2u : 1u); k++) {
        LLVMValueRef v[2] = {old, b};
        for (int n = 0; n < 2; n++) {
            if (k) v[n] = LLVMBuildLShr(g->b, v[n], jit_const(g, 32, 16), "");
            v[n] = jit_from_half(g, jit_resize(g, v[n], 16, false), bf16);
        }
        v[0] = i->sub == PTX_SUB_ADD ? LLVMBuildFAdd(g->b, v[0], v[1], "") : jit_min_max(g, i, v[0], v[1]);
        v[0] = jit_resize(g, jit_to_half(g, v[0], bf16, PTX_RN), pair ? 32 : 16, false);
        r = k ? LLVMBuildOr(g->b, r, LLVMBuildShl(g->b, v[0], jit_const(g, 32, 16), ""), "") : v[0];
    }
    return r;
}

static LLVMValueRef float_new(struct jit_gen *g, const struct ptx_instr *i, LLVMValueRef old, LLVMValueRef b) {
    old = jit_to_float(g, old), b = jit_to_float(g, b);
    return jit_to_int(g, i->sub == PTX_SUB_ADD ? LLVMBuildFAdd(g->b, old, b, "") : jit_min_max(g, i, old, b));
}

static LLVMValueRef new_value(struct jit_gen *g, const struct atomic *x, LLVMValueRef old, LLVMValueRef b,
                              LLVMValueRef c) {
    unsigned kind = ptx_type_kind(x->i->type);
    bool s = kind == PTX_KIND_S;
    LLVMValueRef zero = jit_scalar(g, x->bits, 0), one = jit_scalar(g, x->bits, 1), stop;
    switch (x->i->sub) {
    case PTX_SUB_EXCH:
        return b;
    case PTX_SUB_CAS:
        return jit_select(g, LLVMBuildICmp(g->b, LLVMIntEQ, old, b, ""), c, old);
    case PTX_SUB_AND:
        return LLVMBuildAnd(g->b, old, b, "");
    case PTX_SUB_OR:
        return LLVMBuildOr(g->b, old, b, "");
    case PTX_SUB_XOR:
        return LLVMBuildXor(g->b, old, b, "");
    case PTX_SUB_INC:
        stop = LLVMBuildICmp(g->b, LLVMIntUGE, old, b, "");
        return jit_select(g, stop, zero, LLVMBuildAdd(g->b, old, one, ""));
    case PTX_SUB_DEC:
        stop = LLVMBuildOr(g->b, LLVMBuildICmp(g->b, LLVMIntEQ, old, zero, ""),
                           LLVMBuildICmp(g->b, LLVMIntUGT, old, b, ""), "");
        return jit_select(g, stop, b, LLVMBuildSub(g->b, old, one, ""));
    default:
        break;
    }
    if (x->i->type == PTX_F32 || x->i->type == PTX_F64) return float_new(g, x->i, old, b);
    if (kind == PTX_KIND_F || kind == PTX_KIND_X2) return half_new(g, x->i, old, b);
    if (x->i->sub == PTX_SUB_ADD) return LLVMBuildAdd(g->b, old, b, "");
    if (x->i->sub == PTX_SUB_MIN) return jit_call2(g, s ? "llvm.smin" : "llvm.umin", old, b);
    if (x->i->sub == PTX_SUB_MAX) return jit_call2(g, s ? "llvm.smax" : "llvm.umax", old, b);
    jit_fail(g, "this operation is not implemented");
    return old;
}

/* -1: the machine has none. */
static int machine_op(const struct ptx_instr *i) {
    unsigned kind = ptx_type_kind(i->type);
    bool whole = kind == PTX_KIND_B || kind == PTX_KIND_U || kind == PTX_KIND_S, s = kind == PTX_KIND_S;
    if (!whole) return -1;
    switch (i->sub) {
    case PTX_SUB_ADD:
        return LLVMAtomicRMWBinOpAdd;
    case PTX_SUB_EXCH:
        return LLVMAtomicRMWBinOpXchg;
    case PTX_SUB_AND:
        return LLVMAtomicRMWBinOpAnd;
    case PTX_SUB_OR:
        return LLVMAtomicRMWBinOpOr;
    case PTX_SUB_XOR:
        return LLVMAtomicRMWBinOpXor;
    case PTX_SUB_MIN:
        return s ? LLVMAtomicRMWBinOpMin : LLVMAtomicRMWBinOpUMin;
    case PTX_SUB_MAX:
        return s ? LLVMAtomicRMWBinOpMax : LLVMAtomicRMWBinOpUMax;
    default:
        return -1;
    }
}

/* Until nobody came in between. */
static LLVMValueRef retry(struct jit_gen *g, const struct atomic *x, LLVMValueRef p, LLVMValueRef b, LLVMValueRef c) {
    LLVMBasicBlockRef loop = jit_block(g, "retry"), end = jit_block(g, ""), from[2];
    LLVMValueRef first = jit_load(g, x->type, p), next;
    LLVMSetAlignment(first, x->bits / 8);
    LLVMSetVolatile(first, true);
    from[0] = LLVMGetInsertBlock(g->b);
    LLVMBuildBr(g->b, loop);
    LLVMPositionBuilderAtEnd(g->b, loop);
    LLVMValueRef old = LLVMBuildPhi(g->b, x->type, "");
    next = new_value(g, x, old, b, c);
    LLVMValueRef pair =
        LLVMBuildAtomicCmpXchg(g->b, p, old, next, LLVMAtomicOrderingMonotonic, LLVMAtomicOrderingMonotonic, false);
    LLVMValueRef seen = LLVMBuildExtractValue(g->b, pair, 0, "");
    from[1] = LLVMGetInsertBlock(g->b);
    LLVMAddIncoming(old, (LLVMValueRef[]){first, seen}, from, 2);
    LLVMBuildCondBr(g->b, LLVMBuildExtractValue(g->b, pair, 1, ""), end, loop);
    LLVMPositionBuilderAtEnd(g->b, end);
    return old;
}

static LLVMValueRef once(struct jit_gen *g, const struct atomic *x, LLVMValueRef p, LLVMValueRef b, LLVMValueRef c) {
    if (x->plain) {
        LLVMValueRef old = jit_load(g, x->type, p);
        LLVMSetAlignment(old, x->bits / 8);
        LLVMSetAlignment(LLVMBuildStore(g->b, new_value(g, x, old, b, c), p), x->bits / 8);
        return old;
    }
    int op = machine_op(x->i);
    if (op >= 0) return LLVMBuildAtomicRMW(g->b, (LLVMAtomicRMWBinOp)op, p, b, LLVMAtomicOrderingMonotonic, false);
    if (x->i->sub == PTX_SUB_CAS) {
        LLVMValueRef pair =
            LLVMBuildAtomicCmpXchg(g->b, p, b, c, LLVMAtomicOrderingMonotonic, LLVMAtomicOrderingMonotonic, false);
        return LLVMBuildExtractValue(g->b, pair, 0, "");
    }
    return retry(g, x, p, b, c);
}

static const struct ptx_operand *element(const struct ptx_operand *o, unsigned k) {
    return o->kind == PTX_VECTOR ? &o->elements[k] : o;
}

static void by_thread(struct jit_gen *g, const struct atomic *x, unsigned n) {
    const struct ptx_instr *i = x->i;
    struct jit_address a = jit_address(g, &i->src[0], i->space);
    for (unsigned k = 0; k < n; k++) {
        LLVMValueRef b = jit_read_int(g, element(&i->src[1], k), x->bits), c = NULL;
        if (i->srcs > 2 && i->sub == PTX_SUB_CAS) c = jit_read_int(g, &i->src[2], x->bits);
        LLVMValueRef old = once(g, x, jit_pointer_to(g, &a, (uint64_t)k * x->bits / 8, x->type), b, c);
        if (i->dsts) jit_write(g, element(&i->dst[0], k), old);
    }
}

static void by_lane(struct jit_gen *g, const struct atomic *x, unsigned n) {
    const struct ptx_instr *i = x->i;
    struct jit_each e;
    LLVMTypeRef i64 = jit_int1(g, 64);
    LLVMValueRef b[8], c = NULL, out[8];
    g->width = JIT_LANES;
    jit_mask(g), jit_mask_bits(g);
    struct jit_address a = jit_address(g, &i->src[0], i->space);
    LLVMValueRef at = jit_spill(g, jit_addresses(g, &a));
    for (unsigned k = 0; k < n; k++) {
        b[k] = jit_spill(g, jit_read_int(g, element(&i->src[1], k), x->bits));
        out[k] = jit_room(g, x->type);
    }
    if (i->srcs > 2 && i->sub == PTX_SUB_CAS) c = jit_spill(g, jit_read_int(g, &i->src[2], x->bits));
    jit_each_begin(g, &e);
    g->width = 1;
    LLVMValueRef p = jit_load(g, i64, jit_lane_place(g, i64, at, e.lane));
    for (unsigned k = 0; k < n; k++) {
        LLVMValueRef q = LLVMBuildAdd(g->b, p, jit_scalar(g, 64, (uint64_t)k * x->bits / 8), "");
        q = LLVMBuildIntToPtr(g->b, q, jit_pointer(g, x->type), "");
        LLVMValueRef old = once(g, x, q, jit_load(g, x->type, jit_lane_place(g, x->type, b[k], e.lane)),
                                c ? jit_load(g, x->type, jit_lane_place(g, x->type, c, e.lane)) : NULL);
        LLVMBuildStore(g->b, old, jit_lane_place(g, x->type, out[k], e.lane));
    }
    g->width = JIT_LANES;
    jit_each_end(g, &e);
    LLVMTypeRef t = LLVMVectorType(x->type, JIT_LANES);
    for (unsigned k = 0; k < n && i->dsts; k++)
        jit_write(g, element(&i->dst[0], k), jit_load(g, t, LLVMBuildBitCast(g->b, out[k], jit_pointer(g, t), "")));
}

bool jit_instr_atomic(struct jit_gen *g, const struct ptx_instr *i) {
    if (i->op != PTX_OP_ATOM && i->op != PTX_OP_RED) return false;
    unsigned bits = ptx_type_bits(i->type), n = i->vector ? i->vector : 1;
    struct atomic x = {.i = i, .type = jit_int1(g, bits), .bits = bits, .plain = i->space == PTX_SHARED};
    if (bits < 16 || bits > 64 || n > 8)
        jit_fail(g, "atomics of this width are not implemented");
    else if (g->u->lanes == 1)
        by_thread(g, &x, n);
    else
        by_lane(g, &x, n);
    return true;
}
