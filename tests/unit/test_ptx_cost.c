/* The cost model by formula: kernels of tests/programs/cost_kernels.cu, whose operations and bytes are counted here by
 * hand from their source, at sizes up to 1e9 threads and in between, with a limit on the time it may take to price
 * them; what bounds of branches on data contain; single forms of arithmetic, and random ones, against the interpreter.
 */
#include "ptx/ptx_cost.h"
#include "ptx/ptx_interp.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SLOWER 30 /* with a sanitizer */
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SLOWER 30
#endif
#endif
#ifndef SLOWER
#define SLOWER 1
#endif

static struct ptx_module *kernels;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- launches: arguments by a text: p a pointer, f a float, z the float 0, else an integer ---- */
static void pack(const struct ptx_function *f, const char *args, unsigned char *params) {
    char text[128];
    int k = 0;
    snprintf(text, sizeof text, "%s", args);
    for (char *save = NULL, *a = strtok_r(text, " ", &save); a && k < f->params; a = strtok_r(NULL, " ", &save), k++) {
        float half = *a == 'z' ? 0 : 0.5f;
        uint64_t v = *a == 'p' ? UINT64_C(0x7f0000000000) + ((uint64_t)k << 36) : (uint64_t)strtoll(a, NULL, 10);
        if (*a == 'f' || *a == 'z') memcpy(&v, &half, sizeof half), v &= UINT32_MAX;
        memcpy(params + f->vars[k].offset, &v, f->vars[k].bytes < 8 ? f->vars[k].bytes : 8);
    }
}

static struct ptx_cost price3(const char *kernel, const uint32_t grid[3], const uint32_t block[3], double most_seconds,
                              const char *args) {
    struct ptx_cost c;
    unsigned char params[256] = {0};
    const struct ptx_function *f = ptx_function_find(kernels, kernel);
    assert_non_null(f);
    pack(f, args, params);
    double t = now();
    if (ptx_cost_launch(kernels, f, grid, block, 0, params, &c)) fail_msg("%s: %s", kernel, c.why);
    t = now() - t;
    if (t > SLOWER * most_seconds) fail_msg("%s (%s): %.3f s to price", kernel, args, t);
    return c;
}

__attribute__((format(printf, 5, 6))) static struct ptx_cost price(const char *kernel, uint32_t grid, uint32_t block,
                                                                   double most_seconds, const char *format, ...) {
    char args[128];
    va_list a;
    va_start(a, format);
    vsnprintf(args, sizeof args, format, a);
    va_end(a);
    return price3(kernel, (uint32_t[]){grid, 1, 1}, (uint32_t[]){block, 1, 1}, most_seconds, args);
}

static void is(const char *what, struct ptx_count c, int64_t want) {
    if (c.lo != want || c.hi != want)
        fail_msg("%s: [%lld, %lld], not %lld", what, (long long)c.lo, (long long)c.hi, (long long)want);
}

static void is_exact(const struct ptx_cost *c, int64_t fp32, int64_t loaded, int64_t stored) {
    if (c->grade != PTX_COST_EXACT) fail_msg("grade %d: %s", c->grade, c->why);
    is("fp32", c->flops[PTX_COST_FP32], fp32);
    is("loaded", c->loaded[PTX_COST_GLOBAL], loaded);
    is("stored", c->stored[PTX_COST_GLOBAL], stored);
    is("fp64", c->flops[PTX_COST_FP64], 0);
    is("fp16", c->flops[PTX_COST_FP16], 0);
    is("shared", c->loaded[PTX_COST_SHARED], 0);
    is("atomics", c->atomics, 0);
    assert_int_equal(c->why[0], 0);
}

#define FAST 0.05 /* seconds of the processor */

/* ---- by formula ---- */
static void of_saxpy(void **state) {
    (void)state;
    static const int64_t sizes[] = {0, 1, 31, 255, 256, 257, 100000, 1000003, 1000000000};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        int64_t n = sizes[k];
        for (uint32_t block = 32; block <= 1024; block *= 2) {
            uint32_t grid = n ? (uint32_t)((n + block - 1) / block) : 1;
            struct ptx_cost c = price("saxpy", grid, block, FAST, "p p f %lld", (long long)n);
            is_exact(&c, 2 * n, 8 * n, 4 * n);
            c = price("saxpy_stride", 1 + grid / 7, block, FAST, "p p f %lld", (long long)n);
            is_exact(&c, 2 * n, 8 * n, 4 * n);
        }
    }
}

