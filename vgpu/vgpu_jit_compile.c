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

/* ---- the module
 * ------------------------------------------------------------------------------------------------------ */
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

/* Which of the two: rows of a multiple of 32 threads, and ctaid.x * ntid.x + tid.x is a positive int. */
static void make_choice(struct jit_unit *u, LLVMValueRef fn, LLVMValueRef aligned, LLVMValueRef general) {
    LLVMTypeRef i32 = LLVMInt32TypeInContext(u->context);
    LLVMBuilderRef b = u->builder;
    LLVMBasicBlockRef entry = LLVMAppendBasicBlockInContext(u->context, fn, ""),
                      yes = LLVMAppendBasicBlockInContext(u->context, fn, ""),
                      no = LLVMAppendBasicBlockInContext(u->context, fn, "");
    LLVMValueRef args[2] = {LLVMGetParam(fn, 0), LLVMGetParam(fn, 1)}, n[2], zero = LLVMConstInt(i32, 0, false);
    LLVMPositionBuilderAtEnd(b, entry);
    n[0] = frame_word(u, args[0], offsetof(struct vgpu_frame, block));
    n[1] = frame_word(u, args[0], offsetof(struct vgpu_frame, grid));
    LLVMValueRef low = LLVMBuildAnd(b, n[0], LLVMConstInt(i32, JIT_LANES - 1, false), "");
    LLVMTypeRef i64 = LLVMInt64TypeInContext(u->context);
    LLVMValueRef threads = LLVMBuildMul(b, LLVMBuildZExt(b, n[0], i64, ""), LLVMBuildZExt(b, n[1], i64, ""), "");
    LLVMValueRef few = LLVMBuildICmp(b, LLVMIntULT, threads, LLVMConstInt(i64, UINT64_C(1) << 31, false), "");
    LLVMValueRef good = LLVMBuildAnd(b, LLVMBuildICmp(b, LLVMIntEQ, low, zero, ""), few, "");
    LLVMBuildCondBr(b, good, yes, no);
    LLVMTypeRef p = LLVMPointerType(LLVMInt8TypeInContext(u->context), 0), types[2] = {p, i32};
    LLVMTypeRef t = LLVMFunctionType(LLVMVoidTypeInContext(u->context), types, 2, false);
    LLVMPositionBuilderAtEnd(b, yes);
    LLVMSetTailCall(LLVMBuildCall2(b, t, aligned, args, 2, ""), true);
    LLVMBuildRetVoid(b);
    LLVMPositionBuilderAtEnd(b, no);
    LLVMSetTailCall(LLVMBuildCall2(b, t, general, args, 2, ""), true);
    LLVMBuildRetVoid(b);
}

static int make_code(struct jit_unit *u, LLVMValueRef *fn) {
    if (u->lanes == 1) {
        *fn = add_function(u, "kernel", 1);
        return make_variant(u, *fn);
    }
    LLVMValueRef variant[2];
    for (int k = 0; k < 2; k++) {
        u->aligned = !k;
        variant[k] = add_function(u, k ? "general" : "aligned", 2);
        LLVMSetLinkage(variant[k], LLVMInternalLinkage);
        unsigned id = LLVMGetEnumAttributeKindForName("noinline", 8);
        LLVMAddAttributeAtIndex(variant[k], LLVMAttributeFunctionIndex, LLVMCreateEnumAttribute(u->context, id, 0));
        if (make_variant(u, variant[k])) return -1;
    }
    *fn = add_function(u, "kernel", 2);
    make_choice(u, *fn, variant[0], variant[1]);
    return 0;
}

/* ---- what has been loaded in this process
 * ------------------------------------------------------------------------------ */
struct loaded {
    struct loaded *next;
    struct jit_hash key;
    void *address;
};
static struct loaded *all_loaded;
static pthread_mutex_t loaded_lock =
    PTHREAD_MUTEX_INITIALIZER; /* held while one is compiled twice at once: see below */

static void *find_loaded(const struct jit_hash *key) {
    for (struct loaded *l = all_loaded; l; l = l->next)
        if (!memcmp(&l->key, key, sizeof *key)) return l->address;
    return NULL;
}

/* The first of two threads that compiled the same kernel loads it; the other takes that. */
static int load_once(const struct jit_hash *key, const void *object, size_t bytes, const char *symbol, void **address,
                     char *err, size_t err_len) {
    int rc = 0;
    pthread_mutex_lock(&loaded_lock);
    *address = find_loaded(key);
    if (!*address) rc = jit_llvm_load(object, bytes, symbol, address, err, err_len);
    struct loaded *l = rc ? NULL : malloc(sizeof *l);
    if (l) {
        *l = (struct loaded){all_loaded, *key, *address};
        all_loaded = l;
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

static int obtain(struct jit_unit *u, LLVMValueRef fn, void **address, bool *cached) {
    struct jit_hash key = {{0}};
    char symbol[64];
    void *object = NULL;
    size_t bytes = 0;
    hash_module(u, &key);
    pthread_mutex_lock(&loaded_lock);
    *address = find_loaded(&key);
    pthread_mutex_unlock(&loaded_lock);
    *cached = true;
    if (*address) return 0;
    int n = snprintf(symbol, sizeof symbol, "acct_%016llx%016llx", (unsigned long long)key.word[0],
                     (unsigned long long)key.word[1]);
    if (!jit_cache_read(&key, &object, &bytes)) {
        int rc = load_once(&key, object, bytes, symbol, address, u->error, u->error_len);
        free(object);
        object = NULL;
        if (!rc) return 0;
    }
    *cached = false;
    LLVMSetValueName2(fn, symbol, (size_t)n);
    if (jit_llvm_compile(u->llvm, &object, &bytes, u->error, u->error_len)) return -1;
    int rc = load_once(&key, object, bytes, symbol, address, u->error, u->error_len);
    if (!rc) jit_cache_write(&key, object, bytes);
    free(object);
    return rc;
}

/* ---- vgpu_jit
 * ------------------------------------------------------------------------------------------------------------ */
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

static int verify(struct jit_unit *u) {
    char *message = NULL;
    int rc = LLVMVerifyModule(u->llvm, LLVMReturnStatusAction, &message) ? -1 : 0;
    if (rc) snprintf(u->error, u->error_len, "%s: the code made is not valid: %.160s", u->entry->name, message);
    LLVMDisposeMessage(message);
    return rc;
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
    struct jit_unit u = {.module = module, .entry = f, .error = err, .error_len = err_len};
    u.lanes = exchanges(module, f) ? JIT_LANES : 1;
    u.context = LLVMContextCreate();
    u.builder = LLVMCreateBuilderInContext(u.context);
    LLVMValueRef fn = NULL;
    int rc = make_module(&u);
    if (!rc) rc = make_code(&u, &fn);
    if (!rc) rc = verify(&u);
    if (!rc) rc = obtain(&u, fn, &address, &cached);
    LLVMDisposeBuilder(u.builder);
    if (u.llvm) LLVMDisposeModule(u.llvm);
    LLVMContextDispose(u.context);
    if (rc) return -1;
    if (u.lanes == 1)
        out->block = (vgpu_block_fn *)(uintptr_t)address;
    else
        out->warp = (vgpu_warp_fn *)(uintptr_t)address;
    out->local_bytes = jit_local_bytes(module, f, &recursive);
    out->compile_ms = cached ? 0 : milliseconds() - start;
    return 0;
}
