/* acct plan dtype: the number formats, and what each makes of a value (plan/plan_formats.h). */
#include "analyzer/plan_sheet.h"
#include "plan/plan_formats.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct option_spec options[] = {SHEET_OPTION_ROWS, {0}};

static void number_text(char *out, size_t room, double v) {
    if (isnan(v))
        snprintf(out, room, "NaN");
    else if (isinf(v))
        snprintf(out, room, v < 0 ? "-infinity" : "infinity");
    else
        plan_show(out, room, v);
}

static void layout_text(char *out, size_t room, const struct plan_format *f) {
    if (f->exponent)
        snprintf(out, room, "1/%d/%d", f->exponent, f->mantissa);
    else
        snprintf(out, room, "two's complement");
}

/* People see six digits, machines all. */
static void print_number(struct emitter *e, const char *key, const char *label, double v) {
    char text[40];
    if (isnormal(v))
        plan_show_short(text, sizeof text, v);
    else
        snprintf(text, sizeof text, "%.6g", v); /* shorter would be 5e-324 */
    emit_real(e, key, NULL, UNIT_NONE, v);
    emit_text(e, NULL, label, text);
}

static void print_formats(struct emitter *e) {
    char layout[40], bytes[16];
    struct plan_format f;
    emit_list(e, "formats", "Formats", LOOK_TABLE);
    for (int i = 0; i < PLAN_FORMATS; i++) {
        plan_format_get(i, &f);
        layout_text(layout, sizeof layout, &f);
        plan_show(bytes, sizeof bytes, f.bits / 8.0);
        emit_object(e, "", NULL, LOOK_FIELDS);
        emit_text(e, "name", "name", f.name);
        emit_text(e, "title", "", f.title);
        emit_real(e, "bytes", NULL, UNIT_NONE, f.bits / 8.0);
        emit_text(e, NULL, "bytes", bytes);
        emit_int(e, "bits", "bits", UNIT_NONE, f.bits_used);
        emit_int(e, "exponent_bits", NULL, UNIT_NONE, f.exponent);
        emit_int(e, "mantissa_bits", NULL, UNIT_NONE, f.mantissa);
        emit_text(e, NULL, "sign/exponent/mantissa", layout);
        print_number(e, "max", "max", f.max);
        print_number(e, "smallest_normal", "smallest normal", f.smallest_normal);
        print_number(e, "smallest", "smallest", f.smallest);
        print_number(e, "epsilon", "epsilon", f.epsilon);
        emit_bool(e, "infinity", NULL, f.beyond == PLAN_BEYOND_INFINITY || f.beyond == PLAN_BEYOND_LARGEST_OR_INF);
        emit_text(e, "use", "use", f.use);
        emit_end(e);
    }
    emit_end(e);
}

static void outcome_text(char *out, size_t room, enum plan_outcome o, double value, const char *mode) {
    char number[40];
    number_text(number, sizeof number, value);
    if (o == PLAN_SATURATED)
        snprintf(out, room, "saturated at %s%s", number, mode);
    else
        snprintf(out, room, "%s%s", plan_outcome_words(o), mode);
}

/* What is off: of the decimal as a long double has it. Of fp64 that leaves two or three digits; an error that it does
 * not show is not known. */
static void print_error(struct emitter *e, const char *text, double value, enum plan_outcome o) {
    long double exact = strtold(text, NULL), error = (long double)value - exact;
    int finite = isfinite(value) && isfinite(exact), known = finite && (error != 0 || o != PLAN_ROUNDED);
    char share[40] = "";
    emit_real(e, "error", NULL, UNIT_NONE, known ? (double)error : NAN);
    emit_real(e, "relative_error", NULL, UNIT_NONE, known && exact != 0 ? (double)(error / exact + 0.0L) : NAN);
    if (known && exact != 0) snprintf(share, sizeof share, "%.3Lg %%", 100 * error / exact + 0.0L);
    if (finite && !known) snprintf(share, sizeof share, "below 1e-17 %%");
    emit_text(e, NULL, "error", share);
}

