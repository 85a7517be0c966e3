/* Copies and memsets. Everything is a copy of `height` rows of `width` bytes.
 * Host memory by the runtime's rules ("API synchronization behavior"): a synchronous copy that touches the host waits; an
 * asynchronous one from pageable memory takes the bytes before it returns; one to pageable memory, or between host
 * buffers, waits; between device buffers and for memsets even the synchronous form returns at once. */
#include "vgpu/vgpu_engine.h"

#include <stdlib.h>
#include <string.h>

struct copy {
    char *to;
    const char *from;
    size_t to_pitch, from_pitch, width, height;
    void *staging; /* freed when done */
};

/* Bytes from the first to the last of the rows; false: more than there are addresses. */
static bool extent(size_t pitch, size_t width, size_t height, size_t *bytes)
{
    return !__builtin_mul_overflow(pitch, height - 1, bytes) && !__builtin_add_overflow(*bytes, width, bytes);
}

static void move(const struct copy *c)
{
    if (c->width == c->to_pitch && c->width == c->from_pitch) {
        memmove(c->to, c->from, c->width * c->height);
        return;
    }
    for (size_t y = 0; y < c->height; y++)
        memmove(c->to + y * c->to_pitch, c->from + y * c->from_pitch, c->width);
}

/* The device's half of a copy may have been released in another stream since it was queued. */
static bool still_there(const void *address, size_t pitch, const struct copy *c)
{
    size_t bytes;
    if (extent(pitch, c->width, c->height, &bytes) && vgpu_side_of(address, bytes) != VGPU_BAD)
        return true;
    vgpu_fault("a copy", address, bytes);
    return false;
}

static void run_copy(void *args)
{
    struct copy *c = args;
    if (still_there(c->to, c->to_pitch, c) && (c->staging || still_there(c->from, c->from_pitch, c)))
        move(c);
    free(c->staging);
}

static bool is_host(enum vgpu_side s)
{
    return s == VGPU_PAGEABLE || s == VGPU_PINNED;
}

/* Is memory on that side what the direction of the copy says? Pinned and managed memory is both. */
static bool agrees(enum vgpu_side side, bool device)
{
    return device ? side != VGPU_PAGEABLE && side != VGPU_BAD : side != VGPU_DEVICE && side != VGPU_BAD;
}

static cudaError_t check(const struct copy *c, enum cudaMemcpyKind kind, enum vgpu_side *to, enum vgpu_side *from)
{
    size_t a, b;
    if ((unsigned)kind > cudaMemcpyDefault)
        return cudaErrorInvalidMemcpyDirection;
    if (c->width > c->to_pitch || c->width > c->from_pitch)
        return cudaErrorInvalidPitchValue;
    if (!c->to || !c->from || !extent(c->to_pitch, c->width, c->height, &a) || !extent(c->from_pitch, c->width, c->height, &b))
        return cudaErrorInvalidValue;
    *to = vgpu_side_of(c->to, a);
    *from = vgpu_side_of(c->from, b);
    bool any = kind == cudaMemcpyDefault;
    bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (*to == VGPU_BAD || *from == VGPU_BAD || (!any && (!agrees(*to, to_device) || !agrees(*from, from_device))))
        return cudaErrorInvalidValue;
    return cudaSuccess;
}

/* Packs the source rows into memory of our own; false: there is none, and the copy has to be waited for. */
static bool stage(struct copy *c)
{
    char *own = malloc(c->width * c->height);
    if (!own)
        return false;
    move(&(struct copy){own, c->from, c->width, c->from_pitch, c->width, c->height, NULL});
    c->from = c->staging = own;
    c->from_pitch = c->width;
    return true;
}

