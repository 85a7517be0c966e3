/* What threads of a warp exchange (shfl, vote, match, redux, elect, activemask), and barriers of the block. The lanes
 * that take part are those of the instruction's mask. */
#include "vgpu/vgpu_jit.h"

static LLVMTypeRef i32_of(struct jit_gen *g) {
    return jit_int1(g, 32);
}
static LLVMValueRef one(struct jit_gen *g, uint64_t v) {
    return jit_scalar(g, 32, v);
}
static LLVMValueRef both(struct jit_gen *g, LLVMValueRef a, LLVMValueRef b) {
    return LLVMBuildAnd(g->b, a, b, "");
}
static LLVMValueRef equal(struct jit_gen *g, LLVMValueRef a, LLVMValueRef b) {
    return LLVMBuildICmp(g->b, LLVMIntEQ, a, b, "");
}

static LLVMValueRef first_lane(struct jit_gen *g, LLVMValueRef bits) {
    LLVMTypeRef t = LLVMTypeOf(bits);
    return jit_intrinsic(g, "llvm.cttz", &t, 1, (LLVMValueRef[]){bits, jit_scalar(g, 1, 0)}, 2);
}

static bool uniform(struct jit_gen *g, const struct ptx_operand *o) {
    if (o->kind == PTX_REG) return jit_reg_scalar(g, o->reg) && !g->shapes[o->reg].stride;
    return o->kind == PTX_IMM;
}

/* An operand that is one number; of several the first active lane's. */
static LLVMValueRef single(struct jit_gen *g, const struct ptx_operand *o, unsigned bits) {
    unsigned width = g->width;
    g->width = uniform(g, o) ? 1 : JIT_LANES;
    LLVMValueRef v = jit_read_int(g, o, bits);
    if (g->width > 1) v = LLVMBuildExtractElement(g->b, v, first_lane(g, jit_mask_bits(g)), "");
    g->width = width;
    return v;
}

static LLVMValueRef pred_bits(struct jit_gen *g, const struct ptx_operand *o) {
    g->width = JIT_LANES;
    LLVMValueRef p = jit_splat(g, jit_read_pred(g, o));
    return both(g, LLVMBuildBitCast(g->b, p, i32_of(g), ""), jit_mask_bits(g));
}

/* ---- shfl ---- */
/* For each lane the one to read from, as the manual computes it; *valid: it is within the segment. */
static LLVMValueRef shuffle_source(struct jit_gen *g, const struct ptx_instr *i, LLVMValueRef *valid) {
    LLVMValueRef b = jit_read_int(g, &i->src[1], 32), c = jit_read_int(g, &i->src[2], 32), j;
    LLVMValueRef lane = jit_iota(g, 32, 1), low = jit_const(g, 32, 31);
    LLVMValueRef clamp = both(g, c, low), segment = both(g, LLVMBuildLShr(g->b, c, jit_const(g, 32, 8), ""), low);
    LLVMValueRef rest = both(g, LLVMBuildNot(g->b, segment, ""), low), start = both(g, lane, segment);
    LLVMValueRef limit = LLVMBuildOr(g->b, start, both(g, clamp, rest), "");
    b = both(g, b, low);
    switch (i->sub) {
    case PTX_SUB_UP:
        j = LLVMBuildSub(g->b, lane, b, "");
        break;
    case PTX_SUB_DOWN:
        j = LLVMBuildAdd(g->b, lane, b, "");
        break;
    case PTX_SUB_BFLY:
        j = LLVMBuildXor(g->b, lane, b, "");
        break;
    default:
        j = LLVMBuildOr(g->b, start, both(g, b, rest), "");
    }
    *valid = LLVMBuildICmp(g->b, i->sub == PTX_SUB_UP ? LLVMIntSGE : LLVMIntSLE, j, limit, "");
    return both(g, jit_select(g, *valid, j, lane), low);
}

static LLVMValueRef permute(struct jit_gen *g, LLVMValueRef v, LLVMValueRef from) {
    if (LLVMIsConstant(from)) return LLVMBuildShuffleVector(g->b, v, LLVMGetUndef(LLVMTypeOf(v)), from, "");
    LLVMTypeRef lane = LLVMGetElementType(LLVMTypeOf(v));
    LLVMValueRef place = jit_spill(g, v), r = LLVMGetUndef(LLVMTypeOf(v));
    for (unsigned l = 0; l < JIT_LANES; l++) {
        LLVMValueRef at = LLVMBuildExtractElement(g->b, from, one(g, l), "");
        r = LLVMBuildInsertElement(g->b, r, jit_load(g, lane, jit_lane_place(g, lane, place, at)), one(g, l), "");
    }
    return r;
}

