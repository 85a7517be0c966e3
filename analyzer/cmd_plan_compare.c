/* acct plan compare TRACE…: what formulas say of a program beside what was measured of it, and the gap by name: memory
 * by class, FLOPs of a step by convention, its time at peak. The plan is that of the options (recipe, model,
 * parameters); what they leave out is taken from what the trace tells. */
#include "analyzer/memory_books.h"
#include "analyzer/plan_sheet.h"
#include "analyzer/report_convention.h"
#include "analyzer/report_print.h"
#include "analyzer/report_split.h"
#include "analyzer/view.h"
#include "plan/plan_memory.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPT_RECIPE = VIEW_OPTIONS, OPT_PARAMS, OPT_MODEL, OPT_RECOMPUTE, OPT_NO_DROPOUT };
static const struct option_spec options[] = {
    VIEW_OPTION_ROWS,
    [OPT_RECIPE] = {"recipe", 0, OPTION_VALUE, "R", "the plan's recipe, as of acct plan memory (what the trace shows)"},
    [OPT_PARAMS] = {"params", 'n', OPTION_VALUE, "N", "the plan's parameters (the model's, or what the trace shows)"},
    [OPT_MODEL] = {"model", 'm', OPTION_VALUE, "SPEC",
                   "the plan's model, as of acct plan memory (what the trace shows)"},
    [OPT_RECOMPUTE] = {"recompute", 0, OPTION_VALUE, "WHAT", "none (default), selective or full, with --model"},
    [OPT_NO_DROPOUT] = {"no-dropout", 0, OPTION_FLAG, NULL, "the plan's transformer has no dropout, with --model"},
    {0},
};
static const char *const recomputes[] = {"none", "selective", "full", NULL};

/* What the options say. Parsed before a trace is opened, and again for each. */
struct wanted {
    const struct plan_recipe *recipe; /* NULL: not given */
    int64_t parameters;               /* 0: not given */
    struct plan_model model;
    int has_model, recompute, no_dropout;
};

static int parse_wanted(const struct arguments *args, struct wanted *w) {
    char err[1024];
    memset(w, 0, sizeof *w);
    if (args->given[OPT_RECIPE] && !(w->recipe = plan_recipe_find(args->value[OPT_RECIPE], err, sizeof err)))
        return cmd_fail(args->command, CMD_EXIT_USAGE, "--recipe: %s", err);
    if (w->recipe && w->recipe->inference)
        return cmd_fail(args->command, CMD_EXIT_USAGE, "--recipe %s: of inference; steps of training are compared",
                        w->recipe->name);
    if (args->given[OPT_MODEL] && plan_model_read(args->value[OPT_MODEL], &w->model, err, sizeof err))
        return cmd_fail(args->command, CMD_EXIT_USAGE, "--model: %s", err);
    w->has_model = args->given[OPT_MODEL];
    for (int o = OPT_RECOMPUTE; o <= OPT_NO_DROPOUT; o++)
        if (args->given[o] && !w->has_model)
            return cmd_fail(args->command, CMD_EXIT_USAGE, "--%s: needs a --model", options[o].name);
    w->no_dropout = args->given[OPT_NO_DROPOUT];
    int code = view_choice(args, OPT_RECOMPUTE, recomputes, &w->recompute);
    return code ? code : sheet_whole(args, OPT_PARAMS, PLAN_COUNT, PLAN_POSITIVE, INT64_MAX, &w->parameters);
}

static int parse(const struct arguments *args) {
    struct wanted w;
    struct plan_parameters all;
    char err[512];
    int code = parse_wanted(args, &w);
    if (!code && w.has_model && plan_model_parameters(&w.model, &all, err, sizeof err))
        return cmd_fail(args->command, CMD_EXIT_USAGE, "--model: %s", err);
    return code;
}

/* ---- the plan ---- */

struct line {
    int64_t bytes; /* REPORT_UNKNOWN: there is no formula */
    char by[200];
};

struct compared {
    int64_t parameters, measured_parameters; /* REPORT_UNKNOWN */
    char parameters_by[64];
    char recipe[160];
    struct line line[ESTIMATE_LINES];
};

