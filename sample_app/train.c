/* train: a small training program in C for CUDA, to be read from top to bottom.
 *
 *   gpt_model.c      a GPT: its memory, forward, backward; gpt_kernels.cu: its kernels
 *   linear_model.c   a deep linear model
 *   products.c       matrix products, by cuBLAS and cuBLASLt
 *   optimizer.c      updates: six rules, clipping, loss scaling
 *   text_batches.c   windows of a text, on their way to the device
 *   checkpoint.c     --save and --resume
 *   truth.c          the program's own account of its calls (--truth)
 *   train_options.c  the command line */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "sample_app/checked_call.h"
#include "sample_app/checkpoint.h"
#include "sample_app/generate.h"
#include "sample_app/gradient_dump.h"
#include "sample_app/model_kind.h"
#include "sample_app/output_files.h"
#include "sample_app/show_dtypes.h"

static const struct model_kind *const kinds[] = {[MODEL_GPT] = &gpt_kind, [MODEL_LINEAR] = &linear_kind};

struct run {
    const struct train_options *o;
    const struct model_kind *kind;
    struct model *m;
    struct optimizer optimizer;
    struct text text;
    struct text_batches *batches;
    struct generator *generator; /* NULL without --sample */
    FILE *dump;
};

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec * 1e-6;
}

static int64_t parameters(const struct model *m) {
    int64_t n = 0;
    for (int i = 0; i < m->trained.parameters.count; i++) n += (int64_t)m->trained.parameters.n[i];
    return n;
}

static int64_t step_flops(const struct run *r) {
    return r->o->accum * r->kind->micro_batch_flops(r->m);
}

static void print_header(const struct run *r) {
    const struct train_options *o = r->o;
    struct cudaDeviceProp device;
    CHECK(cudaGetDeviceProperties(&device, 0));
    printf("%s: ", r->kind->name);
    r->kind->describe(r->m, stdout, ",");
    printf(", micro-batches %" PRId64 ", %" PRId64 " parameters, %" PRId64 " FLOPs a step in matrix products\n",
           o->accum, parameters(r->m), step_flops(r));
    printf("%s %s, lr %g, seed %" PRId64 ", text %s, device %s\n", dtype_name(o->dtype), optimizer_name(o->optimizer),
           o->lr, o->seed, o->data, device.name);
}

/* ---- a step ---------------------------------------------------------------------------------------------- */

/* A step begins with the copy of its first batch. */
static void begin_step(struct run *r, int64_t step) {
    truth_step_begin();
    text_batches_stage(r->batches, BATCH_TRAINING, (step - 1) * r->o->accum);
}

static void dump_gradients(struct run *r, int64_t step, const void *batch, float loss_scale) {
    const char *path = r->o->dump_gradients;
    output_file_begin(r->dump, path);
    output_file_close(r->dump, gradient_dump(r->dump, r->o, r->kind, r->m, batch, loss_scale, step), path);
}

/* Forward and backward of the batch staged first. */
static void run_micro_batch(struct run *r, int64_t step, bool last) {
    struct model *m = r->m;
    float loss_scale = r->optimizer.progress.loss_scale;
    const void *batch = text_batches_take(r->batches, m->stream);

    truth_phase_begin(TRUTH_FORWARD);
    r->kind->forward(m, batch, loss_scale / (float)r->o->accum);
    truth_phase_end();

    truth_phase_begin(TRUTH_BACKWARD);
    r->kind->backward(m, batch);
    truth_phase_end();

    if (r->dump && last && step == r->o->dump_step) dump_gradients(r, step, batch, loss_scale);
    text_batches_used(r->batches, m->stream);
}

/* Whether anything was updated: not if the gradients are not finite. */
static bool update(struct run *r) {
    struct optimizer *p = &r->optimizer;
    if (r->kind->update && r->kind->update(r->m, r->o)) {
        p->progress.updates++;
        return true;
    }
    return optimizer_update(p, &r->m->trained);
}

/* The loss is the mean over the micro-batches, by the weights before the update. While the device works on a batch the
 * next is on its way, unless `pause`: something else comes between this step and the next. */
static float train_step(struct run *r, int64_t step, bool pause) {
    const struct train_options *o = r->o;
    struct tensors *gradients = &r->m->trained.gradients;
    double losses = 0;
    r->kind->begin(r->m);
    for (int64_t k = 0; k < o->accum - 1; k++) {
        run_micro_batch(r, step, false);
        text_batches_stage(r->batches, BATCH_TRAINING, (step - 1) * o->accum + k + 1);
        r->kind->finish(r->m);
        losses += r->m->loss;
    }
    run_micro_batch(r, step, true);

    truth_phase_begin(TRUTH_OPTIMIZER);
    bool updated = update(r);
    truth_phase_end();
    truth_step_end(!updated);

    tensors_drop(gradients, 0, gradients->count, r->m->stream); /* --zero-grad none */
    if (!pause) begin_step(r, step + 1);
    r->kind->finish(r->m);
    float loss = (float)((losses + r->m->loss) / (double)o->accum);
    truth_loss(loss);
    if (!updated) {
        printf("step %" PRId64 " skipped: gradients are not finite", step);
        if (o->loss_scale != 1) printf(", loss scale now %.9g", r->optimizer.progress.loss_scale);
        putchar('\n');
    }
    return loss;
}

