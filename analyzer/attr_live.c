/* Live allocations by address: a sorted list of all places and a 64-way tree of bits over it. */
#include "analyzer/attr_live.h"

#include <stdlib.h>

static int place_order(const void *a, const void *b) {
    const struct live_place *x = a, *y = b;
    if (x->process != y->process) return x->process < y->process ? -1 : 1;
    return x->address == y->address ? 0 : (uint64_t)x->address < (uint64_t)y->address ? -1 : 1;
}

void live_start(struct live *l, struct pool *p, struct live_place *place, int32_t n) {
    *l = (struct live){.place = place};
    if (n) qsort(place, (size_t)n, sizeof *place, place_order);
    for (int32_t i = 0; i < n; i++)
        if (!l->places || place_order(&place[l->places - 1], &place[i])) place[l->places++] = place[i];
    l->block = POOL_NEW(p, int32_t, l->places);
    for (int64_t words = l->places; l->levels < 6; words = (words + 63) / 64) {
        if (l->levels && words <= 1) break;
        l->bits[l->levels++] = POOL_NEW(p, uint64_t, (words + 63) / 64 + 1);
    }
}

/* Last place at or before (process, address); -1. */
static int32_t place_find(const struct live *l, int64_t process, int64_t address) {
    struct live_place want = {process, address};
    int32_t lo = 0, hi = l->places;
    while (lo < hi) {
        int32_t mid = lo + (hi - lo) / 2;
        if (place_order(&l->place[mid], &want) <= 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo - 1;
}

static void bit_set(struct live *l, int32_t i) {
    for (int k = 0; k < l->levels; k++, i >>= 6) l->bits[k][i >> 6] |= (uint64_t)1 << (i & 63);
}

static void bit_clear(struct live *l, int32_t i) {
    for (int k = 0; k < l->levels; k++, i >>= 6) {
        l->bits[k][i >> 6] &= ~((uint64_t)1 << (i & 63));
        if (l->bits[k][i >> 6]) return;
    }
}

static int is_live(const struct live *l, int32_t i) {
    return l->bits[0][i >> 6] >> (i & 63) & 1;
}

/* Highest live place at or below i; -1. Climbs until a word has a bit to the left, then descends along the highest
 * bits. */
static int32_t bit_at_or_below(const struct live *l, int32_t i) {
    for (int k = 0; k < l->levels; k++) {
        if (i < 0) return -1;
        uint64_t word = l->bits[k][i >> 6] & (~(uint64_t)0 >> (63 - (i & 63)));
        if (word) {
            i = (i & ~63) | (63 - __builtin_clzll(word));
            while (k-- > 0) i = i << 6 | (63 - __builtin_clzll(l->bits[k][i]));
            return i;
        }
        i = (i >> 6) - 1;
    }
    return -1;
}

int32_t live_born(struct live *l, int64_t process, int64_t address, int32_t block) {
    int32_t i = place_find(l, process, address), old = -1;
    if (i < 0) return -1;
    if (is_live(l, i)) old = l->block[i];
    l->block[i] = block;
    bit_set(l, i);
    return old;
}

void live_dies(struct live *l, int64_t process, int64_t address, int32_t block) {
    int32_t i = place_find(l, process, address);
    if (i >= 0 && is_live(l, i) && l->block[i] == block) bit_clear(l, i);
}

int32_t live_find(const struct live *l, int64_t process, int64_t address) {
    int32_t i = place_find(l, process, address);
    if (i >= 0) i = bit_at_or_below(l, i);
    return i < 0 || l->place[i].process != process ? -1 : l->block[i];
}
