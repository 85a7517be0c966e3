/* acct flops [--step N] [--flops-rules FILE] TRACE…: who did the FLOPs, how they are known, and what conventions make
 * of them. */
#include "analyzer/report_convention.h"
#include "analyzer/report_flops_rows.h"
#include "analyzer/report_flops_rules.h"
#include "analyzer/report_print.h"
#include "analyzer/view.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { OPT_STEP = VIEW_OPTIONS, OPT_RULES };
static const struct option_spec options[] = {
    VIEW_OPTION_ROWS,
    [OPT_STEP] = {"step", 0, OPTION_VALUE, "N", "step N alone (default: machines get all, people the last whole one)"},
    [OPT_RULES] = VIEW_FLOPS_RULES_ROW,
    {0},
};

/* ---- totals ---- */

static void print_totals(struct emitter *e, const struct report *r) {
    struct report_sum all = r->flops.gemm;
    report_sum_add(&all, &r->flops.other);
    emit_object(e, "totals", "FLOPs of the run", LOOK_FIELDS);
    report_print_sum(e, "flops", NULL, &all);
    emit_text(e, "grade", NULL, report_grade_name(report_grade_of(&all)));
    report_print_sum(e, "gemm", "matrix products", &r->flops.gemm);
    report_print_sum(e, "other", "all else", &r->flops.other);
    report_print_sum(e, "evaluation", r->evaluation.most || r->evaluation.uncounted ? "of these, evaluation" : NULL,
                     &r->evaluation);
    emit_int(e, "recompute", r->flops.phase[PHASE_RECOMPUTE] ? "of these, recomputed products" : NULL, UNIT_FLOPS,
             r->flops.phase[PHASE_RECOMPUTE]);
    emit_real(e, "counted_time_share", r->busy_ns ? "device time counted" : NULL, UNIT_SHARE, r->counted_time_share);
    emit_real(e, "exact_time_share", r->busy_ns ? "counted exactly" : NULL, UNIT_SHARE, r->exact_time_share);
    emit_end(e);
}

/* For people: a line a step; machines find all of it in the list of steps. */
static void print_overview(struct emitter *e, const struct report *r) {
    if (!emit_for_people(e) || !r->n_steps) return;
    emit_list(e, NULL, "Steps (FLOPs of matrix products by phase)", LOOK_TABLE);
    for (int64_t i = 0; i < r->n_steps; i++) {
        const struct report_step *s = &r->steps[i];
        emit_object(e, NULL, NULL, LOOK_FIELDS);
        emit_int(e, NULL, "step", UNIT_NONE, s->index);
        if (s->tokens == REPORT_UNKNOWN)
            emit_null(e, NULL, "tokens");
        else
            emit_int(e, NULL, "tokens", UNIT_NONE, s->tokens);
        report_print_flops(e, r, &s->flops);
        emit_end(e);
    }
    emit_end(e);
}

/* ---- steps ---- */

static void print_row(struct emitter *e, const struct report *r, const struct flops_row *row) {
    struct report_sum all = row->gemm;
    report_sum_add(&all, &row->other);
    emit_object(e, "", NULL, LOOK_FIELDS);
    emit_text(e, "phase", "phase", row->phase ? row->phase : emit_for_people(e) ? "-" : NULL);
    if (row->micro_batch == REPORT_UNKNOWN)
        emit_null(e, "micro_batch", NULL);
    else
        emit_int(e, "micro_batch", "micro-batch", UNIT_NONE, row->micro_batch);
    emit_text(e, "kind", "kind", row->kind);
    emit_text(e, "dtype", "type", row->dtype ? row->dtype : emit_for_people(e) ? "-" : NULL);
    emit_int(e, "calls", "calls", UNIT_NONE, row->calls);
    report_print_sum(e, "gemm", "products", &row->gemm);
    report_print_sum(e, "other", "other FLOPs", &row->other);
    emit_text(e, "grade", "grade", report_grade_name(report_grade_of(&all)));
    emit_int(e, "integer_ops", NULL, UNIT_NONE, row->integer_ops.least);
    if (row->time_ns == REPORT_UNKNOWN)
        emit_null(e, "time_ns", r->busy_ns ? "device time" : NULL);
    else
        emit_int(e, "time_ns", r->busy_ns ? "device time" : NULL, UNIT_NS, row->time_ns);
    emit_end(e);
}

