/* The registers that an instruction reads and writes. */
#ifndef VGPU_JIT_VISIT_H
#define VGPU_JIT_VISIT_H

#include "ptx/ptx.h"

typedef void jit_visit_reg(void *context, int32_t reg);

static inline void jit_visit_operand(const struct ptx_operand *o, jit_visit_reg *visit, void *context) {
    if ((o->kind == PTX_REG || o->kind == PTX_ADDRESS) && o->reg >= 0) visit(context, o->reg);
    if (o->kind == PTX_VECTOR)
        for (int32_t e = 0; e < o->count; e++)
            if (o->elements[e].kind == PTX_REG) visit(context, o->elements[e].reg);
}
/* A destination that is an address counts as read. */
static inline void jit_visit_uses(const struct ptx_instr *i, jit_visit_reg *visit, void *context) {
    if (i->guard >= 0) visit(context, i->guard);
    for (int32_t s = 0; s < i->srcs; s++) jit_visit_operand(&i->src[s], visit, context);
    for (int32_t d = 0; d < i->dsts; d++)
        if (i->dst[d].kind == PTX_ADDRESS) jit_visit_operand(&i->dst[d], visit, context);
}
static inline void jit_visit_defs(const struct ptx_instr *i, jit_visit_reg *visit, void *context) {
    for (int32_t d = 0; d < i->dsts; d++)
        if (i->dst[d].kind != PTX_ADDRESS) jit_visit_operand(&i->dst[d], visit, context);
}

/* vgpu_jit_flow.c: of a block, those of brx included. */
int32_t jit_successors(const struct ptx_function *f, int32_t b, const int32_t **list);

#endif
