/* The rounding of the driver's account: pieces of 2 MiB. */
#include "analyzer/memory_reconcile.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

static void test_rounding(void **state) {
    const int64_t M = 1 << 20;
    struct memory_rounding m = {0};
    (void)state;
    memory_rounding_add(&m, 3 * M); /* two pieces */
    assert_int_equal(memory_rounding_bytes(&m), M);
    memory_rounding_add(&m, 1); /* 512 bytes of a third */
    assert_int_equal(memory_rounding_bytes(&m), M + 2 * M - 1);
    for (int i = 0; i < 4095; i++) memory_rounding_add(&m, 512); /* that piece is full now */
    assert_int_equal(memory_rounding_bytes(&m), M + 511);
    memory_rounding_add(&m, 512);
    assert_int_equal(memory_rounding_bytes(&m), M + 511 + 2 * M - 512);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rounding)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
