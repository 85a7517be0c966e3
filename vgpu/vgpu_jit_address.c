/* Addresses: where an access of each lane goes, and the conversions between spaces. Code that runs lane by lane. */
#include "vgpu/vgpu_jit.h"

static LLVMValueRef add(struct jit_gen *g, LLVMValueRef a, LLVMValueRef b) {
    return LLVMBuildAdd(g->b, a, b, "");
}

static bool is_vector(LLVMValueRef v) {
    return LLVMGetTypeKind(LLVMTypeOf(v)) == LLVMVectorTypeKind;
}

/* ---- symbols ---- */
static int32_t own_number(struct jit_gen *g, int32_t var) {
    return var - g->u->module->var_count;
}

/* A call's .param variable or a device function's parameter has no address of its own in the parameter space. */
static bool in_call(struct jit_gen *g, int32_t var) {
    int32_t k = own_number(g, var);
    return k >= 0 && g->f->vars[k].space == PTX_PARAM && !(g->f->entry && k < g->f->params);
}

LLVMValueRef jit_symbol(struct jit_gen *g, const struct ptx_operand *o) {
    LLVMValueRef at = jit_const(g, 64, (uint64_t)o->offset), root;
    if (o->func >= 0) return jit_const(g, 64, (uint64_t)o->func + 1); /* a function's address: its number plus one */
    const struct ptx_var *v = ptx_var_of(g->u->module, g->f, o->var);
    switch (v->space) {
    case PTX_SHARED:
        return jit_const(g, 64, (uint64_t)(ptx_shared_offset(g->u->entry, o->var) + o->offset));
    case PTX_LOCAL:
        return add(g, jit_spread(g, g->local_base), jit_const(g, 64, v->offset + (uint64_t)o->offset));
    case PTX_PARAM:
        if (in_call(g, o->var)) jit_fail(g, "the address of a call's parameter is not supported");
        return jit_const(g, 64, v->offset + (uint64_t)o->offset);
    default:
        break;
    }
    if (g->raw) return at;
    int32_t n = jit_variable_root(g, o);
    if (n < 0 || !g->root[n].pointer) {
        jit_fail(g, "a variable in a place where none is supported");
        return at;
    }
    root = LLVMBuildPtrToInt(g->b, g->root[n].pointer, jit_int1(g, 64), "");
    return add(g, jit_spread(g, root), at);
}

/* ---- generic addresses ---- */
static LLVMValueRef local_start(struct jit_gen *g) { /* of each lane's thread, as a number */
    LLVMValueRef t = jit_resize(g, jit_linear_thread(g), 64, false);
    t = LLVMBuildMul(g->b, t, jit_spread(g, jit_field(g, JIT_F_LOCAL_STRIDE, 0)), "");
    LLVMValueRef base = LLVMBuildPtrToInt(g->b, jit_field(g, JIT_F_LOCAL, 0), jit_int1(g, 64), "");
    return add(g, jit_spread(g, base), t);
}

static LLVMValueRef space_start(struct jit_gen *g, unsigned space) {
    unsigned field = space == PTX_SHARED ? JIT_F_SHARED : JIT_F_PARAMS;
    if (space == PTX_LOCAL) return local_start(g);
    if (space != PTX_SHARED && space != PTX_PARAM) return jit_const(g, 64, 0);
    return jit_spread(g, LLVMBuildPtrToInt(g->b, jit_field(g, field, 0), jit_int1(g, 64), ""));
}

static void cvta(struct jit_gen *g, const struct ptx_instr *i) {
    unsigned bits = ptx_type_bits(i->type);
    LLVMValueRef a = jit_resize(g, jit_read_int(g, &i->src[0], bits), 64, false);
    if (!g->raw) {
        LLVMValueRef start = space_start(g, i->space);
        a = i->modifiers & PTX_M_TO ? LLVMBuildSub(g->b, a, start, "") : add(g, a, start);
    }
    jit_write(g, &i->dst[0], a);
}

static LLVMValueRef within(struct jit_gen *g, LLVMValueRef a, LLVMValueRef start, LLVMValueRef bytes) {
    return LLVMBuildICmp(g->b, LLVMIntULT, LLVMBuildSub(g->b, a, start, ""), bytes, "");
}

static LLVMValueRef in_const(struct jit_gen *g, LLVMValueRef a) {
    const struct ptx_module *m = g->u->module;
    LLVMValueRef r = jit_const(g, 1, 0);
    LLVMTypeRef i8 = jit_int1(g, 8), p = jit_pointer(g, i8);
    for (int32_t k = 0; k < m->var_count; k++) {
        if (m->vars[k].space != PTX_CONST) continue;
        LLVMValueRef at = jit_scalar(g, 64, (uint64_t)k * sizeof(void *));
        LLVMValueRef slot = LLVMBuildGEP2(g->b, i8, jit_field(g, JIT_F_SYMBOLS, 0), &at, 1, "");
        LLVMValueRef start = jit_load(g, p, LLVMBuildBitCast(g->b, slot, jit_pointer(g, p), ""));
        start = jit_spread(g, LLVMBuildPtrToInt(g->b, start, jit_int1(g, 64), ""));
        r = LLVMBuildOr(g->b, r, within(g, a, start, jit_const(g, 64, m->vars[k].bytes)), "");
    }
    return r;
}

