/* What is made of a function once: the registers that control depends on, the instructions that must be evaluated, the
 * counts of those that need not be, the natural loops. */
#include <stdlib.h>
#include <string.h>
#include "ptx/ptx_cost_model.h"

enum { MAX_LOOP_WORDS = 1 << 22 };

/* ---- what control depends on ---- */
struct slice {
    struct cost_run *x;
    bool **wanted; /* by function, register; NULL: not reached */
    bool carry;    /* through the carry flag: all that set it matter */
    bool memory;   /* through the thread's local memory or arguments of calls: then everything may matter */
    bool changed;
};

static void want(struct slice *w, bool *wanted, int32_t reg) {
    if (reg < 0 || wanted[reg]) return;
    wanted[reg] = true;
    w->changed = true;
}

static void want_operand(struct slice *w, bool *wanted, const struct ptx_operand *o) {
    if (o->kind == PTX_VECTOR)
        for (unsigned k = 0; k < o->count; k++)
            want(w, wanted, o->elements[k].kind == PTX_REG ? o->elements[k].reg : -1);
    else if (o->kind == PTX_REG || o->kind == PTX_ADDRESS)
        want(w, wanted, o->reg);
}

static bool gives(const bool *wanted, const struct ptx_instr *i) {
    for (unsigned k = 0; k < i->dsts; k++) {
        const struct ptx_operand *o = &i->dst[k];
        if (o->kind == PTX_REG && wanted[o->reg]) return true;
        for (unsigned e = 0; o->kind == PTX_VECTOR && e < o->count; e++)
            if (o->elements[e].kind == PTX_REG && wanted[o->elements[e].reg]) return true;
    }
    return false;
}

static bool is_generic(const struct ptx_instr *i) {
    return ptx_is_address(i, 0) && i->srcs && i->src[0].var < 0 &&
           (i->space == PTX_GENERIC || i->space == PTX_SPACE_NONE);
}

/* A load whose value control depends on: a parameter of the kernel is known, global and shared memory is data. */
static void want_load(struct slice *w, const struct ptx_function *f, bool *wanted, const struct ptx_instr *i) {
    const struct ptx_operand *o = &i->src[0];
    enum ptx_space space = i->space;
    if (o->var >= 0) space = ptx_var_of(w->x->module, f, o->var)->space;
    if (space == PTX_GLOBAL || space == PTX_SHARED || space == PTX_CONST) return;
    if (space == PTX_PARAM && f->entry) {
        if (o->var >= 0 && ptx_var_of(w->x->module, f, o->var) - f->vars < f->params) return;
        if (o->var < 0) want_operand(w, wanted, o);
    }
    if (space != PTX_PARAM || !f->entry || o->var >= 0) w->memory = true;
}

static void want_sources(struct slice *w, const struct ptx_function *f, bool *wanted, const struct ptx_instr *i) {
    unsigned properties = ptx_ops[i->op].properties;
    want(w, wanted, i->guard);
    if (i->op == PTX_OP_LDZ) want_operand(w, wanted, &i->src[1]);
    if (is_generic(i) && properties & (PTX_P_READS | PTX_P_WRITES)) want_operand(w, wanted, &i->src[0]);
    if (i->op == PTX_OP_BRX || (i->op == PTX_OP_CALL && i->callee < 0)) want_operand(w, wanted, &i->src[0]);
    bool flag = w->carry && i->modifiers & PTX_M_CC;
    if (!w->carry && cost_takes_carry(i) && gives(wanted, i)) w->carry = w->changed = true;
    if (i->op == PTX_OP_CALL || !(gives(wanted, i) || flag) || properties & (PTX_P_WARP | PTX_P_BARRIER | PTX_P_ATOMIC))
        return;
    if (properties & PTX_P_READS) return want_load(w, f, wanted, i);
    for (unsigned k = 0; k < i->srcs; k++) want_operand(w, wanted, &i->src[k]);
}

static void reach(struct slice *w, const struct ptx_function *f) {
    int32_t n = (int32_t)(f - w->x->module->functions);
    if (w->wanted[n] || f->declared_only || f->error) return;
    w->wanted[n] = calloc((size_t)f->reg_count + 1, sizeof **w->wanted);
    if (!w->wanted[n]) w->x->failed = true;
    w->changed = true;
}

static void reach_callees(struct slice *w, const struct ptx_function *f) {
    const struct ptx_module *m = w->x->module;
    for (int32_t n = 0; n < f->instr_count; n++) {
        if (f->instrs[n].op != PTX_OP_CALL) continue;
        if (f->instrs[n].callee >= 0)
            reach(w, &m->functions[f->instrs[n].callee]);
        else
            for (int32_t k = 0; k < m->function_count; k++)
                if (!m->functions[k].entry) reach(w, &m->functions[k]);
    }
}

