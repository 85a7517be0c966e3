#include "trace/collect_name.h"

#include <stdio.h>
#include <string.h>

int name_has_counter(const char *pattern) {
    for (const char *p = pattern; (p = strchr(p, '%')) && p[1]; p += 2)
        if (p[1] == 'n') return 1;
    return 0;
}

/* A host name is the machine's to choose: it must not lead into another folder. */
static void append_host(const char *host, char *to, size_t len) {
    snprintf(to, len, "%s", *host ? host : "localhost");
    for (; *to; to++)
        if (*to == '/') *to = '_';
}

static int expand_one(char what, const struct name_values *v, char *to, size_t len) {
    switch (what) {
    case 'p':
        snprintf(to, len, "%ld", v->pid);
        return 0;
    case 'r':
        snprintf(to, len, "%ld", v->rank);
        return 0;
    case 'n':
        snprintf(to, len, "%u", v->counter);
        return 0;
    case 'h':
        append_host(v->host, to, len);
        return 0;
    case '%':
        snprintf(to, len, "%%");
        return 0;
    default:
        return -1;
    }
}

int name_expand(const char *pattern, const struct name_values *v, char *out, size_t out_len, char *err,
                size_t err_len) {
    size_t n = 0;
    for (const char *p = pattern; *p; p++) {
        char piece[256] = {*p, 0};
        if (*p == '%' && expand_one(*++p, v, piece, sizeof piece)) {
            snprintf(err, err_len,
                     "ACCT_OUTPUT: unknown %%%.1s in '%.200s': use %%p %%h %%r %%n, or %%%% for a percent sign", p,
                     pattern);
            return -1;
        }
        size_t length = strlen(piece);
        if (n + length >= out_len) {
            snprintf(err, err_len, "ACCT_OUTPUT: the name is too long: '%.64s…'", pattern);
            return -1;
        }
        memcpy(out + n, piece, length);
        n += length;
    }
    out[n] = 0;
    return 0;
}

int name_number(const char *name, unsigned n, char *out, size_t out_len) {
    size_t stem = strlen(name);
    if (stem > 3 && !strcmp(name + stem - 3, ".db")) stem -= 3;
    int length =
        n ? snprintf(out, out_len, "%.*s-%u%s", (int)stem, name, n, name + stem) : snprintf(out, out_len, "%s", name);
    return length < 0 || (size_t)length >= out_len ? -1 : 0;
}
