#include "analyzer/memory_pools.h"
#include "analyzer/memory_print.h"
#include "analyzer/memory_sweep.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOOKED_AT = 32 }; /* of the driver's answers the last: what was live at each takes a pass over the allocations */

/* ---- stream-ordered pools ---- */

static int load_answers(struct report *r, struct memory_pools *p, char *err, size_t err_len) {
    sqlite3_stmt *st = report_prepare(r,
                                      "SELECT ns, device, pool, why, pool_reserved_bytes, pool_used_bytes FROM meminfo "
                                      "WHERE pool IS NOT NULL ORDER BY ns, id",
                                      err, err_len);
    int rc;
    if (!st) return -1;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        const char *why = (const char *)sqlite3_column_text(st, 3);
        p->answer = report_grow(p->answer, p->n_answers, sizeof *p->answer);
        struct pool_answer *a = &p->answer[p->n_answers++];
        *a = (struct pool_answer){.ns = report_column(st, 0),
                                  .device = report_column(st, 1),
                                  .pool = report_column(st, 2),
                                  .reserved_bytes = report_column(st, 4),
                                  .used_bytes = report_column(st, 5),
                                  .live_bytes = REPORT_UNKNOWN,
                                  .largest_gap_bytes = REPORT_UNKNOWN};
        snprintf(a->why, sizeof a->why, "%s", why ? why : "");
    }
    return report_rows_end(r, st, rc, err, err_len);
}

/* Live ones in the order of their addresses: the gaps between neighbours. */
static int load_live(struct report *r, struct pool_answer *a, char *err, size_t err_len) {
    sqlite3_stmt *st = report_prepare(r,
                                      "SELECT address, bytes FROM alloc WHERE memory = 'async' AND alloc_ns <= ?1 AND "
                                      "(free_ns IS NULL OR free_ns > ?1) AND (?2 IS NULL OR device IS NULL OR device "
                                      "= ?2) ORDER BY address",
                                      err, err_len);
    int64_t end = 0, n = 0;
    int rc;
    if (!st) return -1;
    a->live_bytes = 0;
    sqlite3_bind_int64(st, 1, a->ns);
    if (a->device != REPORT_UNKNOWN) sqlite3_bind_int64(st, 2, a->device);
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        int64_t from = sqlite3_column_int64(st, 0), bytes = sqlite3_column_int64(st, 1);
        if (n++ && (a->largest_gap_bytes == REPORT_UNKNOWN || from - end > a->largest_gap_bytes))
            a->largest_gap_bytes = from > end ? from - end : 0;
        end = from + bytes;
        a->live_bytes += bytes;
    }
    if (a->reserved_bytes != REPORT_UNKNOWN && a->largest_gap_bytes > a->reserved_bytes - a->live_bytes)
        a->largest_gap_bytes = REPORT_UNKNOWN; /* addresses between two chunks of the pool are no memory of it */
    return report_rows_end(r, st, rc, err, err_len);
}

static int load_ordered_peak(struct report *r, struct memory_pools *p, char *err, size_t err_len) {
    struct memory_sweep s;
    int rc = memory_sweep_load_kinds(r, "'async'", &s, err, err_len);
    p->ordered_peak_ns = REPORT_UNKNOWN;
    for (int64_t i = 0; i < s.moments; i++) {
        if (s.total[i] <= p->ordered_peak_bytes) continue;
        p->ordered_peak_bytes = s.total[i];
        p->ordered_peak_ns = s.ns[i];
    }
    memory_sweep_free(&s);
    return rc;
}

/* ---- sub-allocators ---- */

/* Blocks with classes by time are those that rule C0 calls pools. Rows: begin and end of a content. */
static const char contents_sql[] =
    "SELECT c.alloc, a.bytes, max(c.from_ns, a.alloc_ns), CASE WHEN c.until_ns IS NULL THEN a.free_ns WHEN a.free_ns "
    "IS NULL THEN c.until_ns ELSE min(c.until_ns, a.free_ns) END, c.offset, c.bytes FROM alloc_class c JOIN alloc a ON "
    "a.id = c.alloc WHERE a.memory IN (" MEMORY_OF_DEVICE
    ") AND c.class <> 'unknown' AND c.alloc IN (SELECT alloc FROM "
    "alloc_class WHERE from_ns IS NOT NULL) ORDER BY c.alloc, c.offset";

