/* What the stream threads and the API calls tell, and who hears it: the way from the engine to CUPTI. */
#include "vgpu/vgpu_cupti.h"
#include "vgpu/vgpu_run.h"

_Atomic int vgpu_activity_wanted;
static _Atomic uint32_t last_correlation;
static __thread struct vgpu_api_call *under_way;

static uint32_t next_correlation(void) {
    uint32_t n;
    do n = atomic_fetch_add_explicit(&last_correlation, 1, memory_order_relaxed) + 1;
    while (n == CUPTI_CORRELATION_ID_UNKNOWN);
    return n;
}

/* The kernel of a launch; NULL: there is none of that name, or the call is no launch. */
static const char *launched(uint32_t cbid, const void *params) {
    const void *function;
    struct vgpu_kernel *k;
    switch (cbid) {
    case CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000:
    case CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_ptsz_v7000:
    case CUPTI_RUNTIME_TRACE_CBID___cudaLaunchKernel_v13000: /* its first parameter is the kernel too */
    case CUPTI_RUNTIME_TRACE_CBID___cudaLaunchKernel_ptsz_v13000:
    case CUPTI_RUNTIME_TRACE_CBID_cudaLaunchCooperativeKernel_v9000:
    case CUPTI_RUNTIME_TRACE_CBID_cudaLaunchCooperativeKernel_ptsz_v9000:
        function = ((const cudaLaunchKernel_v7000_params *)params)->func;
        break;
    case CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_v11060:
    case CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_ptsz_v11060:
        function = ((const cudaLaunchKernelExC_v11060_params *)params)->func;
        break;
    default:
        return NULL;
    }
    return vgpu_kernel_find(function, &k) ? NULL : k->name;
}

void vgpu_api_enter_launch(struct vgpu_api_call *call, int driver, uint32_t cbid, const char *name, const void *params,
                           const char *symbol) {
    *call = (struct vgpu_api_call){
        .cbid = cbid, .driver = driver != 0, .name = name, .params = params, .symbol = symbol, .outer = under_way};
    if (vgpu_cupti_in_client) return;
    call->correlation = next_correlation();
    under_way = call;
    vgpu_cupti_call_back(call, NULL);
    if (vgpu_cupti_wants_call(call)) call->start_ns = vgpu_cupti_now();
}

void vgpu_api_enter(struct vgpu_api_call *call, int driver, uint32_t cbid, const char *name, const void *params) {
    vgpu_api_enter_launch(call, driver, cbid, name, params, driver ? NULL : launched(cbid, params));
}

/* The record comes before the callback, in which the client may take its external id back. */
void vgpu_api_leave(struct vgpu_api_call *call, int result) {
    if (!call->correlation) return;
    if (call->start_ns && vgpu_cupti_wants_call(call)) vgpu_cupti_record_call(call, vgpu_cupti_now(), result);
    vgpu_cupti_call_back(call, &result);
    under_way = call->outer;
}

uint32_t vgpu_api_correlation(void) {
    return under_way && !vgpu_cupti_in_client ? under_way->correlation : 0;
}

void vgpu_activity_submitted(struct vgpu_activity *a) {
    a->correlation = vgpu_api_correlation();
    a->driver = a->correlation ? under_way->driver : 0;
    /* The model has no time for it: its host is always ahead. */
    if (a->kind == VGPU_ACTIVITY_KERNEL && vgpu_cupti_latency && !vgpu_profile()->model)
        a->queued_ns = vgpu_cupti_now();
}
