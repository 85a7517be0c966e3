/* Evaluation of one instruction over a box: sums and products, and, where all operands are constants, whatever the
 * interpreter makes of them. */
#include "ptx/ptx_cost_model.h"

enum { MAX_SOURCES = 16 };

/* ---- constants ---- */
static unsigned leaves(const struct ptx_operand *o, unsigned count, const struct ptx_operand **leaf) {
    unsigned n = 0;
    for (unsigned k = 0; k < count; k++)
        for (unsigned e = 0; e < (o[k].kind == PTX_VECTOR ? o[k].count : 1u) && n < MAX_SOURCES; e++)
            leaf[n++] = o[k].kind == PTX_VECTOR ? &o[k].elements[e] : &o[k];
    return n;
}

static struct ptx_operand literal(const struct ptx_operand *o, const struct val *v) {
    return (struct ptx_operand){
        .kind = PTX_IMM, .reg = -1, .var = -1, .func = -1, .negated = o->negated, .bits = (uint64_t)v->c};
}

void cost_execute(struct cost_run *x, struct state *s, const struct ptx_instr *i, const struct val *v) {
    struct ptx_operand src[8], element[MAX_SOURCES];
    struct ptx_instr copy = *i;
    unsigned n = 0;
    ptx_exec *exec = ptx_exec_of(i->op);
    const struct ptx_operand *leaf[MAX_SOURCES];
    unsigned count = leaves(i->dst, i->dsts, leaf);
    bool done = false;
    if (exec && i->srcs <= 8 && i->type != PTX_B128 && i->type2 != PTX_B128) {
        for (unsigned k = 0; k < i->srcs; k++) {
            if (i->src[k].kind != PTX_VECTOR) {
                src[k] = literal(&i->src[k], &v[n++]);
                continue;
            }
            src[k] = i->src[k];
            src[k].elements = &element[n];
            for (unsigned e = 0; e < i->src[k].count; e++, n++) element[n] = literal(&i->src[k].elements[e], &v[n]);
        }
        copy.src = src;
        x->fold_frame = (struct ptx_frame){.f = cost_top(s)->info->f};
        done = exec(&x->fold_thread, &copy) == PTX_STEP_NEXT;
    }
    for (unsigned k = 0; k < count; k++) {
        if (leaf[k]->kind != PTX_REG) continue;
        struct val r = done ? cost_number((int64_t)x->fold_thread.regs[leaf[k]->reg]) : cost_data(BASE_ANY);
        cost_put(x, s, leaf[k], cost_top(s)->info->f->regs[leaf[k]->reg].type, r);
    }
}

/* ---- arithmetic on integers ---- */
static bool is_signed(const struct ptx_instr *i) {
    return ptx_type_kind(i->type) == PTX_KIND_S;
}

static struct val data_of(const struct val *a, const struct val *b) {
    return cost_data(a->base == BASE_NUMBER   ? (enum val_base)b->base
                     : b->base == BASE_NUMBER ? (enum val_base)a->base
                                              : BASE_ANY);
}

static struct val sum_of(struct cost_run *x, const struct val *a, const struct val *b, bool minus) {
    if (minus && b->base != BASE_NUMBER) {
        if (a->base != b->base || a->var != b->var) return cost_data(BASE_ANY);
        struct val p = *a, q = *b;
        p.base = q.base = BASE_NUMBER;
        p.var = q.var = 0;
        return ptx_cost_add(x, &p, &q, -1);
    }
    if (a->base != BASE_NUMBER && b->base != BASE_NUMBER) return cost_data(BASE_ANY);
    return ptx_cost_add(x, a, b, minus ? -1 : 1);
}

static double points(const struct cost_run *x, uint16_t dims) {
    double n = 1;
    for (int k = 0; k < COST_DIMS; k++)
        if (dims >> k & 1) n *= (double)x->n[k];
    return n;
}

/* A product of two that vary becomes affine when one of them is fixed. */
static struct val fix_one(struct cost_run *x, const struct val *a, const struct val *b) {
    bool first = !b->dims || (a->dims && points(x, a->dims) <= points(x, b->dims));
    if ((a->dims | b->dims) & x->counters) first = a->dims & x->counters;
    return cost_late(x, cost_halve(x, first ? a->dims : b->dims), BASE_NUMBER);
}

