/* What acct-bench measured, and what of it follows: rates, what the data sheet promised, the highest rate of each
 * number format. One thread. */
#ifndef ACCT_ANALYZER_BENCH_RESULTS_H
#define ACCT_ANALYZER_BENCH_RESULTS_H

#include "acct/device_table.h"
#include "acct/measured.h"

struct bench_device {
    char name[128]; /* as the driver has it; empty: not told, as any text here; numbers: 0 */
    char virtual_profile[64];
    char peak_source[192];
    int sm, sms, clock_khz, memory_clock_khz, bus_bits, devices, peer, runtime, driver, cublas;
    int64_t total_bytes, free_bytes, l2_bytes;
    double known_peak[ACCT_FORMATS]; /* of a virtual GPU: FLOP/s that this machine reached before; NaN */
    double known_bytes_per_s;
    int in_table;             /* its data sheet is known: */
    struct acct_device sheet; /* by the driver's exact name */
};

struct bench_results {
    struct bench_device device;
    struct measured *rows; /* owned */
    int n;
    int late;  /* it was cut off when the time was over: the measurement under way and those behind it are missing */
    int ended; /* acct-bench came to its end: nothing is missing but `left` measurements, which found no time */
    int left;
    double seconds;                    /* that acct-bench took */
    char refused[300], no_device[300]; /* nothing was measured, and why */
};

void bench_begin(struct bench_results *r);
void bench_free(struct bench_results *r);

/* One line of acct-bench, with its newline; what is of no known form is left alone. 1: it was a measurement. */
int bench_take_line(struct bench_results *r, const char *line);

/* Number format by the name of a line; -1. */
int bench_format(const char *what);
const char *bench_format_name(int format);

int bench_is(const struct measured *x, const char *kind); /* and was measured */

/* Amount of one product (FLOPs; int8: OPs) or copy (bytes moved: within a device read and written); NaN: neither. */
double bench_amount(const struct measured *x);

/* What the data sheet, or this machine's best before, says of that rate, per second; NaN: not known. */
double bench_promised(const struct bench_results *r, const struct measured *x);

/* The fastest and the highest median of all products of a format; NULL: none was measured. */
struct bench_best {
    const struct measured *fastest, *median;
    double rate, median_rate; /* FLOP/s: of the fastest single time, and of the highest median */
};
struct bench_best bench_best_product(const struct bench_results *r, int format);

/* The highest rate by median of copies of that kind (part NULL: of any part), bytes/s; NaN: none. Of the largest size
 * alone: smaller ones stay in caches. */
double bench_best_copy(const struct bench_results *r, const char *what, const char *part);

/* Median seconds of that launch; NaN: not measured. */
double bench_launch_seconds(const struct bench_results *r, const char *what);

/* A format that acct-bench found the device to have no unit for. */
int bench_not_supported(const struct bench_results *r, int format);

#endif
