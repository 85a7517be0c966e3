/* Operands of the interpreter: registers, immediates, symbols, special registers; mov. */
#include "ptx/ptx_machine.h"
#include <string.h>

uint64_t ptx_get(struct ptx_thread *t, const struct ptx_operand *o, enum ptx_type type) {
    uint64_t v = 0;
    switch (o->kind) {
    case PTX_REG:
        v = *ptx_reg_at(t, o->reg);
        break;
    case PTX_IMM:
        v = o->bits;
        break;
    case PTX_SYMBOL:
        v = ptx_symbol(t, o);
        break;
    case PTX_SREG_OP:
        v = ptx_sreg(t, o->sreg);
        break;
    }
    if (type == PTX_PRED) return (v & 1) ^ o->negated;
    return ptx_bits(v, ptx_type_bits(type));
}

uint64_t ptx_get_int(struct ptx_thread *t, const struct ptx_operand *o, enum ptx_type type) {
    uint64_t v = ptx_get(t, o, type);
    return ptx_type_kind(type) == PTX_KIND_S ? ptx_sign(v, ptx_type_bits(type)) : v;
}

bool ptx_get_pred(struct ptx_thread *t, const struct ptx_operand *o) {
    return ptx_get(t, o, PTX_PRED);
}

void ptx_put(struct ptx_thread *t, const struct ptx_operand *o, enum ptx_type type, uint64_t value) {
    if (o->kind != PTX_REG) return; /* a sink */
    unsigned bits = ptx_type_bits(type);
    value = ptx_type_kind(type) == PTX_KIND_S ? ptx_sign(value, bits) : ptx_bits(value, bits);
    *ptx_reg_at(t, o->reg) = ptx_bits(value, ptx_type_bits(ptx_top(t)->f->regs[o->reg].type));
}

static uint64_t lanemask(enum ptx_sreg s, unsigned lane) {
    uint32_t eq = UINT32_C(1) << lane, lt = eq - 1;
    switch (s) {
    case PTX_LANEMASK_EQ:
        return eq;
    case PTX_LANEMASK_LE:
        return eq | lt;
    case PTX_LANEMASK_LT:
        return lt;
    case PTX_LANEMASK_GE:
        return ~lt;
    default:
        return ~(eq | lt);
    }
}

/* Clocks count instructions of the launch: what depends on them is the same in every run. */
uint64_t ptx_sreg(struct ptx_thread *t, enum ptx_sreg s) {
    struct ptx_machine *m = t->m;
    switch (s) {
    case PTX_TID_X:
    case PTX_TID_Y:
    case PTX_TID_Z:
        return t->tid[s - PTX_TID_X];
    case PTX_NTID_X:
    case PTX_NTID_Y:
    case PTX_NTID_Z:
        return m->run->block[s - PTX_NTID_X];
    case PTX_CTAID_X:
    case PTX_CTAID_Y:
    case PTX_CTAID_Z:
        return m->ctaid[s - PTX_CTAID_X];
    case PTX_NCTAID_X:
    case PTX_NCTAID_Y:
    case PTX_NCTAID_Z:
        return m->run->grid[s - PTX_NCTAID_X];
    case PTX_LANEID:
        return t->linear % PTX_WARP_LANES;
    case PTX_WARPID:
        return t->linear / PTX_WARP_LANES;
    case PTX_NWARPID:
        return 32; /* the most a block can have */
    case PTX_NSMID:
        return 1;
    case PTX_LANEMASK_EQ:
    case PTX_LANEMASK_LE:
    case PTX_LANEMASK_LT:
    case PTX_LANEMASK_GE:
    case PTX_LANEMASK_GT:
        return lanemask(s, t->linear % PTX_WARP_LANES);
    case PTX_CLOCK:
    case PTX_CLOCK64:
    case PTX_GLOBALTIMER:
    case PTX_GLOBALTIMER_LO:
        return m->run->executed;
    case PTX_CLOCK_HI:
    case PTX_GLOBALTIMER_HI:
        return m->run->executed >> 32;
    case PTX_DYNAMIC_SMEM_SIZE:
        return m->run->dynamic_shared;
    case PTX_TOTAL_SMEM_SIZE:
        return m->shared_bytes;
    default: /* smid, gridid, the zeros */
        return 0;
    }
}

/* mov also packs {a, b, …} into one register and unpacks it: the first element is the lowest bits. */
enum ptx_step ptx_x_mov(struct ptx_thread *t, const struct ptx_instr *i) {
    const struct ptx_operand *d = &i->dst[0], *s = &i->src[0];
    unsigned bits = ptx_type_bits(i->type);
    if (bits > 64) return ptx_fail_here(t, i);
    static const enum ptx_type part[] = {[1] = PTX_B8, [2] = PTX_B16, [4] = PTX_B32, [8] = PTX_B64};
    if (s->kind == PTX_VECTOR) {
        uint64_t v = 0;
        unsigned each = bits / s->count;
        for (unsigned k = 0; k < s->count; k++) v |= ptx_get(t, &s->elements[k], part[each / 8]) << each * k;
        ptx_put(t, d, i->type, v);
    } else if (d->kind == PTX_VECTOR) {
        uint64_t v = ptx_get(t, s, i->type);
        unsigned each = bits / d->count;
        for (unsigned k = 0; k < d->count; k++) ptx_put(t, &d->elements[k], part[each / 8], v >> each * k);
    } else {
        ptx_put(t, d, i->type, ptx_get(t, s, i->type));
    }
    return PTX_STEP_NEXT;
}
