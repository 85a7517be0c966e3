/* Bounds by the text of a function alone, without regard to values: all its blocks once, and no bound of what is in a
 * loop. */
#include "ptx/ptx_cost_model.h"

enum { MAX_WORST_DEPTH = 12 };
#define ALL_ENDLESS ((UINT32_C(1) << PTX_T_FIELDS) - 1)

static void worst_of(struct cost_run *x, const struct ptx_function *f, struct ptx_tally *hi, uint32_t *endless,
                     int depth);

void cost_worst_block(struct cost_run *x, const struct ptx_function *f, int32_t block, struct ptx_tally *hi,
                      uint32_t *endless, int depth) {
    for (int32_t n = f->blocks[block].first; n < f->blocks[block].end; n++) {
        const struct ptx_instr *i = &f->instrs[n];
        ptx_tally_instr(hi, i);
        if (i->op == PTX_OP_BULK) *endless |= COST_BULK_FIELDS;
        if (ptx_is_address(i, 0) && i->srcs) {
            enum ptx_space space = i->space;
            if (i->src[0].kind == PTX_ADDRESS && i->src[0].var >= 0)
                space = ptx_var_of(x->module, f, i->src[0].var)->space;
            if (space == PTX_GENERIC || space == PTX_SPACE_NONE) { /* in any of them */
                for (int k = 0; k < PTX_COST_SPACES; k++) ptx_tally_access(hi, i, (enum ptx_cost_space)k);
            } else {
                ptx_tally_access(hi, i, ptx_cost_space_of(space));
            }
        }
        if (i->op != PTX_OP_CALL) continue;
        if (i->callee < 0 || depth > MAX_WORST_DEPTH)
            *endless = ALL_ENDLESS;
        else if (!x->module->functions[i->callee].declared_only)
            worst_of(x, &x->module->functions[i->callee], hi, endless, depth + 1);
    }
    x->steps++;
}

void cost_mark_endless(const struct ptx_tally *hi, const struct ptx_tally *before, uint32_t *endless) {
    for (int k = 0; k < PTX_T_FIELDS; k++)
        if (hi->n[k] > before->n[k]) *endless |= 1u << k;
}

int32_t cost_ways(const struct ptx_function *f, int32_t block, int32_t *to, int32_t room) {
    const struct ptx_block *b = &f->blocks[block];
    const struct ptx_instr *last = &f->instrs[b->end - 1];
    int32_t n = 0;
    for (int32_t k = 0; k < b->succs && n < room; k++) to[n++] = b->succ[k];
    for (int32_t k = 0; k < last->targets && n < room; k++) to[n++] = f->branch_targets[last->targets0 + k];
    return n;
}

bool cost_goes_back(const struct ptx_function *f, int32_t block) {
    int32_t to[COST_MAX_ARMS], n = cost_ways(f, block, to, COST_MAX_ARMS);
    for (int32_t k = 0; k < n; k++)
        if (f->blocks[to[k]].rank <= f->blocks[block].rank) return true;
    return n == COST_MAX_ARMS;
}

static void worst_of(struct cost_run *x, const struct ptx_function *f, struct ptx_tally *hi, uint32_t *endless,
                     int depth) {
    struct ptx_tally before = *hi;
    bool loops = false;
    if (x->steps > 2 * x->limit || f->error) *endless = ALL_ENDLESS;
    for (int32_t b = 0; b < f->block_count && *endless != ALL_ENDLESS; b++) {
        if (f->blocks[b].rank < 0) continue;
        cost_worst_block(x, f, b, hi, endless, depth);
        loops |= cost_goes_back(f, b);
    }
    if (loops) cost_mark_endless(hi, &before, endless);
}

void cost_worst(struct cost_run *x, const struct ptx_function *f, struct ptx_tally *hi, uint32_t *endless) {
    worst_of(x, f, hi, endless, 0);
}
