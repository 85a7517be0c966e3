/* The way of every view from the command line to a document. */
#include "analyzer/view.h"

#include "analyzer/user_rules.h"
#include "analyzer/report_flops_rules.h"

#include "acct/profile.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- options ---- */

int view_choice(const struct arguments *args, int o, const char *const *names, int *out) {
    char all[256];
    size_t n = 0;
    if (!args->given[o]) return 0;
    for (int i = 0; names[i]; i++)
        if (!strcmp(names[i], args->value[o])) {
            *out = i;
            return 0;
        }
    all[0] = 0;
    for (int i = 0; names[i] && n < sizeof all; i++)
        n += (size_t)snprintf(all + n, sizeof all - n, "%s%s", i ? ", " : "", names[i]);
    return cmd_fail(args->command, args->command->usage_exit, "--%s %s: not known; there are %s",
                    args->command->options[o].name, args->value[o], all);
}

int view_number(const struct arguments *args, int o, int64_t most, int64_t *out) {
    if (!args->given[o]) return 0;
    const char *text = args->value[o];
    char *end = NULL;
    errno = 0;
    intmax_t value = *text >= '0' && *text <= '9' ? strtoimax(text, &end, 10) : -1;
    if (value < 0 || !end || *end || errno || value > most)
        return cmd_fail(args->command, args->command->usage_exit, "--%s %s: not a whole number from 0 to %" PRId64,
                        args->command->options[o].name, text, most);
    *out = value;
    return 0;
}

int64_t view_step(const struct report *r, const struct arguments *args, int o, int64_t otherwise, char *err,
                  size_t err_len) {
    int64_t n = 0;
    if (!args->given[o]) return otherwise;
    view_number(args, o, INT32_MAX, &n); /* was parsed before */
    for (int64_t i = 0; i < r->n_steps; i++)
        if (r->steps[i].index == n) return i;
    snprintf(err, err_len, "%s: no step %" PRId64 ": %" PRId64 " step(s) were found, counted from 0", r->path, n,
             r->n_steps);
    return VIEW_STEP_NONE;
}

int view_format(const struct arguments *args, int o, enum emit_format *out) {
    static const char *const names[] = {"text", "markdown", "json", "csv", NULL};
    int format = EMIT_TEXT;
    if (args->given[o] && !strcmp(args->value[o], "html"))
        return cmd_fail(args->command, args->command->usage_exit,
                        "--format html: not in this version; there are text, json, csv, markdown");
    int code = view_choice(args, o, names, &format);
    *out = (enum emit_format)format;
    return code;
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
    if (!args->given[VIEW_PEAK]) return 0;
    for (const char *p = args->value[VIEW_PEAK];; p++) {
        size_t n = strcspn(p, ",");
        if (parse_peak_item(p, n, out->peak))
            return cmd_fail(args->command, args->command->usage_exit,
                            "--peak-tflops %s: not understood; give TFLOP/s above 0, as 989.4 or fp32=66.9,bf16=989.4 "
                            "(formats: fp64 fp32 tf32 bf16 fp16 fp16_acc16 fp8 fp4)",
                            args->value[VIEW_PEAK]);
        p += n;
        if (!*p) return 0;
    }
}

/* Into *p, to which the options point. */
static int read_profile(const struct arguments *args, struct acct_profile *p, struct report_options *out) {
    char err[1024];
    out->device = NULL;
    if (!args->given[VIEW_PEAKS]) return 0;
    if (acct_profile_read(args->value[VIEW_PEAKS], p, err, sizeof err))
        return cmd_fail(args->command, args->command->usage_exit, "--peaks %s", err);
    if (p->cpu)
        return cmd_fail(
            args->command, args->command->usage_exit,
            "--peaks cpu: has no data sheet; measure it with `acct bench --vgpu --save FILE`, and give FILE");
    if (p->devices > 1)
        return cmd_fail(args->command, args->command->usage_exit, "--peaks %s: one device, without a count",
                        args->value[VIEW_PEAKS]);
    out->device = &p->device;
    out->device_from = args->value[VIEW_PEAKS];
    return 0;
}

/* Only where the view has that option. */
static int read_flops_rules(const struct arguments *args, struct report_options *ro) {
    char err[1024];
    int o = cmd_option(args, "flops-rules");
    ro->flops_rules = NULL;
    if (!args->given[o]) return 0;
    ro->flops_rules = flops_rules_read(args->value[o], err, sizeof err);
    return ro->flops_rules ? 0 : cmd_fail(args->command, args->command->usage_exit, "%s", err);
}

static int read_rules(const struct arguments *args, struct report_options *ro) {
    char err[1024];
    ro->user_rules = NULL;
    if (!args->given[VIEW_RULES]) return 0;
    if (!user_rules_read(&ro->user_rules, args->value[VIEW_RULES], err, sizeof err)) return 0;
    return cmd_fail(args->command, args->command->usage_exit, "%s", err);
}

