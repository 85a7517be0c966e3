/* Helpers of the virtual GPU's tests: buffers on the device, random numbers, and the error bound of a sum of products.
 */
#ifndef VGPU_TESTING_H
#define VGPU_TESTING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#if defined(__SANITIZE_THREAD__)
/* OpenBLAS is not instrumented: its own threads seem to race. */
const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void) {
    return "race:libopenblas\n";
}
#endif

#define OK(call) assert_int_equal(call, 0)

static inline void *device_new(size_t bytes) {
    void *p = NULL;
    OK(cudaMalloc(&p, bytes ? bytes : 1));
    return p;
}

static inline void *device_from(const void *host, size_t bytes) {
    void *p = device_new(bytes);
    OK(cudaMemcpy(p, host, bytes, cudaMemcpyHostToDevice));
    return p;
}

static inline void *device_back(const void *device, size_t bytes) {
    void *p = test_malloc(bytes ? bytes : 1);
    OK(cudaMemcpy(p, device, bytes, cudaMemcpyDeviceToHost));
    return p;
}

/* In [-1, 1), the same in every run. */
static inline double random_value(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(int32_t)(*state >> 32) * 0x1p-31;
}

#endif
