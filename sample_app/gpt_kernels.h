/* The kernels of the GPT, each behind a C function that launches it on a stream. gpt_kernels.cu has the code.
 *
 * The letters: B sequences in a batch, T positions, C channels (the width), H heads of Q = C / H channels, V tokens in
 * the vocabulary, N rows (mostly B·T). Everything is fp32 and row-major; the last dimension is contiguous. All pointers
 * are device memory, which the caller owns. A launch returns at once; whether it was accepted is what cudaGetLastError
 * says. All sums are made in a fixed order: the same input gives the same bits. */
#ifndef TRAIN_GPT_KERNELS_H
#define TRAIN_GPT_KERNELS_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- initialisation ---- */
void gpt_init_normal(float *w, int n, float std, uint64_t key, cudaStream_t stream); /* w[i] = std · normal(key, i) */
void gpt_fill(float *w, int n, float value, cudaStream_t stream);

/* ---- forward ---- */
/* out (B, T, C) = wte (V, C) at tokens (B, T), plus wpe (T, C) */
void gpt_embed(float *out, const int *tokens, const float *wte, const float *wpe, int B, int T, int C, cudaStream_t);
/* out (N, C) = (x − mean) · rstd · weight (C) + bias (C), by rows of x (N, C); mean (N) and rstd (N) are kept */
void gpt_layernorm(float *out, float *mean, float *rstd, const float *x, const float *weight, const float *bias, int N,
                   int C, cudaStream_t);
/* out (N, C) += bias (C) */
void gpt_add_bias(float *out, const float *bias, int N, int C, cudaStream_t);
/* q, k, v (B, H, T, Q) from qkv (B, T, 3, H, Q) */
void gpt_split_heads(float *q, float *k, float *v, const float *qkv, int B, int T, int H, int Q, cudaStream_t);
/* out (B, T, H, Q) from x (B, H, T, Q) */
void gpt_join_heads(float *out, const float *x, int B, int T, int H, int Q, cudaStream_t);
/* att (R, T, T), R = B·H: each row t becomes softmax(scale · row) over columns 0…t, and 0 beyond */
void gpt_causal_softmax(float *att, int R, int T, float scale, cudaStream_t);
/* out (n) = gelu(x), tanh form */
void gpt_gelu(float *out, const float *x, int n, cudaStream_t);
/* out (n) = a + b */
void gpt_residual(float *out, const float *a, const float *b, int n, cudaStream_t);
/* losses (N) = −log softmax(logits (N, V)) at targets (N); dlogits (N, V) = ∂(mean of losses)/∂logits */
void gpt_cross_entropy(float *losses, float *dlogits, const float *logits, const int *targets, int N, int V,
                       cudaStream_t);
/* out (1) = mean of x (n) */
void gpt_mean(float *out, const float *x, int n, cudaStream_t);

/* ---- backward: d… is ∂loss/∂… Gradients of parameters are added to, all others overwritten unless said. ---- */
/* x (n), which holds ∂loss/∂gelu(pre), becomes ∂loss/∂pre */
void gpt_gelu_backward(float *x, const float *pre, int n, cudaStream_t);
/* dx (N, C) += … */
void gpt_layernorm_backward(float *dx, const float *dout, const float *x, const float *weight, const float *mean,
                            const float *rstd, int N, int C, cudaStream_t);
/* dweight (C), dbias (C) += … */
void gpt_layernorm_weights_backward(float *dweight, float *dbias, const float *dout, const float *x, const float *mean,
                                    const float *rstd, int N, int C, cudaStream_t);
/* dbias (C) += sum of dout (N, C) over its rows */
void gpt_bias_backward(float *dbias, const float *dout, int N, int C, cudaStream_t);
/* datt (R, T, T), which holds ∂loss/∂att, becomes ∂loss/∂scores; att is what gpt_causal_softmax left */
void gpt_causal_softmax_backward(float *datt, const float *att, int R, int T, float scale, cudaStream_t);
/* dqkv (B, T, 3, H, Q) from dq, dk, dv (B, H, T, Q) */
void gpt_split_heads_backward(float *dqkv, const float *dq, const float *dk, const float *dv, int B, int T, int H,
                              int Q, cudaStream_t);
/* dx (B, H, T, Q) from dout (B, T, H, Q) */
void gpt_join_heads_backward(float *dx, const float *dout, int B, int T, int H, int Q, cudaStream_t);
/* dwte (V, C), dwpe (T, C) += … from dout (B, T, C) */
void gpt_embed_tokens_backward(float *dwte, const float *dout, const int *tokens, int B, int T, int C, int V,
                               cudaStream_t);
void gpt_embed_positions_backward(float *dwpe, const float *dout, int B, int T, int C, cudaStream_t);

/* ---- updates of w (n) by its gradient g (n) ---- */
void gpt_sgd(float *w, const float *g, int n, float lr, cudaStream_t);
/* v (n) = mu·v + g, w −= lr·v */
void gpt_momentum(float *w, float *v, const float *g, int n, float lr, float mu, cudaStream_t);

struct gpt_adamw_rates {
    float lr, beta1, beta2, epsilon, decay;
    float correct1, correct2; /* 1 / (1 − beta^step) */
};
/* m (n), v (n): running means of g and g²; w −= lr · (m' / (√v' + epsilon) + decay · w) with m', v' corrected */
void gpt_adamw(float *w, float *m, float *v, const float *g, int n, struct gpt_adamw_rates, cudaStream_t);

#ifdef __cplusplus
}
#endif
#endif
