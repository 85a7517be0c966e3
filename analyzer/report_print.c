#include "analyzer/report_print.h"
#include "analyzer/memory_books.h"
#include "analyzer/report_convention.h"
#include "analyzer/report_busy.h"
#include "analyzer/report_oom.h"
#include "analyzer/report_why.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void report_print_int(struct emitter *e, const char *key, const char *label, enum emit_unit unit, int64_t value) {
    if (value == REPORT_UNKNOWN)
        emit_null(e, key, label);
    else
        emit_int(e, key, label, unit, value);
}

/* ---- program, device ---- */

static void print_program(struct emitter *e, const struct report *r) {
    char line[512] = "";
    size_t n = 0;
    emit_object(e, "program", "Program", LOOK_FIELDS);
    for (int i = 0; i < r->n_argv && n < sizeof line; i++)
        n += (size_t)snprintf(line + n, sizeof line - n, "%s%s", i ? " " : "", r->argv[i]);
    emit_text(e, NULL, "command", r->n_argv ? line : NULL);
    emit_list(e, "argv", NULL, LOOK_HIDDEN);
    for (int i = 0; i < r->n_argv; i++) emit_text(e, "", NULL, r->argv[i]);
    emit_end(e);
    report_print_int(e, "pid", "process id", UNIT_NONE, r->pid);
    report_print_int(e, "exit_code", "exit code", UNIT_NONE, r->exit_code);
    emit_text(e, NULL, "trace", r->path);
    emit_text(e, NULL, "state", r->state);
    emit_end(e);
}

static const char *clock_words(const struct report *r) {
    if (!r->on_device) return r->device_clock ? "host (not every op has a device time)" : "host (no device times)";
    if (!strcmp(r->device_clock, "cpu")) return "cpu (this machine's processors, which are the device)";
    return strcmp(r->device_clock, "model") ? "gpu (CUPTI)" : "model (a roofline, nothing was measured)";
}

/* The MFU of a model is what could be reached. */
static const char *at_best(const struct report *r, const char *label, const char *of_model) {
    return r->modelled && r->on_device ? of_model : label;
}

static void print_profile(struct emitter *e, const struct report *r) {
    char text[512];
    emit_text(e, "profile", NULL, r->profile);
    emit_bool(e, "dry", NULL, r->dry);
    if (!r->modelled) return;
    snprintf(text, sizeof text, "%s%s", r->profile ? r->profile : "cpu",
             r->dry ? ", dry run: nothing was executed" : "; executed on this machine");
    emit_text(e, NULL, "virtual GPU", text);
}

static void print_device(struct emitter *e, const struct report *r) {
    char capability[32];
    emit_object(e, "device", "Device", LOOK_FIELDS);
    emit_text(e, "name", "name", r->device_name);
    print_profile(e, r);
    report_print_int(e, NULL, "memory", UNIT_BYTES, r->device_total_bytes);
    snprintf(capability, sizeof capability, "%lld.%lld", (long long)r->cc_major, (long long)r->cc_minor);
    emit_text(e, NULL, "compute capability",
              r->cc_major == REPORT_UNKNOWN || r->cc_minor == REPORT_UNKNOWN ? NULL : capability);
    emit_text(e, "clock", NULL, r->on_device ? r->device_clock : "host");
    emit_text(e, NULL, "clock of the steps", clock_words(r));
    emit_object(e, "peak_flops", "peak", LOOK_INLINE);
    for (int f = 0; f < PEAK_FORMATS; f++)
        if (f != PEAK_FP16_ACC16)
            emit_real(e, devices_format_name(f), devices_format_name(f), UNIT_FLOPS_PER_S, r->peak[f]);
    emit_end(e);
    emit_real(e, "bytes_per_s", "memory bandwidth", UNIT_BYTES_PER_S, r->bytes_per_s);
    emit_text(e, "peak_source", "peak from", r->peak_source);
    emit_end(e);
}

/* ---- totals, memory ---- */

