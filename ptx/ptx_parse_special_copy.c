/* cp.async, which copies at once here, as a device may: a load and a store. mbarrier. Bulk copies, of which only the
 * name is kept. */
#include "ptx/ptx_parse_special.h"

/* ---- bulk copies ---- */
/* What they move is said by descriptors, or in bytes that a register has: the instruction is there, its bytes are not
 * known. */
static void bulk(struct ptx_special *s) {
    struct ptx_parser *p = s->p;
    bool waits = ptx_has_word(s, "commit_group") || ptx_has_word(s, "wait_group");
    for (int depth = 0; depth || !ptx_is(p, ';');) { /* coordinates of tensors have forms of their own */
        struct ptx_token t = ptx_take(p);
        if (t.kind == PTX_T_END || t.kind == PTX_T_BAD) ptx_fault(p, &t, "expected ';'");
        depth += t.kind == PTX_T_PUNCT && (*t.text == '[' || *t.text == '{');
        depth -= t.kind == PTX_T_PUNCT && (*t.text == ']' || *t.text == '}');
        if (t.kind == PTX_T_PUNCT && *t.text == ';') ptx_fault(p, &t, "a bracket is open");
    }
    bool nothing = waits || ptx_has_word(s, "prefetch");
    ptx_emit(s, nothing ? PTX_OP_GROUP : PTX_OP_BULK, PTX_NONE, NULL, 0, NULL, 0);
}

/* ---- cp.async ---- */
static struct ptx_operand zeros(struct ptx_special *s, unsigned count) {
    struct ptx_operand v = {.kind = PTX_VECTOR, .count = (uint8_t)count, .reg = -1, .var = -1, .func = -1}, e[4];
    for (unsigned k = 0; k < count; k++) e[k] = ptx_immediate(0);
    v.elements = ptx_keep_operands(s->p, e, count);
    return count > 1 ? v : e[0];
}

static struct ptx_operand temporaries(struct ptx_special *s, unsigned count) {
    struct ptx_operand v = {.kind = PTX_VECTOR, .count = (uint8_t)count, .reg = -1, .var = -1, .func = -1}, e[4];
    for (unsigned k = 0; k < count; k++) e[k] = ptx_temporary(s, PTX_B32);
    v.elements = ptx_keep_operands(s->p, e, count);
    return count > 1 ? v : e[0];
}

static bool is_predicate(const struct ptx_special *s, const struct ptx_operand *o) {
    return o->kind == PTX_REG && PTX_AT(s->p->regs, struct ptx_reg, o->reg)->type == PTX_PRED;
}

/* A predicate says that the source is ignored. */
static struct ptx_operand source_bytes(struct ptx_special *s, const struct ptx_operand *o, uint64_t size) {
    if (!is_predicate(s, o)) {
        ptx_want_number(s, o, 32);
        return *o;
    }
    struct ptx_operand to = ptx_temporary(s, PTX_U32), src[3] = {ptx_immediate(0), ptx_immediate(size), *o};
    bool counted = s->counted;
    s->counted = true;
    ptx_emit(s, PTX_OP_SELP, PTX_U32, &to, 1, src, 3);
    s->counted = counted;
    return to;
}

static void load(struct ptx_special *s, const struct ptx_operand *to, const struct ptx_operand *from,
                 const struct ptx_operand *bytes, unsigned count) {
    struct ptx_operand src[2] = {*from, *bytes};
    bool whole = bytes->kind == PTX_IMM && bytes->bits == 4 * count;
    struct ptx_instr *i = ptx_emit(s, whole ? PTX_OP_LD : PTX_OP_LDZ, PTX_B32, to, 1, src, whole ? 1 : 2);
    i->space = PTX_GLOBAL;
    i->vector = (uint8_t)count;
}

static bool may_be(const struct ptx_special *s, const struct ptx_operand *o, enum ptx_space space) {
    if (o->kind != PTX_ADDRESS || o->negated) return false;
    if (o->var >= 0) return ptx_parsed_var(s->p, o->var)->space == space;
    if (o->reg < 0) return true;
    unsigned bits = ptx_type_bits((enum ptx_type)PTX_AT(s->p->regs, struct ptx_reg, o->reg)->type);
    return bits == 64 || (bits == 32 && space == PTX_SHARED);
}

