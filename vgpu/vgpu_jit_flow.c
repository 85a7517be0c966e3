/* Control flow for masks: loops, an order of blocks in which loops are contiguous, liveness, and which blocks may run
 * while other lanes of the warp wait elsewhere.
 *
 * A branch that separates lanes makes all blocks between it and its immediate postdominator *partial*: they run one
 * after the other in the order, each for the lanes that wait to enter it. All others run for every lane that has not
 * left, and branch as in the PTX. A register needs *blend* (a definition under a partial mask keeps the other lanes'
 * values) if definitions of it on one side of such a branch can be seen where both sides meet, or on the other side. */
#include "vgpu/vgpu_jit.h"
#include "vgpu/vgpu_jit_visit.h"

#include <stdlib.h>
#include <string.h>

/* ---- bit sets ---- */
static bool has(const uint64_t *set, int32_t i) {
    return set[i / 64] >> (i % 64) & 1;
}
static void add(uint64_t *set, int32_t i) {
    set[i / 64] |= UINT64_C(1) << (i % 64);
}
static void take(uint64_t *set, int32_t i) {
    set[i / 64] &= ~(UINT64_C(1) << (i % 64));
}

/* ---- successors, without the edges to blocks that only leave ---- */
static bool only_leaves(const struct ptx_function *f, int32_t b) {
    const struct ptx_block *block = &f->blocks[b];
    if (block->end != block->first + 1) return false;
    const struct ptx_instr *i = &f->instrs[block->first];
    return (i->op == PTX_OP_RET || i->op == PTX_OP_EXIT) && i->guard < 0 && f->entry;
}

int32_t jit_successors(const struct ptx_function *f, int32_t b, const int32_t **list) {
    const struct ptx_block *block = &f->blocks[b];
    const struct ptx_instr *last = block->end > block->first ? &f->instrs[block->end - 1] : NULL;
    if (last && last->op == PTX_OP_BRX) {
        *list = f->branch_targets + last->targets0;
        return last->targets;
    }
    *list = block->succ;
    return block->succs;
}

/* A conditional branch with one side that only leaves: the mask becomes smaller, nothing ever joins. */
static bool narrows(const struct jit_gen *g, int32_t b) {
    const struct ptx_block *block = &g->f->blocks[b];
    return block->succs == 2 && block->succ[0] != block->succ[1] &&
           (g->flow.trivial[block->succ[0]] || g->flow.trivial[block->succ[1]]);
}

/* Successors where lanes may meet again. */
static int32_t joining(const struct jit_gen *g, int32_t b, const int32_t **list) {
    int32_t n = jit_successors(g->f, b, list);
    if (!narrows(g, b)) return n;
    *list += g->flow.trivial[(*list)[0]] ? 1 : 0;
    return 1;
}

/* ---- postdominators: Cooper, Harvey and Kennedy's iteration, on the reversed graph ---- */
static int32_t meet_up(const struct jit_flow *w, const int32_t *number, int32_t a, int32_t b) {
    while (a != b) {
        if (a < 0 || b < 0) return -1;
        if (number[a] < number[b])
            a = w->ipdom[a];
        else
            b = w->ipdom[b];
    }
    return a;
}

static bool joins(const struct jit_gen *g, int32_t from, int32_t to) {
    const int32_t *list;
    int32_t count = joining(g, from, &list);
    for (int32_t i = 0; i < count; i++)
        if (list[i] == to) return true;
    return false;
}

struct reversed { /* by block, but for by_number */
    int32_t *number, *by_number, *next, *stack, count;
};

static void walk_back(struct jit_gen *g, struct reversed *r, int32_t from) {
    const struct ptx_function *f = g->f;
    int32_t top = 0;
    for (r->number[from] = -1, r->next[from] = 0, r->stack[top++] = from; top;) {
        int32_t b = r->stack[top - 1];
        if (r->next[b] == f->blocks[b].preds) {
            r->by_number[r->count] = b;
            r->number[b] = r->count++;
            top--;
            continue;
        }
        int32_t p = f->pred[f->blocks[b].pred0 + r->next[b]++];
        if (f->blocks[p].rank < 0 || r->number[p] != -2 || !joins(g, p, b)) continue;
        r->number[p] = -1, r->next[p] = 0, r->stack[top++] = p;
    }
}

/* Postorder of the reversed graph, from each block that leaves; then from branches out of loops that nothing else
 * leaves: a loop whose lanes all end the kernel. */
static void reverse_postorder(struct jit_gen *g, struct reversed *r, bool *root) {
    const struct ptx_function *f = g->f;
    for (int32_t b = 0; b < f->block_count; b++) r->number[b] = -2;
    for (int pass = 0; pass < 2; pass++)
        for (int32_t b = f->block_count - 1; b >= 0; b--) {
            const int32_t *list;
            if (f->blocks[b].rank < 0 || r->number[b] != -2) continue;
            if (pass ? !narrows(g, b) : joining(g, b, &list) != 0) continue;
            root[b] = true;
            walk_back(g, r, b);
        }
}

