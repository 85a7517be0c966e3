#include "sample_app/gpt_model.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "sample_app/checked_call.h"
#include "sample_app/gpt_kernels.h"
#include "sample_app/row_major.h"

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
    m->L = (int)o->layers, m->V = GPT_V, m->untied = o->untied;
    CHECK(cudaStreamCreate(&m->base.stream));
    CHECK(cublasCreate(&m->base.cublas));
    CHECK(cublasSetStream(m->base.cublas, m->base.stream)); /* before the workspace, which it would take away */
    gpt_memory_create(m, o);
    return &m->base;
}

static void gpt_destroy(struct model *model) {
    CHECK(cublasDestroy(model->cublas));
    gpt_memory_destroy(gpt(model));
    CHECK(cudaStreamDestroy(model->stream));
    free(model);
}

/* ---- a batch --------------------------------------------------------------------------------------------- */

/* Slot: tokens (B, T), targets (B, T). The target of a position is the next byte. */
static void encode_tokens(void *slot, const struct batch_form *form, int i, const unsigned char *from) {
    int T = form->window - 1;
    int *tokens = (int *)slot + (size_t)i * T, *targets = tokens + (size_t)form->B * T;
    for (int t = 0; t < T; t++) {
        tokens[t] = from[t];
        targets[t] = from[t + 1];
    }
}

static struct batch_form gpt_batch_form(const struct train_options *o) {
    return (struct batch_form){.B = (int)o->batch,
                               .window = (int)o->seq + 1,
                               .slot_bytes = 2 * (size_t)(o->batch * o->seq) * sizeof(int),
                               .encode = encode_tokens};
}

static void gpt_begin(struct model *model, const void *batch) {
    struct gpt_model *m = gpt(model);
    size_t bytes = (size_t)m->N * sizeof(int);
    const int *tokens = batch, *targets = tokens + m->N;
    CALL(cudaMemcpyAsync(m->tokens, tokens, bytes, cudaMemcpyHostToDevice, model->stream));
    CALL(cudaMemcpyAsync(m->targets, targets, bytes, cudaMemcpyHostToDevice, model->stream));
    tensors_clear(&m->gradients, model->stream);
}

/* ---- forward --------------------------------------------------------------------------------------------- */

/* out (N, OC) = x (N, IC) · wᵀ + bias, w (OC, IC) */
static void linear(struct gpt_model *m, float *out, const float *x, const float *w, const float *bias, int OC, int IC) {
    matmul(m->base.cublas, CUBLAS_OP_N, CUBLAS_OP_T, m->N, OC, IC, x, w, 0, out);
    if (bias) LAUNCH(gpt_add_bias(out, bias, m->N, OC, m->base.stream));
}

/* joined (B, T, C) from qkv (B, T, 3C), head by head: softmax(q · kᵀ / √Q) · v */
static void attention(struct gpt_model *m, int l) {
    struct gpt_activations *a = &m->a;
    int B = m->B, T = m->T, H = m->H, Q = m->Q, BH = B * H;
    float *q = a->q[l], *k = a->k[l], *v = a->v[l], *att = a->att[l];
    cublasHandle_t cublas = m->base.cublas;
    cudaStream_t stream = m->base.stream;
    LAUNCH(gpt_split_heads(q, k, v, *a->qkv, B, T, H, Q, stream));
    matmul_batched(cublas, CUBLAS_OP_N, CUBLAS_OP_T, T, T, Q, q, k, att, BH);
    LAUNCH(gpt_causal_softmax(att, BH, T, 1 / sqrtf((float)Q), stream));
    matmul_batched(cublas, CUBLAS_OP_N, CUBLAS_OP_N, T, Q, T, att, v, *a->y, BH);
    LAUNCH(gpt_join_heads(a->joined[l], *a->y, B, T, H, Q, stream));
}

static float *layer_input(const struct gpt_model *m, int l) { /* (B, T, C) */
    return l ? m->a.residual[l - 1] : *m->a.encoded;
}

