/* Streams: each has a queue and, from its first work on, a thread. One lock over all queues keeps the rules between
 * streams simple: what an operation must wait for is settled when it is queued. */
#include "vgpu/vgpu_engine.h"
#include "vgpu/vgpu_profile.h"
#include "vgpu/vgpu_graph.h"
#include "vgpu/vgpu_run.h"
#include "vgpu/vgpu_stream.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct vgpu_op {
    struct vgpu_op *next;
    void (*run)(void *args); /* NULL: nothing is to be done */
    bool blas;
    int64_t start, end; /* on the model's time line */
    struct vgpu_activity activity;
    size_t waits;
    struct vgpu_ticket *wait; /* behind args */
    _Alignas(16) char args[];
};

enum { MAX_STREAMS = 1 << 16 };

pthread_mutex_t vgpu_lock = PTHREAD_MUTEX_INITIALIZER;
static struct vgpu_slab streams = {.item_bytes = sizeof(struct vgpu_stream), .capacity = MAX_STREAMS};
static struct vgpu_stream *legacy[VGPU_MAX_DEVICES]; /* the default streams, never destroyed */
static uint64_t next_id = 1;
static int64_t gone_end[VGPU_MAX_DEVICES]; /* model time: when the work of streams that were destroyed ends */
static __thread bool on_worker;
static __thread struct vgpu_stream *per_thread[VGPU_MAX_DEVICES];
static pthread_key_t per_thread_key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_rwlock_t blas_gate;

bool vgpu_on_worker(void) {
    return on_worker;
}

int64_t vgpu_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Takes a slot for a new stream. The counters of its last user go on, so that old tickets stay reached. */
static struct vgpu_stream *take(int device, unsigned flags, int priority) {
    struct vgpu_stream *s = vgpu_slab_take(&streams);
    if (!s) return NULL;
    if (!s->initialised) {
        pthread_cond_init(&s->work, NULL);
        pthread_cond_init(&s->progress, NULL);
        s->initialised = true;
    }
    s->device = device;
    s->flags = flags;
    s->priority = priority;
    s->retired = false;
    s->id = next_id++;
    s->model_end = 0;
    s->attributes = (struct vgpu_stream_attributes){0};
    return s;
}

static void retire(struct vgpu_stream *s) {
    s->retired = true;
    if (s->model_end > gone_end[s->device]) gone_end[s->device] = s->model_end;
    if (s->has_worker)
        pthread_cond_signal(&s->work); /* the worker gives the slot back when its queue is empty */
    else
        vgpu_slab_give(&streams, s);
}

static void thread_ends(void *mine) {
    struct vgpu_stream **of_device = mine;
    if (vgpu_refused == cudaErrorInitializationError)
        return; /* in a forked child the lock may be held by a thread that is not there */
    pthread_mutex_lock(&vgpu_lock);
    for (int i = 0; i < VGPU_MAX_DEVICES; i++) {
        if (!of_device[i]) continue;
        vgpu_capture_stream_gone(of_device[i]);
        retire(of_device[i]);
        of_device[i] = NULL;
    }
    pthread_mutex_unlock(&vgpu_lock);
}

/* fork: OpenBLAS stops its threads before it, which must not happen in the middle of a product. A child has no device.
 */
static void before_fork(void) {
    pthread_rwlock_wrlock(&blas_gate);
}

static void after_fork(void) {
    pthread_rwlock_unlock(&blas_gate);
}

static void make_gate(void) {
    pthread_rwlockattr_t a;
    pthread_rwlockattr_init(&a);
    pthread_rwlockattr_setkind_np(&a, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&blas_gate, &a);
}

/* The gate is made anew: it is locked, and the child may fork again. */
static void in_child(void) {
    vgpu_refused = cudaErrorInitializationError;
    make_gate();
}

static void start(void) {
    make_gate();
    pthread_key_create(&per_thread_key, thread_ends);
    for (int i = 0; i < vgpu_profile()->devices; i++) legacy[i] = take(i, 0, 0);
    pthread_atfork(before_fork, after_fork, in_child);
}

