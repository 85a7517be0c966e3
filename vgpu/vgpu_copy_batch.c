/* Batches of copies, prefetches and discards: one after the other in the stream, which is one of the orders that a
 * device may choose. */
#include "vgpu/vgpu_engine.h"

static bool no_stream(cudaStream_t stream) {
    return !stream || stream == cudaStreamLegacy; /* the vendor takes no legacy default stream here */
}

/* Attributes hold from their first copy on; the first is the batch's first. */
static bool good_indices(const size_t *index, size_t attributes, size_t count) {
    for (size_t i = 0; i < attributes; i++)
        if (index[i] >= count || (i ? index[i] <= index[i - 1] : index[i] != 0)) return false;
    return attributes > 0;
}

static bool good_order(enum cudaMemcpySrcAccessOrder order) {
    return order == cudaMemcpySrcAccessOrderStream || order == cudaMemcpySrcAccessOrderDuringApiCall ||
           order == cudaMemcpySrcAccessOrderAny;
}

cudaError_t cudaMemcpyBatchAsync(void *const *to, const void *const *from, const size_t *bytes, size_t count,
                                 struct cudaMemcpyAttributes *attributes, size_t *index, size_t number,
                                 cudaStream_t stream) {
    cudaError_t e = cudaSuccess;
    if (!to || !from || !bytes || !count || !attributes || !index || no_stream(stream) ||
        !good_indices(index, number, count))
        return cudaErrorInvalidValue;
    for (size_t i = 0; i < number; i++)
        if (!good_order(attributes[i].srcAccessOrder)) return cudaErrorInvalidValue;
    for (size_t i = 0; i < count; i++)
        if (!to[i] || !from[i] || !bytes[i]) return cudaErrorInvalidValue;
    for (size_t i = 0; i < count && !e; i++) e = cudaMemcpyAsync(to[i], from[i], bytes[i], cudaMemcpyDefault, stream);
    return e;
}

static struct cudaPitchedPtr operand(const struct cudaMemcpy3DOperand *o, const struct cudaExtent *e) {
    size_t row = o->op.ptr.rowLength ? o->op.ptr.rowLength : e->width;
    size_t rows = o->op.ptr.layerHeight ? o->op.ptr.layerHeight : e->height;
    return (struct cudaPitchedPtr){o->op.ptr.ptr, row, e->width, rows};
}

static cudaError_t copy_op(const struct cudaMemcpy3DBatchOp *op, cudaStream_t stream) {
    struct cudaMemcpy3DParms p = {.srcPtr = operand(&op->src, &op->extent),
                                  .dstPtr = operand(&op->dst, &op->extent),
                                  .extent = op->extent,
                                  .kind = cudaMemcpyDefault};
    return cudaMemcpy3DAsync(&p, stream);
}

cudaError_t cudaMemcpy3DBatchAsync(size_t count, struct cudaMemcpy3DBatchOp *list, unsigned long long flags,
                                   cudaStream_t stream) {
    cudaError_t e = cudaSuccess;
    if (!count || !list || flags || no_stream(stream)) return cudaErrorInvalidValue;
    for (size_t i = 0; i < count; i++) {
        const struct cudaExtent *x = &list[i].extent;
        if (!x->width || !x->height || !x->depth || !good_order(list[i].srcAccessOrder)) return cudaErrorInvalidValue;
        if (list[i].src.type != cudaMemcpyOperandTypePointer || list[i].dst.type != cudaMemcpyOperandTypePointer)
            return cudaErrorNotSupported; /* arrays */
    }
    for (size_t i = 0; i < count && !e; i++) e = copy_op(&list[i], stream);
    return e;
}

/* Discarded memory may hold anything: what it held before, too. */
static cudaError_t check_ranges(void **address, const size_t *bytes, size_t count, unsigned long long flags,
                                cudaStream_t stream) {
    if (!address || !bytes || !count || flags || no_stream(stream)) return cudaErrorInvalidValue;
    for (size_t i = 0; i < count; i++)
        if (!bytes[i] || vgpu_side_of(address[i], bytes[i]) != VGPU_MANAGED) return cudaErrorInvalidValue;
    return cudaSuccess;
}

cudaError_t cudaMemDiscardBatchAsync(void **address, size_t *bytes, size_t count, unsigned long long flags,
                                     cudaStream_t stream) {
    return check_ranges(address, bytes, count, flags, stream);
}

cudaError_t cudaMemPrefetchBatchAsync(void **address, size_t *bytes, size_t count, struct cudaMemLocation *places,
                                      size_t *index, size_t number, unsigned long long flags, cudaStream_t stream) {
    cudaError_t e = check_ranges(address, bytes, count, flags, stream);
    if (e || !places || !index || !good_indices(index, number, count)) return e ? e : cudaErrorInvalidValue;
    for (size_t i = 0, at = 0; i < count && !e; i++) {
        while (at + 1 < number && index[at + 1] <= i) at++;
        e = cudaMemPrefetchAsync(address[i], bytes[i], places[at], 0, stream);
    }
    return e;
}

cudaError_t cudaMemDiscardAndPrefetchBatchAsync(void **address, size_t *bytes, size_t count,
                                                struct cudaMemLocation *places, size_t *index, size_t number,
                                                unsigned long long flags, cudaStream_t stream) {
    return cudaMemPrefetchBatchAsync(address, bytes, count, places, index, number, flags, stream);
}
