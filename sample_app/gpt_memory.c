/* The GPT's memory: what each tensor measures, where it lies and how long, and what is in it before the first step. */
#include <math.h>
#include <stdlib.h>

#include "sample_app/checked_call.h"
#include "sample_app/counter_rng.h"
#include "sample_app/gpt_kernels.h"
#include "sample_app/gpt_model.h"

/* A list of gpt_model.h as specs, and the tensors of such a list by name. Unused letters are no fault. */
#define LETTERS(m)                                                                                            \
    const int B = (m)->B, T = (m)->T, C = (m)->C, L = (m)->L, V = (m)->V, N = (m)->N, R = (m)->R, S = (m)->S, \
              untied = (m)->untied;                                                                           \
    const enum number_format REAL = (m)->format, FP32 = FORMAT_FP32;                                          \
    (void)B, (void)T, (void)C, (void)L, (void)V, (void)N, (void)R, (void)S, (void)untied, (void)REAL, (void)FP32
#define SPEC(name, tensors, rows, columns, format) {#name, tensors, (size_t)(rows) * (size_t)(columns), format},
#define PARAMETER_SPEC(name, tensors, rows, columns, init) SPEC(name, tensors, rows, columns, REAL)
#define COUNT(specs) ((int)(sizeof(specs) / sizeof *(specs)))
#define NAME(member, tensors, ...) into->member = at, at += (tensors);

static void name_parameters(const struct gpt_model *m, struct gpt_parameters *into, real **at) {
    LETTERS(m);
    GPT_PARAMETERS(NAME)
}
static void name_activations(const struct gpt_model *m, struct gpt_activations *into, real **at) {
    LETTERS(m);
    GPT_ACTIVATIONS(NAME)
}
static void name_activation_gradients(struct gpt_activation_gradients *into, real **at) {
    GPT_ACTIVATION_GRADIENTS(NAME)
}

/* ---- initial values -------------------------------------------------------------------------------------- */

/* How each tensor begins, in the order of the parameters, and whether it decays. */
static void list_init(struct gpt_model *m) {
    LETTERS(m);
    int i = 0, count = 0;
#define TENSORS(name, tensors, ...) count += (tensors);
    GPT_PARAMETERS(TENSORS)
    m->init = malloc((size_t)count * sizeof *m->init);
    m->decays = malloc((size_t)count * sizeof *m->decays);
    if (!m->init || !m->decays) die(EXIT_RUN_TIME, "out of host memory");
#define INIT(name, tensors, rows, columns, how) \
    for (int k = 0; k < (tensors); k++) m->init[i++] = how;
    GPT_PARAMETERS(INIT)
    for (i = 0; i < count; i++) m->decays[i] = m->init[i] <= INIT_RESIDUAL;
}

static void init_set(const struct gpt_model *m, const struct tensors *set, const struct train_options *o) {
    const float std = 0.02f, residual = o->init == INIT_SCALED ? 1 / sqrtf(2 * (float)m->L) : 1;
    uint64_t key = rng_bits((uint64_t)o->seed, RNG_WEIGHTS);
    for (int i = 0; i < set->count; i++) {
        enum number_format f = set->format[i];
        int n = (int)set->n[i];
        if (m->init[i] <= INIT_RESIDUAL)
            LAUNCH(gpt_init_normal(f, set->at[i], n, m->init[i] == INIT_RESIDUAL ? std * residual : std,
                                   rng_bits(key, (uint64_t)i), m->base.stream));
        else
            LAUNCH(gpt_fill(f, set->at[i], n, m->init[i] == INIT_ONE ? 1 : 0, m->base.stream));
    }
}

/* GPT-2's: standard deviation 0.02; the two matrices of a layer whose products go to the residual stream are scaled
 * down by √(2·L), as so many are added up. The same numbers go to master weights and, rounded, to the parameters. */
static void init_parameters(const struct gpt_model *m, const struct train_options *o) {
    init_set(m, &m->base.trained.parameters, o);
    init_set(m, &m->base.trained.master, o);
}

/* ---- memory ---------------------------------------------------------------------------------------------- */

