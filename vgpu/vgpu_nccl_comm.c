/* NCCL's communicators, of ranks that are threads or groups of one process. */
#include "vgpu/vgpu_nccl_inside.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_COMMS = 1 << 12 };

pthread_mutex_t vgpu_nccl_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t vgpu_nccl_changed = PTHREAD_COND_INITIALIZER;
static struct vgpu_slab comms = {.item_bytes = sizeof(struct ncclComm), .capacity = MAX_COMMS};
static struct vgpu_clique *cliques;
static __thread char last_error[256];

int vgpu_nccl_refuse(void) {
    return vgpu_refused ? ncclUnhandledCudaError : ncclSuccess;
}

void vgpu_nccl_note(int error) {
    (void)error; /* ncclGetLastError has the text of what was found out here */
}

ncclResult_t vgpu_nccl_error(ncclResult_t result, const char *format, ...) {
    va_list ap;
    va_start(ap, format);
    vsnprintf(last_error, sizeof last_error, format, ap);
    va_end(ap);
    return result;
}

bool vgpu_nccl_is(ncclComm_t comm) {
    return vgpu_slab_has(&comms, comm);
}

/* ---- what needs no communicator ---- */

ncclResult_t ncclGetVersion(int *version) {
    if (!version) return vgpu_nccl_error(ncclInvalidArgument, "ncclGetVersion: version is NULL");
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result) {
    static const char *const texts[ncclNumResults] = {
        "no error",
        "a CUDA call failed",
        "a call of the system failed",
        "an internal error",
        "an argument is not valid",
        "the way NCCL is used is not valid",
        "a remote process failed",
        "an operation is still in progress",
    };
    return (unsigned)result < ncclNumResults ? texts[result] : "unknown result code";
}

const char *ncclGetLastError(ncclComm_t comm) {
    (void)comm;
    return last_error;
}

/* Ids tell the process: a rank of another one can be told, and refused. */
struct id {
    char magic[8];
    int64_t pid;
    uint64_t number;
};

static const char MAGIC[8] = "acctnccl";

ncclResult_t ncclGetUniqueId(ncclUniqueId *out) {
    static _Atomic uint64_t numbers;
    struct id id = {.pid = getpid(), .number = ++numbers};
    if (!out) return vgpu_nccl_error(ncclInvalidArgument, "ncclGetUniqueId: id is NULL");
    memcpy(id.magic, MAGIC, sizeof id.magic);
    memset(out, 0, sizeof *out);
    memcpy(out->internal, &id, sizeof id);
    return ncclSuccess;
}

/* ---- joining ---- */

static ncclResult_t check_id(const ncclUniqueId *given, int ranks, int rank) {
    struct id id;
    memcpy(&id, given->internal, sizeof id);
    if (ranks < 1 || rank < 0 || rank >= ranks)
        return vgpu_nccl_error(ncclInvalidArgument, "rank %d of %d", rank, ranks);
    if (memcmp(id.magic, MAGIC, sizeof id.magic)) return vgpu_nccl_error(ncclInvalidArgument, "not an id of this NCCL");
    if (id.pid == getpid() && ranks <= vgpu_profile()->devices) return ncclSuccess;
    vgpu_say("NCCL: %d ranks, %d device%s in this process: ranks in other processes are not implemented", ranks,
             vgpu_profile()->devices, vgpu_profile()->devices == 1 ? "" : "s");
    return vgpu_nccl_error(ncclSystemError, "ranks in other processes are not implemented");
}

static struct vgpu_clique *clique_of(const ncclUniqueId *id, int ranks) {
    for (struct vgpu_clique *c = cliques; c; c = c->next)
        if (!memcmp(c->id, id->internal, sizeof c->id)) return c;
    struct vgpu_clique *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    memcpy(c->id, id->internal, sizeof c->id);
    c->ranks = ranks;
    c->next = cliques;
    cliques = c;
    return c;
}

