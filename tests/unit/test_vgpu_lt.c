/* cublasLtMatmul against a reference in double precision: every combination of types, order, transpose, batch and
 * epilogue. The bound on an element: the sums' (k + 4) · eps · (|alpha| |A||B| + |beta C| + |bias|), by how much an
 * epilogue can enlarge an error, plus one rounding to D's format. */
#include "tests/unit/vgpu_lt_reference.h"

static cublasLtHandle_t handle;
static uint64_t seed = 11;

#define BF16 CUDA_R_16BF
#define FP16 CUDA_R_16F
#define FP32 CUDA_R_32F
#define FP64 CUDA_R_64F
#define INT8 CUDA_R_8I
#define INT32 CUDA_R_32I
#define E4M3 CUDA_R_8F_E4M3
#define E5M2 CUDA_R_8F_E5M2
enum { RELU = 2, BIAS = 4, DRELU = 8, BGRAD = 16, GELU = 32, DGELU = 64, AUX = 128, BGRADA = 256, BGRADB = 512 };

/* What a case lives on. */
struct bench {
    struct lt_case k;
    struct lt_matrix a, b, c, d, bias, aux;
    uint8_t *bits; /* ReLU's mask, on the host */
    void *bits_device;
    int64_t bits_ld;
    float *floats; /* on the device: scales of A, B, D; amax of D; alpha, beta as the scale type */
};

static double operand(const struct lt_case *k, const struct lt_matrix *x, int64_t batch, int64_t i, int64_t j) {
    double v = decode(x->type, x->host, lt_at(x, batch, i, j));
    return k->round_bits && x->type == FP32 ? rounded(v, k->round_bits, k->round_away) : v;
}

static double op_a(const struct bench *t, int64_t batch, int64_t i, int64_t l) {
    return t->k.ta ? operand(&t->k, &t->a, batch, l, i) : operand(&t->k, &t->a, batch, i, l);
}

static double op_b(const struct bench *t, int64_t batch, int64_t l, int64_t j) {
    return t->k.tb ? operand(&t->k, &t->b, batch, j, l) : operand(&t->k, &t->b, batch, l, j);
}

struct value {
    double v, bound;
};

/* alpha · scales · sum + beta · C + bias */
static struct value before_epilogue(const struct bench *t, const void *c, int64_t s, int64_t i, int64_t j) {
    const struct lt_case *k = &t->k;
    double sum = 0, size = 0, alpha = k->alpha;
    for (int64_t l = 0; l < k->k; l++) {
        double x = op_a(t, s, i, l) * op_b(t, s, l, j);
        sum += x;
        size += fabs(x);
    }
    if (k->a_scale != 0) alpha *= (double)k->a_scale;
    if (k->b_scale != 0) alpha *= (double)k->b_scale;
    double old = k->beta == 0 ? 0 : k->beta * decode(k->c, c, lt_at(&t->c, s, i, j));
    double bias = k->epilogue & BIAS ? decode(k->bias, t->bias.host, lt_at(&t->bias, s, i, 0)) : 0;
    double bound = (double)(k->k + 4) * k->sum_epsilon * (fabs(alpha) * size + fabs(old) + fabs(bias));
    return (struct value){alpha * sum + old + bias, bound};
}

static struct value activate(const struct bench *t, struct value x, int64_t s, int64_t i, int64_t j) {
    uint32_t e = t->k.epilogue;
    double bound = x.bound * 1.2 + fabs(x.v) * 4 * t->k.sum_epsilon;
    if (e & RELU) return (struct value){x.v > 0 ? x.v : 0, x.bound};
    if (e & GELU) return (struct value){lt_gelu(x.v), bound};
    if (e & DRELU) {
        int64_t at = s * t->bits_ld * t->k.n + j * t->bits_ld + i;
        return (struct value){t->bits[at / 8] >> at % 8 & 1 ? x.v : 0, x.bound};
    }
    if (e & DGELU) {
        double slope = lt_gelu_slope(decode(t->aux.type, t->aux.host, lt_at(&t->aux, s, i, j)));
        return (struct value){x.v * slope, bound + fabs(x.v) * 1e-6};
    }
    return x;
}

