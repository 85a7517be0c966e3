/* Blocks in order: what holds where control paths meet, and what loops do to values. */
#include <stdlib.h>
#include <string.h>
#include "ptx/ptx_access_model.h"

enum { CELL = 1 << 20 }; /* numbers of cells as variables of a merge, behind those of registers */

/* ---- frames ---- */
static bool dominates(const struct frame *f, int32_t d, int32_t b) {
    return f->block[d].tree_first <= f->block[b].tree_first && f->block[b].tree_first < f->block[d].tree_end;
}

static void order_blocks(struct frame *f) {
    for (int32_t b = 0; b < f->f->block_count; b++) {
        if (f->f->blocks[b].rank < 0) continue;
        f->order[f->f->blocks[b].rank] = b;
        f->reached_blocks++;
    }
}

/* Numbers blocks so that what a block dominates is an interval. */
static void number_tree(struct frame *f) {
    for (int32_t n = f->reached_blocks - 1; n >= 0; n--) {
        int32_t b = f->order[n], d = f->f->blocks[b].idom;
        f->block[b].tree_end++; /* sizes first */
        if (d >= 0) f->block[d].tree_end += f->block[b].tree_end;
    }
    int32_t *next = f->single; /* not in use yet; as long as registers, so a buffer of its own where blocks are more */
    int32_t *own = f->f->block_count > f->f->reg_count ? malloc((size_t)f->f->block_count * sizeof *own) : NULL;
    if (f->f->block_count > f->f->reg_count && !own) {
        f->reducible = false;
        return;
    }
    if (own) next = own;
    for (int32_t n = 0; n < f->reached_blocks; n++) {
        int32_t b = f->order[n], d = f->f->blocks[b].idom, size = f->block[b].tree_end;
        f->block[b].tree_first = d >= 0 ? next[d] : 0;
        if (d >= 0) next[d] += size;
        next[b] = f->block[b].tree_first + 1;
        f->block[b].tree_end = f->block[b].tree_first + size;
    }
    free(own);
    memset(f->single, 0, (size_t)f->f->reg_count * sizeof *f->single);
}

static bool is_back(const struct frame *f, int32_t from, int32_t to) {
    return f->f->blocks[from].rank >= f->f->blocks[to].rank;
}

static bool in_body(const struct block_info *header, int32_t b) {
    return header->body[b / 64] >> b % 64 & 1;
}

static bool find_body(struct frame *f, int32_t h, int32_t *stack) {
    struct block_info *header = &f->block[h];
    int32_t depth = 0;
    header->body = calloc((size_t)f->f->block_count / 64 + 1, sizeof *header->body);
    if (!header->body) return false;
    header->body[h / 64] |= 1ull << h % 64;
    const struct ptx_block *blocks = f->f->blocks;
    for (int32_t n = -1; n < depth; n++) {
        int32_t b = n < 0 ? h : stack[n];
        for (int32_t k = 0; k < blocks[b].preds; k++) {
            int32_t p = f->f->pred[blocks[b].pred0 + k];
            if (blocks[p].rank < 0 || in_body(header, p) || (n < 0 && !is_back(f, p, h))) continue;
            header->body[p / 64] |= 1ull << p % 64;
            stack[depth++] = p;
        }
    }
    return true;
}

static bool find_headers(struct frame *f) {
    int32_t *stack = malloc(((size_t)f->f->block_count + 1) * sizeof *stack);
    bool ok = stack != NULL;
    int headers = 0;
    for (int32_t n = 0; ok && n < f->reached_blocks; n++) {
        int32_t b = f->order[n];
        for (int32_t k = 0; k < f->f->blocks[b].preds; k++) {
            int32_t p = f->f->pred[f->f->blocks[b].pred0 + k];
            if (f->f->blocks[p].rank < 0 || !is_back(f, p, b)) continue;
            f->block[b].header = true;
            if (!dominates(f, b, p)) f->reducible = false;
        }
        if (f->block[b].header) ok = ++headers < 2000 && find_body(f, b, stack);
    }
    free(stack);
    return ok;
}

struct definition {
    int32_t block, instr, count;
};

