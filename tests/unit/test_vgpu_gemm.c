/* Every form of the matrix product against three loops in double precision. The bound on an element's error is the
 * usual one, (k + 3) · eps · (|alpha| · |A|·|B| + |beta · C|), with eps of the arithmetic, plus one rounding to C's
 * format. */
#include "tests/unit/vgpu_testing.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static cublasHandle_t handle;
static uint64_t seed = 7;

struct sizes {
    int m, n, k;
};

static const struct sizes shapes[] = {{1, 1, 1},     {3, 5, 7},    {17, 4, 33},  {64, 64, 64},
                                      {65, 31, 129}, {1, 200, 50}, {150, 1, 70}, {128, 96, 1}};

/* Host values of any format, by a path that shares no code with the library: the compiler's own conversions for fp32
 * and fp64, arithmetic on the fields for the 16-bit ones. */
static double decode(cudaDataType_t t, const void *p, size_t i) {
    if (t == CUDA_R_64F) return ((const double *)p)[i];
    if (t == CUDA_R_32F) return ((const float *)p)[i];
    unsigned u = ((const uint16_t *)p)[i], bits = t == CUDA_R_16F ? 10 : 7, bias = t == CUDA_R_16F ? 15 : 127;
    unsigned mantissa = u & ((1u << bits) - 1), exponent = u >> bits & (t == CUDA_R_16F ? 31 : 255);
    double v = exponent ? ldexp(mantissa + (1u << bits), (int)exponent - (int)bias - (int)bits)
                        : ldexp(mantissa, 1 - (int)bias - (int)bits);
    if (exponent == (t == CUDA_R_16F ? 31u : 255u)) v = mantissa ? NAN : INFINITY;
    return u & 0x8000 ? -v : v;
}

/* Any value near `v` will do for an input: fp16 and bf16 are cut off, not rounded. */
static void encode(cudaDataType_t t, void *p, size_t i, double v) {
    if (t == CUDA_R_64F) {
        ((double *)p)[i] = v;
    } else if (t == CUDA_R_32F) {
        ((float *)p)[i] = (float)v;
    } else {
        int e, bits = t == CUDA_R_16F ? 10 : 7, bias = t == CUDA_R_16F ? 15 : 127;
        double f = frexp(fabs(v), &e); /* v = f · 2^e, f in [0.5, 1) */
        unsigned mantissa = (unsigned)ldexp(f, bits + 1) & ((1u << bits) - 1);
        unsigned u = fabs(v) < 0x1p-14 ? 0 : (unsigned)(e - 1 + bias) << bits | mantissa;
        ((uint16_t *)p)[i] = (uint16_t)(u | (v < 0 ? 0x8000 : 0));
    }
}

static size_t element(cudaDataType_t t) {
    return t == CUDA_R_64F ? 8 : t == CUDA_R_32F ? 4 : 2;
}

static double epsilon(cudaDataType_t t) {
    return t == CUDA_R_64F ? 0x1p-53 : t == CUDA_R_32F ? 0x1p-24 : t == CUDA_R_16F ? 0x1p-11 : 0x1p-8;
}

static void *random_matrix(cudaDataType_t t, size_t elements) {
    void *p = test_malloc(elements * element(t) + 8);
    for (size_t i = 0; i < elements; i++) encode(t, p, i, random_value(&seed));
    return p;
}

static void set_nan(cudaDataType_t t, void *p, size_t elements) {
    memset(p, 0xff, elements * element(t)); /* all ones is NaN in each of the formats */
}

struct problem {
    cublasOperation_t ta, tb;
    int m, n, k, lda, ldb, ldc, batch;
    long long sa, sb, sc;
    cudaDataType_t at, bt, ct, scalar;
    double alpha, beta, eps;
    cublasComputeType_t compute; /* 0: by the scalar type */
    int bits;                    /* fp32 operands are rounded to so many bits after the point; 0: they are not */
    bool away;                   /* ties away from 0, else to even */
};

static void scalar(const struct problem *p, double v, void *out) {
    encode(p->scalar, out, 0, v);
}

