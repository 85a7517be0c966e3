/* The report's model: program, device, totals, steps; small helpers that its other parts share. */
#include "analyzer/memory_books.h"
#include "analyzer/memory_sweep.h"
#include "analyzer/report_model.h"
#include "analyzer/report_convention.h"
#include "analyzer/report_flops_rules.h"
#include "analyzer/report_oom.h"
#include "trace/store.h"

#include "acct/device_table.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const report_class_names[REPORT_CLASSES] = {"param",           "grad",   "optimizer", "activation",
                                                        "activation_grad", "input",  "workspace", "temporary",
                                                        "other",           "unknown"};

int report_class_of(const char *name) {
    for (int i = 0; name && i < REPORT_CLASSES; i++)
        if (!strcmp(name, report_class_names[i])) return i;
    return REPORT_UNKNOWN_CLASS;
}

/* ---- helpers ---- */

static void *need(void *p) {
    if (!p) {
        fputs("acct: out of memory while reading the trace\n", stderr);
        exit(1);
    }
    return p;
}

void *report_grow(void *array, int64_t n, size_t size) {
    if (n && (n & (n - 1))) return array; /* room is doubled at each power of two */
    return need(realloc(array, (size_t)(n ? 2 * n : 1) * size));
}

void report_note(struct report *r, const char *format, ...) {
    char *text;
    va_list ap;
    va_start(ap, format);
    if (vasprintf(&text, format, ap) < 0) text = NULL;
    va_end(ap);
    r->notes = report_grow(r->notes, r->n_notes, sizeof *r->notes);
    r->notes[r->n_notes++] = need(text);
}

sqlite3_stmt *report_prepare(struct report *r, const char *sql, char *err, size_t err_len) {
    sqlite3_stmt *st = NULL;
    if (sqlite3_prepare_v2(r->db, sql, -1, &st, NULL) == SQLITE_OK) return st;
    snprintf(err, err_len, "%s: cannot be read: %s; check it with: sqlite3 %s 'pragma integrity_check'", r->path,
             sqlite3_errmsg(r->db), r->path);
    return NULL;
}

int report_rows_end(struct report *r, sqlite3_stmt *st, int rc, char *err, size_t err_len) {
    if (rc != SQLITE_DONE)
        snprintf(err, err_len, "%s: cannot be read: %s; check it with: sqlite3 %s 'pragma integrity_check'", r->path,
                 sqlite3_errmsg(r->db), r->path);
    sqlite3_finalize(st);
    return rc == SQLITE_DONE ? 0 : -1;
}

int64_t report_column(sqlite3_stmt *st, int column) {
    return sqlite3_column_type(st, column) == SQLITE_NULL ? REPORT_UNKNOWN : sqlite3_column_int64(st, column);
}

char *report_column_text(sqlite3_stmt *st, int column) {
    const unsigned char *text = sqlite3_column_text(st, column);
    return text ? need(strdup((const char *)text)) : NULL;
}

/* One row of integers; a table without rows leaves REPORT_UNKNOWN. */
static int one_row(struct report *r, const char *sql, int64_t *out, int n, char *err, size_t err_len) {
    sqlite3_stmt *st = report_prepare(r, sql, err, err_len);
    int rc;
    if (!st) return -1;
    for (int i = 0; i < n; i++) out[i] = REPORT_UNKNOWN;
    rc = sqlite3_step(st);
    if (rc == SQLITE_ROW) {
        for (int i = 0; i < n; i++) out[i] = report_column(st, i);
        rc = sqlite3_step(st);
    }
    return report_rows_end(r, st, rc, err, err_len);
}

/* ---- parts ---- */

