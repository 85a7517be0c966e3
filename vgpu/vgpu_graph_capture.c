/* Capture: streams whose calls become nodes. A capture spreads from the stream where it began to every stream that
 * waits for an event recorded in it; each of them has a front, the nodes that its next call depends on. */
#include "vgpu/vgpu_graph.h"

#include <stdlib.h>
#include <string.h>

struct vgpu_capture {
    struct vgpu_capture *next;
    uint64_t id;
    struct CUgraph_st *graph;
    bool given; /* the graph is the program's (cudaStreamBeginCaptureToGraph) */
    enum cudaStreamCaptureMode mode;
    pthread_t thread;
    struct vgpu_stream *origin;
    struct vgpu_stream *streams; /* all of it, by capture_next */
    struct vgpu_front left;      /* the last work of streams that were destroyed meanwhile */
    bool invalid;
};

static struct vgpu_capture *captures;
static _Atomic unsigned active; /* how many */
static uint64_t last_id;
static __thread enum cudaStreamCaptureMode interaction = cudaStreamCaptureModeGlobal;
__thread unsigned vgpu_capture_exempt;

static struct vgpu_capture *find(uint64_t id) {
    struct vgpu_capture *c = captures;
    while (c && c->id != id) c = c->next;
    return c;
}

/* ---- fronts ---- */

static void clear_front(struct vgpu_front *f) {
    free(f->node);
    free(f->edge);
    *f = (struct vgpu_front){0};
}

static bool has_node(const struct vgpu_front *f, const struct CUgraphNode_st *n) {
    for (size_t i = 0; i < f->count; i++)
        if (f->node[i] == n) return true;
    return false;
}

static cudaError_t extend(struct vgpu_front *f, struct CUgraphNode_st *const *nodes, const cudaGraphEdgeData *edges,
                          size_t count) {
    if (!count) return cudaSuccess;
    struct CUgraphNode_st **n = realloc(f->node, (f->count + count) * sizeof *n);
    if (n) f->node = n;
    cudaGraphEdgeData *e = realloc(f->edge, (f->count + count) * sizeof *e);
    if (e) f->edge = e;
    if (!n || !e) return cudaErrorMemoryAllocation;
    for (size_t i = 0; i < count; i++) {
        if (has_node(f, nodes[i])) continue;
        f->node[f->count] = nodes[i];
        f->edge[f->count++] = edges ? edges[i] : (cudaGraphEdgeData){0};
    }
    return cudaSuccess;
}

static cudaError_t set_front(struct vgpu_front *f, struct CUgraphNode_st *const *nodes, const cudaGraphEdgeData *edges,
                             size_t count) {
    struct vgpu_front fresh = {0};
    cudaError_t e = extend(&fresh, nodes, edges, count);
    clear_front(e ? &fresh : f);
    if (!e) *f = fresh;
    return e;
}

/* ---- beginning and end ---- */

static void join(struct vgpu_capture *c, struct vgpu_stream *s) {
    s->capture = c;
    s->capture_next = c->streams;
    c->streams = s;
}

static void free_capture(struct vgpu_capture *c) {
    for (struct vgpu_stream *s = c->streams; s; s = s->capture_next) {
        s->capture = NULL;
        clear_front(&s->front);
    }
    for (struct vgpu_capture **at = &captures; *at; at = &(*at)->next)
        if (*at == c) {
            *at = c->next;
            break;
        }
    clear_front(&c->left);
    atomic_fetch_sub_explicit(&active, 1, memory_order_relaxed);
    free(c);
}

static cudaError_t begin(struct vgpu_stream *s, struct CUgraph_st *graph, const cudaGraphNode_t *from,
                         const cudaGraphEdgeData *edges, size_t count, enum cudaStreamCaptureMode mode) {
    if (vgpu_stream_is_legacy(s)) return cudaErrorStreamCaptureUnsupported;
    if (s->capture) return cudaErrorIllegalState;
    for (size_t i = 0; i < count; i++)
        if (!vgpu_node_find(from[i]) || from[i]->graph != graph) return cudaErrorInvalidValue;
    struct vgpu_capture *c = calloc(1, sizeof *c);
    cudaError_t e = c ? set_front(&s->front, from, edges, count) : cudaErrorMemoryAllocation;
    struct CUgraph_st *g = graph ? graph : e ? NULL : vgpu_graph_new();
    if (e || !g) {
        free(c);
        clear_front(&s->front);
        return cudaErrorMemoryAllocation;
    }
    *c = (struct vgpu_capture){.next = captures,
                               .id = ++last_id,
                               .graph = g,
                               .given = graph != NULL,
                               .mode = mode,
                               .thread = pthread_self(),
                               .origin = s};
    captures = c;
    atomic_fetch_add_explicit(&active, 1, memory_order_relaxed);
    join(c, s);
    if (!graph) vgpu_graph_tell(CUPTI_CBID_RESOURCE_GRAPH_CREATED, g, NULL, NULL);
    return cudaSuccess;
}

