/* A graph in the language of dot, for cudaGraphDebugDotPrint. */
#include "vgpu/vgpu_graph.h"
#include "vgpu/vgpu_run.h"

#include <stdio.h>

static const char *type_name(enum cudaGraphNodeType t) {
    static const char *const names[] = {
        [cudaGraphNodeTypeKernel] = "KERNEL",        [cudaGraphNodeTypeMemcpy] = "MEMCPY",
        [cudaGraphNodeTypeMemset] = "MEMSET",        [cudaGraphNodeTypeHost] = "HOST",
        [cudaGraphNodeTypeGraph] = "CHILD GRAPH",    [cudaGraphNodeTypeEmpty] = "EMPTY",
        [cudaGraphNodeTypeWaitEvent] = "EVENT WAIT", [cudaGraphNodeTypeEventRecord] = "EVENT RECORD",
        [cudaGraphNodeTypeMemAlloc] = "MEM ALLOC",   [cudaGraphNodeTypeMemFree] = "MEM FREE",
    };
    size_t i = (size_t)t;
    return i < sizeof names / sizeof *names && names[i] ? names[i] : "OTHER";
}

static void print_detail(FILE *f, const struct vgpu_body *b) {
    const struct vgpu_activity *a = &b->made.work.activity;
    switch (b->type) {
    case cudaGraphNodeTypeKernel:
        fprintf(f, "\\n%s", a->name ? a->name : "cuBLAS");
        if (a->grid[0])
            fprintf(f, "\\ngrid %u,%u,%u block %u,%u,%u", a->grid[0], a->grid[1], a->grid[2], a->block[0], a->block[1],
                    a->block[2]);
        break;
    case cudaGraphNodeTypeMemcpy:
    case cudaGraphNodeTypeMemset:
        fprintf(f, "\\n%lld bytes", (long long)a->bytes);
        break;
    case cudaGraphNodeTypeMemAlloc:
        fprintf(f, "\\n%zu bytes at %p", b->alloc.bytesize, b->alloc.dptr);
        break;
    case cudaGraphNodeTypeMemFree:
        fprintf(f, "\\n%p", b->freed);
        break;
    default:
        break;
    }
}

static void print_graph(FILE *f, const struct CUgraph_st *g) {
    fprintf(f, "subgraph cluster_%u {\nlabel=\"graph_%u\"\n", g->id, g->id);
    for (size_t i = 0; i < g->nodes; i++) {
        const struct CUgraphNode_st *n = g->node[i];
        fprintf(f, "\"node_%llu\" [shape=box label=\"%llu %s", (unsigned long long)n->id, (unsigned long long)n->id,
                type_name(n->body.type));
        print_detail(f, &n->body);
        fprintf(f, "\"]\n");
        if (n->body.type == cudaGraphNodeTypeGraph) print_graph(f, n->body.child);
    }
    for (size_t i = 0; i < g->nodes; i++)
        for (size_t k = 0; k < g->node[i]->ins; k++)
            fprintf(f, "\"node_%llu\" -> \"node_%llu\"\n", (unsigned long long)g->node[i]->in[k].from->id,
                    (unsigned long long)g->node[i]->id);
    fprintf(f, "}\n");
}

/* One form for all flags. */
cudaError_t cudaGraphDebugDotPrint(cudaGraph_t graph, const char *path, unsigned int flags) {
    (void)flags;
    FILE *f = path ? fopen(path, "we") : NULL;
    if (!f) return path ? cudaErrorOperatingSystem : cudaErrorInvalidValue;
    pthread_mutex_lock(&vgpu_lock);
    struct CUgraph_st *g = vgpu_graph_find(graph);
    if (g) {
        fprintf(f, "digraph dot {\n");
        print_graph(f, g);
        fprintf(f, "}\n");
    }
    pthread_mutex_unlock(&vgpu_lock);
    bool written = !ferror(f);
    written &= !fclose(f);
    return !g ? cudaErrorInvalidValue : written ? cudaSuccess : cudaErrorOperatingSystem;
}
