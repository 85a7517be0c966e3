/* Branches, and the ends of threads.
 *
 * Warp mode. `current` is the mask of the block that runs. A block that is not partial (vgpu_jit_flow.c) is jumped to
 * as in the PTX. In a partial one a branch adds lanes to pending[successor], and what runs next is the next block of
 * the order for which lanes wait; after a loop's last block, its header if lanes wait there. */
#include "vgpu/vgpu_jit.h"

/* ---- branches ---- */
static LLVMTypeRef i32_of(struct jit_gen *g) {
    return jit_int1(g, 32);
}

/* What runs after partial block number k of the order. */
LLVMBasicBlockRef jit_next_of(struct jit_gen *g, int32_t k) {
    struct jit_flow *w = &g->flow;
    LLVMBasicBlockRef here = LLVMGetInsertBlock(g->b), first = NULL;
    LLVMBasicBlockRef after = k + 1 < w->count ? g->dispatch[w->order[k + 1]] : g->done;
    /* Outer loops first: the innermost one's test is the one to be reached. */
    for (int32_t l = w->loop_of[w->order[k]]; l >= 0; l = w->loops[l].parent)
        if (w->loops[l].last == k && w->loops[l].masked) {
            LLVMBasicBlockRef test = jit_block(g, "again");
            if (!first)
                first = test;
            else
                LLVMBuildBr(g->b, test);
            LLVMPositionBuilderAtEnd(g->b, test);
            LLVMValueRef wait = jit_load(g, i32_of(g), g->pending[w->loops[l].header]);
            LLVMBasicBlockRef on = jit_block(g, "");
            LLVMBuildCondBr(g->b, LLVMBuildICmp(g->b, LLVMIntNE, wait, jit_scalar(g, 32, 0), ""),
                            g->dispatch[w->loops[l].header], on);
            LLVMPositionBuilderAtEnd(g->b, on);
        }
    if (!first) return after;
    LLVMBuildBr(g->b, after);
    LLVMPositionBuilderAtEnd(g->b, here);
    return first;
}

static void add_pending(struct jit_gen *g, int32_t b, LLVMValueRef bits) {
    LLVMValueRef old = jit_load(g, i32_of(g), g->pending[b]);
    LLVMBuildStore(g->b, LLVMBuildOr(g->b, old, bits, ""), g->pending[b]);
}

static LLVMBasicBlockRef after_block(struct jit_gen *g) {
    return jit_next_of(g, g->flow.place[g->block]);
}

/* All lanes of the block's mask go to b. */
static void go_to(struct jit_gen *g, int32_t b) {
    struct jit_flow *w = &g->flow;
    if (g->u->lanes == 1 || !w->partial[g->block]) {
        LLVMBuildBr(g->b, g->body[b]);
        return;
    }
    if (g->f->blocks[b].preds == 1 && w->place[b] == w->place[g->block] + 1) {
        LLVMBuildBr(g->b, g->body[b]);
        return;
    }
    add_pending(g, b, jit_mask_bits(g));
    LLVMBuildBr(g->b, after_block(g));
}

/* Lanes `gone` leave the function; what remains goes on behind this, the rest of the warp as the order says. */
static void shrink(struct jit_gen *g, LLVMValueRef stay) {
    LLVMBasicBlockRef on = jit_block(g, "");
    LLVMBuildStore(g->b, stay, g->current);
    LLVMBasicBlockRef none = g->flow.partial[g->block] ? after_block(g) : g->done;
    LLVMBuildCondBr(g->b, LLVMBuildICmp(g->b, LLVMIntNE, stay, jit_scalar(g, 32, 0), ""), on, none);
    LLVMPositionBuilderAtEnd(g->b, on);
    g->mask = NULL;
    g->mask_bits = stay;
    jit_mask(g);
}

/* exit in a device function ends the thread: its caller is told (see the call). */
static void note_exit(struct jit_gen *g, LLVMValueRef lanes) {
    if (g->f->entry) return;
    LLVMValueRef all = LLVMGetLastParam(g->fn);
    LLVMBuildStore(g->b, LLVMBuildOr(g->b, jit_load(g, i32_of(g), all), lanes, ""), all);
}

/* Behind a call under a guard the block's mask is what is left of it, not the guarded one. */
void jit_drop_lanes(struct jit_gen *g, LLVMValueRef gone) {
    if (g->u->lanes > 1) {
        LLVMValueRef all = jit_load(g, i32_of(g), g->current);
        note_exit(g, gone);
        shrink(g, LLVMBuildAnd(g->b, all, LLVMBuildNot(g->b, gone, ""), ""));
        return;
    }
    LLVMBasicBlockRef out = jit_block(g, ""), on = jit_block(g, "");
    note_exit(g, gone);
    LLVMBuildCondBr(g->b, LLVMBuildICmp(g->b, LLVMIntNE, gone, jit_scalar(g, 32, 0), ""), out, on);
    LLVMPositionBuilderAtEnd(g->b, out);
    LLVMBuildBr(g->b, g->done);
    LLVMPositionBuilderAtEnd(g->b, on);
}

static void leave(struct jit_gen *g) {
    LLVMBuildBr(g->b, g->u->lanes > 1 && g->flow.partial[g->block] ? after_block(g) : g->done);
}