static void of_adamw(void **state) {
    (void)state;
    for (int64_t n = 1; n < 1100000000; n = n * 37 + 5) {
        uint32_t grid = (uint32_t)((n + 255) / 256);
        /* m 3, v 4, c1, c2, sqrt, eps, division, lr and the difference; decay 2 more */
        struct ptx_cost c = price("adamw", grid, 256, FAST, "p p p p f f f f f f f f f %lld", (long long)n);
        is_exact(&c, (3 + 4 + 7 + 2) * n, 16 * n, 12 * n);
        c = price("adamw", grid, 256, FAST, "p p p p f f f f f f f f z %lld", (long long)n);
        is_exact(&c, (3 + 4 + 7) * n, 16 * n, 12 * n);
    }
}

static void of_layernorm(void **state) {
    (void)state;
    static const int64_t rows[] = {1, 7, 8, 4096, 100003, 30000000}, columns[] = {1, 31, 32, 33, 768, 1600, 12289};
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++)
        for (size_t n = 0; n < sizeof columns / sizeof *columns; n++) {
            int64_t N = rows[k], C = columns[n];
            struct ptx_cost c = price("layernorm", (uint32_t)((N + 7) / 8), 256, FAST, "p p p p f %lld %lld",
                                      (long long)N, (long long)C);
            /* sum 1, squares 3, result 4 an element; a lane: two sums of 5 steps, mean 1, rsqrt 3 */
            is_exact(&c, N * (C * (1 + 3 + 4) + 32 * (5 + 5 + 1 + 3)), N * C * 4 * 5, N * C * 4);
        }
}

static void of_softmax(void **state) {
    (void)state;
    static const int64_t rows[] = {1, 3, 8, 8192, 98304, 1000001}, columns[] = {1, 17, 32, 100, 1024, 50257};
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++)
        for (size_t n = 0; n < sizeof columns / sizeof *columns; n++) {
            int64_t N = rows[k], C = columns[n];
            struct ptx_cost c =
                price("softmax", (uint32_t)((N + 3) / 4), 128, FAST, "p p %lld %lld", (long long)N, (long long)C);
            /* max 1; difference, product with log2 e, ex2, sum 4; the same and the share 4; a lane: 5 max, 5 sums, 1/x
             */
            is_exact(&c, N * (C * (1 + 4 + 4) + 32 * (5 + 5 + 1)), N * C * 4 * 3, N * C * 4);
        }
}

static void of_triangles(void **state) {
    (void)state;
    static const int64_t sizes[] = {1, 2, 33, 200, 1024, 2048, 50021};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        int64_t T = sizes[k], D = 64, B = 3, pairs = B * T * (T + 1) / 2;
        struct ptx_cost c =
            price("causal_scores", (uint32_t)(B * T), 128, 1, "p p p %lld %lld", (long long)T, (long long)D);
        is_exact(&c, 2 * D * pairs, 8 * D * pairs, 4 * pairs);
        pairs = T * (T + 1) / 2;
        c = price("triangle", (uint32_t)((T + 255) / 256), 256, 0.5, "p p %lld", (long long)T);
        is_exact(&c, pairs, 4 * pairs, 4 * T);
    }
}

static void of_matmul(void **state) {
    (void)state;
    static const int64_t sizes[][3] = {{1, 1, 1}, {5, 7, 3}, {33, 65, 17}, {1000, 1000, 1000}, {50257, 8192, 768}};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        int64_t M = sizes[k][0], N = sizes[k][1], K = sizes[k][2];
        char args[64];
        snprintf(args, sizeof args, "p p p %lld %lld %lld", (long long)M, (long long)N, (long long)K);
        struct ptx_cost c = price3("matmul", (uint32_t[]){(uint32_t)((N + 15) / 16), (uint32_t)((M + 15) / 16), 1},
                                   (uint32_t[]){16, 16, 1}, FAST, args);
        assert_int_equal(c.grade, PTX_COST_EXACT);
        is("fp64", c.flops[PTX_COST_FP64], 2 * M * N * K);
        is("fp32", c.flops[PTX_COST_FP32], 0);
        is("loaded", c.loaded[PTX_COST_GLOBAL], 16 * M * N * K);
        is("stored", c.stored[PTX_COST_GLOBAL], 8 * M * N);
    }
}

