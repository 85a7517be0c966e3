/* The attribution's picture of a trace: events in host issue order, blocks of memory, atomic ranges of them, and who
 * touches which range how. The rules (V, U, G, W, S, P, C …) are those of the project's attribution document; each file
 * attr_*.c is one group of rules and says which.
 *
 * Everything is indexed by int32: at most 2^31 events, ranges, accesses. A launch over a whole block costs one access
 * per range of that block. All memory belongs to one pool, freed at the end; a failed allocation leaves by longjmp to
 * analyze_trace. One thread. */
#ifndef ACCT_ANALYZER_ATTR_MODEL_H
#define ACCT_ANALYZER_ATTR_MODEL_H

#include <setjmp.h>
#include <stdint.h>
#include <sqlite3.h>
#include "analyzer/attr_pool.h"

#define AT_END INT32_MAX /* an event index after all others */
#define AT_UNKNOWN_BYTES (-1)
#define AT_OWN_SET (-1)

enum at_kind {
    AT_ALLOC,
    AT_FREE,
    AT_HANDED /* to a library, as workspace */,
    AT_GEMM,
    AT_KERNEL,
    AT_MEMSET,
    AT_H2D,
    AT_D2H,
    AT_D2D
};

/* op.kind of what is no allocation. */
enum at_call { AT_CALL_LAUNCH, AT_CALL_GEMM, AT_CALL_BLAS, AT_CALL_COPY, AT_CALL_MEMSET, AT_CALL_OTHER };

/* A bit for read, a bit for write; AT_MAYBE: the direction is not known. */
enum at_mode { AT_R = 1, AT_W = 2, AT_RW = 3, AT_MAYBE = 4 };

/* Slots below 0 have names; those from 0 on are the arguments of a kernel. */
enum at_slot {
    AT_SLOT_A = -1,
    AT_SLOT_B = -2,
    AT_SLOT_C = -3, /* of a product: its result, or with D what is added to it */
    AT_SLOT_BIAS = -4,
    AT_SLOT_D = -5,
    AT_SLOT_AUX = -6,       /* what a product keeps for backward beside its result */
    AT_SLOT_WORKSPACE = -7, /* memory handed over with the call */
    AT_SLOT_FIRST_FREE = -8
};

/* at_range.workspace */
enum at_workspace { AT_GIVEN_FOR_GOOD = 1 /* to a library */, AT_GIVEN_TO_CALLS = 2 };

enum at_phase { AT_OTHER, AT_FORWARD, AT_BACKWARD, AT_RECOMPUTE, AT_OPTIMIZER, AT_EVALUATION, AT_PHASES };

enum at_class {
    AT_PARAM,
    AT_GRAD,
    AT_OPT_STATE,
    AT_ACTIVATION,
    AT_ACTIVATION_GRAD,
    AT_INPUT,
    AT_WORKSPACE,
    AT_TEMPORARY,
    AT_OTHER_CLASS,
    AT_UNKNOWN,
    AT_CLASSES
};

/* Where an allocation lies: memory of the device is classified; the host's is not, an array's use cannot be seen. */
enum at_home { AT_DEVICE, AT_HOST, AT_OPAQUE };

/* What an op costs, for op_cost. */
struct at_cost {
    int64_t flops, flops_most, matmul_flops, matmul_flops_most; /* COST_UNKNOWN */
    int64_t integer_ops, bytes_read, bytes_written;
    int64_t price; /* of a launch: price.id, else COST_UNKNOWN */
    const char *dtype;
    int8_t grade, matmul;
};

/* Two cache lines; what rules ask for all the time is in the first (long traces wait for memory). */
struct at_event {
    int32_t name;              /* kernels: number of the function (api, or ROW_KERNEL_NAME + kernel) */
    int32_t buffer0, buffers;  /* in at_trace.buffer */
    int32_t access0, accesses; /* in at_trace.access */
    int32_t step, micro_batch; /* result; step -1: none */
    int32_t cost;              /* in at_trace.cost; -1 */
    int32_t set;               /* op_set.buffers; AT_OWN_SET: -op */
    int32_t block;             /* allocations and releases: which */
    int8_t kind, phase;
    int8_t beyond;         /* writes, perhaps, where nobody knows: through a pointer that lies in memory */
    int8_t own;            /* K: a kernel that is taken for a product */
    int8_t lists;          /* E2: its pointers are so many lists of tensors; 0: no lists */
    int8_t axis_a, axis_b; /* contracted axis of the stored operands */
    int8_t bits_a, bits_b; /* of an element of a factor; 0: not known */
    int8_t phase_by;       /* enum at_found_by */
    int8_t call;           /* enum at_call */
    int64_t op;            /* id in the database */
    int64_t key_ns;        /* place in issue order: the end of an allocation, the start of all else */
    int64_t start_ns, end_ns;
    int64_t m, n, k, batch; /* GEMM */
    int64_t filler;
};

