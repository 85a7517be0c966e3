/* Graphs: nodes, dependencies, copies, and the order in which nodes can be launched. */
#include "vgpu/vgpu_graph.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_GRAPHS = 1 << 18, MAX_NODES = 1 << 22 };

static struct vgpu_slab graphs = {.item_bytes = sizeof(struct CUgraph_st), .capacity = MAX_GRAPHS};
static struct vgpu_slab nodes = {.item_bytes = sizeof(struct CUgraphNode_st), .capacity = MAX_NODES};
static uint32_t last_graph_id;
static uint64_t last_node_id;

struct CUgraph_st *vgpu_graph_find(cudaGraph_t g) {
    return vgpu_slab_has(&graphs, g) && !g->executable ? g : NULL;
}

bool vgpu_graph_any(cudaGraph_t g) {
    return vgpu_slab_has(&graphs, g);
}

struct CUgraphNode_st *vgpu_node_find(cudaGraphNode_t n) {
    return vgpu_slab_has(&nodes, n) ? n : NULL;
}

struct CUgraph_st *vgpu_graph_new(void) {
    struct CUgraph_st *g = vgpu_slab_take(&graphs);
    if (!g) return NULL;
    struct vgpu_item item = g->item;
    *g = (struct CUgraph_st){.item = item, .id = ++last_graph_id};
    return g;
}

/* Room for one more of `bytes` each. */
static bool grow(void **list, size_t count, size_t *room, size_t bytes) {
    if (count < *room) return true;
    size_t wanted = *room ? *room * 2 : 4;
    void *p = realloc(*list, wanted * bytes);
    if (!p) return false;
    *list = p;
    *room = wanted;
    return true;
}

/* ---- bodies ---- */

static bool has_block(const struct vgpu_body *b) {
    return b->type == cudaGraphNodeTypeMemAlloc && b->block;
}

void vgpu_body_free(struct vgpu_body *b) {
    vgpu_made_free(&b->made);
    if (b->type == cudaGraphNodeTypeKernel) {
        free(b->pointers);
        free(b->attribute);
    }
    if (b->type == cudaGraphNodeTypeGraph && b->child) vgpu_graph_free(b->child);
    if (has_block(b)) vgpu_graph_block_drop(b->block);
    b->type = cudaGraphNodeTypeEmpty;
}

static bool copy_attributes(struct vgpu_body *to, const struct vgpu_body *from) {
    size_t bytes = from->attributes * sizeof *from->attribute;
    to->pointers = NULL;
    to->attribute = bytes ? malloc(bytes) : NULL;
    if (to->attribute) memcpy(to->attribute, from->attribute, bytes);
    return !bytes || to->attribute;
}

static cudaError_t copy_body(struct vgpu_body *to, const struct vgpu_body *from, bool executable) {
    *to = *from;
    to->made = (struct vgpu_made){0};
    if (from->type == cudaGraphNodeTypeGraph) {
        to->child = NULL;
        return vgpu_graph_copy(from->child, executable, &to->child);
    }
    if (has_block(to)) vgpu_graph_block_hold(to->block);
    if (to->type == cudaGraphNodeTypeKernel && !copy_attributes(to, from)) return cudaErrorMemoryAllocation;
    cudaError_t e = from->made.args ? vgpu_made_copy(&to->made, &from->made.work) : cudaSuccess;
    if (e) vgpu_body_free(to);
    return e;
}

cudaError_t vgpu_body_copy(struct vgpu_body *to, const struct vgpu_body *from) {
    return copy_body(to, from, false);
}

/* ---- nodes and edges ---- */

static struct vgpu_edge *find_edge(const struct CUgraphNode_st *from, const struct CUgraphNode_st *to) {
    for (size_t i = 0; i < to->ins; i++)
        if (to->in[i].from == from) return &to->in[i];
    return NULL;
}

cudaError_t vgpu_edge_add(struct CUgraphNode_st *from, struct CUgraphNode_st *to, const cudaGraphEdgeData *data) {
    if (from == to || from->graph != to->graph || find_edge(from, to)) return cudaErrorInvalidValue;
    if (!grow((void **)&to->in, to->ins, &to->ins_room, sizeof *to->in)) return cudaErrorMemoryAllocation;
    to->in[to->ins++] = (struct vgpu_edge){from, data ? *data : (cudaGraphEdgeData){0}};
    return cudaSuccess;
}

static void free_node(struct CUgraphNode_st *n) {
    vgpu_body_free(&n->body);
    free(n->in);
    vgpu_slab_give(&nodes, n);
}

