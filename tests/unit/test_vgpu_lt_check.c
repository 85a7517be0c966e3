/* Products that depend on the device: vgpu_lt_check.c alone, on devices of this test. */
#include "tests/unit/vgpu_testing.h"

#include "vgpu/vgpu_lt.h"
#include "vgpu/vgpu_profile.h"

static struct vgpu_profile device;

const struct vgpu_profile *vgpu_profile(void) {
    return &device;
}

static cublasStatus_t check(cudaDataType_t in, cudaDataType_t out) {
    const struct vgpu_lt_desc desc = {.compute = CUBLAS_COMPUTE_32F,
                                      .scale = CUDA_R_32F,
                                      .trans_a = CUBLAS_OP_T,
                                      .fill = CUBLAS_FILL_MODE_FULL,
                                      .epilogue = CUBLASLT_EPILOGUE_DEFAULT,
                                      .aux_type = -1,
                                      .bias_type = -1};
    const struct vgpu_lt_layout a = {.type = (uint32_t)in, .rows = 32, .columns = 32, .ld = 32, .batch = 1};
    struct vgpu_lt_layout d = a;
    struct vgpu_lt_product product;
    d.type = (uint32_t)out;
    return vgpu_lt_check(&desc, &a, &a, &d, &d, &product);
}

/* fp8 has units since Ada (8.9); the other formats are taken on every device that CUDA 13 knows. */
static void capability(void **state) {
    static const unsigned devices[][2] = {{75, 0}, {80, 0}, {86, 0}, {89, 1}, {90, 1}, {100, 1}, {120, 1}};
    (void)state;
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        device.sm = devices[i][0];
        assert_int_equal(check(CUDA_R_8F_E4M3, CUDA_R_16BF),
                         devices[i][1] ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED);
        OK(check(CUDA_R_16BF, CUDA_R_16BF));
        OK(check(CUDA_R_32F, CUDA_R_32F));
    }
}

/* tf32 and bf16 came with Ampere (8.0): what a device has no unit for is multiplied in fp32. */
static void rounding(void **state) {
    static const unsigned devices[] = {70, 75, 80, 86, 90, 120};
    (void)state;
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        bool since = devices[i] >= 80;
        device.sm = devices[i];
        assert_int_equal(vgpu_rounding_of(CUBLAS_COMPUTE_32F_FAST_TF32, CUBLAS_DEFAULT_MATH),
                         since ? VGPU_ROUND_TF32 : VGPU_ROUND_NONE);
        assert_int_equal(vgpu_rounding_of(CUBLAS_COMPUTE_32F, CUBLAS_TF32_TENSOR_OP_MATH),
                         since ? VGPU_ROUND_TF32 : VGPU_ROUND_NONE);
        assert_int_equal(vgpu_rounding_of(CUBLAS_COMPUTE_32F_FAST_16BF, CUBLAS_DEFAULT_MATH),
                         since ? VGPU_ROUND_BF16 : VGPU_ROUND_NONE);
        assert_int_equal(vgpu_rounding_of(CUBLAS_COMPUTE_32F_FAST_16F, CUBLAS_DEFAULT_MATH), VGPU_ROUND_FP16);
        assert_int_equal(vgpu_rounding_of(CUBLAS_COMPUTE_32F, CUBLAS_DEFAULT_MATH), VGPU_ROUND_NONE);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(capability), cmocka_unit_test(rounding)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
