#include "analyzer/memory_reconcile.h"
#include "analyzer/memory_print.h"
#include "analyzer/memory_sweep.h"
#include "trace/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 2 << 20, SHARED_UP_TO = 1 << 20, UNIT = 512 };

static int64_t up(int64_t bytes, int64_t to) {
    return (bytes + to - 1) / to * to;
}

void memory_rounding_add(struct memory_rounding *m, int64_t bytes) {
    if (bytes <= 0) return;
    m->asked += bytes;
    if (bytes > SHARED_UP_TO)
        m->large += up(bytes, PIECE);
    else
        m->small += up(bytes, UNIT);
}

int64_t memory_rounding_bytes(const struct memory_rounding *m) {
    return m->large + up(m->small, PIECE) - m->asked;
}

/* ---- the driver's answers ---- */

struct answer {
    int64_t ns, device, total, free, reserved, used, has_pool;
    char why[32];
};

static int is_known(int64_t x) {
    return x != REPORT_UNKNOWN;
}

static int load_answers(struct report *r, struct answer **out, int64_t *n, char *err, size_t err_len) {
    sqlite3_stmt *st = report_prepare(r,
                                      "SELECT ns, device, total_bytes, free_bytes, pool_reserved_bytes, "
                                      "pool_used_bytes, pool IS NOT NULL, why FROM meminfo ORDER BY ns, id",
                                      err, err_len);
    int rc;
    if (!st) return -1;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        const char *why = (const char *)sqlite3_column_text(st, 7);
        *out = report_grow(*out, *n, sizeof **out);
        struct answer *a = &(*out)[(*n)++];
        *a = (struct answer){.ns = report_column(st, 0),
                             .device = report_column(st, 1),
                             .total = report_column(st, 2),
                             .free = report_column(st, 3),
                             .reserved = report_column(st, 4),
                             .used = report_column(st, 5),
                             .has_pool = sqlite3_column_int64(st, 6)};
        snprintf(a->why, sizeof a->why, "%s", why ? why : "");
    }
    return report_rows_end(r, st, rc, err, err_len);
}

/* ---- what was live then ---- */

struct holding {
    int64_t plain, ordered, arrays, managed; /* bytes, by alloc.memory */
    struct memory_rounding rounding;         /* of plain and arrays */
};

/* A call that had begun may not have given memory back yet: its allocation counts. */
#define LIVE_THEN                                                                     \
    " a.alloc_ns <= ?1 AND (a.free_ns IS NULL OR a.free_ns > ?1) AND (?2 IS NULL OR " \
    "a.device IS NULL OR a.device = ?2) "

static sqlite3_stmt *prepare_then(struct report *r, const struct answer *a, const char *sql, char *err,
                                  size_t err_len) {
    sqlite3_stmt *st = report_prepare(r, sql, err, err_len);
    if (!st) return NULL;
    sqlite3_bind_int64(st, 1, a->ns);
    if (is_known(a->device)) sqlite3_bind_int64(st, 2, a->device);
    return st;
}

static int load_holding(struct report *r, const struct answer *a, struct holding *h, char *err, size_t err_len) {
    sqlite3_stmt *st = prepare_then(r, a,
                                    "SELECT a.memory, a.bytes FROM alloc a WHERE a.memory IN ('device', 'async', "
                                    "'array', 'managed') AND" LIVE_THEN,
                                    err, err_len);
    int rc;
    memset(h, 0, sizeof *h);
    if (!st) return -1;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        const char *memory = (const char *)sqlite3_column_text(st, 0);
        int64_t bytes = sqlite3_column_int64(st, 1);
        int ordered = !strcmp(memory, "async"), managed = !strcmp(memory, "managed");
        *(ordered ? &h->ordered : managed ? &h->managed : !strcmp(memory, "array") ? &h->arrays : &h->plain) += bytes;
        if (!ordered && !managed) memory_rounding_add(&h->rounding, bytes);
    }
    return report_rows_end(r, st, rc, err, err_len);
}

static int64_t ours(const struct holding *h) {
    return h->plain + h->ordered + h->arrays;
}