static void near(const struct lt_case *k, const char *what, cudaDataType_t type, double got, struct value want,
                 int64_t i, int64_t j, int64_t s) {
    double largest = fields_of(type).largest, bound = want.bound + epsilon_of(type) * fabs(want.v) + smallest_of(type);
    bool stays = type == E4M3 || type == E5M2 || type == INT8;
    if (stays && want.v > largest) want.v = largest;
    if (stays && want.v < -largest) want.v = type == INT8 ? -128 : -largest;
    if (!(fabs(got - want.v) <= bound))
        fail_msg("types %d %d %d %d compute %d, m %d n %d k %d, ta %d tb %d, rows %d%d%d%d, epilogue %u: %s(%d,%d) of "
                 "batch %d is %.9g, not %.9g (bound %g)",
                 k->a, k->b, k->c, k->d, k->compute, (int)k->m, (int)k->n, (int)k->k, k->ta, k->tb, k->row_a, k->row_b,
                 k->row_c, k->row_d, k->epilogue, what, (int)i, (int)j, (int)s, got, want.v, bound);
}

/* What lies between the lines must be untouched. */
static void untouched(const struct lt_matrix *x, const void *after, int64_t batch) {
    char *inside = test_calloc(x->elements + 1, 1);
    size_t e = bytes_of(x->type);
    for (int64_t s = 0; s < batch; s++)
        for (int64_t j = 0; j < x->columns; j++)
            for (int64_t i = 0; i < x->rows; i++) inside[lt_at(x, s, i, j)] = 1;
    for (size_t i = 0; i < x->elements; i++)
        if (!inside[i] && memcmp((const char *)x->host + i * e, (const char *)after + i * e, e))
            fail_msg("element %zu outside of the matrix was written", i);
    test_free(inside);
}

static void compare(const struct bench *t, const void *d, const void *aux, const uint8_t *bits) {
    const struct lt_case *k = &t->k;
    double amax = 0, scale = k->d_scale != 0 ? (double)k->d_scale : 1;
    float got_amax;
    for (int64_t s = 0; s < k->batch; s++)
        for (int64_t j = 0; j < k->n; j++)
            for (int64_t i = 0; i < k->m; i++) {
                struct value x = before_epilogue(t, t->c.host, s, i, j), y = activate(t, x, s, i, j);
                amax = fmax(amax, fabs(y.v));
                if (k->epilogue & GELU && k->epilogue & AUX)
                    near(k, "aux", t->aux.type, decode(t->aux.type, aux, lt_at(&t->aux, s, i, j)), x, i, j, s);
                int64_t at = s * t->bits_ld * k->n + j * t->bits_ld + i;
                if (k->epilogue & RELU && k->epilogue & AUX && fabs(x.v) > x.bound)
                    assert_int_equal(bits[at / 8] >> at % 8 & 1, x.v > 0);
                y.v *= scale;
                y.bound *= scale;
                near(k, "D", k->d, decode(k->d, d, lt_at(&t->d, s, i, j)), y, i, j, s);
            }
    if (!k->amax) return;
    OK(cudaMemcpy(&got_amax, t->floats + 3, sizeof got_amax, cudaMemcpyDeviceToHost));
    assert_true(fabs((double)got_amax - amax) <= 1e-4 * amax);
}

/* Sums over k of an operand, or over columns of what D holds. */
static void compare_gradient(const struct bench *t, const void *bias) {
    const struct lt_case *k = &t->k;
    for (int64_t s = 0; s < k->batch; s++)
        for (int64_t i = 0; i < t->bias.rows; i++) {
            struct value sum = {0, 0};
            for (int64_t l = 0; l < (k->epilogue & BGRAD ? k->n : k->k); l++) {
                struct value x = {0, 0};
                if (k->epilogue & BGRAD)
                    x = activate(t, before_epilogue(t, t->c.host, s, i, l), s, i, l);
                else
                    x.v = k->epilogue & BGRADA ? op_a(t, s, i, l) : op_b(t, s, l, i);
                sum.v += x.v;
                sum.bound += x.bound + fabs(x.v) * 1e-7;
            }
            near(k, "bias", k->bias, decode(k->bias, bias, lt_at(&t->bias, s, i, 0)), sum, i, 0, s);
        }
}