static void create_sets(struct gpt_model *m, const struct train_options *o) {
    LETTERS(m);
    const struct tensor_spec parameters[] = {GPT_PARAMETERS(PARAMETER_SPEC)}, activations[] = {GPT_ACTIVATIONS(SPEC)},
                             activation_gradients[] = {GPT_ACTIVATION_GRADIENTS(SPEC)};
    bool transient = o->alloc == ALLOC_STEP || o->alloc == ALLOC_POOL;
    m->base.trained = trained_create(o, parameters, COUNT(parameters), m->decays);
    m->activations = tensors_create("activation", "", activations, COUNT(activations), o->alloc, transient);
    m->activation_gradients =
        tensors_create("activation_grad", "", activation_gradients, COUNT(activation_gradients), o->alloc, transient);
    name_parameters(m, &m->w, m->base.trained.parameters.at);
    name_parameters(m, &m->dw, m->base.trained.gradients.at);
    name_activations(m, &m->a, m->activations.at);
    name_activation_gradients(&m->d, m->activation_gradients.at);
}

static void destroy_sets(struct gpt_model *m) {
    tensors_destroy(&m->activation_gradients);
    tensors_destroy(&m->activations);
    trained_destroy(&m->base.trained);
}

/* All that a pass allocates and releases, in its order, without the pass. */
static void rehearse(struct gpt_model *m, bool backward_follows) {
    m->backward_follows = backward_follows;
    gpt_begin_forward(m);
    for (int l = 0; l < m->L; l++) gpt_begin_layer(m, l), gpt_end_layer(m, l);
    gpt_begin_head(m);
    gpt_end_forward(m);
    if (!backward_follows) return;
    gpt_begin_backward(m);
    gpt_end_head_backward(m);
    for (int l = m->L - 1; l >= 0; l--) {
        if (m->recompute) gpt_begin_recompute(m, l), gpt_end_recompute(m);
        gpt_begin_layer_backward(m, l);
        gpt_end_layer_backward(m, l);
    }
    gpt_begin_embedding_backward(m);
    gpt_end_backward(m);
}

void gpt_memory_create(struct gpt_model *m, const struct train_options *o) {
    list_init(m);
    if (o->alloc == ALLOC_POOL) {
        tensors_pool_plan();
        create_sets(m, o);
        struct tensors input = text_batches_slots(gpt_kind.batch_form(o), o->alloc);
        if (o->eval_every || o->sample) rehearse(m, false);
        rehearse(m, true);
        if (o->accum > 1) rehearse(m, true); /* gradients that come and go are there from the first to the last */
        tensors_destroy(&input);
        destroy_sets(m);
        tensors_pool_create();
    }
    create_sets(m, o);
    CALL(cudaMallocHost((void **)&m->host_loss, sizeof *m->host_loss));
    if (o->sample) CALL(cudaMallocHost(&m->host_logits, (size_t)m->V * format_bytes(m->format)));
    init_parameters(m, o);
    tensors_clear(&m->base.trained.state, m->base.stream);
    CHECK(cudaDeviceSynchronize());
}

void gpt_memory_destroy(struct gpt_model *m) {
    if (m->host_logits) CALL(cudaFreeHost(m->host_logits));
    CALL(cudaFreeHost(m->host_loss));
    bool pool = m->activations.alloc == ALLOC_POOL;
    destroy_sets(m);
    if (pool) tensors_pool_destroy();
    free(m->init);
    free(m->decays);
}

/* ---- what comes and goes within a step ------------------------------------------------------------------- */

static void take(struct gpt_model *m, struct tensors *set, real **tensor) {
    tensors_take(set, (int)(tensor - set->at), 1, m->base.stream);
}
/* An activation: what goes before backward reads it is "temporary" in the account. */
static void take_activation(struct gpt_model *m, real **tensor, bool kept) {
    tensors_take_as(&m->activations, kept && m->backward_follows ? "activation" : "temporary",
                    (int)(tensor - m->activations.at), 1, m->base.stream);
}
static void drop(struct gpt_model *m, struct tensors *set, real **tensor) {
    tensors_drop(set, (int)(tensor - set->at), 1, m->base.stream);
}

