/* A CUDA runtime that has no memory and whose questions fail: what a tool asks after a failed call must not be seen by
 * the program. Made into a libcudart.so.13 by tests/test_oom.py. */
#include <stddef.h>

static __thread int last;
static __thread int questions;

static int fail(int e) {
    last = e;
    return e;
}

int cudaMalloc(void **p, size_t bytes) {
    (void)p;
    return bytes ? fail(2) : 0;
}
int cudaFree(void *p) {
    (void)p;
    return 0;
}
int cudaGetDevice(int *d) {
    *d = 0;
    return 0;
}
int cudaMemGetInfo(size_t *left, size_t *all) {
    (void)left, (void)all;
    questions++;
    return fail(46); /* cudaErrorDevicesUnavailable */
}
int cudaPeekAtLastError(void) {
    return last;
}
int cudaGetLastError(void) {
    int e = last;
    last = 0;
    return e;
}
int cudaTestQuestions(void) {
    return questions;
}
