#include "analyzer/growth.h"
#include "analyzer/memory_print.h"
#include "analyzer/memory_sweep.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- live bytes at the end of each step ---- */

/* Places in r->steps of the first and the last step to compare; 0: there are not two. Only complete ones: at the end of
 * a step cut off other things are live. */
static int range_of(const struct report *r, int64_t *first, int64_t *last) {
    int64_t n = 0;
    *first = *last = -1;
    for (int64_t i = 0; i < r->n_steps; i++) {
        if (!r->steps[i].complete || r->steps[i].end_ns == REPORT_UNKNOWN) continue;
        n++;
        if (n <= 2) *first = i; /* the first complete one is left out: it may allocate what is needed for good */
        *last = i;
    }
    return n >= 3;
}

static void compare(const struct report *r, const struct memory_sweep *s, int64_t first, int64_t last,
                    struct growth *g) {
    int64_t before = -1;
    for (int64_t i = first; i <= last; i++) {
        if (!r->steps[i].complete) continue;
        int64_t moment = memory_sweep_at(s, r->steps[i].end_ns), live = moment < 0 ? 0 : s->total[moment];
        if (g->steps++) {
            g->rises += live > before;
            g->falls += live < before;
        } else {
            g->first_bytes = live;
        }
        g->last_bytes = before = live;
    }
    g->bytes_per_step = (double)(g->last_bytes - g->first_bytes) / (double)(g->steps - 1);
    g->grows = g->steps >= 3 && !g->falls && 2 * g->rises >= g->steps - 1 && g->rises;
}

static int load_ends(struct report *r, struct growth *g, char *err, size_t err_len) {
    struct report_memory ends[2];
    int64_t first, last;
    g->bytes_per_step = NAN;
    g->first_step = -1;
    if (!range_of(r, &first, &last)) return 0;
    const struct memory_sweep *s = memory_sweep_of(r, err, err_len);
    if (!s) return -1;
    struct memory_request requests[] = {{memory_sweep_at(s, r->steps[first].end_ns), &ends[0]},
                                        {memory_sweep_at(s, r->steps[last].end_ns), &ends[1]}};
    g->first_step = first;
    compare(r, s, first, last, g);
    memory_sweep_answer(s, requests, 2);
    for (int c = 0; c < REPORT_CLASSES; c++) g->classes[c] = ends[1].at_peak[c] - ends[0].at_peak[c];
    return 0;
}

/* ---- what stays ---- */

struct stayer {
    int64_t alloc, bytes, step; /* place in r->steps */
    int64_t stack;              /* REPORT_UNKNOWN: none recorded */
    const char *api, *phase;    /* api: one pointer a name, see names */
    int64_t last_op;            /* that accessed it; -1: none */
};

struct names {
    char **name;
    int64_t n;
};

struct stayers {
    struct stayer *one;
    int64_t n;
    struct names names;
};

/* One pointer for equal texts: functions that allocate are few. */
static const char *intern(struct names *names, const char *text) {
    if (!text) text = "unknown call";
    for (int64_t i = 0; i < names->n; i++)
        if (!strcmp(names->name[i], text)) return names->name[i];
    names->name = report_grow(names->name, names->n, sizeof *names->name);
    char *copy = strdup(text);
    if (!copy) abort();
    return names->name[names->n++] = copy;
}

static int64_t last_complete(const struct report *r) {
    for (int64_t i = r->n_steps - 1; i >= 0; i--)
        if (r->steps[i].complete) return i;
    return -1;
}

