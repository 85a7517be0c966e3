/* Amounts of an op against a device: intensity, time at the roof. */
#include "analyzer/plan_flops.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- number formats ---- */

/* Matrix units have a peak of their own; what is not a matrix product runs on the fp32 (fp64) units. */
static const struct flops_type types[] = {
    {"fp64", ACCT_dtype_FP64, ACCT_FP64_MATRIX, ACCT_FP64, 0},
    {"fp32", ACCT_dtype_FP32, ACCT_FP32, ACCT_FP32, 0},
    {"tf32", ACCT_dtype_FP32, ACCT_TF32, ACCT_FP32, 0},
    {"fp16", ACCT_dtype_FP16, ACCT_FP16, ACCT_FP32, 0},
    {"fp16_acc16", ACCT_dtype_FP16, ACCT_FP16_ACC16, ACCT_FP32, 0},
    {"bf16", ACCT_dtype_BF16, ACCT_BF16, ACCT_FP32, 0},
    {"fp8", ACCT_dtype_FP8_E4M3, ACCT_FP8, ACCT_FP32, 0},
    {"fp8_e4m3", ACCT_dtype_FP8_E4M3, ACCT_FP8, ACCT_FP32, 0},
    {"fp8_e5m2", ACCT_dtype_FP8_E5M2, ACCT_FP8, ACCT_FP32, 0},
    {"fp4", ACCT_dtype_FP4_E2M1, ACCT_FP4, ACCT_FP32, 0},
    {"fp4_e2m1", ACCT_dtype_FP4_E2M1, ACCT_FP4, ACCT_FP32, 0},
    {"int8", ACCT_dtype_INT8, ACCT_INT8, -1, 1},
    {"uint8", ACCT_dtype_UINT8, ACCT_INT8, -1, 1},
    {"int32", ACCT_dtype_INT32, -1, -1, 1},
    {"complex32", ACCT_dtype_COMPLEX32, ACCT_FP16, ACCT_FP32, 0},
    {"complex64", ACCT_dtype_COMPLEX64, ACCT_FP32, ACCT_FP32, 0},
    {"complex128", ACCT_dtype_COMPLEX128, ACCT_FP64_MATRIX, ACCT_FP64, 0},
};

/* Also by the second half of fp8_e4m3, which is a format's name in `acct plan dtype`. */
const struct flops_type *flops_type_find(const char *name) {
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        const char *own = types[i].name, *half = strchr(own, '_');
        if (!strcmp(own, name) || (half && half[1] == 'e' && !strcmp(half + 1, name))) return &types[i];
    }
    return NULL;
}

static int read_type(const struct flops *f, int o, const struct flops_type **out) {
    char all[256] = "";
    size_t n = 0;
    if (!f->args->given[o]) return 0;
    if ((*out = flops_type_find(f->args->value[o]))) return 0;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        n += (size_t)snprintf(all + n, sizeof all - n, "%s%s", i ? ", " : "", types[i].name);
    return flops_fail(f, "--%s: '%.40s' is no number format; there are %s", f->args->command->options[o].name,
                      f->args->value[o], all);
}

/* As libraries write products unless told otherwise. */
static const struct flops_type *type_of_product(const struct flops_type *type) {
    if (type->integer) return flops_type_find("int32");
    return cost_type_bits(type->storage) < 16 ? flops_type_find("bf16") : type;
}

int flops_read_types(struct flops *f) {
    f->type = flops_type_find("fp32");
    int code = read_type(f, FLOPS_DTYPE, &f->type);
    if (code) return code;
    f->out_type = type_of_product(f->type);
    return read_type(f, FLOPS_OUT_DTYPE, &f->out_type);
}

__int128 flops_type_bytes(const struct flops_type *type, __int128 elements) {
    __int128 bits;
    if (plan_multiply(elements, cost_type_bits(type->storage), &bits) || plan_add(bits, 7, &bits)) return -1;
    return bits / 8;
}

/* ---- the roof ---- */

/* Peak of a part's units; NaN: the device has none. */
static double peak_of(const struct flops *f, int matrix) {
    int format = matrix ? f->type->matrix_peak : f->type->vector_peak;
    if (format < 0) return NAN;
    if (format == ACCT_FP64_MATRIX && isnan(f->device.peak[format])) format = ACCT_FP64;
    return f->device.peak[format];
}

static const char *peak_name(const struct flops *f, int matrix) {
    int format = matrix ? f->type->matrix_peak : f->type->vector_peak;
    if (format == ACCT_FP64_MATRIX && isnan(f->device.peak[format])) format = ACCT_FP64;
    return format >= 0 ? acct_format_name(format) : matrix ? f->type->name : "integer vector";
}

struct roof {
    double compute_s, memory_s, time_s; /* NaN: not known */
    const char *bound;                  /* compute, memory; NULL: not known, or nothing to do */
};

