/* acct analyze TRACE…: computes the analysed tables anew. The collector runs it on every trace that it closes. */
#include "analyzer/analyze.h"
#include "analyzer/command.h"
#include "analyzer/user_rules.h"
#include "trace/store.h"

#include <stdio.h>

enum { OPT_QUIET, OPT_RULES };
static const struct option_spec options[] = {
    [OPT_QUIET] = {"quiet", 'q', OPTION_FLAG, NULL, "print errors only"},
    [OPT_RULES] = {"rules", 0, OPTION_VALUE, "FILE", "classes of memory by rules of your own: see acct-rules(5)"},
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

/* Puts the user's classes into the trace. A rule that matches nothing is said. */
static int apply_rules(const struct arguments *args, struct user_rules *u, sqlite3 *db, const char *path) {
    char err[1024] = "";
    if (!u) return 0;
    if (user_rules_apply(u, db, 1, err, sizeof err))
        return cmd_fail(args->command, CMD_EXIT_FAILED, "%s: the rules cannot be applied: %s", path, err);
    for (int i = 0; i < u->rules && !args->given[OPT_QUIET]; i++)
        if (!u->rule[i].matches) printf("%s:%d: the rule matches no allocation\n", u->path, u->rule[i].line);
    return 0;
}

static int analyze_one(const struct arguments *args, struct user_rules *rules, const char *path) {
    char err[1024] = "";
    sqlite3 *db;
    if (store_open(&db, path, 1, err, sizeof err) < 0) return cmd_fail(args->command, CMD_EXIT_FAILED, "%s", err);
    sqlite3_busy_timeout(db, 10000);
    int code = 0;
    if (analyze_trace(db, err, sizeof err) < 0)
        code = cmd_fail(args->command, CMD_EXIT_FAILED, "%s: %s; the tables are as they were", path, err);
    else
        code = apply_rules(args, rules, db, path);
    if (!code && !args->given[OPT_QUIET])
        printf("%s: %lld ops, %lld steps, %lld allocations classified\n", path,
               (long long)count(db, "SELECT count(*) FROM op"), (long long)count(db, "SELECT count(*) FROM step"),
               (long long)count(db, "SELECT count(DISTINCT alloc) FROM alloc_class"));
    sqlite3_close(db);
    return code;
}

static int analyze(const struct arguments *args) {
    struct user_rules *rules = NULL;
    char err[1024];
    int code = 0;
    if (!args->n_operands)
        return cmd_fail(args->command, CMD_EXIT_USAGE,
                        "no trace given; type: acct analyze TRACE (a .db file that acct run wrote)");
    if (args->given[OPT_RULES] && user_rules_read(&rules, args->value[OPT_RULES], err, sizeof err))
        return cmd_fail(args->command, CMD_EXIT_USAGE, "%s", err);
    for (int i = 0; i < args->n_operands; i++) code |= analyze_one(args, rules, args->operands[i]);
    user_rules_free(rules);
    return code;
}

const struct command cmd_analyze = {
    .name = "analyze",
    .synopsis = "compute steps, phases, memory classes and FLOPs of a trace anew",
    .usage = "[--quiet] [--rules FILE] TRACE...",
    .details = "The results are tables of the trace itself, described in FORMAT.md. acct-collect does this when a "
               "program ends,\n"
               "and the commands that show a trace when it has none or those of an older version.\n",
    .options = options,
    .usage_exit = CMD_EXIT_USAGE,
    .function = analyze,
};
