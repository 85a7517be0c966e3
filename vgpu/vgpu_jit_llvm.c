/* LLVM behind the code generator: passes and machine code for this processor, and ORC, which loads objects.
 * Compilations run on any thread, each in a context of its own; the session is made once and lives as long as the
 * process. */
#include "ptx/ptx_machine.h"
#include "vgpu/vgpu_jit.h"

#include <llvm-c/Analysis.h>
#include <llvm-c/LLJIT.h>
#include <llvm-c/Orc.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>
#include <llvm-c/Transforms/PassBuilder.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    pthread_once_t once;
    pthread_mutex_t lock; /* of the session */
    LLVMTargetRef target;
    char *triple, *cpu, *features, description[6000];
    LLVMOrcLLJITRef session;
    char error[300];
} llvm = {.once = PTHREAD_ONCE_INIT, .lock = PTHREAD_MUTEX_INITIALIZER};

static void note(const char *what, const char *text) {
    snprintf(llvm.error, sizeof llvm.error, "%s: %.200s", what, text ? text : "?");
}

static bool failed(const char *what, LLVMErrorRef e) {
    if (!e) return false;
    char *text = LLVMGetErrorMessage(e);
    note(what, text);
    LLVMDisposeErrorMessage(text);
    return true;
}

/* What compiled code may call where the processor has no instruction for it. The program's own symbols are not looked
 * at: one of the same name must not be taken. */
static void define_symbols(void) {
    static const struct {
        const char *name;
        uintptr_t at;
    } table[] = {
        {"ptx_double_op", (uintptr_t)ptx_double_op},
        {"memcpy", (uintptr_t)memcpy},
        {"memmove", (uintptr_t)memmove},
        {"memset", (uintptr_t)memset},
        {"fma", (uintptr_t)(double (*)(double, double, double))fma},
        {"fmaf", (uintptr_t)(float (*)(float, float, float))fmaf},
        {"rint", (uintptr_t)(double (*)(double))rint},
        {"rintf", (uintptr_t)(float (*)(float))rintf},
        {"floor", (uintptr_t)(double (*)(double))floor},
        {"floorf", (uintptr_t)(float (*)(float))floorf},
        {"ceil", (uintptr_t)(double (*)(double))ceil},
        {"ceilf", (uintptr_t)(float (*)(float))ceilf},
        {"trunc", (uintptr_t)(double (*)(double))trunc},
        {"truncf", (uintptr_t)(float (*)(float))truncf},
        {"sqrt", (uintptr_t)(double (*)(double))sqrt},
        {"sqrtf", (uintptr_t)(float (*)(float))sqrtf},
    };
    enum { N = sizeof table / sizeof *table };
    /* By the pointer's type: LLVM 15 renamed the one it points to. */
    LLVMOrcCSymbolMapPairs pairs = calloc(N, sizeof *pairs);
    if (!pairs) {
        note("symbols", "no memory");
        return;
    }
    for (size_t k = 0; k < N; k++) {
        pairs[k].Name = LLVMOrcLLJITMangleAndIntern(llvm.session, table[k].name);
        pairs[k].Sym.Address = table[k].at;
        pairs[k].Sym.Flags.GenericFlags = LLVMJITSymbolGenericFlagsExported;
    }
    failed("symbols",
           LLVMOrcJITDylibDefine(LLVMOrcLLJITGetMainJITDylib(llvm.session), LLVMOrcAbsoluteSymbols(pairs, N)));
    free(pairs);
}

static void begin(void) {
    char *message = NULL;
    unsigned major = 0, minor = 0, patch = 0;
    if (LLVMInitializeNativeTarget() || LLVMInitializeNativeAsmPrinter() || LLVMInitializeNativeAsmParser()) {
        note("LLVM", "no code generator for this processor");
        return;
    }
    llvm.triple = LLVMGetDefaultTargetTriple();
    llvm.cpu = LLVMGetHostCPUName();
    llvm.features = LLVMGetHostCPUFeatures();
    if (LLVMGetTargetFromTriple(llvm.triple, &llvm.target, &message)) {
        note("LLVM", message);
        LLVMDisposeMessage(message);
        return;
    }
#if LLVM_VERSION_MAJOR >= 16
    LLVMGetVersion(&major, &minor, &patch);
#endif
    snprintf(llvm.description, sizeof llvm.description, "LLVM %s %u.%u.%u %s %s %s", LLVM_VERSION_STRING, major, minor,
             patch, llvm.triple, llvm.cpu, llvm.features);
    LLVMOrcLLJITBuilderRef builder = LLVMOrcCreateLLJITBuilder();
    if (failed("ORC", LLVMOrcCreateLLJIT(&llvm.session, builder)))
        llvm.session = NULL;
    else
        define_symbols();
}

