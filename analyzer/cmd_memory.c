/* acct memory [--timeline[=N]] [--blocks] [--estimate] TRACE…: memory by class over time. */
#include "analyzer/explain.h"
#include "analyzer/memory_books.h"
#include "analyzer/memory_host.h"
#include "analyzer/memory_pools.h"
#include "analyzer/memory_print.h"
#include "analyzer/memory_timeline.h"
#include "analyzer/view.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPT_TIMELINE = VIEW_OPTIONS, OPT_BLOCKS, OPT_ESTIMATE, OPT_EXPLAIN };
static const struct option_spec options[] = {
    VIEW_OPTION_ROWS,
    [OPT_TIMELINE] = {"timeline", 0, OPTION_OPTIONAL, "N",
                      "live bytes at every change, or at most N of them that keep all peaks (text: 40)"},
    [OPT_BLOCKS] = {"blocks", 0, OPTION_FLAG, NULL, "all allocations, with class, confidence and rule of their ranges"},
    [OPT_ESTIMATE] = {"estimate", 0, OPTION_FLAG, NULL, "what formulas expect, beside what was measured"},
    [OPT_EXPLAIN] = {"explain", 0, OPTION_VALUE, "ID",
                     "why the allocation ID (see --blocks) has its class, in sentences"},
    {0},
};

enum { PEOPLE_SEE = 40 };

/* --timeline=N; 0: every change. */
static int samples_of(const struct arguments *args, int64_t *out) {
    *out = 0;
    if (!args->given[OPT_TIMELINE] || !args->value[OPT_TIMELINE]) return 0;
    return view_number(args, OPT_TIMELINE, INT32_MAX, out);
}

static int parse(const struct arguments *args) {
    int64_t n;
    int code = samples_of(args, &n);
    return code ? code : view_number(args, OPT_EXPLAIN, INT64_MAX, &n);
}

/* ---- steps ---- */

struct step_ends {
    struct report_memory *end; /* by step: what is live when it ends */
    struct report_memory *device;
    int64_t *ordinal, devices;
};

static int load_ends(struct report *r, const struct memory_sweep *s, struct step_ends *out) {
    struct memory_request *requests = NULL;
    if (!r->n_steps) return 0;
    out->end = calloc((size_t)r->n_steps, sizeof *out->end);
    if (!out->end) return -1;
    for (int64_t i = 0; i < r->n_steps; i++) {
        requests = report_grow(requests, i, sizeof *requests);
        requests[i] = (struct memory_request){
            r->steps[i].end_ns == REPORT_UNKNOWN ? -1 : memory_sweep_at(s, r->steps[i].end_ns), &out->end[i]};
    }
    memory_sweep_answer(s, requests, r->n_steps);
    free(requests);
    return 0;
}

static void print_peak(struct emitter *e, const struct report *r, const struct memory_sweep *s) {
    char place[96] = "nothing was ever allocated";
    emit_object(e, "memory", "Peak of the run (device and stream-ordered allocations)", LOOK_FIELDS);
    emit_int(e, "peak_bytes", "live", UNIT_BYTES, r->memory.peak_bytes);
    if (s->moments) memory_place_words(r, r->memory.peak_ns, place, sizeof place);
    emit_text(e, NULL, "first reached", place);
    report_print_int(e, "peak_ns", NULL, UNIT_NS, s->moments ? r->memory.peak_ns : REPORT_UNKNOWN);
    memory_print_step(e, "peak_step", NULL, r, s->moments ? memory_step_at(r, r->memory.peak_ns) : -1);
    memory_print_classes(e, "at_peak", NULL, LOOK_BARS, r->memory.at_peak);
    emit_end(e);
}

/* 1 << class: some step has it at its peak. */
static unsigned classes_of_steps(const struct report *r) {
    unsigned any = 0;
    for (int64_t i = 0; i < r->n_steps; i++)
        for (int c = 0; c < REPORT_CLASSES; c++) any |= r->steps[i].memory.at_peak[c] ? 1u << c : 0;
    return any;
}