/* i % 3 == 0, and ⌊i / by⌋ odd. */
static void of_remainders(void **state) {
    (void)state;
    static const int64_t by[] = {1, 2, 5, 64, 100, 1000, 999983};
    for (size_t k = 0; k < sizeof by / sizeof *by; k++)
        for (int64_t n = 1; n < 400000000; n = n * 19 + 7) {
            int64_t thirds = (n + 2) / 3, whole = n / (2 * by[k]), rest = n % (2 * by[k]);
            int64_t odd = whole * by[k] + (rest > by[k] ? rest - by[k] : 0);
            struct ptx_cost c = price("every_third", (uint32_t)((n + 255) / 256), 256, 1, "p %lld %lld", (long long)n,
                                      (long long)by[k]);
            is_exact(&c, thirds + odd, 4 * (thirds + odd), 4 * (thirds + odd));
        }
}

/* ---- branches on data ---- */
static void of_data(void **state) {
    (void)state;
    int64_t n = 1000000;
    struct ptx_cost c = price("two_ways", 3907, 256, FAST, "p p %lld", (long long)n);
    assert_int_equal(c.grade, PTX_COST_BOUND);
    assert_true(strstr(c.why, "line ") == c.why);
    assert_int_equal(c.flops[PTX_COST_FP32].lo, 4 * n); /* all the one way, or all the other */
    assert_int_equal(c.flops[PTX_COST_FP32].hi, 20 * n);
    is("stored", c.stored[PTX_COST_GLOBAL], 4 * n);
    assert_int_equal(c.loaded[PTX_COST_GLOBAL].lo, (4 + 4 + 16) * n);
    assert_int_equal(c.loaded[PTX_COST_GLOBAL].hi, (4 + 4 + 40) * n);
    /* At once, or never; the compiler may look at several elements in one go. */
    c = price("stops_early", 4, 64, FAST, "p p 1000 5");
    assert_int_equal(c.grade, PTX_COST_BOUND);
    assert_true(c.loaded[PTX_COST_GLOBAL].lo >= 256 * 4 && c.loaded[PTX_COST_GLOBAL].lo <= 256 * 4 * 4);
    assert_true(c.loaded[PTX_COST_GLOBAL].hi >= 256 * 4000 && c.loaded[PTX_COST_GLOBAL].hi <= 256 * 4000 + 256 * 16);
    assert_true(c.flops[PTX_COST_FP32].lo == 0 && c.flops[PTX_COST_FP32].hi >= 256 * 2000);
    assert_true(c.flops[PTX_COST_FP32].hi <= 256 * 2008);
    is("stored", c.stored[PTX_COST_GLOBAL], 256 * 4);
    c = price("as_long_as", 1, 64, FAST, "p p");
    assert_int_equal(c.grade, PTX_COST_BOUND);
    assert_true(c.instructions.hi == INT64_MAX && c.instructions.lo >= 64 * 8);
    is("loaded", c.loaded[PTX_COST_GLOBAL], 64 * 4);
    is("stored", c.stored[PTX_COST_GLOBAL], 64 * 4);
}

static void of_unknown_arguments(void **state) {
    (void)state;
    struct ptx_cost c;
    const struct ptx_function *f = ptx_function_find(kernels, "saxpy");
    uint32_t grid[3] = {10, 1, 1}, block[3] = {256, 1, 1}, none[3] = {0, 1, 1}, large[3] = {2048, 1, 1};
    assert_int_equal(ptx_cost_launch(kernels, f, grid, block, 0, NULL, &c), 0);
    assert_int_equal(c.grade, PTX_COST_BOUND);
    assert_int_equal(c.flops[PTX_COST_FP32].lo, 0);
    assert_int_equal(c.flops[PTX_COST_FP32].hi, 2 * 2560);
    assert_int_equal(ptx_cost_launch(kernels, f, none, block, 0, NULL, &c), -1);
    assert_int_equal(ptx_cost_launch(kernels, f, grid, large, 0, NULL, &c), -1);
    assert_true(c.why[0]);
}