/* ---- traces ---- */

void view_open(struct emitter *e, const struct report *r) {
    emit_object(e, "", NULL, LOOK_FIELDS);
    emit_int(e, "schema", NULL, UNIT_NONE, 1);
    emit_text(e, "trace", NULL, r->path);
}

void view_notes(struct emitter *e, const struct report *r) {
    emit_list(e, "notes", r->n_notes ? "Notes" : NULL, LOOK_LINES);
    for (int i = 0; i < r->n_notes; i++) emit_text(e, "", "", r->notes[i]);
    emit_end(e);
}

/* Classes by the user's rules, over those of the trace. */
static int apply_rules(struct report *r, struct user_rules *u, char *err, size_t err_len) {
    char why[900] = "";
    if (!u) return 0;
    if (user_rules_apply(u, r->db, 0, why, sizeof why)) {
        snprintf(err, err_len, "%s: the rules cannot be applied: %s", r->path, why);
        return -1;
    }
    for (int i = 0; i < u->rules; i++)
        if (!u->rule[i].matches) report_note(r, "%s:%d: the rule matches no allocation.", u->path, u->rule[i].line);
    return 0;
}

static int show_one(const struct arguments *args, const struct view *view, struct emitter *e,
                    const struct report_options *ro, const char *path) {
    char err[1024] = "";
    struct report r;
    if (report_open(&r, path, err, sizeof err)) return cmd_fail(args->command, CMD_EXIT_FAILED, "%s", err);
    int rc = apply_rules(&r, ro->user_rules, err, sizeof err);
    if (!rc) rc = report_load(&r, ro, err, sizeof err);
    if (!rc && !view->without_rates) report_note_peak(&r);
    if (!rc) rc = view->print(e, &r, args, err, sizeof err);
    report_close(&r);
    return rc ? cmd_fail(args->command, CMD_EXIT_FAILED, "%s", err) : 0;
}

/* One trace is an object; several are a list of objects. */
static int show_all(const struct arguments *args, const struct view *view, struct emitter *e,
                    const struct report_options *ro) {
    int code = 0;
    if (args->n_operands > 1) emit_list(e, "", NULL, LOOK_FIELDS);
    for (int i = 0; i < args->n_operands && !code; i++) code = show_one(args, view, e, ro, args->operands[i]);
    emit_finish(e);
    return code;
}

/* What is read must not be replaced by what is printed of it. */
static int check_output(const struct arguments *args) {
    const char *out = args->given[VIEW_OUTPUT] ? args->value[VIEW_OUTPUT] : NULL;
    int rules = cmd_option(args, "flops-rules");
    struct stat a, b;
    if (!out || stat(out, &a) || !S_ISREG(a.st_mode)) return 0;
    for (int i = -3; i < args->n_operands; i++) {
        int o = i == -3 ? VIEW_PEAKS : i == -2 ? VIEW_RULES : rules;
        const char *path = i >= 0 ? args->operands[i] : args->given[o] ? args->value[o] : NULL;
        if (path && !stat(path, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino)
            return cmd_fail(args->command, args->command->usage_exit,
                            "--output %s: is the same file as %s, which would be lost; choose another name", out, path);
    }
    return 0;
}

static int show(const struct arguments *args, const struct view *view, enum emit_format format,
                const struct report_options *ro) {
    char err[4400];
    struct output out;
    struct emitter e;
    int code;
    if (output_open(&out, args->given[VIEW_OUTPUT] ? args->value[VIEW_OUTPUT] : NULL, err, sizeof err))
        return cmd_fail(args->command, CMD_EXIT_FAILED, "%s", err);
    emit_begin(&e, out.file, format);
    e.table_limit = view->table_limit;
    code = show_all(args, view, &e, ro);
    if (code) {
        output_abandon(&out);
        return code;
    }
    return output_close(&out, err, sizeof err) ? cmd_fail(args->command, CMD_EXIT_FAILED, "%s", err) : 0;
}

int view_run(const struct arguments *args, const struct view *view) {
    struct report_options ro;
    struct acct_profile profile;
    enum emit_format format = EMIT_TEXT;
    int code;
    if ((code = view_format(args, VIEW_FORMAT, &format)) || (code = parse_peaks(args, &ro)) ||
        (code = read_profile(args, &profile, &ro)))
        return code;
    if (view->parse && (code = view->parse(args))) return code;
    if (!args->n_operands)
        return cmd_fail(args->command, args->command->usage_exit,
                        "no trace given; type: acct %s TRACE (a .db file that acct run wrote)", args->command->name);
    if ((code = check_output(args)) || (code = read_flops_rules(args, &ro))) return code;
    code = read_rules(args, &ro);
    if (!code) code = show(args, view, format, &ro);
    user_rules_free(ro.user_rules);
    flops_rules_free(ro.flops_rules);
    return code;
}
