#include "measure/measure_times.h"

#include <errno.h>
#include <stdarg.h>
#include <time.h>
#include <unistd.h>

double times_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int times_batch(double one, int most) {
    double n = ceil(2e-3 / one);
    return n >= most ? most : n > 1 ? (int)n : 1;
}

int times_go_on(const struct times *t, double until) {
    return t->n < TIMES_LEAST || (t->n < TIMES_MOST && times_now() < until);
}

void times_add(struct times *t, double seconds) {
    t->s[t->n++] = seconds > 1e-12 ? seconds : 1e-12; /* a clock too coarse for it: 0 is no time */
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Linear between the two nearest ranks. */
static double quantile(const struct times *t, double q) {
    double at = q * (t->n - 1);
    int i = (int)at;
    return i + 1 < t->n ? t->s[i] + (at - i) * (t->s[i + 1] - t->s[i]) : t->s[i];
}

void times_figures(struct times *t, struct measured *x) {
    qsort(t->s, (size_t)t->n, sizeof *t->s, by_size);
    x->median_s = quantile(t, 0.5);
    x->q1_s = quantile(t, 0.25);
    x->q3_s = quantile(t, 0.75);
    x->min_s = t->s[0];
    x->max_s = t->s[t->n - 1];
    x->times = t->n;
}

static void tell(const struct measured *x) {
    char line[MEASURED_LINE];
    measured_write(line, x);
    for (size_t n = strlen(line), done = 0; done < n;) {
        ssize_t w = write(STDOUT_FILENO, line + done, n - done);
        if (w < 0 && errno != EINTR) _exit(1);
        if (w > 0) done += (size_t)w;
    }
}

void times_tell(struct times *t, struct measured *x) {
    times_figures(t, x);
    tell(x);
}

void times_skip(struct measured *x, const char *format, ...) {
    va_list ap;
    va_start(ap, format);
    vsnprintf(x->skipped, sizeof x->skipped, format, ap);
    va_end(ap);
    for (char *c = x->skipped; *c; c++)
        if ((unsigned char)*c < ' ') *c = ' ';
    tell(x);
}
