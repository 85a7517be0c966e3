/* acct report [--format F] [-o OUT] TRACE… */
#include "analyzer/command.h"
#include "analyzer/report_print.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPT_FORMAT, OPT_OUTPUT, OPT_PEAK };
static const struct option_spec options[] = {
    [OPT_FORMAT] = {"format", 'f', OPTION_VALUE, "FORMAT", "text (default), json, csv or markdown"},
    [OPT_OUTPUT] = {"output", 'o', OPTION_VALUE, "OUT", "write to OUT, which is replaced when the report is complete"},
    [OPT_PEAK] = {"peak-tflops", 0, OPTION_VALUE, "X",
                  "the device's peak in TFLOP/s: X for all formats, or fp32=X,bf16=Y,..."},
    {0},
};

static int parse_format(const struct arguments *args, enum emit_format *out) {
    static const char *const names[] = {"text", "markdown", "json", "csv"};
    const char *wanted = args->given[OPT_FORMAT] ? args->value[OPT_FORMAT] : "text";
    for (int i = 0; i < 4; i++) {
        if (strcmp(names[i], wanted)) continue;
        *out = (enum emit_format)i;
        return 0;
    }
    if (!strcmp(wanted, "html"))
        return cmd_fail(args->command, CMD_EXIT_USAGE,
                        "--format html: not in this version; there are text, json, csv, markdown");
    return cmd_fail(args->command, CMD_EXIT_USAGE, "--format %s: no such format; there are text, json, csv, markdown",
                    wanted);
}

/* One `X` or `FORMAT=X`. */
static int parse_peak_item(const char *item, size_t length, double *peak) {
    const char *equals = memchr(item, '=', length);
    const char *number = equals ? equals + 1 : item;
    char *end;
    double value = strtod(number, &end);
    int any = 0;
    if (end == number || end != item + length || !(value > 0) || isinf(value)) return -1;
    for (int f = 0; f < PEAK_FORMATS; f++) {
        const char *name = devices_format_name(f);
        if (equals && (strlen(name) != (size_t)(equals - item) || strncmp(name, item, strlen(name)))) continue;
        peak[f] = round(value * 1e12);
        any = 1;
    }
    return any ? 0 : -1;
}

static int parse_peaks(const struct arguments *args, struct report_options *out) {
    for (int f = 0; f < PEAK_FORMATS; f++) out->peak[f] = NAN;
    if (!args->given[OPT_PEAK]) return 0;
    for (const char *p = args->value[OPT_PEAK];; p++) {
        size_t n = strcspn(p, ",");
        if (parse_peak_item(p, n, out->peak))
            return cmd_fail(args->command, CMD_EXIT_USAGE,
                            "--peak-tflops %s: not understood; give TFLOP/s above 0, as 989.4 or fp32=66.9,bf16=989.4 "
                            "(formats: fp64 fp32 tf32 bf16 fp16 fp16_acc16 fp8 fp4)",
                            args->value[OPT_PEAK]);
        p += n;
        if (!*p) return 0;
    }
}

static int report_one(const struct arguments *args, struct emitter *e, const struct report_options *ro,
                      const char *path) {
    char err[1024] = "";
    struct report r;
    if (report_open(&r, path, err, sizeof err)) return cmd_fail(args->command, CMD_EXIT_FAILED, "%s", err);
    int rc = report_load(&r, ro, err, sizeof err);
    if (!rc) rc = report_print(e, &r, err, sizeof err);
    report_close(&r);
    return rc ? cmd_fail(args->command, CMD_EXIT_FAILED, "%s", err) : 0;
}

/* One trace is an object; several are a list of objects. */
static int report_all(const struct arguments *args, struct emitter *e, const struct report_options *ro) {
    int code = 0;
    if (args->n_operands > 1) emit_list(e, "", NULL, LOOK_FIELDS);
    for (int i = 0; i < args->n_operands && !code; i++) code = report_one(args, e, ro, args->operands[i]);
    emit_finish(e);
    return code;
}

static int report(const struct arguments *args) {
    char err[4400];
    struct report_options ro;
    struct output out;
    struct emitter e;
    enum emit_format format = EMIT_TEXT;
    int code;
    if ((code = parse_format(args, &format)) || (code = parse_peaks(args, &ro))) return code;
    if (!args->n_operands)
        return cmd_fail(args->command, CMD_EXIT_USAGE,
                        "no trace given; type: acct report TRACE (a .db file that acct run wrote)");
    if (output_open(&out, args->given[OPT_OUTPUT] ? args->value[OPT_OUTPUT] : NULL, err, sizeof err))
        return cmd_fail(args->command, CMD_EXIT_FAILED, "%s", err);
    emit_begin(&e, out.file, format);
    e.table_limit = 40;
    code = report_all(args, &e, &ro);
    if (code) {
        output_abandon(&out);
        return code;
    }
    return output_close(&out, err, sizeof err) ? cmd_fail(args->command, CMD_EXIT_FAILED, "%s", err) : 0;
}

const struct command cmd_report = {
    .name = "report",
    .synopsis = "memory by class, FLOPs and MFU of a trace",
    .usage = "[--format text|json|csv|markdown] [-o OUT] [--peak-tflops X] TRACE...",
    .details = "JSON follows schema 1; integers are exact, what is not known is null. Several traces make a list. CSV "
               "has a line for each\n"
               "value: path, value, unit. A trace that was not analysed yet, or by an older acct, is analysed first: "
               "in the file, or in a\n"
               "temporary copy where it cannot be written.\n",
    .options = options,
    .usage_exit = CMD_EXIT_USAGE,
    .function = report,
};
