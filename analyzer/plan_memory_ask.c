#include "analyzer/plan_memory_ask.h"

#include "analyzer/devices.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MOST INT64_C(1000000000000)

/* ---- options ---- */

static int refuse(const struct arguments *args, int o, const char *why) {
    return cmd_fail(args->command, CMD_EXIT_USAGE, "--%s: %s", args->command->options[o].name, why);
}

static int choice(const struct arguments *args, int o, const char *const *names, int *out) {
    char why[200];
    size_t n;
    if (!args->given[o]) return 0;
    for (int i = 0; names[i]; i++)
        if (!strcmp(names[i], args->value[o])) {
            *out = i;
            return 0;
        }
    n = (size_t)snprintf(why, sizeof why, "'%.40s' is not known; there are", args->value[o]);
    for (int i = 0; names[i] && n < sizeof why; i++)
        n += (size_t)snprintf(why + n, sizeof why - n, "%s %s", i ? "," : "", names[i]);
    return refuse(args, o, why);
}

/* Which of the words that plan fit may look for the text has. */
struct words {
    int linear;
    unsigned given; /* 1 << enum ask_unknown */
};

static int note_word(const char *name, const char *value, void *context, char *err, size_t err_len) {
    struct words *w = context;
    (void)err, (void)err_len;
    w->linear |= !strcmp(name, "kind") && !strcmp(value, "linear");
    w->given |= !strcmp(name, "layers")  ? 1u << ASK_LAYERS
                : !strcmp(name, "batch") ? 1u << ASK_BATCHES
                : !strcmp(name, "seq")   ? 1u << ASK_TOKENS
                                         : 0;
    return 0;
}

static int find_unknown(struct memory_ask *a, const struct words *w) {
    static const char *const names[] = {[ASK_LAYERS] = "layers", [ASK_BATCHES] = "batch", [ASK_TOKENS] = "seq"};
    const struct arguments *args = a->args;
    unsigned known = w->given | (args->given[ASK_BATCH] ? 1u << ASK_BATCHES : 0);
    char why[160] = "";
    int n = 0;
    if (w->linear) known |= 1u << ASK_TOKENS;
    for (int u = ASK_LAYERS; u <= ASK_TOKENS; u++) {
        if (known >> u & 1) continue;
        n += snprintf(why + n, sizeof why - (size_t)n, "%s%s", a->unknown ? " and " : "", names[u]);
        a->unknown = a->unknown ? (enum ask_unknown) - 1 : (enum ask_unknown)u;
    }
    if (a->unknown != (enum ask_unknown) - 1) return 0;
    snprintf(why + n, sizeof why - (size_t)n, " are unknown: one can be found, give the others");
    return refuse(args, ASK_MODEL, why);
}

static int read_model(struct memory_ask *a, int fits) {
    const struct arguments *args = a->args;
    struct words w = {0};
    char text[2048], err[512];
    if (!args->given[ASK_MODEL]) {
        if (fits) a->unknown = ASK_PARAMETERS;
        return 0;
    }
    if (plan_pairs(args->value[ASK_MODEL], note_word, &w, err, sizeof err)) return refuse(args, ASK_MODEL, err);
    if (fits && find_unknown(a, &w)) return CMD_EXIT_USAGE;
    int length = snprintf(text, sizeof text, "%s%s", args->value[ASK_MODEL],
                          a->unknown == ASK_LAYERS   ? ",layers=1"
                          : a->unknown == ASK_TOKENS ? ",seq=1"
                                                     : "");
    if (length >= (int)sizeof text) return refuse(args, ASK_MODEL, "is too long");
    if (plan_model_read(text, &a->model, err, sizeof err)) return refuse(args, ASK_MODEL, err);
    a->q.model = &a->model;
    return sheet_whole(args, ASK_BATCH, PLAN_COUNT, PLAN_POSITIVE, MOST, &a->model.batch);
}

