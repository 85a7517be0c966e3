/* NCCL's operations: calls, groups of them, and how their parts meet. */
#include "vgpu/vgpu_graph.h"
#include "vgpu/vgpu_nccl_inside.h"
#include "vgpu/vgpu_run.h"

#include <cupti.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *const names[] = {
    [VGPU_NCCL_ALL_REDUCE] = "vgpu_nccl_all_reduce",
    [VGPU_NCCL_REDUCE] = "vgpu_nccl_reduce",
    [VGPU_NCCL_BROADCAST] = "vgpu_nccl_broadcast",
    [VGPU_NCCL_ALL_GATHER] = "vgpu_nccl_all_gather",
    [VGPU_NCCL_REDUCE_SCATTER] = "vgpu_nccl_reduce_scatter",
    [VGPU_NCCL_SEND] = "vgpu_nccl_send_recv",
    [VGPU_NCCL_RECV] = "vgpu_nccl_send_recv",
};

struct batch {           /* calls of one rank and stream */
    _Atomic int holders; /* who submits it, and the stream's thread */
    ncclComm_t comm;
    cudaStream_t stream;
    int64_t ready; /* ns, model: when the stream could begin */
    size_t count;
    struct vgpu_nccl_call call[];
};

/* ---- the group of this thread ---- */

static __thread struct group {
    int depth;
    struct vgpu_nccl_call *calls;
    size_t count, room;
    struct vgpu_clique *joining[VGPU_MAX_DEVICES];
    size_t joinings;
    ncclResult_t error; /* the first of a call in it */
} group;

bool vgpu_nccl_grouped(void) {
    return group.depth > 0;
}

void vgpu_nccl_join_later(struct vgpu_clique *c) {
    for (size_t i = 0; i < group.joinings; i++)
        if (group.joining[i] == c) return;
    if (group.joinings < VGPU_MAX_DEVICES) group.joining[group.joinings++] = c;
}

/* ---- meetings ---- */

static bool is_message(const struct vgpu_nccl_call *c) {
    return c->kind == VGPU_NCCL_SEND || c->kind == VGPU_NCCL_RECV;
}

static struct vgpu_meeting *find(struct vgpu_clique *c, int from, int to, uint64_t sequence) {
    for (struct vgpu_meeting *m = c->meetings; m; m = m->next)
        if (m->from == from && m->to == to && m->sequence == sequence) return m;
    struct vgpu_meeting *m = calloc(1, sizeof *m);
    if (!m) return NULL;
    m->clique = c;
    m->from = from;
    m->to = to;
    m->sequence = sequence;
    m->parts = from < 0 ? c->ranks : 2;
    m->holds = 2 * m->parts;
    m->next = c->meetings;
    c->meetings = m;
    return m;
}

static void forget(struct vgpu_meeting *gone) {
    for (struct vgpu_meeting **at = &gone->clique->meetings; *at; at = &(*at)->next)
        if (*at == gone) {
            *at = gone->next;
            free(gone);
            return;
        }
}

/* Which of the meeting's parts a call is. */
static int place_of(const struct vgpu_nccl_call *c) {
    return is_message(c) ? c->kind == VGPU_NCCL_RECV : c->comm->rank;
}

/* The meeting that is a call's by its order among the rank's calls. Under the lock. */
static ncclResult_t issue(struct vgpu_nccl_call *c) {
    struct ncclComm *comm = c->comm;
    int rank = comm->rank;
    if (c->kind == VGPU_NCCL_SEND)
        c->meeting = find(comm->clique, rank, c->root, comm->sent[c->root]++);
    else if (c->kind == VGPU_NCCL_RECV)
        c->meeting = find(comm->clique, c->root, rank, comm->received[c->root]++);
    else
        c->meeting = find(comm->clique, -1, -1, comm->collectives++);
    if (!c->meeting) return vgpu_nccl_error(ncclSystemError, "no memory");
    c->meeting->part[place_of(c)] = *c;
    return ncclSuccess;
}

/* ---- on the stream's thread ---- */

static bool agree(const struct vgpu_meeting *m) {
    const struct vgpu_nccl_call *a = &m->part[0];
    for (int i = 1; i < m->parts; i++) {
        const struct vgpu_nccl_call *b = &m->part[i];
        if (a->count != b->count || a->type != b->type) return false;
        if (m->from < 0 && (a->kind != b->kind || a->op != b->op || a->root != b->root)) return false;
    }
    return true;
}

static bool in_reach(const struct vgpu_nccl_call *c) {
    int ranks = c->comm->clique->ranks;
    size_t send = vgpu_nccl_send_bytes(c, ranks), recv = vgpu_nccl_recv_bytes(c, ranks);
    if (!vgpu_device_can(c->send, send)) {
        vgpu_fault(names[c->kind], c->send, send);
        return false;
    }
    if (vgpu_device_can(c->recv, recv)) return true;
    vgpu_fault(names[c->kind], c->recv, recv);
    return false;
}

