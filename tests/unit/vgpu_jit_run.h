/* Runs a kernel for tests of the compiler, on the calling thread: compiled code with fibers of its own (ucontext), and
 * the interpreter, over the same arguments. */
#ifndef VGPU_JIT_RUN_H
#define VGPU_JIT_RUN_H

#include "ptx/ptx_interp.h"
#include "vgpu/vgpu_kernel.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

enum { RUN_STACK = 256 << 10, RUN_WARPS = 32 };

struct run_launch {
    uint32_t grid[3], block[3], dynamic_shared;
    const void *params;
    void *const *symbols;
};

struct run_state {
    ucontext_t main, warp[RUN_WARPS];
    char *stack[RUN_WARPS];
    bool done[RUN_WARPS], waits[RUN_WARPS];
    uint32_t votes[16], result[16], arrived[16]; /* of bar.red, of bar.arrive; by barrier */
    uint32_t current, id[RUN_WARPS], wanted[RUN_WARPS], lanes[RUN_WARPS];
    vgpu_warp_fn *fn;
    struct vgpu_frame *frame;
    jmp_buf out; /* trap, assert */
    char text[4096];
    size_t used;
};
static struct run_state run_s;

static void run_barrier(struct vgpu_frame *f, uint32_t warp, uint32_t id, uint32_t threads, uint32_t mask) {
    (void)f;
    run_s.waits[warp] = true;
    run_s.id[warp] = id;
    run_s.wanted[warp] = threads;
    run_s.lanes[warp] = (uint32_t)__builtin_popcount(mask);
    swapcontext(&run_s.warp[warp], &run_s.main);
}

static void run_arrive(struct vgpu_frame *f, uint32_t warp, uint32_t id, uint32_t threads, uint32_t mask) {
    (void)f, (void)warp, (void)threads;
    run_s.arrived[id] += (uint32_t)__builtin_popcount(mask);
}

static void run_yield(struct vgpu_frame *f, uint32_t warp) {
    (void)f;
    swapcontext(&run_s.warp[warp], &run_s.main);
}

static uint32_t run_barrier_count(struct vgpu_frame *f, uint32_t warp, uint32_t id, uint32_t threads, uint32_t mask,
                                  uint32_t predicate) {
    run_s.votes[id] += (uint32_t)__builtin_popcount(predicate);
    run_barrier(f, warp, id, threads, mask);
    return run_s.result[id];
}

static int32_t (*run_print_hook)(struct vgpu_frame *f, uint64_t format, uint64_t arguments); /* NULL: %d's are kept */
static int32_t run_print(struct vgpu_frame *f, uint64_t format, uint64_t arguments) {
    if (run_print_hook) return run_print_hook(f, format, arguments);
    int32_t v;
    memcpy(&v, (void *)(uintptr_t)arguments, sizeof v);
    if (*(const char *)(uintptr_t)format)
        run_s.used += (size_t)snprintf(run_s.text + run_s.used, sizeof run_s.text - run_s.used, "%d ", v);
    return 1;
}

static void run_trap(struct vgpu_frame *f, uint32_t thread) {
    (void)f;
    snprintf(run_s.text, sizeof run_s.text, "trap by thread %u", thread);
    longjmp(run_s.out, 1);
}

static void run_fail(struct vgpu_frame *f, uint32_t thread, uint64_t message, uint64_t file, uint32_t line,
                     uint64_t function, uint64_t char_bytes) {
    (void)f, (void)file, (void)function, (void)char_bytes;
    snprintf(run_s.text, sizeof run_s.text, "thread %u line %u: %s", thread, line, (const char *)(uintptr_t)message);
    longjmp(run_s.out, 1);
}

static uint64_t run_allocate(struct vgpu_frame *f, uint64_t bytes) {
    (void)f;
    return (uint64_t)(uintptr_t)malloc(bytes);
}
static void run_release(struct vgpu_frame *f, uint64_t address) {
    (void)f;
    free((void *)(uintptr_t)address);
}
static uint64_t run_clock(struct vgpu_frame *f) {
    (void)f;
    return 1;
}
static const struct vgpu_host run_host = {.barrier = run_barrier,
                                          .barrier_count = run_barrier_count,
                                          .print = run_print,
                                          .fail = run_fail,
                                          .trap = run_trap,
                                          .allocate = run_allocate,
                                          .release = run_release,
                                          .clock = run_clock,
                                          .arrive = run_arrive,
                                          .yield = run_yield};

static void run_entry(void) {
    uint32_t w = run_s.current;
    run_s.fn(run_s.frame, w);
    run_s.done[w] = true;
    swapcontext(&run_s.warp[w], &run_s.main);
}

