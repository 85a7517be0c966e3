#include "trace/collect_life.h"

#include <stdlib.h>
#include <string.h>

struct event {
    uint64_t ns;
    int64_t id;
    uint32_t pass; /* in which it arrived */
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

/* ---- forgetting -------------------------------------------------------------------------------------------------- */

/* A whole pass has begun and ended since it arrived. */
static int settled(const struct life *l, const struct event *e) {
    return e->pass + 2 <= l->pass;
}

/* A birth goes when what ended it is settled too; a death with the birth that it ended. */
static void prune(const struct life *l, struct list *list) {
    uint32_t kept = 0;
    int needed = 0; /* the event before is a birth that stays, so that its end must stay */
    for (uint32_t i = 0; i < list->count; i++) {
        const struct event *e = &list->events[i];
        int last = i + 1 == list->count;
        int final = e->death ? !needed : !last && settled(l, e + 1);
        needed = !e->death && !(settled(l, e) && final);
        if (!settled(l, e) || !final) list->events[kept++] = *e;
    }
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

/* The end of event i, if that is a birth, is the event after it. */
static void tell_end(struct life *l, const struct list *list, int64_t i) {
    const struct event *e = &list->events[i], *next = i + 1 < (int64_t)list->count ? e + 1 : NULL;
    if (!e->death) l->change(l->context, e->id, next && next->death ? next->id : 0, next ? next->ns : 0);
}

static int add(struct life *l, uint64_t key, const struct event *e) {
    struct list *list;
    int64_t i = insert(l, key, e, &list);
    if (i < 0) return -1;
    if (i > 0) tell_end(l, list, i - 1);
    if (i + 1 < (int64_t)list->count) tell_end(l, list, i);
    return 0;
}

int life_birth(struct life *l, uint64_t key, uint64_t ns, int64_t id) {
    return add(l, key, &(struct event){.ns = ns, .id = id, .pass = l->pass});
}

int life_death(struct life *l, uint64_t key, uint64_t ns, int64_t id) {
    return add(l, key, &(struct event){.ns = ns, .id = id, .pass = l->pass, .death = 1});
}
