/* A GPT: a decoder-only transformer, trained by cuBLAS (products.h) and the kernels of gpt_kernels.cu. What train.c
 * calls is gpt_kind (model_kind.h).
 *
 * B sequences in a batch, T positions in each (N = B·T), C channels, L layers, H heads of Q = C / H channels (R = B·H·T
 * rows of scores), V tokens in the vocabulary; S sets of a layer's activations: L, or 1 with --recompute full.
 *
 * Everything is row-major, and a weight is stored (outputs, inputs). The lists below are the model's memory, with every
 * shape: X(name, number of tensors, rows, columns, …). REAL is the format of the run. */
#ifndef TRAIN_GPT_MODEL_H
#define TRAIN_GPT_MODEL_H

#include "sample_app/device_tensors.h"
#include "sample_app/model_kind.h"
#include "sample_app/trained_tensors.h"

enum gpt_init { INIT_NORMAL, INIT_RESIDUAL, INIT_ONE, INIT_ZERO }; /* the first two: matrices, which decay */

/* X(name, tensors, rows, columns, initial values), in the order of --dump-gradients. All REAL. */
#define GPT_LAYER_PARAMETERS(X)         \
    X(ln1w, L, 1, C, INIT_ONE)          \
    X(ln1b, L, 1, C, INIT_ZERO)         \
    X(qkvw, L, 3 * C, C, INIT_NORMAL)   \
    X(qkvb, L, 1, 3 * C, INIT_ZERO)     \
    X(projw, L, C, C, INIT_RESIDUAL)    \
    X(projb, L, 1, C, INIT_ZERO)        \
    X(ln2w, L, 1, C, INIT_ONE)          \
    X(ln2b, L, 1, C, INIT_ZERO)         \
    X(fcw, L, 4 * C, C, INIT_NORMAL)    \
    X(fcb, L, 1, 4 * C, INIT_ZERO)      \
    X(outw, L, C, 4 * C, INIT_RESIDUAL) \
    X(outb, L, 1, C, INIT_ZERO)

#define GPT_PARAMETERS(X)        \
    X(wte, 1, V, C, INIT_NORMAL) \
    X(wpe, 1, T, C, INIT_NORMAL) \
    GPT_LAYER_PARAMETERS(X)      \
    X(lnfw, 1, 1, C, INIT_ONE)   \
    X(lnfb, 1, 1, C, INIT_ZERO)  \
    X(head, untied, V, C, INIT_NORMAL)

/* What a layer's backward needs of its forward. */
#define GPT_LAYER_ACTIVATIONS(X) \
    X(ln1, S, N, C, REAL)        \
    X(ln1_mean, S, N, 1, FP32)   \
    X(ln1_rstd, S, N, 1, FP32)   \
    X(q, S, N, C, REAL)          \
    X(k, S, N, C, REAL)          \
    X(v, S, N, C, REAL)          \
    X(att, S, R, T, REAL)        \
    X(joined, S, N, C, REAL)     \
    X(middle, S, N, C, REAL)     \
    X(ln2, S, N, C, REAL)        \
    X(ln2_mean, S, N, 1, FP32)   \
    X(ln2_rstd, S, N, 1, FP32)   \
    X(fc, S, N, 4 * C, REAL)     \
    X(gelu, S, N, 4 * C, REAL)

/* What only passes values on, from one call to the next: one for all layers. */
#define GPT_PASSING(X)        \
    X(qkv, 1, N, 3 * C, REAL) \
    X(y, 1, N, C, REAL)       \
    X(branch, 1, N, C, REAL)

#define GPT_HEAD(X)            \
    X(lnf, 1, N, C, REAL)      \
    X(lnf_mean, 1, N, 1, FP32) \
    X(lnf_rstd, 1, N, 1, FP32) \
    X(logits, 1, N, V, REAL)   \
    X(losses, 1, N, 1, FP32)   \
    X(mean_loss, 1, 1, 1, FP32)

/* encoded, residual: the input of the first layer, the output of each. */
#define GPT_ACTIVATIONS(X)     \
    X(encoded, 1, N, C, REAL)  \
    X(residual, L, N, C, REAL) \
    GPT_LAYER_ACTIVATIONS(X)   \
    GPT_PASSING(X)             \
    GPT_HEAD(X)

/* Gradients of activations: one set, which every layer's backward uses again. */
#define GPT_LAYER_GRADIENTS(X) \
    X(dbranch, 1, N, C, REAL)  \
    X(dfc, 1, N, 4 * C, REAL)  \
    X(dy, 1, N, C, REAL)       \
    X(datt, 1, R, T, REAL)     \
    X(dq, 1, N, C, REAL)       \
    X(dk, 1, N, C, REAL)       \
    X(dv, 1, N, C, REAL)       \
    X(dqkv, 1, N, 3 * C, REAL)

#define GPT_ACTIVATION_GRADIENTS(X) \
    X(dlogits, 1, N, V, REAL)       \
    X(dresidual, 1, N, C, REAL)     \
    GPT_LAYER_GRADIENTS(X)

#define GPT_MEMBER(name, ...) real **name; /* [tensors] */
struct gpt_parameters {
    GPT_PARAMETERS(GPT_MEMBER)
};
struct gpt_activations {
    GPT_ACTIVATIONS(GPT_MEMBER)
};
struct gpt_activation_gradients {
    GPT_ACTIVATION_GRADIENTS(GPT_MEMBER)
};

struct gpt_model {
    struct model base;
    int B, T, C, L, H, Q, V, N, R, S;
    bool untied, recompute;
    bool backward_follows;     /* the forward pass that runs */
    enum number_format format; /* of REAL */
    struct tensors activations, activation_gradients;
    enum gpt_init *init;         /* [parameters] */
    bool *decays;                /* [parameters] */
    struct gpt_parameters w, dw; /* the tensors by name; dw: float */
    struct gpt_activations a;
    struct gpt_activation_gradients d;
    float *host_loss;  /* page-locked */
    void *host_logits; /* (V) REAL, page-locked; NULL without --sample */
};

/* ---- gpt_memory.c ---- */

/* Allocate all, clear the state, draw the weights; waits for the device. */
void gpt_memory_create(struct gpt_model *m, const struct train_options *o);
void gpt_memory_destroy(struct gpt_model *m);

/* Where --alloc step and pool allocate and release, and where --zero-grad none makes gradients anew: at the beginning
 * and the end of each part of a step. With other choices these do nothing. */
void gpt_begin_forward(struct gpt_model *m);
void gpt_begin_layer(struct gpt_model *m, int l);
void gpt_end_layer(struct gpt_model *m, int l);
void gpt_begin_head(struct gpt_model *m);
void gpt_end_forward(struct gpt_model *m);
void gpt_begin_backward(struct gpt_model *m);
void gpt_end_head_backward(struct gpt_model *m);
void gpt_begin_recompute(struct gpt_model *m, int l);
void gpt_end_recompute(struct gpt_model *m);
void gpt_begin_layer_backward(struct gpt_model *m, int l);
void gpt_end_layer_backward(struct gpt_model *m, int l);
void gpt_begin_embedding_backward(struct gpt_model *m);
void gpt_end_backward(struct gpt_model *m);

/* Where the activations of layer l are: its own, or those that all layers share. */
static inline int gpt_set(const struct gpt_model *m, int l) {
    return m->recompute ? 0 : l;
}

#endif
