/* Writes op_sum and step_sum: what reports add up over op_cost, added up while it is written. Groups are few: a step
 * has some phases and number formats, a program some hundred kinds of calls. Sums that do not fit in 64 bits are left
 * to the readers: then both tables stay empty. */
#include "analyzer/attr_model.h"

#include <string.h>
#include "analyzer/attr_rows.h"
#include "analyzer/attr_sql.h"

struct side { /* of a step's sums: products, or all else */
    int64_t least, most, unbounded, sampled, uncounted;
};

struct step_group {
    int32_t step; /* -1: none */
    const char *phase, *dtype;
    struct side product, other;
};

struct op_group {
    const struct at_event *like;
    int64_t ops, timed, busy_ns;
};

struct at_sums {
    struct at_trace *t;
    struct at_map step_at, op_at; /* places in the two lists */
    struct step_group *step;
    struct op_group *op;
    int64_t steps, step_room, ops, op_room;
    struct latest { /* by at_event.cost + 1: the groups, + 1, of the latest such event: most later ones are in them */
        int64_t step, op;
    } * latest;
    const char *dtype[64]; /* seen so far */
    int dtypes;
    int too_large;
};

static const struct at_cost uncounted = {.flops = COST_UNKNOWN,
                                         .flops_most = COST_UNKNOWN,
                                         .matmul_flops = COST_UNKNOWN,
                                         .matmul_flops_most = COST_UNKNOWN,
                                         .integer_ops = COST_UNKNOWN,
                                         .bytes_read = COST_UNKNOWN,
                                         .bytes_written = COST_UNKNOWN,
                                         .price = COST_UNKNOWN,
                                         .grade = COST_UNCOUNTED};

const struct at_cost *at_cost_of(const struct at_trace *t, const struct at_event *e) {
    return e->cost >= 0 ? &t->cost[e->cost] : &uncounted;
}

static int dtype_number(struct at_sums *s, const char *dtype) {
    if (!dtype) return 0;
    for (int i = 0; i < s->dtypes; i++)
        if (s->dtype[i] == dtype || !strcmp(s->dtype[i], dtype)) return i + 1;
    if (s->dtypes == (int)(sizeof s->dtype / sizeof *s->dtype)) return s->too_large = 1, 0;
    s->dtype[s->dtypes++] = dtype;
    return s->dtypes;
}

/* ---- by step ----------------------------------------------------------------------------------------------------- */
static struct step_group *step_group(struct at_sums *s, const struct at_event *e, const char *dtype) {
    int64_t *latest = &s->latest[e->cost + 1].step;
    if (*latest && s->step[*latest - 1].step == e->step && s->step[*latest - 1].phase == at_phase_text(e))
        return &s->step[*latest - 1];
    int phase = at_phase_text(e) ? e->phase : AT_PHASES, fresh;
    uint64_t key = ((uint64_t)(uint32_t)(e->step + 1) << 12) + (uint64_t)(phase << 7 | dtype_number(s, dtype));
    int64_t *at = at_map_put(&s->step_at, s->t->pool, key, &fresh);
    if (fresh) {
        POOL_ROOM(s->t->pool, s->step, s->steps, s->step_room);
        s->step[s->steps] = (struct step_group){.step = e->step, .phase = at_phase_text(e), .dtype = dtype};
        *at = s->steps++;
    }
    *latest = *at + 1;
    return &s->step[*at];
}

static int64_t less(int64_t a, int64_t b) {
    return a == COST_UNKNOWN || b == COST_UNKNOWN ? COST_UNKNOWN : a - b;
}

/* As report_flops_rows.h has it in SQL: FLOPS_GEMM_SUM, FLOPS_OTHER_SUM. */
static void add_side(struct at_sums *s, struct side *x, int64_t least, int64_t most, int sampled, int not_counted) {
    if (least != COST_UNKNOWN && __builtin_add_overflow(x->least, least, &x->least)) s->too_large = 1;
    if (most != COST_UNKNOWN && __builtin_add_overflow(x->most, most, &x->most)) s->too_large = 1;
    x->unbounded += least != COST_UNKNOWN && most == COST_UNKNOWN;
    x->sampled += sampled;
    x->uncounted += not_counted;
}

static void add_to_step(struct at_sums *s, const struct at_event *e, const struct at_cost *c) {
    struct step_group *g = step_group(s, e, c->dtype);
    int not_counted = c->flops == COST_UNKNOWN && c->integer_ops == COST_UNKNOWN, sampled = c->grade == COST_SAMPLED;
    add_side(s, &g->product, c->matmul_flops, c->matmul_flops_most, sampled && c->matmul_flops_most != 0,
             not_counted && c->matmul);
    add_side(s, &g->other, less(c->flops, c->matmul_flops), less(c->flops_most, c->matmul_flops_most),
             sampled && c->flops_most != c->matmul_flops_most, not_counted && !c->matmul);
}

/* ---- by kind of call --------------------------------------------------------------------------------------------- */
static int is_alike(const struct at_event *a, const struct at_event *b) {
    return a->cost == b->cost && a->name == b->name && a->call == b->call && at_phase_text(a) == at_phase_text(b);
}

