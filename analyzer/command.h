/* What a subcommand of `acct` is, and what all of them share. A subcommand is one `struct command` in a file of its own
 * and one row in main.c; its options are a table, from which parsing, `acct help` and the check of the man pages are
 * made. Errors of the command line are one line: `acct COMMAND: what, which file; what to do`. One thread. */
#ifndef ACCT_ANALYZER_COMMAND_H
#define ACCT_ANALYZER_COMMAND_H

#include <stddef.h>
#include <sqlite3.h>

#define CMD_MAX_OPTIONS 32
#define CMD_EXIT_FAILED 1 /* a file, the database, the analysis */
#define CMD_EXIT_USAGE 2  /* the command line itself */
#define CMD_EXIT_RUN 125  /* `acct run` only: acct failed before the program started */

enum option_argument { OPTION_FLAG, OPTION_VALUE, OPTION_OPTIONAL /* --name or --name=VALUE */ };

struct option_spec {
    const char *name; /* long name without dashes; NULL ends the table */
    char letter;      /* short form, 0: none */
    enum option_argument argument;
    const char *argument_name; /* as help shows it */
    const char *doc;           /* one line */
};

struct command;

/* The parsed command line. Texts belong to argv. */
struct arguments {
    const struct command *command;
    int given[CMD_MAX_OPTIONS];         /* by the option's place in the table */
    const char *value[CMD_MAX_OPTIONS]; /* NULL: without a value */
    int n_operands;
    char **operands; /* NULL-terminated where argv was */
};

struct command {
    const char *name;     /* of one with a parent, both: `plan train` */
    const char *synopsis; /* one line for the overview */
    const char *usage;    /* operands and options, after the name */
    const char *details;  /* further lines of the help; NULL: none */
    const struct option_spec *options;
    int options_end_at_operand;                    /* what follows the first operand belongs to another program */
    int usage_exit;                                /* exit code of a bad command line */
    int (*function)(const struct arguments *args); /* returns the exit code */
    const struct command *const *children;         /* NULL-terminated: the next word of the command line names one, and
                                                    * function is not called; NULL: none */
};

extern const struct command cmd_run, cmd_report, cmd_query, cmd_analyze, cmd_steps, cmd_flops, cmd_ops, cmd_kernels,
    cmd_memory, cmd_peak, cmd_leaks, cmd_completion, cmd_plan, cmd_help;
extern const struct command cmd_plan_train, cmd_plan_dtype, cmd_plan_roofline, cmd_plan_memory, cmd_plan_fit,
    cmd_plan_compare, cmd_plan_flops, cmd_plan_view;
extern const struct command cmd_bench;

/* All commands, NULL-terminated. */
extern const struct command *const cmd_table[];

/* The command that the first words name, down to the last child; *n_words: how many did. NULL: the first is none.
 * Something with children is returned where the next word names none of them. */
const struct command *cmd_find(int n, char *const *words, int *n_words);
const char *cmd_last_word(const struct command *command); /* of its name */

/* Parses argv (without the command's name) in place. 0, or the exit code after a line on stderr. */
int cmd_parse(const struct command *command, int argc, char **argv, struct arguments *out);

/* Index of an option by its long name; it must be in the table. */
int cmd_option(const struct arguments *args, const char *name);

void cmd_print_help(const struct command *command);

/* Prints `acct COMMAND: …` and a newline on stderr; returns `code`, so that a command can `return cmd_fail(…)`. */
int cmd_fail(const struct command *command, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Output of a command: a file written under a temporary name and renamed at the end, or stdout. */
struct output {
    void *file; /* FILE * */
    char path[4096], temporary[4096];
};
/* path NULL: stdout. 0, or -1 with one line in err. */
int output_open(struct output *out, const char *path, char *err, size_t err_len);
/* Flushes, renames. After an error nothing is left behind and an older file is as it was. */
int output_close(struct output *out, char *err, size_t err_len);
/* Takes back what was written to a file (not to stdout). */
void output_abandon(struct output *out);

#endif
