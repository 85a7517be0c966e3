/* Errors: what the whole device refuses, the last error of each thread, names and texts. */
#include "vgpu/vgpu_engine.h"

_Atomic int vgpu_refused;
static __thread int last_error;

int vgpu_cudart_refuse(void) {
    int e = vgpu_refused;
    if (e) last_error = e;
    return e;
}

void vgpu_cudart_note(int error) {
    last_error = error;
}

void vgpu_fault(const char *what, const void *address, size_t bytes) {
    int none = 0;
    if (__atomic_compare_exchange_n((int *)&vgpu_refused, &none, cudaErrorIllegalAddress, false, __ATOMIC_SEQ_CST,
                                    __ATOMIC_SEQ_CST))
        vgpu_say("%s: the device cannot reach %zu bytes at %p (cudaErrorIllegalAddress; all further calls fail)", what,
                 bytes, address);
}

struct named {
    int code;
    const char *name;
};

static const struct named errors[] = {
#define VGPU_ERROR(name) {name, #name},
#include "vgpu_cudart_errors.h"
#undef VGPU_ERROR
};

static const struct named texts[] = {
    {cudaSuccess, "no error"},
    {cudaErrorInvalidValue, "invalid argument"},
    {cudaErrorMemoryAllocation, "out of memory"},
    {cudaErrorInitializationError, "the device cannot be used here (in a forked child?)"},
    {cudaErrorCudartUnloading, "the program is exiting"},
    {cudaErrorInvalidPitchValue, "invalid pitch"},
    {cudaErrorInvalidMemcpyDirection, "invalid direction of a copy"},
    {cudaErrorInvalidDevice, "no such device"},
    {cudaErrorInvalidResourceHandle, "invalid stream, event or other handle"},
    {cudaErrorInvalidSymbol, "no such device variable"},
    {cudaErrorInvalidDeviceFunction, "no such kernel"},
    {cudaErrorInvalidConfiguration, "invalid grid or block"},
    {cudaErrorNoKernelImageForDevice, "the kernel has no PTX that this device could compile"},
    {cudaErrorInvalidPtx, "the kernel's PTX cannot be used"},
    {cudaErrorMisalignedAddress, "the device accessed an address that is not aligned"},
    {cudaErrorLaunchFailure, "a kernel failed"},
    {cudaErrorAssert, "an assertion of a kernel failed"},
    {cudaErrorNotReady, "not finished yet"},
    {cudaErrorIllegalAddress, "the device accessed an address that it cannot reach"},
    {cudaErrorHostMemoryAlreadyRegistered, "this host memory is registered already"},
    {cudaErrorHostMemoryNotRegistered, "this host memory is not registered"},
    {cudaErrorNotPermitted, "not permitted here"},
    {cudaErrorNotSupported, "not supported"},
};

const char *cudaGetErrorName(cudaError_t error) {
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == (int)error) return errors[i].name;
    return "unrecognized error code";
}

/* For the codes that this device never gives, the name is the text. */
const char *cudaGetErrorString(cudaError_t error) {
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i].code == (int)error) return texts[i].name;
    return cudaGetErrorName(error);
}

cudaError_t cudaPeekAtLastError(void) {
    return (cudaError_t)last_error;
}

/* An error that outlives its call (a fault, a forked child) is not cleared. */
cudaError_t cudaGetLastError(void) {
    int e = last_error;
    last_error = vgpu_refused;
    return (cudaError_t)e;
}
