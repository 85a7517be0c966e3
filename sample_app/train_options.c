#include "sample_app/train_options.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sample_app/checked_call.h"

static const struct train_options defaults = {
    .model = MODEL_LINEAR,
    .optimizer = OPTIMIZER_MOMENTUM,
    .init = INIT_SCALED,
    .alloc = ALLOC_TENSOR,
    .layers = 6,
    .dim = 256,
    .batch = 32,
    .steps = 100,
    .seed = 1,
    .print_every = 1,
    .dump_step = 1,
    .lr = 0.3,
    .momentum = 0.9,
    .data = "/usr/share/common-licenses/GPL-3",
};

enum kind { KIND_INTEGER, KIND_REAL, KIND_CHOICE, KIND_PATH, KIND_FLAG };

struct option_row {
    const char *name;
    enum kind kind;
    size_t field;
    double min, max;     /* numbers: the smallest and the largest allowed */
    const char *choices; /* KIND_CHOICE: in the order of the enum, separated by | */
    const char *help;
};

#define INTEGER(name, field, min, max, help) \
    { name, KIND_INTEGER, offsetof(struct train_options, field), min, max, NULL, help }
#define REAL(name, field, min, max, help) \
    { name, KIND_REAL, offsetof(struct train_options, field), min, max, NULL, help }
#define CHOICE(name, field, choices, help) \
    { name, KIND_CHOICE, offsetof(struct train_options, field), 0, 0, choices, help }
#define PATH(name, field, help) \
    { name, KIND_PATH, offsetof(struct train_options, field), 0, 0, NULL, help }
#define FLAG(name, field, help) \
    { name, KIND_FLAG, offsetof(struct train_options, field), 0, 0, NULL, help }

static const struct option_row rows[] = {
    CHOICE("--model", model, "linear|gpt", "linear: h = x·W1·…·WL as an autoencoder; gpt: not available yet"),
    INTEGER("--layers", layers, 1, 1000, "L, number of weight matrices"),
    INTEGER("--dim", dim, 1, 32768, "D, width of the layers and bytes of text in a sample"),
    INTEGER("--batch", batch, 1, 65536, "B, samples in a step"),
    INTEGER("--steps", steps, 1, 1000000000, "training steps"),
    CHOICE("--optimizer", optimizer, "sgd|momentum", "the update rule"),
    REAL("--lr", lr, 0, 1e30, "learning rate"),
    REAL("--momentum", momentum, 0, 1, "what the velocity keeps in each step (--optimizer momentum)"),
    INTEGER("--seed", seed, 0, 9e15, "seed of the weights and of the windows of text"),
    CHOICE("--init", init, "scaled|unscaled", "standard deviation of the weights: 1/sqrt(D), or 1"),
    CHOICE("--alloc", alloc, "tensor|class", "one cudaMalloc for each tensor, or for each class of memory"),
    PATH("--data", data, "text to train on"),
    INTEGER("--print-every", print_every, 1, 1000000000, "print one step in so many"),
    FLAG("--show-activations", show_activations, "print the rms of each layer's output in the first step"),
    PATH("--truth", truth, "write the program's own account of buffers, steps and FLOPs as JSON"),
    PATH("--dump-gradients", dump_gradients, "write x, W and dW of one step (a line of text, then raw fp32)"),
    INTEGER("--dump-step", dump_step, 1, 1000000000, "the step that --dump-gradients takes"),
};
enum { ROWS = sizeof rows / sizeof *rows };

static int64_t *integer_at(struct train_options *o, const struct option_row *r) {
    return (int64_t *)((char *)o + r->field);
}
static double *real_at(struct train_options *o, const struct option_row *r) {
    return (double *)((char *)o + r->field);
}
static const char **path_at(struct train_options *o, const struct option_row *r) {
    return (const char **)((char *)o + r->field);
}

/* ---- help ------------------------------------------------------------------------------------------------ */

static void print_default(const struct option_row *r) {
    struct train_options d = defaults;
    const char *choice = r->choices;
    switch (r->kind) {
    case KIND_INTEGER:
        printf(" [%" PRId64 "]", *integer_at(&d, r));
        break;
    case KIND_REAL:
        printf(" [%g]", *real_at(&d, r));
        break;
    case KIND_CHOICE:
        for (int64_t i = *integer_at(&d, r); i > 0; i--) choice = strchr(choice, '|') + 1;
        printf(" [%.*s]", (int)strcspn(choice, "|"), choice);
        break;
    case KIND_PATH:
        if (*path_at(&d, r)) printf(" [%s]", *path_at(&d, r));
        break;
    case KIND_FLAG:
        break;
    }
}

