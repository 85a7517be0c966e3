/* Matrices between memory and the registers of a warp: wmma.load and wmma.store; ldmatrix, stmatrix, movmatrix. */
#include "ptx/ptx_parse_special.h"

/* ---- helpers of addresses ---- */
static struct ptx_operand lane_number(struct ptx_special *s) {
    struct ptx_operand lane = {.kind = PTX_SREG_OP, .sreg = PTX_LANEID, .reg = -1, .var = -1, .func = -1};
    return ptx_compute(s, PTX_OP_MOV, PTX_U32, 0, &lane, NULL);
}

static struct ptx_operand with_constant(struct ptx_special *s, enum ptx_op op, const struct ptx_operand *a,
                                        uint64_t number) {
    struct ptx_operand b = ptx_immediate(number);
    return ptx_compute(s, op, op == PTX_OP_SHL || op == PTX_OP_AND || op == PTX_OP_OR ? PTX_B32 : PTX_U32,
                       op == PTX_OP_MUL ? PTX_M_LO : 0, a, &b);
}

/* A register with the address, but for *offset. */
static struct ptx_operand address(struct ptx_special *s, const struct ptx_operand *o, enum ptx_space space,
                                  int64_t *offset, bool *wide) {
    struct ptx_parser *p = s->p;
    if (o->kind != PTX_ADDRESS) ptx_refuse(p, &s->at, "%s: an address [...] is wanted", ptx_ops[s->op].text);
    *offset = o->offset;
    if (o->var < 0 && o->reg < 0) ptx_refuse(p, &s->at, "%s: an address that is a number", ptx_ops[s->op].text);
    if (o->var >= 0) {
        unsigned of = ptx_parsed_var(p, o->var)->space;
        if (of != (unsigned)space && !(space == PTX_GENERIC && (of == PTX_GLOBAL || of == PTX_CONST)))
            ptx_refuse(p, &s->at, "%s: the variable is in another space", ptx_ops[s->op].text);
        struct ptx_operand symbol = *o;
        symbol.kind = PTX_SYMBOL;
        symbol.offset = 0;
        *wide = space != PTX_SHARED;
        return ptx_compute(s, PTX_OP_MOV, *wide ? PTX_U64 : PTX_U32, 0, &symbol, NULL);
    }
    enum ptx_type type = (enum ptx_type)PTX_AT(p->regs, struct ptx_reg, o->reg)->type;
    *wide = ptx_type_bits(type) == 64;
    if (type == PTX_PRED || o->negated || (!*wide && !(space == PTX_SHARED && ptx_type_bits(type) == 32)))
        ptx_refuse(p, &s->at, "%s: an address register of another width", ptx_ops[s->op].text);
    struct ptx_operand reg = *o;
    reg.kind = PTX_REG;
    reg.offset = 0;
    return reg;
}

/* base + bytes, bytes being a number of 32 bits without sign. */
static struct ptx_operand beside(struct ptx_special *s, const struct ptx_operand *base, bool wide,
                                 const struct ptx_operand *bytes) {
    if (!wide) return ptx_compute(s, PTX_OP_ADD, PTX_U32, 0, base, bytes);
    struct ptx_operand one = ptx_immediate(1), to = ptx_temporary(s, PTX_U64), src[3] = {*bytes, one, *base};
    const struct ptx_operand *guard = s->guard;
    bool counted = s->counted;
    s->guard = NULL;
    s->counted = true;
    ptx_emit(s, PTX_OP_MAD, PTX_U32, &to, 1, src, 3)->modifiers = PTX_M_WIDE;
    s->guard = guard;
    s->counted = counted;
    return to;
}

static struct ptx_operand at_offset(const struct ptx_operand *reg, int64_t offset) {
    struct ptx_operand o = *reg;
    o.kind = PTX_ADDRESS;
    o.offset = offset;
    return o;
}

static struct ptx_operand vector_of(struct ptx_special *s, const struct ptx_operand *o, unsigned count) {
    struct ptx_operand v = {.kind = PTX_VECTOR, .count = (uint8_t)count, .reg = -1, .var = -1, .func = -1};
    v.elements = ptx_keep_operands(s->p, o, count);
    return v;
}

static const struct ptx_operand *part(const struct ptx_operand *o, unsigned k) {
    return o->kind == PTX_VECTOR ? &o->elements[k] : o;
}

/* Registers that lie one behind the other in memory. */
static void transfer(struct ptx_special *s, bool store, enum ptx_type type, enum ptx_space space,
                     const struct ptx_operand *at, int64_t offset, const struct ptx_operand *regs, unsigned count) {
    struct ptx_operand src[2] = {at_offset(at, offset), count > 1 ? vector_of(s, regs, count) : *regs};
    struct ptx_instr *i =
        store ? ptx_emit(s, PTX_OP_ST, type, NULL, 0, src, 2) : ptx_emit(s, PTX_OP_LD, type, &src[1], 1, src, 1);
    i->space = (uint8_t)space;
    i->vector = (uint8_t)count;
}

