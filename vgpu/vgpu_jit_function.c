/* A PTX function as an LLVM function: its registers, its blocks, the mask of a warp at its begin. */
#include "vgpu/vgpu_jit.h"
#include "vgpu/vgpu_jit_visit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- instructions ---- */
static bool acts(const struct ptx_instr *i) { /* does more than to write registers */
    return ptx_ops[i->op].properties &
               (PTX_P_READS | PTX_P_WRITES | PTX_P_ATOMIC | PTX_P_BARRIER | PTX_P_WARP | PTX_P_CONTROL) ||
           i->op == PTX_OP_CALL || i->op == PTX_OP_TRAP;
}

LLVMValueRef jit_guard(struct jit_gen *g, const struct ptx_instr *i, unsigned width) {
    struct ptx_operand o = {.kind = PTX_REG, .reg = i->guard, .negated = i->guard_negated};
    g->width = width;
    return jit_read_pred(g, &o);
}

void jit_instruction(struct jit_gen *g, const struct ptx_instr *i) {
    LLVMValueRef mask = g->mask, bits = g->mask_bits;
    LLVMBasicBlockRef end = NULL;
    g->instr = i;
    g->raw = i->dsts == 1 && i->dst[0].kind == PTX_REG && g->roots[i->dst[0].reg] >= 0;
    if (i->guard >= 0) {
        bool one = jit_reg_scalar(g, i->guard);
        LLVMValueRef go = jit_guard(g, i, one ? 1 : JIT_LANES);
        if (!one) {
            g->guard_value = go;
            g->mask = LLVMBuildAnd(g->b, mask, go, "");
            g->mask_bits = NULL;
            go = jit_mask_bits(g);
            go = LLVMBuildICmp(g->b, LLVMIntNE, go, jit_scalar(g, 32, 0), "");
        }
        if (one || acts(i)) {
            LLVMBasicBlockRef then = jit_block(g, "");
            end = jit_block(g, "");
            LLVMBuildCondBr(g->b, go, then, end);
            LLVMPositionBuilderAtEnd(g->b, then);
        }
    }
    g->width = jit_scalar_result(g, i) && jit_scalar_sources(g, i) ? 1 : g->u->lanes;
    jit_instr(g, i);
    if (end) {
        LLVMBuildBr(g->b, end);
        LLVMPositionBuilderAtEnd(g->b, end);
    }
    g->guard_value = NULL;
    g->raw = false;
    g->mask = mask;
    g->mask_bits = bits;
    if (i->op != PTX_OP_CALL || g->u->lanes == 1) return;
    g->mask = g->mask_bits = NULL; /* some lanes may have ended in it */
    jit_mask(g);
}

/* ---- blocks ---- */
static void make_block(struct jit_gen *g, int32_t k) {
    int32_t b = g->block = g->flow.order[k];
    const struct ptx_block *block = &g->f->blocks[b];
    LLVMTypeRef i32 = jit_int1(g, 32);
    if (g->u->lanes > 1) { /* reached in order: if lanes wait, they are the mask */
        LLVMBasicBlockRef enter = jit_block(g, "enter");
        LLVMPositionBuilderAtEnd(g->b, g->dispatch[b]);
        LLVMValueRef wait = jit_load(g, i32, g->pending[b]);
        LLVMBasicBlockRef next = jit_next_of(g, k);
        LLVMBuildCondBr(g->b, LLVMBuildICmp(g->b, LLVMIntNE, wait, jit_scalar(g, 32, 0), ""), enter, next);
        LLVMPositionBuilderAtEnd(g->b, enter);
        LLVMBuildStore(g->b, wait, g->current);
        LLVMBuildStore(g->b, jit_scalar(g, 32, 0), g->pending[b]);
        LLVMBuildBr(g->b, g->body[b]);
    }
    LLVMPositionBuilderAtEnd(g->b, g->body[b]);
    g->mask = g->mask_bits = NULL;
    if (g->full && !g->flow.partial[b]) { /* said once more, since LLVM does not see it */
        g->mask_bits = jit_scalar(g, 32, 0xffffffff);
        LLVMBuildStore(g->b, g->mask_bits, g->current);
    }
    if (g->u->lanes > 1) jit_mask(g);
    if (g->u->lanes > 1 && jit_waits(g, b)) {
        LLVMValueRef args[] = {g->frame, g->warp};
        jit_host_call(g, offsetof(struct vgpu_host, yield), LLVMVoidTypeInContext(g->u->context), args, 2);
    }
    for (int32_t i = block->first; i < block->end && !g->u->failed; i++)
        if (!(i == block->end - 1 && jit_ends_block(&g->f->instrs[i]))) jit_instruction(g, &g->f->instrs[i]);
    jit_terminator(g, block);
}

