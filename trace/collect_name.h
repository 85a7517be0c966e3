/* The name of a trace from ACCT_OUTPUT: %p process id, %h host, %r rank, %n a counter, %% a percent sign. */
#ifndef ACCT_TRACE_COLLECT_NAME_H
#define ACCT_TRACE_COLLECT_NAME_H

#include <stddef.h>

struct name_values {
    long pid, rank;
    const char *host;
    unsigned counter; /* %n */
};

/* 1 if the pattern has a %n. */
int name_has_counter(const char *pattern);

/* 0; or -1 with one line in err: an unknown % or a name that is too long. */
int name_expand(const char *pattern, const struct name_values *v, char *out, size_t out_len, char *err, size_t err_len);

/* Puts -n before a closing ".db" (else at the end); n = 0 leaves the name. 0, or -1: too long. */
int name_number(const char *name, unsigned n, char *out, size_t out_len);

#endif
