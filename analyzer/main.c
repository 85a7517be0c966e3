/* `acct`: finds the subcommand, parses its options by its table, calls it. Nothing else belongs here. */
#include "analyzer/command.h"

#include "acct/version.h"

#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

const struct command *const cmd_table[] = {
    &cmd_run,    &cmd_report, &cmd_query, &cmd_analyze,    &cmd_steps, &cmd_flops, &cmd_ops,  &cmd_kernels,
    &cmd_memory, &cmd_peak,   &cmd_leaks, &cmd_completion, &cmd_plan,  &cmd_bench, &cmd_help, NULL};

const char *cmd_last_word(const struct command *command) {
    const char *space = strrchr(command->name, ' ');
    return space ? space + 1 : command->name;
}

const struct command *cmd_find(int n, char *const *words, int *n_words) {
    const struct command *found = NULL;
    const struct command *const *among = cmd_table;
    *n_words = 0;
    while (among && *n_words < n) {
        const struct command *next = NULL;
        for (int i = 0; among[i] && !next; i++)
            if (!strcmp(cmd_last_word(among[i]), words[*n_words])) next = among[i];
        if (!next) break;
        found = next;
        among = next->children;
        ++*n_words;
    }
    return found;
}

static int no_child(const struct command *command, const char *word) {
    char all[256];
    size_t n = 0;
    for (int i = 0; command->children[i] && n < sizeof all; i++)
        n += (size_t)snprintf(all + n, sizeof all - n, "%s%s", i ? ", " : "", cmd_last_word(command->children[i]));
    if (word) return cmd_fail(command, command->usage_exit, "unknown word '%.60s'; there are %s", word, all);
    return cmd_fail(command, command->usage_exit, "a word is missing: one of %s", all);
}

static int dispatch(int argc, char **argv) {
    int words;
    const struct command *command = cmd_find(argc - 1, argv + 1, &words);
    struct arguments args;
    int code;
    if (!command) {
        fprintf(stderr, "acct: unknown command '%.60s'; `acct help` lists them\n", argv[1]);
        return CMD_EXIT_USAGE;
    }
    for (int i = 1 + words; i < argc; i++) {
        if (!strcmp(argv[i], "--help")) {
            cmd_print_help(command);
            return 0;
        }
        if (argv[i][0] != '-' || !strcmp(argv[i], "--")) break;
    }
    if (command->children) return no_child(command, argc > 1 + words ? argv[1 + words] : NULL);
    code = cmd_parse(command, argc - 1 - words, argv + 1 + words, &args);
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
