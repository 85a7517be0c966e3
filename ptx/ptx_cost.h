/* What a launch costs, from its PTX, without running it: operations by type, bytes by space. Grid, block and scalar
 * arguments are known, contents of memory are not. The rules of counting are those of ptx_opcodes.def (a multiply-add
 * is 2, add, mul, min, sqrt, ex2, … 1, conversions, moves and comparisons 0; packed half types count both halves; mma
 * 2·m·n·k); an instruction counts once for each thread that executes it (not predicated off).
 *
 * Nothing is global: any thread may price any launch of a module. */
#ifndef ACCT_PTX_COST_H
#define ACCT_PTX_COST_H

#include "ptx/ptx.h"

enum ptx_cost_type {
    PTX_COST_FP64,
    PTX_COST_FP32,
    PTX_COST_FP16,
    PTX_COST_BF16,
    PTX_COST_OTHER, /* 6 and 4 bits and the like */
    PTX_COST_TF32,  /* of matrix units */
    PTX_COST_FP8,   /* E4M3, E5M2: of matrix units */
    PTX_COST_TYPES
};
enum ptx_cost_space {
    PTX_COST_GLOBAL, /* through generic addresses too, where they can only be global */
    PTX_COST_SHARED,
    PTX_COST_LOCAL,
    PTX_COST_CONST,
    PTX_COST_PARAM,
    PTX_COST_GENERIC, /* a generic address that could be of several spaces */
    PTX_COST_SPACES
};

enum ptx_cost_grade {
    PTX_COST_EXACT, /* every executed path is decided by launch constants: lo == hi in all counts, and they are right */
    PTX_COST_SAMPLED, /* counted on some threads or blocks and scaled: estimates (lo < hi: a branch depends on data as
                         well, or what no thread did that was drawn could be so much) */
    PTX_COST_BOUND    /* a branch depends on data: the true count lies in [lo, hi] */
};

/* Of the whole launch. hi INT64_MAX: no upper bound is known (a loop that depends on data). */
struct ptx_count {
    int64_t lo, hi;
};

struct ptx_cost {
    enum ptx_cost_grade grade;
    struct ptx_count flops[PTX_COST_TYPES];  /* floating point outside matrix units */
    struct ptx_count matrix[PTX_COST_TYPES]; /* mma, wmma, wgmma: by the type of the factors */
    struct ptx_count integer_ops; /* add, mul, mad (2), shifts, logic, min, max … on integers; integer mma too */
    /* Bytes. An atomic loads and stores; red, which gives nothing back, stores. */
    struct ptx_count loaded[PTX_COST_SPACES], stored[PTX_COST_SPACES];
    struct ptx_count atomics; /* executed by threads: atom and red */
    struct ptx_count instructions;
    int64_t blocks_counted; /* SAMPLED: on how many the estimate rests, of threads in as many blocks as they would fill,
                             * rounded up; else all of the grid */
    char why[160];          /* not exact: the first reason, with its line */
    uint64_t steps;         /* instructions evaluated for it: what the price cost */
};

/* 0, or -1: no memory, the function has no body or an instruction that is unknown (said in out->why). `params`:
 * entry->param_bytes of them; NULL: not known, which mostly makes a bound. */
int ptx_cost_launch(const struct ptx_module *module, const struct ptx_function *entry, const uint32_t grid[3],
                    const uint32_t block[3], uint32_t dynamic_shared, const void *params, struct ptx_cost *out);

/* The same, evaluating about `steps` instructions at most (0: 10 million, some one or two seconds); where they do not
 * suffice, threads or blocks are sampled with a fifth of that, and where those do not, the text alone gives bounds.
 * That they will not suffice is foreseen where many threads differ: then far fewer are spent. */
int ptx_cost_launch_within(uint64_t steps, const struct ptx_module *module, const struct ptx_function *entry,
                           const uint32_t grid[3], const uint32_t block[3], uint32_t dynamic_shared, const void *params,
                           struct ptx_cost *out);

/* What of the argument bytes a price depends on, whatever the launch: for each of entry->param_bytes bytes. Launches
 * whose grid, block and dynamic shared memory are equal, and these bytes, have the same price. 0, or -1: no memory, or
 * a function without body. */
enum ptx_cost_use {
    PTX_COST_BY_NOTHING,
    PTX_COST_BY_NULL, /* 8 bytes: only whether they are zero */
    PTX_COST_BY_VALUE
};
int ptx_cost_uses(const struct ptx_module *module, const struct ptx_function *entry, unsigned char *uses);

/* ---- the same counts as an array, in the order of struct ptx_cost ---- */
enum ptx_tally_field {
    PTX_T_FLOPS,
    PTX_T_MATRIX = PTX_T_FLOPS + PTX_COST_TYPES,
    PTX_T_INTEGER = PTX_T_MATRIX + PTX_COST_TYPES,
    PTX_T_LOADED,
    PTX_T_STORED = PTX_T_LOADED + PTX_COST_SPACES,
    PTX_T_ATOMICS = PTX_T_STORED + PTX_COST_SPACES,
    PTX_T_INSTRUCTIONS,
    PTX_T_FIELDS
};
struct ptx_tally { /* zeros to begin with */
    int64_t n[PTX_T_FIELDS];
};
const char *ptx_tally_name(unsigned field); /* "fp32", "loaded.global" … */
struct ptx_count *ptx_cost_field(struct ptx_cost *cost, unsigned field);
/* Adds an instruction that one thread executes, without the bytes it loads and stores … */
void ptx_tally_instr(struct ptx_tally *t, const struct ptx_instr *i);
/* … and those of ld, st, atom, red. `space`: where the address lies. */
void ptx_tally_access(struct ptx_tally *t, const struct ptx_instr *i, enum ptx_cost_space space);
enum ptx_cost_space ptx_cost_space_of(enum ptx_space space); /* GENERIC: of a generic one */

#endif