static void make_registers(struct jit_gen *g) {
    g->width = g->u->lanes;
    for (int32_t r = 0; r < g->f->reg_count; r++) g->regs[r] = jit_alloca(g, jit_reg_type(g, r), "r");
    g->carry = jit_alloca(g, jit_int(g, 1), "carry");
}

/* Of a thread, at its begin: nothing, so that no value goes from one thread to the next. */
void jit_forget_registers(struct jit_gen *g) {
    for (int32_t r = 0; r < g->f->reg_count; r++) LLVMBuildStore(g->b, LLVMGetUndef(jit_reg_type(g, r)), g->regs[r]);
    g->width = g->u->lanes;
    LLVMBuildStore(g->b, LLVMConstNull(jit_int(g, 1)), g->carry);
}

static void make_call_vars(struct jit_gen *g, unsigned first_arg) {
    for (int32_t v = 0; v < g->f->var_count; v++) {
        if (g->f->vars[v].space != PTX_PARAM) continue;
        if (v < g->f->params + g->f->returns) {
            if (!g->f->entry) g->calls[v] = LLVMGetParam(g->fn, first_arg + (unsigned)v);
            continue;
        }
        uint64_t bytes = g->f->vars[v].bytes ? g->f->vars[v].bytes : 1;
        LLVMTypeRef t = LLVMArrayType(jit_int1(g, 8), (unsigned)(bytes * g->u->lanes));
        LLVMValueRef a = jit_alloca(g, t, "param");
        LLVMSetAlignment(a, 64);
        g->calls[v] = a;
    }
    LLVMTypeRef p = jit_pointer(g, jit_int1(g, 8));
    for (int32_t v = 0; v < g->f->var_count; v++)
        if (g->calls[v]) g->calls[v] = LLVMBuildBitCast(g->b, g->calls[v], p, "");
}

static void make_blocks(struct jit_gen *g) {
    struct jit_flow *w = &g->flow;
    LLVMTypeRef i32 = jit_int1(g, 32);
    for (int32_t k = 0; k < w->count; k++) {
        int32_t b = w->order[k];
        g->body[b] = jit_block(g, "body");
        if (g->u->lanes == 1) continue;
        g->dispatch[b] = jit_block(g, "wait");
        g->pending[b] = jit_alloca(g, i32, "pending");
    }
}

static void warp_begin(struct jit_gen *g, LLVMValueRef mask) {
    g->current = jit_alloca(g, jit_int1(g, 32), "current");
    jit_warp_threads(g);
    if (!mask && g->u->aligned && g->f->entry) mask = jit_scalar(g, 32, 0xffffffff);
    if (!mask) {
        LLVMValueRef left = LLVMBuildSub(g->b, jit_field(g, JIT_F_THREADS, 0), g->thread, "");
        LLVMValueRef some = LLVMBuildShl(g->b, jit_scalar(g, 32, 1),
                                         LLVMBuildAnd(g->b, left, jit_scalar(g, 32, JIT_LANES - 1), ""), "");
        some = LLVMBuildSub(g->b, some, jit_scalar(g, 32, 1), "");
        mask = jit_select(g, LLVMBuildICmp(g->b, LLVMIntUGE, left, jit_scalar(g, 32, JIT_LANES), ""),
                          jit_scalar(g, 32, 0xffffffff), some);
    }
    LLVMBuildStore(g->b, mask, g->current);
    for (int32_t b = 0; b < g->f->block_count; b++)
        if (g->pending[b]) LLVMBuildStore(g->b, jit_scalar(g, 32, 0), g->pending[b]);
    jit_forget_registers(g);
    LLVMBuildBr(g->b, g->body[g->flow.order[0]]);
    LLVMPositionBuilderAtEnd(g->b, g->done);
    LLVMBuildRetVoid(g->b);
}

