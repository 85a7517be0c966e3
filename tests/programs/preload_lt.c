/* cuBLASLt calls in all forms that the recorder tells apart, each with numbers of its own. The descriptors are the
 * vendor's; operands are made-up addresses, for the test's cublasLtMatmul does not touch them. */
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <stdint.h>
#include <string.h>
#include "tests/programs/program_check.h"

#define P(n) ((void *)(uintptr_t)(n))
enum { A = 0x1000, B = 0x2000, C = 0x3000, D = 0x4000, BIAS = 0x5000, AUX = 0x6000, SCALES = 0x7000, SPACE = 0x9000 };
static const float one = 1, zero = 0, half = 0.5f;
static cublasLtHandle_t handle;

typedef cublasLtMatrixLayout_t layout;
typedef cublasLtMatmulDesc_t desc;

static layout matrix(cudaDataType_t type, uint64_t rows, uint64_t columns, int64_t ld) {
    layout l;
    CHECK(cublasLtMatrixLayoutCreate(&l, type, rows, columns, ld));
    return l;
}
static void of_matrix(layout l, cublasLtMatrixLayoutAttribute_t what, int64_t value) {
    size_t bytes = what == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET ? 8 : 4;
    CHECK(cublasLtMatrixLayoutSetAttribute(l, what, &value, bytes));
}
static layout by_rows(cudaDataType_t type, uint64_t rows, uint64_t columns, int64_t ld) {
    layout l = matrix(type, rows, columns, ld);
    of_matrix(l, CUBLASLT_MATRIX_LAYOUT_ORDER, CUBLASLT_ORDER_ROW);
    return l;
}
static layout batch(layout l, int count, int64_t stride) {
    of_matrix(l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, count);
    of_matrix(l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, stride);
    return l;
}
static void set(desc d, cublasLtMatmulDescAttributes_t what, int32_t value) {
    CHECK(cublasLtMatmulDescSetAttribute(d, what, &value, sizeof value));
}
static void set_64(desc d, cublasLtMatmulDescAttributes_t what, uint64_t value) {
    CHECK(cublasLtMatmulDescSetAttribute(d, what, &value, sizeof value));
}
static desc product(cublasComputeType_t compute, cudaDataType_t scale, cublasOperation_t a, cublasOperation_t b) {
    desc d;
    CHECK(cublasLtMatmulDescCreate(&d, compute, scale));
    set(d, CUBLASLT_MATMUL_DESC_TRANSA, a);
    set(d, CUBLASLT_MATMUL_DESC_TRANSB, b);
    return d;
}
static desc fp32_product(cublasOperation_t a, cublasOperation_t b) {
    return product(CUBLAS_COMPUTE_32F, CUDA_R_32F, a, b);
}
static void epilogue(desc d, cublasLtEpilogue_t e, int aux_ld) {
    set(d, CUBLASLT_MATMUL_DESC_EPILOGUE, (int32_t)e);
    set_64(d, CUBLASLT_MATMUL_DESC_BIAS_POINTER, BIAS);
    if (!aux_ld) return;
    set_64(d, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, AUX);
    set_64(d, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, (uint64_t)aux_ld);
}
static void multiply(desc d, layout a, layout b, const float *beta, layout c, layout into) {
    CHECK(cublasLtMatmul(handle, d, &one, P(A), a, P(B), b, beta, P(C), c, P(D), into, NULL, NULL, 0, P(0x66)));
}

static void plain(void) {
    layout a = matrix(CUDA_R_32F, 2, 4, 5), b = matrix(CUDA_R_32F, 4, 3, 6), c = matrix(CUDA_R_32F, 2, 3, 7),
           d = matrix(CUDA_R_32F, 2, 3, 8);
    cublasLtMatmulAlgo_t algo;
    memset(&algo, 0, sizeof algo);
    algo.data[0] = 21; /* the vendor keeps the id in its first word */
    desc p = fp32_product(CUBLAS_OP_N, CUBLAS_OP_N);
    multiply(p, a, b, &zero, c, d);
    CHECK(cublasLtMatmul(handle, p, &half, P(A), a, P(B), b, &one, P(C), c, P(C), c, &algo, P(SPACE), 12345, 0));
    CHECK(cublasLtMatmul(handle, p, &one, P(A), a, P(B), b, &half, P(C), c, P(C), d, NULL, P(SPACE), 12345, 0));
    CHECK(cublasLtMatmul(handle, p, &one, P(A), a, P(B), b, &zero, NULL, NULL, P(D), d, NULL, NULL, 0, 0));
}

