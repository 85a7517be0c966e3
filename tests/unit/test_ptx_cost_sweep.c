/* The cost model against the interpreter's counts: every kernel of the sample app, of the access analysis' tests and of
 * the benchmarks, in many shapes of grid and block (one thread, one block, sizes that divide nothing, two and three
 * dimensions) and with many values of its scalars; from optimised and from debugging PTX. Where the grade says exact,
 * all counts must be equal; else within the bounds. */
#include "ptx/ptx_access.h"
#include "ptx/ptx_cost.h"
#include "ptx/ptx_interp.h"
#include "tests/unit/ptx_cost_testing.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BUFFERS = 12, LAUNCHES = 12, BYTES = 1 << 28, MOST = 400000 };
static unsigned char *buffer[BUFFERS];
static uint64_t seed = 1;
static int compared, skipped, graded[3], problems;
static struct extent { /* of what was touched, from the buffer's begin; lo == hi: nothing */
    int64_t lo, hi;
} touched[BUFFERS][2]; /* reads, writes */
static int extents, exact_extents, unknown_extents;

static uint32_t draw(uint32_t n) { /* below n */
    seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % n;
}

static void note(struct extent *e, int64_t lo, int64_t hi) {
    if (e->lo == e->hi) *e = (struct extent){lo, hi};
    if (lo < e->lo) e->lo = lo;
    if (hi > e->hi) e->hi = hi;
}

static int allowed(void *context, const struct ptx_touch *t) {
    void *const *symbols = context;
    for (int k = 0; k < BUFFERS; k++) {
        uint64_t at = t->address - (uint64_t)(uintptr_t)buffer[k];
        if (at > BYTES - t->bytes) continue;
        if (t->properties & PTX_P_READS) note(&touched[k][0], (int64_t)at, (int64_t)at + t->bytes);
        if (t->properties & PTX_P_WRITES) note(&touched[k][1], (int64_t)at, (int64_t)at + t->bytes);
        return 0;
    }
    for (int k = 0; symbols[k]; k++)
        if (t->address - (uint64_t)(uintptr_t)symbols[k] <= (1 << 16) - t->bytes) return 0;
    return -1;
}

/* Some index data that a kernel may follow: small numbers. */
static void fill(void) {
    for (int k = 0; k < BUFFERS; k++)
        for (int n = 0; n < 4096; n++) {
            uint32_t v = draw(4);
            memcpy(buffer[k] + 4 * n, &v, 4);
        }
}

static uint32_t number(void) {
    static const uint32_t likely[] = {0,  1,  2,  3,   4,   7,   8,   12,  16,  31,  32,
                                      33, 48, 64, 100, 127, 128, 129, 256, 300, 768, 1000};
    return likely[draw(sizeof likely / sizeof *likely)];
}

static bool is_pointer(const struct ptx_accesses *a, uint64_t offset) {
    for (int32_t k = 0; k < a->slots; k++)
        if (a->slot[k].var < 0 && a->slot[k].offset == offset) return true;
    return false;
}

/* Pointers (what the kernel accesses memory through), numbers, floats; structs piece by piece. */
static void arguments(const struct ptx_function *f, const struct ptx_accesses *a, unsigned char *params) {
    int pointers = 0;
    memset(params, 0, f->param_bytes + 8u);
    for (int32_t k = 0; k < f->params; k++) {
        const struct ptx_var *v = &f->vars[k];
        for (uint64_t b = 0; b < v->bytes; b += 8) {
            uint64_t n = number(), left = v->bytes - b < 8 ? v->bytes - b : 8;
            float x = (float)draw(5) / 4;
            if (is_pointer(a, v->offset + b)) n = draw(12) ? (uint64_t)(uintptr_t)buffer[pointers++ % BUFFERS] : 0;
            if (v->type == PTX_F32) memcpy(&n, &x, 4);
            memcpy(params + v->offset + b, &n, left);
        }
    }
}

