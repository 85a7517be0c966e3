/* Layers of networks of `acct plan flops`: convolution, attention, linear, embedding; forward and backward. */
#include "analyzer/plan_flops.h"
#include "plan/plan_ops.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- passes ---- */

static int read_grads(const struct flops *f, struct flops_passes *p) {
    const char *text = f->args->value[FLOPS_GRADS];
    if (!f->args->given[FLOPS_GRADS]) return 0;
    if (!p->input_grad) return flops_fail(f, "--grads is for --pass backward or both");
    p->input_grad = !strcmp(text, "input") || !strcmp(text, "input,weight") || !strcmp(text, "weight,input");
    p->weight_grad = !strcmp(text, "weight") || !strcmp(text, "input,weight") || !strcmp(text, "weight,input");
    if (p->input_grad || p->weight_grad) return 0;
    return flops_fail(f, "--grads: '%.40s' is not known; there are input,weight and input and weight", text);
}

int flops_read_passes(struct flops *f, struct flops_passes *p) {
    static const char *const words[] = {"forward", "backward", "both", NULL};
    int which = 0, code = flops_word(f, FLOPS_PASS, words, &which);
    if (code) return code;
    p->forward = which != 1;
    p->input_grad = p->weight_grad = which != 0;
    sheet_input_text(&f->sheet, "pass", "pass", words[which], f->args->given[FLOPS_PASS] ? "given" : "default");
    return read_grads(f, p);
}

static const char *const pass_names[] = {"forward", "input gradient", "weight gradient"};

/* A layer with weights: y = w x. Each pass reads two of the three tensors (or their gradients) and writes the third. */
struct layer {
    const char *prefix; /* of the parts' names; "" */
    __int128 flops;     /* of each pass */
    char x_shape[200], w_shape[200], y_shape[200];
    __int128 x, w, y; /* elements */
};

static int add_pass(struct flops *f, const struct layer *l, int pass) {
    static const char *const names[3][3] = {{"x", "w", "y"}, {"dy", "w", "dx"}, {"dy", "x", "dw"}};
    const char *const shapes[3] = {l->x_shape, l->w_shape, l->y_shape};
    const __int128 elements[3] = {l->x, l->w, l->y};
    static const int which[3][3] = {{0, 1, 2}, {2, 1, 0}, {2, 0, 1}};
    char name[64];
    __int128 before = f->bytes;
    int any = elements[which[pass][2]] > 0; /* a product without elements reads nothing */
    snprintf(name, sizeof name, "%s%s", l->prefix, pass_names[pass]);
    for (int i = 0; i < 3; i++) {
        int code = flops_add_operand_text(f, name, names[pass][i], i == 2 ? f->out_type : f->type, i < 2 && any, i == 2,
                                          shapes[which[pass][i]], elements[which[pass][i]]);
        if (code) return code;
    }
    return flops_add_part(f, name, 1, l->flops, f->bytes - before);
}

/* The passes that are asked for; sum: their FLOPs. */
static int add_layer(struct flops *f, const struct layer *l, const struct flops_passes *p, __int128 *sum) {
    const int asked[3] = {p->forward, p->input_grad, p->weight_grad};
    for (int pass = 0; pass < 3; pass++) {
        if (!asked[pass]) continue;
        int code = add_pass(f, l, pass);
        if (!code && plan_add(*sum, l->flops, sum)) code = flops_fail(f, "more than 1.7e38 FLOPs");
        if (code) return code;
    }
    return 0;
}

void flops_pass_result(struct flops *f, const char *key, const char *label, int asked, __int128 flops,
                       const char *formula) {
    if (asked && !f->type->integer) sheet_result_whole(&f->sheet, key, label, SHEET_FLOP, flops, "%s", formula);
}

static void shape_text(char *out, size_t room, int n, const int64_t *size) {
    size_t length = 0;
    for (int i = 0; i < n && length < room; i++)
        length += (size_t)snprintf(out + length, room - length, "%s%lld", i ? "," : "", (long long)size[i]);
}

