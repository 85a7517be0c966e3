/* Kernels of the optimizers. */
#include "tests/programs/kinds.h"

typedef __nv_bfloat16 half_type;
#define INDEX(n)                                   \
    int i = blockIdx.x * blockDim.x + threadIdx.x; \
    if (i >= (n)) return
#define GRID(n) (unsigned)(((n) + 63) / 64), 64
#define LAUNCHED CHECK(cudaGetLastError())

__global__ void sgd_kernel(float *w, const float *g, float rate, int n) {
    INDEX(n);
    w[i] -= rate * g[i];
}
void k_sgd(const buffer &w, const buffer &g, float rate) {
    sgd_kernel<<<GRID(w.n)>>>(w.f(), g.f(), rate, (int)w.n);
    LAUNCHED;
}

__global__ void momentum_kernel(float *w, const float *g, float *m, float rate, int n) {
    INDEX(n);
    m[i] = 0.9f * m[i] + g[i];
    w[i] -= rate * m[i];
}
void k_momentum(const buffer &w, const buffer &g, const buffer &m, float rate) {
    momentum_kernel<<<GRID(w.n)>>>(w.f(), g.f(), m.f(), rate, (int)w.n);
    LAUNCHED;
}

__device__ static float adamw(float w, float g, float *m, float *v, float rate, int step) {
    *m = 0.9f * *m + 0.1f * g;
    *v = 0.999f * *v + 0.001f * g * g;
    float a = *m / (1 - powf(0.9f, step)), b = *v / (1 - powf(0.999f, step));
    return w - rate * (a / (sqrtf(b) + 1e-8f) + 0.01f * w);
}
__global__ void adamw_kernel(float *w, const float *g, float *m, float *v, float rate, int step, int n) {
    INDEX(n);
    w[i] = adamw(w[i], g[i], m + i, v + i, rate, step);
}
void k_adamw(const buffer &w, const buffer &g, const buffer &m, const buffer &v, float rate, int step, size_t n) {
    if (!n) n = w.n;
    adamw_kernel<<<GRID(n)>>>(w.f(), g.f(), m.f(), v.f(), rate, step, (int)n);
    LAUNCHED;
}

/* The update works on the fp32 master, from bf16 gradients, and leaves the weight rounded. */
__global__ void adamw_master_kernel(half_type *w, float *master, const half_type *g, float *m, float *v, float rate,
                                    int step, int n) {
    INDEX(n);
    master[i] = adamw(master[i], __bfloat162float(g[i]), m + i, v + i, rate, step);
    w[i] = __float2bfloat16(master[i]);
}
__global__ void adamw_of_half_kernel(float *master, const half_type *g, float *m, float *v, float rate, int step,
                                     int n) {
    INDEX(n);
    master[i] = adamw(master[i], __bfloat162float(g[i]), m + i, v + i, rate, step);
}
void k_adamw_master(const buffer &w, const buffer &master, const buffer &g, const buffer &m, const buffer &v,
                    float rate, int step) {
    if (w.at)
        adamw_master_kernel<<<GRID(master.n)>>>(w.h(), master.f(), g.h(), m.f(), v.f(), rate, step, (int)master.n);
    else
        adamw_of_half_kernel<<<GRID(master.n)>>>(master.f(), g.h(), m.f(), v.f(), rate, step, (int)master.n);
    LAUNCHED;
}

__global__ void ema_kernel(float *average, const float *w, float keep, int n) {
    INDEX(n);
    average[i] = keep * average[i] + (1 - keep) * w[i];
}
void k_ema(const buffer &average, const buffer &w, float keep) {
    ema_kernel<<<GRID(w.n)>>>(average.f(), w.f(), keep, (int)w.n);
    LAUNCHED;
}

__global__ void square_norm_kernel(float *norm, const float *g, int n) {
    INDEX(n);
    atomicAdd(norm, g[i] * g[i]);
}
void k_square_norm(const buffer &norm, const buffer &g) {
    square_norm_kernel<<<GRID(g.n)>>>(norm.f(), g.f(), (int)g.n);
    LAUNCHED;
}

__global__ void clip_kernel(float *g, const float *norm, float most, int n) {
    INDEX(n);
    float length = sqrtf(norm[0]);
    g[i] *= length > most ? most / length : 1;
}
void k_clip(const buffer &g, const buffer &norm, float most) {
    clip_kernel<<<GRID(g.n)>>>(g.f(), norm.f(), most, (int)g.n);
    LAUNCHED;
}

