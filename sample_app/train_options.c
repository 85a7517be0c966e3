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

#define TEXT "/usr/share/common-licenses/GPL-3"

/* What both models begin with. */
#define DEFAULTS                                                                                             \
    .dtype = DTYPE_FP32, .init = INIT_SCALED, .alloc = ALLOC_TENSOR, .recompute = RECOMPUTE_NONE,            \
    .zero_grad = ZERO_GRAD_ZERO, .accum = 1, .seed = 1, .print_every = 1, .dump_step = 1, .eval_batches = 4, \
    .momentum = 0.9, .weight_decay = 0.1, .loss_scale = 1, .data = TEXT

static const struct train_options defaults[] = {
    [MODEL_GPT] = {DEFAULTS, .model = MODEL_GPT, .optimizer = OPTIMIZER_ADAMW, .layers = 4, .dim = 128, .heads = 4,
                   .seq = 64, .batch = 8, .vocab = 256, .steps = 200, .lr = 0.0005},
    [MODEL_LINEAR] = {DEFAULTS, .model = MODEL_LINEAR, .optimizer = OPTIMIZER_MOMENTUM, .layers = 6, .dim = 256,
                      .batch = 32, .vocab = 256, .steps = 100, .lr = 0.3},
};

enum kind { KIND_INTEGER, KIND_REAL, KIND_CHOICE, KIND_PATH, KIND_FLAG };

/* The models that an option is for. FREE: it does not decide the numbers of a run, or may be changed on purpose (the
 * learning rate), so that a run that is resumed may have another. */
enum { GPT = 1 << MODEL_GPT, LINEAR = 1 << MODEL_LINEAR, BOTH = GPT | LINEAR, FREE = 1 << 8 };

struct option_row {
    const char *name;
    enum kind kind;
    int models;
    size_t field;
    double min, max;     /* numbers: the smallest and the largest allowed */
    const char *choices; /* KIND_CHOICE: in the order of the enum, separated by | */
    const char *help;
};

#define FIELD(field) offsetof(struct train_options, field)
#define INTEGER(models, name, field, min, max, help) \
    { name, KIND_INTEGER, models, FIELD(field), min, max, NULL, help }
#define REAL(models, name, field, min, max, help) \
    { name, KIND_REAL, models, FIELD(field), min, max, NULL, help }
#define CHOICE(models, name, field, choices, help) \
    { name, KIND_CHOICE, models, FIELD(field), 0, 0, choices, help }
#define PATH(models, name, field, help) \
    { name, KIND_PATH, models, FIELD(field), 0, 0, NULL, help }
#define FLAG(models, name, field, help) \
    { name, KIND_FLAG, models, FIELD(field), 0, 0, NULL, help }

#define DTYPES "fp32|tf32|bf16|fp16|fp8"
#define OPTIMIZERS "sgd|momentum|rmsprop|adagrad|adam|adamw"

