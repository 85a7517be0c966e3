/* acct steps [--why] [--step N] TRACE…: a row a step: time, tokens, phases, MFU; where the time goes. */
#include "analyzer/report_print.h"
#include "analyzer/report_why.h"
#include "analyzer/view.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPT_WHY = VIEW_OPTIONS, OPT_STEP, OPT_FLOPS_RULES };
static const struct option_spec options[] = {
    VIEW_OPTION_ROWS,
    [OPT_WHY] = {"why", 'w', OPTION_FLAG, NULL, "split each step's time; show the arithmetic of one step"},
    [OPT_STEP] = {"step", 's', OPTION_VALUE, "N", "with --why, that of step N (default: the step of median time)"},
    [OPT_FLOPS_RULES] = VIEW_FLOPS_RULES_ROW,
    {0},
};

static int parse(const struct arguments *args) {
    int64_t n = 0;
    return view_number(args, OPT_STEP, INT32_MAX, &n);
}

/* ---- rows ---- */

static double per_second(int64_t amount, int64_t ns) {
    return amount == REPORT_UNKNOWN || ns == REPORT_UNKNOWN || ns <= 0 ? NAN : 1e9 * (double)amount / (double)ns;
}

/* The host's time of a phase: from its first call to its last, of all micro-batches. Recompute lies in backward. */
static int64_t host_phase_ns(const struct report *r, const struct report_step *s, enum report_phase phase) {
    int64_t ns = 0, any = 0, lo = 0, hi = r->n_phases;
    while (lo < hi) { /* they are in the order of steps */
        int64_t mid = lo + (hi - lo) / 2;
        if (r->phases[mid].step < s->index)
            lo = mid + 1;
        else
            hi = mid;
    }
    for (; lo < r->n_phases && r->phases[lo].step == s->index; lo++) {
        const struct report_phase_row *p = &r->phases[lo];
        if (report_phase_of(p->name) != phase || p->start_ns == REPORT_UNKNOWN) continue;
        ns += p->end_ns - p->start_ns;
        any = 1;
    }
    return any ? ns : REPORT_UNKNOWN;
}

/* In the order of a step. */
static const enum report_phase phase_ids[] = {PHASE_FORWARD, PHASE_BACKWARD, PHASE_RECOMPUTE, PHASE_OPTIMIZER};
enum { PHASES = sizeof phase_ids / sizeof *phase_ids };

static int64_t phase_ns(const struct report *r, const struct report_step *s, const struct split_step *split,
                        enum report_phase phase) {
    if (s->ns == REPORT_UNKNOWN) return REPORT_UNKNOWN;
    return split->on_device ? split->phase_ns[phase] : host_phase_ns(r, s, phase);
}

/* For machines, in the row of the step. */
static void print_row_phases(struct emitter *e, const struct report *r, const struct report_step *s,
                             const struct split_step *split) {
    emit_list(e, "phases", NULL, LOOK_HIDDEN);
    for (int p = 0; p < PHASES; p++) {
        int64_t ns = phase_ns(r, s, split, phase_ids[p]);
        double peak = report_peak_seconds(r, s->flops.phase_by_format[phase_ids[p]]);
        int device = split->on_device && ns > 0 && !s->flops.gemm.uncounted;
        emit_object(e, "", NULL, LOOK_FIELDS);
        emit_text(e, "name", NULL, report_phase_names[phase_ids[p]]);
        report_print_int(e, "ns", NULL, UNIT_NS, ns);
        emit_int(e, "gemm_flops", NULL, UNIT_FLOPS, s->flops.phase[phase_ids[p]]);
        emit_real(e, "peak_ns", NULL, UNIT_NS, 1e9 * peak);
        emit_real(e, "hfu", NULL, UNIT_SHARE, device ? 1e9 * peak / (double)ns : NAN);
        emit_end(e);
    }
    emit_end(e);
}

