/* What is live at one moment, block by block, and what else the peak could have been. Bytes, ns (CLOCK_MONOTONIC). One
 * thread. Errors: -1 with one line in err. */
#ifndef ACCT_ANALYZER_MEMORY_PEAK_H
#define ACCT_ANALYZER_MEMORY_PEAK_H

#include "analyzer/memory_places.h"
#include "analyzer/memory_sweep.h"

/* Bytes of one class in one allocation at the moment. */
struct memory_piece {
    int64_t alloc, block_bytes; /* id; all of the allocation */
    int64_t offset;             /* of the first of them in it */
    int64_t bytes;
    int64_t device; /* ordinal; REPORT_UNKNOWN */
    int class;
    double confidence; /* the least of them; NaN: not classified */
    char *rule;        /* of the largest of them */
    int64_t rule_bytes;
    int64_t alloc_ns, free_ns; /* of the allocation; free_ns REPORT_UNKNOWN: never */
    int64_t step;              /* place in r->steps in which it was allocated; -1: in none */
    int64_t age_steps;         /* steps that ended since then */
    char *site;
    int from_stack; /* the site is a frame of a recorded stack */
};

struct memory_peak {
    struct report_memory memory; /* the moment, and what is live then */
    struct memory_piece *piece;  /* the largest first */
    int64_t n, blocks;           /* blocks: allocations that are live */
    /* what if */
    int64_t next_bytes, next_ns;     /* the highest other peak: lower, and separated from this one by a dip;
                                      * REPORT_UNKNOWN: there is none */
    int64_t without[REPORT_CLASSES]; /* the peak, had there been nothing of that class */
};

/* The run's peak, or that of a step (its place in r->steps). Nothing live: n = 0. */
#define MEMORY_WHOLE_RUN (-1)
int memory_peak_load(struct report *r, int64_t step, struct memory_peak *out, char *err, size_t err_len);
void memory_peak_free(struct memory_peak *p);

#endif
