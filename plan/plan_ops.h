/* FLOPs and elements of the layers of networks, by formula. A multiply-add is 2. Real elements; amounts are exact.
 * Functions return 0, or -1 with one line in err. Pure, any thread. Formulas: see each function. */
#ifndef ACCT_PLAN_OPS_H
#define ACCT_PLAN_OPS_H

#include <stddef.h>
#include <stdint.h>

enum { PLAN_SPATIAL = 3 };

/* Product of n factors, none negative; 0 if one is 0, whatever the others. 0, or -1 beyond 128 bit. */
int plan_product(int n, const int64_t *factors, __int128 *out);

/* ---- convolution, and its transpose ---- */

struct plan_conv {
    int transposed, spatial; /* spatial dimensions, 1 to 3 */
    int64_t batch, in_channels, out_channels, groups;
    int64_t in[PLAN_SPATIAL], kernel[PLAN_SPATIAL], stride[PLAN_SPATIAL], padding[PLAN_SPATIAL], dilation[PLAN_SPATIAL],
        output_padding[PLAN_SPATIAL]; /* the last: of a transposed one */
};

struct plan_conv_cost {
    int64_t out[PLAN_SPATIAL];
    __int128 flops;   /* forward; the input gradient and the weight gradient cost the same each */
    __int128 x, w, y; /* elements of input, weights, output */
};

/* Forward 2 × batch × positions × out_channels × (in_channels / groups) × kernel; positions: of the output, and of a
 * transposed convolution 2 × batch × input positions × in_channels × (out_channels / groups) × kernel. */
int plan_conv(const struct plan_conv *c, struct plan_conv_cost *out, char *err, size_t err_len);

/* ---- attention core: scores and weighted sum ---- */

enum plan_causal {
    PLAN_CAUSAL_FULL,    /* all pairs of query and key */
    PLAN_CAUSAL_SKIPPED, /* those that a causal mask leaves: the last query sees all keys, the one before one less */
    PLAN_CAUSAL_HALF     /* half of all, as some count */
};

struct plan_attention {
    int64_t batch, heads, kv_heads, queries, keys, d_qk, d_v;
    enum plan_causal causal;
};

struct plan_attention_cost {
    __int128
        pairs_twice;  /* pairs of query and key of one head and sequence, times 2: half of an odd number is not whole */
    __int128 forward; /* 2 × batch × heads × pairs × (d_qk + d_v); query heads count */
    __int128 backward_model;          /* 2 × forward */
    __int128 backward_executed_twice; /* 2 × 2.5 × forward: a flash kernel computes the scores again */
    __int128 q, k, v, o;              /* elements */
};

int plan_attention(const struct plan_attention *a, struct plan_attention_cost *out, char *err, size_t err_len);

#endif
