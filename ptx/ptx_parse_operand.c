/* Operands. An immediate keeps its literal's kind in `sreg` until ptx_check_instr gives it the operand's type. */
#include <string.h>
#include "ptx/ptx_parse.h"

struct sreg_row {
    const char *text;
    int32_t sreg; /* enum ptx_sreg; -1: it is 1 */
    bool indexed; /* .x .y .z follows */
};
static const struct sreg_row sregs[] = {
    {"%tid", PTX_TID_X, true},
    {"%ntid", PTX_NTID_X, true},
    {"%ctaid", PTX_CTAID_X, true},
    {"%nctaid", PTX_NCTAID_X, true},
    {"%laneid", PTX_LANEID, false},
    {"%warpid", PTX_WARPID, false},
    {"%nwarpid", PTX_NWARPID, false},
    {"%smid", PTX_SMID, false},
    {"%nsmid", PTX_NSMID, false},
    {"%gridid", PTX_GRIDID, false},
    {"%lanemask_eq", PTX_LANEMASK_EQ, false},
    {"%lanemask_le", PTX_LANEMASK_LE, false},
    {"%lanemask_lt", PTX_LANEMASK_LT, false},
    {"%lanemask_ge", PTX_LANEMASK_GE, false},
    {"%lanemask_gt", PTX_LANEMASK_GT, false},
    {"%clock", PTX_CLOCK, false},
    {"%clock_hi", PTX_CLOCK_HI, false},
    {"%clock64", PTX_CLOCK64, false},
    {"%globaltimer", PTX_GLOBALTIMER, false},
    {"%globaltimer_lo", PTX_GLOBALTIMER_LO, false},
    {"%globaltimer_hi", PTX_GLOBALTIMER_HI, false},
    {"%dynamic_smem_size", PTX_DYNAMIC_SMEM_SIZE, false},
    {"%total_smem_size", PTX_TOTAL_SMEM_SIZE, false},
    {"%aggr_smem_size", PTX_TOTAL_SMEM_SIZE, false},
    /* A kernel without clusters: each block is a cluster of its own. */
    {"%clusterid", PTX_CTAID_X, true},
    {"%nclusterid", PTX_NCTAID_X, true},
    {"%cluster_ctaid", PTX_ZERO_SREG, true},
    {"%cluster_nctaid", -1, true},
    {"%cluster_ctarank", PTX_ZERO_SREG, false},
    {"%cluster_nctarank", -1, false},
    {"%is_explicit_cluster", PTX_ZERO_SREG, false},
    {"%current_graph_exec", PTX_ZERO_SREG, false},
};

/* %pm0…, %envreg3: a name with a number. */
static bool is_numbered(const struct ptx_token *t, const char *prefix) {
    size_t n = strlen(prefix);
    return t->length > n && !memcmp(t->text, prefix, n) && t->text[n] >= '0' && t->text[n] <= '9';
}

static void immediate(struct ptx_operand *o, uint64_t bits, enum ptx_literal literal) {
    o->kind = PTX_IMM;
    o->bits = bits;
    o->sreg = (uint8_t)literal;
}

static bool special(struct ptx_parser *p, const struct ptx_token *name, struct ptx_operand *o) {
    for (size_t i = 0; i < sizeof sregs / sizeof *sregs; i++) {
        const struct sreg_row *row = &sregs[i];
        if (!ptx_token_is(name, PTX_T_NAME, row->text)) continue;
        int axis = 0;
        if (row->indexed) {
            axis = ptx_is_word(p, "x") ? 0 : ptx_is_word(p, "y") ? 1 : ptx_is_word(p, "z") ? 2 : -1;
            if (axis < 0) ptx_refuse(p, &p->token, "expected .x, .y or .z of %s", row->text);
            ptx_take(p);
        }
        if (row->sreg < 0) {
            immediate(o, 1, PTX_LIT_INT);
        } else {
            o->kind = PTX_SREG_OP;
            o->sreg = (uint8_t)(row->sreg == PTX_ZERO_SREG ? row->sreg : row->sreg + axis);
        }
        return true;
    }
    if (ptx_token_is(name, PTX_T_NAME, "%envreg1") || ptx_token_is(name, PTX_T_NAME, "%envreg2")) {
        bool high = name->text[name->length - 1] == '1';
        immediate(o, high ? PTX_GRID_WORKSPACE >> 32 : PTX_GRID_WORKSPACE & UINT32_MAX, PTX_LIT_INT);
        return true;
    }
    o->kind = PTX_SREG_OP;
    o->sreg = PTX_ZERO_SREG;
    return is_numbered(name, "%pm") || is_numbered(name, "%envreg");
}

/* %reserved_smem_offset_1 and the like, of cooperative groups: 1 KiB of shared memory that the system keeps. Here it is
 * a variable like any other, of the kernels that name it. */
