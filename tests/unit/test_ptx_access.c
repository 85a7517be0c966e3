/* What the access analysis says of the kernels of tests/programs/access_kernels.cu, optimised and not, against what
 * their source says: expected modes and extents are written down here by hand, from the index expressions. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "ptx/ptx_access.h"

static struct ptx_module *module[2]; /* as nvcc makes them by default, and with -G */

static struct ptx_module *load(const char *path) {
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    static char text[1 << 20];
    size_t n = fread(text, 1, sizeof text, file);
    fclose(file);
    struct ptx_module *m;
    struct ptx_error error;
    if (ptx_parse(text, n, &m, &error)) fail_msg("%s:%d:%d: %s", path, error.line, error.column, error.text);
    return m;
}

static int set_up(void **state) {
    (void)state;
    module[0] = load(ACCESS_PTX);
    module[1] = load(ACCESS_PTX_G);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    ptx_free(module[0]);
    ptx_free(module[1]);
    return 0;
}

struct expect {
    int param;
    const char *mode; /* r, w, rw; a: atomic; ?: one of several */
    int64_t lo, hi;   /* bytes; equal: not looked at */
    int dense;        /* 1 must, 0 must not, -1 may */
};

static const struct ptx_access *slot_of(const struct ptx_accesses *a, int param) {
    for (int n = 0; n < a->slots; n++)
        if (a->slot[n].param == param) return &a->slot[n];
    return NULL;
}

static void check_mode(const char *kernel, const struct ptx_access *s, const struct expect *e) {
    unsigned mode = (strchr(e->mode, 'r') ? PTX_ACCESS_R : 0) | (strchr(e->mode, 'w') ? PTX_ACCESS_W : 0);
    if (!s) fail_msg("%s: nothing is said of parameter %d", kernel, e->param);
    if (s->mode != mode || s->atomic != !!strchr(e->mode, 'a') || s->may_be != !!strchr(e->mode, '?'))
        fail_msg("%s: parameter %d: mode %d atomic %d may_be %d", kernel, e->param, s->mode, s->atomic, s->may_be);
}

static void check_extent(const char *kernel, const struct ptx_access *s, const struct expect *e) {
    if (e->lo == e->hi) return;
    if (!s->extent_known || s->lo != e->lo || s->hi != e->hi || (e->dense >= 0 && s->dense != e->dense))
        fail_msg("%s: parameter %d: known %d [%ld, %ld) dense %d", kernel, e->param, s->extent_known, (long)s->lo,
                 (long)s->hi, s->dense);
    if (s->mode == PTX_ACCESS_R) assert_true(s->read_lo == s->lo && s->read_hi == s->hi && s->write_lo == s->write_hi);
    if (s->mode == PTX_ACCESS_W) assert_true(s->write_lo == s->lo && s->write_hi == s->hi && s->read_lo == s->read_hi);
}

/* Arguments as 8-byte values, in the order of the kernel's parameters. */
static void check_launch(const struct ptx_module *m, const char *kernel, const uint32_t grid[3],
                         const uint32_t block[3], const uint64_t *arguments, const struct expect *expected, int count) {
    const struct ptx_function *f = ptx_function_find(m, kernel);
    assert_non_null(f);
    unsigned char *params = calloc(1, f->param_bytes + 8u);
    for (int n = 0; n < f->params; n++) memcpy(params + f->vars[n].offset, &arguments[n], f->vars[n].bytes);
    struct ptx_accesses a;
    assert_int_equal(ptx_access_launch(m, f, grid, block, params, &a), 0);
    if (a.unknown) fail_msg("%s: %s", kernel, a.why);
    assert_int_equal(a.slots, count);
    for (int n = 0; n < count; n++) {
        const struct ptx_access *s = slot_of(&a, expected[n].param);
        check_mode(kernel, s, &expected[n]);
        check_extent(kernel, s, &expected[n]);
    }
    ptx_access_free(&a);
    free(params);
}

#define POINTER 0x7f1234567000u
#define ARGUMENTS(...) ((const uint64_t[]){__VA_ARGS__})
#define LAUNCH(kernel, gx, gy, bx, by, arguments, ...)                               \
    do {                                                                             \
        const struct expect expected[] = {__VA_ARGS__};                              \
        const uint32_t blocks_of[3] = {gx, gy, 1}, threads[3] = {bx, by, 1};         \
        for (int g = 0; g < 2; g++)                                                  \
            check_launch(module[g], kernel, blocks_of, threads, arguments, expected, \
                         sizeof expected / sizeof *expected);                        \
    } while (0)

