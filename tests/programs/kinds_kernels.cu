/* The kernels of the programs, in the shapes that trainers have: forward and backward of layers, losses. A thread an
 * element, or a thread a row where sums are short. Optimizers are in kinds_updates.cu. */
#include "tests/programs/kinds.h"

typedef __nv_bfloat16 half_type;
__device__ static float get(float x) {
    return x;
}
__device__ static float get(half_type x) {
    return __bfloat162float(x);
}
__device__ static void put(float *to, float x) {
    *to = x;
}
__device__ static void put(half_type *to, float x) {
    *to = __float2bfloat16(x);
}

#define INDEX(n)                                   \
    int i = blockIdx.x * blockDim.x + threadIdx.x; \
    if (i >= (n)) return
#define GRID(n) (unsigned)(((n) + 63) / 64), 64
/* Runs a statement with T the type of x's elements. */
#define BY_TYPE(x, ...)            \
    do {                           \
        if ((x).t == BF16) {       \
            typedef half_type T;   \
            __VA_ARGS__;           \
        } else {                   \
            typedef float T;       \
            __VA_ARGS__;           \
        }                          \
        CHECK(cudaGetLastError()); \
    } while (0)
#define AS(type, x) ((type *)(x).at)

/* ---- element by element ---- */
template <class T> __global__ void fill_kernel(T *x, float value, int n) {
    INDEX(n);
    put(x + i, value);
}
void k_fill(const buffer &x, float value) {
    BY_TYPE(x, (fill_kernel<T><<<GRID(x.n)>>>(AS(T, x), value, (int)x.n)));
}

template <class T> __global__ void scale_kernel(T *x, float factor, int n) {
    INDEX(n);
    put(x + i, get(x[i]) * factor);
}
void k_scale(const buffer &x, float factor) {
    BY_TYPE(x, (scale_kernel<T><<<GRID(x.n)>>>(AS(T, x), factor, (int)x.n)));
}

template <class A, class B> __global__ void cast_kernel(A *to, const B *from, int n) {
    INDEX(n);
    put(to + i, get(from[i]));
}
void k_cast(const buffer &to, const buffer &from) {
    if (to.t == BF16)
        cast_kernel<<<GRID(to.n)>>>(to.h(), from.f(), (int)to.n);
    else
        cast_kernel<<<GRID(to.n)>>>(to.f(), from.h(), (int)to.n);
    CHECK(cudaGetLastError());
}

template <class T> __global__ void add_kernel(T *y, const T *a, const T *b, int n) {
    INDEX(n);
    put(y + i, get(a[i]) + get(b[i]));
}
void k_add(const buffer &y, const buffer &a, const buffer &b) {
    BY_TYPE(y, (add_kernel<T><<<GRID(y.n)>>>(AS(T, y), AS(const T, a), AS(const T, b), (int)y.n)));
}

template <class A, class B> __global__ void add_into_kernel(A *y, const B *a, int n) {
    INDEX(n);
    put(y + i, get(y[i]) + get(a[i]));
}
void k_add_into(const buffer &y, const buffer &a) {
    if (y.t == F32 && a.t == BF16)
        add_into_kernel<<<GRID(y.n)>>>(y.f(), a.h(), (int)y.n);
    else
        BY_TYPE(y, (add_into_kernel<<<GRID(y.n)>>>(AS(T, y), AS(const T, a), (int)y.n)));
}

/* y = p a + q b */
__global__ void mix_kernel(float *y, float p, const float *a, float q, const float *b, int n) {
    INDEX(n);
    y[i] = p * a[i] + q * b[i];
}
void k_mix(const buffer &y, float p, const buffer &a, float q, const buffer &b) {
    mix_kernel<<<GRID(y.n)>>>(y.f(), p, a.f(), q, b.f(), (int)y.n);
    CHECK(cudaGetLastError());
}

