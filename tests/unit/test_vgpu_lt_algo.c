/* cuBLASLt beside the numbers: what the heuristics offer, what is refused and with which status, scalars and scales on
 * the device, vectors of scales, pointer arrays, the order of a stream, changes of layout. */
#include "tests/unit/vgpu_lt_reference.h"

static cublasLtHandle_t handle;
static uint64_t seed = 3;

/* A product that works, from which each test takes something away. */
struct product {
    cublasLtMatmulDescOpaque_t desc;
    cublasLtMatrixLayoutOpaque_t a, b, c, d;
    cublasLtMatmulPreferenceOpaque_t preference;
    cublasLtMatmulHeuristicResult_t results[8];
    int found;
    void *pa, *pb, *pc, *pd;
};

static void open_product(struct product *p, cudaDataType_t in, cudaDataType_t out, uint64_t m, uint64_t n, uint64_t k) {
    int32_t t = CUBLAS_OP_T;
    memset(p, 0, sizeof *p);
    OK(cublasLtMatmulDescInit(&p->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    LT_SET(&p->desc, TRANSA, t);
    OK(cublasLtMatrixLayoutInit(&p->a, in, k, m, (int64_t)k));
    OK(cublasLtMatrixLayoutInit(&p->b, in, k, n, (int64_t)k));
    OK(cublasLtMatrixLayoutInit(&p->c, out, m, n, (int64_t)m));
    OK(cublasLtMatrixLayoutInit(&p->d, out, m, n, (int64_t)m));
    OK(cublasLtMatmulPreferenceInit(&p->preference));
    p->pa = device_new(m * k * 4);
    p->pb = device_new(n * k * 4);
    p->pc = device_new(m * n * 4);
    p->pd = device_new(m * n * 4);
    OK(cudaMemset(p->pa, 0, m * k * 4));
    OK(cudaMemset(p->pb, 0, n * k * 4));
}

static void close_product(struct product *p) {
    OK(cudaFree(p->pa)), OK(cudaFree(p->pb)), OK(cudaFree(p->pc)), OK(cudaFree(p->pd));
}

static cublasStatus_t ask(struct product *p, int wanted) {
    return cublasLtMatmulAlgoGetHeuristic(handle, &p->desc, &p->a, &p->b, &p->c, &p->d, &p->preference, wanted,
                                          p->results, &p->found);
}

static cublasStatus_t multiply(struct product *p, const cublasLtMatmulAlgo_t *algo, void *workspace, size_t bytes) {
    const float one = 1, zero = 0;
    return cublasLtMatmul(handle, &p->desc, &one, p->pa, &p->a, p->pb, &p->b, &zero, p->pc, &p->c, p->pd, &p->d, algo,
                          workspace, bytes, 0);
}

#define PREFER(p, name, value) \
    OK(cublasLtMatmulPreferenceSetAttribute(&(p)->preference, CUBLASLT_MATMUL_PREF_##name, &(value), sizeof(value)))
#define LAYOUT(l, name, value) \
    OK(cublasLtMatrixLayoutSetAttribute((l), CUBLASLT_MATRIX_LAYOUT_##name, &(value), sizeof(value)))

/* More workspace, more choice; each result keeps to what was allowed and runs with just that. */
static void heuristics_respect_the_workspace(void **state) {
    struct product p;
    (void)state;
    open_product(&p, CUDA_R_16BF, CUDA_R_16BF, 64, 32, 128);
    OK(ask(&p, 8));
    assert_int_equal(p.found, 1);
    assert_int_equal(p.results[0].workspaceSize, 0);
    int last = 0;
    for (uint64_t allowed = 0; allowed <= 1 << 20; allowed = allowed ? 4 * allowed : 1024) {
        PREFER(&p, MAX_WORKSPACE_BYTES, allowed);
        OK(ask(&p, 8));
        assert_true(p.found >= last);
        last = p.found;
        for (int i = 0; i < p.found; i++) {
            cublasLtMatmulHeuristicResult_t checked = {0}, *r = &p.results[i];
            OK(r->state);
            assert_true(r->workspaceSize <= allowed && r->wavesCount > 0);
            void *workspace = device_new(r->workspaceSize);
            OK(multiply(&p, &r->algo, workspace, r->workspaceSize));
            OK(cudaDeviceSynchronize());
            if (r->workspaceSize)
                assert_int_equal(multiply(&p, &r->algo, workspace, r->workspaceSize - 1), CUBLAS_STATUS_INVALID_VALUE);
            OK(cudaFree(workspace));
            OK(cublasLtMatmulAlgoCheck(handle, &p.desc, &p.a, &p.b, &p.c, &p.d, &r->algo, &checked));
            assert_int_equal(checked.workspaceSize, r->workspaceSize);
        }
    }
    assert_true(last > 1);
    uint64_t one_less = p.results[last - 1].workspaceSize - 1;
    PREFER(&p, MAX_WORKSPACE_BYTES, one_less);
    OK(ask(&p, 8));
    assert_int_equal(p.found, last - 1);
    OK(ask(&p, 1));
    assert_int_equal(p.found, 1);
    uint32_t in_place_only = CUBLASLT_REDUCTION_SCHEME_INPLACE;
    PREFER(&p, REDUCTION_SCHEME_MASK, in_place_only);
    OK(ask(&p, 8));
    assert_int_equal(p.found, 1);
    close_product(&p);
}

static void heuristics_refuse(void **state) {
    struct product p;
    (void)state;
    open_product(&p, CUDA_R_8F_E4M3, CUDA_R_16BF, 64, 32, 128);
    OK(ask(&p, 1));
    assert_int_equal(ask(&p, 0), CUBLAS_STATUS_INVALID_VALUE);
    uint32_t alignment = 8;
    PREFER(&p, MIN_ALIGNMENT_A_BYTES, alignment);
    assert_int_equal(ask(&p, 1), CUBLAS_STATUS_NOT_SUPPORTED);
    assert_int_equal(p.found, 0);
    alignment = 16;
    PREFER(&p, MIN_ALIGNMENT_A_BYTES, alignment);
    OK(ask(&p, 1));
    uint64_t no_tensor_cores = CUBLASLT_NUMERICAL_IMPL_FLAGS_FMA | ~UINT64_C(0xff);
    PREFER(&p, IMPL_MASK, no_tensor_cores);
    assert_int_equal(ask(&p, 1), CUBLAS_STATUS_NOT_SUPPORTED);
    close_product(&p);
}

/* One thing wrong with a product of fp8: TN, multiples of 16 bytes, 16-byte pointers, its own types and scales. */
static void fp8_rules(void **state) {
    struct product p;
    int32_t n = CUBLAS_OP_N, t = CUBLAS_OP_T, row = CUBLASLT_ORDER_ROW;
    (void)state;
    static const uint64_t wrong[][3] = {{8, 16, 24}, {12, 16, 16}, {16, 16, 8}, {20, 16, 32}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        open_product(&p, CUDA_R_8F_E4M3, CUDA_R_16BF, wrong[i][0], wrong[i][1], wrong[i][2]);
        assert_int_equal(ask(&p, 1), CUBLAS_STATUS_NOT_SUPPORTED);
        assert_int_equal(multiply(&p, NULL, NULL, 0), CUBLAS_STATUS_NOT_SUPPORTED);
        close_product(&p);
    }
    open_product(&p, CUDA_R_8F_E4M3, CUDA_R_16BF, 32, 32, 32);
    OK(ask(&p, 1));
    LT_SET(&p.desc, TRANSA, n);
    assert_int_equal(ask(&p, 1), CUBLAS_STATUS_NOT_SUPPORTED);
    LT_SET(&p.desc, TRANSA, t);
    LT_SET(&p.desc, TRANSB, t);
    assert_int_equal(ask(&p, 1), CUBLAS_STATUS_NOT_SUPPORTED);
    LT_SET(&p.desc, TRANSB, n);
    LAYOUT(&p.b, ORDER, row);
    assert_int_equal(ask(&p, 1), CUBLAS_STATUS_NOT_SUPPORTED);
    close_product(&p);
    open_product(&p, CUDA_R_8F_E5M2, CUDA_R_16BF, 32, 32, 32); /* E5M2 with E5M2 */
    assert_int_equal(ask(&p, 1), CUBLAS_STATUS_NOT_SUPPORTED);
    close_product(&p);
    open_product(&p, CUDA_R_8F_E4M3, CUDA_R_16BF, 32, 32, 32);
    p.pa = (char *)p.pa + 8;
    assert_int_equal(multiply(&p, NULL, NULL, 0), CUBLAS_STATUS_NOT_SUPPORTED);
    p.pa = (char *)p.pa - 8;
    float *scale = device_new(4);
    LT_SET(&p.desc, D_SCALE_POINTER, scale); /* D is bf16 */
    assert_int_equal(multiply(&p, NULL, NULL, 0), CUBLAS_STATUS_INVALID_VALUE);
    OK(cudaFree(scale));
    close_product(&p);
}

static void refusals(void **state) {
    struct product p;
    (void)state;
    const float one = 1;
    open_product(&p, CUDA_R_32F, CUDA_R_32F, 8, 6, 4);
    OK(multiply(&p, NULL, NULL, 0));
    const cublasLtHandle_t none = (cublasLtHandle_t)(uintptr_t)0x1230;
    assert_int_equal(
        cublasLtMatmulAlgoGetHeuristic(none, &p.desc, &p.a, &p.b, &p.c, &p.d, &p.preference, 1, p.results, &p.found),
        CUBLAS_STATUS_NOT_INITIALIZED);
    assert_int_equal(
        cublasLtMatmul(handle, &p.desc, NULL, p.pa, &p.a, p.pb, &p.b, &one, p.pc, &p.c, p.pd, &p.d, NULL, NULL, 0, 0),
        CUBLAS_STATUS_INVALID_VALUE);
    assert_int_equal(
        cublasLtMatmul(handle, &p.desc, &one, p.pa, &p.a, NULL, &p.b, &one, p.pc, &p.c, p.pd, &p.d, NULL, NULL, 0, 0),
        CUBLAS_STATUS_INVALID_VALUE);
    assert_int_equal(
        cublasLtMatmul(handle, &p.desc, &one, p.pa, &p.a, p.pb, &p.b, &one, NULL, &p.c, p.pd, &p.d, NULL, NULL, 0, 0),
        CUBLAS_STATUS_INVALID_VALUE);
    assert_int_equal(
        cublasLtMatmul(handle, &p.desc, &one, p.pa, &p.a, p.pb, &p.b, &one, p.pc, NULL, p.pd, &p.d, NULL, NULL, 0, 0),
        CUBLAS_STATUS_INVALID_VALUE);
    cublasLtMatmulAlgo_t empty = {{0}};
    assert_int_equal(multiply(&p, &empty, NULL, 0), CUBLAS_STATUS_INVALID_VALUE);
    int64_t ld = 3, good = 4;
    LAYOUT(&p.a, LD, ld);
    assert_int_equal(multiply(&p, NULL, NULL, 0), CUBLAS_STATUS_INVALID_VALUE);
    LAYOUT(&p.a, LD, good);
    uint64_t rows = 5, six = 6;
    LAYOUT(&p.d, COLS, rows);
    assert_int_equal(multiply(&p, NULL, NULL, 0), CUBLAS_STATUS_INVALID_VALUE);
    LAYOUT(&p.d, COLS, six);
    int32_t batch = 2, single = 1;
    LAYOUT(&p.b, BATCH_COUNT, batch);
    assert_int_equal(multiply(&p, NULL, NULL, 0), CUBLAS_STATUS_INVALID_VALUE);
    LAYOUT(&p.b, BATCH_COUNT, single);
    uint32_t type = CUDA_R_64F, fp32 = CUDA_R_32F, epilogue = 77, bias = CUBLASLT_EPILOGUE_BIAS;
    LAYOUT(&p.b, TYPE, type);
    assert_int_equal(multiply(&p, NULL, NULL, 0), CUBLAS_STATUS_NOT_SUPPORTED);
    LAYOUT(&p.b, TYPE, fp32);
    LT_SET(&p.desc, EPILOGUE, epilogue);
    assert_int_equal(multiply(&p, NULL, NULL, 0), CUBLAS_STATUS_INVALID_VALUE);
    LT_SET(&p.desc, EPILOGUE, bias); /* without the vector; the heuristics may be asked all the same */
    OK(ask(&p, 1));
    assert_int_equal(multiply(&p, &p.results[0].algo, NULL, 0), CUBLAS_STATUS_INVALID_VALUE);
    epilogue = CUBLASLT_EPILOGUE_GELU_AUX;
    LT_SET(&p.desc, EPILOGUE, epilogue);
    LT_SET(&p.desc, EPILOGUE_AUX_POINTER, p.pc);
    LT_SET(&p.desc, EPILOGUE_AUX_LD, good); /* less than the rows of D */
    assert_int_equal(multiply(&p, NULL, NULL, 0), CUBLAS_STATUS_INVALID_VALUE);
    close_product(&p);
}

/* A handle of cuBLAS's does as well. */
static void handle_of_cublas(void **state) {
    struct product p;
    cublasHandle_t blas;
    cublasLtHandle_t mine = handle;
    (void)state;
    OK(cublasCreate(&blas));
    handle = (cublasLtHandle_t)blas;
    open_product(&p, CUDA_R_32F, CUDA_R_32F, 8, 6, 4);
    OK(ask(&p, 1));
    OK(multiply(&p, &p.results[0].algo, NULL, 0));
    close_product(&p);
    OK(cudaDeviceSynchronize());
    handle = mine;
    OK(cublasDestroy(blas));
}

/* An algorithm by its number, and what it says of itself. */
static void algorithms_by_number(void **state) {
    struct product p;
    cublasLtMatmulAlgo_t algo;
    int ids[32], found = 0, got = -1;
    size_t written = 0;
    (void)state;
#define TYPES CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16F, CUDA_R_16F, CUDA_R_32F, CUDA_R_32F
    open_product(&p, CUDA_R_16F, CUDA_R_32F, 64, 32, 128);
    OK(cublasLtMatmulAlgoGetIds(handle, TYPES, 32, ids, &found));
    assert_true(found > 1);
    for (int i = 0; i < found; i++) {
        cublasLtMatmulHeuristicResult_t r = {0};
        uint64_t flags = 0;
        OK(cublasLtMatmulAlgoInit(handle, TYPES, ids[i], &algo));
        OK(cublasLtMatmulAlgoConfigGetAttribute(&algo, CUBLASLT_ALGO_CONFIG_ID, &got, sizeof got, &written));
        assert_int_equal(got, ids[i]);
        OK(cublasLtMatmulAlgoCheck(handle, &p.desc, &p.a, &p.b, &p.c, &p.d, &algo, &r));
        void *workspace = device_new(r.workspaceSize);
        OK(multiply(&p, &algo, workspace, r.workspaceSize));
        OK(cudaFree(workspace));
        OK(cublasLtMatmulAlgoCapGetAttribute(&algo, CUBLASLT_ALGO_CAP_NUMERICAL_IMPL_FLAGS, &flags, sizeof flags,
                                             &written));
        assert_true(flags == (CUBLASLT_NUMERICAL_IMPL_FLAGS_HMMA | CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_32F |
                              CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_16F));
    }
    int32_t splits = 4;
    OK(cublasLtMatmulAlgoInit(handle, TYPES, ids[1], &algo));
    OK(cublasLtMatmulAlgoConfigSetAttribute(&algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &splits, sizeof splits));
    cublasLtMatmulHeuristicResult_t r = {0};
    OK(cublasLtMatmulAlgoCheck(handle, &p.desc, &p.a, &p.b, &p.c, &p.d, &algo, &r));
    assert_int_equal(r.workspaceSize, 4 * 64 * 32 * sizeof(float)); /* four partial sums of D */
    assert_int_equal(cublasLtMatmulAlgoInit(handle, TYPES, 1000, &algo), CUBLAS_STATUS_INVALID_VALUE);
    assert_int_equal(cublasLtMatmulAlgoInit(handle, CUBLAS_COMPUTE_64F, CUDA_R_64F, CUDA_R_16F, CUDA_R_16F, CUDA_R_32F,
                                            CUDA_R_32F, 0, &algo),
                     CUBLAS_STATUS_NOT_SUPPORTED);
    LAYOUT(&p.a, TYPE, ((uint32_t){CUDA_R_16BF})); /* it was made for fp16 */
    LAYOUT(&p.b, TYPE, ((uint32_t){CUDA_R_16BF}));
    OK(cublasLtMatmulAlgoInit(handle, TYPES, ids[0], &algo));
    assert_int_equal(multiply(&p, &algo, NULL, 0), CUBLAS_STATUS_INVALID_VALUE);
    close_product(&p);
}

/* Everything that a stream did before counts, and what comes after sees D: scalars and scales are read in between. */
static void order_of_the_stream(void **state) {
    enum { N = 64, ROUNDS = 18 }; /* 2^126 still is a float */
    struct product p;
    cudaStream_t stream;
    int32_t mode = CUBLASLT_POINTER_MODE_DEVICE;
    (void)state;
    open_product(&p, CUDA_R_32F, CUDA_R_32F, N, N, N);
    LT_SET(&p.desc, POINTER_MODE, mode);
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    float *pinned, *scalars = device_from((float[2]){0, 0}, 8), back[N];
    OK(cudaMallocHost((void **)&pinned, (2 + N * N) * sizeof *pinned));
    pinned[0] = 2, pinned[1] = 0;
    for (int i = 0; i < N * N; i++) pinned[2 + i] = 1;
    for (int round = 0; round < ROUNDS; round++) { /* each product's D is the next one's A */
        OK(cudaMemcpyAsync(scalars, pinned, 8, cudaMemcpyHostToDevice, stream));
        if (!round) {
            OK(cudaMemcpyAsync(p.pa, pinned + 2, N * N * 4, cudaMemcpyHostToDevice, stream));
            OK(cudaMemcpyAsync(p.pb, pinned + 2, N * N * 4, cudaMemcpyHostToDevice, stream));
        }
        OK(cublasLtMatmul(handle, &p.desc, scalars, p.pa, &p.a, p.pb, &p.b, scalars + 1, p.pc, &p.c, p.pd, &p.d, NULL,
                          NULL, 0, stream));
        OK(cudaMemcpyAsync(p.pa, p.pd, N * N * 4, cudaMemcpyDeviceToDevice, stream));
        OK(cudaMemsetAsync(scalars, 0, 8, stream));
    }
    OK(cudaMemcpyAsync(back, p.pd, sizeof back, cudaMemcpyDeviceToHost, stream));
    OK(cudaStreamSynchronize(stream));
    assert_true(back[3] == ldexpf(1, ROUNDS * 7)); /* 2 · 64 each time */
    OK(cudaStreamDestroy(stream));
    OK(cudaFreeHost(pinned)), OK(cudaFree(scalars));
    close_product(&p);
}

/* alpha a vector of D's rows; scales of fp8's rows and columns. */
static void vectors(void **state) {
    enum { M = 32, N = 16, K = 48 };
    (void)state;
    struct lt_matrix a = lt_new(CUDA_R_8F_E4M3, K, M, false, 0, 1, false, 1, &seed),
                     b = lt_new(CUDA_R_8F_E4M3, K, N, false, 0, 1, false, 1, &seed),
                     d = lt_new(CUDA_R_32F, M, N, false, 0, 1, false, 1, &seed),
                     rows = lt_new(CUDA_R_32F, M, 1, false, 0, 1, false, 1, &seed),
                     columns = lt_new(CUDA_R_32F, N, 1, false, 0, 1, false, 1, &seed);
    int32_t t = CUBLAS_OP_T, outer = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F, host = CUBLASLT_POINTER_MODE_HOST,
            vector = CUBLASLT_POINTER_MODE_ALPHA_DEVICE_VECTOR_BETA_HOST;
    for (int which = 0; which < 2; which++) {
        cublasLtMatmulDesc_t desc;
        cublasLtMatrixLayout_t l[3] = {lt_layout(&a, 1), lt_layout(&b, 1), lt_layout(&d, 1)};
        float one = 1, half = 0.5f;
        OK(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
        LT_SET(desc, TRANSA, t);
        if (which) {
            LT_SET(desc, A_SCALE_POINTER, rows.device);
            LT_SET(desc, B_SCALE_POINTER, columns.device);
            LT_SET(desc, A_SCALE_MODE, outer);
            assert_int_equal(cublasLtMatmul(handle, desc, &one, a.device, l[0], b.device, l[1], &half, d.device, l[2],
                                            d.device, l[2], NULL, NULL, 0, 0),
                             CUBLAS_STATUS_NOT_SUPPORTED); /* one without the other */
            LT_SET(desc, B_SCALE_MODE, outer);
        }
        int32_t mode = which ? host : vector;
        LT_SET(desc, POINTER_MODE, mode);
        OK(cudaMemcpy(d.device, d.host, M * N * 4, cudaMemcpyHostToDevice));
        OK(cublasLtMatmul(handle, desc, which ? &one : rows.device, a.device, l[0], b.device, l[1], &half, d.device,
                          l[2], d.device, l[2], NULL, NULL, 0, 0));
        float *got = device_back(d.device, M * N * 4);
        for (int j = 0; j < N; j++)
            for (int i = 0; i < M; i++) {
                double sum = 0, size = 0, factor = decode(CUDA_R_32F, rows.host, i);
                if (which) factor *= decode(CUDA_R_32F, columns.host, j);
                for (int k = 0; k < K; k++) {
                    double x = decode(a.type, a.host, i * K + k) * decode(b.type, b.host, j * K + k);
                    sum += x;
                    size += fabs(x);
                }
                double want = factor * sum + 0.5 * decode(d.type, d.host, j * M + i);
                assert_true(fabs((double)got[j * M + i] - want) <= (K + 6) * 0x1p-24 * (fabs(factor) * size + 1));
            }
        test_free(got);
        for (int i = 0; i < 3; i++) OK(cublasLtMatrixLayoutDestroy(l[i]));
        OK(cublasLtMatmulDescDestroy(desc));
    }
    lt_free(&a), lt_free(&b), lt_free(&d), lt_free(&rows), lt_free(&columns);
}

static void pointer_arrays(void **state) {
    enum { N = 8, BATCH = 3 };
    struct product p;
    (void)state;
    open_product(&p, CUDA_R_32F, CUDA_R_32F, N, N, N);
    int32_t batch = BATCH;
    uint32_t mode = CUBLASLT_BATCH_MODE_POINTER_ARRAY;
    cublasLtMatrixLayoutOpaque_t *const all[] = {&p.a, &p.b, &p.c, &p.d};
    for (int i = 0; i < 4; i++) {
        LAYOUT(all[i], BATCH_COUNT, batch);
        LAYOUT(all[i], BATCH_MODE, mode);
    }
    float a[BATCH][N * N], identity[N * N] = {0};
    void *pa[BATCH], *pb[BATCH], *pd[BATCH];
    for (int i = 0; i < N; i++) identity[i * N + i] = 1;
    for (int s = 0; s < BATCH; s++) {
        for (int i = 0; i < N * N; i++) a[s][i] = (float)(s * 100 + i);
        pa[s] = device_from(a[s], sizeof a[s]);
        pb[s] = device_from(identity, sizeof identity);
        pd[s] = device_new(sizeof a[s]);
    }
    void *da = device_from(pa, sizeof pa), *db = device_from(pb, sizeof pb), *dd = device_from(pd, sizeof pd);
    const float one = 1, zero = 0;
    OK(cublasLtMatmul(handle, &p.desc, &one, da, &p.a, db, &p.b, &zero, dd, &p.c, dd, &p.d, NULL, NULL, 0, 0));
    for (int s = 0; s < BATCH; s++) {
        float *got = device_back(pd[s], sizeof a[s]);
        for (int i = 0; i < N; i++)
            for (int j = 0; j < N; j++) assert_true(got[j * N + i] == a[s][i * N + j]); /* A transposed */
        test_free(got);
        OK(cudaFree(pa[s])), OK(cudaFree(pb[s])), OK(cudaFree(pd[s]));
    }
    OK(cudaFree(da)), OK(cudaFree(db)), OK(cudaFree(dd));
    close_product(&p);
}

/* ---- changes of layout ---- */

static void transforms(void **state) {
    enum { R = 5, C = 40 };
    static const cudaDataType_t types[][2] = {
        {CUDA_R_32F, CUDA_R_16BF}, {CUDA_R_16F, CUDA_R_32F}, {CUDA_R_8I, CUDA_R_32F}, {CUDA_R_32F, CUDA_R_8F_E4M3}};
    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        for (int turn = 0; turn < 8; turn++) {
            bool t = turn & 1, row = turn & 2, col32 = turn & 4;
            struct lt_matrix a = lt_new(types[i][0], t ? C : R, t ? R : C, row, 3, 2, false, 0.05, &seed),
                             c = lt_new(types[i][1], R, C, false, 0, 2, false, 1, &seed);
            for (size_t e = 0; e < a.elements; e++) encode(a.type, a.host, (int64_t)e, (double)(e % 9) - 4);
            OK(cudaMemcpy(a.device, a.host, a.elements * bytes_of(a.type), cudaMemcpyHostToDevice));
            cublasLtMatrixTransformDesc_t desc;
            cublasLtMatrixLayout_t la = lt_layout(&a, 2), lc = lt_layout(&c, 2);
            int32_t op = t ? CUBLAS_OP_T : CUBLAS_OP_N, order = CUBLASLT_ORDER_COL32;
            int64_t ld = 32 * R, stride = 2 * 32 * R; /* two groups of 32 columns */
            void *out = c.device;
            if (col32) {
                LAYOUT(lc, ORDER, order);
                LAYOUT(lc, LD, ld);
                LAYOUT(lc, STRIDED_BATCH_OFFSET, stride);
                out = device_new((size_t)(2 * stride) * bytes_of(c.type));
            }
            float two = 2, zero = 0;
            OK(cublasLtMatrixTransformDescCreate(&desc, CUDA_R_32F));
            OK(cublasLtMatrixTransformDescSetAttribute(desc, CUBLASLT_MATRIX_TRANSFORM_DESC_TRANSA, &op, sizeof op));
            OK(cublasLtMatrixTransform(handle, desc, &two, a.device, la, &zero, NULL, NULL, out, lc, 0));
            void *got = device_back(out, (size_t)(col32 ? 2 * stride : (int64_t)c.elements) * bytes_of(c.type));
            for (int64_t s = 0; s < 2; s++)
                for (int64_t y = 0; y < R; y++)
                    for (int64_t x = 0; x < C; x++) {
                        int64_t at = col32 ? s * stride + x / 32 * ld + y * 32 + x % 32 : lt_at(&c, s, y, x);
                        double from = decode(a.type, a.host, t ? lt_at(&a, s, x, y) : lt_at(&a, s, y, x));
                        assert_true(decode(c.type, got, at) == 2 * from);
                    }
            test_free(got);
            if (col32) OK(cudaFree(out));
            OK(cublasLtMatrixTransformDescDestroy(desc));
            OK(cublasLtMatrixLayoutDestroy(la)), OK(cublasLtMatrixLayoutDestroy(lc));
            lt_free(&a), lt_free(&c);
        }
}

/* The sum of two, and shapes that do not fit. */
static void transform_of_two(void **state) {
    (void)state;
    float x[6] = {1, 2, 3, 4, 5, 6}, y[6] = {10, 20, 30, 40, 50, 60}, two = 2, half = 0.5f, *got;
    float *a = device_from(x, sizeof x), *b = device_from(y, sizeof y), *c = device_new(sizeof x);
    cublasLtMatrixTransformDesc_t desc;
    cublasLtMatrixLayoutOpaque_t l, other;
    OK(cublasLtMatrixTransformDescCreate(&desc, CUDA_R_32F));
    OK(cublasLtMatrixLayoutInit(&l, CUDA_R_32F, 2, 3, 2));
    OK(cublasLtMatrixLayoutInit(&other, CUDA_R_32F, 3, 2, 3));
    OK(cublasLtMatrixTransform(handle, desc, &two, a, &l, &half, b, &l, c, &l, 0));
    got = device_back(c, sizeof x);
    for (int i = 0; i < 6; i++) assert_true(got[i] == 2 * x[i] + 0.5f * y[i]);
    test_free(got);
    assert_int_equal(cublasLtMatrixTransform(handle, desc, &two, a, &l, &half, b, &other, c, &l, 0),
                     CUBLAS_STATUS_INVALID_VALUE);
    OK(cublasLtMatrixTransformDescDestroy(desc));
    OK(cudaFree(a)), OK(cudaFree(b)), OK(cudaFree(c));
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
        cmocka_unit_test(heuristics_respect_the_workspace),
        cmocka_unit_test(heuristics_refuse),
        cmocka_unit_test(fp8_rules),
        cmocka_unit_test(refusals),
        cmocka_unit_test(handle_of_cublas),
        cmocka_unit_test(algorithms_by_number),
        cmocka_unit_test(order_of_the_stream),
        cmocka_unit_test(vectors),
        cmocka_unit_test(pointer_arrays),
        cmocka_unit_test(transforms),
        cmocka_unit_test(transform_of_two),
    };
    return cmocka_run_group_tests(tests, create, destroy);
}
