/* acct plan memory: bytes of parameters, gradients, optimizer states and activations of a GPU, by recipe and model. */
#include "analyzer/plan_memory_ask.h"

enum { OPT_PARAMS = ASK_OPTIONS };
static const struct option_spec options[] = {
    SHEET_OPTION_ROWS,
    ASK_OPTION_ROWS,
    [OPT_PARAMS] = {"params", 'n', OPTION_VALUE, "N", "parameters (the model's)"},
    {0},
};

static int memory(const struct arguments *args) {
    struct memory_ask a;
    struct plan_memory m;
    struct plan_sheet s;
    char err[512];
    int code = sheet_check(args);
    if (!code) code = memory_ask_read(args, &a, 0);
    if (!code) code = sheet_whole(args, OPT_PARAMS, PLAN_COUNT, PLAN_POSITIVE, INT64_MAX, &a.q.parameters);
    if (code) return code;
    if (!a.q.parameters && !a.q.model)
        return cmd_fail(args->command, CMD_EXIT_USAGE,
                        "how many parameters? Type --params 70e9 or --model layers=,dim=,...");
    if (plan_memory(&a.q, &m, err, sizeof err)) return cmd_fail(args->command, CMD_EXIT_USAGE, "%s", err);
    sheet_begin(&s, args);
    if (a.q.model && a.model.kind == PLAN_GPT && !a.q.recipe->inference) s.convention = "Korthikanti et al. 2022";
    memory_ask_inputs(&s, &a);
    memory_ask_terms(&s, &a, &m);
    memory_ask_room(&s, &a, m.total);
    memory_ask_notes(&s, &a, &m);
    return sheet_print(&s);
}

const struct command cmd_plan_memory = {
    .name = "plan memory",
    .synopsis = "memory of training or inference by recipe, model and parallelism",
    .usage = "[--params N] " ASK_USAGE " " SHEET_USAGE,
    .details = ASK_DETAILS,
    .options = options,
    .usage_exit = CMD_EXIT_USAGE,
    .function = memory,
};
