/* The interpreter from the inside (ptx_interp*.c): the machine, its threads, how operands are read and written.
 *
 * A register holds 64 bits: a value of b bits is zero-extended, but for a signed value in a wider register, which is
 * sign-extended up to the register's width and zero above (as ld.s8 and cvt.s8 into a 32-bit register do). Floats are
 * held as their IEEE bits. One host thread runs a launch; nothing is shared between launches. */
#ifndef ACCT_PTX_MACHINE_H
#define ACCT_PTX_MACHINE_H

#include "ptx/ptx_interp.h"

enum { PTX_WARP_LANES = 32, PTX_BARRIERS = 16, PTX_MAX_DEPTH = 2000 };

/* What an instruction does to its thread. */
enum ptx_step {
    PTX_STEP_NEXT, /* go on with the next instruction */
    PTX_STEP_JUMP, /* frame->pc is set */
    PTX_STEP_WAIT, /* state is set; the one who ends the wait moves pc on */
    PTX_STEP_EXIT,
    PTX_STEP_FAULT /* the launch ends; *machine->fault is set */
};

enum ptx_thread_state { PTX_READY, PTX_AT_WARP, PTX_AT_BARRIER, PTX_EXITED };

struct ptx_frame {
    const struct ptx_function *f;
    int32_t pc;
    uint32_t regs;  /* where its registers begin in thread->regs */
    uint32_t local; /* …and its variables in the thread's local memory */
    uint32_t args;  /* a device function's parameters and return values, there too */
};

struct ptx_thread {
    struct ptx_machine *m;
    uint32_t tid[3], linear;
    uint8_t state; /* enum ptx_thread_state */
    bool carry;
    bool predicate;     /* AT_BARRIER: of bar.red */
    uint32_t mask;      /* AT_WARP: lanes that take part */
    uint32_t barrier;   /* AT_BARRIER: its number */
    uint64_t *regs;     /* of all frames */
    uint32_t regs_room; /* in registers */
    struct ptx_frame *frames;
    uint32_t depth, frames_room;
    uint32_t local_top; /* bytes of local memory in use */
    unsigned char *local;
};

struct ptx_barrier {
    uint32_t wanted;     /* threads; 0: all of the block */
    uint32_t lanes[32];  /* that came, a word a warp */
    uint32_t popc, came; /* of bar.red: true predicates, all that brought one */
    bool busy;
};

struct ptx_machine {
    struct ptx_run *run;
    struct ptx_fault *fault;
    uint32_t ctaid[3];
    uint32_t threads, warps, left; /* of the block; left: not exited */
    struct ptx_thread *thread;
    unsigned char *shared;
    uint64_t shared_bytes;
    unsigned char *local; /* of all threads */
    uint64_t local_bytes; /* of one */
    struct ptx_barrier barrier[PTX_BARRIERS];
};

typedef enum ptx_step ptx_exec(struct ptx_thread *t, const struct ptx_instr *i);
ptx_exec *ptx_exec_of(enum ptx_op op); /* NULL: not implemented */

