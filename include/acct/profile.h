/* What the virtual GPU is to stand for, as ACCT_VGPU and `acct run --vgpu` name it: PROFILE[:COUNT]. PROFILE is "cpu",
 * an alias of include/acct/devices.def, or the path of a profile file (it has a / in it, or ends in .profile); COUNT is
 * 1 to ACCT_PROFILE_DEVICES. Header only: `acct run` refuses what is wrong before the program starts, the virtual GPU
 * at the program's first call. Any thread.
 *
 * A profile file has lines `key = value`; # begins a comment. docs/PROFILES.md describes them. */
#ifndef ACCT_PROFILE_H
#define ACCT_PROFILE_H

#include "acct/device_table.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

enum { ACCT_PROFILE_DEVICES = 16 };

struct acct_profile {
    int cpu;     /* this machine: nothing of `device` holds */
    int file;    /* it is a profile file's */
    int devices; /* how many */
    struct acct_device device;
};

__attribute__((format(printf, 3, 4))) static inline int acct_profile_refuse(char *err, size_t err_len,
                                                                            const char *format, ...) {
    va_list ap;
    va_start(ap, format);
    vsnprintf(err, err_len, format, ap);
    va_end(ap);
    return -1;
}

/* "cpu, v100-16, …". */
static inline void acct_profile_list(char *to, size_t bytes) {
    size_t n = (size_t)snprintf(to, bytes, "cpu");
    const struct acct_device_row *r;
    for (int i = 0; (r = acct_device_row(i)) && n < bytes; i++)
        n += (size_t)snprintf(to + n, bytes - n, ", %s", r->alias);
}

/* ---- values of a file ---- */

/* A number of those units; "none" is NaN where that may be. */
struct acct_profile_unit {
    const char *name;
    double factor;
};

enum acct_profile_kind {
    ACCT_KEY_TEXT,
    ACCT_KEY_BYTES,
    ACCT_KEY_RATE,
    ACCT_KEY_PEAK,
    ACCT_KEY_HERTZ,
    ACCT_KEY_SECONDS,
    ACCT_KEY_COUNT,
    ACCT_KEY_SWITCH,
    ACCT_KEY_KINDS
};

/* Units by kind; the first is what messages give as an example. */
static inline const struct acct_profile_unit *acct_profile_units(enum acct_profile_kind kind) {
    static const struct acct_profile_unit units[ACCT_KEY_KINDS][12] = {
        [ACCT_KEY_BYTES] = {{"GiB", 1073741824},
                            {"MiB", 1048576},
                            {"KiB", 1024},
                            {"TiB", 1099511627776},
                            {"GB", 1e9},
                            {"MB", 1e6},
                            {"kB", 1e3},
                            {"B", 1},
                            {0}},
        [ACCT_KEY_RATE] = {{"GB/s", 1e9}, {"TB/s", 1e12}, {"MB/s", 1e6}, {0}},
        [ACCT_KEY_PEAK] =
            {{"TFLOP/s", 1e12}, {"PFLOP/s", 1e15}, {"GFLOP/s", 1e9}, {"TOP/s", 1e12}, {"POP/s", 1e15}, {0}},
        [ACCT_KEY_HERTZ] = {{"MHz", 1e6}, {"GHz", 1e9}, {"kHz", 1e3}, {0}},
        [ACCT_KEY_SECONDS] = {{"us", 1e-6}, {"ns", 1e-9}, {"ms", 1e-3}, {"s", 1}, {0}},
    };
    return units[kind];
}

/* Times are computed by division by rates and peaks, and a launch is added to each op's: what they cannot be. */
static inline int acct_profile_in_bounds(enum acct_profile_kind kind, double n) {
    if (kind == ACCT_KEY_SECONDS) return n <= 1;
    return n > 0 || (kind != ACCT_KEY_RATE && kind != ACCT_KEY_PEAK);
}

/* 0, or -1: not a positive number with a unit of that kind (a count: a whole number without one). */
static inline int acct_profile_number(enum acct_profile_kind kind, const char *text, double *out) {
    char *end;
    if (kind == ACCT_KEY_PEAK && !strcmp(text, "none")) {
        *out = NAN;
        return 0;
    }
    if ((*text < '0' || *text > '9') || text[strspn(text, "0123456789.")] == 'x') return -1;
    double n = strtod(text, &end);
    if (!(n >= 0 && n < 1e18)) return -1;
    if (kind == ACCT_KEY_COUNT) {
        *out = n;
        return *end || n != floor(n) || n < 1 || n > INT32_MAX ? -1 : 0;
    }
    end += strspn(end, " \t");
    for (const struct acct_profile_unit *u = acct_profile_units(kind); u->name; u++) {
        if (strcmp(u->name, end)) continue;
        *out = kind == ACCT_KEY_SECONDS ? n * u->factor : round(n * u->factor);
        return acct_profile_in_bounds(kind, *out) ? 0 : -1;
    }
    return -1;
}

