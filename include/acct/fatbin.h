/* The layout of a fat binary, and a walk over its entries that trusts nothing: the recorder (which keeps the PTX of
 * each module), the PTX reader and the virtual GPU share it. Header-only, no allocation, no library. Little-endian.
 *
 * __cudaRegisterFatBinary gets a struct acct_fatbin_wrapper. Version 1: `data` is a fat binary. Version 2 (-rdc=true):
 * `data` is linked machine code, and `more` a NULL-terminated array of fat binaries, one a translation unit. */
#ifndef ACCT_FATBIN_H
#define ACCT_FATBIN_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define ACCT_FATBIN_WRAPPER_MAGIC 0x466243B1u
#define ACCT_FATBIN_MAGIC 0xBA55ED50u

struct acct_fatbin_wrapper {
    uint32_t magic, version;
    const void *data;
    const void *const *more; /* version 2 */
};

struct acct_fatbin_header {
    uint32_t magic;
    uint16_t version, header_bytes; /* 1, 16 */
    uint64_t bytes;                 /* of the entries behind the header */
};

enum acct_fatbin_kind { ACCT_FATBIN_PTX = 1, ACCT_FATBIN_ELF = 2 };
enum acct_fatbin_flags {
    ACCT_FATBIN_64BIT = 1,
    ACCT_FATBIN_DEBUG = 2,
    ACCT_FATBIN_LZ4 = 0x2000,
    ACCT_FATBIN_ZSTD = 0x8000
};

struct acct_fatbin_entry_header {
    uint16_t kind, version; /* enum acct_fatbin_kind; 0x0101 */
    uint32_t header_bytes;
    uint64_t payload_bytes;    /* padded to 8 */
    uint32_t compressed_bytes; /* 0: raw */
    uint32_t options_offset;
    uint16_t isa_minor, isa_major;
    uint32_t arch; /* 80, 90, … */
    uint32_t name_offset, name_bytes;
    uint64_t flags;
    uint64_t reserved;
    uint64_t uncompressed_bytes; /* 0: raw */
};

/* One entry, as found. Points into the fat binary. */
struct acct_fatbin_entry {
    uint32_t kind, arch;
    uint32_t isa_major, isa_minor;
    uint64_t flags;
    const unsigned char *payload;
    uint64_t payload_bytes;      /* that count: the compressed size where compressed */
    uint64_t uncompressed_bytes; /* 0: raw */
    uint64_t offset;             /* of the entry in the fat binary, for messages */
};

/* Length of the whole fat binary at `fat`, of which `limit` bytes may be read; 0: it is none, or it is cut off. Where
 * the limit is not known (a pointer that the program registered) give SIZE_MAX. */
static inline uint64_t acct_fatbin_bytes(const void *fat, size_t limit) {
    struct acct_fatbin_header h;
    if (limit < sizeof h) return 0;
    memcpy(&h, fat, sizeof h);
    if (h.magic != ACCT_FATBIN_MAGIC || h.version != 1 || h.header_bytes < sizeof h) return 0;
    if (h.bytes > limit - sizeof h || h.header_bytes > limit - h.bytes) return 0;
    return h.header_bytes + h.bytes;
}

/* The entry at offset *at (0: the first) of the fat binary of `bytes` (as above) into *out; *at moves on to the next.
 * 1: an entry; 0: the end; -1: malformed at *at. */
static inline int acct_fatbin_next(const void *fat, uint64_t bytes, uint64_t *at, struct acct_fatbin_entry *out) {
    struct acct_fatbin_entry_header e;
    struct acct_fatbin_header h;
    if (!*at) {
        memcpy(&h, fat, sizeof h);
        *at = h.header_bytes;
    }
    if (*at >= bytes) return 0;
    uint64_t left = bytes - *at;
    if (left < sizeof e) return -1;
    memcpy(&e, (const char *)fat + *at, sizeof e);
    if (e.header_bytes < sizeof e || e.header_bytes > left || e.payload_bytes > left - e.header_bytes) return -1;
    if (e.compressed_bytes > e.payload_bytes) return -1;
    *out = (struct acct_fatbin_entry){.kind = e.kind,
                                      .arch = e.arch,
                                      .isa_major = e.isa_major,
                                      .isa_minor = e.isa_minor,
                                      .flags = e.flags,
                                      .payload = (const unsigned char *)fat + *at + e.header_bytes,
                                      .payload_bytes = e.compressed_bytes ? e.compressed_bytes : e.payload_bytes,
                                      .uncompressed_bytes = e.uncompressed_bytes,
                                      .offset = *at};
    *at += e.header_bytes + e.payload_bytes;
    return 1;
}

/* By which the trace tells payloads apart and checks them: FNV-1a, 64 bit. */
static inline uint64_t acct_fatbin_hash(const void *payload, uint64_t bytes) {
    const unsigned char *p = (const unsigned char *)payload;
    uint64_t h = 0xcbf29ce484222325u;
    for (uint64_t i = 0; i < bytes; i++) h = (h ^ p[i]) * 0x100000001b3u;
    return h;
}

#endif
