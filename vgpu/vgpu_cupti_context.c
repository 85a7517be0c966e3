/* CUPTI's clock, ids, external correlation, and texts. */
#include "vgpu/vgpu_cupti.h"
#include "vgpu/vgpu_stream.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static __thread CUptiResult last_error;
static _Atomic int thread_id_type; /* CUpti_ActivityThreadIdType */

/* In a forked child there is no device. While the process ends, the client can still take what it has. */
int vgpu_cupti_refuse(void) {
    if (vgpu_refused != cudaErrorInitializationError) return CUPTI_SUCCESS;
    last_error = CUPTI_ERROR_NOT_INITIALIZED;
    return CUPTI_ERROR_NOT_INITIALIZED;
}

void vgpu_cupti_note(int error) {
    last_error = (CUptiResult)error;
}

CUptiResult cuptiGetLastError(void) {
    CUptiResult e = last_error;
    last_error = CUPTI_SUCCESS;
    return e;
}

CUptiResult cuptiGetVersion(uint32_t *version) {
    if (!version) return CUPTI_ERROR_INVALID_PARAMETER;
    *version = CUPTI_API_VERSION;
    return CUPTI_SUCCESS;
}

/* ---- the clock ---- */

static _Atomic(CUpti_TimestampCallbackFunc) client_clock;
static _Atomic uint32_t clock_generation;

CUptiResult cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc f) {
    if (!f) return CUPTI_ERROR_INVALID_PARAMETER;
    client_clock = f;
    clock_generation++;
    return CUPTI_SUCCESS;
}

uint64_t vgpu_cupti_now(void) {
    CUpti_TimestampCallbackFunc f = atomic_load_explicit(&client_clock, memory_order_relaxed);
    if (!f) {
        struct timespec t;
        clock_gettime(CLOCK_REALTIME, &t);
        return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
    }
    vgpu_cupti_in_client++;
    uint64_t now = f();
    vgpu_cupti_in_client--;
    return now;
}

uint64_t vgpu_activity_clock(uint32_t *generation) {
    *generation = atomic_load_explicit(&clock_generation, memory_order_relaxed);
    return vgpu_cupti_now();
}

CUptiResult cuptiGetTimestamp(uint64_t *timestamp) {
    if (!timestamp) return CUPTI_ERROR_INVALID_PARAMETER;
    *timestamp = vgpu_cupti_now();
    return CUPTI_SUCCESS;
}

/* ---- ids ---- */

uint32_t vgpu_cupti_thread(void) {
    return thread_id_type == CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM ? (uint32_t)gettid() : (uint32_t)pthread_self();
}

