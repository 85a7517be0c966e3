/* The module's level of the grammar: directives, functions' heads; and what all levels use: faults, tokens. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ptx/ptx_parse.h"

/* ---- faults ---- */
static void say(struct ptx_parser *p, const struct ptx_token *at, const char *format, va_list args) {
    p->error->line = at ? at->line : 0;
    p->error->column = at ? at->column : 0;
    vsnprintf(p->error->text, sizeof p->error->text, format, args);
    for (char *c = p->error->text; *c; c++)
        if ((unsigned char)*c < ' ') *c = '?';
}

void ptx_fault(struct ptx_parser *p, const struct ptx_token *at, const char *format, ...) {
    va_list args;
    va_start(args, format);
    say(p, at, format, args);
    va_end(args);
    longjmp(p->module_fault, 1);
}

void ptx_refuse(struct ptx_parser *p, const struct ptx_token *at, const char *format, ...) {
    va_list args;
    va_start(args, format);
    say(p, at, format, args);
    va_end(args);
    longjmp(p->in_body ? p->function_fault : p->module_fault, 1);
}

void ptx_no_memory(struct ptx_parser *p) {
    *p->error = (struct ptx_error){.text = "no memory"};
    longjmp(p->module_fault, 1);
}

/* ---- tokens ---- */
static void check_token(struct ptx_parser *p) {
    const struct ptx_token *t = &p->token;
    if (t->kind != PTX_T_BAD) return;
    if (*t->text == '/') ptx_fault(p, t, "a comment has no end");
    if (*t->text == '"') ptx_fault(p, t, "a string has no end");
    ptx_fault(p, t, "unexpected character 0x%02x", (unsigned char)*t->text);
}

struct ptx_token ptx_take(struct ptx_parser *p) {
    struct ptx_token taken = p->token;
    p->token = p->next;
    if (p->next.kind != PTX_T_BAD) p->next = ptx_lex(&p->lexer);
    check_token(p);
    return taken;
}

bool ptx_is(struct ptx_parser *p, char c) {
    return p->token.kind == PTX_T_PUNCT && *p->token.text == c;
}
bool ptx_is_word(struct ptx_parser *p, const char *word) {
    return ptx_token_is(&p->token, PTX_T_WORD, word);
}

bool ptx_accept(struct ptx_parser *p, char c) {
    if (!ptx_is(p, c)) return false;
    ptx_take(p);
    return true;
}

bool ptx_accept_word(struct ptx_parser *p, const char *word) {
    if (!ptx_is_word(p, word)) return false;
    ptx_take(p);
    return true;
}

static _Noreturn void unexpected(struct ptx_parser *p, const char *wanted) {
    if (p->token.kind == PTX_T_END) ptx_fault(p, &p->token, "expected %s, found the end of the text", wanted);
    ptx_fault(p, &p->token, "expected %s, found '%s%.*s'", wanted, p->token.kind == PTX_T_WORD ? "." : "",
              p->token.length > 60 ? 60 : (int)p->token.length, p->token.text);
}

void ptx_expect(struct ptx_parser *p, char c) {
    char wanted[] = {'\'', c, '\'', 0};
    if (!ptx_accept(p, c)) unexpected(p, wanted);
}

struct ptx_token ptx_expect_name(struct ptx_parser *p) {
    if (p->token.kind != PTX_T_NAME) unexpected(p, "a name");
    return ptx_take(p);
}

uint64_t ptx_expect_integer(struct ptx_parser *p) {
    bool negative = ptx_accept(p, '-');
    enum ptx_literal literal;
    uint64_t bits;
    if (p->token.kind != PTX_T_NUMBER || !ptx_number(&p->token, &bits, &literal) || literal != PTX_LIT_INT)
        unexpected(p, "an integer");
    ptx_take(p);
    return negative ? -bits : bits;
}

void ptx_skip_line(struct ptx_parser *p) {
    int32_t line = p->token.line;
    while (p->token.kind != PTX_T_END && p->token.line == line) ptx_take(p);
}

void ptx_skip_to(struct ptx_parser *p, char c) {
    char wanted[] = {'\'', c, '\'', 0};
    while (!ptx_is(p, c)) {
        if (p->token.kind == PTX_T_END) unexpected(p, wanted);
        ptx_take(p);
    }
    ptx_take(p);
}

