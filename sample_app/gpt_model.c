#include "sample_app/gpt_model.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "sample_app/checked_call.h"
#include "sample_app/gpt_kernels.h"
#include "sample_app/host_formats.h"

enum { WORKSPACE_BYTES = 4 << 20 };

static struct gpt_model *gpt(struct model *m) {
    return (struct gpt_model *)m;
}
static const struct gpt_model *gpt_const(const struct model *m) {
    return (const struct gpt_model *)m;
}

static struct model *gpt_create(const struct train_options *o) {
    struct gpt_model *m = calloc(1, sizeof *m);
    if (!m) die(EXIT_RUN_TIME, "out of host memory");
    m->B = (int)o->batch, m->T = (int)o->seq, m->N = m->B * m->T;
    m->C = (int)o->dim, m->H = (int)o->heads, m->Q = m->C / m->H, m->R = m->B * m->H * m->T;
    m->L = (int)o->layers, m->V = (int)o->vocab, m->untied = o->untied;
    m->recompute = o->recompute == RECOMPUTE_FULL, m->S = m->recompute ? 1 : m->L;
    m->format = real_format(o->dtype);
    CHECK(cudaStreamCreate(&m->base.stream));
    products_create(&m->base.products, o->dtype, m->base.stream, WORKSPACE_BYTES);
    products_fp8_reserve(&m->base.products, m->N, 4 * m->C, 4 * (size_t)m->C * m->C);
    gpt_memory_create(m, o);
    return &m->base;
}

static void gpt_destroy(struct model *model) {
    products_destroy(&model->products);
    gpt_memory_destroy(gpt(model));
    CHECK(cudaStreamDestroy(model->stream));
    free(model);
}

/* ---- a batch --------------------------------------------------------------------------------------------- */

/* Slot: tokens (B, T), targets (B, T). The target of a position is the next token. */
static void encode_tokens(void *slot, const struct batch_form *form, int i, const struct text *text, uint64_t at) {
    int T = form->window - 1;
    int *tokens = (int *)slot + (size_t)i * T, *targets = tokens + (size_t)form->B * T;
    for (int t = 0; t < T; t++) {
        tokens[t] = text_token(text, at + t);
        targets[t] = text_token(text, at + t + 1);
    }
}

static struct batch_form gpt_batch_form(const struct train_options *o) {
    return (struct batch_form){.B = (int)o->batch,
                               .window = (int)o->seq + 1,
                               .slot_bytes = 2 * (size_t)(o->batch * o->seq) * sizeof(int),
                               .encode = encode_tokens};
}

/* ---- forward --------------------------------------------------------------------------------------------- */

/* out (N, OC) = x (N, IC) · wᵀ + bias, w (OC, IC) */
static void linear(struct gpt_model *m, real *out, const real *x, const real *w, const real *bias, int OC, int IC) {
    EXPECT_ELEMENTS(out, (size_t)m->N * OC);
    EXPECT_ELEMENTS(x, (size_t)m->N * IC);
    EXPECT_ELEMENTS(w, (size_t)OC * IC);
    EXPECT_ELEMENTS(bias, OC);
    products_forward(&m->base.products, out, x, w, m->N, OC, IC);
    LAUNCH(gpt_add_bias(m->format, out, bias, m->N, OC, m->base.stream));
}

/* out (N, C) = layernorm(x (N, C)) */
static void layernorm(struct gpt_model *m, real *out, float *mean, float *rstd, const real *x, const real *w,
                      const real *b) {
    EXPECT_ELEMENTS(out, (size_t)m->N * m->C);
    EXPECT_ELEMENTS(x, (size_t)m->N * m->C);
    EXPECT_ELEMENTS(mean, m->N);
    EXPECT_ELEMENTS(rstd, m->N);
    LAUNCH(gpt_layernorm(m->format, out, mean, rstd, x, w, b, m->N, m->C, m->base.stream));
}