/* Whether the lane read from takes part: its bit of the mask. A lane that reads from one that does not keeps its own.
 */
static LLVMValueRef takes_part(struct jit_gen *g, LLVMValueRef from) {
    LLVMValueRef bits = jit_splat(g, jit_mask_bits(g));
    return jit_resize(g, LLVMBuildLShr(g->b, bits, from, ""), 1, false);
}

static void shfl(struct jit_gen *g, const struct ptx_instr *i) {
    LLVMValueRef valid, from;
    if (i->srcs < 3) {
        jit_fail(g, "this form is not implemented");
        return;
    }
    g->width = JIT_LANES;
    LLVMValueRef v = jit_splat(g, jit_read_int(g, &i->src[0], 32));
    if (i->dst[0].kind == PTX_REG && jit_reg_scalar(g, i->dst[0].reg)) {
        /* One number for all: it was one, or all read from one lane. */
        from = uniform(g, &i->src[0]) ? one(g, 0) : both(g, single(g, &i->src[1], 32), one(g, 31));
        jit_write(g, &i->dst[0], LLVMBuildExtractElement(g->b, v, from, ""));
        if (i->dsts > 1) {
            shuffle_source(g, i, &valid);
            jit_write(g, &i->dst[1], valid);
        }
        return;
    }
    from = shuffle_source(g, i, &valid);
    LLVMValueRef r = jit_select(g, takes_part(g, from), permute(g, v, from), v);
    jit_write(g, &i->dst[0], r);
    if (i->dsts > 1) jit_write(g, &i->dst[1], valid);
}

/* ---- vote, activemask, elect ---- */
/* Per lane if the member masks differ, else once. `members`: active lanes of the mask. */
static LLVMValueRef members(struct jit_gen *g, const struct ptx_operand *o) {
    bool once = uniform(g, o);
    g->width = once ? 1 : JIT_LANES;
    return both(g, jit_read_int(g, o, 32), jit_spread(g, jit_mask_bits(g)));
}

static void vote(struct jit_gen *g, const struct ptx_instr *i) {
    LLVMValueRef votes = pred_bits(g, &i->src[0]), all, r;
    if (i->srcs > 1)
        all = members(g, &i->src[1]);
    else
        g->width = 1, all = jit_mask_bits(g);
    votes = both(g, jit_spread(g, votes), all);
    LLVMValueRef none = equal(g, votes, jit_const(g, 32, 0)), full = equal(g, votes, all);
    switch (i->sub) {
    case PTX_SUB_BALLOT:
        r = votes;
        break;
    case PTX_SUB_ALL:
        r = full;
        break;
    case PTX_SUB_ANY:
        r = LLVMBuildNot(g->b, none, "");
        break;
    default:
        r = LLVMBuildOr(g->b, full, none, "");
    }
    jit_write(g, &i->dst[0], r);
}

static void elect(struct jit_gen *g, const struct ptx_instr *i) {
    LLVMValueRef leader = members(g, &i->src[0]);
    LLVMTypeRef t = LLVMTypeOf(leader);
    leader = jit_intrinsic(g, "llvm.cttz", &t, 1, (LLVMValueRef[]){leader, jit_scalar(g, 1, 0)}, 2);
    g->width = JIT_LANES;
    leader = jit_splat(g, leader);
    jit_write(g, &i->dst[0], leader);
    jit_write(g, &i->dst[1], equal(g, leader, jit_iota(g, 32, 1)));
}

/* ---- match, redux: lane by lane ---- */
static LLVMValueRef whole(struct jit_gen *g, LLVMValueRef room, LLVMTypeRef lane) {
    LLVMTypeRef t = LLVMVectorType(lane, JIT_LANES);
    return jit_load(g, t, LLVMBuildBitCast(g->b, room, jit_pointer(g, t), ""));
}

