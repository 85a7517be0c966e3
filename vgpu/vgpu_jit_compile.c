/* vgpu_jit: a kernel's LLVM module, compiled or taken from the cache.
 *
 * Loop mode: one function of the block. Warp mode: two of the warp, one for blocks whose rows are a multiple of 32
 * threads (a warp's tid.x is then a multiple of 32 plus the lane), one for all others; which runs is decided at its
 * entry. The cache's key is the unoptimised module itself with LLVM's version and the processor's features, so whatever
 * changes the code changes the key. */
#include "vgpu/vgpu_jit.h"

#include <llvm-c/Analysis.h>
#include <llvm-c/BitWriter.h>
#include <llvm-c/IRReader.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double milliseconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

/* ---- the module ---- */
/* Distinct metadata nodes cannot be made through the C interface: they come from a text. */
static const char METADATA[] = "!loop = !{!0}\n"
                               "!group = !{!1}\n"
                               "!0 = distinct !{!0, !2}\n"
                               "!1 = distinct !{}\n"
                               "!2 = !{!\"llvm.loop.parallel_accesses\", !1}\n";

static LLVMValueRef named_metadata(LLVMModuleRef m, const char *name) {
    LLVMValueRef v = NULL;
    if (LLVMGetNamedMetadataNumOperands(m, name) == 1) LLVMGetNamedMetadataOperands(m, name, &v);
    return v;
}

static int make_module(struct jit_unit *u) {
    char *message = NULL;
    LLVMMemoryBufferRef text = LLVMCreateMemoryBufferWithMemoryRangeCopy(METADATA, sizeof METADATA - 1, "metadata");
    if (LLVMParseIRInContext(u->context, text, &u->llvm, &message)) {
        snprintf(u->error, u->error_len, "LLVM: %.200s", message);
        LLVMDisposeMessage(message);
        return -1;
    }
    jit_llvm_prepare(u->llvm);
    LLVMSetModuleIdentifier(u->llvm, "kernel", 6);
    LLVMSetSourceFileName(u->llvm, "kernel", 6);
    u->loop_id = named_metadata(u->llvm, "loop");
    u->access_group = named_metadata(u->llvm, "group");
    return 0;
}

/* The device functions called so far, and those that they call. */
static int make_callees(struct jit_unit *u) {
    bool *made = calloc((size_t)u->module->function_count + 1, 1);
    bool more = made;
    if (!made) return -1;
    while (more && !u->failed) {
        more = false;
        for (int32_t k = 0; k < u->module->function_count && !u->failed; k++)
            if (u->callees[k] && !made[k]) {
                made[k] = more = true;
                jit_make_function(u, &u->module->functions[k], u->callees[k]);
            }
    }
    free(made);
    return u->failed ? -1 : 0;
}

static LLVMValueRef add_function(struct jit_unit *u, const char *name, unsigned arguments) {
    LLVMTypeRef p = LLVMPointerType(LLVMInt8TypeInContext(u->context), 0);
    LLVMTypeRef types[2] = {p, LLVMInt32TypeInContext(u->context)};
    LLVMTypeRef t = LLVMFunctionType(LLVMVoidTypeInContext(u->context), types, arguments, false);
    return LLVMAddFunction(u->llvm, name, t);
}

static int make_variant(struct jit_unit *u, LLVMValueRef fn) {
    u->callees = calloc((size_t)u->module->function_count + 1, sizeof *u->callees);
    if (!u->callees) {
        snprintf(u->error, u->error_len, "no memory");
        return -1;
    }
    int rc = jit_make_function(u, u->entry, fn);
    if (!rc) rc = make_callees(u);
    free(u->callees);
    u->callees = NULL;
    return rc;
}

static LLVMValueRef frame_word(struct jit_unit *u, LLVMValueRef frame, size_t offset) {
    LLVMTypeRef i32 = LLVMInt32TypeInContext(u->context), i8 = LLVMInt8TypeInContext(u->context);
    LLVMValueRef at = LLVMConstInt(LLVMInt64TypeInContext(u->context), offset, false);
    LLVMValueRef p = LLVMBuildGEP2(u->builder, i8, frame, &at, 1, "");
    return LLVMBuildLoad2(u->builder, i32, LLVMBuildBitCast(u->builder, p, LLVMPointerType(i32, 0), ""), "");
}

/* Which of the two: rows of a multiple of 32 threads, and ctaid.x * ntid.x + tid.x is a positive int. The other is
 * reached through `slot`: a function and what it is to be called with. */
