/* Units: from what the program's constructors registered to PTX, variables on the device, and kernels by their host
 * functions. */
#include "ptx/ptx_fatbin.h"
#include "ptx/ptx_link.h"
#include "vgpu/vgpu_profile.h"
#include "vgpu/vgpu_graph.h"
#include "vgpu/vgpu_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_KERNELS = 1 << 18, BUCKETS = 4096, MAX_TEXTS = 4096 };

struct vgpu_unit {
    struct vgpu_binary *binary;
    bool read;
    cudaError_t error;                /* of reading it */
    unsigned newer;                   /* architecture of PTX that this device is too old for; 0: none */
    struct ptx_module *module;        /* NULL: error */
    void **symbols[VGPU_MAX_DEVICES]; /* address of each of its variables, where placed */
    bool placed[VGPU_MAX_DEVICES];
    bool shared; /* the managed variables have their memory, which is that of all devices */
};

struct entry { /* of the hash of host functions */
    struct entry *next;
    struct vgpu_kernel *kernel;
};

pthread_mutex_t vgpu_run_lock = PTHREAD_MUTEX_INITIALIZER;
static struct vgpu_registry *registry;
static unsigned long removals; /* of the registry, that the hash knows of */
static struct vgpu_slab kernels = {.item_bytes = sizeof(struct vgpu_kernel), .capacity = MAX_KERNELS};
static struct entry *by_host[BUCKETS];

void vgpu_run_registry(struct vgpu_registry *r) {
    registry = r;
}

unsigned vgpu_run_sm(void) {
    return vgpu_profile()->sm;
}

/* ---- PTX ---- */

struct texts {
    char *text[MAX_TEXTS];
    size_t bytes[MAX_TEXTS];
    size_t count;
    bool machine_code; /* some fat binary had nothing else for this device */
    unsigned newer;    /* the lowest architecture of PTX that this device is too old for; 0: none */
};

static void note_newer(struct texts *t, const void *fat, uint64_t bytes) {
    struct acct_fatbin_entry e;
    for (uint64_t at = 0; acct_fatbin_next(fat, bytes, &at, &e) == 1;)
        if (e.kind == ACCT_FATBIN_PTX && e.arch > vgpu_run_sm() && (!t->newer || e.arch < t->newer)) t->newer = e.arch;
}

/* PTX for sm_90a is for that capability alone, for sm_100f for its family. */
static bool suits(unsigned target, char suffix) {
    unsigned sm = vgpu_run_sm();
    return suffix == 'a' ? target == sm : suffix == 'f' ? target / 10 == sm / 10 : true;
}

/* By the text's .target line, which comes before all code. */
static bool text_suits(const char *text) {
    unsigned target;
    char suffix = 0;
    const char *line = strstr(text, ".target");
    return !line || sscanf(line, ".target sm_%u%c", &target, &suffix) < 1 || suits(target, suffix);
}

/* The PTX of the highest architecture that the device can compile; text that suits other devices alone is passed over
 * where there is an older one. 1, 0: none, -1. */
static int choose_text(const void *fat, uint64_t bytes, char **text, size_t *text_bytes, char *why, size_t why_len) {
    struct acct_fatbin_entry entry;
    int found = 0, next;
    for (unsigned sm = vgpu_run_sm(); (next = ptx_fatbin_choose(fat, bytes, sm, &entry, why, why_len)) > 0;) {
        char *one = NULL;
        size_t one_bytes;
        if (ptx_fatbin_text(&entry, &one, &one_bytes, why, why_len)) return found ? found : -1;
        bool fine = text_suits(one);
        if (fine || !found) {
            if (found) free(*text);
            *text = one, *text_bytes = one_bytes;
            found = 1;
        } else {
            free(one);
        }
        if (fine || !entry.arch) break;
        sm = entry.arch - 1;
    }
    return next < 0 && !found ? -1 : found;
}

