#include "sample_app/trained_tensors.h"

#include <stdlib.h>

#include "sample_app/checked_call.h"

enum number_format real_format(int64_t dtype) {
    switch (dtype) {
    case DTYPE_BF16:
    case DTYPE_FP8:
        return FORMAT_BF16;
    case DTYPE_FP16:
        return FORMAT_FP16;
    default:
        return FORMAT_FP32;
    }
}

/* The specs once for each of so many moments, in another format. */
static struct tensors like(const char *class, const char *const *prefixes, int sets, const struct tensor_spec *specs,
                           int count, enum number_format format, int64_t alloc, bool transient) {
    struct tensor_spec *all = malloc((size_t)(sets * count + 1) * sizeof *all);
    char(*names)[32] = malloc((size_t)(sets * count + 1) * sizeof *names);
    if (!all || !names) die(EXIT_RUN_TIME, "out of host memory");
    for (int i = 0; i < sets * count; i++) {
        all[i] = specs[i % count];
        all[i].format = format;
        snprintf(names[i], sizeof names[i], "%s%s", prefixes[i / count], specs[i % count].name);
        all[i].name = names[i];
    }
    struct tensors t = tensors_create(class, "", all, sets * count, alloc, transient);
    free(names);
    free(all);
    return t;
}

struct trained trained_create(const struct train_options *o, const struct tensor_spec *parameters, int count,
                              const bool *decays) {
    enum number_format format = real_format(o->dtype);
    int moments = optimizer_moments(o->optimizer), masters = format == FORMAT_FP32 ? 0 : 1;
    bool none = o->zero_grad == ZERO_GRAD_NONE;
    char moment[2][8];
    for (int i = 0; i < moments; i++)
        snprintf(moment[i], sizeof moment[i], "%s.", optimizer_moment_name(o->optimizer, i));

    struct trained t = {.decays = decays};
    t.parameters = like("param", (const char *[]){""}, 1, parameters, count, format, o->alloc, false);
    t.gradients = like("grad", (const char *[]){"d."}, 1, parameters, count, FORMAT_FP32, o->alloc, none);
    t.master = like("optimizer", (const char *[]){"master."}, masters, parameters, count, FORMAT_FP32, o->alloc, false);
    t.state = like("optimizer", (const char *[]){moment[0], moment[1]}, moments, parameters, count, FORMAT_FP32,
                   o->alloc, false);
    return t;
}

void trained_destroy(struct trained *t) {
    struct tensors *all[] = {&t->state, &t->master, &t->gradients, &t->parameters};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) tensors_destroy(all[i]);
}
