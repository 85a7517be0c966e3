/* One captured call, as every wrapper has it:
 *
 *     struct hook_call k;
 *     if (!hook_enter(&k, API_x)) return real(…);     nothing is recorded: pass through
 *     hook_mark(&k);                                  calls that start work on the device
 *     hook_before_memory(&k);                         calls that take memory of the device
 *     hook_ask_memory(&k, why);                       calls that take or release some, and may wait for the device
 *     r = real(…);
 *     if (hook_leave(&k, r)) fill_y(&k, …);           the records, after the real call
 *     hook_done(&k);
 *
 * All of it runs in the program's thread: no locks shared with the program, no allocation, errno as the real call left
 * it. Calls made inside another (cuBLAS calling the runtime, a signal handler in between) are not recorded. */
#ifndef ACCT_PRELOAD_HOOK_H
#define ACCT_PRELOAD_HOOK_H

#include <errno.h>
#include <time.h>
#include "cupti/cupti.h"
#include "preload/life.h"
#include "trace/ring.h"

/* What a call returns that found no memory: cudaErrorMemoryAllocation, CUBLAS_STATUS_ALLOC_FAILED. */
enum { HOOK_NO_MEMORY = 2, HOOK_BLAS_NO_MEMORY = 3 };

/* A thread of the program. Zero until its first recorded call. */
struct hook_thread {
    uint32_t generation; /* of the trace that `ring` belongs to; 0: none */
    uint32_t depth;      /* calls that are under way */
    int ring;            /* number of the claimed ring, -1: none was free */
    uint64_t external;   /* last external id given out: number of the thread << 40 | count; 0: none yet */
    struct ring_writer writer;
};

/* On the wrapper's stack. */
struct hook_call {
    struct hook_thread *thread;
    uint32_t api;
    uint32_t generation;
    int32_t status; /* of the real call */
    int32_t device; /* ordinal, ACCT_NULL_I32 not known */
    int saved_errno;
    uint64_t start_ns, end_ns;
    uint64_t external; /* by which CUPTI ties device work to this call; 0: it is not asked to */
    uint64_t pool;     /* of stream-ordered memory, where the call names one; else 0 */
};

extern __thread struct hook_thread hook_thread __attribute__((tls_model("initial-exec")));

static inline uint64_t hook_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Gives this thread a ring of the process' trace, starting that first if need be. 0: nothing is recorded. */
int hook_attach(struct hook_thread *t);

/* Asks for the current device, and tells the collector of one that is new. After a call only that succeeded, or found
 * no memory: then there is a device. */
void hook_device(struct hook_call *k);
/* Stream-ordered memory lies on the device of its pool, which need not be the current one: asks, if the program has
 * used several devices. */
void hook_device_of_memory(struct hook_call *k, const void *address);

/* 1: record this call. */
static inline int hook_enter(struct hook_call *k, uint32_t api) {
    struct hook_thread *t = &hook_thread;
    if (t->depth) return 0;
    uint32_t now = life_generation();
    if ((t->generation != now || !now) && !hook_attach(t)) return 0;
    t->depth = 1;
    k->thread = t;
    k->api = api;
    k->generation = t->generation;
    k->device = ACCT_NULL_I32;
    k->external = k->pool = 0;
    k->start_ns = hook_now();
    return 1;
}

void hook_mark_slow(struct hook_call *k);

/* Between hook_enter and the real call, where that starts work on the device: what CUPTI tells of it can be tied to
 * this call. Nothing where there are no device times. */
static inline void hook_mark(struct hook_call *k) {
    if (cupti_on()) hook_mark_slow(k);
}

/* Between hook_enter and the real call, where that takes memory of the device: if it is the first to use the device,
 * what is used already is told before it. Makes the device's context, as the call itself would. */
void hook_before_memory(struct hook_call *k);
/* Likewise: now and then what is used is told before it. Asks nothing of a device that the program has not used before.
 */
void hook_ask_memory(struct hook_call *k, uint32_t why);

/* 1: go on with the record. 0 in the child of a fork that happened meanwhile: its thread has no ring. */
static inline int hook_leave(struct hook_call *k, int32_t status) {
    k->end_ns = hook_now();
    k->status = status;
    k->saved_errno = errno;
    if (k->external) cupti_pop();
    if (k->generation != life_generation()) return 0;
    if (status == 0 || status == HOOK_NO_MEMORY) hook_device(k);
    return 1;
}

/* A call that may have found no memory: says what is left of the device's. */
void hook_no_memory(struct hook_call *k);

static inline void hook_done(struct hook_call *k) {
    if (k->status == HOOK_NO_MEMORY || k->status == HOOK_BLAS_NO_MEMORY) hook_no_memory(k);
    k->thread->depth = 0;
    errno = k->saved_errno;
}

/* Room for the call's record, head filled; NULL if the ring is full. hook_commit publishes it. */
void *hook_record(struct hook_call *k, uint16_t event, size_t bytes, uint64_t stream);

static inline void hook_commit(struct hook_call *k) {
    ring_commit(&k->thread->writer);
}

/* Before a call that is not recorded but makes the device's context where there is none: starts the trace, and with it
 * CUPTI, which ties nothing to calls in a context that was there before it. */
static inline void hook_first(void) {
    struct hook_thread *t = &hook_thread;
    if (t->depth) return;
    uint32_t now = life_generation();
    if (t->generation != now || !now) hook_attach(t);
}

/* For calls that are not recorded but may call recorded ones inside (cublasCreate allocates). */
static inline void hook_nest(int by) {
    hook_thread.depth += (uint32_t)by;
}

/* When a thread ends: gives its ring back. The destructor of a pthread key. */
void hook_thread_end(void *thread);

#endif
