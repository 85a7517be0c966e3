/* What the client wants to be told: kinds of records, single API calls, attributes. */
#include "vgpu/vgpu_cupti.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic uint64_t kinds;
static struct vgpu_cupti_set runtime_calls, driver_calls; /* whose API records are wanted */
static size_t sizes[] = {
    [CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE] = 3200000,
    [CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE_CDP] = 8388608,
    [CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_POOL_LIMIT] = 250,
    [CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_PRE_ALLOCATE_VALUE] = 3,
    [CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE_DEVICE_GRAPHS] = 16777216,
};
_Atomic bool vgpu_cupti_latency;
static _Atomic uint8_t leaves_zeroing, host_pinned, per_thread = 1;

void vgpu_cupti_put(struct vgpu_cupti_set *s, uint32_t n, bool on) {
    uint64_t bit = UINT64_C(1) << n % 64;
    if (on)
        atomic_fetch_or(&s->word[n / 64], bit);
    else
        atomic_fetch_and(&s->word[n / 64], ~bit);
}

void vgpu_cupti_put_all(struct vgpu_cupti_set *s, uint32_t count, bool on) {
    for (uint32_t n = 1; n < count; n++) vgpu_cupti_put(s, n, on);
}

bool vgpu_cupti_any(const struct vgpu_cupti_set *s) {
    for (int i = 0; i < VGPU_CUPTI_WORDS; i++)
        if (atomic_load_explicit(&s->word[i], memory_order_relaxed)) return true;
    return false;
}

bool vgpu_cupti_wants(CUpti_ActivityKind kind) {
    return atomic_load_explicit(&kinds, memory_order_relaxed) >> kind & 1;
}

bool vgpu_cupti_wants_call(const struct vgpu_api_call *call) {
    return vgpu_cupti_has(call->driver ? &driver_calls : &runtime_calls, call->cbid);
}

void vgpu_cupti_listen(void) {
    pthread_mutex_lock(&lock);
    vgpu_activity_wanted =
        kinds || vgpu_cupti_any(&runtime_calls) || vgpu_cupti_any(&driver_calls) || vgpu_cupti_has_callbacks();
    pthread_mutex_unlock(&lock);
}

/* ---- kinds ---- */

enum answer { UNKNOWN_KIND, WRITTEN, NEVER, UNSUPPORTED, INDIRECT, REMOVED };

/* NEVER: what such a record would tell does not exist here (peers, graphs, preemption), so having none is right.
 * INDIRECT: cannot be enabled by itself. REMOVED: from 13.0 on. */