/* For each of the B·H heads C (T, columns) = op(A) · op(B), summed over K. */
static void per_head(struct gpt_model *m, cublasOperation_t opA, cublasOperation_t opB, int columns, int K,
                     const real *A, const real *B, real *C) {
    EXPECT_ELEMENTS(A, (size_t)m->R * K);
    EXPECT_ELEMENTS(C, (size_t)m->R * columns);
    products_batched(&m->base.products, opA, opB, m->T, columns, K, A, B, C, m->B * m->H);
}

/* joined (B, T, C) from qkv (B, T, 3C), head by head: softmax(q · kᵀ / √Q) · v */
static void attention(struct gpt_model *m, int s) {
    struct gpt_activations *a = &m->a;
    enum number_format f = m->format;
    int B = m->B, T = m->T, H = m->H, Q = m->Q;
    real *q = a->q[s], *k = a->k[s], *v = a->v[s], *att = a->att[s];
    cudaStream_t stream = m->base.stream;
    LAUNCH(gpt_split_heads(f, q, k, v, *a->qkv, B, T, H, Q, stream));
    per_head(m, CUBLAS_OP_N, CUBLAS_OP_T, T, Q, q, k, att);
    LAUNCH(gpt_causal_softmax(f, att, B * H, T, 1 / sqrtf((float)Q), stream));
    per_head(m, CUBLAS_OP_N, CUBLAS_OP_N, Q, T, att, v, *a->y);
    LAUNCH(gpt_join_heads(f, a->joined[s], *a->y, B, T, H, Q, stream));
}

static real *layer_input(const struct gpt_model *m, int l) { /* (B, T, C) */
    return l ? m->a.residual[l - 1] : *m->a.encoded;
}

/* All that the layer's backward needs: middle = x + attention(layernorm(x)), then gelu of the mlp's first product. */
static void forward_layer_to_gelu(struct gpt_model *m, int l) {
    struct gpt_parameters *w = &m->w;
    struct gpt_activations *a = &m->a;
    int N = m->N, C = m->C, s = gpt_set(m, l);
    real *x = layer_input(m, l);
    cudaStream_t stream = m->base.stream;
    layernorm(m, a->ln1[s], a->ln1_mean[s], a->ln1_rstd[s], x, w->ln1w[l], w->ln1b[l]);
    linear(m, *a->qkv, a->ln1[s], w->qkvw[l], w->qkvb[l], 3 * C, C);
    attention(m, s);
    linear(m, *a->branch, a->joined[s], w->projw[l], w->projb[l], C, C);
    LAUNCH(gpt_residual(m->format, a->middle[s], x, *a->branch, N * C, stream));

    layernorm(m, a->ln2[s], a->ln2_mean[s], a->ln2_rstd[s], a->middle[s], w->ln2w[l], w->ln2b[l]);
    linear(m, a->fc[s], a->ln2[s], w->fcw[l], w->fcb[l], 4 * C, C);
    LAUNCH(gpt_gelu(m->format, a->gelu[s], a->fc[s], N * 4 * C, stream));
}

/* residual = middle + mlp(layernorm(middle)) */
static void forward_layer(struct gpt_model *m, int l) {
    struct gpt_activations *a = &m->a;
    int C = m->C, s = gpt_set(m, l);
    gpt_begin_layer(m, l);
    forward_layer_to_gelu(m, l);
    linear(m, *a->branch, a->gelu[s], m->w.outw[l], m->w.outb[l], C, 4 * C);
    LAUNCH(gpt_residual(m->format, a->residual[l], a->middle[s], *a->branch, m->N * C, m->base.stream));
    gpt_end_layer(m, l);
}

static real *head_weight(const struct gpt_model *m, const struct gpt_parameters *w) { /* (V, C) */
    return m->untied ? *w->head : *w->wte;
}