static __attribute__((constructor)) void engine_starts(void) {
    pthread_once(&once, start);
}

/* Exit: wakes who waits, lets a running product end (OpenBLAS is taken down next) and keeps new ones out. The rest of
 * the queued work is abandoned, as a device does when its process ends. */
static __attribute__((destructor)) void engine_ends(void) {
    if (vgpu_refused == cudaErrorInitializationError) return;
    vgpu_refused = cudaErrorCudartUnloading;
    pthread_mutex_lock(&vgpu_lock);
    for (size_t i = 0; i < streams.count; i++) {
        struct vgpu_stream *s = (struct vgpu_stream *)(streams.base + i * streams.item_bytes);
        pthread_cond_broadcast(&s->progress);
        pthread_cond_broadcast(&s->work);
    }
    pthread_mutex_unlock(&vgpu_lock);
    struct timespec limit;
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += 10;
    (void)pthread_rwlock_timedwrlock(&blas_gate, &limit);
}

static bool quitting(void) {
    return vgpu_refused == cudaErrorCudartUnloading;
}

bool vgpu_reached(struct vgpu_ticket t) {
    return !t.stream || t.stream->done >= t.sequence;
}

static void wait_locked(struct vgpu_ticket t) {
    while (!vgpu_reached(t) && !quitting()) pthread_cond_wait(&t.stream->progress, &vgpu_lock);
}

static struct vgpu_ticket point_of(struct vgpu_stream *s) {
    return (struct vgpu_ticket){s, s->enqueued, s->model_end};
}

/* By a thread of the program. */
static void host_waits(struct vgpu_ticket t) {
    wait_locked(t);
    vgpu_model_released(t.ends);
}

void vgpu_blas_enter(void) {
    pthread_rwlock_rdlock(&blas_gate);
}

void vgpu_blas_leave(void) {
    pthread_rwlock_unlock(&blas_gate);
}

static void run_op(struct vgpu_op *op) {
    if (op->blas) vgpu_blas_enter();
    if (!vgpu_refused && op->run) op->run(op->args); /* after a fault nothing runs any more */
    if (op->blas) vgpu_blas_leave();
}

/* Operations of a stream do not overlap, and none takes no time: the clock's steps may be coarser than the work. The
 * client's functions are called with no lock held. */
static void run_timed(struct vgpu_stream *s, struct vgpu_op *op) {
    if (vgpu_profile()->model) {
        run_op(op);
        if (!vgpu_refused)
            vgpu_activity_done(&op->activity, (uint32_t)s->id, vgpu_model_stamp(op->start), vgpu_model_stamp(op->end));
        return;
    }
    uint32_t clock, clock_at_end;
    uint64_t start = vgpu_activity_clock(&clock);
    if (start < s->last_end && clock == s->last_clock) start = s->last_end;
    run_op(op);
    uint64_t end = vgpu_activity_clock(&clock_at_end);
    s->last_end = end > start ? end : start + 1;
    s->last_clock = clock_at_end;
    if (!vgpu_refused) vgpu_activity_done(&op->activity, (uint32_t)s->id, start, s->last_end);
}

static void *worker(void *arg) {
    struct vgpu_stream *s = arg;
    on_worker = true;
    cudaSetDevice(s->device); /* work asks for the current device, too */
    pthread_mutex_lock(&vgpu_lock);
    for (;;) {
        while (!s->head && !s->retired && !quitting()) pthread_cond_wait(&s->work, &vgpu_lock);
        struct vgpu_op *op = s->head;
        if (!op || quitting()) break;
        for (size_t i = 0; i < op->waits; i++) wait_locked(op->wait[i]);
        if (quitting()) break;
        pthread_mutex_unlock(&vgpu_lock);
        if (op->activity.kind && atomic_load_explicit(&vgpu_activity_wanted, memory_order_relaxed))
            run_timed(s, op);
        else
            run_op(op);
        pthread_mutex_lock(&vgpu_lock);
        s->head = op->next;
        s->done++;
        pthread_cond_broadcast(&s->progress);
        free(op);
    }
    s->has_worker = false;
    if (s->retired && !quitting()) vgpu_slab_give(&streams, s);
    pthread_mutex_unlock(&vgpu_lock);
    vgpu_pool_end();
    return NULL;
}

