/* Levels 1, 2 and 3 (but gemm), geam and dgmm, in fp32 and fp64, against the textbook formula in double precision.
 * A result's bound is (terms + 3) · eps · (sum of the terms' magnitudes). */
#include "tests/unit/vgpu_testing.h"

#include <math.h>

static cublasHandle_t handle;
static uint64_t seed = 11;
static int d; /* 1: fp64, 0: fp32; every case runs for both */

#define CALL(name, ...) (d ? cublasD##name(__VA_ARGS__) : cublasS##name(__VA_ARGS__))
#define FOR_BOTH for (d = 0; d < 2; d++)

/* A vector or matrix: its values as double (exact), and the same on the device in the type under test. */
struct data {
    double *v;
    size_t n;
    void *dev;
};

static size_t size_of(void) {
    return d ? sizeof(double) : sizeof(float);
}

static void upload(struct data *x) {
    void *host = test_malloc(x->n * size_of() + 8);
    for (size_t i = 0; i < x->n; i++)
        if (d)
            ((double *)host)[i] = x->v[i];
        else
            ((float *)host)[i] = (float)x->v[i];
    x->dev = device_from(host, x->n * size_of());
    test_free(host);
}

/* Random values that fp32 holds exactly. */
static struct data make(size_t n) {
    struct data x = {test_malloc(n * sizeof(double) + 8), n, NULL};
    for (size_t i = 0; i < n; i++) x.v[i] = (float)random_value(&seed);
    upload(&x);
    return x;
}

static struct data make_nan(size_t n) {
    struct data x = {test_malloc(n * sizeof(double) + 8), n, NULL};
    for (size_t i = 0; i < n; i++) x.v[i] = NAN;
    upload(&x);
    return x;
}

static double *download(const struct data *x) {
    void *host = device_back(x->dev, x->n * size_of());
    double *v = test_malloc(x->n * sizeof(double) + 8);
    for (size_t i = 0; i < x->n; i++) v[i] = d ? ((double *)host)[i] : (double)((float *)host)[i];
    test_free(host);
    return v;
}

static void drop(struct data *x) {
    OK(cudaFree(x->dev));
    test_free(x->v);
}

static double eps(void) {
    return d ? 0x1p-53 : 0x1p-24;
}

static void near(double got, double want, double terms, double size) {
    double bound = (terms + 3) * eps() * size + 1e-300;
    if (!(fabs(got - want) <= bound))
        fail_msg("%s: %.17g, not %.17g (bound %g)", d ? "fp64" : "fp32", got, want, bound);
}

/* A host scalar in the type under test. */
union scalar {
    float f;
    double d;
};

static union scalar num(double v) {
    union scalar s;
    if (d)
        s.d = v;
    else
        s.f = (float)v;
    return s;
}

static double value(union scalar s) {
    return d ? s.d : (double)s.f;
}

static void *at(union scalar *s) {
    return s;
}

/* Place of element i of a vector of n with stride inc. */
static size_t place(int i, int n, int inc) {
    return (size_t)(inc < 0 ? (i - n + 1) * inc : i * inc);
}

static const int lengths[] = {1, 2, 7, 64, 1000, 20011};
static const int strides[][2] = {{1, 1}, {2, 3}, {-1, 1}, {-2, -3}};
enum { LENGTHS = 6, STRIDES = 4 };

static void reductions(void **state) {
    (void)state;
    FOR_BOTH for (int k = 0; k < LENGTHS; k++) for (int inc = 1; inc < 4; inc += 2) {
        int n = lengths[k], largest, least, want_largest = 1, want_least = 1;
        struct data x = make((size_t)n * (size_t)inc);
        union scalar sum, norm;
        double want_sum = 0, want_norm = 0;
        for (int i = 0; i < n; i++) {
            double v = fabs(x.v[i * inc]);
            want_sum += v;
            want_norm += v * v;
            if (v > fabs(x.v[(want_largest - 1) * inc])) want_largest = i + 1;
            if (v < fabs(x.v[(want_least - 1) * inc])) want_least = i + 1;
        }
        OK(CALL(asum, handle, n, x.dev, inc, at(&sum)));
        OK(CALL(nrm2, handle, n, x.dev, inc, at(&norm)));
        OK(d ? cublasIdamax(handle, n, x.dev, inc, &largest) : cublasIsamax(handle, n, x.dev, inc, &largest));
        OK(d ? cublasIdamin(handle, n, x.dev, inc, &least) : cublasIsamin(handle, n, x.dev, inc, &least));
        near(value(sum), want_sum, n, want_sum);
        near(value(norm), sqrt(want_norm), n, sqrt(want_norm));
        assert_int_equal(largest, want_largest);
        assert_int_equal(least, want_least);
        drop(&x);
    }
}

