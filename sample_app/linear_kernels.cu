// The loss of the linear model in half precision, to be read beside linear_model.c.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "sample_app/linear_kernels.h"

static constexpr int THREADS = 256;

static __device__ float number(__nv_bfloat16 x) {
    return __bfloat162float(x);
}
static __device__ float number(__half x) {
    return __half2float(x);
}
static __device__ void store(__nv_bfloat16 *to, float x) {
    *to = __float2bfloat16(x);
}
static __device__ void store(__half *to, float x) {
    *to = __float2half(x);
}

// A block for each row.
template <typename Half>
__global__ void linear_loss_kernel(float *losses, Half *d, const Half *y, const Half *x, int D, float scale) {
    __shared__ float partial[THREADS];
    size_t row = (size_t)blockIdx.x * D;
    float squares = 0;
    for (int i = threadIdx.x; i < D; i += THREADS) {
        float error = number(y[row + i]) - number(x[row + i]);
        squares += error * error;
        store(&d[row + i], scale * error);
    }
    partial[threadIdx.x] = squares;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
    }
    if (threadIdx.x == 0) losses[blockIdx.x] = partial[0] / D;
}

void linear_loss(enum number_format f, float *losses, real *d, const real *y, const real *x, int B, int D, float scale,
                 cudaStream_t stream) {
    if (f == FORMAT_BF16) {
        using T = __nv_bfloat16;
        linear_loss_kernel<<<B, THREADS, 0, stream>>>(losses, (T *)d, (const T *)y, (const T *)x, D, scale);
    } else {
        using T = __half;
        linear_loss_kernel<<<B, THREADS, 0, stream>>>(losses, (T *)d, (const T *)y, (const T *)x, D, scale);
    }
}
