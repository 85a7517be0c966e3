/* cuBLAS handles, settings, and what all routines use. */
#include "vgpu/vgpu_blas.h"

#include <ctype.h>
#include <cupti.h>
#include <library_types.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_HANDLES = 1 << 14 };

static struct vgpu_slab handles = {.item_bytes = sizeof(struct vgpu_blas), .capacity = MAX_HANDLES};

int vgpu_cublas_refuse(void) {
    int refused = vgpu_refused;
    switch (refused) {
    case 0:
        return CUBLAS_STATUS_SUCCESS;
    case cudaErrorIllegalAddress:
        return CUBLAS_STATUS_EXECUTION_FAILED;
    default:
        return CUBLAS_STATUS_NOT_INITIALIZED;
    }
}

void vgpu_cublas_note(int error) {
    (void)error; /* cuBLAS keeps no last error */
}

cublasStatus_t vgpu_blas_status(cudaError_t e) {
    switch ((int)e) {
    case cudaSuccess:
        return CUBLAS_STATUS_SUCCESS;
    case cudaErrorMemoryAllocation:
        return CUBLAS_STATUS_ALLOC_FAILED;
    case cudaErrorInvalidValue:
        return CUBLAS_STATUS_INVALID_VALUE;
    default:
        return CUBLAS_STATUS_EXECUTION_FAILED;
    }
}

cublasStatus_t cublasCreate_v2(cublasHandle_t *out) {
    if (!out) return CUBLAS_STATUS_NOT_INITIALIZED;
    pthread_mutex_lock(&vgpu_lock);
    struct vgpu_blas *h = vgpu_slab_take(&handles);
    if (h)
        *h = (struct vgpu_blas){.item = h->item,
                                .device = vgpu_current(),
                                .mode = CUBLAS_POINTER_MODE_HOST,
                                .math = CUBLAS_DEFAULT_MATH,
                                .atomics = CUBLAS_ATOMICS_NOT_ALLOWED,
                                .emulation = {.special = CUDA_EMULATION_SPECIAL_VALUES_SUPPORT_DEFAULT}};
    pthread_mutex_unlock(&vgpu_lock);
    if (!h) return CUBLAS_STATUS_ALLOC_FAILED;
    *out = (cublasHandle_t)h;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t vgpu_blas_open(cublasHandle_t handle, struct vgpu_blas *out) {
    pthread_mutex_lock(&vgpu_lock);
    bool found = vgpu_slab_has(&handles, handle);
    if (found) *out = *(struct vgpu_blas *)handle;
    if (found && (!out->stream || out->stream == cudaStreamLegacy)) out->stream = vgpu_default_stream(out->device);
    pthread_mutex_unlock(&vgpu_lock);
    return found ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_INITIALIZED;
}

/* Runs body with h locked, or answers NOT_INITIALIZED. */
#define WITH_HANDLE(handle, h, body)                        \
    do {                                                    \
        cublasStatus_t e = CUBLAS_STATUS_SUCCESS;           \
        pthread_mutex_lock(&vgpu_lock);                     \
        struct vgpu_blas *h = (struct vgpu_blas *)(handle); \
        if (vgpu_slab_has(&handles, h)) {                   \
            body;                                           \
        } else {                                            \
            e = CUBLAS_STATUS_NOT_INITIALIZED;              \
        }                                                   \
        pthread_mutex_unlock(&vgpu_lock);                   \
        return e;                                           \
    } while (0)

/* Like the device's it waits for the work under way: it releases the workspace that the work uses. */
cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
    struct vgpu_blas h;
    cublasStatus_t found = vgpu_blas_open(handle, &h);
    if (found) return found;
    vgpu_wait_all();
    WITH_HANDLE(handle, mine, vgpu_slab_give(&handles, mine));
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
    WITH_HANDLE(handle, h, {
        if (vgpu_stream_find(stream))
            h->stream = stream;
        else
            e = CUBLAS_STATUS_INVALID_VALUE;
    });
}