void ptx_skip_braces(struct ptx_parser *p) {
    int depth = 0;
    do {
        if (ptx_is(p, '{')) depth++;
        if (ptx_is(p, '}')) depth--;
        if (p->token.kind == PTX_T_END) unexpected(p, "'}'");
        ptx_take(p);
    } while (depth > 0);
}

/* ---- functions ---- */
static void three(struct ptx_parser *p, uint32_t out[3]) {
    out[0] = out[1] = out[2] = 1;
    for (int i = 0; i < 3; i++) {
        out[i] = (uint32_t)ptx_expect_integer(p);
        if (!ptx_accept(p, ',')) break;
    }
}

/* What stands between a function's parameters and its body. */
static void performance_directives(struct ptx_parser *p, struct ptx_function *f) {
    uint32_t ignored[3];
    while (p->token.kind == PTX_T_WORD) {
        if (ptx_accept_word(p, "maxntid"))
            three(p, f->max_threads);
        else if (ptx_accept_word(p, "reqntid"))
            three(p, f->required_threads);
        else if (ptx_accept_word(p, "minnctapersm"))
            f->min_blocks = (uint32_t)ptx_expect_integer(p);
        else if (ptx_accept_word(p, "pragma"))
            ptx_skip_to(p, ';');
        else if (ptx_accept_word(p, "maxnreg") || ptx_accept_word(p, "maxnctapersm") ||
                 ptx_accept_word(p, "maxclusterrank") || ptx_accept_word(p, "reqnctapercluster") ||
                 ptx_accept_word(p, "abi_preserve") || ptx_accept_word(p, "abi_preserve_control"))
            three(p, ignored);
        else if (!ptx_accept_word(p, "noreturn") && !ptx_accept_word(p, "explicitcluster") &&
                 !ptx_accept_word(p, "blocksareclusters"))
            unexpected(p, "a function's body");
    }
}

/* The function's place in the module: a declaration that came before is completed by the definition. */
static int32_t place_function(struct ptx_parser *p, const struct ptx_token *name) {
    struct ptx_symbol *known = ptx_symbol_find(&p->symbols, 0, name->text, name->length);
    if (known && known->kind != PTX_S_FUNC)
        ptx_fault(p, name, "'%.*s' is declared twice", (int)name->length, name->text);
    if (known) return known->index;
    int32_t index = p->functions.count;
    ptx_symbol_add(p, &p->symbols, name, 0, PTX_S_FUNC, index);
    struct ptx_function *f = ptx_list_add(p, &p->functions, sizeof *f);
    f->name = ptx_arena_text(p, name->text, name->length);
    f->declared_only = true;
    return index;
}

/* Parameters, then return values, each with its offset in the parameter buffer. */
static void lay_out_params(struct ptx_parser *p, struct ptx_function *f, struct ptx_list *params,
                           struct ptx_list *returns) {
    uint64_t top = 0;
    f->params = params->count;
    f->returns = returns->count;
    for (int32_t i = 0; i < returns->count; i++) {
        struct ptx_declaration *d = ptx_list_add(p, params, sizeof *d);
        *d = *PTX_AT(*returns, struct ptx_declaration, i);
    }
    for (int32_t i = 0; i < params->count; i++) {
        struct ptx_declaration *d = PTX_AT(*params, struct ptx_declaration, i);
        top = (top + d->var.align - 1) / d->var.align * d->var.align;
        d->var.offset = top;
        top += d->var.bytes;
        if (top > PTX_MAX_PARAM_BYTES) ptx_fault(p, &d->name, "parameters of over %d bytes", PTX_MAX_PARAM_BYTES);
    }
    f->param_bytes = (uint32_t)top;
}