/* -1 too for blocks without a way out (endless loops). */
static int postdominators(struct jit_gen *g) {
    struct jit_flow *w = &g->flow;
    size_t n = (size_t)g->f->block_count + 1;
    int32_t *number = calloc(4 * n, sizeof *number);
    bool *root = calloc(n, 1);
    if (!number || !root) {
        free(number), free(root);
        return -1;
    }
    struct reversed r = {number, number + n, number + 2 * n, number + 3 * n, 0};
    reverse_postorder(g, &r, root);
    for (int32_t b = 0; b < g->f->block_count; b++) w->ipdom[b] = number[b] < 0 ? -1 : -2;
    for (bool changed = true; changed;) {
        changed = false;
        for (int32_t k = r.count - 1; k >= 0; k--) {
            int32_t b = r.by_number[k], now = -1, seen = 0;
            const int32_t *list;
            int32_t edges = root[b] ? 0 : joining(g, b, &list);
            for (int32_t i = 0; i < edges; i++)
                if (number[list[i]] < 0) /* into an endless loop */
                    now = -1, seen++;
                else if (w->ipdom[list[i]] != -2)
                    now = seen++ ? meet_up(w, number, now, list[i]) : list[i];
            if (now != w->ipdom[b]) w->ipdom[b] = now, changed = true;
        }
    }
    free(number), free(root);
    return 0;
}

/* ---- loops ---- */
static bool dominates(const struct ptx_function *f, int32_t a, int32_t b) {
    while (b >= 0 && b != a) b = f->blocks[b].idom;
    return b == a;
}

static int32_t loop_at(struct jit_flow *w, int32_t header) {
    for (int32_t i = 0; i < w->loop_count; i++)
        if (w->loops[i].header == header) return i;
    w->loops[w->loop_count] = (struct jit_loop){.header = header, .parent = -1};
    return w->loop_count++;
}

/* Blocks from which `from` is reached without passing the header. Outer loops come first: they have lower headers. */
static void mark_loop(struct jit_gen *g, uint64_t *body, int32_t header, int32_t from, int32_t *stack) {
    const struct ptx_function *f = g->f;
    int32_t top = 0;
    add(body, header);
    if (!has(body, from)) add(body, from), stack[top++] = from;
    while (top) {
        const struct ptx_block *b = &f->blocks[stack[--top]];
        for (int32_t i = 0; i < b->preds; i++) {
            int32_t p = f->pred[b->pred0 + i];
            if (f->blocks[p].rank >= 0 && !has(body, p)) add(body, p), stack[top++] = p;
        }
    }
}

static int find_loops(struct jit_gen *g, const int32_t *by_rank, int32_t n) {
    const struct ptx_function *f = g->f;
    struct jit_flow *w = &g->flow;
    size_t words = (size_t)f->block_count / 64 + 1;
    uint64_t *bodies = calloc((size_t)f->block_count * words, sizeof *bodies);
    int32_t *stack = calloc((size_t)f->block_count + 1, sizeof *stack);
    if (!bodies || !stack) {
        free(bodies), free(stack);
        jit_fail(g, "no memory");
        return -1;
    }
    for (int32_t k = 0; k < n; k++) /* headers in order of rank */
        for (int32_t i = 0; i < f->blocks[by_rank[k]].preds; i++) {
            int32_t b = by_rank[k], p = f->pred[f->blocks[b].pred0 + i];
            if (f->blocks[p].rank < f->blocks[b].rank) continue;
            if (!dominates(f, b, p)) jit_fail(g, "irreducible control flow is not supported");
            mark_loop(g, bodies + words * (size_t)loop_at(w, b), b, p, stack);
        }
    for (int32_t b = 0; b < f->block_count; b++) w->loop_of[b] = -1;
    for (int32_t l = 0; l < w->loop_count; l++) {
        w->loops[l].parent = w->loop_of[w->loops[l].header];
        for (int32_t b = 0; b < f->block_count; b++)
            if (has(bodies + words * (size_t)l, b)) w->loop_of[b] = l;
    }
    free(bodies), free(stack);
    return g->u->failed ? -1 : 0;
}

static bool inside(const struct jit_flow *w, int32_t b, int32_t loop) {
    int32_t l = w->loop_of[b];
    while (l >= 0 && l != loop) l = w->loops[l].parent;
    return l == loop;
}

/* Topological but for back edges, and a loop's blocks follow each other: of the blocks whose predecessors are placed,
 * one of the innermost unfinished loop. */