cublasStatus_t cublasGetStream_v2(cublasHandle_t handle, cudaStream_t *stream) {
    if (!stream) return CUBLAS_STATUS_INVALID_VALUE;
    WITH_HANDLE(handle, h, *stream = h->stream);
}

cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t mode) {
    if (mode != CUBLAS_POINTER_MODE_HOST && mode != CUBLAS_POINTER_MODE_DEVICE) return CUBLAS_STATUS_INVALID_VALUE;
    WITH_HANDLE(handle, h, h->mode = mode);
}

cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t *mode) {
    if (!mode) return CUBLAS_STATUS_INVALID_VALUE;
    WITH_HANDLE(handle, h, *mode = h->mode);
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
    if ((unsigned)mode & ~0x1fu) return CUBLAS_STATUS_INVALID_VALUE;
    WITH_HANDLE(handle, h, h->math = mode);
}

cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t *mode) {
    if (!mode) return CUBLAS_STATUS_INVALID_VALUE;
    WITH_HANDLE(handle, h, *mode = h->math);
}

cublasStatus_t cublasSetAtomicsMode(cublasHandle_t handle, cublasAtomicsMode_t mode) {
    if (mode != CUBLAS_ATOMICS_NOT_ALLOWED && mode != CUBLAS_ATOMICS_ALLOWED) return CUBLAS_STATUS_INVALID_VALUE;
    WITH_HANDLE(handle, h, h->atomics = mode);
}

cublasStatus_t cublasGetAtomicsMode(cublasHandle_t handle, cublasAtomicsMode_t *mode) {
    if (!mode) return CUBLAS_STATUS_INVALID_VALUE;
    WITH_HANDLE(handle, h, *mode = h->atomics);
}

cublasStatus_t cublasSetSmCountTarget(cublasHandle_t handle, int count) {
    if (count < 0) return CUBLAS_STATUS_INVALID_VALUE;
    WITH_HANDLE(handle, h, h->sm_target = count);
}

cublasStatus_t cublasGetSmCountTarget(cublasHandle_t handle, int *count) {
    if (!count) return CUBLAS_STATUS_INVALID_VALUE;
    WITH_HANDLE(handle, h, *count = h->sm_target);
}

#define EMULATION(Name, T, field, good)                               \
    cublasStatus_t cublasSet##Name(cublasHandle_t handle, T value) {  \
        if (!(good)) return CUBLAS_STATUS_INVALID_VALUE;              \
        WITH_HANDLE(handle, h, h->emulation.field = value);           \
    }                                                                 \
    cublasStatus_t cublasGet##Name(cublasHandle_t handle, T *value) { \
        if (!value) return CUBLAS_STATUS_INVALID_VALUE;               \
        WITH_HANDLE(handle, h, *value = h->emulation.field);          \
    }

EMULATION(EmulationStrategy, cublasEmulationStrategy_t, strategy, (unsigned)value <= CUBLAS_EMULATION_STRATEGY_EAGER)
EMULATION(EmulationSpecialValuesSupport, cudaEmulationSpecialValuesSupport, special, true)
EMULATION(FixedPointEmulationMantissaControl, cudaEmulationMantissaControl, control,
          (unsigned)value <= CUDA_EMULATION_MANTISSA_CONTROL_FIXED)
EMULATION(FixedPointEmulationMaxMantissaBitCount, int, most_bits, value >= 0)
EMULATION(FixedPointEmulationMantissaBitOffset, int, bit_offset, true)

cublasStatus_t cublasSetFixedPointEmulationMantissaBitCountPointer(cublasHandle_t handle, int *bits) {
    WITH_HANDLE(handle, h, h->emulation.bits = bits);
}

cublasStatus_t cublasGetFixedPointEmulationMantissaBitCountPointer(cublasHandle_t handle, int **bits) {
    if (!bits) return CUBLAS_STATUS_INVALID_VALUE;
    WITH_HANDLE(handle, h, *bits = h->emulation.bits);
}