/* If as many threads wait as the barrier wants; 0: all warps that are not done. */
static bool run_release_barrier(const struct vgpu_frame *frame, uint32_t id) {
    uint32_t lanes = run_s.arrived[id], wanted = 0, waiting = 0, live = 0;
    for (uint32_t w = 0; w < frame->warps; w++) {
        live += !run_s.done[w];
        if (run_s.done[w] || !run_s.waits[w] || run_s.id[w] != id) continue;
        waiting++;
        lanes += run_s.lanes[w];
        wanted = run_s.wanted[w];
    }
    if (!waiting || (wanted ? lanes < wanted : waiting < live)) return false;
    for (uint32_t w = 0; w < frame->warps; w++)
        if (run_s.waits[w] && run_s.id[w] == id) run_s.waits[w] = false;
    run_s.result[id] = run_s.votes[id];
    run_s.votes[id] = 0;
    run_s.arrived[id] = 0;
    return true;
}

/* Apart: getcontext may return twice, as setjmp. */
static __attribute__((noinline)) void run_make(uint32_t w) {
    getcontext(&run_s.warp[w]);
    run_s.warp[w].uc_stack.ss_sp = run_s.stack[w];
    run_s.warp[w].uc_stack.ss_size = RUN_STACK;
    run_s.warp[w].uc_link = NULL;
    makecontext(&run_s.warp[w], run_entry, 0);
}

static __attribute__((noinline)) void run_warps(struct vgpu_frame *frame, vgpu_warp_fn *fn) {
    run_s.fn = fn, run_s.frame = frame;
    for (uint32_t w = 0; w < frame->warps; w++) {
        run_s.done[w] = run_s.waits[w] = false;
        if (!run_s.stack[w]) run_s.stack[w] = malloc(RUN_STACK);
        run_make(w);
    }
    memset(run_s.votes, 0, sizeof run_s.votes);
    memset(run_s.arrived, 0, sizeof run_s.arrived);
    for (bool left = true, moved = true; left && moved;) {
        left = moved = false;
        for (uint32_t w = 0; w < frame->warps; w++) {
            if (run_s.done[w]) continue;
            if (!run_s.waits[w]) {
                run_s.current = w;
                swapcontext(&run_s.main, &run_s.warp[w]);
                moved = true;
            }
            left |= !run_s.done[w];
        }
        for (uint32_t id = 0; id < 16; id++) moved |= run_release_barrier(frame, id);
        if (left && !moved) snprintf(run_s.text, sizeof run_s.text, "deadlock");
    }
}

/* 0, or -1: a trap or a failed assertion (run_s.text). */
static int run_compiled(const struct ptx_function *f, const struct vgpu_code *code, const struct run_launch *l) {
    struct vgpu_frame frame = {.params = l->params, .symbols = l->symbols, .host = &run_host};
    memcpy(frame.grid, l->grid, sizeof frame.grid);
    memcpy(frame.block, l->block, sizeof frame.block);
    frame.threads = l->block[0] * l->block[1] * l->block[2];
    frame.warps = (frame.threads + VGPU_WARP - 1) / VGPU_WARP;
    frame.dynamic_shared = l->dynamic_shared;
    frame.shared_bytes = f->shared_bytes + l->dynamic_shared;
    frame.local_stride = (code->local_bytes + 63) & ~63u;
    frame.shared = aligned_alloc(128, (frame.shared_bytes + 255) & ~127u);
    frame.local = aligned_alloc(128, (frame.local_stride * frame.threads + 255) & ~UINT64_C(127));
    run_s.used = 0;
    run_s.text[0] = 0;
    int rc = setjmp(run_s.out) ? -1 : 0;
    for (uint32_t b = 0; !rc && b < l->grid[0] * l->grid[1] * l->grid[2]; b++) {
        frame.ctaid[0] = b % l->grid[0];
        frame.ctaid[1] = b / l->grid[0] % l->grid[1];
        frame.ctaid[2] = b / l->grid[0] / l->grid[1];
        memset(frame.shared, 0, frame.shared_bytes);
        if (code->block)
            code->block(&frame);
        else
            run_warps(&frame, code->warp);
    }
    free(frame.shared);
    free(frame.local);
    return rc;
}

static inline int run_interpreted(const struct ptx_module *m, const struct ptx_function *f, const struct run_launch *l,
                                  struct ptx_fault *fault) {
    struct ptx_run run = {
        .module = m, .entry = f, .dynamic_shared = l->dynamic_shared, .params = l->params, .symbols = l->symbols};
    memcpy(run.grid, l->grid, sizeof run.grid);
    memcpy(run.block, l->block, sizeof run.block);
    return ptx_interpret(&run, fault);
}

#endif