/* ---- keys of a file ---- */

enum acct_profile_type { ACCT_PUT_TEXT, ACCT_PUT_DOUBLE, ACCT_PUT_BYTES, ACCT_PUT_INT, ACCT_PUT_KHZ };

struct acct_profile_key {
    const char *name;
    enum acct_profile_kind kind;
    enum acct_profile_type type;
    size_t offset, bytes; /* in struct acct_device; bytes: of a text */
    int needed;           /* without a base */
};

#define ACCT_AT(f) offsetof(struct acct_device, f)
#define ACCT_PEAK_KEY(n, f, needed) \
    { n, ACCT_KEY_PEAK, ACCT_PUT_DOUBLE, ACCT_AT(peak) + (f) * sizeof(double), 0, needed }

static inline const struct acct_profile_key *acct_profile_keys(void) {
    static const struct acct_profile_key keys[] = {
        {"name", ACCT_KEY_TEXT, ACCT_PUT_TEXT, ACCT_AT(name), sizeof(((struct acct_device *)0)->name), 1},
        {"source", ACCT_KEY_TEXT, ACCT_PUT_TEXT, ACCT_AT(source), sizeof(((struct acct_device *)0)->source), 0},
        {"sm", ACCT_KEY_COUNT, ACCT_PUT_INT, ACCT_AT(sm), 0, 1},
        {"multiprocessors", ACCT_KEY_COUNT, ACCT_PUT_INT, ACCT_AT(sms), 0, 1},
        {"total", ACCT_KEY_BYTES, ACCT_PUT_BYTES, ACCT_AT(total_bytes), 0, 1},
        {"reserved", ACCT_KEY_BYTES, ACCT_PUT_BYTES, ACCT_AT(reserved_bytes), 0, 1},
        {"l2", ACCT_KEY_BYTES, ACCT_PUT_BYTES, ACCT_AT(l2_bytes), 0, 0},
        {"clock", ACCT_KEY_HERTZ, ACCT_PUT_KHZ, ACCT_AT(clock_khz), 0, 0},
        {"memory_clock", ACCT_KEY_HERTZ, ACCT_PUT_KHZ, ACCT_AT(memory_clock_khz), 0, 0},
        {"memory_bus_bits", ACCT_KEY_COUNT, ACCT_PUT_INT, ACCT_AT(bus_bits), 0, 0},
        {"bandwidth", ACCT_KEY_RATE, ACCT_PUT_DOUBLE, ACCT_AT(bytes_per_s), 0, 1},
        {"host_link", ACCT_KEY_RATE, ACCT_PUT_DOUBLE, ACCT_AT(host_bytes_per_s), 0, 1},
        {"peer_link", ACCT_KEY_RATE, ACCT_PUT_DOUBLE, ACCT_AT(peer_bytes_per_s), 0, 0},
        {"peer_access", ACCT_KEY_SWITCH, ACCT_PUT_INT, ACCT_AT(peer), 0, 0},
        {"launch", ACCT_KEY_SECONDS, ACCT_PUT_DOUBLE, ACCT_AT(launch_s), 0, 0},
#define ACCT_FORMAT_KEY(id, name) ACCT_PEAK_KEY(name, ACCT_##id, ACCT_##id == ACCT_FP32),
        ACCT_EACH_FORMAT(ACCT_FORMAT_KEY)
#undef ACCT_FORMAT_KEY
            {0},
    };
    return keys;
}

/* 0, or -1: too large. */
static inline int acct_profile_put(struct acct_device *d, const struct acct_profile_key *k, double n) {
    char *at = (char *)d + k->offset;
    if (k->type == ACCT_PUT_BYTES && n < 1e18) {
        uint64_t bytes = (uint64_t)n;
        memcpy(at, &bytes, sizeof bytes);
        return 0;
    }
    if (k->type == ACCT_PUT_KHZ) n /= 1e3;
    if ((k->type == ACCT_PUT_INT || k->type == ACCT_PUT_KHZ) && n < INT32_MAX) {
        int whole = (int)n;
        memcpy(at, &whole, sizeof whole);
        return 0;
    }
    if (k->type == ACCT_PUT_DOUBLE) memcpy(at, &n, sizeof n);
    return k->type == ACCT_PUT_DOUBLE ? 0 : -1;
}

