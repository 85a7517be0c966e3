/* Basic blocks, reverse post-order, dominators and postdominators (Cooper, Harvey and Kennedy's iteration). */
#include <stdlib.h>
#include <string.h>
#include "ptx/ptx_parse.h"

bool ptx_is_end(const struct ptx_instr *i) {
    bool goes = i->op == PTX_OP_BRA || i->op == PTX_OP_BRX || i->op == PTX_OP_EXIT || i->op == PTX_OP_RET ||
                i->op == PTX_OP_TRAP;
    return goes && i->guard < 0;
}

/* A guarded return or exit ends a block as well: some threads leave there. */
static bool ends_block(const struct ptx_instr *i) {
    return i->op == PTX_OP_BRA || i->op == PTX_OP_BRX || i->op == PTX_OP_EXIT || i->op == PTX_OP_RET ||
           i->op == PTX_OP_TRAP;
}

struct flow {
    struct ptx_function *f;
    struct ptx_arena *arena;
    int32_t *work; /* of instrs + 1, and later of blocks */
};

/* ---- blocks ---- */
static void mark_leaders(const struct ptx_function *f, int32_t *leader) {
    leader[0] = 1;
    for (int32_t n = 0; n < f->instr_count; n++) {
        const struct ptx_instr *i = &f->instrs[n];
        if (ends_block(i)) leader[n + 1] = 1;
        if (i->target >= 0) leader[i->target] = 1;
        for (int32_t t = 0; t < i->targets; t++) leader[f->branch_targets[i->targets0 + t]] = 1;
    }
}

/* Afterwards work[instruction] is its block. */
static int make_blocks(struct flow *w) {
    struct ptx_function *f = w->f;
    int32_t count = 0;
    mark_leaders(f, w->work);
    for (int32_t n = 0; n < f->instr_count; n++) count += w->work[n];
    f->blocks = ptx_arena_try(w->arena, (size_t)count * sizeof *f->blocks);
    if (!f->blocks) return -1;
    f->block_count = count;
    int32_t b = -1;
    for (int32_t n = 0; n < f->instr_count; n++) {
        if (w->work[n])
            f->blocks[++b] = (struct ptx_block){.first = n, .succ = {-1, -1}, .idom = -1, .ipdom = -1, .rank = -1};
        f->blocks[b].end = n + 1;
        w->work[n] = b;
    }
    return 0;
}

static void link_blocks(struct flow *w) {
    struct ptx_function *f = w->f;
    for (int32_t b = 0; b < f->block_count; b++) {
        struct ptx_block *block = &f->blocks[b];
        struct ptx_instr *last = &f->instrs[block->end - 1];
        if (!ptx_is_end(last)) block->succ[block->succs++] = b + 1;
        if (last->op != PTX_OP_BRA) continue;
        last->target = w->work[last->target];
        /* @p bra to the next instruction: one way. */
        if (!block->succs || block->succ[0] != last->target) block->succ[block->succs++] = last->target;
    }
    /* Targets of brx: each list once, though several instructions may have the same. */
    for (int32_t n = 0; n < f->instr_count; n++)
        for (int32_t t = 0; t < f->instrs[n].targets; t++) {
            int32_t *target = &f->branch_targets[f->instrs[n].targets0 + t];
            *target = w->work[*target];
        }
}

static int32_t successors(const struct ptx_function *f, int32_t b) {
    const struct ptx_instr *last = &f->instrs[f->blocks[b].end - 1];
    return f->blocks[b].succs + last->targets;
}

static int32_t successor(const struct ptx_function *f, int32_t b, int32_t n) {
    const struct ptx_block *block = &f->blocks[b];
    return n < block->succs ? block->succ[n] : f->branch_targets[f->instrs[block->end - 1].targets0 + n - block->succs];
}

static int link_predecessors(struct flow *w) {
    struct ptx_function *f = w->f;
    int32_t edges = 0;
    for (int32_t b = 0; b < f->block_count; b++)
        for (int32_t n = 0; n < successors(f, b); n++) f->blocks[successor(f, b, n)].preds++, edges++;
    f->pred = ptx_arena_try(w->arena, (size_t)(edges + 1) * sizeof *f->pred);
    if (!f->pred) return -1;
    int32_t at = 0;
    for (int32_t b = 0; b < f->block_count; b++) {
        f->blocks[b].pred0 = at;
        at += f->blocks[b].preds;
        f->blocks[b].preds = 0;
    }
    for (int32_t b = 0; b < f->block_count; b++)
        for (int32_t n = 0; n < successors(f, b); n++) {
            struct ptx_block *to = &f->blocks[successor(f, b, n)];
            f->pred[to->pred0 + to->preds++] = b;
        }
    return 0;
}

/* ---- orders and dominators, forwards from the entry or backwards from the exits ----
 * The graph has one more node, `count`: the exit, which follows each block that leaves the function. */
