/* Trains a perceptron with cuBLASLt alone, biases, activation functions and their gradients in the epilogues, in as
 * many manners as programs have, and tells its own account as train_moulds.c does: train_lt KEY=VALUE…
 *
 * Matrices are column-major: h_l (d_l, B) = GELU(W_l (d_l, d_{l-1}) h_{l-1} + b_l), the last layer without GELU. The
 * target is the input. With format=bf16 all but masters, optimizer state and gradients of weights is bf16. */
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/programs/program_check.h"

enum { SPACE = 1 << 20 };

static struct option {
    const char *key, *value;
} options[] = {
    {"layers", "3"},    {"dim", "96"},        {"batch", "32"},
    {"steps", "4"},     {"accum", "1"},       {"format", "fp32"}, /* fp32 | bf16: with fp32 masters */
    {"update", "sgd"},                                            /* sgd | momentum */
    {"bgrad", "dgelu"}, /* gradients of biases come with: dgelu the activations' (of the last layer: bgrada) | bgrada */
    {"act", "gelu"},    /* gelu | relu (its mask is a bit an element) */
    {"order", "col"},   /* col | row: the same products, said of the transposed matrices */
    {"residual", "0"},  /* 1: hidden layers of equal size add their input: D is not C */
    {"alloc", "once"},  /* activations: once | step */
    {"eval", "0"},      {"workspace", "own"}, /* own: a buffer for it | none | shared: an activation that is idle */
};

#include "tests/programs/mould.h"

/* ---- the account --------------------------------------------------------------------------------------------- */

static size_t size_of(cudaDataType_t type) {
    return type == CUDA_R_32F ? 4 : 2;
}

static void *device(const char *name, const char *class, size_t n, cudaDataType_t type) {
    struct buffer *b = &buffers[n_buffers++];
    *b = (struct buffer){name, class, NULL, n * size_of(type)};
    CHECK(cudaMalloc(&b->at, b->bytes));
    return b->at;
}

/* ---- cuBLASLt ------------------------------------------------------------------------------------------------- */

static cublasLtHandle_t lt;
static cudaDataType_t real; /* of parameters and activations */
static void *space;

struct matrix { /* columns of `rows` elements */
    const void *at;
    int rows, columns;
    cudaDataType_t type;
};

/* With order=row, told as its transpose row by row, which lies the same. */
static cublasLtMatrixLayout_t layout(struct matrix x, int turn) {
    cublasLtMatrixLayout_t l;
    int32_t by_rows = CUBLASLT_ORDER_ROW;
    CHECK(cublasLtMatrixLayoutCreate(&l, x.type, (uint64_t)(turn ? x.columns : x.rows),
                                     (uint64_t)(turn ? x.rows : x.columns), x.rows));
    if (turn) CHECK(cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_ORDER, &by_rows, sizeof by_rows));
    return l;
}

struct extra {
    cublasLtEpilogue_t epilogue;
    void *bias, *aux;
    int aux_ld;
};

static void set(cublasLtMatmulDesc_t p, cublasLtMatmulDescAttributes_t what, const void *value, size_t bytes) {
    CHECK(cublasLtMatmulDescSetAttribute(p, what, value, bytes));
}

