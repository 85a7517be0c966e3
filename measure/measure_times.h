/* Times of one measurement, and the line that tells them. One thread. */
#ifndef ACCT_MEASURE_TIMES_H
#define ACCT_MEASURE_TIMES_H

#include "acct/measured.h"

enum { TIMES_MOST = 4096, TIMES_LEAST = 3 };

struct times {
    double s[TIMES_MOST]; /* seconds of one product, copy, launch or call */
    int n;
};

double times_now(void); /* seconds, CLOCK_MONOTONIC */

/* How many of something that takes `one` seconds make a batch of 2 ms, in which what a measurement itself takes does
 * not show: 1 … most. */
int times_batch(double one, int most);

/* Whether another is to be taken: there is room, and it is before `until` or there are fewer than TIMES_LEAST. */
int times_go_on(const struct times *t, double until);
void times_add(struct times *t, double seconds);

/* Fills in median, quartiles, extremes; sorts t. t->n > 0. */
void times_figures(struct times *t, struct measured *x);

/* Writes the line to stdout at once, or ends the process where nobody reads it. */
void times_tell(struct times *t, struct measured *x);
void times_skip(struct measured *x, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
