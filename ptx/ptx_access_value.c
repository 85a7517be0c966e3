/* Values and conditions: interned records. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ptx/ptx_access_model.h"

static int32_t number_of(struct analysis *a, struct ptx_intern *t, const void *record, uint32_t bytes) {
    int32_t n = ptx_intern(t, record, bytes, NULL);
    if (n > 0) return n;
    a->s.no_memory = true;
    return 0;
}

int32_t access_value(struct analysis *a, struct base base, int32_t sum) {
    struct value v = {.base = base, .sum = sum};
    return number_of(a, &a->values, &v, sizeof v);
}

int32_t access_number(struct analysis *a, int32_t sum) {
    return access_value(a, (struct base){BASE_NONE, 0, 0}, sum);
}
int32_t access_unknown(struct analysis *a) {
    return access_value(a, (struct base){BASE_UNKNOWN, 0, 0}, 0);
}

int32_t access_condition(struct analysis *a, int32_t cond) {
    struct value v = {.cond = cond};
    return number_of(a, &a->values, &v, sizeof v);
}

struct value access_get(const struct analysis *a, int32_t value) {
    struct value v = {.base = {BASE_UNKNOWN, 0, 0}};
    if (value > 0) memcpy(&v, a->values.record[value], sizeof v);
    return v;
}

const struct base_set *access_set(const struct analysis *a, int32_t number) {
    return (const struct base_set *)(const void *)a->sets.record[number];
}

int32_t access_memo(struct analysis *a, int32_t kind, int32_t x, int32_t y, int32_t z) {
    int32_t key[4] = {kind, x, y, z};
    return number_of(a, &a->memo, key, sizeof key);
}

/* The sum of one symbol that belongs to this key, its range widened to [lo, hi]. */
int32_t access_symbol(struct analysis *a, int32_t kind, int32_t x, int32_t y, int32_t z, int64_t lo, int64_t hi) {
    int32_t n = access_memo(a, kind, x, y, z);
    if (n >= a->memo_room) {
        int32_t room = n * 2 + 64;
        int32_t *grown = realloc(a->memo_symbol, (size_t)room * sizeof *grown);
        if (!grown) {
            a->s.no_memory = true;
            return 0;
        }
        memset(grown + a->memo_room, 0xFF, (size_t)(room - a->memo_room) * sizeof *grown);
        a->memo_symbol = grown;
        a->memo_room = room;
    }
    if (a->memo_symbol[n] < 0) {
        a->memo_symbol[n] = ptx_symbol_new(&a->s, lo, hi);
        if (a->s.no_memory) return 0;
        a->s.symbol[a->memo_symbol[n]].free = kind == 'K';
        bool always = kind == 'P' || kind == 'S';
        a->s.symbol[a->memo_symbol[n]].frame = always ? -1 : a->frame;
        a->s.symbol[a->memo_symbol[n]].block = always ? -1 : a->at_block;
        a->changed = true;
    }
    if (a->s.no_memory) return 0;
    struct ptx_symbol_info *info = &a->s.symbol[a->memo_symbol[n]];
    if (lo < info->lo || hi > info->hi) {
        /* Where a range goes on growing it is not worth following. */
        info->lo = lo < info->lo ? (a->pass > 8 ? -PTX_INF : lo) : info->lo;
        info->hi = hi > info->hi ? (a->pass > 8 ? PTX_INF : hi) : info->hi;
        a->changed = true;
    }
    return ptx_sum_symbol(&a->s, a->memo_symbol[n]);
}

void access_fail(struct analysis *a, int32_t line, bool write, const char *what) {
    if (!a->recording) return;
    if (!a->unknown || (write && !a->unknown_writes)) snprintf(a->why, sizeof a->why, "line %d: %s", line, what);
    a->unknown = true;
    a->unknown_writes |= write;
}

/* ---- one of several ---- */
static int compare_items(const void *x, const void *y) {
    return memcmp(x, y, sizeof(struct value));
}

static int32_t add_items(struct analysis *a, struct value v, struct value *items, int32_t count) {
    if (v.base.kind != BASE_SET) {
        items[count++] = v;
        return count;
    }
    const struct base_set *set = access_set(a, v.base.a);
    for (int32_t n = 0; n < set->count; n++) items[count++] = set->item[n];
    return count;
}

static bool same_base(const struct value *x, const struct value *y) {
    return !memcmp(&x->base, &y->base, sizeof x->base);
}

/* Values of one base with different sums become one with `sum`. */
static int32_t unite(struct value *items, int32_t count, int32_t sum) {
    int32_t kept = 0;
    for (int32_t n = 0; n < count; n++) {
        if (kept && same_base(&items[kept - 1], &items[n])) {
            if (items[kept - 1].sum != items[n].sum) items[kept - 1].sum = sum;
        } else {
            items[kept++] = items[n];
        }
    }
    return kept;
}

