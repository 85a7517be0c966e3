/* Kernel launches by every route, with fat binaries made by hand: what nvcc's stubs do, with numbers that the test
 * knows. On the recorder's stand-in (support/fake_kernels.c), or on any other runtime that takes what is registered. */
#include <acct/fatbin.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern void **__cudaRegisterFatBinary(void *wrapper);
extern void __cudaUnregisterFatBinary(void **handle);
extern void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int limit,
                                   uint3 *tid, uint3 *bid, dim3 *block, dim3 *grid, int *warp_size);
extern cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host);
extern cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args, size_t shared,
                                      cudaStream_t stream);
extern cudaError_t __cudaLaunchKernel_ptsz(cudaKernel_t kernel, dim3 grid, dim3 block, void **args, size_t shared,
                                           cudaStream_t stream);

/* ---- fat binaries ------------------------------------------------------------------------------------------------ */

struct entry {
    struct acct_fatbin_entry_header head;
    char payload[64];
};
struct fat {
    struct acct_fatbin_header head;
    struct entry entry[3];
};
#define PTX(sm, text)                             \
    {                                             \
        {ACCT_FATBIN_PTX,                         \
         0x0101,                                  \
         sizeof(struct acct_fatbin_entry_header), \
         64,                                      \
         0,                                       \
         0,                                       \
         3,                                       \
         8,                                       \
         sm,                                      \
         0,                                       \
         0,                                       \
         ACCT_FATBIN_64BIT,                       \
         0,                                       \
         0},                                      \
            text                                  \
    }
#define ELF(sm, text)                             \
    {                                             \
        {ACCT_FATBIN_ELF,                         \
         0x0101,                                  \
         sizeof(struct acct_fatbin_entry_header), \
         64,                                      \
         0,                                       \
         0,                                       \
         3,                                       \
         8,                                       \
         sm,                                      \
         0,                                       \
         0,                                       \
         ACCT_FATBIN_64BIT,                       \
         0,                                       \
         0},                                      \
            text                                  \
    }
#define HEAD \
    { ACCT_FATBIN_MAGIC, 1, 16, 3 * sizeof(struct entry) }

/* In the program's file. The device is an sm_90. */
static const struct fat in_file = {HEAD, {PTX(75, "text for 75"), PTX(80, "text for 80"), PTX(100, "text for 100")}};
static const struct fat no_text = {HEAD, {ELF(80, "code"), ELF(90, "code"), PTX(100, "text for 100")}};
static const struct acct_fatbin_wrapper one = {ACCT_FATBIN_WRAPPER_MAGIC, 1, &in_file, NULL};
static const struct acct_fatbin_wrapper bare = {ACCT_FATBIN_WRAPPER_MAGIC, 1, &no_text, NULL};

/* In memory only, two translation units. */
static struct acct_fatbin_wrapper *linked(void) {
    static const struct fat units[2] = {{HEAD, {PTX(80, "first unit"), ELF(80, "x"), ELF(90, "y")}},
                                        {HEAD, {ELF(80, "x"), PTX(90, "second unit"), PTX(80, "older")}}};
    struct fat *copies = malloc(sizeof units);
    const void **more = calloc(3, sizeof *more);
    struct acct_fatbin_wrapper *w = calloc(1, sizeof *w);
    memcpy(copies, units, sizeof units);
    more[0] = &copies[0];
    more[1] = &copies[1];
    *w = (struct acct_fatbin_wrapper){ACCT_FATBIN_WRAPPER_MAGIC, 2, copies, more};
    return w;
}

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

static char host[8]; /* addresses stand for the host functions */
static void **binary[3];

static void name_function(void **handle, const char *h, const char *name) {
    __cudaRegisterFunction(handle, h, (char *)(uintptr_t)name, name, -1, NULL, NULL, NULL, NULL, NULL);
}

static void layout(const void *h, long params, const size_t *pairs) {
    void (*fake)(const void *, long, const size_t *) =
        (void (*)(const void *, long, const size_t *))dlsym(RTLD_DEFAULT, "cudaFakeLayout");
    if (fake) fake(h, params, pairs);
}

__attribute__((constructor)) static void register_all(void) {
    binary[0] = __cudaRegisterFatBinary((void *)(uintptr_t)&one);
    name_function(binary[0], &host[0], "_Z3addPfS_if");
    name_function(binary[0], &host[1], "_Z5emptyv");
    binary[1] = __cudaRegisterFatBinary(linked());
    name_function(binary[1], &host[2], "_Z6linkedPv");
    binary[2] = __cudaRegisterFatBinary((void *)(uintptr_t)&bare);
    name_function(binary[2], &host[3], "_Z7no_textv");
    name_function(binary[2], &host[4], "_Z8unasked5");
    layout(&host[0], 4, (const size_t[]){0, 8, 8, 8, 16, 2, 20, 4});
    layout(&host[1], 0, NULL);
    layout(&host[2], 1, (const size_t[]){0, 8});
    layout(&host[3], 0, NULL);
    layout(&host[4], -1, NULL);
}

static cudaKernel_t kernel(const void *h) {
    cudaKernel_t k = NULL;
    __cudaGetKernel(&k, h);
    return k;
}

static cudaError_t add(void *a, short n, cudaStream_t s) {
    void *b = (void *)0x2222;
    float f = 1.5f;
    void *args[] = {&a, &b, &n, &f};
    return __cudaLaunchKernel(kernel(&host[0]), (dim3){2, 3, 4}, (dim3){5, 6, 7}, args, 1000, s);
}

/* ---- what the arguments ask for ---------------------------------------------------------------------------------- */