static void elements(void **state) {
    (void)state;
    for (unsigned n = 1; n <= 1025; n += 128) {
        unsigned blocks = (n + 255) / 256;
        LAUNCH("elementwise", blocks, 1, 256, 1, ARGUMENTS(POINTER, POINTER, POINTER, n), {0, "w", 0, 4 * n, 1},
               {1, "r", 0, 4 * n, 1}, {2, "r", 0, 4 * n, 1});
        LAUNCH("grid_stride", 2, 1, 64, 1, ARGUMENTS(POINTER, n, 0), {0, "rw", 0, 4 * n, 1});
        LAUNCH("vectors", blocks, 1, 256, 1, ARGUMENTS(POINTER, POINTER, n), {0, "w", 0, 16 * n, 1},
               {1, "r", 0, 16 * n, 1});
        LAUNCH("through_calls", blocks, 1, 256, 1, ARGUMENTS(POINTER, POINTER, n), {0, "w", 0, 4 * n, 1},
               {1, "r", 0, 4 * n, 1});
    }
}

static void not_all_elements(void **state) {
    (void)state;
    /* x[2·i], i < 1000: up to byte 4 · 2 · 999 + 4 */
    LAUNCH("every_other", 4, 1, 256, 1, ARGUMENTS(POINTER, 1000), {0, "w", 0, 7996, 0});
    LAUNCH("on_condition", 4, 1, 256, 1, ARGUMENTS(POINTER, POINTER, 1024), {0, "w", 0, 4096, 0},
           {1, "r", 0, 4096, -1});
    /* in[i / 12], i < 1000: elements 0 … 83 */
    LAUNCH("divided", 4, 1, 256, 1, ARGUMENTS(POINTER, POINTER, 1000), {0, "w", 0, 4000, 1}, {1, "r", 0, 336, -1});
}

static void rows(void **state) {
    (void)state;
    for (unsigned C = 1; C < 900; C += 97)
        LAUNCH("rows", 7, 1, 128, 1, ARGUMENTS(POINTER, POINTER, POINTER, C), {0, "w", 0, 7 * 4 * C, 1},
               {1, "r", 0, 7 * 4 * C, 1}, {2, "r", 0, 4 * C, 1});
    /* 4 · 256 / 32 = 32 warps for 30 rows of 768 */
    LAUNCH("rows_of_warps", 4, 1, 256, 1, ARGUMENTS(POINTER, POINTER, POINTER, 30, 768), {0, "w", 0, 30 * 768 * 4, -1},
           {1, "r", 0, 30 * 768 * 4, -1}, {2, "w", 0, 120, -1});
    LAUNCH("flat_index", 4, 1, 256, 1, ARGUMENTS(POINTER, POINTER, 20, 50), {0, "rw", 0, 4000, 1},
           {1, "r", 0, 200, -1});
    LAUNCH("causal", 20, 1, 32, 1, ARGUMENTS(POINTER, 20), {0, "rw", 0, 1600, 1});
    LAUNCH("triangle", 20, 1, 32, 1, ARGUMENTS(POINTER, 20), {0, "w", 0, 1600, 0});
    LAUNCH("tile", 3, 2, 16, 16, ARGUMENTS(POINTER, POINTER, 48, 32), {0, "w", 0, 6144, -1}, {1, "r", 0, 6144, -1});
}

static void indices_from_memory(void **state) {
    (void)state;
    const uint32_t grid[3] = {4, 1, 1}, block[3] = {256, 1, 1};
    for (int g = 0; g < 2; g++) {
        const struct ptx_function *f = ptx_function_find(module[g], "gather");
        const uint64_t arguments[4] = {POINTER, POINTER, POINTER, 100};
        struct ptx_accesses a;
        assert_int_equal(ptx_access_launch(module[g], f, grid, block, arguments, &a), 0);
        assert_false(a.unknown);
        const struct ptx_access *table = slot_of(&a, 1);
        assert_non_null(table);
        assert_int_equal(table->mode, PTX_ACCESS_R);
        assert_false(table->extent_known);
        ptx_access_free(&a);
    }
    LAUNCH("gather", 4, 1, 256, 1, ARGUMENTS(POINTER, POINTER, POINTER, 100), {0, "w", 0, 1600, 1}, {1, "r", 0, 0, -1},
           {2, "r", 0, 16, 1});
    LAUNCH("scatter_add", 4, 1, 256, 1, ARGUMENTS(POINTER, POINTER, 1000), {0, "rwa", 0, 1024, 0},
           {1, "r", 0, 1000, 1});
}

