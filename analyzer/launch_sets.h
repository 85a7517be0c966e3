/* Which memory each kernel launch reads and writes: from the PTX of its module and its argument bytes; without PTX,
 * from `const` in its demangled signature. Nothing is guessed: what cannot be told has mode LAUNCH_EITHER or no extent.
 *
 * One per analysis, one thread; results are cached by kernel, grid, block and scalars. */
#ifndef ACCT_ANALYZER_LAUNCH_SETS_H
#define ACCT_ANALYZER_LAUNCH_SETS_H

#include <stddef.h>
#include <stdint.h>
#include <sqlite3.h>

#define LAUNCH_UNKNOWN_BYTES (-1)

enum launch_mode { LAUNCH_R = 1, LAUNCH_W = 2, LAUNCH_RW = 3, LAUNCH_EITHER = 4 };

struct launch_buffer {
    uint64_t pointer; /* the argument's value: names the allocation */
    uint64_t address; /* first byte touched; the pointer where the extent is not known */
    int64_t bytes;    /* LAUNCH_UNKNOWN_BYTES */
    int mode;         /* enum launch_mode */
    int param;        /* number of the parameter; -1: memory behind pointers that lie in memory, with no address */
    int offset;       /* of the pointer in the parameter; 0 for a plain one */
    int piece;        /* 0; a pointer through which parts are only read and others written has a piece for each */
    int partial;      /* 1, of mode LAUNCH_W: what was there may remain between the bytes that are written */
    int maybe;        /* 1: perhaps no pointer at all: only if an allocation lies there */
};

struct launch_call {
    int64_t kernel; /* kernel.id */
    uint32_t grid[3], block[3];
    uint32_t dynamic_shared; /* bytes of a block */
    const void *args;        /* NULL: not known */
    size_t arg_bytes;
};

struct launch_sets;
struct launch_kernel;

/* NULL: no memory. Reads modules and kernels when a launch first needs them. */
struct launch_sets *launch_sets_open(sqlite3 *db);
void launch_sets_close(struct launch_sets *s);

/* *out: *n buffers, the object's, valid until the next call. 0, or -1: no memory. */
int launch_sets_of(struct launch_sets *s, const struct launch_call *call, const struct launch_buffer **out, int *n);

/* Bytes that the launch last asked for reads and writes, each byte of its extents once; LAUNCH_UNKNOWN_BYTES where an
 * extent is not known. */
void launch_sets_bytes(const struct launch_sets *s, int64_t *read, int64_t *written);

/* Copies the arguments with 0 where neither what a launch touches nor its price depends on them (a learning rate).
 * `out`: call->arg_bytes. */
void launch_sets_mask(struct launch_sets *s, const struct launch_call *call, unsigned char *out);

/* NULL if the trace has none with that id, or there is no memory. Valid as long as s. */
const struct launch_kernel *launch_sets_kernel(struct launch_sets *s, int64_t id);

/* Copies the arguments with pointers replaced by 0 (null) or 1. `out`: call->arg_bytes. */
void launch_mask_pointers(const struct launch_kernel *k, const struct launch_call *call, unsigned char *out);

/* A mangled name as people write it: malloc'ed, or NULL where it is none (a C name). */
char *launch_demangle(const char *name);

/* Characters of a demangled name in front of its arguments, all of them where it has none: "(anonymous namespace)" and
 * "operator()" are no arguments. */
size_t launch_name_length(const char *name);

/* Fills kernel.demangled. */
int launch_name_kernels(sqlite3 *db, char *err, size_t err_len);

#endif