static void drop_edge(struct CUgraphNode_st *to, size_t i) {
    memmove(&to->in[i], &to->in[i + 1], (--to->ins - i) * sizeof *to->in);
}

static void remove_node(struct CUgraphNode_st *n) {
    struct CUgraph_st *g = n->graph;
    for (size_t i = 0; i < g->nodes; i++) {
        struct vgpu_edge *e = find_edge(n, g->node[i]);
        if (e) drop_edge(g->node[i], (size_t)(e - g->node[i]->in));
    }
    memmove(&g->node[n->index], &g->node[n->index + 1], (--g->nodes - n->index) * sizeof *g->node);
    for (size_t i = n->index; i < g->nodes; i++) g->node[i]->index = i;
    free_node(n);
}

static cudaError_t connect(struct CUgraphNode_st *n, const cudaGraphNode_t *from, const cudaGraphEdgeData *edges,
                           size_t count) {
    for (size_t i = 0; i < count; i++) {
        struct CUgraphNode_st *f = vgpu_node_find(from[i]);
        cudaError_t e = f ? vgpu_edge_add(f, n, edges ? &edges[i] : NULL) : cudaErrorInvalidValue;
        if (e) return e;
    }
    return cudaSuccess;
}

static struct CUgraphNode_st *new_node(struct CUgraph_st *g) {
    if (!grow((void **)&g->node, g->nodes, &g->room, sizeof(struct CUgraphNode_st *))) return NULL;
    struct CUgraphNode_st *n = vgpu_slab_take(&nodes);
    if (!n) return NULL;
    struct vgpu_item item = n->item;
    *n = (struct CUgraphNode_st){.item = item, .id = ++last_node_id, .graph = g, .index = g->nodes};
    g->node[g->nodes++] = n;
    return n;
}

cudaError_t vgpu_node_add(struct CUgraph_st *g, const cudaGraphNode_t *from, const cudaGraphEdgeData *edges,
                          size_t count, struct vgpu_body *body, struct CUgraphNode_st **out) {
    struct CUgraphNode_st *n = new_node(g);
    if (!n) {
        vgpu_body_free(body);
        return cudaErrorMemoryAllocation;
    }
    n->body = *body;
    if (body->type == cudaGraphNodeTypeGraph) body->child->parent = n;
    if (body->type == cudaGraphNodeTypeMemAlloc || body->type == cudaGraphNodeTypeMemFree) g->memory = true;
    cudaError_t e = connect(n, from, edges, count);
    if (e) {
        remove_node(n);
        return e;
    }
    vgpu_graph_tell(CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED, g, n, NULL);
    *out = n;
    return cudaSuccess;
}

cudaError_t vgpu_node_add_checked(cudaGraphNode_t *out, cudaGraph_t graph, const cudaGraphNode_t *from,
                                  const cudaGraphEdgeData *edges, size_t count, struct vgpu_body *body) {
    cudaError_t e = cudaErrorInvalidValue;
    pthread_mutex_lock(&vgpu_lock);
    struct CUgraph_st *g = vgpu_graph_find(graph);
    if (out && g && (!count || from))
        e = vgpu_node_add(g, from, edges, count, body, out);
    else
        vgpu_body_free(body);
    pthread_mutex_unlock(&vgpu_lock);
    vgpu_graph_tell_all();
    return e;
}

void vgpu_graph_free(struct CUgraph_st *g) {
    for (size_t i = 0; i < g->nodes; i++) free_node(g->node[i]);
    for (size_t i = 0; i < g->holds; i++) vgpu_object_release(g->held[i].object, g->held[i].count);
    free(g->node);
    free(g->held);
    vgpu_slab_give(&graphs, g);
}

/* ---- copies ---- */

static cudaError_t copy_node(struct CUgraph_st *to, const struct CUgraphNode_st *from) {
    struct CUgraphNode_st *n = new_node(to);
    if (!n) return cudaErrorMemoryAllocation;
    n->body.type = cudaGraphNodeTypeEmpty;
    n->original = (struct CUgraphNode_st *)from;
    n->original_id = from->id;
    n->disabled = from->disabled;
    struct vgpu_body body;
    cudaError_t e = copy_body(&body, &from->body, to->executable);
    if (e) return e;
    n->body = body;
    if (body.type == cudaGraphNodeTypeGraph) body.child->parent = n;
    for (size_t i = 0; i < from->ins && !e; i++) /* its like is there already, or comes with its edges later */
        if (from->in[i].from->index < n->index)
            e = vgpu_edge_add(to->node[from->in[i].from->index], n, &from->in[i].data);
    return e;
}