static void open_bench(struct bench *t, const struct lt_case *k) {
    *t = (struct bench){.k = *k};
    t->a = lt_new(k->a, k->ta ? k->k : k->m, k->ta ? k->m : k->k, k->row_a, k->gap, k->batch, false, 1, &seed);
    t->b = lt_new(k->b, k->tb ? k->n : k->k, k->tb ? k->k : k->n, k->row_b, k->gap, k->batch, k->shared_b, 1, &seed);
    t->c = lt_new(k->c, k->m, k->n, k->row_c, k->gap, k->batch, false, 1, &seed);
    t->d = lt_new(k->d, k->m, k->n, k->row_d, k->gap, k->batch, false, 1, &seed);
    t->bias =
        lt_new(k->bias ? k->bias : FP32, k->epilogue & BGRADB ? k->n : k->m, 1, false, 0, k->batch, false, 1, &seed);
    t->aux = lt_new(k->aux ? k->aux : k->d, k->m, k->n, false, (8 - k->m % 8) % 8 + 8, 1, false, 1, &seed);
    if (k->batch > 1) {
        lt_free(&t->aux);
        t->aux = lt_new(k->aux ? k->aux : k->d, k->m, k->n, false, (8 - k->m % 8) % 8 + 8, k->batch, false, 1, &seed);
    }
    t->bits_ld = (k->m + 127) / 128 * 128;
    size_t bytes = (size_t)(t->bits_ld * k->n * k->batch / 8);
    t->bits = test_malloc(bytes);
    for (size_t i = 0; i < bytes; i++) t->bits[i] = (uint8_t)(random_value(&seed) * 100 + 128);
    t->bits_device = device_from(t->bits, bytes);
    float numbers[12] = {k->a_scale, k->b_scale, k->d_scale, -1};
    encode(k->scale, numbers + 4, 0, k->alpha);
    encode(k->scale, numbers + 8, 0, k->beta);
    t->floats = device_from(numbers, sizeof numbers);
}

static void close_bench(struct bench *t) {
    struct lt_matrix *all[] = {&t->a, &t->b, &t->c, &t->d, &t->bias, &t->aux};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) lt_free(all[i]);
    test_free(t->bits);
    OK(cudaFree(t->bits_device)), OK(cudaFree(t->floats));
}

static cublasLtMatmulDesc_t describe(const struct bench *t) {
    const struct lt_case *k = &t->k;
    cublasLtMatmulDesc_t desc;
    int32_t ta = k->ta ? CUBLAS_OP_T : CUBLAS_OP_N, tb = k->tb ? CUBLAS_OP_T : CUBLAS_OP_N;
    uint32_t epilogue = k->epilogue ? k->epilogue : CUBLASLT_EPILOGUE_DEFAULT;
    OK(cublasLtMatmulDescCreate(&desc, k->compute, k->scale));
    LT_SET(desc, TRANSA, ta);
    LT_SET(desc, TRANSB, tb);
    LT_SET(desc, EPILOGUE, epilogue);
    int64_t stride = k->epilogue & (RELU | DRELU) ? t->bits_ld * k->n : t->aux.stride;
    int64_t ld = k->epilogue & (RELU | DRELU) ? t->bits_ld : t->aux.ld;
    void *aux = k->epilogue & (RELU | DRELU) ? t->bits_device : t->aux.device;
    if (k->epilogue & AUX) {
        LT_SET(desc, EPILOGUE_AUX_POINTER, aux);
        LT_SET(desc, EPILOGUE_AUX_LD, ld);
        LT_SET(desc, EPILOGUE_AUX_BATCH_STRIDE, stride);
        int32_t type = (int32_t)k->aux;
        if (k->aux) LT_SET(desc, EPILOGUE_AUX_DATA_TYPE, type);
    }
    if (k->epilogue & (BIAS | BGRAD | BGRADA | BGRADB)) {
        int32_t type = (int32_t)k->bias;
        LT_SET(desc, BIAS_POINTER, t->bias.device);
        LT_SET(desc, BIAS_DATA_TYPE, type);
        LT_SET(desc, BIAS_BATCH_STRIDE, t->bias.stride);
    }
    float *scales[] = {t->floats, t->floats + 1, t->floats + 2, t->floats + 3};
    if (k->a_scale != 0) LT_SET(desc, A_SCALE_POINTER, scales[0]);
    if (k->b_scale != 0) LT_SET(desc, B_SCALE_POINTER, scales[1]);
    if (k->d_scale != 0) LT_SET(desc, D_SCALE_POINTER, scales[2]);
    if (k->amax) LT_SET(desc, AMAX_D_POINTER, scales[3]);
    int32_t mode = CUBLASLT_POINTER_MODE_DEVICE;
    if (k->device_scalars) LT_SET(desc, POINTER_MODE, mode);
    return desc;
}

