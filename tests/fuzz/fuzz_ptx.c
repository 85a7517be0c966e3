/* Fuzzer of the PTX reader: any text gives an error with its place, or a module whose every index is in bounds, which
 * the control flow, the access analysis, the cost model and the interpreter then walk. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ptx/ptx_access.h"
#include "ptx/ptx_cost.h"
#include "ptx/ptx_interp.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int ok, const char *what) {
    if (ok) return;
    fprintf(stderr, "fuzz_ptx: %s\n", what);
    abort();
}

static void check_operand(const struct ptx_module *m, const struct ptx_function *f, const struct ptx_operand *o) {
    must(o->reg >= -1 && o->reg < f->reg_count, "register");
    must(o->var >= -1 && o->var < m->var_count + f->var_count, "variable");
    must(o->func >= -1 && o->func < m->function_count, "function");
    must(o->kind != PTX_REG || o->reg >= 0, "a register operand without one");
    if (o->kind != PTX_VECTOR) return;
    for (unsigned n = 0; n < o->count; n++) check_operand(m, f, &o->elements[n]);
}

static void check_blocks(const struct ptx_function *f) {
    int32_t at = 0;
    for (int32_t b = 0; b < f->block_count; b++) {
        const struct ptx_block *block = &f->blocks[b];
        must(block->first == at && block->end > at, "blocks are not in order");
        at = block->end;
        for (int32_t n = 0; n < block->succs; n++)
            must(block->succ[n] >= 0 && block->succ[n] < f->block_count, "successor");
        for (int32_t n = 0; n < block->preds; n++)
            must(f->pred[block->pred0 + n] >= 0 && f->pred[block->pred0 + n] < f->block_count, "predecessor");
        must(block->idom >= -1 && block->idom < f->block_count && block->ipdom >= -1 && block->ipdom < f->block_count,
             "dominator");
        must(b == 0 || block->rank < 0 || block->idom >= 0, "a reached block without dominator");
    }
    must(at == f->instr_count, "instructions outside of blocks");
}

static void check_function(const struct ptx_module *m, const struct ptx_function *f) {
    check_blocks(f);
    for (int32_t n = 0; n < f->instr_count; n++) {
        const struct ptx_instr *i = &f->instrs[n];
        must(i->guard >= -1 && i->guard < f->reg_count, "guard");
        must(i->callee >= -1 && i->callee < m->function_count, "callee");
        must(i->op != PTX_OP_BRA || (i->target >= 0 && i->target < f->block_count), "target");
        for (int32_t t = 0; t < i->targets; t++)
            must(f->branch_targets[i->targets0 + t] >= 0 && f->branch_targets[i->targets0 + t] < f->block_count, "brx");
        must((i->op == PTX_OP_MMA || i->op == PTX_OP_WGMMA) == (i->matrix != NULL), "a product without its shape");
        must(!i->matrix || ptx_matrix_share(i->matrix) >= 0, "operations of a product");
        for (unsigned o = 0; o < i->dsts; o++) check_operand(m, f, &i->dst[o]);
        for (unsigned o = 0; o < i->srcs; o++) check_operand(m, f, &i->src[o]);
    }
}

static void analyse(const struct ptx_module *m, const struct ptx_function *f) {
    uint32_t grid[3] = {3, 1, 1}, block[3] = {64, 1, 1};
    unsigned char *params = malloc((size_t)f->param_bytes + 1);
    for (uint32_t n = 0; n < f->param_bytes; n++) params[n] = (unsigned char)(n % 4 ? 0 : n + 5);
    struct ptx_accesses a;
    ptx_access_static(m, f, &a);
    ptx_access_free(&a);
    ptx_access_launch(m, f, grid, block, params, &a);
    ptx_access_free(&a);
    free(params);
}

/* Whatever a kernel does, its price has an end and bounds in their order. */
static void price(const struct ptx_module *m, const struct ptx_function *f) {
    uint32_t grid[3] = {70000, 2, 1}, block[3] = {33, 2, 1};
    unsigned char *params = malloc((size_t)f->param_bytes + 1);
    for (uint32_t n = 0; n < f->param_bytes; n++) params[n] = (unsigned char)(n % 4 ? 0 : n + 5);
    struct ptx_cost c;
    for (int known = 0; known < 2; known++) {
        if (ptx_cost_launch_within(3000, m, f, grid, block, 64, known ? params : NULL, &c)) {
            must(c.why[0] != 0, "no price, and no word of why");
            continue;
        }
        must(c.grade == PTX_COST_EXACT || c.why[0] != 0, "a grade without a reason");
        for (unsigned k = 0; k < PTX_T_FIELDS; k++) {
            const struct ptx_count *n = ptx_cost_field(&c, k);
            must(n->lo >= 0 && n->lo <= n->hi, "bounds in the wrong order");
            must(c.grade != PTX_COST_EXACT || n->lo == n->hi, "exact, with bounds");
        }
    }
    free(params);
}

/* No access to global memory is let through. */
static int refuse(void *context, const struct ptx_touch *touch) {
    (void)context;
    (void)touch;
    return -1;
}

static void interpret(const struct ptx_module *m, const struct ptx_function *f, void *const *symbols) {
    unsigned char *params = calloc(1, (size_t)f->param_bytes + 16);
    struct ptx_fault fault;
    struct ptx_run run = {.module = m,
                          .entry = f,
                          .grid = {1, 1, 1},
                          .block = {35, 1, 1},
                          .dynamic_shared = 64,
                          .params = params,
                          .symbols = symbols,
                          .max_instructions = 4000,
                          .touch = refuse};
    ptx_interpret(&run, &fault);
    free(params);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct ptx_module *m;
    struct ptx_error error;
    if (ptx_parse((const char *)data, size, &m, &error)) {
        must(error.text[0] != 0 &&
                 (error.line > 0 || !strncmp(error.text, "no memory", 9) || strstr(error.text, "16 MiB")),
             "an error without place or text");
        return 0;
    }
    void **symbols = calloc((size_t)m->var_count + 1, sizeof *symbols);
    for (int32_t n = 0; n < m->function_count; n++) {
        const struct ptx_function *f = &m->functions[n];
        must(!f->error || f->error[0], "an error without text");
        check_function(m, f);
        if (!f->entry || f->error) continue;
        analyse(m, f);
        price(m, f);
        if (f->shared_bytes < 1 << 20 && f->local_bytes < 1 << 20) interpret(m, f, symbols);
    }
    free(symbols);
    ptx_free(m);
    return 0;
}
