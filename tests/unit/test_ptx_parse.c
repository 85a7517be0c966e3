/* The PTX parser on small texts. Expected values come from the PTX manual (layout, scopes, literals), from the C
 * structs that the parameters stand for, and from drawing the flow graphs by hand. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "ptx/ptx.h"

#define HEAD ".version 8.0\n.target sm_80\n.address_size 64\n"

static struct ptx_module *parse(const char *text) {
    struct ptx_module *m;
    struct ptx_error error;
    if (ptx_parse(text, strlen(text), &m, &error)) fail_msg("%d:%d: %s", error.line, error.column, error.text);
    return m;
}

static const struct ptx_function *function(const struct ptx_module *m, const char *name) {
    const struct ptx_function *f = ptx_function_find(m, name);
    if (!f) fail_msg("no function %s", name);
    return f;
}

static void header(void **state) {
    (void)state;
    struct ptx_module *m = parse(".version 9.0\n.target sm_90a, debug\n.address_size 64\n");
    assert_int_equal(m->version, 90);
    assert_int_equal(m->sm, 90);
    assert_int_equal(m->target_suffix, 'a');
    assert_int_equal(m->address_bits, 64);
    ptx_free(m);
}

/* struct { char a; double b[2]; short c; } by value, then an int, then 16 aligned bytes. */
static void parameters(void **state) {
    (void)state;
    struct by_value {
        char a;
        double b[2];
        short c;
    };
    struct buffer {
        struct by_value p;
        int n;
        _Alignas(16) unsigned char v[16];
        char last;
    };
    char text[512];
    snprintf(text, sizeof text,
             HEAD ".visible .entry k(.param .align %zu .b8 k_0[%zu], .param .u32 k_1, .param .align 16 .b8 k_2[16], "
                  ".param .u8 k_3) { ret; }\n",
             _Alignof(struct by_value), sizeof(struct by_value));
    struct ptx_module *m = parse(text);
    const struct ptx_function *f = function(m, "k");
    assert_true(f->entry);
    assert_int_equal(f->params, 4);
    assert_int_equal(f->vars[0].offset, offsetof(struct buffer, p));
    assert_int_equal(f->vars[0].bytes, sizeof(struct by_value));
    assert_int_equal(f->vars[1].offset, offsetof(struct buffer, n));
    assert_int_equal(f->vars[2].offset, offsetof(struct buffer, v));
    assert_int_equal(f->vars[3].offset, offsetof(struct buffer, last));
    assert_int_equal(f->param_bytes, offsetof(struct buffer, last) + 1);
    ptx_free(m);
}

/* Shared variables of a callee are the kernel's too; dynamic ones begin behind all static ones, at their alignment. */
static void shared_memory(void **state) {
    (void)state;
    struct ptx_module *m =
        parse(HEAD ".extern .shared .align 16 .b8 d[];\n.extern .shared .align 8 .b8 e[];\n"
                   ".shared .align 4 .b8 never[100];\n"
                   ".func f() { .reg .b32 %r<3>; .shared .align 4 .b8 t[20]; mov.u32 %r1, t; ret; }\n"
                   ".entry k() { .reg .b32 %r<5>; .shared .align 8 .f64 x[3]; .shared .b8 y;\n"
                   "mov.u32 %r1, x; mov.u32 %r2, y; mov.u32 %r3, d; mov.u32 %r4, e; call f; ret; }\n"
                   ".entry other() { ret; }\n");
    const struct ptx_function *k = function(m, "k");
    int64_t t = -1, x = -1, y = -1;
    for (int32_t v = 0; v < m->var_count; v++) {
        if (!strcmp(m->vars[v].name, "t")) t = ptx_shared_offset(k, v);
        if (!strcmp(m->vars[v].name, "x")) x = ptx_shared_offset(k, v);
        if (!strcmp(m->vars[v].name, "y")) y = ptx_shared_offset(k, v);
        if (!strcmp(m->vars[v].name, "never")) assert_int_equal(ptx_shared_offset(k, v), -1);
        if (!strcmp(m->vars[v].name, "d") || !strcmp(m->vars[v].name, "e"))
            assert_int_equal(ptx_shared_offset(k, v), k->shared_bytes);
    }
    assert_true(t >= 0 && t % 4 == 0 && x >= 0 && x % 8 == 0 && y >= 0);
    assert_true((t + 20 <= x || x + 24 <= t) && (y < x || y >= x + 24) && (y < t || y >= t + 20)); /* none overlap */
    assert_int_equal(k->shared_bytes % 16, 0);
    assert_true(k->shared_bytes >= 45 && k->shared_bytes <= 64);
    assert_int_equal(function(m, "other")->shared_bytes, 0);
    ptx_free(m);
}