static void copy(struct ptx_special *s) {
    struct ptx_operand to = ptx_next_operand(s, true), from = ptx_next_operand(s, false),
                       size = ptx_next_operand(s, false), more[2];
    unsigned n = 0;
    while (n < 2 && ptx_accept(s->p, ',')) ptx_parse_operand(s->p, &more[n++]);
    if (ptx_has_word(s, "L2::cache_hint") && n) n--;
    if (size.kind != PTX_IMM || (size.bits != 4 && size.bits != 8 && size.bits != 16) || n > 1 ||
        !may_be(s, &to, PTX_SHARED) || !may_be(s, &from, PTX_GLOBAL))
        ptx_refuse(s->p, &s->at, "cp.async: operands of another form");
    unsigned count = (unsigned)size.bits / 4;
    struct ptx_operand bytes = n ? source_bytes(s, &more[0], size.bits) : size, src[2] = {to};
    if (bytes.kind == PTX_IMM && !bytes.bits) {
        src[1] = zeros(s, count);
    } else {
        src[1] = temporaries(s, count);
        load(s, &src[1], &from, &bytes, count);
    }
    struct ptx_instr *i = ptx_emit(s, PTX_OP_ST, PTX_B32, NULL, 0, src, 2);
    i->space = PTX_SHARED;
    i->vector = (uint8_t)count;
}

/* ---- mbarrier ---- */
struct mode {
    const char *word;
    uint8_t sub;
};

static struct ptx_instr *barrier(struct ptx_special *s, unsigned sub, const struct ptx_operand *dst, unsigned dsts,
                                 const struct ptx_operand *src, unsigned srcs) {
    struct ptx_instr *i = ptx_emit(s, PTX_OP_MBARRIER, PTX_B64, dst, dsts, src, srcs);
    i->sub = (uint8_t)sub;
    i->space = (uint8_t)ptx_space_word(s);
    return i;
}

static void want_barrier(const struct ptx_special *s, const struct ptx_operand *o) {
    if (!may_be(s, o, PTX_SHARED)) ptx_refuse(s->p, &s->at, "mbarrier: an address [...] is wanted");
}

/* The copies that this thread has begun are done. */
static void arrive_of_copies(struct ptx_special *s) {
    struct ptx_operand src[2] = {ptx_next_operand(s, true), ptx_immediate(1)};
    want_barrier(s, &src[0]);
    if (ptx_has_word(s, "noinc"))
        barrier(s, PTX_SUB_MB_ARRIVE, NULL, 0, src, 2);
    else /* one more is expected, and comes */
        ptx_emit(s, PTX_OP_GROUP, PTX_NONE, NULL, 0, NULL, 0);
}

void ptx_special_copy(struct ptx_special *s) {
    bool asynchronous = s->op == PTX_OP_ST || s->op == PTX_OP_RED;
    while (asynchronous && s->p->token.kind == PTX_T_WORD && s->words < PTX_MAX_MODIFIERS)
        s->word[s->words++] = ptx_take(s->p);
    if (asynchronous || ptx_has_word(s, "bulk")) {
        bulk(s);
    } else if (ptx_has_word(s, "mbarrier")) {
        arrive_of_copies(s);
    } else if (ptx_has_word(s, "commit_group") || ptx_has_word(s, "wait_group") || ptx_has_word(s, "wait_all")) {
        if (!ptx_is(s->p, ';')) ptx_next_operand(s, true);
        ptx_emit(s, PTX_OP_GROUP, PTX_NONE, NULL, 0, NULL, 0);
    } else {
        copy(s);
    }
}

/* p, [barrier], state or parity {, time}; the parity is 32 bits wide */
static void wait(struct ptx_special *s) {
    struct ptx_operand p = ptx_next_operand(s, true), src[2] = {ptx_next_operand(s, false)};
    bool parity = ptx_has_word(s, "parity");
    want_barrier(s, &src[0]);
    src[1] = ptx_next_operand(s, false);
    if (!is_predicate(s, &p)) ptx_refuse(s->p, &s->at, "mbarrier: a predicate is wanted");
    ptx_want_number(s, &src[1], parity ? 32 : 64);
    if (ptx_accept(s->p, ',')) ptx_parse_operand(s->p, &(struct ptx_operand){0});
    barrier(s, parity ? PTX_SUB_MB_PARITY : PTX_SUB_MB_WAIT, &p, 1, src, 2);
}