static void print_rows(struct emitter *e, const struct report *r, const struct flops_rows *rows, const char *key,
                       const char *label) {
    emit_list(e, key, rows->n ? label : NULL, rows->n ? LOOK_TABLE : LOOK_HIDDEN);
    for (int64_t i = 0; i < rows->n; i++) print_row(e, r, &rows->row[i]);
    emit_end(e);
}

/* Integer products are operations, not FLOPs: a list of their own where there are any. */
static void print_integer_products(struct emitter *e, const struct flops_rows *rows, const char *label) {
    int any = 0;
    for (int64_t i = 0; i < rows->n; i++) any |= rows->row[i].integer_ops.least != 0;
    if (!any || !emit_for_people(e)) return;
    emit_list(e, NULL, label, LOOK_TABLE);
    for (int64_t i = 0; i < rows->n; i++) {
        char digits[48];
        if (!rows->row[i].integer_ops.least) continue;
        emit_digits(digits, rows->row[i].integer_ops.least);
        emit_object(e, NULL, NULL, LOOK_FIELDS);
        emit_text(e, NULL, "phase", rows->row[i].phase ? rows->row[i].phase : "-");
        emit_text(e, NULL, "type", rows->row[i].dtype);
        emit_int(e, NULL, "calls", UNIT_NONE, rows->row[i].calls);
        emit_text(e, NULL, "ops", digits);
        emit_end(e);
    }
    emit_end(e);
}

static int print_parts(struct emitter *e, struct report *r, int64_t index, const char *label, char *err,
                       size_t err_len) {
    sqlite3_stmt *st = report_prepare(
        r, "SELECT part, products, flops FROM step_product WHERE step = ? ORDER BY flops DESC, part", err, err_len);
    int rc, some = 0;
    if (!st) return -1;
    sqlite3_bind_int64(st, 1, index);
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        if (!some++) emit_list(e, "products", label, LOOK_TABLE);
        emit_object(e, "", NULL, LOOK_FIELDS);
        emit_text(e, "part", "part", (const char *)sqlite3_column_text(st, 0));
        emit_int(e, "products", "products", UNIT_NONE, sqlite3_column_int64(st, 1));
        if (sqlite3_column_type(st, 2) == SQLITE_NULL)
            emit_null(e, "flops", "FLOPs");
        else
            emit_int(e, "flops", "FLOPs", UNIT_FLOPS, sqlite3_column_int64(st, 2));
        emit_end(e);
    }
    if (!some) emit_list(e, "products", NULL, LOOK_HIDDEN);
    emit_end(e);
    return report_rows_end(r, st, rc, err, err_len);
}

static int print_step(struct emitter *e, struct report *r, const struct report_step *s, const struct flops_rows *rows,
                      char *err, size_t err_len) {
    char label[96], parts[96], integers[96];
    snprintf(label, sizeof label, "Step %" PRId64 " by phase, kind and type", s->index);
    snprintf(parts, sizeof parts, "Step %" PRId64 ": matrix products by what they are for", s->index);
    snprintf(integers, sizeof integers, "Step %" PRId64 ": integer products (operations, no FLOPs)", s->index);
    emit_object(e, "", NULL, LOOK_FIELDS);
    emit_int(e, "index", NULL, UNIT_NONE, s->index);
    emit_bool(e, "complete", NULL, s->complete);
    if (s->tokens == REPORT_UNKNOWN)
        emit_null(e, "tokens", NULL);
    else
        emit_int(e, "tokens", NULL, UNIT_NONE, s->tokens);
    if (!emit_for_people(e)) report_print_flops(e, r, &s->flops);
    print_rows(e, r, rows, "rows", label);
    print_integer_products(e, rows, integers);
    int rc = print_parts(e, r, s->index, parts, err, err_len);
    emit_end(e);
    return rc;
}

