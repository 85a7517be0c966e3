/* Inside the cost model: boxes of threads that are to be walked, what walks of them counted, and samples of them. */
#ifndef ACCT_PTX_COST_BOX_H
#define ACCT_PTX_COST_BOX_H

#include "ptx/ptx_cost_model.h"

struct box {
    int64_t n[COST_DIMS];
    uint16_t used;
    struct val sreg[6];
    struct val bound[COST_LIMITS];
    int32_t limits;
};
struct boxes { /* to be walked */
    struct box *box;
    int32_t count, room;
    int64_t done;
    double opaque;      /* steps of walks that ended where nothing better is known than to look at each x alone */
    struct boxes *wait; /* where boxes of which such walks are go, rather than to be split; NULL */
    double points;      /* steps to walk each point of the boxes that wait here, about */
    bool hopeless;      /* too many to look at each */
};
struct totals {
    wide lo[PTX_T_FIELDS], hi[PTX_T_FIELDS];
    uint32_t endless;
    bool never_ends;
};

/* ptx_cost.c */
int64_t cost_blocks(const struct cost_run *x);
struct box cost_box(const struct cost_run *x, const uint32_t *ctaid); /* the threads of the grid, or of one block */
int cost_push(struct boxes *b, const struct box *box);                /* -1: no memory */
/* Its parts go to b. 0, 1: too much work; -1: an error. */
int cost_walk_box(struct cost_run *x, struct boxes *b, const struct box *box, struct totals *t);
/* All boxes of b, evaluating so many instructions at most; its memory is given back. The same results. */
int cost_walk_boxes(struct cost_run *x, struct boxes *b, uint64_t limit, struct totals *t);

/* ptx_cost_sample.c */
enum {
    COST_LEAST_BLOCKS = 8, /* grids of no more are counted to the last thread, if at all possible */
    COST_LOOK = 512        /* this part of the steps is spent before it is asked whether it will end */
};
/* By some tries, whether the launch is too much to be taken apart. */
bool cost_is_hopeless(struct cost_run *x);
/* What was counted of all others is in *t, to which an estimate of these is added. 0, 1: *t is as before: too few
 * threads could be walked, or whole blocks are the better sample; -1. *threads: that the estimate rests on. */
int cost_sample_threads(struct cost_run *x, const struct boxes *wait, struct totals *t, int64_t *threads);
/* 0; 1: not enough blocks could be walked, or they differ too much for an estimate: *t has the least that they did;
 * -1. */
int cost_sample_blocks(struct cost_run *x, struct totals *t, int64_t *counted);

#endif
