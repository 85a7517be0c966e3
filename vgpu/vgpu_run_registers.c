/* Registers per thread, estimated. PTX has as many as it likes; the vendor's assembler decides, and its decision is in
 * machine code only. What can be had from PTX is how many values are alive at once where most are: the estimate is
 * that, in registers of 32 bits, and a few that every kernel needs besides. On the 84 kernels of the zoo it differs
 * from what the vendor's assembler takes for sm_90 by 4.9 registers on average (by -0.2 with sign; 15 at worst below,
 * 17 above). It feeds cudaFuncGetAttributes and occupancy. */
#include "vgpu/vgpu_run.h"

#include <stdlib.h>
#include <string.h>

enum { BASE = 6, GRANULE = 8, LEAST = 8, MOST = 255, FILE_REGISTERS = 65536 };

struct liveness {
    const struct ptx_function *f;
    size_t words;     /* of a set */
    uint64_t *in;     /* a set for each block: alive at its begin */
    uint64_t *now;    /* one set */
    uint32_t *weight; /* of each register, in registers of 32 bits */
};

static void each_register(const struct ptx_operand *o, void (*visit)(struct liveness *, int32_t), struct liveness *l) {
    if ((o->kind == PTX_REG || o->kind == PTX_ADDRESS) && o->reg >= 0) visit(l, o->reg);
    for (int i = 0; o->kind == PTX_VECTOR && i < o->count; i++) each_register(&o->elements[i], visit, l);
}

static void set(struct liveness *l, int32_t reg) {
    l->now[reg / 64] |= UINT64_C(1) << reg % 64;
}

static void clear(struct liveness *l, int32_t reg) {
    l->now[reg / 64] &= ~(UINT64_C(1) << reg % 64);
}

static uint32_t pressure(const struct liveness *l) {
    uint32_t sum = 0;
    for (size_t w = 0; w < l->words; w++)
        for (uint64_t bits = l->now[w]; bits; bits &= bits - 1)
            sum += l->weight[w * 64 + (size_t)__builtin_ctzll(bits)];
    return sum;
}

/* Backwards over a block, from what is alive at its end in l->now. A guarded write may leave the old value. */
static uint32_t walk(struct liveness *l, const struct ptx_block *b, bool measure) {
    uint32_t most = 0;
    for (int32_t i = b->end - 1; i >= b->first; i--) {
        const struct ptx_instr *in = &l->f->instrs[i];
        for (int k = 0; k < in->dsts; k++)
            if (in->guard < 0 && in->dst[k].kind != PTX_ADDRESS) each_register(&in->dst[k], clear, l);
        for (int k = 0; k < in->dsts; k++)
            if (in->dst[k].kind == PTX_ADDRESS) each_register(&in->dst[k], set, l);
        for (int k = 0; k < in->srcs; k++) each_register(&in->src[k], set, l);
        if (in->guard >= 0) set(l, in->guard);
        uint32_t p = measure ? pressure(l) : 0;
        if (p > most) most = p;
    }
    return most;
}

static void join(struct liveness *l, int32_t block) {
    for (size_t w = 0; w < l->words; w++) l->now[w] |= l->in[(size_t)block * l->words + w];
}

static void enter_end(struct liveness *l, const struct ptx_block *b) {
    memset(l->now, 0, l->words * sizeof *l->now);
    for (int k = 0; k < b->succs && k < 2; k++) join(l, b->succ[k]);
    const struct ptx_instr *last = b->end > b->first ? &l->f->instrs[b->end - 1] : NULL;
    if (last && last->op == PTX_OP_BRX)
        for (int32_t k = 0; k < last->targets; k++) join(l, l->f->branch_targets[last->targets0 + k]);
}

static void solve(struct liveness *l) {
    for (bool changed = true; changed;) {
        changed = false;
        for (int32_t i = l->f->block_count - 1; i >= 0; i--) {
            uint64_t *in = &l->in[(size_t)i * l->words];
            enter_end(l, &l->f->blocks[i]);
            walk(l, &l->f->blocks[i], false);
            if (!memcmp(in, l->now, l->words * sizeof *in)) continue;
            memcpy(in, l->now, l->words * sizeof *in);
            changed = true;
        }
    }
}

/* Predicates have registers of their own. */
static void weigh(struct liveness *l) {
    for (int32_t i = 0; i < l->f->reg_count; i++) {
        unsigned bits = ptx_type_bits((enum ptx_type)l->f->regs[i].type);
        l->weight[i] = l->f->regs[i].type == PTX_PRED ? 0 : (bits + 31) / 32;
    }
}

static uint32_t most_alive(const struct ptx_function *f) {
    struct liveness l = {.f = f, .words = ((size_t)f->reg_count + 63) / 64};
    uint32_t most = 0;
    l.in = calloc((size_t)f->block_count * l.words + 1, sizeof *l.in);
    l.now = calloc(l.words + 1, sizeof *l.now);
    l.weight = calloc(l.words * 64 + 1, sizeof *l.weight);
    if (l.in && l.now && l.weight) {
        weigh(&l);
        solve(&l);
        for (int32_t i = 0; i < f->block_count; i++) {
            enter_end(&l, &f->blocks[i]);
            uint32_t p = walk(&l, &f->blocks[i], true);
            if (p > most) most = p;
        }
    }
    free(l.in);
    free(l.now);
    free(l.weight);
    return most;
}

uint32_t vgpu_registers(const struct ptx_module *m, const struct ptx_function *f) {
    uint32_t n = most_alive(f) + BASE, limit = MOST;
    uint32_t threads =
        f->max_threads[0] * (f->max_threads[1] ? f->max_threads[1] : 1) * (f->max_threads[2] ? f->max_threads[2] : 1);
    (void)m;
    if (threads) { /* the assembler spills rather than break a bound that the kernel declares */
        uint32_t blocks = f->min_blocks ? f->min_blocks : 1;
        uint32_t bound = FILE_REGISTERS / (threads * blocks) / GRANULE * GRANULE;
        if (bound && bound < limit) limit = bound;
    }
    if (n > limit) n = limit;
    return n < LEAST ? LEAST : n;
}
