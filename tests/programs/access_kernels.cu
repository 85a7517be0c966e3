// Kernels whose reads and writes tests/unit/test_ptx_access.c says by hand.
#include <cstdint>
struct field_params {
    float *out;
    const float *in;
    int n;
    float scale;
};
struct list_params {
    float *list[4];
    int n;
};

extern "C" {
__global__ void elementwise(float *out, const float *a, const float *b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = a[i] + b[i];
}
__global__ void grid_stride(float *x, int n, float s) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) x[i] *= s;
}
__global__ void grid_stride_long(float *x, long n) {
    for (long i = blockIdx.x * (long)blockDim.x + threadIdx.x; i < n; i += (long)gridDim.x * blockDim.x) x[i] = 1;
}
__global__ void rows(float *out, const float *in, const float *weight, int C) {
    const float *x = in + (size_t)blockIdx.x * C;
    for (int c = threadIdx.x; c < C; c += blockDim.x) out[(size_t)blockIdx.x * C + c] = x[c] * weight[c];
}
__global__ void rows_of_warps(float *out, const float *in, float *sums, int N, int C) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= N) return;
    float sum = 0;
    for (int c = lane; c < C; c += 32) sum += in[row * C + c];
    for (int k = 16; k; k /= 2) sum += __shfl_xor_sync(~0u, sum, k);
    for (int c = lane; c < C; c += 32) out[row * C + c] = sum;
    if (lane == 0) sums[row] = sum;
}
__global__ void every_other(float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[2 * i] = 1;
}
__global__ void on_condition(float *x, const float *test, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && test[i] > 0) x[i] = 1;
}
__global__ void gather(float *out, const float *table, const int *index, int C) {
    for (int c = threadIdx.x; c < C; c += blockDim.x)
        out[blockIdx.x * C + c] = table[(size_t)index[blockIdx.x] * C + c];
}
__global__ void guarded_gather(float *out, const float *table, const int *index, int V) {
    int v = index[threadIdx.x];
    if (v >= 0 && v < V) out[threadIdx.x] = table[v];
}
__global__ void scatter_add(float *bins, const unsigned char *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(bins + x[i], 1.0f);
}
__global__ void fields(field_params p) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < p.n) p.out[i] = p.in[i] * p.scale;
}
__global__ void selected(float *a, float *b, const float *c, int which) {
    float *p = which > 3 ? a : b;
    p[threadIdx.x] = c[threadIdx.x];
}
__global__ void maybe_null(float *x, float *copy, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    x[i] += 1;
    if (copy) copy[i] = x[i];
}
__global__ void listed(list_params p) { p.list[blockIdx.x][threadIdx.x] = 1; }
__global__ void vectors(float4 *out, const float4 *in, int n4) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n4) out[i] = in[i];
}
__global__ void flat_index(float *out, const float *bias, int N, int C) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= N * C) return;
    int row = i / C, c = i % C;
    out[row * C + c] += bias[c];
}
__global__ void divided(float *out, const float *in, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = in[i / 12];
}
__global__ void causal(float *att, int T) {
    int t = blockIdx.x;
    for (int u = threadIdx.x; u < T; u += blockDim.x) att[t * T + u] = u <= t ? att[t * T + u] : 0;
}
__global__ void triangle(float *att, int T) {
    int t = blockIdx.x;
    for (int u = threadIdx.x; u <= t; u += blockDim.x) att[t * T + u] = 1;
}
__global__ void from_memory(float **list) { list[0][threadIdx.x] = 1; }
__global__ void tile(float *out, const float *in, int W, int H) {
    __shared__ float t[16][17];
    int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
    if (x < W && y < H) t[threadIdx.y][threadIdx.x] = in[y * W + x];
    __syncthreads();
    if (x < W && y < H) out[y * W + x] = t[threadIdx.y][threadIdx.x];
}
__device__ __noinline__ void put(float *p, int i, float v) { p[i] = v; }
__device__ __noinline__ float get(const float *p, int i) { return p[i]; }
__global__ void through_calls(float *out, const float *in, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) put(out, i, get(in, i));
}
__device__ float accumulator[8];
__global__ void module_variable(const float *x) { accumulator[threadIdx.x & 7] += x[threadIdx.x]; }
/* Loops that some threads leave otherwise than by their end: then nothing behind them is executed. */
__global__ void side_exit(float *x, int n, int b) {
    int k = 16 | b;
    if (k < n) {
        do {
            if (((b & k) << 2) < min(b + b, b / 7)) return;
            k++;
        } while (k < n);
    }
    x[blockIdx.x * blockDim.x + threadIdx.x] = 1;
}
__global__ void own_exit(float *x, int n, int never) {
#pragma unroll 1
    for (int k = 0; k < n; k++)
        if (k * 3 == (int)threadIdx.x * 3 + never) return;
    x[threadIdx.x] = 1;
}
__device__ __noinline__ void may_end(const int *y, int k) {
    if (y[k] == 3) asm volatile("exit;");
}
__device__ __noinline__ void calls_may_end(const int *y, int k) { may_end(y, k + 1); }
__global__ void ended_in_calls(float *x, const int *y, float *before) {
    before[threadIdx.x] = 1;
    calls_may_end(y, 0);
    x[threadIdx.x] = 1;
}
__global__ void ended_in_a_loop(float *x, const int *y, int n) {
#pragma unroll 1
    for (int k = 0; k < n; k++) {
        if (threadIdx.x == 0) x[k] = 1;
        may_end(y, k);
    }
}
__global__ void ended_before(float *x, const int *y, int n) {
#pragma unroll 1
    for (int k = 0; k < n; k++) may_end(y, k);
    x[threadIdx.x] = 1;
}
}