/* With an algorithm by the heuristics, which must find one. */
static cublasStatus_t compute(struct bench *t, cublasLtMatmulDesc_t desc) {
    const struct lt_case *k = &t->k;
    int32_t batch = (int32_t)k->batch;
    cublasLtMatrixLayout_t l[4] = {lt_layout(&t->a, batch), lt_layout(&t->b, batch), lt_layout(&t->c, batch),
                                   lt_layout(&t->d, batch)};
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t best;
    int found;
    double scalars[2];
    encode(k->scale, &scalars[0], 0, k->alpha);
    encode(k->scale, &scalars[1], 0, k->beta);
    void *alpha = k->device_scalars ? (void *)(t->floats + 4) : &scalars[0],
         *beta = k->device_scalars ? (void *)(t->floats + 8) : &scalars[1];
    OK(cublasLtMatmulPreferenceCreate(&preference));
    cublasStatus_t e =
        cublasLtMatmulAlgoGetHeuristic(handle, desc, l[0], l[1], l[2], l[3], preference, 1, &best, &found);
    if (!e) {
        assert_int_equal(found, 1);
        e = cublasLtMatmul(handle, desc, alpha, t->a.device, l[0], t->b.device, l[1], beta,
                           k->in_place ? t->d.device : t->c.device, k->in_place ? l[3] : l[2], t->d.device, l[3],
                           &best.algo, NULL, 0, 0);
    }
    for (int i = 0; i < 4; i++) OK(cublasLtMatrixLayoutDestroy(l[i]));
    OK(cublasLtMatmulPreferenceDestroy(preference));
    return e;
}

/* in place: C's values begin in D. beta = 0: what is in C is NaN. */
static void prepare(struct bench *t) {
    const struct lt_case *k = &t->k;
    size_t bytes = t->c.elements * bytes_of(k->c);
    if (k->beta == 0 && fields_of(k->c).mantissa > 0) {
        memset(t->c.host, 0xff, bytes);
        OK(cudaMemcpy(t->c.device, t->c.host, bytes, cudaMemcpyHostToDevice));
    }
    if (!k->in_place) return;
    memcpy(t->d.host, t->c.host, bytes);
    OK(cudaMemcpy(t->d.device, t->c.host, bytes, cudaMemcpyHostToDevice));
}

static void try_case(const struct lt_case *k) {
    struct bench t;
    open_bench(&t, k);
    prepare(&t);
    cublasLtMatmulDesc_t desc = describe(&t);
    cublasStatus_t e = compute(&t, desc);
    if (e)
        fail_msg("types %d %d %d %d compute %d, ta %d tb %d, epilogue %u: status %d", k->a, k->b, k->c, k->d,
                 k->compute, k->ta, k->tb, k->epilogue, e);
    void *d = device_back(t.d.device, t.d.elements * bytes_of(k->d));
    void *aux = device_back(t.aux.device, t.aux.elements * bytes_of(t.aux.type));
    void *bits = device_back(t.bits_device, (size_t)(t.bits_ld * k->n * k->batch / 8));
    void *bias = device_back(t.bias.device, t.bias.elements * bytes_of(t.bias.type));
    compare(&t, d, aux, bits);
    untouched(&t.d, d, k->batch);
    if (k->epilogue & AUX && k->epilogue & GELU) untouched(&t.aux, aux, k->batch);
    if (k->epilogue & (BGRAD | BGRADA | BGRADB)) compare_gradient(&t, bias);
    test_free(d), test_free(aux), test_free(bits), test_free(bias);
    OK(cublasLtMatmulDescDestroy(desc));
    close_bench(&t);
}

/* ---- what is tried ---- */

static const double fp32_eps = 0x1p-24;

/* The sums' arithmetic by the compute type; sums of int8 are exact. */
static double sum_epsilon(cublasComputeType_t c) {
    return c == CUBLAS_COMPUTE_64F ? 0x1p-53 : c == CUBLAS_COMPUTE_32I ? 0 : fp32_eps;
}

static struct lt_case of_types(cublasComputeType_t compute, int scale, int a, int b, int c, int d) {
    return (struct lt_case){.compute = compute,
                            .scale = (cudaDataType_t)scale,
                            .a = (cudaDataType_t)a,
                            .b = (cudaDataType_t)b,
                            .c = (cudaDataType_t)c,
                            .d = (cudaDataType_t)d,
                            .batch = 1,
                            .alpha = 1,
                            .sum_epsilon = sum_epsilon(compute)};
}