/* Only the function that has it suffers from what is not known, and those that call it. */
static void faults_of_a_function(void **state) {
    (void)state;
    struct ptx_module *m =
        parse(HEAD ".func bad() {\n.reg .f32 %f<3>;\nfrobnicate.f32 %f1, %f2;\nret;\n}\n"
                   ".entry caller() { call bad; ret; }\n"
                   ".entry good() { ret; }\n"
                   ".entry modifier() {\n.reg .f32 %f<3>;\n  add.bfly.f32 %f1, %f1, %f2;\n}\n"
                   ".entry tensor() { tcgen05.alloc.cta_group::1.sync.aligned.b32 [x], 32; { } ret; }\n"
                   ".entry width() { .reg .b64 %rd<2>; .reg .b32 %r<2>; mov.b64 %rd1, %r1; }\n");
    assert_non_null(strstr(function(m, "bad")->error, "line 6"));
    assert_non_null(strstr(function(m, "bad")->error, "frobnicate"));
    assert_non_null(strstr(function(m, "caller")->error, "frobnicate"));
    assert_null(function(m, "good")->error);
    assert_non_null(strstr(function(m, "modifier")->error, "line 13, column 6"));
    assert_non_null(strstr(function(m, "modifier")->error, ".bfly"));
    assert_non_null(strstr(function(m, "tensor")->error, "tcgen05"));
    assert_non_null(strstr(function(m, "width")->error, "%r1"));
    ptx_free(m);
}

static void faults_of_the_text(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int line, column;
    } cases[] = {
        {"", 1, 1},
        {"\n  hello", 2, 3},
        {HEAD ".entry k( { }", 4, 11},
        {HEAD ".entry k() {\n ret", 5, 5},
        {HEAD ".global .b8 x[4] = {1, 2,\n 3, 4, 5};", 5, 8},
        {HEAD "/* open", 4, 1},
        {HEAD ".global .b32 x;\n.global .b32 x;", 5, 14},
        {HEAD ".entry k() { mov.u32 %r1, \001; }", 4, 27},
    };
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        struct ptx_module *m;
        struct ptx_error error;
        assert_int_equal(ptx_parse(cases[n].text, strlen(cases[n].text), &m, &error), -1);
        if (error.line != cases[n].line || error.column != cases[n].column || !error.text[0])
            fail_msg("case %zu: %d:%d: %s", n, error.line, error.column, error.text);
        assert_null(m);
    }
}

/* The same name in a nested scope is another register; a label too. */
static void scopes(void **state) {
    (void)state;
    struct ptx_module *m = parse(HEAD ".entry k() { .reg .b32 t; .reg .pred p;\nmov.u32 t, 1;\n"
                                      "{ .reg .b64 t; mov.u64 t, 2; @p bra L; mov.u64 t, 5; L: }\n"
                                      "{ @p bra L; mov.u32 t, 6; L: }\nmov.u32 t, 3; ret; }\n");
    const struct ptx_function *f = function(m, "k");
    assert_null(f->error);
    assert_int_equal(f->instrs[0].dst[0].reg, f->instrs[f->instr_count - 2].dst[0].reg);
    assert_int_not_equal(f->instrs[0].dst[0].reg, f->instrs[1].dst[0].reg);
    assert_int_equal(f->regs[f->instrs[1].dst[0].reg].type, PTX_B64);
    assert_int_not_equal(f->instrs[2].target, f->instrs[4].target);
    ptx_free(m);
}

