#include "sample_app/linear_model.h"

#include <math.h>
#include <stdlib.h>

#include "sample_app/checked_call.h"
#include "sample_app/counter_rng.h"
#include "sample_app/gpt_kernels.h"
#include "sample_app/host_formats.h"
#include "sample_app/linear_kernels.h"

static struct linear_model *linear(struct model *m) {
    return (struct linear_model *)m;
}
static const struct linear_model *linear_const(const struct model *m) {
    return (const struct linear_model *)m;
}

/* ---- a batch --------------------------------------------------------------------------------------------- */

/* Row i of x (B, D): each byte b as b / 127.5 − 1. */
static void encode_row(enum number_format format, void *slot, const struct batch_form *form, int i,
                       const struct text *text, uint64_t at) {
    size_t row = (size_t)i * form->window;
    for (int j = 0; j < form->window; j++)
        host_put(format, slot, row + j, (float)text_token(text, at + j) / 127.5f - 1.0f);
}
static void encode_fp32(void *slot, const struct batch_form *form, int i, const struct text *text, uint64_t at) {
    encode_row(FORMAT_FP32, slot, form, i, text, at);
}
static void encode_bf16(void *slot, const struct batch_form *form, int i, const struct text *text, uint64_t at) {
    encode_row(FORMAT_BF16, slot, form, i, text, at);
}
static void encode_fp16(void *slot, const struct batch_form *form, int i, const struct text *text, uint64_t at) {
    encode_row(FORMAT_FP16, slot, form, i, text, at);
}

static struct batch_form linear_batch_form(const struct train_options *o) {
    enum number_format format = real_format(o->dtype);
    return (struct batch_form){.B = (int)o->batch,
                               .window = (int)o->dim,
                               .slot_bytes = (size_t)(o->batch * o->dim) * format_bytes(format),
                               .encode = format == FORMAT_BF16   ? encode_bf16
                                         : format == FORMAT_FP16 ? encode_fp16
                                                                 : encode_fp32};
}

/* ---- memory ---------------------------------------------------------------------------------------------- */

/* Normal numbers of standard deviation `std`, those beyond ±3 std drawn again. */
static void fill_truncated_normal(float *w, size_t n, double std, uint64_t key) {
    uint64_t draw = 0;
    for (size_t i = 0; i < n; i++) {
        double z;
        do z = rng_normal(key, draw++);
        while (fabs(z) > 3);
        w[i] = (float)(std * z);
    }
}

/* Master weights get the numbers drawn, parameters their rounding. */
static void init_weights(struct linear_model *m, double std, uint64_t seed) {
    struct trained *t = &m->base.trained;
    uint64_t key = rng_bits(seed, RNG_WEIGHTS);
    size_t n = (size_t)m->D * m->D;
    float *w = malloc(n * sizeof *w); /* (D, D) on the host */
    void *rounded = malloc(n * sizeof *w);
    if (!w || !rounded) die(EXIT_RUN_TIME, "out of host memory for a tensor of weights");
    for (int l = 0; l < m->L; l++) {
        fill_truncated_normal(w, n, std, rng_bits(key, l));
        if (t->master.count) CALL(cudaMemcpy(t->master.at[l], w, n * sizeof *w, cudaMemcpyHostToDevice));
        for (size_t i = 0; i < n; i++) host_put(m->format, rounded, i, w[i]);
        CALL(cudaMemcpy(t->parameters.at[l], rounded, tensor_bytes(&t->parameters, l), cudaMemcpyHostToDevice));
    }
    free(rounded);
    free(w);
}

static void create_sets(struct linear_model *m, const struct train_options *o) {
    size_t DD = (size_t)m->D * m->D, BD = (size_t)m->B * m->D;
    bool transient = o->alloc == ALLOC_STEP || o->alloc == ALLOC_POOL, half = m->format != FORMAT_FP32;
    struct tensor_spec W = {"W", m->L, DD, m->format}, h = {"h", m->L, BD, m->format},
                       d = {"d", m->L < 2 ? m->L : 2, BD, m->format};
    struct tensor_spec losses[] = {{"losses", 1, (size_t)m->B, FORMAT_FP32}, {"mean_loss", 1, 1, FORMAT_FP32}};
    m->base.trained = trained_create(o, &W, 1, m->decays);
    m->h = tensors_create("activation", "", &h, 1, o->alloc, transient);
    m->d = tensors_create("activation_grad", "", &d, 1, o->alloc, transient);
    m->losses = tensors_create("activation", "", losses, half ? 2 : 0, o->alloc, transient);
}

