/* What a node does, told and changed: in a graph, and in an executable graph by the node that it was copied from. */
#include "vgpu/vgpu_graph.h"
#include "vgpu/vgpu_graph_exec.h"
#include "vgpu/vgpu_run.h"

#include <stdlib.h>
#include <string.h>

/* Runs body with the node `n` of the type, or answers that there is none. */
#define WITH_NODE(handle, n, node_type, act)               \
    do {                                                   \
        cudaError_t e = cudaErrorInvalidValue;             \
        pthread_mutex_lock(&vgpu_lock);                    \
        struct CUgraphNode_st *n = vgpu_node_find(handle); \
        if (n && n->body.type == (node_type)) {            \
            e = cudaSuccess;                               \
            act;                                           \
        }                                                  \
        pthread_mutex_unlock(&vgpu_lock);                  \
        return e;                                          \
    } while (0)

/* ---- told ---- */

/* A product of the virtual cuBLAS is a kernel that the runtime has no function for. */
static cudaError_t kernel_params(struct vgpu_body *b, struct cudaKernelNodeParams *out) {
    struct vgpu_launch *l = b->made.args;
    if (b->made.work.run != vgpu_execute) return cudaErrorInvalidDeviceFunction;
    const struct ptx_function *f = l->kernel->f;
    if (!b->pointers) b->pointers = calloc((size_t)f->params + 1, sizeof *b->pointers);
    if (!b->pointers) return cudaErrorMemoryAllocation;
    for (int32_t i = 0; i < f->params; i++) b->pointers[i] = l->params + f->vars[i].offset;
    *out = (struct cudaKernelNodeParams){
        .func = (void *)(l->kernel->host ? l->kernel->host : (const void *)l->kernel),
        .gridDim = {l->grid[0], l->grid[1], l->grid[2]},
        .blockDim = {l->block[0], l->block[1], l->block[2]},
        .sharedMemBytes = l->dynamic_shared,
        .kernelParams = f->params ? b->pointers : NULL,
    };
    return cudaSuccess;
}

cudaError_t cudaGraphKernelNodeGetParams(cudaGraphNode_t node, struct cudaKernelNodeParams *out) {
    if (!out) return cudaErrorInvalidValue;
    WITH_NODE(node, n, cudaGraphNodeTypeKernel, e = kernel_params(&n->body, out));
}

cudaError_t cudaGraphMemcpyNodeGetParams(cudaGraphNode_t node, struct cudaMemcpy3DParms *out) {
    if (!out) return cudaErrorInvalidValue;
    WITH_NODE(node, n, cudaGraphNodeTypeMemcpy, *out = n->body.memcpy);
}

cudaError_t cudaGraphMemsetNodeGetParams(cudaGraphNode_t node, struct cudaMemsetParams *out) {
    if (!out) return cudaErrorInvalidValue;
    WITH_NODE(node, n, cudaGraphNodeTypeMemset, *out = n->body.memset);
}

cudaError_t cudaGraphHostNodeGetParams(cudaGraphNode_t node, struct cudaHostNodeParams *out) {
    if (!out) return cudaErrorInvalidValue;
    WITH_NODE(node, n, cudaGraphNodeTypeHost, *out = n->body.host);
}

cudaError_t cudaGraphChildGraphNodeGetGraph(cudaGraphNode_t node, cudaGraph_t *out) {
    if (!out) return cudaErrorInvalidValue;
    WITH_NODE(node, n, cudaGraphNodeTypeGraph, *out = n->body.child);
}

cudaError_t cudaGraphEventRecordNodeGetEvent(cudaGraphNode_t node, cudaEvent_t *out) {
    if (!out) return cudaErrorInvalidValue;
    WITH_NODE(node, n, cudaGraphNodeTypeEventRecord, *out = n->body.event);
}

cudaError_t cudaGraphEventWaitNodeGetEvent(cudaGraphNode_t node, cudaEvent_t *out) {
    if (!out) return cudaErrorInvalidValue;
    WITH_NODE(node, n, cudaGraphNodeTypeWaitEvent, *out = n->body.event);
}

