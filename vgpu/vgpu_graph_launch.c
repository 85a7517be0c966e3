/* Executable graphs: made from a graph, launched, updated, destroyed. */
#include "vgpu/vgpu_graph.h"
#include "vgpu/vgpu_graph_exec.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_EXECS = 1 << 18 };
static const unsigned long long KNOWN_FLAGS =
    cudaGraphInstantiateFlagAutoFreeOnLaunch | cudaGraphInstantiateFlagUpload | cudaGraphInstantiateFlagUseNodePriority;

static struct vgpu_slab execs = {.item_bytes = sizeof(struct CUgraphExec_st), .capacity = MAX_EXECS};

struct CUgraphExec_st *vgpu_exec_find(cudaGraphExec_t exec) {
    return vgpu_slab_has(&execs, exec) ? exec : NULL;
}

/* ---- making one ---- */

static cudaError_t instantiate(struct CUgraph_st *g, unsigned long long flags, struct CUgraphExec_st **out) {
    if (g->memory && g->instances) return cudaErrorNotSupported; /* its memory has one address */
    struct CUgraphExec_st *x = vgpu_slab_take(&execs);
    if (!x) return cudaErrorMemoryAllocation;
    struct vgpu_item item = x->item;
    *x = (struct CUgraphExec_st){.item = item, .flags = flags, .source = g, .source_id = g->id};
    vgpu_graph_tell(CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATE_STARTING, g, NULL, x);
    cudaError_t e = vgpu_graph_copy(g, true, &x->graph);
    if (!e) x->id = x->graph->id;
    if (!e) e = vgpu_graph_order(x->graph, &x->node, &x->nodes);
    if (e) {
        if (x->graph) vgpu_graph_free(x->graph);
        vgpu_slab_give(&execs, x);
        return e;
    }
    g->instances++;
    vgpu_graph_tell(CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATED, g, NULL, x);
    *out = x;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags) {
    struct CUgraphExec_st *x;
    if (!out || (flags & ~(KNOWN_FLAGS | cudaGraphInstantiateFlagDeviceLaunch))) return cudaErrorInvalidValue;
    if (flags & cudaGraphInstantiateFlagDeviceLaunch) {
        vgpu_say("cudaGraphInstantiate: launches from the device are not implemented");
        return cudaErrorNotSupported;
    }
    pthread_mutex_lock(&vgpu_lock);
    struct CUgraph_st *g = vgpu_graph_find(graph);
    cudaError_t e = g ? instantiate(g, flags, &x) : cudaErrorInvalidValue;
    pthread_mutex_unlock(&vgpu_lock);
    vgpu_graph_tell_all();
    if (!e) *out = x;
    return e;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags) {
    return cudaGraphInstantiateWithFlags(out, graph, flags);
}

cudaError_t cudaGraphInstantiateWithParams(cudaGraphExec_t *out, cudaGraph_t graph, cudaGraphInstantiateParams *p) {
    if (!p) return cudaErrorInvalidValue;
    p->errNode_out = NULL;
    cudaError_t e = cudaGraphInstantiateWithFlags(out, graph, p->flags);
    p->result_out = !e                           ? cudaGraphInstantiateSuccess
                    : e == cudaErrorInvalidValue ? cudaGraphInstantiateInvalidStructure
                    : e == cudaErrorNotSupported ? cudaGraphInstantiateNodeOperationNotSupported
                                                 : cudaGraphInstantiateError;
    return e;
}

cudaError_t cudaGraphExecGetFlags(cudaGraphExec_t exec, unsigned long long *flags) {
    pthread_mutex_lock(&vgpu_lock);
    const struct CUgraphExec_st *x = vgpu_exec_find(exec);
    if (x && flags) *flags = x->flags;
    pthread_mutex_unlock(&vgpu_lock);
    return x && flags ? cudaSuccess : cudaErrorInvalidValue;
}

/* A launch under way keeps what it needs, but for the memory of its nodes: that is waited for. */
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    struct vgpu_ticket last = {0};
    pthread_mutex_lock(&vgpu_lock);
    struct CUgraphExec_st *x = vgpu_exec_find(exec);
    if (x) {
        vgpu_graph_tell(CUPTI_CBID_RESOURCE_GRAPHEXEC_DESTROY_STARTING, x->graph, NULL, x);
        if (x->graph->memory) last = x->last;
    }
    pthread_mutex_unlock(&vgpu_lock);
    vgpu_graph_tell_all();
    if (!x) return cudaErrorInvalidValue;
    if (last.stream) vgpu_wait(last);
    pthread_mutex_lock(&vgpu_lock);
    if ((x = vgpu_exec_find(exec))) {
        if (vgpu_graph_find(x->source) && x->source->id == x->source_id) x->source->instances--;
        vgpu_graph_free(x->graph);
        free(x->node);
        vgpu_slab_give(&execs, x);
    }
    pthread_mutex_unlock(&vgpu_lock);
    vgpu_objects_run();
    return cudaSuccess;
}