static void print_busy(struct emitter *e, const struct split_step *split) {
    int known = split->on_device && split->ns != REPORT_UNKNOWN;
    report_print_int(e, "busy_ns", NULL, UNIT_NS, known ? split->busy_ns : REPORT_UNKNOWN);
    report_print_int(e, "sum_ns", NULL, UNIT_NS, known ? split->sum_ns : REPORT_UNKNOWN);
    emit_real(e, "busy_share", "device busy", UNIT_SHARE,
              known && split->ns > 0 ? (double)split->busy_ns / (double)split->ns : NAN);
}

static double three_digits(const struct emitter *e, double v) {
    if (!emit_for_people(e) || isnan(v) || v < 1000) return v;
    return round(v);
}

static void print_row(struct emitter *e, const struct report *r, const struct report_step *s,
                      const struct split_step *split) {
    int counted = s->ns != REPORT_UNKNOWN && s->ns > 0 && !s->flops.gemm.uncounted;
    emit_object(e, "", NULL, LOOK_FIELDS);
    emit_int(e, "index", "step", UNIT_NONE, s->index);
    report_print_int(e, "time_ns", "time", UNIT_NS, s->ns);
    report_print_int(e, "tokens", "tokens", UNIT_NONE, s->tokens);
    report_print_int(e, "micro_batches", "micro-batches", UNIT_NONE, s->micro_batches);
    emit_real(e, "tokens_per_s", "tokens/s", UNIT_NONE, three_digits(e, per_second(s->tokens, s->ns)));
    report_print_sum(e, "gemm_flops", "products", &s->flops.gemm);
    emit_real(e, "flops_per_s", "rate", UNIT_FLOPS_PER_S,
              counted ? 1e9 * (double)s->flops.gemm.least / (double)s->ns : NAN);
    emit_real(e, "peak_ns", NULL, UNIT_NS,
              s->flops.gemm.uncounted ? NAN : 1e9 * report_peak_seconds(r, s->flops.by_format)); /* mfu * time_ns */
    emit_real(e, "mfu", "MFU", UNIT_SHARE, s->mfu);
    emit_real(e, "hfu", r->flops.phase[PHASE_RECOMPUTE] ? "HFU" : NULL, UNIT_SHARE, s->hfu);
    print_busy(e, split);
    emit_int(e, "peak_bytes", "peak memory", UNIT_BYTES, s->memory.peak_bytes);
    emit_bool(e, "complete", NULL, s->complete);
    emit_text(e, NULL, "end", s->complete ? "complete" : "cut off");
    emit_text(e, "found_by", "found by", *s->found_by ? s->found_by : NULL);
    print_row_phases(e, r, s, split);
    why_print_parts(e, split);
    emit_end(e);
}

/* For people, a table of its own. */
static void print_phases(struct emitter *e, const struct report *r, const struct split_step *split) {
    if (!emit_for_people(e) || !r->n_steps) return;
    emit_list(e, NULL,
              r->on_device ? "Phases: time by the device's clock, FLOPs of products"
                           : "Phases: time by the host's clock, FLOPs of products",
              LOOK_TABLE);
    for (int64_t i = 0; i < r->n_steps; i++) {
        emit_object(e, NULL, NULL, LOOK_FIELDS);
        emit_int(e, NULL, "step", UNIT_NONE, r->steps[i].index);
        for (int p = 0; p < PHASES; p++) {
            if (phase_ids[p] == PHASE_RECOMPUTE && !r->flops.phase[PHASE_RECOMPUTE]) continue;
            report_print_int(e, NULL, report_phase_names[phase_ids[p]], UNIT_NS,
                             phase_ns(r, &r->steps[i], &split[i], phase_ids[p]));
            emit_int(e, NULL, "FLOPs", UNIT_FLOPS, r->steps[i].flops.phase[phase_ids[p]]);
        }
        emit_end(e);
    }
    emit_end(e);
}

/* ---- --why ---- */