/* The device's times for an event; busy_ns -1: none. */
struct at_device_time {
    int64_t start_ns, end_ns, busy_ns;
};

/* What an event was handed, as the trace tells it. */
struct at_buffer {
    int64_t offset, bytes; /* in the block; AT_UNKNOWN_BYTES */
    int32_t block;
    int32_t event;
    int16_t slot;
    int8_t mode;
    int16_t argument; /* the slot, while `slot` tells its role in a product of the program's own */
    uint8_t partial;  /* a write that may leave bytes as they were */
    uint8_t guessed;  /* the trace does not tell its extent: rules E2, E3 do */
};

struct at_block {
    int64_t alloc; /* id in the database */
    int64_t address, bytes;
    int32_t born, dead; /* events; dead AT_END: never released */
    int32_t range0, ranges;
    int8_t of_library; /* allocated inside a library call */
    int8_t home;       /* enum at_home */
    int8_t pool;       /* rule C0: its ranges change their class over time */
};

/* An atomic piece of a block: no access begins or ends inside it. */
struct at_range {
    int64_t lo, hi; /* bytes in the block */
    int32_t block;
    int32_t touch0, touches; /* in at_trace.touch */
    int32_t value0, values;  /* in at_trace.value */
    int32_t carried_from;    /* with `carried` */
    /* what rules found, one flag each */
    uint8_t gemm_reads, gemm_writes;
    uint8_t workspace;                  /* bits of enum at_workspace */
    uint8_t carried, maybe_carried;     /* U1; by modifications of unknown direction only */
    uint8_t copied;                     /* U6: GEMMs read copies of it */
    uint8_t weight, frozen, any_weight; /* W1, W2, either or by copies */
    uint8_t forward_axis;               /* W3 */
    uint8_t kernel_forward;             /* W3: its forward products are the program's own kernels */
    uint8_t holds_grad;                 /* one of its values is a gradient (G1) */
    uint8_t cluster_writes;             /* an op of a cluster writes it */
    uint8_t overwritten_by_optimizer;   /* a kernel of a cluster overwrites it; outside pools */
    uint8_t alive;                      /* lives through 0.3 of the training part */
    int8_t constant;                    /* memo of at_constant: -1 not decided */
    int8_t weight_like;                 /* memo of U1a */
};

struct at_access {
    int32_t event, range, value, buffer;
    int32_t writer; /* last event before this one that wrote the range; -1: none */
    int8_t mode;
};

/* The life of one content of a range: from a pure write (or the first touch) to the next. */
struct at_value {
    int32_t range;
    int32_t touch0, touches;
    int32_t birth;      /* event that wrote it first; -1: read before anything wrote it */
    int32_t copy_of;    /* U6: the weight's range, -1 */
    int32_t tainted_in; /* backward (its number) in which it depends on the loss gradient */
    int32_t needed_in;  /* interval in which backward needs it */
    uint8_t gemm_operand, gemm_result, gemm_any, kernel_modifies, only_host_writes;
    uint8_t grad, grad_like, derived; /* G1, G3, G2 */
    uint8_t taint, forced;            /* depends on the loss gradient; P2 blind */
};

/* A GEMM-free run of ops that updates weights, then (merged) the end of a step. */
struct at_cluster {
    int32_t first, last; /* events */
    int32_t run;
    int32_t merged; /* number of the step end that it belongs to; -1: rule S1b */
    uint8_t uses_grad;
};

struct at_span {               /* one backward */
    int32_t first, last, turn; /* turn: the loss kernel, -1 */
};

struct at_interval {
    int32_t from, to; /* events [from, to) */
    int32_t cluster;  /* merged cluster that ends it; -1: the trace ends */
    int32_t span0, spans;
};

