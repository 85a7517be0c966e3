/* Records of the runtime's calls. */
#include "preload/facts.h"
#include "preload/fill.h"

/* RECORD(r, ALLOC, alloc, stream): r is the record in place, or the function returns: the ring was full. */
#define RECORD(r, EV, ev, stream)                                               \
    struct acct_ev_##ev *r = hook_record(k, ACCT_EV_##EV, sizeof *r, (stream)); \
    if (!r) return

/* Sizes come from the program: one that does not fit into 63 bits is a failed call's, and is shown as not known. */
static int64_t bytes_of(size_t n) {
    return n > INT64_MAX ? ACCT_NULL_I64 : (int64_t)n;
}

static int64_t product(size_t a, size_t b) {
    size_t n;
    return __builtin_mul_overflow(a, b, &n) ? ACCT_NULL_I64 : bytes_of(n);
}

static int64_t product3(size_t a, size_t b, size_t c) {
    size_t n;
    return __builtin_mul_overflow(a, b, &n) ? ACCT_NULL_I64 : product(n, c);
}

/* ---- memory -------------------------------------------------------------------------------------------------- */

static void alloc(struct hook_call *k, uint64_t address, int64_t bytes, uint32_t memory, uint64_t stream) {
    if (memory == ACCT_memory_ASYNC) {
        facts_note_pool();
        hook_device_of_memory(k, (const void *)(uintptr_t)address);
    }
    RECORD(r, ALLOC, alloc, stream);
    r->address = address;
    r->bytes = bytes;
    r->memory = memory;
    hook_commit(k);
}

void fill_alloc(struct hook_call *k, void *const *at, size_t bytes, uint32_t memory, uint64_t stream) {
    /* size 0 succeeds and may leave the pointer as it was */
    alloc(k, k->status == 0 && bytes ? ADDRESS(*at) : 0, bytes_of(bytes), memory, stream);
}

void fill_alloc_from_pool(struct hook_call *k, void *const *at, size_t bytes, cudaMemPool_t pool, uint64_t stream) {
    k->pool = ADDRESS(pool);
    fill_alloc(k, at, bytes, ACCT_memory_ASYNC, stream);
}

void fill_alloc_pitch(struct hook_call *k, void *const *at, const size_t *pitch, size_t width, size_t height) {
    int some = k->status == 0 && width && height;
    alloc(k, some ? ADDRESS(*at) : 0, product(some ? *pitch : width, height), ACCT_memory_DEVICE, NO_STREAM);
}

void fill_alloc_3d(struct hook_call *k, const struct cudaPitchedPtr *p, struct cudaExtent e) {
    int some = k->status == 0 && e.width && e.height && e.depth;
    alloc(k, some ? ADDRESS(p->ptr) : 0, product3(some ? p->pitch : e.width, e.height, e.depth), ACCT_memory_DEVICE,
          NO_STREAM);
}

/* An array's layout is opaque: the bytes are those of its elements. A dimension of 0 is one that the array does not
 * have. */
void fill_alloc_array(struct hook_call *k, void *const *at, const struct cudaChannelFormatDesc *d, size_t width,
                      size_t height, size_t depth, unsigned levels) {
    if (k->status) {
        alloc(k, 0, ACCT_NULL_I64, ACCT_memory_ARRAY, NO_STREAM);
        return;
    }
    int64_t element = (d->x + d->y + d->z + d->w) / 8, bytes = 0;
    for (unsigned l = 0; l < levels && l < 64; l++) {
        size_t w = width >> l, h = height >> l, z = depth >> l;
        bytes += product3(w ? w : 1, h ? h : 1, z ? z : 1) * element;
    }
    alloc(k, ADDRESS(*at), bytes, ACCT_memory_ARRAY, NO_STREAM);
}

void fill_register(struct hook_call *k, void *at, size_t bytes) {
    alloc(k, k->status == 0 ? ADDRESS(at) : 0, bytes_of(bytes), ACCT_memory_REGISTERED, NO_STREAM);
}

void fill_free(struct hook_call *k, const void *at, uint32_t memory, uint64_t stream) {
    RECORD(r, FREE, free, stream);
    r->address = ADDRESS(at);
    r->memory = memory;
    hook_commit(k);
}

/* ---- copies -------------------------------------------------------------------------------------------------- */

static uint32_t direction(enum cudaMemcpyKind kind) {
    switch (kind) {
    case cudaMemcpyHostToHost:
        return ACCT_direction_H2H;
    case cudaMemcpyHostToDevice:
        return ACCT_direction_H2D;
    case cudaMemcpyDeviceToHost:
        return ACCT_direction_D2H;
    case cudaMemcpyDeviceToDevice:
        return ACCT_direction_D2D;
    case cudaMemcpyDefault:
        return ACCT_direction_DEFAULT;
    default:
        return 0;
    }
}

struct rows {
    int64_t width, height, dst_pitch, src_pitch; /* bytes; all null for a plain copy */
};
static const struct rows plain = {ACCT_NULL_I64, ACCT_NULL_I64, ACCT_NULL_I64, ACCT_NULL_I64};

