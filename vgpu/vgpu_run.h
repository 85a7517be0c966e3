/* Kernels as the CUDA runtime sees them, from the inside (vgpu_run_*.c).
 *
 * A *unit* is the device code of one registered fat binary: its PTX, linked if it came from several translation units,
 * and its variables in device memory. It is read at the first launch or look-up that needs it. A *kernel* is a
 * __global__ function of a unit; its address is its handle (cudaKernel_t, cudaFunction_t). Units and kernels live as
 * long as the process. One lock, `vgpu_run_lock`, over all of both; taken before vgpu_lock and the memory's, never
 * inside one of them. */
#ifndef VGPU_RUN_H
#define VGPU_RUN_H

#include "ptx/ptx_interp.h"
#include "vgpu/vgpu_engine.h"
#include "vgpu/vgpu_kernel.h"
#include "vgpu/vgpu_link.h"

#include <setjmp.h>
#include <signal.h>

struct vgpu_unit;

struct vgpu_kernel {
    struct vgpu_item item;
    struct vgpu_binary *binary;
    struct vgpu_unit *unit; /* once resolved */
    const void *host;
    const char *name;             /* mangled */
    const struct ptx_function *f; /* NULL: not looked for yet, or there is none */
    cudaError_t error;            /* why it cannot be launched; said once when it was found */
    bool resolved;
    bool compiled; /* `code` is there; else the interpreter runs it */
    bool serial;   /* its blocks run one after another, since it prints */
    struct vgpu_code code;
    uint32_t local_bytes; /* of a thread */
    uint32_t registers;   /* of a thread, an estimate */
    uint64_t work;        /* instructions of a thread, a rough measure */
    uint32_t *pointers;   /* offsets in the parameter buffer where an address may lie */
    uint32_t pointer_count;
    unsigned char *uses;    /* on which bytes of its parameters a price depends: ptx_cost_uses; NULL: not known */
    bool followed;          /* the analysis told which parameters are pointers; else `pointers` is every word */
    int max_dynamic_shared; /* bytes, as cudaFuncSetAttribute set it; -1: not */
    int carveout, cache_config;
};

/* ---- units and kernels (vgpu_run_unit.c) ---- */
extern pthread_mutex_t vgpu_run_lock;

void vgpu_run_registry(struct vgpu_registry *registry);
int vgpu_run_init_module(struct vgpu_binary *binary);
void vgpu_run_reset(int device); /* it was reset: variables begin anew at their next use */

/* The kernel that a host function, a cudaKernel_t or a cudaFunction_t names. cudaErrorInvalidDeviceFunction: none. */
cudaError_t vgpu_kernel_find(const void *function, struct vgpu_kernel **out);
/* Reads its unit, and makes sure of its variables on the current device. The error with which a launch of it ends, said
 * in a line once. */
cudaError_t vgpu_kernel_ready(struct vgpu_kernel *kernel);
void *const *vgpu_kernel_symbols(const struct vgpu_kernel *kernel); /* on the current device, where it is ready */
const struct ptx_module *vgpu_kernel_module(const struct vgpu_kernel *kernel);
/* The current device's address of a variable. cudaErrorInvalidSymbol: none. */
cudaError_t vgpu_symbol_find(const void *symbol, void **address, size_t *bytes);
/* Device code that came by itself, not by registration: read at once, the error of that; then it joins the registry,
 * with what it registers; at last it leaves, with its variables' memory, when no work of it is under way. */
cudaError_t vgpu_unit_read(struct vgpu_binary *binary);
void vgpu_unit_join(struct vgpu_binary *binary);
void vgpu_unit_leave(struct vgpu_binary *binary);
const struct ptx_module *vgpu_unit_module(const struct vgpu_binary *binary);
cudaError_t vgpu_unit_symbol(struct vgpu_binary *binary, const char *name, void **address, size_t *bytes);
unsigned vgpu_run_sm(void); /* compute capability × 10, the profile's */

/* ---- what a launch needs to know of a kernel (vgpu_run_kernel.c, vgpu_run_registers.c) ---- */
/* Fills the rest of a kernel whose function was found; compiles it. */
cudaError_t vgpu_kernel_study(struct vgpu_kernel *kernel, const struct ptx_module *module);
uint32_t vgpu_registers(const struct ptx_module *module, const struct ptx_function *f);

/* ---- a launch (vgpu_run_launch.c, vgpu_run_execute.c) ---- */
enum vgpu_way { VGPU_COMPILED, VGPU_INTERPRETED, VGPU_CHECKED };

struct vgpu_launch { /* a launch as a work item; params follow, aligned to 16 */
    struct vgpu_kernel *kernel;
    void *const *symbols;
    uint32_t grid[3], block[3], dynamic_shared;
    uint32_t way;     /* enum vgpu_way */
    bool cooperative; /* its blocks may wait for each other */
    int32_t device;
    _Alignas(16) unsigned char params[];
};
void vgpu_execute_grid(const struct vgpu_launch *launch); /* all blocks at once (vgpu_run_grid.c) */
bool vgpu_grid_can(void);                                 /* there is a place where its blocks can meet */
void vgpu_execute(void *launch);                          /* struct vgpu_launch; on a stream's thread */
enum vgpu_way vgpu_execute_way(void);                     /* as ACCT_VGPU_EXECUTE and ACCT_VGPU_CHECK say */
enum vgpu_way vgpu_launch_way(const struct vgpu_launch *launch);