/* cudaSuccess also where the fat binary has no PTX for this device. */
static cudaError_t add_text(struct texts *t, const void *fat) {
    char why[256] = "no fat binary";
    uint64_t bytes = fat ? acct_fatbin_bytes(fat, SIZE_MAX) : 0;
    size_t n = t->count;
    int found = bytes && n < MAX_TEXTS ? choose_text(fat, bytes, &t->text[n], &t->bytes[n], why, sizeof why) : -1;
    if (!found) {
        t->machine_code = true;
        note_newer(t, fat, bytes);
        return cudaSuccess;
    }
    if (found < 0) {
        vgpu_say("device code of the program cannot be read: %s", why);
        return cudaErrorInvalidKernelImage;
    }
    t->count++;
    return cudaSuccess;
}

/* Version 1 has one fat binary, version 2 one for each translation unit. */
static cudaError_t add_texts(struct texts *t, const struct acct_fatbin_wrapper *w) {
    if (!w || w->magic != ACCT_FATBIN_WRAPPER_MAGIC) return cudaErrorInvalidKernelImage;
    if (w->version == 1) return add_text(t, w->data);
    cudaError_t e = cudaSuccess;
    for (size_t i = 0; !e && w->more && w->more[i]; i++) e = add_text(t, w->more[i]);
    return e;
}

static cudaError_t check_target(const struct ptx_module *m) {
    if (suits(m->sm, m->target_suffix)) return cudaSuccess;
    vgpu_say("PTX of the program is for sm_%u%c alone, not for %s (sm_%u)", m->sm, m->target_suffix,
             vgpu_profile()->name, vgpu_run_sm());
    return cudaErrorNoKernelImageForDevice;
}

static cudaError_t parse(struct vgpu_unit *u, const char *text, size_t bytes) {
    struct ptx_error error = {0};
    if (!ptx_parse(text, bytes, &u->module, &error)) return check_target(u->module);
    vgpu_say("PTX of the program, line %d column %d: %s", error.line, error.column, error.text);
    return cudaErrorInvalidPtx;
}

static cudaError_t read_texts(struct vgpu_unit *u, struct texts *t) {
    char why[256], *linked;
    size_t bytes;
    cudaError_t e = add_texts(t, u->binary->wrapper);
    u->newer = t->newer;
    if (e) return e;
    if (!t->count) return t->machine_code ? cudaErrorNoKernelImageForDevice : cudaErrorInvalidKernelImage;
    if (t->count == 1) return parse(u, t->text[0], t->bytes[0]);
    if (ptx_link((const char *const *)t->text, t->bytes, t->count, &linked, &bytes, why, sizeof why)) {
        vgpu_say("PTX of the program's translation units cannot be linked: %s", why);
        return cudaErrorInvalidPtx;
    }
    e = parse(u, linked, bytes);
    free(linked);
    return e;
}

static cudaError_t read_unit(struct vgpu_unit *u) {
    struct texts *t = calloc(1, sizeof *t);
    cudaError_t e = t ? read_texts(u, t) : cudaErrorMemoryAllocation;
    for (size_t i = 0; t && i < t->count; i++) free(t->text[i]);
    free(t);
    return e;
}

/* The unit of a binary, read at the first call. NULL: no memory. */
static struct vgpu_unit *unit_of(struct vgpu_binary *binary) {
    struct vgpu_unit *u = binary->unit;
    if (!u) {
        u = binary->unit = calloc(1, sizeof *u);
        if (!u) return NULL;
        u->binary = binary;
    }
    if (!u->read) {
        u->error = read_unit(u);
        u->read = u->error != cudaErrorMemoryAllocation;
    }
    return u;
}

/* ---- variables ---- */

static bool on_device(const struct ptx_var *v) {
    return (v->space == PTX_GLOBAL || v->space == PTX_CONST) && !v->external;
}

static struct vgpu_registered *managed_of(const struct vgpu_binary *b, const char *name) {
    for (struct vgpu_registered *r = b->variables; r; r = r->next)
        if (r->managed && !strcmp(r->name, name)) return r;
    return NULL;
}

/* Lays all but the managed variables out in one block; gives each variable its place in it, in symbols. */
static size_t lay_out(const struct vgpu_unit *u, void **symbols) {
    size_t at = 0;
    for (int32_t i = 0; i < u->module->var_count; i++) {
        const struct ptx_var *v = &u->module->vars[i];
        size_t align = v->align ? v->align : 1;
        if (!on_device(v) || managed_of(u->binary, v->name)) continue;
        at = (at + align - 1) / align * align;
        symbols[i] = (void *)(uintptr_t)at;
        at += v->bytes;
    }
    return at;
}