static int read_spread(struct memory_ask *a, int fits) {
    const struct arguments *args = a->args;
    struct plan_spread *s = &a->q.spread;
    int64_t zero = 0;
    int code = sheet_whole(args, ASK_GPUS, PLAN_COUNT, PLAN_POSITIVE, MOST, &s->gpus);
    if (!code) code = sheet_whole(args, ASK_TENSOR, PLAN_COUNT, PLAN_POSITIVE, MOST, &s->tensor);
    if (!code) code = sheet_whole(args, ASK_PIPELINE, PLAN_COUNT, PLAN_POSITIVE, MOST, &s->pipeline);
    if (code) return code;
    /* How much fits on so many GPUs is asked of all of them together. */
    if (fits && a->q.recipe->inference && !args->given[ASK_TENSOR] && !args->given[ASK_PIPELINE] &&
        !args->given[ASK_ZERO])
        s->tensor = s->gpus;
    if (fits && !a->q.recipe->inference) zero = 3;
    code = sheet_whole(args, ASK_ZERO, PLAN_COUNT, PLAN_NOT_NEGATIVE, 3, &zero);
    s->zero = (int)zero;
    s->sequence = args->given[ASK_SEQUENCE];
    return code;
}

/* Options that this kind of recipe has no use for. */
static int check_kind(const struct memory_ask *a) {
    static const int of_training[] = {ASK_SEQUENCE, ASK_RECOMPUTE, ASK_NO_DROPOUT},
                     of_inference[] = {ASK_CONTEXT, ASK_CACHE};
    const struct arguments *args = a->args;
    for (int i = 0; i < 3; i++)
        if (a->q.recipe->inference && args->given[of_training[i]])
            return refuse(args, of_training[i], "is for training; the recipe is of inference");
    for (int i = 0; i < 2; i++)
        if (!a->q.recipe->inference && args->given[of_inference[i]])
            return refuse(args, of_inference[i], "is for inference; the recipe is of training");
    static const int of_models[] = {ASK_SEQUENCE, ASK_RECOMPUTE, ASK_NO_DROPOUT, ASK_CONTEXT, ASK_BATCH, ASK_CACHE};
    for (int i = 0; i < 6; i++)
        if (args->given[of_models[i]] && (!a->q.model || (of_models[i] != ASK_BATCH && a->model.kind == PLAN_LINEAR)))
            return refuse(args, of_models[i], a->q.model ? "is for transformers" : "needs a --model");
    return 0;
}

static int read_device(struct memory_ask *a) {
    struct device_spec d;
    int code = sheet_device(a->args, ASK_DEVICE, &a->device);
    if (code || !a->args->given[ASK_DEVICE]) return code;
    a->has_device = 1;
    a->nominal = NAN;
    a->offers = (int64_t)a->device.total_bytes - (int64_t)a->device.reserved_bytes;
    int i = devices_find(a->device.name);
    if (i < 0) return 0;
    devices_get(i, &d);
    if (!strcmp(d.alias, a->device.alias)) a->nominal = d.nominal_bytes;
    return 0;
}