/* OpenBLAS has its own working memory; the program's is left alone. */
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void *workspace, size_t bytes) {
    if ((uintptr_t)workspace % 256 || (bytes && !vgpu_device_can(workspace, bytes))) return CUBLAS_STATUS_INVALID_VALUE;
    WITH_HANDLE(handle, h, (void)h);
}

cublasStatus_t cublasGetVersion_v2(cublasHandle_t handle, int *version) {
    (void)handle;
    if (!version) return CUBLAS_STATUS_INVALID_VALUE;
    *version = CUBLAS_VERSION;
    return CUBLAS_STATUS_SUCCESS;
}

size_t cublasGetCudartVersion(void) {
    return 13000;
}

cublasStatus_t cublasGetProperty(libraryPropertyType type, int *value) {
    const int parts[] = {CUBLAS_VER_MAJOR, CUBLAS_VER_MINOR, CUBLAS_VER_PATCH};
    if (!value || (unsigned)type > PATCH_LEVEL) return CUBLAS_STATUS_INVALID_VALUE;
    *value = parts[type];
    return CUBLAS_STATUS_SUCCESS;
}

static const struct {
    int code;
    const char *name;
} names[] = {
#define VGPU_ERROR(name) {name, #name},
#include "vgpu_cublas_errors.h"
#undef VGPU_ERROR
};

const char *cublasGetStatusName(cublasStatus_t status) {
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].code == (int)status) return names[i].name;
    return "unknown status";
}

const char *cublasGetStatusString(cublasStatus_t status) {
    switch ((int)status) {
    case CUBLAS_STATUS_SUCCESS:
        return "no error";
    case CUBLAS_STATUS_NOT_INITIALIZED:
        return "the handle is not initialized";
    case CUBLAS_STATUS_ALLOC_FAILED:
        return "an allocation failed";
    case CUBLAS_STATUS_INVALID_VALUE:
        return "an argument is out of range";
    case CUBLAS_STATUS_EXECUTION_FAILED:
        return "the device failed to execute the routine";
    case CUBLAS_STATUS_NOT_SUPPORTED:
        return "this combination of arguments is not supported";
    default:
        return cublasGetStatusName(status);
    }
}

/* ---- what the routines use ---- */

/* Names of kernels, made at their first launch that somebody hears of, and kept. */
static const char *kernel_name(const char *routine, const char *variant) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static char made[512][48];
    static size_t count;
    char name[sizeof made[0]];
    size_t i = 0;
    snprintf(name, sizeof name, "vgpu_%s%s", routine + strlen("cublas"), variant);
    for (char *c = name; *c; c++) *c = (char)tolower((unsigned char)*c);
    pthread_mutex_lock(&lock);
    while (i < count && strcmp(made[i], name)) i++;
    if (i == count && count < sizeof made / sizeof *made) strcpy(made[count++], name);
    pthread_mutex_unlock(&lock);
    return i < count ? made[i] : "vgpu_blas";
}

/* cuBLAS launches through the driver, inside the program's call. */
static cudaError_t launch(const struct vgpu_blas *h, const char *kernel, struct vgpu_work *w, struct vgpu_ticket *t) {
    struct vgpu_api_call call;
    cuLaunchKernel_params params = {.hStream = h->stream};
    w->activity = (struct vgpu_activity){.kind = VGPU_ACTIVITY_KERNEL, .name = kernel};
    vgpu_api_enter_launch(&call, 1, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, "cuLaunchKernel", &params, kernel);
    cudaError_t e = vgpu_submit(h->stream, w, t);
    vgpu_api_leave(&call, (int)e);
    return e;
}

cublasStatus_t vgpu_blas_run(const struct vgpu_blas *h, const char *routine, const char *variant,
                             const struct vgpu_work *work, bool wait) {
    struct vgpu_work w = *work;
    struct vgpu_ticket t;
    w.kind = VGPU_WORK_DEVICE;
    w.blas = true;
    w.waited = wait;
    cudaError_t e = atomic_load_explicit(&vgpu_activity_wanted, memory_order_relaxed)
                        ? launch(h, kernel_name(routine, variant), &w, &t)
                        : vgpu_submit(h->stream, &w, &t);
    if (!e && wait) e = vgpu_wait(t);
    return vgpu_blas_status(e);
}

