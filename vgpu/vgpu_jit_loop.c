/* Loop mode: a block's threads one after the other, the loop along x innermost, for LLVM to vectorise. It may: threads
 * that do not exchange values are independent, which the metadata says.
 *
 * "if (i >= n) return;" at a kernel's begin would leave a mask on every access. Where i grows by 1 with tid.x, it
 * becomes the loop's number of iterations instead: the first block is made once more, before the loop, for tid.x = 0.
 */
#include "vgpu/vgpu_jit.h"
#include "vgpu/vgpu_jit_visit.h"

#include <stdlib.h>

/* ---- the limit ---- */
static bool pure(const struct jit_gen *g, const struct ptx_instr *i) {
    const unsigned acts = PTX_P_READS | PTX_P_WRITES | PTX_P_ATOMIC | PTX_P_BARRIER | PTX_P_WARP | PTX_P_CONTROL;
    if (i->op == PTX_OP_LD && i->space == PTX_PARAM && g->f->entry) return i->src[0].reg < 0;
    return i->guard < 0 && !(ptx_ops[i->op].properties & acts) && !(i->modifiers & PTX_M_CC);
}

struct define {
    struct jit_gen *g;
    struct jit_shape s;
};
static void define(void *context, int32_t reg) {
    struct define *d = context;
    d->g->shapes[reg] = d->s;
}

/* The first block's registers along x, in a table of its own. Answers the setp of the branch; NULL: none that is
 * simple enough. */
static const struct ptx_instr *walk(struct jit_gen *g, const struct ptx_block *b, int32_t guard) {
    const struct ptx_instr *found = NULL;
    for (int32_t n = b->first; n < b->end - 1; n++) {
        const struct ptx_instr *i = &g->f->instrs[n];
        if (!pure(g, i)) return NULL;
        for (int32_t d = 0; d < i->dsts; d++) {
            struct define now = {g, jit_shape_of(g, i, d)};
            if (i->op == PTX_OP_SETP) now.s = (struct jit_shape){.kind = JIT_VARYING};
            jit_visit_operand(&i->dst[d], define, &now);
        }
        if (i->dsts && i->dst[0].kind == PTX_REG && i->dst[0].reg == guard) found = i->op == PTX_OP_SETP ? i : NULL;
    }
    return found;
}

enum { GOES_ON_NEVER, BELOW, UP_TO, ABOVE, FROM }; /* a < b, a <= b, a > b, a >= b */
static int relation(unsigned compare) {
    switch (compare) {
    case PTX_LT:
    case PTX_LO:
        return BELOW;
    case PTX_LE:
    case PTX_LS:
        return UP_TO;
    case PTX_GT:
    case PTX_HI_CMP:
        return ABOVE;
    case PTX_GE:
    case PTX_HS:
        return FROM;
    default:
        return GOES_ON_NEVER;
    }
}

static bool describe(struct jit_gen *g, const struct ptx_instr *set, bool leaves_if_true, struct jit_limit *limit) {
    static const uint8_t opposite[] = {GOES_ON_NEVER, FROM, ABOVE, UP_TO, BELOW},
                         mirrored[] = {GOES_ON_NEVER, ABOVE, FROM, BELOW, UP_TO};
    unsigned kind = ptx_type_kind(set->type), bits = ptx_type_bits(set->type);
    int r = relation(set->compare);
    if ((kind != PTX_KIND_S && kind != PTX_KIND_U) || (bits != 32 && bits != 64) || set->combine || set->dsts > 1)
        return false;
    struct jit_shape a = jit_operand_shape(g, &set->src[0], bits), b = jit_operand_shape(g, &set->src[1], bits);
    if (leaves_if_true) r = opposite[r];
    limit->index = &set->src[0], limit->end = &set->src[1];
    if (b.stride) {
        struct jit_shape t = a;
        a = b, b = t;
        limit->index = &set->src[1], limit->end = &set->src[0];
        r = mirrored[r];
    }
    if (a.kind != JIT_SCALAR || a.stride != 1 || b.kind != JIT_SCALAR || b.stride) return false;
    limit->bits = bits;
    limit->is_signed = kind == PTX_KIND_S && set->compare < PTX_LO;
    limit->inclusive = r == UP_TO;
    return r == BELOW || r == UP_TO;
}

bool jit_find_limit(struct jit_gen *g, struct jit_limit *limit) {
    const struct ptx_block *b = &g->f->blocks[0];
    const struct ptx_instr *last = b->end > b->first ? &g->f->instrs[b->end - 1] : NULL;
    struct jit_shape *shapes = g->shapes;
    bool found = false;
    if (!g->f->entry || !last || last->guard < 0 || b->preds || g->flow.loop_of[0] >= 0 || b->succs < 1) return false;
    bool branch = last->op == PTX_OP_BRA && b->succs == 2, leave = last->op == PTX_OP_RET || last->op == PTX_OP_EXIT;
    bool true_leaves = leave || (branch && g->flow.trivial[last->target]);
    if (!leave && !(branch && (true_leaves || g->flow.trivial[b->succ[0]]))) return false;
    limit->stay = leave || true_leaves ? b->succ[0] : last->target;
    g->shapes = calloc((size_t)g->f->reg_count + 1, sizeof *g->shapes);
    if (g->shapes) {
        g->u->along_x = true;
        const struct ptx_instr *set = walk(g, b, last->guard);
        found = set && describe(g, set, true_leaves != last->guard_negated, limit);
        g->u->along_x = false;
    }
    free(g->shapes);
    g->shapes = shapes;
    return found;
}

/* Threads of the row that go on: end - i(0), at least 0 and at most all. An i of 32 bits that wraps within the row ends
 * the kernel as a trap does; the device would go on with an index below zero. */