/* x + attention(layernorm(x)), then that + mlp(layernorm(that)) */
static void forward_layer(struct gpt_model *m, int l) {
    struct gpt_parameters *w = &m->w;
    struct gpt_activations *a = &m->a;
    int N = m->N, C = m->C;
    float *x = layer_input(m, l);
    cudaStream_t stream = m->base.stream;
    LAUNCH(gpt_layernorm(a->ln1[l], a->ln1_mean[l], a->ln1_rstd[l], x, w->ln1w[l], w->ln1b[l], N, C, stream));
    linear(m, *a->qkv, a->ln1[l], w->qkvw[l], w->qkvb[l], 3 * C, C);
    attention(m, l);
    linear(m, *a->branch, a->joined[l], w->projw[l], w->projb[l], C, C);
    LAUNCH(gpt_residual(a->middle[l], x, *a->branch, N * C, stream));

    LAUNCH(
        gpt_layernorm(a->ln2[l], a->ln2_mean[l], a->ln2_rstd[l], a->middle[l], w->ln2w[l], w->ln2b[l], N, C, stream));
    linear(m, a->fc[l], a->ln2[l], w->fcw[l], w->fcb[l], 4 * C, C);
    LAUNCH(gpt_gelu(a->gelu[l], a->fc[l], N * 4 * C, stream));
    linear(m, *a->branch, a->gelu[l], w->outw[l], w->outb[l], C, 4 * C);
    LAUNCH(gpt_residual(a->residual[l], a->middle[l], *a->branch, N * C, stream));
}

static float *head_weight(const struct gpt_model *m, const struct gpt_parameters *w) { /* (V, C) */
    return m->untied ? *w->head : *w->wte;
}

static void gpt_forward(struct model *model) {
    struct gpt_model *m = gpt(model);
    struct gpt_parameters *w = &m->w;
    struct gpt_activations *a = &m->a;
    int N = m->N, C = m->C, V = m->V;
    cudaStream_t stream = model->stream;
    LAUNCH(gpt_embed(*a->encoded, m->tokens, *w->wte, *w->wpe, m->B, m->T, C, stream));
    for (int l = 0; l < m->L; l++) forward_layer(m, l);
    LAUNCH(gpt_layernorm(*a->lnf, *a->lnf_mean, *a->lnf_rstd, layer_input(m, m->L), *w->lnfw, *w->lnfb, N, C, stream));
    linear(m, *a->logits, *a->lnf, head_weight(m, w), NULL, V, C);
    LAUNCH(gpt_cross_entropy(*a->losses, *m->d.dlogits, *a->logits, m->targets, N, V, stream));
    LAUNCH(gpt_mean(*a->mean_loss, *a->losses, N, stream));
    CALL(cudaMemcpyAsync(m->host_loss, *a->mean_loss, sizeof(float), cudaMemcpyDeviceToHost, stream));
}

/* ---- backward -------------------------------------------------------------------------------------------- */

/* dx (N, IC) = dout (N, OC) · w (OC, IC); dw (OC, IC) += doutᵀ · x; dbias (OC) += the sum of dout's rows */
static void linear_backward(struct gpt_model *m, float *dx, float *dw, float *dbias, const float *dout, const float *x,
                            const float *w, int OC, int IC) {
    cublasHandle_t cublas = m->base.cublas;
    matmul(cublas, CUBLAS_OP_N, CUBLAS_OP_N, m->N, IC, OC, dout, w, 0, dx);
    matmul(cublas, CUBLAS_OP_T, CUBLAS_OP_N, OC, IC, m->N, dout, x, 1, dw);
    if (dbias) LAUNCH(gpt_bias_backward(dbias, dout, m->N, OC, m->base.stream));
}

/* dx (N, C) += …; dw, db (C) += … */
static void layernorm_backward(struct gpt_model *m, float *dx, float *dw, float *db, const float *dout, const float *x,
                               const float *w, const float *mean, const float *rstd) {
    LAUNCH(gpt_layernorm_weights_backward(dw, db, dout, x, mean, rstd, m->N, m->C, m->base.stream));
    LAUNCH(gpt_layernorm_backward(dx, dout, x, w, mean, rstd, m->N, m->C, m->base.stream));
}