static int load_program(struct report *r, char *err, size_t err_len) {
    int64_t v[2];
    int rc;
    if (one_row(r, "SELECT pid, exit_code FROM process ORDER BY id LIMIT 1", v, 2, err, err_len)) return -1;
    r->pid = v[0];
    r->exit_code = v[1];
    sqlite3_stmt *st = report_prepare(
        r, "SELECT value FROM json_each((SELECT argv FROM process WHERE json_valid(argv) ORDER BY id LIMIT 1))", err,
        err_len);
    if (!st) return -1;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        char *text = report_column_text(st, 0);
        r->argv = report_grow(r->argv, r->n_argv, sizeof *r->argv);
        r->argv[r->n_argv++] = text ? text : need(strdup(""));
    }
    return report_rows_end(r, st, rc, err, err_len);
}

/* Whether the recorded peaks are a table's: the virtual GPU stood for a device of devices.def, whose row says more. */
static int of_data_sheet(const char *source) {
    return source && !strncmp(source, "data sheet: ", 12);
}

static char *source_words(const char *source) {
    char *text;
    if (source && (!strncmp(source, "profile file: ", 14) || !strncmp(source, "given ", 6)))
        return need(strdup(source));
    return asprintf(&text, "measured%s%s", source ? ": " : "", source ? source : "") < 0 ? NULL : text;
}

/* Of a profile or another device. fp64 products run on matrix units where there are some. */
static void take_device_peaks(struct report *r, const struct acct_device *d, const char *from) {
    static const int formats[PEAK_FORMATS] = {
        [PEAK_FP64] = ACCT_FP64, [PEAK_FP32] = ACCT_FP32, [PEAK_TF32] = ACCT_TF32,
        [PEAK_BF16] = ACCT_BF16, [PEAK_FP16] = ACCT_FP16, [PEAK_FP16_ACC16] = ACCT_FP16_ACC16,
        [PEAK_FP8] = ACCT_FP8,   [PEAK_FP4] = ACCT_FP4};
    for (int f = 0; f < PEAK_FORMATS; f++) r->peak[f] = d->peak[formats[f]];
    if (!isnan(d->peak[ACCT_FP64_MATRIX])) r->peak[PEAK_FP64] = d->peak[ACCT_FP64_MATRIX];
    r->fp64_vector = d->peak[ACCT_FP64];
    r->bytes_per_s = d->bytes_per_s;
    if (asprintf(&r->peak_source, "given with --peaks %s: %s", from, d->source) < 0) r->peak_source = NULL;
    report_note(r, "Peaks and bandwidth are %s's (--peaks), not those of the trace's device.", from);
}

/* Recorded peaks first (measured, or of a profile file), then the data sheet's; what was given on the command line
 * beats both. */
static void choose_peaks(struct report *r, const struct report_options *options,
                         const double measured_peak[PEAK_FORMATS], double measured_bytes_per_s, char *measured) {
    struct device_spec spec;
    int i = devices_find(r->device_name), given = 0, any = 0;
    for (int f = 0; f < PEAK_FORMATS; f++) r->peak[f] = NAN;
    for (int f = 0; f < PEAK_FORMATS; f++) any |= measured_peak[f] > 0;
    r->bytes_per_s = r->fp64_vector = NAN;
    if (options->device) {
        take_device_peaks(r, options->device, options->device_from);
    } else if (any && !(of_data_sheet(measured) && i >= 0)) {
        if (measured_bytes_per_s > 0) r->bytes_per_s = measured_bytes_per_s;
        memcpy(r->peak, measured_peak, sizeof r->peak);
        r->fp64_vector = r->peak[PEAK_FP64];
        r->peak_source = source_words(measured);
    } else if (i >= 0) {
        devices_get(i, &spec);
        memcpy(r->peak, spec.flops, sizeof r->peak);
        r->fp64_vector = spec.fp64_vector;
        r->bytes_per_s = spec.bytes_per_s;
        r->peak_source = need(strdup(spec.source));
    }
    for (int f = 0; f < PEAK_FORMATS; f++) {
        if (isnan(options->peak[f])) continue;
        r->peak[f] = options->peak[f];
        given = 1;
    }
    if (!given) return;
    free(r->peak_source);
    r->peak_source = need(strdup("given with --peak-tflops"));
}