static int64_t whole(__int128 n) {
    return n > INT64_MAX ? REPORT_UNKNOWN : (int64_t)n;
}

static void add(struct line *l, const struct plan_memory_term *t) {
    size_t at = strlen(l->by);
    l->bytes = whole((__int128)l->bytes + t->bytes);
    if (t->bytes) snprintf(l->by + at, sizeof l->by - at, "%s%s", at ? " + " : "", t->formula);
}

/* The terms of plan_memory under the classes that hold them. */
static void plan_lines(struct compared *c, const struct wanted *w, const struct plan_recipe *recipe) {
    struct plan_memory_question q = {.recipe = recipe,
                                     .spread = {.gpus = 1, .tensor = 1, .pipeline = 1},
                                     .model = w->has_model ? &w->model : NULL,
                                     .parameters = w->parameters,
                                     .recompute = (enum plan_recompute)w->recompute,
                                     .no_dropout = w->no_dropout};
    struct plan_memory m;
    char err[256];
    if (!w->parameters && !w->has_model) q.parameters = c->parameters;
    if (plan_memory(&q, &m, err, sizeof err)) return;
    for (int i = 0; i < m.n; i++) {
        const char *key = m.term[i].key;
        int line = !strcmp(key, "weights")                             ? ESTIMATE_PARAM
                   : !strcmp(key, "gradients")                         ? ESTIMATE_GRAD
                   : !strcmp(key, "master") || !strcmp(key, "moments") ? ESTIMATE_OPTIMIZER
                                                                       : ESTIMATE_ACTIVATION;
        if (c->line[line].bytes == REPORT_UNKNOWN) c->line[line] = (struct line){0};
        add(&c->line[line], &m.term[i]);
    }
}

/* By what the trace shows, where the options say nothing. */
static void found_lines(struct compared *c, const struct memory_estimate *m) {
    const struct plan_recipe_seen *k = &m->recipe;
    const int64_t bytes[] = {k->weights, k->grads, k->master + k->moments};
    for (int i = 0; i < ESTIMATE_LINES; i++) {
        c->line[i].bytes = m->expected[i];
        if (i < ESTIMATE_ACTIVATION && k->known)
            snprintf(c->line[i].by, sizeof c->line[i].by, "%" PRId64 " bytes x %" PRId64, bytes[i], m->parameters);
    }
    memory_estimate_note(m, ESTIMATE_ACTIVATION, c->line[ESTIMATE_ACTIVATION].by, sizeof c->line->by);
}

static void make_plan(struct compared *c, const struct report *r, const struct wanted *w) {
    const struct memory_estimate *m = &r->memory_books->estimate;
    struct plan_parameters all;
    char err[256];
    memset(c, 0, sizeof *c);
    c->parameters = c->measured_parameters = m->parameters;
    snprintf(c->parameters_by, sizeof c->parameters_by, "as measured");
    found_lines(c, m);
    if (w->parameters || w->has_model) {
        c->parameters = w->parameters;
        if (!w->parameters && !plan_model_parameters(&w->model, &all, err, sizeof err)) c->parameters = all.all;
        snprintf(c->parameters_by, sizeof c->parameters_by,
                 w->parameters ? "--params" : "sum over the model's weights");
    }
    snprintf(c->recipe, sizeof c->recipe, "%s",
             w->recipe         ? w->recipe->words
             : m->recipe.name  ? m->recipe.name
             : m->recipe.known ? "none of the table"
                               : "");
    struct plan_recipe own = {.name = "as measured", .value_bytes = m->element_bytes == 2 ? 2 : 4};
    if (w->recipe) own = *w->recipe;
    if (!w->recipe && m->recipe.known) {
        const int64_t bytes[] = {m->recipe.weights, m->recipe.grads, m->recipe.master, m->recipe.moments};
        for (int p = 0; p < PLAN_PARTS; p++) own.bits[p] = (int)(8 * bytes[p]);
    }
    if ((w->recipe || w->has_model || w->parameters) && (w->recipe || m->recipe.known) && c->parameters > 0) {
        struct line activation = c->line[ESTIMATE_ACTIVATION];
        for (int i = 0; i < ESTIMATE_LINES; i++) c->line[i] = (struct line){REPORT_UNKNOWN, ""};
        plan_lines(c, w, &own);
        if (c->line[ESTIMATE_ACTIVATION].bytes == REPORT_UNKNOWN) c->line[ESTIMATE_ACTIVATION] = activation;
    }
}

