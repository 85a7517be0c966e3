/* Names of CUPTI's results and of the API calls it reports, from the vendor's own lists (vgpu/generate.py). */
#include "vgpu/vgpu_cupti.h"

static const struct {
    CUptiResult code;
    const char *name;
} results[] = {
#define VGPU_ERROR(name) {name, #name},
#include "vgpu_cupti_errors.h"
#undef VGPU_ERROR
};

static const char *const runtime_names[CUPTI_RUNTIME_TRACE_CBID_SIZE] = {
#define VGPU_RUNTIME(cbid, name) [cbid] = name,
#define VGPU_DRIVER(cbid, name)
#include "vgpu_cupti_cbids.h"
#undef VGPU_RUNTIME
#undef VGPU_DRIVER
};

static const char *const driver_names[CUPTI_DRIVER_TRACE_CBID_SIZE] = {
#define VGPU_RUNTIME(cbid, name)
#define VGPU_DRIVER(cbid, name) [cbid] = name,
#include "vgpu_cupti_cbids.h"
#undef VGPU_RUNTIME
#undef VGPU_DRIVER
};

_Static_assert(CUPTI_DRIVER_TRACE_CBID_SIZE <= 64 * VGPU_CUPTI_WORDS, "a set must hold all driver calls");
_Static_assert(CUPTI_RUNTIME_TRACE_CBID_SIZE <= 64 * VGPU_CUPTI_WORDS, "a set must hold all runtime calls");

static const char *result_name(CUptiResult code) {
    for (size_t i = 0; i < sizeof results / sizeof *results; i++)
        if (results[i].code == code) return results[i].name;
    return NULL;
}

CUptiResult cuptiGetResultString(CUptiResult result, const char **text) {
    const char *name = result_name(result);
    if (!text) return CUPTI_ERROR_INVALID_PARAMETER;
    *text = name ? name : "<unknown>";
    return name ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_PARAMETER;
}

/* For the results that these functions never give, the name is the message. */
static const char *message(CUptiResult result) {
    switch ((int)result) {
    case CUPTI_ERROR_INVALID_PARAMETER:
        return "A parameter is not valid.";
    case CUPTI_ERROR_INVALID_DEVICE:
        return "There is no such device.";
    case CUPTI_ERROR_INVALID_CONTEXT:
        return "The context is NULL or not valid.";
    case CUPTI_ERROR_INVALID_OPERATION:
        return "This cannot be done now: no buffer callbacks are registered.";
    case CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT:
        return "The buffer for the value is too small.";
    case CUPTI_ERROR_MAX_LIMIT_REACHED:
        return "There are no more records in the buffer.";
    case CUPTI_ERROR_NOT_COMPATIBLE:
        return "Records of this kind cannot be enabled by themselves.";
    case CUPTI_ERROR_NOT_INITIALIZED:
        return "CUPTI cannot be used here (in a forked child?).";
    case CUPTI_ERROR_QUEUE_EMPTY:
        return "No external correlation id was pushed.";
    case CUPTI_ERROR_INVALID_STREAM:
        return "There is no such stream.";
    case CUPTI_ERROR_INVALID_KIND:
        return "There is no such kind of record.";
    case CUPTI_ERROR_NOT_SUPPORTED:
        return "The virtual GPU does not support this.";
    case CUPTI_ERROR_LEGACY_PROFILER_NOT_SUPPORTED:
        return "Removed from CUPTI in CUDA 13.0.";
    case CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED:
        return "There is a subscriber already, and only one is possible.";
    default:
        return NULL;
    }
}

CUptiResult cuptiGetErrorMessage(CUptiResult result, const char **text) {
    const char *own = message(result);
    if (!text || !own) return cuptiGetResultString(result, text);
    *text = own;
    return CUPTI_SUCCESS;
}

uint32_t vgpu_cupti_domain_size(CUpti_CallbackDomain domain) {
    switch ((int)domain) {
    case CUPTI_CB_DOMAIN_DRIVER_API:
        return CUPTI_DRIVER_TRACE_CBID_SIZE;
    case CUPTI_CB_DOMAIN_RUNTIME_API:
        return CUPTI_RUNTIME_TRACE_CBID_SIZE;
    case CUPTI_CB_DOMAIN_RESOURCE:
        return CUPTI_CBID_RESOURCE_SIZE;
    case CUPTI_CB_DOMAIN_SYNCHRONIZE:
        return CUPTI_CBID_SYNCHRONIZE_SIZE;
    case CUPTI_CB_DOMAIN_NVTX:
        return CUPTI_CBID_NVTX_SIZE;
    case CUPTI_CB_DOMAIN_STATE:
        return CUPTI_CBID_STATE_SIZE;
    default:
        return 0;
    }
}

const char *vgpu_cupti_callback_name(CUpti_CallbackDomain domain, uint32_t cbid) {
    if (domain == CUPTI_CB_DOMAIN_RUNTIME_API && cbid < CUPTI_RUNTIME_TRACE_CBID_SIZE) return runtime_names[cbid];
    if (domain == CUPTI_CB_DOMAIN_DRIVER_API && cbid < CUPTI_DRIVER_TRACE_CBID_SIZE) return driver_names[cbid];
    return NULL;
}
