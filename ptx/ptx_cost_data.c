/* Branches on data. All ways are walked up to where they meet again, and the states joined: what differs is data, lo is
 * the least, hi the most of the ways. Where one way leaves the loop and another stays, the one that stays is walked to
 * the loop's end as if it were always taken; then the way out, from any iteration. */
#include <stdlib.h>
#include <string.h>
#include "ptx/ptx_cost_model.h"

enum { MAX_WIDENINGS = 4, INSIDE_STEPS = 100000 };

/* ---- joining ---- */
static struct val either(struct state *s, const struct val *a, const struct val *b) {
    if (cost_same(a, b)) return *a;
    if (a->kind == VAL_POISON || b->kind == VAL_POISON) return (struct val){.kind = VAL_POISON};
    enum val_base base = a->base == b->base && a->var == b->var ? (enum val_base)a->base : BASE_ANY;
    if (base != BASE_LOCAL && (a->base == BASE_LOCAL || b->base == BASE_LOCAL)) s->escaped = true;
    if (a->kind == VAL_DATA && a->base == BASE_NUMBER && b->base == BASE_NUMBER) base = BASE_NUMBER;
    return cost_data(base);
}

static void join_cells(struct state *a, const struct state *b) {
    int32_t kept = 0;
    for (int32_t n = 0; n < a->cells; n++) {
        struct val v = cost_data(BASE_ANY);
        for (int32_t k = 0; k < b->cells; k++)
            if (b->cell[k].at == a->cell[n].at && b->cell[k].bytes == a->cell[n].bytes) v = b->cell[k].v;
        a->cell[kept] = a->cell[n];
        a->cell[kept].v = either(a, &a->cell[n].v, &v);
        if (a->cell[kept].v.kind != VAL_DATA || a->cell[kept].v.base != BASE_ANY) kept++;
    }
    a->cells = kept;
}

/* The costs of b into a: either of them. */
static void join_costs(struct state *a, const struct state *b) {
    for (int k = 0; k < PTX_T_FIELDS; k++) {
        if (b->lo.n[k] < a->lo.n[k]) a->lo.n[k] = b->lo.n[k];
        if (b->hi.n[k] > a->hi.n[k]) a->hi.n[k] = b->hi.n[k];
    }
    a->endless |= b->endless;
    a->frozen |= b->frozen;
    a->escaped |= b->escaped;
}

static void join(struct state *a, const struct state *b) {
    join_costs(a, b);
    a->carry = either(a, &a->carry, &b->carry);
    for (int32_t n = 0; n < a->reg_count; n++) a->regs[n] = either(a, &a->regs[n], &b->regs[n]);
    join_cells(a, b);
}

/* ---- ways and where they meet ---- */
struct meeting {
    struct state *s; /* of those that go on; NULL: none yet */
    enum walk how;   /* WALK_AT or WALK_RETURN */
    struct state *ended;
};

/* Takes s over. 0, or -1: it stops where others do not. */
static int meet(struct meeting *m, struct state *s, enum walk how) {
    if (how == WALK_EXIT) {
        if (m->ended) join_costs(m->ended, s);
        if (!m->ended)
            m->ended = s;
        else
            cost_state_free(s);
        return 0;
    }
    if (!m->s) {
        m->s = s;
        m->how = how;
        return 0;
    }
    bool same = how == m->how && s->depth == m->s->depth && s->reg_count == m->s->reg_count &&
                (how == WALK_RETURN || cost_top(s)->block == cost_top(m->s)->block);
    if (same) join(m->s, s);
    cost_state_free(s);
    return same ? 0 : -1;
}

static void move(struct state *to, struct state *from) {
    free(to->regs);
    free(to->cell);
    *to = *from;
    free(from);
}

/* The state in which the walk goes on. */
static enum walk met(struct meeting *m, struct state *s) {
    if (!m->s) {
        move(s, m->ended);
        return WALK_EXIT;
    }
    if (m->ended) {
        join_costs(m->s, m->ended);
        m->s->frozen = true; /* some threads have ended */
        cost_state_free(m->ended);
    }
    enum walk how = m->how;
    move(s, m->s);
    return how;
}

static void drop(struct meeting *m) {
    cost_state_free(m->s);
    cost_state_free(m->ended);
}

