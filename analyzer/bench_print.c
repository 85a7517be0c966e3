/* The document of `acct bench`. */
#include "analyzer/bench_print.h"

#include <inttypes.h>
#include <stdarg.h>

/* ---- words for people ---- */

static void seconds_words(char *out, size_t room, double s) {
    emit_human(out, room, UNIT_NS, 1e9 * s, 0);
}

static void rate_words(char *out, size_t room, const struct measured *x, double rate) {
    if (isnan(rate))
        snprintf(out, room, "unknown");
    else if (!strcmp(x->kind, "copy"))
        emit_human(out, room, UNIT_BYTES_PER_S, rate, 0);
    else if (bench_format(x->what) == ACCT_INT8)
        snprintf(out, room, rate < 1e12 ? "%.4g GOP/s" : "%.4g TOP/s", rate / (rate < 1e12 ? 1e9 : 1e12));
    else
        emit_human(out, room, UNIT_FLOPS_PER_S, rate, 0);
}

/* ---- one measurement ---- */

static void print_times(struct emitter *e, const struct measured *x) {
    char text[64], low[64], high[64], both[160];
    const int is = !*x->skipped;
    const struct {
        const char *key;
        double value;
    } reals[] = {
        {"median_s", x->median_s}, {"q1_s", x->q1_s}, {"q3_s", x->q3_s}, {"min_s", x->min_s}, {"max_s", x->max_s}};
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        emit_real(e, reals[i].key, NULL, UNIT_NONE, is ? reals[i].value : NAN);
    if (is)
        emit_int(e, "times", NULL, UNIT_NONE, x->times);
    else
        emit_null(e, "times", NULL);
    emit_text(e, "skipped", NULL, is ? NULL : x->skipped);
    if (!is || !emit_for_people(e)) return;
    seconds_words(text, sizeof text, x->median_s);
    seconds_words(low, sizeof low, x->q1_s);
    seconds_words(high, sizeof high, x->q3_s);
    snprintf(both, sizeof both, "%s .. %s", low, high);
    emit_text(e, NULL, "median", text);
    emit_text(e, NULL, "quartiles", both);
    emit_int(e, NULL, "times", UNIT_NONE, x->times);
}

/* Rate by the median, beside what was promised. key: of the rate for machines. */
static void print_rates(struct emitter *e, const struct bench_results *r, const struct measured *x, const char *key) {
    char text[64];
    double rate = *x->skipped ? NAN : bench_amount(x) / x->median_s, promised = bench_promised(r, x);
    int integer = !strcmp(x->kind, "gemm") && bench_format(x->what) == ACCT_INT8, copy = !strcmp(x->kind, "copy");
    emit_real(e, key, NULL, copy ? UNIT_BYTES_PER_S : UNIT_FLOPS_PER_S, integer ? NAN : rate);
    if (!strcmp(x->kind, "gemm")) emit_real(e, "ops_per_s", NULL, UNIT_NONE, integer ? rate : NAN);
    emit_real(e, "promised", NULL, UNIT_NONE, promised);
    rate_words(text, sizeof text, x, rate);
    emit_text(e, NULL, "achieved", text);
    rate_words(text, sizeof text, x, promised);
    emit_text(e, NULL, "promised", isnan(promised) ? NULL : text);
    emit_real(e, "share", "share", UNIT_SHARE, rate / promised);
}

/* ---- tables ---- */

static int shown(const struct emitter *e, const struct measured *x, const char *kind) {
    return !strcmp(x->kind, kind) && (!emit_for_people(e) || !*x->skipped); /* people find the others in the notes */
}

static void print_size(struct emitter *e, const char *key, int64_t n) {
    if (n)
        emit_int(e, key, NULL, UNIT_NONE, n);
    else
        emit_null(e, key, NULL);
}