static void vectors(void **state) {
    (void)state;
    FOR_BOTH for (int k = 0; k < LENGTHS; k++) for (int s = 0; s < STRIDES; s++) {
        int n = lengths[k], ix = strides[s][0], iy = strides[s][1];
        struct data x = make((size_t)n * (size_t)abs(ix)), y = make((size_t)n * (size_t)abs(iy));
        union scalar alpha = num(-0.625), dot, c = num(0.6), sn = num(0.8);
        double want = 0, size = 0, cc = value(c), ss = value(sn);
        OK(CALL(dot, handle, n, x.dev, ix, y.dev, iy, at(&dot)));
        for (int i = 0; i < n; i++) {
            double t = x.v[place(i, n, ix)] * y.v[place(i, n, iy)];
            want += t;
            size += fabs(t);
        }
        near(value(dot), want, n, size);
        OK(CALL(axpy, handle, n, at(&alpha), x.dev, ix, y.dev, iy));
        double *ynew = download(&y);
        for (int i = 0; i < n; i++) {
            double *old = &y.v[place(i, n, iy)], t = -0.625 * x.v[place(i, n, ix)];
            near(ynew[place(i, n, iy)], *old + t, 1, fabs(*old) + fabs(t));
            *old = ynew[place(i, n, iy)];
        }
        for (size_t i = 0; i < y.n; i++) assert_true(ynew[i] == y.v[i]); /* nothing between the elements was written */
        OK(CALL(rot, handle, n, x.dev, ix, y.dev, iy, at(&c), at(&sn)));
        double *xr = download(&x), *yr = download(&y);
        for (int i = 0; i < n; i++) {
            double a = x.v[place(i, n, ix)], b = y.v[place(i, n, iy)];
            near(xr[place(i, n, ix)], cc * a + ss * b, 2, fabs(a) + fabs(b));
            near(yr[place(i, n, iy)], cc * b - ss * a, 2, fabs(a) + fabs(b));
        }
        OK(CALL(swap, handle, n, x.dev, ix, y.dev, iy));
        double *xs = download(&x), *ys = download(&y);
        for (int i = 0; i < n; i++) {
            assert_true(xs[place(i, n, ix)] == yr[place(i, n, iy)]);
            assert_true(ys[place(i, n, iy)] == xr[place(i, n, ix)]);
        }
        OK(CALL(copy, handle, n, x.dev, ix, y.dev, iy));
        double *yc = download(&y);
        for (int i = 0; i < n; i++) assert_true(yc[place(i, n, iy)] == xs[place(i, n, ix)]);
        OK(CALL(scal, handle, n, at(&alpha), x.dev, abs(ix)));
        double *xc = download(&x);
        for (int i = 0; i < n; i++) near(xc[i * abs(ix)], -0.625 * xs[i * abs(ix)], 1, fabs(xs[i * abs(ix)]));
        test_free(ynew), test_free(xr), test_free(yr), test_free(xs), test_free(ys), test_free(yc), test_free(xc);
        drop(&x), drop(&y);
    }
}

/* Of equals the first. */
static void ties(void **state) {
    (void)state;
    float x[6] = {2, -5, 1, 5, -1, 5}, *dx = device_from(x, sizeof x);
    int largest, least;
    OK(cublasIsamax(handle, 6, dx, 1, &largest));
    OK(cublasIsamin(handle, 6, dx, 1, &least));
    assert_int_equal(largest, 2);
    assert_int_equal(least, 3);
    OK(cudaFree(dx));
}

