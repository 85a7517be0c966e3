/* train's optimizer by itself: updates by gradients that come from a file (test_train_optimizers.py).
 *
 *   optimizer_cases RULE DTYPE SIZES STEPS LR MOMENTUM WEIGHT_DECAY CLIP LOSS_SCALE ALLOC IN OUT EVERY
 *
 * RULE, DTYPE and ALLOC are numbers of the enums in train_options.h. SIZES: elements of each tensor, as in 70x30,17,1
 * (a matrix decays). IN has the first values of all parameters, then for each step their gradients, all float; what the
 * optimizer gets is these times its loss scale. After each step one line is printed:
 *
 *   updated N scale X norm X updates N skipped N good N
 *
 * and, every EVERY steps, OUT gets parameters, master weights and state. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sample_app/checked_call.h"
#include "sample_app/optimizer.h"

enum { TENSORS_MOST = 16 };

struct run {
    struct train_options o;
    struct tensor_spec specs[TENSORS_MOST];
    bool decays[TENSORS_MOST];
    int count;
    size_t elements; /* of all tensors together */
    struct trained t;
    cudaStream_t stream;
};

static void parse_sizes(struct run *r, const char *sizes) {
    while (*sizes) {
        char *end;
        size_t n = strtoull(sizes, &end, 10);
        r->decays[r->count] = *end == 'x';
        if (*end == 'x') n *= strtoull(end + 1, &end, 10);
        r->specs[r->count++] = (struct tensor_spec){"w", 1, n, FORMAT_FP32};
        r->elements += n;
        sizes = end + (*end == ',');
    }
}

static struct tensors create(const struct run *r, const char *class, int times, enum number_format f) {
    struct tensor_spec specs[2 * TENSORS_MOST];
    for (int i = 0; i < times * r->count; i++) {
        specs[i] = r->specs[i % r->count];
        specs[i].format = f;
    }
    return tensors_create(class, "", specs, times * r->count, r->o.alloc, false);
}

static void create_all(struct run *r) {
    enum number_format f = r->o.dtype == DTYPE_FP16                              ? FORMAT_FP16
                           : r->o.dtype == DTYPE_BF16 || r->o.dtype == DTYPE_FP8 ? FORMAT_BF16
                                                                                 : FORMAT_FP32;
    r->t = (struct trained){.parameters = create(r, "param", 1, f),
                            .gradients = create(r, "grad", 1, FORMAT_FP32),
                            .master = create(r, "optimizer", f != FORMAT_FP32, FORMAT_FP32),
                            .state = create(r, "optimizer", optimizer_moments(r->o.optimizer), FORMAT_FP32),
                            .decays = r->decays};
}

static void destroy_all(struct run *r) {
    tensors_destroy(&r->t.state);
    tensors_destroy(&r->t.master);
    tensors_destroy(&r->t.gradients);
    tensors_destroy(&r->t.parameters);
}

/* The pool must know beforehand what is to come. */
static void create_memory(struct run *r) {
    if (r->o.alloc == ALLOC_POOL) {
        tensors_pool_plan();
        create_all(r);
        destroy_all(r);
        tensors_pool_create();
    }
    create_all(r);
    tensors_clear(&r->t.parameters, r->stream);
    tensors_clear(&r->t.state, r->stream);
}

/* The next numbers of the file, times `scale`, into fp32 tensors. */
static void fill(const struct run *r, const struct tensors *t, FILE *in, float scale) {
    float *host = malloc(r->elements * sizeof *host);
    for (int i = 0; i < r->count; i++) {
        if (!host || fread(host, sizeof *host, t->n[i], in) != t->n[i]) die(EXIT_RUN_TIME, "the input ends");
        for (size_t k = 0; k < t->n[i]; k++) host[k] *= scale;
        CALL(cudaMemcpyAsync(t->at[i], host, tensor_bytes(t, i), cudaMemcpyHostToDevice, r->stream));
        CHECK(cudaStreamSynchronize(r->stream));
    }
    free(host);
}

static void dump(const struct run *r, FILE *out) {
    const struct tensors *all[] = {&r->t.parameters, &r->t.master, &r->t.state};
    for (int i = 0; i < 3; i++)
        if (tensors_dump(all[i], out, r->stream)) die(EXIT_RUN_TIME, "cannot write the output");
}

int main(int argc, char **argv) {
    if (argc != 14) die(EXIT_USAGE, "thirteen arguments, please");
    struct run r = {.o = {.optimizer = atoi(argv[1]),
                          .dtype = atoi(argv[2]),
                          .steps = atoi(argv[4]),
                          .lr = atof(argv[5]),
                          .momentum = atof(argv[6]),
                          .weight_decay = atof(argv[7]),
                          .clip = atof(argv[8]),
                          .loss_scale = atof(argv[9]),
                          .alloc = atoi(argv[10])}};
    FILE *in = fopen(argv[11], "rbe"), *out = fopen(argv[12], "wbe");
    if (!in || !out) die(EXIT_RUN_TIME, "cannot open the files");
    CHECK(cudaStreamCreate(&r.stream));
    parse_sizes(&r, argv[3]);
    create_memory(&r);
    fill(&r, r.t.master.count ? &r.t.master : &r.t.parameters, in, 1);

    struct optimizer p;
    optimizer_create(&p, &r.o, &r.t, r.stream);
    for (int64_t step = 1; step <= r.o.steps; step++) {
        fill(&r, &r.t.gradients, in, p.progress.loss_scale);
        bool updated = optimizer_update(&p, &r.t);
        const struct optimizer_progress *g = &p.progress;
        printf("updated %d scale %.9g norm %.17g updates %d skipped %d good %d\n", updated, g->loss_scale,
               p.gradient_norm, (int)g->updates, (int)g->skipped, (int)g->good);
        if (step % atoi(argv[13]) == 0) dump(&r, out);
    }
    optimizer_destroy(&p);
    destroy_all(&r);
    if (r.o.alloc == ALLOC_POOL) tensors_pool_destroy();
    return fclose(out) ? EXIT_RUN_TIME : 0;
}
