/* The user's prices, put in the place of op_cost's by a temporary view. */
#include "analyzer/report_flops_rules.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NO_RULE (-1)

/* Which rule prices a kernel, or a library's function; by id. */
struct chosen {
    int *rule;
    int64_t n;
};

struct applier {
    struct report *r;
    struct flops_rules *rules;
    struct chosen kernel, api;
    char *err;
    size_t err_len;
};

/* clang-format off */
static const char shadow[] =
    "CREATE TEMP VIEW op_cost AS SELECT c.op AS op, c.step AS step, c.phase AS phase, c.micro_batch AS micro_batch,"
    " iif(u.op IS NULL, c.dtype, u.dtype) AS dtype, iif(u.op IS NULL, c.flops, u.flops) AS flops,"
    " c.integer_ops AS integer_ops, iif(u.op IS NULL, c.matmul, u.matmul) AS matmul, c.bytes_read AS bytes_read,"
    " c.bytes_written AS bytes_written, iif(u.op IS NULL, c.grade, 'user') AS grade,"
    " iif(u.op IS NULL, c.flops_most, u.flops) AS flops_most,"
    " iif(u.op IS NULL, c.matmul_flops, u.flops * u.matmul) AS matmul_flops,"
    " iif(u.op IS NULL, c.matmul_flops_most, u.flops * u.matmul) AS matmul_flops_most, c.price AS price"
    " FROM main.op_cost c LEFT JOIN temp.user_price u ON u.op = c.op";
static const char calls[] =
    "SELECT c.op, l.kernel, op.api, c.flops IS NOT NULL OR c.integer_ops IS NOT NULL, l.grid_x, l.grid_y, l.grid_z,"
    " l.block_x, l.block_y, l.block_z, coalesce(g.m, b.m), coalesce(g.n, b.n), coalesce(g.k, b.k),"
    " coalesce(g.batch, b.batch) FROM main.op_cost c JOIN op ON op.id = c.op LEFT JOIN launch l ON l.op = c.op"
    " LEFT JOIN gemm g ON g.id = c.op LEFT JOIN blas b ON b.op = c.op WHERE op.kind IN ('launch', 'gemm', 'blas')";
/* clang-format on */

static int run(struct applier *a, const char *sql) {
    if (sqlite3_exec(a->r->db, sql, NULL, NULL, NULL) == SQLITE_OK) return 0;
    snprintf(a->err, a->err_len, "%s: the rules of %s cannot be applied: %s", a->r->path, a->rules->path,
             sqlite3_errmsg(a->r->db));
    return -1;
}

/* A name matches as it is, or as reports show it, without arguments. */
static int matches(const char *pattern, const char *name) {
    char text[80];
    if (!name) return 0;
    report_short_name(name, text, sizeof text);
    return !fnmatch(pattern, name, 0) || !fnmatch(pattern, text, 0);
}

static int find_rule(const struct flops_rules *rules, const char *name, const char *other) {
    for (int i = 0; i < rules->n; i++)
        if (matches(rules->rule[i].pattern, name) || matches(rules->rule[i].pattern, other)) return i;
    return NO_RULE;
}

/* sql: id, name, another name of it. */
static int choose(struct applier *a, const char *sql, struct chosen *out) {
    sqlite3_stmt *st = report_prepare(a->r, sql, a->err, a->err_len);
    int rc;
    if (!st) return -1;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        int64_t id = sqlite3_column_int64(st, 0);
        if (id < 0 || id > 4 * out->n + 1000000) continue; /* dense from 1 on, but for a damaged trace */
        for (; out->n <= id; out->n++) {
            out->rule = report_grow(out->rule, out->n, sizeof *out->rule);
            out->rule[out->n] = NO_RULE;
        }
        out->rule[id] =
            find_rule(a->rules, (const char *)sqlite3_column_text(st, 1), (const char *)sqlite3_column_text(st, 2));
    }
    return report_rows_end(a->r, st, rc, a->err, a->err_len);
}

