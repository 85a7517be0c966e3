/* The client's buffers. One is filled at a time, record by record; a record is written when it is complete. A buffer is
 * asked for when there is a record and no room, on the thread that has the record; full ones are given back on a thread
 * of ours, partly filled ones when the client flushes. */
#include "vgpu/vgpu_cupti.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct full {
    struct full *next;
    uint8_t *buffer;
    size_t size, used;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work, progress; /* for the worker; a buffer came or was given back */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static CUpti_BuffersCallbackRequestFunc request;
static CUpti_BuffersCallbackCompleteFunc complete;
static struct full *current, *first, **last = &first;
static size_t current_records, current_limit; /* limit 0: none */
static uint64_t given, returned;              /* buffers put into the list, and handed to the client */
static bool asking, worker_runs, ended;
static int flushing;
static int64_t period_ns, next_tick; /* period 0: full buffers are given back at once */
static _Atomic uint64_t dropped;

__thread int vgpu_cupti_in_client;
__thread uint64_t vgpu_cupti_calls;
static __thread int giving; /* inside a completed-callback */

static void start(void) {
    pthread_condattr_t a;
    pthread_condattr_init(&a);
    pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    pthread_cond_init(&work, &a);
    pthread_cond_init(&progress, &a);
}

/* ---- giving back ---- */

/* Hands the oldest full buffer to the client; the lock is given up meanwhile. */
static void give_back(void) {
    struct full *f = first;
    CUpti_BuffersCallbackCompleteFunc to = complete;
    first = f->next;
    if (!first) last = &first;
    pthread_mutex_unlock(&lock);
    vgpu_cupti_in_client++, giving++;
    if (to) to(NULL, 0, f->buffer, f->size, f->used);
    vgpu_cupti_in_client--, giving--;
    free(f);
    pthread_mutex_lock(&lock);
    returned++;
    pthread_cond_broadcast(&progress);
}

static bool due(void) {
    return first && (!period_ns || flushing || vgpu_now() >= next_tick);
}

static void wait_for_work(void) {
    if (!period_ns || !first) {
        pthread_cond_wait(&work, &lock);
        return;
    }
    struct timespec t = {next_tick / 1000000000, next_tick % 1000000000};
    pthread_cond_timedwait(&work, &lock, &t);
}

static void *worker(void *arg) {
    (void)arg;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (!ended && !due()) wait_for_work();
        if (ended) break;
        while (first && !ended) give_back();
        next_tick = vgpu_now() + period_ns;
    }
    worker_runs = false;
    pthread_cond_broadcast(&progress);
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* Under the lock. */
static bool start_worker(void) {
    sigset_t all, old;
    pthread_t thread;
    if (worker_runs) return true;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    worker_runs = !pthread_create(&thread, NULL, worker, NULL);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (!worker_runs) return false;
    pthread_setname_np(thread, "acct-vgpu-cupti");
    pthread_detach(thread);
    return true;
}

/* The process ends: the client's code must not be called any more but by its own flush. */
static __attribute__((destructor)) void end(void) {
    if (vgpu_refused == cudaErrorInitializationError) return;
    pthread_mutex_lock(&lock);
    ended = true;
    pthread_cond_broadcast(&work);
    pthread_mutex_unlock(&lock);
}

/* The buffer in use is full, or wanted back. */
static void close_current(void) {
    if (!current) return;
    current->next = NULL;
    *last = current;
    last = &current->next;
    current = NULL;
    given++;
    pthread_cond_signal(&work);
}

/* ---- filling ---- */

static bool has_room(size_t bytes, size_t records) {
    return current && current->size - current->used >= bytes &&
           (!current_limit || current_limit - current_records >= records);
}

/* Asks the client; the lock is given up meanwhile, and one thread asks at a time. false: it gave none. */
static bool ask(void) {
    uint8_t *buffer = NULL;
    size_t size = 0, limit = 0;
    CUpti_BuffersCallbackRequestFunc from = request;
    if (!from) return false;
    asking = true;
    pthread_mutex_unlock(&lock);
    vgpu_cupti_in_client++;
    from(&buffer, &size, &limit);
    vgpu_cupti_in_client--;
    struct full *f = buffer && size ? malloc(sizeof *f) : NULL;
    if (f) {
        *f = (struct full){.buffer = buffer, .size = size};
        if (vgpu_cupti_zeroes_buffers()) memset(buffer, 0, size);
    }
    pthread_mutex_lock(&lock);
    asking = false;
    pthread_cond_broadcast(&progress);
    current = f;
    current_records = 0;
    current_limit = limit;
    return f != NULL;
}

