#include "analyzer/memory_peak.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- pieces ---- */

enum { P_ALLOC, P_BYTES, P_DEVICE, P_BORN, P_DEAD, P_API, P_OFFSET, P_CLASS_BYTES, P_CLASS, P_CONFIDENCE, P_RULE };

static const char live_sql[] =
    "SELECT a.id, a.bytes, a.device, a.alloc_ns, a.free_ns, api.name, c.offset, c.bytes, c.class, c.confidence, c.rule"
    " FROM alloc a LEFT JOIN alloc_class c ON c.alloc = a.id AND (c.from_ns IS NULL OR c.from_ns <= ?1)"
    " AND (c.until_ns IS NULL OR c.until_ns > ?1) LEFT JOIN op ON op.id = a.id LEFT JOIN api ON api.id = op.api"
    " WHERE a.memory IN (" MEMORY_OF_DEVICE
    ") AND a.alloc_ns <= ?1 AND (a.free_ns IS NULL OR a.free_ns > ?1) ORDER BY a.id, c.offset";

struct pieces {
    struct report *r;
    struct memory_sites sites;
    struct memory_piece *piece;
    int64_t n, blocks;
    int64_t block0;  /* first piece of the block being read */
    int64_t unnamed; /* bytes of it that have no class yet */
    char *api;       /* its allocating call; NULL: not known */
};

static char *copy_text(const char *text) {
    char *copy = strdup(text);
    if (!copy) {
        fputs("acct: out of memory while reading the trace\n", stderr);
        exit(1);
    }
    return copy;
}

/* The piece of that class in the block being read. */
static struct memory_piece *piece_of(struct pieces *p, const struct memory_piece *block, int class) {
    for (int64_t i = p->block0; i < p->n; i++)
        if (p->piece[i].class == class) return &p->piece[i];
    p->piece = report_grow(p->piece, p->n, sizeof *p->piece);
    struct memory_piece *new = &p->piece[p->n++];
    *new = *block;
    new->class = class;
    new->confidence = NAN;
    new->site = p->api ? copy_text(p->api) : NULL;
    return new;
}

static void add_class(struct pieces *p, const struct memory_piece *block, sqlite3_stmt *st) {
    const char *rule = (const char *)sqlite3_column_text(st, P_RULE);
    int64_t bytes = sqlite3_column_int64(st, P_CLASS_BYTES);
    double confidence = sqlite3_column_double(st, P_CONFIDENCE);
    struct memory_piece *x = piece_of(p, block, report_class_of((const char *)sqlite3_column_text(st, P_CLASS)));
    if (!x->bytes) x->offset = sqlite3_column_int64(st, P_OFFSET);
    x->bytes += bytes;
    if (!(x->confidence <= confidence)) x->confidence = confidence;
    if (bytes > x->rule_bytes && rule) {
        free(x->rule);
        x->rule = copy_text(rule);
        x->rule_bytes = bytes;
    }
    p->unnamed -= bytes;
}

/* What the analysis says nothing of. */
static void end_block(struct pieces *p, const struct memory_piece *block) {
    if (!p->blocks || p->unnamed <= 0) return;
    struct memory_piece *x = piece_of(p, block, REPORT_UNKNOWN_CLASS);
    x->bytes += p->unnamed;
}

static void begin_block(struct pieces *p, struct memory_piece *block, sqlite3_stmt *st) {
    *block = (struct memory_piece){.alloc = sqlite3_column_int64(st, P_ALLOC),
                                   .block_bytes = sqlite3_column_int64(st, P_BYTES),
                                   .device = report_column(st, P_DEVICE),
                                   .alloc_ns = sqlite3_column_int64(st, P_BORN),
                                   .free_ns = report_column(st, P_DEAD)};
    block->step = memory_step_at(p->r, block->alloc_ns);
    free(p->api);
    p->api = report_column_text(st, P_API);
    p->block0 = p->n;
    p->unnamed = block->block_bytes;
    p->blocks++;
}

static int by_size(const void *a, const void *b) {
    const struct memory_piece *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    if (x->alloc != y->alloc) return x->alloc < y->alloc ? -1 : 1;
    return x->class - y->class;
}

/* Sites come last, by a question a block: the API's name is kept in `site` until then. */
static void find_sites(struct pieces *p, int64_t ns) {
    char site[MEMORY_SITE_ROOM];
    for (int64_t i = 0; i < p->n; i++) {
        struct memory_piece *x = &p->piece[i];
        x->from_stack = memory_site(&p->sites, x->alloc, x->site, site);
        free(x->site);
        x->site = copy_text(site);
        x->age_steps = memory_steps_between(p->r, x->alloc_ns, ns);
    }
}

