/* What benchmarks share that run themselves under libacct.so: the clock, medians, where the build is. C and C++. */
#ifndef ACCT_BENCH_PRELOADED_H
#define ACCT_BENCH_PRELOADED_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static inline double bench_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline int bench_ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts the values; n is odd. */
static inline double bench_median(double *values, size_t n) {
    qsort(values, n, sizeof *values, bench_ascending);
    return values[n / 2];
}

/* BUILD, from BUILD/bench/PROGRAM, and the CUDA runtime for children: that of LD_LIBRARY_PATH, else the virtual GPU's.
 * 0: not found. */
static inline int bench_find_build(char *out, size_t size) {
    char path[8192];
    const char *given = getenv("LD_LIBRARY_PATH");
    ssize_t n = readlink("/proc/self/exe", out, size - 1);
    if (n <= 0) return 0;
    out[n] = 0;
    for (int i = 0; i < 2; i++) {
        char *slash = strrchr(out, '/');
        if (!slash) return 0;
        *slash = 0;
    }
    snprintf(path, sizeof path, "%s%s%s/vgpu", given ? given : "", given ? ":" : "", out);
    return setenv("LD_LIBRARY_PATH", path, 1) == 0;
}

#endif
