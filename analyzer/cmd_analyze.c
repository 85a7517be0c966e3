/* acct analyze TRACE…: computes the analysed tables anew. The collector runs it on every trace that it closes. */
#include "analyzer/analyze.h"
#include "analyzer/command.h"
#include "trace/store.h"

#include <stdio.h>

enum { OPT_QUIET };
static const struct option_spec options[] = {
    [OPT_QUIET] = {"quiet", 'q', OPTION_FLAG, NULL, "print errors only"},
    {0},
};

static sqlite3_int64 count(sqlite3 *db, const char *sql) {
    sqlite3_stmt *st;
    sqlite3_int64 n = -1;
    if (sqlite3_prepare_v2(db, sql, -1, &st, NULL) == SQLITE_OK && sqlite3_step(st) == SQLITE_ROW)
        n = sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    return n;
}

static int analyze_one(const struct arguments *args, const char *path) {
    char err[1024] = "";
    sqlite3 *db;
    if (store_open(&db, path, 1, err, sizeof err) < 0) return cmd_fail(args->command, CMD_EXIT_FAILED, "%s", err);
    sqlite3_busy_timeout(db, 10000);
    int code = 0;
    if (analyze_trace(db, err, sizeof err) < 0)
        code = cmd_fail(args->command, CMD_EXIT_FAILED, "%s: %s; the tables are as they were", path, err);
    else if (!args->given[OPT_QUIET])
        printf("%s: %lld ops, %lld steps, %lld allocations classified\n", path,
               (long long)count(db, "SELECT count(*) FROM op"), (long long)count(db, "SELECT count(*) FROM step"),
               (long long)count(db, "SELECT count(DISTINCT alloc) FROM alloc_class"));
    sqlite3_close(db);
    return code;
}

static int analyze(const struct arguments *args) {
    int code = 0;
    if (!args->n_operands)
        return cmd_fail(args->command, CMD_EXIT_USAGE,
                        "no trace given; type: acct analyze TRACE (a .db file that acct run wrote)");
    for (int i = 0; i < args->n_operands; i++) code |= analyze_one(args, args->operands[i]);
    return code;
}

const struct command cmd_analyze = {
    .name = "analyze",
    .synopsis = "compute steps, phases, memory classes and FLOPs of a trace anew",
    .usage = "[--quiet] TRACE...",
    .details = "The results are the tables op_buffer, step, phase, alloc_class, op_cost, op_time, price and "
               "price_count of the\n"
               "trace itself. acct-collect does this when a program ends, and acct report when a trace has none or "
               "those of an\n"
               "older version.\n",
    .options = options,
    .usage_exit = CMD_EXIT_USAGE,
    .function = analyze,
};
