/* Instructions with shapes of their own: which they are, their modifiers, and what all of them need. */
#include <stdio.h>
#include <string.h>
#include "ptx/ptx_parse_special.h"

/* ---- modifiers ---- */
bool ptx_has_word(const struct ptx_special *s, const char *text) {
    for (unsigned n = 0; n < s->words; n++)
        if (ptx_token_is(&s->word[n], PTX_T_WORD, text)) return true;
    return false;
}

bool ptx_among(const struct ptx_token *t, const char *allowed) {
    for (const char *at = allowed; *at; at += strspn(at, " ")) {
        size_t length = strcspn(at, " ");
        if (length == t->length && !memcmp(at, t->text, length)) return true;
        at += length;
    }
    return false;
}

void ptx_not_supported(const struct ptx_special *s) {
    char name[120];
    size_t n = (size_t)snprintf(name, sizeof name, "%s", ptx_ops[s->op].text);
    for (unsigned k = 0; k < s->words && n + s->word[k].length + 2 < sizeof name; k++)
        n += (size_t)snprintf(name + n, sizeof name - n, ".%.*s", (int)s->word[k].length, s->word[k].text);
    ptx_refuse(s->p, &s->at, "'%s' is not supported", name);
}

void ptx_only_words(const struct ptx_special *s, unsigned from, const char *allowed) {
    for (unsigned n = from; n < s->words; n++)
        if (!ptx_among(&s->word[n], allowed)) ptx_not_supported(s);
}

bool ptx_shape(const struct ptx_special *s, unsigned *m, unsigned *n, unsigned *k) {
    for (unsigned w = 0; w < s->words; w++) {
        char text[16] = "", end;
        if (s->word[w].length >= sizeof text) continue;
        memcpy(text, s->word[w].text, s->word[w].length);
        *m = *n = *k = 0;
        if (sscanf(text, "m%3un%3uk%3u%c", m, n, k, &end) == 3 && *m && *n && *k) return true;
    }
    return false;
}

enum ptx_matrix_type ptx_matrix_word(const struct ptx_special *s, unsigned which) {
#define MATRIX_TEXT(N, text, bits, kind) [PTX_MX_##N] = text,
    static const char *const texts[PTX_MX_COUNT] = {PTX_MATRIX_TYPES(MATRIX_TEXT)};
    for (unsigned w = 0; w < s->words; w++)
        for (int t = PTX_MX_NONE + 1; t < PTX_MX_COUNT; t++)
            if (ptx_token_is(&s->word[w], PTX_T_WORD, texts[t]) && !which--) return (enum ptx_matrix_type)t;
    return PTX_MX_NONE;
}

enum ptx_space ptx_space_word(const struct ptx_special *s) {
    if (ptx_has_word(s, "global")) return PTX_GLOBAL;
    bool shared = ptx_has_word(s, "shared") || ptx_has_word(s, "shared::cta") || ptx_has_word(s, "shared::cluster");
    return shared ? PTX_SHARED : PTX_GENERIC;
}

/* ---- operands ---- */
struct ptx_operand ptx_next_operand(struct ptx_special *s, bool first) {
    struct ptx_operand o;
    if (!first) ptx_expect(s->p, ',');
    ptx_parse_operand(s->p, &o);
    return o;
}

static bool has_bits(const struct ptx_special *s, const struct ptx_operand *o, unsigned bits) {
    enum ptx_type type =
        o->kind == PTX_REG ? (enum ptx_type)PTX_AT(s->p->regs, struct ptx_reg, o->reg)->type : PTX_NONE;
    return type && type != PTX_PRED && !o->negated && ptx_type_bits(type) == bits;
}

unsigned ptx_register_count(const struct ptx_operand *o) {
    return o->kind == PTX_VECTOR ? o->count : 1;
}

void ptx_want_registers(const struct ptx_special *s, const struct ptx_operand *o, unsigned bits) {
    bool all = o->kind == PTX_REG || o->kind == PTX_VECTOR;
    for (unsigned k = 0; k < ptx_register_count(o) && all; k++)
        all = has_bits(s, o->kind == PTX_VECTOR ? &o->elements[k] : o, bits);
    if (!all) ptx_refuse(s->p, &s->at, "%s: registers of %u bits are wanted", ptx_ops[s->op].text, bits);
}

void ptx_want_number(const struct ptx_special *s, const struct ptx_operand *o, unsigned bits) {
    if (o->kind != PTX_IMM && !has_bits(s, o, bits))
        ptx_refuse(s->p, &s->at, "%s: a number of %u bits is wanted", ptx_ops[s->op].text, bits);
}

/* ---- instructions ---- */
struct ptx_instr *ptx_emit(struct ptx_special *s, enum ptx_op op, enum ptx_type type, const struct ptx_operand *dst,
                           unsigned dsts, const struct ptx_operand *src, unsigned srcs) {
    struct ptx_instr i = {.op = (uint8_t)op,
                          .type = (uint8_t)type,
                          .vector = 1,
                          .dsts = (uint8_t)dsts,
                          .srcs = (uint8_t)srcs,
                          .guard = s->guard ? s->guard->reg : -1,
                          .guard_negated = s->guard && s->guard->negated,
                          .helper = s->counted,
                          .callee = -1,
                          .target = -1,
                          .line = s->at.line,
                          .column = s->at.column};
    i.dst = ptx_keep_operands(s->p, dst, dsts);
    i.src = ptx_keep_operands(s->p, src, srcs);
    s->counted = true;
    struct ptx_instr *kept = ptx_list_add(s->p, &s->p->instrs, sizeof i);
    *kept = i;
    return kept;
}

