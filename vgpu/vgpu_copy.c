/* Copies and memsets. Everything is a copy of `depth` slices of `height` rows of `width` bytes.
 * Host memory by the runtime's rules ("API synchronization behavior"): a synchronous copy that touches the host waits;
 * an asynchronous one from pageable memory takes the bytes before it returns; one to pageable memory, or between host
 * buffers, waits; between device buffers and for memsets even the synchronous form returns at once. */
#include "vgpu/vgpu_graph.h"

#include <cupti.h>
#include <stdlib.h>
#include <string.h>

struct box {
    size_t width, height, depth; /* bytes, rows, slices */
};

struct side {
    char *p;
    size_t pitch, slice; /* bytes from row to row, from slice to slice */
};

struct copy {
    struct side to, from;
    struct box box;
    void *staging;    /* freed when done */
    uint8_t when_dry; /* enum dry_copy */
};

/* Of a dry run: nothing is known of what the device computes; what the host wrote is kept where the host can read it.
 */
enum dry_copy { DRY_NOTHING, DRY_ZEROS, DRY_MOVE };

/* Bytes from the first to the last of the box; false: more than there are addresses. */
static bool extent(const struct side *s, const struct box *b, size_t *bytes) {
    size_t slices;
    return !__builtin_mul_overflow(s->pitch, b->height - 1, bytes) &&
           !__builtin_mul_overflow(s->slice, b->depth - 1, &slices) && !__builtin_add_overflow(*bytes, slices, bytes) &&
           !__builtin_add_overflow(*bytes, b->width, bytes);
}

static bool dense(const struct side *s, const struct box *b) {
    return (b->height == 1 || s->pitch == b->width) && (b->depth == 1 || s->slice == b->width * b->height);
}

static void move(const struct copy *c) {
    const struct box *b = &c->box;
    if (dense(&c->to, b) && dense(&c->from, b)) {
        memmove(c->to.p, c->from.p, b->width * b->height * b->depth);
        return;
    }
    for (size_t z = 0; z < b->depth; z++)
        for (size_t y = 0; y < b->height; y++)
            memmove(c->to.p + z * c->to.slice + y * c->to.pitch, c->from.p + z * c->from.slice + y * c->from.pitch,
                    b->width);
}

/* The device's half of a copy may have been released in another stream since it was queued. */
static bool still_there(const struct side *s, const struct box *b) {
    size_t bytes;
    if (extent(s, b, &bytes) && vgpu_side_of(s->p, bytes) != VGPU_BAD) return true;
    vgpu_fault("a copy", s->p, bytes);
    return false;
}

static void run_copy(void *args) {
    struct copy *c = args;
    if (still_there(&c->to, &c->box) && (c->staging || still_there(&c->from, &c->box))) move(c);
    free(c->staging);
}

static void clear(const struct side *to, const struct box *b) {
    for (size_t z = 0; z < b->depth; z++)
        for (size_t y = 0; y < b->height; y++) memset(to->p + z * to->slice + y * to->pitch, 0, b->width);
}

static void run_dry_copy(void *args) {
    struct copy *c = args;
    if (still_there(&c->to, &c->box) && (c->staging || still_there(&c->from, &c->box))) {
        if (c->when_dry == DRY_MOVE) move(c);
        if (c->when_dry == DRY_ZEROS) clear(&c->to, &c->box);
    }
    free(c->staging);
}

static bool is_host(enum vgpu_side s) {
    return s == VGPU_PAGEABLE || s == VGPU_PINNED;
}

/* Is memory on that side what the direction of the copy says? Pinned and managed memory is both. */
static bool agrees(enum vgpu_side side, bool device) {
    return device ? side != VGPU_PAGEABLE && side != VGPU_BAD : side != VGPU_DEVICE && side != VGPU_BAD;
}