static void shape(uint32_t grid[3], uint32_t block[3], const struct ptx_function *f) {
    static const uint32_t blocks[][3] = {{1, 1, 1},   {32, 1, 1},  {64, 1, 1}, {256, 1, 1}, {33, 1, 1},
                                         {100, 1, 1}, {32, 16, 1}, {8, 4, 2},  {16, 3, 1},  {5, 5, 5}},
                          grids[][3] = {{1, 1, 1},  {2, 1, 1}, {3, 1, 1}, {7, 1, 1},
                                        {16, 1, 1}, {3, 2, 1}, {2, 3, 2}, {1, 5, 1}};
    memcpy(block, blocks[draw(10)], 12);
    memcpy(grid, grids[draw(8)], 12);
    for (int k = 0; k < 3; k++)
        if (f->required_threads[0]) block[k] = f->required_threads[k] ? f->required_threads[k] : 1;
}

static int buffer_of(const unsigned char *params, const struct ptx_access *slot) {
    uint64_t p;
    memcpy(&p, params + slot->offset, sizeof p);
    for (int k = 0; k < BUFFERS && slot->param >= 0; k++)
        if (p == (uint64_t)(uintptr_t)buffer[k]) return k;
    return -1;
}

/* strict: to the byte also where the analysis does not say that all of it is touched */
static bool strict;

/* What was touched lies within what was said; where nothing depends on data, it is the same. */
static void compare_extent(const struct ptx_function *f, const struct ptx_run *r, const struct ptx_access *slot,
                           const char *how, struct extent said, struct extent truth, bool to_the_byte) {
    bool holds = truth.lo == truth.hi || (said.lo <= truth.lo && truth.hi <= said.hi);
    bool same = said.lo == said.hi ? truth.lo == truth.hi : said.lo == truth.lo && said.hi == truth.hi;
    extents++;
    exact_extents += same;
    if (holds && (same || !to_the_byte)) return;
    print_error("%s, grid %u %u %u, block %u %u %u: offset %u is %s in [%lld, %lld), said [%lld, %lld)\n", f->name,
                r->grid[0], r->grid[1], r->grid[2], r->block[0], r->block[1], r->block[2], slot->offset, how,
                (long long)truth.lo, (long long)truth.hi, (long long)said.lo, (long long)said.hi);
    problems++;
}

static void compare_extents(const struct ptx_module *m, const struct ptx_function *f, const struct ptx_run *r,
                            bool exact) {
    struct ptx_accesses a;
    if (ptx_access_launch(m, f, r->grid, r->block, r->params, &a)) fail_msg("%s: %s", f->name, a.why);
    for (int32_t n = 0; n < a.slots && !a.unknown; n++) {
        int k = buffer_of(r->params, &a.slot[n]);
        if (k < 0) continue;
        if (!a.slot[n].extent_known) {
            unknown_extents++;
            if (exact && strict) problems++, print_error("%s: offset %u: no extent\n", f->name, a.slot[n].offset);
            continue;
        }
        const struct ptx_access *slot = &a.slot[n];
        struct extent both = touched[k][0];
        if (touched[k][1].lo != touched[k][1].hi) note(&both, touched[k][1].lo, touched[k][1].hi);
        compare_extent(f, r, slot, "read", (struct extent){slot->read_lo, slot->read_hi}, touched[k][0],
                       exact && strict);
        compare_extent(f, r, slot, "written", (struct extent){slot->write_lo, slot->write_hi}, touched[k][1],
                       exact && strict);
        compare_extent(f, r, slot, "touched", (struct extent){slot->lo, slot->hi}, both,
                       exact && (strict || slot->dense));
    }
    ptx_access_free(&a);
}

