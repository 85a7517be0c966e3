/* Fuzzer of the fat binary reader: entries, choice, decompression. The input is the fat binary; a header that would end
 * it early is repaired half of the time, so that the entries behind it are reached. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ptx/ptx_fatbin.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int ok, const char *what) {
    if (ok) return;
    fprintf(stderr, "fuzz_fatbin: %s\n", what);
    abort();
}

static void read_all(const unsigned char *fat, size_t size) {
    struct acct_fatbin_entry e;
    char err[200] = "";
    uint64_t bytes = acct_fatbin_bytes(fat, size), at = 0;
    if (!bytes) return;
    must(bytes <= size, "longer than its bytes");
    while (acct_fatbin_next(fat, bytes, &at, &e) == 1) {
        char *text = NULL;
        size_t length = 0;
        if (e.uncompressed_bytes > 1 << 24) continue; /* allowed, but slow here */
        int rc = ptx_fatbin_text(&e, &text, &length, err, sizeof err);
        must(rc == 0 ? text && strlen(text) == length : !text && err[0], "text");
        free(text);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct acct_fatbin_entry e;
    char err[200] = "";
    unsigned char *copy = malloc(size + 1); /* its own block, so that overruns are seen */
    memcpy(copy, data, size);
    if (size >= 16 && data[size - 1] & 1) {
        struct acct_fatbin_header h = {ACCT_FATBIN_MAGIC, 1, 16, size - 16};
        memcpy(copy, &h, sizeof h);
    }
    unsigned char *exact = malloc(size ? size : 1);
    memcpy(exact, copy, size);
    free(copy);
    read_all(exact, size);
    int rc = ptx_fatbin_choose(exact, size, 90, &e, err, sizeof err);
    must(rc >= 0 || err[0], "an error without text");
    must(rc != 1 || (e.kind == ACCT_FATBIN_PTX && e.arch <= 90), "the wrong entry");
    free(exact);
    return 0;
}
