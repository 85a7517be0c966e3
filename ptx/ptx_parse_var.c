/* Declarations of variables and parameters, and initialisers. */
#include <string.h>
#include "ptx/ptx_parse.h"

enum ptx_type ptx_type_of_word(const struct ptx_token *word) {
    for (int t = PTX_PRED; t < PTX_TYPE_COUNT; t++)
        if (ptx_token_is(word, PTX_T_WORD, ptx_type_text((enum ptx_type)t))) return (enum ptx_type)t;
    return PTX_NONE;
}

enum ptx_space ptx_accept_space(struct ptx_parser *p) {
    static const struct {
        const char *text;
        enum ptx_space space;
    } spaces[] = {{"global", PTX_GLOBAL},
                  {"shared", PTX_SHARED},
                  {"local", PTX_LOCAL},
                  {"const", PTX_CONST},
                  {"param", PTX_PARAM}};
    for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++)
        if (ptx_accept_word(p, spaces[i].text)) return spaces[i].space;
    return PTX_SPACE_NONE;
}

static uint32_t alignment(struct ptx_parser *p) {
    struct ptx_token at = p->token;
    uint64_t align = ptx_expect_integer(p);
    if (!align || align > 1 << 16 || (align & (align - 1))) ptx_fault(p, &at, "an alignment is a power of two");
    return (uint32_t)align;
}

/* .ptr .global .align 16, of a kernel's parameter: what it points to. */
static void pointer_attribute(struct ptx_parser *p, struct ptx_var *v) {
    v->is_pointer = true;
    ptx_accept_space(p);
    if (ptx_accept_word(p, "align")) alignment(p);
}

/* What may precede the name, in any order: alignment, attributes, vector, type. */
static unsigned qualifiers(struct ptx_parser *p, struct ptx_var *v) {
    unsigned vector = 1;
    while (p->token.kind == PTX_T_WORD) {
        enum ptx_type type = ptx_type_of_word(&p->token);
        if (type) {
            v->type = (uint8_t)type;
            ptx_take(p);
        } else if (ptx_accept_word(p, "align"))
            v->align = alignment(p);
        else if (ptx_accept_word(p, "v2"))
            vector = 2;
        else if (ptx_accept_word(p, "v4"))
            vector = 4;
        else if (ptx_accept_word(p, "ptr"))
            pointer_attribute(p, v);
        else if (ptx_accept_word(p, "texref") || ptx_accept_word(p, "surfref") || ptx_accept_word(p, "samplerref"))
            v->type = PTX_B64;
        else if (ptx_accept_word(p, "attribute"))
            ptx_skip_to(p, ')');
        else if (!ptx_accept_word(p, "unified"))
            ptx_fault(p, &p->token, "unknown qualifier '.%.*s'", (int)p->token.length, p->token.text);
    }
    if (!v->type || v->type == PTX_PRED) ptx_fault(p, &p->token, "a variable has a type, and none of .pred");
    return vector;
}

/* [a][b]: elements; [] is 0. */
static uint64_t dimensions(struct ptx_parser *p, bool *is_array) {
    uint64_t elements = 1;
    while (ptx_is(p, '[')) {
        struct ptx_token at = ptx_take(p);
        uint64_t n = ptx_is(p, ']') ? 0 : ptx_expect_integer(p);
        ptx_expect(p, ']');
        if (n && elements > ((uint64_t)1 << 44) / n) ptx_fault(p, &at, "an array that is too large");
        elements *= n;
        *is_array = true;
    }
    return elements;
}

/* ---- initialisers ---- */
struct initialiser {
    struct ptx_declaration *d;
    unsigned char *bytes;
    uint64_t at, element;
};

static void put(struct ptx_parser *p, struct initialiser *in, uint64_t bits, const struct ptx_token *token) {
    if (in->at + in->element > in->d->var.bytes) ptx_fault(p, token, "more initialisers than elements");
    for (uint64_t i = 0; i < in->element && i < 8; i++) in->bytes[in->at + i] = (unsigned char)(bits >> 8 * i);
    in->at += in->element;
}

