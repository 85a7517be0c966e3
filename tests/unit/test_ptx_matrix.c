/* Products of matrix units, ldmatrix, asynchronous copies: what the interpreter computes against sums in double; what
 * the cost model says against 2 · m · n · k and the interpreter's counts; what the access analysis says against where
 * the matrices lie. The kernels place elements as the manual of PTX does, or leave it to wmma. */
#include "ptx/ptx_access.h"
#include "ptx/ptx_cost.h"
#include "ptx/ptx_interp.h"
#include "tests/unit/ptx_cost_testing.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct ptx_module *matrix, *async;
static uint64_t seed = 7;

static uint32_t draw(uint32_t n) {
    seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % n;
}

static struct ptx_module *read_module(const char *path) {
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("%s: cannot be read", path);
    char *text = malloc(4 << 20);
    size_t bytes = fread(text, 1, 4 << 20, f);
    struct ptx_module *m;
    struct ptx_error e;
    fclose(f);
    if (ptx_parse(text, bytes, &m, &e)) fail_msg("%s:%d: %s", path, e.line, e.text);
    free(text);
    return m;
}

/* ---- formats, as their definitions say ---- */
enum format { F16, BF16, TF32, F32, F64, S8, U8, S32, E4M3, E5M2 };
static const unsigned bytes_of[] = {2, 2, 4, 4, 8, 1, 1, 4, 1, 1};

static double split(uint64_t v, unsigned exponent, unsigned mantissa) {
    int e = (int)(v >> mantissa & ((1u << exponent) - 1)), bias = (1 << (exponent - 1)) - 1;
    double m = (double)(v & ((UINT64_C(1) << mantissa) - 1)) / (double)(UINT64_C(1) << mantissa);
    double x = e ? ldexp(1 + m, e - bias) : ldexp(m, 1 - bias);
    return v >> (exponent + mantissa) & 1 ? -x : x;
}

static double value(enum format f, const unsigned char *p) {
    static const unsigned char exponent[] = {5, 8, 8, 8, 11, 0, 0, 0, 4, 5},
                               mantissa[] = {10, 7, 23, 23, 52, 0, 0, 0, 3, 2};
    uint64_t v = 0;
    int32_t i;
    memcpy(&v, p, bytes_of[f]);
    if (f == S8) return (signed char)*p;
    if (f == U8) return *p;
    if (f == S32) return memcpy(&i, p, 4), (double)i;
    if (f == TF32) v &= ~UINT64_C(0x1fff);
    return split(v, exponent[f], mantissa[f]);
}

/* Numbers of at most 4 or so, of either sign; bytes of all values. */
static void fill(enum format f, unsigned char *p, int n) {
    for (int k = 0; k < n; k++) {
        float x = ((float)draw(2001) - 1000) / 256;
        double d = x;
        uint32_t bits, i = draw(100);
        memcpy(&bits, &x, 4);
        unsigned char *at = p + (size_t)k * bytes_of[f];
        if (f == F64) memcpy(at, &d, 8);
        if (f == F32 || f == TF32) memcpy(at, &bits, 4);
        if (f == BF16) memcpy(at, (unsigned char *)&bits + 2, 2);
        if (f == F16) at[0] = (unsigned char)draw(256), at[1] = (unsigned char)(draw(2) << 7 | (0x30 + draw(18)));
        if (f == S8 || f == U8) at[0] = (unsigned char)draw(256);
        if (f == E4M3) at[0] = (unsigned char)(draw(2) << 7 | draw(0x58));
        if (f == E5M2) at[0] = (unsigned char)(draw(2) << 7 | draw(0x48));
        if (f == S32) memcpy(at, &i, 4);
    }
}

/* ---- one launch ---- */
struct launch {
    const struct ptx_module *m;
    const struct ptx_function *f;
    uint32_t grid[3], block[3];
    unsigned char params[64];
    struct ptx_tally truth;
};

