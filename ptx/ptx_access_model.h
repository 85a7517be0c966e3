/* Inside the access analysis. A kernel is run once over symbolic values: each register holds a pointer plus a sum of
 * symbols (ptx_symbolic.h), or a condition. Blocks are visited in reverse post-order; at a merge, values that differ
 * become a symbol; at a loop's header, a value that grows by a constant becomes start + step · counter. Passes are
 * repeated until nothing changes; the last pass records the accesses. Calls of functions with a body are followed. */
#ifndef ACCT_PTX_ACCESS_MODEL_H
#define ACCT_PTX_ACCESS_MODEL_H

#include "ptx/ptx_access.h"
#include "ptx/ptx_symbolic.h"

enum {
    ACCESS_MAX_DEPTH = 12,   /* of calls */
    ACCESS_MAX_FRAMES = 400, /* call sites followed */
    ACCESS_MAX_PASSES = 40,
    ACCESS_MAX_STEPS = 2000000, /* instructions evaluated, all passes together */
    ACCESS_MAX_WORK = 500000,   /* steps of bounds */
    ACCESS_MAX_SET = 512        /* pointers that one register may hold */
};

/* What a value is relative to. */
enum base_kind {
    BASE_NONE,    /* a number */
    BASE_UNKNOWN, /* perhaps a pointer, nobody knows to what: loaded from memory, or made bit by bit */
    BASE_PARAM,   /* a: offset in the entry's parameters, 8 bytes; b: 1: surely a pointer */
    BASE_VAR,     /* a: a variable of the module, global or const */
    BASE_LOCAL,   /* a: frame, b: variable: local memory, or .param of a call */
    BASE_SHARED,
    BASE_FUNCTION,
    BASE_SET /* a: number of a set: one of several values */
};
struct base {
    int32_t kind, a, b;
};
struct value { /* by number: 0 is no value yet (not reached, not initialised) */
    struct base base;
    int32_t sum;  /* 0: unknown */
    int32_t cond; /* of a predicate: number of a condition; else 0 */
};

enum cond_kind { COND_ANY = 1, COND_TRUE, COND_FALSE, COND_LE, COND_EQ, COND_NE, COND_AND, COND_OR };
struct cond { /* LE: sum a ≤ 0; EQ, NE: sum a and 0; AND, OR: of conditions a, b */
    int32_t kind, a, b;
    int32_t size; /* conditions in it, itself included */
};

struct cell { /* a piece of local memory that is loaded and stored as one */
    int32_t frame, var;
    int64_t at;
    int32_t bytes;
    int32_t mixed; /* overlaps with others, or is reached by an index: its value is not followed */
};
struct wild { /* local memory that is reached by an index, or from outside */
    int32_t frame, var;
    int64_t lo, hi;
};

struct state {
    int32_t *regs; /* of those with several definitions */
    int32_t *cells;
    int32_t cell_count;
};

/* How a value of a header behaves from one iteration to the next. */
enum phi_state { PHI_SAME, PHI_PROBE, PHI_STEP, PHI_OPAQUE };
struct phi {
    int32_t state, since, tries;
    int64_t step;
    int32_t symbol; /* of PROBE and OPAQUE */
    int32_t joined; /* OPAQUE: the value so far */
};

/* Facts hold whenever a block is executed; `when` lists those that, if `exact`, also suffice for it to be executed. */
struct place {
    int32_t facts, when; /* lists */
    bool exact;
};
struct block_info {
    struct state out;
    struct place in, entry; /* entry: of a header, before the first iteration */
    int32_t facts_of;       /* the block whose facts these are, and more */
    bool reached, header;
    bool feasible[2];
    int32_t edge[2];     /* conditions of the two ways out; 0: none */
    int32_t *loop_facts; /* header: sums ≤ 0 that hold when an iteration ends and another begins */
    int32_t loop_fact_count, loop_fact_room;
    uint64_t facts_used;          /* header: hash of loop_facts of the last pass */
    bool bounded;                 /* header: the loop runs for just as long as its facts say */
    bool all_facts;               /* header: loop_facts are all there is */
    bool ends;                    /* calls a function that may end the thread */
    uint64_t *body;               /* header: blocks of the loop */
    int32_t tree_first, tree_end; /* interval of the dominator tree */
};

struct frame {
    const struct ptx_function *f;
    int32_t parent, depth;
    const struct ptx_instr *call;
    int32_t *order; /* blocks in reverse post-order */
    int32_t reached_blocks;
    int32_t *single; /* register → its value, if it has one definition */
    int32_t *multi;  /* register → index in state.regs, or -1 */
    int32_t multi_count;
    struct block_info *block;
    bool reducible;
    bool stops, ends;    /* has exit or trap in it or in what it calls; in what it calls */
    int32_t *exit_cells; /* joined over its returns */
    int32_t exit_count;
    bool returns;
};

