/* Fat binaries: containers of PTX and machine code, as nvcc puts them into programs and __cudaRegisterFatBinary gets
 * them. The layout is in include/acct/fatbin.h. Input is untrusted; every read is within `bytes`. */
#ifndef ACCT_PTX_FATBIN_H
#define ACCT_PTX_FATBIN_H

#include <acct/fatbin.h>
#include <stddef.h>
#include <stdint.h>

/* Uncompressed text of a PTX entry's payload: raw, zstd or LZ4, as its flags say. *text is malloc'ed, NUL-terminated,
 * the caller's; *bytes its length without that. 0, or -1 with one line in err (what, at which offset). A text of over
 * 1 GiB is refused. Any thread. */
int ptx_fatbin_text(const struct acct_fatbin_entry *entry, char **text, size_t *bytes, char *err, size_t err_len);

/* Among the entries of a fat binary, the PTX that a device of compute capability `sm` (90) would compile: the highest
 * architecture not above it; *out is filled. 1 found, 0 none (only machine code, or newer PTX), -1 with a line in err.
 */
int ptx_fatbin_choose(const void *fat, size_t bytes, unsigned sm, struct acct_fatbin_entry *out, char *err,
                      size_t err_len);

#endif
