/* The six kernels that bench_jit compares with C loops. */
extern "C" __global__ void saxpy(float *y, const float *x, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}

extern "C" __global__ void residual(float *out, const float *a, const float *b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = a[i] + b[i];
}

extern "C" __global__ void adamw(float *w, float *m, float *v, const float *g, float lr, float b1, float b2, float c1,
                                 float c2, float eps, float decay, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float gi = g[i], mi = b1 * m[i] + (1 - b1) * gi, vi = b2 * v[i] + (1 - b2) * gi * gi;
    m[i] = mi;
    v[i] = vi;
    w[i] -= lr * (mi / c1 / (sqrtf(vi / c2) + eps) + decay * w[i]);
}

extern "C" __global__ void gelu(float *out, const float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i];
    out[i] = 0.5f * v * (1 + tanhf(0.7978845608f * (v + 0.044715f * v * v * v)));
}

__device__ float warp_sum(float v) {
    for (int offset = 16; offset > 0; offset /= 2) v += __shfl_xor_sync(0xffffffff, v, offset);
    return v;
}

__device__ float warp_max(float v) {
    for (int offset = 16; offset > 0; offset /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffff, v, offset));
    return v;
}

/* A row to a block. */
extern "C" __global__ void layernorm(float *out, const float *in, const float *weight, const float *bias, int C) {
    __shared__ float sums[32], squares[32];
    const float *x = in + (size_t)blockIdx.x * C;
    float *y = out + (size_t)blockIdx.x * C, sum = 0, square = 0;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
    for (int c = threadIdx.x; c < C; c += blockDim.x) sum += x[c], square += x[c] * x[c];
    sum = warp_sum(sum), square = warp_sum(square);
    if (!lane) sums[warp] = sum, squares[warp] = square;
    __syncthreads();
    sum = warp_sum(lane < warps ? sums[lane] : 0);
    square = warp_sum(lane < warps ? squares[lane] : 0);
    float mean = sum / C, scale = rsqrtf(square / C - mean * mean + 1e-5f);
    for (int c = threadIdx.x; c < C; c += blockDim.x) y[c] = (x[c] - mean) * scale * weight[c] + bias[c];
}

extern "C" __global__ void softmax(float *out, const float *in, int C) {
    __shared__ float most[32], sums[32];
    const float *x = in + (size_t)blockIdx.x * C;
    float *y = out + (size_t)blockIdx.x * C, top = -INFINITY, sum = 0;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
    for (int c = threadIdx.x; c < C; c += blockDim.x) top = fmaxf(top, x[c]);
    top = warp_max(top);
    if (!lane) most[warp] = top;
    __syncthreads();
    top = warp_max(lane < warps ? most[lane] : -INFINITY);
    for (int c = threadIdx.x; c < C; c += blockDim.x) {
        float e = expf(x[c] - top);
        y[c] = e;
        sum += e;
    }
    sum = warp_sum(sum);
    if (!lane) sums[warp] = sum;
    __syncthreads();
    sum = warp_sum(lane < warps ? sums[lane] : 0);
    for (int c = threadIdx.x; c < C; c += blockDim.x) y[c] /= sum;
}
