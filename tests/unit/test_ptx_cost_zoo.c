/* The cost model on the kernel zoo against what the interpreter counted: exact in every field where the grade says so,
 * within the bounds else; from optimised and from debugging PTX. */
#include "ptx/ptx_cost.h"
#include "tests/zoo/zoo_interpret.h"
#include "tests/unit/ptx_cost_testing.h"
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

static int problems, graded[3], no_bound;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void check_case(struct zoo_module *m, const struct zoo_case *c, bool verbose) {
    struct zoo_launch l;
    struct ptx_cost cost;
    struct ptx_tally truth = {{0}};
    char err[512];
    const struct ptx_function *f = ptx_function_find(m->ptx, c->kernel);
    m->counts = &truth;
    if (zoo_interpret(m, c, &l, err, sizeof err)) fail_msg("%s", err);
    double t = now();
    int r = ptx_cost_launch(m->ptx, f, c->grid, c->block, c->shared, l.params, &cost);
    t = now() - t;
    zoo_release(c, &l);
    if (r) {
        print_error("%s: %s\n", c->name, cost.why);
        problems++;
        return;
    }
    graded[cost.grade]++;
    no_bound += cost.instructions.hi == INT64_MAX;
    fold_spaces(&cost, &truth);
    for (unsigned k = 0; k < PTX_T_FIELDS; k++) {
        const struct ptx_count *n = ptx_cost_field(&cost, k);
        bool good = cost.grade == PTX_COST_EXACT ? n->lo == truth.n[k] && n->hi == n->lo
                                                 : n->lo <= truth.n[k] && truth.n[k] <= n->hi;
        if (good) continue;
        print_error("%s: %s: %lld, said [%lld, %lld], grade %d %s\n", c->name, ptx_tally_name(k), (long long)truth.n[k],
                    (long long)n->lo, (long long)n->hi, cost.grade, cost.why);
        problems++;
    }
    if (t > 5) { /* 0.1 at most, more with a sanitizer */
        print_error("%s: %.3f s\n", c->name, t);
        problems++;
    }
    if (verbose)
        print_message("%-24s %d %8.0f us  [%lld, %lld] of %lld  %s\n", c->name, cost.grade, 1e6 * t,
                      (long long)cost.instructions.lo, (long long)cost.instructions.hi,
                      (long long)truth.n[PTX_T_INSTRUCTIONS], cost.why);
}

static void check_file(const char *name) {
    char self[PATH_MAX] = "", path[PATH_MAX + 32], err[256];
    struct zoo_module m;
    assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    snprintf(path, sizeof path, "%s/%s", dirname(self), name);
    if (zoo_open(&m, path, err, sizeof err)) fail_msg("%s", err);
    memset(graded, 0, sizeof graded);
    problems = no_bound = 0;
    for (int k = 0; k < zoo_case_count; k++) check_case(&m, &zoo_cases[k], getenv("VERBOSE"));
    zoo_close(&m);
    print_message("%s: %d launches, %d exact, %d sampled, %d bound (%d without upper bound)\n", name, zoo_case_count,
                  graded[PTX_COST_EXACT], graded[PTX_COST_SAMPLED], graded[PTX_COST_BOUND], no_bound);
    assert_int_equal(problems, 0);
}

static void optimised(void **state) {
    (void)state;
    check_file("zoo.ptx");
}

static void debugging(void **state) {
    (void)state;
    check_file("zoo_debug.ptx");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(optimised), cmocka_unit_test(debugging)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