static double rounded(double v, int bits, bool away) {
    int e;
    double x = ldexp(frexp(v, &e), bits + 1);
    return ldexp(away ? round(x) : nearbyint(x), e - bits - 1);
}

static double *decoded(const struct problem *p, cudaDataType_t t, const void *from, size_t elements) {
    double *out = test_malloc(elements * sizeof *out + 8);
    for (size_t i = 0; i < elements; i++) {
        out[i] = decode(t, from, i);
        if (p->bits) out[i] = rounded(out[i], p->bits, p->away);
    }
    return out;
}

/* Compares c with alpha op(a) op(b) + beta before; what lies between columns must be untouched. */
static void compare(const struct problem *p, const double *a, const double *b, const void *before, const void *c,
                    size_t elements) {
    char *touched = test_calloc(elements + 1, 1);
    for (int s = 0; s < p->batch; s++)
        for (int j = 0; j < p->n; j++)
            for (int i = 0; i < p->m; i++) {
                double sum = 0, size = 0;
                for (int l = 0; l < p->k; l++) {
                    double x = a[s * p->sa + (p->ta == CUBLAS_OP_N ? l * p->lda + i : i * p->lda + l)];
                    double y = b[s * p->sb + (p->tb == CUBLAS_OP_N ? j * p->ldb + l : l * p->ldb + j)];
                    sum += x * y;
                    size += fabs(x * y);
                }
                size_t at = (size_t)(s * p->sc + j * p->ldc + i);
                double old = p->beta == 0 ? 0 : p->beta * decode(p->ct, before, at), want = p->alpha * sum + old;
                double bound =
                    (p->k + 3) * p->eps * (fabs(p->alpha) * size + fabs(old)) + epsilon(p->ct) * fabs(want) + 1e-30;
                if (p->ct == CUDA_R_16F) bound += 0x1p-25; /* half a step of its subnormals */
                double got = decode(p->ct, c, at);
                if (!(fabs(got - want) <= bound))
                    fail_msg("m %d n %d k %d ta %d tb %d alpha %g beta %g: C(%d,%d) of batch %d is %.9g, not %.9g "
                             "(bound %g)",
                             p->m, p->n, p->k, p->ta, p->tb, p->alpha, p->beta, i, j, s, got, want, bound);
                touched[at] = 1;
            }
    for (size_t i = 0; i < elements; i++)
        if (!touched[i] &&
            memcmp((const char *)before + i * element(p->ct), (const char *)c + i * element(p->ct), element(p->ct)))
            fail_msg("element %zu outside of C was written", i);
    test_free(touched);
}

typedef cublasStatus_t (*call_fn)(const struct problem *p, const void *alpha, const void *a, const void *b,
                                  const void *beta, void *c);

static void try_one(struct problem p, call_fn call) {
    int ra = p.ta == CUBLAS_OP_N ? p.k : p.m, rb = p.tb == CUBLAS_OP_N ? p.n : p.k; /* columns */
    size_t na = (size_t)(p.sa * (p.batch - 1) + (long long)p.lda * ra),
           nb = (size_t)(p.sb * (p.batch - 1) + (long long)p.ldb * rb);
    size_t nc = (size_t)(p.sc * (p.batch - 1) + (long long)p.ldc * p.n);
    double alpha, beta;
    void *a = random_matrix(p.at, na), *b = random_matrix(p.bt, nb), *c = random_matrix(p.ct, nc);
    if (p.beta == 0) set_nan(p.ct, c, nc);
    void *da = device_from(a, na * element(p.at)), *db = device_from(b, nb * element(p.bt)),
         *dc = device_from(c, nc * element(p.ct));
    scalar(&p, p.alpha, &alpha);
    scalar(&p, p.beta, &beta);
    OK(call(&p, &alpha, da, db, &beta, dc));
    void *result = device_back(dc, nc * element(p.ct));
    double *wide_a = decoded(&p, p.at, a, na), *wide_b = decoded(&p, p.bt, b, nb);
    compare(&p, wide_a, wide_b, c, result, nc);
    test_free(wide_a), test_free(wide_b), test_free(a), test_free(b), test_free(c), test_free(result);
    OK(cudaFree(da)), OK(cudaFree(db)), OK(cudaFree(dc));
}

