/* Prints findings: the table, a sentence for each, and what cannot be known. */
#include "analyzer/memory_places.h"
#include "analyzer/patterns.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- names ---- */

struct names { /* statements that are prepared once */
    sqlite3_stmt *op, *api;
    struct memory_sites sites;
};

static const char op_query[] =
    "SELECT " REPORT_FUNCTION_NAME ", c.phase FROM op LEFT JOIN op_cost c ON c.op = op.id " REPORT_FUNCTION_JOIN
    " WHERE op.id = ?";
static const char api_query[] = "SELECT name FROM api WHERE id = ?";

static void text_of(sqlite3_stmt *st, int64_t id, char *out, size_t room) {
    *out = 0;
    sqlite3_bind_int64(st, 1, id);
    if (sqlite3_step(st) == SQLITE_ROW && sqlite3_column_text(st, 0))
        snprintf(out, room, "%s", (const char *)sqlite3_column_text(st, 0));
    sqlite3_reset(st);
}

/* `gelu_kernel<float> (forward)` */
static void op_name(struct names *n, int64_t op, char *out, size_t room) {
    char name[80] = "an op";
    sqlite3_bind_int64(n->op, 1, op);
    *out = 0;
    if (sqlite3_step(n->op) == SQLITE_ROW) {
        const char *text = (const char *)sqlite3_column_text(n->op, 0),
                   *phase = (const char *)sqlite3_column_text(n->op, 1);
        if (text) report_short_name(text, name, sizeof name);
        snprintf(out, room, phase ? "%s (%s)" : "%s", name, phase);
    }
    sqlite3_reset(n->op);
}

/* ---- a sentence for a finding ---- */

static void sentence(const struct pattern_finding *f, struct names *n, const struct pattern_options *o, char *out,
                     size_t room) {
    char before[128], after[128], longest[40], way[40];
    op_name(n, f->before_op, before, sizeof before);
    op_name(n, f->after_op, after, sizeof after);
    emit_human(longest, sizeof longest, UNIT_NS, (double)f->longest_ns, 0);
    emit_human(way, sizeof way, UNIT_NS, 2e9 * (double)f->bytes / o->link_bytes_per_s, 0);
    switch (f->kind) {
    case PATTERN_LEAK:
        snprintf(out, room, "last used by %s, %s before the end", before, longest);
        break;
    case PATTERN_UNUSED:
        snprintf(out, room, "no op that was recorded uses it");
        break;
    case PATTERN_REDUNDANT:
        snprintf(out, room, "could have had the memory of allocation %lld, last used by %s", (long long)f->other,
                 before);
        break;
    case PATTERN_EARLY:
        snprintf(out, room, "first used %s after it was allocated, by %s", longest, after);
        break;
    case PATTERN_LATE:
        snprintf(out, room, "released %s after its last use, by %s", longest, before);
        break;
    case PATTERN_IDLE:
        snprintf(out, room, "%lld times; longest: %s from %s to %s; to the host and back takes %s", (long long)f->times,
                 longest, before, after, way);
        break;
    case PATTERN_VACANT:
        snprintf(out, room, "%lld times; longest: %s from %s until %s overwrites it", (long long)f->times, longest,
                 before, after);
        break;
    case PATTERN_DEAD_WRITE:
        snprintf(out, room,
                 f->after_op ? "%lld writes, as by %s, that %s overwrites unread"
                             : "%lld writes, as by %s, released unread",
                 (long long)f->times, before, after);
        break;
    case PATTERNS:
        break;
    }
    size_t used = strlen(out);
    if (f->unsure) snprintf(out + used, room - used, "; perhaps: an op in between may use it unseen");
}

/* ---- the document ---- */

static void op_or_null(struct emitter *e, const char *key, int64_t op) {
    if (op)
        emit_int(e, key, NULL, UNIT_NONE, op);
    else
        emit_null(e, key, NULL);
}

/* Bytes * ns, for people in B * s to GiB * s. */
static void emit_waste(struct emitter *e, __int128 byte_ns) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB"};
    char text[40];
    double byte_s = (double)byte_ns / 1e9;
    int u = 0;
    emit_int(e, "waste_byte_ns", NULL, UNIT_NONE, byte_ns);
    for (; u < 3 && byte_s >= 999.5; u++) byte_s /= 1024;
    if (u)
        snprintf(text, sizeof text, "%.*f %s s", byte_s < 9.995 ? 2 : byte_s < 99.95 ? 1 : 0, byte_s, units[u]);
    else
        snprintf(text, sizeof text, "%.3g B s", byte_s);
    emit_text(e, NULL, "waste", text);
}

