/* Device times through CUPTI: what the library's other parts call. All of it is part of libacct.so.
 *
 * libcupti is opened, subscribed to and read by one helper thread of our own, never by a thread of the program. Only
 * cupti_push and cupti_pop, and the two buffer callbacks that CUPTI makes itself, run in the program's threads; they
 * take no lock and write to no ring. Whatever fails ends in one CUPTI record that says why there are no device times.
 *
 * fork: the state lies in a page that the kernel wipes in a child. cupti_on() is 0 there, no buffer is given or read,
 * nothing is flushed; a child of a process that used CUPTI is not given any (the driver does not work there either).
 * Record times are CLOCK_MONOTONIC ns, like all others. */
#ifndef ACCT_CUPTI_CUPTI_H
#define ACCT_CUPTI_CUPTI_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include "trace/ring.h"

/* What the collector of device times needs of the library it is part of. Called in the helper thread. */
struct cupti_host {
    /* Claims a ring for the calling thread, which is the tool's own, and introduces it there (THREAD). Number of the
     * ring, for ring_retire; -1: none is free. */
    int (*take_ring)(struct ring_writer *w);
    /* From here on nothing that the calling thread does is recorded as the program's. */
    void (*tool_thread)(void);
    /* A function of the loaded CUDA libraries ("acctVgpuDevice", "cudart"); NULL: there is none. */
    void *(*find)(const char *name, const char *library);
};

/* The first line is what cupti_push and cupti_pop look at; the rest is the collector's (cupti_inside.h). */
struct cupti_page {
    _Atomic uint32_t on;     /* 1: records are being taken */
    _Atomic uint32_t active; /* calls were marked since the helper last looked */
};
extern struct cupti_page *_Atomic cupti_page; /* NULL before cupti_start */

/* Starts the helper, and waits until CUPTI records or has refused (at most ACCT_START_TIMEOUT). At the first recorded
 * CUDA call of the process, before the real call; its thread's ring `w` gets the CUPTI record that says how it went.
 * *host stays in use. */
void cupti_start(const struct cupti_host *host, struct ring_writer *w);

/* 1: device times are being taken in this process. Any thread. */
static inline int cupti_on(void) {
    struct cupti_page *p = atomic_load_explicit(&cupti_page, memory_order_relaxed);
    return p && atomic_load_explicit(&p->on, memory_order_relaxed);
}

/* The slow parts of push and pop. errno may change. */
int cupti_push_slow(struct cupti_page *p, uint64_t external);
void cupti_pop_slow(void);

/* Marks the CUDA calls that this thread makes until cupti_pop: CUPTI ties them, and what they start on the device, to
 * `external` (CORRELATION records). 1: marked, and cupti_pop must follow; 0: CUPTI is not recording. Nests. */
static inline int cupti_push(uint64_t external) {
    struct cupti_page *p = atomic_load_explicit(&cupti_page, memory_order_relaxed);
    if (!p || !atomic_load_explicit(&p->on, memory_order_relaxed)) return 0;
    return cupti_push_slow(p, external);
}
static inline void cupti_pop(void) {
    if (cupti_on()) cupti_pop_slow();
}

/* Before a fork, by the forking thread: waits while the helper opens and initialises CUPTI, as long as cupti_start
 * itself would. A child forked in the middle would have a loader that refuses every dlopen, and a CUPTI that crashes.
 */
void cupti_before_fork(void);

/* Has everything that CUPTI still holds written to the ring, and ends the helper: at exit, after the program's last
 * call and before the collector is told. Waits at most ACCT_EXIT_TIMEOUT. Once. */
void cupti_stop(void);

#endif