/* All shapes, transposes, gaps and scalars for one form. */
static void sweep(struct problem base, call_fn call) {
    static const double scalars[][2] = {{1, 0}, {1, 1}, {-0.5, 0.75}, {0, 0.5}, {2, 0}, {0, 1}};
    static const cublasOperation_t ops[] = {CUBLAS_OP_N, CUBLAS_OP_T, CUBLAS_OP_C};
    int turn = 0;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int t = 0; t < 9; t++) {
            struct problem p = base;
            p.m = shapes[s].m, p.n = shapes[s].n, p.k = shapes[s].k;
            p.ta = ops[t % 3], p.tb = ops[t / 3];
            int gap = turn % 2 ? 5 : 0;
            p.lda = (p.ta == CUBLAS_OP_N ? p.m : p.k) + gap;
            p.ldb = (p.tb == CUBLAS_OP_N ? p.k : p.n) + gap;
            p.ldc = p.m + gap;
            p.alpha = scalars[turn % 6][0], p.beta = scalars[turn % 6][1];
            if (p.batch > 1) {
                p.sa = turn % 4 == 1 ? 0 : (long long)p.lda * (p.ta == CUBLAS_OP_N ? p.k : p.m) + 3;
                p.sb = turn % 4 == 2 ? 0 : (long long)p.ldb * (p.tb == CUBLAS_OP_N ? p.n : p.k);
                p.sc = (long long)p.ldc * p.n + 1;
            }
            turn++;
            try_one(p, call);
        }
}

static struct problem plain(cudaDataType_t t) {
    return (struct problem){.batch = 1, .at = t, .bt = t, .ct = t, .scalar = t, .eps = epsilon(t)};
}

static cublasStatus_t sgemm(const struct problem *p, const void *alpha, const void *a, const void *b, const void *beta,
                            void *c) {
    return cublasSgemm(handle, p->ta, p->tb, p->m, p->n, p->k, alpha, a, p->lda, b, p->ldb, beta, c, p->ldc);
}

static cublasStatus_t sgemm_64(const struct problem *p, const void *alpha, const void *a, const void *b,
                               const void *beta, void *c) {
    return cublasSgemm_64(handle, p->ta, p->tb, p->m, p->n, p->k, alpha, a, p->lda, b, p->ldb, beta, c, p->ldc);
}

static cublasStatus_t dgemm(const struct problem *p, const void *alpha, const void *a, const void *b, const void *beta,
                            void *c) {
    return cublasDgemm(handle, p->ta, p->tb, p->m, p->n, p->k, alpha, a, p->lda, b, p->ldb, beta, c, p->ldc);
}

static cublasStatus_t sstrided(const struct problem *p, const void *alpha, const void *a, const void *b,
                               const void *beta, void *c) {
    return cublasSgemmStridedBatched(handle, p->ta, p->tb, p->m, p->n, p->k, alpha, a, p->lda, p->sa, b, p->ldb, p->sb,
                                     beta, c, p->ldc, p->sc, p->batch);
}

static cublasStatus_t dstrided(const struct problem *p, const void *alpha, const void *a, const void *b,
                               const void *beta, void *c) {
    return cublasDgemmStridedBatched(handle, p->ta, p->tb, p->m, p->n, p->k, alpha, a, p->lda, p->sa, b, p->ldb, p->sb,
                                     beta, c, p->ldc, p->sc, p->batch);
}

static cublasComputeType_t compute_of(const struct problem *p) {
    if (p->compute) return p->compute;
    return p->scalar == CUDA_R_64F   ? CUBLAS_COMPUTE_64F
           : p->scalar == CUDA_R_16F ? CUBLAS_COMPUTE_16F
                                     : CUBLAS_COMPUTE_32F;
}

