/* Inside libacct-vgpu.so: what its parts share. The functions of the CUDA runtime and of cuBLAS are defined in this
 * library under the vendor's names, hidden, and reach the program through the stand-ins' tables (vgpu/generate.py).
 * Two locks: `vgpu_lock` over streams, events and handles; the memory's own (vgpu_memory.c), never held together with a
 * wait. A caller may hold vgpu_lock and then take the memory's, never the other way round. */
#ifndef VGPU_ENGINE_H
#define VGPU_ENGINE_H

#include "vgpu/vgpu_activity.h"
#include "vgpu/vgpu_link.h"
#include "vgpu/vgpu_model.h"

#include <cuda_profiler_api.h>
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- state of the device (vgpu_error.c, vgpu_device.c) ---- */

/* 0, or the cudaError_t with which every call is refused: initialisation error in a forked child, unloading while the
 * program exits, illegal address after a fault. */
extern _Atomic int vgpu_refused;
int vgpu_cudart_refuse(void);
int vgpu_cublas_refuse(void); /* the same as a cublasStatus_t */
int vgpu_cublasLt_refuse(void);
int vgpu_cupti_refuse(void); /* … as a CUptiResult */
int vgpu_nccl_refuse(void);  /* … as an ncclResult_t */
void vgpu_cudart_note(int error);
void vgpu_cublas_note(int error);
void vgpu_cublasLt_note(int error);
void vgpu_cupti_note(int error);
void vgpu_nccl_note(int error);
void vgpu_say(const char *format, ...) __attribute__((format(printf, 1, 2))); /* one line on stderr, no stdio lock */
int vgpu_device(int ordinal, struct acct_vgpu_device *out);
int vgpu_current(void); /* the calling thread's device (vgpu_current.c) */
bool vgpu_is_device(int ordinal);
int vgpu_device_of_stream(cudaStream_t stream); /* -1: no such stream */
int vgpu_cores(void);                           /* processors this process may run on */
bool vgpu_env_bytes(const char *name,
                    uint64_t *value); /* a size with suffix K M G T; false: unset or empty, 0 or wrong */

struct vgpu_peak {
    double fp32, fp64, tf32, bf16, fp16, fp8; /* FLOP/s, NaN: not measured */
    double bytes_per_s;                       /* of memory, read and written by all cores, NaN */
    char source[192];
};
void vgpu_peak_get(struct vgpu_peak *out); /* measures at most once a process, caches on disk */

/* ---- handles: items that keep their address for ever, so that a stale handle can be told ---- */

struct vgpu_item {
    uint32_t live;
    uint32_t next_free;
};

struct vgpu_slab {
    char *base;
    size_t item_bytes, capacity, count; /* items ever used */
    uint32_t first_free;                /* index + 1 */
};

void *vgpu_slab_take(struct vgpu_slab *slab); /* NULL: full. Contents stay as its last user left them */
void vgpu_slab_give(struct vgpu_slab *slab, void *item);
bool vgpu_slab_has(const struct vgpu_slab *slab, const void *item);

/* ---- streams (vgpu_stream.c) ---- */

struct vgpu_stream;

/* A point in a stream's work: reached when the stream has done `sequence` operations. */
struct vgpu_ticket {
    struct vgpu_stream *stream; /* NULL: reached */
    uint64_t sequence;
    int64_t ends; /* ns on the model's time line (vgpu_model.h); 0 where there is none */
};

enum vgpu_work_kind {
    VGPU_WORK_HOST,  /* runs on the stream's thread in any case: it may wait, or call the program */
    VGPU_WORK_NOTE,  /* the engine's own book-keeping: runs in any case; when dry perhaps on the caller's thread under
                        vgpu_lock, so it neither waits nor takes that lock */
    VGPU_WORK_DEVICE /* an operation of the device: not run when dry (`dry` is), and it takes time by `amount` */
};

struct vgpu_work {
    void (*run)(void *args); /* on the stream's thread, no lock held; NULL: nothing is to be done */
    const void *args;        /* copied */
    size_t bytes;
    uint8_t kind;                  /* enum vgpu_work_kind */
    void (*dry)(void *args);       /* of an operation of the device, in its place when dry: checks of addresses, zeros
                                      for the host; called as a NOTE is; NULL: nothing */
    struct vgpu_amount amount;     /* of an operation of the device: what it does, for the model's time line */
    struct vgpu_ticket after;      /* runs after that point too */
    bool waited;                   /* the caller waits for it: not to be captured */
    bool blas;                     /* calls OpenBLAS: kept out while the process forks or exits */
    struct vgpu_activity activity; /* what it is, for CUPTI; kind NONE: nothing */
};