static void compare(const struct ptx_module *m, const struct ptx_function *f, const struct ptx_accesses *a,
                    void *const *symbols, int launch) {
    struct ptx_tally truth = {{0}};
    struct ptx_cost cost;
    struct ptx_fault fault;
    unsigned char params[1024];
    struct ptx_run run = {.module = m,
                          .entry = f,
                          .dynamic_shared = 4096,
                          .params = params,
                          .symbols = symbols,
                          .max_instructions = MOST,
                          .touch = allowed,
                          .context = (void *)symbols,
                          .counts = &truth};
    if (f->param_bytes > sizeof params - 8) return;
    shape(run.grid, run.block, f);
    arguments(f, a, params);
    fill();
    memset(touched, 0, sizeof touched);
    if (ptx_cost_launch(m, f, run.grid, run.block, run.dynamic_shared, params, &cost))
        fail_msg("%s: %s", f->name, cost.why);
    if (ptx_interpret(&run, &fault)) {
        skipped++; /* a null pointer, too long */
        return;
    }
    compare_extents(m, f, &run, cost.grade == PTX_COST_EXACT);
    compared++;
    graded[cost.grade]++;
    fold_spaces(&cost, &truth);
    for (unsigned k = 0; k < PTX_T_FIELDS; k++) {
        const struct ptx_count *n = ptx_cost_field(&cost, k);
        bool good = cost.grade == PTX_COST_EXACT ? n->lo == truth.n[k] && n->hi == n->lo
                                                 : n->lo <= truth.n[k] && truth.n[k] <= n->hi;
        if (good) continue;
        print_error("%s, launch %d, grid %u %u %u, block %u %u %u: %s is %lld, said [%lld, %lld], grade %d %s\n",
                    f->name, launch, run.grid[0], run.grid[1], run.grid[2], run.block[0], run.block[1], run.block[2],
                    ptx_tally_name(k), (long long)truth.n[k], (long long)n->lo, (long long)n->hi, cost.grade, cost.why);
        problems++;
    }
}

static struct ptx_module *open_beside(const char *name) {
    char self[PATH_MAX] = "", path[PATH_MAX + 64];
    assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    snprintf(path, sizeof path, "%s/%s", dirname(self), name);
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("%s: cannot be read", path);
    char *text = malloc(16 << 20);
    size_t bytes = fread(text, 1, 16 << 20, f);
    fclose(f);
    struct ptx_module *m = NULL;
    struct ptx_error e;
    if (ptx_parse(text, bytes, &m, &e)) fail_msg("%s: %s", path, e.text);
    free(text);
    return m;
}

static void sweep(const char *name, int least_exact_percent) {
    struct ptx_module *m = open_beside(name);
    void **symbols = calloc((size_t)m->var_count + 1, sizeof *symbols);
    strict = false;
    compared = skipped = problems = extents = exact_extents = unknown_extents = 0;
    memset(graded, 0, sizeof graded);
    for (int32_t k = 0; k < m->var_count; k++) {
        symbols[k] = calloc(1, (1 << 16) + m->vars[k].bytes);
        if (m->vars[k].init) memcpy(symbols[k], m->vars[k].init, m->vars[k].bytes);
    }
    for (int32_t k = 0; k < m->function_count; k++) {
        const struct ptx_function *f = &m->functions[k];
        if (!f->entry || f->error) continue;
        struct ptx_accesses a;
        assert_int_equal(ptx_access_static(m, f, &a), 0);
        for (int n = 0; n < LAUNCHES; n++) compare(m, f, &a, symbols, n);
        ptx_access_free(&a);
    }
    print_message("%s: %d launches compared (%d skipped), %d exact, %d bound\n", name, compared, skipped,
                  graded[PTX_COST_EXACT], graded[PTX_COST_BOUND]);
    print_message("%d extents, %d of them to the byte, %d not known\n", extents, exact_extents, unknown_extents);
    for (int32_t k = 0; k < m->var_count; k++) free(symbols[k]);
    free(symbols);
    ptx_free(m);
    assert_int_equal(problems, 0);
    assert_int_equal(graded[PTX_COST_SAMPLED], 0);
    assert_true(compared > 3 * LAUNCHES && compared > skipped);
    assert_true(100 * graded[PTX_COST_EXACT] >= least_exact_percent * compared);
}

static void sample_app(void **state) {
    (void)state;
    sweep("cost/gpt_kernels.ptx", 70);
}
static void sample_app_debug(void **state) {
    (void)state;
    sweep("cost/gpt_kernels_g.ptx", 60);
}
static void optimizers(void **state) {
    (void)state;
    sweep("cost/optimizer_kernels.ptx", 70);
}
static void access_kernels(void **state) {
    (void)state;
    sweep("access_kernels.ptx", 70);
}
static void access_kernels_debug(void **state) {
    (void)state;
    sweep("access_kernels_g.ptx", 60);
}
static void benchmarks(void **state) {
    (void)state;
    sweep("cost/bench_jit_kernels.ptx", 90);
}

