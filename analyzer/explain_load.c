/* Reads what explains an allocation: its row, its classes, and every op that touches it. */
#include "analyzer/explain.h"

#include "analyzer/attr_sql.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const explain_act_names[EXPLAIN_ACTS] = {
    "factor",    "result",  "add_result",  "read",      "write", "modify",  "maybe_write", "clear",
    "from_host", "to_host", "from_device", "to_device", "send",  "receive", "exchange",    "workspace"};

const char *explain_phase_name(int phase) {
    return phase == EXPLAIN_OUTSIDE ? "outside" : report_phase_names[phase];
}

static int phase_of(const char *name, int in_step) {
    enum report_phase p = report_phase_of(name);
    return p != PHASE_NONE || in_step ? (int)p : EXPLAIN_OUTSIDE;
}

static int is(const char *text, const char *word) {
    return text && !strcmp(text, word);
}

/* ---- the allocation ---- */

static int read_alloc(struct explained *x, char *err, size_t err_len) {
    struct report *r = x->r;
    sqlite3_stmt *st = report_prepare(
        r,
        "SELECT a.bytes, a.address, a.device, a.alloc_ns, a.free_ns, op.thread, a.memory, api.name, api.library,"
        " (SELECT count(*) FROM alloc b WHERE b.alloc_ns < a.alloc_ns OR (b.alloc_ns = a.alloc_ns AND b.id <= a.id)),"
        " (SELECT max(id) FROM step s WHERE s.start_ns <= a.alloc_ns AND a.alloc_ns < s.end_ns)"
        " FROM alloc a LEFT JOIN op ON op.id = a.id LEFT JOIN api ON api.id = op.api WHERE a.id = ?",
        err, err_len);
    if (!st) return -1;
    sqlite3_bind_int64(st, 1, x->id);
    int rc = sqlite3_step(st), found = rc == SQLITE_ROW;
    if (found) {
        x->bytes = report_column(st, 0), x->address = report_column(st, 1), x->device = report_column(st, 2);
        x->alloc_ns = report_column(st, 3), x->free_ns = report_column(st, 4), x->thread = report_column(st, 5);
        x->memory = report_column_text(st, 6), x->api = report_column_text(st, 7);
        x->library = report_column_text(st, 8);
        x->order = report_column(st, 9), x->step = report_column(st, 10);
        rc = sqlite3_step(st);
    }
    if (report_rows_end(r, st, rc, err, err_len)) return -1;
    if (!found)
        snprintf(err, err_len, "%s: no allocation has the id %lld; acct memory --blocks %s lists them", r->path,
                 (long long)x->id, r->path);
    return found ? 0 : -1;
}

static int read_classes(struct explained *x, char *err, size_t err_len) {
    sqlite3_stmt *st =
        report_prepare(x->r,
                       "SELECT offset, bytes, from_ns, until_ns, confidence, class, rule FROM alloc_class "
                       "WHERE alloc = ? ORDER BY offset, coalesce(from_ns, 0)",
                       err, err_len);
    int rc;
    if (!st) return -1;
    sqlite3_bind_int64(st, 1, x->id);
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        if (x->all_ranges++ >= EXPLAIN_RANGES) continue;
        x->range = report_grow(x->range, x->ranges, sizeof *x->range);
        struct explain_range *g = &x->range[x->ranges++];
        memset(g, 0, sizeof *g);
        g->offset = report_column(st, 0), g->bytes = report_column(st, 1);
        g->from_ns = report_column(st, 2), g->until_ns = report_column(st, 3);
        g->confidence = sqlite3_column_double(st, 4);
        g->class = report_column_text(st, 5), g->rule = report_column_text(st, 6);
    }
    return report_rows_end(x->r, st, rc, err, err_len);
}