/* Walks one way from s, which is taken over. */
static enum walk walk_arm(struct cost_run *x, struct state *s, const struct ptx_instr *i, int32_t arm, bool taken,
                          const struct stop *stop) {
    if (taken) {
        struct ptx_tally t = {{0}};
        if (i->guard >= 0) ptx_tally_instr(&t, i);
        ptx_cost_book(s, &t, true);
    }
    if (arm == ARM_EXIT) return WALK_EXIT;
    if (arm == ARM_RETURN) return WALK_RETURN;
    cost_go(s, arm);
    if (cost_stops(s, stop)) return WALK_AT;
    int32_t base = x->history_base;
    x->history_base = x->histories;
    enum walk r = cost_walk(x, s, stop);
    cost_history_cut(x, x->history_base);
    x->history_base = base;
    return r;
}

static bool ends_arm(enum walk r) {
    return r == WALK_AT || r == WALK_RETURN || r == WALK_EXIT;
}

struct branch {
    struct cost_run *x;
    struct state *s;
    const struct ptx_instr *i;
    const int32_t *arms;
    int32_t count, block, meets; /* meets: the postdominator; -1 */
    const struct func_info *info;
    struct stop stop;
};

static bool is_taken(const struct branch *b, int32_t n) {
    return b->i->op == PTX_OP_BRX ? b->i->guard < 0 || n > 0 : n > 0;
}

static enum walk all_ways(struct branch *b) {
    struct meeting m = {0};
    for (int32_t n = 0; n < b->count; n++) {
        struct state *s = cost_state_copy(b->x, b->s);
        enum walk r = s ? walk_arm(b->x, s, b->i, b->arms[n], is_taken(b, n), &b->stop) : WALK_LIMIT;
        if (!ends_arm(r)) cost_state_free(s);
        if (ends_arm(r) && meet(&m, s, r)) r = WALK_DEEP;
        if (ends_arm(r)) continue;
        drop(&m);
        return r;
    }
    return met(&m, b->s);
}

/* ---- by the text alone ---- */
static bool ends_threads(const struct ptx_function *f, int32_t block) {
    for (int32_t n = f->blocks[block].first; n < f->blocks[block].end; n++) {
        unsigned op = f->instrs[n].op;
        if (op == PTX_OP_EXIT || op == PTX_OP_TRAP || op == PTX_OP_CALL) return true;
    }
    return false;
}

/* Blocks that can be reached from the branch without passing where its ways meet. */
static uint64_t *region(const struct branch *b) {
    const struct ptx_function *f = b->info->f;
    uint64_t *set = calloc(b->info->words, 8);
    int32_t *stack = malloc(((size_t)f->block_count + 1) * sizeof *stack), depth = 0;
    if (set && stack) {
        stack[depth++] = b->block;
        for (bool first = true; depth; first = false) {
            int32_t to[COST_MAX_ARMS], n = cost_ways(f, stack[--depth], to, COST_MAX_ARMS);
            (void)first;
            for (int32_t k = 0; k < n; k++) {
                if (to[k] == b->meets || cost_in(set, to[k])) continue;
                set[to[k] / 64] |= UINT64_C(1) << (to[k] % 64);
                stack[depth++] = to[k];
            }
        }
    } else {
        b->x->failed = true;
    }
    free(stack);
    return set;
}

/* Registers that any of these blocks writes are data. */
static void forget_registers(struct branch *b, struct state *s, const uint64_t *blocks) {
    const struct ptx_function *f = b->info->f;
    s->carry = cost_data(BASE_NUMBER);
    for (int32_t k = 0; k < f->block_count; k++) {
        if (!cost_in(blocks, k)) continue;
        for (int32_t n = f->blocks[k].first; n < f->blocks[k].end; n++)
            for (unsigned d = 0; d < f->instrs[n].dsts; d++) {
                const struct ptx_operand *o = &f->instrs[n].dst[d];
                for (unsigned e = 0; e < (o->kind == PTX_VECTOR ? o->count : 1u); e++) {
                    const struct ptx_operand *r = o->kind == PTX_VECTOR ? &o->elements[e] : o;
                    if (r->kind != PTX_REG || b->info->slot[r->reg] < 0) continue;
                    struct val *v = &s->regs[cost_top(s)->regs + b->info->slot[r->reg]];
                    s->escaped |= v->base == BASE_LOCAL;
                    *v = cost_data(BASE_ANY);
                }
            }
    }
}

