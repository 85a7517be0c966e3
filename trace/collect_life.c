#include "trace/collect_life.h"

#include <stdlib.h>
#include <string.h>

struct event {
    uint64_t ns;
    int64_t id;
    int64_t partner; /* id of the other end, 0: none */
    uint32_t pass;   /* in which it arrived */
    uint32_t death;
};

/* The events of one key, by time; at the same time births come first. */
struct list {
    uint64_t key;
    struct event *events; /* NULL: the place in the table is free */
    uint32_t count, capacity;
    uint32_t pruned; /* pass of the last pruning */
};

struct life {
    struct list *table; /* open addressing, linear probing */
    uint64_t slots, used;
    uint32_t pass;
    life_change *change;
    void *context;
};

#define FIRST_SLOTS 1024u
#define FIRST_CAPACITY 4u
#define PRUNE_FROM 8u
#define FORGOTTEN 0u /* passes count from 1 */

struct life *life_new(life_change *change, void *context) {
    struct life *l = calloc(1, sizeof *l);
    if (!l) return NULL;
    l->table = calloc(FIRST_SLOTS, sizeof *l->table);
    l->slots = FIRST_SLOTS;
    l->pass = 1;
    l->change = change;
    l->context = context;
    if (l->table) return l;
    free(l);
    return NULL;
}

void life_delete(struct life *l) {
    if (!l) return;
    for (uint64_t i = 0; i < l->slots; i++) free(l->table[i].events);
    free(l->table);
    free(l);
}

void life_next_pass(struct life *l) {
    l->pass++;
}

uint64_t life_held(const struct life *l) {
    uint64_t n = 0;
    for (uint64_t i = 0; i < l->slots; i++) n += l->table[i].count;
    return n;
}

static void pair(struct life *l, struct event *birth, struct event *death) {
    birth->partner = death->id;
    death->partner = birth->id;
    l->change(l->context, birth->id, death->id, death->ns);
}

/* ---- forgetting -------------------------------------------------------------------------------------------------- */

/* A whole pass has begun and ended since it arrived. */
static int settled(const struct life *l, const struct event *e) {
    return e->pass + 2 <= l->pass;
}

