/* Life of the collector of device times: its helper thread, start, exit, fork.
 *
 * The helper does everything that calls CUPTI or writes to a ring. The program's first call may come from a thread with
 * a small stack, in which libcupti could not be opened; a flush that a broken driver never ends must not keep the
 * program from exiting; and only a thread of our own may wait for room in a ring. Threads that CUPTI creates inherit
 * its blocked signals. It has a ring of its own and ends with cupti_stop, or at once if there is no CUPTI.
 *
 * Exit: CUPTI has to be asked for the rest while it and the driver still live, which is in an exit handler registered
 * after theirs: once CUPTI is there, and again when the first marked call has returned, which has initialised CUDA if
 * nothing had. Calls after that (exit handlers and destructors of the program) are fetched once more when this
 * library's own destructor runs. cupti_stop comes after all that, calls CUPTI no more, and ends the helper. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include "acct/env.h"
#include "cupti/cupti_inside.h"
#include "preload/sys.h"

#define PERIOD_MS 100u       /* a program that is killed loses the times of its last moments only */
#define IDLE_PERIOD_MS 1000u /* once no call has come for IDLE_PERIODS */
#define IDLE_PERIODS 20u
#define OPENING_NS UINT64_C(1000000000) /* longest wait for the loader, whose lock the program's thread may hold */
#define STACK_BYTES (1u << 20)
#define PAGE_BYTES 4096u

_Static_assert(sizeof(struct cupti_state) <= PAGE_BYTES, "one page");

struct cupti_page *_Atomic cupti_page;
static const struct cupti_host *the_host;
/* Ordinary memory: a forked child sees that its parent used CUPTI, or was about to: what was half opened or half
 * initialised at the fork stays so in the child, where a call of it crashes. */
static _Atomic int was_used;
static int stopped;
static __thread int is_helper __attribute__((tls_model("initial-exec")));

struct cupti_state *cupti_state(void) {
    return (struct cupti_state *)atomic_load_explicit(&cupti_page, memory_order_acquire);
}

void cupti_wake_helper(struct cupti_state *s) {
    atomic_fetch_add(&s->wake, 1);
    sys_futex_wake_all(&s->wake);
}

/* ---- helper ---- */

static void drain(struct cupti_out *out) {
    struct cupti_full full;
    while (cupti_buffer_next(&full)) {
        cupti_read(out, &full);
        cupti_buffer_give_back(&full);
    }
}

/* What CUPTI dropped since it was last asked. */
static void tell_dropped(struct cupti_state *s, struct cupti_out *out) {
    static int64_t all;
    size_t dropped = 0;
    if (cupti_api.cuptiActivityGetNumDroppedRecords(NULL, 0, &dropped) || !dropped) return;
    all += (int64_t)dropped;
    cupti_room(out, sizeof(struct acct_ev_cupti), 0);
    cupti_tell(&out->ring, &s->outcome, NULL, all);
}

static void flush(struct cupti_state *s, struct cupti_out *out, uint32_t flag) {
    cupti_api.cuptiActivityFlushAll(flag);
    drain(out);
    tell_dropped(s, out);
}

