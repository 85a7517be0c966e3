/* A deep linear autoencoder, trained with cuBLAS alone.
 *
 *   h_0 = x (B, D)    h_l = h_{l-1} · W_l for l = 1…L, W_l (D, D)    y = h_L
 *   loss = 1 / (B·D) · Σ (y − x)²
 *
 * B is the batch (windows of text), D the width, L the number of layers. Everything is fp32 and row-major. */
#ifndef TRAIN_LINEAR_MODEL_H
#define TRAIN_LINEAR_MODEL_H

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* `count` tensors of n floats on the device, in one allocation or one each. */
struct tensors {
    float **at; /* [count] */
    int count;
    size_t n;
    bool together; /* one allocation: tensor i + 1 follows tensor i */
};

struct linear_model {
    int B, D, L;
    struct tensors W;  /* [L] (D, D) param */
    struct tensors dW; /* [L] (D, D) grad */
    struct tensors v;  /* [L] (D, D) optimizer: velocity; count 0 with plain SGD */
    struct tensors x;  /* [1] (B, D) input */
    struct tensors h;  /* [L] (B, D) activation: h.at[l - 1] is h_l */
    struct tensors d;  /* [min(L, 2)] (B, D) activation_grad: d_l is in d.at[l % count], d_{l-1} in the other */
    cublasHandle_t cublas;
    cudaStream_t stream;
};

struct linear_shape {
    int B, D, L;
    bool momentum; /* keep a velocity */
    bool together; /* one allocation for each class of memory */
    bool unscaled; /* weights of standard deviation 1 in place of 1/sqrt(D) */
    uint64_t seed;
};

void linear_create(struct linear_model *m, struct linear_shape shape);
void linear_forward(struct linear_model *m);
float linear_loss(struct linear_model *m);                /* d_L = ∂loss/∂y too; waits for the device */
void linear_backward(struct linear_model *m);             /* dW_l for all l */
void linear_update_sgd(struct linear_model *m, float lr); /* W −= lr·dW */
void linear_update_momentum(struct linear_model *m, float lr, float mu); /* v = mu·v + dW, W −= lr·v */
void linear_destroy(struct linear_model *m);

int64_t linear_parameters(const struct linear_model *m);
int64_t linear_flops(const struct linear_model *m); /* of the matrix products of one step */

/* Print the root mean square of x and of each h_l. */
void linear_print_activations(struct linear_model *m);
/* Write x, W_1…W_L and dW_1…dW_L: a line of text, then raw fp32. 0, or -1 with errno set. */
int linear_dump(struct linear_model *m, int64_t step, FILE *file);

#endif