static void every_route(void) {
    cudaStream_t s = NULL;
    void *p = (void *)0x3333;
    void *args[] = {&p};
    cudaLaunchAttribute cooperative = {.id = cudaLaunchAttributeCooperative, .val.cooperative = 1};
    cudaLaunchConfig_t config = {{8, 1, 1}, {32, 1, 1}, 64, NULL, &cooperative, 1};
    cudaKernel_t loaded;
    cudaStreamCreate(&s);
    printf("stream=%llu\n", (unsigned long long)(uintptr_t)s);
    add((void *)0x1111, 77, s);
    cudaLaunchKernel(&host[0], (dim3){1, 1, 1}, (dim3){1, 1, 1}, (void *[]){&p, &p, &p, &p}, 0, NULL);
    __cudaLaunchKernel(kernel(&host[1]), (dim3){1, 1, 1}, (dim3){2, 1, 1}, NULL, 0, NULL);
    __cudaLaunchKernel_ptsz(kernel(&host[2]), (dim3){1, 1, 1}, (dim3){3, 1, 1}, args, 0, NULL);
    cudaLaunchKernelExC(&config, &host[2], args);
    cudaLaunchCooperativeKernel(&host[3], (dim3){1, 1, 1}, (dim3){4, 1, 1}, NULL, 0, NULL);
    cudaLaunchKernel(&host[4], (dim3){1, 1, 1}, (dim3){5, 1, 1}, args, 0, NULL);
    cudaLibraryGetKernel(&loaded, NULL, "_Z6loadedv");
    cudaLaunchKernel(loaded, (dim3){1, 1, 1}, (dim3){6, 1, 1}, NULL, 0, NULL);
    printf("error=%d\n", cudaGetLastError());
}

/* A text of `bytes` that is in no file. */
static void large(size_t bytes) {
    struct fat *f = calloc(1, sizeof *f + bytes);
    struct acct_fatbin_wrapper *w = calloc(1, sizeof *w);
    f->head = (struct acct_fatbin_header){ACCT_FATBIN_MAGIC, 1, 16, sizeof f->entry[0].head + bytes};
    f->entry[0].head = (struct acct_fatbin_entry_header){.kind = ACCT_FATBIN_PTX,
                                                         .version = 0x0101,
                                                         .header_bytes = sizeof f->entry[0].head,
                                                         .payload_bytes = bytes,
                                                         .arch = 80};
    for (size_t i = 0; i < bytes; i++) f->entry[0].payload[i] = (char)(i * i >> 8);
    *w = (struct acct_fatbin_wrapper){ACCT_FATBIN_WRAPPER_MAGIC, 1, f, NULL};
    name_function(__cudaRegisterFatBinary(w), &host[6], "_Z5largev");
    layout(&host[6], 0, NULL);
    cudaLaunchKernel(&host[6], (dim3){1, 1, 1}, (dim3){1, 1, 1}, NULL, 0, NULL);
}

static int failing;
static void refused(void) {
    failing = add((void *)0x1111, 1, NULL) != cudaSuccess;
    cudaLaunchKernelExC(NULL, &host[2], NULL);
    cudaLaunchKernel("nobody's", (dim3){9, 1, 1}, (dim3){1, 1, 1}, NULL, 0, NULL);
    unsetenv("FAKE_FAIL");
    add((void *)0x1111, 2, NULL);
}

static int launches;
static void *launch_many(void *unused) {
    (void)unused;
    for (int i = 0; i < launches; i++) add((void *)(uintptr_t)i, (short)i, NULL);
    return NULL;
}

static void threads(int n) {
    pthread_t t[64];
    for (int i = 0; i < n; i++) pthread_create(&t[i], NULL, launch_many, NULL);
    for (int i = 0; i < n; i++) pthread_join(t[i], NULL);
}

/* The first call of all, in a thread with the smallest stack that there is. */
static void small_stack(void) {
    pthread_attr_t attributes;
    pthread_t t;
    launches = 1;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 16384);
    pthread_create(&t, &attributes, launch_many, NULL);
    pthread_join(t, NULL);
}

/* A library that is closed, and another that comes to lie where it was. */
static void reload(void) {
    static const char *const names[] = {"_Z5firstv", "_Z6secondv"};
    for (int i = 0; i < 2; i++) {
        void **handle = __cudaRegisterFatBinary((void *)(uintptr_t)&one);
        name_function(handle, &host[5], names[i]);
        layout(&host[5], 0, NULL);
        __cudaLaunchKernel(kernel(&host[5]), (dim3){1, 1, 1}, (dim3){1, 1, 1}, NULL, 0, NULL);
        __cudaUnregisterFatBinary(handle);
    }
    cudaLaunchKernel(&host[5], (dim3){1, 1, 1}, (dim3){1, 1, 1}, NULL, 0, NULL); /* nobody's now */
}

static void in_a_child(void) {
    add((void *)0x1111, 1, NULL);
    if (fork() == 0) {
        add((void *)0x1111, 2, NULL);
        cudaLaunchKernel(&host[2], (dim3){1, 1, 1}, (dim3){1, 1, 1}, (void *[]){&failing}, 0, NULL);
        exit(0);
    }
    wait(NULL);
    add((void *)0x1111, 3, NULL);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "nothing";
    if (!strcmp(what, "every-route")) every_route();
    if (!strcmp(what, "refused")) refused();
    if (!strcmp(what, "small-stack")) small_stack();
    if (!strcmp(what, "large")) large((size_t)atol(argv[2]));
    if (!strcmp(what, "reload")) reload();
    if (!strcmp(what, "fork")) in_a_child();
    if (!strcmp(what, "threads")) {
        launches = atoi(argv[3]);
        threads(atoi(argv[2]));
    }
    return failing && strcmp(what, "refused") ? 1 : 0;
}
