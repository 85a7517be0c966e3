#include "sample_app/show_dtypes.h"

#include <stdio.h>

#include "sample_app/checked_call.h"
#include "sample_app/dtype_kernels.h"

/* Only the layout is stated here; all numbers that are printed come from the device (dtype_kernels.cu). */
struct layout {
    const char *name;
    enum dtype dtype;
    int bytes, exponent, mantissa; /* exponent, mantissa: bits */
};

static const struct layout layouts[] = {
    {"fp64", SHOWN_FP64, 8, 11, 52},   {"fp32", SHOWN_FP32, 4, 8, 23}, {"tf32", SHOWN_TF32, 4, 8, 10},
    {"fp16", SHOWN_FP16, 2, 5, 10},    {"bf16", SHOWN_BF16, 2, 8, 7},  {"fp8 E4M3", SHOWN_E4M3, 1, 4, 3},
    {"fp8 E5M2", SHOWN_E5M2, 1, 5, 2},
};
enum { FORMATS = sizeof layouts / sizeof *layouts };

/* What is stored and read again: 1e-8 is below fp16's range; 449, 480, 57344 and 61440 lie at the ends of fp8's. */
static const double examples[] = {1e-8, 0.1, 3.14159265358979, 448, 449, 480, 57344, 61440, 65504, 70000};
enum { EXAMPLES = sizeof examples / sizeof *examples, LONG_EXAMPLES = 3 /* with long results */ };

/* Room on the device for the longer list. */
struct scratch {
    void *in;
    double *out;
};

static void decode(const struct scratch *s, enum dtype dtype, double *values, const uint64_t *bits, int n) {
    CHECK(cudaMemcpy(s->in, bits, (size_t)n * sizeof *bits, cudaMemcpyHostToDevice));
    LAUNCH(dtype_decode(dtype, s->out, s->in, n, 0));
    CHECK(cudaMemcpy(values, s->out, (size_t)n * sizeof *values, cudaMemcpyDeviceToHost));
}

static void print_range(const struct scratch *s, const struct layout *f) {
    enum { LARGEST, NORMAL, SUBNORMAL, ONE, NEXT, PATTERNS };
    uint64_t unit = UINT64_C(1) << f->mantissa, one = ((UINT64_C(1) << (f->exponent - 1)) - 1) * unit;
    /* E4M3 gives one pattern to NaN, all others of the highest exponent to numbers. */
    uint64_t infinity = ((UINT64_C(1) << f->exponent) - 1) * unit;
    uint64_t largest = f->dtype == SHOWN_E4M3 ? infinity + unit - 2 : infinity - 1;
    const uint64_t bits[PATTERNS] = {largest, unit, 1, one, one + 1};
    double v[PATTERNS];
    decode(s, f->dtype, v, bits, PATTERNS);
    printf("%-9s %5d %9d %9d %17.10g %17.10g %17.10g %17.10g\n", f->name, f->bytes, f->exponent, f->mantissa,
           v[LARGEST], v[NORMAL], v[SUBNORMAL], v[NEXT] - v[ONE]);
}

static void print_rounded(const struct scratch *s, const struct layout *f, bool saturate) {
    double v[EXAMPLES];
    CHECK(cudaMemcpy(s->in, examples, sizeof examples, cudaMemcpyHostToDevice));
    LAUNCH(dtype_round(f->dtype, saturate, s->out, s->in, EXAMPLES, 0));
    CHECK(cudaMemcpy(v, s->out, sizeof v, cudaMemcpyDeviceToHost));
    printf("%-9s %-9s", f->name, saturate ? "saturated" : "");
    for (int i = 0; i < EXAMPLES; i++) printf(" %*.9g", i < LONG_EXAMPLES ? 14 : 6, v[i]);
    putchar('\n');
}

void show_dtypes(void) {
    struct scratch s;
    CHECK(cudaMalloc(&s.in, EXAMPLES * sizeof(double)));
    CHECK(cudaMalloc((void **)&s.out, EXAMPLES * sizeof(double)));
    printf("%-9s %5s %9s %9s %17s %17s %17s %17s\n", "format", "bytes", "exponent", "mantissa", "largest",
           "smallest normal", "subnormal", "epsilon");
    for (int i = 0; i < FORMATS; i++) print_range(&s, &layouts[i]);
    printf("\nstored, and read again:\n%-19s", "format");
    for (int i = 0; i < EXAMPLES; i++) printf(" %*.9g", i < LONG_EXAMPLES ? 14 : 6, examples[i]);
    putchar('\n');
    for (int i = 0; i < FORMATS; i++) {
        print_rounded(&s, &layouts[i], false);
        if (layouts[i].bytes == 1) print_rounded(&s, &layouts[i], true);
    }
    CHECK(cudaFree(s.in));
    CHECK(cudaFree(s.out));
}
