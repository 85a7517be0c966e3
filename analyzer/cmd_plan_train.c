/* acct plan train: FLOPs, time, GPUs and money of training, any one of them from the others (plan/plan_training.h). */
#include "analyzer/plan_train_ask.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct option_spec options[] = {
    SHEET_OPTION_ROWS,
    [TRAIN_PARAMS] = {"params", 'n', OPTION_VALUE, "N", "parameters, such as 70e9 or 70B"},
    [TRAIN_MODEL] = {"model", 'm', OPTION_VALUE, "SPEC", "layers=,dim=,heads=,seq=,vocab=[,batch=...] instead"},
    [TRAIN_TOKENS] = {"tokens", 0, OPTION_VALUE, "T", "tokens or samples of the run"},
    [TRAIN_FLOPS] = {"flops", 0, OPTION_VALUE, "X", "FLOPs of an op, a step or a run; fp8=X,bf16=Y of a mix"},
    [TRAIN_BATCH_TOKENS] = {"batch-tokens", 0, OPTION_VALUE, "B", "tokens of a step, all micro-batches and GPUs"},
    [TRAIN_CONVENTION] = {"convention", 0, OPTION_VALUE, "NAME",
                          "how FLOPs are counted: 6n (default), palm, causal ..."},
    [TRAIN_RECOMPUTE] = {"recompute", 0, OPTION_VALUE, "HOW", "none, selective, full, or FLOPs: for HFU"},
    [TRAIN_GPUS] = {"gpus", 'g', OPTION_VALUE, "G", "how many"},
    [TRAIN_DEVICE] = {"device", 'd', OPTION_VALUE, "D", "alias, driver's name or profile: whose dense peak"},
    [TRAIN_DTYPE] = {"dtype", 0, OPTION_VALUE, "F", "number format of the peak: bf16 (default), fp8, tf32 ..."},
    [TRAIN_PEAK] = {"peak-tflops", 0, OPTION_VALUE, "X", "dense peak of a GPU instead; fp8=X,bf16=Y of a mix"},
    [TRAIN_MFU] = {"mfu", 0, OPTION_VALUE, "U", "model FLOPs utilization: 0.5 or 50%"},
    [TRAIN_TIME] = {"time", 0, OPTION_VALUE, "T", "how long: 30d, 12h, 250ms"},
    [TRAIN_DAYS] = {"days", 0, OPTION_VALUE, "D", "the same in days"},
    [TRAIN_STEP_TIME] = {"step-time", 0, OPTION_VALUE, "T", "of a step of --batch-tokens, as measured"},
    [TRAIN_RATE] = {"tokens-per-second", 0, OPTION_VALUE, "R", "of all GPUs, as measured; of one: --gpus 1"},
    [TRAIN_PRICE] = {"price-per-gpu-hour", 0, OPTION_VALUE, "P", "in any currency"},
    [TRAIN_BUDGET] = {"budget", 0, OPTION_VALUE, "M", "in the same currency"},
    {0},
};
_Static_assert(TRAIN_OPTIONS < CMD_MAX_OPTIONS, "the last place is never used");

#define KNOWN(q) (a->t.by[q] != PLAN_OPEN)
#define FOLLOWS(q) (a->t.by[q] >= 0)

/* A sum of roundings can put a whole number a little above or below itself. */
#define ROUNDING 4e-15

/* ---- inputs ---- */

static void put_model(struct plan_sheet *s, const struct train_ask *a) {
    sheet_input_text(s, "model", "model", a->args->value[TRAIN_MODEL], "given");
    sheet_input_whole(s, "params", "parameters", SHEET_NUMBER, a->params, "model");
}

