/* Libraries: device code that a program loads by a call, as PTX or in a fat binary. A library is made to look like a
 * binary that the program's constructors registered, so that everything else takes it for one. */
#include "ptx/ptx_fatbin.h"
#include "vgpu/vgpu_run.h"

#include <acct/fatbin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct library {
    struct vgpu_item item;
    struct vgpu_binary *binary; /* lives as long as the process, as all do */
    size_t kernels;
};

enum { MAX_LIBRARIES = 1 << 16 };
static const uint32_t ELF_MAGIC = 0x464c457f;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct vgpu_slab libraries = {.item_bytes = sizeof(struct library), .capacity = MAX_LIBRARIES};

static struct library *find(cudaLibrary_t handle) {
    pthread_mutex_lock(&lock);
    bool known = vgpu_slab_has(&libraries, handle);
    pthread_mutex_unlock(&lock);
    return known ? (struct library *)handle : NULL;
}

/* ---- code as a fat binary of our own ---- */

static unsigned number_after(const char *text, const char *word, unsigned fallback) {
    unsigned n;
    const char *at = strstr(text, word);
    return at && sscanf(at + strlen(word), "%u", &n) == 1 ? n : fallback;
}

/* One entry, not compressed. */
static unsigned char *wrap_ptx(const char *text) {
    size_t length = strlen(text) + 1, payload = (length + 7) / 8 * 8;
    struct acct_fatbin_entry_header entry = {.kind = ACCT_FATBIN_PTX,
                                             .version = 0x0101,
                                             .header_bytes = sizeof entry,
                                             .payload_bytes = payload,
                                             .isa_major = (uint16_t)number_after(text, ".version ", 0),
                                             .arch = number_after(text, ".target sm_", 0),
                                             .flags = ACCT_FATBIN_64BIT};
    struct acct_fatbin_header head = {ACCT_FATBIN_MAGIC, 1, sizeof head, sizeof entry + payload};
    unsigned char *f = calloc(1, sizeof head + sizeof entry + payload);
    if (!f) return NULL;
    memcpy(f, &head, sizeof head);
    memcpy(f + sizeof head, &entry, sizeof entry);
    memcpy(f + sizeof head + sizeof entry, text, length);
    return f;
}

static unsigned char *copy_fatbin(const void *code) {
    uint64_t bytes = acct_fatbin_bytes(code, SIZE_MAX);
    unsigned char *f = bytes ? malloc(bytes) : NULL;
    if (f) memcpy(f, code, bytes);
    return f;
}

/* Copied, since the program may free it; NULL: no memory, or *error. */
static unsigned char *take_code(const void *code, cudaError_t *error) {
    const struct acct_fatbin_wrapper *w = code;
    uint32_t magic;
    memcpy(&magic, code, sizeof magic);
    *error = cudaErrorMemoryAllocation;
    if (magic == ACCT_FATBIN_MAGIC) return copy_fatbin(code);
    if (magic == ACCT_FATBIN_WRAPPER_MAGIC && w->version == 1) return copy_fatbin(w->data);
    if (magic != ELF_MAGIC && magic != ACCT_FATBIN_WRAPPER_MAGIC) return wrap_ptx(code);
    vgpu_say("cudaLibraryLoadData: %s cannot be loaded here", magic == ELF_MAGIC ? "machine code" : "unlinked code");
    *error = magic == ELF_MAGIC ? cudaErrorNoKernelImageForDevice : cudaErrorNotSupported;
    return NULL;
}

/* ---- loading ---- */

static bool is_kernel(const struct ptx_function *f) {
    return f->entry && !f->declared_only;
}

/* Each kernel is registered, by an address of its own. */
static bool add_functions(struct library *l) {
    const struct ptx_module *m = vgpu_unit_module(l->binary);
    for (int32_t i = m->function_count; i-- > 0;) {
        const char *name = m->functions[i].name;
        if (!is_kernel(&m->functions[i])) continue;
        struct vgpu_registered *r = calloc(1, sizeof *r + strlen(name) + 1);
        if (!r) return false;
        strcpy(r->name, name);
        r->host = r;
        r->next = l->binary->functions;
        l->binary->functions = r;
        l->kernels++;
    }
    return true;
}

static struct vgpu_binary *make_binary(const void *code, cudaError_t *error) {
    struct vgpu_binary *b = calloc(1, sizeof *b);
    struct acct_fatbin_wrapper *w = calloc(1, sizeof *w);
    unsigned char *own = NULL;
    *error = cudaErrorMemoryAllocation;
    if (b && w) own = take_code(code, error);
    if (!own) {
        free(b);
        free(w);
        return NULL;
    }
    w->magic = ACCT_FATBIN_WRAPPER_MAGIC;
    w->version = 1;
    w->data = (void *)own;
    b->wrapper = w;
    return b;
}