/* ---- faults ---- */
/* Fills the launch's fault; answers PTX_STEP_FAULT. */
enum ptx_step ptx_fail(struct ptx_thread *t, const struct ptx_instr *i, int kind, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
enum ptx_step ptx_fail_here(struct ptx_thread *t, const struct ptx_instr *i); /* PTX_FAULT_UNSUPPORTED, by name */

/* ---- operands: ptx_interp_operand.c ---- */
static inline struct ptx_frame *ptx_top(struct ptx_thread *t) {
    return &t->frames[t->depth - 1];
}
static inline uint64_t *ptx_reg_at(struct ptx_thread *t, int32_t reg) {
    return &t->regs[ptx_top(t)->regs + (uint32_t)reg];
}
static inline uint64_t ptx_bits(uint64_t v, unsigned bits) {
    return bits >= 64 ? v : v & ((UINT64_C(1) << bits) - 1);
}
static inline uint64_t ptx_sign(uint64_t v, unsigned bits) {
    return bits >= 64 ? v : (uint64_t)((int64_t)(v << (64 - bits)) >> (64 - bits));
}
/* A source: its low bits as the type has them, zero above. */
uint64_t ptx_get(struct ptx_thread *t, const struct ptx_operand *o, enum ptx_type type);
/* The same of an integer as a number: sign-extended to 64 bits where the type is signed. */
uint64_t ptx_get_int(struct ptx_thread *t, const struct ptx_operand *o, enum ptx_type type);
bool ptx_get_pred(struct ptx_thread *t, const struct ptx_operand *o);
void ptx_put(struct ptx_thread *t, const struct ptx_operand *o, enum ptx_type type, uint64_t value);
uint64_t ptx_sreg(struct ptx_thread *t, enum ptx_sreg s);
/* Bytes from the start of a device function's parameter area to its variable k (parameters, then return values). */
uint32_t ptx_arg_offset(const struct ptx_function *f, int32_t k);

/* ---- memory: ptx_interp_memory.c ---- */
/* Where an access lies, after all checks. 0, or -1 with the fault set. properties: PTX_P_*. */
int ptx_place(struct ptx_thread *t, const struct ptx_instr *i, const struct ptx_operand *o, enum ptx_space space,
              uint32_t bytes, uint32_t align, unsigned properties, unsigned char **place);
/* A variable's address in its own space. */
uint64_t ptx_symbol(struct ptx_thread *t, const struct ptx_operand *o);
uint64_t ptx_load(const unsigned char *p, unsigned bytes);
void ptx_store(unsigned char *p, unsigned bytes, uint64_t value);
/* Where the variable's bytes are for this thread, of a .param variable (a call's, or the function's own). */
unsigned char *ptx_param_bytes(struct ptx_thread *t, int32_t var);
bool ptx_param_may_change(struct ptx_thread *t, int32_t var); /* it is a .param variable, and not the kernel's */

/* ---- numbers: ptx_interp_round.c ---- */
struct ptx_format {
    uint8_t mantissa, exponent; /* bits */
};
const struct ptx_format *ptx_format_of(enum ptx_type type); /* NULL: not a float of this table */
/* (-1)^negative × m × 2^e, and a little more in magnitude if `sticky`, rounded to a format, overflow as IEEE 754. */
uint64_t ptx_round_bits(const struct ptx_format *f, bool negative, uint64_t m, int e, bool sticky, enum ptx_round mode);
double ptx_to_double(enum ptx_type type, uint64_t bits);                         /* exact */
uint64_t ptx_from_double(enum ptx_type type, double value, enum ptx_round mode); /* NaN: the type's canonical one */
bool ptx_is_nan(enum ptx_type type, uint64_t bits);
bool ptx_is_subnormal(enum ptx_type type, uint64_t bits);
uint64_t ptx_nan(enum ptx_type type);
uint64_t ptx_flush(enum ptx_type type, uint64_t bits); /* a subnormal becomes zero of its sign */
/* Sum, quotient and root with the last bit set where inexact (round to odd): rounding them once more to a format of at
 * most 51 bits gives the right result in any mode. The sign of an exact zero sum follows the mode. */
double ptx_add_odd(double a, double b, enum ptx_round mode);
double ptx_div_odd(double a, double b);
double ptx_sqrt_odd(double a);
/* double arithmetic in a rounding mode: '+', '-', '*', '/', 's'qrt, 'f'ma */
double ptx_double_op(char op, double a, double b, double c, enum ptx_round mode);
enum ptx_type ptx_half_type(enum ptx_type packed); /* f16x2: f16 … */

/* ---- float arithmetic: ptx_interp_float.c ---- */
/* One scalar operation by an instruction's opcode and modifiers. */
uint64_t ptx_float(const struct ptx_instr *i, enum ptx_type type, uint64_t a, uint64_t b, uint64_t c);
uint64_t ptx_float_minmax(bool max, enum ptx_type type, uint32_t modifiers, uint64_t a, uint64_t b);

/* ---- calls: ptx_interp_control.c ---- */
enum ptx_step ptx_enter(struct ptx_thread *t, const struct ptx_instr *i, const struct ptx_function *f);

/* ---- warps and barriers: ptx_interp_warp.c ---- */
/* Ends what waits can end. Answers whether any thread of the warp (the block) became ready; -1: fault. */
int ptx_warp_meet(struct ptx_machine *m, uint32_t warp);
int ptx_barriers_meet(struct ptx_machine *m);

/* ---- matrix units: ptx_interp_matrix.c ---- */
/* The lanes that wait at it; NULL: not there. */
void ptx_matrix_product(struct ptx_thread *const lane[PTX_WARP_LANES], const struct ptx_instr *i);

/* ---- the opcodes ---- */
ptx_exec ptx_x_int, ptx_x_carry, ptx_x_bits, ptx_x_prmt, ptx_x_dot, ptx_x_float1, ptx_x_arith, ptx_x_cvt, ptx_x_setp,
    ptx_x_set, ptx_x_selp, ptx_x_slct, ptx_x_testp, ptx_x_copysign, ptx_x_logic, ptx_x_lop3, ptx_x_shift, ptx_x_mov,
    ptx_x_cvta, ptx_x_isspacep, ptx_x_ld, ptx_x_st, ptx_x_atom, ptx_x_bra, ptx_x_brx, ptx_x_call, ptx_x_ret, ptx_x_exit,
    ptx_x_trap, ptx_x_warp, ptx_x_bar, ptx_x_mma, ptx_x_mbarrier, ptx_x_ldz;

#endif
