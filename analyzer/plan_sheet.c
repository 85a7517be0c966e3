#include "analyzer/plan_sheet.h"
#include "analyzer/view.h"

#include "acct/profile.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sheet_line {
    const char *key, *label;
    enum sheet_unit unit;
    enum { LINE_REAL, LINE_WHOLE, LINE_TEXT } kind;
    double real;
    __int128 whole;
    char *text;
    char *why; /* inputs: where it is from; results: the formula */
};

static const struct {
    const char *name; /* for machines */
    enum emit_unit emit;
} units[] = {
    [SHEET_NUMBER] = {"", UNIT_NONE},
    [SHEET_BYTES] = {"bytes", UNIT_BYTES},
    [SHEET_FLOP] = {"FLOP", UNIT_FLOPS},
    [SHEET_OPS] = {"OP", UNIT_NONE},
    [SHEET_FLOP_PER_S] = {"FLOP/s", UNIT_FLOPS_PER_S},
    [SHEET_OP_PER_S] = {"OP/s", UNIT_NONE},
    [SHEET_BYTES_PER_S] = {"bytes/s", UNIT_BYTES_PER_S},
    [SHEET_SECONDS] = {"s", UNIT_NONE},
    [SHEET_DAYS] = {"days", UNIT_NONE},
    [SHEET_SHARE] = {"1", UNIT_SHARE},
    [SHEET_FLOP_PER_BYTE] = {"FLOP/byte", UNIT_NONE},
    [SHEET_MONEY] = {"price", UNIT_NONE},
    [SHEET_TOKENS_PER_S] = {"tokens/s", UNIT_NONE},
    [SHEET_TOKENS] = {"tokens", UNIT_NONE},
    [SHEET_GPU_HOURS] = {"GPU-hours", UNIT_NONE},
    [SHEET_BYTES_PER_PARAMETER] = {"bytes/parameter", UNIT_NONE},
};

/* ---- filling ---- */

void sheet_begin(struct plan_sheet *s, const struct arguments *args) {
    memset(s, 0, sizeof *s);
    s->args = args;
}

static void free_lines(struct sheet_line *lines, int n) {
    for (int i = 0; i < n; i++) {
        free(lines[i].text);
        free(lines[i].why);
    }
    free(lines);
}

void sheet_free(struct plan_sheet *s) {
    free_lines(s->inputs, s->n_inputs);
    free_lines(s->results, s->n_results);
    for (int i = 0; i < s->n_notes; i++) free(s->notes[i]);
    free(s->notes);
    memset(s, 0, sizeof *s);
}

static char *copy(const char *text) {
    size_t n = strlen(text) + 1;
    return memcpy(emit_alloc(NULL, n), text, n);
}

static char *print(const char *format, va_list ap) {
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, format, ap);
    char *text = emit_alloc(NULL, (size_t)n + 1);
    vsnprintf(text, (size_t)n + 1, format, again);
    va_end(again);
    return text;
}

static struct sheet_line *add(struct sheet_line **lines, int *n, const char *key, const char *label,
                              enum sheet_unit unit) {
    *lines = emit_alloc(*lines, (size_t)(*n + 1) * sizeof **lines);
    struct sheet_line *l = &(*lines)[(*n)++];
    memset(l, 0, sizeof *l);
    l->key = key;
    l->label = label;
    l->unit = unit;
    return l;
}

void sheet_input(struct plan_sheet *s, const char *key, const char *label, enum sheet_unit unit, double value,
                 const char *from) {
    struct sheet_line *l = add(&s->inputs, &s->n_inputs, key, label, unit);
    l->real = value;
    l->why = copy(from);
}

void sheet_input_whole(struct plan_sheet *s, const char *key, const char *label, enum sheet_unit unit, __int128 value,
                       const char *from) {
    struct sheet_line *l = add(&s->inputs, &s->n_inputs, key, label, unit);
    l->kind = LINE_WHOLE;
    l->whole = value;
    l->why = copy(from);
}

void sheet_input_text(struct plan_sheet *s, const char *key, const char *label, const char *value, const char *from) {
    struct sheet_line *l = add(&s->inputs, &s->n_inputs, key, label, SHEET_NUMBER);
    l->kind = LINE_TEXT;
    l->text = copy(value);
    l->why = copy(from);
}

#define FORMULA(line)                    \
    do {                                 \
        va_list ap;                      \
        va_start(ap, format);            \
        (line)->why = print(format, ap); \
        va_end(ap);                      \
    } while (0)

void sheet_result(struct plan_sheet *s, const char *key, const char *label, enum sheet_unit unit, double value,
                  const char *format, ...) {
    struct sheet_line *l = add(&s->results, &s->n_results, key, label, unit);
    l->real = value;
    FORMULA(l);
}

void sheet_result_whole(struct plan_sheet *s, const char *key, const char *label, enum sheet_unit unit, __int128 value,
                        const char *format, ...) {
    struct sheet_line *l = add(&s->results, &s->n_results, key, label, unit);
    l->kind = LINE_WHOLE;
    l->whole = value;
    FORMULA(l);
}

