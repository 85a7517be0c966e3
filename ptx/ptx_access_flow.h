/* What the files of the access analysis that deal with control flow share. */
#ifndef ACCT_PTX_ACCESS_FLOW_H
#define ACCT_PTX_ACCESS_FLOW_H

#include "ptx/ptx_access_model.h"

enum { CELL = 1 << 20 }; /* numbers of cells as variables of a merge, behind those of registers */

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

static inline bool dominates(const struct frame *f, int32_t d, int32_t b) {
    return f->block[d].tree_first <= f->block[b].tree_first && f->block[b].tree_first < f->block[d].tree_end;
}

static inline bool is_back(const struct frame *f, int32_t from, int32_t to) {
    return f->f->blocks[from].rank >= f->f->blocks[to].rank;
}

static inline bool in_body(const struct block_info *header, int32_t b) {
    return header->body[b / 64] >> b % 64 & 1;
}

static inline int32_t variable_of(const struct state *s, int32_t var) {
    if (var < CELL) return s->regs ? s->regs[var] : 0;
    return var - CELL < s->cell_count ? s->cells[var - CELL] : 0;
}

/* The symbol of header h's counter, and the sum that is that symbol. -1: no memory. */
int32_t access_counter(struct analysis *a, int32_t h, int32_t *sum);
/* Is block b executed whenever block d is? */
bool access_follows(const struct frame *f, int32_t b, int32_t d);
/* What holds at *at, with the condition of the edge from block p to block b. */
void access_edge(struct analysis *a, int32_t p, int32_t b, int32_t cond, struct place *at);
/* At the end of block p, from which an edge leads back to header h. */
void access_end_iteration(struct analysis *a, int32_t p, int32_t h, int32_t cond);
/* At header b: what its loop's facts say. */
void access_loop_facts(struct analysis *a, int32_t b, struct place *at);
bool access_ends_by_tests(struct analysis *a, int32_t h);
/* The value of a variable (a register of state.regs, or CELL + a cell) where paths meet. */
void access_merge(struct analysis *a, const struct merge *m, int32_t var, int32_t *out);

#endif