/* ---- forms of arithmetic, against the interpreter ---- */
static const char *const form_head =
    ".version 8.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry k(.param .u64 out, .param .u32 n, .param .f32 x)\n{\n"
    ".reg .pred %p<9>;\n.reg .b32 %r<20>;\n.reg .b64 %d<20>;\n.reg .b16 %h<9>;\n.reg .f32 %f<9>;\n"
    "ld.param.u64 %d0, [out];\nld.param.u32 %r0, [n];\nld.param.f32 %f0, [x];\n"
    "mov.u32 %r1, %tid.x;\nmov.u32 %r2, %tid.y;\nmov.u32 %r3, %ctaid.x;\nmov.u32 %r4, %ntid.x;\n"
    "mad.lo.s32 %r5, %r3, %r4, %r1;\ncvt.u64.u32 %d1, %r5;\ncvt.s64.s32 %d2, %r0;\nmov.u32 %r6, %laneid;\n";
/* The result of each is in %r9: a threshold, and a loop of r9 % 8 rounds. */
static const char *const form_tail =
    "\nsetp.gt.s32 %p7, %r9, 9;\n@%p7 st.global.u32 [%d0], %r9;\nand.b32 %r10, %r9, 7;\n"
    "setp.eq.s32 %p8, %r10, 0;\n@%p8 bra end;\n"
    "again:\nadd.s32 %r10, %r10, -1;\nst.global.u16 [%d0+4], %h0;\nsetp.ne.s32 %p8, %r10, 0;\n@%p8 bra again;\n"
    "end:\nret;\n}\n";

static int64_t buffer[64];
enum { CASES = 7, PROGRAMS = 60 };
static int compared;

static int inside(void *context, const struct ptx_touch *t) {
    (void)context;
    return t->address - (uint64_t)(uintptr_t)buffer > sizeof buffer - t->bytes;
}

/* The launch's cost as the interpreter counts it, and as the model says. */
static void compare(const char *body, bool exact) {
    char *text = malloc(strlen(form_head) + strlen(form_tail) + strlen(body) + 1);
    struct ptx_module *m;
    struct ptx_error e;
    sprintf(text, "%s%s%s", form_head, body, form_tail);
    if (ptx_parse(text, strlen(text), &m, &e)) fail_msg("%s: line %d: %s", body, e.line, e.text);
    const struct ptx_function *f = ptx_function_find(m, "k");
    if (f->error) fail_msg("%s: %s", body, f->error);
    static const uint32_t grids[][3] = {{1, 1, 1}, {5, 3, 1}, {64, 1, 1}},
                          blocks[][3] = {{1, 1, 1}, {40, 2, 1}, {32, 3, 2}, {100, 1, 1}};
    static const int32_t ns[] = {0, 1, 77, -5, 123456};
    for (int k = 0; k < CASES; k++) {
        unsigned char params[16] = {0};
        void *out = buffer;
        float x = (float)k / 4;
        struct ptx_tally truth = {{0}};
        struct ptx_fault fault;
        struct ptx_cost c;
        memcpy(params, &out, 8);
        memcpy(params + 8, &ns[k % 5], 4);
        memcpy(params + 12, &x, 4);
        struct ptx_run run = {
            .module = m, .entry = f, .params = params, .touch = inside, .counts = &truth, .max_instructions = 300000};
        memcpy(run.grid, grids[k % 3], 12);
        memcpy(run.block, blocks[k % 4], 12);
        int failed = ptx_interpret(&run, &fault);
        if (failed && fault.kind != PTX_FAULT_LIMIT) fail_msg("%s: %s", body, fault.text);
        if (ptx_cost_launch(m, f, run.grid, run.block, 0, params, &c)) fail_msg("%s: %s", body, c.why);
        if (failed) continue; /* too long for the interpreter */
        compared++;
        if (exact && c.grade != PTX_COST_EXACT) fail_msg("%s: grade %d, %s", body, c.grade, c.why);
        for (unsigned n = 0; n < PTX_T_FIELDS; n++) {
            struct ptx_count *said = ptx_cost_field(&c, n);
            if (truth.n[n] < said->lo || truth.n[n] > said->hi || (c.grade == PTX_COST_EXACT && said->lo != said->hi))
                fail_msg("%s, case %d: %s: %lld, said [%lld, %lld], grade %d", body, k, ptx_tally_name(n),
                         (long long)truth.n[n], (long long)said->lo, (long long)said->hi, c.grade);
        }
    }
    ptx_free(m);
    free(text);
}