static void flush_for_exit(struct cupti_state *s, struct cupti_out *out, uint32_t wanted) {
    out->until_ns = cupti_now() + acct_env_ns(ENV_ACCT_EXIT_TIMEOUT);
    atomic_store_explicit(&s->page.active, 0, memory_order_relaxed);
    flush(s, out, CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    atomic_store_explicit(&s->flushed, wanted, memory_order_release);
    sys_futex_wake_all(&s->flushed);
}

/* Until the program exits: reads completed buffers as they come, and asks for half-filled ones every PERIOD_MS. */
static void serve(struct cupti_state *s, struct cupti_out *out) {
    uint32_t quiet = 0, seen_flush = 0;
    uint64_t next = cupti_now() + PERIOD_MS * 1000000u;
    while (!atomic_load_explicit(&s->want_end, memory_order_acquire)) {
        uint32_t ticket = atomic_load_explicit(&s->wake, memory_order_acquire);
        uint32_t wanted = atomic_load_explicit(&s->want_flush, memory_order_acquire);
        drain(out);
        if (wanted != seen_flush) flush_for_exit(s, out, seen_flush = wanted);
        uint64_t now = cupti_now();
        if (now >= next && !atomic_load_explicit(&s->exiting, memory_order_acquire)) {
            quiet = atomic_exchange_explicit(&s->page.active, 0, memory_order_relaxed) ? 0 : quiet + 1;
            flush(s, out, 0);
            now = cupti_now();
            next = now + (quiet < IDLE_PERIODS ? PERIOD_MS : IDLE_PERIOD_MS) * 1000000u;
        }
        if (!atomic_load_explicit(&s->want_end, memory_order_acquire))
            sys_futex_wait(&s->wake, ticket, next > now ? (unsigned)((next - now) / 1000000u) + 1 : PERIOD_MS, 0);
    }
    drain(out);
}

static void flush_at_exit(int status, void *unused);

/* Nothing of CUPTI is in use: a child may try for itself. */
static int refused(void) {
    atomic_store(&was_used, 0);
    return -1;
}

/* -1 with s->outcome, and nothing left behind. */
static int begin(struct cupti_state *s, struct cupti_out *out, int *ring) {
    struct cupti_outcome *o = &s->outcome;
    atomic_store(&was_used, 1);
    if (cupti_open(the_host, o)) return refused();
    atomic_store_explicit(&s->step, CUPTI_ASKING, memory_order_release);
    cupti_buffers_reset();
    cupti_names_reset();
    if (cupti_subscribe(o)) return refused();
    atomic_store_explicit(&s->serving, 1, memory_order_release);
    if ((*ring = the_host->take_ring(&out->ring)) < 0)
        cupti_append(o->why, sizeof o->why, "no ring is free for device times", NULL);
    else if (!cupti_enable(o)) {
        o->status = 0;
        return 0;
    } else
        ring_retire(&out->ring, (unsigned)*ring);
    cupti_unsubscribe();
    atomic_store_explicit(&s->serving, 0, memory_order_release);
    return -1;
}

static void *helper(void *arg) {
    struct cupti_state *s = arg;
    static struct cupti_out out; /* one helper a process */
    int ring;
    memset(&out, 0, sizeof out);
    is_helper = 1;
    the_host->tool_thread();
    prctl(PR_SET_NAME, "acct-cupti");
    int ok = begin(s, &out, &ring) == 0;
    if (ok) {
        on_exit(flush_at_exit, NULL);
        atomic_store_explicit(&s->page.on, 1, memory_order_release);
    }
    atomic_store(&s->step, ok ? CUPTI_READY : CUPTI_REFUSED);
    sys_futex_wake_all(&s->step);
    if (!ok) return NULL;
    if (atomic_load(&s->left)) cupti_tell(&out.ring, &s->outcome, NULL, 0);
    serve(s, &out);
    ring_retire(&out.ring, (unsigned)ring);
    atomic_store_explicit(&s->ended, 1, memory_order_release);
    sys_futex_wake_all(&s->ended);
    return NULL;
}

/* With all signals blocked but the two by which glibc itself speaks to threads: setuid() waits for an answer to one. */
static int make_thread(struct cupti_state *s) {
    unsigned long old, all = ~(1ul << 31 | 1ul << 32); /* bit n - 1: signals 32, 33 */
    pthread_attr_t attr;
    pthread_t thread;
    syscall(SYS_rt_sigprocmask, 2 /* SIG_SETMASK */, &all, &old, sizeof all);
    int failed = pthread_attr_init(&attr) || pthread_attr_setstacksize(&attr, STACK_BYTES) ||
                 pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED) ||
                 pthread_create(&thread, &attr, helper, s);
    sys_signals_restore(&old);
    return failed ? -1 : 0;
}

/* ---- start ---- */

static struct cupti_state *make_state(void) {
    void *p = cupti_state();
    if (!p) p = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return NULL;
    if (madvise(p, PAGE_BYTES, MADV_WIPEONFORK)) {
        munmap(p, PAGE_BYTES);
        return NULL;
    }
    struct cupti_state *s = p;
    s->pid = (uint32_t)sys_getpid();
    s->outcome.status = ACCT_NULL_I32;
    atomic_store_explicit(&s->step, CUPTI_OPENING, memory_order_relaxed);
    atomic_store_explicit(&cupti_page, &s->page, memory_order_release);
    return s;
}

/* Until CUPTI records or has refused; bounded. */
static void wait_for_answer(struct cupti_state *s) {
    uint64_t begun = cupti_now(), most = acct_env_ns(ENV_ACCT_START_TIMEOUT);
    for (;;) {
        uint32_t step = atomic_load(&s->step);
        uint64_t waited = cupti_now() - begun;
        if (step >= CUPTI_READY || waited >= most || (step == CUPTI_OPENING && waited >= OPENING_NS)) return;
        sys_futex_wait(&s->step, step, 50, 0);
    }
}

