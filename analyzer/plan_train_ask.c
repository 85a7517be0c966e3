#include "analyzer/plan_train_ask.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define GIVEN(o) (a->args->given[o])
#define VALUE(o) (a->args->value[o])
#define REFUSE(...) cmd_fail(a->args->command, CMD_EXIT_USAGE, __VA_ARGS__)

int train_ask_is_op(const struct train_ask *a) {
    return GIVEN(TRAIN_FLOPS) && !GIVEN(TRAIN_PARAMS) && !GIVEN(TRAIN_MODEL) && !GIVEN(TRAIN_TOKENS);
}

/* ---- the work ---- */

static int read_model(struct train_ask *a) {
    char err[400];
    int name;
    if (GIVEN(TRAIN_CONVENTION)) {
        if ((name = plan_convention_find(VALUE(TRAIN_CONVENTION))) < 0)
            return REFUSE("--convention: '%.40s' is no convention; there are 6n, 6n-matmul, 6n-matmul+causal, causal, "
                          "6n-matmul+attention, palm-position, palm",
                          VALUE(TRAIN_CONVENTION));
        a->convention = (enum plan_convention)name;
        if (a->convention != PLAN_6N && !GIVEN(TRAIN_MODEL))
            return REFUSE("--convention %s: needs --model, which says what is in matrix products and in attention",
                          VALUE(TRAIN_CONVENTION));
    }
    if (!GIVEN(TRAIN_MODEL)) return 0;
    if (GIVEN(TRAIN_PARAMS)) return REFUSE("--params, --model: both say how many parameters; leave one out");
    if (plan_model_read(VALUE(TRAIN_MODEL), &a->model, err, sizeof err) ||
        plan_model_parameters(&a->model, &a->parameters, err, sizeof err))
        return REFUSE("--model: %s", err);
    a->has_model = 1;
    a->params = a->parameters.all;
    if (plan_attention_flops(&a->model, &a->attention) ||
        plan_convention_flops(a->convention, plan_convention_parameters(a->convention, &a->parameters), 1, a->attention,
                              &a->per_token))
        return REFUSE("--model: its FLOPs a token are beyond 1.7e38");
    plan_training_give(&a->t, PLAN_COEFFICIENT, NAN); /* follows */
    plan_training_give(&a->t, PLAN_FLOPS_PER_TOKEN, (double)a->per_token);
    return 0;
}

/* `fp8=6e15,bf16=2e15` of option o: calls take(format, value) for each. */
struct pairs {
    struct train_ask *a;
    int o, code;
    void (*take)(struct train_ask *a, int format, double value);
    enum plan_kind kind;
};

static int take_pair(const char *name, const char *value, void *context, char *err, size_t err_len) {
    struct pairs *p = context;
    double number = 0;
    int format = 0;
    (void)err, (void)err_len;
    if (sheet_format_of(p->a->args, p->o, name, &format)) {
        p->code = CMD_EXIT_USAGE;
        return -1;
    }
    if (plan_real(value, p->kind, PLAN_POSITIVE, &number, err, err_len)) return -1;
    p->take(p->a, format, number);
    return 0;
}

static int read_pairs(struct train_ask *a, int o, enum plan_kind kind, void (*take)(struct train_ask *, int, double)) {
    struct pairs p = {a, o, 0, take, kind};
    char err[300];
    if (!plan_pairs(VALUE(o), take_pair, &p, err, sizeof err)) return 0;
    return p.code ? p.code : REFUSE("--%s: %s", a->args->command->options[o].name, err);
}

static void add_part(struct train_ask *a, int format, double flops) {
    for (int i = 0; i < a->n_parts; i++)
        if (a->parts[i].format == format) {
            a->parts[i].flops += flops;
            return;
        }
    a->parts[a->n_parts++] = (struct train_part){.format = format, .flops = flops, .peak = NAN};
}

