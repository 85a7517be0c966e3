/* Which arguments what a kernel touches may depend on: all but numbers in floating point, of which no address and no
 * condition that the analysis looks at is made. */
#include <string.h>
#include "ptx/ptx_access.h"

static bool is_param(const struct ptx_module *module, const struct ptx_function *entry, int32_t var) {
    int64_t n = (int64_t)var - module->var_count;
    return n >= 0 && n < entry->params;
}

static void mark(unsigned char *uses, uint32_t bytes, int64_t from, int64_t n) {
    if (from < 0 || from >= (int64_t)bytes) return;
    memset(uses + from, 1, (size_t)(n < (int64_t)bytes - from ? n : (int64_t)bytes - from));
}

/* A load of 4 bytes or fewer as floating point, at a place that is known: ptx_access_memory.c takes its value for
 * unknown. */
static bool is_number(const struct ptx_instr *i, const struct ptx_operand *o) {
    return i->op == PTX_OP_LD && i->space == PTX_PARAM && o->kind == PTX_ADDRESS && o->reg < 0 &&
           ptx_type_kind((enum ptx_type)i->type) == PTX_KIND_F && ptx_type_bytes((enum ptx_type)i->type) <= 4;
}

void ptx_access_uses(const struct ptx_module *module, const struct ptx_function *entry, unsigned char *uses) {
    memset(uses, 0, entry->param_bytes);
    for (int32_t n = 0; n < entry->instr_count; n++) {
        const struct ptx_instr *i = &entry->instrs[n];
        for (unsigned k = 0; k < i->srcs; k++) {
            const struct ptx_operand *o = &i->src[k];
            if (o->var < 0 || !is_param(module, entry, o->var) || is_number(i, o)) continue;
            const struct ptx_var *v = &entry->vars[o->var - module->var_count];
            bool direct = i->op == PTX_OP_LD && o->kind == PTX_ADDRESS && o->reg < 0;
            unsigned count = i->dsts && i->dst[0].kind == PTX_VECTOR ? i->dst[0].count : 1;
            if (direct)
                mark(uses, entry->param_bytes, (int64_t)v->offset + o->offset,
                     (int64_t)count * ptx_type_bytes((enum ptx_type)i->type));
            else /* its address is taken */
                mark(uses, entry->param_bytes, v->offset, (int64_t)v->bytes);
        }
    }
}
