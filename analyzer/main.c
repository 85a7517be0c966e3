/* `acct`: finds the subcommand, parses its options by its table, calls it. Nothing else belongs here. */
#include "analyzer/command.h"

#include "acct/version.h"

#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

const struct command *const cmd_table[] = {&cmd_run,   &cmd_report,     &cmd_query,   &cmd_analyze, &cmd_steps,
                                           &cmd_flops, &cmd_ops,        &cmd_kernels, &cmd_memory,  &cmd_peak,
                                           &cmd_leaks, &cmd_completion, &cmd_help,    NULL};

const struct command *cmd_find(const char *name) {
    for (int i = 0; cmd_table[i]; i++)
        if (!strcmp(cmd_table[i]->name, name)) return cmd_table[i];
    return NULL;
}

static int dispatch(int argc, char **argv) {
    const struct command *command = cmd_find(argv[1]);
    struct arguments args;
    int code;
    if (!command) {
        fprintf(stderr, "acct: unknown command '%s'; `acct help` lists them\n", argv[1]);
        return CMD_EXIT_USAGE;
    }
    for (int i = 2; i < argc; i++) {
        if (!strcmp(argv[i], "--help")) {
            cmd_print_help(command);
            return 0;
        }
        if (argv[i][0] != '-' || !strcmp(argv[i], "--")) break;
    }
    code = cmd_parse(command, argc - 2, argv + 2, &args);
    return code ? code : command->function(&args);
}

int main(int argc, char **argv) {
    int code;
    setlocale(LC_CTYPE, ""); /* whether the terminal knows bars; numbers stay as they are */
    if (argc < 2) {
        fprintf(stderr, "acct: no command given; `acct help` lists them\n");
        return CMD_EXIT_USAGE;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) argv[1] = "help";
    if (!strcmp(argv[1], "--version")) {
        printf("acct %s\n", ACCT_VERSION);
        return 0;
    }
    code = dispatch(argc, argv);
    if ((fflush(stdout) || ferror(stdout)) && !code) {
        fprintf(stderr, "acct %s: cannot write to stdout: the output is incomplete\n", argv[1]);
        code = CMD_EXIT_FAILED;
    }
    return code;
}