/* All functions that may be called first: where memory matters, everything in them does. */
static void grow(struct slice *w) {
    const struct ptx_module *m = w->x->module;
    do {
        w->changed = false;
        for (int32_t n = 0; n < m->function_count && !w->x->failed; n++)
            if (w->wanted[n]) reach_callees(w, &m->functions[n]);
    } while (w->changed && !w->x->failed);
    do {
        w->changed = false;
        for (int32_t n = 0; n < m->function_count && !w->memory && !w->x->failed; n++) {
            const struct ptx_function *f = &m->functions[n];
            for (int32_t k = w->wanted[n] ? f->instr_count - 1 : -1; k >= 0; k--)
                want_sources(w, f, w->wanted[n], &f->instrs[k]);
        }
    } while (w->changed && !w->memory && !w->x->failed);
}

/* ---- loops ---- */
static bool dominates(const struct ptx_function *f, int32_t h, int32_t b) {
    while (b >= 0 && b != h) b = f->blocks[b].idom;
    return b == h;
}

static void add_body(const struct ptx_function *f, uint64_t *body, int32_t header, int32_t from, int32_t *stack) {
    int32_t depth = 0;
    body[header / 64] |= UINT64_C(1) << (header % 64);
    if (!cost_in(body, from)) stack[depth++] = from;
    body[from / 64] |= UINT64_C(1) << (from % 64);
    while (depth) {
        const struct ptx_block *b = &f->blocks[stack[--depth]];
        for (int32_t k = 0; k < b->preds; k++) {
            int32_t p = f->pred[b->pred0 + k];
            if (cost_in(body, p) || f->blocks[p].rank < 0) continue;
            body[p / 64] |= UINT64_C(1) << (p % 64);
            stack[depth++] = p;
        }
    }
}

/* Inner loops have later headers in reverse post-order, so the last one that has a block is its innermost. */
static int find_loops(struct func_info *info) {
    const struct ptx_function *f = info->f;
    int32_t *stack = calloc((size_t)f->block_count + 1, 2 * sizeof *stack), *order = stack + f->block_count;
    if (!stack) return -1;
    for (int32_t b = 0; b < f->block_count; b++)
        if (f->blocks[b].rank >= 0) order[f->blocks[b].rank] = b;
    for (int32_t n = 0; n < f->block_count; n++) {
        int32_t h = order[n];
        if (f->blocks[h].rank != n) break;
        struct loop *loop = NULL;
        for (int32_t k = 0; k < f->blocks[h].preds; k++) {
            int32_t from = f->pred[f->blocks[h].pred0 + k];
            if (f->blocks[from].rank < n || !dominates(f, h, from)) continue;
            if (!loop && (uint64_t)(info->loops + 1) * info->words > MAX_LOOP_WORDS) break;
            if (!loop) {
                struct loop *grown = realloc(info->loop, (size_t)(info->loops + 1) * sizeof *grown);
                if (grown) info->loop = grown;
                loop = grown ? &info->loop[info->loops] : NULL;
                if (loop) *loop = (struct loop){h, info->innermost[h], calloc(info->words, 8)};
                if (!loop || !loop->body) {
                    free(stack);
                    return -1;
                }
                info->loops++;
            }
            add_body(f, loop->body, h, from, stack);
        }
        for (int32_t b = 0; loop && b < f->block_count; b++)
            if (cost_in(loop->body, b)) info->innermost[b] = info->loops - 1;
    }
    free(stack);
    return 0;
}

/* ---- what to do in each block ---- */
static bool to_evaluate(const bool *wanted, const struct ptx_instr *i, bool memory, bool carries) {
    unsigned properties = ptx_ops[i->op].properties;
    if (i->guard >= 0 || properties & PTX_P_CONTROL || i->op == PTX_OP_LDZ || i->op == PTX_OP_BULK) return true;
    if (is_generic(i) && properties & (PTX_P_READS | PTX_P_WRITES)) return true;
    if (memory && properties & PTX_P_WRITES) return true;
    if (carries && i->modifiers & PTX_M_CC) return true;
    return gives(wanted, i);
}

static void count_static(const struct cost_run *x, const struct func_info *info, const struct ptx_instr *i,
                         struct ptx_tally *t) {
    enum ptx_space space = i->space;
    if (i->srcs && i->src[0].kind == PTX_ADDRESS && i->src[0].var >= 0)
        space = ptx_var_of(x->module, info->f, i->src[0].var)->space;
    ptx_tally_access(t, i, ptx_cost_space_of(space));
}

