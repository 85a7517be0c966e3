/* A deep linear autoencoder, trained with cuBLAS alone.
 *
 *   h_0 = x (B, D)    h_l = h_{l-1} · W_l for l = 1…L, W_l (D, D)    y = h_L
 *   loss = 1 / (B·D) · Σ (y − x)²
 *
 * B is the batch (windows of text), D the width, L the number of layers. Everything is fp32 and row-major. What
 * train.c calls is linear_kind (model_kind.h). */
#ifndef TRAIN_LINEAR_MODEL_H
#define TRAIN_LINEAR_MODEL_H

#include "sample_app/device_tensors.h"
#include "sample_app/model_kind.h"

struct linear_model {
    struct model base;
    int B, D, L;
    bool show_activations; /* in the next forward pass */
    struct tensors W;      /* [L] (D, D) param */
    struct tensors dW;     /* [L] (D, D) grad */
    struct tensors v;      /* [L] (D, D) optimizer: velocity; count 0 with plain SGD */
    struct tensors x;      /* [1] (B, D) input */
    struct tensors h;      /* [L] (B, D) activation: h.at[l - 1] is h_l */
    struct tensors d;      /* [min(L, 2)] (B, D) activation_grad: d_l is in d.at[l % count], d_{l-1} in the other */
};

#endif
