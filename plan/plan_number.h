/* Numbers as people write them on a napkin: 70e9, 70B, 15T, 80GB, 80GiB, 90d, 50%, 989.4TFLOP/s. Every kind takes a
 * bare number too, in its base unit. Exact: digits, a decimal point and an exponent are read as integers, so 70.5e9 and
 * 0.1e3 are whole and 1.5 is not. Pure functions, any thread. Errors: -1 with one line in err that names the text and
 * what was expected. */
#ifndef ACCT_PLAN_NUMBER_H
#define ACCT_PLAN_NUMBER_H

#include <stddef.h>
#include <stdint.h>

/* Suffixes stand for factors; upper and lower case matter only where the table has both. */
enum plan_kind {
    PLAN_COUNT,     /* parameters, tokens, elements: k, M, B or G, T, P, of 1000 */
    PLAN_BYTES,     /* B, kB or KB, MB … EB of 1000; KiB, MiB … EiB of 1024 */
    PLAN_SECONDS,   /* ns, us, ms, s, min, h, d, weeks, years (365 days) */
    PLAN_FLOPS,     /* FLOP, kFLOP … EFLOP, ZFLOP */
    PLAN_RATE,      /* FLOP/s … EFLOP/s; OP/s likewise */
    PLAN_BYTE_RATE, /* B/s … TB/s */
    PLAN_SHARE,     /* 0.5 or 50% */
    PLAN_MONEY,     /* an amount of whatever currency, with k, M, B */
    PLAN_KINDS
};

enum plan_sign { PLAN_POSITIVE, PLAN_NOT_NEGATIVE, PLAN_ANY };

/* A double, finite. */
int plan_real(const char *text, enum plan_kind kind, enum plan_sign sign, double *out, char *err, size_t err_len);

/* A whole number, at most `most`. */
int plan_whole(const char *text, enum plan_kind kind, enum plan_sign sign, int64_t most, int64_t *out, char *err,
               size_t err_len);

/* Several, with a comma between (no blanks): 2,3,4. At most `room`. Returns how many, or -1. An empty text is none. */
int plan_list(const char *text, enum plan_sign sign, int64_t most, int room, int64_t *out, char *err, size_t err_len);

/* `name=4,other=12`: calls take(name, value, context) for each; it answers 0, or -1 with a line in err. */
int plan_pairs(const char *text,
               int (*take)(const char *name, const char *value, void *context, char *err, size_t err_len),
               void *context, char *err, size_t err_len);

/* Exact products and sums of amounts that may be beyond int64 (FLOPs up to 1.7e38): 0, or -1 if it overflows. */
int plan_multiply(__int128 a, __int128 b, __int128 *out);
int plan_add(__int128 a, __int128 b, __int128 *out);

/* `1.5e13`, `7e+10` → the shortest decimal text that reads back as the same double, without a plus: for formulas. */
void plan_show(char *out, size_t room, double value);
/* The same of six digits at most, but whole numbers below 1e9 in full: for figures that were computed. */
void plan_show_short(char *out, size_t room, double value);

#endif
