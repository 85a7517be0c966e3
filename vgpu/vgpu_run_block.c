/* A block in warp mode: its warps are fibers of one thread, which change at barriers only. A fiber whose warp has ended
 * waits for the next block's. Blocks of a cooperative launch take turns: each has fibers of its own. */
#include "vgpu/vgpu_run.h"
#include "vgpu/vgpu_run_fiber.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Sanitizers want to be told of stacks that change. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

enum { MAX_WARPS = 32, BARRIERS = 16, STACK_BYTES = 512 << 10 };
enum { STACK_GUARD = 64 << 10 }; /* at its low end: more than a frame of compiled code */

struct barrier {
    uint32_t waiting; /* warps */
    uint32_t wanted;  /* threads, a multiple of a warp; 0: all warps that have not ended */
    uint32_t arrived; /* threads: a warp counts as a whole */
    uint32_t count;   /* of true predicates */
};

struct vgpu_fibers {
    struct fiber {
        struct vgpu_fibers *all;
        void *sp;
        uint32_t warp;
        bool made;
        void *told;             /* the sanitizer's */
    } fiber[MAX_WARPS], thread; /* thread: what the host thread itself was doing */
    unsigned char *stacks;
    size_t stack_bytes;       /* of all */
    bool among_blocks;        /* one of several blocks that take turns (vgpu_run_grid.c) */
    const void *thread_stack; /* the host thread's, where a sanitizer wants it */
    size_t thread_stack_bytes;
    bool from_thread;
    struct vgpu_frame *frame;
    vgpu_warp_fn *run;
    uint32_t live, runnable; /* warps */
    struct barrier barrier[BARRIERS];
    uint32_t counted[MAX_WARPS]; /* what bar.red gave each warp */
};

static void tell_switch(struct vgpu_fibers *f, struct fiber *to, void **fake) {
#if defined(__SANITIZE_ADDRESS__)
    bool thread = to == &f->thread;
    const unsigned char *stack = f->stacks + (size_t)to->warp * STACK_BYTES + STACK_GUARD;
    __sanitizer_start_switch_fiber(fake, thread ? f->thread_stack : stack,
                                   thread ? f->thread_stack_bytes : STACK_BYTES - STACK_GUARD);
#endif
#if defined(__SANITIZE_THREAD__)
    __tsan_switch_to_fiber(to->told, 0);
#endif
    (void)f, (void)to, (void)fake;
}

static void tell_arrival(struct vgpu_fibers *f, void *fake) {
#if defined(__SANITIZE_ADDRESS__)
    const void *stack;
    size_t bytes;
    __sanitizer_finish_switch_fiber(fake, &stack, &bytes);
    if (f->from_thread) f->thread_stack = stack, f->thread_stack_bytes = bytes;
    f->from_thread = false;
#endif
    (void)f, (void)fake;
}

static void change(struct vgpu_fibers *f, struct fiber *from, struct fiber *to) {
    void *fake = NULL;
    tell_switch(f, to, &fake);
    vgpu_fiber_switch(&from->sp, to->sp);
    tell_arrival(f, fake);
}

/* Goes on with the next warp that can run, round robin; with the thread itself if there is none. */
static void go_on(struct vgpu_fibers *f, struct fiber *own) {
    uint32_t after = own->warp + 1 < MAX_WARPS ? f->runnable & ~0u << (own->warp + 1) : 0;
    uint32_t pick = after ? after : f->runnable;
    struct fiber *next = pick ? &f->fiber[__builtin_ctz(pick)] : &f->thread;
    if (next != own) change(f, own, next);
}

/* A barrier has opened: the first warp goes on first, not the one that came last. On a device all go on together, so
 * that programs get away with a first warp that reads, with no further barrier, what the others overwrite behind a
 * loop. */
static void begin_anew(struct vgpu_fibers *f, struct fiber *own) {
    struct fiber *first = &f->fiber[__builtin_ctz(f->runnable)];
    if (first != own) change(f, own, first);
}

static bool complete(const struct vgpu_fibers *f, const struct barrier *b) {
    return b->wanted ? b->arrived >= b->wanted : b->waiting && b->waiting == f->live;
}

static void release(struct vgpu_fibers *f, struct barrier *b) {
    for (uint32_t w = b->waiting; w; w &= w - 1) f->counted[__builtin_ctz(w)] = b->count;
    f->runnable |= b->waiting;
    memset(b, 0, sizeof *b);
}

/* Threads that have ended are not waited for. */
static void end_warp(struct vgpu_fibers *f, uint32_t warp) {
    f->live &= ~(1u << warp);
    f->runnable &= ~(1u << warp);
    for (int i = 0; i < BARRIERS; i++)
        if (!f->barrier[i].wanted && complete(f, &f->barrier[i])) release(f, &f->barrier[i]);
}