static cudaError_t begin_in(cudaStream_t stream, cudaGraph_t graph, const cudaGraphNode_t *from,
                            const cudaGraphEdgeData *edges, size_t count, enum cudaStreamCaptureMode mode) {
    if ((unsigned)mode > cudaStreamCaptureModeRelaxed || (count && !from)) return cudaErrorInvalidValue;
    pthread_mutex_lock(&vgpu_lock);
    struct vgpu_stream *s = vgpu_stream_find(stream);
    cudaError_t e = s ? begin(s, graph, from, edges, count, mode) : cudaErrorInvalidResourceHandle;
    pthread_mutex_unlock(&vgpu_lock);
    vgpu_graph_tell_all();
    return e;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
    return begin_in(stream, NULL, NULL, NULL, 0, mode);
}

cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t graph, const cudaGraphNode_t *from,
                                          const cudaGraphEdgeData *edges, size_t count,
                                          enum cudaStreamCaptureMode mode) {
    pthread_mutex_lock(&vgpu_lock);
    bool known = vgpu_graph_find(graph) != NULL;
    pthread_mutex_unlock(&vgpu_lock);
    return known ? begin_in(stream, graph, from, edges, count, mode) : cudaErrorInvalidValue;
}

static void mark_from(struct CUgraphNode_st *n) {
    if (n->mark) return;
    n->mark = true;
    for (size_t i = 0; i < n->ins; i++) mark_from(n->in[i].from);
}

static bool all_marked(const struct vgpu_front *f) {
    for (size_t i = 0; i < f->count; i++)
        if (!f->node[i]->mark) return false;
    return true;
}

/* Does every other stream's last work come before what the origin goes on from? A node's dependencies are older than
 * it, but for those that the program added itself, so one pass from the youngest to the oldest nearly always does. */
static bool joined(const struct vgpu_capture *c) {
    const struct CUgraph_st *g = c->graph;
    for (size_t i = 0; i < g->nodes; i++) g->node[i]->mark = false;
    for (size_t i = 0; i < c->origin->front.count; i++) c->origin->front.node[i]->mark = true;
    for (size_t i = g->nodes; i-- > 0;)
        for (size_t k = 0; g->node[i]->mark && k < g->node[i]->ins; k++) {
            if (g->node[i]->in[k].from->index > i)
                mark_from(g->node[i]->in[k].from);
            else
                g->node[i]->in[k].from->mark = true;
        }
    for (const struct vgpu_stream *s = c->streams; s; s = s->capture_next)
        if (!all_marked(&s->front)) return false;
    return all_marked(&c->left);
}

static cudaError_t end(struct vgpu_stream *s, struct CUgraph_st **out) {
    struct vgpu_capture *c = s->capture;
    *out = NULL;
    if (!c) return cudaErrorIllegalState;
    if (c->origin != s) return cudaErrorStreamCaptureUnmatched;
    if (c->mode != cudaStreamCaptureModeRelaxed && !pthread_equal(c->thread, pthread_self()))
        return cudaErrorStreamCaptureWrongThread;
    cudaError_t e = c->invalid   ? cudaErrorStreamCaptureInvalidated
                    : !joined(c) ? cudaErrorStreamCaptureUnjoined
                                 : cudaSuccess;
    if (!e)
        *out = c->graph;
    else if (!c->given)
        vgpu_graph_free(c->graph);
    free_capture(c);
    return e;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out) {
    struct CUgraph_st *graph = NULL;
    if (!out) return cudaErrorInvalidValue;
    pthread_mutex_lock(&vgpu_lock);
    struct vgpu_stream *s = vgpu_stream_find(stream);
    cudaError_t e = s ? end(s, &graph) : cudaErrorInvalidResourceHandle;
    pthread_mutex_unlock(&vgpu_lock);
    vgpu_objects_run();
    *out = graph;
    return e;
}

