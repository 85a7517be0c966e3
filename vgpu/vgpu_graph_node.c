/* What a node does, made of parameters: by the very call that would do it at once, whose work item is kept. */
#include "vgpu/vgpu_graph.h"
#include "vgpu/vgpu_run.h"

#include <stdlib.h>
#include <string.h>

/* Makes out->made by `call`. */
#define MAKE(out, node_type, call)                               \
    do {                                                         \
        *(out) = (struct vgpu_body){.type = (node_type)};        \
        vgpu_make_begin(&(out)->made);                           \
        cudaError_t made_ = vgpu_make_end(&(out)->made, (call)); \
        if (made_) return made_;                                 \
    } while (0)

void vgpu_body_describe(struct vgpu_body *b) {
    if (!b->made.args) return;
    switch (b->type) {
    case cudaGraphNodeTypeMemcpy:
        vgpu_copy_params(&b->made.work, &b->memcpy);
        break;
    case cudaGraphNodeTypeMemset:
        vgpu_fill_params(&b->made.work, &b->memset);
        break;
    case cudaGraphNodeTypeHost:
        if (b->made.work.bytes == sizeof b->host) memcpy(&b->host, b->made.args, sizeof b->host);
        break;
    default:
        break;
    }
}

cudaError_t vgpu_body_kernel(const struct cudaKernelNodeParams *p, struct vgpu_body *out) {
    if (!p || (p->kernelParams && p->extra)) return cudaErrorInvalidValue;
    if (p->extra) {
        vgpu_say("kernel nodes: arguments in the form of `extra` are not implemented");
        return cudaErrorNotSupported;
    }
    MAKE(out, cudaGraphNodeTypeKernel,
         cudaLaunchKernel(p->func, p->gridDim, p->blockDim, p->kernelParams, p->sharedMemBytes, NULL));
    return cudaSuccess;
}

cudaError_t vgpu_body_memcpy(const struct cudaMemcpy3DParms *p, struct vgpu_body *out) {
    if (!p) return cudaErrorInvalidValue;
    MAKE(out, cudaGraphNodeTypeMemcpy, cudaMemcpy3DAsync(p, NULL));
    out->memcpy = *p;
    return cudaSuccess;
}

cudaError_t vgpu_body_memcpy_flat(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                                  struct vgpu_body *out) {
    MAKE(out, cudaGraphNodeTypeMemcpy, cudaMemcpyAsync(to, from, bytes, kind, NULL));
    vgpu_body_describe(out);
    out->memcpy.kind = kind;
    return cudaSuccess;
}

cudaError_t vgpu_body_to_symbol(const void *symbol, const void *from, size_t bytes, size_t offset,
                                enum cudaMemcpyKind kind, struct vgpu_body *out) {
    MAKE(out, cudaGraphNodeTypeMemcpy, cudaMemcpyToSymbolAsync(symbol, from, bytes, offset, kind, NULL));
    vgpu_body_describe(out);
    return cudaSuccess;
}

cudaError_t vgpu_body_from_symbol(void *to, const void *symbol, size_t bytes, size_t offset, enum cudaMemcpyKind kind,
                                  struct vgpu_body *out) {
    MAKE(out, cudaGraphNodeTypeMemcpy, cudaMemcpyFromSymbolAsync(to, symbol, bytes, offset, kind, NULL));
    vgpu_body_describe(out);
    return cudaSuccess;
}

/* ---- memsets of elements of 2 and 4 bytes, which the runtime has in graphs alone ---- */

static uint64_t pattern_extent(const struct cudaMemsetParams *p) {
    uint64_t rows = 0, row = (uint64_t)p->width * p->elementSize;
    if (__builtin_mul_overflow((uint64_t)p->pitch, (uint64_t)(p->height ? p->height - 1 : 0), &rows)) return UINT64_MAX;
    return __builtin_add_overflow(rows, row, &rows) ? UINT64_MAX : rows;
}

static void run_pattern(void *args) {
    const struct cudaMemsetParams *p = args;
    if (!vgpu_device_can(p->dst, pattern_extent(p))) {
        vgpu_fault("a memset", p->dst, pattern_extent(p));
        return;
    }
    for (size_t y = 0; y < p->height; y++)
        for (size_t x = 0; x < p->width; x++)
            memcpy((char *)p->dst + y * p->pitch + x * p->elementSize, &p->value, p->elementSize);
}