static _Noreturn void print_help(void) {
    static const char *const metavar[] = {"N", "X", "", "FILE", ""};
    printf("Usage: train [OPTION VALUE]...\n"
           "Trains a small model on a text with CUDA and prints each step's loss and speed.\n\n");
    for (int i = 0; i < ROWS; i++) {
        const struct option_row *r = &rows[i];
        char left[64];
        snprintf(left, sizeof left, "%s %s", r->name, r->choices ? r->choices : metavar[r->kind]);
        printf("  %-28s %s", left, r->help);
        print_default(r);
        putchar('\n');
    }
    printf("  %-28s %s\n\nExit code: 0; 1 failed while running; 2 wrong usage.\n", "--help", "this text");
    exit(fflush(stdout) ? EXIT_RUN_TIME : 0);
}

/* ---- parsing --------------------------------------------------------------------------------------------- */

static int64_t parse_integer(const struct option_row *r, const char *text) {
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (end == text || *end || errno || (double)v < r->min || (double)v > r->max)
        die(EXIT_USAGE, "%s: '%s' is not a whole number from %.0f to %.0f; see train --help", r->name, text, r->min,
            r->max);
    return v;
}

static double parse_real(const struct option_row *r, const char *text) {
    char *end;
    double v = strtod(text, &end);
    if (end == text || *end || !isfinite(v) || v < r->min || v > r->max)
        die(EXIT_USAGE, "%s: '%s' is not a number from %g to %g; see train --help", r->name, text, r->min, r->max);
    return v;
}

static int64_t parse_choice(const struct option_row *r, const char *text) {
    const char *choice = r->choices;
    for (int64_t i = 0;; i++) {
        size_t length = strcspn(choice, "|");
        if (strlen(text) == length && !memcmp(choice, text, length)) return i;
        if (!choice[length]) die(EXIT_USAGE, "%s: '%s' is none of %s; see train --help", r->name, text, r->choices);
        choice += length + 1;
    }
}

static void set_option(struct train_options *o, const struct option_row *r, const char *value) {
    switch (r->kind) {
    case KIND_INTEGER:
        *integer_at(o, r) = parse_integer(r, value);
        break;
    case KIND_REAL:
        *real_at(o, r) = parse_real(r, value);
        break;
    case KIND_CHOICE:
        *integer_at(o, r) = parse_choice(r, value);
        break;
    case KIND_FLAG:
        *integer_at(o, r) = 1;
        break;
    case KIND_PATH:
        if (!*value) die(EXIT_USAGE, "%s: the file name is empty; see train --help", r->name);
        *path_at(o, r) = value;
        break;
    }
}

/* The row of `--name` or `--name=value`. */
static const struct option_row *find_row(const char *argument) {
    size_t length = strcspn(argument, "=");
    for (int i = 0; i < ROWS; i++)
        if (strlen(rows[i].name) == length && !memcmp(rows[i].name, argument, length)) return &rows[i];
    if (!strncmp(argument, "--", 2)) die(EXIT_USAGE, "unknown option %.*s; see train --help", (int)length, argument);
    die(EXIT_USAGE, "unexpected argument '%s'; see train --help", argument);
}

/* What no row can check alone. */
static void check_together(const struct train_options *o) {
    if (o->model == MODEL_GPT) die(EXIT_USAGE, "--model gpt is not available yet; take --model linear");
    if (o->layers * o->dim * o->dim > INT_MAX)
        die(EXIT_USAGE,
            "--layers %" PRId64 " of --dim %" PRId64 " are more than the %d parameters that cuBLAS can index; "
            "take smaller ones",
            o->layers, o->dim, INT_MAX);
    if (o->batch * o->dim > INT_MAX)
        die(EXIT_USAGE,
            "--batch %" PRId64 " of --dim %" PRId64 " is more than the %d elements that cuBLAS can index; "
            "take smaller ones",
            o->batch, o->dim, INT_MAX);
    if (o->dump_gradients && o->dump_step > o->steps)
        die(EXIT_USAGE, "--dump-step %" PRId64 " comes after the last of --steps %" PRId64, o->dump_step, o->steps);
}

struct train_options train_options_parse(int argc, char **argv) {
    struct train_options o = defaults;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--help")) print_help();
        const struct option_row *r = find_row(argv[i]);
        const char *value = strchr(argv[i], '=');
        if (r->kind == KIND_FLAG) {
            if (value) die(EXIT_USAGE, "%s takes no value; see train --help", r->name);
        } else if (value) {
            value++;
        } else if (!(value = argv[++i])) {
            die(EXIT_USAGE, "%s needs a value; see train --help", r->name);
        }
        set_option(&o, r, value);
    }
    check_together(&o);
    return o;
}
