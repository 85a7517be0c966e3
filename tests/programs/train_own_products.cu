/* A program that trains a small network, multiplies by kernels of its own in forward and by cuBLAS in backward, in the
 * manner of small trainers: all parameters in one block, likewise their gradients; the loss leaves its gradient where
 * the logits were; gradients of activations take turns in two halves of one block. It tells its account (mould.h).
 *   train_own_products [key=value …] */
#include <cublas_v2.h>

static struct option {
    const char *key, *value;
} options[] = {{"layers", "3"}, {"dim", "64"}, {"rows", "32"}, {"steps", "4"}, {"accum", "1"}, {"eval", "0"}};
#include "tests/programs/mould.h"

#define CHECK(call)                                                                \
    do {                                                                           \
        if (call) {                                                                \
            fprintf(stderr, "train_own_products: line %d: %s\n", __LINE__, #call); \
            exit(1);                                                               \
        }                                                                          \
    } while (0)

/* out (B, O) = in (B, C) · w (O, C)ᵀ + bias (O): a thread an element */
__global__ void linear_kernel(float *out, const float *in, const float *w, const float *bias, int B, int C, int O) {
    int o = blockIdx.x * blockDim.x + threadIdx.x, b = blockIdx.y;
    if (o >= O) return;
    float sum = bias[o];
    for (int c = 0; c < C; c++) sum += in[b * C + c] * w[o * C + c];
    out[b * O + o] = sum;
}

__global__ void relu_kernel(float *out, const float *in, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = fmaxf(in[i], 0);
}

__global__ void relu_backward_kernel(float *din, const float *in, const float *dout, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) din[i] = in[i] > 0 ? dout[i] : 0;
}

/* Cross-entropy of a row; its gradient takes the logits' place. A thread a row. */
__global__ void loss_kernel(float *logits, float *losses, const int *targets, int B, int C) {
    int b = blockIdx.x * blockDim.x + threadIdx.x;
    if (b >= B) return;
    float *x = logits + b * C, most = -1e30f, sum = 0;
    for (int c = 0; c < C; c++) most = fmaxf(most, x[c]);
    for (int c = 0; c < C; c++) sum += expf(x[c] - most);
    losses[b] = logf(sum) + most - x[targets[b]];
    for (int c = 0; c < C; c++) x[c] = (expf(x[c] - most) / sum - (c == targets[b])) / B;
}

/* dbias (C) += sums of columns of dout (B, C) */
__global__ void bias_backward_kernel(float *dbias, const float *dout, int B, int C) {
    int c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= C) return;
    float sum = 0;
    for (int b = 0; b < B; b++) sum += dout[b * C + c];
    dbias[c] += sum;
}

__global__ void adam_kernel(float *w, const float *grad, float *m, float *v, int n, int t) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    m[i] = 0.9f * m[i] + 0.1f * grad[i];
    v[i] = 0.999f * v[i] + 0.001f * grad[i] * grad[i];
    w[i] -= 0.001f * (m[i] / (1 - powf(0.9f, t))) / (sqrtf(v[i] / (1 - powf(0.999f, t))) + 1e-8f);
}

static int L, D, B;
static float *params, *grads, *m, *v, *acts, *dacts, *losses, *x;
static int *targets;
static cublasHandle_t handle;

static float *make(const char *name, const char *role, size_t floats) {
    struct buffer *b = &buffers[n_buffers++];
    b->name = name, b->role = role, b->bytes = floats * sizeof(float);
    CHECK(cudaMalloc(&b->at, b->bytes));
    CHECK(cudaMemset(b->at, 0, b->bytes));
    return (float *)b->at;
}

/* Layer l: weights (D, D), then biases (D). */
static float *weight(float *base, int l) {
    return base + (size_t)l * (D * D + D);
}
static float *before_relu(int l) {
    return acts + (size_t)2 * l * B * D;
}
static float *behind_relu(int l) {
    return before_relu(l) + B * D;
}
static const float *input_of(int l) {
    return l ? behind_relu(l - 1) : x;
}

