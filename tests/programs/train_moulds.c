/* Trains a small deep linear network with cuBLAS alone, in as many manners as programs have, and tells its own account:
 * train_moulds KEY=VALUE…; the keys and their defaults are in `options` below. On stdout one JSON object: each device
 * buffer in the order of its allocation with its class, and the FLOPs of the matrix products by step and phase.
 *
 * Matrices are column-major: h_l (d_l, B) = W_l (d_l, d_{l-1}) h_{l-1}. The target is the input. */
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tests/programs/program_check.h"

enum { MAX_PARTS = 4 };

static struct option {
    const char *key, *value;
} options[] = {
    {"layers", "3"},     {"dim", "96"},   {"batch", "32"},
    {"steps", "4"},      {"accum", "1"},  {"zero", "beta"}, /* gradients anew by beta | memset | scal | geam */
    {"update", "sgd"},                                      /* sgd momentum geam decay adam ema clip master */
    {"loss", "fold"},                                       /* fold | axpy | target | geam | host */
    {"alloc", "once"},                                      /* activations: once | step | async */
    {"grads", "apart"},                                     /* gradients and weights: apart | block */
    {"data", "copy"},                                       /* copy | fixed | double */
    {"eval", "0"},       {"last", "0"},   {"frozen", "-1"}, /* last: batch of the last step; frozen: layer */
    {"tied", "0"},       {"models", "1"}, {"cut", "none"},  /* cut: forward | backward of one step more */
    {"train", "1"},      {"bias", "0"},   {"dx", "first"},  /* dx: input gradient before or after the weight's */
    {"checkpoint", "0"}, {"add", "0"},                      /* add: micro-batch gradients are added by axpy */
    {"prepare", "0"},                                       /* batches are scaled in place on the device */
    {"skip", "-1"},                                         /* step whose update is left out */
};

#include "tests/programs/mould.h"

/* ---- the account --------------------------------------------------------------------------------------------- */

static float *device(const char *name, const char *class, size_t n) {
    struct buffer *b = &buffers[n_buffers++];
    *b = (struct buffer){name, class, NULL, n * sizeof(float)};
    CHECK(is("alloc", "async") ? cudaMallocAsync(&b->at, b->bytes, 0) : cudaMalloc(&b->at, b->bytes));
    return b->at;
}

static void release(float *p) {
    CHECK(is("alloc", "async") ? cudaFreeAsync(p, 0) : cudaFree(p));
}

/* ---- the network --------------------------------------------------------------------------------------------- */

static cublasHandle_t blas;
static const float one = 1, zero = 0, minus_one = -1;

struct model {
    int L, B, d[MAX_LAYERS + 1];
    float *W[MAX_LAYERS], *dW[MAX_LAYERS], *b[MAX_LAYERS], *db[MAX_LAYERS], *part[MAX_LAYERS];
    float *state[MAX_PARTS][MAX_LAYERS]; /* of the optimizer */
    float *scratch, *ones, *x[2], *x_eval, *h[MAX_LAYERS + 1], *g[MAX_LAYERS + 1];
    float *pinned, *host;
    cudaStream_t copies;
    cudaEvent_t ready[2], used[2];
    int batches;
};

static size_t weights(const struct model *m, int l) {
    return (size_t)m->d[l] * m->d[l + 1];
}
static int is_frozen(int l) {
    return number("frozen") == l;
}

static void gemm(int ta, int tb, int m, int n, int k, const float *A, const float *B, const float *beta, float *C) {
    CHECK(cublasSgemm(blas, ta ? CUBLAS_OP_T : CUBLAS_OP_N, tb ? CUBLAS_OP_T : CUBLAS_OP_N, m, n, k, &one, A,
                      ta ? k : m, B, tb ? n : k, beta, C, m));
    flops[step][phase] += 2LL * m * n * k;
}

static void random_floats(float *out, size_t n, float scale) {
    for (size_t i = 0; i < n; i++) out[i] = scale * ((float)rand() / (float)RAND_MAX - 0.5f);
}

static void upload(float *to, size_t n, float scale) {
    float *w = malloc(n * sizeof *w);
    random_floats(w, n, scale);
    CHECK(cudaMemcpy(to, w, n * sizeof *w, cudaMemcpyHostToDevice));
    free(w);
}

