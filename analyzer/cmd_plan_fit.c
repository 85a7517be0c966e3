/* acct plan fit: the most that fits on so many devices: parameters, or what a model's text leaves out (layers, batch,
 * tokens of a sequence); of the capacity that the vendor names and of what the device really offers. */
#include "analyzer/plan_memory_ask.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { OPT_MEMORY = ASK_OPTIONS };
static const struct option_spec options[] = {
    SHEET_OPTION_ROWS,
    ASK_OPTION_ROWS,
    [OPT_MEMORY] = {"memory", 0, OPTION_VALUE, "BYTES",
                    "capacity of each GPU, as 80GB or 80GiB, instead of a device's"},
    {0},
};

enum { NOMINAL, OFFERED, CAPACITIES };

/* What fits into one capacity. */
struct fitting {
    int64_t bytes, count;       /* bytes -1: the capacity is not known */
    int above;                  /* one more cannot be asked about: count is all that can be */
    struct plan_memory m, more; /* at count, at one more; m is valid if count > 0 */
};

struct fit {
    struct memory_ask a;
    int64_t memory;
    struct fitting of[CAPACITIES];
};

static const char *const keys[] = {
    [ASK_PARAMETERS] = "parameters", [ASK_LAYERS] = "layers", [ASK_BATCHES] = "batch", [ASK_TOKENS] = "seq"};

static int64_t *count_of(struct fit *f) {
    struct memory_ask *a = &f->a;
    return a->unknown == ASK_PARAMETERS ? &a->q.parameters
           : a->unknown == ASK_LAYERS   ? &a->model.layers
           : a->unknown == ASK_BATCHES  ? &a->model.batch
                                        : &a->model.seq;
}

static int find(struct fit *f, struct fitting *g, char *err, size_t err_len) {
    int64_t *count = count_of(f), most = f->a.unknown == ASK_PARAMETERS ? INT64_MAX - 1 : INT64_C(1000000000000);
    if (plan_memory_fit(&f->a.q, count, most, g->bytes, &g->count, err, err_len)) return -1;
    int64_t before = *count;
    char why[256];
    *count = g->count;
    int bad = g->count ? plan_memory(&f->a.q, &g->m, err, err_len) : 0;
    *count = g->count + 1;
    if (!g->count && f->a.unknown == ASK_LAYERS) *count = f->a.q.spread.pipeline;
    g->above = plan_memory(&f->a.q, &g->more, why, sizeof why) != 0;
    *count = before;
    return bad;
}

static const char *digits(char out[41], __int128 n) {
    emit_digits(out, n);
    return out;
}
#define DIGITS(n) digits((char[41]){0}, n)

/* All GPUs together hold everything once: nothing is kept twice. */
static int evenly(const struct fitting *g, const struct memory_ask *a) {
    return g->m.data == 1 || a->q.spread.zero == 3;
}