static bool is_empty(const struct ptx_tally *t) {
    for (int k = 0; k < PTX_T_FIELDS; k++)
        if (t->n[k]) return false;
    return true;
}

/* Counts come before the instructions of their block, but not before a call that may end the thread. */
static void plan(const struct cost_run *x, struct func_info *info, const bool *wanted, bool memory) {
    const struct ptx_function *f = info->f;
    int32_t todos = 0, tallies = 0;
    for (int32_t b = 0; b < f->block_count; b++) {
        info->first[b] = todos;
        int32_t head = todos++;
        info->todo[head] = (struct todo){-1, tallies++};
        for (int32_t n = f->blocks[b].first; n < f->blocks[b].end; n++) {
            const struct ptx_instr *i = &f->instrs[n];
            struct ptx_tally *t = &info->tally[info->todo[head].tally];
            bool evaluate = to_evaluate(wanted, i, memory, x->carries);
            if (i->guard < 0) ptx_tally_instr(t, i);
            if (!evaluate) count_static(x, info, i, t);
            if (evaluate) info->todo[todos++] = (struct todo){n, -1};
            if (i->op != PTX_OP_CALL) continue;
            head = todos++;
            info->todo[head] = (struct todo){-1, tallies++};
        }
        if (is_empty(&info->tally[info->todo[head].tally])) info->todo[head].tally = -1;
    }
    info->first[f->block_count] = todos;
}

static void info_free(struct func_info *info) {
    if (!info) return;
    for (int32_t k = 0; k < info->loops; k++) free(info->loop[k].body);
    free(info->loop);
    free(info->slot);
    free(info->todo);
    free(info->first);
    free(info->tally);
    free(info->innermost);
    free(info);
}

static struct func_info *make(const struct cost_run *x, const struct ptx_function *f, const bool *wanted, bool memory) {
    struct func_info *info = calloc(1, sizeof *info);
    if (!info) return NULL;
    int32_t calls = 0;
    for (int32_t n = 0; n < f->instr_count; n++) calls += f->instrs[n].op == PTX_OP_CALL;
    size_t todos = (size_t)f->instr_count + (size_t)f->block_count + (size_t)calls + 1;
    info->f = f;
    info->words = (uint32_t)f->block_count / 64 + 1;
    info->slot = malloc(((size_t)f->reg_count + 1) * sizeof *info->slot);
    info->todo = malloc(todos * sizeof *info->todo);
    info->first = malloc(((size_t)f->block_count + 1) * sizeof *info->first);
    info->tally = calloc((size_t)f->block_count + (size_t)calls + 1, sizeof *info->tally);
    info->innermost = malloc(((size_t)f->block_count + 1) * sizeof *info->innermost);
    if (!info->slot || !info->todo || !info->first || !info->tally || !info->innermost) goto bad;
    for (int32_t r = 0; r < f->reg_count; r++) info->slot[r] = wanted[r] ? info->slots++ : -1;
    for (int32_t b = 0; b < f->block_count; b++) info->innermost[b] = -1;
    plan(x, info, wanted, memory);
    if (!find_loops(info)) return info;
bad:
    info_free(info);
    return NULL;
}

int cost_slice(struct cost_run *x) {
    const struct ptx_module *m = x->module;
    struct slice w = {.x = x, .wanted = calloc((size_t)m->function_count + 1, sizeof(bool *))};
    x->info = calloc((size_t)m->function_count + 1, sizeof(struct func_info *));
    if (!w.wanted || !x->info) x->failed = true;
    if (!x->failed) reach(&w, x->entry);
    if (!x->failed) grow(&w);
    x->carries = w.carry || w.memory;
    for (int32_t n = 0; n < m->function_count && !x->failed; n++) {
        if (!w.wanted[n]) continue;
        if (w.memory) memset(w.wanted[n], true, (size_t)m->functions[n].reg_count);
        x->info[n] = make(x, &m->functions[n], w.wanted[n], w.memory);
        x->failed |= !x->info[n];
    }
    for (int32_t n = 0; w.wanted && n < m->function_count; n++) free(w.wanted[n]);
    free(w.wanted);
    return x->failed ? -1 : 0;
}

struct func_info *cost_function(struct cost_run *x, const struct ptx_function *f) {
    return x->info[f - x->module->functions];
}

void cost_functions_free(struct cost_run *x) {
    for (int32_t n = 0; x->info && n < x->module->function_count; n++) info_free(x->info[n]);
    free(x->info);
}