static int load_classes(struct report *r, const struct answer *a, struct memory_reconciliation *m, char *err,
                        size_t err_len) {
    sqlite3_stmt *st = prepare_then(
        r, a,
        "SELECT c.class, sum(c.bytes) FROM alloc a JOIN alloc_class c ON c.alloc = a.id WHERE a.memory IN ('device', "
        "'async', 'array') AND (c.from_ns IS NULL OR c.from_ns <= ?1) AND (c.until_ns IS NULL OR c.until_ns > ?1) "
        "AND" LIVE_THEN "GROUP BY c.class",
        err, err_len);
    int64_t classed = 0;
    int rc;
    if (!st) return -1;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        m->classes[report_class_of((const char *)sqlite3_column_text(st, 0))] += sqlite3_column_int64(st, 1);
        classed += sqlite3_column_int64(st, 1);
    }
    m->classes[REPORT_UNKNOWN_CLASS] += m->ours - classed;
    return report_rows_end(r, st, rc, err, err_len);
}

/* ---- the books ---- */

/* What pools hold beyond their allocations. A pool that was not asked says nothing: 0 where there is no stream-ordered
 * memory, else not known. */
static int64_t slack_of(const struct answer *a, const struct holding *h) {
    if (is_known(a->reserved)) return a->reserved - (is_known(a->used) ? a->used : h->ordered);
    return a->has_pool || h->ordered ? REPORT_UNKNOWN : 0;
}

