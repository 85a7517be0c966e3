/* acct-bench's lines: what is written is read, what is not whole is none; medians and quartiles. */
#include "measure/measure_times.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static void lines_are_read_as_written(void **state) {
    const struct measured cases[] = {
        {"gemm", "bf16", "up.forward", 8192, 12288, 4096, 0, 1.25e-3, 1.2e-3, 1.3e-3, 1.1e-3, 0.5, 77, ""},
        {"copy", "h2d", "pinned", 0, 0, 0, 67108864, 3e-3, 2e-3, 4e-3, 1e-3, 9, 3, ""},
        {"launch", "latency", "empty-kernel", 0, 0, 0, 0, 1.5e-6, 1e-6, 2e-6, 1e-9, 1, 4096, ""},
        {"gemm", "fp8", "all", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, "not supported: no unit = none"},
        {"alloc", "cudaMalloc", "-", 0, 0, 0, INT64_C(1) << 40, 0, 0, 0, 0, 0, 0, "out of memory"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char line[MEASURED_LINE];
        struct measured x;
        measured_write(line, &cases[i]);
        assert_int_equal(measured_read(line, &x), 0);
        assert_memory_equal(&x, &cases[i], sizeof x);
    }
}

/* Every beginning of a line, and lines of other forms. */
static void what_is_not_whole_is_none(void **state) {
    static const char *const wrong[] = {
        "",
        "\n",
        "gemm\n",
        "gemm fp32\n",
        "gemm fp32 square\n",
        "gemm fp32 square m=1 n=1 k=1\n",
        "gemm fp32 square m=0 n=1 k=1 median_s=1 q1_s=1 q3_s=1 min_s=1 max_s=1 times=1\n",
        "gemm fp32 square m=1 n=1 k=1 median_s=0 q1_s=1 q3_s=1 min_s=1 max_s=1 times=1\n",
        "gemm fp32 square m=1 n=1 k=1 median_s=nan q1_s=1 q3_s=1 min_s=1 max_s=1 times=1\n",
        "gemm fp32 square m=1 n=1 k=1 median_s=inf q1_s=1 q3_s=1 min_s=1 max_s=1 times=1\n",
        "gemm fp32 square m=1x n=1 k=1 median_s=1 q1_s=1 q3_s=1 min_s=1 max_s=1 times=1\n",
        "gemm fp32 square other=1 median_s=1 q1_s=1 q3_s=1 min_s=1 max_s=1 times=1\n",
        "gemm fp32 square skipped=\n",
        "a-kind-too-long fp32 square median_s=1 q1_s=1 q3_s=1 min_s=1 max_s=1 times=1\n"};
    const struct measured whole = {"copy", "d2d", "kernel", 0, 0, 0, 1024, 1e-3, 1e-3, 1e-3, 1e-3, 1e-3, 12, ""};
    char line[MEASURED_LINE];
    struct measured x;
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) assert_int_equal(measured_read(wrong[i], &x), -1);
    measured_write(line, &whole);
    for (size_t n = strlen(line) - 1; n > 0; n--) {
        line[n] = 0;
        assert_int_equal(measured_read(line, &x), -1);
    }
}

static void device_keys_are_whole_words(void **state) {
    const char *value = NULL;
    (void)state;
    assert_true(measured_device("device name A B\n", MEASURED_NAME, &value));
    assert_string_equal(value, "A B\n");
    assert_false(measured_device("device names A\n", MEASURED_NAME, &value));
    assert_false(measured_device("devices name A\n", MEASURED_NAME, &value));
}

/* Of 1 … 5, in any order: quartiles 2 and 4; of two numbers, between them. */
static void figures(void **state) {
    static struct times t = {.s = {5, 1, 4, 2, 3}, .n = 5}, two = {.s = {3, 1}, .n = 2}, one = {.s = {7}, .n = 1};
    struct measured x;
    (void)state;
    times_figures(&t, &x);
    assert_true(x.median_s == 3 && x.q1_s == 2 && x.q3_s == 4 && x.min_s == 1 && x.max_s == 5 && x.times == 5);
    times_figures(&two, &x);
    assert_true(x.median_s == 2 && x.q1_s == 1.5 && x.q3_s == 2.5);
    times_figures(&one, &x);
    assert_true(x.median_s == 7 && x.q1_s == 7 && x.max_s == 7);
}

static void batches_take_two_milliseconds(void **state) {
    (void)state;
    assert_int_equal(times_batch(1, 256), 1);
    assert_int_equal(times_batch(2e-3, 256), 1);
    assert_int_equal(times_batch(1e-4, 256), 20);
    assert_int_equal(times_batch(1e-9, 256), 256);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(lines_are_read_as_written),
                                       cmocka_unit_test(what_is_not_whole_is_none),
                                       cmocka_unit_test(device_keys_are_whole_words), cmocka_unit_test(figures),
                                       cmocka_unit_test(batches_take_two_milliseconds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
