/* ld and st. In warp mode by where the lanes' addresses lie: one address, one after the other (known before, or found
 * at run time where it is most likely), or anywhere. */
#include "vgpu/vgpu_jit.h"

#include <string.h>

struct access {
    const struct ptx_instr *i;
    LLVMTypeRef type; /* of an element, one lane */
    unsigned each, n; /* bytes of an element; elements */
    struct jit_address a;
};

static const struct ptx_operand *element(const struct ptx_operand *o, unsigned k) {
    return o->kind == PTX_VECTOR ? &o->elements[k] : o;
}

static LLVMTypeRef lanes(LLVMTypeRef t, unsigned n) {
    return LLVMVectorType(t, n);
}

static LLVMTypeRef element_type(struct jit_gen *g, unsigned type) {
    if (type == PTX_F32) return LLVMFloatTypeInContext(g->u->context);
    if (type == PTX_F64) return LLVMDoubleTypeInContext(g->u->context);
    return jit_int1(g, ptx_type_bits(type));
}

static void decorate(struct jit_gen *g, const struct access *x, LLVMValueRef v) {
    LLVMSetAlignment(v, x->each);
    if (x->i->modifiers & PTX_M_VOLATILE) LLVMSetVolatile(v, true);
    jit_mark_parallel(g, v);
}

static LLVMValueRef load_at(struct jit_gen *g, const struct access *x, LLVMTypeRef t, LLVMValueRef p) {
    LLVMValueRef v = jit_load(g, t, p);
    decorate(g, x, v);
    return v;
}

static void store_at(struct jit_gen *g, const struct access *x, LLVMValueRef v, LLVMValueRef p) {
    decorate(g, x, LLVMBuildStore(g->b, v, p));
}

static LLVMValueRef all_on(struct jit_gen *g) {
    return LLVMBuildICmp(g->b, LLVMIntEQ, jit_mask_bits(g), jit_scalar(g, 32, 0xffffffff), "");
}

/* ---- shuffles between element-major and lane-major ---- */
static LLVMValueRef pick(struct jit_gen *g, LLVMValueRef v, unsigned first, unsigned step, unsigned n) {
    LLVMValueRef at[JIT_LANES];
    for (unsigned l = 0; l < n; l++) at[l] = jit_scalar(g, 32, first + step * l);
    return LLVMBuildShuffleVector(g->b, v, LLVMGetUndef(LLVMTypeOf(v)), LLVMConstVector(at, n), "");
}

static LLVMValueRef concat(struct jit_gen *g, LLVMValueRef a, LLVMValueRef b, unsigned n) {
    LLVMValueRef at[4 * JIT_LANES];
    for (unsigned l = 0; l < 2 * n; l++) at[l] = jit_scalar(g, 32, l);
    return LLVMBuildShuffleVector(g->b, a, b, LLVMConstVector(at, 2 * n), "");
}

/* n vectors of 32 lanes to one of n * 32 elements, a lane's elements together. */
static LLVMValueRef interleave(struct jit_gen *g, LLVMValueRef *v, unsigned n) {
    LLVMValueRef r = v[0], at[4 * JIT_LANES];
    if (n == 2) r = concat(g, v[0], v[1], JIT_LANES);
    if (n == 4) r = concat(g, concat(g, v[0], v[1], JIT_LANES), concat(g, v[2], v[3], JIT_LANES), 2 * JIT_LANES);
    for (unsigned l = 0; l < n * JIT_LANES; l++) at[l] = jit_scalar(g, 32, l / n + l % n * JIT_LANES);
    return LLVMBuildShuffleVector(g->b, r, LLVMGetUndef(LLVMTypeOf(r)), LLVMConstVector(at, n * JIT_LANES), "");
}