/* What a value must look like. */
static inline const char *acct_profile_like(enum acct_profile_kind kind) {
    static const char *const like[ACCT_KEY_KINDS] = {
        [ACCT_KEY_TEXT] = "a text",
        [ACCT_KEY_BYTES] = "a size such as 80GiB",
        [ACCT_KEY_RATE] = "a rate such as 2000GB/s",
        [ACCT_KEY_PEAK] = "a peak such as 312TFLOP/s, or none",
        [ACCT_KEY_HERTZ] = "a frequency such as 1410MHz",
        [ACCT_KEY_SECONDS] = "a time such as 2us, at most 1s",
        [ACCT_KEY_COUNT] = "a whole number",
        [ACCT_KEY_SWITCH] = "yes or no",
    };
    return like[kind];
}

/* 0, or -1: the value is not of the key's kind. */
static inline int acct_profile_set(struct acct_device *d, const struct acct_profile_key *k, const char *value) {
    double n = 0;
    if (k->kind == ACCT_KEY_TEXT) {
        if (!*value || strlen(value) >= k->bytes) return -1;
        for (const char *c = value; *c; c++)
            if ((unsigned char)*c < ' ' || *c == 127) return -1; /* it is printed on terminals */
        acct_device_text((char *)d + k->offset, k->bytes, value);
        return 0;
    }
    if (k->kind == ACCT_KEY_SWITCH) {
        if (strcmp(value, "yes") && strcmp(value, "no")) return -1;
        n = !strcmp(value, "yes");
    } else if (acct_profile_number(k->kind, value, &n)) {
        return -1;
    }
    return acct_profile_put(d, k, n);
}

/* ---- a file ---- */

struct acct_profile_file {
    const char *path;
    int line, base;
    uint64_t seen; /* keys, a bit each */
    char *err;
    size_t err_len;
};

/* By alias, letters of either case. 0, or -1. */
static inline int acct_device_find(const char *alias, struct acct_device *d) {
    for (int i = 0; acct_device_row(i); i++)
        if (!strcasecmp(acct_device_row(i)->alias, alias)) return acct_device_get(i, d);
    return -1;
}

static inline int acct_profile_base(struct acct_profile_file *f, struct acct_device *d, const char *value) {
    if (f->seen || f->base)
        return acct_profile_refuse(f->err, f->err_len, "%s:%d: base must be the first key", f->path, f->line);
    if (acct_device_find(value, d))
        return acct_profile_refuse(f->err, f->err_len,
                                   "%s:%d: base = %s: no such device; `acct help devices` lists them", f->path, f->line,
                                   value);
    f->base = 1;
    return 0;
}

static inline int acct_profile_pair(struct acct_profile_file *f, struct acct_device *d, const char *key,
                                    const char *value) {
    const struct acct_profile_key *keys = acct_profile_keys();
    int i = 0;
    if (!strcmp(key, "base")) return acct_profile_base(f, d, value);
    while (keys[i].name && strcmp(keys[i].name, key)) i++;
    if (!keys[i].name) return acct_profile_refuse(f->err, f->err_len, "%s:%d: unknown key '%s'", f->path, f->line, key);
    if (f->seen >> i & 1)
        return acct_profile_refuse(f->err, f->err_len, "%s:%d: %s is there twice", f->path, f->line, key);
    f->seen |= UINT64_C(1) << i;
    if (!acct_profile_set(d, &keys[i], value)) return 0;
    return acct_profile_refuse(f->err, f->err_len, "%s:%d: %s = %s: must be %s", f->path, f->line, key, value,
                               acct_profile_like(keys[i].kind));
}

static inline char *acct_profile_trim(char *s) {
    s += strspn(s, " \t\r\n");
    size_t n = strlen(s);
    while (n && strchr(" \t\r\n", s[n - 1])) n--;
    s[n] = 0;
    return s;
}

static inline int acct_profile_line(struct acct_profile_file *f, struct acct_device *d, char *line) {
    line[strcspn(line, "#")] = 0;
    char *key = acct_profile_trim(line), *value = strchr(key, '=');
    if (!*key) return 0;
    if (!value) return acct_profile_refuse(f->err, f->err_len, "%s:%d: not `key = value`: %s", f->path, f->line, key);
    *value++ = 0;
    return acct_profile_pair(f, d, acct_profile_trim(key), acct_profile_trim(value));
}

/* What holds of the file as a whole. */
static inline int acct_profile_whole(const struct acct_profile_file *f, const struct acct_device *d) {
    const struct acct_profile_key *keys = acct_profile_keys();
    for (int i = 0; keys[i].name && !f->base; i++)
        if (keys[i].needed && !(f->seen >> i & 1))
            return acct_profile_refuse(f->err, f->err_len, "%s: %s is missing, and there is no base to take it from",
                                       f->path, keys[i].name);
    if (!acct_sm_find(d->sm))
        return acct_profile_refuse(f->err, f->err_len,
                                   "%s: sm = %u: its limits are not known; there are 70, 75, 80, 86, 89, 90, 100, 120",
                                   f->path, d->sm);
    if (d->total_bytes <= d->reserved_bytes)
        return acct_profile_refuse(f->err, f->err_len, "%s: nothing is left of total after reserved", f->path);
    return 0;
}

