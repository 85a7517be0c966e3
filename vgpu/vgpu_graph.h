/* CUDA graphs, from the inside (vgpu_graph*.c). A node keeps the very work item that the call would have queued, so
 * that captured calls, explicit nodes and plain calls go one way; an executable graph is a copy of a graph, whose
 * launch queues the items of its nodes, in an order that keeps all dependencies, into the stream.
 *
 * All functions under vgpu_lock unless said otherwise. Nodes, graphs and executable graphs are handles that keep their
 * address for ever (struct vgpu_slab). */
#ifndef VGPU_GRAPH_H
#define VGPU_GRAPH_H

#include "vgpu/vgpu_stream.h"

#include <cupti.h>

struct vgpu_edge { /* of the node it leads to */
    struct CUgraphNode_st *from;
    cudaGraphEdgeData data;
};

/* A work item of its own: args copied, aligned to 16. */
struct vgpu_made {
    struct vgpu_work work; /* .args is `args`; NULL: there is none */
    void *args;
};

struct vgpu_graph_block; /* memory of an allocation node (vgpu_graph_memory.c) */

/* What a node does. */
struct vgpu_body {
    enum cudaGraphNodeType type;
    struct vgpu_made made; /* kernel, memcpy, memset, host */
    union {
        struct cudaHostNodeParams host;
        struct cudaMemsetParams memset;
        struct cudaMemcpy3DParms memcpy;
        cudaEvent_t event; /* record, wait */
        struct CUgraph_st *child;
        struct {
            struct cudaMemAllocNodeParams alloc;
            struct vgpu_graph_block *block; /* shared by copies of the node */
        };
        void *freed;
        struct {             /* kernel */
            void **pointers; /* to its arguments, for who asks; NULL: nobody has */
            struct cudaLaunchAttribute_st *attribute;
            size_t attributes;
        };
    };
};

/* The vendor's opaque types. */
struct CUgraphNode_st {
    struct vgpu_item item;
    uint64_t id; /* CUPTI's; never used twice */
    struct CUgraph_st *graph;
    size_t index; /* in graph->node */
    struct CUgraphNode_st *original;
    uint64_t original_id; /* of which it is a copy; 0: of none */
    struct vgpu_edge *in;
    size_t ins, ins_room;
    struct vgpu_body body;
    bool disabled; /* in an executable graph: kernel, memcpy, memset */
    bool mark;     /* for searches */
};

struct vgpu_held { /* a user object, so many references */
    cudaUserObject_t object;
    unsigned count;
};

struct CUgraph_st {
    struct vgpu_item item;
    uint32_t id; /* CUPTI's */
    struct CUgraph_st *original;
    uint32_t original_id;
    struct CUgraphNode_st **node; /* in order of their creation */
    size_t nodes, room;
    struct CUgraphNode_st *parent; /* the child-graph node that owns it */
    struct vgpu_held *held;
    size_t holds;
    bool executable;    /* it belongs to an executable graph: no handle of the program's */
    bool memory;        /* it has, or had, memory nodes */
    unsigned instances; /* executable graphs made of it and alive */
};

/* ---- graphs and nodes (vgpu_graph.c) ---- */
struct CUgraph_st *vgpu_graph_new(void); /* NULL: no memory */
void vgpu_graph_free(struct CUgraph_st *graph);
struct CUgraph_st *vgpu_graph_find(cudaGraph_t graph); /* NULL: none, or not the program's */
bool vgpu_graph_any(cudaGraph_t graph);                /* the program's, or an executable graph's own */
struct CUgraphNode_st *vgpu_node_find(cudaGraphNode_t node);
/* Takes the body over, also when it fails. */
cudaError_t vgpu_node_add(struct CUgraph_st *graph, const cudaGraphNode_t *from, const cudaGraphEdgeData *edges,
                          size_t count, struct vgpu_body *body, struct CUgraphNode_st **out);
/* The same with vgpu_lock taken, and the client told. */
cudaError_t vgpu_node_add_checked(cudaGraphNode_t *out, cudaGraph_t graph, const cudaGraphNode_t *from,
                                  const cudaGraphEdgeData *edges, size_t count, struct vgpu_body *body);