/* Allocations made in a step before the last complete one, live at the end of that. */
static int load_stayers(struct report *r, struct stayers *s, char *err, size_t err_len) {
    int64_t last = last_complete(r);
    if (last < 1) return 0;
    int stacks = memory_has_table(r, "op_stack");
    sqlite3_stmt *st = report_prepare(
        r,
        stacks ? "SELECT a.id, a.bytes, a.alloc_ns, api.name, s.stack FROM alloc a JOIN op ON op.id = a.id LEFT JOIN "
                 "api ON api.id = op.api LEFT JOIN op_stack s ON s.op = a.id WHERE a.memory IN (" MEMORY_OF_DEVICE
                 ") AND a.alloc_ns <= ?1 AND (a.free_ns IS NULL OR a.free_ns > ?1) ORDER BY a.id"
               : "SELECT a.id, a.bytes, a.alloc_ns, api.name, NULL FROM alloc a JOIN op ON op.id = a.id LEFT JOIN api "
                 "ON api.id = op.api WHERE a.memory IN (" MEMORY_OF_DEVICE
                 ") AND a.alloc_ns <= ?1 AND (a.free_ns IS NULL OR a.free_ns > ?1) ORDER BY a.id",
        err, err_len);
    int rc;
    if (!st) return -1;
    sqlite3_bind_int64(st, 1, r->steps[last].end_ns);
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        int64_t ns = sqlite3_column_int64(st, 2), step = memory_step_at(r, ns);
        if (step < 0 || step >= last) continue;
        s->one = report_grow(s->one, s->n, sizeof *s->one);
        s->one[s->n++] = (struct stayer){.alloc = sqlite3_column_int64(st, 0),
                                         .bytes = sqlite3_column_int64(st, 1),
                                         .step = step,
                                         .stack = report_column(st, 4),
                                         .api = intern(&s->names, (const char *)sqlite3_column_text(st, 3)),
                                         .phase = memory_phase_at(r, step, ns),
                                         .last_op = -1};
    }
    return report_rows_end(r, st, rc, err, err_len);
}

static int compare_text(const char *a, const char *b) {
    return a == b ? 0 : !a ? -1 : !b ? 1 : strcmp(a, b);
}

/* By site: with a stack that alone, else function, size and phase. */
static int same_site_order(const struct stayer *x, const struct stayer *y) {
    if (x->stack != y->stack) return x->stack < y->stack ? -1 : 1;
    if (x->stack != REPORT_UNKNOWN) return 0;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
    int by_api = compare_text(x->api, y->api);
    return by_api ? by_api : compare_text(x->phase, y->phase);
}

static int by_site(const void *a, const void *b) {
    const struct stayer *x = a, *y = b;
    int order = same_site_order(x, y);
    if (order) return order;
    if (x->step != y->step) return x->step < y->step ? -1 : 1;
    return (x->alloc > y->alloc) - (x->alloc < y->alloc);
}

static int by_alloc(const void *a, const void *b) {
    const struct stayer *x = *(const struct stayer *const *)a, *y = *(const struct stayer *const *)b;
    return (x->alloc > y->alloc) - (x->alloc < y->alloc);
}

/* Keeps the sites that are suspected: stayers of at least two steps. Sorted by site before and after. */
static void keep_suspects(struct stayers *s) {
    int64_t kept = 0;
    for (int64_t i = 0, j; i < s->n; i = j) {
        for (j = i + 1; j < s->n && !same_site_order(&s->one[i], &s->one[j]);) j++;
        if (s->one[i].step == s->one[j - 1].step) continue;
        memmove(s->one + kept, s->one + i, (size_t)(j - i) * sizeof *s->one);
        kept += j - i;
    }
    s->n = kept;
}

/* The last op that accessed each. One pass over all accesses, only where there are suspects. Ids of ops grow with time
 * within a thread; between threads the last by id may be a little earlier than the last by time. */
static int load_accesses(struct report *r, struct stayers *s, char *err, size_t err_len) {
    struct stayer **sorted = NULL;
    sqlite3_stmt *st = report_prepare(r, "SELECT alloc, op FROM op_buffer WHERE alloc IS NOT NULL", err, err_len);
    int rc;
    if (!st) return -1;
    for (int64_t i = 0; i < s->n; i++) {
        sorted = report_grow(sorted, i, sizeof *sorted);
        sorted[i] = &s->one[i];
    }
    qsort(sorted, (size_t)s->n, sizeof *sorted, by_alloc);
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        struct stayer key = {.alloc = sqlite3_column_int64(st, 0)}, *wanted = &key;
        if (key.alloc < sorted[0]->alloc || key.alloc > sorted[s->n - 1]->alloc) continue;
        struct stayer **found = bsearch(&wanted, sorted, (size_t)s->n, sizeof *sorted, by_alloc);
        int64_t op = sqlite3_column_int64(st, 1);
        if (found && op > (*found)->last_op) (*found)->last_op = op;
    }
    free(sorted);
    return report_rows_end(r, st, rc, err, err_len);
}

/* ---- sites ---- */

static int64_t time_of(sqlite3_stmt *st, int64_t op) {
    sqlite3_bind_int64(st, 1, op);
    int64_t ns = sqlite3_step(st) == SQLITE_ROW ? sqlite3_column_int64(st, 0) : INT64_MAX;
    sqlite3_reset(st);
    return ns;
}