/* ---- memory ---- */

static void print_gap(struct emitter *e, enum emit_unit unit, int64_t gap) {
    char text[96] = "+";
    report_print_int(e, "gap", NULL, UNIT_NONE, gap);
    if (gap == REPORT_UNKNOWN)
        emit_text(e, NULL, "gap", NULL);
    else {
        emit_human(text + (gap > 0), sizeof text - 1, unit, (double)gap, unit == UNIT_BYTES);
        emit_text(e, NULL, "gap", text);
    }
}

static int64_t gap_of(int64_t plan, int64_t measured) {
    return plan == REPORT_UNKNOWN || measured == REPORT_UNKNOWN ? REPORT_UNKNOWN : measured - plan;
}

static void print_line(struct emitter *e, const char *class, int64_t plan, int64_t measured, const char *by,
                       const char *why) {
    emit_object(e, "", NULL, LOOK_FIELDS);
    emit_text(e, "class", "class", class);
    report_print_int(e, "plan", "plan", UNIT_BYTES, plan);
    emit_int(e, "measured", "measured", UNIT_BYTES, measured);
    print_gap(e, UNIT_BYTES, gap_of(plan, measured));
    emit_text(e, "by", "the plan is", by);
    emit_text(e, "why", "the gap is", why);
    emit_end(e);
}

/* A few words for the gap of a class that has a formula. */
static const char *why_of(const struct report *r, const struct memory_estimate *m, int line, int64_t plan) {
    int64_t measured = r->memory.at_peak[line];
    if (plan == REPORT_UNKNOWN) return "no formula applies";
    if (measured == plan) return "none";
    if (line == ESTIMATE_ACTIVATION)
        return m->recomputes && measured < plan ? "the program recomputes: it keeps less"
               : measured < plan                ? "no dropout or no masks, other formats; released before the peak"
                                                : "passed on or kept beyond the formula: the parts below";
    if (m->most[line] == plan) return "all of it at another moment than the run's peak";
    return measured < plan ? "tensors that have none, or not live at the peak"
                           : "another recipe, padding, tensors beyond the formula";
}

static void print_memory(struct emitter *e, const struct report *r, const struct compared *c) {
    const struct memory_estimate *m = &r->memory_books->estimate;
    int64_t sum = 0;
    emit_list(e, "memory", "Memory at the run's peak, bytes", LOOK_TABLE);
    for (int i = 0; i < ESTIMATE_LINES; i++) {
        int64_t plan = c->line[i].bytes;
        sum = sum == REPORT_UNKNOWN || plan == REPORT_UNKNOWN ? REPORT_UNKNOWN : whole((__int128)sum + plan);
        print_line(e, report_class_names[i], plan, r->memory.at_peak[i], c->line[i].by, why_of(r, m, i, plan));
    }
    for (int i = ESTIMATE_LINES; i < REPORT_CLASSES; i++)
        if (r->memory.at_peak[i] || !emit_for_people(e))
            print_line(e, report_class_names[i], 0, r->memory.at_peak[i], "", memory_estimate_left_out(i));
    print_line(e, "total", sum, r->memory.peak_bytes, "sum of the lines", "sum of the lines");
    emit_end(e);
    memory_estimate_print_parts(e, m, 1);
}

/* ---- FLOPs ---- */

/* Place of the last whole step that trains, with its tokens known. */
static int64_t chosen(const struct report *r) {
    for (int64_t i = r->n_steps - 1; i >= 0; i--) {
        const struct report_step *s = &r->steps[i];
        if (s->complete && s->flops.phase[PHASE_BACKWARD] > 0) return i;
    }
    return -1;
}

