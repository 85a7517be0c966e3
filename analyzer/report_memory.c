/* Peaks of memory, exact over time: a sweep over the moments at which allocations begin and end or bytes change their
 * class. n log n in allocations and class rows. */
#include "analyzer/report_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct change {
    int64_t ns;
    int64_t total;   /* bytes that come (+) or go (−) */
    int64_t classed; /* likewise, in class `class` */
    int class;
};

struct sweep {
    struct change *change;
    int64_t n;
    /* moments: after all changes of one time */
    int64_t *ns, *total, *end; /* end: index in `change` just behind the moment */
    int64_t *held;             /* of the total, in classes other than temporary and unknown */
    int64_t moments;
};

static void add(struct sweep *s, int64_t ns, int64_t total, int64_t classed, int class) {
    s->change = report_grow(s->change, s->n, sizeof *s->change);
    s->change[s->n++] = (struct change){ns, total, classed, class};
}

static int by_time(const void *a, const void *b) {
    int64_t x = ((const struct change *)a)->ns, y = ((const struct change *)b)->ns;
    return (x > y) - (x < y);
}

/* Rows: begin, end (NULL: to the end), bytes, class (NULL: an allocation, counts in the total). */
static int add_rows(struct report *r, struct sweep *s, const char *sql, char *err, size_t err_len) {
    sqlite3_stmt *st = report_prepare(r, sql, err, err_len);
    int rc;
    if (!st) return -1;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        int64_t begin = sqlite3_column_int64(st, 0), end = report_column(st, 1), bytes = sqlite3_column_int64(st, 2);
        const char *name = (const char *)sqlite3_column_text(st, 3);
        int class = report_class_of(name);
        int64_t total = name ? 0 : bytes, classed = name ? bytes : 0;
        if (end != REPORT_UNKNOWN && end <= begin) continue;
        add(s, begin, total, classed, class);
        if (end != REPORT_UNKNOWN) add(s, end, -total, -classed, class);
    }
    return report_rows_end(r, st, rc, err, err_len);
}

/* Sorts, and sums up what is live after each moment. */
static void run_sweep(struct sweep *s) {
    int64_t live = 0, held = 0;
    int temporary = report_class_of("temporary");
    if (s->n) qsort(s->change, (size_t)s->n, sizeof *s->change, by_time);
    for (int64_t i = 0; i < s->n; i++) {
        live += s->change[i].total;
        if (s->change[i].class != temporary && s->change[i].class != REPORT_UNKNOWN_CLASS) held += s->change[i].classed;
        if (i + 1 < s->n && s->change[i + 1].ns == s->change[i].ns) continue;
        s->ns = report_grow(s->ns, s->moments, sizeof *s->ns);
        s->total = report_grow(s->total, s->moments, sizeof *s->total);
        s->end = report_grow(s->end, s->moments, sizeof *s->end);
        s->held = report_grow(s->held, s->moments, sizeof *s->held);
        s->ns[s->moments] = s->change[i].ns;
        s->held[s->moments] = held;
        s->total[s->moments] = live;
        s->end[s->moments++] = i + 1;
    }
}

static void free_sweep(struct sweep *s) {
    free(s->change), free(s->ns), free(s->total), free(s->end), free(s->held);
    memset(s, 0, sizeof *s);
}

