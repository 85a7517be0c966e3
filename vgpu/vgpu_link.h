/* The one symbol of the engine, libacct-vgpu.so, that the stand-ins look up: `vgpu_engine`; and what the stand-in for
 * libcudart hands over to it: the device code that the program's constructors registered. */
#ifndef VGPU_LINK_H
#define VGPU_LINK_H

#include <acct/vgpu.h>
#include <pthread.h>
#include <stddef.h>

enum { VGPU_LINK_VERSION = 4 }; /* stand-ins and engine must come from one build */

/* A __global__ function or a __device__, __constant__ or __managed__ variable, as nvcc's code registers it. */
struct vgpu_registered {
    struct vgpu_registered *next;
    const void *host; /* the launch stub, or the variable that stands for it in the program */
    void **managed;   /* where a managed variable's address is to be put; NULL: it is none */
    size_t bytes;
    char name[]; /* mangled, as in the PTX */
};

/* One registered fat binary. Lives as long as the process: queued launches may still use it. */
struct vgpu_binary {
    struct vgpu_binary *next;
    const void *wrapper; /* struct acct_fatbin_wrapper, in the program; NULL: unregistered, its memory may be gone */
    struct vgpu_registered *functions, *variables;
    void *unit; /* the engine's */
};

/* Everything under `lock`. Newest binary first. */
struct vgpu_registry {
    pthread_mutex_t lock;
    struct vgpu_binary *binaries;
    unsigned long removals; /* grows when a binary goes: what was found by a host address is to be looked up anew */
};

struct vgpu_cudart_api;
struct vgpu_cublas_api;
struct vgpu_cublasLt_api;
struct vgpu_cupti_api;
struct vgpu_nccl_api;

struct vgpu_engine {
    unsigned version;
    const struct vgpu_cudart_api *cudart;
    const struct vgpu_cublas_api *cublas;
    const struct vgpu_cublasLt_api *cublasLt;
    const struct vgpu_cupti_api *cupti;
    const struct vgpu_nccl_api *nccl;
    int (*device)(int ordinal, struct acct_vgpu_device *out);
    void (*note)(int error);                          /* sets the calling thread's last CUDA error */
    void (*note_cupti)(int error);                    /* CUPTI's */
    void (*registry)(struct vgpu_registry *registry); /* once, before the first call */
    int (*init_module)(struct vgpu_binary *binary);   /* __cudaInitModule; cudaError_t */
};

#endif