static void destroy_sets(struct linear_model *m) {
    struct tensors *all[] = {&m->losses, &m->d, &m->h};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) tensors_destroy(all[i]);
    trained_destroy(&m->base.trained);
}

/* What comes and goes within a step, of --alloc step and pool and --zero-grad none; else these do nothing. */
static void take(struct linear_model *m, struct tensors *t, int i) {
    tensors_take(t, i, 1, m->base.stream);
}
static void drop(struct linear_model *m, struct tensors *t, int i) {
    tensors_drop(t, i, 1, m->base.stream);
}
/* h_l; what goes before backward reads it is "temporary" in the account. */
static void take_activation(struct linear_model *m, int l, bool kept) {
    tensors_take_as(&m->h, kept ? m->h.class : "temporary", l - 1, 1, m->base.stream);
}
static int gradient_slot(const struct linear_model *m, int l) { /* d_l's, in m->d */
    return l % m->d.count;
}

/* All that a pass allocates and releases, in its order, without the pass. */
static void rehearse(struct linear_model *m) {
    for (int l = 1; l <= m->L; l++) take(m, &m->h, l - 1);
    take(m, &m->d, gradient_slot(m, m->L));
    tensors_take(&m->losses, 0, m->losses.count, NULL);
    tensors_drop(&m->losses, 0, m->losses.count, NULL);
    drop(m, &m->h, m->L - 1);
    for (int l = m->L; l >= 1; l--) {
        if (l > 1) take(m, &m->d, gradient_slot(m, l - 1));
        take(m, &m->base.trained.gradients, l - 1);
        drop(m, &m->d, gradient_slot(m, l));
        if (l > 1) drop(m, &m->h, l - 2);
    }
}

static struct model *linear_create(const struct train_options *o) {
    struct linear_model *m = calloc(1, sizeof *m);
    if (!m) die(EXIT_RUN_TIME, "out of host memory");
    m->B = (int)o->batch, m->D = (int)o->dim, m->L = (int)o->layers;
    m->format = real_format(o->dtype);
    m->show_activations = o->show_activations;
    m->decays = malloc((size_t)m->L * sizeof *m->decays);
    if (!m->decays) die(EXIT_RUN_TIME, "out of host memory");
    for (int l = 0; l < m->L; l++) m->decays[l] = true;
    CHECK(cudaStreamCreate(&m->base.stream));
    products_create(&m->base.products, o->dtype, m->base.stream, 0);
    if (o->alloc == ALLOC_POOL) {
        tensors_pool_plan();
        create_sets(m, o);
        struct tensors input = text_batches_slots(linear_batch_form(o), o->alloc);
        rehearse(m);
        if (o->accum > 1) rehearse(m); /* gradients that come and go are there from the first to the last */
        tensors_destroy(&input);
        destroy_sets(m);
        tensors_pool_create();
    }
    create_sets(m, o);
    if (m->losses.count) CALL(cudaMallocHost((void **)&m->host_loss, sizeof *m->host_loss));
    init_weights(m, o->init == INIT_UNSCALED ? 1 : 1 / sqrt(m->D), (uint64_t)o->seed);
    tensors_clear(&m->base.trained.state, m->base.stream);
    CHECK(cudaDeviceSynchronize());
    return &m->base;
}

static void linear_destroy(struct model *model) {
    struct linear_model *m = linear(model);
    bool pool = m->h.alloc == ALLOC_POOL;
    products_destroy(&model->products);
    if (m->host_loss) CALL(cudaFreeHost(m->host_loss));
    destroy_sets(m);
    if (pool) tensors_pool_destroy();
    CHECK(cudaStreamDestroy(model->stream));
    free(m->decays);
    free(m);
}

/* ---- one step -------------------------------------------------------------------------------------------- */

static const real *activation(struct linear_model *m, const real *x, int l) { /* h_l (B, D) */
    return l ? m->h.at[l - 1] : x;
}

static real *gradient(struct linear_model *m, int l) { /* d_l = ∂loss/∂h_l (B, D) */
    return m->d.at[gradient_slot(m, l)];
}