/* {state | _,} [barrier] {, count or bytes} */
static void arrive(struct ptx_special *s, unsigned sub) {
    struct ptx_operand first = ptx_next_operand(s, true), dst = first, src[2];
    bool gives = first.kind != PTX_ADDRESS;
    src[0] = gives ? ptx_next_operand(s, false) : first;
    want_barrier(s, &src[0]);
    src[1] = ptx_immediate(sub == PTX_SUB_MB_INVAL ? 0 : 1);
    if (ptx_accept(s->p, ',')) ptx_parse_operand(s->p, &src[1]);
    ptx_want_number(s, &src[1], 32);
    if (gives && dst.kind != PTX_SINK) ptx_want_registers(s, &dst, 64);
    if (dst.kind == PTX_VECTOR) ptx_not_supported(s);
    barrier(s, sub, &dst, gives, src, 2);
}

void ptx_special_mbarrier(struct ptx_special *s) {
    if (ptx_has_word(s, "test_wait") || ptx_has_word(s, "try_wait")) {
        wait(s);
    } else if (ptx_has_word(s, "pending_count")) {
        struct ptx_operand d = ptx_next_operand(s, true), state = ptx_next_operand(s, false);
        ptx_want_registers(s, &d, 32);
        ptx_want_number(s, &state, 64);
        if (d.kind == PTX_VECTOR) ptx_not_supported(s);
        barrier(s, PTX_SUB_MB_PENDING, &d, 1, &state, 1);
    } else {
        bool arrives = ptx_has_word(s, "arrive"), drops = ptx_has_word(s, "arrive_drop"),
             tx = ptx_has_word(s, "expect_tx");
        unsigned sub = ptx_has_word(s, "init")          ? PTX_SUB_MB_INIT
                       : ptx_has_word(s, "inval")       ? PTX_SUB_MB_INVAL
                       : arrives && tx                  ? PTX_SUB_MB_ARRIVE_TX
                       : arrives                        ? PTX_SUB_MB_ARRIVE
                       : drops && !tx                   ? PTX_SUB_MB_DROP
                       : tx && !drops                   ? PTX_SUB_MB_EXPECT_TX
                       : ptx_has_word(s, "complete_tx") ? PTX_SUB_MB_COMPLETE_TX
                                                        : PTX_SUB_NONE;
        if (!sub) ptx_not_supported(s);
        arrive(s, sub);
    }
}

/* ---- atomics of vectors: each element's is atomic, not the vector's ---- */
static bool shares_registers(const struct ptx_operand *a, const struct ptx_operand *b) {
    for (unsigned k = 0; k < a->count; k++)
        for (unsigned n = 0; n < b->count; n++)
            if (a->elements[k].kind == PTX_REG && a->elements[k].reg == b->elements[n].reg) return true;
    return false;
}

void ptx_parse_elements(struct ptx_parser *p, const struct ptx_instr *i, const struct ptx_token *at) {
    struct ptx_operand guard = {.reg = i->guard, .negated = i->guard_negated}, value[PTX_MAX_ELEMENTS];
    struct ptx_special s = {.p = p, .at = *at, .op = (enum ptx_op)i->op, .guard = i->guard >= 0 ? &guard : NULL};
    bool shared = i->dsts && shares_registers(&i->dst[0], &i->src[1]);
    for (unsigned k = 0; k < i->vector; k++) {
        value[k] = i->src[1].elements[k];
        if (shared)
            value[k] =
                ptx_compute(&s, PTX_OP_MOV, ptx_type_bits(i->type) == 16 ? PTX_B16 : PTX_B32, 0, &value[k], NULL);
    }
    for (unsigned k = 0; k < i->vector; k++) {
        struct ptx_operand src[2] = {i->src[0], value[k]};
        src[0].offset += (int64_t)k * ptx_type_bytes(i->type);
        struct ptx_instr *one =
            ptx_emit(&s, s.op, (enum ptx_type)i->type, i->dsts ? &i->dst[0].elements[k] : NULL, i->dsts, src, 2);
        one->space = i->space;
        one->sub = i->sub;
        one->modifiers = i->modifiers;
    }
}