/* ---- convolution ---- */

/* One number for all dimensions, or one for each. */
static int read_spatial(const struct flops *f, int o, int spatial, enum plan_sign sign, int64_t otherwise,
                        int64_t *out) {
    int n = 0, code = flops_list(f, o, sign, PLAN_SPATIAL, out, &n);
    if (code) return code;
    if (!n) {
        n = 1;
        out[0] = otherwise;
    }
    if (n != 1 && n != spatial)
        return flops_fail(f, "--%s: %d numbers for %d spatial dimensions", f->args->command->options[o].name, n,
                          spatial);
    for (int d = n; d < spatial; d++) out[d] = out[0];
    return 0;
}

static int need(const struct flops *f, int o) {
    if (f->args->given[o]) return 0;
    return flops_fail(f, "--%s %s is missing", f->args->command->options[o].name,
                      f->args->command->options[o].argument_name);
}

static int read_conv(struct flops *f, struct plan_conv *c) {
    int64_t input[2 + PLAN_SPATIAL];
    int n = 0, code = need(f, FLOPS_INPUT);
    if (!code) code = need(f, FLOPS_OUT_CHANNELS);
    if (!code) code = need(f, FLOPS_KERNEL);
    if (!code) code = flops_list(f, FLOPS_INPUT, PLAN_NOT_NEGATIVE, 2 + PLAN_SPATIAL, input, &n);
    if (!code && n < 3) code = flops_fail(f, "--input: %d numbers; write N,C,W, N,C,H,W or N,C,D,H,W", n);
    if (code) return code;
    c->spatial = n - 2;
    c->batch = input[0];
    c->in_channels = input[1];
    c->groups = 1;
    if (!c->in_channels) return flops_fail(f, "--input: 0 channels");
    for (int d = 0; d < c->spatial; d++) {
        c->in[d] = input[2 + d];
        if (!c->in[d]) return flops_fail(f, "--input: a spatial dimension of 0");
    }
    code = sheet_whole(f->args, FLOPS_OUT_CHANNELS, PLAN_COUNT, PLAN_POSITIVE, INT64_MAX, &c->out_channels);
    if (!code) code = sheet_whole(f->args, FLOPS_GROUPS, PLAN_COUNT, PLAN_POSITIVE, INT64_MAX, &c->groups);
    if (!code) code = read_spatial(f, FLOPS_KERNEL, c->spatial, PLAN_POSITIVE, 1, c->kernel);
    if (!code) code = read_spatial(f, FLOPS_STRIDE, c->spatial, PLAN_POSITIVE, 1, c->stride);
    if (!code) code = read_spatial(f, FLOPS_PADDING, c->spatial, PLAN_NOT_NEGATIVE, 0, c->padding);
    if (!code) code = read_spatial(f, FLOPS_DILATION, c->spatial, PLAN_POSITIVE, 1, c->dilation);
    if (!code) code = read_spatial(f, FLOPS_OUTPUT_PADDING, c->spatial, PLAN_NOT_NEGATIVE, 0, c->output_padding);
    return code;
}