static void put_peak(struct plan_sheet *s, const struct train_ask *a) {
    char from[400];
    for (int i = 0; i < a->n_parts; i++) {
#define KEY(id, name) "flops_" name,
        static const char *const keys[ACCT_FORMATS] = {ACCT_EACH_FORMAT(KEY)};
#undef KEY
        char peak[40] = "unknown";
        if (!isnan(a->parts[i].peak)) plan_show(peak, sizeof peak, a->parts[i].peak);
        snprintf(from, sizeof from, "given; peak %s FLOP/s, %s", peak,
                 a->parts[i].peak_given ? "given"
                 : a->has_device        ? a->device.source
                                        : "no device");
        sheet_input(s, keys[a->parts[i].format], acct_format_name(a->parts[i].format), SHEET_FLOP, a->parts[i].flops,
                    from);
    }
    if (a->has_device) sheet_input_text(s, "device", "device", a->device.name, "given");
    if (a->format >= 0)
        sheet_input_text(s, "dtype", "number format", acct_format_name(a->format),
                         a->format_default ? "default" : "given");
    if (!KNOWN(PLAN_PEAK) || a->n_parts || FOLLOWS(PLAN_PEAK)) return;
    snprintf(from, sizeof from, "%s", a->args->given[TRAIN_PEAK] ? "given" : a->device.source);
    sheet_input(s, "peak", "dense peak of a GPU", SHEET_FLOP_PER_S, a->t.value[PLAN_PEAK], from);
}

static void put_inputs(struct plan_sheet *s, const struct train_ask *a) {
    static const struct {
        enum plan_quantity q;
        const char *key, *label;
        enum sheet_unit unit;
    } reals[] = {{PLAN_MFU, "mfu", "MFU", SHEET_SHARE},
                 {PLAN_TIME, "time", "time", SHEET_SECONDS},
                 {PLAN_STEP_TIME, "step_time", "time of a step", SHEET_SECONDS},
                 {PLAN_TOKEN_RATE, "tokens_per_s", "tokens/s", SHEET_TOKENS_PER_S},
                 {PLAN_PRICE, "price", "price of a GPU hour", SHEET_MONEY},
                 {PLAN_COST, "budget", "budget", SHEET_MONEY}};
    if (a->has_model) put_model(s, a);
    if (a->args->given[TRAIN_PARAMS]) sheet_input_whole(s, "params", "parameters", SHEET_NUMBER, a->params, "given");
    if (a->tokens) sheet_input_whole(s, "tokens", "tokens", SHEET_NUMBER, a->tokens, "given");
    if (a->step_tokens)
        sheet_input_whole(s, "step_tokens", "tokens of a step", SHEET_NUMBER, a->step_tokens,
                          a->step_from_model ? "model: batch x seq" : "given");
    if (a->args->given[TRAIN_FLOPS] && !a->n_parts)
        sheet_input(s, "flops", "FLOPs", SHEET_FLOP, a->t.value[PLAN_TOTAL], "given");
    if (a->args->given[TRAIN_RECOMPUTE])
        sheet_input_text(s, "recompute", "recomputation", a->args->value[TRAIN_RECOMPUTE], "given");
    if (a->gpus) sheet_input_whole(s, "gpus", "GPUs", SHEET_NUMBER, a->gpus, "given");
    if (a->gpus_default) sheet_input_whole(s, "gpus", "GPUs", SHEET_NUMBER, 1, "default");
    put_peak(s, a);
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        if (a->t.by[reals[i].q] == PLAN_GIVEN)
            sheet_input(s, reals[i].key, reals[i].label, reals[i].unit, a->t.value[reals[i].q], "given");
}

/* ---- results ---- */

static void put(struct plan_sheet *s, const struct train_ask *a, enum plan_quantity q, const char *key,
                const char *label, enum sheet_unit unit) {
    char formula[1100];
    if (!FOLLOWS(q)) return;
    plan_training_formula(&a->t, q, formula, sizeof formula);
    sheet_result(s, key, label, unit, a->t.value[q], "%s", formula);
}

/* A count that follows, rounded to a whole one in the direction that holds what was given. */
static void put_whole(struct plan_sheet *s, const struct train_ask *a, enum plan_quantity q, const char *key,
                      const char *label, int up) {
    char formula[1100], exact[40], six[40];
    double v = a->t.value[q], whole = up ? ceil(v * (1 - ROUNDING)) : floor(v * (1 + ROUNDING));
    if (!FOLLOWS(q)) return;
    plan_training_formula(&a->t, q, formula, sizeof formula);
    snprintf(six, sizeof six, "%.7g", v);
    plan_show(exact, sizeof exact, strtod(six, NULL));
    if (whole < 1e38)
        sheet_result_whole(s, key, label, SHEET_NUMBER, (__int128)whole, "%s = %s, rounded %s", formula, exact,
                           up ? "up" : "down");
    else
        sheet_result(s, key, label, SHEET_NUMBER, whole, "%s = %s", formula, exact);
}

