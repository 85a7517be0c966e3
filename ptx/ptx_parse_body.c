/* A function's body: scopes, registers, labels; and at its end the addresses that were not known before. */
#include <stdio.h>
#include <string.h>
#include "ptx/ptx_parse.h"

/* ---- names ---- */
static int32_t parent(struct ptx_parser *p, int32_t scope) {
    return PTX_AT(p->scopes, struct ptx_scope, scope)->parent;
}

static struct ptx_symbol *find_from(struct ptx_parser *p, int32_t scope, const struct ptx_token *name) {
    for (; scope >= 0; scope = parent(p, scope)) {
        struct ptx_symbol *s = ptx_symbol_find(&p->f_symbols, scope, name->text, name->length);
        if (s) return s;
    }
    return NULL;
}

struct ptx_symbol *ptx_find_symbol(struct ptx_parser *p, const struct ptx_token *name) {
    struct ptx_symbol *s = p->in_body ? find_from(p, p->scope, name) : NULL;
    return s ? s : ptx_symbol_find(&p->symbols, 0, name->text, name->length);
}

static int32_t new_register(struct ptx_parser *p, const struct ptx_token *name, int32_t scope, uint8_t type) {
    int32_t index = p->regs.count;
    if (index == PTX_MAX_REGS) ptx_refuse(p, name, "over %d registers", PTX_MAX_REGS);
    struct ptx_reg *r = ptx_list_add(p, &p->regs, sizeof *r);
    r->name = ptx_arena_text(p, name->text, name->length);
    r->type = type;
    ptx_symbol_add(p, &p->f_symbols, name, scope, PTX_S_REG, index);
    return index;
}

/* %r12 of .reg .b32 %r<20>: a number after the range's name. */
static bool in_range(const struct ptx_range *r, const struct ptx_token *name) {
    uint64_t n = 0;
    if (name->length <= r->length || name->length > r->length + 9 || memcmp(name->text, r->name, r->length))
        return false;
    const char *digits = name->text + r->length, *end = name->text + name->length;
    if (*digits == '0' && end - digits > 1) return false;
    for (; digits < end; digits++) {
        if (*digits < '0' || *digits > '9') return false;
        n = n * 10 + (uint64_t)(*digits - '0');
    }
    return n < r->count;
}

/* Registers of a range come into being when they are first named: a function has those that it uses. */
int32_t ptx_find_reg(struct ptx_parser *p, const struct ptx_token *name) {
    for (int32_t scope = p->scope; scope >= 0; scope = parent(p, scope)) {
        struct ptx_symbol *s = ptx_symbol_find(&p->f_symbols, scope, name->text, name->length);
        if (s) return s->kind == PTX_S_REG ? s->index : -1;
        for (int32_t i = 0; i < p->ranges.count; i++) {
            const struct ptx_range *r = PTX_AT(p->ranges, struct ptx_range, i);
            if (r->scope == scope && in_range(r, name)) return new_register(p, name, scope, r->type);
        }
    }
    return -1;
}

/* ---- declarations ---- */
static void registers(struct ptx_parser *p) {
    struct ptx_token word = ptx_take(p);
    enum ptx_type type = ptx_type_of_word(&word);
    if (!type) ptx_refuse(p, &word, "registers of type '.%.*s' are not supported", (int)word.length, word.text);
    do {
        struct ptx_token name = ptx_expect_name(p);
        if (!ptx_accept(p, '<')) {
            new_register(p, &name, p->scope, (uint8_t)type);
            continue;
        }
        struct ptx_range *r = ptx_list_add(p, &p->ranges, sizeof *r);
        uint64_t count = ptx_expect_integer(p);
        *r = (struct ptx_range){name.text, name.length, count > UINT32_MAX ? UINT32_MAX : (uint32_t)count, p->scope,
                                (uint8_t)type};
        ptx_expect(p, '>');
        if (p->ranges.count > 1000) ptx_refuse(p, &name, "over 1000 declarations of register ranges");
    } while (ptx_accept(p, ','));
    ptx_expect(p, ';');
}