static void match(struct jit_gen *g, const struct ptx_instr *i) {
    unsigned bits = ptx_type_bits(i->type);
    LLVMTypeRef t = jit_int1(g, bits), i32 = i32_of(g);
    struct jit_each e;
    g->width = JIT_LANES;
    LLVMValueRef v = jit_splat(g, jit_read_int(g, &i->src[0], bits));
    LLVMValueRef all = jit_splat(g, members(g, &i->src[1]));
    g->width = JIT_LANES;
    LLVMValueRef place = jit_spill(g, v), room = jit_room(g, i32);
    jit_each_begin(g, &e);
    LLVMValueRef mine = jit_splat(g, jit_load(g, t, jit_lane_place(g, t, place, e.lane)));
    LLVMBuildStore(g->b, LLVMBuildBitCast(g->b, equal(g, v, mine), i32, ""), jit_lane_place(g, i32, room, e.lane));
    jit_each_end(g, &e);
    LLVMValueRef same = both(g, whole(g, room, i32), all);
    if (i->sub == PTX_SUB_ALL) {
        LLVMValueRef yes = equal(g, same, all);
        jit_write(g, &i->dst[0], jit_select(g, yes, all, jit_const(g, 32, 0)));
        if (i->dsts > 1) jit_write(g, &i->dst[1], yes);
    } else
        jit_write(g, &i->dst[0], same);
}

static LLVMValueRef reduce(struct jit_gen *g, const struct ptx_instr *i, LLVMValueRef a, LLVMValueRef b) {
    bool s = i->type == PTX_S32;
    if (i->type == PTX_F32) return jit_to_int(g, jit_min_max(g, i, jit_to_float(g, a), jit_to_float(g, b)));
    switch (i->sub) {
    case PTX_SUB_ADD:
        return LLVMBuildAdd(g->b, a, b, "");
    case PTX_SUB_MIN:
        return jit_call2(g, s ? "llvm.smin" : "llvm.umin", a, b);
    case PTX_SUB_MAX:
        return jit_call2(g, s ? "llvm.smax" : "llvm.umax", a, b);
    case PTX_SUB_AND:
        return both(g, a, b);
    case PTX_SUB_OR:
        return LLVMBuildOr(g->b, a, b, "");
    default:
        return LLVMBuildXor(g->b, a, b, "");
    }
}

/* For each lane that is on, over the lanes of its mask; masks that are one number need one round. */
static void redux(struct jit_gen *g, const struct ptx_instr *i) {
    LLVMTypeRef i32 = i32_of(g);
    LLVMValueRef bits = jit_mask_bits(g), zero = one(g, 0);
    bool once = uniform(g, &i->src[1]);
    g->width = JIT_LANES;
    LLVMValueRef v = jit_spill(g, jit_splat(g, jit_read_int(g, &i->src[0], 32)));
    LLVMValueRef all = jit_spill(g, jit_splat(g, members(g, &i->src[1])));
    LLVMValueRef room = jit_room(g, i32), sum = jit_alloca(g, i32, "sum"), left = jit_alloca(g, i32, "left");
    LLVMBuildStore(g->b, bits, left);
    LLVMBasicBlockRef outer = jit_block(g, "redux"), first = jit_block(g, ""), inner = jit_block(g, ""),
                      more = jit_block(g, ""), next = jit_block(g, ""), end = jit_block(g, "");
    LLVMBuildBr(g->b, outer);
    LLVMPositionBuilderAtEnd(g->b, outer);
    LLVMValueRef to_do = jit_load(g, i32, left);
    LLVMBuildCondBr(g->b, equal(g, to_do, zero), end, first);
    LLVMPositionBuilderAtEnd(g->b, first);
    g->width = 1;
    LLVMValueRef lane = first_lane(g, to_do), rest = jit_alloca(g, i32, "rest");
    LLVMValueRef group = jit_load(g, i32, jit_lane_place(g, i32, all, lane)), low = first_lane(g, group);
    LLVMBuildStore(g->b, jit_load(g, i32, jit_lane_place(g, i32, v, low)), sum);
    LLVMBuildStore(g->b, both(g, group, LLVMBuildSub(g->b, group, one(g, 1), "")), rest);
    LLVMBuildStore(g->b, once ? zero : both(g, to_do, LLVMBuildSub(g->b, to_do, one(g, 1), "")), left);
    LLVMBuildBr(g->b, inner);
    LLVMPositionBuilderAtEnd(g->b, inner);
    LLVMValueRef r = jit_load(g, i32, rest);
    LLVMBuildCondBr(g->b, equal(g, r, zero), next, more);
    LLVMPositionBuilderAtEnd(g->b, more);
    LLVMValueRef x = jit_load(g, i32, jit_lane_place(g, i32, v, first_lane(g, r)));
    LLVMBuildStore(g->b, reduce(g, i, jit_load(g, i32, sum), x), sum);
    LLVMBuildStore(g->b, both(g, r, LLVMBuildSub(g->b, r, one(g, 1), "")), rest);
    LLVMBuildBr(g->b, inner);
    LLVMPositionBuilderAtEnd(g->b, next);
    LLVMBuildStore(g->b, jit_load(g, i32, sum), jit_lane_place(g, i32, room, lane));
    LLVMBuildBr(g->b, outer);
    LLVMPositionBuilderAtEnd(g->b, end);
    jit_write(g, &i->dst[0], once ? jit_load(g, i32, sum) : whole(g, room, i32));
}

