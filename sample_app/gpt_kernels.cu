// The kernels of the GPT, to be read beside gpt_model.c. gpt_kernels.h says what each does and what the letters mean.
//
// Three shapes of kernel: one thread for each element; one warp for each row (layernorm, softmax); one block for 32
// columns or one row (sums over rows, cross-entropy). No atomics: every sum has a fixed order.
//
// E is the element type of the run's format: float, __nv_bfloat16 or __half. Arithmetic is in float: float(x[i]) reads
// an element, and an assignment to one rounds, to nearest even.
#include <assert.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

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

template <typename E> __global__ void init_normal_kernel(E *w, int n, float std, uint64_t key) {
    int i = thread_index();
    if (i < n) w[i] = float(std * rng_normal(key, i));
}

template <typename E> __global__ void fill_kernel(E *w, int n, float value) {
    int i = thread_index();
    if (i < n) w[i] = value;
}

// ---- embedding -------------------------------------------------------------------------------------------------

// A block for each position of the batch.
template <typename E>
__global__ void embed_kernel(E *out, const int *tokens, const E *wte, const E *wpe, int T, int C) {
    int row = blockIdx.x;
    out += (size_t)row * C;
    wte += (size_t)tokens[row] * C;
    wpe += (size_t)(row % T) * C;
    for (int c = threadIdx.x; c < C; c += blockDim.x) out[c] = float(wte[c]) + float(wpe[c]);
}

// A thread for each element of dwpe (T, C), over the batch.
template <typename E> __global__ void embed_positions_backward_kernel(float *dwpe, const E *dout, int B, int TC) {
    int i = thread_index();
    if (i >= TC) return;
    float sum = 0;
    for (int b = 0; b < B; b++) sum += float(dout[(size_t)b * TC + i]);
    dwpe[i] += sum;
}

// A block for each token v of the vocabulary, a thread for each channel. The lanes of a warp look at 32 positions at
// once, and then add up those that hold v, the first position first.
template <typename E>
__global__ void embed_tokens_backward_kernel(float *dwte, const E *dout, const int *tokens, int N, int C) {
    int v = blockIdx.x, c = blockIdx.y * blockDim.x + threadIdx.x;
    float sum = 0;
    for (int first = 0; first < N; first += WARP) {
        int position = first + lane_index();
        unsigned hits = __ballot_sync(ALL, position < N && tokens[position] == v);
        for (; hits; hits &= hits - 1) {
            int row = first + __ffs(hits) - 1;
            if (c < C) sum += float(dout[(size_t)row * C + c]);
        }
    }
    if (c < C) dwte[(size_t)v * C + c] += sum;
}

// ---- layernorm -------------------------------------------------------------------------------------------------

// A warp for each row.
template <typename E>
__global__ void layernorm_kernel(E *out, float *mean, float *rstd, const E *x, const E *weight, const E *bias, int N,
                                 int C) {
    int row = thread_index() / WARP, lane = lane_index();
    if (row >= N) return;
    x += (size_t)row * C;
    out += (size_t)row * C;
    float sum = 0;
    for (int c = lane; c < C; c += WARP) sum += float(x[c]);
    float m = warp_sum(sum) / C;
    float squares = 0;
    for (int c = lane; c < C; c += WARP) squares += (float(x[c]) - m) * (float(x[c]) - m);
    float r = rsqrtf(warp_sum(squares) / C + EPSILON);
    for (int c = lane; c < C; c += WARP) out[c] = (float(x[c]) - m) * r * float(weight[c]) + float(bias[c]);
    if (lane == 0) {
        mean[row] = m;
        rstd[row] = r;
    }
}

