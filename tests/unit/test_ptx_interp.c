/* The interpreter's other half: faults and who caused them, barriers, warps that part, limits. What kernels compute is
 * in test_ptx_zoo.c, what single instructions do in tests/test_ptx_ops.py. */
#include "ptx/ptx_interp.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#define HEAD ".version 8.0\n.target sm_80\n.address_size 64\n"
/* out[tid] = what the body leaves in %r1; %r0 is tid, %rd1 the address of out[tid]. */
#define KERNEL(decls, body)                                                                                      \
    HEAD decls ".visible .entry k(.param .u64 p)\n{\n.reg .pred %p<8>;\n.reg .b32 %r<16>;\n.reg .b64 %rd<16>;\n" \
               "ld.param.u64 %rd0, [p];\nmov.u32 %r0, %tid.x;\nmad.wide.u32 %rd1, %r0, 4, %rd0;\n" body          \
               "st.global.u32 [%rd1], %r1;\nret;\n}\n"

struct job {
    struct ptx_module *m;
    uint32_t out[1024];
    uint32_t threads, grid, first, blocks, dynamic;
    uint64_t limit, executed;
    struct ptx_fault fault;
    void *symbols[8];
};

static int may(void *context, const struct ptx_touch *t) {
    struct job *j = context;
    uint64_t at = t->address - (uint64_t)(uintptr_t)j->out;
    return at + t->bytes <= j->threads * 4 ? 0 : -1;
}

static int any(void *context, const struct ptx_touch *t) {
    (void)context, (void)t;
    return 0;
}

static int run(struct job *j, const char *text, uint32_t threads) {
    struct ptx_error e = {0};
    if (ptx_parse(text, strlen(text), &j->m, &e)) fail_msg("%d:%d: %s", e.line, e.column, e.text);
    void *params = j->out;
    j->threads = threads;
    struct ptx_run r = {.module = j->m,
                        .entry = ptx_function_find(j->m, "k"),
                        .grid = {j->grid ? j->grid : 1, 1, 1},
                        .block = {threads, 1, 1},
                        .dynamic_shared = j->dynamic,
                        .params = &params,
                        .symbols = j->symbols,
                        .max_instructions = j->limit ? j->limit : 1000000,
                        .first_block = j->first,
                        .blocks = j->blocks,
                        .touch = j->symbols[0] ? any : may,
                        .context = j};
    assert_non_null(r.entry);
    int rc = ptx_interpret(&r, &j->fault);
    j->executed = r.executed;
    ptx_free(j->m);
    return rc;
}

static int line_of(const char *text, const char *word) {
    int line = 1;
    for (const char *p = text, *at = strstr(text, word); p < at; p++) line += *p == '\n';
    return line;
}

static void expect_fault(const char *text, uint32_t threads, int kind, const char *word, uint32_t tid) {
    struct job j = {0};
    assert_int_equal(run(&j, text, threads), -1);
    if (j.fault.kind != kind) fail_msg("kind %d, not %d: %s", j.fault.kind, kind, j.fault.text);
    assert_int_equal(j.fault.tid[0], tid);
    if (word) assert_int_equal(j.fault.line, line_of(text, word));
    assert_true(*j.fault.text);
    assert_null(strchr(j.fault.text, '\n'));
}

/* ---- faults ---- */
static void a_refused_access(void **state) {
    (void)state;
    static const char text[] = KERNEL("", "mov.u32 %r1, 7;\n@!%p0 st.global.u32 [%rd1+4], %r1; //here\n");
    struct job j = {0};
    assert_int_equal(run(&j, text, 8), -1);
    assert_int_equal(j.fault.kind, PTX_FAULT_ADDRESS);
    assert_int_equal(j.fault.tid[0], 7); /* only the last one's neighbour lies outside */
    assert_int_equal(j.fault.address, (uint64_t)(uintptr_t)(j.out + 8));
    assert_int_equal(j.fault.bytes, 4);
    assert_int_equal(j.fault.properties, PTX_P_WRITES);
    assert_int_equal(j.fault.line, line_of(text, "//here"));
    assert_int_equal(j.out[6], 7); /* memory is as far as the threads got */
}

static void null_is_refused(void **state) {
    (void)state;
    expect_fault(KERNEL("", "mov.u64 %rd2, 16;\nld.global.u32 %r1, [%rd2]; //here\n"), 1, PTX_FAULT_ADDRESS, "//here",
                 0);
}

