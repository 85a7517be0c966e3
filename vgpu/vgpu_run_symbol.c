/* Symbols: device variables by the host variables that stand for them; and handles of kernels. */
#include "vgpu/vgpu_crt.h"
#include "vgpu/vgpu_run.h"

cudaError_t cudaGetSymbolAddress(void **out, const void *symbol) {
    size_t bytes;
    return out ? vgpu_symbol_find(symbol, out, &bytes) : cudaErrorInvalidValue;
}

cudaError_t cudaGetSymbolSize(size_t *out, const void *symbol) {
    void *address;
    return out ? vgpu_symbol_find(symbol, &address, out) : cudaErrorInvalidValue;
}

/* The place of [offset, offset + bytes) of a variable. */
static cudaError_t part(const void *symbol, size_t offset, size_t bytes, char **out) {
    void *address;
    size_t all;
    cudaError_t e = vgpu_symbol_find(symbol, &address, &all);
    if (e) return e;
    if (offset > all || bytes > all - offset) return cudaErrorInvalidValue;
    *out = (char *)address + offset;
    return cudaSuccess;
}

static bool to_variable(enum cudaMemcpyKind kind) {
    return kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice || kind == cudaMemcpyDefault;
}

static bool from_variable(enum cudaMemcpyKind kind) {
    return kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice || kind == cudaMemcpyDefault;
}

cudaError_t cudaMemcpyToSymbol(const void *symbol, const void *from, size_t bytes, size_t offset,
                               enum cudaMemcpyKind kind) {
    char *to;
    if (!to_variable(kind)) return cudaErrorInvalidMemcpyDirection;
    cudaError_t e = part(symbol, offset, bytes, &to);
    return e ? e : cudaMemcpy(to, from, bytes, kind);
}

cudaError_t cudaMemcpyFromSymbol(void *to, const void *symbol, size_t bytes, size_t offset, enum cudaMemcpyKind kind) {
    char *from;
    if (!from_variable(kind)) return cudaErrorInvalidMemcpyDirection;
    cudaError_t e = part(symbol, offset, bytes, &from);
    return e ? e : cudaMemcpy(to, from, bytes, kind);
}

cudaError_t cudaMemcpyToSymbolAsync(const void *symbol, const void *from, size_t bytes, size_t offset,
                                    enum cudaMemcpyKind kind, cudaStream_t stream) {
    char *to;
    if (!to_variable(kind)) return cudaErrorInvalidMemcpyDirection;
    cudaError_t e = part(symbol, offset, bytes, &to);
    return e ? e : cudaMemcpyAsync(to, from, bytes, kind, stream);
}

cudaError_t cudaMemcpyFromSymbolAsync(void *to, const void *symbol, size_t bytes, size_t offset,
                                      enum cudaMemcpyKind kind, cudaStream_t stream) {
    char *from;
    if (!from_variable(kind)) return cudaErrorInvalidMemcpyDirection;
    cudaError_t e = part(symbol, offset, bytes, &from);
    return e ? e : cudaMemcpyAsync(to, from, bytes, kind, stream);
}

/* The forms for a default stream per thread that have no stream argument. */
__typeof__(cudaMemcpyToSymbol) cudaMemcpyToSymbol_ptds;
__typeof__(cudaMemcpyFromSymbol) cudaMemcpyFromSymbol_ptds;

cudaError_t cudaMemcpyToSymbol_ptds(const void *symbol, const void *from, size_t bytes, size_t offset,
                                    enum cudaMemcpyKind kind) {
    char *to;
    if (!to_variable(kind)) return cudaErrorInvalidMemcpyDirection;
    cudaError_t e = part(symbol, offset, bytes, &to);
    return e ? e : cudaMemcpy_ptds(to, from, bytes, kind);
}

cudaError_t cudaMemcpyFromSymbol_ptds(void *to, const void *symbol, size_t bytes, size_t offset,
                                      enum cudaMemcpyKind kind) {
    char *from;
    if (!from_variable(kind)) return cudaErrorInvalidMemcpyDirection;
    cudaError_t e = part(symbol, offset, bytes, &from);
    return e ? e : cudaMemcpy_ptds(to, from, bytes, kind);
}

/* ---- handles ---- */

cudaError_t cudaGetKernel(cudaKernel_t *out, const void *host) {
    struct vgpu_kernel *k;
    if (!out) return cudaErrorInvalidValue;
    cudaError_t e = vgpu_kernel_find(host, &k);
    if (!e) *out = (cudaKernel_t)k;
    return e;
}

cudaError_t __cudaGetKernel(cudaKernel_t *out, const void *host) {
    return vgpu_refused == cudaErrorInitializationError ? cudaErrorInitializationError : cudaGetKernel(out, host);
}

cudaError_t cudaGetFuncBySymbol(cudaFunction_t *out, const void *host) {
    struct vgpu_kernel *k;
    if (!out) return cudaErrorInvalidValue;
    cudaError_t e = vgpu_kernel_find(host, &k);
    if (!e) e = vgpu_kernel_ready(k);
    if (!e) *out = (cudaFunction_t)k;
    return e;
}

cudaError_t cudaFuncGetName(const char **name, const void *function) {
    struct vgpu_kernel *k;
    if (!name) return cudaErrorInvalidValue;
    cudaError_t e = vgpu_kernel_find(function, &k);
    if (!e) *name = k->name;
    return e;
}

cudaError_t cudaFuncGetParamInfo(const void *function, size_t index, size_t *offset, size_t *bytes) {
    struct vgpu_kernel *k;
    if (!offset) return cudaErrorInvalidValue; /* bytes may be NULL */
    cudaError_t e = vgpu_kernel_find(function, &k);
    if (!e) e = vgpu_kernel_ready(k);
    if (e) return e;
    if (index >= (size_t)k->f->params) return cudaErrorInvalidValue;
    *offset = k->f->vars[index].offset;
    if (bytes) *bytes = k->f->vars[index].bytes;
    return cudaSuccess;
}