cudaError_t vgpu_edge_add(struct CUgraphNode_st *from, struct CUgraphNode_st *to, const cudaGraphEdgeData *data);
void vgpu_body_free(struct vgpu_body *body);
/* Fills in what the program may ask of a node, out of its work item. */
void vgpu_body_describe(struct vgpu_body *body); /* vgpu_graph_node.c */
cudaError_t vgpu_body_copy(struct vgpu_body *to, const struct vgpu_body *from);
/* A copy with nodes in the same order. */
cudaError_t vgpu_graph_copy(const struct CUgraph_st *graph, bool executable, struct CUgraph_st **out);
/* Nodes with all children's, each after those it depends on. Caller frees *out. cudaErrorInvalidValue: a cycle. */
cudaError_t vgpu_graph_order(const struct CUgraph_st *graph, struct CUgraphNode_st ***out, size_t *count);

/* ---- work that becomes a node (vgpu_graph_make.c) ---- */
/* From here to vgpu_make_end, work that this thread submits is kept instead of queued. No lock held. */
void vgpu_make_begin(struct vgpu_made *made);
cudaError_t vgpu_make_end(struct vgpu_made *made, cudaError_t error); /* `error`: of the call between */
bool vgpu_making(void);
cudaError_t vgpu_make_take(const struct vgpu_work *work); /* inside, from vgpu_enqueue */
cudaError_t vgpu_made_copy(struct vgpu_made *to, const struct vgpu_work *work);
void vgpu_made_free(struct vgpu_made *made);

/* ---- bodies out of parameters (vgpu_graph_node.c); no lock held ---- */
cudaError_t vgpu_body_kernel(const struct cudaKernelNodeParams *params, struct vgpu_body *out);
cudaError_t vgpu_body_memcpy(const struct cudaMemcpy3DParms *params, struct vgpu_body *out);
cudaError_t vgpu_body_memcpy_flat(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                                  struct vgpu_body *out);
cudaError_t vgpu_body_to_symbol(const void *symbol, const void *from, size_t bytes, size_t offset,
                                enum cudaMemcpyKind kind, struct vgpu_body *out);
cudaError_t vgpu_body_from_symbol(void *to, const void *symbol, size_t bytes, size_t offset, enum cudaMemcpyKind kind,
                                  struct vgpu_body *out);
cudaError_t vgpu_body_memset(const struct cudaMemsetParams *params, struct vgpu_body *out);
cudaError_t vgpu_body_host(const struct cudaHostNodeParams *params, struct vgpu_body *out);
cudaError_t vgpu_body_event(enum cudaGraphNodeType type, cudaEvent_t event, struct vgpu_body *out);
cudaError_t vgpu_body_child(cudaGraph_t graph, struct vgpu_body *out);
cudaError_t vgpu_body_generic(const struct cudaGraphNodeParams *params, struct vgpu_body *out);

/* ---- capture (vgpu_graph_capture.c) ---- */
/* The place in a capture that an event marks. */
struct vgpu_captured {
    uint64_t capture; /* 0: it was recorded outside of any */
    struct vgpu_front at;
};

/* What an operation of the device on that stream must do first: true, and *error, when it became a node or is refused.
 */
bool vgpu_capture_takes(struct vgpu_stream *stream, const struct vgpu_work *work, cudaError_t *error);
/* cudaEventRecord, cudaStreamWaitEvent: true when the stream's capture, or the event's, took the call. */
bool vgpu_capture_record(struct vgpu_stream *stream, cudaEvent_t event, struct vgpu_captured *mark, unsigned flags,
                         cudaError_t *error);
bool vgpu_capture_wait(struct vgpu_stream *stream, cudaEvent_t event, const struct vgpu_captured *mark, bool recorded,
                       unsigned flags, cudaError_t *error);
