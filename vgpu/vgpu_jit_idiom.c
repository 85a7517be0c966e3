/* What compilers of CUDA C write again and again, and has a shorter form here: sums and extremes over a warp, which end
 * as one number, and expf's rounding down to a whole number. Both are found by what defines a register in its block. */
#include "vgpu/vgpu_jit_float.h"
#include "vgpu/vgpu_jit_visit.h"

#include <string.h>

/* ---- where a value comes from ---- */

/* A register, as instruction `def` of the function leaves it; def -1: as it was when the block began. */
struct value {
    int32_t reg, def;
};

static void find_reg(void *context, int32_t reg) {
    int32_t *wanted = context;
    if (reg == *wanted) *wanted = -1;
}

static bool defines(const struct ptx_instr *i, int32_t reg) {
    int32_t wanted = reg;
    jit_visit_defs(i, find_reg, &wanted);
    return wanted < 0;
}

/* Of a register before instruction `at` of the block that is looked at; copies are looked through. false: under a
 * guard, it is one of two. */
static bool value_of(struct jit_gen *g, int32_t reg, int32_t at, struct value *v) {
    int32_t n = at - 1, first = g->f->blocks[g->block].first;
    while (n >= first && !defines(&g->f->instrs[n], reg)) n--;
    *v = (struct value){reg, n >= first ? n : -1};
    if (n < first) return true;
    const struct ptx_instr *i = &g->f->instrs[n];
    if (i->guard >= 0) return false;
    if (i->op == PTX_OP_MOV && i->src[0].kind == PTX_REG && i->dst[0].kind == PTX_REG)
        return value_of(g, i->src[0].reg, n, v);
    return true;
}

/* ---- one number over a warp ---- */

static bool is_constant(struct jit_gen *g, const struct ptx_operand *o, uint64_t *v) {
    struct jit_shape s = jit_operand_shape(g, o, 32);
    *v = s.value & 0xffffffff;
    return s.kind == JIT_SCALAR && s.constant;
}

/* shfl.bfly of the whole warp by one bit of the lane's number: that bit. 0: it is none. */
static uint32_t butterfly(struct jit_gen *g, const struct ptx_instr *i) {
    uint64_t bit, clamp, members = 0xffffffff;
    if (i->op != PTX_OP_SHFL || i->sub != PTX_SUB_BFLY || i->srcs < 3 || i->src[0].kind != PTX_REG) return 0;
    if (!is_constant(g, &i->src[1], &bit) || !is_constant(g, &i->src[2], &clamp)) return 0;
    if (i->srcs > 3 && !is_constant(g, &i->src[3], &members)) return 0;
    bool one = bit && bit < JIT_LANES && !(bit & (bit - 1));
    return one && clamp == JIT_LANES - 1 && members == 0xffffffff ? (uint32_t)bit : 0;
}

/* To the bit: in either order of its operands. */
static bool commutes(const struct ptx_instr *i) {
    bool known = i->type == PTX_F32 || i->type == PTX_S32 || i->type == PTX_U32 || i->type == PTX_B32;
    if (!known || i->srcs != 2 || i->modifiers & (PTX_M_CC | PTX_M_XORSIGN)) return false;
    switch (i->op) {
    case PTX_OP_ADD:
    case PTX_OP_MIN:
    case PTX_OP_MAX:
    case PTX_OP_AND:
    case PTX_OP_OR:
    case PTX_OP_XOR:
        return true;
    default:
        return false;
    }
}

static uint32_t agreed(struct jit_gen *g, struct value v);

/* y is x as another lane has it: the bits in which lanes then agree on an operation of both. */
static uint32_t exchanged(struct jit_gen *g, struct value x, struct value y) {
    struct value from;
    if (y.def < 0) return 0;
    const struct ptx_instr *i = &g->f->instrs[y.def];
    uint32_t bit = butterfly(g, i);
    if (!bit || i->dst[0].kind != PTX_REG || i->dst[0].reg != y.reg) return 0;
    if (!value_of(g, i->src[0].reg, y.def, &from) || from.reg != x.reg || from.def != x.def) return 0;
    return bit | agreed(g, x);
}