static void empty_vectors(void **state) {
    (void)state;
    float result = 9, one = 1;
    int index = 9;
    OK(cublasSdot(handle, 0, NULL, 1, NULL, 1, &result));
    assert_float_equal(result, 0, 0);
    OK(cublasIsamax(handle, 0, NULL, 1, &index));
    assert_int_equal(index, 0);
    OK(cublasSaxpy(handle, 0, &one, NULL, 1, NULL, 1));
    assert_int_equal(cublasSaxpy(handle, 5, &one, NULL, 1, NULL, 1), CUBLAS_STATUS_INVALID_VALUE);
    assert_int_equal(cublasSaxpy(NULL, 5, &one, NULL, 1, NULL, 1), CUBLAS_STATUS_NOT_INITIALIZED);
}

/* A result for the device arrives in stream order and the call does not wait. */
static void result_on_device(void **state) {
    (void)state;
    float x[3] = {1, 2, 3}, *dx = device_from(x, sizeof x), *result = device_new(8);
    OK(cublasSetPointerMode(handle, CUBLAS_POINTER_MODE_DEVICE));
    OK(cublasSdot(handle, 3, dx, 1, dx, 1, result));
    OK(cublasSscal(handle, 3, result, dx, 1)); /* reads the result of the call before */
    OK(cublasIsamax(handle, 3, dx, 1, (int *)(result + 1)));
    OK(cublasSetPointerMode(handle, CUBLAS_POINTER_MODE_HOST));
    float *back = device_back(dx, sizeof x);
    int *index = device_back(result + 1, 4);
    assert_float_equal(back[2], 42, 0);
    assert_int_equal(*index, 3);
    test_free(back), test_free(index);
    OK(cudaFree(dx)), OK(cudaFree(result));
}

static const int orders[][2] = {{1, 1}, {5, 3}, {64, 64}, {33, 129}, {200, 7}};
enum { ORDERS = 5 };

static void matrix_vector(void **state) {
    (void)state;
    FOR_BOTH for (int k = 0; k < ORDERS; k++) for (int t = 0; t < 2; t++) for (int s = 0; s < STRIDES;
                                                                               s++) for (int zero = 0; zero < 2;
                                                                                         zero++) {
        int m = orders[k][0], n = orders[k][1], lda = m + s, ix = strides[s][0], iy = strides[s][1];
        int nx = t ? m : n, ny = t ? n : m;
        struct data a = make((size_t)lda * (size_t)n), x = make((size_t)nx * (size_t)abs(ix));
        struct data y = zero ? make_nan((size_t)ny * (size_t)abs(iy)) : make((size_t)ny * (size_t)abs(iy));
        union scalar alpha = num(1.5), beta = num(zero ? 0 : -0.25);
        OK(CALL(gemv, handle, t ? CUBLAS_OP_T : CUBLAS_OP_N, m, n, at(&alpha), a.dev, lda, x.dev, ix, at(&beta), y.dev,
                iy));
        double *got = download(&y);
        for (int i = 0; i < ny; i++) {
            double sum = 0, size = 0, old = zero ? 0 : -0.25 * y.v[place(i, ny, iy)];
            for (int j = 0; j < nx; j++) {
                double v = a.v[t ? i * lda + j : j * lda + i] * x.v[place(j, nx, ix)];
                sum += v;
                size += fabs(v);
            }
            near(got[place(i, ny, iy)], 1.5 * sum + old, nx, 1.5 * size + fabs(old));
        }
        test_free(got);
        drop(&a), drop(&x), drop(&y);
    }
}

static void rank_one(void **state) {
    (void)state;
    FOR_BOTH for (int k = 0; k < ORDERS; k++) for (int s = 0; s < STRIDES; s++) {
        int m = orders[k][0], n = orders[k][1], lda = m + 2, ix = strides[s][0], iy = strides[s][1];
        struct data a = make((size_t)lda * (size_t)n), x = make((size_t)m * (size_t)abs(ix)),
                    y = make((size_t)n * (size_t)abs(iy));
        union scalar alpha = num(-2);
        OK(CALL(ger, handle, m, n, at(&alpha), x.dev, ix, y.dev, iy, a.dev, lda));
        double *got = download(&a);
        for (int j = 0; j < n; j++)
            for (int i = 0; i < lda; i++) {
                double old = a.v[j * lda + i], v = i < m ? -2 * x.v[place(i, m, ix)] * y.v[place(j, n, iy)] : 0;
                near(got[j * lda + i], old + v, i < m ? 2 : -3, fabs(old) + fabs(v));
            }
        test_free(got);
        drop(&a), drop(&x), drop(&y);
    }
}

