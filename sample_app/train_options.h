/* The command line of `train`. One table (train_options.c) gives parsing, checks and --help. */
#ifndef TRAIN_OPTIONS_H
#define TRAIN_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum model_choice { MODEL_GPT, MODEL_LINEAR };
enum dtype_choice { DTYPE_FP32, DTYPE_TF32, DTYPE_BF16, DTYPE_FP16, DTYPE_FP8 };
enum optimizer_choice {
    OPTIMIZER_SGD,
    OPTIMIZER_MOMENTUM,
    OPTIMIZER_RMSPROP,
    OPTIMIZER_ADAGRAD,
    OPTIMIZER_ADAM,
    OPTIMIZER_ADAMW
};
enum init_choice { INIT_SCALED, INIT_UNSCALED };
enum alloc_choice { ALLOC_TENSOR, ALLOC_CLASS, ALLOC_STEP, ALLOC_POOL };
enum recompute_choice { RECOMPUTE_NONE, RECOMPUTE_FULL };
enum zero_grad_choice { ZERO_GRAD_ZERO, ZERO_GRAD_NONE };

struct train_options {
    int64_t model, dtype, optimizer, init, alloc, recompute, zero_grad; /* of the enums above */
    int64_t layers, dim, heads, seq, batch, vocab, steps, accum, seed, print_every, dump_step;
    int64_t eval_every, eval_batches, save_every; /* 0: never */
    double lr, momentum, weight_decay;
    double clip;       /* largest global norm of the gradients; 0: no clipping */
    double loss_scale; /* 0: dynamic; 1: none */
    const char *data, *truth, *dump_gradients, *save, *resume; /* paths, in argv; NULL: not asked for */
    int64_t untied, show_activations, show_dtypes, sample;     /* flags */
};

/* The model's defaults, changed by argv. --help prints and exits 0; anything wrong prints one line and exits 2. */
struct train_options train_options_parse(int argc, char **argv);

/* Option i of the table: its name ("--dim"; NULL past the last), and in `value` what it is in this run, as on the
 * command line; "" if it has no meaning with the model or was not given. `decides`: it decides the numbers of the run,
 * so that one that goes on from a checkpoint must have it alike. */
const char *train_options_text(const struct train_options *o, int i, char *value, size_t value_bytes, bool *decides);

/* Every option of the model with its value, as one JSON object; a path that was not given is null. */
void train_options_write(FILE *file, const struct train_options *o);

/* As on the command line. */
const char *optimizer_name(int64_t optimizer);
const char *dtype_name(int64_t dtype);

#endif