static void define(const struct frame *f, struct definition *d, const struct ptx_operand *o, int32_t block,
                   int32_t instr, bool guarded) {
    for (unsigned e = 0; o->kind == PTX_VECTOR && e < o->count; e++)
        define(f, d, &o->elements[e], block, instr, guarded);
    if (o->kind != PTX_REG) return;
    d[o->reg].count += guarded ? 2 : 1;
    d[o->reg].block = block;
    d[o->reg].instr = instr;
}

static void use(const struct frame *f, struct definition *d, const struct ptx_operand *o, int32_t block,
                int32_t instr) {
    for (unsigned e = 0; o->kind == PTX_VECTOR && e < o->count; e++) use(f, d, &o->elements[e], block, instr);
    if ((o->kind != PTX_REG && o->kind != PTX_ADDRESS) || o->reg < 0 || d[o->reg].count != 1) return;
    struct definition *own = &d[o->reg];
    if (own->block == block ? own->instr >= instr : !dominates(f, own->block, block)) own->count = 2;
}

/* Registers with one definition that all uses come behind need no state of their own. */
static bool sort_registers(struct frame *f) {
    const struct ptx_function *fn = f->f;
    struct definition *d = calloc((size_t)fn->reg_count + 1, sizeof *d);
    if (!d) return false;
    for (int pass = 0; pass < 2; pass++)
        for (int32_t n = 0; n < f->reached_blocks; n++) {
            int32_t b = f->order[n];
            for (int32_t k = fn->blocks[b].first; k < fn->blocks[b].end; k++) {
                const struct ptx_instr *i = &fn->instrs[k];
                struct ptx_operand guard = {.kind = PTX_REG, .reg = i->guard};
                for (unsigned o = 0; pass == 0 && o < i->dsts; o++) define(f, d, &i->dst[o], b, k, i->guard >= 0);
                for (unsigned o = 0; pass == 1 && o < i->srcs; o++) use(f, d, &i->src[o], b, k);
                if (pass == 1) use(f, d, &guard, b, k);
            }
        }
    for (int32_t r = 0; r < fn->reg_count; r++) f->multi[r] = d[r].count > 1 ? f->multi_count++ : -1;
    free(d);
    return true;
}

int32_t access_frame(struct analysis *a, const struct ptx_function *fn, int32_t parent, const struct ptx_instr *call) {
    for (int32_t n = 0; n < a->frame_count; n++)
        if (a->frames[n]->parent == parent && a->frames[n]->call == call) return n;
    int32_t depth = parent < 0 ? 0 : a->frames[parent]->depth + 1;
    if (a->frame_count == ACCESS_MAX_FRAMES || depth > ACCESS_MAX_DEPTH) return -1;
    struct frame *f = calloc(1, sizeof *f);
    if (!f) return -1;
    *f = (struct frame){.f = fn, .parent = parent, .depth = depth, .call = call, .reducible = true};
    f->order = calloc((size_t)fn->block_count + 1, sizeof *f->order);
    f->block = calloc((size_t)fn->block_count + 1, sizeof *f->block);
    f->single = calloc((size_t)fn->reg_count + 1, sizeof *f->single);
    f->multi = calloc((size_t)fn->reg_count + 1, sizeof *f->multi);
    a->frames[a->frame_count++] = f;
    if (!f->order || !f->block || !f->single || !f->multi) {
        a->s.no_memory = true;
        return -1;
    }
    order_blocks(f);
    number_tree(f);
    if (!find_headers(f) || !sort_registers(f)) a->failed = true;
    for (int32_t n = 0; n < fn->instr_count; n++)
        if (fn->instrs[n].op == PTX_OP_EXIT || fn->instrs[n].op == PTX_OP_TRAP) f->stops = true;
    a->changed = true;
    return a->frame_count - 1;
}

/* ---- states ---- */
static int32_t variable_of(const struct state *s, int32_t var) {
    if (var < CELL) return s->regs ? s->regs[var] : 0;
    return var - CELL < s->cell_count ? s->cells[var - CELL] : 0;
}

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