static void null_and_selected_pointers(void **state) {
    (void)state;
    LAUNCH("maybe_null", 4, 1, 256, 1, ARGUMENTS(POINTER, 0, 1000), {0, "rw", 0, 4000, 1});
    LAUNCH("maybe_null", 4, 1, 256, 1, ARGUMENTS(POINTER, POINTER, 1000), {0, "rw", 0, 4000, 1}, {1, "w", 0, 4000, 1});
    LAUNCH("selected", 1, 1, 64, 1, ARGUMENTS(POINTER, POINTER, POINTER, 4), {0, "w", 0, 256, 1}, {2, "r", 0, 256, 1});
    LAUNCH("selected", 1, 1, 64, 1, ARGUMENTS(POINTER, POINTER, POINTER, 3), {1, "w", 0, 256, 1}, {2, "r", 0, 256, 1});
}

/* What stands behind a loop, or a call, is executed only by threads that have not ended in it. */
static void ended_before(void **state) {
    (void)state;
    /* k = -8, b = -8: 4 · (-8) < -16, nobody writes */
    LAUNCH("side_exit", 2, 1, 32, 1, ARGUMENTS(POINTER, 1000, (uint32_t)-8), {0, "w", 0, 256, 0});
    LAUNCH("side_exit", 2, 1, 32, 1, ARGUMENTS(POINTER, 10, 0), {0, "w", 0, 256, 1}); /* the loop is left out */
    /* threads below 10 leave; none does where k never is what they wait for */
    LAUNCH("own_exit", 1, 1, 64, 1, ARGUMENTS(POINTER, 10, 0), {0, "w", 40, 256, -1});
    LAUNCH("own_exit", 1, 1, 64, 1, ARGUMENTS(POINTER, 10, 300), {0, "w", 0, 256, 1});
    LAUNCH("own_exit", 1, 1, 64, 1, ARGUMENTS(POINTER, 10, (uint32_t)-300), {0, "w", 0, 256, 1});
    LAUNCH("ended_in_calls", 1, 1, 64, 1, ARGUMENTS(POINTER, POINTER, POINTER), {0, "w", 0, 256, 0}, {1, "r", 4, 8, 1},
           {2, "w", 0, 256, 1});
    LAUNCH("ended_in_a_loop", 1, 1, 64, 1, ARGUMENTS(POINTER, POINTER, 10), {0, "w", 0, 40, 0}, {1, "r", 0, 40, 0});
    LAUNCH("ended_before", 1, 1, 64, 1, ARGUMENTS(POINTER, POINTER, 10), {0, "w", 0, 256, 0}, {1, "r", 0, 40, 0});
}

/* ---- for every launch ---- */
static void check_static(const char *kernel, const struct expect *expected, int count) {
    for (int g = 0; g < 2; g++) {
        const struct ptx_function *f = ptx_function_find(module[g], kernel);
        struct ptx_accesses a;
        assert_non_null(f);
        assert_int_equal(ptx_access_static(module[g], f, &a), 0);
        if (a.unknown) fail_msg("%s: %s", kernel, a.why);
        assert_int_equal(a.slots, count);
        for (int n = 0; n < count; n++) check_mode(kernel, slot_of(&a, expected[n].param), &expected[n]);
        ptx_access_free(&a);
    }
}
#define STATIC(kernel, ...)                                                 \
    do {                                                                    \
        const struct expect expected[] = {__VA_ARGS__};                     \
        check_static(kernel, expected, sizeof expected / sizeof *expected); \
    } while (0)

static void modes(void **state) {
    (void)state;
    STATIC("elementwise", {0, "w"}, {1, "r"}, {2, "r"});
    STATIC("grid_stride_long", {0, "w"});
    STATIC("rows_of_warps", {0, "w"}, {1, "r"}, {2, "w"});
    STATIC("gather", {0, "w"}, {1, "r"}, {2, "r"});
    STATIC("guarded_gather", {0, "w"}, {1, "r"}, {2, "r"});
    STATIC("scatter_add", {0, "rwa"}, {1, "r"});
    STATIC("selected", {0, "w?"}, {1, "w?"}, {2, "r"});
    STATIC("maybe_null", {0, "rw"}, {1, "w"});
    STATIC("through_calls", {0, "w"}, {1, "r"});
}