static int in_triangle(int lower, int i, int j) {
    return lower ? i >= j : i <= j;
}

/* Element (i, j) of the symmetric matrix of which one half is stored. */
static double symmetric(const struct data *a, int lda, int lower, int i, int j) {
    return in_triangle(lower, i, j) ? a->v[j * lda + i] : a->v[i * lda + j];
}

static void symmetric_products(void **state) {
    (void)state;
    FOR_BOTH for (int k = 0; k < ORDERS; k++) for (int lower = 0; lower < 2; lower++) for (int left = 0; left < 2;
                                                                                           left++) {
        int m = orders[k][0], n = orders[k][1], order = left ? m : n, lda = order + 1, ld = m + 3;
        cublasFillMode_t uplo = lower ? CUBLAS_FILL_MODE_LOWER : CUBLAS_FILL_MODE_UPPER;
        struct data a = make((size_t)lda * (size_t)order), b = make((size_t)ld * (size_t)n),
                    c = make_nan((size_t)ld * (size_t)n);
        struct data y = make((size_t)order);
        union scalar alpha = num(0.5), beta = num(0), one = num(1);
        OK(CALL(symm, handle, left ? CUBLAS_SIDE_LEFT : CUBLAS_SIDE_RIGHT, uplo, m, n, at(&alpha), a.dev, lda, b.dev,
                ld, at(&beta), c.dev, ld));
        double *got = download(&c);
        for (int j = 0; j < n; j++)
            for (int i = 0; i < m; i++) {
                double sum = 0, size = 0;
                for (int l = 0; l < order; l++) {
                    double v = left ? symmetric(&a, lda, lower, i, l) * b.v[j * ld + l]
                                    : b.v[l * ld + i] * symmetric(&a, lda, lower, l, j);
                    sum += v;
                    size += fabs(v);
                }
                near(got[j * ld + i], sum / 2, order, size);
            }
        OK(CALL(symv, handle, uplo, order, at(&alpha), a.dev, lda, a.dev, 1, at(&one), y.dev, 1));
        double *product = download(&y);
        for (int i = 0; i < order; i++) {
            double sum = 0, size = 0;
            for (int l = 0; l < order; l++) {
                double v = symmetric(&a, lda, lower, i, l) * a.v[l];
                sum += v;
                size += fabs(v);
            }
            near(product[i], y.v[i] + sum / 2, order, size + fabs(y.v[i]));
        }
        test_free(got), test_free(product);
        drop(&a), drop(&b), drop(&c), drop(&y);
    }
}

static void rank_k(void **state) {
    (void)state;
    FOR_BOTH for (int s = 0; s < ORDERS; s++) for (int lower = 0; lower < 2;
                                                   lower++) for (int t = 0; t < 2; t++) for (int two = 0; two < 2;
                                                                                             two++) {
        int n = orders[s][0], k = orders[s][1], lda = (t ? k : n) + 1, ldc = n + 2;
        size_t columns = (size_t)(t ? n : k);
        cublasFillMode_t uplo = lower ? CUBLAS_FILL_MODE_LOWER : CUBLAS_FILL_MODE_UPPER;
        cublasOperation_t op = t ? CUBLAS_OP_T : CUBLAS_OP_N;
        struct data a = make((size_t)lda * columns), b = make((size_t)lda * columns), c = make((size_t)ldc * (size_t)n);
        union scalar alpha = num(2), beta = num(-1);
        if (two)
            OK(CALL(syr2k, handle, uplo, op, n, k, at(&alpha), a.dev, lda, b.dev, lda, at(&beta), c.dev, ldc));
        else
            OK(CALL(syrk, handle, uplo, op, n, k, at(&alpha), a.dev, lda, at(&beta), c.dev, ldc));
        double *got = download(&c);
        for (int j = 0; j < n; j++)
            for (int i = 0; i < ldc; i++) {
                double old = c.v[j * ldc + i], sum = 0, size = 0;
                if (i >= n || !in_triangle(lower, i, j)) {
                    assert_true(got[j * ldc + i] == old);
                    continue;
                }
                for (int l = 0; l < k; l++) {
                    double ai = a.v[t ? i * lda + l : l * lda + i], aj = a.v[t ? j * lda + l : l * lda + j];
                    double bi = b.v[t ? i * lda + l : l * lda + i], bj = b.v[t ? j * lda + l : l * lda + j];
                    double v = two ? ai * bj + bi * aj : ai * aj;
                    sum += v;
                    size += two ? fabs(ai * bj) + fabs(bi * aj) : fabs(v);
                }
                near(got[j * ldc + i], 2 * sum - old, 2 * k, 2 * size + fabs(old));
            }
        test_free(got);
        drop(&a), drop(&b), drop(&c);
    }
}

