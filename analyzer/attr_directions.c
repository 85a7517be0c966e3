/* E, M: what an argument of unknown extent or direction does. */
#include "analyzer/attr_model.h"
#include "analyzer/attr_rows.h"

#define ARGUMENTS_MOST 12 /* of a function that takes single tensors */
#define COUNT_SHIFT 26    /* number of pointers, above the number of the function */

/* Rules hold for (function, argument): a map from that pair to bits. */
enum { FRESH = 1, CLEARED = 2, IN_PLACE = 4 };

struct inference;
static int32_t function_of(const struct at_trace *t, const struct inference *f, const struct at_event *e);

static uint64_t argument(const struct at_trace *t, const struct inference *f, const struct at_event *e, int slot) {
    return at_pair(function_of(t, f, e), slot);
}

/* ---- E1: a pointer reaches over the ranges after it that only products read and nobody writes
 * ------------------------- */
static uint8_t *ranges_with_evidence(const struct at_trace *t) { /* 1 touched; 2 by more than a product's operand */
    uint8_t *seen = POOL_NEW(t->pool, uint8_t, t->ranges);
    for (int32_t i = 0; i < t->accesses; i++) {
        const struct at_access *a = &t->access[i];
        int operand = t->event[a->event].kind == AT_GEMM && !at_writes(a->mode);
        seen[a->range] |= operand ? 1 : 3;
    }
    return seen;
}

/* For each range, how many after it belong to it. */
static int32_t *followers(const struct at_trace *t, int *any) {
    uint8_t *seen = ranges_with_evidence(t);
    int32_t *follow = POOL_NEW(t->pool, int32_t, t->ranges);
    int32_t head = -1;
    *any = 0;
    for (int32_t r = 0; r < t->ranges; r++) {
        if (r && t->range[r].block != t->range[r - 1].block) head = -1;
        if (seen[r] != 1) {
            head = seen[r] ? r : -1;
        } else if (head >= 0) {
            follow[head]++;
            *any = 1;
        }
    }
    pool_give(t->pool, seen);
    return follow;
}

static int64_t with_followers(struct at_trace *t, const int32_t *follow, struct at_access *out) {
    int64_t n = 0;
    for (int32_t e = 0; e < t->events; e++) {
        struct at_event *ev = &t->event[e];
        int64_t from = n;
        for (int32_t i = 0; i < ev->accesses; i++, n++)
            if (out) out[n] = t->access[ev->access0 + i];
        for (int32_t i = 0; i < ev->accesses; i++) {
            const struct at_access *a = &t->access[ev->access0 + i];
            if (t->buffer[a->buffer].bytes >= 0) continue;
            for (int32_t j = 1; j <= follow[a->range]; j++, n++) {
                if (!out) continue;
                out[n] = *a;
                out[n].range += j;
            }
        }
        if (!out) continue;
        ev->access0 = (int32_t)from;
        ev->accesses = (int32_t)(n - from);
    }
    return n;
}

static void extend(struct at_trace *t) {
    int unknown = 0, any;
    for (int32_t i = 0; i < t->buffers && !unknown; i++) unknown = t->buffer[i].bytes < 0;
    if (!unknown) return;
    int32_t *follow = followers(t, &any);
    int64_t n = any ? with_followers(t, follow, NULL) : INT32_MAX;
    if (n < INT32_MAX) { /* else the ends of the pointers stay where they are */
        struct at_access *more = POOL_NEW(t->pool, struct at_access, n);
        with_followers(t, follow, more);
        pool_give(t->pool, t->access);
        t->access = more;
        t->accesses = (int32_t)n;
    }
    pool_give(t->pool, follow);
}

/* ---- M: directions
 * ------------------------------------------------------------------------------------------------------ */
struct inference {
    struct at_map argument;  /* (function, argument): FRESH, CLEARED, IN_PLACE */
    struct at_map pointers;  /* function: number of its pointers; -1 it varies */
    struct at_map writes;    /* functions with an output by M1 */
    struct at_map listed;    /* M5, (function, list): accesses */
    struct at_map elsewhere; /* of those, another tensor lay there before */
    struct at_map in_vain;   /* of those, writes would be in vain */
};

static void count_pointers(struct at_trace *t, struct inference *f, const struct at_event *e) {
    int fresh;
    int64_t *n = at_map_put(&f->pointers, t->pool, (uint32_t)e->name, &fresh);
    if (fresh)
        *n = e->buffers;
    else if (*n != e->buffers)
        *n = -1;
}

