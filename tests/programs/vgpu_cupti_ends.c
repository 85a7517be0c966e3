/* CUPTI's stand-in at the edges of a program's life. One case a run: vgpu_cupti_ends CASE; test_vgpu.py says which exit
 * code and output it must have. */
#include <cuda_runtime_api.h>
#include <cupti.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tests/programs/program_check.h"

enum { CALLS = 100 };

static void *library;
static char *device;
static size_t records, buffers;
static _Atomic int stuck;
static int block; /* the next buffer that comes back is kept for ever */

#define CUPTI(f) ((__typeof__(&f))dlsym(library, #f))

static void CUPTIAPI give(uint8_t **buffer, size_t *size, size_t *limit) {
    *size = 10 * sizeof(CUpti_ActivityMemset4);
    *buffer = malloc(*size);
    *limit = 0;
}

static void CUPTIAPI take(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
    CUpti_Activity *r = NULL;
    (void)context, (void)stream, (void)size;
    while (block) {
        stuck = 1;
        pause();
    }
    while (!CUPTI(cuptiActivityGetNextRecord)(buffer, valid, &r)) records++;
    buffers++;
    free(buffer);
}

static void begin(void) {
    library = dlopen("libcupti.so.13", RTLD_NOW);
    CHECK(!library);
    CHECK(CUPTI(cuptiActivityRegisterCallbacks)(give, take));
    CHECK(CUPTI(cuptiActivityEnable)(CUPTI_ACTIVITY_KIND_MEMSET));
    CHECK(cudaMalloc((void **)&device, 64));
}

static void memsets(int n) {
    for (int i = 0; i < n; i++) CHECK(cudaMemset(device, i, 64));
}

static void flush(void) {
    CHECK(CUPTI(cuptiActivityFlushAll)(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED));
    printf("%zu records\n", records);
}

static int missing(void) {
    begin();
    int (*nvtx)(void *) = (int (*)(void *))dlsym(library, "InitializeInjectionNvtx2");
    CHECK(nvtx(NULL)); /* 0 tells NVTX that it failed */
    for (int i = 0; i < 2; i++) {
        CHECK(CUPTI(cuptiActivityEnableDeviceGraph)(1) != CUPTI_ERROR_NOT_SUPPORTED);
        CHECK(CUPTI(cuptiActivityEnable)(CUPTI_ACTIVITY_KIND_MEMORY2) != CUPTI_ERROR_NOT_SUPPORTED);
    }
    CHECK(CUPTI(cuptiGetLastError)() != CUPTI_ERROR_NOT_SUPPORTED);
    CHECK(cudaGetLastError()); /* none of CUDA's */
    return 7;
}

static int unflushed(void) {
    begin();
    memsets(5);
    CHECK(cudaDeviceSynchronize());
    CHECK(buffers != 0);
    return 7;
}

static int flush_in_atexit(void) {
    begin();
    atexit(flush);
    memsets(CALLS);
    CHECK(cudaDeviceSynchronize());
    return 7;
}

static int destructor_flushes;

static __attribute__((destructor)) void late(void) {
    if (destructor_flushes) flush();
}

static int flush_in_destructor(void) {
    begin();
    destructor_flushes = 1;
    memsets(CALLS);
    CHECK(cudaDeviceSynchronize());
    return 7;
}

static void *for_ever(void *arg) {
    (void)arg;
    while (!cudaMemsetAsync(device, 0, 64, cudaStreamPerThread)) continue;
    return NULL;
}

static int exit_amid_records(void) {
    pthread_t t;
    begin();
    for (int i = 0; i < 3; i++) CHECK(pthread_create(&t, NULL, for_ever, NULL));
    memsets(CALLS);
    CHECK(cudaDeviceSynchronize());
    return 7;
}

static int exit_with_stuck_client(void) {
    begin();
    block = 1;
    memsets(CALLS);
    while (!stuck) usleep(1000);
    return 7;
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        int (*run)(void);
    } cases[] = {{"missing", missing},
                 {"unflushed", unflushed},
                 {"flush-in-atexit", flush_in_atexit},
                 {"flush-in-destructor", flush_in_destructor},
                 {"exit-amid-records", exit_amid_records},
                 {"exit-with-stuck-client", exit_with_stuck_client}};
    for (size_t i = 0; argc > 1 && i < sizeof cases / sizeof *cases; i++)
        if (!strcmp(argv[1], cases[i].name)) return cases[i].run();
    return 2;
}