template <class T> __global__ void bias_kernel(T *y, const T *b, int cols, int n) {
    INDEX(n);
    put(y + i, get(y[i]) + get(b[i % cols]));
}
void k_bias(const buffer &y, const buffer &b, int rows, int cols) {
    BY_TYPE(y, (bias_kernel<T><<<GRID(rows * cols)>>>(AS(T, y), AS(const T, b), cols, rows * cols)));
}

template <class A, class T> __global__ void bias_grad_kernel(A *db, const T *dy, int rows, int cols, int accumulate) {
    INDEX(cols);
    float sum = 0;
    for (int r = 0; r < rows; r++) sum += get(dy[r * cols + i]);
    if (accumulate)
        put(db + i, get(db[i]) + sum);
    else
        put(db + i, sum);
}
void k_bias_grad(const buffer &db, const buffer &dy, int rows, int cols, bool accumulate) {
    if (db.t == F32 && dy.t == BF16)
        bias_grad_kernel<<<GRID(cols)>>>(db.f(), (const half_type *)dy.at, rows, cols, accumulate);
    else
        BY_TYPE(dy, (bias_grad_kernel<<<GRID(cols)>>>(AS(T, db), AS(const T, dy), rows, cols, accumulate)));
}

template <class T> __global__ void gelu_kernel(T *y, const T *x, int n) {
    INDEX(n);
    float v = get(x[i]);
    put(y + i, 0.5f * v * (1 + tanhf(0.79788456f * (v + 0.044715f * v * v * v))));
}
void k_gelu(const buffer &y, const buffer &x) {
    BY_TYPE(y, (gelu_kernel<T><<<GRID(y.n)>>>(AS(T, y), AS(const T, x), (int)y.n)));
}

template <class T> __global__ void gelu_grad_kernel(T *dx, const T *x, const T *dy, int n) {
    INDEX(n);
    float v = get(x[i]), t = tanhf(0.79788456f * (v + 0.044715f * v * v * v));
    float slope = 0.5f * (1 + t) + 0.5f * v * (1 - t * t) * 0.79788456f * (1 + 0.134145f * v * v);
    put(dx + i, get(dy[i]) * slope);
}
void k_gelu_grad(const buffer &dx, const buffer &x, const buffer &dy) {
    BY_TYPE(dx, (gelu_grad_kernel<T><<<GRID(dx.n)>>>(AS(T, dx), AS(const T, x), AS(const T, dy), (int)dx.n)));
}

/* ---- layernorm: a thread a row, and for the parameters' gradients a column ---- */
template <class O, class T, class P>
__global__ void layernorm_kernel(O *y, float *mean, float *rstd, const T *x, const P *w, const P *b, int rows,
                                 int cols) {
    INDEX(rows);
    float m = 0, v = 0;
    for (int c = 0; c < cols; c++) m += get(x[i * cols + c]);
    m /= cols;
    for (int c = 0; c < cols; c++) v += (get(x[i * cols + c]) - m) * (get(x[i * cols + c]) - m);
    float s = rsqrtf(v / cols + 1e-5f);
    mean[i] = m;
    rstd[i] = s;
    for (int c = 0; c < cols; c++) put(y + i * cols + c, (get(x[i * cols + c]) - m) * s * get(w[c]) + get(b[c]));
}
void k_layernorm(const buffer &y, const buffer &mean, const buffer &rstd, const buffer &x, const buffer &w,
                 const buffer &b, int rows, int cols) {
    if (x.t == BF16 && y.t == F32)
        layernorm_kernel<<<GRID(rows)>>>(y.f(), mean.f(), rstd.f(), AS(const half_type, x), AS(const float, w),
                                         AS(const float, b), rows, cols);
    else
        BY_TYPE(x, (layernorm_kernel<<<GRID(rows)>>>(AS(T, y), mean.f(), rstd.f(), AS(const T, x), AS(const T, w),
                                                     AS(const T, b), rows, cols)));
}