static void literals(void **state) {
    (void)state;
    struct ptx_module *m =
        parse(HEAD ".entry k() { .reg .b32 %r<9>; .reg .f32 %f<9>; .reg .f64 %d<9>; .reg .b64 %l<9>;\n"
                   "mov.u32 %r1, 0xFFFFFFFF; mov.u32 %r1, -1; mov.f32 %f1, 0fBF800000;\n"
                   "mov.f64 %d1, 0d3FF8000000000000; add.f64 %d1, %d1, 0f40000000; mov.b32 %r1, 017;\n"
                   "mov.u64 %l1, 18446744073709551615U; mov.u32 %r1, 0b101; mov.u32 %r1, WARP_SZ; ret; }");
    const struct ptx_function *f = function(m, "k");
    double two = 2, one_and_a_half = 1.5;
    float minus_one = -1;
    uint64_t bits = 0;
    assert_null(f->error);
    assert_int_equal(f->instrs[0].src[0].bits, UINT64_MAX); /* sign-extended from the operand's 32 bits */
    assert_int_equal(f->instrs[1].src[0].bits, UINT64_MAX);
    memcpy(&bits, &minus_one, 4);
    assert_int_equal(f->instrs[2].src[0].bits, bits);
    assert_memory_equal(&f->instrs[3].src[0].bits, &one_and_a_half, 8);
    assert_memory_equal(&f->instrs[4].src[1].bits, &two, 8);
    assert_int_equal(f->instrs[5].src[0].bits, 15);
    assert_int_equal(f->instrs[6].src[0].bits, UINT64_MAX);
    assert_int_equal(f->instrs[7].src[0].bits, 5);
    assert_int_equal(f->instrs[8].src[0].bits, 32);
    ptx_free(m);
}

static void initial_values(void **state) {
    (void)state;
    struct ptx_module *m =
        parse(HEAD ".func g() { ret; }\n.global .align 4 .b8 s[3] = {97, 98};\n.global .u64 p[2] = {generic(s)+1, g};\n"
                   ".global .f32 x[2][2] = {{0f3F800000, 2.0}, {-0f3F800000}};\n"
                   ".global .align 1 .u8 q[9] = {7, 0xFF(s), 0xFF00(s), 0xFF0000(s), 0xFF000000(s), 0xFF00000000(s), "
                   "0xFF0000000000(s), 0xFF000000000000(s), 0xFF00000000000000(s)};\n.const .b32 zero[2];\n");
    const struct ptx_var *v = m->vars;
    const float x[4] = {1, 2, -1, 0};
    assert_int_equal(m->var_count, 5);
    assert_memory_equal(v[0].init, "ab", 3);
    assert_int_equal(v[1].reloc_count, 2);
    assert_true(v[1].relocs[0].at == 0 && v[1].relocs[0].var == 0 && v[1].relocs[0].offset == 1 &&
                v[1].relocs[0].generic);
    assert_true(v[1].relocs[1].at == 8 && v[1].relocs[1].func == 0 && v[1].relocs[1].var == -1);
    assert_int_equal(v[2].bytes, sizeof x);
    assert_memory_equal(v[2].init, x, sizeof x);
    assert_int_equal(v[3].reloc_count, 1);
    assert_int_equal(v[3].relocs[0].at, 1);
    assert_int_equal(v[3].init[0], 7);
    assert_null(v[4].init);
    assert_int_equal(v[4].space, PTX_CONST);
    ptx_free(m);
}

/*  0 → 1 → 3, 0 → 2 → 3, 3 → 3 (loop), 3 → 4 */
static void flow(void **state) {
    (void)state;
    struct ptx_module *m = parse(HEAD ".entry k() { .reg .pred p; .reg .b32 r;\n@p bra A;\nmov.u32 r, 1;\nbra B;\n"
                                      "A: mov.u32 r, 2;\nB: add.u32 r, r, 1;\n@!p bra B;\nret;\n}\n");
    const struct ptx_function *f = function(m, "k");
    static const int idom[] = {-1, 0, 0, 0, 3}, ipdom[] = {3, 3, 3, 4, -1}, preds[] = {0, 1, 1, 3, 1};
    assert_int_equal(f->block_count, 5);
    for (int b = 0; b < 5; b++) {
        assert_int_equal(f->blocks[b].idom, idom[b]);
        assert_int_equal(f->blocks[b].ipdom, ipdom[b]);
        assert_int_equal(f->blocks[b].preds, preds[b]);
        assert_true(f->blocks[b].rank >= 0);
    }
    assert_int_equal(f->blocks[0].succ[0], 1); /* fall-through first */
    assert_int_equal(f->blocks[0].succ[1], 2);
    assert_int_equal(f->blocks[3].succ[0], 4);
    assert_int_equal(f->blocks[3].succ[1], 3);
    ptx_free(m);
}

