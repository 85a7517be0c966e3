/* Subscribing, and which records CUPTI is to take. In the helper thread. */
#include "cupti/cupti_inside.h"

static CUpti_SubscriberHandle subscriber;

/* Numbers of the calls that launch, copy or set, from the vendor's headers. */
static const CUpti_CallbackId runtime_calls[] = {
#define RUNTIME(f) CUPTI_RUNTIME_TRACE_CBID_##f,
#define DRIVER(f)
#include "cupti_calls.h"
#undef RUNTIME
#undef DRIVER
};
static const CUpti_CallbackId driver_calls[] = {
#define RUNTIME(f)
#define DRIVER(f) CUPTI_DRIVER_TRACE_CBID_##f,
#include "cupti_calls.h"
#undef RUNTIME
#undef DRIVER
};

/* KIND_KERNEL would serialise kernels. */
static const CUpti_ActivityKind kinds[] = {
    CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
    CUPTI_ACTIVITY_KIND_MEMCPY,
    CUPTI_ACTIVITY_KIND_MEMCPY2,
    CUPTI_ACTIVITY_KIND_MEMSET,
    CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
};
#define COUNT(a) (sizeof(a) / sizeof *(a))

/* CUPTI wants a callback; no callback is enabled. */
static void CUPTIAPI no_callback(void *data, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void *info) {
    (void)data, (void)domain, (void)id, (void)info;
}

/* CUPTI's own default is CLOCK_REALTIME, which is not the clock of our records. */
static uint64_t CUPTIAPI our_clock(void) {
    return cupti_now();
}

int cupti_subscribe(struct cupti_outcome *o) {
    CUptiResult error = cupti_api.cuptiSubscribe(&subscriber, no_callback, NULL);
    return error ? cupti_failed(o, "cuptiSubscribe", error) : 0;
}

void cupti_unsubscribe(void) {
    for (size_t i = 0; i < COUNT(kinds); i++) cupti_api.cuptiActivityDisable(kinds[i]);
    for (size_t i = 0; i < COUNT(runtime_calls); i++) cupti_api.cuptiActivityEnableRuntimeApi(runtime_calls[i], 0);
    for (size_t i = 0; i < COUNT(driver_calls); i++) cupti_api.cuptiActivityEnableDriverApi(driver_calls[i], 0);
    cupti_api.cuptiUnsubscribe(subscriber);
}

/* CUPTI's own buffers: out of the program's device memory where that can be, else small and one. */
static void set_attributes(void) {
    uint8_t pinned = 1;
    size_t bytes = sizeof pinned, device_bytes = 1u << 20, one = 1;
    if (cupti_api.cuptiActivitySetAttribute(CUPTI_ACTIVITY_ATTR_MEM_ALLOCATION_TYPE_HOST_PINNED, &bytes, &pinned) == 0)
        return;
    bytes = sizeof device_bytes;
    cupti_api.cuptiActivitySetAttribute(CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE, &bytes, &device_bytes);
    cupti_api.cuptiActivitySetAttribute(CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_PRE_ALLOCATE_VALUE, &bytes, &one);
}

/* External correlations come only beside API records. An older library lacks some calls, a newer driver has others:
 * what it refuses is left out. 0: it took none. */
static size_t enable_calls(void) {
    size_t taken = 0;
    for (size_t i = 0; i < COUNT(runtime_calls); i++)
        taken += cupti_api.cuptiActivityEnableRuntimeApi(runtime_calls[i], 1) == CUPTI_SUCCESS;
    for (size_t i = 0; i < COUNT(driver_calls); i++)
        taken += cupti_api.cuptiActivityEnableDriverApi(driver_calls[i], 1) == CUPTI_SUCCESS;
    return taken;
}

int cupti_enable(struct cupti_outcome *o) {
    CUptiResult error;
    set_attributes();
    if ((error = cupti_api.cuptiActivityRegisterTimestampCallback(our_clock)))
        return cupti_failed(o, "cuptiActivityRegisterTimestampCallback", error);
    if ((error = cupti_api.cuptiActivityRegisterCallbacks(cupti_buffer_requested, cupti_buffer_completed)))
        return cupti_failed(o, "cuptiActivityRegisterCallbacks", error);
    for (size_t i = 0; i < COUNT(kinds); i++)
        if ((error = cupti_api.cuptiActivityEnable(kinds[i]))) return cupti_failed(o, "cuptiActivityEnable", error);
    if (!enable_calls()) return cupti_failed(o, "cuptiActivityEnableRuntimeApi", CUPTI_ERROR_NOT_SUPPORTED);
    return 0;
}

int cupti_push_slow(struct cupti_page *p, uint64_t external) {
    if (!atomic_load_explicit(&p->active, memory_order_relaxed))
        atomic_store_explicit(&p->active, 1, memory_order_relaxed);
    return cupti_api.cuptiActivityPushExternalCorrelationId(CUPTI_OUR_KIND, external) == CUPTI_SUCCESS;
}

void cupti_pop_slow(void) {
    struct cupti_state *s = cupti_state();
    uint64_t last;
    cupti_api.cuptiActivityPopExternalCorrelationId(CUPTI_OUR_KIND, &last);
    if (!atomic_load_explicit(&s->used, memory_order_relaxed)) cupti_used();
}