/* Room for all that is left of a group, or at least for its next record. */
static bool make_room(size_t bytes, size_t records, size_t next) {
    while (asking) pthread_cond_wait(&progress, &lock);
    if (has_room(bytes, records)) return true;
    close_current();
    if (!ask()) return false;
    if (has_room(next, 1)) return true;
    close_current(); /* too small for any */
    return false;
}

void vgpu_cupti_write(const struct vgpu_cupti_piece *p, size_t n) {
    pthread_once(&once, start);
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < n; i++) {
        size_t left = 0;
        for (size_t k = i; k < n; k++) left += p[k].bytes;
        if (!make_room(left, n - i, p[i].bytes)) {
            atomic_fetch_add_explicit(&dropped, n - i, memory_order_relaxed);
            break;
        }
        memcpy(current->buffer + current->used, p[i].record, p[i].bytes);
        current->used += p[i].bytes;
        current_records++;
    }
    if (!has_room(sizeof(CUpti_ActivityExternalCorrelation), 1)) close_current(); /* the smallest record */
    pthread_mutex_unlock(&lock);
}

/* ---- the client's functions ---- */

CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc requested,
                                           CUpti_BuffersCallbackCompleteFunc completed) {
    if (!requested || !completed) return CUPTI_ERROR_INVALID_PARAMETER;
    pthread_once(&once, start);
    pthread_mutex_lock(&lock);
    bool runs = start_worker();
    if (runs) {
        request = requested;
        complete = completed;
    }
    pthread_mutex_unlock(&lock);
    return runs ? CUPTI_SUCCESS : CUPTI_ERROR_OUT_OF_MEMORY;
}

/* No record is ever incomplete, so a forced flush has no more to give than another. From inside a completed-callback,
 * or when the process ends, there is no worker to wait for. */
CUptiResult cuptiActivityFlushAll(uint32_t flag) {
    if (flag & ~(uint32_t)CUPTI_ACTIVITY_FLAG_FLUSH_FORCED) return CUPTI_ERROR_INVALID_PARAMETER;
    pthread_once(&once, start);
    pthread_mutex_lock(&lock);
    bool registered = complete != NULL;
    if (registered) {
        close_current();
        uint64_t target = given;
        flushing++;
        pthread_cond_signal(&work);
        while (giving ? first != NULL : returned < target)
            if (first && (giving || !worker_runs || ended))
                give_back();
            else
                pthread_cond_wait(&progress, &lock);
        flushing--;
    }
    pthread_mutex_unlock(&lock);
    return registered ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_OPERATION;
}

CUptiResult cuptiActivityFlush(CUcontext context, uint32_t stream, uint32_t flag) {
    (void)context, (void)stream; /* ignored by the vendor's too */
    return cuptiActivityFlushAll(flag);
}

CUptiResult cuptiActivityFlushPeriod(uint32_t ms) {
    pthread_once(&once, start);
    pthread_mutex_lock(&lock);
    period_ns = (int64_t)ms * 1000000;
    next_tick = vgpu_now() + period_ns;
    pthread_cond_signal(&work);
    pthread_mutex_unlock(&lock);
    return CUPTI_SUCCESS;
}

/* Buffers belong to no context or stream, and neither do the records that found none. */
CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext context, uint32_t stream, size_t *out) {
    (void)context, (void)stream;
    if (!out) return CUPTI_ERROR_INVALID_PARAMETER;
    *out = (size_t)atomic_exchange_explicit(&dropped, 0, memory_order_relaxed);
    return CUPTI_SUCCESS;
}

void vgpu_cupti_forget_client(void) {
    pthread_mutex_lock(&lock);
    request = NULL;
    complete = NULL;
    period_ns = 0;
    pthread_mutex_unlock(&lock);
}
