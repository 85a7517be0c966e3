/* What libcudart's stand-in answers without the engine: the registration calls that nvcc puts into constructors, so
 * that a program that links CUDA code but makes no CUDA call starts as fast as without, and the device's own account.
 */
#include "vgpu/vgpu_standin.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

int acctVgpuDevice(int ordinal, struct acct_vgpu_device *out) {
    const struct vgpu_engine *e = vgpu_engine_get();
    return e && out ? e->device(ordinal, out) : -1;
}

/* Registration only keeps records; the engine looks at them at the first launch or look-up of a symbol. Where there is
 * no memory for a record, what it names is not found later, and that call says so. */
static struct vgpu_registry registry = {.lock = PTHREAD_MUTEX_INITIALIZER};

void vgpu_standin_opened(const struct vgpu_engine *engine) {
    engine->registry(&registry);
}

void **__cudaRegisterFatBinary(void *wrapper) {
    static struct vgpu_binary none;
    struct vgpu_binary *b = calloc(1, sizeof *b);
    if (!b) return (void **)&none;
    b->wrapper = wrapper;
    pthread_mutex_lock(&registry.lock);
    b->next = registry.binaries;
    registry.binaries = b;
    pthread_mutex_unlock(&registry.lock);
    return (void **)b;
}

void __cudaRegisterFatBinaryEnd(void **handle) {
    (void)handle;
}

void __cudaUnregisterFatBinary(void **handle) {
    struct vgpu_binary *b = (struct vgpu_binary *)handle;
    if (!b) return;
    pthread_mutex_lock(&registry.lock);
    b->wrapper = 0;
    registry.removals++;
    pthread_mutex_unlock(&registry.lock);
}

/* Called at the host's first access to a managed variable. */
char __cudaInitModule(void **handle) {
    const struct vgpu_engine *e = vgpu_engine_get();
    return e && handle && !e->init_module((struct vgpu_binary *)handle);
}

static void keep(void **handle, bool function, const void *host, void **managed, const char *name, size_t bytes) {
    struct vgpu_binary *b = (struct vgpu_binary *)handle;
    size_t length = strlen(name) + 1;
    struct vgpu_registered *r = b ? malloc(sizeof *r + length) : 0;
    if (!r) return;
    r->host = host;
    r->managed = managed;
    r->bytes = bytes;
    memcpy(r->name, name, length);
    struct vgpu_registered **list = function ? &b->functions : &b->variables;
    pthread_mutex_lock(&registry.lock);
    r->next = *list;
    *list = r;
    pthread_mutex_unlock(&registry.lock);
}

void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int limit, uint3 *tid,
                            uint3 *bid, dim3 *block, dim3 *grid, int *warp) {
    (void)device, (void)limit, (void)tid, (void)bid, (void)block, (void)grid, (void)warp;
    keep(handle, true, host, 0, name, 0);
}

void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int ext, size_t bytes, int constant,
                       int global) {
    (void)device, (void)ext, (void)constant, (void)global;
    keep(handle, false, host, 0, name, bytes);
}

/* The program reaches a managed variable through the pointer at `host`, which is also what symbols are named by. */
void __cudaRegisterManagedVar(void **handle, void **host, char *device, const char *name, int ext, size_t bytes,
                              int constant, int global) {
    (void)device, (void)ext, (void)constant, (void)global;
    keep(handle, false, host, host, name, bytes);
}

void __cudaRegisterHostVar(void **handle, const char *name, char *host, size_t bytes) {
    (void)handle, (void)name, (void)host, (void)bytes;
}

/* A launch `f<<<grid, block, shared, stream>>>(…)` pushes its configuration and pops it in the launch stub. */
struct configuration {
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
};
enum { DEPTH = 16 };
static __thread struct configuration pushed[DEPTH];
static __thread unsigned depth;

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, struct CUstream_st *stream) {
    if (depth == DEPTH) return cudaErrorInvalidConfiguration;
    pushed[depth++] = (struct configuration){grid, block, shared, stream};
    return cudaSuccess;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
    if (!depth) return cudaErrorMissingConfiguration;
    struct configuration *c = &pushed[--depth];
    *grid = c->grid;
    *block = c->block;
    *shared = c->shared;
    *(cudaStream_t *)stream = c->stream;
    return cudaSuccess;
}