static void forms(void **state) {
    (void)state;
    static const char *const form[] = {
        "add.s32 %r9, %r5, %r0;",
        "add.cc.u32 %r8, %r0, -1;\naddc.u32 %r9, 0, 5;",
        "sub.cc.u32 %r8, %r0, 77;\nsubc.cc.u32 %r7, 0, 0;\naddc.u32 %r9, 3, 4;",
        "mad.lo.cc.u32 %r8, %r0, 65537, -1;\nmadc.hi.u32 %r9, %r0, 65537, 0;",
        "add.cc.u32 %r8, %r1, -20;\naddc.u32 %r9, %r3, 0;",
        "bfi.b32 %r9, %r3, %r1, 5, 27;",
        "bfi.b32 %r9, %r5, %r0, 3, 29;",
        "bfi.b32 %r9, 5, %r1, 4, 8;",
        "sub.s32 %r9, %r0, %r5;",
        "mul.lo.s32 %r9, %r5, 12345;",
        "mul.lo.s32 %r9, %r5, 1103515245;",
        "mul.lo.s32 %r9, %r1, %r3;",
        "mul.hi.s32 %r9, %r5, 1431655766;",
        "mul.hi.u32 %r9, %r5, -1431655765;",
        "mul.hi.s32 %r9, %r0, %r5;",
        "mad.lo.s32 %r9, %r1, -7, %r3;",
        "neg.s32 %r9, %r5;",
        "abs.s32 %r9, %r5;",
        "sub.s32 %r8, %r1, 20;\nabs.s32 %r9, %r8;",
        "not.b32 %r9, %r5;",
        "min.s32 %r9, %r5, 50;",
        "max.s32 %r9, %r1, %r3;",
        "min.u32 %r9, %r5, %r0;",
        "div.s32 %r9, %r5, 7;",
        "rem.s32 %r9, %r5, 12;",
        "div.u32 %r9, %r5, %r4;",
        "rem.u32 %r9, %r5, %r4;",
        "sub.s32 %r8, %r1, 30;\ndiv.s32 %r9, %r8, 4;",
        "sub.s32 %r8, %r1, 30;\nrem.s32 %r9, %r8, 4;",
        "div.s32 %r9, %r5, -3;",
        "rem.s32 %r9, %r0, 13;",
        "div.s32 %r9, %r0, %r1;",
        "rem.u32 %r9, %r5, 0;",
        "shl.b32 %r9, %r5, 3;",
        "shl.b32 %r9, %r5, 30;",
        "shl.b32 %r9, 1, %r1;",
        "shr.u32 %r9, %r5, 3;",
        "sub.s32 %r8, %r1, 30;\nshr.s32 %r9, %r8, 2;",
        "sub.s32 %r8, %r1, 30;\nshr.u32 %r9, %r8, 28;",
        "shr.s32 %r9, %r5, 40;",
        "and.b32 %r9, %r5, 15;",
        "and.b32 %r9, %r5, -16;",
        "and.b32 %r9, %r5, 20;",
        "and.b32 %r9, %r5, 12;",
        "and.b32 %r9, %r1, %r3;",
        "or.b32 %r9, %r5, 1;",
        "or.b32 %r9, %r5, 48;",
        "shl.b32 %r8, %r3, 10;\nor.b32 %r9, %r8, %r1;",
        "xor.b32 %r9, %r5, 1;",
        "xor.b32 %r9, %r5, 37;",
        "xor.b32 %r9, %r1, %r3;",
        "lop3.b32 %r9, %r1, %r3, %r0, 0x96;",
        "lop3.b32 %r9, %r5, 7, 8, 0xEA;",
        "bfe.u32 %r9, %r5, 2, 4;",
        "bfe.s32 %r9, %r5, 1, 3;",
        "bfe.u32 %r9, %r5, 0, 32;",
        "bfi.b32 %r9, %r1, %r3, 4, 4;",
        "popc.b32 %r9, %r5;",
        "clz.b32 %r9, %r5;",
        "bfind.u32 %r9, %r5;",
        "brev.b32 %r9, %r1;",
        "prmt.b32 %r9, %r5, %r1, 0x3210;",
        "shf.l.wrap.b32 %r9, %r5, %r1, 5;",
        "sad.s32 %r9, %r1, %r3, 4;",
        "mul24.lo.s32 %r9, %r5, 77;",
        "mad24.lo.u32 %r9, %r1, %r3, 5;",
        "cvt.u16.u32 %h1, %r5;\ncvt.u32.u16 %r9, %h1;",
        "mul.lo.s32 %r8, %r5, 1000;\ncvt.s16.s32 %h1, %r8;\ncvt.s32.s16 %r9, %h1;",
        "cvt.s8.s32 %r9, %r5;",
        "cvt.u8.u32 %r9, %r5;",
        "mul.lo.s32 %r8, %r5, 1000;\ncvt.sat.s16.s32 %h1, %r8;\ncvt.s32.s16 %r9, %h1;",
        "mul.wide.s32 %d3, %r5, %r0;\ncvt.u32.u64 %r9, %d3;",
        "mul.wide.u32 %d3, %r5, -1431655765;\nshr.u64 %d4, %d3, 33;\ncvt.u32.u64 %r9, %d4;",
        "mad.wide.s32 %d3, %r5, -3, %d2;\ncvt.u32.u64 %r9, %d3;",
        "mul.lo.s64 %d3, %d1, 6364136223846793005;\nshr.u64 %d4, %d3, 61;\ncvt.u32.u64 %r9, %d4;",
        "sub.s64 %d3, %d2, %d1;\nshr.s64 %d4, %d3, 63;\ncvt.u32.u64 %r9, %d4;",
        "div.s64 %d3, %d2, 10;\nadd.s64 %d3, %d3, %d1;\ncvt.u32.u64 %r9, %d3;",
        "rem.u64 %d3, %d1, 10;\ncvt.u32.u64 %r9, %d3;",
        "div.u64 %d3, %d2, %d1;\ncvt.u32.u64 %r9, %d3;",
        "setp.lt.s64 %p1, %d1, %d2;\nselp.b32 %r9, %r1, 3, %p1;",
        "setp.lo.u32 %p1, %r5, %r0;\nselp.b32 %r9, %r1, 3, %p1;",
        "setp.hs.u32 %p1, %r5, 4294967290;\nselp.b32 %r9, %r1, 3, %p1;",
        "sub.s32 %r8, %r1, 3;\nsetp.ls.u32 %p1, %r8, 20;\nselp.b32 %r9, 12, 3, %p1;",
        "setp.eq.s32 %p1, %r1, %r3;\nselp.b32 %r9, 15, 2, %p1;",
        "setp.ne.and.s32 %p1|%p2, %r1, 4, !%p0;\nselp.b32 %r9, 15, 2, %p2;",
        "setp.gt.s32 %p3, %r3, 2;\nsetp.lt.or.s32 %p1|%p2, %r1, 9, %p3;\nselp.b32 %r8, 15, 2, %p1;\nselp.b32 %r9, %r8, "
        "3, %p2;",
        "setp.gt.s32 %p3, %r3, 2;\nsetp.lt.xor.s32 %p1, %r1, 9, %p3;\nselp.b32 %r9, 15, 2, %p1;",
        "setp.gt.s32 %p3, %r3, 2;\nsetp.lt.s32 %p4, %r1, 5;\nand.pred %p5, %p3, %p4;\nnot.pred %p6, %p5;\nselp.b32 "
        "%r9, 15, 2, %p6;",
        "setp.gt.f32 %p1, %f0, 0f3F800000;\nselp.b32 %r9, %r1, 2, %p1;",
        "cvt.rn.f32.s32 %f1, %r1;\nsetp.lt.f32 %p1, %f1, 0f41200000;\nselp.b32 %r9, 20, 3, %p1;",
        "mul.f32 %f1, %f0, %f0;\ncvt.rzi.s32.f32 %r9, %f1;",
        "set.lt.u32.s32 %r9, %r1, 9;",
        "slct.b32.s32 %r9, %r1, %r3, %r0;",
        "sub.s32 %r8, %r1, 9;\nslct.b32.s32 %r9, 12, 3, %r8;",
        "mov.u32 %r9, %warpid;",
        "mov.u32 %r9, %lanemask_lt;",
        "mov.u32 %r9, %nctaid.x;",
        "mov.u32 %r9, %dynamic_smem_size;",
        "mov.b64 %d3, {%r1, %r3};\nmov.b64 {%r8, %r9}, %d3;",
        "mov.b64 %d3, {7, %r3};\nmov.b64 {%r8, %r9}, %d3;",
        "mov.u32 %r9, 0;\nloop:\nadd.s32 %r9, %r9, 3;\nsetp.lt.s32 %p1, %r9, %r1;\n@%p1 bra loop;",
        "mov.u32 %r9, 64;\nloop:\nshr.u32 %r9, %r9, 1;\nsetp.gt.u32 %p1, %r9, %r1;\n@%p1 st.global.u32 [%d0], "
        "%r1;\nsetp.ne.u32 %p1, %r9, 0;\n@%p1 bra loop;",
        "mov.u32 %r8, 1;\nmov.u32 %r9, 0;\nloop:\nadd.s32 %r9, %r9, %r8;\nmul.lo.s32 %r8, %r8, 3;\nsetp.lt.u32 %p1, "
        "%r8, %r5;\n@%p1 bra loop;",
        "mov.u32 %r8, %r1;\nmov.u32 %r9, 0;\nloop:\nand.b32 %r7, %r8, 1;\nadd.s32 %r9, %r9, %r7;\nadd.s32 %r8, %r8, "
        "5;\nsetp.lt.u32 %p1, %r8, 200;\n@%p1 bra loop;",
        "mov.u32 %r8, 0;\nmov.u32 %r9, 0;\nouter:\nmov.u32 %r7, %r8;\ninner:\nadd.s32 %r9, %r9, 1;\nadd.s32 %r7, %r7, "
        "1;\nsetp.lt.u32 %p1, %r7, %r1;\n@%p1 bra inner;\nadd.s32 %r8, %r8, 1;\nsetp.lt.u32 %p1, %r8, 20;\n@%p1 bra "
        "outer;",
        "and.b32 %r8, %r5, 3;\nts: .branchtargets a, b, c;\nmov.u32 %r9, 3;\nmin.u32 %r8, %r8, 2;\nbrx.idx %r8, "
        "ts;\na:\nmov.u32 %r9, 10;\nbra c;\nb:\nadd.s32 %r9, %r1, 2;\nc:",
    };
    compared = 0;
    for (size_t k = 0; k < sizeof form / sizeof *form; k++) compare(form[k], true);
    assert_true(compared > (int)(CASES * (sizeof form / sizeof *form) * 4 / 5));
}

