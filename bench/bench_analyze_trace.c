/* The training run of a synthetic trace: forward, backward, update of a GPT whose parts are those that decide how an
 * analysis works: residual stream, products with weights and without, activations kept for backward. */
#include "bench/bench_analyze_trace.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "bench/bench_analyze_rows.h"

enum { B = 4, T = 64, C = 128, NH = 4, HS = C / NH, V = 512, R = B * T, LAYERS = 6, MOST_LAYERS = 64, BLOCK = 256 };

enum {
    K_INIT,
    K_EMBED,
    K_EMBED_BACKWARD,
    K_SCALE,
    K_SCALE_BACKWARD,
    K_PERMUTE,
    K_SOFTMAX,
    K_SOFTMAX_BACKWARD,
    K_GELU,
    K_GELU_BACKWARD,
    K_RESIDUAL,
    K_LOSS,
    K_ADAMW,
    KERNELS
};
static const struct {
    const char *name, *args; /* p pointer, i int, f float */
} kernels[KERNELS] = {[K_INIT] = {"init_normal", "pii"},
                      [K_EMBED] = {"embed", "ppppii"},
                      [K_EMBED_BACKWARD] = {"embed_backward", "ppppii"},
                      [K_SCALE] = {"scale_rows", "pppi"},
                      [K_SCALE_BACKWARD] = {"scale_rows_backward", "pppppi"},
                      [K_PERMUTE] = {"permute", "ppi"},
                      [K_SOFTMAX] = {"softmax", "ppi"},
                      [K_SOFTMAX_BACKWARD] = {"softmax_backward", "pppi"},
                      [K_GELU] = {"gelu", "ppi"},
                      [K_GELU_BACKWARD] = {"gelu_backward", "pppi"},
                      [K_RESIDUAL] = {"residual", "pppi"},
                      [K_LOSS] = {"cross_entropy", "ppppi"},
                      [K_ADAMW] = {"adamw", "ppppfffi"}};

enum { W_LN1, W_QKV, W_PROJ, W_LN2, W_FC, W_FCPROJ, LAYER_TENSORS }; /* of a layer; behind all layers: */
enum { W_TOKENS, W_POSITIONS, W_LNF, W_HEAD, OWN_TENSORS };
enum { A_LN1, A_QKV, A_QKVR, A_PRE, A_ATT, A_ATTY, A_PROJ, A_X2, A_LN2, A_FCH, A_GELU, A_FCPROJ, A_X, LAYER_ACTS };
enum {
    S_TOKENS,
    S_TARGETS,
    S_X0,
    S_LNF,
    S_LOGITS,
    S_DLOGITS,
    S_LOSSES,
    S_DX,
    S_D4,
    S_DC,
    S_DQKV,
    S_DQKVR,
    S_DATT,
    S_DPRE,
    STATICS
};
enum { TENSORS = MOST_LAYERS * LAYER_TENSORS + OWN_TENSORS };
enum { VALUE, GRADIENT, FIRST_MOMENT, SECOND_MOMENT, COPIES };

struct run {
    struct bench_rows rows;
    struct bench_trace_truth *truth;
    int layers, tensors, per_step;
    int64_t kernel[KERNELS];
    uint64_t next_address;
    int64_t tensor_floats[TENSORS];
    uint64_t tensor[COPIES][TENSORS];
    uint64_t act[MOST_LAYERS][LAYER_ACTS];
    int64_t act_alloc[MOST_LAYERS][LAYER_ACTS];
    uint64_t fixed[STATICS];
    int64_t flops;
};

static const int64_t act_floats[LAYER_ACTS] = {
    [A_LN1] = R * C,      [A_QKV] = 3 * R * C, [A_QKVR] = 3 * R * C, [A_PRE] = B * NH * T * T, [A_ATT] = B * NH * T * T,
    [A_ATTY] = R * C,     [A_PROJ] = R * C,    [A_X2] = R * C,       [A_LN2] = R * C,          [A_FCH] = 4 * R * C,
    [A_GELU] = 4 * R * C, [A_FCPROJ] = R * C,  [A_X] = R * C};