/* The last to announce does the work, with no lock held: the others wait for it. */
static void announce(struct vgpu_meeting *m) {
    if (++m->announced < m->parts) return;
    pthread_mutex_unlock(&vgpu_nccl_lock);
    if (agree(m))
        vgpu_nccl_hold(m);
    else
        vgpu_fail(cudaErrorLaunchFailure, "%s: ranks do not agree on what it is", names[m->part[0].kind]);
    pthread_mutex_lock(&vgpu_nccl_lock);
    m->done = true;
    pthread_cond_broadcast(&vgpu_nccl_changed);
}

/* After a fault some ranks never come. */
static void wait_done(const struct vgpu_meeting *m) {
    while (!m->done && !m->clique->aborted && !vgpu_refused) {
        struct timespec soon;
        clock_gettime(CLOCK_REALTIME, &soon);
        soon.tv_nsec += 50000000;
        soon.tv_sec += soon.tv_nsec / 1000000000;
        soon.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&vgpu_nccl_changed, &vgpu_nccl_lock, &soon);
    }
}

static void drop(struct batch *b) {
    if (atomic_fetch_sub(&b->holders, 1) == 1) free(b);
}

/* One of the two holds on each of a batch's meetings ends. */
static void let_go(const struct batch *b) {
    pthread_mutex_lock(&vgpu_nccl_lock);
    for (size_t i = 0; i < b->count; i++)
        if (!--b->call[i].meeting->holds) forget(b->call[i].meeting);
    pthread_mutex_unlock(&vgpu_nccl_lock);
}

static void run_batch(void *args) {
    struct batch *b = *(struct batch **)args;
    for (size_t i = 0; i < b->count; i++)
        if (!in_reach(&b->call[i])) {
            drop(b);
            return;
        }
    pthread_mutex_lock(&vgpu_nccl_lock);
    for (size_t i = 0; i < b->count; i++) announce(b->call[i].meeting);
    for (size_t i = 0; i < b->count; i++) wait_done(b->call[i].meeting);
    pthread_mutex_unlock(&vgpu_nccl_lock);
    let_go(b);
    drop(b);
}

/* ---- on the caller's ---- */

/* What a rank's links carry, one way, by the ring algorithms: docs/INTERNALS.md. */
static double link_bytes(const struct vgpu_nccl_call *c) {
    double bytes = (double)c->count * (double)vgpu_nccl_bytes(c->type), n = c->comm->clique->ranks;
    switch (c->kind) {
    case VGPU_NCCL_ALL_REDUCE:
        return 2 * (n - 1) / n * bytes;
    case VGPU_NCCL_ALL_GATHER:
    case VGPU_NCCL_REDUCE_SCATTER:
        return (n - 1) * bytes;
    case VGPU_NCCL_SEND:
    case VGPU_NCCL_RECV:
        return c->root == c->comm->rank ? 0 : bytes;
    default:
        return n > 1 ? bytes : 0;
    }
}

/* Messages out and in at the same time: the larger sum counts. */
static struct vgpu_amount amount_of(const struct batch *b) {
    double all = 0, out = 0, in = 0, memory = 0;
    for (size_t i = 0; i < b->count; i++) {
        const struct vgpu_nccl_call *c = &b->call[i];
        double bytes = link_bytes(c);
        *(c->kind == VGPU_NCCL_SEND ? &out : c->kind == VGPU_NCCL_RECV ? &in : &all) += bytes;
        memory += (double)vgpu_nccl_send_bytes(c, c->comm->clique->ranks) +
                  (double)vgpu_nccl_recv_bytes(c, c->comm->clique->ranks);
    }
    return (struct vgpu_amount){.bytes = memory, .peer_bytes = all + (out > in ? out : in)};
}

/* Runs a submission with the communicator's device as the current one: NULL is then its default stream. */
static cudaError_t submit_on(int device, cudaStream_t stream, const struct vgpu_work *w, struct vgpu_ticket *t) {
    int before = vgpu_current();
    cudaSetDevice(device);
    cudaError_t e = vgpu_submit(stream, w, t);
    cudaSetDevice(before);
    return e;
}

static int64_t ready_at(int device, cudaStream_t stream) {
    struct vgpu_ticket t = {0};
    return submit_on(device, stream, &(struct vgpu_work){.kind = VGPU_WORK_NOTE}, &t) ? 0 : t.ends;
}

