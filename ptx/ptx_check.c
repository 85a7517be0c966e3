/* What operands an instruction must have: numbers, kinds, types. After it, the interpreter and the compiler need not
 * look for a register of the wrong width or a vector where none can be. */
#include <string.h>
#include "ptx/ptx_parse.h"

static enum ptx_type wider(enum ptx_type t) {
    switch (t) {
    case PTX_U16:
        return PTX_U32;
    case PTX_S16:
        return PTX_S32;
    case PTX_U32:
        return PTX_U64;
    case PTX_S32:
        return PTX_S64;
    case PTX_B32:
        return PTX_B64;
    case PTX_B16:
        return PTX_B32;
    default:
        return t;
    }
}

static enum ptx_type dst_type(const struct ptx_instr *i, unsigned n) {
    enum ptx_type type = (enum ptx_type)i->type;
    switch (i->op) {
    case PTX_OP_MUL:
    case PTX_OP_MAD:
        return i->modifiers & PTX_M_WIDE ? wider(type) : type;
    case PTX_OP_SETP:
    case PTX_OP_TESTP:
    case PTX_OP_ISSPACEP:
        return PTX_PRED;
    case PTX_OP_SHFL:
    case PTX_OP_LOP3:
        return n ? PTX_PRED : type;
    case PTX_OP_BFIND:
    case PTX_OP_CLZ:
    case PTX_OP_POPC:
        return PTX_U32;
    case PTX_OP_VOTE:
    case PTX_OP_ACTIVEMASK:
        return type ? type : PTX_B32;
    case PTX_OP_MATCH:
    case PTX_OP_ELECT:
        return n ? PTX_PRED : PTX_B32;
    case PTX_OP_BAR:
    case PTX_OP_BARRIER:
        return i->sub == PTX_SUB_BAR_RED_POPC ? PTX_U32 : PTX_PRED;
    default:
        return type;
    }
}

static enum ptx_type src_type(const struct ptx_instr *i, unsigned n) {
    enum ptx_type type = (enum ptx_type)i->type;
    switch (i->op) {
    case PTX_OP_MAD:
        return n == 2 && i->modifiers & PTX_M_WIDE ? wider(type) : type;
    case PTX_OP_SHL:
    case PTX_OP_SHR:
    case PTX_OP_SZEXT:
        return n == 1 ? PTX_U32 : type;
    case PTX_OP_SHF:
        return n == 2 ? PTX_U32 : type;
    case PTX_OP_BFE:
        return n >= 1 ? PTX_U32 : type;
    case PTX_OP_BFI:
        return n >= 2 ? PTX_U32 : type;
    case PTX_OP_FNS:
        return n == 2 ? PTX_S32 : PTX_B32;
    case PTX_OP_DP4A:
    case PTX_OP_DP2A:
        return n == 1 && i->type2 ? (enum ptx_type)i->type2 : type;
    case PTX_OP_SETP:
    case PTX_OP_SELP:
        return n == 2 ? PTX_PRED : type;
    case PTX_OP_SET:
        return n == 2 ? PTX_PRED : (enum ptx_type)i->type2;
    case PTX_OP_SLCT:
        return n == 2 ? (enum ptx_type)i->type2 : type;
    case PTX_OP_CVT:
        return (enum ptx_type)i->type2;
    case PTX_OP_LOP3:
        return n == 3 ? PTX_PRED : type;
    case PTX_OP_SHFL:
        return n ? PTX_U32 : type;
    case PTX_OP_VOTE:
        return n ? PTX_U32 : PTX_PRED;
    case PTX_OP_MATCH:
    case PTX_OP_REDUX:
        return n ? PTX_U32 : type;
    case PTX_OP_ISSPACEP:
        return PTX_U64;
    case PTX_OP_ELECT:
    case PTX_OP_NANOSLEEP:
    case PTX_OP_PMEVENT:
    case PTX_OP_BRX:
        return PTX_U32;
    case PTX_OP_CALL:
        return PTX_U64;
    case PTX_OP_BAR:
    case PTX_OP_BARRIER:
        return i->sub >= PTX_SUB_BAR_RED_POPC && i->sub <= PTX_SUB_BAR_RED_OR && n + 1u == i->srcs ? PTX_PRED : PTX_U32;
    default:
        return type;
    }
}