template <class O, class T, class P>
__global__ void layernorm_grad_kernel(T *dx, const O *dy, const T *x, const P *w, const float *mean, const float *rstd,
                                      int rows, int cols) {
    INDEX(rows);
    float a = 0, b = 0;
    for (int c = 0; c < cols; c++) {
        float g = get(dy[i * cols + c]) * get(w[c]), h = (get(x[i * cols + c]) - mean[i]) * rstd[i];
        a += g;
        b += g * h;
    }
    for (int c = 0; c < cols; c++) {
        float g = get(dy[i * cols + c]) * get(w[c]), h = (get(x[i * cols + c]) - mean[i]) * rstd[i];
        put(dx + i * cols + c, (g - a / cols - h * b / cols) * rstd[i]);
    }
}
void k_layernorm_grad(const buffer &dx, const buffer &dy, const buffer &x, const buffer &w, const buffer &mean,
                      const buffer &rstd, int rows, int cols) {
    if (x.t == BF16 && dy.t == F32)
        layernorm_grad_kernel<<<GRID(rows)>>>(dx.h(), AS(const float, dy), AS(const half_type, x), AS(const float, w),
                                              mean.f(), rstd.f(), rows, cols);
    else
        BY_TYPE(x, (layernorm_grad_kernel<<<GRID(rows)>>>(AS(T, dx), AS(const T, dy), AS(const T, x), AS(const T, w),
                                                          AS(const float, mean), AS(const float, rstd), rows, cols)));
}

template <class O, class T, class P>
__global__ void layernorm_grad_params_kernel(P *dw, P *db, const O *dy, const T *x, const float *mean,
                                             const float *rstd, int rows, int cols, int accumulate) {
    INDEX(cols);
    float a = 0, b = 0;
    for (int r = 0; r < rows; r++) {
        float g = get(dy[r * cols + i]);
        a += g * (get(x[r * cols + i]) - mean[r]) * rstd[r];
        b += g;
    }
    put(dw + i, accumulate ? get(dw[i]) + a : a);
    put(db + i, accumulate ? get(db[i]) + b : b);
}
void k_layernorm_grad_params(const buffer &dw, const buffer &db, const buffer &dy, const buffer &x, const buffer &mean,
                             const buffer &rstd, int rows, int cols, bool accumulate) {
    if (x.t == BF16 && dy.t == F32)
        layernorm_grad_params_kernel<<<GRID(cols)>>>(dw.f(), db.f(), AS(const float, dy), AS(const half_type, x),
                                                     AS(const float, mean), AS(const float, rstd), rows, cols,
                                                     accumulate);
    else
        BY_TYPE(x, (layernorm_grad_params_kernel<<<GRID(cols)>>>(AS(T, dw), AS(T, db), AS(const T, dy), AS(const T, x),
                                                                 AS(const float, mean), AS(const float, rstd), rows,
                                                                 cols, accumulate)));
}

/* ---- batchnorm: a thread a column ---- */
__global__ void batchnorm_kernel(float *y, float *mean, float *rstd, float *run_mean, float *run_var, const float *x,
                                 const float *w, const float *b, int rows, int cols) {
    INDEX(cols);
    float m = 0, v = 0;
    for (int r = 0; r < rows; r++) m += x[r * cols + i];
    m /= rows;
    for (int r = 0; r < rows; r++) v += (x[r * cols + i] - m) * (x[r * cols + i] - m);
    v /= rows;
    mean[i] = m;
    rstd[i] = rsqrtf(v + 1e-5f);
    run_mean[i] = 0.9f * run_mean[i] + 0.1f * m;
    run_var[i] = 0.9f * run_var[i] + 0.1f * v;
    for (int r = 0; r < rows; r++) y[r * cols + i] = (x[r * cols + i] - m) * rstd[i] * w[i] + b[i];
}
void k_batchnorm(const buffer &y, const buffer &mean, const buffer &rstd, const buffer &run_mean, const buffer &run_var,
                 const buffer &x, const buffer &w, const buffer &b, int rows, int cols) {
    batchnorm_kernel<<<GRID(cols)>>>(y.f(), mean.f(), rstd.f(), run_mean.f(), run_var.f(), x.f(), w.f(), b.f(), rows,
                                     cols);
    CHECK(cudaGetLastError());
}