static void print_products(struct emitter *e, const struct bench_results *r) {
    char size[80];
    emit_list(e, "gemm", "Matrix products", LOOK_TABLE);
    for (int i = 0; i < r->n; i++) {
        const struct measured *x = &r->rows[i];
        if (!shown(e, x, "gemm")) continue;
        snprintf(size, sizeof size, "%" PRId64 " x %" PRId64 " x %" PRId64, x->m, x->n, x->k);
        emit_object(e, "", NULL, LOOK_FIELDS);
        emit_text(e, "dtype", "dtype", x->what);
        emit_text(e, "shape", "shape", x->part);
        print_size(e, "m", x->m);
        print_size(e, "n", x->n);
        print_size(e, "k", x->k);
        emit_text(e, NULL, "m x n x k", size);
        print_times(e, x);
        print_rates(e, r, x, "flops_per_s");
        emit_end(e);
    }
    emit_end(e);
}

/* A format's highest rates. */
static void print_best(struct emitter *e, const struct bench_results *r, int format) {
    struct bench_best b = bench_best_product(r, format);
    char rate[64], median[64], promise[64], size[80];
    if (!b.fastest) return;
    const struct measured *x = b.fastest;
    double promised = bench_promised(r, x);
    rate_words(rate, sizeof rate, x, b.rate);
    rate_words(median, sizeof median, x, b.median_rate);
    rate_words(promise, sizeof promise, x, promised);
    snprintf(size, sizeof size, "%" PRId64 " x %" PRId64 " x %" PRId64, x->m, x->n, x->k);
    emit_object(e, "", NULL, LOOK_FIELDS);
    emit_text(e, "dtype", "dtype", bench_format_name(format));
    emit_real(e, "median_rate", NULL, UNIT_NONE, b.median_rate);
    emit_text(e, NULL, "highest median", median);
    emit_real(e, "rate", NULL, UNIT_NONE, b.rate);
    emit_text(e, NULL, "fastest product", rate);
    emit_int(e, "m", NULL, UNIT_NONE, x->m);
    emit_int(e, "n", NULL, UNIT_NONE, x->n);
    emit_int(e, "k", NULL, UNIT_NONE, x->k);
    emit_text(e, NULL, "of m x n x k", size);
    emit_real(e, "promised", NULL, UNIT_NONE, promised);
    emit_text(e, NULL, "promised", isnan(promised) ? NULL : promise);
    emit_real(e, "share", "share of it", UNIT_SHARE, b.rate / promised);
    emit_end(e);
}

static void print_peaks(struct emitter *e, const struct bench_results *r) {
    int any = 0;
    for (int i = 0; i < r->n; i++) any |= bench_is(&r->rows[i], "gemm");
    emit_list(e, "peaks", any ? "Promised against achieved, by number format" : NULL, LOOK_TABLE);
    for (int f = 0; f < ACCT_FORMATS; f++)
        if (bench_format_name(f)) print_best(e, r, f);
    emit_end(e);
}

static void print_copies(struct emitter *e, const struct bench_results *r) {
    static const char *const names[][2] = {{"h2d", "host to device"},
                                           {"d2h", "device to host"},
                                           {"d2d", "within the device"},
                                           {"peer", "to another device"}};
    emit_list(e, "copy", "Copies (within the device: bytes read and written)", LOOK_TABLE);
    for (int i = 0; i < r->n; i++) {
        const struct measured *x = &r->rows[i];
        const char *name = x->what;
        if (!shown(e, x, "copy")) continue;
        for (size_t k = 0; k < sizeof names / sizeof *names; k++)
            if (!strcmp(names[k][0], x->what)) name = names[k][1];
        emit_object(e, "", NULL, LOOK_FIELDS);
        emit_text(e, "way", NULL, x->what);
        emit_text(e, NULL, "copy", name);
        emit_text(e, "how", "how", x->part);
        emit_int(e, "bytes", NULL, UNIT_BYTES, x->bytes);
        char text[64];
        emit_human_bytes(text, sizeof text, x->bytes);
        emit_text(e, NULL, "size", text);
        print_times(e, x);
        print_rates(e, r, x, "bytes_per_s");
        emit_end(e);
    }
    emit_end(e);
}

/* Of launches and allocations time is all there is. */
static void print_costs(struct emitter *e, const struct bench_results *r, const char *kind, const char *title,
                        const char *what) {
    char text[64];
    emit_list(e, kind, title, LOOK_TABLE);
    for (int i = 0; i < r->n; i++) {
        const struct measured *x = &r->rows[i];
        if (!shown(e, x, kind)) continue;
        emit_object(e, "", NULL, LOOK_FIELDS);
        emit_text(e, what, what, x->what);
        if (x->bytes) {
            emit_int(e, "bytes", NULL, UNIT_BYTES, x->bytes);
            emit_human_bytes(text, sizeof text, x->bytes);
            emit_text(e, NULL, "size", text);
        }
        print_times(e, x);
        emit_end(e);
    }
    emit_end(e);
}

