/* Runs cases of the zoo in the interpreter. */
#include "tests/zoo/zoo_interpret.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *read_file(const char *path, size_t *bytes) {
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    fseek(f, 0, SEEK_END);
    *bytes = (size_t)ftell(f);
    rewind(f);
    char *text = malloc(*bytes + 1);
    size_t n = text ? fread(text, 1, *bytes, f) : 0;
    fclose(f);
    if (text) text[n] = 0;
    return text;
}

/* Addresses in initialisers are known only now. */
static void relocate(struct zoo_module *m, int32_t var) {
    const struct ptx_var *v = &m->ptx->vars[var];
    for (uint32_t k = 0; k < v->reloc_count; k++) {
        const struct ptx_reloc *r = &v->relocs[k];
        uint64_t a = r->var >= 0 ? (uint64_t)(uintptr_t)m->symbols[r->var] : (uint64_t)r->func + 1;
        a += (uint64_t)r->offset;
        memcpy((char *)m->symbols[var] + r->at, &a, 8);
    }
}

int zoo_open(struct zoo_module *m, const char *path, char *err, size_t err_len) {
    memset(m, 0, sizeof *m);
    size_t bytes;
    char *text = read_file(path, &bytes);
    struct ptx_error e = {0};
    if (!text || ptx_parse(text, bytes, &m->ptx, &e)) {
        snprintf(err, err_len, "%s: %d:%d: %s", path, e.line, e.column, text ? e.text : "cannot be read");
        free(text);
        return -1;
    }
    free(text);
    m->symbols = calloc((size_t)m->ptx->var_count + 1, sizeof *m->symbols);
    m->variable = calloc((size_t)m->ptx->var_count + 1, sizeof *m->variable);
    for (int32_t k = 0; k < m->ptx->var_count; k++) {
        const struct ptx_var *v = &m->ptx->vars[k];
        m->symbols[k] = aligned_alloc(256, (v->bytes + 256) & ~UINT64_C(255));
        memset(m->symbols[k], 0, v->bytes);
        if (v->init) memcpy(m->symbols[k], v->init, v->bytes);
        m->variable[k] = (struct zoo_touched){.how = calloc(1, v->bytes + 1), .bytes = v->bytes};
    }
    for (int32_t k = 0; k < m->ptx->var_count; k++) relocate(m, k);
    return 0;
}

void zoo_close(struct zoo_module *m) {
    for (int32_t k = 0; m->ptx && k < m->ptx->var_count; k++) {
        free(m->symbols[k]);
        free(m->variable[k].how);
    }
    free(m->symbols);
    free(m->variable);
    ptx_free(m->ptx);
}

/* ---- what the launch may touch, and does ---- */
struct watch {
    struct zoo_module *m;
    const struct zoo_case *c;
    struct zoo_launch *l;
};

static int mark(struct zoo_touched *t, const void *base, const struct ptx_touch *touch) {
    uint64_t at = touch->address - (uint64_t)(uintptr_t)base;
    if (at >= t->bytes || touch->bytes > t->bytes - at) return -1;
    for (uint32_t k = 0; k < touch->bytes; k++) t->how[at + k] |= touch->properties;
    return 0;
}

static int on_touch(void *context, const struct ptx_touch *touch) {
    struct watch *w = context;
    if (touch->instr->op == PTX_OP_CALL) return 0; /* vprintf's format: read by the runtime, not by the kernel */
    for (int k = 0; k < w->c->args; k++)
        if (w->l->buffer[k] && !mark(&w->l->touched[k], w->l->buffer[k], touch)) return 0;
    for (int32_t k = 0; k < w->m->ptx->var_count; k++)
        if (!mark(&w->m->variable[k], w->m->symbols[k], touch)) return 0;
    return -1;
}

/* The only printf of the zoo: %d %d %g %s, in a buffer where each is aligned to its size. */
static int on_print(void *context, const char *format, const void *arguments) {
    struct watch *w = context;
    int k[2];
    double d;
    const char *s;
    memcpy(k, arguments, 8);
    memcpy(&d, (const char *)arguments + 8, 8);
    memcpy(&s, (const char *)arguments + 16, 8);
    if (strcmp(format, "thread %d has %d and %g of %s\n")) return -1;
    snprintf(w->l->printed, sizeof w->l->printed, "thread %d has %d and %g of %s\n", k[0], k[1], d, s);
    return 4;
}

int zoo_interpret(struct zoo_module *m, const struct zoo_case *c, struct zoo_launch *l, char *err, size_t err_len) {
    memset(l, 0, sizeof *l);
    const struct ptx_function *f = ptx_function_find(m->ptx, c->kernel);
    if (!f || f->error) {
        snprintf(err, err_len, "%s: %s", c->kernel, f ? f->error : "not in the PTX");
        return -1;
    }
    uint64_t address[ZOO_ARGS] = {0};
    for (int k = 0; k < c->args; k++) {
        if (c->arg[k].kind != 'b') continue;
        size_t bytes = zoo_bytes(&c->arg[k]), room = (bytes + 511) & ~(size_t)255;
        l->buffer[k] = aligned_alloc(256, room);
        l->want[k] = aligned_alloc(256, room);
        zoo_fill(c, k, l->buffer[k]);
        memcpy(l->want[k], l->buffer[k], bytes);
        address[k] = (uint64_t)(uintptr_t)l->buffer[k];
        l->touched[k] = (struct zoo_touched){.how = calloc(1, bytes), .bytes = bytes};
    }
    for (int32_t k = 0; k < m->ptx->var_count; k++) memset(m->variable[k].how, 0, m->variable[k].bytes);
    size_t bytes = zoo_pack(c, address, l->params, l->offset);
    if (f->param_bytes != bytes && (bytes % 8 == 0 || f->param_bytes != bytes + 4)) {
        snprintf(err, err_len, "%s: %u bytes of parameters, not %zu", c->kernel, f->param_bytes, bytes);
        return -1;
    }
    struct watch w = {m, c, l};
    struct ptx_run run = {.module = m->ptx,
                          .entry = f,
                          .grid = {c->grid[0], c->grid[1], c->grid[2]},
                          .block = {c->block[0], c->block[1], c->block[2]},
                          .dynamic_shared = c->shared,
                          .params = l->params,
                          .symbols = m->symbols,
                          .max_instructions = 20000000,
                          .touch = on_touch,
                          .print = on_print,
                          .context = &w,
                          .counts = m->counts};
    int r = ptx_interpret(&run, &l->fault);
    l->executed = run.executed;
    if (r) snprintf(err, err_len, "%s: line %d: %s", c->name, l->fault.line, l->fault.text);
    c->reference(c, l->want);
    return r;
}

void zoo_release(const struct zoo_case *c, struct zoo_launch *l) {
    for (int k = 0; k < c->args; k++) {
        free(l->buffer[k]);
        free(l->want[k]);
        free(l->touched[k].how);
    }
}