/* C (M, N) = op(A) (M, K) · op(B) (K, N) + beta · C */
static void matmul(struct linear_model *m, cublasOperation_t opA, cublasOperation_t opB, int M, int N, int K,
                   const real *A, const real *B, float beta, void *C, enum number_format format) {
    EXPECT_ELEMENTS(A, (size_t)M * K);
    EXPECT_ELEMENTS(B, (size_t)K * N);
    EXPECT_ELEMENTS(C, (size_t)M * N);
    products_plain(&m->base.products, opA, opB, M, N, K, A, B, beta, C, format);
}

/* The root mean square of x and of each h_l. */
static void print_activations(struct linear_model *m, const real *x) {
    int BD = m->B * m->D;
    float *host = malloc((size_t)BD * sizeof *host);
    if (!host) die(EXIT_RUN_TIME, "out of host memory");
    for (int l = 0; l <= m->L; l++) {
        float norm = 0;
        if (m->format == FORMAT_FP32) {
            CALL(cublasSnrm2(m->base.products.cublas, BD, activation(m, x, l), 1, &norm));
        } else {
            double squares = 0;
            CALL(cudaMemcpyAsync(host, activation(m, x, l), (size_t)BD * format_bytes(m->format),
                                 cudaMemcpyDeviceToHost, m->base.stream));
            CHECK(cudaStreamSynchronize(m->base.stream));
            for (int i = 0; i < BD; i++) squares += pow(host_get(m->format, host, (size_t)i), 2);
            norm = (float)sqrt(squares);
        }
        printf("activation h%d rms %.6g\n", l, norm / sqrt(BD));
    }
    free(host);
    m->show_activations = false;
}

/* d_L = 2·s / (B·D) · (y − x); then Σ d_L² = 4·s² / (B·D)² · Σ (y − x)² gives the loss, for which it waits. The
 * matrices are handed over as (D, B) columns, which for a sum of two of the same layout is all one. */
static void loss_and_gradient_by_cublas(struct linear_model *m, const real *x, float s) {
    int B = m->B, D = m->D;
    float *d = gradient(m, m->L), squares;
    const float *y = activation(m, x, m->L);
    const float plus = s * (2 / ((float)B * D)), minus = -plus;
    cublasHandle_t cublas = m->base.products.cublas;
    CALL(cublasSgeam(cublas, CUBLAS_OP_N, CUBLAS_OP_N, D, B, &plus, y, D, &minus, x, D, d, D));
    CALL(cublasSdot(cublas, B * D, d, 1, d, 1, &squares));
    m->base.loss = (float)(squares * ((double)B * D / 4) / ((double)s * s));
}

/* The same by a kernel: (B) losses, their mean. Does not wait. */
static void loss_and_gradient_in_half(struct linear_model *m, const real *x, float s) {
    int B = m->B, D = m->D;
    struct tensors *l = &m->losses;
    tensors_take_as(l, "temporary", 0, l->count, m->base.stream);
    LAUNCH(linear_loss(m->format, l->at[0], gradient(m, m->L), activation(m, x, m->L), x, B, D,
                       s * (2 / ((float)B * D)), m->base.stream));
    LAUNCH(gpt_mean(l->at[1], l->at[0], B, m->base.stream));
    CALL(cudaMemcpyAsync(m->host_loss, l->at[1], sizeof(float), cudaMemcpyDeviceToHost, m->base.stream));
    tensors_drop(l, 0, l->count, m->base.stream);
}

/* Without a backward pass each h is dropped when the next is there; y is read by the loss alone. */
static void linear_forward(struct model *model, const void *batch, float gradient_scale) {
    struct linear_model *m = linear(model);
    const real *x = batch;
    bool backward_follows = gradient_scale != 0;
    int B = m->B, D = m->D, L = m->L;
    for (int l = 1; l <= L; l++) { /* h_l (B, D) = h_{l-1} (B, D) · W_l (D, D) */
        take_activation(m, l, backward_follows && l < L);
        matmul(m, CUBLAS_OP_N, CUBLAS_OP_N, B, D, D, activation(m, x, l - 1), model->trained.parameters.at[l - 1], 0,
               m->h.at[l - 1], m->format);
        if (!backward_follows && l > 1) drop(m, &m->h, l - 2);
    }
    if (m->show_activations) print_activations(m, x);
    tensors_take_as(&m->d, backward_follows ? m->d.class : "temporary", gradient_slot(m, L), 1, model->stream);
    float s = backward_follows ? gradient_scale : 1;
    if (m->losses.count)
        loss_and_gradient_in_half(m, x, s);
    else
        loss_and_gradient_by_cublas(m, x, s);
    drop(m, &m->h, L - 1);
    if (!backward_follows) drop(m, &m->d, gradient_slot(m, L));
}

