/* The functions of cuBLASLt that need a device, for programs whose descriptors are the vendor's own: loaded in front of
 * its library, they answer 0, or 15 (CUBLAS_STATUS_NOT_SUPPORTED) where FAKE_FAIL names them. */
#include <stdlib.h>
#include <string.h>

static int status(const char *name) {
    const char *f = getenv("FAKE_FAIL");
    return f && !strcmp(f, name) ? 15 : 0;
}

int cublasLtCreate(void **handle) {
    static int it;
    *handle = &it;
    return status(__func__);
}
int cublasLtDestroy(void *handle) {
    (void)handle;
    return status(__func__);
}
int cublasLtMatmul(void) {
    return status(__func__);
}
int cublasLtMatrixTransform(void) {
    return status(__func__);
}