/* Rounds by a hash of the thread's number: too many threads to look at each, nothing that repeats. */
static void of_samples(void **state) {
    (void)state;
    static const char body[] = "mul.lo.s32 %r7, %r5, -1640531535;\nshr.u32 %r8, %r7, 15;\nxor.b32 %r7, %r7, %r8;\n"
                               "mul.lo.s32 %r7, %r7, 739982445;\nshr.u32 %r9, %r7, 29;";
    char text[4096];
    struct ptx_module *m;
    struct ptx_error e;
    struct ptx_cost c;
    unsigned char params[16] = {0};
    uint32_t grid[3] = {40000, 1, 1}, block[3] = {256, 1, 1};
    int64_t rounds = 0;
    snprintf(text, sizeof text, "%s%s%s", form_head, body, form_tail);
    if (ptx_parse(text, strlen(text), &m, &e)) fail_msg("%s", e.text);
    for (uint32_t i = 0; i < 40000 * 256; i++) {
        uint32_t h = i * 2654435761u;
        rounds += ((h ^ h >> 15) * 739982445u) >> 29;
    }
    double t = now();
    assert_int_equal(ptx_cost_launch(m, ptx_function_find(m, "k"), grid, block, 0, params, &c), 0);
    t = now() - t;
    struct ptx_count n = c.stored[PTX_COST_GLOBAL];
    if (c.grade != PTX_COST_SAMPLED || n.hi != INT64_MAX || t > 2 * SLOWER) /* one in a million may go round for ever */
        fail_msg("grade %d, [%lld, %lld], %.3f s", c.grade, (long long)n.lo, (long long)n.hi, t);
    double error = (double)n.lo / (2.0 * (double)rounds) - 1;
    if (error > 0.01 || error < -0.01) fail_msg("%lld, not %lld", (long long)n.lo, (long long)(2 * rounds));
    assert_true(c.blocks_counted >= 8 && c.blocks_counted < 40000 && c.why[0]);
    ptx_free(m);
}