/* On the current device. */
static cudaError_t give_memory(const struct vgpu_unit *u, void **symbols) {
    void *block = NULL;
    size_t bytes = lay_out(u, symbols);
    cudaError_t e = bytes ? cudaMalloc(&block, bytes) : cudaSuccess;
    if (e) return e;
    if (bytes && !vgpu_profile()->dry) memset(block, 0, bytes);
    for (int32_t i = 0; i < u->module->var_count; i++) {
        const struct ptx_var *v = &u->module->vars[i];
        struct vgpu_registered *managed = on_device(v) ? managed_of(u->binary, v->name) : NULL;
        if (managed) {
            if (!u->shared) e = cudaMallocManaged(managed->managed, v->bytes ? v->bytes : 1, cudaMemAttachGlobal);
            if (e) return e;
            symbols[i] = *managed->managed;
        } else if (on_device(v)) {
            symbols[i] = (char *)block + (uintptr_t)symbols[i];
        } else {
            symbols[i] = NULL;
        }
    }
    return cudaSuccess;
}

/* What an initialiser refers to. A function's address is its number in the module, plus one, as in the interpreter. */
static uint64_t address_of(void *const *symbols, const struct ptx_reloc *r) {
    if (r->func >= 0) return (uint64_t)r->func + 1;
    return r->var >= 0 && symbols[r->var] ? (uint64_t)(uintptr_t)symbols[r->var] + (uint64_t)r->offset : 0;
}

/* Managed variables only once, and when dry nothing else: the device's memory is not touched. */
static void initialise(const struct vgpu_unit *u, void *const *symbols) {
    for (int32_t i = 0; i < u->module->var_count; i++) {
        const struct ptx_var *v = &u->module->vars[i];
        if (!on_device(v) || (managed_of(u->binary, v->name) ? u->shared : vgpu_profile()->dry)) continue;
        if (v->init) memcpy(symbols[i], v->init, v->bytes);
        for (uint32_t k = 0; k < v->reloc_count; k++) {
            const struct ptx_reloc *r = &v->relocs[k];
            uint64_t address = address_of(symbols, r);
            memcpy((char *)symbols[i] + r->at, &address, sizeof address);
        }
    }
}

/* Its variables on the current device. */
static cudaError_t place(struct vgpu_unit *u) {
    int device = vgpu_current();
    if (u->error) return u->error;
    if (u->placed[device]) return cudaSuccess;
    if (!u->symbols[device]) u->symbols[device] = calloc((size_t)u->module->var_count + 1, sizeof(void *));
    vgpu_capture_exempt++; /* a capture does not notice */
    cudaError_t e = u->symbols[device] ? give_memory(u, u->symbols[device]) : cudaErrorMemoryAllocation;
    vgpu_capture_exempt--;
    if (e) return e;
    initialise(u, u->symbols[device]);
    u->shared = u->placed[device] = true;
    return cudaSuccess;
}

static bool is_placed(const struct vgpu_unit *u) {
    for (int i = 0; i < VGPU_MAX_DEVICES; i++)
        if (u->placed[i]) return true;
    return false;
}

/* Managed variables go with the last device. */
static void forget(struct vgpu_unit *u, int device) {
    u->placed[device] = false;
    if (!is_placed(u)) u->shared = false;
}

void vgpu_run_reset(int device) {
    if (!registry) return;
    pthread_mutex_lock(&vgpu_run_lock);
    pthread_mutex_lock(&registry->lock);
    for (struct vgpu_binary *b = registry->binaries; b; b = b->next)
        if (b->unit) forget(b->unit, device);
    pthread_mutex_unlock(&registry->lock);
    pthread_mutex_unlock(&vgpu_run_lock);
}

int vgpu_run_init_module(struct vgpu_binary *binary) {
    pthread_mutex_lock(&vgpu_run_lock);
    pthread_mutex_lock(&registry->lock);
    struct vgpu_unit *u = binary->wrapper ? unit_of(binary) : NULL;
    cudaError_t e = u ? place(u) : cudaErrorMemoryAllocation;
    pthread_mutex_unlock(&registry->lock);
    pthread_mutex_unlock(&vgpu_run_lock);
    return (int)e;
}

