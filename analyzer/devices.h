/* Device peaks: the table of include/acct/devices.def, and the peaks of one run, which may be measured or given
 * instead. */
#ifndef ACCT_ANALYZER_DEVICES_H
#define ACCT_ANALYZER_DEVICES_H

#include <stddef.h>

/* Number formats in which matrix products run, in the order of reports. */
enum peak_format {
    PEAK_FP64,
    PEAK_FP32,
    PEAK_TF32,
    PEAK_BF16,
    PEAK_FP16,
    PEAK_FP16_ACC16,
    PEAK_FP8,
    PEAK_FP4,
    PEAK_FORMATS
};

struct device_spec {
    const char *alias, *name, *source;
    int sm;
    double flops[PEAK_FORMATS]; /* FLOP/s of matrix products, dense; NaN: no such unit */
    double fp64_vector;         /* FLOP/s outside matrix units */
    double int8_ops;            /* OP/s; NaN: no such unit */
    double bytes_per_s;
    double nominal_bytes;  /* as the vendor names it, 1e9 */
    long long total_bytes; /* as the driver reports it */
    int total_estimated;
};

/* By the driver's exact name; -1: not in the table. Never a guess. */
int devices_find(const char *name);
int devices_count(void);
void devices_get(int index, struct device_spec *out);

/* `fp32`, `tf32`, … NULL for a number out of range. */
const char *devices_format_name(int format);

/* Format by the dtype text of op_cost (complex64 runs on fp32 units, fp8_e4m3 on fp8's …); -1: none. */
int devices_format_of(const char *dtype);

#endif