/* People see the classes that some step has, without the digits: the table is wide. */
static void print_step_classes(struct emitter *e, unsigned some, const struct report_memory *m) {
    char text[64];
    for (int c = 0; c < REPORT_CLASSES; c++) {
        if (!(some >> c & 1)) continue;
        emit_human_bytes(text, sizeof text, m->at_peak[c]);
        text[strcspn(text, "(")] = 0;
        emit_text(e, NULL, report_class_names[c], text);
    }
}

static void print_steps(struct emitter *e, const struct report *r, const struct step_ends *ends) {
    emit_list(e, "steps", r->n_steps ? "Steps: live at the peak, by class, and at the end" : NULL,
              r->n_steps ? LOOK_TABLE : LOOK_HIDDEN);
    unsigned some = classes_of_steps(r);
    for (int64_t i = 0; i < r->n_steps; i++) {
        const struct report_step *s = &r->steps[i];
        emit_object(e, "", NULL, LOOK_FIELDS);
        emit_int(e, "index", "step", UNIT_NONE, s->index);
        emit_int(e, "peak_bytes", "peak", UNIT_BYTES, s->memory.peak_bytes);
        report_print_int(e, "peak_ns", NULL, UNIT_NS, s->memory.peak_bytes ? s->memory.peak_ns : REPORT_UNKNOWN);
        memory_print_classes(e, "at_peak", NULL, LOOK_HIDDEN, s->memory.at_peak);
        if (emit_for_people(e)) print_step_classes(e, some, &s->memory);
        emit_int(e, "end_bytes", "at its end", UNIT_BYTES, ends->end[i].peak_bytes);
        memory_print_classes(e, "at_end", NULL, LOOK_HIDDEN, ends->end[i].at_peak);
        emit_end(e);
    }
    emit_end(e);
}

/* ---- devices ---- */

static int print_device(struct emitter *e, struct report *r, int64_t ordinal, char *err, size_t err_len) {
    struct memory_sweep s;
    struct report_memory m = {.peak_ns = REPORT_UNKNOWN};
    struct memory_request request = {.out = &m};
    if (memory_sweep_load(r, ordinal, &s, err, err_len)) {
        memory_sweep_free(&s);
        return -1;
    }
    request.moment = s.moments ? memory_sweep_greatest(&s, 0, s.moments - 1) : -1;
    memory_sweep_answer(&s, &request, 1);
    memory_sweep_free(&s);
    emit_object(e, "", NULL, LOOK_FIELDS);
    emit_int(e, "device", "device", UNIT_NONE, ordinal);
    emit_int(e, "peak_bytes", "peak", UNIT_BYTES, m.peak_bytes);
    report_print_int(e, "peak_ns", NULL, UNIT_NS, m.peak_ns);
    memory_print_classes(e, "at_peak", NULL, LOOK_HIDDEN, m.at_peak);
    emit_end(e);
    return 0;
}

/* Each at its own peak; a program with one device has that of the run. */
static int print_devices(struct emitter *e, struct report *r, char *err, size_t err_len) {
    sqlite3_stmt *st = report_prepare(r,
                                      "SELECT DISTINCT device FROM alloc WHERE memory IN (" MEMORY_OF_DEVICE
                                      ") AND device IS NOT NULL ORDER BY device",
                                      err, err_len);
    int64_t *ordinal = NULL, n = 0;
    int rc;
    if (!st) return -1;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        ordinal = report_grow(ordinal, n, sizeof *ordinal);
        ordinal[n++] = sqlite3_column_int64(st, 0);
    }
    rc = report_rows_end(r, st, rc, err, err_len);
    emit_list(e, "devices", n > 1 ? "Devices, each at its own peak" : NULL, n > 1 ? LOOK_TABLE : LOOK_HIDDEN);
    for (int64_t i = 0; i < n && !rc; i++) rc = print_device(e, r, ordinal[i], err, err_len);
    emit_end(e);
    free(ordinal);
    return rc;
}

/* ---- blocks ---- */

enum {
    B_ID,
    B_OFFSET,
    B_BYTES,
    B_CLASS,
    B_CONFIDENCE,
    B_RULE,
    B_BORN,
    B_DEAD,
    B_FROM,
    B_UNTIL,
    B_API,
    B_MEMORY,
    B_ALL
};