static const struct option_row rows[] = {
    CHOICE(BOTH, "--model", model, "gpt|linear", "gpt: a transformer; linear: h = x·W1·…·WL as an autoencoder"),
    INTEGER(BOTH, "--layers", layers, 1, 1000, "L, number of layers"),
    INTEGER(BOTH, "--dim", dim, 1, 32768, "width of the layers: C (gpt), D (linear: bytes of text in a sample too)"),
    INTEGER(GPT, "--heads", heads, 1, 1024, "H, attention heads; a divisor of --dim"),
    INTEGER(GPT, "--seq", seq, 1, 65536, "T, tokens in a sequence"),
    INTEGER(GPT, "--vocab", vocab, 2, 65536, "V, tokens in the vocabulary; over 256 the text has two bytes a token"),
    INTEGER(BOTH, "--batch", batch, 1, 65536, "B, sequences (gpt) or samples (linear) in a micro-batch"),
    INTEGER(BOTH, "--accum", accum, 1, 65536, "K, micro-batches in a step; their gradients are added up"),
    INTEGER(BOTH | FREE, "--steps", steps, 1, 1000000000, "training steps, those of the run that is resumed included"),
    CHOICE(BOTH, "--dtype", dtype, DTYPES, "number format of weights and activations; fp8 is for gpt alone"),
    REAL(BOTH, "--loss-scale", loss_scale, 0, 0x1p60,
         "factor of the loss gradient, 0: dynamic, as fp16 has by default"),
    CHOICE(BOTH, "--optimizer", optimizer, OPTIMIZERS, "the update rule"),
    REAL(BOTH | FREE, "--lr", lr, 0, 1e30, "learning rate"),
    REAL(BOTH, "--momentum", momentum, 0, 1, "what the velocity keeps in each step (--optimizer momentum)"),
    REAL(BOTH, "--weight-decay", weight_decay, 0, 1e30, "decay of matrices, times lr (--optimizer adamw)"),
    REAL(BOTH, "--clip", clip, 0, 1e30, "largest norm of all gradients together, 0: any"),
    INTEGER(BOTH, "--seed", seed, 0, 9e15, "seed of the weights and of the windows of text"),
    CHOICE(BOTH, "--init", init, "scaled|unscaled", "standard deviation of the weights; see sample_app/README.md"),
    FLAG(GPT, "--untied", untied, "a matrix of its own for the head, in place of the token embedding"),
    CHOICE(BOTH | FREE, "--alloc", alloc, "tensor|class|step|pool",
           "one cudaMalloc a tensor or class; by cudaMallocAsync in the step; a pool of ours"),
    CHOICE(BOTH | FREE, "--zero-grad", zero_grad, "zero|none",
           "gradients are kept and cleared, or released after the update"),
    CHOICE(GPT | FREE, "--recompute", recompute, "none|full", "full: backward computes each layer's activations again"),
    PATH(BOTH | FREE, "--data", data, "text to train on"),
    PATH(BOTH | FREE, "--save", save, "write a checkpoint at the end of the run"),
    INTEGER(BOTH | FREE, "--save-every", save_every, 0, 1000000000, "write it after every so many steps too, 0: never"),
    PATH(BOTH | FREE, "--resume", resume, "go on from a checkpoint"),
    INTEGER(BOTH | FREE, "--eval-every", eval_every, 0, 1000000000,
            "after every so many steps the loss of text held back, 0: never"),
    INTEGER(BOTH | FREE, "--eval-batches", eval_batches, 1, 1000000, "batches in an evaluation"),
    FLAG(GPT | FREE, "--sample", sample, "print text that the model writes, after each evaluation and at the end"),
    INTEGER(BOTH | FREE, "--print-every", print_every, 1, 1000000000, "print one step in so many"),
    FLAG(LINEAR | FREE, "--show-activations", show_activations,
         "print the rms of each layer's output in the first step"),
    FLAG(BOTH | FREE, "--show-dtypes", show_dtypes, "print what the number formats make of some numbers, and end"),
    PATH(BOTH | FREE, "--truth", truth, "write the program's own account of buffers, steps and FLOPs as JSON"),
    PATH(BOTH | FREE, "--dump-gradients", dump_gradients,
         "write batch, weights and gradients of one step (a line, then raw)"),
    INTEGER(BOTH | FREE, "--dump-step", dump_step, 1, 1000000000, "the step that --dump-gradients takes"),
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

/* Choice i of "a|b|c", and its length. */
static const char *choice_at(const char *choices, int64_t i, int *length) {
    while (i-- > 0) choices = strchr(choices, '|') + 1;
    *length = (int)strcspn(choices, "|");
    return choices;
}

static const char *copy_choice(const char *choices, int64_t i, char name[16]) {
    int length;
    const char *choice = choice_at(choices, i, &length);
    snprintf(name, 16, "%.*s", length, choice);
    return name;
}

const char *optimizer_name(int64_t optimizer) {
    static char name[16];
    return copy_choice(OPTIMIZERS, optimizer, name);
}

const char *dtype_name(int64_t dtype) {
    static char name[16];
    return copy_choice(DTYPES, dtype, name);
}

/* As few digits as give the number back. */
static void print_real(char *text, size_t bytes, double x) {
    snprintf(text, bytes, "%.15g", x);
    if (strtod(text, NULL) != x) snprintf(text, bytes, "%.17g", x);
}

const char *train_options_text(const struct train_options *given, int i, char *value, size_t value_bytes,
                               bool *decides) {
    struct train_options o = *given;
    const struct option_row *r = &rows[i];
    char name[16];
    if (i >= ROWS) return NULL;
    *value = 0;
    *decides = !(r->models & FREE);
    if (!(r->models & 1 << o.model)) return r->name;
    if (r->kind == KIND_INTEGER) snprintf(value, value_bytes, "%" PRId64, *integer_at(&o, r));
    if (r->kind == KIND_REAL) print_real(value, value_bytes, *real_at(&o, r));
    if (r->kind == KIND_CHOICE) snprintf(value, value_bytes, "%s", copy_choice(r->choices, *integer_at(&o, r), name));
    if (r->kind == KIND_FLAG && *integer_at(&o, r)) snprintf(value, value_bytes, "yes");
    if (r->kind == KIND_PATH && *path_at(&o, r)) snprintf(value, value_bytes, "%s", *path_at(&o, r));
    return r->name;
}

static void write_string(FILE *file, const char *text) {
    fputc('"', file);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') fputc('\\', file);
        if ((unsigned char)*text < ' ')
            fprintf(file, "\\u%04x", *text);
        else
            fputc(*text, file);
    }
    fputc('"', file);
}