/* logits (N, V) of tokens (B, T) */
static void forward_to_logits(struct gpt_model *m, const int *tokens) {
    struct gpt_parameters *w = &m->w;
    struct gpt_activations *a = &m->a;
    gpt_begin_forward(m);
    LAUNCH(gpt_embed(m->format, *a->encoded, tokens, *w->wte, *w->wpe, m->B, m->T, m->C, m->base.stream));
    for (int l = 0; l < m->L; l++) forward_layer(m, l);
    gpt_begin_head(m);
    layernorm(m, *a->lnf, *a->lnf_mean, *a->lnf_rstd, layer_input(m, m->L), *w->lnfw, *w->lnfb);
    EXPECT_ELEMENTS(*a->logits, (size_t)m->N * m->V);
    products_plain(&m->base.products, CUBLAS_OP_N, CUBLAS_OP_T, m->N, m->V, m->C, *a->lnf, head_weight(m, w), 0,
                   *a->logits, m->format);
}

/* The losses are averaged over the N positions, hence the scale of their gradients. */
static void gpt_forward(struct model *model, const void *batch, float gradient_scale) {
    struct gpt_model *m = gpt(model);
    struct gpt_activations *a = &m->a;
    int N = m->N;
    const int *tokens = batch, *targets = tokens + N; /* (B, T) each */
    cudaStream_t stream = model->stream;
    m->backward_follows = gradient_scale != 0;
    forward_to_logits(m, tokens);
    LAUNCH(gpt_cross_entropy(m->format, *a->losses, m->backward_follows ? *m->d.dlogits : NULL, *a->logits, targets, N,
                             m->V, gradient_scale / (float)N, stream));
    LAUNCH(gpt_mean(*a->mean_loss, *a->losses, N, stream));
    CALL(cudaMemcpyAsync(m->host_loss, *a->mean_loss, sizeof(float), cudaMemcpyDeviceToHost, stream));
    gpt_end_forward(m);
}

static void gpt_finish(struct model *model) {
    CHECK(cudaStreamSynchronize(model->stream));
    model->loss = *gpt(model)->host_loss;
}

/* A batch of one sequence: the tensors are large enough, and what comes after the text changes nothing before it. */
static void gpt_predict(struct model *model, const int *tokens, int length, float *logits) {
    struct gpt_model *m = gpt(model);
    int B = m->B, N = m->N, R = m->R;
    size_t row_bytes = (size_t)m->V * format_bytes(m->format);
    m->B = 1, m->N = m->T, m->R = m->H * m->T;
    m->backward_follows = false;
    forward_to_logits(m, tokens);
    const char *row = (const char *)*m->a.logits + (size_t)(length - 1) * row_bytes;
    CALL(cudaMemcpyAsync(m->host_logits, row, row_bytes, cudaMemcpyDeviceToHost, model->stream));
    gpt_end_forward(m);
    CHECK(cudaStreamSynchronize(model->stream));
    for (int v = 0; v < m->V; v++) logits[v] = host_get(m->format, m->host_logits, (size_t)v);
    m->B = B, m->N = N, m->R = R;
}

/* ---- backward -------------------------------------------------------------------------------------------- */

static void gpt_begin(struct model *model) {
    tensors_clear(&model->trained.gradients, model->stream);
}

/* dx (N, IC) = dout (N, OC) · w (OC, IC); dw (OC, IC) += doutᵀ · x; dbias (OC) += the sum of dout's rows */
static void linear_backward(struct gpt_model *m, real *dx, float *dw, float *dbias, const real *dout, const real *x,
                            const real *w, int OC, int IC) {
    struct products *p = &m->base.products;
    EXPECT_ELEMENTS(dx, (size_t)m->N * IC);
    EXPECT_ELEMENTS(dw, (size_t)OC * IC);
    EXPECT_ELEMENTS(dbias, OC);
    EXPECT_ELEMENTS(dout, (size_t)m->N * OC);
    EXPECT_ELEMENTS(x, (size_t)m->N * IC);
    products_input_gradient(p, dx, dout, w, m->N, OC, IC);
    products_weight_gradient(p, dw, dout, x, m->N, OC, IC);
    LAUNCH(gpt_bias_backward(m->format, dbias, dout, m->N, OC, m->base.stream));
}