/* ---- wmma.load, wmma.store ---- */
struct fragment {
    struct ptx_special *s;
    struct ptx_operand regs, base;
    enum ptx_space space;
    bool store, wide, along;   /* along: a lane's elements lie one behind the other */
    unsigned bits, per, count; /* of an element; elements a register, a lane */
    int64_t offset;
    struct ptx_operand stride; /* bytes between lines, or between a lane's elements */
};

static void move_along(const struct fragment *f, const struct ptx_operand *at) {
    bool wide = f->bits == 64;
    unsigned registers = ptx_register_count(&f->regs), most = wide ? 2 : 4;
    for (unsigned r = 0; r < registers; r += most) {
        unsigned n = registers - r < most ? registers - r : most;
        if (n == 3) n = 2, most = 2;
        transfer(f->s, f->store, wide ? PTX_B64 : PTX_B32, f->space, at, f->offset + (int64_t)r * (wide ? 8 : 4),
                 part(&f->regs, r), n);
    }
}

/* A register's elements, apart: halves by mov, bytes by shifts. */
static void unpack(struct fragment *f, const struct ptx_operand *reg, struct ptx_operand *e) {
    struct ptx_special *s = f->s;
    const struct ptx_operand *guard = s->guard;
    bool counted = s->counted;
    s->guard = NULL;
    s->counted = true;
    if (f->per == 2) {
        e[0] = ptx_temporary(s, PTX_B16), e[1] = ptx_temporary(s, PTX_B16);
        struct ptx_operand v = vector_of(s, e, 2);
        ptx_emit(s, PTX_OP_MOV, PTX_B32, &v, 1, reg, 1);
    }
    s->guard = guard;
    s->counted = counted;
}

static void pack(struct fragment *f, const struct ptx_operand *reg, struct ptx_operand *e) {
    struct ptx_special *s = f->s;
    if (f->per == 2) {
        struct ptx_operand v = vector_of(s, e, 2);
        ptx_emit(s, PTX_OP_MOV, PTX_B32, reg, 1, &v, 1);
        return;
    }
    struct ptx_operand sum = e[0];
    for (unsigned k = 1; k < f->per; k++) {
        struct ptx_operand high = with_constant(s, PTX_OP_SHL, &e[k], 8 * k);
        sum = ptx_compute(s, PTX_OP_OR, PTX_B32, 0, &sum, &high);
    }
    ptx_emit(s, PTX_OP_MOV, PTX_B32, reg, 1, &sum, 1);
}

/* Element after element, `stride` bytes apart. */
static void move_apart(struct fragment *f, struct ptx_operand at) {
    static const uint8_t types[] = {[1] = PTX_U8, [2] = PTX_B16, [4] = PTX_B32, [8] = PTX_B64};
    enum ptx_type type = (enum ptx_type)types[f->bits / 8];
    unsigned registers = ptx_register_count(&f->regs);
    for (unsigned r = 0; r < registers; r++) {
        struct ptx_operand e[4] = {*part(&f->regs, r)};
        if (f->store) unpack(f, part(&f->regs, r), e);
        for (unsigned k = 0; k < f->per; k++) {
            if (!f->store && f->per > 1) e[k] = ptx_temporary(f->s, type == PTX_U8 ? PTX_B32 : PTX_B16);
            transfer(f->s, f->store, type, f->space, &at, f->offset, &e[k], 1);
            bool last = r + 1 == registers && k + 1 == f->per;
            if (!last) at = beside(f->s, &at, f->wide, &f->stride);
        }
        if (!f->store && f->per > 1) pack(f, part(&f->regs, r), e);
    }
}

static unsigned log2_of(unsigned n) {
    return (unsigned)__builtin_ctz(n);
}

/* Where this lane's elements begin: its line, and its place in it (ptx_matrix_place). */
static struct ptx_operand first_element(struct fragment *f, unsigned lines, unsigned length) {
    struct ptx_special *s = f->s;
    struct ptx_operand lane = lane_number(s);
    unsigned neighbours = length / f->count; /* lanes that share a line */
    struct ptx_operand line = with_constant(s, PTX_OP_SHR, &lane, log2_of(neighbours)),
                       place = with_constant(s, PTX_OP_AND, &lane, neighbours - 1);
    line = with_constant(s, PTX_OP_AND, &line, lines - 1);
    place = with_constant(s, PTX_OP_SHL, &place, log2_of(f->count));
    const struct ptx_operand *strided = f->along ? &line : &place, *plain = f->along ? &place : &line;
    struct ptx_operand far = ptx_compute(s, PTX_OP_MUL, PTX_U32, PTX_M_LO, strided, &f->stride),
                       near = f->bits < 8 ? with_constant(s, PTX_OP_SHR, plain, f->bits == 4 ? 1 : 3)
                                          : with_constant(s, PTX_OP_SHL, plain, log2_of(f->bits / 8));
    struct ptx_operand both = ptx_compute(s, PTX_OP_ADD, PTX_U32, 0, &far, &near);
    return beside(s, &f->base, f->wide, &both);
}