void train_options_write(FILE *file, const struct train_options *given) {
    struct train_options o = *given;
    const char *comma = "";
    fputc('{', file);
    for (int i = 0; i < ROWS; i++) {
        const struct option_row *r = &rows[i];
        char name[16];
        if (!(r->models & 1 << o.model)) continue;
        fprintf(file, "%s\"%s\":", comma, r->name + 2);
        comma = ",";
        if (r->kind == KIND_INTEGER) fprintf(file, "%" PRId64, *integer_at(&o, r));
        if (r->kind == KIND_REAL) fprintf(file, "%.17g", *real_at(&o, r));
        if (r->kind == KIND_FLAG) fputs(*integer_at(&o, r) ? "true" : "false", file);
        if (r->kind == KIND_CHOICE) write_string(file, copy_choice(r->choices, *integer_at(&o, r), name));
        if (r->kind == KIND_PATH && *path_at(&o, r)) write_string(file, *path_at(&o, r));
        if (r->kind == KIND_PATH && !*path_at(&o, r)) fputs("null", file);
    }
    fputc('}', file);
}

static void print_default(const struct option_row *r, int64_t model) {
    struct train_options d = defaults[model];
    const char *choice;
    int length;
    switch (r->kind) {
    case KIND_INTEGER:
        printf(" [%" PRId64 "]", *integer_at(&d, r));
        break;
    case KIND_REAL:
        printf(" [%g]", *real_at(&d, r));
        break;
    case KIND_CHOICE:
        choice = choice_at(r->choices, *integer_at(&d, r), &length);
        printf(" [%.*s]", length, choice);
        break;
    case KIND_PATH:
        if (*path_at(&d, r)) printf(" [%s]", *path_at(&d, r));
        break;
    case KIND_FLAG:
        break;
    }
}