static cudaError_t symbol_in(struct vgpu_binary *b, const char *name, void **address, size_t *bytes) {
    struct vgpu_unit *u = unit_of(b);
    cudaError_t e = u ? place(u) : cudaErrorMemoryAllocation;
    if (e) return e;
    int32_t var = ptx_global_find(u->module, name);
    void **symbols = u->symbols[vgpu_current()];
    if (var < 0 || !symbols[var]) return cudaErrorInvalidSymbol;
    *address = symbols[var];
    *bytes = u->module->vars[var].bytes;
    return cudaSuccess;
}

/* A managed variable is named by the variable itself, which lies where its pointer in the program points to. */
cudaError_t vgpu_symbol_find(const void *symbol, void **address, size_t *bytes) {
    cudaError_t e = cudaErrorInvalidSymbol;
    if (!registry || !symbol) return e;
    pthread_mutex_lock(&vgpu_run_lock);
    pthread_mutex_lock(&registry->lock);
    for (struct vgpu_binary *b = registry->binaries; b && e == cudaErrorInvalidSymbol; b = b->next)
        for (struct vgpu_registered *r = b->wrapper ? b->variables : NULL; r; r = r->next)
            if (r->host == symbol || (r->managed && *r->managed == symbol)) {
                e = symbol_in(b, r->name, address, bytes);
                break;
            }
    pthread_mutex_unlock(&registry->lock);
    pthread_mutex_unlock(&vgpu_run_lock);
    return e;
}

/* ---- units that come and go by calls ---- */

static void enter(void) {
    pthread_mutex_lock(&vgpu_run_lock);
    pthread_mutex_lock(&registry->lock);
}

static void leave(void) {
    pthread_mutex_unlock(&registry->lock);
    pthread_mutex_unlock(&vgpu_run_lock);
}

cudaError_t vgpu_unit_read(struct vgpu_binary *b) {
    if (!registry) return cudaErrorInitializationError;
    enter();
    struct vgpu_unit *u = unit_of(b);
    cudaError_t e = u ? u->error : cudaErrorMemoryAllocation;
    leave();
    return e;
}

void vgpu_unit_join(struct vgpu_binary *b) {
    enter();
    b->next = registry->binaries;
    registry->binaries = b;
    leave();
}

/* All but managed variables of a device lie in one block, which begins with the lowest of them. */
static void *block_of(const struct vgpu_unit *u, int device) {
    void *first = NULL;
    for (int32_t i = 0; i < u->module->var_count; i++) {
        void *p = u->symbols[device][i];
        if (p && !managed_of(u->binary, u->module->vars[i].name) && (!first || p < first)) first = p;
    }
    return first;
}

void vgpu_unit_leave(struct vgpu_binary *b) {
    enter();
    struct vgpu_unit *u = b->unit;
    for (int i = 0; i < VGPU_MAX_DEVICES; i++) {
        if (!u->placed[i]) continue;
        vgpu_device_release(block_of(u, i));
        forget(u, i);
    }
    b->wrapper = NULL;
    registry->removals++;
    leave();
}

const struct ptx_module *vgpu_unit_module(const struct vgpu_binary *b) {
    return ((const struct vgpu_unit *)b->unit)->module;
}

cudaError_t vgpu_unit_symbol(struct vgpu_binary *b, const char *name, void **address, size_t *bytes) {
    enter();
    cudaError_t e = symbol_in(b, name, address, bytes);
    leave();
    return e;
}

/* ---- kernels ---- */

