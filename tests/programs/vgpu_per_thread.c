/* A program built for a default stream per thread calls the _ptsz and _ptds functions. */
#define CUDA_API_PER_THREAD_DEFAULT_STREAM
#include <cuda_runtime_api.h>
#include <sched.h>
#include <stdio.h>

static int go;

static void wait_for(void *flag) {
    while (!__atomic_load_n((int *)flag, __ATOMIC_ACQUIRE)) sched_yield();
}

int main(void) {
    char *d, host[16] = {1};
    cudaStream_t other;
    if (cudaMalloc((void **)&d, 16) || cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking)) return 1;
    if (cudaLaunchHostFunc(0, wait_for, &go) || cudaStreamQuery(0) != cudaErrorNotReady) return 1;
    if (cudaStreamQuery(cudaStreamPerThread) != cudaErrorNotReady) /* 0 is this thread's own stream */
        return 1;
    __atomic_store_n(&go, 1, __ATOMIC_RELEASE);
    if (cudaMemset(d, 5, 16) || cudaMemcpyAsync(host, d, 16, cudaMemcpyDeviceToHost, 0) || cudaStreamSynchronize(0))
        return 1;
    return host[0] == 5 && host[15] == 5 && !cudaMemcpy(d, host, 16, cudaMemcpyHostToDevice) ? 7 : 1;
}
