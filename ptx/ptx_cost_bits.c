/* Logic, shifts and bit fields over a box, and comparisons. Bits of an affine value are quotients and remainders by
 * powers of two. */
#include "ptx/ptx_cost_model.h"

/* ---- logic with a constant ---- */
struct val cost_modulo(struct cost_run *x, const struct val *v, wide d) {
    struct sum e = cost_sum(v), q;
    struct wish w;
    if (!cost_floor(x, &e, d, &q, &w)) return cost_late(x, w, BASE_NUMBER);
    e = cost_sum_add(&e, &q, -d);
    return cost_from_sum(&e);
}

static struct val quotient2(struct cost_run *x, const struct val *v, wide d) {
    struct sum e = cost_sum(v), q;
    struct wish w;
    if (!cost_floor(x, &e, d, &q, &w)) return cost_late(x, w, BASE_NUMBER);
    return cost_from_sum(&q);
}

/* v & mask, mask having no bits from 2^63 on. */
static struct val masked(struct cost_run *x, const struct val *v, uint64_t mask) {
    if (!mask) return cost_number(0);
    unsigned low = (unsigned)__builtin_ctzll(mask), high = 64 - (unsigned)__builtin_clzll(mask);
    struct val r = cost_modulo(x, v, (wide)1 << high);
    if (r.kind != VAL_NUM) return r;
    if (!r.dims) return cost_number((int64_t)((uint64_t)r.c & mask));
    if (mask >> low != (UINT64_C(1) << (high - low)) - 1) return cost_late(x, cost_halve(x, r.dims), BASE_NUMBER);
    if (!low) return r;
    r = quotient2(x, &r, (wide)1 << low);
    return r.kind == VAL_NUM ? cost_scale(x, &r, (int64_t)1 << low) : r;
}

static struct val and_constant(struct cost_run *x, const struct val *v, uint64_t mask, unsigned bits) {
    mask = ptx_bits(mask, bits);
    if (!(mask >> (bits - 1) & 1)) return masked(x, v, mask);
    struct val r = masked(x, v, ptx_bits(~mask, bits)); /* v − (v & ~mask) */
    return r.kind == VAL_NUM ? ptx_cost_add(x, v, &r, -1) : r;
}

/* The greatest power of two that divides all of v's numbers, as an exponent. */
static unsigned multiple_of(const struct val *v) {
    uint64_t all = (uint64_t)v->c;
    for (int k = 0; k < COST_DIMS; k++)
        if (v->dims >> k & 1) all |= (uint64_t)v->f[k];
    return all ? (unsigned)__builtin_ctzll(all) : 64;
}

/* No bit is set in both: one is below what the other is a multiple of. */
static bool disjoint(struct cost_run *x, const struct val *a, const struct val *b) {
    struct sum e = cost_sum(b);
    wide lo, hi;
    cost_range(x, &e, &lo, &hi);
    return lo >= 0 && hi < (wide)1 << multiple_of(a);
}

/* Bits of two numbers that are not negative, whatever is done with them bit by bit; 0: they may be. */
static int64_t width_of_both(struct cost_run *x, const struct val *a, const struct val *b) {
    struct sum p = cost_sum(a), q = cost_sum(b);
    wide lo, hi, least, most;
    cost_range(x, &p, &lo, &hi);
    cost_range(x, &q, &least, &most);
    if (lo < 0 || least < 0 || hi > INT64_MAX || most > INT64_MAX) return 0;
    return 64 - __builtin_clzll((unsigned long long)(hi | most) | 1);
}

struct val cost_logic(struct cost_run *x, const struct ptx_instr *i, const struct val *a, const struct val *b) {
    unsigned bits = ptx_type_bits(i->type);
    if (!a->dims) { /* the constant second */
        const struct val *t = a;
        a = b;
        b = t;
    }
    if (i->type == PTX_PRED || bits > 64) return cost_late(x, cost_halve(x, a->dims), BASE_NUMBER);
    if (b->dims) {
        if (i->op != PTX_OP_AND && (disjoint(x, a, b) || disjoint(x, b, a))) return ptx_cost_add(x, a, b, 1);
        struct val late = cost_late(x, cost_halve(x, (uint16_t)(a->dims | b->dims)), BASE_NUMBER);
        late.c = width_of_both(x, a, b);
        return late;
    }
    struct val r = and_constant(x, a, (uint64_t)b->c, bits);
    if (i->op == PTX_OP_AND) return r;
    if (r.kind != VAL_NUM) {
        r.c = width_of_both(x, a, b);
        return r;
    }
    struct val sum = ptx_cost_add(x, a, b, 1); /* a | b = a + b − (a & b), a ^ b = a + b − 2(a & b) */
    return ptx_cost_add(x, &sum, &r, i->op == PTX_OP_OR ? -1 : -2);
}

