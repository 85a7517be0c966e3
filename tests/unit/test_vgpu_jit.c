/* The compiler on the kernel zoo: each case gives what its reference in plain C and the interpreter give, from
 * optimised and from debugging PTX; and a kernel that comes from the cache is the one that was compiled. */
#include "tests/unit/vgpu_jit_run.h"
#include "tests/zoo/zoo_interpret.h"

#include <dirent.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char cache[] = "/tmp/test-vgpu-jit-XXXXXX";

/* Beside this program. */
static void open_beside(struct zoo_module *m, const char *name) {
    char self[PATH_MAX] = "", path[PATH_MAX + 32], err[256];
    assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    snprintf(path, sizeof path, "%s/%s", dirname(self), name);
    if (zoo_open(m, path, err, sizeof err)) fail_msg("%s", err);
}

/* Module variables as they were before the first launch. */
static void **save_variables(const struct zoo_module *m) {
    void **saved = calloc((size_t)m->ptx->var_count + 1, sizeof *saved);
    for (int32_t k = 0; k < m->ptx->var_count; k++) {
        if (!m->symbols[k]) continue;
        saved[k] = malloc(m->ptx->vars[k].bytes + 1);
        memcpy(saved[k], m->symbols[k], m->ptx->vars[k].bytes);
    }
    return saved;
}

static void restore_variables(const struct zoo_module *m, void **saved) {
    for (int32_t k = 0; k < m->ptx->var_count; k++)
        if (saved[k]) memcpy(m->symbols[k], saved[k], m->ptx->vars[k].bytes);
}

static void free_variables(const struct zoo_module *m, void **saved) {
    for (int32_t k = 0; k < m->ptx->var_count; k++) free(saved[k]);
    free(saved);
}

static const char *printed_format;
static int32_t zoo_print(struct vgpu_frame *f, uint64_t format, uint64_t arguments) {
    (void)f;
    int v[2];
    memcpy(v, (void *)(uintptr_t)arguments, sizeof v);
    printed_format = (const char *)(uintptr_t)format;
    run_s.used +=
        (size_t)snprintf(run_s.text + run_s.used, sizeof run_s.text - run_s.used, "thread %d has %d;", v[0], v[1]);
    return 4;
}

/* As a number of exact cases that differ from the interpreter: 0 or 1. */
static int differs(const struct zoo_case *c, const struct zoo_launch *l, void *const *interpreted, char *err,
                   size_t err_len) {
    for (int k = 0; k < c->args; k++) {
        if (!l->buffer[k]) continue;
        bool same = c->arg[k].tolerance > 0 || zoo_equal(c, k, l->buffer[k], interpreted[k], err, err_len);
        if (!same) return 1;
        if (c->arg[k].out && !zoo_equal(c, k, l->buffer[k], l->want[k], err, err_len)) return 1;
    }
    return 0;
}

static int run_case(struct zoo_module *m, const struct zoo_case *c, void **variables, const char *from) {
    struct zoo_launch l;
    struct vgpu_code code;
    char err[512] = "";
    void *interpreted[ZOO_ARGS] = {0};
    const struct ptx_function *f = ptx_function_find(m->ptx, c->kernel);
    restore_variables(m, variables);
    int bad = zoo_interpret(m, c, &l, err, sizeof err) != 0;
    for (int k = 0; k < c->args; k++) {
        if (!l.buffer[k]) continue;
        interpreted[k] = malloc(zoo_bytes(&c->arg[k]));
        memcpy(interpreted[k], l.buffer[k], zoo_bytes(&c->arg[k]));
        zoo_fill(c, k, l.buffer[k]);
    }
    restore_variables(m, variables);
    if (!bad) bad = vgpu_jit(m->ptx, f, &code, err, sizeof err);
    if (!bad) {
        struct run_launch run = {.params = l.params, .symbols = m->symbols, .dynamic_shared = c->shared};
        memcpy(run.grid, c->grid, sizeof run.grid);
        memcpy(run.block, c->block, sizeof run.block);
        bad = run_compiled(f, &code, &run);
        if (bad)
            snprintf(err, sizeof err, "%.200s", run_s.text);
        else
            bad = differs(c, &l, interpreted, err, sizeof err);
    }
    if (bad) print_error("%s, %s: %s\n", from, c->name, err);
    if (!bad && !strcmp(c->name, "prints")) {
        char want[64];
        snprintf(want, sizeof want, "thread 3 has %d;", ((int *)l.buffer[0])[3]);
        assert_string_equal(run_s.text, want);
        assert_string_equal(printed_format, "thread %d has %d and %g of %s\n");
    }
    for (int k = 0; k < c->args; k++) free(interpreted[k]);
    zoo_release(c, &l);
    return bad != 0;
}

static void run_all(const char *name) {
    struct zoo_module m;
    int bad = 0;
    const char *only = getenv("ZOO_CASE");
    open_beside(&m, name);
    void **variables = save_variables(&m);
    for (int k = 0; k < zoo_case_count; k++)
        if (!only || !strcmp(only, zoo_cases[k].name)) bad += run_case(&m, &zoo_cases[k], variables, name);
    free_variables(&m, variables);
    zoo_close(&m);
    assert_int_equal(bad, 0);
    assert_true(zoo_case_count >= 80);
}