/* ---- anywhere ---- */
/* Lanes that are off read (write) a place of the function's own instead, so no lane needs a branch. */
static LLVMValueRef safe_addresses(struct jit_gen *g, const struct access *x) {
    LLVMValueRef room = jit_alloca(g, LLVMArrayType(jit_int1(g, 64), 8), "nowhere");
    LLVMValueRef own = LLVMBuildPtrToInt(g->b, room, jit_int1(g, 64), "");
    return jit_select(g, jit_mask(g), jit_addresses(g, &x->a), jit_splat(g, own));
}

static LLVMValueRef lane_pointer(struct jit_gen *g, LLVMValueRef all, unsigned lane, uint64_t at, LLVMTypeRef t) {
    LLVMValueRef p = LLVMBuildExtractElement(g->b, all, jit_scalar(g, 32, lane), "");
    if (at) p = LLVMBuildAdd(g->b, p, jit_scalar(g, 64, at), "");
    return LLVMBuildIntToPtr(g->b, p, jit_pointer(g, t), "");
}

/* In a large function, in the variant for blocks of odd shapes, and where a row was likely, a loop instead: for the
 * sake of the time that compiling takes. */
static bool by_loop(struct jit_gen *g, const struct access *x) {
    enum { UNROLLED = 16 };
    return !g->u->aligned || x->a.maybe || g->unrolled++ >= UNROLLED;
}

static void gather(struct jit_gen *g, const struct access *x, LLVMValueRef *v) {
    if (by_loop(g, x)) {
        struct jit_each e;
        LLVMValueRef at = jit_spill(g, jit_addresses(g, &x->a)), room[8];
        for (unsigned k = 0; k < x->n; k++) room[k] = jit_room(g, x->type);
        jit_each_begin(g, &e);
        LLVMTypeRef i64 = jit_int1(g, 64);
        LLVMValueRef p = jit_load(g, i64, jit_lane_place(g, i64, at, e.lane));
        for (unsigned k = 0; k < x->n; k++) {
            LLVMValueRef q = LLVMBuildAdd(g->b, p, jit_scalar(g, 64, k * x->each), "");
            q = LLVMBuildIntToPtr(g->b, q, jit_pointer(g, x->type), "");
            LLVMBuildStore(g->b, load_at(g, x, x->type, q), jit_lane_place(g, x->type, room[k], e.lane));
        }
        jit_each_end(g, &e);
        LLVMTypeRef t = lanes(x->type, JIT_LANES);
        for (unsigned k = 0; k < x->n; k++)
            v[k] = jit_load(g, t, LLVMBuildBitCast(g->b, room[k], jit_pointer(g, t), ""));
        return;
    }
    LLVMValueRef all = safe_addresses(g, x);
    for (unsigned k = 0; k < x->n; k++) {
        v[k] = LLVMGetUndef(lanes(x->type, JIT_LANES));
        for (unsigned l = 0; l < JIT_LANES; l++) {
            LLVMValueRef one = load_at(g, x, x->type, lane_pointer(g, all, l, k * x->each, x->type));
            v[k] = LLVMBuildInsertElement(g->b, v[k], one, jit_scalar(g, 32, l), "");
        }
    }
}

static void scatter(struct jit_gen *g, const struct access *x, LLVMValueRef *v) {
    if (by_loop(g, x)) {
        struct jit_each e;
        LLVMValueRef at = jit_spill(g, jit_addresses(g, &x->a)), room[8];
        for (unsigned k = 0; k < x->n; k++) room[k] = jit_spill(g, v[k]);
        jit_each_begin(g, &e);
        LLVMTypeRef i64 = jit_int1(g, 64);
        LLVMValueRef p = jit_load(g, i64, jit_lane_place(g, i64, at, e.lane));
        for (unsigned k = 0; k < x->n; k++) {
            LLVMValueRef q = LLVMBuildAdd(g->b, p, jit_scalar(g, 64, k * x->each), "");
            q = LLVMBuildIntToPtr(g->b, q, jit_pointer(g, x->type), "");
            store_at(g, x, jit_load(g, x->type, jit_lane_place(g, x->type, room[k], e.lane)), q);
        }
        jit_each_end(g, &e);
        return;
    }
    LLVMValueRef all = safe_addresses(g, x);
    for (unsigned l = 0; l < JIT_LANES; l++)
        for (unsigned k = 0; k < x->n; k++)
            store_at(g, x, LLVMBuildExtractElement(g->b, v[k], jit_scalar(g, 32, l), ""),
                     lane_pointer(g, all, l, k * x->each, x->type));
}