static void print_way(struct emitter *e, const char *name, int known, __int128 plan, const struct report_step *s,
                      const char *by) {
    __int128 executed = s->flops.gemm.least;
    int measured = !s->flops.gemm.uncounted;
    emit_object(e, "", NULL, LOOK_FIELDS);
    emit_text(e, "convention", "convention", name);
    if (known)
        emit_int(e, "plan", "plan", UNIT_FLOPS, plan);
    else
        emit_null(e, "plan", "plan");
    if (measured)
        emit_int(e, "measured", "executed", UNIT_FLOPS, executed);
    else
        emit_null(e, "measured", "executed");
    if (known && measured)
        emit_int(e, "gap", NULL, UNIT_NONE, executed - plan);
    else
        emit_null(e, "gap", NULL);
    emit_real(e, "gap_share", "gap", UNIT_SHARE,
              known && measured && plan ? (double)(executed - plan) / (double)plan : NAN);
    emit_text(e, "by", "the plan is", by);
    emit_end(e);
}

static void print_flops(struct emitter *e, const struct report *r, const struct compared *c, int64_t place) {
    const struct report_step *s = place < 0 ? NULL : &r->steps[place];
    char label[80], by[96];
    snprintf(label, sizeof label, "Matrix products of step %" PRId64 ", FLOPs", s ? s->index : -1);
    emit_list(e, "flops", s ? label : NULL, s ? LOOK_TABLE : LOOK_HIDDEN);
    if (s && c->parameters > 0 && s->tokens > 0 && c->parameters != c->measured_parameters) {
        snprintf(by, sizeof by, "6 x %" PRId64 " x %" PRId64, c->parameters, s->tokens);
        print_way(e, "6n of the plan", 1, 6 * (__int128)c->parameters * s->tokens, s, by);
    }
    for (int way = 0; s && way < REPORT_WAYS; way++) {
        struct report_way w;
        if (way == WAY_EXECUTED) continue;
        report_way_of(r, place, (enum way)way, &w);
        snprintf(by, sizeof by, "not known: %s", w.lacks ? w.lacks : "");
        print_way(e, w.name, !w.lacks, w.flops, s, w.lacks ? by : w.formula);
    }
    emit_end(e);
    report_print_difference(e, r);
}

/* ---- time ---- */

static void print_time(struct emitter *e, const char *part, double ns, double step_ns, const char *what) {
    emit_object(e, "", NULL, LOOK_FIELDS);
    emit_text(e, "part", "part", part);
    emit_real(e, "ns", "time", UNIT_NS, ns);
    emit_real(e, "share", "of the step", UNIT_SHARE, step_ns > 0 ? ns / step_ns : NAN);
    emit_text(e, "what", "what", what);
    emit_end(e);
}

static double products_ns(const struct split_step *s) {
    double ns = (double)(s->detail[SPLIT_MEMORY_PRODUCTS].ns + s->detail[SPLIT_NO_ROOF_PRODUCTS].ns);
    for (int f = 0; f < PEAK_FORMATS; f++) ns += (double)s->detail[SPLIT_PRODUCTS + f].ns;
    return ns;
}

/* From the products at peak to the step's time; the lines between add up to the gap. */
static void print_split(struct emitter *e, const struct split_step *s, double peak, double recompute) {
    static const char *const words[SPLIT_PARTS] = {[SPLIT_COMPUTE] = "other kernels, bound by their FLOPs",
                                                   [SPLIT_MEMORY] = "other kernels, bound by memory",
                                                   [SPLIT_LAUNCH] =
                                                       "launches: latency, calls, kernels shorter than one",
                                                   [SPLIT_COPIES] = "copies and clearing",
                                                   [SPLIT_COMMUNICATION] = "between devices",
                                                   [SPLIT_OUTSIDE] = "evaluation, other steps' work",
                                                   [SPLIT_UNKNOWN] = "kernels without a roof, or uncounted",
                                                   [SPLIT_IDLE] = "the device had nothing to do"};
    double ns = (double)s->ns, products = products_ns(s);
    print_time(e, "recompute", recompute, ns, "products computed again, at peak");
    print_time(e, "products", products - peak - recompute, ns, "products beyond their time at peak");
    for (int p = 0; p < SPLIT_PARTS; p++) {
        double part = (double)split_part_ns(s, (enum split_part)p);
        if (p == SPLIT_COMPUTE)
            part -= products - (double)(s->detail[SPLIT_MEMORY_PRODUCTS].ns + s->detail[SPLIT_NO_ROOF_PRODUCTS].ns);
        if (p == SPLIT_MEMORY) part -= (double)s->detail[SPLIT_MEMORY_PRODUCTS].ns;
        if (p == SPLIT_UNKNOWN) part -= (double)s->detail[SPLIT_NO_ROOF_PRODUCTS].ns;
        if (part || !emit_for_people(e)) print_time(e, split_part_name((enum split_part)p), part, ns, words[p]);
    }
}