enum ptx_type ptx_operand_type(const struct ptx_instr *i, bool dst, unsigned n) {
    return dst ? dst_type(i, n) : src_type(i, n);
}

bool ptx_is_address(const struct ptx_instr *i, unsigned n) {
    return n == 0 && (ptx_ops[i->op].properties & (PTX_P_READS | PTX_P_WRITES) || i->op == PTX_OP_PREFETCH ||
                      i->op == PTX_OP_PREFETCHU);
}

/* ---- literals ---- */
static uint64_t sign_extended(uint64_t bits, unsigned width) {
    if (width >= 64) return bits;
    uint64_t sign = 1ull << (width - 1);
    bits &= (1ull << width) - 1;
    return (bits ^ sign) - sign;
}

static uint64_t float_bits(enum ptx_type type, double value) {
    float single = (float)value;
    uint32_t low;
    uint64_t bits;
    memcpy(&low, &single, sizeof low);
    memcpy(&bits, &value, sizeof bits);
    return type == PTX_F64 ? bits : low;
}

uint64_t ptx_literal_bits(enum ptx_type type, uint64_t bits, enum ptx_literal literal, bool negative) {
    bool single = literal == PTX_LIT_F32, real = type == PTX_F32 || type == PTX_F64;
    if (negative) bits = literal == PTX_LIT_INT ? -bits : bits ^ (single ? 1ull << 31 : 1ull << 63);
    if (real && literal == PTX_LIT_INT) return float_bits(type, (double)(int64_t)bits);
    if (real && single != (type == PTX_F32)) {
        float f;
        double d;
        uint32_t low = (uint32_t)bits;
        memcpy(&f, &low, sizeof f);
        memcpy(&d, &bits, sizeof d);
        return float_bits(type, single ? (double)f : d);
    }
    enum ptx_type_kind kind = ptx_type_kind(type);
    if (kind == PTX_KIND_B || kind == PTX_KIND_U || kind == PTX_KIND_S) return sign_extended(bits, ptx_type_bits(type));
    return ptx_type_bits(type) < 64 ? bits & ((1ull << ptx_type_bits(type)) - 1) : bits;
}

/* ---- operands ---- */
struct place {
    struct ptx_parser *p;
    struct ptx_instr *i;
    const struct ptx_token *at;
    bool dst;
};

static _Noreturn void bad(struct place w, const char *what) {
    ptx_refuse(w.p, w.at, "%s: %s", ptx_ops[w.i->op].text, what);
}

/* ld, st and cvt allow a register that is wider than the type. */
static bool may_be_wider(const struct ptx_instr *i) {
    return i->op == PTX_OP_LD || i->op == PTX_OP_LDU || i->op == PTX_OP_ST || i->op == PTX_OP_CVT;
}

static void check_register(struct place w, const struct ptx_operand *o, enum ptx_type type, unsigned bits) {
    enum ptx_type own = (enum ptx_type)PTX_AT(w.p->regs, struct ptx_reg, o->reg)->type;
    if ((own == PTX_PRED) != (type == PTX_PRED)) bad(w, "a predicate where none may be, or a value for a predicate");
    if (o->negated && type != PTX_PRED) bad(w, "only a predicate can be negated");
    unsigned have = ptx_type_bits(own);
    if (have == bits || (have > bits && may_be_wider(w.i))) return;
    ptx_refuse(w.p, w.at, "%s: register %s has %u bits, not %u", ptx_ops[w.i->op].text,
               PTX_AT(w.p->regs, struct ptx_reg, o->reg)->name, have, bits);
}

