/* Activity records in the vendor's structs of 13.0, and the walk over them. A field that the virtual device has no
 * answer to is 0, which is the vendor's "unknown" for each of them. */
#include "vgpu/vgpu_cupti.h"

#include <unistd.h>

const char vgpu_cupti_contexts[VGPU_MAX_DEVICES];

static void write_one(const void *record, size_t bytes) {
    vgpu_cupti_write(&(struct vgpu_cupti_piece){record, bytes}, 1);
}

static void kernel(const struct vgpu_activity *a, uint32_t stream, uint64_t start, uint64_t end) {
    static _Atomic int64_t grids;
    bool concurrent = vgpu_cupti_wants(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    if (!concurrent && !vgpu_cupti_wants(CUPTI_ACTIVITY_KIND_KERNEL)) return;
    CUpti_ActivityKernel10 r = {
        .kind = concurrent ? CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL : CUPTI_ACTIVITY_KIND_KERNEL,
        .registersPerThread = a->registers,
        .start = start,
        .end = end,
        .completed = end,
        .deviceId = a->device,
        .contextId = vgpu_cupti_context_id(a->device),
        .streamId = stream,
        .gridX = (int32_t)a->grid[0],
        .gridY = (int32_t)a->grid[1],
        .gridZ = (int32_t)a->grid[2],
        .blockX = (int32_t)a->block[0],
        .blockY = (int32_t)a->block[1],
        .blockZ = (int32_t)a->block[2],
        .staticSharedMemory = (int32_t)a->static_shared,
        .dynamicSharedMemory = (int32_t)a->dynamic_shared,
        .localMemoryPerThread = a->local_bytes,
        .correlationId = a->correlation,
        .gridId = atomic_fetch_add_explicit(&grids, 1, memory_order_relaxed) + 1,
        .name = a->name,
        .queued = a->queued_ns, /* 0: CUPTI_TIMESTAMP_UNKNOWN */
        .submitted = a->queued_ns,
        .launchType = CUPTI_ACTIVITY_LAUNCH_TYPE_REGULAR,
        .graphNodeId = a->graph_node,
        .graphId = a->graph,
    };
    write_one(&r, sizeof r);
}

static void copy(const struct vgpu_activity *a, uint32_t stream, uint64_t start, uint64_t end) {
    if (!vgpu_cupti_wants(CUPTI_ACTIVITY_KIND_MEMCPY)) return;
    CUpti_ActivityMemcpy6 r = {
        .kind = CUPTI_ACTIVITY_KIND_MEMCPY,
        .copyKind = a->copy_kind,
        .srcKind = a->src_kind,
        .dstKind = a->dst_kind,
        .flags = a->asynchronous ? CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC : CUPTI_ACTIVITY_FLAG_NONE,
        .bytes = (uint64_t)a->bytes,
        .start = start,
        .end = end,
        .deviceId = a->device,
        .contextId = vgpu_cupti_context_id(a->device),
        .streamId = stream,
        .correlationId = a->correlation,
        .runtimeCorrelationId = a->driver ? CUPTI_CORRELATION_ID_UNKNOWN : a->correlation,
        .copyCount = 1,
        .graphNodeId = a->graph_node,
        .graphId = a->graph,
    };
    write_one(&r, sizeof r);
}

static void fill(const struct vgpu_activity *a, uint32_t stream, uint64_t start, uint64_t end) {
    if (!vgpu_cupti_wants(CUPTI_ACTIVITY_KIND_MEMSET)) return;
    CUpti_ActivityMemset4 r = {
        .kind = CUPTI_ACTIVITY_KIND_MEMSET,
        .value = a->value,
        .bytes = (uint64_t)a->bytes,
        .start = start,
        .end = end,
        .deviceId = a->device,
        .contextId = vgpu_cupti_context_id(a->device),
        .streamId = stream,
        .correlationId = a->correlation,
        .flags = a->asynchronous ? CUPTI_ACTIVITY_FLAG_MEMSET_ASYNC : CUPTI_ACTIVITY_FLAG_NONE,
        .memoryKind = a->dst_kind,
        .graphNodeId = a->graph_node,
        .graphId = a->graph,
    };
    write_one(&r, sizeof r);
}

/* Work that was submitted while nobody listened is not reported, as on a device. */
void vgpu_activity_done(const struct vgpu_activity *a, uint32_t stream, uint64_t start, uint64_t end) {
    if (!a->correlation) return;
    switch ((enum vgpu_activity_kind)a->kind) {
    case VGPU_ACTIVITY_NONE:
        break;
    case VGPU_ACTIVITY_KERNEL:
        kernel(a, stream, start, end);
        break;
    case VGPU_ACTIVITY_COPY:
        copy(a, stream, start, end);
        break;
    case VGPU_ACTIVITY_MEMSET:
        fill(a, stream, start, end);
        break;
    }
}

void vgpu_cupti_record_call(const struct vgpu_api_call *call, uint64_t end, int result) {
    CUpti_ActivityExternalCorrelation external[CUPTI_EXTERNAL_CORRELATION_KIND_SIZE];
    struct vgpu_cupti_piece pieces[CUPTI_EXTERNAL_CORRELATION_KIND_SIZE + 1];
    CUpti_ActivityAPI r = {
        .kind = call->driver ? CUPTI_ACTIVITY_KIND_DRIVER : CUPTI_ACTIVITY_KIND_RUNTIME,
        .cbid = call->cbid,
        .start = call->start_ns,
        .end = end > call->start_ns ? end : call->start_ns + 1,
        .processId = (uint32_t)getpid(),
        .threadId = vgpu_cupti_thread(),
        .correlationId = call->correlation,
        .returnValue = (uint32_t)result,
    };
    size_t n = vgpu_cupti_wants(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION)
                   ? vgpu_cupti_external(external, call->correlation)
                   : 0;
    for (size_t i = 0; i < n; i++) pieces[i] = (struct vgpu_cupti_piece){&external[i], sizeof external[i]};
    pieces[n] = (struct vgpu_cupti_piece){&r, sizeof r};
    vgpu_cupti_write(pieces, n + 1);
}

/* Bytes of a record, for all kinds that the vendor's 13.0 can walk over; 0: no such record. */
static size_t record_bytes(CUpti_ActivityKind kind) {
    static const uint16_t bytes[CUPTI_ACTIVITY_KIND_COUNT] = {
        [CUPTI_ACTIVITY_KIND_MEMCPY] = sizeof(CUpti_ActivityMemcpy6),
        [CUPTI_ACTIVITY_KIND_MEMSET] = sizeof(CUpti_ActivityMemset4),
        [CUPTI_ACTIVITY_KIND_KERNEL] = sizeof(CUpti_ActivityKernel10),
        [CUPTI_ACTIVITY_KIND_DRIVER] = sizeof(CUpti_ActivityAPI),
        [CUPTI_ACTIVITY_KIND_RUNTIME] = sizeof(CUpti_ActivityAPI),
        [CUPTI_ACTIVITY_KIND_DEVICE] = sizeof(CUpti_ActivityDevice5),
        [CUPTI_ACTIVITY_KIND_CONTEXT] = sizeof(CUpti_ActivityContext3),
        [CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL] = sizeof(CUpti_ActivityKernel10),
        [CUPTI_ACTIVITY_KIND_NAME] = sizeof(CUpti_ActivityName),
        [CUPTI_ACTIVITY_KIND_MARKER] = sizeof(CUpti_ActivityMarker2),
        [CUPTI_ACTIVITY_KIND_MARKER_DATA] = sizeof(CUpti_ActivityMarkerData2),
        [CUPTI_ACTIVITY_KIND_OVERHEAD] = sizeof(CUpti_ActivityOverhead3),
        [CUPTI_ACTIVITY_KIND_CDP_KERNEL] = sizeof(CUpti_ActivityCdpKernel),
        [CUPTI_ACTIVITY_KIND_PREEMPTION] = sizeof(CUpti_ActivityPreemption),
        [CUPTI_ACTIVITY_KIND_ENVIRONMENT] = sizeof(CUpti_ActivityEnvironment),
        [CUPTI_ACTIVITY_KIND_MEMCPY2] = sizeof(CUpti_ActivityMemcpyPtoP4),
        [CUPTI_ACTIVITY_KIND_UNIFIED_MEMORY_COUNTER] = sizeof(CUpti_ActivityUnifiedMemoryCounter3),
        [CUPTI_ACTIVITY_KIND_FUNCTION] = sizeof(CUpti_ActivityFunction),
        [CUPTI_ACTIVITY_KIND_MODULE] = sizeof(CUpti_ActivityModule),
        [CUPTI_ACTIVITY_KIND_DEVICE_ATTRIBUTE] = sizeof(CUpti_ActivityDeviceAttribute),
        [CUPTI_ACTIVITY_KIND_OPENACC_DATA] = sizeof(CUpti_ActivityOpenAccData),
        [CUPTI_ACTIVITY_KIND_OPENACC_LAUNCH] = sizeof(CUpti_ActivityOpenAccLaunch),
        [CUPTI_ACTIVITY_KIND_OPENACC_OTHER] = sizeof(CUpti_ActivityOpenAccOther),
        [CUPTI_ACTIVITY_KIND_CUDA_EVENT] = sizeof(CUpti_ActivityCudaEvent2),
        [CUPTI_ACTIVITY_KIND_STREAM] = sizeof(CUpti_ActivityStream),
        [CUPTI_ACTIVITY_KIND_SYNCHRONIZATION] = sizeof(CUpti_ActivitySynchronization2),
        [CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION] = sizeof(CUpti_ActivityExternalCorrelation),
        [CUPTI_ACTIVITY_KIND_NVLINK] = sizeof(CUpti_ActivityNvLink4),
        [CUPTI_ACTIVITY_KIND_MEMORY] = sizeof(CUpti_ActivityMemory),
        [CUPTI_ACTIVITY_KIND_PCIE] = sizeof(CUpti_ActivityPcie),
        [CUPTI_ACTIVITY_KIND_OPENMP] = sizeof(CUpti_ActivityOpenMp),
        [CUPTI_ACTIVITY_KIND_INTERNAL_LAUNCH_API] = sizeof(CUpti_ActivityAPI),
        [CUPTI_ACTIVITY_KIND_MEMORY2] = sizeof(CUpti_ActivityMemory4),
        [CUPTI_ACTIVITY_KIND_MEMORY_POOL] = sizeof(CUpti_ActivityMemoryPool3),
        [CUPTI_ACTIVITY_KIND_GRAPH_TRACE] = sizeof(CUpti_ActivityGraphTrace2),
        [CUPTI_ACTIVITY_KIND_JIT] = sizeof(CUpti_ActivityJit2),
        [CUPTI_ACTIVITY_KIND_DEVICE_GRAPH_TRACE] = sizeof(CUpti_ActivityDeviceGraphTrace),
        [CUPTI_ACTIVITY_KIND_MEM_DECOMPRESS] = sizeof(CUpti_ActivityMemDecompress),
        [CUPTI_ACTIVITY_KIND_CONFIDENTIAL_COMPUTE_ROTATION] = sizeof(CUpti_ActivityConfidentialComputeRotation),
    };
    return (unsigned)kind < CUPTI_ACTIVITY_KIND_COUNT ? bytes[kind] : 0;
}

CUptiResult cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, CUpti_Activity **record) {
    if (!buffer || !record) return CUPTI_ERROR_INVALID_PARAMETER;
    uint8_t *next = buffer;
    if (*record) {
        size_t bytes = record_bytes((*record)->kind);
        if (!bytes) return CUPTI_ERROR_INVALID_KIND;
        next = (uint8_t *)*record + bytes;
    }
    size_t at = (size_t)(next - buffer);
    if (at >= valid || valid - at < sizeof(CUpti_ActivityKind)) return CUPTI_ERROR_MAX_LIMIT_REACHED;
    size_t bytes = record_bytes(((CUpti_Activity *)next)->kind);
    if (!bytes) return CUPTI_ERROR_INVALID_KIND;
    if (valid - at < bytes) return CUPTI_ERROR_MAX_LIMIT_REACHED;
    *record = (CUpti_Activity *)next;
    return CUPTI_SUCCESS;
}
