/* Inside the cost model. The threads of a launch are a box: coordinates 0 ≤ x < n, of which tid and ctaid are affine
 * functions. A kernel is walked once for a whole box, each register that control depends on being an affine function of
 * the coordinates (modulo its width). Where a branch is not decided for all of the box, the walk ends with a wish to
 * split: a coordinate is cut in two, or x is written as p · q + r (so that quotients and remainders become affine), and
 * the parts are walked from the start. What a walk counted counts for each point of its box.
 *
 * A value that cannot be told yet is *late*: it carries the wish that would make it known, and only a branch makes it
 * come true. A value from memory, or from other threads, is *data*: a branch on it walks both ways and keeps bounds.
 * Loops are walked until two arrivals at the header suggest how values grow; then one iteration is walked with a
 * counter for a coordinate, and if it does in all N iterations what it did in the first, N are done at once. */
#ifndef ACCT_PTX_COST_MODEL_H
#define ACCT_PTX_COST_MODEL_H

#include "ptx/ptx_cost.h"
#include "ptx/ptx_machine.h"

enum {
    COST_DIMS = 12,
    COST_MAX_FRAMES = 64,
    COST_MAX_NEST = 24,
    COST_MAX_CELLS = 4096,
    COST_ENDS = 64,
    COST_LIMITS = 3
};
#define COST_FOREVER (INT64_C(1) << 40) /* iterations that nothing ends */
#define COST_MANY (INT64_C(1) << 60)    /* counts beyond this are not kept */

typedef __int128 wide;

/* ---- values ---- */
enum val_kind {
    VAL_NUM,   /* base + c + Σ f·x */
    VAL_LATE,  /* a function of the coordinates; `wish` makes it better known */
    VAL_DATA,  /* depends on memory or on other threads */
    VAL_POISON /* of an iteration that is walked for all: must not be read */
};
enum val_base {
    BASE_NUMBER, /* a number, or an address that is known as one: global memory */
    BASE_LOCAL,  /* offset in the thread's local memory, as the interpreter lays it out (.param of calls too) */
    BASE_SHARED,
    BASE_VAR,   /* of the module, global or const: var */
    BASE_PARAM, /* offset in the kernel's parameters */
    BASE_ANY    /* LATE, DATA: perhaps a pointer to anything */
};
struct wish {
    int8_t dim;
    bool radix;    /* x = at · q + r; else cut into [0, at) and [at, n) */
    bool opaque;   /* no better way is known than to look at each x alone */
    uint8_t limit; /* better than a cut: 1 + the place of a sum in x->borders, ≤ 0 in one part, > 0 in the other; 0 */
    uint8_t end;   /* of a comparison that the counter of a loop's iterations decides: 1 + its place in x->ends; 0 */
    int64_t at;
};
struct val { /* all zero: the number 0 */
    uint8_t kind, base;
    uint16_t dims; /* mask of those with f ≠ 0 */
    int32_t var;   /* BASE_VAR; LATE: a number of its own */
    int64_t c;     /* modulo 2^64. LATE: its bits from this one on are zero; 0: not known */
    union {
        int64_t f[COST_DIMS]; /* modulo 2^64 */
        struct wish wish;     /* LATE */
    };
};
struct sum { /* exact */
    wide c;
    uint16_t dims;
    wide f[COST_DIMS];
};

/* ---- where a walk is ---- */
struct cost_frame {
    const struct func_info *info;
    int32_t block, next; /* next: in info->todo */
    int32_t regs;        /* where its registers begin */
    uint32_t local, args;
};
struct cell { /* a piece of local memory whose value is known, or known to be late */
    int64_t at;
    int32_t bytes;
    struct val v;
};
struct state {
    struct cost_frame frame[COST_MAX_FRAMES];
    int32_t depth;
    struct val *regs;
    int32_t reg_count, reg_room;
    struct cell *cell;
    int32_t cells, cell_room;
    uint32_t local_top;
    struct val carry; /* the flag of add.cc …, followed only where it is a constant */
    struct ptx_tally lo, hi;
    uint32_t endless;                                /* fields of hi without bound */
    wide box_lo[PTX_T_FIELDS], box_hi[PTX_T_FIELDS]; /* of the whole box: where its threads differ */
    bool frozen;                                     /* perhaps the thread has ended: lo no longer grows */
    bool escaped;                                    /* an address of local memory may be anywhere */
};

