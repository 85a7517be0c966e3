/* What the two ways to find out whether an extent is dense share. */
#ifndef ACCT_PTX_ACCESS_COVER_H
#define ACCT_PTX_ACCESS_COVER_H

#include "ptx/ptx_access_model.h"

enum { MAX_ITEMS = 12, MAX_FACTS = 16, MAX_SPLITS = 4 };

/* A variable of the sum: a symbol, or a sum of symbols that a fact bounds. Its values are 0, 1, … count - 1. */
struct item {
    int64_t factor;            /* in the access; 0: it is not in it */
    int64_t lo, count;         /* the least value; PTX_INF: without end */
    uint32_t members;          /* bits: symbols in it, by their place in `symbol` */
    int64_t weight[MAX_ITEMS]; /* of each member */
};
struct cover {
    struct analysis *a;
    int32_t symbol[MAX_ITEMS], symbols;
    struct item item[MAX_ITEMS];
    int32_t items;
};

/* Σ over terms as one progression {lo, unit, count}, in rising order of |factor|. false: it has gaps. */
struct progression {
    int64_t lo, unit, count;
};

/* tid / 32 and tid % 32, where 32 divides the number of threads, are independent: tid's range becomes that of the rest,
 * and the quotient is a symbol of its own. The sum in those; false: a quotient of another kind. */
struct split {
    int32_t symbol, quotient;
    int64_t by;
};

int32_t access_place_of(struct cover *c, int32_t symbol); /* -1: too many */
bool access_progress(const struct item *terms, int32_t count, struct progression *out);
bool access_use_fact(struct cover *c, const struct ptx_sum *fact);
bool access_find_splits(struct cover *c, const struct ptx_sum *e, struct split *splits, int32_t *count, bool others);
bool access_split_sum(struct cover *c, const struct ptx_sum *e, const struct split *splits, int32_t count,
                      struct ptx_sum *out);
/* The facts of a list that are not always so; false: too many. */
bool access_collect(struct analysis *a, int32_t list, struct ptx_sum *facts, int32_t *count);
/* One region of the extent that begins at lo, found by trying all threads: its end, or lo. */
int64_t access_tried_end(struct analysis *a, const struct record *const *records, int32_t count, int64_t lo);

#endif
