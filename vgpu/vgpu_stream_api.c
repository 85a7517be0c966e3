/* The runtime's stream functions. */
#include "vgpu/vgpu_graph.h"
#include "vgpu/vgpu_run.h"
#include "vgpu/vgpu_stream.h"

#include <stdlib.h>

enum { LEAST_PRIORITY = 0, GREATEST_PRIORITY = -5 };

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned int flags, int priority) {
    if (!out || (flags & ~(unsigned)cudaStreamNonBlocking)) return cudaErrorInvalidValue;
    if (priority > LEAST_PRIORITY) priority = LEAST_PRIORITY;
    if (priority < GREATEST_PRIORITY) priority = GREATEST_PRIORITY;
    pthread_mutex_lock(&vgpu_lock);
    struct vgpu_stream *s = vgpu_stream_open(flags, priority);
    pthread_mutex_unlock(&vgpu_lock);
    if (!s) return cudaErrorMemoryAllocation;
    *out = (cudaStream_t)s;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned int flags) {
    return cudaStreamCreateWithPriority(out, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t *out) {
    return cudaStreamCreateWithPriority(out, cudaStreamDefault, 0);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    if (least) *least = LEAST_PRIORITY;
    if (greatest) *greatest = GREATEST_PRIORITY;
    return cudaSuccess;
}

/* Runs body with s locked, or answers that there is no such stream. */
#define WITH_STREAM(handle, s, body)                      \
    do {                                                  \
        cudaError_t e = cudaSuccess;                      \
        pthread_mutex_lock(&vgpu_lock);                   \
        struct vgpu_stream *s = vgpu_stream_find(handle); \
        if (s) {                                          \
            body;                                         \
        } else {                                          \
            e = cudaErrorInvalidResourceHandle;           \
        }                                                 \
        pthread_mutex_unlock(&vgpu_lock);                 \
        return e;                                         \
    } while (0)

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    WITH_STREAM(stream, s, {
        if (vgpu_stream_is_default(s)) {
            e = cudaErrorInvalidResourceHandle;
        } else {
            vgpu_capture_stream_gone(s);
            vgpu_stream_close(s);
        }
    });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    pthread_mutex_lock(&vgpu_lock);
    struct vgpu_stream *s = vgpu_stream_find(stream);
    cudaError_t e = s ? vgpu_capture_refuse_stream(s) : cudaErrorInvalidResourceHandle;
    if (!e) e = vgpu_stream_drain(s);
    pthread_mutex_unlock(&vgpu_lock);
    vgpu_print_flush();
    vgpu_pools_settle();
    return e;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
    WITH_STREAM(stream, s, {
        e = vgpu_capture_refuse_stream(s);
        if (!e && !vgpu_stream_idle(s)) e = cudaErrorNotReady;
    });
}

cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned int *flags) {
    if (!flags) return cudaErrorInvalidValue;
    WITH_STREAM(stream, s, *flags = s->flags);
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority) {
    if (!priority) return cudaErrorInvalidValue;
    WITH_STREAM(stream, s, *priority = s->priority);
}

cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long *id) {
    if (!id) return cudaErrorInvalidValue;
    WITH_STREAM(stream, s, *id = s->id);
}

cudaError_t cudaStreamGetDevice(cudaStream_t stream, int *device) {
    if (!device) return cudaErrorInvalidValue;
    WITH_STREAM(stream, s, *device = s->device);
}

cudaError_t cudaDeviceSynchronize(void) {
    cudaError_t e = vgpu_capture_refuse_all();
    if (e) return e;
    e = vgpu_wait_device(vgpu_current());
    vgpu_pools_settle();
    return e;
}

static void run_host_call(void *args) {
    struct cudaHostNodeParams *h = args;
    h->fn(h->userData);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data) {
    if (!function) return cudaErrorInvalidValue;
    struct cudaHostNodeParams h = {function, data};
    return vgpu_submit(stream, &(struct vgpu_work){.run = run_host_call, .args = &h, .bytes = sizeof h}, NULL);
}

struct callback {
    cudaStreamCallback_t function;
    void *data;
    cudaStream_t stream;
};

static void run_callback(void *args) {
    struct callback *c = args;
    c->function(c->stream, cudaSuccess, c->data);
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t function, void *data, unsigned int flags) {
    if (!function || flags) return cudaErrorInvalidValue;
    struct callback c = {function, data, stream};
    struct vgpu_work w = {.run = run_callback, .args = &c, .bytes = sizeof c, .waited = true};
    return vgpu_submit(stream, &w, NULL);
}