/* ---- changed ---- */

static struct CUgraphNode_st *copy_of(const struct CUgraph_st *g, cudaGraphNode_t node) {
    for (size_t i = 0; i < g->nodes; i++) {
        struct CUgraphNode_st *n = g->node[i];
        if (n->original == node && n->original_id == node->id) return n;
        struct CUgraphNode_st *inside = n->body.type == cudaGraphNodeTypeGraph ? copy_of(n->body.child, node) : NULL;
        if (inside) return inside;
    }
    return NULL;
}

struct CUgraphNode_st *vgpu_exec_node(const struct CUgraphExec_st *x, cudaGraphNode_t node) {
    return vgpu_node_find(node) ? copy_of(x->graph, node) : NULL;
}

/* The node's attributes stay. */
static void replace(struct vgpu_body *old, struct vgpu_body *new) {
    if (old->type == cudaGraphNodeTypeKernel) {
        new->attribute = old->attribute;
        new->attributes = old->attributes;
        old->attribute = NULL;
    }
    vgpu_body_free(old);
    *old = *new;
}

/* Takes the body over. exec NULL: in the graph itself. */
static cudaError_t set(cudaGraphExec_t exec, bool in_exec, cudaGraphNode_t node, struct vgpu_body *body) {
    pthread_mutex_lock(&vgpu_lock);
    struct CUgraphExec_st *x = in_exec ? vgpu_exec_find(exec) : NULL;
    struct CUgraphNode_st *n = x ? vgpu_exec_node(x, node) : in_exec ? NULL : vgpu_node_find(node);
    bool good = n && n->body.type == body->type;
    if (good) {
        replace(&n->body, body);
        vgpu_graph_tell(CUPTI_CBID_RESOURCE_GRAPH_NODE_SET_PARAMS, n->graph, n, x);
    } else {
        vgpu_body_free(body);
    }
    pthread_mutex_unlock(&vgpu_lock);
    vgpu_graph_tell_all();
    return good ? cudaSuccess : cudaErrorInvalidValue;
}

/* The body that `make` makes, in the graph's node or in the executable graph's. */
#define SET(make)                                       \
    do {                                                \
        struct vgpu_body body;                          \
        cudaError_t e_ = (make);                        \
        return e_ ? e_ : set(NULL, false, node, &body); \
    } while (0)
#define SET_EXEC(make)                                 \
    do {                                               \
        struct vgpu_body body;                         \
        cudaError_t e_ = (make);                       \
        return e_ ? e_ : set(exec, true, node, &body); \
    } while (0)

cudaError_t cudaGraphKernelNodeSetParams(cudaGraphNode_t node, const struct cudaKernelNodeParams *p) {
    SET(vgpu_body_kernel(p, &body));
}

cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                             const struct cudaKernelNodeParams *p) {
    SET_EXEC(vgpu_body_kernel(p, &body));
}

cudaError_t cudaGraphMemcpyNodeSetParams(cudaGraphNode_t node, const struct cudaMemcpy3DParms *p) {
    SET(vgpu_body_memcpy(p, &body));
}

cudaError_t cudaGraphExecMemcpyNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                             const struct cudaMemcpy3DParms *p) {
    SET_EXEC(vgpu_body_memcpy(p, &body));
}

cudaError_t cudaGraphMemcpyNodeSetParams1D(cudaGraphNode_t node, void *to, const void *from, size_t bytes,
                                           enum cudaMemcpyKind kind) {
    SET(vgpu_body_memcpy_flat(to, from, bytes, kind, &body));
}

cudaError_t cudaGraphExecMemcpyNodeSetParams1D(cudaGraphExec_t exec, cudaGraphNode_t node, void *to, const void *from,
                                               size_t bytes, enum cudaMemcpyKind kind) {
    SET_EXEC(vgpu_body_memcpy_flat(to, from, bytes, kind, &body));
}