__global__ void batchnorm_eval_kernel(float *y, const float *x, const float *run_mean, const float *run_var,
                                      const float *w, const float *b, int cols, int n) {
    INDEX(n);
    int c = i % cols;
    y[i] = (x[i] - run_mean[c]) * rsqrtf(run_var[c] + 1e-5f) * w[c] + b[c];
}
void k_batchnorm_eval(const buffer &y, const buffer &x, const buffer &run_mean, const buffer &run_var, const buffer &w,
                      const buffer &b, int rows, int cols) {
    batchnorm_eval_kernel<<<GRID(rows * cols)>>>(y.f(), x.f(), run_mean.f(), run_var.f(), w.f(), b.f(), cols,
                                                 rows * cols);
    CHECK(cudaGetLastError());
}

__global__ void batchnorm_grad_kernel(float *dx, float *dw, float *db, const float *dy, const float *x, const float *w,
                                      const float *mean, const float *rstd, int rows, int cols, int accumulate) {
    INDEX(cols);
    float a = 0, b = 0;
    for (int r = 0; r < rows; r++) {
        a += dy[r * cols + i] * (x[r * cols + i] - mean[i]) * rstd[i];
        b += dy[r * cols + i];
    }
    dw[i] = accumulate ? dw[i] + a : a;
    db[i] = accumulate ? db[i] + b : b;
    for (int r = 0; r < rows; r++) {
        float h = (x[r * cols + i] - mean[i]) * rstd[i];
        dx[r * cols + i] = w[i] * rstd[i] * (dy[r * cols + i] - b / rows - h * a / rows);
    }
}
void k_batchnorm_grad(const buffer &dx, const buffer &dw, const buffer &db, const buffer &dy, const buffer &x,
                      const buffer &w, const buffer &mean, const buffer &rstd, int rows, int cols, bool accumulate) {
    batchnorm_grad_kernel<<<GRID(cols)>>>(dx.f(), dw.f(), db.f(), dy.f(), x.f(), w.f(), mean.f(), rstd.f(), rows, cols,
                                          accumulate);
    CHECK(cudaGetLastError());
}

/* ---- embedding: a row of the table for each token, and one for its place in the sequence ---- */
template <class T>
__global__ void embed_kernel(T *y, const T *table, const T *places, const int *tokens, int cols, int seq, int n) {
    INDEX(n);
    int r = i / cols, c = i % cols;
    put(y + i, get(table[tokens[r] * cols + c]) + get(places[r % seq * cols + c]));
}
void k_embed(const buffer &y, const buffer &table, const buffer &places, const buffer &tokens, int rows, int cols,
             int seq) {
    BY_TYPE(y, (embed_kernel<<<GRID(rows * cols)>>>(AS(T, y), AS(const T, table), AS(const T, places), tokens.i(), cols,
                                                    seq, rows * cols)));
}

__device__ static void add_at(float *to, float x) {
    atomicAdd(to, x);
}
__device__ static void add_at(half_type *to, float x) {
    atomicAdd(to, __float2bfloat16(x));
}
template <class T> __global__ void embed_grad_kernel(T *dtable, const T *dy, const int *tokens, int cols, int n) {
    INDEX(n);
    add_at(dtable + tokens[i / cols] * cols + i % cols, get(dy[i]));
}
void k_embed_grad(const buffer &dtable, const buffer &dy, const buffer &tokens, int rows, int cols) {
    BY_TYPE(dy,
            (embed_grad_kernel<<<GRID(rows * cols)>>>(AS(T, dtable), AS(const T, dy), tokens.i(), cols, rows * cols)));
}