/* All allocations live at ns. */
static int pieces_at(struct report *r, int64_t ns, struct memory_piece **out, int64_t *n, int64_t *blocks, char *err,
                     size_t err_len) {
    struct pieces p = {.r = r};
    struct memory_piece block = {0};
    sqlite3_stmt *st = report_prepare(r, live_sql, err, err_len);
    int rc;
    if (!st || memory_sites_open(r, &p.sites, err, err_len)) {
        sqlite3_finalize(st);
        memory_sites_close(&p.sites);
        return -1;
    }
    sqlite3_bind_int64(st, 1, ns);
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        if (!p.blocks || sqlite3_column_int64(st, P_ALLOC) != block.alloc) {
            end_block(&p, &block);
            begin_block(&p, &block, st);
        }
        if (sqlite3_column_type(st, P_CLASS) != SQLITE_NULL) add_class(&p, &block, st);
    }
    end_block(&p, &block);
    free(p.api);
    find_sites(&p, ns);
    memory_sites_close(&p.sites);
    if (p.n) qsort(p.piece, (size_t)p.n, sizeof *p.piece, by_size);
    *out = p.piece;
    *n = p.n;
    *blocks = p.blocks;
    return report_rows_end(r, st, rc, err, err_len);
}

static void pieces_free(struct memory_piece *piece, int64_t n) {
    for (int64_t i = 0; i < n; i++) free(piece[i].rule), free(piece[i].site);
    free(piece);
}

/* ---- the peak and what else it could have been ---- */

/* The highest moment of from…to that lies on another hill than `top`: on the way to it the total falls below it. */
static int64_t next_hill(const struct memory_sweep *s, int64_t from, int64_t to, int64_t top) {
    int64_t best = -1, lowest;
    for (int side = 0; side < 2; side++) {
        int64_t step = side ? 1 : -1;
        lowest = s->total[top];
        for (int64_t i = top + step; i >= from && i <= to; i += step) {
            if (s->total[i] < lowest) lowest = s->total[i];
            if (s->total[i] > lowest && s->total[i] < s->total[top] && (best < 0 || s->total[i] > s->total[best]))
                best = i;
        }
    }
    return best;
}

/* For each class, the greatest total of all others among from…to. One pass. */
static void without_classes(const struct memory_sweep *s, int64_t from, int64_t to, int64_t *out) {
    int64_t classes[REPORT_CLASSES] = {0}, i = 0, classed = 0;
    memset(out, 0, REPORT_CLASSES * sizeof *out);
    for (int64_t m = 0; m <= to; m++) {
        for (; i < s->end[m]; i++) {
            classes[s->change[i].class] += s->change[i].classed;
            classed += s->change[i].classed;
        }
        if (m < from) continue;
        for (int c = 0; c < REPORT_CLASSES; c++) {
            int64_t rest = s->total[m] - classes[c];
            if (c == REPORT_UNKNOWN_CLASS) rest -= s->total[m] - classed;
            if (rest > out[c]) out[c] = rest;
        }
    }
}

static void examine(const struct report *r, int64_t step, const struct memory_sweep *s, struct memory_peak *out) {
    int64_t from = 0, to = s->moments - 1, top;
    struct memory_request request = {.out = &out->memory};
    if (step != MEMORY_WHOLE_RUN) {
        from = memory_sweep_at(s, r->steps[step].start_ns);
        to = memory_sweep_at(s, r->steps[step].end_ns);
        if (from < 0) from = 0;
    }
    top = to < from ? -1 : memory_sweep_greatest(s, from, to);
    request.moment = top;
    memory_sweep_answer(s, &request, 1);
    if (top < 0) return;
    int64_t next = next_hill(s, from, to, top);
    if (next >= 0) {
        out->next_bytes = s->total[next];
        out->next_ns = s->ns[next];
    }
    without_classes(s, from, to, out->without);
}

int memory_peak_load(struct report *r, int64_t step, struct memory_peak *out, char *err, size_t err_len) {
    const struct memory_sweep *s = memory_sweep_of(r, err, err_len);
    memset(out, 0, sizeof *out);
    out->next_bytes = out->next_ns = REPORT_UNKNOWN;
    if (!s) return -1;
    examine(r, step, s, out);
    if (out->memory.peak_ns == REPORT_UNKNOWN) return 0;
    return pieces_at(r, out->memory.peak_ns, &out->piece, &out->n, &out->blocks, err, err_len);
}

void memory_peak_free(struct memory_peak *p) {
    pieces_free(p->piece, p->n);
    memset(p, 0, sizeof *p);
}
