/* What CUPTI tells of cuBLASLt's work: one kernel a call, named after the format, inside a driver's launch. */
#include "tests/unit/vgpu_cupti_client.h"

#include <cublasLt.h>

enum { N = 32 };

static cublasLtHandle_t handle;

static void product(cudaDataType_t in, bool transposed, int32_t batch, void *d, cudaStream_t stream) {
    const float one = 1, zero = 0;
    int32_t op = transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtMatmulDescOpaque_t desc;
    cublasLtMatrixLayoutOpaque_t a, c;
    OK(cublasLtMatmulDescInit(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    OK(cublasLtMatmulDescSetAttribute(&desc, CUBLASLT_MATMUL_DESC_TRANSA, &op, sizeof op));
    OK(cublasLtMatrixLayoutInit(&a, in, N, N, N));
    OK(cublasLtMatrixLayoutInit(&c, CUDA_R_32F, N, N, N));
    OK(cublasLtMatrixLayoutSetAttribute(&a, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch));
    OK(cublasLtMatrixLayoutSetAttribute(&c, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch));
    OK(cublasLtMatmul(handle, &desc, &one, d, &a, d, &a, &zero, (char *)d + N * N * 4, &c, (char *)d + N * N * 4, &c,
                      NULL, NULL, 0, stream));
}

static void kernels(void **state) {
    static const char *const names[] = {"vgpu_ltgemm_e4m3_tn", "vgpu_ltgemm_bf16_batched_nn", "vgpu_ltgemm_fp32_tn"};
    cudaStream_t stream;
    uint32_t id = 0;
    (void)state;
    void *d = device_new(2 * N * N * 4);
    OK(cudaMemset(d, 0, 2 * N * N * 4));
    OK(cublasLtCreate(&handle));
    OK(cudaStreamCreate(&stream));
    OK(cuptiGetStreamIdEx(NULL, (CUstream)stream, 0, &id));
    OK(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL));
    OK(cuptiActivityEnableDriverApi(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, 1));
    product(CUDA_R_8F_E4M3, true, 1, d, stream);
    product(CUDA_R_16BF, false, 2, d, stream);
    product(CUDA_R_32F, true, 1, d, stream);
    client_collect();
    assert_int_equal(client_count(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), 3);
    assert_int_equal(client_count(CUPTI_ACTIVITY_KIND_DRIVER), 3);
    for (unsigned i = 0; i < 3; i++) {
        const CUpti_ActivityKernel10 *k = &client_record(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, i)->kernel;
        const CUpti_ActivityAPI *call = &client_record(CUPTI_ACTIVITY_KIND_DRIVER, i)->api;
        assert_string_equal(k->name, names[i]);
        assert_int_equal(k->streamId, id);
        assert_int_equal(k->correlationId, call->correlationId);
        assert_true(k->start >= call->start && k->start < k->end);
    }
    OK(cudaStreamDestroy(stream)), OK(cublasLtDestroy(handle)), OK(cudaFree(d));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup(kernels, client_reset)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