static void branch_targets(struct ptx_parser *p, const struct ptx_token *name) {
    struct ptx_targets *list = ptx_list_add(p, &p->target_lists, sizeof *list);
    *list = (struct ptx_targets){.first = p->target_labels.count, .scope = p->scope};
    ptx_symbol_add(p, &p->f_symbols, name, p->scope, PTX_S_TARGETS, p->target_lists.count - 1);
    do {
        struct ptx_token label = ptx_expect_name(p);
        *(struct ptx_token *)ptx_list_add(p, &p->target_labels, sizeof label) = label;
        list->count++;
    } while (ptx_accept(p, ','));
    ptx_expect(p, ';');
}

static void label(struct ptx_parser *p, const struct ptx_token *name) {
    if (ptx_accept_word(p, "branchtargets"))
        branch_targets(p, name);
    else if (ptx_accept_word(p, "callprototype") || ptx_accept_word(p, "calltargets"))
        ptx_skip_to(p, ';');
    else {
        ptx_symbol_add(p, &p->f_symbols, name, p->scope, PTX_S_LABEL, p->instrs.count);
        p->last_label = p->instrs.count;
    }
}

static void directive(struct ptx_parser *p) {
    struct ptx_var link = {0};
    if (ptx_accept_word(p, "reg")) {
        registers(p);
    } else if (ptx_is_word(p, "loc") || ptx_is_word(p, "file")) {
        ptx_skip_line(p);
    } else if (ptx_accept_word(p, "pragma")) {
        ptx_skip_to(p, ';');
    } else {
        struct ptx_token word = p->token;
        link.external = ptx_accept_word(p, "extern");
        enum ptx_space space = ptx_accept_space(p);
        if (!space) ptx_refuse(p, &word, "unknown directive '.%.*s'", (int)word.length, word.text);
        ptx_parse_variables(p, space, &link);
    }
}

/* ---- scopes and statements ---- */
static void open_scope(struct ptx_parser *p, int depth) {
    struct ptx_token at = ptx_take(p);
    if (depth > PTX_MAX_SCOPES) ptx_refuse(p, &at, "scopes nested over %d deep", PTX_MAX_SCOPES);
    struct ptx_scope *s = ptx_list_add(p, &p->scopes, sizeof *s);
    *s = (struct ptx_scope){.parent = p->scope, .param_top = p->param_top};
    p->scope = p->scopes.count - 1;
}

/* Memory of a call's parameters is free again behind the call's scope. */
static void close_scope(struct ptx_parser *p) {
    const struct ptx_scope *s = PTX_AT(p->scopes, struct ptx_scope, p->scope);
    int32_t closed = p->scope;
    p->param_top = s->param_top;
    p->scope = s->parent;
    while (p->ranges.count && PTX_AT(p->ranges, struct ptx_range, p->ranges.count - 1)->scope == closed)
        p->ranges.count--;
}

static void guarded(struct ptx_parser *p) {
    struct ptx_operand guard;
    struct ptx_token at = ptx_take(p);
    ptx_parse_operand(p, &guard);
    if (guard.kind != PTX_REG || PTX_AT(p->regs, struct ptx_reg, guard.reg)->type != PTX_PRED)
        ptx_refuse(p, &at, "a guard must be a predicate");
    struct ptx_token opcode = ptx_expect_name(p);
    ptx_parse_instr(p, &opcode, &guard);
}

static void statement(struct ptx_parser *p) {
    if (p->token.kind == PTX_T_WORD) {
        directive(p);
    } else if (ptx_is(p, '@')) {
        guarded(p);
    } else if (!ptx_accept(p, ';')) {
        struct ptx_token name = ptx_expect_name(p);
        if (ptx_accept(p, ':'))
            label(p, &name);
        else
            ptx_parse_instr(p, &name, NULL);
    }
}

