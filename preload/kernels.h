/* The kernels that the program has: noted as its libraries register them, told to the collector at their first launch.
 *
 * Registration happens in constructors, before main and before this library's own, and again with each dlopen; it is no
 * CUDA call that would start a trace. Notes lie in memory of our own (mmap), which a forked child has too. Looking one
 * up takes no lock; noting takes one whose owner is known, so that a child does not wait for a thread of its parent.
 * What was noted is never given back: a library that is opened and closed again and again costs some 100 bytes a kernel
 * each time. */
#ifndef ACCT_PRELOAD_KERNELS_H
#define ACCT_PRELOAD_KERNELS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct hook_call;

/* A fat binary that was registered. */
struct kernel_binary {
    const void *wrapper;      /* struct acct_fatbin_wrapper, in the library that has it */
    struct kernel *kernels;   /* under the lock */
    uint32_t first_module;    /* number of its first module, once numbered */
    _Atomic uint32_t modules; /* translation units; 0: not numbered yet */
    _Atomic uint32_t told;    /* generation of the trace that knows its modules */
};

/* Argument bytes and attributes, as the runtime tells them. */
struct kernel_layout {
    uint32_t args_bytes;
    int32_t registers, max_threads;           /* ACCT_NULL_I32 not known */
    int64_t static_shared_bytes, local_bytes; /* ACCT_NULL_I64 */
    int32_t params;                           /* -1: not known */
    struct {
        uint32_t offset, bytes;
    } param[];
};

struct kernel {
    const void *function;         /* by which the runtime knows it: host function, or a handle */
    const char *name;             /* mangled, in the library that has it; NULL: not registered before our eyes */
    struct kernel_binary *binary; /* NULL: not known */
    struct kernel *next;          /* of the binary; under the lock */
    const void *handle;           /* cudaKernel_t that was given out for it, NULL none; under the lock */
    struct kernel_layout *_Atomic layout; /* NULL: not asked for yet */
    _Atomic uint32_t number;              /* launch.kernel; 0: not launched yet */
    _Atomic uint32_t told, told_whole;    /* generation of the trace that knows its name; its layout and modules too */
};

/* ---- notes (kernels.c); any thread --------------------------------------------------------------------------------
 */

void kernels_note_binary(const void *handle, const void *wrapper);
void kernels_note_function(const void *handle, const void *host, const char *name);
void kernels_note_handle(const void *kernel_handle, const void *host);
/* The library that has it is closed: its addresses may come again as others'. */
void kernels_forget_binary(const void *handle);
/* Kernels that came by handle only (cudaLibraryGetKernel): their library is unloaded. */
void kernels_forget_handles(void);

/* The kernel behind a host function or a handle; NULL: not noted. */
struct kernel *kernels_find(const void *function);
/* The same; notes one that nobody registered. NULL: no memory. */
struct kernel *kernels_adopt(const void *function);

/* Gives the binary's modules their numbers, if they have none yet. */
void kernels_number_modules(struct kernel_binary *b, uint32_t modules, uint32_t first);

/* Memory for good, zero-filled, aligned to 16; NULL: none. Any thread. */
void *kernels_memory(size_t bytes);

/* ---- telling (kernels_tell.c) ------------------------------------------------------------------------------------ */

/* Sees to it that the trace knows the kernel: its name, and after a successful call its modules and parameters. In the
 * ring of the call's thread, before the launch. */
void kernels_tell(struct hook_call *k, struct kernel *kn);

static inline int kernels_is_told(const struct kernel *kn, uint32_t generation, int whole) {
    return atomic_load_explicit(whole ? &kn->told_whole : &kn->told, memory_order_relaxed) == generation;
}

/* ---- files (kernels_file.c) -------------------------------------------------------------------------------------- */

/* The file that `bytes` at `p` are mapped from: its absolute path (NUL-terminated), and the offset in it. 0; or -1:
 * they are in no file that can be opened by that name. */
int kernels_file_of(const void *p, size_t bytes, char *path, size_t path_size, uint64_t *offset);

#endif