cudaError_t cudaGraphMemcpyNodeSetParamsToSymbol(cudaGraphNode_t node, const void *symbol, const void *from,
                                                 size_t bytes, size_t offset, enum cudaMemcpyKind kind) {
    SET(vgpu_body_to_symbol(symbol, from, bytes, offset, kind, &body));
}

cudaError_t cudaGraphExecMemcpyNodeSetParamsToSymbol(cudaGraphExec_t exec, cudaGraphNode_t node, const void *symbol,
                                                     const void *from, size_t bytes, size_t offset,
                                                     enum cudaMemcpyKind kind) {
    SET_EXEC(vgpu_body_to_symbol(symbol, from, bytes, offset, kind, &body));
}

cudaError_t cudaGraphMemcpyNodeSetParamsFromSymbol(cudaGraphNode_t node, void *to, const void *symbol, size_t bytes,
                                                   size_t offset, enum cudaMemcpyKind kind) {
    SET(vgpu_body_from_symbol(to, symbol, bytes, offset, kind, &body));
}

cudaError_t cudaGraphExecMemcpyNodeSetParamsFromSymbol(cudaGraphExec_t exec, cudaGraphNode_t node, void *to,
                                                       const void *symbol, size_t bytes, size_t offset,
                                                       enum cudaMemcpyKind kind) {
    SET_EXEC(vgpu_body_from_symbol(to, symbol, bytes, offset, kind, &body));
}

cudaError_t cudaGraphMemsetNodeSetParams(cudaGraphNode_t node, const struct cudaMemsetParams *p) {
    SET(vgpu_body_memset(p, &body));
}

cudaError_t cudaGraphExecMemsetNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                             const struct cudaMemsetParams *p) {
    SET_EXEC(vgpu_body_memset(p, &body));
}

cudaError_t cudaGraphHostNodeSetParams(cudaGraphNode_t node, const struct cudaHostNodeParams *p) {
    SET(vgpu_body_host(p, &body));
}

cudaError_t cudaGraphExecHostNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                           const struct cudaHostNodeParams *p) {
    SET_EXEC(vgpu_body_host(p, &body));
}

cudaError_t cudaGraphEventRecordNodeSetEvent(cudaGraphNode_t node, cudaEvent_t event) {
    SET(vgpu_body_event(cudaGraphNodeTypeEventRecord, event, &body));
}

cudaError_t cudaGraphExecEventRecordNodeSetEvent(cudaGraphExec_t exec, cudaGraphNode_t node, cudaEvent_t event) {
    SET_EXEC(vgpu_body_event(cudaGraphNodeTypeEventRecord, event, &body));
}

cudaError_t cudaGraphEventWaitNodeSetEvent(cudaGraphNode_t node, cudaEvent_t event) {
    SET(vgpu_body_event(cudaGraphNodeTypeWaitEvent, event, &body));
}

cudaError_t cudaGraphExecEventWaitNodeSetEvent(cudaGraphExec_t exec, cudaGraphNode_t node, cudaEvent_t event) {
    SET_EXEC(vgpu_body_event(cudaGraphNodeTypeWaitEvent, event, &body));
}

static bool settable(const struct cudaGraphNodeParams *p) {
    return p && p->type != cudaGraphNodeTypeGraph && p->type != cudaGraphNodeTypeEmpty;
}

cudaError_t cudaGraphNodeSetParams(cudaGraphNode_t node, struct cudaGraphNodeParams *p) {
    if (!settable(p)) return cudaErrorInvalidValue;
    SET(vgpu_body_generic(p, &body));
}

cudaError_t cudaGraphExecNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node, struct cudaGraphNodeParams *p) {
    if (p && p->type == cudaGraphNodeTypeGraph) return cudaGraphExecChildGraphNodeSetParams(exec, node, p->graph.graph);
    if (!settable(p)) return cudaErrorInvalidValue;
    SET_EXEC(vgpu_body_generic(p, &body));
}

/* ---- switched off ---- */

static bool can_be_disabled(const struct CUgraphNode_st *n) {
    return n->body.type == cudaGraphNodeTypeKernel || n->body.type == cudaGraphNodeTypeMemcpy ||
           n->body.type == cudaGraphNodeTypeMemset;
}

