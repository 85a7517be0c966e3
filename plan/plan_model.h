/* A model as the napkin writes it: layers=12,dim=768,heads=12,seq=1024,vocab=50257, and from it the weights one by one,
 * with their shapes. The transformer is a decoder in the manner of GPT-2, as sample_app's, unless more is said:
 *
 *   ff=4·dim  kv_heads=heads  head=dim/heads  tied=yes  bias=yes  gated=no  norm=layer|rms position=learned|rotary|none
 *
 * gated: three matrices in the feed-forward part (SwiGLU). norm=rms has no bias; bias=no takes those of layer norms
 * too. kind=linear is the lecture's deep linear model, of layers (dim, dim) and nothing else. Pure functions, any
 * thread; the caller owns everything. Errors: -1 with one line in err, which names the word. */
#ifndef ACCT_PLAN_MODEL_H
#define ACCT_PLAN_MODEL_H

#include <stddef.h>
#include <stdint.h>

enum plan_model_kind { PLAN_GPT, PLAN_LINEAR, PLAN_MODEL_KINDS };
enum plan_position { PLAN_LEARNED, PLAN_ROTARY, PLAN_NO_POSITION, PLAN_POSITIONS };

struct plan_model {
    enum plan_model_kind kind;
    enum plan_position position;
    /* Counts. After plan_model_read none is 0 but batch (not given), and those that a linear model has not. */
    int64_t layers, dim, heads, head, kv_heads, ff, seq, batch, vocab;
    int tied, bias, gated, rms; /* 0 or 1 */
};

/* Reads the text; fills in what it leaves out. A count is at most 1e12. */
int plan_model_read(const char *text, struct plan_model *out, char *err, size_t err_len);

/* What a weight does in forward: one that multiplies costs 2 FLOPs a parameter and token. */
enum plan_weight_use {
    PLAN_MULTIPLIES,  /* in a matrix product, once a token */
    PLAN_LOOKED_UP,   /* rows are looked up by token */
    PLAN_BY_POSITION, /* rows are looked up by position */
    PLAN_ADDS,        /* biases, norms: elementwise */
    PLAN_WEIGHT_USES
};

struct plan_weight {
    const char *name;         /* as sample_app's GPT has it: wte, wpe, ln1w, …; a constant */
    int64_t tensors;          /* how many such: layers, or 1 */
    int64_t rows, columns;    /* of each; (outputs, inputs) of a matrix */
    enum plan_weight_use use; /* of tied embeddings PLAN_MULTIPLIES: the head uses them */
};

/* The model's weights, in the order in which sample_app has them; fills at most PLAN_MODEL_WEIGHTS; returns how many.
 */
enum { PLAN_MODEL_WEIGHTS = 24 };
int plan_model_weights(const struct plan_model *m, struct plan_weight *out);

/* Sums over the weights, in parameters (numbers, not bytes). -1: beyond int64. */
struct plan_parameters {
    int64_t all;
    int64_t of[PLAN_WEIGHT_USES]; /* parts of `all` */
};
int plan_model_parameters(const struct plan_model *m, struct plan_parameters *out, char *err, size_t err_len);

#endif
