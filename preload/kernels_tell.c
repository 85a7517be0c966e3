#include "preload/kernels.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "acct/fatbin.h"
#include "preload/hook.h"
#include "preload/real.h"
#include "preload/sys.h"

#define MOST_ARGS_BYTES 65536u /* the vendor's limit is 32764 */
#define MOST_PARAMS 8192
#define MOST_MODULES 65536u
#define NO_MODULES UINT32_MAX
#define PATH_BYTES 4096
#define PIECE_BYTES 65536u
#define PIECE_WAIT_MS 200 /* for the collector to make room, once a module */

static _Atomic uint32_t last_kernel, last_module;

/* ---- asking the runtime ------------------------------------------------------------------------------------------ */

typedef int param_info_fn(const void *, size_t, size_t *, size_t *);
typedef int attributes_fn(void *, const void *);
typedef int name_fn(const char **, const void *);
typedef int device_attribute_fn(int *, int, int);
typedef int error_fn(void);

static void *find(void *_Atomic *cache, const char *name) {
    void *f = atomic_load_explicit(cache, memory_order_relaxed);
    if (!f && (f = real_find_quietly(name, "cudart"))) atomic_store_explicit(cache, f, memory_order_relaxed);
    return f;
}
#define FIND(type, name)                  \
    static void *_Atomic cache_of_##type; \
    type *type##_ = (type *)find(&cache_of_##type, name)

/* An error of our questions is not the program's. 1: there was none before. */
static int no_error_yet(void) {
    FIND(error_fn, "cudaPeekAtLastError");
    return error_fn_ && error_fn_() == 0;
}

static void take_back_error(int was_clean) {
    FIND(error_fn, "cudaGetLastError");
    if (was_clean && error_fn_) error_fn_();
}

/* What all versions of cudaFuncAttributes begin with; used in room for any of them. */
struct attributes {
    size_t static_shared_bytes, const_bytes, local_bytes;
    int max_threads, registers;
};

struct scratch {
    struct attributes attributes;
    char room_for_more[1024];
    char path[PATH_BYTES];
    uint32_t params[MOST_PARAMS][2];
};

