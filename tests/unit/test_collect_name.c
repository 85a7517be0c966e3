/* Names of traces, and texts of any bytes as JSON. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "trace/collect_name.h"
#include "trace/collect_text.h"

static char out[64], err[256];

static const struct name_values values = {.pid = 123, .rank = 4, .host = "node/7", .counter = 9};

static void expands(const char *pattern, const char *expected) {
    assert_int_equal(name_expand(pattern, &values, out, sizeof out, err, sizeof err), 0);
    assert_string_equal(out, expected);
}

static void patterns(void **state) {
    (void)state;
    expands("acct-%p.db", "acct-123.db");
    expands("/x/%r/%h-%n%%", "/x/4/node_7-9%");
    expands("plain", "plain");
    assert_int_equal(name_has_counter("a%%n"), 0);
    assert_int_equal(name_has_counter("a%%%n"), 1);
}

static void bad_patterns(void **state) {
    (void)state;
    assert_int_equal(name_expand("a%q", &values, out, sizeof out, err, sizeof err), -1);
    assert_non_null(strstr(err, "%q"));
    assert_int_equal(name_expand("a%", &values, out, sizeof out, err, sizeof err), -1);
    assert_int_equal(name_expand("a%p%p%p%p", &values, out, 8, err, sizeof err), -1);
    assert_non_null(strstr(err, "too long"));
}

static void numbers(void **state) {
    (void)state;
    name_number("a.db", 0, out, sizeof out);
    assert_string_equal(out, "a.db");
    name_number("a.db", 2, out, sizeof out);
    assert_string_equal(out, "a-2.db");
    name_number("x.d/trace", 10, out, sizeof out);
    assert_string_equal(out, "x.d/trace-10");
    assert_int_equal(name_number("a-long-name.db", 2, out, 8), -1);
}

static void is_json(char *got, const char *expected) {
    assert_string_equal(got, expected);
    sqlite3_free(got);
}

static void json(void **state) {
    (void)state;
    is_json(text_json_array("", 0), "[]");
    is_json(text_json_array("a\0\0b c\0", 7), "[\"a\",\"\",\"b c\"]");
    is_json(text_json_array("no end", 6), "[\"no end\"]");
    is_json(text_json_array("\"\\\n\t\x01\x7f\0", 7), "[\"\\\"\\\\\\u000a\\u0009\\u0001\\u007f\"]");
    is_json(text_json_array("\xc3\xa4\xff\xc3\0", 5), "[\"\xc3\xa4\xef\xbf\xbd\xef\xbf\xbd\"]");
    is_json(text_json_array("\xed\xa0\x80\0", 4), "[\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"]"); /* a surrogate */
    is_json(text_json_array("\xf0\x9f\x98\x80\0", 5), "[\"\xf0\x9f\x98\x80\"]");
    is_json(text_json_object("A=1=2\0B=\0C\0", 11), "{\"A\":\"1=2\",\"B\":\"\",\"C\":null}");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns),
        cmocka_unit_test(bad_patterns),
        cmocka_unit_test(numbers),
        cmocka_unit_test(json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