/* dqkv (B, T, 3C) from dbranch (B, T, C) = ∂loss/∂joined */
static void attention_backward(struct gpt_model *m, int l) {
    struct gpt_activations *a = &m->a;
    struct gpt_activation_gradients *d = &m->d;
    int B = m->B, T = m->T, H = m->H, Q = m->Q, BH = B * H;
    float *att = a->att[l], *dscores = *d->datt;
    cublasHandle_t cublas = m->base.cublas;
    cudaStream_t stream = m->base.stream;
    LAUNCH(gpt_join_heads_backward(*d->dy, *d->dbranch, B, T, H, Q, stream));
    matmul_batched(cublas, CUBLAS_OP_N, CUBLAS_OP_T, T, T, Q, *d->dy, a->v[l], *d->datt, BH); /* datt = dy · vᵀ */
    matmul_batched(cublas, CUBLAS_OP_T, CUBLAS_OP_N, T, Q, T, att, *d->dy, *d->dv, BH);       /* dv = attᵀ · dy */
    LAUNCH(gpt_causal_softmax_backward(dscores, att, BH, T, 1 / sqrtf((float)Q), stream));
    matmul_batched(cublas, CUBLAS_OP_N, CUBLAS_OP_N, T, Q, T, dscores, a->k[l], *d->dq, BH); /* dq = dscores · k */
    matmul_batched(cublas, CUBLAS_OP_T, CUBLAS_OP_N, T, Q, T, dscores, a->q[l], *d->dk, BH); /* dk = dscoresᵀ · q */
    LAUNCH(gpt_split_heads_backward(*d->dqkv, *d->dq, *d->dk, *d->dv, B, T, H, Q, stream));
}

/* dresidual is ∂loss/∂(the layer's output) before, and ∂loss/∂(its input) after. */
static void backward_layer(struct gpt_model *m, int l) {
    struct gpt_parameters *w = &m->w, *dw = &m->dw;
    struct gpt_activations *a = &m->a;
    struct gpt_activation_gradients *d = &m->d;
    int C = m->C;
    linear_backward(m, *d->dfc, dw->outw[l], dw->outb[l], *d->dresidual, a->gelu[l], w->outw[l], C, 4 * C);
    LAUNCH(gpt_gelu_backward(*d->dfc, a->fc[l], m->N * 4 * C, m->base.stream));
    linear_backward(m, *d->dbranch, dw->fcw[l], dw->fcb[l], *d->dfc, a->ln2[l], w->fcw[l], 4 * C, C);
    layernorm_backward(m, *d->dresidual, dw->ln2w[l], dw->ln2b[l], *d->dbranch, a->middle[l], w->ln2w[l],
                       a->ln2_mean[l], a->ln2_rstd[l]);

    linear_backward(m, *d->dbranch, dw->projw[l], dw->projb[l], *d->dresidual, a->joined[l], w->projw[l], C, C);
    attention_backward(m, l);
    linear_backward(m, *d->dbranch, dw->qkvw[l], dw->qkvb[l], *d->dqkv, a->ln1[l], w->qkvw[l], 3 * C, C);
    layernorm_backward(m, *d->dresidual, dw->ln1w[l], dw->ln1b[l], *d->dbranch, layer_input(m, l), w->ln1w[l],
                       a->ln1_mean[l], a->ln1_rstd[l]);
}

static void gpt_backward(struct model *model) {
    struct gpt_model *m = gpt(model);
    struct gpt_parameters *w = &m->w, *dw = &m->dw;
    struct gpt_activations *a = &m->a;
    struct gpt_activation_gradients *d = &m->d;
    int B = m->B, T = m->T, C = m->C, V = m->V;
    cudaStream_t stream = model->stream;
    linear_backward(m, *d->dbranch, head_weight(m, dw), NULL, *d->dlogits, *a->lnf, head_weight(m, w), V, C);
    CALL(cudaMemsetAsync(*d->dresidual, 0, (size_t)m->N * C * sizeof(float), stream));
    layernorm_backward(m, *d->dresidual, *dw->lnfw, *dw->lnfb, *d->dbranch, layer_input(m, m->L), *w->lnfw,
                       *a->lnf_mean, *a->lnf_rstd);
    for (int l = m->L - 1; l >= 0; l--) backward_layer(m, l);
    LAUNCH(gpt_embed_tokens_backward(*dw->wte, *d->dresidual, m->tokens, B, T, C, V, stream));
    LAUNCH(gpt_embed_positions_backward(*dw->wpe, *d->dresidual, B, T, C, stream));
}

/* ---- update ---------------------------------------------------------------------------------------------- */