static bool has_device(const struct vgpu_clique *c, int device) {
    for (int r = 0; r < c->ranks; r++)
        if (c->taken[r] && c->device[r] == device) return true;
    return false;
}

/* Under the lock. */
static ncclResult_t join(const ncclUniqueId *id, int ranks, int rank, int device, ncclComm_t *out) {
    struct vgpu_clique *c = clique_of(id, ranks);
    struct ncclComm *comm = c ? vgpu_slab_take(&comms) : NULL;
    if (!comm) return vgpu_nccl_error(ncclSystemError, "no memory");
    if (c->ranks != ranks || c->taken[rank] || has_device(c, device)) {
        vgpu_slab_give(&comms, comm);
        return vgpu_nccl_error(ncclInvalidUsage,
                               "rank %d of %d on device %d: the rank, or the device, is there already", rank, ranks,
                               device);
    }
    *comm = (struct ncclComm){.item = comm->item, .clique = c, .rank = rank, .device = device};
    c->taken[rank] = true;
    c->device[rank] = device;
    c->joined++;
    c->alive++;
    pthread_cond_broadcast(&vgpu_nccl_changed);
    *out = comm;
    return ncclSuccess;
}

ncclResult_t vgpu_nccl_wait_joined(struct vgpu_clique *c) {
    pthread_mutex_lock(&vgpu_nccl_lock);
    while (c->joined < c->ranks && !c->aborted) pthread_cond_wait(&vgpu_nccl_changed, &vgpu_nccl_lock);
    bool aborted = c->aborted;
    pthread_mutex_unlock(&vgpu_nccl_lock);
    return aborted ? vgpu_nccl_error(ncclInternalError, "the communicator was aborted") : ncclSuccess;
}

static ncclResult_t begin(ncclComm_t *out, int ranks, const ncclUniqueId *id, int rank, int device) {
    if (!out) return vgpu_nccl_error(ncclInvalidArgument, "comm is NULL");
    ncclResult_t e = check_id(id, ranks, rank);
    if (e) return e;
    pthread_mutex_lock(&vgpu_nccl_lock);
    e = join(id, ranks, rank, device, out);
    pthread_mutex_unlock(&vgpu_nccl_lock);
    return e;
}

ncclResult_t ncclCommInitRank(ncclComm_t *out, int ranks, ncclUniqueId id, int rank) {
    ncclResult_t e = begin(out, ranks, &id, rank, vgpu_current());
    if (e) return e;
    if (!vgpu_nccl_grouped()) return vgpu_nccl_wait_joined((*out)->clique);
    vgpu_nccl_join_later((*out)->clique);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config) {
    (void)config; /* what it asks for does not show: whether calls block, how many blocks a kernel has */
    return ncclCommInitRank(out, ranks, id, rank);
}

ncclResult_t ncclCommInitAll(ncclComm_t *out, int count, const int *devices) {
    ncclUniqueId id;
    if (!out || count < 1 || count > vgpu_profile()->devices)
        return vgpu_nccl_error(ncclInvalidArgument, "ncclCommInitAll: %d of %d devices", count,
                               vgpu_profile()->devices);
    for (int i = 0; i < count; i++)
        if (devices && !vgpu_is_device(devices[i]))
            return vgpu_nccl_error(ncclInvalidArgument, "ncclCommInitAll: no device %d", devices[i]);
    ncclGetUniqueId(&id);
    ncclResult_t e = ncclSuccess;
    int n = 0;
    for (; n < count && !e; n++) e = begin(&out[n], count, &id, n, devices ? devices[n] : n);
    if (e)
        for (int i = 0; i < n - 1; i++) ncclCommAbort(out[i]);
    return e;
}

/* ---- leaving ---- */

static void drop_clique(struct vgpu_clique *gone) {
    for (struct vgpu_clique **at = &cliques; *at; at = &(*at)->next)
        if (*at == gone) {
            *at = gone->next;
            break;
        }
    for (struct vgpu_meeting *m = gone->meetings, *next; m; m = next) {
        next = m->next;
        free(m);
    }
    free(gone);
}