struct devices {
    int32_t dst, src;
};
static const struct devices no_devices = {ACCT_NULL_I32, ACCT_NULL_I32};

static void copy(struct hook_call *k, uint64_t dst, uint64_t src, int64_t bytes, uint32_t way, struct rows rows,
                 struct devices devices, uint64_t stream) {
    RECORD(r, COPY, copy, stream);
    r->dst = dst;
    r->src = src;
    r->bytes = bytes;
    r->direction = way;
    r->width_bytes = rows.width;
    r->height = rows.height;
    r->dst_pitch_bytes = rows.dst_pitch;
    r->src_pitch_bytes = rows.src_pitch;
    r->dst_device = devices.dst;
    r->src_device = devices.src;
    r->external = k->external;
    hook_commit(k);
}

void fill_copy(struct hook_call *k, const void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind,
               uint64_t stream) {
    copy(k, ADDRESS(dst), ADDRESS(src), bytes_of(bytes), direction(kind), plain, no_devices, stream);
}

void fill_copy_2d(struct hook_call *k, const void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                  size_t width, size_t height, enum cudaMemcpyKind kind, uint64_t stream) {
    struct rows rows = {bytes_of(width), bytes_of(height), bytes_of(dst_pitch), bytes_of(src_pitch)};
    copy(k, ADDRESS(dst), ADDRESS(src), product(width, height), direction(kind), rows, no_devices, stream);
}

void fill_copy_rows(struct hook_call *k, const void *dst, int64_t dst_pitch, const void *src, int64_t src_pitch,
                    int64_t width, int64_t rows, enum cudaMemcpyKind kind, uint64_t stream) {
    int64_t bytes;
    struct rows shape = {width, rows, dst_pitch, src_pitch};
    if (__builtin_mul_overflow(width, rows, &bytes) || bytes < 0) bytes = ACCT_NULL_I64;
    copy(k, ADDRESS(dst), ADDRESS(src), bytes, direction(kind),
         width == dst_pitch && width == src_pitch ? plain : shape, no_devices, stream);
}

void fill_copy_peer(struct hook_call *k, const void *dst, int dst_device, const void *src, int src_device, size_t bytes,
                    uint64_t stream) {
    struct devices devices = {dst_device, src_device};
    copy(k, ADDRESS(dst), ADDRESS(src), bytes_of(bytes), ACCT_direction_D2D, plain, devices, stream);
}

/* Extents count elements as soon as an array takes part (the vendor's rule), bytes otherwise. */
static size_t element_bytes(cudaArray_t array) {
    typedef cudaError_t info_fn(struct cudaChannelFormatDesc *, struct cudaExtent *, unsigned *, cudaArray_t);
    info_fn *info = (info_fn *)real_find_quietly("cudaArrayGetInfo", "cudart");
    struct cudaChannelFormatDesc d;
    if (!info || info(&d, NULL, NULL, array) != cudaSuccess) return 0;
    return (size_t)(d.x + d.y + d.z + d.w) / 8;
}

static uint64_t side_3d(cudaArray_t array, struct cudaPitchedPtr p, struct cudaPos at) {
    return array ? ADDRESS(array) : ADDRESS(p.ptr) + (at.z * p.ysize + at.y) * p.pitch + at.x;
}

static void copy_3d(struct hook_call *k, uint64_t dst, uint64_t src, cudaArray_t array, struct cudaExtent e,
                    uint32_t way, size_t dst_pitch, size_t src_pitch, struct devices devices, uint64_t stream) {
    size_t element = array && k->status == 0 ? element_bytes(array) : 1;
    int64_t width = element ? product(e.width, element) : ACCT_NULL_I64;
    int64_t bytes = width < 0 ? ACCT_NULL_I64 : product3((size_t)width, e.height, e.depth);
    struct rows rows = {width, product(e.height, e.depth), dst_pitch ? bytes_of(dst_pitch) : ACCT_NULL_I64,
                        src_pitch ? bytes_of(src_pitch) : ACCT_NULL_I64};
    copy(k, dst, src, bytes, way, rows, devices, stream);
}

void fill_copy_3d(struct hook_call *k, const struct cudaMemcpy3DParms *p, uint64_t stream) {
    if (k->status) { /* what p points to may be the reason */
        copy(k, 0, 0, ACCT_NULL_I64, 0, plain, no_devices, stream);
        return;
    }
    copy_3d(k, side_3d(p->dstArray, p->dstPtr, p->dstPos), side_3d(p->srcArray, p->srcPtr, p->srcPos),
            p->dstArray ? p->dstArray : p->srcArray, p->extent, direction(p->kind), p->dstArray ? 0 : p->dstPtr.pitch,
            p->srcArray ? 0 : p->srcPtr.pitch, no_devices, stream);
}