static void make_choice(struct jit_unit *u, LLVMValueRef fn, LLVMValueRef aligned, LLVMValueRef slot) {
    LLVMTypeRef i32 = LLVMInt32TypeInContext(u->context), i64 = LLVMInt64TypeInContext(u->context);
    LLVMTypeRef p = LLVMPointerType(LLVMInt8TypeInContext(u->context), 0), types[3] = {p, i32, p};
    LLVMTypeRef none = LLVMVoidTypeInContext(u->context), t = LLVMFunctionType(none, types, 2, false);
    LLVMTypeRef other = LLVMFunctionType(none, types, 3, false), pair = LLVMGlobalGetValueType(slot);
    LLVMBuilderRef b = u->builder;
    LLVMBasicBlockRef entry = LLVMAppendBasicBlockInContext(u->context, fn, ""),
                      yes = LLVMAppendBasicBlockInContext(u->context, fn, ""),
                      no = LLVMAppendBasicBlockInContext(u->context, fn, "");
    LLVMValueRef args[3] = {LLVMGetParam(fn, 0), LLVMGetParam(fn, 1)}, n[2], zero = LLVMConstInt(i32, 0, false);
    LLVMPositionBuilderAtEnd(b, entry);
    n[0] = frame_word(u, args[0], offsetof(struct vgpu_frame, block));
    n[1] = frame_word(u, args[0], offsetof(struct vgpu_frame, grid));
    LLVMValueRef low = LLVMBuildAnd(b, n[0], LLVMConstInt(i32, JIT_LANES - 1, false), "");
    LLVMValueRef threads = LLVMBuildMul(b, LLVMBuildZExt(b, n[0], i64, ""), LLVMBuildZExt(b, n[1], i64, ""), "");
    LLVMValueRef few = LLVMBuildICmp(b, LLVMIntULT, threads, LLVMConstInt(i64, UINT64_C(1) << 31, false), "");
    LLVMBuildCondBr(b, LLVMBuildAnd(b, LLVMBuildICmp(b, LLVMIntEQ, low, zero, ""), few, ""), yes, no);
    LLVMPositionBuilderAtEnd(b, yes);
    LLVMSetTailCall(LLVMBuildCall2(b, t, aligned, args, 2, ""), true);
    LLVMBuildRetVoid(b);
    LLVMPositionBuilderAtEnd(b, no);
    LLVMValueRef f = LLVMBuildLoad2(b, p, LLVMBuildStructGEP2(b, pair, slot, 0, ""), "");
    args[2] = LLVMBuildLoad2(b, p, LLVMBuildStructGEP2(b, pair, slot, 1, ""), "");
    f = LLVMBuildBitCast(b, f, LLVMPointerType(other, 0), "");
    LLVMSetTailCall(LLVMBuildCall2(b, other, f, args, 3, ""), true);
    LLVMBuildRetVoid(b);
}

static int make_code(struct jit_unit *u) {
    LLVMTypeRef p = LLVMPointerType(LLVMInt8TypeInContext(u->context), 0);
    u->kernel = add_function(u, "kernel", u->lanes == 1 ? 1 : 2);
    if (u->lanes == 1 || !u->aligned) return make_variant(u, u->kernel);
    LLVMValueRef aligned = add_function(u, "aligned", 2);
    LLVMSetLinkage(aligned, LLVMInternalLinkage);
    unsigned id = LLVMGetEnumAttributeKindForName("noinline", 8);
    LLVMAddAttributeAtIndex(aligned, LLVMAttributeFunctionIndex, LLVMCreateEnumAttribute(u->context, id, 0));
    if (make_variant(u, aligned)) return -1;
    LLVMTypeRef pair = LLVMStructTypeInContext(u->context, (LLVMTypeRef[]){p, p}, 2, false);
    u->slot = LLVMAddGlobal(u->llvm, pair, "slot");
    LLVMSetInitializer(u->slot, LLVMConstNull(pair));
    make_choice(u, u->kernel, aligned, u->slot);
    return 0;
}

/* ---- what has been loaded in this process ---- */
struct loaded {
    struct loaded *next;
    struct jit_hash key;
    void *address;
    struct jit_other *other; /* belongs to the code; NULL: it has none */
};
static struct loaded *all_loaded;
static pthread_mutex_t loaded_lock = PTHREAD_MUTEX_INITIALIZER; /* of the list, and while an object is loaded */