/* name, name+4, generic(name), generic(name)+4. */
static struct ptx_reloc address(struct ptx_parser *p) {
    struct ptx_reloc r = {.var = -1, .func = -1};
    struct ptx_token name = ptx_expect_name(p);
    if (ptx_token_is(&name, PTX_T_NAME, "generic") && ptx_accept(p, '(')) {
        r.generic = true;
        name = ptx_expect_name(p);
        if (!ptx_is(p, ')')) r.offset = (int64_t)(ptx_accept(p, '+'), ptx_expect_integer(p));
        ptx_expect(p, ')');
    }
    struct ptx_symbol *s = ptx_find_symbol(p, &name);
    if (!s || (s->kind != PTX_S_VAR && s->kind != PTX_S_FUNC) || s->index >= PTX_LOCAL_VAR)
        ptx_fault(p, &name, "'%.*s' is not declared", (int)name.length, name.text);
    *(s->kind == PTX_S_VAR ? &r.var : &r.func) = s->index;
    if (ptx_is(p, '+') || ptx_is(p, '-')) {
        ptx_accept(p, '+');
        r.offset += (int64_t)ptx_expect_integer(p);
    }
    return r;
}

static void add_reloc(struct ptx_parser *p, struct initialiser *in, struct ptx_reloc r, const struct ptx_token *at) {
    if (in->at + 8 > in->d->var.bytes) ptx_fault(p, at, "an address does not fit here");
    r.at = (uint32_t)in->at;
    *(struct ptx_reloc *)ptx_list_add(p, &p->relocs, sizeof r) = r;
}

/* 0xFF00(address): one byte of an address; nvcc writes all eight in turn. */
static void masked_address(struct ptx_parser *p, struct initialiser *in, uint64_t mask, const struct ptx_token *at) {
    ptx_expect(p, '(');
    struct ptx_reloc r = address(p);
    ptx_expect(p, ')');
    unsigned byte = 0;
    while (byte < 8 && mask != (uint64_t)0xFF << 8 * byte) byte++;
    int32_t n = p->relocs.count;
    struct ptx_reloc *last = n ? PTX_AT(p->relocs, struct ptx_reloc, n - 1) : NULL;
    if (in->element == 1 && byte == 0)
        add_reloc(p, in, r, at);
    else if (in->element != 1 || byte > 7 || !last || last->at + byte != in->at || last->var != r.var ||
             last->func != r.func || last->offset != r.offset)
        ptx_fault(p, at, "a masked address of a form that is not supported");
    put(p, in, 0, at);
}

static void scalar(struct ptx_parser *p, struct initialiser *in) {
    bool negative = ptx_accept(p, '-');
    struct ptx_token at = p->token;
    if (at.kind != PTX_T_NUMBER) {
        struct ptx_reloc r = address(p);
        if (in->element != 8) ptx_fault(p, &at, "an address in a variable that is not of 64 bits");
        add_reloc(p, in, r, &at);
        put(p, in, 0, &at);
        return;
    }
    enum ptx_literal literal;
    uint64_t bits;
    if (!ptx_number(&at, &bits, &literal)) ptx_fault(p, &at, "not a number: '%.*s'", (int)at.length, at.text);
    ptx_take(p);
    if (literal == PTX_LIT_INT && ptx_is(p, '(')) {
        masked_address(p, in, bits, &at);
        return;
    }
    bits = ptx_literal_bits((enum ptx_type)in->d->var.type, bits, literal, negative);
    put(p, in, bits, &at);
}

static void values(struct ptx_parser *p, struct initialiser *in, int depth) {
    if (!ptx_accept(p, '{')) {
        scalar(p, in);
        return;
    }
    if (depth > 8) ptx_fault(p, &p->token, "initialisers nested too deeply");
    if (ptx_accept(p, '}')) return;
    do values(p, in, depth + 1);
    while (ptx_accept(p, ','));
    ptx_expect(p, '}');
}

static void initialise(struct ptx_parser *p, struct ptx_declaration *d) {
    struct initialiser in = {.d = d, .element = ptx_type_bytes((enum ptx_type)d->var.type)};
    if (d->var.bytes > PTX_MAX_INIT_BYTES - p->init_bytes)
        ptx_fault(p, &d->name, "initialisers of over %d bytes", PTX_MAX_INIT_BYTES);
    p->init_bytes += d->var.bytes;
    p->relocs.count = 0;
    in.bytes = ptx_arena_bytes(p, d->var.bytes);
    values(p, &in, 0);
    d->var.init = in.bytes;
    d->var.reloc_count = (uint32_t)p->relocs.count;
    d->var.relocs = ptx_list_keep(p, &p->relocs, sizeof *d->var.relocs);
}

