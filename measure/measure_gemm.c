/* Matrix products by number format: square ones of three sizes, and those of a transformer's layers. The sizes follow
 * from the device's rate, so that several products fit into a measurement's share of the time. */
#include "measure/measure_gemm.h"

enum { SQUARES = 3, LAYERS = 3, PASSES = 3, LEAST = 128, SEARCH = 512, MOST = 16384, BATCH = 256, TRIES = 5 };

static const struct gemm_format formats[BENCH_FORMATS] = {
    [BENCH_FP64] = {"fp64", CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F, FILL_FP64, 8, 8, 0, 0, 0},
    [BENCH_FP32] = {"fp32", CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F, FILL_FP32, 4, 4, 0, 0, 1},
    [BENCH_TF32] = {"tf32", CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32, FILL_FP32, 4, 4, 80, 0, 0},
    [BENCH_BF16] = {"bf16", CUDA_R_16BF, CUDA_R_16BF, CUBLAS_COMPUTE_32F, FILL_BF16, 2, 2, 80, 0, 1},
    [BENCH_FP16] = {"fp16", CUDA_R_16F, CUDA_R_16F, CUBLAS_COMPUTE_32F, FILL_FP16, 2, 2, 70, 0, 0},
    [BENCH_FP16_ACC16] = {"fp16_acc16", CUDA_R_16F, CUDA_R_16F, CUBLAS_COMPUTE_16F, FILL_FP16, 2, 2, 70, 0, 0},
    [BENCH_FP8] = {"fp8", CUDA_R_8F_E4M3, CUDA_R_16BF, CUBLAS_COMPUTE_32F, FILL_FP8_E4M3, 1, 2, 89, 1, 0},
    [BENCH_INT8] = {"int8", CUDA_R_8I, CUDA_R_32I, CUBLAS_COMPUTE_32I, FILL_INT8, 1, 4, 75, 1, 0},
};

const char *gemm_format_name(int format) {
    return format >= 0 && format < BENCH_FORMATS ? formats[format].name : NULL;
}

/* The format under way. */
static struct state {
    struct gemm gemm;
    int64_t largest; /* square; the training-shaped ones have width largest / 2 and `largest` tokens */
    double rate;     /* FLOP/s, the most seen */
    int usable;
} now;

static double flops(const struct gemm_shape *s) {
    return 2.0 * (double)s->m * (double)s->n * (double)s->k;
}

static struct gemm_shape square(int64_t n) {
    return (struct gemm_shape){n, n, n, now.gemm.format->only_tn, 0};
}

/* Of a layer Y (tokens, out) = X (tokens, in) Wᵀ, all row by row, which is column-major Yᵀ = W Xᵀ. The weight gradient
 * is dYᵀ X, the input gradient dY W. Formats whose units take one form only get the same sizes in that form. */
static struct gemm_shape layer_shape(int layer, int pass) {
    const int64_t tokens = now.largest, d = now.largest / 2;
    const int64_t in[LAYERS] = {d, d, 4 * d}, out[LAYERS] = {3 * d, 4 * d, d};
    const struct gemm_shape passes[PASSES] = {{out[layer], tokens, in[layer], 1, 0},
                                              {in[layer], tokens, out[layer], 0, 0},
                                              {in[layer], out[layer], tokens, 0, 1}};
    struct gemm_shape s = passes[pass];
    if (now.gemm.format->only_tn) s.ta = 1, s.tb = 0;
    return s;
}

/* ---- one measurement ---- */

/* A batch between two events: seconds of one product. */
static int batch_seconds(struct bench *b, const struct gemm_shape *s, int batch, double *one, char *why, size_t room) {
    cudaError_t rc = b->cuda.cudaEventRecord(b->start, b->stream);
    for (int i = 0; i < batch && !rc; i++)
        if (gemm_run(b, &now.gemm, s, why, room)) return -1;
    if (!rc) rc = b->cuda.cudaEventRecord(b->stop, b->stream);
    if (!rc) rc = bench_elapsed(b, one);
    *one /= batch;
    if (rc) snprintf(why, room, "%s", bench_error(b, rc));
    return rc ? -1 : 0;
}

/* One product whose time is of no interest, then some whose least is: as many as 10 ms have room for, one to TRIES. A
 * machine that others use is slow at times, and its rate decides on sizes. */
static int try_shape(struct bench *b, const struct gemm_shape *s, double *least, char *why, size_t room) {
    double one, spent = 0;
    *least = INFINITY;
    if (gemm_prepare(b, &now.gemm, s, why, room) || batch_seconds(b, s, 1, &one, why, room)) return -1;
    for (int i = 0; i < TRIES && spent < 10e-3; i++) {
        if (batch_seconds(b, s, 1, &one, why, room)) return -1;
        *least = fmin(*least, one);
        spent += one;
    }
    now.rate = fmax(now.rate, flops(s) / fmax(*least, 1e-7));
    return 0;
}

static void measure(struct bench *b, struct measured *x, const struct gemm_shape *s, double until) {
    char why[150];
    double one;
    x->m = s->m, x->n = s->n, x->k = s->k;
    b->times.n = 0;
    if (try_shape(b, s, &one, why, sizeof why)) {
        times_skip(x, "%s", why);
        return;
    }
    int batch = times_batch(one, BATCH);
    while (times_go_on(&b->times, until)) {
        if (batch_seconds(b, s, batch, &one, why, sizeof why)) {
            times_skip(x, "%s", why);
            return;
        }
        times_add(&b->times, one);
    }
    times_tell(&b->times, x);
}

/* ---- a format ---- */

