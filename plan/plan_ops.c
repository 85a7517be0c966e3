#include "plan/plan_ops.h"

#include "plan/plan_number.h"

#include <stdio.h>
#include <string.h>

#define REFUSE(...) (snprintf(err, err_len, __VA_ARGS__), -1)
#define BEYOND "more than 1.7e38: not counted"

int plan_product(int n, const int64_t *factors, __int128 *out) {
    *out = 1;
    for (int i = 0; i < n; i++)
        if (!factors[i]) *out = 0;
    if (!*out) return 0;
    for (int i = 0; i < n; i++)
        if (plan_multiply(*out, factors[i], out)) return -1;
    return 0;
}

/* ---- convolution ---- */

static int conv_sizes(const struct plan_conv *c, int64_t *out, char *err, size_t err_len) {
    for (int d = 0; d < c->spatial; d++) {
        __int128 reach = (__int128)c->dilation[d] * (c->kernel[d] - 1) + 1, size;
        if (c->transposed) {
            if (c->output_padding[d] && c->output_padding[d] >= c->stride[d] && c->output_padding[d] >= c->dilation[d])
                return REFUSE("output padding %lld must be less than the stride or the dilation",
                              (long long)c->output_padding[d]);
            size = ((__int128)c->in[d] - 1) * c->stride[d] - 2 * (__int128)c->padding[d] + reach + c->output_padding[d];
        } else {
            __int128 room = (__int128)c->in[d] + 2 * (__int128)c->padding[d] - reach;
            if (room < 0)
                return REFUSE("the kernel reaches over %lld positions, the padded input has %lld",
                              (long long)(reach > INT64_MAX ? INT64_MAX : reach),
                              (long long)(c->in[d] + 2 * c->padding[d]));
            size = room / c->stride[d] + 1;
        }
        if (size < 1) return REFUSE("the output has no positions: the padding takes all");
        if (size > INT64_MAX) return REFUSE("the output has more than 2^63 positions");
        out[d] = (int64_t)size;
    }
    return 0;
}

int plan_conv(const struct plan_conv *c, struct plan_conv_cost *out, char *err, size_t err_len) {
    memset(out, 0, sizeof *out);
    if (c->in_channels % c->groups || c->out_channels % c->groups)
        return REFUSE("%lld groups do not divide %lld input and %lld output channels", (long long)c->groups,
                      (long long)c->in_channels, (long long)c->out_channels);
    if (conv_sizes(c, out->out, err, err_len)) return -1;
    int64_t x[2 + PLAN_SPATIAL] = {c->batch, c->in_channels}, y[2 + PLAN_SPATIAL] = {c->batch, c->out_channels};
    int64_t w[2 + PLAN_SPATIAL] = {c->out_channels, c->in_channels / c->groups};
    int n = 2 + c->spatial;
    for (int d = 0; d < c->spatial; d++) {
        x[2 + d] = c->in[d];
        y[2 + d] = out->out[d];
        w[2 + d] = c->kernel[d];
    }
    /* Every position of the output takes a sum over its group's input channels; transposed, every position of the input
     * is spread over its group's output channels. */
    int64_t f[4 + 2 * PLAN_SPATIAL] = {2};
    int m = 1;
    for (int i = 0; i < n; i++) f[m++] = c->transposed ? x[i] : y[i];
    f[m++] = c->transposed ? c->out_channels / c->groups : c->in_channels / c->groups;
    for (int d = 0; d < c->spatial; d++) f[m++] = c->kernel[d];
    if (plan_product(n, x, &out->x) || plan_product(n, w, &out->w) || plan_product(n, y, &out->y) ||
        plan_product(m, f, &out->flops))
        return REFUSE(BEYOND);
    return 0;
}

/* ---- attention ---- */

/* Pairs times 2. As skipped: query i of T (from 1) sees keys - T + i keys, none if that is below 1. */
static int attention_pairs(const struct plan_attention *a, __int128 *out) {
    __int128 tq = a->queries, tk = a->keys, seen;
    if (a->causal != PLAN_CAUSAL_SKIPPED)
        return plan_multiply(tq, tk, out) || plan_multiply(*out, a->causal == PLAN_CAUSAL_HALF ? 1 : 2, out) ? -1 : 0;
    if (tk < tq) tq = tk; /* earlier queries see nothing */
    if (plan_multiply(tq, tq + 1, out) || plan_multiply(tq, tk - tq, &seen) || plan_multiply(seen, 2, &seen)) return -1;
    return plan_add(*out, seen, out);
}

static int attention_flops(const struct plan_attention *a, struct plan_attention_cost *out) {
    int64_t heads[2] = {a->batch, a->heads};
    __int128 depth = (__int128)a->d_qk + a->d_v, each;
    if (plan_product(2, heads, &each) || plan_multiply(each, depth, &each)) return -1;
    if (each && out->pairs_twice && plan_multiply(each, out->pairs_twice, &out->forward)) return -1;
    if (plan_multiply(out->forward, 2, &out->backward_model)) return -1;
    return plan_multiply(out->forward, 5, &out->backward_executed_twice);
}

int plan_attention(const struct plan_attention *a, struct plan_attention_cost *out, char *err, size_t err_len) {
    memset(out, 0, sizeof *out);
    if (a->heads % a->kv_heads)
        return REFUSE("%lld query heads are no multiple of %lld key and value heads", (long long)a->heads,
                      (long long)a->kv_heads);
    if (attention_pairs(a, &out->pairs_twice) || attention_flops(a, out)) return REFUSE(BEYOND);
    int64_t q[] = {a->batch, a->heads, a->queries, a->d_qk}, k[] = {a->batch, a->kv_heads, a->keys, a->d_qk};
    int64_t v[] = {a->batch, a->kv_heads, a->keys, a->d_v}, o[] = {a->batch, a->heads, a->queries, a->d_v};
    if (plan_product(4, q, &out->q) || plan_product(4, k, &out->k) || plan_product(4, v, &out->v) ||
        plan_product(4, o, &out->o))
        return REFUSE(BEYOND);
    return 0;
}