static void add_answer(struct plan_sheet *s, const struct fit *f, int which) {
    const struct fitting *g = &f->of[which];
    const struct memory_ask *a = &f->a;
    const char *key = f->memory ? "at_memory" : which == NOMINAL ? "at_nominal" : "at_device";
    static const char *const labels[CAPACITIES + 1][5] = {
        {"", "parameters, by nominal bytes", "layers, by nominal bytes", "batch, by nominal bytes",
         "tokens, by nominal bytes"},
        {"", "parameters, by what it offers", "layers, by what it offers", "batch, by what it offers",
         "tokens, by what it offers"},
        {"", "parameters, by that memory", "layers, by that memory", "batch, by that memory",
         "tokens, by that memory"}};
    const char *label = labels[f->memory ? CAPACITIES : which][a->unknown];
    if (g->bytes < 0)
        sheet_result(s, key, label, SHEET_NUMBER, NAN, "the capacity is not known");
    else if (!g->count)
        sheet_result_whole(s, key, label, SHEET_NUMBER, 0, "the least takes %s bytes of %s", DIGITS(g->more.total),
                           DIGITS(g->bytes));
    else if (a->unknown == ASK_PARAMETERS && evenly(g, a))
        sheet_result_whole(s, key, label, SHEET_NUMBER, g->count, "%lld x %s bytes / %g bytes a parameter",
                           (long long)a->q.spread.gpus, DIGITS(g->bytes), g->m.per_parameter * (double)g->m.data);
    else if (a->unknown == ASK_PARAMETERS)
        sheet_result_whole(s, key, label, SHEET_NUMBER, g->count, "%s%s bytes / (%s) bytes a parameter",
                           a->q.spread.tensor * a->q.spread.pipeline > 1 ? "tensor x pipeline x " : "",
                           DIGITS(g->bytes), g->m.per_formula);
    else if (g->above)
        sheet_result_whole(s, key, label, SHEET_NUMBER, g->count, "%s bytes of %s; more cannot be counted",
                           DIGITS(g->m.total), DIGITS(g->bytes));
    else
        sheet_result_whole(s, key, label, SHEET_NUMBER, g->count, "%s bytes of %s; one more: %s", DIGITS(g->m.total),
                           DIGITS(g->bytes), DIGITS(g->more.total));
}

static void add_capacity(struct plan_sheet *s, const struct fit *f) {
    const struct acct_device *d = &f->a.device;
    int profile = isnan(f->a.nominal);
    if (f->memory) {
        sheet_input_whole(s, "memory", "bytes of each GPU", SHEET_BYTES, f->memory, "given");
        return;
    }
    if (f->of[NOMINAL].bytes >= 0)
        sheet_input_whole(s, "nominal_bytes", "nominal bytes", SHEET_BYTES, f->of[NOMINAL].bytes, d->source);
    else
        sheet_input(s, "nominal_bytes", "nominal bytes", SHEET_BYTES, NAN, "a profile does not tell");
    sheet_input_whole(s, "total_bytes", "bytes that the driver reports", SHEET_BYTES, (__int128)d->total_bytes,
                      d->total_estimated ? "estimated: nominal GiB less 1 %"
                      : profile          ? "the profile, or its base"
                                         : "reported by a device");
    sheet_input_whole(s, "reserved_bytes", "context and driver", SHEET_BYTES, (__int128)d->reserved_bytes,
                      profile ? "the profile, or its base" : "estimated");
}

/* ---- the terms at the answers, side by side ---- */

static void print_term(struct emitter *e, const struct fit *f, const char *key, const char *label, int i) {
    static const char *const bytes_keys[] = {"nominal_bytes", "device_bytes"};
    const char *const titles[] = {f->memory ? "bytes" : "by nominal", f->memory ? NULL : "by what it offers"};
    emit_object(e, "", NULL, LOOK_FIELDS);
    emit_text(e, "term", NULL, key);
    emit_text(e, NULL, "term", label);
    for (int w = 0; w < CAPACITIES; w++) {
        const struct fitting *g = &f->of[w];
        if (g->bytes < 0 || !g->count)
            emit_null(e, bytes_keys[w], titles[w]);
        else
            emit_int(e, bytes_keys[w], titles[w], UNIT_BYTES, i < 0 ? g->m.total : g->m.term[i].bytes);
    }
    emit_end(e);
}

static void print_tables(struct emitter *e, const void *context) {
    const struct fit *f = context;
    const struct fitting *g = &f->of[f->of[NOMINAL].bytes >= 0 && f->of[NOMINAL].count ? NOMINAL : OFFERED];
    int any = g->bytes >= 0 && g->count;
    emit_list(e, "terms", any ? "Of a GPU, at that" : NULL, any ? LOOK_TABLE : LOOK_HIDDEN);
    for (int i = 0; any && i < g->m.n; i++) print_term(e, f, g->m.term[i].key, g->m.term[i].label, i);
    if (any) print_term(e, f, "total", "total", -1);
    emit_end(e);
}

