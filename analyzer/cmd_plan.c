/* acct plan WORD …: the napkin. Each word is a command of its own (cmd_plan_WORD.c) on a sheet (analyzer/plan_sheet.h);
 * the formulas are in plan/. */
#include "analyzer/command.h"

static const struct option_spec options[] = {{0}};
static const struct command *const words[] = {&cmd_plan_train,  &cmd_plan_dtype, &cmd_plan_roofline,
                                              &cmd_plan_memory, &cmd_plan_fit,   &cmd_plan_compare,
                                              &cmd_plan_flops,  &cmd_plan_view,  NULL};

const struct command cmd_plan = {
    .name = "plan",
    .synopsis = "estimate by formula: training time, memory, FLOPs of an op, views, number formats, roofs",
    .usage = "WORD ...",
    .options = options,
    .usage_exit = CMD_EXIT_USAGE,
    .children = words,
};
