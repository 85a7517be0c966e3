/* acct completion bash|zsh|fish: the script by which a shell completes acct's commands, options and their values. Made
 * from the commands' option tables; the values that an option takes are those that the usage line lists (`--format
 * text|json`). */
#include "analyzer/command.h"

#include "acct/device_table.h"

#include <stdio.h>
#include <string.h>

static const struct option_spec options[] = {{0}};

/* ---- what the tables say ---- */

static void devices(char *out, size_t room) {
    struct acct_device d;
    for (size_t n = 0, i = 0; !acct_device_get((int)i, &d) && n < room; i++)
        n += (size_t)snprintf(out + n, room - n, "%s%s", i ? " " : "", d.alias);
}

/* The values of an option, as words with a space between; empty: any. */
static void values_of(const struct command *c, const struct option_spec *o, char *out, size_t room) {
    char wanted[64];
    size_t n = 0;
    *out = 0;
    if (!strcmp(o->name, "vgpu")) {
        n = (size_t)snprintf(out, room, "cpu ");
        if (strcmp(c->name, "bench")) devices(out + n, room - n); /* it measures no other */
        return;
    }
    if (!strcmp(o->name, "device")) {
        devices(out, room);
        return;
    }
    snprintf(wanted, sizeof wanted, "--%s ", o->name);
    const char *p = strstr(c->usage, wanted);
    if (!p) return;
    p += strlen(wanted);
    size_t length = strcspn(p, " ]");
    if (!memchr(p, '|', length)) return;
    for (size_t i = 0; i < length && n + 1 < room; i++) out[n++] = p[i] == '|' ? ' ' : p[i];
    out[n] = 0;
}

/* The words that a command takes in place of files; NULL: files. */
static void words_of(const struct command *c, char *out, size_t room) {
    size_t n = 0;
    *out = 0;
    if (!strcmp(c->name, "completion")) {
        snprintf(out, room, "bash zsh fish");
    } else if (!strcmp(c->name, "help")) {
        n = (size_t)snprintf(out, room, "env devices");
        for (int i = 0; cmd_table[i] && n < room; i++)
            n += (size_t)snprintf(out + n, room - n, " %s", cmd_table[i]->name);
    }
    for (int i = 0; c->children && c->children[i] && n < room; i++)
        n += (size_t)snprintf(out + n, room - n, "%s%s", i ? " " : "", cmd_last_word(c->children[i]));
}

/* `acct help plan WORD`: f gets plan, and its words. */
static void each_parent(void (*f)(const struct command *c, const char *words)) {
    char words[1024];
    for (int i = 0; cmd_table[i]; i++) {
        if (!cmd_table[i]->children) continue;
        words_of(cmd_table[i], words, sizeof words);
        f(cmd_table[i], words);
    }
}

/* Calls f for each command and each child of one. */
static void each_command(void (*f)(const struct command *c)) {
    for (int i = 0; cmd_table[i]; i++) {
        f(cmd_table[i]);
        for (int j = 0; cmd_table[i]->children && cmd_table[i]->children[j]; j++) f(cmd_table[i]->children[j]);
    }
}

/* The names of commands that have children, joined. */
static void parents(char *out, size_t room, const char *between) {
    size_t n = 0;
    *out = 0;
    for (int i = 0; cmd_table[i] && n < room; i++)
        if (cmd_table[i]->children)
            n += (size_t)snprintf(out + n, room - n, "%s%s", n ? between : "", cmd_table[i]->name);
}

static int is_file(const struct option_spec *o) {
    return o->argument_name && (!strcmp(o->argument_name, "FILE") || !strcmp(o->argument_name, "OUT"));
}

static void print_commands(void) {
    for (int i = 0; cmd_table[i]; i++) printf("%s%s", i ? " " : "", cmd_table[i]->name);
}

/* Text inside a quoted word of zsh or fish. */
static void print_quoted(const char *text, const char *escape) {
    for (; *text; text++) {
        if (*text == '\'') {
            printf("'\\''");
            continue;
        }
        if (strchr(escape, *text)) putchar('\\');
        putchar(*text);
    }
}

/* ---- bash ---- */

