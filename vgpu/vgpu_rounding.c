/* What a product makes of its fp32 operands: as the program allows, where the device has the unit. */
#include "vgpu/vgpu_blas.h"
#include "vgpu/vgpu_profile.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_WITH_BF16 = 80 }; /* and tf32; matrix units for fp16 are in all devices of the table */

static int tf32_override; /* NVIDIA_TF32_OVERRIDE: 0 forbids tf32, 1 makes it the default; -1: neither */
static pthread_once_t override_read = PTHREAD_ONCE_INIT;

static void read_override(void) {
    const char *text = getenv("NVIDIA_TF32_OVERRIDE");
    tf32_override = text && !strcmp(text, "0") ? 0 : text && !strcmp(text, "1") ? 1 : -1;
}

static enum vgpu_rounding asked_for(cublasComputeType_t compute, cublasMath_t math) {
    int mode = (int)math & ~CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
    pthread_once(&override_read, read_override);
    switch ((int)compute) {
    case CUBLAS_COMPUTE_32F_FAST_16F:
        return VGPU_ROUND_FP16;
    case CUBLAS_COMPUTE_32F_FAST_16BF:
        return VGPU_ROUND_BF16;
    case CUBLAS_COMPUTE_32F_FAST_TF32:
        return tf32_override ? VGPU_ROUND_TF32 : VGPU_ROUND_NONE;
    case CUBLAS_COMPUTE_32F:
        break;
    default:
        return VGPU_ROUND_NONE;
    }
    if (mode == 1) return VGPU_ROUND_FP16; /* CUBLAS_TENSOR_OP_MATH, deprecated: as CUBLAS_COMPUTE_32F_FAST_16F */
    bool wanted = mode == CUBLAS_TF32_TENSOR_OP_MATH || (mode == CUBLAS_DEFAULT_MATH && tf32_override == 1);
    return wanted && tf32_override ? VGPU_ROUND_TF32 : VGPU_ROUND_NONE;
}

/* What is allowed need not happen: a device without the unit multiplies in fp32. */
enum vgpu_rounding vgpu_rounding_of(cublasComputeType_t compute, cublasMath_t math) {
    enum vgpu_rounding r = asked_for(compute, math);
    bool needs = r == VGPU_ROUND_TF32 || r == VGPU_ROUND_BF16;
    return needs && vgpu_profile()->sm < FIRST_WITH_BF16 ? VGPU_ROUND_NONE : r;
}
