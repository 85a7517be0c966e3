/* On which arguments a kernel's price depends: those that the slice of its control reaches (ptx_cost_slice.c). */
#include <stdlib.h>
#include <string.h>
#include "ptx/ptx_cost_model.h"

struct origin {     /* of a register of the entry: the parameter that it is a copy of */
    int32_t offset; /* of 8 bytes; -1: none */
};

static bool is_entry_param(const struct cost_run *x, const struct ptx_operand *o) {
    if (o->var < 0) return true; /* an address in a register: which of them, is not looked at */
    return ptx_var_of(x->module, x->entry, o->var)->space == PTX_PARAM &&
           ptx_var_of(x->module, x->entry, o->var) - x->entry->vars < x->entry->params;
}

static void mark(unsigned char *uses, uint32_t bytes, int64_t from, int64_t n, unsigned char use) {
    for (int64_t k = from < 0 ? 0 : from; k < from + n && k < (int64_t)bytes; k++)
        if (uses[k] != PTX_COST_BY_VALUE) uses[k] = use;
}

/* What a load of the argument buffer gives to the slice. A plain pointer is followed: it may be asked for null only. */
static void mark_load(const struct cost_run *x, const struct func_info *info, const struct ptx_instr *i,
                      struct origin *of, unsigned char *uses) {
    const struct ptx_operand *from = &i->src[0], *to = &i->dst[0];
    uint32_t size = ptx_type_bytes((enum ptx_type)i->type);
    if (!is_entry_param(x, from)) return;
    if (from->reg >= 0 || from->var < 0) {
        for (unsigned k = 0; k < (to->kind == PTX_VECTOR ? to->count : 1u); k++) {
            int32_t reg = to->kind == PTX_VECTOR ? to->elements[k].reg : to->reg;
            if (reg >= 0 && info->slot[reg] >= 0)
                mark(uses, x->entry->param_bytes, 0, x->entry->param_bytes, PTX_COST_BY_VALUE);
        }
        return;
    }
    int64_t at = (int64_t)ptx_var_of(x->module, x->entry, from->var)->offset + from->offset;
    if (to->kind == PTX_VECTOR) {
        for (unsigned k = 0; k < to->count; k++)
            if (to->elements[k].kind == PTX_REG && info->slot[to->elements[k].reg] >= 0)
                mark(uses, x->entry->param_bytes, at + k * size, size, PTX_COST_BY_VALUE);
        return;
    }
    if (to->kind != PTX_REG || info->slot[to->reg] < 0) return;
    if (size == 8 && i->guard < 0) of[to->reg].offset = (int32_t)at;
    mark(uses, x->entry->param_bytes, at, size, size == 8 && i->guard < 0 ? PTX_COST_BY_NULL : PTX_COST_BY_VALUE);
}

static bool gives_to_slice(const struct func_info *info, const struct ptx_instr *i) {
    for (unsigned k = 0; k < i->dsts; k++) {
        const struct ptx_operand *o = &i->dst[k];
        if (o->kind == PTX_REG && info->slot[o->reg] >= 0) return true;
        for (unsigned e = 0; o->kind == PTX_VECTOR && e < o->count; e++)
            if (o->elements[e].kind == PTX_REG && info->slot[o->elements[e].reg] >= 0) return true;
    }
    return i->op == PTX_OP_CALL || i->op == PTX_OP_BRX;
}

static bool is_test_for_null(const struct ptx_instr *i) {
    return i->op == PTX_OP_SETP && i->srcs == 2 && (i->compare == PTX_EQ || i->compare == PTX_NE) &&
           ((i->src[0].kind == PTX_IMM && !i->src[0].bits) || (i->src[1].kind == PTX_IMM && !i->src[1].bits));
}

/* A register that holds a parameter is used. True: another register is a copy from now on. */
static bool follow(const struct cost_run *x, const struct func_info *info, const struct ptx_instr *i, int32_t reg,
                   struct origin *of, unsigned char *uses) {
    if (reg < 0 || of[reg].offset < 0 || !gives_to_slice(info, i) || is_test_for_null(i)) return false;
    bool copy = (i->op == PTX_OP_MOV || i->op == PTX_OP_CVTA) && i->dst[0].kind == PTX_REG && i->guard < 0;
    int32_t *to = copy ? &of[i->dst[0].reg].offset : NULL;
    if (to && *to < 0) {
        *to = of[reg].offset;
        return true;
    }
    if (!to || *to != of[reg].offset) mark(uses, x->entry->param_bytes, of[reg].offset, 8, PTX_COST_BY_VALUE);
    return false;
}

static void follow_all(const struct cost_run *x, const struct func_info *info, struct origin *of, unsigned char *uses) {
    bool all = info->slots == x->entry->reg_count;
    for (bool changed = true; changed;) {
        changed = false;
        for (int32_t n = 0; n < x->entry->instr_count; n++) {
            const struct ptx_instr *i = &x->entry->instrs[n];
            for (unsigned k = 0; k < i->srcs; k++) {
                const struct ptx_operand *o = &i->src[k];
                /* code that keeps all in local memory: a value that is stored comes back by any load */
                if (all && o->kind == PTX_REG && ptx_ops[i->op].properties & PTX_P_WRITES && of[o->reg].offset >= 0)
                    mark(uses, x->entry->param_bytes, of[o->reg].offset, 8, PTX_COST_BY_VALUE);
                bool address = o->kind == PTX_ADDRESS && i->space != PTX_GENERIC && i->space != PTX_SPACE_NONE;
                if ((o->kind == PTX_REG || o->kind == PTX_ADDRESS) && !address)
                    changed |= follow(x, info, i, o->reg, of, uses);
                for (unsigned e = 0; o->kind == PTX_VECTOR && e < o->count; e++)
                    if (o->elements[e].kind == PTX_REG) changed |= follow(x, info, i, o->elements[e].reg, of, uses);
            }
        }
    }
}

int ptx_cost_uses(const struct ptx_module *module, const struct ptx_function *entry, unsigned char *uses) {
    memset(uses, PTX_COST_BY_NOTHING, entry->param_bytes);
    if (entry->error || entry->declared_only || !entry->block_count || !entry->entry) return -1;
    struct cost_run *x = calloc(1, sizeof *x);
    struct origin *of = malloc(((size_t)entry->reg_count + 1) * sizeof *of);
    if (x) {
        x->module = module;
        x->entry = entry;
    }
    int r = x && of ? cost_slice(x) : -1;
    for (int32_t k = 0; !r && k < entry->reg_count; k++) of[k].offset = -1;
    const struct func_info *info = r ? NULL : cost_function(x, entry);
    for (int32_t n = 0; info && n < entry->instr_count; n++) {
        const struct ptx_instr *i = &entry->instrs[n];
        if (i->op == PTX_OP_LD && i->space == PTX_PARAM && i->srcs) mark_load(x, info, i, of, uses);
    }
    if (info) follow_all(x, info, of, uses);
    if (x) cost_functions_free(x);
    free(of);
    free(x);
    return r;
}