static int rule_of(const struct chosen *c, sqlite3_stmt *st, int column) {
    int64_t id = sqlite3_column_type(st, column) == SQLITE_NULL ? -1 : sqlite3_column_int64(st, column);
    return id >= 0 && id < c->n ? c->rule[id] : NO_RULE;
}

static void read_variables(sqlite3_stmt *st, int64_t *v) {
    static const enum expression_variable columns[] = {VARIABLE_GX, VARIABLE_GY,   VARIABLE_GZ, VARIABLE_BX,
                                                       VARIABLE_BY, VARIABLE_BZ,   VARIABLE_M,  VARIABLE_N,
                                                       VARIABLE_K,  VARIABLE_BATCH};
    int64_t blocks = 1, threads = 1;
    int known = 1;
    for (int i = 0; i < 10; i++) {
        int null = sqlite3_column_type(st, 4 + i) == SQLITE_NULL;
        v[columns[i]] = null ? EXPRESSION_UNKNOWN : sqlite3_column_int64(st, 4 + i);
        if (i >= 6) continue;
        known &= !null;
        if (known && i < 3) known = !__builtin_mul_overflow(blocks, v[columns[i]], &blocks);
        if (known) known = !__builtin_mul_overflow(threads, v[columns[i]], &threads);
    }
    v[VARIABLE_BLOCKS] = known ? blocks : EXPRESSION_UNKNOWN;
    v[VARIABLE_THREADS] = known ? threads : EXPRESSION_UNKNOWN;
}

static int evaluate(struct applier *a, struct flops_rule *rule, sqlite3_stmt *st, int64_t *out) {
    int64_t v[EXPRESSION_VARIABLES];
    char why[200] = "";
    read_variables(st, v);
    int rc = expression_value(&rule->flops, v, out, why, sizeof why);
    if (!rc && rule->per_thread) {
        if (v[VARIABLE_THREADS] == EXPRESSION_UNKNOWN)
            rc = snprintf(why, sizeof why, "this call has no threads");
        else if (__builtin_mul_overflow(*out, v[VARIABLE_THREADS], out))
            rc = snprintf(why, sizeof why, "does not fit in 64 bits");
    }
    if (!rc && *out < 0) rc = snprintf(why, sizeof why, "is less than 0");
    if (!rc) return 0;
    snprintf(a->err, a->err_len, "%s:%d: the price of op %" PRId64 " (%s): %s", a->rules->path, rule->line,
             (int64_t)sqlite3_column_int64(st, 0), rule->pattern, why);
    return -1;
}

static int price(struct applier *a, struct flops_rule *rule, sqlite3_stmt *st, sqlite3_stmt *insert) {
    int64_t flops;
    if (sqlite3_column_int(st, 3) && !rule->override) {
        rule->priced_before++;
        return 0;
    }
    if (evaluate(a, rule, st, &flops)) return -1;
    rule->calls++;
    rule->sum += flops;
    sqlite3_bind_int64(insert, 1, sqlite3_column_int64(st, 0));
    sqlite3_bind_int64(insert, 2, flops);
    sqlite3_bind_int(insert, 3, rule->matmul);
    sqlite3_bind_text(insert, 4, rule->dtype, -1, SQLITE_STATIC);
    int rc = sqlite3_step(insert);
    sqlite3_reset(insert);
    if (rc == SQLITE_DONE) return 0;
    snprintf(a->err, a->err_len, "%s: the rules of %s cannot be applied: %s", a->r->path, a->rules->path,
             sqlite3_errmsg(a->r->db));
    return -1;
}