/* The same for logits (N, V) = lnf (N, C) · headᵀ, never in fp8. */
static void head_backward(struct gpt_model *m, real *dx, float *dw, const real *dout, const real *x, const real *w) {
    struct products *p = &m->base.products;
    int N = m->N, C = m->C, V = m->V;
    EXPECT_ELEMENTS(dx, (size_t)N * C);
    EXPECT_ELEMENTS(dw, (size_t)V * C);
    EXPECT_ELEMENTS(dout, (size_t)N * V);
    products_plain(p, CUBLAS_OP_N, CUBLAS_OP_N, N, C, V, dout, w, 0, dx, m->format);
    products_plain(p, CUBLAS_OP_T, CUBLAS_OP_N, V, C, N, dout, x, 1, dw, FORMAT_FP32);
}

/* dx (N, C) += …; dw, db (C) += … */
static void layernorm_backward(struct gpt_model *m, real *dx, float *dw, float *db, const real *dout, const real *x,
                               const real *w, const float *mean, const float *rstd) {
    EXPECT_ELEMENTS(dx, (size_t)m->N * m->C);
    EXPECT_ELEMENTS(dout, (size_t)m->N * m->C);
    EXPECT_ELEMENTS(dw, m->C);
    EXPECT_ELEMENTS(db, m->C);
    LAUNCH(gpt_layernorm_weights_backward(m->format, dw, db, dout, x, mean, rstd, m->N, m->C, m->base.stream));
    LAUNCH(gpt_layernorm_backward(m->format, dx, dout, x, w, mean, rstd, m->N, m->C, m->base.stream));
}

/* dqkv (B, T, 3C) from dbranch (B, T, C) = ∂loss/∂joined */
static void attention_backward(struct gpt_model *m, int s) {
    struct gpt_activations *a = &m->a;
    struct gpt_activation_gradients *d = &m->d;
    enum number_format f = m->format;
    int B = m->B, T = m->T, H = m->H, Q = m->Q;
    real *att = a->att[s], *dscores = *d->datt;
    cudaStream_t stream = m->base.stream;
    LAUNCH(gpt_join_heads_backward(f, *d->dy, *d->dbranch, B, T, H, Q, stream));
    per_head(m, CUBLAS_OP_N, CUBLAS_OP_T, T, Q, *d->dy, a->v[s], *d->datt); /* datt = dy · vᵀ */
    per_head(m, CUBLAS_OP_T, CUBLAS_OP_N, Q, T, att, *d->dy, *d->dv);       /* dv = attᵀ · dy */
    LAUNCH(gpt_causal_softmax_backward(f, dscores, att, B * H, T, 1 / sqrtf((float)Q), stream));
    per_head(m, CUBLAS_OP_N, CUBLAS_OP_N, Q, T, dscores, a->k[s], *d->dq); /* dq = dscores · k */
    per_head(m, CUBLAS_OP_T, CUBLAS_OP_N, Q, T, dscores, a->q[s], *d->dk); /* dk = dscoresᵀ · q */
    LAUNCH(gpt_split_heads_backward(f, *d->dqkv, *d->dq, *d->dk, *d->dv, B, T, H, Q, stream));
}

static void recompute_layer(struct gpt_model *m, int l) {
    truth_recompute_begin();
    gpt_begin_recompute(m, l);
    forward_layer_to_gelu(m, l);
    gpt_end_recompute(m);
    truth_recompute_end();
}