/* Pairs go together; a death that found no birth by now will find none; a birth without a death lives. */
static void prune(const struct life *l, struct list *list) {
    uint32_t kept = 0;
    for (uint32_t i = 0, j; i < list->count; i++) {
        struct event *e = &list->events[i];
        if (!e->death || !settled(l, e)) continue;
        for (j = i; e->partner && list->events[j].id != e->partner;) j--; /* its birth stands before it */
        if (!settled(l, &list->events[j])) continue;
        list->events[j].pass = e->pass = FORGOTTEN;
    }
    for (uint32_t i = 0; i < list->count; i++)
        if (list->events[i].pass != FORGOTTEN) list->events[kept++] = list->events[i];
    list->count = kept;
    list->pruned = l->pass;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static uint64_t hash(uint64_t key) {
    key *= 0x9e3779b97f4a7c15u; /* addresses differ in their middle bits: multiply, then take the upper ones */
    return key ^ key >> 32;
}

static struct list *place(struct list *table, uint64_t slots, uint64_t key) {
    uint64_t i = hash(key) & (slots - 1);
    while (table[i].events && table[i].key != key) i = (i + 1) & (slots - 1);
    return &table[i];
}

/* A table that is three quarters full is swept; only what has not settled moves to the next one. */
static int grow(struct life *l) {
    uint64_t left = 0, slots = FIRST_SLOTS;
    for (uint64_t i = 0; i < l->slots; i++) {
        struct list *list = &l->table[i];
        if (!list->events) continue;
        prune(l, list);
        left += list->count > 0;
    }
    while (slots < 2 * left) slots *= 2;
    struct list *table = calloc(slots, sizeof *table);
    if (!table) return -1;
    for (uint64_t i = 0; i < l->slots; i++) {
        struct list *list = &l->table[i];
        if (list->count)
            *place(table, slots, list->key) = *list;
        else
            free(list->events);
    }
    free(l->table);
    l->table = table;
    l->slots = slots;
    l->used = left;
    return 0;
}

static struct list *find(struct life *l, uint64_t key) {
    if (4 * (l->used + 1) > 3 * l->slots && grow(l)) return NULL;
    struct list *list = place(l->table, l->slots, key);
    if (list->events) return list;
    list->events = malloc(FIRST_CAPACITY * sizeof *list->events);
    if (!list->events) return NULL;
    list->key = key;
    list->count = 0;
    list->capacity = FIRST_CAPACITY;
    list->pruned = l->pass;
    l->used++;
    return list;
}

/* ---- matching ---------------------------------------------------------------------------------------------------- */

static int before(const struct event *a, const struct event *b) {
    return a->ns < b->ns || (a->ns == b->ns && a->death <= b->death);
}

/* Puts *e where it belongs; its index, or -1. */
static int64_t insert(struct life *l, uint64_t key, const struct event *e, struct list **where) {
    struct list *list = *where = find(l, key);
    if (!list) return -1;
    if (list->count >= PRUNE_FROM && list->pruned != l->pass) prune(l, list);
    if (list->count == list->capacity) {
        struct event *more = realloc(list->events, 2 * list->capacity * sizeof *more);
        if (!more) return -1;
        list->events = more;
        list->capacity *= 2;
    }
    uint32_t i = list->count;
    while (i > 0 && !before(&list->events[i - 1], e)) i--;
    memmove(list->events + i + 1, list->events + i, (list->count - i) * sizeof *e);
    list->events[i] = *e;
    list->count++;
    return i;
}

/* The list's matches: ends[i] is the index of birth i's death, 0 if it has none (no death is first of its list and
 * matched). */
static void match(const struct list *list, uint32_t *stack, uint32_t *ends) {
    uint32_t depth = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        ends[i] = 0;
        if (!list->events[i].death)
            stack[depth++] = i;
        else if (depth)
            ends[stack[--depth]] = i;
    }
}

/* All of a list anew, telling what changed. */
static int match_all(struct life *l, struct list *list) {
    uint32_t *stack = malloc(2 * list->count * sizeof *stack);
    if (!stack) return -1;
    uint32_t *ends = stack + list->count;
    match(list, stack, ends);
    for (uint32_t i = 0; i < list->count; i++)
        if (list->events[i].death) list->events[i].partner = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        struct event *birth = &list->events[i], *death = &list->events[ends[i]];
        if (birth->death) continue;
        int64_t partner = ends[i] ? death->id : 0;
        if (partner) death->partner = birth->id;
        if (partner != birth->partner) l->change(l->context, birth->id, partner, partner ? death->ns : 0);
        birth->partner = partner;
    }
    free(stack);
    return 0;
}

int life_birth(struct life *l, uint64_t key, uint64_t ns, int64_t id) {
    struct event e = {.ns = ns, .id = id, .pass = l->pass};
    struct list *list;
    int64_t i = insert(l, key, &e, &list);
    if (i < 0) return -1;
    if (i + 1 == list->count) return 0; /* the usual case: the newest event of its address */
    struct event *next = &list->events[i + 1];
    if (!next->death || next->partner) return match_all(l, list);
    pair(l, &list->events[i], next); /* that death waited for a birth, so none before this one is open */
    return 0;
}

int life_death(struct life *l, uint64_t key, uint64_t ns, int64_t id) {
    struct event e = {.ns = ns, .id = id, .pass = l->pass, .death = 1};
    struct list *list;
    int64_t i = insert(l, key, &e, &list);
    if (i < 0) return -1;
    if (i > 0 && !list->events[i - 1].death && !list->events[i - 1].partner) {
        pair(l, &list->events[i - 1], &list->events[i]); /* the usual case; that birth was nobody else's */
        return 0;
    }
    return list->count > 1 ? match_all(l, list) : 0;
}
