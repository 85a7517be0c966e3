/* Events: a point in a stream's work, and the time at which its thread got there. */
#include "vgpu/vgpu_graph.h"

#include <math.h>
#include <stddef.h>

struct vgpu_event {
    struct vgpu_item item;
    unsigned flags;
    uint64_t version; /* of the last record, over all uses of the slot; a late worker must not set an older time */
    bool recorded;
    int device;
    struct vgpu_ticket at; /* reached: the last record is done */
    int64_t time_ns;
    struct vgpu_captured captured; /* where in a capture it was recorded last */
};

enum { MAX_EVENTS = 1 << 20 };

static struct vgpu_slab events = {.item_bytes = sizeof(struct vgpu_event), .capacity = MAX_EVENTS};

static struct vgpu_event *find(cudaEvent_t handle) {
    return vgpu_slab_has(&events, handle) ? (struct vgpu_event *)handle : NULL;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned int flags) {
    const unsigned known = cudaEventBlockingSync | cudaEventDisableTiming | cudaEventInterprocess;
    if (!out || (flags & ~known) || ((flags & cudaEventInterprocess) && !(flags & cudaEventDisableTiming)))
        return cudaErrorInvalidValue;
    if (flags & cudaEventInterprocess) return cudaErrorNotSupported;
    pthread_mutex_lock(&vgpu_lock);
    struct vgpu_event *e = vgpu_slab_take(&events);
    if (e) {
        e->flags = flags;
        e->device = vgpu_current();
        e->recorded = false;
        e->at.stream = NULL;
    }
    pthread_mutex_unlock(&vgpu_lock);
    if (!e) return cudaErrorMemoryAllocation;
    *out = (cudaEvent_t)e;
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *out) {
    return cudaEventCreateWithFlags(out, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
    pthread_mutex_lock(&vgpu_lock);
    struct vgpu_event *e = find(handle);
    if (e) {
        e->version++;
        vgpu_captured_clear(&e->captured);
        vgpu_slab_give(&events, e);
    }
    pthread_mutex_unlock(&vgpu_lock);
    return e ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

struct mark {
    struct vgpu_event *event;
    uint64_t version;
};

/* By the model's time line the time is known when the event is recorded. */
static void run_mark(void *args) {
    struct mark *m = args;
    int64_t now = vgpu_now();
    pthread_mutex_lock(&vgpu_lock);
    if (m->event->version == m->version) m->event->time_ns = now;
    pthread_mutex_unlock(&vgpu_lock);
}

static cudaError_t record(struct vgpu_event *e, struct vgpu_stream *s) {
    struct mark m = {e, ++e->version};
    struct vgpu_work w = {
        .run = vgpu_profile()->model ? NULL : run_mark, .args = &m, .bytes = sizeof m, .kind = VGPU_WORK_NOTE};
    vgpu_captured_clear(&e->captured);
    if (e->device != s->device) return cudaErrorInvalidResourceHandle;
    cudaError_t error = vgpu_enqueue(s, &w, &e->at);
    e->recorded |= !error;
    if (!error && !w.run) e->time_ns = e->at.ends;
    return error;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t handle, cudaStream_t stream, unsigned int flags) {
    if (flags & ~(unsigned)cudaEventRecordExternal) return cudaErrorInvalidValue;
    cudaError_t error = cudaErrorInvalidResourceHandle;
    pthread_mutex_lock(&vgpu_lock);
    struct vgpu_event *e = find(handle);
    struct vgpu_stream *s = vgpu_stream_find(stream);
    if (e && s && !vgpu_capture_record(s, handle, &e->captured, flags, &error)) error = record(e, s);
    pthread_mutex_unlock(&vgpu_lock);
    vgpu_graph_tell_all();
    return error;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    return cudaEventRecordWithFlags(event, stream, 0);
}

static cudaError_t wait_for(const struct vgpu_event *e, struct vgpu_stream *s) {
    if (vgpu_reached(e->at) && !e->at.ends) return cudaSuccess;
    return vgpu_enqueue(s, &(struct vgpu_work){.kind = VGPU_WORK_NOTE, .after = e->at}, NULL);
}

bool vgpu_event_is(cudaEvent_t handle) {
    return find(handle) != NULL;
}

cudaError_t vgpu_event_record_in(cudaEvent_t handle, struct vgpu_stream *s) {
    struct vgpu_event *e = find(handle);
    return e ? record(e, s) : cudaErrorInvalidResourceHandle;
}

cudaError_t vgpu_event_wait_in(cudaEvent_t handle, struct vgpu_stream *s) {
    const struct vgpu_event *e = find(handle);
    return e ? wait_for(e, s) : cudaErrorInvalidResourceHandle;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t handle, unsigned int flags) {
    if (flags & ~(unsigned)cudaEventWaitExternal) return cudaErrorInvalidValue;
    cudaError_t error = cudaErrorInvalidResourceHandle;
    pthread_mutex_lock(&vgpu_lock);
    struct vgpu_event *e = find(handle);
    struct vgpu_stream *s = vgpu_stream_find(stream);
    if (e && s && !vgpu_capture_wait(s, handle, &e->captured, e->recorded, flags, &error)) error = wait_for(e, s);
    pthread_mutex_unlock(&vgpu_lock);
    vgpu_graph_tell_all();
    return error;
}

/* Under vgpu_lock. */
static cudaError_t may_ask(const struct vgpu_event *e) {
    if (!e) return cudaErrorInvalidResourceHandle;
    return e->captured.capture ? vgpu_capture_refuse_event(&e->captured) : vgpu_capture_unsafe_locked();
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
    pthread_mutex_lock(&vgpu_lock);
    struct vgpu_event *e = find(handle);
    cudaError_t error = may_ask(e);
    if (!error && !vgpu_reached(e->at)) error = cudaErrorNotReady;
    if (!error) vgpu_model_released(e->at.ends);
    pthread_mutex_unlock(&vgpu_lock);
    return error;
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
    pthread_mutex_lock(&vgpu_lock);
    struct vgpu_event *e = find(handle);
    cudaError_t error = may_ask(e);
    struct vgpu_ticket at = e ? e->at : (struct vgpu_ticket){0};
    pthread_mutex_unlock(&vgpu_lock);
    if (error) return error;
    error = vgpu_wait(at);
    vgpu_pools_settle();
    return error;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end) {
    if (!ms) return cudaErrorInvalidValue;
    cudaError_t error = cudaSuccess;
    pthread_mutex_lock(&vgpu_lock);
    struct vgpu_event *a = find(start), *b = find(end);
    if (!a || !b || !a->recorded || !b->recorded || a->device != b->device ||
        ((a->flags | b->flags) & cudaEventDisableTiming))
        error = cudaErrorInvalidResourceHandle;
    else if (a->captured.capture || b->captured.capture)
        error = cudaErrorCapturedEvent;
    else if (!vgpu_reached(a->at) || !vgpu_reached(b->at))
        error = cudaErrorNotReady;
    else
        *ms = (float)((double)(b->time_ns - a->time_ns) * 1e-6);
    pthread_mutex_unlock(&vgpu_lock);
    return error;
}