static void *find_loaded(const struct jit_hash *key) {
    for (struct loaded *l = all_loaded; l; l = l->next)
        if (!memcmp(&l->key, key, sizeof *key)) return l->address;
    return NULL;
}

static void fill_slot(struct jit_unit *u, void *slot);

/* Of two threads that compiled the same kernel the first loads it; the other takes that. */
static int load_once(struct jit_unit *u, const struct jit_hash *key, const void *object, size_t bytes, void **address) {
    int rc = 0;
    const char *symbols[2] = {u->symbol, u->slot_symbol};
    void *at[2] = {NULL, NULL};
    pthread_mutex_lock(&loaded_lock);
    *address = find_loaded(key);
    if (!*address) {
        struct loaded *l = malloc(sizeof *l);
        if (l) rc = jit_llvm_load(object, bytes, symbols, at, u->slot ? 2 : 1, u->error, u->error_len);
        if (!l) snprintf(u->error, u->error_len, "no memory"), rc = -1;
        if (!rc) {
            *l = (struct loaded){all_loaded, *key, *address = at[0], u->other};
            if (at[1]) fill_slot(u, at[1]); /* before anyone else finds it */
            all_loaded = l;
        } else
            free(l);
    }
    pthread_mutex_unlock(&loaded_lock);
    return rc;
}

static void hash_module(struct jit_unit *u, struct jit_hash *key) {
    LLVMMemoryBufferRef bitcode = LLVMWriteBitcodeToMemoryBuffer(u->llvm);
    unsigned version = VGPU_JIT_VERSION;
    jit_hash_add(key, jit_llvm_target(), strlen(jit_llvm_target()) + 1);
    jit_hash_add(key, &version, sizeof version);
    jit_hash_add(key, LLVMGetBufferStart(bitcode), LLVMGetBufferSize(bitcode));
    LLVMDisposeMemoryBuffer(bitcode);
}

static int obtain(struct jit_unit *u, void **address, bool *cached) {
    struct jit_hash key = {{0}};
    void *object = NULL;
    size_t bytes = 0;
    hash_module(u, &key);
    pthread_mutex_lock(&loaded_lock);
    *address = find_loaded(&key);
    pthread_mutex_unlock(&loaded_lock);
    *cached = true;
    if (*address) return 0;
    snprintf(u->symbol, sizeof u->symbol, "acct_%016llx%016llx", (unsigned long long)key.word[0],
             (unsigned long long)key.word[1]);
    snprintf(u->slot_symbol, sizeof u->slot_symbol, "%s_other", u->symbol);
    if (!jit_cache_read(&key, &object, &bytes)) {
        int rc = load_once(u, &key, object, bytes, address);
        free(object);
        object = NULL;
        if (!rc) return 0;
    }
    *cached = false;
    LLVMSetValueName2(u->kernel, u->symbol, strlen(u->symbol));
    if (u->slot) LLVMSetValueName2(u->slot, u->slot_symbol, strlen(u->slot_symbol));
    if (jit_llvm_compile(u->llvm, &object, &bytes, u->error, u->error_len)) return -1;
    int rc = load_once(u, &key, object, bytes, address);
    if (!rc) jit_cache_write(&key, object, bytes);
    free(object);
    return rc;
}

static void drop_unit(struct jit_unit *u) {
    if (u->builder) LLVMDisposeBuilder(u->builder);
    if (u->llvm) LLVMDisposeModule(u->llvm);
    if (u->context) LLVMContextDispose(u->context);
    u->builder = NULL, u->llvm = NULL, u->context = NULL;
}

static int verify(struct jit_unit *u) {
    char *message = NULL;
    int rc = LLVMVerifyModule(u->llvm, LLVMReturnStatusAction, &message) ? -1 : 0;
    if (rc) snprintf(u->error, u->error_len, "%s: the code made is not valid: %.160s", u->entry->name, message);
    LLVMDisposeMessage(message);
    return rc;
}

/* A unit with its module made, not compiled. */
static int make_unit(struct jit_unit *u, const struct ptx_module *module, const struct ptx_function *f, unsigned lanes,
                     bool aligned, char *err, size_t err_len) {
    *u = (struct jit_unit){
        .module = module, .entry = f, .error = err, .error_len = err_len, .lanes = lanes, .aligned = aligned};
    jit_local_bytes(module, f, &u->recursive);
    u->context = LLVMContextCreate();
    u->builder = LLVMCreateBuilderInContext(u->context);
    int rc = make_module(u);
    if (!rc) rc = make_code(u);
    return rc ? rc : verify(u);
}

