/* The walk of a kernel for a whole box of threads, and the state it carries. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ptx/ptx_cost_model.h"

/* ---- states ---- */
struct state *cost_state_new(struct cost_run *x) {
    struct state *s = calloc(1, sizeof *s);
    if (!s) x->failed = true;
    return s;
}

void cost_state_free(struct state *s) {
    if (!s) return;
    free(s->regs);
    free(s->cell);
    free(s);
}

struct state *cost_state_copy(struct cost_run *x, const struct state *from) {
    struct state *s = malloc(sizeof *s);
    if (!s) {
        x->failed = true;
        return NULL;
    }
    *s = *from;
    x->steps += 10 + (uint64_t)(from->reg_count + from->cells) / 2; /* as long as it takes */
    s->reg_room = from->reg_count + 1;
    s->cell_room = from->cells + 8;
    s->regs = malloc((size_t)s->reg_room * sizeof *s->regs);
    s->cell = malloc((size_t)s->cell_room * sizeof *s->cell);
    if (!s->regs || !s->cell) {
        x->failed = true;
        cost_state_free(s);
        return NULL;
    }
    memcpy(s->regs, from->regs, (size_t)from->reg_count * sizeof *s->regs);
    if (from->cells) memcpy(s->cell, from->cell, (size_t)from->cells * sizeof *s->cell);
    return s;
}

void ptx_cost_book(struct state *s, const struct ptx_tally *t, bool surely) {
    for (int k = 0; k < PTX_T_FIELDS; k++) s->hi.n[k] += t->n[k];
    if (surely && !s->frozen)
        for (int k = 0; k < PTX_T_FIELDS; k++) s->lo.n[k] += t->n[k];
}

static void count_one(struct state *s, const struct ptx_instr *i, bool surely) {
    struct ptx_tally t = {{0}};
    ptx_tally_instr(&t, i);
    ptx_cost_book(s, &t, surely);
}

void cost_because(struct cost_run *x, const struct ptx_instr *i, const char *what) {
    x->data = true;
    if (!*x->why) snprintf(x->why, sizeof x->why, "line %d: %s", i->line, what);
}

/* ---- from block to block ---- */
void cost_go(struct state *s, int32_t block) {
    struct cost_frame *frame = cost_top(s);
    frame->block = block;
    frame->next = frame->info->first[block];
}

bool cost_stops(const struct state *s, const struct stop *stop) {
    if (s->depth != stop->depth) return false;
    int32_t block = s->frame[s->depth - 1].block;
    if (stop->within && !cost_in(stop->within, block)) return true;
    for (size_t k = 0; k < sizeof stop->block / sizeof *stop->block; k++)
        if (stop->block[k] == block) return true;
    return false;
}

/* What must be done at the beginning of a block. *stopped: the walk ends here. */
static enum walk begin(struct cost_run *x, struct state *s, int32_t from, const struct stop *stop, bool *stopped) {
    const struct cost_frame *frame = cost_top(s);
    if (cost_stops(s, stop)) {
        *stopped = true;
        return WALK_AT;
    }
    int32_t loop = frame->info->innermost[frame->block];
    if (loop < 0 || frame->info->loop[loop].header != frame->block) return WALK_AT;
    return cost_arrive(x, s, &frame->info->loop[loop], cost_in(frame->info->loop[loop].body, from));
}

/* ---- calls ---- */
/* Moves what is known of [from, from + bytes) to another place in local memory. */
static void move_cells(struct cost_run *x, struct state *s, int64_t from, int64_t to, int64_t bytes) {
    cost_forget(x, s, to, bytes);
    for (int32_t n = 0, end = s->cells; n < end; n++) {
        struct cell c = s->cell[n];
        if (c.at >= from && c.at + c.bytes <= from + bytes) cost_store(x, s, c.at - from + to, c.bytes, &c.v);
    }
}

enum walk cost_enter(struct cost_run *x, struct state *s, const struct ptx_function *f) {
    struct func_info *info = cost_function(x, f);
    if (s->depth == COST_MAX_FRAMES) return WALK_DEEP;
    if (!info || !f->block_count) {
        snprintf(x->error, sizeof x->error, "%.60s: %.90s", f->name, f->error ? f->error : "no body");
        return WALK_ERROR;
    }
    uint64_t local = ((uint64_t)s->local_top + 15) & ~UINT64_C(15),
             args = local + (((uint64_t)f->local_bytes + 15) & ~UINT64_C(15)),
             top = args + (f->entry ? 0 : ptx_arg_offset(f, -1));
    if (top > 1 << 30) return WALK_DEEP;
    int32_t base = s->reg_count, count = base + info->slots;
    if (count > s->reg_room) {
        struct val *grown = realloc(s->regs, (size_t)count * sizeof *grown);
        if (!grown) return x->failed = true, WALK_LIMIT;
        s->regs = grown;
        s->reg_room = count;
    }
    if (info->slots) memset(s->regs + base, 0, (size_t)info->slots * sizeof *s->regs);
    s->reg_count = count;
    s->frame[s->depth++] =
        (struct cost_frame){.info = info, .regs = base, .local = (uint32_t)local, .args = (uint32_t)args};
    s->local_top = (uint32_t)top;
    return WALK_AT;
}