/* One text a row, into an array. A table that an older trace lacks has none. */
static int read_texts(struct explained *x, const char *table, const char *sql, int64_t key, char ***out, int64_t *n,
                      char *err, size_t err_len) {
    if (!sql_has_table(x->r->db, table)) return 0;
    sqlite3_stmt *st = report_prepare(x->r, sql, err, err_len);
    int rc;
    if (!st) return -1;
    sqlite3_bind_int64(st, 1, key);
    while ((rc = sqlite3_step(st)) == SQLITE_ROW && *n < 256) {
        *out = report_grow(*out, *n, sizeof **out);
        (*out)[*n] = report_column_text(st, 0);
        *n += (*out)[*n] != NULL;
    }
    return report_rows_end(x->r, st, rc == SQLITE_ROW ? SQLITE_DONE : rc, err, err_len);
}

static int read_places(struct explained *x, char *err, size_t err_len) {
    static const char frames[] =
        "SELECT coalesce(f.symbol, printf('0x%x', f.address)) || coalesce(' at ' || f.file || coalesce(':' || f.line, "
        "''), ' in ' || f.path, '') FROM op_stack s JOIN frame f ON f.stack = s.stack WHERE s.op = ? ORDER BY f.depth";
    static const char inside[] =
        "SELECT g.name FROM alloc a JOIN op ON op.id = a.id JOIN range g ON g.start_ns <= a.alloc_ns AND (g.end_ns IS "
        "NULL "
        "OR g.end_ns > a.alloc_ns) AND g.kind <> 'mark' AND (g.thread IS op.thread OR g.kind = 'start') WHERE a.id = ? "
        "AND g.name IS NOT NULL ORDER BY g.start_ns, g.id";
    static const char tags[] =
        "SELECT printf('''%s'' on bytes %lld to %lld', t.text, max(t.address - a.address, 0), min(t.address + t.bytes "
        "- "
        "a.address, a.bytes) - 1) FROM alloc a JOIN tag t ON t.address < a.address + a.bytes AND t.address + t.bytes > "
        "a.address AND t.ns >= a.alloc_ns AND (a.free_ns IS NULL OR t.ns < a.free_ns) WHERE a.id = ? ORDER BY t.ns, "
        "t.id";
    if (read_texts(x, "frame", frames, x->id, &x->frame, &x->frames, err, err_len)) return -1;
    if (read_texts(x, "range", inside, x->id, &x->inside, &x->insides, err, err_len)) return -1;
    return read_texts(x, "tag", tags, x->id, &x->tag, &x->tags, err, err_len);
}

/* ---- who touches it ---- */

/* direction: as the call states it; `far`: a copy whose direction the driver finds, between two places on the device.
 */
static int act_of(const char *kind, const char *slot, const char *mode, const char *direction, int far) {
    int reads = !is(mode, "w"), writes = !is(mode, "r");
    if (is(kind, "workspace") || is(slot, "workspace")) return ACT_WORKSPACE;
    if (is(kind, "memset")) return ACT_CLEAR;
    if (is(kind, "copy")) {
        if (is(direction, "d2d") || (is(direction, "default") && far)) return writes ? ACT_FROM_DEVICE : ACT_TO_DEVICE;
        return writes ? ACT_FROM_HOST : ACT_TO_HOST;
    }
    if (is(kind, "collective")) return reads && writes ? ACT_EXCHANGE : writes ? ACT_RECEIVE : ACT_SEND;
    if (is(mode, "?")) return ACT_MAYBE;
    if (is(kind, "gemm")) {
        if (is(slot, "A") || is(slot, "B")) return ACT_FACTOR;
        if (writes) return reads ? ACT_ADD_RESULT : ACT_RESULT;
    }
    return reads && writes ? ACT_MODIFY : writes ? ACT_WRITE : ACT_READ;
}

static int overwrites(int act) {
    return act == ACT_RESULT || act == ACT_WRITE || act == ACT_CLEAR || act == ACT_FROM_HOST ||
           act == ACT_FROM_DEVICE || act == ACT_RECEIVE;
}

static int act_reads(int act) {
    return act != ACT_WORKSPACE && !overwrites(act);
}

static int act_writes(int act) {
    return overwrites(act) || act == ACT_MODIFY || act == ACT_ADD_RESULT || act == ACT_MAYBE || act == ACT_EXCHANGE;
}