static void check_immediate(struct place w, struct ptx_operand *o, enum ptx_type type, unsigned bits) {
    enum ptx_literal literal = (enum ptx_literal)o->sreg;
    o->sreg = 0;
    if (w.dst || bits > 64) bad(w, "a constant where none may be");
    bool real = type == PTX_F32 || type == PTX_F64;
    enum ptx_type_kind kind = ptx_type_kind(type);
    if (real != (literal != PTX_LIT_INT) && (real || kind == PTX_KIND_F || kind == PTX_KIND_X2))
        bad(w, "a constant of another type than the operand");
    if (type == PTX_PRED) {
        o->bits = o->bits != 0;
    } else if (bits == ptx_type_bits(type)) {
        o->bits = ptx_literal_bits(type, o->bits, literal, false);
    } else {
        o->bits = sign_extended(o->bits, bits); /* an element of a packed value */
    }
}

static void check_symbol(struct place w, const struct ptx_operand *o, unsigned bits) {
    bool may = !w.dst && (w.i->op == PTX_OP_MOV || w.i->op == PTX_OP_CVTA);
    if (!may || bits < 32) bad(w, "a variable's name where none may be");
    enum ptx_space space = o->func >= 0 ? PTX_GLOBAL : (enum ptx_space)ptx_parsed_var(w.p, o->var)->space;
    if (bits == 32 && (space == PTX_GLOBAL || space == PTX_CONST)) bad(w, "a 64-bit address in 32 bits");
}

static void check_value(struct place w, struct ptx_operand *o, enum ptx_type type, unsigned bits) {
    switch (o->kind) {
    case PTX_REG:
        check_register(w, o, type, bits);
        break;
    case PTX_IMM:
        check_immediate(w, o, type, bits);
        break;
    case PTX_SYMBOL:
        check_symbol(w, o, bits);
        break;
    case PTX_SREG_OP:
        if (w.dst || type == PTX_PRED || o->negated) bad(w, "a special register where none may be");
        break;
    case PTX_SINK:
        if (!w.dst) bad(w, "'_' where a value is wanted");
        break;
    default:
        bad(w, "an address or a vector where none may be");
    }
}

/* Elements of ld and st have the instruction's type; those of mov share its bits. */
static void check_vector(struct place w, struct ptx_operand *o, enum ptx_type type) {
    bool memory = ptx_ops[w.i->op].properties & (PTX_P_READS | PTX_P_WRITES);
    unsigned bits = ptx_type_bits(type), n = o->count;
    bool pack = w.i->op == PTX_OP_MOV && (n == 2 || n == 4) && bits >= 16 && type != PTX_PRED;
    if (memory ? n != w.i->vector : !pack) bad(w, "a vector that does not fit the instruction");
    for (unsigned e = 0; e < n; e++) check_value(w, &o->elements[e], type, memory ? bits : bits / n);
}

static void check_address(struct place w, const struct ptx_operand *o) {
    if (o->kind != PTX_ADDRESS) bad(w, "an address [...] is wanted");
    if (o->negated || (o->var < 0 && o->reg < 0)) return;
    unsigned space = w.i->space;
    bool narrow = space == PTX_SHARED || space == PTX_LOCAL || space == PTX_PARAM;
    if (o->reg >= 0) {
        unsigned type = PTX_AT(w.p->regs, struct ptx_reg, o->reg)->type, bits = ptx_type_bits((enum ptx_type)type);
        if (type == PTX_PRED || (bits != 64 && !(narrow && bits == 32))) bad(w, "an address register of another width");
    } else {
        unsigned of = ptx_parsed_var(w.p, o->var)->space;
        bool hint = ptx_ops[w.i->op].properties & PTX_P_HINT;
        if (of != space && !hint && !(space == PTX_GENERIC && (of == PTX_GLOBAL || of == PTX_CONST)))
            bad(w, "the variable is in another space");
    }
}

static void check_operand(struct place w, struct ptx_operand *o, unsigned n) {
    enum ptx_type type = ptx_operand_type(w.i, w.dst, n);
    if (!w.dst && ptx_is_address(w.i, n)) {
        check_address(w, o);
        return;
    }
    if (!type) bad(w, "its type is missing");
    bool memory = ptx_ops[w.i->op].properties & (PTX_P_READS | PTX_P_WRITES);
    if (o->kind == PTX_VECTOR)
        check_vector(w, o, type);
    else if (memory && w.i->vector > 1)
        bad(w, "a vector is wanted");
    else
        check_value(w, o, type, ptx_type_bits(type));
}

