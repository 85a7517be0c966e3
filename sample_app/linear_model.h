/* A deep linear autoencoder. In fp32 and tf32 it is trained with cuBLAS alone, unless the update is more than sgd or
 * momentum; in bf16 and fp16 its loss has a kernel of its own.
 *
 *   h_0 = x (B, D)    h_l = h_{l-1} · W_l for l = 1…L, W_l (D, D)    y = h_L
 *   loss = 1 / (B·D) · Σ (y − x)²
 *
 * B is the batch (windows of text), D the width, L the number of layers. Everything is row-major, and in the format of
 * the run where nothing is said. What train.c calls is linear_kind (model_kind.h). */
#ifndef TRAIN_LINEAR_MODEL_H
#define TRAIN_LINEAR_MODEL_H

#include "sample_app/device_tensors.h"
#include "sample_app/model_kind.h"
#include "sample_app/trained_tensors.h"

/* W, dW and the rest of what is trained are in base.trained: [L] (D, D) each. */
struct linear_model {
    struct model base;
    int B, D, L;
    enum number_format format;
    bool show_activations; /* in the next forward pass */
    bool fresh;            /* no gradient of the step is there yet */
    bool *decays;          /* [L] */
    struct tensors h;      /* [L] (B, D) activation: h.at[l - 1] is h_l */
    struct tensors d;      /* [min(L, 2)] (B, D) activation_grad: d_l is in d.at[l % count], d_{l-1} in the other */
    struct tensors losses; /* bf16, fp16: (B) of each row and their mean (1), activation, fp32; else count 0 */
    float *host_loss;      /* page-locked; NULL without `losses` */
};

#endif