static int read_flops(struct train_ask *a) {
    double flops = 0;
    int code;
    if (!GIVEN(TRAIN_FLOPS)) return 0;
    if (!strchr(VALUE(TRAIN_FLOPS), '=')) {
        code = sheet_real(a->args, TRAIN_FLOPS, PLAN_FLOPS, PLAN_POSITIVE, &flops);
    } else {
        if (GIVEN(TRAIN_DTYPE)) return REFUSE("--dtype, --flops: both say the formats; leave --dtype out");
        code = read_pairs(a, TRAIN_FLOPS, PLAN_FLOPS, add_part);
        for (int i = 0; i < a->n_parts; i++) flops += a->parts[i].flops;
    }
    if (!code) plan_training_give(&a->t, PLAN_TOTAL, flops);
    return code;
}

/* Whole numbers; where the equations need them as well. */
static int read_counts(struct train_ask *a) {
    static const struct {
        int o;
        size_t at;
        enum plan_quantity q;
    } counts[] = {{TRAIN_PARAMS, offsetof(struct train_ask, params), PLAN_PARAMETERS},
                  {TRAIN_TOKENS, offsetof(struct train_ask, tokens), PLAN_TOKENS},
                  {TRAIN_BATCH_TOKENS, offsetof(struct train_ask, step_tokens), PLAN_STEP_TOKENS},
                  {TRAIN_GPUS, offsetof(struct train_ask, gpus), PLAN_GPUS}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        int64_t *at = (int64_t *)((char *)a + counts[i].at);
        int code = sheet_whole(a->args, counts[i].o, PLAN_COUNT, PLAN_POSITIVE, INT64_MAX, at);
        if (code) return code;
        if (*at) plan_training_give(&a->t, counts[i].q, (double)*at);
    }
    if (a->has_model) plan_training_give(&a->t, PLAN_PARAMETERS, (double)a->params);
    if (a->has_model && a->model.batch && !a->step_tokens) {
        __int128 n = (__int128)a->model.batch * (a->model.kind == PLAN_LINEAR ? 1 : a->model.seq);
        if (n > INT64_MAX) return REFUSE("--model: batch= times seq= is beyond 9.2e18");
        a->step_tokens = (int64_t)n;
        a->step_from_model = 1;
        plan_training_give(&a->t, PLAN_STEP_TOKENS, (double)n);
    }
    return 0;
}

static int make_exact(struct train_ask *a) {
    if (!a->per_token && a->params) a->per_token = 6 * (__int128)a->params;
    if (!a->per_token || !a->tokens || GIVEN(TRAIN_FLOPS)) return 0;
    return plan_multiply(a->per_token, a->tokens, &a->flops) ? REFUSE("the run's FLOPs are beyond 1.7e38") : 0;
}

/* Executed over model FLOPs. Full: forward once more, of three parts one (6 to 8). Selective: attention's forward, of
 * which a causal mask leaves half. */
static int read_recompute(struct train_ask *a) {
    const char *what = VALUE(TRAIN_RECOMPUTE);
    double flops = 0, of = a->t.value[PLAN_TOTAL];
    int code, masked = plan_convention_row(a->convention)->halves == 3 ? 2 : 1;
    if (!GIVEN(TRAIN_RECOMPUTE)) return 0;
    if (!strcmp(what, "none"))
        plan_training_give(&a->t, PLAN_OVERHEAD, 1);
    else if (!strcmp(what, "full"))
        plan_training_give(&a->t, PLAN_OVERHEAD, 4 / 3.0);
    else if (!strcmp(what, "selective") && !a->has_model)
        return REFUSE("--recompute selective: needs --model, which says what attention takes");
    else if (!strcmp(what, "selective"))
        plan_training_give(&a->t, PLAN_OVERHEAD, 1 + (double)(a->attention / masked) / (double)a->per_token);
    else if (what[0] < '0' || what[0] > '9')
        return REFUSE("--recompute: '%.40s' is none of none, selective, full and an amount of FLOPs", what);
    else if (isnan(of))
        return REFUSE("--recompute: an amount of FLOPs goes with --flops");
    else if ((code = sheet_real(a->args, TRAIN_RECOMPUTE, PLAN_FLOPS, PLAN_POSITIVE, &flops)))
        return code;
    else
        plan_training_give(&a->t, PLAN_OVERHEAD, 1 + flops / of);
    return 0;
}

