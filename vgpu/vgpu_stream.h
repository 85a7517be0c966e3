/* Streams, from the inside. All functions under vgpu_lock (vgpu_stream_drain gives it up while it waits). */
#ifndef VGPU_STREAM_H
#define VGPU_STREAM_H

#include "vgpu/vgpu_engine.h"

struct vgpu_op;

struct vgpu_stream {
    struct vgpu_item item;
    bool initialised, has_worker;
    bool retired; /* destroyed by the program; its work is still done */
    unsigned flags;
    int priority;
    int device;
    uint64_t id;
    uint64_t enqueued, done; /* operations, over all uses of the slot */
    uint64_t last_end;       /* of the worker: when the last reported work ended, by which clock */
    uint32_t last_clock;
    struct vgpu_capture *capture; /* its calls become nodes (vgpu_graph_capture.c); NULL: they do not */
    struct vgpu_stream *capture_next;
    struct vgpu_front {
        struct CUgraphNode_st **node; /* that the next node depends on */
        cudaGraphEdgeData *edge;
        size_t count;
    } front;
    struct vgpu_stream_attributes {
        struct cudaAccessPolicyWindow window;
        cudaLaunchMemSyncDomainMap map;
        int policy, domain; /* policy 0: not set */
    } attributes;
    int64_t model_end; /* ns on the model's time line: when its work so far ends; 0: none yet */
    struct vgpu_op *head, *tail;
    pthread_cond_t work, progress;
};

struct vgpu_stream *vgpu_stream_open(unsigned flags, int priority); /* of the current device. NULL: too many */
void vgpu_stream_close(struct vgpu_stream *stream);
bool vgpu_stream_is_default(const struct vgpu_stream *stream);
bool vgpu_stream_is_legacy(const struct vgpu_stream *stream);
bool vgpu_stream_idle(struct vgpu_stream *stream);
cudaError_t vgpu_stream_drain(struct vgpu_stream *stream);
cudaError_t vgpu_enqueue(struct vgpu_stream *stream, const struct vgpu_work *work, struct vgpu_ticket *ticket);

#endif