cudaError_t cudaGraphNodeSetEnabled(cudaGraphExec_t exec, cudaGraphNode_t node, unsigned int on) {
    pthread_mutex_lock(&vgpu_lock);
    struct CUgraphExec_st *x = vgpu_exec_find(exec);
    struct CUgraphNode_st *n = x ? vgpu_exec_node(x, node) : NULL;
    bool good = n && can_be_disabled(n);
    if (good) n->disabled = !on;
    pthread_mutex_unlock(&vgpu_lock);
    return good ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaGraphNodeGetEnabled(cudaGraphExec_t exec, cudaGraphNode_t node, unsigned int *on) {
    pthread_mutex_lock(&vgpu_lock);
    struct CUgraphExec_st *x = vgpu_exec_find(exec);
    struct CUgraphNode_st *n = x ? vgpu_exec_node(x, node) : NULL;
    bool good = on && n && can_be_disabled(n);
    if (good) *on = !n->disabled;
    pthread_mutex_unlock(&vgpu_lock);
    return good ? cudaSuccess : cudaErrorInvalidValue;
}

/* ---- attributes of kernel nodes: kept; what a launch does anyway, or a hint ---- */

static cudaLaunchAttribute *attribute_of(const struct vgpu_body *b, cudaLaunchAttributeID id) {
    for (size_t i = 0; i < b->attributes; i++)
        if (b->attribute[i].id == id) return &b->attribute[i];
    return NULL;
}

static bool known_attribute(cudaLaunchAttributeID id) {
    return id == cudaLaunchAttributeAccessPolicyWindow || id == cudaLaunchAttributeCooperative ||
           id == cudaLaunchAttributePriority || id == cudaLaunchAttributeMemSyncDomain ||
           id == cudaLaunchAttributeMemSyncDomainMap || id == cudaLaunchAttributePreferredSharedMemoryCarveout ||
           id == cudaLaunchAttributeClusterSchedulingPolicyPreference;
}

static cudaError_t set_attribute(struct vgpu_body *b, const cudaLaunchAttribute *a) {
    cudaLaunchAttribute *old = attribute_of(b, a->id);
    if (!old) {
        cudaLaunchAttribute *more = realloc(b->attribute, (b->attributes + 1) * sizeof *more);
        if (!more) return cudaErrorMemoryAllocation;
        b->attribute = more;
        old = &more[b->attributes++];
    }
    *old = *a;
    return cudaSuccess;
}

cudaError_t cudaGraphKernelNodeGetAttribute(cudaGraphNode_t node, cudaLaunchAttributeID id,
                                            cudaLaunchAttributeValue *out) {
    if (!out || !known_attribute(id)) return cudaErrorInvalidValue;
    WITH_NODE(node, n, cudaGraphNodeTypeKernel, {
        const cudaLaunchAttribute *a = attribute_of(&n->body, id);
        *out = a ? a->val : (cudaLaunchAttributeValue){0};
    });
}

cudaError_t cudaGraphKernelNodeSetAttribute(cudaGraphNode_t node, cudaLaunchAttributeID id,
                                            const cudaLaunchAttributeValue *value) {
    if (!value || !known_attribute(id)) return cudaErrorInvalidValue;
    cudaLaunchAttribute a = {.id = id, .val = *value};
    WITH_NODE(node, n, cudaGraphNodeTypeKernel, e = set_attribute(&n->body, &a));
}

cudaError_t cudaGraphKernelNodeCopyAttributes(cudaGraphNode_t to, cudaGraphNode_t from) {
    WITH_NODE(to, n, cudaGraphNodeTypeKernel, {
        const struct CUgraphNode_st *f = vgpu_node_find(from);
        if (!f || f->body.type != cudaGraphNodeTypeKernel) e = cudaErrorInvalidValue;
        for (size_t i = 0; !e && f != n && i < f->body.attributes; i++)
            e = set_attribute(&n->body, &f->body.attribute[i]);
    });
}
