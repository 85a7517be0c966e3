/* A PTX function as an LLVM function: its frame, the loop over the block's threads (loop mode) or the masks of one warp
 * (warp mode), blocks, branches.
 *
 * Warp mode. `current` is the mask of the block that runs. A block that is not partial (vgpu_jit_flow.c) is jumped to
 * as in the PTX. In a partial one a branch adds lanes to pending[successor], and what runs next is the next block of
 * the order for which lanes wait; after a loop's last block, its header if lanes wait there. */
#include "vgpu/vgpu_jit.h"
#include "vgpu/vgpu_jit_visit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the frame ---- */
static LLVMValueRef frame_at(struct jit_gen *g, size_t offset, LLVMTypeRef t) {
    LLVMTypeRef i8 = jit_int1(g, 8);
    LLVMValueRef at = jit_scalar(g, 64, offset);
    LLVMValueRef p = LLVMBuildGEP2(g->b, i8, g->frame, &at, 1, "");
    return jit_load(g, t, LLVMBuildBitCast(g->b, p, jit_pointer(g, t), ""));
}

LLVMValueRef jit_field(struct jit_gen *g, unsigned field, unsigned index) {
    if (field == JIT_F_GRID || field == JIT_F_BLOCK || field == JIT_F_CTAID)
        return LLVMBuildExtractValue(g->b, g->field[field], index, "");
    return g->field[field];
}

static void load_fields(struct jit_gen *g) {
    LLVMTypeRef i32 = jit_int1(g, 32), i64 = jit_int1(g, 64), p = jit_pointer(g, jit_int1(g, 8));
    LLVMTypeRef three = LLVMArrayType(i32, 3);
    static const struct {
        uint8_t field, kind; /* 3: u32[3], 4: u32, 8: u64, 0: pointer */
        size_t offset;
    } fields[] = {
        {JIT_F_PARAMS, 0, offsetof(struct vgpu_frame, params)},
        {JIT_F_SHARED, 0, offsetof(struct vgpu_frame, shared)},
        {JIT_F_LOCAL, 0, offsetof(struct vgpu_frame, local)},
        {JIT_F_LOCAL_STRIDE, 8, offsetof(struct vgpu_frame, local_stride)},
        {JIT_F_SYMBOLS, 0, offsetof(struct vgpu_frame, symbols)},
        {JIT_F_HOST, 0, offsetof(struct vgpu_frame, host)},
        {JIT_F_GRID, 3, offsetof(struct vgpu_frame, grid)},
        {JIT_F_BLOCK, 3, offsetof(struct vgpu_frame, block)},
        {JIT_F_CTAID, 3, offsetof(struct vgpu_frame, ctaid)},
        {JIT_F_SHARED_BYTES, 4, offsetof(struct vgpu_frame, shared_bytes)},
        {JIT_F_DYNAMIC_SHARED, 4, offsetof(struct vgpu_frame, dynamic_shared)},
        {JIT_F_THREADS, 4, offsetof(struct vgpu_frame, threads)},
        {JIT_F_WARPS, 4, offsetof(struct vgpu_frame, warps)},
    };
    for (size_t k = 0; k < sizeof fields / sizeof *fields; k++) {
        unsigned kind = fields[k].kind;
        g->field[fields[k].field] = frame_at(g, fields[k].offset,
                                             kind == 3   ? three
                                             : kind == 4 ? i32
                                             : kind == 8 ? i64
                                                         : p);
    }
}

static void load_roots(struct jit_gen *g) {
    LLVMTypeRef i8 = jit_int1(g, 8), p = jit_pointer(g, i8);
    for (int32_t r = 0; r < g->root_count; r++) {
        const struct jit_root *root = &g->root[r];
        bool param = root->param >= 0;
        LLVMValueRef at = jit_scalar(g, 64, param ? (uint64_t)root->param : (uint64_t)root->var * sizeof(void *));
        LLVMValueRef from = LLVMBuildGEP2(g->b, i8, g->field[param ? JIT_F_PARAMS : JIT_F_SYMBOLS], &at, 1, "");
        g->root[r].pointer = jit_load(g, p, LLVMBuildBitCast(g->b, from, jit_pointer(g, p), ""));
    }
}

/* ---- local memory -------------------------------------------------------------------------------------------------
 */
enum { LOCAL_DEPTH = 64 }; /* calls deep, of recursive functions */

static uint32_t deepest(const struct ptx_module *m, const struct ptx_function *f, unsigned depth, bool *recursive) {
    uint32_t below = 0;
    if (depth > LOCAL_DEPTH) {
        *recursive = true;
        return 0;
    }
    for (int32_t i = 0; i < f->instr_count; i++) {
        if (f->instrs[i].op != PTX_OP_CALL) continue;
        if (f->instrs[i].callee < 0) *recursive = true; /* through a pointer: to whatever depth */
        if (*recursive) break;
        uint32_t b = deepest(m, &m->functions[f->instrs[i].callee], depth + 1, recursive);
        if (b > below) below = b;
    }
    return ((f->local_bytes + 15) & ~15u) + below;
}