/* ---- the rest ---- */

static void print_int(struct emitter *e, const char *key, const char *label, enum emit_unit unit, int64_t n) {
    if (n > 0)
        emit_int(e, key, label, unit, n);
    else
        emit_null(e, key, NULL);
}

static void print_device(struct emitter *e, const struct bench_results *r) {
    const struct bench_device *d = &r->device;
    char capability[32];
    emit_object(e, "device", "Device", LOOK_FIELDS);
    emit_text(e, "name", "name", *d->name ? d->name : NULL);
    emit_text(e, "clock", NULL, *d->virtual_profile ? "cpu" : "gpu");
    if (*d->virtual_profile)
        emit_text(e, NULL, "measured is", "this machine's processor, as the virtual GPU runs programs");
    emit_text(e, "data_sheet", NULL, d->in_table ? d->sheet.alias : NULL);
    emit_text(e, "promised_by", "promised by", d->in_table ? d->sheet.source : *d->peak_source ? d->peak_source : NULL);
    print_int(e, "sm", NULL, UNIT_NONE, d->sm);
    snprintf(capability, sizeof capability, "%d.%d", d->sm / 10, d->sm % 10);
    emit_text(e, NULL, "compute capability", capability);
    print_int(e, "multiprocessors", "multiprocessors", UNIT_NONE, d->sms);
    print_int(e, "total_bytes", "memory", UNIT_BYTES, d->total_bytes);
    print_int(e, "free_bytes", "free at first", UNIT_BYTES, d->free_bytes);
    print_int(e, "devices", d->devices > 1 ? "devices" : NULL, UNIT_NONE, d->devices);
    print_int(e, "runtime_version", NULL, UNIT_NONE, d->runtime);
    print_int(e, "driver_version", NULL, UNIT_NONE, d->driver);
    print_int(e, "cublas_version", NULL, UNIT_NONE, d->cublas);
    emit_end(e);
}

/* The figures of the profile file, as they are read from it. */
static void print_saved(struct emitter *e, const struct acct_device *d, const char *path) {
    if (!d) {
        emit_null(e, "saved", NULL);
        return;
    }
    emit_object(e, "saved", NULL, LOOK_HIDDEN);
    emit_text(e, "path", NULL, path);
    emit_text(e, "source", NULL, d->source);
    emit_object(e, "peaks", NULL, LOOK_HIDDEN);
    for (int f = 0; f < ACCT_FORMATS; f++)
        if (f == ACCT_FP64_MATRIX || bench_format_name(f))
            emit_real(e, acct_format_name(f), NULL, UNIT_NONE, d->peak[f]);
    emit_end(e);
    emit_real(e, "bandwidth", NULL, UNIT_NONE, d->bytes_per_s);
    emit_real(e, "host_link", NULL, UNIT_NONE, d->host_bytes_per_s);
    emit_real(e, "peer_link", NULL, UNIT_NONE, d->peer_bytes_per_s);
    emit_real(e, "launch_s", NULL, UNIT_NONE, d->launch_s);
    emit_int(e, "total_bytes", NULL, UNIT_NONE, (__int128)d->total_bytes);
    emit_int(e, "reserved_bytes", NULL, UNIT_NONE, (__int128)d->reserved_bytes);
    emit_end(e);
}

__attribute__((format(printf, 2, 3))) static void note(struct emitter *e, const char *format, ...) {
    char text[4400];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    emit_text(e, "", "", text);
}

static int has(const struct bench_results *r, const char *kind) {
    for (int i = 0; i < r->n; i++)
        if (bench_is(&r->rows[i], kind)) return 1;
    return 0;
}