static enum walk call_body(struct cost_run *x, struct state *s, const struct ptx_instr *i, const struct ptx_function *f,
                           int32_t first) {
    if (i->srcs - first != f->params) {
        snprintf(x->error, sizeof x->error, "line %d: call of %.60s with another number of arguments", i->line,
                 f->name);
        return WALK_ERROR;
    }
    int64_t args = ((s->local_top + 15) & ~15u) + (int64_t)((f->local_bytes + 15) & ~15u);
    for (int32_t k = 0; k < f->params && s->depth < COST_MAX_FRAMES; k++) {
        struct val from = cost_operand(x, s, &i->src[first + k]);
        int64_t to = args + ptx_arg_offset(f, k), bytes = (int64_t)f->vars[k].bytes;
        if (i->src[first + k].kind == PTX_SYMBOL && from.base == BASE_LOCAL)
            move_cells(x, s, from.c, to, bytes);
        else
            cost_forget(x, s, to, bytes);
    }
    return cost_enter(x, s, f);
}

/* Nobody knows which function is called, or whether: what any of them might do. */
static enum walk call_any(struct cost_run *x, struct state *s, const struct ptx_instr *i) {
    const struct ptx_module *m = x->module;
    struct ptx_tally most = {{0}};
    cost_because(x, i, "a call that depends on data");
    for (int32_t n = 0; n < m->function_count; n++) {
        const struct ptx_function *f = &m->functions[n];
        if (i->callee >= 0 ? n != i->callee : f->entry || f->declared_only || f->params != i->srcs - 1) continue;
        struct ptx_tally hi = {{0}};
        if (!f->declared_only) cost_worst(x, f, &hi, &s->endless);
        for (int k = 0; k < PTX_T_FIELDS; k++) most.n[k] = hi.n[k] > most.n[k] ? hi.n[k] : most.n[k];
    }
    ptx_cost_book(s, &most, false);
    cost_forget(x, s, 0, -1);
    s->escaped = s->frozen = true; /* it may have ended the thread */
    return WALK_AT;
}

static enum walk call(struct cost_run *x, struct state *s, const struct ptx_instr *i) {
    int32_t number = i->callee, first = 0;
    if (number < 0) {
        struct val v = cost_operand(x, s, &i->src[0]);
        if (v.kind == VAL_POISON) return WALK_POISON;
        if (v.kind == VAL_LATE || (v.kind == VAL_NUM && v.dims)) {
            x->split = v.kind == VAL_LATE ? v.wish : cost_halve(x, v.dims);
            return WALK_SPLIT;
        }
        if (v.kind == VAL_DATA || v.c < 1 || v.c > x->module->function_count) return call_any(x, s, i);
        number = (int32_t)v.c - 1;
        first = 1;
    }
    const struct ptx_function *f = &x->module->functions[number];
    if (!f->declared_only) return call_body(x, s, i, f, first);
    static const char *const provided[] = {"vprintf", "__assertfail", "malloc", "free"};
    bool known = false;
    for (size_t k = 0; k < sizeof provided / sizeof *provided; k++) known |= !strcmp(f->name, provided[k]);
    if (!known) {
        snprintf(x->error, sizeof x->error, "line %d: call of %.100s, which has no body", i->line, f->name);
        return WALK_ERROR;
    }
    for (unsigned k = 0; k < i->dsts; k++) {
        struct val to = cost_operand(x, s, &i->dst[k]);
        if (i->dst[k].kind == PTX_SYMBOL && to.base == BASE_LOCAL) cost_forget(x, s, to.c, 16);
        if (i->dst[k].kind == PTX_REG) cost_put(x, s, &i->dst[k], PTX_B64, cost_data(BASE_ANY));
    }
    return WALK_AT;
}