/* Arguments of a device function: frame, then warp and mask (warp mode) or x, y, z, thread (loop mode), local base, its
 * parameters' and return values' bytes, and where it notes the lanes that have ended. */
static unsigned take_arguments(struct jit_gen *g, LLVMValueRef *mask) {
    unsigned n = 1;
    if (g->u->lanes > 1) g->warp = LLVMGetParam(g->fn, n++);
    if (g->f->entry) return n;
    if (g->u->lanes > 1)
        *mask = LLVMGetParam(g->fn, n++);
    else {
        for (unsigned a = 0; a < 3; a++) g->tid[a] = LLVMGetParam(g->fn, n++);
        g->thread = LLVMGetParam(g->fn, n++);
    }
    g->local_base = LLVMGetParam(g->fn, n++);
    return n;
}

static void make_body(struct jit_gen *g) {
    LLVMValueRef mask = NULL;
    struct jit_limit limit;
    if (g->u->lanes == 1 && jit_find_limit(g, &limit)) g->limit = &limit;
    g->entry_block = jit_block(g, "entry");
    LLVMBasicBlockRef setup = g->setup = jit_block(g, "setup");
    g->done = jit_block(g, "done");
    LLVMPositionBuilderAtEnd(g->b, setup);
    g->frame = LLVMGetParam(g->fn, 0);
    g->local_base = jit_scalar(g, 64, 0);
    unsigned first = take_arguments(g, &mask);
    jit_load_fields(g);
    jit_load_roots(g);
    make_registers(g);
    make_call_vars(g, first);
    make_blocks(g);
    if (g->u->lanes > 1)
        warp_begin(g, mask);
    else if (g->f->entry)
        jit_thread_loops(g);
    else {
        jit_forget_registers(g);
        LLVMBuildBr(g->b, g->body[g->flow.order[0]]);
        LLVMPositionBuilderAtEnd(g->b, g->done);
        LLVMBuildRetVoid(g->b);
    }
    for (int32_t k = 0; k < g->flow.count && !g->u->failed; k++) make_block(g, k);
    LLVMPositionBuilderAtEnd(g->b, g->entry_block);
    LLVMBuildBr(g->b, setup);
}

int jit_make_function(struct jit_unit *u, const struct ptx_function *f, LLVMValueRef fn) {
    size_t blocks = (size_t)f->block_count + 1;
    struct jit_gen g = {.u = u, .f = f, .fn = fn, .b = u->builder};
    g.regs = calloc((size_t)f->reg_count + 1, sizeof *g.regs);
    g.calls = calloc((size_t)f->var_count + 1, sizeof *g.calls);
    g.body = calloc(blocks, sizeof *g.body), g.dispatch = calloc(blocks, sizeof *g.dispatch);
    g.pending = calloc(blocks, sizeof *g.pending);
    if (f->error || !f->block_count) {
        u->failed = true;
        snprintf(u->error, u->error_len, "%s: %s", f->name, f->error ? f->error : "no instructions");
    } else if (!g.regs || !g.calls || !g.body || !g.dispatch || !g.pending)
        jit_fail(&g, "no memory");
    else if (!jit_flow_make(&g) && !jit_roots(&g) && !jit_shapes(&g))
        make_body(&g);
    jit_flow_free(&g);
    free(g.regs), free(g.calls), free(g.body), free(g.dispatch), free(g.pending);
    free(g.shapes), free(g.roots), free(g.root);
    return u->failed ? -1 : 0;
}
