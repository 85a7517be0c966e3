#include "plan/plan_number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- units ---- */

/* A factor is `whole` × 10^ten. */
struct unit {
    const char *name;
    int64_t whole;
    int ten;
};

static const struct unit counts[] = {{"k", 1, 3}, {"K", 1, 3},  {"M", 1, 6},  {"m", 1, 6},  {"B", 1, 9}, {"b", 1, 9},
                                     {"G", 1, 9}, {"T", 1, 12}, {"t", 1, 12}, {"P", 1, 15}, {0}};
static const struct unit bytes[] = {
    {"B", 1, 0},           {"kB", 1, 3},          {"KB", 1, 3},          {"MB", 1, 6},          {"GB", 1, 9},
    {"TB", 1, 12},         {"PB", 1, 15},         {"EB", 1, 18},         {"KiB", 1LL << 10, 0}, {"MiB", 1LL << 20, 0},
    {"GiB", 1LL << 30, 0}, {"TiB", 1LL << 40, 0}, {"PiB", 1LL << 50, 0}, {"EiB", 1LL << 60, 0}, {0}};
static const struct unit seconds[] = {{"ns", 1, -9},          {"us", 1, -6},
                                      {"ms", 1, -3},          {"s", 1, 0},
                                      {"min", 60, 0},         {"h", 3600, 0},
                                      {"d", 86400, 0},        {"day", 86400, 0},
                                      {"days", 86400, 0},     {"week", 604800, 0},
                                      {"weeks", 604800, 0},   {"year", 31536000, 0},
                                      {"years", 31536000, 0}, {0}};
static const struct unit flops[] = {
    {"FLOP", 1, 0},   {"kFLOP", 1, 3},  {"MFLOP", 1, 6},  {"GFLOP", 1, 9},  {"TFLOP", 1, 12},
    {"PFLOP", 1, 15}, {"EFLOP", 1, 18}, {"ZFLOP", 1, 21}, {"YFLOP", 1, 24}, {0}};
static const struct unit rates[] = {{"FLOP/s", 1, 0},   {"GFLOP/s", 1, 9},  {"TFLOP/s", 1, 12},
                                    {"PFLOP/s", 1, 15}, {"EFLOP/s", 1, 18}, {"GOP/s", 1, 9},
                                    {"TOP/s", 1, 12},   {"POP/s", 1, 15},   {0}};
static const struct unit byte_rates[] = {{"B/s", 1, 0},  {"kB/s", 1, 3},  {"MB/s", 1, 6},
                                         {"GB/s", 1, 9}, {"TB/s", 1, 12}, {0}};
static const struct unit shares[] = {{"%", 1, -2}, {0}};
static const struct unit money[] = {{"k", 1, 3}, {"K", 1, 3}, {"M", 1, 6}, {"B", 1, 9}, {0}};

static const struct {
    const struct unit *units;
    const char *expected;
} kinds[PLAN_KINDS] = {
    [PLAN_COUNT] = {counts, "a number such as 70e9, 70B or 15T"},
    [PLAN_BYTES] = {bytes, "bytes such as 80GB, 80GiB or 640e9"},
    [PLAN_SECONDS] = {seconds, "a time such as 30d, 12h, 250ms or 3600 (seconds)"},
    [PLAN_FLOPS] = {flops, "FLOPs such as 6.3e24 or 1.5TFLOP"},
    [PLAN_RATE] = {rates, "a rate such as 989.4TFLOP/s or 9.894e14 (FLOP/s)"},
    [PLAN_BYTE_RATE] = {byte_rates, "a rate such as 3350GB/s or 3.35e12 (bytes/s)"},
    [PLAN_SHARE] = {shares, "a share such as 0.5 or 50%"},
    [PLAN_MONEY] = {money, "an amount such as 2.5 or 1M"},
};

/* ---- reading ---- */

