/* User objects: what a graph's work needs, with references counted, and its destructor. Destructors are called with no
 * lock held, by the call that gave the last reference back. */
#include "vgpu/vgpu_graph.h"

#include <stdlib.h>
#include <string.h>

struct CUuserObject_st {
    struct vgpu_item item;
    void *data;
    cudaHostFn_t destroy;
    uint64_t references;
    struct CUuserObject_st *next; /* of those to be destroyed */
};

enum { MAX_OBJECTS = 1 << 18 };

static struct vgpu_slab objects = {.item_bytes = sizeof(struct CUuserObject_st), .capacity = MAX_OBJECTS};
static struct CUuserObject_st *ended;

void vgpu_object_retain(cudaUserObject_t o, unsigned count) {
    o->references += count;
}

void vgpu_object_release(cudaUserObject_t o, unsigned count) {
    o->references -= count;
    if (o->references) return;
    o->next = ended;
    ended = o;
}

void vgpu_objects_run(void) {
    for (;;) {
        pthread_mutex_lock(&vgpu_lock);
        struct CUuserObject_st *o = ended, copy;
        if (o) {
            ended = o->next;
            copy = *o;
            vgpu_slab_give(&objects, o);
        }
        pthread_mutex_unlock(&vgpu_lock);
        if (!o) return;
        copy.destroy(copy.data);
    }
}

cudaError_t cudaUserObjectCreate(cudaUserObject_t *out, void *data, cudaHostFn_t destroy, unsigned int references,
                                 unsigned int flags) {
    if (!out || !destroy || !references || references > INT32_MAX || flags != cudaUserObjectNoDestructorSync)
        return cudaErrorInvalidValue;
    pthread_mutex_lock(&vgpu_lock);
    struct CUuserObject_st *o = vgpu_slab_take(&objects);
    if (o) {
        o->data = data;
        o->destroy = destroy;
        o->references = references;
    }
    pthread_mutex_unlock(&vgpu_lock);
    if (!o) return cudaErrorMemoryAllocation;
    *out = o;
    return cudaSuccess;
}

static bool usable(cudaUserObject_t o, unsigned count) {
    return count && count <= INT32_MAX && vgpu_slab_has(&objects, o) && o->references;
}

cudaError_t cudaUserObjectRetain(cudaUserObject_t o, unsigned int count) {
    pthread_mutex_lock(&vgpu_lock);
    bool good = usable(o, count);
    if (good) vgpu_object_retain(o, count);
    pthread_mutex_unlock(&vgpu_lock);
    return good ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaUserObjectRelease(cudaUserObject_t o, unsigned int count) {
    pthread_mutex_lock(&vgpu_lock);
    bool good = usable(o, count) && o->references >= count;
    if (good) vgpu_object_release(o, count);
    pthread_mutex_unlock(&vgpu_lock);
    vgpu_objects_run();
    return good ? cudaSuccess : cudaErrorInvalidValue;
}

static struct vgpu_held *held_by(struct CUgraph_st *g, cudaUserObject_t o) {
    for (size_t i = 0; i < g->holds; i++)
        if (g->held[i].object == o) return &g->held[i];
    return NULL;
}

static cudaError_t hold(struct CUgraph_st *g, cudaUserObject_t o, unsigned count, bool move) {
    struct vgpu_held *h = held_by(g, o);
    if (!h) {
        struct vgpu_held *more = realloc(g->held, (g->holds + 1) * sizeof *more);
        if (!more) return cudaErrorMemoryAllocation;
        g->held = more;
        h = &g->held[g->holds++];
        *h = (struct vgpu_held){o, 0};
    }
    h->count += count;
    if (!move) vgpu_object_retain(o, count);
    return cudaSuccess;
}

cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t o, unsigned int count, unsigned int flags) {
    cudaError_t e = cudaErrorInvalidValue;
    bool move = flags == cudaGraphUserObjectMove;
    pthread_mutex_lock(&vgpu_lock);
    struct CUgraph_st *g = vgpu_graph_find(graph);
    if (g && usable(o, count) && flags <= cudaGraphUserObjectMove && (!move || o->references >= count))
        e = hold(g, o, count, move);
    pthread_mutex_unlock(&vgpu_lock);
    return e;
}

cudaError_t cudaGraphReleaseUserObject(cudaGraph_t graph, cudaUserObject_t o, unsigned int count) {
    pthread_mutex_lock(&vgpu_lock);
    struct CUgraph_st *g = vgpu_graph_find(graph);
    struct vgpu_held *h = g ? held_by(g, o) : NULL;
    bool good = h && count && h->count >= count;
    if (good && !(h->count -= count)) *h = g->held[--g->holds];
    if (good) vgpu_object_release(o, count);
    pthread_mutex_unlock(&vgpu_lock);
    vgpu_objects_run();
    return good ? cudaSuccess : cudaErrorInvalidValue;
}