/* Model: all parts of a meeting begin when the last of those that are known could. */
static int64_t common_start(const struct batch *b) {
    int64_t start = b->ready;
    pthread_mutex_lock(&vgpu_nccl_lock);
    for (size_t i = 0; i < b->count; i++)
        if (b->call[i].meeting->latest > start) start = b->call[i].meeting->latest;
    for (size_t i = 0; i < b->count; i++) b->call[i].meeting->latest = start;
    pthread_mutex_unlock(&vgpu_nccl_lock);
    return start;
}

/* Model: who was submitted earlier, by other threads, ends no earlier than this one, the last. */
static void hold_back(const struct batch *b, int64_t end) {
    struct vgpu_work w = {.kind = VGPU_WORK_NOTE, .after = {.ends = end}};
    for (size_t i = 0; i < b->count; i++) {
        struct vgpu_meeting *m = b->call[i].meeting;
        pthread_mutex_lock(&vgpu_nccl_lock);
        bool last = ++m->submitted == m->parts;
        pthread_mutex_unlock(&vgpu_nccl_lock);
        if (!last) continue;
        for (int p = 0; p < m->parts; p++)
            if (m->part[p].comm != b->comm) submit_on(m->part[p].comm->device, m->part[p].stream, &w, NULL);
    }
}

static cudaError_t launch(struct batch *b, const struct vgpu_work *w, struct vgpu_ticket *t) {
    struct vgpu_api_call call;
    cuLaunchKernel_params params = {.hStream = b->stream};
    const char *kernel = w->activity.name;
    if (!atomic_load_explicit(&vgpu_activity_wanted, memory_order_relaxed))
        return submit_on(b->comm->device, b->stream, w, t);
    vgpu_api_enter_launch(&call, 1, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, "cuLaunchKernel", &params, kernel);
    cudaError_t e = submit_on(b->comm->device, b->stream, w, t);
    vgpu_api_leave(&call, (int)e);
    return e;
}

static ncclResult_t submit(struct batch *b) {
    bool dry = vgpu_profile()->dry, model = vgpu_profile()->model;
    struct vgpu_ticket t = {0};
    struct vgpu_work w = {.run = run_batch,
                          .args = &b,
                          .bytes = sizeof b,
                          .kind = VGPU_WORK_DEVICE,
                          .amount = amount_of(b),
                          .activity = {.kind = VGPU_ACTIVITY_KERNEL, .name = names[b->call[0].kind]}};
    if (model) w.after.ends = common_start(b);
    cudaError_t e = launch(b, &w, &t);
    if (model && !e) hold_back(b, t.ends);
    if (!e) let_go(b);
    drop(b);
    if (!e && dry) let_go(b); /* nobody runs it */
    if (e || dry) drop(b);
    return e ? vgpu_nccl_error(ncclUnhandledCudaError, "%s", cudaGetErrorString(e)) : ncclSuccess;
}

/* The calls of the i-th call's rank and stream that are in no batch yet, those taken out of the group. */
static struct batch *take_batch(size_t i) {
    size_t n = 0;
    const struct vgpu_nccl_call first = group.calls[i];
    for (size_t k = i; k < group.count; k++)
        n += group.calls[k].comm == first.comm && group.calls[k].stream == first.stream;
    struct batch *b = calloc(1, sizeof *b + n * sizeof *b->call);
    if (!b) return NULL;
    b->holders = 2;
    b->comm = first.comm;
    b->stream = first.stream;
    for (size_t k = i; k < group.count; k++) {
        struct vgpu_nccl_call *c = &group.calls[k];
        if (c->comm != b->comm || c->stream != b->stream) continue;
        b->call[b->count++] = *c;
        c->comm = NULL;
    }
    return b;
}

static ncclResult_t issue_all(void) {
    ncclResult_t e = ncclSuccess;
    pthread_mutex_lock(&vgpu_nccl_lock);
    for (size_t i = 0; i < group.count && !e; i++) e = issue(&group.calls[i]);
    pthread_mutex_unlock(&vgpu_nccl_lock);
    return e;
}

/* All batches are made before the first is submitted: in the model they begin together. */
static ncclResult_t flush(void) {
    struct batch **batches = calloc(group.count + 1, sizeof *batches);
    ncclResult_t e = batches ? issue_all() : vgpu_nccl_error(ncclSystemError, "no memory");
    size_t n = 0;
    for (size_t i = 0; i < group.count && !e; i++) {
        if (!group.calls[i].comm) continue;
        batches[n] = take_batch(i);
        if (!batches[n])
            e = vgpu_nccl_error(ncclSystemError, "no memory");
        else
            n++;
    }
    for (size_t i = 0; i < n && vgpu_profile()->model; i++) {
        batches[i]->ready = ready_at(batches[i]->comm->device, batches[i]->stream);
        common_start(batches[i]);
    }
    for (size_t i = 0; i < n; i++) {
        ncclResult_t mine = e ? (free(batches[i]), e) : submit(batches[i]);
        if (!e) e = mine;
    }
    free(batches);
    return e;
}