/* Why a range has its class. */
enum at_rule {
#define RULE(name, cls, text, known, blind, pool) AT_RULE_##name,
#include "analyzer/attr_rules.h"
#undef RULE
    AT_RULES
};

/* A piece of a range's life with one class. */
struct at_verdict {
    int32_t from, until; /* events; AT_END */
    int8_t cls;
    int8_t rule; /* enum at_rule */
};

/* What found a step or a phase. */
enum at_found_by { AT_BY_RULES, AT_BY_PASSES /* inference */, AT_BY_REPEATS, AT_BY_ONE, AT_BY_NVTX, AT_BY_ACCT_H };

struct at_step {
    uint8_t complete;         /* 0: cut off before its optimizer, or not recorded from its beginning */
    uint8_t by;               /* enum at_found_by */
    int64_t start_ns, end_ns; /* of a step that a marker tells; else 0 */
};

/* O: of a trace that ended for want of memory before any update. */
enum at_cut { AT_CUT_NOT, AT_CUT_IN_FORWARD, AT_CUT_IN_BACKWARD };
enum at_cut_kind {
    AT_CUT_NONE,
    AT_CUT_WEIGHT, /* a parameter that products read */
    AT_CUT_PARAM,  /* another one */
    AT_CUT_MASTER, /* a parameter in the format of the updates; products read a cast of it */
    AT_CUT_INPUT,
    AT_CUT_GRAD,
    AT_CUT_CLEARED, /* a gradient or optimizer state, not used yet */
};

struct launch_sets;
struct launch_prices;

struct at_trace {
    struct pool *pool;
    struct launch_sets *sets; /* the caller's, as the next */
    struct launch_prices *prices;

    struct at_event *event;
    int32_t events;
    struct at_buffer *buffer;
    int32_t buffers;
    struct at_block *block;
    int32_t blocks;
    struct at_cost *cost;
    int32_t costs;
    struct at_range *range;
    int32_t ranges;
    struct at_access *access;
    int32_t accesses; /* by event */
    int32_t *touch;   /* accesses by range, in issue order */
    struct at_value *value;
    int32_t values;

    int32_t *gemm;
    int32_t gemms;           /* events that are products */
    int32_t *run;            /* per event: number of products before it */
    int32_t *gemm_before;    /* per event: for a product, the latest one before it with the same operand values; -1 */
    int32_t *weight_read;    /* per event: for a product, or a kernel that is a forward one, the weight read; -1 */
    uint8_t *weight_forward; /* …along its forward axis? */
    uint8_t *in_cluster;     /* per event */
    uint8_t *writes_grad;    /* per event: a gradient by G1 */
    uint8_t *turn;           /* per event: writes the gradient of the loss */

    int32_t first_gemm;   /* event: the first product whose result anything reads */
    int32_t training_end; /* event behind the last change in place: the training part ends */
    int32_t first_weight_read;
    int blind;      /* directions and extents of most launches are not known */
    int dark;       /* of most launches nothing is: const in a signature tells what is only read, so what is written */
    double guessed; /* share of launches with an argument whose direction the trace does not tell */
    int late;       /* attached while the program was training */
    struct at_device_time *device; /* per event; NULL: there are no such times */
    int no_memory;                 /* a call returned what those do that found no memory */
    int died;                      /* the program did no more work after a call that found no memory; the caller's */
    int8_t cut;                    /* enum at_cut */
    uint8_t *cut_is;               /* per range, with `cut`: enum at_cut_kind */

    struct at_map modified; /* (run, range): a kernel modifies a carried range there */
    struct at_map updated;  /* (run, range): update runs and the weights they update */
    int32_t *update_run;
    int32_t update_runs;          /* ascending */
    struct at_map cluster_weight; /* (merged cluster, range) */

    struct at_cluster *cluster;
    int32_t clusters;                        /* as found */
    int32_t *step_end_first, *step_end_last; /* merged clusters */
    int32_t step_ends;
    struct at_interval *interval;
    int32_t intervals;
    struct at_span *span;
    int32_t spans;
    int32_t cut_forward;          /* P7: a forward pass that the trace's end cut off begins here; -1 */
    int32_t last_forward_weights; /* P1: weights read forward before the group of backward last begun */
    struct at_step *step;
    int32_t steps;