size_t vgpu_scalar_bytes(cudaDataType_t type) {
    switch ((int)type) {
    case CUDA_C_32F:
        return 8;
    case CUDA_C_64F:
        return 16;
    case CUDA_C_8I:
        return 2;
    default:
        return vgpu_element_bytes(type);
    }
}

static void load_scalar(cudaDataType_t type, const void *p, double value[2]) {
    if (type == CUDA_C_32F || type == CUDA_C_64F) {
        cudaDataType_t part = type == CUDA_C_32F ? CUDA_R_32F : CUDA_R_64F;
        value[0] = vgpu_load(part, p, 0);
        value[1] = vgpu_load(part, p, 1);
    } else {
        value[0] = vgpu_load(type, p, 0);
        value[1] = 0;
    }
}

struct vgpu_scalar vgpu_scalar(const struct vgpu_blas *h, const void *p, cudaDataType_t type) {
    double value[2];
    if (h->mode == CUBLAS_POINTER_MODE_DEVICE) return (struct vgpu_scalar){.device = p, .type = type};
    load_scalar(type, p, value);
    return (struct vgpu_scalar){.value = value[0], .imaginary = value[1], .type = type};
}

bool vgpu_scalar_get_complex(const struct vgpu_scalar *s, const char *call, double value[2]) {
    value[0] = s->value;
    value[1] = s->imaginary;
    if (s->device && !vgpu_reach(call, s->device, vgpu_scalar_bytes(s->type))) return false;
    if (s->device) load_scalar(s->type, s->device, value);
    return true;
}

bool vgpu_scalar_get(const struct vgpu_scalar *s, const char *call, double *value) {
    double parts[2];
    if (!vgpu_scalar_get_complex(s, call, parts)) return false;
    *value = parts[0];
    return true;
}

bool vgpu_reach(const char *call, const void *p, uint64_t bytes) {
    if (vgpu_device_can(p, bytes)) return true;
    vgpu_fault(call, p, bytes);
    return false;
}

uint64_t vgpu_matrix_bytes(int64_t rows, int64_t columns, int64_t ld, size_t element) {
    uint64_t n;
    if (rows <= 0 || columns <= 0) return 0;
    if (__builtin_mul_overflow((uint64_t)columns - 1, (uint64_t)ld, &n) ||
        __builtin_add_overflow(n, (uint64_t)rows, &n) || __builtin_mul_overflow(n, element, &n))
        return UINT64_MAX;
    return n;
}

uint64_t vgpu_vector_bytes(int64_t n, int64_t stride, size_t element) {
    return n <= 0 ? 0 : vgpu_matrix_bytes(1, n, stride < 0 ? -stride : stride, element);
}

/* ---- copies with strides ---- */

/* Between host and device; cuBLAS copies through the driver too. stream NULL: the default one, and waits. */
static cudaError_t copy_matrix(size_t width, size_t height, const void *from, size_t from_pitch, void *to,
                               size_t to_pitch, enum cudaMemcpyKind kind, const cudaStream_t *stream) {
    bool up = kind == cudaMemcpyHostToDevice, heard = atomic_load_explicit(&vgpu_activity_wanted, memory_order_relaxed);
    struct vgpu_api_call call;
    CUDA_MEMCPY2D shape = {
        .srcMemoryType = up ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE,
        .srcHost = up ? from : NULL,
        .srcDevice = up ? 0 : (CUdeviceptr)from,
        .srcPitch = from_pitch,
        .dstMemoryType = up ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST,
        .dstHost = up ? NULL : to,
        .dstDevice = up ? (CUdeviceptr)to : 0,
        .dstPitch = to_pitch,
        .WidthInBytes = width,
        .Height = height,
    };
    cuMemcpy2DAsync_v2_params params = {&shape, stream ? *stream : NULL}; /* cuMemcpy2D_v2's begin alike */
    if (heard)
        vgpu_api_enter(&call, 1,
                       stream ? CUPTI_DRIVER_TRACE_CBID_cuMemcpy2DAsync_v2 : CUPTI_DRIVER_TRACE_CBID_cuMemcpy2D_v2,
                       stream ? "cuMemcpy2DAsync_v2" : "cuMemcpy2D_v2", &params);
    cudaError_t e = stream ? cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, height, kind, *stream)
                           : cudaMemcpy2D(to, to_pitch, from, from_pitch, width, height, kind);
    if (heard) vgpu_api_leave(&call, (int)e);
    return e;
}

