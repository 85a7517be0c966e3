/* What a kernel reads and writes, from its PTX, without running it. Sound, never a guess: an access whose pointer
 * cannot be followed makes `unknown` true and belongs to no slot; a mode names what may happen on some path (an access
 * that no path makes under this launch's grid, block and scalars is left out where the analysis can tell). */
#ifndef ACCT_PTX_ACCESS_H
#define ACCT_PTX_ACCESS_H

#include "ptx/ptx.h"

enum { PTX_ACCESS_R = 1, PTX_ACCESS_W = 2, PTX_ACCESS_RW = 3 };

/* One pointer through which the kernel reaches global memory. */
struct ptx_access {
    int32_t param;   /* number of the entry's parameter; -1: a variable of the module */
    int32_t var;     /* number of that variable, else -1 */
    uint32_t offset; /* of the pointer in the parameter buffer (a struct passed by value may hold several) */
    uint8_t mode;    /* PTX_ACCESS_* */
    uint8_t atomic;  /* 1: by atomics (among others) */
    uint8_t may_be;  /* 1: the pointer is one of several (selected); each of them has a slot with this mode */
    /* Extent of all accesses, bytes from the pointer's value, [lo, hi). Only if extent_known. */
    uint8_t extent_known;
    int64_t lo, hi;
    /* The same for reads and writes apart (mode rw: an update in place has both equal). lo == hi: none. */
    int64_t read_lo, read_hi, write_lo, write_hi;
    uint8_t dense; /* 1: every byte of the extent is touched (not: strided, or under a condition on data) */
};
struct ptx_accesses {
    struct ptx_access *slot; /* by offset */
    int32_t slots;
    bool unknown;        /* some access could not be followed to a pointer */
    bool unknown_writes; /* …and it may be a write */
    char why[160];       /* the first such, with its line */
};

/* Modes only: what holds for every launch. 0, or -1: no memory, or the function has an error or no body (said in why).
 */
int ptx_access_static(const struct ptx_module *module, const struct ptx_function *entry, struct ptx_accesses *out);

/* Under a launch: scalars from `params` (param_bytes of them; NULL: not known), extents. Memory contents are not known.
 */
int ptx_access_launch(const struct ptx_module *module, const struct ptx_function *entry, const uint32_t grid[3],
                      const uint32_t block[3], const void *params, struct ptx_accesses *out);
/* What of the argument bytes ptx_access_launch can depend on, whatever the launch: 1 for each of entry->param_bytes
 * bytes that matters. Pointers count by value, though mostly only whether they are null does. */
void ptx_access_uses(const struct ptx_module *module, const struct ptx_function *entry, unsigned char *uses);
void ptx_access_free(struct ptx_accesses *a);

#endif
