/* The kernels that bench_analyze's synthetic trace launches: what a GPT of few parts needs. The analysis finds their
 * reads, writes and prices from their PTX; nobody runs them. A block takes a row where there are rows. */
extern "C" __global__ void init_normal(float *p, int n, unsigned seed) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) p[i] = (float)((i + seed) * 2654435761u) * 4.6566e-12f;
}

extern "C" __global__ void embed(float *out, const int *tokens, const float *wte, const float *wpe, int T, int C) {
    int row = blockIdx.x, token = tokens[row], t = row % T;
    for (int c = threadIdx.x; c < C; c += blockDim.x) out[(size_t)row * C + c] = wte[(size_t)token * C + c] + wpe[t * C + c];
}

extern "C" __global__ void embed_backward(float *dwte, float *dwpe, const float *dout, const int *tokens, int T, int C) {
    int row = blockIdx.x, token = tokens[row], t = row % T;
    for (int c = threadIdx.x; c < C; c += blockDim.x) {
        atomicAdd(&dwte[(size_t)token * C + c], dout[(size_t)row * C + c]);
        atomicAdd(&dwpe[t * C + c], dout[(size_t)row * C + c]);
    }
}

extern "C" __global__ void scale_rows(float *out, const float *x, const float *w, int C) {
    const float *in = x + (size_t)blockIdx.x * C;
    for (int c = threadIdx.x; c < C; c += blockDim.x) out[(size_t)blockIdx.x * C + c] = in[c] * w[c];
}

extern "C" __global__ void scale_rows_backward(float *dx, float *dw, const float *dout, const float *x, const float *w,
                                               int C) {
    size_t row = (size_t)blockIdx.x * C;
    for (int c = threadIdx.x; c < C; c += blockDim.x) {
        dx[row + c] += dout[row + c] * w[c];
        atomicAdd(&dw[c], dout[row + c] * x[row + c]);
    }
}

extern "C" __global__ void permute(float *out, const float *in, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = in[i];
}

extern "C" __global__ void softmax(float *out, const float *in, int T) {
    const float *x = in + (size_t)blockIdx.x * T;
    float sum = 0;
    for (int t = 0; t < T; t++) sum += expf(x[t]);
    for (int t = threadIdx.x; t < T; t += blockDim.x) out[(size_t)blockIdx.x * T + t] = expf(x[t]) / sum;
}

extern "C" __global__ void softmax_backward(float *dpre, const float *datt, const float *att, int T) {
    size_t row = (size_t)blockIdx.x * T;
    float sum = 0;
    for (int t = 0; t < T; t++) sum += datt[row + t] * att[row + t];
    for (int t = threadIdx.x; t < T; t += blockDim.x) dpre[row + t] = att[row + t] * (datt[row + t] - sum);
}

extern "C" __global__ void gelu(float *out, const float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] * 0.5f * (1 + tanhf(0.8f * x[i]));
}

extern "C" __global__ void gelu_backward(float *dx, const float *x, const float *dout, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) dx[i] = dout[i] * 0.5f * (1 + tanhf(0.8f * x[i]));
}

extern "C" __global__ void residual(float *out, const float *a, const float *b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = a[i] + b[i];
}

extern "C" __global__ void cross_entropy(float *losses, float *dlogits, const float *logits, const int *targets, int V) {
    const float *x = logits + (size_t)blockIdx.x * V;
    int target = targets[blockIdx.x];
    float sum = 0;
    for (int v = 0; v < V; v++) sum += expf(x[v]);
    for (int v = threadIdx.x; v < V; v += blockDim.x)
        dlogits[(size_t)blockIdx.x * V + v] = expf(x[v]) / sum - (v == target);
    if (threadIdx.x == 0) losses[blockIdx.x] = logf(sum) - x[target];
}

extern "C" __global__ void adamw(float *w, float *m, float *v, const float *g, float lr, float c1, float c2, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float mi = 0.9f * m[i] + 0.1f * g[i], vi = 0.95f * v[i] + 0.05f * g[i] * g[i];
    m[i] = mi;
    v[i] = vi;
    w[i] -= lr * (mi / c1 / (sqrtf(vi / c2) + 1e-8f) + 0.1f * w[i]);
}