/* Edges from nodes that were made later than the node they lead to. */
static cudaError_t copy_late_edges(struct CUgraph_st *to, const struct CUgraph_st *from) {
    cudaError_t e = cudaSuccess;
    for (size_t i = 0; i < from->nodes; i++)
        for (size_t k = 0; k < from->node[i]->ins && !e; k++)
            if (from->node[i]->in[k].from->index > i)
                e = vgpu_edge_add(to->node[from->node[i]->in[k].from->index], to->node[i], &from->node[i]->in[k].data);
    return e;
}

static cudaError_t copy_holds(struct CUgraph_st *to, const struct CUgraph_st *from) {
    if (!from->holds) return cudaSuccess;
    to->held = malloc(from->holds * sizeof *to->held);
    if (!to->held) return cudaErrorMemoryAllocation;
    for (size_t i = 0; i < from->holds; i++) {
        to->held[i] = from->held[i];
        vgpu_object_retain(to->held[i].object, to->held[i].count);
    }
    to->holds = from->holds;
    return cudaSuccess;
}

cudaError_t vgpu_graph_copy(const struct CUgraph_st *from, bool executable, struct CUgraph_st **out) {
    struct CUgraph_st *to = vgpu_graph_new();
    if (!to) return cudaErrorMemoryAllocation;
    to->executable = executable;
    to->memory = from->memory;
    to->original = (struct CUgraph_st *)from;
    to->original_id = from->id;
    cudaError_t e = cudaSuccess;
    for (size_t i = 0; i < from->nodes && !e; i++) e = copy_node(to, from->node[i]);
    if (!e) e = copy_late_edges(to, from);
    if (!e) e = copy_holds(to, from);
    if (e) {
        vgpu_graph_free(to);
        return e;
    }
    vgpu_graph_tell(CUPTI_CBID_RESOURCE_GRAPH_CLONED, to, NULL, NULL);
    for (size_t i = 0; i < to->nodes; i++) vgpu_graph_tell(CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED, to, to->node[i], NULL);
    *out = to;
    return cudaSuccess;
}

/* ---- order ---- */

static size_t count_all(const struct CUgraph_st *g) {
    size_t n = g->nodes;
    for (size_t i = 0; i < g->nodes; i++)
        if (g->node[i]->body.type == cudaGraphNodeTypeGraph) n += count_all(g->node[i]->body.child);
    return n;
}

static cudaError_t order(const struct CUgraph_st *g, struct CUgraphNode_st **out, size_t *count);

/* A child's nodes take its place; the node itself comes after them. */
static cudaError_t put(struct CUgraphNode_st *n, struct CUgraphNode_st **out, size_t *count) {
    cudaError_t e = n->body.type == cudaGraphNodeTypeGraph ? order(n->body.child, out, count) : cudaSuccess;
    if (!e) out[(*count)++] = n;
    return e;
}

/* The first node, by age, whose dependencies are all out: captured graphs keep their order. Each round takes all that
 * can go, so that a graph made backwards is no worse than quadratic. */
static cudaError_t order(const struct CUgraph_st *g, struct CUgraphNode_st **out, size_t *count) {
    size_t left = g->nodes;
    for (size_t i = 0; i < g->nodes; i++) g->node[i]->mark = false;
    while (left) {
        size_t before = left;
        for (size_t i = 0; i < g->nodes; i++) {
            struct CUgraphNode_st *n = g->node[i];
            bool can = !n->mark;
            for (size_t k = 0; k < n->ins && can; k++) can = n->in[k].from->mark;
            if (!can) continue;
            cudaError_t e = put(n, out, count);
            if (e) return e;
            n->mark = true;
            left--;
        }
        if (left == before) return cudaErrorInvalidValue;
    }
    return cudaSuccess;
}

cudaError_t vgpu_graph_order(const struct CUgraph_st *g, struct CUgraphNode_st ***out, size_t *count) {
    *count = 0;
    *out = malloc((count_all(g) + 1) * sizeof **out);
    cudaError_t e = *out ? order(g, *out, count) : cudaErrorMemoryAllocation;
    if (e) {
        free(*out);
        *out = NULL;
    }
    return e;
}

/* ---- the runtime's functions ---- */

#define LOCKED(e)                         \
    do {                                  \
        pthread_mutex_lock(&vgpu_lock);   \
        e;                                \
        pthread_mutex_unlock(&vgpu_lock); \
        vgpu_graph_tell_all();            \
    } while (0)