static int states(void) {
    return is("update", "momentum") ? 1
           : is("update", "adam")   ? 2
           : is("update", "ema")    ? 1
           : is("update", "master") ? 1
                                    : 0;
}

static void make_states(struct model *m, int l, size_t n) {
    for (int s = 0; s < states(); s++) {
        m->state[s][l] = device("state", "optimizer", n);
        if (is("update", "ema") || is("update", "master"))
            CHECK(cublasScopy(blas, (int)n, m->W[l], 1, m->state[s][l], 1));
        else
            CHECK(cudaMemset(m->state[s][l], 0, n * sizeof(float)));
    }
}

static void make_weights(struct model *m) {
    size_t all = 0, at = 0;
    for (int l = 0; l < m->L; l++) all += weights(m, l);
    int block = is("grads", "block");
    float *W = block ? device("W", "param", all) : NULL, *dW = block ? device("dW", "grad", all) : NULL;
    for (int l = 0; l < m->L; at += weights(m, l), l++) {
        if (number("tied") && l == m->L - 1) continue;
        m->W[l] = block ? W + at : device("W", "param", weights(m, l));
        upload(m->W[l], weights(m, l), 2 / sqrtf((float)m->d[l]));
        if (!number("train") || is_frozen(l)) continue;
        m->dW[l] = block ? dW + at : device("dW", "grad", weights(m, l));
        if (number("add")) m->part[l] = device("part", "grad|temporary", weights(m, l));
        if (!block) make_states(m, l, weights(m, l));
        if (!number("bias")) continue;
        m->b[l] = device("b", "param", m->d[l + 1]);
        m->db[l] = device("db", "grad", m->d[l + 1]);
        CHECK(cudaMemset(m->b[l], 0, m->d[l + 1] * sizeof(float)));
    }
    if (block) make_states(m, 0, all);
    if (number("bias")) {
        m->ones = device("ones", "input|other|param", m->B);
        for (int i = 0; i < m->B; i++) CHECK(cudaMemcpy(m->ones + i, &one, sizeof one, cudaMemcpyHostToDevice));
    }
    if (is("update", "adam")) m->scratch = device("scratch", "temporary", all);
}

/* Those of an evaluation are born and released within it. */
static void make_activations(struct model *m, int gradients) {
    for (int l = 1; l <= m->L; l++)
        m->h[l] = device("h", gradients ? "activation" : "temporary", (size_t)m->d[l] * m->B);
    if (!number("train") || !gradients) return;
    for (int l = 1; l <= m->L; l++)
        if (l == m->L || l > 1 || !is_frozen(0))
            m->g[l] = device("g", l == m->L && is("loss", "host") ? "input|activation_grad" : "activation_grad",
                             (size_t)m->d[l] * m->B);
}

static void free_activations(struct model *m) {
    for (int l = 1; l <= m->L; l++) {
        release(m->h[l]);
        if (m->g[l]) release(m->g[l]);
        m->g[l] = NULL;
    }
}

static void make_model(struct model *m) {
    memset(m, 0, sizeof *m);
    m->L = number("layers");
    m->B = number("batch");
    for (int l = 0; l <= m->L; l++) m->d[l] = number("dim");
    for (int l = 1; l < m->L; l++) m->d[l] += number("tied") ? -32 : 0;
    size_t n = (size_t)m->d[0] * m->B;
    make_weights(m);
    m->x[0] = device("x", "input", n);
    if (is("data", "double")) m->x[1] = device("x", "input", n);
    if (number("eval")) m->x_eval = device("x_eval", "input", n);
    CHECK(cudaMallocHost((void **)&m->pinned, 2 * n * sizeof(float)));
    m->host = malloc(n * sizeof(float));
    CHECK(cudaStreamCreateWithFlags(&m->copies, cudaStreamNonBlocking));
    for (int i = 0; i < 2; i++) {
        CHECK(cudaEventCreate(&m->ready[i]));
        CHECK(cudaEventCreate(&m->used[i]));
    }
    if (is("alloc", "once")) make_activations(m, 1);
}

static void fetch(struct model *m, int slot, int B) {
    size_t n = (size_t)m->d[0] * B;
    float *from = m->pinned + (size_t)slot * m->d[0] * m->B;
    CHECK(cudaEventSynchronize(m->used[slot]));
    random_floats(from, n, 2);
    CHECK(cudaMemcpyAsync(m->x[slot], from, n * sizeof(float), cudaMemcpyHostToDevice, m->copies));
    CHECK(cudaEventRecord(m->ready[slot], m->copies));
}

