#include "preload/life.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include "acct/env.h"
#include "cupti/cupti.h"
#include "preload/hook.h"
#include "preload/rendezvous.h"
#include "preload/say.h"
#include "preload/spawn.h"
#include "preload/sys.h"

struct life_page *life_page;
struct life_trace life_trace;

static pthread_key_t thread_key;
static int thread_key_made;
static int page_missing; /* wanted, but the kernel gave none */
static _Atomic int page_missing_told;
static uint32_t last_generation; /* ordinary memory: a child goes on counting from its parent's */

int life_first_complaint(void) {
    return life_page && !atomic_exchange(&life_page->complained, 1);
}

void life_watch_thread(void *thread) {
    if (thread_key_made) pthread_setspecific(thread_key, thread);
}

/* ---- start --------------------------------------------------------------------------------------------------- */

/* The descriptor still is what rendezvous() left there. */
static int socket_is_ours(void) {
    struct stat st;
    return life_trace.socket_ino && fstat(life_trace.socket, &st) == 0 && st.st_dev == life_trace.socket_dev &&
           st.st_ino == life_trace.socket_ino;
}

/* A forked child has the socket of its parent's collector, which must not take the child for its program. */
static void close_parents_socket(void) {
    if (socket_is_ours()) sys_close(life_trace.socket);
    life_trace.socket_ino = 0;
}

static int start_here(int (*first)(void *), void *arg) {
    char why[1024] = "no trace: ";
    unsigned long mask;
    close_parents_socket();
    sys_signals_block(&mask);
    int ok = rendezvous(&life_trace, why, sizeof why) == 0;
    if (ok && !first(arg)) {
        say_append(why, sizeof why, "no memory for the first ring; lower ACCT_RING_SLOTS");
        sys_close(life_trace.socket); /* the collector sees a process that ended without a record */
        munmap(life_trace.control, life_trace.control->total_bytes);
        ok = 0;
    }
    sys_signals_restore(&mask);
    if (!ok) say_once(why, NULL);
    return ok;
}

static int publish(int ok) {
    struct life_page *p = life_page;
    if (ok) {
        uint32_t missed = atomic_exchange(&p->waited_for, 0);
        atomic_fetch_add_explicit(&life_trace.control->lost_no_ring, missed, memory_order_relaxed);
        atomic_store_explicit(&p->generation, ++last_generation, memory_order_release);
    }
    atomic_store_explicit(&p->state, ok ? LIFE_ON : LIFE_OFF, memory_order_release);
    sys_futex_wake_all(&p->state);
    return ok ? LIFE_STARTED_HERE : 0;
}

/* Waits for the thread that starts. If that takes longer than it may, the call passes and is counted. */
static int wait_for_starter(void) {
    uint64_t until = hook_now() + acct_env_ns(ENV_ACCT_START_TIMEOUT) + 1000000000u;
    while (atomic_load_explicit(&life_page->state, memory_order_acquire) == LIFE_STARTING && hook_now() < until)
        sys_futex_wait(&life_page->state, LIFE_STARTING, 100, 0);
    uint32_t state = atomic_load_explicit(&life_page->state, memory_order_acquire);
    if (state == LIFE_STARTING) atomic_fetch_add(&life_page->waited_for, 1);
    return state == LIFE_ON ? LIFE_STARTED_BY_OTHER : 0;
}

int life_start(int (*first)(void *arg), void *arg) {
    if (!life_page) {
        if (page_missing && !atomic_exchange(&page_missing_told, 1))
            say_warning("no trace: forked children cannot be told from their parents here; run on Linux 4.14 or later, "
                        "without a filter on madvise",
                        NULL);
        return 0;
    }
    uint32_t state = atomic_load_explicit(&life_page->state, memory_order_acquire);
    if (state == LIFE_NONE && atomic_compare_exchange_strong(&life_page->state, &state, LIFE_STARTING))
        return publish(start_here(first, arg));
    if (state == LIFE_STARTING) return wait_for_starter();
    return state == LIFE_ON ? LIFE_STARTED_BY_OTHER : 0;
}

