/* NCCL within one process: what its files share.
 *
 * The ranks of a communicator are a *clique*. Each call of a rank is a part of a *meeting*: the k-th collective of all
 * ranks, or the k-th message from one rank to another. A rank's calls of one group and stream are one operation of that
 * stream; its thread announces all parts at once and waits until each meeting has been held, so that messages that
 * cross do not wait for each other. Whoever announces the last part of a meeting does its work, for all. */
#ifndef VGPU_NCCL_INSIDE_H
#define VGPU_NCCL_INSIDE_H

#include "vgpu/vgpu_engine.h"
#include "vgpu/vgpu_nccl.h"
#include "vgpu/vgpu_profile.h"

enum vgpu_nccl_kind {
    VGPU_NCCL_ALL_REDUCE,
    VGPU_NCCL_REDUCE,
    VGPU_NCCL_BROADCAST,
    VGPU_NCCL_ALL_GATHER,
    VGPU_NCCL_REDUCE_SCATTER,
    VGPU_NCCL_SEND,
    VGPU_NCCL_RECV
};

struct vgpu_clique;
struct vgpu_meeting;

struct ncclComm {
    struct vgpu_item item; /* of a slab: a stale handle can be told */
    struct vgpu_clique *clique;
    int rank, device;
    uint64_t collectives;                                        /* issued */
    uint64_t sent[VGPU_MAX_DEVICES], received[VGPU_MAX_DEVICES]; /* messages issued, by peer */
};

struct vgpu_nccl_call {
    enum vgpu_nccl_kind kind;
    const void *send;
    void *recv;
    size_t count; /* elements, as the program said */
    ncclDataType_t type;
    ncclRedOp_t op;
    int root; /* or the peer of a message */
    ncclComm_t comm;
    cudaStream_t stream;
    struct vgpu_meeting *meeting; /* once issued */
};

struct vgpu_meeting {
    struct vgpu_meeting *next;
    struct vgpu_clique *clique;
    int from, to; /* of a message; -1: a collective */
    uint64_t sequence;
    int parts; /* that it takes */
    int submitted, announced;
    int holds; /* each part is held twice: by who submits it, and by its stream's thread */
    bool done;
    int64_t latest;                               /* ns, model: the latest start of those issued */
    struct vgpu_nccl_call part[VGPU_MAX_DEVICES]; /* by rank; a message: 0 sends, 1 receives */
};

struct vgpu_clique {
    struct vgpu_clique *next;
    char id[NCCL_UNIQUE_ID_BYTES];
    int ranks, joined, alive; /* communicators */
    int device[VGPU_MAX_DEVICES];
    bool taken[VGPU_MAX_DEVICES]; /* that rank is there */
    bool aborted;
    struct vgpu_meeting *meetings;
};

/* One lock over cliques, meetings and communicators; after vgpu_lock's and the memory's, neither taken inside it. */
extern pthread_mutex_t vgpu_nccl_lock;
extern pthread_cond_t vgpu_nccl_changed;

ncclResult_t vgpu_nccl_error(ncclResult_t result, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool vgpu_nccl_is(ncclComm_t comm); /* under the lock */
/* In a group: what begins is finished by the outermost ncclGroupEnd. */
bool vgpu_nccl_grouped(void);
void vgpu_nccl_join_later(struct vgpu_clique *clique); /* its ranks are waited for by ncclGroupEnd */
ncclResult_t vgpu_nccl_wait_joined(struct vgpu_clique *clique);

size_t vgpu_nccl_bytes(ncclDataType_t type); /* of an element; 0: no such type */
/* Bytes that a part reads and writes. */
size_t vgpu_nccl_send_bytes(const struct vgpu_nccl_call *call, int ranks);
size_t vgpu_nccl_recv_bytes(const struct vgpu_nccl_call *call, int ranks);
void vgpu_nccl_hold(const struct vgpu_meeting *meeting); /* the work of a meeting all of whose parts are announced */

#endif