extern pthread_mutex_t vgpu_lock;

cudaError_t vgpu_submit(cudaStream_t stream, const struct vgpu_work *work,
                        struct vgpu_ticket *ticket); /* ticket may be NULL */
cudaError_t vgpu_wait(struct vgpu_ticket ticket);
cudaError_t vgpu_wait_all(void);          /* every stream's work so far */
cudaError_t vgpu_wait_device(int device); /* of that device's streams */
cudaError_t vgpu_submit_and_wait(cudaStream_t stream, const struct vgpu_work *work);
bool vgpu_on_worker(void);                                 /* on a stream's thread? */
bool vgpu_reached(struct vgpu_ticket ticket);              /* under vgpu_lock */
struct vgpu_stream *vgpu_stream_find(cudaStream_t stream); /* under vgpu_lock; NULL: no such stream */
cudaStream_t vgpu_default_stream(int device);              /* a handle for the legacy default stream of that device */
void vgpu_streams_reset(int device);
int64_t vgpu_now(void);     /* ns, CLOCK_MONOTONIC */
void vgpu_blas_enter(void); /* around use of OpenBLAS outside a work item */
void vgpu_blas_leave(void);

/* An operation on addresses the device cannot reach: says which call, and refuses everything from now on. */
void vgpu_fault(const char *what, const void *address, size_t bytes);

/* ---- memory (vgpu_memory.c, vgpu_pool.c, vgpu_peer.c, vgpu_host.c) ---- */

enum vgpu_side { VGPU_PAGEABLE, VGPU_PINNED, VGPU_MANAGED, VGPU_DEVICE, VGPU_BAD };

/* Where [address, address + bytes) lies; VGPU_BAD: in the device's range but not in one block in use. */
enum vgpu_side vgpu_side_of(const void *address, size_t bytes);
int vgpu_device_of(const void *address); /* whose range it is in; -1: no device's */
/* May an operation of the calling thread's device touch it? bytes 0: yes. */
bool vgpu_device_can(const void *address, size_t bytes);
/* The same, and the range around it that is of one kind: *first, *length. exact: a block of the device ends where the
 * program asked for it to end. */
bool vgpu_device_range(const void *address, size_t bytes, bool exact, uint64_t *first, uint64_t *length);
void *vgpu_device_allocate(int device, size_t bytes); /* as cudaMalloc, bytes > 0. NULL: no room */
void *vgpu_device_take(size_t bytes);                 /* by a kernel's malloc: never waits. NULL: no room, or 0 bytes */
void vgpu_device_release(void *address);              /* at once, by a kernel's free */
cudaError_t vgpu_release_ordered(void *address, cudaStream_t stream); /* of cudaMalloc, when the stream gets there */
uint64_t vgpu_capacity(void);                                         /* of a device, in all */
void vgpu_memory_reset(int device);
void vgpu_pools_settle(
    void); /* at a synchronisation: idle memory above the pools' thresholds goes back. No lock held */
bool vgpu_peer_reaches(int device, const void *address); /* true also where it is no device's address */
void vgpu_peers_reset(int device);
enum vgpu_side vgpu_host_side(const void *address, size_t bytes,
                              struct cudaPointerAttributes *out);                           /* out may be NULL */
bool vgpu_host_range(const void *address, size_t bytes, uint64_t *first, uint64_t *length); /* of registered memory */
void vgpu_host_reset(int device);

/* The forms for a default stream per thread that have no stream argument; the vendor's headers name them only there. */
__typeof__(cudaMemcpy) cudaMemcpy_ptds;
__typeof__(cudaMemcpy2D) cudaMemcpy2D_ptds;
__typeof__(cudaMemcpy3D) cudaMemcpy3D_ptds;
__typeof__(cudaMemset3D) cudaMemset3D_ptds;
__typeof__(cudaMemset) cudaMemset_ptds;
__typeof__(cudaMemset2D) cudaMemset2D_ptds;

#endif