/* A stream is destroyed. Where the capture began, nothing can end it any more; else it goes on, and what the stream did
 * must have been joined by its end. */
void vgpu_capture_stream_gone(struct vgpu_stream *s) {
    struct vgpu_capture *c = s->capture;
    if (!c) return;
    if (c->origin == s) {
        if (!c->given) vgpu_graph_free(c->graph);
        free_capture(c);
        return;
    }
    for (struct vgpu_stream **at = &c->streams; *at; at = &(*at)->capture_next)
        if (*at == s) {
            *at = s->capture_next;
            break;
        }
    if (extend(&c->left, s->front.node, s->front.edge, s->front.count)) c->invalid = true;
    s->capture = NULL;
    clear_front(&s->front);
}

bool vgpu_capture_fills(const struct CUgraph_st *g) {
    for (const struct vgpu_capture *c = captures; c; c = c->next)
        if (c->graph == g) return true;
    return false;
}

/* ---- what is refused ---- */

static cudaError_t invalidate(struct vgpu_capture *c, cudaError_t error) {
    cudaError_t e = c->invalid ? cudaErrorStreamCaptureInvalidated : error;
    c->invalid = true;
    return e;
}

/* The legacy stream waits for every blocking stream: for one that is captured it cannot. */
static bool concerns_legacy(const struct vgpu_capture *c) {
    for (const struct vgpu_stream *s = c->streams; s; s = s->capture_next)
        if (!(s->flags & cudaStreamNonBlocking)) return true;
    return false;
}

static cudaError_t refuse_legacy(bool spoil) {
    cudaError_t e = cudaSuccess;
    for (struct vgpu_capture *c = captures; c; c = c->next)
        if (concerns_legacy(c)) {
            c->invalid |= spoil;
            e = cudaErrorStreamCaptureImplicit;
        }
    return e;
}

static bool forbids(const struct vgpu_capture *c) {
    if (pthread_equal(c->thread, pthread_self())) return c->mode != cudaStreamCaptureModeRelaxed;
    return interaction == cudaStreamCaptureModeGlobal && c->mode == cudaStreamCaptureModeGlobal;
}

cudaError_t vgpu_capture_unsafe_locked(void) {
    cudaError_t e = cudaSuccess;
    if (vgpu_capture_exempt || interaction == cudaStreamCaptureModeRelaxed) return e;
    for (struct vgpu_capture *c = captures; c; c = c->next)
        if (forbids(c)) {
            c->invalid = true;
            e = cudaErrorStreamCaptureUnsupported;
        }
    return e;
}

static bool none(void) {
    return !atomic_load_explicit(&active, memory_order_relaxed);
}

cudaError_t vgpu_capture_unsafe(void) {
    if (none() || vgpu_capture_exempt || vgpu_on_worker()) return cudaSuccess;
    pthread_mutex_lock(&vgpu_lock);
    cudaError_t e = vgpu_capture_unsafe_locked();
    pthread_mutex_unlock(&vgpu_lock);
    return e;
}

cudaError_t vgpu_capture_refuse_stream(struct vgpu_stream *s) {
    if (none()) return cudaSuccess;
    if (s->capture) return invalidate(s->capture, cudaErrorStreamCaptureUnsupported);
    cudaError_t e = vgpu_stream_is_legacy(s) ? refuse_legacy(true) : cudaSuccess;
    return e ? e : vgpu_capture_unsafe_locked();
}

/* The event is no point in any stream's work; asking spoils a capture that still goes on. */
cudaError_t vgpu_capture_refuse_event(const struct vgpu_captured *mark) {
    struct vgpu_capture *c = find(mark->capture);
    if (c) c->invalid = true;
    return cudaErrorCapturedEvent;
}

cudaError_t vgpu_capture_refuse_all(void) {
    cudaError_t e = cudaSuccess;
    if (none()) return e;
    pthread_mutex_lock(&vgpu_lock);
    for (struct vgpu_capture *c = captures; c; c = c->next) {
        c->invalid = true;
        e = cudaErrorStreamCaptureUnsupported;
    }
    pthread_mutex_unlock(&vgpu_lock);
    return e;
}

bool vgpu_capturing(cudaStream_t stream) {
    if (vgpu_making()) return true;
    if (none()) return false;
    pthread_mutex_lock(&vgpu_lock);
    struct vgpu_stream *s = vgpu_stream_find(stream);
    bool is = s && s->capture;
    pthread_mutex_unlock(&vgpu_lock);
    return is;
}

/* ---- calls that become nodes ---- */

