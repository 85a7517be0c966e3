/* What acct-bench, which measures, tells acct bench, which prints: text lines, one for each finished measurement.
 * Header only, so that both sides have one grammar; any thread.
 *
 *   device KEY VALUE…                    what the device is; the value is the rest of the line (keys:
 * MEASURED_DEVICE_*) KIND WHAT PART [m=N n=N k=N] [bytes=N] median_s=X q1_s=X q3_s=X min_s=X max_s=X times=N KIND WHAT
 * PART [m=N …] skipped=WHY…  not measured, and why; the rest of the line end seconds=X                        all that
 * was asked for is done
 *
 * A line without its newline, or of another form, is none: its writer was ended.
 *
 *   KIND    WHAT                          PART
 *   gemm    number format: fp32, bf16 …   square; qkv, up, down with .forward, .input-gradient, .weight-gradient; all
 *   copy    h2d, d2h                      pageable, pinned       bytes: of one copy
 *           d2d, peer                     memcpy, kernel         bytes: of one copy; it reads and writes as many
 *   launch  back-to-back, call, latency   empty-kernel
 *   alloc   the CUDA function             -                      bytes: of one allocation
 *
 * Times are seconds of one product, copy, launch or call; times: how many were taken, of which median, quartiles (q1,
 * q3), least and most are told. A time may be that of a batch, divided. */
#ifndef ACCT_MEASURED_H
#define ACCT_MEASURED_H

#include <inttypes.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MEASURED_LINE 512 /* longest line, with its newline and NUL */

/* Keys of `device` lines. Numbers in decimal; what is not known has no line. */
#define MEASURED_NAME "name"
#define MEASURED_SM "sm" /* compute capability x 10 */
#define MEASURED_SMS "multiprocessors"
#define MEASURED_TOTAL "total_bytes"
#define MEASURED_FREE "free_bytes" /* before the first allocation */
#define MEASURED_L2 "l2_bytes"
#define MEASURED_CLOCK "clock_khz"
#define MEASURED_MEMORY_CLOCK "memory_clock_khz"
#define MEASURED_BUS "bus_bits"
#define MEASURED_DEVICES "devices"
#define MEASURED_PEER "peer_access" /* 0 or 1; with two devices or more */
#define MEASURED_RUNTIME "runtime"  /* 13000: 13.0 */
#define MEASURED_DRIVER "driver"
#define MEASURED_CUBLAS "cublas"
#define MEASURED_VIRTUAL "virtual"       /* of a virtual GPU: its profile */
#define MEASURED_PEAK "peak_"            /* of a virtual GPU: peak_fp32 …, FLOP/s that this machine reached before */
#define MEASURED_BANDWIDTH "bytes_per_s" /* likewise */
#define MEASURED_PEAK_SOURCE "peak_source" /* how those were had */
#define MEASURED_REFUSED "refused"         /* nothing is measured, and why: a whole sentence */
#define MEASURED_NO_DEVICE "no-device"     /* likewise: there is none, and what the runtime says */

/* How a `skipped` begins where the device cannot do it at all. */
#define MEASURED_NO_UNIT "not supported: "

struct measured {
    char kind[8], what[24], part[24];
    int64_t m, n, k, bytes; /* 0: not of this kind */
    double median_s, q1_s, q3_s, min_s, max_s;
    int64_t times;
    char skipped[200]; /* empty: it was measured */
};

/* The text of one line, with its newline. */
static inline void measured_write(char out[MEASURED_LINE], const struct measured *x) {
    int n = snprintf(out, MEASURED_LINE, "%s %s %s", x->kind, x->what, *x->part ? x->part : "-");
    if (x->m)
        n += snprintf(out + n, MEASURED_LINE - (size_t)n, " m=%" PRId64 " n=%" PRId64 " k=%" PRId64, x->m, x->n, x->k);
    if (x->bytes) n += snprintf(out + n, MEASURED_LINE - (size_t)n, " bytes=%" PRId64, x->bytes);
    if (*x->skipped)
        snprintf(out + n, MEASURED_LINE - (size_t)n, " skipped=%.199s\n", x->skipped);
    else
        snprintf(out + n, MEASURED_LINE - (size_t)n,
                 " median_s=%.9g q1_s=%.9g q3_s=%.9g min_s=%.9g max_s=%.9g times=%" PRId64 "\n", x->median_s, x->q1_s,
                 x->q3_s, x->min_s, x->max_s, x->times);
}

static inline int measured_word(const char **p, char *out, size_t room) {
    size_t n = strcspn(*p, " \n");
    if (!n || n >= room || (*p)[n] != ' ') return -1;
    memcpy(out, *p, n);
    out[n] = 0;
    *p += n + 1;
    return 0;
}

/* A size, above 0; or a time, above 0 and finite. */
static inline int measured_pair(struct measured *x, const char *key, size_t length, const char *value, char **end) {
    const struct {
        const char *key;
        int64_t *whole;
        double *real;
    } keys[] = {{"m", &x->m, NULL},         {"n", &x->n, NULL},         {"k", &x->k, NULL},
                {"bytes", &x->bytes, NULL}, {"times", &x->times, NULL}, {"median_s", NULL, &x->median_s},
                {"q1_s", NULL, &x->q1_s},   {"q3_s", NULL, &x->q3_s},   {"min_s", NULL, &x->min_s},
                {"max_s", NULL, &x->max_s}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (strlen(keys[i].key) != length || strncmp(keys[i].key, key, length)) continue;
        if (keys[i].whole) {
            *keys[i].whole = strtoll(value, end, 10);
            return *end == value || *keys[i].whole <= 0 ? -1 : 0;
        }
        *keys[i].real = strtod(value, end);
        return *end == value || !(*keys[i].real > 0) || isinf(*keys[i].real) ? -1 : 0;
    }
    return -1;
}

/* One whole line, with its newline. 0; -1: it is none of a measurement, or not whole. */
static inline int measured_read(const char *line, struct measured *x) {
    const char *p = line;
    memset(x, 0, sizeof *x);
    if (measured_word(&p, x->kind, sizeof x->kind) || measured_word(&p, x->what, sizeof x->what) ||
        measured_word(&p, x->part, sizeof x->part))
        return -1;
    while (*p && *p != '\n') {
        size_t n = strcspn(p, "= \n");
        char *end = NULL;
        if (p[n] != '=') return -1;
        if (n == 7 && !strncmp(p, "skipped", 7)) {
            size_t length = strcspn(p + 8, "\n");
            if (!length || length >= sizeof x->skipped || p[8 + length] != '\n') return -1;
            memcpy(x->skipped, p + 8, length);
            return 0;
        }
        if (measured_pair(x, p, n, p + n + 1, &end) || (*end != ' ' && *end != '\n')) return -1;
        p = end + (*end == ' ');
    }
    int whole = x->median_s > 0 && x->q1_s > 0 && x->q3_s > 0 && x->min_s > 0 && x->max_s > 0 && x->times > 0;
    return *p == '\n' && whole ? 0 : -1;
}

/* Whether the rest of a line after `device ` is about `key`; *value: its text, up to the end or newline. */
static inline int measured_device(const char *line, const char *key, const char **value) {
    size_t n = strlen(key);
    if (strncmp(line, "device ", 7) || strncmp(line + 7, key, n) || line[7 + n] != ' ') return 0;
    *value = line + 8 + n;
    return 1;
}

#endif