/* ---- one after the other ---- */
static LLVMValueRef masked_load(struct jit_gen *g, const struct access *x, LLVMValueRef p) {
    LLVMTypeRef t = lanes(x->type, JIT_LANES), over[2] = {t, LLVMTypeOf(p)};
    LLVMValueRef args[] = {p, jit_scalar(g, 32, x->each), jit_mask(g), LLVMGetUndef(t)};
    return jit_intrinsic(g, "llvm.masked.load", over, 2, args, 4);
}

static void masked_store(struct jit_gen *g, const struct access *x, LLVMValueRef v, LLVMValueRef p) {
    LLVMTypeRef over[2] = {LLVMTypeOf(v), LLVMTypeOf(p)};
    LLVMValueRef args[] = {v, p, jit_scalar(g, 32, x->each), jit_mask(g)};
    jit_intrinsic(g, "llvm.masked.store", over, 2, args, 4);
}

static LLVMValueRef whole_pointer(struct jit_gen *g, const struct access *x) {
    return jit_pointer_to(g, &x->a, 0, lanes(x->type, x->n * JIT_LANES));
}

/* Elements of 8 and 16 bits have no masked vector access on this machine. */
static bool has_masked(const struct access *x) {
    return x->n == 1 && x->each >= 4;
}

static void load_row(struct jit_gen *g, const struct access *x, LLVMValueRef *v) {
    LLVMBasicBlockRef whole = jit_block(g, ""), part = jit_block(g, ""), end = jit_block(g, ""), from[2];
    LLVMTypeRef t = lanes(x->type, JIT_LANES);
    LLVMValueRef a[8], b[8], p = whole_pointer(g, x);
    LLVMBuildCondBr(g->b, all_on(g), whole, part);
    LLVMPositionBuilderAtEnd(g->b, whole);
    LLVMValueRef row = load_at(g, x, lanes(x->type, x->n * JIT_LANES), p);
    for (unsigned k = 0; k < x->n; k++) a[k] = x->n == 1 ? row : pick(g, row, k, x->n, JIT_LANES);
    from[0] = LLVMGetInsertBlock(g->b);
    LLVMBuildBr(g->b, end);
    LLVMPositionBuilderAtEnd(g->b, part);
    if (has_masked(x))
        b[0] = masked_load(g, x, p);
    else
        gather(g, x, b);
    from[1] = LLVMGetInsertBlock(g->b);
    LLVMBuildBr(g->b, end);
    LLVMPositionBuilderAtEnd(g->b, end);
    for (unsigned k = 0; k < x->n; k++) {
        v[k] = LLVMBuildPhi(g->b, t, "");
        LLVMAddIncoming(v[k], (LLVMValueRef[]){a[k], b[k]}, from, 2);
    }
}

static void store_row(struct jit_gen *g, const struct access *x, LLVMValueRef *v) {
    LLVMBasicBlockRef whole = jit_block(g, ""), part = jit_block(g, ""), end = jit_block(g, "");
    LLVMValueRef p = whole_pointer(g, x);
    LLVMBuildCondBr(g->b, all_on(g), whole, part);
    LLVMPositionBuilderAtEnd(g->b, whole);
    store_at(g, x, x->n == 1 ? v[0] : interleave(g, v, x->n), p);
    LLVMBuildBr(g->b, end);
    LLVMPositionBuilderAtEnd(g->b, part);
    if (has_masked(x))
        masked_store(g, x, v[0], p);
    else
        scatter(g, x, v);
    LLVMBuildBr(g->b, end);
    LLVMPositionBuilderAtEnd(g->b, end);
}