static void print_made(struct emitter *e, const struct plan_format *f, const struct plan_value *v, const char *text) {
    char number[40], bits[24], words[256], others[100];
    double value, other;
    enum plan_outcome o = plan_format_round(f, v, 1, &value), without = plan_format_round(f, v, 0, &other);
    int two_ways = o != without;
    number_text(number, sizeof number, value);
    snprintf(bits, sizeof bits, "0x%0*" PRIx64, (f->bits + 3) / 4, plan_format_bits(f, value));
    outcome_text(words, sizeof words, o, value, two_ways ? " (satfinite)" : "");
    outcome_text(others, sizeof others, without, other, "");
    emit_object(e, "", NULL, LOOK_FIELDS);
    emit_text(e, "format", "format", f->name);
    emit_real(e, "value", NULL, UNIT_NONE, isfinite(value) ? value : NAN);
    emit_text(e, "text", "value", number);
    emit_text(e, "bits", "bits", bits);
    emit_text(e, "outcome", NULL, plan_outcome_words(o));
    print_error(e, text, value, o);
    emit_text(e, "without_saturation", NULL, two_ways ? plan_outcome_words(without) : NULL);
    if (two_ways) strcat(strcat(words, ", else "), others);
    emit_text(e, NULL, "outcome", words);
    emit_end(e);
}

static void print_value(struct emitter *e, const char *text) {
    struct plan_value v;
    struct plan_format f;
    char title[120];
    plan_value_read(text, &v); /* it was read before */
    snprintf(title, sizeof title, "What becomes of %.80s", text);
    emit_object(e, "", NULL, LOOK_FIELDS);
    emit_text(e, "given", NULL, text);
    emit_list(e, "formats", title, LOOK_TABLE);
    for (int i = 0; i < PLAN_FORMATS; i++) {
        plan_format_get(i, &f);
        print_made(e, &f, &v, text);
    }
    emit_end(e);
    emit_end(e);
}

static void tables(struct emitter *e, const void *context) {
    const struct arguments *args = context;
    if (!args->n_operands || !emit_for_people(e)) print_formats(e);
    emit_list(e, "values", NULL, LOOK_FIELDS);
    for (int i = 0; i < args->n_operands; i++) print_value(e, args->operands[i]);
    emit_end(e);
}

static enum plan_outcome outcome_in(const char *format, const struct plan_value *v) {
    struct plan_format f;
    double value;
    plan_format_get(plan_format_find(format), &f);
    return plan_format_round(&f, v, 1, &value);
}

static void note(struct plan_sheet *s, const char *text, const struct plan_value *v) {
    int e;
    enum plan_outcome half = outcome_in("fp16", v), brain = outcome_in("bf16", v);
    if (half == PLAN_UNDERFLOW && brain != PLAN_UNDERFLOW) {
        frexp(v->nearest, &e);
        sheet_note(
            s, "%.80s is lost in fp16 and survives in bf16: gradients of this size need loss scaling by 2^%d or more.",
            text, -14 - (e - 1));
    }
    if (half == PLAN_TO_INFINITY && brain != PLAN_TO_INFINITY)
        sheet_note(s, "%.80s overflows in fp16 (65520 and more do) and not in bf16.", text);
}

static int dtype(const struct arguments *args) {
    struct plan_sheet s;
    struct plan_value v;
    int code = sheet_check(args);
    for (int i = 0; i < args->n_operands && !code; i++)
        if (plan_value_read(args->operands[i], &v))
            code = cmd_fail(args->command, CMD_EXIT_USAGE, "'%.60s': not understood; give a number such as 1e-8",
                            args->operands[i]);
    if (code) return code;
    sheet_begin(&s, args);
    for (int i = 0; i < args->n_operands; i++) {
        plan_value_read(args->operands[i], &v);
        note(&s, args->operands[i], &v);
    }
    if (args->n_operands)
        sheet_note(
            &s,
            "Rounding is to nearest, ties to even. satfinite: conversions that stop at the largest number, as those of "
            "cuda_fp8.h do by default; casts of tensors to E4M3 may give NaN instead.");
    s.tables = tables;
    s.context = args;
    return sheet_print(&s);
}

const struct command cmd_plan_dtype = {
    .name = "plan dtype",
    .synopsis = "number formats, and what each makes of a value",
    .usage = SHEET_USAGE " [VALUE ...]",
    .options = options,
    .usage_exit = CMD_EXIT_USAGE,
    .function = dtype,
};
