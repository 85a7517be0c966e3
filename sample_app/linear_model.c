#include "sample_app/linear_model.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "sample_app/checked_call.h"
#include "sample_app/counter_rng.h"
#include "sample_app/row_major.h"

static struct linear_model *linear(struct model *m) {
    return (struct linear_model *)m;
}
static const struct linear_model *linear_const(const struct model *m) {
    return (const struct linear_model *)m;
}

/* ---- memory ---------------------------------------------------------------------------------------------- */

static struct tensors tensors_of(const char *name, const char *class, int count, size_t n, bool together) {
    return tensors_create(class, "", &(struct tensor_spec){name, count, n}, 1, together);
}

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

static void init_weights(struct linear_model *m, double std, uint64_t seed) {
    uint64_t key = rng_bits(seed, RNG_WEIGHTS);
    size_t n = (size_t)m->D * m->D;
    float *w = malloc(n * sizeof *w); /* (D, D) on the host */
    if (!w) die(EXIT_RUN_TIME, "out of host memory for a tensor of weights");
    for (int l = 0; l < m->L; l++) {
        fill_truncated_normal(w, n, std, rng_bits(key, l));
        CALL(cudaMemcpy(m->W.at[l], w, n * sizeof *w, cudaMemcpyHostToDevice));
    }
    free(w);
}

static struct model *linear_create(const struct train_options *o) {
    struct linear_model *m = calloc(1, sizeof *m);
    if (!m) die(EXIT_RUN_TIME, "out of host memory");
    int B = m->B = (int)o->batch, D = m->D = (int)o->dim, L = m->L = (int)o->layers;
    size_t DD = (size_t)D * D, BD = (size_t)B * D;
    bool together = o->alloc == ALLOC_CLASS;
    m->show_activations = o->show_activations;
    CHECK(cudaStreamCreate(&m->base.stream));
    CHECK(cublasCreate(&m->base.cublas));
    CHECK(cublasSetStream(m->base.cublas, m->base.stream));
    m->W = tensors_of("W", "param", L, DD, together);
    m->dW = tensors_of("dW", "grad", L, DD, together);
    if (o->optimizer == OPTIMIZER_MOMENTUM) m->v = tensors_of("v", "optimizer", L, DD, together);
    m->x = tensors_of("x", "input", 1, BD, together);
    m->h = tensors_of("h", "activation", L, BD, together);
    m->d = tensors_of("d", "activation_grad", L < 2 ? L : 2, BD, together);
    init_weights(m, o->init == INIT_UNSCALED ? 1 : 1 / sqrt(D), (uint64_t)o->seed);
    tensors_clear(&m->v, m->base.stream);
    CHECK(cudaDeviceSynchronize());
    return &m->base;
}

static void linear_destroy(struct model *model) {
    struct linear_model *m = linear(model);
    CHECK(cublasDestroy(model->cublas));
    struct tensors *all[] = {&m->d, &m->h, &m->x, &m->v, &m->dW, &m->W};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) tensors_destroy(all[i]);
    CHECK(cudaStreamDestroy(model->stream));
    free(m);
}

/* ---- one step -------------------------------------------------------------------------------------------- */

static void encode_floats(void *slot, const struct batch_form *form, int i, const unsigned char *from) {
    float *x = (float *)slot + (size_t)i * form->window; /* row i of (B, D) */
    for (int j = 0; j < form->window; j++) x[j] = from[j] / 127.5f - 1.0f;
}

static struct batch_form linear_batch_form(const struct train_options *o) {
    return (struct batch_form){.B = (int)o->batch,
                               .window = (int)o->dim,
                               .slot_bytes = (size_t)(o->batch * o->dim) * sizeof(float),
                               .encode = encode_floats};
}

static float *activation(struct linear_model *m, int l) { /* h_l (B, D) */
    return l ? m->h.at[l - 1] : m->x.at[0];
}

static float *gradient(struct linear_model *m, int l) { /* d_l = ∂loss/∂h_l (B, D) */
    return m->d.at[l % m->d.count];
}

static void linear_begin(struct model *model, const void *batch) {
    struct linear_model *m = linear(model);
    CALL(cudaMemcpyAsync(m->x.at[0], batch, m->x.n[0] * sizeof(float), cudaMemcpyHostToDevice, model->stream));
}

/* The root mean square of x and of each h_l. */
static void print_activations(struct linear_model *m) {
    int BD = m->B * m->D;
    for (int l = 0; l <= m->L; l++) {
        float norm;
        CALL(cublasSnrm2(m->base.cublas, BD, activation(m, l), 1, &norm));
        printf("activation h%d rms %.6g\n", l, norm / sqrt(BD));
    }
    m->show_activations = false;
}

/* d_L = 2 / (B·D) · (y − x); then Σ d_L² = 4 / (B·D)² · Σ (y − x)² gives the loss, for which it waits. The matrices are
 * handed over as (D, B) columns, which for a sum of two of the same layout is all one. */