static void indexed_branches(void **state) {
    (void)state;
    struct ptx_module *m = parse(HEAD ".entry k() { .reg .b32 r;\nts: .branchtargets A, B, A;\nbrx.idx r, ts;\n"
                                      "A: ret;\nB: trap;\nC: ret; }\n");
    const struct ptx_function *f = function(m, "k");
    assert_null(f->error);
    assert_int_equal(f->instrs[0].targets, 3);
    const int32_t *to = f->branch_targets + f->instrs[0].targets0;
    assert_true(to[0] == 1 && to[1] == 2 && to[2] == 1);
    assert_int_equal(f->blocks[0].succs, 0);
    assert_int_equal(f->blocks[0].ipdom, -1);
    assert_int_equal(f->blocks[3].rank, -1); /* not reachable */
    ptx_free(m);
}

static void calls(void **state) {
    (void)state;
    struct ptx_module *m = parse(
        HEAD
        ".func (.param .b32 r) f(.param .b64 a, .param .b32 b);\n.extern .func (.param .b32 r) vprintf(.param .b64 "
        "x, .param .b64 y);\n"
        ".entry k() { .reg .b32 %r<4>; .reg .b64 %rd<4>; .local .align 16 .b8 depot[40];\n"
        "{ .param .b64 p0; .param .b32 p1; .param .b32 ret0; call.uni (ret0), f, (p0, p1); ld.param.b32 %r1, [ret0+0]; "
        "}\n"
        "{ .param .b64 p0; .param .b64 p1; .param .b32 ret0; call (ret0), vprintf, (p0, p1); }\n"
        "{ .param .b32 ret0; call (ret0), %rd1, (), proto; proto: .callprototype (.param .b32 _) _ (); } ret; }\n"
        ".func (.param .b32 r) f(.param .b64 a, .param .b32 b) { bar.sync 0; atom.global.add.u32 %r1, [%rd1], 1; "
        ".reg .b32 %r1; .reg .b64 %rd1; }\n"
        ".entry short() { .param .b64 p0; .param .b32 ret0; call (ret0), f, (p0); }\n");
    const struct ptx_function *k = function(m, "k"), *f = function(m, "f");
    assert_non_null(f->error); /* registers are named before they are declared */
    assert_int_equal(f->params, 2);
    assert_int_equal(f->returns, 1);
    assert_true(function(m, "vprintf")->declared_only);
    const struct ptx_instr *call = &k->instrs[0];
    assert_int_equal(call->op, PTX_OP_CALL);
    assert_string_equal(m->functions[call->callee].name, "f");
    assert_int_equal(call->srcs, 2);
    assert_int_equal(call->dsts, 1);
    const struct ptx_var *p0 = ptx_var_of(m, k, call->src[0].var);
    assert_int_equal(p0->bytes, 8);
    assert_true(p0->offset >= 40 && p0->offset % 8 == 0 && p0->offset + 8 <= k->local_bytes);
    const struct ptx_instr *indirect = &k->instrs[3];
    assert_int_equal(indirect->callee, -1);
    assert_int_equal(indirect->src[0].kind, PTX_REG);
    assert_non_null(strstr(function(m, "short")->error, "number of arguments"));
    ptx_free(m);
}

static void properties(void **state) {
    (void)state;
    struct ptx_module *m = parse(HEAD ".func f() { bar.sync 0; ret; }\n.func g() { call f; ret; }\n"
                                      ".entry k() { call g; ret; }\n.entry w() { bar.warp.sync 0xffffffff; ret; }\n"
                                      ".entry plain() { .reg .b32 r; mov.u32 r, 1; ret; }\n");
    assert_true(function(m, "k")->properties & PTX_P_BARRIER);
    assert_true(function(m, "w")->properties & PTX_P_WARP);
    assert_false(function(m, "w")->properties & PTX_P_BARRIER);
    assert_false(function(m, "plain")->properties & (PTX_P_BARRIER | PTX_P_WARP | PTX_P_READS | PTX_P_WRITES));
    ptx_free(m);
}

static void debugging_directives(void **state) {
    (void)state;
    struct ptx_module *m =
        parse(HEAD ".file 1 \"a.cu\", 12, 34\n.entry k() {\n.loc 1 16 30\n.loc 2 5 3, function_name L, "
                   "inlined_at 1 17 30\n.pragma \"nounroll\";\nret;\n}\n.section .debug_info\n{\n.b8 1\n.b64 "
                   "k\nL:\n.b32 L+4\n}\n.global .b32 after;\n");
    assert_null(function(m, "k")->error);
    assert_int_equal(function(m, "k")->instr_count, 1);
    assert_int_equal(function(m, "k")->instrs[0].line, 9);
    assert_int_equal(ptx_global_find(m, "after"), 0);
    ptx_free(m);
}