/* ---- loops: facts ---- */
/* Does a symbol keep its value from one iteration of header h to the next? */
static bool invariant(const struct analysis *a, int32_t frame, int32_t h, int32_t symbol, int depth) {
    const struct ptx_symbol_info *info = &a->s.symbol[symbol];
    if (info->divided) {
        const struct ptx_sum *e = ptx_sum(&a->s, info->divided);
        for (int64_t n = 0; n < e->count; n++)
            if (depth > 8 || !invariant(a, frame, h, e->term[n].symbol, depth + 1)) return false;
        return true;
    }
    if (info->frame < 0) return true;
    if (info->frame != frame) { /* of a caller: it does not change while this frame runs */
        for (int32_t f = a->frames[frame]->parent; f >= 0; f = a->frames[f]->parent)
            if (f == info->frame) return true;
        return false;
    }
    return info->block != h && dominates(a->frames[frame], info->block, h);
}

static bool all_invariant(const struct analysis *a, int32_t frame, int32_t h, int32_t sum, int32_t but) {
    const struct ptx_sum *e = ptx_sum(&a->s, sum);
    for (int64_t n = 0; n < e->count; n++)
        if (e->term[n].symbol != but && !invariant(a, frame, h, e->term[n].symbol, 0)) return false;
    return true;
}

static int32_t counter_symbol(struct analysis *a, int32_t h, int32_t *sum) {
    int32_t at = a->at_block;
    a->at_block = h;
    *sum = access_symbol(a, 'K', a->frame, h, 0, 0, PTX_INF);
    a->at_block = at;
    return *sum ? ptx_sum(&a->s, *sum)->term[0].symbol : -1;
}

/* e ≠ 0, tested in each iteration of header h, where e = f·k + rest goes up by f from e ≤ 0 in whole steps: then
 * e ≤ -f. The sum e + f, or 0. */
static int32_t until_zero(struct analysis *a, int32_t h, int32_t e) {
    struct frame *f = a->frames[a->frame];
    int32_t counter, k = counter_symbol(a, h, &counter);
    if (k < 0 || !e) return 0;
    int64_t factor = ptx_sum_factor(&a->s, e, k);
    if (factor < 0) {
        e = ptx_sum_scale(&a->s, e, -1);
        factor = -factor;
    }
    if (factor <= 0 || !e || !all_invariant(a, a->frame, h, e, k)) return 0;
    int32_t rest = ptx_sum_add(&a->s, e, counter, -factor);
    if (!rest) return 0;
    const struct ptx_sum *r = ptx_sum(&a->s, rest);
    bool whole = r->constant % factor == 0;
    for (int64_t n = 0; n < r->count; n++) whole &= r->term[n].factor % factor == 0;
    if (!whole || !ptx_sum_at_most(&a->s, rest, 0, &a->facts, f->block[h].entry.facts)) return 0;
    return ptx_sum_add(&a->s, e, ptx_sum_constant(&a->s, factor), 1);
}

static bool dominates_latches(const struct frame *f, int32_t d, int32_t h) {
    const struct ptx_block *b = &f->f->blocks[h];
    for (int32_t n = 0; n < b->preds; n++) {
        int32_t p = f->f->pred[b->pred0 + n];
        if (f->f->blocks[p].rank >= 0 && is_back(f, p, h) && !dominates(f, d, p)) return false;
    }
    return true;
}

/* Facts with the condition of the edge from block p to block b. */
static void assume_edge(struct analysis *a, int32_t p, int32_t b, int32_t cond, struct place *at) {
    struct frame *f = a->frames[a->frame];
    struct cond c = {.kind = COND_ANY};
    bool ignored, unequal = false;
    if (!cond) return;
    memcpy(&c, a->conds.record[cond], sizeof c);
    if (c.kind == COND_NE && f->reducible) {
        for (int32_t h = p; h >= 0 && !unequal; h = f->f->blocks[h].idom) {
            if (!f->block[h].header || !in_body(&f->block[h], p) || (b != h && !in_body(&f->block[h], b)) ||
                !dominates_latches(f, p, h))
                continue;
            int32_t sum = until_zero(a, h, c.a);
            if (!sum) continue;
            at->facts = access_fact(a, sum, at->facts);
            at->when = access_fact(a, sum, at->when);
            unequal = true;
        }
    }
    if (unequal) return;
    at->facts = access_assume(a, cond, at->facts, &at->exact);
    at->when = access_assume(a, cond, at->when, &ignored);
}

