/* Calls: device functions of the module, those that the runtime provides (vprintf, __assertfail, malloc, free), trap.
 *
 * A .param variable of a call is a buffer of the caller: a lane's bytes follow those of the lane before. The callee
 * gets pointers to its parameters' and return values' buffers, and one to where it notes lanes whose thread has ended.
 */
#include "vgpu/vgpu_jit.h"

#include <stdio.h>
#include <string.h>

enum { MAX_ARGUMENTS = 512 };

static LLVMTypeRef i32_of(struct jit_gen *g) {
    return jit_int1(g, 32);
}

static LLVMTypeRef function_type(struct jit_gen *g, const struct ptx_function *f) {
    LLVMTypeRef p = jit_pointer(g, jit_int1(g, 8)), t[MAX_ARGUMENTS + 8];
    unsigned n = 0;
    t[n++] = p;
    for (unsigned k = 0; k < (g->u->lanes > 1 ? 2u : 4u); k++) t[n++] = i32_of(g);
    t[n++] = jit_int1(g, 64);
    for (int32_t k = 0; k < f->params + f->returns && k < MAX_ARGUMENTS; k++) t[n++] = p;
    t[n++] = jit_pointer(g, i32_of(g));
    return LLVMFunctionType(LLVMVoidTypeInContext(g->u->context), t, n, false);
}

LLVMValueRef jit_callee(struct jit_gen *g, int32_t number) {
    const struct ptx_function *f = &g->u->module->functions[number];
    LLVMValueRef *slot = &g->u->callees[number];
    if (*slot) return *slot;
    char name[32];
    snprintf(name, sizeof name, "f%d", (int)number);
    *slot = LLVMAddFunction(g->u->llvm, name, function_type(g, f));
    LLVMSetLinkage(*slot, LLVMInternalLinkage);
    return *slot;
}

/* ---- buffers ---- */
static int32_t own_number(struct jit_gen *g, const struct ptx_operand *o) {
    return o->var - g->u->module->var_count;
}

static LLVMValueRef buffer(struct jit_gen *g, const struct ptx_operand *o) {
    int32_t k = o->kind == PTX_SYMBOL && o->var >= 0 ? own_number(g, o) : -1;
    if (k >= 0 && g->calls[k]) return g->calls[k];
    jit_fail(g, "an argument that is no .param variable");
    return LLVMGetUndef(jit_pointer(g, jit_int1(g, 8)));
}

static LLVMValueRef place(struct jit_gen *g, const struct ptx_operand *o, LLVMTypeRef t, LLVMValueRef lane) {
    LLVMValueRef p = buffer(g, o);
    int32_t k = own_number(g, o);
    if (lane && k >= 0) {
        uint64_t bytes = g->f->vars[k].bytes ? g->f->vars[k].bytes : 1;
        LLVMValueRef at = LLVMBuildMul(g->b, jit_resize(g, lane, 64, false), jit_scalar(g, 64, bytes), "");
        p = LLVMBuildGEP2(g->b, jit_int1(g, 8), p, &at, 1, "");
    }
    return LLVMBuildBitCast(g->b, p, jit_pointer(g, t), "");
}

static LLVMValueRef argument(struct jit_gen *g, const struct ptx_instr *i, int k, unsigned bits, LLVMValueRef lane) {
    LLVMTypeRef t = jit_int1(g, bits);
    if (k >= i->srcs) {
        jit_fail(g, "too few arguments");
        return jit_scalar(g, bits, 0);
    }
    LLVMValueRef v = jit_load(g, t, place(g, &i->src[k], t, lane));
    LLVMSetAlignment(v, 1);
    return v;
}

/* ---- what the runtime provides, of one thread ---- */
static LLVMValueRef thread_of(struct jit_gen *g, LLVMValueRef lane) {
    return lane ? LLVMBuildAdd(g->b, g->thread, lane, "") : g->thread;
}