static int load_device(struct report *r, const struct report_options *options, char *err, size_t err_len) {
    /* The device table of an older acct has no bytes_per_s: the name is then the outer one, which is NULL. */
    sqlite3_stmt *st =
        report_prepare(r,
                       "SELECT name, total_bytes, cc_major, cc_minor, peak_source,"
                       " (SELECT count(DISTINCT ordinal) FROM device), peak_fp32, peak_fp64, peak_tf32, peak_bf16,"
                       " peak_fp16, peak_fp8, clock, (SELECT bytes_per_s FROM device x WHERE x.id = d.id)"
                       " FROM device d, (SELECT NULL AS bytes_per_s) ORDER BY process, ordinal LIMIT 1",
                       err, err_len);
    static const int columns[] = {PEAK_FP32, PEAK_FP64, PEAK_TF32, PEAK_BF16, PEAK_FP16, PEAK_FP8};
    double peak[PEAK_FORMATS];
    double bytes_per_s = NAN;
    char *measured = NULL;
    int rc;
    for (int f = 0; f < PEAK_FORMATS; f++) peak[f] = NAN;
    if (!st) return -1;
    r->device_total_bytes = r->cc_major = r->cc_minor = REPORT_UNKNOWN;
    if ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        r->device_name = report_column_text(st, 0);
        r->device_total_bytes = report_column(st, 1);
        r->cc_major = report_column(st, 2);
        r->cc_minor = report_column(st, 3);
        measured = report_column_text(st, 4);
        r->devices = report_column(st, 5);
        for (int i = 0; i < (int)(sizeof columns / sizeof *columns); i++)
            if (sqlite3_column_double(st, 6 + i) > 0) peak[columns[i]] = sqlite3_column_double(st, 6 + i);
        const char *clock = (const char *)sqlite3_column_text(st, 12);
        if (sqlite3_column_double(st, 13) > 0) bytes_per_s = sqlite3_column_double(st, 13);
        if (!clock || strcmp(clock, "model"))
            peak[PEAK_FP16_ACC16] = peak[PEAK_FP16]; /* this machine, as virtual GPU, sums both in fp32 */
        rc = sqlite3_step(st);
    }
    choose_peaks(r, options, peak, bytes_per_s, measured);
    free(measured);
    return report_rows_end(r, st, rc, err, err_len);
}

/* 1: the analysis has counted the calls. */
static int calls_are_counted(struct report *r) {
    sqlite3_stmt *st;
    if (sqlite3_prepare_v2(r->db, "SELECT EXISTS(SELECT 1 FROM call_sum)", -1, &st, NULL)) return 0;
    int yes = sqlite3_step(st) == SQLITE_ROW && sqlite3_column_int(st, 0);
    sqlite3_finalize(st);
    return yes;
}

#define OTHER_TOTALS                                                                                        \
    " (SELECT count(*) FROM alloc), (SELECT coalesce(sum(records), 0) FROM lost),"                          \
    " (SELECT coalesce(sum(texts), 0) FROM lost), (SELECT coalesce(sum(records), 0) FROM lost WHERE reason" \
    " = 'ring full')"