struct graph {
    const struct ptx_function *f;
    bool backwards;
    int32_t count;
    int32_t *order, *rank, *dominator, *stack, *next; /* each of count + 1 */
    int32_t *leaving, leavings;                       /* blocks before the exit */
};

static bool leaves(const struct ptx_function *f, int32_t b) {
    const struct ptx_instr *last = &f->instrs[f->blocks[b].end - 1];
    return last->op == PTX_OP_RET || last->op == PTX_OP_EXIT || last->op == PTX_OP_TRAP;
}

static int32_t outs(const struct graph *g, int32_t b) {
    if (!g->backwards) return successors(g->f, b);
    return b == g->count ? g->leavings : g->f->blocks[b].preds;
}

static int32_t out(const struct graph *g, int32_t b, int32_t n) {
    if (!g->backwards) return successor(g->f, b, n);
    return b == g->count ? g->leaving[n] : g->f->pred[g->f->blocks[b].pred0 + n];
}

static int32_t ins(const struct graph *g, int32_t b) {
    if (!g->backwards) return g->f->blocks[b].preds;
    return b == g->count ? 0 : successors(g->f, b) + leaves(g->f, b);
}

static int32_t in(const struct graph *g, int32_t b, int32_t n) {
    if (!g->backwards) return g->f->pred[g->f->blocks[b].pred0 + n];
    return n < successors(g->f, b) ? successor(g->f, b, n) : g->count;
}

/* Reverse post-order from the root into order; the number of nodes reached. */
static int32_t number(struct graph *g, int32_t root) {
    int32_t depth = 0, left = g->count + 1;
    for (int32_t b = 0; b <= g->count; b++) g->rank[b] = -1;
    g->stack[depth++] = root;
    g->next[root] = 0;
    g->rank[root] = -2; /* seen */
    while (depth) {
        int32_t b = g->stack[depth - 1];
        if (g->next[b] == outs(g, b)) {
            g->order[--left] = b;
            depth--;
            continue;
        }
        int32_t to = out(g, b, g->next[b]++);
        if (g->rank[to] != -1) continue;
        g->rank[to] = -2;
        g->next[to] = 0;
        g->stack[depth++] = to;
    }
    int32_t reached = g->count + 1 - left;
    memmove(g->order, g->order + left, (size_t)reached * sizeof *g->order);
    for (int32_t n = 0; n < reached; n++) g->rank[g->order[n]] = n;
    return reached;
}

static int32_t meet(const struct graph *g, int32_t a, int32_t b) {
    while (a != b) {
        while (g->rank[a] > g->rank[b]) a = g->dominator[a];
        while (g->rank[b] > g->rank[a]) b = g->dominator[b];
    }
    return a;
}

static void dominate(struct graph *g, int32_t root) {
    int32_t reached = number(g, root);
    for (int32_t b = 0; b <= g->count; b++) g->dominator[b] = -1;
    g->dominator[root] = root;
    for (bool changed = true; changed;) {
        changed = false;
        for (int32_t n = 1; n < reached; n++) {
            int32_t b = g->order[n], best = -1;
            for (int32_t k = 0; k < ins(g, b); k++) {
                int32_t from = in(g, b, k);
                if (g->rank[from] < 0 || g->dominator[from] < 0) continue;
                best = best < 0 ? from : meet(g, from, best);
            }
            if (best != g->dominator[b]) {
                g->dominator[b] = best;
                changed = true;
            }
        }
    }
}

static int find_dominators(struct ptx_function *f) {
    struct graph g = {.f = f, .count = f->block_count};
    size_t nodes = (size_t)g.count + 1;
    int32_t *memory = malloc(6 * nodes * sizeof *memory);
    if (!memory) return -1;
    int32_t **parts[] = {&g.order, &g.rank, &g.dominator, &g.stack, &g.next, &g.leaving};
    for (size_t n = 0; n < 6; n++) *parts[n] = memory + n * nodes;
    for (int32_t b = 0; b < g.count; b++)
        if (leaves(f, b)) g.leaving[g.leavings++] = b;
    dominate(&g, 0);
    for (int32_t b = 0; b < g.count; b++) {
        f->blocks[b].rank = g.rank[b];
        f->blocks[b].idom = b ? g.dominator[b] : -1;
    }
    g.backwards = true;
    dominate(&g, g.count);
    for (int32_t b = 0; b < g.count; b++) f->blocks[b].ipdom = g.dominator[b] == g.count ? -1 : g.dominator[b];
    free(memory);
    return 0;
}

int ptx_flow(struct ptx_module *module, struct ptx_function *f) {
    struct flow w = {.f = f, .arena = module->arena};
    f->block_count = 0;
    if (!f->instr_count) return 0;
    w.work = calloc((size_t)f->instr_count + 1, sizeof *w.work);
    if (!w.work) return -1;
    int rc = make_blocks(&w);
    if (!rc) {
        link_blocks(&w);
        rc = link_predecessors(&w);
    }
    free(w.work);
    return rc ? rc : find_dominators(f);
}
