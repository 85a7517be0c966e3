/* Memory nodes. An allocation node's memory has one address for ever, so it is taken when the node is made and given
 * back with the last graph that has the node; a device takes it at the first launch, and lets blocks whose lives do not
 * meet share addresses. What the program sees is whether it is live: from the launch of its allocation node to its
 * release, by a free node or by cudaFree. */
#include "vgpu/vgpu_graph.h"

#include <stdlib.h>
#include <string.h>

struct vgpu_graph_block {
    struct vgpu_graph_block *next;
    void *address;
    size_t bytes;
    int device;
    unsigned holds; /* graphs that have the node; 0: kept because it is live */
    bool live;
};

static struct vgpu_graph_block *blocks;
static struct account { uint64_t used, used_high, reserved, reserved_high; /* bytes */ } accounts[VGPU_MAX_DEVICES];

static struct vgpu_graph_block *find(const void *address) {
    struct vgpu_graph_block *b = blocks;
    while (b && b->address != address) b = b->next;
    return b;
}

bool vgpu_graph_block_is(const void *address) {
    return find(address) != NULL;
}

bool vgpu_graph_block_live(const struct vgpu_graph_block *b) {
    return b->live;
}

cudaError_t vgpu_graph_block_new(int device, size_t bytes, struct vgpu_graph_block **out, void **address) {
    struct vgpu_graph_block *b = calloc(1, sizeof *b);
    if (!b) return cudaErrorMemoryAllocation;
    b->address = vgpu_device_allocate(device, bytes);
    if (!b->address) {
        free(b);
        return cudaErrorMemoryAllocation;
    }
    pthread_mutex_lock(&vgpu_lock);
    struct account *a = &accounts[device];
    b->bytes = bytes;
    b->device = device;
    b->holds = 1;
    b->next = blocks;
    blocks = b;
    a->reserved += bytes;
    if (a->reserved > a->reserved_high) a->reserved_high = a->reserved;
    pthread_mutex_unlock(&vgpu_lock);
    *out = b;
    *address = b->address;
    return cudaSuccess;
}

void vgpu_graph_block_hold(struct vgpu_graph_block *b) {
    b->holds++;
}

static void release(struct vgpu_graph_block *b) {
    for (struct vgpu_graph_block **at = &blocks; *at; at = &(*at)->next)
        if (*at == b) {
            *at = b->next;
            break;
        }
    accounts[b->device].reserved -= b->bytes;
    vgpu_device_release(b->address);
    free(b);
}

void vgpu_graph_block_drop(struct vgpu_graph_block *b) {
    if (!--b->holds && !b->live) release(b);
}

cudaError_t vgpu_graph_block_begin(struct vgpu_graph_block *b) {
    if (b->live || !b->address) return cudaErrorInvalidValue;
    struct account *a = &accounts[b->device];
    b->live = true;
    a->used += b->bytes;
    if (a->used > a->used_high) a->used_high = a->used;
    return cudaSuccess;
}

cudaError_t vgpu_graph_block_end(const void *address) {
    struct vgpu_graph_block *b = find(address);
    if (!b || !b->live) return cudaErrorInvalidValue;
    b->live = false;
    accounts[b->device].used -= b->bytes;
    return cudaSuccess;
}

void vgpu_graph_memory_reset(int device) {
    pthread_mutex_lock(&vgpu_lock);
    for (struct vgpu_graph_block *b = blocks; b; b = b->next) {
        if (!b->address || b->device != device) continue;
        if (b->live) accounts[device].used -= b->bytes;
        b->live = false;
        b->address = NULL;
    }
    pthread_mutex_unlock(&vgpu_lock);
}

/* Only once no work can use it any more is it given back. */
bool vgpu_graph_memory_free(void *address, cudaError_t *error) {
    pthread_mutex_lock(&vgpu_lock);
    struct vgpu_graph_block *b = find(address);
    bool last = b && b->live && !b->holds;
    *error = b ? vgpu_graph_block_end(address) : cudaSuccess;
    pthread_mutex_unlock(&vgpu_lock);
    if (!last) return b != NULL;
    vgpu_wait_all();
    pthread_mutex_lock(&vgpu_lock);
    if ((b = find(address)) && !b->holds) release(b);
    pthread_mutex_unlock(&vgpu_lock);
    return true;
}

/* ---- cudaMallocAsync and cudaFreeAsync in a capture ---- */

static struct cudaMemAllocNodeParams alloc_params(int device, size_t bytes, void *address) {
    return (struct cudaMemAllocNodeParams){.poolProps = {.allocType = cudaMemAllocationTypePinned,
                                                         .location = {.type = cudaMemLocationTypeDevice, .id = device}},
                                           .bytesize = bytes,
                                           .dptr = address};
}

bool vgpu_graph_memory_alloc_captured(void **out, size_t bytes, int device, cudaStream_t stream, cudaError_t *error) {
    struct vgpu_body body = {.type = cudaGraphNodeTypeMemAlloc};
    void *address;
    if (!vgpu_capturing(stream)) return false;
    *error = vgpu_graph_block_new(device, bytes, &body.block, &address);
    if (*error) return true;
    body.alloc = alloc_params(device, bytes, address);
    pthread_mutex_lock(&vgpu_lock);
    struct vgpu_stream *s = vgpu_stream_find(stream);
    if (s && s->capture) {
        *error = vgpu_capture_add(s, &body, NULL);
    } else {
        vgpu_body_free(&body);
        *error = cudaErrorStreamCaptureInvalidated;
    }
    pthread_mutex_unlock(&vgpu_lock);
    vgpu_graph_tell_all();
    if (!*error) *out = address;
    return true;
}