static void interpret(struct launch *l) {
    void *symbols[64] = {0};
    struct ptx_fault fault = {0};
    memset(&l->truth, 0, sizeof l->truth);
    assert_true(l->m->var_count < 64);
    struct ptx_run r = {.module = l->m, .entry = l->f, .params = l->params, .symbols = symbols, .counts = &l->truth};
    memcpy(r.grid, l->grid, sizeof r.grid);
    memcpy(r.block, l->block, sizeof r.block);
    if (ptx_interpret(&r, &fault)) fail_msg("%s: line %d: %s", l->f->name, fault.line, fault.text);
}

/* The price is exact, and what the interpreter counted. */
static struct ptx_cost priced(struct launch *l) {
    struct ptx_cost c;
    if (ptx_cost_launch(l->m, l->f, l->grid, l->block, 0, l->params, &c)) fail_msg("%s: %s", l->f->name, c.why);
    if (c.grade != PTX_COST_EXACT) fail_msg("%s is not exact: %s", l->f->name, c.why);
    struct ptx_tally truth = l->truth;
    fold_spaces(&c, &truth);
    for (unsigned k = 0; k < PTX_T_FIELDS; k++) {
        const struct ptx_count *n = ptx_cost_field(&c, k);
        if (n->lo != truth.n[k] || n->hi != truth.n[k])
            fail_msg("%s: %s is [%lld, %lld], counted %lld", l->f->name, ptx_tally_name(k), (long long)n->lo,
                     (long long)n->hi, (long long)truth.n[k]);
    }
    return c;
}

static struct launch launch_of(const struct ptx_module *m, const char *name) {
    struct launch l = {.m = m, .f = ptx_function_find(m, name), .grid = {1, 1, 1}, .block = {32, 1, 1}};
    if (!l.f) fail_msg("no kernel %s", name);
    if (l.f->error) fail_msg("%s: %s", name, l.f->error);
    return l;
}

/* ---- products of one warp ---- */
struct matrix_case {
    const char *name;
    int m, n, k;
    enum format a, b, c;
    enum ptx_cost_type type; /* PTX_COST_TYPES: integers */
    int wmma;
};
struct side {
    unsigned char *bytes;
    int lines, length, ld; /* as it lies in memory */
    bool turned;           /* element (row, column) is in line `column` */
    enum format f;
};

static struct side side(enum format f, int rows, int columns, bool turned, bool gaps) {
    struct side s = {.lines = turned ? columns : rows, .length = turned ? rows : columns, .turned = turned, .f = f};
    s.ld = s.length + (gaps ? 16 * (int)draw(3) : 0);
    s.bytes = aligned_alloc(64, (size_t)(s.lines * s.ld + 64) * 8);
    fill(f, s.bytes, s.lines * s.ld + 64);
    return s;
}

static unsigned char *at(const struct side *s, int row, int column) {
    return s->bytes + (size_t)bytes_of[s->f] * (size_t)(s->turned ? column * s->ld + row : row * s->ld + column);
}

static double expected(const struct matrix_case *x, const struct side *s, int row, int column, double *size) {
    double sum = value(x->c, at(&s[2], row, column));
    *size = fabs(sum);
    for (int k = 0; k < x->k; k++) {
        double t = value(x->a, at(&s[0], row, k)) * value(x->b, at(&s[1], k, column));
        sum += t;
        *size += fabs(t);
    }
    return x->wmma ? 2 * sum : sum;
}

static void compare(const struct matrix_case *x, const struct side *s) {
    double epsilon = x->c == F16 ? 0x1p-10 : x->c == F32 ? 0x1p-23 : x->c == F64 ? 0x1p-50 : 0;
    for (int row = 0; row < x->m; row++)
        for (int column = 0; column < x->n; column++) {
            double size, want = expected(x, s, row, column, &size), got = value(x->c, at(&s[3], row, column));
            if (!(fabs(want - got) <= 2 * epsilon * size))
                fail_msg("%s: (%d, %d) is %.9g, not %.9g", x->name, row, column, got, want);
        }
}