/* ---- shifts and fields ---- */
struct val cost_shift(struct cost_run *x, const struct ptx_instr *i, const struct val *a, const struct val *by) {
    unsigned bits = ptx_type_bits(i->type);
    bool is_signed = ptx_type_kind(i->type) == PTX_KIND_S;
    if (by->dims) return cost_late(x, cost_halve(x, by->dims), BASE_NUMBER);
    uint64_t n = ptx_bits((uint64_t)by->c, 32);
    if (i->op == PTX_OP_SHL) return n >= bits ? cost_number(0) : cost_scale(x, a, (int64_t)(UINT64_C(1) << n));
    if (n >= bits && !is_signed) return cost_number(0);
    struct sum e, q;
    struct wish w;
    if (!cost_as(x, a, is_signed, bits, &e, &w)) return cost_late(x, w, BASE_NUMBER);
    if (!cost_floor(x, &e, (wide)1 << (n >= bits ? bits : n), &q, &w)) return cost_late(x, w, BASE_NUMBER);
    return cost_from_sum(&q);
}

/* bfe with a constant place; signed ones by their unsigned field. */
struct val cost_field(struct cost_run *x, const struct ptx_instr *i, const struct val *v) {
    unsigned bits = ptx_type_bits(i->type);
    uint64_t at = (uint64_t)v[1].c & 255, length = (uint64_t)v[2].c & 255;
    bool simple = !v[1].dims && !v[2].dims && length && at + length <= bits;
    if (!simple) return cost_late(x, cost_halve(x, (uint16_t)(v[0].dims | v[1].dims | v[2].dims)), BASE_NUMBER);
    struct val r = v[0];
    if (at + length < 64) r = cost_modulo(x, &r, (wide)1 << (at + length));
    if (r.kind != VAL_NUM) return r;
    struct sum e;
    struct wish w;
    if (!cost_as(x, &r, false, bits, &e, &w)) return cost_late(x, w, BASE_NUMBER);
    r = cost_from_sum(&e);
    if (at + length == 64 && at) return cost_late(x, cost_halve(x, v[0].dims), BASE_NUMBER);
    if (at) r = quotient2(x, &r, (wide)1 << at);
    if (r.kind != VAL_NUM || ptx_type_kind(i->type) != PTX_KIND_S) return r;
    if (!cost_as(x, &r, true, (unsigned)length, &e, &w)) return cost_late(x, w, BASE_NUMBER);
    return cost_from_sum(&e);
}

/* bfi of all bits from a constant place on: above the lower ones of the second source. */
struct val cost_insert(struct cost_run *x, const struct ptx_instr *i, const struct val *v) {
    uint64_t at = (uint64_t)v[2].c & 255, length = (uint64_t)v[3].c & 255;
    bool simple = !v[2].dims && !v[3].dims && at && at < 32 && at + length >= 32 && ptx_type_bits(i->type) == 32;
    if (!simple)
        return cost_late(x, cost_halve(x, (uint16_t)(v[0].dims | v[1].dims | v[2].dims | v[3].dims)), BASE_NUMBER);
    struct val low = cost_modulo(x, &v[1], (wide)1 << at), high = cost_scale(x, &v[0], INT64_C(1) << at);
    return low.kind == VAL_NUM ? ptx_cost_add(x, &high, &low, 1) : low;
}

/* ---- comparisons ---- */
static int by_sign(struct cost_run *x, unsigned compare, const struct sum *a, const struct sum *b, struct wish *w) {
    struct sum d = cost_sum_add(a, b, -1), minus = cost_sum_add(b, a, -1);
    int r;
    switch (compare) {
    case PTX_EQ:
        return cost_is_zero(x, &d, w);
    case PTX_NE:
        r = cost_is_zero(x, &d, w);
        return r < 0 ? r : !r;
    case PTX_LT:
    case PTX_LO:
        d.c++;
        return cost_at_most_zero(x, &d, w);
    case PTX_LE:
    case PTX_LS:
        return cost_at_most_zero(x, &d, w);
    case PTX_GT:
    case PTX_HI_CMP:
        minus.c++;
        return cost_at_most_zero(x, &minus, w);
    case PTX_GE:
    case PTX_HS:
        return cost_at_most_zero(x, &minus, w);
    default:
        return -2;
    }
}

