/* What the device did over the whole run, by its records. ns, CLOCK_MONOTONIC. One thread. */
#ifndef ACCT_ANALYZER_REPORT_BUSY_H
#define ACCT_ANALYZER_REPORT_BUSY_H

#include "analyzer/emitter.h"
#include "analyzer/report_model.h"

struct report_busy {
    int64_t activities;        /* kernels, copies, memsets with a usable time */
    int64_t unusable;          /* records without: a time stamp of 0, an end before the beginning */
    int64_t start_ns, end_ns;  /* first begin, last end */
    int64_t union_ns;          /* something was running */
    int64_t sum_ns;            /* of all of them: overlap counts as often as it happens */
    int64_t graph, graph_ns;   /* of the activities, those of CUDA graphs */
    int64_t others, others_ns; /* of the activities, those of no recorded call, graphs' included */
};

/* Fills r->busy (owned by the report, freed by report_close), r->busy_ns, and notes. 0, or -1 with one line in err. */
int report_load_busy(struct report *r, char *err, size_t err_len);

/* A section; key device_time, null where the device has no times. */
void report_print_busy(struct emitter *e, const struct report *r);

#endif
