// Casts from bf16 to fp8, to be read beside products_fp8.c. fp8_kernels.h says what each kernel does.
#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include "sample_app/fp8_kernels.h"

static constexpr int THREADS = 256; // of a block
static constexpr int WARP = 32;
static constexpr int TILE = 32; // a block transposes TILE × TILE elements
static constexpr unsigned ALL = 0xffffffffu;

static int blocks(size_t threads) {
    return (int)((threads + THREADS - 1) / THREADS);
}

// ---- the scale of a tensor -------------------------------------------------------------------------------------

// Thread 0 of the block gets the largest x of its threads; NaNs do not count. The order of a maximum does not matter.
static __device__ float block_max(float x) {
    __shared__ float of_warp[THREADS / WARP];
    for (int offset = WARP / 2; offset > 0; offset /= 2) x = fmaxf(x, __shfl_xor_sync(ALL, x, offset));
    if (threadIdx.x % WARP == 0) of_warp[threadIdx.x / WARP] = x;
    __syncthreads();
    for (int w = 0; w < THREADS / WARP; w++) x = fmaxf(x, of_warp[w]);
    return x;
}

// A block for each slice, which is every so many-th run of THREADS pairs.
__global__ void fp8_amax_kernel(float *parts, const __nv_bfloat162 *x, size_t pairs) {
    float largest = 0;
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < pairs; i += (size_t)gridDim.x * THREADS) {
        float2 both = __bfloat1622float2(x[i]);
        largest = fmaxf(largest, fmaxf(fabsf(both.x), fabsf(both.y)));
    }
    largest = block_max(largest);
    if (threadIdx.x == 0) parts[blockIdx.x] = largest;
}

// One block. The scale stays below 2^126, where its inverse is still a normal number.
static_assert(FP8_PARTS <= THREADS, "a thread for each part");
__global__ void fp8_scale_kernel(float *scale, const float *parts, int count, float format_largest) {
    float amax = block_max((int)threadIdx.x < count ? parts[threadIdx.x] : 0);
    if (threadIdx.x != 0) return;
    float s = amax > 0 ? fminf(format_largest / amax, 0x1p126f) : 1;
    scale[0] = s;
    scale[1] = 1 / s;
}

// ---- casts -----------------------------------------------------------------------------------------------------

// A thread for each pair.
template <__nv_fp8_interpretation_t FORMAT>
__global__ void fp8_cast_kernel(__nv_fp8x2_storage_t *out, const __nv_bfloat162 *x, size_t pairs, const float *scale) {
    size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= pairs) return;
    float2 both = __bfloat1622float2(x[i]);
    both.x *= *scale;
    both.y *= *scale;
    out[i] = __nv_cvt_float2_to_fp8x2(both, __NV_SATFINITE, FORMAT);
}

// A block for each tile of x (R, C), a warp for every eighth row of it, so that rows are read and written as they lie.
template <__nv_fp8_interpretation_t FORMAT>
__global__ void fp8_cast_transposed_kernel(__nv_fp8_storage_t *out, const __nv_bfloat16 *x, int R, int C,
                                           const float *scale) {
    __shared__ float tile[TILE][TILE + 1]; // one more, or a column would lie in one bank
    int row = blockIdx.x * TILE, column = blockIdx.y * TILE, lane = threadIdx.x % TILE, first = threadIdx.x / TILE;
    for (int i = first; i < TILE; i += THREADS / TILE)
        if (row + i < R && column + lane < C)
            tile[i][lane] = __bfloat162float(x[(size_t)(row + i) * C + column + lane]) * *scale;
    __syncthreads();
    for (int i = first; i < TILE; i += THREADS / TILE)
        if (column + i < C && row + lane < R)
            out[(size_t)(column + i) * R + row + lane] = __nv_cvt_float_to_fp8(tile[lane][i], __NV_SATFINITE, FORMAT);
}

// ---- launches --------------------------------------------------------------------------------------------------

static int slices(size_t n) {
    size_t at_least = 4096; // elements
    return n <= at_least ? 1 : n >= FP8_PARTS * at_least ? FP8_PARTS : (int)(n / at_least);
}

void fp8_amax(float *parts, const real *x, size_t n, cudaStream_t stream) {
    fp8_amax_kernel<<<slices(n), THREADS, 0, stream>>>(parts, (const __nv_bfloat162 *)x, n / 2);
}

void fp8_scale(enum number_format format, float *scale, const float *parts, size_t n, cudaStream_t stream) {
    fp8_scale_kernel<<<1, THREADS, 0, stream>>>(scale, parts, slices(n), format == FORMAT_E4M3 ? 448 : 57344);
}

void fp8_cast(enum number_format format, void *out, const real *x, size_t n, const float *scale, cudaStream_t stream) {
    auto kernel = format == FORMAT_E4M3 ? fp8_cast_kernel<__NV_E4M3> : fp8_cast_kernel<__NV_E5M2>;
    kernel<<<blocks(n / 2), THREADS, 0, stream>>>((__nv_fp8x2_storage_t *)out, (const __nv_bfloat162 *)x, n / 2, scale);
}

void fp8_cast_transposed(enum number_format format, void *out, const real *x, int R, int C, const float *scale,
                         cudaStream_t stream) {
    auto kernel = format == FORMAT_E4M3 ? fp8_cast_transposed_kernel<__NV_E4M3> : fp8_cast_transposed_kernel<__NV_E5M2>;
    dim3 grid((R + TILE - 1) / TILE, (C + TILE - 1) / TILE); // y, the columns: at most 65535; of rows there may be more
    kernel<<<grid, THREADS, 0, stream>>>((__nv_fp8_storage_t *)out, (const __nv_bfloat16 *)x, R, C, scale);
}
