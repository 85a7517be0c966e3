/* The GPT's kernels in one number format (argv[1]: 0 fp32, 1 bf16, 2 fp16), each on numbers that all formats have. What
 * each leaves goes to stdout: a line "name kind elements" (kind: real, float), then the elements as they are in memory.
 */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "sample_app/checked_call.h"
#include "sample_app/gpt_kernels.h"

enum { B = 2, T = 37, H = 3, Q = 15, C = H * Q, V = 300, N = B * T, ROWS = B * H * T, SCORES = ROWS * T };

static enum number_format format;
static uint32_t state;

static int draw_below(int n) {
    state = state * 1664525u + 1013904223u;
    return (int)(state >> 16) % n;
}

/* k / 64, |k| <= 255: eight bits, as many as bf16 has. */
static float draw(void) {
    return (float)(draw_below(511) - 255) / 64;
}

/* Of a number that bf16 and fp16 have. */
static uint16_t half_bits(float x) {
    int exponent;
    float mantissa = frexpf(fabsf(x), &exponent); /* 0.5 to 1 */
    int sign = x < 0 ? 0x8000 : 0;
    if (x == 0) return 0;
    if (format == FORMAT_BF16) return (uint16_t)(sign | (exponent + 126) << 7 | (int)((mantissa * 2 - 1) * 128));
    return (uint16_t)(sign | (exponent + 14) << 10 | (int)((mantissa * 2 - 1) * 1024));
}

static void *on_device(const void *from, size_t bytes) {
    void *p;
    CHECK(cudaMalloc(&p, bytes));
    CHECK(cudaMemcpy(p, from, bytes, cudaMemcpyHostToDevice));
    return p;
}

static float *floats(size_t n) {
    float *x = malloc(n * sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = draw();
    float *p = on_device(x, n * sizeof *x);
    free(x);
    return p;
}

static real *reals(size_t n) {
    if (format == FORMAT_FP32) return floats(n);
    uint16_t *x = malloc(n * sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = half_bits(draw());
    real *p = on_device(x, n * sizeof *x);
    free(x);
    return p;
}

static int *tokens(int n) {
    int *x = malloc((size_t)n * sizeof *x);
    for (int i = 0; i < n; i++) x[i] = draw_below(V);
    int *p = on_device(x, (size_t)n * sizeof *x);
    free(x);
    return p;
}

static void put(const char *name, const void *p, size_t n, bool is_real) {
    size_t bytes = n * (is_real ? format_bytes(format) : sizeof(float));
    void *x = malloc(bytes);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(x, p, bytes, cudaMemcpyDeviceToHost));
    printf("%s %s %zu\n", name, is_real ? "real" : "float", n);
    fwrite(x, 1, bytes, stdout);
    free(x);
}
#define REAL(x, n) put(#x, x, n, true)
#define FLOAT(x, n) put(#x, x, n, false)

static void forward(void) {
    real *normal = reals(999), *filled = reals(999);
    gpt_init_normal(format, normal, 999, 0.02f, 77, 0);
    gpt_fill(format, filled, 999, 1.1f, 0);
    REAL(normal, 999), REAL(filled, 999);

    real *embedded = reals(N * C), *normed = reals(N * C), *biased = reals(N * C), *added = reals(N * C);
    float *mean = floats(N), *rstd = floats(N);
    gpt_embed(format, embedded, tokens(N), reals(V * C), reals(T * C), B, T, C, 0);
    gpt_layernorm(format, normed, mean, rstd, reals(N * C), reals(C), reals(C), N, C, 0);
    gpt_add_bias(format, biased, reals(C), N, C, 0);
    gpt_residual(format, added, reals(N * C), reals(N * C), N * C, 0);
    REAL(embedded, N * C), REAL(normed, N * C), FLOAT(mean, N), FLOAT(rstd, N), REAL(biased, N * C), REAL(added, N * C);

    real *q = reals(N * C), *k = reals(N * C), *v = reals(N * C), *joined = reals(N * C), *att = reals(SCORES);
    real *gelu = reals(N * C);
    gpt_split_heads(format, q, k, v, reals(3 * N * C), B, T, H, Q, 0);
    gpt_join_heads(format, joined, reals(N * C), B, T, H, Q, 0);
    gpt_causal_softmax(format, att, B * H, T, 0.75f, 0);
    gpt_gelu(format, gelu, reals(N * C), N * C, 0);
    REAL(q, N * C), REAL(k, N * C), REAL(v, N * C), REAL(joined, N * C), REAL(att, SCORES), REAL(gelu, N * C);
}

static void loss(void) {
    real *logits = reals(N * V), *dlogits = reals(N * V);
    int *targets = tokens(N);
    float *losses = floats(N), *evaluated = floats(N), *mean_loss = floats(1);
    gpt_cross_entropy(format, losses, dlogits, logits, targets, N, V, 3.0f, 0);
    gpt_cross_entropy(format, evaluated, NULL, logits, targets, N, V, 3.0f, 0);
    gpt_mean(mean_loss, losses, N, 0);
    REAL(logits, N * V), REAL(dlogits, N * V), FLOAT(losses, N), FLOAT(evaluated, N), FLOAT(mean_loss, 1);
}

static void backward(void) {
    real *dgelu = reals(N * C), *dx = reals(N * C), *datt = reals(SCORES), *dqkv = reals(3 * N * C);
    real *djoined = reals(N * C), *dout = reals(N * C), *x = reals(N * C);
    float *mean = floats(N), *rstd = floats(N);
    gpt_gelu_backward(format, dgelu, reals(N * C), N * C, 0);
    gpt_layernorm_backward(format, dx, dout, x, reals(C), mean, rstd, N, C, 0);
    gpt_causal_softmax_backward(format, datt, reals(SCORES), B * H, T, 0.75f, 0);
    gpt_split_heads_backward(format, dqkv, reals(N * C), reals(N * C), reals(N * C), B, T, H, Q, 0);
    gpt_join_heads_backward(format, djoined, dout, B, T, H, Q, 0);
    REAL(dgelu, N * C), REAL(dx, N * C), REAL(datt, SCORES), REAL(dqkv, 3 * N * C), REAL(djoined, N * C);

    float *dweight = floats(C), *dbias = floats(C), *dwte = floats(V * C), *dwpe = floats(T * C), *dsum = floats(C);
    gpt_layernorm_weights_backward(format, dweight, dbias, dout, x, mean, rstd, N, C, 0);
    gpt_bias_backward(format, dsum, dout, N, C, 0);
    gpt_embed_tokens_backward(format, dwte, dout, tokens(N), B, T, C, V, 0);
    gpt_embed_positions_backward(format, dwpe, dout, B, T, C, 0);
    FLOAT(dweight, C), FLOAT(dbias, C), FLOAT(dsum, C), FLOAT(dwte, V * C), FLOAT(dwpe, T * C);
}

int main(int argc, char **argv) {
    format = argc > 1 ? (enum number_format)atoi(argv[1]) : FORMAT_FP32;
    forward(), loss(), backward();
    CHECK(cudaDeviceSynchronize());
    return 0;
}