static cublasStatus_t ex(const struct problem *p, const void *alpha, const void *a, const void *b, const void *beta,
                         void *c) {
    return cublasGemmEx(handle, p->ta, p->tb, p->m, p->n, p->k, alpha, a, p->at, p->lda, b, p->bt, p->ldb, beta, c,
                        p->ct, p->ldc, compute_of(p), CUBLAS_GEMM_DEFAULT);
}

static cublasStatus_t strided_ex(const struct problem *p, const void *alpha, const void *a, const void *b,
                                 const void *beta, void *c) {
    return cublasGemmStridedBatchedEx(handle, p->ta, p->tb, p->m, p->n, p->k, alpha, a, p->at, p->lda, p->sa, b, p->bt,
                                      p->ldb, p->sb, beta, c, p->ct, p->ldc, p->sc, p->batch, compute_of(p),
                                      CUBLAS_GEMM_DEFAULT);
}

static cublasStatus_t sgemm_ex(const struct problem *p, const void *alpha, const void *a, const void *b,
                               const void *beta, void *c) {
    return cublasSgemmEx(handle, p->ta, p->tb, p->m, p->n, p->k, alpha, a, p->at, p->lda, b, p->bt, p->ldb, beta, c,
                         p->ct, p->ldc);
}

/* The array forms get the same matrices by pointers that lie on the device. */
static void **pointers(const void *base, long long stride, int batch, size_t bytes) {
    void *host[16];
    for (int i = 0; i < batch; i++) host[i] = (char *)base + (size_t)(i * stride) * bytes;
    return device_from(host, (size_t)batch * sizeof *host);
}

static cublasStatus_t array_ex(const struct problem *p, const void *alpha, const void *a, const void *b,
                               const void *beta, void *c) {
    void **pa = pointers(a, p->sa, p->batch, element(p->at)), **pb = pointers(b, p->sb, p->batch, element(p->bt));
    void **pc = pointers(c, p->sc, p->batch, element(p->ct));
    cublasStatus_t e = cublasGemmBatchedEx(handle, p->ta, p->tb, p->m, p->n, p->k, alpha, (const void *const *)pa,
                                           p->at, p->lda, (const void *const *)pb, p->bt, p->ldb, beta, pc, p->ct,
                                           p->ldc, p->batch, compute_of(p), CUBLAS_GEMM_DEFAULT);
    OK(cudaFree(pa)), OK(cudaFree(pb)), OK(cudaFree(pc));
    return e;
}

static cublasStatus_t sarray(const struct problem *p, const void *alpha, const void *a, const void *b, const void *beta,
                             void *c) {
    void **pa = pointers(a, p->sa, p->batch, 4), **pb = pointers(b, p->sb, p->batch, 4),
         **pc = pointers(c, p->sc, p->batch, 4);
    cublasStatus_t e =
        cublasSgemmBatched(handle, p->ta, p->tb, p->m, p->n, p->k, alpha, (const float *const *)pa, p->lda,
                           (const float *const *)pb, p->ldb, beta, (float *const *)pc, p->ldc, p->batch);
    OK(cudaFree(pa)), OK(cudaFree(pb)), OK(cudaFree(pc));
    return e;
}

static void fp32(void **state) {
    (void)state;
    sweep(plain(CUDA_R_32F), sgemm);
    sweep(plain(CUDA_R_32F), sgemm_64);
}

static void fp64(void **state) {
    (void)state;
    sweep(plain(CUDA_R_64F), dgemm);
}

static void batched(void **state) {
    (void)state;
    struct problem s = plain(CUDA_R_32F), d = plain(CUDA_R_64F);
    s.batch = 3, d.batch = 4;
    sweep(s, sstrided);
    sweep(s, sarray);
    sweep(d, dstrided);
}