/* ---- launching ---- */

struct launch {
    struct CUgraphExec_st *exec;
    struct vgpu_stream *stream;
    bool follows; /* something of it is queued already */
};

static cudaError_t queue_work(struct launch *l, const struct CUgraphNode_st *n) {
    if (n->disabled || !n->body.made.args) return cudaSuccess;
    struct vgpu_work w = n->body.made.work;
    w.activity.graph = l->exec->id;
    w.activity.graph_node = n->id;
    w.amount.in_graph = l->follows;
    l->follows = true;
    return vgpu_enqueue(l->stream, &w, NULL);
}

static cudaError_t queue_node(struct launch *l, const struct CUgraphNode_st *n) {
    switch (n->body.type) {
    case cudaGraphNodeTypeKernel:
    case cudaGraphNodeTypeMemcpy:
    case cudaGraphNodeTypeMemset:
    case cudaGraphNodeTypeHost:
        return queue_work(l, n);
    case cudaGraphNodeTypeEventRecord:
        return vgpu_event_record_in(n->body.event, l->stream);
    case cudaGraphNodeTypeWaitEvent:
        return vgpu_event_wait_in(n->body.event, l->stream);
    case cudaGraphNodeTypeMemAlloc:
        return vgpu_graph_block_begin(n->body.block);
    case cudaGraphNodeTypeMemFree:
        return vgpu_graph_block_end(n->body.freed);
    default: /* empty, and a child, whose nodes have gone before it */
        return cudaSuccess;
    }
}

/* What an earlier launch left allocated: released now, or in the way. */
static cudaError_t clear_memory(const struct CUgraphExec_st *x) {
    for (size_t i = 0; i < x->nodes; i++) {
        const struct vgpu_body *b = &x->node[i]->body;
        if (b->type != cudaGraphNodeTypeMemAlloc || !vgpu_graph_block_live(b->block)) continue;
        if (!(x->flags & cudaGraphInstantiateFlagAutoFreeOnLaunch)) return cudaErrorInvalidValue;
        vgpu_graph_block_end(b->alloc.dptr);
    }
    return cudaSuccess;
}

/* Launches of one executable graph come one after the other, in whatever streams. */
static cudaError_t launch(struct CUgraphExec_st *x, struct vgpu_stream *s) {
    struct launch l = {x, s, false};
    cudaError_t e = clear_memory(x);
    struct vgpu_work nothing = {.kind = VGPU_WORK_NOTE, .after = x->last};
    if (!e && x->last.stream && x->last.stream != s && !vgpu_reached(x->last)) e = vgpu_enqueue(s, &nothing, NULL);
    for (size_t i = 0; i < x->nodes && !e; i++) e = queue_node(&l, x->node[i]);
    nothing.after = (struct vgpu_ticket){0};
    if (!e) e = vgpu_enqueue(s, &nothing, &x->last);
    return e;
}

/* In a capture it is what a child graph would be. */
cudaError_t vgpu_graph_into_capture(struct vgpu_stream *s, const struct CUgraph_st *g) {
    struct vgpu_body body = {.type = cudaGraphNodeTypeGraph};
    cudaError_t e = g->memory ? cudaErrorNotSupported : vgpu_graph_copy(g, false, &body.child);
    return e ? e : vgpu_capture_add(s, &body, NULL);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    if (vgpu_on_worker()) return cudaErrorNotPermitted;
    pthread_mutex_lock(&vgpu_lock);
    struct CUgraphExec_st *x = vgpu_exec_find(exec);
    struct vgpu_stream *s = vgpu_stream_find(stream);
    cudaError_t e = !x           ? cudaErrorInvalidValue
                    : !s         ? cudaErrorInvalidResourceHandle
                    : s->capture ? vgpu_graph_into_capture(s, x->graph)
                                 : launch(x, s);
    pthread_mutex_unlock(&vgpu_lock);
    vgpu_graph_tell_all();
    return e;
}

/* Nothing has to be prepared on the device. */
cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream) {
    pthread_mutex_lock(&vgpu_lock);
    bool graph = vgpu_exec_find(exec), there = vgpu_stream_find(stream);
    pthread_mutex_unlock(&vgpu_lock);
    return !graph ? cudaErrorInvalidValue : there ? cudaSuccess : cudaErrorInvalidResourceHandle;
}