int memory_ask_read(const struct arguments *args, struct memory_ask *a, int fits) {
    static const char *const recomputes[] = {"none", "selective", "full", NULL}, *const formats[] = {"fp32", "fp16",
                                                                                                     "bf16", "fp8",
                                                                                                     "int8", NULL};
    static const int bits[] = {32, 16, 16, 8, 8};
    char err[1024];
    int recompute = 0, format = -1, code;
    memset(a, 0, sizeof *a);
    a->args = args;
    a->q.spread = (struct plan_spread){.gpus = 1, .tensor = 1, .pipeline = 1};
    if (args->n_operands)
        return cmd_fail(args->command, CMD_EXIT_USAGE, "'%s': no operands are taken", args->operands[0]);
    if (!args->given[ASK_RECIPE])
        return cmd_fail(args->command, CMD_EXIT_USAGE, "no recipe; type --recipe adamw-fp32, or see acct help %s",
                        args->command->name);
    a->q.recipe = plan_recipe_find(args->value[ASK_RECIPE], err, sizeof err);
    if (!a->q.recipe) return refuse(args, ASK_RECIPE, err);
    code = read_spread(a, fits);
    if (!code) code = read_model(a, fits);
    if (!code) code = check_kind(a);
    if (!code) code = choice(args, ASK_RECOMPUTE, recomputes, &recompute);
    if (!code) code = choice(args, ASK_CACHE, formats, &format);
    if (!code) code = sheet_whole(args, ASK_CONTEXT, PLAN_COUNT, PLAN_POSITIVE, MOST, &a->q.context);
    if (!code) code = read_device(a);
    a->q.recompute = (enum plan_recompute)recompute;
    a->q.no_dropout = args->given[ASK_NO_DROPOUT];
    a->q.cache_bits = format < 0 ? 0 : bits[format];
    return code;
}

/* ---- the sheet ---- */

static const char *from(const struct memory_ask *a, int o) {
    return a->args->given[o] ? "given" : "default";
}

void memory_ask_inputs(struct plan_sheet *s, const struct memory_ask *a) {
    const struct plan_spread *w = &a->q.spread;
    const struct arguments *args = a->args;
    sheet_input_text(s, "recipe", "recipe", a->q.recipe->name, a->q.recipe->words);
    if (args->given[ASK_MODEL]) sheet_input_text(s, "model", "model", args->value[ASK_MODEL], "given");
    sheet_input_whole(s, "gpus", "GPUs", SHEET_NUMBER, w->gpus, from(a, ASK_GPUS));
    sheet_input_whole(s, "data_parallel", "data-parallel GPUs", SHEET_NUMBER, w->gpus / (w->tensor * w->pipeline),
                      "GPUs / (tensor x pipeline)");
    sheet_input_whole(s, "zero", "ZeRO stage", SHEET_NUMBER, w->zero, from(a, ASK_ZERO));
    sheet_input_whole(s, "tensor_parallel", "tensor-parallel GPUs", SHEET_NUMBER, w->tensor, from(a, ASK_TENSOR));
    sheet_input_whole(s, "pipeline_parallel", "stages of the pipeline", SHEET_NUMBER, w->pipeline,
                      from(a, ASK_PIPELINE));
    if (a->q.model && a->model.batch)
        sheet_input_whole(s, "batch", "batch of a replica", SHEET_NUMBER, a->model.batch,
                          args->given[ASK_BATCH] ? "given" : "model");
    if (!a->q.recipe->inference && a->q.model && a->model.kind == PLAN_GPT)
        sheet_input_text(s, "recompute", "recomputation",
                         args->given[ASK_RECOMPUTE] ? args->value[ASK_RECOMPUTE] : "none", from(a, ASK_RECOMPUTE));
    if (a->q.recipe->inference && a->q.model && a->model.kind == PLAN_GPT && a->unknown != ASK_TOKENS)
        sheet_input_whole(s, "context", "tokens of a sequence", SHEET_NUMBER,
                          a->q.context ? a->q.context : a->model.seq, args->given[ASK_CONTEXT] ? "given" : "model");
    if (a->has_device) sheet_input_text(s, "device", "device", a->device.name, a->device.source);
}