static cudaError_t load(const void *code, struct library **out) {
    cudaError_t e;
    struct vgpu_binary *b = make_binary(code, &e);
    if (!b) return e;
    e = vgpu_unit_read(b);
    if (e) return e; /* the little that it took stays: kernels may never be asked of it */
    pthread_mutex_lock(&lock);
    struct library *l = vgpu_slab_take(&libraries);
    pthread_mutex_unlock(&lock);
    if (!l) return cudaErrorMemoryAllocation;
    l->binary = b;
    l->kernels = 0;
    if (!add_functions(l)) return cudaErrorMemoryAllocation;
    vgpu_unit_join(b);
    *out = l;
    return cudaSuccess;
}

/* The compiler's options ask for what is done anyway or has no meaning here; logs stay empty. */
cudaError_t cudaLibraryLoadData(cudaLibrary_t *out, const void *code, enum cudaJitOption *options, void **values,
                                unsigned int count, enum cudaLibraryOption *library_options, void **library_values,
                                unsigned int library_count) {
    struct library *l;
    (void)library_values;
    if (!out || !code || (count && (!options || !values)) || (library_count && !library_options))
        return cudaErrorInvalidValue;
    cudaError_t e = load(code, &l);
    if (!e) *out = (cudaLibrary_t)l;
    return e;
}

static char *read_file(const char *path) {
    char *text = NULL;
    long bytes = -1;
    FILE *f = fopen(path, "rbe");
    if (f && !fseek(f, 0, SEEK_END)) bytes = ftell(f);
    if (bytes >= 0 && (text = calloc(1, (size_t)bytes + 8))) { /* PTX may come without its final 0 */
        rewind(f);
        if (fread(text, 1, (size_t)bytes, f) != (size_t)bytes) {
            free(text);
            text = NULL;
        }
    }
    if (f) fclose(f);
    return text;
}

cudaError_t cudaLibraryLoadFromFile(cudaLibrary_t *out, const char *path, enum cudaJitOption *options, void **values,
                                    unsigned int count, enum cudaLibraryOption *library_options, void **library_values,
                                    unsigned int library_count) {
    if (!out || !path) return cudaErrorInvalidValue;
    char *code = read_file(path);
    if (!code) return cudaErrorFileNotFound;
    cudaError_t e =
        cudaLibraryLoadData(out, code, options, values, count, library_options, library_values, library_count);
    free(code);
    return e;
}

/* Work that uses it is waited for: its variables' memory goes. */
cudaError_t cudaLibraryUnload(cudaLibrary_t handle) {
    struct library *l = find(handle);
    if (!l) return cudaErrorInvalidResourceHandle;
    cudaError_t e = vgpu_wait_all();
    vgpu_unit_leave(l->binary);
    pthread_mutex_lock(&lock);
    if (vgpu_slab_has(&libraries, l)) vgpu_slab_give(&libraries, l);
    pthread_mutex_unlock(&lock);
    return e;
}

/* ---- what is in it ---- */

static cudaError_t kernel_of(const struct vgpu_registered *r, cudaKernel_t *out) {
    struct vgpu_kernel *k;
    cudaError_t e = vgpu_kernel_find(r->host, &k);
    if (!e) *out = (cudaKernel_t)k;
    return e;
}

cudaError_t cudaLibraryGetKernel(cudaKernel_t *out, cudaLibrary_t handle, const char *name) {
    const struct library *l = find(handle);
    if (!out || !name) return cudaErrorInvalidValue;
    if (!l) return cudaErrorInvalidResourceHandle;
    for (const struct vgpu_registered *r = l->binary->functions; r; r = r->next)
        if (!strcmp(r->name, name)) return kernel_of(r, out);
    return cudaErrorSymbolNotFound;
}

cudaError_t cudaLibraryGetKernelCount(unsigned int *count, cudaLibrary_t handle) {
    const struct library *l = find(handle);
    if (!count) return cudaErrorInvalidValue;
    if (!l) return cudaErrorInvalidResourceHandle;
    *count = (unsigned)l->kernels;
    return cudaSuccess;
}

cudaError_t cudaLibraryEnumerateKernels(cudaKernel_t *out, unsigned int count, cudaLibrary_t handle) {
    const struct library *l = find(handle);
    cudaError_t e = cudaSuccess;
    if (!out) return cudaErrorInvalidValue;
    if (!l) return cudaErrorInvalidResourceHandle;
    const struct vgpu_registered *r = l->binary->functions;
    for (unsigned i = 0; i < count && r && !e; i++, r = r->next) e = kernel_of(r, &out[i]);
    return e;
}

cudaError_t cudaLibraryGetGlobal(void **address, size_t *bytes, cudaLibrary_t handle, const char *name) {
    const struct library *l = find(handle);
    void *at;
    size_t size;
    if (!name) return cudaErrorInvalidValue;
    if (!l) return cudaErrorInvalidResourceHandle;
    cudaError_t e = vgpu_unit_symbol(l->binary, name, &at, &size);
    if (e) return e == cudaErrorInvalidSymbol ? cudaErrorSymbolNotFound : e;
    if (address) *address = at;
    if (bytes) *bytes = size;
    return cudaSuccess;
}

cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t kernel, enum cudaFuncAttribute attribute, int value,
                                            int device) {
    return vgpu_is_device(device) ? cudaFuncSetAttribute(kernel, attribute, value) : cudaErrorInvalidDevice;
}