static void misaligned(void **state) {
    (void)state;
    expect_fault(KERNEL("", "ld.global.u64 %rd3, [%rd1]; //here\n"), 8, PTX_FAULT_MISALIGNED, "//here", 1);
    expect_fault(KERNEL(".shared .align 8 .b8 s[64];\n", "mov.u32 %r2, s;\nld.shared.u16 %r1, [%r2+3]; //here\n"), 1,
                 PTX_FAULT_MISALIGNED, "//here", 0);
}

static void outside_shared(void **state) {
    (void)state;
    expect_fault(KERNEL(".shared .align 4 .b8 s[16];\n",
                        "mov.u32 %r2, s;\nmad.lo.s32 %r2, %r0, 4, %r2;\nst.shared.u32 [%r2], %r0; //here\n"),
                 8, PTX_FAULT_ADDRESS, "//here", 4);
}

static void outside_local(void **state) {
    (void)state;
    expect_fault(
        HEAD ".visible .entry k(.param .u64 p)\n{\n.local .align 4 .b8 l[16];\n.reg .b32 %r<4>;\n.reg .b64 %rd<4>;\n"
             "mov.u32 %r0, %tid.x;\nmov.u64 %rd0, l;\nmad.wide.u32 %rd1, %r0, 4, %rd0;\n"
             "st.local.u32 [%rd1], %r0; //here\nret;\n}\n",
        8, PTX_FAULT_ADDRESS, "//here", 4);
}

static void outside_parameters(void **state) {
    (void)state;
    expect_fault(
        HEAD ".visible .entry k(.param .u64 p)\n{\n.reg .b64 %rd<4>;\nmov.u64 %rd0, p;\nld.param.u64 %rd1, [%rd0+8]; "
             "//here\nret;\n}\n",
        1, PTX_FAULT_ADDRESS, "//here", 0);
}

static void traps(void **state) {
    (void)state;
    expect_fault(KERNEL("", "setp.eq.u32 %p0, %r0, 3;\n@%p0 trap; //here\n"), 8, PTX_FAULT_TRAP, "//here", 3);
    expect_fault(KERNEL("", "shfl.sync.idx.b32 %r1, %r0, 0, 31, 0x0f; //here\n"), 8, PTX_FAULT_TRAP, "//here", 4);
}

static void asserts(void **state) {
    (void)state;
    static char file[] = "here.cu", message[] = "x < 3", name[] = "void k(int *)";
    static const char text[] = HEAD
        ".global .align 1 .b8 f[8];\n.global .align 1 .b8 m[8];\n.global .align 1 .b8 n[16];\n"
        ".extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 e);\n"
        ".visible .entry k(.param .u64 p)\n{\n.reg .b64 %rd<8>;\n"
        "mov.u64 %rd0, m;\ncvta.global.u64 %rd1, %rd0;\nmov.u64 %rd2, f;\ncvta.global.u64 %rd3, %rd2;\nmov.u64 %rd4, "
        "n;\ncvta.global.u64 %rd5, %rd4;\n{\n"
        ".param .b64 p0;\nst.param.b64 [p0], %rd1;\n.param .b64 p1;\nst.param.b64 [p1], %rd3;\n.param .b32 p2;\n"
        "st.param.b32 [p2], 42;\n.param .b64 p3;\nst.param.b64 [p3], %rd5;\n.param .b64 p4;\nst.param.b64 [p4], 1;\n"
        "call.uni __assertfail, (p0, p1, p2, p3, p4);\n}\nret;\n}\n";
    struct job j = {.symbols = {file, message, name}};
    assert_int_equal(run(&j, text, 1), -1);
    assert_int_equal(j.fault.kind, PTX_FAULT_ASSERT);
    assert_string_equal(j.fault.text, "here.cu:42: void k(int *): Assertion `x < 3` failed.");
}

static void unsupported(void **state) {
    (void)state;
    struct job j = {0};
    assert_int_equal(run(&j,
                         HEAD
                         ".extern .func (.param .b64 r) malloc(.param .b64 n);\n.visible .entry k(.param .u64 p)\n{\n"
                         ".reg .b64 %rd<2>;\n{\n.param .b64 n;\nst.param.b64 [n], 8;\n.param .b64 r;\n"
                         "call.uni (r), malloc, (n);\nld.param.b64 %rd0, [r];\n}\nret;\n}\n",
                         1),
                     -1);
    assert_int_equal(j.fault.kind, PTX_FAULT_UNSUPPORTED);
    assert_non_null(strstr(j.fault.text, "malloc"));
}