static void leave_if(struct jit_gen *g, const struct ptx_instr *i, int32_t next) {
    bool one = jit_reg_scalar(g, i->guard);
    LLVMValueRef p = jit_guard(g, i, one ? 1 : JIT_LANES);
    if (one) {
        LLVMBasicBlockRef out = jit_block(g, ""), on = jit_block(g, "");
        LLVMBuildCondBr(g->b, p, out, on);
        LLVMPositionBuilderAtEnd(g->b, out);
        if (i->op == PTX_OP_EXIT) note_exit(g, g->u->lanes > 1 ? jit_mask_bits(g) : jit_scalar(g, 32, 1));
        leave(g);
        LLVMPositionBuilderAtEnd(g->b, on);
    } else {
        LLVMValueRef bits = LLVMBuildBitCast(g->b, p, i32_of(g), ""), all = jit_mask_bits(g);
        if (i->op == PTX_OP_EXIT) note_exit(g, LLVMBuildAnd(g->b, all, bits, ""));
        shrink(g, LLVMBuildAnd(g->b, all, LLVMBuildNot(g->b, bits, ""), ""));
    }
    go_to(g, next);
}

static void branch_uniform(struct jit_gen *g, LLVMValueRef p, int32_t yes, int32_t no) {
    if (g->u->lanes == 1 || !g->flow.partial[g->block]) {
        LLVMBuildCondBr(g->b, p, g->body[yes], g->body[no]);
        return;
    }
    LLVMValueRef bits = jit_mask_bits(g), zero = jit_scalar(g, 32, 0);
    add_pending(g, yes, jit_select(g, p, bits, zero));
    add_pending(g, no, jit_select(g, p, zero, bits));
    LLVMBuildBr(g->b, after_block(g));
}

static void branch_if(struct jit_gen *g, const struct ptx_instr *i, const struct ptx_block *block) {
    struct jit_flow *w = &g->flow;
    int32_t yes = i->target, no = block->succ[0];
    bool one = jit_reg_scalar(g, i->guard);
    LLVMValueRef p = jit_guard(g, i, one ? 1 : JIT_LANES);
    if (yes == no) {
        go_to(g, yes);
        return;
    }
    if (one) {
        branch_uniform(g, p, yes, no);
        return;
    }
    LLVMValueRef all = jit_mask_bits(g), bits = LLVMBuildBitCast(g->b, p, i32_of(g), "");
    LLVMValueRef t = LLVMBuildAnd(g->b, all, bits, ""), e = LLVMBuildAnd(g->b, all, LLVMBuildNot(g->b, bits, ""), "");
    if (w->trivial[yes] || w->trivial[no]) {
        shrink(g, w->trivial[yes] ? e : t);
        go_to(g, w->trivial[yes] ? no : yes);
        return;
    }
    /* The block itself may be whole; its successors are partial, and nothing waits for them yet. */
    add_pending(g, yes, t);
    add_pending(g, no, e);
    LLVMBuildBr(g->b, after_block(g));
}

static void branch_indexed(struct jit_gen *g, const struct ptx_instr *i) {
    const int32_t *targets = g->f->branch_targets + i->targets0;
    const struct ptx_operand *o = &i->src[0];
    bool one = o->kind != PTX_REG || (jit_reg_scalar(g, o->reg) && !g->shapes[o->reg].stride);
    g->width = one ? 1 : JIT_LANES;
    LLVMValueRef index = jit_read_int(g, o, 32), all = g->u->lanes > 1 ? jit_mask_bits(g) : NULL;
    if (one && (g->u->lanes == 1 || !g->flow.partial[g->block])) {
        LLVMValueRef s = LLVMBuildSwitch(g->b, index, g->body[targets[0]], (unsigned)i->targets);
        for (int32_t k = 1; k < i->targets; k++) LLVMAddCase(s, jit_scalar(g, 32, (uint64_t)k), g->body[targets[k]]);
        return;
    }
    for (int32_t k = 0; k < i->targets; k++) {
        LLVMValueRef eq = LLVMBuildICmp(g->b, LLVMIntEQ, index, jit_const(g, 32, (uint64_t)k), "");
        LLVMValueRef bits = one ? jit_select(g, eq, all, jit_scalar(g, 32, 0))
                                : LLVMBuildAnd(g->b, all, LLVMBuildBitCast(g->b, eq, i32_of(g), ""), "");
        add_pending(g, targets[k], bits);
    }
    LLVMBuildBr(g->b, after_block(g));
}

bool jit_ends_block(const struct ptx_instr *i) {
    return i->op == PTX_OP_BRA || i->op == PTX_OP_BRX || i->op == PTX_OP_RET || i->op == PTX_OP_EXIT;
}

void jit_terminator(struct jit_gen *g, const struct ptx_block *block) {
    const struct ptx_instr *i = block->end > block->first ? &g->f->instrs[block->end - 1] : NULL;
    g->instr = i;
    if (!i || !jit_ends_block(i)) {
        if (block->succs)
            go_to(g, block->succ[0]);
        else
            leave(g); /* behind a trap, or the text ends */
    } else if (g->limit && g->block == g->flow.order[0])
        go_to(g, g->limit->stay);
    else if (i->op == PTX_OP_BRX)
        branch_indexed(g, i);
    else if (i->op == PTX_OP_BRA) {
        if (i->guard < 0)
            go_to(g, i->target);
        else
            branch_if(g, i, block);
    } else if (i->guard >= 0 && block->succs)
        leave_if(g, i, block->succ[0]);
    else {
        if (i->op == PTX_OP_EXIT) note_exit(g, g->u->lanes > 1 ? jit_mask_bits(g) : jit_scalar(g, 32, 1));
        leave(g);
    }
    g->instr = NULL;
}
