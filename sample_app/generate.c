/* The text begins with a prompt of a few tokens, which is not printed: the first ones of the part that is kept for
 * evaluation, or of the whole text where there is none. It ends when the model has as many tokens as it can look back
 * on: T, and the one after them. */
#include "sample_app/generate.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "sample_app/checked_call.h"
#include "sample_app/counter_rng.h"

enum { LONGEST_PROMPT = 16, BYTE_VOCABULARY = 256 };

struct generator {
    int T, V, prompt; /* tokens */
    uint64_t key;
    int *tokens;         /* (1, T) on the device */
    int *staging;        /* (T + 1), page-locked */
    float *logits;       /* (V) */
    double *probability; /* (V) */
};

struct generator *generator_create(const struct train_options *o, const struct text *text) {
    struct generator *g = malloc(sizeof *g);
    if (!g) die(EXIT_RUN_TIME, "out of host memory");
    *g = (struct generator){.T = (int)o->seq, .V = text->vocabulary, .key = rng_bits((uint64_t)o->seed, RNG_SAMPLE)};
    g->prompt = g->T < 2 ? 1 : g->T / 2 < LONGEST_PROMPT ? g->T / 2 : LONGEST_PROMPT;
    g->logits = malloc((size_t)g->V * sizeof *g->logits);
    g->probability = malloc((size_t)g->V * sizeof *g->probability);
    if (!g->logits || !g->probability) die(EXIT_RUN_TIME, "out of host memory");
    g->tokens = device_alloc("sample", "input", (size_t)g->T * sizeof *g->tokens);
    CALL(cudaMemset(g->tokens, 0, (size_t)g->T * sizeof *g->tokens)); /* a model may look up those that do not count */
    CALL(cudaMallocHost((void **)&g->staging, (size_t)(g->T + 1) * sizeof *g->staging));

    bool evaluation = o->eval_every != 0;
    uint64_t first = evaluation ? text_training_tokens(text, evaluation) : 0;
    for (int i = 0; i < g->prompt; i++) g->staging[i] = text_token(text, first + (uint64_t)i);
    return g;
}

void generator_destroy(struct generator *g) {
    CALL(cudaFreeHost(g->staging));
    device_free(g->tokens);
    free(g->probability);
    free(g->logits);
    free(g);
}

/* The softmax, in double; the largest logit is taken off first, so that no exponential overflows. Their sum; NAN if a
 * logit is not finite. */
static double weigh(double *probability, const float *logits, int V) {
    float largest = -INFINITY;
    double sum = 0;
    for (int v = 0; v < V; v++) {
        if (!isfinite(logits[v])) return NAN;
        largest = fmaxf(largest, logits[v]);
    }
    for (int v = 0; v < V; v++) sum += probability[v] = exp((double)logits[v] - largest);
    for (int v = 0; v < V; v++) probability[v] /= sum;
    return sum;
}

/* The token at which the sum of the probabilities passes a number drawn from [0, 1). */
static int draw(const double *probability, int V, uint64_t bits) {
    double u = (double)(bits >> 11) * 0x1p-53, sum = 0;
    int last = 0; /* of a probability above 0: what rounding leaves over is its */
    for (int v = 0; v < V; v++) {
        if (probability[v] == 0) continue;
        sum += probability[v];
        last = v;
        if (u < sum) break;
    }
    return last;
}

static void print_token(int token, int V, bool first) {
    if (V > BYTE_VOCABULARY)
        printf(first ? "%d" : " %d", token);
    else if (token == '\n')
        fputs("\\n", stdout);
    else if (token == '"' || token == '\\')
        printf("\\%c", token);
    else if (token >= ' ' && token <= '~')
        putchar(token);
    else
        printf("\\x%02x", (unsigned)token);
}

void generator_print(struct generator *g, struct model *m, const struct model_kind *kind, int64_t step) {
    uint64_t key = rng_bits(g->key, (uint64_t)step);
    int length = g->prompt;
    CALL(cudaMemcpyAsync(g->tokens, g->staging, (size_t)length * sizeof(int), cudaMemcpyHostToDevice, m->stream));
    for (; length <= g->T; length++) {
        if (length > g->prompt)
            CALL(cudaMemcpyAsync(g->tokens + length - 1, g->staging + length - 1, sizeof(int), cudaMemcpyHostToDevice,
                                 m->stream));
        kind->predict(m, g->tokens, length, g->logits);
        if (isnan(weigh(g->probability, g->logits, g->V))) break;
        g->staging[length] = draw(g->probability, g->V, rng_bits(key, (uint64_t)(length - g->prompt)));
    }
    printf("sample step %" PRId64 " \"", step);
    for (int i = g->prompt; i < length; i++) print_token(g->staging[i], g->V, i == g->prompt);
    puts(length > g->T ? "\"" : "\" (the logits are not finite)");
}
