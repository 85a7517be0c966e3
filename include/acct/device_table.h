/* One device of include/acct/devices.def with all that is known of it: peaks, board, limits of its compute capability.
 * Header only; any thread. */
#ifndef ACCT_DEVICE_TABLE_H
#define ACCT_DEVICE_TABLE_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Number formats of the peaks, as options and profiles name them. fp64 twice: on vector and on matrix units. */
#define ACCT_EACH_FORMAT(X)       \
    X(FP64, "fp64")               \
    X(FP64_MATRIX, "fp64_tensor") \
    X(FP32, "fp32")               \
    X(TF32, "tf32")               \
    X(BF16, "bf16")               \
    X(FP16, "fp16")               \
    X(FP16_ACC16, "fp16_acc16")   \
    X(FP8, "fp8")                 \
    X(INT8, "int8")               \
    X(FP4, "fp4")

#define ACCT_FORMAT_ID(id, name) ACCT_##id,
enum acct_format { ACCT_EACH_FORMAT(ACCT_FORMAT_ID) ACCT_FORMATS };
#undef ACCT_FORMAT_ID

/* NULL: no format. */
static inline const char *acct_format_name(int format) {
#define ACCT_FORMAT_NAME(id, name) name,
    static const char *const names[ACCT_FORMATS] = {ACCT_EACH_FORMAT(ACCT_FORMAT_NAME)};
#undef ACCT_FORMAT_NAME
    return format >= 0 && format < ACCT_FORMATS ? names[format] : NULL;
}

/* Of one multiprocessor of compute capability sm / 10. */
struct acct_sm {
    unsigned sm;
    int threads, blocks, registers;
    uint32_t shared_bytes, shared_optin_bytes, shared_reserved_bytes, shared_granule; /* optin: of a block */
};

struct acct_device {
    char alias[64], name[128], source[160];
    unsigned sm;
    double peak[ACCT_FORMATS]; /* FLOP/s (int8: OP/s), dense; NaN: no such unit */
    double bytes_per_s;        /* of device memory; NaN: not known */
    double host_bytes_per_s, peer_bytes_per_s, launch_s;
    uint64_t total_bytes, reserved_bytes, l2_bytes;
    int total_estimated; /* reserved_bytes always is */
    int sms, clock_khz, memory_clock_khz, bus_bits;
    int peer; /* devices reach each other's memory */
};

enum { ACCT_BLOCK_THREADS = 1024, ACCT_BLOCK_SHARED_BYTES = 48 << 10, ACCT_BLOCK_REGISTERS = 65536, ACCT_SM_PARTS = 4 };

/* Seconds between two kernels of one stream, of any of these devices: an estimate, as reported of graphs and queued
 * launches on V100, A100 and H100 (1 to 3 us). */
#define ACCT_LAUNCH_S 2e-6

/* The row of that compute capability; NULL: not in the table. */
static inline const struct acct_sm *acct_sm_find(unsigned sm) {
#define SM(cc, t, b, shared, optin, reserved, granule, r) \
    {cc, t, b, r, shared << 10, optin << 10, reserved << 10, granule},
    static const struct acct_sm rows[] = {
#include "acct/devices.def"
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].sm == sm) return &rows[i];
    return NULL;
}

struct acct_device_row {
    const char *alias, *name, *source;
    unsigned sm;
    double peak[ACCT_FORMATS], gb_s;
    long long bytes; /* negative: an estimate */
};

/* The i-th row of the table as it stands there; NULL behind the last. */
static inline const struct acct_device_row *acct_device_row(int i) {
#define DEVICE(a, n, cc, fp64, fp64t, fp32, tf32, bf16, fp16, fp16a, fp8, int8, fp4, gbs, gb, total, src) \
    {a, n, src, cc, {fp64, fp64t, fp32, tf32, bf16, fp16, fp16a, fp8, int8, fp4}, gbs, total},
    static const struct acct_device_row rows[] = {
#include "acct/devices.def"
    };
    return i >= 0 && i < (int)(sizeof rows / sizeof *rows) ? &rows[i] : NULL;
}

static inline void acct_device_board(const char *alias, struct acct_device *d) {
#define BOARD(a, s, mhz, mmhz, bits, l2, kept, host, peers, direct) \
    {a, s, mhz, mmhz, bits, direct, kept, l2, host, peers},
    static const struct {
        const char *alias;
        int sms, mhz, memory_mhz, bits, peer, reserved_mib;
        double l2_mib, host, peers;
    } rows[] = {
#include "acct/devices.def"
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (strcmp(rows[i].alias, alias)) continue;
        d->sms = rows[i].sms;
        d->clock_khz = rows[i].mhz * 1000;
        d->memory_clock_khz = rows[i].memory_mhz * 1000;
        d->bus_bits = rows[i].bits;
        d->peer = rows[i].peer != 0;
        d->l2_bytes = (uint64_t)(rows[i].l2_mib * 1048576);
        d->reserved_bytes = (uint64_t)rows[i].reserved_mib << 20;
        d->host_bytes_per_s = round(rows[i].host * 1e9);
        d->peer_bytes_per_s = round(rows[i].peers * 1e9);
    }
}

static inline void acct_device_text(char *to, size_t bytes, const char *text) {
    size_t n = strlen(text) < bytes - 1 ? strlen(text) : bytes - 1;
    memcpy(to, text, n);
    to[n] = 0;
}

/* The i-th device; 0, or -1 behind the last. Peaks are rounded: 66.9 has no exact binary form, 66.9e12 has. */
static inline int acct_device_get(int i, struct acct_device *d) {
    const struct acct_device_row *r = acct_device_row(i);
    if (!r) return -1;
    memset(d, 0, sizeof *d);
    acct_device_text(d->alias, sizeof d->alias, r->alias);
    acct_device_text(d->name, sizeof d->name, r->name);
    acct_device_text(d->source, sizeof d->source, r->source);
    d->sm = r->sm;
    for (int f = 0; f < ACCT_FORMATS; f++) d->peak[f] = r->peak[f] < 0 ? NAN : round(r->peak[f] * 1e12);
    d->bytes_per_s = r->gb_s * 1e9;
    d->total_bytes = (uint64_t)(r->bytes < 0 ? -r->bytes : r->bytes);
    d->total_estimated = r->bytes < 0;
    d->launch_s = ACCT_LAUNCH_S;
    acct_device_board(d->alias, d);
    return 0;
}

#endif
