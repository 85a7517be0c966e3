/* The command line of `train`. One table (train_options.c) gives parsing, checks and --help. */
#ifndef TRAIN_OPTIONS_H
#define TRAIN_OPTIONS_H

#include <stdint.h>

enum model_choice { MODEL_GPT, MODEL_LINEAR };
enum dtype_choice { DTYPE_FP32, DTYPE_TF32, DTYPE_BF16, DTYPE_FP16, DTYPE_FP8 };
enum optimizer_choice { OPTIMIZER_SGD, OPTIMIZER_MOMENTUM, OPTIMIZER_ADAMW };
enum init_choice { INIT_SCALED, INIT_UNSCALED };
enum alloc_choice { ALLOC_TENSOR, ALLOC_CLASS };

struct train_options {
    int64_t model, dtype, optimizer, init, alloc; /* of the enums above */
    int64_t layers, dim, heads, seq, batch, steps, seed, print_every, dump_step;
    double lr, momentum, weight_decay;
    const char *data, *truth, *dump_gradients; /* paths, in argv; NULL: not asked for */
    int64_t untied, show_activations;          /* flags */
};

/* The model's defaults, changed by argv. --help prints and exits 0; anything wrong prints one line and exits 2. */
struct train_options train_options_parse(int argc, char **argv);

/* As on the command line. */
const char *optimizer_name(int64_t optimizer);

#endif
