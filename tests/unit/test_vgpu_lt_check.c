/* Products that depend on the device: vgpu_lt_check.c alone, on devices of this test. */
#include "tests/unit/vgpu_testing.h"

#include "vgpu/vgpu_lt.h"

static int major, minor;

cudaError_t cudaGetDevice(int *device) {
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
    (void)device;
    *value = attribute == cudaDevAttrComputeCapabilityMajor ? major : minor;
    return cudaSuccess;
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
    static const int devices[][3] = {{7, 5, 0}, {8, 0, 0}, {8, 6, 0}, {8, 9, 1}, {9, 0, 1}, {10, 0, 1}, {12, 0, 1}};
    (void)state;
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        major = devices[i][0], minor = devices[i][1];
        assert_int_equal(check(CUDA_R_8F_E4M3, CUDA_R_16BF),
                         devices[i][2] ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED);
        OK(check(CUDA_R_16BF, CUDA_R_16BF));
        OK(check(CUDA_R_32F, CUDA_R_32F));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(capability)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
