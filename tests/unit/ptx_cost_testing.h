/* What the tests of prices share. */
#ifndef TESTS_PTX_COST_TESTING_H
#define TESTS_PTX_COST_TESTING_H

#include "ptx/ptx_cost.h"

/* Where a generic address could not be told, only the sum over the spaces can be compared. */
static inline void fold_spaces(struct ptx_cost *c, struct ptx_tally *truth) {
    for (int side = 0; side < 2; side++) {
        struct ptx_count *of = side ? c->stored : c->loaded;
        int64_t *n = &truth->n[side ? PTX_T_STORED : PTX_T_LOADED];
        if (!of[PTX_COST_GENERIC].hi) continue;
        for (int k = 1; k < PTX_COST_SPACES; k++) {
            of[0].lo += of[k].lo;
            of[0].hi = of[0].hi == INT64_MAX || of[k].hi == INT64_MAX ? INT64_MAX : of[0].hi + of[k].hi;
            n[0] += n[k];
            of[k].lo = of[k].hi = n[k] = 0;
        }
    }
}

#endif