static uint32_t largest_frame(const struct ptx_module *m) {
    uint32_t most = 0;
    for (int32_t k = 0; k < m->function_count; k++)
        if (m->functions[k].local_bytes > most) most = m->functions[k].local_bytes;
    return (most + 15) & ~15u;
}

uint32_t jit_local_bytes(const struct ptx_module *module, const struct ptx_function *f, bool *recursive) {
    *recursive = false;
    uint32_t bytes = deepest(module, f, 0, recursive);
    if (*recursive) bytes = LOCAL_DEPTH * largest_frame(module);
    return (bytes + 15) & ~15u;
}

/* ---- threads --------------------------------------------------------------------------------------------------------
 */
static void warp_threads(struct jit_gen *g) {
    LLVMValueRef bx = jit_field(g, JIT_F_BLOCK, 0), by = jit_field(g, JIT_F_BLOCK, 1);
    LLVMValueRef t = LLVMBuildMul(g->b, g->warp, jit_scalar(g, 32, JIT_LANES), "");
    g->thread = t;
    if (!g->u->aligned) {
        t = LLVMBuildAdd(g->b, jit_splat(g, t), jit_iota(g, 32, 1), "");
        bx = jit_splat(g, bx), by = jit_splat(g, by);
    }
    LLVMValueRef rows = LLVMBuildUDiv(g->b, t, bx, "");
    g->tid[0] = LLVMBuildURem(g->b, t, bx, "");
    g->tid[1] = LLVMBuildURem(g->b, rows, by, "");
    g->tid[2] = LLVMBuildUDiv(g->b, rows, by, "");
}

LLVMValueRef jit_linear_thread(struct jit_gen *g) {
    if (g->u->lanes == 1 || g->width == 1) return g->thread;
    return LLVMBuildAdd(g->b, jit_splat(g, g->thread), jit_iota(g, 32, 1), "");
}

static LLVMValueRef tid(struct jit_gen *g, unsigned axis) {
    LLVMValueRef v = g->tid[axis];
    if (g->width == 1) return v;
    if (!g->u->aligned) return v;
    v = jit_splat(g, v);
    return axis ? v : LLVMBuildAdd(g->b, v, jit_iota(g, 32, 1), "");
}

static LLVMValueRef lane_number(struct jit_gen *g) {
    if (g->u->lanes == 1) return LLVMBuildAnd(g->b, g->thread, jit_scalar(g, 32, JIT_LANES - 1), "");
    return g->width == 1 ? jit_scalar(g, 32, 0) : jit_iota(g, 32, 1);
}

static LLVMValueRef lane_mask(struct jit_gen *g, unsigned s) {
    LLVMValueRef one = LLVMBuildShl(g->b, jit_const(g, 32, 1), lane_number(g), "");
    LLVMValueRef below = LLVMBuildSub(g->b, one, jit_const(g, 32, 1), "");
    switch (s) {
    case PTX_LANEMASK_EQ:
        return one;
    case PTX_LANEMASK_LT:
        return below;
    case PTX_LANEMASK_LE:
        return LLVMBuildOr(g->b, below, one, "");
    case PTX_LANEMASK_GE:
        return LLVMBuildNot(g->b, below, "");
    default:
        return LLVMBuildNot(g->b, LLVMBuildOr(g->b, below, one, ""), "");
    }
}

static LLVMValueRef clock_now(struct jit_gen *g) {
    LLVMTypeRef p = jit_pointer(g, jit_int1(g, 8)), t = LLVMFunctionType(jit_int1(g, 64), &p, 1, false);
    LLVMValueRef at = jit_scalar(g, 64, offsetof(struct vgpu_host, clock));
    LLVMValueRef slot = LLVMBuildGEP2(g->b, jit_int1(g, 8), g->field[JIT_F_HOST], &at, 1, "");
    LLVMTypeRef fp = jit_pointer(g, t);
    LLVMValueRef f = jit_load(g, fp, LLVMBuildBitCast(g->b, slot, jit_pointer(g, fp), ""));
    return LLVMBuildCall2(g->b, t, f, &g->frame, 1, "");
}