static LLVMValueRef row_length(struct jit_gen *g, LLVMValueRef all) {
    const struct jit_limit *l = g->limit;
    const struct ptx_block *b = &g->f->blocks[0];
    LLVMValueRef x = g->tid[0], thread = g->thread, wide, first, end;
    g->tid[0] = jit_scalar(g, 32, 0);
    g->thread = g->tid[0]; /* the first block does not ask for it */
    for (int32_t i = b->first; i < b->end - 1 && !g->u->failed; i++) jit_instruction(g, &g->f->instrs[i]);
    g->tid[0] = x, g->thread = thread;
    g->width = 1;
    first = jit_read_int(g, l->index, l->bits), end = jit_read_int(g, l->end, l->bits);
    first = jit_resize(g, first, 64, l->is_signed), end = jit_resize(g, end, 64, l->is_signed);
    LLVMIntPredicate p = l->is_signed ? l->inclusive ? LLVMIntSLE : LLVMIntSLT : l->inclusive ? LLVMIntULE : LLVMIntULT;
    LLVMValueRef some = LLVMBuildICmp(g->b, p, first, end, ""), count = LLVMBuildSub(g->b, end, first, "");
    wide = jit_resize(g, all, 64, false);
    if (l->inclusive) {
        LLVMValueRef most = LLVMBuildSub(g->b, wide, jit_scalar(g, 64, 1), "");
        count = LLVMBuildAdd(g->b, jit_call2(g, "llvm.umin", count, most), jit_scalar(g, 64, 1), "");
    } else
        count = jit_call2(g, "llvm.umin", count, wide);
    count = jit_select(g, some, count, jit_scalar(g, 64, 0));
    if (l->bits == 32) {
        LLVMValueRef top = jit_scalar(g, 64, l->is_signed ? INT32_MAX : UINT32_MAX);
        LLVMValueRef last = LLVMBuildAdd(g->b, first, LLVMBuildSub(g->b, wide, jit_scalar(g, 64, 1), ""), "");
        LLVMValueRef wraps = LLVMBuildICmp(g->b, LLVMIntSGT, last, top, "");
        LLVMBasicBlockRef bad = jit_block(g, "wraps"), on = jit_block(g, "");
        LLVMBuildCondBr(g->b, wraps, bad, on);
        LLVMPositionBuilderAtEnd(g->b, bad);
        LLVMValueRef args[] = {g->frame, jit_scalar(g, 32, 0)};
        jit_host_call(g, offsetof(struct vgpu_host, trap), LLVMVoidTypeInContext(g->u->context), args, 2);
        LLVMBuildBr(g->b, on);
        LLVMPositionBuilderAtEnd(g->b, on);
    }
    return jit_resize(g, count, 32, false);
}

/* ---- the loops ---- */
static void count_up(struct jit_gen *g, LLVMValueRef at, LLVMValueRef n, LLVMBasicBlockRef head, LLVMBasicBlockRef end,
                     bool inner) {
    LLVMTypeRef i32 = jit_int1(g, 32);
    LLVMValueRef next = LLVMBuildNUWAdd(g->b, jit_load(g, i32, at), jit_scalar(g, 32, 1), "");
    LLVMBuildStore(g->b, next, at);
    LLVMValueRef br = LLVMBuildCondBr(g->b, LLVMBuildICmp(g->b, LLVMIntULT, next, n, ""), head, end);
    if (inner && g->u->loop_id)
        LLVMSetMetadata(br, LLVMGetMDKindIDInContext(g->u->context, "llvm.loop", 9), g->u->loop_id);
    LLVMPositionBuilderAtEnd(g->b, end);
}

void jit_thread_loops(struct jit_gen *g) {
    LLVMTypeRef i32 = jit_int1(g, 32);
    LLVMValueRef at[3], zero = jit_scalar(g, 32, 0), n[3];
    LLVMBasicBlockRef head[3], end[3];
    for (unsigned a = 0; a < 3; a++) {
        at[a] = jit_alloca(g, i32, "tid"), n[a] = jit_field(g, JIT_F_BLOCK, a);
        head[a] = jit_block(g, "threads"), end[a] = jit_block(g, "threads_end");
    }
    for (int a = 2; a >= 0; a--) {
        if (!a && g->limit) {
            g->tid[1] = jit_load(g, i32, at[1]), g->tid[2] = jit_load(g, i32, at[2]);
            jit_forget_registers(g);
            n[0] = row_length(g, n[0]);
        }
        LLVMBuildStore(g->b, zero, at[a]);
        if (!a && g->limit)
            LLVMBuildCondBr(g->b, LLVMBuildICmp(g->b, LLVMIntNE, n[0], zero, ""), head[0], end[0]);
        else
            LLVMBuildBr(g->b, head[a]);
        LLVMPositionBuilderAtEnd(g->b, head[a]);
    }
    for (unsigned a = 0; a < 3; a++) g->tid[a] = jit_load(g, i32, at[a]);
    LLVMValueRef row =
        LLVMBuildAdd(g->b, LLVMBuildMul(g->b, g->tid[2], jit_field(g, JIT_F_BLOCK, 1), ""), g->tid[1], "");
    g->thread = LLVMBuildAdd(g->b, LLVMBuildMul(g->b, row, jit_field(g, JIT_F_BLOCK, 0), ""), g->tid[0], "");
    jit_forget_registers(g);
    LLVMBuildBr(g->b, g->body[g->flow.order[0]]);
    LLVMPositionBuilderAtEnd(g->b, g->done);
    for (unsigned a = 0; a < 3; a++) count_up(g, at[a], n[a], head[a], end[a], !a);
    LLVMBuildRetVoid(g->b);
}
