/* The interpreter on the kernel zoo: each case gives what its reference in plain C does, from optimised and from
 * debugging PTX. */
#include "tests/zoo/zoo_interpret.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Beside this program. */
static void open_beside(struct zoo_module *m, const char *name) {
    char self[PATH_MAX] = "", path[PATH_MAX + 32], err[256];
    assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    snprintf(path, sizeof path, "%s/%s", dirname(self), name);
    if (zoo_open(m, path, err, sizeof err)) fail_msg("%s", err);
}

static int run_case(struct zoo_module *m, const struct zoo_case *c) {
    struct zoo_launch l;
    char err[512];
    int bad = zoo_interpret(m, c, &l, err, sizeof err) != 0;
    for (int k = 0; !bad && k < c->args; k++)
        if (c->arg[k].out) bad = !zoo_equal(c, k, l.buffer[k], l.want[k], err, sizeof err);
    if (bad) print_error("%s\n", err);
    if (!bad && !strcmp(c->name, "prints")) {
        char want[128];
        int v = ((int *)l.buffer[0])[3];
        snprintf(want, sizeof want, "thread 3 has %d and %g of the zoo\n", v, 0.5 * v);
        assert_string_equal(l.printed, want);
    }
    zoo_release(c, &l);
    return bad;
}

static void run_all(const char *name) {
    struct zoo_module m;
    int bad = 0;
    open_beside(&m, name);
    for (int k = 0; k < zoo_case_count; k++) bad += run_case(&m, &zoo_cases[k]);
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

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(optimised), cmocka_unit_test(debugging)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