// A warp for each row: with y = (x − mean) · rstd and g = dout · weight,
// dx += rstd · (g − mean(g) − y · mean(g · y)).
template <typename E>
__global__ void layernorm_backward_kernel(E *dx, const E *dout, const E *x, const E *weight, const float *mean,
                                          const float *rstd, int N, int C) {
    int row = thread_index() / WARP, lane = lane_index();
    if (row >= N) return;
    dx += (size_t)row * C;
    dout += (size_t)row * C;
    x += (size_t)row * C;
    float m = mean[row], r = rstd[row], sum_g = 0, sum_gy = 0;
    for (int c = lane; c < C; c += WARP) {
        float g = float(dout[c]) * float(weight[c]);
        sum_g += g;
        sum_gy += g * (float(x[c]) - m) * r;
    }
    float mean_g = warp_sum(sum_g) / C, mean_gy = warp_sum(sum_gy) / C;
    for (int c = lane; c < C; c += WARP) {
        float y = (float(x[c]) - m) * r;
        dx[c] = float(dx[c]) + r * (float(dout[c]) * float(weight[c]) - mean_g - y * mean_gy);
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

template <typename E>
__global__ void layernorm_weights_backward_kernel(float *dweight, float *dbias, const E *dout, const E *x,
                                                  const float *mean, const float *rstd, int N, int C) {
    __shared__ float partial[SLICES][WARP];
    int c = blockIdx.x * WARP + threadIdx.x;
    float weight = 0, bias = 0;
    if (c < C) {
        for (int row = threadIdx.y; row < N; row += SLICES) {
            float g = float(dout[(size_t)row * C + c]);
            weight += g * (float(x[(size_t)row * C + c]) - mean[row]) * rstd[row];
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

template <typename E> __global__ void bias_backward_kernel(float *dbias, const E *dout, int N, int C) {
    __shared__ float partial[SLICES][WARP];
    int c = blockIdx.x * WARP + threadIdx.x;
    float sum = 0;
    if (c < C)
        for (int row = threadIdx.y; row < N; row += SLICES) sum += float(dout[(size_t)row * C + c]);
    sum = sum_slices(sum, partial);
    if (threadIdx.y == 0 && c < C) dbias[c] += sum;
}

// ---- attention -------------------------------------------------------------------------------------------------

// A block for each position (b, t); a thread for each channel (h, q).
template <typename E> __global__ void split_heads_kernel(E *q, E *k, E *v, const E *qkv, int T, int H, int Q) {
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

template <typename E>
__global__ void split_heads_backward_kernel(E *dqkv, const E *dq, const E *dk, const E *dv, int T, int H, int Q) {
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

template <typename E> __global__ void join_heads_kernel(E *out, const E *x, int T, int H, int Q) {
    int b = blockIdx.x / T, t = blockIdx.x % T, C = H * Q;
    out += (size_t)blockIdx.x * C;
    for (int c = threadIdx.x; c < C; c += blockDim.x) {
        int h = c / Q;
        out[c] = x[((size_t)(b * H + h) * T + t) * Q + (c - h * Q)];
    }
}

template <typename E> __global__ void join_heads_backward_kernel(E *dx, const E *dout, int T, int H, int Q) {
    int b = blockIdx.x / T, t = blockIdx.x % T, C = H * Q;
    dout += (size_t)blockIdx.x * C;
    for (int c = threadIdx.x; c < C; c += blockDim.x) {
        int h = c / Q;
        dx[((size_t)(b * H + h) * T + t) * Q + (c - h * Q)] = dout[c];
    }
}

// A warp for each row of scores. The row's maximum is taken off first, so that no exponential overflows. Exponentials
// are computed twice rather than stored between, which would round them.
template <typename E> __global__ void causal_softmax_kernel(E *att, int rows, int T, float scale) {
    int row = thread_index() / WARP, lane = lane_index();
    if (row >= rows) return;
    int t = row % T;
    att += (size_t)row * T;
    float largest = -INFINITY;
    for (int s = lane; s <= t; s += WARP) largest = fmaxf(largest, float(att[s]));
    largest = warp_max(largest);
    float sum = 0;
    for (int s = lane; s <= t; s += WARP) sum += expf(scale * (float(att[s]) - largest));
    float share = 1 / warp_sum(sum);
    for (int s = lane; s < T; s += WARP) att[s] = s <= t ? expf(scale * (float(att[s]) - largest)) * share : 0.0f;
}

// A warp for each row: dscores = scale · att · (datt − Σ att · datt).
template <typename E>
__global__ void causal_softmax_backward_kernel(E *datt, const E *att, int rows, int T, float scale) {
    int row = thread_index() / WARP, lane = lane_index();
    if (row >= rows) return;
    int t = row % T;
    att += (size_t)row * T;
    datt += (size_t)row * T;
    float dot = 0;
    for (int s = lane; s <= t; s += WARP) dot += float(att[s]) * float(datt[s]);
    dot = warp_sum(dot);
    for (int s = lane; s < T; s += WARP) datt[s] = s <= t ? scale * float(att[s]) * (float(datt[s]) - dot) : 0.0f;
}

// ---- the rest of a layer ---------------------------------------------------------------------------------------

// A block for each row.
template <typename E> __global__ void add_bias_kernel(E *out, const E *bias, int C) {
    out += (size_t)blockIdx.x * C;
    for (int c = threadIdx.x; c < C; c += blockDim.x) out[c] = float(out[c]) + float(bias[c]);
}

template <typename E> __global__ void residual_kernel(E *out, const E *a, const E *b, int n) {
    int i = thread_index();
    if (i < n) out[i] = float(a[i]) + float(b[i]);
}

static constexpr float GELU_SCALE = 0.7978845608028654f; // √(2/π)
static constexpr float GELU_CUBE = 0.044715f;

template <typename E> __global__ void gelu_kernel(E *out, const E *x, int n) {
    int i = thread_index();
    if (i >= n) return;
    float y = float(x[i]);
    out[i] = 0.5f * y * (1 + tanhf(GELU_SCALE * (y + GELU_CUBE * y * y * y)));
}

template <typename E> __global__ void gelu_backward_kernel(E *x, const E *pre, int n) {
    int i = thread_index();
    if (i >= n) return;
    float y = float(pre[i]);
    float th = tanhf(GELU_SCALE * (y + GELU_CUBE * y * y * y));
    float slope = 0.5f * (1 + th) + 0.5f * y * (1 - th * th) * GELU_SCALE * (1 + 3 * GELU_CUBE * y * y);
    x[i] = float(x[i]) * slope;
}

// ---- the loss --------------------------------------------------------------------------------------------------

// A block for each row. dlogits = scale · (softmax(logits) − 1 at the target).
template <typename E>
__global__ void cross_entropy_kernel(float *losses, E *dlogits, const E *logits, const int *targets, int V,
                                     float scale) {
    __shared__ float partial[THREADS / WARP];
    int row = blockIdx.x, target = targets[row];
    logits += (size_t)row * V;
    float largest = -INFINITY;
    for (int v = threadIdx.x; v < V; v += THREADS) largest = fmaxf(largest, float(logits[v]));
    largest = block_max(largest, partial);
    float sum = 0;
    for (int v = threadIdx.x; v < V; v += THREADS) sum += expf(float(logits[v]) - largest);
    sum = block_sum(sum, partial);
    if (threadIdx.x == 0) losses[row] = logf(sum) - (float(logits[target]) - largest);
    if (!dlogits) return;
    dlogits += (size_t)row * V;
    for (int v = threadIdx.x; v < V; v += THREADS) {
        float probability = expf(float(logits[v]) - largest) / sum;
        dlogits[v] = scale * (probability - (v == target ? 1.0f : 0.0f));
    }
}

// One block for all.
__global__ void mean_kernel(float *out, const float *x, int n) {
    __shared__ float partial[THREADS / WARP];
    float sum = 0;
    for (int i = threadIdx.x; i < n; i += THREADS) sum += x[i];
    sum = block_sum(sum, partial);
    if (threadIdx.x == 0) *out = sum / n;
}

// ---- launches --------------------------------------------------------------------------------------------------

// Pointers to `real` as pointers to E.
template <typename E> struct elements {
    E *operator()(real *p) const { return static_cast<E *>(p); }
    const E *operator()(const real *p) const { return static_cast<const E *>(p); }
};

// Calls `launch` with the elements<E> of f.
template <typename Launch> static void in_format(enum number_format f, Launch launch) {
    if (f == FORMAT_BF16) return launch(elements<__nv_bfloat16>());
    if (f == FORMAT_FP16) return launch(elements<__half>());
    assert(f == FORMAT_FP32);
    launch(elements<float>());
}

void gpt_init_normal(enum number_format f, real *w, int n, float std, uint64_t key, cudaStream_t stream) {
    in_format(f, [=](auto as) { init_normal_kernel<<<blocks(n), THREADS, 0, stream>>>(as(w), n, std, key); });
}
void gpt_fill(enum number_format f, real *w, int n, float value, cudaStream_t stream) {
    in_format(f, [=](auto as) { fill_kernel<<<blocks(n), THREADS, 0, stream>>>(as(w), n, value); });
}

void gpt_embed(enum number_format f, real *out, const int *tokens, const real *wte, const real *wpe, int B, int T,
               int C, cudaStream_t stream) {
    in_format(f,
              [=](auto as) { embed_kernel<<<B * T, THREADS, 0, stream>>>(as(out), tokens, as(wte), as(wpe), T, C); });
}
void gpt_layernorm(enum number_format f, real *out, float *mean, float *rstd, const real *x, const real *weight,
                   const real *bias, int N, int C, cudaStream_t stream) {
    in_format(f, [=](auto as) {
        layernorm_kernel<<<blocks_of_rows(N), THREADS, 0, stream>>>(as(out), mean, rstd, as(x), as(weight), as(bias), N,
                                                                    C);
    });
}
void gpt_add_bias(enum number_format f, real *out, const real *bias, int N, int C, cudaStream_t stream) {
    in_format(f, [=](auto as) { add_bias_kernel<<<N, THREADS, 0, stream>>>(as(out), as(bias), C); });
}
void gpt_split_heads(enum number_format f, real *q, real *k, real *v, const real *qkv, int B, int T, int H, int Q,
                     cudaStream_t stream) {
    in_format(
        f, [=](auto as) { split_heads_kernel<<<B * T, THREADS, 0, stream>>>(as(q), as(k), as(v), as(qkv), T, H, Q); });
}
void gpt_join_heads(enum number_format f, real *out, const real *x, int B, int T, int H, int Q, cudaStream_t stream) {
    in_format(f, [=](auto as) { join_heads_kernel<<<B * T, THREADS, 0, stream>>>(as(out), as(x), T, H, Q); });
}
void gpt_causal_softmax(enum number_format f, real *att, int R, int T, float scale, cudaStream_t stream) {
    in_format(f, [=](auto as) {
        causal_softmax_kernel<<<blocks_of_rows(R * T), THREADS, 0, stream>>>(as(att), R * T, T, scale);
    });
}
void gpt_gelu(enum number_format f, real *out, const real *x, int n, cudaStream_t stream) {
    in_format(f, [=](auto as) { gelu_kernel<<<blocks(n), THREADS, 0, stream>>>(as(out), as(x), n); });
}
void gpt_residual(enum number_format f, real *out, const real *a, const real *b, int n, cudaStream_t stream) {
    in_format(f, [=](auto as) { residual_kernel<<<blocks(n), THREADS, 0, stream>>>(as(out), as(a), as(b), n); });
}
void gpt_cross_entropy(enum number_format f, float *losses, real *dlogits, const real *logits, const int *targets,
                       int N, int V, float scale, cudaStream_t stream) {
    in_format(f, [=](auto as) {
        cross_entropy_kernel<<<N, THREADS, 0, stream>>>(losses, as(dlogits), as(logits), targets, V, scale);
    });
}
void gpt_mean(float *out, const float *x, int n, cudaStream_t stream) {
    mean_kernel<<<1, THREADS, 0, stream>>>(out, x, n);
}

void gpt_gelu_backward(enum number_format f, real *x, const real *pre, int n, cudaStream_t stream) {
    in_format(f, [=](auto as) { gelu_backward_kernel<<<blocks(n), THREADS, 0, stream>>>(as(x), as(pre), n); });
}
void gpt_layernorm_backward(enum number_format f, real *dx, const real *dout, const real *x, const real *weight,
                            const float *mean, const float *rstd, int N, int C, cudaStream_t stream) {
    in_format(f, [=](auto as) {
        layernorm_backward_kernel<<<blocks_of_rows(N), THREADS, 0, stream>>>(as(dx), as(dout), as(x), as(weight), mean,
                                                                             rstd, N, C);
    });
}
void gpt_layernorm_weights_backward(enum number_format f, float *dweight, float *dbias, const real *dout, const real *x,
                                    const float *mean, const float *rstd, int N, int C, cudaStream_t stream) {
    in_format(f, [=](auto as) {
        layernorm_weights_backward_kernel<<<blocks(C, WARP), dim3(WARP, SLICES), 0, stream>>>(dweight, dbias, as(dout),
                                                                                              as(x), mean, rstd, N, C);
    });
}
void gpt_bias_backward(enum number_format f, float *dbias, const real *dout, int N, int C, cudaStream_t stream) {
    in_format(f, [=](auto as) {
        bias_backward_kernel<<<blocks(C, WARP), dim3(WARP, SLICES), 0, stream>>>(dbias, as(dout), N, C);
    });
}
void gpt_causal_softmax_backward(enum number_format f, real *datt, const real *att, int R, int T, float scale,
                                 cudaStream_t stream) {
    in_format(f, [=](auto as) {
        causal_softmax_backward_kernel<<<blocks_of_rows(R * T), THREADS, 0, stream>>>(as(datt), as(att), R * T, T,
                                                                                      scale);
    });
}
void gpt_split_heads_backward(enum number_format f, real *dqkv, const real *dq, const real *dk, const real *dv, int B,
                              int T, int H, int Q, cudaStream_t stream) {
    in_format(f, [=](auto as) {
        split_heads_backward_kernel<<<B * T, THREADS, 0, stream>>>(as(dqkv), as(dq), as(dk), as(dv), T, H, Q);
    });
}
void gpt_join_heads_backward(enum number_format f, real *dx, const real *dout, int B, int T, int H, int Q,
                             cudaStream_t stream) {
    in_format(f,
              [=](auto as) { join_heads_backward_kernel<<<B * T, THREADS, 0, stream>>>(as(dx), as(dout), T, H, Q); });
}
void gpt_embed_tokens_backward(enum number_format f, float *dwte, const real *dout, const int *tokens, int B, int T,
                               int C, int V, cudaStream_t stream) {
    in_format(f, [=](auto as) {
        embed_tokens_backward_kernel<<<dim3(V, blocks(C)), THREADS, 0, stream>>>(dwte, as(dout), tokens, B * T, C);
    });
}
void gpt_embed_positions_backward(enum number_format f, float *dwpe, const real *dout, int B, int T, int C,
                                  cudaStream_t stream) {
    in_format(f, [=](auto as) {
        embed_positions_backward_kernel<<<blocks(T * C), THREADS, 0, stream>>>(dwpe, as(dout), B, T * C);
    });
}
