/* Prices that the user gives: --flops-rules FILE. A line prices the calls of kernels or library functions whose name
 * matches a pattern:
 *
 *     name=flash_fwd* flops=4*b*h*t*t*d b=8 h=12 t=1024 d=64 matmul=1 dtype=bf16
 *
 * In a view only: a temporary table and view shadow op_cost, the trace stays as it was. What is priced so has the grade
 * "user" wherever it shows. One thread. */
#ifndef ACCT_ANALYZER_REPORT_FLOPS_RULES_H
#define ACCT_ANALYZER_REPORT_FLOPS_RULES_H

#include "analyzer/emitter.h"
#include "analyzer/report_flops_expression.h"
#include "analyzer/report_model.h"

struct flops_rule {
    char *pattern; /* a glob: * ? [...] */
    int line;
    struct expression flops;
    int per_thread;    /* times the threads of the launch */
    int matmul;        /* counts as a matrix product, for MFU */
    const char *dtype; /* a name of devices_format_name; NULL */
    int override;      /* replaces prices that calls have of their own */
    /* what came of it, in the trace applied to last */
    int64_t calls, priced_before; /* priced_before: matched, and left as they were */
    __int128 sum;
};

struct flops_rules {
    char *path;
    struct flops_rule *rule;
    int n;
};

/* Reads a file. NULL with one line in err: FILE:LINE: what. The caller frees. */
struct flops_rules *flops_rules_read(const char *path, char *err, size_t err_len);
void flops_rules_free(struct flops_rules *rules);

/* Shadows op_cost in the report's database, and tells in notes what each rule did. 0, or -1 with one line in err. */
int flops_rules_apply(struct report *r, struct flops_rules *rules, char *err, size_t err_len);

/* What each rule priced; key `flops_rules`, for people a table if there are any. NULL: nothing. */
void flops_rules_print(struct emitter *e, const struct flops_rules *rules);

#endif