/* ---- functions ---- */
struct todo {
    int32_t instr; /* to be evaluated; -1: none */
    int32_t tally; /* counted first; -1: none */
};
struct loop {
    int32_t header, parent; /* parent: the loop around it, -1 */
    uint64_t *body;         /* blocks */
};
struct func_info {
    const struct ptx_function *f;
    int32_t *slot; /* register → place in a frame's registers; -1: control does not depend on it */
    int32_t slots;
    struct todo *todo;
    int32_t *first; /* block → todo; one more at the end */
    struct ptx_tally *tally;
    struct loop *loop;
    int32_t loops;
    int32_t *innermost; /* block → loop; -1 */
    uint32_t words;     /* of a set of blocks */
};

/* ---- walks ---- */
enum walk {
    WALK_AT,      /* at a block where it had to stop */
    WALK_RETURN,  /* before the return of the function in which it had to stop */
    WALK_EXIT,    /* the thread has ended */
    WALK_SPLIT,   /* the box must be split: x->split */
    WALK_POISON,  /* an iteration that was walked for all needs what is not known */
    WALK_ENDLESS, /* a loop that nothing ends */
    WALK_LIMIT,   /* too many steps */
    WALK_DEEP,    /* calls, or branches on data, too deep in each other or meeting nowhere */
    WALK_ERROR    /* x->error is set */
};
struct stop {
    int32_t depth;          /* of frames; 0: nowhere */
    int32_t block[8];       /* -1: none */
    const uint64_t *within; /* stop outside of these blocks; NULL */
    bool at_return;
};
struct history { /* of a loop that is being walked */
    int32_t depth, header, arrivals;
    struct state *before; /* at the last arrival; NULL */
};
struct assumption { /* a branch on data that stays in its loop: where it leaves it is looked at apart */
    int32_t depth, block, target;
};
struct written { /* local memory that was written; bytes -1: perhaps all */
    int64_t at, bytes;
};

/* Sums by which boxes may be divided: the last ones that anything was late for. Any of them divides any box. */
struct borders {
    struct sum sum[COST_ENDS];
    uint8_t next;
};

struct cost_run {
    const struct ptx_module *module;
    const struct ptx_function *entry;
    uint32_t grid[3], block[3], dynamic_shared;
    const unsigned char *params;   /* NULL: not known */
    struct func_info **info;       /* by function; NULL: not made yet */
    int64_t n[COST_DIMS];          /* the box */
    struct sum bound[COST_LIMITS]; /* of its points those where all of these are ≤ 0 */
    int32_t limits;
    struct borders *borders;
    uint16_t used, counters; /* masks: coordinates, those of iterations */
    uint16_t varying;        /* of counters (one at most): up to `last`, a function of the other coordinates */
    struct sum last;
    struct sum ends[COST_ENDS]; /* sums that grow with a counter and are ≤ 0 as long as the loop goes on */
    uint8_t next_end;
    struct val sreg[6]; /* tid, ctaid */
    struct wish split;
    int32_t serial;
    uint64_t steps, limit, most; /* most: that the caller allows for an exact price */
    struct history *history;
    int32_t histories, history_base, history_room;
    struct assumption assume[COST_MAX_NEST];
    int32_t assumed, nest;
    struct written *written;
    int32_t writes, write_room;
    bool logging;
    bool carries;  /* control depends on carry flags */
    bool data;     /* a branch depended on data */
    bool failed;   /* no memory */
    char why[160]; /* the first reason why a branch is data */
    char error[160];
    /* for constants: the interpreter's own instructions */
    struct ptx_run fold_run;
    struct ptx_machine fold_machine;
    struct ptx_thread fold_thread;
    struct ptx_frame fold_frame;
    struct ptx_fault fold_fault;
};