struct ptx_operand ptx_temporary(struct ptx_special *s, enum ptx_type type) {
    int32_t index = s->p->regs.count;
    if (index == PTX_MAX_REGS) ptx_refuse(s->p, &s->at, "over %d registers", PTX_MAX_REGS);
    struct ptx_reg *r = ptx_list_add(s->p, &s->p->regs, sizeof *r);
    *r = (struct ptx_reg){.name = "%helper", .type = (uint8_t)type};
    return (struct ptx_operand){.kind = PTX_REG, .reg = index, .var = -1, .func = -1};
}

struct ptx_operand ptx_compute(struct ptx_special *s, enum ptx_op op, enum ptx_type type, uint32_t modifiers,
                               const struct ptx_operand *a, const struct ptx_operand *b) {
    struct ptx_operand src[2] = {*a, b ? *b : *a}, to = ptx_temporary(s, type);
    const struct ptx_operand *guard = s->guard;
    bool counted = s->counted;
    s->guard = NULL;
    s->counted = true;
    ptx_emit(s, op, type, &to, 1, src, b ? 2 : 1)->modifiers = modifiers;
    s->guard = guard;
    s->counted = counted;
    return to;
}

/* ---- the simple ones ---- */
/* A block is a cluster of its own: its rank is 0, and its shared memory lies where it is. */
static void moved(struct ptx_special *s, bool source) {
    struct ptx_operand to = ptx_next_operand(s, true), from = ptx_next_operand(s, false);
    unsigned bits = ptx_has_word(s, "u64") || ptx_has_word(s, "b64") ? 64 : 32;
    while (ptx_accept(s->p, ',')) ptx_parse_operand(s->p, &(struct ptx_operand){0});
    ptx_want_registers(s, &to, bits);
    if (to.kind == PTX_VECTOR) ptx_not_supported(s);
    if (source)
        ptx_want_registers(s, &from, bits);
    else
        from = ptx_immediate(0);
    ptx_emit(s, PTX_OP_MOV, bits == 64 ? PTX_B64 : PTX_B32, &to, 1, &from, 1);
}

static void take_words(struct ptx_special *s) {
    while (s->p->token.kind == PTX_T_WORD) {
        if (s->words == PTX_MAX_MODIFIERS) ptx_refuse(s->p, &s->at, "%s: too many modifiers", ptx_ops[s->op].text);
        s->word[s->words++] = ptx_take(s->p);
    }
}

/* All threads of the cluster, which is the block: they have arrived when they wait. */
static bool cluster_barrier(struct ptx_special *s) {
    struct ptx_operand number = ptx_immediate(15);
    if (!ptx_is_word(s->p, "cluster")) return false;
    take_words(s);
    if (ptx_has_word(s, "wait"))
        ptx_emit(s, PTX_OP_BAR, PTX_NONE, NULL, 0, &number, 1)->sub = PTX_SUB_BAR_SYNC;
    else
        ptx_emit(s, PTX_OP_FENCE, PTX_NONE, NULL, 0, NULL, 0);
    return true;
}

bool ptx_parse_special(struct ptx_parser *p, enum ptx_op op, const struct ptx_token *opcode,
                       const struct ptx_operand *guard) {
    struct ptx_special s = {.p = p, .at = *opcode, .op = op, .guard = guard};
    switch (op) {
    case PTX_OP_MMA:
    case PTX_OP_WGMMA:
    case PTX_OP_WMMA:
        take_words(&s);
        if (s.words && (ptx_has_word(&s, "load") || ptx_has_word(&s, "store")))
            ptx_special_fragment(&s);
        else
            ptx_special_matrix(&s);
        break;
    case PTX_OP_LDMATRIX:
    case PTX_OP_STMATRIX:
    case PTX_OP_MOVMATRIX:
        take_words(&s);
        ptx_special_rows(&s);
        break;
    case PTX_OP_CP:
        take_words(&s);
        ptx_special_copy(&s);
        break;
    case PTX_OP_MBARRIER:
        take_words(&s);
        ptx_special_mbarrier(&s);
        break;
    case PTX_OP_CREATEPOLICY:
    case PTX_OP_GETCTARANK:
    case PTX_OP_MAPA:
        take_words(&s);
        moved(&s, op == PTX_OP_MAPA);
        break;
    case PTX_OP_BARRIER:
        if (!cluster_barrier(&s)) return false;
        break;
    case PTX_OP_ST:
    case PTX_OP_RED:
        if (!ptx_is_word(p, "async")) return false;
        ptx_special_copy(&s);
        break;
    default:
        return false;
    }
    ptx_expect(p, ';');
    return true;
}
