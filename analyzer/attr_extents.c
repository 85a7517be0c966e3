/* E2: how far the pointers of a list reach. A launch over lists of tensors (all parameters, all their gradients, all
 * their first moments …) names p1 … pn, then g1 … gn, and so on: lists run parallel, so the k-th pointers of all lists
 * reach as far, up to the width of an element. Else a pointer of unknown extent reaches as far as the access from the
 * same address that is nearest in time did. */
#include "analyzer/attr_model.h"

#include <math.h>
#include <stdlib.h>

#define LIST_LEAST 4 /* pointers of a launch that may be lists */
#define LISTS_MOST 8
#define COLUMNS_LEAST 3   /* of a launch over few tensors */
#define ARGUMENTS_MOST 12 /* of a function that takes single tensors */

/* What is known of the memory that begins at one place. */
struct extent {
    int64_t bytes;
    int32_t event; /* that told it, last */
};

/* How often pointers k of two lists were both known, and reached as far. */
struct agreement {
    int32_t known[LISTS_MOST][LISTS_MOST], same[LISTS_MOST][LISTS_MOST];
    int32_t columns; /* k, over all launches */
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

static void note_column(const struct lists *l, const struct at_buffer *u, int32_t n, int32_t lists,
                        struct agreement *g) {
    int64_t bytes[LISTS_MOST];
    g->columns++;
    for (int32_t i = 0; i < lists; i++) {
        const struct extent *x = extent_of(l, &u[i * n]);
        bytes[i] = x ? x->bytes : 0;
        for (int32_t j = 0; j < i && bytes[i]; j++) {
            g->known[i][j] += bytes[j] > 0;
            g->same[i][j] += bytes[j] > 0 && at_same_count(bytes[i], bytes[j]);
        }
    }
}

static void note_launch(struct lists *l, const struct at_event *e) {
    const struct at_buffer *u = l->t->buffer + e->buffer0;
    int64_t stride = *at_map_get(&l->stride, (uint32_t)e->name);
    for (int32_t lists = 2; lists <= LISTS_MOST && lists <= stride; lists++) {
        if (stride % lists) continue;
        struct agreement *g = agreement_of(l, e->name, lists);
        int32_t n = e->buffers / lists;
        for (int32_t k = 0; k < n; k++) note_column(l, u + k, n, lists, g);
    }
}

/* More than half of the lists go with one of them, nearly always. (The rest may be scratch, which lies where other
 * tensors were. Where the halves of lists are taken for lists, no more than half go together.) */
static int go_together(const struct agreement *g, int32_t lists) {
    for (int32_t i = 0; i < lists; i++) {
        int with = 1;
        for (int32_t j = 0; j < lists; j++) {
            int32_t known = i > j ? g->known[i][j] : g->known[j][i], same = i > j ? g->same[i][j] : g->same[j][i];
            with += i != j && known && same >= 0.9 * known;
        }
        if (2 * with > lists) return 1;
    }
    return 0;
}

/* The most lists that go together; 1: none. */
static int32_t lists_of(const struct lists *l, const struct at_event *e) {
    int64_t stride = *at_map_get(&l->stride, (uint32_t)e->name);
    int32_t best = 1;
    if (e->buffers < LIST_LEAST) return 1;
    for (int32_t lists = 2; lists <= LISTS_MOST && lists <= stride; lists++) {
        const int64_t *at = at_map_get(&l->agreement, at_pair(e->name, lists));
        if (!(stride % lists) && at && go_together(&l->count[*at - 1], lists)) best = lists;
    }
    return best;
}

/* All columns of all lists are known, and all go together. */
static int all_go_together(const struct lists *l, const struct at_event *e, int32_t lists) {
    const int64_t *at = at_map_get(&l->agreement, at_pair(e->name, lists));
    for (int32_t i = 1; i < lists && at; i++) {
        const struct agreement *g = &l->count[*at - 1];
        for (int32_t j = 0; j < i; j++)
            if (g->same[i][j] < 0.9 * g->columns) return 0;
    }
    return at != NULL;
}

/* A launch over few tensors, always as many, is one of lists if at least three columns agree. */
static int takes_lists(const struct lists *l, const struct at_event *e) {
    if (!is_unknown_launch(l->t, e)) return 0;
    if (at_map_has(&l->varies, (uint32_t)e->name)) return 1;
    int32_t lists = lists_of(l, e);
    return lists > 1 && e->buffers >= COLUMNS_LEAST * lists && all_go_together(l, e, lists);
}

/* ---- extents
 * ------------------------------------------------------------------------------------------------------------ */
static void settle_buffer(const struct at_trace *t, struct at_buffer *u, int64_t bytes) {
    if (bytes > 0 && bytes <= t->block[u->block].bytes - u->offset) u->bytes = bytes, u->guessed = 1;
}

/* A launch's lists, of n pointers each. */
struct launch {
    struct at_buffer *u;
    int32_t n, lists;
};

static double distance(const struct extent *x, int32_t event) {
    return x ? abs(x->event - event) : 1e9;
}

/* The list whose pointers are accessed nearest in time: what is known of them is of the same tensors. */
static int32_t best_list(const struct lists *l, const struct launch *c) {
    int32_t best = 0;
    double least = 0;
    for (int32_t i = 0; i < c->lists; i++) {
        double d = 0;
        for (int32_t k = 0; k < c->n; k++) d += distance(extent_of(l, &c->u[i * c->n + k]), c->u->event);
        if (i && d >= least) continue;
        least = d;
        best = i;
    }
    return best;
}

/* Width of an element of list i in those of the list `best`: the ratio that most pairs have. */
static double width_of(const struct lists *l, const struct launch *c, int32_t i, int32_t best) {
    static const double ratio[] = {1, 0.5, 2, 0.25, 4};
    int32_t votes[5] = {0}, top = 0;
    for (int32_t k = 0; k < c->n; k++) {
        const struct extent *x = extent_of(l, &c->u[i * c->n + k]), *y = extent_of(l, &c->u[best * c->n + k]);
        for (int r = 0; r < 5 && x && y; r++)
            votes[r] += fabs((double)x->bytes / (double)y->bytes / ratio[r] - 1) < 0.1;
    }
    for (int r = 1; r < 5; r++)
        if (votes[r] > votes[top]) top = r;
    return ratio[top];
}

/* Bytes of column k in the list `best`; another list tells where nothing is known of that one. 0: unknown. */
static double bytes_of(const struct lists *l, const struct launch *c, int32_t k, int32_t best, const double *width) {
    const struct extent *x = extent_of(l, &c->u[best * c->n + k]), *near = NULL;
    double bytes = 0;
    if (x) return (double)x->bytes;
    for (int32_t i = 0; i < c->lists; i++) {
        x = extent_of(l, &c->u[i * c->n + k]);
        if (!x || distance(x, c->u->event) >= distance(near, c->u->event)) continue;
        near = x;
        bytes = (double)x->bytes / width[i];
    }
    return bytes;
}

static void settle_launch(const struct lists *l, const struct launch *c) {
    double width[LISTS_MOST];
    int32_t best = best_list(l, c);
    for (int32_t i = 0; i < c->lists; i++) width[i] = width_of(l, c, i, best);
    for (int32_t k = 0; k < c->n; k++) {
        double bytes = bytes_of(l, c, k, best, width);
        for (int32_t i = 0; i < c->lists && bytes > 0; i++) {
            const struct extent *own = extent_of(l, &c->u[i * c->n + k]);
            double want = bytes * width[i];
            int fits = own && fabs((double)own->bytes / want - 1) < 0.1; /* padding */
            settle_buffer(l->t, &c->u[i * c->n + k], fits ? own->bytes : (int64_t)want);
        }
    }
}

/* The slot of a pointer becomes the number of its list: what one of a list is for, all are. */
static void name_lists(const struct at_trace *t, struct at_event *e, int32_t lists) {
    e->lists = (int8_t)lists;
    for (int32_t i = 0; i < e->buffers; i++) t->buffer[e->buffer0 + i].slot = (int16_t)(i / (e->buffers / lists));
}

static void settle_lists(struct lists *l) {
    const struct at_trace *t = l->t;
    for (int32_t e = 0; e < t->events; e++) {
        const struct at_event *ev = &t->event[e];
        int32_t lists = takes_lists(l, ev) ? lists_of(l, ev) : 1;
        if (lists > 1) settle_launch(l, &(struct launch){t->buffer + ev->buffer0, ev->buffers / lists, lists});
        if (takes_lists(l, ev) && (lists > 1 || ev->buffers > ARGUMENTS_MOST)) name_lists(t, &t->event[e], lists);
        learn_event(l, ev);
    }
}

/* What the first sweep could not pair (a list of scratch that lies where other tensors were) may agree with what comes
 * after it. */
static void settle_lists_backward(struct lists *l, int settle) {
    const struct at_trace *t = l->t;
    forget(l);
    for (int32_t e = t->events - 1; e >= 0; e--) {
        struct at_event *ev = &t->event[e];
        int unknown = is_unknown_launch(t, ev);
        if (unknown && !settle) note_launch(l, ev);
        int32_t lists = unknown && settle && takes_lists(l, ev) ? lists_of(l, ev) : 1;
        if (lists > 1) settle_launch(l, &(struct launch){t->buffer + ev->buffer0, ev->buffers / lists, lists});
        if (lists > 1) name_lists(t, ev, lists);
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

/* A sweep that costs little: is there a function that may take lists? */
static int any_lists(struct lists *l) {
    const struct at_trace *t = l->t;
    int any = 0;
    for (int32_t e = 0; e < t->events; e++) {
        const struct at_event *ev = &t->event[e];
        if (!is_unknown_launch(t, ev)) continue;
        int64_t *stride = at_map_put(&l->stride, t->pool, (uint32_t)ev->name, NULL);
        if ((*stride && *stride != ev->buffers) || ev->buffers > ARGUMENTS_MOST)
            at_map_put(&l->varies, t->pool, (uint32_t)ev->name, NULL);
        *stride = divisor(ev->buffers, *stride);
        any |= ev->buffers >= COLUMNS_LEAST * 2;
    }
    return any || l->varies.count;
}

void at_extents(struct at_trace *t) {
    struct lists l = {.t = t};
    if (!any_lists(&l)) return;
    for (int32_t e = 0; e < t->events; e++) {
        const struct at_event *ev = &t->event[e];
        if (is_unknown_launch(t, ev)) note_launch(&l, ev);
        learn_event(&l, ev);
    }
    forget(&l);
    settle_lists(&l);
    l.agreement = (struct at_map){0};
    settle_lists_backward(&l, 0);
    settle_lists_backward(&l, 1);
    forget(&l);
    note_before(&l);
    forget(&l);
    settle_nearest(&l);
    pool_give(t->pool, l.before);
}
