// The kernels of the GPT, to be read beside gpt_model.c. gpt_kernels.h says what each does and what the letters mean.
//
// Three shapes of kernel: one thread for each element; one warp for each row (layernorm, softmax); one block for 32
// columns or one row (sums over rows, cross-entropy). No atomics: every sum has a fixed order.
#include "sample_app/counter_rng.h"
#include "sample_app/gpt_kernels.h"

static constexpr int THREADS = 256; // of a block, where nothing else is said
static constexpr int WARP = 32;
static constexpr unsigned ALL = 0xffffffffu; // lanes of a warp
static constexpr float EPSILON = 1e-5f;      // of layernorm

static int blocks(long long threads, int per_block = THREADS) {
    return (int)((threads + per_block - 1) / per_block);
}
static int blocks_of_rows(int rows) { // a warp a row
    return blocks(rows, THREADS / WARP);
}

static __device__ int thread_index() {
    return blockIdx.x * blockDim.x + threadIdx.x;
}
static __device__ int lane_index() {
    return threadIdx.x % WARP;
}

// Every lane gets the sum, or the maximum, over its warp.
static __device__ float warp_sum(float x) {
    for (int offset = WARP / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(ALL, x, offset);
    return x;
}
static __device__ float warp_max(float x) {
    for (int offset = WARP / 2; offset > 0; offset /= 2) x = fmaxf(x, __shfl_xor_sync(ALL, x, offset));
    return x;
}

// Every thread gets the sum, or the maximum, over its block of THREADS. `partial` is free again afterwards.
static __device__ float block_sum(float x, float *partial) {
    x = warp_sum(x);
    if (lane_index() == 0) partial[threadIdx.x / WARP] = x;
    __syncthreads();
    float sum = 0;
    for (int w = 0; w < THREADS / WARP; w++) sum += partial[w];
    __syncthreads();
    return sum;
}
static __device__ float block_max(float x, float *partial) {
    x = warp_max(x);
    if (lane_index() == 0) partial[threadIdx.x / WARP] = x;
    __syncthreads();
    float largest = partial[0];
    for (int w = 1; w < THREADS / WARP; w++) largest = fmaxf(largest, partial[w]);
    __syncthreads();
    return largest;
}

// ---- initialisation --------------------------------------------------------------------------------------------

__global__ void init_normal_kernel(float *w, int n, float std, uint64_t key) {
    int i = thread_index();
    if (i < n) w[i] = (float)(std * rng_normal(key, i));
}

__global__ void fill_kernel(float *w, int n, float value) {
    int i = thread_index();
    if (i < n) w[i] = value;
}

// ---- embedding -------------------------------------------------------------------------------------------------

// A block for each position of the batch.
__global__ void embed_kernel(float *out, const int *tokens, const float *wte, const float *wpe, int T, int C) {
    int row = blockIdx.x;
    out += (size_t)row * C;
    wte += (size_t)tokens[row] * C;
    wpe += (size_t)(row % T) * C;
    for (int c = threadIdx.x; c < C; c += blockDim.x) out[c] = wte[c] + wpe[c];
}

// A thread for each element of dwpe (T, C), over the batch.
__global__ void embed_positions_backward_kernel(float *dwpe, const float *dout, int B, int TC) {
    int i = thread_index();
    if (i >= TC) return;
    float sum = 0;
    for (int b = 0; b < B; b++) sum += dout[(size_t)b * TC + i];
    dwpe[i] += sum;
}

// A block for each token v of the vocabulary, a thread for each channel. The lanes of a warp look at 32 positions at
// once, and then add up those that hold v, the first position first.
__global__ void embed_tokens_backward_kernel(float *dwte, const float *dout, const int *tokens, int N, int C) {
    int v = blockIdx.x, c = blockIdx.y * blockDim.x + threadIdx.x;
    float sum = 0;
    for (int first = 0; first < N; first += WARP) {
        int position = first + lane_index();
        unsigned hits = __ballot_sync(ALL, position < N && tokens[position] == v);
        for (; hits; hits &= hits - 1) {
            int row = first + __ffs(hits) - 1;
            if (c < C) sum += dout[(size_t)row * C + c];
        }
    }
    if (c < C) dwte[(size_t)v * C + c] += sum;
}

// ---- layernorm -------------------------------------------------------------------------------------------------

// A warp for each row.
__global__ void layernorm_kernel(float *out, float *mean, float *rstd, const float *x, const float *weight,
                                 const float *bias, int N, int C) {
    int row = thread_index() / WARP, lane = lane_index();
    if (row >= N) return;
    x += (size_t)row * C;
    out += (size_t)row * C;
    float sum = 0;
    for (int c = lane; c < C; c += WARP) sum += x[c];
    float m = warp_sum(sum) / C;
    float squares = 0;
    for (int c = lane; c < C; c += WARP) squares += (x[c] - m) * (x[c] - m);
    float r = rsqrtf(warp_sum(squares) / C + EPSILON);
    for (int c = lane; c < C; c += WARP) out[c] = (x[c] - m) * r * weight[c] + bias[c];
    if (lane == 0) {
        mean[row] = m;
        rstd[row] = r;
    }
}

// A warp for each row: with y = (x − mean) · rstd and g = dout · weight,
// dx += rstd · (g − mean(g) − y · mean(g · y)).
__global__ void layernorm_backward_kernel(float *dx, const float *dout, const float *x, const float *weight,
                                          const float *mean, const float *rstd, int N, int C) {
    int row = thread_index() / WARP, lane = lane_index();
    if (row >= N) return;
    dx += (size_t)row * C;
    dout += (size_t)row * C;
    x += (size_t)row * C;
    float m = mean[row], r = rstd[row], sum_g = 0, sum_gy = 0;
    for (int c = lane; c < C; c += WARP) {
        float g = dout[c] * weight[c];
        sum_g += g;
        sum_gy += g * (x[c] - m) * r;
    }
    float mean_g = warp_sum(sum_g) / C, mean_gy = warp_sum(sum_gy) / C;
    for (int c = lane; c < C; c += WARP) {
        float y = (x[c] - m) * r;
        dx[c] += r * (dout[c] * weight[c] - mean_g - y * mean_gy);
    }
}

// ---- sums over rows --------------------------------------------------------------------------------------------

// A block of (WARP, SLICES) threads sums 32 columns: each thread every SLICES-th row of one column, then the first
// warp the slices.
static constexpr int SLICES = 16;

// Valid where threadIdx.y is 0. `partial` is free again afterwards.
static __device__ float sum_slices(float x, float (*partial)[WARP]) {
    partial[threadIdx.y][threadIdx.x] = x;
    __syncthreads();
    float sum = 0;
    if (threadIdx.y == 0)
        for (int s = 0; s < SLICES; s++) sum += partial[s][threadIdx.x];
    __syncthreads();
    return sum;
}

__global__ void layernorm_weights_backward_kernel(float *dweight, float *dbias, const float *dout, const float *x,
                                                  const float *mean, const float *rstd, int N, int C) {
    __shared__ float partial[SLICES][WARP];
    int c = blockIdx.x * WARP + threadIdx.x;
    float weight = 0, bias = 0;
    if (c < C) {
        for (int row = threadIdx.y; row < N; row += SLICES) {
            float g = dout[(size_t)row * C + c];
            weight += g * (x[(size_t)row * C + c] - mean[row]) * rstd[row];
            bias += g;
        }
    }
    weight = sum_slices(weight, partial);
    bias = sum_slices(bias, partial);
    if (threadIdx.y == 0 && c < C) {
        dweight[c] += weight;
        dbias[c] += bias;
    }
}

__global__ void bias_backward_kernel(float *dbias, const float *dout, int N, int C) {
    __shared__ float partial[SLICES][WARP];
    int c = blockIdx.x * WARP + threadIdx.x;
    float sum = 0;
    if (c < C)
        for (int row = threadIdx.y; row < N; row += SLICES) sum += dout[(size_t)row * C + c];
    sum = sum_slices(sum, partial);
    if (threadIdx.y == 0 && c < C) dbias[c] += sum;
}

// ---- attention -------------------------------------------------------------------------------------------------

// A block for each position (b, t); a thread for each channel (h, q).
__global__ void split_heads_kernel(float *q, float *k, float *v, const float *qkv, int T, int H, int Q) {
    int b = blockIdx.x / T, t = blockIdx.x % T, C = H * Q;
    qkv += (size_t)blockIdx.x * 3 * C;
    for (int c = threadIdx.x; c < C; c += blockDim.x) {
        int h = c / Q;
        size_t to = ((size_t)(b * H + h) * T + t) * Q + (c - h * Q);
        q[to] = qkv[c];
        k[to] = qkv[C + c];
        v[to] = qkv[2 * C + c];
    }
}

__global__ void split_heads_backward_kernel(float *dqkv, const float *dq, const float *dk, const float *dv, int T,
                                            int H, int Q) {
    int b = blockIdx.x / T, t = blockIdx.x % T, C = H * Q;
    dqkv += (size_t)blockIdx.x * 3 * C;
    for (int c = threadIdx.x; c < C; c += blockDim.x) {
        int h = c / Q;
        size_t from = ((size_t)(b * H + h) * T + t) * Q + (c - h * Q);
        dqkv[c] = dq[from];
        dqkv[C + c] = dk[from];
        dqkv[2 * C + c] = dv[from];
    }
}

__global__ void join_heads_kernel(float *out, const float *x, int T, int H, int Q) {
    int b = blockIdx.x / T, t = blockIdx.x % T, C = H * Q;
    out += (size_t)blockIdx.x * C;
    for (int c = threadIdx.x; c < C; c += blockDim.x) {
        int h = c / Q;
        out[c] = x[((size_t)(b * H + h) * T + t) * Q + (c - h * Q)];
    }
}

__global__ void join_heads_backward_kernel(float *dx, const float *dout, int T, int H, int Q) {
    int b = blockIdx.x / T, t = blockIdx.x % T, C = H * Q;
    dout += (size_t)blockIdx.x * C;
    for (int c = threadIdx.x; c < C; c += blockDim.x) {
        int h = c / Q;
        dx[((size_t)(b * H + h) * T + t) * Q + (c - h * Q)] = dout[c];
    }
}

// A warp for each row of scores. The row's maximum is taken off first, so that no exponential overflows.
__global__ void causal_softmax_kernel(float *att, int rows, int T, float scale) {
    int row = thread_index() / WARP, lane = lane_index();
    if (row >= rows) return;
    int t = row % T;
    att += (size_t)row * T;
    float largest = -INFINITY;
    for (int s = lane; s <= t; s += WARP) largest = fmaxf(largest, att[s]);
    largest = warp_max(largest);
    float sum = 0;
    for (int s = lane; s <= t; s += WARP) {
        float e = expf(scale * (att[s] - largest));
        att[s] = e;
        sum += e;
    }
    float share = 1 / warp_sum(sum);
    for (int s = lane; s < T; s += WARP) att[s] = s <= t ? att[s] * share : 0;
}

// A warp for each row: dscores = scale · att · (datt − Σ att · datt).
__global__ void causal_softmax_backward_kernel(float *datt, const float *att, int rows, int T, float scale) {
    int row = thread_index() / WARP, lane = lane_index();
    if (row >= rows) return;
    int t = row % T;
    att += (size_t)row * T;
    datt += (size_t)row * T;
    float dot = 0;
    for (int s = lane; s <= t; s += WARP) dot += att[s] * datt[s];
    dot = warp_sum(dot);
    for (int s = lane; s < T; s += WARP) datt[s] = s <= t ? scale * att[s] * (datt[s] - dot) : 0;
}

// ---- the rest of a layer ---------------------------------------------------------------------------------------

// A block for each row.
__global__ void add_bias_kernel(float *out, const float *bias, int C) {
    out += (size_t)blockIdx.x * C;
    for (int c = threadIdx.x; c < C; c += blockDim.x) out[c] += bias[c];
}

__global__ void residual_kernel(float *out, const float *a, const float *b, int n) {
    int i = thread_index();
    if (i < n) out[i] = a[i] + b[i];
}

static constexpr float GELU_SCALE = 0.7978845608028654f; // √(2/π)
static constexpr float GELU_CUBE = 0.044715f;

__global__ void gelu_kernel(float *out, const float *x, int n) {
    int i = thread_index();
    if (i >= n) return;
    float y = x[i];
    out[i] = 0.5f * y * (1 + tanhf(GELU_SCALE * (y + GELU_CUBE * y * y * y)));
}

__global__ void gelu_backward_kernel(float *x, const float *pre, int n) {
    int i = thread_index();
    if (i >= n) return;
    float y = pre[i];
    float th = tanhf(GELU_SCALE * (y + GELU_CUBE * y * y * y));
    float slope = 0.5f * (1 + th) + 0.5f * y * (1 - th * th) * GELU_SCALE * (1 + 3 * GELU_CUBE * y * y);
    x[i] *= slope;
}

// ---- the loss --------------------------------------------------------------------------------------------------

// A block for each row. dlogits = (softmax(logits) − 1 at the target) / N, the gradient of the mean over the rows.
__global__ void cross_entropy_kernel(float *losses, float *dlogits, const float *logits, const int *targets, int N,
                                     int V) {
    __shared__ float partial[THREADS / WARP];
    int row = blockIdx.x, target = targets[row];
    logits += (size_t)row * V;
    dlogits += (size_t)row * V;
    float largest = -INFINITY;
    for (int v = threadIdx.x; v < V; v += THREADS) largest = fmaxf(largest, logits[v]);
    largest = block_max(largest, partial);
    float sum = 0;
    for (int v = threadIdx.x; v < V; v += THREADS) sum += expf(logits[v] - largest);
    sum = block_sum(sum, partial);
    for (int v = threadIdx.x; v < V; v += THREADS) {
        float probability = expf(logits[v] - largest) / sum;
        dlogits[v] = (probability - (v == target ? 1.0f : 0.0f)) / N;
    }
    if (threadIdx.x == 0) losses[row] = logf(sum) - (logits[target] - largest);
}

// One block for all.
__global__ void mean_kernel(float *out, const float *x, int n) {
    __shared__ float partial[THREADS / WARP];
    float sum = 0;
    for (int i = threadIdx.x; i < n; i += THREADS) sum += x[i];
    sum = block_sum(sum, partial);
    if (threadIdx.x == 0) *out = sum / n;
}

// ---- updates ---------------------------------------------------------------------------------------------------

__global__ void sgd_kernel(float *w, const float *g, int n, float lr) {
    int i = thread_index();
    if (i < n) w[i] -= lr * g[i];
}

__global__ void momentum_kernel(float *w, float *v, const float *g, int n, float lr, float mu) {
    int i = thread_index();
    if (i >= n) return;
    v[i] = mu * v[i] + g[i];
    w[i] -= lr * v[i];
}

__global__ void adamw_kernel(float *w, float *m, float *v, const float *g, int n, gpt_adamw_rates a) {
    int i = thread_index();
    if (i >= n) return;
    m[i] = a.beta1 * m[i] + (1 - a.beta1) * g[i];
    v[i] = a.beta2 * v[i] + (1 - a.beta2) * g[i] * g[i];
    float step = m[i] * a.correct1 / (sqrtf(v[i] * a.correct2) + a.epsilon);
    w[i] -= a.lr * (step + a.decay * w[i]);
}

// ---- launches --------------------------------------------------------------------------------------------------

void gpt_init_normal(float *w, int n, float std, uint64_t key, cudaStream_t stream) {
    init_normal_kernel<<<blocks(n), THREADS, 0, stream>>>(w, n, std, key);
}
void gpt_fill(float *w, int n, float value, cudaStream_t stream) {
    fill_kernel<<<blocks(n), THREADS, 0, stream>>>(w, n, value);
}
void gpt_embed(float *out, const int *tokens, const float *wte, const float *wpe, int B, int T, int C,
               cudaStream_t stream) {
    embed_kernel<<<B * T, THREADS, 0, stream>>>(out, tokens, wte, wpe, T, C);
}
void gpt_layernorm(float *out, float *mean, float *rstd, const float *x, const float *weight, const float *bias, int N,
                   int C, cudaStream_t stream) {
    layernorm_kernel<<<blocks_of_rows(N), THREADS, 0, stream>>>(out, mean, rstd, x, weight, bias, N, C);
}
void gpt_add_bias(float *out, const float *bias, int N, int C, cudaStream_t stream) {
    add_bias_kernel<<<N, THREADS, 0, stream>>>(out, bias, C);
}
void gpt_split_heads(float *q, float *k, float *v, const float *qkv, int B, int T, int H, int Q, cudaStream_t stream) {
    split_heads_kernel<<<B * T, THREADS, 0, stream>>>(q, k, v, qkv, T, H, Q);
}
void gpt_join_heads(float *out, const float *x, int B, int T, int H, int Q, cudaStream_t stream) {
    join_heads_kernel<<<B * T, THREADS, 0, stream>>>(out, x, T, H, Q);
}
void gpt_causal_softmax(float *att, int R, int T, float scale, cudaStream_t stream) {
    causal_softmax_kernel<<<blocks_of_rows(R * T), THREADS, 0, stream>>>(att, R * T, T, scale);
}
void gpt_gelu(float *out, const float *x, int n, cudaStream_t stream) {
    gelu_kernel<<<blocks(n), THREADS, 0, stream>>>(out, x, n);
}
void gpt_residual(float *out, const float *a, const float *b, int n, cudaStream_t stream) {
    residual_kernel<<<blocks(n), THREADS, 0, stream>>>(out, a, b, n);
}
void gpt_cross_entropy(float *losses, float *dlogits, const float *logits, const int *targets, int N, int V,
                       cudaStream_t stream) {
    cross_entropy_kernel<<<N, THREADS, 0, stream>>>(losses, dlogits, logits, targets, N, V);
}
void gpt_mean(float *out, const float *x, int n, cudaStream_t stream) {
    mean_kernel<<<1, THREADS, 0, stream>>>(out, x, n);
}

void gpt_gelu_backward(float *x, const float *pre, int n, cudaStream_t stream) {
    gelu_backward_kernel<<<blocks(n), THREADS, 0, stream>>>(x, pre, n);
}
void gpt_layernorm_backward(float *dx, const float *dout, const float *x, const float *weight, const float *mean,
                            const float *rstd, int N, int C, cudaStream_t stream) {
    layernorm_backward_kernel<<<blocks_of_rows(N), THREADS, 0, stream>>>(dx, dout, x, weight, mean, rstd, N, C);
}
void gpt_layernorm_weights_backward(float *dweight, float *dbias, const float *dout, const float *x, const float *mean,
                                    const float *rstd, int N, int C, cudaStream_t stream) {
    layernorm_weights_backward_kernel<<<blocks(C, WARP), dim3(WARP, SLICES), 0, stream>>>(dweight, dbias, dout, x, mean,
                                                                                          rstd, N, C);
}
void gpt_bias_backward(float *dbias, const float *dout, int N, int C, cudaStream_t stream) {
    bias_backward_kernel<<<blocks(C, WARP), dim3(WARP, SLICES), 0, stream>>>(dbias, dout, N, C);
}
void gpt_causal_softmax_backward(float *datt, const float *att, int R, int T, float scale, cudaStream_t stream) {
    causal_softmax_backward_kernel<<<blocks_of_rows(R * T), THREADS, 0, stream>>>(datt, att, R * T, T, scale);
}
void gpt_split_heads_backward(float *dqkv, const float *dq, const float *dk, const float *dv, int B, int T, int H,
                              int Q, cudaStream_t stream) {
    split_heads_backward_kernel<<<B * T, THREADS, 0, stream>>>(dqkv, dq, dk, dv, T, H, Q);
}
void gpt_join_heads_backward(float *dx, const float *dout, int B, int T, int H, int Q, cudaStream_t stream) {
    join_heads_backward_kernel<<<B * T, THREADS, 0, stream>>>(dx, dout, T, H, Q);
}
void gpt_embed_tokens_backward(float *dwte, const float *dout, const int *tokens, int B, int T, int C, int V,
                               cudaStream_t stream) {
    dim3 grid(V, blocks(C, THREADS));
    embed_tokens_backward_kernel<<<grid, THREADS, 0, stream>>>(dwte, dout, tokens, B * T, C);
}
void gpt_embed_positions_backward(float *dwpe, const float *dout, int B, int T, int C, cudaStream_t stream) {
    embed_positions_backward_kernel<<<blocks(T * C), THREADS, 0, stream>>>(dwpe, dout, B, T * C);
}

void gpt_sgd(float *w, const float *g, int n, float lr, cudaStream_t stream) {
    sgd_kernel<<<blocks(n), THREADS, 0, stream>>>(w, g, n, lr);
}
void gpt_momentum(float *w, float *v, const float *g, int n, float lr, float mu, cudaStream_t stream) {
    momentum_kernel<<<blocks(n), THREADS, 0, stream>>>(w, v, g, n, lr, mu);
}
void gpt_adamw(float *w, float *m, float *v, const float *g, int n, struct gpt_adamw_rates a, cudaStream_t stream) {
    adamw_kernel<<<blocks(n), THREADS, 0, stream>>>(w, m, v, g, n, a);
}
