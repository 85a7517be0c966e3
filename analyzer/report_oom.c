/* The moment at which a call found no memory, from the recorded and the analysed tables. */
#include "analyzer/report_oom.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NO_MEMORY                                                             \
    "((coalesce(api.library, 'cudart') NOT LIKE 'cublas%' AND op.status = 2)" \
    " OR (api.library LIKE 'cublas%' AND op.status = 3))"
/* Of the device ?1 (NULL: of any) between ?2 and ?3. A release that had begun may not have come in time. */
#define LIVE                                                                                                         \
    " a.alloc_ns <= ?3 AND (a.free_ns IS NULL OR a.free_ns > ?2) AND (?1 IS NULL OR a.device IS NULL OR a.device = " \
    "?1) "
#define ON_DEVICE " a.memory IN ('device', 'async', 'array') "

static void bind_known(sqlite3_stmt *st, int i, int64_t value) {
    if (value == REPORT_UNKNOWN)
        sqlite3_bind_null(st, i);
    else
        sqlite3_bind_int64(st, i, value);
}

/* ---- the calls ---- */

static enum oom_kind kind_of(const char *function) {
    if (!strncmp(function, "cudaHost", 8) || !strncmp(function, "cudaMallocHost", 14)) return OOM_HOST;
    return !strncmp(function, "cudaMallocAsync", 15) || !strncmp(function, "cudaMallocFromPool", 18) ? OOM_ASYNC
                                                                                                     : OOM_DEVICE;
}

static int load_calls(struct report *r, struct report_oom *o, char *err, size_t err_len) {
    sqlite3_stmt *st = report_prepare(
        r,
        "SELECT op.id, op.thread, op.device, CASE op.kind WHEN 'alloc' THEN op.bytes END, op.start_ns, op.end_ns, "
        "coalesce(api.name, op.kind) FROM op LEFT JOIN api ON api.id = op.api WHERE op.status IN (2, 3) AND " NO_MEMORY
        " ORDER BY op.end_ns, op.id",
        err, err_len);
    int rc;
    if (!st) return -1;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        o->calls = report_grow(o->calls, o->n_calls, sizeof *o->calls);
        struct oom_call *c = &o->calls[o->n_calls++];
        *c = (struct oom_call){.op = report_column(st, 0),
                               .thread = report_column(st, 1),
                               .device = report_column(st, 2),
                               .asked_bytes = report_column(st, 3),
                               .start_ns = report_column(st, 4),
                               .end_ns = report_column(st, 5),
                               .function = report_column_text(st, 6)};
        c->kind = kind_of(c->function);
    }
    return report_rows_end(r, st, rc, err, err_len);
}

/* Ids grow with time within a thread: a call before its thread's last work was survived. */
static int load_survivors(struct report *r, struct report_oom *o, char *err, size_t err_len) {
    sqlite3_stmt *st = report_prepare(
        r,
        "SELECT thread, max(id) FROM op WHERE status = 0 AND (kind IN ('launch', 'gemm', 'blas') OR (kind = 'alloc' "
        "AND id IN (SELECT id FROM alloc WHERE memory IN ('device', 'async', 'managed', 'array')))) GROUP BY thread",
        err, err_len);
    int rc;
    if (!st) return -1;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW)
        for (int64_t i = 0; i < o->n_calls; i++)
            o->calls[i].survived |= o->calls[i].thread == report_column(st, 0) && o->calls[i].op < report_column(st, 1);
    for (int64_t i = 0; i < o->n_calls; i++) o->survived += o->calls[i].survived;
    return report_rows_end(r, st, rc, err, err_len);
}

/* The first that ended the thread's work, of the device's memory rather than the host's; else the last. */
static void choose_call(struct report_oom *o) {
    o->call = &o->calls[o->n_calls - 1];
    for (int host = 1; host >= 0; host--)
        for (int64_t i = o->n_calls - 1; i >= 0; i--)
            if (!o->calls[i].survived && (o->calls[i].kind == OOM_HOST) == host) o->call = &o->calls[i];
}

static int64_t step_at(const struct report *r, int64_t ns) {
    for (int64_t i = 0; i < r->n_steps; i++)
        if (r->steps[i].start_ns <= ns && (ns <= r->steps[i].end_ns || (i + 1 == r->n_steps && !r->steps[i].complete)))
            return r->steps[i].index;
    return REPORT_UNKNOWN;
}

static void find_step(const struct report *r, struct report_oom *o) {
    o->step = step_at(r, o->call->start_ns);
    for (int64_t i = 0; i < r->n_phases && o->step != REPORT_UNKNOWN; i++)
        if (r->phases[i].step == o->step && r->phases[i].start_ns <= o->call->start_ns)
            snprintf(o->phase, sizeof o->phase, "%s", r->phases[i].name);
}

/* ---- what was live ---- */

static sqlite3_stmt *prepare_live(struct report *r, const struct report_oom *o, const char *sql, char *err,
                                  size_t err_len) {
    sqlite3_stmt *st = report_prepare(r, sql, err, err_len);
    if (!st) return NULL;
    bind_known(st, 1, o->call->device);
    sqlite3_bind_int64(st, 2, o->call->start_ns);
    sqlite3_bind_int64(st, 3, o->call->end_ns);
    return st;
}