static enum walk leave(struct cost_run *x, struct state *s, const struct stop *stop) {
    if (stop->at_return && s->depth == stop->depth) return WALK_RETURN;
    if (s->depth == 1) return WALK_EXIT;
    struct cost_frame from = *cost_top(s);
    const struct ptx_function *f = from.info->f;
    s->depth--;
    s->reg_count = from.regs;
    struct cost_frame *frame = cost_top(s);
    const struct ptx_instr *i = &frame->info->f->instrs[frame->info->todo[frame->next - 1].instr];
    for (int32_t k = 0; k < f->returns && k < i->dsts; k++) {
        struct val to = cost_operand(x, s, &i->dst[k]);
        if (i->dst[k].kind == PTX_SYMBOL && to.base == BASE_LOCAL)
            move_cells(x, s, from.args + (int64_t)ptx_arg_offset(f, f->params + k), to.c,
                       (int64_t)f->vars[f->params + k].bytes);
        if (i->dst[k].kind == PTX_REG) cost_put(x, s, &i->dst[k], PTX_B64, cost_data(BASE_ANY));
    }
    s->local_top = from.local;
    return WALK_AT;
}

/* ---- one instruction ---- */
enum on { ON, OFF, ON_DATA, ON_SPLIT, ON_POISON };

static enum on guard(struct cost_run *x, struct state *s, const struct ptx_instr *i) {
    if (i->guard < 0) return ON;
    struct ptx_operand o = {.kind = PTX_REG, .reg = i->guard, .var = -1, .func = -1, .negated = i->guard_negated};
    struct val v = cost_predicate(x, s, &o);
    switch (v.kind) {
    case VAL_NUM:
        return v.c & 1 ? ON : OFF;
    case VAL_LATE:
        x->split = v.wish;
        return ON_SPLIT;
    case VAL_POISON:
        return ON_POISON;
    default:
        return ON_DATA;
    }
}

/* The destinations of an instruction that is executed or not, who knows: what they were, or the same anyway. */
static void perhaps(struct cost_run *x, struct state *s, const struct ptx_instr *i) {
    struct val old[8];
    unsigned n = i->dsts < 8 ? i->dsts : 8;
    for (unsigned k = 0; k < n; k++) old[k] = cost_operand(x, s, &i->dst[k]);
    cost_eval(x, s, i);
    if (i->modifiers & PTX_M_CC) s->carry = cost_data(BASE_NUMBER);
    for (unsigned k = 0; k < i->dsts; k++) {
        const struct ptx_operand *o = &i->dst[k];
        struct val v = cost_operand(x, s, o), d = cost_data(BASE_ANY);
        if (k < n && o->kind == PTX_REG && cost_same(&v, &old[k])) continue;
        if (k < n && (v.kind == VAL_POISON || old[k].kind == VAL_POISON)) d.kind = VAL_POISON;
        s->escaped |= v.base == BASE_LOCAL || (k < n && old[k].base == BASE_LOCAL);
        if (o->kind == PTX_REG) cost_put(x, s, o, cost_top(s)->info->f->regs[o->reg].type, d);
        for (unsigned e = 0; o->kind == PTX_VECTOR && e < o->count; e++)
            if (o->elements[e].kind == PTX_REG)
                cost_put(x, s, &o->elements[e], cost_top(s)->info->f->regs[o->elements[e].reg].type, d);
    }
}

static enum walk plain(struct cost_run *x, struct state *s, const struct ptx_instr *i, bool surely) {
    if (i->guard >= 0) count_one(s, i, surely);
    if (!surely) cost_because(x, i, "an instruction is executed or not, depending on data");
    if (i->op == PTX_OP_BULK) {
        cost_because(x, i, "a bulk copy, whose bytes are not known");
        s->endless |= COST_BULK_FIELDS;
        return WALK_AT;
    }
    if (!(ptx_ops[i->op].properties & (PTX_P_READS | PTX_P_WRITES))) {
        if (surely)
            cost_eval(x, s, i);
        else
            perhaps(x, s, i);
        return WALK_AT;
    }
    enum walk r = cost_access(x, s, i, surely);
    if (r == WALK_AT && !surely && i->dsts) { /* loaded, or as before */
        struct ptx_instr data = *i;
        data.op = PTX_OP_ACTIVEMASK;
        for (unsigned k = 0; k < i->dsts; k++) s->escaped |= cost_operand(x, s, &i->dst[k]).base == BASE_LOCAL;
        data.type = PTX_NONE;
        perhaps(x, s, &data);
    }
    return r;
}

static int32_t fall_through(const struct state *s) {
    const struct cost_frame *frame = &s->frame[s->depth - 1];
    const struct ptx_block *b = &frame->info->f->blocks[frame->block];
    return b->succs ? b->succ[0] : ARM_RETURN;
}

/* Whether an assumption says where a branch on data goes. */
static bool assumed(const struct cost_run *x, const struct state *s, int32_t *target) {
    const struct cost_frame *frame = &s->frame[s->depth - 1];
    for (int32_t k = x->assumed - 1; k >= 0; k--)
        if (x->assume[k].depth == s->depth && x->assume[k].block == frame->block) {
            *target = x->assume[k].target;
            return *target >= 0;
        }
    return false;
}

