/* Growth of memory across steps: live bytes at the same place of each step (its end), and the sites whose allocations
 * stay. Bytes, ns (CLOCK_MONOTONIC). One thread. Errors: -1 with one line in err. */
#ifndef ACCT_ANALYZER_GROWTH_H
#define ACCT_ANALYZER_GROWTH_H

#include "analyzer/emitter.h"
#include "analyzer/memory_places.h"

/* Allocations of one site (a recorded stack, else the function called, the size and the phase) that were made in a step
 * and outlived a whole further step to the end of the last complete one. A site is suspected of a leak if that happened
 * in at least two steps: what is allocated once, as optimizer state in the first step, is none, and neither is what
 * each step replaces. */
struct growth_site {
    char *site;  /* a frame, or the function called */
    char *phase; /* in which they were made; NULL: in none */
    int from_stack;
    int class;           /* of the first of them, at the end; most of its bytes */
    int64_t first_alloc; /* id */
    int64_t blocks, bytes;
    int64_t block_bytes;                /* of each; REPORT_UNKNOWN: they differ */
    int64_t steps;                      /* in how many it happened */
    int64_t first_step, last_step;      /* the first and the last of those, their index */
    int64_t untouched, untouched_bytes; /* no op accessed them after the step in which they were made */
    int64_t never, never_bytes;         /* of those, no op ever did */
};

struct growth {
    int64_t steps; /* complete steps compared: the first is left out where there are others; < 2: no figure below */
    int64_t first_step;              /* place in r->steps of the first compared */
    int64_t first_bytes, last_bytes; /* live at its end, and at the end of the last */
    int64_t rises, falls;            /* from one to the next of them */
    double bytes_per_step;           /* mean over them; NaN */
    int64_t classes[REPORT_CLASSES]; /* by how much each grew from the first to the last */
    int grows;                       /* it never falls, and rises in at least half of them; of three steps or more */
    struct growth_site *site;        /* by bytes, the largest first */
    int64_t n;
};

int growth_load(struct report *r, struct growth *out, char *err, size_t err_len);
/* Without the pass over all accesses that suspects take: what is said of untouched blocks is 0. */
int growth_load_quick(struct report *r, struct growth *out, char *err, size_t err_len);
void growth_free(struct growth *g);
/* The object `growth`. */
void growth_print(struct emitter *e, const struct report *r, const struct growth *g);

#endif