static int32_t join_sets(struct analysis *a, struct value x, struct value y, int32_t sum) {
    struct value item[2 * ACCESS_MAX_SET];
    struct { /* a struct base_set at its longest */
        int32_t count, pad;
        struct value item[ACCESS_MAX_SET];
    } set = {0};
    int32_t count = add_items(a, y, item, add_items(a, x, item, 0));
    qsort(item, (size_t)count, sizeof *item, compare_items);
    count = unite(item, count, sum);
    if (count > ACCESS_MAX_SET) return access_unknown(a);
    set.count = count;
    memcpy(set.item, item, (size_t)count * sizeof *item);
    int32_t n =
        number_of(a, &a->sets, &set, (uint32_t)(offsetof(struct base_set, item) + (size_t)count * sizeof *item));
    return access_value(a, (struct base){BASE_SET, n, 0}, 0);
}

int32_t access_join(struct analysis *a, int32_t x, int32_t y, int32_t sum) {
    if (x == y || !y) return x;
    if (!x) return y;
    struct value u = access_get(a, x), v = access_get(a, y);
    if (u.cond || v.cond) return access_condition(a, access_cond(a, COND_ANY, 0, 0));
    if (u.base.kind == BASE_UNKNOWN || v.base.kind == BASE_UNKNOWN) {
        /* a number beside what may be a pointer may be that pointer; a pointer beside it stays known */
        struct value known = u.base.kind == BASE_UNKNOWN ? v : u;
        if (known.base.kind == BASE_NONE || known.base.kind == BASE_UNKNOWN) return access_unknown(a);
    }
    if (u.base.kind != BASE_SET && same_base(&u, &v)) return access_value(a, u.base, sum);
    return join_sets(a, u, v, sum);
}

static int64_t param_value(const struct analysis *a, int32_t offset) {
    int64_t v;
    memcpy(&v, a->params + offset, sizeof v);
    return v;
}

int32_t access_as_number(struct analysis *a, int32_t value) {
    struct value v = access_get(a, value);
    if (!value || v.cond) return 0;
    if (v.base.kind == BASE_NONE) return v.sum;
    if (v.base.kind != BASE_PARAM) return 0;
    int32_t own = a->params ? ptx_sum_constant(&a->s, param_value(a, v.base.a))
                            : access_symbol(a, 'P', v.base.a, 8, 0, -PTX_INF, PTX_INF);
    return ptx_sum_add(&a->s, own, v.sum, 1);
}

/* ---- conditions ---- */
static struct cond get_cond(const struct analysis *a, int32_t cond) {
    struct cond c = {.kind = COND_ANY, .size = 1};
    if (cond > 0) memcpy(&c, a->conds.record[cond], sizeof c);
    return c;
}

int32_t access_cond(struct analysis *a, int kind, int32_t x, int32_t y) {
    if (kind >= COND_LE && kind <= COND_NE) {
        if (!x) return access_cond(a, COND_ANY, 0, 0);
        int64_t hi = ptx_sum_upper(&a->s, x, NULL, -1), lo = ptx_sum_lower(&a->s, x, NULL, -1);
        bool never_zero = lo > 0 || hi < 0, zero = lo == 0 && hi == 0;
        if (kind == COND_LE ? hi <= 0 : kind == COND_EQ ? zero : never_zero) return access_cond(a, COND_TRUE, 0, 0);
        if (kind == COND_LE ? lo > 0 : kind == COND_EQ ? never_zero : zero) return access_cond(a, COND_FALSE, 0, 0);
    } else if (kind == COND_AND || kind == COND_OR) {
        int neutral = kind == COND_AND ? COND_TRUE : COND_FALSE, absorbing = kind == COND_AND ? COND_FALSE : COND_TRUE;
        int cx = get_cond(a, x).kind, cy = get_cond(a, y).kind;
        if (cx == neutral || cy == absorbing || x == y) return y;
        if (cy == neutral || cx == absorbing) return x;
    }
    struct cond c = {kind, x, y, 1};
    if (kind == COND_AND || kind == COND_OR) c.size += get_cond(a, x).size + get_cond(a, y).size;
    if (c.size > 64) return access_cond(a, COND_ANY, 0, 0);
    return number_of(a, &a->conds, &c, sizeof c);
}