static int load_live(struct report *r, struct report_oom *o, char *err, size_t err_len) {
    sqlite3_stmt *st =
        prepare_live(r, o,
                     "SELECT coalesce(sum(CASE WHEN" ON_DEVICE "THEN a.bytes END), 0), coalesce(sum(CASE "
                     "a.memory WHEN 'managed' THEN a.bytes END), 0), coalesce(sum(" ON_DEVICE "), 0) "
                     "FROM alloc a WHERE" LIVE,
                     err, err_len);
    if (!st) return -1;
    int rc = sqlite3_step(st);
    if (rc == SQLITE_ROW) {
        o->live_bytes = sqlite3_column_int64(st, 0);
        o->managed_bytes = sqlite3_column_int64(st, 1);
        o->live_blocks = sqlite3_column_int64(st, 2);
        rc = sqlite3_step(st);
    }
    return report_rows_end(r, st, rc, err, err_len);
}

#define THEN " (c.from_ns IS NULL OR c.from_ns <= ?3) AND (c.until_ns IS NULL OR c.until_ns > ?3) "

static int load_classes(struct report *r, struct report_oom *o, char *err, size_t err_len) {
    sqlite3_stmt *st = prepare_live(r, o,
                                    "SELECT c.class, sum(c.bytes) FROM alloc a JOIN alloc_class c ON c.alloc = a.id "
                                    "WHERE" ON_DEVICE "AND" LIVE "AND" THEN "GROUP BY c.class",
                                    err, err_len);
    int64_t classed = 0;
    int rc;
    if (!st) return -1;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        o->live[report_class_of((const char *)sqlite3_column_text(st, 0))] += sqlite3_column_int64(st, 1);
        classed += sqlite3_column_int64(st, 1);
    }
    o->live[REPORT_UNKNOWN_CLASS] += o->live_bytes - classed; /* bytes that the analysis says nothing of */
    return report_rows_end(r, st, rc, err, err_len);
}

/* The class that most of a block's bytes had. */
static int load_block_class(struct report *r, const struct report_oom *o, struct oom_block *b, char *err,
                            size_t err_len) {
    sqlite3_stmt *st =
        report_prepare(r,
                       "SELECT c.class, sum(c.bytes) AS n, min(c.confidence), c.rule, max(c.bytes) FROM "
                       "alloc_class c WHERE c.alloc = ?1 AND" THEN "GROUP BY c.class ORDER BY n DESC LIMIT 1",
                       err, err_len);
    if (!st) return -1;
    sqlite3_bind_int64(st, 1, b->alloc);
    sqlite3_bind_int64(st, 3, o->call->end_ns);
    int rc = sqlite3_step(st);
    if (rc == SQLITE_ROW) {
        b->class = report_class_of((const char *)sqlite3_column_text(st, 0));
        b->class_bytes = sqlite3_column_int64(st, 1);
        b->confidence = sqlite3_column_double(st, 2);
        b->rule = report_column_text(st, 3);
        rc = sqlite3_step(st);
    }
    return report_rows_end(r, st, rc, err, err_len);
}

static int load_largest(struct report *r, struct report_oom *o, char *err, size_t err_len) {
    sqlite3_stmt *st = prepare_live(r, o,
                                    "SELECT a.id, a.bytes, a.alloc_ns FROM alloc a WHERE" ON_DEVICE "AND" LIVE
                                    "ORDER BY a.bytes DESC, a.id LIMIT 10",
                                    err, err_len);
    int rc;
    if (!st) return -1;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW && o->n_largest < OOM_LARGEST) {
        struct oom_block *b = &o->largest[o->n_largest++];
        *b = (struct oom_block){.alloc = report_column(st, 0),
                                .bytes = report_column(st, 1),
                                .alloc_ns = report_column(st, 2),
                                .class = REPORT_UNKNOWN_CLASS,
                                .confidence = NAN};
        b->step = step_at(r, b->alloc_ns);
    }
    if (report_rows_end(r, st, rc, err, err_len)) return -1;
    for (int i = 0; i < o->n_largest; i++)
        if (load_block_class(r, o, &o->largest[i], err, err_len)) return -1;
    return 0;
}

/* ---- what the driver said ---- */

static int load_driver(struct report *r, struct report_oom *o, char *err, size_t err_len) {
    sqlite3_stmt *st = report_prepare(
        r, "SELECT total_bytes, free_bytes, pool_reserved_bytes, pool_used_bytes FROM meminfo WHERE op = ?1", err,
        err_len);
    o->total_bytes = o->free_bytes = o->pool_reserved_bytes = o->pool_used_bytes = REPORT_UNKNOWN;
    if (!st) return -1;
    sqlite3_bind_int64(st, 1, o->call->op);
    int rc = sqlite3_step(st);
    if (rc == SQLITE_ROW) {
        o->total_bytes = report_column(st, 0);
        o->free_bytes = report_column(st, 1);
        o->pool_reserved_bytes = report_column(st, 2);
        o->pool_used_bytes = report_column(st, 3);
        rc = sqlite3_step(st);
    }
    return report_rows_end(r, st, rc, err, err_len);
}