static void fiber_main(void *context) {
    struct fiber *own = context;
    tell_arrival(own->all, NULL);
    for (;;) {
        own->all->run(own->all->frame, own->warp);
        end_warp(own->all, own->warp);
        go_on(own->all, own);
    }
}

static uint32_t wait_at(struct vgpu_frame *frame, uint32_t warp, uint32_t id, uint32_t threads, uint32_t count) {
    struct vgpu_worker *w = frame->runtime;
    struct vgpu_fibers *f = w->fibers;
    struct barrier *b = &f->barrier[id % BARRIERS];
    uint32_t bit = 1u << warp;
    if (!b->arrived) b->wanted = (threads + VGPU_WARP - 1) / VGPU_WARP * VGPU_WARP;
    b->waiting |= bit;
    b->arrived += VGPU_WARP;
    b->count += count;
    f->runnable &= ~bit;
    if (complete(f, b)) {
        release(f, b);
        begin_anew(f, &f->fiber[warp]);
    }
    if (!(f->runnable & bit)) go_on(f, &f->fiber[warp]);
    return f->counted[warp];
}

/* Counted, not waiting: the barrier opens for those who wait when enough have come. */
static void arrive(struct vgpu_frame *frame, uint32_t warp, uint32_t id, uint32_t threads, uint32_t mask) {
    struct vgpu_worker *w = frame->runtime;
    struct barrier *b = &w->fibers->barrier[id % BARRIERS];
    (void)warp, (void)mask;
    if (!b->arrived) b->wanted = (threads + VGPU_WARP - 1) / VGPU_WARP * VGPU_WARP;
    b->arrived += VGPU_WARP;
    if (complete(w->fibers, b)) release(w->fibers, b);
}

static void barrier(struct vgpu_frame *frame, uint32_t warp, uint32_t id, uint32_t threads, uint32_t mask) {
    (void)mask;
    wait_at(frame, warp, id, threads, 0);
}

/* The warp can go on; others may run first: of its block, and after the last of them, of other blocks. */
static void yield(struct vgpu_frame *frame, uint32_t warp) {
    struct vgpu_worker *w = frame->runtime;
    struct vgpu_fibers *f = w->fibers;
    bool last = warp + 1 == MAX_WARPS || !(f->runnable & ~0u << (warp + 1));
    if (f->among_blocks && last)
        change(f, &f->fiber[warp], &f->thread);
    else
        go_on(f, &f->fiber[warp]);
}

static uint32_t barrier_count(struct vgpu_frame *frame, uint32_t warp, uint32_t id, uint32_t threads, uint32_t mask,
                              uint32_t predicate) {
    return wait_at(frame, warp, id, threads, (uint32_t)__builtin_popcount(mask & predicate));
}