/* ---- the command ---- */

static int read(const struct arguments *args, struct fit *f) {
    memset(f, 0, sizeof *f);
    int code = sheet_check(args);
    if (!code) code = memory_ask_read(args, &f->a, 1);
    if (!code) code = sheet_whole(args, OPT_MEMORY, PLAN_BYTES, PLAN_POSITIVE, INT64_MAX, &f->memory);
    if (code) return code;
    if (!f->memory == !f->a.has_device)
        return cmd_fail(args->command, CMD_EXIT_USAGE,
                        f->memory ? "--memory and --device: give one of them"
                                  : "how much memory? Type --device h100-sxm or --memory 80GB");
    f->of[NOMINAL].bytes = f->memory ? f->memory : isnan(f->a.nominal) ? -1 : (int64_t)f->a.nominal;
    f->of[OFFERED].bytes = f->memory ? -1 : f->a.offers;
    return 0;
}

/* Nothing is left out: does it fit? */
static int answer_all_given(const struct arguments *args, struct fit *f) {
    struct plan_memory m;
    struct plan_sheet s;
    char err[512];
    if (plan_memory(&f->a.q, &m, err, sizeof err)) return cmd_fail(args->command, CMD_EXIT_USAGE, "%s", err);
    sheet_begin(&s, args);
    memory_ask_inputs(&s, &f->a);
    add_capacity(&s, f);
    memory_ask_terms(&s, &f->a, &m);
    if (f->memory) {
        sheet_result_whole(&s, "room", "left", SHEET_BYTES, f->memory - m.total, "%lld - total", (long long)f->memory);
        sheet_result_text(&s, "fits", "fits", m.total <= f->memory ? "yes" : "no", "what is left is %s",
                          m.total <= f->memory ? "0 or more" : "negative");
    }
    memory_ask_room(&s, &f->a, m.total);
    memory_ask_notes(&s, &f->a, &m);
    return sheet_print(&s);
}

static int fit(const struct arguments *args) {
    struct fit f;
    struct plan_sheet s;
    char err[512];
    int code = read(args, &f);
    if (code) return code;
    if (f.a.unknown == ASK_NONE) return answer_all_given(args, &f);
    for (int w = 0; w < CAPACITIES; w++)
        if (f.of[w].bytes >= 0 && find(&f, &f.of[w], err, sizeof err))
            return cmd_fail(args->command, CMD_EXIT_USAGE, "%s", err);
    sheet_begin(&s, args);
    s.tables = print_tables;
    s.context = &f;
    memory_ask_inputs(&s, &f.a);
    sheet_input_text(&s, "unknown", "to be found", keys[f.a.unknown],
                     f.a.unknown == ASK_PARAMETERS ? "no model" : "left out of the model");
    add_capacity(&s, &f);
    add_answer(&s, &f, NOMINAL);
    if (!f.memory) add_answer(&s, &f, OFFERED);
    memory_ask_notes(&s, &f.a, f.of[OFFERED].count ? &f.of[OFFERED].m : &f.of[NOMINAL].m);
    if (f.a.unknown == ASK_PARAMETERS && f.a.q.spread.zero == 3)
        sheet_note(&s, "Every GPU holds its share of everything (ZeRO stage 3); --zero 0 to 2 leaves more whole.");
    return sheet_print(&s);
}

const struct command cmd_plan_fit = {
    .name = "plan fit",
    .synopsis = "the largest model, depth, batch or context that fits on so many devices",
    .usage = ASK_USAGE " [--memory BYTES] " SHEET_USAGE,
    .details = ASK_DETAILS
    "What --model leaves out (layers, batch or seq) is found; without a model the number of parameters. "
    "Stage 3 of ZeRO\nunless --zero says otherwise; inference: all GPUs tensor-parallel unless told.\n",
    .options = options,
    .usage_exit = CMD_EXIT_USAGE,
    .function = fit,
};