/* ---- the machine ---- */

static int device_peak(struct train_ask *a, int format, double *out) {
    char all[160] = "";
    size_t n = 0;
    if (format == ACCT_INT8)
        return REFUSE("int8 does operations, which are no FLOPs; see acct plan roofline --device %s",
                      a->has_device ? a->device.alias : "D");
    if (!a->has_device) return 0;
    *out = a->device.peak[format];
    if (!isnan(*out)) return 0;
    for (int f = 0; f < ACCT_FORMATS; f++)
        if (!isnan(a->device.peak[f]) && f != ACCT_INT8)
            n += (size_t)snprintf(all + n, sizeof all - n, "%s%s", n ? ", " : "", acct_format_name(f));
    return REFUSE("--device %s: has no peak in %s; it has %s", VALUE(TRAIN_DEVICE), acct_format_name(format), all);
}

static void give_part_peak(struct train_ask *a, int format, double tflops) {
    for (int i = 0; i < a->n_parts; i++) {
        if (a->parts[i].format != format) continue;
        a->parts[i].peak = tflops * 1e12;
        a->parts[i].peak_given = 1;
    }
}

static int read_mixed_peak(struct train_ask *a) {
    double flops[ACCT_FORMATS], peak[ACCT_FORMATS];
    int code = 0, open = 0;
    if (GIVEN(TRAIN_PEAK)) {
        if (!strchr(VALUE(TRAIN_PEAK), '='))
            return REFUSE("--peak-tflops: of a mix one for each format, such as fp8=1979,bf16=989.5");
        if ((code = read_pairs(a, TRAIN_PEAK, PLAN_COUNT, give_part_peak))) return code;
    }
    for (int i = 0; i < a->n_parts && !code; i++) {
        struct train_part *p = &a->parts[i];
        if (!p->peak_given) code = device_peak(a, p->format, &p->peak);
        if (!code && isnan(p->peak) && GIVEN(TRAIN_PEAK))
            return REFUSE("--peak-tflops: has no figure for %s", acct_format_name(p->format));
        open |= isnan(p->peak);
        flops[i] = p->flops;
        peak[i] = p->peak;
    }
    if (!code && !open) plan_training_give(&a->t, PLAN_PEAK, plan_mixed_peak(a->n_parts, flops, peak));
    return code;
}

static int read_peak(struct train_ask *a) {
    double tflops = 0, peak = NAN;
    int code = sheet_device(a->args, TRAIN_DEVICE, &a->device);
    a->has_device = GIVEN(TRAIN_DEVICE);
    a->format = -1;
    if (!code) code = sheet_format(a->args, TRAIN_DTYPE, &a->format);
    if (code) return code;
    if (a->n_parts) return read_mixed_peak(a);
    if (a->format >= 0 && !a->has_device && !GIVEN(TRAIN_PEAK))
        return REFUSE("--dtype: says which of a device's peaks; give --device or --peak-tflops as well");
    if (a->format < 0 && a->has_device) {
        a->format_default = 1;
        a->format = isnan(a->device.peak[ACCT_BF16]) ? ACCT_FP16 : ACCT_BF16;
    }
    if (GIVEN(TRAIN_PEAK)) {
        if ((code = sheet_real(a->args, TRAIN_PEAK, PLAN_COUNT, PLAN_POSITIVE, &tflops))) return code;
        peak = tflops * 1e12;
    } else if (a->has_device && (code = device_peak(a, a->format, &peak))) {
        return code;
    }
    plan_training_give(&a->t, PLAN_PEAK, peak);
    return 0;
}

