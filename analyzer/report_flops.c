/* FLOPs by step and phase; MFU, HFU and the conventions of ACCOUNTING section 4; the run's figures. */
#include "analyzer/report_convention.h"
#include "analyzer/report_flops_rows.h"
#include "analyzer/report_sums.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- sums ---- */

const char *const report_phase_names[REPORT_PHASES] = {
    [PHASE_FORWARD] = "forward",     [PHASE_BACKWARD] = "backward", [PHASE_OPTIMIZER] = "optimizer",
    [PHASE_RECOMPUTE] = "recompute", [PHASE_NONE] = "none",         [PHASE_EVALUATION] = "evaluation"};

enum report_phase report_phase_of(const char *name) {
    for (int i = 0; name && i < REPORT_PHASES; i++)
        if (!strcmp(name, report_phase_names[i])) return (enum report_phase)i;
    return PHASE_NONE;
}

enum report_grade report_grade_of(const struct report_sum *s) {
    return s->uncounted                          ? GRADE_UNCOUNTED
           : s->user                             ? GRADE_USER
           : s->sampled                          ? GRADE_SAMPLED
           : s->unbounded || s->most != s->least ? GRADE_BOUND
                                                 : GRADE_EXACT;
}

const char *report_grade_name(enum report_grade grade) {
    static const char *const names[] = {"exact", "sampled", "bound", "uncounted", "user"};
    return names[grade];
}

void report_sum_add(struct report_sum *to, const struct report_sum *s) {
    to->least += s->least;
    to->most += s->most;
    to->unbounded += s->unbounded;
    to->sampled += s->sampled;
    to->uncounted += s->uncounted;
    to->user += s->user;
}

struct report_sum report_column_sum(sqlite3_stmt *st, int c) {
    struct report_sum s = {.unbounded = sqlite3_column_int64(st, c + 4),
                           .sampled = sqlite3_column_int64(st, c + 5),
                           .uncounted = sqlite3_column_int64(st, c + 6),
                           .user = sqlite3_column_int64(st, c + 7)};
    s.least = (__int128)sqlite3_column_int64(st, c) * ((int64_t)1 << 32) + sqlite3_column_int64(st, c + 1);
    s.most = (__int128)sqlite3_column_int64(st, c + 2) * ((int64_t)1 << 32) + sqlite3_column_int64(st, c + 3);
    return s;
}

static void book(struct report_flops *f, enum report_phase phase, int format, const struct report_sum *gemm,
                 const struct report_sum *other) {
    report_sum_add(&f->gemm, gemm);
    report_sum_add(&f->other, other);
    report_sum_add(&f->other_phase[phase], other);
    f->phase[phase] += gemm->least;
    f->phase_by_format[phase][format] += (double)gemm->least;
    (phase == PHASE_RECOMPUTE ? f->recompute_by_format : f->by_format)[format] += (double)gemm->least;
}

static struct report_step *step_of(struct report *r, int64_t id) {
    int64_t lo = 0, hi = r->n_steps;
    while (lo < hi) {
        int64_t mid = lo + (hi - lo) / 2;
        if (r->steps[mid].index < id)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < r->n_steps && r->steps[lo].index == id ? &r->steps[lo] : NULL;
}

/* An op's products are all booked in its dtype; of a launch that multiplies in several, most of them are. */
static int load_sums(struct report *r, char *err, size_t err_len) {
    static const char ops[] =
        "SELECT step, phase, dtype, " FLOPS_GEMM_SUM ", " FLOPS_OTHER_SUM " FROM op_cost GROUP BY 1, 2, 3";
    static const char sums[] =
        "SELECT step, phase, dtype, " SUMS_OF_STEP("matmul") ", " SUMS_OF_STEP("other") " FROM step_sum";
    sqlite3_stmt *st = report_prepare(r, report_has_sums(r) ? sums : ops, err, err_len);
    int rc;
    if (!st) return -1;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        enum report_phase phase = report_phase_of((const char *)sqlite3_column_text(st, 1));
        int format = devices_format_of((const char *)sqlite3_column_text(st, 2));
        struct report_sum gemm = report_column_sum(st, 3), other = report_column_sum(st, 3 + REPORT_SUM_WIDTH);
        struct report_step *step = sqlite3_column_type(st, 0) == SQLITE_NULL || phase == PHASE_EVALUATION
                                       ? NULL
                                       : step_of(r, sqlite3_column_int64(st, 0));
        if (format < 0) format = PEAK_FORMATS;
        book(&r->flops, phase, format, &gemm, &other);
        if (step) book(&step->flops, phase, format, &gemm, &other);
        if (phase != PHASE_EVALUATION) continue;
        report_sum_add(&r->evaluation, &gemm);
        report_sum_add(&r->evaluation, &other);
    }
    return report_rows_end(r, st, rc, err, err_len);
}

#define WHY_UNCOUNTED(kind)                                                                                       \
    "coalesce(min(p.why), min(CASE " kind " WHEN 'gemm' THEN 'its FLOPs do not fit in 64 bits, or a size is not " \
    "known' WHEN 'blas' THEN 'no formula for this routine, or a size is not known' END))"
#define IS_UNCOUNTED " WHERE c.flops IS NULL AND c.integer_ops IS NULL GROUP BY 1 ORDER BY 4 DESC, 3 DESC, 1"

