/* A GPT: a decoder-only transformer over bytes, trained in fp32 by cuBLAS and the kernels of gpt_kernels.cu. What
 * train.c calls is gpt_kind (model_kind.h).
 *
 * B sequences in a batch, T positions in each (N = B·T), C channels, L layers, H heads of Q = C / H channels (R = B·H·T
 * rows of scores), V tokens (bytes).
 *
 * Everything is row-major, and a weight is stored (outputs, inputs). The lists below are the model's memory, with every
 * shape: X(name, number of tensors, rows, columns, initial values), in the order of the allocations and of
 * --dump-gradients. */
#ifndef TRAIN_GPT_MODEL_H
#define TRAIN_GPT_MODEL_H

#include "sample_app/device_tensors.h"
#include "sample_app/model_kind.h"

enum { GPT_V = 256 };

enum gpt_init { INIT_NORMAL, INIT_RESIDUAL, INIT_ONE, INIT_ZERO }; /* the first two: matrices, which decay */

#define GPT_PARAMETERS(X)               \
    X(wte, 1, V, C, INIT_NORMAL)        \
    X(wpe, 1, T, C, INIT_NORMAL)        \
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
    X(outb, L, 1, C, INIT_ZERO)         \
    X(lnfw, 1, 1, C, INIT_ONE)          \
    X(lnfb, 1, 1, C, INIT_ZERO)         \
    X(head, untied, V, C, INIT_NORMAL)

/* Kept from forward for backward, but for qkv, y, branch, logits and the losses, which only pass values on. */
#define GPT_ACTIVATIONS(X) \
    X(encoded, 1, N, C)    \
    X(ln1, L, N, C)        \
    X(ln1_mean, L, N, 1)   \
    X(ln1_rstd, L, N, 1)   \
    X(qkv, 1, N, 3 * C)    \
    X(q, L, N, C)          \
    X(k, L, N, C)          \
    X(v, L, N, C)          \
    X(att, L, R, T)        \
    X(y, 1, N, C)          \
    X(joined, L, N, C)     \
    X(branch, 1, N, C)     \
    X(middle, L, N, C)     \
    X(ln2, L, N, C)        \
    X(ln2_mean, L, N, 1)   \
    X(ln2_rstd, L, N, 1)   \
    X(fc, L, N, 4 * C)     \
    X(gelu, L, N, 4 * C)   \
    X(residual, L, N, C)   \
    X(lnf, 1, N, C)        \
    X(lnf_mean, 1, N, 1)   \
    X(lnf_rstd, 1, N, 1)   \
    X(logits, 1, N, V)     \
    X(losses, 1, N, 1)     \
    X(mean_loss, 1, 1, 1)

/* Reused by every layer of backward. */
#define GPT_ACTIVATION_GRADIENTS(X) \
    X(dlogits, 1, N, V)             \
    X(dresidual, 1, N, C)           \
    X(dbranch, 1, N, C)             \
    X(dfc, 1, N, 4 * C)             \
    X(dy, 1, N, C)                  \
    X(datt, 1, R, T)                \
    X(dq, 1, N, C)                  \
    X(dk, 1, N, C)                  \
    X(dv, 1, N, C)                  \
    X(dqkv, 1, N, 3 * C)

#define GPT_INPUTS(X)  \
    X(tokens, 1, B, T) \
    X(targets, 1, B, T)

#define GPT_MEMBER(name, ...) float **name; /* [tensors] */
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
    int B, T, C, L, H, Q, V, N, R;
    bool untied;
    struct tensors parameters, gradients, state; /* state: of the optimizer, each moment laid out as the parameters */
    struct tensors activations, activation_gradients, inputs;
    enum gpt_init *init;         /* [parameters.count] */
    struct gpt_parameters w, dw; /* the tensors by name */
    struct gpt_activations a;
    struct gpt_activation_gradients d;
    int *tokens, *targets; /* (B, T) each */
    void *workspace;       /* cuBLAS's, so that it takes no memory of its own */
    float *host_loss;      /* page-locked */
};

/* gpt_memory.c: allocate all, clear the state, draw the weights; waits for the device. */
void gpt_memory_create(struct gpt_model *m, const struct train_options *o);
void gpt_memory_destroy(struct gpt_model *m);

#endif