static void optimised(void **state) {
    (void)state;
    run_all("zoo.ptx");
}

static void debugging(void **state) {
    (void)state;
    run_all("zoo_debug.ptx");
}

/* ---- the cache ---- */
static const char COUNT[] = ".version 8.0\n.target sm_80\n.address_size 64\n"
                            ".visible .entry count(.param .u64 p, .param .u32 n)\n{\n"
                            ".reg .pred %q;\n.reg .b32 %r<5>;\n.reg .b64 %d<4>;\n"
                            "ld.param.u64 %d1, [p];\nld.param.u32 %r1, [n];\n"
                            "mov.u32 %r2, %tid.x;\nsetp.ge.u32 %q, %r2, %r1;\n@%q bra END;\n"
                            "mul.wide.u32 %d2, %r2, 4;\nadd.s64 %d3, %d1, %d2;\n"
                            "add.u32 %r3, %r2, 7;\nst.global.u32 [%d3], %r3;\nEND:\nret;\n}\n";

struct count_result {
    double compile_ms;
    uint32_t out[100];
    int rc;
};

/* In a process of its own, which has nothing loaded. */
static struct count_result count_in_child(void) {
    struct count_result r = {.rc = -1};
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (!child) {
        struct ptx_module *m;
        struct ptx_error e;
        struct vgpu_code code;
        char err[256];
        struct {
            uint32_t *p;
            uint32_t n;
        } args = {r.out, 90};
        struct run_launch l = {{1, 1, 1}, {100, 1, 1}, 0, &args, NULL};
        if (!ptx_parse(COUNT, sizeof COUNT, &m, &e) && !vgpu_jit(m, &m->functions[0], &code, err, sizeof err)) {
            r.rc = run_compiled(&m->functions[0], &code, &l);
            r.compile_ms = code.compile_ms;
        }
        _exit(write(ends[1], &r, sizeof r) != (ssize_t)sizeof r);
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], &r, sizeof r), sizeof r);
    close(ends[0]);
    waitpid(child, NULL, 0);
    assert_int_equal(r.rc, 0);
    for (uint32_t k = 0; k < 100; k++) assert_int_equal(r.out[k], k < 90 ? k + 7 : 0);
    return r;
}

/* The one file of the folder that appeared last. */
static void newest_file(char *path, size_t bytes) {
    DIR *d = opendir(cache);
    struct timespec when = {0, 0};
    for (struct dirent *e; (e = readdir(d));) {
        struct stat s;
        if (e->d_name[0] == '.' || fstatat(dirfd(d), e->d_name, &s, 0)) continue;
        if (s.st_mtim.tv_sec < when.tv_sec || (s.st_mtim.tv_sec == when.tv_sec && s.st_mtim.tv_nsec <= when.tv_nsec))
            continue;
        when = s.st_mtim;
        snprintf(path, bytes, "%s/%s", cache, e->d_name);
    }
    closedir(d);
}