__global__ void unscale_kernel(float *g, float *flag, float factor, int n) {
    INDEX(n);
    float x = g[i] * factor;
    if (!isfinite(x)) flag[0] = 1;
    g[i] = x;
}
void k_unscale(const buffer &g, const buffer &flag, float factor) {
    unscale_kernel<<<GRID(g.n)>>>(g.f(), flag.f(), factor, (int)g.n);
    LAUNCHED;
}

/* ---- lists: one launch for many tensors ---- */
enum { LIST = 12 };
struct list {
    float *x[LIST], *y[LIST], *z[LIST];
    int n[LIST];
};
/* blockIdx.y is the tensor; the operation as a template, as foreach kernels have it. */
template <int OP> __global__ void list_kernel(list l, float a) {
    int t = blockIdx.y, i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= l.n[t]) return;
    float *x = l.x[t] + i;
    const float *y = l.y[t] + i, *z = l.z[t] + i;
    if (OP == LIST_LERP) *x += a * (*y - *x);
    if (OP == LIST_SQUARES) *x = a * *x + (1 - a) * *y * *y;
    if (OP == LIST_ROOT) *x = sqrtf(*y) + a;
    if (OP == LIST_QUOTIENT) *x -= a * *y / *z;
    if (OP == LIST_SCALE) *x *= a;
    if (OP == LIST_SGD) *x -= a * *y;
}

typedef std::vector<buffer> buffers;
static float *nth(const buffers &b, size_t i) {
    return i < b.size() ? b[i].f() : NULL;
}
void k_list(list_op op, const buffers &x, const buffers &y, const buffers &z, float a) {
    for (size_t first = 0; first < x.size(); first += LIST) {
        list l = {};
        unsigned tensors = 0, longest = 0;
        for (size_t i = first; i < x.size() && tensors < LIST; i++, tensors++) {
            l.x[tensors] = nth(x, i), l.y[tensors] = nth(y, i), l.z[tensors] = nth(z, i);
            l.n[tensors] = (int)x[i].n;
            longest = x[i].n > longest ? (unsigned)x[i].n : longest;
        }
        dim3 grid((longest + 63) / 64, tensors);
        switch (op) {
        case LIST_LERP:
            list_kernel<LIST_LERP><<<grid, 64>>>(l, a);
            break;
        case LIST_SQUARES:
            list_kernel<LIST_SQUARES><<<grid, 64>>>(l, a);
            break;
        case LIST_ROOT:
            list_kernel<LIST_ROOT><<<grid, 64>>>(l, a);
            break;
        case LIST_QUOTIENT:
            list_kernel<LIST_QUOTIENT><<<grid, 64>>>(l, a);
            break;
        case LIST_SCALE:
            list_kernel<LIST_SCALE><<<grid, 64>>>(l, a);
            break;
        case LIST_SGD:
            list_kernel<LIST_SGD><<<grid, 64>>>(l, a);
            break;
        }
        LAUNCHED;
    }
}

struct adam_list {
    float *w[LIST], *g[LIST], *m[LIST], *v[LIST];
    int n[LIST];
};
__global__ void list_adamw_kernel(adam_list l, float rate, int step) {
    int t = blockIdx.y, i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= l.n[t]) return;
    l.w[t][i] = adamw(l.w[t][i], l.g[t][i], l.m[t] + i, l.v[t] + i, rate, step);
}
void k_list_adamw(const buffers &w, const buffers &g, const buffers &m, const buffers &v, float rate, int step) {
    for (size_t first = 0; first < w.size(); first += LIST) {
        adam_list l = {};
        unsigned tensors = 0, longest = 0;
        for (size_t i = first; i < w.size() && tensors < LIST; i++, tensors++) {
            l.w[tensors] = w[i].f(), l.g[tensors] = g[i].f(), l.m[tensors] = m[i].f(), l.v[tensors] = v[i].f();
            l.n[tensors] = (int)w[i].n;
            longest = w[i].n > longest ? (unsigned)w[i].n : longest;
        }
        list_adamw_kernel<<<dim3((longest + 63) / 64, tensors), 64>>>(l, rate, step);
        LAUNCHED;
    }
}