/* ---- barriers and warps ---- */
static void deadlocks(void **state) {
    (void)state;
    /* Half of the warp at one barrier, half at another. */
    expect_fault(
        KERNEL("", "setp.lt.u32 %p0, %r0, 16;\n@%p0 bra A;\nbar.sync 1;\nbra B;\nA:\nbar.sync 2; //here\nB:\n"), 32,
        PTX_FAULT_DEADLOCK, "//here", 0);
    /* A shuffle of all, with some at a barrier. */
    expect_fault(KERNEL("",
                        "setp.lt.u32 %p0, %r0, 4;\n@%p0 bra A;\nshfl.sync.idx.b32 %r1, %r0, 0, 31, -1;\nbra B;\nA:\n"
                        "bar.sync 0; //here\nB:\n"),
                 32, PTX_FAULT_DEADLOCK, "//here", 0);
    /* More threads wanted than there are. */
    expect_fault(KERNEL("", "bar.sync 3, 96; //here\n"), 64, PTX_FAULT_DEADLOCK, "//here", 0);
}

static void exited_threads_hold_up_nobody(void **state) {
    (void)state;
    struct job j = {0};
    assert_int_equal(
        run(&j,
            KERNEL("", "setp.gt.u32 %p0, %r0, 40;\n@%p0 exit;\nbar.sync 0;\nsetp.gt.u32 %p0, %r0, 20;\n@%p0 exit;\n"
                       "shfl.sync.bfly.b32 %r1, %r0, 1, 31, -1;\nvote.sync.all.pred %p1, 1, -1;\n@!%p1 trap;\n"),
            64),
        0);
    for (uint32_t t = 0; t < 20; t++) assert_int_equal(j.out[t], t ^ 1);
}

/* The two arms of a branch have a shuffle each; the lanes meet all the same. */
static void lanes_meet_across_arms(void **state) {
    (void)state;
    struct job j = {0};
    assert_int_equal(run(&j,
                         KERNEL("", "and.b32 %r2, %r0, 1;\nsetp.eq.u32 %p0, %r2, 1;\n@%p0 bra A;\n"
                                    "shfl.sync.bfly.b32 %r1, %r0, 1, 31, -1;\nbra B;\nA:\nadd.u32 %r3, %r0, 100;\n"
                                    "shfl.sync.bfly.b32 %r1, %r3, 1, 31, -1;\nB:\n"),
                         32),
                     0);
    for (uint32_t t = 0; t < 32; t++) assert_int_equal(j.out[t], t & 1 ? t - 1 : t + 1 + 100);
}

static void active_lanes(void **state) {
    (void)state;
    struct job j = {0};
    assert_int_equal(run(&j,
                         KERNEL("", "setp.lt.u32 %p0, %r0, 10;\n@%p0 bra A;\nactivemask.b32 %r1;\nbra B;\nA:\n"
                                    "activemask.b32 %r1;\nB:\nactivemask.b32 %r2;\nadd.u32 %r1, %r1, %r2;\n"),
                         32),
                     0);
    for (uint32_t t = 0; t < 32; t++) assert_int_equal(j.out[t], (t < 10 ? 0x3ffu : ~0x3ffu) + UINT32_MAX);
}

/* Thread 0 waits in a loop for what thread 40, of another warp, will write. */
static void spinning_lets_others_run(void **state) {
    (void)state;
    struct job j = {0};
    assert_int_equal(run(&j,
                         KERNEL(".shared .align 4 .u32 flag;\n",
                                "mov.u32 %r1, 5;\nsetp.eq.u32 %p0, %r0, 0;\n@!%p0 bra C;\nst.shared.u32 [flag], "
                                "0;\nC:\nbar.sync 0;\n@!%p0 bra A;\n"
                                "L:\nld.volatile.shared.u32 %r1, [flag];\nsetp.ne.u32 %p1, %r1, 77;\n@%p1 bra L;\nA:\n"
                                "setp.eq.u32 %p2, %r0, 40;\n@!%p2 bra B;\nst.volatile.shared.u32 [flag], 77;\nB:\n"),
                         64),
                     0);
    assert_int_equal(j.out[0], 77);
    assert_int_equal(j.out[40], 5);
}