static void linear_begin(struct model *model) {
    linear(model)->fresh = true;
}

static void linear_backward(struct model *model, const void *batch) {
    struct linear_model *m = linear(model);
    struct trained *t = &model->trained;
    const real *x = batch;
    int B = m->B, D = m->D;
    for (int l = m->L; l >= 1; l--) {
        if (l > 1) { /* d_{l-1} (B, D) = d_l (B, D) · W_lᵀ (D, D); the input needs no gradient */
            take(m, &m->d, gradient_slot(m, l - 1));
            matmul(m, CUBLAS_OP_N, CUBLAS_OP_T, B, D, D, gradient(m, l), t->parameters.at[l - 1], 0, gradient(m, l - 1),
                   m->format);
        }
        /* dW_l (D, D) = h_{l-1}ᵀ (D, B) · d_l (B, D), added to that of earlier micro-batches */
        take(m, &t->gradients, l - 1);
        matmul(m, CUBLAS_OP_T, CUBLAS_OP_N, D, D, B, activation(m, x, l - 1), gradient(m, l), m->fresh ? 0 : 1,
               t->gradients.at[l - 1], FORMAT_FP32);
        drop(m, &m->d, gradient_slot(m, l));
        if (l > 1) drop(m, &m->h, l - 2);
    }
    m->fresh = false;
}

/* sgd: W −= lr·dW. momentum: v = mu·v + dW, W −= lr·v. Tensors that lie together are updated by one call over all. */
static bool linear_update(struct model *model, const struct train_options *o) {
    struct linear_model *m = linear(model);
    struct trained *t = &model->trained;
    const float one = 1, minus_lr = -(float)o->lr, mu = (float)o->momentum;
    bool together = o->alloc == ALLOC_CLASS;
    cublasHandle_t cublas = model->products.cublas;
    int n = m->D * m->D * (together ? m->L : 1);
    if (o->optimizer > OPTIMIZER_MOMENTUM || m->format != FORMAT_FP32 || o->clip > 0) return false;
    for (int i = 0; i < (together ? 1 : m->L); i++) {
        float *W = t->parameters.at[i], *dW = t->gradients.at[i], *change = dW;
        if (o->optimizer == OPTIMIZER_MOMENTUM) {
            change = t->state.at[i];
            CALL(cublasSscal(cublas, n, &mu, change, 1));
            CALL(cublasSaxpy(cublas, n, &one, dW, 1, change, 1));
        }
        CALL(cublasSaxpy(cublas, n, &minus_lr, change, 1, W, 1));
    }
    return true;
}

static void linear_finish(struct model *model) {
    CHECK(cudaStreamSynchronize(model->stream));
    if (linear(model)->host_loss) model->loss = *linear(model)->host_loss;
}

/* ---- figures --------------------------------------------------------------------------------------------- */

static int64_t linear_samples(const struct train_options *o) {
    return o->batch;
}

/* Forward L products of 2·B·D·D, weight gradients as many, activation gradients L − 1. */
static int64_t linear_micro_batch_flops(const struct model *model) {
    const struct linear_model *m = linear_const(model);
    return (3 * (int64_t)m->L - 1) * 2 * m->B * m->D * m->D;
}

static void linear_describe(const struct model *model, FILE *to, const char *comma) {
    const struct linear_model *m = linear_const(model);
    fprintf(to, "layers %d%s dim %d%s batch %d", m->L, comma, m->D, comma, m->B);
}

const struct model_kind linear_kind = {
    .name = "linear",
    .unit = "samples",
    .window_option = "--dim",
    .batch_form = linear_batch_form,
    .units = linear_samples,
    .create = linear_create,
    .destroy = linear_destroy,
    .describe = linear_describe,
    .micro_batch_flops = linear_micro_batch_flops,
    .begin = linear_begin,
    .forward = linear_forward,
    .backward = linear_backward,
    .update = linear_update,
    .finish = linear_finish,
};