#define HAD                                                                    \
    " AND a.alloc_ns <= m.ns AND (a.free_ns IS NULL OR a.free_ns > m.ns) AND " \
    "(a.device IS NULL OR a.device = m.device) "

/* Used when the program began to use the device, less what it had then: its context. A pool may hold more than what was
 * allocated from it; where it was not asked, nothing can be said. */
static int load_context(struct report *r, struct report_oom *o, char *err, size_t err_len) {
    sqlite3_stmt *st = report_prepare(
        r,
        "SELECT m.total_bytes - m.free_bytes - coalesce(m.pool_reserved_bytes, 0) - (SELECT coalesce(sum(a.bytes), 0) "
        "FROM alloc a WHERE a.memory IN ('device', 'array')" HAD "), m.pool IS NULL AND EXISTS (SELECT 1 FROM alloc a "
        "WHERE a.memory = 'async'" HAD ") FROM meminfo m WHERE m.why = 'first use' AND (?1 IS NULL OR m.device = ?1) "
        "ORDER BY m.id LIMIT 1",
        err, err_len);
    o->context_bytes = REPORT_UNKNOWN;
    if (!st) return -1;
    bind_known(st, 1, o->call->device);
    int rc = sqlite3_step(st);
    if (rc == SQLITE_ROW) {
        if (!sqlite3_column_int(st, 1)) o->context_bytes = report_column(st, 0);
        rc = sqlite3_step(st);
    }
    if (o->context_bytes < 0) o->context_bytes = REPORT_UNKNOWN; /* released meanwhile: no difference to trust */
    return report_rows_end(r, st, rc, err, err_len);
}

static int is_known(int64_t x) {
    return x != REPORT_UNKNOWN;
}

/* Less than nothing is left: what was taken for the context was partly something else, or memory was released between
 * the failed call and the question. What cannot be told apart is one figure, or none. */
static void mend_books(struct report_oom *o) {
    if (!is_known(o->unexplained_bytes) || o->unexplained_bytes >= 0) return;
    o->unexplained_bytes = is_known(o->context_bytes) && o->context_bytes + o->unexplained_bytes >= 0
                               ? o->context_bytes + o->unexplained_bytes
                               : REPORT_UNKNOWN;
    o->context_bytes = REPORT_UNKNOWN;
}

static void compute(struct report_oom *o) {
    int64_t most = 0;
    o->slack_bytes = is_known(o->pool_reserved_bytes) && is_known(o->pool_used_bytes)
                         ? o->pool_reserved_bytes - o->pool_used_bytes
                         : REPORT_UNKNOWN;
    o->unexplained_bytes = o->largest_bytes = o->missing_bytes = REPORT_UNKNOWN;
    if (is_known(o->free_bytes)) {
        int64_t slack = is_known(o->slack_bytes) ? o->slack_bytes : 0;
        o->unexplained_bytes = o->total_bytes - o->free_bytes - o->live_bytes - slack -
                               (is_known(o->context_bytes) ? o->context_bytes : 0);
        mend_books(o);
        if (o->call->kind != OOM_HOST) o->largest_bytes = o->free_bytes + (o->call->kind == OOM_ASYNC ? slack : 0);
    }
    if (is_known(o->largest_bytes) && is_known(o->call->asked_bytes))
        o->missing_bytes = o->call->asked_bytes > o->largest_bytes ? o->call->asked_bytes - o->largest_bytes : 0;
    o->shrink_first = REPORT_UNKNOWN_CLASS;
    for (int c = 0; c < REPORT_CLASSES; c++)
        if (o->live[c] > most) most = o->live[o->shrink_first = c];
}

int report_load_oom(struct report *r, char *err, size_t err_len) {
    if (!r->failed) return 0; /* no call at all */
    struct report_oom *o = calloc(1, sizeof *o);
    if (!(r->oom = o)) {
        snprintf(err, err_len, "%s: not enough memory for its report", r->path);
        return -1;
    }
    if (load_calls(r, o, err, err_len)) return -1;
    if (!o->n_calls) {
        report_free_oom(r);
        return 0;
    }
    if (load_survivors(r, o, err, err_len)) return -1;
    choose_call(o);
    find_step(r, o);
    if (load_live(r, o, err, err_len) || load_classes(r, o, err, err_len) || load_largest(r, o, err, err_len) ||
        load_driver(r, o, err, err_len) || load_context(r, o, err, err_len))
        return -1;
    compute(o);
    report_oom_hints(r);
    return 0;
}

void report_free_oom(struct report *r) {
    struct report_oom *o = r->oom;
    if (!o) return;
    for (int64_t i = 0; i < o->n_calls; i++) free(o->calls[i].function);
    for (int i = 0; i < o->n_largest; i++) free(o->largest[i].rule);
    for (int i = 0; i < o->n_hints; i++) free(o->hints[i]);
    free(o->calls), free(o->hints), free(o);
    r->oom = NULL;
}