static void load_batch(int seed) {
    float *h = (float *)malloc(B * D * sizeof(float));
    int *t = (int *)malloc(B * sizeof(int));
    for (int i = 0; i < B * D; i++) h[i] = (float)((i * 7 + seed * 13) % 17) / 17;
    for (int b = 0; b < B; b++) t[b] = (b + seed) % D;
    CHECK(cudaMemcpy(x, h, B * D * sizeof(float), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(targets, t, B * sizeof(int), cudaMemcpyHostToDevice));
    free(h), free(t);
}

static void forward(void) {
    for (int l = 0; l < L; l++) {
        const float *w = weight(params, l);
        linear_kernel<<<dim3((D + 63) / 64, B), 64>>>(before_relu(l), input_of(l), w, w + D * D, B, D, D);
        if (l + 1 < L) relu_kernel<<<(B * D + 127) / 128, 128>>>(behind_relu(l), before_relu(l), B * D);
    }
    loss_kernel<<<(B + 31) / 32, 32>>>(before_relu(L - 1), losses, targets, B, D);
    float host[1024];
    CHECK(cudaMemcpy(host, losses, B * sizeof(float), cudaMemcpyDeviceToHost));
}

/* A cuBLAS product; column-major, as cuBLAS has it. */
static void multiply(cublasOperation_t ta, cublasOperation_t tb, int mm, int nn, int kk, const float *a, const float *b,
                     float beta, float *c) {
    const float one = 1;
    CHECK(cublasSgemm(handle, ta, tb, mm, nn, kk, &one, a, D, b, D, &beta, c, D));
    flops[step][BACKWARD] += 2LL * mm * nn * kk;
}

static void backward(void) {
    float *d = before_relu(L - 1);
    for (int l = L - 1; l >= 0; l--) {
        float *dw = weight(grads, l), *dx = dacts + (size_t)(l % 2) * B * D;
        if (l) multiply(CUBLAS_OP_N, CUBLAS_OP_N, D, B, D, weight(params, l), d, 0, dx);
        multiply(CUBLAS_OP_N, CUBLAS_OP_T, D, D, B, input_of(l), d, 1, dw);
        bias_backward_kernel<<<(D + 63) / 64, 64>>>(dw + D * D, d, B, D);
        if (l) relu_backward_kernel<<<(B * D + 127) / 128, 128>>>(dx, before_relu(l - 1), dx, B * D);
        d = dx;
    }
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        char *equals = strchr(argv[i], '=');
        if (!equals) return 2;
        *equals = 0;
        text(argv[i]);
        for (size_t k = 0; k < sizeof options / sizeof *options; k++)
            if (!strcmp(options[k].key, argv[i])) options[k].value = equals + 1;
    }
    L = number("layers"), D = number("dim"), B = number("rows");
    size_t n = (size_t)L * (D * D + D);
    CHECK(cublasCreate(&handle));
    params = make("params", "param", n);
    float *h = (float *)malloc(n * sizeof(float));
    for (size_t i = 0; i < n; i++) h[i] = (float)((int)(i * 2654435761u >> 20) % 200 - 100) / 1000;
    CHECK(cudaMemcpy(params, h, n * sizeof(float), cudaMemcpyHostToDevice));
    free(h);
    grads = make("grads", "grad", n);
    m = make("m", "optimizer", n), v = make("v", "optimizer", n);
    acts = make("acts", "activation", (size_t)2 * L * B * D - B * D);
    dacts = make("dacts", "activation_grad", (size_t)2 * B * D);
    losses = make("losses", "activation", B);
    x = make("x", "input", (size_t)B * D);
    targets = (int *)make("targets", "input", B);
    for (step = 0; step < number("steps"); step++) {
        if (number("eval") && step % number("eval") == 0) load_batch(1000 + step), forward();
        CHECK(cudaMemset(grads, 0, n * sizeof(float)));
        for (int k = 0; k < number("accum"); k++) {
            load_batch(step * number("accum") + k);
            forward();
            backward();
            micro_batches[step]++;
            rows[step] += B;
        }
        adam_kernel<<<(unsigned)(n + 127) / 128, 128>>>(params, grads, m, v, (int)n, step + 1);
        flops[step][FORWARD] = 2LL * L * B * D * D * number("accum"); /* of its own kernels */
    }
    CHECK(cudaDeviceSynchronize());
    tell();
    return 0;
}
