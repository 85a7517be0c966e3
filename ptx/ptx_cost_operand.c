/* Operands over a box: registers, symbols, special registers. */
#include "ptx/ptx_cost_model.h"

static struct val symbol(struct cost_run *x, struct state *s, const struct ptx_operand *o) {
    if (o->func >= 0) return cost_number(o->func + 1);
    const struct cost_frame *frame = cost_top(s);
    const struct ptx_function *f = frame->info->f;
    const struct ptx_var *v = ptx_var_of(x->module, f, o->var);
    struct val r = {.c = o->offset};
    int32_t k = (int32_t)(v - f->vars);
    switch (v->space) {
    case PTX_SHARED:
        r.base = BASE_SHARED;
        r.c += ptx_shared_offset(x->entry, o->var);
        return r;
    case PTX_LOCAL:
        r.base = BASE_LOCAL;
        r.c += frame->local + (int64_t)v->offset;
        return r;
    case PTX_PARAM:
        r.base = BASE_LOCAL;
        if (k >= f->params + f->returns)
            r.c += frame->local + (int64_t)v->offset;
        else if (!f->entry)
            r.c += frame->args + (int64_t)ptx_arg_offset(f, k);
        else
            r = (struct val){.base = BASE_PARAM, .c = r.c + (int64_t)v->offset};
        return r;
    default:
        r.base = BASE_VAR;
        r.var = o->var;
        return r;
    }
}

static struct val linear_thread(struct cost_run *x) {
    struct val v = ptx_cost_add(x, &x->sreg[0], &x->sreg[1], x->block[0]);
    return ptx_cost_add(x, &v, &x->sreg[2], (int64_t)x->block[0] * x->block[1]);
}

static struct val lanemask(struct cost_run *x, enum ptx_sreg r, const struct val *lane) {
    if (lane->kind != VAL_NUM) return *lane;
    if (lane->dims) return cost_late(x, cost_halve(x, lane->dims), BASE_NUMBER);
    uint32_t eq = UINT32_C(1) << lane->c, lt = eq - 1;
    uint32_t mask = r == PTX_LANEMASK_EQ   ? eq
                    : r == PTX_LANEMASK_LE ? eq | lt
                    : r == PTX_LANEMASK_LT ? lt
                    : r == PTX_LANEMASK_GE ? ~lt
                                           : ~(eq | lt);
    return cost_number(mask);
}

static struct val lane_or_warp(struct cost_run *x, bool warp) {
    struct val thread = linear_thread(x);
    struct sum e = cost_sum(&thread), q;
    struct wish w;
    if (!cost_floor(x, &e, PTX_WARP_LANES, &q, &w)) return cost_late(x, w, BASE_NUMBER);
    if (warp) return cost_from_sum(&q);
    e = cost_sum_add(&e, &q, -PTX_WARP_LANES);
    return cost_from_sum(&e);
}

struct val cost_sreg(struct cost_run *x, enum ptx_sreg r) {
    if (r <= PTX_TID_Z) return x->sreg[r - PTX_TID_X];
    if (r <= PTX_NTID_Z) return cost_number(x->block[r - PTX_NTID_X]);
    if (r <= PTX_CTAID_Z) return x->sreg[3 + r - PTX_CTAID_X];
    if (r <= PTX_NCTAID_Z) return cost_number(x->grid[r - PTX_NCTAID_X]);
    if (r == PTX_LANEID || r == PTX_WARPID) return lane_or_warp(x, r == PTX_WARPID);
    if (r >= PTX_LANEMASK_EQ && r <= PTX_LANEMASK_GT) {
        struct val lane = lane_or_warp(x, false);
        return lanemask(x, r, &lane);
    }
    switch (r) {
    case PTX_DYNAMIC_SMEM_SIZE:
        return cost_number(x->dynamic_shared);
    case PTX_ZERO_SREG:
        return cost_number(0);
    default: /* of the device, or of time */
        return cost_data(BASE_NUMBER);
    }
}

struct val cost_operand(struct cost_run *x, struct state *s, const struct ptx_operand *o) {
    switch (o->kind) {
    case PTX_REG: {
        int32_t slot = cost_top(s)->info->slot[o->reg];
        return slot < 0 ? cost_data(BASE_ANY) : s->regs[cost_top(s)->regs + slot];
    }
    case PTX_IMM:
        return cost_number((int64_t)o->bits);
    case PTX_SYMBOL:
        return symbol(x, s, o);
    case PTX_SREG_OP:
        return cost_sreg(x, o->sreg);
    default:
        return cost_data(BASE_ANY);
    }
}

struct val cost_predicate(struct cost_run *x, struct state *s, const struct ptx_operand *o) {
    struct val v = cost_operand(x, s, o);
    if (v.kind == VAL_NUM) v = cost_number((v.c & 1) ^ o->negated);
    return v;
}

/* As ptx_put: what the type has is extended to the register's width. */
void cost_put(struct cost_run *x, struct state *s, const struct ptx_operand *o, enum ptx_type type, struct val v) {
    if (o->kind != PTX_REG) return;
    const struct func_info *info = cost_top(s)->info;
    int32_t slot = info->slot[o->reg];
    if (slot < 0) return;
    unsigned bits = ptx_type_bits(type), width = ptx_type_bits(info->f->regs[o->reg].type);
    bool is_signed = ptx_type_kind(type) == PTX_KIND_S;
    if (cost_is_constant(&v)) {
        uint64_t c = is_signed ? ptx_sign((uint64_t)v.c, bits) : ptx_bits((uint64_t)v.c, bits);
        v.c = width == 1 ? (int64_t)(c & 1) : (int64_t)ptx_sign(c, width);
    } else if (v.kind == VAL_NUM && v.base == BASE_NUMBER && bits < width) {
        struct sum e;
        struct wish w;
        v = cost_as(x, &v, is_signed, bits, &e, &w) ? cost_from_sum(&e) : cost_late(x, w, BASE_NUMBER);
    }
    s->regs[cost_top(s)->regs + slot] = v;
}