/* Last moment at or before ns; -1: nothing happened until then. */
static int64_t moment_at(const struct sweep *s, int64_t ns) {
    int64_t lo = 0, hi = s->moments; /* first moment after ns */
    while (lo < hi) {
        int64_t mid = lo + (hi - lo) / 2;
        if (s->ns[mid] <= ns)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo - 1;
}

/* First moment of the greatest total among from…to; of several, as where everything is allocated once and for all, the
 * one at which most of it holds something: only then do the classes say what the memory is for. */
static int64_t greatest(const struct sweep *s, int64_t from, int64_t to) {
    int64_t best = from < 0 ? 0 : from;
    for (int64_t i = best; i <= to; i++)
        if (s->total[i] > s->total[best] || (s->total[i] == s->total[best] && s->held[i] > s->held[best])) best = i;
    return best;
}

struct request {
    int64_t moment;
    struct report_memory *out;
};

static int by_moment(const void *a, const void *b) {
    int64_t x = ((const struct request *)a)->moment, y = ((const struct request *)b)->moment;
    return (x > y) - (x < y);
}

static void fill(struct report_memory *out, const struct sweep *s, int64_t moment, const int64_t *classes) {
    int64_t classed = 0;
    memcpy(out->at_peak, classes, sizeof out->at_peak);
    for (int c = 0; c < REPORT_CLASSES; c++) classed += classes[c];
    out->peak_bytes = s->total[moment];
    out->peak_ns = s->ns[moment];
    out->at_peak[REPORT_UNKNOWN_CLASS] += out->peak_bytes - classed; /* bytes that the analysis says nothing of */
}

/* The classes at each moment that was asked for, in one pass. */
static void answer(const struct sweep *s, struct request *requests, int64_t n) {
    int64_t classes[REPORT_CLASSES] = {0}, i = 0;
    if (n) qsort(requests, (size_t)n, sizeof *requests, by_moment);
    for (int64_t q = 0; q < n; q++) {
        for (; i < s->end[requests[q].moment]; i++) classes[s->change[i].class] += s->change[i].classed;
        fill(requests[q].out, s, requests[q].moment, classes);
    }
}

static void device_peaks(struct report *r, const struct sweep *s) {
    struct request *requests = NULL;
    int64_t n = 0;
    if (!s->moments) return; /* nothing was ever allocated: zeros, and known to be */
    requests = report_grow(requests, n, sizeof *requests);
    requests[n++] = (struct request){greatest(s, 0, s->moments - 1), &r->memory};
    for (int64_t i = 0; i < r->n_steps; i++) {
        struct report_step *step = &r->steps[i];
        int64_t to = moment_at(s, step->end_ns);
        if (to < 0 || step->start_ns == REPORT_UNKNOWN || step->end_ns == REPORT_UNKNOWN) continue;
        requests = report_grow(requests, n, sizeof *requests);
        requests[n++] = (struct request){greatest(s, moment_at(s, step->start_ns), to), &step->memory};
    }
    answer(s, requests, n);
    free(requests);
}

static int peak_of(struct report *r, const char *kinds, int64_t *out, char *err, size_t err_len) {
    struct sweep s = {0};
    char sql[256];
    int rc;
    snprintf(sql, sizeof sql, "SELECT alloc_ns, free_ns, bytes, NULL FROM alloc WHERE memory IN (%s)", kinds);
    rc = add_rows(r, &s, sql, err, err_len);
    run_sweep(&s);
    *out = 0;
    for (int64_t i = 0; i < s.moments; i++)
        if (s.total[i] > *out) *out = s.total[i];
    free_sweep(&s);
    return rc;
}

int report_load_memory(struct report *r, char *err, size_t err_len) {
    struct sweep s = {0};
    int rc = add_rows(r, &s, "SELECT alloc_ns, free_ns, bytes, NULL FROM alloc WHERE memory IN ('device', 'async')",
                      err, err_len);
    if (!rc)
        rc = add_rows(
            r, &s,
            "SELECT max(a.alloc_ns, coalesce(c.from_ns, a.alloc_ns)),"
            " CASE WHEN a.free_ns IS NULL THEN c.until_ns WHEN c.until_ns IS NULL THEN a.free_ns ELSE min(a.free_ns, "
            "c.until_ns) END,"
            " c.bytes, c.class FROM alloc_class c JOIN alloc a ON a.id = c.alloc WHERE a.memory IN ('device', 'async')",
            err, err_len);
    run_sweep(&s);
    if (!rc) device_peaks(r, &s);
    free_sweep(&s);
    if (!rc) rc = peak_of(r, "'managed'", &r->managed_peak_bytes, err, err_len);
    if (!rc) rc = peak_of(r, "'pinned', 'registered'", &r->pinned_peak_bytes, err, err_len);
    if (!rc) rc = peak_of(r, "'array'", &r->array_peak_bytes, err, err_len);
    return rc;
}
