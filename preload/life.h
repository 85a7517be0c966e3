/* Life of the library in a process: load, the first call, fork, exit.
 *
 * A process without CUDA calls stays at LIFE_NONE: nothing is started, nothing is mapped but one page. That page is
 * wiped by the kernel in a forked child, which so finds itself at LIFE_NONE too, and gets a trace of its own at its
 * first CUDA call. */
#ifndef ACCT_PRELOAD_LIFE_H
#define ACCT_PRELOAD_LIFE_H

#include <stdatomic.h>
#include <stdint.h>
#include "trace/wire.h"

enum life_state {
    LIFE_NONE = 0,     /* no CUDA call yet */
    LIFE_STARTING = 1, /* one thread does it, others wait */
    LIFE_ON = 2,
    LIFE_OFF = 3, /* ACCT=off, or it could not be started: everything passes through */
};

/* In memory of its own that a fork wipes. */
struct life_page {
    _Atomic uint32_t state;      /* enum life_state; futex */
    _Atomic uint32_t generation; /* of this process' trace; 0: none. Never the same in parent and child */
    _Atomic uint32_t complained;
    _Atomic uint32_t waited_for; /* calls that passed unrecorded while another thread was starting */
};

/* What the running trace of this process has; written before state = LIFE_ON. */
struct life_trace {
    struct acct_control *control;
    int socket; /* -1 none; the program may close it or put something else there at any time */
    uint64_t socket_dev, socket_ino;
    uint64_t ring_wait_ns; /* for room in a full ring */
};

extern struct life_page *life_page; /* NULL before the constructor */
extern struct life_trace life_trace;

static inline uint32_t life_generation(void) {
    return life_page ? atomic_load_explicit(&life_page->generation, memory_order_acquire) : 0;
}

enum { LIFE_STARTED_BY_OTHER = 1, LIFE_STARTED_HERE = 2 };
/* Starts the trace, or waits (bounded) for the thread that does. In the starting thread first(arg) is called before any
 * other thread may write; 0 from it gives the trace up. 0: there is none, nothing is recorded. Any thread. */
int life_start(int (*first)(void *arg), void *arg);

/* 1 for the first caller in this process. */
int life_first_complaint(void);

/* Makes the calling thread's end known to hook_thread_end(thread). */
void life_watch_thread(void *thread);

#endif