cudaError_t vgpu_capture_add(struct vgpu_stream *s, struct vgpu_body *body, struct CUgraphNode_st **out) {
    struct vgpu_capture *c = s->capture;
    struct CUgraphNode_st *n;
    if (c->invalid) {
        vgpu_body_free(body);
        return cudaErrorStreamCaptureInvalidated;
    }
    cudaError_t e = vgpu_node_add(c->graph, s->front.node, s->front.edge, s->front.count, body, &n);
    if (!e) e = set_front(&s->front, &n, NULL, 1);
    if (!e && out) *out = n;
    return e ? invalidate(c, e) : cudaSuccess;
}

static enum cudaGraphNodeType type_of(const struct vgpu_work *w) {
    switch ((enum vgpu_activity_kind)w->activity.kind) {
    case VGPU_ACTIVITY_KERNEL:
        return cudaGraphNodeTypeKernel;
    case VGPU_ACTIVITY_COPY:
        return cudaGraphNodeTypeMemcpy;
    case VGPU_ACTIVITY_MEMSET:
        return cudaGraphNodeTypeMemset;
    default:
        return w->blas ? cudaGraphNodeTypeKernel : cudaGraphNodeTypeHost;
    }
}

/* The body of a node that does what the call would have queued. */
static cudaError_t take(struct vgpu_stream *s, const struct vgpu_work *w) {
    struct vgpu_body body = {.type = type_of(w)};
    if (s->capture->invalid) return cudaErrorStreamCaptureInvalidated;
    if (w->waited) return invalidate(s->capture, cudaErrorStreamCaptureUnsupported);
    cudaError_t e = vgpu_made_copy(&body.made, w);
    if (e) return invalidate(s->capture, e);
    vgpu_body_describe(&body);
    return vgpu_capture_add(s, &body, NULL);
}

bool vgpu_capture_takes(struct vgpu_stream *s, const struct vgpu_work *w, cudaError_t *error) {
    if (vgpu_making()) {
        *error = vgpu_make_take(w);
        return true;
    }
    if (none()) return false;
    *error = s->capture ? take(s, w) : vgpu_stream_is_legacy(s) ? refuse_legacy(true) : cudaSuccess;
    return s->capture || *error;
}

/* ---- events ---- */

void vgpu_captured_clear(struct vgpu_captured *m) {
    m->capture = 0;
    clear_front(&m->at);
}

static cudaError_t add_event(struct vgpu_stream *s, enum cudaGraphNodeType type, cudaEvent_t event) {
    struct vgpu_body body = {.type = type, .event = event};
    return vgpu_capture_add(s, &body, NULL);
}

bool vgpu_capture_record(struct vgpu_stream *s, cudaEvent_t event, struct vgpu_captured *mark, unsigned flags,
                         cudaError_t *error) {
    struct vgpu_capture *c = s->capture;
    if (none()) return false;
    if (!c) {
        *error = vgpu_stream_is_legacy(s) ? refuse_legacy(true) : cudaSuccess;
        return *error != cudaSuccess;
    }
    if (c->invalid) {
        *error = cudaErrorStreamCaptureInvalidated;
    } else if (flags & cudaEventRecordExternal) {
        *error = add_event(s, cudaGraphNodeTypeEventRecord, event);
    } else {
        *error = set_front(&mark->at, s->front.node, s->front.edge, s->front.count);
        if (!*error) mark->capture = c->id;
    }
    return true;
}

/* The event lies in capture `c`: the stream joins it, or is in it already. */
static cudaError_t wait_inside(struct vgpu_stream *s, struct vgpu_capture *c, const struct vgpu_captured *mark) {
    if (c->invalid) return cudaErrorStreamCaptureInvalidated;
    if (s->capture && s->capture != c) {
        s->capture->invalid = true;
        return invalidate(c, cudaErrorStreamCaptureMerge);
    }
    if (vgpu_stream_is_legacy(s)) return invalidate(c, cudaErrorStreamCaptureImplicit);
    if (!s->capture) join(c, s);
    return extend(&s->front, mark->at.node, mark->at.edge, mark->at.count);
}