/* ptx_cost_value.c */
struct val cost_number(int64_t c);
struct val cost_data(enum val_base base);
struct val cost_late(struct cost_run *x, struct wish w, enum val_base base);
bool cost_same(const struct val *a, const struct val *b);
bool cost_is_constant(const struct val *v);
struct val ptx_cost_add(const struct cost_run *x, const struct val *a, const struct val *b, int64_t times_b);
struct val cost_scale(const struct cost_run *x, const struct val *a, int64_t by);
struct sum cost_sum(const struct val *v);
struct sum cost_sum_add(const struct sum *a, const struct sum *b, wide times_b);
struct val cost_from_sum(const struct sum *s);
void cost_range(const struct cost_run *x, const struct sum *s, wide *lo, wide *hi);
/* True: q = ⌊e / d⌋ for the whole box, d > 0. False: *w. */
bool cost_floor(const struct cost_run *x, const struct sum *e, wide d, struct sum *q, struct wish *w);
/* The bits of v read as a number of the type. */
bool cost_as(const struct cost_run *x, const struct val *v, bool is_signed, unsigned bits, struct sum *out,
             struct wish *w);
/* 1: e ≤ 0 (or e = 0) for the whole box, 0: for none of it, -1: *w. */
int cost_at_most_zero(struct cost_run *x, const struct sum *e, struct wish *w);
int cost_is_zero(struct cost_run *x, const struct sum *e, struct wish *w);
struct wish cost_halve(const struct cost_run *x, uint16_t dims); /* the shortest of these coordinates */
void cost_cut(struct val *v, int dim, int64_t from, int64_t left);
void cost_radix(struct val *v, int dim, int quotient, int64_t at);

/* ptx_cost_points.c */
/* The number of the box's points within its limits, without coordinates that count iterations; *twice: two times the
 * sum of s over them (s NULL: not wanted). */
wide cost_points(const struct cost_run *x, const struct sum *s, wide *twice);
/* Whether points within these limits can be counted in a short time. */
bool cost_may_limit(const struct cost_run *x, const struct sum *more);
/* Bounds of s that follow from a limit: *lo, *hi are made closer. */
void cost_limit_range(const struct cost_run *x, const struct sum *s, wide *lo, wide *hi);

/* ptx_cost_operand.c, ptx_cost_arith.c, ptx_cost_bits.c */
void cost_eval(struct cost_run *x, struct state *s, const struct ptx_instr *i); /* writes its destinations */
struct val cost_operand(struct cost_run *x, struct state *s, const struct ptx_operand *o);
struct val cost_predicate(struct cost_run *x, struct state *s, const struct ptx_operand *o);
struct val cost_sreg(struct cost_run *x, enum ptx_sreg r);
void cost_put(struct cost_run *x, struct state *s, const struct ptx_operand *o, enum ptx_type type, struct val v);
bool cost_takes_carry(const struct ptx_instr *i); /* addc, subc, madc */
/* With constants for sources (the leaves of its operands), as the interpreter does it. */
void cost_execute(struct cost_run *x, struct state *s, const struct ptx_instr *i, const struct val *v);
struct val cost_logic(struct cost_run *x, const struct ptx_instr *i, const struct val *a, const struct val *b);
struct val cost_shift(struct cost_run *x, const struct ptx_instr *i, const struct val *a, const struct val *by);
struct val cost_field(struct cost_run *x, const struct ptx_instr *i, const struct val *v);
struct val cost_insert(struct cost_run *x, const struct ptx_instr *i, const struct val *v);
struct val cost_modulo(struct cost_run *x, const struct val *v, wide d); /* the bits of v modulo d, a power of two */
void cost_setp(struct cost_run *x, struct state *s, const struct ptx_instr *i);
int cost_compare(struct cost_run *x, const struct ptx_instr *i, const struct val *a, const struct val *b,
                 struct wish *w); /* 1, 0; -1: *w; -2: data */

