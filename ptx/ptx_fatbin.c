#include "ptx/ptx_fatbin.h"
#include <inttypes.h>
#include <limits.h>
#include <lz4.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

enum { MAX_TEXT = 1 << 30 };

/* Decompresses into `room` bytes at out. Length, or -1 with the reason in *why. */
static int64_t unpack(const struct acct_fatbin_entry *e, char *out, size_t room, const char **why) {
    if (e->flags & ACCT_FATBIN_ZSTD) {
        size_t n = ZSTD_decompress(out, room, e->payload, e->payload_bytes);
        *why = ZSTD_isError(n) ? ZSTD_getErrorName(n) : NULL;
        return *why ? -1 : (int64_t)n;
    }
    int n = e->payload_bytes > INT_MAX
                ? -1
                : LZ4_decompress_safe((const char *)e->payload, out, (int)e->payload_bytes, (int)room);
    if (n < 0) *why = "damaged LZ4 data";
    return n;
}

int ptx_fatbin_text(const struct acct_fatbin_entry *e, char **text, size_t *bytes, char *err, size_t err_len) {
    bool packed = e->flags & (ACCT_FATBIN_ZSTD | ACCT_FATBIN_LZ4);
    uint64_t room = packed ? e->uncompressed_bytes : e->payload_bytes;
    const char *why = NULL;
    int64_t length = (int64_t)room;
    *text = NULL;
    if (e->kind != ACCT_FATBIN_PTX)
        why = "not PTX";
    else if (room > MAX_TEXT)
        why = "a text of over 1 GiB";
    else if (!(*text = malloc((size_t)room + 1)))
        why = "no memory";
    else if (packed)
        length = unpack(e, *text, (size_t)room, &why);
    else
        memcpy(*text, e->payload, (size_t)room);
    if (!why && packed && (uint64_t)length != room) why = "its length is not the one announced";
    if (why) {
        snprintf(err, err_len, "fat binary, entry at offset %" PRIu64 ": %s", e->offset, why);
        free(*text);
        *text = NULL;
        return -1;
    }
    (*text)[length] = 0;
    *bytes = strlen(*text); /* the padding is NULs */
    return 0;
}

int ptx_fatbin_choose(const void *fat, size_t bytes, unsigned sm, struct acct_fatbin_entry *out, char *err,
                      size_t err_len) {
    uint64_t length = acct_fatbin_bytes(fat, bytes), at = 0;
    struct acct_fatbin_entry e;
    int found = 0, rc;
    if (!length) {
        snprintf(err, err_len, "no fat binary, or cut off (offset 0)");
        return -1;
    }
    while ((rc = acct_fatbin_next(fat, length, &at, &e)) == 1) {
        if (e.kind != ACCT_FATBIN_PTX || e.arch > sm || (found && e.arch <= out->arch)) continue;
        *out = e;
        found = 1;
    }
    if (rc < 0) {
        snprintf(err, err_len, "fat binary, malformed entry at offset %" PRIu64, at);
        return -1;
    }
    return found;
}