struct record { /* an access to global memory */
    struct base base;
    int32_t sum, facts, when;
    uint32_t bytes;
    uint8_t mode, atomic, may_be, exact;
    int32_t line;
};

struct analysis {
    const struct ptx_module *module;
    const struct ptx_function *entry;
    const unsigned char *params; /* NULL: not known */
    bool launch;
    uint32_t grid[3], block[3];
    struct ptx_symbols_of s;
    struct ptx_facts facts;
    struct ptx_intern values, sets, conds, memo, cell_names;
    int32_t *memo_symbol; /* by number in memo */
    int32_t memo_room;
    struct phi *phi; /* by number in memo */
    int32_t phi_room;
    struct frame **frames;
    int32_t frame_count;
    struct cell *cells;
    int32_t cell_count, cell_room;
    struct wild *wilds;
    int32_t wild_count;
    struct record *records;
    int32_t record_count, record_room;
    int32_t tid[3], ctaid[3]; /* sums */
    /* where the evaluation is */
    int32_t frame, at_block, pass;
    struct state now;
    int32_t now_facts, now_when;
    bool now_exact, changed, recording, optimistic, failed;
    uint64_t steps;
    bool unknown, unknown_writes;
    char why[160];
};

/* values */
int32_t access_value(struct analysis *a, struct base base, int32_t sum);
int32_t access_number(struct analysis *a, int32_t sum);
int32_t access_condition(struct analysis *a, int32_t cond); /* the value of a predicate */
struct value access_get(const struct analysis *a, int32_t value);
int32_t access_memo(struct analysis *a, int32_t kind, int32_t x, int32_t y, int32_t z); /* a number for a key */
int32_t access_symbol(struct analysis *a, int32_t kind, int32_t x, int32_t y, int32_t z, int64_t lo, int64_t hi);
int32_t access_unknown(struct analysis *a);                                    /* value: perhaps a pointer */
int32_t access_join(struct analysis *a, int32_t x, int32_t y, int32_t symbol); /* x or y; sums that differ: symbol */
int32_t access_as_number(struct analysis *a, int32_t value);                   /* its sum, a parameter's value put in */
void access_fail(struct analysis *a, int32_t line, bool write, const char *what);
struct base_set { /* variable length */
    int32_t count, pad;
    struct value item[];
};
const struct base_set *access_set(const struct analysis *a, int32_t number);

/* conditions */
int32_t access_cond(struct analysis *a, int kind, int32_t x, int32_t y);
int32_t access_not(struct analysis *a, int32_t cond);
int access_decide(struct analysis *a, int32_t cond, int32_t facts);        /* 1 true, -1 false, 0 not known */
void access_assume_at(struct analysis *a, int32_t cond, struct place *at); /* the place if it holds */
int32_t access_fact(struct analysis *a, int32_t sum, int32_t list);

/* evaluation */
void access_eval(struct analysis *a, const struct ptx_instr *i);
int32_t access_operand(struct analysis *a, const struct ptx_operand *o, enum ptx_type type);
int32_t access_reg(struct analysis *a, int32_t reg);
void access_set_reg(struct analysis *a, int32_t reg, int32_t value);
int32_t access_arithmetic(struct analysis *a, const struct ptx_instr *i); /* value of the result */
int32_t access_as(struct analysis *a, int32_t sum, enum ptx_type type, const struct ptx_instr *i, int operand);
int32_t access_quotient(struct analysis *a, int32_t sum, int64_t by);
void access_memory(struct analysis *a, const struct ptx_instr *i, bool exact);
void access_call(struct analysis *a, const struct ptx_instr *i);
int32_t access_cell(struct analysis *a, int32_t frame, int32_t var, int64_t at, int32_t bytes);
bool access_bounded(const struct analysis *a);
bool access_counters_known(const struct analysis *a, int32_t sum, int32_t when);
void access_run_frame(struct analysis *a, int32_t frame);
int32_t access_frame(struct analysis *a, const struct ptx_function *f, int32_t parent, const struct ptx_instr *call);
int access_results(struct analysis *a, struct ptx_accesses *out);
/* Is every byte of the pieces of `records` that lie at `first`, up to `end`, of one pointer touched? */
bool access_dense(struct analysis *a, const struct record *const *records, int32_t count, int64_t lo, int64_t hi);

#endif