static struct entry **bucket(const void *host) {
    return &by_host[((uintptr_t)host >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> 52];
}

/* Forgets the host functions of binaries that have gone: their addresses may come again. */
static void forget_removed(void) {
    if (removals == registry->removals) return;
    removals = registry->removals;
    for (size_t i = 0; i < BUCKETS; i++)
        for (struct entry **at = &by_host[i]; *at;) {
            struct entry *entry = *at;
            if (entry->kernel->binary->wrapper) {
                at = &entry->next;
            } else {
                *at = entry->next;
                free(entry);
            }
        }
}

static struct vgpu_kernel *add_kernel(struct vgpu_binary *b, const struct vgpu_registered *r) {
    struct entry *entry = malloc(sizeof *entry);
    struct vgpu_kernel *k = entry ? vgpu_slab_take(&kernels) : NULL;
    if (!k) {
        free(entry);
        return NULL;
    }
    k->binary = b;
    k->host = r->host;
    k->name = r->name;
    k->max_dynamic_shared = -1;
    k->carveout = cudaSharedmemCarveoutDefault;
    *entry = (struct entry){*bucket(r->host), k};
    *bucket(r->host) = entry;
    return k;
}

static cudaError_t find_by_host(const void *host, struct vgpu_kernel **out) {
    forget_removed();
    for (struct entry *e = *bucket(host); e; e = e->next)
        if (e->kernel->host == host) {
            *out = e->kernel;
            return cudaSuccess;
        }
    for (struct vgpu_binary *b = registry->binaries; b; b = b->next)
        for (struct vgpu_registered *r = b->wrapper ? b->functions : NULL; r; r = r->next)
            if (r->host == host) {
                *out = add_kernel(b, r);
                return *out ? cudaSuccess : cudaErrorMemoryAllocation;
            }
    return cudaErrorInvalidDeviceFunction;
}

cudaError_t vgpu_kernel_find(const void *function, struct vgpu_kernel **out) {
    cudaError_t e = cudaSuccess;
    if (!registry || !function) return cudaErrorInvalidDeviceFunction;
    pthread_mutex_lock(&vgpu_run_lock);
    if (vgpu_slab_has(&kernels, function)) {
        *out = (struct vgpu_kernel *)function;
    } else {
        pthread_mutex_lock(&registry->lock);
        e = find_by_host(function, out);
        pthread_mutex_unlock(&registry->lock);
    }
    pthread_mutex_unlock(&vgpu_run_lock);
    return e;
}

static void say_no_image(const struct vgpu_kernel *k, const struct vgpu_unit *u) {
    if (u->module) return; /* check_target has said it */
    if (u->newer)
        vgpu_say("kernel %s: its PTX is for compute_%u, newer than %s (sm_%u): it cannot run on that device; build it "
                 "with -gencode arch=compute_%u,code=compute_%u",
                 k->name, u->newer, vgpu_profile()->name, vgpu_run_sm(), vgpu_run_sm(), vgpu_run_sm());
    else
        vgpu_say("kernel %s has machine code only, no PTX for sm_%u or below: it cannot run here", k->name,
                 vgpu_run_sm());
}

/* The kernel's function in its unit, and what a launch needs to know of it. */
static cudaError_t resolve(struct vgpu_kernel *k) {
    struct vgpu_unit *u = unit_of(k->binary);
    if (!u) return cudaErrorMemoryAllocation;
    if (u->error == cudaErrorNoKernelImageForDevice) say_no_image(k, u);
    if (u->error) return u->error;
    k->unit = u;
    k->f = ptx_function_find(u->module, k->name);
    if (!k->f || !k->f->entry || k->f->declared_only) {
        k->f = NULL;
        return cudaErrorInvalidDeviceFunction;
    }
    if (k->f->error) {
        vgpu_say("kernel %s: %s", k->name, k->f->error);
        return cudaErrorInvalidPtx;
    }
    return vgpu_kernel_study(k, u->module);
}

cudaError_t vgpu_kernel_ready(struct vgpu_kernel *k) {
    pthread_mutex_lock(&vgpu_run_lock);
    if (!k->resolved || (!k->error && !k->unit->placed[vgpu_current()])) {
        pthread_mutex_lock(&registry->lock);
        if (!k->resolved) k->error = k->binary->wrapper ? resolve(k) : cudaErrorInvalidResourceHandle;
        k->resolved = k->error != cudaErrorMemoryAllocation;
        cudaError_t e = k->error ? k->error : place(k->unit);
        pthread_mutex_unlock(&registry->lock);
        pthread_mutex_unlock(&vgpu_run_lock);
        return e;
    }
    cudaError_t e = k->error;
    pthread_mutex_unlock(&vgpu_run_lock);
    return e;
}

void *const *vgpu_kernel_symbols(const struct vgpu_kernel *k) {
    return k->unit->symbols[vgpu_current()];
}

const struct ptx_module *vgpu_kernel_module(const struct vgpu_kernel *k) {
    return k->unit->module;
}