static cudaError_t check(const struct copy *c, enum cudaMemcpyKind kind, enum vgpu_side *to, enum vgpu_side *from) {
    size_t a, b;
    if ((unsigned)kind > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
    if (c->box.width > c->to.pitch || c->box.width > c->from.pitch) return cudaErrorInvalidPitchValue;
    if (!c->to.p || !c->from.p || !extent(&c->to, &c->box, &a) || !extent(&c->from, &c->box, &b))
        return cudaErrorInvalidValue;
    *to = vgpu_side_of(c->to.p, a);
    *from = vgpu_side_of(c->from.p, b);
    bool any = kind == cudaMemcpyDefault;
    bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (*to == VGPU_BAD || *from == VGPU_BAD || (!any && (!agrees(*to, to_device) || !agrees(*from, from_device))))
        return cudaErrorInvalidValue;
    return cudaSuccess;
}

/* Packs the source into memory of our own; false: there is none, and the copy has to be waited for. */
static bool stage(struct copy *c) {
    const struct box *b = &c->box;
    char *own = malloc(b->width * b->height * b->depth);
    if (!own) return false;
    struct side packed = {own, b->width, b->width * b->height};
    move(&(struct copy){.to = packed, .from = c->from, .box = *b});
    c->from = packed;
    c->staging = own;
    return true;
}

static uint8_t memory_kind(enum vgpu_side s) {
    switch (s) {
    case VGPU_PAGEABLE:
        return CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE;
    case VGPU_PINNED:
        return CUPTI_ACTIVITY_MEMORY_KIND_PINNED;
    case VGPU_MANAGED:
        return CUPTI_ACTIVITY_MEMORY_KIND_MANAGED;
    case VGPU_DEVICE:
        return CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
    default:
        return CUPTI_ACTIVITY_MEMORY_KIND_UNKNOWN;
    }
}

/* Between the memories of two devices? */
static bool crosses(const struct copy *c, enum vgpu_side to, enum vgpu_side from) {
    return to == VGPU_DEVICE && from == VGPU_DEVICE && vgpu_device_of(c->to.p) != vgpu_device_of(c->from.p);
}

/* Managed memory counts as the device's. */
static uint8_t copy_kind(enum vgpu_side to, enum vgpu_side from, bool peer) {
    if (peer) return CUPTI_ACTIVITY_MEMCPY_KIND_PTOP;
    if (is_host(from)) return is_host(to) ? CUPTI_ACTIVITY_MEMCPY_KIND_HTOH : CUPTI_ACTIVITY_MEMCPY_KIND_HTOD;
    return is_host(to) ? CUPTI_ACTIVITY_MEMCPY_KIND_DTOH : CUPTI_ACTIVITY_MEMCPY_KIND_DTOD;
}

static int64_t volume(const struct box *b) {
    return (int64_t)(b->width * b->height * b->depth);
}

static enum dry_copy dry_copy(enum vgpu_side to, enum vgpu_side from) {
    return to == VGPU_DEVICE ? DRY_NOTHING : is_host(from) ? DRY_MOVE : DRY_ZEROS;
}

/* Over the link if one side is the host's; within the device's memory each byte is read and written. */
static struct vgpu_amount amount_of(const struct box *b, enum vgpu_side to, enum vgpu_side from, bool peer) {
    double bytes = (double)volume(b);
    if (peer) return (struct vgpu_amount){.peer_bytes = bytes};
    if (is_host(to) != is_host(from)) return (struct vgpu_amount){.host_bytes = bytes};
    return (struct vgpu_amount){.bytes = is_host(to) ? 0 : 2 * bytes};
}

/* In a default stream, a copy between two devices begins when both have done all that was queued, and ends before
 * either goes on. */
static cudaError_t wait_for_both(const struct copy *c) {
    cudaError_t e = vgpu_wait_device(vgpu_device_of(c->to.p));
    return e ? e : vgpu_wait_device(vgpu_device_of(c->from.p));
}

static cudaError_t copy(struct copy c, enum cudaMemcpyKind kind, cudaStream_t stream, bool synchronous) {
    enum vgpu_side to, from;
    if (!c.box.width || !c.box.height || !c.box.depth) return cudaSuccess;
    cudaError_t e = check(&c, kind, &to, &from);
    bool peer = !e && crosses(&c, to, from), alone = peer && (!stream || stream == cudaStreamLegacy);
    if (!e && alone) e = wait_for_both(&c);
    if (e) return e;
    bool host = is_host(to) || is_host(from);
    bool wait = synchronous ? host || to == VGPU_MANAGED || from == VGPU_MANAGED
                            : to == VGPU_PAGEABLE || (is_host(to) && is_host(from));
    wait |= alone;
    c.when_dry = (uint8_t)dry_copy(to, from);
    bool read = !vgpu_profile()->dry || c.when_dry == DRY_MOVE;
    if (!synchronous && vgpu_capturing(stream)) /* the node reads and writes the host when it is launched */
        wait = false;
    else if (!wait && from == VGPU_PAGEABLE && read)
        wait = !stage(&c);
    struct vgpu_work w = {.run = run_copy,
                          .dry = run_dry_copy,
                          .args = &c,
                          .bytes = sizeof c,
                          .kind = VGPU_WORK_DEVICE,
                          .amount = amount_of(&c.box, to, from, peer),
                          .activity = {.kind = VGPU_ACTIVITY_COPY,
                                       .copy_kind = copy_kind(to, from, peer),
                                       .src_kind = memory_kind(from),
                                       .dst_kind = memory_kind(to),
                                       .asynchronous = !synchronous,
                                       .bytes = volume(&c.box)}};
    e = wait ? vgpu_submit_and_wait(stream, &w) : vgpu_submit(stream, &w, NULL);
    if (e && !wait) free(c.staging);
    return e;
}

static struct cudaPitchedPtr pitched(const struct side *s, const struct box *b) {
    size_t rows = s->slice && s->pitch ? s->slice / s->pitch : b->height;
    return (struct cudaPitchedPtr){s->p, s->pitch, b->width, rows};
}

bool vgpu_copy_params(const struct vgpu_work *w, struct cudaMemcpy3DParms *out) {
    const struct copy *c = w->args;
    if (w->run != run_copy) return false;
    *out = (struct cudaMemcpy3DParms){.srcPtr = pitched(&c->from, &c->box),
                                      .dstPtr = pitched(&c->to, &c->box),
                                      .extent = {c->box.width, c->box.height, c->box.depth},
                                      .kind = cudaMemcpyDefault};
    return true;
}

static struct copy flat(void *to, const void *from, size_t bytes) {
    return (struct copy){{to, bytes, 0}, {(char *)from, bytes, 0}, {bytes, 1, 1}, NULL, 0};
}

static struct copy rows(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height) {
    return (struct copy){{to, to_pitch, 0}, {(char *)from, from_pitch, 0}, {width, height, 1}, NULL, 0};
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    return copy(flat(to, from, bytes), kind, cudaStreamLegacy, true);
}

cudaError_t cudaMemcpy_ptds(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    return copy(flat(to, from, bytes), kind, cudaStreamPerThread, true);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
    return copy(flat(to, from, bytes), kind, stream, false);
}

cudaError_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
                         enum cudaMemcpyKind kind) {
    return copy(rows(to, to_pitch, from, from_pitch, width, height), kind, cudaStreamLegacy, true);
}