/* Under the lock. */
static void leave(ncclComm_t comm) {
    struct vgpu_clique *c = comm->clique;
    vgpu_slab_give(&comms, comm);
    if (!--c->alive) drop_clique(c);
}

/* Its work so far has been done. */
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
    pthread_mutex_lock(&vgpu_nccl_lock);
    int device = vgpu_nccl_is(comm) ? comm->device : -1;
    pthread_mutex_unlock(&vgpu_nccl_lock);
    if (device < 0) return vgpu_nccl_error(ncclInvalidArgument, "no such communicator");
    return vgpu_wait_device(device) ? ncclUnhandledCudaError : ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    ncclResult_t e = comm ? ncclCommFinalize(comm) : ncclSuccess;
    pthread_mutex_lock(&vgpu_nccl_lock);
    if (vgpu_nccl_is(comm)) leave(comm);
    pthread_mutex_unlock(&vgpu_nccl_lock);
    return e;
}

/* Who waits for this rank goes on without it. */
ncclResult_t ncclCommAbort(ncclComm_t comm) {
    pthread_mutex_lock(&vgpu_nccl_lock);
    bool found = vgpu_nccl_is(comm);
    if (found) {
        comm->clique->aborted = true;
        pthread_cond_broadcast(&vgpu_nccl_changed);
    }
    pthread_mutex_unlock(&vgpu_nccl_lock);
    if (!found) return comm ? vgpu_nccl_error(ncclInvalidArgument, "no such communicator") : ncclSuccess;
    vgpu_wait_device(comm->device);
    pthread_mutex_lock(&vgpu_nccl_lock);
    leave(comm);
    pthread_mutex_unlock(&vgpu_nccl_lock);
    return ncclSuccess;
}

/* ---- questions ---- */

#define ASK(comm, out, value)                                                                                    \
    do {                                                                                                         \
        if (!(out)) return vgpu_nccl_error(ncclInvalidArgument, "%s: NULL", __func__);                           \
        pthread_mutex_lock(&vgpu_nccl_lock);                                                                     \
        bool found = vgpu_nccl_is(comm);                                                                         \
        if (found) *(out) = (value);                                                                             \
        pthread_mutex_unlock(&vgpu_nccl_lock);                                                                   \
        return found ? ncclSuccess : vgpu_nccl_error(ncclInvalidArgument, "%s: no such communicator", __func__); \
    } while (0)

ncclResult_t ncclCommCount(ncclComm_t comm, int *count) {
    ASK(comm, count, comm->clique->ranks);
}

ncclResult_t ncclCommCuDevice(ncclComm_t comm, int *device) {
    ASK(comm, device, comm->device);
}

ncclResult_t ncclCommUserRank(ncclComm_t comm, int *rank) {
    ASK(comm, rank, comm->rank);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error) {
    ASK(comm, error, vgpu_refused ? ncclUnhandledCudaError : comm->clique->aborted ? ncclInternalError : ncclSuccess);
}

/* Buffers need no registration here. */
ncclResult_t ncclCommRegister(ncclComm_t comm, void *buffer, size_t bytes, void **handle) {
    if (!buffer || !bytes) return vgpu_nccl_error(ncclInvalidArgument, "ncclCommRegister: no buffer");
    ASK(comm, handle, buffer);
}

ncclResult_t ncclCommDeregister(ncclComm_t comm, void *handle) {
    int device;
    (void)handle;
    return ncclCommCuDevice(comm, &device);
}

ncclResult_t ncclMemAlloc(void **out, size_t bytes) {
    return cudaMalloc(out, bytes) ? vgpu_nccl_error(ncclUnhandledCudaError, "ncclMemAlloc: cudaMalloc failed")
                                  : ncclSuccess;
}

ncclResult_t ncclMemFree(void *address) {
    return cudaFree(address) ? vgpu_nccl_error(ncclUnhandledCudaError, "ncclMemFree: cudaFree failed") : ncclSuccess;
}
