/* One instruction over symbolic values: registers, conditions, guards. */
#include <string.h>
#include "ptx/ptx_access_model.h"

static const struct frame *here(const struct analysis *a) {
    return a->frames[a->frame];
}

static int32_t index_of(const struct analysis *a, const struct ptx_instr *i) {
    return (int32_t)(i - here(a)->f->instrs);
}

int32_t access_reg(struct analysis *a, int32_t reg) {
    const struct frame *f = here(a);
    return f->multi[reg] >= 0 ? a->now.regs[f->multi[reg]] : f->single[reg];
}

void access_set_reg(struct analysis *a, int32_t reg, int32_t value) {
    struct frame *f = a->frames[a->frame];
    if (f->multi[reg] >= 0) {
        a->now.regs[f->multi[reg]] = value;
    } else if (f->single[reg] != value) {
        f->single[reg] = value;
        a->changed = true;
    }
}

static int32_t special(struct analysis *a, enum ptx_sreg sreg) {
    struct ptx_symbols_of *s = &a->s;
    if (sreg <= PTX_TID_Z) return a->tid[sreg - PTX_TID_X];
    if (sreg >= PTX_CTAID_X && sreg <= PTX_CTAID_Z) return a->ctaid[sreg - PTX_CTAID_X];
    if (sreg <= PTX_NTID_Z)
        return a->launch ? ptx_sum_constant(s, a->block[sreg - PTX_NTID_X])
                         : access_symbol(a, 'S', sreg, 0, 0, 1, 1024);
    if (sreg <= PTX_NCTAID_Z)
        return a->launch ? ptx_sum_constant(s, a->grid[sreg - PTX_NCTAID_X])
                         : access_symbol(a, 'S', sreg, 0, 0, 1, INT32_MAX);
    if (sreg == PTX_LANEID) {
        bool flat = a->launch && a->block[1] == 1 && a->block[2] == 1;
        return flat ? ptx_sum_add(s, a->tid[0], access_quotient(a, a->tid[0], 32), -32)
                    : access_symbol(a, 'S', sreg, 0, 0, 0, 31);
    }
    if (sreg == PTX_WARPID || sreg == PTX_NWARPID) return access_symbol(a, 'S', sreg, 0, 0, 0, 64);
    return sreg == PTX_ZERO_SREG ? ptx_sum_constant(s, 0) : 0;
}

static int32_t symbol_value(struct analysis *a, const struct ptx_operand *o) {
    struct base base = {BASE_FUNCTION, o->func, 0};
    if (o->func < 0) {
        const struct ptx_var *v = ptx_var_of(a->module, here(a)->f, o->var);
        if (v->space == PTX_SHARED)
            base = (struct base){BASE_SHARED, 0, 0};
        else if (o->var < a->module->var_count)
            base = (struct base){BASE_VAR, o->var, 0};
        else
            base = (struct base){BASE_LOCAL, a->frame, o->var};
    }
    return access_value(a, base, ptx_sum_constant(&a->s, o->offset));
}

int32_t access_operand(struct analysis *a, const struct ptx_operand *o, enum ptx_type type) {
    int32_t v = 0;
    switch (o->kind) {
    case PTX_REG:
        v = access_reg(a, o->reg);
        if (v && o->negated) v = access_condition(a, access_not(a, access_get(a, v).cond));
        break;
    case PTX_IMM:
        if (type == PTX_PRED)
            v = access_condition(a, access_cond(a, o->bits ? COND_TRUE : COND_FALSE, 0, 0));
        else
            v = access_number(a, ptx_sum_constant(&a->s, (int64_t)o->bits));
        break;
    case PTX_SYMBOL:
        v = symbol_value(a, o);
        break;
    case PTX_SREG_OP:
        v = access_number(a, special(a, (enum ptx_sreg)o->sreg));
        break;
    default:
        break;
    }
    if (v) return v;
    if (type == PTX_PRED) return access_condition(a, access_cond(a, COND_ANY, 0, 0));
    return ptx_type_bits(type) == 64 ? access_unknown(a) : access_number(a, 0);
}

/* ---- conditions ---- */
static int32_t compared(struct analysis *a, const struct ptx_instr *i, enum ptx_type type, int n) {
    return access_as(a, access_as_number(a, access_operand(a, &i->src[n], (enum ptx_type)i->type)), type, i, n);
}

static bool in_range(struct analysis *a, int32_t sum, enum ptx_type type) {
    if (!sum) return false;
    int64_t lo = ptx_type_kind(type) == PTX_KIND_U ? 0
                 : ptx_type_bits(type) < 64        ? -((int64_t)1 << (ptx_type_bits(type) - 1))
                                                   : -PTX_INF;
    return ptx_sum_at_least(&a->s, sum, lo, &a->facts, a->now_facts);
}