static void mixed_types(void **state) {
    static const struct {
        cudaDataType_t ab, c, scalar;
    } rows[] = {
        {CUDA_R_32F, CUDA_R_32F, CUDA_R_32F},   {CUDA_R_64F, CUDA_R_64F, CUDA_R_64F},
        {CUDA_R_16F, CUDA_R_16F, CUDA_R_32F},   {CUDA_R_16F, CUDA_R_32F, CUDA_R_32F},
        {CUDA_R_16BF, CUDA_R_16BF, CUDA_R_32F}, {CUDA_R_16BF, CUDA_R_32F, CUDA_R_32F},
        {CUDA_R_16F, CUDA_R_16F, CUDA_R_16F},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct problem p = {.batch = 1,
                            .at = rows[i].ab,
                            .bt = rows[i].ab,
                            .ct = rows[i].c,
                            .scalar = rows[i].scalar,
                            .eps = rows[i].scalar == CUDA_R_64F ? 0x1p-53 : 0x1p-24};
        sweep(p, ex);
        if (rows[i].scalar == CUDA_R_32F) sweep(p, sgemm_ex);
        p.batch = 3;
        sweep(p, strided_ex);
        sweep(p, array_ex);
    }
}

/* By compute type, by math mode, and not by either where it is to be fp32. */
static void rounded_operands(void **state) {
    static const struct {
        cublasMath_t math;
        cublasComputeType_t compute;
        int bits;
        bool away;
    } rows[] = {
        {CUBLAS_DEFAULT_MATH, CUBLAS_COMPUTE_32F_FAST_TF32, 10, true},
        {CUBLAS_TF32_TENSOR_OP_MATH, CUBLAS_COMPUTE_32F, 10, true},
        {CUBLAS_DEFAULT_MATH, CUBLAS_COMPUTE_32F_FAST_16F, 10, false},
        {CUBLAS_DEFAULT_MATH, CUBLAS_COMPUTE_32F_FAST_16BF, 7, false},
        {CUBLAS_TF32_TENSOR_OP_MATH, CUBLAS_COMPUTE_32F_PEDANTIC, 0, false},
        {CUBLAS_PEDANTIC_MATH, CUBLAS_COMPUTE_32F, 0, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct problem p = plain(CUDA_R_32F);
        OK(cublasSetMathMode(handle, rows[i].math));
        p.compute = rows[i].compute;
        p.bits = rows[i].bits;
        p.away = rows[i].away;
        sweep(p, ex);
        p.batch = 2;
        sweep(p, array_ex);
        p.batch = 1;
        if (p.compute == CUBLAS_COMPUTE_32F) sweep(p, sgemm);
    }
    OK(cublasSetMathMode(handle, CUBLAS_DEFAULT_MATH));
}

/* 1 + 2^-12 is 1 in tf32. Run in a process of its own, with the environment of this test. */
static int product_is_rounded(cublasMath_t math, cublasComputeType_t compute) {
    float x = 1 + 0x1p-12f, one = 1, zero = 0, y = 0, *d;
    if (cudaMalloc((void **)&d, 8) || cublasCreate(&handle) || cublasSetMathMode(handle, math)) return -1;
    if (cudaMemcpy(d, &x, 4, cudaMemcpyHostToDevice)) return -1;
    if (cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, d, CUDA_R_32F, 1, d, CUDA_R_32F, 1, &zero, d + 1,
                     CUDA_R_32F, 1, compute, CUBLAS_GEMM_DEFAULT) ||
        cudaMemcpy(&y, d + 1, 4, cudaMemcpyDeviceToHost))
        return -1;
    return y == 1;
}

static int override_main(char **argv) {
    return product_is_rounded((cublasMath_t)atoi(argv[2]), (cublasComputeType_t)atoi(argv[3]));
}