static cudaError_t submit_pattern(const struct cudaMemsetParams *p) {
    if (!vgpu_device_can(p->dst, pattern_extent(p))) return cudaErrorInvalidValue;
    double bytes = (double)p->width * p->elementSize * (double)p->height;
    struct vgpu_work w = {.run = run_pattern,
                          .args = p,
                          .bytes = sizeof *p,
                          .kind = VGPU_WORK_DEVICE,
                          .amount = {.bytes = bytes},
                          .activity = {.kind = VGPU_ACTIVITY_MEMSET,
                                       .dst_kind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE,
                                       .asynchronous = 1,
                                       .value = p->value,
                                       .bytes = (int64_t)bytes}};
    return vgpu_submit(NULL, &w, NULL);
}

static cudaError_t submit_memset(const struct cudaMemsetParams *p) {
    if (p->elementSize != 1) return submit_pattern(p);
    if (p->height == 1) return cudaMemsetAsync(p->dst, (int)p->value, p->width, NULL);
    return cudaMemset2DAsync(p->dst, p->pitch, (int)p->value, p->width, p->height, NULL);
}

cudaError_t vgpu_body_memset(const struct cudaMemsetParams *p, struct vgpu_body *out) {
    if (!p || !p->dst || (p->elementSize != 1 && p->elementSize != 2 && p->elementSize != 4) || !p->width ||
        !p->height || (p->height > 1 && p->pitch < p->width * p->elementSize) || (uintptr_t)p->dst % p->elementSize)
        return cudaErrorInvalidValue;
    MAKE(out, cudaGraphNodeTypeMemset, submit_memset(p));
    out->memset = *p;
    return cudaSuccess;
}

cudaError_t vgpu_body_host(const struct cudaHostNodeParams *p, struct vgpu_body *out) {
    if (!p) return cudaErrorInvalidValue;
    MAKE(out, cudaGraphNodeTypeHost, cudaLaunchHostFunc(NULL, p->fn, p->userData));
    out->host = *p;
    return cudaSuccess;
}

cudaError_t vgpu_body_event(enum cudaGraphNodeType type, cudaEvent_t event, struct vgpu_body *out) {
    pthread_mutex_lock(&vgpu_lock);
    bool known = vgpu_event_is(event);
    pthread_mutex_unlock(&vgpu_lock);
    *out = (struct vgpu_body){.type = type, .event = event};
    return known ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

cudaError_t vgpu_body_child(cudaGraph_t graph, struct vgpu_body *out) {
    *out = (struct vgpu_body){.type = cudaGraphNodeTypeGraph};
    pthread_mutex_lock(&vgpu_lock);
    struct CUgraph_st *g = vgpu_graph_find(graph);
    cudaError_t e = !g          ? cudaErrorInvalidValue
                    : g->memory ? cudaErrorNotSupported
                                : vgpu_graph_copy(g, false, &out->child);
    pthread_mutex_unlock(&vgpu_lock);
    vgpu_graph_tell_all();
    return e;
}

static cudaError_t kernel_v2(const struct cudaKernelNodeParamsV2 *p, struct vgpu_body *out) {
    struct cudaKernelNodeParams plain = {p->func,           p->gridDim,      p->blockDim,
                                         p->sharedMemBytes, p->kernelParams, p->extra};
    return vgpu_body_kernel(&plain, out);
}

static cudaError_t memset_v2(const struct cudaMemsetParamsV2 *p, struct vgpu_body *out) {
    struct cudaMemsetParams plain = {p->dst, p->pitch, p->value, p->elementSize, p->width, p->height};
    return vgpu_body_memset(&plain, out);
}

cudaError_t vgpu_body_generic(const struct cudaGraphNodeParams *p, struct vgpu_body *out) {
    *out = (struct vgpu_body){.type = cudaGraphNodeTypeEmpty};
    switch (p->type) {
    case cudaGraphNodeTypeKernel:
        return kernel_v2(&p->kernel, out);
    case cudaGraphNodeTypeMemcpy:
        return vgpu_body_memcpy(&p->memcpy.copyParams, out);
    case cudaGraphNodeTypeMemset:
        return memset_v2(&p->memset, out);
    case cudaGraphNodeTypeHost:
        return vgpu_body_host(&(struct cudaHostNodeParams){p->host.fn, p->host.userData}, out);
    case cudaGraphNodeTypeGraph:
        return vgpu_body_child(p->graph.graph, out);
    case cudaGraphNodeTypeEventRecord:
        return vgpu_body_event(p->type, p->eventRecord.event, out);
    case cudaGraphNodeTypeWaitEvent:
        return vgpu_body_event(p->type, p->eventWait.event, out);
    case cudaGraphNodeTypeEmpty:
        return cudaSuccess;
    default:
        vgpu_say("graph nodes of type %d are not implemented", (int)p->type);
        return cudaErrorNotSupported;
    }
}

/* ---- the runtime's functions ---- */

#define ADD(make)                                                                     \
    do {                                                                              \
        struct vgpu_body body;                                                        \
        cudaError_t e_ = (make);                                                      \
        return e_ ? e_ : vgpu_node_add_checked(out, graph, from, NULL, count, &body); \
    } while (0)

cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t *out, cudaGraph_t graph, const cudaGraphNode_t *from, size_t count,
                                   const struct cudaKernelNodeParams *p) {
    ADD(vgpu_body_kernel(p, &body));
}