/* The next batch; with two buffers the one after it is already on its way. */
static float *next_batch(struct model *m, int B) {
    int both = is("data", "double"), slot = both ? m->batches % 2 : 0;
    if (!m->batches || (!both && !is("data", "fixed"))) fetch(m, slot, B);
    if (both) fetch(m, 1 - slot, B);
    m->batches++;
    CHECK(cudaStreamWaitEvent(0, m->ready[slot], 0));
    if (number("prepare")) {
        const float half = 0.5f;
        CHECK(cublasSscal(blas, m->d[0] * B, &half, m->x[slot], 1));
        CHECK(cublasSscal(blas, m->d[0] * B, &half, m->x[slot], 1));
    }
    return m->x[slot];
}

static void forward(struct model *m, float *x, int B) {
    m->h[0] = x;
    for (int l = 0; l < m->L; l++) {
        int last_tied = number("tied") && l == m->L - 1;
        if (last_tied) /* back through the first layer's weights */
            gemm(1, 0, m->d[0], B, m->d[1], m->W[0], m->h[l], &zero, m->h[l + 1]);
        else
            gemm(0, 0, m->d[l + 1], B, m->d[l], m->W[l], m->h[l], &zero, m->h[l + 1]);
        if (m->b[l]) CHECK(cublasSger(blas, m->d[l + 1], B, &one, m->b[l], 1, m->ones, 1, m->h[l + 1], m->d[l + 1]));
    }
}

/* The gradient of the loss at the network's end; the loss itself goes to the host. */
static void loss(struct model *m, float *x, int B) {
    int n = m->d[m->L] * B;
    float *g = m->g[m->L], sum, scale = 2 / (float)n;
    if (is("loss", "host")) {
        float *y = malloc((size_t)n * sizeof *y);
        CHECK(cudaMemcpy(y, m->h[m->L], (size_t)n * sizeof *y, cudaMemcpyDeviceToHost));
        for (int i = 0; i < n; i++) y[i] *= scale;
        CHECK(cudaMemcpy(g, y, (size_t)n * sizeof *y, cudaMemcpyHostToDevice));
        free(y);
        return;
    }
    if (is("loss", "fold")) { /* all in one */
        const float minus = -scale;
        CHECK(cublasSgeam(blas, CUBLAS_OP_N, CUBLAS_OP_N, m->d[m->L], B, &scale, m->h[m->L], m->d[m->L], &minus, x,
                          m->d[m->L], g, m->d[m->L]));
        CHECK(cublasSdot(blas, n, g, 1, g, 1, &sum));
        if (!isfinite(sum)) exit(3);
        return;
    }
    if (is("loss", "geam")) {
        CHECK(cublasSgeam(blas, CUBLAS_OP_N, CUBLAS_OP_N, m->d[m->L], B, &one, m->h[m->L], m->d[m->L], &minus_one, x,
                          m->d[m->L], g, m->d[m->L]));
    } else if (is("loss", "target")) {
        CHECK(cublasScopy(blas, n, x, 1, g, 1));
        CHECK(cublasSscal(blas, n, &minus_one, g, 1));
        CHECK(cublasSaxpy(blas, n, &one, m->h[m->L], 1, g, 1));
    } else {
        CHECK(cublasScopy(blas, n, m->h[m->L], 1, g, 1));
        CHECK(cublasSaxpy(blas, n, &minus_one, x, 1, g, 1));
    }
    CHECK(cublasSdot(blas, n, g, 1, g, 1, &sum));
    if (!isfinite(sum)) exit(3);
    CHECK(cublasSscal(blas, n, &scale, g, 1));
}

