/* Markers win: steps, phases and micro-batches that the program named, over those that the rules found. The rules'
 * steps and phases stay where no marker says anything. */
#include "analyzer/attr_marks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/attr_sql.h"
#include "trace/store.h"

/* A step as it will be: of a marker, or one that the rules found. */
struct item {
    int32_t first, last; /* events: of a marker, ops in it; of a rules' step, ops with a phase; first -1: none */
    int32_t mark;        /* in marks.mark; -1: the rules' */
    int32_t number;      /* the step's number in the end; -1: it is none */
};

struct marks {
    struct at_trace *t;
    struct mark_set set;
    int64_t *thread;       /* per event; -1 */
    struct at_map dropped; /* threads whose own steps do not count, since another's overlap them: the number dropped */
    int32_t *step;         /* marks that are steps, by time, none overlaps another */
    int32_t steps;
    int32_t *in;       /* per event: item (marker), -1 */
    struct item *item; /* markers' first, then the rules' */
    int32_t items;
    sqlite3_str *notes;
    int64_t outside;    /* ops that the rules would have in a step, and markers do not */
    int64_t relabelled; /* ops whose phase the rules saw otherwise */
    int32_t rules_steps;
};

static const int8_t phase_named[NAMED_KINDS] = {[NAMED_FORWARD] = AT_FORWARD,
                                                [NAMED_BACKWARD] = AT_BACKWARD,
                                                [NAMED_OPTIMIZER] = AT_OPTIMIZER,
                                                [NAMED_EVALUATION] = AT_EVALUATION,
                                                [NAMED_RECOMPUTE] = AT_RECOMPUTE};

static int bears_phase(const struct at_event *e) {
    return at_is_op(e) && e->phase != AT_OTHER && e->phase != AT_EVALUATION;
}

/* ---- threads of ops ---- */

struct op_thread {
    int64_t op, thread;
};

static int by_op(const void *a, const void *b) {
    int64_t x = ((const struct op_thread *)a)->op, y = ((const struct op_thread *)b)->op;
    return (x > y) - (x < y);
}

static int read_threads(struct marks *m, sqlite3 *db, char *err, size_t err_len) {
    struct at_trace *t = m->t;
    struct op_thread *row = NULL;
    int32_t n = 0, room = 0;
    sqlite3_stmt *st;
    int rc;
    if (sql_prepare(db, &st, "SELECT id, thread FROM op WHERE status = 0 AND thread IS NOT NULL ORDER BY id", err,
                    err_len))
        return -1;
    while ((rc = sql_row(db, st, err, err_len)) > 0) {
        POOL_ROOM(t->pool, row, n, room);
        row[n++] = (struct op_thread){sqlite3_column_int64(st, 0), sqlite3_column_int64(st, 1)};
    }
    sqlite3_finalize(st);
    if (rc) return -1;
    m->thread = POOL_NEW(t->pool, int64_t, t->events);
    for (int32_t e = 0; e < t->events; e++) {
        struct op_thread want = {t->event[e].op, 0};
        const struct op_thread *at = n ? bsearch(&want, row, (size_t)n, sizeof *row, by_op) : NULL;
        m->thread[e] = at ? at->thread : -1;
    }
    if (row) pool_give(t->pool, row);
    return 0;
}

/* ---- which steps count ---- */