static struct roof roof_of(const struct flops *f, const struct flops_part *p) {
    struct roof r = {NAN, NAN, NAN, NULL};
    if (!f->has_device) return r;
    r.compute_s = p->flops ? (double)p->flops / peak_of(f, p->matrix) : 0;
    r.memory_s = p->bytes < 0 ? NAN : p->bytes ? (double)p->bytes / f->device.bytes_per_s : 0;
    if (isnan(r.compute_s) || isnan(r.memory_s)) return r;
    r.time_s = r.compute_s > r.memory_s ? r.compute_s : r.memory_s;
    r.bound = r.time_s == 0 ? NULL : r.compute_s >= r.memory_s ? "compute" : "memory";
    return r;
}

static int of_order(const struct flops_part *p, const char *order) {
    return !order || (p->order && !strcmp(p->order, order));
}

const char *flops_missing_peak(const struct flops *f, const char *order) {
    for (int i = 0; i < f->n_parts; i++)
        if (of_order(&f->part[i], order) && f->part[i].flops && isnan(peak_of(f, f->part[i].matrix)))
            return peak_name(f, f->part[i].matrix);
    return NULL;
}

double flops_time(const struct flops *f, const char *order) {
    double sum = 0;
    for (int i = 0; i < f->n_parts; i++)
        if (of_order(&f->part[i], order)) sum += roof_of(f, &f->part[i]).time_s;
    return sum;
}

static double part_share(const struct flops *f, const char *order, const char *bound) {
    double share = 0;
    for (int i = 0; i < f->n_parts; i++) {
        struct roof r = roof_of(f, &f->part[i]);
        if (of_order(&f->part[i], order) && r.bound && !strcmp(r.bound, bound)) share += r.time_s;
    }
    return share;
}

/* ---- results ---- */

static void add_time(struct flops *f, const char *order) {
    struct plan_sheet *s = &f->sheet;
    const struct flops_part *p = &f->part[0];
    if (!f->has_device) {
        sheet_result(s, "time", "time at the roof", SHEET_SECONDS, NAN, "which device? --device D");
        sheet_result_text(s, "bound", "bound by", NULL, "which device? --device D");
        return;
    }
    const char *missing = flops_missing_peak(f, order);
    if (missing) {
        sheet_result(s, "time", "time at the roof", SHEET_SECONDS, NAN, "peak unknown: %s has no %s figure",
                     f->device.alias, missing);
        sheet_result_text(s, "bound", "bound by", NULL, "peak unknown");
        return;
    }
    double time = flops_time(f, order), compute = part_share(f, order, "compute"),
           memory = part_share(f, order, "memory");
    struct roof r = roof_of(f, p);
    int one = f->n_parts == 1;
    if (isnan(time))
        sheet_result(s, "time", "time at the roof", SHEET_SECONDS, NAN, "bytes not known");
    else if (one)
        sheet_result(s, "time", "time at the roof", SHEET_SECONDS, time,
                     "max(operations / peak = %.4g s, bytes / bandwidth = %.4g s)", r.compute_s, r.memory_s);
    else
        sheet_result(s, "time", "time at the roof", SHEET_SECONDS, time,
                     "sum over the parts of max(operations / peak, bytes / bandwidth)");
    if (isnan(time) || time == 0)
        sheet_result_text(s, "bound", "bound by", NULL, isnan(time) ? "bytes not known" : "nothing to do");
    else
        sheet_result_text(s, "bound", "bound by", compute >= memory ? "compute" : "memory",
                          one ? "the longer of the two" : "where most of the time goes");
}

static void add_device(struct flops *f) {
    int matrix = 0;
    for (int i = 0; i < f->n_parts; i++) matrix |= f->part[i].matrix;
    double peak = peak_of(f, matrix);
    sheet_input_text(&f->sheet, "device", "device", f->device.name, "given");
    sheet_input(&f->sheet, "peak", "peak", f->type->integer ? SHEET_OP_PER_S : SHEET_FLOP_PER_S, peak,
                f->device.source);
    sheet_input(&f->sheet, "bandwidth", "bandwidth", SHEET_BYTES_PER_S, f->device.bytes_per_s, f->device.source);
}

static void add_amounts(struct flops *f, __int128 flops, const char *formula) {
    struct plan_sheet *s = &f->sheet;
    if (f->type->integer) {
        sheet_result_whole(s, "flops", "FLOPs", SHEET_FLOP, 0, "integer operations are no FLOPs");
        sheet_result_whole(s, "integer_ops", "operations", SHEET_OPS, flops, "%s", formula);
    } else {
        sheet_result_whole(s, "flops", "FLOPs", SHEET_FLOP, flops, "%s", formula);
    }
    if (f->bytes < 0) {
        sheet_result(s, "bytes", "bytes", SHEET_BYTES, NAN, "%s", f->bytes_formula);
        sheet_result(s, "intensity", "intensity", SHEET_FLOP_PER_BYTE, NAN, "bytes not known");
        return;
    }
    sheet_result_whole(s, "bytes", "bytes, least", SHEET_BYTES, f->bytes, "%s",
                       *f->bytes_formula ? f->bytes_formula : "nothing is moved");
    if (f->bytes)
        sheet_result(s, "intensity", "intensity", SHEET_FLOP_PER_BYTE, (double)flops / (double)f->bytes, "%s / %s",
                     flops_digits(flops), flops_digits(f->bytes));
    else
        sheet_result(s, "intensity", "intensity", SHEET_FLOP_PER_BYTE, NAN, "no bytes");
}

