/* acct plan roofline: ridge points of a device by number format, and where a product stands against them
 * (plan/plan_roofline.h). */
#include "acct/device_table.h"
#include "analyzer/plan_sheet.h"
#include "plan/plan_roofline.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { OPT_DEVICE = SHEET_OPTIONS, OPT_DTYPE, OPT_PEAK, OPT_BANDWIDTH, OPT_GEMM, OPT_INTENSITY };
static const struct option_spec options[] = {
    SHEET_OPTION_ROWS,
    [OPT_DEVICE] = {"device", 'd', OPTION_VALUE, "D", "alias, driver's name or profile"},
    [OPT_DTYPE] = {"dtype", 0, OPTION_VALUE, "F", "one number format alone"},
    [OPT_PEAK] = {"peak-tflops", 0, OPTION_VALUE, "X", "dense peak of --dtype instead; bf16=X,fp8=Y of several"},
    [OPT_BANDWIDTH] = {"bandwidth", 0, OPTION_VALUE, "B", "of device memory instead, such as 3350GB/s"},
    [OPT_GEMM] = {"gemm", 0, OPTION_VALUE, "M,N,K", "a product m x k by k x n against the roof"},
    [OPT_INTENSITY] = {"intensity", 0, OPTION_VALUE, "I", "what the roof is at I FLOPs a byte"},
    {0},
};

/* Bits of an element of A and B, and of C as libraries write it: of fp8 and fp4 bf16, of int8 int32. */
static const struct {
    int in, out;
} bits[ACCT_FORMATS] = {
    [ACCT_FP64] = {64, 64}, [ACCT_FP64_MATRIX] = {64, 64}, [ACCT_FP32] = {32, 32},       [ACCT_TF32] = {32, 32},
    [ACCT_BF16] = {16, 16}, [ACCT_FP16] = {16, 16},        [ACCT_FP16_ACC16] = {16, 16}, [ACCT_FP8] = {8, 16},
    [ACCT_INT8] = {8, 32},  [ACCT_FP4] = {4, 16}};

struct roofline {
    const struct arguments *args;
    struct acct_device device;
    int has_device, format;      /* -1: all */
    double bandwidth, intensity; /* NaN: not given */
    int64_t gemm[3];
    int has_gemm, given[ACCT_FORMATS];
};

#define REFUSE(...) cmd_fail(r->args->command, CMD_EXIT_USAGE, __VA_ARGS__)

static int take_peak(const char *name, const char *value, void *context, char *err, size_t err_len) {
    struct roofline *r = context;
    double tflops;
    int format = 0;
    for (format = 0; format < ACCT_FORMATS && strcmp(acct_format_name(format), name); format++) {
    }
    if (format == ACCT_FORMATS) {
        snprintf(err, err_len, "'%.40s' is no number format", name);
        return -1;
    }
    if (r->given[format]) {
        snprintf(err, err_len, "%s is given twice", name);
        return -1;
    }
    if (plan_real(value, PLAN_COUNT, PLAN_POSITIVE, &tflops, err, err_len)) return -1;
    if (isinf(tflops * 1e12)) {
        snprintf(err, err_len, "'%.40s' TFLOP/s is too large", value);
        return -1;
    }
    r->device.peak[format] = tflops * 1e12;
    r->given[format] = 1;
    return 0;
}

static int read_peak(struct roofline *r) {
    const char *text = r->args->value[OPT_PEAK];
    char err[300];
    if (!r->args->given[OPT_PEAK]) return 0;
    if (!strchr(text, '=') && r->format < 0)
        return REFUSE("--peak-tflops: of which format? Give --dtype, or such as bf16=%.40s", text);
    if (strchr(text, '=') ? plan_pairs(text, take_peak, r, err, sizeof err)
                          : take_peak(acct_format_name(r->format), text, r, err, sizeof err))
        return REFUSE("--peak-tflops: %s", err);
    return 0;
}