static void isspacep(struct jit_gen *g, const struct ptx_instr *i) {
    LLVMValueRef a = jit_read_int(g, &i->src[0], 64), r;
    LLVMValueRef shared_bytes = jit_spread(g, jit_resize(g, jit_field(g, JIT_F_SHARED_BYTES, 0), 64, false));
    LLVMValueRef shared = within(g, a, space_start(g, PTX_SHARED), shared_bytes);
    LLVMValueRef local = within(g, a, space_start(g, PTX_LOCAL), jit_spread(g, jit_field(g, JIT_F_LOCAL_STRIDE, 0)));
    LLVMValueRef param = within(g, a, space_start(g, PTX_PARAM), jit_const(g, 64, g->u->entry->param_bytes));
    switch (i->space) {
    case PTX_SHARED:
        r = shared;
        break;
    case PTX_LOCAL:
        r = local;
        break;
    case PTX_PARAM:
        r = param;
        break;
    case PTX_CONST:
        r = in_const(g, a);
        break;
    default:
        r = LLVMBuildNot(g->b, LLVMBuildOr(g->b, LLVMBuildOr(g->b, shared, local, ""), param, ""), "");
    }
    jit_write(g, &i->dst[0], r);
}

bool jit_instr_address(struct jit_gen *g, const struct ptx_instr *i) {
    if (i->op == PTX_OP_CVTA)
        cvta(g, i);
    else if (i->op == PTX_OP_ISSPACEP)
        isspacep(g, i);
    else
        return false;
    return true;
}

/* ---- one access ---- */
static LLVMValueRef read_as(struct jit_gen *g, int32_t reg, unsigned width, bool raw, bool is_signed) {
    unsigned width_before = g->width;
    bool raw_before = g->raw;
    g->width = width, g->raw = raw;
    LLVMValueRef v = jit_resize(g, jit_read_reg(g, reg), 64, is_signed);
    g->width = width_before, g->raw = raw_before;
    return v;
}

static unsigned space_of(struct jit_gen *g, const struct ptx_operand *o, unsigned space) {
    if (o->var >= 0) space = ptx_var_of(g->u->module, g->f, o->var)->space;
    return space;
}

static void add_variable(struct jit_gen *g, const struct ptx_operand *o, struct jit_address *a, uint64_t *constant) {
    const struct ptx_var *v = ptx_var_of(g->u->module, g->f, o->var);
    int32_t k = own_number(g, o->var);
    switch (v->space) {
    case PTX_SHARED:
        *constant += (uint64_t)ptx_shared_offset(g->u->entry, o->var);
        break;
    case PTX_PARAM:
        a->own = true;
        if (!in_call(g, o->var)) {
            *constant += v->offset;
            break;
        }
        a->base = g->calls[k];
        a->stride += (int64_t)(v->bytes ? v->bytes : 1);
        break;
    case PTX_LOCAL:
        *constant += v->offset;
        break;
    default: {
        int32_t n = jit_variable_root(g, o);
        if (n >= 0) a->base = g->root[n].pointer;
    }
    }
}

/* A shared address of 32 bits is taken with its sign: lane 0's may be one before the memory, where lane 0 is off. */
struct jit_address jit_address(struct jit_gen *g, const struct ptx_operand *o, unsigned space) {
    struct jit_address a = {.scalar = true};
    uint64_t constant = o->kind == PTX_IMM ? o->bits : (uint64_t)o->offset;
    space = space_of(g, o, space);
    bool fixed = space == PTX_SHARED || space == PTX_LOCAL || space == PTX_PARAM;
    if (space == PTX_SHARED) a.base = jit_field(g, JIT_F_SHARED, 0), a.block = true;
    if (space == PTX_PARAM) a.base = jit_field(g, JIT_F_PARAMS, 0), a.own = true;
    if (o->var >= 0) add_variable(g, o, &a, &constant);
    a.offset = jit_scalar(g, 64, constant);
    if (o->var < 0 && o->kind != PTX_IMM && o->reg >= 0) {
        const struct jit_shape *s = &g->shapes[o->reg];
        bool rooted = g->roots[o->reg] >= 0 && !fixed;
        a.scalar = jit_reg_scalar(g, o->reg);
        a.maybe = s->maybe;
        a.stride = s->stride;
        LLVMValueRef v = read_as(g, o->reg, a.scalar ? 1 : JIT_LANES, rooted, space == PTX_SHARED);
        if (rooted) a.base = g->root[g->roots[o->reg]].pointer;
        a.offset = add(g, v, a.scalar ? a.offset : jit_splat(g, a.offset));
    } else if (o->var >= 0 && space == PTX_LOCAL)
        a.offset = add(g, g->local_base, a.offset);
    if (space != PTX_LOCAL) return a;
    a.own = true; /* each thread's own, a stride apart that is known only at run time */
    unsigned width = g->width;
    LLVMValueRef offset = a.offset;
    if (g->u->lanes > 1) {
        g->width = JIT_LANES;
        if (!is_vector(offset)) {
            offset = jit_splat(g, offset);
            if (a.stride) offset = add(g, offset, jit_iota(g, 64, a.stride));
        }
        a.scalar = a.maybe = false;
        a.stride = 0;
    }
    LLVMValueRef t = jit_resize(g, jit_linear_thread(g), 64, false);
    t = LLVMBuildMul(g->b, t, jit_spread(g, jit_field(g, JIT_F_LOCAL_STRIDE, 0)), "");
    a.offset = add(g, offset, t);
    a.base = jit_field(g, JIT_F_LOCAL, 0);
    g->width = width;
    return a;
}

