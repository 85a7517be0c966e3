/* Writes what the rules found: step, phase, alloc_class. */
#include "analyzer/attr_model.h"

#include <stdlib.h>
#include "analyzer/attr_sql.h"

struct writer {
    struct at_trace *t;
    sqlite3 *db;
    char *err;
    size_t err_len;
    int both_ways; /* reads_both_ways() */
};

static const char *const phase_names[AT_PHASES] = {[AT_FORWARD] = "forward",
                                                   [AT_BACKWARD] = "backward",
                                                   [AT_RECOMPUTE] = "recompute",
                                                   [AT_OPTIMIZER] = "optimizer",
                                                   [AT_EVALUATION] = "evaluation"};

/* ---- steps and phases
 * ------------------------------------------------------------------------------------------------------ */
struct extent {
    int32_t first, last; /* events; first -1: none */
    int by;              /* enum at_found_by: a marker, if it told the phase of any of them */
};

static const char *const found_by[] = {[AT_BY_RULES] = "update", [AT_BY_PASSES] = "passes", [AT_BY_REPEATS] = "repeats",
                                       [AT_BY_ONE] = "one",      [AT_BY_NVTX] = "nvtx",     [AT_BY_ACCT_H] = "acct.h"};

struct step_rows {
    struct extent ops;
    int32_t micro_batches;
    int64_t tokens;       /* ACCT_NULL_I64 */
    struct extent *phase; /* [micro-batch * AT_PHASES + phase] */
};

struct device_time {
    int64_t start_ns, end_ns; /* ACCT_NULL_I64 */
};

static void widen(struct extent *x, int32_t e) {
    if (x->first < 0) x->first = e;
    x->last = e;
}

int32_t at_micro_batch_of(const struct at_event *e) {
    return e->phase == AT_OPTIMIZER ? 0 : e->micro_batch;
}

static int reads_in_step(const struct at_trace *t, int32_t value, int32_t step) {
    AT_EACH_TOUCH(t, &t->value[value], a)
    if (at_reads(a->mode) && t->event[a->event].step == step && t->event[a->event].phase != AT_OTHER) return 1;
    return 0;
}

static int is_input_of_step(const struct at_trace *t, int32_t e, int32_t step) {
    if (t->event[e].kind != AT_H2D) return 0;
    AT_EACH_ACCESS(t, e, a) {
        const struct at_verdict *v = &t->verdict[t->verdict0[a->range]];
        for (; v < &t->verdict[t->verdict0[a->range + 1]]; v++)
            if (v->cls == AT_INPUT && v->from <= e && e < v->until && reads_in_step(t, a->value, step)) return 1;
    }
    return 0;
}

/* Initialisation belongs to no step: of what comes before the first step's first phase only its inputs do. */
void at_trim_first_step(struct at_trace *t) {
    if (t->steps && t->step[0].end_ns) return; /* a marker says where it begins */
    for (int32_t e = at_first_of_steps(t) - 1; e >= 0; e--)
        if (t->event[e].step == 0 && !is_input_of_step(t, e, 0)) t->event[e].step = -1;
}

/* Rows of the operand of a product that is no weight, times the batch: tokens or samples. */
static int64_t rows_of(const struct at_trace *t, int32_t e) {
    const struct at_event *ev = &t->event[e];
    int a_weight = 0, b_weight = 0;
    AT_EACH_ACCESS(t, e, a) {
        int weight = t->range[a->range].any_weight || t->value[a->value].copy_of >= 0;
        if (at_slot_of(t, a) == AT_SLOT_A) a_weight |= weight;
        if (at_slot_of(t, a) == AT_SLOT_B) b_weight |= weight;
    }
    if (a_weight == b_weight || ev->k < 0 || ev->m < 0 || ev->n < 0) return ACCT_NULL_I64;
    return cost_amount((__int128)(a_weight ? ev->n : ev->m) * ev->batch);
}

struct token_count {
    int64_t sum;
    int32_t next; /* micro-batch whose first forward product is awaited */
};

/* A micro-batch's tokens: rows of its first forward product; where forward multiplies by kernels of the program's own,
 * what its first product for a weight's gradient sums over. */