static struct vgpu_fibers *make_fibers(uint32_t warps) {
    struct vgpu_fibers *f = calloc(1, sizeof *f);
    if (!f) return NULL;
    f->stack_bytes = (size_t)STACK_BYTES * warps;
    f->stacks = mmap(NULL, f->stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (f->stacks == MAP_FAILED) {
        free(f);
        return NULL;
    }
    madvise(f->stacks, f->stack_bytes, MADV_DONTFORK);
    for (uint32_t i = 0; i < warps; i++) {
        mprotect(f->stacks + (size_t)i * STACK_BYTES, STACK_GUARD, PROT_NONE);
        f->fiber[i] = (struct fiber){.all = f, .warp = i};
#if defined(__SANITIZE_THREAD__)
        f->fiber[i].told = __tsan_create_fiber(0);
#endif
    }
    return f;
}

void vgpu_fibers_free(struct vgpu_fibers *f) {
    if (!f) return;
#if defined(__SANITIZE_THREAD__)
    for (uint32_t i = 0; i < f->stack_bytes / STACK_BYTES; i++) __tsan_destroy_fiber(f->fiber[i].told);
#endif
    munmap(f->stacks, f->stack_bytes);
    free(f);
}

bool vgpu_fibers_guard(const struct vgpu_fibers *f, const void *address) {
    size_t at = f ? (size_t)((uintptr_t)address - (uintptr_t)f->stacks) : SIZE_MAX;
    return f && at < f->stack_bytes && at % STACK_BYTES < STACK_GUARD;
}

static void begin_block(struct vgpu_fibers *f, struct vgpu_frame *frame, vgpu_warp_fn *run) {
#if defined(__SANITIZE_THREAD__)
    f->thread.told = __tsan_get_current_fiber();
#endif
    f->frame = frame;
    f->run = run;
    f->live = f->runnable = frame->warps >= MAX_WARPS ? ~0u : (1u << frame->warps) - 1;
    for (uint32_t i = 0; i < frame->warps && i < MAX_WARPS; i++) {
        if (f->fiber[i].made) continue;
        f->fiber[i].sp = vgpu_fiber_make(f->stacks + (size_t)i * STACK_BYTES, STACK_BYTES, fiber_main, &f->fiber[i]);
        f->fiber[i].made = true;
    }
}

/* Before a jump to the host thread's own stack, and after it: each sanitizer wants its own moment. */
void vgpu_fibers_leave(struct vgpu_fibers *f) {
#if defined(__SANITIZE_THREAD__)
    if (f && f->live) __tsan_switch_to_fiber(f->thread.told, 0);
#endif
    (void)f;
}

static void tell_left(const struct vgpu_fibers *f) {
#if defined(__SANITIZE_ADDRESS__)
    const void *stack;
    size_t bytes;
    __sanitizer_start_switch_fiber(NULL, f->thread_stack, f->thread_stack_bytes);
    __sanitizer_finish_switch_fiber(NULL, &stack, &bytes);
    __asan_unpoison_memory_region(f->stacks, f->stack_bytes);
#endif
    (void)f;
}

/* Fibers that were left in the middle of a block begin anew. */
void vgpu_fibers_drop(struct vgpu_fibers *f) {
    if (!f) return;
    if (f->live) tell_left(f);
    f->live = 0;
    for (int i = 0; i < MAX_WARPS; i++) f->fiber[i].made = false;
    memset(f->barrier, 0, sizeof f->barrier);
}

static int stuck(const struct vgpu_worker *w, struct vgpu_fibers *f) {
    vgpu_fail(cudaErrorLaunchFailure,
              "kernel %s, block [%u,%u,%u]: warp %d waits at a barrier that the others have not reached",
              w->launch->kernel->name, w->frame.ctaid[0], w->frame.ctaid[1], w->frame.ctaid[2], __builtin_ctz(f->live));
    f->live = 0;
    vgpu_fibers_drop(f);
    return -1;
}

int vgpu_block_begin(struct vgpu_worker *w, vgpu_warp_fn *warp) {
    w->fibers = make_fibers(w->frame.warps);
    if (!w->fibers) {
        vgpu_fail(cudaErrorMemoryAllocation, "no memory for the stacks of a block");
        return -1;
    }
    w->fibers->among_blocks = true;
    begin_block(w->fibers, &w->frame, warp);
    return 0;
}

int vgpu_block_turn(struct vgpu_worker *w) {
    struct vgpu_fibers *f = w->fibers;
    f->from_thread = true;
    if (f->runnable) change(f, &f->thread, &f->fiber[__builtin_ctz(f->runnable)]);
    if (!f->live) return 0;
    return f->runnable ? 1 : stuck(w, f);
}

int vgpu_block_warps(struct vgpu_worker *w, vgpu_warp_fn *warp) {
    if (!w->fibers) w->fibers = make_fibers(MAX_WARPS);
    struct vgpu_fibers *f = w->fibers;
    if (!f) {
        vgpu_fail(cudaErrorMemoryAllocation, "no memory for the stacks of a block");
        return -1;
    }
    begin_block(f, &w->frame, warp);
    f->from_thread = true;
    change(f, &f->thread, &f->fiber[0]);
    return f->live ? stuck(w, f) : 0;
}

/* ---- what compiled code calls ---- */

static int32_t print(struct vgpu_frame *frame, uint64_t format, uint64_t arguments) {
    (void)frame;
    return vgpu_print((const char *)(uintptr_t)format, (const void *)(uintptr_t)arguments);
}

static void fail(struct vgpu_frame *frame, uint32_t thread, uint64_t message, uint64_t file, uint32_t line,
                 uint64_t function, uint64_t char_bytes) {
    (void)char_bytes;
    vgpu_assert_failed(frame, thread, (const char *)(uintptr_t)message, (const char *)(uintptr_t)file, line,
                       (const char *)(uintptr_t)function);
    vgpu_escape(frame->runtime);
}

static void trap(struct vgpu_frame *frame, uint32_t thread) {
    vgpu_trapped(frame, thread);
    vgpu_escape(frame->runtime);
}

static uint64_t allocate(struct vgpu_frame *frame, uint64_t bytes) {
    (void)frame;
    return (uint64_t)(uintptr_t)vgpu_device_take(bytes);
}

static void release_memory(struct vgpu_frame *frame, uint64_t address) {
    (void)frame;
    vgpu_device_release((void *)(uintptr_t)address);
}

static uint64_t clock_ns(struct vgpu_frame *frame) {
    (void)frame;
    return (uint64_t)vgpu_now();
}

const struct vgpu_host vgpu_host_calls = {.barrier = barrier,
                                          .barrier_count = barrier_count,
                                          .print = print,
                                          .fail = fail,
                                          .trap = trap,
                                          .allocate = allocate,
                                          .release = release_memory,
                                          .clock = clock_ns,
                                          .arrive = arrive,
                                          .yield = yield};
