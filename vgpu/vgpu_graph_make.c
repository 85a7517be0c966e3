/* Work items that are kept instead of queued: what explicit nodes are made of. */
#include "vgpu/vgpu_graph.h"

#include <stdlib.h>
#include <string.h>

static __thread struct vgpu_made *making;

bool vgpu_making(void) {
    return making != NULL;
}

void vgpu_make_begin(struct vgpu_made *made) {
    *made = (struct vgpu_made){0};
    making = made;
}

/* A call that has nothing to do, as a copy of no bytes, submits nothing: then made->args stays NULL. */
cudaError_t vgpu_make_end(struct vgpu_made *made, cudaError_t error) {
    making = NULL;
    if (error) vgpu_made_free(made);
    return error;
}

cudaError_t vgpu_make_take(const struct vgpu_work *work) {
    return making->args ? cudaErrorNotSupported : vgpu_made_copy(making, work);
}

cudaError_t vgpu_made_copy(struct vgpu_made *to, const struct vgpu_work *work) {
    void *args = aligned_alloc(16, (work->bytes + 16) / 16 * 16);
    if (!args) return cudaErrorMemoryAllocation;
    if (work->bytes) memcpy(args, work->args, work->bytes);
    *to = (struct vgpu_made){*work, args};
    to->work.args = args;
    to->work.after = (struct vgpu_ticket){0};
    return cudaSuccess;
}

void vgpu_made_free(struct vgpu_made *made) {
    free(made->args);
    *made = (struct vgpu_made){0};
}