bool vgpu_capture_wait(struct vgpu_stream *s, cudaEvent_t event, const struct vgpu_captured *mark, bool recorded,
                       unsigned flags, cudaError_t *error) {
    struct vgpu_capture *c = mark->capture ? find(mark->capture) : NULL;
    if (none() && !mark->capture) return false;
    if (s->capture && s->capture->invalid) {
        *error = cudaErrorStreamCaptureInvalidated;
    } else if (s->capture && flags & cudaEventWaitExternal) {
        *error = add_event(s, cudaGraphNodeTypeWaitEvent, event);
    } else if (c) {
        *error = wait_inside(s, c, mark);
    } else if (mark->capture) { /* of a capture that has ended */
        *error = s->capture ? invalidate(s->capture, cudaErrorStreamCaptureIsolation) : cudaErrorCapturedEvent;
    } else if (s->capture) {
        *error = recorded ? invalidate(s->capture, cudaErrorStreamCaptureIsolation) : cudaSuccess;
    } else {
        *error = vgpu_stream_is_legacy(s) ? refuse_legacy(true) : cudaSuccess;
        return *error != cudaSuccess;
    }
    return true;
}

/* ---- what a stream tells of its capture ---- */

static cudaError_t info(struct vgpu_stream *s, enum cudaStreamCaptureStatus *status, unsigned long long *id,
                        cudaGraph_t *graph, const cudaGraphNode_t **nodes, const cudaGraphEdgeData **edges,
                        size_t *count) {
    const struct vgpu_capture *c = s->capture;
    if (vgpu_stream_is_legacy(s) && refuse_legacy(false)) return cudaErrorStreamCaptureImplicit;
    *status = !c           ? cudaStreamCaptureStatusNone
              : c->invalid ? cudaStreamCaptureStatusInvalidated
                           : cudaStreamCaptureStatusActive;
    if (*status != cudaStreamCaptureStatusActive) return cudaSuccess;
    if (id) *id = c->id;
    if (graph) *graph = c->graph;
    if (nodes) *nodes = s->front.node;
    if (edges) *edges = s->front.edge;
    if (count) *count = s->front.count;
    for (size_t i = 0; nodes && !edges && i < s->front.count; i++)
        if (s->front.edge[i].type || s->front.edge[i].from_port || s->front.edge[i].to_port) return cudaErrorLossyQuery;
    return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id,
                                     cudaGraph_t *graph, const cudaGraphNode_t **nodes, const cudaGraphEdgeData **edges,
                                     size_t *count) {
    if (!status) return cudaErrorInvalidValue;
    pthread_mutex_lock(&vgpu_lock);
    struct vgpu_stream *s = vgpu_stream_find(stream);
    cudaError_t e = s ? info(s, status, id, graph, nodes, edges, count) : cudaErrorInvalidResourceHandle;
    pthread_mutex_unlock(&vgpu_lock);
    return e;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
    return cudaStreamGetCaptureInfo(stream, status, NULL, NULL, NULL, NULL, NULL);
}

static cudaError_t update(struct vgpu_stream *s, cudaGraphNode_t *nodes, const cudaGraphEdgeData *edges, size_t count,
                          unsigned flags) {
    if (!s->capture) return cudaErrorIllegalState;
    if (s->capture->invalid) return cudaErrorStreamCaptureInvalidated;
    for (size_t i = 0; i < count; i++)
        if (!vgpu_node_find(nodes[i]) || nodes[i]->graph != s->capture->graph) return cudaErrorInvalidValue;
    struct vgpu_front more = {0}; /* `nodes` may be what cudaStreamGetCaptureInfo told: the front itself */
    cudaError_t e = set_front(&more, nodes, edges, count);
    if (!e && flags == cudaStreamSetCaptureDependencies)
        e = set_front(&s->front, more.node, more.edge, more.count);
    else if (!e)
        e = extend(&s->front, more.node, more.edge, more.count);
    clear_front(&more);
    return e;
}

cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream, cudaGraphNode_t *nodes,
                                                const cudaGraphEdgeData *edges, size_t count, unsigned int flags) {
    if ((count && !nodes) || flags > cudaStreamSetCaptureDependencies) return cudaErrorInvalidValue;
    pthread_mutex_lock(&vgpu_lock);
    struct vgpu_stream *s = vgpu_stream_find(stream);
    cudaError_t e = s ? update(s, nodes, edges, count, flags) : cudaErrorInvalidResourceHandle;
    pthread_mutex_unlock(&vgpu_lock);
    return e;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) {
    if (!mode || (unsigned)*mode > cudaStreamCaptureModeRelaxed) return cudaErrorInvalidValue;
    enum cudaStreamCaptureMode before = interaction;
    interaction = *mode;
    *mode = before;
    return cudaSuccess;
}
