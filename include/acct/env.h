/* Reads the ACCT_* environment variables as include/acct/env.def declares them. Header only: used by the library inside
 * the traced program as well, so nothing here allocates, prints or sets errno. Values are pointers into the
 * environment: valid until the program changes it. Any thread, as far as getenv is. */
#ifndef ACCT_ENV_H
#define ACCT_ENV_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum acct_env_name {
#define ENV(N, t, d, doc) ENV_##N,
#include "acct/env.def"
#undef ENV
    ENV_COUNT
};

struct acct_env_entry {
    const char *name, *type, *fallback, *doc;
};

/* The registry's row of `v`; for help and documentation. */
static inline const struct acct_env_entry *acct_env_entry(enum acct_env_name v) {
    static const struct acct_env_entry table[] = {
#define ENV(N, t, d, doc) {#N, #t, d, doc},
#include "acct/env.def"
#undef ENV
    };
    return &table[v];
}

/* Value as text; the default where it is unset or empty. Never NULL. */
static inline const char *acct_env_text(enum acct_env_name v) {
    const struct acct_env_entry *e = acct_env_entry(v);
    const char *s = getenv(e->name);
    return s && *s ? s : e->fallback;
}

/* Decimal digits with an optional suffix K, M or G (powers of 1024) if `suffix`. 0, or -1 if it is no such number. */
static inline int acct_env_parse_number(const char *s, int suffix, uint64_t *out) {
    uint64_t n = 0;
    unsigned shift = 0;
    if (*s < '0' || *s > '9') return -1;
    for (; *s >= '0' && *s <= '9'; s++) {
        unsigned digit = (unsigned)(*s - '0');
        if (n > (UINT64_MAX - digit) / 10) return -1;
        n = n * 10 + digit;
    }
    if (suffix && *s) {
        shift = *s == 'K' || *s == 'k' ? 10 : *s == 'M' || *s == 'm' ? 20 : *s == 'G' || *s == 'g' ? 30 : 0;
        s += shift != 0;
    }
    if (*s || n > UINT64_MAX >> shift) return -1;
    *out = n << shift;
    return 0;
}

/* 0, or -1 if it is neither 0, 1, off nor on. */
static inline int acct_env_parse_bool(const char *s, uint64_t *out) {
    if (!strcmp(s, "1") || !strcmp(s, "on"))
        *out = 1;
    else if (!strcmp(s, "0") || !strcmp(s, "off"))
        *out = 0;
    else
        return -1;
    return 0;
}

/* "auto" is 1, "off" 0; or -1. */
static inline int acct_env_parse_auto(const char *s, uint64_t *out) {
    *out = !strcmp(s, "auto");
    return *out || !strcmp(s, "off") ? 0 : -1;
}

static inline int acct_env_parse(const char *type, const char *s, uint64_t *out) {
    if (!strcmp(type, "bool")) return acct_env_parse_bool(s, out);
    if (!strcmp(type, "auto")) return acct_env_parse_auto(s, out);
    return acct_env_parse_number(s, !strcmp(type, "bytes"), out);
}

/* Value of a variable of type bool, auto, int, bytes or ms (in the type's unit). 0; or -1 if the text is malformed, and
 * then *out is the default, so that a caller may go on after telling the user. */
static inline int acct_env_number(enum acct_env_name v, uint64_t *out) {
    const struct acct_env_entry *e = acct_env_entry(v);
    if (acct_env_parse(e->type, acct_env_text(v), out) == 0) return 0;
    acct_env_parse(e->type, e->fallback, out);
    return -1;
}

/* acct_env_number for a time in ms, in ns: never so long that the sum with a clock's time could overflow (a year). */
static inline uint64_t acct_env_ns(enum acct_env_name v) {
    const uint64_t most_ms = UINT64_C(366) * 24 * 3600 * 1000;
    uint64_t ms;
    acct_env_number(v, &ms);
    return (ms < most_ms ? ms : most_ms) * 1000000u;
}

/* 1: the variable is set to what its type does not allow. */
static inline int acct_env_is_wrong(enum acct_env_name v) {
    const char *type = acct_env_entry(v)->type;
    uint64_t n;
    return strcmp(type, "text") && strcmp(type, "path") && acct_env_number(v, &n) != 0;
}

#endif