/* ---- random programs ---- */
static uint64_t seed = 7;
static uint32_t draw(uint32_t n) {
    seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % n;
}

static void operand(char *to) {
    static const int numbers[] = {0,  1,  2,  3,   4,   5,    7,  8,  12,    16,     31,
                                  32, 33, 64, 100, 255, 1000, -1, -3, 65536, 1 << 30};
    if (draw(3))
        sprintf(to, "%%r%u", 1 + draw(15) % 13);
    else
        sprintf(to, "%d", numbers[draw(sizeof numbers / sizeof *numbers)]);
}

static void line(char *text, int *labels, bool data) {
    static const char *const two[] = {"add.s32", "sub.s32", "mul.lo.s32", "min.s32", "max.u32",
                                      "and.b32", "or.b32",  "xor.b32",    "div.u32", "rem.s32",
                                      "div.s32", "shl.b32", "shr.u32",    "shr.s32", "mul.hi.s32"};
    static const char *const compares[] = {"lt.s32", "ge.s32", "eq.s32", "ne.u32", "gt.u32", "le.u32"};
    char a[16], b[16], c[16], out[256];
    unsigned to = 7 + draw(6), kind = draw(data ? 9 : 8);
    operand(a);
    operand(b);
    operand(c);
    if (kind < 5)
        sprintf(out, "%s %%r%u, %s, %s;\n", two[draw(15)], to, a, b);
    else if (kind == 5)
        sprintf(out, "setp.%s %%p1, %s, %s;\n@%%p1 mad.lo.s32 %%r%u, %s, %s, %s;\n", compares[draw(6)], a, b, to, b, a,
                c);
    else if (kind == 6)
        sprintf(out, "setp.%s %%p2, %s, %s;\nselp.b32 %%r%u, %s, %s, %%p2;\n", compares[draw(6)], a, b, to, b, c);
    else if (kind == 7) {
        sprintf(out, "setp.%s %%p3, %s, %s;\n@%%p3 bra L%d;\nst.global.u32 [%%d0], %%r1;\n%s %%r%u, %s, %s;\nL%d:\n",
                compares[draw(6)], a, b, *labels, two[draw(15)], to, a, c, *labels);
        ++*labels;
    } else
        sprintf(out, "ld.global.u32 %%r%u, [%%d0+16];\n", to);
    strcat(text, out);
}

