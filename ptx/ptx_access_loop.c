/* Loops: what one iteration says about the next, and when a loop ends. */
#include <stdlib.h>
#include <string.h>
#include "ptx/ptx_access_flow.h"

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

int32_t access_counter(struct analysis *a, int32_t h, int32_t *sum) {
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
    int32_t counter, k = access_counter(a, h, &counter);
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
void access_edge(struct analysis *a, int32_t p, int32_t b, int32_t cond, struct place *at) {
    struct frame *f = a->frames[a->frame];
    struct cond c = {.kind = COND_ANY};
    bool unequal = false;
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
    access_assume_at(a, cond, at);
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
void access_end_iteration(struct analysis *a, int32_t p, int32_t h, int32_t cond) {
    struct frame *f = a->frames[a->frame];
    struct block_info *header = &f->block[h];
    struct place at = f->block[p].in;
    int32_t counter, k = access_counter(a, h, &counter);
    if (!f->reducible || k < 0) return;
    access_edge(a, p, h, cond, &at);
    if (!at.exact) header->all_facts = false;
    for (int32_t n = at.facts; n >= 0 && n != header->in.facts; n = a->facts.fact[n].next) {
        int32_t sum = a->facts.fact[n].sum;
        int64_t factor = ptx_sum_factor(&a->s, sum, k);
        if (factor > 0 && all_invariant(a, a->frame, h, sum, k))
            add_loop_fact(header, ptx_sum_add(&a->s, sum, ptx_sum_constant(&a->s, factor), -1));
        else if (!ptx_sum_at_most(&a->s, sum, 0, &a->facts, header->in.facts)) /* it is not so anyway */
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
void access_loop_facts(struct analysis *a, int32_t b, struct place *at) {
    struct block_info *header = &a->frames[a->frame]->block[b];
    int32_t counter, k = access_counter(a, b, &counter);
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
bool access_ends_by_tests(struct analysis *a, int32_t h) {
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

/* The block of frame f's caller from which it is called. */
static int32_t calling_block(const struct analysis *a, const struct frame *f) {
    const struct ptx_function *caller = a->frames[f->parent]->f;
    int32_t b = 0;
    while (b < caller->block_count - 1 && caller->instrs + caller->blocks[b].end <= f->call) b++;
    return b;
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
        b = calling_block(a, f);
    }
    return true;
}

/* Header h's counter at block b: does it take just the values that the facts of b leave it? Behind the loop it has one
 * value, which they give if they are all that ends the loop, and have not been forgotten since. */
static bool counter_known(const struct frame *f, int32_t h, int32_t b) {
    if (!f->reducible) return false;
    if (in_body(&f->block[h], b)) return true; /* access_bounded looks at it */
    for (int32_t d = b; d >= 0; d = f->block[d].facts_of) {
        if (in_body(&f->block[h], d)) return f->block[h].bounded;
        if (access_follows(f, d, h)) return false;
    }
    return false;
}

static bool all_known(const struct analysis *a, int32_t sum, int depth) {
    const struct ptx_sum *e = ptx_sum(&a->s, sum);
    for (int64_t t = 0; t < e->count; t++) {
        const struct ptx_symbol_info *info = &a->s.symbol[e->term[t].symbol];
        if (info->divided && (depth > 8 || !all_known(a, info->divided, depth + 1))) return false;
        if (!info->free || info->frame < 0) continue;
        int32_t n = a->frame, b = a->at_block;
        for (; n >= 0 && n != info->frame; n = a->frames[n]->parent)
            if (a->frames[n]->call) b = calling_block(a, a->frames[n]);
        if (n < 0 || !counter_known(a->frames[n], info->block, b)) return false;
    }
    return true;
}

/* Do the facts `when` say which values the counters in `sum`, and in themselves, take at the present place? */
bool access_counters_known(const struct analysis *a, int32_t sum, int32_t when) {
    if (sum && !all_known(a, sum, 0)) return false;
    for (int32_t f = when; f >= 0; f = a->facts.fact[f].next)
        if (!all_known(a, a->facts.fact[f].sum, 0)) return false;
    return true;
}