static bool provided(struct jit_gen *g, const struct ptx_instr *i, const char *name, LLVMValueRef lane) {
    LLVMValueRef args[8] = {g->frame}, r = NULL;
    LLVMTypeRef none = LLVMVoidTypeInContext(g->u->context);
    if (!strcmp(name, "vprintf")) {
        args[1] = argument(g, i, 0, 64, lane), args[2] = argument(g, i, 1, 64, lane);
        r = jit_host_call(g, offsetof(struct vgpu_host, print), i32_of(g), args, 3);
    } else if (!strcmp(name, "__assertfail") || !strcmp(name, "__assert_fail")) {
        args[1] = thread_of(g, lane);
        args[2] = argument(g, i, 0, 64, lane), args[3] = argument(g, i, 1, 64, lane);
        args[4] = argument(g, i, 2, 32, lane), args[5] = argument(g, i, 3, 64, lane);
        args[6] = i->srcs > 4 ? argument(g, i, 4, 64, lane) : jit_scalar(g, 64, 1);
        jit_host_call(g, offsetof(struct vgpu_host, fail), none, args, 7);
    } else if (!strcmp(name, "malloc")) {
        args[1] = argument(g, i, 0, 64, lane);
        r = jit_host_call(g, offsetof(struct vgpu_host, allocate), jit_int1(g, 64), args, 2);
    } else if (!strcmp(name, "free")) {
        args[1] = argument(g, i, 0, 64, lane);
        jit_host_call(g, offsetof(struct vgpu_host, release), none, args, 2);
    } else
        return false;
    if (r && i->dsts) LLVMSetAlignment(LLVMBuildStore(g->b, r, place(g, &i->dst[0], LLVMTypeOf(r), lane)), 1);
    return true;
}

static void call_provided(struct jit_gen *g, const struct ptx_instr *i, const struct ptx_function *f) {
    char text[160];
    bool known;
    if (g->u->lanes == 1)
        known = provided(g, i, f->name, NULL);
    else {
        struct jit_each e;
        jit_each_begin(g, &e);
        known = provided(g, i, f->name, e.lane);
        jit_each_end(g, &e);
    }
    snprintf(text, sizeof text, "call of %.100s, which has no body", f->name);
    if (!known) jit_fail(g, text);
}

/* ---- device functions ---- */
/* Local memory is for a number of calls deep; deeper ends the kernel as a device's stack overflow does. */
static void check_depth(struct jit_gen *g, uint64_t more) {
    LLVMBasicBlockRef bad = jit_block(g, "overflow"), on = jit_block(g, "");
    LLVMValueRef top = LLVMBuildAdd(g->b, g->local_base, jit_scalar(g, 64, more), "");
    LLVMValueRef over = LLVMBuildICmp(g->b, LLVMIntUGT, top, jit_field(g, JIT_F_LOCAL_STRIDE, 0), "");
    LLVMBuildCondBr(g->b, over, bad, on);
    LLVMPositionBuilderAtEnd(g->b, bad);
    LLVMValueRef args[] = {g->frame, g->thread};
    jit_host_call(g, offsetof(struct vgpu_host, trap), LLVMVoidTypeInContext(g->u->context), args, 2);
    LLVMBuildBr(g->b, on);
    LLVMPositionBuilderAtEnd(g->b, on);
}

static void call_function(struct jit_gen *g, const struct ptx_instr *i, int32_t number, int first, LLVMValueRef mask,
                          LLVMValueRef gone) {
    const struct ptx_function *f = &g->u->module->functions[number];
    LLVMValueRef args[MAX_ARGUMENTS + 8];
    unsigned n = 0;
    args[n++] = g->frame;
    if (g->u->lanes > 1) {
        args[n++] = g->warp, args[n++] = mask;
    } else {
        for (unsigned a = 0; a < 3; a++) args[n++] = g->tid[a];
        args[n++] = g->thread;
    }
    uint64_t own = (g->f->local_bytes + 15) & ~UINT64_C(15);
    if (g->u->recursive) check_depth(g, own + f->local_bytes);
    args[n++] = LLVMBuildAdd(g->b, g->local_base, jit_scalar(g, 64, own), "");
    for (int32_t k = 0; k < f->params; k++) args[n++] = buffer(g, &i->src[first + k]);
    for (int32_t k = 0; k < f->returns; k++) args[n++] = buffer(g, &i->dst[k]);
    args[n++] = gone;
    LLVMBuildCall2(g->b, function_type(g, f), jit_callee(g, number), args, n, "");
}

/* Functions that a pointer may name here: as many arguments, of the same sizes. */
static bool fits(struct jit_gen *g, const struct ptx_instr *i, const struct ptx_function *f) {
    if (f->entry || f->declared_only || f->error || f->params != i->srcs - 1 || f->returns != i->dsts) return false;
    for (int32_t k = 0; k < f->params + f->returns; k++) {
        const struct ptx_operand *o = k < f->params ? &i->src[1 + k] : &i->dst[k - f->params];
        int32_t own = own_number(g, o);
        if (own < 0 || g->f->vars[own].bytes != f->vars[k].bytes) return false;
    }
    return true;
}