static void sized(struct lt_case *k, int64_t m, int64_t n, int64_t depth) {
    k->m = m;
    k->n = n;
    k->k = depth;
}

/* Every transpose and order, sizes that are no multiples of anything, gaps, scalars, batches. */
static void sweep(struct lt_case base) {
    static const int64_t shapes[][3] = {{1, 1, 1}, {5, 3, 7}, {17, 33, 9}, {64, 48, 70}};
    static const double scalars[][2] = {{1, 0}, {1, 1}, {-0.5, 0.75}, {2, 0}};
    bool whole = base.scale == INT32;
    for (int turn = 0; turn < 64; turn++) {
        struct lt_case k = base;
        const int64_t *s = shapes[turn / 16];
        sized(&k, s[0], s[1], s[2]);
        k.ta = turn & 1;
        k.tb = turn & 2;
        k.row_a = turn & 4;
        k.row_b = turn & 8;
        k.row_d = turn % 5 == 2;
        k.row_c = turn % 7 == 3;
        k.gap = turn % 3 ? 0 : 4;
        k.batch = turn % 4 == 1 ? 3 : 1;
        k.shared_b = turn % 8 == 1;
        k.in_place = turn % 6 == 4;
        k.device_scalars = turn % 2;
        k.alpha = whole ? turn % 3 + 1 : scalars[turn % 4][0];
        k.beta = whole ? turn % 2 : scalars[turn % 4][1];
        if (k.in_place) k.row_c = k.row_d;
        try_case(&k);
    }
}

static void plain_types(void **state) {
    (void)state;
    sweep(of_types(CUBLAS_COMPUTE_32F, FP32, FP32, FP32, FP32, FP32));
    sweep(of_types(CUBLAS_COMPUTE_64F, FP64, FP64, FP64, FP64, FP64));
    sweep(of_types(CUBLAS_COMPUTE_32F, FP32, BF16, BF16, BF16, BF16));
    sweep(of_types(CUBLAS_COMPUTE_32F, FP32, BF16, BF16, FP32, FP32));
    sweep(of_types(CUBLAS_COMPUTE_32F, FP32, FP16, FP16, FP16, FP16));
    sweep(of_types(CUBLAS_COMPUTE_32F, FP32, FP16, FP16, FP32, FP32));
    sweep(of_types(CUBLAS_COMPUTE_16F, FP16, FP16, FP16, FP16, FP16));
}

/* Operands are rounded first, sums are as of fp32. */
static void rounded_operands(void **state) {
    (void)state;
    struct lt_case k = of_types(CUBLAS_COMPUTE_32F_FAST_TF32, FP32, FP32, FP32, FP32, FP32);
    k.round_bits = 10;
    k.round_away = true;
    sweep(k);
    k.compute = CUBLAS_COMPUTE_32F_FAST_16F;
    k.round_away = false;
    sweep(k);
    k.compute = CUBLAS_COMPUTE_32F_FAST_16BF;
    k.round_bits = 7;
    sweep(k);
}

/* 8-bit operands come with k contiguous, in multiples. */
static void sweep_8_bit(struct lt_case k) {
    k.ta = true;
    for (int turn = 0; turn < 4; turn++) {
        sized(&k, turn & 1 ? 48 : 16, turn & 2 ? 32 : 16, turn & 1 ? 64 : 16);
        k.gap = turn & 1 ? 16 : 0;
        k.batch = turn == 3 ? 2 : 1;
        k.alpha = turn & 2 ? 1 : 2;
        k.beta = turn & 1;
        try_case(&k);
    }
}

static void int8(void **state) {
    (void)state;
    sweep_8_bit(of_types(CUBLAS_COMPUTE_32I, INT32, INT8, INT8, INT32, INT32));
    struct lt_case k = of_types(CUBLAS_COMPUTE_32I, FP32, INT8, INT8, INT8, INT8);
    sweep_8_bit(k); /* most of D at the largest value */
    sweep_8_bit(of_types(CUBLAS_COMPUTE_32F, FP32, INT8, INT8, FP32, FP32));
}