/* [0, end of the last line) of each, and nothing else. */
static void check_extents(const struct launch *l, const struct side *s) {
    struct ptx_accesses a;
    if (ptx_access_launch(l->m, l->f, l->grid, l->block, l->params, &a)) fail_msg("%s: %s", l->f->name, a.why);
    if (a.unknown || a.slots != 4) fail_msg("%s: %d slots, %s", l->f->name, a.slots, a.why);
    for (int k = 0; k < 4; k++) {
        int64_t end = (int64_t)bytes_of[s[k].f] * ((s[k].lines - 1) * s[k].ld + s[k].length);
        const struct ptx_access *x = &a.slot[k];
        if (!x->extent_known || x->lo != 0 || x->hi != end || x->mode != (k < 3 ? PTX_ACCESS_R : PTX_ACCESS_W))
            fail_msg("%s: operand %d is [%lld, %lld) mode %d, not [0, %lld)", l->f->name, k, (long long)x->lo,
                     (long long)x->hi, x->mode, (long long)end);
    }
    ptx_access_free(&a);
}

static void one_product(const struct matrix_case *x, bool a_turned, bool b_turned, bool c_turned) {
    bool gaps = x->wmma;
    struct side s[4] = {side(x->a, x->m, x->k, a_turned, gaps), side(x->b, x->k, x->n, b_turned, gaps),
                        side(x->c, x->m, x->n, c_turned, gaps)};
    s[3] = s[2];
    s[3].bytes = aligned_alloc(64, (size_t)(s[2].lines * s[2].ld + 64) * 8);
    struct launch l = launch_of(matrix, x->name);
    for (int k = 0; k < 4; k++) memcpy(l.params + 8 * k, &s[k].bytes, 8);
    for (int k = 0; k < 3; k++) memcpy(l.params + 32 + 4 * k, &s[k].ld, 4);
    interpret(&l);
    compare(x, s);
    int64_t flops = (int64_t)2 * x->m * x->n * x->k;
    if (x->type == PTX_COST_TYPES)
        assert_true(l.truth.n[PTX_T_INTEGER] >= flops);
    else
        assert_int_equal(l.truth.n[PTX_T_MATRIX + x->type], flops);
    priced(&l);
    check_extents(&l, s);
    for (int k = 0; k < 4; k++) free(s[k].bytes);
}

static void wmma_products(void **state) {
    static const struct matrix_case types[] = {
        {"f16", 0, 0, 16, F16, F16, F32, PTX_COST_FP16, 1},    {"half", 0, 0, 16, F16, F16, F16, PTX_COST_FP16, 1},
        {"bf16", 0, 0, 16, BF16, BF16, F32, PTX_COST_BF16, 1}, {"s8", 0, 0, 16, S8, S8, S32, PTX_COST_TYPES, 1},
        {"u8", 0, 0, 16, U8, U8, S32, PTX_COST_TYPES, 1},      {"f64", 8, 8, 4, F64, F64, F64, PTX_COST_FP64, 1},
        {"tf32", 16, 16, 8, TF32, TF32, F32, PTX_COST_TF32, 1}};
    static const int shapes[][2] = {{16, 16}, {32, 8}, {8, 32}};
    (void)state;
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (int shape = 0; shape < (types[t].m ? 1 : 3); shape++)
            for (int layout = 0; layout < 4; layout++) {
                struct matrix_case x = types[t];
                char name[32];
                if (!x.m) x.m = shapes[shape][0], x.n = shapes[shape][1];
                snprintf(name, sizeof name, "%s_%d_%d_%c%c", x.name, x.m, x.n, "rc"[layout >> 1], "rc"[layout & 1]);
                x.name = name;
                one_product(&x, layout >> 1, layout & 1, layout == 1 || layout == 2);
            }
}