static void add_loop_fact(struct block_info *h, int32_t sum) {
    for (int32_t n = 0; n < h->loop_fact_count; n++)
        if (h->loop_facts[n] == sum) return;
    if (h->loop_fact_count == h->loop_fact_room) {
        int32_t room = h->loop_fact_room * 2 + 8;
        void *grown = room > 200 ? NULL : realloc(h->loop_facts, (size_t)room * sizeof *h->loop_facts);
        if (!grown) {
            h->all_facts = false;
            return;
        }
        h->loop_facts = grown;
        h->loop_fact_room = room;
    }
    h->loop_facts[h->loop_fact_count++] = sum;
}

/* At the end of block p, from which an edge leads back to header h: what held in iteration k - 1 about iteration k. */
static void end_iteration(struct analysis *a, int32_t p, int32_t h, int32_t cond) {
    struct frame *f = a->frames[a->frame];
    struct block_info *header = &f->block[h];
    struct place at = f->block[p].in;
    int32_t counter, k = counter_symbol(a, h, &counter);
    if (!f->reducible || k < 0) return;
    assume_edge(a, p, h, cond, &at);
    if (!at.exact) header->all_facts = false;
    for (int32_t n = at.facts; n >= 0 && n != header->in.facts; n = a->facts.fact[n].next) {
        int32_t sum = a->facts.fact[n].sum;
        int64_t factor = ptx_sum_factor(&a->s, sum, k);
        if (factor > 0 && all_invariant(a, a->frame, h, sum, k))
            add_loop_fact(header, ptx_sum_add(&a->s, sum, ptx_sum_constant(&a->s, factor), -1));
        else
            header->all_facts = false;
    }
}

/* f·x + r ≤ 0 for whole numbers x, and r ≥ -limit: x ≤ ⌊limit / f⌋, where f is the counter's factor. */
static int32_t rounded(struct analysis *a, int32_t sum, int64_t f, const struct place *at, int32_t facts) {
    struct ptx_sum x = {0}, r = {0};
    const struct ptx_sum *e = ptx_sum(&a->s, sum);
    if (f < 2) return facts;
    r.constant = -e->constant;
    for (int64_t n = 0; n < e->count; n++) {
        bool whole = e->term[n].factor % f == 0;
        struct ptx_term *t = whole ? &x.term[x.count++] : &r.term[r.count++];
        *t = e->term[n];
        t->factor = whole ? t->factor / f : -t->factor;
    }
    int64_t limit = ptx_sum_upper(&a->s, ptx_sum_intern(&a->s, &r), &a->facts, at->facts);
    if (limit == PTX_INF) return facts;
    x.constant = -(limit / f - (limit % f < 0));
    return access_fact(a, ptx_sum_intern(&a->s, &x), facts);
}

/* At a header: loop facts that hold in the first iteration too hold always; others bound the counter alone. */
static void apply_loop_facts(struct analysis *a, int32_t b, struct place *at) {
    struct block_info *header = &a->frames[a->frame]->block[b];
    int32_t counter, k = counter_symbol(a, b, &counter);
    header->bounded = header->all_facts && k >= 0;
    for (int32_t n = 0; n < header->loop_fact_count && k >= 0; n++) {
        int32_t sum = header->loop_facts[n];
        int64_t factor = sum ? ptx_sum_factor(&a->s, sum, k) : 0;
        int32_t first = factor ? ptx_sum_add(&a->s, sum, counter, -factor) : 0;
        if (!first) continue;
        if (ptx_sum_at_most(&a->s, first, 0, &a->facts, header->entry.facts)) {
            at->facts = access_fact(a, sum, at->facts);
            at->when = access_fact(a, sum, at->when);
            at->facts = rounded(a, sum, factor, at, at->facts);
            continue;
        }
        header->bounded = false;
        int64_t low = ptx_sum_lower(&a->s, first, &a->facts, header->entry.facts); /* factor·k ≤ -first */
        if (low == -PTX_INF) continue;
        int64_t most = low >= 0 ? 0 : -low / factor;
        at->facts = access_fact(a, ptx_sum_add(&a->s, counter, ptx_sum_constant(&a->s, most), -1), at->facts);
    }
}

