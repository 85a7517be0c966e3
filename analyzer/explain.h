/* `acct memory --explain ID`: why an allocation has its class, in sentences: what it is, who wrote and read it, in
 * which phases and steps, what the rule rests on, and what it does not know. All of it is computed from the trace when
 * it is asked for, in one pass over the ops that touch the allocation. Times ns, sizes bytes. One thread. */
#ifndef ACCT_ANALYZER_EXPLAIN_H
#define ACCT_ANALYZER_EXPLAIN_H

#include "analyzer/emitter.h"
#include "analyzer/report_model.h"

/* Prints into the object that is open: keys `explain` (the allocation; its classes with their use; sentences), for
 * people a section of lines. r is open, its rules (user_rules.h) applied. 0, or -1 with one line in err, before
 * anything was printed: there is no such allocation, or the trace cannot be read. */
int explain_alloc(struct emitter *e, struct report *r, int64_t alloc, char *err, size_t err_len);

/* ---- shared by its parts ---- */

/* What an op does with a range. */
enum explain_act {
    ACT_FACTOR,     /* a product multiplies it */
    ACT_RESULT,     /* a product writes it */
    ACT_ADD_RESULT, /* a product adds to it */
    ACT_READ,       /* a kernel reads it */
    ACT_WRITE,      /* … overwrites it */
    ACT_MODIFY,     /* … reads and writes it */
    ACT_MAYBE,      /* … may write it: the direction is not known */
    ACT_CLEAR,      /* memset */
    ACT_FROM_HOST,  /* copies */
    ACT_TO_HOST,
    ACT_FROM_DEVICE, /* written by a copy on the device */
    ACT_TO_DEVICE,   /* read by one */
    ACT_SEND,        /* collectives */
    ACT_RECEIVE,
    ACT_EXCHANGE,  /* in place */
    ACT_WORKSPACE, /* handed to a library */
    EXPLAIN_ACTS
};

/* PHASE_NONE here: in a step, in no phase; one more: in no step. */
enum { EXPLAIN_OUTSIDE = REPORT_PHASES, EXPLAIN_PHASES };

struct explain_op {   /* one op that touched it */
    int64_t op, step; /* REPORT_UNKNOWN: none */
    int64_t start_ns;
    int phase;
    char slot[24], name[64];
};

struct explain_use { /* all ops that do one thing in one phase */
    int64_t ops, steps, last_step;
    struct explain_op first;
};

struct explain_range {                        /* a row of alloc_class */
    int64_t offset, bytes, from_ns, until_ns; /* REPORT_UNKNOWN: the ends of its life */
    double confidence;
    char *class, *rule;
    struct explain_use use[EXPLAIN_ACTS][EXPLAIN_PHASES];
    struct explain_op first_write, first_read, last_use; /* op 0: none */
    int64_t overwritten_after_read;                      /* ops that overwrite it after it was read first */
    int64_t unknown_extent;                              /* accesses of which only the beginning is known */
};

#define EXPLAIN_RANGES 64 /* of one allocation; the rest is counted only */

struct explained {
    struct report *r;
    int64_t id, order, bytes, address, device, alloc_ns, free_ns, thread, stack;
    char *memory, *api, *library;
    int64_t step; /* in which it was allocated; REPORT_UNKNOWN */
    struct explain_range *range;
    int64_t ranges, all_ranges;
    char **frame, **inside, **tag; /* call stack; ranges open when it was allocated; tags */
    int64_t frames, insides, tags;
    int64_t beyond; /* launches of the run that write where nobody knows */
    int64_t touches;
};

/* 0, or -1 with one line in err; explained_free in either case. */
int explained_load(struct explained *x, struct report *r, int64_t alloc, char *err, size_t err_len);
void explained_free(struct explained *x);

/* Sums over phases; first (may be NULL) is the earliest of them, op 0 if there is none. */
int64_t explain_count(const struct explain_range *g, int act, struct explain_op *first);
int64_t explain_in_phase(const struct explain_range *g, int phase); /* ops that touch it there */
int64_t explain_reads(const struct explain_range *g, int phase);    /* that read it */
int64_t explain_writes(const struct explain_range *g, int phase);   /* that write it */

/* Sentences of one range, each handed to say. */
typedef void explain_say(void *to, const char *sentence);
void explain_words(const struct explained *x, const struct explain_range *g, explain_say *say, void *to);
void explain_place_words(const struct explained *x, explain_say *say, void *to); /* of the allocation */

extern const char *const explain_act_names[EXPLAIN_ACTS];
const char *explain_phase_name(int phase);

#endif
