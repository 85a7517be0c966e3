/* The rows of a report, computed from a trace before anything is printed. Bytes, ns (CLOCK_MONOTONIC), FLOPs; what is
 * not known is REPORT_UNKNOWN, NaN or NULL. One thread. Errors: -1 with one line in err. */
#ifndef ACCT_ANALYZER_REPORT_MODEL_H
#define ACCT_ANALYZER_REPORT_MODEL_H

#include <stddef.h>
#include <stdint.h>
#include <sqlite3.h>
#include "analyzer/devices.h"

#define REPORT_UNKNOWN INT64_MIN
#define REPORT_CLASSES 10 /* report_class_names; the last is unknown */
#define REPORT_UNKNOWN_CLASS (REPORT_CLASSES - 1)

extern const char *const report_class_names[REPORT_CLASSES];
int report_class_of(const char *name); /* a name that is none of them: unknown */

enum report_phase {
    PHASE_FORWARD,
    PHASE_BACKWARD,
    PHASE_OPTIMIZER,
    PHASE_RECOMPUTE,
    PHASE_NONE,
    PHASE_EVALUATION,
    REPORT_PHASES
};
extern const char *const report_phase_names[REPORT_PHASES]; /* as op_cost.phase has them; PHASE_NONE: "none" */
enum report_phase report_phase_of(const char *name);        /* op_cost.phase; NULL, or none of them: PHASE_NONE */
enum report_convention { CONVENTION_6N, CONVENTION_6N_MATMUL, CONVENTION_PALM, CONVENTION_CAUSAL, REPORT_CONVENTIONS };
extern const char *const report_convention_names[REPORT_CONVENTIONS];

struct report_memory {
    int64_t peak_bytes; /* device and async allocations live together */
    int64_t at_peak[REPORT_CLASSES];
    int64_t peak_ns; /* when it was first reached */
};

/* FLOPs, or bytes, of many ops. */
struct report_sum {
    __int128 least, most; /* between which the truth lies, if nothing is unbounded, sampled or uncounted */
    int64_t unbounded;    /* ops without an upper bound */
    int64_t sampled;      /* ops whose amount is an estimate */
    int64_t uncounted;    /* ops without an amount: the sum is unknown */
    int64_t user;         /* ops priced by the user's rules (--flops-rules) */
};

struct report_flops {
    struct report_sum gemm, other; /* matrix products (of kernels, by matrix instructions), and all else */
    __int128 phase[REPORT_PHASES]; /* gemm, the least */
    struct report_sum other_phase[REPORT_PHASES];
    double by_format[PEAK_FORMATS + 1]; /* matrix products less recompute; the last: in a format without a name here */
    double recompute_by_format[PEAK_FORMATS + 1];
    double phase_by_format[REPORT_PHASES][PEAK_FORMATS + 1]; /* likewise, by phase */
};

struct report_step {
    int64_t index, start_ns, end_ns, micro_batches, tokens;
    int64_t device_start_ns, device_end_ns; /* REPORT_UNKNOWN: some op has no device time */
    int64_t ns;                             /* its time, by the clock of the report; REPORT_UNKNOWN */
    int complete;
    char found_by[8]; /* step.found_by; empty: not told */
    struct report_flops flops;
    struct report_memory memory;
    double mfu, hfu, by_convention[REPORT_CONVENTIONS];
};

struct report_phase_row {
    int64_t step, micro_batch, start_ns, end_ns;
    char name[16];
};

struct report_uncounted {
    char *name;
    char *why;                 /* the first reason; NULL: none is known */
    int64_t launches, time_ns; /* time: REPORT_UNKNOWN */
};

/* All calls of one kernel or library function. */
struct report_function {
    char *name; /* demangled */
    int64_t calls;
    int64_t time_ns;  /* the device's, of those calls that have one; REPORT_UNKNOWN: none has */
    int64_t timed;    /* calls that have one */
    int64_t launches; /* of calls, kernel launches */
    int64_t costed;   /* of calls, those that compute: no copies */
    struct report_sum flops;
    struct report_sum read, written; /* bytes of the device's memory, the least */
    double roofline_share;           /* of the calls with a time: what the device's limits would take, by it; NaN */
};