/* What stands in the text: sign × digits × 10^ten × factor, or nan. */
struct written {
    int negative, cut; /* cut: digits beyond what an int128 holds were dropped (only a real can have those) */
    __int128 digits;
    long ten;
    int64_t factor;
};

static int refuse(char *err, size_t err_len, const char *text, const char *expected) {
    snprintf(err, err_len, "'%.60s': not understood; give %s", text, expected);
    return -1;
}

static const char *read_digits(const char *p, struct written *w, int *any) {
    int point = 0;
    for (; (*p >= '0' && *p <= '9') || (*p == '.' && !point) || (*p == '_' && *any); p++) {
        if (*p == '_') continue;
        if (*p == '.') {
            point = 1;
            continue;
        }
        *any = 1;
        if (w->digits > ((__int128)1 << 120)) {
            w->cut |= *p != '0';
            w->ten += !point;
            continue;
        }
        w->digits = w->digits * 10 + (*p - '0');
        w->ten -= point;
    }
    return p;
}

static int read_unit(const char *p, enum plan_kind kind, struct written *w) {
    w->factor = 1;
    while (*p == ' ') p++;
    if (!*p) return 0;
    for (const struct unit *u = kinds[kind].units; u->name; u++)
        if (!strcmp(u->name, p)) {
            w->factor = u->whole;
            w->ten += u->ten;
            return 0;
        }
    return -1;
}

static int read_written(const char *text, enum plan_kind kind, struct written *w) {
    const char *p = text;
    int any = 0;
    memset(w, 0, sizeof *w);
    if (*p == '-' || *p == '+') w->negative = *p++ == '-';
    p = read_digits(p, w, &any);
    if (!any) return -1;
    if ((*p == 'e' || *p == 'E') && (p[1] == '+' || p[1] == '-' || (p[1] >= '0' && p[1] <= '9'))) {
        char *end;
        long e = strtol(p + 1, &end, 10);
        if (end == p + 1 || end[-1] == '+' || end[-1] == '-') return -1;
        w->ten += e > 100000 ? 100000 : e < -100000 ? -100000 : e;
        p = end;
    }
    return read_unit(p, kind, w);
}

static int check_sign(const char *text, int negative, int zero, enum plan_sign sign, char *err, size_t err_len) {
    const char *what = negative && !zero && sign != PLAN_ANY ? "negative"
                       : zero && sign == PLAN_POSITIVE       ? "zero"
                                                             : NULL;
    if (!what) return 0;
    snprintf(err, err_len, "'%.60s' is %s; give a number %s", text, what,
             sign == PLAN_POSITIVE ? "above 0" : "of 0 or more");
    return -1;
}

int plan_real(const char *text, enum plan_kind kind, enum plan_sign sign, double *out, char *err, size_t err_len) {
    struct written w;
    char digits[48], decimal[64];
    int n = 0;
    if (read_written(text, kind, &w)) return refuse(err, err_len, text, kinds[kind].expected);
    if (check_sign(text, w.negative, !w.digits, sign, err, err_len)) return -1;
    /* Through the decimal text: strtod rounds once, products of powers would round at each. */
    digits[sizeof digits - 1] = 0;
    char *d = digits + sizeof digits - 1;
    __int128 rest = w.digits;
    do *--d = (char)('0' + (int)(rest % 10)), rest /= 10, n++;
    while (rest);
    snprintf(decimal, sizeof decimal, "%s%.*se%ld", w.negative ? "-" : "", n, d, w.ten);
    *out = strtod(decimal, NULL) * (double)w.factor;
    if (!isfinite(*out)) {
        snprintf(err, err_len, "'%.60s' is too large; numbers go up to 1.7e308", text);
        return -1;
    }
    if (w.digits && !*out) {
        snprintf(err, err_len, "'%.60s' is too small; numbers go down to 4.9e-324", text);
        return -1;
    }
    return 0;
}