/* All that may happen between the branch and where its ways meet, by the text. */
static enum walk by_text(struct branch *b) {
    struct state *s = b->s;
    struct ptx_tally hi = {{0}};
    bool loops = false, ends = false;
    uint64_t *blocks = region(b);
    if (!blocks || b->x->failed) {
        free(blocks);
        return WALK_LIMIT;
    }
    for (int32_t n = 0; n < b->info->f->block_count; n++) {
        if (!cost_in(blocks, n)) continue;
        cost_worst_block(b->x, b->info->f, n, &hi, &s->endless, 0);
        loops |= cost_goes_back(b->info->f, n);
        ends |= ends_threads(b->info->f, n);
    }
    struct ptx_tally none = {{0}};
    if (b->i->guard >= 0) ptx_tally_instr(&hi, b->i);
    if (loops) cost_mark_endless(&hi, &none, &s->endless);
    ptx_cost_book(s, &hi, false);
    forget_registers(b, s, blocks);
    free(blocks);
    cost_forget(b->x, s, 0, -1);
    s->escaped = true;
    s->frozen |= ends;
    if (b->meets < 0) return WALK_RETURN;
    cost_go(s, b->meets);
    return WALK_AT;
}

/* ---- a way out of a loop ---- */
/* Walks the loop to its end as if no way out were ever taken. WALK_DEEP: that takes too long. */
static enum walk walk_inside(struct branch *b, struct state *s, int32_t inside) {
    struct cost_run *x = b->x;
    uint64_t limit = x->limit;
    if (x->assumed == COST_MAX_NEST) return WALK_DEEP;
    if (x->steps + INSIDE_STEPS < limit) x->limit = x->steps + INSIDE_STEPS;
    x->assume[x->assumed++] = (struct assumption){s->depth, b->block, b->arms[inside]};
    enum walk r = walk_arm(x, s, b->i, b->arms[inside], is_taken(b, inside), &b->stop);
    x->assumed--;
    if (r == WALK_LIMIT && x->limit < limit && !x->failed) r = WALK_DEEP;
    x->limit = limit;
    return r;
}

/* Any iteration's state at the branch: what the loop writes is data. */
static struct state *any_iteration(struct branch *b, bool escaped, const struct loop *loop, int32_t written) {
    struct state *s = cost_state_copy(b->x, b->s);
    if (!s) return NULL;
    s->escaped |= escaped;
    forget_registers(b, s, loop->body);
    bool logging = b->x->logging;
    b->x->logging = false; /* they are in the log */
    for (int32_t n = written; n < b->x->writes; n++) cost_forget(b->x, s, b->x->written[n].at, b->x->written[n].bytes);
    b->x->logging = logging;
    return s;
}

/* From the way out: the cost of what came before lies between the first time at the branch and the loop's end. */
static enum walk walk_outside(struct branch *b, struct meeting *m, const struct state *inside, const struct loop *loop,
                              int32_t written, uint32_t endless) {
    for (int32_t n = 0; n < b->count; n++) {
        if (b->arms[n] >= 0 && cost_in(loop->body, b->arms[n])) continue;
        struct state *s = any_iteration(b, inside->escaped, loop, written);
        enum walk r = s ? walk_arm(b->x, s, b->i, b->arms[n], is_taken(b, n), &b->stop) : WALK_LIMIT;
        if (!ends_arm(r)) {
            cost_state_free(s);
            return r;
        }
        for (int k = 0; k < PTX_T_FIELDS; k++) s->hi.n[k] += inside->hi.n[k] - b->s->hi.n[k];
        s->endless |= endless;
        if (meet(m, s, r)) return WALK_DEEP;
    }
    return WALK_AT;
}

/* Inside of the loop, from the first time at the branch, or, where that has no end, from any time: then what any
 * iteration writes must be data from the start. *s: the state at the end. */