void sheet_result_text(struct plan_sheet *s, const char *key, const char *label, const char *value, const char *format,
                       ...) {
    struct sheet_line *l = add(&s->results, &s->n_results, key, label, SHEET_NUMBER);
    l->kind = LINE_TEXT;
    l->text = value ? copy(value) : NULL;
    FORMULA(l);
}

void sheet_note(struct plan_sheet *s, const char *format, ...) {
    va_list ap;
    s->notes = emit_alloc(s->notes, (size_t)(s->n_notes + 1) * sizeof *s->notes);
    va_start(ap, format);
    s->notes[s->n_notes++] = print(format, ap);
    va_end(ap);
}

/* ---- printing ---- */

/* People see seconds in the unit that fits. */
void sheet_human_seconds(char *out, size_t room, double s) {
    static const struct {
        double from, seconds;
        const char *name;
    } scale[] = {{2 * 86400, 86400, "days"}, {7200, 3600, "h"},  {120, 60, "min"}, {1, 1, "s"},
                 {1e-3, 1e-3, "ms"},         {1e-6, 1e-6, "us"}, {0, 1e-9, "ns"}};
    size_t i = 0;
    while (i + 1 < sizeof scale / sizeof *scale && fabs(s) < scale[i].from) i++;
    snprintf(out, room, "%.4g %s", s / scale[i].seconds, scale[i].name);
}

/* People have it in the quantity's name; of money nobody knows it. */
static int label_has_unit(enum sheet_unit unit) {
    return unit == SHEET_MONEY || unit == SHEET_TOKENS_PER_S || unit == SHEET_TOKENS || unit == SHEET_GPU_HOURS;
}

static void human_real(char *out, size_t room, enum sheet_unit unit, double value) {
    char number[48];
    if (isnan(value)) {
        snprintf(out, room, "unknown");
    } else if (unit == SHEET_SECONDS) {
        sheet_human_seconds(out, room, value);
    } else if (unit == SHEET_FLOP && fabs(value) >= 1e18) { /* as papers write it: 6.3e24 */
        plan_show(number, sizeof number, strtod((snprintf(out, room, "%.4g", value), out), NULL));
        snprintf(out, room, "%s FLOP", number);
    } else if (unit == SHEET_OP_PER_S) { /* as a rate of FLOPs, but for the letters */
        emit_human(out, room, UNIT_FLOPS_PER_S, value, 0);
        char *flop = strstr(out, "FLOP");
        if (flop) memmove(flop, flop + 2, strlen(flop + 2) + 1);
    } else if (units[unit].emit != UNIT_NONE) {
        emit_human(out, room, units[unit].emit, value, 0);
    } else {
        if (fabs(value) >= 1e9 || (value && fabs(value) < 1e-4))
            plan_show(number, sizeof number, strtod((snprintf(out, room, "%.4g", value), out), NULL));
        else
            snprintf(number, sizeof number,
                     value == trunc(value) ? "%.0f"
                     : fabs(value) >= 1000 ? "%.1f"
                                           : "%.4g",
                     value);
        snprintf(out, room, "%s%s%s", number, *units[unit].name && !label_has_unit(unit) ? " " : "",
                 label_has_unit(unit) ? "" : units[unit].name);
    }
}

static void human(char *out, size_t room, const struct sheet_line *l) {
    char digits[41], scaled[64];
    if (l->kind == LINE_REAL) {
        human_real(out, room, l->unit, l->real);
        return;
    }
    emit_digits(digits, l->whole);
    if (l->unit == SHEET_BYTES) {
        emit_human_bytes(out, room, l->whole);
    } else if (l->unit == SHEET_FLOP) {
        human_real(scaled, sizeof scaled, l->unit, (double)l->whole);
        snprintf(out, room, l->whole < 1000 ? "%s" : "%s (%s)", scaled, digits);
    } else {
        snprintf(out, room, "%s%s%s", digits, *units[l->unit].name ? " " : "", units[l->unit].name);
    }
}

/* Machines get {"value":…, "unit":…, <why_key>:…}. */
static void print_machine(struct emitter *e, const struct sheet_line *l, const char *why_key) {
    emit_object(e, l->key, NULL, LOOK_HIDDEN);
    if (l->kind == LINE_TEXT)
        emit_text(e, "value", NULL, l->text);
    else if (l->kind == LINE_WHOLE)
        emit_int(e, "value", NULL, UNIT_NONE, l->whole);
    else
        emit_real(e, "value", NULL, UNIT_NONE, l->real);
    emit_text(e, "unit", NULL, l->kind == LINE_TEXT ? "text" : units[l->unit].name);
    emit_text(e, why_key, NULL, l->why);
    emit_end(e);
}

