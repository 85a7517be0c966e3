#include "preload/facts.h"

#include "preload/hook.h"
#include "preload/real.h"

/* Found once a process; NULL: the runtime has no such function, or has not been loaded. */
static void *found(void *_Atomic *kept, const char *name) {
    void *f = atomic_load_explicit(kept, memory_order_relaxed);
    if (!f && (f = real_find_quietly(name, "cudart"))) atomic_store_explicit(kept, f, memory_order_relaxed);
    return f;
}

#define FIND(type, name)              \
    static void *_Atomic kept_##name; \
    type *name = (type *)found(&kept_##name, #name)

/* ---- the program's last error ---------------------------------------------------------------------------------- */

typedef int error_fn(void);
typedef int malloc_fn(void **, size_t);

#define NO_DEVICE_HAS ((size_t)1 << 60) /* bytes */

int facts_question_begin(struct facts_question *q) {
    FIND(error_fn, cudaPeekAtLastError);
    q->error = cudaPeekAtLastError ? cudaPeekAtLastError() : -1;
    return q->error == 0 || q->error == HOOK_NO_MEMORY;
}

/* A runtime keeps its last error to itself: only a call that fails sets it. */
static void fail_for_want_of_memory(void) {
    FIND(malloc_fn, cudaMalloc);
    void *none;
    if (cudaMalloc) cudaMalloc(&none, NO_DEVICE_HAS);
}

void facts_question_end(const struct facts_question *q) {
    FIND(error_fn, cudaPeekAtLastError);
    FIND(error_fn, cudaGetLastError);
    if (q->error < 0 || !cudaGetLastError || cudaPeekAtLastError() == q->error) return;
    cudaGetLastError();
    if (q->error == HOOK_NO_MEMORY) fail_for_want_of_memory();
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

typedef int memory_fn(size_t *, size_t *);
typedef int device_pool_fn(void **, int);
typedef int pool_fn(void *, int, void *);

enum { POOL_RESERVED = 5, POOL_USED = 7 }; /* cudaMemPoolAttr */
enum { ALWAYS_ASKED = 64, SHARE = 20, AGAIN_SHARE = 100, AGAIN_PAUSE_NS = 10000000 };
#define NOT_TOLD SIZE_MAX

static _Atomic int pools_used;

void facts_note_pool(void) {
    atomic_store_explicit(&pools_used, 1, memory_order_relaxed);
}

/* Of this process and its trace: a forked child begins anew. */
static struct {
    _Atomic uint32_t generation;
    _Atomic uint64_t calls, first_ns, spent_ns;
} questions;

int facts_may_ask_memory(uint32_t generation) {
    if (atomic_exchange(&questions.generation, generation) != generation) {
        atomic_store(&questions.calls, 0);
        atomic_store(&questions.spent_ns, 0);
        atomic_store(&questions.first_ns, hook_now());
    }
    if (atomic_fetch_add_explicit(&questions.calls, 1, memory_order_relaxed) < ALWAYS_ASKED) return 1;
    return hook_now() - atomic_load(&questions.first_ns) >= SHARE * atomic_load(&questions.spent_ns);
}

static struct {
    _Atomic uint32_t generation, released; /* a trace with an answer, with one before a release */
    _Atomic uint64_t next_ns;              /* not before */
} again;

/* 1, once a trace. Each allocation and release asks: only the first one writes. */
static int is_first(_Atomic uint32_t *of, uint32_t generation) {
    return atomic_load_explicit(of, memory_order_relaxed) != generation &&
           atomic_exchange(of, generation) != generation;
}

int facts_may_ask_again(uint32_t generation, int release, uint64_t now) {
    if (release && is_first(&again.released, generation)) return 1;
    if (is_first(&again.generation, generation)) /* first use has just been told, or will be */
        atomic_store_explicit(&again.next_ns, now + AGAIN_PAUSE_NS, memory_order_relaxed);
    return now >= atomic_load_explicit(&again.next_ns, memory_order_relaxed);
}

void facts_asked(uint64_t begin_ns) {
    uint64_t now = hook_now(), pause = AGAIN_SHARE * (now - begin_ns);
    atomic_store_explicit(&again.next_ns, now + (pause > AGAIN_PAUSE_NS ? pause : AGAIN_PAUSE_NS),
                          memory_order_relaxed);
}

static int64_t told(size_t bytes) {
    return bytes > INT64_MAX ? ACCT_NULL_I64 : (int64_t)bytes;
}

static void ask_device(struct acct_ev_meminfo *r) {
    FIND(memory_fn, cudaMemGetInfo);
    size_t left = NOT_TOLD, all = NOT_TOLD;
    if (!cudaMemGetInfo || cudaMemGetInfo(&left, &all)) left = all = NOT_TOLD;
    r->free_bytes = told(left);
    r->total_bytes = told(all);
}

static int64_t ask_pool_for(void *pool, int attribute) {
    FIND(pool_fn, cudaMemPoolGetAttribute);
    uint64_t bytes = NOT_TOLD;
    return cudaMemPoolGetAttribute && cudaMemPoolGetAttribute(pool, attribute, &bytes) == 0 ? told(bytes)
                                                                                            : ACCT_NULL_I64;
}

static void ask_pool(struct acct_ev_meminfo *r, void *pool) {
    FIND(device_pool_fn, cudaDeviceGetMemPool);
    if (!pool && atomic_load_explicit(&pools_used, memory_order_relaxed) && cudaDeviceGetMemPool &&
        cudaDeviceGetMemPool(&pool, r->device))
        pool = NULL;
    if (!pool) return;
    r->pool = (uint64_t)(uintptr_t)pool;
    r->pool_reserved_bytes = ask_pool_for(pool, POOL_RESERVED);
    r->pool_used_bytes = ask_pool_for(pool, POOL_USED);
}

static void ask(struct acct_ev_meminfo *r, const struct facts_memory *m) {
    struct facts_question q;
    r->why = m->why;
    r->device = m->ordinal < 0 ? ACCT_NULL_I32 : m->ordinal;
    r->call_ns = m->call_ns;
    r->pool = 0;
    r->free_bytes = r->total_bytes = r->pool_reserved_bytes = r->pool_used_bytes = ACCT_NULL_I64;
    if (facts_question_begin(&q)) {
        ask_device(r);
        if (m->ordinal >= 0) ask_pool(r, (void *)(uintptr_t)m->pool);
    }
    facts_question_end(&q);
}

int facts_tell_memory(struct ring_writer *w, const struct facts_memory *m) {
    struct acct_ev_meminfo answer, *r;
    uint64_t begin = hook_now();
    if (!ring_has_room(w, sizeof answer)) return 0;
    ask(&answer, m);
    if (m->only_answers && answer.free_bytes == ACCT_NULL_I64) return 0;
    if (!(r = ring_begin(w, ACCT_EV_MEMINFO, sizeof *r, begin))) return 0;
    answer.hdr = r->hdr;
    *r = answer;
    ring_commit(w);
    if (m->call_ns) atomic_fetch_add_explicit(&questions.spent_ns, hook_now() - begin, memory_order_relaxed);
    return 1;
}