/* ---- between steps --------------------------------------------------------------------------------------- */

static bool due(int64_t step, int64_t every) {
    return every && step % every == 0;
}

/* The mean loss of the same batches each time, of text that training does not see. */
static void evaluate(struct run *r, int64_t step) {
    double losses = 0;
    truth_evaluation_begin();
    for (int64_t i = 0; i < r->o->eval_batches; i++) {
        text_batches_stage(r->batches, BATCH_EVALUATION, i);
        r->kind->forward(r->m, text_batches_take(r->batches, r->m->stream), 0);
        text_batches_used(r->batches, r->m->stream);
        r->kind->finish(r->m);
        losses += r->m->loss;
    }
    truth_evaluation_end();
    printf("eval step %" PRId64 " loss %.9g\n", step, losses / (double)r->o->eval_batches);
}

static void sample(struct run *r, int64_t step) {
    truth_evaluation_begin();
    generator_print(r->generator, r->m, r->kind, step);
    truth_evaluation_end();
}

static void save(struct run *r, int64_t step) {
    checkpoint_save(r->o->save, r->o, &r->text, &r->m->trained, &r->optimizer.progress, step, r->m->stream);
}

static void train(struct run *r, int64_t first) {
    const struct train_options *o = r->o;
    begin_step(r, first);
    for (int64_t step = first; step <= o->steps; step++) {
        bool last = step == o->steps, evaluation = due(step, o->eval_every), saved = due(step, o->save_every);
        bool pause = last || evaluation || saved;
        double start = now_ms();
        float loss = train_step(r, step, pause);
        double ms = now_ms() - start;
        if (step % o->print_every == 0 || step == first || last)
            printf("step %" PRId64 " loss %.9g ms %.3f %s/s %.1f\n", step, loss, ms, r->kind->unit,
                   o->accum * r->kind->units(o) / ms * 1e3);
        if (evaluation) evaluate(r, step);
        if (o->sample && (evaluation || last)) sample(r, step);
        if (o->save && (saved || last)) save(r, step);
        if (pause && !last) begin_step(r, step + 1);
    }
    if (r->optimizer.progress.skipped)
        printf("%" PRId64 " of %" PRId64 " steps skipped: gradients were not finite\n", r->optimizer.progress.skipped,
               o->steps);
}

/* The number of the first step: the one after those of the run that is resumed. */
static int64_t resume(struct run *r) {
    const struct train_options *o = r->o;
    if (!o->resume) return 1;
    int64_t done = checkpoint_load(o->resume, o, &r->text, &r->m->trained, &r->optimizer.progress, r->m->stream);
    if (done >= o->steps)
        die(EXIT_USAGE, "%s has %" PRId64 " steps done: --steps, the total, must be more", o->resume, done);
    if (o->dump_gradients && o->dump_step <= done)
        die(EXIT_USAGE, "--dump-step %" PRId64 " is one of the %" PRId64 " steps that %s has done", o->dump_step, done,
            o->resume);
    printf("resumed %s at step %" PRId64 "\n", o->resume, done);
    return done + 1;
}

int main(int argc, char **argv) {
    struct train_options o = train_options_parse(argc, argv);
    struct run r = {.o = &o, .kind = kinds[o.model]};
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (o.show_dtypes) {
        show_dtypes();
        return 0;
    }
    struct batch_form form = r.kind->batch_form(&o);
    r.text = text_open(o.data, (int)o.vocab, (size_t)form.window, r.kind->window_option);
    if (o.save) checkpoint_check(o.save);
    FILE *truth = output_file_open(o.truth);
    r.dump = output_file_open(o.dump_gradients);
    output_files_apart(&o);
    if (!truth) truth_forget();

    r.m = r.kind->create(&o);
    r.batches = text_batches_create(&r.text, form, (uint64_t)o.seed, o.eval_every > 0, o.alloc);
    optimizer_create(&r.optimizer, &o, &r.m->trained, r.m->stream);
    if (o.sample) r.generator = generator_create(&o, &r.text);
    print_header(&r);

    int64_t first = resume(&r);
    train(&r, first);

    int64_t count = parameters(r.m), flops = step_flops(&r);
    if (r.generator) generator_destroy(r.generator);
    optimizer_destroy(&r.optimizer);
    text_batches_destroy(r.batches);
    r.kind->destroy(r.m);
    text_close(&r.text);
    if (truth)
        output_file_close(truth, truth_write(output_file_begin(truth, o.truth), &o, count, flops, first), o.truth);
    if (fflush(stdout) || ferror(stdout)) die(EXIT_RUN_TIME, "cannot write to standard output: %s", strerror(errno));
    return 0;
}
