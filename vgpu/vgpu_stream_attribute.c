/* Attributes of streams, which are kept and have no effect here; and calls whose hints or settings have none. */
#include "vgpu/vgpu_graph.h"
#include "vgpu/vgpu_run.h"

#include <string.h>

/* The vendor documents these for streams; all but the priority are about caches and scheduling. */
static bool of_streams(cudaStreamAttrID id) {
    return id == cudaLaunchAttributeAccessPolicyWindow || id == cudaLaunchAttributeSynchronizationPolicy ||
           id == cudaLaunchAttributePriority || id == cudaLaunchAttributeMemSyncDomainMap ||
           id == cudaLaunchAttributeMemSyncDomain;
}

/* Under vgpu_lock. */
static void get(const struct vgpu_stream *s, cudaStreamAttrID id, cudaStreamAttrValue *out) {
    const struct vgpu_stream_attributes *a = &s->attributes;
    memset(out, 0, sizeof *out);
    switch ((int)id) {
    case cudaLaunchAttributeAccessPolicyWindow:
        out->accessPolicyWindow = a->window;
        break;
    case cudaLaunchAttributeSynchronizationPolicy:
        out->syncPolicy = a->policy ? (enum cudaSynchronizationPolicy)a->policy : cudaSyncPolicyAuto;
        break;
    case cudaLaunchAttributePriority:
        out->priority = s->priority;
        break;
    case cudaLaunchAttributeMemSyncDomain:
        out->memSyncDomain = (cudaLaunchMemSyncDomain)a->domain;
        break;
    default:
        out->memSyncDomainMap = a->map;
    }
}

static void set(struct vgpu_stream *s, cudaStreamAttrID id, const cudaStreamAttrValue *value) {
    struct vgpu_stream_attributes *a = &s->attributes;
    switch ((int)id) {
    case cudaLaunchAttributeAccessPolicyWindow:
        a->window = value->accessPolicyWindow;
        break;
    case cudaLaunchAttributeSynchronizationPolicy:
        a->policy = (int)value->syncPolicy;
        break;
    case cudaLaunchAttributePriority:
        s->priority = value->priority;
        break;
    case cudaLaunchAttributeMemSyncDomain:
        a->domain = (int)value->memSyncDomain;
        break;
    default:
        a->map = value->memSyncDomainMap;
    }
}

cudaError_t cudaStreamGetAttribute(cudaStream_t stream, cudaStreamAttrID id, cudaStreamAttrValue *out) {
    if (!out || !of_streams(id)) return cudaErrorInvalidValue;
    pthread_mutex_lock(&vgpu_lock);
    const struct vgpu_stream *s = vgpu_stream_find(stream);
    if (s) get(s, id, out);
    pthread_mutex_unlock(&vgpu_lock);
    return s ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

cudaError_t cudaStreamSetAttribute(cudaStream_t stream, cudaStreamAttrID id, const cudaStreamAttrValue *value) {
    if (!value || !of_streams(id)) return cudaErrorInvalidValue;
    pthread_mutex_lock(&vgpu_lock);
    struct vgpu_stream *s = vgpu_stream_find(stream);
    if (s) set(s, id, value);
    pthread_mutex_unlock(&vgpu_lock);
    return s ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

cudaError_t cudaStreamCopyAttributes(cudaStream_t to, cudaStream_t from) {
    pthread_mutex_lock(&vgpu_lock);
    struct vgpu_stream *a = vgpu_stream_find(to), *b = vgpu_stream_find(from);
    if (a && b) {
        a->attributes = b->attributes;
        a->priority = b->priority;
    }
    pthread_mutex_unlock(&vgpu_lock);
    return a && b ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

/* Host and device reach managed memory at any time here, so that whom it is attached to makes no difference. */
cudaError_t cudaStreamAttachMemAsync(cudaStream_t stream, void *address, size_t bytes, unsigned int flags) {
    if (flags != cudaMemAttachGlobal && flags != cudaMemAttachHost && flags != cudaMemAttachSingle)
        return cudaErrorInvalidValue;
    pthread_mutex_lock(&vgpu_lock);
    bool found = vgpu_stream_find(stream) != NULL;
    pthread_mutex_unlock(&vgpu_lock);
    if (!found) return cudaErrorInvalidResourceHandle;
    return vgpu_side_of(address, bytes ? bytes : 1) == VGPU_MANAGED ? cudaSuccess : cudaErrorInvalidValue;
}

/* ---- caches and banks, which this machine's are not ---- */

cudaError_t cudaCtxResetPersistingL2Cache(void) {
    return cudaSuccess;
}

cudaError_t cudaDeviceFlushGPUDirectRDMAWrites(enum cudaFlushGPUDirectRDMAWritesTarget target,
                                               enum cudaFlushGPUDirectRDMAWritesScope scope) {
    (void)target, (void)scope;
    return cudaErrorNotSupported; /* as on a device without GPUDirect RDMA, which its attribute says */
}

cudaError_t cudaDeviceGetSharedMemConfig(enum cudaSharedMemConfig *config) {
    if (!config) return cudaErrorInvalidValue;
    *config = cudaSharedMemBankSizeFourByte;
    return cudaSuccess;
}

/* Without effect on every device since Kepler. */
cudaError_t cudaDeviceSetSharedMemConfig(enum cudaSharedMemConfig config) {
    return (unsigned)config > cudaSharedMemBankSizeEightByte ? cudaErrorInvalidValue : cudaSuccess;
}

cudaError_t cudaFuncSetSharedMemConfig(const void *function, enum cudaSharedMemConfig config) {
    struct vgpu_kernel *k;
    if ((unsigned)config > cudaSharedMemBankSizeEightByte) return cudaErrorInvalidValue;
    return vgpu_kernel_find(function, &k);
}

/* ---- clusters: none of more than one block is launched ---- */

static bool one_block(const cudaLaunchConfig_t *c) {
    for (unsigned i = 0; i < c->numAttrs; i++) {
        const cudaLaunchAttribute *a = &c->attrs[i];
        if (a->id == cudaLaunchAttributeClusterDimension &&
            (a->val.clusterDim.x > 1 || a->val.clusterDim.y > 1 || a->val.clusterDim.z > 1))
            return false;
    }
    return true;
}

cudaError_t cudaOccupancyMaxPotentialClusterSize(int *size, const void *function, const cudaLaunchConfig_t *c) {
    struct vgpu_kernel *k;
    if (!size || !c) return cudaErrorInvalidValue;
    cudaError_t e = vgpu_kernel_find(function, &k);
    if (!e) *size = 1;
    return e;
}

cudaError_t cudaOccupancyMaxActiveClusters(int *clusters, const void *function, const cudaLaunchConfig_t *c) {
    int blocks, processors;
    if (!clusters || !c || (c->numAttrs && !c->attrs)) return cudaErrorInvalidValue;
    if (!one_block(c)) {
        vgpu_say("cudaOccupancyMaxActiveClusters: clusters of more than one block are not implemented");
        return cudaErrorNotSupported;
    }
    cudaError_t e = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        &blocks, function, (int)(c->blockDim.x * c->blockDim.y * c->blockDim.z), c->dynamicSmemBytes);
    if (!e) e = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, vgpu_current());
    if (!e) *clusters = blocks * processors;
    return e;
}