static void book(struct explain_range *g, int act, const struct explain_op *o) {
    struct explain_use *u = &g->use[act][o->phase];
    if (!u->ops++) u->first = *o, u->last_step = REPORT_UNKNOWN;
    if (o->step != REPORT_UNKNOWN && o->step != u->last_step) u->steps++, u->last_step = o->step;
    if (overwrites(act) && g->first_read.op && g->first_read.op != o->op) g->overwritten_after_read++;
    if (act_writes(act) && !g->first_write.op) g->first_write = *o;
    if (act_reads(act) && !g->first_read.op) g->first_read = *o;
    g->last_use = *o;
}

/* Books an access at [from, end) (end < 0: not known) to the ranges that it touches at that time. */
static void touch(struct explained *x, int act, const struct explain_op *o, int64_t from, int64_t end) {
    x->touches++;
    for (int64_t i = 0; i < x->ranges; i++) {
        struct explain_range *g = &x->range[i];
        int64_t to = end < 0 ? from + 1 : end;
        if (to <= g->offset || from >= g->offset + g->bytes) continue;
        if (g->from_ns != REPORT_UNKNOWN && o->start_ns < g->from_ns) continue;
        if (g->until_ns != REPORT_UNKNOWN && o->start_ns >= g->until_ns) continue;
        g->unknown_extent += end < 0;
        book(g, act, o);
    }
}

#define TOUCH_COLUMNS(buffers)                                                                                         \
    "SELECT b.op, b.slot, b.address, b.bytes, b.mode, op.kind, op.act, op.start_ns, c.step, c.phase,"                  \
    " " REPORT_FUNCTION_NAME                                                                                           \
    ", CASE op.act WHEN 'default' THEN EXISTS(SELECT 1 FROM op_buffer o JOIN alloc a ON a.id = "                       \
    "o.alloc WHERE o.op = b.op AND o.slot <> b.slot AND a.memory IN ('device', 'async', 'managed')) END FROM " buffers \
    " b JOIN op ON op.id = b.op LEFT JOIN op_cost c ON c.op = b.op"                                                    \
    " " REPORT_FUNCTION_JOIN " ORDER BY op.start_ns, b.op, b.slot"

/* Operands are kept in sets that ops share: those that name the allocation first, then their ops. Rows that the trace's
 * writer told name no allocation: those that lie in it while it lives. */
#define TOLD_HERE "alloc IS NULL AND address >= ?2 AND address < ?2 + ?3"
#define WHILE_LIVE "JOIN op o ON o.id = op WHERE o.start_ns >= ?4 AND (?5 IS NULL OR o.start_ns < ?5)"
static const char touches_by_sets[] =
    "WITH own AS MATERIALIZED (SELECT * FROM buffer_set WHERE alloc = ?1),"
    " far AS MATERIALIZED (SELECT * FROM buffer_set WHERE alloc IS NULL AND before IS NOT NULL),"
    " told AS MATERIALIZED (SELECT -buffers AS op, slot, address, bytes, mode FROM buffer_set WHERE buffers < 0 AND "
    "before "
    "IS NULL AND " TOLD_HERE "),"
    " touched AS (SELECT s.op AS op, x.slot AS slot, x.address AS address, x.bytes AS bytes, x.mode AS mode"
    " FROM own x JOIN op_set s ON s.buffers = x.buffers UNION ALL SELECT s.op, f.slot, f.address, f.bytes, f.mode FROM "
    "far "
    "f JOIN op_set s ON s.op = ?1 + f.before AND s.buffers = f.buffers UNION ALL SELECT op, slot, address, told.bytes, "
    "mode "
    "FROM told " WHILE_LIVE ") " TOUCH_COLUMNS("touched");
static const char touches_by_rows[] =
    TOUCH_COLUMNS("(SELECT * FROM op_buffer WHERE alloc = ?1 UNION ALL SELECT b.* FROM op_buffer b " WHILE_LIVE
                  " AND " TOLD_HERE ")");