CUptiResult cuptiSetThreadIdType(CUpti_ActivityThreadIdType type) {
    if (type != CUPTI_ACTIVITY_THREAD_ID_TYPE_DEFAULT && type != CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM)
        return CUPTI_ERROR_NOT_SUPPORTED;
    thread_id_type = (int)type;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiGetThreadIdType(CUpti_ActivityThreadIdType *type) {
    if (!type) return CUPTI_ERROR_INVALID_PARAMETER;
    *type = (CUpti_ActivityThreadIdType)thread_id_type;
    return CUPTI_SUCCESS;
}

int vgpu_cupti_device(CUcontext context) {
    uintptr_t at = (uintptr_t)context - (uintptr_t)vgpu_cupti_contexts;
    if (!context) return vgpu_current();
    return at < (uintptr_t)vgpu_profile()->devices ? (int)at : -1;
}

CUptiResult cuptiGetContextId(CUcontext context, uint32_t *id) {
    if (!id) return CUPTI_ERROR_INVALID_PARAMETER;
    int device = context ? vgpu_cupti_device(context) : -1;
    if (device < 0) return CUPTI_ERROR_INVALID_CONTEXT;
    *id = vgpu_cupti_context_id(device);
    return CUPTI_SUCCESS;
}

CUptiResult cuptiGetDeviceId(CUcontext context, uint32_t *id) {
    if (!id) return CUPTI_ERROR_INVALID_PARAMETER;
    int device = vgpu_cupti_device(context);
    if (device < 0) return CUPTI_ERROR_INVALID_DEVICE;
    *id = (uint32_t)device;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiGetStreamIdEx(CUcontext context, CUstream stream, uint8_t per_thread, uint32_t *id) {
    if (!id) return CUPTI_ERROR_INVALID_PARAMETER;
    if (vgpu_cupti_device(context) < 0) return CUPTI_ERROR_INVALID_STREAM;
    if (!stream && per_thread) stream = cudaStreamPerThread;
    pthread_mutex_lock(&vgpu_lock);
    struct vgpu_stream *s = vgpu_stream_find(stream);
    if (s) *id = (uint32_t)s->id;
    pthread_mutex_unlock(&vgpu_lock);
    return s ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_STREAM;
}

CUptiResult cuptiGetStreamId(CUcontext context, CUstream stream, uint32_t *id) {
    return cuptiGetStreamIdEx(context, stream, 0, id);
}

CUptiResult cuptiDeviceSupported(CUdevice device, int *support) {
    if (!support) return CUPTI_ERROR_INVALID_PARAMETER;
    if (!vgpu_is_device(device)) return CUPTI_ERROR_INVALID_DEVICE;
    *support = 1;
    return CUPTI_SUCCESS;
}

/* ---- external correlation: a stack of ids for each kind, in each thread ---- */

struct stack {
    uint64_t *ids;
    size_t n, capacity;
};

static __thread struct stack stacks[CUPTI_EXTERNAL_CORRELATION_KIND_SIZE];
static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void thread_ends(void *mine) {
    struct stack *s = mine;
    for (int i = 0; i < CUPTI_EXTERNAL_CORRELATION_KIND_SIZE; i++) {
        free(s[i].ids);
        s[i] = (struct stack){0};
    }
}

static void start(void) {
    pthread_key_create(&key, thread_ends);
}

static bool is_external(CUpti_ExternalCorrelationKind kind) {
    return kind > CUPTI_EXTERNAL_CORRELATION_KIND_INVALID && kind < CUPTI_EXTERNAL_CORRELATION_KIND_SIZE;
}

static bool grow(struct stack *s) {
    size_t capacity = s->capacity ? 2 * s->capacity : 16;
    uint64_t *ids = realloc(s->ids, capacity * sizeof *ids);
    if (!ids) return false;
    s->ids = ids;
    s->capacity = capacity;
    return true;
}

CUptiResult cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind kind, uint64_t id) {
    if (!is_external(kind)) return CUPTI_ERROR_INVALID_PARAMETER;
    struct stack *s = &stacks[kind];
    if (!s->capacity) {
        pthread_once(&once, start);
        pthread_setspecific(key, stacks);
    }
    if (s->n == s->capacity && !grow(s)) return CUPTI_ERROR_OUT_OF_MEMORY;
    s->ids[s->n++] = id;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind kind, uint64_t *last) {
    if (!is_external(kind)) return CUPTI_ERROR_INVALID_PARAMETER;
    struct stack *s = &stacks[kind];
    if (!s->n) return CUPTI_ERROR_QUEUE_EMPTY;
    uint64_t id = s->ids[--s->n];
    if (last) *last = id;
    return CUPTI_SUCCESS;
}

size_t vgpu_cupti_external(CUpti_ActivityExternalCorrelation out[], uint32_t correlation) {
    size_t n = 0;
    for (int kind = 1; kind < CUPTI_EXTERNAL_CORRELATION_KIND_SIZE; kind++) {
        const struct stack *s = &stacks[kind];
        if (s->n)
            out[n++] = (CUpti_ActivityExternalCorrelation){.kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
                                                           .externalKind = (CUpti_ExternalCorrelationKind)kind,
                                                           .externalId = s->ids[s->n - 1],
                                                           .correlationId = correlation};
    }
    return n;
}