struct report_spread { /* of the steps that count; n = 0: none */
    double median, least, most;
    int n;
};

struct report {
    sqlite3 *db; /* the caller's */
    const char *path;
    char *state, *reason;
    /* program */
    int64_t pid, exit_code;
    char **argv;
    int n_argv;
    /* device */
    char *device_name, *peak_source;
    int64_t devices, device_total_bytes, cc_major, cc_minor;
    double peak[PEAK_FORMATS]; /* FLOP/s of matrix products */
    double fp64_vector;        /* FLOP/s outside matrix units */
    double bytes_per_s;        /* of the device's memory; NaN */
    /* totals */
    int64_t ops, gemms, allocations, dropped, dropped_texts, failed;
    int64_t launches;     /* REPORT_UNKNOWN: the trace's writer did not record them */
    int64_t dropped_ring; /* those of `dropped` that found a ring full */
    struct report_flops flops;
    struct report_sum evaluation; /* of flops, those of evaluation */
    int64_t launches_uncounted;   /* without FLOPs */
    struct report_memory memory;
    int64_t managed_peak_bytes, pinned_peak_bytes, array_peak_bytes;
    struct report_device_peak {
        int64_t device, peak_bytes;
    } * device_peaks; /* of a program that used several */
    int64_t n_device_peaks;
    struct report_step *steps;
    int64_t n_steps;
    struct report_phase_row *phases; /* by step */
    int64_t n_phases;
    struct report_uncounted *uncounted;
    int64_t n_uncounted;
    struct report_function *functions; /* by time, the longest first */
    int64_t n_functions;
    /* device times */
    char *device_clock;        /* what the device's times are: gpu, cpu, model; NULL: there are none */
    int on_device;             /* 1: steps' times are the device's */
    int modelled;              /* 1: the device is a virtual one, whose times a model computes */
    char *profile;             /* what the virtual GPU stood for, as ACCT_VGPU had it; NULL: not recorded */
    int dry;                   /* 1: it executed nothing */
    int64_t busy_ns;           /* sum of all its activities; 0: none */
    struct report_busy *busy;  /* report_busy.h */
    double counted_time_share; /* of busy_ns, in ops whose FLOPs are known (bounds and estimates too); NaN */
    double exact_time_share;   /* of busy_ns, in ops whose FLOPs are known exactly; NaN */
    int64_t launches_untimed;  /* kernel launches without a device time */
    int64_t times_dropped;     /* activity records that CUPTI dropped */
    /* over the steps that count: complete ones, the first left out if there are others */
    struct report_spread step_ns, step_gemm, step_other, rate, mfu, hfu, by_convention[REPORT_CONVENTIONS];
    int first_left_out;
    int64_t parameters, matmul_parameters;  /* elements */
    struct memory_sweep *sweep;             /* memory_sweep.h: of all devices; NULL: not read yet */
    struct memory_books *memory_books;      /* memory_books.h */
    struct report_oom *oom;                 /* report_oom.h; NULL: no call found no memory */
    struct report_conventions *conventions; /* report_convention.h */
    const struct flops_rules *flops_rules;  /* report_flops_rules.h; NULL: none were given */
    char **notes;
    int n_notes;
};

/* Given on the command line. */
struct flops_rules;
struct acct_device;
struct report_options {
    double peak[PEAK_FORMATS];        /* NaN: not given; these beat those of `device` */
    const struct acct_device *device; /* whose peaks and bandwidth count instead of the trace's device's; NULL: none */
    const char *device_from;          /* as it was named */
    struct flops_rules *flops_rules;  /* the caller's, until the report is closed; NULL */
    struct user_rules *user_rules;    /* likewise; the viewing commands apply them before report_load */
};

/* Opens a trace for reporting: waits, bounded, for a collector that is finishing; analyses first where the analysis is
 * absent or older than this program, in the file or, where that cannot be written, in a temporary copy. Notes go into
 * r->notes. */