static void print_totals(struct emitter *e, const struct report *r) {
    struct report_sum all = r->flops.gemm;
    report_sum_add(&all, &r->flops.other);
    emit_object(e, "totals", "Totals", LOOK_FIELDS);
    emit_int(e, "ops", "calls recorded", UNIT_NONE, r->ops);
    emit_int(e, "gemms", "matrix products", UNIT_NONE, r->gemms);
    report_print_int(e, "kernels", "kernel launches", UNIT_NONE, r->launches);
    emit_int(e, "allocations", "allocations", UNIT_NONE, r->allocations);
    emit_int(e, "dropped", "calls lost", UNIT_NONE, r->dropped);
    report_print_sum(e, "flops", "FLOPs", &all);
    emit_text(e, "flops_grade", NULL, report_grade_name(report_grade_of(&all)));
    report_print_sum(e, "flops_evaluation", "FLOPs of evaluation", &r->evaluation);
    emit_int(e, "peak_bytes", NULL, UNIT_BYTES, r->memory.peak_bytes);
    emit_real(e, "counted_time_share", r->busy_ns ? "device time counted" : NULL, UNIT_SHARE, r->counted_time_share);
    emit_end(e);
}

void report_print_memory(struct emitter *e, const struct report_memory *m, const char *key, const char *label,
                         enum emit_look look) {
    emit_object(e, key, label, look);
    for (int c = 0; c < REPORT_CLASSES; c++)
        emit_int(e, report_class_names[c], report_class_names[c], UNIT_BYTES, m->at_peak[c]);
    emit_end(e);
}

static void print_memory(struct emitter *e, const struct report *r) {
    emit_object(e, "memory", "Memory at its peak (device and stream-ordered allocations)", LOOK_FIELDS);
    emit_int(e, "peak_bytes", "peak", UNIT_BYTES, r->memory.peak_bytes);
    report_print_memory(e, &r->memory, "at_peak", NULL, LOOK_BARS);
    emit_int(e, "managed_peak_bytes", r->managed_peak_bytes ? "managed, apart" : NULL, UNIT_BYTES,
             r->managed_peak_bytes);
    emit_int(e, "array_peak_bytes", r->array_peak_bytes ? "arrays, apart" : NULL, UNIT_BYTES, r->array_peak_bytes);
    emit_int(e, "pinned_peak_bytes", "pinned host, apart", UNIT_BYTES, r->pinned_peak_bytes);
    report_print_device_peaks(e, r);
    emit_end(e);
}

/* ---- run ---- */

static void print_spread(struct emitter *e, const char *key, const char *label, enum emit_unit unit,
                         const struct report_spread *s) {
    char text[200], median[64], least[64], most[64];
    emit_object(e, key, NULL, LOOK_FIELDS);
    emit_real(e, "median", NULL, unit, s->median);
    emit_real(e, "min", NULL, unit, s->least);
    emit_real(e, "max", NULL, unit, s->most);
    emit_end(e);
    if (!label) return;
    emit_human(median, sizeof median, unit, s->median, unit == UNIT_FLOPS);
    emit_human(least, sizeof least, unit, s->least, 0);
    emit_human(most, sizeof most, unit, s->most, 0);
    if (s->least < s->most)
        snprintf(text, sizeof text, "%s (%s to %s)", median, least, most);
    else
        snprintf(text, sizeof text, "%s", median);
    emit_text(e, NULL, label, s->n ? text : NULL);
}

/* The median of the steps' other FLOPs, in words that say what it is: some steps' may be bounds or estimates. */
static void print_other(struct emitter *e, const struct report *r) {
    static const char *const words[] = {"", "about ", "at least ", "", "by the user's rules "};
    enum report_grade worst = GRADE_EXACT;
    char text[128], median[96];
    for (int64_t i = 0; i < r->n_steps; i++) {
        enum report_grade grade = report_grade_of(&r->steps[i].flops.other);
        int counts = r->steps[i].complete && (i || !r->first_left_out);
        if (counts && (worst == GRADE_EXACT || grade == GRADE_SAMPLED || grade == GRADE_UNCOUNTED)) worst = grade;
    }
    emit_human(median, sizeof median, UNIT_FLOPS, r->step_other.median, 1);
    snprintf(text, sizeof text, "%s%s", words[worst], median);
    emit_text(e, NULL, "other FLOPs", r->step_other.n ? text : NULL);
}

/* 6·N·T as people check it. */
static void print_convention(struct emitter *e, const struct report *r) {
    char text[256], flops[64];
    const struct report_step *s = r->n_steps ? &r->steps[r->n_steps - 1] : NULL;
    while (s && (!s->complete || s->tokens == REPORT_UNKNOWN)) s = s == r->steps ? NULL : s - 1;
    if (!s || !r->by_convention[CONVENTION_6N].n || r->parameters <= 0) return;
    emit_human(flops, sizeof flops, UNIT_FLOPS, 6.0 * (double)r->parameters * (double)s->tokens, 1);
    snprintf(text, sizeof text, "6 x %lld parameters x %lld tokens or samples = %s a step", (long long)r->parameters,
             (long long)s->tokens, flops);
    emit_text(e, NULL, "6n counts", text);
}