static int context_of(struct report *r, const struct answer *first, int64_t *out, char *err, size_t err_len) {
    struct holding h;
    *out = REPORT_UNKNOWN;
    if (!first || !is_known(first->total) || !is_known(first->free)) return 0;
    if (load_holding(r, first, &h, err, err_len)) return -1;
    int64_t slack = slack_of(first, &h), rounding = memory_rounding_bytes(&h.rounding);
    int64_t rest = first->total - first->free - ours(&h) - (is_known(slack) ? slack : 0);
    if (!is_known(slack) || rest < 0) return 0; /* released meanwhile, or a pool that nobody asked: nothing to trust */
    *out = rest > rounding ? rest - rounding : 0;
    return 0;
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static void balance(struct memory_reconciliation *m, int64_t slack, const struct holding *h) {
    int64_t rest = m->device_used_bytes - m->ours - (is_known(slack) ? slack : 0);
    if (is_known(m->context) && m->context > rest)
        m->context = REPORT_UNKNOWN; /* some of it has gone: not the context's */
    if (is_known(m->context)) rest -= m->context;
    m->rounding = rest > 0 ? least(rest, memory_rounding_bytes(&h->rounding)) : 0;
    m->pool_slack = is_known(slack) ? slack + m->rounding : REPORT_UNKNOWN;
    m->unexplained = is_known(slack) ? rest - m->rounding : rest;
}

/* CUPTI takes memory of the device for its records when the context is made: with the context's, and its size is not to
 * be had. Without CUPTI, and on a virtual GPU, acct has none. */
static int64_t tool_bytes(struct report *r) {
    char *why = store_meta_text(r->db, "cupti");
    int without = why || !r->device_clock || strcmp(r->device_clock, "gpu");
    free(why);
    return without ? 0 : REPORT_UNKNOWN;
}

/* The answer that covers most of the program's memory, after the first one of a device; of several the last. -1: there
 * is none. On several devices by the memory of all: which is fullest then is not what is asked. */
static int64_t choose(const struct memory_sweep *s, const struct answer *a, int64_t n) {
    int64_t most = -1, best = -1;
    for (int64_t i = 0; i < n; i++) {
        if (!strcmp(a[i].why, "first use") || !is_known(a[i].total) || !is_known(a[i].free)) continue;
        int64_t moment = memory_sweep_at(s, a[i].ns), live = moment < 0 ? 0 : s->total[moment];
        if (live < most) continue;
        most = live;
        best = i;
    }
    return best;
}

static const struct answer *first_of(const struct answer *a, int64_t n, int64_t device) {
    for (int64_t i = 0; i < n; i++)
        if (!strcmp(a[i].why, "first use") && (!is_known(device) || a[i].device == device)) return &a[i];
    return NULL;
}

static int fill(struct report *r, const struct answer *a, const struct answer *first, struct memory_reconciliation *m,
                char *err, size_t err_len) {
    struct holding h;
    if (load_holding(r, a, &h, err, err_len)) return -1;
    m->known = 1;
    snprintf(m->when, sizeof m->when, "%s", a->why);
    m->ns = a->ns;
    m->device = a->device;
    m->device_total_bytes = a->total;
    m->device_used_bytes = a->total - a->free;
    m->ours = ours(&h);
    m->managed_bytes = h.managed;
    m->tool = tool_bytes(r);
    if (load_classes(r, a, m, err, err_len) || context_of(r, first, &m->context, err, err_len)) return -1;
    int64_t slack = slack_of(a, &h);
    if (m->ours + (is_known(slack) ? slack : 0) > m->device_used_bytes) {
        memset(m, 0, sizeof *m);
        snprintf(m->why_not, sizeof m->why_not,
                 "the driver had less in use than the trace has live: memory was released meanwhile, or releases lost");
        return 0;
    }
    balance(m, slack, &h);
    return 0;
}

int memory_reconcile(struct report *r, struct memory_reconciliation *out, char *err, size_t err_len) {
    const struct memory_sweep *s = memory_sweep_of(r, err, err_len);
    struct answer *a = NULL;
    int64_t n = 0, best;
    memset(out, 0, sizeof *out);
    if (!s) return -1;
    if (!memory_has_table(r, "meminfo")) {
        snprintf(out->why_not, sizeof out->why_not, "the trace's writer did not ask the driver");
        return 0;
    }
    int rc = load_answers(r, &a, &n, err, err_len);
    if (!rc && (best = choose(s, a, n)) >= 0)
        rc = fill(r, &a[best], first_of(a, n, a[best].device), out, err, err_len);
    else if (!rc)
        snprintf(out->why_not, sizeof out->why_not,
                 n ? "the driver was asked only when the device was first used, or did not answer later"
                   : "the driver was never asked");
    free(a);
    return rc;
}

/* ---- print ---- */

void memory_print_reconciliation(struct emitter *e, const struct memory_reconciliation *m) {
    if (!m->known) {
        emit_null(e, "reconciliation", NULL);
        return;
    }
    int alone = !is_known(m->context);
    emit_object(e, "reconciliation", "Device memory by the driver's account", LOOK_FIELDS);
    emit_text(e, "when", NULL, m->when);
    emit_text(e, NULL, "asked",
              !strcmp(m->when, "release")      ? "before a release"
              : !strcmp(m->when, "allocation") ? "before an allocation"
                                               : m->when);
    report_print_int(e, "ns", NULL, UNIT_NS, m->ns);
    report_print_int(e, "device", NULL, UNIT_NONE, m->device);
    emit_int(e, "device_total_bytes", "total", UNIT_BYTES, m->device_total_bytes);
    emit_int(e, "device_used_bytes", "used, of which", UNIT_BYTES, m->device_used_bytes);
    emit_int(e, "ours", "  allocations", UNIT_BYTES, m->ours);
    memory_print_classes(e, "by_class", NULL, LOOK_HIDDEN, m->classes);
    report_print_int(e, "pool_slack", is_known(m->pool_slack) ? "  pools, rounding" : NULL, UNIT_BYTES, m->pool_slack);
    emit_int(e, "rounding_estimate", NULL, UNIT_BYTES, m->rounding);
    report_print_int(e, "tool", is_known(m->tool) && m->tool ? "  acct's own" : NULL, UNIT_BYTES, m->tool);
    report_print_int(e, "context",
                     alone               ? NULL
                     : is_known(m->tool) ? "  context, others"
                                         : "  context, CUPTI",
                     UNIT_BYTES, m->context);
    emit_int(e, "unexplained", "  unexplained", UNIT_BYTES, m->unexplained);
    emit_int(e, "managed_bytes", m->managed_bytes ? "managed, apart" : NULL, UNIT_BYTES, m->managed_bytes);
    emit_end(e);
}