cudaError_t cudaGraphCreate(cudaGraph_t *out, unsigned int flags) {
    struct CUgraph_st *g;
    if (!out || flags) return cudaErrorInvalidValue;
    LOCKED({
        g = vgpu_graph_new();
        if (g) vgpu_graph_tell(CUPTI_CBID_RESOURCE_GRAPH_CREATED, g, NULL, NULL);
    });
    if (!g) return cudaErrorMemoryAllocation;
    *out = g;
    return cudaSuccess;
}

/* The client hears of what goes while it is still there. */
static cudaError_t about_to_destroy(cudaGraph_t graph) {
    cudaError_t e = cudaSuccess;
    LOCKED({
        struct CUgraph_st *g = vgpu_graph_find(graph);
        if (!g || g->parent || vgpu_capture_fills(g)) e = cudaErrorInvalidValue;
        for (size_t i = 0; !e && i < g->nodes; i++)
            vgpu_graph_tell(CUPTI_CBID_RESOURCE_GRAPHNODE_DESTROY_STARTING, g, g->node[i], NULL);
        if (!e) vgpu_graph_tell(CUPTI_CBID_RESOURCE_GRAPH_DESTROY_STARTING, g, NULL, NULL);
    });
    return e;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    cudaError_t e = about_to_destroy(graph);
    if (!e) LOCKED(if (vgpu_graph_find(graph)) vgpu_graph_free(graph));
    vgpu_objects_run();
    return e;
}

cudaError_t cudaGraphClone(cudaGraph_t *out, cudaGraph_t graph) {
    cudaError_t e = cudaErrorInvalidValue;
    struct CUgraph_st *copy = NULL;
    LOCKED({
        struct CUgraph_st *g = vgpu_graph_find(graph);
        if (out && g) e = g->memory ? cudaErrorNotSupported : vgpu_graph_copy(g, false, &copy);
    });
    if (!e) *out = copy;
    return e;
}

cudaError_t cudaGraphNodeFindInClone(cudaGraphNode_t *out, cudaGraphNode_t original, cudaGraph_t clone) {
    cudaError_t e = cudaErrorInvalidValue;
    LOCKED({
        struct CUgraph_st *g = vgpu_graph_find(clone);
        for (size_t i = 0; out && g && i < g->nodes && e; i++)
            if (g->node[i]->original == original && vgpu_node_find(original) &&
                g->node[i]->original_id == original->id) {
                *out = g->node[i];
                e = cudaSuccess;
            }
    });
    return e;
}

cudaError_t cudaGraphDestroyNode(cudaGraphNode_t node) {
    cudaError_t e = cudaErrorInvalidValue;
    LOCKED({
        struct CUgraphNode_st *n = vgpu_node_find(node);
        if (n && !n->graph->executable) e = n->graph->memory ? cudaErrorNotSupported : cudaSuccess;
        if (!e) vgpu_graph_tell(CUPTI_CBID_RESOURCE_GRAPHNODE_DESTROY_STARTING, n->graph, n, NULL);
    });
    if (!e) LOCKED(if (vgpu_node_find(node)) remove_node(node));
    return e;
}

static cudaError_t edges(cudaGraph_t graph, const cudaGraphNode_t *from, const cudaGraphNode_t *to,
                         const cudaGraphEdgeData *data, size_t count, bool add) {
    struct CUgraph_st *g = vgpu_graph_find(graph);
    if (!g || (count && (!from || !to))) return cudaErrorInvalidValue;
    if (!add && g->memory) return cudaErrorNotSupported;
    for (size_t i = 0; i < count; i++) {
        struct CUgraphNode_st *a = vgpu_node_find(from[i]), *b = vgpu_node_find(to[i]);
        if (!a || !b || a->graph != g || b->graph != g || a == b || !find_edge(a, b) != add)
            return cudaErrorInvalidValue;
    }
    for (size_t i = 0; i < count; i++) {
        cudaError_t e = add ? vgpu_edge_add(from[i], to[i], data ? &data[i] : NULL) : cudaSuccess;
        struct vgpu_edge *old = add ? NULL : find_edge(from[i], to[i]);
        if (e) return e;
        if (old) drop_edge(to[i], (size_t)(old - to[i]->in));
    }
    return cudaSuccess;
}

cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t *from, const cudaGraphNode_t *to,
                                     const cudaGraphEdgeData *data, size_t count) {
    cudaError_t e;
    LOCKED(e = edges(graph, from, to, data, count, true));
    return e;
}

cudaError_t cudaGraphRemoveDependencies(cudaGraph_t graph, const cudaGraphNode_t *from, const cudaGraphNode_t *to,
                                        const cudaGraphEdgeData *data, size_t count) {
    cudaError_t e;
    (void)data;
    LOCKED(e = edges(graph, from, to, NULL, count, false));
    return e;
}
