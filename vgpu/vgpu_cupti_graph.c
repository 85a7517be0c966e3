/* Graphs as CUPTI sees them: ids, and callbacks when graphs, nodes and executable graphs are made, copied, changed and
 * destroyed. What happens under vgpu_lock is noted for the thread and told when the lock is free, before the call that
 * did it returns. */
#include "vgpu/vgpu_cupti.h"
#include "vgpu/vgpu_graph.h"
#include "vgpu/vgpu_graph_exec.h"

#include <stdlib.h>

struct note {
    CUpti_CallbackIdResource what;
    CUpti_GraphData data;
};

static __thread struct note *notes;
static __thread size_t count, room;

void vgpu_graph_tell(CUpti_CallbackIdResource what, const struct CUgraph_st *g, const struct CUgraphNode_st *n,
                     struct CUgraphExec_st *exec) {
    if (!atomic_load_explicit(&vgpu_activity_wanted, memory_order_relaxed) || !vgpu_cupti_wants_resource(what)) return;
    if (count == room) {
        size_t more = room ? room * 2 : 16;
        struct note *p = realloc(notes, more * sizeof *p);
        if (!p) return; /* not told */
        notes = p;
        room = more;
    }
    notes[count++] = (struct note){what,
                                   {.graph = (CUgraph)g,
                                    .originalGraph = g ? g->original : NULL,
                                    .node = (CUgraphNode)n,
                                    .originalNode = n ? n->original : NULL,
                                    .nodeType = n ? (CUgraphNodeType)n->body.type : CU_GRAPH_NODE_TYPE_EMPTY,
                                    .graphExec = exec}};
}

void vgpu_graph_tell_all(void) {
    if (!count || vgpu_cupti_in_client) return;
    for (size_t i = 0; i < count; i++) vgpu_cupti_call_back_resource(notes[i].what, &notes[i].data);
    free(notes);
    notes = NULL;
    count = room = 0;
}

CUptiResult cuptiGetGraphNodeId(CUgraphNode node, uint64_t *id) {
    pthread_mutex_lock(&vgpu_lock);
    const struct CUgraphNode_st *n = vgpu_node_find(node);
    if (n && id) *id = n->id;
    pthread_mutex_unlock(&vgpu_lock);
    return n && id ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_PARAMETER;
}

CUptiResult cuptiGetGraphId(CUgraph graph, uint32_t *id) {
    pthread_mutex_lock(&vgpu_lock);
    bool known = id && vgpu_graph_any(graph);
    if (known) *id = graph->id;
    pthread_mutex_unlock(&vgpu_lock);
    return known ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_PARAMETER;
}

CUptiResult cuptiGetGraphExecId(CUgraphExec exec, uint32_t *id) {
    pthread_mutex_lock(&vgpu_lock);
    const struct CUgraphExec_st *x = vgpu_exec_find(exec);
    if (x && id) *id = x->id;
    pthread_mutex_unlock(&vgpu_lock);
    return x && id ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_PARAMETER;
}