/* Of addresses that are most likely a row: whether they are, for the lanes that are on. Then *row is the access. */
static LLVMValueRef is_row(struct jit_gen *g, const struct access *x, struct access *row) {
    LLVMValueRef all = x->a.offset, first = LLVMBuildExtractElement(g->b, all, jit_scalar(g, 32, 0), "");
    LLVMValueRef want = LLVMBuildAdd(g->b, jit_splat(g, first), jit_iota(g, 64, x->a.stride), "");
    LLVMValueRef differ = LLVMBuildICmp(g->b, LLVMIntNE, all, want, "");
    LLVMValueRef bits = LLVMBuildBitCast(g->b, differ, jit_int1(g, 32), "");
    bits = LLVMBuildAnd(g->b, bits, jit_mask_bits(g), "");
    *row = *x;
    row->a.scalar = true, row->a.maybe = false, row->a.offset = first;
    return LLVMBuildICmp(g->b, LLVMIntEQ, bits, jit_scalar(g, 32, 0), "");
}

static bool row_stride(const struct access *x) {
    return x->a.stride == (int64_t)x->each * x->n && (x->n == 1 || x->n == 2 || x->n == 4);
}

static bool probable_row(const struct access *x) {
    return x->a.maybe && row_stride(x) && !(x->i->modifiers & PTX_M_VOLATILE);
}

static void load_lanes(struct jit_gen *g, const struct access *x, LLVMValueRef *v) {
    if (x->a.scalar && row_stride(x)) {
        load_row(g, x, v);
    } else if (probable_row(x)) {
        struct access row;
        LLVMBasicBlockRef yes = jit_block(g, ""), no = jit_block(g, ""), end = jit_block(g, ""), from[2];
        LLVMValueRef a[8], b[8];
        LLVMBuildCondBr(g->b, is_row(g, x, &row), yes, no);
        LLVMPositionBuilderAtEnd(g->b, yes);
        load_row(g, &row, a);
        from[0] = LLVMGetInsertBlock(g->b);
        LLVMBuildBr(g->b, end);
        LLVMPositionBuilderAtEnd(g->b, no);
        gather(g, x, b);
        from[1] = LLVMGetInsertBlock(g->b);
        LLVMBuildBr(g->b, end);
        LLVMPositionBuilderAtEnd(g->b, end);
        for (unsigned k = 0; k < x->n; k++) {
            v[k] = LLVMBuildPhi(g->b, LLVMTypeOf(a[k]), "");
            LLVMAddIncoming(v[k], (LLVMValueRef[]){a[k], b[k]}, from, 2);
        }
    } else
        gather(g, x, v);
}

static void store_lanes(struct jit_gen *g, const struct access *x, LLVMValueRef *v) {
    if (x->a.scalar && row_stride(x)) {
        store_row(g, x, v);
    } else if (probable_row(x)) {
        struct access row;
        LLVMBasicBlockRef yes = jit_block(g, ""), no = jit_block(g, ""), end = jit_block(g, "");
        LLVMBuildCondBr(g->b, is_row(g, x, &row), yes, no);
        LLVMPositionBuilderAtEnd(g->b, yes);
        store_row(g, &row, v);
        LLVMBuildBr(g->b, end);
        LLVMPositionBuilderAtEnd(g->b, no);
        scatter(g, x, v);
        LLVMBuildBr(g->b, end);
        LLVMPositionBuilderAtEnd(g->b, end);
    } else
        scatter(g, x, v);
}