/* `6 N + 12 L H Q T = 6 x 124439808 + 12 x 12 x 12 x 64 x 1024` */
static void write_way(const struct train_ask *a, enum plan_convention c, char *out, size_t room) {
    static const char *const counted[] = {"N", "N in products", "(N - position table)"};
    const struct plan_convention_row *row = plan_convention_row(c);
    const struct plan_model *m = &a->model;
    char n[40], words[40] = "", scores[160] = "";
    plan_show(n, sizeof n, (double)(a->has_model ? plan_convention_parameters(c, &a->parameters) : a->params));
    if (row->halves) {
        snprintf(words, sizeof words, " + %d L H Q T", 2 * row->halves);
        snprintf(scores, sizeof scores, " + %d x %lld x %lld x %lld x %lld", 2 * row->halves, (long long)m->layers,
                 (long long)m->heads, (long long)m->head, (long long)m->seq);
    }
    snprintf(out, room, "6 %s%s = 6 x %s%s", counted[row->counted], words, n, scores);
}

static void put_per_token(struct plan_sheet *s, const struct train_ask *a) {
    char formula[400];
    if (!a->per_token) {
        put(s, a, PLAN_FLOPS_PER_TOKEN, "flops_per_token", "FLOPs per token", SHEET_FLOP);
        return;
    }
    write_way(a, a->convention, formula, sizeof formula);
    sheet_result_whole(s, "flops_per_token", "FLOPs per token", SHEET_FLOP, a->per_token, "%s", formula);
}

/* FLOPs of the run or of a step, and their parts. exact: 0, or the amount. */
static void put_flops(struct plan_sheet *s, const struct train_ask *a, enum plan_quantity q, __int128 exact,
                      const char *const keys[3], const char *const labels[3]) {
    static const char *const parts[] = {NULL, "2 parts of 6", "4 parts of 6"};
    char formula[1100], amount[40];
    double v = a->t.value[q];
    if (!KNOWN(q)) return;
    plan_training_formula(&a->t, q, formula, sizeof formula);
    if (a->t.by[q] == PLAN_GIVEN) snprintf(formula, sizeof formula, "given");
    plan_show_short(amount, sizeof amount, v);
    for (int i = 0; i < 3; i++) {
        if (!keys[i]) continue;
        if (exact)
            sheet_result_whole(s, keys[i], labels[i], SHEET_FLOP, i ? exact / 3 * i : exact,
                               i ? "%s = %d/6 x %s" : "%s", i ? parts[i] : formula, 2 * i, amount);
        else
            sheet_result(s, keys[i], labels[i], SHEET_FLOP, i ? v / 3 * i : v, i ? "%s = %d/6 x %s" : "%s",
                         i ? parts[i] : formula, 2 * i, amount);
    }
}

static void put_overhead(struct plan_sheet *s, const struct train_ask *a) {
    double over = a->t.value[PLAN_OVERHEAD], model = a->per_token ? (double)a->per_token : a->t.value[PLAN_TOTAL];
    char again[40], once[40], numbers[100] = "";
    plan_show_short(again, sizeof again, rint((over - 1) * model));
    plan_show_short(once, sizeof once, model);
    if (!isnan(model))
        snprintf(numbers, sizeof numbers, "%s = 1 + %s / %s", a->per_token ? " of a token" : "", again, once);
    sheet_result(s, "executed_over_model", "executed / model FLOPs", SHEET_NUMBER, over,
                 "1 + recomputed / model FLOPs%s", numbers);
}

