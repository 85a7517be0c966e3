/* What the analysis found of the model (N, T, shape), and the terms between 6·N·T and what ran: from the tables model,
 * step_product and flops_term. */
#include "analyzer/report_convention.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const report_fact_names[MODEL_FACTS] = {
    [FACT_PARAMETERS] = "parameters", [FACT_IN_PRODUCTS] = "in_products",
    [FACT_LOOKUP] = "lookup",         [FACT_POSITION] = "position",
    [FACT_OTHER] = "other",           [FACT_TIED] = "tied",
    [FACT_FROZEN] = "frozen",         [FACT_TOKENS] = "tokens",
    [FACT_ATTENTION] = "attention",   [FACT_LAYERS] = "layers",
    [FACT_HEADS] = "heads",           [FACT_HEAD_SIZE] = "head_size",
    [FACT_CONTEXT] = "context",       [FACT_SEQUENCES] = "sequences",
};

/* An analysis that was made before these tables were there tells nothing of them. */
static int has_tables(struct report *r) {
    sqlite3_stmt *st;
    int n = 0;
    if (sqlite3_prepare_v2(r->db,
                           "SELECT count(*) FROM sqlite_master WHERE name IN ('model', 'step_product', 'flops_term')",
                           -1, &st, NULL) == SQLITE_OK &&
        sqlite3_step(st) == SQLITE_ROW)
        n = sqlite3_column_int(st, 0);
    sqlite3_finalize(st);
    return n == 3;
}

static int load_facts(struct report *r, struct report_conventions *c, char *err, size_t err_len) {
    sqlite3_stmt *st = report_prepare(r, "SELECT fact, value, how FROM model", err, err_len);
    int rc;
    if (!st) return -1;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        const char *name = (const char *)sqlite3_column_text(st, 0);
        for (int f = 0; f < MODEL_FACTS; f++) {
            if (!name || strcmp(name, report_fact_names[f])) continue;
            free(c->how[f]);
            c->fact[f] = report_column(st, 1);
            c->how[f] = report_column_text(st, 2);
        }
    }
    return report_rows_end(r, st, rc, err, err_len);
}

/* Both lists are in the order of steps. */
static int load_attention(struct report *r, struct report_conventions *c, char *err, size_t err_len) {
    sqlite3_stmt *st = report_prepare(
        r, "SELECT step, flops FROM step_product WHERE part = 'attention forward' ORDER BY step", err, err_len);
    int64_t i = 0;
    int rc;
    if (!st) return -1;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        int64_t step = sqlite3_column_int64(st, 0);
        while (i < r->n_steps && r->steps[i].index < step) i++;
        if (i < r->n_steps && r->steps[i].index == step) c->attention[i] = report_column(st, 1);
    }
    return report_rows_end(r, st, rc, err, err_len);
}

static int64_t place_of_step(const struct report *r, int64_t index) {
    for (int64_t i = r->n_steps - 1; i >= 0; i--)
        if (r->steps[i].index == index) return i;
    return -1;
}

static int load_terms(struct report *r, struct report_conventions *c, char *err, size_t err_len) {
    sqlite3_stmt *st = report_prepare(r,
                                      "SELECT step, term, flops FROM flops_term WHERE step = (SELECT max(step) FROM "
                                      "flops_term) ORDER BY place",
                                      err, err_len);
    int rc;
    if (!st) return -1;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        const char *name = (const char *)sqlite3_column_text(st, 1);
        c->step = place_of_step(r, sqlite3_column_int64(st, 0));
        c->terms = report_grow(c->terms, c->n_terms, sizeof *c->terms);
        struct report_term *t = &c->terms[c->n_terms++];
        t->flops = sqlite3_column_int64(st, 2);
        snprintf(t->name, sizeof t->name, "%s", name ? name : "");
    }
    return report_rows_end(r, st, rc, err, err_len);
}

int report_load_parameters(struct report *r, char *err, size_t err_len) {
    struct report_conventions *c = calloc(1, sizeof *c);
    if (!c || !(c->attention = calloc((size_t)r->n_steps + 1, sizeof *c->attention))) {
        free(c);
        snprintf(err, err_len, "%s: not enough memory for its %lld steps", r->path, (long long)r->n_steps);
        return -1;
    }
    r->conventions = c;
    c->step = -1;
    for (int f = 0; f < MODEL_FACTS; f++) c->fact[f] = REPORT_UNKNOWN;
    if (has_tables(r) &&
        (load_facts(r, c, err, err_len) || load_attention(r, c, err, err_len) || load_terms(r, c, err, err_len)))
        return -1;
    r->parameters = c->fact[FACT_PARAMETERS];
    r->matmul_parameters = c->fact[FACT_IN_PRODUCTS];
    if (r->n_steps && c->how[FACT_PARAMETERS] && r->parameters == REPORT_UNKNOWN)
        report_note(r, "6n is not known: %s.", c->how[FACT_PARAMETERS]);
    return 0;
}

void report_free_conventions(struct report *r) {
    struct report_conventions *c = r->conventions;
    if (!c) return;
    for (int f = 0; f < MODEL_FACTS; f++) free(c->how[f]);
    free(c->attention);
    free(c->terms);
    free(c);
    r->conventions = NULL;
}