static enum answer answer(CUpti_ActivityKind kind) {
    switch (kind) {
    case CUPTI_ACTIVITY_KIND_MEMCPY:
    case CUPTI_ACTIVITY_KIND_MEMSET:
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
    case CUPTI_ACTIVITY_KIND_DRIVER:
    case CUPTI_ACTIVITY_KIND_RUNTIME:
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION:
        return WRITTEN;
    case CUPTI_ACTIVITY_KIND_MEMCPY2:
    case CUPTI_ACTIVITY_KIND_PREEMPTION:
    case CUPTI_ACTIVITY_KIND_NVLINK:
    case CUPTI_ACTIVITY_KIND_INTERNAL_LAUNCH_API:
    case CUPTI_ACTIVITY_KIND_GRAPH_TRACE:
    case CUPTI_ACTIVITY_KIND_MEM_DECOMPRESS:
    case CUPTI_ACTIVITY_KIND_CONFIDENTIAL_COMPUTE_ROTATION:
        return NEVER;
    case CUPTI_ACTIVITY_KIND_CDP_KERNEL:
    case CUPTI_ACTIVITY_KIND_MODULE:
    case CUPTI_ACTIVITY_KIND_DEVICE_ATTRIBUTE:
    case CUPTI_ACTIVITY_KIND_DEVICE_GRAPH_TRACE:
        return INDIRECT;
    case CUPTI_ACTIVITY_KIND_EVENT:
    case CUPTI_ACTIVITY_KIND_METRIC:
    case CUPTI_ACTIVITY_KIND_EVENT_INSTANCE:
    case CUPTI_ACTIVITY_KIND_METRIC_INSTANCE:
    case CUPTI_ACTIVITY_KIND_INSTANTANEOUS_EVENT:
    case CUPTI_ACTIVITY_KIND_INSTANTANEOUS_EVENT_INSTANCE:
    case CUPTI_ACTIVITY_KIND_INSTANTANEOUS_METRIC:
    case CUPTI_ACTIVITY_KIND_INSTANTANEOUS_METRIC_INSTANCE:
    case CUPTI_ACTIVITY_KIND_SOURCE_LOCATOR:
    case CUPTI_ACTIVITY_KIND_GLOBAL_ACCESS:
    case CUPTI_ACTIVITY_KIND_BRANCH:
    case CUPTI_ACTIVITY_KIND_INSTRUCTION_EXECUTION:
    case CUPTI_ACTIVITY_KIND_SHARED_ACCESS:
    case CUPTI_ACTIVITY_KIND_PC_SAMPLING:
    case CUPTI_ACTIVITY_KIND_PC_SAMPLING_RECORD_INFO:
    case CUPTI_ACTIVITY_KIND_INSTRUCTION_CORRELATION:
        return REMOVED;
    default:
        return kind > CUPTI_ACTIVITY_KIND_INVALID && kind < CUPTI_ACTIVITY_KIND_COUNT ? UNSUPPORTED : UNKNOWN_KIND;
    }
}

static CUptiResult set_kind(CUpti_ActivityKind kind, bool on) {
    static _Atomic uint64_t said;
    switch (answer(kind)) {
    case UNKNOWN_KIND:
        return CUPTI_ERROR_INVALID_KIND;
    case INDIRECT:
        return CUPTI_ERROR_NOT_COMPATIBLE;
    case REMOVED:
        return CUPTI_ERROR_LEGACY_PROFILER_NOT_SUPPORTED;
    case UNSUPPORTED:
        if (on && !(atomic_fetch_or(&said, UINT64_C(1) << kind) >> kind & 1))
            vgpu_say("CUPTI activity records of kind %d are not implemented", (int)kind);
        return CUPTI_ERROR_NOT_SUPPORTED;
    case WRITTEN:
    case NEVER:
        break;
    }
    if (kind == CUPTI_ACTIVITY_KIND_RUNTIME)
        vgpu_cupti_put_all(&runtime_calls, CUPTI_RUNTIME_TRACE_CBID_SIZE, on);
    else if (kind == CUPTI_ACTIVITY_KIND_DRIVER)
        vgpu_cupti_put_all(&driver_calls, CUPTI_DRIVER_TRACE_CBID_SIZE, on);
    else if (on)
        atomic_fetch_or(&kinds, UINT64_C(1) << kind);
    else
        atomic_fetch_and(&kinds, ~(UINT64_C(1) << kind));
    vgpu_cupti_listen();
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
    return set_kind(kind, true);
}

CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) {
    return set_kind(kind, false);
}

/* There is nothing to dump: records of devices, contexts and streams are not implemented. */
CUptiResult cuptiActivityEnableAndDump(CUpti_ActivityKind kind) {
    return set_kind(kind, true);
}

/* The one context. */
CUptiResult cuptiActivityEnableContext(CUcontext context, CUpti_ActivityKind kind) {
    return context && vgpu_cupti_device(context) >= 0 ? set_kind(kind, true) : CUPTI_ERROR_INVALID_CONTEXT;
}

CUptiResult cuptiActivityDisableContext(CUcontext context, CUpti_ActivityKind kind) {
    return context && vgpu_cupti_device(context) >= 0 ? set_kind(kind, false) : CUPTI_ERROR_INVALID_CONTEXT;
}

