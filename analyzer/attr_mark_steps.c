/* Which marked steps count: the outermost of nested ones, one thread's where several overlap; and steps that only
 * marked phases tell. */
#include "analyzer/attr_marks.h"

#include <stdlib.h>

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

void marks_choose_steps(struct marks *m) {
    int32_t n;
    find_step_that_is_optimizer(&m->set);
    struct thread_score *score = score_threads(m, &n);
    m->step = POOL_NEW(m->t->pool, int32_t, m->set.marks ? m->set.marks : 1);
    for (int32_t i = 0; i < n; i++) take_thread(m, &score[i]);
}

/* Where the rules found no training and no marker is a step: a step begins with a forward or backward and ends with
 * what the optimizer does after it, be it inside a backward. Such steps are added as markers. */
void marks_steps_of_phases(struct marks *m) {
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