static struct val product(struct cost_run *x, const struct ptx_instr *i, const struct val *a, const struct val *b) {
    unsigned bits = ptx_type_bits(i->type);
    struct sum p, q, r;
    struct wish w;
    if (i->op == PTX_OP_MUL24 || i->op == PTX_OP_MAD24 || (a->dims && b->dims)) return fix_one(x, a, b);
    if (!(i->modifiers & (PTX_M_HI | PTX_M_WIDE))) return a->dims ? cost_scale(x, a, b->c) : cost_scale(x, b, a->c);
    if (!cost_as(x, a, is_signed(i), bits, &p, &w) || !cost_as(x, b, is_signed(i), bits, &q, &w))
        return cost_late(x, w, BASE_NUMBER);
    const struct sum *vary = a->dims ? &p : &q;
    struct sum zero = {0};
    r = cost_sum_add(&zero, vary, a->dims ? q.c : p.c);
    if (i->modifiers & PTX_M_WIDE) return cost_from_sum(&r);
    if (!cost_floor(x, &r, (wide)1 << bits, &q, &w)) return cost_late(x, w, BASE_NUMBER);
    return cost_from_sum(&q);
}

/* Rounded towards zero, by a positive constant. */
static struct val quotient(struct cost_run *x, const struct ptx_instr *i, const struct val *a, const struct val *b) {
    unsigned bits = ptx_type_bits(i->type);
    struct sum e, by, q, minus, zero = {0};
    struct wish w;
    if (b->dims) return cost_late(x, cost_halve(x, b->dims), BASE_NUMBER);
    if (!cost_as(x, b, is_signed(i), bits, &by, &w)) return cost_late(x, w, BASE_NUMBER);
    if (by.c <= 0) return cost_late(x, cost_halve(x, a->dims), BASE_NUMBER);
    if (!cost_as(x, a, is_signed(i), bits, &e, &w)) return cost_late(x, w, BASE_NUMBER);
    minus = cost_sum_add(&zero, &e, -1);
    int negative = cost_at_most_zero(x, &e, &w), positive = negative == 1 ? 0 : cost_at_most_zero(x, &minus, &w);
    if (negative != 1 && positive != 1) return cost_late(x, w, BASE_NUMBER);
    if (!cost_floor(x, negative == 1 ? &minus : &e, by.c, &q, &w)) return cost_late(x, w, BASE_NUMBER);
    if (negative == 1) q = cost_sum_add(&zero, &q, -1);
    if (i->op == PTX_OP_REM) q = cost_sum_add(&e, &q, -by.c);
    return cost_from_sum(&q);
}

static struct val extreme(struct cost_run *x, const struct ptx_instr *i, const struct val *a, const struct val *b) {
    struct sum p, q, d;
    struct wish w;
    unsigned bits = ptx_type_bits(i->type);
    if (!cost_as(x, a, is_signed(i), bits, &p, &w) || !cost_as(x, b, is_signed(i), bits, &q, &w))
        return cost_late(x, w, BASE_NUMBER);
    d = cost_sum_add(&p, &q, -1);
    int less = cost_at_most_zero(x, &d, &w);
    if (less < 0) return cost_late(x, w, BASE_NUMBER);
    return less == (i->op == PTX_OP_MIN) ? *a : *b;
}

static struct val absolute(struct cost_run *x, const struct ptx_instr *i, const struct val *a) {
    struct sum e;
    struct wish w;
    if (!cost_as(x, a, true, ptx_type_bits(i->type), &e, &w)) return cost_late(x, w, BASE_NUMBER);
    int negative = cost_at_most_zero(x, &e, &w);
    return negative < 0 ? cost_late(x, w, BASE_NUMBER) : cost_scale(x, a, negative ? -1 : 1);
}

static struct val convert(struct cost_run *x, const struct ptx_instr *i, const struct val *a) {
    enum ptx_type_kind to = ptx_type_kind(i->type), from = ptx_type_kind(i->type2);
    struct sum e;
    struct wish w;
    bool ints = (to == PTX_KIND_U || to == PTX_KIND_S) && (from == PTX_KIND_U || from == PTX_KIND_S);
    if (!ints || i->modifiers & PTX_M_SAT) return cost_late(x, cost_halve(x, a->dims), BASE_NUMBER);
    if (!cost_as(x, a, from == PTX_KIND_S, ptx_type_bits(i->type2), &e, &w)) return cost_late(x, w, BASE_NUMBER);
    return cost_from_sum(&e);
}

