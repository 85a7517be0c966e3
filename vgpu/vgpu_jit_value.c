/* The compiler's values: LLVM types by number of lanes, constants, and the operands of instructions. */
#include "vgpu/vgpu_jit.h"

#include <stdio.h>
#include <string.h>

void jit_fail(struct jit_gen *g, const char *what) {
    struct jit_unit *u = g->u;
    if (u->failed) return;
    u->failed = true;
    if (g->instr)
        snprintf(u->error, u->error_len, "line %d: %s: %s", (int)g->instr->line, ptx_ops[g->instr->op].text, what);
    else
        snprintf(u->error, u->error_len, "%s: %s", g->f->name, what);
}

/* ---- types ---- */
LLVMTypeRef jit_int1(struct jit_gen *g, unsigned bits) {
    return LLVMIntTypeInContext(g->u->context, bits);
}

LLVMTypeRef jit_wide(struct jit_gen *g, LLVMTypeRef t) {
    return g->width == 1 ? t : LLVMVectorType(t, g->width);
}

LLVMTypeRef jit_int(struct jit_gen *g, unsigned bits) {
    return jit_wide(g, jit_int1(g, bits));
}

static LLVMTypeRef float1(struct jit_gen *g, unsigned bits) {
    return bits == 64 ? LLVMDoubleTypeInContext(g->u->context) : LLVMFloatTypeInContext(g->u->context);
}

LLVMTypeRef jit_float(struct jit_gen *g, unsigned bits) {
    return jit_wide(g, float1(g, bits));
}

LLVMTypeRef jit_pointer(struct jit_gen *g, LLVMTypeRef pointee) {
    (void)g;
    return LLVMPointerType(pointee, 0);
}

static LLVMTypeRef lane_type(LLVMValueRef v) {
    LLVMTypeRef t = LLVMTypeOf(v);
    return LLVMGetTypeKind(t) == LLVMVectorTypeKind ? LLVMGetElementType(t) : t;
}

static unsigned lanes_of(LLVMValueRef v) {
    LLVMTypeRef t = LLVMTypeOf(v);
    return LLVMGetTypeKind(t) == LLVMVectorTypeKind ? LLVMGetVectorSize(t) : 1;
}

unsigned jit_bits(LLVMValueRef v) {
    LLVMTypeRef t = lane_type(v);
    switch (LLVMGetTypeKind(t)) {
    case LLVMFloatTypeKind:
        return 32;
    case LLVMDoubleTypeKind:
        return 64;
    case LLVMIntegerTypeKind:
        return LLVMGetIntTypeWidth(t);
    default:
        return 64;
    }
}

static bool is_int(LLVMValueRef v) {
    return LLVMGetTypeKind(lane_type(v)) == LLVMIntegerTypeKind;
}

static LLVMTypeRef as_wide_as(LLVMValueRef v, LLVMTypeRef lane) {
    unsigned n = lanes_of(v);
    return n == 1 ? lane : LLVMVectorType(lane, n);
}

/* ---- constants ---- */
LLVMValueRef jit_scalar(struct jit_gen *g, unsigned bits, uint64_t v) {
    return LLVMConstInt(jit_int1(g, bits), v, false);
}

static LLVMValueRef repeat(LLVMValueRef c, unsigned n) {
    LLVMValueRef all[JIT_LANES];
    for (unsigned i = 0; i < n; i++) all[i] = c;
    return n == 1 ? c : LLVMConstVector(all, n);
}

LLVMValueRef jit_const(struct jit_gen *g, unsigned bits, uint64_t v) {
    return repeat(jit_scalar(g, bits, v), g->width);
}

LLVMValueRef jit_const_float(struct jit_gen *g, unsigned bits, double v) {
    return repeat(LLVMConstReal(float1(g, bits), v), g->width);
}

LLVMValueRef jit_splat(struct jit_gen *g, LLVMValueRef one) {
    if (lanes_of(one) > 1) return one;
    if (LLVMIsConstant(one)) return repeat(one, JIT_LANES);
    LLVMTypeRef t = LLVMVectorType(LLVMTypeOf(one), JIT_LANES);
    LLVMValueRef first = LLVMBuildInsertElement(g->b, LLVMGetUndef(t), one, jit_scalar(g, 32, 0), "");
    LLVMValueRef zeros = LLVMConstNull(LLVMVectorType(jit_int1(g, 32), JIT_LANES));
    return LLVMBuildShuffleVector(g->b, first, LLVMGetUndef(t), zeros, "");
}

LLVMValueRef jit_spread(struct jit_gen *g, LLVMValueRef one) {
    return g->width == 1 ? one : jit_splat(g, one);
}

LLVMValueRef jit_iota(struct jit_gen *g, unsigned bits, int64_t stride) {
    LLVMValueRef all[JIT_LANES];
    for (unsigned i = 0; i < JIT_LANES; i++) all[i] = jit_scalar(g, bits, (uint64_t)stride * i);
    return LLVMConstVector(all, JIT_LANES);
}