static struct ptx_operand stride_bytes(struct fragment *f, const struct ptx_operand *elements) {
    if (f->bits < 8) return with_constant(f->s, PTX_OP_SHR, elements, f->bits == 4 ? 1 : 3);
    return with_constant(f->s, PTX_OP_SHL, elements, log2_of(f->bits / 8));
}

void ptx_special_fragment(struct ptx_special *s) {
    unsigned m, n, k;
    bool store = ptx_has_word(s, "store"), a = ptx_has_word(s, "a"), b = ptx_has_word(s, "b"),
         col = ptx_has_word(s, "col");
    enum ptx_matrix_type type = ptx_matrix_word(s, 0);
    if (!ptx_shape(s, &m, &n, &k) || !type || m > 32 || n > 32 || k > 128 || (m | n | k) % 4) ptx_not_supported(s);
    unsigned lines = b ? n : m, length = a || b ? k : n, bits = ptx_matrix_bits(type);
    struct fragment f = {.s = s, .store = store, .bits = bits, .per = bits < 32 ? 32 / bits : 1};
    f.along = col == b;
    f.space = ptx_space_word(s);
    struct ptx_operand first = ptx_next_operand(s, true), second = ptx_next_operand(s, false),
                       stride = ptx_immediate(f.along ? length : lines);
    if (ptx_accept(s->p, ',')) ptx_parse_operand(s->p, &stride);
    ptx_want_number(s, &stride, 32);
    f.regs = store ? second : first;
    ptx_want_registers(s, &f.regs, bits == 64 ? 64 : 32);
    f.count = ptx_register_count(&f.regs) * f.per;
    bool power = !(f.count & (f.count - 1)) && !((lines | lines * length) & (lines - 1)) && !(length & (length - 1));
    if (!power || f.count > length || (32 * f.count) % (lines * length) || (!f.along && bits < 8) ||
        (store && f.per > 2))
        ptx_not_supported(s);
    f.base = address(s, store ? &first : &second, f.space, &f.offset, &f.wide);
    f.stride = stride_bytes(&f, &stride);
    struct ptx_operand at = first_element(&f, lines, length);
    if (f.along)
        move_along(&f, &at);
    else
        move_apart(&f, at);
}

/* ---- ldmatrix, stmatrix, movmatrix: 8 × 8 matrices of 16 bits, a row at the address of one lane ---- */
static struct ptx_operand from_lane(struct ptx_special *s, const struct ptx_operand *value,
                                    const struct ptx_operand *lane) {
    struct ptx_operand to = ptx_temporary(s, PTX_B32),
                       src[4] = {*value, *lane, ptx_immediate(31), ptx_immediate(UINT64_MAX)};
    bool counted = s->counted;
    s->counted = true;
    ptx_emit(s, PTX_OP_SHFL, PTX_B32, &to, 1, src, 4)->sub = PTX_SUB_IDX;
    s->counted = counted;
    return to;
}

/* The row's address, an offset in shared memory. */
static struct ptx_operand row_address(struct ptx_special *s, const struct ptx_operand *o) {
    int64_t offset;
    bool wide;
    bool generic = ptx_space_word(s) == PTX_GENERIC;
    struct ptx_operand a = address(s, o, generic ? PTX_GENERIC : PTX_SHARED, &offset, &wide);
    const struct ptx_operand *guard = s->guard;
    bool counted = s->counted;
    s->guard = NULL;
    s->counted = true;
    if (generic) {
        struct ptx_operand to = ptx_temporary(s, PTX_B64);
        struct ptx_instr *i = ptx_emit(s, PTX_OP_CVTA, PTX_U64, &to, 1, &a, 1);
        i->space = PTX_SHARED;
        i->modifiers = PTX_M_TO;
        a = to;
    }
    if (wide) {
        struct ptx_operand to = ptx_temporary(s, PTX_B32);
        ptx_emit(s, PTX_OP_CVT, PTX_U32, &to, 1, &a, 1)->type2 = PTX_U64;
        a = to;
    }
    s->guard = guard;
    s->counted = counted;
    return offset ? with_constant(s, PTX_OP_ADD, &a, (uint64_t)(int64_t)(int32_t)offset) : a;
}

struct rows {
    struct ptx_special *s;
    bool store;
    struct ptx_operand address, group, member; /* lane / 4, lane % 4 */
};

