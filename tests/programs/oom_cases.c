/* Programs that run out of device memory, each as its first argument says, and print what they saw:
 *
 *   fill BYTES END      blocks of BYTES until there is no memory; END: return exit abort _exit kill
 *   fill-async BYTES    likewise with cudaMallocAsync; then what the pool says
 *   probe               looks for the largest block by halving the distance; then uses it
 *   kinds               every allocating function is asked for 2^50 bytes
 *   loop N              N allocations that must fail, then one that must not
 *   first HOW BYTES DEVICE  a first call that takes BYTES, as HOW says; then 15 GB, and 2 GB that must fail (of a
 * device of 16) errors              last errors before and after allocations that fail
 */
#include <cuda_runtime_api.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TOO_MUCH ((size_t)1 << 50)
#define MOST 4096

static void end_by(const char *how) {
    fflush(stdout);
    if (!strcmp(how, "exit")) exit(1);
    if (!strcmp(how, "abort")) abort();
    if (!strcmp(how, "_exit")) _exit(1);
    if (!strcmp(how, "kill")) kill(getpid(), SIGKILL);
}

static void say_memory(void) {
    size_t left = 0, all = 0;
    int e = cudaMemGetInfo(&left, &all);
    printf("info=%d free=%zu total=%zu\n", e, left, all);
}

/* As a program does that checks each call: the last error is asked for twice. */
static void say_error(int e) {
    int peek = cudaPeekAtLastError(), get = cudaGetLastError(), then = cudaPeekAtLastError();
    printf("error=%d peek=%d get=%d then=%d\n", e, peek, get, then);
}

static cudaError_t take(void **p, size_t bytes, int stream_ordered) {
    return stream_ordered ? cudaMallocAsync(p, bytes, 0) : cudaMalloc(p, bytes);
}

static int fill(size_t bytes, int stream_ordered, const char *end) {
    void *p;
    int n = 0, e = 0;
    cudaFree(0);
    say_memory();
    while (n < MOST && !(e = take(&p, bytes, stream_ordered))) n++;
    printf("blocks=%d\n", n);
    say_error(e);
    say_memory();
    if (stream_ordered) {
        cudaMemPool_t pool;
        unsigned long long reserved = 0, used = 0;
        cudaDeviceGetMemPool(&pool, 0);
        cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved);
        cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used);
        printf("reserved=%llu used=%llu\n", reserved, used);
    }
    end_by(end);
    return e != cudaErrorMemoryAllocation;
}

static int probe(void) {
    size_t low = 0, high = (size_t)1 << 40, fits = 0;
    void *p = NULL;
    int failures = 0;
    while (high - low > 1 << 20) {
        size_t middle = low + (high - low) / 2;
        if (cudaMalloc(&p, middle)) {
            failures++;
            high = middle;
            cudaGetLastError();
        } else {
            cudaFree(p);
            low = fits = middle;
        }
    }
    printf("failures=%d fits=%zu\n", failures, fits);
    return cudaMalloc(&p, fits);
}

static int kinds(void) {
    void *p;
    size_t pitch;
    struct cudaPitchedPtr pitched;
    cudaMemPool_t pool;
    cudaDeviceGetDefaultMemPool(&pool, 0);
    say_error(cudaMalloc(&p, TOO_MUCH));
    say_error(cudaMallocAsync(&p, TOO_MUCH, 0));
    say_error(cudaMallocFromPoolAsync(&p, TOO_MUCH, pool, 0));
    say_error(cudaMallocPitch(&p, &pitch, (size_t)1 << 20, (size_t)1 << 30));
    say_error(cudaMalloc3D(&pitched, (struct cudaExtent){(size_t)1 << 20, (size_t)1 << 15, (size_t)1 << 15}));
    say_error(cudaMallocHost(&p, TOO_MUCH));
    return 0;
}

static int loop(int n) {
    void *p;
    for (int i = 0; i < n; i++)
        if (cudaMalloc(&p, TOO_MUCH) != cudaErrorMemoryAllocation) return 1;
    cudaGetLastError();
    return cudaMalloc(&p, 1 << 20);
}

