/* Writes op_set and cost_set: what each op cost, in which phase of which step. Ops of different steps mostly cost the
 * same: these share one row of costs. */
#include "analyzer/attr_model.h"

#include <string.h>
#include "analyzer/attr_sql.h"

struct costs {
    struct at_trace *t;
    int32_t *same;        /* per row of at_trace.cost: the first one that is equal */
    struct at_map number; /* of a row of cost_set, by what makes it */
    struct shared {
        int32_t cost, micro_batch; /* cost -1: uncounted */
        const char *phase;
    } * shared; /* by number - 1 */
    int32_t count, room;
};

static int is_equal(const struct at_cost *a, const struct at_cost *b) {
    return a->flops == b->flops && a->flops_most == b->flops_most && a->matmul_flops == b->matmul_flops &&
           a->matmul_flops_most == b->matmul_flops_most && a->integer_ops == b->integer_ops &&
           a->bytes_read == b->bytes_read && a->bytes_written == b->bytes_written && a->price == b->price &&
           a->dtype == b->dtype && a->grade == b->grade && a->matmul == b->matmul;
}

static uint64_t hash_of(const struct at_cost *c) {
    const int64_t v[] = {c->flops,       c->flops_most, c->matmul_flops,  c->matmul_flops_most,
                         c->integer_ops, c->bytes_read, c->bytes_written, c->price,
                         c->grade,       c->matmul};
    return at_hash_bytes(v, sizeof v) ^ at_mix((uint64_t)(uintptr_t)c->dtype);
}

/* Of two that share a hash, and do not cost the same, the later one shares with nobody. */
static void find_equal(struct costs *s) {
    struct at_map first = {0};
    s->same = POOL_NEW(s->t->pool, int32_t, s->t->costs);
    for (int32_t i = 0; i < s->t->costs; i++) {
        int fresh;
        int64_t *at = at_map_put(&first, s->t->pool, hash_of(&s->t->cost[i]), &fresh);
        if (fresh) *at = i;
        s->same[i] = is_equal(&s->t->cost[*at], &s->t->cost[i]) ? (int32_t)*at : i;
    }
    at_map_free(&first, s->t->pool);
}

/* Micro-batches number no more than 2^29: each has several ops. */
static int32_t number_of(struct costs *s, const struct at_event *e) {
    const char *phase = at_phase_text(e);
    int32_t micro_batch = e->step >= 0 ? at_micro_batch_of(e) : -1, cost = e->cost < 0 ? -1 : s->same[e->cost];
    uint64_t key =
        (uint64_t)(cost + 1) << 33 | (uint64_t)(phase ? e->phase + 1 : 0) << 30 | (uint64_t)(micro_batch + 1);
    int fresh;
    int64_t *at = at_map_put(&s->number, s->t->pool, key, &fresh);
    if (fresh) {
        POOL_ROOM(s->t->pool, s->shared, s->count, s->room);
        s->shared[s->count++] = (struct shared){e->cost, micro_batch, phase};
        *at = s->count;
    }
    return (int32_t)*at;
}

static int write_op(struct costs *s, struct sql_many *m, const struct at_event *e) {
    sql_many_number(m, e->op);
    sql_many_number(m, e->set == AT_OWN_SET ? -e->op : e->set);
    sql_many_number(m, at_is_op(e) ? number_of(s, e) : ACCT_NULL_I64);
    sql_many_number(m, at_is_op(e) && e->step >= 0 ? e->step : ACCT_NULL_I64);
    return sql_many_row(m);
}

/* A row that is there already is one of the trace's writer, who told operands. */
static int write_ops(struct costs *s, sqlite3 *db, char *err, size_t err_len) {
    struct sql_many m;
    int rc = sql_many_open(&m, db, "INSERT OR REPLACE INTO op_set(op, buffers, cost, step)", 4, err, err_len);
    for (const struct at_event *e = s->t->event; e < s->t->event + s->t->events && !rc; e++)
        if (at_is_op(e) || e->set) rc = write_op(s, &m, e);
    return sql_many_close(&m, rc);
}

static int write_cost(const struct costs *s, struct sql_many *m, int32_t i) {
    const struct shared *x = &s->shared[i];
    const struct at_cost *c = at_cost_of(s->t, &(struct at_event){.cost = x->cost});
    sql_many_number(m, i + 1);
    sql_many_text(m, x->phase);
    sql_many_number(m, x->micro_batch >= 0 ? x->micro_batch : ACCT_NULL_I64);
    sql_many_text(m, c->dtype);
    sql_many_number(m, c->flops);
    sql_many_number(m, c->integer_ops);
    sql_many_number(m, c->matmul);
    sql_many_number(m, c->bytes_read);
    sql_many_number(m, c->bytes_written);
    sql_many_text(m, cost_grade_name((enum cost_grade)c->grade));
    sql_many_number(m, c->flops_most);
    sql_many_number(m, c->matmul_flops);
    sql_many_number(m, c->matmul_flops_most);
    sql_many_number(m, c->price);
    return sql_many_row(m);
}

static int write_costs(const struct costs *s, sqlite3 *db, char *err, size_t err_len) {
    struct sql_many m;
    int rc =
        sql_many_open(&m, db,
                      "INSERT INTO cost_set(cost, phase, micro_batch, dtype, flops, integer_ops, matmul, bytes_read,"
                      " bytes_written, grade, flops_most, matmul_flops, matmul_flops_most, price)",
                      14, err, err_len);
    for (int32_t i = 0; i < s->count && !rc; i++) rc = write_cost(s, &m, i);
    return sql_many_close(&m, rc);
}

int at_write_ops(struct at_trace *t, sqlite3 *db, char *err, size_t err_len) {
    struct costs s = {.t = t};
    find_equal(&s);
    int rc = write_ops(&s, db, err, err_len) || write_costs(&s, db, err, err_len) ? -1 : 0;
    pool_give(t->pool, s.same);
    pool_give(t->pool, s.shared);
    at_map_free(&s.number, t->pool);
    return rc;
}