template <class T>
__global__ void places_grad_kernel(T *dplaces, const T *dy, int rows, int cols, int seq, int accumulate) {
    INDEX(seq * cols);
    float sum = 0;
    for (int r = i / cols; r < rows; r += seq) sum += get(dy[r * cols + i % cols]);
    put(dplaces + i, accumulate ? get(dplaces[i]) + sum : sum);
}
void k_places_grad(const buffer &dplaces, const buffer &dy, int rows, int cols, int seq, bool accumulate) {
    BY_TYPE(dy,
            (places_grad_kernel<<<GRID(seq * cols)>>>(AS(T, dplaces), AS(const T, dy), rows, cols, seq, accumulate)));
}

/* ---- attention: scores s (rows, cols) of `rows / cols` sequences, row r may see columns up to r % cols ---- */
__global__ void softmax_causal_kernel(float *p, const float *s, int rows, int cols) {
    INDEX(rows);
    int last = i % cols;
    float most = -1e30f, sum = 0;
    for (int c = 0; c <= last; c++) most = fmaxf(most, s[i * cols + c]);
    for (int c = 0; c <= last; c++) sum += expf(s[i * cols + c] - most);
    for (int c = 0; c < cols; c++) p[i * cols + c] = c <= last ? expf(s[i * cols + c] - most) / sum : 0;
}
void k_softmax_causal(const buffer &p, const buffer &s, int rows, int cols) {
    softmax_causal_kernel<<<GRID(rows)>>>(p.f(), s.f(), rows, cols);
    CHECK(cudaGetLastError());
}

__global__ void softmax_grad_kernel(float *ds, const float *p, const float *dp, int rows, int cols) {
    INDEX(rows);
    float sum = 0;
    for (int c = 0; c < cols; c++) sum += p[i * cols + c] * dp[i * cols + c];
    for (int c = 0; c < cols; c++) ds[i * cols + c] = p[i * cols + c] * (dp[i * cols + c] - sum);
}
void k_softmax_grad(const buffer &ds, const buffer &p, const buffer &dp, int rows, int cols) {
    softmax_grad_kernel<<<GRID(rows)>>>(ds.f(), p.f(), dp.f(), rows, cols);
    CHECK(cudaGetLastError());
}

/* ---- losses: a thread a row ---- */
template <class T> __device__ static float log_sum(const T *x, int cols) {
    float most = -1e30f, sum = 0;
    for (int c = 0; c < cols; c++) most = fmaxf(most, get(x[c]));
    for (int c = 0; c < cols; c++) sum += expf(get(x[c]) - most);
    return logf(sum) + most;
}

template <class T> __global__ void loss_kernel(float *losses, const T *logits, const int *targets, int rows, int cols) {
    INDEX(rows);
    losses[i] = log_sum(logits + i * cols, cols) - get(logits[i * cols + targets[i]]);
}
void k_loss(const buffer &losses, const buffer &logits, const buffer &targets, int rows, int cols) {
    BY_TYPE(logits, (loss_kernel<<<GRID(rows)>>>(losses.f(), AS(const T, logits), targets.i(), rows, cols)));
}

template <class T>
__global__ void loss_grad_kernel(T *dlogits, const T *logits, const int *targets, const float *dloss, int rows,
                                 int cols) {
    INDEX(rows);
    float all = log_sum(logits + i * cols, cols);
    for (int c = 0; c < cols; c++)
        put(dlogits + i * cols + c, (expf(get(logits[i * cols + c]) - all) - (c == targets[i])) * dloss[0] / rows);
}
void k_loss_grad(const buffer &dlogits, const buffer &logits, const buffer &targets, const buffer &dloss, int rows,
                 int cols) {
    BY_TYPE(logits, (loss_grad_kernel<<<GRID(rows)>>>(AS(T, dlogits), AS(const T, logits), targets.i(), dloss.f(), rows,
                                                      cols)));
}

