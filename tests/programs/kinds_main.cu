/* kinds KEY=VALUE…: trains one network in one manner, and tells its account (kinds.h). */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include "tests/programs/kinds.h"

static struct option {
    const char *key, *value;
} options[] = {
    {"program", "train"}, /* train, or one of kinds_special.cu */
    {"model", "mlp"},
    {"layers", "2"},
    {"dim", "32"},
    {"vocab", "40"},
    {"batch", "4"},
    {"seq", "8"},
    {"steps", "4"},
    {"accum", "1"},
    {"norm", "0"},       /* layernorm in mlp */
    {"attention", "0"},  /* in gpt */
    {"dtype", "fp32"},   /* fp32 autocast */
    {"alloc", "static"}, /* static malloc async */
    {"zero", "memset"},  /* none memset beta */
    {"sum", "beta"},     /* beta add */
    {"opt", "adamw"},    /* kinds_optimizer.cu */
    {"lazy", "0"},
    {"nesterov", "0"},  /* of muon */
    {"positions", "1"}, /* rows of the table of places, in sequences */
    {"slabs", "0"},
    {"dx", "first"},       /* input gradient before or after the weight's */
    {"loss", "autograd"},  /* autograd fused in_place */
    {"recompute", "none"}, /* none gelu block */
    {"frozen", "0"},
    {"frozen_head", "0"},
    {"lora", "0"},
    {"tied", "0"},
    {"twice", "0"},
    {"data", "copy"},         /* copy fixed double */
    {"eval", "none"},         /* none, first: before the first step */
    {"eval_every", "0"},      /* steps */
    {"eval_with", "weights"}, /* weights, ema, swap: the averages, copied in and out */
    {"eval_apart", "0"},      /* batches of evaluation in memory of their own */
    {"last_eval", "0"},       /* batches after the last step */
    {"sample", "0"},          /* steps */
    {"decay", "0"},           /* in a pass of its own, at the step's beginning */
    {"clip", "0"},
    {"skip", ""}, /* steps whose gradients overflow, as digits; "-": none does */
    {"ema", "0"},
    {"cut", "none"},      /* one step more, cut off: forward backward second (micro-batch) */
    {"in_backward", "0"}, /* the optimizer works as soon as there is a gradient */
    {"warm", "0"},
    {"unused", "0"},
    {"checkpoint", "0"},
    {"train", "1"},
};

const char *text(const char *key) {
    for (const option &o : options)
        if (!strcmp(o.key, key)) return o.value;
    fprintf(stderr, "kinds: no option %s\n", key);
    exit(2);
}
int number(const char *key) {
    return atoi(text(key));
}
bool is(const char *key, const char *value) {
    return !strcmp(text(key), value);
}

void upload(const buffer &to, float scale, unsigned seed) {
    float *h = (float *)malloc(to.n * sizeof *h);
    unsigned s = seed * 2654435761u + 12345;
    for (size_t i = 0; i < to.n; i++) {
        s = s * 1664525u + 1013904223u;
        h[i] = scale != 0 ? scale * ((float)(s >> 8) / 16777216.f - 0.5f) : 1;
    }
    CHECK(cudaMemcpy(to.at, h, to.n * sizeof *h, cudaMemcpyHostToDevice));
    free(h);
}

void upload_tokens(const buffer &to, int vocabulary, unsigned seed) {
    int *h = (int *)malloc(to.n * sizeof *h);
    for (size_t i = 0; i < to.n; i++) h[i] = (int)((i * 7 + seed * 13) % (size_t)vocabulary);
    CHECK(cudaMemcpy(to.at, h, to.n * sizeof *h, cudaMemcpyHostToDevice));
    free(h);
}

void read_host(const buffer &from, int n) {
    float h[64];
    CHECK(cudaMemcpy(h, from.at, (size_t)(n < 64 ? n : 64) * sizeof *h, cudaMemcpyDeviceToHost));
}

void cut_off() {
    tell_account();
    raise(SIGINT);
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        char *equals = strchr(argv[i], '=');
        if (!equals) return 2;
        *equals = 0;
        text(argv[i]); /* ends the program if there is none */
        for (option &o : options)
            if (!strcmp(o.key, argv[i])) o.value = equals + 1;
    }
    CHECK(cublasCreate(&blas));
    if (is("program", "train"))
        train_network();
    else
        special_program(text("program"));
    CHECK(cudaDeviceSynchronize());
    tell_account();
    return 0;
}
