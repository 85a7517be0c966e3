/* acct run: starts the collector, then the program with libacct.so in front of its CUDA libraries; ends as the program
 * ends. Whatever goes wrong after the program's start is told in one line and changes no exit code. */
#include "analyzer/command.h"
#include "analyzer/run_parts.h"
#include "analyzer/run_process.h"
#include "analyzer/run_profile.h"
#include "analyzer/run_summary.h"

#include "acct/env.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum { OPT_OUTPUT, OPT_FORCE, OPT_VGPU, OPT_DRY };
static const struct option_spec options[] = {
    [OPT_OUTPUT] = {"output", 'o', OPTION_VALUE, "FILE",
                    "write the trace to FILE (default acct-PID.db; ACCT_OUTPUT's patterns)"},
    [OPT_FORCE] = {"force", 0, OPTION_FLAG, NULL, "replace FILE if it exists"},
    [OPT_VGPU] = {"vgpu", 0, OPTION_OPTIONAL, "PROFILE",
                  "run on the virtual GPU; PROFILE: cpu (this machine), h100-sxm, h100-sxm:8, a file; `acct help "
                  "devices` lists them"},
    [OPT_DRY] = {"dry", 0, OPTION_FLAG, NULL,
                 "execute nothing: memory is only reserved, work only counted (implies --vgpu)"},
    {0},
};

static int wanted_force(const struct arguments *args) {
    uint64_t on = 0;
    return args->given[OPT_FORCE] || (!acct_env_number(ENV_ACCT_FORCE, &on) && on);
}

/* Everything that can be refused before anything was started. */
static int check(const struct arguments *args, struct run_parts *parts, char program[RUN_PATH]) {
    char err[RUN_PATH + 1024];
    int vgpu = args->given[OPT_VGPU] || args->given[OPT_DRY];
    const char *output = args->given[OPT_OUTPUT] ? args->value[OPT_OUTPUT] : getenv("ACCT_OUTPUT");
    parts->dry = args->given[OPT_DRY];
    if (args->n_operands == 0)
        return cmd_fail(args->command, CMD_EXIT_RUN, "no program given; type: acct run -- PROGRAM [ARGUMENTS]");
    if (args->given[OPT_OUTPUT] && !*args->value[OPT_OUTPUT])
        return cmd_fail(args->command, CMD_EXIT_RUN, "-o: the name is empty; give a file");
    if (run_find_program(args->operands[0], program, err, sizeof err) ||
        (vgpu && run_check_profile(args->value[OPT_VGPU], parts->profile, err, sizeof err)) ||
        run_find_parts(parts, vgpu, err, sizeof err) || run_check_output(output, wanted_force(args), err, sizeof err))
        return cmd_fail(args->command, CMD_EXIT_RUN, "%s", err);
    return 0;
}

static int start(const struct arguments *args, struct run_process *r, const struct run_parts *parts,
                 const char *program) {
    char err[RUN_PATH + 512];
    const char *output = args->given[OPT_OUTPUT] ? args->value[OPT_OUTPUT] : NULL;
    if (run_prepare(r, err, sizeof err) ||
        run_start_collector(r, parts, output, args->given[OPT_FORCE], err, sizeof err) ||
        run_start_program(r, parts, program, args->operands, err, sizeof err))
        return cmd_fail(args->command, CMD_EXIT_RUN, "%s", err);
    return 0;
}

static int run(const struct arguments *args) {
    static struct run_parts parts;
    static struct run_process r;
    char program[RUN_PATH];
    int code, status;
    if ((code = check(args, &parts, program)) || (code = start(args, &r, &parts, program))) return code;
    signal(SIGPIPE, SIG_IGN); /* the summary may find no reader: that changes no exit code */
    status = run_wait_program(&r);
    code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    run_wait_traces(&r);
    run_summary(&r, code);
    return code;
}

const struct command cmd_run = {
    .name = "run",
    .synopsis = "run a program and record its GPU memory and FLOPs",
    .usage = "[-o FILE [--force]] [--vgpu[=PROFILE]] [--dry] [--] PROGRAM [ARGUMENTS]",
    .details =
        "The program is not changed: its output and its exit code are its own (128 + the signal's number if a signal "
        "killed it,\n"
        "125 if acct failed before the program started). The summary at the end goes to stderr.\n\n"
        "A program that starts others is followed into them; each process that uses CUDA writes a trace of its own.\n"
        "Programs that cannot be traced: statically linked ones, ones that gain privileges when they start, and those "
        "whose\n"
        "CUDA runtime is linked statically (nvcc's default; build with -cudart shared).\n\n"
        "On the virtual GPU the same program runs as on a GPU of the given kind, with its memory, limits and refusals; "
        "what it\n"
        "would take there at best is computed (roofline model). With --dry copies to the host give zeros, so a "
        "program that looks\n"
        "at its results sees zeros.\n",
    .options = options,
    .options_end_at_operand = 1,
    .usage_exit = CMD_EXIT_RUN,
    .function = run,
};