/* Memory that no graph gave can be released by a graph only if it is stream-ordered; that is not implemented. */
bool vgpu_graph_memory_free_captured(void *address, cudaStream_t stream, cudaError_t *error) {
    struct vgpu_body body = {.type = cudaGraphNodeTypeMemFree, .freed = address};
    if (!vgpu_capturing(stream)) return false;
    pthread_mutex_lock(&vgpu_lock);
    struct vgpu_stream *s = vgpu_stream_find(stream);
    if (!find(address))
        *error = cudaErrorInvalidValue;
    else
        *error = s && s->capture ? vgpu_capture_add(s, &body, NULL) : cudaErrorStreamCaptureInvalidated;
    pthread_mutex_unlock(&vgpu_lock);
    vgpu_graph_tell_all();
    return true;
}

/* ---- nodes made by hand ---- */

cudaError_t cudaGraphAddMemAllocNode(cudaGraphNode_t *out, cudaGraph_t graph, const cudaGraphNode_t *from, size_t count,
                                     struct cudaMemAllocNodeParams *params) {
    struct vgpu_body body = {.type = cudaGraphNodeTypeMemAlloc};
    void *address;
    if (!out || !params || !params->bytesize || params->poolProps.allocType != cudaMemAllocationTypePinned ||
        params->poolProps.location.type != cudaMemLocationTypeDevice || !vgpu_is_device(params->poolProps.location.id))
        return cudaErrorInvalidValue;
    if (params->poolProps.handleTypes != cudaMemHandleTypeNone) return cudaErrorNotSupported;
    cudaError_t e = vgpu_graph_block_new(params->poolProps.location.id, params->bytesize, &body.block, &address);
    if (e) return e;
    body.alloc = *params;
    body.alloc.dptr = address;
    body.alloc.accessDescs = NULL;
    body.alloc.accessDescCount = 0;
    e = vgpu_node_add_checked(out, graph, from, NULL, count, &body);
    if (!e) params->dptr = address;
    return e;
}

cudaError_t cudaGraphAddMemFreeNode(cudaGraphNode_t *out, cudaGraph_t graph, const cudaGraphNode_t *from, size_t count,
                                    void *address) {
    struct vgpu_body body = {.type = cudaGraphNodeTypeMemFree, .freed = address};
    pthread_mutex_lock(&vgpu_lock);
    bool known = vgpu_graph_block_is(address);
    pthread_mutex_unlock(&vgpu_lock);
    return out && known ? vgpu_node_add_checked(out, graph, from, NULL, count, &body) : cudaErrorInvalidValue;
}

cudaError_t cudaGraphMemAllocNodeGetParams(cudaGraphNode_t node, struct cudaMemAllocNodeParams *out) {
    pthread_mutex_lock(&vgpu_lock);
    struct CUgraphNode_st *n = vgpu_node_find(node);
    bool good = out && n && n->body.type == cudaGraphNodeTypeMemAlloc;
    if (good) *out = n->body.alloc;
    pthread_mutex_unlock(&vgpu_lock);
    return good ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaGraphMemFreeNodeGetParams(cudaGraphNode_t node, void *out) {
    pthread_mutex_lock(&vgpu_lock);
    struct CUgraphNode_st *n = vgpu_node_find(node);
    bool good = out && n && n->body.type == cudaGraphNodeTypeMemFree;
    if (good) *(void **)out = n->body.freed;
    pthread_mutex_unlock(&vgpu_lock);
    return good ? cudaSuccess : cudaErrorInvalidValue;
}

/* ---- the device's account of it ---- */

cudaError_t cudaDeviceGetGraphMemAttribute(int device, enum cudaGraphMemAttributeType attribute, void *value) {
    if (!vgpu_is_device(device)) return cudaErrorInvalidDevice;
    if (!value || (unsigned)attribute > cudaGraphMemAttrReservedMemHigh) return cudaErrorInvalidValue;
    const struct account *a = &accounts[device];
    const uint64_t *const numbers[] = {&a->used, &a->used_high, &a->reserved, &a->reserved_high};
    pthread_mutex_lock(&vgpu_lock);
    *(uint64_t *)value = *numbers[attribute];
    pthread_mutex_unlock(&vgpu_lock);
    return cudaSuccess;
}

/* High-water marks can be reset, to what is there now; nothing else can be set. */
cudaError_t cudaDeviceSetGraphMemAttribute(int device, enum cudaGraphMemAttributeType attribute, void *value) {
    bool of_used = attribute == cudaGraphMemAttrUsedMemHigh, of_reserved = attribute == cudaGraphMemAttrReservedMemHigh;
    if (!vgpu_is_device(device)) return cudaErrorInvalidDevice;
    if (!value || (!of_used && !of_reserved) || *(const uint64_t *)value) return cudaErrorInvalidValue;
    pthread_mutex_lock(&vgpu_lock);
    struct account *a = &accounts[device];
    if (of_used)
        a->used_high = a->used;
    else
        a->reserved_high = a->reserved;
    pthread_mutex_unlock(&vgpu_lock);
    return cudaSuccess;
}

/* Addresses of blocks are fixed as long as a graph has them: none of them is unused. */
cudaError_t cudaDeviceGraphMemTrim(int device) {
    return vgpu_is_device(device) ? cudaSuccess : cudaErrorInvalidDevice;
}
