/* Blocks in order: what holds where control paths meet, and at which values. */
#include <stdlib.h>
#include <string.h>
#include "ptx/ptx_access_flow.h"

/* ---- states ---- */
static bool copy_state(struct analysis *a, struct state *to, const struct state *from, int32_t regs) {
    if (!to->regs) to->regs = calloc((size_t)regs + 1, sizeof *to->regs);
    if (to->cell_count < from->cell_count || !to->cells) {
        void *grown = realloc(to->cells, ((size_t)from->cell_count + 1) * sizeof *to->cells);
        if (grown) to->cells = grown;
        if (!grown) to->cell_count = -1;
    }
    if (!to->regs || to->cell_count < 0) {
        to->cell_count = 0;
        a->s.no_memory = true;
        return false;
    }
    if (from->regs) memcpy(to->regs, from->regs, (size_t)regs * sizeof *to->regs);
    if (from->cell_count) memcpy(to->cells, from->cells, (size_t)from->cell_count * sizeof *to->cells);
    to->cell_count = from->cell_count;
    return true;
}

/* ---- entering a block ---- */
static uint64_t facts_hash(const struct block_info *header) {
    uint64_t h = header->all_facts;
    for (int32_t n = 0; n < header->loop_fact_count; n++) h = h * 0x100000001B3u + (uint64_t)header->loop_facts[n];
    return h;
}

/* Which way out of p leads to b, and whether it can be gone. */
static bool edge_feasible(struct analysis *a, int32_t p, int32_t b, int32_t *cond) {
    const struct frame *f = a->frames[a->frame];
    const struct ptx_block *block = &f->f->blocks[p];
    const struct ptx_instr *last = &f->f->instrs[block->end - 1];
    *cond = 0;
    if (!f->block[p].reached) return false;
    bool listed = false;
    for (int32_t t = 0; t < last->targets; t++) listed |= f->f->branch_targets[last->targets0 + t] == b;
    if (listed) *cond = access_cond(a, COND_ANY, 0, 0); /* of an index */
    if (listed) return true;
    for (int32_t s = 0; s < block->succs; s++)
        if (block->succ[s] == b && f->block[p].feasible[s]) {
            *cond = f->block[p].edge[s];
            return true;
        }
    return false;
}

bool access_follows(const struct frame *f, int32_t b, int32_t d) {
    for (int n = 0; d >= 0 && n < 2000; n++, d = f->f->blocks[d].ipdom)
        if (d == b) return true;
    return false;
}

/* Where paths meet: what held at the dominator; all of it executes again if every path comes here. */
static struct place place_of_merge(const struct frame *f, int32_t b) {
    int32_t d = f->f->blocks[b].idom;
    struct place at = d >= 0 ? f->block[d].in : (struct place){-1, -1, true};
    if (d < 0) return at;
    at.exact = at.exact && access_follows(f, b, d);
    return at;
}

/* Behind a loop that b follows in any case, b is executed when the loop is entered, whatever the counter has become.
 * Else only if no iteration has left by another way, which facts can say only if they are all that ends the loop. */
static void forget_loops(const struct frame *f, int32_t b, int32_t from, struct place *at) {
    for (int32_t d = from; d >= 0; d = f->f->blocks[d].idom) {
        if (!f->block[d].header || (f->reducible && in_body(&f->block[d], b))) continue;
        if (!access_follows(f, b, d)) {
            if (!f->reducible || (in_body(&f->block[d], from) && !f->block[d].bounded)) at->exact = false;
            continue;
        }
        at->when = f->block[d].entry.when;
        at->exact = f->block[d].entry.exact;
    }
}

/* May a call have ended the thread on its way to b? */
static bool may_have_ended(const struct frame *f, int32_t b) {
    for (int32_t n = 0; f->ends && n < f->reached_blocks; n++) {
        int32_t c = f->order[n];
        if (!f->block[c].ends) continue;
        if (!f->reducible || f->f->blocks[c].rank < f->f->blocks[b].rank) return true;
        for (int32_t h = b; h >= 0; h = f->f->blocks[h].idom)
            if (f->block[h].header && in_body(&f->block[h], b) && in_body(&f->block[h], c)) return true;
    }
    return false;
}