static int print_times(struct emitter *e, struct report *r, int64_t place, char *err, size_t err_len) {
    const struct report_step *s = place < 0 ? NULL : &r->steps[place];
    struct split_step *split = NULL;
    char label[80];
    if (s && split_steps(r, place, 1, &split, err, err_len)) return -1;
    int known = split && split->ns != REPORT_UNKNOWN;
    double ns = known ? (double)split->ns : NAN;
    double peak = s ? 1e9 * report_peak_seconds(r, s->flops.by_format) : NAN;
    double recompute =
        s && s->flops.phase[PHASE_RECOMPUTE] ? 1e9 * report_peak_seconds(r, s->flops.recompute_by_format) : 0;
    snprintf(label, sizeof label, "Time of step %" PRId64, s ? s->index : -1);
    emit_list(e, "time", s ? label : NULL, s ? LOOK_TABLE : LOOK_HIDDEN);
    if (s) {
        print_time(e, "at_peak", peak, ns,
                   isnan(peak) ? "the plan: not known, no peak; see --peak-tflops"
                               : "the plan: products at the device's peak (MFU)");
        if (known && split->on_device && !isnan(peak) && !isnan(recompute))
            print_split(e, split, peak, recompute);
        else
            print_time(e, "gap", ns - peak, ns,
                       known && !split->on_device ? "not told further: no device times are recorded" : "not known");
        print_time(e, "measured", ns, ns,
                   !known             ? "the step's time is not known: see the notes"
                   : split->on_device ? "the step, on the device's clock"
                                      : "the step, on the host's clock");
    }
    emit_end(e);
    free(split);
    return 0;
}

/* ---- the command ---- */

static int print(struct emitter *e, struct report *r, const struct arguments *args, char *err, size_t err_len) {
    struct wanted w;
    struct compared c;
    int64_t place = chosen(r);
    parse_wanted(args, &w); /* was checked before */
    make_plan(&c, r, &w);
    view_open(e, r);
    emit_text(e, "recipe", "recipe of the plan", *c.recipe ? c.recipe : NULL);
    if (r->memory_books->estimate.why_not[0] && !w.recipe)
        emit_text(e, NULL, "why not", r->memory_books->estimate.why_not);
    emit_object(e, "parameters", NULL, LOOK_HIDDEN);
    report_print_int(e, "plan", NULL, UNIT_NONE, c.parameters);
    report_print_int(e, "measured", NULL, UNIT_NONE, c.measured_parameters);
    report_print_int(e, "gap", NULL, UNIT_NONE, gap_of(c.parameters, c.measured_parameters));
    emit_text(e, "by", NULL, c.parameters_by);
    emit_end(e);
    report_print_int(e, NULL, "parameters, plan", UNIT_NONE, c.parameters);
    report_print_int(e, NULL, "parameters, measured", UNIT_NONE, c.measured_parameters);
    emit_text(e, NULL, "the plan's are", c.parameters_by);
    print_memory(e, r, &c);
    print_flops(e, r, &c, place);
    if (print_times(e, r, place, err, err_len)) return -1;
    view_notes(e, r);
    emit_end(e);
    return 0;
}

static int compare(const struct arguments *args) {
    static const struct view view = {.parse = parse, .print = print};
    return view_run(args, &view);
}

const struct command cmd_plan_compare = {
    .name = "plan compare",
    .synopsis = "formulas beside what a trace measured: memory, FLOPs, time, and the gap by name",
    .usage = "[--recipe R] [--params N] [--model SPEC] [--recompute none|selective|full] [--no-dropout] " VIEW_USAGE
             " TRACE...",
    .details = "Recipe, model and parameters that are not given are those that the trace shows.\n",
    .options = options,
    .usage_exit = CMD_EXIT_USAGE,
    .function = compare,
};