static CUptiResult set_call(struct vgpu_cupti_set *set, CUpti_CallbackId cbid, uint32_t count, bool on) {
    if (!cbid || cbid >= count) return CUPTI_ERROR_INVALID_PARAMETER;
    vgpu_cupti_put(set, cbid, on);
    vgpu_cupti_listen();
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityEnableRuntimeApi(CUpti_CallbackId cbid, uint8_t enable) {
    return set_call(&runtime_calls, cbid, CUPTI_RUNTIME_TRACE_CBID_SIZE, enable);
}

CUptiResult cuptiActivityEnableDriverApi(CUpti_CallbackId cbid, uint8_t enable) {
    return set_call(&driver_calls, cbid, CUPTI_DRIVER_TRACE_CBID_SIZE, enable);
}

CUptiResult cuptiActivityEnableLatencyTimestamps(uint8_t enable) {
    vgpu_cupti_latency = enable != 0;
    return CUPTI_SUCCESS;
}

/* ---- attributes ----
 * The virtual device takes none of its memory for CUPTI; the sizes are kept, and change nothing. */

static _Atomic uint8_t *flag_attribute(CUpti_ActivityAttribute a) {
    switch ((int)a) {
    case CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER:
        return &leaves_zeroing;
    case CUPTI_ACTIVITY_ATTR_MEM_ALLOCATION_TYPE_HOST_PINNED:
        return &host_pinned;
    case CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER:
        return &per_thread;
    default:
        return NULL;
    }
}

/* Not since 12.3. */
static bool gone(CUpti_ActivityAttribute a) {
    return a == CUPTI_ACTIVITY_ATTR_PROFILING_SEMAPHORE_POOL_SIZE ||
           a == CUPTI_ACTIVITY_ATTR_PROFILING_SEMAPHORE_POOL_LIMIT ||
           a == CUPTI_ACTIVITY_ATTR_PROFILING_SEMAPHORE_PRE_ALLOCATE_VALUE;
}

static CUptiResult check(CUpti_ActivityAttribute a, const size_t *bytes, const void *value) {
    if (!bytes || !value || (unsigned)a > CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE_DEVICE_GRAPHS)
        return CUPTI_ERROR_INVALID_PARAMETER;
    if (gone(a)) return CUPTI_ERROR_NOT_SUPPORTED;
    size_t need = flag_attribute(a) ? sizeof(uint8_t) : sizeof(size_t);
    return *bytes < need ? CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT : CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetAttribute(CUpti_ActivityAttribute a, size_t *bytes, void *value) {
    CUptiResult e = check(a, bytes, value);
    if (e) return e;
    _Atomic uint8_t *flag = flag_attribute(a);
    if (flag)
        *(uint8_t *)value = *flag;
    else
        *(size_t *)value = __atomic_load_n(&sizes[a], __ATOMIC_RELAXED);
    *bytes = flag ? sizeof(uint8_t) : sizeof(size_t);
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivitySetAttribute(CUpti_ActivityAttribute a, size_t *bytes, void *value) {
    CUptiResult e = check(a, bytes, value);
    if (e) return e;
    _Atomic uint8_t *flag = flag_attribute(a);
    if (flag)
        *flag = *(uint8_t *)value;
    else
        __atomic_store_n(&sizes[a], *(size_t *)value, __ATOMIC_RELAXED);
    return CUPTI_SUCCESS;
}

bool vgpu_cupti_zeroes_buffers(void) {
    return !leaves_zeroing;
}

/* Detaches: nothing is told any more, and what the client's buffers hold is given back first. */
CUptiResult cuptiFinalize(void) {
    vgpu_cupti_unsubscribe();
    kinds = 0;
    vgpu_cupti_latency = false;
    vgpu_cupti_put_all(&runtime_calls, CUPTI_RUNTIME_TRACE_CBID_SIZE, false);
    vgpu_cupti_put_all(&driver_calls, CUPTI_DRIVER_TRACE_CBID_SIZE, false);
    vgpu_cupti_listen();
    cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    vgpu_cupti_forget_client();
    return CUPTI_SUCCESS;
}