static enum walk stay(struct branch *b, const struct loop *loop, int32_t inside, int32_t written, struct state **s,
                      bool *any) {
    struct cost_run *x = b->x;
    bool escaped = b->s->escaped;
    enum walk r = WALK_DEEP;
    for (int n = 0; n < MAX_WIDENINGS && r == WALK_DEEP; n++) {
        int32_t writes = x->writes;
        *any = n > 0;
        cost_state_free(*s);
        *s = n ? any_iteration(b, escaped, loop, written) : cost_state_copy(x, b->s);
        r = *s ? walk_inside(b, *s, inside) : WALK_LIMIT;
        if (!*s || r == WALK_SPLIT || r == WALK_POISON || r == WALK_LIMIT || r == WALK_ERROR) break;
        if (n && (x->writes > writes || (*s)->escaped > escaped)) r = WALK_DEEP; /* it writes more than was known */
        escaped |= (*s)->escaped;
    }
    return r;
}

static enum walk leave_loop(struct branch *b, const struct loop *loop, int32_t inside) {
    struct cost_run *x = b->x;
    struct meeting m = {0};
    bool logging = x->logging, any = false;
    int32_t written = x->writes;
    struct state *s = NULL;
    x->logging = true;
    enum walk r = stay(b, loop, inside, written, &s, &any);
    x->logging = logging;
    if (ends_arm(r) || r == WALK_ENDLESS) {
        if (r == WALK_ENDLESS || any) cost_mark_endless(&s->hi, &b->s->hi, &s->endless);
        enum walk out = walk_outside(b, &m, s, loop, written, s->endless);
        if (ends_arm(r) && out == WALK_AT) {
            if (meet(&m, s, r)) out = WALK_DEEP;
            s = NULL;
        }
        r = out;
    }
    if (!logging) x->writes = 0;
    cost_state_free(s);
    if (r != WALK_AT) {
        drop(&m);
        return r;
    }
    return met(&m, b->s);
}

/* ---- the branch ---- */
/* Ways meet at the postdominator, or, inside of loops, when the next iteration begins. */
static void set_stop(struct branch *b, bool leaves) {
    b->stop = (struct stop){.depth = b->s->depth, .at_return = true};
    size_t n = 0, room = sizeof b->stop.block / sizeof *b->stop.block;
    b->stop.block[n++] = b->meets;
    for (int32_t l = b->info->innermost[b->block]; l >= 0 && n < room; l = b->info->loop[l].parent) {
        if (leaves) {
            leaves = false; /* this loop is left */
            continue;
        }
        b->stop.block[n++] = b->info->loop[l].header;
    }
    while (n < room) b->stop.block[n++] = -1;
}

static bool is_open(const struct cost_run *x, int32_t depth, int32_t block) {
    for (int32_t n = 0; n < x->assumed; n++)
        if (x->assume[n].depth == depth && x->assume[n].block == block) return true;
    return false;
}

enum walk cost_branch(struct cost_run *x, struct state *s, const struct ptx_instr *i, const int32_t *arms,
                      int32_t count, const struct stop *outer) {
    const struct cost_frame *frame = cost_top(s);
    struct branch b = {
        .x = x, .s = s, .i = i, .arms = arms, .count = count, .block = frame->block, .info = frame->info};
    int32_t l = b.info->innermost[b.block], inside = -1, stays = 0;
    (void)outer;
    cost_because(x, i, "a branch depends on data");
    b.meets = b.info->f->blocks[b.block].ipdom;
    for (int32_t n = 0; l >= 0 && n < count; n++)
        if (arms[n] >= 0 && cost_in(b.info->loop[l].body, arms[n])) {
            inside = n;
            stays++;
        }
    bool leaves = stays && stays < count;
    set_stop(&b, leaves);
    enum walk r = WALK_DEEP;
    if (x->nest < COST_MAX_NEST && x->assumed < COST_MAX_NEST && !is_open(x, s->depth, b.block) &&
        stays <= 1 + !leaves * count) {
        x->nest++;
        if (leaves) {
            r = leave_loop(&b, &b.info->loop[l], inside);
        } else {
            x->assume[x->assumed++] = (struct assumption){s->depth, b.block, -1};
            r = all_ways(&b);
            x->assumed--;
        }
        x->nest--;
    }
    return r == WALK_DEEP || (r == WALK_ENDLESS && !leaves) ? by_text(&b) : r;
}
