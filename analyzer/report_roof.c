/* The roofline of one op. */
#include "analyzer/report_roof.h"

#include <math.h>
#include <string.h>

/* FLOP/s outside matrix units. Data sheets tell fp64's and fp32's; fp16 and bf16 are taken to be fp32's there. */
static double vector_peak(const struct report *r, const char *dtype) {
    return dtype && !strcmp(dtype, "fp64") ? r->fp64_vector : r->peak[PEAK_FP32];
}

static double matmul_peak(const struct report *r, const char *dtype) {
    int format = devices_format_of(dtype);
    return format < 0 ? NAN : r->peak[format]; /* of integers, or of several formats */
}

/* 0 of anything takes no time, whether or not the rate is known. */
static double quotient_ns(double amount, double rate) {
    return amount == 0 ? 0 : rate > 0 ? 1e9 * amount / rate : NAN;
}

struct roof roof_of(const struct report *r, const struct roof_work *w) {
    struct roof f = {.ns = NAN};
    f.compute_ns = quotient_ns(w->flops - w->matmul_flops, vector_peak(r, w->matmul ? NULL : w->dtype));
    if (w->matmul) f.compute_ns += quotient_ns(w->matmul_flops, matmul_peak(r, w->dtype));
    f.memory_ns = quotient_ns(w->bytes, r->bytes_per_s);
    if (isnan(f.compute_ns) || isnan(f.memory_ns)) return f;
    f.bound = f.compute_ns >= f.memory_ns ? ROOF_COMPUTE : ROOF_MEMORY;
    f.ns = fmax(f.compute_ns, f.memory_ns);
    return f;
}

double roof_peak(const struct report *r, const struct roof_work *w) {
    int products = w->matmul && !(2 * w->matmul_flops < w->flops);
    return products ? matmul_peak(r, w->dtype) : vector_peak(r, w->matmul ? NULL : w->dtype);
}