cudaError_t cudaMemcpy2D_ptds(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                              size_t height, enum cudaMemcpyKind kind) {
    return copy(rows(to, to_pitch, from, from_pitch, width, height), kind, cudaStreamPerThread, true);
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                              size_t height, enum cudaMemcpyKind kind, cudaStream_t stream) {
    return copy(rows(to, to_pitch, from, from_pitch, width, height), kind, stream, false);
}

/* Where a pitched pointer's box begins. Arrays are not implemented. */
static struct side corner(const struct cudaPitchedPtr *p, const struct cudaPos *at) {
    size_t slice = p->pitch * p->ysize;
    return (struct side){p->ptr ? (char *)p->ptr + at->z * slice + at->y * p->pitch + at->x : NULL, p->pitch, slice};
}

static cudaError_t copy_3d(const struct cudaMemcpy3DParms *p, cudaStream_t stream, bool synchronous) {
    if (!p || (p->srcArray && p->srcPtr.ptr) || (p->dstArray && p->dstPtr.ptr)) return cudaErrorInvalidValue;
    if (p->srcArray || p->dstArray) return cudaErrorNotSupported;
    struct copy c = {corner(&p->dstPtr, &p->dstPos),
                     corner(&p->srcPtr, &p->srcPos),
                     {p->extent.width, p->extent.height, p->extent.depth},
                     NULL,
                     0};
    return copy(c, p->kind, stream, synchronous);
}