static void drop_matrices(struct bench *b) {
    void *all[] = {now.gemm.a, now.gemm.b, now.gemm.c, now.gemm.workspace, now.gemm.scale};
    gemm_forget(b, &now.gemm);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i]) b->cuda.cudaFree(all[i]);
    memset(&now, 0, sizeof now);
}

/* Each of the three has room for 2 n² elements, which is what the widest layer takes. */
static int make_matrices(struct bench *b, const struct gemm_format *f, int64_t n, char *why, size_t room) {
    const uint64_t elements = 2 * (uint64_t)n * (uint64_t)n;
    cudaError_t rc = b->cuda.cudaMalloc(&now.gemm.a, elements * (size_t)f->operand_bytes);
    if (!rc) rc = b->cuda.cudaMalloc(&now.gemm.b, elements * (size_t)f->operand_bytes);
    if (!rc) rc = b->cuda.cudaMalloc(&now.gemm.c, elements * (size_t)f->result_bytes);
    if (!rc) rc = bench_fill(b, now.gemm.a, elements, f->fill);
    if (!rc) rc = bench_fill(b, now.gemm.b, elements, f->fill);
    if (!rc) rc = b->cuda.cudaStreamSynchronize(b->stream);
    if (rc) snprintf(why, room, "matrices of %lld x %lld: %s", (long long)n, (long long)n, bench_error(b, rc));
    return rc ? -1 : 0;
}

static int64_t matrices_bytes(const struct gemm_format *f, int64_t n) {
    return 2 * n * n * (2 * f->operand_bytes + f->result_bytes);
}

static int start_with(struct bench *b, const struct gemm_format *f, int64_t n, char *why, size_t room) {
    drop_matrices(b);
    now.gemm.format = f;
    return make_matrices(b, f, n, why, room);
}

/* Products of growing size, each twice as wide as the one before, from `from` to `to` or until one takes a millisecond:
 * small ones do not show what the device can. Returns seconds of the last; NaN: none could be run, or its memory had.
 */
static double find_rate(struct bench *b, const struct gemm_format *f, int64_t from, int64_t to, char *why,
                        size_t room) {
    double one = NAN, last = NAN;
    if (matrices_bytes(f, to) > b->free_bytes / 2 || start_with(b, f, to, why, room)) return NAN;
    for (int64_t n = from; n <= to && !(last >= 1e-3); n *= 2) {
        struct gemm_shape s = square(n);
        if (try_shape(b, &s, &one, why, room)) break;
        last = one;
    }
    return last;
}

/* The largest square product of which one takes an eighth of `share` seconds at most, and whose matrices have room. */
static int find_largest(struct bench *b, const struct gemm_format *f, double share, char *why, size_t room) {
    double one = find_rate(b, f, LEAST, SEARCH, why, room), rate = now.rate;
    int64_t n = LEAST;
    if (isnan(one)) return -1;
    if (one < 1e-3 && !isnan(find_rate(b, f, 2 * SEARCH, 8 * SEARCH, why, room))) rate = fmax(rate, now.rate);
    for (; n < MOST; n *= 2) {
        double next = 8 * 2.0 * (double)n * (double)n * (double)n;
        if (next / rate > share / 8 || matrices_bytes(f, 2 * n) > b->free_bytes / 2) break;
    }
    if (start_with(b, f, n, why, room)) return -1;
    now.largest = n;
    now.rate = rate;
    return 0;
}

/* Before the first measurement of a format. What fails is told once, for the format. */
static void start_format(struct bench *b, int format, double share) {
    const struct gemm_format *f = &formats[format];
    struct measured x = {.kind = "gemm", .part = "all"};
    char why[150] = "";
    snprintf(x.what, sizeof x.what, "%s", f->name);
    drop_matrices(b);
    now.gemm.format = f;
    if (b->sm < f->least_sm)
        times_skip(&x, MEASURED_NO_UNIT "no unit for it below compute capability %d.%d", f->least_sm / 10,
                   f->least_sm % 10);
    else if (find_largest(b, f, share, why, sizeof why))
        times_skip(&x, "%s", why);
    else
        now.usable = 1;
}

static void run_square(struct bench *b, const struct item *it, double until) {
    struct measured x = {.kind = "gemm", .part = "square"};
    if (it->b == 0) start_format(b, it->a, until - times_now());
    int64_t n = now.largest >> (SQUARES - 1 - it->b);
    if (!now.usable || now.gemm.format != &formats[it->a] || n < 1) return;
    snprintf(x.what, sizeof x.what, "%s", formats[it->a].name);
    struct gemm_shape s = square(n);
    measure(b, &x, &s, until);
}

static void run_layer(struct bench *b, const struct item *it, double until) {
    static const char *const layers[] = {"qkv", "up", "down"}, *const passes[] = {"forward", "input-gradient",
                                                                                  "weight-gradient"};
    struct measured x = {.kind = "gemm"};
    if (!now.usable || now.gemm.format != &formats[it->a]) return;
    snprintf(x.what, sizeof x.what, "%s", formats[it->a].name);
    snprintf(x.part, sizeof x.part, "%s.%s", layers[it->b / PASSES], passes[it->b % PASSES]);
    struct gemm_shape s = layer_shape(it->b / PASSES, it->b % PASSES);
    measure(b, &x, &s, until);
}

/* The first of a format has more to do: matrices, their random numbers, the search for sizes. */
int gemm_plan(const struct bench *b, struct item *items, int n) {
    for (int f = 0; f < BENCH_FORMATS; f++) {
        if (!(b->formats >> f & 1)) continue;
        for (int s = 0; s < SQUARES; s++) items[n++] = (struct item){run_square, s ? 1 : 1.5, f, s};
        for (int i = 0; i < LAYERS * PASSES && (b->chosen || formats[f].training); i++)
            items[n++] = (struct item){run_layer, 1, f, i};
    }
    return n;
}