/* x < y as unsigned numbers, y not negative as a signed one: then x is not negative, or the comparison is false. */
static int32_t unsigned_less(struct analysis *a, int32_t x, int32_t y, int or_equal) {
    int32_t less = access_cond(
        a, COND_LE, ptx_sum_add(&a->s, ptx_sum_add(&a->s, x, y, -1), ptx_sum_constant(&a->s, !or_equal), 1), 0);
    int32_t positive = access_cond(a, COND_LE, ptx_sum_scale(&a->s, x, -1), 0);
    return access_cond(a, COND_AND, less, positive);
}

static int32_t comparison(struct analysis *a, const struct ptx_instr *i) {
    enum ptx_type type = (enum ptx_type)i->type;
    enum ptx_type_kind kind = ptx_type_kind(type);
    int32_t any = access_cond(a, COND_ANY, 0, 0), one = ptx_sum_constant(&a->s, 1);
    if (kind == PTX_KIND_F || kind == PTX_KIND_X2) return any;
    enum ptx_compare c = (enum ptx_compare)i->compare;
    if (c == PTX_LO) c = PTX_LT;
    if (c == PTX_LS) c = PTX_LE;
    if (c == PTX_HI_CMP) c = PTX_GT;
    if (c == PTX_HS) c = PTX_GE;
    int32_t rx = access_as_number(a, access_operand(a, &i->src[0], type));
    int32_t ry = access_as_number(a, access_operand(a, &i->src[1], type));
    if (kind == PTX_KIND_U && (!in_range(a, rx, type) || !in_range(a, ry, type))) {
        /* Equality does not depend on the sign; a comparison with a limit that is no negative number can be said. */
        bool may = ptx_type_bits(type) <= 32 || (rx && ry);
        enum ptx_type as = ptx_type_bits(type) == 16 ? PTX_S16 : ptx_type_bits(type) == 32 ? PTX_S32 : PTX_S64;
        if (c != PTX_EQ && c != PTX_NE) {
            int32_t x = may ? access_as(a, rx, as, i, 4) : 0, y = may ? access_as(a, ry, as, i, 5) : 0;
            if (!x || !y) return any;
            if ((c == PTX_LT || c == PTX_LE) && in_range(a, y, type)) return unsigned_less(a, x, y, c == PTX_LE);
            if ((c == PTX_GT || c == PTX_GE) && in_range(a, y, type))
                return access_not(a, unsigned_less(a, x, y, c == PTX_GT));
            return any;
        }
        type = as;
    }
    int32_t x = compared(a, i, type, 0), y = compared(a, i, type, 1);
    int32_t d = ptx_sum_add(&a->s, x, y, -1), e = ptx_sum_add(&a->s, y, x, -1);
    switch (c) {
    case PTX_EQ:
        return access_cond(a, COND_EQ, d, 0);
    case PTX_NE:
        return access_cond(a, COND_NE, d, 0);
    case PTX_LT:
        return access_cond(a, COND_LE, ptx_sum_add(&a->s, d, one, 1), 0);
    case PTX_LE:
        return access_cond(a, COND_LE, d, 0);
    case PTX_GT:
        return access_cond(a, COND_LE, ptx_sum_add(&a->s, e, one, 1), 0);
    case PTX_GE:
        return access_cond(a, COND_LE, e, 0);
    default:
        return any;
    }
}

/* A pointer compared with null: its value, if it is known, decides. */
static void set_predicate(struct analysis *a, const struct ptx_instr *i) {
    int32_t c = comparison(a, i);
    if (i->combine) {
        int32_t with = access_get(a, access_operand(a, &i->src[2], PTX_PRED)).cond;
        if (i->dsts > 1 && i->dst[1].kind == PTX_REG)
            access_set_reg(a, i->dst[1].reg, access_condition(a, access_cond(a, COND_ANY, 0, 0)));
        c = i->combine == PTX_SUB_AND  ? access_cond(a, COND_AND, c, with)
            : i->combine == PTX_SUB_OR ? access_cond(a, COND_OR, c, with)
                                       : access_cond(a, COND_ANY, 0, 0);
    } else if (i->dsts > 1 && i->dst[1].kind == PTX_REG) {
        access_set_reg(a, i->dst[1].reg, access_condition(a, access_not(a, c)));
    }
    if (i->dst[0].kind == PTX_REG) access_set_reg(a, i->dst[0].reg, access_condition(a, c));
}

static int32_t predicate_logic(struct analysis *a, const struct ptx_instr *i) {
    int32_t x = access_get(a, access_operand(a, &i->src[0], PTX_PRED)).cond;
    int32_t y = i->srcs > 1 ? access_get(a, access_operand(a, &i->src[1], PTX_PRED)).cond : 0;
    switch (i->op) {
    case PTX_OP_MOV:
        return x;
    case PTX_OP_NOT:
        return access_not(a, x);
    case PTX_OP_AND:
        return access_cond(a, COND_AND, x, y);
    case PTX_OP_OR:
        return access_cond(a, COND_OR, x, y);
    case PTX_OP_XOR:
        return access_cond(a, COND_OR, access_cond(a, COND_AND, x, access_not(a, y)),
                           access_cond(a, COND_AND, access_not(a, x), y));
    default:
        return access_cond(a, COND_ANY, 0, 0);
    }
}

