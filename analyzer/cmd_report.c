/* acct report [--format F] [-o OUT] TRACE… */
#include "analyzer/report_print.h"
#include "analyzer/view.h"

static const struct option_spec options[] = {VIEW_OPTION_ROWS, [VIEW_OPTIONS] = VIEW_FLOPS_RULES_ROW, {0}};

static int print(struct emitter *e, struct report *r, const struct arguments *args, char *err, size_t err_len) {
    (void)args;
    return report_print(e, r, err, err_len);
}

static int report(const struct arguments *args) {
    static const struct view view = {.print = print, .table_limit = 40};
    return view_run(args, &view);
}

const struct command cmd_report = {
    .name = "report",
    .synopsis = "memory by class, FLOPs and MFU of a trace",
    .usage = VIEW_USAGE " [--flops-rules FILE] TRACE...",
    .details = "JSON follows schema 1; integers are exact, what is not known is null. Several traces make a list. CSV "
               "has a line for each\n"
               "value: path, value, unit. A trace that was not analysed yet, or by an older acct, is analysed first: "
               "in the file, or in a\n"
               "temporary copy where it cannot be written.\n",
    .options = options,
    .usage_exit = CMD_EXIT_USAGE,
    .function = report,
};
