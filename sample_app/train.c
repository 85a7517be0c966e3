/* train: a small training program in C for CUDA, to be read from top to bottom.
 *
 *   gpt_model.c      a GPT: its memory, forward, backward, update; gpt_kernels.cu: its kernels
 *   linear_model.c   a deep linear model on cuBLAS alone
 *   text_batches.c   windows of a text, staged in page-locked memory
 *   truth.c          the program's own account of its calls (--truth)
 *   train_options.c  the command line */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sample_app/checked_call.h"
#include "sample_app/model_kind.h"

static const struct model_kind *const kinds[] = {[MODEL_GPT] = &gpt_kind, [MODEL_LINEAR] = &linear_kind};

/* Outputs are opened before the work begins: a wrong path must not cost a training run. */
static FILE *open_output(const char *path) {
    if (!path) return NULL;
    FILE *file = fopen(path, "we");
    if (!file) die(EXIT_RUN_TIME, "cannot write %s: %s", path, strerror(errno));
    return file;
}

static void close_output(FILE *file, int result, const char *path) {
    if (result || fclose(file)) die(EXIT_RUN_TIME, "cannot write %s: %s", path, strerror(errno));
}

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec * 1e-6;
}

static void print_header(const struct train_options *o, const struct model_kind *kind, const struct model *m) {
    struct cudaDeviceProp device;
    CHECK(cudaGetDeviceProperties(&device, 0));
    kind->print_shape(m);
    printf("%s, lr %g, seed %" PRId64 ", text %s, device %s\n", optimizer_name(o->optimizer), o->lr, o->seed, o->data,
           device.name);
}

/* Forward, backward, update; the loss is that of the weights before the update. */
static float train_step(const struct train_options *o, const struct model_kind *kind, struct model *m,
                        struct text_batches *batches, int64_t step, FILE *dump) {
    truth_step_begin();
    kind->begin(m, text_batches_slot(batches, step - 1));
    text_batches_copied(batches, step - 1, m->stream);

    truth_phase_begin(TRUTH_FORWARD);
    kind->forward(m);
    truth_phase_end();

    truth_phase_begin(TRUTH_BACKWARD);
    kind->backward(m);
    truth_phase_end();
    if (dump && step == o->dump_step) close_output(dump, kind->dump(m, step, dump), o->dump_gradients);

    truth_phase_begin(TRUTH_OPTIMIZER);
    kind->update(m, o, step);
    truth_phase_end();

    if (step < o->steps) text_batches_stage(batches, step); /* while the device works */
    kind->finish(m);
    truth_step_end(m->loss);
    return m->loss;
}

int main(int argc, char **argv) {
    struct train_options o = train_options_parse(argc, argv);
    const struct model_kind *kind = kinds[o.model];
    struct batch_form form = kind->batch_form(&o);
    struct text text = text_open(o.data, (size_t)form.window, kind->window_option);
    FILE *truth = open_output(o.truth), *dump = open_output(o.dump_gradients);
    setvbuf(stdout, NULL, _IOLBF, 0);

    struct text_batches batches;
    struct model *m = kind->create(&o);
    text_batches_create(&batches, text, form, (uint64_t)o.seed);
    print_header(&o, kind, m);

    text_batches_stage(&batches, 0);
    for (int64_t step = 1; step <= o.steps; step++) {
        double start = now_ms();
        float loss = train_step(&o, kind, m, &batches, step, dump);
        double ms = now_ms() - start;
        if (step % o.print_every == 0 || step == 1 || step == o.steps)
            printf("step %" PRId64 " loss %.9g ms %.3f %s/s %.1f\n", step, loss, ms, kind->unit,
                   kind->units(&o) / ms * 1e3);
    }

    int64_t parameters = kind->parameters(m), flops = kind->flops(m);
    text_batches_destroy(&batches);
    kind->destroy(m);
    if (truth) close_output(truth, truth_write(truth, parameters, flops), o.truth);
    if (fflush(stdout) || ferror(stdout)) die(EXIT_RUN_TIME, "cannot write to standard output: %s", strerror(errno));
    return 0;
}
