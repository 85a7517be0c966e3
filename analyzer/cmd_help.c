/* acct help [COMMAND|env|devices] */
#include "analyzer/command.h"

#include "acct/device_table.h"
#include "acct/env.h"
#include "acct/version.h"

#include <stdio.h>
#include <string.h>

static const struct option_spec options[] = {{0}};

/* What every command accepts beside its own table. */
static const struct option_spec help_option = {"help", 0, OPTION_FLAG, NULL, "show this help"};

static void print_option(const struct option_spec *o) {
    char left[64];
    int n = o->letter ? snprintf(left, sizeof left, "-%c, ", o->letter) : snprintf(left, sizeof left, "    ");
    n += snprintf(left + n, sizeof left - (size_t)n, "--%s", o->name);
    if (o->argument == OPTION_VALUE) snprintf(left + n, sizeof left - (size_t)n, " %s", o->argument_name);
    if (o->argument == OPTION_OPTIONAL) snprintf(left + n, sizeof left - (size_t)n, "[=%s]", o->argument_name);
    printf("  %-28s %s\n", left, o->doc);
}

void cmd_print_help(const struct command *command) {
    printf("usage: acct %s %s\n%s\n\n", command->name, command->usage, command->synopsis);
    for (int i = 0; command->children && command->children[i]; i++)
        printf("  %-12s %s\n", cmd_last_word(command->children[i]), command->children[i]->synopsis);
    if (command->children) printf("\n`acct help %s WORD` tells more of one.\n\n", command->name);
    printf("options:\n");
    for (const struct option_spec *o = command->options; o->name; o++) print_option(o);
    print_option(&help_option);
    if (command->details) printf("\n%s", command->details);
}

static void print_overview(void) {
    printf("acct %s: memory and FLOP accounting for CUDA training programs\n\ncommands:\n", ACCT_VERSION);
    for (int i = 0; cmd_table[i]; i++) printf("  %-10s %s\n", cmd_table[i]->name, cmd_table[i]->synopsis);
    printf("\n`acct help COMMAND` tells more of one, `acct help env` lists the environment variables, `acct help "
           "devices`\nthe devices whose peaks are known and for which the virtual GPU can stand, `acct --version` the "
           "version.\n"
           "A first run: acct run -o run.db -- ./train, then acct report run.db\n");
}

static void print_environment(void) {
    printf("Environment variables that acct, libacct.so and acct-collect read:\n");
    for (int i = 0; i < ENV_COUNT; i++) {
        const struct acct_env_entry *e = acct_env_entry((enum acct_env_name)i);
        printf("\n%s (%s, default %s)\n    %s\n", e->name, e->type, *e->fallback ? e->fallback : "empty", e->doc);
    }
}

static void print_tera(double peak) {
    if (peak > 0)
        printf(" %8g", peak / 1e12);
    else
        printf(" %8s", "-");
}

static void print_device(const struct acct_device *d) {
    printf("%-13s %-24s %2u.%u %7.1f%s", d->alias, d->name, d->sm / 10, d->sm % 10, (double)d->total_bytes / 1073741824,
           d->total_estimated ? "~" : " ");
    print_tera(d->bytes_per_s);
    static const int shown[] = {ACCT_FP64, ACCT_FP32, ACCT_TF32, ACCT_BF16, ACCT_FP16, ACCT_FP8, ACCT_INT8};
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) print_tera(d->peak[shown[i]]);
    putchar('\n');
}

static void print_devices(void) {
    struct acct_device d;
    printf("Devices whose peaks acct knows, and for which the virtual GPU can stand (acct run --vgpu=ALIAS[:COUNT]).\n"
           "Peaks are dense, of the vendor's data sheets; -: no such unit; ~: estimated from the nominal capacity.\n\n"
           "%-13s %-24s %4s %8s %8s %8s %8s %8s %8s %8s %8s %8s\n%-13s %-24s %4s %8s %8s %8s\n",
           "alias", "name", "sm", "memory", "memory", "fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8", "", "", "",
           "GiB", "TB/s", "TFLOP/s (int8: TOP/s)");
    for (int i = 0; !acct_device_get(i, &d); i++) print_device(&d);
    printf("\ncpu           this machine: its processors and memory, with peaks and times measured\n"
           "FILE          a device of your own, as a profile file (a name with a / or ending in .profile)\n");
}

static int help(const struct arguments *args) {
    const struct command *command;
    int words;
    if (args->n_operands == 0) {
        print_overview();
        return 0;
    }
    command = cmd_find(args->n_operands, args->operands, &words);
    if (command && words < args->n_operands && command->children)
        return cmd_fail(args->command, CMD_EXIT_USAGE, "`acct %s` has no '%.60s'; `acct help %s` lists what it has",
                        command->name, args->operands[words], command->name);
    if (args->n_operands > (command ? words : 1))
        return cmd_fail(args->command, CMD_EXIT_USAGE, "one command at a time");
    if (!strcmp(args->operands[0], "env")) {
        print_environment();
        return 0;
    }
    if (!strcmp(args->operands[0], "devices")) {
        print_devices();
        return 0;
    }
    if (!command)
        return cmd_fail(args->command, CMD_EXIT_USAGE, "unknown command '%.60s'; `acct help` lists them",
                        args->operands[0]);
    cmd_print_help(command);
    return 0;
}

const struct command cmd_help = {
    .name = "help",
    .synopsis = "show what the commands do",
    .usage = "[COMMAND | env | devices]",
    .options = options,
    .usage_exit = CMD_EXIT_USAGE,
    .function = help,
};