static void formats(void) {
    unsigned short hone = 0x3c00, hzero = 0x8000; /* 1.0 and -0.0 */
    layout e4m3 = matrix(CUDA_R_8F_E4M3, 16, 32, 16), e5m2 = matrix(CUDA_R_8F_E5M2, 16, 48, 16),
           bf16 = matrix(CUDA_R_16BF, 32, 48, 32), out8 = matrix(CUDA_R_8F_E4M3, 32, 48, 32),
           out32 = matrix(CUDA_R_32F, 32, 48, 32), h = matrix(CUDA_R_16F, 16, 16, 16);
    desc p = fp32_product(CUBLAS_OP_T, CUBLAS_OP_N);
    epilogue(p, CUBLASLT_EPILOGUE_BIAS, 0);
    set_64(p, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, SCALES);
    set_64(p, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, SCALES + 4);
    multiply(p, e4m3, e5m2, &zero, bf16, bf16);
    multiply(p, e4m3, e5m2, &zero, out32, out32); /* the bias is bf16, though the result is fp32 */
    set_64(p, CUBLASLT_MATMUL_DESC_C_SCALE_POINTER, SCALES + 8);
    set_64(p, CUBLASLT_MATMUL_DESC_D_SCALE_POINTER, SCALES + 12);
    set_64(p, CUBLASLT_MATMUL_DESC_AMAX_D_POINTER, SCALES + 16);
    multiply(p, e4m3, e5m2, &one, bf16, out8);
    set(p, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F);
    set(p, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0);
    multiply(p, e4m3, e5m2, &one, bf16, bf16);
    p = product(CUBLAS_COMPUTE_16F, CUDA_R_16F, CUBLAS_OP_N, CUBLAS_OP_N);
    CHECK(cublasLtMatmul(handle, p, &hone, P(A), h, P(B), h, &hzero, P(C), h, P(C), h, NULL, NULL, 0, 0));
    p = product(CUBLAS_COMPUTE_32F_FAST_TF32, CUDA_R_32F, CUBLAS_OP_N, CUBLAS_OP_N);
    layout s = matrix(CUDA_R_32F, 9, 9, 9);
    multiply(p, s, s, &zero, s, s);
}

static void epilogues(void) {
    static const struct {
        cublasLtEpilogue_t e;
        int aux_ld;
    } all[] = {{CUBLASLT_EPILOGUE_RELU, 0},      {CUBLASLT_EPILOGUE_RELU_AUX, 128},
               {CUBLASLT_EPILOGUE_RELU_BIAS, 0}, {CUBLASLT_EPILOGUE_RELU_AUX_BIAS, 128},
               {CUBLASLT_EPILOGUE_DRELU, 128},   {CUBLASLT_EPILOGUE_DRELU_BGRAD, 128},
               {CUBLASLT_EPILOGUE_GELU, 0},      {CUBLASLT_EPILOGUE_GELU_AUX, 40},
               {CUBLASLT_EPILOGUE_GELU_BIAS, 0}, {CUBLASLT_EPILOGUE_GELU_AUX_BIAS, 40},
               {CUBLASLT_EPILOGUE_DGELU, 40},    {CUBLASLT_EPILOGUE_DGELU_BGRAD, 40},
               {CUBLASLT_EPILOGUE_BGRADA, 0},    {CUBLASLT_EPILOGUE_BGRADB, 0}};
    layout a = matrix(CUDA_R_16BF, 24, 8, 24), b = matrix(CUDA_R_16BF, 8, 16, 8), d = matrix(CUDA_R_16BF, 24, 16, 24);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        desc p = fp32_product(CUBLAS_OP_N, CUBLAS_OP_N);
        epilogue(p, all[i].e, all[i].aux_ld);
        if (all[i].e == CUBLASLT_EPILOGUE_GELU_BIAS) set(p, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, CUDA_R_32F);
        if (all[i].e == CUBLASLT_EPILOGUE_GELU_AUX) set(p, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, CUDA_R_16F);
        multiply(p, a, b, &zero, d, d);
    }
}

/* D (2×3) = A (2×4) · B (4×3), row by row: as columns, Dᵀ (3×2) = Bᵀ · Aᵀ. */
static void orders(void) {
    layout a = by_rows(CUDA_R_16F, 2, 4, 10), b = by_rows(CUDA_R_16BF, 4, 3, 11), d = by_rows(CUDA_R_32F, 2, 3, 12);
    desc p = fp32_product(CUBLAS_OP_N, CUBLAS_OP_N);
    multiply(p, a, b, &one, d, d);
    epilogue(p, CUBLASLT_EPILOGUE_BGRADA, 0);
    multiply(p, a, b, &zero, d, d);
    epilogue(p, CUBLASLT_EPILOGUE_BIAS, 0);
    multiply(p, a, b, &zero, d, d);
    /* A alone lies by rows: a transposed factor */
    p = fp32_product(CUBLAS_OP_N, CUBLAS_OP_T);
    multiply(p, a, matrix(CUDA_R_16BF, 3, 4, 13), &zero, matrix(CUDA_R_32F, 2, 3, 14), matrix(CUDA_R_32F, 2, 3, 14));
    /* D alone: op(B) = B, op(A) = Aᵀ, both column-major */
    p = fp32_product(CUBLAS_OP_T, CUBLAS_OP_N);
    multiply(p, matrix(CUDA_R_16F, 4, 2, 15), matrix(CUDA_R_16BF, 4, 3, 16), &zero, d, d);
    layout tiles = matrix(CUDA_R_8I, 32, 32, 1024);
    of_matrix(tiles, CUBLASLT_MATRIX_LAYOUT_ORDER, CUBLASLT_ORDER_COL32);
    multiply(product(CUBLAS_COMPUTE_32I, CUDA_R_32I, CUBLAS_OP_N, CUBLAS_OP_T), tiles, tiles, &zero, tiles, tiles);
}

