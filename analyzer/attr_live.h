/* Which allocation lies at an address at the moment: the allocations of the trace are known beforehand, and are born
 * and die in order. All calls are O(log n). */
#ifndef ACCT_ANALYZER_ATTR_LIVE_H
#define ACCT_ANALYZER_ATTR_LIVE_H

#include <stdint.h>
#include "analyzer/attr_pool.h"

struct live_place {
    int64_t process, address;
};

struct live {
    struct live_place *place; /* distinct, sorted */
    int32_t places;
    int32_t *block;    /* at each place: the live block */
    uint64_t *bits[6]; /* which places are live; level k + 1 tells which words of level k are not 0 */
    int levels;
};

/* Takes over `place` (any order, duplicates allowed). */
void live_start(struct live *l, struct pool *p, struct live_place *place, int32_t n);
/* -1, or the block that was still live at that very address (its release was not seen). */
int32_t live_born(struct live *l, int64_t process, int64_t address, int32_t block);
void live_dies(struct live *l, int64_t process, int64_t address, int32_t block);
/* The live block of the process with the highest start at or below the address; -1. */
int32_t live_find(const struct live *l, int64_t process, int64_t address);

#endif
