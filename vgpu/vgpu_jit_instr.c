/* Code for one instruction: which file makes it, and the moves. */
#include "vgpu/vgpu_jit.h"

/* mov to or from {a, b, …}: the first element is the lowest. */
static void mov_vector(struct jit_gen *g, const struct ptx_instr *i) {
    unsigned bits = ptx_type_bits(i->type);
    const struct ptx_operand *s = &i->src[0], *d = &i->dst[0];
    LLVMValueRef v;
    if (s->kind == PTX_VECTOR) {
        unsigned part = bits / s->count;
        v = jit_const(g, bits, 0);
        for (unsigned e = 0; e < s->count; e++) {
            LLVMValueRef x = jit_resize(g, jit_read_int(g, &s->elements[e], part), bits, false);
            v = LLVMBuildOr(g->b, v, LLVMBuildShl(g->b, x, jit_const(g, bits, (uint64_t)part * e), ""), "");
        }
    } else
        v = jit_read_int(g, s, bits);
    if (d->kind != PTX_VECTOR) {
        jit_write(g, d, v);
        return;
    }
    unsigned part = bits / d->count;
    for (unsigned e = 0; e < d->count; e++) {
        LLVMValueRef x = LLVMBuildLShr(g->b, v, jit_const(g, bits, (uint64_t)part * e), "");
        jit_write(g, &d->elements[e], jit_resize(g, x, part, false));
    }
}

static void mov(struct jit_gen *g, const struct ptx_instr *i) {
    unsigned bits = ptx_type_bits(i->type);
    if (i->src[0].kind == PTX_VECTOR || i->dst[0].kind == PTX_VECTOR)
        mov_vector(g, i);
    else if (i->type == PTX_PRED)
        jit_write(g, &i->dst[0], jit_read_pred(g, &i->src[0]));
    else if (i->type == PTX_F32 || i->type == PTX_F64)
        jit_write(g, &i->dst[0], jit_read_float(g, &i->src[0], bits));
    else
        jit_write(g, &i->dst[0], jit_read_int(g, &i->src[0], bits));
}

static bool data(struct jit_gen *g, const struct ptx_instr *i) {
    switch (i->op) {
    case PTX_OP_MOV:
        mov(g, i);
        return true;
    case PTX_OP_CVT:
        jit_cvt(g, i);
        return true;
    default:
        return false;
    }
}

static bool hint(const struct ptx_instr *i) {
    return ptx_ops[i->op].properties & PTX_P_HINT;
}

void jit_instr(struct jit_gen *g, const struct ptx_instr *i) {
    unsigned kind = ptx_type_kind(i->type);
    bool half = i->type == PTX_F16 || i->type == PTX_BF16 || kind == PTX_KIND_X2;
    if (data(g, i) || jit_instr_memory(g, i) || jit_instr_address(g, i) || jit_instr_atomic(g, i) ||
        jit_instr_warp(g, i) || jit_instr_call(g, i) || jit_instr_compare(g, i))
        return;
    if (half ? jit_instr_half(g, i) : kind == PTX_KIND_F ? jit_instr_float(g, i) : jit_instr_integer(g, i)) return;
    if (jit_instr_bits(g, i)) return;
    if (hint(i)) {
        if (i->op == PTX_OP_MEMBAR || i->op == PTX_OP_FENCE)
            LLVMBuildFence(g->b, LLVMAtomicOrderingSequentiallyConsistent, false, "");
        return;
    }
    jit_fail(g, "this form is not implemented");
}
