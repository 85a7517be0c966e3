/* 6·N·T against what a step executed, by term; and the rows of step_product, flops_term and model. */
#include "analyzer/attr_products.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "analyzer/attr_sql.h"

struct term_writer {
    struct products *p;
    sqlite3 *db;
    sqlite3_stmt *product, *term, *fact;
    char *err;
    size_t err_len;
    int failed;
};

static const char *const part_names[PRODUCT_PARTS] = {[PART_FORWARD] = "forward",
                                                      [PART_INPUT_GRADIENT] = "input gradient",
                                                      [PART_WEIGHT_GRADIENT] = "weight gradient",
                                                      [PART_ATTENTION_FORWARD] = "attention forward",
                                                      [PART_ATTENTION_BACKWARD] = "attention backward",
                                                      [PART_RECOMPUTE] = "recompute",
                                                      [PART_RECOMPUTE_ATTENTION] = "recompute attention",
                                                      [PART_OPTIMIZER] = "optimizer",
                                                      [PART_KERNELS] = "kernels",
                                                      [PART_OTHER] = "other"};

static void write_parts(struct term_writer *w, int32_t step) {
    for (int i = 0; i < PRODUCT_PARTS && !w->failed; i++) {
        if (!w->p->count[i]) continue;
        sqlite3_bind_int(w->product, 1, step);
        sqlite3_bind_text(w->product, 2, part_names[i], -1, SQLITE_STATIC);
        sqlite3_bind_int64(w->product, 3, w->p->count[i]);
        sql_bind(w->product, 4, w->p->uncounted ? ACCT_NULL_I64 : cost_amount(w->p->flops[i]));
        w->failed |= sql_insert(w->db, w->product, w->err, w->err_len) != 0;
    }
}

/* ---- terms ---- */

enum { MAX_TERMS = 20 };
struct terms {
    struct term {
        const char *name;
        __int128 flops;
    } term[MAX_TERMS];
    int n;
    __int128 sum;
};

static void add_term(struct terms *s, const char *name, __int128 flops) {
    s->sum += flops;
    if (flops) s->term[s->n++] = (struct term){name, flops};
}

/* What the weights' products differ by from 2·T·elements each of forward, dx and dW. */
struct weight_terms {
    __int128 frozen, no_dx, own_kernels, reuse;
    int32_t without_dx; /* weights */
    int32_t last;       /* one of them */
};

static void terms_of_weight(const struct products *p, int32_t range, int32_t step, int64_t tokens,
                            struct weight_terms *out) {
    const struct weight_use *u = &p->use[range];
    const struct at_range *r = &p->t->range[range];
    int here = u->step == step, trained = at_is_trained(r);
    __int128 each = 2 * (__int128)u->elements;
    int64_t forward = here ? u->rows_forward : 0, dx = here ? u->rows_dx : 0;
    if (u->by_kernels && !forward) {
        out->own_kernels -= each * tokens;
        forward = tokens; /* of the gradient's product, too */
    }
    out->reuse += each * (forward - tokens);
    if (trained)
        out->reuse += each * (forward - tokens); /* a product for the gradient comes with each forward one */
    else
        out->frozen -= each * tokens;
    if (dx) {
        out->reuse += each * (dx - tokens);
    } else {
        out->no_dx -= each * tokens;
        out->without_dx++;
        out->last = range;
    }
}

static int is_first_weight(const struct products *p, int32_t range, int32_t step, int32_t from, int32_t to) {
    const struct at_trace *t = p->t;
    for (int32_t e = from; e < to; e++) {
        if (t->event[e].step != step || at_product_part(p, e) != PART_FORWARD) continue;
        AT_EACH_ACCESS(t, e, a) if (at_weight_of(p, a) == range) return 1;
        return 0;
    }
    return 0;
}