static void mma_products(void **state) {
    static const struct matrix_case cases[] = {{"mma_f16_16_8_16", 16, 8, 16, F16, F16, F32, PTX_COST_FP16, 0},
                                               {"mma_bf16_16_8_16", 16, 8, 16, BF16, BF16, F32, PTX_COST_BF16, 0},
                                               {"mma_tf32_16_8_8", 16, 8, 8, TF32, TF32, F32, PTX_COST_TF32, 0},
                                               {"mma_s8_16_8_32", 16, 8, 32, S8, S8, S32, PTX_COST_TYPES, 0},
                                               {"mma_u8_16_8_32", 16, 8, 32, U8, U8, S32, PTX_COST_TYPES, 0},
                                               {"mma_e4m3_16_8_32", 16, 8, 32, E4M3, E4M3, F32, PTX_COST_FP8, 0},
                                               {"mma_e5m2_16_8_32", 16, 8, 32, E5M2, E5M2, F32, PTX_COST_FP8, 0},
                                               {"mma_f64_8_8_4", 8, 8, 4, F64, F64, F64, PTX_COST_FP64, 0},
                                               {"ldmatrix_f16_16_8_16", 16, 8, 16, F16, F16, F32, PTX_COST_FP16, 0}};
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) one_product(&cases[k], false, true, false);
}

static void rows_of_matrices(void **state) {
    (void)state;
    uint16_t in[64], out[192];
    void *params[2] = {in, out};
    struct launch l = launch_of(matrix, "rows_f16");
    for (int k = 0; k < 64; k++) in[k] = (uint16_t)draw(65536);
    memcpy(l.params, params, sizeof params);
    interpret(&l);
    for (int k = 0; k < 192; k++) assert_int_equal(out[k], in[k % 8 * 8 + k % 64 / 8]); /* transposed thrice */
    priced(&l);
    /* ldmatrix reads 128 bytes, both stmatrix write as many; what the kernel copies itself: 128 in, 2 × 128 out. */
    assert_int_equal(l.truth.n[PTX_T_LOADED + PTX_COST_SHARED], 128 + 256);
    assert_int_equal(l.truth.n[PTX_T_STORED + PTX_COST_SHARED], 128 + 2 * 128);
}

static void gemm(void **state) {
    enum { M = 128, N = 64, K = 48 };
    (void)state;
    static _Alignas(64) unsigned char a[M * K * 2], b[K * N * 2];
    static _Alignas(64) float c[M * N];
    void *params[3] = {a, b, c};
    int sizes[2] = {N, K};
    struct launch l = launch_of(matrix, "gemm_shared");
    fill(F16, a, M * K);
    fill(F16, b, K * N);
    memcpy(l.params, params, sizeof params);
    memcpy(l.params + sizeof params, sizes, sizeof sizes);
    l.grid[1] = M / 64;
    l.block[0] = 128;
    interpret(&l);
    for (int row = 0; row < M; row++)
        for (int column = 0; column < N; column++) {
            double sum = 0, size = 0;
            for (int k = 0; k < K; k++) {
                double t = value(F16, a + 2 * (row * K + k)) * value(F16, b + 2 * (k * N + column));
                sum += t, size += fabs(t);
            }
            if (fabs(sum - (double)c[row * N + column]) > 0x1p-22 * size) fail_msg("(%d, %d) is wrong", row, column);
        }
    struct ptx_cost cost = priced(&l);
    assert_int_equal(cost.matrix[PTX_COST_FP16].lo, (int64_t)2 * M * N * K);
    assert_int_equal(cost.loaded[PTX_COST_GLOBAL].lo, 2 * (M * K + K * N * (M / 64)));
    assert_int_equal(cost.stored[PTX_COST_GLOBAL].lo, 4 * M * N);
}