static float loss_and_gradient(struct linear_model *m) {
    int B = m->B, D = m->D;
    float *d = gradient(m, m->L), squares;
    const float plus = 2 / ((float)B * D), minus = -plus;
    CALL(cublasSgeam(m->base.cublas, CUBLAS_OP_N, CUBLAS_OP_N, D, B, &plus, activation(m, m->L), D, &minus, m->x.at[0],
                     D, d, D));
    CALL(cublasSdot(m->base.cublas, B * D, d, 1, d, 1, &squares));
    return (float)(squares * ((double)B * D / 4));
}

static void linear_forward(struct model *model) {
    struct linear_model *m = linear(model);
    int B = m->B, D = m->D;
    for (int l = 1; l <= m->L; l++) /* h_l (B, D) = h_{l-1} (B, D) · W_l (D, D) */
        matmul(model->cublas, CUBLAS_OP_N, CUBLAS_OP_N, B, D, D, activation(m, l - 1), m->W.at[l - 1], 0,
               activation(m, l));
    if (m->show_activations) print_activations(m);
    model->loss = loss_and_gradient(m);
}

static void linear_backward(struct model *model) {
    struct linear_model *m = linear(model);
    int B = m->B, D = m->D;
    for (int l = m->L; l >= 1; l--) {
        float *d_l = gradient(m, l), *h_below = activation(m, l - 1), *W_l = m->W.at[l - 1];
        if (l > 1) /* d_{l-1} (B, D) = d_l (B, D) · W_lᵀ (D, D); the input needs no gradient */
            matmul(model->cublas, CUBLAS_OP_N, CUBLAS_OP_T, B, D, D, d_l, W_l, 0, gradient(m, l - 1));
        /* dW_l (D, D) = h_{l-1}ᵀ (D, B) · d_l (B, D) */
        matmul(model->cublas, CUBLAS_OP_T, CUBLAS_OP_N, D, D, B, h_below, d_l, 0, m->dW.at[l - 1]);
    }
}

/* sgd: W −= lr·dW. momentum: v = mu·v + dW, W −= lr·v. Tensors that lie together are updated by one call over all. */
static void linear_update(struct model *model, const struct train_options *o, int64_t step) {
    struct linear_model *m = linear(model);
    const float one = 1, minus_lr = -(float)o->lr, mu = (float)o->momentum;
    int n = m->D * m->D * (m->W.together ? m->L : 1);
    (void)step;
    for (int i = 0; i < (m->W.together ? 1 : m->L); i++) {
        float *W = m->W.at[i], *dW = m->dW.at[i], *change = dW;
        if (o->optimizer == OPTIMIZER_MOMENTUM) {
            change = m->v.at[i];
            CALL(cublasSscal(model->cublas, n, &mu, change, 1));
            CALL(cublasSaxpy(model->cublas, n, &one, dW, 1, change, 1));
        }
        CALL(cublasSaxpy(model->cublas, n, &minus_lr, change, 1, W, 1));
    }
}

static void linear_finish(struct model *model) {
    CHECK(cudaStreamSynchronize(model->stream));
}

/* ---- figures --------------------------------------------------------------------------------------------- */

static int64_t linear_samples(const struct train_options *o) {
    return o->batch;
}

static int64_t linear_parameters(const struct model *model) {
    const struct linear_model *m = linear_const(model);
    return (int64_t)m->L * m->D * m->D;
}

/* Forward L products of 2·B·D·D, weight gradients as many, activation gradients L − 1. */
static int64_t linear_flops(const struct model *model) {
    const struct linear_model *m = linear_const(model);
    return (3 * (int64_t)m->L - 1) * 2 * m->B * m->D * m->D;
}

static void linear_print_shape(const struct model *model) {
    const struct linear_model *m = linear_const(model);
    printf("linear: layers %d, dim %d, batch %d, %" PRId64 " parameters, %" PRId64 " FLOPs a step in matrix products\n",
           m->L, m->D, m->B, linear_parameters(model), linear_flops(model));
}

static int linear_dump(struct model *model, int64_t step, FILE *file) {
    struct linear_model *m = linear(model);
    const struct tensors *all[] = {&m->x, &m->W, &m->dW};
    fprintf(file, "linear fp32 layers %d dim %d batch %d step %" PRId64 "\n", m->L, m->D, m->B, step);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (tensors_dump(all[i], file, model->stream)) return -1;
    return fflush(file) ? -1 : 0;
}

const struct model_kind linear_kind = {
    .unit = "samples",
    .window_option = "--dim",
    .batch_form = linear_batch_form,
    .units = linear_samples,
    .create = linear_create,
    .destroy = linear_destroy,
    .print_shape = linear_print_shape,
    .parameters = linear_parameters,
    .flops = linear_flops,
    .begin = linear_begin,
    .forward = linear_forward,
    .backward = linear_backward,
    .update = linear_update,
    .finish = linear_finish,
    .dump = linear_dump,
};
