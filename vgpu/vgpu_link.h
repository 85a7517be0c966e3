/* The one symbol of the engine, libacct-vgpu.so, that the stand-ins look up: `vgpu_engine`. */
#ifndef VGPU_LINK_H
#define VGPU_LINK_H

#include <acct/vgpu.h>

enum { VGPU_LINK_VERSION = 1 }; /* stand-ins and engine must come from one build */

struct vgpu_cudart_api;
struct vgpu_cublas_api;

struct vgpu_engine {
    unsigned version;
    const struct vgpu_cudart_api *cudart;
    const struct vgpu_cublas_api *cublas;
    int (*device)(int ordinal, struct acct_vgpu_device *out);
    void (*note)(int error); /* sets the calling thread's last CUDA error */
};

#endif