struct content {
    int64_t begin, end; /* ns; end INT64_MAX: to the end */
    int64_t offset, bytes;
};

struct step_of_use {
    int64_t ns, bytes;
};

static int by_ns(const void *a, const void *b) {
    const struct step_of_use *x = a, *y = b;
    if (x->ns != y->ns) return x->ns < y->ns ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes); /* what ends goes before what begins */
}

static void find_peak_use(struct pool_block *b, const struct content *c, int64_t n) {
    struct step_of_use *s = NULL;
    int64_t m = 0, used = 0;
    for (int64_t i = 0; i < n; i++) {
        s = report_grow(s, m, sizeof *s);
        s[m++] = (struct step_of_use){c[i].begin, c[i].bytes};
        s = report_grow(s, m, sizeof *s);
        s[m++] = (struct step_of_use){c[i].end, -c[i].bytes};
    }
    if (m) qsort(s, (size_t)m, sizeof *s, by_ns);
    for (int64_t i = 0; i < m; i++) {
        used += s[i].bytes;
        if (used <= b->peak_used_bytes) continue;
        b->peak_used_bytes = used;
        b->peak_ns = s[i].ns;
    }
    free(s);
}

/* Contents come by their offset: the gaps between those that are there at ns. */
static void find_free(struct pool_block *b, const struct content *c, int64_t n, int64_t ns) {
    int64_t end = 0;
    for (int64_t i = 0; i < n; i++) {
        if (c[i].begin > ns || c[i].end <= ns) continue;
        if (c[i].offset - end > b->largest_free_bytes) b->largest_free_bytes = c[i].offset - end;
        if (c[i].offset + c[i].bytes > end) end = c[i].offset + c[i].bytes;
        b->used_bytes += c[i].bytes;
    }
    if (b->bytes - end > b->largest_free_bytes) b->largest_free_bytes = b->bytes - end;
}

static void end_block(struct report *r, struct memory_pools *p, const struct content *c, int64_t n) {
    if (!p->n_blocks || !n) return;
    struct pool_block *b = &p->block[p->n_blocks - 1];
    find_peak_use(b, c, n);
    find_free(b, c, n, r->memory.peak_ns);
}

static int load_blocks(struct report *r, struct memory_pools *p, char *err, size_t err_len) {
    sqlite3_stmt *st = report_prepare(r, contents_sql, err, err_len);
    struct content *c = NULL;
    int64_t n = 0;
    int rc;
    if (!st) return -1;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        int64_t alloc = sqlite3_column_int64(st, 0), begin = report_column(st, 2), end = report_column(st, 3);
        if (!p->n_blocks || p->block[p->n_blocks - 1].alloc != alloc) {
            end_block(r, p, c, n);
            n = 0;
            p->block = report_grow(p->block, p->n_blocks, sizeof *p->block);
            p->block[p->n_blocks++] =
                (struct pool_block){.alloc = alloc, .bytes = sqlite3_column_int64(st, 1), .peak_ns = REPORT_UNKNOWN};
        }
        if (end != REPORT_UNKNOWN && end <= begin) continue;
        c = report_grow(c, n, sizeof *c);
        c[n++] = (struct content){begin, end == REPORT_UNKNOWN ? INT64_MAX : end, sqlite3_column_int64(st, 4),
                                  sqlite3_column_int64(st, 5)};
    }
    end_block(r, p, c, n);
    free(c);
    return report_rows_end(r, st, rc, err, err_len);
}

