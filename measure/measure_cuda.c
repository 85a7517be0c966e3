#include "measure/measure_cuda.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* By the names that versions give it, newest first; each by the loader's search, then in a toolkit's usual folder. */
static void *open_library(const char *stem) {
    static const char *const endings[] = {".13", ".12", ""};
    const char *home = getenv("CUDA_HOME");
    char name[4096];
    void *found = NULL;
    for (int where = 0; where < 2; where++)
        for (int i = 0; i < 3 && !found; i++) {
            if (where)
                snprintf(name, sizeof name, "%.3000s/lib64/%s.so%s", home && *home ? home : "/usr/local/cuda", stem,
                         endings[i]);
            else
                snprintf(name, sizeof name, "%s.so%s", stem, endings[i]);
            found = dlopen(name, RTLD_NOW | RTLD_GLOBAL); /* global: cuBLAS finds the same runtime */
        }
    return found;
}

static const char *first_missing;

static void *need(void *library, const char *name) {
    void *f = dlsym(library, name);
    if (!f && !first_missing) first_missing = name;
    return f;
}

/* A function pointer from dlsym's object pointer, as POSIX allows. */
#define CUDA_TAKE(f)       \
    p = need(library, #f); \
    memcpy(&c->f, &p, sizeof p);

static int refuse(const char *library, char *err, size_t err_len) {
    snprintf(err, err_len, "%s has no %s: a newer CUDA toolkit is needed; 13 has it", library, first_missing);
    return -1;
}

static int take_runtime(struct cuda *c, char *err, size_t err_len) {
    void *library = open_library("libcudart"), *p;
    if (!library) {
        snprintf(err, err_len,
                 "libcudart.so is not found: install the CUDA runtime and cuBLAS, or name their folder in "
                 "LD_LIBRARY_PATH; --vgpu needs neither");
        return -1;
    }
#define RUNTIME CUDA_TAKE
#include "measure/measure_functions.def"
    p = need(library, "cudaGetDeviceProperties");
    memcpy(&c->cudaGetDeviceProperties, &p, sizeof p);
    p = dlsym(library, "acctVgpuDevice");
    memcpy(&c->acctVgpuDevice, &p, sizeof p);
    return first_missing ? refuse("libcudart", err, err_len) : 0;
}

static int take_blas(struct cuda *c, char *err, size_t err_len) {
    void *library = open_library("libcublas"), *p;
    if (!library) {
        snprintf(err, err_len, "libcublas.so is not found: install cuBLAS, or name its folder in LD_LIBRARY_PATH");
        return -1;
    }
#define BLAS CUDA_TAKE
#include "measure/measure_functions.def"
    return first_missing ? refuse("libcublas", err, err_len) : 0;
}

/* Needed for fp8 alone. */
static void take_lt(struct cuda *c) {
    void *library = open_library("libcublasLt"), *p;
    if (!library) return;
#define LT CUDA_TAKE
#include "measure/measure_functions.def"
    c->lt = !first_missing;
    first_missing = NULL;
}

int cuda_open(struct cuda *c, char *err, size_t err_len) {
    memset(c, 0, sizeof *c);
    if (take_runtime(c, err, err_len) || take_blas(c, err, err_len)) return -1;
    take_lt(c);
    return 0;
}

cudaError_t cuda_load_kernels(const struct cuda *c, struct cuda_kernels *k) {
    cudaLibrary_t library;
    cudaError_t rc = c->cudaLibraryLoadData(&library, measure_ptx, NULL, NULL, 0, NULL, NULL, 0);
    if (!rc) rc = c->cudaLibraryGetKernel(&k->fill, library, "acct_fill");
    if (!rc) rc = c->cudaLibraryGetKernel(&k->copy, library, "acct_copy");
    if (!rc) rc = c->cudaLibraryGetKernel(&k->nothing, library, "acct_nothing");
    return rc;
}
