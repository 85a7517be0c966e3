/* Tags: what the program says of its memory settles its class. Of several on the same bytes each holds from when it was
 * set; the first also for the time before. */
#include "analyzer/attr_marks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/attr_live.h"
#include "analyzer/attr_overrides.h"
#include "analyzer/attr_sql.h"

/* Bytes that earlier tags of the allocation cover, as stretches that do not touch, in order. */
struct covered {
    int64_t (*stretch)[2];
    size_t n, room;
};

struct tag { /* in a block */
    int64_t ns, offset, bytes;
    int32_t block, place;
    const char *class;
};

struct tags {
    struct at_trace *t;
    struct tag *tag;
    int32_t tags, tag_room;
    struct class_override *o;
    size_t n, room;
    struct covered covered;
    struct live live;
    int32_t event; /* up to which blocks are born and dead */
};

static int add(struct tags *x, struct class_override o) {
    if (o.bytes <= 0) return 0;
    if (x->n == x->room) {
        size_t room = x->room ? 2 * x->room : 64;
        void *p = realloc(x->o, room * sizeof *x->o);
        if (!p) return -1;
        x->o = p;
        x->room = room;
    }
    x->o[x->n++] = o;
    return 0;
}

/* First stretch that ends at or after the offset. */
static size_t stretch_from(const struct covered *c, int64_t offset) {
    size_t lo = 0, hi = c->n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (c->stretch[mid][1] < offset)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static int cover(struct covered *c, int64_t from, int64_t to) {
    size_t first = stretch_from(c, from), end = first;
    for (; end < c->n && c->stretch[end][0] <= to; end++) {
        if (c->stretch[end][0] < from) from = c->stretch[end][0];
        if (c->stretch[end][1] > to) to = c->stretch[end][1];
    }
    if (c->n == c->room) {
        size_t room = c->room ? 2 * c->room : 64;
        void *p = realloc(c->stretch, room * sizeof *c->stretch);
        if (!p) return -1;
        c->stretch = p;
        c->room = room;
    }
    memmove(c->stretch + first + 1, c->stretch + end, (c->n - end) * sizeof *c->stretch);
    c->stretch[first][0] = from;
    c->stretch[first][1] = to;
    c->n = c->n - (end - first) + 1;
    return 0;
}

/* The parts of a tag's bytes that nothing was said of before hold from the allocation's beginning. */
static int take(struct tags *x, struct class_override o) {
    int64_t at = o.offset, end = o.offset + o.bytes, ns = o.from_ns;
    for (size_t i = stretch_from(&x->covered, at); at < end; i++) {
        int known = i < x->covered.n && x->covered.stretch[i][0] < end;
        int64_t gap = known ? x->covered.stretch[i][0] : end;
        if (gap > at && (o.offset = at, o.bytes = gap - at, o.from_ns = INT64_MIN, add(x, o))) return -1;
        if (!known) break;
        at = gap > at ? gap : at;
        int64_t to = x->covered.stretch[i][1] < end ? x->covered.stretch[i][1] : end;
        if (to > at && (o.offset = at, o.bytes = to - at, o.from_ns = ns, add(x, o))) return -1;
        if (to > at) at = to;
    }
    return 0;
}

/* The block in which an address lies at a time; times must not go back. */
static int32_t block_then(struct tags *x, uint64_t address, int64_t ns) {
    struct at_trace *t = x->t;
    for (; x->event < t->events && t->event[x->event].key_ns <= ns; x->event++) {
        const struct at_event *e = &t->event[x->event];
        if (e->kind == AT_ALLOC)
            live_born(&x->live, 0, t->block[e->block].address, e->block);
        else if (e->kind == AT_FREE)
            live_dies(&x->live, 0, t->block[e->block].address, e->block);
    }
    int32_t b = live_find(&x->live, 0, (int64_t)address);
    return b >= 0 && address - (uint64_t)t->block[b].address < (uint64_t)t->block[b].bytes ? b : -1;
}

static void open_live(struct tags *x) {
    struct at_trace *t = x->t;
    struct live_place *place = POOL_NEW(t->pool, struct live_place, t->blocks);
    for (int32_t i = 0; i < t->blocks; i++) place[i] = (struct live_place){0, t->block[i].address};
    live_start(&x->live, t->pool, place, t->blocks);
}

/* Tags that name a class, each with the block that it lies in; one that leaves its block is cut at its end. */
static int read_tags(struct tags *x, sqlite3 *db, char *err, size_t err_len) {
    sqlite3_stmt *st;
    int rc;
    if (sql_prepare(db, &st,
                    "SELECT address, bytes, ns, lower(trim(text)) FROM tag WHERE bytes > 0 AND ns IS NOT NULL ORDER BY "
                    "ns, id",
                    err, err_len))
        return -1;
    while ((rc = sql_row(db, st, err, err_len)) > 0) {
        const char *class = override_class((const char *)sqlite3_column_text(st, 3));
        struct tag g = {.bytes = sqlite3_column_int64(st, 1), .ns = sqlite3_column_int64(st, 2), .class = class};
        if (!class) continue;
        uint64_t address = (uint64_t)sqlite3_column_int64(st, 0);
        g.block = block_then(x, address, g.ns);
        if (g.block < 0) continue;
        const struct at_block *b = &x->t->block[g.block];
        g.offset = (int64_t)(address - (uint64_t)b->address);
        if (g.bytes > b->bytes - g.offset) g.bytes = b->bytes - g.offset;
        g.place = x->tags;
        POOL_ROOM(x->t->pool, x->tag, x->tags, x->tag_room);
        x->tag[x->tags++] = g;
    }
    sqlite3_finalize(st);
    return rc;
}

static int by_block(const void *a, const void *b) {
    const struct tag *x = a, *y = b;
    if (x->block != y->block) return x->block < y->block ? -1 : 1;
    return x->place - y->place;
}

static int settle_tags(struct tags *x) {
    if (x->tags) qsort(x->tag, (size_t)x->tags, sizeof *x->tag, by_block);
    for (int32_t i = 0; i < x->tags; i++) {
        const struct tag *g = &x->tag[i];
        if (!i || g[-1].block != g->block) x->covered.n = 0;
        struct class_override o = {.alloc = x->t->block[g->block].alloc,
                                   .offset = g->offset,
                                   .bytes = g->bytes,
                                   .from_ns = g->ns,
                                   .until_ns = INT64_MAX,
                                   .class = g->class,
                                   .rule = "tagged by the program"};
        if (take(x, o) || cover(&x->covered, g->offset, g->offset + g->bytes)) return -1;
    }
    return 0;
}

int at_tags(struct at_trace *t, sqlite3 *db, char *err, size_t err_len) {
    struct tags x = {.t = t};
    if (!sql_has_table(db, "tag")) return 0;
    open_live(&x);
    int rc = read_tags(&x, db, err, err_len);
    if (!rc && settle_tags(&x)) {
        snprintf(err, err_len, "not enough memory for the program's tags");
        rc = -1;
    }
    if (!rc) rc = overrides_apply(db, x.o, x.n, "main.alloc_class", NULL, err, err_len);
    free(x.o);
    free(x.covered.stretch);
    return rc;
}