/* ---- the instruction ---- */
static int32_t nothing_known(struct analysis *a, const struct ptx_operand *dst) {
    enum ptx_type own = (enum ptx_type)here(a)->f->regs[dst->reg].type;
    if (own == PTX_PRED) return access_condition(a, access_cond(a, COND_ANY, 0, 0));
    return ptx_type_bits(own) >= 64 ? access_unknown(a) : access_number(a, 0);
}

static void forget_results(struct analysis *a, const struct ptx_instr *i) {
    for (unsigned n = 0; n < i->dsts; n++) {
        const struct ptx_operand *d = &i->dst[n];
        if (d->kind == PTX_REG) access_set_reg(a, d->reg, nothing_known(a, d));
        for (unsigned e = 0; d->kind == PTX_VECTOR && e < d->count; e++)
            if (d->elements[e].kind == PTX_REG)
                access_set_reg(a, d->elements[e].reg, nothing_known(a, &d->elements[e]));
    }
}

/* cvta.to.global says that its operand is a pointer. */
static int32_t surely_pointer(struct analysis *a, int32_t value) {
    struct value v = access_get(a, value);
    if (v.base.kind == BASE_PARAM) v.base.b = 1;
    return v.base.kind == BASE_PARAM ? access_value(a, v.base, v.sum) : value;
}

static void assign(struct analysis *a, const struct ptx_instr *i) {
    int32_t v;
    if (i->dst[0].kind != PTX_REG || (i->srcs && i->src[0].kind == PTX_VECTOR)) {
        forget_results(a, i);
        return;
    }
    if (i->type == PTX_PRED) {
        v = access_condition(a, predicate_logic(a, i));
    } else if (i->op == PTX_OP_MOV) {
        v = access_operand(a, &i->src[0], (enum ptx_type)i->type);
    } else if (i->op == PTX_OP_CVTA) {
        v = access_operand(a, &i->src[0], (enum ptx_type)i->type);
        if (i->space == PTX_GLOBAL) v = surely_pointer(a, v);
        if (i->space == PTX_SHARED) v = access_value(a, (struct base){BASE_SHARED, 0, 0}, 0);
    } else {
        v = access_arithmetic(a, i);
    }
    access_set_reg(a, i->dst[0].reg, v);
}

static void evaluate(struct analysis *a, const struct ptx_instr *i, bool exact) {
    const struct ptx_op_info *op = &ptx_ops[i->op];
    if (op->properties & (PTX_P_READS | PTX_P_WRITES))
        access_memory(a, i, exact);
    else if (i->op == PTX_OP_BULK)
        access_fail(a, i->line, true, "a bulk copy");
    else if (i->op == PTX_OP_CALL)
        access_call(a, i);
    else if (i->op == PTX_OP_SETP)
        set_predicate(a, i);
    else if (op->properties & (PTX_P_WARP | PTX_P_BARRIER) || i->dsts != 1 || i->op == PTX_OP_ISSPACEP)
        forget_results(a, i);
    else
        assign(a, i);
}

/* What a guarded instruction leaves: the new value or the old one. */
static void join_old(struct analysis *a, const struct ptx_instr *i, unsigned n, int32_t old) {
    const struct ptx_operand *d = &i->dst[n];
    if (d->kind != PTX_REG || !old) return;
    int32_t v = access_reg(a, d->reg), symbol = 0;
    if (v == old) return;
    symbol = access_symbol(a, 'G', a->frame, index_of(a, i), (int32_t)n, -PTX_INF, PTX_INF);
    access_set_reg(a, d->reg, access_join(a, v, old, symbol));
}

void access_eval(struct analysis *a, const struct ptx_instr *i) {
    a->steps++;
    if (i->guard < 0) {
        evaluate(a, i, a->now_exact);
        return;
    }
    if (ptx_ops[i->op].properties & PTX_P_CONTROL && i->op != PTX_OP_CALL) return;
    int32_t p = access_reg(a, i->guard), cond = p ? access_get(a, p).cond : access_cond(a, COND_ANY, 0, 0);
    if (i->guard_negated) cond = access_not(a, cond);
    if (access_decide(a, cond, a->now_facts) < 0) return;
    struct place outer = {a->now_facts, a->now_when, a->now_exact}, at = outer;
    int32_t old[2] = {0, 0};
    for (unsigned n = 0; n < i->dsts && n < 2 && i->op != PTX_OP_CALL; n++)
        if (i->dst[n].kind == PTX_REG) old[n] = access_reg(a, i->dst[n].reg);
    access_assume_at(a, cond, &at);
    a->now_facts = at.facts;
    a->now_when = at.when;
    a->now_exact = at.exact;
    evaluate(a, i, at.exact);
    a->now_facts = outer.facts;
    a->now_when = outer.when;
    a->now_exact = outer.exact && !here(a)->block[a->at_block].ends;
    for (unsigned n = 0; n < i->dsts && n < 2 && i->op != PTX_OP_CALL; n++) join_old(a, i, n, old[n]);
}