/* ---- barriers ---- */
LLVMValueRef jit_host_call(struct jit_gen *g, size_t offset, LLVMTypeRef result, LLVMValueRef *args, unsigned n) {
    LLVMTypeRef types[8];
    for (unsigned k = 0; k < n; k++) types[k] = LLVMTypeOf(args[k]);
    LLVMTypeRef t = LLVMFunctionType(result, types, n, false), fp = jit_pointer(g, t);
    LLVMValueRef at = jit_scalar(g, 64, offset);
    LLVMValueRef slot = LLVMBuildGEP2(g->b, jit_int1(g, 8), jit_field(g, JIT_F_HOST, 0), &at, 1, "");
    LLVMValueRef f = jit_load(g, fp, LLVMBuildBitCast(g->b, slot, jit_pointer(g, fp), ""));
    return LLVMBuildCall2(g->b, t, f, args, n, "");
}

static void barrier(struct jit_gen *g, const struct ptx_instr *i) {
    bool red = i->sub >= PTX_SUB_BAR_RED_POPC && i->sub <= PTX_SUB_BAR_RED_OR;
    int32_t numbers = i->srcs - (red ? 1 : 0);
    if (i->sub == PTX_SUB_BAR_WARP) return; /* lanes are in step */
    LLVMValueRef id = numbers > 0 ? single(g, &i->src[0], 32) : one(g, 0);
    LLVMValueRef threads = numbers > 1 ? single(g, &i->src[1], 32) : one(g, 0);
    LLVMValueRef args[] = {g->frame, g->warp, id, threads, jit_mask_bits(g), NULL};
    if (!red) {
        size_t call =
            i->sub == PTX_SUB_BAR_ARRIVE ? offsetof(struct vgpu_host, arrive) : offsetof(struct vgpu_host, barrier);
        jit_host_call(g, call, LLVMVoidTypeInContext(g->u->context), args, 5);
        return;
    }
    LLVMValueRef votes = pred_bits(g, &i->src[i->srcs - 1]), count;
    if (i->sub == PTX_SUB_BAR_RED_AND) votes = both(g, LLVMBuildNot(g->b, votes, ""), jit_mask_bits(g));
    args[5] = votes;
    count = jit_host_call(g, offsetof(struct vgpu_host, barrier_count), i32_of(g), args, 6);
    g->width = 1;
    if (i->sub == PTX_SUB_BAR_RED_AND) count = equal(g, count, one(g, 0));
    if (i->sub == PTX_SUB_BAR_RED_OR) count = LLVMBuildICmp(g->b, LLVMIntNE, count, one(g, 0), "");
    jit_write(g, &i->dst[0], count);
}

bool jit_instr_warp(struct jit_gen *g, const struct ptx_instr *i) {
    if (!(ptx_ops[i->op].properties & (PTX_P_WARP | PTX_P_BARRIER))) return false;
    if (g->u->lanes == 1) {
        jit_fail(g, "exchange between threads in a function that has none");
        return true;
    }
    switch (i->op) {
    case PTX_OP_SHFL:
        shfl(g, i);
        break;
    case PTX_OP_VOTE:
        vote(g, i);
        break;
    case PTX_OP_MATCH:
        match(g, i);
        break;
    case PTX_OP_REDUX:
        redux(g, i);
        break;
    case PTX_OP_ELECT:
        elect(g, i);
        break;
    case PTX_OP_ACTIVEMASK:
        jit_write(g, &i->dst[0], jit_mask_bits(g));
        break;
    case PTX_OP_BAR:
    case PTX_OP_BARRIER:
        barrier(g, i);
        break;
    default:
        jit_fail(g, "this form is not implemented");
    }
    return true;
}
