/* An executable graph brought up to date with another graph of the same shape: nodes are paired in the order in which
 * they were made, as a repeated capture makes them. */
#include "vgpu/vgpu_graph.h"
#include "vgpu/vgpu_graph_exec.h"

#include <stdlib.h>

struct update {
    enum cudaGraphExecUpdateResult result;
    struct CUgraphNode_st *node, *from; /* where it fails */
};

static bool fail(struct update *u, enum cudaGraphExecUpdateResult result, struct CUgraphNode_st *n,
                 struct CUgraphNode_st *from) {
    *u = (struct update){result, n, from};
    return false;
}

static bool same_edges(struct update *u, const struct CUgraphNode_st *old, struct CUgraphNode_st *new) {
    if (old->ins != new->ins) return fail(u, cudaGraphExecUpdateErrorTopologyChanged, new, NULL);
    for (size_t i = 0; i < old->ins; i++)
        if (old->in[i].from->index != new->in[i].from->index)
            return fail(u, cudaGraphExecUpdateErrorTopologyChanged, new, new->in[i].from);
    return true;
}

static bool cooperative(const struct vgpu_body *b) {
    for (size_t i = 0; i < b->attributes; i++)
        if (b->attribute[i].id == cudaLaunchAttributeCooperative) return b->attribute[i].val.cooperative;
    return false;
}

static bool same_shape(struct update *u, const struct CUgraph_st *old, const struct CUgraph_st *new);

static bool same_node(struct update *u, const struct CUgraphNode_st *old, struct CUgraphNode_st *new) {
    const struct vgpu_body *a = &old->body, *b = &new->body;
    if (a->type != b->type) return fail(u, cudaGraphExecUpdateErrorNodeTypeChanged, new, NULL);
    if (!same_edges(u, old, new)) return false;
    if (a->type == cudaGraphNodeTypeGraph) return same_shape(u, a->child, b->child);
    if (a->type == cudaGraphNodeTypeKernel && cooperative(a) != cooperative(b))
        return fail(u, cudaGraphExecUpdateErrorAttributesChanged, new, NULL);
    if (a->type == cudaGraphNodeTypeMemAlloc && a->block != b->block) /* its address is in other nodes */
        return fail(u, cudaGraphExecUpdateErrorParametersChanged, new, NULL);
    if (a->type == cudaGraphNodeTypeMemFree && a->freed != b->freed)
        return fail(u, cudaGraphExecUpdateErrorParametersChanged, new, NULL);
    return true;
}

static bool same_shape(struct update *u, const struct CUgraph_st *old, const struct CUgraph_st *new) {
    if (old->nodes != new->nodes) return fail(u, cudaGraphExecUpdateErrorTopologyChanged, NULL, NULL);
    for (size_t i = 0; i < new->nodes; i++)
        if (!same_node(u, old->node[i], new->node[i])) return false;
    return true;
}

/* Copies of the bodies first, all of them or none; in the order of the walk. */
static size_t leaves(const struct CUgraph_st *g) {
    size_t n = 0;
    for (size_t i = 0; i < g->nodes; i++)
        n += g->node[i]->body.type == cudaGraphNodeTypeGraph ? leaves(g->node[i]->body.child) : 1;
    return n;
}

static cudaError_t copy_bodies(const struct CUgraph_st *from, struct vgpu_body *out, size_t *count) {
    cudaError_t e = cudaSuccess;
    for (size_t i = 0; i < from->nodes && !e; i++) {
        const struct vgpu_body *b = &from->node[i]->body;
        if (b->type == cudaGraphNodeTypeGraph) {
            e = copy_bodies(b->child, out, count);
        } else {
            e = vgpu_body_copy(&out[*count], b);
            *count += !e;
        }
    }
    return e;
}

static void put_bodies(struct CUgraph_st *to, const struct CUgraph_st *from, struct vgpu_body *bodies, size_t *at) {
    for (size_t i = 0; i < to->nodes; i++) {
        struct CUgraphNode_st *n = to->node[i];
        if (n->body.type == cudaGraphNodeTypeGraph) {
            put_bodies(n->body.child, from->node[i]->body.child, bodies, at);
        } else {
            vgpu_body_free(&n->body);
            n->body = bodies[(*at)++];
            vgpu_graph_tell(CUPTI_CBID_RESOURCE_GRAPH_NODE_UPDATED, to, n, NULL);
        }
    }
}

static cudaError_t take_over(struct CUgraph_st *to, const struct CUgraph_st *from) {
    size_t count = 0, at = 0;
    struct vgpu_body *bodies = malloc((leaves(from) + 1) * sizeof *bodies);
    if (!bodies) return cudaErrorMemoryAllocation;
    cudaError_t e = copy_bodies(from, bodies, &count);
    if (!e)
        put_bodies(to, from, bodies, &at);
    else
        for (size_t i = 0; i < count; i++) vgpu_body_free(&bodies[i]);
    free(bodies);
    return e;
}

static cudaError_t update(struct CUgraph_st *to, const struct CUgraph_st *from, struct update *u) {
    *u = (struct update){cudaGraphExecUpdateSuccess, NULL, NULL};
    if (!same_shape(u, to, from)) return cudaErrorGraphExecUpdateFailure;
    return take_over(to, from);
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph, cudaGraphExecUpdateResultInfo *info) {
    struct update u = {cudaGraphExecUpdateError, NULL, NULL};
    pthread_mutex_lock(&vgpu_lock);
    struct CUgraphExec_st *x = vgpu_exec_find(exec);
    struct CUgraph_st *g = vgpu_graph_find(graph);
    cudaError_t e = x && g ? update(x->graph, g, &u) : cudaErrorInvalidValue;
    pthread_mutex_unlock(&vgpu_lock);
    vgpu_graph_tell_all();
    if (info) *info = (cudaGraphExecUpdateResultInfo){u.result, u.node, u.from};
    return e;
}

cudaError_t cudaGraphExecChildGraphNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node, cudaGraph_t child) {
    struct update u;
    pthread_mutex_lock(&vgpu_lock);
    struct CUgraphExec_st *x = vgpu_exec_find(exec);
    struct CUgraph_st *g = vgpu_graph_find(child);
    struct CUgraphNode_st *n = x && g ? vgpu_exec_node(x, node) : NULL;
    cudaError_t e = cudaErrorInvalidValue;
    if (n && n->body.type == cudaGraphNodeTypeGraph) e = update(n->body.child, g, &u);
    pthread_mutex_unlock(&vgpu_lock);
    vgpu_graph_tell_all();
    return e == cudaErrorGraphExecUpdateFailure ? cudaErrorInvalidValue : e;
}
