// The kernels of the update, to be read beside optimizer.c. optimizer_kernels.h says what each does.
//
// A rule is one kernel, a thread for each element. Its last argument is the pack `rounded`: empty where a parameter is
// fp32; else the one pointer to the parameter, whose master weight is w. So a tensor is one launch in every format.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "sample_app/optimizer_kernels.h"

static constexpr int THREADS = 256; // of a block
static constexpr int WARP = 32;
static constexpr unsigned ALL = 0xffffffffu; // lanes of a warp

static __device__ size_t thread_index() {
    return (size_t)blockIdx.x * blockDim.x + threadIdx.x;
}

// ---- rules -----------------------------------------------------------------------------------------------------

// Multiply-adds that begin with an old value are written out, fmaf(): which product of a·b + c·d is rounded would
// otherwise be the compiler's choice, by what stands around it.

// Rounded by itself, never as part of a multiply-add: with a factor of 1 the gradient is what it was, bit for bit.
static __device__ float gradient(const float *g, size_t i, const update_rates &r) {
    return __fmul_rn(r.gradient_factor, g[i]);
}

static __device__ void round_to(__nv_bfloat16 *to, float w) {
    *to = __float2bfloat16_rn(w);
}
static __device__ void round_to(__half *to, float w) {
    *to = __float2half_rn(w);
}

template <typename... R> static __device__ void store(size_t i, float value, float *w, R *...rounded) {
    w[i] = value;
    (round_to(rounded + i, value), ...);
}

template <typename... R>
__global__ void sgd_kernel(float *w, const float *gradients, size_t n, update_rates r, R *...rounded) {
    size_t i = thread_index();
    if (i >= n) return;
    float g = gradient(gradients, i, r);
    store(i, w[i] - r.lr * g, w, rounded...);
}

template <typename... R>
__global__ void momentum_kernel(float *w, float *v, const float *gradients, size_t n, update_rates r, R *...rounded) {
    size_t i = thread_index();
    if (i >= n) return;
    float g = gradient(gradients, i, r);
    v[i] = fmaf(r.beta1, v[i], g);
    store(i, w[i] - r.lr * v[i], w, rounded...);
}

template <typename... R>
__global__ void rmsprop_kernel(float *w, float *s, const float *gradients, size_t n, update_rates r, R *...rounded) {
    size_t i = thread_index();
    if (i >= n) return;
    float g = gradient(gradients, i, r);
    s[i] = fmaf(r.beta2, s[i], (1 - r.beta2) * g * g);
    store(i, w[i] - r.lr * (g / (sqrtf(s[i]) + r.epsilon)), w, rounded...);
}

template <typename... R>
__global__ void adagrad_kernel(float *w, float *s, const float *gradients, size_t n, update_rates r, R *...rounded) {
    size_t i = thread_index();
    if (i >= n) return;
    float g = gradient(gradients, i, r);
    s[i] = fmaf(g, g, s[i]);
    store(i, w[i] - r.lr * (g / (sqrtf(s[i]) + r.epsilon)), w, rounded...);
}

template <typename... R>
__global__ void adamw_kernel(float *w, float *m, float *v, const float *gradients, size_t n, update_rates r,
                             R *...rounded) {
    size_t i = thread_index();
    if (i >= n) return;
    float g = gradient(gradients, i, r);
    m[i] = fmaf(r.beta1, m[i], (1 - r.beta1) * g);
    v[i] = fmaf(r.beta2, v[i], (1 - r.beta2) * g * g);
    float step = m[i] * r.correct1 / (sqrtf(v[i] * r.correct2) + r.epsilon);
    store(i, w[i] - r.lr * fmaf(r.decay, w[i], step), w, rounded...);
}

// ---- the global norm -------------------------------------------------------------------------------------------

// Valid in thread 0 of a block of THREADS.
static __device__ double block_sum(double x) {
    __shared__ double partial[THREADS / WARP];
    for (int offset = WARP / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(ALL, x, offset);
    if (threadIdx.x % WARP == 0) partial[threadIdx.x / WARP] = x;
    __syncthreads();
    double sum = 0;
    for (int w = 0; w < THREADS / WARP; w++) sum += partial[w];
    return sum;
}

// Each block a share of the tensor, strided so that a warp reads what lies together.
__global__ void sum_squares_kernel(double *partial, const float *g, size_t n) {
    double sum = 0;
    for (size_t i = thread_index(); i < n; i += (size_t)gridDim.x * THREADS) sum += (double)g[i] * g[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

// One block for all.
__global__ void sum_kernel(double *total, const double *partial, int count) {
    double sum = 0;
    for (int i = threadIdx.x; i < count; i += THREADS) sum += partial[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) *total = sum;
}

// ---- launches --------------------------------------------------------------------------------------------------

static unsigned blocks(size_t threads) {
    return (unsigned)((threads + THREADS - 1) / THREADS);
}

// launch() for fp32, launch(rounded) for what has a master weight.
template <typename Launch> static void by_format(const updated &p, Launch launch) {
    if (p.f == FORMAT_BF16)
        launch((__nv_bfloat16 *)p.rounded);
    else if (p.f == FORMAT_FP16)
        launch((__half *)p.rounded);
    else
        launch();
}

void optimizer_sgd(struct updated p, struct update_rates r, cudaStream_t stream) {
    by_format(p,
              [&](auto *...rounded) { sgd_kernel<<<blocks(p.n), THREADS, 0, stream>>>(p.w, p.g, p.n, r, rounded...); });
}
void optimizer_momentum(struct updated p, float *v, struct update_rates r, cudaStream_t stream) {
    by_format(p, [&](auto *...rounded) {
        momentum_kernel<<<blocks(p.n), THREADS, 0, stream>>>(p.w, v, p.g, p.n, r, rounded...);
    });
}
void optimizer_rmsprop(struct updated p, float *s, struct update_rates r, cudaStream_t stream) {
    by_format(p, [&](auto *...rounded) {
        rmsprop_kernel<<<blocks(p.n), THREADS, 0, stream>>>(p.w, s, p.g, p.n, r, rounded...);
    });
}
void optimizer_adagrad(struct updated p, float *s, struct update_rates r, cudaStream_t stream) {
    by_format(p, [&](auto *...rounded) {
        adagrad_kernel<<<blocks(p.n), THREADS, 0, stream>>>(p.w, s, p.g, p.n, r, rounded...);
    });
}
void optimizer_adamw(struct updated p, float *m, float *v, struct update_rates r, cudaStream_t stream) {
    by_format(p, [&](auto *...rounded) {
        adamw_kernel<<<blocks(p.n), THREADS, 0, stream>>>(p.w, m, v, p.g, p.n, r, rounded...);
    });
}

// At least four elements a thread; no more blocks than a large device runs at once.
int optimizer_partials(size_t n) {
    unsigned wanted = blocks((n + 3) / 4);
    return wanted < 1024 ? (int)wanted : 1024;
}
void optimizer_sum_squares(double *partial, const float *g, size_t n, cudaStream_t stream) {
    sum_squares_kernel<<<optimizer_partials(n), THREADS, 0, stream>>>(partial, g, n);
}
void optimizer_sum(double *total, const double *partial, int count, cudaStream_t stream) {
    sum_kernel<<<1, THREADS, 0, stream>>>(total, partial, count);
}