static int class_at(sqlite3_stmt *st, int64_t alloc, int64_t ns) {
    sqlite3_bind_int64(st, 1, alloc);
    sqlite3_bind_int64(st, 2, ns);
    int class = sqlite3_step(st) == SQLITE_ROW ? report_class_of((const char *)sqlite3_column_text(st, 0))
                                               : REPORT_UNKNOWN_CLASS;
    sqlite3_reset(st);
    return class;
}

static void add_stayer(const struct report *r, struct growth_site *site, const struct stayer *x, sqlite3_stmt *time) {
    site->blocks++;
    site->bytes += x->bytes;
    if (site->block_bytes != x->bytes) site->block_bytes = REPORT_UNKNOWN;
    if (r->steps[x->step].index != site->last_step) site->steps++;
    site->last_step = r->steps[x->step].index;
    if (x->last_op >= 0 && time_of(time, x->last_op) > r->steps[x->step].end_ns) return;
    site->untouched++;
    site->untouched_bytes += x->bytes;
    if (x->last_op >= 0) return;
    site->never++;
    site->never_bytes += x->bytes;
}

static char *copy_text(const char *text) {
    char *copy = text ? strdup(text) : NULL;
    if (text && !copy) abort();
    return copy;
}

static void begin_site(const struct report *r, struct growth *g, const struct stayer *x, struct memory_sites *sites,
                       sqlite3_stmt *class) {
    char name[MEMORY_SITE_ROOM];
    g->site = report_grow(g->site, g->n, sizeof *g->site);
    struct growth_site *site = &g->site[g->n++];
    int from_stack = memory_site(sites, x->alloc, x->api, name);
    *site = (struct growth_site){.site = copy_text(from_stack ? name : x->api),
                                 .phase = copy_text(x->phase),
                                 .from_stack = from_stack,
                                 .class = class_at(class, x->alloc, r->steps[last_complete(r)].end_ns),
                                 .first_alloc = x->alloc,
                                 .block_bytes = x->bytes,
                                 .first_step = r->steps[x->step].index,
                                 .last_step = -1};
}

static int by_bytes(const void *a, const void *b) {
    const struct growth_site *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    return (x->first_alloc > y->first_alloc) - (x->first_alloc < y->first_alloc);
}

static int make_sites(struct report *r, struct growth *g, const struct stayers *s, char *err, size_t err_len) {
    struct memory_sites sites = {0};
    sqlite3_stmt *time = report_prepare(r, "SELECT start_ns FROM op WHERE id = ?", err, err_len);
    sqlite3_stmt *class =
        time ? report_prepare(r,
                              "SELECT class FROM alloc_class WHERE alloc = ?1 AND (from_ns IS NULL OR from_ns <= ?2) "
                              "AND (until_ns IS NULL OR until_ns > ?2) GROUP BY class ORDER BY sum(bytes) DESC LIMIT 1",
                              err, err_len)
             : NULL;
    int rc = class ? memory_sites_open(r, &sites, err, err_len) : -1;
    for (int64_t i = 0; i < s->n && !rc; i++) {
        if (!i || same_site_order(&s->one[i - 1], &s->one[i])) begin_site(r, g, &s->one[i], &sites, class);
        add_stayer(r, &g->site[g->n - 1], &s->one[i], time);
    }
    if (g->n) qsort(g->site, (size_t)g->n, sizeof *g->site, by_bytes);
    memory_sites_close(&sites);
    sqlite3_finalize(time);
    sqlite3_finalize(class);
    return rc;
}

static int load(struct report *r, int accesses, struct growth *out, char *err, size_t err_len) {
    struct stayers s = {0};
    memset(out, 0, sizeof *out);
    int rc = load_ends(r, out, err, err_len);
    if (!rc) rc = load_stayers(r, &s, err, err_len);
    if (!rc && s.n) {
        qsort(s.one, (size_t)s.n, sizeof *s.one, by_site);
        keep_suspects(&s);
    }
    if (!rc && s.n && accesses) rc = load_accesses(r, &s, err, err_len);
    if (!rc && s.n) rc = make_sites(r, out, &s, err, err_len);
    for (int64_t i = 0; i < s.names.n; i++) free(s.names.name[i]);
    free(s.names.name);
    free(s.one);
    return rc;
}

int growth_load(struct report *r, struct growth *out, char *err, size_t err_len) {
    return load(r, 1, out, err, err_len);
}