static void weight_gradient(struct model *m, int l, int B, int micro_batch) {
    int tied_last = number("tied") && l == m->L - 1;
    if (is_frozen(l)) return;
    const float *beta =
        micro_batch || is("zero", "memset") || is("zero", "scal") || is("zero", "geam") || (number("tied") && l == 0)
            ? &one
            : &zero;
    if (tied_last) { /* y = W0ᵀ h: dW0 = h gᵀ */
        gemm(0, 1, m->d[1], m->d[0], B, m->h[l], m->g[l + 1], is("zero", "beta") && !micro_batch ? &zero : &one,
             m->dW[0]);
        return;
    }
    if (number("add") && micro_batch) {
        gemm(0, 1, m->d[l + 1], m->d[l], B, m->g[l + 1], m->h[l], &zero, m->part[l]);
        CHECK(cublasSaxpy(blas, (int)weights(m, l), &one, m->part[l], 1, m->dW[l], 1));
    } else {
        gemm(0, 1, m->d[l + 1], m->d[l], B, m->g[l + 1], m->h[l], beta, m->dW[l]);
    }
    if (m->b[l])
        CHECK(cublasSgemv(blas, CUBLAS_OP_N, m->d[l + 1], B, &one, m->g[l + 1], m->d[l + 1], m->ones, 1, beta, m->db[l],
                          1));
}

static void input_gradient(struct model *m, int l, int B) {
    if (!l || !m->g[l]) return;
    if (number("tied") && l == m->L - 1)
        gemm(0, 0, m->d[1], B, m->d[0], m->W[0], m->g[l + 1], &zero, m->g[l]);
    else
        gemm(1, 0, m->d[l], B, m->d[l + 1], m->W[l], m->g[l + 1], &zero, m->g[l]);
}

static void backward(struct model *m, int B, int micro_batch) {
    for (int l = m->L - 1; l >= 0; l--) {
        if (is("dx", "first")) input_gradient(m, l, B);
        weight_gradient(m, l, B, micro_batch);
        if (!is("dx", "first")) input_gradient(m, l, B);
    }
}

static void clear_one(float *g, int n) {
    if (!g) return;
    if (is("zero", "memset")) CHECK(cudaMemsetAsync(g, 0, (size_t)n * sizeof(float), 0));
    if (is("zero", "scal")) CHECK(cublasSscal(blas, n, &zero, g, 1));
    if (is("zero", "geam")) CHECK(cublasSgeam(blas, CUBLAS_OP_N, CUBLAS_OP_N, n, 1, &zero, g, n, &zero, g, n, g, n));
}

static void clear(struct model *m) {
    for (int l = 0; l < m->L; l++) {
        clear_one(m->dW[l], (int)weights(m, l));
        clear_one(m->db[l], m->d[l + 1]);
    }
}

static void update_one(struct model *m, int l, int n) {
    const float lr = -0.05f, mu = 0.9f, rest = 0.1f, decay = 0.999f;
    float *W = m->W[l], *dW = m->dW[l], norm, *s0 = m->state[0][l], *s1 = m->state[1][l];
    if (is("update", "momentum")) {
        CHECK(cublasSscal(blas, n, &mu, s0, 1));
        CHECK(cublasSaxpy(blas, n, &one, dW, 1, s0, 1));
        CHECK(cublasSaxpy(blas, n, &lr, s0, 1, W, 1));
    } else if (is("update", "geam")) {
        int r = m->d[l];
        CHECK(cublasSgeam(blas, CUBLAS_OP_N, CUBLAS_OP_N, r, n / r, &one, W, r, &lr, dW, r, W, r));
    } else if (is("update", "adam")) { /* first and second moment; without the root, which cuBLAS cannot take */
        CHECK(cublasSscal(blas, n, &mu, s0, 1));
        CHECK(cublasSaxpy(blas, n, &rest, dW, 1, s0, 1));
        CHECK(cublasSdgmm(blas, CUBLAS_SIDE_LEFT, n, 1, dW, n, dW, 1, m->scratch, n));
        CHECK(cublasSscal(blas, n, &decay, s1, 1));
        CHECK(cublasSaxpy(blas, n, &rest, m->scratch, 1, s1, 1));
        CHECK(cublasSaxpy(blas, n, &lr, s0, 1, W, 1));
        CHECK(cublasSaxpy(blas, n, &lr, s1, 1, W, 1));
    } else if (is("update", "master")) { /* the master copy is updated, then copied */
        CHECK(cublasSaxpy(blas, n, &lr, dW, 1, s0, 1));
        CHECK(cublasScopy(blas, n, s0, 1, W, 1));
    } else {
        if (is("update", "decay")) CHECK(cublasSscal(blas, n, &decay, W, 1));
        if (is("update", "clip")) {
            CHECK(cublasSnrm2(blas, n, dW, 1, &norm));
            norm = norm > 1 ? 1 / norm : 1;
            CHECK(cublasSscal(blas, n, &norm, dW, 1));
        }
        CHECK(cublasSaxpy(blas, n, &lr, dW, 1, W, 1));
        if (is("update", "ema")) {
            CHECK(cublasSscal(blas, n, &mu, s0, 1));
            CHECK(cublasSaxpy(blas, n, &rest, W, 1, s0, 1));
        }
    }
}

