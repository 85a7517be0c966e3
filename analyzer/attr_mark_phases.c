/* The phase that markers give an op: that of the innermost range of its thread; of a thread that marks none, of any. */
#include "analyzer/attr_marks.h"

static const int8_t phase_named[NAMED_KINDS] = {[NAMED_FORWARD] = AT_FORWARD,
                                                [NAMED_BACKWARD] = AT_BACKWARD,
                                                [NAMED_OPTIMIZER] = AT_OPTIMIZER,
                                                [NAMED_EVALUATION] = AT_EVALUATION,
                                                [NAMED_RECOMPUTE] = AT_RECOMPUTE};

/* Ranges begun and not known to have ended, of a thread (or of all): the latest begun on top. */
struct open_marks {
    int32_t *mark;
    int32_t n, room;
};

static int32_t innermost(struct open_marks *o, const struct mark *mark, int64_t ns) {
    while (o->n && mark[o->mark[o->n - 1]].end_ns <= ns) o->n--;
    return o->n ? o->mark[o->n - 1] : -1;
}

/* Is one of that meaning open further out? Deep nests are looked at 64 levels down. */
static int inside(const struct open_marks *o, const struct mark *mark, int64_t ns, int named) {
    for (int32_t i = o->n - 1; i >= 0 && i > o->n - 65; i--)
        if (mark[o->mark[i]].named == named && mark[o->mark[i]].end_ns > ns) return 1;
    return 0;
}

/* What the markers call an op: a forward within a backward is recomputed; all within an evaluation is evaluation. */
static int phase_of(const struct open_marks *all, const struct mark *mark, int32_t k, int64_t ns) {
    if (inside(all, mark, ns, NAMED_EVALUATION)) return AT_EVALUATION;
    if (mark[k].named == NAMED_FORWARD && inside(all, mark, ns, NAMED_BACKWARD)) return AT_RECOMPUTE;
    return phase_named[mark[k].named];
}

/* Puts the marker's phase in the place of the rules'. A step under way is a marker's or the rules'. */
static void relabel(struct marks *m, int32_t e, int phase, int by) {
    struct at_event *ev = &m->t->event[e];
    int rules = ev->phase, in_step = m->in[e] >= 0;
    if (phase == AT_FORWARD && rules == AT_EVALUATION && !in_step) return; /* it is a forward pass: of an evaluation */
    if (phase == AT_BACKWARD && rules == AT_RECOMPUTE && !m->recompute_is_marked)
        phase = rules; /* the finer statement */
    ev->phase_by = (int8_t)by;
    if (phase == rules) return;
    ev->phase = (int8_t)phase;
    m->relabelled += rules != AT_OTHER;
}

/* Does some range tell recomputation: by its name, or as a forward within a backward? */
static int tells_recompute(const struct mark_set *s) {
    int64_t backward_end = INT64_MIN;
    for (int32_t i = 0; i < s->marks; i++) {
        const struct mark *k = &s->mark[i];
        if (k->named == NAMED_RECOMPUTE || (k->named == NAMED_FORWARD && k->end_ns <= backward_end)) return 1;
        if (k->named == NAMED_BACKWARD && k->end_ns > backward_end) backward_end = k->end_ns;
    }
    return 0;
}

void marks_phases(struct marks *m) {
    struct at_trace *t = m->t;
    struct mark_set *s = &m->set;
    struct open_marks all = {0}, *of = NULL;
    m->recompute_is_marked = tells_recompute(s);
    int32_t threads = 0, room = 0, next = 0, update = -1, update_step = -1;
    struct at_map number = {0}; /* thread: its place in `of`, + 1 */
    for (int32_t i = 0; i < s->marks; i++) {
        if (s->mark[i].named == NAMED_STEP) continue;
        int64_t *at = at_map_put(&number, t->pool, (uint64_t)s->mark[i].thread, NULL);
        if (*at) continue;
        POOL_ROOM(t->pool, of, threads, room);
        of[threads++] = (struct open_marks){0};
        *at = threads;
    }
    for (int32_t e = 0; e < t->events && threads; e++) {
        int64_t ns = t->event[e].key_ns;
        for (; next < s->marks && s->mark[next].start_ns <= ns; next++) {
            if (s->mark[next].named == NAMED_STEP) continue;
            struct open_marks *own = &of[*at_map_get(&number, (uint64_t)s->mark[next].thread) - 1];
            POOL_ROOM(t->pool, own->mark, own->n, own->room);
            own->mark[own->n++] = next;
            innermost(&all, s->mark, s->mark[next].start_ns);
            POOL_ROOM(t->pool, all.mark, all.n, all.room);
            all.mark[all.n++] = next;
        }
        if (!at_is_op(&t->event[e])) continue;
        const int64_t *own = at_map_get(&number, (uint64_t)m->thread[e]);
        int32_t everyone = innermost(&all, s->mark, ns);
        int32_t k = own ? innermost(&of[*own - 1], s->mark, ns) : -1;
        if (k < 0) k = everyone; /* a thread that works for others (backward in torch) */
        if (k < 0) continue;
        int phase = phase_of(&all, s->mark, k, ns);
        if (at_is_work(&t->event[e])) relabel(m, e, phase, s->mark[k].by);
        if (phase != AT_OPTIMIZER || m->in[e] >= 0) continue;
        if (k == update && update_step >= 0)
            t->event[e].step = update_step; /* an optimizer ends where its range does */
        update = k;
        update_step = t->event[e].step;
    }
}
