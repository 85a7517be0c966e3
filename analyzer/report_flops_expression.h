/* Whole-number expressions over a launch: + - * / (rounding down), parentheses, constants, and what the launch tells.
 * 64 bits, checked: what does not fit is an error, never a wrapped number. One thread. */
#ifndef ACCT_ANALYZER_REPORT_FLOPS_EXPRESSION_H
#define ACCT_ANALYZER_REPORT_FLOPS_EXPRESSION_H

#include <stddef.h>
#include <stdint.h>

#define EXPRESSION_CODES 96
#define EXPRESSION_UNKNOWN INT64_MIN /* a variable that this call does not have */

enum expression_variable {
    VARIABLE_GX,
    VARIABLE_GY,
    VARIABLE_GZ,
    VARIABLE_BX,
    VARIABLE_BY,
    VARIABLE_BZ,
    VARIABLE_BLOCKS,
    VARIABLE_THREADS,
    VARIABLE_M, /* of a library's call */
    VARIABLE_N,
    VARIABLE_K,
    VARIABLE_BATCH,
    EXPRESSION_VARIABLES
};
extern const char *const expression_variable_names[EXPRESSION_VARIABLES];

struct expression_constant {
    char name[32];
    int64_t value;
};

/* Compiled to a stack machine. */
struct expression {
    struct expression_code {
        char what; /* 'n' number, 'v' variable, + - * / or ~ (minus) */
        int64_t value;
    } code[EXPRESSION_CODES];
    int n;
};

/* 0, or -1 with what is wrong in err (no file, no newline). */
int expression_parse(struct expression *e, const char *text, const struct expression_constant *constants,
                     int n_constants, char *err, size_t err_len);

/* 0, or -1 with what is wrong in err. `variables`: EXPRESSION_VARIABLES of them. */
int expression_value(const struct expression *e, const int64_t *variables, int64_t *out, char *err, size_t err_len);

#endif