/* First event at or after a time. */
static int32_t event_from(const struct at_trace *t, int64_t ns) {
    int32_t lo = 0, hi = t->events;
    while (lo < hi) {
        int32_t mid = lo + (hi - lo) / 2;
        if (t->event[mid].key_ns < ns)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* DeepSpeed and others call the optimizer "step", beside "forward" and "backward": no forward or backward lies in such
 * a range. */
static void find_step_that_is_optimizer(struct mark_set *s) {
    int64_t step_end = INT64_MIN;
    int phases = 0, steps = 0;
    for (int32_t i = 0; i < s->marks; i++) {
        const struct mark *m = &s->mark[i];
        if (m->named == NAMED_STEP) {
            if (!m->plain) return;
            steps++;
            if (m->end_ns > step_end) step_end = m->end_ns;
        } else if (m->named == NAMED_FORWARD || m->named == NAMED_BACKWARD) {
            if (m->start_ns < step_end) return;
            phases++;
        } else if (m->named == NAMED_OPTIMIZER) {
            return;
        }
    }
    if (!phases || !steps) return;
    s->step_is_optimizer = 1;
    for (int32_t i = 0; i < s->marks; i++)
        if (s->mark[i].named == NAMED_STEP) s->mark[i].named = NAMED_OPTIMIZER;
}

struct thread_score {
    int64_t thread, own, any; /* ops of the thread itself in its steps, of all threads */
};

static int by_score(const void *a, const void *b) {
    const struct thread_score *x = a, *y = b;
    if (x->own != y->own) return x->own > y->own ? -1 : 1;
    if (x->any != y->any) return x->any > y->any ? -1 : 1;
    return (x->thread > y->thread) - (x->thread < y->thread);
}

/* Threads that have steps, the one with most ops in them first. */
static struct thread_score *score_threads(struct marks *m, int32_t *count) {
    struct at_map number = {0}; /* thread: its place, + 1 */
    struct thread_score *score = NULL;
    int32_t n = 0, room = 0;
    for (int32_t i = 0; i < m->set.marks; i++) {
        if (m->set.mark[i].named != NAMED_STEP) continue;
        int64_t *at = at_map_put(&number, m->t->pool, (uint64_t)m->set.mark[i].thread, NULL);
        if (*at) continue;
        POOL_ROOM(m->t->pool, score, n, room);
        score[n++] = (struct thread_score){.thread = m->set.mark[i].thread};
        *at = n;
    }
    int64_t *done =
        POOL_NEW(m->t->pool, int64_t, n ? n : 1); /* event up to which a thread's are counted: nested steps */
    for (int32_t i = 0; i < m->set.marks; i++) {
        const struct mark *k = &m->set.mark[i];
        if (k->named != NAMED_STEP) continue;
        int64_t at = *at_map_get(&number, (uint64_t)k->thread) - 1;
        int32_t e = event_from(m->t, k->start_ns);
        for (e = e < done[at] ? (int32_t)done[at] : e; e < m->t->events && m->t->event[e].key_ns < k->end_ns; e++) {
            if (!at_is_op(&m->t->event[e])) continue;
            score[at].any++;
            score[at].own += k->thread >= 0 && m->thread[e] == k->thread;
        }
        if (e > done[at]) done[at] = e;
    }
    if (n) qsort(score, (size_t)n, sizeof *score, by_score);
    *count = n;
    return score;
}

static int by_start(const void *a, const void *b, void *context) {
    const struct mark *mark = context;
    const struct mark *x = &mark[*(const int32_t *)a], *y = &mark[*(const int32_t *)b];
    return (x->start_ns > y->start_ns) - (x->start_ns < y->start_ns);
}

/* Does [start, end) overlap one of the first n steps taken? They are in order and do not overlap. */
static int overlaps(const struct marks *m, int32_t n, const struct mark *k) {
    int32_t lo = 0, hi = n; /* first step that begins at or after the end */
    while (lo < hi) {
        int32_t mid = lo + (hi - lo) / 2;
        if (m->set.mark[m->step[mid]].start_ns < k->end_ns)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo > 0 && m->set.mark[m->step[lo - 1]].end_ns > k->start_ns;
}

/* One thread's steps: the outermost of nested ones; of two that overlap the second begins where the first ends. */
static void take_thread(struct marks *m, const struct thread_score *who) {
    int32_t before = m->steps;
    int64_t end = INT64_MIN;
    for (int32_t i = 0; i < m->set.marks; i++) {
        struct mark *k = &m->set.mark[i];
        if (k->named != NAMED_STEP || k->thread != who->thread) continue;
        if (k->end_ns <= end) continue; /* nested */
        if (k->start_ns < end) {
            m->set.overlapping++;
            k->start_ns = end;
        }
        if (before && overlaps(m, before, k)) {
            ++*at_map_put(&m->dropped, m->t->pool, (uint64_t)k->thread, NULL);
            m->set.of_other_threads += who->own > 0;
            continue;
        }
        end = k->end_ns;
        m->step[m->steps++] = i;
    }
    if (m->steps > before && before) qsort_r(m->step, (size_t)m->steps, sizeof *m->step, by_start, m->set.mark);
}

static void choose_steps(struct marks *m) {
    int32_t n;
    struct thread_score *score = score_threads(m, &n);
    m->step = POOL_NEW(m->t->pool, int32_t, m->set.marks ? m->set.marks : 1);
    for (int32_t i = 0; i < n; i++) take_thread(m, &score[i]);
}

/* Where the rules found no training and no marker is a step: a step begins with a forward or backward and ends with
 * what the optimizer does after it, be it inside a backward. Such steps are added as markers. */
static void steps_of_phases(struct marks *m) {
    struct mark_set *s = &m->set;
    int32_t n = s->marks, first = -1, last = -1; /* of the step under way */
    int64_t outer_end = INT64_MIN;
    int updates = 0; /* the outermost phase under way, or the last one, has an optimizer */
    for (int32_t i = 0; i < n; i++) {
        struct mark k = s->mark[i];
        int outermost = k.start_ns >= outer_end;
        if (!outermost) {
            updates |= k.named == NAMED_OPTIMIZER;
            continue;
        }
        int begins = k.named == NAMED_FORWARD || k.named == NAMED_BACKWARD;
        if (k.named == NAMED_EVALUATION || (begins && updates && first >= 0)) {
            if (first >= 0 && updates) s->mark[first].end_ns = s->mark[last].end_ns, m->step[m->steps++] = first;
            if (updates) first = -1;
        }
        outer_end = k.end_ns;
        if (k.named == NAMED_EVALUATION) continue;
        if (begins && first < 0) {
            POOL_ROOM(m->t->pool, s->mark, s->marks, s->room);
            first = s->marks++;
            s->mark[first] = k;
            s->mark[first].named = NAMED_STEP;
            updates = 0;
        }
        updates |= k.named == NAMED_OPTIMIZER;
        last = i;
    }
    if (first < 0) return;
    s->mark[first].open = !updates; /* the last one, perhaps cut off */
    s->mark[first].end_ns = s->mark[last].end_ns;
    m->step[m->steps++] = first;
}

/* ---- phases ---- */

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
    if (phase == AT_BACKWARD && rules == AT_RECOMPUTE) phase = rules;      /* more exact, and no contradiction */
    ev->phase_by = (int8_t)by;
    if (phase == rules) return;
    ev->phase = (int8_t)phase;
    m->relabelled += rules != AT_OTHER;
}

static void mark_phases(struct marks *m) {
    struct at_trace *t = m->t;
    struct mark_set *s = &m->set;
    struct open_marks all = {0}, *of = NULL;
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

/* ---- steps ---- */

static void put_in_steps(struct marks *m) {
    struct at_trace *t = m->t;
    int32_t k = 0;
    for (int32_t e = 0; e < t->events; e++) {
        m->in[e] = -1;
        const struct at_event *ev = &t->event[e];
        while (k < m->steps && m->set.mark[m->step[k]].end_ns <= ev->key_ns) k++;
        if (k == m->steps) {
            for (; e < t->events; e++) m->in[e] = -1;
            break;
        }
        const struct mark *s = &m->set.mark[m->step[k]];
        int64_t own = m->thread[e];
        const int64_t *dropped = own == s->thread ? NULL : at_map_get(&m->dropped, (uint64_t)own);
        if (!at_is_op(ev) || s->start_ns > ev->key_ns || (dropped && *dropped)) continue;
        m->in[e] = k;
    }
}

/* A step whose training the rules did not see: its evaluation is a forward pass. Else evaluation is in no step. */
static void settle_evaluation(struct marks *m) {
    struct at_trace *t = m->t;
    uint8_t *trains = POOL_NEW(t->pool, uint8_t, m->steps ? m->steps : 1);
    for (int32_t e = 0; e < t->events; e++)
        if (m->in[e] >= 0 && bears_phase(&t->event[e])) trains[m->in[e]] = 1;
    for (int32_t e = 0; e < t->events; e++) {
        struct at_event *ev = &t->event[e];
        if (m->in[e] < 0) continue;
        int idle = ev->phase == AT_EVALUATION || ev->phase == AT_OTHER;
        if (!trains[m->in[e]] && idle && ev->phase_by == AT_BY_RULES && at_is_work(ev)) ev->phase = AT_FORWARD;
        if (ev->phase == AT_EVALUATION) m->in[e] = -1;
    }
    pool_give(t->pool, trains);
}

/* Extents of the markers' steps and of the rules'. */
static void make_items(struct marks *m) {
    struct at_trace *t = m->t;
    m->items = m->steps + t->steps;
    m->item = POOL_NEW(t->pool, struct item, m->items ? m->items : 1);
    for (int32_t i = 0; i < m->items; i++) m->item[i] = (struct item){-1, -1, i < m->steps ? m->step[i] : -1, -1};
    for (int32_t e = 0; e < t->events; e++) {
        const struct at_event *ev = &t->event[e];
        int32_t i = m->in[e] >= 0 ? m->in[e] : ev->step >= 0 && bears_phase(ev) ? m->steps + ev->step : -1;
        if (i < 0) continue;
        if (m->item[i].first < 0) m->item[i].first = e;
        m->item[i].last = e;
    }
}

/* A step of the rules is none when one of its ops lies in a marker's step, or such a step lies among its ops. */
static void dissolve(struct marks *m) {
    struct at_trace *t = m->t;
    int32_t k = 0;
    for (int32_t e = 0; e < t->events; e++) /* its ops are in `in` already: known by the step they had */
        if (m->in[e] >= 0 && t->event[e].step >= 0 && bears_phase(&t->event[e]))
            m->item[m->steps + t->event[e].step].first = -1;
    for (int32_t i = m->steps; i < m->items; i++) {
        struct item *s = &m->item[i];
        if (s->first < 0) continue;
        while (k < m->steps && (m->item[k].first < 0 || m->item[k].last < s->first)) k++;
        if (k < m->steps && m->item[k].first < s->last) s->first = -1;
    }
}

static int by_first(const void *a, const void *b, void *context) {
    const struct item *item = context;
    int32_t x = item[*(const int32_t *)a].first, y = item[*(const int32_t *)b].first;
    return (x > y) - (x < y);
}

/* Numbers the steps by time, and gives every op its new one. An op without a phase that comes too early for the step
 * that the rules put it in, with a marker's between, is in none. */
static void renumber(struct marks *m) {
    struct at_trace *t = m->t;
    int32_t *order = POOL_NEW(t->pool, int32_t, m->items ? m->items : 1), n = 0, now = -1;
    for (int32_t i = 0; i < m->items; i++)
        if (m->item[i].first >= 0) order[n++] = i;
    if (n) qsort_r(order, (size_t)n, sizeof *order, by_first, m->item);
    for (int32_t i = 0; i < n; i++) m->item[order[i]].number = i;
    struct at_step *step = POOL_NEW(t->pool, struct at_step, n ? n : 1);
    for (int32_t i = 0; i < n; i++) {
        const struct item *x = &m->item[order[i]];
        const struct mark *k = x->mark >= 0 ? &m->set.mark[x->mark] : NULL;
        step[i] = k ? (struct at_step){.by = (uint8_t)k->by, .start_ns = k->start_ns, .end_ns = k->end_ns}
                    : t->step[order[i] - m->steps];
        if (!k) continue;
        if (k->end_ns == INT64_MAX) step[i].end_ns = t->event[x->last].end_ns;
        step[i].complete = !k->open && k->end_ns != INT64_MAX;
        for (int32_t e = x->first; e <= x->last && k->end_ns == INT64_MAX && !k->open; e++) /* a moment, the last one */
            if (m->in[e] >= 0 && t->event[e].phase == AT_OPTIMIZER) step[i].complete = 1;
    }
    for (int32_t e = 0; e < t->events; e++) {
        struct at_event *ev = &t->event[e];
        int had = ev->step >= 0 && bears_phase(ev);
        int32_t i = m->in[e] >= 0 ? m->in[e] : ev->step >= 0 ? m->steps + ev->step : -1;
        int32_t number = i >= 0 && m->item[i].first >= 0 ? m->item[i].number : -1;
        if (number > now + 1 || number < now) number = -1;
        if (number > now) now = number;
        m->outside += had && number < 0;
        ev->step = number;
    }
    t->step = step;
    t->steps = n;
    pool_give(t->pool, order);
}

/* ---- micro-batches ---- */

/* In a step that a marker told, or in which one changed phases: a new one begins with a forward after a backward where
 * markers tell the phases; else the rules' are counted through, over all of the steps that they saw. */
static void number_micro_batches(struct marks *m, const int32_t *old_step) {
    struct at_trace *t = m->t;
    uint8_t *told = POOL_NEW(t->pool, uint8_t, t->steps ? t->steps : 1);
    for (int32_t e = 0; e < t->events; e++) {
        const struct at_event *ev = &t->event[e];
        if (ev->step >= 0 && ev->phase_by && (ev->phase == AT_FORWARD || ev->phase == AT_BACKWARD)) told[ev->step] = 1;
    }
    int32_t step = -1, number = 0, before = -1, before_step = -1;
    int backward = 0;
    for (int32_t e = 0; e < t->events; e++) {
        struct at_event *ev = &t->event[e];
        if (ev->step < 0) continue;
        if (ev->step != step) step = ev->step, number = 0, backward = 0, before = -1;
        if (!told[step] && !t->step[step].end_ns) continue;
        if (told[step]) {
            if (backward && ev->phase == AT_FORWARD) number++, backward = 0;
            backward |= ev->phase == AT_BACKWARD;
        } else if (bears_phase(ev) && ev->phase != AT_OPTIMIZER) {
            if (before >= 0 && (ev->micro_batch != before || old_step[e] != before_step)) number++;
            before = ev->micro_batch;
            before_step = old_step[e];
        }
        ev->micro_batch = number;
    }
    pool_give(t->pool, told);
}

/* ---- what is said of it ---- */

static void name_sources(const struct marks *m, int steps, sqlite3_str *out) {
    uint8_t *said = POOL_NEW(m->t->pool, uint8_t, m->set.texts ? m->set.texts : 1);
    int n = 0;
    for (int32_t i = 0; i < m->set.marks; i++) {
        const struct mark *k = &m->set.mark[i];
        if ((k->named == NAMED_STEP) != steps || said[k->text]) continue;
        said[k->text] = 1;
        if (++n <= 4) sqlite3_str_appendf(out, "%s'%s'", n > 1 ? ", " : "", m->set.text[k->text]);
    }
    if (n > 4) sqlite3_str_appendf(out, ", and %d more", n - 4);
    pool_give(m->t->pool, said);
}

static const char *source_name(const struct marks *m) {
    int nvtx = 0, acct_h = 0;
    for (int32_t i = 0; i < m->set.marks; i++) *(m->set.mark[i].by == AT_BY_NVTX ? &nvtx : &acct_h) = 1;
    return nvtx && acct_h ? "NVTX and acct.h" : nvtx ? "NVTX" : "acct.h";
}

static void say(struct marks *m, int phases_only) {
    sqlite3_str *o = m->notes;
    int32_t of_marks = 0, marked_phases = 0;
    for (int32_t i = 0; i < m->t->steps; i++) of_marks += m->t->step[i].by >= AT_BY_NVTX;
    for (int32_t e = 0; e < m->t->events; e++) marked_phases |= m->t->event[e].phase_by;
    if (of_marks) {
        sqlite3_str_appendf(o, "%d step(s) are those of %s ranges ", of_marks, source_name(m));
        name_sources(m, !phases_only, o);
        sqlite3_str_appendf(o,
                            phases_only              ? ", from the first forward or backward to the optimizer"
                            : of_marks < m->t->steps ? ", the other %d the rules'"
                                                     : "",
                            m->t->steps - of_marks);
        if (m->rules_steps && of_marks == m->t->steps && m->rules_steps != of_marks)
            sqlite3_str_appendf(o, "; by the rules there would be %d", m->rules_steps);
        sqlite3_str_appendall(o, ".\n");
    }
    if (marked_phases) {
        sqlite3_str_appendf(o, "Phases where %s ranges name them (", source_name(m));
        name_sources(m, 0, o);
        sqlite3_str_appendall(o, ") are theirs");
        if (m->relabelled) sqlite3_str_appendf(o, "; the rules see %lld op(s) otherwise", (long long)m->relabelled);
        sqlite3_str_appendall(o, ".\n");
    }
    if (m->set.step_is_optimizer)
        sqlite3_str_appendall(
            o, "The ranges 'step' are taken for the optimizer's: no forward or backward lies in them.\n");
    if (m->outside)
        sqlite3_str_appendf(
            o, "%lld op(s) that the rules find in a step lie outside of the marked ones: they are in none.\n",
            (long long)m->outside);
    if (m->set.never_ended)
        sqlite3_str_appendf(o, "%d marked step(s) or phase(s) never ended: they are taken to last until the next.\n",
                            m->set.never_ended);
    if (m->set.overlapping)
        sqlite3_str_appendf(o,
                            "%d marked step(s) begin before the one before has ended: they are taken to begin there.\n",
                            m->set.overlapping);
    if (m->set.of_other_threads)
        sqlite3_str_appendf(
            o,
            "%d marked step(s) overlap those of the thread with most ops in its steps: they, and the ops "
            "of their threads, are in none.\n",
            m->set.of_other_threads);
}

static int write_notes(sqlite3_str *notes, sqlite3 *db, char *err, size_t err_len) {
    int rc = sql_run(db, "DELETE FROM meta WHERE key IN ('mark_notes', 'user_rules')", err, err_len);
    if (!rc && sqlite3_str_length(notes) && store_meta_set_text(db, "mark_notes", sqlite3_str_value(notes))) {
        snprintf(err, err_len, "%s", sqlite3_errmsg(db));
        rc = -1;
    }
    return rc;
}

static int apply(struct marks *m, sqlite3 *db, char *err, size_t err_len) {
    struct at_trace *t = m->t;
    if (!m->set.marks) return 0;
    if (read_threads(m, db, err, err_len)) return -1;
    find_step_that_is_optimizer(&m->set);
    choose_steps(m);
    m->rules_steps = t->steps;
    int phases_only = !m->steps && !t->step_ends && !t->cut && t->steps == 0;
    if (phases_only) steps_of_phases(m);
    m->in = POOL_NEW(t->pool, int32_t, t->events);
    int32_t *old_step = POOL_NEW(t->pool, int32_t, t->events);
    for (int32_t e = 0; e < t->events; e++) old_step[e] = t->event[e].step;
    put_in_steps(m);
    mark_phases(m);
    settle_evaluation(m);
    for (int32_t e = 0; e < t->events; e++) /* a marked evaluation is in no step of the rules either */
        if (t->event[e].phase == AT_EVALUATION) t->event[e].step = -1;
    make_items(m);
    dissolve(m);
    renumber(m);
    number_micro_batches(m, old_step);
    say(m, phases_only);
    pool_give(t->pool, old_step);
    pool_give(t->pool, m->in);
    pool_give(t->pool, m->thread);
    return 0;
}

int at_marks(struct at_trace *t, sqlite3 *db, char *err, size_t err_len) {
    struct marks m = {.t = t, .notes = sqlite3_str_new(db)};
    int rc = marks_read(&m.set, t->pool, db, err, err_len);
    if (!rc) rc = apply(&m, db, err, err_len);
    if (!rc) rc = at_windows(t, db, m.notes, err, err_len);
    if (!rc) rc = write_notes(m.notes, db, err, err_len);
    sqlite3_free(sqlite3_str_finish(m.notes));
    return rc;
}