static bool enter_block(struct analysis *a, int32_t b, const struct state *entry, const struct place *entry_place) {
    struct frame *f = a->frames[a->frame];
    const struct ptx_block *block = &f->f->blocks[b];
    struct block_info *info = &f->block[b];
    struct incoming *in = calloc((size_t)block->preds + 2, sizeof *in);
    struct merge m = {.block = b, .in = in};
    struct place at = place_of_merge(f, b);
    if (!in) {
        a->s.no_memory = true;
        return false;
    }
    a->at_block = b;
    if (b == 0) {
        in[m.forward++] = (struct incoming){-1, entry, entry_place->facts};
        at = *entry_place;
    }
    for (int back = 0; back < 2; back++) {
        for (int32_t n = 0; n < block->preds; n++) {
            int32_t p = f->f->pred[block->pred0 + n], cond;
            if (block->rank < 0 || f->f->blocks[p].rank < 0 || is_back(f, p, b) != back ||
                !edge_feasible(a, p, b, &cond))
                continue;
            struct place from = f->block[p].in;
            if (!back) access_edge(a, p, b, cond, &from);
            in[m.count = (back ? m.count : m.forward)] = (struct incoming){p, &f->block[p].out, from.facts};
            if (back)
                m.count++;
            else if (m.forward++ == 0)
                at = from;
            else
                at = place_of_merge(f, b);
        }
        m.count = back ? m.count : m.forward;
    }
    info->reached = m.forward > 0;
    uint64_t found = facts_hash(info);
    if (found != info->facts_used) a->changed = true;
    info->facts_used = found;
    if (info->reached) {
        bool one_way = m.forward == 1 && in[0].from >= 0;
        info->facts_of = one_way ? in[0].from : block->idom;
        forget_loops(f, b, info->facts_of, &at);
        at.exact = at.exact && !may_have_ended(f, b);
        info->entry = at;
        if (info->header && f->reducible) access_loop_facts(a, b, &at);
        if (info->header && (!f->reducible || !access_ends_by_tests(a, b))) info->bounded = false;
        info->in = at;
        int32_t cells = a->cell_count;
        if (a->now.cell_count < cells) {
            int32_t *grown = realloc(a->now.cells, (size_t)cells * sizeof *grown);
            if (!grown) a->s.no_memory = true;
            if (grown) a->now.cells = grown;
            if (grown) a->now.cell_count = cells;
        }
        for (int32_t r = 0; r < f->multi_count; r++) access_merge(a, &m, r, &a->now.regs[r]);
        for (int32_t c = 0; c < cells && c < a->now.cell_count; c++)
            if (a->cells[c].mixed)
                a->now.cells[c] = 0;
            else
                access_merge(a, &m, CELL + c, &a->now.cells[c]);
        info->loop_fact_count = 0; /* they are found anew in this pass */
        info->all_facts = true;
    }
    free(in);
    return info->reached;
}

