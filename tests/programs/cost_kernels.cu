// Kernels whose floating-point operations and bytes tests/unit/test_ptx_cost.c says by formula. Names of arrays' sizes:
// N rows, C columns, T positions, D channels.
extern "C" {
__global__ void saxpy(float *y, const float *x, float a, long n) {
    long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
__global__ void saxpy_stride(float *y, const float *x, float a, long n) {
    for (long i = blockIdx.x * (long)blockDim.x + threadIdx.x; i < n; i += (long)gridDim.x * blockDim.x)
        y[i] = a * x[i] + y[i];
}
__global__ void adamw(float *w, float *m, float *v, const float *g, float lr, float b1, float b2, float rest1, float rest2,
                      float c1, float c2, float eps, float decay, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float gi = g[i], mi = b1 * m[i] + rest1 * gi, vi = b2 * v[i] + rest2 * (gi * gi);
    m[i] = mi;
    v[i] = vi;
    if (decay != 0.0f) w[i] = w[i] - lr * (mi * c1 / (sqrtf(vi * c2) + eps) + decay * w[i]);
    else w[i] = w[i] - lr * (mi * c1 / (sqrtf(vi * c2) + eps));
}

static __device__ float sum_of_warp(float x) {
    for (int k = 16; k; k /= 2) x += __shfl_xor_sync(~0u, x, k);
    return x;
}
static __device__ float most_of_warp(float x) {
    for (int k = 16; k; k /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, k));
    return x;
}
// A warp a row.
__global__ void layernorm(float *out, const float *in, const float *weight, const float *bias, float share, int N, int C) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= N) return;
    const float *x = in + (size_t)row * C;
    float *y = out + (size_t)row * C, sum = 0, squares = 0;
    for (int c = lane; c < C; c += 32) sum += x[c];
    float mean = sum_of_warp(sum) * share;
    for (int c = lane; c < C; c += 32) squares += (x[c] - mean) * (x[c] - mean);
    float r = rsqrtf(sum_of_warp(squares) * share + 1e-5f);
    for (int c = lane; c < C; c += 32) y[c] = (x[c] - mean) * r * weight[c] + bias[c];
}
__global__ void softmax(float *out, const float *in, int N, int C) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= N) return;
    const float *x = in + (size_t)row * C;
    float *y = out + (size_t)row * C, most = -1e30f, sum = 0;
    for (int c = lane; c < C; c += 32) most = fmaxf(most, x[c]);
    most = most_of_warp(most);
    for (int c = lane; c < C; c += 32) sum += __expf(x[c] - most);
    sum = sum_of_warp(sum);
    float share = __fdividef(1.0f, sum);
    for (int c = lane; c < C; c += 32) y[c] = __expf(x[c] - most) * share;
}
// A block a row (b, t) of causal scores.
__global__ void causal_scores(float *att, const float *q, const float *k, int T, int D) {
    int t = blockIdx.x % T;
    const float *mine = q + (size_t)blockIdx.x * D, *keys = k + (size_t)(blockIdx.x / T) * T * D;
    for (int s = threadIdx.x; s <= t; s += blockDim.x) {
        float sum = 0;
        for (int d = 0; d < D; d++) sum += mine[d] * keys[(size_t)s * D + d];
        att[(size_t)blockIdx.x * T + s] = sum;
    }
}
// A thread a row, all before it in turn.
__global__ void triangle(float *sums, const float *x, int N) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= N) return;
    float sum = 0;
    for (int j = 0; j <= i; j++) sum += x[j];
    sums[i] = sum;
}
__global__ void matmul(double *c, const double *a, const double *b, int M, int N, int K) {
    int i = blockIdx.y * blockDim.y + threadIdx.y, j = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= M || j >= N) return;
    double sum = 0;
    for (int k = 0; k < K; k++) sum += a[(size_t)i * K + k] * b[(size_t)k * N + j];
    c[(size_t)i * N + j] = sum;
}
__global__ void every_third(float *x, int n, int by) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && i % 3 == 0) x[i] = x[i] + 1.0f;
    if (i < n && i / by % 2) x[i] = x[i] * 3.0f;
}
// Nobody can tell these without data.
__global__ void two_ways(float *x, const int *which, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i];
    if (which[i] > 3) {
        for (int k = 0; k < 10; k++) v = v * 2.0f + x[k];
    } else {
        for (int k = 0; k < 4; k++) v = v + x[k];
    }
    x[i] = v;
}
__global__ void stops_early(int *where, const int *x, int n, int want) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < n; k++) {
        if (x[i + k] == want) break;
        sum += x[i + k] * 2.0f;
    }
    where[i] = sum;
}
__global__ void as_long_as(int *out, const int *x) {
    int v = x[threadIdx.x], n = 0;
    for (; v > 1; n++) v = v & 1 ? 3 * v + 1 : v / 2;
    out[threadIdx.x] = n;
}
}
