/* What each kernel did over a run: the program's by their launches and prices, a library's by the device's records.
 * ns, bytes, FLOPs. One thread. */
#ifndef ACCT_ANALYZER_KERNELS_ROWS_H
#define ACCT_ANALYZER_KERNELS_ROWS_H

#include "analyzer/ops_groups.h"

#define KERNEL_COUNTS 64 /* kinds of price_count.count */

struct kernel_shape {
    int64_t dim[7]; /* grid, block, dynamic shared bytes; -1: not known */
    int64_t launches, timed, time_ns;
};

struct kernel_row {
    const char *name; /* demangled; the owner's */
    int library;      /* 1: launched inside a library's call, which has its FLOPs */
    int64_t launches, timed, time_ns, min_ns, max_ns;
    int64_t registers, static_shared_bytes, local_bytes; /* REPORT_UNKNOWN */
    struct kernel_shape *shape;                          /* the most launched first */
    int64_t n_shapes;
    struct report_sum flops;
    double bytes; /* of the device's memory, the least; NaN */
    double roof_share;
    enum roof_bound bound;
    int has_counts;
    __int128 least[KERNEL_COUNTS], most[KERNEL_COUNTS]; /* of all launches, by count */
    uint8_t unbounded[KERNEL_COUNTS];
    char *why; /* its price is not exact; NULL */
};

struct kernels {
    struct kernel_row *row;
    int64_t n;
    char *count[KERNEL_COUNTS]; /* names: fp32, matrix.bf16, loaded.global … */
    int counts;
    struct ops_groups ops;
    char **name; /* of library kernels */
    int64_t names;
};

/* 0, or -1 with one line in err; kernels_free in both cases. */
int kernels_load(struct kernels *k, struct report *r, char *err, size_t err_len);
void kernels_free(struct kernels *k);
void kernels_sort(struct kernels *k, enum ops_order order);

/* Share of a multiprocessor's warps that can be resident at once, by threads, blocks, registers and shared memory; NaN:
 * the limits of this compute capability (10 * major + minor), or the kernel's needs, are not known. Source: CUDA C++
 * Programming Guide 13.0, technical specifications per compute capability, and cuda_occupancy.h. */
double kernels_occupancy(int64_t capability, int64_t threads, int64_t registers, int64_t static_shared,
                         int64_t dynamic_shared);

#endif
