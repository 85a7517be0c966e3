/* A launch on a stream's thread: compiled code or the interpreter over all blocks. */
#undef _FORTIFY_SOURCE /* see vgpu_run_fault.c */
#include "vgpu/vgpu_run.h"

#include <acct/env.h>
#include <stdlib.h>
#include <string.h>

/* Below so many instructions a launch is done before another thread would have woken up. */
static const uint64_t WORTH_SPREADING = 200000;

static enum vgpu_way way = VGPU_COMPILED;

static void read_environment(void) {
    uint64_t check;
    const char *how = acct_env_text(ENV_ACCT_VGPU_EXECUTE);
    if (!strcmp(how, "interpret"))
        way = VGPU_INTERPRETED;
    else if (strcmp(how, "jit"))
        vgpu_say("ACCT_VGPU_EXECUTE=%s is neither jit nor interpret: ignored", how);
    if (acct_env_number(ENV_ACCT_VGPU_CHECK, &check)) vgpu_say("ACCT_VGPU_CHECK is neither off nor on: ignored");
    if (check) way = VGPU_CHECKED;
}

enum vgpu_way vgpu_execute_way(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_environment);
    return way;
}

static uint64_t blocks_of(const struct vgpu_launch *l) {
    return (uint64_t)l->grid[0] * l->grid[1] * l->grid[2];
}

static uint32_t threads_of(const struct vgpu_launch *l) {
    return l->block[0] * l->block[1] * l->block[2];
}

/* ---- the interpreter ---- */

static int print(void *context, const char *format, const void *arguments) {
    (void)context;
    return vgpu_print(format, arguments);
}

static uint64_t allocate(void *context, uint64_t bytes) {
    (void)context;
    return vgpu_host_calls.allocate(NULL, bytes);
}

static void release(void *context, uint64_t address) {
    (void)context;
    vgpu_host_calls.release(NULL, address);
}

static void interpret(struct vgpu_worker *w, const struct vgpu_launch *l, uint64_t first, uint64_t count) {
    struct vgpu_check check = {0};
    struct ptx_fault fault = {0};
    struct ptx_run run = {.module = vgpu_kernel_module(l->kernel),
                          .entry = l->kernel->f,
                          .dynamic_shared = l->dynamic_shared,
                          .params = l->params,
                          .symbols = l->symbols,
                          .first_block = (uint32_t)first,
                          .blocks = (uint32_t)count,
                          .touch = l->way == VGPU_CHECKED ? vgpu_check_touch : NULL,
                          .print = print,
                          .allocate = allocate,
                          .release = release,
                          .context = &check};
    memcpy(run.grid, l->grid, sizeof run.grid);
    memcpy(run.block, l->block, sizeof run.block);
    check.exact = vgpu_execute_way() == VGPU_CHECKED;
    if (first + count > UINT32_MAX) {
        vgpu_fail(cudaErrorNotSupported, "kernel %s: a grid of over 4294967295 blocks cannot be interpreted",
                  l->kernel->name);
        return;
    }
    if (ptx_interpret(&run, &fault)) vgpu_fault_interpreted(l, &fault);
    (void)w;
}

/* ---- compiled code ---- */

int vgpu_frame_fill(struct vgpu_worker *w, const struct vgpu_launch *l) {
    struct vgpu_frame *f = &w->frame;
    const struct vgpu_code *code = &l->kernel->code;
    uint64_t stride = ((uint64_t)code->local_bytes + 15) / 16 * 16;
    uint32_t threads = threads_of(l), shared = (l->kernel->f->shared_bytes + 15) / 16 * 16;
    *f = (struct vgpu_frame){.params = l->params,
                             .local_stride = stride,
                             .symbols = l->symbols,
                             .host = &vgpu_host_calls,
                             .shared_bytes = shared + l->dynamic_shared,
                             .dynamic_shared = l->dynamic_shared,
                             .threads = threads,
                             .warps = (threads + VGPU_WARP - 1) / VGPU_WARP,
                             .runtime = w};
    memcpy(f->grid, l->grid, sizeof f->grid);
    memcpy(f->block, l->block, sizeof f->block);
    f->shared = vgpu_buffer_get(&w->shared, f->shared_bytes);
    f->local = vgpu_buffer_get(&w->local, stride * threads);
    return f->shared && f->local ? 0 : -1;
}

static void run_compiled(struct vgpu_worker *w, const struct vgpu_launch *l, uint64_t first, uint64_t count) {
    const struct vgpu_code *code = &l->kernel->code;
    struct vgpu_frame *f = &w->frame;
    for (uint64_t i = first; i < first + count; i++) {
        if (atomic_load_explicit(&vgpu_refused, memory_order_relaxed)) return;
        f->ctaid[0] = (uint32_t)(i % l->grid[0]);
        f->ctaid[1] = (uint32_t)(i / l->grid[0] % l->grid[1]);
        f->ctaid[2] = (uint32_t)(i / l->grid[0] / l->grid[1]);
        if (code->block)
            code->block(f);
        else if (vgpu_block_warps(w, code->warp))
            return;
    }
}

/* ---- both ---- */

/* The interpreter's atomics are a read and a write: one launch that has some at a time, over all streams. */
static pthread_mutex_t atomics = PTHREAD_MUTEX_INITIALIZER;

static void run_blocks(struct vgpu_worker *w, const void *context, uint64_t first, uint64_t count) {
    const struct vgpu_launch *l = context;
    if (vgpu_refused) return;
    cudaSetDevice(l->device); /* this thread may have run blocks of another one */
    bool alone = l->way != VGPU_COMPILED && (l->kernel->f->properties & PTX_P_ATOMIC);
    w->launch = l;
    w->fault_signal = 0;
    if (l->way == VGPU_COMPILED && vgpu_frame_fill(w, l)) {
        vgpu_fail(cudaErrorMemoryAllocation, "kernel %s: no memory for local and shared memory", l->kernel->name);
        return;
    }
    if (alone) pthread_mutex_lock(&atomics);
    if (!sigsetjmp(w->escape, 0)) {
        w->armed = 1;
        if (l->way == VGPU_COMPILED)
            run_compiled(w, l, first, count);
        else
            interpret(w, l, first, count);
    } else {
        if (w->fault_signal) vgpu_fault_signalled(w);
        vgpu_fibers_drop(w->fibers);
    }
    w->armed = 0;
    if (alone) pthread_mutex_unlock(&atomics);
}

void vgpu_execute(void *args) {
    const struct vgpu_launch *l = args;
    uint64_t blocks = blocks_of(l);
    if (l->cooperative && l->way == VGPU_COMPILED && l->kernel->code.warp) {
        vgpu_execute_grid(l);
        return;
    }
    double work = (double)blocks * threads_of(l) * (double)l->kernel->work * (l->way == VGPU_COMPILED ? 1 : 20);
    vgpu_pool_run(run_blocks, l, blocks, !l->kernel->serial && work > (double)WORTH_SPREADING);
}
