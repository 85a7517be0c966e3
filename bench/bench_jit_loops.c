#include "bench/bench_jit_loops.h"

#include <math.h>
#include <stddef.h>

void loop_saxpy(float *restrict y, const float *restrict x, float a, int n) {
    for (int i = 0; i < n; i++) y[i] += a * x[i];
}

void loop_residual(float *restrict out, const float *restrict a, const float *restrict b, int n) {
    for (int i = 0; i < n; i++) out[i] = a[i] + b[i];
}

void loop_adamw(float *restrict w, float *restrict m, float *restrict v, const float *restrict g, const float p[7],
                int n) {
    float lr = p[0], b1 = p[1], b2 = p[2], c1 = p[3], c2 = p[4], eps = p[5], decay = p[6];
    for (int i = 0; i < n; i++) {
        float mi = b1 * m[i] + (1 - b1) * g[i], vi = b2 * v[i] + (1 - b2) * g[i] * g[i];
        m[i] = mi;
        v[i] = vi;
        w[i] -= lr * (mi / c1 / (sqrtf(vi / c2) + eps) + decay * w[i]);
    }
}

void loop_gelu(float *restrict out, const float *restrict x, int n) {
    for (int i = 0; i < n; i++) {
        float v = x[i];
        out[i] = 0.5f * v * (1 + tanhf(0.7978845608f * (v + 0.044715f * v * v * v)));
    }
}

void loop_layernorm(float *restrict out, const float *restrict in, const float *restrict weight,
                    const float *restrict bias, int rows, int C) {
    for (int r = 0; r < rows; r++) {
        const float *x = in + (size_t)r * (size_t)C;
        float *y = out + (size_t)r * (size_t)C, sum = 0, square = 0;
        for (int c = 0; c < C; c++) sum += x[c], square += x[c] * x[c];
        float mean = sum / (float)C, scale = 1 / sqrtf(square / (float)C - mean * mean + 1e-5f);
        for (int c = 0; c < C; c++) y[c] = (x[c] - mean) * scale * weight[c] + bias[c];
    }
}

void loop_softmax(float *restrict out, const float *restrict in, int rows, int C) {
    for (int r = 0; r < rows; r++) {
        const float *x = in + (size_t)r * (size_t)C;
        float *y = out + (size_t)r * (size_t)C, top = -1e30f, sum = 0;
        for (int c = 0; c < C; c++) top = x[c] > top ? x[c] : top;
        for (int c = 0; c < C; c++) {
            float e = expf(x[c] - top);
            y[c] = e;
            sum += e;
        }
        for (int c = 0; c < C; c++) y[c] /= sum;
    }
}