int jit_llvm_init(char *err, size_t err_len) {
    pthread_once(&llvm.once, begin);
    if (llvm.session) return 0;
    snprintf(err, err_len, "%s", llvm.error);
    return -1;
}

const char *jit_llvm_target(void) {
    return llvm.description;
}

static LLVMTargetMachineRef machine(void) {
    return LLVMCreateTargetMachine(llvm.target, llvm.triple, llvm.cpu, llvm.features, LLVMCodeGenLevelDefault,
                                   LLVMRelocPIC, LLVMCodeModelJITDefault);
}

void jit_llvm_prepare(LLVMModuleRef m) {
    LLVMTargetMachineRef t = machine();
    LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(t);
    LLVMSetModuleDataLayout(m, layout);
    LLVMSetTarget(m, llvm.triple);
    LLVMDisposeTargetData(layout);
    LLVMDisposeTargetMachine(t);
}

/* A jump table holds distances of 32 bits, and its section may be mapped further from the code than that. */
static void no_jump_tables(LLVMModuleRef m) {
    LLVMAttributeRef off = LLVMCreateStringAttribute(LLVMGetModuleContext(m), "no-jump-tables", 14, "true", 4);
    for (LLVMValueRef f = LLVMGetFirstFunction(m); f; f = LLVMGetNextFunction(f))
        LLVMAddAttributeAtIndex(f, LLVMAttributeFunctionIndex, off);
}

int jit_llvm_compile(LLVMModuleRef m, void **object, size_t *bytes, char *err, size_t err_len) {
    LLVMTargetMachineRef t = machine();
    LLVMPassBuilderOptionsRef options = LLVMCreatePassBuilderOptions();
    LLVMMemoryBufferRef buffer = NULL;
    char *message = NULL;
    int rc = -1;
    no_jump_tables(m);
    LLVMPassBuilderOptionsSetLoopVectorization(options, true);
    LLVMPassBuilderOptionsSetSLPVectorization(options, true);
    LLVMErrorRef e = LLVMRunPasses(m, "default<O3>", t, options);
#ifdef VGPU_JIT_DUMP /* a file name, for whoever works on the compiler */
    LLVMPrintModuleToFile(m, VGPU_JIT_DUMP, &message);
#endif
    if (e) {
        message = LLVMGetErrorMessage(e);
        snprintf(err, err_len, "LLVM: %.200s", message);
        LLVMDisposeErrorMessage(message);
    } else if (LLVMTargetMachineEmitToMemoryBuffer(t, m, LLVMObjectFile, &message, &buffer)) {
        snprintf(err, err_len, "LLVM: %.200s", message);
        LLVMDisposeMessage(message);
    } else {
        *bytes = LLVMGetBufferSize(buffer);
        *object = malloc(*bytes);
        if (*object) memcpy(*object, LLVMGetBufferStart(buffer), *bytes), rc = 0;
        LLVMDisposeMemoryBuffer(buffer);
    }
    LLVMDisposePassBuilderOptions(options);
    LLVMDisposeTargetMachine(t);
    return rc;
}

int jit_llvm_load(const void *object, size_t bytes, const char *const *symbols, void **addresses, unsigned n, char *err,
                  size_t err_len) {
    LLVMMemoryBufferRef buffer = LLVMCreateMemoryBufferWithMemoryRangeCopy(object, bytes, symbols[0]);
    LLVMOrcJITDylibRef main = LLVMOrcLLJITGetMainJITDylib(llvm.session);
    pthread_mutex_lock(&llvm.lock);
    bool bad = failed("ORC", LLVMOrcLLJITAddObjectFile(llvm.session, main, buffer));
    for (unsigned k = 0; k < n && !bad; k++) {
        LLVMOrcExecutorAddress at = 0;
        bad = failed("ORC", LLVMOrcLLJITLookup(llvm.session, &at, symbols[k])) || !at;
        addresses[k] = (void *)(uintptr_t)at;
    }
    if (bad) snprintf(err, err_len, "%s", llvm.error);
    pthread_mutex_unlock(&llvm.lock);
    return bad ? -1 : 0;
}