/* Its slots are the kernel's own parameters: that their number varies only tells that some may be null. */
static int has_parameters(const struct at_trace *t, const struct at_event *e) {
    if (e->name < ROW_KERNEL_NAME) return 0;
    for (int32_t i = e->buffer0; i < e->buffer0 + e->buffers; i++)
        if (t->buffer[i].slot < 0) return 0;
    return 1;
}

/* What stands for its function. Where pointers are counted in the order in which they are handed over, an absent one
 * moves the others up: launches with as many pointers are alike. */
static int32_t function_of(const struct at_trace *t, const struct inference *f, const struct at_event *e) {
    const int64_t *n = at_map_get(&f->pointers, (uint32_t)e->name);
    int varies = n && *n < 0 && e->lists < 2 && e->buffers <= ARGUMENTS_MOST && e->name < 1 << COUNT_SHIFT;
    return varies && !has_parameters(t, e) ? e->name | (e->buffers + 1) << COUNT_SHIFT : e->name;
}

/* Another tensor lay here when the memory was last accessed: not half of the larger one is the same. */
static int is_other_tensor(const struct at_buffer *x, const struct at_buffer *y) {
    if (x->bytes < 0 || y->bytes < 0) return 0;
    int64_t from = x->offset > y->offset ? x->offset : y->offset;
    int64_t x_end = x->offset + x->bytes, y_end = y->offset + y->bytes, to = x_end < y_end ? x_end : y_end;
    return 2 * (to - from) < (x->bytes > y->bytes ? x->bytes : y->bytes);
}

/* M5, of lists only: nothing is written in vain, so a list whose memory is overwritten next is read; and a tensor that
 * lies where another one was is written before it is read. */
static void observe_lists(struct at_trace *t, struct inference *f) {
    int32_t *other = POOL_NEW(t->pool, int32_t, t->ranges); /* the range's access before or after, + 1 */
    for (int32_t i = 0; i < t->accesses; i++) {
        const struct at_access *a = &t->access[i];
        const struct at_event *ev = &t->event[a->event];
        int32_t last = other[a->range] - 1;
        other[a->range] = i + 1;
        if (!ev->lists || a->mode != AT_MAYBE) continue;
        ++*at_map_put(&f->listed, t->pool, argument(t, f, ev, at_slot_of(t, a)), NULL);
        if (last < 0 || !is_other_tensor(&t->buffer[a->buffer], &t->buffer[t->access[last].buffer])) continue;
        ++*at_map_put(&f->elsewhere, t->pool, argument(t, f, ev, at_slot_of(t, a)), NULL);
    }
    for (int32_t i = 0; i < t->accesses; i++) {
        const struct at_access *a = &t->access[i];
        const struct at_event *ev = &t->event[a->event];
        if (!ev->lists || a->mode != AT_MAYBE) continue;
        const int64_t *elsewhere = at_map_get(&f->elsewhere, argument(t, f, ev, at_slot_of(t, a)));
        if (!elsewhere || 4 * *elsewhere < *at_map_get(&f->listed, argument(t, f, ev, at_slot_of(t, a)))) continue;
        *at_map_put(&f->argument, t->pool, argument(t, f, ev, at_slot_of(t, a)), NULL) |= FRESH;
        at_map_put(&f->writes, t->pool, (uint32_t)function_of(t, f, ev), NULL);
    }
    for (int32_t r = 0; r < t->ranges; r++) other[r] = 0;
    for (int32_t i = t->accesses - 1; i >= 0; i--) {
        const struct at_access *a = &t->access[i];
        const struct at_event *ev = &t->event[a->event];
        int32_t next = other[a->range] - 1;
        other[a->range] = i + 1;
        if (!ev->lists || a->mode != AT_MAYBE || next < 0) continue;
        *at_map_put(&f->in_vain, t->pool, argument(t, f, ev, at_slot_of(t, a)), NULL) += t->access[next].mode == AT_W;
    }
    pool_give(t->pool, other);
}

/* The launch is handed the same memory through an argument that is only read, too. */
static int is_read_beside(const struct at_trace *t, const struct at_access *a) {
    const struct at_event *ev = &t->event[a->event];
    const struct at_buffer *u = &t->buffer[a->buffer];
    if (ev->buffers > ARGUMENTS_MOST) return 0; /* lists of tensors */
    for (int32_t i = ev->buffer0; i < ev->buffer0 + ev->buffers; i++) {
        const struct at_buffer *v = &t->buffer[i];
        if (v->mode == AT_R && v->block == u->block && v->offset == u->offset) return 1;
    }
    return 0;
}

/* M1, M2: arguments that name memory which nobody has written yet, or which was just cleared. M6: where a launch works
 * in place because it is handed its operand as its result too, that tells nothing of other launches; and the argument
 * is no operand itself. */