static bool reserved_shared(struct ptx_parser *p, const struct ptx_token *name, struct ptx_operand *o) {
    static const char prefix[] = "%reserved_smem_offset_", own[] = "%reserved_smem";
    enum { BYTES = 1024 };
    if (name->length < sizeof prefix || memcmp(name->text, prefix, sizeof prefix - 1)) return false;
    struct ptx_declaration d = {
        .var = {.name = own, .space = PTX_SHARED, .type = PTX_B8, .align = 16, .bytes = BYTES},
        .name = {
            .kind = PTX_T_NAME, .text = own, .length = sizeof own - 1, .line = name->line, .column = name->column}};
    struct ptx_symbol *s = ptx_symbol_find(&p->symbols, 0, own, sizeof own - 1);
    o->var = s ? s->index : ptx_add_module_var(p, &d, -1);
    o->kind = PTX_SYMBOL;
    char last = name->text[name->length - 1]; /* …_end, …_cap */
    o->offset = last == 'd' || last == 'p' ? BYTES : 0;
    return true;
}

static int64_t offset(struct ptx_parser *p) {
    int64_t sum = 0;
    while (ptx_is(p, '+') || ptx_is(p, '-')) {
        bool minus = ptx_is(p, '-');
        if (!minus) ptx_take(p);
        sum = (int64_t)((uint64_t)sum + ptx_expect_integer(p)); /* takes the minus itself */
    }
    return sum;
}

/* A register, a variable or a function by name into o. */
static void named(struct ptx_parser *p, const struct ptx_token *name, struct ptx_operand *o) {
    o->reg = ptx_find_reg(p, name);
    o->kind = PTX_REG;
    if (o->reg >= 0 || reserved_shared(p, name, o) || special(p, name, o)) return;
    if (ptx_token_is(name, PTX_T_NAME, "WARP_SZ")) {
        immediate(o, 32, PTX_LIT_INT);
        return;
    }
    struct ptx_symbol *s = ptx_find_symbol(p, name);
    o->kind = PTX_SYMBOL;
    if (s && s->kind == PTX_S_VAR)
        o->var = s->index;
    else if (s && s->kind == PTX_S_FUNC)
        o->func = s->index;
    else
        ptx_refuse(p, name, "unknown name '%.*s'", (int)name->length, name->text);
}

static void number(struct ptx_parser *p, struct ptx_operand *o) {
    bool negative = ptx_accept(p, '-');
    struct ptx_token t = p->token;
    enum ptx_literal literal;
    uint64_t bits;
    if (t.kind != PTX_T_NUMBER || !ptx_number(&t, &bits, &literal)) ptx_fault(p, &t, "expected an operand");
    ptx_take(p);
    if (negative) bits = literal == PTX_LIT_INT ? -bits : bits ^ (literal == PTX_LIT_F32 ? 1ull << 31 : 1ull << 63);
    immediate(o, bits, literal);
}

static void address(struct ptx_parser *p, struct ptx_operand *o) {
    struct ptx_token at = ptx_take(p);
    if (p->token.kind == PTX_T_NAME) {
        struct ptx_token name = ptx_take(p);
        named(p, &name, o);
        if (o->kind == PTX_SREG_OP || o->kind == PTX_IMM || o->func >= 0)
            ptx_refuse(p, &name, "'%.*s' is no address", (int)name.length, name.text);
        o->offset = offset(p);
    } else {
        o->offset = (int64_t)ptx_expect_integer(p);
    }
    o->kind = PTX_ADDRESS;
    if (!ptx_accept(p, ']')) ptx_refuse(p, &at, "an address of a form that is not supported");
}

static void vector(struct ptx_parser *p, struct ptx_operand *o) {
    struct ptx_operand elements[PTX_MAX_ELEMENTS];
    struct ptx_token at = ptx_take(p);
    do {
        if (o->count == PTX_MAX_ELEMENTS) ptx_refuse(p, &at, "a vector of over %d elements", PTX_MAX_ELEMENTS);
        if (ptx_is(p, '{') || ptx_is(p, '[')) ptx_fault(p, &p->token, "expected a register");
        ptx_parse_operand(p, &elements[o->count++]);
    } while (ptx_accept(p, ','));
    ptx_expect(p, '}');
    o->kind = PTX_VECTOR;
    o->elements = ptx_arena_bytes(p, o->count * sizeof *elements);
    memcpy(o->elements, elements, o->count * sizeof *elements);
}

void ptx_parse_operand(struct ptx_parser *p, struct ptx_operand *o) {
    *o = (struct ptx_operand){.reg = -1, .var = -1, .func = -1};
    if (ptx_accept(p, '!')) {
        struct ptx_token name = ptx_expect_name(p);
        named(p, &name, o);
        o->negated = true;
    } else if (ptx_is(p, '[')) {
        address(p, o);
    } else if (ptx_is(p, '{')) {
        vector(p, o);
    } else if (p->token.kind == PTX_T_NAME) {
        struct ptx_token name = ptx_take(p);
        if (ptx_token_is(&name, PTX_T_NAME, "_")) {
            o->kind = PTX_SINK;
            return;
        }
        named(p, &name, o);
        if (o->kind == PTX_SYMBOL) o->offset = offset(p);
    } else {
        number(p, o);
    }
}