static void begin_function(struct ptx_parser *p, struct ptx_list *params) {
    p->f_vars.count = p->regs.count = p->ranges.count = p->scopes.count = p->instrs.count = p->fixups.count = 0;
    p->target_lists.count = p->target_labels.count = p->branch_targets.count = 0;
    p->f_symbols.count = 0;
    if (p->f_symbols.room) memset(p->f_symbols.slot, 0, p->f_symbols.room * sizeof *p->f_symbols.slot);
    p->scope = 0;
    p->last_label = -1;
    p->param_top = p->param_max = p->local_top = 0;
    struct ptx_scope *outer = ptx_list_add(p, &p->scopes, sizeof *outer);
    outer->parent = -1;
    for (int32_t i = 0; i < params->count; i++) {
        const struct ptx_declaration *d = PTX_AT(*params, struct ptx_declaration, i);
        *(struct ptx_var *)ptx_list_add(p, &p->f_vars, sizeof(struct ptx_var)) = d->var;
        if (!ptx_token_is(&d->name, PTX_T_NAME, "_"))
            ptx_symbol_add(p, &p->f_symbols, &d->name, 0, PTX_S_VAR, PTX_LOCAL_VAR + i);
    }
}

static void keep_function(struct ptx_parser *p, struct ptx_function *f) {
    f->var_count = p->f_vars.count;
    f->vars = ptx_list_keep(p, &p->f_vars, sizeof *f->vars);
    f->reg_count = p->regs.count;
    f->regs = ptx_list_keep(p, &p->regs, sizeof *f->regs);
    f->instr_count = p->instrs.count;
    f->instrs = ptx_list_keep(p, &p->instrs, sizeof *f->instrs);
    f->branch_targets = ptx_list_keep(p, &p->branch_targets, sizeof *f->branch_targets);
}

/* After a fault that is the function's alone: its text is skipped, its parameters stay known. */
static void drop_body(struct ptx_parser *p, struct ptx_function *f) {
    char text[sizeof p->error->text + 40];
    snprintf(text, sizeof text, "line %d, column %d: %s", p->error->line, p->error->column, p->error->text);
    f->error = ptx_arena_text(p, text, strlen(text));
    p->regs.count = p->instrs.count = p->branch_targets.count = 0;
    p->f_vars.count = f->params + f->returns;
    p->lexer = p->body_lexer;
    p->token = p->body_token;
    p->next = p->body_next;
    ptx_skip_braces(p);
}

static void function_body(struct ptx_parser *p, int32_t index) {
    p->f = PTX_AT(p->functions, struct ptx_function, index);
    p->f->declared_only = false;
    p->body_lexer = p->lexer;
    p->body_token = p->token;
    p->body_next = p->next;
    p->in_body = true;
    if (setjmp(p->function_fault))
        drop_body(p, p->f);
    else
        ptx_parse_body(p);
    p->in_body = false;
    keep_function(p, p->f);
    if (ptx_flow(p->module, p->f)) ptx_no_memory(p);
}

static void function(struct ptx_parser *p, bool entry) {
    p->params.count = p->returns.count = 0;
    if (!entry && ptx_is(p, '(')) ptx_parse_params(p, &p->returns, false);
    struct ptx_token name = ptx_expect_name(p);
    if (ptx_is(p, '(')) ptx_parse_params(p, &p->params, entry);
    int32_t index = place_function(p, &name);
    struct ptx_function *f = PTX_AT(p->functions, struct ptx_function, index);
    struct ptx_function head = {.name = f->name, .entry = entry, .line = name.line};
    lay_out_params(p, &head, &p->params, &p->returns);
    performance_directives(p, &head);
    bool body = ptx_is(p, '{');
    if (!body) ptx_expect(p, ';');
    if (!f->declared_only) {
        if (body) ptx_fault(p, &name, "'%.*s' is defined twice", (int)name.length, name.text);
        return;
    }
    head.declared_only = true;
    *f = head;
    begin_function(p, &p->params);
    if (body)
        function_body(p, index);
    else
        keep_function(p, f);
}

/* ---- directives ---- */
static void version(struct ptx_parser *p) {
    enum ptx_literal literal;
    uint64_t bits;
    double value = 0;
    if (p->token.kind == PTX_T_NUMBER && ptx_number(&p->token, &bits, &literal) && literal == PTX_LIT_F64)
        memcpy(&value, &bits, sizeof value);
    if (!(value >= 1 && value < 1000)) unexpected(p, "a version");
    ptx_take(p);
    p->module->version = (uint32_t)(value * 10 + 0.5);
}

static void target(struct ptx_parser *p) {
    do {
        struct ptx_token t = ptx_expect_name(p);
        if (t.length < 5 || memcmp(t.text, "sm_", 3)) continue; /* debug, texmode_… */
        uint32_t sm = 0, i = 3;
        for (; i < t.length && i < 8 && t.text[i] >= '0' && t.text[i] <= '9'; i++)
            sm = sm * 10 + (uint32_t)(t.text[i] - '0');
        p->module->sm = sm;
        p->module->target_suffix = i < t.length ? t.text[i] : 0;
    } while (ptx_accept(p, ','));
}