/* ---- numbers of operands ---- */
static void bounds(const struct ptx_instr *i, unsigned *least, unsigned *most) {
    *least = *most = ptx_ops[i->op].srcs;
    switch (i->op) {
    case PTX_OP_MIN:
    case PTX_OP_MAX:
        *least = 2, *most = 3;
        break;
    case PTX_OP_SET:
    case PTX_OP_SETP:
        *least = *most = i->combine ? 3 : 2;
        break;
    case PTX_OP_LOP3:
        *least = *most = i->dsts == 2 ? 4 : 3;
        break;
    case PTX_OP_CVT:
        *least = *most = ptx_type_kind((enum ptx_type)i->type) == PTX_KIND_X2 && i->type2 == PTX_F32 ? 2 : 1;
        break;
    case PTX_OP_ATOM:
        *least = *most = i->sub == PTX_SUB_CAS ? 3 : 2;
        break;
    case PTX_OP_SHFL:
        *least = *most = 4;
        break;
    case PTX_OP_PMEVENT:
    case PTX_OP_BRX:
        *least = *most = 1;
        break;
    case PTX_OP_BRA:
        *least = *most = 0;
        break;
    case PTX_OP_BAR:
    case PTX_OP_BARRIER:
        *least = 1 + (i->sub == PTX_SUB_BAR_ARRIVE || i->sub >= PTX_SUB_BAR_RED_POPC);
        *most = i->sub == PTX_SUB_BAR_WARP ? 1 : 2 + (i->sub >= PTX_SUB_BAR_RED_POPC);
        break;
    default:
        break;
    }
}

/* Modifiers without which the instruction means nothing. */
static void check_mode(struct place w) {
    const struct ptx_instr *i = w.i;
    bool needs = i->op == PTX_OP_ATOM || i->op == PTX_OP_RED || i->op == PTX_OP_REDUX || i->op == PTX_OP_SHFL ||
                 i->op == PTX_OP_VOTE || i->op == PTX_OP_MATCH || i->op == PTX_OP_BAR || i->op == PTX_OP_BARRIER ||
                 i->op == PTX_OP_SHF || i->op == PTX_OP_TESTP;
    if (needs && !i->sub) bad(w, "its mode is missing");
    if ((i->op == PTX_OP_SETP || i->op == PTX_OP_SET) && !i->compare) bad(w, "its comparison is missing");
    if ((i->op == PTX_OP_ATOM || i->op == PTX_OP_RED) &&
        ((i->vector > 1 && i->sub != PTX_SUB_ADD && i->sub != PTX_SUB_MIN && i->sub != PTX_SUB_MAX) ||
         i->space == PTX_CONST || i->space == PTX_PARAM || i->space == PTX_LOCAL))
        bad(w, "this atomic of vectors, or one in this space, is not supported");
    if ((i->op == PTX_OP_MUL || i->op == PTX_OP_MAD) && ptx_type_kind((enum ptx_type)i->type) != PTX_KIND_F &&
        ptx_type_kind((enum ptx_type)i->type) != PTX_KIND_X2 && !(i->modifiers & (PTX_M_HI | PTX_M_LO | PTX_M_WIDE)))
        bad(w, ".hi, .lo or .wide is missing");
    if (i->modifiers & PTX_M_WIDE && ptx_type_bits((enum ptx_type)i->type) > 32) bad(w, ".wide of 64 bits");
    if ((i->op == PTX_OP_CVT || i->op == PTX_OP_SET || i->op == PTX_OP_SLCT) && !i->type2)
        bad(w, "its second type is missing");
}

void ptx_check_instr(struct ptx_parser *p, struct ptx_instr *i, const struct ptx_token *at) {
    struct place w = {p, i, at, true};
    unsigned least, most;
    check_mode(w);
    bounds(i, &least, &most);
    if (i->op != PTX_OP_CALL && (i->srcs < least || i->srcs > most)) bad(w, "another number of operands is wanted");
    for (unsigned n = 0; n < i->dsts; n++) check_operand(w, &i->dst[n], n);
    w.dst = false;
    for (unsigned n = 0; n < i->srcs; n++) check_operand(w, &i->src[n], n);
}