static struct op_group *op_group(struct at_sums *s, const struct at_event *e) {
    int64_t *latest = &s->latest[e->cost + 1].op;
    if (*latest && is_alike(s->op[*latest - 1].like, e)) return &s->op[*latest - 1];
    uint64_t key =
        at_mix(at_pair(e->cost, e->name)) ^ (uint64_t)(uintptr_t)at_phase_text(e) * 31 ^ (uint64_t)e->call << 56;
    for (;; key++) {
        int fresh;
        int64_t *at = at_map_put(&s->op_at, s->t->pool, key, &fresh);
        if (fresh) {
            POOL_ROOM(s->t->pool, s->op, s->ops, s->op_room);
            s->op[s->ops] = (struct op_group){.like = e};
            *at = s->ops++;
        }
        if (!is_alike(s->op[*at].like, e)) continue;
        *latest = *at + 1;
        return &s->op[*at];
    }
}

static void add_to_kind(struct at_sums *s, const struct at_event *e) {
    struct op_group *g = op_group(s, e);
    int64_t busy = s->t->device ? s->t->device[e - s->t->event].busy_ns : -1;
    g->ops++;
    g->timed += busy >= 0;
    if (busy > 0 && __builtin_add_overflow(g->busy_ns, busy, &g->busy_ns)) s->too_large = 1;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */
static void bind_text(sqlite3_stmt *st, int at, const char *text) {
    sqlite3_bind_text(st, at, text, -1, SQLITE_STATIC); /* NULL: null */
}

static int write_steps(const struct at_sums *s, sqlite3 *db, char *err, size_t err_len) {
    sqlite3_stmt *st;
    if (sql_prepare(db, &st, "INSERT INTO step_sum VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", err, err_len))
        return -1;
    int rc = 0;
    for (int64_t i = 0; i < s->steps && !rc; i++) {
        const struct step_group *g = &s->step[i];
        const struct side *x[] = {&g->product, &g->other};
        sql_bind(st, 1, g->step < 0 ? ACCT_NULL_I64 : g->step);
        bind_text(st, 2, g->phase);
        bind_text(st, 3, g->dtype);
        for (int k = 0; k < 2; k++) {
            const int64_t v[] = {x[k]->least, x[k]->most, x[k]->unbounded, x[k]->sampled, x[k]->uncounted};
            for (int n = 0; n < 5; n++) sqlite3_bind_int64(st, 4 + 5 * k + n, v[n]);
        }
        rc = sql_insert(db, st, err, err_len);
    }
    sqlite3_finalize(st);
    return rc;
}

static void bind_kind(const struct at_sums *s, sqlite3_stmt *st, const struct op_group *g) {
    static const char *const kinds[] = {
        [AT_CALL_LAUNCH] = "launch", [AT_CALL_GEMM] = "gemm",     [AT_CALL_BLAS] = "blas",
        [AT_CALL_COPY] = "copy",     [AT_CALL_MEMSET] = "memset", [AT_CALL_OTHER] = "other"};
    const struct at_cost *c = at_cost_of(s->t, g->like);
    int32_t name = g->like->name;
    const int64_t v[] = {c->flops, c->integer_ops, c->matmul, c->bytes_read, c->bytes_written};
    bind_text(st, 1, at_phase_text(g->like));
    bind_text(st, 2, kinds[g->like->call]);
    sql_bind(st, 3, name < ROW_KERNEL_NAME ? name : ACCT_NULL_I64);
    sql_bind(st, 4, name < ROW_KERNEL_NAME ? ACCT_NULL_I64 : name - ROW_KERNEL_NAME);
    bind_text(st, 5, c->dtype);
    for (int i = 0; i < 5; i++) sql_bind(st, 6 + i, v[i]);
    bind_text(st, 11, cost_grade_name((enum cost_grade)c->grade));
    sql_bind(st, 12, c->flops_most);
    sql_bind(st, 13, c->matmul_flops);
    sql_bind(st, 14, c->matmul_flops_most);
    sql_bind(st, 15, c->price);
}

static int write_kinds(const struct at_sums *s, sqlite3 *db, char *err, size_t err_len) {
    sqlite3_stmt *st;
    if (sql_prepare(db, &st, "INSERT INTO op_sum VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", err,
                    err_len))
        return -1;
    int rc = 0;
    for (int64_t i = 0; i < s->ops && !rc; i++) {
        const struct op_group *g = &s->op[i];
        bind_kind(s, st, g);
        sqlite3_bind_int64(st, 16, g->ops);
        sqlite3_bind_int64(st, 17, g->timed);
        sql_bind(st, 18, g->timed ? g->busy_ns : ACCT_NULL_I64);
        rc = sql_insert(db, st, err, err_len);
    }
    sqlite3_finalize(st);
    return rc;
}

struct at_sums *at_sums_make(struct at_trace *t) {
    struct at_sums *s = POOL_NEW(t->pool, struct at_sums, 1);
    s->t = t;
    s->latest = POOL_NEW(t->pool, struct latest, t->costs + 1);
    for (int32_t i = 0; i < t->events; i++) {
        if (!at_is_op(&t->event[i])) continue;
        add_to_step(s, &t->event[i], at_cost_of(t, &t->event[i]));
        add_to_kind(s, &t->event[i]);
    }
    return s;
}

int at_sums_write(const struct at_sums *s, sqlite3 *db, char *err, size_t err_len) {
    if (s->too_large) return 0;
    return write_steps(s, db, err, err_len) || write_kinds(s, db, err, err_len) ? -1 : 0;
}
