#include "analyzer/bench_results.h"

#include "analyzer/emitter.h"

#include <stddef.h>

void bench_begin(struct bench_results *r) {
    memset(r, 0, sizeof *r);
    for (int f = 0; f < ACCT_FORMATS; f++) r->device.known_peak[f] = NAN;
    r->device.known_bytes_per_s = NAN;
}

void bench_free(struct bench_results *r) {
    free(r->rows);
    r->rows = NULL;
    r->n = 0;
}

/* ---- lines ---- */

/* fp64 is measured once, by what a library makes of it; fp4, which has scales of blocks, is not. */
const char *bench_format_name(int format) {
    return format == ACCT_FP64_MATRIX || format == ACCT_FP4 ? NULL : acct_format_name(format);
}

int bench_format(const char *what) {
    for (int f = 0; f < ACCT_FORMATS; f++)
        if (bench_format_name(f) && !strcmp(bench_format_name(f), what)) return f;
    return -1;
}

static void take_text(char *out, size_t room, const char *value) {
    snprintf(out, room, "%.*s", (int)strcspn(value, "\n"), value);
}

/* By the driver's exact name. */
static void find_sheet(struct bench_device *d) {
    for (int i = 0; !d->in_table && !acct_device_get(i, &d->sheet); i++) d->in_table = !strcmp(d->sheet.name, d->name);
}

static void take_device(struct bench_results *r, const char *line) {
    struct bench_device *d = &r->device;
    const struct {
        const char *key;
        char *text;
        size_t room;
    } texts[] = {{MEASURED_NAME, d->name, sizeof d->name},
                 {MEASURED_VIRTUAL, d->virtual_profile, sizeof d->virtual_profile},
                 {MEASURED_PEAK_SOURCE, d->peak_source, sizeof d->peak_source},
                 {MEASURED_REFUSED, r->refused, sizeof r->refused},
                 {MEASURED_NO_DEVICE, r->no_device, sizeof r->no_device}};
    const struct {
        const char *key;
        int *value;
    } numbers[] = {{MEASURED_SM, &d->sm},           {MEASURED_SMS, &d->sms},
                   {MEASURED_CLOCK, &d->clock_khz}, {MEASURED_MEMORY_CLOCK, &d->memory_clock_khz},
                   {MEASURED_BUS, &d->bus_bits},    {MEASURED_DEVICES, &d->devices},
                   {MEASURED_PEER, &d->peer},       {MEASURED_RUNTIME, &d->runtime},
                   {MEASURED_DRIVER, &d->driver},   {MEASURED_CUBLAS, &d->cublas}};
    const struct {
        const char *key;
        int64_t *value;
    } amounts[] = {{MEASURED_TOTAL, &d->total_bytes}, {MEASURED_FREE, &d->free_bytes}, {MEASURED_L2, &d->l2_bytes}};
    const char *value;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (measured_device(line, texts[i].key, &value)) take_text(texts[i].text, texts[i].room, value);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (measured_device(line, numbers[i].key, &value)) *numbers[i].value = (int)strtol(value, NULL, 10);
    for (size_t i = 0; i < sizeof amounts / sizeof *amounts; i++)
        if (measured_device(line, amounts[i].key, &value)) *amounts[i].value = strtoll(value, NULL, 10);
    for (int f = 0; f < ACCT_FORMATS; f++) {
        char key[32];
        snprintf(key, sizeof key, MEASURED_PEAK "%s", bench_format_name(f) ? bench_format_name(f) : "");
        if (measured_device(line, key, &value)) d->known_peak[f] = strtod(value, NULL);
    }
    if (measured_device(line, MEASURED_BANDWIDTH, &value)) d->known_bytes_per_s = strtod(value, NULL);
    if (measured_device(line, MEASURED_NAME, &value)) find_sheet(d);
}

