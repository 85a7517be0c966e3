#include "sample_app/linear_model.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "sample_app/checked_call.h"
#include "sample_app/counter_rng.h"

/* ---- memory ---------------------------------------------------------------------------------------------- */

static float *device_alloc(const char *name, const char *class, size_t floats) {
    float *p;
    CALL(cudaMalloc((void **)&p, floats * sizeof(float)));
    truth_allocated(name, class, p, floats * sizeof(float));
    return p;
}

static void device_free(float *p) {
    CALL(cudaFree(p));
    truth_released(p);
}

/* A single tensor is called `name`, several `name`1, `name`2, …; what lies together is called by its class. */
static struct tensors tensors_alloc(const char *name, const char *class, int count, size_t n, bool together) {
    struct tensors t = {.count = count, .n = n, .together = together};
    t.at = calloc(count, sizeof *t.at);
    if (!t.at) die(EXIT_RUN_TIME, "out of host memory");
    if (together) t.at[0] = device_alloc(class, class, count * n);
    for (int i = 0; i < count; i++) {
        char numbered[24];
        snprintf(numbered, sizeof numbered, count > 1 ? "%s%d" : "%s", name, i + 1);
        t.at[i] = together ? t.at[0] + i * n : device_alloc(numbered, class, n);
    }
    return t;
}

static void tensors_free(struct tensors *t) {
    for (int i = 0; i < (t->together && t->count ? 1 : t->count); i++) device_free(t->at[i]);
    free(t->at);
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
    float *w = malloc(m->W.n * sizeof *w); /* (D, D) on the host */
    if (!w) die(EXIT_RUN_TIME, "out of host memory for a tensor of weights");
    for (int l = 0; l < m->L; l++) {
        fill_truncated_normal(w, m->W.n, std, rng_bits(key, l));
        CALL(cudaMemcpy(m->W.at[l], w, m->W.n * sizeof *w, cudaMemcpyHostToDevice));
    }
    free(w);
}

void linear_create(struct linear_model *m, struct linear_shape shape) {
    int B = shape.B, D = shape.D, L = shape.L;
    size_t DD = (size_t)D * D, BD = (size_t)B * D;
    *m = (struct linear_model){.B = B, .D = D, .L = L};
    CHECK(cudaStreamCreate(&m->stream));
    CHECK(cublasCreate(&m->cublas));
    CHECK(cublasSetStream(m->cublas, m->stream));
    m->W = tensors_alloc("W", "param", L, DD, shape.together);
    m->dW = tensors_alloc("dW", "grad", L, DD, shape.together);
    if (shape.momentum) m->v = tensors_alloc("v", "optimizer", L, DD, shape.together);
    m->x = tensors_alloc("x", "input", 1, BD, shape.together);
    m->h = tensors_alloc("h", "activation", L, BD, shape.together);
    m->d = tensors_alloc("d", "activation_grad", L < 2 ? L : 2, BD, shape.together);
    init_weights(m, shape.unscaled ? 1 : 1 / sqrt(D), shape.seed);
    for (int i = 0; i < (shape.together && m->v.count ? 1 : m->v.count); i++)
        CALL(cudaMemset(m->v.at[i], 0, (shape.together ? L : 1) * DD * sizeof(float)));
    CHECK(cudaDeviceSynchronize());
}

void linear_destroy(struct linear_model *m) {
    CHECK(cublasDestroy(m->cublas));
    struct tensors *all[] = {&m->d, &m->h, &m->x, &m->v, &m->dW, &m->W};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) tensors_free(all[i]);
    CHECK(cudaStreamDestroy(m->stream));
}

/* ---- one step -------------------------------------------------------------------------------------------- */

/* C (M, N) = op(A) (M, K) · op(B) (K, N), row-major. cuBLAS is column-major and so sees every matrix transposed; it is
 * asked for Cᵀ = op(B)ᵀ · op(A)ᵀ, which needs no transposition at all. beta = 0: C is overwritten, never read. */
static void matmul(cublasHandle_t cublas, cublasOperation_t opA, cublasOperation_t opB, int M, int N, int K,
                   const float *A, const float *B, float *C) {
    const float one = 1, zero = 0;
    int lda = opA == CUBLAS_OP_N ? K : M;
    int ldb = opB == CUBLAS_OP_N ? N : K;
    CALL(cublasSgemm(cublas, opB, opA, N, M, K, &one, B, ldb, A, lda, &zero, C, N));
    truth_flops(2 * (int64_t)M * N * K);
}

static float *activation(struct linear_model *m, int l) { /* h_l (B, D) */
    return l ? m->h.at[l - 1] : m->x.at[0];
}

static float *gradient(struct linear_model *m, int l) { /* d_l = ∂loss/∂h_l (B, D) */
    return m->d.at[l % m->d.count];
}