/* Place in r->steps; without a whole one the last; -1: there is none. */
static int64_t last_whole(const struct report *r) {
    for (int64_t i = r->n_steps - 1; i >= 0; i--)
        if (r->steps[i].complete) return i;
    return r->n_steps - 1;
}

static int print_all_steps(struct emitter *e, struct report *r, char *err, size_t err_len) {
    struct flops_walk walk;
    if (flops_walk_begin(r, &walk, err, err_len)) return -1;
    int rc = 0;
    for (int64_t i = 0; i < r->n_steps && !rc; i++) {
        struct flops_rows rows;
        flops_walk_step(&walk, r->steps[i].index, &rows);
        rc = print_step(e, r, &r->steps[i], &rows, err, err_len);
        flops_rows_free(&rows);
    }
    char why[1024];
    if (!flops_walk_end(r, &walk, why, sizeof why) || rc) return rc;
    snprintf(err, err_len, "%s", why);
    return -1;
}

static int print_one_step(struct emitter *e, struct report *r, const struct report_step *s, char *err, size_t err_len) {
    struct flops_rows rows;
    if (flops_rows_of_step(r, s->index, &rows, err, err_len)) return -1;
    int rc = print_step(e, r, s, &rows, err, err_len);
    flops_rows_free(&rows);
    return rc;
}

/* People see one step: `one`, the last whole one or the one they ask for. */
static int print_steps(struct emitter *e, struct report *r, int64_t one, int all, char *err, size_t err_len) {
    int rc = 0;
    emit_list(e, "steps", NULL, LOOK_FIELDS);
    if (all)
        rc = print_all_steps(e, r, err, err_len);
    else if (one >= 0 && one < r->n_steps)
        rc = print_one_step(e, r, &r->steps[one], err, err_len);
    emit_end(e);
    return rc;
}

/* ---- all ---- */

static int print(struct emitter *e, struct report *r, const struct arguments *args, char *err, size_t err_len) {
    struct flops_rows outside = {0};
    int64_t one = view_step(r, args, OPT_STEP, last_whole(r), err, err_len);
    if (one == VIEW_STEP_NONE) return -1;
    if (flops_rows_of_step(r, REPORT_UNKNOWN, &outside, err, err_len)) return -1;
    view_open(e, r);
    print_totals(e, r);
    print_overview(e, r);
    int rc = print_steps(e, r, one, !emit_for_people(e) && !args->given[OPT_STEP], err, err_len);
    if (!rc) {
        print_rows(e, r, &outside, "outside", "Outside of steps (evaluation, initialisation)");
        print_integer_products(e, &outside, "Outside of steps: integer products (operations, no FLOPs)");
        report_print_conventions(e, r);
        report_print_difference(e, r);
        report_print_model(e, r);
        flops_rules_print(e, r->flops_rules);
        report_print_coverage(e, r);
        view_notes(e, r);
    }
    emit_end(e);
    flops_rows_free(&outside);
    return rc;
}

static int parse(const struct arguments *args) {
    int64_t n = 0;
    return view_number(args, OPT_STEP, INT32_MAX, &n);
}

static int flops(const struct arguments *args) {
    static const struct view view = {.parse = parse, .print = print, .table_limit = 40};
    return view_run(args, &view);
}

const struct command cmd_flops = {
    .name = "flops",
    .synopsis = "FLOPs by step, phase, type and kind; conventions; 6NT against what ran",
    .usage = VIEW_USAGE " [--step N] [--flops-rules FILE] TRACE...",
    .details = "Matrix products are counted from their calls, kernels from their PTX; each figure has a grade. What "
               "has no count is listed\n"
               "with its share of device time. A file of rules prices such kernels by name, a line each, as\n"
               "  name=flash_fwd* flops=4*b*h*t*t*d b=8 h=12 t=1024 d=64 matmul=1 dtype=bf16\n",
    .options = options,
    .usage_exit = CMD_EXIT_USAGE,
    .function = flops,
};