static struct gpt_adamw_rates adamw_rates(const struct train_options *o, int64_t step) {
    const double beta1 = 0.9, beta2 = 0.95;
    return (struct gpt_adamw_rates){.lr = (float)o->lr,
                                    .beta1 = (float)beta1,
                                    .beta2 = (float)beta2,
                                    .epsilon = 1e-8f,
                                    .correct1 = (float)(1 / (1 - pow(beta1, (double)step))),
                                    .correct2 = (float)(1 / (1 - pow(beta2, (double)step)))};
}

static void gpt_update(struct model *model, const struct train_options *o, int64_t step) {
    struct gpt_model *m = gpt(model);
    struct gpt_adamw_rates rates = adamw_rates(o, step);
    int count = m->parameters.count;
    float lr = (float)o->lr;
    cudaStream_t stream = model->stream;
    for (int i = 0; i < count; i++) {
        float *w = m->parameters.at[i], *dw = m->gradients.at[i], **state = m->state.at + i;
        int n = (int)m->parameters.n[i];
        if (o->optimizer == OPTIMIZER_SGD) {
            LAUNCH(gpt_sgd(w, dw, n, lr, stream));
        } else if (o->optimizer == OPTIMIZER_MOMENTUM) {
            LAUNCH(gpt_momentum(w, state[0], dw, n, lr, (float)o->momentum, stream));
        } else {
            rates.decay = m->init[i] <= INIT_RESIDUAL ? (float)o->weight_decay : 0; /* matrices alone decay */
            LAUNCH(gpt_adamw(w, state[0], state[count], dw, n, rates, stream));
        }
    }
}

static void gpt_finish(struct model *model) {
    CHECK(cudaStreamSynchronize(model->stream));
    model->loss = *gpt(model)->host_loss;
}

/* ---- figures --------------------------------------------------------------------------------------------- */

static int64_t gpt_tokens(const struct train_options *o) {
    return o->batch * o->seq;
}

static int64_t gpt_parameters(const struct model *model) {
    const struct tensors *t = &gpt_const(model)->parameters;
    int64_t n = 0;
    for (int i = 0; i < t->count; i++) n += (int64_t)t->n[i];
    return n;
}

/* Forward: for each token 2 × the matrices' elements (a layer's 3CC + CC + 4CC + 4CC, the head's VC), and 2·T·C for
 * each of the two products of attention. Backward: each product twice, once for either factor. */
static int64_t gpt_flops(const struct model *model) {
    const struct gpt_model *m = gpt_const(model);
    int64_t N = m->N, C = m->C, layer = 2 * 12 * C * C + 4 * m->T * C;
    return 3 * N * (m->L * layer + 2 * m->V * C);
}

static void gpt_print_shape(const struct model *model) {
    const struct gpt_model *m = gpt_const(model);
    printf("gpt: layers %d, dim %d, heads %d, seq %d, batch %d, %s head, %" PRId64 " parameters, %" PRId64
           " FLOPs a step in matrix products\n",
           m->L, m->C, m->H, m->T, m->B, m->untied ? "untied" : "tied", gpt_parameters(model), gpt_flops(model));
}

static int gpt_dump(struct model *model, int64_t step, FILE *file) {
    struct gpt_model *m = gpt(model);
    const struct tensors *all[] = {&m->inputs, &m->parameters, &m->gradients};
    fprintf(file, "gpt fp32 layers %d dim %d heads %d seq %d batch %d vocabulary %d %s step %" PRId64 "\n", m->L, m->C,
            m->H, m->T, m->B, m->V, m->untied ? "untied" : "tied", step);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (tensors_dump(all[i], file, model->stream)) return -1;
    return fflush(file) ? -1 : 0;
}

const struct model_kind gpt_kind = {
    .unit = "tokens",
    .window_option = "--seq",
    .batch_form = gpt_batch_form,
    .units = gpt_tokens,
    .create = gpt_create,
    .destroy = gpt_destroy,
    .print_shape = gpt_print_shape,
    .parameters = gpt_parameters,
    .flops = gpt_flops,
    .begin = gpt_begin,
    .forward = gpt_forward,
    .backward = gpt_backward,
    .update = gpt_update,
    .finish = gpt_finish,
    .dump = gpt_dump,
};
