/* E2: how far the pointers of a list reach. A launch over lists of tensors (all parameters, all their gradients, all
 * their first moments …) names p1 … pn, then g1 … gn, and so on: lists run parallel, so the k-th pointers of all lists
 * reach as far, up to the width of an element. Else a pointer of unknown extent reaches as far as the access from the
 * same address that is nearest in time did. */
#include "analyzer/attr_model.h"

#define LIST_LEAST 4 /* pointers of a launch that may be lists */
#define LISTS_MOST 8
#define ARGUMENTS_MOST 12 /* of a function that takes single tensors */

/* What is known of the memory that begins at one place. */
struct extent {
    int64_t bytes;
    int32_t event; /* that told it, last */
};

struct agreement {
    int64_t columns, agree; /* with two known extents; of which two are the same */
};

struct lists {
    struct at_trace *t;
    struct at_map place; /* (block, offset), hashed: place in extent + 1 */
    struct extent *extent;
    int32_t extents, extent_room;
    struct at_map stride;    /* function: greatest common divisor of its numbers of pointers */
    struct at_map varies;    /* functions that take lists: the number of pointers varies, or is large */
    struct at_map agreement; /* (function, lists): place in count + 1 */
    struct agreement *count;
    int32_t counts, count_room;
    struct extent *before; /* per buffer of an unknown extent: the nearest access before it */
};

static uint64_t place_of(const struct at_buffer *u) {
    return at_mix((uint64_t)u->block + 1) ^ (uint64_t)u->offset;
}

/* A kernel of whose pointers nothing is known. */
static int is_unknown_launch(const struct at_trace *t, const struct at_event *e) {
    if (e->kind != AT_KERNEL || e->buffers < 1) return 0;
    for (int32_t i = e->buffer0; i < e->buffer0 + e->buffers; i++)
        if (t->buffer[i].bytes >= 0 || t->buffer[i].mode != AT_MAYBE) return 0;
    return 1;
}

static int takes_lists(const struct lists *l, const struct at_event *e) {
    return is_unknown_launch(l->t, e) && at_map_has(&l->varies, (uint32_t)e->name);
}

static const struct extent *extent_of(const struct lists *l, const struct at_buffer *u) {
    const int64_t *at = at_map_get(&l->place, place_of(u));
    return at ? &l->extent[*at - 1] : NULL;
}

static void learn(struct lists *l, const struct at_buffer *u) {
    if (u->bytes <= 0) return;
    int64_t *at = at_map_put(&l->place, l->t->pool, place_of(u), NULL);
    if (!*at) {
        POOL_ROOM(l->t->pool, l->extent, l->extents, l->extent_room);
        *at = ++l->extents;
    }
    l->extent[*at - 1] = (struct extent){u->bytes, u->event};
}

static void learn_event(struct lists *l, const struct at_event *e) {
    if (at_is_op(e))
        for (int32_t i = e->buffer0; i < e->buffer0 + e->buffers; i++) learn(l, &l->t->buffer[i]);
}

static void forget(struct lists *l) {
    l->place = (struct at_map){0};
    l->extents = 0;
}

/* ---- how many lists a function takes
 * ------------------------------------------------------------------------------------ */
static int64_t divisor(int64_t a, int64_t b) {
    while (b) {
        int64_t c = a % b;
        a = b;
        b = c;
    }
    return a;
}

static struct agreement *agreement_of(struct lists *l, int32_t name, int32_t lists) {
    int64_t *at = at_map_put(&l->agreement, l->t->pool, at_pair(name, lists), NULL);
    if (!*at) {
        POOL_ROOM(l->t->pool, l->count, l->counts, l->count_room);
        l->count[l->counts++] = (struct agreement){0};
        *at = l->counts;
    }
    return &l->count[*at - 1];
}

/* Some two of the k-th pointers reach as far. 1, 0, or -1: fewer than two are known. */
static int column_agrees(const struct lists *l, const struct at_buffer *u, int32_t n, int32_t lists) {
    int64_t bytes[LISTS_MOST];
    int known = 0;
    for (int32_t i = 0; i < lists; i++) {
        const struct extent *x = extent_of(l, &u[i * n]);
        if (!x) continue;
        for (int j = 0; j < known; j++)
            if (at_same_count(x->bytes, bytes[j])) return 1;
        bytes[known++] = x->bytes;
    }
    return known < 2 ? -1 : 0;
}

