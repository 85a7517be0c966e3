/* The roofline of one op: the least time that the device's peaks and the bandwidth of its memory allow for what it
 * does, and which of the two sets it (Williams, Waterman, Patterson: Roofline, 2009). */
#ifndef ACCT_ANALYZER_REPORT_ROOF_H
#define ACCT_ANALYZER_REPORT_ROOF_H

#include "analyzer/report_model.h"

enum roof_bound { ROOF_UNKNOWN, ROOF_COMPUTE, ROOF_MEMORY };

/* What an op does; NaN: not known. */
struct roof_work {
    const char *dtype; /* of its products; of a launch without any, of most of its FLOPs; NULL: none */
    int matmul;        /* 1: a matrix product, or a launch with matrix instructions */
    double matmul_flops, flops, bytes;
};

struct roof {
    double compute_ns; /* FLOPs / peak; NaN: they are not known, or a format's peak is not */
    double memory_ns;  /* bytes / bandwidth; NaN likewise */
    double ns;         /* the larger; NaN where one is not known */
    enum roof_bound bound;
};

/* Products go by the peak of their format, other FLOPs by that outside matrix units (fp64's, or fp32's for all else);
 * an op that does both does one after the other. Peaks and bandwidth are the report's. */
struct roof roof_of(const struct report *r, const struct roof_work *w);

/* FLOP/s that bound the op's FLOPs, most of which are products or are not; NaN. */
double roof_peak(const struct report *r, const struct roof_work *w);

#endif