/* ---- ld, st ---- */
static bool begin(struct jit_gen *g, const struct ptx_instr *i, struct access *x) {
    *x = (struct access){.i = i, .type = element_type(g, i->type), .each = ptx_type_bytes(i->type)};
    x->n = i->vector ? i->vector : 1;
    if (x->each > 8 || !x->each || x->n > 8) {
        jit_fail(g, "accesses of this width are not implemented");
        return false;
    }
    if (g->u->lanes > 1) jit_mask(g), jit_mask_bits(g);
    x->a = jit_address(g, &i->src[0], i->space);
    return true;
}

static bool one_address(const struct jit_gen *g, const struct access *x) {
    return g->u->lanes == 1 || (x->a.scalar && !x->a.stride);
}

/* A parameter of the entry is read before the threads' loop: nothing in it then depends on memory that may change. */
static bool parameter(struct jit_gen *g, const struct access *x) {
    return x->a.base == jit_field(g, JIT_F_PARAMS, 0) && LLVMIsConstant(x->a.offset);
}

static LLVMBasicBlockRef to_setup(struct jit_gen *g) {
    LLVMBasicBlockRef here = LLVMGetInsertBlock(g->b);
    LLVMPositionBuilderBefore(g->b, LLVMGetBasicBlockTerminator(g->setup));
    return here;
}

static void ld(struct jit_gen *g, const struct ptx_instr *i) {
    struct access x;
    LLVMValueRef v[8];
    bool s = ptx_type_kind(i->type) == PTX_KIND_S;
    if (!begin(g, i, &x)) return;
    if (one_address(g, &x)) {
        LLVMBasicBlockRef here = parameter(g, &x) ? to_setup(g) : NULL;
        for (unsigned k = 0; k < x.n; k++)
            v[k] = load_at(g, &x, x.type, jit_pointer_to(g, &x.a, (uint64_t)k * x.each, x.type));
        if (here) LLVMPositionBuilderAtEnd(g->b, here);
    } else {
        g->width = JIT_LANES;
        load_lanes(g, &x, v);
    }
    if (g->raw) v[0] = jit_const(g, 64, 0); /* a pointer parameter: no distance from itself */
    for (unsigned k = 0; k < x.n; k++) jit_write_ext(g, element(&i->dst[0], k), v[k], s);
}

static LLVMValueRef stored(struct jit_gen *g, const struct access *x, unsigned k) {
    const struct ptx_operand *o = element(&x->i->src[1], k);
    unsigned bits = 8 * x->each;
    LLVMValueRef v = jit_read_int(g, o, bits);
    return x->i->type == PTX_F32 || x->i->type == PTX_F64 ? jit_read_float(g, o, bits) : v;
}

static void st(struct jit_gen *g, const struct ptx_instr *i) {
    struct access x;
    LLVMValueRef v[8];
    if (!begin(g, i, &x)) return;
    for (unsigned k = 0; k < x.n; k++) v[k] = stored(g, &x, k);
    if (!one_address(g, &x)) {
        store_lanes(g, &x, v);
        return;
    }
    LLVMValueRef last = NULL;
    if (g->u->lanes > 1) { /* of several lanes one wins: the last */
        LLVMTypeRef i32 = jit_int1(g, 32);
        last = jit_intrinsic(g, "llvm.ctlz", &i32, 1, (LLVMValueRef[]){jit_mask_bits(g), jit_scalar(g, 1, 1)}, 2);
        last = LLVMBuildSub(g->b, jit_scalar(g, 32, JIT_LANES - 1), last, "");
    }
    for (unsigned k = 0; k < x.n; k++) {
        if (last) v[k] = LLVMBuildExtractElement(g->b, v[k], last, "");
        store_at(g, &x, v[k], jit_pointer_to(g, &x.a, (uint64_t)k * x.each, x.type));
    }
}

bool jit_instr_memory(struct jit_gen *g, const struct ptx_instr *i) {
    switch (i->op) {
    case PTX_OP_LD:
    case PTX_OP_LDU:
        ld(g, i);
        return true;
    case PTX_OP_ST:
        st(g, i);
        return true;
    default:
        return false;
    }
}
