/* Cooperative launches: blocks that may wait for each other. All of them are under way on one thread and take turns: a
 * block's turn ends when each of its warps has ended, waits at a barrier, or goes round a loop that only another can
 * end. The place where they meet (cooperative groups' grid.sync counts there) lies at an address that is the same in
 * every process, as PTX reads it from two special registers; so one such launch runs at a time. */
#undef _FORTIFY_SOURCE /* see vgpu_run_fault.c */
#include "vgpu/vgpu_run.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { MEETING_BYTES = 4096 };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* one grid at a time */
static void *meeting;                                    /* NULL: it cannot be had */

static void take_place(void) {
    void *wanted = (void *)(uintptr_t)PTX_GRID_WORKSPACE;
    void *p =
        mmap(wanted, MEETING_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (p == wanted)
        meeting = p;
    else if (p != MAP_FAILED)
        munmap(p, MEETING_BYTES);
}

bool vgpu_grid_can(void) {
    pthread_once(&once, take_place);
    return meeting != NULL;
}

/* One turn; as vgpu_block_turn, -1 also after a fault. */
static int turn(struct vgpu_worker *w) {
    int state = -1;
    vgpu_fault_worker(w);
    if (!sigsetjmp(w->escape, 0)) {
        w->armed = 1;
        state = vgpu_block_turn(w);
    } else {
        if (w->fault_signal) vgpu_fault_signalled(w);
        vgpu_fibers_drop(w->fibers);
    }
    w->armed = 0;
    return state;
}

static int begin(struct vgpu_worker *w, const struct vgpu_launch *l, uint64_t i) {
    w->launch = l;
    if (vgpu_frame_fill(w, l)) {
        vgpu_fail(cudaErrorMemoryAllocation, "kernel %s: no memory for local and shared memory", l->kernel->name);
        return -1;
    }
    w->frame.ctaid[0] = (uint32_t)(i % l->grid[0]);
    w->frame.ctaid[1] = (uint32_t)(i / l->grid[0] % l->grid[1]);
    w->frame.ctaid[2] = (uint32_t)(i / l->grid[0] / l->grid[1]);
    return vgpu_block_begin(w, l->kernel->code.warp);
}

static void take_turns(struct vgpu_worker *blocks, uint64_t count) {
    uint64_t left = count;
    while (left && !atomic_load_explicit(&vgpu_refused, memory_order_relaxed))
        for (uint64_t i = 0; i < count; i++) {
            struct vgpu_worker *w = &blocks[i];
            if (!w->fibers) continue; /* it has ended */
            int state = turn(w);
            if (state < 0) return;
            if (state) continue;
            vgpu_fibers_free(w->fibers);
            w->fibers = NULL;
            left--;
        }
}

static void run(struct vgpu_worker *own, const void *context, uint64_t first, uint64_t count) {
    const struct vgpu_launch *l = context;
    struct vgpu_worker *blocks = calloc(count, sizeof *blocks);
    uint64_t begun = 0;
    (void)first;
    if (!blocks) {
        vgpu_fail(cudaErrorMemoryAllocation, "kernel %s: no memory for its blocks", l->kernel->name);
        return;
    }
    pthread_mutex_lock(&lock);
    memset(meeting, 0, MEETING_BYTES);
    cudaSetDevice(l->device);
    while (begun < count && !vgpu_refused && !begin(&blocks[begun], l, begun)) begun++;
    if (begun == count) take_turns(blocks, count);
    vgpu_fault_worker(own);
    pthread_mutex_unlock(&lock);
    for (uint64_t i = 0; i < count; i++) {
        vgpu_fibers_free(blocks[i].fibers);
        vgpu_buffer_free(&blocks[i].shared);
        vgpu_buffer_free(&blocks[i].local);
    }
    free(blocks);
}

void vgpu_execute_grid(const struct vgpu_launch *l) {
    if (!vgpu_grid_can()) return; /* no such launch was taken */
    vgpu_pool_run(run, l, (uint64_t)l->grid[0] * l->grid[1] * l->grid[2], false);
}