/* Compiled once, then read; a file that was cut off or changed is not taken, and made anew. */
static void cached(void **state) {
    (void)state;
    char path[PATH_MAX] = "";
    struct stat s;
    assert_true(count_in_child().compile_ms > 0);
    newest_file(path, sizeof path);
    assert_true(count_in_child().compile_ms == 0);
    assert_int_equal(stat(path, &s), 0);
    assert_int_equal(truncate(path, s.st_size / 2), 0);
    assert_true(count_in_child().compile_ms > 0);
    assert_true(count_in_child().compile_ms == 0);
    int fd = open(path, O_RDWR);
    assert_int_equal(pwrite(fd, "\xcc\xcc\xcc\xcc", 4, s.st_size / 2), 4);
    close(fd);
    assert_true(count_in_child().compile_ms > 0);
    assert_true(count_in_child().compile_ms == 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_true(count_in_child().compile_ms > 0); /* and takes the pipe's place */
    assert_true(count_in_child().compile_ms == 0);
}

/* Threads that ask for one kernel at once get the same code. */
static void *compile_count(void *module) {
    const struct ptx_module *m = module;
    struct vgpu_code code = {0};
    char err[256];
    return vgpu_jit(m, &m->functions[0], &code, err, sizeof err) ? NULL : (void *)(uintptr_t)code.block;
}

static void threads(void **state) {
    (void)state;
    enum { N = 6 };
    struct ptx_module *m;
    struct ptx_error e;
    pthread_t thread[N];
    void *code[N];
    char text[sizeof COUNT];
    memcpy(text, COUNT, sizeof COUNT);
    strstr(text, ", 7;")[2] = '9'; /* one that is not in the cache yet */
    assert_int_equal(ptx_parse(text, sizeof text, &m, &e), 0);
    for (int k = 0; k < N; k++) assert_int_equal(pthread_create(&thread[k], NULL, compile_count, m), 0);
    for (int k = 0; k < N; k++) assert_int_equal(pthread_join(thread[k], &code[k]), 0);
    for (int k = 0; k < N; k++) assert_true(code[k] && code[k] == code[0]);
    ptx_free(m);
}

/* An index that wraps within a row must not become a short loop. */
static void wrapping_index(void **state) {
    (void)state;
    static const char text[] = ".version 8.0\n.target sm_80\n.address_size 64\n"
                               ".visible .entry wrap(.param .u64 p, .param .s32 from)\n{\n"
                               ".reg .pred %q;\n.reg .b32 %r<5>;\n.reg .b64 %d<4>;\n"
                               "ld.param.u64 %d1, [p];\nld.param.u32 %r1, [from];\n"
                               "mov.u32 %r2, %tid.x;\nadd.s32 %r3, %r2, %r1;\nsetp.ge.s32 %q, %r3, 10;\n"
                               "@%q bra END;\nmul.wide.u32 %d2, %r2, 4;\nadd.s64 %d3, %d1, %d2;\n"
                               "st.global.u32 [%d3], 1;\nEND:\nret;\n}\n";
    struct ptx_module *m;
    struct ptx_error e;
    struct vgpu_code code;
    char err[256];
    uint32_t out[64] = {0};
    struct {
        uint32_t *p;
        int32_t from;
    } args = {out, -20};
    struct run_launch l = {{1, 1, 1}, {64, 1, 1}, 0, &args, NULL};
    assert_int_equal(ptx_parse(text, sizeof text, &m, &e), 0);
    assert_int_equal(vgpu_jit(m, &m->functions[0], &code, err, sizeof err), 0);
    assert_int_equal(run_compiled(&m->functions[0], &code, &l), 0);
    for (uint32_t k = 0; k < 64; k++) assert_int_equal(out[k], k < 30);
    args.from = INT32_MAX - 5;
    assert_int_equal(run_compiled(&m->functions[0], &code, &l), -1);
    assert_string_equal(run_s.text, "trap by thread 0");
    ptx_free(m);
}

/* nvcc drops what fills a half that nobody looks at: %e is never assigned, and the low bits of the pair still count. */
static void unassigned_half(void **state) {
    static const char text[] = ".version 8.0\n.target sm_80\n.address_size 64\n"
                               ".visible .entry halves(.param .u64 p, .param .u32 few)\n{\n"
                               ".reg .pred %q;\n.reg .b16 %h, %e;\n.reg .b32 %r<5>;\n.reg .b64 %d<4>;\n"
                               "ld.param.u64 %d1, [p];\nld.param.u32 %r1, [few];\nmov.u32 %r2, %tid.x;\n"
                               "mul.wide.u32 %d2, %r2, 4;\nadd.s64 %d3, %d1, %d2;\nmov.u32 %r4, 3;\n"
                               "setp.lt.u32 %q, %r2, %r1;\n@%q bra ON;\n"
                               "cvt.u16.u32 %h, %r2;\nmov.b32 %r3, {%h, %e};\nand.b32 %r4, %r3, 4095;\n"
                               "ON:\nXst.global.u32 [%d3], %r4;\nret;\n}\n";
    for (int warp = 0; warp < 2; warp++) {
        struct ptx_module *m;
        struct ptx_error e;
        struct vgpu_code code;
        char err[256], own[sizeof text + 16];
        uint32_t out[64] = {0};
        struct {
            uint32_t *p;
            uint32_t few;
        } args = {out, 20};
        struct run_launch l = {{1, 1, 1}, {64, 1, 1}, 0, &args, NULL};
        const char *x = strchr(text, 'X');
        snprintf(own, sizeof own, "%.*s%s%s", (int)(x - text), text, warp ? "bar.sync 0;\n" : "", x + 1);
        assert_int_equal(ptx_parse(own, strlen(own) + 1, &m, &e), 0);
        assert_int_equal(vgpu_jit(m, &m->functions[0], &code, err, sizeof err), 0);
        assert_true(warp ? code.warp != NULL : code.block != NULL);
        assert_int_equal(run_compiled(&m->functions[0], &code, &l), 0);
        for (uint32_t k = 0; k < 64; k++) assert_int_equal(out[k], k < 20 ? 3 : k);
        ptx_free(m);
    }
    (void)state;
}

static int begin(void **state) {
    (void)state;
    run_print_hook = zoo_print;
    return !mkdtemp(cache) || setenv("ACCT_CACHE", cache, 1);
}

static int end(void **state) {
    (void)state;
    DIR *d = opendir(cache);
    for (struct dirent *e; d && (e = readdir(d));)
        if (e->d_name[0] != '.') unlinkat(dirfd(d), e->d_name, 0);
    if (d) closedir(d);
    return rmdir(cache);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(optimised),      cmocka_unit_test(debugging),
                                       cmocka_unit_test(cached),         cmocka_unit_test(threads),
                                       cmocka_unit_test(wrapping_index), cmocka_unit_test(unassigned_half)};
    return cmocka_run_group_tests(tests, begin, end);
}
