/* Reads a trace into objects: when each range of device memory was first and last used, the gaps between its uses, and
 * what was written to it in vain. One pass over the ops in the order of their issue. */
#include "analyzer/memory_places.h"
#include "analyzer/patterns.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_PENDING = 64, MOST_PIECES = 1024 };

/* ---- objects ---- */

static const char object_query[] =
    "SELECT a.id, coalesce(c.offset, 0), coalesce(c.bytes, a.bytes), a.bytes, a.alloc_ns, a.free_ns,"
    " coalesce(c.class, 'unknown'), op.api, a.address"
    " FROM alloc a LEFT JOIN alloc_class c ON c.alloc = a.id JOIN op ON op.id = a.id"
    " WHERE a.memory IN ('device', 'async', 'managed') AND coalesce(c.class, '') <> 'workspace'" /* used unseen */
    " ORDER BY a.id, 2, c.from_ns";

static void object_of(struct pattern_object *o, sqlite3_stmt *st, int64_t end_ns) {
    *o = (struct pattern_object){.alloc = sqlite3_column_int64(st, 0),
                                 .offset = sqlite3_column_int64(st, 1),
                                 .bytes = sqlite3_column_int64(st, 2),
                                 .born_ns = sqlite3_column_int64(st, 4),
                                 .gone_ns = report_column(st, 5),
                                 .api = sqlite3_column_int64(st, 7)};
    o->whole = o->bytes == sqlite3_column_int64(st, 3);
    o->released = o->gone_ns != REPORT_UNKNOWN;
    if (!o->released || o->gone_ns > end_ns) o->gone_ns = end_ns;
    if (o->gone_ns < o->born_ns) o->gone_ns = o->born_ns;
    snprintf(o->class_name, sizeof o->class_name, "%s", (const char *)sqlite3_column_text(st, 6));
}

/* An allocation in very many pieces is one object: what goes over all of it would cost each piece. */
static void join_pieces(struct pattern_objects *s, int64_t first) {
    if (s->objects - first <= MOST_PIECES) return;
    struct pattern_object *o = &s->object[first];
    const struct pattern_object *last = &s->object[s->objects - 1];
    o->bytes = last->offset + last->bytes;
    o->whole = 1;
    snprintf(o->class_name, sizeof o->class_name, "several");
    s->objects = first + 1;
}

static int load_objects(struct report *r, struct pattern_objects *s, char *err, size_t err_len) {
    sqlite3_stmt *st = report_prepare(r, object_query, err, err_len);
    int64_t first = 0;
    int rc;
    if (!st) return -1;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        struct pattern_object *last = s->objects ? &s->object[s->objects - 1] : NULL;
        int64_t alloc = sqlite3_column_int64(st, 0), offset = sqlite3_column_int64(st, 1);
        if (last && last->alloc == alloc && offset < last->offset + last->bytes) { /* the same range, later */
            const char *cls = (const char *)sqlite3_column_text(st, 6);
            if (strcmp(last->class_name, cls)) snprintf(last->class_name, sizeof last->class_name, "several");
            continue;
        }
        if (last && last->alloc != alloc) {
            join_pieces(s, first);
            first = s->objects;
        }
        s->object = report_grow(s->object, s->objects, sizeof *s->object);
        object_of(&s->object[s->objects++], st, s->end_ns);
    }
    join_pieces(s, first);
    return report_rows_end(r, st, rc, err, err_len);
}

static int load_stacks(struct report *r, struct pattern_objects *s, char *err, size_t err_len) {
    int64_t i = 0;
    int rc;
    sqlite3_stmt *st;
    if (!memory_has_table(r, "op_stack")) return 0; /* a trace of an older acct */
    st = report_prepare(r, "SELECT op, stack FROM op_stack WHERE op IN (SELECT id FROM alloc) ORDER BY op", err,
                        err_len);
    if (!st) return -1;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        int64_t alloc = sqlite3_column_int64(st, 0);
        while (i < s->objects && s->object[i].alloc < alloc) i++;
        for (; i < s->objects && s->object[i].alloc == alloc; i++) s->object[i].stack = sqlite3_column_int64(st, 1);
    }
    return report_rows_end(r, st, rc, err, err_len);
}