/* Bits of the lane's number on which the result of instruction n does not depend. */
static uint32_t agreed_by(struct jit_gen *g, int32_t n) {
    const struct ptx_instr *i = &g->f->instrs[n];
    struct value a, b;
    if (!commutes(i) || i->guard >= 0 || i->src[0].kind != PTX_REG || i->src[1].kind != PTX_REG) return 0;
    if (!value_of(g, i->src[0].reg, n, &a) || !value_of(g, i->src[1].reg, n, &b)) return 0;
    uint32_t bits = exchanged(g, a, b);
    return bits ? bits : exchanged(g, b, a);
}

static uint32_t agreed(struct jit_gen *g, struct value v) {
    return v.def < 0 ? 0 : agreed_by(g, v.def);
}

/* All lanes of the last step have the same number, but for what a NaN carries: a + b is b + a. That takes every lane.
 */
bool jit_same_in_all(struct jit_gen *g, const struct ptx_instr *i) {
    if (g->u->lanes == 1 || !g->full || g->flow.partial[g->block]) return false;
    return agreed_by(g, (int32_t)(i - g->f->instrs)) == JIT_LANES - 1;
}

/* A thread that leaves before the others, or what may make it leave. */
static bool may_leave(struct jit_gen *g, int32_t b) {
    const struct ptx_block *block = &g->f->blocks[b];
    const struct ptx_instr *last = block->end > block->first ? &g->f->instrs[block->end - 1] : NULL;
    const int32_t *list;
    for (int32_t n = block->first; n < block->end; n++)
        if (g->f->instrs[n].op == PTX_OP_CALL) return true;
    int32_t count = jit_successors(g->f, b, &list);
    bool leaves = !count || (last && (last->op == PTX_OP_RET || last->op == PTX_OP_EXIT));
    for (int32_t k = 0; k < count; k++) leaves |= count > 1 && g->flow.trivial[list[k]];
    return leaves && (g->flow.partial[b] || (last && jit_divergent_guard(g, last)));
}

bool jit_full(struct jit_gen *g) {
    if (g->u->lanes == 1 || !g->u->aligned || !g->f->entry) return false;
    for (int32_t k = 0; k < g->flow.count; k++)
        if (may_leave(g, g->flow.order[k])) return false;
    return true;
}

/* ---- a b + c rounded down, where that is a whole number ---- */

static bool in_unit(struct jit_gen *g, const struct ptx_operand *o, int32_t at) {
    struct value v;
    if (o->kind != PTX_REG || !value_of(g, o->reg, at, &v) || v.def < 0) return false;
    const struct ptx_instr *i = &g->f->instrs[v.def];
    return i->type == PTX_F32 && i->modifiers & PTX_M_SAT && i->dsts == 1;
}

static bool constant_float(struct jit_gen *g, const struct ptx_operand *o, float *f) {
    uint64_t v;
    if (!is_constant(g, o, &v)) return false;
    uint32_t bits = (uint32_t)v;
    memcpy(f, &bits, sizeof bits);
    return true;
}

/* 0 <= a <= 1, b and c constants, c whole, all results from 2^23 up to below 2^24, where numbers are whole: the sum to
 * nearest is right, or 1 too large, and the sign of what is missing tells exactly. NULL: it is not so. */
LLVMValueRef jit_fma_down(struct jit_gen *g, const struct ptx_instr *i, LLVMValueRef v[3]) {
    float b, c;
    if (i->type != PTX_F32 || i->round != PTX_RM || i->modifiers & (PTX_M_SAT | PTX_M_RELU) || i->guard >= 0)
        return NULL;
    if (!in_unit(g, &i->src[0], (int32_t)(i - g->f->instrs))) return NULL;
    if (!constant_float(g, &i->src[1], &b) || !constant_float(g, &i->src[2], &c)) return NULL;
    if (!(b >= 1 && b <= 0x1p22f && c >= 0x1p23f && c + b < 0x1p24f)) return NULL;
    LLVMValueRef r = jit_call3(g, "llvm.fma", v[0], v[1], v[2]);
    LLVMValueRef whole = LLVMBuildFSub(g->b, r, v[2], "");
    LLVMValueRef rest = jit_call3(g, "llvm.fma", v[0], v[1], LLVMBuildFNeg(g->b, whole, ""));
    LLVMValueRef over = jit_ordered(g, LLVMRealOLT, rest, jit_const_float(g, 32, 0));
    return LLVMBuildFSub(g->b, r, jit_select(g, over, jit_const_float(g, 32, 1), jit_const_float(g, 32, 0)), "");
}
