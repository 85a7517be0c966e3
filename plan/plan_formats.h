/* Number formats, ACCOUNTING section 2, and what each makes of a value: rounding to nearest, ties to even, as cvt.rn
 * and casts of tensors do. Beyond the largest number a format has infinity, or it saturates, or makes a NaN: that
 * depends on the conversion, and both are told. Sources: IEEE 754 for fp64, fp32, fp16; bf16 and tf32 are fp32 with
 * shorter mantissas; OCP 8-bit floating point 1.0 (E4M3, E5M2) and microscaling formats 1.0 (E2M1); PTX ISA, cvt. Pure
 * functions and constants, any thread. */
#ifndef ACCT_PLAN_FORMATS_H
#define ACCT_PLAN_FORMATS_H

#include <stdint.h>

/* What is beyond the largest number. */
enum plan_beyond {
    PLAN_BEYOND_INFINITY,       /* infinity */
    PLAN_BEYOND_LARGEST_OR_INF, /* E5M2: satfinite conversions stop at the largest, others make infinity */
    PLAN_BEYOND_LARGEST_OR_NAN, /* E4M3: likewise; it has no infinity, others make NaN */
    PLAN_BEYOND_LARGEST         /* int8, E2M1 */
};

struct plan_format {
    const char *name, *title, *use;
    int bits; /* in memory, but 19 of tf32's 32 count */
    int bits_used;
    int exponent, mantissa; /* bits; 0, 0: an integer */
    enum plan_beyond beyond;
    double max, smallest_normal, smallest, epsilon; /* epsilon: from 1 to the next; of int8 1 throughout */
};

enum { PLAN_FORMATS = 9 };
/* Filled from the bits; i from 0. */
void plan_format_get(int i, struct plan_format *out);
int plan_format_find(const char *name); /* -1: none */

enum plan_outcome {
    PLAN_EXACT,
    PLAN_ROUNDED,
    PLAN_SUBNORMAL, /* rounded or not, with fewer digits than the format has */
    PLAN_UNDERFLOW, /* to 0 */
    PLAN_TO_INFINITY,
    PLAN_SATURATED,
    PLAN_TO_NAN,
    PLAN_IS_NAN, /* it was one */
    PLAN_OUTCOMES
};

/* A value as close as a double can say it without deciding a tie: `odd` is the decimal value rounded to odd (exact, or
 * the one of the two neighbours whose last bit is 1), so that rounding it to a shorter format rounds the decimal. */
struct plan_value {
    double nearest, odd;
    int inexact; /* no double is the decimal value */
};
/* Reads a number as strtod does, with inf and nan. -1: it is none. */
int plan_value_read(const char *text, struct plan_value *out);

/* What the format makes of it. saturate: 1 as conversions with satfinite do, 0 as those without; formats that know one
 * way only ignore it. */
enum plan_outcome plan_format_round(const struct plan_format *f, const struct plan_value *v, int saturate, double *out);

/* The bits of a number that the format has, or of infinity or NaN, lowest last; tf32's as fp32's. */
uint64_t plan_format_bits(const struct plan_format *f, double x);

const char *plan_outcome_words(enum plan_outcome o); /* `rounded`, `underflow to 0`, … */

#endif
