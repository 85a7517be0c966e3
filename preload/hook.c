#include "preload/hook.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include "cupti/cupti.h"
#include "preload/facts.h"
#include "preload/real.h"
#include "preload/sys.h"

__thread struct hook_thread hook_thread __attribute__((tls_model("initial-exec")));

/* Generation for which the name of an api number was told; per process. */
static _Atomic uint32_t api_told[API_COUNT];

static void tell_thread(struct hook_thread *t) {
    char name[17] = "";
    struct acct_ev_thread *r = ring_begin(&t->writer, ACCT_EV_THREAD, sizeof *r, hook_now());
    if (!r) return;
    prctl(PR_GET_NAME, name);
    r->tid = sys_gettid();
    r->name = ring_text(&t->writer, name, strlen(name));
    ring_commit(&t->writer);
}

/* Claims a ring. 0: all rings are taken. */
static int take_ring(struct hook_thread *t) {
    t->ring = facts_claim_ring(life_trace.control);
    if (t->ring < 0) return 0;
    ring_attach(&t->writer, life_trace.control, (unsigned)t->ring);
    ring_present_by(&t->writer, facts_make_present);
    ring_wait_by(&t->writer, life_trace.ring_wait_ns);
    if (!ring_has_room(&t->writer, sizeof(struct acct_ev_thread))) { /* one that another thread left full */
        ring_retire(&t->writer, (unsigned)t->ring);
        return 0; /* without its THREAD record, this thread's calls would be taken for the other's */
    }
    return 1;
}

/* ---- device times: the thread that fetches them is the tool's own, with a ring of its own ---- */

static int take_tools_ring(struct ring_writer *w) {
    struct hook_thread *t = &hook_thread;
    if (!take_ring(t)) return -1;
    tell_thread(t);
    *w = t->writer;
    return t->ring;
}

static void be_tools_thread(void) {
    hook_nest(1);
}

static const struct cupti_host cupti_host = {take_tools_ring, be_tools_thread, real_find_quietly};

/* The first ring of a trace begins with the process. */
static int take_first_ring(void *arg) {
    struct hook_thread *t = arg;
    if (!take_ring(t)) return 0;
    facts_tell_process(&t->writer);
    tell_thread(t);
    cupti_start(&cupti_host, &t->writer);
    return 1;
}

static int attach(struct hook_thread *t) {
    int started = life_start(take_first_ring, t);
    if (!started) return 0;
    if (started == LIFE_STARTED_BY_OTHER) {
        if (!take_ring(t)) {
            atomic_fetch_add_explicit(&life_trace.control->lost_no_ring, 1, memory_order_relaxed);
            return 0;
        }
        tell_thread(t);
    }
    t->generation = life_generation();
    life_watch_thread(t);
    return 1;
}

int hook_attach(struct hook_thread *t) {
    int saved = errno;
    t->depth = 1; /* a CUDA call in a signal handler or a look-up meanwhile is none of the program's straight line */
    t->generation = 0;
    int ok = attach(t);
    t->depth = 0;
    errno = saved;
    return ok;
}

void hook_thread_end(void *thread) {
    struct hook_thread *t = thread;
    if (t->generation && t->generation == life_generation()) ring_retire(&t->writer, (unsigned)t->ring);
    t->generation = 0;
}

/* Ids are the process' own: threads are numbered as they come. */
void hook_mark_slow(struct hook_call *k) {
    static _Atomic uint64_t threads;
    struct hook_thread *t = k->thread;
    int saved = errno;
    if (!t->external) t->external = (atomic_fetch_add_explicit(&threads, 1, memory_order_relaxed) + 1) << 40;
    if (cupti_push(t->external + 1)) k->external = ++t->external;
    errno = saved;
}

/* An INFO record is no call: where there is no room it is left for later, not counted as lost. */
static void tell_api(struct hook_call *k) {
    struct ring_writer *w = &k->thread->writer;
    struct acct_ev_api *r;
    if (!ring_has_room(w, sizeof *r) || !(r = ring_begin(w, ACCT_EV_API, sizeof *r, k->start_ns))) return;
    const struct real_api *a = &real_apis[k->api];
    r->number = k->api;
    r->name = ring_text(w, a->name, strlen(a->name));
    r->library = ring_text(w, a->library, strlen(a->library));
    ring_commit(w);
    atomic_store_explicit(&api_told[k->api], k->generation, memory_order_relaxed);
}

