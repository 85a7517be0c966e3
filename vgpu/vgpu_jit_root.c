/* Which registers hold a distance from a pointer: LLVM then sees addresses within one object. Flow-insensitive. */
#include "vgpu/vgpu_jit.h"
#include "vgpu/vgpu_jit_visit.h"

#include <stdlib.h>

static int32_t root_number(struct jit_gen *g, int32_t param, int32_t var) {
    for (int32_t r = 0; r < g->root_count; r++)
        if (g->root[r].param == param && g->root[r].var == var) return r;
    struct jit_root *more = realloc(g->root, ((size_t)g->root_count + 1) * sizeof *more);
    if (!more) return jit_fail(g, "no memory"), JIT_ROOT_NONE;
    g->root = more;
    more[g->root_count] = (struct jit_root){param, var, NULL};
    return g->root_count++;
}

int32_t jit_variable_root(struct jit_gen *g, const struct ptx_operand *o) {
    if (o->var < 0 || o->var >= g->u->module->var_count) return JIT_ROOT_NONE;
    unsigned space = g->u->module->vars[o->var].space;
    return space == PTX_GLOBAL || space == PTX_CONST ? root_number(g, -1, o->var) : JIT_ROOT_NONE;
}

static int32_t operand_root(struct jit_gen *g, const struct ptx_operand *o) {
    if (o->kind == PTX_REG) return g->roots[o->reg];
    return o->kind == PTX_SYMBOL ? jit_variable_root(g, o) : JIT_ROOT_NONE;
}

/* A sum keeps the root of its one pointer. */
static int32_t root_of_sum(int32_t a, int32_t b) {
    if (a == JIT_ROOT_TOP || b == JIT_ROOT_TOP) return JIT_ROOT_TOP;
    if (a == JIT_ROOT_NONE) return b;
    return b == JIT_ROOT_NONE ? a : JIT_ROOT_NONE;
}

static int32_t root_of(struct jit_gen *g, const struct ptx_instr *i) {
    int32_t a, b;
    if (i->guard >= 0 || i->dsts != 1 || i->dst[0].kind != PTX_REG || jit_reg_bits(g, i->dst[0].reg) != 64 ||
        g->f->regs[i->dst[0].reg].type == PTX_F64)
        return JIT_ROOT_NONE;
    switch (i->op) {
    case PTX_OP_LD:
        if (i->space != PTX_PARAM || !g->f->entry || ptx_type_bits(i->type) != 64 || i->src[0].reg >= 0 ||
            i->src[0].var < 0)
            return JIT_ROOT_NONE;
        a = i->src[0].var - g->u->module->var_count;
        if (a < 0 || a >= g->f->params) return JIT_ROOT_NONE;
        return root_number(g, (int32_t)((int64_t)g->f->vars[a].offset + i->src[0].offset), -1);
    case PTX_OP_MOV:
        return operand_root(g, &i->src[0]);
    case PTX_OP_CVTA:
        return i->space == PTX_GLOBAL || i->space == PTX_CONST ? operand_root(g, &i->src[0]) : JIT_ROOT_NONE;
    case PTX_OP_ADD:
        if (i->modifiers & (PTX_M_CC | PTX_M_SAT)) return JIT_ROOT_NONE;
        return root_of_sum(operand_root(g, &i->src[0]), operand_root(g, &i->src[1]));
    case PTX_OP_SUB:
        if (i->modifiers & (PTX_M_CC | PTX_M_SAT)) return JIT_ROOT_NONE;
        a = operand_root(g, &i->src[0]), b = operand_root(g, &i->src[1]);
        if (a == JIT_ROOT_TOP || b == JIT_ROOT_TOP) return JIT_ROOT_TOP;
        return b == JIT_ROOT_NONE ? a : JIT_ROOT_NONE;
    case PTX_OP_MAD:
        if (i->modifiers & (PTX_M_CC | PTX_M_HI | PTX_M_SAT)) return JIT_ROOT_NONE;
        a = operand_root(g, &i->src[2]);
        if (!(i->modifiers & PTX_M_WIDE) &&
            (operand_root(g, &i->src[0]) != JIT_ROOT_NONE || operand_root(g, &i->src[1]) != JIT_ROOT_NONE))
            return a == JIT_ROOT_TOP ? a : JIT_ROOT_NONE;
        return a;
    case PTX_OP_SELP:
        a = operand_root(g, &i->src[0]), b = operand_root(g, &i->src[1]);
        if (a == JIT_ROOT_TOP || b == JIT_ROOT_TOP) return JIT_ROOT_TOP;
        return a == b ? a : JIT_ROOT_NONE;
    default:
        return JIT_ROOT_NONE;
    }
}

struct root_assign {
    struct jit_gen *g;
    int32_t root;
    bool changed;
};
static void assign_root(void *context, int32_t reg) {
    struct root_assign *a = context;
    int32_t *old = &a->g->roots[reg], now = a->root;
    if (now == JIT_ROOT_TOP || *old == now || *old == JIT_ROOT_NONE) return;
    *old = *old == JIT_ROOT_TOP ? now : JIT_ROOT_NONE;
    a->changed = true;
}

/* A loaded parameter that is only a number is a pointer here too: it costs nothing. A register that stays without root
 * because all its definitions wait for each other has none. */
int jit_roots(struct jit_gen *g) {
    g->roots = malloc(((size_t)g->f->reg_count + 1) * sizeof *g->roots);
    if (!g->roots) return jit_fail(g, "no memory"), -1;
    for (int32_t r = 0; r < g->f->reg_count; r++) g->roots[r] = JIT_ROOT_TOP;
    for (bool changed = true; changed;) {
        changed = false;
        for (int32_t k = 0; k < g->flow.count; k++) {
            const struct ptx_block *b = &g->f->blocks[g->flow.order[k]];
            for (int32_t n = b->first; n < b->end; n++) {
                struct root_assign a = {g, root_of(g, &g->f->instrs[n]), false};
                jit_visit_defs(&g->f->instrs[n], assign_root, &a);
                for (int32_t o = 0; o < g->f->instrs[n].srcs; o++)
                    if (g->f->instrs[n].src[o].kind == PTX_ADDRESS) jit_variable_root(g, &g->f->instrs[n].src[o]);
                changed |= a.changed;
            }
        }
    }
    for (int32_t r = 0; r < g->f->reg_count; r++)
        if (g->roots[r] == JIT_ROOT_TOP) g->roots[r] = JIT_ROOT_NONE;
    return g->u->failed ? -1 : 0;
}