static int price_calls(struct applier *a) {
    sqlite3_stmt *st = report_prepare(a->r, calls, a->err, a->err_len), *insert = NULL;
    int rc = SQLITE_DONE, failed = 0;
    if (!st) return -1;
    insert = report_prepare(a->r, "INSERT INTO temp.user_price(op, flops, matmul, dtype) VALUES(?, ?, ?, ?)", a->err,
                            a->err_len);
    failed = !insert;
    while (!failed && (rc = sqlite3_step(st)) == SQLITE_ROW) {
        int i = rule_of(&a->kernel, st, 1);
        if (sqlite3_column_type(st, 1) == SQLITE_NULL) i = rule_of(&a->api, st, 2);
        if (i != NO_RULE) failed = price(a, &a->rules->rule[i], st, insert);
    }
    sqlite3_finalize(insert);
    if (!failed) return report_rows_end(a->r, st, rc, a->err, a->err_len);
    sqlite3_finalize(st);
    return -1;
}

static void tell(struct report *r, const struct flops_rules *rules) {
    char flops[64];
    for (int i = 0; i < rules->n; i++) {
        const struct flops_rule *u = &rules->rule[i];
        emit_human(flops, sizeof flops, UNIT_FLOPS, (double)u->sum, 0);
        if (u->calls)
            report_note(r, "%s:%d priced %lld call(s) of '%s' with %s: the user's figures (grade user).", rules->path,
                        u->line, (long long)u->calls, u->pattern, flops);
        if (u->priced_before)
            report_note(r,
                        "%s:%d left %lld call(s) of '%s' as they were: they have a price of their own (`override` "
                        "would replace it).",
                        rules->path, u->line, (long long)u->priced_before, u->pattern);
        if (!u->calls && !u->priced_before)
            report_note(r, "%s:%d: no call matches '%s'%s.", rules->path, u->line, u->pattern,
                        i ? ", or rules before it took them" : "");
    }
}

int flops_rules_apply(struct report *r, struct flops_rules *rules, char *err, size_t err_len) {
    struct applier a = {.r = r, .rules = rules, .err = err, .err_len = err_len};
    for (int i = 0; i < rules->n; i++) rules->rule[i].calls = rules->rule[i].priced_before = 0, rules->rule[i].sum = 0;
    int rc = run(&a, "CREATE TEMP TABLE user_price(op INTEGER PRIMARY KEY, flops INTEGER, matmul INTEGER, dtype TEXT)");
    if (!rc) rc = choose(&a, "SELECT id, demangled, name FROM kernel", &a.kernel);
    if (!rc) rc = choose(&a, "SELECT id, name, NULL FROM api", &a.api);
    if (!rc) rc = run(&a, "BEGIN");
    if (!rc) {
        rc = price_calls(&a);
        if (sqlite3_exec(r->db, "COMMIT", NULL, NULL, NULL) != SQLITE_OK && !rc) rc = -1;
    }
    if (!rc) rc = run(&a, shadow);
    if (!rc) tell(r, rules);
    free(a.kernel.rule);
    free(a.api.rule);
    return rc;
}

void flops_rules_print(struct emitter *e, const struct flops_rules *rules) {
    int n = rules ? rules->n : 0;
    emit_list(e, "flops_rules", n ? "Prices by the user's rules" : NULL, n ? LOOK_TABLE : LOOK_HIDDEN);
    for (int i = 0; i < n; i++) {
        const struct flops_rule *u = &rules->rule[i];
        emit_object(e, "", NULL, LOOK_FIELDS);
        emit_text(e, "file", NULL, rules->path);
        emit_int(e, "line", "line", UNIT_NONE, u->line);
        emit_text(e, "name", "name", u->pattern);
        emit_int(e, "calls", "calls", UNIT_NONE, u->calls);
        emit_int(e, "flops", "FLOPs", UNIT_FLOPS, u->sum);
        emit_bool(e, "matmul", "product", u->matmul);
        emit_text(e, "dtype", "dtype", u->dtype);
        emit_int(e, "left", "left as they were", UNIT_NONE, u->priced_before);
        emit_end(e);
    }
    emit_end(e);
}