void report_print_run(struct emitter *e, const struct report *r) {
    char label[96];
    if (r->n_steps)
        snprintf(label, sizeof label, "Run: median over %d steps%s", r->step_ns.n,
                 r->first_left_out ? ", the first left out (least to most)" : "");
    else
        snprintf(label, sizeof label, "Run: no step found");
    emit_object(e, "run", label, LOOK_FIELDS);
    emit_int(e, "steps", "steps", UNIT_NONE, r->n_steps);
    if (r->n_steps || !emit_for_people(e)) {
        print_spread(e, "step_ns", "step time", UNIT_NS, &r->step_ns);
        print_spread(e, "gemm_flops", "matrix products", UNIT_FLOPS, &r->step_gemm);
        print_spread(e, "other_flops", NULL, UNIT_FLOPS, &r->step_other);
        print_other(e, r);
        print_spread(e, "flops_per_s", "rate", UNIT_FLOPS_PER_S, &r->rate);
        print_spread(e, "mfu", at_best(r, "MFU (executed)", "MFU at best"), UNIT_SHARE, &r->mfu);
        print_spread(e, "hfu", r->flops.phase[PHASE_RECOMPUTE] ? at_best(r, "HFU", "HFU at best") : NULL, UNIT_SHARE,
                     &r->hfu);
        print_spread(e, "mfu_6n", at_best(r, "MFU by 6n", "MFU by 6n, at best"), UNIT_SHARE,
                     &r->by_convention[CONVENTION_6N]);
        print_spread(
            e, "mfu_6n_matmul",
            r->parameters == r->matmul_parameters ? NULL : at_best(r, "MFU by 6n-matmul", "MFU by 6n-matmul, at best"),
            UNIT_SHARE, &r->by_convention[CONVENTION_6N_MATMUL]);
        if (r->n_steps) print_convention(e, r);
    }
    emit_end(e);
}

/* ---- steps ---- */

static void print_phases(struct emitter *e, const struct report *r, const struct report_step *s, int64_t *next) {
    emit_list(e, "phases", NULL, LOOK_HIDDEN);
    while (*next < r->n_phases && r->phases[*next].step < s->index) ++*next;
    for (; *next < r->n_phases && r->phases[*next].step == s->index; ++*next) {
        const struct report_phase_row *p = &r->phases[*next];
        emit_object(e, "", NULL, LOOK_FIELDS);
        emit_text(e, "name", NULL, p->name);
        report_print_int(e, "micro_batch", NULL, UNIT_NONE, p->micro_batch);
        report_print_int(e, "start_ns", NULL, UNIT_NS, p->start_ns);
        report_print_int(e, "end_ns", NULL, UNIT_NS, p->end_ns);
        emit_end(e);
    }
    emit_end(e);
}

static void print_rates(struct emitter *e, const struct report *r, const struct report_step *s) {
    double ns = s->ns == REPORT_UNKNOWN ? 0 : (double)s->ns;
    emit_real(e, NULL, "rate", UNIT_FLOPS_PER_S,
              ns > 0 && !s->flops.gemm.uncounted ? (double)s->flops.gemm.least / ns * 1e9 : NAN);
    emit_real(e, "mfu", at_best(r, "MFU", "MFU at best"), UNIT_SHARE, s->mfu);
    emit_real(e, "hfu", NULL, UNIT_SHARE, s->hfu);
    emit_object(e, "mfu_by_convention", NULL, LOOK_HIDDEN);
    for (int c = 0; c < REPORT_CONVENTIONS; c++)
        emit_real(e, report_convention_names[c], NULL, UNIT_SHARE, s->by_convention[c]);
    emit_end(e);
}