/* ---- shapes as the sample app has them ---- */
enum { B = 2, T = 64, H = 3, Q = 16, C = H * Q, V = 130, ROWS = B * T };
struct real {
    const char *kernel; /* a part of its mangled name */
    uint32_t grid[2], block[2];
    const char *args; /* p pointer, f float, a number */
};
#define BLOCKS(n) (((n) + 255) / 256)
#define ROWS_OF(n) (((n) + 7) / 8)

static void one_real(const struct ptx_module *m, const struct ptx_function *f, const struct real *l) {
    struct ptx_tally truth = {{0}};
    struct ptx_cost cost;
    struct ptx_fault fault = {0};
    unsigned char params[256] = {0};
    char text[64];
    int n = 0;
    void *none[1] = {NULL};
    struct ptx_run run = {.module = m,
                          .entry = f,
                          .params = params,
                          .symbols = none,
                          .touch = allowed,
                          .context = none,
                          .grid = {l->grid[0], l->grid[1], 1},
                          .block = {l->block[0], l->block[1], 1},
                          .counts = &truth};
    snprintf(text, sizeof text, "%s", l->args);
    for (char *save = NULL, *a = strtok_r(text, " ", &save); a; a = strtok_r(NULL, " ", &save), n++) {
        float half = 0.5f;
        uint64_t v = *a == 'p' ? (uint64_t)(uintptr_t)buffer[n] : strtoull(a, NULL, 10);
        if (*a == 'f') memcpy(&v, &half, sizeof half);
        memcpy(params + f->vars[n].offset, &v, f->vars[n].bytes);
    }
    assert_int_equal(n, f->params);
    fill();
    memset(touched, 0, sizeof touched);
    if (ptx_interpret(&run, &fault)) fail_msg("%s: %s", f->name, fault.text);
    if (ptx_cost_launch(m, f, run.grid, run.block, 0, params, &cost)) fail_msg("%s: %s", f->name, cost.why);
    compare_extents(m, f, &run, cost.grade == PTX_COST_EXACT);
}

/* Wherever nothing depends on data, what is read and written is told to the byte. */
static void real_shapes(void **state) {
    static const struct real launches[] = {
        {"embed_positions_backward", {BLOCKS(T * C), 1}, {256, 1}, "p p 2 3072"},
        {"embed_tokens_backward", {V, 1}, {256, 1}, "p p p 128 48"},
        {"16layernorm_kernel", {ROWS_OF(ROWS), 1}, {256, 1}, "p p p p p p 128 48"},
        {"layernorm_backward", {ROWS_OF(ROWS), 1}, {256, 1}, "p p p p p p 128 48"},
        {"layernorm_weights_backward", {(C + 31) / 32, 1}, {32, 16}, "p p p p p p 128 48"},
        {"bias_backward", {(C + 31) / 32, 1}, {32, 16}, "p p 128 48"},
        {"18split_heads_kernel", {ROWS, 1}, {256, 1}, "p p p p 64 3 16"},
        {"split_heads_backward", {ROWS, 1}, {256, 1}, "p p p p 64 3 16"},
        {"17join_heads_kernel", {ROWS, 1}, {256, 1}, "p p 64 3 16"},
        {"join_heads_backward", {ROWS, 1}, {256, 1}, "p p 64 3 16"},
        {"21causal_softmax_kernel", {ROWS_OF(B * H * T), 1}, {256, 1}, "p 384 64 f"},
        {"causal_softmax_backward", {ROWS_OF(B * H * T), 1}, {256, 1}, "p p 384 64 f"},
        {"add_bias_kernel", {ROWS, 1}, {256, 1}, "p p 144"},
        {"residual_kernel", {BLOCKS(ROWS * C), 1}, {256, 1}, "p p p 6144"},
        {"11gelu_kernel", {BLOCKS(ROWS * C * 4), 1}, {256, 1}, "p p 24576"},
        {"gelu_backward", {BLOCKS(ROWS * C * 4), 1}, {256, 1}, "p p 24576"},
        {"mean_kernel", {1, 1}, {256, 1}, "p p 128"},
        {"fill_kernel", {BLOCKS(1000), 1}, {256, 1}, "p 1000 f"},
    };
    (void)state;
    struct ptx_module *m = open_beside("cost/gpt_kernels.ptx");
    problems = extents = exact_extents = unknown_extents = 0;
    strict = true;
    for (size_t n = 0; n < sizeof launches / sizeof *launches; n++)
        for (int32_t k = 0; k < m->function_count; k++)
            if (m->functions[k].entry && strstr(m->functions[k].name, launches[n].kernel))
                one_real(m, &m->functions[k], &launches[n]);
    strict = false;
    print_message("%d extents of real launches, %d of them to the byte, %d not known\n", extents, exact_extents,
                  unknown_extents);
    ptx_free(m);
    assert_int_equal(problems, 0);
}

