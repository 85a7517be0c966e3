/* Fat binaries: those that nvcc made of one kernel, with each of its ways to compress; and some put together here,
 * whose compressed payloads come from the libraries' own compressors. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <lz4.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>
#include <cmocka.h>
#include "ptx/ptx_fatbin.h"

struct bytes {
    unsigned char at[1 << 16];
    size_t count;
};

static void add_entry(struct bytes *b, unsigned kind, unsigned arch, uint64_t flags, const void *payload, size_t bytes,
                      size_t uncompressed) {
    size_t padded = (bytes + 7) & ~(size_t)7;
    struct acct_fatbin_entry_header e = {.kind = (uint16_t)kind,
                                         .version = 0x0101,
                                         .header_bytes = sizeof e,
                                         .payload_bytes = padded,
                                         .compressed_bytes = uncompressed ? (uint32_t)bytes : 0,
                                         .arch = arch,
                                         .flags = flags,
                                         .uncompressed_bytes = uncompressed};
    if (!b->count) b->count = sizeof(struct acct_fatbin_header);
    memcpy(b->at + b->count, &e, sizeof e);
    memcpy(b->at + b->count + sizeof e, payload, bytes);
    b->count += sizeof e + padded;
    struct acct_fatbin_header h = {ACCT_FATBIN_MAGIC, 1, 16, b->count - sizeof h};
    memcpy(b->at, &h, sizeof h);
}

static char text[5000]; /* what goes in */

static void fill_text(void) {
    for (size_t n = 0; n < sizeof text - 1; n++) text[n] = (char)('a' + n * n % 23);
}

static void expect_text(const struct bytes *b, unsigned sm, unsigned arch) {
    struct acct_fatbin_entry e;
    char err[200], *out;
    size_t n;
    assert_int_equal(ptx_fatbin_choose(b->at, b->count, sm, &e, err, sizeof err), 1);
    assert_int_equal(e.arch, arch);
    if (ptx_fatbin_text(&e, &out, &n, err, sizeof err)) fail_msg("%s", err);
    assert_int_equal(n, strlen(text));
    assert_string_equal(out, text);
    free(out);
}

static void forms(void **state) {
    (void)state;
    char packed[8192];
    struct bytes b = {.count = 0};
    fill_text();
    add_entry(&b, ACCT_FATBIN_PTX, 80, ACCT_FATBIN_64BIT, text, sizeof text, 0);
    expect_text(&b, 80, 80);
    b.count = 0;
    size_t n = ZSTD_compress(packed, sizeof packed, text, sizeof text, 3);
    add_entry(&b, ACCT_FATBIN_PTX, 80, ACCT_FATBIN_ZSTD, packed, n, sizeof text);
    expect_text(&b, 90, 80);
    b.count = 0;
    n = (size_t)LZ4_compress_default(text, packed, sizeof text, sizeof packed);
    add_entry(&b, ACCT_FATBIN_PTX, 80, ACCT_FATBIN_LZ4, packed, n, sizeof text);
    expect_text(&b, 120, 80);
}

/* The highest architecture not above the device's; machine code and newer PTX do not count. */
static void choice(void **state) {
    (void)state;
    struct bytes b = {.count = 0};
    struct acct_fatbin_entry e;
    char err[200];
    fill_text();
    add_entry(&b, ACCT_FATBIN_ELF, 90, 0, "x", 1, 0);
    add_entry(&b, ACCT_FATBIN_PTX, 75, 0, text, sizeof text, 0);
    add_entry(&b, ACCT_FATBIN_PTX, 90, 0, text, sizeof text, 0);
    add_entry(&b, ACCT_FATBIN_PTX, 80, 0, text, sizeof text, 0);
    expect_text(&b, 75, 75);
    expect_text(&b, 80, 80);
    expect_text(&b, 89, 80);
    expect_text(&b, 90, 90);
    expect_text(&b, 120, 90);
    assert_int_equal(ptx_fatbin_choose(b.at, b.count, 70, &e, err, sizeof err), 0);
}

static void damage(void **state) {
    (void)state;
    char packed[8192], err[200], *out;
    struct bytes b = {.count = 0};
    struct acct_fatbin_entry e;
    size_t n;
    fill_text();
    size_t zstd = ZSTD_compress(packed, sizeof packed, text, sizeof text, 3);
    add_entry(&b, ACCT_FATBIN_PTX, 80, ACCT_FATBIN_ZSTD, packed, zstd, sizeof text);
    assert_int_equal(ptx_fatbin_choose(b.at, b.count - 1, 80, &e, err, sizeof err), -1); /* cut off */
    assert_int_equal(ptx_fatbin_choose("nonsense, long enough", 21, 80, &e, err, sizeof err), -1);
    assert_int_equal(ptx_fatbin_choose(b.at, b.count, 80, &e, err, sizeof err), 1);
    struct acct_fatbin_entry wrong = e;
    wrong.uncompressed_bytes--;
    assert_int_equal(ptx_fatbin_text(&wrong, &out, &n, err, sizeof err), -1);
    assert_non_null(strstr(err, "offset 16"));
    wrong = e;
    wrong.uncompressed_bytes++;
    assert_int_equal(ptx_fatbin_text(&wrong, &out, &n, err, sizeof err), -1);
    wrong = e;
    wrong.uncompressed_bytes = UINT64_MAX;
    assert_int_equal(ptx_fatbin_text(&wrong, &out, &n, err, sizeof err), -1);
    wrong = e;
    wrong.payload_bytes /= 2;
    assert_int_equal(ptx_fatbin_text(&wrong, &out, &n, err, sizeof err), -1);
    assert_null(out);
    uint64_t too_long = 1 << 20; /* the entry's payload reaches past the end */
    memcpy(b.at + 16 + offsetof(struct acct_fatbin_entry_header, payload_bytes), &too_long, 8);
    assert_int_equal(ptx_fatbin_choose(b.at, b.count, 80, &e, err, sizeof err), -1);
    assert_non_null(strstr(err, "offset 16"));
}

/* nvcc -fatbin -gencode arch=compute_80,code=compute_80 with --no-compress and each --compress-mode. */
static void made_by_nvcc(void **state) {
    (void)state;
    static const char *const names[] = {"none", "speed", "size", "default"};
    static const uint64_t flags[] = {0, ACCT_FATBIN_LZ4, ACCT_FATBIN_ZSTD, ACCT_FATBIN_ZSTD};
    for (size_t i = 0; i < 4; i++) {
        char path[500], err[200], *out;
        unsigned char fat[4096];
        struct acct_fatbin_entry e;
        size_t n;
        snprintf(path, sizeof path, "%s/%s.fatbin", SEEDS, names[i]);
        FILE *file = fopen(path, "rb");
        assert_non_null(file);
        size_t bytes = fread(fat, 1, sizeof fat, file);
        fclose(file);
        assert_int_equal(ptx_fatbin_choose(fat, bytes, 80, &e, err, sizeof err), 1);
        assert_int_equal(e.flags & (ACCT_FATBIN_LZ4 | ACCT_FATBIN_ZSTD), flags[i]);
        if (ptx_fatbin_text(&e, &out, &n, err, sizeof err)) fail_msg("%s: %s", names[i], err);
        assert_non_null(strstr(out, ".entry _Z1kPf("));
        assert_int_equal(out[n - 1], '\n');
        free(out);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forms),
        cmocka_unit_test(choice),
        cmocka_unit_test(damage),
        cmocka_unit_test(made_by_nvcc),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
