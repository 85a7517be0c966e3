/* One call of each runtime function that the recorder knows, with numbers that differ; prints the addresses that it got
 * as NAME=VALUE, so that the test can look for them. */
#include <cuda_runtime_api.h>
#include <stdint.h>
#include <stdio.h>

#define EXTENT(w, h, d) ((struct cudaExtent){w, h, d})
#define SHOW(name, value) printf("%s=%llu\n", name, (unsigned long long)(uintptr_t)(value))
static char host[1 << 16];
static char symbol[64];

static void memory(cudaStream_t s) {
    void *p;
    size_t pitch;
    struct cudaPitchedPtr p3;
    struct cudaChannelFormatDesc d = {32, 32, 0, 0, cudaChannelFormatKindFloat};
    cudaArray_t array;
    cudaMalloc(&p, 1001), SHOW("malloc", p), cudaFree(p);
    cudaMallocManaged(&p, 1002, cudaMemAttachGlobal), SHOW("managed", p), cudaFree(p);
    cudaMallocHost(&p, 1003), SHOW("mallochost", p), cudaFreeHost(p);
    cudaHostAlloc(&p, 1004, 0), SHOW("hostalloc", p), cudaFreeHost(p);
    cudaMallocAsync(&p, 1005, s), SHOW("async", p), cudaFreeAsync(p, s);
    cudaMallocFromPoolAsync(&p, 1006, 0, s), SHOW("pool", p), cudaFreeAsync(p, 0);
    cudaMallocPitch(&p, &pitch, 700, 11), SHOW("pitch", p), cudaFree(p);
    cudaMalloc3D(&p3, EXTENT(600, 5, 7)), SHOW("malloc3d", p3.ptr), cudaFree(p3.ptr);
    cudaMallocArray(&array, &d, 64, 4, 0), SHOW("array", array), cudaFreeArray(array);
    cudaMalloc3DArray(&array, &d, EXTENT(8, 0, 0), 0), SHOW("array3d", array), cudaFreeArray(array);
    cudaHostRegister(host, sizeof host, 0), SHOW("host", host), cudaHostUnregister(host);
    cudaMalloc(&p, 0), cudaFree(p = NULL),
        cudaFree(0); /* an allocation of nothing, and the usual way to start a context */
    p = (void *)0xdead;
    if (cudaMalloc(&p, (size_t)1 << 50) == cudaSuccess) printf("impossible\n");
    cudaMalloc(&p, 1007); /* never released */
    SHOW("leak", p);
}

static void copies(cudaStream_t s) {
    char *a = host, *b = host + 32768;
    struct cudaMemcpy3DParms p3 = {.srcPtr = {a, 64, 64, 8},
                                   .dstPtr = {b, 128, 64, 8},
                                   .extent = {48, 6, 2},
                                   .kind = cudaMemcpyDeviceToDevice,
                                   .srcPos = {1, 2, 1}};
    cudaMemcpy(a, b, 101, cudaMemcpyHostToDevice);
    cudaMemcpyAsync(a, b, 102, cudaMemcpyDeviceToHost, s);
    cudaMemcpyAsync(a, b, 103, cudaMemcpyDefault, 0);
    cudaMemcpy2D(a, 256, b, 128, 100, 3, cudaMemcpyDeviceToDevice);
    cudaMemcpy2DAsync(a, 512, b, 128, 90, 4, cudaMemcpyHostToHost, s);
    cudaMemcpy3D(&p3);
    cudaMemcpyPeer(a, 1, b, 0, 104);
    cudaMemcpyPeerAsync(a, 0, b, 1, 105, s);
    cudaMemcpyToSymbol(symbol, b, 30, 4, cudaMemcpyHostToDevice);
    cudaMemcpyFromSymbolAsync(a, symbol, 20, 8, cudaMemcpyDeviceToHost, s);
    cudaMemset(a, 7, 106);
    cudaMemsetAsync(a, -1, 107, s);
    cudaMemset2D(a, 256, 3, 99, 5);
    cudaMemset3D((struct cudaPitchedPtr){a, 64, 64, 8}, 4, EXTENT(40, 8, 2));
    SHOW("a", a), SHOW("b", b), SHOW("symbol", symbol);
}

static void nothing(void *arg) {
    void *p;
    (void)arg;
    cudaMalloc(&p, 1); /* inside another call: not the program's own line of calls */
}

static cudaStream_t order(void) {
    cudaStream_t s, t, u;
    cudaEvent_t e, f;
    cudaStreamCreate(&s), cudaStreamCreateWithFlags(&t, cudaStreamNonBlocking), cudaStreamCreateWithPriority(&u, 1, -3);
    cudaEventCreate(&e), cudaEventCreateWithFlags(&f, cudaEventDisableTiming);
    cudaEventRecord(e, s);
    cudaStreamWaitEvent(t, e, 0);
    cudaLaunchHostFunc(s, nothing, NULL);
    cudaDeviceSynchronize(), cudaStreamSynchronize(t), cudaEventSynchronize(e);
    cudaEventDestroy(f), cudaStreamDestroy(u);
    SHOW("s", s), SHOW("t", t), SHOW("u", u), SHOW("e", e), SHOW("f", f);
    return s;
}

int main(void) {
    cudaStream_t s = order();
    memory(s);
    copies(s);
    cudaSetDevice(2);
    cudaDeviceSynchronize();
    return 0;
}