/* ---- the variant for other blocks: made at once, compiled when a block first asks for it ---- */
struct jit_other {
    pthread_mutex_t lock;
    struct jit_unit unit;
    char error[256];
    _Atomic(vgpu_warp_fn *) fn;
};

static void *compile_other(void *context) {
    struct jit_other *o = context;
    void *address = NULL;
    bool cached;
    if (!obtain(&o->unit, &address, &cached)) o->fn = (vgpu_warp_fn *)(uintptr_t)address;
    drop_unit(&o->unit);
    return NULL;
}

/* Called by compiled code, on a fiber: LLVM needs more stack than that has. Should it fail, the kernel ends as by a
 * trap.
 */
static void run_other(struct vgpu_frame *frame, uint32_t warp, struct jit_other *o) {
    if (!o->fn) {
        pthread_t thread;
        pthread_mutex_lock(&o->lock);
        if (!o->fn && o->unit.context && !pthread_create(&thread, NULL, compile_other, o)) pthread_join(thread, NULL);
        pthread_mutex_unlock(&o->lock);
    }
    vgpu_warp_fn *fn = o->fn;
    if (fn)
        fn(frame, warp);
    else
        frame->host->trap(frame, warp * VGPU_WARP);
}

static void fill_slot(struct jit_unit *u, void *slot) {
    uintptr_t pair[2] = {(uintptr_t)run_other, (uintptr_t)u->other};
    memcpy(slot, pair, sizeof pair);
    u->other = NULL; /* it belongs to the code now */
}

static int make_other(struct jit_unit *u) {
    struct jit_other *o = u->other = calloc(1, sizeof *o);
    if (!o) {
        snprintf(u->error, u->error_len, "no memory");
        return -1;
    }
    pthread_mutex_init(&o->lock, NULL);
    int rc = make_unit(&o->unit, u->module, u->entry, JIT_LANES, false, o->error, sizeof o->error);
    if (rc) snprintf(u->error, u->error_len, "%s", o->error);
    return rc;
}

static void drop_other(struct jit_other *o) {
    if (!o) return;
    drop_unit(&o->unit);
    pthread_mutex_destroy(&o->lock);
    free(o);
}

/* ---- vgpu_jit ---- */
static bool calls_anything(const struct ptx_function *f) {
    for (int32_t k = 0; k < f->instr_count; k++)
        if (f->instrs[k].op == PTX_OP_CALL && f->instrs[k].callee < 0) return true;
    return false;
}

/* Of all functions where one may be called through a pointer. */
static bool exchanges(const struct ptx_module *m, const struct ptx_function *f) {
    const unsigned between = PTX_P_BARRIER | PTX_P_WARP;
    bool indirect = calls_anything(f);
    if (f->properties & between) return true;
    for (int32_t k = 0; k < m->function_count && !indirect; k++)
        if (!m->functions[k].entry) indirect = calls_anything(&m->functions[k]);
    for (int32_t k = 0; k < m->function_count && indirect; k++)
        if (!m->functions[k].entry && m->functions[k].properties & between) return true;
    return false;
}

int vgpu_jit(const struct ptx_module *module, const struct ptx_function *f, struct vgpu_code *out, char *err,
             size_t err_len) {
    double start = milliseconds();
    bool recursive, cached = false;
    void *address = NULL;
    *out = (struct vgpu_code){0};
    if (f->error || f->declared_only) {
        snprintf(err, err_len, "%s: %s", f->name, f->error ? f->error : "it has no body");
        return -1;
    }
    if (jit_llvm_init(err, err_len)) return -1;
    struct jit_unit u;
    int rc = make_unit(&u, module, f, exchanges(module, f) ? JIT_LANES : 1, true, err, err_len);
    if (!rc && u.lanes > 1) rc = make_other(&u);
    if (!rc) rc = obtain(&u, &address, &cached);
    drop_other(u.other);
    drop_unit(&u);
    if (rc) return -1;
    if (u.lanes == 1)
        out->block = (vgpu_block_fn *)(uintptr_t)address;
    else
        out->warp = (vgpu_warp_fn *)(uintptr_t)address;
    out->local_bytes = jit_local_bytes(module, f, &recursive);
    out->compile_ms = cached ? 0 : milliseconds() - start;
    return 0;
}