static void print_parts(struct emitter *e, const struct report *r, const struct split_step *split) {
    int used[SPLIT_PARTS] = {0};
    if (!emit_for_people(e) || !r->n_steps || !r->on_device) return;
    for (int64_t i = 0; i < r->n_steps; i++)
        for (int p = 0; p < SPLIT_PARTS; p++) used[p] |= split_part_ns(&split[i], (enum split_part)p) > 0;
    emit_list(e, NULL, "Where the time of each step goes", LOOK_TABLE);
    for (int64_t i = 0; i < r->n_steps; i++) {
        emit_object(e, NULL, NULL, LOOK_FIELDS);
        emit_int(e, NULL, "step", UNIT_NONE, r->steps[i].index);
        report_print_int(e, NULL, "time", UNIT_NS, r->steps[i].ns);
        for (int p = 0; p < SPLIT_PARTS; p++)
            if (used[p])
                emit_real(e, NULL, split_part_name((enum split_part)p), UNIT_SHARE,
                          split[i].ns > 0 ? (double)split_part_ns(&split[i], (enum split_part)p) / (double)split[i].ns
                                          : NAN);
        emit_end(e);
    }
    emit_end(e);
}

/* Of all steps, then of step i. */
static void print_why(struct emitter *e, const struct report *r, const struct split_step *split, int64_t i) {
    print_parts(e, r, split);
    why_print(e, r, i >= 0 ? &split[i] : NULL);
    if (i >= 0 && r->on_device && emit_for_people(e)) why_print_phases(e, r, &split[i], "Phases of this step");
}

/* ---- the document ---- */

static const char *clock_words(const struct report *r) {
    return !r->on_device                       ? "the host's clock: times of phases and calls are the host's"
           : !strcmp(r->device_clock, "model") ? "a model's clock (roofline)"
           : !strcmp(r->device_clock, "cpu")   ? "the clock of this machine's processors, which are the device"
                                               : "the device's clock (CUPTI)";
}

static void print_rows(struct emitter *e, const struct report *r, const struct split_step *split) {
    char label[160];
    snprintf(label, sizeof label, r->n_steps ? "Steps, by %s" : "No step was found", clock_words(r));
    emit_text(e, "clock", NULL, r->on_device ? r->device_clock : "host");
    emit_list(e, "steps", label, r->n_steps ? LOOK_TABLE : LOOK_LINES);
    for (int64_t i = 0; i < r->n_steps; i++) print_row(e, r, &r->steps[i], &split[i]);
    emit_end(e);
}

static int print(struct emitter *e, struct report *r, const struct arguments *args, char *err, size_t err_len) {
    struct split_step *split = NULL;
    int64_t one = view_step(r, args, OPT_STEP, why_median_step(r), err, err_len);
    if (one == VIEW_STEP_NONE) return -1;
    int rc = split_steps(r, 0, r->n_steps, &split, err, err_len);
    if (!rc) {
        view_open(e, r);
        print_rows(e, r, split);
        print_phases(e, r, split);
        if (args->given[OPT_WHY] || args->given[OPT_STEP]) print_why(e, r, split, one);
        report_print_run(e, r);
        view_notes(e, r);
        emit_end(e);
    }
    free(split);
    return rc;
}

static int steps(const struct arguments *args) {
    return view_run(args, &(struct view){.parse = parse, .print = print, .table_limit = 40});
}

const struct command cmd_steps = {
    .name = "steps",
    .synopsis = "time, tokens, MFU of each step; with --why, where the time goes",
    .usage = VIEW_USAGE " [--why] [--step N] [--flops-rules FILE] TRACE...",
    .details =
        "--why books each moment of a step once: bound by compute, by memory, by launches, copies, communication, "
        "idle; the parts\n"
        "sum to the step's time. Without device times the host's time is split by the calls that it was in.\n",
    .options = options,
    .usage_exit = CMD_EXIT_USAGE,
    .function = steps,
};
