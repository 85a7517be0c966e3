/* acct bench: what the device at hand really does, beside what its data sheet promises. acct-bench (measure/) measures.
 */
#include "analyzer/bench_child.h"
#include "analyzer/bench_print.h"
#include "analyzer/bench_profile.h"
#include "analyzer/command.h"
#include "analyzer/plan_sheet.h"
#include "analyzer/run_profile.h"
#include "analyzer/view.h"

#include "acct/env.h"
#include "acct/profile.h"

#include <time.h>

enum { OPT_VGPU = SHEET_OPTIONS, OPT_SECONDS, OPT_ONLY, OPT_DTYPE, OPT_SAVE, OPT_FORCE };
static const struct option_spec options[] = {
    SHEET_OPTION_ROWS,
    [OPT_VGPU] = {"vgpu", 0, OPTION_OPTIONAL, "PROFILE", "measure the virtual GPU of profile cpu: this machine"},
    [OPT_SECONDS] = {"seconds", 's', OPTION_VALUE, "S", "how long to measure, in all (default 20; 1 to 3600)"},
    [OPT_ONLY] = {"only", 0, OPTION_VALUE, "LIST", "only these, with commas: gemm, copy, launch, alloc"},
    [OPT_DTYPE] = {"dtype", 0, OPTION_VALUE, "LIST",
                   "products of these only: fp64, fp32, tf32, bf16, fp16, fp16_acc16, fp8, int8"},
    [OPT_SAVE] = {"save", 0, OPTION_VALUE, "FILE", "make a profile of what was measured: FILE ends in .profile"},
    [OPT_FORCE] = {"force", 0, OPTION_FLAG, NULL, "replace FILE of --save if it exists"},
    {0},
};

enum { DEFAULT_SECONDS = 20, MOST_SECONDS = 3600 };

/* Everything given stands in one struct before anything starts. */
struct wishes {
    struct run_parts parts;
    struct bench_wanted wanted;
    enum emit_format format;
    const char *save;
};

/* ---- the command line ---- */

static const char *group_name(int i) {
    static const char *const names[] = {"gemm", "copy", "launch", "alloc", NULL};
    return names[i];
}

/* Those that acct-bench measures, in the order of the table. */
static const char *dtype_name(int i) {
    for (int f = 0; f < ACCT_FORMATS; f++)
        if (bench_format_name(f) && !i--) return bench_format_name(f);
    return NULL;
}

static int check_list(const struct arguments *args, int o, const char *(*name)(int)) {
    char all[128];
    size_t n = 0;
    if (!args->given[o]) return 0;
    for (int i = 0; name(i); i++) n += (size_t)snprintf(all + n, sizeof all - n, "%s%s", i ? ", " : "", name(i));
    for (const char *p = args->value[o];; p++) {
        size_t length = strcspn(p, ",");
        int i = 0;
        while (name(i) && (strlen(name(i)) != length || strncmp(name(i), p, length))) i++;
        if (!name(i))
            return cmd_fail(args->command, CMD_EXIT_USAGE, "--%s: '%.*s' is not known; there are %s", options[o].name,
                            (int)length, p, all);
        p += length;
        if (!*p) return 0;
    }
}

static int check_seconds(const struct arguments *args, double *seconds) {
    *seconds = DEFAULT_SECONDS;
    int code = sheet_real(args, OPT_SECONDS, PLAN_SECONDS, PLAN_POSITIVE, seconds);
    if (code || (*seconds >= 1 && *seconds <= MOST_SECONDS)) return code;
    return cmd_fail(args->command, CMD_EXIT_USAGE, "--seconds %s: must be from 1 to %d", args->value[OPT_SECONDS],
                    MOST_SECONDS);
}

/* A profile needs every figure; what is not measured must not look as if the device had none. */
static int check_files(const struct arguments *args, const char **save) {
    char err[RUN_PATH + 512];
    *save = args->given[OPT_SAVE] ? args->value[OPT_SAVE] : NULL;
    if (args->given[SHEET_OUTPUT] && bench_file_check("output", args->value[SHEET_OUTPUT], err, sizeof err))
        return cmd_fail(args->command, CMD_EXIT_FAILED, "%s", err);
    if (!*save && args->given[OPT_FORCE])
        return cmd_fail(args->command, CMD_EXIT_USAGE, "--force: is for --save, which is not given");
    if (!*save) return 0;
    if (args->given[OPT_ONLY] || args->given[OPT_DTYPE])
        return cmd_fail(args->command, CMD_EXIT_USAGE, "--save: a profile needs all measurements; leave out --%s",
                        args->given[OPT_ONLY] ? "only" : "dtype");
    if (args->given[SHEET_OUTPUT] && bench_same_file(args->value[SHEET_OUTPUT], *save))
        return cmd_fail(args->command, CMD_EXIT_USAGE, "--save %s: --output names the same file", *save);
    if (!bench_profile_check(*save, args->given[OPT_FORCE], err, sizeof err)) return 0;
    return cmd_fail(args->command, CMD_EXIT_USAGE, "%s", err);
}

