#include "analyzer/memory_sweep.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add(struct memory_sweep *s, int64_t ns, int64_t total, int64_t classed, int class) {
    s->change = report_grow(s->change, s->n, sizeof *s->change);
    s->change[s->n++] = (struct memory_change){ns, total, classed, class};
}

static int by_time(const void *a, const void *b) {
    int64_t x = ((const struct memory_change *)a)->ns, y = ((const struct memory_change *)b)->ns;
    return (x > y) - (x < y);
}

/* Rows: begin, end (NULL: to the end), bytes, class (NULL: an allocation, counts in the total). */
static int add_rows(struct report *r, struct memory_sweep *s, const char *sql, int64_t device, char *err,
                    size_t err_len) {
    sqlite3_stmt *st = report_prepare(r, sql, err, err_len);
    int rc;
    if (!st) return -1;
    if (device != MEMORY_ALL_DEVICES) sqlite3_bind_int64(st, 1, device); /* else NULL: any */
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
static void run_sweep(struct memory_sweep *s) {
    int64_t live = 0, held = 0;
    int temporary = report_class_of("temporary"), other = report_class_of("other"); /* memory of a pool in no use too */
    if (s->n) qsort(s->change, (size_t)s->n, sizeof *s->change, by_time);
    for (int64_t i = 0; i < s->n; i++) {
        live += s->change[i].total;
        int class = s->change[i].class;
        if (class != temporary && class != other && class != REPORT_UNKNOWN_CLASS) held += s->change[i].classed;
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

void memory_sweep_free(struct memory_sweep *s) {
    free(s->change), free(s->ns), free(s->total), free(s->end), free(s->held);
    memset(s, 0, sizeof *s);
}

#define OF_DEVICE "a.memory IN (" MEMORY_OF_DEVICE ") AND (?1 IS NULL OR a.device = ?1)"

int memory_sweep_load(struct report *r, int64_t device, struct memory_sweep *out, char *err, size_t err_len) {
    memset(out, 0, sizeof *out);
    int rc = add_rows(r, out, "SELECT a.alloc_ns, a.free_ns, a.bytes, NULL FROM alloc a WHERE " OF_DEVICE, device, err,
                      err_len);
    if (!rc)
        rc = add_rows(
            r, out,
            "SELECT max(a.alloc_ns, coalesce(c.from_ns, a.alloc_ns)),"
            " CASE WHEN a.free_ns IS NULL THEN c.until_ns WHEN c.until_ns IS NULL THEN a.free_ns ELSE min(a.free_ns, "
            "c.until_ns) END,"
            " c.bytes, c.class FROM alloc_class c JOIN alloc a ON a.id = c.alloc WHERE " OF_DEVICE,
            device, err, err_len);
    run_sweep(out);
    return rc;
}

const struct memory_sweep *memory_sweep_of(struct report *r, char *err, size_t err_len) {
    if (r->sweep) return r->sweep;
    struct memory_sweep *s = report_grow(NULL, 0, sizeof *s);
    if (memory_sweep_load(r, MEMORY_ALL_DEVICES, s, err, err_len)) {
        memory_sweep_free(s);
        free(s);
        return NULL;
    }
    return r->sweep = s;
}

int memory_sweep_load_kinds(struct report *r, const char *kinds, struct memory_sweep *out, char *err, size_t err_len) {
    char sql[256];
    memset(out, 0, sizeof *out);
    snprintf(sql, sizeof sql, "SELECT alloc_ns, free_ns, bytes, NULL FROM alloc WHERE memory IN (%s)", kinds);
    int rc = add_rows(r, out, sql, MEMORY_ALL_DEVICES, err, err_len);
    run_sweep(out);
    return rc;
}

int64_t memory_sweep_at(const struct memory_sweep *s, int64_t ns) {
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

int64_t memory_sweep_greatest(const struct memory_sweep *s, int64_t from, int64_t to) {
    int64_t best = from < 0 ? 0 : from;
    for (int64_t i = best; i <= to; i++)
        if (s->total[i] > s->total[best] || (s->total[i] == s->total[best] && s->held[i] > s->held[best])) best = i;
    return best;
}

int64_t memory_sweep_step_peak(const struct memory_sweep *s, const struct report_step *step) {
    if (step->start_ns == REPORT_UNKNOWN || step->end_ns == REPORT_UNKNOWN) return -1;
    int64_t to = memory_sweep_at(s, step->end_ns);
    return to < 0 ? -1 : memory_sweep_greatest(s, memory_sweep_at(s, step->start_ns), to);
}

static int by_moment(const void *a, const void *b) {
    int64_t x = ((const struct memory_request *)a)->moment, y = ((const struct memory_request *)b)->moment;
    return (x > y) - (x < y);
}

static void fill(struct report_memory *out, const struct memory_sweep *s, int64_t moment, const int64_t *classes) {
    int64_t classed = 0;
    memcpy(out->at_peak, classes, sizeof out->at_peak);
    for (int c = 0; c < REPORT_CLASSES; c++) classed += classes[c];
    out->peak_bytes = s->total[moment];
    out->peak_ns = s->ns[moment];
    out->at_peak[REPORT_UNKNOWN_CLASS] += out->peak_bytes - classed; /* bytes that the analysis says nothing of */
}

void memory_sweep_answer(const struct memory_sweep *s, struct memory_request *requests, int64_t n) {
    int64_t classes[REPORT_CLASSES] = {0}, i = 0;
    if (n) qsort(requests, (size_t)n, sizeof *requests, by_moment);
    for (int64_t q = 0; q < n; q++) {
        if (requests[q].moment < 0) {
            *requests[q].out = (struct report_memory){.peak_ns = REPORT_UNKNOWN};
            continue;
        }
        for (; i < s->end[requests[q].moment]; i++) classes[s->change[i].class] += s->change[i].classed;
        fill(requests[q].out, s, requests[q].moment, classes);
    }
}

int memory_sweep_highest(struct report *r, const char *kinds, int64_t *out, char *err, size_t err_len) {
    struct memory_sweep s;
    int rc = memory_sweep_load_kinds(r, kinds, &s, err, err_len);
    *out = 0;
    for (int64_t i = 0; i < s.moments; i++)
        if (s.total[i] > *out) *out = s.total[i];
    memory_sweep_free(&s);
    return rc;
}