static int load_totals(struct report *r, char *err, size_t err_len) {
    static const char of_calls[] =
        "SELECT count(*), coalesce(sum(kind = 'gemm' AND status = 0), 0), coalesce(sum(status <> 0), 0),"
        " coalesce(sum(kind = 'launch' AND status = 0), 0)," OTHER_TOTALS " FROM op";
    static const char of_sums[] =
        "SELECT sum(calls), coalesce(sum((kind = 'gemm') * (calls - failed)), 0), sum(failed),"
        " coalesce(sum((kind = 'launch') * (calls - failed)), 0)," OTHER_TOTALS " FROM call_sum";
    int64_t v[8];
    if (one_row(r, calls_are_counted(r) ? of_sums : of_calls, v, 8, err, err_len)) return -1;
    r->ops = v[0];
    r->gemms = v[1];
    r->failed = v[2];
    r->launches = v[3];
    r->allocations = v[4];
    r->dropped = v[5];
    r->dropped_texts = v[6];
    r->dropped_ring = v[7];
    char *why = store_meta_text(r->db, "launches");
    if (why && !r->launches) {
        report_note(r, "Kernel launches: %s.", why);
        r->launches = REPORT_UNKNOWN;
    }
    free(why);
    return 0;
}

static int load_steps(struct report *r, char *err, size_t err_len) {
    sqlite3_stmt *st = report_prepare(r,
                                      "SELECT id, start_ns, end_ns, micro_batches, tokens, complete, device_start_ns, "
                                      "device_end_ns, found_by FROM step ORDER BY id",
                                      err, err_len);
    int rc;
    if (!st) return -1;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        r->steps = report_grow(r->steps, r->n_steps, sizeof *r->steps);
        struct report_step *s = &r->steps[r->n_steps++];
        memset(s, 0, sizeof *s);
        s->index = report_column(st, 0);
        s->start_ns = report_column(st, 1);
        s->end_ns = report_column(st, 2);
        s->micro_batches = report_column(st, 3);
        s->tokens = report_column(st, 4);
        s->complete = sqlite3_column_int(st, 5);
        s->device_start_ns = report_column(st, 6);
        s->device_end_ns = report_column(st, 7);
        const char *found_by = (const char *)sqlite3_column_text(st, 8);
        snprintf(s->found_by, sizeof s->found_by, "%s", found_by ? found_by : "");
    }
    return report_rows_end(r, st, rc, err, err_len);
}

static int load_phases(struct report *r, char *err, size_t err_len) {
    sqlite3_stmt *st =
        report_prepare(r,
                       "SELECT step, micro_batch, start_ns, end_ns, name FROM phase"
                       " WHERE name IN ('forward', 'backward', 'optimizer') ORDER BY step, start_ns, first_op",
                       err, err_len);
    int rc;
    if (!st) return -1;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        r->phases = report_grow(r->phases, r->n_phases, sizeof *r->phases);
        struct report_phase_row *p = &r->phases[r->n_phases++];
        p->step = report_column(st, 0);
        p->micro_batch = report_column(st, 1);
        p->start_ns = report_column(st, 2);
        p->end_ns = report_column(st, 3);
        snprintf(p->name, sizeof p->name, "%s", (const char *)sqlite3_column_text(st, 4));
    }
    return report_rows_end(r, st, rc, err, err_len);
}

/* ---- notes ---- */

static void note_losses(struct report *r) {
    if (r->dropped)
        report_note(r, "%lld calls were not recorded (see the table `lost`): the figures are lower bounds%s.",
                    (long long)r->dropped, r->dropped_ring ? "; a larger ACCT_RING_SLOTS avoids it" : "");
    if (r->dropped_texts)
        report_note(r, "%lld names or strings were not recorded (table `lost`).", (long long)r->dropped_texts);
    if (r->state && !strcmp(r->state, "truncated"))
        report_note(r, "The trace is truncated: %s.", r->reason ? r->reason : "its writer gave no reason");
    if (r->failed)
        report_note(r,
                    "%lld CUDA calls returned an error; they cost nothing here: acct query TRACE 'select * from "
                    "op_named where status <> 0'.",
                    (long long)r->failed);
}

/* Kernels that follow pointers which lie in memory: lists of tensors, of which a launch tells only where the list is.
 */