static void tf32_override(void **state) {
    static const struct {
        const char *value;
        int math, compute, rounded;
    } rows[] = {
        {"", CUBLAS_DEFAULT_MATH, CUBLAS_COMPUTE_32F, 0},
        {"0", CUBLAS_TF32_TENSOR_OP_MATH, CUBLAS_COMPUTE_32F, 0},
        {"0", CUBLAS_DEFAULT_MATH, CUBLAS_COMPUTE_32F_FAST_TF32, 0},
        {"1", CUBLAS_DEFAULT_MATH, CUBLAS_COMPUTE_32F, 1},
        {"1", CUBLAS_PEDANTIC_MATH, CUBLAS_COMPUTE_32F, 0},
        {"", CUBLAS_TF32_TENSOR_OP_MATH, CUBLAS_COMPUTE_32F, 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char math[16], compute[16];
        int status = 0;
        snprintf(math, sizeof math, "%d", rows[i].math);
        snprintf(compute, sizeof compute, "%d", rows[i].compute);
        pid_t child = fork();
        if (!child) {
            setenv("NVIDIA_TF32_OVERRIDE", rows[i].value, 1);
            execl("/proc/self/exe", "test_vgpu_gemm", "--override", math, compute, (char *)0);
            _exit(99);
        }
        assert_true(waitpid(child, &status, 0) == child && WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), rows[i].rounded);
    }
}

/* What has no place in the format of C: fp16 has infinity, and so has bf16, much later. */
static void overflow(void **state) {
    static const struct {
        cudaDataType_t type;
        uint16_t input, want;
    } rows[] = {{CUDA_R_16F, 0x7bff, 0x7c00}, {CUDA_R_16BF, 0x477f, 0x4ffe}}; /* 65504² · 2, 65280² · 2 */
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        uint16_t x[2] = {rows[i].input, rows[i].input}, *d = device_from(x, sizeof x), *c = device_new(2);
        float one = 1, zero = 0;
        OK(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 2, &one, d, rows[i].type, 1, d, rows[i].type, 2, &zero,
                        c, rows[i].type, 1, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
        uint16_t *got = device_back(c, 2);
        assert_int_equal(*got, rows[i].want);
        test_free(got);
        OK(cudaFree(d)), OK(cudaFree(c));
    }
}

