/* The reference: a small, slow interpreter of a kernel launch, a thread of the grid at a time between barriers, a warp
 * at a time where lanes exchange values. What the JIT does is compared with it, and so is what the access analysis
 * says.
 *
 * Addresses. A global or const address is a host address. A shared address (of ld.shared, or a mov of a shared symbol)
 * is an offset in the block's shared memory, a local one an offset in the thread's local memory; their generic
 * addresses are host addresses inside buffers of the interpreter. A function's address is its number in the module,
 * plus one (who fills variables with addresses of functions must do the same).
 *
 * What PTX leaves open: a quotient by zero has all bits set, a remainder by zero is the dividend; a lane shuffled from
 * that takes no part gives its reader's own value; shared memory begins with bytes 0xa5, registers and local memory
 * with zeros; clocks count the instructions of the launch; NaN results are the canonical ones. Approximate functions
 * are within one unit in the last place, and no operand of an atomic is flushed. Products of matrix units take exact
 * factors, and are summed in double and rounded once (fp64: a chain of fma). An asynchronous copy copies at once, and a
 * block is a cluster of its own. Not there: 128-bit values, cvt.rs, wgmma, sparse products, bulk copies. */
#ifndef ACCT_PTX_INTERP_H
#define ACCT_PTX_INTERP_H

#include "ptx/ptx.h"
#include "ptx/ptx_cost.h"

struct ptx_touch {
    uint32_t ctaid[3], tid[3];
    uint8_t
        space; /* PTX_GLOBAL or PTX_CONST; accesses to shared, local and param are checked by the interpreter itself */
    uint8_t properties; /* PTX_P_READS, _WRITES, _ATOMIC */
    uint32_t bytes;
    uint64_t address;
    const struct ptx_instr *instr;
};

enum ptx_fault_kind {
    PTX_FAULT_NONE,
    PTX_FAULT_ADDRESS, /* refused by `touch`, or outside shared, local or param memory */
    PTX_FAULT_MISALIGNED,
    PTX_FAULT_TRAP,
    PTX_FAULT_ASSERT,
    PTX_FAULT_UNSUPPORTED, /* an instruction, a call of a function without body */
    PTX_FAULT_DEADLOCK,    /* a barrier or a warp operation that not all threads reach */
    PTX_FAULT_LIMIT,       /* max_instructions */
    PTX_FAULT_MEMORY       /* of the host */
};
struct ptx_fault {
    int kind;     /* enum ptx_fault_kind */
    int32_t line; /* of the PTX */
    uint64_t address;
    uint32_t bytes, properties; /* of the access */
    uint32_t ctaid[3], tid[3];
    char text[1024]; /* one line */
};

struct ptx_run {
    const struct ptx_module *module;
    const struct ptx_function *entry;
    uint32_t grid[3], block[3];
    uint32_t dynamic_shared;   /* bytes */
    const void *params;        /* entry->param_bytes of them */
    void *const *symbols;      /* host address of each variable of the module (global, const); shared: not looked at */
    uint64_t max_instructions; /* of the launch; 0: no limit */
    uint32_t first_block, blocks; /* of the grid, counted linearly; blocks 0: all from first_block on */
    /* Called before each access to global or const memory; 0: it may happen. NULL: all may. */
    int (*touch)(void *context, const struct ptx_touch *touch);
    /* vprintf; NULL: not printed. `arguments`: the packed buffer. Answers what vprintf returns. */
    int (*print)(void *context, const char *format, const void *arguments);
    /* malloc and free of kernels: an address in global memory, 0 for none. NULL: a kernel that calls them fails. */
    uint64_t (*allocate)(void *context, uint64_t bytes);
    void (*release)(void *context, uint64_t address);
    void *context;
    struct ptx_tally *counts; /* what was executed is added to it; NULL: not counted */
    uint64_t executed;        /* out: instructions, summed over threads */
};

/* Runs the launch on the calling thread. 0, or -1 with *fault set; memory is then as far as the threads got. */
int ptx_interpret(struct ptx_run *run, struct ptx_fault *fault);

#endif
