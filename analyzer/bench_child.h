/* The process of `acct bench` that measures: started, read line by line, ended in time whatever it does. It ends with
 * acct, however acct ends. One thread. */
#ifndef ACCT_ANALYZER_BENCH_CHILD_H
#define ACCT_ANALYZER_BENCH_CHILD_H

#include "analyzer/bench_results.h"
#include "analyzer/run_parts.h"

struct bench_wanted {
    double seconds;           /* in all */
    const char *only, *dtype; /* lists with commas; NULL: all */
};

/* Runs acct-bench into r. Shows progress on stderr where that is a terminal. 0: it came to its end, or was cut off for
 * its time with something measured (r->late); -1 with one line in err: it could not be started, or ended otherwise; or
 * the number of a signal (SIGINT …) that acct was sent meanwhile: the child is ended and r is not whole. */
int bench_run(const struct run_parts *parts, const struct bench_wanted *wanted, struct bench_results *r, char *err,
              size_t err_len);

#endif