/* bar.arrive twice by those who never wait; who waits, waits twice. */
static void arriving_again(void **state) {
    (void)state;
    struct job j = {0};
    assert_int_equal(
        run(&j,
            KERNEL("", "mov.u32 %r1, 1;\nsetp.lt.u32 %p0, %r0, 32;\n@%p0 bra A;\nbar.arrive 1, 64;\nbar.sync 2, 64;\n"
                       "bar.arrive 1, 64;\nbra B;\nA:\nbar.sync 1, 64;\nbar.arrive 2, 64;\nbar.sync 1, 64;\nB:\n"),
            64),
        0);
    assert_int_equal(j.out[63], 1);
}

/* ---- limits and ranges ---- */
static void instructions_are_counted(void **state) {
    (void)state;
    struct job j = {0};
    assert_int_equal(run(&j, KERNEL("", "mov.u32 %r1, 1;\n"), 10), 0);
    assert_int_equal(j.executed, 10 * 6);
    struct job k = {.limit = 1000};
    assert_int_equal(run(&k, KERNEL("", "L:\nbra L;\n"), 10), -1);
    assert_int_equal(k.fault.kind, PTX_FAULT_LIMIT);
    assert_int_equal(k.executed, 1000);
}

static void endless_recursion_ends(void **state) {
    (void)state;
    struct job j = {.limit = 10000000};
    assert_int_equal(run(&j,
                         HEAD ".func f()\n{\n.local .align 8 .b8 l[64];\ncall.uni f;\nret;\n}\n"
                              ".visible .entry k(.param .u64 p)\n{\ncall.uni f;\nret;\n}\n",
                         1),
                     -1);
    assert_int_equal(j.fault.kind, PTX_FAULT_LIMIT);
    assert_non_null(strstr(j.fault.text, "stack"));
}

static void a_range_of_blocks(void **state) {
    (void)state;
    struct job j = {.grid = 10, .first = 3, .blocks = 4};
    static const char text[] =
        HEAD ".visible .entry k(.param .u64 p)\n{\n.reg .b32 %r<4>;\n.reg .b64 %rd<4>;\nld.param.u64 %rd0, "
             "[p];\nmov.u32 %r0, "
             "%ctaid.x;\nmad.wide.u32 %rd1, %r0, 4, %rd0;\nadd.u32 %r1, %r0, 1;\nst.global.u32 [%rd1], %r1;\nret;\n}\n";
    assert_int_equal(run(&j, text, 16), 0);
    for (uint32_t b = 0; b < 10; b++) assert_int_equal(j.out[b], b >= 3 && b < 7 ? b + 1 : 0);
}

static void dynamic_shared_has_its_size(void **state) {
    (void)state;
    struct job j = {.dynamic = 128};
    static const char text[] =
        KERNEL(".shared .align 4 .b8 s[20];\n.extern .shared .align 16 .b8 d[];\n",
               "mov.u32 %r1, %dynamic_smem_size;\nst.shared.u32 [s+16], %r1;\nmov.u32 %r2, d;\n"
               "st.shared.u32 [%r2+124], %r1;\nsetp.eq.u32 %p0, %r0, 1;\n@%p0 st.shared.u32 [%r2+128], %r1; //here\n");
    assert_int_equal(run(&j, text, 2), -1);
    assert_int_equal(j.out[0], 128);
    assert_int_equal(j.fault.kind, PTX_FAULT_ADDRESS);
    assert_int_equal(j.fault.line, line_of(text, "//here"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_refused_access),
        cmocka_unit_test(null_is_refused),
        cmocka_unit_test(misaligned),
        cmocka_unit_test(outside_shared),
        cmocka_unit_test(outside_local),
        cmocka_unit_test(outside_parameters),
        cmocka_unit_test(traps),
        cmocka_unit_test(asserts),
        cmocka_unit_test(unsupported),
        cmocka_unit_test(deadlocks),
        cmocka_unit_test(exited_threads_hold_up_nobody),
        cmocka_unit_test(lanes_meet_across_arms),
        cmocka_unit_test(active_lanes),
        cmocka_unit_test(spinning_lets_others_run),
        cmocka_unit_test(arriving_again),
        cmocka_unit_test(instructions_are_counted),
        cmocka_unit_test(endless_recursion_ends),
        cmocka_unit_test(a_range_of_blocks),
        cmocka_unit_test(dynamic_shared_has_its_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
