/* Sums over op_cost of a long trace: the analysis has added them up (tables op_sum, step_sum), and a report reads these
 * few rows in place of all. The same questions asked of op_cost itself, which is done where there are no sums (an older
 * analysis, figures beyond 64 bits, prices of the user's own), must give the same answers. */
#ifndef ACCT_ANALYZER_REPORT_SUMS_H
#define ACCT_ANALYZER_REPORT_SUMS_H

#include "analyzer/report_model.h"

/* 1: the sums are there, and are those of the op_cost that queries see. */
int report_has_sums(struct report *r);

/* As REPORT_FUNCTION_NAME and its join, of op_sum c. */
#define SUMS_FUNCTION_NAME "coalesce(k.demangled, k.name, api.name, c.kind)"
#define SUMS_FROM " FROM op_sum c LEFT JOIN api ON api.id = c.api LEFT JOIN kernel k ON k.id = c.kernel "
/* As REPORT_SUM_COLUMNS. */
#define SUMS_COLUMNS(least, most, uncounted, sampled)                                                    \
    "sum(((" least ") >> 32) * c.ops), sum(((" least ") & 4294967295) * c.ops), sum(((" most             \
    ") >> 32) * c.ops), sum(((" most ") & 4294967295) * c.ops), sum(((" least ") IS NOT NULL AND (" most \
    ") IS NULL) * c.ops), sum((" sampled ") * c.ops), sum((" uncounted ") * c.ops), 0"
/* A sum of step_sum, likewise: its part is matmul or other. */
#define SUMS_OF_STEP(part)                                                             \
    part "_flops >> 32, " part "_flops & 4294967295, " part "_flops_most >> 32, " part \
         "_flops_most & 4294967295, " part "_unbounded, " part "_sampled, " part "_uncounted, 0"

#endif