static void print_block(struct emitter *e, const struct report *r, sqlite3_stmt *st, struct memory_sites *sites) {
    char site[MEMORY_SITE_ROOM];
    int64_t id = sqlite3_column_int64(st, B_ID), born = sqlite3_column_int64(st, B_BORN);
    int64_t step = memory_step_at(r, born);
    memory_site(sites, id, (const char *)sqlite3_column_text(st, B_API), site);
    emit_object(e, "", NULL, LOOK_FIELDS);
    emit_int(e, "id", "id", UNIT_NONE, id);
    report_print_int(e, "offset", "offset", UNIT_NONE, report_column(st, B_OFFSET));
    report_print_int(e, "bytes", "bytes", UNIT_BYTES, report_column(st, B_BYTES));
    report_print_int(e, "block_bytes", NULL, UNIT_BYTES, report_column(st, B_ALL));
    emit_text(e, "memory", NULL, (const char *)sqlite3_column_text(st, B_MEMORY));
    emit_text(e, "class", "class", (const char *)sqlite3_column_text(st, B_CLASS));
    emit_real(e, "confidence", "confidence", UNIT_NONE,
              sqlite3_column_type(st, B_CONFIDENCE) == SQLITE_NULL ? NAN : sqlite3_column_double(st, B_CONFIDENCE));
    memory_print_step(e, "step", "step", r, step);
    emit_text(e, "phase", "phase", step < 0 ? NULL : memory_phase_at(r, step, born));
    emit_text(e, "site", "site", site);
    emit_int(e, "alloc_ns", NULL, UNIT_NS, born);
    report_print_int(e, "free_ns", NULL, UNIT_NS, report_column(st, B_DEAD));
    report_print_int(e, "class_from_ns", NULL, UNIT_NS, report_column(st, B_FROM));
    report_print_int(e, "class_until_ns", NULL, UNIT_NS, report_column(st, B_UNTIL));
    emit_text(e, NULL, "freed", report_column(st, B_DEAD) == REPORT_UNKNOWN ? "never" : "yes");
    emit_text(e, "rule", "rule", (const char *)sqlite3_column_text(st, B_RULE));
    emit_end(e);
}

static void print_block_columns(struct emitter *e) {
    static const char *const names[] = {"id",       "offset",     "bytes",         "block_bytes",    "memory",
                                        "class",    "confidence", "step",          "phase",          "site",
                                        "alloc_ns", "free_ns",    "class_from_ns", "class_until_ns", "rule"};
    emit_columns(e, sizeof names / sizeof *names, names);
}

/* A row for each range of an allocation that has a class of its own, and time of it. */
static int print_blocks(struct emitter *e, struct report *r, char *err, size_t err_len) {
    struct memory_sites sites = {0};
    int table = e->format == EMIT_CSV && !e->depth, rc;
    sqlite3_stmt *st = report_prepare(
        r,
        "SELECT a.id, coalesce(c.offset, 0), coalesce(c.bytes, a.bytes), coalesce(c.class, 'unknown'), c.confidence,"
        " coalesce(c.rule, 'not classified'), a.alloc_ns, a.free_ns, c.from_ns, c.until_ns, api.name, a.memory, a.bytes"
        " FROM alloc a LEFT JOIN alloc_class c ON c.alloc = a.id LEFT JOIN op ON op.id = a.id LEFT JOIN api ON api.id ="
        " op.api ORDER BY 1, 2, 9",
        err, err_len);
    if (!st || memory_sites_open(r, &sites, err, err_len)) {
        sqlite3_finalize(st);
        memory_sites_close(&sites);
        return -1;
    }
    emit_list(e, "blocks", "Allocations, a row for each range with a class of its own", LOOK_TABLE);
    if (table) print_block_columns(e);
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) print_block(e, r, st, &sites);
    emit_end(e);
    memory_sites_close(&sites);
    return report_rows_end(r, st, rc, err, err_len);
}

/* ---- sections that load what they print ---- */

