/* The kernels of the GPT, each behind a C function that launches it on a
 * stream. gpt_kernels.cu has the code.
 *
 * The letters: B sequences in a batch, T positions, C channels (the width), H
 * heads of Q = C / H channels, V tokens in the vocabulary, N rows (mostly B·T).
 * Everything is row-major; the last dimension is contiguous. `f` is the format
 * of all `real` (number_format.h: fp32, bf16 or fp16); sums are fp32, and what
 * is stored as real is rounded once. All pointers are device memory, which the
 * caller owns. A launch returns at once; whether it was accepted is what
 * cudaGetLastError says. All sums are made in a fixed order: the same input
 * gives the same bits. */
#ifndef TRAIN_GPT_KERNELS_H
#define TRAIN_GPT_KERNELS_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#include "sample_app/number_format.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- initialisation ---- */
void gpt_init_normal(enum number_format f, real *w, int n, float std, uint64_t key,
                     cudaStream_t stream); /* w[i] = std · normal(key, i) */
void gpt_fill(enum number_format f, real *w, int n, float value, cudaStream_t stream);

/* ---- forward ---- */
/* out (B, T, C) = wte (V, C) at tokens (B, T), plus wpe (T, C) */
void gpt_embed(enum number_format f, real *out, const int *tokens, const real *wte, const real *wpe, int B, int T,
               int C, cudaStream_t);
/* out (N, C) = (x − mean) · rstd · weight (C) + bias (C), by rows of x (N, C);
 * mean (N) and rstd (N) are kept */
void gpt_layernorm(enum number_format f, real *out, float *mean, float *rstd, const real *x, const real *weight,
                   const real *bias, int N, int C, cudaStream_t);
/* out (N, C) += bias (C) */
void gpt_add_bias(enum number_format f, real *out, const real *bias, int N, int C, cudaStream_t);
/* q, k, v (B, H, T, Q) from qkv (B, T, 3, H, Q) */
void gpt_split_heads(enum number_format f, real *q, real *k, real *v, const real *qkv, int B, int T, int H, int Q,
                     cudaStream_t);
/* out (B, T, H, Q) from x (B, H, T, Q) */
void gpt_join_heads(enum number_format f, real *out, const real *x, int B, int T, int H, int Q, cudaStream_t);
/* att (R, T, T), R = B·H: each row t becomes softmax(scale · row) over columns
 * 0…t, and 0 beyond */
void gpt_causal_softmax(enum number_format f, real *att, int R, int T, float scale, cudaStream_t);
/* out (n) = gelu(x), tanh form */
void gpt_gelu(enum number_format f, real *out, const real *x, int n, cudaStream_t);
/* out (n) = a + b */
void gpt_residual(enum number_format f, real *out, const real *a, const real *b, int n, cudaStream_t);
/* losses (N) = −log softmax(logits (N, V)) at targets (N); dlogits (N, V) =
 * scale · ∂(sum of losses)/∂logits. Without dlogits (NULL) only the losses. */
void gpt_cross_entropy(enum number_format f, float *losses, real *dlogits, const real *logits, const int *targets,
                       int N, int V, float scale, cudaStream_t);
/* out (1) = mean of x (n) */
void gpt_mean(float *out, const float *x, int n, cudaStream_t);

/* ---- backward: d… is ∂loss/∂… Gradients of parameters are added to, all
 * others overwritten unless said. ---- */
/* x (n), which holds ∂loss/∂gelu(pre), becomes ∂loss/∂pre */
void gpt_gelu_backward(enum number_format f, real *x, const real *pre, int n, cudaStream_t);
/* dx (N, C) += … */
void gpt_layernorm_backward(enum number_format f, real *dx, const real *dout, const real *x, const real *weight,
                            const float *mean, const float *rstd, int N, int C, cudaStream_t);
/* dweight (C), dbias (C) += … */
void gpt_layernorm_weights_backward(enum number_format f, float *dweight, float *dbias, const real *dout, const real *x,
                                    const float *mean, const float *rstd, int N, int C, cudaStream_t);
/* dbias (C) += sum of dout (N, C) over its rows */
void gpt_bias_backward(enum number_format f, float *dbias, const real *dout, int N, int C, cudaStream_t);
/* datt (R, T, T), which holds ∂loss/∂att, becomes ∂loss/∂scores; att is what
 * gpt_causal_softmax left */
void gpt_causal_softmax_backward(enum number_format f, real *datt, const real *att, int R, int T, float scale,
                                 cudaStream_t);
/* dqkv (B, T, 3, H, Q) from dq, dk, dv (B, H, T, Q) */
void gpt_split_heads_backward(enum number_format f, real *dqkv, const real *dq, const real *dk, const real *dv, int B,
                              int T, int H, int Q, cudaStream_t);
/* dx (B, H, T, Q) from dout (B, T, H, Q) */
void gpt_join_heads_backward(enum number_format f, real *dx, const real *dout, int B, int T, int H, int Q,
                             cudaStream_t);
/* dwte (V, C), dwpe (T, C) += … from dout (B, T, C) */
void gpt_embed_tokens_backward(enum number_format f, float *dwte, const real *dout, const int *tokens, int B, int T,
                               int C, int V, cudaStream_t);
void gpt_embed_positions_backward(enum number_format f, float *dwpe, const real *dout, int B, int T, int C,
                                  cudaStream_t);

#ifdef __cplusplus
}
#endif
#endif
