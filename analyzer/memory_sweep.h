/* Live bytes over time, exact: a sweep over the moments at which allocations begin and end or bytes change their class.
 * A moment is a time after all changes of that ns; between two moments nothing changes. n log n in allocations and rows
 * of classes. Bytes, ns (CLOCK_MONOTONIC). One thread. Errors: -1 with one line in err. */
#ifndef ACCT_ANALYZER_MEMORY_SWEEP_H
#define ACCT_ANALYZER_MEMORY_SWEEP_H

#include "analyzer/report_model.h"

#define MEMORY_OF_DEVICE "'device', 'async'" /* alloc.memory: what counts as memory of the device */
#define MEMORY_ALL_DEVICES (-1)

struct memory_change {
    int64_t ns;
    int64_t total;   /* bytes that come (+) or go (−) */
    int64_t classed; /* likewise, in class `class` */
    int class;
};

struct memory_sweep {
    struct memory_change *change;
    int64_t n;
    int64_t *ns, *total, *end; /* of each moment; end: index in `change` just behind it */
    int64_t *held;             /* of the total, in classes other than temporary, other and unknown */
    int64_t moments;
};

/* Memory of one device (ordinal) or of all, with classes. */
int memory_sweep_load(struct report *r, int64_t device, struct memory_sweep *out, char *err, size_t err_len);
/* Allocations alone, of those kinds of memory (a list for SQL). */
int memory_sweep_load_kinds(struct report *r, const char *kinds, struct memory_sweep *out, char *err, size_t err_len);
/* Their highest total; 0: none. */
int memory_sweep_highest(struct report *r, const char *kinds, int64_t *out, char *err, size_t err_len);
void memory_sweep_free(struct memory_sweep *s);
/* That of all devices, read once a report, which keeps it until it is closed; NULL with one line in err. */
const struct memory_sweep *memory_sweep_of(struct report *r, char *err, size_t err_len);

/* Last moment at or before ns; -1: nothing happened until then. */
int64_t memory_sweep_at(const struct memory_sweep *s, int64_t ns);

/* First moment of the greatest total among from…to; of several, as where everything is allocated once and for all, the
 * one at which most of it holds something: only then do the classes say what the memory is for. There must be one. */
int64_t memory_sweep_greatest(const struct memory_sweep *s, int64_t from, int64_t to);

/* Of a step; REPORT_UNKNOWN is no time: -1. */
int64_t memory_sweep_step_peak(const struct memory_sweep *s, const struct report_step *step);

struct memory_request {
    int64_t moment; /* -1: nothing is live, `out` is zeroed with peak_ns REPORT_UNKNOWN */
    struct report_memory *out;
};
/* What is live at each moment that is asked for, by class; sorts the requests; one pass. */
void memory_sweep_answer(const struct memory_sweep *s, struct memory_request *requests, int64_t n);

#endif