static void count_tokens(const struct at_trace *t, int32_t e, struct token_count *c) {
    const struct at_event *ev = &t->event[e];
    int64_t rows = ACCT_NULL_I64;
    if (ev->kind != AT_GEMM || ev->micro_batch < c->next) return;
    if (ev->phase == AT_FORWARD && t->weight_read[e] >= 0)
        rows = rows_of(t, e);
    else if (ev->phase == AT_BACKWARD && t->writes_grad[e] && ev->k >= 0)
        rows = cost_amount((__int128)ev->k * ev->batch);
    else
        return;
    c->sum = ev->micro_batch == c->next ? cost_amount_add(c->sum, rows) : ACCT_NULL_I64;
    c->next = ev->micro_batch + 1;
}

static void gather_step(struct at_trace *t, int32_t step, int32_t *e, struct step_rows *s) {
    struct token_count tokens = {0};
    int32_t from = *e, end = *e;
    *s = (struct step_rows){.ops = {-1, -1, 0}, .micro_batches = 1};
    for (int32_t i = from; i < t->events && (t->event[i].step <= step); i++) {
        const struct at_event *ev = &t->event[i];
        if (ev->step != step) continue;
        widen(&s->ops, i);
        end = i + 1;
        if (ev->phase != AT_OTHER && at_micro_batch_of(ev) >= s->micro_batches)
            s->micro_batches = at_micro_batch_of(ev) + 1;
        count_tokens(t, i, &tokens);
    }
    s->tokens = tokens.next == s->micro_batches ? tokens.sum : ACCT_NULL_I64;
    s->phase = POOL_NEW(t->pool, struct extent, (size_t)s->micro_batches * AT_PHASES);
    for (int32_t i = 0; i < s->micro_batches * AT_PHASES; i++) s->phase[i].first = -1;
    for (int32_t i = from; i < end; i++) {
        const struct at_event *ev = &t->event[i];
        if (ev->step != step || ev->phase == AT_OTHER || !at_is_op(ev)) continue;
        struct extent *x = &s->phase[at_micro_batch_of(ev) * AT_PHASES + ev->phase];
        widen(x, i);
        if (ev->phase_by > x->by) x->by = ev->phase_by;
    }
    *e = end;
}

static int write_phases(const struct writer *w, sqlite3_stmt *st, int32_t step, const struct step_rows *s) {
    for (int32_t i = 0; i < s->micro_batches * AT_PHASES; i++) {
        const struct extent *x = &s->phase[i];
        if (x->first < 0) continue;
        const struct at_event *first = &w->t->event[x->first], *last = &w->t->event[x->last];
        sqlite3_bind_int(st, 1, step);
        sqlite3_bind_text(st, 2, phase_names[i % AT_PHASES], -1, SQLITE_STATIC);
        sqlite3_bind_int(st, 3, i / AT_PHASES);
        sqlite3_bind_int64(st, 4, first->start_ns);
        sqlite3_bind_int64(st, 5, last->end_ns);
        sqlite3_bind_int64(st, 6, first->op);
        sqlite3_bind_int64(st, 7, last->op);
        sqlite3_bind_text(st, 8, x->by ? found_by[x->by] : "rules", -1, SQLITE_STATIC);
        if (sql_insert(w->db, st, w->err, w->err_len)) return -1;
    }
    return 0;
}

static int is_timed(const struct at_event *e) {
    return at_is_op(e) && e->kind != AT_HANDED && e->kind != AT_ALLOC && e->kind != AT_FREE;
}

/* When the device began and ended the ops of a step; null if it has no time for one of them. */
static struct device_time device_time_of(const struct at_trace *t, int32_t step, const struct step_rows *s) {
    struct device_time d = {ACCT_NULL_I64, ACCT_NULL_I64};
    for (int32_t i = s->ops.first; i <= s->ops.last; i++) {
        const struct at_event *e = &t->event[i];
        if (e->step != step || !is_timed(e)) continue;
        const struct at_device_time *x = t->device ? &t->device[i] : NULL;
        if (!x || x->busy_ns < 0) return (struct device_time){ACCT_NULL_I64, ACCT_NULL_I64};
        if (d.start_ns == ACCT_NULL_I64 || x->start_ns < d.start_ns) d.start_ns = x->start_ns;
        if (d.end_ns == ACCT_NULL_I64 || x->end_ns > d.end_ns) d.end_ns = x->end_ns;
    }
    return d;
}

