/* Loops in which a warp waits for what another one of its block will write: a flag, a lock. Warps change at barriers
 * only, so such a loop lets the others run each time round. */
#include "vgpu/vgpu_jit.h"
#include "vgpu/vgpu_jit_visit.h"

#include <stdlib.h>

/* The body of the loops with this header. false: there is none, or no memory. */
static bool find_body(const struct ptx_function *f, int32_t header, bool *body, int32_t *stack) {
    int32_t top = 0;
    bool found = false;
    for (int32_t i = 0; i < f->blocks[header].preds; i++) {
        int32_t p = f->pred[f->blocks[header].pred0 + i];
        if (f->blocks[p].rank < f->blocks[header].rank) continue;
        found = body[header] = true;
        if (!body[p]) body[p] = true, stack[top++] = p;
    }
    while (top) {
        const struct ptx_block *b = &f->blocks[stack[--top]];
        for (int32_t i = 0; i < b->preds; i++) {
            int32_t p = f->pred[b->pred0 + i];
            if (f->blocks[p].rank >= 0 && !body[p]) body[p] = true, stack[top++] = p;
        }
    }
    return found;
}

struct carried {
    uint8_t *seen; /* by register: READ_FIRST, ASSIGNED */
    bool any;
};
enum { READ_FIRST = 1, ASSIGNED = 2 };
static void read_reg(void *context, int32_t reg) {
    struct carried *c = context;
    if (!(c->seen[reg] & ASSIGNED)) c->seen[reg] |= READ_FIRST;
}
static void assign_reg(void *context, int32_t reg) {
    struct carried *c = context;
    c->seen[reg] |= ASSIGNED;
    if (c->seen[reg] & READ_FIRST) c->any = true;
}

/* It reads memory, writes none, and brings nothing from one round to the next: only others can end it. */
static bool waits(const struct jit_gen *g, const bool *body, struct carried *c) {
    const struct ptx_function *f = g->f;
    bool reads = false;
    for (int32_t k = 0; k < g->flow.count; k++) {
        const struct ptx_block *b = &f->blocks[g->flow.order[k]];
        if (!body[g->flow.order[k]]) continue;
        for (int32_t n = b->first; n < b->end; n++) {
            const struct ptx_instr *i = &f->instrs[n];
            unsigned p = ptx_ops[i->op].properties;
            bool atomic = p & PTX_P_ATOMIC;
            if (i->op == PTX_OP_CALL || (p & PTX_P_BARRIER) || ((p & PTX_P_WRITES) && !atomic)) return false;
            if (atomic || ((p & PTX_P_READS) && i->space != PTX_PARAM && i->space != PTX_LOCAL)) reads = true;
            jit_visit_uses(i, read_reg, c);
            jit_visit_defs(i, assign_reg, c);
        }
    }
    return reads && !c->any;
}

bool jit_waits(const struct jit_gen *g, int32_t header) {
    const struct ptx_function *f = g->f;
    bool *body = calloc((size_t)f->block_count + 1, sizeof *body), yes = false;
    int32_t *stack = calloc((size_t)f->block_count + 1, sizeof *stack);
    struct carried c = {calloc((size_t)f->reg_count + 1, 1), false};
    if (body && stack && c.seen && find_body(f, header, body, stack)) yes = waits(g, body, &c);
    free(body), free(stack), free(c.seen);
    return yes;
}
