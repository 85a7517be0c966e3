/* Devices that reach each other's memory. Access goes one way, is enabled by the device that wants it, and is for what
 * cudaMalloc gave; a pool says itself who may touch its memory. Copies need none. */
#include "vgpu/vgpu_memory.h"

static uint32_t enabled[VGPU_MAX_DEVICES]; /* bit p of [d]: d reaches p; under the memory's lock */

bool vgpu_peer_reaches(int device, const void *address) {
    struct vgpu_memory *m = vgpu_memory_over(address);
    int owner = m ? vgpu_memory_device(m) : device;
    if (owner == device) return true;
    vgpu_memory_enter();
    struct vgpu_block *b = vgpu_arena_find(&m->arena, (uint64_t)(uintptr_t)address);
    uint32_t access = b && b->heap && b->heap != &m->small ? ((struct vgpu_pool *)(void *)b->heap)->access >> device
                                                           : enabled[device] >> owner;
    vgpu_memory_leave();
    return access & 1;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) {
    if (!can) return cudaErrorInvalidValue;
    if (!vgpu_is_device(device) || !vgpu_is_device(peer)) return cudaErrorInvalidDevice;
    *can = device != peer && vgpu_profile()->peer_access;
    return cudaSuccess;
}

static cudaError_t check(int peer) {
    int can = 0;
    cudaError_t e = cudaDeviceCanAccessPeer(&can, vgpu_current(), peer);
    return !e && !can ? cudaErrorInvalidDevice : e;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int flags) {
    if (flags) return cudaErrorInvalidValue;
    cudaError_t e = check(peer);
    if (e) return e;
    vgpu_memory_enter();
    bool before = enabled[vgpu_current()] >> peer & 1;
    enabled[vgpu_current()] |= 1u << peer;
    vgpu_memory_leave();
    return before ? cudaErrorPeerAccessAlreadyEnabled : cudaSuccess;
}

cudaError_t cudaDeviceDisablePeerAccess(int peer) {
    if (!vgpu_is_device(peer)) return cudaErrorInvalidDevice;
    vgpu_memory_enter();
    bool before = enabled[vgpu_current()] >> peer & 1;
    enabled[vgpu_current()] &= ~(1u << peer);
    vgpu_memory_leave();
    return before ? cudaSuccess : cudaErrorPeerAccessNotEnabled;
}

/* What it reaches, and who reaches it. */
void vgpu_peers_reset(int device) {
    vgpu_memory_enter();
    enabled[device] = 0;
    for (int i = 0; i < VGPU_MAX_DEVICES; i++) enabled[i] &= ~(1u << device);
    vgpu_memory_leave();
}

cudaError_t cudaDeviceGetP2PAttribute(int *value, enum cudaDeviceP2PAttr attribute, int source, int target) {
    int can = 0;
    if (!value) return cudaErrorInvalidValue;
    cudaError_t e = cudaDeviceCanAccessPeer(&can, source, target);
    if (e || source == target) return e ? e : cudaErrorInvalidDevice;
    switch ((int)attribute) {
    case cudaDevP2PAttrPerformanceRank:
        *value = 0;
        return cudaSuccess;
    case cudaDevP2PAttrAccessSupported:
    case cudaDevP2PAttrNativeAtomicSupported:
        *value = can;
        return cudaSuccess;
    case cudaDevP2PAttrCudaArrayAccessSupported:
        *value = 0; /* there are no arrays */
        return cudaSuccess;
    default:
        return cudaErrorInvalidValue;
    }
}