void *hook_record(struct hook_call *k, uint16_t event, size_t bytes, uint64_t stream) {
    if (atomic_load_explicit(&api_told[k->api], memory_order_relaxed) != k->generation) tell_api(k);
    struct acct_rec *r = ring_begin(&k->thread->writer, event, bytes, k->start_ns);
    if (!r) return NULL;
    r->api = k->api;
    r->status = k->status;
    r->device = k->device;
    r->end_ns = k->end_ns;
    r->stream = stream;
    return r;
}

#define MAX_DEVICES 64
static _Atomic uint32_t device_told[MAX_DEVICES]; /* generation, as above */
static _Atomic uint32_t memory_told[MAX_DEVICES]; /* likewise: what was used of it at its first use */
static _Atomic int devices_told;                  /* in all generations */

static void tell_first_memory(struct hook_call *k, int ordinal, int before) {
    struct facts_memory m = {ACCT_meminfo_why_FIRST_USE, ordinal, 0, 0, before};
    if (atomic_load_explicit(&memory_told[ordinal], memory_order_relaxed) == k->generation) return;
    if (atomic_exchange(&memory_told[ordinal], k->generation) == k->generation) return;
    if (!facts_tell_memory(&k->thread->writer, &m)) atomic_store(&memory_told[ordinal], 0);
}

void hook_before_memory(struct hook_call *k) {
    struct facts_question q;
    int saved = errno;
    if (facts_question_begin(&q)) { /* else it could not be asked */
        int ordinal = facts_current_device();
        if (ordinal >= 0 && ordinal < MAX_DEVICES) tell_first_memory(k, ordinal, 1);
        facts_question_end(&q);
    }
    errno = saved;
}

void hook_ask_memory(struct hook_call *k, uint32_t why) {
    struct facts_question q;
    int saved = errno;
    if (!facts_may_ask_again(k->generation, why == ACCT_meminfo_why_RELEASE, k->start_ns)) return;
    if (facts_question_begin(&q)) {
        int ordinal = facts_current_device();
        struct facts_memory m = {why, ordinal, 0, 0, 1};
        if (ordinal >= 0 && ordinal < MAX_DEVICES &&
            atomic_load_explicit(&memory_told[ordinal], memory_order_relaxed) == k->generation)
            facts_tell_memory(&k->thread->writer, &m);
        facts_question_end(&q);
    }
    facts_asked(k->start_ns);
    k->start_ns = hook_now(); /* the question is no part of the call, and comes before it */
    errno = saved;
}

void hook_device(struct hook_call *k) {
    int ordinal = facts_current_device();
    if (ordinal < 0) return;
    k->device = ordinal;
    if (ordinal >= MAX_DEVICES || atomic_load_explicit(&device_told[ordinal], memory_order_relaxed) == k->generation)
        return;
    if (!ring_has_room(&k->thread->writer, sizeof(struct acct_ev_device))) return;
    /* exchange: of two threads that come at once, one tells */
    if (atomic_exchange(&device_told[ordinal], k->generation) == k->generation) return;
    atomic_fetch_add_explicit(&devices_told, 1, memory_order_relaxed);
    facts_tell_device(&k->thread->writer, ordinal);
    tell_first_memory(k, ordinal, 0);
}

void hook_device_of_memory(struct hook_call *k, const void *address) {
    if (k->status != 0 || !address || atomic_load_explicit(&devices_told, memory_order_relaxed) < 2) return;
    int ordinal = facts_device_of(address);
    if (ordinal >= 0) k->device = ordinal;
}

/* Of which library a status is; and memory of the host is not the device's. */
static int is_about_the_device(const struct hook_call *k) {
    const struct real_api *a = &real_apis[k->api];
    if (!strncmp(a->library, "cublas", 6)) return k->status == HOOK_BLAS_NO_MEMORY;
    return k->status == HOOK_NO_MEMORY && strncmp(a->name, "cudaHost", 8) && strncmp(a->name, "cudaMallocHost", 14);
}

void hook_no_memory(struct hook_call *k) {
    if (k->generation != life_generation() || !is_about_the_device(k)) return;
    int ordinal = k->device == ACCT_NULL_I32 ? facts_current_device() : k->device;
    struct facts_memory m = {ACCT_meminfo_why_NO_MEMORY, ordinal, k->start_ns, k->pool, 0};
    if (facts_may_ask_memory(k->generation)) facts_tell_memory(&k->thread->writer, &m);
}