static void print_people(struct emitter *e, const struct sheet_line *l, const char *why_label) {
    char text[128];
    emit_object(e, NULL, NULL, LOOK_FIELDS);
    emit_text(e, NULL, "quantity", l->label);
    if (l->kind != LINE_TEXT) human(text, sizeof text, l);
    emit_text(e, NULL, "value", l->kind == LINE_TEXT ? l->text : text);
    emit_text(e, NULL, why_label, l->why);
    emit_end(e);
}

static void print_lines(struct emitter *e, const char *key, const char *title, const struct sheet_line *lines, int n,
                        const char *why_key) {
    emit_object(e, key, NULL, LOOK_HIDDEN);
    for (int i = 0; i < n; i++) print_machine(e, &lines[i], why_key);
    emit_end(e);
    int seen = 0;
    for (int i = 0; i < n; i++) seen |= lines[i].label != NULL;
    if (!seen || !emit_for_people(e)) return;
    emit_list(e, NULL, title, LOOK_TABLE);
    for (int i = 0; i < n; i++)
        if (lines[i].label) print_people(e, &lines[i], why_key);
    emit_end(e);
}

static void print_sheet(struct emitter *e, const struct plan_sheet *s) {
    emit_object(e, "", NULL, LOOK_FIELDS);
    emit_int(e, "schema", NULL, UNIT_NONE, 1);
    emit_text(e, "command", NULL, s->args->command->name);
    emit_text(e, "convention", s->convention ? "convention" : NULL, s->convention);
    print_lines(e, "inputs", "Given", s->inputs, s->n_inputs, "from");
    print_lines(e, "results", "Result", s->results, s->n_results, "formula");
    if (s->tables) s->tables(e, s->context);
    emit_list(e, "notes", s->n_notes ? "Notes" : NULL, LOOK_LINES);
    for (int i = 0; i < s->n_notes; i++) emit_text(e, "", "", s->notes[i]);
    emit_end(e);
    emit_end(e);
}

int sheet_check(const struct arguments *args) {
    enum emit_format format;
    return view_format(args, SHEET_FORMAT, &format);
}

int sheet_print(struct plan_sheet *s) {
    char err[5000];
    struct output out;
    struct emitter e;
    enum emit_format format;
    const struct arguments *args = s->args;
    int code = view_format(args, SHEET_FORMAT, &format);
    if (!code && output_open(&out, args->given[SHEET_OUTPUT] ? args->value[SHEET_OUTPUT] : NULL, err, sizeof err))
        code = cmd_fail(args->command, CMD_EXIT_FAILED, "%s", err);
    if (!code) {
        emit_begin(&e, out.file, format);
        print_sheet(&e, s);
        emit_finish(&e);
        if (output_close(&out, err, sizeof err)) code = cmd_fail(args->command, CMD_EXIT_FAILED, "%s", err);
    }
    sheet_free(s);
    return code;
}

/* ---- options ---- */

static int bad(const struct arguments *args, int o, const char *err) {
    return cmd_fail(args->command, CMD_EXIT_USAGE, "--%s: %s", args->command->options[o].name, err);
}

int sheet_real(const struct arguments *args, int o, enum plan_kind kind, enum plan_sign sign, double *out) {
    char err[256];
    if (!args->given[o] || !plan_real(args->value[o], kind, sign, out, err, sizeof err)) return 0;
    return bad(args, o, err);
}

int sheet_whole(const struct arguments *args, int o, enum plan_kind kind, enum plan_sign sign, int64_t most,
                int64_t *out) {
    char err[256];
    if (!args->given[o] || !plan_whole(args->value[o], kind, sign, most, out, err, sizeof err)) return 0;
    return bad(args, o, err);
}

int sheet_device(const struct arguments *args, int o, struct acct_device *out) {
    struct acct_profile p;
    struct acct_device d;
    char err[1024];
    if (!args->given[o]) return 0;
    for (int i = 0; !acct_device_get(i, &d); i++)
        if (!strcmp(d.name, args->value[o])) {
            *out = d;
            return 0;
        }
    if (acct_profile_read(args->value[o], &p, err, sizeof err)) return bad(args, o, err);
    if (p.cpu)
        return bad(args, o,
                   "cpu has no data sheet; measure it with `acct bench --save`, and give the file that it makes");
    if (p.devices > 1) return bad(args, o, "one device, without a count; --gpus says how many");
    *out = p.device;
    return 0;
}

int sheet_format_of(const struct arguments *args, int o, const char *name, int *out) {
    char err[256], all[160];
    size_t n = 0;
    for (int f = 0; f < ACCT_FORMATS; f++) {
        if (!strcmp(acct_format_name(f), name)) {
            *out = f;
            return 0;
        }
        n += (size_t)snprintf(all + n, sizeof all - n, "%s%s", f ? ", " : "", acct_format_name(f));
    }
    snprintf(err, sizeof err, "'%.40s' is no number format; there are %s", name, all);
    return bad(args, o, err);
}

int sheet_format(const struct arguments *args, int o, int *out) {
    return args->given[o] ? sheet_format_of(args, o, args->value[o], out) : 0;
}