void memory_ask_terms(struct plan_sheet *s, const struct memory_ask *a, const struct plan_memory *m) {
    char sum[400] = "";
    size_t n = 0;
    sheet_result_whole(s, "params", "parameters", SHEET_NUMBER, m->parameters, "%s",
                       a->q.parameters ? "given" : "sum over the model's weights");
    sheet_result_whole(s, "params_of_gpu", "parameters of a GPU", SHEET_NUMBER, m->rank_parameters, "%s",
                       m->rank_formula);
    sheet_result(s, "bytes_per_parameter", "of each of them", SHEET_BYTES_PER_PARAMETER, m->per_parameter, "%s",
                 m->per_formula);
    for (int i = 0; i < m->n; i++) {
        sheet_result_whole(s, m->term[i].key, m->term[i].label, SHEET_BYTES, m->term[i].bytes, "%s",
                           m->term[i].formula);
        if (m->term[i].bytes && n < sizeof sum)
            n += (size_t)snprintf(sum + n, sizeof sum - n, "%s%s", n ? " + " : "", m->term[i].label);
    }
    sheet_result_whole(s, "total", a->q.spread.gpus > 1 ? "total of a GPU" : "total", SHEET_BYTES, m->total, "%s", sum);
}

void memory_ask_room(struct plan_sheet *s, const struct memory_ask *a, __int128 total) {
    if (!a->has_device) return;
    if (isnan(a->nominal))
        sheet_result(s, "room_nominal", "left of nominal bytes", SHEET_BYTES, NAN, "a profile has no nominal capacity");
    else
        sheet_result_whole(s, "room_nominal", "left of nominal bytes", SHEET_BYTES, (__int128)a->nominal - total,
                           "%.0f - total", a->nominal);
    sheet_result_whole(s, "room_device", "left of what the device offers", SHEET_BYTES, a->offers - total,
                       "%lld (total_bytes%s) - %lld (context and driver%s) - total", (long long)a->device.total_bytes,
                       a->device.total_estimated ? ", estimated" : "", (long long)a->device.reserved_bytes,
                       isnan(a->nominal) ? "" : ", estimated");
    sheet_result_text(s, "fits", "fits", total <= a->offers ? "yes" : "no", "what the device offers less total is %s",
                      total <= a->offers ? "0 or more" : "negative");
}

void memory_ask_notes(struct plan_sheet *s, const struct memory_ask *a, const struct plan_memory *m) {
    const struct plan_spread *w = &a->q.spread;
    sheet_note(s, "Formulas, nothing measured. %s",
               a->q.recipe->inference
                   ? "Left out: activations of a forward pass, library workspaces, the context."
                   : "Left out: gradients of activations, batches, library workspaces, buffers of communication, the "
                     "context, what an allocator loses.");
    if (a->q.recipe->note) sheet_note(s, "%s: %s.", a->q.recipe->name, a->q.recipe->note);
    if (!a->q.recipe->inference && !a->q.model)
        sheet_note(s, "No activations: they need a --model.");
    else if (a->q.model && !a->model.batch && a->unknown != ASK_BATCHES)
        sheet_note(s, "No %s: the model has no batch=.",
                   a->q.recipe->inference ? "cache of keys and values" : "activations");
    if (w->tensor > 1 && a->q.model && !a->q.parameters && a->model.kind == PLAN_GPT)
        sheet_note(
            s,
            "Tensor parallel divides the layers' matrices and the vocabulary's tables; norms, biases of proj and "
            "out and the position table are whole on every GPU%s.",
            w->sequence ? "" : ", and so are activations around norms and residuals");
    if (w->tensor * w->pipeline > 1 && (!a->q.model || a->q.parameters))
        sheet_note(s, "All parameters are divided evenly by tensor and pipeline parallel.");
    if (w->pipeline > 1 && a->q.model)
        sheet_note(s,
                   "Pipeline: one forward, one backward; the first stage keeps the activations of %lld micro-batches. "
                   "Figures are of the %s stage, which takes most.",
                   (long long)w->pipeline, m->last_stage ? "last" : "first");
    if ((w->zero || a->q.recipe->distributed) && m->data > 1)
        sheet_note(s, "ZeRO: buffers that hold gathered weights and reduced gradients for a while are left out.");
    if (a->q.parameters && a->q.model) sheet_note(s, "Parameters as given; the model is for activations.");
}
