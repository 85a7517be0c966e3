/* Judges objects: which pattern each one shows, how much that wastes, and which findings are alike. */
#include "analyzer/patterns.h"

#include <stdlib.h>
#include <string.h>

static const char *const names[PATTERNS] = {
    [PATTERN_LEAK] = "never released",
    [PATTERN_UNUSED] = "unused allocation",
    [PATTERN_REDUNDANT] = "redundant allocation",
    [PATTERN_EARLY] = "early allocation",
    [PATTERN_LATE] = "late release",
    [PATTERN_IDLE] = "temporary idleness",
    [PATTERN_VACANT] = "vacant between uses",
    [PATTERN_DEAD_WRITE] = "dead write",
};

const char *pattern_name(enum pattern_kind kind) {
    return names[kind];
}

/* A link of PCI Express 4.0 x16, in round figures: 25 GB/s a direction. */
struct pattern_options pattern_defaults(void) {
    return (struct pattern_options){.min_share = 0.001, .min_gap_ns = 1000000, .link_bytes_per_s = 25e9};
}

/* ---- findings of single objects ---- */

struct judge {
    const struct pattern_objects *s;
    struct pattern_finding *finding;
    int64_t findings;
};

static struct pattern_finding *add(struct judge *j, enum pattern_kind kind, const struct pattern_object *o,
                                   int64_t ns) {
    if (ns <= 0) return NULL;
    j->finding = report_grow(j->finding, j->findings, sizeof *j->finding);
    struct pattern_finding *f = &j->finding[j->findings++];
    *f = (struct pattern_finding){.kind = kind,
                                  .objects = 1,
                                  .bytes = o->bytes,
                                  .byte_ns = (__int128)o->bytes * ns,
                                  .alloc = o->alloc,
                                  .offset = o->offset,
                                  .longest_ns = ns,
                                  .api = o->api,
                                  .stack = o->stack};
    memcpy(f->class_name, o->class_name, sizeof f->class_name);
    return f;
}

/* A span of an object's life, between two times and the ops there. */
static void add_span(struct judge *j, enum pattern_kind kind, const struct pattern_object *o, int64_t from, int64_t to,
                     int64_t before, int64_t after) {
    struct pattern_finding *f = add(j, kind, o, to - from);
    if (!f) return;
    f->before_op = before;
    f->after_op = after;
    f->unsure = pattern_unseen_between(j->s, from, to);
}

static void add_gaps(struct judge *j, enum pattern_kind kind, const struct pattern_object *o,
                     const struct pattern_gaps *g) {
    struct pattern_finding *f = add(j, kind, o, g->total_ns);
    if (!f) return;
    f->times = g->n;
    f->longest_ns = g->longest_ns;
    f->before_op = g->before_op;
    f->after_op = g->after_op;
    f->unsure = !g->sure;
}

static void judge_object(struct judge *j, const struct pattern_object *o) {
    if (!o->accesses) {
        add_span(j, PATTERN_UNUSED, o, o->born_ns, o->gone_ns, 0, 0);
        return;
    }
    add_span(j, PATTERN_EARLY, o, o->born_ns, o->first_ns, 0, o->first_op);
    add_span(j, o->released ? PATTERN_LATE : PATTERN_LEAK, o, o->last_ns, o->gone_ns, o->last_op, 0);
    add_gaps(j, PATTERN_IDLE, o, &o->idle);
    add_gaps(j, PATTERN_VACANT, o, &o->vacant);
    struct pattern_finding *f = o->dead_writes ? add(j, PATTERN_DEAD_WRITE, o, 1) : NULL;
    if (!f) return;
    f->byte_ns = o->dead_byte_ns;
    f->times = o->dead_writes;
    f->longest_ns = o->dead_longest_ns;
    f->before_op = o->dead_before;
    f->after_op = o->dead_after;
}

/* ---- redundant allocations ---- */

struct moment { /* an object is used for the last time, or for the first */
    int64_t ns, object;
    int first;
};

static int by_moment(const void *x, const void *y) {
    const struct moment *a = x, *b = y;
    if (a->ns != b->ns) return a->ns < b->ns ? -1 : 1;
    if (a->first != b->first) return a->first - b->first;
    return (a->object > b->object) - (a->object < b->object);
}

static int by_number(const void *x, const void *y) {
    const int64_t *a = x, *b = y;
    return (*a > *b) - (*a < *b);
}

/* Allocations used for the last time and still held, a stack for each size. */
struct done {
    int64_t *size, sizes;
    int64_t *top;  /* by size: object, -1 */
    int64_t *next; /* by object: the one below */
};

/* One that is at most a tenth larger, taken out; -1. */
static int64_t take_done(const struct pattern_objects *s, struct done *d, const struct pattern_object *need) {
    enum { MOST_SIZES = 64 };
    int64_t from = pattern_first_from(d->size, d->sizes, need->bytes);
    for (int64_t i = from; i < d->sizes && i < from + MOST_SIZES && d->size[i] <= need->bytes + need->bytes / 10; i++)
        while (d->top[i] >= 0) {
            int64_t object = d->top[i];
            d->top[i] = d->next[object];
            if (s->object[object].gone_ns > need->first_ns) return object;
        }
    return -1;
}