ncclResult_t ncclGroupStart(void) {
    if (!group.depth++) group.error = ncclSuccess;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void) {
    if (!group.depth) return vgpu_nccl_error(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
    if (--group.depth) return ncclSuccess;
    ncclResult_t e = group.error;
    for (size_t i = 0; i < group.joinings && !e; i++) e = vgpu_nccl_wait_joined(group.joining[i]);
    group.joinings = 0;
    if (!e && group.count) e = flush();
    free(group.calls);
    group.calls = NULL;
    group.count = group.room = 0;
    return e;
}

/* ---- calls ---- */

static ncclResult_t check_stream(const struct vgpu_nccl_call *c) {
    int before = vgpu_current();
    cudaSetDevice(c->comm->device);
    int device = vgpu_device_of_stream(c->stream);
    bool capturing = device == c->comm->device && vgpu_capturing(c->stream);
    cudaSetDevice(before);
    if (device != c->comm->device)
        return vgpu_nccl_error(ncclInvalidArgument, "the stream is not of the communicator's device %d",
                               c->comm->device);
    if (!capturing) return ncclSuccess;
    vgpu_say("NCCL: operations in a graph are not implemented");
    return vgpu_nccl_error(ncclInvalidUsage, "operations in a graph are not implemented");
}

static ncclResult_t check(const struct vgpu_nccl_call *c) {
    pthread_mutex_lock(&vgpu_nccl_lock);
    bool known = vgpu_nccl_is(c->comm);
    int ranks = known ? c->comm->clique->ranks : 0;
    pthread_mutex_unlock(&vgpu_nccl_lock);
    if (!known) return vgpu_nccl_error(ncclInvalidArgument, "no such communicator");
    if (!vgpu_nccl_bytes(c->type)) return vgpu_nccl_error(ncclInvalidArgument, "no such type: %d", (int)c->type);
    if ((unsigned)c->op >= ncclNumOps) {
        vgpu_say("NCCL: reductions that the program makes are not implemented");
        return vgpu_nccl_error(ncclInvalidArgument, "no such operation: %d", (int)c->op);
    }
    if (c->root < 0 || c->root >= ranks) return vgpu_nccl_error(ncclInvalidArgument, "rank %d of %d", c->root, ranks);
    if ((vgpu_nccl_send_bytes(c, ranks) && !c->send) || (vgpu_nccl_recv_bytes(c, ranks) && !c->recv))
        return vgpu_nccl_error(ncclInvalidArgument, "a buffer is NULL");
    return check_stream(c);
}

static ncclResult_t add(const struct vgpu_nccl_call *c) {
    if (group.count == group.room) {
        size_t room = group.room ? 2 * group.room : 16;
        struct vgpu_nccl_call *calls = realloc(group.calls, room * sizeof *calls);
        if (!calls) return vgpu_nccl_error(ncclSystemError, "no memory");
        group.calls = calls;
        group.room = room;
    }
    group.calls[group.count++] = *c;
    return ncclSuccess;
}

/* A call alone is a group of one. Nothing to move is nothing to do, for all ranks alike. */
static ncclResult_t call(struct vgpu_nccl_call c) {
    ncclResult_t e = check(&c);
    ncclGroupStart();
    if (!e && c.count) e = add(&c);
    if (e && !group.error) group.error = e;
    ncclResult_t end = ncclGroupEnd();
    return e ? e : end;
}

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
    return call((struct vgpu_nccl_call){VGPU_NCCL_ALL_REDUCE, send, recv, count, type, op, 0, comm, stream, NULL});
}

ncclResult_t ncclReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream) {
    return call((struct vgpu_nccl_call){VGPU_NCCL_REDUCE, send, recv, count, type, op, root, comm, stream, NULL});
}

ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
    return call(
        (struct vgpu_nccl_call){VGPU_NCCL_BROADCAST, send, recv, count, type, ncclSum, root, comm, stream, NULL});
}

ncclResult_t ncclBcast(void *buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                       cudaStream_t stream) {
    return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}

ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
    return call((struct vgpu_nccl_call){VGPU_NCCL_ALL_GATHER, send, recv, count, type, ncclSum, 0, comm, stream, NULL});
}

ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
    return call((struct vgpu_nccl_call){VGPU_NCCL_REDUCE_SCATTER, send, recv, count, type, op, 0, comm, stream, NULL});
}

ncclResult_t ncclSend(const void *buffer, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    return call((struct vgpu_nccl_call){VGPU_NCCL_SEND, buffer, NULL, count, type, ncclSum, peer, comm, stream, NULL});
}

ncclResult_t ncclRecv(void *buffer, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
    return call((struct vgpu_nccl_call){VGPU_NCCL_RECV, NULL, buffer, count, type, ncclSum, peer, comm, stream, NULL});
}
