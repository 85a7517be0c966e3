/* Kernels of the virtual GPU, from the inside: what the compiler (vgpu_jit_*.c) makes of a PTX function and how the
 * runtime (vgpu_run_*.c) runs it. Both sides of this contract belong to the engine.
 *
 * Two modes. *Loop*: no barrier and no exchange between threads; one call runs all threads of one block in a loop that
 * the compiler vectorises. *Warp*: one call runs one warp, every register a vector of 32 lanes with a mask; warps of a
 * block run on fibers of one host thread, which change only in `barrier`. Blocks are spread over the cores.
 *
 * Addresses: global, const and generic addresses are host addresses; a shared address is an offset in the block's
 * shared memory; a local address an offset in the thread's local memory. Generic address of shared S: frame->shared +
 * S; of local L of linear thread t: frame->local + t * frame->local_stride + L. */
#ifndef VGPU_KERNEL_H
#define VGPU_KERNEL_H

#include "ptx/ptx.h"

enum { VGPU_WARP = 32 };

struct vgpu_frame;

/* What compiled code calls. All on the host thread that runs the block. */
struct vgpu_host {
    /* Warp `warp` waits at barrier `id` for `threads` threads of the block (0: all that have not left). `mask`: its
     * lanes that came. */
    void (*barrier)(struct vgpu_frame *frame, uint32_t warp, uint32_t id, uint32_t threads, uint32_t mask);
    /* bar.red: as barrier, then the number of lanes with a true predicate over the block. */
    uint32_t (*barrier_count)(struct vgpu_frame *frame, uint32_t warp, uint32_t id, uint32_t threads, uint32_t mask,
                              uint32_t predicate);
    int32_t (*print)(struct vgpu_frame *frame, uint64_t format, uint64_t arguments); /* vprintf; generic addresses */
    void (*fail)(struct vgpu_frame *frame, uint32_t thread, uint64_t message, uint64_t file, uint32_t line,
                 uint64_t function, uint64_t char_bytes);           /* __assertfail; does not return */
    void (*trap)(struct vgpu_frame *frame, uint32_t thread);        /* does not return */
    uint64_t (*allocate)(struct vgpu_frame *frame, uint64_t bytes); /* device-side malloc */
    void (*release)(struct vgpu_frame *frame, uint64_t address);
    uint64_t (*clock)(struct vgpu_frame *frame); /* ns */
    /* bar.arrive: as barrier, but the warp goes on at once. `threads` is given. */
    void (*arrive)(struct vgpu_frame *frame, uint32_t warp, uint32_t id, uint32_t threads, uint32_t mask);
    void (*yield)(struct vgpu_frame *frame, uint32_t warp); /* warp mode: it waits for what another warp writes */
};

/* A block under way. The runtime fills it; compiled code reads it only. Offsets are part of compiled code: a change
 * changes VGPU_JIT_VERSION. */
struct vgpu_frame {
    const unsigned char *params; /* entry->param_bytes, aligned to 16 */
    unsigned char *shared;       /* static, then dynamic; zero-filled by nobody */
    unsigned char *local;        /* of thread 0 */
    uint64_t local_stride;       /* bytes */
    void *const *symbols;        /* address of each variable of the module, by number */
    const struct vgpu_host *host;
    uint32_t grid[3], block[3], ctaid[3];
    uint32_t shared_bytes, dynamic_shared; /* all, and the dynamic part */
    uint32_t threads, warps;
    void *runtime;
};
enum { VGPU_JIT_VERSION = 1 };

typedef void vgpu_block_fn(struct vgpu_frame *frame);
typedef void vgpu_warp_fn(struct vgpu_frame *frame, uint32_t warp);

struct vgpu_code {
    vgpu_block_fn *block; /* loop mode, else NULL */
    vgpu_warp_fn *warp;   /* warp mode, else NULL */
    uint32_t local_bytes; /* of a thread, stack of callees included */
    double compile_ms;    /* 0: it came from the cache */
};

/* Compiles entry `f`, or takes it from the disk cache (ACCT_CACHE). Thread-safe; slow (10–800 ms). Code lives as long
 * as the process. 0, or -1 with one line in err: the instruction, with its line, that is not implemented. */
int vgpu_jit(const struct ptx_module *module, const struct ptx_function *f, struct vgpu_code *out, char *err,
             size_t err_len);

#endif