/* Do only tests that each iteration makes, and whose meaning is known, end the loop? */
static bool ends_by_tests(struct analysis *a, int32_t h) {
    struct frame *f = a->frames[a->frame];
    const struct block_info *header = &f->block[h];
    for (int32_t n = 0; n < f->reached_blocks; n++) {
        int32_t b = f->order[n];
        if (!in_body(header, b) || !f->block[b].reached) continue;
        const struct ptx_instr *last = &f->f->instrs[f->f->blocks[b].end - 1];
        bool leaves = last->op == PTX_OP_RET || last->op == PTX_OP_EXIT || last->op == PTX_OP_TRAP || last->targets;
        for (int32_t s = 0; s < f->f->blocks[b].succs; s++)
            leaves |= f->block[b].feasible[s] && !in_body(header, f->f->blocks[b].succ[s]);
        if (leaves && !dominates_latches(f, b, h)) return false;
    }
    return true;
}

/* Do all loops around the present place run for just as long as their facts say? */
bool access_bounded(const struct analysis *a) {
    int32_t b = a->at_block;
    for (int32_t n = a->frame; n >= 0; n = a->frames[n]->parent) {
        const struct frame *f = a->frames[n];
        for (int32_t h = b; h >= 0; h = f->f->blocks[h].idom)
            if (f->block[h].header && (!f->reducible || (in_body(&f->block[h], b) && !f->block[h].bounded)))
                return false;
        if (!f->call) break;
        const struct ptx_function *caller = a->frames[f->parent]->f;
        for (b = 0; b < caller->block_count - 1 && caller->instrs + caller->blocks[b].end <= f->call; b++) {
        }
    }
    return true;
}

/* ---- merging ---- */
struct incoming {
    int32_t from; /* block; -1: the function's entry */
    const struct state *state;
    int32_t facts;
};
struct merge {
    int32_t block;
    struct incoming *in; /* forward edges, then those back */
    int32_t forward, count;
};

static struct value get(const struct analysis *a, int32_t v) {
    return access_get(a, v);
}

static int64_t width_limit(const struct analysis *a, int32_t var) {
    const struct frame *f = a->frames[a->frame];
    unsigned bits = 64;
    if (var >= CELL) {
        bits = 8u * (unsigned)a->cells[var - CELL].bytes;
    } else {
        for (int32_t r = 0; r < f->f->reg_count; r++)
            if (f->multi[r] == var) bits = ptx_type_bits((enum ptx_type)f->f->regs[r].type);
    }
    return bits >= 64 || bits < 8 ? PTX_INF : (int64_t)1 << (bits - 1);
}

/* A sum without the counters of loops that are over, where their last value is known: k = x from k - x ≤ 0 and
 * x - k ≤ 0. */
static int32_t without_counters(struct analysis *a, int32_t block, int32_t sum, int32_t facts) {
    const struct frame *f = a->frames[a->frame];
    for (int32_t n = facts; n >= 0 && sum; n = a->facts.fact[n].next) {
        struct ptx_sum e = {0};
        memcpy(&e, ptx_sum(&a->s, sum),
               sizeof e.constant + sizeof e.count + (size_t)ptx_sum(&a->s, sum)->count * sizeof *e.term);
        for (int64_t t = 0; t < e.count; t++) {
            const struct ptx_symbol_info *info = &a->s.symbol[e.term[t].symbol];
            if (!info->free || info->frame != a->frame || in_body(&f->block[info->block], block)) continue;
            int32_t fact = a->facts.fact[n].sum, opposite = ptx_sum_scale(&a->s, fact, -1);
            int64_t factor = ptx_sum_factor(&a->s, fact, e.term[t].symbol);
            if (factor != 1 && factor != -1) continue;
            bool equal = false;
            for (int32_t m = facts; m >= 0; m = a->facts.fact[m].next) equal |= a->facts.fact[m].sum == opposite;
            if (!equal) continue;
            sum = ptx_sum_add(&a->s, sum, fact, -e.term[t].factor * factor);
            break;
        }
    }
    return sum;
}