/* Pointers in a struct that is passed by value: a slot for each, at its offset in the struct. */
static void pointers_in_structs(void **state) {
    (void)state;
    struct field_params {
        float *out;
        const float *in;
        int n;
        float scale;
    };
    struct list_params {
        float *list[4];
        int n;
    };
    for (int g = 0; g < 2; g++) {
        struct ptx_accesses a;
        assert_int_equal(ptx_access_static(module[g], ptx_function_find(module[g], "fields"), &a), 0);
        assert_int_equal(a.slots, 2);
        assert_int_equal(a.slot[0].offset, offsetof(struct field_params, out));
        assert_int_equal(a.slot[0].mode, PTX_ACCESS_W);
        assert_int_equal(a.slot[1].offset, offsetof(struct field_params, in));
        assert_int_equal(a.slot[1].mode, PTX_ACCESS_R);
        assert_false(a.unknown);
        ptx_access_free(&a);
        assert_int_equal(ptx_access_static(module[g], ptx_function_find(module[g], "listed"), &a), 0);
        assert_false(a.unknown);
        assert_int_equal(a.slots, 4);
        for (int n = 0; n < 4; n++) {
            assert_int_equal(a.slot[n].offset, offsetof(struct list_params, list) + 8 * (size_t)n);
            assert_int_equal(a.slot[n].mode, PTX_ACCESS_W);
            assert_true(a.slot[n].may_be);
        }
        ptx_access_free(&a);
    }
}

static void variables_of_the_module(void **state) {
    (void)state;
    for (int g = 0; g < 2; g++) {
        struct ptx_accesses a;
        assert_int_equal(ptx_access_static(module[g], ptx_function_find(module[g], "module_variable"), &a), 0);
        assert_false(a.unknown);
        assert_int_equal(a.slots, 2);
        assert_int_equal(a.slot[1].param, -1);
        assert_int_equal(a.slot[1].var, ptx_global_find(module[g], "accumulator"));
        assert_int_equal(a.slot[1].mode, PTX_ACCESS_RW);
        ptx_access_free(&a);
    }
}

static void unknown_is_said(void **state) {
    (void)state;
    for (int g = 0; g < 2; g++) {
        struct ptx_accesses a;
        assert_int_equal(ptx_access_static(module[g], ptx_function_find(module[g], "from_memory"), &a), 0);
        assert_true(a.unknown && a.unknown_writes);
        assert_int_equal(strncmp(a.why, "line ", 5), 0);
        assert_int_equal(a.slots, 1); /* the list itself is read */
        assert_int_equal(a.slot[0].mode, PTX_ACCESS_R);
        ptx_access_free(&a);
    }
}

/* Bytes of the arguments that ptx_access_uses leaves out change nothing, whatever they are. */
static void unused_arguments_change_nothing(void **state) {
    (void)state;
    const uint32_t grid[3] = {7, 1, 1}, block[3] = {64, 1, 1};
    int left_out = 0;
    for (int g = 0; g < 2; g++)
        for (int32_t k = 0; k < module[g]->function_count; k++) {
            const struct ptx_function *f = &module[g]->functions[k];
            if (!f->entry || f->declared_only || f->error) continue;
            unsigned char uses[4096], args[2][4096];
            assert_true(f->param_bytes <= sizeof uses);
            ptx_access_uses(module[g], f, uses);
            for (uint32_t i = 0; i < f->param_bytes; i++) {
                args[0][i] = i % 4 ? 0 : 8; /* small numbers */
                args[1][i] = uses[i] ? args[0][i] : (unsigned char)(31 * i + 17);
                left_out += !uses[i];
            }
            struct ptx_accesses a, b;
            assert_int_equal(ptx_access_launch(module[g], f, grid, block, args[0], &a), 0);
            assert_int_equal(ptx_access_launch(module[g], f, grid, block, args[1], &b), 0);
            assert_int_equal(a.slots, b.slots);
            assert_int_equal(a.unknown, b.unknown);
            for (int32_t n = 0; n < a.slots; n++) {
                const struct ptx_access *x = &a.slot[n], *y = &b.slot[n];
                assert_true(x->mode == y->mode && x->offset == y->offset && x->dense == y->dense &&
                            x->may_be == y->may_be);
                assert_true(x->extent_known == y->extent_known && x->lo == y->lo && x->hi == y->hi);
                assert_true(x->read_lo == y->read_lo && x->read_hi == y->read_hi && x->write_lo == y->write_lo &&
                            x->write_hi == y->write_hi);
            }
            ptx_access_free(&a);
            ptx_access_free(&b);
        }
    assert_true(left_out > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unused_arguments_change_nothing),
        cmocka_unit_test(elements),
        cmocka_unit_test(not_all_elements),
        cmocka_unit_test(rows),
        cmocka_unit_test(indices_from_memory),
        cmocka_unit_test(null_and_selected_pointers),
        cmocka_unit_test(ended_before),
        cmocka_unit_test(modes),
        cmocka_unit_test(pointers_in_structs),
        cmocka_unit_test(variables_of_the_module),
        cmocka_unit_test(unknown_is_said),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