static void make_order(struct jit_gen *g, const int32_t *by_rank, int32_t n, int32_t *waiting) {
    const struct ptx_function *f = g->f;
    struct jit_flow *w = &g->flow;
    int32_t loop = -1;
    for (int32_t b = 0; b < f->block_count; b++) w->place[b] = -1, waiting[b] = 0;
    for (int32_t k = 0; k < n; k++) {
        const int32_t *list;
        int32_t count = jit_successors(f, by_rank[k], &list);
        for (int32_t i = 0; i < count; i++)
            if (f->blocks[list[i]].rank > k) waiting[list[i]]++;
    }
    for (w->count = 0; w->count < n;) {
        int32_t found = -1;
        for (int32_t k = 0; k < n && found < 0; k++) {
            int32_t b = by_rank[k];
            if (w->place[b] < 0 && !waiting[b] && inside(w, b, loop)) found = b;
        }
        if (found < 0) {
            if (loop < 0) break;
            w->loops[loop].last = w->count - 1;
            loop = w->loops[loop].parent;
            continue;
        }
        loop = w->loop_of[found];
        w->place[found] = w->count;
        w->order[w->count++] = found;
        const int32_t *list;
        int32_t count = jit_successors(f, found, &list);
        for (int32_t i = 0; i < count; i++)
            if (f->blocks[list[i]].rank > f->blocks[found].rank) waiting[list[i]]--;
    }
    for (; loop >= 0; loop = w->loops[loop].parent) w->loops[loop].last = w->count - 1;
}

/* ---- liveness ---- */
struct live_visit {
    uint64_t *set;
};
static void live_use(void *context, int32_t reg) {
    add(((struct live_visit *)context)->set, reg);
}
static void live_def(void *context, int32_t reg) {
    take(((struct live_visit *)context)->set, reg);
}

static void liveness(struct jit_gen *g, uint64_t *scratch) {
    const struct ptx_function *f = g->f;
    struct jit_flow *w = &g->flow;
    for (bool changed = true; changed;) {
        changed = false;
        for (int32_t k = w->count - 1; k >= 0; k--) {
            int32_t b = w->order[k];
            uint64_t *in = w->live_in + w->live_words * (size_t)b;
            memset(scratch, 0, w->live_words * sizeof *scratch);
            const int32_t *list;
            int32_t count = jit_successors(f, b, &list);
            for (int32_t i = 0; i < count; i++)
                for (size_t j = 0; j < w->live_words; j++)
                    scratch[j] |= w->live_in[w->live_words * (size_t)list[i] + j];
            struct live_visit v = {scratch};
            for (int32_t i = f->blocks[b].end - 1; i >= f->blocks[b].first; i--) {
                if (f->instrs[i].guard < 0) jit_visit_defs(&f->instrs[i], live_def, &v);
                jit_visit_uses(&f->instrs[i], live_use, &v);
            }
            if (memcmp(in, scratch, w->live_words * sizeof *in)) {
                memcpy(in, scratch, w->live_words * sizeof *in);
                changed = true;
            }
        }
    }
}

/* ---- divergence ---- */
static void reach(struct jit_gen *g, int32_t from, int32_t stop, uint64_t *set, int32_t *stack) {
    int32_t top = 0;
    if (from == stop || has(set, from)) {
        if (from == stop) add(set, from);
        return;
    }
    add(set, from);
    stack[top++] = from;
    while (top) {
        const int32_t *list;
        int32_t count = joining(g, stack[--top], &list);
        for (int32_t i = 0; i < count; i++)
            if (!has(set, list[i])) {
                add(set, list[i]);
                if (list[i] != stop) stack[top++] = list[i];
            }
    }
}

struct blend_visit {
    struct jit_gen *g;
    const uint64_t *joins, *side[2]; /* live at a join; reached from one successor only */
    int32_t block;
    const uint64_t *live_meet, *live_other[2];
};
static void blend_def(void *context, int32_t reg) {
    struct blend_visit *v = context;
    bool seen = has(v->live_meet, reg);
    for (int s = 0; s < 2; s++)
        if (has(v->side[s], v->block) && has(v->live_other[s], reg)) seen = true;
    if (seen) v->g->flow.blend[reg] = true;
}