/* The program's signals are not for our threads. */
static bool start_worker(struct vgpu_stream *s) {
    sigset_t all, old;
    pthread_t thread;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    int failed = pthread_create(&thread, NULL, worker, s);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (failed) return false;
    pthread_setname_np(thread, "acct-vgpu");
    pthread_detach(thread);
    s->has_worker = true;
    return true;
}

static struct vgpu_stream *of_this_thread(int device) {
    if (!per_thread[device]) {
        per_thread[device] = take(device, 0, 0);
        pthread_setspecific(per_thread_key, per_thread);
    }
    return per_thread[device];
}

static bool is_legacy(const struct vgpu_stream *s) {
    return s == legacy[s->device];
}

bool vgpu_stream_is_legacy(const struct vgpu_stream *s) {
    return is_legacy(s);
}

cudaStream_t vgpu_default_stream(int device) {
    return (cudaStream_t)legacy[device];
}

struct vgpu_stream *vgpu_stream_find(cudaStream_t handle) {
    if (!handle || handle == cudaStreamLegacy) return legacy[vgpu_current()];
    if (handle == cudaStreamPerThread) return of_this_thread(vgpu_current());
    struct vgpu_stream *s = (struct vgpu_stream *)handle;
    return vgpu_slab_has(&streams, s) && !s->retired ? s : NULL;
}

static bool blocking(const struct vgpu_stream *s) {
    return !is_legacy(s) && !(s->flags & cudaStreamNonBlocking);
}

/* A device's default stream waits for all blocking streams of the device and they for it. Writes the points to wait
 * for; returns how many. `out` NULL only counts. */
static size_t legacy_waits(const struct vgpu_stream *s, struct vgpu_ticket *out) {
    size_t n = 0;
    struct vgpu_stream *first = legacy[s->device];
    if (s == first) {
        for (size_t i = 0; i < streams.count; i++) {
            struct vgpu_stream *o = (struct vgpu_stream *)(streams.base + i * streams.item_bytes);
            if (o->done == o->enqueued || o->device != s->device || !blocking(o)) continue;
            if (out) out[n] = point_of(o);
            n++;
        }
    } else if (blocking(s) && first->done < first->enqueued) {
        if (out) *out = point_of(first);
        n = 1;
    }
    return n;
}

/* ---- the model's time line: settled when work is queued, since the host is taken to be ahead ---- */