static struct scratch *map_scratch(void) {
    void *p = mmap(NULL, sizeof(struct scratch), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* Number of parameters, in s->params; -1: not known. */
static int32_t ask_params(const void *function, struct scratch *s, uint32_t *args_bytes) {
    enum { NO_SUCH_PARAMETER = 1 }; /* cudaErrorInvalidValue */
    FIND(param_info_fn, "cudaFuncGetParamInfo");
    uint32_t end = 0;
    for (int32_t i = 0; param_info_fn_ && i < MOST_PARAMS; i++) {
        size_t offset = SIZE_MAX, bytes = SIZE_MAX;
        int rc = param_info_fn_(function, (size_t)i, &offset, &bytes);
        if (rc == NO_SUCH_PARAMETER) {
            *args_bytes = end;
            return i;
        }
        if (rc || offset < end || offset > MOST_ARGS_BYTES || bytes > MOST_ARGS_BYTES - offset) return -1;
        s->params[i][0] = (uint32_t)offset;
        s->params[i][1] = (uint32_t)bytes;
        end = (uint32_t)(offset + bytes);
    }
    return -1;
}

static void ask_attributes(const void *function, struct scratch *s, struct kernel_layout *l) {
    FIND(attributes_fn, "cudaFuncGetAttributes");
    struct attributes *a = &s->attributes;
    l->registers = l->max_threads = ACCT_NULL_I32;
    l->static_shared_bytes = l->local_bytes = ACCT_NULL_I64;
    if (!attributes_fn_ || attributes_fn_(a, function) || !a->max_threads) return;
    l->registers = a->registers;
    l->max_threads = a->max_threads;
    l->static_shared_bytes = (int64_t)a->static_shared_bytes;
    l->local_bytes = (int64_t)a->local_bytes;
}

/* Two threads may ask at once: the answers are the same, and the one that comes first stays. */
static void ask_layout(struct kernel *kn, struct scratch *s) {
    struct kernel_layout *none = NULL, *l;
    uint32_t args_bytes = 0;
    int32_t params = ask_params(kn->function, s, &args_bytes);
    l = kernels_memory(sizeof *l + (params > 0 ? (size_t)params * sizeof *l->param : 0));
    if (!l) return;
    l->params = params;
    l->args_bytes = args_bytes;
    for (int32_t i = 0; i < params; i++) {
        l->param[i].offset = s->params[i][0];
        l->param[i].bytes = s->params[i][1];
    }
    ask_attributes(kn->function, s, l);
    atomic_compare_exchange_strong(&kn->layout, &none, l);
}

static const char *ask_name(const struct kernel *kn) {
    FIND(name_fn, "cudaFuncGetName");
    const char *name = NULL;
    return name_fn_ && name_fn_(&name, kn->function) == 0 ? name : NULL;
}

/* 90 for compute capability 9.0; any PTX will do where it is not known. */
static uint32_t ask_architecture(int device) {
    enum { CC_MAJOR = 75, CC_MINOR = 76 };
    FIND(device_attribute_fn, "cudaDeviceGetAttribute");
    int major = 0, minor = 0;
    if (!device_attribute_fn_ || device_attribute_fn_(&major, CC_MAJOR, device) ||
        device_attribute_fn_(&minor, CC_MINOR, device) || major <= 0)
        return UINT32_MAX;
    return (uint32_t)(10 * major + minor);
}

/* ---- modules ----------------------------------------------------------------------------------------------------- */

static const void *translation_unit(const struct acct_fatbin_wrapper *w, uint32_t i) {
    return w->version == 2 ? w->more[i] : w->data;
}

static uint32_t count_modules(const struct acct_fatbin_wrapper *w) {
    uint32_t n = 0;
    if (!w || w->magic != ACCT_FATBIN_WRAPPER_MAGIC) return NO_MODULES;
    if (w->version != 2) return w->data ? 1 : NO_MODULES;
    while (w->more && n < MOST_MODULES && w->more[n]) n++;
    return n ? n : NO_MODULES;
}

/* Numbers the translation units, once a process: a forked child's trace may use the same. How many there are. */
static uint32_t number_modules(struct kernel_binary *b) {
    uint32_t n = atomic_load_explicit(&b->modules, memory_order_acquire);
    if (n) return n == NO_MODULES ? 0 : n;
    n = count_modules(b->wrapper);
    kernels_number_modules(b, n, n == NO_MODULES ? 0 : atomic_fetch_add(&last_module, n) + 1);
    return n == NO_MODULES ? 0 : n;
}

/* The PTX that a device of this architecture would compile: the highest not above it. 0: none. */
static int choose_ptx(const void *fat, uint32_t architecture, struct acct_fatbin_entry *out) {
    uint64_t bytes = acct_fatbin_bytes(fat, SIZE_MAX), at = 0;
    struct acct_fatbin_entry e;
    int found = 0;
    while (bytes && acct_fatbin_next(fat, bytes, &at, &e) == 1) {
        if (e.kind != ACCT_FATBIN_PTX || e.arch > architecture || (found && e.arch <= out->arch)) continue;
        *out = e;
        found = 1;
    }
    return found;
}

/* Waits a little for room, since this comes once a module only. 0: there is none. */
static int wait_for_room(struct ring_writer *w, size_t record, size_t text, unsigned *ms_left) {
    const struct timespec ms = {0, 1000000};
    while (!ring_has_room(w, record) || !ring_has_blob_room(w, text)) {
        if (!*ms_left) return 0;
        --*ms_left;
        ring_wake(w->control);
        syscall(SYS_nanosleep, &ms, NULL);
    }
    return 1;
}

/* Where the collector has no file to read the text from. What does not fit in time is missing, and the trace says so.
 */
static void tell_pieces(struct ring_writer *w, uint32_t number, const struct acct_fatbin_entry *e, unsigned *ms_left) {
    uint64_t most = w->blob_bytes / 4 < PIECE_BYTES ? w->blob_bytes / 4 : PIECE_BYTES;
    for (uint64_t at = 0; at < e->payload_bytes;) {
        size_t bytes = (size_t)(e->payload_bytes - at < most ? e->payload_bytes - at : most);
        struct acct_ev_module_part *p;
        if (!wait_for_room(w, sizeof *p, bytes, ms_left)) return;
        p = ring_begin(w, ACCT_EV_MODULE_PART, sizeof *p, hook_now());
        if (!p) return;
        p->module = number;
        p->offset = (int64_t)at;
        p->bytes = ring_text(w, e->payload + at, bytes);
        ring_commit(w);
        at += bytes;
    }
}

/* 0: no room. */
static int tell_module(struct ring_writer *w, uint32_t number, const void *fat, uint32_t architecture,
                       struct scratch *s) {
    struct acct_fatbin_entry e = {0};
    unsigned ms_left = PIECE_WAIT_MS;
    uint64_t offset = 0;
    int has_text = choose_ptx(fat, architecture, &e) && e.payload_bytes;
    int in_file = has_text && kernels_file_of(e.payload, e.payload_bytes, s->path, sizeof s->path, &offset) == 0;
    struct acct_ev_module *m;
    if (!wait_for_room(w, sizeof *m, in_file ? strlen(s->path) : 0, &ms_left)) return 0;
    if (!(m = ring_begin(w, ACCT_EV_MODULE, sizeof *m, hook_now()))) return 0;
    m->number = number;
    m->arch = e.arch;
    m->isa = 10 * e.isa_major + e.isa_minor;
    m->flags = e.flags;
    m->hash = has_text ? acct_fatbin_hash(e.payload, e.payload_bytes) : 0;
    m->payload_bytes = has_text ? (int64_t)e.payload_bytes : 0;
    m->uncompressed_bytes = (int64_t)e.uncompressed_bytes;
    m->path = ring_text(w, in_file ? s->path : NULL, in_file ? strlen(s->path) : 0);
    m->file_offset = offset;
    ring_commit(w);
    if (has_text && !in_file) tell_pieces(w, number, &e, &ms_left);
    return 1;
}

/* Of two threads that come at once, one tells. 0: no room. */
static int tell_modules(struct hook_call *k, struct kernel_binary *b, struct scratch *s) {
    uint32_t n = number_modules(b), architecture;
    if (!n || atomic_exchange(&b->told, k->generation) == k->generation) return 1;
    architecture = ask_architecture(k->device);
    for (uint32_t i = 0; i < n; i++)
        if (!tell_module(&k->thread->writer, b->first_module + i, translation_unit(b->wrapper, i), architecture, s)) {
            atomic_store(&b->told, 0);
            return 0;
        }
    return 1;
}

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

static void number_kernel(struct kernel *kn) {
    uint32_t none = 0;
    if (atomic_load_explicit(&kn->number, memory_order_relaxed)) return;
    atomic_compare_exchange_strong(&kn->number, &none, atomic_fetch_add(&last_kernel, 1) + 1);
}

static void fill_modules(struct acct_ev_kernel *r, const struct kernel_binary *b) {
    uint32_t n = b ? atomic_load_explicit(&b->modules, memory_order_acquire) : 0;
    int known = n && n != NO_MODULES;
    r->module = known ? b->first_module : 0;
    r->modules = known ? n : 0;
}

static void fill_layout(struct ring_writer *w, struct acct_ev_kernel *r, const struct kernel_layout *l) {
    int known = l && l->params >= 0;
    r->params = ring_text(w, known ? l->param : NULL, known ? (size_t)l->params * sizeof *l->param : 0);
    r->registers = l ? l->registers : ACCT_NULL_I32;
    r->static_shared_bytes = l ? l->static_shared_bytes : ACCT_NULL_I64;
    r->local_bytes = l ? l->local_bytes : ACCT_NULL_I64;
    r->max_threads = l ? l->max_threads : ACCT_NULL_I32;
}

/* 0: no room; it is left for the next launch. */
static int tell_kernel(struct hook_call *k, struct kernel *kn, const char *name) {
    struct ring_writer *w = &k->thread->writer;
    const struct kernel_layout *l = atomic_load_explicit(&kn->layout, memory_order_acquire);
    size_t length = name ? strlen(name) : 0, params = l && l->params > 0 ? (size_t)l->params * sizeof *l->param : 0;
    struct acct_ev_kernel *r;
    if (length > w->blob_bytes / 4) { /* would never fit: a name that is cut off would be another's */
        name = NULL;
        length = 0;
    }
    if (!ring_has_room(w, sizeof *r) || !ring_has_blob_room(w, length + params + 8)) return 0;
    if (!(r = ring_begin(w, ACCT_EV_KERNEL, sizeof *r, hook_now()))) return 0;
    r->number = atomic_load_explicit(&kn->number, memory_order_relaxed);
    fill_modules(r, kn->binary);
    r->name = ring_text(w, name, length);
    fill_layout(w, r, l);
    ring_commit(w);
    return !((r->name.flags | r->params.flags) & ACCT_TEXT_LOST);
}

/* After a successful call: everything. */
static void tell_whole(struct hook_call *k, struct kernel *kn) {
    struct scratch *s = map_scratch();
    int clean = no_error_yet();
    if (!s) return;
    if (!atomic_load_explicit(&kn->layout, memory_order_acquire)) ask_layout(kn, s);
    const char *name = kn->name ? kn->name : ask_name(kn);
    int told = (!kn->binary || tell_modules(k, kn->binary, s)) && tell_kernel(k, kn, name);
    take_back_error(clean);
    munmap(s, sizeof *s);
    if (!told) return;
    atomic_store_explicit(&kn->told_whole, k->generation, memory_order_relaxed);
    atomic_store_explicit(&kn->told, k->generation, memory_order_relaxed);
}

void kernels_tell(struct hook_call *k, struct kernel *kn) {
    number_kernel(kn);
    if (k->status == 0)
        tell_whole(k, kn);
    else if (tell_kernel(k, kn, kn->name))
        atomic_store_explicit(&kn->told, k->generation, memory_order_relaxed);
}