cudaError_t cudaMemcpy3D(const struct cudaMemcpy3DParms *p) {
    return copy_3d(p, cudaStreamLegacy, true);
}

cudaError_t cudaMemcpy3D_ptds(const struct cudaMemcpy3DParms *p) {
    return copy_3d(p, cudaStreamPerThread, true);
}

cudaError_t cudaMemcpy3DAsync(const struct cudaMemcpy3DParms *p, cudaStream_t stream) {
    return copy_3d(p, stream, false);
}

/* Is memory where the program says? Memory that all devices share is anywhere. */
static bool lies_on(const void *p, int device) {
    int owner = vgpu_device_of(p);
    return owner < 0 || owner == device;
}

static cudaError_t check_places(const void *to, int to_device, const void *from, int from_device, size_t bytes) {
    if (!vgpu_is_device(to_device) || !vgpu_is_device(from_device)) return cudaErrorInvalidDevice;
    if (bytes && (!lies_on(to, to_device) || !lies_on(from, from_device))) return cudaErrorInvalidValue;
    return cudaSuccess;
}

cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t bytes,
                                cudaStream_t stream) {
    cudaError_t e = check_places(to, to_device, from, from_device, bytes);
    return e ? e : copy(flat(to, from, bytes), cudaMemcpyDefault, stream, false);
}

cudaError_t cudaMemcpyPeer(void *to, int to_device, const void *from, int from_device, size_t bytes) {
    return cudaMemcpyPeerAsync(to, to_device, from, from_device, bytes, cudaStreamLegacy);
}

static cudaError_t copy_3d_peer(const struct cudaMemcpy3DPeerParms *p, cudaStream_t stream) {
    if (!p) return cudaErrorInvalidValue;
    size_t bytes = p->extent.width && p->extent.height && p->extent.depth;
    cudaError_t e = check_places(p->dstPtr.ptr, p->dstDevice, p->srcPtr.ptr, p->srcDevice, bytes);
    struct cudaMemcpy3DParms all = {.srcArray = p->srcArray,
                                    .srcPos = p->srcPos,
                                    .srcPtr = p->srcPtr,
                                    .dstArray = p->dstArray,
                                    .dstPos = p->dstPos,
                                    .dstPtr = p->dstPtr,
                                    .extent = p->extent,
                                    .kind = cudaMemcpyDefault};
    return e ? e : copy_3d(&all, stream, false);
}

cudaError_t cudaMemcpy3DPeer(const struct cudaMemcpy3DPeerParms *p) {
    return copy_3d_peer(p, cudaStreamLegacy);
}

cudaError_t cudaMemcpy3DPeerAsync(const struct cudaMemcpy3DPeerParms *p, cudaStream_t stream) {
    return copy_3d_peer(p, stream);
}

struct fill {
    struct side to;
    struct box box;
    unsigned char value;
};

/* Of any device: a memset is done where the memory is. */
static bool may_fill(const void *p, size_t bytes) {
    enum vgpu_side side = vgpu_side_of(p, bytes);
    return side == VGPU_DEVICE || side == VGPU_PINNED || side == VGPU_MANAGED;
}

static bool still_in_reach(const struct fill *f) {
    size_t bytes;
    if (extent(&f->to, &f->box, &bytes) && may_fill(f->to.p, bytes)) return true;
    vgpu_fault("a memset", f->to.p, bytes);
    return false;
}

