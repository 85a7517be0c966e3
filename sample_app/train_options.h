/* The command line of `train`. One table (train_options.c) gives parsing, checks and --help. */
#ifndef TRAIN_OPTIONS_H
#define TRAIN_OPTIONS_H

#include <stdint.h>

enum model_name { MODEL_LINEAR, MODEL_GPT };
enum optimizer_name { OPTIMIZER_SGD, OPTIMIZER_MOMENTUM };
enum init_name { INIT_SCALED, INIT_UNSCALED };
enum alloc_name { ALLOC_TENSOR, ALLOC_CLASS };

struct train_options {
    int64_t model, optimizer, init, alloc; /* of the enums above */
    int64_t layers, dim, batch, steps, seed, print_every, dump_step;
    double lr, momentum;
    const char *data, *truth, *dump_gradients; /* paths, in argv; NULL: not asked for */
    int64_t show_activations;
};

/* The defaults, changed by argv. --help prints and exits 0; anything wrong prints one line and exits 2. */
struct train_options train_options_parse(int argc, char **argv);

#endif