int bench_take_line(struct bench_results *r, const char *line) {
    struct measured x;
    if (!strncmp(line, "device ", 7)) {
        take_device(r, line);
    } else if (sscanf(line, "end seconds=%lf left=%d", &r->seconds, &r->left) == 2) {
        r->ended = 1;
    } else if (!measured_read(line, &x)) {
        r->rows = emit_alloc(r->rows, (size_t)(r->n + 1) * sizeof *r->rows);
        r->rows[r->n++] = x;
        return 1;
    }
    return 0;
}

/* ---- what follows ---- */

int bench_is(const struct measured *x, const char *kind) {
    return !strcmp(x->kind, kind) && !*x->skipped;
}

double bench_amount(const struct measured *x) {
    if (!strcmp(x->kind, "gemm")) return 2.0 * (double)x->m * (double)x->n * (double)x->k;
    if (!strcmp(x->kind, "copy")) return (double)x->bytes * (strcmp(x->what, "d2d") ? 1 : 2);
    return NAN;
}

/* fp64 on matrix units where there are some: a product runs there. fp16 sums of the virtual GPU are fp32's. */
static double promised_product(const struct bench_device *d, int format) {
    if (format < 0) return NAN;
    if (d->in_table) {
        int matrix = format == ACCT_FP64 && !isnan(d->sheet.peak[ACCT_FP64_MATRIX]);
        return d->sheet.peak[matrix ? ACCT_FP64_MATRIX : format];
    }
    return d->known_peak[format == ACCT_FP16_ACC16 ? ACCT_FP16 : format];
}

double bench_promised(const struct bench_results *r, const struct measured *x) {
    const struct bench_device *d = &r->device;
    if (!strcmp(x->kind, "gemm")) return promised_product(d, bench_format(x->what));
    if (strcmp(x->kind, "copy")) return NAN;
    if (!strcmp(x->what, "d2d")) return d->in_table ? d->sheet.bytes_per_s : d->known_bytes_per_s;
    if (!d->in_table) return NAN;
    return !strcmp(x->what, "peer") ? d->sheet.peer_bytes_per_s : d->sheet.host_bytes_per_s;
}

struct bench_best bench_best_product(const struct bench_results *r, int format) {
    struct bench_best best = {.rate = NAN, .median_rate = NAN};
    for (int i = 0; i < r->n; i++) {
        const struct measured *x = &r->rows[i];
        if (!bench_is(x, "gemm") || bench_format(x->what) != format) continue;
        if (!(bench_amount(x) / x->min_s <= best.rate)) {
            best.rate = bench_amount(x) / x->min_s;
            best.fastest = x;
        }
        if (!(bench_amount(x) / x->median_s <= best.median_rate)) {
            best.median_rate = bench_amount(x) / x->median_s;
            best.median = x;
        }
    }
    return best;
}

double bench_best_copy(const struct bench_results *r, const char *what, const char *part) {
    double best = NAN;
    int64_t largest = 0;
    for (int i = 0; i < r->n; i++) {
        const struct measured *x = &r->rows[i];
        if (!bench_is(x, "copy") || strcmp(x->what, what) || (part && strcmp(x->part, part))) continue;
        if (x->bytes < largest) continue;
        if (x->bytes > largest) best = NAN;
        largest = x->bytes;
        best = fmax(best, bench_amount(x) / x->median_s); /* NaN counts for nothing */
    }
    return best;
}

double bench_launch_seconds(const struct bench_results *r, const char *what) {
    for (int i = 0; i < r->n; i++)
        if (bench_is(&r->rows[i], "launch") && !strcmp(r->rows[i].what, what)) return r->rows[i].median_s;
    return NAN;
}

int bench_not_supported(const struct bench_results *r, int format) {
    for (int i = 0; i < r->n; i++)
        if (!strcmp(r->rows[i].kind, "gemm") && bench_format(r->rows[i].what) == format &&
            !strncmp(r->rows[i].skipped, MEASURED_NO_UNIT, strlen(MEASURED_NO_UNIT)))
            return 1;
    return 0;
}