static void note_launch(struct lists *l, const struct at_event *e) {
    const struct at_buffer *u = l->t->buffer + e->buffer0;
    int64_t *stride = at_map_put(&l->stride, l->t->pool, (uint32_t)e->name, NULL);
    if ((*stride && *stride != e->buffers) || e->buffers > ARGUMENTS_MOST)
        at_map_put(&l->varies, l->t->pool, (uint32_t)e->name, NULL);
    *stride = divisor(e->buffers, *stride);
    for (int32_t lists = 2; lists <= LISTS_MOST && lists <= *stride; lists++) {
        if (*stride % lists) continue;
        struct agreement *g = agreement_of(l, e->name, lists);
        int32_t n = e->buffers / lists;
        for (int32_t k = 0; k < n; k++) {
            int agrees = column_agrees(l, u + k, n, lists);
            g->columns += agrees >= 0;
            g->agree += agrees > 0;
        }
    }
}

/* The most lists of which nearly all columns agree; 1: none. */
static int32_t lists_of(const struct lists *l, const struct at_event *e) {
    int64_t stride = *at_map_get(&l->stride, (uint32_t)e->name);
    int32_t best = 1;
    if (e->buffers < LIST_LEAST) return 1;
    for (int32_t lists = 2; lists <= LISTS_MOST && lists <= stride; lists++) {
        const int64_t *at = at_map_get(&l->agreement, at_pair(e->name, lists));
        if (stride % lists || !at) continue;
        const struct agreement *g = &l->count[*at - 1];
        if (g->columns && (double)g->agree >= 0.9 * (double)g->columns) best = lists;
    }
    return best;
}

/* ---- extents
 * ------------------------------------------------------------------------------------------------------------ */
static void settle_buffer(const struct at_trace *t, struct at_buffer *u, int64_t bytes) {
    if (bytes > 0 && bytes <= t->block[u->block].bytes - u->offset) u->bytes = bytes;
}

/* Of the k-th pointers, the one that was accessed last tells. */
static void settle_column(const struct lists *l, struct at_buffer *u, int32_t n, int32_t lists) {
    const struct extent *last = NULL;
    for (int32_t i = 0; i < lists; i++) {
        const struct extent *x = extent_of(l, &u[i * n]);
        if (x && (!last || x->event > last->event)) last = x;
    }
    for (int32_t i = 0; i < lists && last; i++) {
        const struct extent *own = extent_of(l, &u[i * n]);
        settle_buffer(l->t, &u[i * n], own && at_same_count(own->bytes, last->bytes) ? own->bytes : last->bytes);
    }
}

static void settle_lists(struct lists *l) {
    const struct at_trace *t = l->t;
    for (int32_t e = 0; e < t->events; e++) {
        const struct at_event *ev = &t->event[e];
        int32_t lists = takes_lists(l, ev) ? lists_of(l, ev) : 1;
        for (int32_t k = 0, n = ev->buffers / lists; lists > 1 && k < n; k++)
            settle_column(l, t->buffer + ev->buffer0 + k, n, lists);
        learn_event(l, ev);
    }
}

static void note_before(struct lists *l) {
    const struct at_trace *t = l->t;
    l->before = POOL_NEW(t->pool, struct extent, t->buffers);
    for (int32_t e = 0; e < t->events; e++) {
        const struct at_event *ev = &t->event[e];
        for (int32_t i = ev->buffer0; i < ev->buffer0 + ev->buffers && takes_lists(l, ev); i++) {
            const struct extent *x = extent_of(l, &t->buffer[i]);
            if (x) l->before[i] = *x;
        }
        learn_event(l, ev);
    }
}

static void settle_nearest(struct lists *l) {
    const struct at_trace *t = l->t;
    for (int32_t e = t->events - 1; e >= 0; e--) {
        const struct at_event *ev = &t->event[e];
        int unknown = takes_lists(l, ev);
        if (!unknown) learn_event(l, ev);
        for (int32_t i = ev->buffer0; i < ev->buffer0 + ev->buffers && unknown; i++) {
            const struct extent *after = extent_of(l, &t->buffer[i]), *before = &l->before[i];
            if (after && (!before->bytes || after->event - e < e - before->event)) before = after;
            settle_buffer(t, &t->buffer[i], before->bytes);
        }
    }
}

void at_extents(struct at_trace *t) {
    struct lists l = {.t = t};
    for (int32_t e = 0; e < t->events; e++) {
        const struct at_event *ev = &t->event[e];
        if (is_unknown_launch(t, ev)) note_launch(&l, ev);
        learn_event(&l, ev);
    }
    if (!l.varies.count) return;
    forget(&l);
    settle_lists(&l);
    forget(&l);
    note_before(&l);
    forget(&l);
    settle_nearest(&l);
    pool_give(t->pool, l.before);
}