/* First object of an allocation that ends behind `offset`; s->objects where there is none. */
static int64_t object_at(const struct pattern_objects *s, int64_t alloc, int64_t offset) {
    int64_t lo = 0, hi = s->objects;
    while (lo < hi) {
        int64_t mid = lo + (hi - lo) / 2;
        const struct pattern_object *o = &s->object[mid];
        if (o->alloc < alloc || (o->alloc == alloc && o->offset + o->bytes <= offset))
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* ---- ops ---- */

struct touch { /* what one op does in one object; offsets in the allocation */
    int64_t op, alloc, start_ns, end_ns, lo, hi;
    int reads, writes;
    int fills; /* writes each byte of lo…hi */
};

struct pass {
    struct pattern_objects *s;
    const struct pattern_options *o;
    int64_t unseen_ns;   /* of the last op that may read anything */
    struct touch *touch; /* of the op that is being read */
    int64_t touches, written;
};

static void note_unseen(struct pass *w, int64_t ns) {
    struct pattern_objects *s = w->s;
    if (s->unseen_n && s->unseen[s->unseen_n - 1] >= ns) return;
    s->unseen = report_grow(s->unseen, s->unseen_n, sizeof *s->unseen);
    s->unseen[s->unseen_n++] = ns;
    w->unseen_ns = ns;
}

int64_t pattern_first_from(const int64_t *number, int64_t n, int64_t least) {
    int64_t lo = 0, hi = n;
    while (lo < hi) {
        int64_t mid = lo + (hi - lo) / 2;
        if (number[mid] < least)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

int pattern_unseen_between(const struct pattern_objects *s, int64_t from_ns, int64_t to_ns) {
    int64_t i = pattern_first_from(s->unseen, s->unseen_n, from_ns);
    return i < s->unseen_n && s->unseen[i] < to_ns;
}

static void dead_write(struct pattern_object *o, const struct pattern_pending *p, int64_t ns, int64_t op) {
    int64_t span = ns > p->ns ? ns - p->ns : 0;
    o->dead_writes++;
    o->dead_bytes += p->hi - p->lo;
    o->dead_byte_ns += (__int128)(p->hi - p->lo) * span;
    if (span < o->dead_longest_ns && o->dead_before) return;
    o->dead_longest_ns = span;
    o->dead_before = p->op;
    o->dead_after = op;
}

/* What was pending where the op reads is no longer in vain; what it fills without reading, was. */
static void settle_pending(struct pass *w, struct pattern_object *o, const struct touch *t) {
    int32_t kept = 0;
    for (int32_t i = 0; i < o->pendings; i++) {
        struct pattern_pending p = o->pending[i];
        if (p.hi <= t->lo || p.lo >= t->hi) {
            o->pending[kept++] = p;
            continue;
        }
        if (t->reads || p.ns <= w->unseen_ns) continue;
        if (t->fills && p.lo >= t->lo && p.hi <= t->hi) dead_write(o, &p, t->start_ns, t->op);
    }
    o->pendings = kept;
}

static void add_pending(struct pattern_object *o, const struct touch *t) {
    if (!t->fills || o->pendings == MOST_PENDING) return;
    o->pending = report_grow(o->pending, o->pendings, sizeof *o->pending);
    o->pending[o->pendings++] = (struct pattern_pending){t->lo, t->hi, t->end_ns, t->op};
}

static void note_gap(struct pass *w, struct pattern_object *o, const struct touch *t) {
    int64_t ns = t->start_ns - o->last_ns;
    int vacant = !t->reads && t->fills && t->lo <= o->offset && t->hi >= o->offset + o->bytes;
    struct pattern_gaps *g = vacant ? &o->vacant : &o->idle;
    if (ns < w->o->min_gap_ns) return;
    if (!vacant && (double)ns < 2e9 * (double)o->bytes / w->o->link_bytes_per_s) return;
    g->n++;
    g->total_ns += ns;
    g->sure |= !pattern_unseen_between(w->s, o->last_ns, t->start_ns);
    if (ns <= g->longest_ns) return;
    g->longest_ns = ns;
    g->before_op = o->last_op;
    g->after_op = t->op;
}

static void touch_object(struct pass *w, struct pattern_object *o, const struct touch *t) {
    if (!o->accesses++) {
        o->first_ns = t->start_ns;
        o->first_op = t->op;
        o->last_ns = t->start_ns;
    } else if (o->last_op != t->op) {
        note_gap(w, o, t);
    }
    settle_pending(w, o, t);
    if (t->writes) add_pending(o, t);
    if (t->end_ns > o->last_ns) o->last_ns = t->end_ns;
    o->last_op = t->op;
}

/* ---- the pass ---- */

/* One row an access, and one with NULLs for an op that has none. An op writes each byte of what it writes if it writes
 * as many bytes as there are. */
static const char access_query[] =
    "SELECT op.id, iif(?1, coalesce(t.start_ns, op.start_ns), op.start_ns),"
    " iif(?1, coalesce(t.end_ns, op.end_ns), op.end_ns), b.alloc, b.address - a.address, b.bytes, b.mode, b.slot,"
    " iif(op.kind IN ('copy', 'memset'), op.bytes, c.bytes_written), c.grade = 'uncounted' AND op.kind = 'launch',"
    " a.bytes"
    " FROM op LEFT JOIN op_buffer b ON b.op = op.id LEFT JOIN alloc a ON a.id = b.alloc"
    " LEFT JOIN op_cost c ON c.op = op.id LEFT JOIN op_time t ON t.op = op.id"
    " WHERE op.status = 0 AND op.kind IN ('launch', 'gemm', 'blas', 'copy', 'memset', 'collective')"
    " ORDER BY op.start_ns, op.id";

enum {
    COL_OP,
    COL_START,
    COL_END,
    COL_ALLOC,
    COL_OFFSET,
    COL_BYTES,
    COL_MODE,
    COL_SLOT,
    COL_WRITTEN,
    COL_OPAQUE,
    COL_ROOM
};

static void touch_range(struct pass *w, struct touch t) {
    for (int64_t i = object_at(w->s, t.alloc, t.lo); i < w->s->objects; i++) {
        struct pattern_object *o = &w->s->object[i];
        if (o->alloc != t.alloc || o->offset >= t.hi) return;
        touch_object(w, o, &t);
    }
}

static void access_row(struct pass *w, struct patterns *p, sqlite3_stmt *st) {
    struct touch t = {.op = sqlite3_column_int64(st, COL_OP),
                      .start_ns = sqlite3_column_int64(st, COL_START),
                      .end_ns = sqlite3_column_int64(st, COL_END),
                      .alloc = sqlite3_column_int64(st, COL_ALLOC)};
    const char *mode = (const char *)sqlite3_column_text(st, COL_MODE);
    const char *slot = (const char *)sqlite3_column_text(st, COL_SLOT);
    int64_t bytes = report_column(st, COL_BYTES);
    if (!mode || (slot && *slot == '*')) { /* nothing is known of it, or not where */
        if (mode || sqlite3_column_int(st, COL_OPAQUE)) note_unseen(w, t.start_ns), p->unseen_ops++;
        return;
    }
    if (sqlite3_column_type(st, COL_ALLOC) == SQLITE_NULL) return;
    p->accesses++;
    p->unknown_direction += *mode == '?';
    p->unknown_extent += bytes == REPORT_UNKNOWN;
    t.reads = *mode != 'w';
    t.writes = *mode != 'r';
    t.lo = sqlite3_column_int64(st, COL_OFFSET);
    t.hi = bytes == REPORT_UNKNOWN ? sqlite3_column_int64(st, COL_ROOM) : t.lo + bytes;
    t.fills = t.writes && *mode != '?' && bytes != REPORT_UNKNOWN;
    w->written = report_column(st, COL_WRITTEN);
    w->touch = report_grow(w->touch, w->touches, sizeof *w->touch);
    w->touch[w->touches++] = t;
}

/* All that one op does: what it reads first. It writes each byte of its extents if it writes as many bytes as they
 * have. */
static void end_op(struct pass *w) {
    int64_t extents = 0;
    for (int64_t i = 0; i < w->touches; i++)
        if (w->touch[i].writes) extents += w->touch[i].hi - w->touch[i].lo;
    for (int reads = 1; reads >= 0; reads--)
        for (int64_t i = 0; i < w->touches; i++) {
            struct touch t = w->touch[i];
            t.fills &= w->written != REPORT_UNKNOWN && w->written >= extents;
            if (t.reads == reads) touch_range(w, t);
        }
    w->touches = 0;
}

/* Content that nobody has read when its memory goes. */
static void settle_ends(struct pass *w) {
    for (int64_t i = 0; i < w->s->objects; i++) {
        struct pattern_object *o = &w->s->object[i];
        for (int32_t k = 0; k < o->pendings && o->released; k++)
            if (o->pending[k].ns > w->unseen_ns) dead_write(o, &o->pending[k], o->gone_ns, 0);
    }
}

static int run_end(struct report *r, int64_t *out, char *err, size_t err_len) {
    sqlite3_stmt *st = report_prepare(
        r, "SELECT max(coalesce((SELECT max(end_ns) FROM op), 0), coalesce((SELECT max(end_ns) FROM process), 0))", err,
        err_len);
    int rc;
    if (!st) return -1;
    rc = sqlite3_step(st);
    if (rc == SQLITE_ROW) {
        *out = sqlite3_column_int64(st, 0);
        rc = sqlite3_step(st);
    }
    return report_rows_end(r, st, rc, err, err_len);
}

/* Of all allocations, those that no pattern is looked for in, too. */
static int sum_allocated(struct report *r, int64_t end_ns, __int128 *out, char *err, size_t err_len) {
    sqlite3_stmt *st = report_prepare(
        r, "SELECT bytes, alloc_ns, free_ns FROM alloc WHERE memory IN ('device', 'async', 'managed')", err, err_len);
    int rc;
    if (!st) return -1;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        int64_t born = sqlite3_column_int64(st, 1), gone = report_column(st, 2);
        if (gone == REPORT_UNKNOWN || gone > end_ns) gone = end_ns;
        if (gone > born) *out += (__int128)sqlite3_column_int64(st, 0) * (gone - born);
    }
    return report_rows_end(r, st, rc, err, err_len);
}

int pattern_objects_load(struct report *r, const struct pattern_options *o, struct patterns *p,
                         struct pattern_objects *out, char *err, size_t err_len) {
    struct pass w = {.s = out, .o = o, .unseen_ns = INT64_MIN};
    sqlite3_stmt *st;
    int rc;
    *out = (struct pattern_objects){0};
    p->device_times = r->on_device && !r->modelled;
    if (run_end(r, &out->end_ns, err, err_len) || load_objects(r, out, err, err_len) ||
        sum_allocated(r, out->end_ns, &p->allocated_byte_ns, err, err_len) || load_stacks(r, out, err, err_len) ||
        !(st = report_prepare(r, access_query, err, err_len)))
        return -1;
    sqlite3_bind_int(st, 1, p->device_times);
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        if (w.touches && w.touch[0].op != sqlite3_column_int64(st, COL_OP)) end_op(&w);
        access_row(&w, p, st);
    }
    end_op(&w);
    settle_ends(&w);
    free(w.touch);
    return report_rows_end(r, st, rc, err, err_len);
}

void pattern_objects_free(struct pattern_objects *s) {
    for (int64_t i = 0; i < s->objects; i++) free(s->object[i].pending);
    free(s->object);
    free(s->unseen);
    *s = (struct pattern_objects){0};
}