int memory_pools_load(struct report *r, struct memory_pools *out, char *err, size_t err_len) {
    memset(out, 0, sizeof *out);
    if (load_ordered_peak(r, out, err, err_len) || load_blocks(r, out, err, err_len)) return -1;
    if (!memory_has_table(r, "meminfo")) return 0;
    if (load_answers(r, out, err, err_len)) return -1;
    for (int64_t i = out->n_answers > LOOKED_AT ? out->n_answers - LOOKED_AT : 0; i < out->n_answers; i++)
        if (load_live(r, &out->answer[i], err, err_len)) return -1;
    return 0;
}

void memory_pools_free(struct memory_pools *p) {
    free(p->answer), free(p->block);
    memset(p, 0, sizeof *p);
}

/* ---- print ---- */

static void print_answer(struct emitter *e, const struct pool_answer *a) {
    int known = a->reserved_bytes != REPORT_UNKNOWN && a->used_bytes != REPORT_UNKNOWN;
    emit_object(e, "", NULL, LOOK_FIELDS);
    emit_text(e, "when", "asked", a->why);
    report_print_int(e, "ns", NULL, UNIT_NS, a->ns);
    report_print_int(e, "device", NULL, UNIT_NONE, a->device);
    report_print_int(e, "pool", NULL, UNIT_NONE, a->pool);
    report_print_int(e, "reserved_bytes", "reserved", UNIT_BYTES, a->reserved_bytes);
    report_print_int(e, "used_bytes", "used", UNIT_BYTES, a->used_bytes);
    report_print_int(e, "unused_bytes", "held unused", UNIT_BYTES,
                     known ? a->reserved_bytes - a->used_bytes : REPORT_UNKNOWN);
    report_print_int(e, "live_bytes", "live by the trace", UNIT_BYTES, a->live_bytes);
    report_print_int(e, "largest_gap_bytes", "largest gap known", UNIT_BYTES, a->largest_gap_bytes);
    emit_end(e);
}

static void print_block(struct emitter *e, const struct pool_block *b) {
    emit_object(e, "", NULL, LOOK_FIELDS);
    emit_int(e, "id", "id", UNIT_NONE, b->alloc);
    emit_int(e, "bytes", "block", UNIT_BYTES, b->bytes);
    emit_int(e, "peak_used_bytes", "used at most", UNIT_BYTES, b->peak_used_bytes);
    report_print_int(e, "peak_ns", NULL, UNIT_NS, b->peak_ns);
    emit_int(e, "used_bytes", "at the run's peak", UNIT_BYTES, b->used_bytes);
    emit_int(e, "largest_free_bytes", "largest free then", UNIT_BYTES, b->largest_free_bytes);
    emit_end(e);
}

void memory_pools_print(struct emitter *e, const struct memory_pools *p) {
    int64_t first = emit_for_people(e) && p->n_answers > 4 ? p->n_answers - 4 : 0;
    emit_object(e, "stream_ordered", p->ordered_peak_bytes ? "Stream-ordered memory" : NULL,
                p->ordered_peak_bytes ? LOOK_FIELDS : LOOK_HIDDEN);
    emit_int(e, "peak_bytes", "allocated at most", UNIT_BYTES, p->ordered_peak_bytes);
    report_print_int(e, "peak_ns", NULL, UNIT_NS, p->ordered_peak_ns);
    if (!p->n_answers) emit_text(e, NULL, "held by its pools", "not known: they were never asked");
    emit_end(e);
    emit_list(e, "pools", p->n_answers ? "Pools, by the driver's answers" : NULL,
              p->n_answers ? LOOK_TABLE : LOOK_HIDDEN);
    for (int64_t i = first; i < p->n_answers; i++) print_answer(e, &p->answer[i]);
    emit_end(e);
    emit_list(e, "sub_allocators",
              p->n_blocks ? "Blocks that the program cuts up (contents as the analysis sees them)" : NULL,
              p->n_blocks ? LOOK_TABLE : LOOK_HIDDEN);
    for (int64_t i = 0; i < p->n_blocks; i++) print_block(e, &p->block[i]);
    emit_end(e);
}