static const int64_t fixed_bytes[STATICS] = {[S_TOKENS] = 4 * R,
                                             [S_TARGETS] = 4 * R,
                                             [S_X0] = 4 * R * C,
                                             [S_LNF] = 4 * R * C,
                                             [S_LOGITS] = 4 * R * V,
                                             [S_DLOGITS] = 4 * R * V,
                                             [S_LOSSES] = 4 * R,
                                             [S_DX] = 4 * R * C,
                                             [S_D4] = 16 * R * C,
                                             [S_DC] = 4 * R * C,
                                             [S_DQKV] = 12 * R * C,
                                             [S_DQKVR] = 12 * R * C,
                                             [S_DATT] = 4 * B * NH * T * T,
                                             [S_DPRE] = 4 * B * NH * T * T};

static uint64_t fresh(struct run *g, int64_t bytes) {
    uint64_t at = g->next_address;
    g->next_address += ((uint64_t)bytes + 511) & ~(uint64_t)511;
    return at;
}

static int64_t allocate(struct run *g, uint64_t address, int64_t bytes) {
    g->truth->allocations++;
    return bench_rows_alloc(&g->rows, address, bytes);
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

static void launch(struct run *g, int kernel, int64_t grid, ...) {
    struct bench_launch l = {.kernel = g->kernel[kernel], .grid = (uint32_t)grid, .block = BLOCK};
    va_list ap;
    va_start(ap, grid);
    for (const char *a = kernels[kernel].args; *a; a++) {
        uint64_t pointer = *a == 'p' ? va_arg(ap, uint64_t) : 0;
        float number = *a == 'f' ? (float)va_arg(ap, double) : 0;
        int integer = *a == 'i' ? va_arg(ap, int) : 0;
        uint32_t bytes = *a == 'p' ? 8 : 4;
        l.arg_bytes = (l.arg_bytes + bytes - 1) / bytes * bytes;
        memcpy(l.args + l.arg_bytes,
               *a == 'p'   ? (void *)&pointer
               : *a == 'f' ? (void *)&number
                           : (void *)&integer,
               bytes);
        l.arg_bytes += bytes;
    }
    va_end(ap);
    bench_rows_launch(&g->rows, &l);
}

static int64_t blocks(int64_t n) {
    return (n + BLOCK - 1) / BLOCK;
}

static void product(struct run *g, struct bench_gemm p) {
    if (!p.batch) {
        p.batch = 1;
        p.stride_a = p.stride_b = p.stride_c = -1;
    }
    g->flops += 2 * p.m * p.n * p.k * p.batch;
    bench_rows_gemm(&g->rows, &p);
}

/* Row-major out(R, to) = in(R, from) · Wᵀ, W(to, from). */
static void forward_product(struct run *g, uint64_t out, uint64_t in, uint64_t w, int64_t from, int64_t to) {
    product(g, (struct bench_gemm){'T', 'N', to, R, from, 0, w, in, out, from, from, to, 0, 0, 0, 0});
}

static void backward_products(struct run *g, uint64_t din, uint64_t dw, uint64_t dout, uint64_t in, uint64_t w,
                              int64_t from, int64_t to) {
    product(g, (struct bench_gemm){'N', 'N', from, R, to, 0, w, dout, din, from, to, from, 0, 0, 0, 0});
    product(g, (struct bench_gemm){'N', 'T', from, to, R, 0, in, dout, dw, from, to, from, 0, 0, 0, 1});
}

/* Of each head: (T, T) = x(T, HS) · y(T, HS)ᵀ. */
static void scores(struct run *g, uint64_t out, uint64_t x, uint64_t y) {
    product(g, (struct bench_gemm){'T', 'N', T, T, HS, B * NH, y, x, out, HS, HS, T, T * HS, T * HS, T * T, 0});
}

/* (T, HS) = s(T, T), or its transpose, · x(T, HS). */
static void mix(struct run *g, uint64_t out, uint64_t s, char trans, uint64_t x) {
    product(g, (struct bench_gemm){'N', trans, HS, T, T, B * NH, x, s, out, HS, T, HS, T * HS, T * T, T * HS, 0});
}

/* ---- one step ---------------------------------------------------------------------------------------------------- */

static int tensor_of(int layer, int which) {
    return layer * LAYER_TENSORS + which;
}

static uint64_t value(const struct run *g, int layer, int which) {
    return g->tensor[VALUE][tensor_of(layer, which)];
}

static uint64_t gradient(const struct run *g, int layer, int which) {
    return g->tensor[GRADIENT][tensor_of(layer, which)];
}

/* The residual stream that enters a layer. */
static uint64_t stream(const struct run *g, int layer) {
    return layer ? g->act[layer - 1][A_X] : g->fixed[S_X0];
}

/* At the address of the step before, as allocators do. */
static void take_activations(struct run *g, int layer) {
    for (int i = 0; i < g->per_step; i++) g->act_alloc[layer][i] = allocate(g, g->act[layer][i], 4 * act_floats[i]);
}

static void release_activations(struct run *g, int layer) {
    for (int i = 0; i < g->per_step; i++) bench_rows_free(&g->rows, g->act_alloc[layer][i], g->act[layer][i]);
}

static void forward_layer(struct run *g, int l) {
    uint64_t *a = g->act[l], x = stream(g, l), part = 4 * R * C;
    take_activations(g, l);
    launch(g, K_SCALE, R, a[A_LN1], x, value(g, l, W_LN1), C);
    forward_product(g, a[A_QKV], a[A_LN1], value(g, l, W_QKV), C, 3 * C);
    launch(g, K_PERMUTE, blocks(3 * R * C), a[A_QKVR], a[A_QKV], 3 * R * C);
    scores(g, a[A_PRE], a[A_QKVR], a[A_QKVR] + part);
    launch(g, K_SOFTMAX, B * NH * T, a[A_ATT], a[A_PRE], T);
    mix(g, a[A_ATTY], a[A_ATT], 'N', a[A_QKVR] + 2 * part);
    forward_product(g, a[A_PROJ], a[A_ATTY], value(g, l, W_PROJ), C, C);
    launch(g, K_RESIDUAL, blocks(R * C), a[A_X2], x, a[A_PROJ], R * C);
    launch(g, K_SCALE, R, a[A_LN2], a[A_X2], value(g, l, W_LN2), C);
    forward_product(g, a[A_FCH], a[A_LN2], value(g, l, W_FC), C, 4 * C);
    launch(g, K_GELU, blocks(4 * R * C), a[A_GELU], a[A_FCH], 4 * R * C);
    forward_product(g, a[A_FCPROJ], a[A_GELU], value(g, l, W_FCPROJ), 4 * C, C);
    launch(g, K_RESIDUAL, blocks(R * C), a[A_X], a[A_X2], a[A_FCPROJ], R * C);
}

static void backward_layer(struct run *g, int l) {
    uint64_t *a = g->act[l], *s = g->fixed, x = stream(g, l), part = 4 * R * C;
    backward_products(g, s[S_D4], gradient(g, l, W_FCPROJ), s[S_DX], a[A_GELU], value(g, l, W_FCPROJ), 4 * C, C);
    launch(g, K_GELU_BACKWARD, blocks(4 * R * C), s[S_D4], a[A_FCH], s[S_D4], 4 * R * C);
    backward_products(g, s[S_DC], gradient(g, l, W_FC), s[S_D4], a[A_LN2], value(g, l, W_FC), C, 4 * C);
    launch(g, K_SCALE_BACKWARD, R, s[S_DX], gradient(g, l, W_LN2), s[S_DC], a[A_X2], value(g, l, W_LN2), C);
    backward_products(g, s[S_DC], gradient(g, l, W_PROJ), s[S_DX], a[A_ATTY], value(g, l, W_PROJ), C, C);
    scores(g, s[S_DATT], s[S_DC], a[A_QKVR] + 2 * part);
    mix(g, s[S_DQKVR] + 2 * part, a[A_ATT], 'T', s[S_DC]);
    launch(g, K_SOFTMAX_BACKWARD, B * NH * T, s[S_DPRE], s[S_DATT], a[A_ATT], T);
    mix(g, s[S_DQKVR], s[S_DPRE], 'N', a[A_QKVR] + part);
    mix(g, s[S_DQKVR] + part, s[S_DPRE], 'T', a[A_QKVR]);
    launch(g, K_PERMUTE, blocks(3 * R * C), s[S_DQKV], s[S_DQKVR], 3 * R * C);
    backward_products(g, s[S_DC], gradient(g, l, W_QKV), s[S_DQKV], a[A_LN1], value(g, l, W_QKV), C, 3 * C);
    launch(g, K_SCALE_BACKWARD, R, s[S_DX], gradient(g, l, W_LN1), s[S_DC], x, value(g, l, W_LN1), C);
    release_activations(g, l);
}

static void update(struct run *g, int step) {
    for (int i = 0; i < g->tensors; i++)
        launch(g, K_ADAMW, blocks(g->tensor_floats[i]), g->tensor[VALUE][i], g->tensor[FIRST_MOMENT][i],
               g->tensor[SECOND_MOMENT][i], g->tensor[GRADIENT][i], 1e-3 / (1 + step), 1 - 1 / (2.0 + step),
               1 - 1 / (3.0 + step), (int)g->tensor_floats[i]);
}

static void one_step(struct run *g, int step) {
    static const uint64_t host = 0x7f0000000000;
    uint64_t *s = g->fixed;
    int own = g->layers;
    g->flops = 0;
    bench_rows_copy(&g->rows, "h2d", s[S_TOKENS], host, 4 * R);
    bench_rows_copy(&g->rows, "h2d", s[S_TARGETS], host + 4 * R, 4 * R);
    launch(g, K_EMBED, R, s[S_X0], s[S_TOKENS], value(g, own, W_TOKENS), value(g, own, W_POSITIONS), T, C);
    for (int l = 0; l < g->layers; l++) forward_layer(g, l);
    launch(g, K_SCALE, R, s[S_LNF], stream(g, g->layers), value(g, own, W_LNF), C);
    forward_product(g, s[S_LOGITS], s[S_LNF], value(g, own, W_HEAD), C, V);
    launch(g, K_LOSS, R, s[S_LOSSES], s[S_DLOGITS], s[S_LOGITS], s[S_TARGETS], V);
    bench_rows_copy(&g->rows, "d2h", host + 8 * R, s[S_LOSSES], 4 * R);
    for (int i = 0; i < g->tensors; i++) bench_rows_memset(&g->rows, g->tensor[GRADIENT][i], 4 * g->tensor_floats[i]);
    backward_products(g, s[S_DC], gradient(g, own, W_HEAD), s[S_DLOGITS], s[S_LNF], value(g, own, W_HEAD), C, V);
    bench_rows_memset(&g->rows, s[S_DX], 4 * R * C);
    launch(g, K_SCALE_BACKWARD, R, s[S_DX], gradient(g, own, W_LNF), s[S_DC], stream(g, g->layers),
           value(g, own, W_LNF), C);
    for (int l = g->layers - 1; l >= 0; l--) backward_layer(g, l);
    launch(g, K_EMBED_BACKWARD, R, gradient(g, own, W_TOKENS), gradient(g, own, W_POSITIONS), s[S_DX], s[S_TOKENS], T,
           C);
    update(g, step);
}

/* ---- the run ----------------------------------------------------------------------------------------------------- */

static void size_tensors(struct run *g) {
    static const int64_t layer[LAYER_TENSORS] = {
        [W_LN1] = C, [W_QKV] = 3 * C * C, [W_PROJ] = C * C, [W_LN2] = C, [W_FC] = 4 * C * C, [W_FCPROJ] = 4 * C * C};
    static const int64_t own[OWN_TENSORS] = {[W_TOKENS] = V * C, [W_POSITIONS] = T * C, [W_LNF] = C, [W_HEAD] = V * C};
    g->tensors = g->layers * LAYER_TENSORS + OWN_TENSORS;
    for (int l = 0; l < g->layers; l++)
        for (int i = 0; i < LAYER_TENSORS; i++) g->tensor_floats[tensor_of(l, i)] = layer[i];
    for (int i = 0; i < OWN_TENSORS; i++) g->tensor_floats[tensor_of(g->layers, i)] = own[i];
}

static void set_up_tensors(struct run *g) {
    int64_t bytes = 0;
    for (int c = 0; c < COPIES; c++)
        for (int i = 0; i < g->tensors; i++)
            allocate(g, g->tensor[c][i] = fresh(g, 4 * g->tensor_floats[i]), 4 * g->tensor_floats[i]);
    for (int i = 0; i < g->tensors; i++) {
        bytes += 4 * g->tensor_floats[i];
        launch(g, K_INIT, blocks(g->tensor_floats[i]), g->tensor[VALUE][i], (int)g->tensor_floats[i], i);
        bench_rows_memset(&g->rows, g->tensor[FIRST_MOMENT][i], 4 * g->tensor_floats[i]);
        bench_rows_memset(&g->rows, g->tensor[SECOND_MOMENT][i], 4 * g->tensor_floats[i]);
    }
    g->truth->param = g->truth->grad = bytes;
    g->truth->optimizer = 2 * bytes;
}

static void set_up_buffers(struct run *g) {
    for (int l = 0; l < g->layers; l++)
        for (int i = 0; i < LAYER_ACTS; i++) {
            g->act[l][i] = fresh(g, 4 * act_floats[i]);
            if (i >= g->per_step) allocate(g, g->act[l][i], 4 * act_floats[i]);
        }
    for (int i = 0; i < STATICS; i++) allocate(g, g->fixed[i] = fresh(g, fixed_bytes[i]), fixed_bytes[i]);
    g->truth->input = fixed_bytes[S_TOKENS] + fixed_bytes[S_TARGETS];
}

/* Of all blocks of the run, however long each lived. The losses are not read by backward, and kept. */
static void book_activations(struct run *g) {
    static const int forward[] = {S_X0, S_LNF, S_LOGITS, S_LOSSES};
    struct bench_trace_truth *t = g->truth;
    for (int i = 0; i < 4; i++) t->activation += fixed_bytes[forward[i]];
    for (int i = S_DX; i < STATICS; i++) t->activation_grad += fixed_bytes[i];
    t->activation_grad += fixed_bytes[S_DLOGITS];
    for (int i = 0; i < LAYER_ACTS; i++)
        t->activation += 4 * act_floats[i] * g->layers * (i < g->per_step ? t->steps : 1);
}

static int load_kernels(struct run *g, const char *path, char *err, size_t err_len) {
    FILE *f = fopen(path, "re");
    char *text = NULL;
    size_t room = 0;
    ssize_t n = f ? getdelim(&text, &room, 0, f) : -1;
    if (f) fclose(f);
    if (n <= 0) snprintf(err, err_len, "%s cannot be read", path);
    if (n > 0) bench_rows_module(&g->rows, text, (size_t)n);
    free(text);
    for (int k = 0; k < KERNELS && n > 0; k++) {
        char params[256] = "[";
        size_t at = 1, offset = 0;
        for (const char *a = kernels[k].args; *a; a++) {
            size_t bytes = *a == 'p' ? 8 : 4;
            offset = (offset + bytes - 1) / bytes * bytes;
            at += (size_t)snprintf(params + at, sizeof params - at, "%s[%zu,%zu]", at > 1 ? "," : "", offset, bytes);
            offset += bytes;
        }
        snprintf(params + at, sizeof params - at, "]");
        g->kernel[k] = bench_rows_kernel(&g->rows, kernels[k].name, params);
    }
    return n > 0 ? 0 : -1;
}

static void run_steps(struct run *g, int64_t ops) {
    struct bench_trace_truth *t = g->truth;
    int64_t before = g->rows.ops;
    do {
        one_step(g, (int)t->steps++);
    } while (!g->rows.failed && (t->steps < 2 || g->rows.ops + (g->rows.ops - before) / t->steps <= ops));
    t->gemm_flops = g->flops;
    t->ops = g->rows.ops;
}

int bench_trace_make(const char *path, const struct bench_trace_options *options, struct bench_trace_truth *truth,
                     char *err, size_t err_len) {
    struct run *g = calloc(1, sizeof *g);
    *truth = (struct bench_trace_truth){0};
    if (!g || bench_rows_open(&g->rows, path, err, err_len)) {
        free(g);
        return -1;
    }
    g->truth = truth;
    g->layers = options->layers > 0 && options->layers <= MOST_LAYERS ? options->layers : LAYERS;
    g->per_step = options->per_step < 0 ? 0 : options->per_step > LAYER_ACTS ? LAYER_ACTS : options->per_step;
    g->next_address = 0x7e0000000000;
    int rc = load_kernels(g, options->ptx, err, err_len);
    size_tensors(g);
    set_up_tensors(g);
    set_up_buffers(g);
    if (!rc) run_steps(g, options->ops);
    book_activations(g);
    if (bench_rows_close(&g->rows, err, err_len)) rc = -1;
    free(g);
    return rc;
}