int plan_whole(const char *text, enum plan_kind kind, enum plan_sign sign, int64_t most, int64_t *out, char *err,
               size_t err_len) {
    struct written w;
    if (read_written(text, kind, &w)) return refuse(err, err_len, text, kinds[kind].expected);
    if (check_sign(text, w.negative, !w.digits, sign, err, err_len)) return -1;
    __int128 value = w.digits;
    int over = 0, part = w.cut;
    if (value) {
        for (; w.ten < 0 && !part && value % 10 == 0; w.ten++) value /= 10;
        over = plan_multiply(value, w.factor, &value) != 0; /* 0.5KiB is whole */
        for (; w.ten < 0 && !part && !over; w.ten++) {
            part |= value % 10 != 0;
            value /= 10;
        }
        for (; w.ten > 0 && !over; w.ten--) over = value > most || plan_multiply(value, 10, &value) != 0;
    }
    if (part && !over) {
        snprintf(err, err_len, "'%.60s' is not a whole number", text);
        return -1;
    }
    if (over || value > most) {
        snprintf(err, err_len, "'%.60s' is too large; at most %lld", text, (long long)most);
        return -1;
    }
    *out = w.negative ? -(int64_t)value : (int64_t)value;
    return 0;
}

int plan_list(const char *text, enum plan_sign sign, int64_t most, int room, int64_t *out, char *err, size_t err_len) {
    char item[64];
    int n = 0;
    if (!*text) return 0;
    for (;; text++) {
        size_t length = strcspn(text, ",");
        if (n == room) {
            snprintf(err, err_len, "more than %d numbers", room);
            return -1;
        }
        if (length >= sizeof item) return refuse(err, err_len, text, "numbers with a comma between, such as 2,3,4");
        memcpy(item, text, length);
        item[length] = 0;
        if (plan_whole(item, PLAN_COUNT, sign, most, &out[n++], err, err_len)) return -1;
        text += length;
        if (!*text) return n;
    }
}

int plan_pairs(const char *text,
               int (*take)(const char *name, const char *value, void *context, char *err, size_t err_len),
               void *context, char *err, size_t err_len) {
    char item[256];
    if (!*text) return 0;
    for (;; text++) {
        size_t length = strcspn(text, ",");
        char *equals;
        if (length >= sizeof item) return refuse(err, err_len, text, "NAME=VALUE, with a comma between");
        memcpy(item, text, length);
        item[length] = 0;
        equals = strchr(item, '=');
        if (!equals || equals == item || !equals[1])
            return refuse(err, err_len, item, "NAME=VALUE, with a comma between");
        *equals = 0;
        if (take(item, equals + 1, context, err, err_len)) return -1;
        text += length;
        if (!*text) return 0;
    }
}

/* ---- amounts ---- */

int plan_multiply(__int128 a, __int128 b, __int128 *out) {
    return __builtin_mul_overflow(a, b, out) ? -1 : 0;
}

int plan_add(__int128 a, __int128 b, __int128 *out) {
    return __builtin_add_overflow(a, b, out) ? -1 : 0;
}

/* Drops what an exponent does not need: e+07 → e7. */
static void trim_exponent(char *text) {
    char *e = strchr(text, 'e');
    if (!e) return;
    char *from = e + 1, *to = e + 1;
    if (*from == '-') to++;
    if (*from == '-' || *from == '+') from++;
    while (*from == '0' && from[1]) from++;
    memmove(to, from, strlen(from) + 1);
}

void plan_show(char *out, size_t room, double value) {
    char text[40];
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    if (fabs(value) < 1e7 && value == trunc(value)) snprintf(text, sizeof text, "%.0f", value); /* 3600, not 3.6e3 */
    trim_exponent(text);
    snprintf(out, room, "%s", text);
}

void plan_show_short(char *out, size_t room, double value) {
    char text[40];
    snprintf(text, sizeof text, "%.6g", value);
    plan_show(out, room, fabs(value) < 1e9 && value == trunc(value) ? value : strtod(text, NULL));
}
