/* The part of the stand-in for the recorder's tests (fake_cuda.c) that has kernels: what nvcc's stubs call, and the
 * questions about a kernel. A program says with cudaFakeLayout which parameters a kernel has. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 4096, MOST_PARAMS = 8 };

struct dim {
    unsigned x, y, z;
};
struct function {
    const void *host;
    const char *name;
    void **binary;
    long params; /* -1: the runtime does not know */
    size_t offset[MOST_PARAMS], bytes[MOST_PARAMS];
};
static struct function functions[MOST];
static int count;
static int last_error; /* as of cudaGetLastError */

static int fails(const char *name) {
    const char *f = getenv("FAKE_FAIL");
    return f && !strcmp(f, name) ? 999 : 0;
}
#define FAILS \
    if (fails(__func__)) return 999

/* By host function or by handle. */
static struct function *find(const void *f) {
    for (int i = count - 1; i >= 0; i--)
        if (functions[i].name && (functions[i].host == f || &functions[i] == f)) return &functions[i];
    return NULL;
}

void **__cudaRegisterFatBinary(void *wrapper) {
    void **handle = malloc(sizeof *handle);
    *handle = wrapper;
    return handle;
}
int __cudaRegisterFunction(void **handle, const void *host, char *device, const char *name) {
    (void)device;
    if (count < MOST) functions[count++] = (struct function){.host = host, .name = name, .binary = handle};
    return 0;
}
int __cudaUnregisterFatBinary(void **handle) {
    for (int i = 0; i < count; i++)
        if (functions[i].binary == handle) functions[i].name = NULL;
    free(handle);
    return 0;
}
int __cudaGetKernel(void **kernel, const void *host) {
    *kernel = find(host);
    return *kernel ? 0 : 98;
}
int cudaGetKernel(void **kernel, const void *host) {
    return __cudaGetKernel(kernel, host);
}
int cudaLibraryGetKernel(void **kernel, void *library, const char *name) {
    (void)library;
    functions[count] = (struct function){.name = name};
    *kernel = &functions[count++];
    return 0;
}

/* `params` pairs of offset and size. */
int cudaFakeLayout(const void *host, long params, const size_t *pairs) {
    struct function *f = find(host);
    f->params = params;
    for (long i = 0; i < params; i++) {
        f->offset[i] = pairs[2 * i];
        f->bytes[i] = pairs[2 * i + 1];
    }
    return 0;
}

/* As the vendor's, it leaves an error behind when there is no such parameter. */
int cudaFuncGetParamInfo(const void *host, size_t i, size_t *offset, size_t *bytes) {
    struct function *f = find(host);
    if (!f || f->params < 0) return last_error = 98;
    if ((long)i >= f->params) return last_error = 1;
    *offset = f->offset[i];
    *bytes = f->bytes[i];
    return 0;
}
int cudaFuncGetAttributes(void *attributes, const void *host) {
    struct {
        size_t shared, constant, local;
        int threads, registers;
    } a = {1000, 8, 16, 512, 33};
    if (!find(host)) return last_error = 98;
    memcpy(attributes, &a, sizeof a);
    return 0;
}
int cudaFuncGetName(const char **name, const void *host) {
    struct function *f = find(host);
    if (!f) return last_error = 98;
    *name = f->name;
    return 0;
}
int cudaPeekAtLastError(void) {
    return last_error;
}
int cudaGetLastError(void) {
    int e = last_error;
    last_error = 0;
    return e;
}

int __cudaLaunchKernel(void *kernel, struct dim grid, struct dim block, void **args, size_t shared, void *stream) {
    FAILS;
    (void)grid, (void)block, (void)args, (void)shared, (void)stream;
    return find(kernel) ? 0 : (last_error = 98);
}
int __cudaLaunchKernel_ptsz(void *kernel, struct dim grid, struct dim block, void **args, size_t shared, void *stream) {
    return __cudaLaunchKernel(kernel, grid, block, args, shared, stream);
}
int cudaLaunchKernel(const void *function, struct dim grid, struct dim block, void **args, size_t shared,
                     void *stream) {
    FAILS;
    return __cudaLaunchKernel((void *)function, grid, block, args, shared, stream);
}
int cudaLaunchKernelExC(const void *config, const void *function, void **args) {
    FAILS;
    (void)args;
    return config && find(function) ? 0 : (last_error = 1);
}
