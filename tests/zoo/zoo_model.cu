// Zoo: what models are made of, and moving data.
ZOO saxpy(const float *x, float *y, float a, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = a * x[i] + y[i];
}

ZOO transpose_naive(const float *x, float *y, int width, int height)
{
    int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
    if (c < width && r < height)
        y[c * height + r] = x[r * width + c];
}

ZOO transpose_tile(const float *x, float *y, int width, int height)
{
    __shared__ float tile[32][33];
    int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8)
        if (c < width && r + k < height)
            tile[threadIdx.y + k][threadIdx.x] = x[(r + k) * width + c];
    __syncthreads();
    c = blockIdx.y * 32 + threadIdx.x;
    r = blockIdx.x * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8)
        if (c < height && r + k < width)
            y[(r + k) * height + c] = tile[threadIdx.x][threadIdx.y + k];
}

ZOO copy_v4(const float4 *x, float4 *y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float4 v = __ldg(&x[i]);
        v.x += 1;
        v.w = -v.w;
        y[i] = v;
    }
}

ZOO axpy_v2(const double2 *x, double2 *y, double a, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        double2 u = x[i], v = y[i];
        v.x = fma(a, u.x, v.x);
        v.y = fma(a, u.y, v.y);
        y[i] = v;
    }
}

ZOO bytes_v4(const uchar4 *x, ushort2 *y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        uchar4 v = x[i];
        y[i] = make_ushort2(v.x * v.y, v.z + 256 * v.w);
    }
}

ZOO matmul_tiled(const float *a, const float *b, float *c, int n)
{
    __shared__ float ta[16][16], tb[16][16];
    int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < n; k += 16) {
        ta[threadIdx.y][threadIdx.x] = a[row * n + k + threadIdx.x];
        tb[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * n + col];
        __syncthreads();
        for (int j = 0; j < 16; j++)
            sum += ta[threadIdx.y][j] * tb[j][threadIdx.x];
        __syncthreads();
    }
    c[row * n + col] = sum;
}

__device__ inline float warp_sum(float v)
{
    for (int m = 16; m > 0; m >>= 1)
        v += __shfl_xor_sync(0xffffffffu, v, m);
    return v;
}
__device__ inline float warp_max(float v)
{
    for (int m = 16; m > 0; m >>= 1)
        v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, m));
    return v;
}

ZOO softmax(const float *x, float *y, int n) // a block a row
{
    __shared__ float part[32];
    const float *row = x + blockIdx.x * n;
    int t = threadIdx.x, lane = t % 32, warp = t / 32, warps = blockDim.x / 32;
    float high = -INFINITY, sum = 0;
    for (int i = t; i < n; i += blockDim.x)
        high = fmaxf(high, row[i]);
    high = warp_max(high);
    if (lane == 0)
        part[warp] = high;
    __syncthreads();
    high = part[0];
    for (int w = 1; w < warps; w++)
        high = fmaxf(high, part[w]);
    __syncthreads();
    for (int i = t; i < n; i += blockDim.x)
        sum += expf(row[i] - high);
    sum = warp_sum(sum);
    if (lane == 0)
        part[warp] = sum;
    __syncthreads();
    sum = 0;
    for (int w = 0; w < warps; w++)
        sum += part[w];
    for (int i = t; i < n; i += blockDim.x)
        y[blockIdx.x * n + i] = expf(row[i] - high) / sum;
}

ZOO softmax_causal(const float *x, float *y, int n) // a warp a row, columns up to the row's
{
    int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= n)
        return;
    float high = -INFINITY, sum = 0;
    for (int i = lane; i <= row; i += 32)
        high = fmaxf(high, x[row * n + i]);
    high = warp_max(high);
    for (int i = lane; i <= row; i += 32)
        sum += __expf(x[row * n + i] - high);
    float scale = 1.0f / warp_sum(sum);
    for (int i = lane; i < n; i += 32)
        y[row * n + i] = i <= row ? __expf(x[row * n + i] - high) * scale : 0.0f;
}