/* What an opcode takes is in tables; each modifier must be found by the search in them. */
static void modifiers(void **state) {
    (void)state;
    struct ptx_module *m = parse(
        HEAD ".entry k() { .reg .b32 %r<9>; .reg .f32 %f<9>; .reg .b64 %rd<3>; .reg .pred %p<5>; .reg .b16 %h<4>;\n"
             "fma.rn.ftz.sat.f32 %f1, %f2, %f3, %f4; cvt.rzi.ftz.s32.f32 %r1, %f1; setp.gtu.and.f32 %p1|%p2, %f1, %f2, "
             "!%p3;\n"
             "ld.global.nc.L1::no_allocate.L2::128B.v4.f32 {%f1, %f2, %f3, _}, [%rd1+-16]; st.volatile.shared.u32 "
             "[%r1], %r2;\n"
             "shf.r.wrap.b32 %r1, %r2, %r3, 7; lop3.b32 %r1, %r2, %r3, %r4, 0xCA; atom.acq_rel.gpu.global.cas.b32 %r1, "
             "[%rd1], "
             "%r2, %r3;\n"
             "bar.red.popc.u32 %r1, 0, %p1; mul.wide.u32 %rd1, %r1, -1; vote.sync.ballot.b32 %r1, !%p1, -1; "
             "max.NaN.f16 %h1, %h2, "
             "%h3;\n"
             "mov.b64 {%r1, %r2}, %rd1; ret; }\n");
    const struct ptx_function *f = function(m, "k");
    const struct ptx_instr *i = f->instrs;
    if (f->error) fail_msg("%s", f->error);
    assert_true(i[0].round == PTX_RN && i[0].modifiers == (PTX_M_FTZ | PTX_M_SAT) && i[0].type == PTX_F32);
    assert_true(i[1].round == PTX_RZI && i[1].type == PTX_S32 && i[1].type2 == PTX_F32);
    assert_true(i[2].compare == PTX_GTU && i[2].combine == PTX_SUB_AND && i[2].dsts == 2 && i[2].src[2].negated);
    assert_true(i[3].vector == 4 && i[3].space == PTX_GLOBAL && i[3].modifiers & PTX_M_NC && i[3].src[0].offset == -16);
    assert_int_equal(i[3].dst[0].elements[3].kind, PTX_SINK);
    assert_true(i[4].space == PTX_SHARED && i[4].modifiers & PTX_M_VOLATILE);
    assert_int_equal(i[5].sub, PTX_SUB_R_WRAP);
    assert_true(i[6].lut == 0xCA && i[6].srcs == 3);
    assert_true(i[7].sub == PTX_SUB_CAS && i[7].srcs == 3);
    assert_true(i[8].sub == PTX_SUB_BAR_RED_POPC && ptx_operand_type(&i[8], false, 1) == PTX_PRED);
    assert_int_equal(ptx_operand_type(&i[9], true, 0), PTX_U64);
    assert_int_equal(i[10].sub, PTX_SUB_BALLOT);
    assert_true(i[11].modifiers & PTX_M_NAN);
    assert_int_equal(i[12].dst[0].count, 2);
    ptx_free(m);
}

