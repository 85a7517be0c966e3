/* train: a small training program in C for CUDA, to be read from top to bottom.
 *
 *   text_batches.c   windows of a text, staged in page-locked memory
 *   linear_model.c   the model: memory, forward, loss, backward, update
 *   truth.c          the program's own account of its calls (--truth)
 *   train_options.c  the command line */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sample_app/checked_call.h"
#include "sample_app/linear_model.h"
#include "sample_app/text_batches.h"
#include "sample_app/train_options.h"

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

static void print_header(const struct train_options *o, const struct linear_model *m) {
    struct cudaDeviceProp device;
    CHECK(cudaGetDeviceProperties(&device, 0));
    printf("linear: layers %d, dim %d, batch %d, %" PRId64 " parameters, %" PRId64 " FLOPs a step in matrix products\n",
           m->L, m->D, m->B, linear_parameters(m), linear_flops(m));
    printf("%s, lr %g, seed %" PRId64 ", text %s, device %s\n", o->optimizer == OPTIMIZER_MOMENTUM ? "momentum" : "sgd",
           o->lr, o->seed, o->data, device.name);
}

/* Forward, backward, update; the loss is that of the weights before the update. */
static float train_step(const struct train_options *o, struct linear_model *m, struct text_batches *batches,
                        int64_t step, FILE *dump) {
    truth_step_begin();
    text_batches_copy(batches, step - 1, m->x.at[0], m->stream);

    truth_phase_begin(TRUTH_FORWARD);
    linear_forward(m);
    if (o->show_activations && step == 1) linear_print_activations(m);
    float loss = linear_loss(m);
    truth_phase_end();

    truth_phase_begin(TRUTH_BACKWARD);
    linear_backward(m);
    truth_phase_end();
    if (dump && step == o->dump_step) close_output(dump, linear_dump(m, step, dump), o->dump_gradients);

    truth_phase_begin(TRUTH_OPTIMIZER);
    if (o->optimizer == OPTIMIZER_MOMENTUM)
        linear_update_momentum(m, (float)o->lr, (float)o->momentum);
    else
        linear_update_sgd(m, (float)o->lr);
    truth_phase_end();
    truth_step_end(loss);

    if (step < o->steps) text_batches_stage(batches, step); /* while the device works */
    CHECK(cudaStreamSynchronize(m->stream));
    return loss;
}

int main(int argc, char **argv) {
    struct train_options o = train_options_parse(argc, argv);
    struct text text = text_open(o.data, (size_t)o.dim);
    FILE *truth = open_output(o.truth), *dump = open_output(o.dump_gradients);
    setvbuf(stdout, NULL, _IOLBF, 0);

    struct linear_model model;
    struct text_batches batches;
    struct linear_shape shape = {.B = (int)o.batch,
                                 .D = (int)o.dim,
                                 .L = (int)o.layers,
                                 .momentum = o.optimizer == OPTIMIZER_MOMENTUM,
                                 .together = o.alloc == ALLOC_CLASS,
                                 .unscaled = o.init == INIT_UNSCALED,
                                 .seed = (uint64_t)o.seed};
    linear_create(&model, shape);
    text_batches_create(&batches, text, shape.B, shape.D, shape.seed);
    print_header(&o, &model);

    text_batches_stage(&batches, 0);
    for (int64_t step = 1; step <= o.steps; step++) {
        double start = now_ms();
        float loss = train_step(&o, &model, &batches, step, dump);
        double ms = now_ms() - start;
        if (step % o.print_every == 0 || step == 1 || step == o.steps)
            printf("step %" PRId64 " loss %.9g ms %.3f samples/s %.1f\n", step, loss, ms, shape.B / ms * 1e3);
    }

    int64_t parameters = linear_parameters(&model), flops = linear_flops(&model);
    text_batches_destroy(&batches);
    linear_destroy(&model);
    if (truth) close_output(truth, truth_write(truth, parameters, flops), o.truth);
    if (fflush(stdout) || ferror(stdout)) die(EXIT_RUN_TIME, "cannot write to standard output: %s", strerror(errno));
    return 0;
}