static _Noreturn void print_help(int64_t model) {
    static const char *const metavar[] = {"N", "X", "", "FILE", ""};
    printf("Usage: train [OPTION VALUE]...\n"
           "Trains a small model on a text with CUDA and prints each step's loss and speed.\n\n"
           "Options of --model %s, and their defaults (train --model %s --help: of the other):\n",
           model == MODEL_GPT ? "gpt" : "linear", model == MODEL_GPT ? "linear" : "gpt");
    for (int i = 0; i < ROWS; i++) {
        const struct option_row *r = &rows[i];
        char left[64];
        if (!(r->models & 1 << model)) continue;
        snprintf(left, sizeof left, "%s %s", r->name, r->choices ? r->choices : metavar[r->kind]);
        if (strlen(left) > 36) /* the text stands below */
            printf("  %s\n  %-36s %s", left, "", r->help);
        else
            printf("  %-36s %s", left, r->help);
        print_default(r, model);
        putchar('\n');
    }
    printf("  %-36s %s\n\nExit code: 0; 1 failed while running; 2 wrong usage.\n", "--help", "this text");
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

/* Kernels and cuBLAS number elements by int. */
static void check_linear(const struct train_options *o) {
    if (o->dtype == DTYPE_FP8) die(EXIT_USAGE, "--dtype fp8 is for --model gpt alone");
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
}

/* cuBLASLt takes fp8 matrices whose sides are multiples of 16; a sample is one sequence. */
static void check_fp8(const struct train_options *o) {
    if (o->dim % 16) die(EXIT_USAGE, "--dtype fp8 needs a --dim that 16 divides, not %" PRId64, o->dim);
    if (o->batch * o->seq % 16)
        die(EXIT_USAGE, "--dtype fp8 needs --batch times --seq to be a multiple of 16, not %" PRId64 " times %" PRId64,
            o->batch, o->seq);
    if (o->sample && o->seq % 16)
        die(EXIT_USAGE, "--sample with --dtype fp8 needs a --seq that 16 divides, not %" PRId64, o->seq);
}

/* Kernels number their threads by int: no tensor may have more elements, nor may there be more rows than warps. */
static void check_gpt(const struct train_options *o) {
    const int64_t most = INT_MAX - 1024, positions = o->batch * o->seq, rows_of_scores = o->heads * positions;
    if (o->dim % o->heads) die(EXIT_USAGE, "--heads %" PRId64 " does not divide --dim %" PRId64, o->heads, o->dim);
    if (4 * o->dim * o->dim > most || o->vocab * o->dim > most)
        die(EXIT_USAGE, "--dim %" PRId64 ": take a smaller one; a matrix has too many elements", o->dim);
    if (o->seq * o->dim > most || positions > most / o->vocab || 4 * o->dim > most / positions ||
        rows_of_scores > most / 32 || o->seq > most / rows_of_scores)
        die(EXIT_USAGE,
            "--batch %" PRId64 " of --seq %" PRId64 " with --dim %" PRId64 " and --heads %" PRId64
            " makes tensors of more than %" PRId64 " elements; take smaller ones",
            o->batch, o->seq, o->dim, o->heads, most);
    if (o->dtype == DTYPE_FP8) check_fp8(o);
}

/* What no row can check alone. */
static void check_together(const struct train_options *o) {
    if (o->model == MODEL_GPT)
        check_gpt(o);
    else
        check_linear(o);
    if (o->loss_scale != 1 && o->dtype != DTYPE_FP16)
        die(EXIT_USAGE, "--loss-scale is for --dtype fp16 alone: no other format needs it");
    if (o->save_every && !o->save) die(EXIT_USAGE, "--save-every needs --save, the file to write");
    if (o->dump_gradients && o->dump_step > o->steps)
        die(EXIT_USAGE, "--dump-step %" PRId64 " comes after the last of --steps %" PRId64, o->dump_step, o->steps);
}

/* The value of the option at argv[*i], moved past it. */
static const char *value_of(const struct option_row *r, char **argv, int *i) {
    const char *value = strchr(argv[*i], '=');
    if (r->kind == KIND_FLAG) {
        if (value) die(EXIT_USAGE, "%s takes no value; see train --help", r->name);
        return "";
    }
    if (value) return value + 1;
    value = argv[++*i];
    if (!value) die(EXIT_USAGE, "%s needs a value; see train --help", r->name);
    return value;
}

/* The model decides the defaults, and may come last: values are kept, and set over its defaults in the end. */
struct train_options train_options_parse(int argc, char **argv) {
    struct train_options given = {0};
    const char *values[ROWS] = {0};
    int help = 0;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--help")) {
            help = 1;
            continue;
        }
        const struct option_row *r = find_row(argv[i]);
        const char *value = values[r - rows] = value_of(r, argv, &i);
        set_option(&given, r, value);
    }
    if (help) print_help(given.model);
    struct train_options o = defaults[given.model];
    for (int i = 0; i < ROWS; i++) {
        if (!values[i]) continue;
        if (!(rows[i].models & 1 << given.model))
            die(EXIT_USAGE, "%s has no meaning with --model %s", rows[i].name,
                given.model == MODEL_GPT ? "gpt" : "linear");
        set_option(&o, &rows[i], values[i]);
    }
    if (o.dtype == DTYPE_FP16 && !values[find_row("--loss-scale") - rows]) o.loss_scale = 0;
    check_together(&o);
    return o;
}