static void print_finding(struct emitter *e, const struct patterns *p, const struct pattern_finding *f, struct names *n,
                          const struct pattern_options *o) {
    char text[640], name[256], site[MEMORY_SITE_ROOM];
    int counts = f->kind == PATTERN_IDLE || f->kind == PATTERN_VACANT || f->kind == PATTERN_DEAD_WRITE;
    emit_object(e, "", NULL, LOOK_FIELDS);
    emit_text(e, "pattern", "pattern", pattern_name(f->kind));
    emit_int(e, "objects", "objects", UNIT_NONE, f->objects);
    emit_int(e, "bytes", "bytes each", UNIT_BYTES, f->bytes);
    emit_text(e, "class", "class", f->class_name);
    emit_waste(e, f->byte_ns);
    emit_real(e, "share", "share", UNIT_SHARE,
              p->allocated_byte_ns ? (double)f->byte_ns / (double)p->allocated_byte_ns : NAN);
    op_or_null(e, "times", counts ? f->times : 0);
    text_of(n->api, f->api, name, sizeof name);
    emit_text(e, "allocated_by", NULL, *name ? name : NULL);
    emit_text(e, "site", NULL, memory_site(&n->sites, f->alloc, name, site) ? site : NULL);
    emit_int(e, "alloc", "allocation", UNIT_NONE, f->alloc);
    emit_int(e, "offset", NULL, UNIT_BYTES, f->offset);
    emit_int(e, "longest_ns", NULL, UNIT_NS, f->longest_ns);
    op_or_null(e, "before_op", f->before_op);
    op_or_null(e, "after_op", f->after_op);
    op_or_null(e, "other_alloc", f->other);
    emit_bool(e, "sure", NULL, !f->unsure);
    sentence(f, n, o, text, sizeof text);
    emit_text(e, "detail", "detail", text);
    emit_end(e);
}

static void print_unknowns(struct emitter *e, const struct patterns *p) {
    char text[320];
    emit_object(e, "known", NULL, LOOK_HIDDEN);
    emit_text(e, "times", NULL, p->device_times ? "device" : "host");
    emit_int(e, "accesses", NULL, UNIT_NONE, p->accesses);
    emit_int(e, "unknown_direction", NULL, UNIT_NONE, p->unknown_direction);
    emit_int(e, "unknown_extent", NULL, UNIT_NONE, p->unknown_extent);
    emit_int(e, "unseen_ops", NULL, UNIT_NONE, p->unseen_ops);
    emit_int(e, "allocated_byte_ns", NULL, UNIT_NONE, p->allocated_byte_ns);
    emit_end(e);
    emit_list(e, "limits", "What these figures rest on", LOOK_LINES);
    snprintf(text, sizeof text, "Times of use are %s. Patterns overlap: their wastes do not add up.",
             p->device_times ? "the device's" : "the host's, around the calls");
    emit_text(e, "", "", text);
    snprintf(
        text, sizeof text,
        "Of %lld accesses, %lld have an unknown direction (taken for a use of the content) and %lld an unknown extent "
        "(taken to reach to the end of the allocation).",
        (long long)p->accesses, (long long)p->unknown_direction, (long long)p->unknown_extent);
    emit_text(e, "", "", text);
    if (p->unseen_ops) {
        snprintf(text, sizeof text,
                 "%lld ops may use memory unseen (pointers that lie in memory, kernels without PTX): findings across "
                 "one say "
                 "\"perhaps\".",
                 (long long)p->unseen_ops);
        emit_text(e, "", "", text);
    }
    emit_text(e, "", "",
              "Whether each byte that an op reaches is used (overallocation, uneven access) cannot be known without "
              "instrumenting every access.");
    emit_end(e);
}

static void print_findings(struct emitter *e, const struct patterns *p, struct names *n,
                           const struct pattern_options *o, enum pattern_kind kind, int64_t limit) {
    static const char *const columns[] = {"pattern", "objects", "bytes each", "class",
                                          "waste",   "share",   "allocation", "detail"};
    int64_t shown = 0, matching = 0;
    char label[160];
    for (int64_t i = 0; i < p->findings; i++) matching += kind == PATTERNS || p->finding[i].kind == kind;
    snprintf(label, sizeof label, "Memory held to no use%s%s (bytes x time; share of all that was allocated)",
             kind == PATTERNS ? "" : ": ", kind == PATTERNS ? "" : pattern_name(kind));
    emit_list(e, "patterns", label, LOOK_TABLE);
    emit_columns(e, 8, columns);
    for (int64_t i = 0; i < p->findings && (!limit || shown < limit); i++) {
        if (kind != PATTERNS && p->finding[i].kind != kind) continue;
        print_finding(e, p, &p->finding[i], n, o);
        shown++;
    }
    emit_end(e);
    emit_int(e, "patterns_found", NULL, UNIT_NONE, matching);
}

int patterns_print(struct emitter *e, struct report *r, const struct patterns *p, const struct pattern_options *o,
                   enum pattern_kind kind, int64_t limit, char *err, size_t err_len) {
    struct names n = {0};
    int rc = -1;
    if ((n.op = report_prepare(r, op_query, err, err_len)) && (n.api = report_prepare(r, api_query, err, err_len)) &&
        !memory_sites_open(r, &n.sites, err, err_len)) {
        print_findings(e, p, &n, o, kind, limit);
        print_unknowns(e, p);
        rc = 0;
    }
    sqlite3_finalize(n.op);
    sqlite3_finalize(n.api);
    memory_sites_close(&n.sites);
    return rc;
}