static enum walk jump_by_index(struct cost_run *x, struct state *s, const struct ptx_instr *i, const struct stop *stop,
                               bool surely) {
    struct val v = cost_operand(x, s, &i->src[0]);
    const int32_t *targets = &cost_top(s)->info->f->branch_targets[i->targets0];
    if (v.kind == VAL_POISON) return WALK_POISON;
    if (v.kind == VAL_LATE || (v.kind == VAL_NUM && v.dims)) {
        x->split = v.kind == VAL_LATE ? v.wish : cost_halve(x, v.dims);
        return WALK_SPLIT;
    }
    if (v.kind == VAL_NUM && surely) {
        uint64_t n = ptx_bits((uint64_t)v.c, 32);
        if (n >= (uint64_t)i->targets) return WALK_EXIT; /* a fault */
        cost_go(s, targets[n]);
        return WALK_AT;
    }
    int32_t arms[65], count = 0, target;
    if (assumed(x, s, &target)) return cost_go(s, target), WALK_AT;
    if (!surely) arms[count++] = fall_through(s);
    for (int32_t k = 0; k < i->targets; k++) {
        bool known = false;
        for (int32_t n = 0; n < count; n++) known |= arms[n] == targets[k];
        if (known) continue;
        if (count == 65) return WALK_DEEP;
        arms[count++] = targets[k];
    }
    return cost_branch(x, s, i, arms, count, stop);
}

/* Control. *jumped: the walk is at the beginning of a block. */
static enum walk control(struct cost_run *x, struct state *s, const struct ptx_instr *i, const struct stop *stop,
                         enum on on, bool *jumped) {
    if (i->op == PTX_OP_CALL) {
        if (i->guard >= 0) count_one(s, i, on == ON);
        return on == ON ? call(x, s, i) : call_any(x, s, i);
    }
    *jumped = true;
    int32_t target;
    if (on == ON_DATA && assumed(x, s, &target)) {
        if (target != fall_through(s)) count_one(s, i, true);
        cost_go(s, target);
        return WALK_AT;
    }
    if (i->op == PTX_OP_BRX) {
        if (i->guard >= 0 && on == ON) count_one(s, i, true);
        return jump_by_index(x, s, i, stop, on == ON);
    }
    int32_t to = i->op == PTX_OP_BRA ? i->target : i->op == PTX_OP_RET ? ARM_RETURN : ARM_EXIT;
    if (on == ON_DATA) {
        int32_t arms[2] = {fall_through(s), to};
        return cost_branch(x, s, i, arms, 2, stop);
    }
    if (i->guard >= 0) count_one(s, i, true);
    if (to == ARM_EXIT) return WALK_EXIT;
    if (to == ARM_RETURN) {
        *jumped = false;
        return leave(x, s, stop);
    }
    cost_go(s, to);
    return WALK_AT;
}

/* ---- the walk ---- */
static enum walk step(struct cost_run *x, struct state *s, const struct stop *stop, bool *jumped) {
    struct cost_frame *frame = cost_top(s);
    const struct todo *todo = &frame->info->todo[frame->next++];
    if (todo->tally >= 0) ptx_cost_book(s, &frame->info->tally[todo->tally], true);
    if (todo->instr < 0) return WALK_AT;
    const struct ptx_instr *i = &frame->info->f->instrs[todo->instr];
    enum on on = guard(x, s, i);
    if (on == OFF) return WALK_AT;
    if (on == ON_SPLIT) return WALK_SPLIT;
    if (on == ON_POISON) return WALK_POISON;
    if (ptx_ops[i->op].properties & PTX_P_CONTROL) return control(x, s, i, stop, on, jumped);
    return plain(x, s, i, on == ON);
}

enum walk cost_walk(struct cost_run *x, struct state *s, const struct stop *stop) {
    for (;;) {
        struct cost_frame *frame = cost_top(s);
        int32_t from = frame->block, depth = s->depth;
        bool jumped = false, stopped = false;
        enum walk r = WALK_AT;
        if (++x->steps > x->limit || x->failed) return WALK_LIMIT;
        if (frame->next == frame->info->first[from + 1]) {
            int32_t to = fall_through(s);
            jumped = to >= 0 && to < frame->info->f->block_count;
            if (jumped)
                cost_go(s, to);
            else
                r = leave(x, s, stop);
        } else {
            r = step(x, s, stop, &jumped);
        }
        if (r == WALK_RETURN && jumped) { /* all ways of a branch on data return */
            jumped = false;
            r = leave(x, s, stop);
        }
        if (r == WALK_AT && jumped && depth == s->depth) r = begin(x, s, from, stop, &stopped);
        if (r != WALK_AT || stopped) return r;
    }
}
