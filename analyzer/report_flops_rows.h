/* FLOPs by phase, micro-batch, number format and kind of op: of a step, or outside of all. One thread. */
#ifndef ACCT_ANALYZER_REPORT_FLOPS_ROWS_H
#define ACCT_ANALYZER_REPORT_FLOPS_ROWS_H

#include "analyzer/report_model.h"

/* Columns of op_cost for two struct report_sum: matrix products, all else. */
#define FLOPS_UNCOUNTED "flops IS NULL AND integer_ops IS NULL"
#define FLOPS_GEMM_SUM                                                                     \
    REPORT_SUM_COLUMNS("matmul_flops", "matmul_flops_most", FLOPS_UNCOUNTED " AND matmul", \
                       "grade = 'sampled' AND matmul_flops_most IS NOT 0")
#define FLOPS_OTHER_SUM                                                                                             \
    REPORT_SUM_COLUMNS("flops - matmul_flops", "flops_most - matmul_flops_most", FLOPS_UNCOUNTED " AND NOT matmul", \
                       "grade = 'sampled' AND flops_most IS NOT matmul_flops_most")

struct flops_row {
    char *phase, *dtype;    /* NULL: none */
    const char *kind;       /* gemm, blas, kernel; a constant */
    int64_t micro_batch;    /* REPORT_UNKNOWN: in no step */
    int64_t calls, time_ns; /* the device's, of calls that have one; REPORT_UNKNOWN: none has */
    struct report_sum gemm, other;
    struct report_sum integer_ops; /* of integer products */
};

struct flops_rows {
    struct flops_row *row;
    int64_t n;
};

/* step REPORT_UNKNOWN: what belongs to none. 0, or -1 with one line in err. */
int flops_rows_of_step(struct report *r, int64_t step, struct flops_rows *out, char *err, size_t err_len);
/* The same for all steps, in the order of their indexes, in one pass over the ops: they have no index by step. */
struct flops_walk {
    sqlite3_stmt *rows;
    int state;
};
int flops_walk_begin(struct report *r, struct flops_walk *w, char *err, size_t err_len); /* -1: nothing to end */
void flops_walk_step(struct flops_walk *w, int64_t step, struct flops_rows *out);
int flops_walk_end(struct report *r, struct flops_walk *w, char *err, size_t err_len);
void flops_rows_free(struct flops_rows *rows);

#endif
