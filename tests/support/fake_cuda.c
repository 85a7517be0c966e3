/* A libcudart and libcublas that answer every function, so that the recorder is tested on calls that no machine here
 * can compute: memory comes from malloc, results are left alone, the state of a handle can be set. Built by
 * test_preload.py together with a weak `return 0` for every other function of the headers. FAKE_FAIL=NAME in the
 * environment makes that function fail with code 999 (getenv at each call: this is no library for speed). */
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct extent {
    size_t width, height, depth;
};
struct pitched {
    void *ptr;
    size_t pitch, xsize, ysize;
};

static int fails(const char *name) {
    const char *f = getenv("FAKE_FAIL");
    return f && !strcmp(f, name) ? 999 : 0;
}
#define FAILS \
    if (fails(__func__)) return 999

static __thread int current_device;
static uintptr_t next_handle = 0x7000;

static int give(void **out, size_t n) {
    if (n > (size_t)1 << 40) return 2;
    if (n) *out = malloc(n);
    return 0;
}
static int handle(void **out) {
    *out = (void *)__atomic_add_fetch(&next_handle, 0x10, __ATOMIC_RELAXED);
    return 0;
}

int cudaMalloc(void **p, size_t n) {
    FAILS;
    return give(p, n);
}
int cudaMallocManaged(void **p, size_t n, unsigned f) {
    FAILS;
    (void)f;
    return give(p, n);
}
int cudaMallocHost(void **p, size_t n) {
    FAILS;
    return give(p, n);
}
int cudaHostAlloc(void **p, size_t n, unsigned f) {
    FAILS;
    (void)f;
    return give(p, n);
}
int cudaMallocAsync(void **p, size_t n, void *s) {
    FAILS;
    (void)s;
    return give(p, n);
}
int cudaMallocAsync_ptsz(void **p, size_t n, void *s) {
    FAILS;
    (void)s;
    return give(p, n);
}
int cudaMallocFromPoolAsync(void **p, size_t n, void *pool, void *s) {
    FAILS;
    (void)pool, (void)s;
    return give(p, n);
}
int cudaMallocPitch(void **p, size_t *pitch, size_t w, size_t h) {
    FAILS;
    *pitch = (w + 511) / 512 * 512;
    return give(p, *pitch * h);
}
int cudaMalloc3D(struct pitched *p, struct extent e) {
    FAILS;
    p->pitch = (e.width + 511) / 512 * 512;
    p->xsize = e.width, p->ysize = e.height;
    return give(&p->ptr, p->pitch * e.height * e.depth);
}
int cudaMallocArray(void **a, const void *d, size_t w, size_t h, unsigned f) {
    FAILS;
    (void)d, (void)w, (void)h, (void)f;
    return handle(a);
}
int cudaMalloc3DArray(void **a, const void *d, struct extent e, unsigned f) {
    FAILS;
    (void)d, (void)e, (void)f;
    return handle(a);
}
int cudaFree(void *p) {
    FAILS;
    free(p);
    return 0;
}
int cudaFreeHost(void *p) {
    FAILS;
    free(p);
    return 0;
}
int cudaFreeAsync(void *p, void *s) {
    FAILS;
    (void)s;
    free(p);
    return 0;
}
int cudaFreeAsync_ptsz(void *p, void *s) {
    FAILS;
    (void)s;
    free(p);
    return 0;
}
int cudaStreamCreate(void **s) {
    FAILS;
    return handle(s);
}
int cudaStreamCreateWithFlags(void **s, unsigned f) {
    FAILS;
    (void)f;
    return handle(s);
}
int cudaStreamCreateWithPriority(void **s, unsigned f, int p) {
    FAILS;
    (void)f, (void)p;
    return handle(s);
}
int cudaEventCreate(void **e) {
    FAILS;
    return handle(e);
}
int cudaEventCreateWithFlags(void **e, unsigned f) {
    FAILS;
    (void)f;
    return handle(e);
}
int cudaSetDevice(int d) {
    current_device = d;
    return 0;
}
int cudaGetDevice(int *d) {
    *d = current_device;
    return 0;
}
int cudaGetSymbolAddress(void **p, const void *symbol) {
    *p = (void *)((uintptr_t)symbol + 0x100000);
    return 0;
}
int cudaDeviceGetAttribute(int *v, int a, int d) {
    *v = a == 75 ? 9 : a == 76 ? 0 : a == 16 ? 100 + d : a == 13 ? 1500000 : 0;
    return 0;
}
int cudaGetDeviceProperties(char *p, int d) {
    size_t total = (size_t)(d + 1) << 30;
    memset(p, 0, 1008);
    strcpy(p, "Fake device ");
    p[12] = (char)('0' + d);
    memcpy(p + 288, &total, sizeof total);
    return 0;
}

/* The program's own symbols for slow or calling-back functions. */
int cudaLaunchHostFunc(void *s, void (*fn)(void *), void *arg) {
    FAILS;
    (void)s;
    fn(arg);
    return 0;
}

struct handle_state {
    void *stream;
    int math, pointers;
};
int cublasCreate_v2(struct handle_state **h) {
    void *workspace;
    int (*allocate)(void **, size_t) =
        (int (*)(void **, size_t))dlsym(RTLD_DEFAULT, "cudaMalloc"); /* as libraries do */
    FAILS;
    *h = calloc(1, sizeof **h);
    return allocate ? allocate(&workspace, 4 << 20) : 0;
}
int cublasSetStream_v2(struct handle_state *h, void *s) {
    h->stream = s;
    return 0;
}
int cublasGetStream_v2(struct handle_state *h, void **s) {
    *s = h->stream;
    return 0;
}
int cublasSetMathMode(struct handle_state *h, int m) {
    h->math = m;
    return 0;
}
int cublasGetMathMode(struct handle_state *h, int *m) {
    *m = h->math;
    return 0;
}
int cublasSetPointerMode_v2(struct handle_state *h, int m) {
    h->pointers = m;
    return 0;
}
int cublasGetPointerMode_v2(struct handle_state *h, int *m) {
    *m = h->pointers;
    return 0;
}
/* FAKE_NEST in the environment: by way of cuBLASLt, as cuBLAS does. */
int cublasSgemm_v2(void) {
    typedef int matmul(void *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *,
                       void *, void *, size_t, void *);
    matmul *f = getenv("FAKE_NEST") ? (matmul *)dlsym(RTLD_DEFAULT, "cublasLtMatmul") : NULL;
    return f ? f(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0) : 0;
}
int cublasDgemm_v2(void) {
    return fails("cublasDgemm_v2") ? 14 : 0;
}
int cublasSgemmGroupedBatched(void) {
    return fails("cublasSgemmGroupedBatched") ? 14 : 0;
}