static void batches(void) {
    layout a = batch(matrix(CUDA_R_16BF, 24, 8, 24), 5, 0), b = batch(matrix(CUDA_R_16BF, 8, 16, 8), 5, 1000),
           d = batch(matrix(CUDA_R_16BF, 24, 16, 24), 5, 2000);
    desc p = fp32_product(CUBLAS_OP_N, CUBLAS_OP_N);
    epilogue(p, CUBLASLT_EPILOGUE_GELU_AUX_BIAS, 40);
    set_64(p, CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, 24);
    set_64(p, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, 640);
    multiply(p, a, b, &zero, d, d);
    layout q[] = {matrix(CUDA_R_32F, 2, 2, 2), matrix(CUDA_R_32F, 2, 2, 2), matrix(CUDA_R_32F, 2, 2, 2)};
    for (int i = 0; i < 3; i++) {
        of_matrix(q[i], CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 6);
        of_matrix(q[i], CUBLASLT_MATRIX_LAYOUT_BATCH_MODE, CUBLASLT_BATCH_MODE_POINTER_ARRAY);
    }
    multiply(fp32_product(CUBLAS_OP_N, CUBLAS_OP_N), q[0], q[1], &zero, q[2], q[2]);
}

/* alpha and beta that are not the host's must not be touched: 0x10 and 0x20 would be a fault. */
static void pointer_modes(void) {
    static const int modes[] = {CUBLASLT_POINTER_MODE_DEVICE, CUBLASLT_POINTER_MODE_DEVICE_VECTOR,
                                CUBLASLT_POINTER_MODE_ALPHA_DEVICE_VECTOR_BETA_ZERO,
                                CUBLASLT_POINTER_MODE_ALPHA_DEVICE_VECTOR_BETA_HOST};
    layout s = matrix(CUDA_R_32F, 9, 9, 9);
    for (int i = 0; i < 4; i++) {
        const void *beta = i == 3 ? &one : P(0x20);
        desc p = fp32_product(CUBLAS_OP_N, CUBLAS_OP_N);
        set(p, CUBLASLT_MATMUL_DESC_POINTER_MODE, modes[i]);
        CHECK(cublasLtMatmul(handle, p, P(0x10), P(A), s, P(B), s, beta, P(C), s, P(C), s, NULL, NULL, 0, 0));
    }
}

static void transforms(void) {
    cublasLtMatrixTransformDesc_t t;
    int32_t yes = CUBLAS_OP_T;
    layout rows = by_rows(CUDA_R_32F, 20, 30, 33), columns = matrix(CUDA_R_32F, 20, 30, 22),
           turned = matrix(CUDA_R_32F, 30, 20, 31), narrow = batch(matrix(CUDA_R_8I, 20, 30, 20), 3, 700),
           wide = batch(matrix(CUDA_R_32F, 20, 30, 22), 3, 800);
    CHECK(cublasLtMatrixTransformDescCreate(&t, CUDA_R_32F));
    CHECK(cublasLtMatrixTransform(handle, t, &one, P(A), rows, &zero, NULL, NULL, P(C), columns, P(0x77)));
    CHECK(cublasLtMatrixTransform(handle, t, &half, P(A), wide, &zero, NULL, NULL, P(C), narrow, P(0x77)));
    CHECK(cublasLtMatrixTransformDescSetAttribute(t, CUBLASLT_MATRIX_TRANSFORM_DESC_TRANSB, &yes, sizeof yes));
    CHECK(cublasLtMatrixTransform(handle, t, &one, P(A), columns, &half, P(B), turned, P(C), columns, P(0x77)));
}

/* Inside a call that is recorded, cuBLASLt is cuBLAS' own business: the test's cublasSgemm calls cublasLtMatmul. */
static void nested(void) {
    cublasHandle_t h;
    CHECK(cublasCreate(&h));
    CHECK(cublasSgemm(h, CUBLAS_OP_N, CUBLAS_OP_N, 2, 3, 4, &one, P(A), 5, P(B), 6, &zero, P(C), 7));
}

int main(int argc, char **argv) {
    CHECK(cudaSetDevice(0));
    CHECK(cublasLtCreate(&handle));
    if (argc > 1 && !strcmp(argv[1], "failing")) {
        layout s = matrix(CUDA_R_32F, 9, 9, 9);
        cublasStatus_t r = cublasLtMatmul(handle, fp32_product(CUBLAS_OP_N, CUBLAS_OP_N), P(0x10), P(A), s, P(B), s,
                                          P(0x20), P(C), s, P(D), s, NULL, P(SPACE), 12345, 0);
        return r != CUBLAS_STATUS_NOT_SUPPORTED;
    }
    plain();
    formats();
    epilogues();
    orders();
    batches();
    pointer_modes();
    transforms();
    nested();
    CHECK(cublasLtDestroy(handle));
    return 0;
}