/* What follows an option: its name in $previous, and in $equals whether a = stands between. */
static void bash_value(const struct command *c, const struct option_spec *o) {
    char values[1024];
    if (o->argument == OPTION_FLAG) return;
    values_of(c, o, values, sizeof values);
    printf("        --%s=", o->name);
    if (o->argument == OPTION_VALUE) printf("|--%s", o->name);
    if (o->argument == OPTION_VALUE && o->letter) printf("|-%c", o->letter);
    if (*values)
        printf(") COMPREPLY=($(compgen -W '%s' -- \"$word\")); return ;;\n", values);
    else if (is_file(o))
        printf(") COMPREPLY=($(compgen -f -- \"$word\")); return ;;\n");
    else
        printf(") return ;;\n");
}

static void bash_command(const struct command *c) {
    char words[1024];
    printf("    '%s')\n        case $previous$equals in\n", c->name);
    for (const struct option_spec *o = c->options; o->name; o++) bash_value(c, o);
    printf("        esac\n        options='--help");
    for (const struct option_spec *o = c->options; o->name; o++) printf(" --%s", o->name);
    words_of(c, words, sizeof words);
    printf("'\n        words='%s' ;;\n", words);
}

static void bash_help(const struct command *c, const char *words) {
    printf("    'help %s') options=--help words='%s' ;;\n", c->name, words);
}

static void print_bash(void) {
    char with_children[256];
    parents(with_children, sizeof with_children, "|");
    printf("# bash completion for acct; made by `acct completion bash`\n_acct() {\n"
           "    local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} equals= options words "
           "command i\n"
           "    COMPREPLY=()\n"
           "    # bash splits a word at =\n"
           "    if [[ $word == = ]]; then\n        word= equals==\n"
           "    elif [[ $previous == = ]]; then\n        previous=${COMP_WORDS[COMP_CWORD-2]} equals==\n    fi\n"
           "    if ((COMP_CWORD == 1)); then\n        COMPREPLY=($(compgen -W '");
    print_commands();
    printf(" --help --version' -- \"$word\"))\n        return\n    fi\n"
           "    if [[ ${COMP_WORDS[1]} == run ]]; then\n"
           "        for ((i = 2; i < COMP_CWORD; i++)); do\n"
           "            [[ ${COMP_WORDS[i]} == -- ]] && { COMPREPLY=($(compgen -f -c -- \"$word\")); return; }\n"
           "        done\n    fi\n"
           "    command=${COMP_WORDS[1]}\n"
           "    case $command in help|%s) ((COMP_CWORD > 2)) && command+=\" ${COMP_WORDS[2]}\" ;; esac\n"
           "    case $command in\n",
           with_children);
    each_command(bash_command);
    each_parent(bash_help);
    printf("    *) return ;;\n    esac\n"
           "    if [[ $word == -* ]]; then\n        COMPREPLY=($(compgen -W \"$options\" -- \"$word\"))\n"
           "    elif [[ -n $words ]]; then\n        COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
           "    else\n        COMPREPLY=($(compgen -f -- \"$word\"))\n    fi\n}\n"
           "complete -o filenames -F _acct acct\n");
}

/* ---- zsh ---- */

static void zsh_option(const struct command *c, const struct option_spec *o) {
    char values[1024];
    values_of(c, o, values, sizeof values);
    printf(" \\\n            ");
    if (o->letter)
        printf("'(-%c --%s)'{-%c%s,--%s%s}", o->letter, o->name, o->letter, o->argument == OPTION_VALUE ? "+" : "",
               o->name, o->argument == OPTION_VALUE ? "=" : "");
    else
        printf("--%s%s", o->name, o->argument == OPTION_VALUE ? "=" : o->argument == OPTION_OPTIONAL ? "=-" : "");
    printf("'[");
    print_quoted(o->doc, "[]:\\");
    printf("]");
    if (o->argument != OPTION_FLAG) {
        printf(":%s%s:", o->argument == OPTION_OPTIONAL ? ":" : "", o->argument_name);
        if (*values)
            printf("(%s)", values);
        else if (is_file(o))
            printf("_files");
    }
    putchar('\'');
}

static void zsh_command(const struct command *c) {
    char words[1024];
    printf("        '%s')\n            _arguments --help'[show this help]'", c->name);
    for (const struct option_spec *o = c->options; o->name; o++) zsh_option(c, o);
    words_of(c, words, sizeof words);
    if (c->options_end_at_operand)
        printf(" \\\n            '*::program:_normal' ;;\n");
    else if (*words)
        printf(" \\\n            '*:word:(%s)' ;;\n", words);
    else
        printf(" \\\n            '*:trace:_files' ;;\n");
}

static void zsh_help(const struct command *c, const char *words) {
    printf("        'help %s')\n            _arguments '*:word:(%s)' ;;\n", c->name, words);
}

