#include "analyzer/memory_places.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* First step that ends at ns or later; r->n_steps: none. */
static int64_t first_ending_from(const struct report *r, int64_t ns) {
    int64_t lo = 0, hi = r->n_steps;
    while (lo < hi) {
        int64_t mid = lo + (hi - lo) / 2;
        if (r->steps[mid].end_ns < ns)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

int64_t memory_step_at(const struct report *r, int64_t ns) {
    int64_t i = first_ending_from(r, ns);
    return i < r->n_steps && r->steps[i].start_ns <= ns ? i : -1;
}

int64_t memory_steps_between(const struct report *r, int64_t from, int64_t to) {
    int64_t n = first_ending_from(r, to) - first_ending_from(r, from);
    return n < 0 ? 0 : n;
}

const char *memory_phase_at(const struct report *r, int64_t step, int64_t ns) {
    const char *name = NULL;
    int64_t lo = 0, hi = r->n_phases, index = r->steps[step].index;
    while (lo < hi) { /* first phase of the step */
        int64_t mid = lo + (hi - lo) / 2;
        if (r->phases[mid].step < index)
            lo = mid + 1;
        else
            hi = mid;
    }
    for (; lo < r->n_phases && r->phases[lo].step == index && r->phases[lo].start_ns <= ns; lo++)
        name = r->phases[lo].name;
    return name;
}

void memory_place_words(const struct report *r, int64_t ns, char *out, size_t room) {
    int64_t step = memory_step_at(r, ns);
    const char *phase = step < 0 ? NULL : memory_phase_at(r, step, ns);
    if (!r->n_steps)
        snprintf(out, room, "no step was found");
    else if (step < 0)
        snprintf(out, room, "%s", ns <= r->steps[0].start_ns ? "before the first step" : "after the last step");
    else
        snprintf(out, room, "in step %lld%s%s", (long long)r->steps[step].index, phase ? ", " : "", phase ? phase : "");
}

int memory_has_table(struct report *r, const char *name) {
    sqlite3_stmt *st;
    int found = 0;
    if (sqlite3_prepare_v2(r->db, "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", -1, &st, NULL) !=
        SQLITE_OK)
        return 0;
    sqlite3_bind_text(st, 1, name, -1, SQLITE_STATIC);
    found = sqlite3_step(st) == SQLITE_ROW;
    sqlite3_finalize(st);
    return found;
}

/* ---- sites ---- */

int memory_sites_open(struct report *r, struct memory_sites *out, char *err, size_t err_len) {
    sqlite3_stmt *st = report_prepare(r, "SELECT id FROM alloc ORDER BY id", err, err_len);
    int rc;
    memset(out, 0, sizeof *out);
    if (!st) return -1;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        out->alloc = report_grow(out->alloc, out->n, sizeof *out->alloc);
        out->alloc[out->n++] = sqlite3_column_int64(st, 0);
    }
    if (report_rows_end(r, st, rc, err, err_len)) return -1;
    if (!memory_has_table(r, "op_stack") || !memory_has_table(r, "frame")) return 0;
    out->frames = report_prepare(r,
                                 "SELECT f.symbol, f.file, f.line, f.path, f.offset FROM op_stack s JOIN frame f ON "
                                 "f.stack = s.stack WHERE s.op = ? ORDER BY f.depth",
                                 err, err_len);
    return out->frames ? 0 : -1;
}

void memory_sites_close(struct memory_sites *s) {
    sqlite3_finalize(s->frames);
    free(s->alloc);
    memset(s, 0, sizeof *s);
}

static const char *base_name(const char *path) {
    const char *slash = path ? strrchr(path, '/') : NULL;
    return slash ? slash + 1 : path;
}

static int is_ours_or_cudas(const char *path) {
    static const char *const names[] = {"libacct", "libcuda", "libcudart", "libcublas"};
    const char *name = base_name(path);
    for (size_t i = 0; name && i < sizeof names / sizeof *names; i++)
        if (!strncmp(name, names[i], strlen(names[i]))) return 1;
    return 0;
}

static void frame_words(sqlite3_stmt *st, char out[MEMORY_SITE_ROOM]) {
    const char *symbol = (const char *)sqlite3_column_text(st, 0), *file = (const char *)sqlite3_column_text(st, 1);
    const char *path = (const char *)sqlite3_column_text(st, 3);
    char name[80];
    report_short_name(symbol ? symbol : "", name, sizeof name);
    if (symbol && file)
        snprintf(out, MEMORY_SITE_ROOM, "%s (%s:%lld)", name, base_name(file), sqlite3_column_int64(st, 2));
    else if (symbol)
        snprintf(out, MEMORY_SITE_ROOM, "%s", name);
    else
        snprintf(out, MEMORY_SITE_ROOM, "%s+0x%llx", path ? base_name(path) : "?",
                 (long long)sqlite3_column_int64(st, 4));
}

static int of_stack(struct memory_sites *s, int64_t alloc, char out[MEMORY_SITE_ROOM]) {
    int found = 0;
    if (!s->frames) return 0;
    sqlite3_bind_int64(s->frames, 1, alloc);
    while (!found && sqlite3_step(s->frames) == SQLITE_ROW) {
        if (is_ours_or_cudas((const char *)sqlite3_column_text(s->frames, 3))) continue;
        frame_words(s->frames, out);
        found = 1;
    }
    sqlite3_reset(s->frames);
    return found;
}

static int by_id(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

int memory_site(struct memory_sites *s, int64_t alloc, const char *api, char out[MEMORY_SITE_ROOM]) {
    if (of_stack(s, alloc, out)) return 1;
    const int64_t *at = s->n ? bsearch(&alloc, s->alloc, (size_t)s->n, sizeof *s->alloc, by_id) : NULL;
    snprintf(out, MEMORY_SITE_ROOM, at ? "%s #%lld" : "%s", api ? api : "unknown call",
             at ? (long long)(at - s->alloc) + 1 : 0);
    return 0;
}