/* trmm by its formula; trsm by multiplying its solution back: op(A) X = alpha B. */
static void triangular(void **state) {
    (void)state;
    for (int bits = 0; bits < 32; bits++) FOR_BOTH {
            int left = bits & 1, lower = bits >> 1 & 1, t = bits >> 2 & 1, unit = bits >> 3 & 1, solve = bits >> 4;
            int m = 33, n = 20, order = left ? m : n, lda = order + 1, ld = m + 2;
            struct data a = make((size_t)lda * (size_t)order), b = make((size_t)ld * (size_t)n),
                        c = make_nan((size_t)ld * (size_t)n);
            for (int i = 0; i < order; i++) /* well conditioned */
                for (int j = 0; j < order; j++)
                    a.v[i * lda + j] = i == j ? 2 + a.v[i * lda + j] / 2 : a.v[i * lda + j] / 64;
            OK(cudaFree(a.dev));
            for (size_t i = 0; i < a.n; i++) a.v[i] = (float)a.v[i];
            upload(&a);
            union scalar alpha = num(0.5);
            cublasSideMode_t side = left ? CUBLAS_SIDE_LEFT : CUBLAS_SIDE_RIGHT;
            cublasFillMode_t uplo = lower ? CUBLAS_FILL_MODE_LOWER : CUBLAS_FILL_MODE_UPPER;
            cublasOperation_t op = t ? CUBLAS_OP_T : CUBLAS_OP_N;
            cublasDiagType_t diag = unit ? CUBLAS_DIAG_UNIT : CUBLAS_DIAG_NON_UNIT;
            if (solve)
                OK(CALL(trsm, handle, side, uplo, op, diag, m, n, at(&alpha), a.dev, lda, b.dev, ld));
            else
                OK(CALL(trmm, handle, side, uplo, op, diag, m, n, at(&alpha), a.dev, lda, b.dev, ld, c.dev, ld));
            double *x = download(solve ? &b : &c);
            const double *factor = solve ? x : b.v;
            for (int j = 0; j < n; j++)
                for (int i = 0; i < m; i++) {
                    double sum = 0, size = 0;
                    for (int l = 0; l < order; l++) {
                        int row = left ? i : l, column = left ? l : j, r = t ? column : row, q = t ? row : column;
                        double v = r == q && unit ? 1 : in_triangle(lower, r, q) ? a.v[q * lda + r] : 0;
                        v *= left ? factor[j * ld + l] : factor[l * ld + i];
                        sum += v;
                        size += fabs(v);
                    }
                    if (solve)
                        near(sum, 0.5 * b.v[j * ld + i], 4 * order, 4 * size + fabs(b.v[j * ld + i]));
                    else
                        near(x[j * ld + i], 0.5 * sum, order, size);
                }
            test_free(x);
            drop(&a), drop(&b), drop(&c);
        }
}