static int load_uncounted(struct report *r, char *err, size_t err_len) {
    static const char ops[] = "SELECT " REPORT_FUNCTION_NAME
                              ", " WHY_UNCOUNTED("op.kind") ", count(*), sum(t.busy_ns), sum(op.kind = "
                                                            "'launch') FROM op_cost c JOIN op ON op.id = c.op LEFT "
                                                            "JOIN op_time t ON t.op = c.op LEFT JOIN price p ON p.id "
                                                            "= c.price " REPORT_FUNCTION_JOIN IS_UNCOUNTED;
    static const char sums[] =
        "SELECT " SUMS_FUNCTION_NAME ", " WHY_UNCOUNTED("c.kind") ", sum(c.ops), sum(c.busy_ns), "
                                                                  "sum((c.kind = 'launch') * c.ops)" SUMS_FROM
                                                                  "LEFT JOIN price p ON p.id = c.price" IS_UNCOUNTED;
    sqlite3_stmt *st = report_prepare(r, report_has_sums(r) ? sums : ops, err, err_len);
    int rc;
    if (!st) return -1;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        r->uncounted = report_grow(r->uncounted, r->n_uncounted, sizeof *r->uncounted);
        r->uncounted[r->n_uncounted++] = (struct report_uncounted){report_column_text(st, 0), report_column_text(st, 1),
                                                                   sqlite3_column_int64(st, 2), report_column(st, 3)};
        r->launches_uncounted += sqlite3_column_int64(st, 4);
    }
    return report_rows_end(r, st, rc, err, err_len);
}

int report_load_flops(struct report *r, char *err, size_t err_len) {
    return load_sums(r, err, err_len) || load_uncounted(r, err, err_len) ? -1 : 0;
}

/* ---- rates ---- */

double report_peak_seconds(const struct report *r, const double *by_format) {
    double s = 0;
    for (int f = 0; f <= PEAK_FORMATS; f++) {
        if (by_format[f] == 0) continue;
        if (f == PEAK_FORMATS || !(r->peak[f] > 0)) return NAN;
        s += by_format[f] / r->peak[f];
    }
    return s;
}

static void step_rates(const struct report *r, struct report_step *s) {
    double seconds = (double)s->ns * 1e-9, model = report_peak_seconds(r, s->flops.by_format);
    double flops = (double)(s->flops.gemm.least - s->flops.phase[PHASE_RECOMPUTE]);
    static const enum way ways[REPORT_CONVENTIONS] = {WAY_6N, WAY_6N_MATMUL, WAY_PALM, WAY_CAUSAL};
    int known = s->ns != REPORT_UNKNOWN && s->ns > 0 && !s->flops.gemm.uncounted;
    s->mfu = s->hfu = NAN;
    for (int c = 0; c < REPORT_CONVENTIONS; c++) s->by_convention[c] = NAN;
    if (!known) return;
    s->mfu = model / seconds;
    s->hfu = (model + report_peak_seconds(r, s->flops.recompute_by_format)) / seconds;
    if (s->tokens == REPORT_UNKNOWN || !(model > 0) || !s->complete) return;
    for (int c = 0; c < REPORT_CONVENTIONS; c++) {
        struct report_way w;
        report_way_of(r, s - r->steps, ways[c], &w);
        if (!w.lacks) s->by_convention[c] = (double)w.flops / flops * model / seconds;
    }
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* values is sorted; NaNs make the whole unknown. */
static struct report_spread spread(double *values, int n) {
    for (int i = 0; i < n; i++)
        if (isnan(values[i])) return (struct report_spread){NAN, NAN, NAN, 0};
    if (!n) return (struct report_spread){NAN, NAN, NAN, 0};
    qsort(values, (size_t)n, sizeof *values, ascending);
    return (struct report_spread){n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2, values[0],
                                  values[n - 1], n};
}

enum { FIGURES = 6 }; /* without the conventions */
static double figure(const struct report_step *s, int what) {
    double ns = s->ns == REPORT_UNKNOWN ? NAN : (double)s->ns,
           gemm = s->flops.gemm.uncounted ? NAN : (double)s->flops.gemm.least;
    switch (what) {
    case 0:
        return ns;
    case 1:
        return gemm;
    case 2:
        return s->flops.other.uncounted ? NAN : (double)s->flops.other.least;
    case 3:
        return ns > 0 ? gemm / ns * 1e9 : NAN;
    case 4:
        return s->mfu;
    case 5:
        return s->hfu;
    default:
        return s->by_convention[what - FIGURES];
    }
}

void report_compute_rates(struct report *r) {
    struct report_spread *out[FIGURES + REPORT_CONVENTIONS] = {&r->step_ns, &r->step_gemm, &r->step_other,
                                                               &r->rate,    &r->mfu,       &r->hfu};
    double *values = malloc(((size_t)r->n_steps + 1) * sizeof *values);
    int64_t complete = 0;
    if (!values) return;
    for (int c = 0; c < REPORT_CONVENTIONS; c++) out[FIGURES + c] = &r->by_convention[c];
    for (int64_t i = 0; i < r->n_steps; i++) {
        step_rates(r, &r->steps[i]);
        complete += r->steps[i].complete != 0;
    }
    r->first_left_out = complete > 1;
    for (int what = 0; what < FIGURES + REPORT_CONVENTIONS; what++) {
        int n = 0, seen = 0;
        for (int64_t i = 0; i < r->n_steps; i++) {
            if (!r->steps[i].complete || (seen++ == 0 && r->first_left_out)) continue;
            values[n++] = figure(&r->steps[i], what);
        }
        *out[what] = spread(values, n);
    }
    free(values);
}