LLVMValueRef jit_special(struct jit_gen *g, unsigned s) {
    LLVMValueRef v;
    if (s <= PTX_TID_Z) return tid(g, s - PTX_TID_X);
    if (s <= PTX_NTID_Z) return jit_spread(g, jit_field(g, JIT_F_BLOCK, s - PTX_NTID_X));
    if (s <= PTX_CTAID_Z) return jit_spread(g, jit_field(g, JIT_F_CTAID, s - PTX_CTAID_X));
    if (s <= PTX_NCTAID_Z) return jit_spread(g, jit_field(g, JIT_F_GRID, s - PTX_NCTAID_X));
    switch (s) {
    case PTX_LANEID:
        return lane_number(g);
    case PTX_WARPID:
        v = g->u->lanes > 1 ? g->warp : LLVMBuildLShr(g->b, g->thread, jit_scalar(g, 32, 5), "");
        return jit_spread(g, v);
    case PTX_NWARPID:
        return jit_spread(g, jit_field(g, JIT_F_WARPS, 0));
    case PTX_NSMID:
        return jit_const(g, 32, 1);
    case PTX_LANEMASK_EQ:
    case PTX_LANEMASK_LE:
    case PTX_LANEMASK_LT:
    case PTX_LANEMASK_GE:
    case PTX_LANEMASK_GT:
        return lane_mask(g, s);
    case PTX_CLOCK:
    case PTX_GLOBALTIMER_LO:
        return jit_spread(g, jit_resize(g, clock_now(g), 32, false));
    case PTX_CLOCK_HI:
    case PTX_GLOBALTIMER_HI:
        v = LLVMBuildLShr(g->b, clock_now(g), jit_scalar(g, 64, 32), "");
        return jit_spread(g, jit_resize(g, v, 32, false));
    case PTX_CLOCK64:
    case PTX_GLOBALTIMER:
        return jit_spread(g, clock_now(g));
    case PTX_DYNAMIC_SMEM_SIZE:
        return jit_spread(g, jit_field(g, JIT_F_DYNAMIC_SHARED, 0));
    case PTX_TOTAL_SMEM_SIZE:
        return jit_spread(g, jit_field(g, JIT_F_SHARED_BYTES, 0));
    default:
        return jit_const(g, 32, 0); /* smid, gridid, and what is 0 here */
    }
}

/* ---- instructions -------------------------------------------------------------------------------------------------
 */
static bool acts(const struct ptx_instr *i) { /* does more than to write registers */
    return ptx_ops[i->op].properties &
               (PTX_P_READS | PTX_P_WRITES | PTX_P_ATOMIC | PTX_P_BARRIER | PTX_P_WARP | PTX_P_CONTROL) ||
           i->op == PTX_OP_CALL || i->op == PTX_OP_TRAP;
}

static LLVMValueRef guard_of(struct jit_gen *g, const struct ptx_instr *i, unsigned width) {
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
        LLVMValueRef go = guard_of(g, i, one ? 1 : JIT_LANES);
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

/* ---- branches ------------------------------------------------------------------------------------------------------
 */
static LLVMTypeRef i32_of(struct jit_gen *g) {
    return jit_int1(g, 32);
}

/* What runs after partial block number k of the order. */
static LLVMBasicBlockRef next_of(struct jit_gen *g, int32_t k) {
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
    return next_of(g, g->flow.place[g->block]);
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
    LLVMValueRef p = guard_of(g, i, one ? 1 : JIT_LANES);
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
    LLVMValueRef p = guard_of(g, i, one ? 1 : JIT_LANES);
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

static bool ends_block(const struct ptx_instr *i) {
    return i->op == PTX_OP_BRA || i->op == PTX_OP_BRX || i->op == PTX_OP_RET || i->op == PTX_OP_EXIT;
}

static void terminator(struct jit_gen *g, const struct ptx_block *block) {
    const struct ptx_instr *i = block->end > block->first ? &g->f->instrs[block->end - 1] : NULL;
    g->instr = i;
    if (!i || !ends_block(i)) {
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

/* ---- blocks --------------------------------------------------------------------------------------------------------
 */
static void make_block(struct jit_gen *g, int32_t k) {
    int32_t b = g->block = g->flow.order[k];
    const struct ptx_block *block = &g->f->blocks[b];
    LLVMTypeRef i32 = i32_of(g);
    if (g->u->lanes > 1) { /* reached in order: if lanes wait, they are the mask */
        LLVMBasicBlockRef enter = jit_block(g, "enter");
        LLVMPositionBuilderAtEnd(g->b, g->dispatch[b]);
        LLVMValueRef wait = jit_load(g, i32, g->pending[b]);
        LLVMBasicBlockRef next = next_of(g, k);
        LLVMBuildCondBr(g->b, LLVMBuildICmp(g->b, LLVMIntNE, wait, jit_scalar(g, 32, 0), ""), enter, next);
        LLVMPositionBuilderAtEnd(g->b, enter);
        LLVMBuildStore(g->b, wait, g->current);
        LLVMBuildStore(g->b, jit_scalar(g, 32, 0), g->pending[b]);
        LLVMBuildBr(g->b, g->body[b]);
    }
    LLVMPositionBuilderAtEnd(g->b, g->body[b]);
    g->mask = g->mask_bits = NULL;
    if (g->u->lanes > 1) jit_mask(g);
    for (int32_t i = block->first; i < block->end && !g->u->failed; i++)
        if (!(i == block->end - 1 && ends_block(&g->f->instrs[i]))) jit_instruction(g, &g->f->instrs[i]);
    terminator(g, block);
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
    LLVMTypeRef i32 = i32_of(g);
    for (int32_t k = 0; k < w->count; k++) {
        int32_t b = w->order[k];
        g->body[b] = jit_block(g, "body");
        if (g->u->lanes == 1) continue;
        g->dispatch[b] = jit_block(g, "wait");
        g->pending[b] = jit_alloca(g, i32, "pending");
    }
}

static void warp_begin(struct jit_gen *g, LLVMValueRef mask) {
    g->current = jit_alloca(g, i32_of(g), "current");
    warp_threads(g);
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
    load_fields(g);
    load_roots(g);
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
