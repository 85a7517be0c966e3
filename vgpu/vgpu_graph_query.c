/* What a graph consists of, as the runtime tells it. */
#include "vgpu/vgpu_graph.h"

/* A list that the caller gives room for: *room entries, of which the unused become 0; without lists only how many. */
struct list {
    cudaGraphNode_t *from, *to;
    cudaGraphEdgeData *data;
    size_t room, count;
    bool lossy; /* an edge has data, and the caller did not ask for them */
};

static void put(struct list *l, cudaGraphNode_t from, cudaGraphNode_t to, const cudaGraphEdgeData *data) {
    size_t i = l->count++;
    bool plain = !data || (!data->from_port && !data->to_port && !data->type);
    if (i >= l->room) return;
    if (l->from) l->from[i] = from;
    if (l->to) l->to[i] = to;
    if (l->data && data) l->data[i] = *data;
    l->lossy |= (l->from || l->to) && !l->data && !plain;
}

static cudaError_t end(struct list *l, size_t *count) {
    bool asked = l->from || l->to;
    for (size_t i = l->count; asked && i < l->room; i++) {
        if (l->from) l->from[i] = NULL;
        if (l->to) l->to[i] = NULL;
        if (l->data) l->data[i] = (cudaGraphEdgeData){0};
    }
    *count = asked && l->count > l->room ? l->room : l->count;
    return l->lossy ? cudaErrorLossyQuery : cudaSuccess;
}

static cudaError_t nodes_of(cudaGraph_t graph, cudaGraphNode_t *out, size_t *count, bool roots) {
    cudaError_t e = cudaErrorInvalidValue;
    if (!count) return e;
    struct list l = {.from = out, .room = out ? *count : 0};
    pthread_mutex_lock(&vgpu_lock);
    struct CUgraph_st *g = vgpu_graph_find(graph);
    for (size_t i = 0; g && i < g->nodes; i++)
        if (!roots || !g->node[i]->ins) put(&l, g->node[i], NULL, NULL);
    if (g) e = end(&l, count);
    pthread_mutex_unlock(&vgpu_lock);
    return e;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *out, size_t *count) {
    return nodes_of(graph, out, count, false);
}

cudaError_t cudaGraphGetRootNodes(cudaGraph_t graph, cudaGraphNode_t *out, size_t *count) {
    return nodes_of(graph, out, count, true);
}

cudaError_t cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t *from, cudaGraphNode_t *to, cudaGraphEdgeData *data,
                              size_t *count) {
    cudaError_t e = cudaErrorInvalidValue;
    if (!count || !from != !to || (data && !from)) return e;
    struct list l = {.from = from, .to = to, .data = data, .room = from ? *count : 0};
    pthread_mutex_lock(&vgpu_lock);
    struct CUgraph_st *g = vgpu_graph_find(graph);
    for (size_t i = 0; g && i < g->nodes; i++)
        for (size_t k = 0; k < g->node[i]->ins; k++)
            put(&l, g->node[i]->in[k].from, g->node[i], &g->node[i]->in[k].data);
    if (g) e = end(&l, count);
    pthread_mutex_unlock(&vgpu_lock);
    return e;
}

static void dependents(struct list *l, const struct CUgraphNode_st *n) {
    for (size_t i = 0; i < n->graph->nodes; i++) {
        struct CUgraphNode_st *to = n->graph->node[i];
        for (size_t k = 0; k < to->ins; k++)
            if (to->in[k].from == n) put(l, to, NULL, &to->in[k].data);
    }
}

static cudaError_t neighbours(cudaGraphNode_t node, cudaGraphNode_t *out, cudaGraphEdgeData *data, size_t *count,
                              bool after) {
    cudaError_t e = cudaErrorInvalidValue;
    if (!count || (data && !out)) return e;
    struct list l = {.from = out, .data = data, .room = out ? *count : 0};
    pthread_mutex_lock(&vgpu_lock);
    struct CUgraphNode_st *n = vgpu_node_find(node);
    if (n && after) dependents(&l, n);
    for (size_t k = 0; n && !after && k < n->ins; k++) put(&l, n->in[k].from, NULL, &n->in[k].data);
    if (n) e = end(&l, count);
    pthread_mutex_unlock(&vgpu_lock);
    return e;
}

cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t *out, cudaGraphEdgeData *data,
                                         size_t *count) {
    return neighbours(node, out, data, count, false);
}

cudaError_t cudaGraphNodeGetDependentNodes(cudaGraphNode_t node, cudaGraphNode_t *out, cudaGraphEdgeData *data,
                                           size_t *count) {
    return neighbours(node, out, data, count, true);
}

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, enum cudaGraphNodeType *type) {
    cudaError_t e = cudaErrorInvalidValue;
    pthread_mutex_lock(&vgpu_lock);
    struct CUgraphNode_st *n = vgpu_node_find(node);
    if (n && type) {
        *type = n->body.type;
        e = cudaSuccess;
    }
    pthread_mutex_unlock(&vgpu_lock);
    return e;
}