static void sums_and_diagonals(void **state) {
    (void)state;
    static const double scalars[][2] = {{1, 0}, {0, 1}, {-0.5, 2}, {0, 0}};
    FOR_BOTH for (int s = 0; s < ORDERS; s++) for (int t = 0; t < 4; t++) for (int k = 0; k < 4; k++) {
        int m = orders[s][0], n = orders[s][1], ta = t & 1, tb = t >> 1, lda = (ta ? n : m) + 1, ldb = (tb ? n : m) + 2,
            ldc = m + 3;
        struct data a = make((size_t)lda * (size_t)(ta ? m : n)), b = make((size_t)ldb * (size_t)(tb ? m : n)),
                    c = make_nan((size_t)ldc * (size_t)n);
        struct data x = make((size_t)(m > n ? m : n) * 2);
        union scalar alpha = num(scalars[k][0]), beta = num(scalars[k][1]);
        OK(CALL(geam, handle, ta ? CUBLAS_OP_T : CUBLAS_OP_N, tb ? CUBLAS_OP_C : CUBLAS_OP_N, m, n, at(&alpha), a.dev,
                lda, at(&beta), b.dev, ldb, c.dev, ldc));
        double *got = download(&c);
        for (int j = 0; j < n; j++)
            for (int i = 0; i < m; i++) {
                double u = scalars[k][0] * a.v[ta ? i * lda + j : j * lda + i],
                       v = scalars[k][1] * b.v[tb ? i * ldb + j : j * ldb + i];
                near(got[j * ldc + i], u + v, 2, fabs(u) + fabs(v));
            }
        test_free(got);
        if (!ta) {
            OK(CALL(dgmm, handle, k % 2 ? CUBLAS_SIDE_LEFT : CUBLAS_SIDE_RIGHT, m, n, a.dev, lda, x.dev, 2, c.dev,
                    ldc));
            got = download(&c);
            for (int j = 0; j < n; j++)
                for (int i = 0; i < m; i++) {
                    double v = a.v[j * lda + i] * x.v[2 * (k % 2 ? i : j)];
                    near(got[j * ldc + i], v, 1, fabs(v));
                }
            test_free(got);
        }
        drop(&a), drop(&b), drop(&c), drop(&x);
    }
}

/* A transpose in place would read what it has written. */
static void geam_in_place(void **state) {
    (void)state;
    d = 0;
    struct data c = make(9);
    float one = 1, zero = 0;
    assert_int_equal(cublasSgeam(handle, CUBLAS_OP_T, CUBLAS_OP_N, 3, 3, &one, c.dev, 3, &zero, c.dev, 3, c.dev, 3),
                     CUBLAS_STATUS_INVALID_VALUE);
    OK(cublasSgeam(handle, CUBLAS_OP_N, CUBLAS_OP_N, 3, 3, &one, c.dev, 3, &one, c.dev, 3, c.dev, 3));
    double *got = download(&c);
    for (int i = 0; i < 9; i++) assert_true(got[i] == 2 * c.v[i]);
    test_free(got);
    drop(&c);
}

static void transfers(void **state) {
    (void)state;
    float a[5 * 3], b[4 * 3], c[12];
    for (int i = 0; i < 15; i++) a[i] = (float)i;
    memset(c, 0, sizeof c);
    void *dev = device_new(sizeof b);
    OK(cudaMemset(dev, 0, sizeof b));
    OK(cublasSetMatrix(3, 3, sizeof *a, a, 5, dev, 4));
    OK(cublasGetMatrix(3, 3, sizeof *a, dev, 4, c, 4));
    for (int j = 0; j < 3; j++)
        for (int i = 0; i < 4; i++) assert_float_equal(c[j * 4 + i], i < 3 ? a[j * 5 + i] : 0, 0);
    OK(cublasSetVector(4, sizeof *a, a, 3, dev, 1));
    OK(cublasGetVector(4, sizeof *a, dev, 1, c, 2));
    for (int i = 0; i < 4; i++) assert_float_equal(c[2 * i], a[3 * i], 0);
    assert_int_equal(cublasSetVector(4, 0, a, 3, dev, 1), CUBLAS_STATUS_INVALID_VALUE);
    OK(cudaFree(dev));
}

static int create(void **state) {
    (void)state;
    return (int)cublasCreate(&handle);
}

static int destroy(void **state) {
    (void)state;
    return (int)cublasDestroy(handle);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reductions),
        cmocka_unit_test(vectors),
        cmocka_unit_test(ties),
        cmocka_unit_test(empty_vectors),
        cmocka_unit_test(result_on_device),
        cmocka_unit_test(matrix_vector),
        cmocka_unit_test(rank_one),
        cmocka_unit_test(symmetric_products),
        cmocka_unit_test(rank_k),
        cmocka_unit_test(triangular),
        cmocka_unit_test(sums_and_diagonals),
        cmocka_unit_test(geam_in_place),
        cmocka_unit_test(transfers),
    };
    return cmocka_run_group_tests(tests, create, destroy);
}