static void put_work(struct plan_sheet *s, const struct train_ask *a) {
    static const char *const run[] = {"flops", "forward_flops", "backward_flops"},
                             *const run_labels[] = {"FLOPs", "forward", "backward"},
                             *const op[] = {"flops", NULL, NULL},
                             *const step[] = {"step_flops", "step_forward_flops", "step_backward_flops"},
                             *const step_labels[] = {"FLOPs of a step", "forward of a step", "backward of a step"};
    __int128 of_step = 0;
    put_whole(s, a, PLAN_PARAMETERS, "params", "parameters", 0);
    put_whole(s, a, PLAN_TOKENS, "tokens", "tokens", 0);
    put_per_token(s, a);
    put_flops(s, a, PLAN_TOTAL, a->flops, KNOWN(PLAN_FLOPS_PER_TOKEN) ? run : op, run_labels);
    if (a->per_token && a->step_tokens && plan_multiply(a->per_token, a->step_tokens, &of_step)) of_step = 0;
    put_flops(s, a, PLAN_STEP_FLOPS, of_step, step, step_labels);
    if (a->args->given[TRAIN_RECOMPUTE]) {
        put(s, a, PLAN_EXECUTED, "executed_flops", "FLOPs executed", SHEET_FLOP);
        put_overhead(s, a);
    }
}

static void put_time(struct plan_sheet *s, const struct train_ask *a) {
    char formula[1100], seconds[40];
    int run = KNOWN(PLAN_TOTAL);
    if (KNOWN(PLAN_TIME)) {
        plan_training_formula(&a->t, PLAN_TIME, formula, sizeof formula);
        if (!*formula) snprintf(formula, sizeof formula, "given");
        sheet_result(s, "time", "time", SHEET_SECONDS, a->t.value[PLAN_TIME], "%s", formula);
        plan_show_short(seconds, sizeof seconds, a->t.value[PLAN_TIME]);
        sheet_result(s, "days", NULL, SHEET_DAYS, a->t.value[PLAN_TIME] / 86400, "time / 86400 s = %s / 86400",
                     seconds);
    } else if (run && !KNOWN(PLAN_GPU_HOURS)) {
        sheet_result(s, "time", "time", SHEET_SECONDS, NAN, "%s",
                     KNOWN(PLAN_PEAK) ? "MFU unknown: give --mfu" : "peak unknown: give --device or --peak-tflops");
    }
    put(s, a, PLAN_PEAK_TIME, "peak_time", "time at the peak", SHEET_SECONDS);
    if (FOLLOWS(PLAN_STEPS)) {
        double v = a->t.value[PLAN_STEPS];
        put_whole(s, a, PLAN_STEPS, "steps", "steps", 1);
        sheet_result(s, "steps_exact", NULL, SHEET_NUMBER, v, "%s", "not rounded");
    }
    put(s, a, PLAN_STEP_TIME, "step_time", "time of a step", SHEET_SECONDS);
    put(s, a, PLAN_STEP_PEAK_TIME, "step_peak_time", "time of a step at the peak", SHEET_SECONDS);
}

static void put_gpus(struct plan_sheet *s, const struct train_ask *a) {
    double v = a->t.value[PLAN_GPUS], whole = ceil(v * (1 - ROUNDING));
    char formula[1100], counts[40], exact[40], time[40];
    if (!FOLLOWS(PLAN_GPUS)) return;
    plan_training_formula(&a->t, PLAN_GPUS, formula, sizeof formula);
    put_whole(s, a, PLAN_GPUS, "gpus", "GPUs", 1);
    sheet_result(s, "gpus_exact", "GPUs, exact", SHEET_NUMBER, v, "%s", formula);
    plan_show_short(counts, sizeof counts, whole);
    plan_show_short(exact, sizeof exact, v);
    plan_show_short(time, sizeof time, a->t.value[PLAN_TIME]);
    if (KNOWN(PLAN_TIME))
        sheet_result(s, "time_with_gpus", "time with so many", SHEET_SECONDS, a->t.value[PLAN_TIME] * v / whole,
                     "time x exact / rounded = %s x %s / %s", time, exact, counts);
}

static void put_mfu(struct plan_sheet *s, const struct train_ask *a) {
    if (FOLLOWS(PLAN_MFU))
        put(s, a, PLAN_MFU, "mfu", "MFU", SHEET_SHARE);
    else if (!KNOWN(PLAN_MFU) && (KNOWN(PLAN_TIME) || KNOWN(PLAN_TOKEN_RATE)))
        sheet_result(s, "mfu", "MFU", SHEET_SHARE, NAN, "%s",
                     KNOWN(PLAN_PEAK) ? "GPUs unknown: give --gpus" : "peak unknown: give --device or --peak-tflops");
    if (!a->args->given[TRAIN_RECOMPUTE]) return;
    if (KNOWN(PLAN_HFU))
        put(s, a, PLAN_HFU, "hfu", "HFU", SHEET_SHARE);
    else
        sheet_result(s, "hfu", "HFU", SHEET_SHARE, NAN, "%s", "MFU unknown");
}