static void judge_pair(struct judge *j, const struct pattern_object *need, const struct pattern_object *have) {
    int64_t until = have->gone_ns < need->gone_ns ? have->gone_ns : need->gone_ns;
    struct pattern_finding *f = add(j, PATTERN_REDUNDANT, need, until - need->first_ns);
    if (!f) return;
    f->before_op = have->last_op;
    f->after_op = need->first_op;
    f->other = have->alloc;
    f->unsure = pattern_unseen_between(j->s, have->last_ns, have->gone_ns);
}

static void judge_redundant(struct judge *j) {
    const struct pattern_objects *s = j->s;
    struct moment *m = NULL;
    struct done d = {0};
    int64_t n = 0, distinct = 0;
    for (int64_t i = 0; i < s->objects; i++) {
        const struct pattern_object *o = &s->object[i];
        if (!o->whole || !o->accesses) continue;
        m = report_grow(m, n, sizeof *m);
        m[n++] = (struct moment){o->last_ns, i, 0};
        m = report_grow(m, n, sizeof *m);
        m[n++] = (struct moment){o->first_ns, i, 1};
        d.size = report_grow(d.size, d.sizes, sizeof *d.size);
        d.size[d.sizes++] = o->bytes;
    }
    if (!n) return;
    qsort(m, (size_t)n, sizeof *m, by_moment);
    qsort(d.size, (size_t)d.sizes, sizeof *d.size, by_number);
    for (int64_t i = 0; i < d.sizes; i++)
        if (!i || d.size[i] != d.size[distinct - 1]) d.size[distinct++] = d.size[i];
    d.sizes = distinct;
    for (int64_t i = 0; i < d.sizes; i++) {
        d.top = report_grow(d.top, i, sizeof *d.top);
        d.top[i] = -1;
    }
    for (int64_t i = 0; i < s->objects; i++) {
        d.next = report_grow(d.next, i, sizeof *d.next);
        d.next[i] = -1;
    }
    for (int64_t i = 0; i < n; i++) {
        const struct pattern_object *o = &s->object[m[i].object];
        int64_t at = pattern_first_from(d.size, d.sizes, o->bytes), have;
        if (!m[i].first) {
            d.next[m[i].object] = d.top[at];
            d.top[at] = m[i].object;
        } else if ((have = take_done(s, &d, o)) >= 0) {
            judge_pair(j, o, &s->object[have]);
        }
    }
    free(m);
    free(d.size);
    free(d.top);
    free(d.next);
}

/* ---- findings that are alike ---- */

static int by_likeness(const void *x, const void *y) {
    const struct pattern_finding *a = x, *b = y;
    int c;
    if (a->kind != b->kind) return (int)a->kind - (int)b->kind;
    if (a->bytes != b->bytes) return a->bytes < b->bytes ? -1 : 1;
    if ((c = strcmp(a->class_name, b->class_name))) return c;
    if (a->api != b->api) return a->api < b->api ? -1 : 1;
    if (a->stack != b->stack) return a->stack < b->stack ? -1 : 1;
    return 0;
}

/* The one with the greatest waste comes first, so that it is the example; ties by age. */
static int by_likeness_then_waste(const void *x, const void *y) {
    const struct pattern_finding *a = x, *b = y;
    int c = by_likeness(x, y);
    if (c) return c;
    if (a->byte_ns != b->byte_ns) return a->byte_ns > b->byte_ns ? -1 : 1;
    if (a->alloc != b->alloc) return a->alloc < b->alloc ? -1 : 1;
    return (a->offset > b->offset) - (a->offset < b->offset);
}

static int by_waste(const void *x, const void *y) {
    const struct pattern_finding *a = x, *b = y;
    if (a->byte_ns != b->byte_ns) return a->byte_ns > b->byte_ns ? -1 : 1;
    return by_likeness_then_waste(x, y);
}

static void join_alike(struct patterns *p, const struct pattern_options *o) {
    int64_t n = 0, kept = 0;
    if (!p->findings) return;
    qsort(p->finding, (size_t)p->findings, sizeof *p->finding, by_likeness_then_waste);
    for (int64_t i = 0; i < p->findings; i++) {
        struct pattern_finding *last = n ? &p->finding[n - 1] : NULL, f = p->finding[i];
        if (!last || by_likeness(last, &f)) {
            p->finding[n++] = f;
            continue;
        }
        last->objects += f.objects;
        last->times += f.times;
        last->byte_ns += f.byte_ns;
        last->unsure &= f.unsure;
    }
    for (int64_t i = 0; i < n; i++)
        if ((double)p->finding[i].byte_ns >= o->min_share * (double)p->allocated_byte_ns)
            p->finding[kept++] = p->finding[i];
    p->findings = kept;
    if (kept) qsort(p->finding, (size_t)kept, sizeof *p->finding, by_waste);
}

int patterns_find(struct report *r, const struct pattern_options *o, struct patterns *out, char *err, size_t err_len) {
    struct pattern_objects s;
    struct judge j = {.s = &s};
    *out = (struct patterns){0};
    int rc = pattern_objects_load(r, o, out, &s, err, err_len);
    for (int64_t i = 0; !rc && i < s.objects; i++) judge_object(&j, &s.object[i]);
    if (!rc) judge_redundant(&j);
    out->finding = j.finding;
    out->findings = j.findings;
    join_alike(out, o);
    pattern_objects_free(&s);
    return rc;
}

void patterns_free(struct patterns *p) {
    free(p->finding);
    *p = (struct patterns){0};
}