ZOO layernorm(const float *x, const float *weight, const float *bias, float *y, float *mean, float *rstd, int n)
{
    const float *row = x + blockIdx.x * n;
    float sum = 0, square = 0;
    for (int i = threadIdx.x; i < n; i += 32)
        sum += row[i];
    float m = warp_sum(sum) / n;
    for (int i = threadIdx.x; i < n; i += 32)
        square += (row[i] - m) * (row[i] - m);
    float r = rsqrtf(warp_sum(square) / n + 1e-5f);
    for (int i = threadIdx.x; i < n; i += 32)
        y[blockIdx.x * n + i] = (row[i] - m) * r * weight[i] + bias[i];
    if (threadIdx.x == 0) {
        mean[blockIdx.x] = m;
        rstd[blockIdx.x] = r;
    }
}

ZOO rmsnorm_inplace(float *x, const float *weight, int n)
{
    float *row = x + blockIdx.x * n, square = 0;
    for (int i = threadIdx.x; i < n; i += 32)
        square += row[i] * row[i];
    float r = 1.0f / sqrtf(warp_sum(square) / n + 1e-6f);
    for (int i = threadIdx.x; i < n; i += 32)
        row[i] *= r * weight[i];
}

ZOO gelu(const float *x, float *y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float v = x[i];
        y[i] = 0.5f * v * (1.0f + tanhf(0.7978845608f * (v + 0.044715f * v * v * v)));
    }
}

// Pairs (2k, 2k+1) of each head turned by the position's angle.
ZOO rope(float *x, int heads, int width, float base)
{
    int position = blockIdx.x, head = blockIdx.y, k = threadIdx.x;
    if (head >= heads || k >= width / 2)
        return;
    float angle = (float)position * powf(base, -2.0f * (float)k / (float)width), s, c;
    sincosf(angle, &s, &c);
    float2 *pair = (float2 *)(x + (position * heads + head) * width) + k, v = *pair;
    *pair = make_float2(v.x * c - v.y * s, v.x * s + v.y * c);
}

ZOO dropout(const float *x, float *y, unsigned char *kept, unsigned seed, unsigned threshold, float scale, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    unsigned h = (unsigned)i * 0x9e3779b9u + seed;
    h ^= h >> 16;
    h *= 0x85ebca6bu;
    h ^= h >> 13;
    h *= 0xc2b2ae35u;
    h ^= h >> 16;
    bool keep = h >= threshold;
    kept[i] = keep;
    y[i] = keep ? x[i] * scale : 0.0f;
}

ZOO gather(const float *table, const int *index, float *out, int width)
{
    for (int i = threadIdx.x; i < width; i += blockDim.x)
        out[blockIdx.x * width + i] = table[index[blockIdx.x] * width + i];
}

ZOO scatter(const float *x, const int *index, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[index[i]] = x[i];
}

ZOO segmented_sum(const float *x, const int *start, float *sums, int segments)
{
    int s = blockIdx.x * blockDim.x + threadIdx.x;
    if (s >= segments)
        return;
    float sum = 0;
    for (int i = start[s]; i < start[s + 1]; i++)
        sum += x[i];
    sums[s] = sum;
}

ZOO momentum(float *p, float *m, const float *g, const float *decay, float lr, float mu, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float grad = g[i];
        if (decay) // a pointer that may be null
            grad += decay[i] * p[i];
        m[i] = mu * m[i] + grad;
        p[i] -= lr * m[i];
    }
}

ZOO cross_entropy(const float *logits, const int *target, float *loss, float *grad, int classes)
{
    const float *row = logits + blockIdx.x * classes;
    float high = -INFINITY, sum = 0;
    for (int i = threadIdx.x; i < classes; i += 32)
        high = fmaxf(high, row[i]);
    high = warp_max(high);
    for (int i = threadIdx.x; i < classes; i += 32)
        sum += expf(row[i] - high);
    sum = warp_sum(sum);
    for (int i = threadIdx.x; i < classes; i += 32)
        grad[blockIdx.x * classes + i] = expf(row[i] - high) / sum - (i == target[blockIdx.x] ? 1.0f : 0.0f);
    if (threadIdx.x == 0)
        loss[blockIdx.x] = logf(sum) + high - row[target[blockIdx.x]];
}