/* Two neighbours in the row of this lane's group. */
static void row_pair(struct rows *r, const struct ptx_operand *reg, unsigned matrix) {
    struct ptx_special *s = r->s;
    struct ptx_operand lane = with_constant(s, PTX_OP_ADD, &r->group, 8 * matrix),
                       row = from_lane(s, &r->address, &lane), bytes = with_constant(s, PTX_OP_SHL, &r->member, 2);
    struct ptx_operand at = beside(s, &row, false, &bytes);
    transfer(s, r->store, PTX_B32, PTX_SHARED, &at, 0, reg, 1);
}

/* Two neighbours in the column of this lane's group. */
static void column_pair(struct rows *r, const struct ptx_operand *reg, unsigned matrix) {
    struct ptx_special *s = r->s;
    struct ptx_operand e[2] = {ptx_temporary(s, PTX_B16), ptx_temporary(s, PTX_B16)}, both = vector_of(s, e, 2);
    bool counted = s->counted;
    s->counted = true;
    if (r->store) ptx_emit(s, PTX_OP_MOV, PTX_B32, &both, 1, reg, 1);
    s->counted = counted;
    struct ptx_operand bytes = with_constant(s, PTX_OP_SHL, &r->group, 1);
    for (unsigned half = 0; half < 2; half++) {
        struct ptx_operand lane = with_constant(s, PTX_OP_SHL, &r->member, 1);
        lane = with_constant(s, PTX_OP_ADD, &lane, 8 * matrix + half);
        struct ptx_operand row = from_lane(s, &r->address, &lane), at = beside(s, &row, false, &bytes);
        transfer(s, r->store, PTX_B16, PTX_SHARED, &at, 0, &e[half], 1);
    }
    if (!r->store) ptx_emit(s, PTX_OP_MOV, PTX_B32, reg, 1, &both, 1);
}

/* Element (2 · member + half, group) of the matrix: of which lane, and which half of its register. */
static void transposed(struct rows *r, const struct ptx_operand *to, const struct ptx_operand *from) {
    struct ptx_special *s = r->s;
    struct ptx_operand column = with_constant(s, PTX_OP_SHR, &r->group, 1),
                       odd = with_constant(s, PTX_OP_AND, &r->group, 1), shift = with_constant(s, PTX_OP_SHL, &odd, 4);
    struct ptx_operand e[2];
    for (unsigned half = 0; half < 2; half++) {
        struct ptx_operand lane = with_constant(s, PTX_OP_SHL, &r->member, 3);
        lane = with_constant(s, PTX_OP_ADD, &lane, 4 * half);
        lane = ptx_compute(s, PTX_OP_ADD, PTX_U32, 0, &lane, &column);
        e[half] = from_lane(s, from, &lane);
        e[half] = ptx_compute(s, PTX_OP_SHR, PTX_U32, 0, &e[half], &shift);
        e[half] = with_constant(s, PTX_OP_AND, &e[half], 0xffff);
    }
    struct ptx_operand high = with_constant(s, PTX_OP_SHL, &e[1], 16);
    high = ptx_compute(s, PTX_OP_OR, PTX_B32, 0, &e[0], &high);
    ptx_emit(s, PTX_OP_MOV, PTX_B32, to, 1, &high, 1);
}

void ptx_special_rows(struct ptx_special *s) {
    ptx_only_words(s, 0, "sync aligned m8n8 x1 x2 x4 trans shared shared::cta b16");
    bool store = s->op == PTX_OP_STMATRIX, trans = ptx_has_word(s, "trans");
    struct ptx_operand first = ptx_next_operand(s, true), second = ptx_next_operand(s, false), lane = lane_number(s);
    struct rows r = {.s = s, .store = store};
    r.group = with_constant(s, PTX_OP_SHR, &lane, 2);
    r.member = with_constant(s, PTX_OP_AND, &lane, 3);
    const struct ptx_operand *regs = store ? &second : &first;
    ptx_want_registers(s, regs, 32);
    if (s->op == PTX_OP_MOVMATRIX) {
        ptx_want_registers(s, &second, 32);
        if (first.kind != PTX_REG || second.kind != PTX_REG || !trans) ptx_not_supported(s);
        transposed(&r, &first, &second);
        return;
    }
    unsigned count = ptx_has_word(s, "x4") ? 4 : ptx_has_word(s, "x2") ? 2 : 1;
    if (ptx_register_count(regs) != count)
        ptx_refuse(s->p, &s->at, "%s: another number of registers is wanted", ptx_ops[s->op].text);
    r.address = row_address(s, store ? &first : &second);
    for (unsigned k = 0; k < count; k++)
        if (trans)
            column_pair(&r, part(regs, k), k);
        else
            row_pair(&r, part(regs, k), k);
}