/* Times on any profile but cpu are computed from its figures: measuring them would only give those back. */
static int check_vgpu(const struct arguments *args, struct run_parts *parts) {
    const char *given = args->given[OPT_VGPU] ? args->value[OPT_VGPU] : NULL;
    char err[RUN_PATH + 600];
    struct acct_profile profile;
    if (!args->given[OPT_VGPU]) return 0;
    if (run_check_profile(given, parts->profile, err, sizeof err))
        return cmd_fail(args->command, CMD_EXIT_USAGE, "%s", err);
    if (!acct_profile_read(given ? given : acct_env_text(ENV_ACCT_VGPU), &profile, err, sizeof err) && profile.cpu)
        return 0;
    return cmd_fail(args->command, CMD_EXIT_USAGE,
                    "--vgpu%s%s: its times are computed from its data sheet, so there is nothing to measure; there is "
                    "--vgpu=cpu",
                    given ? "=" : " with ACCT_VGPU=", given ? given : acct_env_text(ENV_ACCT_VGPU));
}

static int parse(const struct arguments *args, struct wishes *w) {
    char err[RUN_PATH + 512];
    int code;
    if (args->n_operands)
        return cmd_fail(args->command, CMD_EXIT_USAGE, "'%s': no operand is taken", args->operands[0]);
    if ((code = view_format(args, SHEET_FORMAT, &w->format)) || (code = check_seconds(args, &w->wanted.seconds)) ||
        (code = check_list(args, OPT_ONLY, group_name)) || (code = check_list(args, OPT_DTYPE, dtype_name)) ||
        (code = check_files(args, &w->save)) || (code = check_vgpu(args, &w->parts)))
        return code;
    w->wanted.only = args->given[OPT_ONLY] ? args->value[OPT_ONLY] : NULL;
    w->wanted.dtype = args->given[OPT_DTYPE] ? args->value[OPT_DTYPE] : NULL;
    if (!run_find_bench(&w->parts, args->given[OPT_VGPU], err, sizeof err)) return 0;
    return cmd_fail(args->command, CMD_EXIT_FAILED, "%s", err);
}

/* ---- measuring, saving, printing ---- */

static int measure(const struct arguments *args, const struct wishes *w, struct bench_results *r) {
    char err[RUN_PATH + 512];
    int rc = bench_run(&w->parts, &w->wanted, r, err, sizeof err);
    if (rc > 0) return cmd_fail(args->command, 128 + rc, "interrupted: nothing is shown%s", w->save ? " or saved" : "");
    if (rc < 0) return cmd_fail(args->command, CMD_EXIT_FAILED, "%s", err);
    if (*r->refused) return cmd_fail(args->command, CMD_EXIT_FAILED, "%s", r->refused);
    if (*r->no_device)
        return cmd_fail(args->command, CMD_EXIT_FAILED,
                        "no GPU can be used: %s. Run it where there is one, or measure this machine: acct bench --vgpu",
                        r->no_device);
    return 0;
}

static int save(const struct arguments *args, const struct wishes *w, const struct bench_results *r,
                struct acct_device *saved) {
    char err[2048], date[16];
    time_t now = time(NULL);
    struct tm day;
    if (!w->save) return 0;
    if (bench_profile_check(w->save, args->given[OPT_FORCE], err, sizeof err)) /* what came while it measured stays */
        return cmd_fail(args->command, CMD_EXIT_FAILED, "%s", err);
    strftime(date, sizeof date, "%Y-%m-%d", localtime_r(&now, &day));
    if (!bench_profile_save(w->save, r, date, saved, err, sizeof err)) return 0;
    return cmd_fail(args->command, CMD_EXIT_FAILED, "%s", err);
}

static int print(const struct arguments *args, const struct wishes *w, const struct bench_results *r,
                 const struct acct_device *saved) {
    char err[RUN_PATH + 600];
    struct output out;
    struct emitter e;
    if (output_open(&out, args->given[SHEET_OUTPUT] ? args->value[SHEET_OUTPUT] : NULL, err, sizeof err))
        return cmd_fail(args->command, CMD_EXIT_FAILED, "%s", err);
    emit_begin(&e, out.file, w->format);
    bench_print(&e, r, w->wanted.seconds, w->save ? saved : NULL, w->save);
    emit_finish(&e);
    return output_close(&out, err, sizeof err) ? cmd_fail(args->command, CMD_EXIT_FAILED, "%s", err) : 0;
}

static int bench(const struct arguments *args) {
    static struct wishes w;
    struct bench_results r;
    struct acct_device saved;
    int code = parse(args, &w), not_saved;
    if (code) return code;
    bench_begin(&r);
    code = measure(args, &w, &r);
    if (code || r.late) w.save = NULL;
    not_saved = save(args, &w, &r, &saved);
    if (not_saved) w.save = NULL;
    if (!code) code = print(args, &w, &r, &saved); /* what was measured is shown, whatever became of the profile */
    if (!code) code = not_saved;
    if (!code && r.late)
        code = cmd_fail(args->command, CMD_EXIT_FAILED,
                        "cut off: a measurement did not end in time, and those behind it are missing%s; give more "
                        "--seconds, or leave it out with --only or --dtype",
                        args->given[OPT_SAVE] ? "; no profile is saved" : "");
    bench_free(&r);
    return code;
}

const struct command cmd_bench = {
    .name = "bench",
    .synopsis = "measure the device at hand: products, copies, launches, allocations, beside its data sheet",
    .usage = "[--vgpu[=PROFILE]] [--seconds S] [--only LIST] [--dtype LIST] [--save FILE [--force]] " SHEET_USAGE,
    .details =
        "Random numbers, medians and quartiles. --save makes a profile that acct run --vgpu=FILE and acct report "
        "--peaks FILE\n"
        "take. On the virtual GPU only profile cpu can be measured: the others' times are computed.\n",
    .options = options,
    .usage_exit = CMD_EXIT_USAGE,
    .function = bench,
};