static void address_size(struct ptx_parser *p) {
    struct ptx_token at = p->token;
    p->module->address_bits = (uint32_t)ptx_expect_integer(p);
    if (p->module->address_bits != 64) ptx_fault(p, &at, "only 64-bit addresses are supported");
}

static void section(struct ptx_parser *p) {
    ptx_take(p);
    if (!ptx_is(p, '{')) unexpected(p, "'{'");
    ptx_skip_braces(p);
}

static bool linkage(struct ptx_parser *p, struct ptx_var *link) {
    if (ptx_accept_word(p, "extern")) return link->external = true;
    if (ptx_accept_word(p, "visible")) return link->visible = true;
    return (ptx_is_word(p, "weak") || ptx_is_word(p, "common")) && (ptx_take(p), link->weak = true);
}

static void statement(struct ptx_parser *p) {
    struct ptx_var link = {0};
    if (p->token.kind == PTX_T_PUNCT && *p->token.text == '@') { /* @@DWARF of old compilers */
        ptx_skip_line(p);
        return;
    }
    while (linkage(p, &link)) {
    }
    if (ptx_accept_word(p, "version"))
        version(p);
    else if (ptx_accept_word(p, "target"))
        target(p);
    else if (ptx_accept_word(p, "address_size"))
        address_size(p);
    else if (ptx_accept_word(p, "entry"))
        function(p, true);
    else if (ptx_accept_word(p, "func")) {
        while (ptx_accept_word(p, "attribute") || ptx_accept_word(p, "noreturn"))
            if (ptx_is(p, '(')) ptx_skip_to(p, ')');
        function(p, false);
    } else if (ptx_is_word(p, "file") || ptx_is_word(p, "loc"))
        ptx_skip_line(p);
    else if (ptx_accept_word(p, "section"))
        section(p);
    else if (ptx_accept_word(p, "pragma") || ptx_accept_word(p, "alias"))
        ptx_skip_to(p, ';');
    else {
        enum ptx_space space = ptx_accept_space(p);
        if (!space) unexpected(p, "a directive");
        ptx_parse_variables(p, space, &link);
    }
}

static void parse_module(struct ptx_parser *p) {
    p->module = ptx_arena_bytes(p, sizeof *p->module);
    p->module->arena = p->arena;
    p->module->address_bits = 64;
    p->token = ptx_lex(&p->lexer);
    p->next = p->token.kind == PTX_T_BAD ? p->token : ptx_lex(&p->lexer);
    check_token(p);
    if (!ptx_is_word(p, "version")) unexpected(p, "'.version'");
    while (p->token.kind != PTX_T_END) statement(p);
    ptx_parse_finish(p);
}

static void free_work(struct ptx_parser *p) {
    struct ptx_list *lists[] = {&p->relocs, &p->vars,         &p->functions,     &p->params,        &p->returns,
                                &p->f_vars, &p->regs,         &p->ranges,        &p->scopes,        &p->instrs,
                                &p->fixups, &p->target_lists, &p->target_labels, &p->branch_targets};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) free(lists[i]->items);
    free(p->symbols.slot);
    free(p->f_symbols.slot);
}

int ptx_parse(const char *text, size_t bytes, struct ptx_module **out, struct ptx_error *error) {
    *out = NULL;
    *error = (struct ptx_error){0};
    struct ptx_parser *p = calloc(1, sizeof *p);
    if (!p) {
        *error = (struct ptx_error){.text = "no memory"};
        return -1;
    }
    if (bytes && !text[bytes - 1]) bytes--;
    p->error = error;
    ptx_lex_begin(&p->lexer, text, bytes);
    int rc = setjmp(p->module_fault) ? -1 : 0;
    if (!rc) {
        parse_module(p);
        *error = (struct ptx_error){0};
        *out = p->module;
    } else {
        ptx_arena_free(p->arena);
    }
    free_work(p);
    free(p);
    return rc;
}

void ptx_free(struct ptx_module *module) {
    if (module) ptx_arena_free(module->arena);
}
