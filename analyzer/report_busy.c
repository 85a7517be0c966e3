/* The device's time over the run: span, union, sum, and what is not of any call. */
#include "analyzer/report_busy.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct stretch {
    int64_t start, end;
};

static int by_start(const void *a, const void *b) {
    const struct stretch *x = a, *y = b;
    return (x->start > y->start) - (x->start < y->start);
}

/* Records come nearly in the order of time; where they do not, they are sorted. */
static int64_t union_of(struct stretch *s, int64_t n) {
    int64_t ns = 0, until = INT64_MIN;
    for (int64_t i = 1; i < n; i++)
        if (s[i].start < s[i - 1].start) {
            qsort(s, (size_t)n, sizeof *s, by_start);
            break;
        }
    for (int64_t i = 0; i < n; i++) {
        if (s[i].end <= until) continue;
        ns += s[i].end - (s[i].start > until ? s[i].start : until);
        until = s[i].end;
    }
    return ns;
}

/* Into b; *out is malloc'ed, b->activities long. */
static int load_activities(struct report *r, struct report_busy *b, struct stretch **out, char *err, size_t err_len) {
    sqlite3_stmt *st = report_prepare(r, "SELECT start_ns, end_ns, graph_node > 0 FROM activity", err, err_len);
    int rc;
    if (!st) return -1;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        struct stretch s = {sqlite3_column_int64(st, 0), sqlite3_column_int64(st, 1)};
        if (s.start <= 0 || s.end < s.start || s.end > (int64_t)1 << 62) { /* NULL is 0 here */
            b->unusable++;
            continue;
        }
        if (!b->activities || s.start < b->start_ns) b->start_ns = s.start;
        if (!b->activities || s.end > b->end_ns) b->end_ns = s.end;
        b->sum_ns += s.end - s.start;
        if (sqlite3_column_int(st, 2)) {
            b->graph++;
            b->graph_ns += s.end - s.start;
        }
        *out = report_grow(*out, b->activities, sizeof **out);
        (*out)[b->activities++] = s;
    }
    return report_rows_end(r, st, rc, err, err_len);
}

/* What op_time does not have. */
static int load_others(struct report *r, struct report_busy *b, char *err, size_t err_len) {
    sqlite3_stmt *st =
        report_prepare(r, "SELECT coalesce(sum(activities), 0), coalesce(sum(busy_ns), 0) FROM op_time", err, err_len);
    int rc;
    if (!st) return -1;
    if ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        b->others = b->activities - sqlite3_column_int64(st, 0);
        b->others_ns = b->sum_ns - sqlite3_column_int64(st, 1);
        rc = sqlite3_step(st);
    }
    if (b->others < 0 || b->others_ns < 0) b->others = b->others_ns = 0; /* an analysis that knew less */
    return report_rows_end(r, st, rc, err, err_len);
}

static double percent(const struct report_busy *b, int64_t ns) {
    return b->sum_ns > 0 ? 100.0 * (double)ns / (double)b->sum_ns : 0;
}

static void note(struct report *r, const struct report_busy *b) {
    if (b->unusable)
        report_note(
            r,
            "%lld activity records tell no time (a time stamp of 0, or an end before the beginning): they are left "
            "out of all times.",
            (long long)b->unusable);
    /* What a graph's launch did is seen by its activities only. */
    if (b->graph)
        report_note(r,
                    "%lld kernels, copies and memsets were done by launches of CUDA graphs, which are not recorded: a "
                    "captured call counts once, however often it was launched, and %.0f %% of the device's time is of "
                    "no call. Totals, FLOPs, bytes and rates are lower bounds, whatever their grade.",
                    (long long)b->graph, percent(b, b->graph_ns));
    if (b->others > b->graph)
        report_note(r,
                    "%lld of %lld kernels, copies and memsets, %.1f %% of the device's time, are of no recorded call "
                    "(it was made before recording began, or its record was lost): no op, step or phase has them.",
                    (long long)(b->others - b->graph), (long long)b->activities,
                    percent(b, b->others_ns - b->graph_ns));
}

int report_load_busy(struct report *r, char *err, size_t err_len) {
    struct stretch *all = NULL;
    r->busy = report_grow(NULL, 0, sizeof *r->busy);
    memset(r->busy, 0, sizeof *r->busy);
    int rc = load_activities(r, r->busy, &all, err, err_len);
    if (!rc) {
        r->busy->union_ns = union_of(all, r->busy->activities);
        r->busy_ns = r->busy->sum_ns;
        rc = load_others(r, r->busy, err, err_len);
    }
    free(all);
    if (!rc) note(r, r->busy);
    return rc;
}

void report_print_busy(struct emitter *e, const struct report *r) {
    const struct report_busy *b = r->busy;
    if (!b || !b->activities) {
        emit_null(e, "device_time", NULL);
        return;
    }
    int64_t span = b->end_ns - b->start_ns;
    emit_object(e, "device_time", "Device time", LOOK_FIELDS);
    emit_int(e, "span_ns", "from first to last", UNIT_NS, span);
    emit_int(e, "busy_ns", "busy", UNIT_NS, b->union_ns);
    emit_real(e, "busy_share", "share busy", UNIT_SHARE, span > 0 ? (double)b->union_ns / (double)span : NAN);
    emit_int(e, "idle_ns", NULL, UNIT_NS, span - b->union_ns);
    emit_int(e, "sum_ns", b->sum_ns > b->union_ns ? "sum over streams" : NULL, UNIT_NS, b->sum_ns);
    emit_int(e, "activities", NULL, UNIT_NONE, b->activities);
    emit_int(e, "unusable", NULL, UNIT_NONE, b->unusable);
    emit_int(e, "unattributed", b->others ? "of no recorded call" : NULL, UNIT_NONE, b->others);
    emit_int(e, "unattributed_ns", b->others ? "their time" : NULL, UNIT_NS, b->others_ns);
    emit_end(e);
}
