/* Markers win: steps, phases and micro-batches that the program named, over those that the rules found. The rules'
 * steps and phases stay where no marker says anything. */
#include "analyzer/attr_marks.h"

#include <stdio.h>
#include <stdlib.h>
#include "analyzer/attr_sql.h"
#include "trace/store.h"

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
        if (m->in[e] >= 0 && mark_bears_phase(&t->event[e])) trains[m->in[e]] = 1;
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
        int32_t i = m->in[e] >= 0 ? m->in[e] : ev->step >= 0 && mark_bears_phase(ev) ? m->steps + ev->step : -1;
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
        if (m->in[e] >= 0 && t->event[e].step >= 0 && mark_bears_phase(&t->event[e]))
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
        int had = ev->step >= 0 && mark_bears_phase(ev);
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
        if (ev->step >= 0 && ev->phase_by && ev->phase == AT_FORWARD) told[ev->step] |= 1;
        if (ev->step >= 0 && ev->phase_by && ev->phase == AT_BACKWARD) told[ev->step] |= 2;
    }
    int32_t step = -1, number = 0, before = -1, before_step = -1;
    int backward = 0;
    for (int32_t e = 0; e < t->events; e++) {
        struct at_event *ev = &t->event[e];
        if (ev->step < 0) continue;
        if (ev->step != step) step = ev->step, number = 0, backward = 0, before = -1;
        if (!told[step] && !t->step[step].end_ns) continue;
        if (told[step]) { /* both told: what the rules say of the rest does not count */
            int counts = told[step] != 3 || ev->phase_by;
            if (counts && backward && ev->phase == AT_FORWARD) number++, backward = 0;
            backward |= counts && ev->phase == AT_BACKWARD;
        } else if (mark_bears_phase(ev) && ev->phase != AT_OPTIMIZER) {
            if (before >= 0 && (ev->micro_batch != before || old_step[e] != before_step)) number++;
            before = ev->micro_batch;
            before_step = old_step[e];
        }
        ev->micro_batch = number;
    }
    pool_give(t->pool, told);
}

/* ---- all of it ---- */

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
    marks_choose_steps(m);
    m->rules_steps = t->steps;
    int phases_only = !m->steps && !t->step_ends && !t->cut && t->steps == 0;
    if (phases_only) marks_steps_of_phases(m);
    m->in = POOL_NEW(t->pool, int32_t, t->events);
    int32_t *old_step = POOL_NEW(t->pool, int32_t, t->events);
    for (int32_t e = 0; e < t->events; e++) old_step[e] = t->event[e].step;
    put_in_steps(m);
    marks_phases(m);
    settle_evaluation(m);
    for (int32_t e = 0; e < t->events; e++) /* a marked evaluation is in no step of the rules either */
        if (t->event[e].phase == AT_EVALUATION) t->event[e].step = -1;
    make_items(m);
    dissolve(m);
    renumber(m);
    number_micro_batches(m, old_step);
    marks_say(m, phases_only);
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