/* ---- tables ---- */

static void print_operands(struct emitter *e, const struct flops *f) {
    int parts = f->n_parts > 1 && f->n_operands && *f->operand[0].part;
    if (!f->n_operands) return;
    emit_list(e, "operands", "Operands", LOOK_TABLE);
    for (int i = 0; i < f->n_operands; i++) {
        const struct flops_operand *o = &f->operand[i];
        emit_object(e, "", NULL, LOOK_FIELDS);
        if (*o->part) emit_text(e, "part", parts ? "part" : NULL, o->part);
        emit_text(e, "name", "operand", o->name);
        emit_text(e, "shape", "shape", o->shape);
        emit_text(e, "dtype", "dtype", o->type);
        emit_int(e, "elements", "elements", UNIT_NONE, o->elements);
        emit_int(e, "bytes", "bytes", UNIT_BYTES, o->bytes);
        emit_text(e, "use", "use",
                  o->reads    ? (o->writes ? "read and written" : "read")
                  : o->writes ? "written"
                              : "not touched");
        emit_end(e);
    }
    emit_end(e);
}

static void print_part(struct emitter *e, const struct flops *f, const struct flops_part *p) {
    struct roof r = roof_of(f, p);
    char text[64];
    emit_object(e, "", NULL, LOOK_FIELDS);
    emit_text(e, "name", "part", p->name);
    emit_int(e, f->type->integer ? "integer_ops" : "flops", f->type->integer ? "operations" : "FLOPs", UNIT_NONE,
             p->flops);
    if (p->bytes < 0)
        emit_null(e, "bytes", "bytes");
    else
        emit_int(e, "bytes", "bytes", UNIT_NONE, p->bytes);
    emit_real(e, "time_s", NULL, UNIT_NONE, r.time_s);
    if (f->has_device) {
        sheet_human_seconds(text, sizeof text, r.time_s);
        emit_text(e, NULL, "time at the roof", isnan(r.time_s) ? NULL : text);
    }
    emit_text(e, "bound", f->has_device ? "bound by" : NULL, r.bound);
    emit_end(e);
}

static void print_parts(struct emitter *e, const struct flops *f, const char *order, const char *key,
                        const char *title) {
    int n = 0;
    for (int i = 0; i < f->n_parts; i++) n += of_order(&f->part[i], order);
    if (!n || (!order && f->n_parts == 1)) return;
    emit_list(e, key, title, LOOK_TABLE);
    for (int i = 0; i < f->n_parts; i++)
        if (of_order(&f->part[i], order)) print_part(e, f, &f->part[i]);
    emit_end(e);
}

static void print_tables(struct emitter *e, const void *context) {
    const struct flops *f = context;
    print_operands(e, f);
    if (f->n_parts && f->part[0].order) {
        print_parts(e, f, "given", "given_order", "Given order");
        print_parts(e, f, "best", "best_order", "Best order");
    } else {
        print_parts(e, f, NULL, "parts", "Parts");
    }
}

/* With several parts their bytes say more than those of the operands one by one. */
static void sum_parts(struct flops *f) {
    size_t n = 0, room = sizeof f->bytes_formula;
    __int128 sum = 0;
    for (int i = 0; i < f->n_parts; i++) sum += f->part[i].bytes;
    if (f->n_parts < 2 || f->part[0].order || sum != f->bytes) return; /* steps also move what lies between them */
    for (int i = 0; i < f->n_parts && n < room; i++)
        n += (size_t)snprintf(f->bytes_formula + n, room - n, "%s%s", i ? " + " : "", flops_digits(f->part[i].bytes));
}

void flops_amounts(struct flops *f, __int128 flops, const char *format, ...) {
    char formula[4096];
    va_list ap;
    va_start(ap, format);
    vsnprintf(formula, sizeof formula, format, ap);
    va_end(ap);
    sum_parts(f);
    if (f->has_device) add_device(f);
    add_amounts(f, flops, formula);
    add_time(f, f->part[0].order);
}

int flops_print(struct flops *f) {
    if (!f->sheet.convention) f->sheet.convention = "a multiply-add is 2; bytes: each operand once";
    f->sheet.tables = print_tables;
    f->sheet.context = f;
    return sheet_print(&f->sheet);
}
