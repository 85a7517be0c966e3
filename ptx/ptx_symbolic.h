/* Integers as sums of symbols, for the access analysis: constants and multiples of tid, ctaid, loop counters and values
 * that are known by their range only. All numbers are exact integers; what overflows 64 bits is unknown.
 *
 * Sums, and all else that is compared by identity, are interned: equal ones have equal numbers. One thread. */
#ifndef ACCT_PTX_SYMBOLIC_H
#define ACCT_PTX_SYMBOLIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PTX_SUM_TERMS = 8 };
#define PTX_INF INT64_MAX /* of bounds: none; -PTX_INF likewise */

struct ptx_term {
    int32_t symbol;
    int32_t pad;
    int64_t factor;
};
struct ptx_sum { /* constant + Σ factor · symbol, by symbol */
    int64_t constant;
    int64_t count;
    struct ptx_term term[PTX_SUM_TERMS];
};
struct ptx_symbol_info {
    int64_t lo, hi;       /* ±PTX_INF: none */
    int32_t divided;      /* a quotient, rounded down: of this sum (0: none) … */
    int64_t by;           /* … by this constant */
    int32_t at_most[2];   /* sums that it does not exceed (min); 0: none */
    int32_t at_least[2];  /* that it is not below (max) */
    bool free;            /* tid, ctaid, counters of loops: takes every value of its range */
    int32_t frame, block; /* where it gets its value; -1: it has the same everywhere */
};

/* ---- interning of records by their bytes ---- */
struct ptx_intern {
    unsigned char **record;
    uint32_t *bytes;
    int32_t count, room; /* numbers begin with 1 */
    int32_t *slot;
    uint32_t slots;
};
/* Number of the record, equal ones equal; *fresh: it is new. -1: no memory. */
int32_t ptx_intern(struct ptx_intern *t, const void *record, uint32_t bytes, bool *fresh);
void ptx_intern_free(struct ptx_intern *t);

struct ptx_symbols_of { /* sums and symbols of one analysis */
    struct ptx_intern sums;
    struct ptx_symbol_info *symbol;
    int32_t count, room;
    bool no_memory;
    bool no_types; /* a range that is no more than that of a 32-bit type does not count as a bound */
    int depth;     /* of chains of facts that bounds follow */
    uint64_t work; /* steps of bounds so far */
};

/* What holds at a place: sum ≤ 0, in a list that shares its tail. -1: the end. */
struct ptx_fact {
    int32_t sum, next;
};
struct ptx_facts {
    struct ptx_fact *fact;
    int32_t count, room;
};

void ptx_symbolic_free(struct ptx_symbols_of *s);
int32_t ptx_symbol_new(struct ptx_symbols_of *s, int64_t lo, int64_t hi);
/* Sums by number; 0 is the unknown one, and so is what any of these make of it or of an overflow. */
int32_t ptx_sum_constant(struct ptx_symbols_of *s, int64_t c);
int32_t ptx_sum_symbol(struct ptx_symbols_of *s, int32_t symbol);
int32_t ptx_sum_add(struct ptx_symbols_of *s, int32_t a, int32_t b, int64_t times_b); /* a + times_b · b */
int32_t ptx_sum_scale(struct ptx_symbols_of *s, int32_t a, int64_t by);
int32_t ptx_sum_intern(struct ptx_symbols_of *s, const struct ptx_sum *sum);
const struct ptx_sum *ptx_sum(const struct ptx_symbols_of *s, int32_t number); /* not of 0 */
bool ptx_sum_is_constant(const struct ptx_symbols_of *s, int32_t a, int64_t *value);
int64_t ptx_sum_factor(const struct ptx_symbols_of *s, int32_t a, int32_t symbol); /* 0: not in it */
/* The least upper bound that is found for a sum under facts (facts: -1 for none); PTX_INF: none. */
int64_t ptx_sum_upper(struct ptx_symbols_of *s, int32_t a, const struct ptx_facts *facts, int32_t list);
bool ptx_sum_at_most(struct ptx_symbols_of *s, int32_t a, int64_t limit, const struct ptx_facts *facts, int32_t list);
bool ptx_sum_at_least(struct ptx_symbols_of *s, int32_t a, int64_t limit, const struct ptx_facts *facts, int32_t list);
int64_t ptx_sum_lower(struct ptx_symbols_of *s, int32_t a, const struct ptx_facts *facts, int32_t list);

#endif