/* ptx_cost_memory.c */
struct val cost_address(struct cost_run *x, struct state *s, const struct ptx_instr *i, enum ptx_space *space);
enum walk cost_access(struct cost_run *x, struct state *s, const struct ptx_instr *i, bool surely);
struct val cost_cell(struct state *s, int64_t at, int32_t bytes);
void cost_store(struct cost_run *x, struct state *s, int64_t at, int32_t bytes, const struct val *v);
void cost_forget(struct cost_run *x, struct state *s, int64_t at, int64_t bytes); /* bytes -1: all */
struct val cost_load_param(struct cost_run *x, const struct val *at, unsigned bytes);

/* ptx_cost_slice.c */
struct func_info *cost_function(struct cost_run *x, const struct ptx_function *f); /* NULL: no memory */
void cost_functions_free(struct cost_run *x);
int cost_slice(struct cost_run *x); /* what control depends on, in all functions; -1: no memory */
static inline bool cost_in(const uint64_t *set, int32_t n) {
    return set[n / 64] >> (n % 64) & 1;
}

/* ptx_cost_walk.c */
struct state *cost_state_new(struct cost_run *x);
struct state *cost_state_copy(struct cost_run *x, const struct state *from);
void cost_state_free(struct state *s);
enum walk cost_walk(struct cost_run *x, struct state *s, const struct stop *stop);
enum walk cost_enter(struct cost_run *x, struct state *s, const struct ptx_function *f); /* its arguments are stored */
void ptx_cost_book(struct state *s, const struct ptx_tally *t, bool surely);
bool cost_stops(const struct state *s, const struct stop *stop);
void cost_because(struct cost_run *x, const struct ptx_instr *i, const char *what);
static inline struct cost_frame *cost_top(struct state *s) {
    return &s->frame[s->depth - 1];
}
void cost_go(struct state *s, int32_t block);

/* ptx_cost_loop.c */
/* The walk has arrived at a loop's header. WALK_AT: go on (perhaps many iterations later). */
enum walk cost_arrive(struct cost_run *x, struct state *s, const struct loop *loop, bool again);
void cost_history_cut(struct cost_run *x, int32_t to);

/* ptx_cost_data.c */
enum { ARM_RETURN = -1, ARM_EXIT = -2 };
/* A branch on data: on return the state is where all ways meet (WALK_AT), or as cost_walk says. */
enum walk cost_branch(struct cost_run *x, struct state *s, const struct ptx_instr *i, const int32_t *arms,
                      int32_t count, const struct stop *outer);

/* ptx_cost_text.c */
enum { COST_MAX_ARMS = 65 };
#define COST_BULK_FIELDS                                                                                 \
    (UINT32_C(1) << (PTX_T_LOADED + PTX_COST_GLOBAL) | UINT32_C(1) << (PTX_T_LOADED + PTX_COST_SHARED) | \
     UINT32_C(1) << (PTX_T_STORED + PTX_COST_GLOBAL) | UINT32_C(1) << (PTX_T_STORED + PTX_COST_SHARED))
/* Adds to hi all that `f` may do; fields without an upper bound are marked in *endless. */
void cost_worst(struct cost_run *x, const struct ptx_function *f, struct ptx_tally *hi, uint32_t *endless);
void cost_worst_block(struct cost_run *x, const struct ptx_function *f, int32_t block, struct ptx_tally *hi,
                      uint32_t *endless, int depth); /* once */
void cost_mark_endless(const struct ptx_tally *hi, const struct ptx_tally *before, uint32_t *endless);
int32_t cost_ways(const struct ptx_function *f, int32_t block, int32_t *to, int32_t room); /* out of a block */
bool cost_goes_back(const struct ptx_function *f, int32_t block); /* one of them does: there is a loop */

#endif