static int read_gemm(struct roofline *r) {
    char err[300];
    struct plan_gemm g;
    if (!r->args->given[OPT_GEMM]) return 0;
    int n = plan_list(r->args->value[OPT_GEMM], PLAN_POSITIVE, INT64_MAX, 3, r->gemm, err, sizeof err);
    if (n < 0) return REFUSE("--gemm: %s", err);
    if (n < 3)
        return REFUSE("--gemm: '%.60s': three numbers are needed, such as 4096,4096,4096", r->args->value[OPT_GEMM]);
    if (plan_gemm(r->gemm[0], r->gemm[1], r->gemm[2], 64, 64, &g)) return REFUSE("--gemm: its FLOPs are beyond 1.7e38");
    r->has_gemm = 1;
    return 0;
}

/* Figures so far apart that what follows from them is no number. */
static int check_range(const struct roofline *r) {
    struct plan_gemm g = {0};
    if (r->has_gemm) plan_gemm(r->gemm[0], r->gemm[1], r->gemm[2], 64, 64, &g);
    for (int f = 0; f < ACCT_FORMATS; f++) {
        double peak = r->device.peak[f];
        if (isnan(peak) || (r->format >= 0 && r->format != f)) continue;
        if (!isfinite(plan_ridge(peak, r->bandwidth)))
            return REFUSE("--%s: the ridge of %s would be beyond 1.7e308 FLOP/byte",
                          options[r->args->given[OPT_BANDWIDTH] ? OPT_BANDWIDTH : OPT_PEAK].name, acct_format_name(f));
        if (!isfinite(plan_roof_time(peak, r->bandwidth, (double)g.flops, (double)g.bytes)))
            return REFUSE("--%s: its time in %s would be beyond 1.7e308 s", options[OPT_GEMM].name,
                          acct_format_name(f));
    }
    return 0;
}

static int read_options(const struct arguments *args, struct roofline *r) {
    int code = sheet_check(args);
    memset(r, 0, sizeof *r);
    r->args = args;
    r->format = -1;
    r->bandwidth = r->intensity = NAN;
    for (int f = 0; f < ACCT_FORMATS; f++) r->device.peak[f] = NAN;
    if (code) return code;
    if (args->n_operands) return REFUSE("'%.40s': no operand is expected; type --device D", args->operands[0]);
    r->has_device = args->given[OPT_DEVICE];
    if ((code = sheet_device(args, OPT_DEVICE, &r->device)) || (code = sheet_format(args, OPT_DTYPE, &r->format)))
        return code;
    if (r->has_device) r->bandwidth = r->device.bytes_per_s;
    (void)((code = sheet_real(args, OPT_BANDWIDTH, PLAN_BYTE_RATE, PLAN_POSITIVE, &r->bandwidth)) ||
           (code = sheet_real(args, OPT_INTENSITY, PLAN_COUNT, PLAN_POSITIVE, &r->intensity)) ||
           (code = read_peak(r)) || (code = read_gemm(r)));
    if (code) return code;
    if (!r->has_device && !args->given[OPT_PEAK])
        return REFUSE("whose roof? Give --device, or --peak-tflops and --bandwidth");
    if (isnan(r->bandwidth)) return REFUSE("the bandwidth is not known; give --bandwidth, such as 3350GB/s");
    if (r->format >= 0 && isnan(r->device.peak[r->format]))
        return r->has_device
                   ? REFUSE("--device %s: has no peak in %s", args->value[OPT_DEVICE], acct_format_name(r->format))
                   : REFUSE("--peak-tflops: has no figure for %s", acct_format_name(r->format));
    return check_range(r);
}

/* ---- what is printed ---- */

static const char *unit_of(int format) {
    return format == ACCT_INT8 ? "OP" : "FLOP";
}

static const char *missing(const struct roofline *r) {
    return r->has_device ? "no such unit" : "not given";
}