/* Numbers from a hash of the thread's number decide how often it repeats: counted on some threads, within 1 %, and
 * soon. */
static void samples(void **state) {
    (void)state;
    struct ptx_module *m = open_beside("cost/gpt_kernels.ptx");
    void **symbols = calloc((size_t)m->var_count + 1, sizeof *symbols);
    const struct ptx_function *f = NULL;
    for (int32_t k = 0; k < m->var_count; k++) {
        symbols[k] = calloc(1, (1 << 16) + m->vars[k].bytes);
        if (m->vars[k].init) memcpy(symbols[k], m->vars[k].init, m->vars[k].bytes);
    }
    for (int32_t k = 0; k < m->function_count; k++)
        if (strstr(m->functions[k].name, "init_normal_kernelIf")) f = &m->functions[k];
    assert_non_null(f);
    for (int round = 0; round < 3; round++) {
        enum { N = 200000 };
        struct ptx_tally truth = {{0}};
        struct ptx_cost cost;
        struct ptx_fault fault = {0};
        unsigned char params[64] = {0};
        int n = N;
        float deviation = 0.02f;
        uint64_t p = (uint64_t)(uintptr_t)buffer[0], key = draw(1 << 30);
        struct ptx_run run = {.module = m,
                              .entry = f,
                              .params = params,
                              .symbols = symbols,
                              .touch = allowed,
                              .context = symbols,
                              .grid = {(N + 255) / 256, 1, 1},
                              .block = {256, 1, 1},
                              .counts = &truth};
        memcpy(params + f->vars[0].offset, &p, 8);
        memcpy(params + f->vars[1].offset, &n, 4);
        memcpy(params + f->vars[2].offset, &deviation, 4);
        memcpy(params + f->vars[3].offset, &key, 8);
        if (ptx_interpret(&run, &fault)) fail_msg("%s", fault.text);
        uint64_t most = round ? 4000000 : 0; /* as the analysis has it; as usual */
        if (ptx_cost_launch_within(most, m, f, run.grid, run.block, 0, params, &cost)) fail_msg("%s", cost.why);
        assert_int_equal(cost.grade, PTX_COST_SAMPLED);
        assert_true(cost.steps < 80000);
        assert_true(cost.blocks_counted < (N + 255) / 256 && cost.why[0]);
        fold_spaces(&cost, &truth);
        for (unsigned k = 0; k < PTX_T_FIELDS; k++) {
            const struct ptx_count *c = ptx_cost_field(&cost, k);
            double middle = ((double)c->lo + (double)c->hi) / 2, t = (double)truth.n[k];
            if (middle < 0.99 * t || middle > 1.01 * t || c->lo != c->hi)
                fail_msg("%s: [%lld, %lld], not %lld", ptx_tally_name(k), (long long)c->lo, (long long)c->hi,
                         (long long)truth.n[k]);
        }
    }
    for (int32_t k = 0; k < m->var_count; k++) free(symbols[k]);
    free(symbols);
    ptx_free(m);
}

static int reserve(void **state) {
    (void)state;
    for (int k = 0; k < BUFFERS; k++) {
        buffer[k] = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (buffer[k] == MAP_FAILED) return -1;
    }
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(real_shapes),          cmocka_unit_test(samples),
                                       cmocka_unit_test(sample_app),           cmocka_unit_test(sample_app_debug),
                                       cmocka_unit_test(optimizers),           cmocka_unit_test(access_kernels),
                                       cmocka_unit_test(access_kernels_debug), cmocka_unit_test(benchmarks)};
    return cmocka_run_group_tests(tests, reserve, NULL);
}
