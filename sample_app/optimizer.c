#include "sample_app/optimizer.h"

#include <math.h>

#include "sample_app/checked_call.h"
#include "sample_app/optimizer_kernels.h"

/* Dynamic loss scaling: begins high, is halved at each overflow, doubled after so many updates without one. */
static const float SCALE_START = 65536, SCALE_LEAST = 1, SCALE_MOST = 1 << 24;
enum { SCALE_GROWS_AFTER = 2000 };

/* As in PyTorch, so that no gradient at all is no division by zero. */
static const double CLIP_EPSILON = 1e-6;

/* Beta: how much of a moment is kept. momentum's is --momentum. */
static const struct rule {
    int moments;
    const char *moment[2];
    double beta1, beta2, epsilon;
} rules[] = {
    [OPTIMIZER_SGD] = {0},
    [OPTIMIZER_MOMENTUM] = {1, {"v"}},
    [OPTIMIZER_RMSPROP] = {1, {"s"}, .beta2 = 0.99, .epsilon = 1e-8},
    [OPTIMIZER_ADAGRAD] = {1, {"s"}, .epsilon = 1e-10},
    [OPTIMIZER_ADAM] = {2, {"m", "v"}, 0.9, 0.95, 1e-8},
    [OPTIMIZER_ADAMW] = {2, {"m", "v"}, 0.9, 0.95, 1e-8},
};

int optimizer_moments(int64_t rule) {
    return rules[rule].moments;
}

const char *optimizer_moment_name(int64_t rule, int i) {
    return rules[rule].moment[i];
}

/* ---- life ------------------------------------------------------------------------------------------------ */

static bool scales_dynamically(const struct train_options *o) {
    return o->dtype == DTYPE_FP16 && o->loss_scale == 0;
}

/* Without loss scaling a scale of 1. */
static float first_scale(const struct train_options *o) {
    return scales_dynamically(o) ? SCALE_START : o->loss_scale > 0 ? (float)o->loss_scale : 1;
}

static bool needs_norm(const struct train_options *o) {
    return o->clip > 0 || scales_dynamically(o) || first_scale(o) != 1;
}

static void expect_lists(const struct trained *t, int moments) {
    bool right = t->gradients.count == t->parameters.count && t->state.count == moments * t->parameters.count &&
                 (!t->master.count || t->master.count == t->parameters.count);
    for (int i = 0; right && i < t->parameters.count; i++)
        right = t->gradients.n[i] == t->parameters.n[i] &&
                (t->parameters.format[i] == FORMAT_FP32 || (t->master.count && t->master.n[i] == t->parameters.n[i]));
    if (!right) die(EXIT_RUN_TIME, "the lists of parameters, gradients, master weights and moments do not agree");
}

void optimizer_create(struct optimizer *p, const struct train_options *o, const struct trained *t,
                      cudaStream_t stream) {
    expect_lists(t, optimizer_moments(o->optimizer));
    *p = (struct optimizer){.options = o, .stream = stream, .gradient_norm = NAN};
    p->progress.loss_scale = first_scale(o);
    if (!needs_norm(o)) return;
    for (int i = 0; i < t->gradients.count; i++) p->partials += optimizer_partials(t->gradients.n[i]);
    p->partial = device_alloc("norm_partial", "temporary", (size_t)p->partials * sizeof *p->partial);
    p->total = device_alloc("norm_total", "temporary", sizeof *p->total);
    CALL(cudaMallocHost((void **)&p->host_total, sizeof *p->host_total));
}

void optimizer_destroy(struct optimizer *p) {
    if (p->total) {
        CALL(cudaFreeHost(p->host_total));
        device_free(p->total);
        device_free(p->partial);
    }
    *p = (struct optimizer){0};
}

/* ---- norm, clipping, loss scaling ------------------------------------------------------------------------ */

/* Of all gradients together, as they are. Waits. */
static double scaled_norm(struct optimizer *p, const struct trained *t) {
    double *partial = p->partial;
    for (int i = 0; i < t->gradients.count; i++) {
        size_t n = t->gradients.n[i];
        LAUNCH(optimizer_sum_squares(partial, t->gradients.at[i], n, p->stream));
        partial += optimizer_partials(n);
    }
    LAUNCH(optimizer_sum(p->total, p->partial, p->partials, p->stream));
    CALL(cudaMemcpyAsync(p->host_total, p->total, sizeof *p->total, cudaMemcpyDeviceToHost, p->stream));
    CHECK(cudaStreamSynchronize(p->stream));
    return sqrt(*p->host_total);
}

