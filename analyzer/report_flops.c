/* FLOPs by step and phase; MFU, HFU and the conventions of ACCOUNTING section 4; the run's figures. */
#include "analyzer/report_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- sums ---- */

static enum report_phase phase_of(const char *name) {
    static const char *const names[] = {"forward", "backward", "optimizer", "recompute", NULL, "evaluation"};
    for (int i = 0; name && i < REPORT_PHASES; i++)
        if (names[i] && !strcmp(name, names[i])) return (enum report_phase)i;
    return PHASE_NONE;
}

static void book(struct report_flops *f, enum report_phase phase, int matmul, int format, __int128 flops,
                 int64_t uncounted) {
    f->uncounted += uncounted;
    if (!matmul) {
        f->other += flops;
        return;
    }
    f->gemm += flops;
    f->uncounted_gemm += uncounted;
    f->phase[phase] += flops;
    (phase == PHASE_RECOMPUTE ? f->recompute_by_format : f->by_format)[format] += (double)flops;
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

static int load_sums(struct report *r, char *err, size_t err_len) {
    /* Two halves: a run's sum can exceed 64 bits. */
    sqlite3_stmt *st = report_prepare(r,
                                      "SELECT step, phase, dtype, matmul, sum(flops >> 32), sum(flops & 4294967295),"
                                      " sum(flops IS NULL AND integer_ops IS NULL) FROM op_cost GROUP BY 1, 2, 3, 4",
                                      err, err_len);
    int rc;
    if (!st) return -1;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        enum report_phase phase = phase_of((const char *)sqlite3_column_text(st, 1));
        int format = devices_format_of((const char *)sqlite3_column_text(st, 2)), matmul = sqlite3_column_int(st, 3);
        __int128 flops = ((__int128)sqlite3_column_int64(st, 4) << 32) + sqlite3_column_int64(st, 5);
        int64_t uncounted = sqlite3_column_int64(st, 6);
        struct report_step *step = sqlite3_column_type(st, 0) == SQLITE_NULL || phase == PHASE_EVALUATION
                                       ? NULL
                                       : step_of(r, sqlite3_column_int64(st, 0));
        if (format < 0) format = PEAK_FORMATS;
        book(&r->flops, phase, matmul, format, flops, uncounted);
        if (phase == PHASE_EVALUATION && !matmul) r->flops.phase[PHASE_EVALUATION] += flops; /* all of evaluation */
        if (phase == PHASE_EVALUATION) r->flops.uncounted_evaluation += uncounted;
        if (step) book(&step->flops, phase, matmul, format, flops, uncounted);
    }
    return report_rows_end(r, st, rc, err, err_len);
}

static int load_uncounted(struct report *r, char *err, size_t err_len) {
    sqlite3_stmt *st = report_prepare(
        r,
        "SELECT " REPORT_FUNCTION_NAME ", count(*), sum(t.busy_ns) FROM op_cost c JOIN op ON op.id = c.op "
        "LEFT JOIN op_time t ON t.op = c.op " REPORT_FUNCTION_JOIN
        " WHERE c.flops IS NULL AND c.integer_ops IS NULL GROUP BY 1 ORDER BY 3 DESC, 2 DESC, 1",
        err, err_len);
    int rc;
    if (!st) return -1;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        r->uncounted = report_grow(r->uncounted, r->n_uncounted, sizeof *r->uncounted);
        r->uncounted[r->n_uncounted++] =
            (struct report_uncounted){report_column_text(st, 0), sqlite3_column_int64(st, 1), report_column(st, 2)};
    }
    return report_rows_end(r, st, rc, err, err_len);
}

int report_load_flops(struct report *r, char *err, size_t err_len) {
    return load_sums(r, err, err_len) || load_uncounted(r, err, err_len) ? -1 : 0;
}

/* ---- rates ---- */

/* Seconds that the peak would take; NaN where a format that was used has no peak. */
static double peak_seconds(const struct report *r, const double *by_format) {
    double s = 0;
    for (int f = 0; f <= PEAK_FORMATS; f++) {
        if (by_format[f] == 0) continue;
        if (f == PEAK_FORMATS || !(r->peak[f] > 0)) return NAN;
        s += by_format[f] / r->peak[f];
    }
    return s;
}

static void step_rates(const struct report *r, struct report_step *s) {
    double seconds = (double)s->ns * 1e-9, model = peak_seconds(r, s->flops.by_format);
    double flops = (double)(s->flops.gemm - s->flops.phase[PHASE_RECOMPUTE]);
    int64_t n[2] = {r->parameters, r->matmul_parameters};
    int known = s->ns != REPORT_UNKNOWN && s->ns > 0 && !s->flops.uncounted_gemm;
    s->mfu = s->hfu = NAN;
    for (int c = 0; c < REPORT_CONVENTIONS; c++)
        s->by_convention[c] = NAN; /* palm and causal need the shape of attention, which is not known here */
    if (!known) return;
    s->mfu = model / seconds;
    s->hfu = (model + peak_seconds(r, s->flops.recompute_by_format)) / seconds;
    if (s->tokens == REPORT_UNKNOWN || !(model > 0) || !s->complete) return;
    for (int c = 0; c < 2; c++)
        if (n[c] > 0) s->by_convention[c] = 6.0 * (double)n[c] * (double)s->tokens / flops * model / seconds;
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

static double figure(const struct report_step *s, int what) {
    double ns = s->ns == REPORT_UNKNOWN ? NAN : (double)s->ns,
           gemm = s->flops.uncounted_gemm ? NAN : (double)s->flops.gemm;
    switch (what) {
    case 0:
        return ns;
    case 1:
        return gemm;
    case 2:
        return ns > 0 ? gemm / ns * 1e9 : NAN;
    case 3:
        return s->mfu;
    case 4:
        return s->hfu;
    default:
        return s->by_convention[what - 5];
    }
}

void report_compute_rates(struct report *r) {
    struct report_spread *out[5 + REPORT_CONVENTIONS] = {&r->step_ns, &r->step_gemm, &r->rate, &r->mfu, &r->hfu};
    double *values = malloc(((size_t)r->n_steps + 1) * sizeof *values);
    int64_t complete = 0;
    if (!values) return;
    for (int c = 0; c < REPORT_CONVENTIONS; c++) out[5 + c] = &r->by_convention[c];
    for (int64_t i = 0; i < r->n_steps; i++) {
        step_rates(r, &r->steps[i]);
        complete += r->steps[i].complete != 0;
    }
    r->first_left_out = complete > 1;
    for (int what = 0; what < 5 + REPORT_CONVENTIONS; what++) {
        int n = 0, seen = 0;
        for (int64_t i = 0; i < r->n_steps; i++) {
            if (!r->steps[i].complete || (seen++ == 0 && r->first_left_out)) continue;
            values[n++] = figure(&r->steps[i], what);
        }
        *out[what] = spread(values, n);
    }
    free(values);
}