static void fp8(void **state) {
    static const int inputs[][2] = {{E4M3, E4M3}, {E4M3, E5M2}, {E5M2, E4M3}};
    static const int outputs[][2] = {{BF16, BF16}, {BF16, E4M3}, {BF16, E5M2}, {FP16, E4M3},
                                     {FP16, E5M2}, {FP16, FP16}, {FP32, FP32}};
    (void)state;
    for (size_t i = 0; i < 3; i++)
        for (size_t o = 0; o < 7; o++) {
            bool to_fp8 = outputs[o][1] == E4M3 || outputs[o][1] == E5M2;
            if (i == 0 && outputs[o][1] == E5M2) continue; /* there is no such product */
            struct lt_case k =
                of_types(CUBLAS_COMPUTE_32F, FP32, inputs[i][0], inputs[i][1], outputs[o][0], outputs[o][1]);
            sweep_8_bit(k);
            k.a_scale = 0.125f;
            k.b_scale = 3;
            if (to_fp8) k.d_scale = 0.7f, k.amax = true;
            sweep_8_bit(k);
            k.epilogue = GELU | BIAS;
            k.bias = outputs[o][0] == FP16 ? FP16 : BF16;
            sweep_8_bit(k);
            if (to_fp8) { /* beyond the largest number: it stays there */
                k.d_scale = 1e5f;
                sweep_8_bit(k);
            }
        }
}

static void epilogues(void **state) {
    static const uint32_t kinds[] = {
        RELU,  RELU | AUX, BIAS,        RELU | BIAS,       RELU | AUX | BIAS, DRELU | AUX,         DRELU | AUX | BGRAD,
        GELU,  GELU | AUX, GELU | BIAS, GELU | AUX | BIAS, DGELU | AUX,       DGELU | AUX | BGRAD, BGRADA,
        BGRADB};
    static const int types[][5] = {{CUBLAS_COMPUTE_32F, FP32, FP32, FP32, FP32},
                                   {CUBLAS_COMPUTE_32F, FP32, BF16, BF16, BF16},
                                   {CUBLAS_COMPUTE_32F, FP32, FP16, FP16, FP16},
                                   {CUBLAS_COMPUTE_32F, FP32, BF16, FP32, FP32},
                                   {CUBLAS_COMPUTE_64F, FP64, FP64, FP64, FP64}};
    (void)state;
    for (size_t e = 0; e < sizeof kinds / sizeof *kinds; e++)
        for (size_t t = 0; t < sizeof types / sizeof *types; t++)
            for (int turn = 0; turn < 8; turn++) {
                const int *y = types[t];
                struct lt_case k = of_types((cublasComputeType_t)y[0], y[1], y[2], y[2], y[3], y[3]);
                sized(&k, turn & 1 ? 37 : 130, turn & 2 ? 21 : 6, 12);
                k.ta = turn & 1;
                k.tb = turn & 2;
                k.row_a = turn & 4;
                k.epilogue = kinds[e];
                if (kinds[e] & (BIAS | BGRAD | BGRADA | BGRADB)) k.bias = (cudaDataType_t)y[4];
                k.batch = turn & 4 ? 2 : 1;
                k.beta = turn & 2 ? 0.5 : 0;
                k.gap = turn & 1;
                try_case(&k);
            }
}

/* D row-major: the bias is still one of its rows. */
static void bias_of_row_major(void **state) {
    (void)state;
    struct lt_case k = of_types(CUBLAS_COMPUTE_32F, FP32, BF16, BF16, BF16, BF16);
    sized(&k, 20, 12, 8);
    k.row_d = k.row_c = true;
    k.epilogue = GELU | BIAS;
    k.bias = BF16;
    try_case(&k);
}

/* GELU's input in fp8 or 16 bits beside D in fp8. */
static void fp8_aux(void **state) {
    static const int kinds[] = {E4M3, E5M2, FP16, BF16};
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        struct lt_case k = of_types(CUBLAS_COMPUTE_32F, FP32, E4M3, E4M3, BF16, E4M3);
        k.aux = (cudaDataType_t)kinds[i];
        k.epilogue = GELU | AUX;
        k.ta = true;
        sized(&k, 32, 16, 16);
        try_case(&k);
    }
}

static int create(void **state) {
    (void)state;
    return (int)cublasLtCreate(&handle);
}

static int destroy(void **state) {
    (void)state;
    return (int)cublasLtDestroy(handle);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_types), cmocka_unit_test(rounded_operands), cmocka_unit_test(int8),
        cmocka_unit_test(fp8),         cmocka_unit_test(epilogues),        cmocka_unit_test(bias_of_row_major),
        cmocka_unit_test(fp8_aux),
    };
    return cmocka_run_group_tests(tests, create, destroy);
}