template <class T>
__global__ void loss_fused_kernel(T *dlogits, float *losses, const T *logits, const int *targets, int rows, int cols,
                                  float scale) {
    INDEX(rows);
    float all = log_sum(logits + i * cols, cols);
    losses[i] = all - get(logits[i * cols + targets[i]]);
    for (int c = 0; c < cols; c++)
        put(dlogits + i * cols + c, (expf(get(logits[i * cols + c]) - all) - (c == targets[i])) * scale);
}
/* The gradient takes the logits' place. */
template <class T>
__global__ void loss_in_place_kernel(T *logits, float *losses, const int *targets, int rows, int cols, float scale) {
    INDEX(rows);
    float all = log_sum(logits + i * cols, cols);
    losses[i] = all - get(logits[i * cols + targets[i]]);
    for (int c = 0; c < cols; c++) {
        T *x = logits + i * cols + c;
        put(x, (expf(get(*x) - all) - (c == targets[i])) * scale);
    }
}
void k_loss_fused(const buffer &dlogits, const buffer &losses, const buffer &logits, const buffer &targets, int rows,
                  int cols, float scale) {
    if (dlogits.at == logits.at)
        BY_TYPE(logits,
                (loss_in_place_kernel<<<GRID(rows)>>>(AS(T, logits), losses.f(), targets.i(), rows, cols, scale)));
    else
        BY_TYPE(logits, (loss_fused_kernel<<<GRID(rows)>>>(AS(T, dlogits), losses.f(), AS(const T, logits), targets.i(),
                                                           rows, cols, scale)));
}

__global__ void mean_kernel(float *mean, const float *x, int n) {
    float sum = 0;
    for (int i = 0; i < n; i++) sum += x[i];
    mean[0] = sum / n;
}
void k_mean(const buffer &mean, const buffer &x, int n) {
    mean_kernel<<<1, 1>>>(mean.f(), x.f(), n);
    CHECK(cudaGetLastError());
}

__global__ void square_error_kernel(float *losses, float *dy, const float *y, const float *x, int rows, int cols) {
    INDEX(rows);
    float sum = 0;
    for (int c = 0; c < cols; c++) {
        float d = y[i * cols + c] - x[i * cols + c];
        sum += d * d;
        dy[i * cols + c] = 2 * d / (rows * cols);
    }
    losses[i] = sum;
}
void k_square_error(const buffer &losses, const buffer &dy, const buffer &y, const buffer &x, int rows, int cols) {
    square_error_kernel<<<GRID(rows)>>>(losses.f(), dy.f(), y.f(), x.f(), rows, cols);
    CHECK(cudaGetLastError());
}

__global__ void judge_kernel(float *losses, float *dy, const float *y, float target, int rows) {
    INDEX(rows);
    losses[i] = (y[i] - target) * (y[i] - target);
    dy[i] = 2 * (y[i] - target) / rows;
}
void k_judge(const buffer &losses, const buffer &dy, const buffer &y, float target, int rows) {
    judge_kernel<<<GRID(rows)>>>(losses.f(), dy.f(), y.f(), target, rows);
    CHECK(cudaGetLastError());
}

/* ---- 3x3 convolution with a margin of zeros; x (images, in, side, side), w (out, in, 3, 3) ---- */
#define PIXEL(image, channel, r, c, channels) ((((image) * (channels) + (channel)) * side + (r)) * side + (c))
__global__ void conv_kernel(float *y, const float *x, const float *w, int in, int out, int side, int n) {
    INDEX(n);
    int c = i % side, r = i / side % side, o = i / side / side % out, image = i / side / side / out;
    float sum = 0;
    for (int k = 0; k < in * 9; k++) {
        int rr = r + k % 9 / 3 - 1, cc = c + k % 3 - 1;
        if (rr >= 0 && rr < side && cc >= 0 && cc < side) sum += x[PIXEL(image, k / 9, rr, cc, in)] * w[o * in * 9 + k];
    }
    y[i] = sum;
}
void k_conv(const buffer &y, const buffer &x, const buffer &w, int images, int in, int out, int side) {
    int n = images * out * side * side;
    conv_kernel<<<GRID(n)>>>(y.f(), x.f(), w.f(), in, out, side, n);
    CHECK(cudaGetLastError());
}