static void put_results(struct plan_sheet *s, const struct train_ask *a) {
    if (a->solved_for != PLAN_QUANTITIES)
        sheet_result_text(s, "solved_for", NULL, plan_quantity_name(a->solved_for), "%s", "the one left open");
    put_work(s, a);
    put_gpus(s, a);
    put_time(s, a);
    put_mfu(s, a);
    if (FOLLOWS(PLAN_PEAK)) put(s, a, PLAN_PEAK, "peak", "peak that a GPU needs", SHEET_FLOP_PER_S);
    if (a->n_parts && KNOWN(PLAN_PEAK))
        sheet_result(s, "peak", "peak of the mix", SHEET_FLOP_PER_S, a->t.value[PLAN_PEAK], "%s",
                     "FLOPs / sum of FLOPs in a format / its peak");
    put(s, a, PLAN_ACHIEVED, "flops_per_s", "FLOP/s", SHEET_FLOP_PER_S);
    put(s, a, PLAN_ACHIEVED_EACH, "flops_per_s_per_gpu", "FLOP/s of a GPU", SHEET_FLOP_PER_S);
    put(s, a, PLAN_PER_DAY, "flops_per_day", "FLOPs a day", SHEET_FLOP);
    put(s, a, PLAN_TOKEN_RATE, "tokens_per_s", "tokens/s", SHEET_TOKENS_PER_S);
    put(s, a, PLAN_RATE_EACH, "tokens_per_s_per_gpu", "tokens/s of a GPU", SHEET_TOKENS_PER_S);
    put(s, a, PLAN_TOKENS_A_DAY, "tokens_per_day", "tokens a day", SHEET_TOKENS);
    put(s, a, PLAN_GPU_HOURS, "gpu_hours", "GPU hours", SHEET_GPU_HOURS);
    put(s, a, PLAN_COST, "cost", "cost", SHEET_MONEY);
    put(s, a, PLAN_PRICE, "price", "price of a GPU hour", SHEET_MONEY);
}

static void put_notes(struct plan_sheet *s, const struct train_ask *a) {
    double mfu = a->t.value[PLAN_MFU];
    if (FOLLOWS(PLAN_MFU) && mfu > 1)
        sheet_note(
            s, "The MFU is over 100 %%. Usual causes: the wrong peak (dense, of the format that the products ran in), "
               "parameters counted twice (tied embeddings, experts that a token does not pass), attention that a "
               "sliding window cuts, the time of fewer GPUs or steps than the tokens.");
    else if (FOLLOWS(PLAN_MFU) && mfu >= 0.5)
        sheet_note(s, "An MFU of 0.5 or more is very good.");
    else if (FOLLOWS(PLAN_MFU) && mfu <= 0.05)
        sheet_note(s, "An MFU of about 0.05 is very bad.");
    if (a->n_parts > 1) sheet_note(s, "Of a mix of formats the peak time is the sum of FLOPs / peak over the formats.");
    if (KNOWN(PLAN_PEAK) && !KNOWN(PLAN_MFU))
        sheet_note(s, "The time at the peak is a lower bound, which no run reaches.");
}

/* ---- tables ---- */

static void print_way(struct emitter *e, const struct train_ask *a, const char *name, const char *formula,
                      const char *seen_in, __int128 per_token, int executed) {
    __int128 all;
    double mfu = FOLLOWS(PLAN_MFU) && !executed ? a->t.value[PLAN_MFU] * (double)per_token / (double)a->per_token : NAN;
    emit_object(e, "", NULL, LOOK_FIELDS);
    emit_text(e, "name", "convention", name);
    emit_int(e, "flops_per_token", "a token", UNIT_FLOPS, per_token);
    if (a->tokens && !plan_multiply(per_token, a->tokens, &all))
        emit_int(e, "flops", "the run", UNIT_FLOPS, all);
    else
        emit_null(e, "flops", a->tokens ? "the run" : NULL);
    emit_real(e, "mfu", FOLLOWS(PLAN_MFU) ? "MFU" : NULL, UNIT_SHARE, mfu);
    emit_text(e, "formula", "formula", formula);
    emit_text(e, "seen_in", "seen in", seen_in);
    emit_end(e);
}

