/* Writes op_set and cost_set: what each op cost, in which phase of which step. Ops of different steps mostly cost the
 * same: these share one row of costs. */
#include "analyzer/attr_model.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/attr_sql.h"

struct op_writer {
    struct pool pool;
    struct at_trace t; /* a copy: the caller's may be gone when the thread ends */
    sqlite3 *db;
    int32_t *same;        /* per row of at_trace.cost: the first one that is equal */
    struct at_map number; /* of a row of cost_set, by what makes it */
    struct shared {
        int32_t cost, micro_batch; /* cost -1: uncounted */
        const char *phase;
    } * shared; /* by number - 1 */
    int32_t count, room;
    int32_t from; /* events before are written at the end */
    int failed, started;
    pthread_t thread;
    char err[512];
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
static void find_equal(struct op_writer *s) {
    struct at_map first = {0};
    s->same = POOL_NEW(&s->pool, int32_t, s->t.costs);
    for (int32_t i = 0; i < s->t.costs; i++) {
        int fresh;
        int64_t *at = at_map_put(&first, &s->pool, hash_of(&s->t.cost[i]), &fresh);
        if (fresh) *at = i;
        s->same[i] = is_equal(&s->t.cost[*at], &s->t.cost[i]) ? (int32_t)*at : i;
    }
    at_map_free(&first, &s->pool);
}

/* Micro-batches number no more than 2^29: each has several ops. */
static int32_t number_of(struct op_writer *s, const struct at_event *e) {
    const char *phase = at_phase_text(e);
    int32_t micro_batch = e->step >= 0 ? at_micro_batch_of(e) : -1, cost = e->cost < 0 ? -1 : s->same[e->cost];
    uint64_t key =
        (uint64_t)(cost + 1) << 33 | (uint64_t)(phase ? e->phase + 1 : 0) << 30 | (uint64_t)(micro_batch + 1);
    int fresh;
    int64_t *at = at_map_put(&s->number, &s->pool, key, &fresh);
    if (fresh) {
        POOL_ROOM(&s->pool, s->shared, s->count, s->room);
        s->shared[s->count++] = (struct shared){e->cost, micro_batch, phase};
        *at = s->count;
    }
    return (int32_t)*at;
}

static int write_op(struct op_writer *s, struct sql_many *m, const struct at_event *e) {
    sql_many_number(m, e->op);
    sql_many_number(m, e->set == AT_OWN_SET ? -e->op : e->set);
    sql_many_number(m, at_is_op(e) ? number_of(s, e) : ACCT_NULL_I64);
    sql_many_number(m, at_is_op(e) && e->step >= 0 ? e->step : ACCT_NULL_I64);
    return sql_many_row(m);
}

/* Events [from, to). A row that is there already is one of the trace's writer, who told operands. */
static int write_ops(struct op_writer *s, int32_t from, int32_t to) {
    struct sql_many m;
    int rc =
        sql_many_open(&m, s->db, "INSERT OR REPLACE INTO op_set(op, buffers, cost, step)", 4, s->err, sizeof s->err);
    for (const struct at_event *e = s->t.event + from; e < s->t.event + to && !rc; e++)
        if (at_is_op(e) || e->set) rc = write_op(s, &m, e);
    return sql_many_close(&m, rc);
}

static int write_cost(const struct op_writer *s, struct sql_many *m, int32_t i) {
    const struct shared *x = &s->shared[i];
    const struct at_cost *c = at_cost_of(&s->t, &(struct at_event){.cost = x->cost});
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

static int write_costs(struct op_writer *s) {
    struct sql_many m;
    int rc =
        sql_many_open(&m, s->db,
                      "INSERT INTO cost_set(cost, phase, micro_batch, dtype, flops, integer_ops, matmul, bytes_read,"
                      " bytes_written, grade, flops_most, matmul_flops, matmul_flops_most, price)",
                      14, s->err, sizeof s->err);
    for (int32_t i = 0; i < s->count && !rc; i++) rc = write_cost(s, &m, i);
    return sql_many_close(&m, rc);
}

static void *run_thread(void *argument) {
    struct op_writer *s = argument;
    if (setjmp(s->pool.failed)) {
        s->failed = 1;
        return NULL;
    }
    find_equal(s);
    s->failed = write_ops(s, s->from, s->t.events);
    return NULL;
}

int32_t at_first_of_steps(const struct at_trace *t) {
    if (t->steps && t->step[0].end_ns) return 0; /* a marker says where it begins */
    for (int32_t e = 0; e < t->events; e++)
        if (t->event[e].step == 0 && t->event[e].phase != AT_OTHER) return e;
    return t->events;
}

struct op_writer *op_writer_begin(const struct at_trace *t, sqlite3 *db) {
    struct op_writer *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->t = *t;
    s->db = db;
    s->from = at_first_of_steps(t);
    s->started = !pthread_create(&s->thread, NULL, run_thread, s);
    if (!s->started) run_thread(s);
    return s;
}

static void wait_for(struct op_writer *s) {
    if (s->started) pthread_join(s->thread, NULL);
    s->started = 0;
}

void op_writer_wait(struct op_writer *s) {
    if (s) wait_for(s);
}

static int write_rest(struct op_writer *s) {
    if (setjmp(s->pool.failed)) return -1;
    return write_ops(s, 0, s->from) || write_costs(s) ? -1 : 0;
}

int op_writer_end(struct op_writer *s, char *err, size_t err_len) {
    if (s && !s->failed && !write_rest(s)) return 0;
    snprintf(err, err_len, "%s", s && *s->err ? s->err : "not enough memory to write what ops cost");
    return -1;
}

void op_writer_free(struct op_writer *s) {
    if (!s) return;
    wait_for(s);
    pool_free(&s->pool);
    free(s);
}