/* ---- declarations ---- */
static void declare(struct ptx_parser *p, struct ptx_declaration *d, unsigned vector) {
    uint64_t element = (uint64_t)ptx_type_bytes((enum ptx_type)d->var.type) * vector;
    d->name = ptx_expect_name(p);
    d->var.name = ptx_arena_text(p, d->name.text, d->name.length);
    d->var.bytes = element * dimensions(p, &d->is_array);
    if (!d->var.align) d->var.align = (uint32_t)element;
}

/* A second declaration completes an .extern one. */
static void complete(struct ptx_parser *p, int32_t index, const struct ptx_declaration *d) {
    struct ptx_var *known = PTX_AT(p->vars, struct ptx_var, index);
    if (known->space != d->var.space || (!known->external && !d->var.external))
        ptx_fault(p, &d->name, "'%.*s' is declared twice", (int)d->name.length, d->name.text);
    if (known->external) *known = d->var;
}

int32_t ptx_add_module_var(struct ptx_parser *p, const struct ptx_declaration *d, int32_t scope) {
    int32_t index = p->vars.count;
    struct ptx_symbol *known = scope < 0 ? ptx_symbol_find(&p->symbols, 0, d->name.text, d->name.length) : NULL;
    if (known && known->kind == PTX_S_VAR) {
        complete(p, known->index, d);
        return known->index;
    }
    if (scope < 0)
        ptx_symbol_add(p, &p->symbols, &d->name, 0, PTX_S_VAR, index);
    else
        ptx_symbol_add(p, &p->f_symbols, &d->name, scope, PTX_S_VAR, index);
    *(struct ptx_var *)ptx_list_add(p, &p->vars, sizeof(struct ptx_var)) = d->var;
    return index;
}

/* Shared, global and const variables declared in a function live as long as those of the module, and belong to it. */
static void add_variable(struct ptx_parser *p, struct ptx_declaration *d) {
    bool own = d->var.space == PTX_LOCAL || d->var.space == PTX_PARAM;
    if (!own) {
        ptx_add_module_var(p, d, p->in_body ? p->scope : -1);
        return;
    }
    if (!p->in_body) ptx_fault(p, &d->name, "a .local or .param variable outside of a function");
    uint32_t *top = d->var.space == PTX_LOCAL ? &p->local_top : &p->param_top;
    uint64_t offset = ((uint64_t)*top + d->var.align - 1) & ~(uint64_t)(d->var.align - 1);
    if (offset + d->var.bytes > PTX_MAX_LOCAL_BYTES || d->var.bytes > PTX_MAX_LOCAL_BYTES)
        ptx_refuse(p, &d->name, "local memory of over %d bytes", PTX_MAX_LOCAL_BYTES);
    d->var.offset = offset;
    *top = (uint32_t)(offset + d->var.bytes);
    if (p->param_top > p->param_max) p->param_max = p->param_top;
    ptx_symbol_add(p, &p->f_symbols, &d->name, p->scope, PTX_S_VAR, PTX_LOCAL_VAR + p->f_vars.count);
    *(struct ptx_var *)ptx_list_add(p, &p->f_vars, sizeof(struct ptx_var)) = d->var;
}

void ptx_parse_variables(struct ptx_parser *p, enum ptx_space space, const struct ptx_var *linkage) {
    struct ptx_declaration base = {.var = *linkage}, d;
    base.var.space = (uint8_t)space;
    if (ptx_accept(p, '[')) { /* .const[bank] of old compilers */
        ptx_expect_integer(p);
        ptx_expect(p, ']');
    }
    unsigned vector = qualifiers(p, &base.var);
    do {
        d = base;
        declare(p, &d, vector);
        if (ptx_accept(p, '=')) initialise(p, &d);
        add_variable(p, &d);
    } while (ptx_accept(p, ','));
    ptx_expect(p, ';');
}

void ptx_parse_params(struct ptx_parser *p, struct ptx_list *params, bool entry) {
    ptx_expect(p, '(');
    if (ptx_accept(p, ')')) return;
    do {
        struct ptx_declaration d = {.var = {.space = PTX_PARAM}};
        if (ptx_is_word(p, "reg")) ptx_fault(p, &p->token, "parameters in registers are not supported");
        if (!ptx_accept_word(p, "param")) ptx_fault(p, &p->token, "expected '.param'");
        unsigned vector = qualifiers(p, &d.var);
        declare(p, &d, vector);
        if (entry && d.is_array && !d.var.bytes) ptx_fault(p, &d.name, "a kernel's parameter without a size");
        *(struct ptx_declaration *)ptx_list_add(p, params, sizeof d) = d;
    } while (ptx_accept(p, ','));
    ptx_expect(p, ')');
}