static bool equal_under(struct analysis *a, int32_t x, int32_t y, int32_t facts) {
    int32_t d = ptx_sum_add(&a->s, x, y, -1);
    return d && ptx_sum_at_most(&a->s, d, 0, &a->facts, facts) && ptx_sum_at_least(&a->s, d, 0, &a->facts, facts);
}

/* Values that look different may be one: what a loop leaves, and what there is where it is left out. */
static int32_t one_value(struct analysis *a, const struct merge *m, int32_t var) {
    struct value first = get(a, variable_of(m->in[0].state, var));
    for (int32_t n = 0; n < m->forward && n < 4; n++) {
        struct value x = get(a, variable_of(m->in[n].state, var));
        int32_t sum =
            x.sum && x.base.kind != BASE_SET && !x.cond ? without_counters(a, m->block, x.sum, m->in[n].facts) : 0;
        bool all = sum != 0;
        for (int32_t k = 0; k < m->forward && all; k++) {
            struct value y = get(a, variable_of(m->in[k].state, var));
            all = y.sum && !y.cond && !memcmp(&y.base, &first.base, sizeof y.base) &&
                  equal_under(a, y.sum, sum, m->in[k].facts);
        }
        if (all) return access_value(a, first.base, sum);
    }
    return 0;
}

static int32_t merge_forward(struct analysis *a, const struct merge *m, int32_t var) {
    int32_t joined = 0;
    bool differ = false, known = true;
    for (int32_t n = 0; n < m->forward; n++) {
        int32_t v = variable_of(m->in[n].state, var);
        if (!v) continue;
        if (joined && v != joined) differ = true;
        if (!joined) joined = v;
    }
    if (!differ) return joined;
    int32_t one = a->launch ? one_value(a, m, var) : 0;
    if (one) return one;
    int64_t lo = PTX_INF, hi = -PTX_INF;
    for (int32_t n = 0; n < m->forward; n++) {
        int32_t v = variable_of(m->in[n].state, var);
        struct value x = get(a, v);
        if (!v) continue;
        known &= x.sum && x.base.kind != BASE_SET && !x.cond;
        if (!known) break;
        int64_t l = ptx_sum_lower(&a->s, x.sum, &a->facts, m->in[n].facts),
                h = ptx_sum_upper(&a->s, x.sum, &a->facts, m->in[n].facts);
        lo = l < lo ? l : lo;
        hi = h > hi ? h : hi;
    }
    int32_t symbol = known ? access_symbol(a, 'M', a->frame, m->block, var, lo, hi) : 0;
    for (int32_t n = 0; n < m->forward; n++) joined = access_join(a, joined, variable_of(m->in[n].state, var), symbol);
    return joined;
}

static struct phi *phi_of(struct analysis *a, int32_t block, int32_t var) {
    int32_t n = access_memo(a, 'H', a->frame, block, var);
    if (n >= a->phi_room) {
        int32_t room = n * 2 + 64;
        struct phi *grown = realloc(a->phi, (size_t)room * sizeof *grown);
        if (!grown) {
            a->s.no_memory = true;
            return NULL;
        }
        memset(grown + a->phi_room, 0, (size_t)(room - a->phi_room) * sizeof *grown);
        a->phi = grown;
        a->phi_room = room;
    }
    return &a->phi[n];
}

static void set_phi(struct analysis *a, struct phi *phi, enum phi_state state) {
    phi->state = state;
    phi->since = a->pass;
    a->changed = true;
}

/* base + symbol of its own, for a value that is not followed further. */
static int32_t own_symbol(struct analysis *a, const struct merge *m, int32_t var) {
    int64_t limit = width_limit(a, var);
    return access_symbol(a, 'O', a->frame, m->block, var, limit == PTX_INF ? -PTX_INF : -limit,
                         limit == PTX_INF ? PTX_INF : limit - 1);
}