static void wrong_arguments(void **state) {
    (void)state;
    float one = 1, *d = device_new(4096);
    assert_int_equal(cublasSgemm(NULL, 0, 0, 1, 1, 1, &one, d, 1, d, 1, &one, d, 1), CUBLAS_STATUS_NOT_INITIALIZED);
    assert_int_equal(cublasSgemm((cublasHandle_t)(uintptr_t)0x1234, 0, 0, 1, 1, 1, &one, d, 1, d, 1, &one, d, 1),
                     CUBLAS_STATUS_NOT_INITIALIZED);
    assert_int_equal(cublasSgemm(handle, 0, 0, -1, 1, 1, &one, d, 1, d, 1, &one, d, 1), CUBLAS_STATUS_INVALID_VALUE);
    assert_int_equal(cublasSgemm(handle, 0, 0, 4, 4, 4, &one, d, 3, d, 4, &one, d, 4), CUBLAS_STATUS_INVALID_VALUE);
    assert_int_equal(cublasSgemm(handle, 0, 0, 4, 4, 4, &one, d, 4, d, 3, &one, d, 4), CUBLAS_STATUS_INVALID_VALUE);
    assert_int_equal(cublasSgemm(handle, 0, 0, 4, 4, 4, &one, d, 4, d, 4, &one, d, 3), CUBLAS_STATUS_INVALID_VALUE);
    assert_int_equal(cublasSgemm(handle, 9, 0, 4, 4, 4, &one, d, 4, d, 4, &one, d, 4), CUBLAS_STATUS_INVALID_VALUE);
    assert_int_equal(cublasSgemm(handle, 0, 0, 4, 4, 4, NULL, d, 4, d, 4, &one, d, 4), CUBLAS_STATUS_INVALID_VALUE);
    assert_int_equal(cublasGemmEx(handle, 0, 0, 4, 4, 4, &one, d, CUDA_R_16F, 4, d, CUDA_R_16BF, 4, &one, d, CUDA_R_32F,
                                  4, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
                     CUBLAS_STATUS_NOT_SUPPORTED);
    OK(cudaFree(d));
}

static void empty_products(void **state) {
    (void)state;
    float one = 1, half = 0.5f, zero = 0, c[4] = {1, 2, 3, 4}, *d = device_from(c, sizeof c), *back;
    OK(cublasSgemm(handle, 0, 0, 0, 2, 2, &one, NULL, 1, NULL, 2, &zero, NULL, 1));
    OK(cublasSgemm(handle, 0, 0, 2, 0, 2, &one, NULL, 2, NULL, 2, &zero, d, 2));
    OK(cublasSgemmStridedBatched(handle, 0, 0, 2, 2, 2, &one, d, 2, 0, d, 2, 0, &zero, d, 2, 0, 0));
    OK(cublasSgemm(handle, 0, 0, 2, 2, 0, &one, NULL, 2, NULL, 1, &half, d, 2)); /* k = 0: C = beta C */
    back = device_back(d, sizeof c);
    for (int i = 0; i < 4; i++) assert_float_equal(back[i], 0.5f * c[i], 0);
    test_free(back);
    OK(cublasSgemm(handle, 0, 0, 2, 2, 0, &one, NULL, 2, NULL, 1, &zero, d, 2));
    back = device_back(d, sizeof c);
    for (int i = 0; i < 4; i++) assert_float_equal(back[i], 0, 0);
    test_free(back);
    OK(cudaFree(d));
}

/* Scalars on the device are read when the product runs, after what the stream did before it. */
static void device_scalars(void **state) {
    (void)state;
    float a[4] = {1, 2, 3, 4}, two[2] = {2, 10}, *da = device_from(a, sizeof a), *dc = device_from(a, sizeof a);
    float *ds = device_from((float[2]){0, 0}, 8), *pinned;
    OK(cudaMallocHost((void **)&pinned, 8));
    memcpy(pinned, two, 8);
    OK(cublasSetPointerMode(handle, CUBLAS_POINTER_MODE_DEVICE));
    OK(cudaMemcpyAsync(ds, pinned, 8, cudaMemcpyHostToDevice, 0));
    OK(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, ds, da, 2, da, 2, ds + 1, dc, 2));
    OK(cublasSetPointerMode(handle, CUBLAS_POINTER_MODE_HOST));
    float *c = device_back(dc, sizeof a);
    const float want[4] = {2 * 7 + 10, 2 * 10 + 20, 2 * 15 + 30, 2 * 22 + 40};
    for (int i = 0; i < 4; i++) assert_float_equal(c[i], want[i], 0);
    test_free(c);
    OK(cudaFreeHost(pinned)), OK(cudaFree(da)), OK(cudaFree(dc)), OK(cudaFree(ds));
}

static void same_bits_every_time(void **state) {
    enum { N = 200 };
    (void)state;
    float one = 1, zero = 0, *a = random_matrix(CUDA_R_32F, N * N), *da = device_from(a, N * N * 4), *first = NULL;
    for (int i = 0; i < 5; i++) {
        float *dc = device_new(N * N * 4);
        OK(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_T, N, N, N, &one, da, N, da, N, &zero, dc, N));
        float *c = device_back(dc, N * N * 4);
        if (first)
            assert_memory_equal(first, c, N * N * 4);
        else
            first = c;
        if (first != c) test_free(c);
        OK(cudaFree(dc));
    }
    test_free(first), test_free(a);
    OK(cudaFree(da));
}

static int create(void **state) {
    (void)state;
    return (int)cublasCreate(&handle);
}

static int destroy(void **state) {
    (void)state;
    return (int)cublasDestroy(handle);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fp32),
        cmocka_unit_test(fp64),
        cmocka_unit_test(batched),
        cmocka_unit_test(mixed_types),
        cmocka_unit_test(rounded_operands),
        cmocka_unit_test(tf32_override),
        cmocka_unit_test(overflow),
        cmocka_unit_test(wrong_arguments),
        cmocka_unit_test(empty_products),
        cmocka_unit_test(device_scalars),
        cmocka_unit_test(same_bits_every_time),
    };
    if (argc == 4 && !strcmp(argv[1], "--override")) return override_main(argv);
    return cmocka_run_group_tests(tests, create, destroy);
}