void linear_forward(struct linear_model *m) {
    int B = m->B, D = m->D;
    for (int l = 1; l <= m->L; l++) /* h_l (B, D) = h_{l-1} (B, D) · W_l (D, D) */
        matmul(m->cublas, CUBLAS_OP_N, CUBLAS_OP_N, B, D, D, activation(m, l - 1), m->W.at[l - 1], activation(m, l));
}

/* d_L = 2 / (B·D) · (y − x); then Σ d_L² = 4 / (B·D)² · Σ (y − x)² gives the loss. The matrices are handed over as (D,
 * B) columns, which for a sum of two of the same layout is all one. */
float linear_loss(struct linear_model *m) {
    int B = m->B, D = m->D;
    float *d = gradient(m, m->L), squares;
    const float plus = 2 / ((float)B * D), minus = -plus;
    CALL(cublasSgeam(m->cublas, CUBLAS_OP_N, CUBLAS_OP_N, D, B, &plus, activation(m, m->L), D, &minus, m->x.at[0], D, d,
                     D));
    CALL(cublasSdot(m->cublas, B * D, d, 1, d, 1, &squares));
    return (float)(squares * ((double)B * D / 4));
}

void linear_backward(struct linear_model *m) {
    int B = m->B, D = m->D;
    for (int l = m->L; l >= 1; l--) {
        float *d_l = gradient(m, l), *h_below = activation(m, l - 1), *W_l = m->W.at[l - 1];
        if (l > 1) /* d_{l-1} (B, D) = d_l (B, D) · W_lᵀ (D, D); the input needs no gradient */
            matmul(m->cublas, CUBLAS_OP_N, CUBLAS_OP_T, B, D, D, d_l, W_l, gradient(m, l - 1));
        /* dW_l (D, D) = h_{l-1}ᵀ (D, B) · d_l (B, D) */
        matmul(m->cublas, CUBLAS_OP_T, CUBLAS_OP_N, D, D, B, h_below, d_l, m->dW.at[l - 1]);
    }
}

/* Tensors that lie together are updated by one call over all of them. */
static int update_calls(const struct linear_model *m) {
    return m->W.together ? 1 : m->L;
}
static int update_floats(const struct linear_model *m) {
    return (int)m->W.n * (m->W.together ? m->L : 1);
}

void linear_update_sgd(struct linear_model *m, float lr) {
    const float minus_lr = -lr;
    for (int i = 0; i < update_calls(m); i++)
        CALL(cublasSaxpy(m->cublas, update_floats(m), &minus_lr, m->dW.at[i], 1, m->W.at[i], 1));
}

void linear_update_momentum(struct linear_model *m, float lr, float mu) {
    const float one = 1, minus_lr = -lr;
    int n = update_floats(m);
    for (int i = 0; i < update_calls(m); i++) {
        CALL(cublasSscal(m->cublas, n, &mu, m->v.at[i], 1));
        CALL(cublasSaxpy(m->cublas, n, &one, m->dW.at[i], 1, m->v.at[i], 1));
        CALL(cublasSaxpy(m->cublas, n, &minus_lr, m->v.at[i], 1, m->W.at[i], 1));
    }
}

/* ---- figures and looks inside ---------------------------------------------------------------------------- */

int64_t linear_parameters(const struct linear_model *m) {
    return (int64_t)m->L * m->D * m->D;
}

/* Forward L products of 2·B·D·D, weight gradients as many, activation gradients L − 1. */
int64_t linear_flops(const struct linear_model *m) {
    return (3 * (int64_t)m->L - 1) * 2 * m->B * m->D * m->D;
}

void linear_print_activations(struct linear_model *m) {
    int BD = m->B * m->D;
    for (int l = 0; l <= m->L; l++) {
        float norm;
        CALL(cublasSnrm2(m->cublas, BD, activation(m, l), 1, &norm));
        printf("activation h%d rms %.6g\n", l, norm / sqrt(BD));
    }
}

static int dump_tensors(struct linear_model *m, const struct tensors *t, FILE *file) {
    float *host = malloc(t->n * sizeof *host);
    if (!host) die(EXIT_RUN_TIME, "out of host memory for --dump-gradients");
    for (int i = 0; i < t->count; i++) {
        CALL(cudaMemcpyAsync(host, t->at[i], t->n * sizeof *host, cudaMemcpyDeviceToHost, m->stream));
        CHECK(cudaStreamSynchronize(m->stream));
        fwrite(host, sizeof *host, t->n, file);
    }
    free(host);
    return ferror(file) ? -1 : 0;
}

int linear_dump(struct linear_model *m, int64_t step, FILE *file) {
    fprintf(file, "linear fp32 layers %d dim %d batch %d step %" PRId64 "\n", m->L, m->D, m->B, step);
    if (dump_tensors(m, &m->x, file) || dump_tensors(m, &m->W, file) || dump_tensors(m, &m->dW, file)) return -1;
    return fflush(file) ? -1 : 0;
}