/* What the gradients are to be multiplied by: takes the loss scale out, and clips. */
static float gradient_factor(const struct optimizer *p) {
    double factor = 1 / (double)p->progress.loss_scale, clip = p->options->clip;
    if (clip > 0) factor *= fmin(1, clip / (p->gradient_norm + CLIP_EPSILON));
    return (float)factor;
}

static void note_update(struct optimizer *p) {
    struct optimizer_progress *g = &p->progress;
    g->updates++;
    g->good++;
    if (!scales_dynamically(p->options) || g->good < SCALE_GROWS_AFTER || g->loss_scale >= SCALE_MOST) return;
    g->loss_scale *= 2;
    g->good = 0;
}

static void note_skip(struct optimizer *p) {
    struct optimizer_progress *g = &p->progress;
    g->skipped++;
    g->good = 0;
    if (scales_dynamically(p->options)) g->loss_scale = fmaxf(SCALE_LEAST, g->loss_scale / 2);
}

/* ---- update ---------------------------------------------------------------------------------------------- */

/* Of the update that `updates` have gone before. */
static struct update_rates rates_of_update(const struct optimizer *p) {
    const struct train_options *o = p->options;
    const struct rule *rule = &rules[o->optimizer];
    double t = (double)p->progress.updates + 1;
    double beta1 = o->optimizer == OPTIMIZER_MOMENTUM ? o->momentum : rule->beta1, beta2 = rule->beta2;
    return (struct update_rates){.gradient_factor = gradient_factor(p),
                                 .lr = (float)o->lr,
                                 .beta1 = (float)beta1,
                                 .beta2 = (float)beta2,
                                 .correct1 = (float)(1 / (1 - pow(beta1, t))),
                                 .correct2 = (float)(1 / (1 - pow(beta2, t))),
                                 .epsilon = (float)rule->epsilon};
}

/* Adam is AdamW without decay. */
static void update_tensor(const struct optimizer *p, const struct trained *t, int i, struct update_rates r) {
    int count = t->parameters.count;
    bool mixed = t->parameters.format[i] != FORMAT_FP32;
    struct updated u = {.f = t->parameters.format[i],
                        .w = mixed ? t->master.at[i] : t->parameters.at[i],
                        .rounded = mixed ? t->parameters.at[i] : NULL,
                        .g = t->gradients.at[i],
                        .n = t->parameters.n[i]};
    float *first = t->state.count ? t->state.at[i] : NULL;
    float *second = t->state.count > count ? t->state.at[count + i] : NULL;
    if (p->options->optimizer == OPTIMIZER_ADAMW && t->decays[i]) r.decay = (float)p->options->weight_decay;
    switch (p->options->optimizer) {
    case OPTIMIZER_SGD:
        LAUNCH(optimizer_sgd(u, r, p->stream));
        break;
    case OPTIMIZER_MOMENTUM:
        LAUNCH(optimizer_momentum(u, first, r, p->stream));
        break;
    case OPTIMIZER_RMSPROP:
        LAUNCH(optimizer_rmsprop(u, first, r, p->stream));
        break;
    case OPTIMIZER_ADAGRAD:
        LAUNCH(optimizer_adagrad(u, first, r, p->stream));
        break;
    case OPTIMIZER_ADAM:
    case OPTIMIZER_ADAMW:
        LAUNCH(optimizer_adamw(u, first, second, r, p->stream));
        break;
    }
}

bool optimizer_update(struct optimizer *p, const struct trained *t) {
    if (p->total) {
        p->gradient_norm = scaled_norm(p, t) / p->progress.loss_scale;
        if (!isfinite(p->gradient_norm)) {
            note_skip(p);
            return false;
        }
    }
    struct update_rates rates = rates_of_update(p);
    for (int i = 0; i < t->parameters.count; i++) update_tensor(p, t, i, rates);
    note_update(p);
    return true;
}