/* Of numbers that are not all constants. */
static struct val arithmetic(struct cost_run *x, const struct ptx_instr *i, const struct val *v, uint16_t dims) {
    enum ptx_type_kind kind = ptx_type_kind(i->type);
    bool plain = !(i->modifiers & (PTX_M_SAT | PTX_M_CC)) && i->type != PTX_U16X2 && i->type != PTX_S16X2;
    if (i->op == PTX_OP_CVT) return convert(x, i, &v[0]);
    if (!plain || kind == PTX_KIND_F || kind == PTX_KIND_X2) return cost_late(x, cost_halve(x, dims), BASE_NUMBER);
    struct val p, none = {0};
    switch (i->op) {
    case PTX_OP_ADD:
    case PTX_OP_SUB:
        return sum_of(x, &v[0], &v[1], i->op == PTX_OP_SUB);
    case PTX_OP_MUL:
        return product(x, i, &v[0], &v[1]);
    case PTX_OP_MAD:
        p = product(x, i, &v[0], &v[1]);
        return p.kind == VAL_NUM ? sum_of(x, &p, &v[2], false) : cost_late(x, p.wish, v[2].base);
    case PTX_OP_NEG:
        return cost_scale(x, &v[0], -1);
    case PTX_OP_NOT:
        if (kind == PTX_KIND_P) break;
        none.c = -1;
        return ptx_cost_add(x, &none, &v[0], -1);
    case PTX_OP_ABS:
        return absolute(x, i, &v[0]);
    case PTX_OP_MIN:
    case PTX_OP_MAX:
        if (i->srcs != 2) break;
        return extreme(x, i, &v[0], &v[1]);
    case PTX_OP_DIV:
    case PTX_OP_REM:
        return quotient(x, i, &v[0], &v[1]);
    case PTX_OP_AND:
    case PTX_OP_OR:
    case PTX_OP_XOR:
        return cost_logic(x, i, &v[0], &v[1]);
    case PTX_OP_SHL:
    case PTX_OP_SHR:
        return cost_shift(x, i, &v[0], &v[1]);
    case PTX_OP_BFE:
        return cost_field(x, i, v);
    case PTX_OP_BFI:
        return cost_insert(x, i, v);
    }
    return cost_late(x, cost_halve(x, dims), BASE_NUMBER);
}

/* ---- one instruction ---- */
static bool keeps_pointers(const struct ptx_instr *i) {
    switch (i->op) {
    case PTX_OP_ADD:
    case PTX_OP_SUB:
    case PTX_OP_MAD:
    case PTX_OP_MOV:
    case PTX_OP_MIN:
    case PTX_OP_MAX:
    case PTX_OP_AND:
    case PTX_OP_OR:
    case PTX_OP_XOR:
    case PTX_OP_NOT:
        return true;
    default:
        return false;
    }
}

static void put_all(struct cost_run *x, struct state *s, const struct ptx_instr *i, struct val v) {
    bool one = i->dsts == 1 && i->dst[0].kind != PTX_VECTOR;
    for (unsigned k = 0; k < i->dsts; k++)
        for (unsigned e = 0; e < (i->dst[k].kind == PTX_VECTOR ? i->dst[k].count : 1u); e++) {
            const struct ptx_operand *o = i->dst[k].kind == PTX_VECTOR ? &i->dst[k].elements[e] : &i->dst[k];
            if (o->kind != PTX_REG) continue;
            if (v.kind == VAL_LATE) v = cost_late(x, v.wish, v.base);
            cost_put(x, s, o, one && i->type ? (enum ptx_type)i->type : cost_top(s)->info->f->regs[o->reg].type, v);
        }
}

static void select(struct cost_run *x, struct state *s, const struct ptx_instr *i) {
    struct val p = cost_predicate(x, s, &i->src[2]), a = cost_operand(x, s, &i->src[0]),
               b = cost_operand(x, s, &i->src[1]), r;
    if (p.kind == VAL_NUM)
        r = p.c ? a : b;
    else if (cost_same(&a, &b) || p.kind == VAL_POISON)
        r = p.kind == VAL_POISON ? p : a;
    else {
        enum val_base base = a.base == b.base && a.var == b.var ? (enum val_base)a.base : BASE_ANY;
        if ((a.base == BASE_LOCAL || b.base == BASE_LOCAL) && base != BASE_LOCAL) s->escaped = true;
        r = p.kind == VAL_LATE ? cost_late(x, p.wish, base) : cost_data(base);
        if (a.kind == VAL_POISON || b.kind == VAL_POISON) r = (struct val){.kind = VAL_POISON};
    }
    cost_put(x, s, &i->dst[0], i->type, r);
}