static int64_t later(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* When the blocking streams' work so far ends, for their device's default stream; and the default stream's, for them.
 */
static int64_t legacy_end(const struct vgpu_stream *s) {
    int64_t end = gone_end[s->device];
    if (!is_legacy(s)) return blocking(s) ? legacy[s->device]->model_end : 0;
    for (size_t i = 0; i < streams.count; i++) {
        struct vgpu_stream *o = (struct vgpu_stream *)(streams.base + i * streams.item_bytes);
        if (o->device == s->device && blocking(o)) end = later(end, o->model_end);
    }
    return end;
}

static void place_in_time(struct vgpu_stream *s, const struct vgpu_work *w, int64_t *start, int64_t *end) {
    *start = *end = 0;
    if (!vgpu_profile()->model) return;
    int64_t ready = later(later(vgpu_model_host(), s->model_end), later(w->after.ends, legacy_end(s)));
    if (w->kind == VGPU_WORK_DEVICE)
        vgpu_model_times(&w->amount, ready, start, end);
    else
        *start = *end = ready;
    s->model_end = *end;
}

/* ---- queueing ---- */

static bool dry(void) {
    return vgpu_profile()->dry;
}

static void (*function_of(const struct vgpu_work *w))(void *) {
    return dry() && w->kind == VGPU_WORK_DEVICE ? w->dry : w->run;
}

/* When dry, there is mostly nothing to wait for: work is then done at once, by who submits it. */
static bool at_once(const struct vgpu_stream *s, const struct vgpu_work *w) {
    return dry() && w->kind != VGPU_WORK_HOST && s->done == s->enqueued && vgpu_reached(w->after) &&
           !legacy_waits(s, NULL);
}

static struct vgpu_ticket do_at_once(struct vgpu_stream *s, const struct vgpu_work *w, int64_t *start) {
    void (*run)(void *) = function_of(w);
    struct vgpu_ticket t = {.stream = s, .sequence = ++s->enqueued};
    place_in_time(s, w, start, &t.ends);
    if (run && !vgpu_refused) run((void *)w->args);
    s->done++;
    return t;
}

static struct vgpu_op *make_op(const struct vgpu_stream *s, const struct vgpu_work *w) {
    size_t args = (w->bytes + 15) / 16 * 16, n = legacy_waits(s, NULL);
    struct vgpu_op *op = malloc(sizeof *op + args + (n + 1) * sizeof(struct vgpu_ticket));
    if (!op) return NULL;
    op->next = NULL;
    op->run = function_of(w);
    op->blas = w->blas && op->run == w->run;
    op->activity = w->activity;
    op->activity.device = (uint8_t)s->device;
    if (op->activity.kind) vgpu_activity_submitted(&op->activity);
    op->wait = (struct vgpu_ticket *)(op->args + args);
    op->waits = legacy_waits(s, op->wait);
    if (w->after.stream) op->wait[op->waits++] = w->after;
    if (w->bytes) memcpy(op->args, w->args, w->bytes);
    return op;
}

static cudaError_t queue(struct vgpu_stream *s, const struct vgpu_work *w, struct vgpu_ticket *ticket) {
    if (!s->has_worker && !start_worker(s)) return cudaErrorMemoryAllocation;
    struct vgpu_op *op = make_op(s, w);
    if (!op) return cudaErrorMemoryAllocation;
    place_in_time(s, w, &op->start, &op->end);
    if (s->head)
        s->tail->next = op;
    else
        s->head = op;
    s->tail = op;
    s->enqueued++;
    if (ticket) *ticket = (struct vgpu_ticket){s, s->enqueued, op->end};
    pthread_cond_signal(&s->work);
    return cudaSuccess;
}

cudaError_t vgpu_enqueue(struct vgpu_stream *s, const struct vgpu_work *w, struct vgpu_ticket *ticket) {
    int64_t start;
    cudaError_t e;
    if (vgpu_capture_takes(s, w, &e)) {
        if (ticket) *ticket = (struct vgpu_ticket){0};
        return e;
    }
    if (w->activity.kind || !at_once(s, w)) return queue(s, w, ticket);
    struct vgpu_ticket t = do_at_once(s, w, &start);
    if (ticket) *ticket = t;
    return cudaSuccess;
}

/* Its record is written with no lock held: the client may be asked for a buffer. */
static void report_at_once(struct vgpu_activity a, uint64_t stream_id, int64_t start, int64_t end) {
    if (!a.kind || !atomic_load_explicit(&vgpu_activity_wanted, memory_order_relaxed) || vgpu_refused) return;
    vgpu_activity_submitted(&a);
    vgpu_activity_done(&a, (uint32_t)stream_id, vgpu_model_stamp(start), vgpu_model_stamp(end));
}

cudaError_t vgpu_submit(cudaStream_t handle, const struct vgpu_work *w, struct vgpu_ticket *ticket) {
    if (on_worker) return cudaErrorNotPermitted; /* a host function must not make CUDA calls */
    pthread_mutex_lock(&vgpu_lock);
    struct vgpu_stream *s = vgpu_stream_find(handle);
    cudaError_t e;
    if (s && vgpu_capture_takes(s, w, &e)) {
        pthread_mutex_unlock(&vgpu_lock);
        if (ticket) *ticket = (struct vgpu_ticket){0};
        vgpu_graph_tell_all();
        return e;
    }
    if (!s || !at_once(s, w)) {
        e = s ? queue(s, w, ticket) : cudaErrorInvalidResourceHandle;
        pthread_mutex_unlock(&vgpu_lock);
        return e;
    }
    int64_t start;
    struct vgpu_ticket t = do_at_once(s, w, &start);
    uint64_t id = s->id;
    struct vgpu_activity activity = w->activity;
    activity.device = (uint8_t)s->device;
    pthread_mutex_unlock(&vgpu_lock);
    if (ticket) *ticket = t;
    report_at_once(activity, id, start, t.ends);
    return cudaSuccess;
}

cudaError_t vgpu_wait(struct vgpu_ticket ticket) {
    if (on_worker) return cudaErrorNotPermitted;
    pthread_mutex_lock(&vgpu_lock);
    host_waits(ticket);
    pthread_mutex_unlock(&vgpu_lock);
    vgpu_print_flush();
    return (cudaError_t)vgpu_refused;
}

cudaError_t vgpu_submit_and_wait(cudaStream_t stream, const struct vgpu_work *w) {
    struct vgpu_ticket t;
    struct vgpu_work waited = *w;
    waited.waited = true;
    cudaError_t e = vgpu_submit(stream, &waited, &t);
    return e ? e : vgpu_wait(t);
}

/* Waits for the present work of every stream of the device (-1: of all); `blocking_only`: of those that its default
 * stream waits for. */
static void drain(int device, bool blocking_only) {
    for (size_t i = 0; i < streams.count; i++) {
        struct vgpu_stream *s = (struct vgpu_stream *)(streams.base + i * streams.item_bytes);
        if (device >= 0 && s->device != device) continue;
        if (!blocking_only || is_legacy(s) || blocking(s)) host_waits(point_of(s));
    }
    for (int i = 0; i < VGPU_MAX_DEVICES; i++)
        if (device < 0 || i == device) vgpu_model_released(gone_end[i]);
}

cudaError_t vgpu_wait_all(void) {
    return vgpu_wait_device(-1);
}

cudaError_t vgpu_wait_device(int device) {
    if (on_worker) return cudaErrorNotPermitted;
    pthread_mutex_lock(&vgpu_lock);
    drain(device, false);
    pthread_mutex_unlock(&vgpu_lock);
    vgpu_print_flush();
    return (cudaError_t)vgpu_refused;
}

cudaError_t vgpu_stream_drain(struct vgpu_stream *s) {
    if (on_worker) return cudaErrorNotPermitted;
    if (is_legacy(s))
        drain(s->device, true);
    else
        host_waits(point_of(s));
    return (cudaError_t)vgpu_refused;
}

bool vgpu_stream_idle(struct vgpu_stream *s) {
    if (s->done < s->enqueued || (is_legacy(s) && legacy_waits(s, NULL))) return false;
    vgpu_model_released(is_legacy(s) ? later(s->model_end, legacy_end(s)) : s->model_end);
    return true;
}

struct vgpu_stream *vgpu_stream_open(unsigned flags, int priority) {
    return take(vgpu_current(), flags, priority);
}

void vgpu_stream_close(struct vgpu_stream *s) {
    retire(s);
}

bool vgpu_stream_is_default(const struct vgpu_stream *s) {
    return is_legacy(s) || s == per_thread[s->device];
}

void vgpu_streams_reset(int device) {
    for (size_t i = 0; i < streams.count; i++) {
        struct vgpu_stream *s = (struct vgpu_stream *)(streams.base + i * streams.item_bytes);
        if (s->item.live && s->device == device) vgpu_capture_stream_gone(s);
        if (s->item.live && !s->retired && s->device == device && !vgpu_stream_is_default(s)) retire(s);
    }
}