/* ---- leaving a block ---- */
static void leave_block(struct analysis *a, int32_t b) {
    struct frame *f = a->frames[a->frame];
    struct block_info *info = &f->block[b];
    const struct ptx_block *block = &f->f->blocks[b];
    const struct ptx_instr *last = &f->f->instrs[block->end - 1];
    int32_t cond = 0;
    if (last->guard >= 0 && ptx_ops[last->op].properties & PTX_P_CONTROL && last->op != PTX_OP_CALL) {
        int32_t p = access_reg(a, last->guard);
        cond = p ? access_get(a, p).cond : access_cond(a, COND_ANY, 0, 0);
        if (last->guard_negated) cond = access_not(a, cond);
    }
    info->edge[0] = info->edge[1] = 0;
    info->feasible[0] = info->feasible[1] = true;
    int decided = cond ? access_decide(a, cond, info->in.facts) : 0;
    if (cond && block->succs == 2) {
        info->edge[0] = access_not(a, cond);
        info->edge[1] = cond;
        info->feasible[0] = decided <= 0;
        info->feasible[1] = decided >= 0;
    } else if (cond && last->op != PTX_OP_BRA) { /* guarded exit, return, brx: goes on if not */
        info->edge[0] = access_not(a, cond);
        info->feasible[0] = decided <= 0;
    }
    copy_state(a, &info->out, &a->now, f->multi_count);
    bool returns = last->op == PTX_OP_RET && decided >= 0;
    for (int32_t c = 0; returns && c < a->cell_count; c++) {
        if (c >= f->exit_count) {
            int32_t *grown = realloc(f->exit_cells, ((size_t)a->cell_count) * sizeof *grown);
            if (!grown) {
                a->s.no_memory = true;
                return;
            }
            memset(grown + f->exit_count, 0, (size_t)(a->cell_count - f->exit_count) * sizeof *grown);
            f->exit_cells = grown;
            f->exit_count = a->cell_count;
        }
        int32_t v = c < a->now.cell_count ? a->now.cells[c] : 0, old = f->exit_cells[c], symbol = 0;
        if (f->returns && v && old && v != old) symbol = access_symbol(a, 'X', a->frame, c, 0, -PTX_INF, PTX_INF);
        f->exit_cells[c] = f->returns ? access_join(a, old, v, symbol) : v;
    }
    f->returns |= returns;
    for (int32_t s = 0; s < block->succs; s++)
        if (is_back(f, b, block->succ[s]) && info->feasible[s])
            access_end_iteration(a, b, block->succ[s], info->edge[s]);
    for (int32_t t = 0; t < last->targets; t++) {
        int32_t to = f->f->branch_targets[last->targets0 + t];
        if (is_back(f, b, to)) f->block[to].all_facts = false;
    }
}

static void note_end(struct analysis *a, struct frame *f, int32_t b) {
    if (!f->block[b].ends) a->changed = true;
    f->block[b].ends = f->ends = f->stops = true;
}

void access_run_frame(struct analysis *a, int32_t frame) {
    struct frame *f = a->frames[frame];
    int32_t caller = a->frame, caller_block = a->at_block, caller_facts = a->now_facts, caller_when = a->now_when;
    bool caller_exact = a->now_exact;
    struct state outer = a->now, entry = {.cells = outer.cells, .cell_count = outer.cell_count};
    struct place start = {caller_facts, caller_when, caller_exact};
    a->now = (struct state){.regs = calloc((size_t)f->multi_count + 1, sizeof *a->now.regs)};
    if (!a->now.regs) a->s.no_memory = true;
    a->frame = frame;
    f->returns = false;
    if (f->exit_count) memset(f->exit_cells, 0, (size_t)f->exit_count * sizeof *f->exit_cells);
    for (int32_t n = 0; n < f->reached_blocks && !a->failed && !a->s.no_memory; n++) {
        int32_t b = f->order[n];
        if (!enter_block(a, b, &entry, &start)) continue;
        a->now_facts = f->block[b].in.facts;
        a->now_when = f->block[b].in.when;
        a->now_exact = f->block[b].in.exact;
        for (int32_t k = f->f->blocks[b].first; k < f->f->blocks[b].end; k++) {
            access_eval(a, &f->f->instrs[k]);
            if (a->steps > ACCESS_MAX_STEPS) a->failed = true;
            a->at_block = b;
        }
        f->block[b].in.exact = a->now_exact; /* a call may have ended some threads */
        leave_block(a, b);
    }
    free(a->now.regs);
    free(a->now.cells);
    a->now = outer;
    a->frame = caller;
    a->at_block = caller_block;
    a->now_facts = caller_facts;
    a->now_when = caller_when;
    a->now_exact = caller_exact && !f->stops;
    if (f->stops && caller >= 0 && frame) note_end(a, a->frames[caller], caller_block);
    for (int32_t c = 0; c < f->exit_count && c < a->now.cell_count; c++) a->now.cells[c] = f->exit_cells[c];
    if (f->exit_count > a->now.cell_count) {
        int32_t *grown = realloc(a->now.cells, (size_t)f->exit_count * sizeof *grown);
        if (!grown) {
            a->s.no_memory = true;
            return;
        }
        memcpy(grown + a->now.cell_count, f->exit_cells + a->now.cell_count,
               (size_t)(f->exit_count - a->now.cell_count) * sizeof *grown);
        a->now.cells = grown;
        a->now.cell_count = f->exit_count;
    }
}