/* Of one pair of successors of a branch that separates lanes. */
static void separate(struct jit_gen *g, int32_t b, int32_t s0, int32_t s1, uint64_t *work, int32_t *stack) {
    const struct ptx_function *f = g->f;
    struct jit_flow *w = &g->flow;
    size_t words = (size_t)f->block_count / 64 + 1;
    uint64_t *reached[2] = {work, work + words}, *side[2] = {work + 2 * words, work + 3 * words},
             *meet = work + 4 * words;
    int32_t stop = w->ipdom[b];
    memset(work, 0, (4 * words + w->live_words) * sizeof *work);
    reach(g, s0, stop, reached[0], stack);
    reach(g, s1, stop, reached[1], stack);
    for (size_t i = 0; i < words; i++) {
        side[0][i] = reached[0][i] & ~reached[1][i];
        side[1][i] = reached[1][i] & ~reached[0][i];
    }
    for (int32_t x = 0; x < f->block_count; x++)
        if (has(reached[0], x) && has(reached[1], x))
            for (size_t j = 0; j < w->live_words; j++) meet[j] |= w->live_in[w->live_words * (size_t)x + j];
    struct blend_visit v = {g, meet, {side[0], side[1]}, 0, meet, {0}};
    v.live_other[0] = w->live_in + w->live_words * (size_t)s1;
    v.live_other[1] = w->live_in + w->live_words * (size_t)s0;
    for (int32_t x = 0; x < f->block_count; x++) {
        if (x == stop || !(has(reached[0], x) || has(reached[1], x))) continue;
        w->partial[x] = true;
        v.block = x;
        for (int32_t i = f->blocks[x].first; i < f->blocks[x].end; i++) jit_visit_defs(&f->instrs[i], blend_def, &v);
    }
}

void jit_flow_divergence(struct jit_gen *g) {
    const struct ptx_function *f = g->f;
    struct jit_flow *w = &g->flow;
    size_t words = (size_t)f->block_count / 64 + 1;
    uint64_t *work = calloc(4 * words + w->live_words, sizeof *work);
    int32_t *stack = calloc((size_t)f->block_count + 1, sizeof *stack);
    if (!work || !stack) jit_fail(g, "no memory");
    for (int32_t k = 0; k < w->count && !g->u->failed; k++) {
        int32_t b = w->order[k];
        const struct ptx_block *block = &f->blocks[b];
        const struct ptx_instr *last = block->end > block->first ? &f->instrs[block->end - 1] : NULL;
        const int32_t *list;
        if (!last || !jit_divergent_guard(g, last)) continue;
        int32_t count = joining(g, b, &list);
        w->divergent[b] = jit_successors(f, b, &list) > 1;
        if (count < 2) continue;
        for (int32_t i = 0; i < count; i++)
            for (int32_t j = i + 1; j < count; j++)
                if (list[i] != list[j]) separate(g, b, list[i], list[j], work, stack);
    }
    free(work), free(stack);
    for (int32_t l = 0; l < w->loop_count; l++)
        for (int32_t i = 0; i < f->blocks[w->loops[l].header].preds; i++) {
            int32_t p = f->pred[f->blocks[w->loops[l].header].pred0 + i];
            if (w->place[p] >= w->place[w->loops[l].header] && w->partial[p]) w->loops[l].masked = true;
        }
}

/* ---- whole ---- */
int jit_flow_make(struct jit_gen *g) {
    const struct ptx_function *f = g->f;
    struct jit_flow *w = &g->flow;
    size_t n = (size_t)f->block_count + 1, regs = (size_t)f->reg_count + 1;
    int32_t *by_rank = calloc(n, sizeof *by_rank), *waiting = calloc(n, sizeof *waiting), reachable = 0;
    w->live_words = regs / 64 + 1;
    w->order = calloc(n, sizeof *w->order), w->place = calloc(n, sizeof *w->place);
    w->loop_of = calloc(n, sizeof *w->loop_of), w->ipdom = calloc(n, sizeof *w->ipdom);
    w->loops = calloc(n, sizeof *w->loops);
    w->live_in = calloc(n * w->live_words, sizeof *w->live_in);
    w->trivial = calloc(n, 1), w->partial = calloc(n, 1), w->divergent = calloc(n, 1), w->blend = calloc(regs, 1);
    uint64_t *scratch = calloc(w->live_words, sizeof *scratch);
    if (by_rank && waiting && w->order && w->place && w->loop_of && w->ipdom && w->loops && w->live_in && w->trivial &&
        w->partial && w->divergent && w->blend && scratch) {
        for (int32_t b = 0; b < f->block_count; b++) {
            w->trivial[b] = only_leaves(f, b);
            if (f->blocks[b].rank >= 0) by_rank[f->blocks[b].rank] = b, reachable++;
        }
        if (postdominators(g)) jit_fail(g, "no memory");
        if (!find_loops(g, by_rank, reachable)) {
            make_order(g, by_rank, reachable, waiting);
            if (g->u->lanes > 1) liveness(g, scratch);
        }
    } else
        jit_fail(g, "no memory");
    free(by_rank), free(waiting), free(scratch);
    return g->u->failed ? -1 : 0;
}

void jit_flow_free(struct jit_gen *g) {
    struct jit_flow *w = &g->flow;
    free(w->order), free(w->place), free(w->loop_of), free(w->ipdom), free(w->loops), free(w->live_in);
    free(w->trivial), free(w->partial), free(w->divergent), free(w->blend);
}
