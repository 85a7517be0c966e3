#include "plan/plan_roofline.h"

#include "plan/plan_number.h"

#include <math.h>

double plan_ridge(double peak, double bandwidth) {
    return peak / bandwidth;
}

double plan_roof(double peak, double bandwidth, double intensity) {
    double bound = intensity * bandwidth;
    return isnan(peak) || peak < bound ? peak : bound;
}

double plan_roof_time(double peak, double bandwidth, double flops, double bytes) {
    double compute = flops / peak, memory = bytes / bandwidth;
    return isnan(compute) || compute > memory ? compute : memory;
}

int plan_gemm(int64_t m, int64_t n, int64_t k, int in_bits, int out_bits, struct plan_gemm *out) {
    __int128 a, b, c, in;
    if (plan_multiply((__int128)m * n, k, &out->flops) || plan_multiply(out->flops, 2, &out->flops) ||
        plan_multiply((__int128)m * k, in_bits, &a) || plan_multiply((__int128)k * n, in_bits, &b) ||
        plan_multiply((__int128)m * n, out_bits, &c) || plan_add(a, b, &in) || plan_add(in, c, &out->bytes) ||
        plan_add(out->bytes, 7, &out->bytes))
        return -1;
    out->bytes /= 8;
    return 0;
}