int report_open(struct report *r, const char *path, char *err, size_t err_len);
int report_load(struct report *r, const struct report_options *options, char *err, size_t err_len);
void report_note_peak(struct report *r); /* of the views that show rates: no peak is known, or a step is above it */
/* 1 with a clause in out: a step is above the peak. */
int report_over_peak(const struct report *r, char *out, size_t room);
void report_close(struct report *r); /* frees and closes the database */

void report_note(struct report *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The name of what an op ran, for people: its kernel, else the function called. */
#define REPORT_FUNCTION_NAME "coalesce(k.demangled, k.name, api.name, op.kind)"
#define REPORT_FUNCTION_JOIN \
    "LEFT JOIN api ON api.id = op.api LEFT JOIN launch l ON l.op = op.id LEFT JOIN kernel k ON k.id = l.kernel"

/* What is known of a sum, in the words of op_cost.grade. */
enum report_grade { GRADE_EXACT, GRADE_SAMPLED, GRADE_BOUND, GRADE_UNCOUNTED, GRADE_USER };
enum report_grade report_grade_of(const struct report_sum *s);
const char *report_grade_name(enum report_grade grade);
void report_sum_add(struct report_sum *to, const struct report_sum *s);

/* Columns of a query for a struct report_sum, and how they are read: halves, since a run's sum can exceed 64 bits. The
 * query's only column `grade` is op_cost's. */
#define REPORT_SUM_COLUMNS(least, most, uncounted, sampled)                                                       \
    "sum((" least ") >> 32), sum((" least ") & 4294967295), sum((" most ") >> 32), sum((" most ") & 4294967295)," \
    " sum((" least ") IS NOT NULL AND (" most ") IS NULL), sum(" sampled "), sum(" uncounted                      \
    "), sum(grade = 'user' AND (" least ") <> 0)"
#define REPORT_SUM_WIDTH 8
struct report_sum report_column_sum(sqlite3_stmt *st, int column);

/* A function's name as people read it, without its arguments, 60 characters at most. */
void report_short_name(const char *name, char *out, size_t room);

/* Parts of report_load. */
int report_load_memory(struct report *r, char *err, size_t err_len);
int report_load_device_peaks(struct report *r, char *err, size_t err_len); /* report_devices.c */
void report_note_devices(struct report *r);
int report_load_flops(struct report *r, char *err, size_t err_len);
int report_load_parameters(struct report *r, char *err, size_t err_len);
int report_load_times(struct report *r, char *err, size_t err_len);     /* after the steps */
int report_load_functions(struct report *r, char *err, size_t err_len); /* a part of report_load_times */
void report_compute_rates(struct report *r);
/* Seconds that products of these FLOPs by format (PEAK_FORMATS + 1) take at the peaks; NaN where one has none. */
double report_peak_seconds(const struct report *r, const double *by_format);

/* A condition on op.start_ns that all ops of a step meet, and few others: for an index on the time of ops, where a
 * query about one step would read the costs of all. */
#define REPORT_NEAR_STEP(step)                                                                                  \
    "op.start_ns BETWEEN (SELECT min(n.start_ns, coalesce(o.start_ns, n.start_ns)) FROM step n LEFT JOIN op o " \
    "ON o.id = n.first_op WHERE n.id = " step ") AND (SELECT max(n.end_ns, coalesce(o.end_ns, n.end_ns)) FROM " \
    "step n LEFT JOIN op o ON o.id = n.last_op WHERE n.id = " step ")"

/* Statements of the report's parts. prepare: NULL after an error (one line in err). A step that is neither row nor end
 * is an error. */
sqlite3_stmt *report_prepare(struct report *r, const char *sql, char *err, size_t err_len);
int report_rows_end(struct report *r, sqlite3_stmt *st, int rc, char *err, size_t err_len); /* finalizes */
int64_t report_column(sqlite3_stmt *st, int column);    /* REPORT_UNKNOWN for NULL */
char *report_column_text(sqlite3_stmt *st, int column); /* malloc'ed; NULL for NULL */
void *report_grow(void *array, int64_t n, size_t size); /* room for one more at n, doubling */

#endif
