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

static uint32_t draw(uint32_t n) { /* below n */
    seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % n;
}

static int allowed(void *context, const struct ptx_touch *t) {
    void *const *symbols = context;
    for (int k = 0; k < BUFFERS; k++)
        if (t->address - (uint64_t)(uintptr_t)buffer[k] <= BYTES - t->bytes) return 0;
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
    if (ptx_cost_launch(m, f, run.grid, run.block, run.dynamic_shared, params, &cost))
        fail_msg("%s: %s", f->name, cost.why);
    if (ptx_interpret(&run, &fault)) {
        skipped++; /* a null pointer, too long */
        return;
    }
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
    compared = skipped = problems = 0;
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

static int reserve(void **state) {
    (void)state;
    for (int k = 0; k < BUFFERS; k++) {
        buffer[k] = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (buffer[k] == MAP_FAILED) return -1;
    }
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(sample_app),           cmocka_unit_test(sample_app_debug),
                                       cmocka_unit_test(optimizers),           cmocka_unit_test(access_kernels),
                                       cmocka_unit_test(access_kernels_debug), cmocka_unit_test(benchmarks)};
    return cmocka_run_group_tests(tests, reserve, NULL);
}