static void observe(struct at_trace *t, struct inference *f) {
    uint8_t *state = POOL_NEW(t->pool, uint8_t, t->ranges); /* 1 written; 2 cleared last */
    for (int32_t e = 0; e < t->events; e++)
        if (t->event[e].kind == AT_KERNEL) count_pointers(t, f, &t->event[e]);
    for (int32_t e = 0; e < t->events; e++) {
        const struct at_event *ev = &t->event[e];
        if (ev->kind == AT_KERNEL) {
            AT_EACH_ACCESS(t, e, a) {
                if (a->mode != AT_MAYBE) continue;
                int what = is_read_beside(t, a)     ? IN_PLACE
                           : !(state[a->range] & 1) ? FRESH
                           : state[a->range] & 2    ? CLEARED
                                                    : 0;
                if (what) *at_map_put(&f->argument, t->pool, argument(t, f, ev, at_slot_of(t, a)), NULL) |= what;
                if (what == FRESH) at_map_put(&f->writes, t->pool, (uint32_t)function_of(t, f, ev), NULL);
            }
        }
        AT_EACH_ACCESS(t, e, a)
        if (at_writes(a->mode)) state[a->range] = ev->kind == AT_MEMSET ? 3 : 1;
    }
    pool_give(t->pool, state);
}

static int infer(const struct at_trace *t, const struct inference *f, const struct at_event *e, int slot) {
    const int64_t *what = at_map_get(&f->argument, argument(t, f, e, slot));
    if (what && *what & CLEARED) return AT_RW;
    if (what && *what & (FRESH | IN_PLACE)) return AT_W;
    return at_map_has(&f->writes, (uint32_t)function_of(t, f, e)) ? AT_R : AT_MAYBE;
}

/* A list is read if writes to it would mostly be in vain. */
static int infer_list(const struct at_trace *t, const struct inference *f, const struct at_event *e, int slot) {
    int mode = infer(t, f, e, slot);
    const int64_t *all = at_map_get(&f->listed, argument(t, f, e, slot)),
                  *vain = at_map_get(&f->in_vain, argument(t, f, e, slot));
    return mode == AT_MAYBE && all && vain && 2 * *vain > *all ? AT_R : mode;
}

/* What one argument shows holds for all launches of the function. */
static int takes_single_tensors(const struct at_trace *t, const struct inference *f, const struct at_event *e) {
    if (e->lists > 1 || e->buffers > ARGUMENTS_MOST) return 0;
    return *at_map_get(&f->pointers, (uint32_t)e->name) >= 0 || has_parameters(t, e) || function_of(t, f, e) != e->name;
}

/* A launch's pointers of which nothing is told, and others. */
struct told {
    int unknown, known;
};

static struct told what_is_told(const struct at_trace *t, int32_t e) {
    struct told x = {0};
    AT_EACH_ACCESS(t, e, a) {
        x.unknown |= a->mode == AT_MAYBE;
        x.known |= a->mode != AT_MAYBE;
    }
    return x;
}

/* M7: const tells what a kernel only reads, so that it writes through its other pointers: if not anew, then in place.
 */
static int direction(const struct at_trace *t, const struct inference *f, const struct at_access *a, int known) {
    if (is_read_beside(t, a)) return AT_RW;
    int mode = infer(t, f, &t->event[a->event], at_slot_of(t, a));
    return mode == AT_R && known ? AT_RW : mode;
}

static void settle(struct at_trace *t, const struct inference *f, int32_t e, struct told told) {
    const struct at_event *ev = &t->event[e];
    int lists = ev->lists > 1, single = told.unknown && takes_single_tensors(t, f, ev);
    if (!lists && !single) return;
    for (int32_t i = ev->access0; i < ev->access0 + ev->accesses; i++) {
        struct at_access *a = &t->access[i];
        if (a->mode != AT_MAYBE) continue;
        a->mode = (int8_t)(lists ? infer_list(t, f, ev, at_slot_of(t, a)) : direction(t, f, a, told.known));
    }
}

void at_directions(struct at_trace *t) {
    extend(t);
    struct inference f = {0};
    observe(t, &f);
    observe_lists(t, &f);
    int64_t kernels = 0, blind = 0, dark = 0;
    for (int32_t e = 0; e < t->events; e++) {
        if (t->event[e].kind != AT_KERNEL) continue;
        struct told told = what_is_told(t, e);
        kernels++;
        blind += told.unknown;
        dark += told.unknown && !told.known && t->event[e].buffers > 1; /* an only pointer is written through */
        settle(t, &f, e, told);
    }
    t->blind = 2 * blind > kernels;
    t->dark = t->blind && 8 * dark > kernels;
    t->guessed = kernels ? (double)blind / (double)kernels : 0;
}