static uint32_t wait_for_helper(struct cupti_state *s) {
    wait_for_answer(s);
    atomic_store(&s->left, 1); /* one of the two sees what the other has stored */
    return atomic_load(&s->step);
}

void cupti_before_fork(void) {
    struct cupti_state *s = cupti_state();
    int saved = errno;
    if (s && !is_helper && s->pid == (uint32_t)sys_getpid() && !atomic_load(&s->left)) wait_for_answer(s);
    errno = saved;
}

/* NULL: CUPTI records, or the outcome has why not. */
static const char *start(struct cupti_state **state) {
    uint64_t wanted;
    struct cupti_state *s;
    acct_env_number(ENV_ACCT_CUPTI, &wanted);
    if (!wanted) return "switched off (ACCT_CUPTI=off)";
    if (was_used) return "this process was forked from one that used CUPTI";
    if (!(*state = s = make_state())) return "no memory";
    if (make_thread(s)) {
        atomic_store(&s->left, 1);
        return "no thread could be created";
    }
    if (wait_for_helper(s) < CUPTI_READY) return "CUPTI has not answered in ACCT_START_TIMEOUT";
    return NULL;
}

void cupti_start(const struct cupti_host *host, struct ring_writer *w) {
    struct cupti_outcome none = {ACCT_NULL_I32, 0, ""};
    struct cupti_state *s = NULL;
    int saved = errno;
    the_host = host;
    stopped = 0;
    const char *why = start(&s);
    if (why)
        cupti_tell(w, &none, why, 0);
    else
        cupti_tell(w, &s->outcome, *s->outcome.why ? s->outcome.why : NULL, 0);
    errno = saved;
}

/* ---- exit ---- */

/* The state, where this is the process whose CUPTI it is. A vfork's child runs in its parent's memory. */
static struct cupti_state *ours(void) {
    struct cupti_state *s = cupti_state();
    if (!s || stopped || !atomic_load_explicit(&s->serving, memory_order_acquire)) return NULL;
    return s->pid == (uint32_t)sys_getpid() ? s : NULL;
}

/* Bounded. 0: the helper did not come to it. */
static int wait_until(_Atomic uint32_t *word, uint32_t value) {
    uint64_t until = cupti_now() + acct_env_ns(ENV_ACCT_EXIT_TIMEOUT);
    for (;;) {
        uint32_t now = atomic_load_explicit(word, memory_order_acquire);
        if (now == value) return 1;
        if (cupti_now() >= until) return 0;
        sys_futex_wait(word, now, 50, 0);
    }
}

static void fetch_the_rest(struct cupti_state *s) {
    int saved = errno;
    atomic_store_explicit(&s->exiting, 1, memory_order_release);
    uint32_t wanted = atomic_fetch_add(&s->want_flush, 1) + 1;
    cupti_wake_helper(s);
    if (!wait_until(&s->flushed, wanted)) stopped = 1; /* it hangs in CUPTI: not waited for again */
    errno = saved;
}

/* Calls were marked after the last flush for exit. */
static int called_since(struct cupti_state *s) {
    return atomic_load_explicit(&s->page.active, memory_order_relaxed) != 0;
}

static void flush_at_exit(int status, void *unused) {
    struct cupti_state *s = ours();
    (void)status, (void)unused;
    if (s && (!atomic_load_explicit(&s->exiting, memory_order_acquire) || called_since(s))) fetch_the_rest(s);
}

void cupti_used(void) {
    struct cupti_state *s = cupti_state();
    if (!atomic_exchange_explicit(&s->used, 1, memory_order_relaxed)) on_exit(flush_at_exit, NULL);
}

/* Only where the program made calls in its own exit handlers, so that CUDA was still alive then. */
__attribute__((destructor)) static void flush_at_unload(void) {
    struct cupti_state *s = ours();
    if (s && called_since(s)) fetch_the_rest(s);
}

void cupti_stop(void) {
    struct cupti_state *s = ours();
    if (!s) return;
    int saved = errno;
    stopped = 1;
    atomic_store_explicit(&s->page.on, 0, memory_order_release);
    atomic_store_explicit(&s->want_end, 1, memory_order_release);
    cupti_wake_helper(s);
    wait_until(&s->ended, 1);
    atomic_store_explicit(&s->serving, 0, memory_order_release);
    errno = saved;
}
