/* Linking PTX of several translation units. The texts are written here; what must come out is said by PTX's own rules
 * of linkage. */
#include "ptx/ptx.h"
#include "ptx/ptx_link.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define HEAD ".version 8.0\n.target sm_80\n.address_size 64\n"

/* Links; *out is the caller's. Returns the error, "" if there is none. */
static const char *link_texts(const char *const *texts, size_t count, char **out) {
    static char err[300];
    size_t bytes[8], length;
    for (size_t i = 0; i < count; i++) bytes[i] = strlen(texts[i]);
    *out = NULL;
    if (ptx_link(texts, bytes, count, out, &length, err, sizeof err)) return err;
    assert_int_equal(strlen(*out), length);
    return "";
}

static struct ptx_module *parse(const char *text) {
    struct ptx_module *m = NULL;
    struct ptx_error e;
    if (ptx_parse(text, strlen(text), &m, &e)) {
        print_message("line %d: %s\n%s\n", e.line, e.text, text);
        fail();
    }
    return m;
}

static const char *const two[] = {
    HEAD ".extern .func (.param .b32 r) there (.param .b32 a);\n"
         ".extern .global .align 4 .u32 value;\n"
         "// a comment with ; and { in it\n"
         ".global .align 1 .b8 $str[5] = {111, 110, 101, 10};\n"
         ".visible .entry first(.param .u64 p)\n{\n .reg .b64 %rd<4>;\n .reg .b32 %r<4>;\n"
         " mov.u64 %rd1, $str;\n ld.global.u32 %r1, [value];\n"
         " { .param .b32 a0; st.param.b32 [a0], %r1; .param .b32 r0; call.uni (r0), there, (a0); ld.param.b32 %r2, "
         "[r0]; }\n ret;\n}\n",
    HEAD
    ".visible .global .align 4 .u32 value = 7;\n"
    ".global .align 1 .b8 $str[3] = {116, 119};\n"
    ".func local(.param .b32 x) { ret; }\n"
    ".visible .func (.param .b32 r) there (.param .b32 a)\n{\n .reg .b64 %rd<2>;\n mov.u64 %rd1, $str;\n ret;\n}\n"};

static void declarations_find_definitions(void **state) {
    (void)state;
    char *out;
    assert_string_equal(link_texts(two, 2, &out), "");
    struct ptx_module *m = parse(out);
    const struct ptx_function *first = ptx_function_find(m, "first"), *there = ptx_function_find(m, "there");
    int32_t value = ptx_global_find(m, "value");
    assert_non_null(first);
    assert_null(first->error);
    assert_non_null(there);
    assert_false(there->declared_only);
    assert_true(value >= 0 && !m->vars[value].external && m->vars[value].init && m->vars[value].init[0] == 7);
    bool called = false;
    for (int32_t i = 0; i < first->instr_count; i++)
        called |= first->instrs[i].op == PTX_OP_CALL && &m->functions[first->instrs[i].callee] == there;
    assert_true(called);
    ptx_free(m);
    free(out);
}

/* The variable that the first mov of a function takes the address of. */
static const struct ptx_var *taken(const struct ptx_module *m, const char *function) {
    const struct ptx_function *f = ptx_function_find(m, function);
    for (int32_t i = 0; f && i < f->instr_count; i++)
        if (f->instrs[i].op == PTX_OP_MOV && f->instrs[i].src[0].kind == PTX_SYMBOL)
            return ptx_var_of(m, f, f->instrs[i].src[0].var);
    return NULL;
}

static void names_of_a_unit_are_kept_apart(void **state) {
    (void)state;
    char *out;
    assert_string_equal(link_texts(two, 2, &out), "");
    struct ptx_module *m = parse(out);
    const struct ptx_var *one = taken(m, "first"), *other = taken(m, "there");
    assert_non_null(one);
    assert_non_null(other);
    assert_memory_equal(one->init, "one\n", 5);
    assert_memory_equal(other->init, "tw", 3);
    ptx_free(m);
    free(out);
}

static void first_weak_definition_is_taken(void **state) {
    (void)state;
    static const char *const texts[] = {HEAD ".weak .global .u32 w = 1;\n", HEAD ".weak .global .u32 w = 2;\n",
                                        HEAD ".visible .global .u32 w = 3;\n"};
    char *out;
    assert_string_equal(link_texts(texts, 2, &out), "");
    struct ptx_module *m = parse(out);
    assert_int_equal(m->var_count, 1);
    assert_int_equal(m->vars[0].init[0], 1);
    ptx_free(m);
    free(out);
    assert_string_equal(link_texts(texts, 3, &out), ""); /* a strong one beats them */
    m = parse(out);
    assert_int_equal(m->var_count, 1);
    assert_int_equal(m->vars[0].init[0], 3);
    ptx_free(m);
    free(out);
}

static void undefined_stays_declared(void **state) {
    (void)state;
    static const char *const texts[] = {HEAD ".extern .func f(.param .b32 x);\n.extern .shared .align 4 .b8 dyn[];\n",
                                        HEAD ".extern .func f(.param .b32 x);\n.extern .shared .align 4 .b8 dyn[];\n"};
    char *out;
    assert_string_equal(link_texts(texts, 2, &out), "");
    struct ptx_module *m = parse(out);
    assert_int_equal(m->function_count, 1);
    assert_true(m->functions[0].declared_only);
    assert_int_equal(m->var_count, 1);
    ptx_free(m);
    free(out);
}

static void mistakes_are_told(void **state) {
    (void)state;
    static const char *const twice[] = {HEAD ".visible .global .u32 w = 1;\n", HEAD ".visible .global .u32 w = 2;\n"};
    static const char *const cut[] = {HEAD ".visible .entry k(.param .u64 p)\n{ ret;\n", HEAD};
    static const char *const none[] = {"", ""};
    char *out;
    assert_string_equal(link_texts(twice, 2, &out), "defined twice: 'w' (translation unit 2)");
    assert_string_equal(link_texts(cut, 2, &out), "unfinished statement at '.visible' (translation unit 1)");
    assert_string_equal(link_texts(none, 2, &out), "no .version or no .target");
}

/* Whatever the texts are: an answer, and a result that can be read again. */
static void broken_texts_do_no_harm(void **state) {
    (void)state;
    uint64_t seed = 1;
    char *copies[2], *out, err[300];
    for (int round = 0; round < 3000; round++) {
        size_t bytes[2], length;
        for (int i = 0; i < 2; i++) {
            bytes[i] = strlen(two[i]);
            copies[i] = test_malloc(bytes[i]);
            memcpy(copies[i], two[i], bytes[i]);
            for (int k = 0; k < round % 7; k++) {
                seed = seed * 6364136223846793005u + 1442695040888963407u;
                copies[i][(seed >> 33) % bytes[i]] = "{}();.\"/*$,= \n\0x"[(seed >> 20) % 17];
            }
            if (round % 3 == 0) bytes[i] = (seed >> 40) % (bytes[i] + 1);
        }
        if (!ptx_link((const char *const *)copies, bytes, 2, &out, &length, err, sizeof err)) {
            assert_int_equal(strlen(out), length);
            free(out);
        }
        test_free(copies[0]);
        test_free(copies[1]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(declarations_find_definitions),
        cmocka_unit_test(names_of_a_unit_are_kept_apart),
        cmocka_unit_test(first_weak_definition_is_taken),
        cmocka_unit_test(undefined_stays_declared),
        cmocka_unit_test(mistakes_are_told),
        cmocka_unit_test(broken_texts_do_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
