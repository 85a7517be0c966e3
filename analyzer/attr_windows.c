/* Steps at the edges of what was recorded: one that was not recorded from its beginning, or with a gap in it, is not
 * complete. */
#include "analyzer/attr_marks.h"

#include <string.h>
#include "analyzer/attr_sql.h"

struct window {
    int64_t start_ns, end_ns; /* INT64_MIN, INT64_MAX: not known */
    char why[48];
};

struct windows {
    struct window *window;
    int32_t n, room;
};

/* What is looked at of a step. */
struct step_shape {
    int64_t first_ns, last_ns; /* of its ops with a phase */
    int32_t products;          /* of forward and backward */
    int8_t first_phase;        /* 0: it has none */
};

static int read_windows(struct windows *w, struct pool *pool, sqlite3 *db, char *err, size_t err_len) {
    sqlite3_stmt *st;
    int rc;
    if (!sql_has_table(db, "window")) return 0;
    if (sql_prepare(db, &st, "SELECT start_ns, end_ns, why FROM \"window\" ORDER BY coalesce(start_ns, 0), id", err,
                    err_len))
        return -1;
    while ((rc = sql_row(db, st, err, err_len)) > 0) {
        const char *why = (const char *)sqlite3_column_text(st, 2);
        int64_t start = sql_i64(st, 0), end = sql_i64(st, 1);
        POOL_ROOM(pool, w->window, w->n, w->room);
        struct window *x = &w->window[w->n++];
        *x = (struct window){start == ACCT_NULL_I64 ? INT64_MIN : start, end == ACCT_NULL_I64 ? INT64_MAX : end, ""};
        mark_general_name(why ? why : "not told", x->why, sizeof x->why);
    }
    sqlite3_finalize(st);
    return rc;
}

static struct step_shape *shapes_of(const struct at_trace *t) {
    struct step_shape *shape = POOL_NEW(t->pool, struct step_shape, t->steps ? t->steps : 1);
    for (int32_t e = 0; e < t->events; e++) {
        const struct at_event *ev = &t->event[e];
        if (ev->step < 0 || ev->step >= t->steps || !at_is_op(ev) || ev->phase == AT_OTHER) continue;
        struct step_shape *s = &shape[ev->step];
        if (!s->first_phase) {
            s->first_phase = ev->phase;
            s->first_ns = ev->key_ns;
        }
        s->last_ns = ev->key_ns;
        s->products += ev->kind == AT_GEMM && ev->phase != AT_OPTIMIZER;
    }
    return shape;
}

/* The first step after a beginning: it lacks its own when it does not begin with forward, or has fewer products than
 * the next one. */
static int lacks_beginning(const struct at_trace *t, const struct step_shape *s, int32_t i) {
    if (!s[i].first_phase) return 0;
    if (s[i].first_phase != AT_FORWARD) return 1;
    return i + 1 < t->steps && t->step[i + 1].complete && s[i].products < s[i + 1].products;
}

static int32_t first_step_from(const struct at_trace *t, const struct step_shape *s, int64_t ns) {
    int32_t lo = 0, hi = t->steps;
    while (lo < hi) {
        int32_t mid = lo + (hi - lo) / 2;
        if (s[mid].first_ns < ns)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static int32_t cut(struct at_trace *t, int32_t i) {
    int was = t->step[i].complete;
    t->step[i].complete = 0;
    return was;
}

/* Steps cut off by the edges of the windows. */
static int32_t cut_at_edges(struct at_trace *t, const struct windows *w, const struct step_shape *s) {
    int32_t n = 0;
    for (int32_t k = 0; k < w->n; k++) {
        int64_t from = w->window[k].start_ns, before = k ? w->window[k - 1].end_ns : INT64_MIN;
        int32_t i = first_step_from(t, s, from);
        if (k && i && s[i - 1].first_ns <= before && s[i - 1].last_ns >= from) n += cut(t, i - 1); /* a gap in it */
        if (from != INT64_MIN && i < t->steps && lacks_beginning(t, s, i)) n += cut(t, i);
    }
    return n;
}

int at_windows(struct at_trace *t, sqlite3 *db, sqlite3_str *notes, char *err, size_t err_len) {
    struct windows w = {0};
    if (read_windows(&w, t->pool, db, err, err_len)) return -1;
    if (w.n)
        sqlite3_str_appendf(notes, "Only a part of the run was recorded: %d window(s), %s%s.\n", w.n, w.window[0].why,
                            w.n > 1 ? " and more" : "");
    if (!t->steps) return 0;
    struct step_shape *s = shapes_of(t);
    int32_t n = cut_at_edges(t, &w, s);
    if (!w.n && t->late && lacks_beginning(t, s, 0)) n += cut(t, 0);
    if (n)
        sqlite3_str_appendf(notes,
                            "The recording begins in the middle of a step: %d step(s) are incomplete, and left out of "
                            "medians.\n",
                            n);
    pool_give(t->pool, s);
    return 0;
}
