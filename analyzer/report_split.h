/* Where the time of a step goes. Each nanosecond of a step's time by the device's clock is booked once: what several
 * streams do at a time goes to the first of them in the order of the details below (work that pays before work that
 * only moves data), so the details sum to the step's time exactly, whatever overlaps. What nothing of the device was
 * busy with is a gap, and is explained by what the host did before it handed over the work that ended it.
 *
 * Without the device's times the host's time is split by the calls that the host was in: that says nothing of what
 * the device did. ns, bytes, FLOPs. One thread. */
#ifndef ACCT_ANALYZER_REPORT_SPLIT_H
#define ACCT_ANALYZER_REPORT_SPLIT_H

#include "analyzer/report_roof.h"

enum split_part {
    SPLIT_COMPUTE,
    SPLIT_MEMORY,
    SPLIT_LAUNCH,
    SPLIT_COPIES,
    SPLIT_COMMUNICATION,
    SPLIT_OUTSIDE, /* evaluation, and other work of no step, within a step's time */
    SPLIT_UNKNOWN,
    SPLIT_IDLE,
    SPLIT_PARTS
};

/* In the order in which they win where they overlap; gaps are behind all. */
enum split_detail_id {
    SPLIT_PRODUCTS,                               /* + enum peak_format: matrix products bound by that peak */
    SPLIT_VECTOR = SPLIT_PRODUCTS + PEAK_FORMATS, /* other kernels bound by their FLOPs */
    SPLIT_MEMORY_PRODUCTS,                        /* matrix products bound by bytes */
    SPLIT_MEMORY_KERNELS,
    SPLIT_NO_ROOF_PRODUCTS, /* counted, but a peak or the bandwidth is not known */
    SPLIT_NO_ROOF,
    SPLIT_UNCOUNTED,    /* kernels whose FLOPs or bytes are not known */
    SPLIT_UNATTRIBUTED, /* kernels of no recorded call */
    SPLIT_GRAPH,        /* the like, launched by CUDA graphs */
    SPLIT_TINY,         /* kernels shorter than a launch takes */
    SPLIT_OTHER_STEPS,  /* all kinds of SPLIT_OUTSIDE */
    SPLIT_COLLECTIVE,
    SPLIT_PEER,
    SPLIT_H2D,
    SPLIT_D2H,
    SPLIT_D2D,
    SPLIT_OTHER_COPY,
    SPLIT_MEMSET,
    /* gaps */
    SPLIT_LATENCY, /* the work was handed over; the device began it a launch's latency later */
    SPLIT_CALLS,   /* the host was in calls that hand over work */
    SPLIT_BETWEEN, /* it was between two such calls, shortly */
    SPLIT_STAGING, /* it was in a call that copies, before the device's copy began */
    SPLIT_ALLOCATION,
    SPLIT_WAITING, /* it waited for the device, which had nothing to do */
    SPLIT_QUEUED,  /* the work was handed over long before; why the device did not begin is not recorded */
    SPLIT_HOST,    /* the host was elsewhere */
    SPLIT_GAP,     /* what ended the gap is of no recorded call, or nothing ended it */
    SPLIT_DETAILS
};

/* Conventions, in ns. */
#define SPLIT_TINY_NS 2000     /* a kernel shorter than this takes less than its launch (ACCT_LAUNCH_S) */
#define SPLIT_LATENCY_NS 20000 /* the device begins handed-over work within this, if it waits for nothing */
#define SPLIT_BETWEEN_NS 50000 /* the host needs no longer between two calls, if it does nothing but launch */

struct split_detail {
    int64_t ns;        /* booked here */
    int64_t count;     /* calls; of gaps: gaps */
    int64_t device_ns; /* sum of what the device was busy with: ns, and what was booked elsewhere */
    double flops, bytes;
    double roof_ns;   /* of device_ns, what the roofline allows; NaN: not known */
    double booked_ns; /* of ns, likewise */
};

/* The host's calls; a moment in several threads' calls goes to the first. */
enum split_host {
    HOST_LAUNCHING,
    HOST_COPYING,
    HOST_ALLOCATING,
    HOST_WAITING,
    HOST_OTHER,
    HOST_OUTSIDE, /* in no recorded call */
    SPLIT_HOSTS
};

struct split_step {
    int64_t index;                   /* in report.steps */
    int64_t ns;                      /* = sum over details, or over host */
    int on_device;                   /* 1: detail, phase_ns, busy_ns; 0: host */
    int64_t busy_ns;                 /* the device did something */
    int64_t sum_ns;                  /* over streams: overlap counts as often as it happens */
    int64_t phase_ns[REPORT_PHASES]; /* a gap belongs to what ended it; sum: ns */
    struct split_detail detail[SPLIT_DETAILS];
    int64_t host_ns[SPLIT_HOSTS], host_calls[SPLIT_HOSTS];
};

/* Steps [first, first + n) of the report, which is loaded; *out is malloc'ed, a row a step. A step whose time is not
 * known has ns REPORT_UNKNOWN and nothing else. 0, or -1 with one line in err. */
int split_steps(struct report *r, int64_t first, int64_t n, struct split_step **out, char *err, size_t err_len);

enum split_part split_part_of(int detail);
const char *split_part_name(enum split_part part);
const char *split_detail_name(int detail);
const char *split_host_name(enum split_host what);
int64_t split_part_ns(const struct split_step *s, enum split_part part);

/* ---- the parts of split_steps ---- */

/* Times that can be reckoned with: what a file says beyond them is left out. 2^62 ns are 146 years. */
static inline int split_usable(int64_t start_ns, int64_t end_ns) {
    return start_ns >= 0 && end_ns >= start_ns && end_ns <= (int64_t)1 << 62;
}

/* A stretch of a clock that is busy with something. */
struct split_item {
    int64_t start_ns, end_ns;
    int64_t host_start_ns, host_end_ns; /* of the call; REPORT_UNKNOWN: none is known */
    double flops, bytes, roof_ns;       /* this stretch's share of its op's */
    int32_t thread;
    uint8_t detail, phase; /* enum split_detail_id (or split_host), report_phase */
    uint8_t first;         /* of its op */
};

/* A call of the host. */
struct split_call {
    int64_t start_ns, end_ns;
    int32_t thread;
    uint8_t host; /* enum split_host */
};

struct split_load {
    struct split_item *item; /* by start */
    int64_t n_items;
    struct split_call *call; /* by thread, start */
    int64_t n_calls;
};

/* What the device and the host did between two times of the device's clock. */
int split_load_device(struct report *r, int64_t from_ns, int64_t to_ns, struct split_load *out, char *err,
                      size_t err_len);
/* The host's calls as items, by start. */
int split_load_host(struct report *r, int64_t from_ns, int64_t to_ns, struct split_load *out, char *err,
                    size_t err_len);
void split_free(struct split_load *l);

/* Books the gap [from_ns, to_ns) that `next` ended (NULL: nothing did). */
void split_gap(struct split_step *s, const struct report *r, const struct split_load *l, int64_t from_ns, int64_t to_ns,
               const struct split_item *next);

#endif
