/* Looks devices up in include/acct/devices.def. */
#include "analyzer/devices.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NO NAN
#define DEVICE(a, n, cc, fp64, fp64t, fp32, tf32, bf16, fp16, fp16a, fp8, int8, fp4, gbs, gb, total, src) \
    {.alias = a,                                                                                          \
     .name = n,                                                                                           \
     .sm = cc,                                                                                            \
     .vector = fp64,                                                                                      \
     .tensor64 = fp64t,                                                                                   \
     .peak = {[PEAK_FP32] = fp32,                                                                         \
              [PEAK_TF32] = tf32,                                                                         \
              [PEAK_BF16] = bf16,                                                                         \
              [PEAK_FP16] = fp16,                                                                         \
              [PEAK_FP16_ACC16] = fp16a,                                                                  \
              [PEAK_FP8] = fp8,                                                                           \
              [PEAK_FP4] = fp4},                                                                          \
     .int8_tops = int8,                                                                                   \
     .gb_s = gbs,                                                                                         \
     .capacity = gb,                                                                                      \
     .bytes = total,                                                                                      \
     .source = src},

static const struct {
    const char *alias, *name, *source;
    int sm;
    double vector, tensor64, peak[PEAK_FORMATS], int8_tops, gb_s, capacity;
    long long bytes;
} table[] = {
#include "acct/devices.def"
};

int devices_count(void) {
    return (int)(sizeof table / sizeof *table);
}

int devices_find(const char *name) {
    for (int i = 0; name && i < devices_count(); i++)
        if (!strcmp(table[i].name, name)) return i;
    return -1;
}

/* Tera to units; rounded, since 66.9 has no exact binary form and 66.9e12 has. */
static double tera(double v) {
    return round(v * 1e12);
}

void devices_get(int i, struct device_spec *out) {
    memset(out, 0, sizeof *out);
    out->alias = table[i].alias;
    out->name = table[i].name;
    out->source = table[i].source;
    out->sm = table[i].sm;
    for (int f = 0; f < PEAK_FORMATS; f++) out->flops[f] = tera(table[i].peak[f]);
    out->fp64_vector = tera(table[i].vector);
    out->flops[PEAK_FP64] = isnan(table[i].tensor64) ? out->fp64_vector : tera(table[i].tensor64);
    out->int8_ops = tera(table[i].int8_tops);
    out->bytes_per_s = table[i].gb_s * 1e9;
    out->nominal_bytes = table[i].capacity * 1e9;
    out->total_bytes = llabs(table[i].bytes);
    out->total_estimated = table[i].bytes < 0;
}

const char *devices_format_name(int format) {
    static const char *const names[PEAK_FORMATS] = {"fp64", "fp32", "tf32", "bf16", "fp16", "fp16_acc16", "fp8", "fp4"};
    return format >= 0 && format < PEAK_FORMATS ? names[format] : NULL;
}

int devices_format_of(const char *dtype) {
    static const struct {
        const char *dtype;
        enum peak_format format;
    } alike[] = {{"complex64", PEAK_FP32},     {"complex128", PEAK_FP64}, {"fp8_e4m3", PEAK_FP8},
                 {"fp8_e5m2", PEAK_FP8},       {"fp4_e2m1", PEAK_FP4},    {"complex32", PEAK_FP16},
                 {"complex64_tf32", PEAK_TF32}};
    for (int f = 0; dtype && f < PEAK_FORMATS; f++)
        if (!strcmp(devices_format_name(f), dtype)) return f;
    for (size_t i = 0; dtype && i < sizeof alike / sizeof *alike; i++)
        if (!strcmp(alike[i].dtype, dtype)) return (int)alike[i].format;
    return -1;
}