/* ---- asynchronous copies ---- */
static struct launch copying(const char *name, void *in, void *out, int n, uint32_t grid, uint32_t block) {
    struct launch l = launch_of(async, name);
    memcpy(l.params, &in, 8);
    memcpy(l.params + 8, &out, 8);
    memcpy(l.params + 16, &n, 4);
    l.grid[0] = grid;
    l.block[0] = block;
    interpret(&l);
    return l;
}

static void copies(void **state) {
    enum { BLOCKS = 3, N = 300, ALL = BLOCKS * 128 };
    (void)state;
    static _Alignas(64) int in[ALL * 4], out[ALL * 4];
    for (int k = 0; k < ALL * 4; k++) in[k] = (int)draw(1 << 30);
    struct launch l = copying("copy_pairs", in, out, N, BLOCKS, 128);
    for (int k = 0; k < ALL; k++)
        for (int e = 0; e < 4; e++) assert_int_equal(out[4 * k + e], (k ^ 1) < N ? in[4 * (k ^ 1) + e] : 0);
    struct ptx_cost c = priced(&l);
    assert_int_equal(c.loaded[PTX_COST_GLOBAL].lo, 16 * N);
    assert_int_equal(c.stored[PTX_COST_SHARED].lo, 16 * ALL);
    struct ptx_accesses a;
    assert_int_equal(ptx_access_launch(l.m, l.f, l.grid, l.block, l.params, &a), 0);
    assert_true(!a.unknown && a.slots == 2 && a.slot[0].mode == PTX_ACCESS_R && a.slot[1].mode == PTX_ACCESS_W);
    assert_true(a.slot[0].extent_known && a.slot[0].lo <= 0 && a.slot[0].hi >= 16 * N);
    assert_true(a.slot[1].extent_known && a.slot[1].lo == 0 && a.slot[1].hi == 16 * ALL);
    ptx_access_free(&a);

    l = copying("copy_half", in, out, 0, BLOCKS, 128);
    for (int k = 0; k < ALL * 4; k++) {
        int thread = k / 4 % 128, from = 4 * (k / 512 * 128 + 127 - thread);
        assert_int_equal(out[k], k % 4 < 2 ? in[from + k % 4] : 0);
    }
    c = priced(&l);
    assert_int_equal(c.loaded[PTX_COST_GLOBAL].lo, 8 * ALL);
}

static void reversed(const char *name, int piece, int pieces, uint32_t grid, uint32_t block) {
    static _Alignas(64) int in[4096], out[4096];
    for (int k = 0; k < piece * pieces; k++) in[k] = (int)draw(1 << 30), out[k] = -1;
    struct launch l = copying(name, in, out, pieces, grid, block);
    for (int k = 0; k < piece * pieces; k++)
        if (out[k] != in[k / piece * piece + piece - 1 - k % piece]) fail_msg("%s: element %d", name, k);
    struct ptx_cost c;
    assert_int_equal(ptx_cost_launch(l.m, l.f, l.grid, l.block, 0, l.params, &c), 0);
    assert_true(c.loaded[PTX_COST_GLOBAL].lo <= 4 * piece * pieces &&
                c.loaded[PTX_COST_GLOBAL].hi >= 4 * piece * pieces);
}

static void barriers(void **state) {
    (void)state;
    reversed("reversed_by_group", 256, 3, 3, 256);
    reversed("reversed_by_barrier", 256, 3, 3, 256);
    reversed("reversed_by_pipeline", 128, 5, 1, 128);
}

static int begin(void **state) {
    (void)state;
    matrix = read_module(MATRIX_PTX);
    async = read_module(ASYNC_PTX);
    return 0;
}

static int end(void **state) {
    (void)state;
    ptx_free(matrix);
    ptx_free(async);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wmma_products), cmocka_unit_test(mma_products), cmocka_unit_test(rows_of_matrices),
        cmocka_unit_test(gemm),          cmocka_unit_test(copies),       cmocka_unit_test(barriers),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