static void print_step(struct emitter *e, const struct report *r, const struct report_step *s, int64_t *next_phase) {
    emit_object(e, "", NULL, LOOK_FIELDS);
    emit_int(e, "index", "step", UNIT_NONE, s->index);
    report_print_int(e, "start_ns", NULL, UNIT_NS, s->start_ns);
    report_print_int(e, "end_ns", NULL, UNIT_NS, s->end_ns);
    report_print_int(e, "device_start_ns", NULL, UNIT_NS, s->device_start_ns);
    report_print_int(e, "device_end_ns", NULL, UNIT_NS, s->device_end_ns);
    report_print_int(e, NULL, "time", UNIT_NS, s->ns);
    emit_bool(e, "complete", NULL, s->complete);
    emit_text(e, "found_by", NULL, s->found_by[0] ? s->found_by : NULL);
    report_print_int(e, "tokens", NULL, UNIT_NONE, s->tokens);
    report_print_int(e, "micro_batches", NULL, UNIT_NONE, s->micro_batches);
    print_phases(e, r, s, next_phase);
    report_print_flops(e, r, &s->flops);
    print_rates(e, r, s);
    emit_object(e, "memory", NULL, LOOK_FIELDS);
    emit_int(e, "peak_bytes", "peak memory", UNIT_BYTES, s->memory.peak_bytes);
    report_print_memory(e, &s->memory, "at_peak", NULL, LOOK_HIDDEN);
    emit_end(e);
    emit_end(e);
}

static void print_steps(struct emitter *e, const struct report *r) {
    int64_t next_phase = 0;
    emit_list(e, "steps", r->n_steps ? "Steps (FLOPs of matrix products by phase)" : NULL,
              r->n_steps ? LOOK_TABLE : LOOK_HIDDEN);
    for (int64_t i = 0; i < r->n_steps; i++) print_step(e, r, &r->steps[i], &next_phase);
    emit_end(e);
}

/* ---- the rest ---- */

static void print_block(struct emitter *e, sqlite3_stmt *st) {
    emit_object(e, "", NULL, LOOK_FIELDS);
    report_print_int(e, "id", "id", UNIT_NONE, report_column(st, 0));
    report_print_int(e, "offset", NULL, UNIT_BYTES, report_column(st, 1));
    report_print_int(e, "bytes", "bytes", UNIT_BYTES, report_column(st, 2));
    emit_text(e, "class", "class", (const char *)sqlite3_column_text(st, 3));
    emit_real(e, "confidence", "confidence", UNIT_NONE,
              sqlite3_column_type(st, 4) == SQLITE_NULL ? NAN : sqlite3_column_double(st, 4));
    emit_text(e, "rule", "rule", (const char *)sqlite3_column_text(st, 5));
    report_print_int(e, "alloc_ns", NULL, UNIT_NS, report_column(st, 6));
    report_print_int(e, "free_ns", NULL, UNIT_NS, report_column(st, 7));
    emit_end(e);
}

/* One entry for each range of an allocation that has a class of its own; ns are those of the class. */
static int print_blocks(struct emitter *e, struct report *r, char *err, size_t err_len) {
    if (emit_for_people(e)) return 0; /* a long run has a hundred thousand of them */
    sqlite3_stmt *st = report_prepare(
        r,
        "SELECT a.id, coalesce(c.offset, 0), coalesce(c.bytes, a.bytes), coalesce(c.class, 'unknown'), c.confidence,"
        " coalesce(c.rule, 'not classified'), max(a.alloc_ns, coalesce(c.from_ns, a.alloc_ns)), coalesce(c.until_ns, "
        "a.free_ns)"
        " FROM alloc a LEFT JOIN alloc_class c ON c.alloc = a.id"
        " WHERE a.memory IN ('device', 'async', 'managed', 'array') ORDER BY 1, 2, 7",
        err, err_len);
    int rc;
    if (!st) return -1;
    emit_list(e, "blocks", NULL, LOOK_HIDDEN);
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) print_block(e, st);
    emit_end(e);
    return report_rows_end(r, st, rc, err, err_len);
}

int report_print(struct emitter *e, struct report *r, char *err, size_t err_len) {
    int rc;
    emit_object(e, "", NULL, LOOK_FIELDS);
    emit_int(e, "schema", NULL, UNIT_NONE, 1);
    print_program(e, r);
    print_device(e, r);
    print_totals(e, r);
    print_memory(e, r);
    report_print_oom(e, r);
    print_steps(e, r);
    report_print_run(e, r);
    report_print_conventions(e, r);
    report_print_difference(e, r);
    if (why_print_median(e, r, err, err_len)) return -1;
    report_print_busy(e, r);
    report_print_functions(e, r);
    report_print_coverage(e, r);
    memory_books_print(e, r);
    emit_list(e, "notes", r->n_notes ? "Notes" : NULL, LOOK_LINES);
    for (int i = 0; i < r->n_notes; i++) emit_text(e, "", "", r->notes[i]);
    emit_end(e);
    rc = print_blocks(e, r, err, err_len);
    emit_end(e);
    return rc;
}