/* ---- calls of LLVM's intrinsics ---- */
LLVMValueRef jit_intrinsic(struct jit_gen *g, const char *name, LLVMTypeRef *overload, unsigned overloads,
                           LLVMValueRef *args, unsigned n) {
    unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
    LLVMValueRef f = LLVMGetIntrinsicDeclaration(g->u->llvm, id, overload, overloads);
    LLVMTypeRef t = LLVMIntrinsicGetType(g->u->context, id, overload, overloads);
    return LLVMBuildCall2(g->b, t, f, args, n, "");
}

LLVMValueRef jit_call1(struct jit_gen *g, const char *name, LLVMValueRef a) {
    LLVMTypeRef t = LLVMTypeOf(a);
    return jit_intrinsic(g, name, &t, 1, &a, 1);
}

LLVMValueRef jit_call2(struct jit_gen *g, const char *name, LLVMValueRef a, LLVMValueRef b) {
    LLVMTypeRef t = LLVMTypeOf(a);
    return jit_intrinsic(g, name, &t, 1, (LLVMValueRef[]){a, b}, 2);
}

LLVMValueRef jit_call3(struct jit_gen *g, const char *name, LLVMValueRef a, LLVMValueRef b, LLVMValueRef c) {
    LLVMTypeRef t = LLVMTypeOf(a);
    return jit_intrinsic(g, name, &t, 1, (LLVMValueRef[]){a, b, c}, 3);
}

LLVMValueRef jit_select(struct jit_gen *g, LLVMValueRef c, LLVMValueRef t, LLVMValueRef f) {
    return LLVMBuildSelect(g->b, c, t, f, "");
}

LLVMValueRef jit_to_int(struct jit_gen *g, LLVMValueRef v) {
    if (is_int(v)) return v;
    return LLVMBuildBitCast(g->b, v, as_wide_as(v, jit_int1(g, jit_bits(v))), "");
}

LLVMValueRef jit_to_float(struct jit_gen *g, LLVMValueRef v) {
    if (!is_int(v)) return v;
    return LLVMBuildBitCast(g->b, v, as_wide_as(v, float1(g, jit_bits(v))), "");
}

LLVMValueRef jit_resize(struct jit_gen *g, LLVMValueRef v, unsigned bits, bool is_signed) {
    v = jit_to_int(g, v);
    unsigned has = jit_bits(v);
    LLVMTypeRef t = as_wide_as(v, jit_int1(g, bits));
    if (has > bits) return LLVMBuildTrunc(g->b, v, t, "");
    if (has == bits) return v;
    return is_signed ? LLVMBuildSExt(g->b, v, t, "") : LLVMBuildZExt(g->b, v, t, "");
}

/* ---- memory of the function itself ---- */
LLVMValueRef jit_alloca(struct jit_gen *g, LLVMTypeRef t, const char *name) {
    LLVMBasicBlockRef here = LLVMGetInsertBlock(g->b);
    LLVMValueRef first = LLVMGetFirstInstruction(g->entry_block);
    if (first)
        LLVMPositionBuilderBefore(g->b, first);
    else
        LLVMPositionBuilderAtEnd(g->b, g->entry_block);
    LLVMValueRef a = LLVMBuildAlloca(g->b, t, name);
    LLVMPositionBuilderAtEnd(g->b, here);
    return a;
}

LLVMValueRef jit_load(struct jit_gen *g, LLVMTypeRef t, LLVMValueRef p) {
    return LLVMBuildLoad2(g->b, t, p, "");
}

LLVMBasicBlockRef jit_block(struct jit_gen *g, const char *name) {
    return LLVMAppendBasicBlockInContext(g->u->context, g->fn, name);
}

/* ---- registers ---- */
unsigned jit_reg_bits(struct jit_gen *g, int32_t reg) {
    return ptx_type_bits(g->f->regs[reg].type);
}

bool jit_reg_scalar(struct jit_gen *g, int32_t reg) {
    return g->u->lanes == 1 || g->shapes[reg].kind != JIT_VARYING;
}

LLVMTypeRef jit_reg_type(struct jit_gen *g, int32_t reg) {
    unsigned type = g->f->regs[reg].type, bits = jit_reg_bits(g, reg);
    LLVMTypeRef t = type == PTX_F32 || type == PTX_F64 ? float1(g, bits) : jit_int1(g, bits);
    return jit_reg_scalar(g, reg) ? t : LLVMVectorType(t, JIT_LANES);
}