/* A rate as people see it: int8's are operations. */
static void print_rate(struct emitter *e, const char *key, const char *label, int f, double rate) {
    char text[64], *flop;
    emit_real(e, key, NULL, UNIT_NONE, rate);
    if (isnan(rate)) {
        emit_text(e, NULL, label, NULL);
        return;
    }
    emit_human(text, sizeof text, UNIT_FLOPS_PER_S, rate, 0);
    if (f == ACCT_INT8 && (flop = strstr(text, "FLOP"))) memmove(flop, flop + 2, strlen(flop + 2) + 1);
    emit_text(e, NULL, label, text);
}

static void print_roof(struct emitter *e, const struct roofline *r, int f) {
    double peak = r->device.peak[f];
    if (isnan(r->intensity)) return;
    print_rate(e, "roof_per_s", "roof at the intensity", f, plan_roof(peak, r->bandwidth, r->intensity));
    emit_text(e, "bound", "bound by",
              isnan(peak)                                      ? NULL
              : r->intensity >= plan_ridge(peak, r->bandwidth) ? "compute"
                                                               : "memory");
}

static void print_gemm(struct emitter *e, const struct roofline *r, int f) {
    struct plan_gemm g;
    double peak = r->device.peak[f], intensity;
    char text[40];
    if (!r->has_gemm) return;
    plan_gemm(r->gemm[0], r->gemm[1], r->gemm[2], bits[f].in, bits[f].out, &g); /* fits: it did with 64 bits */
    intensity = (double)g.flops / (double)g.bytes;
    snprintf(text, sizeof text, "%.4g", intensity);
    emit_object(e, "gemm", NULL, LOOK_INLINE);
    emit_int(e, f == ACCT_INT8 ? "ops" : "flops", NULL, UNIT_NONE, g.flops);
    emit_int(e, "bytes", NULL, UNIT_BYTES, g.bytes);
    emit_real(e, "intensity", NULL, UNIT_NONE, intensity);
    emit_text(e, "bound", NULL,
              isnan(peak)                                   ? NULL
              : intensity >= plan_ridge(peak, r->bandwidth) ? "compute"
                                                            : "memory");
    emit_real(e, "time_s", NULL, UNIT_NONE, plan_roof_time(peak, r->bandwidth, (double)g.flops, (double)g.bytes));
    emit_real(e, "roof_per_s", NULL, UNIT_NONE, plan_roof(peak, r->bandwidth, intensity));
    emit_end(e);
    if (!emit_for_people(e)) return;
    emit_int(e, NULL, "GEMM's bytes", UNIT_BYTES, g.bytes);
    emit_text(e, NULL, "intensity", text);
    emit_text(e, NULL, "bound by",
              isnan(peak)                                   ? NULL
              : intensity >= plan_ridge(peak, r->bandwidth) ? "compute"
                                                            : "memory");
    emit_real(e, NULL, "time at the roof", UNIT_NS,
              1e9 * plan_roof_time(peak, r->bandwidth, (double)g.flops, (double)g.bytes));
}

static void print_format(struct emitter *e, const struct roofline *r, int f) {
    char formula[160], p[40], b[40], ridge[40];
    double peak = r->device.peak[f], at = plan_ridge(peak, r->bandwidth);
    int known = !isnan(peak);
    plan_show(p, sizeof p, peak);
    plan_show(b, sizeof b, r->bandwidth);
    snprintf(ridge, sizeof ridge, "%.4g %s/byte", at, unit_of(f));
    snprintf(formula, sizeof formula, "peak / bandwidth = %s / %s", p, b);
    emit_object(e, "", NULL, LOOK_FIELDS);
    emit_text(e, "format", "format", acct_format_name(f));
    emit_text(e, "unit", NULL, unit_of(f));
    print_rate(e, "peak_per_s", "dense peak", f, peak);
    emit_text(e, "from", NULL, !known ? missing(r) : r->given[f] ? "given" : r->device.source);
    emit_real(e, "ridge", NULL, UNIT_NONE, at);
    emit_text(e, NULL, "ridge", known ? ridge : NULL);
    emit_text(e, "formula", "formula", known ? formula : missing(r));
    print_roof(e, r, f);
    print_gemm(e, r, f);
    emit_end(e);
}