static int write_step(const struct writer *w, sqlite3_stmt *st, int32_t step, const struct step_rows *s,
                      int64_t start_ns, int64_t end_ns, struct device_time device) {
    const struct at_event *first = &w->t->event[s->ops.first], *last = &w->t->event[s->ops.last];
    sqlite3_bind_int(st, 1, step);
    sqlite3_bind_int64(st, 2, start_ns);
    sqlite3_bind_int64(st, 3, end_ns);
    sqlite3_bind_int64(st, 4, first->op);
    sqlite3_bind_int64(st, 5, last->op);
    sqlite3_bind_int(st, 6, s->micro_batches);
    sql_bind(st, 7, s->tokens);
    sqlite3_bind_int(st, 8, w->t->step[step].complete);
    sql_bind(st, 9, device.start_ns);
    sql_bind(st, 10, device.end_ns);
    sqlite3_bind_text(st, 11, found_by[w->t->step[step].by], -1, SQLITE_STATIC);
    return sql_insert(w->db, st, w->err, w->err_len);
}

/* Does the device work for no step between two events? Then a marked step that follows is timed from its own first op.
 */
static int works_between(const struct at_trace *t, int32_t from, int32_t to) {
    for (int32_t e = from + 1; e < to; e++)
        if (is_timed(&t->event[e]) && t->event[e].step < 0) return 1;
    return 0;
}

