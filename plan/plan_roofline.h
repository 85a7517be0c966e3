/* The roofline of a device: what an op can reach at its arithmetic intensity (FLOPs a byte of device memory). Williams,
 * Waterman, Patterson 2009. Peaks in FLOP/s or OP/s, bandwidth in bytes/s, both above 0; time in s. A peak that
 * is not known (NaN) makes NaN of what depends on it. Pure functions, any
 * thread. */
#ifndef ACCT_PLAN_ROOFLINE_H
#define ACCT_PLAN_ROOFLINE_H

#include <stdint.h>

/* Intensity from which on the peak, not the bandwidth, bounds. */
double plan_ridge(double peak, double bandwidth);

/* The roof above an intensity: min(peak, intensity · bandwidth). */
double plan_roof(double peak, double bandwidth, double intensity);

/* max(flops / peak, bytes / bandwidth). */
double plan_roof_time(double peak, double bandwidth, double flops, double bytes);

/* A GEMM m×k · k×n: 2·m·n·k FLOPs, and the least bytes, A, B and C once (beta = 0), of in_bits an element of A and B
 * and out_bits of C. -1: beyond 1.7e38. */
struct plan_gemm {
    __int128 flops, bytes;
};
int plan_gemm(int64_t m, int64_t n, int64_t k, int in_bits, int out_bits, struct plan_gemm *out);

#endif