static int has_beyond(struct report *r) {
    sqlite3_stmt *st;
    if (sqlite3_prepare_v2(r->db, "SELECT EXISTS(SELECT 1 FROM buffer_set WHERE slot = '*')", -1, &st, NULL))
        return 1; /* op_buffer is a table in an older trace: it is asked itself */
    int has = sqlite3_step(st) != SQLITE_ROW || sqlite3_column_int(st, 0);
    sqlite3_finalize(st);
    return has;
}

static int note_beyond(struct report *r, char *err, size_t err_len) {
    if (!has_beyond(r)) return 0;
    sqlite3_stmt *st = report_prepare(r,
                                      "SELECT count(*), min(" REPORT_FUNCTION_NAME
                                      "), count(DISTINCT l.kernel) FROM op_buffer b JOIN op ON op.id = "
                                      "b.op " REPORT_FUNCTION_JOIN " WHERE b.slot = '*' AND b.mode = '?'",
                                      err, err_len);
    int rc;
    if (!st) return -1;
    if ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        const char *name = (const char *)sqlite3_column_text(st, 1);
        char text[80];
        report_short_name(name ? name : "", text, sizeof text);
        if (sqlite3_column_int64(st, 0))
            report_note(r,
                        "%lld launch(es) (%s%s) write to memory that cannot be told, such as through pointers that "
                        "lie in memory: "
                        "steps and classes may be wrong.",
                        (long long)sqlite3_column_int64(st, 0), text, sqlite3_column_int64(st, 2) > 1 ? ", …" : "");
        rc = sqlite3_step(st);
    }
    return report_rows_end(r, st, rc, err, err_len);
}

static const char *first_why(const struct report *r) {
    for (int64_t i = 0; i < r->n_uncounted; i++)
        if (r->uncounted[i].why) return r->uncounted[i].why;
    return "no reason is known";
}

/* What must be known of the kernels' FLOPs. */
static void note_prices(struct report *r) {
    sqlite3_int64 hurried = 0;
    if (r->launches_uncounted)
        report_note(r,
                    "%lld kernel launch(es) have no FLOP count (%s): totals.flops and other FLOPs are unknown; MFU "
                    "lacks their products, should they have any.",
                    (long long)r->launches_uncounted, first_why(r));
    if (r->flops.gemm.user)
        report_note(r, "Products, rates, MFU and conventions include what the user's rules priced as products.");
    if (r->flops.gemm.sampled || r->flops.gemm.unbounded || r->flops.gemm.most != r->flops.gemm.least)
        report_note(r, "FLOPs of products in kernels are in part estimates or lower bounds, and so is MFU.");
    if (!store_meta_int(r->db, "prices_cut_short", &hurried) && hurried > 0)
        report_note(r,
                    "%lld kind(s) of launches are priced less exactly than they could be: the analysis' effort was "
                    "spent.",
                    (long long)hurried);
}

/* What the analysis says of the program's markers, and whose rules gave classes. */
static void note_marks(struct report *r) {
    char *text = store_meta_text(r->db, "mark_notes"), *save = NULL;
    for (char *line = text ? strtok_r(text, "\n", &save) : NULL; line; line = strtok_r(NULL, "\n", &save))
        report_note(r, "%s", line);
    free(text);
    text = store_meta_text(r->db, "user_rules");
    if (text) report_note(r, "The trace was analysed with the rules of %s.", text);
    free(text);
}

static void note_limits(struct report *r) {
    int64_t cut = 0;
    for (int64_t i = 0; i < r->n_steps; i++) cut += !r->steps[i].complete;
    if (cut)
        report_note(r, "%lld step(s) were cut off before their optimizer update, or not recorded as a whole.",
                    (long long)cut);
    report_note_devices(r);
    if (!r->n_steps && r->ops)
        report_note(r, "No training step was found: no update of parameters that matrix products read.");
    if (r->n_steps && !strcmp(r->steps[0].found_by, "repeats"))
        report_note(r, "No update of parameters that matrix products read was found: steps are products that come "
                       "again; what of them is forward or backward is not known.");
}