static int read_rest(struct train_ask *a) {
    static const struct {
        int o;
        enum plan_kind kind;
        enum plan_quantity q;
    } reals[] = {{TRAIN_MFU, PLAN_SHARE, PLAN_MFU},         {TRAIN_TIME, PLAN_SECONDS, PLAN_TIME},
                 {TRAIN_DAYS, PLAN_COUNT, PLAN_TIME},       {TRAIN_STEP_TIME, PLAN_SECONDS, PLAN_STEP_TIME},
                 {TRAIN_RATE, PLAN_COUNT, PLAN_TOKEN_RATE}, {TRAIN_PRICE, PLAN_MONEY, PLAN_PRICE},
                 {TRAIN_BUDGET, PLAN_MONEY, PLAN_COST}};
    if (GIVEN(TRAIN_TIME) && GIVEN(TRAIN_DAYS)) return REFUSE("--time, --days: both say how long; leave one out");
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) {
        double value = NAN;
        int code = sheet_real(a->args, reals[i].o, reals[i].kind, PLAN_POSITIVE, &value);
        if (code) return code;
        if (GIVEN(reals[i].o)) plan_training_give(&a->t, reals[i].q, reals[i].o == TRAIN_DAYS ? value * 86400 : value);
    }
    if (a->t.value[PLAN_MFU] > 1)
        return REFUSE("--mfu: '%.40s' is more than 1, which no run reaches", VALUE(TRAIN_MFU));
    return 0;
}

/* ---- unknowns ---- */

static const struct {
    enum plan_quantity q;
    const char *option;
} askable[] = {{PLAN_PARAMETERS, "--params (or --model)"}, {PLAN_TOKENS, "--tokens"}, {PLAN_GPUS, "--gpus"},
               {PLAN_PEAK, "--device (or --peak-tflops)"}, {PLAN_MFU, "--mfu"},       {PLAN_TIME, "--time"},
               {PLAN_PRICE, "--price-per-gpu-hour"},       {PLAN_COST, "--budget"},   {PLAN_TOTAL, "--flops"}};
enum { ASKABLE = sizeof askable / sizeof *askable };

static int is_known(const struct train_ask *a, enum plan_quantity q) {
    return a->t.by[q] != PLAN_OPEN;
}

/* One line that names what is open of `wanted`, a bit for each quantity. 0: nothing is. */
static int refuse_open(struct train_ask *a, unsigned wanted) {
    char what[160] = "", which[160] = "";
    size_t at = 0, n = 0;
    int open = 0;
    for (int i = 0; i < ASKABLE; i++) {
        if (!(wanted >> askable[i].q & 1) || is_known(a, askable[i].q)) continue;
        at += (size_t)snprintf(what + at, sizeof what - at, "%s%s", open ? ", " : "", plan_quantity_name(askable[i].q));
        n += (size_t)snprintf(which + n, sizeof which - n, "%s%s", open ? ", " : "", askable[i].option);
        open++;
    }
    if (!open) return 0;
    if (open == 1) return REFUSE("%s is not known and follows from nothing given; give %s", what, which);
    return REFUSE("%s unknowns (%s), and only one can be solved for; give %s of %s",
                  open == 2   ? "two"
                  : open == 3 ? "three"
                              : "several",
                  what, open == 2 ? "one" : "all but one", which);
}