static int read_touches(struct explained *x, char *err, size_t err_len) {
    const char *sql = sql_has_table(x->r->db, "op_set") ? touches_by_sets : touches_by_rows;
    sqlite3_stmt *st = report_prepare(x->r, sql, err, err_len);
    int rc;
    if (!st) return -1;
    const int64_t keys[] = {x->id, x->address, x->bytes, x->alloc_ns, x->free_ns};
    for (int i = 0; i < 5; i++)
        if (keys[i] != REPORT_UNKNOWN) sqlite3_bind_int64(st, i + 1, keys[i]);
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        const char *slot = (const char *)sqlite3_column_text(st, 1), *mode = (const char *)sqlite3_column_text(st, 4);
        const char *kind = (const char *)sqlite3_column_text(st, 5), *act = (const char *)sqlite3_column_text(st, 6);
        const char *name = (const char *)sqlite3_column_text(st, 10);
        int64_t address = report_column(st, 2), bytes = report_column(st, 3);
        struct explain_op o = {
            .op = report_column(st, 0), .start_ns = report_column(st, 7), .step = report_column(st, 8)};
        o.phase = phase_of((const char *)sqlite3_column_text(st, 9), o.step != REPORT_UNKNOWN);
        snprintf(o.slot, sizeof o.slot, "%s", slot ? slot : "");
        report_short_name(name ? name : kind, o.name, sizeof o.name);
        if (address == REPORT_UNKNOWN) continue;
        int64_t from = address - x->address;
        touch(x, act_of(kind, slot, mode, act, sqlite3_column_int(st, 11)), &o, from,
              bytes == REPORT_UNKNOWN ? -1 : from + bytes);
    }
    return report_rows_end(x->r, st, rc, err, err_len);
}

static int read_beyond(struct explained *x, char *err, size_t err_len) {
    sqlite3_stmt *st =
        report_prepare(x->r, "SELECT count(*) FROM op_buffer WHERE slot = '*' AND mode = '?'", err, err_len);
    int rc;
    if (!st) return -1;
    if ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        x->beyond = report_column(st, 0);
        rc = sqlite3_step(st);
    }
    return report_rows_end(x->r, st, rc, err, err_len);
}

int explained_load(struct explained *x, struct report *r, int64_t alloc, char *err, size_t err_len) {
    memset(x, 0, sizeof *x);
    x->r = r;
    x->id = alloc;
    if (read_alloc(x, err, err_len) || read_classes(x, err, err_len) || read_places(x, err, err_len) ||
        read_touches(x, err, err_len) || read_beyond(x, err, err_len))
        return -1;
    return 0;
}

static void free_texts(char **text, int64_t n) {
    for (int64_t i = 0; i < n; i++) free(text[i]);
    free(text);
}

void explained_free(struct explained *x) {
    for (int64_t i = 0; i < x->ranges; i++) free(x->range[i].class), free(x->range[i].rule);
    free(x->range), free(x->memory), free(x->api), free(x->library);
    free_texts(x->frame, x->frames), free_texts(x->inside, x->insides), free_texts(x->tag, x->tags);
}

/* ---- sums ---- */

int64_t explain_count(const struct explain_range *g, int act, struct explain_op *first) {
    int64_t n = 0;
    if (first) first->op = 0;
    for (int p = 0; p < EXPLAIN_PHASES; p++) {
        const struct explain_use *u = &g->use[act][p];
        n += u->ops;
        if (first && u->ops && (!first->op || u->first.start_ns < first->start_ns)) *first = u->first;
    }
    return n;
}

int64_t explain_in_phase(const struct explain_range *g, int phase) {
    int64_t n = 0;
    for (int a = 0; a < EXPLAIN_ACTS; a++) n += g->use[a][phase].ops;
    return n;
}

int64_t explain_reads(const struct explain_range *g, int phase) {
    int64_t n = 0;
    for (int a = 0; a < EXPLAIN_ACTS; a++) n += act_reads(a) ? g->use[a][phase].ops : 0;
    return n;
}

int64_t explain_writes(const struct explain_range *g, int phase) {
    int64_t n = 0;
    for (int a = 0; a < EXPLAIN_ACTS; a++) n += act_writes(a) ? g->use[a][phase].ops : 0;
    return n;
}
