/* What is known only when all functions are: final numbers of variables, shared memory and properties with those of
 * callees, and the faults of callees. And the look-ups in a finished module. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ptx/ptx_parse.h"

/* ---- numbers ---- */
static void renumber(struct ptx_operand *o, unsigned count, int32_t base) {
    for (unsigned n = 0; n < count; n++) {
        if (o[n].var >= PTX_LOCAL_VAR) o[n].var += base - PTX_LOCAL_VAR;
        if (o[n].kind == PTX_VECTOR) renumber(o[n].elements, o[n].count, base);
    }
}

static void renumber_function(struct ptx_function *f, int32_t base) {
    for (int32_t n = 0; n < f->instr_count; n++) {
        renumber(f->instrs[n].dst, f->instrs[n].dsts, base);
        renumber(f->instrs[n].src, f->instrs[n].srcs, base);
    }
}

/* ---- what a function uses: itself, then with its callees ---- */
struct uses {
    struct ptx_parser *p;
    struct ptx_module *m;
    size_t words;           /* 64 variables each */
    uint64_t *shared;       /* functions × words: shared variables */
    unsigned char *address; /* of functions: may be called through a pointer */
};

static void note(struct uses *u, uint64_t *shared, const struct ptx_operand *o, unsigned count) {
    for (unsigned n = 0; n < count; n++) {
        if (o[n].func >= 0) u->address[o[n].func] = 1;
        if (o[n].kind == PTX_VECTOR) note(u, shared, o[n].elements, o[n].count);
        if (o[n].var < 0 || o[n].var >= u->m->var_count || u->m->vars[o[n].var].space != PTX_SHARED) continue;
        shared[o[n].var / 64] |= 1ull << o[n].var % 64;
    }
}

static void note_function(struct uses *u, int32_t index) {
    struct ptx_function *f = &u->m->functions[index];
    uint64_t *shared = u->shared + (size_t)index * u->words;
    for (int32_t n = 0; n < f->instr_count; n++) {
        const struct ptx_instr *i = &f->instrs[n];
        f->properties |= i->sub == PTX_SUB_BAR_WARP ? PTX_P_WARP : ptx_ops[i->op].properties;
        note(u, shared, i->dst, i->dsts);
        note(u, shared, i->src, i->srcs);
    }
}

static bool join(struct uses *u, int32_t into, int32_t from) {
    struct ptx_function *f = &u->m->functions[into], *callee = &u->m->functions[from];
    uint64_t *a = u->shared + (size_t)into * u->words, *b = u->shared + (size_t)from * u->words;
    bool changed = (f->properties | callee->properties) != f->properties;
    f->properties |= callee->properties;
    for (size_t w = 0; w < u->words; w++) {
        changed |= (a[w] | b[w]) != a[w];
        a[w] |= b[w];
    }
    if (!callee->error || f->error) return changed;
    char text[256];
    snprintf(text, sizeof text, "calls %.60s: %.180s", callee->name, callee->error);
    f->error = ptx_arena_text(u->p, text, strlen(text));
    return true;
}

static bool join_callees(struct uses *u, int32_t index) {
    const struct ptx_function *f = &u->m->functions[index];
    bool changed = false;
    for (int32_t n = 0; n < f->instr_count; n++) {
        const struct ptx_instr *i = &f->instrs[n];
        if (i->op != PTX_OP_CALL) continue;
        if (i->callee >= 0) changed |= join(u, index, i->callee);
        for (int32_t g = 0; i->callee < 0 && g < u->m->function_count; g++)
            if (u->address[g] && !u->m->functions[g].entry) changed |= join(u, index, g);
    }
    return changed;
}

/* ---- shared memory ---- */
static bool uses_var(const struct uses *u, int32_t index, int32_t var) {
    return u->shared[(size_t)index * u->words + (size_t)var / 64] >> var % 64 & 1;
}

static void place_shared(struct uses *u, int32_t index) {
    struct ptx_function *f = &u->m->functions[index];
    uint64_t top = 0;
    uint32_t dynamic_align = 1;
    for (int32_t v = 0; v < u->m->var_count; v++) f->shared_count += uses_var(u, index, v);
    if (!f->shared_count) return;
    f->shared = ptx_arena_bytes(u->p, (size_t)f->shared_count * sizeof *f->shared);
    int32_t n = 0;
    for (int32_t v = 0; v < u->m->var_count; v++) {
        const struct ptx_var *var = &u->m->vars[v];
        if (!uses_var(u, index, v)) continue;
        if (var->external) {
            if (var->align > dynamic_align) dynamic_align = var->align;
        } else {
            top = (top + var->align - 1) & ~(uint64_t)(var->align - 1);
        }
        f->shared[n++] = (struct ptx_shared_use){v, top};
        if (!var->external) top += var->bytes;
        if (top > 1 << 24) ptx_fault(u->p, NULL, "shared memory of over 16 MiB in %s", f->name);
    }
    top = (top + dynamic_align - 1) & ~(uint64_t)(dynamic_align - 1);
    for (n = 0; n < f->shared_count; n++)
        if (u->m->vars[f->shared[n].var].external) f->shared[n].offset = top;
    f->shared_bytes = (uint32_t)top;
}

void ptx_parse_finish(struct ptx_parser *p) {
    struct ptx_module *m = p->module;
    m->var_count = p->vars.count;
    m->vars = ptx_list_keep(p, &p->vars, sizeof *m->vars);
    m->function_count = p->functions.count;
    m->functions = ptx_list_keep(p, &p->functions, sizeof *m->functions);
    struct uses u = {.p = p, .m = m, .words = (size_t)m->var_count / 64 + 1};
    u.shared = ptx_arena_bytes(p, (size_t)(m->function_count + 1) * u.words * sizeof *u.shared);
    u.address = ptx_arena_bytes(p, (size_t)m->function_count + 1);
    for (int32_t v = 0; v < m->var_count; v++)
        for (uint32_t r = 0; r < m->vars[v].reloc_count; r++)
            if (m->vars[v].relocs[r].func >= 0) u.address[m->vars[v].relocs[r].func] = 1;
    for (int32_t f = 0; f < m->function_count; f++) {
        renumber_function(&m->functions[f], m->var_count);
        note_function(&u, f);
    }
    for (bool changed = true; changed;) {
        changed = false;
        for (int32_t f = 0; f < m->function_count; f++) changed |= join_callees(&u, f);
    }
    for (int32_t f = 0; f < m->function_count; f++) place_shared(&u, f);
}

/* ---- look-ups ---- */
const struct ptx_function *ptx_function_find(const struct ptx_module *m, const char *name) {
    for (int32_t f = 0; f < m->function_count; f++)
        if (!strcmp(m->functions[f].name, name)) return &m->functions[f];
    return NULL;
}

int32_t ptx_global_find(const struct ptx_module *m, const char *name) {
    for (int32_t v = 0; v < m->var_count; v++)
        if (m->vars[v].space != PTX_SHARED && !strcmp(m->vars[v].name, name)) return v;
    return -1;
}

const struct ptx_var *ptx_var_of(const struct ptx_module *m, const struct ptx_function *f, int32_t var) {
    return var < m->var_count ? &m->vars[var] : &f->vars[var - m->var_count];
}

int64_t ptx_shared_offset(const struct ptx_function *f, int32_t var) {
    for (int32_t n = 0; n < f->shared_count; n++)
        if (f->shared[n].var == var) return (int64_t)f->shared[n].offset;
    return -1;
}