static cublasLtMatmulDesc_t describe(cublasOperation_t ta, cublasOperation_t tb, const struct extra *x) {
    cublasLtMatmulDesc_t p;
    int64_t ld = x->aux_ld;
    CHECK(cublasLtMatmulDescCreate(&p, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    set(p, CUBLASLT_MATMUL_DESC_TRANSA, &ta, sizeof ta);
    set(p, CUBLASLT_MATMUL_DESC_TRANSB, &tb, sizeof tb);
    set(p, CUBLASLT_MATMUL_DESC_EPILOGUE, &x->epilogue, sizeof x->epilogue);
    if (x->bias) set(p, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &x->bias, sizeof x->bias);
    if (!x->aux) return p;
    set(p, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &x->aux, sizeof x->aux);
    set(p, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &ld, sizeof ld);
    return p;
}

/* D = epilogue(op(A) op(B) + beta C). Said row by row it is Dᵀ = op(B)ᵀ op(A)ᵀ of the matrices' transposes, so that the
 * ops stay and the factors change places; only without an epilogue, whose bias goes with the rows of D. */
static void multiply(int ta, int tb, struct matrix a, struct matrix b, float beta, const void *c, struct matrix d,
                     const struct extra *x) {
    int turn = is("order", "row") && x->epilogue == CUBLASLT_EPILOGUE_DEFAULT;
    cublasOperation_t op_a = ta ? CUBLAS_OP_T : CUBLAS_OP_N, op_b = tb ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtMatmulDesc_t p = describe(turn ? op_b : op_a, turn ? op_a : op_b, x);
    cublasLtMatrixLayout_t la = layout(a, turn), lb = layout(b, turn), ld = layout(d, turn);
    const float one = 1;
    int k = ta ? a.rows : a.columns;
    size_t bytes = space ? (is("workspace", "own") ? SPACE : 1024) : 0;
    CHECK(cublasLtMatmul(lt, p, &one, turn ? b.at : a.at, turn ? lb : la, turn ? a.at : b.at, turn ? la : lb, &beta, c,
                         ld, (void *)d.at, ld, NULL, bytes ? space : NULL, bytes, 0));
    flops[step][phase] += 2LL * d.rows * d.columns * k;
    CHECK(cublasLtMatmulDescDestroy(p));
    CHECK(cublasLtMatrixLayoutDestroy(la));
    CHECK(cublasLtMatrixLayoutDestroy(lb));
    CHECK(cublasLtMatrixLayoutDestroy(ld));
}

/* C = alpha A + beta B, of any types. */
static void combine(float alpha, struct matrix a, float beta, struct matrix b, struct matrix c) {
    cublasLtMatrixTransformDesc_t t;
    cublasLtMatrixLayout_t la = layout(a, 0), lb = b.at ? layout(b, 0) : NULL, lc = layout(c, 0);
    CHECK(cublasLtMatrixTransformDescCreate(&t, CUDA_R_32F));
    CHECK(cublasLtMatrixTransform(lt, t, &alpha, a.at, la, &beta, b.at, lb, (void *)c.at, lc, 0));
    CHECK(cublasLtMatrixTransformDescDestroy(t));
    CHECK(cublasLtMatrixLayoutDestroy(la));
    if (lb) CHECK(cublasLtMatrixLayoutDestroy(lb));
    CHECK(cublasLtMatrixLayoutDestroy(lc));
}

/* ---- the network --------------------------------------------------------------------------------------------- */

struct parameter {
    struct matrix w, gradient, part, master, momentum; /* part: of one micro-batch */
};

static struct model {
    int L, B, d[MAX_LAYERS + 1];
    struct parameter W[MAX_LAYERS], b[MAX_LAYERS];
    void *h[MAX_LAYERS + 1], *aux[MAX_LAYERS + 1], *g[MAX_LAYERS + 1];
    void *x, *x_eval;
    float *host;
} net;

static uint16_t bf16_of(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static void upload(void *to, size_t n, float scale, cudaDataType_t type) {
    float *f = malloc(n * sizeof *f);
    uint16_t *h = malloc(n * sizeof *h);
    for (size_t i = 0; i < n; i++) h[i] = bf16_of(f[i] = scale * ((float)rand() / (float)RAND_MAX - 0.5f));
    CHECK(cudaMemcpy(to, type == CUDA_R_32F ? (void *)f : (void *)h, n * size_of(type), cudaMemcpyHostToDevice));
    free(f);
    free(h);
}

static struct matrix make(const char *name, const char *class, int r, int c, cudaDataType_t type) {
    return (struct matrix){device(name, class, (size_t)r * c, type), r, c, type};
}

/* gradient_type: of a bias, what the product that makes it writes. */
static void make_parameter(struct parameter *p, const char *name, int r, int c, float scale,
                           cudaDataType_t gradient_type) {
    const struct matrix none = {NULL, 0, 0, real};
    size_t n = (size_t)r * c;
    int bias = c == 1;
    p->w = make(name, "param", r, c, real);
    upload((void *)p->w.at, n, scale, real);
    p->gradient = make("gradient", "grad", r, c, gradient_type);
    if (bias && number("accum") > 1) p->part = make("part", "grad|temporary", r, c, gradient_type);
    p->master = p->momentum = none;
    if (real != CUDA_R_32F) {
        p->master = make("master", "optimizer", r, c, CUDA_R_32F);
        combine(1, p->w, 0, none, p->master);
    }
    if (!is("update", "momentum")) return;
    p->momentum = make("momentum", "optimizer", r, c, CUDA_R_32F);
    CHECK(cudaMemset((void *)p->momentum.at, 0, n * sizeof(float)));
}

static int has_aux(int l) { /* hidden layers keep what went into the function */
    return l > 0 && l < net.L;
}
static int relu(void) {
    return is("act", "relu");
}
/* A mask has a bit an element, columns of a multiple of 128. */
static int mask_ld(int l) {
    return (net.d[l] + 127) / 128 * 128;
}

static void make_activations(int gradients) {
    for (int l = 1; l <= net.L; l++) {
        size_t n = (size_t)net.d[l] * net.B;
        net.h[l] = device("h", gradients ? "activation" : "temporary", n, real);
        if (!gradients) continue;
        if (has_aux(l)) {
            size_t halves = relu() ? (size_t)mask_ld(l) / 16 * net.B : n;
            net.aux[l] = device("aux", "activation", halves, relu() ? CUDA_R_16BF : real);
        }
        net.g[l] = device("g", "activation_grad", n, real);
    }
}

static void free_activations(void) {
    for (int l = 1; l <= net.L; l++) {
        CHECK(cudaFree(net.h[l]));
        CHECK(cudaFree(net.aux[l]));
        CHECK(cudaFree(net.g[l]));
        net.aux[l] = net.g[l] = NULL;
    }
}

static void make_model(void) {
    net.L = number("layers");
    net.B = number("batch");
    for (int l = 0; l <= net.L; l++) net.d[l] = number("dim");
    for (int l = 0; l < net.L; l++) {
        int by_dgelu = is("bgrad", "dgelu") && l < net.L - 1;
        make_parameter(&net.W[l], "W", net.d[l + 1], net.d[l], 2 / sqrtf((float)net.d[l]), CUDA_R_32F);
        make_parameter(&net.b[l], "b", net.d[l + 1], 1, 0.1f, by_dgelu ? real : CUDA_R_32F);
    }
    net.x = device("x", "input", (size_t)net.d[0] * net.B, real);
    if (number("eval")) net.x_eval = device("x_eval", "input", (size_t)net.d[0] * net.B, real);
    if (is("alloc", "once")) make_activations(1);
    if (is("workspace", "own")) space = device("space", "workspace", SPACE / 4, CUDA_R_32F);
    if (is("workspace", "shared")) space = net.g[1];
}

static struct matrix activation(const void *at, int l) {
    return (struct matrix){at, net.d[l], net.B, real};
}

static void forward(void *x, int keep) {
    net.h[0] = x;
    for (int l = 0; l < net.L; l++) {
        int last = l == net.L - 1, add = number("residual") && l > 0 && !last;
        struct extra e = {.epilogue = CUBLASLT_EPILOGUE_BIAS, .bias = (void *)net.b[l].w.at};
        if (!last) e.epilogue = relu() ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_GELU_BIAS;
        if (!last && keep) {
            e.epilogue = relu() ? CUBLASLT_EPILOGUE_RELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
            e.aux = net.aux[l + 1];
            e.aux_ld = relu() ? mask_ld(l + 1) : net.d[l + 1];
        }
        multiply(0, 0, net.W[l].w, activation(net.h[l], l), add ? 1 : 0, add ? net.h[l] : net.h[l + 1],
                 activation(net.h[l + 1], l + 1), &e);
    }
}

static void loss(void) {
    float scale = 2 / (float)(net.d[net.L] * net.B);
    combine(scale, activation(net.h[net.L], net.L), -scale, activation(net.x, net.L), activation(net.g[net.L], net.L));
}

/* The bias' gradient of a later micro-batch is added. */
static void *bias_gradient(const struct parameter *b, int micro_batch) {
    return (void *)(micro_batch ? b->part.at : b->gradient.at);
}
static void add_part(const struct parameter *b, int micro_batch) {
    if (micro_batch) combine(1, b->part, 1, b->gradient, b->gradient);
}

static void backward(int k) {
    for (int l = net.L - 1; l >= 0; l--) {
        struct parameter *W = &net.W[l], *b = &net.b[l], *below = l ? &net.b[l - 1] : NULL;
        struct matrix g = activation(net.g[l + 1], l + 1);
        struct extra e = {.epilogue = CUBLASLT_EPILOGUE_DEFAULT};
        int bgrada = l == net.L - 1 || is("bgrad", "bgrada");
        if (bgrada) e = (struct extra){.epilogue = CUBLASLT_EPILOGUE_BGRADA, .bias = bias_gradient(b, k)};
        multiply(0, 1, g, activation(net.h[l], l), k ? 1 : 0, W->gradient.at, W->gradient, &e);
        if (bgrada) add_part(b, k);
        if (!l) return;
        e = (struct extra){.epilogue = relu() ? CUBLASLT_EPILOGUE_DRELU : CUBLASLT_EPILOGUE_DGELU,
                           .aux = net.aux[l],
                           .aux_ld = relu() ? mask_ld(l) : net.d[l]};
        if (is("bgrad", "dgelu")) {
            e.epilogue = relu() ? CUBLASLT_EPILOGUE_DRELU_BGRAD : CUBLASLT_EPILOGUE_DGELU_BGRAD;
            e.bias = bias_gradient(below, k);
        }
        multiply(1, 0, W->w, g, 0, net.g[l], activation(net.g[l], l), &e);
        if (is("bgrad", "dgelu")) add_part(below, k);
    }
}

static void update_one(struct parameter *p) {
    const struct matrix none = {NULL, 0, 0, real};
    struct matrix target = p->master.at ? p->master : p->w, by = p->gradient;
    if (p->momentum.at) {
        combine(1, p->gradient, 0.9f, p->momentum, p->momentum);
        by = p->momentum;
    }
    combine(-0.05f, by, 1, target, target);
    if (p->master.at) combine(1, p->master, 0, none, p->w);
}

static void train_step(void) {
    if (!is("alloc", "once")) make_activations(1);
    for (int k = 0; k < number("accum"); k++) {
        upload(net.x, (size_t)net.d[0] * net.B, 2, real);
        micro_batches[step]++;
        rows[step] += net.B;
        phase = FORWARD;
        forward(net.x, 1);
        phase = BACKWARD;
        loss();
        backward(k);
    }
    for (int l = 0; l < net.L; l++) {
        update_one(&net.W[l]);
        update_one(&net.b[l]);
    }
    if (!is("alloc", "once")) free_activations();
}

static void evaluate(void) {
    if (!is("alloc", "once")) make_activations(0);
    upload(net.x_eval, (size_t)net.d[0] * net.B, 2, real);
    phase = EVALUATION;
    forward(net.x_eval, 0);
    CHECK(cudaMemcpy(net.host, net.h[net.L], (size_t)net.d[net.L] * net.B * size_of(real), cudaMemcpyDeviceToHost));
    if (!is("alloc", "once")) free_activations();
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        char *equals = strchr(argv[i], '=');
        if (!equals) return 2;
        *equals = 0;
        text(argv[i]); /* ends the program if there is none */
        for (size_t k = 0; k < sizeof options / sizeof *options; k++)
            if (!strcmp(options[k].key, argv[i])) options[k].value = equals + 1;
    }
    real = is("format", "bf16") ? CUDA_R_16BF : CUDA_R_32F;
    CHECK(cublasLtCreate(&lt));
    make_model();
    net.host = malloc((size_t)net.d[net.L] * net.B * sizeof(float));
    for (step = 0; step < number("steps"); step++) {
        if (number("eval") && step % number("eval") == 0) evaluate();
        train_step();
    }
    CHECK(cudaDeviceSynchronize());
    tell();
    return 0;
}
