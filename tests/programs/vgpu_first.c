/* A plain CUDA program: one copy of each kind of call that a small training program makes, checked by value. */
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "tests/programs/program_check.h"

#define NEAR(value, wanted)                                                                           \
    do {                                                                                              \
        if (!(fabs((double)(value) - (double)(wanted)) <= 1e-5 * (1 + fabs((double)(wanted))))) {     \
            fprintf(stderr, "%s:%d: %s is %g, not %g\n", __FILE__, __LINE__, #value, (double)(value), \
                    (double)(wanted));                                                                \
            exit(1);                                                                                  \
        }                                                                                             \
    } while (0)

enum { N = 48 };

int main(void) {
    static float a[N * N], b[N * N], c[N * N];
    float *da, *db, *dc, *pinned, dot, one = 1, zero = 0, two = 2, ms;
    cudaStream_t stream;
    cudaEvent_t start, end;
    cublasHandle_t handle;
    for (int i = 0; i < N * N; i++) {
        a[i] = (float)(i % 7) - 3;
        b[i] = (float)(i % 5) - 2;
    }
    CHECK(cudaMalloc((void **)&da, sizeof a));
    CHECK(cudaMalloc((void **)&db, sizeof b));
    CHECK(cudaMalloc((void **)&dc, sizeof c));
    CHECK(cudaHostAlloc((void **)&pinned, sizeof c, cudaHostAllocDefault));
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaEventCreate(&start));
    CHECK(cudaEventCreate(&end));
    CHECK(cublasCreate(&handle));
    CHECK(cublasSetStream(handle, stream));
    CHECK(cudaEventRecord(start, stream));
    CHECK(cudaMemcpyAsync(da, a, sizeof a, cudaMemcpyHostToDevice, stream));
    CHECK(cudaMemcpy(db, b, sizeof b, cudaMemcpyHostToDevice));
    CHECK(cudaMemsetAsync(dc, 0xff, sizeof c, stream)); /* NaN: beta = 0 must not read it */
    CHECK(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_T, N, N, N, &one, da, N, db, N, &zero, dc, N));
    CHECK(cublasSaxpy(handle, N * N, &two, da, 1, dc, 1));
    CHECK(cublasSscal(handle, N * N, &two, dc, 1));
    CHECK(cublasScopy(handle, N, dc, 1, db, 1));
    CHECK(cublasSgeam(handle, CUBLAS_OP_T, CUBLAS_OP_N, N, N, &one, dc, N, &zero, NULL, N, da, N));
    CHECK(cublasSdot(handle, N, da, N, db, 1, &dot));
    CHECK(cudaMemcpyAsync(pinned, da, sizeof c, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaEventRecord(end, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaEventElapsedTime(&ms, start, end));
    double squares = 0;
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            double v = 0;
            for (int k = 0; k < N; k++) v += (double)a[k * N + i] * b[k * N + j];
            v = 2 * (v + 2 * a[j * N + i]);
            NEAR(pinned[i * N + j], v);
            if (!j) squares += v * v;
        }
    NEAR(dot, squares);
    if (!(ms > 0)) return 1;
    CHECK(cublasDestroy(handle));
    CHECK(cudaEventDestroy(start));
    CHECK(cudaEventDestroy(end));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(da));
    CHECK(cudaFree(db));
    CHECK(cudaFree(dc));
    CHECK(cudaFreeHost(pinned));
    CHECK(cudaDeviceSynchronize());
    puts("ok");
    return 0;
}