/* A program that does not look at the first error finds it later. */
static int errors(void) {
    void *p;
    say_error(cudaMalloc(&p, TOO_MUCH));
    say_error(cudaMalloc(NULL, 4));
    int a = cudaMalloc(NULL, 4), b = cudaMalloc(&p, TOO_MUCH);
    say_error(10 * a + b);
    a = cudaMalloc(&p, TOO_MUCH), b = cudaMalloc(&p, 1 << 20);
    say_error(10 * a + b);
    a = cudaMallocAsync(&p, TOO_MUCH, 0), b = cudaMalloc(NULL, 4);
    say_error(10 * a + b);
    return 0;
}

static int capture(void **p, size_t bytes) {
    cudaGraph_t graph;
    cudaStream_t s = cudaStreamPerThread;
    int a = cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal), b = cudaMallocAsync(p, bytes, s);
    return 100 * a + 10 * b + (int)cudaStreamEndCapture(s, &graph);
}

static int from_pool(void **p, size_t bytes, int device) {
    struct cudaMemPoolProps props = {.allocType = cudaMemAllocationTypePinned,
                                     .location = {.type = cudaMemLocationTypeDevice, .id = device}};
    cudaMemPool_t pool;
    int e = cudaMemPoolCreate(&pool, &props);
    return e ? e : (int)cudaMallocFromPoolAsync(p, bytes, pool, 0);
}

static int first_call(const char *how, size_t bytes, int device) {
    struct cudaChannelFormatDesc byte = {8, 0, 0, 0, cudaChannelFormatKindUnsigned};
    cudaArray_t array;
    cudaStream_t stream;
    size_t pitch;
    void *p;
    if (!strcmp(how, "async")) return cudaMallocAsync(&p, bytes, 0);
    if (!strcmp(how, "pool")) return from_pool(&p, bytes, device);
    if (!strcmp(how, "pitch")) return cudaMallocPitch(&p, &pitch, bytes, 2);
    if (!strcmp(how, "array")) return cudaMallocArray(&array, &byte, bytes < 4096 ? bytes : 4096, bytes / 4096, 0);
    if (!strcmp(how, "managed")) return cudaMallocManaged(&p, bytes, cudaMemAttachGlobal);
    if (!strcmp(how, "stream")) return cudaStreamCreate(&stream);
    if (!strcmp(how, "capture")) return capture(&p, bytes);
    if (!strcmp(how, "refused")) return cudaMalloc(&p, TOO_MUCH);
    if (!strcmp(how, "nowhere")) return cudaMalloc(NULL, bytes);
    if (!strcmp(how, "pending")) cudaSetDevice(99);
    return cudaMalloc(&p, bytes);
}

static int first(const char *how, size_t bytes, int device) {
    void *p;
    if (device) cudaSetDevice(device);
    if (strcmp(how, "none")) {
        int e = first_call(how, bytes, device);
        say_memory();
        if (strcmp(how, "pending")) say_error(e);
        e = cudaMalloc(&p, 15000000000);
        say_error(10 * e + (int)cudaMalloc(&p, 2000000000));
    }
    say_memory();
    return 0;
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "", *number = argc > 2 ? argv[2] : "0",
               *end = argc > 3 ? argv[3] : "return";
    if (!strcmp(what, "fill")) return fill(strtoull(number, NULL, 10), 0, end);
    if (!strcmp(what, "fill-async")) return fill(strtoull(number, NULL, 10), 1, end);
    if (!strcmp(what, "probe")) return probe();
    if (!strcmp(what, "kinds")) return kinds();
    if (!strcmp(what, "loop")) return loop(atoi(number));
    if (!strcmp(what, "first") && argc > 4) return first(argv[2], strtoull(end, NULL, 10), atoi(argv[4]));
    if (!strcmp(what, "errors")) return errors();
    fprintf(stderr, "oom_cases: what?\n");
    return 2;
}