/* By the function's number; lanes with one number together. */
static void call_indirect(struct jit_gen *g, const struct ptx_instr *i, LLVMValueRef gone) {
    const struct ptx_module *m = g->u->module;
    LLVMBasicBlockRef loop = jit_block(g, "indirect"), body = jit_block(g, ""), end = jit_block(g, "");
    LLVMBasicBlockRef bad = jit_block(g, ""), again = jit_block(g, "");
    LLVMValueRef left = jit_alloca(g, i32_of(g), "left"), all = NULL, place = NULL, which, mask = NULL, lane = NULL;
    g->width = g->u->lanes;
    LLVMValueRef v = jit_read_int(g, &i->src[0], 64);
    if (g->u->lanes > 1) place = jit_spill(g, v), all = jit_mask_bits(g);
    LLVMBuildStore(g->b, all ? all : jit_scalar(g, 32, 1), left);
    LLVMBuildBr(g->b, loop);
    LLVMPositionBuilderAtEnd(g->b, loop);
    LLVMValueRef to_do = jit_load(g, i32_of(g), left), zero = jit_scalar(g, 32, 0);
    LLVMBuildCondBr(g->b, LLVMBuildICmp(g->b, LLVMIntEQ, to_do, zero, ""), end, body);
    LLVMPositionBuilderAtEnd(g->b, body);
    which = v;
    if (g->u->lanes > 1) {
        LLVMTypeRef i32 = i32_of(g), i64 = jit_int1(g, 64);
        lane = jit_intrinsic(g, "llvm.cttz", &i32, 1, (LLVMValueRef[]){to_do, jit_scalar(g, 1, 1)}, 2);
        which = jit_load(g, i64, jit_lane_place(g, i64, place, lane));
        LLVMValueRef same = LLVMBuildICmp(g->b, LLVMIntEQ, v, jit_splat(g, which), "");
        mask = LLVMBuildAnd(g->b, to_do, LLVMBuildBitCast(g->b, same, i32, ""), "");
        LLVMBuildStore(g->b, LLVMBuildAnd(g->b, to_do, LLVMBuildNot(g->b, mask, ""), ""), left);
    } else
        LLVMBuildStore(g->b, zero, left);
    LLVMValueRef to = LLVMBuildSwitch(g->b, which, bad, 4);
    for (int32_t k = 0; k < m->function_count; k++) {
        if (!fits(g, i, &m->functions[k])) continue;
        LLVMBasicBlockRef one = jit_block(g, "");
        LLVMAddCase(to, jit_scalar(g, 64, (uint64_t)k + 1), one);
        LLVMPositionBuilderAtEnd(g->b, one);
        call_function(g, i, k, 1, mask, gone);
        LLVMBuildBr(g->b, again);
    }
    LLVMPositionBuilderAtEnd(g->b, bad); /* a number that is no function's */
    LLVMValueRef args[] = {g->frame, thread_of(g, lane)};
    jit_host_call(g, offsetof(struct vgpu_host, trap), LLVMVoidTypeInContext(g->u->context), args, 2);
    LLVMBuildBr(g->b, again);
    LLVMPositionBuilderAtEnd(g->b, again);
    LLVMBuildBr(g->b, loop);
    LLVMPositionBuilderAtEnd(g->b, end);
}

static void call(struct jit_gen *g, const struct ptx_instr *i) {
    if (i->callee >= 0 && g->u->module->functions[i->callee].declared_only) {
        call_provided(g, i, &g->u->module->functions[i->callee]);
        return;
    }
    if (i->srcs + i->dsts > MAX_ARGUMENTS) {
        jit_fail(g, "too many arguments");
        return;
    }
    LLVMValueRef gone = jit_alloca(g, i32_of(g), "gone");
    LLVMBuildStore(g->b, jit_scalar(g, 32, 0), gone);
    if (i->callee >= 0)
        call_function(g, i, i->callee, 0, g->u->lanes > 1 ? jit_mask_bits(g) : NULL, gone);
    else
        call_indirect(g, i, gone);
    jit_drop_lanes(g, jit_load(g, i32_of(g), gone));
}

static void trap(struct jit_gen *g) {
    LLVMValueRef lane = NULL;
    LLVMTypeRef i32 = i32_of(g);
    if (g->u->lanes > 1)
        lane = jit_intrinsic(g, "llvm.cttz", &i32, 1, (LLVMValueRef[]){jit_mask_bits(g), jit_scalar(g, 1, 0)}, 2);
    LLVMValueRef args[] = {g->frame, thread_of(g, lane)};
    jit_host_call(g, offsetof(struct vgpu_host, trap), LLVMVoidTypeInContext(g->u->context), args, 2);
}

bool jit_instr_call(struct jit_gen *g, const struct ptx_instr *i) {
    if (i->op == PTX_OP_CALL)
        call(g, i);
    else if (i->op == PTX_OP_TRAP || i->op == PTX_OP_BRKPT)
        trap(g);
    else
        return false;
    return true;
}
