/* The GPT's memory: what each tensor measures, where it lies, and what is in it before the first step. */
#include <math.h>
#include <stdlib.h>

#include "sample_app/checked_call.h"
#include "sample_app/counter_rng.h"
#include "sample_app/gpt_kernels.h"
#include "sample_app/gpt_model.h"

enum { WORKSPACE_BYTES = 4 << 20 };

/* A list of gpt_model.h as specs, and the tensors of such a list by name. Unused letters are no fault. */
#define LETTERS(m)                                                                                \
    const int B = (m)->B, T = (m)->T, C = (m)->C, L = (m)->L, V = (m)->V, N = (m)->N, R = (m)->R, \
              untied = (m)->untied;                                                               \
    (void)B, (void)T, (void)C, (void)L, (void)V, (void)N, (void)R, (void)untied
#define SPEC(name, tensors, rows, columns, ...) {#name, tensors, (size_t)(rows) * (size_t)(columns)},
#define SPECS(list)                             \
    ((const struct tensor_spec[]){list(SPEC)}), \
        (int)(sizeof((struct tensor_spec[]){list(SPEC)}) / sizeof(struct tensor_spec))
#define NAME(member, tensors, ...) into->member = at, at += (tensors);

static void name_parameters(const struct gpt_model *m, struct gpt_parameters *into, float **at) {
    LETTERS(m);
    GPT_PARAMETERS(NAME)
}
static void name_activations(const struct gpt_model *m, struct gpt_activations *into, float **at) {
    LETTERS(m);
    GPT_ACTIVATIONS(NAME)
}
static void name_activation_gradients(struct gpt_activation_gradients *into, float **at) {
    GPT_ACTIVATION_GRADIENTS(NAME)
}

/* ---- initial values -------------------------------------------------------------------------------------- */

/* How each tensor begins, in the order of m->parameters. */
static enum gpt_init *list_init(const struct gpt_model *m) {
    LETTERS(m);
    enum gpt_init *init = malloc((size_t)m->parameters.count * sizeof *init), *to = init;
    if (!init) die(EXIT_RUN_TIME, "out of host memory");
#define INIT(name, tensors, rows, columns, how) \
    for (int i = 0; i < (tensors); i++) *to++ = how;
    GPT_PARAMETERS(INIT)
    return init;
}

/* GPT-2's: standard deviation 0.02; the two matrices of a layer whose products go to the residual stream are scaled
 * down by √(2·L), as so many are added up. */
static void init_parameters(const struct gpt_model *m, const struct train_options *o) {
    const float std = 0.02f, residual = o->init == INIT_SCALED ? 1 / sqrtf(2 * (float)m->L) : 1;
    uint64_t key = rng_bits((uint64_t)o->seed, RNG_WEIGHTS);
    for (int i = 0; i < m->parameters.count; i++) {
        float *w = m->parameters.at[i];
        int n = (int)m->parameters.n[i];
        if (m->init[i] <= INIT_RESIDUAL)
            LAUNCH(gpt_init_normal(w, n, m->init[i] == INIT_RESIDUAL ? std * residual : std, rng_bits(key, (uint64_t)i),
                                   m->base.stream));
        else
            LAUNCH(gpt_fill(w, n, m->init[i] == INIT_ONE ? 1 : 0, m->base.stream));
    }
}

/* ---- memory ---------------------------------------------------------------------------------------------- */

/* Momentum keeps one moment of each parameter, AdamW two. */
static struct tensors create_state(const struct gpt_model *m, const struct train_options *o, bool together) {
    LETTERS(m);
    const struct tensor_spec one[] = {GPT_PARAMETERS(SPEC)};
    enum { ONE = sizeof one / sizeof *one };
    struct tensor_spec all[2 * ONE];
    char names[2 * ONE][16];
    int moments = o->optimizer == OPTIMIZER_ADAMW ? 2 : o->optimizer == OPTIMIZER_MOMENTUM ? 1 : 0;
    for (int i = 0; i < moments * ONE; i++) {
        all[i] = one[i % ONE];
        snprintf(names[i], sizeof names[i], "%c.%s", "mv"[2 - moments + i / ONE], all[i].name);
        all[i].name = names[i];
    }
    return tensors_create("optimizer", "", all, moments * ONE, together);
}

void gpt_memory_create(struct gpt_model *m, const struct train_options *o) {
    LETTERS(m);
    bool together = o->alloc == ALLOC_CLASS;
    m->parameters = tensors_create("param", "", SPECS(GPT_PARAMETERS), together);
    m->gradients = tensors_create("grad", "d.", SPECS(GPT_PARAMETERS), together);
    m->state = create_state(m, o, together);
    m->inputs = tensors_create("input", "", SPECS(GPT_INPUTS), together);
    m->activations = tensors_create("activation", "", SPECS(GPT_ACTIVATIONS), together);
    m->activation_gradients = tensors_create("activation_grad", "", SPECS(GPT_ACTIVATION_GRADIENTS), together);
    m->workspace = device_alloc("workspace", "workspace", WORKSPACE_BYTES);
    CHECK(cublasSetWorkspace(m->base.cublas, m->workspace, WORKSPACE_BYTES));
    CALL(cudaMallocHost((void **)&m->host_loss, sizeof *m->host_loss));

    name_parameters(m, &m->w, m->parameters.at);
    name_parameters(m, &m->dw, m->gradients.at);
    name_activations(m, &m->a, m->activations.at);
    name_activation_gradients(&m->d, m->activation_gradients.at);
    m->tokens = (int *)m->inputs.at[0];
    m->targets = (int *)m->inputs.at[1];

    m->init = list_init(m);
    init_parameters(m, o);
    tensors_clear(&m->state, m->base.stream);
    CHECK(cudaDeviceSynchronize());
}

void gpt_memory_destroy(struct gpt_model *m) {
    struct tensors *all[] = {
        &m->activation_gradients, &m->activations, &m->inputs, &m->state, &m->gradients, &m->parameters};
    CALL(cudaFreeHost(m->host_loss));
    device_free(m->workspace);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) tensors_destroy(all[i]);
    free(m->init);
}