__global__ void conv_grad_input_kernel(float *dx, const float *dy, const float *w, int in, int out, int side, int n) {
    INDEX(n);
    int c = i % side, r = i / side % side, k = i / side / side % in, image = i / side / side / in;
    float sum = 0;
    for (int o = 0; o < out; o++)
        for (int j = 0; j < 9; j++) {
            int rr = r - j / 3 + 1, cc = c - j % 3 + 1;
            if (rr >= 0 && rr < side && cc >= 0 && cc < side)
                sum += dy[PIXEL(image, o, rr, cc, out)] * w[(o * in + k) * 9 + j];
        }
    dx[i] = sum;
}
void k_conv_grad_input(const buffer &dx, const buffer &dy, const buffer &w, int images, int in, int out, int side) {
    int n = images * in * side * side;
    conv_grad_input_kernel<<<GRID(n)>>>(dx.f(), dy.f(), w.f(), in, out, side, n);
    CHECK(cudaGetLastError());
}

__global__ void conv_grad_weight_kernel(float *dw, const float *dy, const float *x, int images, int in, int out,
                                        int side, int accumulate) {
    INDEX(out * in * 9);
    int j = i % 9, k = i / 9 % in, o = i / 9 / in;
    float sum = accumulate ? dw[i] : 0;
    for (int p = 0; p < images * side * side; p++) {
        int c = p % side, r = p / side % side, image = p / side / side, rr = r + j / 3 - 1, cc = c + j % 3 - 1;
        if (rr >= 0 && rr < side && cc >= 0 && cc < side)
            sum += dy[PIXEL(image, o, r, c, out)] * x[PIXEL(image, k, rr, cc, in)];
    }
    dw[i] = sum;
}
void k_conv_grad_weight(const buffer &dw, const buffer &dy, const buffer &x, int images, int in, int out, int side,
                        bool accumulate) {
    conv_grad_weight_kernel<<<GRID(out * in * 9)>>>(dw.f(), dy.f(), x.f(), images, in, out, side, accumulate);
    CHECK(cudaGetLastError());
}

/* ---- generation, a token a time: caches (sequences, room, cols) ---- */
__global__ void append_kernel(float *cache, const float *x, int place, int room, int cols, int n) {
    INDEX(n);
    cache[(i / cols * room + place) * cols + i % cols] = x[i];
}
void k_append(const buffer &cache, const buffer &x, int sequences, int place, int room, int cols) {
    append_kernel<<<GRID(sequences * cols)>>>(cache.f(), x.f(), place, room, cols, sequences * cols);
    CHECK(cudaGetLastError());
}

/* A thread an element of y = softmax(q keysᵀ) values, over the first `count` places. */
__global__ void attend_kernel(float *y, const float *q, const float *keys, const float *values, int count, int room,
                              int cols, int n) {
    INDEX(n);
    const float *x = q + i / cols * cols;
    float sum = 0, out = 0;
    for (int t = 0; t < count; t++) {
        const float *k = keys + (i / cols * room + t) * cols;
        float dot = 0;
        for (int c = 0; c < cols; c++) dot += x[c] * k[c];
        float p = expf(dot / cols);
        sum += p;
        out += p * values[(i / cols * room + t) * cols + i % cols];
    }
    y[i] = out / sum;
}
void k_attend(const buffer &y, const buffer &q, const buffer &keys, const buffer &values, int sequences, int count,
              int room, int cols) {
    int n = sequences * cols;
    attend_kernel<<<GRID(n)>>>(y.f(), q.f(), keys.f(), values.f(), count, room, cols, n);
    CHECK(cudaGetLastError());
}