static cudaError_t copy(struct copy c, enum cudaMemcpyKind kind, cudaStream_t stream, bool synchronous)
{
    enum vgpu_side to, from;
    if (!c.width || !c.height)
        return cudaSuccess;
    cudaError_t e = check(&c, kind, &to, &from);
    if (e)
        return e;
    bool host = is_host(to) || is_host(from);
    bool wait = synchronous ? host || to == VGPU_MANAGED || from == VGPU_MANAGED : to == VGPU_PAGEABLE || (is_host(to) && is_host(from));
    if (!wait && from == VGPU_PAGEABLE)
        wait = !stage(&c);
    struct vgpu_work w = {.run = run_copy, .args = &c, .bytes = sizeof c};
    e = wait ? vgpu_submit_and_wait(stream, &w) : vgpu_submit(stream, &w, NULL);
    if (e && !wait)
        free(c.staging);
    return e;
}

static struct copy flat(void *to, const void *from, size_t bytes)
{
    return (struct copy){to, from, bytes, bytes, bytes, 1, NULL};
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    return copy(flat(to, from, bytes), kind, cudaStreamLegacy, true);
}

cudaError_t cudaMemcpy_ptds(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    return copy(flat(to, from, bytes), kind, cudaStreamPerThread, true);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    return copy(flat(to, from, bytes), kind, stream, false);
}

cudaError_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
                         enum cudaMemcpyKind kind)
{
    return copy((struct copy){to, from, to_pitch, from_pitch, width, height, NULL}, kind, cudaStreamLegacy, true);
}

cudaError_t cudaMemcpy2D_ptds(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
                              enum cudaMemcpyKind kind)
{
    return copy((struct copy){to, from, to_pitch, from_pitch, width, height, NULL}, kind, cudaStreamPerThread, true);
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
                              enum cudaMemcpyKind kind, cudaStream_t stream)
{
    return copy((struct copy){to, from, to_pitch, from_pitch, width, height, NULL}, kind, stream, false);
}

cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t bytes, cudaStream_t stream)
{
    if (to_device || from_device)
        return cudaErrorInvalidDevice;
    return copy(flat(to, from, bytes), cudaMemcpyDeviceToDevice, stream, false);
}

cudaError_t cudaMemcpyPeer(void *to, int to_device, const void *from, int from_device, size_t bytes)
{
    return cudaMemcpyPeerAsync(to, to_device, from, from_device, bytes, cudaStreamLegacy);
}

struct fill {
    char *to;
    size_t pitch, width, height;
    unsigned char value;
};

static void run_fill(void *args)
{
    struct fill *f = args;
    size_t bytes;
    if (!extent(f->pitch, f->width, f->height, &bytes) || !vgpu_device_can(f->to, bytes)) {
        vgpu_fault("a memset", f->to, f->width);
        return;
    }
    if (f->pitch == f->width) {
        memset(f->to, f->value, bytes);
        return;
    }
    for (size_t y = 0; y < f->height; y++)
        memset(f->to + y * f->pitch, f->value, f->width);
}

static cudaError_t fill(void *to, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream)
{
    size_t bytes;
    if (!width || !height)
        return cudaSuccess;
    if (width > pitch)
        return cudaErrorInvalidPitchValue;
    if (!to || !extent(pitch, width, height, &bytes) || !vgpu_device_can(to, bytes))
        return cudaErrorInvalidValue;
    struct fill f = {to, pitch, width, height, (unsigned char)value};
    return vgpu_submit(stream, &(struct vgpu_work){.run = run_fill, .args = &f, .bytes = sizeof f}, NULL);
}

cudaError_t cudaMemset(void *to, int value, size_t bytes)
{
    return fill(to, bytes, value, bytes, 1, cudaStreamLegacy);
}

cudaError_t cudaMemset_ptds(void *to, int value, size_t bytes)
{
    return fill(to, bytes, value, bytes, 1, cudaStreamPerThread);
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    return fill(to, bytes, value, bytes, 1, stream);
}

cudaError_t cudaMemset2D(void *to, size_t pitch, int value, size_t width, size_t height)
{
    return fill(to, pitch, value, width, height, cudaStreamLegacy);
}

cudaError_t cudaMemset2D_ptds(void *to, size_t pitch, int value, size_t width, size_t height)
{
    return fill(to, pitch, value, width, height, cudaStreamPerThread);
}

cudaError_t cudaMemset2DAsync(void *to, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream)
{
    return fill(to, pitch, value, width, height, stream);
}
