/* cuBLASLt's handles and the functions without operands. A handle is one of cuBLAS's, and those can be used in its
 * place, as the vendor's documentation allows. */
#include "vgpu/vgpu_lt.h"

int vgpu_cublasLt_refuse(void) {
    return vgpu_cublas_refuse();
}

void vgpu_cublasLt_note(int error) {
    (void)error; /* no last error is kept */
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *out) {
    return out ? cublasCreate_v2((cublasHandle_t *)out) : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    return cublasDestroy_v2((cublasHandle_t)handle);
}

cublasStatus_t vgpu_lt_open(cublasLtHandle_t handle, struct vgpu_blas *out) {
    return vgpu_blas_open((cublasHandle_t)handle, out);
}

size_t cublasLtGetVersion(void) {
    return CUBLAS_VERSION;
}

size_t cublasLtGetCudartVersion(void) {
    return cublasGetCudartVersion();
}

cublasStatus_t cublasLtGetProperty(libraryPropertyType type, int *value) {
    return cublasGetProperty(type, value);
}

const char *cublasLtGetStatusName(cublasStatus_t status) {
    return cublasGetStatusName(status);
}

const char *cublasLtGetStatusString(cublasStatus_t status) {
    return cublasGetStatusString(status);
}

/* ---- the cache of heuristics: nothing here takes long enough to be kept; the capacity is remembered ---- */

static _Atomic size_t cache_capacity = 8192;

cublasStatus_t cublasLtHeuristicsCacheGetCapacity(size_t *capacity) {
    if (!capacity) return CUBLAS_STATUS_INVALID_VALUE;
    *capacity = cache_capacity;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtHeuristicsCacheSetCapacity(size_t capacity) {
    cache_capacity = capacity;
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- the log: accepted, and nothing is ever written to it ---- */

cublasStatus_t cublasLtLoggerSetCallback(cublasLtLoggerCallback_t callback) {
    (void)callback;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtLoggerSetFile(FILE *file) {
    (void)file;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtLoggerOpenFile(const char *path) {
    (void)path;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtLoggerSetLevel(int level) {
    return level < 0 || level > 5 ? CUBLAS_STATUS_INVALID_VALUE : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtLoggerSetMask(int mask) {
    (void)mask;
    return CUBLAS_STATUS_SUCCESS;
}

/* The vendor's header declares it without a prototype. */
cublasStatus_t cublasLtLoggerForceDisable(void);
cublasStatus_t cublasLtLoggerForceDisable(void) {
    return CUBLAS_STATUS_SUCCESS;
}