static void run_fill(void *args) {
    struct fill *f = args;
    if (!still_in_reach(f)) return;
    for (size_t z = 0; z < f->box.depth; z++)
        for (size_t y = 0; y < f->box.height; y++)
            memset(f->to.p + z * f->to.slice + y * f->to.pitch, f->value, f->box.width);
}

/* Dry: memory that the host can read is set, the device's own is not touched. */
static void run_dry_fill(void *args) {
    struct fill *f = args;
    if (still_in_reach(f) && vgpu_side_of(f->to.p, 1) != VGPU_DEVICE) run_fill(f);
}

static cudaError_t fill_box(struct side to, int value, struct box box, cudaStream_t stream, bool synchronous) {
    size_t bytes;
    if (!box.width || !box.height || !box.depth) return cudaSuccess;
    if (box.width > to.pitch) return cudaErrorInvalidPitchValue;
    if (!to.p || !extent(&to, &box, &bytes) || !may_fill(to.p, bytes)) return cudaErrorInvalidValue;
    struct fill f = {to, box, (unsigned char)value};
    struct vgpu_work w = {.run = run_fill,
                          .dry = run_dry_fill,
                          .args = &f,
                          .bytes = sizeof f,
                          .kind = VGPU_WORK_DEVICE,
                          .amount = {.bytes = (double)volume(&box)},
                          .activity = {.kind = VGPU_ACTIVITY_MEMSET,
                                       .dst_kind = memory_kind(vgpu_side_of(to.p, bytes)),
                                       .asynchronous = !synchronous,
                                       .value = f.value,
                                       .bytes = volume(&box)}};
    return vgpu_submit(stream, &w, NULL);
}

bool vgpu_fill_params(const struct vgpu_work *w, struct cudaMemsetParams *out) {
    const struct fill *f = w->args;
    if (w->run != run_fill) return false;
    *out = (struct cudaMemsetParams){.dst = f->to.p,
                                     .pitch = f->to.pitch,
                                     .value = f->value,
                                     .elementSize = 1,
                                     .width = f->box.width,
                                     .height = f->box.height};
    return true;
}

static cudaError_t fill(void *to, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream,
                        bool synchronous) {
    return fill_box((struct side){to, pitch, 0}, value, (struct box){width, height, 1}, stream, synchronous);
}

static cudaError_t fill_3d(struct cudaPitchedPtr to, int value, struct cudaExtent e, cudaStream_t stream,
                           bool synchronous) {
    return fill_box(corner(&to, &(struct cudaPos){0, 0, 0}), value, (struct box){e.width, e.height, e.depth}, stream,
                    synchronous);
}

cudaError_t cudaMemset3D(struct cudaPitchedPtr to, int value, struct cudaExtent e) {
    return fill_3d(to, value, e, cudaStreamLegacy, true);
}

cudaError_t cudaMemset3D_ptds(struct cudaPitchedPtr to, int value, struct cudaExtent e) {
    return fill_3d(to, value, e, cudaStreamPerThread, true);
}

cudaError_t cudaMemset3DAsync(struct cudaPitchedPtr to, int value, struct cudaExtent e, cudaStream_t stream) {
    return fill_3d(to, value, e, stream, false);
}

cudaError_t cudaMemset(void *to, int value, size_t bytes) {
    return fill(to, bytes, value, bytes, 1, cudaStreamLegacy, true);
}

cudaError_t cudaMemset_ptds(void *to, int value, size_t bytes) {
    return fill(to, bytes, value, bytes, 1, cudaStreamPerThread, true);
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream) {
    return fill(to, bytes, value, bytes, 1, stream, false);
}

cudaError_t cudaMemset2D(void *to, size_t pitch, int value, size_t width, size_t height) {
    return fill(to, pitch, value, width, height, cudaStreamLegacy, true);
}

cudaError_t cudaMemset2D_ptds(void *to, size_t pitch, int value, size_t width, size_t height) {
    return fill(to, pitch, value, width, height, cudaStreamPerThread, true);
}

cudaError_t cudaMemset2DAsync(void *to, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream) {
    return fill(to, pitch, value, width, height, stream, false);
}