/* For the lists: `s` is the set of a layer's activations, 0 in lists of one. */
#define TAKE(name, ...) take_activation(m, &m->a.name[s], kept);
#define DROP(name, ...) drop(m, &m->activations, &m->a.name[s]);
#define TAKE_GRADIENT(name, ...) take(m, &m->activation_gradients, m->d.name);
#define TAKE_PARAMETER_GRADIENT(name, ...) take_parameter_gradient(m, &m->dw.name[l]);
#define DROP_GRADIENT(name, ...) drop(m, &m->activation_gradients, m->d.name);

static void take_parameter_gradient(struct gpt_model *m, real **tensor) {
    struct tensors *set = &m->base.trained.gradients;
    tensors_take_cleared(set, (int)(tensor - set->at), 1, m->base.stream);
}

static real **layer_input(const struct gpt_model *m, int l) {
    return l ? &m->a.residual[l - 1] : m->a.encoded;
}

void gpt_begin_forward(struct gpt_model *m) {
    take_activation(m, m->a.encoded, true);
}

static void take_layer(struct gpt_model *m, int l, bool kept) {
    int s = gpt_set(m, l);
    GPT_LAYER_ACTIVATIONS(TAKE)
    kept = false;
    s = 0;
    GPT_PASSING(TAKE)
}
static void drop_layer(struct gpt_model *m, int l) {
    int s = gpt_set(m, l);
    GPT_LAYER_ACTIVATIONS(DROP)
}
static void drop_passing(struct gpt_model *m) {
    int s = 0;
    GPT_PASSING(DROP)
}

void gpt_begin_layer(struct gpt_model *m, int l) {
    take_activation(m, &m->a.residual[l], true);
    take_layer(m, l, !m->recompute);
}

void gpt_end_layer(struct gpt_model *m, int l) {
    drop_passing(m);
    if (m->recompute || !m->backward_follows) drop_layer(m, l);
    if (!m->backward_follows) drop(m, &m->activations, layer_input(m, l));
}

void gpt_begin_head(struct gpt_model *m) {
    bool kept = true;
    int s = 0;
    GPT_HEAD(TAKE)
    if (m->backward_follows) take(m, &m->activation_gradients, m->d.dlogits);
}

static void drop_head(struct gpt_model *m) {
    int s = 0;
    GPT_HEAD(DROP)
    drop(m, &m->activations, layer_input(m, m->L));
}

void gpt_end_forward(struct gpt_model *m) {
    if (!m->backward_follows) drop_head(m);
}

void gpt_begin_backward(struct gpt_model *m) {
    take(m, &m->activation_gradients, m->d.dresidual);
    take(m, &m->activation_gradients, m->d.dbranch);
    take_parameter_gradient(m, m->untied ? m->dw.head : m->dw.wte);
    take_parameter_gradient(m, m->dw.lnfw);
    take_parameter_gradient(m, m->dw.lnfb);
}

void gpt_end_head_backward(struct gpt_model *m) {
    drop_head(m);
    drop(m, &m->activation_gradients, m->d.dlogits);
    drop(m, &m->activation_gradients, m->d.dbranch);
}

void gpt_begin_recompute(struct gpt_model *m, int l) {
    take_layer(m, l, true);
}
void gpt_end_recompute(struct gpt_model *m) {
    drop_passing(m);
}

void gpt_begin_layer_backward(struct gpt_model *m, int l) {
    GPT_LAYER_GRADIENTS(TAKE_GRADIENT)
    GPT_LAYER_PARAMETERS(TAKE_PARAMETER_GRADIENT)
}

void gpt_end_layer_backward(struct gpt_model *m, int l) {
    GPT_LAYER_GRADIENTS(DROP_GRADIENT)
    drop_layer(m, l);
    drop(m, &m->activations, layer_input(m, l));
}

void gpt_begin_embedding_backward(struct gpt_model *m) {
    take_parameter_gradient(m, m->dw.wte);
    take_parameter_gradient(m, m->dw.wpe);
}

void gpt_end_backward(struct gpt_model *m) {
    drop(m, &m->activation_gradients, m->d.dresidual);
}