int32_t access_not(struct analysis *a, int32_t cond) {
    struct cond c = get_cond(a, cond);
    switch (c.kind) {
    case COND_TRUE:
        return access_cond(a, COND_FALSE, 0, 0);
    case COND_FALSE:
        return access_cond(a, COND_TRUE, 0, 0);
    case COND_EQ:
        return access_cond(a, COND_NE, c.a, 0);
    case COND_NE:
        return access_cond(a, COND_EQ, c.a, 0);
    case COND_LE: /* not (e ≤ 0): 1 - e ≤ 0 */
        return access_cond(a, COND_LE, ptx_sum_add(&a->s, ptx_sum_constant(&a->s, 1), c.a, -1), 0);
    case COND_AND:
        return access_cond(a, COND_OR, access_not(a, c.a), access_not(a, c.b));
    case COND_OR:
        return access_cond(a, COND_AND, access_not(a, c.a), access_not(a, c.b));
    default:
        return cond;
    }
}

int access_decide(struct analysis *a, int32_t cond, int32_t facts) {
    struct cond c = get_cond(a, cond);
    if (c.kind == COND_TRUE) return 1;
    if (c.kind == COND_FALSE) return -1;
    if (c.kind == COND_AND || c.kind == COND_OR) {
        int x = access_decide(a, c.a, facts), y = access_decide(a, c.b, facts), decides = c.kind == COND_AND ? -1 : 1;
        return x == decides || y == decides ? decides : x == y ? x : 0;
    }
    if (c.kind == COND_ANY || a->s.work > ACCESS_MAX_WORK) return 0;
    struct ptx_symbols_of *y = &a->s;
    bool low = ptx_sum_at_most(y, c.a, 0, &a->facts, facts), high = ptx_sum_at_least(y, c.a, 0, &a->facts, facts);
    if (c.kind == COND_LE) return low ? 1 : ptx_sum_at_least(y, c.a, 1, &a->facts, facts) ? -1 : 0;
    bool never_zero = (low && ptx_sum_at_most(y, c.a, -1, &a->facts, facts)) ||
                      (high && ptx_sum_at_least(y, c.a, 1, &a->facts, facts));
    if (c.kind == COND_EQ) return low && high ? 1 : never_zero ? -1 : 0;
    return never_zero ? 1 : low && high ? -1 : 0;
}

int32_t access_fact(struct analysis *a, int32_t sum, int32_t list) {
    if (!sum) return list;
    for (int32_t f = list, n = 0; f >= 0 && n < 64; f = a->facts.fact[f].next, n++)
        if (a->facts.fact[f].sum == sum) return list;
    if (a->facts.count == a->facts.room) {
        int32_t room = a->facts.room ? a->facts.room * 2 : 128;
        void *grown = realloc(a->facts.fact, (size_t)room * sizeof *a->facts.fact);
        if (!grown) {
            a->s.no_memory = true;
            return list;
        }
        a->facts.fact = grown;
        a->facts.room = room;
    }
    a->facts.fact[a->facts.count] = (struct ptx_fact){sum, list};
    return a->facts.count++;
}

static int32_t assume(struct analysis *a, int32_t cond, int32_t facts, bool *exact) {
    struct cond c = get_cond(a, cond);
    switch (c.kind) {
    case COND_TRUE:
        return facts;
    case COND_LE:
        return access_fact(a, c.a, facts);
    case COND_EQ:
        return access_fact(a, ptx_sum_scale(&a->s, c.a, -1), access_fact(a, c.a, facts));
    case COND_AND:
        return assume(a, c.b, assume(a, c.a, facts, exact), exact);
    case COND_NE: { /* at an end of its range */
        int32_t one = ptx_sum_constant(&a->s, 1);
        if (ptx_sum_at_most(&a->s, c.a, 0, &a->facts, facts))
            return access_fact(a, ptx_sum_add(&a->s, c.a, one, 1), facts);
        if (ptx_sum_at_least(&a->s, c.a, 0, &a->facts, facts))
            return access_fact(a, ptx_sum_add(&a->s, one, c.a, -1), facts);
        *exact = false;
        return facts;
    }
    case COND_OR: { /* if one side cannot be */
        if (access_decide(a, c.a, facts) < 0) return assume(a, c.b, facts, exact);
        if (access_decide(a, c.b, facts) < 0) return assume(a, c.a, facts, exact);
        *exact = false;
        return facts;
    }
    default:
        *exact = false;
        return facts;
    }
}

/* What `when` alone leaves open may follow from the facts: then what they make of the condition counts. */
void access_assume_at(struct analysis *a, int32_t cond, struct place *at) {
    bool alone = true;
    int32_t before = at->facts;
    at->facts = assume(a, cond, before, &at->exact);
    at->when = assume(a, cond, at->when, &alone);
    for (int32_t f = at->facts; !alone && f >= 0 && f != before; f = a->facts.fact[f].next)
        at->when = access_fact(a, a->facts.fact[f].sum, at->when);
}