/* and, or of predicates: one of them may decide. */
static bool logic_of_predicates(struct cost_run *x, struct state *s, const struct ptx_instr *i) {
    if (i->type != PTX_PRED || (i->op != PTX_OP_AND && i->op != PTX_OP_OR)) return false;
    struct val v[2] = {cost_predicate(x, s, &i->src[0]), cost_predicate(x, s, &i->src[1])};
    int64_t deciding = i->op == PTX_OP_OR;
    for (int k = 0; k < 2; k++) {
        if (v[k].kind != VAL_NUM) continue;
        struct val r = v[k].c == deciding ? v[k] : v[1 - k];
        return cost_put(x, s, &i->dst[0], PTX_PRED, r), true;
    }
    bool poison = v[0].kind == VAL_POISON || v[1].kind == VAL_POISON;
    struct val r = poison ? (struct val){.kind = VAL_POISON} : v[0].kind == VAL_LATE ? v[0] : v[1];
    return cost_put(x, s, &i->dst[0], PTX_PRED, r), true;
}

static void is_space(struct cost_run *x, struct state *s, const struct ptx_instr *i) {
    static const uint8_t space[] = {[BASE_NUMBER] = PTX_GLOBAL,
                                    [BASE_LOCAL] = PTX_LOCAL,
                                    [BASE_SHARED] = PTX_SHARED,
                                    [BASE_VAR] = PTX_GLOBAL,
                                    [BASE_PARAM] = PTX_PARAM};
    struct val a = cost_operand(x, s, &i->src[0]);
    if (a.base == BASE_ANY || i->space == PTX_CONST)
        a = a.kind == VAL_LATE || a.kind == VAL_POISON ? a : cost_data(BASE_NUMBER);
    else
        a = cost_number(space[a.base] == i->space);
    cost_put(x, s, &i->dst[0], PTX_PRED, a);
}

/* Is nothing left of a late value that is known to be small? (The upper half of a number of 64 bits, before a
 * division.) */
static bool clears(const struct ptx_instr *i, const struct val *v) {
    const struct val *late = v[0].kind == VAL_LATE ? &v[0] : &v[1], *by = late == v ? &v[1] : &v[0];
    if ((i->op != PTX_OP_AND && i->op != PTX_OP_SHR) || late->c <= 0 || late->c > 63 || !cost_is_constant(by))
        return false;
    if (i->op == PTX_OP_SHR) return late == v && by->c >= late->c && by->c < 64 && ptx_type_kind(i->type) != PTX_KIND_S;
    return !((uint64_t)by->c & ((UINT64_C(1) << late->c) - 1));
}

/* What becomes of sources that are not all numbers; false: they are. */
static bool not_numbers(struct cost_run *x, struct state *s, const struct ptx_instr *i, const struct val *v,
                        unsigned n) {
    const struct val *late = NULL;
    bool data = false, poison = false, local = false;
    struct val base = {0};
    for (unsigned k = 0; k < n; k++) {
        if (v[k].kind == VAL_DATA) data = true;
        if (v[k].kind == VAL_POISON) poison = true;
        if (v[k].kind == VAL_LATE && !late) late = &v[k];
        local |= v[k].base == BASE_LOCAL;
        base = data_of(&base, &v[k]);
    }
    if (!keeps_pointers(i)) base.base = BASE_NUMBER;
    if (ptx_type_bits(i->type) < 32 && i->op != PTX_OP_MOV) base.base = BASE_NUMBER;
    if (!data && !late && !poison) return false;
    if (late && !data && !poison && clears(i, v)) {
        put_all(x, s, i, cost_number(0));
        return true;
    }
    if (local && base.base != BASE_LOCAL) s->escaped = true;
    if (data)
        put_all(x, s, i, cost_data((enum val_base)base.base));
    else if (poison)
        put_all(x, s, i, (struct val){.kind = VAL_POISON});
    else
        put_all(x, s, i, cost_late(x, late->wish, (enum val_base)base.base));
    return true;
}

/* ---- carry chains ---- */
bool cost_takes_carry(const struct ptx_instr *i) {
    return i->op == PTX_OP_ADDC || i->op == PTX_OP_SUBC || i->op == PTX_OP_MADC;
}