void vgpu_captured_clear(struct vgpu_captured *mark);
bool vgpu_capturing(cudaStream_t stream); /* or making a node; takes vgpu_lock itself */
/* Waiting for, or asking about: a stream; the whole device; the error, and the captures that it concerns are over. */
cudaError_t vgpu_capture_refuse_stream(struct vgpu_stream *stream);
cudaError_t vgpu_capture_refuse_all(void); /* takes vgpu_lock itself */
/* A call that may wait for the device, such as cudaMalloc: refused while a capture's mode forbids it. Takes vgpu_lock
 * itself. */
cudaError_t vgpu_capture_unsafe(void);
cudaError_t vgpu_capture_unsafe_locked(void);
cudaError_t vgpu_capture_refuse_event(const struct vgpu_captured *mark); /* cudaEventQuery and the like */
extern __thread unsigned vgpu_capture_exempt; /* above 0: the engine's own calls, which are never unsafe */
void vgpu_capture_stream_gone(struct vgpu_stream *stream);
bool vgpu_capture_fills(const struct CUgraph_st *graph); /* a capture goes on that adds nodes to it */

/* ---- launch (vgpu_graph_launch.c) ---- */
cudaError_t vgpu_graph_into_capture(struct vgpu_stream *stream, const struct CUgraph_st *graph);

/* ---- memory nodes (vgpu_graph_memory.c) ---- */
/* No lock held. */
cudaError_t vgpu_graph_block_new(int device, size_t bytes, struct vgpu_graph_block **out, void **address);
void vgpu_graph_block_hold(struct vgpu_graph_block *block);
void vgpu_graph_block_drop(struct vgpu_graph_block *block);
cudaError_t vgpu_graph_block_begin(struct vgpu_graph_block *block); /* its allocation node is launched */
cudaError_t vgpu_graph_block_end(const void *address);              /* its free node is */
bool vgpu_graph_block_live(const struct vgpu_graph_block *block);
void vgpu_graph_memory_reset(int device); /* all memory of the device has gone */
bool vgpu_graph_block_is(const void *address);
/* cudaFree, cudaFreeAsync of memory that a graph gave: true when `address` is such; no lock held. */
bool vgpu_graph_memory_free(void *address, cudaError_t *error);
/* cudaMallocAsync, cudaFreeAsync into a stream that is capturing: true when it is, no lock held. */
bool vgpu_graph_memory_alloc_captured(void **out, size_t bytes, int device, cudaStream_t stream, cudaError_t *error);
bool vgpu_graph_memory_free_captured(void *address, cudaStream_t stream, cudaError_t *error);
/* Adds a node that is no work item to the stream's capture. Takes the body over. */
cudaError_t vgpu_capture_add(struct vgpu_stream *stream, struct vgpu_body *body, struct CUgraphNode_st **out);

/* ---- user objects (vgpu_graph_object.c) ---- */
void vgpu_object_retain(cudaUserObject_t object, unsigned count);
void vgpu_object_release(cudaUserObject_t object, unsigned count);
void vgpu_objects_run(void); /* destructors of those without references; no lock held */

/* ---- events inside graphs (vgpu_event.c) ---- */
cudaError_t vgpu_event_record_in(cudaEvent_t event, struct vgpu_stream *stream);
cudaError_t vgpu_event_wait_in(cudaEvent_t event, struct vgpu_stream *stream);
bool vgpu_event_is(cudaEvent_t event);

/* ---- parameters out of work items ---- */
bool vgpu_copy_params(const struct vgpu_work *work, struct cudaMemcpy3DParms *out); /* vgpu_copy.c; false: it is none */
bool vgpu_fill_params(const struct vgpu_work *work, struct cudaMemsetParams *out);

/* ---- word of graphs for CUPTI's client (vgpu_cupti_graph.c) ---- */
/* Notes it for this thread; vgpu_graph_tell_all, with no lock held, calls the client. */
void vgpu_graph_tell(CUpti_CallbackIdResource what, const struct CUgraph_st *graph, const struct CUgraphNode_st *node,
                     struct CUgraphExec_st *exec);
void vgpu_graph_tell_all(void);

#endif