int growth_load_quick(struct report *r, struct growth *out, char *err, size_t err_len) {
    int rc = load(r, 0, out, err, err_len);
    for (int64_t i = 0; i < out->n; i++)
        out->site[i].untouched = out->site[i].untouched_bytes = out->site[i].never = out->site[i].never_bytes = 0;
    return rc;
}

void growth_free(struct growth *g) {
    for (int64_t i = 0; i < g->n; i++) free(g->site[i].site), free(g->site[i].phase);
    free(g->site);
    memset(g, 0, sizeof *g);
}

/* ---- print ---- */

static void print_site(struct emitter *e, const struct growth_site *s) {
    emit_object(e, "", NULL, LOOK_FIELDS);
    emit_text(e, "site", "site", s->site);
    emit_bool(e, "site_of_stack", NULL, s->from_stack);
    emit_text(e, "phase", "phase", s->phase);
    emit_text(e, "class", "class", report_class_names[s->class]);
    emit_int(e, "blocks", "blocks", UNIT_NONE, s->blocks);
    emit_int(e, "bytes", "bytes", UNIT_BYTES, s->bytes);
    report_print_int(e, "block_bytes", NULL, UNIT_BYTES, s->block_bytes);
    emit_int(e, "steps", "in steps", UNIT_NONE, s->steps);
    emit_int(e, "first_step", "first", UNIT_NONE, s->first_step);
    emit_int(e, "last_step", "last", UNIT_NONE, s->last_step);
    emit_int(e, "first_id", NULL, UNIT_NONE, s->first_alloc);
    emit_int(e, "untouched_blocks", "not used since", UNIT_NONE, s->untouched);
    emit_int(e, "untouched_bytes", NULL, UNIT_BYTES, s->untouched_bytes);
    emit_int(e, "never_accessed_blocks", NULL, UNIT_NONE, s->never);
    emit_int(e, "never_accessed_bytes", NULL, UNIT_BYTES, s->never_bytes);
    emit_end(e);
}

static void print_words(struct emitter *e, const struct growth *g) {
    char text[256], from[64], to[64];
    emit_human_bytes(from, sizeof from, g->first_bytes);
    emit_human_bytes(to, sizeof to, g->last_bytes);
    if (g->first_bytes == g->last_bytes && !g->rises && !g->falls)
        snprintf(text, sizeof text, "%s, the same at the end of each of %lld steps", to, (long long)g->steps);
    else
        snprintf(text, sizeof text, "%s to %s over %lld steps: it rose %lld times, fell %lld times%s", from, to,
                 (long long)g->steps, (long long)g->rises, (long long)g->falls, g->grows ? "; it grows" : "");
    emit_text(e, NULL, "live at steps' ends", text);
}

void growth_print(struct emitter *e, const struct report *r, const struct growth *g) {
    int known = g->steps >= 2;
    emit_object(e, "growth", known || g->n ? "Growth across steps" : NULL, known || g->n ? LOOK_FIELDS : LOOK_HIDDEN);
    if (known) print_words(e, g);
    emit_int(e, "steps", NULL, UNIT_NONE, g->steps);
    memory_print_step(e, "first_step", NULL, r, g->first_step);
    report_print_int(e, "first_bytes", NULL, UNIT_BYTES, known ? g->first_bytes : REPORT_UNKNOWN);
    report_print_int(e, "last_bytes", NULL, UNIT_BYTES, known ? g->last_bytes : REPORT_UNKNOWN);
    report_print_int(e, "rises", NULL, UNIT_NONE, known ? g->rises : REPORT_UNKNOWN);
    report_print_int(e, "falls", NULL, UNIT_NONE, known ? g->falls : REPORT_UNKNOWN);
    emit_real(e, "bytes_per_step", NULL, UNIT_BYTES, g->bytes_per_step);
    if (g->steps >= 3)
        emit_bool(e, "grows", NULL, g->grows);
    else
        emit_null(e, "grows", NULL);
    if (known)
        memory_print_classes(e, "by_class", NULL, LOOK_HIDDEN, g->classes);
    else
        emit_null(e, "by_class", NULL);
    emit_list(e, "sites", g->n ? "Allocations that stay, step after step (suspected leaks)" : NULL,
              g->n ? LOOK_TABLE : LOOK_HIDDEN);
    for (int64_t i = 0; i < g->n; i++) print_site(e, &g->site[i]);
    emit_end(e);
    emit_end(e);
}