static void random_programs(bool data) {
    compared = 0;
    for (int n = 0; n < PROGRAMS; n++) {
        char text[8192] =
            "mov.u32 %r7, 1;\nmov.u32 %r8, 2;\nmov.u32 %r9, 3;\nmov.u32 %r11, 5;\nmov.u32 %r12, 6;\nmov.u32 %r13, 0;\n";
        int labels = 0, lines = 2 + (int)draw(10), loop = (int)draw(3);
        if (loop) strcat(text, "repeat:\n");
        for (int k = 0; k < lines; k++) line(text, &labels, data);
        if (loop)
            sprintf(text + strlen(text), "add.s32 %%r13, %%r13, 1;\nsetp.lt.u32 %%p6, %%r13, %s;\n@%%p6 bra repeat;\n",
                    loop == 1 ? "11" : "%r1");
        compare(text, !data);
    }
    assert_true(compared > PROGRAMS * CASES / 2);
}

static void random_arithmetic(void **state) {
    (void)state;
    random_programs(false);
}
static void random_with_data(void **state) {
    (void)state;
    random_programs(true);
}

static int open_kernels(void **state) {
    (void)state;
    char self[PATH_MAX] = "", path[PATH_MAX + 64];
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) return -1;
    snprintf(path, sizeof path, "%s/cost/cost_kernels.ptx", dirname(self));
    FILE *f = fopen(path, "rb");
    char *text = malloc(1 << 20);
    struct ptx_error e;
    if (!f || ptx_parse(text, fread(text, 1, 1 << 20, f), &kernels, &e)) return -1;
    fclose(f);
    free(text);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_saxpy),        cmocka_unit_test(of_adamw),     cmocka_unit_test(of_layernorm),
        cmocka_unit_test(of_softmax),      cmocka_unit_test(of_triangles), cmocka_unit_test(of_matmul),
        cmocka_unit_test(of_remainders),   cmocka_unit_test(of_data),      cmocka_unit_test(of_unknown_arguments),
        cmocka_unit_test(of_samples),      cmocka_unit_test(forms),        cmocka_unit_test(random_arithmetic),
        cmocka_unit_test(random_with_data)};
    int r = cmocka_run_group_tests(tests, open_kernels, NULL);
    ptx_free(kernels);
    return r;
}
