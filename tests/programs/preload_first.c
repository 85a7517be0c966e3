/* Is CUPTI there before the device's context? Prints whether libcupti is loaded before and after the program's first
 * CUDA call, the one named. */
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static int has_cupti(void) {
    void *handle = dlopen("libcupti.so.13", RTLD_LAZY | RTLD_NOLOAD);
    if (handle) dlclose(handle);
    return handle != NULL;
}

static int first_call(const char *name) {
    size_t a, b;
    int n;
    cublasHandle_t handle;
    if (!strcmp(name, "cudaSetDevice")) return cudaSetDevice(0);
    if (!strcmp(name, "cudaInitDevice")) return cudaInitDevice(0, 0, 0);
    if (!strcmp(name, "cudaMemGetInfo")) return cudaMemGetInfo(&a, &b);
    if (!strcmp(name, "cublasCreate")) return cublasCreate(&handle);
    if (!strcmp(name, "cudaGetDeviceCount")) return cudaGetDeviceCount(&n);
    if (!strcmp(name, "cudaGetDevice")) return cudaGetDevice(&n);
    return -1;
}

int main(int argc, char **argv) {
    int before = has_cupti(), error = first_call(argc > 1 ? argv[1] : "");
    printf("before %d after %d error %d\n", before, has_cupti(), error);
    return 0;
}