#define BIT(q) (1u << (q))
/* What must be known for the question that the options put; see docs/INTERNALS.md, "The napkin". */
static int check_known(struct train_ask *a) {
    unsigned work = is_known(a, PLAN_TOTAL) ? 0 : train_ask_is_op(a) ? BIT(PLAN_TOTAL) : 0;
    int peak_open = !is_known(a, PLAN_PEAK);
    int machine = GIVEN(TRAIN_GPUS) || !peak_open || GIVEN(TRAIN_MFU) || is_known(a, PLAN_TIME) || GIVEN(TRAIN_RATE) ||
                  GIVEN(TRAIN_STEP_TIME);
    int money = GIVEN(TRAIN_PRICE) || GIVEN(TRAIN_BUDGET);
    if (!is_known(a, PLAN_TOTAL) && !work)
        work = (is_known(a, PLAN_FLOPS_PER_TOKEN) ? 0 : BIT(PLAN_PARAMETERS)) |
               (is_known(a, PLAN_TOKENS) ? 0 : BIT(PLAN_TOKENS));
    if (money) {
        if (is_known(a, PLAN_GPU_HOURS) && is_known(a, PLAN_PRICE) && is_known(a, PLAN_COST) && !work) return 0;
        return refuse_open(a, work | BIT(PLAN_PEAK) | BIT(PLAN_MFU) | BIT(PLAN_PRICE) |
                                  (is_known(a, PLAN_GPU_HOURS) ? 0 : BIT(PLAN_COST)));
    }
    if (!machine) return refuse_open(a, BIT(PLAN_PARAMETERS) & work); /* FLOPs alone */
    int run_time = GIVEN(TRAIN_TIME) || GIVEN(TRAIN_DAYS);
    if ((is_known(a, PLAN_STEP_FLOPS) && (!run_time || is_known(a, PLAN_TOTAL))) || train_ask_is_op(a)) {
        if (is_known(a, PLAN_TIME) && is_known(a, PLAN_TOTAL)) return 0; /* a measurement */
        return refuse_open(a, (is_known(a, PLAN_STEP_TIME) ? 0 : BIT(PLAN_PEAK)) | (peak_open ? 0 : BIT(PLAN_GPUS)));
    }
    if (is_known(a, PLAN_TOKEN_RATE) && is_known(a, PLAN_FLOPS_PER_TOKEN) && GIVEN(TRAIN_RATE))
        return peak_open ? 0 : refuse_open(a, BIT(PLAN_GPUS) | BIT(PLAN_MFU));
    if (peak_open && is_known(a, PLAN_TIME) && !work) return 0;
    return refuse_open(a, work | BIT(PLAN_GPUS) | BIT(PLAN_PEAK) | BIT(PLAN_MFU) | BIT(PLAN_TIME));
}

static int solve(struct train_ask *a) {
    static const enum plan_quantity order[] = {PLAN_PARAMETERS, PLAN_TOKENS, PLAN_GPUS,  PLAN_MFU,      PLAN_TIME,
                                               PLAN_PEAK,       PLAN_COST,   PLAN_PRICE, PLAN_STEP_TIME};
    char err[900];
    if (plan_training_solve(&a->t, err, sizeof err)) return REFUSE("%s", err);
    if (!is_known(a, PLAN_GPUS) && is_known(a, PLAN_PEAK) && (train_ask_is_op(a) || is_known(a, PLAN_STEP_FLOPS))) {
        a->gpus_default = 1;
        plan_training_give(&a->t, PLAN_GPUS, 1);
        if (plan_training_solve(&a->t, err, sizeof err)) return REFUSE("%s", err);
    }
    a->solved_for = PLAN_QUANTITIES;
    for (size_t i = 0; i < sizeof order / sizeof *order && a->solved_for == PLAN_QUANTITIES; i++)
        if (a->t.by[order[i]] >= 0) a->solved_for = order[i];
    if (a->solved_for == PLAN_QUANTITIES && a->t.by[PLAN_TOTAL] >= 0 && !a->per_token) a->solved_for = PLAN_TOTAL;
    return check_known(a);
}

int train_ask_read(const struct arguments *args, struct train_ask *a) {
    int code;
    memset(a, 0, sizeof *a);
    a->args = args;
    plan_training_begin(&a->t);
    if (args->n_operands) return REFUSE("'%.40s': no operand is expected", args->operands[0]);
    (void)((code = sheet_check(args)) || (code = read_model(a)) || (code = read_counts(a)) || (code = read_flops(a)) ||
           (code = make_exact(a)) || (code = read_recompute(a)) || (code = read_peak(a)) || (code = read_rest(a)) ||
           (code = solve(a)));
    return code;
}