/* The register in `width` lanes, as it is stored. A pointer register is the whole address unless `raw`. */
LLVMValueRef jit_read_reg(struct jit_gen *g, int32_t reg) {
    const struct jit_shape *s = &g->shapes[reg];
    LLVMTypeRef t = jit_reg_type(g, reg);
    LLVMValueRef v = s->constant && LLVMGetTypeKind(t) == LLVMIntegerTypeKind ? LLVMConstInt(t, s->value, false)
                                                                              : jit_load(g, t, g->regs[reg]);
    if (g->roots[reg] >= 0 && !g->raw) {
        LLVMValueRef root = LLVMBuildPtrToInt(g->b, g->root[g->roots[reg]].pointer, jit_int1(g, 64), "");
        v = LLVMBuildAdd(g->b, v, lanes_of(v) == 1 ? root : jit_splat(g, root), "");
    }
    if (g->width == 1 || lanes_of(v) > 1) return v;
    v = jit_splat(g, v);
    if (s->stride) v = LLVMBuildAdd(g->b, v, jit_iota(g, jit_bits(v), s->stride), "");
    return v;
}

static LLVMValueRef read_any(struct jit_gen *g, const struct ptx_operand *o, unsigned bits, bool is_signed) {
    LLVMValueRef v;
    switch (o->kind) {
    case PTX_REG:
        v = jit_read_reg(g, o->reg);
        if (jit_bits(v) == 1 && bits > 1) is_signed = false;
        return jit_resize(g, v, bits, is_signed);
    case PTX_IMM:
        return jit_const(g, bits, o->bits);
    case PTX_SREG_OP:
        return jit_resize(g, jit_special(g, o->sreg), bits, false);
    case PTX_SYMBOL:
        return jit_resize(g, jit_symbol(g, o), bits, false);
    default:
        jit_fail(g, "an operand of a kind that it cannot have");
        return LLVMGetUndef(jit_int(g, bits));
    }
}

LLVMValueRef jit_read_int(struct jit_gen *g, const struct ptx_operand *o, unsigned bits) {
    return read_any(g, o, bits, false);
}

LLVMValueRef jit_read_signed(struct jit_gen *g, const struct ptx_operand *o, unsigned bits) {
    return read_any(g, o, bits, true);
}

LLVMValueRef jit_read_float(struct jit_gen *g, const struct ptx_operand *o, unsigned bits) {
    if (o->kind == PTX_REG && jit_reg_bits(g, o->reg) == bits) return jit_to_float(g, jit_read_reg(g, o->reg));
    return jit_to_float(g, jit_read_int(g, o, bits));
}

LLVMValueRef jit_read_pred(struct jit_gen *g, const struct ptx_operand *o) {
    LLVMValueRef v = jit_read_int(g, o, 1);
    return o->negated ? LLVMBuildNot(g->b, v, "") : v;
}

static void write_reg(struct jit_gen *g, int32_t reg, LLVMValueRef v, bool is_signed) {
    LLVMTypeRef t = jit_reg_type(g, reg);
    unsigned bits = jit_reg_bits(g, reg);
    if (g->shapes[reg].constant && LLVMGetTypeKind(t) == LLVMIntegerTypeKind) return;
    if (jit_bits(v) != bits) v = jit_resize(g, v, bits, is_signed);
    if (g->f->regs[reg].type == PTX_F32 || g->f->regs[reg].type == PTX_F64)
        v = jit_to_float(g, v);
    else
        v = jit_to_int(g, v);
    if (!jit_reg_scalar(g, reg)) {
        v = jit_splat(g, v);
        if (g->guard_value || (g->flow.blend[reg] && g->flow.partial[g->block]))
            v = jit_select(g, jit_mask(g), v, jit_load(g, t, g->regs[reg]));
    } else if (lanes_of(v) > 1)
        v = LLVMBuildExtractElement(g->b, v, jit_scalar(g, 32, 0), "");
    LLVMBuildStore(g->b, v, g->regs[reg]);
}

void jit_write_ext(struct jit_gen *g, const struct ptx_operand *o, LLVMValueRef v, bool is_signed) {
    if (o->kind == PTX_REG)
        write_reg(g, o->reg, v, is_signed);
    else if (o->kind != PTX_SINK)
        jit_fail(g, "a destination of a kind that it cannot have");
}

void jit_write(struct jit_gen *g, const struct ptx_operand *o, LLVMValueRef v) {
    jit_write_ext(g, o, v, false);
}

/* ---- masks ---- */
LLVMValueRef jit_mask_bits(struct jit_gen *g) {
    if (g->mask_bits) return g->mask_bits;
    if (g->mask) return g->mask_bits = LLVMBuildBitCast(g->b, g->mask, jit_int1(g, 32), "");
    return g->mask_bits = jit_load(g, jit_int1(g, 32), g->current);
}

/* By a comparison, not by a bitcast: on lanes of 32 bits, which most of the code has, that costs less. */
LLVMValueRef jit_mask(struct jit_gen *g) {
    LLVMValueRef bit[JIT_LANES];
    if (g->mask) return g->mask;
    for (unsigned l = 0; l < JIT_LANES; l++) bit[l] = jit_scalar(g, 32, UINT64_C(1) << l);
    LLVMValueRef all = LLVMConstVector(bit, JIT_LANES), own = jit_splat(g, jit_mask_bits(g));
    return g->mask = LLVMBuildICmp(g->b, LLVMIntEQ, LLVMBuildAnd(g->b, own, all, ""), all, "");
}