static void update_biases(struct model *m) {
    const float lr = -0.05f;
    for (int l = 0; l < m->L; l++)
        if (m->b[l]) CHECK(cublasSaxpy(blas, m->d[l + 1], &lr, m->db[l], 1, m->b[l], 1));
}

static void update(struct model *m) {
    update_biases(m);
    if (is("grads", "block")) {
        size_t all = 0;
        for (int l = 0; l < m->L; l++) all += weights(m, l);
        update_one(m, 0, (int)all);
        return;
    }
    for (int l = 0; l < m->L; l++)
        if (m->dW[l] && !(number("tied") && l == m->L - 1)) update_one(m, l, (int)weights(m, l));
}

static void evaluate(struct model *m) {
    enum phase before = phase;
    float sum;
    phase = EVALUATION;
    if (!is("alloc", "once")) make_activations(m, 0);
    upload(m->x_eval, (size_t)m->d[0] * m->B, 2);
    forward(m, m->x_eval, m->B);
    CHECK(cublasSdot(blas, m->d[m->L] * m->B, m->h[m->L], 1, m->x_eval, 1, &sum));
    if (!is("alloc", "once")) free_activations(m);
    phase = before;
}

static void save(struct model *m) {
    for (int l = 0; l < m->L; l++) {
        if (!m->W[l]) continue;
        float *w = malloc(weights(m, l) * sizeof *w);
        CHECK(cudaMemcpy(w, m->W[l], weights(m, l) * sizeof *w, cudaMemcpyDeviceToHost));
        free(w);
    }
}

/* 0: the step was cut off. */
static int train_step(struct model *m, int B, int cut) {
    if (!is("alloc", "once")) make_activations(m, 1);
    if (number("train")) clear(m);
    for (int k = 0; k < number("accum"); k++) {
        int slot = is("data", "double") ? m->batches % 2 : 0;
        float *x = next_batch(m, B);
        micro_batches[step]++;
        rows[step] += B;
        phase = FORWARD;
        forward(m, x, B);
        if (cut && is("cut", "forward")) return 0;
        if (number("train")) {
            loss(m, x, B);
            phase = BACKWARD;
            backward(m, B, k);
        } else {
            CHECK(cudaMemcpy(m->host, m->h[m->L], (size_t)m->d[m->L] * B * sizeof(float), cudaMemcpyDeviceToHost));
        }
        CHECK(cudaEventRecord(m->used[slot], 0));
    }
    if (cut) return 0;
    phase = OPTIMIZER;
    if (number("train") && number("skip") != step) update(m);
    if (!is("alloc", "once")) free_activations(m);
    return 1;
}

int main(int argc, char **argv) {
    static struct model models[2];
    int steps, alive = 1;
    for (int i = 1; i < argc; i++) {
        char *equals = strchr(argv[i], '=');
        if (!equals) return 2;
        *equals = 0;
        for (size_t k = 0; k < sizeof options / sizeof *options; k++)
            if (!strcmp(options[k].key, argv[i])) options[k].value = equals + 1;
        text(argv[i]); /* ends the program if there is none */
    }
    CHECK(cublasCreate(&blas));
    for (int i = 0; i < number("models"); i++) make_model(&models[i]);
    steps = number("steps") * number("models") + (is("cut", "none") ? 0 : 1);
    for (int s = 0; s < steps && alive; s++) {
        struct model *m = &models[s % number("models")];
        int last = s == steps - 1;
        step = s;
        if (number("eval") && s % number("eval") == 0) evaluate(m);
        alive = train_step(m, last && number("last") ? number("last") : m->B, last && !is("cut", "none"));
        if (number("checkpoint") && s % number("checkpoint") == 0) save(m);
    }
    tell();
    if (!alive) raise(SIGINT);
    CHECK(cudaDeviceSynchronize());
    return 0;
}