/* Of constants by the interpreter; what varies must be split until it is one. */
static void with_carry(struct cost_run *x, struct state *s, const struct ptx_instr *i) {
    struct val v[4], r = {0};
    unsigned n = i->srcs < 3 ? i->srcs : 3;
    bool constant = true;
    for (unsigned k = 0; k < n; k++) v[k] = cost_operand(x, s, &i->src[k]);
    if (cost_takes_carry(i)) v[n++] = s->carry;
    for (unsigned k = 0; k < n; k++) {
        constant &= cost_is_constant(&v[k]);
        s->escaped |= v[k].base == BASE_LOCAL;
        if (v[k].kind == VAL_DATA || (v[k].kind == VAL_NUM && v[k].base != BASE_NUMBER)) r = cost_data(BASE_ANY);
        if (r.kind == VAL_DATA) continue;
        if (v[k].kind == VAL_POISON) r.kind = VAL_POISON;
        if (r.kind == VAL_NUM && v[k].kind == VAL_LATE) r = cost_late(x, v[k].wish, BASE_NUMBER);
        if (r.kind == VAL_NUM && v[k].dims) r = cost_late(x, cost_halve(x, v[k].dims), BASE_NUMBER);
    }
    if (!constant) {
        if (r.kind == VAL_NUM) r = cost_data(BASE_ANY);
        put_all(x, s, i, r);
    } else {
        x->fold_thread.carry = s->carry.c & 1;
        cost_execute(x, s, i, v);
        r = cost_number(x->fold_thread.carry);
    }
    if (i->modifiers & PTX_M_CC) s->carry = r;
}

void cost_eval(struct cost_run *x, struct state *s, const struct ptx_instr *i) {
    /* A wait is counted as one that finds the phase complete: how often it is asked again nobody can say. */
    bool waits = i->op == PTX_OP_MBARRIER && (i->sub == PTX_SUB_MB_WAIT || i->sub == PTX_SUB_MB_PARITY);
    if (waits) return cost_put(x, s, &i->dst[0], PTX_PRED, cost_number(1));
    if (ptx_ops[i->op].properties & (PTX_P_WARP | PTX_P_BARRIER)) return put_all(x, s, i, cost_data(BASE_NUMBER));
    if (i->op == PTX_OP_SETP) return cost_setp(x, s, i);
    if (i->op == PTX_OP_SELP) return select(x, s, i);
    if (i->op == PTX_OP_ISSPACEP) return is_space(x, s, i);
    if (i->op == PTX_OP_CVTA) return cost_put(x, s, &i->dst[0], PTX_B64, cost_operand(x, s, &i->src[0]));
    if (logic_of_predicates(x, s, i)) return;
    if (i->op == PTX_OP_MOV && i->src[0].kind != PTX_VECTOR && i->dst[0].kind != PTX_VECTOR) {
        struct val v = i->type == PTX_PRED ? cost_predicate(x, s, &i->src[0]) : cost_operand(x, s, &i->src[0]);
        return cost_put(x, s, &i->dst[0], i->type, v);
    }
    bool carries = i->modifiers & PTX_M_CC || cost_takes_carry(i);
    if (carries) return with_carry(x, s, i);
    const struct ptx_operand *leaf[MAX_SOURCES];
    struct val v[MAX_SOURCES];
    unsigned n = leaves(i->src, i->srcs, leaf);
    uint16_t dims = 0;
    bool pointers = false;
    for (unsigned k = 0; k < n; k++) {
        v[k] = cost_operand(x, s, leaf[k]);
        if (v[k].kind != VAL_NUM) continue;
        dims |= v[k].dims;
        pointers |= v[k].base != BASE_NUMBER;
    }
    if (not_numbers(x, s, i, v, n)) return;
    if (!dims && !pointers) return cost_execute(x, s, i, v);
    bool alone = n == i->srcs && i->dsts == 1 && i->dst[0].kind == PTX_REG;
    struct val r;
    if (pointers &&
        (!alone || (i->op != PTX_OP_ADD && i->op != PTX_OP_SUB && i->op != PTX_OP_MAD && i->op != PTX_OP_CVT))) {
        s->escaped = true;
        r = cost_data(keeps_pointers(i) ? BASE_ANY : BASE_NUMBER);
    } else if (pointers && i->op == PTX_OP_MAD && (v[0].base || v[1].base)) {
        s->escaped = true;
        r = cost_data(BASE_ANY);
    } else if (pointers && i->op == PTX_OP_CVT) { /* a 32-bit shared address and the like */
        r = v[0];
    } else {
        r = alone ? arithmetic(x, i, v, dims) : cost_late(x, cost_halve(x, dims), BASE_NUMBER);
    }
    bool wide_result = i->modifiers & PTX_M_WIDE;
    if (alone) /* of .wide the register says how wide */
        return cost_put(x, s, &i->dst[0], wide_result ? cost_top(s)->info->f->regs[i->dst[0].reg].type : i->type, r);
    put_all(x, s, i, r);
}
