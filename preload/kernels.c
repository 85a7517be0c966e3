#include "preload/kernels.h"

#include <errno.h>
#include <sys/mman.h>
#include "preload/hook.h"
#include "preload/sys.h"

/* ---- lock -------------------------------------------------------------------------------------------------------- */

/* The process id of its owner: a forked child that finds its parent's there takes it over. Whatever is changed under
 * the lock is published by one store at its end, so that what a vanished owner left half done is not seen. */
static _Atomic uint32_t owner;

static void lock(void) {
    uint32_t self = (uint32_t)sys_getpid(), found = 0;
    while (!atomic_compare_exchange_weak_explicit(&owner, &found, self, memory_order_acquire, memory_order_relaxed)) {
        if (found && found != self) continue; /* of another process: the exchange takes it from there */
        if (found) syscall(SYS_sched_yield);
        found = 0;
    }
}

static void unlock(void) {
    atomic_store_explicit(&owner, 0, memory_order_release);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

#define CHUNK_BYTES (256u << 10)

static unsigned char *chunk;
static size_t chunk_used, chunk_bytes;

static void *map_memory(size_t bytes) {
    int saved = errno;
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    errno = saved;
    return p == MAP_FAILED ? NULL : p;
}

/* Under the lock. */
static void *take_memory(size_t bytes) {
    bytes = (bytes + 15) & ~(size_t)15;
    if (bytes > CHUNK_BYTES / 4) return map_memory(bytes);
    if (chunk_bytes - chunk_used < bytes) {
        unsigned char *p = map_memory(CHUNK_BYTES);
        if (!p) return NULL;
        chunk_used = 0;
        chunk_bytes = CHUNK_BYTES;
        chunk = p;
    }
    chunk_used += bytes;
    return chunk + chunk_used - bytes;
}

void *kernels_memory(size_t bytes) {
    lock();
    void *p = take_memory(bytes);
    unlock();
    return p;
}

/* ---- table ------------------------------------------------------------------------------------------------------- */

/* Open addressing, from an address of a kind to what was noted. A key stays for good, its value may be taken away.
 * Readers need no lock: a slot's value is there before its key, and a table that grew is a new one. */
enum kind { KERNEL, BINARY }; /* host functions and kernel handles are kernels */

struct slot {
    _Atomic uint64_t key; /* 0: free */
    void *_Atomic value;
};
struct table {
    uint64_t mask;
    struct slot slot[];
};

#define FIRST_SLOTS 1024u

static struct table *_Atomic table;
static uint64_t keys; /* under the lock */

/* User addresses are below 2^57 on every machine there is. */
static uint64_t key_of(const void *p, enum kind kind) {
    return (uint64_t)(uintptr_t)p | (uint64_t)(kind + 1) << 60;
}

static uint64_t hash(uint64_t key) {
    key *= 0x9e3779b97f4a7c15u;
    return key ^ key >> 32;
}

/* The slot of the key, or the free one where it belongs. */
static struct slot *slot_of(struct table *t, uint64_t key) {
    for (uint64_t i = hash(key);; i++) {
        struct slot *s = &t->slot[i & t->mask];
        uint64_t found = atomic_load_explicit(&s->key, memory_order_acquire);
        if (found == key || !found) return s;
    }
}

static void *look_up(const void *p, enum kind kind) {
    struct table *t = atomic_load_explicit(&table, memory_order_acquire);
    struct slot *s = t ? slot_of(t, key_of(p, kind)) : NULL;
    if (!s || atomic_load_explicit(&s->key, memory_order_acquire) != key_of(p, kind)) return NULL;
    return atomic_load_explicit(&s->value, memory_order_acquire);
}

static void fill(struct slot *s, uint64_t key, void *value) {
    atomic_store_explicit(&s->value, value, memory_order_release);
    atomic_store_explicit(&s->key, key, memory_order_release);
}

/* A table of twice the size with what is still of use. The old one is left to readers that are in it. */
static struct table *grow(struct table *old) {
    uint64_t slots = old ? 2 * (old->mask + 1) : FIRST_SLOTS;
    struct table *t = map_memory(sizeof *t + slots * sizeof *t->slot);
    if (!t) return NULL;
    t->mask = slots - 1;
    keys = 0;
    for (uint64_t i = 0; old && i <= old->mask; i++) {
        uint64_t key = atomic_load_explicit(&old->slot[i].key, memory_order_relaxed);
        void *value = atomic_load_explicit(&old->slot[i].value, memory_order_relaxed);
        if (!key || !value) continue;
        fill(slot_of(t, key), key, value);
        keys++;
    }
    atomic_store_explicit(&table, t, memory_order_release);
    return t;
}

/* Under the lock. */
static void put(const void *p, enum kind kind, void *value) {
    struct table *t = atomic_load_explicit(&table, memory_order_relaxed);
    if (!t || keys * 4 >= (t->mask + 1) * 3) t = grow(t);
    if (!t) return; /* no memory: not noted */
    struct slot *s = slot_of(t, key_of(p, kind));
    keys += !atomic_load_explicit(&s->key, memory_order_relaxed);
    fill(s, key_of(p, kind), value);
}

static void take_away(const void *p, enum kind kind, const void *value) {
    struct table *t = atomic_load_explicit(&table, memory_order_relaxed);
    struct slot *s = t ? slot_of(t, key_of(p, kind)) : NULL;
    if (s && atomic_load_explicit(&s->value, memory_order_relaxed) == value)
        atomic_store_explicit(&s->value, NULL, memory_order_release);
}

/* ---- notes ------------------------------------------------------------------------------------------------------- */

static struct kernel *adopted; /* kernels that nobody registered; under the lock */

void kernels_note_binary(const void *handle, const void *wrapper) {
    lock();
    struct kernel_binary *b = take_memory(sizeof *b);
    if (b) {
        b->wrapper = wrapper;
        put(handle, BINARY, b);
    }
    unlock();
}

void kernels_note_function(const void *handle, const void *host, const char *name) {
    struct kernel_binary *b = look_up(handle, BINARY);
    lock();
    struct kernel *kn = take_memory(sizeof *kn);
    if (kn) {
        kn->function = host;
        kn->name = name;
        kn->binary = b;
        kn->next = b ? b->kernels : NULL;
        if (b) b->kernels = kn;
        put(host, KERNEL, kn);
    }
    unlock();
}

/* A handle of the same number may have been another kernel's, whose library has gone. */
void kernels_note_handle(const void *kernel_handle, const void *host) {
    struct kernel *kn = look_up(host, KERNEL);
    if (!kn || !kernel_handle || look_up(kernel_handle, KERNEL) == kn) return;
    lock();
    if (kn->handle) take_away(kn->handle, KERNEL, kn);
    kn->handle = kernel_handle;
    put(kernel_handle, KERNEL, kn);
    unlock();
}

/* Under the lock. */
static void forget(struct kernel *first) {
    for (struct kernel *kn = first; kn; kn = kn->next) {
        take_away(kn->function, KERNEL, kn);
        if (kn->handle) take_away(kn->handle, KERNEL, kn);
    }
}

void kernels_forget_binary(const void *handle) {
    struct kernel_binary *b = look_up(handle, BINARY);
    if (!b) return;
    lock();
    forget(b->kernels);
    take_away(handle, BINARY, b);
    unlock();
}

void kernels_forget_handles(void) {
    lock();
    forget(adopted);
    adopted = NULL;
    unlock();
}

void kernels_number_modules(struct kernel_binary *b, uint32_t modules, uint32_t first) {
    lock();
    if (!atomic_load_explicit(&b->modules, memory_order_relaxed)) {
        b->first_module = first;
        atomic_store_explicit(&b->modules, modules, memory_order_release);
    }
    unlock();
}

struct kernel *kernels_find(const void *function) {
    return look_up(function, KERNEL);
}

struct kernel *kernels_adopt(const void *function) {
    struct kernel *kn = kernels_find(function);
    if (kn || !function) return kn;
    lock();
    kn = look_up(function, KERNEL);
    if (!kn && (kn = take_memory(sizeof *kn))) {
        kn->function = function;
        kn->next = adopted;
        adopted = kn;
        put(function, KERNEL, kn);
    }
    unlock();
    return kn;
}