    struct at_verdict *verdict; /* by range: verdict0[r] … verdict0[r + 1] */
    int32_t *verdict0;
    int32_t *stretch;  /* per event: number of the stretch of one phase that it lies in */
    struct at_map fed; /* (block, offset of a buffer): range of the gradient that it is added to, + 1; -1 several */
};

/* ---- from and to the database; 0, or negative with one line in err
 * -------------------------------------------------------- */
struct gemms;
int at_load(struct at_trace *t, sqlite3 *db, struct gemms *gemms, char *err,
            size_t err_len);                                  /* events, blocks, buffers; rewrites op_buffer */
void at_extents(struct at_trace *t);                          /* E2: of buffers, before ranges are cut */
void at_whole_blocks(struct at_trace *t);                     /* E3: the same of launches over whole blocks */
int at_ranges(struct at_trace *t, char *err, size_t err_len); /* ranges and accesses */
int at_times(struct at_trace *t, sqlite3 *db, char *err,
             size_t err_len); /* writes op_time; the device's times of events */
struct op_writer;
struct at_sums;
void at_trim_first_step(struct at_trace *t); /* initialisation is in no step; behind at_classes */
int at_write(struct at_trace *t, sqlite3 *db, struct op_writer *ops, const struct at_sums *sums, char *err,
             size_t err_len); /* step, phase, alloc_class, op_set */

/* attr_costs.c: writes op_set and cost_set by a thread, from the time when steps and phases are settled. From begin to
 * wait the database is the thread's, and events keep their op, set, cost, kind, step and phase. */
struct op_writer *op_writer_begin(const struct at_trace *t, sqlite3 *db); /* NULL: no memory */
void op_writer_wait(struct op_writer *w);
int op_writer_end(struct op_writer *w, char *err, size_t err_len); /* writes the rest; negative: an error of either */
void op_writer_free(struct op_writer *w);                          /* waits; NULL: nothing */
int32_t at_first_of_steps(const struct at_trace *t);               /* event: the first step's first phase begins */
int32_t at_micro_batch_of(const struct at_event *e); /* the optimizer works once a step, whatever its micro-batches */
const struct at_cost *at_cost_of(const struct at_trace *t, const struct at_event *e); /* of one without: uncounted */
/* op_sum, step_sum, added up when steps are settled, and written at another time. */
struct at_sums;
struct at_sums *at_sums_make(struct at_trace *t);
int at_sums_write(const struct at_sums *s, sqlite3 *db, char *err, size_t err_len);
const char *at_phase_text(const struct at_event *e); /* op_cost.phase; NULL */

/* ---- in the order in which they run
 * ------------------------------------------------------------------------------------ */
void at_directions(struct at_trace *t); /* E1, M1–M4 */
void at_values(struct at_trace *t);     /* V */
/* A: if programs follow one another in the trace: all that follows, and at_classes, for each of them; 0: they do not.
 */
int at_segments(struct at_trace *t, void (*rules)(struct at_trace *));
void at_own_products(struct at_trace *t); /* K: kernels that are products become AT_GEMM */
void at_carried(struct at_trace *t);      /* U1 */
void at_copies(struct at_trace *t);       /* U6 */
void at_updates(struct at_trace *t);      /* U2–U5 */
void at_clusters(struct at_trace *t);     /* U7; called by at_updates */
void at_cut(struct at_trace *t);          /* O: supposes an update where there is none */
void at_gradients(struct at_trace *t);    /* G1–G3, C0 */
void at_weights(struct at_trace *t);      /* W1–W3 */
void at_cut_forget(struct at_trace *t);   /* O: takes the supposed update back */
void at_intervals(struct at_trace *t);    /* S1, S2 */
void at_phases(struct at_trace *t);       /* P1–P7 */
/* An update that the end of the trace cut off before it came to a weight: optimizer, but the end of no step. */
void at_begun_update(struct at_trace *t);
void at_steps(struct at_trace *t);               /* K1, N1 */
void at_classes(struct at_trace *t);             /* C1–C9 */
void at_own_products_forget(struct at_trace *t); /* K: they become kernels again */
void at_values_again(struct at_trace *t);        /* after products were found */

/* O: the step of a trace cut off in its first forward pass; in place of at_steps' rules. */
void at_cut_forward(struct at_trace *t);