static void tables(struct emitter *e, const void *context) {
    const struct roofline *r = context;
    emit_list(e, "formats", "Ridge points", LOOK_TABLE);
    for (int f = 0; f < ACCT_FORMATS; f++) {
        if (r->format >= 0 && r->format != f) continue;
        if (emit_for_people(e) && isnan(r->device.peak[f])) continue; /* no such unit, or not given */
        print_format(e, r, f);
    }
    emit_end(e);
}

/* For machines; people have the table. */
static void put_ridges(struct plan_sheet *s, const struct roofline *r) {
#define KEY(id, name) "ridge_" name,
    static const char *const keys[ACCT_FORMATS] = {ACCT_EACH_FORMAT(KEY)};
#undef KEY
    char peak[40], bandwidth[40];
    plan_show(bandwidth, sizeof bandwidth, r->bandwidth);
    for (int f = 0; f < ACCT_FORMATS; f++) {
        if (r->format >= 0 && r->format != f) continue;
        plan_show(peak, sizeof peak, r->device.peak[f]);
        if (isnan(r->device.peak[f]))
            sheet_result(s, keys[f], NULL, SHEET_FLOP_PER_BYTE, NAN, "%s", missing(r));
        else
            sheet_result(s, keys[f], NULL, SHEET_FLOP_PER_BYTE, plan_ridge(r->device.peak[f], r->bandwidth),
                         "peak / bandwidth = %s / %s", peak, bandwidth);
    }
}

static void put_gemm(struct plan_sheet *s, const struct roofline *r) {
    struct plan_gemm g;
    char shape[80];
    if (!r->has_gemm) return;
    plan_gemm(r->gemm[0], r->gemm[1], r->gemm[2], 64, 64, &g);
    snprintf(shape, sizeof shape, "%lld,%lld,%lld", (long long)r->gemm[0], (long long)r->gemm[1],
             (long long)r->gemm[2]);
    sheet_input_text(s, "gemm", "product (m, n, k)", shape, "given");
    sheet_result_whole(s, r->format == ACCT_INT8 ? "ops" : "flops", r->format == ACCT_INT8 ? "operations" : "FLOPs",
                       r->format == ACCT_INT8 ? SHEET_OPS : SHEET_FLOP, g.flops, "2 m n k = 2 x %lld x %lld x %lld",
                       (long long)r->gemm[0], (long long)r->gemm[1], (long long)r->gemm[2]);
    sheet_note(s,
               "Bytes are the least: A, B and C once, beta = 0. C is written in bf16 by products in fp8 and fp4 (whose "
               "scales are not counted), in int32 by those in int8.");
}

static int roofline(const struct arguments *args) {
    struct roofline r;
    struct plan_sheet s;
    int code = read_options(args, &r);
    if (code) return code;
    sheet_begin(&s, args);
    if (r.has_device) sheet_input_text(&s, "device", "device", r.device.name, "given");
    sheet_input(&s, "bandwidth", "memory bandwidth", SHEET_BYTES_PER_S, r.bandwidth,
                args->given[OPT_BANDWIDTH] ? "given" : r.device.source);
    if (!isnan(r.intensity)) sheet_input(&s, "intensity", "intensity", SHEET_FLOP_PER_BYTE, r.intensity, "given");
    put_ridges(&s, &r);
    put_gemm(&s, &r);
    s.tables = tables;
    s.context = &r;
    return sheet_print(&s);
}

const struct command cmd_plan_roofline = {
    .name = "plan roofline",
    .synopsis = "ridge points of a device by number format, and a product against them",
    .usage = "--device D [--dtype F] [--gemm M,N,K] [--intensity I] [--peak-tflops X] [--bandwidth B] " SHEET_USAGE,
    .options = options,
    .usage_exit = CMD_EXIT_USAGE,
    .function = roofline,
};