/* ---- exit ---------------------------------------------------------------------------------------------------- */

/* The other end of the socket is closed. */
static int collector_hung_up(void) {
    struct pollfd p = {life_trace.socket, POLLIN, 0};
    struct timespec now = {0, 0};
    return syscall(SYS_ppoll, &p, 1, &now, NULL, 8) > 0 && (p.revents & (POLLHUP | POLLERR));
}

/* By its socket, as long as that is there: its process id may be of another namespace than the program's. */
static int collector_is_gone(struct acct_control *c) {
    if (socket_is_ours()) return collector_hung_up();
    int pid = (int)atomic_load_explicit(&c->collector_pid, memory_order_acquire);
    return pid > 0 && syscall(SYS_kill, pid, 0) != 0 && errno == ESRCH;
}

static void wait_for_commit(struct acct_control *c) {
    uint64_t until = hook_now() + acct_env_ns(ENV_ACCT_EXIT_TIMEOUT);
    while (!atomic_load_explicit(&c->committed, memory_order_acquire) && hook_now() < until) {
        sys_futex_wait(&c->committed, 0, 50, 1);
        if (!atomic_load_explicit(&c->committed, memory_order_acquire) && collector_is_gone(c)) {
            say_once("the collector ended before the program; the trace ends there", NULL);
            return;
        }
    }
    uint32_t committed = atomic_load_explicit(&c->committed, memory_order_acquire);
    if (!committed) say_once("the collector is still writing after ACCT_EXIT_TIMEOUT; it goes on by itself", NULL);
    /* Under acct run, that tells the user. */
    if (committed == 2 && !*acct_env_text(ENV_ACCT_SOCKET)) {
        char line[ACCT_MESSAGE_BYTES];
        memcpy(line, c->message, sizeof line);
        line[sizeof line - 1] = 0;
        say_once(*line ? line : "the trace could not be completed", NULL);
    }
}

/* Registered before main, so it runs last: after the program's own exit handlers and all destructors, whose CUDA calls
 * are recorded like any other. */
static void at_exit(int status, void *unused) {
    (void)unused;
    if (!life_page || atomic_load_explicit(&life_page->state, memory_order_acquire) != LIFE_ON)
        return; /* never started, or a forked child without CUDA calls */
    struct acct_control *c = life_trace.control;
    int saved = errno;
    if ((uint32_t)sys_getpid() != c->pid)
        return; /* the child of a vfork that calls exit(): it runs in its parent's memory */
    cupti_stop();
    atomic_store_explicit(&c->exit_status, status, memory_order_relaxed);
    atomic_store_explicit(&c->exit_known, 1, memory_order_release);
    atomic_store_explicit(&c->program_state, ACCT_PROGRAM_EXITING, memory_order_release);
    atomic_fetch_add(&c->wake, 1);
    syscall(SYS_futex, &c->wake, FUTEX_WAKE, 0x7fffffff, NULL, NULL, 0);
    wait_for_commit(c);
    errno = saved;
}

/* ---- load ---------------------------------------------------------------------------------------------------- */

/* A page that the kernel wipes in a forked child. NULL where it cannot (before Linux 4.14): then nothing is recorded,
 * for a child would write into its parent's trace, and the first call says so. */
static struct life_page *make_page(void) {
    void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return NULL;
    if (madvise(p, 4096, MADV_WIPEONFORK) == 0) return p;
    munmap(p, 4096);
    return NULL;
}

__attribute__((constructor)) static void load(void) {
    uint64_t on;
    int saved = errno;
    acct_env_number(ENV_ACCT, &on);
    if (on) {
        say_remember_stderr();
        spawn_remember_paths();
        thread_key_made = pthread_key_create(&thread_key, hook_thread_end) == 0;
        pthread_atfork(cupti_before_fork, NULL, NULL);
        if (on_exit(at_exit, NULL) == 0) life_page = make_page();
        page_missing = !life_page;
    }
    errno = saved;
}