static int32_t opaque(struct analysis *a, const struct merge *m, int32_t var, struct phi *phi, int32_t init) {
    int32_t symbol = own_symbol(a, m, var), joined = phi->joined;
    for (int32_t n = m->forward - 1; n < m->count; n++) {
        int32_t v = n < m->forward ? init : variable_of(m->in[n].state, var);
        struct value x = get(a, v);
        if (!v) continue;
        if (!x.cond && x.base.kind != BASE_SET && x.base.kind != BASE_UNKNOWN) v = access_value(a, x.base, symbol);
        if (x.cond) v = access_condition(a, access_cond(a, COND_ANY, 0, 0));
        joined = access_join(a, joined, v, symbol);
    }
    if (joined != phi->joined) a->changed = true;
    return phi->joined = joined;
}

static bool may_step(const struct analysis *a, int32_t v) {
    struct value x = get(a, v);
    return v && x.sum && !x.cond && x.base.kind != BASE_SET && x.base.kind != BASE_UNKNOWN;
}

/* Do all edges back bring `value`? Those that bring nothing do not count. */
static bool all_back(const struct merge *m, int32_t var, int32_t value) {
    for (int32_t n = m->forward; n < m->count; n++) {
        int32_t v = variable_of(m->in[n].state, var);
        if (v && v != value) return false;
    }
    return true;
}

/* The constant that all edges back add to `value`; false: there is none. */
static bool common_step(struct analysis *a, const struct merge *m, int32_t var, int32_t value, int64_t *step) {
    struct value x = get(a, value);
    bool any = false;
    for (int32_t n = m->forward; n < m->count; n++) {
        int32_t v = variable_of(m->in[n].state, var);
        struct value y = get(a, v);
        int64_t d;
        if (!v) continue;
        if (!may_step(a, v) || memcmp(&x.base, &y.base, sizeof x.base) ||
            !ptx_sum_is_constant(&a->s, ptx_sum_add(&a->s, y.sum, x.sum, -1), &d) || (any && d != *step))
            return false;
        *step = d;
        any = true;
    }
    return any && *step;
}

static int32_t merge_loop(struct analysis *a, const struct merge *m, int32_t var, int32_t init) {
    struct phi *phi = phi_of(a, m->block, var);
    int32_t counter;
    if (!phi || m->count == m->forward) return init;
    struct value x = get(a, init);
    if (phi->state == PHI_SAME) {
        if (all_back(m, var, init)) return init;
        set_phi(a, phi, may_step(a, init) && phi->tries < 4 ? PHI_PROBE : PHI_OPAQUE);
    }
    if (phi->state != PHI_OPAQUE && !may_step(a, init)) set_phi(a, phi, PHI_OPAQUE);
    if (phi->state == PHI_PROBE) {
        int32_t probe = access_value(a, x.base, own_symbol(a, m, var));
        int64_t step = 0;
        if (phi->since == a->pass) return probe;
        if (common_step(a, m, var, probe, &step)) {
            phi->step = step;
            set_phi(a, phi, PHI_STEP);
        } else if (all_back(m, var, probe)) {
            phi->tries++;
            set_phi(a, phi, PHI_SAME);
            return init;
        } else if (++phi->tries > 3) {
            set_phi(a, phi, PHI_OPAQUE);
        } else {
            a->changed = true;
            return probe;
        }
    }
    if (phi->state == PHI_STEP && counter_symbol(a, m->block, &counter) >= 0) {
        int32_t sum = ptx_sum_add(&a->s, x.sum, counter, phi->step);
        int32_t v = access_value(a, x.base, sum);
        int32_t next = access_value(a, x.base, ptx_sum_add(&a->s, sum, ptx_sum_constant(&a->s, phi->step), 1));
        if (sum && (phi->since == a->pass || all_back(m, var, next))) return v;
        set_phi(a, phi, ++phi->tries > 6 || !sum ? PHI_OPAQUE : PHI_PROBE);
        if (phi->state == PHI_PROBE) return access_value(a, x.base, own_symbol(a, m, var));
    }
    return opaque(a, m, var, phi, init);
}