cudaError_t cudaGraphAddMemcpyNode(cudaGraphNode_t *out, cudaGraph_t graph, const cudaGraphNode_t *from, size_t count,
                                   const struct cudaMemcpy3DParms *p) {
    ADD(vgpu_body_memcpy(p, &body));
}

cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t *out, cudaGraph_t graph, const cudaGraphNode_t *from, size_t count,
                                     void *to, const void *source, size_t bytes, enum cudaMemcpyKind kind) {
    ADD(vgpu_body_memcpy_flat(to, source, bytes, kind, &body));
}

cudaError_t cudaGraphAddMemcpyNodeToSymbol(cudaGraphNode_t *out, cudaGraph_t graph, const cudaGraphNode_t *from,
                                           size_t count, const void *symbol, const void *source, size_t bytes,
                                           size_t offset, enum cudaMemcpyKind kind) {
    ADD(vgpu_body_to_symbol(symbol, source, bytes, offset, kind, &body));
}

cudaError_t cudaGraphAddMemcpyNodeFromSymbol(cudaGraphNode_t *out, cudaGraph_t graph, const cudaGraphNode_t *from,
                                             size_t count, void *to, const void *symbol, size_t bytes, size_t offset,
                                             enum cudaMemcpyKind kind) {
    ADD(vgpu_body_from_symbol(to, symbol, bytes, offset, kind, &body));
}

cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t *out, cudaGraph_t graph, const cudaGraphNode_t *from, size_t count,
                                   const struct cudaMemsetParams *p) {
    ADD(vgpu_body_memset(p, &body));
}

cudaError_t cudaGraphAddHostNode(cudaGraphNode_t *out, cudaGraph_t graph, const cudaGraphNode_t *from, size_t count,
                                 const struct cudaHostNodeParams *p) {
    ADD(vgpu_body_host(p, &body));
}

cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t *out, cudaGraph_t graph, const cudaGraphNode_t *from,
                                       size_t count, cudaGraph_t child) {
    if (child == graph) return cudaErrorInvalidValue;
    ADD(vgpu_body_child(child, &body));
}

cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t *out, cudaGraph_t graph, const cudaGraphNode_t *from, size_t count) {
    struct vgpu_body body = {.type = cudaGraphNodeTypeEmpty};
    return vgpu_node_add_checked(out, graph, from, NULL, count, &body);
}

cudaError_t cudaGraphAddEventRecordNode(cudaGraphNode_t *out, cudaGraph_t graph, const cudaGraphNode_t *from,
                                        size_t count, cudaEvent_t event) {
    ADD(vgpu_body_event(cudaGraphNodeTypeEventRecord, event, &body));
}

cudaError_t cudaGraphAddEventWaitNode(cudaGraphNode_t *out, cudaGraph_t graph, const cudaGraphNode_t *from,
                                      size_t count, cudaEvent_t event) {
    ADD(vgpu_body_event(cudaGraphNodeTypeWaitEvent, event, &body));
}

static cudaError_t add_alloc(cudaGraphNode_t *out, cudaGraph_t graph, const cudaGraphNode_t *from, size_t count,
                             struct cudaMemAllocNodeParamsV2 *p) {
    struct cudaMemAllocNodeParams plain = {p->poolProps, p->accessDescs, p->accessDescCount, p->bytesize, NULL};
    cudaError_t e = cudaGraphAddMemAllocNode(out, graph, from, count, &plain);
    if (!e) p->dptr = plain.dptr;
    return e;
}

cudaError_t cudaGraphAddNode(cudaGraphNode_t *out, cudaGraph_t graph, const cudaGraphNode_t *from,
                             const cudaGraphEdgeData *edges, size_t count, struct cudaGraphNodeParams *p) {
    struct vgpu_body body;
    if (!out || !p) return cudaErrorInvalidValue;
    if (p->type == cudaGraphNodeTypeMemAlloc) return add_alloc(out, graph, from, count, &p->alloc);
    if (p->type == cudaGraphNodeTypeMemFree) return cudaGraphAddMemFreeNode(out, graph, from, count, p->free.dptr);
    cudaError_t e = vgpu_body_generic(p, &body);
    return e ? e : vgpu_node_add_checked(out, graph, from, edges, count, &body);
}