/* ---- the end: labels, offsets ---- */
static int32_t resolve(struct ptx_parser *p, int32_t scope, const struct ptx_token *name) {
    struct ptx_symbol *s = find_from(p, scope, name);
    if (!s || s->kind != PTX_S_LABEL) ptx_refuse(p, name, "no label '%.*s'", (int)name->length, name->text);
    return s->index;
}

static void resolve_list(struct ptx_parser *p, const struct ptx_fixup *fix, struct ptx_instr *i) {
    struct ptx_symbol *s = find_from(p, fix->scope, &fix->label);
    if (!s || s->kind != PTX_S_TARGETS)
        ptx_refuse(p, &fix->label, "no .branchtargets '%.*s'", (int)fix->label.length, fix->label.text);
    const struct ptx_targets *list = PTX_AT(p->target_lists, struct ptx_targets, s->index);
    i->targets0 = p->branch_targets.count;
    i->targets = list->count;
    if (list->count > 1 << 20 || p->branch_targets.count > 1 << 22)
        ptx_refuse(p, &fix->label, "too many branch targets");
    for (int32_t n = 0; n < list->count; n++) {
        int32_t target = resolve(p, list->scope, PTX_AT(p->target_labels, struct ptx_token, list->first + n));
        *(int32_t *)ptx_list_add(p, &p->branch_targets, sizeof target) = target;
    }
}

static void resolve_branches(struct ptx_parser *p) {
    for (int32_t n = 0; n < p->fixups.count; n++) {
        const struct ptx_fixup *fix = PTX_AT(p->fixups, struct ptx_fixup, n);
        struct ptx_instr *i = PTX_AT(p->instrs, struct ptx_instr, fix->instr);
        if (i->op == PTX_OP_BRX)
            resolve_list(p, fix, i);
        else
            i->target = resolve(p, fix->scope, &fix->label);
    }
}

/* Control that runs off the end returns; so every label has an instruction behind it. */
static void final_return(struct ptx_parser *p) {
    int32_t n = p->instrs.count;
    if (n && p->last_label < n && ptx_is_end(PTX_AT(p->instrs, struct ptx_instr, n - 1))) return;
    struct ptx_instr *i = ptx_list_add(p, &p->instrs, sizeof *i);
    *i = (struct ptx_instr){.op = PTX_OP_RET,
                            .guard = -1,
                            .callee = -1,
                            .target = -1,
                            .vector = 1,
                            .line = p->token.line,
                            .column = p->token.column};
}

/* Parameters of calls lie behind the local variables. */
static void place_call_params(struct ptx_parser *p) {
    uint64_t base = ((uint64_t)p->local_top + 15) & ~15ull;
    for (int32_t n = p->f->params + p->f->returns; n < p->f_vars.count; n++) {
        struct ptx_var *v = PTX_AT(p->f_vars, struct ptx_var, n);
        if (v->align > 16) base = (base + v->align - 1) & ~(uint64_t)(v->align - 1);
    }
    for (int32_t n = p->f->params + p->f->returns; n < p->f_vars.count; n++) {
        struct ptx_var *v = PTX_AT(p->f_vars, struct ptx_var, n);
        if (v->space == PTX_PARAM) v->offset += base;
    }
    p->f->local_bytes = (uint32_t)((base + p->param_max + 15) & ~15ull);
}

void ptx_parse_body(struct ptx_parser *p) {
    int depth = 1;
    ptx_expect(p, '{');
    while (depth) {
        if (ptx_is(p, '{')) {
            open_scope(p, depth++);
        } else if (ptx_is(p, '}')) {
            if (--depth == 0) break;
            ptx_take(p);
            close_scope(p);
        } else {
            statement(p);
        }
    }
    final_return(p);
    ptx_take(p);
    resolve_branches(p);
    place_call_params(p);
}
