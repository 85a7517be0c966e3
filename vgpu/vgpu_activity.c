/* What the stream threads and the API calls tell, and who hears it. */
#include "vgpu/vgpu_engine.h"

_Atomic int vgpu_activity_wanted;

void vgpu_activity_done(const struct vgpu_activity *activity, uint32_t stream_id, uint64_t start_ns, uint64_t end_ns) {
    (void)activity, (void)stream_id, (void)start_ns, (void)end_ns;
}

void vgpu_api_enter(struct vgpu_api_call *call, int driver, uint32_t cbid, const char *name, const void *params) {
    *call = (struct vgpu_api_call){.cbid = cbid, .driver = driver != 0, .name = name, .params = params};
}

void vgpu_api_leave(struct vgpu_api_call *call, int result) {
    (void)call, (void)result;
}

uint32_t vgpu_api_correlation(void) {
    return 0;
}