static void make_terms(const struct products *p, int32_t step, int32_t from, int32_t to, struct terms *s) {
    const struct model_shape *m = &p->shape;
    int64_t tokens = p->step[step].tokens;
    struct weight_terms w = {.last = -1};
    __int128 executed = 0, nt = 6 * (__int128)tokens;
    for (int32_t i = 0; i < p->weights; i++) terms_of_weight(p, p->weight[i], step, tokens, &w);
    for (int i = 0; i < PRODUCT_PARTS; i++) executed += p->flops[i];
    if (m->parameters > 0) {
        add_term(s, "6n", nt * m->parameters);
        add_term(s, "lookup tables", -nt * m->lookup);
        add_term(s, "position table", -nt * m->position);
        add_term(s, "parameters in no product", -nt * m->other);
    } else {
        add_term(s, "6n-matmul", nt * m->in_products);
    }
    int first = w.without_dx == 1 && is_first_weight(p, w.last, step, from, to);
    add_term(s, first ? "first input gradient" : "input gradients", w.no_dx);
    add_term(s, "frozen weights", w.frozen);
    add_term(s, "own kernels", w.own_kernels);
    add_term(s, "other rows", w.reuse);
    add_term(s, "attention forward", p->flops[PART_ATTENTION_FORWARD]);
    add_term(s, "attention backward", p->flops[PART_ATTENTION_BACKWARD]);
    add_term(s, "recompute", p->flops[PART_RECOMPUTE]);
    add_term(s, "recompute attention", p->flops[PART_RECOMPUTE_ATTENTION]);
    add_term(s, "optimizer", p->flops[PART_OPTIMIZER]);
    add_term(s, "kernels", p->flops[PART_KERNELS]);
    s->term[s->n++] = (struct term){"unexplained", executed - s->sum};
    s->term[s->n++] = (struct term){"executed", executed};
}

static int fits(const struct terms *s) {
    for (int i = 0; i < s->n; i++)
        if (s->term[i].flops > INT64_MAX || s->term[i].flops < -INT64_MAX) return 0;
    return 1;
}

static void write_terms(struct term_writer *w, int32_t step, int32_t from, int32_t to) {
    const struct step_row *st = &w->p->step[step];
    struct terms s = {0};
    if (!st->complete || st->tokens == ACCT_NULL_I64 || w->p->uncounted) return;
    if (w->p->shape.in_products <= 0 || w->p->shape.turns) return;
    if (!w->p->count[PART_WEIGHT_GRADIENT] && !w->p->count[PART_INPUT_GRADIENT]) return; /* no training */
    make_terms(w->p, step, from, to, &s);
    for (int i = 0; i < s.n && fits(&s) && !w->failed; i++) {
        sqlite3_bind_int(w->term, 1, step);
        sqlite3_bind_int(w->term, 2, i);
        sqlite3_bind_text(w->term, 3, s.term[i].name, -1, SQLITE_STATIC);
        sqlite3_bind_int64(w->term, 4, (int64_t)s.term[i].flops);
        w->failed |= sql_insert(w->db, w->term, w->err, w->err_len) != 0;
    }
}

/* ---- facts ---- */

__attribute__((format(printf, 4, 5))) static void fact(struct term_writer *w, const char *name, int64_t value,
                                                       const char *how, ...) {
    char text[512];
    va_list ap;
    va_start(ap, how);
    vsnprintf(text, sizeof text, how, ap);
    va_end(ap);
    if (w->failed) return;
    sqlite3_bind_text(w->fact, 1, name, -1, SQLITE_STATIC);
    sql_bind(w->fact, 2, value == AT_UNKNOWN_FACT ? ACCT_NULL_I64 : value);
    sqlite3_bind_text(w->fact, 3, text, -1, SQLITE_TRANSIENT);
    w->failed |= sql_insert(w->db, w->fact, w->err, w->err_len) != 0;
}

static void parameter_facts(struct term_writer *w) {
    const struct model_shape *m = &w->p->shape;
    int unknown = m->turns || m->parameters <= 0, nothing = m->turns || m->in_products <= 0;
    fact(w, "parameters", unknown ? AT_UNKNOWN_FACT : m->parameters,
         m->turns       ? "a step reads only some of the parameters in its products (models that take turns?)"
         : m->irregular ? "products disagree on the number of elements of a parameter"
         : m->unsized   ? "some are in no product, and products read the others as elements of several sizes"
         : unknown      ? "products read nothing that is known as a parameter"
                        : "bytes of class param over the size of an element, which products tell; memory that is used "
                          "twice (tied weights) counts once");
    if (nothing) return;
    fact(w, "in_products", m->in_products, "of them: factors of matrix products, directly or through a cast");
    if (!unknown) {
        fact(w, "lookup", m->lookup,
             "of them: tables of which rows are picked by numbers from the host, in no product");
        fact(w, "position", m->position,
             "of them: a table with a row of heads x head size for each place of the context");
        fact(w, "other", m->other, "of them: in no product (biases, norms)");
    }
    fact(w, "tied", m->tied, "of those in products: rows are looked up as well; no FLOPs");
    fact(w, "frozen", m->frozen, "of those in products: no update writes them");
}