/* Parts of at_classes. */
void at_crossings(struct at_trace *t);                               /* C0 */
struct at_verdict at_value_class(struct at_trace *t, int32_t value); /* C4–C8 */
void at_value_class_prepare(struct at_trace *t);
void at_neighbours(struct at_trace *t); /* C9 */
int at_class_of_rule(int rule);

/* Parts of at_phases, in their own files. */
void at_taint(struct at_trace *t, const struct at_interval *iv); /* P3 */
void at_forward(struct at_trace *t, int32_t interval);           /* P4–P6 */
void at_backward_start(struct at_trace *t, int32_t first_grad_op, int32_t lo, int32_t updated_by,
                       struct at_span *out); /* P2 */

/* ---- questions that several rules ask
 * ---------------------------------------------------------------------------------- */
int at_same_count(int64_t x, int64_t y);
/* A kernel with one buffer read and one written, of which one is a whole number of times the other, as collectives of
 * shares have: 1 it writes the larger (all-gather), -1 it reads it (reduce-scatter), 0 no such kernel. share: bytes of
 * the smaller. */
int at_shares(const struct at_trace *t, const struct at_event *ev, int64_t *share);
int64_t at_access_bytes(const struct at_trace *t, const struct at_access *a);
int at_is_carried(const struct at_trace *t, int32_t range, int32_t event);
int at_constant(struct at_trace *t, int32_t range);
int at_warms_up(const struct at_trace *t, int32_t event);
int at_lasting(struct at_trace *t, int32_t range);
int at_is_pool(const struct at_trace *t, int32_t range);
int at_grad_like(const struct at_trace *t, int32_t value);
int at_is_grad_op(const struct at_trace *t, int32_t event);
int32_t at_previous_value(const struct at_trace *t, const struct at_access *a);
int32_t at_first_gemm_from(const struct at_trace *t, int32_t event); /* position in gemm[] */
int32_t at_touch_from(const struct at_trace *t, int32_t touch0, int32_t touches, int32_t event);

static inline int at_is_op(const struct at_event *e) {
    return e->kind > AT_HANDED;
}
static inline int at_is_work(const struct at_event *e) {
    return e->kind == AT_GEMM || e->kind == AT_KERNEL;
}
/* What no library computes. */
static inline int at_is_own_kernel(const struct at_event *e) {
    return e->kind == AT_KERNEL || e->own;
}
static inline int at_writes(int mode) {
    return mode != AT_R;
}
static inline int at_reads(int mode) {
    return mode != AT_W;
}
static inline int at_modifies(int mode) {
    return mode == AT_RW || mode == AT_MAYBE;
}
static inline int at_slot_of(const struct at_trace *t, const struct at_access *a) {
    return t->buffer[a->buffer].slot;
}
static inline int at_is_factor(int slot) {
    return slot == AT_SLOT_A || slot == AT_SLOT_B;
}

/* The product's matrix, and what it keeps for backward; no gradient of a bias, no scalar. */
static inline int at_is_result(const struct at_trace *t, const struct at_access *a) {
    int slot = at_slot_of(t, a);
    return a->mode != AT_R && (slot == AT_SLOT_C || slot == AT_SLOT_D || slot == AT_SLOT_AUX);
}

#define AT_EACH_ACCESS(t, e, a)                                                                                  \
    for (const struct at_access *a = (t)->access + (t)->event[e].access0, *a##_end = a + (t)->event[e].accesses; \
         a < a##_end; a++)
/* Touches of a range lie far apart in memory, and in a long trace far from any cache: the ones that come some turns
 * later are asked for now. at_trace.touch has so many more than it needs. */
enum { AT_TOUCH_AHEAD = 16 };
static inline const struct at_access *at_touch(const struct at_trace *t, int32_t i) {
    __builtin_prefetch(&t->access[t->touch[i + AT_TOUCH_AHEAD]]);
    __builtin_prefetch(&t->event[t->access[t->touch[i + AT_TOUCH_AHEAD / 2]].event]);
    return &t->access[t->touch[i]];
}
/* Over the touches of a range or value x. The outer loop only declares; break and continue mean the inner one. */
#define AT_EACH_TOUCH(t, x, a)                                                                    \
    for (int32_t a##_i = (x)->touch0, a##_n = a##_i + (x)->touches; a##_i < a##_n; a##_i = a##_n) \
        for (const struct at_access *a; a##_i < a##_n && (a = at_touch(t, a##_i)) != NULL; a##_i++)

#endif