int report_over_peak(const struct report *r, char *out, size_t room) {
    double highest = 1;
    const char *way = NULL;
    int64_t step = 0;
    for (int64_t i = 0; i < r->n_steps; i++)
        for (int c = -1; c < REPORT_CONVENTIONS; c++) {
            double share = c < 0 ? r->steps[i].hfu : r->steps[i].by_convention[c];
            if (!(share > highest)) continue;
            highest = share;
            step = r->steps[i].index;
            way = c < 0 ? "products executed" : report_convention_names[c];
        }
    if (way)
        snprintf(out, room, "a step reached %.1f %% of the peak (step %lld, %s)", 100 * highest, (long long)step, way);
    return way != NULL;
}

void report_note_peak(struct report *r) {
    char over[128];
    int some = 0;
    for (int f = 0; f < PEAK_FORMATS; f++) some |= r->peak[f] > 0;
    if (!some && r->device_name)
        report_note(
            r,
            "peak unknown: '%s' is not in the table of devices, so there is no MFU; give its peak with --peak-tflops.",
            r->device_name);
    if (!r->device_name) report_note(r, "No device was recorded, so there is no peak.");
    for (int f = 0; f < PEAK_FORMATS && some; f++) {
        int used = 0;
        for (int64_t i = 0; i < r->n_steps; i++)
            used |= r->steps[i].flops.by_format[f] > 0 || r->steps[i].flops.recompute_by_format[f] > 0;
        if (used && !(r->peak[f] > 0))
            report_note(r, "MFU unknown: products ran in %s, of which no peak is known; give it with --peak-tflops.",
                        devices_format_name(f));
    }
    if (report_over_peak(r, over, sizeof over))
        report_note(r,
                    "Warning: %s. Usual causes: a peak that is too low (another clock, "
                    "the wrong number format, the dense one where products use structured sparsity),"
                    " work that was counted and not done (tied or doubly counted parameters, sliding windows), calls "
                    "whose device work ended after the step.",
                    over);
}

int report_load(struct report *r, const struct report_options *options, char *err, size_t err_len) {
    r->flops_rules = options->flops_rules;
    if (r->flops_rules && flops_rules_apply(r, options->flops_rules, err, err_len)) return -1;
    if (load_program(r, err, err_len) || load_device(r, options, err, err_len) || load_totals(r, err, err_len) ||
        load_steps(r, err, err_len) || load_phases(r, err, err_len) || report_load_times(r, err, err_len) ||
        report_load_memory(r, err, err_len) || report_load_device_peaks(r, err, err_len) ||
        report_load_flops(r, err, err_len) || report_load_parameters(r, err, err_len) || note_beyond(r, err, err_len) ||
        report_load_oom(r, err, err_len) || memory_books_load(r, err, err_len))
        return -1;
    report_compute_rates(r);
    note_losses(r);
    note_marks(r);
    note_prices(r);
    note_limits(r);
    return 0;
}

void report_close(struct report *r) {
    report_free_oom(r);
    memory_books_free(r);
    if (r->sweep) memory_sweep_free(r->sweep), free(r->sweep);
    report_free_conventions(r);
    for (int i = 0; i < r->n_argv; i++) free(r->argv[i]);
    for (int i = 0; i < r->n_notes; i++) free(r->notes[i]);
    for (int64_t i = 0; i < r->n_uncounted; i++) free(r->uncounted[i].name), free(r->uncounted[i].why);
    for (int64_t i = 0; i < r->n_functions; i++) free(r->functions[i].name);
    free(r->functions), free(r->device_clock), free(r->profile);
    free(r->argv), free(r->notes), free(r->uncounted), free(r->steps), free(r->phases);
    free(r->busy), free(r->device_peaks), free(r->state), free(r->reason), free(r->device_name), free(r->peak_source);
    sqlite3_close(r->db);
    memset(r, 0, sizeof *r);
}