/* Pointers of one base are compared by their offsets; a generic one is not null. */
static int of_pointers(const struct ptx_instr *i, const struct val *a, const struct val *b, bool *offsets) {
    *offsets = a->base == b->base && a->var == b->var;
    bool null = (cost_is_constant(a) && !a->c) || (cost_is_constant(b) && !b->c);
    bool generic = a->base == BASE_VAR || b->base == BASE_VAR;
    if (*offsets || !null || !generic) return -2;
    return i->compare == PTX_EQ ? 0 : i->compare == PTX_NE ? 1 : -2;
}

int cost_compare(struct cost_run *x, const struct ptx_instr *i, const struct val *a, const struct val *b,
                 struct wish *w) {
    struct sum p, q;
    unsigned bits = ptx_type_bits(i->type);
    bool is_signed = ptx_type_kind(i->type) == PTX_KIND_S;
    if (a->base != BASE_NUMBER || b->base != BASE_NUMBER) {
        bool offsets;
        int r = of_pointers(i, a, b, &offsets);
        if (!offsets) return r;
        p = cost_sum(a);
        q = cost_sum(b);
        return by_sign(x, i->compare, &p, &q, w);
    }
    if (!cost_as(x, a, is_signed, bits, &p, w) || !cost_as(x, b, is_signed, bits, &q, w)) return -1;
    return by_sign(x, i->compare, &p, &q, w);
}

/* The result of the comparison itself, or what it is for want of one. */
static struct val compared(struct cost_run *x, struct state *s, const struct ptx_instr *i) {
    struct val v[2] = {cost_operand(x, s, &i->src[0]), cost_operand(x, s, &i->src[1])};
    struct wish w;
    for (int k = 0; k < 2; k++)
        if (v[k].kind == VAL_DATA) return cost_data(BASE_NUMBER);
    for (int k = 0; k < 2; k++)
        if (v[k].kind != VAL_NUM) {
            struct val r = v[k];
            r.base = BASE_NUMBER;
            return r;
        }
    enum ptx_type_kind kind = ptx_type_kind(i->type);
    if (kind == PTX_KIND_F || kind == PTX_KIND_X2) /* two constants are dealt with by the interpreter */
        return cost_late(x, cost_halve(x, (uint16_t)(v[0].dims | v[1].dims)), BASE_NUMBER);
    int r = cost_compare(x, i, &v[0], &v[1], &w);
    return r == -2 ? cost_data(BASE_NUMBER) : r == -1 ? cost_late(x, w, BASE_NUMBER) : cost_number(r);
}

static struct val combined(struct cost_run *x, const struct ptx_instr *i, const struct val *p, const struct val *with) {
    if (!i->combine) return *p;
    if (p->kind == VAL_NUM && with->kind == VAL_NUM)
        return cost_number(i->combine == PTX_SUB_AND  ? p->c & with->c
                           : i->combine == PTX_SUB_OR ? p->c | with->c
                                                      : p->c ^ with->c);
    int64_t decides = i->combine == PTX_SUB_OR;
    const struct val *known = p->kind == VAL_NUM ? p : with->kind == VAL_NUM ? with : NULL;
    if (known && i->combine != PTX_SUB_XOR && known->c == decides) return *known;
    if (known && i->combine != PTX_SUB_XOR) return known == p ? *with : *p;
    const struct val *open = p->kind == VAL_NUM ? with : p;
    if (p->kind == VAL_POISON || with->kind == VAL_POISON) return (struct val){.kind = VAL_POISON};
    if (with->kind == VAL_LATE && open->kind != VAL_LATE) open = with;
    if (open->kind == VAL_LATE) return cost_late(x, open->wish, BASE_NUMBER);
    return cost_data(BASE_NUMBER);
}

static struct val negated(struct cost_run *x, const struct val *p) {
    if (p->kind == VAL_NUM) return cost_number(!p->c);
    return p->kind == VAL_LATE ? cost_late(x, p->wish, BASE_NUMBER) : *p;
}

void cost_setp(struct cost_run *x, struct state *s, const struct ptx_instr *i) {
    struct val v[3] = {{0}}, p, q;
    bool constant = i->srcs <= 3;
    for (unsigned k = 0; constant && k < i->srcs; k++) {
        v[k] = cost_operand(x, s, &i->src[k]);
        constant = cost_is_constant(&v[k]);
    }
    if (constant) return cost_execute(x, s, i, v);
    struct val with = i->combine ? cost_predicate(x, s, &i->src[2]) : cost_number(0);
    p = ptx_type_kind(i->type) == PTX_KIND_X2 ? cost_data(BASE_NUMBER) : compared(x, s, i);
    q = negated(x, &p);
    p = combined(x, i, &p, &with);
    q = combined(x, i, &q, &with);
    if (i->dsts > 0) cost_put(x, s, &i->dst[0], PTX_PRED, p);
    if (i->dsts > 1) cost_put(x, s, &i->dst[1], PTX_PRED, q);
}