static void input_conv(struct flops *f, const struct plan_conv *c) {
    static const struct {
        int option;
        const char *key, *label, *otherwise;
    } rows[] = {
        {FLOPS_INPUT, "input", "input", ""},        {FLOPS_OUT_CHANNELS, "out_channels", "output channels", ""},
        {FLOPS_KERNEL, "kernel", "kernel", ""},     {FLOPS_STRIDE, "stride", "stride", "1"},
        {FLOPS_PADDING, "padding", "padding", "0"}, {FLOPS_DILATION, "dilation", "dilation", "1"},
        {FLOPS_GROUPS, "groups", "groups", "1"},    {FLOPS_OUTPUT_PADDING, "output_padding", "output padding", "0"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows - !c->transposed; i++) {
        int given = f->args->given[rows[i].option];
        sheet_input_text(&f->sheet, rows[i].key, rows[i].label,
                         given ? f->args->value[rows[i].option] : rows[i].otherwise, given ? "given" : "default");
    }
}

static void conv_shapes(const struct plan_conv *c, const struct plan_conv_cost *cost, struct layer *l) {
    int64_t x[5] = {c->batch, c->in_channels}, y[5] = {c->batch, c->out_channels}, w[5];
    int n = 2 + c->spatial;
    w[0] = c->transposed ? c->in_channels : c->out_channels;
    w[1] = (c->transposed ? c->out_channels : c->in_channels) / c->groups;
    for (int d = 0; d < c->spatial; d++) {
        x[2 + d] = c->in[d];
        y[2 + d] = cost->out[d];
        w[2 + d] = c->kernel[d];
    }
    shape_text(l->x_shape, sizeof l->x_shape, n, x);
    shape_text(l->w_shape, sizeof l->w_shape, n, w);
    shape_text(l->y_shape, sizeof l->y_shape, n, y);
}

/* Of so many passes, which cost the same. */
static void conv_formula(const struct plan_conv *c, const struct plan_conv_cost *cost, int passes, char *out,
                         size_t room) {
    int64_t v[4 + 2 * PLAN_SPATIAL + 1] = {passes, 2, c->batch};
    int n = 3;
    for (int d = 0; d < c->spatial; d++) v[n++] = c->transposed ? c->in[d] : cost->out[d];
    v[n++] = c->transposed ? c->in_channels : c->out_channels;
    v[n++] = (c->transposed ? c->out_channels : c->in_channels) / c->groups;
    for (int d = 0; d < c->spatial; d++) v[n++] = c->kernel[d];
    snprintf(out, room, "%s2 N %s kernel = %s", passes > 1 ? "passes x " : "",
             c->transposed ? "input-positions C_in (C_out / groups)" : "output-positions C_out (C_in / groups)",
             flops_times(passes > 1 ? n : n - 1, passes > 1 ? v : v + 1));
}

static int convolve(struct flops *f, int transposed) {
    struct plan_conv c;
    struct plan_conv_cost cost;
    struct flops_passes p;
    struct layer l = {.prefix = ""};
    char err[256], formula[400];
    __int128 sum = 0;
    memset(&c, 0, sizeof c);
    c.transposed = transposed;
    int code = read_conv(f, &c);
    if (code) return code;
    if (plan_conv(&c, &cost, err, sizeof err)) return flops_fail(f, "%s", err);
    input_conv(f, &c);
    if ((code = flops_read_passes(f, &p))) return code;
    l.flops = cost.flops;
    l.x = cost.x, l.w = cost.w, l.y = cost.y;
    conv_shapes(&c, &cost, &l);
    conv_formula(&c, &cost, 1, formula, sizeof formula);
    if ((code = add_layer(f, &l, &p, &sum))) return code;
    sheet_result_text(&f->sheet, "output", "output", l.y_shape,
                      transposed ? "(in - 1) stride - 2 padding + dilation (kernel - 1) + output padding + 1"
                                 : "(in + 2 padding - dilation (kernel - 1) - 1) / stride + 1");
    flops_pass_result(f, "forward_flops", "forward", p.forward, cost.flops, formula);
    flops_pass_result(f, "input_gradient_flops", "input gradient", p.input_grad, cost.flops, "as forward");
    flops_pass_result(f, "weight_gradient_flops", "weight gradient", p.weight_grad, cost.flops, "as forward");
    conv_formula(&c, &cost, f->n_parts, formula, sizeof formula);
    return flops_finish(f, sum, "%s", formula);
}

static int conv(struct flops *f) {
    return convolve(f, 0);
}

static int convtranspose(struct flops *f) {
    return convolve(f, 1);
}

/* ---- linear: a chain of layers ---- */

/* Parameters in products, times rows. */
static int add_chain(struct flops *f, int64_t rows, const int64_t *width, int layers, struct flops_passes asked,
                     __int128 *sum, __int128 *forward) {
    char prefix[40];
    for (int i = 0; i < layers; i++) {
        int64_t v[] = {2, rows, width[i], width[i + 1]}, x[] = {rows, width[i]}, w[] = {width[i + 1], width[i]},
                y[] = {rows, width[i + 1]};
        struct layer l = {.prefix = prefix};
        struct flops_passes p = asked;
        if (layers > 1)
            snprintf(prefix, sizeof prefix, "layer %d: ", i + 1);
        else
            *prefix = 0;
        if (plan_product(4, v, &l.flops) || plan_add(*forward, l.flops, forward))
            return flops_fail(f, "more than 1.7e38 FLOPs");
        if (plan_product(2, x, &l.x) || plan_product(2, w, &l.w) || plan_product(2, y, &l.y))
            return flops_fail(f, "more than 1.7e38 elements");
        shape_text(l.x_shape, sizeof l.x_shape, 2, x);
        shape_text(l.w_shape, sizeof l.w_shape, 2, w);
        shape_text(l.y_shape, sizeof l.y_shape, 2, y);
        /* What --grads leaves out is the first layer's: those behind it need the gradient to get there. */
        if (i && asked.weight_grad) p.input_grad = asked.input_grad | (asked.weight_grad && layers > 1);
        int code = add_layer(f, &l, &p, sum);
        if (code) return code;
    }
    return 0;
}

/* 6 N T of the chain, beside what the passes are. */
static void add_model_flops(struct flops *f, int64_t rows, const int64_t *width, __int128 forward,
                            const struct flops_passes *p) {
    const int64_t first[] = {2, rows, width[0], width[1]};
    __int128 six, dx;
    if (!p->weight_grad || f->type->integer) return;
    if (plan_multiply(forward, 3, &six) || plan_product(4, first, &dx)) return;
    sheet_result_whole(&f->sheet, "model_flops", "6 N T", SHEET_FLOP, six,
                       "6 x parameters x rows: forward 2, backward 4");
    if (!p->input_grad)
        sheet_note(&f->sheet, "The first layer's input needs no gradient: %s FLOPs less than 6 N T has for it.",
                   flops_digits(dx));
}

static int linear(struct flops *f) {
    int64_t rows, width[256];
    int layers = f->n - 2, code = flops_count(f, "ROWS", f->text[0], PLAN_NOT_NEGATIVE, &rows);
    __int128 sum = 0, forward = 0, bias = 0, one;
    struct flops_passes p;
    for (int i = 0; i <= layers && !code; i++) code = flops_count(f, "width", f->text[1 + i], PLAN_POSITIVE, &width[i]);
    if (code) return code;
    sheet_input_whole(&f->sheet, "rows", "rows", SHEET_NUMBER, rows, "given");
    sheet_input_text(&f->sheet, "widths", "widths", flops_times(layers + 1, width), "given");
    if ((code = flops_read_passes(f, &p)) || (code = add_chain(f, rows, width, layers, p, &sum, &forward))) return code;
    flops_pass_result(f, "forward_flops", "forward", p.forward, forward, "2 x rows x parameters");
    flops_pass_result(f, "backward_flops", "backward", p.input_grad || p.weight_grad, sum - (p.forward ? forward : 0),
                      "2 x rows x in x out for each gradient");
    if (f->args->given[FLOPS_BIAS]) {
        for (int i = 1; i <= layers; i++)
            if (plan_multiply(rows, width[i], &one) || plan_add(bias, one, &bias))
                return flops_fail(f, "more than 1.7e38 FLOPs");
        sheet_result_whole(&f->sheet, "bias_flops", "additions of the bias", SHEET_FLOP, bias,
                           "rows x outputs, forward; not among the FLOPs below");
    }
    add_model_flops(f, rows, width, forward, &p);
    if (f->n_parts > 1) return flops_finish(f, sum, "sum over %d parts of 2 x rows x in x out", f->n_parts);
    const int64_t v[] = {2, rows, width[0], width[1]};
    return flops_finish(f, sum, "2 rows in out = %s", flops_times(4, v));
}

/* ---- embedding ---- */

static int embedding(struct flops *f) {
    int64_t rows, vocabulary, dim;
    int code = flops_count(f, "ROWS", f->text[0], PLAN_NOT_NEGATIVE, &rows);
    if (!code) code = flops_count(f, "VOCABULARY", f->text[1], PLAN_POSITIVE, &vocabulary);
    if (!code) code = flops_count(f, "DIM", f->text[2], PLAN_POSITIVE, &dim);
    if (code) return code;
    const int64_t y[] = {rows, dim}, ids[] = {rows};
    sheet_input_whole(&f->sheet, "rows", "rows", SHEET_NUMBER, rows, "given");
    sheet_input_whole(&f->sheet, "vocabulary", "vocabulary", SHEET_NUMBER, vocabulary, "given");
    sheet_input_whole(&f->sheet, "dim", "dim", SHEET_NUMBER, dim, "given");
    code = flops_add_operand(f, NULL, "ids", flops_type_find("int32"), 1, 0, 1, ids);
    if (!code) code = flops_add_operand(f, NULL, "rows of w", f->type, 1, 0, 2, y);
    if (!code) code = flops_add_operand(f, NULL, "y", f->type, 0, 1, 2, y);
    if (code) return code;
    flops_add_part(f, "lookup", 0, 0, -1);
    sheet_note(&f->sheet, "A lookup multiplies nothing. The output projection, tied or not, is linear %lld %lld %lld.",
               (long long)rows, (long long)dim, (long long)vocabulary);
    return flops_finish(f, 0, "a lookup multiplies nothing");
}

#define CONV                                                                                           \
    (FLOPS_TAKES_ALWAYS | FLOPS_TAKES_PASS | FLOPS_TAKES(FLOPS_OUT_DTYPE) | FLOPS_TAKES(FLOPS_INPUT) | \
     FLOPS_TAKES(FLOPS_KERNEL) | FLOPS_TAKES(FLOPS_OUT_CHANNELS) | FLOPS_TAKES(FLOPS_STRIDE) |         \
     FLOPS_TAKES(FLOPS_PADDING) | FLOPS_TAKES(FLOPS_DILATION) | FLOPS_TAKES(FLOPS_GROUPS))
const struct flops_op flops_layer_ops[] = {
    {"linear", "ROWS IN OUT [OUT ...]", "2 rows in out each pass",
     FLOPS_TAKES_ALWAYS | FLOPS_TAKES_PASS | FLOPS_TAKES(FLOPS_OUT_DTYPE) | FLOPS_TAKES(FLOPS_BIAS), 3, 256, linear},
    {"conv", "--input N,C,H,W --out-channels N --kernel H,W", "by output positions", CONV, 0, 0, conv},
    {"convtranspose", "--input N,C,H,W --out-channels N --kernel H,W", "by input positions",
     CONV | FLOPS_TAKES(FLOPS_OUTPUT_PADDING), 0, 0, convtranspose},
    {"attention", "B H T D, or B H TQ TK DQK DV, or shapes of q, k, v", "2 b h tq tk (dqk + dv)",
     FLOPS_TAKES_ALWAYS | FLOPS_TAKES(FLOPS_PASS) | FLOPS_TAKES(FLOPS_KV_HEADS) | FLOPS_TAKES(FLOPS_CAUSAL) |
         FLOPS_TAKES(FLOPS_LAYOUT),
     1, 6, flops_attention},
    {"embedding", "ROWS VOCABULARY DIM", "a lookup", FLOPS_TAKES_ALWAYS | FLOPS_TAKES_COMPLEX, 3, 3, embedding},
    {0},
};