static void token_facts(struct term_writer *w) {
    const struct at_trace *t = w->p->t;
    const struct model_shape *m = &w->p->shape;
    if (m->step < 0) {
        fact(w, "tokens", AT_UNKNOWN_FACT, "no complete step");
        return;
    }
    const struct step_row *s = &w->p->step[m->step];
    if (s->tokens == ACCT_NULL_I64) {
        fact(w, "tokens", AT_UNKNOWN_FACT, "of step %d: its first product has no weight, or two", m->step);
    } else if (m->first_product < 0) {
        fact(w, "tokens", s->tokens,
             "of step %d: what its first product for a weight's gradient sums over, in each of %d micro-batch(es)",
             m->step, s->micro_batches);
    } else {
        const struct at_event *e = &t->event[m->first_product];
        fact(w, "tokens", s->tokens,
             "of step %d: the size that its first forward product (op %" PRId64 ": %" PRId64 " x %" PRId64
             ", summed over %" PRId64 ") does not share with its weight; %d micro-batch(es)",
             m->step, e->op, e->m, e->n, e->k, s->micro_batches);
    }
}

static void attention_facts(struct term_writer *w) {
    const struct model_shape *m = &w->p->shape;
    if (m->attention == ATTENTION_NONE) {
        fact(w, "attention", 0, "every forward product has a weight, and no kernel does so much work");
        return;
    }
    if (m->attention == ATTENTION_UNKNOWN) {
        fact(w, "attention", AT_UNKNOWN_FACT, "no pairs of products without a weight, and kernels that could be it");
        return;
    }
    fact(w, "attention", 1, "pairs of forward products without a weight: scores, then values");
    fact(w, "layers", m->layers, "groups of such pairs between products with weights");
    fact(w, "context", m->context, "keys: what the second product of a pair sums over");
    fact(w, "head_size", m->head_size, "what the first product of a pair sums over");
    fact(w, "sequences", m->sequences, "of a micro-batch: its tokens over the rows of scores");
    fact(w, "heads", m->heads, "pairs of a layer over sequences");
}

/* ---- all ---- */

static int prepare(struct term_writer *w) {
    return sql_run(w->db, "DELETE FROM step_product; DELETE FROM flops_term; DELETE FROM model", w->err, w->err_len) ||
           sql_prepare(w->db, &w->product, "INSERT INTO step_product(step, part, products, flops) VALUES(?, ?, ?, ?)",
                       w->err, w->err_len) ||
           sql_prepare(w->db, &w->term, "INSERT INTO flops_term(step, place, term, flops) VALUES(?, ?, ?, ?)", w->err,
                       w->err_len) ||
           sql_prepare(w->db, &w->fact, "INSERT INTO model(fact, value, how) VALUES(?, ?, ?)", w->err, w->err_len);
}

static int read_steps(struct products *p, sqlite3 *db, char *err, size_t err_len) {
    sqlite3_stmt *st;
    int rc;
    p->step = POOL_NEW(p->t->pool, struct step_row, p->t->steps);
    for (int32_t i = 0; i < p->t->steps; i++) p->step[i] = (struct step_row){ACCT_NULL_I64, 1, 0};
    if (sql_prepare(db, &st, "SELECT id, tokens, micro_batches, complete FROM step", err, err_len)) return -1;
    while ((rc = sql_row(db, st, err, err_len)) > 0) {
        int64_t i = sqlite3_column_int64(st, 0);
        if (i < 0 || i >= p->t->steps) continue;
        p->step[i].tokens = sql_i64(st, 1);
        p->step[i].micro_batches = sqlite3_column_int(st, 2) > 0 ? sqlite3_column_int(st, 2) : 1;
        p->step[i].complete = sqlite3_column_int(st, 3);
    }
    sqlite3_finalize(st);
    return rc;
}

int at_write_products(struct at_trace *t, sqlite3 *db, char *err, size_t err_len) {
    struct products p = {.t = t};
    struct term_writer w = {.p = &p, .db = db, .err = err, .err_len = err_len};
    int32_t from = 0, to = 0;
    p.use = POOL_NEW(t->pool, struct weight_use, t->ranges);
    w.failed = prepare(&w) || read_steps(&p, db, err, err_len);
    if (!w.failed) at_find_shape(&p);
    for (int32_t i = 0; i < t->steps && !w.failed; i++) {
        from = to;
        at_step_extent(t, i, &from, &to);
        at_products_of_step(&p, i, from, to);
        write_parts(&w, i);
        write_terms(&w, i, from, to);
    }
    if (!w.failed) {
        parameter_facts(&w);
        token_facts(&w);
        attention_facts(&w);
    }
    sqlite3_finalize(w.product);
    sqlite3_finalize(w.term);
    sqlite3_finalize(w.fact);
    pool_give(t->pool, p.use);
    pool_give(t->pool, p.step);
    pool_give(t->pool, p.touched);
    pool_give(t->pool, p.weight);
    return w.failed ? -1 : 0;
}