/* Each alone in a kernel: read, or refused by its name. */
static void special_forms(void **state) {
    static const struct {
        const char *text, *refused;
    } forms[] = {
        {"mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
         "{%f0,%f1,%f2,%f3},{%r0,%r1,%r2,%r3},{%r4,%r5},{%f0,%f1,%f2,%f3};",
         NULL},
        {"mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {%f0,%f1,%f2,%f3,%f4,%f5,%f6,%f7},{%r0,%r1},{%r2,%r3},"
         "{%f0,%f1,%f2,%f3,%f4,%f5,%f6,%f7};",
         NULL},
        {"mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc "
         "{%r0,%r1,%r2,%r3},{%r0,%r1,%r2,%r3},{%r4,%r5},{%r0,%r1,%r2,%r3};",
         NULL},
        {"mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {%f0,%f1,%f2,%f3},{%r0,%r1,%r2,%r3},"
         "{%r4,%r5,%r6,%r7},{%f0,%f1,%f2,%f3},%r0,0x0;",
         NULL},
        {"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
         "{%f0,%f1,%f2,%f3},{%d0,%r1,%r2,%r3},{%r4,%r5},{%f0,%f1,%f2,%f3};",
         "32 bits"},
        {"mma.sync.aligned.m16n8k16.row.col.f32.wrong.f16.f32 "
         "{%f0,%f1,%f2,%f3},{%r0,%r1,%r2,%r3},{%r4,%r5},{%f0,%f1,%f2,%f3};",
         "wrong"},
        {"wmma.load.a.sync.aligned.col.m16n16k16.shared::cta.f16 {%r0,%r1,%r2,%r3,%r4,%r5,%r6,%r7},[%r0],%r1;", NULL},
        {"wmma.load.b.sync.aligned.col.m8n8k32.global.s4 {%r0},[%d0];", NULL},
        {"wmma.load.a.sync.aligned.row.m16n16k16.f16 {%r0,%r1,%r2,%r3,%r4,%r5,%r6},[%d0];", "wmma"},
        {"wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.bf16.bf16 {%f0,%f1,%f2,%f3},%d0,%d1,%r0,0,1,1,1,0,0;", NULL},
        {"wgmma.fence.sync.aligned;", NULL},
        {"ldmatrix.sync.aligned.m8n8.x2.b16 {%r0,%r1},[%d0];", NULL},
        {"ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r0},[%r1];", "registers"},
        {"ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r0,%r1},[%r2];", "m16n16"},
        {"stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%r0+16],{%r0,%r1,%r2,%r3};", NULL},
        {"cp.async.ca.shared::cta.global.L2::256B [%r0],[%d0+8],4,%r1;", NULL},
        {"cp.async.cg.shared.global [%r0],[%d0],16,!%p0;", NULL},
        {"cp.async.cg.shared.global [%r0],[%d0],12;", "cp.async"},
        {"cp.async.mbarrier.arrive.noinc.shared.b64 [%r0];", NULL},
        {"cp.async.bulk.wait_group.read 0;", NULL},
        {"cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%d0,{%r0,%r1,%r2}],[%r3];", NULL},
        {"mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _,[%r0],%r1;", NULL},
        {"mbarrier.test_wait.parity.shared.b64 %p0,[%r0],%r1;", NULL},
        {"mbarrier.pending_count.b64 %r0,%d0;", NULL},
        {"st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r0],%r1,[%r2];", NULL},
        {"red.relaxed.gpu.global.add.v4.f32 [%d0],{%f0,%f1,%f2,%f3};", NULL},
        {"setmaxnreg.dec.sync.aligned.u32 40;", NULL},
        {"discard.global.L2 [%d0],128;", NULL},
        {"tcgen05.wait::ld.sync.aligned;", "tcgen05"},
        {"tex.1d.v4.f32.s32 {%f0,%f1,%f2,%f3},[t,{%r0}];", "tex"},
        {"suld.b.1d.b32.trap {%r0},[s,{%r1}];", "suld"},
    };
    (void)state;
    for (size_t n = 0; n < sizeof forms / sizeof *forms; n++) {
        char text[1024];
        struct ptx_module *m;
        struct ptx_error e;
        snprintf(
            text, sizeof text,
            HEAD
            ".entry k() {\n.reg .pred %%p<4>;\n.reg .b32 %%r<9>;\n.reg .b64 %%d<4>;\n.reg .f32 %%f<9>;\n%s\nret;\n}\n",
            forms[n].text);
        if (ptx_parse(text, strlen(text), &m, &e)) fail_msg("%s: %s", forms[n].text, e.text);
        const char *error = function(m, "k")->error;
        if (!forms[n].refused && error) fail_msg("%s: %s", forms[n].text, error);
        if (forms[n].refused && (!error || !strstr(error, forms[n].refused)))
            fail_msg("%s: %s", forms[n].text, error ? error : "read");
        ptx_free(m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(header),
        cmocka_unit_test(parameters),
        cmocka_unit_test(shared_memory),
        cmocka_unit_test(faults_of_a_function),
        cmocka_unit_test(faults_of_the_text),
        cmocka_unit_test(scopes),
        cmocka_unit_test(literals),
        cmocka_unit_test(initial_values),
        cmocka_unit_test(flow),
        cmocka_unit_test(indexed_branches),
        cmocka_unit_test(calls),
        cmocka_unit_test(properties),
        cmocka_unit_test(debugging_directives),
        cmocka_unit_test(modifiers),
        cmocka_unit_test(special_forms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