static void print_zsh(void) {
    char with_children[256];
    parents(with_children, sizeof with_children, "|");
    printf("#compdef acct\n# zsh completion for acct; made by `acct completion zsh`\n_acct() {\n    local -a "
           "commands=(\n");
    for (int i = 0; cmd_table[i]; i++) {
        printf("        '%s:", cmd_table[i]->name);
        print_quoted(cmd_table[i]->synopsis, ":\\");
        printf("'\n");
    }
    printf(
        "    )\n    if ((CURRENT == 2)); then\n        _describe command commands\n        return\n    fi\n"
        "    local command=$words[2]\n    shift words\n    ((CURRENT--))\n"
        "    if [[ $command == (help|%s) ]] && ((CURRENT > 2)); then\n        command+=\" $words[2]\"\n        shift "
        "words\n        ((CURRENT--))\n    fi\n    case $command in\n",
        with_children);
    each_command(zsh_command);
    each_parent(zsh_help);
    printf("    esac\n}\n_acct \"$@\"\n");
}

/* ---- fish ---- */

/* The condition under which something of c is offered. */
static void fish_when(const struct command *c, char *out, size_t room) {
    char with_children[256], *space = strchr(c->name, ' ');
    parents(with_children, sizeof with_children, " ");
    if (space)
        snprintf(out, room, "__fish_seen_subcommand_from %.*s; and __fish_seen_subcommand_from %s",
                 (int)(space - c->name), c->name, space + 1);
    else if (c->children) /* until one of them is given */
        snprintf(out, room, "__fish_seen_subcommand_from %s; and test (count (commandline -opc)) -eq 2", c->name);
    else /* `memory`, but not of `plan memory` */
        snprintf(out, room, "__fish_seen_subcommand_from %s; and not __fish_seen_subcommand_from %s", c->name,
                 with_children);
}

static void fish_option(const struct command *c, const struct option_spec *o) {
    char values[1024], when[1024];
    values_of(c, o, values, sizeof values);
    fish_when(c, when, sizeof when);
    printf("complete -c acct -n '%s' -l %s", when, o->name);
    if (o->letter) printf(" -s %c", o->letter);
    if (o->argument == OPTION_VALUE) printf(is_file(o) ? " -r -F" : " -x");
    if (*values) printf(" -a '%s'", values);
    printf(" -d '");
    print_quoted(o->doc, "\\");
    printf("'\n");
}

static void fish_command(const struct command *c) {
    char words[1024], when[1024];
    fish_when(c, when, sizeof when);
    if (!strchr(c->name, ' ')) {
        printf("complete -c acct -n __fish_use_subcommand -f -a %s -d '", c->name);
        print_quoted(c->synopsis, "\\");
        printf("'\n");
    }
    for (const struct option_spec *o = c->options; o->name; o++) fish_option(c, o);
    words_of(c, words, sizeof words);
    if (*words) printf("complete -c acct -n '%s' -f -a '%s'\n", when, words);
}

static void fish_help(const struct command *c, const char *words) {
    printf("complete -c acct -n '__fish_seen_subcommand_from help; and __fish_seen_subcommand_from %s; and test (count "
           "(commandline -opc)) -eq 3' -f -a '%s'\n",
           c->name, words);
}

static void print_fish(void) {
    printf("# fish completion for acct; made by `acct completion fish`\n");
    each_command(fish_command);
    each_parent(fish_help);
}

static int completion(const struct arguments *args) {
    static const struct {
        const char *name;
        void (*print)(void);
    } shells[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};
    if (args->n_operands != 1) return cmd_fail(args->command, CMD_EXIT_USAGE, "one shell is needed: bash, zsh or fish");
    for (size_t i = 0; i < sizeof shells / sizeof *shells; i++) {
        if (strcmp(shells[i].name, args->operands[0])) continue;
        shells[i].print();
        return 0;
    }
    return cmd_fail(args->command, CMD_EXIT_USAGE, "'%s': no such shell; there are bash, zsh, fish", args->operands[0]);
}

const struct command cmd_completion = {
    .name = "completion",
    .synopsis = "print a script by which bash, zsh or fish completes acct's commands",
    .usage = "bash|zsh|fish",
    .details = "make install puts the scripts where the shells look for them. For a shell that runs already:\n"
               "  eval \"$(acct completion bash)\"\n",
    .options = options,
    .usage_exit = CMD_EXIT_USAGE,
    .function = completion,
};