static int print_growth(struct emitter *e, struct report *r, char *err, size_t err_len) {
    struct growth g;
    int rc = growth_load(r, &g, err, err_len);
    if (!rc) growth_print(e, r, &g);
    growth_free(&g);
    return rc;
}

static int print_host(struct emitter *e, struct report *r, char *err, size_t err_len) {
    struct memory_host h;
    int rc = memory_host_load(r, &h, err, err_len);
    if (!rc) memory_host_print(e, &h);
    return rc;
}

static int print_pools(struct emitter *e, struct report *r, char *err, size_t err_len) {
    struct memory_pools p;
    int rc = memory_pools_load(r, &p, err, err_len);
    if (!rc) memory_pools_print(e, &p);
    memory_pools_free(&p);
    return rc;
}

static int print_all(struct emitter *e, struct report *r, const struct memory_sweep *s, const struct arguments *args,
                     char *err, size_t err_len) {
    struct step_ends ends = {0};
    int64_t samples = 0;
    samples_of(args, &samples);
    if (args->given[OPT_TIMELINE] && !samples && emit_for_people(e)) samples = PEOPLE_SEE;
    if (load_ends(r, s, &ends)) {
        snprintf(err, err_len, "%s: not enough memory", r->path);
        return -1;
    }
    view_open(e, r);
    print_peak(e, r, s);
    print_steps(e, r, &ends);
    free(ends.end);
    if (print_devices(e, r, err, err_len) || print_growth(e, r, err, err_len)) return -1;
    memory_print_reconciliation(e, &r->memory_books->reconciliation);
    if (print_pools(e, r, err, err_len) || print_host(e, r, err, err_len)) return -1;
    if (args->given[OPT_ESTIMATE]) memory_estimate_print(e, r, &r->memory_books->estimate, 0);
    if (args->given[OPT_TIMELINE]) memory_timeline_print(e, r, s, samples);
    if (args->given[OPT_BLOCKS] && print_blocks(e, r, err, err_len)) return -1;
    view_notes(e, r);
    emit_end(e);
    return 0;
}

/* In place of all else. */
static int print_explanation(struct emitter *e, struct report *r, const struct arguments *args, char *err,
                             size_t err_len) {
    int64_t id = 0;
    view_number(args, OPT_EXPLAIN, INT64_MAX, &id);
    view_open(e, r);
    int rc = explain_alloc(e, r, id, err, err_len);
    emit_end(e);
    return rc;
}

/* One trace's timeline or blocks as CSV are a table of their own. */
static int print(struct emitter *e, struct report *r, const struct arguments *args, char *err, size_t err_len) {
    int alone = e->format == EMIT_CSV && !e->depth && !args->given[OPT_ESTIMATE];
    const struct memory_sweep *s = memory_sweep_of(r, err, err_len);
    int64_t samples = 0;
    samples_of(args, &samples);
    if (!s) return -1;
    if (args->given[OPT_EXPLAIN]) return print_explanation(e, r, args, err, err_len);
    if (alone && args->given[OPT_BLOCKS] && !args->given[OPT_TIMELINE]) return print_blocks(e, r, err, err_len);
    if (!alone || !args->given[OPT_TIMELINE] || args->given[OPT_BLOCKS]) return print_all(e, r, s, args, err, err_len);
    memory_timeline_print(e, r, s, samples);
    return 0;
}

static int memory(const struct arguments *args) {
    static const struct view view = {.parse = parse, .print = print, .without_rates = 1, .table_limit = PEOPLE_SEE};
    return view_run(args, &view);
}

const struct command cmd_memory = {
    .name = "memory",
    .synopsis = "memory by class over time, the host's side, growth, reconciliation",
    .usage = "[--timeline[=N]] [--blocks] [--estimate] [--explain ID] " VIEW_USAGE " TRACE...",
    .details =
        "Live bytes by class at the peak of the run and of each step; growth from step to step and allocations that "
        "stay; what the driver\n"
        "says is used, split into what is known of it; pools; page-locked memory and copies. CSV of --timeline or "
        "--blocks alone is a table.\n",
    .options = options,
    .usage_exit = CMD_EXIT_USAGE,
    .function = memory,
};