static inline void acct_profile_blank(struct acct_device *d) {
    memset(d, 0, sizeof *d);
    for (int i = 0; i < ACCT_FORMATS; i++) d->peak[i] = NAN;
    d->bytes_per_s = d->host_bytes_per_s = d->peer_bytes_per_s = NAN;
    d->launch_s = ACCT_LAUNCH_S;
}

/* The alias: the file's name without folder and suffix. What the peaks are from, where the file does not say it. */
static inline void acct_profile_names(const struct acct_profile_file *f, struct acct_device *d) {
    const char *slash = strrchr(f->path, '/'), *name = slash ? slash + 1 : f->path, *dot = strrchr(name, '.');
    const struct acct_profile_key *keys = acct_profile_keys();
    int source = 0;
    while (strcmp(keys[source].name, "source")) source++;
    if (!(f->seen >> source & 1))
        snprintf(d->source, sizeof d->source, "%.80s%s%s", name, f->base ? ", from " : "", f->base ? d->alias : "");
    snprintf(d->alias, sizeof d->alias, "%.*s", dot && dot > name ? (int)(dot - name) : (int)strlen(name), name);
}

/* A profile file's lines; path: as messages name it. */
static inline int acct_profile_lines(FILE *in, const char *path, struct acct_device *d, char *err, size_t err_len) {
    struct acct_profile_file f = {.path = path, .err = err, .err_len = err_len};
    char line[512];
    int rc = 0;
    acct_profile_blank(d);
    while (!rc && fgets(line, sizeof line, in)) {
        f.line++;
        if (!strchr(line, '\n') && !feof(in))
            rc = acct_profile_refuse(err, err_len, "%s:%d: the line is too long", path, f.line);
        else
            rc = acct_profile_line(&f, d, line);
    }
    if (!rc && ferror(in)) rc = acct_profile_refuse(err, err_len, "%s: cannot be read", path);
    if (!rc) rc = acct_profile_whole(&f, d);
    if (!rc) acct_profile_names(&f, d);
    return rc;
}

static inline int acct_profile_file(const char *path, struct acct_device *d, char *err, size_t err_len) {
    FILE *in = fopen(path, "re");
    if (!in) return acct_profile_refuse(err, err_len, "%s: %s", path, strerror(errno));
    int rc = acct_profile_lines(in, path, d, err, err_len);
    fclose(in);
    return rc;
}

/* ---- the whole ---- */

/* The count behind the last colon, if there is one. 0, or -1. */
static inline int acct_profile_count(const char *text, size_t *name_len, int *count) {
    const char *colon = strrchr(text, ':');
    *name_len = colon ? (size_t)(colon - text) : strlen(text);
    *count = 1;
    if (!colon) return 0;
    size_t digits = strspn(colon + 1, "0123456789");
    if (!digits || digits > 4 || colon[1 + digits]) return -1;
    *count = atoi(colon + 1);
    return *count >= 1 && *count <= ACCT_PROFILE_DEVICES ? 0 : -1;
}

static inline int acct_profile_is_path(const char *name) {
    size_t n = strlen(name);
    return strchr(name, '/') || (n > 8 && !strcmp(name + n - 8, ".profile"));
}

/* 0; or -1 with one line in err, without the name of who asked. */
static inline int acct_profile_read(const char *text, struct acct_profile *out, char *err, size_t err_len) {
    char name[4096], all[512];
    size_t len;
    memset(out, 0, sizeof *out);
    if (acct_profile_count(text, &len, &out->devices))
        return acct_profile_refuse(err, err_len, "%s: behind the colon stands the number of devices, 1 to %d", text,
                                   ACCT_PROFILE_DEVICES);
    if (len >= sizeof name) return acct_profile_refuse(err, err_len, "%.60s...: the name is too long", text);
    memcpy(name, text, len);
    name[len] = 0;
    if (!strcasecmp(name, "cpu")) {
        out->cpu = 1;
        return 0;
    }
    out->file = acct_profile_is_path(name);
    if (out->file) return acct_profile_file(name, &out->device, err, err_len);
    if (!acct_device_find(name, &out->device)) return 0;
    acct_profile_list(all, sizeof all);
    return acct_profile_refuse(err, err_len, "%s: no such device; there are: %s; or the path of a profile file (./%s)",
                               name, all, *name ? name : "mine.profile");
}

#endif