LLVMValueRef jit_pointer_to(struct jit_gen *g, const struct jit_address *a, uint64_t at, LLVMTypeRef t) {
    LLVMValueRef offset = at ? add(g, a->offset, jit_scalar(g, 64, at)) : a->offset;
    if (!a->base) return LLVMBuildIntToPtr(g->b, offset, jit_pointer(g, t), "");
    LLVMValueRef p = LLVMBuildGEP2(g->b, jit_int1(g, 8), a->base, &offset, 1, "");
    return LLVMBuildBitCast(g->b, p, jit_pointer(g, t), "");
}

LLVMValueRef jit_addresses(struct jit_gen *g, const struct jit_address *a) {
    LLVMValueRef v = jit_splat(g, a->offset);
    if (a->scalar && a->stride) v = add(g, v, jit_iota(g, 64, a->stride));
    if (!a->base) return v;
    return add(g, v, jit_splat(g, LLVMBuildPtrToInt(g->b, a->base, jit_int1(g, 64), "")));
}

void jit_mark_parallel(struct jit_gen *g, LLVMValueRef access) {
    if (g->u->lanes == 1 && g->u->access_group)
        LLVMSetMetadata(access, LLVMGetMDKindIDInContext(g->u->context, "llvm.access.group", 17), g->u->access_group);
}

/* ---- lane by lane ---- */
LLVMValueRef jit_room(struct jit_gen *g, LLVMTypeRef lane) {
    LLVMValueRef a = jit_alloca(g, LLVMArrayType(lane, JIT_LANES), "lanes");
    LLVMSetAlignment(a, 64);
    return LLVMBuildBitCast(g->b, a, jit_pointer(g, lane), "");
}

LLVMValueRef jit_spill(struct jit_gen *g, LLVMValueRef v) {
    LLVMTypeRef t = LLVMTypeOf(v), lane = LLVMGetElementType(t);
    LLVMValueRef room = jit_room(g, lane);
    LLVMBuildStore(g->b, v, LLVMBuildBitCast(g->b, room, jit_pointer(g, t), ""));
    return room;
}

LLVMValueRef jit_lane_place(struct jit_gen *g, LLVMTypeRef t, LLVMValueRef place, LLVMValueRef lane) {
    return LLVMBuildGEP2(g->b, t, place, &lane, 1, "");
}

void jit_each_begin(struct jit_gen *g, struct jit_each *e) {
    LLVMTypeRef i32 = jit_int1(g, 32);
    LLVMBasicBlockRef body = jit_block(g, "lane");
    e->head = jit_block(g, "lanes"), e->end = jit_block(g, "");
    e->left = jit_alloca(g, i32, "left");
    LLVMBuildStore(g->b, jit_mask_bits(g), e->left);
    LLVMBuildBr(g->b, e->head);
    LLVMPositionBuilderAtEnd(g->b, e->head);
    LLVMValueRef left = jit_load(g, i32, e->left), zero = jit_scalar(g, 32, 0);
    LLVMBuildCondBr(g->b, LLVMBuildICmp(g->b, LLVMIntNE, left, zero, ""), body, e->end);
    LLVMPositionBuilderAtEnd(g->b, body);
    e->lane = jit_intrinsic(g, "llvm.cttz", &i32, 1, (LLVMValueRef[]){left, jit_scalar(g, 1, 1)}, 2);
    LLVMValueRef rest = LLVMBuildAnd(g->b, left, LLVMBuildSub(g->b, left, jit_scalar(g, 32, 1), ""), "");
    LLVMBuildStore(g->b, rest, e->left);
}

void jit_each_end(struct jit_gen *g, struct jit_each *e) {
    LLVMBuildBr(g->b, e->head);
    LLVMPositionBuilderAtEnd(g->b, e->end);
}