static void print_skipped(struct emitter *e, const struct measured *x) {
    if (!*x->skipped) return;
    if (x->m)
        note(e, "Not measured: %s %s %s %" PRId64 " x %" PRId64 " x %" PRId64 ": %s.", x->kind, x->what, x->part, x->m,
             x->n, x->k, x->skipped);
    else if (x->bytes)
        note(e, "Not measured: %s %s %s %" PRId64 " bytes: %s.", x->kind, x->what, x->part, x->bytes, x->skipped);
    else
        note(e, "Not measured: %s %s: %s.", x->kind, x->what, x->skipped);
}

/* Formats of which the saved profile has no figure of its own: there was no time, or they failed. */
static void note_missing(struct emitter *e, const struct bench_results *r) {
    char names[128] = "";
    size_t n = 0;
    for (int f = 0; f < ACCT_FORMATS; f++)
        if (bench_format_name(f) && !bench_best_product(r, f).fastest && !bench_not_supported(r, f))
            n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", n ? ", " : "", bench_format_name(f));
    if (n)
        note(e, "The profile has no figure of %s, not measured: %s.", names,
             r->device.in_table ? "the data sheet's stand for them" : "they count as unknown there");
}

static void print_notes(struct emitter *e, const struct bench_results *r, double wanted, const char *saved_path) {
    const struct bench_device *d = &r->device;
    emit_list(e, "notes", "Notes", LOOK_LINES);
    if (r->late)
        note(e, "Cut off after %.4g s: the measurement under way and those behind it are missing.", wanted);
    else
        note(e, "Measured for %.1f s of %.4g s.", r->seconds, wanted);
    note(e, "Times are medians; quartiles are the middle half of the times.");
    if (has(r, "gemm"))
        note(e,
             "Matrices hold random numbers, about normal: with zeros a GPU draws less power, clocks higher and shows "
             "rates that no training reaches. Products are dense. qkv, up, down: layers of a transformer with "
             "its tokens as m; forward, input-gradient, weight-gradient: the three products that training makes of "
             "each (m, n, k as cuBLAS has them).");
    if (*d->virtual_profile)
        note(e, "Promised is what products and copies reached on this machine before (measured once and kept), no data "
                "sheet.");
    else if (!d->in_table)
        note(e, "'%s' is not in the table of devices, so nothing is promised; `acct help devices` lists them.",
             d->name);
    if (d->in_table && has(r, "copy"))
        note(e, "Promised for copies is the link's own rate, which copies do not quite reach.");
    if (has(r, "copy"))
        note(e, "Copies of 1 MiB within the device stay in its caches; the large ones go through memory.");
    if (has(r, "alloc"))
        note(e,
             "Allocations are calls alone: nothing touches the memory. cudaMallocAsync takes from a pool that already "
             "has it.");
    if (r->left)
        note(e, "%d measurement(s) were left out: the time was over; give more --seconds, or --only.", r->left);
    for (int i = 0; i < r->n; i++) print_skipped(e, &r->rows[i]);
    if (saved_path) note_missing(e, r);
    if (saved_path)
        note(e, "The profile is in %s: acct run --vgpu=%s, acct report --peaks %s.", saved_path, saved_path,
             saved_path);
    emit_end(e);
}

void bench_print(struct emitter *e, const struct bench_results *r, double wanted_seconds,
                 const struct acct_device *saved, const char *saved_path) {
    emit_object(e, "", NULL, LOOK_FIELDS);
    emit_int(e, "schema", NULL, UNIT_NONE, 1);
    print_device(e, r);
    emit_real(e, "seconds", NULL, UNIT_NONE, r->late ? NAN : r->seconds);
    emit_bool(e, "complete", NULL, !r->late);
    if (r->late)
        emit_null(e, "left_out", NULL);
    else
        emit_int(e, "left_out", NULL, UNIT_NONE, r->left);
    print_peaks(e, r);
    if (has(r, "gemm") || !emit_for_people(e)) print_products(e, r);
    if (has(r, "copy") || !emit_for_people(e)) print_copies(e, r);
    if (has(r, "launch") || !emit_for_people(e)) print_costs(e, r, "launch", "Launches of an empty kernel", "launch");
    if (has(r, "alloc") || !emit_for_people(e)) print_costs(e, r, "alloc", "Allocations and releases", "call");
    print_saved(e, saved, saved_path);
    print_notes(e, r, wanted_seconds, saved ? saved_path : NULL);
    emit_end(e);
}