/* dresidual is ∂loss/∂(the layer's output) before, and ∂loss/∂(its input) after. */
static void backward_layer(struct gpt_model *m, int l) {
    struct gpt_parameters *w = &m->w, *dw = &m->dw;
    struct gpt_activations *a = &m->a;
    struct gpt_activation_gradients *d = &m->d;
    int C = m->C, s = gpt_set(m, l);
    if (m->recompute) recompute_layer(m, l);
    gpt_begin_layer_backward(m, l);
    linear_backward(m, *d->dfc, dw->outw[l], dw->outb[l], *d->dresidual, a->gelu[s], w->outw[l], C, 4 * C);
    LAUNCH(gpt_gelu_backward(m->format, *d->dfc, a->fc[s], m->N * 4 * C, m->base.stream));
    linear_backward(m, *d->dbranch, dw->fcw[l], dw->fcb[l], *d->dfc, a->ln2[s], w->fcw[l], 4 * C, C);
    layernorm_backward(m, *d->dresidual, dw->ln2w[l], dw->ln2b[l], *d->dbranch, a->middle[s], w->ln2w[l],
                       a->ln2_mean[s], a->ln2_rstd[s]);

    linear_backward(m, *d->dbranch, dw->projw[l], dw->projb[l], *d->dresidual, a->joined[s], w->projw[l], C, C);
    attention_backward(m, s);
    linear_backward(m, *d->dbranch, dw->qkvw[l], dw->qkvb[l], *d->dqkv, a->ln1[s], w->qkvw[l], 3 * C, C);
    layernorm_backward(m, *d->dresidual, dw->ln1w[l], dw->ln1b[l], *d->dbranch, layer_input(m, l), w->ln1w[l],
                       a->ln1_mean[s], a->ln1_rstd[s]);
    gpt_end_layer_backward(m, l);
}

static void gpt_backward(struct model *model, const void *batch) {
    struct gpt_model *m = gpt(model);
    struct gpt_parameters *w = &m->w, *dw = &m->dw;
    struct gpt_activations *a = &m->a;
    struct gpt_activation_gradients *d = &m->d;
    const int *tokens = batch;
    int B = m->B, T = m->T, C = m->C, V = m->V;
    cudaStream_t stream = model->stream;
    gpt_begin_backward(m);
    head_backward(m, *d->dbranch, head_weight(m, dw), *d->dlogits, *a->lnf, head_weight(m, w));
    CALL(cudaMemsetAsync(*d->dresidual, 0, (size_t)m->N * C * format_bytes(m->format), stream));
    layernorm_backward(m, *d->dresidual, *dw->lnfw, *dw->lnfb, *d->dbranch, layer_input(m, m->L), *w->lnfw,
                       *a->lnf_mean, *a->lnf_rstd);
    gpt_end_head_backward(m);
    for (int l = m->L - 1; l >= 0; l--) backward_layer(m, l);
    gpt_begin_embedding_backward(m);
    LAUNCH(gpt_embed_tokens_backward(m->format, *dw->wte, *d->dresidual, tokens, B, T, C, V, stream));
    LAUNCH(gpt_embed_positions_backward(m->format, *dw->wpe, *d->dresidual, B, T, C, stream));
    gpt_end_backward(m);
}

/* ---- figures --------------------------------------------------------------------------------------------- */

static int64_t gpt_tokens(const struct train_options *o) {
    return o->batch * o->seq;
}

/* Forward: for each token 2 × the matrices' elements (a layer's 3CC + CC + 4CC + 4CC, the head's VC), and 2·T·C for
 * each of the two products of attention. Backward: each product twice, once for either factor. */
static int64_t gpt_micro_batch_flops(const struct model *model) {
    const struct gpt_model *m = gpt_const(model);
    int64_t N = m->N, C = m->C, layer = 2 * 12 * C * C + 4 * m->T * C;
    return 3 * N * (m->L * layer + 2 * m->V * C);
}

static void gpt_describe(const struct model *model, FILE *to, const char *comma) {
    const struct gpt_model *m = gpt_const(model);
    fprintf(to, "layers %d%s dim %d%s heads %d%s seq %d%s batch %d%s vocabulary %d%s %s", m->L, comma, m->C, comma,
            m->H, comma, m->T, comma, m->B, comma, m->V, comma, m->untied ? "untied" : "tied");
}

const struct model_kind gpt_kind = {
    .name = "gpt",
    .unit = "tokens",
    .window_option = "--seq",
    .batch_form = gpt_batch_form,
    .units = gpt_tokens,
    .create = gpt_create,
    .destroy = gpt_destroy,
    .describe = gpt_describe,
    .micro_batch_flops = gpt_micro_batch_flops,
    .begin = gpt_begin,
    .forward = gpt_forward,
    .backward = gpt_backward,
    .finish = gpt_finish,
    .predict = gpt_predict,
};