static void print_conventions(struct emitter *e, const struct train_ask *a) {
    __int128 per_token, d = (__int128)a->model.dim * a->model.dim;
    char formula[400];
    emit_list(e, "conventions", "FLOPs by convention", LOOK_TABLE);
    for (int i = 0; i < PLAN_COUNTS; i++) {
        enum plan_convention c = (enum plan_convention)i;
        const struct plan_convention_row *row = plan_convention_row(c);
        if ((a->model.kind == PLAN_LINEAR && row->halves) ||
            plan_convention_flops(c, plan_convention_parameters(c, &a->parameters), 1, a->attention, &per_token))
            continue;
        write_way(a, c, formula, sizeof formula);
        print_way(e, a, row->name, formula, row->seen_in, per_token, i >= PLAN_CONVENTIONS);
    }
    if (a->model.kind == PLAN_LINEAR) {
        snprintf(formula, sizeof formula, "6 N - 2 D D = 6 x %lld - 2 x %lld x %lld", (long long)a->params,
                 (long long)a->model.dim, (long long)a->model.dim);
        print_way(e, a, "executed", formula, "the first layer's input needs no gradient",
                  6 * (__int128)a->params - 2 * d, 1);
    }
    emit_end(e);
}

static void print_weights(struct emitter *e, const struct train_ask *a) {
    static const char *const uses[] = {[PLAN_MULTIPLIES] = "in products",
                                       [PLAN_LOOKED_UP] = "looked up",
                                       [PLAN_BY_POSITION] = "looked up by position",
                                       [PLAN_ADDS] = "in no product"};
    struct plan_weight w[PLAN_MODEL_WEIGHTS];
    int n = plan_model_weights(&a->model, w);
    emit_list(e, "weights", "Parameters", LOOK_TABLE);
    for (int i = 0; i < n; i++) {
        emit_object(e, "", NULL, LOOK_FIELDS);
        emit_text(e, "name", "weight", w[i].name);
        emit_int(e, "tensors", "tensors", UNIT_NONE, w[i].tensors);
        emit_int(e, "rows", "rows", UNIT_NONE, w[i].rows);
        emit_int(e, "columns", "columns", UNIT_NONE, w[i].columns);
        emit_int(e, "params", "parameters", UNIT_NONE, (__int128)w[i].tensors * w[i].rows * w[i].columns);
        emit_text(e, "use", "use", uses[w[i].use]);
        emit_end(e);
    }
    emit_end(e);
}

static void tables(struct emitter *e, const void *context) {
    const struct train_ask *a = context;
    print_conventions(e, a);
    print_weights(e, a);
}

static int train(const struct arguments *args) {
    struct train_ask a;
    struct plan_sheet s;
    int code = train_ask_read(args, &a);
    if (code) return code;
    sheet_begin(&s, args);
    if (a.t.by[PLAN_FLOPS_PER_TOKEN] != PLAN_OPEN) s.convention = plan_convention_row(a.convention)->name;
    put_inputs(&s, &a);
    put_results(&s, &a);
    put_notes(&s, &a);
    if (a.has_model) {
        s.tables = tables;
        s.context = &a;
    }
    return sheet_print(&s);
}

const struct command cmd_plan_train = {
    .name = "plan train",
    .synopsis = "FLOPs, time, GPUs and money of training: any one from the others",
    .usage = "[--params N|--model SPEC] [--tokens T] [--flops X] [--gpus G] [--device D] [--mfu U] [--time T] ...",
    .details =
        "  FLOPs = 6 x params x tokens = gpus x peak x MFU x time; leave one open, and it is solved for.\n"
        "  SPEC: layers=,dim=,heads=,seq=,vocab= and, where they differ, ff=,kv_heads=,head=,batch=,tied=,bias=,\n"
        "  gated=,norm=,position=; or kind=linear,layers=,dim=[,batch=].\n",
    .options = options,
    .usage_exit = CMD_EXIT_USAGE,
    .function = train,
};