void fill_copy_3d_peer(struct hook_call *k, const struct cudaMemcpy3DPeerParms *p, uint64_t stream) {
    if (k->status) {
        copy(k, 0, 0, ACCT_NULL_I64, ACCT_direction_D2D, plain, no_devices, stream);
        return;
    }
    struct devices devices = {p->dstDevice, p->srcDevice};
    copy_3d(k, side_3d(p->dstArray, p->dstPtr, p->dstPos), side_3d(p->srcArray, p->srcPtr, p->srcPos),
            p->dstArray ? p->dstArray : p->srcArray, p->extent, ACCT_direction_D2D, p->dstArray ? 0 : p->dstPtr.pitch,
            p->srcArray ? 0 : p->srcPtr.pitch, devices, stream);
}

/* Device address of a symbol; 0 not known. */
static uint64_t symbol_address(struct hook_call *k, const void *symbol, size_t offset) {
    typedef cudaError_t symbol_fn(void **, const void *);
    symbol_fn *ask = k->status == 0 ? (symbol_fn *)real_find_quietly("cudaGetSymbolAddress", "cudart") : NULL;
    void *p;
    return ask && ask(&p, symbol) == cudaSuccess ? ADDRESS(p) + offset : 0;
}

void fill_copy_to_symbol(struct hook_call *k, const void *symbol, const void *src, size_t bytes, size_t offset,
                         enum cudaMemcpyKind kind, uint64_t stream) {
    copy(k, symbol_address(k, symbol, offset), ADDRESS(src), bytes_of(bytes), direction(kind), plain, no_devices,
         stream);
}

void fill_copy_from_symbol(struct hook_call *k, const void *dst, const void *symbol, size_t bytes, size_t offset,
                           enum cudaMemcpyKind kind, uint64_t stream) {
    copy(k, ADDRESS(dst), symbol_address(k, symbol, offset), bytes_of(bytes), direction(kind), plain, no_devices,
         stream);
}

/* ---- memsets ------------------------------------------------------------------------------------------------- */

static void set(struct hook_call *k, const void *dst, int value, int64_t bytes, int64_t width, int64_t height,
                int64_t pitch, uint64_t stream) {
    RECORD(r, MEMSET, memset, stream);
    r->dst = ADDRESS(dst);
    r->bytes = bytes;
    r->value = (uint32_t)value & 0xff; /* the runtime's memsets set bytes */
    r->element_bytes = 1;
    r->width_bytes = width;
    r->height = height;
    r->pitch_bytes = pitch;
    r->external = k->external;
    hook_commit(k);
}

void fill_memset(struct hook_call *k, const void *dst, int value, size_t bytes, uint64_t stream) {
    set(k, dst, value, bytes_of(bytes), ACCT_NULL_I64, ACCT_NULL_I64, ACCT_NULL_I64, stream);
}

void fill_memset_2d(struct hook_call *k, const void *dst, size_t pitch, int value, size_t width, size_t height,
                    uint64_t stream) {
    set(k, dst, value, product(width, height), bytes_of(width), bytes_of(height), bytes_of(pitch), stream);
}

void fill_memset_3d(struct hook_call *k, struct cudaPitchedPtr p, int value, struct cudaExtent e, uint64_t stream) {
    int rows = e.depth <= 1 || p.ysize == e.height; /* else the slices do not follow each other at one pitch */
    set(k, p.ptr, value, product3(e.width, e.height, e.depth), rows ? bytes_of(e.width) : ACCT_NULL_I64,
        rows ? product(e.height, e.depth) : ACCT_NULL_I64, rows ? bytes_of(p.pitch) : ACCT_NULL_I64, stream);
}

/* ---- order --------------------------------------------------------------------------------------------------- */

void fill_stream_create(struct hook_call *k, const cudaStream_t *s, unsigned flags, int priority) {
    RECORD(r, STREAM, stream, k->status == 0 ? ADDRESS(*s) : NO_STREAM);
    r->act = ACCT_stream_act_CREATE;
    r->flags = flags;
    r->priority = priority;
    r->event = 0;
    hook_commit(k);
}

void fill_stream(struct hook_call *k, uint32_t act, uint64_t stream, cudaEvent_t event) {
    RECORD(r, STREAM, stream, stream);
    r->act = act;
    r->flags = 0;
    r->priority = ACCT_NULL_I32;
    r->event = ADDRESS(event);
    hook_commit(k);
}

static void event_record(struct hook_call *k, uint32_t act, uint64_t event, uint64_t stream) {
    RECORD(r, EVENT, event, stream);
    r->act = act;
    r->event = event;
    hook_commit(k);
}

void fill_event_create(struct hook_call *k, const cudaEvent_t *event) {
    event_record(k, ACCT_event_act_CREATE, k->status == 0 ? ADDRESS(*event) : 0, NO_STREAM);
}

void fill_event(struct hook_call *k, uint32_t act, cudaEvent_t event, uint64_t stream) {
    event_record(k, act, ADDRESS(event), stream);
}

void fill_sync(struct hook_call *k, uint32_t scope, uint64_t stream, cudaEvent_t event) {
    RECORD(r, SYNC, sync, stream);
    r->scope = scope;
    r->event = ADDRESS(event);
    hook_commit(k);
}