static int write_steps(const struct writer *w) {
    sqlite3_stmt *step = NULL, *phase = NULL;
    int rc = sql_prepare(w->db, &step,
                         "INSERT INTO step(id, start_ns, end_ns, first_op, last_op, micro_batches, tokens, complete, "
                         "device_start_ns, device_end_ns, found_by) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                         w->err, w->err_len);
    if (!rc)
        rc = sql_prepare(w->db, &phase,
                         "INSERT INTO phase(step, name, micro_batch, start_ns, end_ns, first_op, last_op, found_by) "
                         "VALUES(?, ?, ?, ?, ?, ?, ?, ?)",
                         w->err, w->err_len);
    int64_t end_ns = ACCT_NULL_I64, device_end_ns = ACCT_NULL_I64;
    for (int32_t i = 0, e = 0, last = 0; i < w->t->steps && !rc; i++) {
        struct step_rows s;
        gather_step(w->t, i, &e, &s);
        if (s.ops.first < 0) continue;
        struct device_time device = device_time_of(w->t, i, &s);
        const struct at_step *found = &w->t->step[i];
        int alone = found->end_ns && works_between(w->t, last, s.ops.first);
        if (device.end_ns != ACCT_NULL_I64 && device_end_ns != ACCT_NULL_I64 && !alone) device.start_ns = device_end_ns;
        device_end_ns = device.end_ns;
        last = s.ops.last;
        int64_t last_ns = w->t->event[s.ops.last].end_ns;
        int64_t start_ns = found->end_ns             ? found->start_ns
                           : end_ns == ACCT_NULL_I64 ? w->t->event[s.ops.first].start_ns
                                                     : end_ns;
        end_ns = found->end_ns ? found->end_ns : last_ns;
        rc = write_step(w, step, i, &s, start_ns, end_ns, device);
        if (!rc) rc = write_phases(w, phase, i, &s);
        pool_give(w->t->pool, s.phase);
    }
    sqlite3_finalize(step);
    sqlite3_finalize(phase);
    return rc;
}

const char *at_phase_text(const struct at_event *e) {
    return e->step >= 0 || e->phase == AT_EVALUATION ? phase_names[e->phase] : NULL;
}

/* ---- alloc_class
 * --------------------------------------------------------------------------------------------------------- */
static const char *const class_names[AT_CLASSES] = {[AT_PARAM] = "param",
                                                    [AT_GRAD] = "grad",
                                                    [AT_OPT_STATE] = "optimizer",
                                                    [AT_ACTIVATION] = "activation",
                                                    [AT_ACTIVATION_GRAD] = "activation_grad",
                                                    [AT_INPUT] = "input",
                                                    [AT_WORKSPACE] = "workspace",
                                                    [AT_TEMPORARY] = "temporary",
                                                    [AT_OTHER_CLASS] = "other",
                                                    [AT_UNKNOWN] = "unknown"};

static const struct rule_text {
    const char *text;
    double known, blind, pool;
} rules[] = {
#define RULE(name, cls, text, known, blind, pool) {text, known, blind, pool},
#include "analyzer/attr_rules.h"
#undef RULE
};

/* Something that products have read is then changed in place, or by a copy of what is changed in place: a weight that
 * is trained. */
static int is_changed_after_use(const struct at_trace *t, const struct at_range *r) {
    int used = 0;
    if (!r->gemm_reads || r->gemm_writes) return 0;
    AT_EACH_TOUCH(t, r, a) {
        int kind = t->event[a->event].kind, source = 0;
        if (kind == AT_GEMM) used = 1;
        if (kind == AT_KERNEL && a->mode == AT_RW && used) return 1;
        if (a->mode != AT_W) continue;
        AT_EACH_ACCESS(t, a->event, b) source |= b->mode == AT_R && t->value[b->value].kernel_modifies;
        if (used && source) return 1;
        used = 0;
    }
    return 0;
}

/* The trace looks like training whose updates the rules did not find. */
static int looks_trained(const struct at_trace *t) {
    for (int32_t i = 0; i < t->ranges && !t->step_ends; i++)
        if (is_changed_after_use(t, &t->range[i])) return 1;
    return 0;
}

/* Something is known as a weight; without any, what is read and what is written tells little. */
static int shows_weights(const struct at_trace *t) {
    for (int32_t i = 0; i < t->ranges; i++)
        if (t->range[i].any_weight || t->range[i].frozen) return 1;
    return t->cut || !t->gemms;
}

/* Once training has begun, kernels write through pointers that lie in memory: which accesses are missing, nobody knows.
 */
static int writes_beyond(const struct at_trace *t) {
    for (int32_t e = t->first_gemm; e < t->events; e++)
        if (t->event[e].beyond) return 1;
    return 0;
}

/* Of random simulated programs' bytes 0.998 were right where directions are known, 0.97 where they had to be guessed.
 */
#define GUESSED_LOSS 0.03

/* What a class is worth in this trace, whatever the rule. */
static double trust(const struct at_trace *t) {
    int32_t with_grad = 0;
    for (int32_t k = 0; k < t->clusters; k++) with_grad += t->cluster[k].uses_grad;
    double f = t->steps == 1 || t->step_ends == 1 ? 0.7 : t->steps == 2 ? 0.9 : 1;
    if (looks_trained(t)) f = 0.5;
    if (!shows_weights(t)) f = 0.3;
    if (writes_beyond(t)) f *= 0.4;
    f *= 1 - GUESSED_LOSS * t->guessed;
    return t->clusters && 2 * with_grad < t->clusters ? f * 0.5 : f;
}

/* What is called forward multiplies by a trained weight along the axis of the way back, too: a weight used both ways,
 * or a gradient of the input that forward then works with (an adversarial batch). Where backward begins is less sure.
 */
static int reads_both_ways(const struct at_trace *t) {
    for (int32_t i = 0; i < t->gemms; i++) {
        int32_t e = t->gemm[i], w = t->weight_read[e];
        if (w >= 0 && t->range[w].weight && !t->weight_forward[e] && t->event[e].phase == AT_FORWARD) return 1;
    }
    return 0;
}

/* Classes that follow from phases. */
static int is_of_a_phase(int cls) {
    return cls == AT_ACTIVATION || cls == AT_ACTIVATION_GRAD || cls == AT_TEMPORARY;
}

static double confidence(const struct at_trace *t, const struct at_block *b, int rule, double factor) {
    const struct rule_text *r = &rules[rule];
    if (rule == AT_RULE_HOST || rule == AT_RULE_OPAQUE || rule == AT_RULE_WORKSPACE) return r->known;
    double blind = r->blind < r->known ? r->blind : r->known; /* on fewer programs: no better for it */
    double c = b->pool ? r->pool : t->blind ? blind : r->known;
    c = (c > 0 ? c : r->known) * factor;
    double most = b->pool && t->blind ? 0.4 : b->pool && t->steps < 3 ? 0.5 : 1; /* hidden pools resolve badly */
    return c < most ? c : most;
}

/* A frozen weight whose first product has another frozen factor: one of them may be a batch that is never renewed. */
static int is_one_of_two_constants(const struct at_trace *t, const struct at_range *r) {
    if (!r->frozen) return 0;
    AT_EACH_TOUCH(t, r, a) {
        if (t->event[a->event].kind != AT_GEMM) continue;
        AT_EACH_ACCESS(t, a->event, b)
        if (at_is_factor(at_slot_of(t, b)) && t->range[b->range].frozen && at_slot_of(t, b) != at_slot_of(t, a))
            return 1;
        return 0;
    }
    return 0;
}

struct class_row {
    int64_t offset, bytes;
    int32_t from, until;
    int8_t cls, rule;
    int doubtful; /* a range of it is one of two constants */
};

static int write_class(const struct writer *w, sqlite3_stmt *st, const struct at_block *b, const struct class_row *r,
                       double factor) {
    if (!r->bytes) return 0;
    sqlite3_bind_int64(st, 1, b->alloc);
    sqlite3_bind_int64(st, 2, r->offset);
    sqlite3_bind_int64(st, 3, r->bytes);
    sql_bind(st, 4, r->from > 0 ? w->t->event[r->from].key_ns : ACCT_NULL_I64);
    sql_bind(st, 5, r->until < AT_END ? w->t->event[r->until].key_ns : ACCT_NULL_I64);
    sqlite3_bind_text(st, 6, class_names[r->cls], -1, SQLITE_STATIC);
    double c = confidence(w->t, b, r->rule, factor);
    int doubtful = r->doubtful || (w->both_ways && is_of_a_phase(r->cls));
    sqlite3_bind_double(st, 7, doubtful && c > 0.6 ? 0.6 : c);
    sqlite3_bind_text(st, 8, rules[r->rule].text, -1, SQLITE_STATIC);
    return sql_insert(w->db, st, w->err, w->err_len);
}

/* Neighbours that agree for their whole life become one row; so do one range's values that agree one after another. */
static int write_block(const struct writer *w, sqlite3_stmt *st, const struct at_block *b, double factor) {
    const struct at_trace *t = w->t;
    struct class_row row = {0};
    for (int32_t i = b->range0; i < b->range0 + b->ranges; i++) {
        const struct at_range *r = &t->range[i];
        for (int32_t k = t->verdict0[i]; k < t->verdict0[i + 1]; k++) {
            const struct at_verdict *v = &t->verdict[k];
            int doubtful = v->rule == AT_RULE_FROZEN && is_one_of_two_constants(t, r);
            int same = row.bytes && row.cls == v->cls && row.rule == v->rule && row.doubtful == doubtful;
            int whole = v->from == 0 && v->until == AT_END && row.from == 0 && row.until == AT_END;
            if (same && whole && row.offset + row.bytes == r->lo) {
                row.bytes += r->hi - r->lo;
            } else if (same && row.offset == r->lo && row.until == v->from && k > t->verdict0[i]) {
                row.until = v->until;
            } else {
                if (write_class(w, st, b, &row, factor)) return -1;
                row = (struct class_row){r->lo, r->hi - r->lo, v->from, v->until, v->cls, v->rule, doubtful};
            }
        }
    }
    return write_class(w, st, b, &row, factor);
}

static int write_classes(const struct writer *w) {
    sqlite3_stmt *st;
    if (sql_prepare(w->db, &st,
                    "INSERT INTO alloc_class(alloc, offset, bytes, from_ns, until_ns, class, confidence, rule) "
                    "VALUES(?, ?, ?, ?, ?, ?, ?, ?)",
                    w->err, w->err_len))
        return -1;
    int rc = 0;
    double factor = trust(w->t);
    for (int32_t i = 0; i < w->t->blocks && !rc; i++) rc = write_block(w, st, &w->t->block[i], factor);
    sqlite3_finalize(st);
    return rc;
}

int at_write(struct at_trace *t, sqlite3 *db, struct op_writer *ops, const struct at_sums *sums, char *err,
             size_t err_len) {
    struct writer w = {t, db, err, err_len, reads_both_ways(t)};
    return write_steps(&w) || op_writer_end(ops, err, err_len) || write_classes(&w) ||
                   at_sums_write(sums, db, err, err_len)
               ? -1
               : 0;
}