/* ---- what a launch does, for the model (vgpu_price.c) ---- */
/* FLOPs and bytes by the cost model, kept by kernel, shape and arguments. Any thread, no lock held; slow (up to tens of
 * milliseconds) for a launch that is not like one before. */
void vgpu_price_launch(const struct vgpu_launch *launch, struct vgpu_amount *out);

/* ---- accesses asked for one by one (vgpu_run_check.c) ---- */
struct vgpu_check {
    uint64_t first, bytes; /* where the last access lay: a block, or host memory that the device may touch */
    bool exact;            /* blocks end where the program asked */
};
int vgpu_check_touch(void *check, const struct ptx_touch *touch);

/* ---- threads that run blocks (vgpu_run_pool.c) ---- */
struct vgpu_worker {
    struct vgpu_buffer {
        unsigned char *map, *base; /* mapping with its guards; the usable part, whose end lies at a guard */
        size_t map_bytes, room;
    } shared, local;
    struct vgpu_fibers *fibers;
    sigjmp_buf escape;
    volatile sig_atomic_t armed; /* a fault goes to `escape` */
    const struct vgpu_launch *launch;
    struct vgpu_frame frame;
    int fault_signal; /* set by the handler */
    void *fault_address;
    bool fault_unknown; /* the address was not told */
};
/* The worker's frame, but for which block it is. 0, or -1: no memory. */
int vgpu_frame_fill(struct vgpu_worker *worker, const struct vgpu_launch *launch); /* vgpu_run_execute.c */
typedef void vgpu_blocks_fn(struct vgpu_worker *worker, const void *context, uint64_t first, uint64_t count);
/* Calls run over all of [0, blocks) in pieces, on this thread and, if `spread`, on others. Returns when all is done. */
void vgpu_pool_run(vgpu_blocks_fn *run, const void *context, uint64_t blocks, bool spread);
void vgpu_pool_end(void); /* the calling thread, a stream's, ends */
/* A buffer of at least `bytes` whose end is a guard page. NULL: no memory. */
void vgpu_buffer_free(struct vgpu_buffer *buffer);
unsigned char *vgpu_buffer_get(struct vgpu_buffer *buffer, size_t bytes);

/* ---- blocks in warp mode (vgpu_run_block.c, vgpu_run_fiber.c) ---- */
/* All warps of the block that worker->frame describes. 0, or -1: a barrier that not all warps reach; or no memory. */
int vgpu_block_warps(struct vgpu_worker *worker, vgpu_warp_fn *warp);
/* A block that takes turns with others, with fibers of its own, to be freed. Then its turns: 1: it waits for what
 * another block writes; 0: it has ended; -1: as above. */
int vgpu_block_begin(struct vgpu_worker *worker, vgpu_warp_fn *warp);
int vgpu_block_turn(struct vgpu_worker *worker);
void vgpu_fibers_leave(struct vgpu_fibers *fibers); /* before an escape */
void vgpu_fibers_drop(struct vgpu_fibers *fibers);  /* after an escape */
void vgpu_fibers_free(struct vgpu_fibers *fibers);
bool vgpu_fibers_guard(const struct vgpu_fibers *fibers, const void *address); /* in a guard page of their stacks */
extern const struct vgpu_host vgpu_host_calls;

/* ---- faults (vgpu_run_fault.c) ---- */
void vgpu_fault_prepare(void);                      /* by a thread that is to run kernels, before each launch */
void vgpu_fault_worker(struct vgpu_worker *worker); /* whose faults are this thread's; NULL: nobody's */
void vgpu_fault_end(void);                          /* a stream's thread ends */
/* Sets the error with which everything is refused from now on, and says the line; only the first counts. */
void vgpu_fail(cudaError_t error, const char *format, ...) __attribute__((format(printf, 2, 3)));
_Noreturn void vgpu_escape(struct vgpu_worker *worker); /* ends the worker's blocks */
/* What happened, said: by the signal's handler, the interpreter, __assertfail, trap. */
void vgpu_fault_signalled(struct vgpu_worker *worker);
void vgpu_fault_interpreted(const struct vgpu_launch *launch, const struct ptx_fault *fault);
void vgpu_assert_failed(const struct vgpu_frame *frame, uint32_t thread, const char *message, const char *file,
                        uint32_t line, const char *function);
void vgpu_trapped(const struct vgpu_frame *frame, uint32_t thread);
void vgpu_say_plain(const char *format, ...) __attribute__((format(printf, 1, 2))); /* a line without our prefix */

/* ---- printf of kernels (vgpu_run_print.c) ---- */
int vgpu_print(const char *format, const void *arguments); /* what vprintf returns */
void vgpu_print_flush(void);                               /* at points of synchronisation, no lock held */

#endif