static void merge_variable(struct analysis *a, const struct merge *m, int32_t var, int32_t *out) {
    int32_t v = merge_forward(a, m, var);
    *out = m->count > m->forward ? merge_loop(a, m, var, v) : v;
}

/* ---- entering a block ---- */
static uint64_t facts_hash(const struct block_info *header) {
    uint64_t h = header->all_facts;
    for (int32_t n = 0; n < header->loop_fact_count; n++) h = h * 0x100000001B3u + (uint64_t)header->loop_facts[n];
    return h;
}

/* Which way out of p leads to b, and whether it can be gone. */
static bool edge_feasible(const struct frame *f, int32_t p, int32_t b, int32_t *cond) {
    const struct ptx_block *block = &f->f->blocks[p];
    const struct ptx_instr *last = &f->f->instrs[block->end - 1];
    *cond = 0;
    if (!f->block[p].reached) return false;
    bool listed = false;
    for (int32_t t = 0; t < last->targets; t++) listed |= f->f->branch_targets[last->targets0 + t] == b;
    if (listed) return true;
    for (int32_t s = 0; s < block->succs; s++)
        if (block->succ[s] == b && f->block[p].feasible[s]) {
            *cond = f->block[p].edge[s];
            return true;
        }
    return false;
}

static bool postdominates(const struct frame *f, int32_t b, int32_t d) {
    for (int n = 0; d >= 0 && n < 2000; n++, d = f->f->blocks[d].ipdom)
        if (d == b) return true;
    return false;
}

/* Where paths meet: what held at the dominator; all of it executes again if every path comes here. */
static struct place place_of_merge(const struct frame *f, int32_t b) {
    int32_t d = f->f->blocks[b].idom;
    struct place at = d >= 0 ? f->block[d].in : (struct place){-1, -1, true};
    if (d < 0) return at;
    at.exact = at.exact && postdominates(f, b, d);
    return at;
}

/* Behind a loop that b follows in any case, b is executed when the loop is entered, whatever the counter has become. */
static void forget_loops(const struct frame *f, int32_t b, int32_t from, struct place *at) {
    for (int32_t d = from; d >= 0; d = f->f->blocks[d].idom) {
        if (!f->block[d].header || in_body(&f->block[d], b) || !postdominates(f, b, d)) continue;
        at->when = f->block[d].entry.when;
        at->exact = f->block[d].entry.exact;
    }
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
                !edge_feasible(f, p, b, &cond))
                continue;
            struct place from = f->block[p].in;
            if (!back) assume_edge(a, p, b, cond, &from);
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
        forget_loops(f, b, one_way ? in[0].from : block->idom, &at);
        info->entry = at;
        if (info->header && f->reducible) apply_loop_facts(a, b, &at);
        if (info->header && (!f->reducible || !ends_by_tests(a, b))) info->bounded = false;
        info->in = at;
        int32_t cells = a->cell_count;
        if (a->now.cell_count < cells) {
            int32_t *grown = realloc(a->now.cells, (size_t)cells * sizeof *grown);
            if (!grown) a->s.no_memory = true;
            if (grown) a->now.cells = grown;
            if (grown) a->now.cell_count = cells;
        }
        for (int32_t r = 0; r < f->multi_count; r++) merge_variable(a, &m, r, &a->now.regs[r]);
        for (int32_t c = 0; c < cells && c < a->now.cell_count; c++)
            if (a->cells[c].mixed)
                a->now.cells[c] = 0;
            else
                merge_variable(a, &m, CELL + c, &a->now.cells[c]);
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
        if (is_back(f, b, block->succ[s]) && info->feasible[s]) end_iteration(a, b, block->succ[s], info->edge[s]);
    for (int32_t t = 0; t < last->targets; t++) {
        int32_t to = f->f->branch_targets[last->targets0 + t];
        if (is_back(f, b, to)) f->block[to].all_facts = false;
    }
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
