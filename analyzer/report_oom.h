/* A call that found no memory: what was live then, what the driver said, what would have fitted. Bytes, ns
 * (CLOCK_MONOTONIC); REPORT_UNKNOWN where it is not known. One thread. Errors: -1 with one line in err. */
#ifndef ACCT_ANALYZER_REPORT_OOM_H
#define ACCT_ANALYZER_REPORT_OOM_H

#include "analyzer/emitter.h"
#include "analyzer/report_model.h"

#define OOM_LARGEST 10

/* What a call that failed has asked for. */
enum oom_kind {
    OOM_DEVICE, /* memory of the device, or work on it that needs some */
    OOM_ASYNC,  /* stream-ordered memory, which a pool may have */
    OOM_HOST,   /* page-locked memory of the host */
};

struct oom_call {
    int64_t op, thread, device, asked_bytes, start_ns, end_ns;
    enum oom_kind kind;
    char *function;
    int survived; /* its thread later got memory or started work on the device */
};

/* An allocation that was live. */
struct oom_block {
    int64_t alloc, bytes, alloc_ns;
    int64_t step;        /* in which it was made; REPORT_UNKNOWN: in none */
    int class;           /* of most of its bytes */
    int64_t class_bytes; /* how many */
    double confidence;   /* NaN: not classified */
    char *rule;
};

struct report_oom {
    struct oom_call *calls; /* in the order of their ends */
    int64_t n_calls, survived;
    const struct oom_call *call; /* the first that was not survived, else the last; all below is of that moment */
    int64_t step;                /* in which it was; REPORT_UNKNOWN: none */
    char phase[16];              /* "": not known */
    /* by the driver */
    int64_t total_bytes, free_bytes;
    int64_t pool_reserved_bytes, pool_used_bytes;
    /* by the trace: device, async and array allocations of that device */
    int64_t live_bytes, live[REPORT_CLASSES], managed_bytes;
    struct oom_block largest[OOM_LARGEST]; /* the largest first */
    int n_largest;
    int64_t live_blocks;
    /* computed from both */
    int64_t slack_bytes;       /* held by the pool and not used */
    int64_t context_bytes;     /* used when the device was first used, less what was live then */
    int64_t unexplained_bytes; /* used less all of these, never < 0: rounding, libraries, other processes; with the
                                * context where that is not known */
    int64_t largest_bytes;     /* at most so much would have been given */
    int64_t missing_bytes;     /* asked for beyond that; 0: the sum would have sufficed */
    int shrink_first;          /* class */
    char **hints;
    int n_hints;
};

/* NULL in r->oom: no call found no memory. After the steps, classes and parameters. */
int report_load_oom(struct report *r, char *err, size_t err_len);
void report_free_oom(struct report *r);

/* What could be done, in words, from the numbers alone (report_oom_hints.c). */
void report_oom_hints(struct report *r);
void report_oom_hint(struct report_oom *o, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The section `out_of_memory` (report_oom_print.c). */
void report_print_oom(struct emitter *e, const struct report *r);
/* One line for the summary of a run, without a newline. */
void report_oom_line(const struct report *r, char *out, size_t room);

#endif
