/* Which device a thread means. All devices of a process are alike, so a choice among them is by number only. */
#include "vgpu/vgpu_engine.h"
#include "vgpu/vgpu_profile.h"
#include "vgpu/vgpu_stream.h"

/* Of a thread that has not chosen: the first of cudaSetValidDevices. */
static _Atomic int preferred;
static __thread int chosen; /* ordinal + 1; 0: none */

int vgpu_current(void) {
    return chosen ? chosen - 1 : atomic_load_explicit(&preferred, memory_order_relaxed);
}

bool vgpu_is_device(int ordinal) {
    return ordinal >= 0 && ordinal < vgpu_profile()->devices;
}

int vgpu_device_of_stream(cudaStream_t stream) {
    pthread_mutex_lock(&vgpu_lock);
    struct vgpu_stream *s = vgpu_stream_find(stream);
    int device = s ? s->device : -1;
    pthread_mutex_unlock(&vgpu_lock);
    return device;
}

cudaError_t cudaGetDeviceCount(int *count) {
    if (!count) return cudaErrorInvalidValue;
    *count = vgpu_profile()->devices;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device) {
    if (!device) return cudaErrorInvalidValue;
    *device = vgpu_current();
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
    if (!vgpu_is_device(device)) return cudaErrorInvalidDevice;
    chosen = device + 1;
    return cudaSuccess;
}

/* Makes the device ready, which ours always is; the calling thread's choice stays. */
cudaError_t cudaInitDevice(int device, unsigned int device_flags, unsigned int flags) {
    if (!vgpu_is_device(device)) return cudaErrorInvalidDevice;
    if (flags & ~(unsigned)cudaInitDeviceFlagsAreValid) return cudaErrorInvalidValue;
    return flags && (device_flags & ~(unsigned)cudaDeviceMask) ? cudaErrorInvalidValue : cudaSuccess;
}

cudaError_t cudaSetValidDevices(int *devices, int count) {
    if (count < 0 || count > vgpu_profile()->devices || (count && !devices)) return cudaErrorInvalidValue;
    for (int i = 0; i < count; i++)
        if (!vgpu_is_device(devices[i])) return cudaErrorInvalidDevice;
    preferred = count ? devices[0] : 0;
    return cudaSuccess;
}

cudaError_t cudaChooseDevice(int *device, const struct cudaDeviceProp *wanted) {
    if (!device || !wanted) return cudaErrorInvalidValue;
    *device = 0;
    return cudaSuccess;
}
