/* Executable graphs, inside vgpu_graph_*.c. Under vgpu_lock. */
#ifndef VGPU_GRAPH_EXEC_H
#define VGPU_GRAPH_EXEC_H

#include "vgpu/vgpu_graph.h"

struct CUgraphExec_st {
    struct vgpu_item item;
    uint32_t id; /* CUPTI's */
    unsigned long long flags;
    struct CUgraph_st *source; /* it was made of; may have gone: then its id is another */
    uint32_t source_id;
    struct CUgraph_st *graph;     /* its own copy */
    struct CUgraphNode_st **node; /* all, of children too, in the order in which they are queued */
    size_t nodes;
    struct vgpu_ticket last; /* the end of its last launch */
};

struct CUgraphExec_st *vgpu_exec_find(cudaGraphExec_t exec); /* NULL: none */
/* The copy of `node` in it, or in a child's copy; NULL: none. */
struct CUgraphNode_st *vgpu_exec_node(const struct CUgraphExec_st *exec, cudaGraphNode_t node);

#endif