static cublasStatus_t transfer(int64_t rows, int64_t columns, int64_t element, const void *from, int64_t from_ld,
                               void *to, int64_t to_ld, enum cudaMemcpyKind kind, const cudaStream_t *stream) {
    if (rows < 0 || columns < 0 || element <= 0 || from_ld <= 0 || to_ld <= 0) return CUBLAS_STATUS_INVALID_VALUE;
    if (!rows || !columns) return CUBLAS_STATUS_SUCCESS;
    size_t width = (size_t)(rows * element), to_pitch = (size_t)(to_ld * element),
           from_pitch = (size_t)(from_ld * element);
    cudaError_t e = copy_matrix(width, (size_t)columns, from, from_pitch, to, to_pitch, kind, stream);
    return e == cudaSuccess                  ? CUBLAS_STATUS_SUCCESS
           : e == cudaErrorInvalidPitchValue ? CUBLAS_STATUS_INVALID_VALUE
                                             : CUBLAS_STATUS_MAPPING_ERROR;
}

cublasStatus_t cublasSetMatrix_64(int64_t rows, int64_t cols, int64_t element, const void *a, int64_t lda, void *b,
                                  int64_t ldb) {
    return transfer(rows, cols, element, a, lda, b, ldb, cudaMemcpyHostToDevice, NULL);
}

cublasStatus_t cublasGetMatrix_64(int64_t rows, int64_t cols, int64_t element, const void *a, int64_t lda, void *b,
                                  int64_t ldb) {
    return transfer(rows, cols, element, a, lda, b, ldb, cudaMemcpyDeviceToHost, NULL);
}

cublasStatus_t cublasSetMatrixAsync_64(int64_t rows, int64_t cols, int64_t element, const void *a, int64_t lda, void *b,
                                       int64_t ldb, cudaStream_t stream) {
    return transfer(rows, cols, element, a, lda, b, ldb, cudaMemcpyHostToDevice, &stream);
}

cublasStatus_t cublasGetMatrixAsync_64(int64_t rows, int64_t cols, int64_t element, const void *a, int64_t lda, void *b,
                                       int64_t ldb, cudaStream_t stream) {
    return transfer(rows, cols, element, a, lda, b, ldb, cudaMemcpyDeviceToHost, &stream);
}

/* A vector with a stride is a matrix of one row. */
cublasStatus_t cublasSetVector_64(int64_t n, int64_t element, const void *x, int64_t incx, void *y, int64_t incy) {
    return transfer(1, n, element, x, incx, y, incy, cudaMemcpyHostToDevice, NULL);
}

cublasStatus_t cublasGetVector_64(int64_t n, int64_t element, const void *x, int64_t incx, void *y, int64_t incy) {
    return transfer(1, n, element, x, incx, y, incy, cudaMemcpyDeviceToHost, NULL);
}

cublasStatus_t cublasSetVectorAsync_64(int64_t n, int64_t element, const void *x, int64_t incx, void *y, int64_t incy,
                                       cudaStream_t stream) {
    return transfer(1, n, element, x, incx, y, incy, cudaMemcpyHostToDevice, &stream);
}

cublasStatus_t cublasGetVectorAsync_64(int64_t n, int64_t element, const void *x, int64_t incx, void *y, int64_t incy,
                                       cudaStream_t stream) {
    return transfer(1, n, element, x, incx, y, incy, cudaMemcpyDeviceToHost, &stream);
}
